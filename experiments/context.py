"""What a history of exogenous inputs takes out of an estimate's variance.

Three worlds (`scopeval.envs`: inventory, queue, battery), five policies each, evaluated by running
them, with a history of 30 paths for every episode. Each run draws episodes and history anew.

- *variance*: of the estimates over all runs, relative to that of plain Monte Carlo in theory: the
  variance of one return, from 400,000 others, divided by the number of episodes;
- *least*: what the best function of the path would leave with such a history, E[Y | path] itself,
  from pairs of returns with one path: no context takes out more;
- *and a design*: the same of estimates with context whose episodes a `scope-dr` design ran, made
  from 1,000 other episodes of the policy: its critics take out what its own draws bring. They learn
  from rewards less what the step's own input explains, by a line with three bends;
- *said*: the mean of the squared standard errors that the estimates come with, likewise;
- *coverage*: of 95 % intervals for a number of episodes that was fixed;
- *ever missed*: runs in which the confidence sequence did not contain the value at some of its
  looks (after every 50 episodes). It learns from earlier episodes only;
- *compared*: the difference of two unrelated policies from half of the episodes each, relative to
  the A/B test: the difference of two means.

± is one standard error over runs, of the mean over the policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from experiments.common import RunArgs, Table, main
from scopeval import design, read_logs
from scopeval.arrays import Floats
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.context.control import Adjuster, cross_fitted, fixed_interval
from scopeval.context.history import History
from scopeval.envs.battery import Battery
from scopeval.envs.exogenous import ExogenousWorld, simulate
from scopeval.envs.inventory import Inventory
from scopeval.envs.queue import Queue
from scopeval.estimation.estimators import doubly_robust
from scopeval.estimation.sequences import AsymptoticSequence

WORLDS: dict[str, ExogenousWorld] = {
    "inventory": Inventory(),
    "queue": Queue(),
    "battery": Battery(),
}
#: Runs of one job, episodes of the reference, and episodes between two looks at a sequence.
RUNS, REFERENCE, LOOK = 25, 400_000, 50
#: Episodes of the log that a design is made from.
LOGGED = 1000
#: Policies that are compared with each other.
PAIRS = ((0, 1), (2, 3))


@dataclass(frozen=True)
class Args(RunArgs):
    """Options."""

    worlds: tuple[str, ...] = tuple(WORLDS)
    """Some of inventory, queue and battery."""
    episodes: tuple[int, ...] = (50, 300, 1000)
    """Of an estimate."""
    runs: int = 500
    """Of each world and number of episodes."""
    paths: int = 30
    """Of the history, for each episode."""
    designs: bool = False
    """Estimates by designs, too, which takes three times as long."""

    RANGES: ClassVar[tuple[str, ...]] = ("worlds", "episodes", "runs")


QUICK: dict[str, Any] = {"runs": 25, "episodes": (50, 300)}


def jobs(args: Args) -> list[dict[str, Any]]:
    """All runs, some at a time."""
    return [
        {"world": world, "episodes": n, "first": first}
        for n in args.episodes
        for world in args.worlds
        for first in range(0, args.runs, RUNS)
    ]


@cache
def reference(name: str) -> tuple[Floats, Floats, Floats]:
    """[5] values, variances of one return, and shares of it that do not go with the path.

    From other episodes, two for each path.
    """
    world, rng = WORLDS[name], np.random.default_rng(1)
    value, variance, rest = [], [], []
    for k in range(len(world.policies())):
        pairs = []
        for _ in range(REFERENCE // 40_000):
            paths = world.paths(20_000, rng)
            pairs.append([_returns(world, k, paths, rng) for _ in range(2)])
        each = np.array(pairs)
        value.append(each.mean())
        variance.append(each.var())
        rest.append(((each[:, 0] - each[:, 1]) ** 2).mean() / 2.0 / variance[-1])
    return np.array(value), np.array(variance), np.array(rest)


@cache
def designs(name: str) -> list[BehaviorPolicy]:
    """A design for each policy, from a log of its own episodes."""
    world, made = WORLDS[name], []
    for k, policy in enumerate(world.policies()):
        rng = np.random.default_rng([2, k])
        paths = world.paths(LOGGED, rng)
        log = read_logs(simulate(world, policy, paths, rng))
        log = replace(log, reward=_less_input(log.reward, paths.ravel()))
        made.append(design(log, policy, horizon=world.horizon, method="scope-dr", seed=0))
    return made


def _less_input(reward: Floats, x: Floats) -> Floats:
    """Rewards less a least squares line in the input, which bends at its quartiles."""
    bends = [np.maximum(x - knot, 0.0) for knot in np.quantile(x, (0.25, 0.5, 0.75))]
    terms = np.stack([np.ones_like(x), x, *bends], axis=1)
    return np.asarray(reward - terms @ np.linalg.lstsq(terms, reward, rcond=None)[0])


def _returns(world: ExogenousWorld, k: int, paths: Floats, rng: np.random.Generator) -> Floats:
    return simulate(world, world.policies()[k], paths, rng).returns()


def job(args: Args, world: str, episodes: int, first: int) -> dict[str, Any]:
    """Some runs: what each estimated, for each policy."""
    runs = [_run(args, world, episodes, first + i) for i in range(RUNS)]
    found = {key: np.array([run[key] for run in runs]).tolist() for key in runs[0]}
    designed = {"designed": _designed(args, world, episodes, first)} if args.designs else {}
    return found | designed


def _designed(args: Args, name: str, n: int, first: int) -> list[list[float]]:
    """[RUNS, 5] errors of estimates from episodes that designs ran, all runs together."""
    world, (value, variance, _) = WORLDS[name], reference(name)
    rng = np.random.default_rng([first, n, 3, *name.encode()])
    paths = world.paths(RUNS * n, rng)
    each = [
        doubly_robust(simulate(world, policy, paths, rng, behavior=made))
        for policy, made in zip(world.policies(), designs(name), strict=True)
    ]
    values = np.stack(each, axis=1).reshape(RUNS, n, -1)
    means = []
    for own, some in zip(paths.reshape(RUNS, n, -1, 1), values, strict=True):
        history = History(world.paths(args.paths * n, rng), world.name, block=1)
        means.append(cross_fitted(some, own, history).values.mean(axis=0))
    return ((np.array(means) - value) / np.sqrt(variance / n)).tolist()


def _run(args: Args, name: str, n: int, number: int) -> dict[str, Any]:
    world, (value, variance, _) = WORLDS[name], reference(name)
    rng = np.random.default_rng([number, n, *name.encode()])
    paths = world.paths(n, rng)
    returns = np.stack([_returns(world, k, paths, rng) for k in range(len(value))], axis=1)
    history = History(world.paths(args.paths * n, rng), world.name, block=1)
    found = cross_fitted(returns, paths[:, :, None], history)
    moments = found.values.var(axis=0, ddof=1) / n + found.error**2
    inside = []
    for k in range(len(value)):
        one = type(found)(found.values[:, k : k + 1], found.error[k : k + 1], found.share)
        inside.append(fixed_interval(one, history, 0.05).contains(value[k]))
    return {
        "off": ((found.values.mean(axis=0) - value) / np.sqrt(variance / n)).tolist(),
        "plain": ((returns.mean(axis=0) - value) / np.sqrt(variance / n)).tolist(),
        "said": (moments / (variance / n)).tolist(),
        "inside": inside,
        "missed": _ever_missed(returns, paths, history, value),
        "compared": _compared(returns, paths, history, value, variance),
    }


def _ever_missed(returns: Floats, paths: Floats, history: History, value: Floats) -> list[bool]:
    """Whether sequences missed the values at some look."""
    n, K = returns.shape
    adjuster = Adjuster(history, K, n)
    sequences = [AsymptoticSequence(0.025, n, fewest_events=6.0) for _ in range(K)]
    missed = np.zeros(K, np.bool_)
    for a in range(0, n, LOOK):
        adjusted = adjuster.add(returns[a : a + LOOK], paths[a : a + LOOK, :, None])
        margin = adjuster.margin(0.025)
        for k, sequence in enumerate(sequences):
            found = sequence.update(adjusted[:, k])
            missed[k] |= not found.low - margin[k] <= value[k] <= found.high + margin[k]
    return missed.tolist()


def _compared(
    returns: Floats, paths: Floats, history: History, value: Floats, variance: Floats
) -> list[float]:
    """Differences of two policies, less the true ones, in standard errors of the A/B test."""
    half = len(returns) // 2
    parts = (slice(0, half), slice(half, None))
    found = []
    for a, b in PAIRS:
        means = [
            cross_fitted(returns[part, k : k + 1], paths[part, :, None], history).values.mean()
            for part, k in zip(parts, (a, b), strict=True)
        ]
        error = np.sqrt((variance[a] + variance[b]) / half)
        found.append(float((means[1] - means[0] - value[b] + value[a]) / error))
    return found


def summary(args: Args, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line for each world and number of episodes."""
    lines = []
    for n in args.episodes:
        for world in args.worlds:
            some = [row for row in rows if (row["world"], row["episodes"]) == (world, n)]
            rest = float(reference(world)[2].mean())
            least = rest + (1.0 - rest) / (args.paths + 1)
            lines.append({"world": world, "episodes": n, "least": least, **_line(some)})
    return {"lines": lines}


def _line(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    whole = {
        key: np.concatenate([np.asarray(row[key], np.float64) for row in rows])
        for key in ("off", "plain", "said", "inside", "missed", "compared", "designed")
        if key in rows[0]
    }
    found: dict[str, Any] = {"runs": len(whole["off"])}
    for key in whole.keys() - {"said", "inside", "missed"}:
        each = whole[key] ** 2  # estimates are unbiased: squared errors have the variance as mean
        found[key] = _mean(each.mean(axis=1))
        found[f"{key} each"] = [round(x, 3) for x in each.mean(axis=0).tolist()]
    for key in ("said", "inside", "missed"):
        found[key] = _mean(whole[key].mean(axis=1))
    return found


def _mean(x: Floats) -> tuple[float, float]:
    return float(x.mean()), float(x.std(ddof=1) / np.sqrt(len(x)))


def table(content: dict[str, Any]) -> list[Table | str]:
    """The lines."""
    rows = tuple(
        (
            line["world"],
            f"{line['episodes']:,}",
            f"{line['runs']}",
            _with_error(line["off"]),
            f"{line['least']:.3f}" if "least" in line else "",
            _with_error(line["said"]),
            f"{line['inside'][0]:.3f}",
            f"{line['missed'][0]:.3f}",
            _with_error(line["compared"]),
            _with_error(line["designed"]) if "designed" in line else "",
            ", ".join(f"{x:.2f}" for x in line["off each"]),
        )
        for line in content["lines"]
    )
    heads = ("world", "episodes", "runs", "variance", "least", "said", "coverage", "ever missed",
             "compared", "and a design", "variance of each policy")  # fmt: skip
    return [Table("", heads, rows)]


def _with_error(x: Sequence[float]) -> str:
    return f"{x[0]:.3f} ± {x[1]:.3f}"


if __name__ == "__main__":
    main("experiments.context")
