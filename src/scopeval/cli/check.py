"""``scopeval check``: whether a log can be used, and what it looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import out, paragraph, print_line, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from scopeval.logs.diagnose import Diagnosis

__all__ = ["check"]


def check(
    log: Annotated[str, typer.Argument(help=options.LOG)],
    policy: Annotated[
        str | None, typer.Option(help=f"The target policy: {options.POLICY}.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode.")] = None,
    exogenous: options.Exogenous = None,
    columns: options.Columns = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    time: options.Time = None,
    gap: options.Gap = None,
    every: options.Every = None,
) -> None:
    """Look for contradictions in a log and show what it holds.

    The status is 1 if the log contradicts itself, or does not fit the horizon or the policy.
    """
    from scopeval.cli.sources import columns_from, exogenous_from, policy_from
    from scopeval.context.log_paths import LogNoise
    from scopeval.logs.clock import clock_of
    from scopeval.logs.diagnose import Problem, diagnosis_of
    from scopeval.logs.picture import LogCounts, picture
    from scopeval.logs.read import logged_batches, open_reader
    from scopeval.logs.sources import CsvFormat
    from scopeval.logs.statistics import LogStatistics
    from scopeval.policies.adapters import TabularPolicy

    target = None if policy is None else policy_from(policy)
    table = target if isinstance(target, TabularPolicy) else None
    statistics, counts, noise = LogStatistics(), LogCounts(), LogNoise()
    with progress_bar("reading the log"):
        clock = clock_of(time, gap, every)
        reader = open_reader(
            log,
            columns_from(columns or []),
            csv=CsvFormat(separator, decimal),
            clock=clock,
            exogenous=exogenous_from(exogenous),
        )
        batches, notes = logged_batches(reader, clock)
        for batch in batches:
            statistics.add(*batch)
            counts.add(batch.log)
            noise.add(batch.log)
    if table is None:
        problem, probs = Problem(horizon), None
    else:
        problem = Problem(horizon, table.actions, table.states)
        probs = table.table(1)[0]
    diagnosis = diagnosis_of(statistics.facts(), problem)
    console = out()
    paragraph(console, f"{log}: {diagnosis.facts.rows:,} rows")
    for line in picture(diagnosis.facts, counts, probs):
        print_line(console, line)
    told = noise.lines()
    if told:
        console.print()
        print_line(console, "where the noise is (a hint: such a log shows no causes)")
        for text in told:
            paragraph(console, text, indent="  ")
    console.print()
    _print_diagnosis(console, diagnosis, notes)
    if diagnosis.errors:
        raise typer.Exit(1)


def _print_diagnosis(console: Console, diagnosis: Diagnosis, notes: list[str]) -> None:
    for kind, texts in (
        ("error", diagnosis.errors),
        ("warning", diagnosis.warnings),
        ("note", [note for note in notes if note not in diagnosis.warnings]),
    ):
        for text in texts:
            paragraph(console, f"{kind}: {text}", indent="  ")
    errors, warnings = len(diagnosis.errors), len(diagnosis.warnings)
    if diagnosis.contradictory:
        paragraph(console, "The log is contradictory and cannot be used.")
    elif errors:
        paragraph(console, "The log cannot be used with this horizon or policy.")
    elif warnings:
        paragraph(console, "No contradictions; see the warnings.")
    else:
        paragraph(console, "No contradictions, nothing suspicious.")
