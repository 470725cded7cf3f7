"""What runs today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from scopeval.errors import InputError
from scopeval.policies.adapters import as_policy

__all__ = ["Baseline", "Unconfirmed", "baseline_of"]

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
        object.__setattr__(self, "policy", as_policy(self.policy))


def baseline_of(given: Any) -> Baseline | None:
    """What was given as ``baseline=``: a policy, a `Baseline`, or nothing."""
    if given is None or isinstance(given, Baseline):
        return given
    return Baseline(given)
