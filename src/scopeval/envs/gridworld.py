"""The paper's Gridworld: n x n cells, n steps, four actions, random reward and cost.

The agent starts at the center. With probability 0.1 the executed action is drawn uniformly; moves
off the grid do nothing. Reward and cost depend on the *intended* action. Of cell (x, y), action a:

    r(x, y, a) = U(0, 1) (20 y + 10 x + 1),  divided by the largest over the grid

(the rule of the ODI authors' experiment); the paper only says "randomly generate". Four laws for
the cost are offered, because the relation of cost and reward decides how much safety costs:

- ``same-tilt`` (default): the reward's rule with independent draws: rewards and costs are large in
  the same cells;
- ``uniform``: independent U(0, 1) everywhere;
- ``reward``: the cost is the reward, the hardest case for safety;
- ``opposite-tilt``: the rule mirrored: costs are large where rewards are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval import simulate
from scopeval.arrays import Floats, check_whole
from scopeval.errors import InputError
from scopeval.exact import TabularMDP, values
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy

__all__ = [
    "COST_LAWS",
    "Gridworld",
    "cells",
    "gridworld_logs",
    "logging_policies",
    "logs_of",
    "make_gridworld_env",
    "target_policies",
]

COST_LAWS = ("same-tilt", "uniform", "reward", "opposite-tilt")
#: up, down, left, right as (dx, dy)
MOVES = ((0, 1), (0, -1), (-1, 0), (1, 0))
SLIP = 0.1


@dataclass(frozen=True)
class Gridworld:
    """Settings of a Gridworld; `mdp()` builds it. State number = x * size + y."""

    size: int = 10
    cost_law: str = "same-tilt"
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", check_whole("size", self.size, 2, " of cells"))
        if self.cost_law not in COST_LAWS:
            raise InputError(
                f"cost_law: got {self.cost_law!r}, expected one of {', '.join(COST_LAWS)}"
            )

    def mdp(self) -> TabularMDP:
        """The model, with sparse transitions."""
        n = self.size
        reward_rng, cost_rng = (
            np.random.default_rng((self.seed, 0)),
            np.random.default_rng((self.seed, 1)),
        )
        reward = _tilted(reward_rng, n)
        cost = {
            "same-tilt": lambda: _tilted(cost_rng, n),
            "uniform": lambda: cost_rng.random((n * n, 4)),
            "reward": lambda: reward,
            "opposite-tilt": lambda: _tilted(cost_rng, n)[::-1],
        }[self.cost_law]()
        start = np.zeros(n * n)
        start[(n // 2) * n + n // 2] = 1.0
        return TabularMDP(start, _moves(n), reward, cost, horizon=n)


def target_policies(count: int, size: int, *, seed: int = 0) -> list[TabularPolicy]:
    """State-independent targets: normalized draws from U(0, 1)^4."""
    draws = np.random.default_rng((seed, 2)).random((count, 4))
    draws /= draws.sum(axis=1, keepdims=True)
    return [TabularPolicy(np.broadcast_to(row, (size * size, 4))) for row in draws]


def logging_policies(count: int, mdp: TabularMDP, *, seed: int = 0) -> list[TabularPolicy]:
    """Controllers of every quality: randomly initialized ones, trained to different degrees.

    Controller k has its own preferences p_k (normalized U(0, 1)^A) and is trained to some degree
    beta_k: pi_k(a | s, t) is proportional to p_k(a) exp(beta_k Q*_t(s, a)), Q* the optimal action
    values. beta_k is such that its value is a share k / (count - 1) of the way from the untrained
    value to 95 % of the optimum (the paper: performances range "from completely random initialized
    policies to well-trained policies").
    """
    best = np.zeros(mdp.states)
    q = np.empty((mdp.horizon, mdp.states, mdp.actions))
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at("reward", t) + mdp.gamma * mdp.expect(best)
        best = q[t].max(axis=1)
    scale = float((q.max(axis=2) - q.mean(axis=2)).mean()) or 1.0
    advantage = (q - q.max(axis=2, keepdims=True)) / scale
    draws = np.random.default_rng((seed, 3)).random((count, mdp.actions))
    betas = np.concatenate([[0.0], np.geomspace(0.1, 100.0, 11)])
    policies = []
    for draw, share in zip(draws, np.linspace(0.0, 0.95, count), strict=True):

        def trained(beta: float, draw: Floats = draw) -> TabularPolicy:
            weight = draw * np.exp(beta * advantage)
            return TabularPolicy(weight / weight.sum(axis=2, keepdims=True))

        worth = [float(mdp.initial @ values(mdp, trained(beta)).v[0]) for beta in betas]
        wanted = worth[0] + share * (float(mdp.initial @ best) - worth[0])
        policies.append(trained(float(np.interp(wanted, worth, betas))))
    return policies


def gridworld_logs(mdp: TabularMDP, episodes: int, *, seed: int = 0) -> Transitions:
    """The paper's logs: episodes of 30 `logging_policies` of this seed, in turn."""
    return logs_of(mdp, logging_policies(30, mdp, seed=seed), episodes, seed=seed)


def logs_of(
    mdp: TabularMDP, controllers: Sequence[TabularPolicy], episodes: int, *, seed: int = 0
) -> Transitions:
    """Episode i by controller i modulo their number; fewer episodes are a part of more."""
    episodes = check_whole("episodes", episodes, 1)
    stream = int(np.random.SeedSequence((seed, 4)).generate_state(1, np.uint64)[0]) >> 1
    T, many = mdp.horizon, len(controllers)
    parts = []
    for k, controller in enumerate(controllers[:episodes]):
        count = len(range(k, episodes, many))
        run = simulate.trajectories(
            mdp, controller, episodes=count, seed=stream, first=k << 40, threads=1
        )
        parts.append(
            Transitions(
                t=np.tile(np.arange(T), count),
                obs=run.states[:, :-1].ravel(),
                action=run.actions.ravel(),
                reward=run.rewards.ravel(),
                cost=run.costs.ravel(),
                next_obs=run.states[:, 1:].ravel(),
            )
        )
    return Transitions.concat(parts)


def cells(size: int) -> Floats:
    """Coordinates (x, y) of the states, [S, 2]: features for learning."""
    return np.stack(np.divmod(np.arange(size * size), size), axis=1).astype(np.float64)


def make_gridworld_env(**recipe: Any) -> Any:
    """For Gymnasium: ``gymnasium.make("scopeval/Gridworld-v0", size=10, cost_law=...)``."""
    from scopeval.envs.tabular import TabularEnv

    return TabularEnv(Gridworld(**recipe).mdp())


def _tilted(rng: np.random.Generator, n: int) -> Floats:
    x, y = np.divmod(np.arange(n * n), n)
    table: Floats = rng.random((n * n, 4)) * (20 * y + 10 * x + 1)[:, None]
    table /= table.max()
    return table


def _moves(n: int) -> Any:
    """Transitions as a sparse [S*4, S] matrix."""
    from scipy import sparse

    cells = np.arange(n * n)
    x, y = np.divmod(cells, n)
    landing = np.stack(
        [np.clip(x + dx, 0, n - 1) * n + np.clip(y + dy, 0, n - 1) for dx, dy in MOVES], axis=1
    )  # [S, 4]
    rows, columns, chances = [], [], []
    for intended in range(4):
        for executed in range(4):
            rows.append(cells * 4 + intended)
            columns.append(landing[:, executed])
            chance = SLIP / 4 + (1.0 - SLIP if executed == intended else 0.0)
            chances.append(np.full(n * n, chance))
    entries = (np.concatenate(chances), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(sparse.coo_array(entries, shape=(n * n * 4, n * n)))
