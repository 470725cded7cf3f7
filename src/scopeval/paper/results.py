"""Results of all experiments: methods over targets, their statistics, and error curves.

A *target* is one target policy; an *outcome* is what one method did on one target. A `MethodResult`
holds the outcomes of one method, a block of an experiment all methods in one setting, and a
`Result` the blocks and the configuration they were made with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from scopeval.arrays import Floats

__all__ = [
    "Block",
    "Crossing",
    "MethodResult",
    "Result",
    "Statistic",
    "as_columns",
    "crossing_of",
    "standard_errors",
]


@dataclass(frozen=True)
class Statistic:
    """One number for each target, and their mean."""

    values: Floats

    @property
    def mean(self) -> float:
        """Mean over the targets."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean over targets; None for a single target."""
        n = len(self.values)
        return float(self.values.std(ddof=1) / np.sqrt(n)) if n > 1 else None

    @property
    def largest(self) -> float:
        """The largest number of any target."""
        return float(self.values.max())

    def within(self, level: float) -> bool:
        """Whether the mean is at most a level, up to its standard error and rounding."""
        return self.mean <= level + (self.standard_error or 0.0) + 1e-9

    def text(self, form: str) -> str:
        """Mean and standard error, each in a format such as ".3f"."""
        mean = format(self.mean, form)
        error = self.standard_error
        return mean if error is None else f"{mean} ± {format(error, form)}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "mean": self.mean,
            "standard_error": self.standard_error,
            "values": self.values.tolist(),
        }


O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True)
class MethodResult(Generic[O]):
    """One method over the targets it was run on.

    Attributes:
        method: its name.
        outcomes: one for each target, with `relative_variance` and `relative_cost` of one episode
            and the `inaccuracy` of an estimate, its mean squared error, all relative to on-policy
            Monte Carlo. The inaccuracy is the variance if the method is unbiased.
        targets: names of the targets, if they have names.
    """

    method: str
    outcomes: tuple[O, ...] = field(repr=False)
    targets: tuple[str, ...] = ()

    def statistic(self, name: str) -> Statistic:
        """A field of the outcomes, over the targets."""
        return Statistic(np.array([getattr(o, name) for o in self.outcomes], np.float64))

    def find(self, name: str) -> Statistic | None:
        """The same; None where the method has no such number."""
        return None if getattr(self.outcomes[0], name) is None else self.statistic(name)

    @property
    def variance(self) -> Statistic:
        """Relative variance of one episode's estimate."""
        return self.statistic("relative_variance")

    @property
    def cost(self) -> Statistic:
        """Relative expected cost of one episode."""
        return self.statistic("relative_cost")

    @property
    def needed(self) -> Statistic:
        """Cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes."""
        return Statistic(1000.0 * self.statistic("inaccuracy").values * self.cost.values)

    @property
    def saved(self) -> float:
        """Share of the on-policy cost that is saved at equal accuracy."""
        return 1.0 - self.needed.mean / 1000.0

    @property
    def errors(self) -> Floats:
        """Error curves [targets, grid]."""
        return self.statistic("errors").values

    @property
    def costs(self) -> Floats:
        """Cost curves [targets, grid]."""
        return self.statistic("costs").values

    def summary(self) -> dict[str, Any]:
        """For JSON: what every experiment stores of a method."""
        return {
            "method": self.method,
            "relative_variance": self.variance.as_dict(),
            "relative_cost": self.cost.as_dict(),
            "cost_needed": self.needed.as_dict(),
            "saved": self.saved,
        }

    def mean_curve(self) -> dict[str, list[float]]:
        """Error and cost curves for JSON: means over targets, and standard errors."""
        return {
            "error": self.errors.mean(axis=0).tolist(),
            "standard_error": standard_errors(self.errors).tolist(),
            "cost": self.costs.mean(axis=0).tolist(),
        }


class Block(Protocol):
    """All methods in one setting of an experiment."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON: statistics over the targets."""

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: table -> rows, with every number target by target."""


C = TypeVar("C")
B = TypeVar("B", bound=Block)


@dataclass(frozen=True)
class Result(Generic[C, B]):
    """What was asked, and one block for each setting.

    Attributes:
        experiment: its name in the JSON file.
        config: what was asked.
        blocks: what came out.
        more: other entries of the JSON file.
    """

    experiment: str
    config: C
    blocks: tuple[B, ...] = field(repr=False)
    more: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        config: Any = self.config
        return {
            "experiment": self.experiment,
            "config": asdict(config),
            **self.more,
            "blocks": [block.as_dict() for block in self.blocks],
        }

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """For Parquet: table -> columns, of all blocks; tables without rows are left out."""
        found: dict[str, list[dict[str, Any]]] = {}
        for block in self.blocks:
            for name, rows in block.records().items():
                found.setdefault(name, []).extend(rows)
        return {name: as_columns(rows) for name, rows in found.items() if rows}


def as_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same names, as one list for each name."""
    return {name: [row[name] for row in rows] for name in rows[0]}


# -- error curves --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crossing:
    """The cost at which a method becomes as accurate as on-policy is at the end, for good.

    Attributes:
        cost: in on-policy episodes; None where the method never gets there.
        standard_error: by leaving out one target at a time; None where it is not defined.
    """

    cost: float | None
    standard_error: float | None


def crossing_of(errors: Floats, costs: Floats, own: Floats) -> Crossing:
    """Where the mean over targets of `errors` [K, G] falls below on-policy's last mean error.

    Between two points of the grid both axes are logarithmic. The standard error is the jackknife's
    over targets.
    """
    targets = len(errors)
    everyone = np.ones(targets, np.bool_)
    cost = _cross(errors, costs, own, everyone)
    if targets < 2 or cost is None:
        return Crossing(cost, None)
    without = [_cross(errors, costs, own, np.arange(targets) != k) for k in range(targets)]
    if any(one is None for one in without):
        return Crossing(cost, None)
    left = np.array(without, dtype=np.float64)
    spread = (targets - 1) / targets * ((left - left.mean()) ** 2).sum()
    return Crossing(cost, float(np.sqrt(spread)))


def _cross(errors: Floats, costs: Floats, own: Floats, which: Any) -> float | None:
    level = float(own[which, -1].mean())
    error, cost = errors[which].mean(axis=0), costs[which].mean(axis=0)
    above = np.flatnonzero(error > level)
    if len(above) == 0:
        return float(cost[0])
    last = int(above[-1])
    if last == len(error) - 1:
        return None
    e, c = np.log(error[last : last + 2]), np.log(cost[last : last + 2])
    share = (e[0] - np.log(level)) / (e[0] - e[1])
    return float(np.exp(c[0] + share * (c[1] - c[0])))


def standard_errors(values: Floats) -> Floats:
    """Standard errors over the first axis; zero for a single row."""
    rows = len(values)
    if rows < 2:
        return np.zeros(values.shape[1:])
    return np.asarray(values.std(axis=0, ddof=1) / np.sqrt(rows))
