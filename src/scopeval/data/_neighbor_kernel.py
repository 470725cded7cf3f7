"""The compiled part of `data.log_statistics`: neighbors and the sample of contents in one pass."""

from __future__ import annotations

from typing import Any

import numba as nb

_numbers = nb.types.Array(nb.int64, 1, "C", readonly=True)  # a log may be read-only


@nb.njit(  # type: ignore[untyped-decorator]
    nb.int64(_numbers, _numbers, nb.int64, nb.int64, nb.boolean[::1], nb.int64[::1]),
    cache=True,
    nogil=True,
)
def scan(t: Any, key: Any, mask: int, value: int, separate: Any, chosen: Any) -> int:
    """Mark the pairs whose t does not go up by one, and list the rows that the key chooses.

    Args:
        t: of the first row of every pair, and of the last row, [pairs + 1].
        key: of the rows, [pairs] or [pairs + 1].
        mask: bits of the key that choose.
        value: what these bits are in a row that is chosen.
        separate: the marks, [pairs].
        chosen: the numbers of the rows, as many as there are keys at most.

    Returns:
        How many were chosen.
    """
    count = 0
    for i in range(len(separate)):
        separate[i] = t[i + 1] - t[i] != 1
        if key[i] & mask == value:
            chosen[count] = i
            count += 1
    for i in range(len(separate), len(key)):
        if key[i] & mask == value:
            chosen[count] = i
            count += 1
    return count
