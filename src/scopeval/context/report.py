"""What a context has done for an evaluation, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scopeval.estimation.moments import Interval

__all__ = ["ContextReport"]


@dataclass(frozen=True)
class ContextReport:
    """What exogenous paths, as a control variate, have done.

    Attributes:
        what: which columns, in words.
        paths: number of paths of the history; inf: their law is known.
        share: share of g that was removed.
        error: standard error that the mean of g over the history brings; the interval contains it.
        relative_variance: of the estimate, relative to the plain mean of the same episodes.
        kept: share of the variance of one value that g leaves.
        law: "same", or "typical": the value is standardized to the history's law.
        plain: interval for the mean of the values without context, as for a fixed number of them.
        differs: how the law of the episodes' paths differs from the history's, in words.
        dependent: columns that depend on the actions, in words.
        outside: share of the history's paths that are outside of what the episodes have seen.
        copied: paths that stand in the history several times or are the episodes' own, in words.
    """

    what: str
    paths: float
    share: float
    error: float
    relative_variance: float
    kept: float
    law: str
    plain: Interval
    differs: tuple[str, ...]
    dependent: tuple[str, ...]
    outside: float
    copied: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What was done, in words."""
        where = "by its known law"
        if math.isfinite(self.paths):
            where = f"by {self.paths:,.0f} paths of history"
        if self.law == "typical":
            seen = self.plain
            told = (
                f"the value is the one in the climate of the history ({self.what}, {where}), as "
                f"far as a regression on paths explains it; in the climate of the episodes it is "
                f"{seen.estimate:.4g} ({seen.low:.4g} to {seen.high:.4g})"
            )
            if self.outside > 0:
                told += (
                    f"; {100 * self.outside:.2g}% of the history's paths are beyond what the "
                    "episodes have seen"
                )
            return told + "".join(f"; {text}" for text in self.differs)
        return (
            f"{self.what} is a control variate, its mean known {where}: the estimate has "
            f"{self.relative_variance:.3g} of the variance that it would have without"
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What speaks against using the history, in words."""
        if self.law == "typical":
            return self.dependent + self.copied
        return (
            self.dependent
            + self.copied
            + tuple(
                f"{text}: if the paths of the history have another law than the episodes', the "
                "estimate is biased; try History(..., law='typical'), or check the dates"
                for text in self.differs
            )
        )
