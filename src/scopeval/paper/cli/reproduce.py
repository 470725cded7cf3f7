"""``scopeval reproduce``: the paper's experiments."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scopeval.paper.cli import options
from scopeval.paper.cli.adaptive import adaptive
from scopeval.paper.cli.energy import energy
from scopeval.paper.cli.foreign import foreign
from scopeval.paper.cli.frontier import frontier, run_frontier
from scopeval.paper.cli.mujoco import mujoco
from scopeval.paper.cli.verdicts import verdicts

if TYPE_CHECKING:
    from scopeval.paper.backends.shards import ShardOptions

__all__ = ["app"]

app = typer.Typer(help="Compute the paper's tables.", no_args_is_help=True)

Sizes = Annotated[
    list[int] | None,
    typer.Option(help="Cells along one side; may be repeated.", show_default="10 and 30"),
]
Seed = Annotated[int, typer.Option(help="Seed of worlds, targets, logs and runs.")]


@app.callback()
def reproduce() -> None:
    """Compute the paper's tables."""


@app.command()
def gridworld(
    ctx: typer.Context,
    critics: Annotated[
        str | None,
        typer.Option(
            help="How values are computed: table or mlp (learned from logs), or exact (dynamic "
            "programming, nothing learned or sampled).",
            show_default="table; exact with --frontier",
        ),
    ] = None,
    whole_frontier: Annotated[
        bool,
        typer.Option(
            "--frontier",
            help="The frontier of variance against cost, also below the target's own cost: "
            "`reproduce frontier` on the Gridworlds alone.",
        ),
    ] = False,
    size: Sizes = None,
    targets: options.Targets = None,
    runs: options.Runs = None,
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
        typer.Option(
            help="Number of worlds that the targets share.", show_default="one for each target"
        ),
    ] = None,
    budget: options.Budget = "state",
    methods: options.Methods = None,
    epsilons: Annotated[
        list[float] | None,
        typer.Option(
            help="Safety parameter of one more design for each constrained method, in the figure "
            "of variance against cost; may be repeated.",
            show_default="0, 0.1, 0.25, 0.5, 1",
        ),
    ] = None,
    seed: Seed = 0,
    quick: options.Quick = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
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

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.errors import InputError
    from scopeval.paper.experiments.gridworld import CRITICS

    how = options.running(backend, workers, address)
    if whole_frontier:
        _run_frontier(ctx, how)
        return
    critics = ctx.params["critics"] = critics or "table"
    if critics not in (*CRITICS, "exact"):
        expected = ", ".join((*CRITICS, "exact"))
        raise InputError(f"critics: got {critics!r}, expected one of {expected}")
    laws = cost_law or (["all"] if critics == "exact" else ["same-tilt"])
    settings: dict[str, Any] = {
        "sizes": tuple(size or ([10] if quick else [10, 30])),
        "cost_laws": COST_LAWS if "all" in laws else tuple(laws),
        "targets": targets if targets is not None else 6 if quick else 30,
        "worlds": worlds,
        "seed": seed,
        "budget": budget,
    }
    ctx.params |= {"size": settings["sizes"], "targets": settings["targets"], "cost_law": laws}
    ctx.params["quick"] = False
    if critics == "exact":
        if epsilons:
            raise InputError("epsilons: got some with exact values, expected none of them")
        _run_exact(ctx, settings, methods, out_dir or Path("results"))
        return
    online = {
        "runs": runs if runs is not None else 5 if quick else 30,
        "episodes": episodes if episodes is not None else 1000,
    }
    ctx.params |= online
    settings |= {"critics": critics, **online}
    settings |= {"epsilons": tuple(epsilons)} if epsilons else {}
    _run_learned(ctx, settings, methods, out_dir or Path("results", "gridworld"), how)


def _run_frontier(ctx: typer.Context, how: ShardOptions) -> None:
    """What `reproduce frontier` computes, without other environments."""
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.errors import InputError

    given = ctx.params
    unused = [name for name in ("methods", "worlds", "runs", "episodes", "epsilons") if given[name]]
    unused += ["budget"] if given["budget"] != "state" else []
    if unused:
        raise InputError(
            f"frontier: got --{unused[0]} too, expected none: a frontier has all budgets, one "
            "world for each target, and nothing is sampled"
        )
    given |= {"critics": given["critics"] or "exact", "budget": None}
    laws = given["cost_law"]
    given["cost_law"] = list(COST_LAWS) if laws and "all" in laws else laws
    run_frontier(ctx, ["none"], given["out_dir"] or Path("results", "frontier"), how)


def _run_exact(
    ctx: typer.Context, settings: dict[str, Any], methods: list[str] | None, out_dir: Path
) -> None:
    from scopeval.paper.experiments.gridworld_exact import BY_TARGET, Config, run
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.gridworld import show_exact

    # One budget for whole episodes is about the cost of the behavior policy only.
    by_state = settings["budget"] == "state"
    usual = tuple(name for name in Config.methods if by_state or name != BY_TARGET)
    config = Config(**settings, methods=options.methods_from(ctx, methods, usual))
    folder = check_folder(out_dir, "gridworld-exact")
    without = (*options.WITHOUT_EFFECT, "runs", "episodes")
    options.carry_out(
        ctx, "gridworld-exact", folder, partial(run, config), show_exact, without=without
    )


def _run_learned(
    ctx: typer.Context,
    settings: dict[str, Any],
    methods: list[str] | None,
    out_dir: Path,
    how: ShardOptions,
) -> None:
    from scopeval.paper.experiments.gridworld import Config, run
    from scopeval.paper.figures.gridworld import draw_gridworld
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.gridworld import show_learned

    config = Config(**settings, methods=options.methods_from(ctx, methods, Config.methods))
    folder = check_folder(out_dir, "gridworld")
    work = partial(run, config, folder=folder / "shards", **how)
    options.carry_out(
        ctx, "gridworld", folder, work, show_learned, options.from_stored(draw_gridworld)
    )


@app.command()
def logs(
    ctx: typer.Context,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Cells along one side; may be repeated.", show_default="10"),
    ] = None,
    targets: options.Targets = None,
    cost_law: Annotated[
        str, typer.Option(help="same-tilt, uniform, reward or opposite-tilt.")
    ] = "same-tilt",
    episodes: Annotated[
        list[int] | None,
        typer.Option(
            help="Numbers of good logged episodes; may be repeated.", show_default="30 to 10,000"
        ),
    ] = None,
    bad: Annotated[bool, typer.Option(help="Bad logs, too.")] = True,
    methods: options.Methods = None,
    seed: Seed = 0,
    quick: options.Quick = False,
    backend: options.Backend = "processes",
    workers: options.Workers = None,
    address: options.Address = None,
    out_dir: options.OutDir = Path("results/logs"),
) -> None:
    """How good the logs must be: fewer episodes, bad logs (minutes).

    Running it again after an interruption continues where it stopped.
    """
    from scopeval.paper.experiments.log_quality import Config, run
    from scopeval.paper.figures.log_quality import draw_logs
    from scopeval.paper.saving import check_folder
    from scopeval.paper.tables.gridworld import show_logs

    sizes = size or [10]
    many = targets if targets is not None else 3 if quick else 30
    ctx.params |= {"size": sizes, "targets": many, "quick": False}
    names = options.methods_from(ctx, methods, Config.methods)
    some = tuple(episodes or Config.episodes)
    kinds = Config.bad if bad else ()
    config = Config(tuple(sizes), cost_law, many, seed, some, methods=names, bad=kinds)
    folder = check_folder(out_dir, "logs")
    how = options.running(backend, workers, address)
    work = partial(run, config, folder=folder / "shards", **how)
    options.carry_out(ctx, "logs", folder, work, show_logs, draw_logs)


app.command()(mujoco)
app.command()(foreign)
app.command()(frontier)
app.command()(adaptive)
app.command()(energy)
app.command()(verdicts)
