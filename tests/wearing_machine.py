"""A wearing machine: 7 states from new to broken, 3 speeds, 20 steps; and errors in its logs."""

from __future__ import annotations

import numpy as np

from scopeval import Transitions

STATES, ACTIONS, HORIZON = 7, 3, 20
BROKEN = 6
#: Chance that the machine wears by one state, for each speed; it grows with the wear.
WEAR = (0.05, 0.2, 0.45)
OUTPUT = (1.0, 2.0, 3.2)


def policy(careful: float = 1.0) -> np.ndarray:
    """Runs the slower, the more worn the machine is; [S, A]."""
    wear = np.arange(STATES)[:, None] * careful
    logits = -0.25 * wear * np.arange(ACTIONS)[None, :] + np.array([0.0, 0.6, 0.4])
    weight = np.exp(logits)
    return weight / weight.sum(axis=1, keepdims=True)


def machine_log(
    episodes: int = 60, seed: int = 0, *, noise: bool = True, cut: float = 0.0
) -> dict[str, np.ndarray]:
    """Columns of a correct log; `cut`: chance per step that the episode is truncated."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[float]] = {name: [] for name in COLUMNS}
    for episode in range(episodes):
        rule, state = policy(rng.uniform(0.0, 2.0)), 0
        for t in range(HORIZON):
            action = int(rng.choice(ACTIONS, p=rule[state]))
            worn = rng.random() < WEAR[action] * (1.0 + 0.2 * state)
            repaired = action == 0 and state > 0 and rng.random() < 0.15
            following = state + int(worn) - int(repaired and not worn)
            broken = following == BROKEN
            truncated = t == HORIZON - 1 or bool(rng.random() < cut)
            reward = OUTPUT[action] - (4.0 if broken else 0.0) + noise * rng.normal(0.0, 0.3)
            cost = (0.2 + 0.1 * state) * (1 + action) + (3.0 if broken else 0.0)
            row = (t, state, action, reward, cost, following, broken, truncated, episode)
            for name, value in zip(COLUMNS, row, strict=True):
                columns[name].append(value)
            state = following
            if broken or truncated:
                break
    return {name: np.array(values) for name, values in columns.items()}


COLUMNS = (
    *("t", "obs", "action", "reward", "cost", "next_obs", "terminated"),
    *("truncated", "episode"),
)


def transitions(columns: dict[str, np.ndarray]) -> Transitions:
    """The log without the columns that only readers use."""
    return Transitions(**{n: v for n, v in columns.items() if n not in ("truncated", "episode")})


def shuffled(columns: dict[str, np.ndarray], seed: int = 0) -> dict[str, np.ndarray]:
    order = np.random.default_rng(seed).permutation(len(columns["t"]))
    return {name: values[order] for name, values in columns.items()}
