"""``scopeval bench``: ours against a peer, as ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli.console import columns, command_of, out, progress_bar

if TYPE_CHECKING:
    from scopeval.benchmarks.harness import Row

__all__ = ["app"]

app = typer.Typer(help="Measure speed against peers, as ratios.", no_args_is_help=True)

Json = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, for a look.")]


@app.callback()
def bench() -> None:
    """Measure speed against peers, as ratios."""


@app.command("all")
def every(ctx: typer.Context, quick: Quick = False) -> None:
    """Every benchmark, one after the other."""
    solver(ctx, quick=quick)
    typer.echo()
    simulate(ctx, quick=quick)


@app.command()
def solver(ctx: typer.Context, json: Json = None, quick: Quick = False) -> None:
    """The safety program beside numpy, cvxpy and Clarabel."""
    from scopeval.benchmarks import solver as benchmark
    from scopeval.benchmarks.harness import save
    from scopeval.provenance import check_place

    if json is not None:
        check_place(json)
    config = benchmark.Config()
    if quick:
        config = benchmark.Config(rows=((10_000, 4), (4_000, 10)), solves=20, repeats=3)
    with progress_bar("measuring"):
        rows = benchmark.run(config)
    command = command_of(ctx, without=("json",))
    _show("solve(), time per row", rows, command)
    if json is not None:
        packages = ("numpy", "numba", "cvxpy", "clarabel")
        path = save(json, "solver", command, rows, packages=packages, seed=config.seed)
        typer.echo(f"written to {path}")


@app.command()
def simulate(ctx: typer.Context, json: Json = None, quick: Quick = False) -> None:
    """The simulator beside Gymnasium's vector environment and numpy."""
    from dataclasses import asdict

    from scopeval.benchmarks import simulate as benchmark
    from scopeval.benchmarks.harness import save
    from scopeval.provenance import check_place

    if json is not None:
        check_place(json)
    config = benchmark.Config()
    if quick:
        config = benchmark.Config(episodes=50_000, peer_episodes=64, repeats=1)
    with progress_bar("measuring"):
        rows = benchmark.run(config)
        peaks = benchmark.memory(config)
    command = command_of(ctx, without=("json",))
    _show("simulator, time per step", rows, command)
    for peak in peaks:
        typer.echo(f"evaluate, {peak.episodes:,} episodes: {peak.megabytes:,.0f} MB at most")
    if json is not None:
        packages = ("numpy", "numba", "gymnasium")
        found = [asdict(peak) for peak in peaks]
        path = save(
            json, "simulate", command, rows, packages=packages, seed=config.seed, memory=found
        )
        typer.echo(f"written to {path}")


def _show(title: str, rows: Sequence[Row], command: str) -> None:
    from scopeval.provenance import machine

    console = out()
    table = columns(title, "ours", "peer", "ratio", "goal", "met")
    for row in rows:
        bound = {"slower": "<=", "faster": ">="}[row.sense]
        table.add_row(
            row.name,
            _span(row.ours),
            _span(row.peer),
            f"{row.ratio:,.{2 if row.ratio < 10 else 0}f}x {row.sense}",
            "" if row.goal is None else f"{bound} {row.goal:,.0f}",
            {True: "yes", False: "no", None: ""}[row.met],
        )
    console.print(table)
    console.print()
    for row in rows:
        if row.note:
            console.print(f"{row.name}: {row.note}", soft_wrap=True, markup=False)
    host = machine()
    console.print(f"{host['cpu']}, {host['cores']} cores", soft_wrap=True, markup=False)
    console.print(command, soft_wrap=True, markup=False)


def _span(seconds: float) -> str:
    """A duration with three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
