"""``scopeval demo``."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli.console import command_of, out, paragraph, print_line, print_table, progress_bar

if TYPE_CHECKING:
    from scopeval.cli.demonstration import Demo
    from scopeval.evaluation.result import Evaluation
    from scopeval.report import Page, Section, Table

__all__ = ["demo"]


def demo(
    ctx: typer.Context,
    seed: Annotated[
        int, typer.Option(help="Seed of the environment, the policy and the episodes.")
    ] = 0,
    episodes: Annotated[int, typer.Option(help="Episodes of each evaluation.")] = 1000,
    out_dir: Annotated[
        Path, typer.Option("--out", help="Folder for the logs and the report.")
    ] = Path("demo"),
) -> None:
    """Is a new policy better, and what is it worth? With a report."""
    from scopeval.cli.demonstration import Config, run
    from scopeval.report import write_report

    began = time.perf_counter()
    with progress_bar("starting") as progress:
        result = run(Config(seed=seed, episodes=episodes), out_dir, progress)
        progress(9, 10, "writing the report")
        page = _page(result, command_of(ctx, without=("out_dir",)))
        report = write_report(page, out_dir / "report.html")
    _show(result, page.answer, report, time.perf_counter() - began)


def _show(result: Demo, answer: str, report: Path, seconds: float) -> None:
    console = out()
    config = result.config
    console.print("[bold]Is the new policy better than today's?[/]\n")
    paragraph(
        console,
        f"A new policy decides as today's in most cases. {result.compared.sentence} The exact "
        f"difference is {result.gain:.4f}.",
    )
    console.print("\n[bold]The value of a policy, and the cost of estimating it[/]\n")
    paragraph(
        console,
        f"A policy that was never run, in a {config.size} x {config.size} Gridworld. "
        f"{config.controllers} old controllers left logs of {config.logged:,} episodes.",
    )
    console.print()
    print_table(console, _table(result))
    console.print()
    if result.cheap is None:
        paragraph(console, f"No evaluation at {config.part:g} of the cost: {result.no_cheap}.")
    paragraph(console, f"{answer} {_guard(result)} {_truth(result)}")
    if proved := _proved(result):
        paragraph(console, proved)
    console.print()
    print_line(console, f"Logs:   {result.logs}")
    print_line(console, f"Report: {report} ({seconds:.1f} s)")
    console.print(
        f"Seed {config.seed}; another environment: scopeval demo --seed {config.seed + 1}"
    )


def _runs(result: Demo) -> dict[str, Evaluation]:
    """Every evaluation by its name, in the order of the story."""
    runs = {
        "your policy itself": result.on_policy,
        "design from logs": result.designed.evaluation,
    }
    if result.cheap is not None:
        runs[f"at {result.config.part:g} of its cost"] = result.cheap.evaluation
    runs["learns without logs"] = result.learned
    if result.same_precision is not None:
        runs["your policy, longer"] = result.same_precision
    return runs


def _table(result: Demo) -> Table:
    from scopeval.report import Table
    from scopeval.report.wording import amount, promise_in_words, with_error

    rows = tuple(
        (name, f"{e.finished:,}", with_error(e), amount(e.cost.total), promise_in_words(e))
        for name, e in _runs(result).items()
    )
    header = ("what is run", "episodes", "value", "cost in all", "relative cost promised")
    return Table("", header, rows)


def _guard(result: Demo) -> str:
    switched = [
        f"{name!r} {e.guard.when}"
        for name, e in _runs(result).items()
        if e.guard is not None and e.guard.switched_after is not None
    ]
    if switched:
        return f"The guard switched to your policy: {' and '.join(switched)}."
    return "The guard monitored the cost and did not switch to your policy."


def _proved(result: Demo) -> str:
    """What the word in the table means; empty where nothing is proved."""
    from scopeval.estimation.moments import confidence
    from scopeval.report.wording import promise_in_words

    proved = [e for e in _runs(result).values() if promise_in_words(e).endswith(": proved")]
    if not proved:
        return ""
    return (
        f"Proved: with {confidence(proved[0].interval.alpha)} confidence and for every "
        f"distribution of costs, because no step costs more than {result.config.step_cost:g}."
    )


def _truth(result: Demo) -> str:
    from scopeval.estimation.moments import confidence

    intervals = [e.interval for e in _runs(result).values()]
    inside = sum(interval.low <= result.truth <= interval.high for interval in intervals)
    held = (
        f"{inside} of the {len(intervals)}" if inside < len(intervals) else f"all {len(intervals)}"
    )
    return (
        f"The exact value is {result.truth:.4f}; it is in {held} intervals "
        f"({confidence(intervals[0].alpha)} confidence each)."
    )


def _page(result: Demo, command: str) -> Page:
    """The page of the cheap evaluation, with the others beside it and the stages of the last."""
    from scopeval.report import page_of_comparison, page_of_evaluation

    config, runs = result.config, _runs(result)
    shown = result.designed if result.cheap is None else result.cheap
    others = (result.on_policy, shown.evaluation)
    page = page_of_evaluation(
        shown.evaluation,
        shown.behavior,
        result.on_policy,
        beside={name: e for name, e in runs.items() if not any(e is other for other in others)},
        truth=result.truth,
        title="scopeval demo: a policy in a Gridworld",
        intro=f"The environment is a {config.size} x {config.size} Gridworld with random rewards "
        f"and costs. {config.controllers} old controllers left logs of {config.logged:,} episodes "
        f"({result.rows:,} steps). A policy that had never been run was evaluated four times: by "
        "running it, by a behavior policy designed from the logs, by one at "
        f"{config.part:g} of the policy's own cost, and without the logs. No step costs more than "
        f"{config.step_cost:g}; with this bound the certificates are proofs.",
        command=command,
        seed=config.seed,
    )
    *sections, last = page.sections
    compared = page_of_comparison(result.compared).sections[0]
    text = (result.compared.sentence, f"The exact difference is {result.gain:.4f}.")
    compared = replace(compared, title="Is the new policy better than today's?", text=text)
    return replace(page, sections=(compared, *sections, *_learned(result), last))


def _learned(result: Demo) -> tuple[Section, ...]:
    """The stages of the evaluation without logs."""
    from scopeval.report.evaluation_page import stage_section

    section = stage_section(result.learned)
    if section is None:
        return ()
    first = "The same policy, evaluated without the logs."
    text = (first, result.learned.sentence, *section.text)
    return (replace(section, title="No logs needed", text=text),)
