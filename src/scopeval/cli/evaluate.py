"""``scopeval evaluate``: estimate a policy's value by running a behavior policy instead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.cli import options
from scopeval.cli.console import err, progress_bar
from scopeval.cli.show_result import check_files, show_result

if TYPE_CHECKING:
    from scopeval.evaluation.loop import Running
    from scopeval.evaluation.stages import Stages
    from scopeval.workers.crew import Workers

__all__ = ["evaluate"]


def evaluate(
    ctx: typer.Context,
    env: Annotated[str, typer.Option(help="A registered environment, or module:name.")],
    policy: options.TargetPolicy,
    behavior: Annotated[
        str | None,
        typer.Option(
            help="The behavior policy: a .scope file by scopeval design, or as --policy.",
            show_default="the target policy",
        ),
    ] = None,
    stages: Annotated[
        bool,
        typer.Option(
            "--stages",
            help="Run in stages, and design the behavior policy of each from earlier episodes: no "
            "logs are needed.",
        ),
    ] = False,
    logs: Annotated[
        str | None,
        typer.Option(help="With --stages: a log to begin with, as --data of scopeval design."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="With --stages: coordinates of the states, .npy or .csv.")
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(help="Steps of an episode.", show_default="the behavior policy's"),
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Stop after this many episodes.")] = None,
    precision: options.Precision = None,
    spend: options.Spend = None,
    alpha: options.Alpha = 0.05,
    gamma: Annotated[
        float | None, typer.Option(help="Discount.", show_default="the behavior policy's, or 1")
    ] = None,
    estimator: options.Estimator = "auto",
    cost: Annotated[
        str | None,
        typer.Option(help="Cost: a name in info, module:name or none.", show_default="cost"),
    ] = None,
    at_most: options.AtMost = None,
    limit: options.Limit = None,
    baseline: options.Baseline = None,
    guard: Annotated[
        bool,
        typer.Option(help="Switch to another policy if the promise is refuted."),
    ] = True,
    bound: options.Bound = None,
    step_bound: options.StepBound = None,
    return_bound: options.ReturnBound = None,
    starts: Annotated[
        int | None,
        typer.Option(
            help="Reset the environment so many more times: what an episode is worth by where it "
            "starts is then a control variate."
        ),
    ] = None,
    context: options.Context = None,
    exogenous: options.Exogenous = None,
    side_by_side: options.SideBySide = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Run on so many workers; any number gives the same result.",
            show_default="in this process",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(help="Of the workers: processes or ray.", show_default="processes"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 0,
    json: options.JsonFile = None,
    report: options.ReportFile = None,
) -> None:
    """Estimate a policy's value, with its interval, cost and safety."""
    from scopeval.behavior.policy import BehaviorPolicy
    from scopeval.cli.sources import (
        behavior_from,
        cost_from,
        environment_from,
        estimator_from,
        history_from,
        policy_from,
        promise_from,
    )
    from scopeval.collection.plant import Plant
    from scopeval.context.history import History
    from scopeval.errors import InputError
    from scopeval.evaluation.evaluator import evaluate as run
    from scopeval.question.inference import Inference
    from scopeval.question.question import Question
    from scopeval.question.stop import Stop

    check_files(json, report)
    if starts is not None and context is not None:
        raise InputError("--starts, --context: got both, expected one of them")
    target = policy_from(policy)
    runner = None if behavior is None else behavior_from(behavior, target)
    crew = _workers(workers, backend)
    plant = Plant(environment_from(env), cost_from(cost), side_by_side, crew)
    settings = _stages(stages, runner, logs, features, horizon)
    with progress_bar("evaluating") as bar:
        result = run(
            plant,
            Question(target, horizon, gamma),
            runner if settings is None else settings,
            episodes=episodes,
            stop=Stop(precision=precision, cost=spend),
            promise=promise_from(at_most, limit, bound, step_bound, guarded=guard, run=runner),
            baseline=None if baseline is None else policy_from(baseline),
            inference=Inference(
                alpha=alpha,
                estimator=estimator_from(estimator),
                return_bound=return_bound,
                keep=report is not None,
            ),
            context=history_from(context, exogenous) if starts is None else History.starts(starts),
            seed=seed,
            progress=lambda now: bar(*_progress(now, precision, spend)),
        )
    show_result(
        ctx,
        result,
        designed=runner if isinstance(runner, BehaviorPolicy) else None,
        gamma=gamma,
        seed=seed,
        json=json,
        report=report,
        made_with=("numpy", "gymnasium"),
    )
    if result.stopped.startswith("interrupted"):
        err().print("interrupted")
        raise typer.Exit(130)


def _workers(workers: int | None, backend: str | None) -> Workers | None:
    """Which workers run the episodes; None: they are run in this process."""
    from scopeval.workers.crew import Workers

    if workers is None and backend is None:
        return None
    return Workers(workers, backend or "processes")


def _stages(
    wanted: bool, first: Any, logs: str | None, features: Path | None, horizon: int | None
) -> Stages | None:
    """An evaluation in stages; None: it has none."""
    from scopeval.cli.sources import features_from
    from scopeval.errors import InputError
    from scopeval.evaluation.stages import Stages
    from scopeval.logs.read import read_logs
    from scopeval.models.table import Table

    if not wanted:
        for name, value in (("logs", logs), ("features", features)):
            if value is not None:
                raise InputError(f"{name}: given without --stages; try it, or scopeval design")
        return None
    read = None if logs is None else read_logs(logs, horizon=horizon)
    learn = None if features is None else Table(features=features_from(features))
    return Stages(logs=read, design=first, learn=learn)


def _progress(now: Running, precision: float | None, budget: float | None) -> tuple[int, int, str]:
    """Done, total and text for the bar; the stopping rule that is closest counts."""
    half = now.interval.half_width
    shares = []
    if now.total is not None:
        shares.append(now.done / now.total)
    if precision is not None and math.isfinite(half) and half > 0:
        shares.append((precision / half) ** 2)
    if budget is not None:
        shares.append(now.cost / budget)
    share = min(max(shares, default=0.0), 1.0)
    width = f" +- {half:.2g}" if math.isfinite(half) else ""
    return int(1000 * share), 1000, f"{now.interval.estimate:.4g}{width}, cost {now.cost:,.4g}"
