"""Is a column that depends on actions named by the test of exogeneity?

Logs of 1,000 episodes in three worlds, in whose recorded input each action adds its number times an
effect. The unit of the effect is the one that biases the estimate with context by one of its
standard errors. 0: how often an exogenous column is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from experiments.common import RunArgs, Table, main
from scopeval.collection.episodes import Episodes
from scopeval.context.control import cross_fitted
from scopeval.context.exogeneity import exogeneity, exogeneity_warnings
from scopeval.context.history import History
from scopeval.envs.battery import Battery
from scopeval.envs.exogenous import ExogenousWorld, simulate
from scopeval.envs.inventory import Inventory
from scopeval.envs.queue import Queue

WORLDS: dict[str, ExogenousWorld] = {
    "inventory": Inventory(),
    "queue": Queue(),
    "battery": Battery(),
}
#: Logs of one job; the policy that runs; an effect that is small, in deviations of the input.
LOGS, POLICY, SMALL = 20, 1, 0.05


@dataclass(frozen=True)
class Args(RunArgs):
    """Options."""

    worlds: tuple[str, ...] = tuple(WORLDS)
    """Some of inventory, queue and battery."""
    effects: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
    """In units of the effect that biases the estimate by one standard error."""
    logs: int = 100
    """Of each world and effect."""
    episodes: int = 1000
    """Of a log."""

    RANGES: ClassVar[tuple[str, ...]] = ("worlds", "logs")


QUICK: dict[str, Any] = {"logs": 20}


def jobs(args: Args) -> list[dict[str, Any]]:
    """All logs, some at a time."""
    return [{"world": w, "first": i} for w in args.worlds for i in range(0, args.logs, LOGS)]


def job(args: Args, world: str, first: int) -> dict[str, Any]:
    """Which of some logs had their column named, at every effect."""
    made = WORLDS[world]
    unit, share = _unit(made, args.episodes)
    named = []
    for number in range(first, first + LOGS):
        rng = np.random.default_rng([number, *world.encode()])
        log = simulate(made, made.policies()[POLICY], made.paths(args.episodes, rng), rng)
        history = History(np.zeros((2, made.horizon)), made.name)
        named.append(
            [
                bool(exogeneity_warnings(exogeneity(_pushed(log, unit * x), history)))
                for x in args.effects
            ]
        )
    return {"unit": unit, "kept": share, "named": named}


def _pushed(log: Episodes, effect: float) -> Episodes:
    """The log, each action of which adds its number times the effect to what is recorded next."""
    assert log.exogenous is not None
    paths = log.exogenous.copy()
    paths[:, 1:, 0] += effect * log.action
    return replace(log, exogenous=paths)


def _unit(world: ExogenousWorld, n: int) -> tuple[float, float]:
    """The effect that biases by one standard error, and the share of variance that is left."""
    rng = np.random.default_rng(7)
    history = History(world.paths(30 * n, rng), world.name, block=1)
    log = simulate(world, world.policies()[POLICY], world.paths(n, rng), rng)
    values = log.returns()[:, None]
    small = SMALL * float(history.paths.std())
    means = []
    for effect in (-small, small):
        pushed = history.paths_of(_pushed(log, effect))
        means.append(cross_fitted(values, pushed, history).values.mean())
    plain = cross_fitted(values, history.paths_of(log), history)
    variance = float(plain.values.var())
    error = np.sqrt(variance / n + plain.error[0] ** 2)
    return float(2 * small * error / abs(means[1] - means[0])), variance / float(values.var())


def summary(args: Args, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line for each world."""
    lines = []
    for world in args.worlds:
        some = [row for row in rows if row["world"] == world]
        named = np.concatenate([np.asarray(row["named"], np.float64) for row in some])
        first = some[0]
        lines.append(
            {
                "world": world,
                "logs": len(named),
                "unit": first["unit"],
                "kept": first["kept"],
                "named": named.mean(axis=0).tolist(),
            }
        )
    return {"lines": lines, "effects": list(args.effects)}


def table(content: dict[str, Any]) -> list[Table | str]:
    """The lines."""
    heads = ("world", "logs", "variance kept", "unit", *[f"{x:g}" for x in content["effects"]])
    rows = tuple(
        (
            line["world"],
            str(line["logs"]),
            f"{line['kept']:.3f}",
            f"{line['unit']:.3g}",
            *[f"{x:.2f}" for x in line["named"]],
        )
        for line in content["lines"]
    )
    return [Table("", heads, rows)]


if __name__ == "__main__":
    main("experiments.exogeneity")
