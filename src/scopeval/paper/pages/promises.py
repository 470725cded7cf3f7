"""What the pages of all experiments say alike: whether the methods that promise safety kept it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from scopeval.report.page import Verdict

if TYPE_CHECKING:
    from scopeval.paper.experiments.gridworld_exact import Statistic

__all__ = ["beside", "dearer", "safely", "verdict"]


class Row(Protocol):
    """One method, over all policies."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def cost(self) -> Statistic:
        """Relative cost."""


def dearer(costs: Iterable[tuple[str, str, Statistic]], epsilon: float) -> list[str]:
    """Which of (where, method, cost) are above the promise, by more than the standard error."""
    return [
        f"{method} costs {cost.mean:.3f} times the policy's own on {where}"
        for where, method, cost in costs
        if not cost.within(1 + epsilon)
    ]


def safely(dear: Sequence[str], epsilon: float) -> str:
    """The end of the answer."""
    if dear:
        return f"but not always safely: {'; '.join(dear)}"
    return (
        f"and an episode costs at most {1 + epsilon:g} times the policy's own, "
        "on average over the policies and within standard error"
    )


def verdict(dear: Sequence[str], epsilon: float) -> Verdict:
    """Safe or not, in a few words."""
    allowed = f"{1 + epsilon:g}"
    if dear:
        return Verdict("bad", f"A cost ratio is above {allowed} by more than its standard error")
    return Verdict("good", f"Cost ratios at most {allowed}, within standard error")


def beside(row: Row, paper: tuple[float, float, int] | None) -> str:
    """What stands below the saving of a method."""
    told = f"the paper: {1 - paper[2] / 1000:.1%}; " if paper else ""
    return f"{told}cost ratio {row.cost.text(',.3f')}"
