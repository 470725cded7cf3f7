"""The table of the data center experiment, and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.energy import EnergyResult, EnergyRow

__all__ = ["show_energy"]

HEADER = ("controller", "method", "days", "kWh a day", "squared error", "overheating",
          "certificate", "predicted")  # fmt: skip


def show_energy(result: EnergyResult) -> list[Table | str]:
    """One table, and how to read it."""
    config = result.config
    rows = tuple(_cells(row) for row in result.rows)
    said = [f"{row.target}, {row.method}: {'; '.join(row.said)}" for row in result.rows if row.said]
    return [
        Table("The data center", HEADER, rows),
        f"{config.logged or 300} logged days, seed {config.seed}; ± standard error. Squared error "
        "and overheating relative to as many days of the controller itself, which is on-policy. "
        "Certificate: the verdict on the promised overheating, and its 95 % interval for the "
        "relative overheating. Predicted: variance and overheating that the design promised.",
        *said,
    ]


def _cells(row: EnergyRow) -> tuple[str, ...]:
    if row.value is None or row.square is None or row.cost is None:
        return (row.target, row.method, "0", *("",) * 3, "no design is offered", "")
    certificate = row.verdict
    if row.ratio is not None and None not in row.ratio:
        certificate += f", {row.ratio[0]:.2f} to {row.ratio[1]:.2f}"
    error = "" if row.value[1] is None else f" ± {row.value[1]:.1f}"
    return (
        row.target,
        row.method,
        f"{row.days:,}",
        f"{row.value[0]:.1f}{error}",
        f"{row.square[0]:.2f} ± {row.square[1]:.2f}",
        f"{row.cost[0]:.2f} ± {row.cost[1]:.2f}",
        certificate,
        "" if row.predicted is None else f"{row.predicted[0]:.2f}, {row.predicted[1]:.2f}",
    )
