"""``scopeval serve`` and ``scopeval serve-token``: a campaign over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import err, out, print_line

if TYPE_CHECKING:
    from scopeval.serve.auth import TokenStore

__all__ = ["serve", "tokens"]

Where = Annotated[
    str,
    typer.Argument(
        help="The campaign: its file, or postgresql://user@host/name; the password of PostgreSQL "
        "comes from PGPASSWORD or PGPASSFILE."
    ),
]


def serve(
    where: Where,
    policy: options.Policies,
    behavior: Annotated[
        str | None,
        typer.Option(
            help="The behavior policy, where the campaign cannot hold it: module:name.",
            show_default="the campaign's",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.")] = 8321,
    title: Annotated[
        str | None, typer.Option(help="Title of the page.", show_default="the campaign's name")
    ] = None,
    rate: Annotated[float, typer.Option(help="Calls a second that one token may make.")] = 100.0,
    body: Annotated[int, typer.Option(help="Most bytes of a call.")] = 65_536,
    open_episodes: Annotated[
        int, typer.Option(help="Most episodes that are open at a time.")
    ] = 1_000,
    baseline: Annotated[
        str | None,
        typer.Option(help="What runs today, where the campaign cannot hold it: module:name."),
    ] = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write every call into the log.")
    ] = False,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address of a proxy whose X-Forwarded-For and -Proto are believed; repeatable."
        ),
    ] = None,
    webhook: Annotated[
        list[str] | None, typer.Option(help="Address that events are sent to; repeatable.")
    ] = None,
    webhook_event: Annotated[
        list[str] | None,
        typer.Option(
            help="Kind of event to send; repeatable.",
            show_default="alarms, losses, commands, stages and designs",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
) -> None:
    """Serve a campaign over HTTP, with a live page.

    Plants, viewers and operators show tokens (scopeval serve-token). At the first
    start an operator's token is made and shown; until there is another one, this
    machine may look without a token. SIGTERM and Ctrl-C close the campaign.
    SCOPEVAL_WEBHOOK_SECRET signs what webhooks are sent.
    """
    from scopeval.cli.sources import is_attribute, policies_from, policy_from

    _needs_extra()
    from scopeval.serve.app import Service, Settings
    from scopeval.serve.app import serve as run
    from scopeval.serve.auth import is_loopback
    from scopeval.serve.models import Limits
    from scopeval.serve.webhooks import DEFAULT_KINDS, Webhook, check_url

    secret = os.environ.get("SCOPEVAL_WEBHOOK_SECRET") or None
    kinds = tuple(webhook_event or DEFAULT_KINDS)
    settings = Settings(
        limits=Limits(rate=rate, body=body, open_episodes=open_episodes),
        title=title or (Path(where).stem if "://" not in where else "Campaign"),
        webhooks=[Webhook(check_url(url), kinds, secret) for url in webhook or []],
        access_log=access_log,
    )
    service = Service(
        where,
        policies_from(policy),
        None if behavior is None else policy_from(behavior),
        host,
        port,
        settings,
        tls_certificate,
        tls_key,
        policy[0] if is_attribute(policy[0]) else None,
        None if baseline is None else policy_from(baseline),
        tuple(proxy or ()),
    )
    if not is_loopback(host) and tls_certificate is None:
        err().print(
            "warning: tokens travel unencrypted; try --tls-certificate, or a proxy that does HTTPS",
            soft_wrap=True,
        )
    run(service, lambda text: out().print(text, soft_wrap=True, highlight=False))


tokens = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make, list, rotate and revoke tokens of a service.",
)


@tokens.command("create")
def create(
    where: Where,
    name: Annotated[str, typer.Argument(help="Whose it is; stands in the audit log.")],
    role: Annotated[str, typer.Option(help="plant, viewer or operator.")],
    plant: Annotated[
        list[str] | None,
        typer.Option(help="The only plants that it may run; repeatable.", show_default="any"),
    ] = None,
    days: Annotated[
        float | None, typer.Option(help="Days after which it expires.", show_default="never")
    ] = None,
) -> None:
    """Make a token and print it. It is not kept, and cannot be printed again."""
    book = _book(where)
    typer.echo(book.create(name, role, plant or None, days=days))  # type: ignore[arg-type]


@tokens.command("rotate")
def rotate(
    where: Where,
    name: Annotated[str, typer.Argument(help="The name of the token.")],
    grace: Annotated[
        float, typer.Option(help="Seconds for which the old one is still taken.")
    ] = 0.0,
) -> None:
    """Make another token in place of one, and print it."""
    typer.echo(_book(where).rotate(name, grace=grace))


@tokens.command("list")
def list_tokens(where: Where) -> None:
    """List the tokens, without their secrets."""
    import time

    from scopeval.campaign.view import moment
    from scopeval.cli.console import print_table
    from scopeval.report.page import Table

    rows, now = [], time.time()
    for token in _book(where).all():
        plants = "" if token.plants is None else ", ".join(token.plants)
        state = "valid" if token.valid(now) else "expired" if token.revoked is None else "revoked"
        times = (token.made, token.expires, token.used)
        shown = ("" if one is None else moment(one)[:16] for one in times)
        rows.append((token.name, token.role, plants, *shown, state))
    names = ("name", "role", "plants", "made (UTC)", "expires", "last used", "state")
    print_table(out(), Table("", names, tuple(rows)))


@tokens.command("revoke")
def revoke(
    where: Where, name: Annotated[str, typer.Argument(help="The name of the token.")]
) -> None:
    """Refuse a token from now on; a running service knows within seconds."""
    _book(where).revoke(name)
    print_line(out(), f"revoked: {name}")


def _book(where: str) -> TokenStore:
    import time

    _needs_extra()
    from scopeval.campaign.store import Store
    from scopeval.campaign.transfer import migrate
    from scopeval.serve.auth import TokenStore

    store = Store(where, create=False)
    migrate(store, time.time)
    return TokenStore(store, time.time)


def _needs_extra() -> None:
    from importlib.util import find_spec

    from scopeval.errors import MissingExtraError

    for package in ("fastapi", "uvicorn", "sqlalchemy"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "A service")
