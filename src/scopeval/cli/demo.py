"""``scopeval demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli.console import command_of, out, paragraph, print_line, print_table, progress_bar

if TYPE_CHECKING:
    from scopeval.cli.demonstration import Demo
    from scopeval.report import Page, Table

__all__ = ["demo"]

#: What the table says about a verdict.
_SAFE = {"safe": "as far as seen", "refuted": "NO", "not enough evidence": "too few episodes"}


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
    """From old logs to a policy's value and a report, in seconds."""
    from scopeval.cli.demonstration import Config, run
    from scopeval.report import write_report

    began = time.perf_counter()
    with progress_bar("starting") as progress:
        result = run(Config(seed=seed, episodes=episodes), out_dir, progress)
        progress(9, 10, "writing the report")
        page = _page(result, command_of(ctx, without=("out_dir",)))
        report = write_report(page, out_dir / "report.html")
    _show(result, report, time.perf_counter() - began)


def _show(result: Demo, report: Path, seconds: float) -> None:
    from scopeval.report.wording import answer_of

    console = out()
    method, found = list(result.evaluations.items())[-1]
    config, plan = result.config, result.behaviors[method].predicted
    console.print("[bold]The value of a policy, and the cost of estimating it[/]\n")
    paragraph(
        console,
        f"{config.controllers} old controllers left logs of {config.logged:,} episodes in a "
        f"{config.size} x {config.size} Gridworld. From the logs alone a behavior policy is "
        f"designed, to run instead of yours: {method} predicts {plan.variance:.0%} of the variance "
        f"at {plan.cost:.0%} of the cost.",
    )
    console.print()
    print_table(console, _table(result))
    console.print()
    paragraph(
        console, f"{answer_of(found)} {_guard(result)} The exact value is {result.truth:.4f}."
    )
    console.print()
    print_line(console, f"Logs:   {result.logs}")
    print_line(console, f"Report: {report} ({seconds:.0f} s)")
    console.print(
        f"Seed {config.seed}; another environment: scopeval demo --seed {config.seed + 1}"
    )


def _table(result: Demo) -> Table:
    from scopeval.report import Table
    from scopeval.report.wording import amount, signed, with_error

    runs = {f"behavior policy, {name}": e for name, e in result.evaluations.items()}
    runs["your policy itself"] = result.on_policy
    if result.same_precision is not None:
        runs["the same, longer"] = result.same_precision
    rows = []
    for name, e in runs.items():
        certified = e.certificate is not None and e.by_target != e.finished
        verdict = e.certificate.verdict if certified and e.certificate is not None else ""
        off = signed(e.estimate - result.truth, e.interval.half_width)
        rows.append(
            (
                name,
                f"{e.finished:,}",
                with_error(e),
                off.replace("\N{MINUS SIGN}", "-"),
                amount(e.cost.total),
                _SAFE.get(verdict, verdict),
            )
        )
    header = ("what is run", "episodes", "estimate", "off by", "cost", "safe")
    return Table("", header, tuple(rows))


def _guard(result: Demo) -> str:
    stepped = [
        f"{method} after {e.guard.switched_after:,} episodes"
        for method, e in result.evaluations.items()
        if e.guard is not None and e.guard.switched_after is not None
    ]
    if stepped:
        return f"The guard switched to your policy: {' and '.join(stepped)}."
    return "The guard monitored the cost and did not switch to your policy."


def _page(result: Demo, command: str) -> Page:
    from scopeval.report import page_of_evaluation

    *others, method = result.evaluations
    config = result.config
    beside = {f"behavior policy ({name})": result.evaluations[name] for name in others}
    if result.same_precision is not None:
        beside["the policy itself, to the same precision"] = result.same_precision
    return page_of_evaluation(
        result.evaluations[method],
        result.behaviors[method],
        result.on_policy,
        beside=beside,
        truth=result.truth,
        title="scopeval demo: a policy in a Gridworld",
        intro=f"The environment is a {config.size} x {config.size} Gridworld with random rewards "
        f"and costs. {config.controllers} old controllers left logs of {config.logged:,} episodes "
        f"({result.rows:,} steps). From these a behavior policy was designed, and run instead of "
        "a policy that had never been run.",
        command=command,
        seed=config.seed,
    )
