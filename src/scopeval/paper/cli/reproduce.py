"""``scopeval reproduce``: the paper's experiments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.paper.cli.foreign import foreign
from scopeval.paper.cli.mujoco import mujoco
from scopeval.paper.cli.options import (
    MACHINERY,
    Address,
    Backend,
    Budget,
    Runs,
    Targets,
    Workers,
    carry_out,
    keep,
    running,
)
from scopeval.paper.tables.gridworld import show_exact, show_learned, show_logs

__all__ = ["app"]

app = typer.Typer(help="Compute the paper's tables.", no_args_is_help=True)

Sizes = Annotated[
    list[int] | None,
    typer.Option(help="Cells along one side; may be repeated.", show_default="10 and 30"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small numbers, for a look.")]
Seed = Annotated[int, typer.Option(help="Of worlds, targets, logs and runs.")]


@app.callback()
def reproduce() -> None:
    """Compute the paper's tables."""


@app.command()
def gridworld(
    ctx: typer.Context,
    critics: Annotated[
        str,
        typer.Option(
            help="Where the values come from: table or mlp (learned from logs), or exact (dynamic "
            "programming, nothing learned or sampled)."
        ),
    ] = "table",
    size: Sizes = None,
    targets: Targets = None,
    runs: Runs = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run.", show_default="1000")
    ] = None,
    cost_law: Annotated[
        list[str] | None,
        typer.Option(
            help="same-tilt, uniform, reward, opposite-tilt or all; may be repeated.",
            show_default="same-tilt; all for exact",
        ),
    ] = None,
    worlds: Annotated[
        int | None,
        typer.Option(help="Worlds that the targets share.", show_default="one for each target"),
    ] = None,
    budget: Budget = "state",
    seed: Seed = 0,
    quick: Quick = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for results.",
            show_default="results/gridworld; results for exact",
        ),
    ] = None,
) -> None:
    """The Gridworld: variance, cost, and cost needed (minutes).

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.errors import InputError
    from scopeval.paper.experiments.gridworld import CRITICS

    if critics not in (*CRITICS, "exact"):
        expected = ", ".join((*CRITICS, "exact"))
        raise InputError(f"critics: got {critics!r}, expected one of {expected}")
    sizes = size or ([10] if quick else [10, 30])
    many = targets if targets is not None else 6 if quick else 30
    laws = cost_law or (["all"] if critics == "exact" else ["same-tilt"])
    every = COST_LAWS if "all" in laws else tuple(laws)
    ctx.params |= {"size": sizes, "targets": many, "cost_law": laws, "quick": False}
    if critics == "exact":
        place = out_dir or Path("results")
        _gridworld_exact(ctx, tuple(sizes), every, many, worlds, budget, seed, place)
        return
    repeats = runs if runs is not None else 5 if quick else 30
    length = episodes if episodes is not None else 1000
    ctx.params |= {"runs": repeats, "episodes": length}

    from scopeval.paper.experiments import gridworld
    from scopeval.paper.figures import gridworld as figures
    from scopeval.paper.results import check_folder

    config = gridworld.Config(
        sizes=tuple(sizes),
        cost_laws=every,
        targets=many,
        worlds=worlds,
        seed=seed,
        runs=repeats,
        episodes=length,
        critics=critics,
        budget=budget,
    )
    folder = check_folder(out_dir or Path("results", "gridworld"), "gridworld")
    how = running(backend, workers, address)
    work = partial(gridworld.run, config, folder=folder / "shards", **how)
    result, command, seconds = carry_out(ctx, "Gridworld", work)
    drawn = {
        "error-episodes": figures.error_against_episodes(result),
        "error-cost": figures.error_against_cost(result),
        "cost-by-target": figures.cost_by_target(result),
        "frontier": figures.frontier(result),
    }
    keep(folder, "gridworld", result, command, seconds, drawn)
    show_learned(result, command, f"{seconds:.0f} s; numbers and figures: {folder}")


@app.command()
def logs(
    ctx: typer.Context,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Cells along one side; may be repeated.", show_default="10"),
    ] = None,
    targets: Targets = None,
    cost_law: Annotated[
        str, typer.Option(help="same-tilt, uniform, reward or opposite-tilt.")
    ] = "same-tilt",
    seed: Seed = 0,
    quick: Quick = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "results/logs"
    ),
) -> None:
    """How good must the logs be? Fewer episodes, bad logs (minutes).

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.paper.experiments import log_quality
    from scopeval.paper.figures import gridworld as figures
    from scopeval.paper.results import check_folder

    sizes = size or [10]
    many = targets if targets is not None else 3 if quick else 30
    ctx.params |= {"size": sizes, "targets": many, "quick": False}
    config = log_quality.Config(tuple(sizes), cost_law, many, seed)
    folder = check_folder(out_dir, "logs")
    how = running(backend, workers, address)
    work = partial(log_quality.run, config, folder=folder / "shards", **how)
    result, command, seconds = carry_out(ctx, "logs", work)
    drawn = {"log-quality": figures.log_quality(result)}
    keep(folder, "logs", result, command, seconds, drawn)
    show_logs(result, command, f"{seconds:.0f} s; numbers and figure: {folder}")


app.command()(mujoco)
app.command()(foreign)


def _gridworld_exact(
    ctx: typer.Context,
    sizes: tuple[int, ...],
    laws: tuple[str, ...],
    targets: int,
    worlds: int | None,
    budget: str,
    seed: int,
    folder: Path,
) -> None:
    from scopeval._files import check_place, now, versions, write_json
    from scopeval.paper.experiments import gridworld_exact as experiment

    config = experiment.Config(
        sizes=sizes, cost_laws=laws, targets=targets, worlds=worlds, seed=seed, budget=budget
    )
    place = check_place(folder / "gridworld-exact.json")
    table, command, seconds = carry_out(
        ctx,
        "Gridworld",
        partial(experiment.run, config),
        without=(*MACHINERY, "runs", "episodes"),
    )
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
    show_exact(table, command, f"{seconds:.0f} s; all numbers, target by target: {path}")
