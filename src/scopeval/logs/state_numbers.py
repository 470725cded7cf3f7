"""Number the states of observations that are tuples of discrete parts, such as Blackjack's.

A tuple (p0, p1, p2) of parts with n0, n1 and n2 values has the number (p0 n1 + p1) n2 + p2. For
``Blackjack-v1`` the parts are the player's sum (32 values), the dealer's card (11) and whether
there is a usable ace (2): 704 states, with the number (sum * 11 + card) * 2 + ace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Ints
from scopeval.errors import InputError

__all__ = ["StateNumbers"]


@dataclass(frozen=True)
class StateNumbers:
    """Numbers for tuples of discrete parts.

    Attributes:
        sizes: number of values of each part.
        starts: smallest value of each part.
    """

    sizes: tuple[int, ...]
    starts: tuple[int, ...]

    @classmethod
    def of_space(cls, space: object) -> StateNumbers | None:
        """The numbers for a Gymnasium space ``Tuple`` of ``Discrete`` spaces; None for others."""
        from gymnasium import spaces

        if not isinstance(space, spaces.Tuple) or not len(space.spaces):
            return None
        parts: list[Any] = list(space.spaces)
        if not all(isinstance(part, spaces.Discrete) for part in parts):
            return None
        return cls(tuple(int(part.n) for part in parts), tuple(int(part.start) for part in parts))

    @property
    def states(self) -> int:
        """How many states there are."""
        return math.prod(self.sizes)

    def number(self, parts: Sequence[ArrayLike]) -> Ints:
        """State numbers of one tuple, or of columns [n] with one entry per row.

        Raises:
            InputError: another number of parts, or a part outside its range.
        """
        if len(parts) != len(self.sizes):
            raise InputError(f"state: got {len(parts)} parts, expected {len(self.sizes)}")
        total: Any = np.int64(0)
        for k, (part, size, start) in enumerate(zip(parts, self.sizes, self.starts, strict=True)):
            values = np.asarray(part)
            if values.dtype.kind not in "biu":
                raise InputError(f"state: part {k} is {values.dtype}, expected whole numbers")
            offset = values.astype(np.int64) - start
            outside = (offset < 0) | (offset >= size)
            if outside.any():
                raise InputError(
                    f"state: part {k} is {values[outside][0]}, expected {start} to "
                    f"{start + size - 1}"
                )
            total = total * size + offset
        return np.asarray(total)

    def parts(self, number: ArrayLike) -> tuple[Ints, ...]:
        """The parts of state numbers.

        Raises:
            InputError: a number outside the states.
        """
        numbers = np.asarray(number, np.int64)
        outside = (numbers < 0) | (numbers >= self.states)
        if outside.any():
            worst = numbers[outside][0]
            raise InputError(f"state: got {worst}, expected numbers from 0 to {self.states - 1}")
        parts = np.unravel_index(numbers, self.sizes)
        return tuple(
            np.asarray(part + start, np.int64)
            for part, start in zip(parts, self.starts, strict=True)
        )
