"""How often verdicts about the cost are wrong, in worlds that fool intervals.

Three rules judge the same episodes:

- ``t interval``: the rule before bounds could be stated: *safe* or *refuted* as soon as the t
  interval of E[D] excludes 0. It is kept here for comparison only;
- ``as far as seen``: the certificate and the guard without a stated bound;
- ``stated bound``: both with the bound of the world.

The guard looks after every 50 episodes; its alarms are false where the promise holds. The worlds
are in `worlds.costly`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from experiments.common import Note, RunArgs, Table, main
from experiments.worlds.costly import WORLDS, VerdictWorld
from scopeval.arrays import Ints
from scopeval.errors import InputError
from scopeval.estimation.moments import Moments, moments_interval
from scopeval.safety.certificate import Ledger
from scopeval.safety.costs import EpisodeCosts
from scopeval.safety.guard import Guard

RULES = ("t interval", "as far as seen", "stated bound")
OUTCOMES = ("safe", "refuted", "not enough evidence", "alarm")
#: Episodes between two looks of the guard.
LOOK = 50


@dataclass(frozen=True)
class Args(RunArgs):
    """Rates of wrong verdicts."""

    worlds: tuple[str, ...] = tuple(WORLDS)
    """Names of the worlds."""
    episodes: tuple[int, ...] = (50, 100, 1000, 4000)
    """Numbers of episodes after which a verdict is asked for."""
    runs: int = 500
    """Runs of each world and number of episodes."""
    alpha: float = 0.05
    """Of certificate and guard."""
    seed: int = 0
    """Of the episodes."""

    RANGES: ClassVar[tuple[str, ...]] = ("worlds", "episodes")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        for name in self.worlds:
            if name not in WORLDS:
                raise InputError(f"worlds: got {name!r}, expected some of {', '.join(WORLDS)}")


QUICK: dict[str, Any] = {"episodes": (50, 100), "runs": 50}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each world and number of episodes."""
    return [{"world": world, "episodes": n} for world in args.worlds for n in args.episodes]


def job(args: Args, world: str, episodes: int) -> dict[str, Any]:
    """How many runs had which outcome, [rules, outcomes]."""
    made, place = WORLDS[world](), list(WORLDS).index(world)
    counts = np.zeros((len(RULES), len(OUTCOMES)), np.int64)
    for k in range(args.runs):
        rng = np.random.default_rng([args.seed, place, episodes, k])
        counts += _outcomes(made, made.draw(rng, episodes), args.alpha)
    return {"ratio": made.ratio, "counts": counts.tolist()}


def _outcomes(world: VerdictWorld, costs: EpisodeCosts, alpha: float) -> Ints:
    """[rules, outcomes] 1 where a rule had the outcome."""
    outcomes = np.zeros((len(RULES), len(OUTCOMES)), np.int64)
    moments = Moments()
    moments.merge(costs.cost - costs.weighted_cost)
    interval = moments_interval(moments, alpha=alpha)
    outcomes[0, :2] = interval.high <= 0, interval.low > 0
    for row, bound in ((1, None), (2, world.bound)):
        ledger, guard = Ledger(alpha=alpha, bound=bound), Guard(alpha=alpha, bound=bound)
        ledger.add(costs)
        verdict = ledger.certificate().verdict
        outcomes[row, :3] = [verdict == name for name in OUTCOMES[:3]]
        starts = range(0, len(costs), LOOK)
        outcomes[row, 3] = any(guard.add(costs.select(slice(i, i + LOOK))).tripped for i in starts)
    return outcomes


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Shares of the runs, a block for each world."""
    return {
        "blocks": [
            {
                "world": world,
                "ratio": next(row["ratio"] for row in rows if row["world"] == world),
                "rows": [
                    {
                        "world": world,
                        "episodes": row["episodes"],
                        "rule": rule,
                        **{what: n / args.runs for what, n in zip(OUTCOMES, counts, strict=True)},
                    }
                    for row in rows
                    if row["world"] == world
                    for rule, counts in zip(RULES, row["counts"], strict=True)
                ],
            }
            for world in args.worlds
        ]
    }


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """One table, and how to read it."""
    config, lines = content["config"], []
    for block in content["blocks"]:
        wrong, right = ("safe", "refuted") if block["ratio"] > 1 else ("refuted", "safe")
        for n in dict.fromkeys(row["episodes"] for row in block["rows"]):
            here = {row["rule"]: row for row in block["rows"] if row["episodes"] == n}
            shares = [here[rule][what] for what in (wrong, right) for rule in RULES]
            shares += [here[rule]["alarm"] for rule in RULES[1:]]
            name = f"{block['world']}, {block['ratio']:.3f}"
            lines.append((name, f"{n:,}", *(f"{share:.3f}" for share in shares)))
    three = ("t interval", "no bound", "bound")
    header = ("world, true ratio", "episodes", *(f"wrong: {rule}" for rule in three))
    header += (*(f"right: {rule}" for rule in three), "alarms: no bound", "alarms: bound")
    return [
        Table("", header, tuple(lines)),
        Note(
            f"Shares of {config['runs']:,} runs, alpha {config['alpha']:g}, seed {config['seed']}; "
            "a share p has a standard error of sqrt(p (1 - p) / runs). Wrong, right: firm "
            "verdicts; the "
            'others are "not enough evidence". t interval: the rule before bounds could be stated. '
            "No bound: certificate and guard as far as seen. Bound: both with the most that an "
            "episode (heavy weights, ordinary, too expensive: a step) can cost. Alarms: the guard "
            f"tripped at some of its looks, every {LOOK} episodes; this is false where the ratio "
            "is at most 1."
        ),
    ]


if __name__ == "__main__":
    main("experiments.verdicts")
