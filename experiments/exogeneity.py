r"""Is a column that depends on actions named, and could any test name it?

Logs of 1,000 episodes in three worlds whose input depends on the actions: every action adds its
number times an effect to the mean of the next input that nobody has seen yet (demand and arrivals
stay Poisson, prices normal). The unit of the effect is the one that biases the estimate with
context by one of its standard errors. 0: how often an exogenous column is named.

*drawn* is how often the score test does that knows the law of the input and the policy, and uses
the part of the actions that was drawn. It takes for granted neither the direction nor that the
climate is the history's. *at most* is the power of the likelihood ratio of the whole log against an
exogenous input, by somebody who knows the law of the input, the size of the effect and its
direction: by Neyman and Pearson no test with 5 % false alarms names the column more often. Its
critical value is the 95 % quantile over as many logs of an exogenous input. *least* is the same
where the actions tilt the input along what the estimate takes out of it, which biases most for the
least influence: Phi(b d - 1.645) at b units with d = sqrt(n) SE / (k sd(g))
(docs/context-tables.md). *variance* is that of the estimate, relative to the one without context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from experiments.common import RunArgs, Table, main
from scopeval.arrays import Floats, Ints
from scopeval.collection.episodes import Episodes
from scopeval.context.control import cross_fitted
from scopeval.context.exogeneity import exogeneity, exogeneity_warnings
from scopeval.context.features import BlockMeans
from scopeval.context.history import History
from scopeval.context.regression import learn_guesses
from scopeval.envs.battery import Battery
from scopeval.envs.exogenous import ExogenousWorld, simulate
from scopeval.envs.inventory import Inventory
from scopeval.envs.queue import Queue

WORLDS: dict[str, ExogenousWorld] = {
    "inventory": Inventory(),
    "queue": Queue(),
    "battery": Battery(),
}
#: Rates of the Poisson inputs in quiet and busy spells, and how often these change.
SPELLS = {"inventory": ((4.0, 12.0), 0.1), "queue": ((0.8, 2.4), 0.08)}
#: Persistence and deviation of what a price is off by.
PRICES = (0.85, 5.0)
#: Logs of one job; the policy that runs; episodes that the unit is measured on.
LOGS, POLICY, MANY = 20, 1, 40_000
#: Probability of a false alarm.
ALPHA = 0.05


@dataclass(frozen=True)
class Args(RunArgs):
    """Options."""

    worlds: tuple[str, ...] = tuple(WORLDS)
    """Some of inventory, queue and battery."""
    effects: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0, 8.0)
    """In units of the effect that biases the estimate by one standard error."""
    logs: int = 400
    """Of each world and effect."""
    episodes: int = 1000
    """Of a log."""

    RANGES: ClassVar[tuple[str, ...]] = ("worlds", "logs")


QUICK: dict[str, Any] = {"logs": 20}


def jobs(args: Args) -> list[dict[str, Any]]:
    """All logs, some at a time."""
    return [{"world": w, "first": i} for w in args.worlds for i in range(0, args.logs, LOGS)]


def job(args: Args, world: str, first: int) -> dict[str, Any]:
    """Of some logs at every effect: were they named, and the likelihood ratios.

    Besides the ratio at each effect of a log with an exogenous input, for the critical values.
    """
    made = WORLDS[world]
    unit = _unit(world, args.episodes)[0]
    history = History(np.zeros((2, made.horizon)), made.name)
    named, ratios, exogenous, drawn = [], [], [], []
    for number in range(first, first + LOGS):
        some = []
        for i, x in enumerate(args.effects):
            rng = np.random.default_rng([number, i, *world.encode()])
            log = log_of(world, args.episodes, unit * x, rng)
            some.append(bool(exogeneity_warnings(exogeneity(log, history))))
            drawn.append(bool(abs(drawn_score(world, log)) > -NormalDist().inv_cdf(ALPHA / 2)))
            ratios.append(float(log_ratios(world, log, unit * x).sum()))
        named.append(some)
        rng = np.random.default_rng([number, 1000, *world.encode()])
        log = log_of(world, args.episodes, 0.0, rng)
        exogenous.append([float(log_ratios(world, log, unit * x).sum()) for x in args.effects])
    ratio = np.reshape(ratios, (LOGS, -1)).tolist()
    return {
        "named": named,
        "ratio": ratio,
        "exogenous": exogenous,
        "drawn": np.reshape(drawn, (LOGS, -1)).tolist(),
    }


def log_of(world: str, n: int, effect: float, rng: np.random.Generator) -> Episodes:
    """Episodes whose actions add to the input that comes next."""
    made = WORLDS[world]
    paths = made.paths(n, rng)
    pushed = _influence(world, effect, rng) if effect else None
    return simulate(made, made.policies()[POLICY], paths, rng, pushed)


def _influence(
    world: str, effect: float, rng: np.random.Generator
) -> Callable[[Floats, Ints, int], None]:
    def poisson(paths: Floats, action: Ints, t: int) -> None:
        paths[:, t] += rng.poisson(effect * action)

    def price(paths: Floats, action: Ints, t: int) -> None:  # that of time t was seen already
        paths[:, t + 1 : t + 2] += effect * action[:, None]

    return price if world == "battery" else poisson


@cache
def _unit(world: str, n: int) -> tuple[float, float, float]:
    """The effect that biases by one standard error; the estimate's relative variance; d of *least*.

    The input before it was influenced has the law of the history, path by path, so that the bias
    is the mean of what an influence changes of a guess that was learned from other episodes.
    """
    rng, made = np.random.default_rng(7), WORLDS[world]
    history = History(made.paths(30 * n, rng), made.name, block=1)
    log = log_of(world, n, 0.0, rng)
    values, own = log.returns()[:, None], history.paths_of(log)
    crossed = cross_fitted(values, own, history)
    error = float(np.hypot(crossed.values.std() / np.sqrt(n), crossed.error[0]))
    guesses = learn_guesses(BlockMeans(own), values, history.levels)
    effect = 0.02 * float(own.std())
    for _ in range(3):
        base = made.paths(MANY, rng)
        pushed = simulate(made, made.policies()[POLICY], base, rng, _influence(world, effect, rng))
        change = guesses.of(BlockMeans(history.paths_of(pushed))) - guesses.of(
            BlockMeans(base[:, :, None])
        )
        effect *= error / abs(float(crossed.share * change.mean()))
    spread = float(crossed.share * guesses.of(BlockMeans(base[:, :, None])).std())
    return effect, n * error**2 / float(values.var()), np.sqrt(n) * error / spread


def log_ratios(world: str, log: Episodes, effect: float) -> Floats:
    """[N] logarithms of the likelihoods of episodes with the effect, relative to those without."""
    return _log_likelihoods(world, log, effect) - _log_likelihoods(world, log, 0.0)


def _log_likelihoods(world: str, log: Episodes, effect: float) -> Floats:
    """[N], but for what no effect changes: actions given the past, rewards and states."""
    assert log.exogenous is not None
    paths, added = log.exogenous[:, 1:, 0], effect * log.action
    if world == "battery":
        off = paths - Battery().usual
        off[:, 1:] -= added[:, :-1]
        drawn = off[:, 1:] - PRICES[0] * off[:, :-1]
        return np.asarray(-0.5 * (drawn**2).sum(axis=1) / PRICES[1] ** 2)
    rates, switch = SPELLS[world]
    spell, total = np.full((len(paths), 2), 0.5), np.zeros(len(paths))
    for t in range(paths.shape[1]):
        mean = np.array(rates) + added[:, t, None]
        joint = spell * np.exp(paths[:, t, None] * np.log(mean) - mean)
        chance = joint.sum(axis=1, keepdims=True)
        total += np.log(chance[:, 0])
        seen = joint / chance
        spell = (1.0 - switch) * seen + switch * seen[:, ::-1]
    return total


def drawn_score(world: str, log: Episodes) -> float:
    """Normal where the input is exogenous: drawn parts of actions times scores of a shift."""
    assert log.exogenous is not None
    policy, paths = WORLDS[world].policies()[POLICY], log.exogenous[:, 1:, 0]
    numbers = np.arange(WORLDS[world].actions)
    expected = [policy.probs(log.obs[:, t], t) @ numbers for t in range(paths.shape[1])]
    drawn, score = log.action - np.stack(expected, axis=1), np.zeros_like(paths)
    if world == "battery":  # a price moves after the action
        off = paths - Battery().usual
        score[:, :-1] = off[:, 1:] - PRICES[0] * off[:, :-1]
    else:
        rates, switch = np.array(SPELLS[world][0]), SPELLS[world][1]
        spell = np.full((len(paths), 2), 0.5)
        for t in range(paths.shape[1]):
            joint = spell * np.exp(paths[:, t, None] * np.log(rates) - rates)
            seen = joint / joint.sum(axis=1, keepdims=True)
            score[:, t] = (seen * (paths[:, t, None] / rates - 1.0)).sum(axis=1)
            spell = (1.0 - switch) * seen + switch * seen[:, ::-1]
    each = (drawn * score).sum(axis=1)
    return float(each.sum() / np.sqrt((each**2).sum()))


def summary(args: Args, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One line for each world and effect."""
    lines = []
    for world in args.worlds:
        some = [row for row in rows if row["world"] == world]
        named, ratio, exogenous, drawn = (
            np.concatenate([np.asarray(row[key], np.float64) for row in some])
            for key in ("named", "ratio", "exogenous", "drawn")
        )
        unit, variance, least = _unit(world, args.episodes)
        critical = np.quantile(exogenous, 1.0 - ALPHA, axis=0)
        for i, b in enumerate(args.effects):
            lines.append(
                {
                    "world": world,
                    "logs": len(named),
                    "unit": unit,
                    "variance": variance,
                    "effect": b,
                    "named": float(named[:, i].mean()),
                    "drawn": float(drawn[:, i].mean()),
                    "at most": float((ratio[:, i] > critical[i]).mean()) if b else ALPHA,
                    "least": NormalDist().cdf(b * least + NormalDist().inv_cdf(ALPHA)),
                }
            )
    return {"lines": lines}


def table(content: dict[str, Any]) -> list[Table | str]:
    """The lines."""
    heads = ("world", "variance", "unit", "units", "logs", "named", "drawn", "at most", "least")
    rows = tuple(
        (
            line["world"],
            f"{line['variance']:.3f}",
            f"{line['unit']:.3g}",
            f"{line['effect']:g}",
            str(line["logs"]),
            _share(line["named"], line["logs"]),
            _share(line["drawn"], line["logs"]) if "drawn" in line else "",
            _share(line["at most"], line["logs"]),
            f"{line['least']:.2f}",
        )
        for line in content["lines"]
    )
    return [Table("", heads, rows)]


def _share(share: float, count: int) -> str:
    return f"{share:.3f} ± {np.sqrt(share * (1.0 - share) / count):.3f}"


if __name__ == "__main__":
    main("experiments.exogeneity")
