"""The data center with its weather as context: minus the energy, and no formula.

The energy of a day is mostly a matter of its weather and of the servers' load, which no controller
changes. The reward "saving" of `experiments.data_center` takes them out by a formula that somebody
had to fit. Here the same days are evaluated with minus the energy as reward, and a history of the
weather and the load (`History` of 100 days for every day of an evaluation; they need no simulator):

- *energy*: the mean of the controller's own days, as they are;
- *saving*: the same days, with the hand-made formula;
- *energy, context*: the same days, with the history as control variate;
- *energy, by the hour*: likewise, with a guess of every hour's energy by its weather, which a least
  squares line through last season's days gives (`hourly_energy`);
- *recorded*: the same of the 300 days in the logs, of ten other controllers, without the simulator;
- *design*: `scope-dr` from the recorded logs, with minus the energy as reward;
- *design, context*: both;
- *A/B, ...*: two controllers compared by their own days, half of them each.

The standard error is the one that the result comes with; with context it counts the history.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium.utils.seeding import np_random

from experiments.common import RunArgs, Table, main
from experiments.data_center import recorded_logs, target_controllers
from experiments.data_center.engine import Hour, check_installed
from experiments.data_center.environment import FIELDS, WARM_UP, observe, season_of, usual_energy
from experiments.data_center.weather import HOURS
from experiments.energy import OUTDOOR, TARGETS, _rooms, _seed, _usual
from scopeval import Inference, collect, compare, design, estimate, evaluate
from scopeval.arrays import Floats
from scopeval.collection.episodes import Episodes
from scopeval.context.control import cross_fitted
from scopeval.context.history import History
from scopeval.context.log_paths import episodes_of
from scopeval.evaluation.result import Evaluation

#: What no controller changes, where observations have it.
EXOGENOUS = (OUTDOOR, FIELDS.index("load"))
#: Controllers that are compared.
PAIR = ("usual", "bold")
#: Bases of cooling degrees, in °C: from where outdoor air is too warm to the hottest days.
BASES = tuple(range(18, 37, 3))


@dataclass(frozen=True)
class Args(RunArgs):
    """Weather and load as context, about ten minutes."""

    parts: tuple[str, ...] = ("recorded", *TARGETS, "compared", "designs")
    """Some of recorded, cautious, usual, bold, compared, designs."""
    days: int = 200
    """Of every evaluation."""
    paths: int = 100
    """Days of the history, for each day of an evaluation."""
    seed: int = 0
    """Of the days and designs."""

    RANGES: ClassVar[tuple[str, ...]] = ("parts",)

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        check_installed()


QUICK: dict[str, Any] = {"days": 20}


def jobs(args: Args) -> list[dict[str, Any]]:
    """The recorded days, every controller by itself, a comparison, and designs."""
    each = {part: [part] for part in args.parts}
    if "designs" in each:
        each["designs"] = [f"design for {target}" for target in TARGETS]
    return [{"what": what} for some in each.values() for what in some]


def weather_history(count: int, seed: int) -> History:
    """Outdoor temperature and load of further days, hour by hour, from the end of the last night.

    They are drawn as the room's own days are, without the simulator.
    """
    season, rng = season_of(None), np_random(seed)[0]
    paths = np.empty((count, HOURS + 1, len(EXOGENOUS)))
    for path in paths:
        day = season.draw(rng)
        for hour in range(HOURS + 1):
            seen = observe(day, hour, Hour(0.0, 0.0, 0.0, WARM_UP), WARM_UP)
            path[hour] = seen[list(EXOGENOUS)]
    return History(paths, EXOGENOUS, block=1)


def hourly_energy() -> Callable[[Floats], Floats]:
    """A guess of minus the energy of every hour of paths, [m, 24], from the recorded logs.

    Least squares by the hour's mean outdoor temperature, what it exceeds each base by, and the load
    of the servers; of ten other controllers.
    """
    logs = recorded_logs()
    energy: Floats = logs.reward - _usual(logs.obs, logs.next_obs)
    both = [np.asarray(obs[:, EXOGENOUS], np.float64) for obs in (logs.obs, logs.next_obs)]
    ends = np.stack(both, axis=1)
    line = np.linalg.lstsq(_by_weather(ends)[:, 0], energy, rcond=None)[0]
    return lambda paths: np.asarray(_by_weather(paths) @ line)


def _by_weather(paths: Floats) -> Floats:
    """[m, hours, 9] what an hour's energy goes with."""
    hourly = (paths[:, 1:, 0] + paths[:, :-1, 0]) / 2.0
    above = [np.maximum(hourly - base, 0.0) for base in BASES]
    return np.stack([np.ones_like(hourly), hourly, *above, paths[:, :-1, 1]], axis=2)


def by_the_hour(history: History) -> History:
    """The same paths, with a guess of every hour's energy."""
    return History(history.paths, EXOGENOUS, block=1, rewards=hourly_energy())


def with_formula(episodes: Episodes) -> Episodes:
    """The same days, with the energy saved as reward."""
    outdoor = np.concatenate([episodes.obs[:, :, OUTDOOR], episodes.last_obs[:, None, OUTDOOR]], 1)
    more = usual_energy((outdoor[:, 1:] + outdoor[:, :-1]) / 2.0)
    return replace(episodes, reward=episodes.reward + more)


def job(args: Args, what: str) -> dict[str, Any]:
    """Estimates with their standard errors, by name."""
    history = weather_history(args.paths * args.days, _seed(args.seed, 9))
    if what == "recorded":
        return _recorded(args)
    if what == "compared":
        return _compared(args, history)
    if what not in TARGETS:
        return _designed(args, what.removeprefix("design for "), history)
    days = _days(args, what)
    found = {
        "energy": estimate(days),
        "saving": estimate(with_formula(days)),
        "energy, context": estimate(days, context=history),
        "energy, by the hour": estimate(days, context=by_the_hour(history)),
    }
    return {name: _numbers(one) for name, one in found.items()}


def _recorded(args: Args) -> dict[str, Any]:
    """The mean of the days in the logs."""
    logs = recorded_logs()
    days = episodes_of(logs)
    usual = _usual(logs.obs, logs.next_obs).reshape(len(days.returns), HOURS).sum(axis=1)
    energy, n = days.returns - usual, len(days.returns)
    history = weather_history(args.paths * n, _seed(args.seed, 9))
    own = days.obs[:, :, list(EXOGENOUS)]
    each = {"energy": (energy, 0.0), "saving": (days.returns, 0.0)}
    adjusted = cross_fitted(energy[:, None], own, history)
    each["energy, context"] = adjusted.values[:, 0], float(adjusted.error[0])
    return {
        name: {
            "estimate": float(x.mean()),
            "error": float(np.hypot(x.std(ddof=1) / np.sqrt(n), error)),
            "said": [],
        }
        for name, (x, error) in each.items()
    }


def _designed(args: Args, target: str, history: History) -> dict[str, Any]:
    """`scope-dr` by minus the energy, and beside it by the saving."""
    pi = target_controllers()[target].policy()
    found = {}
    for reward in ("energy", "saving"):
        logs = recorded_logs()
        if reward == "energy":
            logs = replace(logs, reward=logs.reward - _usual(logs.obs, logs.next_obs))
        made = design(logs, pi, horizon=HOURS, method="scope-dr", seed=args.seed)
        seed = _seed(args.seed, TARGETS.index(target), 2)
        with _rooms(reward) as rooms:
            ran = evaluate(
                rooms, pi, made, episodes=args.days, seed=seed,
                inference=Inference(keep=True),
            ).episodes  # fmt: skip
        assert ran is not None
        found[f"design, {reward}"] = estimate(ran, run=made)
        if reward == "energy":
            found["design, energy, context"] = estimate(ran, run=made, context=history)
    return {name: _numbers(one) for name, one in found.items()}


def _days(args: Args, target: str) -> Episodes:
    """The controller's own days."""
    with _rooms("energy") as rooms:
        return collect(
            rooms,
            target_controllers()[target].policy(),
            horizon=HOURS,
            episodes=args.days,
            seed=_seed(args.seed, TARGETS.index(target), 1),
        )


def _compared(args: Args, history: History) -> dict[str, Any]:
    """The difference of two controllers, from half of the days each."""
    days = {name: _days(replace(args, days=args.days // 2), name) for name in PAIR}
    order = np.random.default_rng(args.seed).permutation(2 * (args.days // 2)).reshape(2, -1)
    days = {
        name: replace(some, index=np.sort(index))  # as if a coin had said whose day it is
        for (name, some), index in zip(days.items(), order, strict=True)
    }
    policies = {name: target_controllers()[name].policy() for name in PAIR}
    saved = {name: with_formula(some) for name, some in days.items()}
    found = {
        "A/B, energy": compare(days, policies),
        "A/B, saving": compare(saved, policies),
        "A/B, energy, context": compare(days, policies, context=history),
        "A/B, energy, by the hour": compare(days, policies, context=by_the_hour(history)),
    }
    numbers = {}
    for name, one in found.items():
        difference = one.differences[PAIR[1]]
        numbers[name] = {"estimate": difference.estimate, "error": difference.se, "said": []}
    return numbers


def _numbers(found: Evaluation) -> dict[str, Any]:
    return {
        "estimate": found.estimate,
        "error": found.standard_error,
        "said": list(found.diagnostics.warnings),
    }


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for each controller and way."""
    return {
        "rows": [
            {"what": row["what"], "way": way, **numbers}
            for row in rows
            for way, numbers in row.items()
            if way != "what"
        ]
    }


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """Estimates with their standard errors, and the squared errors relative to the formula's."""
    rows = content["rows"]
    formula: dict[str, float] = {
        row["what"]: row["error"] for row in rows if row["way"].endswith("saving")
    }
    heads = ("controller", "way", "kWh a day", "standard error", "squared, to saving's")
    cells = tuple(
        (
            f"{PAIR[1]} less {PAIR[0]}" if row["what"] == "compared" else row["what"],
            row["way"],
            f"{row['estimate']:.1f}",
            f"{row['error']:.2f}",
            f"{(row['error'] / formula[row['what']]) ** 2:.2f}",
        )
        for row in rows
    )
    said = [f"{row['what']}, {row['way']}: {'; '.join(row['said'])}" for row in rows if row["said"]]
    return [Table("", heads, cells), *said]


if __name__ == "__main__":
    main("experiments.energy_context")
