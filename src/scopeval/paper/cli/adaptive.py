"""``scopeval reproduce adaptive``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from scopeval.paper.cli import options

__all__ = ["adaptive"]


def adaptive(
    ctx: typer.Context,
    world: Annotated[
        list[str] | None,
        typer.Option(
            help="gridworld-10 (or another size), survival, FrozenLake, CliffWalking, Taxi, "
            "Blackjack, CartPole, MountainCar, Acrobot, Pendulum, or a robot; may be repeated.",
            show_default="gridworld-10 and gridworld-30",
        ),
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            help="none, a number of episodes, one controller, hidden states, corrupted, bad, "
            "and with vectors random or hidden region; several with commas.",
            show_default="those of Gridworlds",
        ),
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(
            help="adaptive, fixed, ros or bps; several with commas.", show_default="all of them"
        ),
    ] = None,
    epsilon: Annotated[
        float,
        typer.Option(
            help="The cost budget is 1 + epsilon times the target policy's cost; below zero, of "
            "every stage after the first."
        ),
    ] = 0.0,
    targets: options.Targets = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs for each target.", show_default="20")
    ] = None,
    episodes: Annotated[int, typer.Option(help="Episodes of one run.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of targets, logs and runs.")] = 0,
    quick: options.Quick = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
    out_dir: options.OutDir = Path("results/adaptive"),
) -> None:
    """Evaluations that learn while they run, with and without logs.

    This takes hours; with --quick minutes. Running it again after an interruption continues where
    it stopped.
    """
    from scopeval.paper.experiments import adaptive as experiment
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.adaptive import show_adaptive

    worlds = options.words_from(world, experiment.WORLDS)
    kinds = options.words_from(logs, experiment.LOGS)
    chosen = options.words_from(methods, experiment.COMPARED)
    many = targets if targets is not None else 3 if quick else 30
    repeats = runs if runs is not None else 4 if quick else 20
    ctx.params |= {
        "world": list(worlds), "logs": list(kinds), "methods": list(chosen),
        "targets": many, "runs": repeats, "quick": False,
    }  # fmt: skip
    config = experiment.Config(worlds, kinds, chosen, epsilon, many, repeats, episodes, seed)
    folder = check_folder(out_dir, "adaptive")
    how = options.running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    options.carry_out(ctx, "adaptive", folder, work, show_adaptive)
