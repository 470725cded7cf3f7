"""Words and rounded numbers of differences."""

from __future__ import annotations

import math
from typing import Protocol

from scopeval.evaluation.result import rounded

__all__ = ["Ends", "between_in_words", "round_guess", "rounded_ends", "shortened"]


class Ends(Protocol):
    """An estimate and its interval."""

    @property
    def estimate(self) -> float:
        """The middle."""
        ...

    @property
    def low(self) -> float:
        """-inf: nothing bounds it."""
        ...

    @property
    def high(self) -> float:
        """inf: nothing bounds it."""
        ...

    @property
    def half_width(self) -> float:
        """Infinite where an end is open."""
        ...


def rounded_ends(d: Ends, sign: float = 1.0) -> tuple[str, str, str]:
    """Estimate, low and high (of the opposite where `sign` is -1), as exact as they are known.

    An end that nothing bounds is "inf" or "-inf".
    """
    low, high = sorted((sign * d.low, sign * d.high))
    ends = [x for x in (low, high) if math.isfinite(x)]
    spread = d.half_width if len(ends) == 2 else max(abs(sign * d.estimate - x) for x in [*ends, 0])
    value, below, above = rounded(spread, sign * d.estimate, low, high)
    return value, below, above


def between_in_words(low: str, high: str) -> str:
    """Both ends in words; few events say nothing about the side of the long tail."""
    if high == "inf":
        return f"at least {low} (too few events for the other end)"
    if low == "-inf":
        return f"at most {high} (too few events for the other end)"
    return f"between {low} and {high}"


def round_guess(n: float) -> str:
    """Two digits are enough for a number that is a guess."""
    if n < 100:
        return f"{math.ceil(n):,}"
    digits = 1 - math.floor(math.log10(n))
    return f"{round(n, digits):,.0f}"


def shortened(name: str, most: int) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
