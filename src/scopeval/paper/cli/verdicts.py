"""``scopeval reproduce verdicts``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.paper.cli.options import Address, Backend, OutDir, Workers, carry_out, running

__all__ = ["verdicts"]


def verdicts(
    ctx: typer.Context,
    world: Annotated[
        list[str] | None,
        typer.Option(
            help="rare disaster, skewed costs, heavy weights, ordinary, too expensive; may be "
            "repeated.",
            show_default="all",
        ),
    ] = None,
    episodes: Annotated[
        list[int] | None,
        typer.Option(
            help="Numbers of episodes; may be repeated.", show_default="50, 100, 1000 and 4000"
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs of each.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the episodes.")] = 0,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: OutDir = Path("results/verdicts"),
) -> None:
    """Wrong verdicts about the cost, with and without a stated bound.

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.paper.experiments import verdicts as experiment
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.verdicts import show_verdicts

    usual = experiment.Config()
    names, counts = world or list(usual.worlds), episodes or list(usual.episodes)
    ctx.params |= {"world": names, "episodes": counts}
    config = experiment.Config(tuple(names), tuple(counts), runs=runs, seed=seed)
    folder = check_folder(out_dir, "verdicts")
    how = running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    carry_out(ctx, "verdicts", folder, work, show_verdicts)
