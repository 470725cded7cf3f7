"""Tables of the environments that scopeval was not tuned on, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.foreign import ForeignResult

__all__ = ["measured", "show_foreign"]


def show_foreign(result: ForeignResult) -> list[Table | str]:
    """A table that counts, and one of the designs that broke a promise or predicted badly."""
    from scopeval.paper.experiments.foreign_designs import MOST_COST, MOST_VARIANCE, PREDICTION

    config = result.config
    low, high = PREDICTION
    return [
        _counts(result),
        *([_exceptions(result)] if result.exceptions else []),
        f"{config.targets} targets in each finite environment, {config.vector_targets} in those "
        f"with vectors, seed {config.seed}; half of them (even numbers) thresholds may be chosen "
        "on, the other half is what counts. Variance and cost of one episode under the learned "
        "design, relative to running the target policy: exact in finite environments; from "
        f"{config.measured:,} episodes (the target policy's from five times as many), with "
        "standard errors, in those with vectors, where two standard errors are allowed. "
        f"Limits: variance {MOST_VARIANCE}, cost {MOST_COST}, predicted / true variance {low} to "
        f"{high}. Well predicted: share within these, of the designs that do not fall back to the "
        "target policy.",
    ]


def _counts(result: ForeignResult) -> Table:
    rows = []
    for group in result.groups:
        found = group.as_dict()
        predicted = found["well_predicted_departures"]
        rows.append(
            (
                group.environment,
                group.half.split()[0],
                f"{found['designs']}",
                f"{found['fall_back']}",
                f"{found['mean_variance']:.3f}",
                measured(found["worst_variance"], found["worst_variance_error"]),
                f"{found['too_variable']}",
                measured(found["worst_cost"], found["worst_cost_error"], 4),
                f"{found['too_expensive']}",
                "" if predicted is None else f"{predicted:.0%}",
            )
        )
    header = ("environment", "targets", "designs", "fall back", "mean vari\xadance",
              "worst vari\xadance", "above limit", "worst cost", "above limit",
              "well pre\xaddicted")  # fmt: skip
    title = "Designs in environments that scopeval was not tuned on"
    return Table(title, header, tuple(rows))


def _exceptions(result: ForeignResult) -> Table:
    rows = [
        (
            f"{row.environment} {row.target}",
            f"{row.episodes:,}" if row.logs == "mixed" else row.logs,
            row.method,
            measured(row.variance, row.variance_error),
            f"{row.predicted_variance:.3f}",
            f"{row.checked_variance:.3f}",
            measured(row.cost, row.cost_error),
            f"{row.predicted_cost:.3f}",
            f"{row.checked_cost:.3f}",
        )
        for row in result.exceptions
    ]
    header = ("environment, target", "logs", "method", "vari\xadance", "pre\xaddicted", "checked",
              "cost", "pre\xaddicted", "checked")  # fmt: skip
    return Table("Designs outside the limits", header, tuple(rows))


def measured(value: float, error: float, digits: int = 3) -> str:
    """A number with its standard error, if it has one."""
    shown = f"{value:.{digits}f}"
    return f"{shown} \xb1 {error:.{digits}f}" if error > 0.0 else shown
