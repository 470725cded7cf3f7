"""``scopeval serve`` and ``scopeval serve-token``: a campaign over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import err, out, print_line

if TYPE_CHECKING:
    from scopeval.serve.tokens import TokenBook

__all__ = ["serve", "tokens"]

Where = Annotated[
    str, typer.Argument(help="The campaign: its file, or postgresql://user:password@host/name.")
]


def serve(
    where: Where,
    policy: options.TargetPolicy,
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
    webhook: Annotated[
        list[str] | None, typer.Option(help="Address that is told about events; repeatable.")
    ] = None,
    webhook_event: Annotated[
        list[str] | None,
        typer.Option(
            help="Kind of event that is told; repeatable.",
            show_default="alarms, losses, commands, stages and designs",
        ),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Serve HTTPS with this certificate (PEM).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
) -> None:
    """Serve a campaign over HTTP, with a live page.

    Plants, viewers and operators show tokens (scopeval serve-token). On this
    machine alone none is needed as long as none was made. SCOPEVAL_WEBHOOK_SECRET
    signs what webhooks are sent.
    """
    from scopeval.cli.sources import is_attribute, policy_from

    _needs_extra()
    from scopeval.serve.access import is_loopback
    from scopeval.serve.app import Settings
    from scopeval.serve.limits import Limits
    from scopeval.serve.server import Service
    from scopeval.serve.server import serve as run
    from scopeval.serve.webhooks import TOLD, Webhook, check_url

    secret = os.environ.get("SCOPEVAL_WEBHOOK_SECRET") or None
    kinds = tuple(webhook_event or TOLD)
    settings = Settings(
        limits=Limits(rate=rate, body=body, open_episodes=open_episodes),
        title=title or (Path(where).stem if "://" not in where else "Campaign"),
        webhooks=[Webhook(check_url(url), kinds, secret) for url in webhook or []],
    )
    service = Service(
        where,
        policy_from(policy),
        None if behavior is None else policy_from(behavior),
        host,
        port,
        settings,
        tls_certificate,
        tls_key,
        policy if is_attribute(policy) else None,
    )
    if not is_loopback(host) and tls_certificate is None:
        err().print(
            "warning: tokens travel unencrypted; try --tls-certificate, or a proxy that does HTTPS",
            soft_wrap=True,
        )
    scheme = "http" if tls_certificate is None else "https"
    out().print(f"Serving at {scheme}://{host}:{port}/ (Ctrl-C ends)", soft_wrap=True)
    run(service)


tokens = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Make, list and revoke tokens of a service."
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
) -> None:
    """Make a token and print it. It is not kept, and cannot be printed again."""
    book = _book(where)
    typer.echo(book.create(name, role, plant or None))  # type: ignore[arg-type]


@tokens.command("list")
def list_tokens(where: Where) -> None:
    """List the tokens, without their secrets."""
    import datetime

    from scopeval.cli.console import print_table
    from scopeval.report.page import Table

    rows = []
    for token in _book(where).all():
        made = datetime.datetime.fromtimestamp(token.made, datetime.UTC)
        plants = "" if token.plants is None else ", ".join(token.plants)
        state = "revoked" if token.revoked is not None else "valid"
        rows.append((token.name, token.role, plants, made.strftime("%Y-%m-%d %H:%M"), state))
    print_table(out(), Table("", ("name", "role", "plants", "made (UTC)", "state"), tuple(rows)))


@tokens.command("revoke")
def revoke(
    where: Where, name: Annotated[str, typer.Argument(help="The name of the token.")]
) -> None:
    """Refuse a token from now on; a running service knows within seconds."""
    _book(where).revoke(name)
    print_line(out(), f"revoked: {name}")


def _book(where: str) -> TokenBook:
    import time

    _needs_extra()
    from scopeval.campaign.journal import Journal
    from scopeval.serve.tokens import TokenBook

    return TokenBook(Journal(where, create=False), time.time)


def _needs_extra() -> None:
    from importlib.util import find_spec

    from scopeval.errors import MissingExtraError

    for package in ("fastapi", "uvicorn", "sqlalchemy"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "serve", "A service")
