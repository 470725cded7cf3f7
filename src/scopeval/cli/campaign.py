"""``scopeval campaign``: evaluations that last, on plants of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import out, print_line

if TYPE_CHECKING:
    from scopeval.campaign.terms import Limit, Promise, Ramp

__all__ = ["campaign"]

campaign = typer.Typer(
    no_args_is_help=True,
    help="An evaluation that lasts: on several plants, through restarts.",
    short_help="Create, look at, report or move a campaign.",
)

Where = Annotated[str, typer.Argument(help="A SQLite file, or postgresql://user@host/name.")]


@campaign.command("create")
def create(
    where: Where,
    policy: options.TargetPolicy,
    horizon: options.Horizon,
    behavior: Annotated[
        str | None, typer.Option(help="The behavior policy: a .scope file, or as --policy.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Without --behavior: the log to design it from.")
    ] = None,
    method: Annotated[str, typer.Option(help="Of that design.")] = "scope-dr",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Promise an expected cost of at most 1 + epsilon times the target policy's.",
            show_default="the behavior policy's, or 0",
        ),
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Start at most so many episodes.")] = None,
    precision: options.Precision = None,
    cost_budget: options.CostBudget = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="A guard, signal:what:number:action, such as cost:episode:50:pause; what is "
            "step, episode or total; the action is tell, pause, hand-over or stop. May be repeated."
        ),
    ] = None,
    ramp: Annotated[
        str | None,
        typer.Option(help="Shares of the behavior policy by stages, such as 0.1,0.3,1.0."),
    ] = None,
    ramp_episodes: Annotated[int, typer.Option(help="Finished episodes a stage needs.")] = 50,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Design the behavior policy anew as episodes finish."),
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Another controller runs; only record what would be.")
    ] = False,
    cost_bound: options.CostBound = None,
    step_cost_bound: options.StepCostBound = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Begin a campaign; plants then run it by Campaign.open or scopeval serve."""
    from scopeval import Campaign
    from scopeval.campaign.terms import Plan
    from scopeval.cli.sources import behavior_from, policy_from
    from scopeval.data.readers import read_logged

    target = policy_from(policy)
    runner = None if behavior is None else behavior_from(behavior, target)
    made = Campaign.create(
        where,
        target,
        horizon=horizon,
        behavior=runner,
        logs=None if data is None or runner is not None else read_logged(data, horizon=horizon),
        method=method,
        epsilon=epsilon,
        seed=seed,
        guards=_guards(limit or []),
        plan=Plan(episodes, precision, cost_budget),
        ramp=_ramp(ramp, ramp_episodes),
        shadow=shadow,
        refit=refit,
        target_name=policy if ":" in policy else None,
        cost_bound=cost_bound,
        step_cost_bound=step_cost_bound,
    )
    with made:
        for guard in made.status().guards:
            print_line(out(), f"guard: {guard.rule} ({guard.action})")
        about = made.designs()[0]
        print_line(
            out(),
            f"design: {about.kind}" + (f", {about.fingerprint[:12]}" if about.fingerprint else ""),
        )
        print_line(out(), f"created: {made.journal.name}")


@campaign.command("status")
def status(
    where: Where,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the state: episodes, value so far, cost, guards, plants."""
    import json

    from scopeval import Campaign
    from scopeval.evaluation.result import plain_numbers

    with Campaign.open(where) as found:
        now = found.status()
    print_line(out(), json.dumps(plain_numbers(now.to_dict()), indent=2) if as_json else str(now))


@campaign.command("report")
def report(
    where: Where,
    out_file: Annotated[Path, typer.Option("--out", help="File for the page.")],
) -> None:
    """Print the result and write it as one HTML page."""
    from scopeval import Campaign

    with Campaign.open(where) as found:
        print_line(out(), found.result().summary())
        print_line(out(), f"Report: {found.report(out_file)}")


@campaign.command("export")
def export(
    where: Where,
    file: Annotated[Path, typer.Argument(help="A .npz file for the episodes, else all rows.")],
) -> None:
    """Write the finished episodes (.npz), or the whole campaign, to one file."""
    from scopeval import Campaign
    from scopeval.campaign.transfer import export_journal

    with Campaign.open(where) as found:
        if file.suffix == ".npz":
            episodes = found.episodes()
            episodes.save(file)
            print_line(out(), f"{len(episodes):,} episodes: {file}")
        else:
            print_line(out(), f"campaign: {export_journal(found.journal, file)}")


@campaign.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A file by scopeval campaign export.")],
    where: Where,
) -> None:
    """Bring an exported campaign into a new database."""
    from scopeval import Campaign
    from scopeval.campaign.transfer import import_journal

    import_journal(file, where)
    with Campaign.open(where) as found:
        print_line(out(), f"imported: {found.status().finished:,} finished episodes")


def _guards(limits: list[str]) -> list[Limit | Promise]:
    """The promise about the cost, and the limits that are asked for."""
    from scopeval.campaign.terms import Limit, Promise
    from scopeval.errors import InputError

    found: list[Limit | Promise] = [Promise()]
    for text in limits:
        parts = text.split(":")
        try:
            signal, what, number, action = parts
            limit = float(number)
            if what not in ("step", "episode", "total"):
                raise ValueError(what)
        except ValueError as error:
            raise InputError(
                f"limit: got {text!r}, expected signal:what:number:action, such as "
                "cost:episode:50:pause"
            ) from error
        values = {name: limit if name == what else None for name in ("step", "episode", "total")}
        words = action.replace("-", " ")
        found.append(
            Limit(signal, values["step"], values["episode"], values["total"], words)  # type: ignore[arg-type]
        )
    return found


def _ramp(text: str | None, episodes: int) -> Ramp | None:
    from scopeval.campaign.terms import Ramp
    from scopeval.errors import InputError

    if text is None:
        return None
    try:
        shares = tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"ramp: got {text!r}, expected shares such as 0.1,0.3,1.0") from error
    return Ramp(shares, episodes)
