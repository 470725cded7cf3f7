"""``scopeval estimate``: the result of episodes that were recorded elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scopeval.cli.console import command_of, out

__all__ = ["estimate"]


def estimate(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files of episodes (.npz); one or more.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help="Estimate the value of another policy over the same actions: .npy, .npz, .csv, "
            "TorchScript .pt or module:name.",
            show_default="the one that the episodes were recorded for",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option(help="Probability that the interval misses the value.")
    ] = 0.05,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Certify an expected cost of at most 1 + epsilon times the target policy's."
        ),
    ] = 0.0,
    gamma: Annotated[float, typer.Option(help="Discount.")] = 1.0,
    estimator: Annotated[str, typer.Option(help="auto, mc, is, pdis or dr.")] = "auto",
    anytime: Annotated[
        bool,
        typer.Option("--anytime", help="What the episodes showed decided how many there are."),
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            help="A policy whose expected cost must not be exceeded, as --policy.",
            show_default="the target policy",
        ),
    ] = None,
    cost_limit: Annotated[
        float | None,
        typer.Option(help="A limit on the expected cost of an episode, instead of a policy's."),
    ] = None,
    cost_bound: Annotated[
        float | None,
        typer.Option(help="The most that an episode can cost: the certificate is a proof."),
    ] = None,
    step_cost_bound: Annotated[
        float | None, typer.Option(help="The most that one step can cost, likewise.")
    ] = None,
    return_bound: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH",
            help="Least and greatest possible return: the interval holds for any number of "
            "episodes.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the result to this file as well.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page to this file as well, such as r.html.")
    ] = None,
) -> None:
    """Estimate a policy's value from episodes that were recorded elsewhere."""
    from scopeval._files import check_place, now, versions, write_json
    from scopeval.cli.sources import policy_from
    from scopeval.collection.episodes import Episodes
    from scopeval.evaluation.recorded import estimate as compute
    from scopeval.report import page_of_evaluation, write_report

    for place in (json, report):
        if place is not None:
            check_place(place)
    episodes = Episodes.concat([Episodes.load(file) for file in files])
    result = compute(
        episodes,
        None if policy is None else policy_from(policy),
        alpha=alpha,
        epsilon=epsilon,
        gamma=gamma,
        estimator=estimator,
        anytime=anytime,
        reference=None if reference is None else policy_from(reference),
        cost_limit=cost_limit,
        cost_bound=cost_bound,
        step_cost_bound=step_cost_bound,
        return_bound=return_bound,
    )
    console = out()
    console.print(result.summary(), markup=False, soft_wrap=True)
    command = command_of(ctx, without=("json", "report"))
    if report is not None:
        page = page_of_evaluation(result, gamma=gamma, command=command)
        console.print(f"Report: {write_report(page, report)}", markup=False, soft_wrap=True)
    if json is not None:
        about = {"command": command, "date": now(), "versions": versions("numpy")}
        place = write_json(json, {**about, **result.to_dict()})
        console.print(f"Results: {place}", markup=False, soft_wrap=True)
