"""``scopeval compare``: which of several policies is better."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.cli import options
from scopeval.cli.console import command_of, err, out, print_line, progress_bar
from scopeval.cli.show_result import check_files

if TYPE_CHECKING:
    from scopeval.comparison.result import Comparison

__all__ = ["compare"]


def compare(
    ctx: typer.Context,
    policy: Annotated[
        list[str],
        typer.Option(
            help=f"name=policy, once for each; the first is what runs today. A policy: "
            f"{options.POLICY}."
        ),
    ],
    env: Annotated[
        str | None, typer.Option(help="Run in this: a registered environment, or module:name.")
    ] = None,
    episodes: Annotated[
        str | None,
        typer.Option(
            help="How many to run; or a file of an A/B test that was run already, a row for every "
            "step: .csv, .parquet, .jsonl or .npz.",
        ),
    ] = None,
    label: Annotated[
        str, typer.Option(help="Column with the policy's name, of a file.")
    ] = "policy",
    group: Annotated[
        str | None,
        typer.Option(help="Column of what was assigned as a whole, such as plant or week."),
    ] = None,
    columns: options.Columns = None,
    data: Annotated[str | None, typer.Option(help=f"To learn from as well. {options.LOG}")] = None,
    decided: Annotated[
        bool, typer.Option("--decided", help="Stop when it is known which policy is the best.")
    ] = False,
    precision: Annotated[
        float | None, typer.Option(help="Stop when every difference is known so well.")
    ] = None,
    spend: options.Spend = None,
    share: Annotated[
        list[str] | None,
        typer.Option(help="name=share of the episodes, once for each.", show_default="equal"),
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option(
            help="Parts of their share that new policies have by stages, such as 0.1,0.3,1.0."
        ),
    ] = None,
    ramp_episodes: Annotated[int, typer.Option(help="Finished episodes a stage needs.")] = 50,
    baseline: Annotated[
        str | None, typer.Option(help="Name of the policy that runs today.", show_default="first")
    ] = None,
    at_most: Annotated[
        float | None,
        typer.Option(help="The promise: an episode costs at most so many times the baseline's."),
    ] = None,
    limit: options.Limit = None,
    bound: options.Bound = None,
    step_bound: options.StepBound = None,
    return_bound: options.ReturnBound = None,
    context: options.Context = None,
    exogenous: options.Exogenous = None,
    horizon: Annotated[int | None, typer.Option(help="Steps of an episode.")] = None,
    gamma: options.Gamma = 1.0,
    alpha: Annotated[
        float, typer.Option(help="Error probability of all differences together.")
    ] = 0.05,
    cost: Annotated[
        str | None, typer.Option(help="Cost: a name in info, module:name or none.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 0,
    json: options.JsonFile = None,
    report: options.ReportFile = None,
) -> None:
    """Compare policies: is the new one better than what runs today?

    Run them in an environment, or give the file of an A/B test that was run already.
    """
    from scopeval.cli.sources import history_from, pairs_from, policy_from, promise_from
    from scopeval.comparison.compare import compare as run
    from scopeval.question.inference import Inference
    from scopeval.question.question import Question

    check_files(json, report)
    named = {name: policy_from(text) for name, text in pairs_from(policy, "policy").items()}
    where, plan = _source(env, episodes, label, group, columns, cost)
    if env is not None:
        plan |= _plan(decided, precision, spend, share)
        plan |= {} if ramp is None else {"run": _ramp(ramp, ramp_episodes, share)}
        plan["horizon"] = horizon
    asked: Any = named
    if gamma != 1.0:
        place = None if baseline is None or baseline not in named else list(named).index(baseline)
        asked = Question(named, horizon=horizon, gamma=gamma, baseline=place)
    from scopeval.logs.read import read_logs

    with progress_bar("comparing") as bar:
        if env is not None:
            plan["progress"] = lambda now: bar(now.done, now.total or 0, f"{now.done:,} episodes")
        result = run(
            where,
            asked,
            plan.pop("run", None),
            logs=None if data is None else read_logs(data, horizon=horizon),
            promise=promise_from(at_most, limit, bound, step_bound),
            baseline=baseline,
            inference=Inference(alpha=alpha, return_bound=return_bound),
            context=history_from(context, exogenous),
            seed=seed,
            **plan,
        )
    _show(ctx, result, seed, json, report)
    if result.stopped.startswith("interrupted"):
        err().print("interrupted")
        raise typer.Exit(130)


def _source(
    env: str | None,
    episodes: str | None,
    label: str,
    group: str | None,
    columns: list[str] | None,
    cost: str | None,
) -> tuple[Any, dict[str, Any]]:
    """Where episodes come from, and how many."""
    from scopeval.cli.sources import columns_from, cost_from, environment_from
    from scopeval.collection.plant import Plant
    from scopeval.comparison.recorded import read_ab_test
    from scopeval.errors import InputError

    if env is None:
        if episodes is None or episodes.isdigit():
            raise InputError(
                "env: needed to run episodes, expected a registered environment or module:name; "
                "or try --episodes FILE with an A/B test that was run already"
            )
        columns_given = columns_from(columns or [])
        return read_ab_test(episodes, policy=label, group=group, columns=columns_given), {}
    if episodes is not None and not episodes.isdigit():
        raise InputError(
            f"episodes: got {episodes!r} with --env, expected a number; leave --env out to compare "
            "by a file of episodes"
        )
    plant = Plant(environment_from(env), cost_from(cost))
    return plant, {} if episodes is None else {"episodes": int(episodes)}


def _plan(
    decided: bool,
    precision: float | None,
    spend: float | None,
    share: list[str] | None,
) -> dict[str, Any]:
    """When to stop, and the shares."""
    from scopeval.cli.sources import pairs_from
    from scopeval.errors import InputError
    from scopeval.question.stop import Stop

    more: dict[str, Any] = {"stop": Stop(decided=decided, precision=precision, cost=spend)}
    if share:
        try:
            more["run"] = {name: float(text) for name, text in pairs_from(share, "share").items()}
        except ValueError:
            raise InputError(f"share: got {share!r}, expected name=number") from None
    return more


def _ramp(text: str, episodes: int, share: list[str] | None) -> Any:
    """How the shares of new policies grow."""
    from scopeval.cli.sources import ramp_from
    from scopeval.errors import InputError

    if share:
        raise InputError("ramp: got it with --share, expected one of the two")
    return ramp_from(text, episodes)


def _show(
    ctx: typer.Context, result: Comparison, seed: int, json: Path | None, report: Path | None
) -> None:
    """Print the summary; write the files."""
    from scopeval._files import now, versions, write_json
    from scopeval.report import page_of_comparison, write_report

    console = out()
    print_line(console, result.summary())
    command = command_of(ctx, without=("json", "report"))
    if report is not None:
        page = page_of_comparison(result, command=command, seed=seed)
        print_line(console, f"Report: {write_report(page, report)}")
    if json is not None:
        made = {"command": command, "date": now(), "versions": versions("numpy", "gymnasium")}
        print_line(console, f"Results: {write_json(json, {**made, **result.to_dict()})}")
