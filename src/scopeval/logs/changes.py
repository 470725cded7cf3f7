"""Rows from all over a log: did units change in its course, and are costs those of their rows?

*The sample.* Blocks of consecutive rows are kept: every one at first, then every second, fourth,
... so that the sample is spread evenly. It does not depend on how the log is divided.

*Changes.* Controllers may change, and returns with them, but given observation and action the law
of reward and cost stays. Rows of equal (t, s, a), or (s, a) if few rows share a t, are a cell;
vectors are divided into cells at medians of the coordinates that reward and cost vary with most. In
each cell rows are ranked by the reward (its size, the cost), and

    S = sum of (rank - mean rank) / (rows of the cell) over the rows after a split

is about 0 whatever controllers ran when. Episodes may have effects of their own, so that sums over
stretches of the log, at least an episode each, are taken for what is exchangeable. Bernstein's
inequality then bounds the probability of such an S, with no law of the values assumed. Ranks see a
change of any size if it is regular enough, so that the size is judged apart.

*Costs.* Three errors leave traces. Late costs belong to the row before: if states are complete,
then given its own (s, a) a cost has nothing to do with the pair before, which therefore cannot
explain more of it. Running totals never fall within an episode, and differ for the same (s, a).
Clipped costs pile up at one value, with other values up to it that hardly ever repeat; a fixed
penalty leaves a gap below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.logs.transitions import Transitions

__all__ = [
    "CHANCE",
    "FALSE_ALARM",
    "HARMFUL",
    "CostColumn",
    "Spread",
    "SpreadRows",
    "UnitChange",
    "beyond_chance",
    "look_at_costs",
    "pairs_of",
    "unit_changes",
]

#: Logs are refused by chance with at most this probability.
CHANCE = 1e-9
#: Each kind of warning about values is given by chance with at most this probability.
FALSE_ALARM = 1e-4
#: Rows of a block, and most rows in the sample. Twice as many take twice the time to judge.
BLOCK_ROWS, MOST_ROWS = 64, 1 << 13
#: Stretches of the log that are exchanged, and the shares of the log at which it is split.
STRETCHES, SPLITS = 256, 8
#: Smallest change that is told, as a factor. Below it a variance changes by less than a fifth.
LEAST_FACTOR = 1.1
#: For vectors: cells are not points, and what controllers do within them may change.
LEAST_VECTOR_FACTOR = 1.5
#: Factor above which no design may rest on the log. Critics learn the mean of both halves; for
#: values of the first kind that is (1 + f) / 2 times too large, and a control variate that is wrong
#: by more than all of its size, (f - 1) / 2 > 1, does more harm than none.
HARMFUL = 3.0
#: Rows of a cell of vectors.
CELL_ROWS = 32
#: Coordinates of vectors that cells are divided by at most.
MOST_COORDINATES = 4
#: Values that differ by less than this share of their usual size are equal.
ROUNDING = 1e-6
#: Rises that a verdict needs: if rises and falls were alike, none of them would fall with
#: probability 2^-30. Also the least number of clipped rows.
LEAST_RISES = 30
#: Share of the variance that the row before must explain more than the row itself.
LEAST_GAIN = 0.1
#: Share of the rows that must be at the largest cost to be called clipped, and of the range of
#: costs that may lie between it and the next one.
LEAST_CLIPPED, MOST_GAP = 0.01, 0.01


def beyond_chance(share: float, chance: float, count: float, level: float = CHANCE) -> bool:
    """Whether a share of `count` independent events is too large for their probability `chance`.

    The Chernoff bound: a share s or more has a probability of at most exp(-count KL(s || chance)).
    """
    if share <= chance:
        return False
    divergence = share * math.log(share / chance)
    if share < 1.0:
        divergence += (1.0 - share) * math.log((1.0 - share) / (1.0 - chance))
    return count * divergence >= -math.log(level)


class Spread(NamedTuple):
    """The sampled rows, in their order; `row` is their number in the log."""

    row: Ints
    t: Ints
    obs: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[np.float64]
    cost: NDArray[np.float64]

    def at(self, rows: NDArray[Any]) -> Spread:
        """Some of the rows."""
        return Spread(*(column[rows] for column in self))


@dataclass
class SpreadRows:
    """Collects the sample; level k keeps every 2^k-th block, the least at which all rows fit."""

    begin: int = 0  # number of the first row
    level: int = 0
    _rows: int = 0  # rows that were added
    _parts: list[Spread] = field(default_factory=list)

    def add(self, log: Transitions) -> None:
        """Add the next rows of the log."""
        first = self.begin + self._rows
        self._rows += len(log)
        row = np.arange(first, first + len(log))
        row = row[_inside(row, self.level)]
        every = Spread(log.t, log.t, log.obs, log.action, log.reward, log.cost)
        self._take([every.at(row - first)._replace(row=row)])

    def merge(self, other: SpreadRows) -> None:
        """Add the sample of the rows that come next."""
        self._rows += other._rows
        self.level = max(self.level, other.level)
        self._take(other._parts)

    def _take(self, parts: list[Spread]) -> None:
        parts = [*self._parts, *parts]
        self._parts = [part.at(_inside(part.row, self.level)) for part in parts]
        while sum(part.row.size for part in self._parts) > MOST_ROWS:
            self.level += 1
            self._parts = [part.at(_inside(part.row, self.level)) for part in self._parts]
        self._parts = [part for part in self._parts if part.row.size]

    def whole(self) -> Spread | None:
        """The sample; None if there are no rows."""
        if not self._parts:
            return None
        return Spread(*map(np.concatenate, zip(*self._parts, strict=True)))


def _inside(row: Ints, level: int) -> NDArray[np.bool_]:
    """Which rows belong to a level."""
    return np.asarray(row // BLOCK_ROWS & ((1 << level) - 1) == 0)


@dataclass(frozen=True)
class UnitChange:
    """A column that changed.

    Attributes:
        column: its name.
        row: about where, as a row number.
        before: mean size of its values before, and
        after: after it, both over the same observations and actions.
        chance: bound on the probability that this is chance.
    """

    column: str
    row: int
    before: float
    after: float
    chance: float

    @property
    def factor(self) -> float:
        """How many times as large the values became, or smaller: at least 1."""
        low, high = sorted((self.before, self.after))
        return high / low if low > 0.0 else math.inf


def unit_changes(spread: Spread) -> tuple[UnitChange, ...]:
    """The columns that changed; the rows must be in the order of episodes."""
    stretches = min(STRETCHES, int(np.count_nonzero(np.diff(spread.t) < 0)) + 1)
    if stretches < SPLITS:
        return ()
    columns = {"reward": [spread.reward], "cost": [spread.cost]}
    if spread.reward.min() < 0.0 < spread.reward.max():
        columns["reward"].append(np.abs(spread.reward))
    tests = sum(map(len, columns.values())) * 2 * (SPLITS - 1)
    vectors = spread.obs.ndim > 1 or spread.action.ndim > 1
    least = LEAST_VECTOR_FACTOR if vectors else LEAST_FACTOR
    cell = None if vectors else cells_of(spread)
    changes = []
    for name, views in columns.items():
        if not np.ptp(views[0]) > 0.0:
            continue
        x = views[0]
        cells = vector_cells(spread, x) if cell is None else cell
        seen = [_largest(view, cells, stretches) for view in views]
        chance, split = min(seen)
        if chance * tests < FALSE_ALARM:
            late = np.arange(len(x)) >= split
            size, moved = _sizes(x, cells, late)
            if min(size) == 0.0 or moved >= (least - 1.0) * min(size):
                row = int(spread.row[split])
                changes.append(UnitChange(name, row, *size, chance * tests))
    return tuple(changes)


def cells_of(spread: Spread) -> Ints:
    """The cell of each row, numbered from 0; of rows with state and action numbers."""
    pair = np.unique(pairs_of(spread), return_inverse=True)[1]
    timed = np.unique(pair * (int(spread.t.max()) + 1) + spread.t, return_inverse=True)[1]
    shared = np.bincount(timed)[timed] > 1
    return np.asarray(timed if 2 * np.count_nonzero(shared) >= len(timed) else pair)


def pairs_of(spread: Spread) -> Ints:
    """A number for each pair of state and action."""
    obs = spread.obs
    if int(obs.max()) >= 1 << 31:  # the product must not overflow
        obs = np.unique(obs, return_inverse=True)[1]
    actions = spread.action
    if int(actions.max()) >= 1 << 31:
        actions = np.unique(actions, return_inverse=True)[1]
    return np.asarray(obs * (int(actions.max()) + 1) + actions)


def vector_cells(spread: Spread, x: Floats) -> Ints:
    """Cells of about `CELL_ROWS` rows, divided at medians of the coordinates that matter."""
    parts = [spread.t[:, None], *(a.reshape(len(x), -1) for a in (spread.obs, spread.action))]
    inputs = np.concatenate(parts, axis=1).astype(np.float64)
    inputs = inputs / np.maximum(np.abs(inputs).max(axis=0), 1e-300)  # squares do not overflow
    x = x / np.abs(x).max()
    matters = []
    # squares too: a cost is often least in the middle
    for z in (inputs, (inputs - inputs.mean(axis=0)) ** 2):
        z = z - z.mean(axis=0)
        norm = np.sqrt((z**2).sum(axis=0))
        matters += [np.abs((y - y.mean()) @ z) / (norm + 1e-12) for y in (x, np.abs(x))]
    order = np.argsort(-np.max(matters, axis=0), kind="stable")[:MOST_COORDINATES]
    cell = np.zeros(len(x), np.int64)
    for level in range(max(int(math.log2(len(x) / CELL_ROWS)), 0)):
        value = inputs[:, order[level % len(order)]]
        sorted_rows = _sorted(value, cell)
        count = np.bincount(cell)
        begin = np.concatenate([[0], np.cumsum(count)[:-1]])
        middle = value[sorted_rows][begin + count // 2]
        # equal values stay together, so that a constant coordinate divides nothing
        cell = np.unique(2 * cell + (value >= middle[cell]), return_inverse=True)[1]
    return cell


def tail_bound(sums: Floats, chosen: int, total: float) -> float:
    """Bernstein's bound for the sum of some of the sums, drawn without replacement; one side.

    Args:
        sums: exchangeable, with sum 0.
        chosen: how many are drawn.
        total: their sum, or less.
    """
    total, few = abs(total), min(chosen, len(sums) - chosen)
    variance, largest = few * float((sums**2).mean()), float(np.abs(sums).max())
    if total == 0.0 or few == 0:
        return 1.0
    return math.exp(-(total**2) / (2.0 * (variance + largest * total / 3.0)))


def _largest(x: Floats, cell: Ints, stretches: int) -> tuple[float, int]:
    """The least likely split: a bound on its probability, and its first row."""
    score = _ranks(x, cell)
    stretch = np.arange(len(x)) * stretches // len(x)
    sums: Floats = np.bincount(stretch, score).astype(np.float64)
    after = sums[::-1].cumsum()[::-1]
    splits = [stretches * k // SPLITS for k in range(1, SPLITS)]
    bounds = [(tail_bound(sums, stretches - k, float(after[k])), k) for k in splits]
    chance, k = min(bounds)
    return chance, int(np.searchsorted(stretch, k))


def _sorted(x: Floats, cell: Ints) -> Ints:
    """Positions in the order of cells, and of the values within them; faster than lexsort."""
    order = np.argsort(x)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(x))
    return np.argsort(cell * len(x) + rank)


def _ranks(x: Floats, cell: Ints) -> Floats:
    """Ranks within cells, around their mean and divided by the rows of the cell."""
    unit = ROUNDING * float(np.abs(x).mean())
    x = np.floor(x / unit + 0.382) if unit > 0.0 else x  # decimals are not at the borders
    order = _sorted(x, cell)
    x, cell = x[order], cell[order]
    new = np.append(True, (x[1:] != x[:-1]) | (cell[1:] != cell[:-1]))
    first = np.flatnonzero(new)
    size = np.diff(np.append(first, len(x)))
    count = np.bincount(cell)
    begin = np.concatenate([[0], np.cumsum(count)[:-1]])
    middle = np.repeat(first + (size - 1) / 2.0, size)
    score = np.empty(len(x))
    score[order] = (middle - begin[cell] - (count[cell] - 1) / 2.0) / count[cell]
    return score


def _sizes(x: Floats, cell: Ints, late: np.ndarray) -> tuple[tuple[float, float], float]:
    """Mean sizes before and after, and how far means moved; over cells with rows of both."""
    count, news = np.bincount(cell), np.bincount(cell, late)
    weight = news * (count - news) / count
    weight = weight / weight.sum()

    def mean(y: Floats, rows: np.ndarray) -> float:
        number = np.maximum(np.bincount(cell, rows), 1.0)
        return float((weight * np.bincount(cell, y * rows) / number).sum())

    sizes = mean(np.abs(x), ~late), mean(np.abs(x), late)
    return sizes, max(abs(mean(x, late) - mean(x, ~late)), abs(sizes[1] - sizes[0]))


@dataclass(frozen=True)
class CostColumn:
    """What the sampled costs look like.

    Attributes:
        late: shares of the variance of costs that the own row and the row before explain, if the
            row before explains more than chance allows.
        rises: pairs of rows of an episode where the cost rises, if it never falls.
        clipped: rows at the largest cost, as a share, if they look clipped.
    """

    late: tuple[float, float] | None = None
    rises: int = 0
    clipped: float = 0.0


def look_at_costs(spread: Spread) -> CostColumn:
    """Look for traces of these errors; the rows must be in the order of episodes."""
    if not np.ptp(spread.cost) > 0.0:
        return CostColumn()
    spread = spread._replace(cost=spread.cost / spread.cost.max())
    numbers = spread.obs.ndim == 1 and spread.action.ndim == 1
    pair = pairs_of(spread) if numbers else None
    return CostColumn(
        late=None if pair is None else _late(spread, pair),
        rises=_rises(spread, pair),
        clipped=_clipped(spread.cost) if spread.action.ndim == 1 else 0.0,
    )


def _linked(spread: Spread) -> Ints:
    """Positions of rows that continue the row before them."""
    return np.flatnonzero((np.diff(spread.row) == 1) & (np.diff(spread.t) == 1)) + 1


def _left_out(x: Floats, cell: Ints) -> tuple[Floats, Floats]:
    """Squared errors of the mean of the other rows of a cell, and how many others there are."""
    cell = np.unique(cell, return_inverse=True)[1]
    count = np.bincount(cell).astype(np.float64)
    around = x - (np.bincount(cell, x) / count)[cell]
    others = count[cell] - 1.0
    return np.asarray((around * (others + 1.0) / np.maximum(others, 1.0)) ** 2), others


def _late(spread: Spread, pair: Ints) -> tuple[float, float] | None:
    rows = _linked(spread)
    if not rows.size:
        return None
    x = spread.cost[rows]
    (same_row, alike), (before, as_before) = (_left_out(x, pair[rows - k]) for k in (0, 1))
    both = (alike > 0.0) & (as_before > 0.0)
    variance = float(x[both].var()) if both.any() else 0.0
    if variance <= 0.0:
        return None
    explained = tuple(1.0 - float(error[both].mean()) / variance for error in (same_row, before))
    if explained[1] < explained[0] + LEAST_GAIN:
        return None
    episode = np.cumsum(np.diff(spread.t, prepend=spread.t[0]) != 1)[rows]
    gain = np.bincount(episode, np.where(both, same_row - before, 0.0))
    total, largest = float(gain.sum()), float(np.abs(gain).max())
    chance = math.exp(-(total**2) / (2.0 * (float((gain**2).sum()) + largest * total / 3.0)))
    return (explained[0], explained[1]) if chance < FALSE_ALARM else None


def _rises(spread: Spread, pair: Ints | None) -> int:
    rows = _linked(spread)
    goes_on = np.isin(rows + 1, rows)  # a cost at the end of episodes rises and never falls
    rows = rows[goes_on]
    step = spread.cost[rows] - spread.cost[rows - 1]
    if not rows.size or (step < 0.0).any():
        return 0
    up = rows[step > 0.0]
    episode = np.cumsum(np.diff(spread.t, prepend=spread.t[0]) != 1)
    rising = np.unique(episode[up]).size
    if up.size < LEAST_RISES or up.size < 2 * rising:  # one rise: something that lasts
        return 0
    if pair is not None:
        error, others = _left_out(spread.cost, pair)
        shared = others > 0.0
        if not error[shared].mean() > LEAST_GAIN * spread.cost[shared].var():
            return 0  # a level that the state holds, such as wear
    return int(up.size)


def _clipped(cost: Floats) -> float:
    top = float(cost.max())
    positive = cost[cost > 0.0]
    below = positive[positive < top]
    at_top = positive.size - below.size
    if at_top < max(LEAST_RISES, LEAST_CLIPPED * cost.size) or below.size < LEAST_RISES:
        return 0.0
    single = 2 * np.unique(below).size >= below.size
    near = top - float(below.max()) <= MOST_GAP * (top - float(below.min()))
    return at_top / cost.size if single and near else 0.0
