"""The command line: commands parse, call and print. One file for each command.

Commands import what they compute with when they run, so that ``scopeval --help`` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from scopeval.cli import campaign, check, compare, demo, design, estimate, evaluate, frontier, serve
from scopeval.cli.console import Commands

__all__ = ["app", "main"]

app = typer.Typer(
    name="scopeval",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _version(wanted: bool) -> None:
    if wanted:
        from scopeval import __version__

        typer.echo(f"scopeval {__version__}")
        raise typer.Exit


@app.callback()
def scopeval(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="SCOPEVAL_DEBUG", help="Show tracebacks of errors.")
    ] = False,
) -> None:
    """Know what a policy is worth, at a fraction of the risk of running it.

    Start with: scopeval demo
    """


app.command("demo")(demo.demo)
app.command("check", short_help="Look for contradictions in a log and show it.")(check.check)
app.command("design")(design.design)
app.command("frontier", short_help="What precision costs, also below the policy's own cost.")(
    frontier.frontier
)
app.command("evaluate", short_help="Estimate a policy's value, its error, cost and safety.")(
    evaluate.evaluate
)
app.command("compare", short_help="Is the new policy better than what runs today?")(compare.compare)
app.command("estimate", short_help="Estimate a policy's value from recorded episodes.")(
    estimate.estimate
)
app.add_typer(campaign.campaign, name="campaign")
app.command("serve", short_help="Serve a campaign over HTTP, with a live page.")(serve.serve)
app.add_typer(serve.tokens, name="serve-token")


def main() -> None:
    """The console script."""
    app()
