"""``scopeval reproduce foreign``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.cli.console import err
from scopeval.paper.cli import options

__all__ = ["foreign"]


def foreign(
    ctx: typer.Context,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            help="FrozenLake, CliffWalking, Taxi, Blackjack, CartPole, MountainCar, Acrobot, "
            "Pendulum or LunarLander (extra box2d); may be repeated.",
            show_default="all that are installed",
        ),
    ] = None,
    targets: Annotated[
        int | None,
        typer.Option(
            help="Number of target policies of each finite environment.",
            show_default="10; 2 with --quick",
        ),
    ] = None,
    vector_targets: Annotated[
        int | None,
        typer.Option(
            help="Number of target policies of each environment with vectors.",
            show_default="4; 2 with --quick",
        ),
    ] = None,
    measured: Annotated[
        int, typer.Option(help="Episodes in which a design for vectors is measured.")
    ] = 20_000,
    methods: options.Methods = None,
    seed: Annotated[int, typer.Option(help="Seed of targets, loggers, logs and designs.")] = 0,
    quick: options.FewTargets = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
    out_dir: options.OutDir = Path("results/foreign"),
) -> None:
    """Environments that scopeval was not tuned on (minutes).

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.paper.experiments import foreign as experiment
    from scopeval.paper.experiments.lunar_lander import MISSING
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.foreign import show_foreign

    names = environment or list(experiment.runnable())
    if environment is None and len(names) < len(experiment.ENVIRONMENTS):
        err().print(f"left out: {MISSING}", markup=False, soft_wrap=True)
    many = targets if targets is not None else 2 if quick else 10
    vectors = vector_targets if vector_targets is not None else 2 if quick else 4
    ctx.params |= {
        "environment": names,
        "targets": many,
        "vector_targets": vectors,
        "quick": False,
    }
    chosen = options.methods_from(ctx, methods, experiment.Config.methods)
    config = experiment.Config(
        tuple(names),
        targets=many,
        vector_targets=vectors,
        measured=measured,
        seed=seed,
        methods=chosen,
    )
    folder = check_folder(out_dir, "foreign")
    how = options.running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    options.carry_out(ctx, "foreign", folder, work, show_foreign)
