"""``scopeval reproduce``: the paper's experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli.console import columns, command_of, out, paragraph, plus_minus, progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from scopeval.experiments import gridworld_exact

__all__ = ["app"]

app = typer.Typer(help="Compute the paper's tables.", no_args_is_help=True)

_SIZES = [10, 30]
_LAWS = ["all"]


@app.callback()
def reproduce() -> None:
    """Compute the paper's tables."""


@app.command()
def gridworld(
    ctx: typer.Context,
    critics: Annotated[
        str, typer.Option(help="Where the values come from: exact (dynamic programming).")
    ] = "exact",
    size: Annotated[
        list[int], typer.Option(help="Cells along one side; may be repeated.")
    ] = _SIZES,
    targets: Annotated[int, typer.Option(help="Number of target policies.")] = 30,
    cost_law: Annotated[
        list[str],
        typer.Option(help="same-tilt, uniform, reward, opposite-tilt or all; may be repeated."),
    ] = _LAWS,
    worlds: Annotated[
        int | None,
        typer.Option(help="Worlds that the targets share.", show_default="one for each target"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of worlds and targets.")] = 0,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for the JSON file.")] = Path(
        "results"
    ),
) -> None:
    """The Gridworld: variance, cost, and cost needed (a minute)."""
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.errors import InputError
    from scopeval.experiments import gridworld_exact as experiment
    from scopeval.provenance import check_place, now, versions, write_json

    if critics != "exact":
        raise InputError(f"critics: got {critics!r}, expected exact")
    config = experiment.Config(
        sizes=tuple(size),
        cost_laws=COST_LAWS if "all" in cost_law else tuple(cost_law),
        targets=targets,
        worlds=worlds,
        seed=seed,
    )
    place = check_place(out_dir / "gridworld-exact.json")
    began = time.perf_counter()
    with progress_bar("Gridworld") as progress:
        table = experiment.run(config, progress)
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=("out_dir",))
    path = write_json(
        place,
        {
            "command": command,
            "date": now(),
            "seconds": round(seconds, 1),
            "versions": versions("numpy", "scipy", "numba"),
            **table.as_dict(),
        },
    )
    _show(table, command, f"{seconds:.0f} s; all numbers, target by target: {path}")


def _show(table: gridworld_exact.Table, command: str, footer: str) -> None:
    console = out()
    pm = plus_minus(console)
    config = table.config
    for block in table.blocks:
        console.print(
            f"[bold]Gridworld {block.size} x {block.size}, cost law {block.cost_law}, "
            "exact values[/]"
        )
        console.print(_block(block, pm))
        console.print()
    worlds = "one world" if config.world_count == 1 else f"{config.world_count} worlds"
    paragraph(
        console,
        f"{config.targets} targets in {worlds}, seed {config.seed}; {pm} standard error over the "
        "targets. Variance and cost of one episode are relative to on-policy Monte Carlo. Needed: "
        "cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes. Worst state: "
        "expected cost from a state on, relative to the target's, where it is largest; scope "
        "promises at most 1. scope (target): constraint on the cost-to-go under the target. "
        "Paper: from learned values; it does not say how rewards and costs were drawn.",
    )
    console.print(f"\n{command}", soft_wrap=True, markup=False)
    console.print(footer, soft_wrap=True, markup=False)


def _block(block: gridworld_exact.Block, pm: str) -> Table:
    from scopeval.experiments.gridworld_exact import PAPER

    paper = dict(PAPER.get(block.size, {}))
    shown = columns("method", "variance", "cost", "needed", "saved", "worst state")

    def published(name: str, label: str) -> None:
        if label in paper:
            variance, cost, needed = paper[label]
            saved = f"{100 - needed / 10:.0f} %"
            shown.add_row(name, f"{variance:.3f}", f"{cost:.3f}", f"{needed}", saved, "")

    for row in block.rows:
        shown.add_row(
            row.label,
            _with_error(row.variance, ".3f", pm),
            _with_error(row.cost, ".3f", pm),
            _with_error(row.needed, ".0f", pm),
            f"{100 * row.saved:.0f} %",
            f"{row.worst_state.values.max():.2f}",
        )
        published("  in the paper", row.label)
    published("ros, in the paper", "ros")
    return shown


def _with_error(statistic: gridworld_exact.Statistic, form: str, pm: str) -> str:
    """Mean and standard error, the signs below each other from row to row."""
    mean = format(statistic.mean, form)
    if statistic.standard_error is None:
        return mean
    return f"{mean} {pm} {format(statistic.standard_error, form)}"
