"""What the design methods are: which control variate, which recursion, which constraint.

Every method takes the same step, `step.weigh_rows`: mu_a proportional to pi_a sqrt(X_a), within
a budget for the cost. They differ in three choices, and those are the fields of `Method`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.question.baseline import Baseline
from scopeval.question.promise import Promise
from scopeval.question.question import Question

__all__ = [
    "METHODS",
    "KnownModel",
    "Method",
    "StepFunction",
    "method_named",
    "register",
    "without_control_variate",
]


class StepFunction(Protocol):
    """Line 6 of a method of your own: arrays of B states and A actions in, mu [B, A] out."""

    def __call__(
        self, pi: Floats, second_moment: Floats, cost: Floats, budget: Floats, /
    ) -> ArrayLike:
        """Behavior probabilities.

        Args:
            pi: [B, A] the target policy.
            second_moment: [B, A] X, what one action's outcome contributes to the variance.
            cost: [B, A] q^c, the expected cost from here on.
            budget: [B] what that may be; read it if the method is constrained.
        """
        ...


@dataclass(frozen=True)
class Method:
    """A way to design behavior policies. `register` makes one of your own known by its name.

    Attributes:
        name: as the user types it.
        control_variate: estimate with b = q (doubly robust) instead of b = 0 (PDIS).
        constrained: keep the expected cost within (1+eps) times the target's.
        tilted: whether it departs from the target at all.
        follows_behavior: the second moment X looks ahead along mu (True), or along pi as in ODI's
            own recursion (False).
        step: line 6 of Algorithm 1, if it is not the program of the paper. Rows that are not
            distributions fall back to the target policy and are counted.
        constraint: whose cost-to-go the budget is spent on: "behavior" (q^c under mu, as in the
            paper's program) or "target" (q^c under pi, as its Algorithm 1 lists).
    """

    name: str
    control_variate: bool = False
    constrained: bool = False
    tilted: bool = True
    follows_behavior: bool = True
    step: StepFunction | None = None
    constraint: str = "behavior"

    def __post_init__(self) -> None:
        if self.constraint not in ("behavior", "target"):
            raise InputError(
                f"constraint: got {self.constraint!r}, expected 'behavior' or 'target'"
            )

    def __str__(self) -> str:
        return self.name

    @property
    def has_price(self) -> bool:
        """Whether a price of cost can take the place of a budget in every state."""
        return self.constrained and self.step is None


#: Known methods by name; `register` adds to them.
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


def register(method: Method) -> Method:
    """Make a method known by its name, to `design`, saved policies and the experiments."""
    if not isinstance(method, Method):
        raise InputError(f"method: got {type(method).__name__}, expected a Method")
    if METHODS.setdefault(method.name, method) != method:
        raise InputError(f"method: {method.name!r} is taken already; expected another name")
    return method


def method_named(name: str | Method) -> Method:
    """Look a method up by name; a `Method` stands for itself."""
    if isinstance(name, Method):
        if METHODS.get(name.name, name) != replace(name, constraint="behavior"):
            raise InputError(f"method: {name.name!r} is taken already; expected another name")
        return name
    if not isinstance(name, str) or name not in METHODS:
        raise InputError(
            f"method: got {name!r}, expected one of {', '.join(METHODS)}; a method of your own "
            "has to be registered first (scopeval.behavior.methods.register)"
        )
    return METHODS[name]


def without_control_variate(method: Method) -> Method:
    """The method to use when the logs do not support a control variate."""
    plain = METHODS["scope" if method.constrained else "odi"]
    return replace(plain, constraint=method.constraint)


# -- models that are known -------------------------------------------------------------------------


@runtime_checkable
class KnownModel(Protocol):
    """What `design` and `frontier` ask instead of learning, such as a `TabularMDP`."""

    def design_for(
        self, asked: Question, method: Method, promise: Promise, baseline: Baseline | None
    ) -> Any:
        """The optimal behavior policy."""
        ...

    def frontier_for(self, asked: Question, method: Method, **settings: Any) -> Any:
        """The least variance at every cost."""
        ...
