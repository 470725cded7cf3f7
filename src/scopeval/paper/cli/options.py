"""What the commands of ``scopeval reproduce`` share: options, running, keeping what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from scopeval.cli.console import command_of, err, progress_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.paper.backends.shards import Running

__all__ = [
    "MACHINERY",
    "Address",
    "Backend",
    "Budget",
    "Runs",
    "Targets",
    "Workers",
    "carry_out",
    "keep",
    "running",
]

Targets = Annotated[int | None, typer.Option(help="Number of target policies.", show_default="30")]
Runs = Annotated[
    int | None, typer.Option(help="Runs for each target and method.", show_default="30")
]
Budget = Annotated[
    str, typer.Option(help="What may not cost more: state (from each on, the paper's) or episode.")
]
Backend = Annotated[str, typer.Option(help="Where the work is done: serial, processes, ray.")]
Workers = Annotated[
    int | None, typer.Option(help="How many at a time.", show_default="one for each core")
]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster.", show_default="one on this machine")
]
#: Options that change no number.
MACHINERY = ("out_dir", "backend", "workers", "address")

R = TypeVar("R")


class Result(Protocol):
    """What an experiment comes to."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """Every number, as columns."""


def running(backend: str, workers: int | None, address: str | None) -> Running:
    """How shards are run; what went wrong and was mended is told line by line."""
    return {
        "backend": backend,
        "workers": workers,
        "address": address,
        "notify": lambda line: err().print(line, soft_wrap=True, markup=False),
    }


def carry_out(
    ctx: typer.Context,
    what: str,
    work: Callable[..., R],
    *,
    without: tuple[str, ...] = MACHINERY,
) -> tuple[R, str, float]:
    """Call work(progress=...) behind a bar: its result, the command to type again, and seconds."""
    began = time.perf_counter()
    with progress_bar(what) as progress:
        result = work(progress=progress)
    seconds = time.perf_counter() - began
    return result, command_of(ctx, without=without), seconds


def keep(
    folder: Path,
    name: str,
    result: Result,
    command: str,
    seconds: float,
    figures: Mapping[str, Figure],
) -> None:
    """Write everything into the folder, see `experiments.files.save`."""
    from scopeval.paper.results import save

    save(
        folder,
        name,
        command=command,
        seconds=seconds,
        summary=result.as_dict(),
        tables=result.tables(),
        figures=figures,
    )
