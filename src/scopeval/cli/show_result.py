"""Print the result of an evaluation, and write it to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from scopeval.cli.console import command_of, out, print_line

if TYPE_CHECKING:
    from scopeval.behavior.policy import BehaviorPolicy
    from scopeval.evaluation.result import Evaluation

__all__ = ["check_files", "show_result"]


def check_files(*files: Path | None) -> None:
    """Refuse files that could not be written, before the work is done."""
    from scopeval._files import check_place

    for file in files:
        if file is not None:
            check_place(file)


def show_result(
    ctx: typer.Context,
    result: Evaluation,
    *,
    designed: BehaviorPolicy | None = None,
    gamma: float | None,
    seed: int | None = None,
    json: Path | None,
    report: Path | None,
    made_with: tuple[str, ...],
) -> None:
    """Print the summary; write the page and the JSON file where they are asked for.

    Args:
        ctx: of the command.
        result: to show.
        designed: the behavior policy, where it is a design.
        gamma: discount, for the page.
        seed: of the episodes, for the page.
        json: file for the result.
        report: file for the page.
        made_with: packages whose versions are written to the JSON file.
    """
    from scopeval._files import now, versions, write_json
    from scopeval.report import page_of_evaluation, write_report

    console = out()
    print_line(console, result.summary())
    command = command_of(ctx, without=("json", "report", "workers", "backend"))
    if report is not None:
        page = page_of_evaluation(result, designed, gamma=gamma, seed=seed, command=command)
        print_line(console, f"Report: {write_report(page, report)}")
    if json is not None:
        about = {"command": command, "date": now(), "versions": versions(*made_with)}
        place = write_json(json, {**about, **result.to_dict()})
        print_line(console, f"Results: {place}")
