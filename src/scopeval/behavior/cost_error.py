r"""How far the estimated cost of a weight-aware design for state numbers may be too low.

The estimate is what the table of logged steps says. Let D^mu_t(s, a, u) be the probability that
an episode of the behavior policy takes a in s at step t with price u, D^pi_t that of the target
policy, and r the relative cost. To first order the relative cost changes with the outcome (c, s')
of a pair (s, a) by f over the target's expected cost:

    f(c, s') = sum_t gamma^t { sum_u D^mu_t [c + gamma B_{t+1}(s', u')]
                               - r D^pi_t [c + gamma v^c_{t+1}(s')] }

So the squared error is the sum over pairs of Var(f) / n, with n the logged rows of the pair. A pair
that borrowed the rows of its neighbors counts as one draw from them. Where both policies come to a
pair equally often, nothing depends on it.

The cost of a pair without rows is a guess from other actions or states. It is wrong in every
episode alike, and by as much as the guess itself:

    guess = sum_t gamma^t sum_(s, a) |D^mu_t - r D^pi_t| q^c_t(s, a)  over the pairs without rows.

Rare, large costs make the estimate skewed: mostly it is a little too low, seldom much too high. A
sum over k events of one size h has variance h^2 k and third central moment h^3 k. So an estimate of
variance sigma^2 and third central moment kappa, the sum over pairs of E[(f - E f)^3] / n^2, rests
on

    k = sigma^6 / kappa^2   events of size   h = kappa / sigma^2,

and its upper end is h times the exact one of a Poisson count of k. For many events that is z sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr

from scopeval.arrays import Floats
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.sweep import Follow, Followed, Swept, sweep
from scopeval.behavior.weighted_step import PriceGrid, follow_each
from scopeval.models.protocols import Estimates, Points, SweepData
from scopeval.models.rows import Rows
from scopeval.models.table import Table
from scopeval.question.question import discount

__all__ = ["CostError", "Recorded", "cost_error", "mean_error", "sweep_recorded"]

#: Events from which on their number makes no difference.
MANY = 1e6


class CostError(NamedTuple):
    """Of an estimated relative cost.

    Attributes:
        square: its variance.
        third: its third central moment.
        guess: what of it is guessed, because the logs do not show it.
    """

    square: float
    third: float
    guess: float

    @property
    def events(self) -> float:
        """How many events of one size would have this error; infinity: it is not skewed upward."""
        return self.square**3 / self.third**2 if self.third > 0.0 else math.inf

    def upper(self, z: float) -> float:
        """How far above the estimate its upper end lies, z standard errors for many events."""
        if not self.square > 0.0:
            return self.guess
        events = self.events
        if not events < MANY:
            return self.guess + z * math.sqrt(self.square)
        size = self.third / self.square
        return float(self.guess + size * (gammaincinv(events + 1.0, ndtr(z)) - events))


def mean_error(a: CostError, b: CostError) -> CostError:
    """Of the mean of two estimates from different logs."""
    square, third = (a.square + b.square) / 4.0, (a.third + b.third) / 8.0
    return CostError(square, third, (a.guess + b.guess) / 2.0)


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
            tracked = follow(t, points, pi, e)
            self.mu.append(np.stack([one.mu for one in tracked[1:]]))
            self.control.append(tracked[-1].control)
            self.value.append(
                np.stack([(one.mu * one.cost).sum(axis=1) for one in tracked], axis=1)
            )
            return tracked

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
        return sweep(data, follow, many), None
    recorded = Recorded()
    return sweep(data, recorded.recording(follow), many), recorded


def cost_error(
    evidence: Evidence,
    data: SweepData,
    swept: Swept,
    recorded: Recorded,
    grid: PriceGrid,
    k: int,
) -> CostError:
    """Error of the relative cost of the design at place k of the grid.

    Args:
        evidence: the logs, of state numbers.
        data: those of them that the cost was estimated from.
        swept: the sweep over these.
        recorded: what it followed.
        grid: of prices.
        k: place of the design's own price.
    """
    from scopeval.behavior._cost_error_kernel import one_step

    regression, gamma = evidence.regression, discount(data.question)
    assert isinstance(regression, Table)
    base = float(swept.cost[0])
    if not base > 0.0:  # these logs show no cost, so that nothing is known of its ratio
        return CostError(0.0, 0.0, math.inf)
    ratio = float(swept.cost[1 + k]) / base
    points = data.at(0)
    S, A = len(points.obs), evidence.log.actions
    here, own = np.zeros((S, grid.count)), points.initial.astype(np.float64)
    here[:, k] = own
    nothing = np.zeros((S, 1 + grid.count))
    tables = [_Table(rows, S, A) for rows in data.rows]
    guess, T = 0.0, data.horizon
    for t in range(T):
        table = tables[min(t, len(tables) - 1)]
        before = table.apart[:, 0].copy()
        here, own = one_step(
            table.pairs, table.rows, here, own, recorded.mu[T - 1 - t],
            np.ascontiguousarray(points.target(evidence.target, t)),
            recorded.value[T - 2 - t] if t + 1 < T else nothing, ratio,
            gamma**t, gamma, float(np.log(grid.ratio)),
            table.changes, table.apart,
        )  # fmt: skip
        costs = points.estimates(swept.critics[t]).cost_target.ravel()
        guess += float((np.abs(table.apart[:, 0] - before) * costs)[table.count == 0].sum())
    starts = float(swept.start_spread[1 + k] ** 2 / evidence.log.starts.weight.sum())
    moments = np.sum([table.moments(regression.shrinkage) for table in tables], axis=0)
    square = float(moments[0]) / base**2 + starts
    return CostError(square, float(moments[1]) / base**3, guess / base)


class _Table:
    """The rows of one step, or of all, and what is known of their part in the error."""

    def __init__(self, rows: Rows, states: int, actions: int) -> None:
        size = states * actions
        self.pair = rows.obs * actions + rows.action
        begin = np.concatenate([[0], np.cumsum(np.bincount(self.pair, minlength=size))])
        self.pairs = np.argsort(self.pair, kind="stable"), begin
        self.count = np.bincount(self.pair, rows.weight, size).astype(np.float64)
        self.real = np.bincount(self.pair, rows.weight * ~rows.borrowed, size)
        self.weight, self.cost_noise = rows.weight, rows.cost_noise
        share = rows.weight / self.count[self.pair]
        self.rows = rows.next_obs, rows.alive, share, rows.cost
        self.changes, self.apart = np.zeros(len(rows)), np.zeros((size, 2))

    def moments(self, shrinkage: float) -> Floats:
        """[2] sums over the pairs with rows of E (f - E f)^2 / n and E (f - E f)^3 / n^2.

        What few rows say is shrunk toward what is usual, relative to how much depends on the pair:
        a rare event that one pair has not shown is expected as often as others show it.
        """
        size, shown, seen = len(self.count), self.count > 0, self.real > 0
        per = np.where(shown, self.count, 1.0)
        depends, freedom = self.apart[:, 1], np.maximum(self.real - 1.0, 0.0)
        mean = np.bincount(self.pair, self.weight * self.changes, size) / per
        gap = self.changes - mean[self.pair]
        moments = np.empty(2)
        for j, power in enumerate((2, 3)):
            each = gap**power
            if power == 2:  # and the costs of merged rows differ
                each = each + self.cost_noise * self.apart[self.pair, 0] ** 2
            within = np.bincount(self.pair, self.weight * each, size)
            scale = depends**power
            usual = within[seen].sum() / max(float(freedom[seen] @ scale[seen]), 1e-300)
            shrunk = (within + shrinkage * usual * scale) / np.maximum(freedom + shrinkage, 1e-12)
            moment = np.where(seen, shrunk, within / per)
            moments[j] = (moment / per ** (power - 1))[shown].sum()
        return moments
