"""``scopeval bench``: the speed of scopeval beside its peers, as ratios."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.cli.console import command_of, out, print_line, print_table, progress_bar
from scopeval.errors import MissingExtraError

if TYPE_CHECKING:
    from scopeval.paper.benchmarks.harness import Comparison

__all__ = ["app"]

app = typer.Typer(help="Measure speed beside peers, as ratios.", no_args_is_help=True)

PLACE = Path("results/bench")


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        about: help of its command.
        title: head of its table.
        packages: whose versions are recorded.
        quick: settings of the small version.
        among_all: settings where all are measured, so that they take 10 minutes together.
    """

    about: str
    title: str
    packages: tuple[str, ...]
    quick: dict[str, Any]
    among_all: dict[str, Any] = field(default_factory=dict)


#: By the name of the command and of the module.
BENCHMARKS = {
    "solver": Benchmark(
        "The safety program beside numpy, cvxpy and Clarabel.",
        "solve(), time per row",
        ("numpy", "numba", "cvxpy", "clarabel"),
        {"rows": ((10_000, 4), (4_000, 10)), "solves": 20, "repeats": 3},
    ),
    "sweep": Benchmark(
        "Learning a behavior policy beside d3rlpy's FQE and torch.",
        "learning",
        ("numpy", "numba", "torch", "d3rlpy"),
        {"size": 10, "episodes": 300, "tuples": 5_000, "measured": 3, "patience": 5.0},
    ),
    "vectors": Benchmark(
        "Designs on vectors beside torch and numpy's products.",
        "designs on vectors, processor time",
        ("numpy", "numba", "torch"),
        {"episodes": 60, "horizon": 20, "steps": 20, "repeats": 1},
    ),
    "simulate": Benchmark(
        "The simulator beside Gymnasium's vector environment and numpy.",
        "simulator, time per step",
        ("numpy", "numba", "gymnasium"),
        {"episodes": 50_000, "peer_episodes": 64, "repeats": 1},
    ),
    "collect": Benchmark(
        "Robots run by a learned policy beside robots moved at random.",
        "collection, time per step",
        ("numpy", "numba", "mujoco", "gymnasium"),
        {"robots": ("Hopper",), "side_by_side": 32, "repeats": 1},
    ),
    "act": Benchmark(
        "One action beside one forward pass of the target's network.",
        "one action",
        ("numpy", "numba", "torch"),
        {"calls": 2_000, "rows": 2_000},
    ),
    "frontier": Benchmark(
        "A whole frontier beside one design.",
        "frontier",
        ("numpy", "numba"),
        {"size": 10, "episodes": 300, "repeats": 1, "calls": 2_000},
    ),
    "campaign": Benchmark(
        "One decision of a campaign beside one durable commit of SQLite.",
        "one decision on disk",
        ("numpy", "sqlalchemy"),
        {"calls": 200},
        {"calls": 500},
    ),
    "serve": Benchmark(
        "A served campaign beside an endpoint that commits one row.",
        "service, many plants at once",
        ("numpy", "sqlalchemy", "fastapi", "uvicorn"),
        {"plants": 20, "seconds": 6.0, "turns": 2},
        {"seconds": 20.0, "turns": 4},
    ),
    "workers": Benchmark(
        "An evaluation on workers beside the same in one process.",
        "evaluation on workers, time per step",
        ("numpy", "ray"),
        {"episodes": 64, "horizon": 20},
        {"backends": ("processes",)},
    ),
    "logs": Benchmark(
        "Designs from a folder of Parquet files, also on workers.",
        "designs from files, time per row",
        ("numpy", "numba", "pyarrow"),
        {"rows": (100_000, 400_000), "file_rows": 50_000, "vectors": (20_000, 40_000)},
    ),
    "scale": Benchmark(
        "Growth of time and memory with the size of the problem.",
        "growth",
        ("numpy", "numba"),
        {"decades": (("solve, rows", 3, 5), ("design, tuples", 3, 5)), "repeats": 1},
        {"repeats": 1},
    ),
}

Json = Annotated[
    Path | None,
    typer.Option("--json", help="File for the result.  [default: results/bench/NAME.json]"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")]


@app.callback()
def bench() -> None:
    """Measure speed beside peers, as ratios."""


@app.command("all")
def every(
    ctx: typer.Context,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the results.")] = PLACE,
    quick: Quick = False,
) -> None:
    """Every benchmark, one after the other (10 minutes on 2 cores)."""
    began = time.perf_counter()
    for name, what in BENCHMARKS.items():
        try:
            _measure(ctx, name, out_dir / f"{name}.json", what.quick if quick else what.among_all)
        except MissingExtraError as error:
            typer.echo(f"{name}: {error}, or: make bench")
        typer.echo()
    minutes, seconds = divmod(round(time.perf_counter() - began), 60)
    typer.echo(f"All together: {minutes} min {seconds} s")


def _command(name: str) -> Callable[..., None]:
    def measure(ctx: typer.Context, json: Json = None, quick: Quick = False) -> None:
        _measure(ctx, name, json, BENCHMARKS[name].quick if quick else {})

    return measure


for _name, _benchmark in BENCHMARKS.items():
    app.command(_name, help=_benchmark.about)(_command(_name))


def _measure(ctx: typer.Context, name: str, place: Path | None, settings: dict[str, Any]) -> None:
    from scopeval._files import check_place
    from scopeval.paper.benchmarks.harness import save

    what = BENCHMARKS[name]
    place = check_place(PLACE / f"{name}.json" if place is None else place)
    benchmark: Any = importlib.import_module(f"scopeval.paper.benchmarks.{name}")
    config = benchmark.Config(**settings)
    with progress_bar(f"measuring: {name}") as progress:
        progress(0, 1, f"measuring: {name}")
        rows = benchmark.run(config)
    command = command_of(ctx, without=("json", "out_dir"))
    _show(what.title, rows, command)
    path = save(place, name, command, rows, packages=what.packages, seed=config.seed)
    typer.echo(f"Results: {path}")


def _show(title: str, rows: Sequence[Comparison], command: str) -> None:
    from scopeval._files import machine
    from scopeval.report import Table

    console = out()
    cells = tuple(
        (
            row.name,
            _amount(row.ours, row.unit),
            _peer(row),
            _ratio(row),
            "" if row.goal is None else f"{_BOUNDS[row.sense]} {row.goal:,g}",
            {True: "yes", False: "no", None: "" if row.goal is None else "?"}[row.met],
        )
        for row in rows
    )
    print_table(console, Table("", (title, "ours", "peer", "ratio", "goal", "met"), cells))
    console.print()
    for row in rows:
        if row.note:
            print_line(console, f"{row.name}: {row.note}")
    host = machine()
    print_line(console, f"{host['cpu']}, {host['cores']} cores")
    print_line(console, command)


_BOUNDS = {"slower": "<=", "faster": ">="}


def _peer(row: Comparison) -> str:
    if row.peer is None:
        return "none"
    return ("> " if row.stopped else "") + _amount(row.peer, row.unit)


def _ratio(row: Comparison) -> str:
    if row.ratio is None:
        return ""
    sign = "> " if row.stopped else ""
    return f"{sign}{row.ratio:,.{2 if row.ratio < 10 else 0}f}x {row.sense}"


def _amount(value: float, unit: str) -> str:
    """A duration with three digits, or a slope."""
    if unit == "slope":
        return f"{value:.2f}"
    for name, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"
