"""``python -m experiments.robots.training``: the target policies.

30 controllers per robot, evenly spread in return from untrained to best.

One training run (`ppo`) gives checkpoints. Their mean returns are measured with actions drawn from
the policy: one after each update, and all within an update that changed the return by more than the
wanted spacing. Those nearest to evenly spaced returns between the first and the best are chosen. A
run with another seed gives six more in the same way, for validation. The chosen ones are measured
again with fresh episodes, and these numbers are recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from experiments.robots import ppo
from experiments.robots.env import HORIZON, ROBOTS, Robots, robot_name
from experiments.robots.policies import FOLDER, WEIGHTS, RobotPolicy
from scopeval._files import check_place, machine, now, replace_file, versions, write_json
from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, Ints, check_whole

#: Called as progress(done, total, what).
Progress = Callable[[int, int, str], None]

__all__ = ["BUDGETS", "Config", "Runs", "run_episodes", "spread", "train_policies"]

#: How each robot is trained.
BUDGETS = {
    "Ant": ppo.Config(steps=1_000_000),
    "Hopper": ppo.Config(steps=400_000),
    "InvertedDoublePendulum": ppo.Config(steps=200_000),
    "InvertedPendulum": ppo.Config(steps=40_000),
    "Walker2d": ppo.Config(steps=400_000),
}


@dataclass(frozen=True)
class Config:
    """What to train."""

    seed: int = 0
    """Seed of the run whose policies are reported; the next seed gives those for validation."""
    reported: int = 30
    """Number of reported policies."""
    validation: int = 6
    """Number of policies for validation."""
    look: int = 40
    """Episodes per checkpoint, to choose among them."""
    measure: int = 200
    """New episodes per chosen policy; their results are recorded."""
    scale: float = 1.0
    """Factor for the number of training steps."""

    def __post_init__(self) -> None:
        least = {"seed": 0, "reported": 2, "validation": 0, "look": 2, "measure": 2}
        for name, smallest in least.items():
            check_whole(name, getattr(self, name), smallest)


@dataclass(frozen=True)
class Runs:
    """Episodes of one policy: undiscounted return, cost and length of each."""

    returns: Floats
    costs: Floats
    lengths: Ints


def train_policies(
    robots: Sequence[str],
    config: Config,
    folder: str | os.PathLike[str] = FOLDER,
    *,
    command: str = "",
    force: bool = False,
    progress: Progress = lambda *_: None,
) -> list[Path]:
    """Train, choose, measure, write; robots that are done already are skipped unless forced."""
    done = []
    with one_torch_thread():  # such small networks are slower on several
        for name in map(robot_name, robots):
            place = check_place(Path(folder) / f"{name}.json")
            if force or not (place.exists() and place.with_suffix(".npz").exists()):
                _make(name, config, place, command, progress)
            done.append(place)
    return done


def run_episodes(policy: RobotPolicy, robots: Robots, *, episodes: int, seed: int) -> Runs:
    """Run the policy itself; as many episodes as there are robots run side by side."""
    returns, costs = np.zeros(episodes), np.zeros(episodes)
    lengths = np.zeros(episodes, np.int64)
    rng = np.random.default_rng((seed, 1))
    starts = np.random.default_rng((seed, 0)).integers(2**31, size=episodes)
    for begin in range(0, episodes, len(robots)):
        live = np.arange(min(len(robots), episodes - begin))
        obs = robots.reset(starts[begin + live].tolist(), live)
        for t in range(HORIZON):
            moves = robots.step(policy.sample(obs, t, rng), live)
            returns[begin + live] += moves.reward
            costs[begin + live] += moves.cost
            lengths[begin + live] += 1
            obs, live = moves.obs[~moves.terminated], live[~moves.terminated]
            if not len(live):
                break
    return Runs(returns, costs, lengths)


def spread(returns: Floats, count: int) -> Ints:
    """Checkpoints nearest to evenly spaced returns between the first's and the best's."""
    best = int(np.argmax(returns))
    goals = np.linspace(returns[0], returns[best], count)
    chosen = [0]
    for goal in goals[1:-1]:
        order = np.argsort(np.abs(returns - goal), kind="stable")
        chosen.append(next(int(i) for i in order if i not in (*chosen, best)))
    chosen.append(best)
    return np.array(chosen, np.int64)


def _make(name: str, config: Config, place: Path, command: str, progress: Progress) -> None:
    robots = Robots(name, config.measure)
    budget = BUDGETS[name]
    budget = replace(budget, steps=int(budget.steps * config.scale))
    entries: list[dict[str, Any]] = []
    policies: list[RobotPolicy] = []
    for role, count, seed in (
        ("reported", config.reported, config.seed),
        ("validation", config.validation, config.seed + 1),
    ):
        if not count:
            continue
        found = _measured(robots, budget, config, count, seed, progress, f"{name}, {role}")
        chosen: list[dict[str, Any]] = []
        for k, i in enumerate(spread(np.array([value for _, value in found]), count)):
            progress(k, count, f"{name}, {role}: recording")
            checkpoint = found[i][0]
            policy = RobotPolicy("", checkpoint.weights, low=robots.low, high=robots.high)
            runs = run_episodes(policy, robots, episodes=config.measure, seed=_seed(seed, 2 + k))
            about = {
                "role": role,
                "seed": seed,
                "steps": checkpoint.steps,
                "passes": checkpoint.passes,
            }
            chosen.append({**about, **_recorded(runs)})
            chosen[-1]["policy"] = policy
        chosen.sort(key=lambda entry: entry["return"])
        for k, entry in enumerate(chosen):
            tail = f"{k:02d}" if role == "reported" else f"v{k}"
            policies.append(entry.pop("policy"))
            entries.append({"name": f"{name.lower()}-{tail}", **entry})
    arrays: dict[str, Any] = {
        key: np.stack([policy.weights[key] for policy in policies]) for key in WEIGHTS
    }
    _write_npz(place.with_suffix(".npz"), {**arrays, "low": robots.low, "high": robots.high})
    write_json(
        place,
        {
            "robot": name,
            "command": command,
            "date": now(),
            "machine": machine(),
            "versions": versions("numpy", "torch", "gymnasium", "mujoco"),
            "config": asdict(config),
            "training": asdict(budget),
            "horizon": HORIZON,
            "policies": entries,
        },
    )


def _measured(
    robots: Robots,
    budget: ppo.Config,
    config: Config,
    count: int,
    seed: int,
    progress: Progress,
    what: str,
) -> list[tuple[ppo.Checkpoint, float]]:
    """Train; the checkpoints to choose from, in order, with their mean returns."""

    def look(checkpoint: ppo.Checkpoint) -> float:
        policy = RobotPolicy("", checkpoint.weights, low=robots.low, high=robots.high)
        runs = run_episodes(policy, robots, episodes=config.look, seed=_seed(seed, 1))
        return float(runs.returns.mean())

    every: list[ppo.Checkpoint] = []
    value: dict[int, float] = {}
    for i, checkpoint in enumerate(ppo.train(robots.robot, budget, seed=seed)):
        every.append(checkpoint)
        if i % budget.keep == 0:  # the first, and the last of each update
            progress(checkpoint.steps, budget.steps, f"{what}: training")
            value[i] = look(checkpoint)
    coarse = list(value)
    spacing = (max(value.values()) - value[0]) / (count - 1)
    for k, (before, after) in enumerate(pairwise(coarse)):
        progress(k, len(coarse), f"{what}: measuring more checkpoints")
        if abs(value[after] - value[before]) > spacing:
            value |= {i: look(every[i]) for i in range(before + 1, after)}
    return [(every[i], value[i]) for i in sorted(value)]


def _recorded(runs: Runs) -> dict[str, float | int]:
    root = len(runs.returns) ** 0.5
    return {
        "episodes": len(runs.returns),
        "return": float(runs.returns.mean()),
        "return_error": float(runs.returns.std(ddof=1) / root),
        "cost": float(runs.costs.mean()),
        "cost_error": float(runs.costs.std(ddof=1) / root),
        "length": float(runs.lengths.mean()),
    }


def _seed(seed: int, stream: int) -> int:
    """Seeds that share no random numbers with training."""
    return int(np.random.SeedSequence((seed, 9, stream)).generate_state(1)[0])


def _write_npz(goal: Path, arrays: dict[str, Any]) -> None:
    def write(file: IO[bytes]) -> None:
        np.savez_compressed(file, **arrays)

    replace_file(goal, write)


@dataclass(frozen=True)
class Args(Config):
    """Train the robots' policies; robots that have files already are skipped."""

    robots: tuple[str, ...] = ROBOTS
    """Which."""
    out: Path = FOLDER
    """Folder for weights and records."""
    force: bool = False
    """Train again what is there already."""


if __name__ == "__main__":
    import sys

    import tyro

    from scopeval.cli.console import progress_bar

    args = tyro.cli(Args, description=__doc__)
    settings = Config(**{field.name: getattr(args, field.name) for field in fields(Config)})
    words = " ".join(["python -m experiments.robots.training", *sys.argv[1:]])
    with progress_bar("starting") as show:
        for path in train_policies(
            args.robots, settings, args.out, command=words, force=args.force, progress=show
        ):
            print(path)
