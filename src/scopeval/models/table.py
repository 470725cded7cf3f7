r"""Critics for state numbers: a table of conditional means.

Time-pooled, this is dynamic programming in the MDP that the logs show: the inputs never change with
t, so one count serves the whole sweep. What matters is how it treats pairs with few rows or none:

- **A pair seen n times** has the noise s^2 = (sum of squares + k s0^2) / (n - 1 + k): within-pair
  variance, shrunk toward the average of all pairs by k = `shrinkage` pseudo-rows, so that a pair
  seen once is not taken for certain. The error of its mean is s^2 / n.
- **A pair never seen** is unknown: the design uses the target's probability there. Values still
  need a guess for it: the mean of the state's seen actions; for a state never left, the mean of the
  states that lead to it. Such a guess is wrong by a part of how much values differ (`guess_error`,
  `state_error`), and what follows a state never left is taken to vary as under the target policy.
- **With features** of the states (a grid's coordinates, say), a pair never seen borrows the rows of
  the nearest pairs with the same action, shifted: if a neighbor went from x to x', this state x0 is
  taken to go to the state nearest to x0 + x' - x. Borrowed pairs count as known, with the spread
  among the neighbors as their error, unless the nearest neighbors are far.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.models.protocols import Critic, Estimates, Learner, Targets
from scopeval.models.rows import Rows, merge_rows
from scopeval.policies.protocols import Observations

__all__ = ["Table"]

#: An action seen in fewer states than this has no trend along the features.
LEAST_TREND = 10


@dataclass(frozen=True)
class Table:
    """Learn a table: for observations that are state numbers.

    Attributes:
        states: number of states; None: as many as the logs show.
        features: [S, d] coordinates of the states, in comparable units; None: no borrowing.
        neighbors: how many neighboring pairs an unseen pair borrows from.
        reach: a neighbor farther than `reach` times the usual distance between neighboring
            states is too far to borrow from.
        shrinkage: pseudo-rows of average noise that every pair starts with.
        guess_error: squared error of the value of an action that was never seen in a state,
            relative to the variance of values over the logged pairs, and
        state_error: that of all actions of a state that was never left.
        time_varying: whether rewards or dynamics depend on t beyond the state. If not, every logged
            row serves every time step.
        pooled_costs: whether costs of the actions of a state are shrunk toward each other.
    """

    states: int | None = None
    features: NDArray[Any] | None = None
    neighbors: int = 16
    reach: float = 5.0
    shrinkage: float = 2.0
    guess_error: float = 0.1
    state_error: float = 1.0
    time_varying: bool = False
    pooled_costs: bool = False
    name: str = "table"

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """Merge equal rows, then borrow for the pairs never seen."""
        merged = merge_rows(rows)
        if self.features is None:
            return merged
        return _borrow(merged, self._features(merged), actions, self.neighbors, self.reach)

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """One count, which serves the whole sweep."""
        return _TableLearner(rows, self._states(rows), actions, self)

    def _states(self, rows: Rows) -> int:
        seen = int(max(rows.obs.max(), rows.next_obs.max())) + 1
        return seen if self.states is None else max(seen, self.states)

    def _features(self, rows: Rows) -> Floats:
        points = np.asarray(self.features, dtype=np.float64)
        if points.ndim != 2 or len(points) < self._states(rows) or not np.isfinite(points).all():
            raise InputError(
                f"features: got shape {points.shape}, expected finite [S, d] with S at least "
                f"{self._states(rows)}, one row of coordinates per state"
            )
        return points


def _borrow(rows: Rows, points: Floats, actions: int, neighbors: int, reach: float) -> Rows:
    """Add rows for the pairs never seen, from the nearest pairs with the same action."""
    from scipy.spatial import KDTree

    everywhere = KDTree(points)
    if len(points) < 2:
        return rows
    apart = everywhere.query(points, k=2)[0][:, -1]
    spacing = float(np.median(apart[apart > 0])) if (apart > 0).any() else 1.0
    parts = [rows]
    for a in range(actions):
        source = rows.select(np.flatnonzero(rows.action == a))
        donors = np.unique(source.obs)
        missing = np.setdiff1d(np.arange(len(points)), donors)
        if len(donors) == 0 or len(missing) == 0:
            continue
        k = min(neighbors, len(donors))
        far, near = KDTree(points[donors]).query(points[missing], k=k)
        far, near = far.reshape(-1, k), near.reshape(-1, k)
        share = np.where(far <= reach * spacing, 1.0 / (far + 0.5 * spacing), 0.0)
        total = share.sum(axis=1, keepdims=True)
        share = np.divide(share, total, out=np.zeros_like(share), where=total > 0)
        state, taken, weight = _copies(source, donors, missing, near, share, len(points))
        part = source.select(taken)
        drift = (points[state] - points[part.obs]) @ _trend(source, points, donors)
        moved = points[state] + points[part.next_obs] - points[part.obs]
        copied = replace(
            part,
            t=np.zeros(len(taken), np.int64),
            obs=state,
            reward=np.clip(part.reward + drift[:, 0], *_range(rows.reward)),
            cost=np.clip(part.cost + drift[:, 1], *_range(rows.cost)),
            next_obs=everywhere.query(moved)[1].astype(np.int64),
            weight=weight,
            borrowed=np.ones(len(taken), np.bool_),
        )
        parts.append(merge_rows(copied, by_time=False))
    return Rows.joined(parts)


def _copies(
    source: Rows, donors: Ints, missing: Ints, near: Ints, share: Floats, states: int
) -> tuple[Ints, Ints, Floats]:
    """Every missing state copies all rows of each of its neighbors.

    Args:
        source: the rows of one action.
        donors: states with such rows.
        missing: states without.
        near: [missing, k] places of their neighbors among the donors.
        share: [missing, k] how much each neighbor counts.
        states: number of states.

    Returns:
        For every copy the missing state, the row that is copied, and the weight of the copy.
    """
    order = np.argsort(source.obs, kind="stable")
    starts = np.searchsorted(source.obs[order], donors)
    counts = np.diff(np.append(starts, len(order)))
    who, which = np.nonzero(share)
    donor = near[who, which]
    repeat = counts[donor]
    base = np.repeat(starts[donor] - np.cumsum(repeat) + repeat, repeat)
    taken = order[base + np.arange(repeat.sum())]
    of_donor = np.bincount(source.obs, source.weight, states)
    weight = np.repeat(share[who, which], repeat) * source.weight[taken]
    weight /= of_donor[source.obs[taken]]  # a neighbor counts by its distance, not by its rows
    return np.repeat(missing[who], repeat), taken, weight


def _trend(rows: Rows, points: Floats, donors: Ints) -> Floats:
    """Slopes [d, 2] of one action's reward and cost along the features, by least squares."""
    size = len(points)
    weight = np.bincount(rows.obs, rows.weight, size)[donors]
    means = [
        np.bincount(rows.obs, rows.weight * column, size)[donors] / weight
        for column in (rows.reward, rows.cost)
    ]
    x = points[donors] - points[donors].mean(axis=0)
    y = np.column_stack(means)
    gram = x.T @ x + 1e-6 * max(float(np.trace(x.T @ x)), 1e-12) * np.eye(x.shape[1])
    # every state counts the same, however often it was logged; a handful of them is no trend
    enough = len(donors) >= LEAST_TREND
    return np.asarray(np.linalg.solve(gram, x.T @ (y - y.mean(axis=0))) * enough)


def _range(column: Floats) -> tuple[float, float]:
    return float(column.min()), float(column.max())


class _TableLearner:
    """The count: which rows belong to which pair, and which lead to which state."""

    def __init__(self, rows: Rows, states: int, actions: int, settings: Table) -> None:
        self.S, self.A = states, actions
        self.shrinkage = settings.shrinkage
        self.guess_error, self.state_error = settings.guess_error, settings.state_error
        pair = rows.obs * actions + rows.action
        size = states * actions
        self.count = np.bincount(pair, rows.weight, size).astype(np.float64)
        self.unseen = np.flatnonzero(self.count == 0)
        self.seen = np.count_nonzero(self.count.reshape(states, actions), axis=1)  # actions
        self.never_left = self.seen == 0
        self.pairs = Averages(pair, rows.weight, size)
        lost = np.flatnonzero(self.never_left[rows.next_obs])
        self.before = rows.obs[lost]
        self.into = Averages(rows.next_obs[lost], rows.weight[lost], states)
        self.real = np.bincount(pair, rows.weight * ~rows.borrowed, size)
        self.freedom = np.maximum(self.real - 1.0, 0.0)
        self.pair, self.cost_noise = pair, rows.cost_noise
        self.pooled = settings.pooled_costs

    def fit(self, targets: Targets) -> Critic:
        columns = targets.columns
        table = self.pairs.means(columns)
        within = self.pairs.squares(columns[:, 0], table[:, 0], targets.reward_noise)
        if self.pooled:
            self._pool_costs(table[:, 2 : 2 + targets.cost_behavior.shape[1]], targets)
        if len(self.unseen):
            self._guess(table)
        usual = within.sum() / max(self.freedom.sum(), 1.0)
        noise = (within + self.shrinkage * usual) / (self.freedom + self.shrinkage)
        error = noise / np.maximum(self.count, 0.5)
        if len(self.unseen):
            # a guess is wrong by a part of how much values differ
            q, share = table[:, 0], self.count / self.count.sum()
            never = self.never_left[self.unseen // self.A]
            wrong = np.where(never, self.state_error, self.guess_error)
            error[self.unseen] += float(share @ (q - share @ q) ** 2) * wrong
            # what follows a state that was never left has at least the variance of the target
            lost, first = np.repeat(self.never_left, self.A), 1 + columns.shape[1] // 2
            table[lost, first:] = np.maximum(table[lost, first:], table[lost, first, None])

        shape = self.S, self.A
        return TableCritic.of(
            table.reshape(*shape, -1),
            noise.reshape(shape),
            error.reshape(shape),
            (self.count > 0).reshape(shape),
        )

    def _pool_costs(self, means: Floats, targets: Targets) -> None:
        """Shrink means [S A, k] of costs toward those of their states, in place; see above."""
        shape = self.S, self.A, -1
        count, real, freedom = (x.reshape(shape) for x in (self.count, self.real, self.freedom))
        gap = (targets.cost_behavior - means[self.pair]) ** 2 + self.cost_noise[:, None]
        within = self.pairs.sums(gap).reshape(shape) * (real > 0)
        of_action = within.sum(axis=0) / np.maximum(freedom.sum(axis=0), 1.0)
        share = count / np.maximum(count.sum(axis=1, keepdims=True), 1e-300)
        y = means.reshape(shape)
        apart = y - (share * y).sum(axis=1, keepdims=True)
        # their squares are in the mean: d^2 and what chance adds to it
        weight = real * (1.0 - share)
        chance = ((real > 0) * (1.0 - share) * of_action).sum(axis=(0, 1))
        between = (real * apart**2).sum(axis=(0, 1)) - chance
        between = np.maximum(between / max(float(weight.sum()), 1e-300), 0.0)
        spread = between * count
        kept = np.divide(spread, spread + of_action, out=np.ones_like(y), where=of_action > 0)
        y -= np.where(count > 0, 1.0 - kept, 0.0) * apart

    def _guess(self, table: Floats) -> None:
        """Fill the pairs never seen, in place.

        With the mean of the state's seen actions; for a state never left, with that of the states
        which lead to it.
        """
        usual = table.reshape(self.S, self.A, -1).sum(axis=1)  # zero where nothing was seen
        usual /= np.maximum(self.seen, 1)[:, None]
        if len(self.before):
            usual += self.into.means(usual[self.before])  # zero for states that were left
        table[self.unseen] = usual[self.unseen // self.A]


class Averages:
    """Weighted means of rows by group.

    Args:
        group: [n] the group of each row.
        weight: [n] of the rows.
        size: number of groups.
    """

    def __init__(self, group: Ints, weight: Floats, size: int) -> None:
        from scipy.sparse import csr_array

        n = len(group)
        self._group = group
        self._sums = csr_array((weight, (group, np.arange(n))), shape=(size, n))
        count = np.bincount(group, weight, size)
        self._per = np.where(count > 0, count, 1.0)

    def means(self, columns: Floats) -> Floats:
        """Of columns [n, k], [size, k]; 0 for groups without rows."""
        return np.asarray((self._sums @ columns) / self._per[:, None])

    def squares(self, column: Floats, mean: Floats, noise: Floats | float = 0.0) -> Floats:
        """Sums [size] of weighted squares of a column [n] about the means, plus noise [n]."""
        return self.sums((column - mean[self._group]) ** 2 + noise)

    def sums(self, columns: Floats) -> Floats:
        """Weighted sums of columns [n, ...], [size, ...]."""
        return np.asarray(self._sums @ columns)


@dataclass(frozen=True)
class TableCritic(Estimates):
    """One time step's table: the estimates of all states, in their order."""

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Rows of the table; a state outside of it is unknown."""
        states: Ints = np.asarray(obs)
        if len(states) == len(self.q) and (states == np.arange(len(self.q))).all():
            return self  # all states in order: nothing to look up
        inside = (states >= 0) & (states < len(self.q))
        if inside.all():
            return self.select(states)
        rows = self.select(np.where(inside, states, 0))
        return replace(rows, known=rows.known & inside[:, None])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
