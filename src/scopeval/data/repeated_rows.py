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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Ints

__all__ = ["Contents", "Repeats", "RowSample", "rows_once"]

#: Most rows in the sample. Above this the level goes up, and about half of the contents leave.
CAPACITY = 1 << 12
#: Distinct rows that a verdict needs: a log stored once is judged wrongly with probability 2^-24.
LEAST_DISTINCT = 24
#: Bits that choose the sample: of the key, then of a hash of a few columns, then of the whole row.
#: Each is computed only for rows that the ones before have chosen. The key gives at most 16.
KEY_BITS, FEW_BITS, ROW_BITS = 16, 16, 40
#: Rows in which a large state number is looked for before all others.
GLANCE = 1 << 8
#: Times that rows are added before they are hashed.
TOGETHER = 16

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_Hashes = NDArray[np.uint64]
_Keys = NDArray[np.uint16]


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


class Contents(NamedTuple):
    """The columns of rows that tell one content from another, [n] or [n, d] each."""

    t: NDArray[Any]
    obs: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[Any]
    cost: NDArray[Any]
    next_obs: NDArray[Any]

    def at(self, rows: Ints | slice) -> Contents:
        """Some of the rows."""
        if isinstance(rows, slice):
            return Contents(*(column[rows] for column in self))
        return Contents(*(column.take(rows, axis=0) for column in self))

    def key(self, rows: Ints | slice = slice(None)) -> _Keys:
        """16 bits of each row that are equal for equal rows, and differ between many others.

        State numbers differ in their last bits, and so do most real numbers. Where the key does not
        (whole numbers stored as floats, constant columns), `few` divides the rows.
        """
        if self.obs.ndim == 1:
            return self.obs[rows].astype(np.uint16)
        key: _Keys = self.obs[rows, 0].view(np.int64).astype(np.uint16)
        key ^= self.reward[rows].view(np.int64).astype(np.uint16)
        return key

    def with_key(self, wanted: Wanted, rows: slice = slice(None)) -> Ints:
        """Numbers of those of the rows that have a wanted key."""
        mask, value = wanted.mask, wanted.value
        states, next_state = self.obs[rows], value + mask + 1  # that has these bits, too
        if states.ndim == 1 and states[:GLANCE].max() < next_state > states.max():
            return np.flatnonzero(states == value)  # the same in less time
        return np.flatnonzero((self.key(rows) & np.uint16(mask)) == np.uint16(value))

    def few(self, rows: Ints | slice) -> _Hashes:
        """A hash of columns that are likely to tell rows of the same key from each other."""
        other = self.action if self.obs.ndim == 1 else self.obs[:, -1]
        return hash_rows([other[rows], self.reward[rows]])

    def hashed(self, few: _Hashes) -> _Hashed:
        """All rows, ready for the sample."""
        return _Hashed(self.key(), few, hash_rows(self))


class Wanted(NamedTuple):
    """Bits of the key of rows that belong to the sample at a level."""

    level: int
    mask: int
    value: int


class _Hashed(NamedTuple):
    """Rows of the sample."""

    key: _Keys
    few: _Hashes  # hash of a few columns
    row: _Hashes  # hash of the whole row

    def select(self, rows: NDArray[Any]) -> _Hashed:
        return _Hashed(self.key[rows], self.few[rows], self.row[rows])


@dataclass
class RowSample:
    """Hashes of the sampled rows.

    Level 0 takes every row. Each level compares one more bit: of the key with that of the first
    row, and then of the hashes with zero. The level is the least at which all rows fit.
    """

    anchor: int | None = None  # key of the first row of the log
    level: int = 0
    _parts: list[_Hashed] = field(default_factory=list)
    _rows: list[Contents] = field(default_factory=list)  # not hashed yet: many at once are faster
    _count: int = 0  # of both

    def wanted(self, contents: Contents) -> Wanted:
        """The keys of the next rows that belong to the sample, at a level that they may need."""
        if self.anchor is None:
            self.anchor = int(contents.key(slice(1))[0])
        return self._wanted(max(self.level, _level_guess(len(contents.t))))

    def add(self, contents: Contents, wanted: Wanted, chosen: Ints) -> None:
        """Add those of the next rows that belong to the sample.

        Args:
            contents: the rows.
            wanted: what `wanted` said about them.
            chosen: the numbers of the rows that have these keys.
        """
        if self.level < wanted.level and chosen.size > CAPACITY:  # even at that level
            self._raise_level(wanted.level)
        if self.level < wanted.level:  # perhaps a lower one is enough
            chosen = self._choose(contents)
        elif self._count + chosen.size > CAPACITY and self.level < KEY_BITS:
            chosen = self._make_room(chosen, contents.key(chosen))
        if chosen.size and self.level < KEY_BITS:
            self._rows.append(contents.at(chosen))
            self._count += chosen.size
            if len(self._rows) >= TOGETHER:
                self._hash()
        elif chosen.size:
            self._add_by_few(contents, chosen)

    def _choose(self, contents: Contents) -> Ints:
        """Numbers of the rows that belong to the sample by their key, at the level they need."""
        parts, start = [np.empty(0, np.int64)], 0
        while start < len(contents.t):
            # so many rows that about as many of them are chosen as the sample holds
            stop = start + (CAPACITY << min(self.level, KEY_BITS))
            found = contents.with_key(self._wanted(self.level), slice(start, stop))
            parts.append(found + start)
            if self._count + sum(map(len, parts)) > CAPACITY and self.level < KEY_BITS:
                chosen = np.concatenate(parts)
                parts = [self._make_room(chosen, contents.key(chosen))]
            start = stop
        return np.concatenate(parts)

    def _make_room(self, chosen: Ints, key: _Keys) -> Ints:
        """Those of the chosen rows that remain at the least level at which the keys let all fit."""
        held = (*(part.key for part in self._parts), *(rows.key() for rows in self._rows))
        keys, level = np.concatenate([key, *held]), self.level + 1
        while level < KEY_BITS and np.count_nonzero(self._by_key(keys, level)) > CAPACITY:
            level += 1
        self._raise_level(level)
        return chosen[self._by_key(key)]

    def _add_by_few(self, contents: Contents, chosen: Ints) -> None:
        """Add rows of which the key has no more to say."""
        few = contents.few(chosen)
        inside = self._by_few(few)
        while self._count + inside.sum() > CAPACITY and self.level < KEY_BITS + FEW_BITS:
            self._raise_level()
            inside = self._by_few(few)
        found = contents.at(chosen[inside]).hashed(few[inside])
        found = found.select(self._by_row(found.row))
        self._parts.append(found)
        self._count += found.key.size
        while self._count > CAPACITY and self.level < KEY_BITS + FEW_BITS + ROW_BITS:
            self._raise_level()

    def _hash(self) -> None:
        """Hash the rows that are not hashed yet."""
        if self._rows:
            whole = Contents(*map(np.concatenate, zip(*self._rows, strict=True)))
            self._parts.append(whole.hashed(whole.few(slice(None))))
            self._rows = []

    def merge(self, other: RowSample) -> None:
        """Add the sample of later rows, which was taken with the same anchor.

        The level is the least at which all rows fit, in whatever order they come.
        """
        if self.anchor is None:
            self.anchor = other.anchor
        other._hash()
        while self.level < other.level:
            self._raise_level()
        lifted = RowSample(self.anchor, other.level, list(other._parts), [], other._count)
        while lifted.level < self.level:
            lifted._raise_level()
        self._parts += lifted._parts
        self._count += lifted._count
        while self._count > CAPACITY and self.level < KEY_BITS + FEW_BITS + ROW_BITS:
            self._raise_level()

    def repeats(self) -> Repeats:
        """What the sample says about the whole log."""
        if not self._count:
            return Repeats(exact=self.level == 0)
        self._hash()
        hashes = np.concatenate([part.row for part in self._parts])
        counts = np.unique(hashes, return_counts=True)[1]
        copies = int(np.gcd.reduce(counts)) if counts.size >= LEAST_DISTINCT else 1
        return Repeats(copies, 1.0 - counts.size / self._count, self.level == 0)

    def _raise_level(self, level: int | None = None) -> None:
        """Go up by one level, or to one that the key decides."""
        self.level = self.level + 1 if level is None else level
        if self.level <= KEY_BITS:
            self._rows = [self._remaining(rows) for rows in self._rows]
        else:
            self._hash()
        if self._parts:
            whole = _Hashed(*(np.concatenate(arrays) for arrays in zip(*self._parts, strict=True)))
            if self.level <= KEY_BITS:
                inside = self._by_key(whole.key)
            elif self.level <= KEY_BITS + FEW_BITS:
                inside = self._by_few(whole.few)
            else:
                inside = self._by_row(whole.row)
            self._parts = [whole.select(inside)]
        self._count = sum(part.key.size for part in self._parts)
        self._count += sum(len(rows.t) for rows in self._rows)

    def _remaining(self, rows: Contents) -> Contents:
        inside = self._by_key(rows.key())
        return rows if inside.all() else rows.at(np.flatnonzero(inside))

    def _by_key(self, key: _Keys, level: int | None = None) -> NDArray[np.bool_]:
        _, mask, value = self._wanted(self.level if level is None else level)
        return np.asarray((key & np.uint16(mask)) == np.uint16(value))

    def _wanted(self, level: int) -> Wanted:
        mask = (1 << min(level, KEY_BITS)) - 1
        return Wanted(level, mask, (self.anchor or 0) & mask)

    def _by_few(self, hashes: _Hashes) -> NDArray[np.bool_]:
        return _starts_with_zeros(hashes, min(self.level - KEY_BITS, FEW_BITS))

    def _by_row(self, hashes: _Hashes) -> NDArray[np.bool_]:
        return _starts_with_zeros(hashes, self.level - KEY_BITS - FEW_BITS)


def _level_guess(rows: int) -> int:
    """The level at which about twice as many rows are chosen as the sample holds."""
    return min(max((rows // CAPACITY).bit_length() - 2, 0), KEY_BITS)


def hash_rows(columns: Sequence[NDArray[Any]]) -> _Hashes:
    """A 64-bit hash of each row; columns have 8 bytes per entry."""
    code = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        for scalars in np.atleast_2d(column.T):
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
    if bits <= 0:
        return np.ones(hashes.size, np.bool_)
    return np.asarray(hashes >> np.uint64(64 - bits) == 0)
