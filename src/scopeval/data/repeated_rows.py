"""Find out how many times a log stores its rows, in one pass and little memory.

Rows of state numbers repeat by nature, so that equal rows alone prove nothing. But if a whole log
was stored k times, then *every* distinct row occurs a multiple of k times. In a log that was stored
once, the counts of m distinct rows are all even with probability 2^-m only.

The counts are taken from a sample of contents: a row and its copies are either all in the sample or
none of them is. The sample does not depend on how the log is divided into batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Ints

__all__ = ["Repeats", "RowSample", "rows_once"]

#: Most rows in the sample. Above this the level goes up, and about half of the contents leave.
CAPACITY = 1 << 13
#: Rows whose keys are compared together; they fit into the processor's cache.
BLOCK = 1 << 15
#: Rows whose hashes are computed together, so that each call has enough to do.
CHUNK = 1 << 17
#: Distinct rows that a verdict needs: an honest log is judged wrongly with probability 2^-24.
LEAST_DISTINCT = 24
#: Bits of the key that choose the sample; after them bits of the hash of the whole row do.
KEY_BITS = 40

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Repeats:
    """How often the rows of a log occur.

    Attributes:
        copies: every distinct row occurs a multiple of this many times; 1 for a usual log.
        repeated: share of the rows that are equal to an earlier row.
        exact: whether all rows were counted, and not a sample.
    """

    copies: int = 1
    repeated: float = 0.0
    exact: bool = True


@dataclass
class RowSample:
    """Hashes of the sampled rows.

    Level 0 takes every row. Each level compares one more bit, with the first row's key and then
    with zero bits of the hash.
    """

    level: int = 0
    _first_key: int | None = None
    _keys: list[Ints] = field(default_factory=list)
    _hashes: list[_Hashes] = field(default_factory=list)
    _count: int = 0

    def add(self, key: Ints, columns: Sequence[NDArray[Any]]) -> None:
        """Add the next rows.

        Args:
            key: a number that is equal for equal rows, such as the state.
            columns: all columns, [n] or [n, d], with 8 bytes per entry.
        """
        if self._first_key is None and key.size:
            self._first_key = int(key[0])
        for start in range(0, len(key), CHUNK):
            part = slice(start, start + CHUNK)
            self._add(key[part], [column[part] for column in columns])

    def _add(self, key: Ints, columns: Sequence[NDArray[Any]]) -> None:
        rows = self._rows(key) if self.level else np.arange(len(key))
        # the level goes up before the rows are hashed, which takes most of the time
        while self._count + rows.size > CAPACITY and self.level < KEY_BITS:
            self._raise_level()
            rows = self._rows(key)
        if not rows.size:
            return
        keys, hashes = key[rows], hash_rows([column[rows] for column in columns])
        if self.level > KEY_BITS:
            stay = _starts_with_zeros(hashes, self.level - KEY_BITS)
            keys, hashes = keys[stay], hashes[stay]
        self._keys.append(keys)
        self._hashes.append(hashes)
        self._count += keys.size
        while self._count > CAPACITY and self.level < KEY_BITS + 40:
            self._raise_level()

    def repeats(self) -> Repeats:
        """What the sample says about the whole log."""
        if not self._count:
            return Repeats(exact=self.level == 0)
        counts = np.unique(np.concatenate(self._hashes), return_counts=True)[1]
        copies = int(np.gcd.reduce(counts)) if counts.size >= LEAST_DISTINCT else 1
        return Repeats(copies, 1.0 - counts.size / self._count, self.level == 0)

    def _rows(self, key: Ints) -> Ints:
        """The chosen rows."""
        starts = range(0, len(key), BLOCK)
        found = [np.flatnonzero(self._chosen(key[i : i + BLOCK])) + i for i in starts]
        return np.concatenate(found)

    def _chosen(self, key: Ints) -> NDArray[np.bool_]:
        """The rows whose key has the same last bits as the first row's."""
        mask = (1 << min(self.level, KEY_BITS)) - 1
        return np.asarray((key & mask) == ((self._first_key or 0) & mask))

    def _raise_level(self) -> None:
        self.level += 1
        if not self._count:
            return
        keys, hashes = np.concatenate(self._keys), np.concatenate(self._hashes)
        if self.level <= KEY_BITS:
            stay = self._chosen(keys)
        else:
            stay = _starts_with_zeros(hashes, self.level - KEY_BITS)
        self._keys, self._hashes = [keys[stay]], [hashes[stay]]
        self._count = int(np.count_nonzero(stay))


def hash_rows(columns: Sequence[NDArray[Any]]) -> _Hashes:
    """A 64-bit hash of each row; columns have 8 bytes per entry."""
    code = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        for scalars in column.reshape(len(code), -1).T:
            code ^= np.ascontiguousarray(scalars).view(np.uint64)
            code *= _MIX
            code ^= code >> _SHIFT
    return code


def rows_once(columns: Sequence[NDArray[Any]], copies: int) -> Ints:
    """Positions of the rows that remain when `copies` equal rows count as one.

    The order of the log survives if the copies follow each other as whole logs, or if the copies of
    a row are neighbors. Otherwise the first of every `copies` equal rows remain.
    """
    code = hash_rows(columns)
    rows = len(code)
    if rows % copies == 0:
        whole_logs, neighbors = code.reshape(copies, -1), code.reshape(-1, copies)
        if (whole_logs == whole_logs[0]).all():
            return np.arange(rows // copies)
        if (neighbors == neighbors[:, :1]).all():
            return np.arange(0, rows, copies)
    order = np.argsort(code, kind="stable")
    ordered = code[order]
    new = np.append(True, ordered[1:] != ordered[:-1])
    number = np.arange(rows) - np.flatnonzero(new)[np.cumsum(new) - 1]  # among its equals
    return np.sort(order[number % copies == 0])


def _starts_with_zeros(hashes: _Hashes, bits: int) -> NDArray[np.bool_]:
    return np.asarray(hashes >> np.uint64(64 - bits) == 0)
