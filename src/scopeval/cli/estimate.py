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
    at_most: options.AtMost = None,
    limit: options.Limit = None,
    baseline: options.Baseline = None,
    gamma: options.Gamma = 1.0,
    estimator: options.Estimator = "auto",
    anytime: Annotated[
        bool,
        typer.Option("--anytime", help="What the episodes showed decided how many there are."),
    ] = False,
    bound: Annotated[
        float | None,
        typer.Option(help="The most that an episode can cost: the certificate is a proof."),
    ] = None,
    step_bound: options.StepBound = None,
    return_bound: options.ReturnBound = None,
    context: options.Context = None,
    exogenous: options.Exogenous = None,
    json: options.JsonFile = None,
    report: options.ReportFile = None,
) -> None:
    """Estimate a policy's value from episodes that were recorded elsewhere."""
    from scopeval.cli.sources import estimator_from, history_from, policy_from, promise_from
    from scopeval.collection.episodes import Episodes
    from scopeval.evaluation.recorded import estimate as compute
    from scopeval.question.inference import Inference

    check_files(json, report)
    episodes = Episodes.concat([Episodes.load(file) for file in files])
    result = compute(
        episodes,
        None if policy is None else policy_from(policy),
        gamma=gamma,
        promise=promise_from(at_most, limit, bound, step_bound),
        baseline=None if baseline is None else policy_from(baseline),
        inference=Inference(
            alpha=alpha, estimator=estimator_from(estimator), return_bound=return_bound
        ),
        context=history_from(context, exogenous),
        anytime=anytime,
    )
    show_result(ctx, result, gamma=gamma, json=json, report=report, made_with=("numpy",))
