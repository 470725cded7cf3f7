"""``scopeval train-policies``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scopeval.cli.console import command_of, out, print_line, print_table, progress_bar

__all__ = ["train_policies"]


def train_policies(
    ctx: typer.Context,
    robots: Annotated[
        list[str] | None, typer.Option(help="Robot to train; may be repeated.", show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the first training run.")] = 0,
    scale: Annotated[float, typer.Option(help="Factor of the length of the training.")] = 1,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out", help="Folder for weights and records.", show_default="the package's own"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Train again what is there already.")
    ] = False,
) -> None:
    """Train the robots' policies that ship with scopeval.

    30 for each robot, evenly spread in return from untrained to best, and 6 of another run for
    validation. Robots that have files already are skipped.
    """
    from scopeval.paper.robots import training as robot_training
    from scopeval.paper.robots.env import ROBOTS, robot_name
    from scopeval.paper.robots.policies import FOLDER, robot_record
    from scopeval.report import Table

    names = [robot_name(robot) for robot in robots or ROBOTS]
    config = robot_training.Config(seed=seed, scale=scale)
    command = command_of(ctx, without=("out_dir", "robots", "force"))
    with progress_bar("starting") as progress:
        done = robot_training.train_policies(
            names, config, out_dir or FOLDER, command=command, force=force, progress=progress
        )
    rows = []
    for name, path in zip(names, done, strict=True):
        record = robot_record(name, folder=path.parent)
        entries = [entry for entry in record["policies"] if entry["role"] == "reported"]
        ends = [f"{e['return']:.1f} ± {e['return_error']:.1f}" for e in (entries[0], entries[-1])]
        rows.append((name, f"{len(record['policies'])}", *ends, record["date"][:10]))
    console = out()
    header = ("robot", "policies", "worst return", "best return", "made on")
    print_table(console, Table("", header, tuple(rows)))
    print_line(console, f"Weights and records: {done[0].parent}")
