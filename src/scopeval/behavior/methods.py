"""What the design methods are: which control variate, which recursion, which constraint.

Every method tilts the target by the same step, `tilt`: mu_a proportional to pi_a sqrt(X_a), within
a budget for the cost. They differ in three choices, and those are the fields of `Method`.
"""

from __future__ import annotations

from dataclasses import dataclass

from scopeval.arrays import is_number
from scopeval.errors import InputError

__all__ = ["BUDGETS", "METHODS", "Method", "check_budget", "check_epsilon", "method_named"]

#: What the promise is about: the rest of the episode from every state on, or whole episodes.
BUDGETS = ("state", "episode")


@dataclass(frozen=True)
class Method:
    """A way to design behavior policies.

    Attributes:
        name: as the user types it.
        control_variate: estimate with b = q (doubly robust) instead of b = 0 (PDIS).
        constrained: keep the expected cost within (1+eps) times the target's.
        tilted: whether it departs from the target at all.
        follows_behavior: the second moment X looks ahead along mu (True), or along pi as in ODI's
            own recursion (False).
    """

    name: str
    control_variate: bool = False
    constrained: bool = False
    tilted: bool = True
    follows_behavior: bool = True


METHODS: dict[str, Method] = {
    m.name: m
    for m in (
        Method("scope", constrained=True),
        Method("scope-dr", control_variate=True, constrained=True),
        Method("odi", follows_behavior=False),
        Method("dopt", control_variate=True),
        Method("on-policy", tilted=False),
    )
}


def method_named(name: str | Method) -> Method:
    """Look a method up by name."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(f"method: got {name!r}, expected one of {', '.join(METHODS)}")
    return METHODS[name]


def check_budget(budget: str, limit: object = None, constraint: str = "behavior") -> str:
    """What the promise is about; some settings are for every state's own budget only."""
    if not isinstance(budget, str) or budget not in BUDGETS:
        raise InputError(f"budget: got {budget!r}, expected {' or '.join(map(repr, BUDGETS))}")
    if budget == "episode" and limit is not None:
        raise InputError(
            f"limit: got {limit!r} with budget='episode', but a limit is for every state; "
            "try budget='state', or leave limit out"
        )
    if budget == "episode" and constraint != "behavior":
        raise InputError(
            f"constraint: got {constraint!r} with budget='episode', expected 'behavior': what an "
            "episode costs is what the behavior policy spends"
        )
    return budget


def check_epsilon(epsilon: float) -> float:
    """A safety parameter: how much dearer than the target the behavior may be."""
    if not (is_number(epsilon) and epsilon >= 0):
        raise InputError(
            f"epsilon: got {epsilon!r}, expected a finite number >= 0 (0: never dearer than the "
            "target; 0.1: at most 10 % dearer)"
        )
    return float(epsilon)
