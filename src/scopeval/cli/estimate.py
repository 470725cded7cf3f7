"""``scopeval estimate``: the result of episodes that were recorded elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scopeval.cli import options
from scopeval.cli.show_result import check_files, show_result

__all__ = ["estimate"]


def estimate(
    ctx: typer.Context,
    files: Annotated[list[Path], typer.Argument(help="Files of episodes (.npz); one or more.")],
    policy: Annotated[
        str | None,
        typer.Option(
            help=f"Estimate the value of another policy over the same actions: {options.POLICY}.",
            show_default="the one that the episodes were recorded for",
        ),
    ] = None,
    alpha: options.Alpha = 0.05,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Certify an expected cost of at most 1 + epsilon times the target policy's."
        ),
    ] = 0.0,
    gamma: options.Gamma = 1.0,
    estimator: options.Estimator = "auto",
    anytime: Annotated[
        bool,
        typer.Option("--anytime", help="What the episodes showed decided how many there are."),
    ] = False,
    reference: options.Reference = None,
    cost_limit: options.CostLimit = None,
    cost_bound: Annotated[
        float | None,
        typer.Option(help="The most that an episode can cost: the certificate is a proof."),
    ] = None,
    step_cost_bound: options.StepCostBound = None,
    return_bound: options.ReturnBound = None,
    json: options.JsonFile = None,
    report: options.ReportFile = None,
) -> None:
    """Estimate a policy's value from episodes that were recorded elsewhere."""
    from scopeval.cli.sources import policy_from
    from scopeval.collection.episodes import Episodes
    from scopeval.evaluation.recorded import estimate as compute

    check_files(json, report)
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
    show_result(ctx, result, gamma=gamma, json=json, report=report, made_with=("numpy",))
