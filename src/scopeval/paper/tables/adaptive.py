"""Tables of evaluations in stages, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.adaptive import AdaptiveResult, AdaptiveRow
    from scopeval.paper.results import Statistic

__all__ = ["show_adaptive"]

HEADER = ("logs", "method", "squared error", "measured", "cost", "most expensive", "covered",
          "ever missed", "logs dropped")  # fmt: skip


def show_adaptive(result: AdaptiveResult) -> list[Table | str]:
    """A table for each world, and how to read them."""
    config = result.config
    tables = []
    for world in config.worlds:
        rows = tuple(_cells(row) for row in result.rows if row.world == world)
        tables.append(Table(f"Evaluations in stages, {world}", HEADER, rows))
    budget = "" if config.epsilon == 0 else f" epsilon {config.epsilon:g};"
    return [
        *tables,
        f"{config.targets} targets,{budget} {config.runs} runs of {config.episodes:,} episodes "
        f"each, seed {config.seed}; ± standard error over the targets. Squared error relative to "
        "that of as many on-policy episodes, expected given the designs and measured; cost "
        "relative to the target policy's, exact for designs. Fixed: one design from the logs. Most "
        "expensive: the largest mean cost of any target. Covered: runs whose 95 % interval holds "
        "the value. Ever missed: runs in which the anytime-valid 95 % sequence missed the value "
        "after any batch.",
    ]


def _cells(row: AdaptiveRow) -> tuple[str, ...]:
    logs = row.logs if not row.logs.isdigit() else f"{int(row.logs):,} episodes"
    dropped = None if row.logs == "none" else row.dropped
    return (
        logs,
        row.method,
        row.square.text(".3f"),
        "" if row.measured is None else row.measured.text(".2f"),
        row.cost.text(".3f"),
        f"{row.cost.largest:.3f}",
        _share(row.covered),
        _share(row.missed),
        _share(dropped),
    )


def _share(found: Statistic | None) -> str:
    return "" if found is None else f"{found.mean:.1%}"
