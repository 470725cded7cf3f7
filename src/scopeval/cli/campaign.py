"""``scopeval campaign``: evaluations that last, on plants of one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.cli import options
from scopeval.cli.console import out, print_line

if TYPE_CHECKING:
    from scopeval import Campaign
    from scopeval.question.promise import Limit, Promise

__all__ = ["campaign"]

campaign = typer.Typer(
    no_args_is_help=True,
    help="An evaluation that lasts: on several plants, through restarts.",
    short_help="Create, look at, command, audit or move a campaign.",
)

Where = Annotated[
    str,
    typer.Argument(
        help="A SQLite file, postgresql://user@host/name, or the URL of a service (its token "
        "comes from SCOPEVAL_TOKEN)."
    ),
]
New = Annotated[str, typer.Argument(help="A SQLite file, or postgresql://user@host/name.")]
Policies = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        help="The policy, as of create, or of several each, name=...; where the database cannot "
        "hold them.",
    ),
]
Reason = Annotated[str, typer.Option(help="Why, for the journal.")]


@campaign.command("create")
def create(
    where: New,
    policy: options.Policies,
    horizon: options.Horizon,
    behavior: Annotated[
        str | None, typer.Option(help="The behavior policy: a .scope file, or as --policy.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Without --behavior: the log to design it from.")
    ] = None,
    columns: options.Columns = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    time: options.Time = None,
    gap: options.Gap = None,
    every: options.Every = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="What runs today, the fallback, as --policy; of several policies its name.",
            show_default="none, or the first",
        ),
    ] = None,
    unconfirmed: Annotated[
        str,
        typer.Option(
            help="With a baseline, while a design is not confirmed: refuse (the baseline runs "
            "until an operator says go-live) or target."
        ),
    ] = "refuse",
    method: Annotated[str, typer.Option(help="Of that design.")] = "scope-dr",
    at_most: options.AtMost = None,
    episodes: Annotated[int | None, typer.Option(help="Start at most so many episodes.")] = None,
    decided: Annotated[
        bool,
        typer.Option("--decided", help="Of several policies: stop when it is known which is best."),
    ] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(help="Of several policies: name=share of the episodes.", show_default="equal"),
    ] = None,
    precision: options.Precision = None,
    cost_budget: options.Spend = None,
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
    gamma: Annotated[
        float | None, typer.Option(help="Discount.", show_default="the behavior policy's, or 1")
    ] = None,
    alpha: options.Alpha = 0.05,
    anytime: Annotated[
        bool,
        typer.Option(
            "--anytime", help="The interval is anytime-valid, also at the end of --episodes."
        ),
    ] = False,
    silent_after: Annotated[
        float, typer.Option(help="Seconds after which a plant is silent.")
    ] = 3600.0,
    bound: options.Bound = None,
    step_bound: options.StepBound = None,
    return_bound: options.ReturnBound = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
) -> None:
    """Begin a campaign; plants then run it by Campaign.open or scopeval serve."""
    from scopeval import Campaign, Inference, Stop
    from scopeval.cli.sources import (
        behavior_from,
        columns_from,
        is_attribute,
        policies_from,
        policy_from,
        promise_from,
        ramp_from,
    )
    from scopeval.logs.read import read_logs

    target = policies_from(policy)
    several = isinstance(target, dict)
    runner = None if behavior is None else behavior_from(behavior, target)
    asked = promise_from(at_most, None, bound, step_bound, run=runner)
    logs = None
    if data is not None and runner is None:
        names = columns_from(columns or [])
        logs = read_logs(
            data, columns=names, horizon=horizon, separator=separator, decimal=decimal, time=time,
            gap=gap,
            every=every,
        )  # fmt: skip
    made = Campaign.create(
        where,
        target,
        horizon=horizon,
        behavior=runner,
        logs=logs,
        run=_shares(share),
        baseline=baseline if several or baseline is None else policy_from(baseline),
        unconfirmed=unconfirmed,  # type: ignore[arg-type]
        gamma=gamma,
        inference=Inference(
            alpha, interval="sequence" if anytime else "t", return_bound=return_bound
        ),
        silent_after=silent_after,
        method=method,
        seed=seed,
        promise=_promises(asked, limit or [], runner, several=several, today=baseline is not None),
        episodes=episodes,
        stop=Stop(precision=precision, cost=cost_budget, decided=decided),
        ramp=ramp_from(ramp, ramp_episodes),
        shadow=shadow,
        refit=refit,
        target_name=policy[0] if not several and is_attribute(policy[0]) else None,
    )
    with made:
        now = made.status()
        if now.unconfirmed:
            print_line(out(), now.unconfirmed)
        for guard in now.guards:
            print_line(out(), f"guard: {guard.rule} ({guard.action})")
        about = next(one for one in made.designs() if one.number == 0)
        print_line(
            out(),
            f"design: {about.kind}" + (f", {about.fingerprint[:12]}" if about.fingerprint else ""),
        )
        print_line(out(), f"created: {made.backend.name}")


@campaign.command("status")
def status(
    where: Where,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the state: episodes, value so far, cost, guards, plants."""
    import json

    from scopeval.evaluation.result import plain_numbers

    with _opened(where) as found:
        now = found.status()
    print_line(out(), json.dumps(plain_numbers(now.to_dict()), indent=2) if as_json else str(now))


@campaign.command("report")
def report(
    where: Where,
    out_file: Annotated[Path, typer.Option("--out", help="File for the page.")],
    policy: Policies = None,
) -> None:
    """Print the result and write it as one HTML page."""
    from scopeval.cli.sources import policies_from

    with _opened(where, policies_from(policy) if policy else None) as found:
        print_line(out(), found.result().summary())
        print_line(out(), f"Report: {found.report(out_file)}")


@campaign.command("verify")
def verify(
    where: Where,
    policy: Policies = None,
    head: Annotated[
        str | None,
        typer.Option(help="number:hash of an event, from a report, a webhook or an audit before."),
    ] = None,
) -> None:
    """Draw every decision again, and check every number and event; status 1: not good."""
    from scopeval.cli.sources import policies_from

    with _opened(where, policies_from(policy) if policy else None) as found:
        checked = found.verify(head)
    print_line(out(), str(checked))
    raise typer.Exit(0 if checked.good else 1)


@campaign.command("events")
def events(
    where: Where,
    kind: Annotated[list[str] | None, typer.Option(help="Only these; repeatable.")] = None,
    last: Annotated[int, typer.Option(help="At most so many, the last ones.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one event a line.")] = False,
) -> None:
    """Print what happened."""
    import json
    from dataclasses import asdict

    from scopeval.campaign.view import moment

    kinds = tuple(kind) if kind else None
    with _opened(where) as found:
        for event in found.backend.events(most=last, kinds=kinds, last=True):
            about = " ".join(x for x in (event.plant, event.who and f"({event.who})") if x)
            text = f"{event.number:>6} {moment(event.time)}  {event.kind}: {event.text} {about}"
            print_line(out(), json.dumps(asdict(event)) if as_json else text.rstrip())


@campaign.command("backup")
def backup(where: New, file: Annotated[Path, typer.Argument(help="A new file.")]) -> None:
    """Copy a SQLite campaign while it runs; or write all rows of one in PostgreSQL."""
    from scopeval import Campaign
    from scopeval.campaign.campaign import LocalBackend
    from scopeval.campaign.transfer import backup_campaign

    with Campaign.open(where) as found:
        assert isinstance(found.backend, LocalBackend)
        print_line(out(), f"backup: {backup_campaign(found.backend.store, file)}")


@campaign.command("prune")
def prune(
    where: New, days: Annotated[float, typer.Option(help="What is older is deleted.")]
) -> None:
    """Delete old refused calls and dead tokens; episodes, events and commands stay."""
    import time

    from scopeval import Campaign
    from scopeval.campaign.campaign import LocalBackend
    from scopeval.campaign.transfer import prune_campaign

    with Campaign.open(where) as found:
        assert isinstance(found.backend, LocalBackend)
        counts = prune_campaign(found.backend.store, days, time.time)
    print_line(out(), "deleted: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()))


@campaign.command("export")
def export(
    where: Where,
    file: Annotated[Path, typer.Argument(help="A .npz file for the episodes, else all rows.")],
) -> None:
    """Write the finished episodes (.npz), or the whole campaign with its audit log, to one file."""
    from scopeval.campaign.campaign import LocalBackend
    from scopeval.campaign.transfer import export_campaign
    from scopeval.errors import InputError

    with _opened(where) as found:
        if file.suffix == ".npz":
            episodes = found.episodes()
            episodes.save(file)
            print_line(out(), f"{len(episodes):,} episodes: {file}")
        elif isinstance(found.backend, LocalBackend):
            print_line(out(), f"campaign: {export_campaign(found.backend.store, file)}")
        else:
            raise InputError("where: got a service, expected its database for all rows, or .npz")


@campaign.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(help="A file by scopeval campaign export.")],
    where: New,
) -> None:
    """Bring an exported campaign into a new database."""
    from scopeval import Campaign
    from scopeval.campaign.transfer import import_campaign

    import_campaign(file, where)
    with Campaign.open(where) as found:
        print_line(out(), f"imported: {found.status().finished:,} finished episodes")


def _opened(where: str, target: object = None) -> Campaign:
    """A campaign by its file, its database or its service."""
    import os

    from scopeval import Campaign, connect

    if where.startswith(("http://", "https://")):
        return connect(where, os.environ.get("SCOPEVAL_TOKEN") or None, patience=10.0)
    return Campaign.open(where, target)


def _command(where: str, name: str, reason: str, number: int | None = None) -> None:
    """Carry out a command, under the name of this account or of the token."""
    import getpass

    with _opened(where) as campaign:
        done = campaign.backend.command(name, reason, who=getpass.getuser(), number=number)
        print_line(out(), f"{name}: {campaign.status().word}" if done else f"{name}: nothing to do")


@campaign.command("pause")
def pause(where: Where, reason: Reason) -> None:
    """Start no more episodes until resume; running ones go on."""
    _command(where, "pause", reason)


@campaign.command("resume")
def resume(where: Where, reason: Reason) -> None:
    """Start episodes again after a pause."""
    _command(where, "resume", reason)


@campaign.command("go-live")
def go_live(where: Where, reason: Reason) -> None:
    """Let the campaign run the episodes that start from now on."""
    _command(where, "go-live", reason)


@campaign.command("hand-over")
def hand_over(where: Where, reason: Reason) -> None:
    """Let the baseline (without one, the target policy) decide from now on, for good."""
    _command(where, "hand-over", reason)


@campaign.command("stop")
def stop(where: Where, reason: Reason) -> None:
    """Give control back to all plants at once, and start no more episodes, for good."""
    _command(where, "stop", reason)


@campaign.command("refit")
def refit(where: Where, reason: Reason = "by an operator") -> None:
    """Compute the design that is due."""
    _command(where, "refit", reason)


Number = Annotated[int, typer.Argument(help="The number of the episode.")]


@campaign.command("lose")
def lose(where: Where, episode: Number, reason: Reason) -> None:
    """Give up the running episode of a plant that does not come back."""
    _command(where, "lose", reason, episode)


@campaign.command("drop")
def drop(where: Where, episode: Number, reason: Reason) -> None:
    """Take a finished episode out of the evidence."""
    _command(where, "drop", reason, episode)


def _shares(words: list[str] | None) -> dict[str, float] | None:
    """Shares of several policies."""
    from scopeval.cli.sources import pairs_from
    from scopeval.errors import InputError

    try:
        return {k: float(x) for k, x in pairs_from(words, "share").items()} if words else None
    except ValueError:
        raise InputError(f"share: got {words!r}, expected name=number") from None


def _promises(
    asked: Promise | None, limits: list[str], run: Any, *, several: bool, today: bool
) -> list[Limit | Promise] | None:
    """The promise about the cost, unless several policies promise none, and the limits."""
    if asked is None and not limits:
        return None
    from scopeval.cli.sources import at_most_of
    from scopeval.errors import InputError
    from scopeval.question.promise import Limit, Promise

    guards: list[Limit | Promise] = []
    if asked is not None or not several:
        of = "target" if today and not several else None  # a campaign knows no other cost
        guards.append(replace(asked or Promise(at_most_of(run)), of=of))
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
        guards.append(
            Limit(signal, values["step"], values["episode"], values["total"], words)  # type: ignore[arg-type]
        )
    return guards
