"""Random finite MDPs that sit on the corners, and what is true of them by definition alone.

Nothing here calls the library: expectations are sums over every trajectory there is, values are
plain loops. A `Case` becomes the library's `TabularMDP` only in `Case.mdp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

#: Trajectories that one enumeration may hold.
MOST_TRAJECTORIES = 40_000


@dataclass(frozen=True)
class Case:
    """A finite MDP with a target policy, an arbitrary covering behavior and control variate.

    All tables are [T, S, A]; `transition` is [S, A, S]. The reward is `reward` plus or minus
    `spread`, with probability one half each, plus `next_reward` [T, S, A, S] where that is given;
    the cost is `cost` plus `next_cost`.
    """

    initial: np.ndarray
    transition: np.ndarray
    reward: np.ndarray
    spread: np.ndarray
    cost: np.ndarray
    gamma: float
    target: np.ndarray
    behavior: np.ndarray
    control: np.ndarray
    next_reward: np.ndarray | None = None
    next_cost: np.ndarray | None = None

    @property
    def horizon(self) -> int:
        return len(self.reward)

    @property
    def states(self) -> int:
        return self.reward.shape[1]

    @property
    def actions(self) -> int:
        return self.reward.shape[2]

    @property
    def mdp(self) -> Any:
        from scopeval.exact import TabularMDP

        return TabularMDP(
            self.initial,
            self.transition,
            self.reward,
            self.cost,
            self.horizon,
            gamma=self.gamma,
            reward_variance=self.spread**2 if self.spread.any() else None,
            next_reward=self.next_reward,
            next_cost=self.next_cost,
        )

    def but(self, **changes: Any) -> Case:
        return replace(self, **changes)


def random_case(
    seed: int,
    *,
    states: int = 3,
    actions: int = 3,
    horizon: int = 4,
    gamma: float = 1.0,
    time_varying: bool = True,
    zero_probabilities: bool = True,
    zero_rewards: bool = True,
    absorbing: bool = False,
    deterministic: bool = False,
    noisy: bool = False,
    costs: str = "uniform",
    next_state: bool = False,
) -> Case:
    """One MDP. `costs`: "uniform", "zero", "constant", "rewards" (cost = |reward|), "sparse".

    `next_state`: reward and cost depend on the next state too.
    """
    rng = np.random.default_rng(seed)
    T, S, A = horizon, states, actions

    def table(draw: Any) -> np.ndarray:
        rows = draw((T if time_varying else 1, S, A))
        return np.array(np.broadcast_to(rows, (T, S, A)))

    def policy(sparse: bool) -> np.ndarray:
        def draw(shape: tuple[int, ...]) -> np.ndarray:
            p = rng.dirichlet(np.ones(A), shape[:-1]) + 0.02
            if sparse:
                p = p * (rng.random(shape) < 0.7)
                p[p.sum(-1) == 0, 0] = 1.0
            return p / p.sum(-1, keepdims=True)

        return table(draw)

    transition = rng.dirichlet(np.full(S, 0.5), (S, A))
    if deterministic:
        transition = np.eye(S)[rng.integers(S, size=(S, A))]
    else:
        transition[transition < 0.05] = 0.0
        transition /= transition.sum(-1, keepdims=True)
    reward = table(lambda shape: rng.normal(size=shape))
    if zero_rewards:
        reward *= table(lambda shape: rng.random(shape) < 0.6)
    spread = table(lambda shape: rng.random(shape)) if noisy else np.zeros((T, S, A))
    cost = {
        "uniform": lambda: table(lambda shape: rng.random(shape)),
        "zero": lambda: np.zeros((T, S, A)),
        "constant": lambda: np.full((T, S, A), 0.3),
        "rewards": lambda: np.abs(reward),
        "sparse": lambda: table(lambda shape: rng.random(shape) * (rng.random(shape) < 0.3)),
    }[costs]()
    if absorbing and S > 1:  # early termination
        transition[-1] = np.eye(S)[-1]
        reward[:, -1] = spread[:, -1] = cost[:, -1] = 0.0
    initial = rng.dirichlet(np.ones(S))
    initial[rng.integers(S)] = 0.0 if S > 1 else 1.0
    return Case(
        initial / initial.sum(),
        transition,
        reward,
        spread,
        cost,
        gamma,
        policy(zero_probabilities),
        policy(False),
        table(lambda shape: rng.normal(size=shape)),
        *(_next_state(rng, (T, S, A, S), time_varying, absorbing) if next_state else ()),
    )


def _next_state(
    rng: np.random.Generator, shape: tuple[int, ...], time_varying: bool, absorbing: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Reward and cost by next state, half of them zero."""
    tables = []
    for draw in (rng.normal, rng.uniform):
        steps = shape if time_varying else (1, *shape[1:])
        table = draw(size=steps) * (rng.random(steps) < 0.5)
        tables.append(np.array(np.broadcast_to(table, shape)))
        if absorbing and shape[1] > 1:
            tables[-1][:, -1] = 0.0
    return tables[0], tables[1]


@st.composite
def cases(draw: st.DrawFn, *, horizons: tuple[int, int] = (1, 6), **fixed: Any) -> Case:
    """Small enough to enumerate every trajectory."""
    horizon = draw(st.integers(*horizons))
    noisy = fixed.get("noisy", draw(st.booleans()))
    sizes = [
        (s, a)
        for s in (1, 2, 3, 4)
        for a in (1, 2, 3, 4)
        if s * (s * a * (2 if noisy else 1)) ** horizon <= MOST_TRAJECTORIES
    ]
    states, actions = draw(st.sampled_from(sizes))
    flags = {
        name: draw(st.booleans())
        for name in (
            "time_varying",
            "zero_probabilities",
            "zero_rewards",
            "absorbing",
            "deterministic",
        )
    }
    chosen = {
        "gamma": draw(st.sampled_from([1.0, 1.0, 0.9, 0.31])),
        "costs": draw(
            st.sampled_from(["uniform", "uniform", "rewards", "sparse", "constant", "zero"])
        ),
        "noisy": noisy,
        **flags,
        **fixed,
    }
    seed = draw(st.integers(0, 2**32 - 1))
    return random_case(seed, states=states, actions=actions, horizon=horizon, **chosen)


# -- true by definition --------------------------------------------------------------------------


@dataclass(frozen=True)
class Paths:
    """Every trajectory of positive probability: [N], and states [N, T'+1], the rest [N, T']."""

    chance: np.ndarray
    states: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    costs: np.ndarray


def every_path(case: Case, behavior: np.ndarray, start: int = 0, state: int | None = None) -> Paths:
    """All trajectories under a behavior, from time `start` on (and from one state, if given)."""
    first = case.initial if state is None else np.eye(case.states)[state]
    states = np.flatnonzero(first)[:, None]
    chance = first[states[:, 0]]
    width = len(states)
    actions = np.empty((width, 0), int)
    rewards = np.empty((width, 0))
    costs = np.empty((width, 0))
    for t in range(start, case.horizon):
        signs = (-1.0, 1.0) if case.spread[t].any() else (0.0,)
        pieces = []
        for a in range(case.actions):
            for following in range(case.states):
                for sign in signs:
                    now = states[:, -1]
                    p = chance * behavior[t, now, a] * case.transition[now, a, following]
                    p = p / len(signs)
                    keep = p > 0
                    now = now[keep]
                    column = np.ones((len(now), 1))
                    r = case.reward[t, now, a] + sign * case.spread[t, now, a]
                    c = case.cost[t, now, a]
                    if case.next_reward is not None and case.next_cost is not None:
                        r = r + case.next_reward[t, now, a, following]
                        c = c + case.next_cost[t, now, a, following]
                    pieces.append(
                        (
                            p[keep],
                            np.hstack([states[keep], (following * column).astype(int)]),
                            np.hstack([actions[keep], (a * column).astype(int)]),
                            np.hstack([rewards[keep], r[:, None]]),
                            np.hstack([costs[keep], c[:, None]]),
                        )
                    )
        chance, states, actions, rewards, costs = (
            np.concatenate(part) for part in zip(*pieces, strict=True)
        )
    return Paths(chance, states, actions, rewards, costs)


def estimates(
    case: Case, paths: Any, behavior: np.ndarray, control: np.ndarray | None = None, start: int = 0
) -> np.ndarray:
    """G of each trajectory, by its own backward definition (paper: Eq. "PDIS-recursive")."""
    G = np.zeros(len(paths.actions))
    for t in reversed(range(start, case.horizon)):
        s, a = paths.states[:, t - start], paths.actions[:, t - start]
        rho = case.target[t, s, a] / behavior[t, s, a]
        b = 0.0 if control is None else control[t, s, a]
        bbar = 0.0 if control is None else (case.target[t, s] * control[t, s]).sum(1)
        G = bbar + rho * (paths.rewards[:, t - start] + case.gamma * G - b)
    return G


def total_cost(case: Case, paths: Any) -> np.ndarray:
    """Discounted cost of each trajectory."""
    return paths.costs @ case.gamma ** np.arange(paths.costs.shape[1])


def mean_and_variance(chance: np.ndarray, x: np.ndarray) -> tuple[float, float]:
    mean = float(chance @ x)
    return mean, float(chance @ (x - mean) ** 2)


def loop_values(case: Case, table: np.ndarray, policy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Action values [T, S, A] and state values [T+1, S], number by number."""
    T, S, A = table.shape
    q, v = np.zeros((T, S, A)), np.zeros((T + 1, S))
    for t in range(T - 1, -1, -1):
        for s in range(S):
            for a in range(A):
                ahead = sum(case.transition[s, a, x] * v[t + 1, x] for x in range(S))
                q[t, s, a] = table[t, s, a] + case.gamma * ahead
            v[t, s] = sum(policy[t, s, a] * q[t, s, a] for a in range(A))
    return q, v
