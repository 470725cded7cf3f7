"""``scopeval reproduce mujoco``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.paper.cli import options

if TYPE_CHECKING:
    from scopeval.paper.backends.shards import ShardOptions
    from scopeval.paper.experiments.mujoco import Config

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
        str, typer.Option(help="Which target policies: reported (30) or validation (6).")
    ] = "reported",
    targets: options.Targets = None,
    runs: options.Runs = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run.", show_default="10")
    ] = None,
    ros_targets: Annotated[
        int | None, typer.Option(help="Number of targets for which ROS is run.", show_default="5")
    ] = None,
    ros_episodes: Annotated[
        int | None, typer.Option(help="Episodes of one run of ROS.", show_default="50")
    ] = None,
    budget: options.Budget = "state",
    methods: options.Methods = None,
    dynamics: Annotated[
        str,
        typer.Option(
            help="Where critics have the dynamics from: learned from the logs, or the robot's own "
            "simulator, to see what critics could do at best."
        ),
    ] = "learned",
    networks: Annotated[
        str,
        typer.Option(
            help="Networks that learn the dynamics: usual, wide (twice as wide, with dropout, and "
            "trained for longer), or best: the one of both with less held-out error."
        ),
    ] = "usual",
    whole_frontier: Annotated[
        bool,
        typer.Option(
            "--frontier",
            help="The frontier of scope-dr at costs below the target's own, with candidates, for "
            "10 targets.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of logs, designs and runs.")] = 0,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="InvertedPendulum, few targets, little training: for a first look."
        ),
    ] = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
    out_dir: options.OutDir = Path("results/mujoco"),
) -> None:
    """The paper's five robots (hours; --quick: a minute).

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.paper.experiments import mujoco as experiment
    from scopeval.paper.figures.mujoco import draw_robots
    from scopeval.paper.pages.mujoco import page_of_mujoco
    from scopeval.paper.robots.env import ROBOTS, robot_name
    from scopeval.paper.robots.logs import PROTOCOLS
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.mujoco import show_robots
    from scopeval.report import write_report

    if whole_frontier:
        protocols, targets, methods = _settled_for_frontier(protocols, targets, methods, budget)
    numbers = {
        "targets": targets,
        "runs": runs,
        "episodes": episodes,
        "ros_targets": ros_targets,
        "ros_episodes": ros_episodes,
    }
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    make = experiment.QUICK if quick else experiment.Config
    usual = ("InvertedPendulum",) if quick else ROBOTS
    config = make(
        robots=tuple(robot_name(robot) for robot in options.words_from(robots, usual)),
        protocols=options.words_from(protocols, PROTOCOLS),
        role=role,
        budget=budget,
        methods=options.methods_from(ctx, methods, experiment.Config.methods),
        dynamics=dynamics,
        networks=networks,
        seed=seed,
        **given,
    )
    settled = ("robots", "protocols", *numbers)
    ctx.params |= {name: getattr(config, name) for name in settled}
    folder = check_folder(out_dir, "mujoco")
    how = options.running(backend, workers, address)
    if whole_frontier:
        _run_frontier(ctx, config, folder, how)
        return
    work = partial(experiment.run, config, folder=folder, **how)
    result, command = options.carry_out(
        ctx, "mujoco", folder, work, show_robots, options.from_stored(draw_robots)
    )
    write_report(page_of_mujoco(result, command=command), folder / "report.html")


def _settled_for_frontier(
    protocols: list[str] | None, targets: int | None, methods: list[str] | None, budget: str
) -> tuple[list[str], int, list[str]]:
    """Protocols, targets and methods of a frontier, which is always scope-dr's."""
    from scopeval.errors import InputError

    if (protocols and protocols != ["candidates"]) or methods or budget != "state":
        raise InputError(
            "frontier: got --protocols, --methods or --budget too, expected none of them: a "
            "frontier is scope-dr's with candidates, and has all budgets"
        )
    return ["candidates"], 10 if targets is None else targets, ["scope-dr"]


def _run_frontier(ctx: typer.Context, config: Config, folder: Path, how: ShardOptions) -> None:
    from scopeval.paper.experiments import mujoco_frontier as experiment
    from scopeval.paper.tables.mujoco_frontier import show_robot_frontiers

    whole = experiment.FrontierConfig(config)
    unused = ("methods", "protocols", "budget", "ros_targets", "ros_episodes")
    work = partial(experiment.run, whole, folder=folder, **how)
    options.carry_out(
        ctx, "mujoco-frontier", folder, work, show_robot_frontiers,
        without=(*options.WITHOUT_EFFECT, *unused),
    )  # fmt: skip
