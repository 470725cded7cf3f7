"""What runs today.

Which promise is judged: what a user states, or what the behavior policy was designed for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from scopeval.errors import InputError
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy, LearnedBehavior
from scopeval.question.promise import Promise

__all__ = ["Baseline", "Unconfirmed", "baseline_of", "judged_promise", "unrecognized"]

#: What to do with a design that the logs do not confirm: raise an error, or run the target policy.
Unconfirmed = Literal["refuse", "target"]


@dataclass(frozen=True)
class Baseline:
    """The policy that runs today: what is safe, because it is what is done anyway.

    A promise is about its cost. It takes the rest of an episode that passes a limit, and all
    episodes after the promise was refuted.

    Attributes:
        policy: it, in any form that `as_policy` takes; a controller by `deterministic`.
        unconfirmed: what happens with a design that falls back: "target": the target policy runs,
            and the first line of the summary says so. "refuse": an error, nothing runs.
    """

    policy: Any
    unconfirmed: Unconfirmed = "target"

    def __post_init__(self) -> None:
        if self.unconfirmed not in get_args(Unconfirmed):
            raise InputError(
                f"baseline.unconfirmed: got {self.unconfirmed!r}, expected one of "
                f"{get_args(Unconfirmed)}"
            )
        object.__setattr__(self, "policy", as_policy(self.policy, "baseline"))


def baseline_of(given: Any) -> Baseline | None:
    """What was given as ``baseline=``: a policy, a `Baseline`, or nothing."""
    if given is None or isinstance(given, Baseline):
        return given
    return Baseline(given)


# -- which promise is judged -----------------------------------------------------------------------


def judged_promise(behavior: Any, stated: Promise | None, baseline: Baseline | None) -> Promise:
    """The promise with all that is left open filled in: the multiple, and whose cost it is about.

    Args:
        behavior: what is run.
        stated: the user's; None: what the behavior policy was designed for.
        baseline: what runs today, if that is known.

    Raises:
        InputError: the behavior policy was designed for the cost of another policy, which is
            missing; or a promise about every state, which episodes cannot show.
    """
    learned = behavior if isinstance(behavior, LearnedBehavior) else None
    filled = _against(Promise() if stated is None else stated, baseline)
    if stated is not None or learned is None:
        return filled
    made = learned.promised
    if made is None:  # it promises nothing about other costs than the target's
        of_target = filled.compared == "target"
        return replace(filled, at_most=1.0 + learned.recipe.epsilon) if of_target else filled
    if made.whose == "limit" and made.limit is not None:
        return Promise(limit=made.limit)
    if filled.compared != "reference":
        raise InputError(
            "baseline: the behavior policy was designed for the cost of another policy, expected "
            "that policy as baseline; or try promise=Promise(of='target') to judge it by the "
            "target's own cost"
        )
    return replace(filled, at_most=1.0 + made.epsilon)


def _against(promise: Promise, baseline: Baseline | None) -> Promise:
    """The promise, with the baseline as the policy that it is about if it names none."""
    if promise.limit is not None:
        if promise.per == "state":
            raise InputError(
                "promise.limit: got it for every state, which a design keeps and episodes cannot "
                "show; expected a limit of whole episodes, Promise(limit=...)"
            )
        if not promise.limit > 0:
            raise InputError(f"promise.limit: got {promise.limit!r}, expected a number above 0")
        return promise
    if promise.of is not None or baseline is None:
        return promise
    if isinstance(baseline.policy, ContinuousPolicy):
        raise InputError("baseline: has continuous actions, expected finitely many")
    return replace(promise, of=baseline.policy, per=None)


def unrecognized(behavior: Any, promise: Promise) -> str | None:
    """A warning where the other policy is not the one of the design, as far as can be told."""
    if not isinstance(behavior, LearnedBehavior) or promise.compared != "reference":
        return None
    made = behavior.promised
    if made is None or made.whose != "reference" or behavior.recognizes_reference(promise.of):
        return None
    return (
        "the baseline is not recognized as the policy whose cost the behavior policy was designed "
        "for; the certificate judges the one that was given"
    )
