"""A known MDP as a model: its rows are the entries of P, each with its probability as weight.

The conditional mean of a regression target is then its expectation, and its variance within (s, a)
the noise of the outcome. So `behavior.sweep` does exact dynamic programming with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.behavior.sweep import Follow, SweepStep, sweep_steps
from scopeval.errors import InputError
from scopeval.exact.model import TabularMDP
from scopeval.models.protocols import Critic, Learner, Points, SweepData, Targets
from scopeval.models.rows import Rows
from scopeval.models.table import Averages, TableCritic
from scopeval.policies.adapters import TabularPolicy

__all__ = ["KnownMDP", "known_steps"]

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

    def data(self) -> SweepData:
        """All transitions and all states, for a sweep."""
        mdp, S = self.mdp, self.mdp.states
        tables = (mdp.reward, mdp.cost, mdp.reward_variance)
        entries = [x for x in (mdp.next_reward, mdp.next_cost) if x is not None]
        varying = any(x.ndim == 3 for x in tables) or any(len(x) > 1 for x in entries)
        steps = mdp.horizon if varying else 1
        points = Points(np.arange(S), mdp.initial, np.full(S, 1.0 / S))
        rows = [self._rows(t) for t in range(steps)]
        return SweepData(rows, [points], [rows[0].next_obs] * steps, self)

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """As they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Expectations over the transitions of one step."""
        return _Expectations(rows, self.mdp.transition.indptr.astype(np.int64), actions)

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
        )


class _Expectations:
    """Expectations over the rows of one step; those of a pair (s, a) follow each other."""

    def __init__(self, rows: Rows, begin: Ints, actions: int) -> None:
        self.rows, self.shape = rows, ((len(begin) - 1) // actions, actions)
        pair = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        self.pairs = Averages(pair, rows.weight, len(begin) - 1)
        self.reward_noise = rows.reward_noise[begin[:-1]]
        self.largest = float(np.abs(rows.reward).max())

    def fit(self, targets: Targets) -> Critic:
        columns = targets.columns
        table = self.pairs.means(columns)
        noise = self.pairs.squares(columns[:, 0], table[:, 0])
        largest = float(np.abs(columns).max())
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


def known_steps(
    mdp: TabularMDP, pi: Floats, follow: Follow, followed: int, data: SweepData | None = None
) -> Iterator[SweepStep]:
    """Algorithm 1 in a known MDP, for pi [T, S, A]: last step first."""
    return sweep_steps(
        KnownMDP(mdp).data() if data is None else data,
        TabularPolicy(pi),
        follow,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
        actions=mdp.actions,
        followed=followed,
        seed=0,
    )
