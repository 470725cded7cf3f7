"""Results of the robots: every method over the targets of one robot and protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from scopeval.arrays import Floats
from scopeval.paper import published
from scopeval.paper.experiments.gridworld_target import episode_grid
from scopeval.paper.experiments.mujoco_outcome import RobotOutcome, TargetResult
from scopeval.paper.experiments.mujoco_prepare import Preparation
from scopeval.paper.results import MethodResult, Statistic

__all__ = ["Extreme", "RobotBlock", "RobotMethod", "block_of"]

#: Numbers of a design that files hold beside what was measured.
_PREDICTED = ("predicted_variance", "predicted_cost", "checked_variance", "checked_cost",
              "certified_cost", "floor", "share", "margin", "kept", "binding")  # fmt: skip
#: Columns of the Parquet table that come from the design.
_DESIGN = ("used", *_PREDICTED, "warnings", "asked", "unseen", "infeasible", "not_finite",
           "certificate", "certified_low", "certified_high")  # fmt: skip
#: Fields of an outcome that are no columns of the table of targets.
_NO_COLUMNS = ("errors", "costs", "designed")


@dataclass(frozen=True)
class Extreme:
    """The number of one target and its standard error."""

    target: str
    value: float
    error: float

    def above(self, level: float) -> bool:
        """Whether it is above a level by more than two standard errors."""
        return self.value - 2.0 * self.error > level

    @property
    def text(self) -> str:
        """The number and its standard error."""
        return f"{self.value:.2f} ± {self.error:.2f}"


@dataclass(frozen=True)
class RobotMethod(MethodResult[RobotOutcome]):
    """One method over the targets it was run on."""

    @property
    def paired(self) -> Statistic:
        """Relative cost by the certificates, which compare within the same episodes.

        Where a target has no certificate, that of independent episodes takes its place.
        """
        certified = (
            None if o.designed is None else o.designed.certified_cost for o in self.outcomes
        )
        both = zip(certified, self.cost.values, strict=True)
        return Statistic(np.array([own if paired is None else paired for paired, own in both]))

    def worst(self, name: str) -> Extreme:
        """The target with the largest relative "variance" or "cost"."""
        return max(self._each(name), key=lambda each: each.value)

    def beyond(self, name: str, level: float) -> list[str]:
        """Targets whose relative "variance" or "cost" is above a level by two standard errors."""
        return [each.target for each in self._each(name) if each.above(level)]

    def of_designs(self, name: str) -> Statistic | None:
        """A number of the designs, such as "predicted_cost"; NaN where a design has none.

        None for methods without designs.
        """
        values = [getattr(o.designed, name) for o in self.outcomes if o.designed is not None]
        some = [np.nan if v is None else float(v) for v in values]
        return Statistic(np.array(some)) if some else None

    def mean_of_designs(self, name: str) -> float | None:
        """Mean of these numbers over the targets that have one."""
        found = self.of_designs(name)
        if found is None or np.isnan(found.values).all():
            return None
        return float(np.nanmean(found.values))

    @property
    def used(self) -> dict[str, int]:
        """How many targets were left with which method, after designs fell back."""
        return self._counts("used")

    @property
    def certificates(self) -> dict[str, int]:
        """How many targets have which verdict on their expected cost."""
        return self._counts("certificate")

    @property
    def refuted(self) -> list[str]:
        """Targets whose certificate refutes the promised cost."""
        both = zip(self.targets, (o.designed for o in self.outcomes), strict=True)
        return [name for name, d in both if d is not None and d.certificate == "refuted"]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: statistics over targets, the extremes, and mean curves."""
        designs = {
            name: {"mean": self.mean_of_designs(name), "values": _plain(found.values)}
            for name in _PREDICTED
            if (found := self.of_designs(name)) is not None
        }
        errors = {
            name: self.statistic(name).values.tolist()
            for name in ("relative_variance_error", "relative_cost_error")
        }
        noise = {
            f"relative_{name}_noise": float(
                np.linalg.norm(self.statistic(f"relative_{name}_error").values) / len(self.outcomes)
            )
            for name in ("variance", "cost")
        }
        return {
            **self.summary(),
            "targets": list(self.targets),
            **noise,
            **errors,
            "median_variance": float(np.median(self.variance.values)),
            "median_cost": float(np.median(self.cost.values)),
            "worst": asdict(self.worst("variance")),
            "most_expensive": asdict(self.worst("cost")),
            **designs,
            "used": self.used,
            "certificates": self.certificates,
            "refuted": self.refuted,
            "curve": self.mean_curve(),
        }

    def _counts(self, name: str) -> dict[str, int]:
        each = [getattr(o.designed, name) for o in self.outcomes if o.designed is not None]
        return {value: each.count(value) for value in sorted(set(each))}

    def _each(self, name: str) -> list[Extreme]:
        values, errors = (
            [getattr(o, f"relative_{name}{tail}") for o in self.outcomes] for tail in ("", "_error")
        )
        return [Extreme(*one) for one in zip(self.targets, values, errors, strict=True)]


@dataclass(frozen=True)
class RobotBlock:
    """All methods on one robot in one protocol.

    Attributes:
        robot: its name.
        protocol: "candidates" or "bins".
        episodes: of one run.
        ros_episodes: of one run of ROS.
        results: one for each target, including those without variance.
        methods: those that were run; none where no target has variance.
    """

    robot: str
    protocol: str
    episodes: int
    ros_episodes: int
    results: tuple[TargetResult, ...] = field(repr=False)
    methods: dict[str, RobotMethod] = field(repr=False)

    @property
    def excluded(self) -> tuple[str, ...]:
        """Targets without variance, which are in no mean."""
        return tuple(r.name for r in self.results if r.excluded)

    @property
    def title(self) -> str:
        """The name used in tables and figures."""
        return f"{self.robot}, {self.protocol}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "robot": self.robot,
            "protocol": self.protocol,
            "targets": [
                {k: v for k, v in vars(r).items() if k != "outcomes"} for r in self.results
            ],
            "excluded": list(self.excluded),
            "methods": [row.as_dict() for row in self.methods.values()],
            "paper": published.as_json(published.ROBOTS[self.robot]),
        }

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """For Parquet: ``targets`` and ``curves``, target by target."""
        targets: list[dict[str, Any]] = []
        curves: list[dict[str, Any]] = []
        for result in self.results:
            about = {
                "excluded": result.excluded,
                "value": result.value,
                "value_error": result.value_error,
                "design_seconds": result.design_seconds,
            }
            for method, outcome in result.outcomes.items():
                here = {
                    "robot": self.robot,
                    "protocol": self.protocol,
                    "target": result.name,
                    "method": method,
                }
                numbers = {k: v for k, v in vars(outcome).items() if k not in _NO_COLUMNS}
                made = outcome.designed
                design = {k: None if made is None else getattr(made, k) for k in _DESIGN}
                if made is not None:
                    design["warnings"] = " | ".join(made.warnings)
                targets.append({**here, **about, **numbers, **design})
                grid = episode_grid(self.ros_episodes if method == "ros" else self.episodes)
                curves += [
                    {**here, "episodes": int(n), "error": e, "cost": c}
                    for n, e, c in zip(grid, outcome.errors, outcome.costs, strict=True)
                ]
        return {"targets": targets, "curves": curves}


def block_of(
    what: Preparation,
    results: Sequence[TargetResult],
    names: Sequence[str],
    episodes: int,
    ros_episodes: int,
) -> RobotBlock:
    """The methods over the targets that have variance."""
    methods = {}
    for name in names:
        ran = [r for r in results if not r.excluded and name in r.outcomes]
        if ran:
            outcomes = tuple(r.outcomes[name] for r in ran)
            methods[name] = RobotMethod(name, outcomes, tuple(r.name for r in ran))
    return RobotBlock(what.robot, what.protocol, episodes, ros_episodes, tuple(results), methods)


def _plain(values: Floats) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in values]
