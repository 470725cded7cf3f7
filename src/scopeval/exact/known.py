"""A known MDP as a model: its rows are the entries of P, each with its probability as weight.

The conditional mean of a regression target is then its expectation, and its variance within (s, a)
the noise of the outcome. So `behavior.sweep` does exact dynamic programming with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Bools, Floats, Ints
from scopeval.behavior.sweep import Followed, sweep
from scopeval.behavior.weighted_step import PriceGrid, follow_each
from scopeval.errors import InputError
from scopeval.exact.model import TabularMDP
from scopeval.models.protocols import Critic, Estimates, Learner, Points, SweepData, Targets
from scopeval.models.rows import Rows
from scopeval.models.table import Averages, TableCritic
from scopeval.policies.adapters import TabularPolicy
from scopeval.question.question import Question

__all__ = ["KnownMDP", "sweep_prices", "visited"]

#: A standard deviation that rounding explains is none: relative to the largest reward and value.
ROUNDING = 1e-13
#: Values and variances beyond this would overflow in the program.
LARGEST = 1e150


@dataclass(frozen=True)
class KnownMDP:
    """A `Regression` that has nothing to learn.

    Attributes:
        mdp: the MDP.
    """

    mdp: TabularMDP
    name: str = "known MDP"

    def data(self, pi: Floats, reached: Bools | None = None) -> SweepData:
        """Transitions and states, for a sweep.

        Args:
            pi: the target, [T, S, A].
            reached: [T, S] the states that matter; those that follow them must be among them. None:
                all states at all times.
        """
        mdp, S = self.mdp, self.mdp.states
        asked = self, Question((TabularPolicy(pi),), mdp.horizon, mdp.gamma), mdp.actions, 0
        if reached is not None:
            rows, points, successor = self._within(reached)
            return SweepData(rows, points, successor, *asked)
        tables = (mdp.reward, mdp.cost, mdp.reward_variance)
        entries = [x for x in (mdp.next_reward, mdp.next_cost) if x is not None]
        varying = any(x.ndim == 3 for x in tables) or any(len(x) > 1 for x in entries)
        steps = mdp.horizon if varying else 1
        every = Points(np.arange(S), mdp.initial, np.full(S, 1.0 / S))
        rows = [self._rows(t) for t in range(steps)]
        return SweepData(rows, [every], [rows[0].next_obs] * steps, *asked)

    def _within(self, reached: Bools) -> tuple[list[Rows], list[Points], list[Ints]]:
        """Rows, points and successors by the states in reach."""
        rows, points, successor = [], [], []
        place = np.cumsum(reached, axis=1) - 1
        for t in range(self.mdp.horizon):
            here, whole = np.flatnonzero(reached[t]), self._rows(t)
            some = whole.select(np.flatnonzero(reached[t, whole.obs]))
            # after the last step nothing is worth anything, wherever it leads
            successor.append(place[min(t + 1, len(place) - 1), some.next_obs])
            rows.append(replace(some, obs=place[t, some.obs]))
            shares = np.full(len(here), 1.0 / len(here))
            points.append(Points(here, self.mdp.initial[here], shares, answer=_all_states))
        return rows, points, successor

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """As they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Expectations over the transitions of one step."""
        return _Expectations(rows, actions)

    def _rows(self, t: int) -> Rows:
        mdp, p = self.mdp, self.mdp.transition
        pair = np.repeat(np.arange(mdp.states * mdp.actions), np.diff(p.indptr))

        def of_entry(name: str, added: Floats | None = None) -> Floats:
            mean = mdp.at(name, t).ravel()[pair]
            return mean if added is None else mean + added[t % len(added)]

        n = len(pair)
        return Rows(
            t=np.full(n, t),
            obs=pair // mdp.actions,
            action=pair % mdp.actions,
            reward=of_entry("reward", mdp.next_reward),
            reward_noise=of_entry("reward_variance"),
            cost=of_entry("cost", mdp.next_cost),
            cost_noise=np.zeros(n),
            next_obs=p.indices.astype(np.int64),
            alive=np.ones(n),
            weight=p.data,
            borrowed=np.zeros(n, np.bool_),
            has_next=np.ones(n, np.bool_),
        )


def _all_states(critic: Critic) -> Estimates:
    """What a table's critic says of all of its states, in their order."""
    assert isinstance(critic, TableCritic)
    return critic


class _Expectations:
    """Expectations over the rows of one step; those of a pair (s, a) follow each other."""

    def __init__(self, rows: Rows, actions: int) -> None:
        self.rows, self.shape = rows, (int(rows.obs[-1]) + 1, actions)
        pair = rows.obs * actions + rows.action
        size = self.shape[0] * actions
        self.pairs = Averages(pair, rows.weight, size)
        self.reward_noise = rows.reward_noise[np.searchsorted(pair, np.arange(size))]
        self.largest = float(np.abs(rows.reward).max())

    def fit(self, targets: Targets) -> Critic:
        columns = targets.columns
        table = self.pairs.means(columns)
        noise = self.pairs.squares(columns[:, 0], table[:, 0])
        largest = max(float(columns.max()), -float(columns.min()))
        if not largest < LARGEST:
            raise InputError(
                f"mdp: values, costs or variances of {largest:.3g}, expected finite numbers below "
                f"{LARGEST:g}; try other units"
            )
        scale = max(self.largest, float(np.abs(columns[:, 0]).max()))
        noise[noise <= (ROUNDING * scale) ** 2] = 0.0
        noise += self.reward_noise

        return TableCritic.of(
            table.reshape(*self.shape, -1),
            noise.reshape(self.shape),
            np.zeros(self.shape),
            np.ones(self.shape, np.bool_),
        )


def sweep_prices(
    mdp: TabularMDP,
    pi: Floats,
    control: Floats,
    grid: PriceGrid,
    line_6: Callable[[int, Ints, Estimates], Floats],
) -> tuple[Floats, Floats]:
    """Variance and cost [U] of behavior policies on a grid of prices, by the states in reach.

    Args:
        mdp: the model.
        pi: the target, [T, S, A].
        control: b, [T, S, A].
        grid: of prices.
        line_6: (t, states [B], estimates) -> mu_t [U, B, A].
    """

    def follow(t: int, points: Points, pi_t: Floats, e: Estimates) -> list[Followed]:
        here = np.asarray(points.obs)
        return follow_each(pi_t, line_6(t, here, e), control[t, here], e, mdp.gamma, grid)

    swept = sweep(KnownMDP(mdp).data(pi, visited(mdp)), follow, 1 + grid.count, keep=False)
    return swept.variance[1:], swept.cost[1:]


def visited(mdp: TabularMDP) -> Bools:
    """[T, S] states that an episode can be in, whatever it does."""
    reached = np.empty((mdp.horizon, mdp.states), np.bool_)
    here = mdp.initial > 0
    for t in range(mdp.horizon):
        reached[t] = here
        here = np.asarray(mdp.transition.T @ np.repeat(here, mdp.actions).astype(float) > 0)
    return reached
