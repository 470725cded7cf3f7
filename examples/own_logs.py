"""From your own CSV file to a saved behavior policy.

The columns have the names that the plant's historian gave them. There is no time column, so time is
counted within each run.

    python examples/own_logs.py [folder]
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

import numpy as np

from scopeval import Promise, design, load, read_logs

STEPS, LEVELS = 8, 6  # a run has eight steps, the tank six levels


def write_csv(path, runs, seed=0):
    """What the historian recorded: a pump (0: off, 1: slow, 2: fast) fills a leaking tank."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["run", "level", "pump", "output", "energy", "next_level"])
        for run in range(runs):
            level = 2
            eagerness = rng.random()
            for _ in range(STEPS):
                pump = int(rng.choice(3, p=[0.4 - 0.3 * eagerness, 0.3, 0.3 + 0.3 * eagerness]))
                following = int(np.clip(level + pump - rng.integers(0, 3), 0, LEVELS - 1))
                output = level * (1.0 + 0.2 * rng.normal())
                table.writerow([run, level, pump, f"{output:.3f}", 0.2 + pump**2, following])
                level = following


def controller(level, t):
    """The policy to evaluate: pump fast when low, rarely when high."""
    fast = 0.8 - 0.12 * level
    return np.stack([0.7 - fast * 0.7, np.full_like(fast, 0.3), 0.7 * fast], axis=1)


def main(folder):
    path = Path(folder) / "historian.csv"
    write_csv(path, runs=400)
    log = read_logs(
        path,
        columns={
            "episode": "run",
            "obs": "level",
            "action": "pump",
            "reward": "output",
            "cost": "energy",
            "next_obs": "next_level",
        },
    )
    print(log.summary())
    behavior = design(log, controller, horizon=STEPS, method="scope", promise=Promise(at_most=1.05))
    print(behavior.summary())

    saved = Path(folder) / "behavior.scope"
    behavior.save(saved)
    again = load(saved, controller)
    action = again.act(2, 0, np.random.default_rng(0))
    print(f"at level 2 the first action is {action.action}, taken with {action.probability:.3f}")
    return saved


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
