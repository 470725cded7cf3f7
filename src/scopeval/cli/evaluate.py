"""``scopeval evaluate``: estimate a policy's value by running a behavior policy instead."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from scopeval.cli import options
from scopeval.cli.console import err, progress_bar
from scopeval.cli.show_result import check_files, show_result

if TYPE_CHECKING:
    from scopeval.data.transitions import Transitions
    from scopeval.evaluation.evaluator import Running
    from scopeval.evaluation.refitting import Refitting

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
    refit: Annotated[
        bool,
        typer.Option(
            "--refit",
            help="Run in stages, and design the behavior policy of each from earlier episodes: no "
            "logs are needed.",
        ),
    ] = False,
    logs: Annotated[
        str | None,
        typer.Option(help="With --refit: a log to begin with, as --data of scopeval design."),
    ] = None,
    features: Annotated[
        Path | None, typer.Option(help="With --refit: coordinates of the states, .npy or .csv.")
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(help="Steps of an episode.", show_default="the behavior policy's"),
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Stop after this many episodes.")] = None,
    precision: options.Precision = None,
    cost_budget: options.CostBudget = None,
    alpha: options.Alpha = 0.05,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Certify an expected cost of at most 1 + epsilon times the target policy's.",
            show_default="the behavior policy's, or 0",
        ),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Discount.", show_default="the behavior policy's, or 1")
    ] = None,
    estimator: options.Estimator = "auto",
    cost: Annotated[
        str | None,
        typer.Option(help="Cost: a name in info, module:name or none.", show_default="cost"),
    ] = None,
    guard: Annotated[
        bool,
        typer.Option(
            help="Switch to the target policy if the cost is refuted to be within the budget."
        ),
    ] = True,
    reference: options.Reference = None,
    cost_limit: options.CostLimit = None,
    cost_bound: options.CostBound = None,
    step_cost_bound: options.StepCostBound = None,
    return_bound: options.ReturnBound = None,
    starts: Annotated[
        int | None,
        typer.Option(
            help="Reset the environment so many more times: the value of the start, as the "
            "behavior policy estimates it, is then a control variate."
        ),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Environments side by side.", show_default="8")
    ] = None,
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
    from scopeval.cli.sources import behavior_from, cost_from, environment_from, policy_from
    from scopeval.evaluation.evaluator import evaluate as run

    check_files(json, report)
    target = policy_from(policy)
    runner = None if behavior is None else behavior_from(behavior, target)
    world = environment_from(env)
    known = _refitting(refit, logs, features, horizon)
    with progress_bar("evaluating") as bar:
        result = run(
            world,
            target,
            runner,
            horizon=horizon,
            episodes=episodes,
            precision=precision,
            cost_budget=cost_budget,
            alpha=alpha,
            epsilon=epsilon,
            gamma=gamma,
            estimator=estimator,
            cost=cost_from(cost),
            guard=guard,
            reference=None if reference is None else policy_from(reference),
            cost_limit=cost_limit,
            cost_bound=cost_bound,
            step_cost_bound=step_cost_bound,
            return_bound=return_bound,
            starts=starts,
            batch=batch,
            seed=seed,
            keep=report is not None,
            logs=known.logs,
            refit=known.settings,
            workers=workers,
            backend=backend,
            progress=lambda now: bar(*_progress(now, precision, cost_budget)),
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


class _Known(NamedTuple):
    """What stages begin with."""

    logs: Transitions | None
    settings: Refitting | bool


def _refitting(refit: bool, logs: str | None, features: Path | None, horizon: int | None) -> _Known:
    """Settings and logs of an evaluation in stages."""
    from scopeval.cli.sources import features_from
    from scopeval.data.readers import read_logged
    from scopeval.errors import InputError
    from scopeval.evaluation.refitting import Refitting

    if not refit:
        for name, value in (("logs", logs), ("features", features)):
            if value is not None:
                raise InputError(f"{name}: given without --refit; try --refit, or scopeval design")
        return _Known(None, False)
    read = None if logs is None else read_logged(logs, horizon=horizon)
    return _Known(read, Refitting(features=features_from(features)))


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
