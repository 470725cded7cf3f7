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
    ] = "scope",
    epsilon: Annotated[
        float, typer.Option(help="The expected cost may be 1 + epsilon times the target policy's.")
    ] = 0.0,
    gamma: options.Gamma = 1.0,
    regression: options.Regression = "auto",
    features: options.Features = None,
    time_varying: options.TimeVarying = False,
    floor: Annotated[
        float, typer.Option(help="Least share of the target policy in the mixture.")
    ] = 0.02,
    limit: Annotated[
        float | None,
        typer.Option(help="A limit on the expected cost from every state on, instead of epsilon."),
    ] = None,
    reference: options.Reference = None,
    cost_limit: options.CostLimit = None,
    budget: Annotated[
        str,
        typer.Option(
            help="What the cost budget limits: the expected cost from every state on (state) or of "
            "whole episodes (episode)."
        ),
    ] = "state",
    columns: options.Columns = None,
    separator: options.Separator = None,
    seed: options.LogSeed = 0,
) -> None:
    """Learn a behavior policy from logs, within a cost budget."""
    from scopeval._files import check_place
    from scopeval.behavior.designer import design as learn
    from scopeval.cli.sources import features_from, method_from, options_from, policy_from
    from scopeval.data.readers import read_logged

    place = check_place(out_file)
    names = options_from(columns or [], "columns")
    target, coordinates = policy_from(policy), features_from(features)
    with progress_bar("reading the log") as progress:
        logged = read_logged(data, columns=names, horizon=horizon, separator=separator)
        behavior = learn(
            logged,
            target,
            horizon=horizon,
            method=method_from(method),
            epsilon=epsilon,
            gamma=gamma,
            regression=regression,
            features=coordinates,
            time_varying=time_varying,
            floor=floor,
            limit=limit,
            reference=None if reference is None else policy_from(reference),
            cost_limit=cost_limit,
            budget=budget,
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
