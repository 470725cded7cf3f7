"""What the commands of ``scopeval reproduce`` share: options, running, and printing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from scopeval.cli.console import (
    command_of,
    err,
    out,
    paragraph,
    print_line,
    print_table,
    progress_bar,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.paper.backends.shards import ShardOptions
    from scopeval.paper.saving import Savable
    from scopeval.report.page import Table

__all__ = [
    "WITHOUT_EFFECT",
    "Address",
    "Backend",
    "Budget",
    "FewTargets",
    "Methods",
    "OutDir",
    "Quick",
    "Runs",
    "Targets",
    "Workers",
    "carry_out",
    "from_stored",
    "methods_from",
    "running",
    "words_from",
]

Targets = Annotated[int | None, typer.Option(help="Number of target policies.", show_default="30")]
Runs = Annotated[
    int | None, typer.Option(help="Runs for each target and method.", show_default="30")
]
Budget = Annotated[
    str,
    typer.Option(
        help="What the cost budget limits: the expected cost from every state on (state, the "
        "paper's) or of whole episodes (episode)."
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        help="Method, or several with commas; may be repeated. A method of your own: "
        "module:attribute, where the attribute is a Method.",
        show_default="the usual ones",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Few targets and runs, for a first look.")]
FewTargets = Annotated[bool, typer.Option("--quick", help="Few targets, for a first look.")]
OutDir = Annotated[Path, typer.Option("--out", help="Folder for results.")]
Backend = Annotated[str, typer.Option(help="Where to compute: serial, processes or ray.")]
Workers = Annotated[
    int | None, typer.Option(help="Number of parallel workers.", show_default="one for each core")
]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster.", show_default="one on this machine")
]
#: Options that do not change any number.
WITHOUT_EFFECT = ("out_dir", "backend", "workers", "address")

R = TypeVar("R", bound="Savable")


def running(backend: str, workers: int | None, address: str | None) -> ShardOptions:
    """How shards are run; problems that were solved are printed line by line."""
    return {
        "backend": backend,
        "workers": workers,
        "address": address,
        "notify": lambda line: print_line(err(), line),
    }


def words_from(given: Sequence[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """Words given one by one or with commas."""
    words = [word.strip() for one in given or [] for word in one.split(",")]
    return tuple(dict.fromkeys(word for word in words if word)) or default


def methods_from(
    ctx: typer.Context, given: Sequence[str] | None, default: tuple[str, ...]
) -> tuple[str, ...]:
    """The methods to run; the reference is added where the default has it."""
    from scopeval.paper.methods import REFERENCE

    if not given:
        return default
    words = words_from(given, default)
    others = tuple(word for word in words if word != REFERENCE)
    ctx.params["methods"] = list(words)
    return (REFERENCE, *others) if REFERENCE in default else others


def from_stored(
    draw: Callable[[Mapping[str, Any]], Mapping[str, Figure]],
) -> Callable[[Savable], Mapping[str, Figure]]:
    """For `carry_out`: figures that are drawn from what the JSON file holds."""
    return lambda result: draw(result.as_dict())


def carry_out(
    ctx: typer.Context,
    name: str,
    folder: Path,
    work: Callable[..., R],
    show: Callable[[R], Sequence[Table | str]],
    draw: Callable[[R], Mapping[str, Figure]] = lambda result: {},
    *,
    without: tuple[str, ...] = WITHOUT_EFFECT,
) -> tuple[R, str]:
    """Run an experiment behind a progress bar, save everything, print the tables.

    Args:
        ctx: of the command.
        name: of the JSON file.
        folder: for all files.
        work: called as work(progress=...).
        show: result -> tables and paragraphs to print.
        draw: result -> figures by name.
        without: options that the command to type again leaves out.

    Returns:
        The result, and the command to type again.
    """
    from scopeval.paper.backends.shards import RESUMED
    from scopeval.paper.saving import save

    began, kept = time.perf_counter(), 0
    with progress_bar("starting") as progress:

        def report(done: int, total: int, what: str) -> None:
            nonlocal kept
            kept = done if what == RESUMED else kept
            progress(done, total, what)

        result = work(progress=report)
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=without)
    path = save(folder, name, result, draw(result), command=command, seconds=seconds, kept=kept)
    console = out()
    for part in show(result):
        if isinstance(part, str):
            paragraph(console, part)
        else:
            print_table(console, part)
        console.print()
    print_line(console, command)
    print_line(console, f"Results: {path} ({seconds:.1f} s)")
    return result, command
