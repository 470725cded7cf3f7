"""``scopeval reproduce mujoco``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from scopeval.cli.console import command_of, err, progress_bar
from scopeval.cli.reproduced_mujoco import show_mujoco

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
    targets: Annotated[
        int | None, typer.Option(help="Number of target policies.", show_default="30")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs for each target and method.", show_default="30")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run.", show_default="10")
    ] = None,
    ros_targets: Annotated[
        int | None, typer.Option(help="Targets for which ROS is run.", show_default="5")
    ] = None,
    ros_episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run of ROS.", show_default="50")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of logs, designs and runs.")] = 0,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="InvertedPendulum, few targets, little training: for a look."),
    ] = False,
    backend: Annotated[
        str, typer.Option(help="Where the work is done: serial, processes, ray.")
    ] = "processes",
    workers: Annotated[
        int | None, typer.Option(help="How many at a time.", show_default="one for each core")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Of a Ray cluster.", show_default="one on this machine")
    ] = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "results/mujoco"
    ),
) -> None:
    """The paper's five robots (hours; --quick: a minute).

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.envs.mujoco import ROBOTS, robot_name
    from scopeval.experiments import mujoco as experiment
    from scopeval.experiments import mujoco_figures as figures
    from scopeval.experiments.files import check_folder, save
    from scopeval.experiments.robot_logs import PROTOCOLS
    from scopeval.report import page_of_mujoco, write_report

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
        seed=seed,
        **said,
    )
    ctx.params |= {name: getattr(config, name) for name in ctx.params if hasattr(config, name)}
    folder = check_folder(out_dir, "mujoco")
    began = time.perf_counter()
    with progress_bar("robots") as progress:
        result = experiment.run(
            config,
            folder=folder,
            backend=backend,
            workers=workers,
            address=address,
            progress=progress,
            notify=lambda line: err().print(line, soft_wrap=True, markup=False),
        )
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=("out_dir", "backend", "workers", "address"))
    save(
        folder,
        "mujoco",
        command=command,
        seconds=seconds,
        summary=result.as_dict(),
        tables=result.tables(),
        figures={
            f"{name}-{protocol}": draw(result, protocol)
            for protocol in config.protocols
            for name, draw in (
                ("error-cost", figures.error_against_cost),
                ("calibration", figures.calibration),
            )
        },
    )
    write_report(page_of_mujoco(result, command=command), folder / "report.html")
    show_mujoco(result, command, f"{seconds:.0f} s; numbers, figures and report.html: {folder}")


def _several(given: list[str] | None, default: tuple[str, ...]) -> tuple[str, ...]:
    """Words given one by one or with commas."""
    words = [word.strip() for one in given or [] for word in one.split(",")]
    return tuple(dict.fromkeys(word for word in words if word)) or default
