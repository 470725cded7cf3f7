"""Numbers that describe a path: means of blocks of it, their squares, and hinges.

A hinge is max(x - knot, 0). Of a block's mean it says how high the block is as a whole; of every
entry, averaged over the block, how far it goes beyond the knot, as where one sells at high prices.

What centers and scales them comes from the paths that a regression learns from, never from those
that it is applied to, nor from the history: given those, each feature is a fixed function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from scopeval.arrays import Bools, Floats, Ints

__all__ = ["KNOTS", "LEVELS", "PLAIN", "BlockMeans", "Level", "PathFeatures"]

#: Hinges begin at these quantiles, of a block's mean or of all entries of a column.
KNOTS = (0.25, 0.5, 0.75)
#: Paths that are described at a time: bounds the memory.
_PIECE = 20_000


@dataclass(frozen=True)
class Level:
    """How closely a path is described.

    Attributes:
        blocks: number of blocks of equal length.
        squares: also the squares of their means.
        hinges: also what their means exceed their quartiles by.
        entries: also the means of what their entries exceed the column's quartiles by.
    """

    blocks: int
    squares: bool = False
    hinges: bool = False
    entries: bool = False

    def columns(self, width: int) -> int:
        """Number of features of paths with so many columns."""
        each = 1 + self.squares + len(KNOTS) * (self.hinges + self.entries)
        return self.blocks * width * each


#: From coarse to fine; held-out error chooses.
LEVELS = (
    Level(1),
    Level(1, squares=True, hinges=True),
    Level(1, squares=True, hinges=True, entries=True),
    Level(3),
    Level(3, squares=True, hinges=True),
    Level(3, squares=True, hinges=True, entries=True),
    Level(6),
    Level(6, squares=True),
    Level(6, squares=True, hinges=True),
    Level(6, squares=True, hinges=True, entries=True),
    Level(12, squares=True, hinges=True),
    Level(12, squares=True, hinges=True, entries=True),
)
#: For what is one row of features already.
PLAIN: Sequence[Level] = (Level(1),)


@dataclass(frozen=True)
class BlockMeans:
    """Paths as their blocks' means, each number of blocks computed once.

    Attributes:
        paths: [n, L, d].
    """

    paths: Floats
    _known: dict[int, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.paths)

    def of(self, blocks: int) -> Floats:
        """[n, blocks x d]."""
        if blocks not in self._known:
            self._known[blocks] = _block_means(self.paths, blocks)
        return self._known[blocks]

    def rows(self, which: Bools | Ints | slice) -> BlockMeans:
        """Some of the paths."""
        return BlockMeans(
            self.paths[which], {blocks: means[which] for blocks, means in self._known.items()}
        )


@dataclass(frozen=True)
class PathFeatures:
    """Features of paths, each with mean 0 and deviation 1 over the paths that it was learned from.

    Attributes:
        level: how closely a path is described.
        center: of the blocks' means.
        scale: of the blocks' means; 1 where they do not vary.
        knots: [3, blocks x d] where hinges of blocks begin.
        entry_knots: [3, d] where hinges of entries begin.
        mean: of the features.
        spread: of the features; inf where they do not vary, which makes them 0.
    """

    level: Level
    center: Floats
    scale: Floats
    knots: Floats
    entry_knots: Floats
    mean: Floats
    spread: Floats

    @classmethod
    def learn(cls, paths: BlockMeans, level: Level) -> PathFeatures:
        """From n paths."""
        blocks = paths.of(level.blocks)
        center, scale = blocks.mean(axis=0), blocks.std(axis=0)
        scale = np.where(scale > 1e-9 * np.abs(center), scale, 1.0)
        knots = np.zeros((len(KNOTS), len(center)))
        if level.hinges:
            knots = np.quantile((blocks - center) / scale, KNOTS, axis=0)
        width = paths.paths.shape[2]
        entry_knots = np.zeros((len(KNOTS), width))
        if level.entries:
            entry_knots = np.quantile(paths.paths.reshape(-1, width), KNOTS, axis=0)
        one = np.ones(1)
        raw = cls(level, center, scale, knots, entry_knots, 0 * one, one)._raw(paths)
        mean, spread = raw.mean(axis=0), raw.std(axis=0)
        spread = np.where(spread > 1e-9 * np.abs(raw).max(axis=0), spread, np.inf)
        return cls(level, center, scale, knots, entry_knots, mean, spread)

    def of(self, paths: BlockMeans) -> Floats:
        """[n, p]."""
        return (self._raw(paths) - self.mean) / self.spread

    def pieces(self, paths: BlockMeans) -> Iterator[Floats]:
        """The same of many paths, piece by piece."""
        paths.of(self.level.blocks)  # once for all levels with so many blocks
        for first in range(0, len(paths), _PIECE):
            yield self.of(paths.rows(slice(first, first + _PIECE)))

    def _raw(self, paths: BlockMeans) -> Floats:
        z = (paths.of(self.level.blocks) - self.center) / self.scale
        parts = [z]
        if self.level.squares:
            parts.append(z * z)
        if self.level.hinges:
            parts += [np.maximum(z - knot, 0.0) for knot in self.knots]
        if self.level.entries:
            parts += [
                _block_means(np.maximum(paths.paths - knot, 0.0), self.level.blocks)
                for knot in self.entry_knots
            ]
        return np.concatenate(parts, axis=1)


def _block_means(paths: Floats, blocks: int) -> Floats:
    """[n, blocks x d]."""
    n, length, _ = paths.shape
    if blocks == 1:
        return np.asarray(paths.mean(axis=1))
    ends = np.linspace(0, length, blocks + 1).round().astype(np.int64)
    return np.concatenate([paths[:, a:b].mean(axis=1) for a, b in pairwise(ends)], axis=1).reshape(
        n, -1
    )
