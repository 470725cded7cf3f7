"""The data center: what three controllers save, found in few days and with little overheating.

The environment is `scopeval.envs.data_center` on EnergyPlus, with the energy saved as reward. Logs
are days of ten other controllers. For every target controller:

- ``on-policy``: its own days, also the reference of all others;
- ``scope-dr``: the design from the logs, at the target's own cost;
- ``frontier``: the point of the learned frontier at half of the target's overheating;
- ``adaptive``: `evaluate(refit=True)` without logs;
- ``adaptive with logs``: the same with the logs;

and, where asked for:

- ``frontier adaptive``, ``frontier adaptive with logs``: in stages, at half of the overheating;
- ``energy on-policy``, ``energy scope-dr``: with minus the energy as reward, whose variance is
  mostly the weather's;
- ``energy scope-dr starts``: the design, with further midnights (`evaluate(starts=...)`).

The *squared error* is that of an estimate relative to on-policy's from as many days. Without stages
it is the variance of one day's value relative to that of one day's return. With stages it is
sum_k share_k^2 variance_k / days_k, likewise.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from scopeval.arrays import Floats, check_whole, is_number
from scopeval.envs.data_center.engine import check_installed
from scopeval.errors import InputError
from scopeval.paper.backends.shards import ShardOptions, run_shards
from scopeval.paper.experiments.energy_days import (
    ENERGY,
    FRONTIER,
    METHODS,
    OPERATORS,
    TARGETS,
    Measurer,
    Own,
    Shard,
    own_days,
    write_logs,
)
from scopeval.paper.results import as_columns

__all__ = ["ENERGY", "FRONTIER", "METHODS", "TARGETS", "Config", "EnergyResult", "EnergyRow", "run"]


@dataclass(frozen=True)
class Config:
    """What to run."""

    targets: tuple[str, ...] = TARGETS
    """Names of the controllers."""
    methods: tuple[str, ...] = METHODS
    """Some of `METHODS`, `FRONTIER` and `ENERGY`."""
    logged: int | None = None
    """Days of the logs; None: the 300 that come with the package."""
    own: int = 200
    """Days in which every target is measured itself."""
    days: int = 200
    """Days of every other evaluation."""
    starts: int = 500
    """Further midnights, with ``starts``."""
    asked: float = 0.5
    """Overheating that is asked of the frontier, relative to the target's own."""
    seed: int = 0
    """Of the days, logs and designs."""

    def __post_init__(self) -> None:
        for name, known, given in (
            ("targets", TARGETS, self.targets),
            ("methods", METHODS + FRONTIER + ENERGY, self.methods),
        ):
            for one in given:
                if one not in known:
                    raise InputError(f"{name}: got {one!r}, expected some of {'; '.join(known)}")
        for name in ("own", "days", "starts"):
            check_whole(name, getattr(self, name), 2)
        if self.logged is not None:
            check_whole("logged", self.logged, OPERATORS)
        check_whole("seed", self.seed, 0)
        if not (is_number(self.asked) and self.asked > 0.0):
            raise InputError(f"asked: got {self.asked!r}, expected a number above 0")


@dataclass(frozen=True)
class EnergyRow:
    """What one method found about one target.

    Attributes:
        target: its name.
        method: its name.
        days: that were run; 0 where no design is offered, and then there are no numbers.
        value: estimated, in kWh a day, and its standard error if it is known.
        square: squared error relative to on-policy's from as many days, and its standard error.
        cost: overheating relative to the target's own days, and its standard error.
        verdict: of the certificate; empty for the target itself.
        ratio: the certificate's interval for the relative cost; None for the target itself.
        predicted: relative variance and cost that the design promised; None without one.
        by_target: days that the target itself ran.
        said: warnings and refusals, in words.
    """

    target: str
    method: str
    days: int
    value: tuple[float, float | None] | None = None
    square: tuple[float, float] | None = None
    cost: tuple[float, float] | None = None
    verdict: str = ""
    ratio: tuple[float | None, float | None] | None = None
    predicted: tuple[float, float] | None = None
    by_target: int = 0
    said: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class EnergyResult:
    """What was asked, and every row."""

    config: Config
    rows: tuple[EnergyRow, ...] = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [asdict(row) for row in self.rows]
        return {"experiment": "energy", "config": asdict(self.config), "rows": rows}

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every row as columns."""
        found = [
            {
                "target": row.target,
                "method": row.method,
                "days": row.days,
                "value": None if row.value is None else row.value[0],
                "square": None if row.square is None else row.square[0],
                "cost": None if row.cost is None else row.cost[0],
                "verdict": row.verdict,
            }
            for row in self.rows
        ]
        return {"evaluations": as_columns(found)}


def run(
    config: Config, *, folder: str | os.PathLike[str], **how: Unpack[ShardOptions]
) -> EnergyResult:
    """Run everything; what was finished before is read (see `run_shards`).

    The logs are written to the folder, as ``logs.parquet``.
    """
    check_installed()
    place = Path(folder).resolve()
    shards = place / "shards"
    digest = write_logs(config.logged, config.seed, place, how)
    alone = [
        Shard(target, "on-policy", config.own, 0, 1.0, config.seed, "") for target in config.targets
    ]
    own = run_shards(own_days, alone, folder=shards, **how)
    asked = []
    for target in config.targets:
        for method in config.methods:
            if not method.endswith("on-policy"):
                one = Shard(
                    target, method, config.days, config.starts, config.asked, config.seed, digest
                )
                asked.append(one if one.learns else replace(one, digest=""))
    found = run_shards(Measurer(place).measure, asked, folder=shards, **how)
    answers = {(x.target, x.method): (x, y) for x, y in zip(asked, found, strict=True)}
    rows = []
    for target, days in zip(config.targets, own, strict=True):
        for method in config.methods:
            known = Own.of(days, method)
            if method.endswith("on-policy"):
                rows.append(_own_row(target, method, known))
            else:
                rows.append(_row(*answers[target, method], known))
    return EnergyResult(config, tuple(rows))


def _own_row(target: str, method: str, own: Own) -> EnergyRow:
    n = len(own.value)
    error = float(own.value.std(ddof=1) / np.sqrt(n))
    away = float(own.cost.std(ddof=1) / np.sqrt(n) / own.cost.mean())
    value = (float(own.value.mean()), error)
    return EnergyRow(target, method, n, value, (1.0, 0.0), (1.0, away), by_target=n)


def _row(shard: Shard, answer: dict[str, Any], own: Own) -> EnergyRow:
    said = tuple(answer["said"])
    if "value" not in answer:
        return EnergyRow(shard.target, shard.method, 0, said=said)
    value, cost = np.array(answer["value"]), np.array(answer["cost"])
    square = _square(value, answer["stages"], own.value)
    square = (square[0] * answer["starts"], square[1] * answer["starts"])
    relative = float(cost.mean() / own.cost.mean())
    spread = [x.std(ddof=1) / np.sqrt(len(x)) / x.mean() for x in (cost, own.cost)]
    return EnergyRow(
        shard.target,
        shard.method,
        len(value),
        (answer["estimate"], answer["error"]),
        square,
        (relative, relative * float(np.hypot(*spread))),
        answer["verdict"],
        None if answer["ratio"] is None else tuple(answer["ratio"]),
        None if answer["predicted"] is None else tuple(answer["predicted"]),
        answer["by_target"],
        said,
    )


def _square(
    value: Floats, stages: Sequence[tuple[int, float, bool]], own: Floats
) -> tuple[float, float]:
    """Squared error relative to on-policy's from as many days, and its standard error.

    A stage that ran the target itself has the target's own variance.
    """
    n = len(value)
    variance, error = _variance(own)
    total, square_error, first = 0.0, 0.0, 0
    for days, share, by_target in stages or [(n, 1.0, False)]:
        found = (variance, 0.0) if by_target else _variance(value[first : first + days])
        total += share**2 * n / days * found[0]
        square_error += (share**2 * n / days * found[1]) ** 2
        first += days
    relative = total / variance
    away = np.sqrt(square_error / total**2 + (error / variance) ** 2)
    return relative, relative * float(away)


def _variance(values: Floats) -> tuple[float, float]:
    """Variance, and its standard error sqrt((m4 - variance^2) / n)."""
    off = values - values.mean()
    variance = float(values.var(ddof=1))
    fourth = float((off**4).mean())
    return variance, float(np.sqrt(max(fourth - variance**2, 0.0) / len(values)))
