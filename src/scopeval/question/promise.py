"""What may be spent: a promise about an expected cost, and limits that act within an episode.

A `Promise` compares the expected cost of an episode of the behavior policy with

- the cost of what runs today (``baseline=`` of the verbs), where there is a baseline;
- else the cost of the target policy;
- the cost of another policy (``of=policy``), or
- a number (``limit=``).

It is one value from the argument to the certificate: a design is made to keep it, the certificate
judges it, and the guard hands over to the policy that is known to keep it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from scopeval.arrays import is_number
from scopeval.errors import InputError
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy

__all__ = [
    "COST",
    "Bound",
    "Compared",
    "GuardAction",
    "Limit",
    "Promise",
    "check_multiple",
    "promises_and_limits",
]

#: The name of the cost among the signals of a step.
COST = "cost"

#: Largest multiple that is taken for one: beyond it somebody means percent.
MOST = 10.0

#: What the expected cost is about: the whole episode, or its rest from every state on.
Scope = Literal["episode", "state"]

#: What a promise compares with: the cost of the target policy, of another one, or a number.
Compared = Literal["target", "reference", "limit"]

#: What happens once a promise is refuted, or after a limit was exceeded: it is told; no more
#: episodes are started; the baseline takes the rest of this episode; the baseline (without one, the
#: target policy) decides from now on, for good; control goes back at once and no more episodes are
#: started, for good. Evaluations know the first and the fourth, campaigns all.
GuardAction = Literal["tell", "pause", "fall back", "hand over", "stop"]


@dataclass(frozen=True)
class Bound:
    """The most that can be spent, if that is known: certificate and guard are then proofs.

    Attributes:
        episode: the most that one episode can cost (not discounted).
        step: the most that one step can cost.
    """

    episode: float | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        for name in ("episode", "step"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(
                    f"bound.{name}: got {value!r}, expected the most that one {name} can cost, a "
                    "finite number above 0"
                )

    @property
    def stated(self) -> bool:
        """Whether anything is known."""
        return self.episode is not None or self.step is not None


@dataclass(frozen=True)
class Promise:
    """The expected cost of an episode is at most this.

    Attributes:
        at_most: times the cost of the baseline, where there is one, else of the target policy.
        limit: a number instead; `at_most` is then 1.
        of: a policy whose cost is meant, instead of the baseline's or the target's; "target": the
            target's own in any case.
        per: "episode": whole episodes; what is saved in one state may be spent in another. "state":
            the rest of the episode from every state on. None: "state" where the target's own cost
            or more may be spent, else "episode", since nothing else is possible.
        signal: the name of what is summed.
        bound: the most that an episode, or a step, can cost, if that is known.
        action: what happens once the promise is refuted.
    """

    at_most: float = 1.0
    limit: float | None = None
    of: Any = None
    per: Scope | None = None
    signal: str = COST
    bound: Bound = field(default_factory=Bound)
    action: GuardAction = "hand over"

    def __post_init__(self) -> None:
        check_multiple("promise.at_most", self.at_most, "; for an absolute number try limit=")
        if self.limit is not None:
            if not (is_number(self.limit) and self.limit >= 0):
                raise InputError(
                    f"promise.limit: got {self.limit!r}, expected a number of at least 0: what an "
                    "episode, or its rest, may cost"
                )
            if self.at_most != 1.0 or self.of is not None:
                raise InputError(
                    f"promise.limit: got {self.limit!r} with at_most={self.at_most!r}, "
                    f"of={self.of!r:.40}; a limit stands for itself, expected it alone"
                )
        if self.per not in (None, *get_args(Scope)):
            raise InputError(
                f"promise.per: got {self.per!r}, expected 'episode' or 'state' (or nothing)"
            )
        if self.per == "state":
            self._check_per_state()
        if not isinstance(self.signal, str) or not self.signal:
            raise InputError(f"promise.signal: got {self.signal!r}, expected a name")
        if not isinstance(self.bound, Bound):
            raise InputError(
                f"promise.bound: got {self.bound!r:.40}, expected Bound(episode=...) or "
                "Bound(step=...)"
            )
        _check_action("promise", self.action)
        if self.of is not None and not isinstance(self.of, str):
            policy = as_policy(self.of)
            if isinstance(policy, ContinuousPolicy):
                raise InputError("promise.of: has continuous actions, expected finitely many")
            object.__setattr__(self, "of", policy)
        elif self.of not in (None, "target"):
            raise InputError(
                f"promise.of: got {self.of!r}, expected a policy, 'target', or nothing"
            )

    def _check_per_state(self) -> None:
        if self.at_most < 1.0:
            raise InputError(
                f"promise.per: got 'state' with at_most={self.at_most:g}; below 1 a promise is "
                "about whole episodes, expected per='episode', or leave it out"
            )
        if self.of not in (None, "target"):
            raise InputError(
                "promise.per: got 'state' with the cost of another policy, which is known for "
                "whole episodes; expected per='episode', or leave it out"
            )

    @property
    def compared(self) -> Compared:
        """What the cost is compared with; a baseline is `of` once the verb has filled it in."""
        if self.limit is not None:
            return "limit"
        return "target" if self.of in (None, "target") else "reference"

    @property
    def epsilon(self) -> float:
        """`at_most` - 1; 0 for a limit."""
        return round(self.at_most - 1.0, 12)


@dataclass(frozen=True)
class Limit:
    """What may never be exceeded; it acts at once, within an episode.

    Attributes:
        signal: "cost", or the name of a signal.
        step: the most that one step may read.
        episode: the most that the steps of an episode may sum to.
        total: the most that all episodes together may sum to, running and lost ones included.
        action: what happens at the next decision after a limit was exceeded.
    """

    signal: str = COST
    step: float | None = None
    episode: float | None = None
    total: float | None = None
    action: GuardAction = "hand over"

    def __post_init__(self) -> None:
        if not isinstance(self.signal, str) or not self.signal:
            raise InputError(f"limit: got the signal {self.signal!r}, expected a name")
        _check_action("limit", self.action)
        given = [x for x in (self.step, self.episode, self.total) if x is not None]
        if not given or not all(is_number(x) for x in given):
            raise InputError(
                f"limit: got a limit on {self.signal!r} with step={self.step!r}, "
                f"episode={self.episode!r}, total={self.total!r}; expected numbers, at least one"
            )
        if self.signal == COST and min(given) < 0:
            raise InputError(
                f"limit: got a limit of {min(given):g} on the cost, which is at least 0; expected "
                "a number of at least 0"
            )


def _check_action(name: str, action: Any) -> None:
    if action not in get_args(GuardAction):
        actions = ", ".join(repr(one) for one in get_args(GuardAction))
        raise InputError(f"{name}: got the action {action!r}, expected one of {actions}")


def check_multiple(name: str, value: Any, more: str = "") -> float:
    """A multiple of a policy's cost; `more` is for the message."""
    if not (is_number(value) and 0 < value <= MOST):
        raise InputError(
            f"{name}: got {value!r}, expected a number above 0, and at most {MOST:g} (1: no more "
            f"than the policy that it is compared with; 0.7: 30 % less; 1.1: 10 % more){more}"
        )
    return float(value)


def promises_and_limits(
    given: Any, *, limits: bool = False, campaign: bool = False
) -> tuple[tuple[Promise, ...], tuple[Limit, ...]]:
    """What was given as ``promise=``, which is always a list inside.

    Args:
        given: one, several, or none.
        limits: whether limits are possible here.
        campaign: whether other signals than the cost are measured here, and all actions possible.

    Raises:
        InputError: something else, or promises about signals that nothing here measures.
    """
    if given is None:
        every: tuple[Any, ...] = ()
    elif isinstance(given, Promise | Limit):
        every = (given,)
    elif isinstance(given, Iterable) and not isinstance(given, str):
        every = tuple(given)
    else:
        every = (given,)
    for one in every:
        if not isinstance(one, (Promise, Limit) if limits else Promise):
            number = ""
            if is_number(one) and 0 < one <= MOST:
                number = f"; try Promise(at_most={one:g})"
            raise InputError(
                f"promise: got {one!r:.40}, expected Promise(...)"
                f"{' or Limit(...)' if limits else ''}{number}"
            )
        if campaign:
            continue
        if one.signal != COST:
            raise InputError(
                f"promise: got the signal {one.signal!r}, expected 'cost'; other signals are "
                "watched in a campaign"
            )
        if isinstance(one, Promise) and one.action not in ("tell", "hand over"):
            raise InputError(
                f"promise: got the action {one.action!r}, expected 'tell' or 'hand over'; others "
                "are for campaigns"
            )
    promises = tuple(one for one in every if isinstance(one, Promise))
    for signal, count in Counter(one.signal for one in promises).items():
        if count > 1:
            raise InputError(
                f"promise: got {count} about {signal!r}, expected one; the tighter one implies the "
                "other"
            )
    return promises, tuple(one for one in every if isinstance(one, Limit))
