"""``scopeval reproduce energy``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.paper.cli import options

__all__ = ["energy"]


def energy(
    ctx: typer.Context,
    target: Annotated[
        list[str] | None,
        typer.Option(help="cautious, usual or bold; may be repeated.", show_default="all three"),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="on-policy, scope-dr, frontier, adaptive, adaptive with logs, frontier adaptive, "
            "frontier adaptive with logs; with minus the energy as reward: energy on-policy, "
            "energy scope-dr, energy scope-dr starts; several with commas.",
            show_default="the first five",
        ),
    ] = None,
    logged: Annotated[
        int | None,
        typer.Option(
            help="Simulate so many days of logs.", show_default="the 300 that come with the package"
        ),
    ] = None,
    own: Annotated[
        int | None,
        typer.Option(help="Days of each target itself.", show_default="200; 20 with --quick"),
    ] = None,
    days: Annotated[
        int | None,
        typer.Option(help="Days of each evaluation.", show_default="200; 20 with --quick"),
    ] = None,
    starts: Annotated[int, typer.Option(help="Further midnights, with starts.")] = 500,
    asked: Annotated[
        float, typer.Option(help="Overheating that is asked of the frontier, of the target's own.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed of days, logs and designs.")] = 0,
    quick: options.Quick = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
    out_dir: options.OutDir = Path("results/energy"),
) -> None:
    """The cooling of a data center, on EnergyPlus (minutes).

    It needs the extra energyplus, and takes about ten minutes.

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.paper.experiments import energy as experiment
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.energy import show_energy

    targets = options.words_from(target, experiment.TARGETS)
    chosen = options.words_from(methods, experiment.METHODS)
    alone = own if own is not None else 20 if quick else 200
    many = days if days is not None else 20 if quick else 200
    ctx.params |= {
        "target": list(targets), "methods": list(chosen), "own": alone,
        "days": many, "quick": False,
    }  # fmt: skip
    config = experiment.Config(targets, chosen, logged, alone, many, starts, asked, seed)
    folder = check_folder(out_dir, "energy")
    how = options.running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder, **how)
    options.carry_out(ctx, "energy", folder, work, show_energy)
