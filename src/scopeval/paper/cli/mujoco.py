"""``scopeval reproduce mujoco``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from scopeval.paper.cli.options import (
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
from scopeval.paper.tables.mujoco import show_mujoco

__all__ = ["mujoco"]


def mujoco(
    ctx: typer.Context,
    robots: Annotated[
        list[str] | None,
        typer.Option(help="Robot, or several with commas; may be repeated.", show_default="all"),
    ] = None,
    protocols: Annotated[
        list[str] | None,
        typer.Option(
            help="candidates (ten full actions) or bins (the paper's ten bins of the first action "
            "dimension); may be repeated.",
            show_default="both",
        ),
    ] = None,
    role: Annotated[
        str, typer.Option(help="Of the target policies: reported (30) or validation (6).")
    ] = "reported",
    targets: Targets = None,
    runs: Runs = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run.", show_default="10")
    ] = None,
    ros_targets: Annotated[
        int | None, typer.Option(help="Targets for which ROS is run.", show_default="5")
    ] = None,
    ros_episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run of ROS.", show_default="50")
    ] = None,
    budget: Budget = "state",
    dynamics: Annotated[
        str,
        typer.Option(
            help="What critics know of a step: learned from the logs, or the robot's own "
            "simulator, to see what they could do at best."
        ),
    ] = "learned",
    networks: Annotated[
        str,
        typer.Option(
            help="That learn the dynamics: usual, wide (twice as wide, with dropout, and trained "
            "for longer), or best: the one of both with less held-out error."
        ),
    ] = "usual",
    seed: Annotated[int, typer.Option(help="Of logs, designs and runs.")] = 0,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="InvertedPendulum, few targets, little training: for a look."),
    ] = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "results/mujoco"
    ),
) -> None:
    """The paper's five robots (hours; --quick: a minute).

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.paper.experiments import mujoco as experiment
    from scopeval.paper.figures import mujoco as figures
    from scopeval.paper.pages.mujoco import page_of_mujoco
    from scopeval.paper.results import check_folder
    from scopeval.paper.robots.env import ROBOTS, robot_name
    from scopeval.paper.robots.logs import PROTOCOLS
    from scopeval.report import write_report

    numbers = {
        "targets": targets,
        "runs": runs,
        "episodes": episodes,
        "ros_targets": ros_targets,
        "ros_episodes": ros_episodes,
    }
    said: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    few = experiment.QUICK if quick else experiment.Config
    config = few(
        robots=tuple(
            robot_name(robot)
            for robot in _several(robots, ("InvertedPendulum",) if quick else ROBOTS)
        ),
        protocols=_several(protocols, PROTOCOLS),
        role=role,
        budget=budget,
        dynamics=dynamics,
        networks=networks,
        seed=seed,
        **said,
    )
    ctx.params |= {name: getattr(config, name) for name in ctx.params if hasattr(config, name)}
    folder = check_folder(out_dir, "mujoco")
    how = running(backend, workers, address)
    work = partial(experiment.run, config, folder=folder, **how)
    result, command, seconds = carry_out(ctx, "robots", work)
    drawn = {
        f"{name}-{protocol}": draw(result, protocol)
        for protocol in config.protocols
        for name, draw in (
            ("error-cost", figures.error_against_cost),
            ("calibration", figures.calibration),
        )
    }
    keep(folder, "mujoco", result, command, seconds, drawn)
    write_report(page_of_mujoco(result, command=command), folder / "report.html")
    show_mujoco(result, command, f"{seconds:.0f} s; numbers, figures and report.html: {folder}")


def _several(given: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """Words given one by one or with commas."""
    words = [word.strip() for one in given or [] for word in one.split(",")]
    return tuple(dict.fromkeys(word for word in words if word)) or default
