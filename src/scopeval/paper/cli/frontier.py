"""``scopeval reproduce frontier``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.paper.cli.options import Address, Backend, Targets, Workers, carry_out, running

__all__ = ["frontier"]


def frontier(
    ctx: typer.Context,
    size: Annotated[
        list[int] | None,
        typer.Option(
            help="Sizes of the Gridworld; may be repeated. 0: no Gridworld.",
            show_default="10 and 30",
        ),
    ] = None,
    targets: Targets = None,
    cost_law: Annotated[
        list[str] | None,
        typer.Option(
            help="same-tilt, uniform, reward, opposite-tilt; may be repeated.", show_default="all"
        ),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            help="FrozenLake, CliffWalking, Taxi, Blackjack or none; may be repeated.",
            show_default="all",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of worlds and targets.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Few targets, for a first look.")] = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "results/frontier"
    ),
) -> None:
    """The exact frontier of variance against cost.

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.paper.experiments import frontier_exact as experiment
    from scopeval.paper.figures.frontier_exact import frontiers_by_cost
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.frontier_exact import show_frontier

    sizes = size or ([10] if quick else [10, 30])
    many = targets if targets is not None else 3 if quick else 30
    laws = cost_law or (["same-tilt"] if quick else list(COST_LAWS))
    names = environment or (["FrozenLake"] if quick else list(experiment.ENVIRONMENTS))
    ctx.params |= {"size": sizes, "targets": many, "cost_law": laws, "environment": names}
    ctx.params["quick"] = False
    config = experiment.Config(
        sizes=tuple(one for one in sizes if one),
        cost_laws=tuple(laws),
        targets=many,
        environments=tuple(name for name in names if name != "none"),
        seed=seed,
    )
    folder = check_folder(out_dir, "frontier")
    how = running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    carry_out(ctx, "frontier", folder, work, show_frontier, frontiers_by_cost)
