r"""How wrong the predicted cost of a weight-aware design for state numbers may be.

The prediction is what the table of logged steps says. Let D^mu_t(s, a, u) be the probability that
an episode of the behavior policy takes a in s at step t with price u, D^pi_t that of the target
policy, and r the relative cost. To first order the relative cost changes with the outcome (c, s')
of a pair (s, a) by f over the target's expected cost:

    f(c, s') = sum_t gamma^t { sum_u D^mu_t [c + gamma B_{t+1}(s', u')]
                               - r D^pi_t [c + gamma v^c_{t+1}(s')] }

So the squared error is the sum over pairs of Var(f) / n, with n the logged rows of the pair. A pair
that borrowed the rows of its neighbors counts as one draw from them, and one without rows as a
guess. Where both policies come to a pair equally often, nothing depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.sweep import Follow, Followed, Swept
from scopeval.behavior.weighted_step import PriceGrid, follow_each
from scopeval.models.protocols import Critic, Estimates, Points, SweepData
from scopeval.models.rows import Rows
from scopeval.models.table import Table

__all__ = ["Recorded", "cost_error", "sweep_recorded"]


@dataclass
class Recorded:
    """What a sweep followed at each time step, last step first.

    Attributes:
        mu: [U, S, A] of every step.
        control: [S, A] b, likewise.
        value: [S, 1 + U] expected cost from that step on; index 0: the target's.
    """

    mu: list[Floats] = field(default_factory=list)
    control: list[Floats] = field(default_factory=list)
    value: list[Floats] = field(default_factory=list)

    def recording(self, follow: Follow) -> Follow:
        """The same, remembered."""

        def remembered(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
            found = follow(t, points, pi, e)
            self.mu.append(np.stack([one.mu for one in found[1:]]))
            self.control.append(found[-1].control)
            self.value.append(np.stack([(one.mu * one.cost).sum(axis=1) for one in found], axis=1))
            return found

        return remembered

    def following(self, grid: PriceGrid, gamma: float) -> Follow:
        """Follow the same behavior policies with other critics."""

        def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
            mu, control = self.mu[-1 - t], self.control[-1 - t]
            return follow_each(pi, mu, control, e, gamma, grid)

        return follow


def sweep_recorded(
    evidence: Evidence, data: SweepData, follow: Follow, grid: PriceGrid
) -> tuple[Swept, Recorded | None]:
    """A sweep over some of the logs at all prices, and what it followed.

    None where errors are not known pair by pair: the critics are not tables.
    """
    many = 1 + grid.count
    if not isinstance(evidence.regression, Table):
        return evidence.sweep(data, follow, many), None
    recorded = Recorded()
    return evidence.sweep(data, recorded.recording(follow), many), recorded


def cost_error(
    evidence: Evidence, swept: Swept, recorded: Recorded, grid: PriceGrid, k: int
) -> float:
    """Standard error of the relative cost of the design at place k of the grid.

    Args:
        evidence: the logs, of state numbers.
        swept: the sweep over all of them.
        recorded: what it followed.
        grid: of prices.
        k: place of the design's own price.
    """
    from scopeval.behavior._cost_error_kernel import one_step

    data, settings, regression = evidence.whole, evidence.settings, evidence.regression
    assert isinstance(regression, Table)
    base, ratio = float(swept.cost[0]), float(swept.cost[1 + k] / swept.cost[0])
    points = data.at(0)
    S, A = len(points.obs), evidence.log.actions
    here, own = np.zeros((S, grid.count)), points.initial.astype(np.float64)
    here[:, k] = own
    nothing = np.zeros((S, 1 + grid.count))
    tables = [_Table(rows, S, A) for rows in data.rows]
    guessed = np.zeros(S * A)
    T = settings.horizon
    for t in range(T):
        table = tables[min(t, len(tables) - 1)]
        before = table.apart[:, 0].copy()
        here, own = one_step(
            table.pairs, table.rows, here, own, recorded.mu[T - 1 - t],
            np.ascontiguousarray(points.target(evidence.target, t)),
            recorded.value[T - 2 - t] if t + 1 < T else nothing, ratio,
            settings.gamma**t, settings.gamma, float(np.log(grid.ratio)), table.told, table.apart,
        )  # fmt: skip
        guessed += (table.apart[:, 0] - before) * _guess_spread(
            regression, table, points, swept.critics[t]
        )
    starts = float(swept.start_spread[1 + k] ** 2 / evidence.log.starts.weight.sum())
    pairs = sum(table.squared_error(regression.shrinkage) for table in tables) + float(
        guessed @ guessed
    )
    return float(np.sqrt(pairs / base**2 + starts)) if base > 0 else 0.0


class _Table:
    """The rows of one step, or of all, and what is known of their part in the error."""

    def __init__(self, rows: Rows, states: int, actions: int) -> None:
        from scopeval.models._table_kernel import grouped

        size = states * actions
        self.pair = rows.obs * actions + rows.action
        self.pairs = grouped(self.pair, size)
        self.count = np.bincount(self.pair, rows.weight, size).astype(np.float64)
        self.real = np.bincount(self.pair, rows.weight * ~rows.borrowed, size)
        self.weight = rows.weight
        share = rows.weight / self.count[self.pair]
        self.rows = rows.next_obs, rows.alive, share, rows.cost
        self.told, self.apart = np.zeros(len(rows)), np.zeros((size, 2))

    def squared_error(self, shrinkage: float) -> float:
        """Sum of Var(f) / n over the pairs with rows; few rows are shrunk toward what is usual."""
        size, known = len(self.count), self.count > 0
        per = np.where(known, self.count, 1.0)
        mean = np.bincount(self.pair, self.weight * self.told, size) / per
        within = np.bincount(self.pair, self.weight * (self.told - mean[self.pair]) ** 2, size)
        freedom = np.maximum(self.real - 1.0, 0.0)
        seen = self.real > 0
        square = self.apart[:, 1] ** 2
        usual = within[seen].sum() / max(float(freedom[seen] @ square[seen]), 1e-300)
        shrunk = (within + shrinkage * usual * square) / np.maximum(freedom + shrinkage, 1e-12)
        noise = np.where(seen, shrunk, within / per)
        return float((noise / per)[known].sum())


def _guess_spread(regression: Table, table: _Table, points: Points, critic: Critic) -> Floats:
    """[S A] error of the expected cost of pairs without rows; 0 for the others.

    As for values: a part of how much expected costs differ between pairs (`Table`).
    """
    cost = points.estimates(critic).cost_target
    seen = table.count.reshape(cost.shape)
    if seen.all():
        return np.zeros(cost.size)
    share = seen / seen.sum()
    spread = float((share * (cost - (share * cost).sum()) ** 2).sum())
    left = (seen > 0).any(axis=1, keepdims=True)
    part = np.where(left, regression.guess_error, regression.state_error)
    return np.asarray(np.where(seen > 0, 0.0, np.sqrt(part * spread)).ravel())
