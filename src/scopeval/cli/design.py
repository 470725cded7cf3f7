"""``scopeval design``: from logs to a behavior policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import out, paragraph, print_line, progress_bar

__all__ = ["design"]


def design(
    data: options.Log,
    policy: options.TargetPolicy,
    horizon: options.Horizon,
    out_file: Annotated[Path, typer.Option("--out", help="File for the behavior policy.")],
    method: Annotated[
        str,
        typer.Option(help="scope, scope-dr, odi, dopt, on-policy or module:attribute, a Method."),
    ] = "scope-dr",
    at_most: Annotated[
        float,
        typer.Option(
            help="An episode may cost this many times what the target policy's does, or the "
            "baseline's where there is one."
        ),
    ] = 1.0,
    limit: Annotated[
        float | None, typer.Option(help="Or: an episode may cost this, in expectation.")
    ] = None,
    per: Annotated[
        str | None,
        typer.Option(
            help="What is limited: the expected cost of whole episodes (episode), or of their rest "
            "from every state on (state).",
            show_default="state where that is possible",
        ),
    ] = None,
    baseline: options.Baseline = None,
    gamma: options.Gamma = 1.0,
    learn: options.Learn = "auto",
    features: options.Features = None,
    time_varying: options.TimeVarying = False,
    floor: Annotated[
        float | None,
        typer.Option(
            help="Least share of the target policy in the mixture.",
            show_default="0.02; with --at-most below 1 that of frontier",
        ),
    ] = None,
    columns: options.Columns = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    time: options.Time = None,
    gap: options.Gap = None,
    every: options.Every = None,
    seed: options.LogSeed = 0,
) -> None:
    """Learn a behavior policy from logs, within a cost budget."""
    from scopeval._files import check_place
    from scopeval.behavior.designer import design as learned
    from scopeval.cli.sources import columns_from, learn_from, method_from, policy_from
    from scopeval.logs.read import read_logs
    from scopeval.question.inference import Check
    from scopeval.question.promise import Promise

    place = check_place(out_file)
    names = columns_from(columns or [])
    target, how = policy_from(policy), learn_from(learn, features, time_varying)
    promise = Promise(at_most=at_most, limit=limit, per=per)  # type: ignore[arg-type]
    with progress_bar("reading the log") as progress:
        logged = read_logs(
            data, columns=names, horizon=horizon, separator=separator, decimal=decimal, time=time,
            gap=gap,
            every=every,
        )  # fmt: skip
        behavior = learned(
            logged,
            target,
            horizon=horizon,
            method=method_from(method),
            promise=promise,
            gamma=gamma,
            learn=how,
            check=Check(floor=floor),
            baseline=None if baseline is None else policy_from(baseline),
            seed=seed,
            progress=lambda what, done, total: progress(
                done, total, "designing" if what == "design" else what
            ),
        )
        behavior.save(place)
    console = out()
    for line in behavior.summary().splitlines():
        paragraph(console, line, indent=" " * 23)
    print_line(console, f"Behavior policy: {place}")
