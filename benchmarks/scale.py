"""How time and memory grow with the problem: d log(time) / d log(size), 1 for linear growth.

Every size is measured in its own process, after a small problem has loaded all code; memory is the
peak of the process beyond that. The slope is that of the line through the sizes of the last two
decades, without those that are too small to measure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.harness import Comparison, in_own_process, peak_megabytes, timed
from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError

__all__ = ["Config", "run"]


@dataclass(frozen=True)
class Config:
    """What to measure."""

    decades: tuple[tuple[str, int, int], ...] = (
        ("solve, rows", 4, 7),
        ("design, tuples", 4, 7),
        ("design, states", 3, 5),
        ("design, horizon", 1, 3),
        ("design, actions", 1, 3),
        ("evaluate, episodes", 4, 7),
    )
    """(what grows, least and largest power of ten)."""
    repeats: int = 2
    """Times each size is measured; the least counts."""
    seed: int = 0
    """Seed of the problems."""

    def __post_init__(self) -> None:
        for what, low, high in self.decades:
            if what not in WORK or not 0 <= low < high:
                raise InputError(
                    f"decades: got {what!r} from {low} to {high}, expected one of "
                    f"{', '.join(WORK)} and two powers of ten"
                )


def run(config: Config) -> list[Comparison]:
    """Slopes of time and memory."""
    rows = []
    for what, low, high in config.decades:
        sizes = [10**k for k in range(low, high + 1)]
        found = np.array([_least(what, size, config) for size in sizes])
        for k, (kind, unit, least) in enumerate((("time", "s", 1e-3), ("memory", "MB", 4.0))):
            slope = _slope(np.array(sizes[-3:]), found[-3:, k], least)
            numbers = ", ".join(f"{x:.3g}" for x in found[:, k])
            rows.append(
                Comparison(
                    f"{what}: {kind}",
                    slope,
                    1.0,
                    unit="slope",
                    sense="slower",
                    goal=1.1,
                    note=f"10^{low} to 10^{high}: {numbers} {unit}",
                )
            )
    return rows


def _slope(sizes: Ints, found: Floats, least: float) -> float:
    """Slope of the line through the values of at least `least`; 0 if there are fewer than two."""
    some = found >= least
    if some.sum() < 2:
        return 0.0
    return float(np.polyfit(np.log(sizes[some]), np.log(found[some]), 1)[0])


def _least(what: str, size: int, config: Config) -> list[float]:
    calls = range(config.repeats)
    every = [in_own_process("scale.measure", what, size, config.seed) for _ in calls]
    return [min(one) for one in zip(*every, strict=True)]


def measure(what: str, size: int, seed: int) -> tuple[float, float]:
    """Seconds and MB of one problem, in this process."""
    WORK[what](8, seed)()
    call = WORK[what](size, seed)
    took = 0.0

    def clocked() -> None:
        nonlocal took
        took = timed(call)

    peak = peak_megabytes(clocked)
    return took, peak


def _solve(size: int, seed: int) -> Callable[[], object]:
    from benchmarks.solver import draw
    from scopeval.solver.program import solve

    problem = draw(size, 4, seed)
    return lambda: solve(problem.weight, problem.cost, problem.budget)


def _design(
    seed: int, tuples: int, states: int = 100, actions: int = 4, horizon: int = 10
) -> Callable[[], object]:
    from scopeval.behavior.designer import design
    from scopeval.logs.transitions import Transitions
    from scopeval.policies.adapters import TabularPolicy

    rng = np.random.default_rng(seed)
    s, a = rng.integers(states, size=tuples), rng.integers(actions, size=tuples)
    log = Transitions(
        t=rng.integers(horizon, size=tuples),
        obs=s,
        action=a,
        reward=(7 * s + a) % 11 / 11 + 0.1 * rng.random(tuples),
        cost=(3 * s + a) % 5 / 5,
        next_obs=(5 * s + 3 * a + rng.integers(3, size=tuples)) % states,
    )
    target = TabularPolicy(np.full((states, actions), 1.0 / actions))
    return lambda: design(log, target, horizon=horizon)


def _evaluate(episodes: int, seed: int) -> Callable[[], object]:
    from scopeval.envs.gridworld import Gridworld, target_policies
    from scopeval.evaluation.evaluator import evaluate
    from scopeval.exact import design

    mdp, target = Gridworld(10, seed=seed).mdp(), target_policies(1, 10, seed=seed)[0]
    behavior = design(mdp, target)
    return lambda: evaluate(mdp, target, behavior, episodes=max(episodes, 100))


#: What can grow, and the problem of a size; problems are made before the clock starts.
WORK: dict[str, Callable[[int, int], Callable[[], object]]] = {
    "solve, rows": _solve,
    "design, tuples": lambda n, seed: _design(seed, max(n, 1_000)),
    "design, states": lambda n, seed: _design(seed, 16 * n, states=n, horizon=3),
    "design, horizon": lambda n, seed: _design(seed, 100_000, horizon=n),
    "design, actions": lambda n, seed: _design(seed, 100 * n, actions=n, horizon=3),
    "evaluate, episodes": _evaluate,
}
