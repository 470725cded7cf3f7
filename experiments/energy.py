"""The data center: what three controllers save, found in few days and with little overheating.

The environment is `experiments.data_center` on EnergyPlus (extra ``energyplus``), with the energy
saved as reward. Logs are days of ten other controllers. For every target controller:

- ``on-policy``: its own days, also the reference of all others;
- ``scope-dr``: the design from the logs, at the target's own cost;
- ``frontier``: the point of the learned frontier at half of the target's overheating;
- ``adaptive``: `evaluate(refit=True)` without logs;
- ``adaptive with logs``: the same with the logs;

and, where asked for:

- ``frontier adaptive``, ``frontier adaptive with logs``: in stages, at half of the overheating;
- ``energy on-policy``, ``energy scope-dr``: with minus the energy as reward, whose variance is
  mostly the weather's;
- ``energy scope-dr starts``: the design, with further midnights (`History.starts`).

The *squared error* is that of an estimate relative to on-policy's from as many days. Without stages
it is the variance of one day's value relative to that of one day's return. With stages it is
sum_k share_k^2 variance_k / days_k, likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.common import Note, RunArgs, Table, main, ratio_of, run_jobs, variance_error
from experiments.data_center import DataCenterFleet, operators, target_controllers
from experiments.data_center.engine import check_installed
from experiments.data_center.environment import FIELDS, Reward, usual_energy
from experiments.data_center.logs import RECORDED
from experiments.data_center.weather import HOURS
from scopeval import (
    Inference,
    Promise,
    Stages,
    Transitions,
    collect,
    design,
    evaluate,
    frontier,
    read_logs,
    write_logs,
)
from scopeval.arrays import Floats
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.context.history import History
from scopeval.errors import InputError
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.result import Evaluation

TARGETS = tuple(target_controllers())
FRONTIER = ("frontier adaptive", "frontier adaptive with logs")
ENERGY = ("energy on-policy", "energy scope-dr", "energy scope-dr starts")
#: Controllers of the logs.
OPERATORS = 10
#: Where observations have the outdoor temperature.
OUTDOOR = FIELDS.index("outdoor")
#: Engines that run side by side.
SIDE_BY_SIDE = 8


@dataclass(frozen=True)
class Args(RunArgs):
    """The cooling of a data center, about ten minutes."""

    targets: tuple[Literal["cautious", "usual", "bold"], ...] = ("cautious", "usual", "bold")
    """Names of the controllers."""
    methods: tuple[
        Literal[
            "on-policy",
            "scope-dr",
            "frontier",
            "adaptive",
            "adaptive with logs",
            "frontier adaptive",
            "frontier adaptive with logs",
            "energy on-policy",
            "energy scope-dr",
            "energy scope-dr starts",
        ],
        ...,
    ] = ("on-policy", "scope-dr", "frontier", "adaptive", "adaptive with logs")
    """See above."""
    logged: int | None = None
    """Simulate so many days of logs; those 300 that are recorded if it is left out."""
    own: int = 200
    """Days in which every target is measured itself."""
    days: int = 200
    """Days of every other evaluation."""
    starts: int = 500
    """Further midnights, with starts."""
    asked: float = 0.5
    """Overheating that is asked of the frontier, relative to the target's own."""
    seed: int = 0
    """Of the days, logs and designs."""

    RANGES: ClassVar[tuple[str, ...]] = ("targets", "methods")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        check_installed()


QUICK: dict[str, Any] = {"own": 20, "days": 20}


def logs_of(args: Args) -> Path:
    """The file of the logs."""
    return RECORDED if args.logged is None else args.folder.resolve() / "logs.parquet"


def logged_days(args: Args, operator: int) -> dict[str, Any]:
    """Columns of the log of one of the controllers."""
    controller = operators(OPERATORS, args.seed)[operator]
    with _rooms("saving") as rooms:
        ran = collect(
            rooms,
            controller.policy(),
            horizon=HOURS,
            episodes=len(range(operator, args.logged or 0, OPERATORS)),
            seed=_seed(args.seed, operator),
        )
    return {name: column.tolist() for name, column in ran.transitions().items()}


def jobs(args: Args) -> list[dict[str, Any]]:
    """The target's own days, and one for each method; once the logs are there."""
    if args.logged is not None:
        every = [{"operator": k} for k in range(OPERATORS)]
        parts = run_jobs(logged_days, args, every, depends=("logged", "seed"))
        columns = [{k: v for k, v in part.items() if k != "operator"} for part in parts]
        write_logs(Transitions.concat([Transitions(**part) for part in columns]), logs_of(args))
    chosen = [method for method in args.methods if not method.endswith("on-policy")]
    return [{"target": t, "method": m} for t in args.targets for m in ("on-policy", *chosen)]


def job(args: Args, target: str, method: str) -> dict[str, Any]:
    """Days of the target itself, or the numbers of an evaluation."""
    reward: Reward = "energy" if method in ENERGY else "saving"
    with _rooms(reward) as rooms:
        if method == "on-policy":
            return _own_days(args, target, rooms)
        return _measured(args, target, method, rooms)


def _own_days(args: Args, target: str, rooms: DataCenterFleet) -> dict[str, Any]:
    """Return and overheating of the target's own days."""
    ran = collect(
        rooms,
        target_controllers()[target].policy(),
        horizon=HOURS,
        episodes=args.own,
        seed=_seed(args.seed, TARGETS.index(target), 1),
    )
    rows = ran.transitions()
    usual = _usual(rows["obs"], rows["next_obs"]).reshape(args.own, HOURS).sum(axis=1)
    value, cost = ran.returns().tolist(), ran.costs().tolist()
    return {"value": value, "usual": usual.tolist(), "cost": cost}


def _measured(args: Args, target: str, method: str, rooms: DataCenterFleet) -> dict[str, Any]:
    """The evaluation's numbers; only what was said where the logs offer no design."""
    pi = target_controllers()[target].policy()
    logs = None
    if not method.endswith("adaptive"):
        logs = read_logs(logs_of(args))
        if method in ENERGY:
            logs = replace(logs, reward=logs.reward - _usual(logs.obs, logs.next_obs))
    seed = _seed(args.seed, TARGETS.index(target), 2)
    run = partial(evaluate, rooms, pi, horizon=HOURS, episodes=args.days, seed=seed)
    if "adaptive" in method:
        promise = Promise(at_most=args.asked if method in FRONTIER else 1.0)
        stages = run(Stages(logs=logs), promise=promise, inference=Inference(keep=True))
        return _numbers(stages, None)
    assert logs is not None
    made: BehaviorPolicy
    if method == "frontier":
        curve = frontier(logs, pi, horizon=HOURS, seed=args.seed)
        try:
            made = curve.at(cost=args.asked)
        except InputError as refused:
            return {"said": [str(refused), *curve.warnings]}
    else:
        made = design(logs, pi, horizon=HOURS, method="scope-dr", seed=args.seed)
    context = History.starts(args.starts) if method.endswith("starts") else None
    return _numbers(run(made, inference=Inference(keep=True), context=context), made)


@contextmanager
def _rooms(reward: Reward) -> Iterator[DataCenterFleet]:
    rooms = DataCenterFleet(SIDE_BY_SIDE, reward)
    try:
        yield rooms
    finally:
        rooms.close()


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence((*key, 71)).generate_state(1, np.uint64)[0]) >> 2


def _usual(obs: NDArray[Any], next_obs: NDArray[Any]) -> Floats:
    """What the reward "saving" adds to "energy" at every step."""
    return usual_energy((obs[:, OUTDOOR] + next_obs[:, OUTDOOR]) / 2.0)


def _numbers(found: Evaluation, made: BehaviorPolicy | None) -> dict[str, Any]:
    """What the rows need of an evaluation."""
    assert found.episodes is not None
    batch = summarize(found.episodes, 1.0, "auto")
    told = found.certificate
    warnings = [*found.diagnostics.warnings, *(made.report.warnings if made is not None else ())]
    return {
        "estimate": found.estimate,
        "error": _finite(found.interval.half_width / 1.96),
        "value": batch.value.tolist(),
        "cost": batch.spent.tolist(),
        "by_target": found.by_target,
        "stages": [(one.episodes, one.share, one.on_policy) for one in found.stages],
        "verdict": "" if told is None else told.verdict,
        "ratio": None if told is None else [_finite(x) for x in (told.ratio.low, told.ratio.high)],
        "predicted": None if made is None else (made.predicted.variance, made.predicted.safe_cost),
        "starts": 1.0 if found.context is None else found.context.relative_variance,
        "said": warnings,
    }


def _finite(number: float) -> float | None:
    """JSON has no other numbers."""
    return float(number) if np.isfinite(number) else None


# -- summary ---------------------------------------------------------------------------------------


class Own(NamedTuple):
    """The target's own days: return and overheating of each."""

    value: Floats
    cost: Floats


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One row for each target and method: numbers with their standard errors."""
    answers = {(row["target"], row["method"]): row for row in rows}
    found = []
    for target in args.targets:
        days = answers[target, "on-policy"]
        for method in args.methods:
            value = np.array(days["value"])
            if method in ENERGY:
                value -= np.array(days["usual"])
            own = Own(value, np.array(days["cost"]))
            if method.endswith("on-policy"):
                numbers = _own_row(own)
            else:
                numbers = _row(answers[target, method], own)
            found.append({"target": target, "method": method, **numbers})
    return {"rows": found}


def _own_row(own: Own) -> dict[str, Any]:
    n = len(own.value)
    away = float(own.cost.std(ddof=1) / np.sqrt(n) / own.cost.mean())
    return {
        "days": n,
        "value": (float(own.value.mean()), float(own.value.std(ddof=1) / np.sqrt(n))),
        "square": (1.0, 0.0),
        "cost": (1.0, away),
        "verdict": "",
        "ratio": None,
        "predicted": None,
        "by_target": n,
        "said": [],
    }


def _row(answer: Mapping[str, Any], own: Own) -> dict[str, Any]:
    if "value" not in answer:
        nothing = dict.fromkeys(("value", "square", "cost", "ratio", "predicted"))
        return {"days": 0, **nothing, "verdict": "", "by_target": 0, "said": answer["said"]}
    value, cost = np.array(answer["value"]), np.array(answer["cost"])
    square = _square(value, answer["stages"], own.value)
    relative = float(cost.mean() / own.cost.mean())
    spread = [x.std(ddof=1) / np.sqrt(len(x)) / x.mean() for x in (cost, own.cost)]
    return {
        "days": len(value),
        "value": (answer["estimate"], answer["error"]),
        "square": (square[0] * answer["starts"], square[1] * answer["starts"]),
        "cost": (relative, relative * float(np.hypot(*spread))),
        **{name: answer[name] for name in ("verdict", "ratio", "predicted", "by_target", "said")},
    }


def _square(
    value: Floats, stages: Sequence[tuple[int, float, bool]], own: Floats
) -> tuple[float, float]:
    """Squared error relative to on-policy's from as many days, and its standard error.

    A stage that ran the target itself has the target's own variance.
    """
    n = len(value)
    variance, error = float(own.var(ddof=1)), variance_error(own)
    total, square_error, first = 0.0, 0.0, 0
    for days, share, by_target in stages or [(n, 1.0, False)]:
        here = value[first : first + days]
        found = (variance, 0.0) if by_target else (float(here.var(ddof=1)), variance_error(here))
        total += share**2 * n / days * found[0]
        square_error += (share**2 * n / days * found[1]) ** 2
        first += days
    return ratio_of(total, float(np.sqrt(square_error)), variance, error)


HEADER = ("controller", "method", "days", "kWh a day", "squared error", "overheating",
          "certificate", "predicted")  # fmt: skip


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """One table, and how to read it."""
    config, rows = content["config"], content["rows"]
    said = [f"{row['target']}, {row['method']}: {'; '.join(row['said'])}" for row in rows
            if row["said"]]  # fmt: skip
    return [
        Table("", HEADER, tuple(_cells(row) for row in rows)),
        Note(
            f"{config['logged'] or 300} logged days, seed {config['seed']}; ± standard error. "
            "Squared error and overheating relative to as many days of the controller itself, "
            "which is on-policy. Certificate: the verdict on the promised overheating, and its 95 "
            "% interval for the relative overheating. Predicted: variance and overheating that the "
            "design promised."
        ),
        *said,
    ]


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["value"] is None:
        nothing = ("",) * 3
        return (row["target"], row["method"], "0", *nothing, "no design is offered", "")
    certificate = row["verdict"]
    if row["ratio"] is not None and None not in row["ratio"]:
        certificate += f", {row['ratio'][0]:.2f} to {row['ratio'][1]:.2f}"
    value, error = row["value"]
    predicted = row["predicted"]
    return (
        row["target"],
        row["method"],
        f"{row['days']:,}",
        f"{value:.1f}" if error is None else f"{value:.1f} ± {error:.1f}",
        f"{row['square'][0]:.2f} ± {row['square'][1]:.2f}",
        f"{row['cost'][0]:.2f} ± {row['cost'][1]:.2f}",
        certificate,
        "" if predicted is None else f"{predicted[0]:.2f}, {predicted[1]:.2f}",
    )


if __name__ == "__main__":
    main("experiments.energy")
