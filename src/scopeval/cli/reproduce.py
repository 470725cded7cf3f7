"""``scopeval reproduce``: the paper's experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli.console import columns, command_of, err, out, paragraph, plus_minus, progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from scopeval.experiments import gridworld as gridworld_learned
    from scopeval.experiments import gridworld_exact, log_quality

__all__ = ["app"]

app = typer.Typer(help="Compute the paper's tables.", no_args_is_help=True)

Sizes = Annotated[
    list[int] | None,
    typer.Option(help="Cells along one side; may be repeated.", show_default="10 and 30"),
]
Quick = Annotated[bool, typer.Option("--quick", help="Small numbers, for a look.")]
Seed = Annotated[int, typer.Option(help="Of worlds, targets, logs and runs.")]
Backend = Annotated[str, typer.Option(help="Where the work is done: serial, processes, ray.")]
Workers = Annotated[
    int | None, typer.Option(help="How many at a time.", show_default="one for each core")
]
Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster.", show_default="one on this machine")
]
_MACHINERY = ("out_dir", "backend", "workers", "address")


@app.callback()
def reproduce() -> None:
    """Compute the paper's tables."""


@app.command()
def gridworld(
    ctx: typer.Context,
    critics: Annotated[
        str,
        typer.Option(
            help="Where the values come from: table or mlp (learned from logs), or exact (dynamic "
            "programming, nothing learned or sampled)."
        ),
    ] = "table",
    size: Sizes = None,
    targets: Annotated[
        int | None, typer.Option(help="Number of target policies.", show_default="30")
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs for each target and method.", show_default="30")
    ] = None,
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
        typer.Option(help="Worlds that the targets share.", show_default="one for each target"),
    ] = None,
    seed: Seed = 0,
    quick: Quick = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
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

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.envs.gridworld import COST_LAWS
    from scopeval.errors import InputError
    from scopeval.experiments.gridworld import CRITICS

    if critics not in (*CRITICS, "exact"):
        expected = ", ".join((*CRITICS, "exact"))
        raise InputError(f"critics: got {critics!r}, expected one of {expected}")
    sizes = size or ([10] if quick else [10, 30])
    many = targets if targets is not None else 6 if quick else 30
    laws = cost_law or (["all"] if critics == "exact" else ["same-tilt"])
    every = COST_LAWS if "all" in laws else tuple(laws)
    ctx.params |= {"size": sizes, "targets": many, "cost_law": laws, "quick": False}
    if critics == "exact":
        place = out_dir or Path("results")
        _gridworld_exact(ctx, tuple(sizes), every, many, worlds, seed, place)
        return
    repeats = runs if runs is not None else 5 if quick else 30
    length = episodes if episodes is not None else 1000
    ctx.params |= {"runs": repeats, "episodes": length}

    from scopeval.experiments import figures, gridworld
    from scopeval.experiments.files import check_folder, save

    config = gridworld.Config(
        sizes=tuple(sizes),
        cost_laws=every,
        targets=many,
        worlds=worlds,
        seed=seed,
        runs=repeats,
        episodes=length,
        critics=critics,
    )
    folder = check_folder(out_dir or Path("results", "gridworld"), "gridworld")
    began = time.perf_counter()
    with progress_bar("Gridworld") as progress:
        result = gridworld.run(
            config,
            folder=folder / "shards",
            backend=backend,
            workers=workers,
            address=address,
            progress=progress,
            notify=_notify,
        )
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=_MACHINERY)
    save(
        folder,
        "gridworld",
        command=command,
        seconds=seconds,
        summary=result.as_dict(),
        tables=result.tables(),
        figures={
            "error-episodes": figures.error_against_episodes(result),
            "error-cost": figures.error_against_cost(result),
            "cost-by-target": figures.cost_by_target(result),
            "frontier": figures.frontier(result),
        },
    )
    _show_learned(result, command, f"{seconds:.0f} s; numbers and figures: {folder}")


@app.command()
def logs(
    ctx: typer.Context,
    size: Annotated[
        list[int] | None,
        typer.Option(help="Cells along one side; may be repeated.", show_default="10"),
    ] = None,
    targets: Annotated[
        int | None, typer.Option(help="Number of target policies.", show_default="30")
    ] = None,
    cost_law: Annotated[
        str, typer.Option(help="same-tilt, uniform, reward or opposite-tilt.")
    ] = "same-tilt",
    seed: Seed = 0,
    quick: Quick = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path(
        "results/logs"
    ),
) -> None:
    """How good must the logs be? Fewer episodes, bad logs (minutes).

    Running it again after an interruption goes on where it stopped.
    """
    from scopeval.experiments import figures, log_quality
    from scopeval.experiments.files import check_folder, save

    sizes = size or [10]
    many = targets if targets is not None else 3 if quick else 30
    ctx.params |= {"size": sizes, "targets": many, "quick": False}
    config = log_quality.Config(tuple(sizes), cost_law, many, seed)
    folder = check_folder(out_dir, "logs")
    began = time.perf_counter()
    with progress_bar("logs") as progress:
        result = log_quality.run(
            config,
            folder=folder / "shards",
            backend=backend,
            workers=workers,
            address=address,
            progress=progress,
            notify=_notify,
        )
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=_MACHINERY)
    save(
        folder,
        "logs",
        command=command,
        seconds=seconds,
        summary=result.as_dict(),
        tables=result.tables(),
        figures={"log-quality": figures.log_quality(result)},
    )
    _show_logs(result, command, f"{seconds:.0f} s; numbers and figure: {folder}")


def _notify(line: str) -> None:
    err().print(line, soft_wrap=True, markup=False)


def _gridworld_exact(
    ctx: typer.Context,
    sizes: tuple[int, ...],
    laws: tuple[str, ...],
    targets: int,
    worlds: int | None,
    seed: int,
    folder: Path,
) -> None:
    from scopeval.experiments import gridworld_exact as experiment
    from scopeval.provenance import check_place, now, versions, write_json

    config = experiment.Config(
        sizes=sizes, cost_laws=laws, targets=targets, worlds=worlds, seed=seed
    )
    place = check_place(folder / "gridworld-exact.json")
    began = time.perf_counter()
    with progress_bar("Gridworld") as progress:
        table = experiment.run(config, progress)
    seconds = time.perf_counter() - began
    command = command_of(ctx, without=(*_MACHINERY, "runs", "episodes"))
    path = write_json(
        place,
        {
            "command": command,
            "date": now(),
            "seconds": round(seconds, 1),
            "versions": versions("numpy", "scipy", "numba"),
            **table.as_dict(),
        },
    )
    _show(table, command, f"{seconds:.0f} s; all numbers, target by target: {path}")


def _show(table: gridworld_exact.Table, command: str, footer: str) -> None:
    console = out()
    pm = plus_minus(console)
    config = table.config
    for block in table.blocks:
        console.print(
            f"[bold]Gridworld {block.size} x {block.size}, cost law {block.cost_law}, "
            "exact values[/]"
        )
        console.print(_block(block, pm))
        console.print()
    worlds = "one world" if config.world_count == 1 else f"{config.world_count} worlds"
    paragraph(
        console,
        f"{config.targets} targets in {worlds}, seed {config.seed}; {pm} standard error over the "
        "targets. Variance and cost of one episode are relative to on-policy Monte Carlo. Needed: "
        "cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes. Worst state: "
        "expected cost from a state on, relative to the target's, where it is largest; scope "
        "promises at most 1. scope (target): constraint on the cost-to-go under the target. "
        "Paper: from learned values; it does not say how rewards and costs were drawn.",
    )
    console.print(f"\n{command}", soft_wrap=True, markup=False)
    console.print(footer, soft_wrap=True, markup=False)


def _block(block: gridworld_exact.Block, pm: str) -> Table:
    from scopeval.experiments.gridworld_exact import PAPER

    paper = dict(PAPER.get(block.size, {}))
    shown = columns("method", "variance", "cost", "needed", "saved", "worst state")

    def published(name: str, label: str) -> None:
        if label in paper:
            variance, cost, needed = paper[label]
            saved = f"{100 - needed / 10:.0f} %"
            shown.add_row(name, f"{variance:.3f}", f"{cost:.3f}", f"{needed}", saved, "")

    for row in block.rows:
        shown.add_row(
            row.label,
            _with_error(row.variance, ".3f", pm),
            _with_error(row.cost, ".3f", pm),
            _with_error(row.needed, ".0f", pm),
            f"{100 * row.saved:.0f} %",
            f"{row.worst_state.values.max():.2f}",
        )
        published("  in the paper", row.label)
    published("ros, in the paper", "ros")
    return shown


def _with_error(statistic: gridworld_exact.Statistic, form: str, pm: str) -> str:
    """Mean and standard error, the signs below each other from row to row."""
    mean = format(statistic.mean, form)
    if statistic.standard_error is None:
        return mean
    return f"{mean} {pm} {format(statistic.standard_error, form)}"


def _show_learned(result: gridworld_learned.Result, command: str, footer: str) -> None:
    console = out()
    pm = plus_minus(console)
    config = result.config
    for block in result.blocks:
        console.print(
            f"[bold]Gridworld {block.size} x {block.size}, cost law {block.cost_law}, "
            f"{config.logged:,} logged episodes ({config.critics})[/]"
        )
        console.print(_learned(block, pm))
        console.print()
        console.print(f"[bold]The same, measured over {config.runs} runs for each target[/]")
        console.print(_measured(block, config.episodes, pm))
        console.print()
        for sentence in _verdicts(block, config):
            paragraph(console, sentence)
        console.print()
    paragraph(
        console,
        f"{config.targets} targets, seed {config.seed}; {pm} standard error over the targets. "
        "Variance and cost of one episode are relative to on-policy Monte Carlo: exact for learned "
        "designs; for ros, whose episodes depend on each other, measured, its variance over runs. "
        "Dearest: the largest cost of any target. Needed: cost for the accuracy of 1,000 on-policy "
        "episodes, in on-policy episodes, by the product 1000 x variance x cost (ros: squared "
        "error for variance). Crossing: the same, read off the measured error curves. Squared "
        f"error: after {config.episodes:,} episodes, relative to on-policy's by theory; |error| in "
        "units of what one on-policy episode makes. Limit: with exact values. ros-reset: ros that "
        "forgets after every episode, an ablation. Paper: it does not say how rewards and costs "
        "were drawn.",
    )
    console.print(f"\n{command}", soft_wrap=True, markup=False)
    console.print(footer, soft_wrap=True, markup=False)


def _learned(block: gridworld_learned.Block, pm: str) -> Table:
    from scopeval.experiments.gridworld_exact import PAPER

    paper = PAPER.get(block.size, {})
    shown = columns("method", "variance", "cost", "dearest", "needed", "saved")
    for row in block.rows:
        if row.method == "on-policy":
            shown.add_row("on-policy", "1", "1", "1", "1000", "0 %")
            continue
        shown.add_row(
            row.method,
            _with_error(row.variance, ".3f", pm),
            _with_error(row.cost, ".3f", pm),
            f"{row.cost.values.max():.3f}",
            _with_error(row.needed, ".0f", pm),
            f"{100 * row.saved:.0f} %",
        )
        best = row.limit_needed
        if row.limit_variance is not None and row.limit_cost is not None and best is not None:
            shown.add_row(
                "  limit",
                _with_error(row.limit_variance, ".3f", pm),
                _with_error(row.limit_cost, ".3f", pm),
                f"{row.limit_cost.values.max():.3f}",
                _with_error(best, ".0f", pm),
                f"{100 - best.mean / 10:.0f} %",
            )
        if row.method in paper:
            variance, cost, needed = paper[row.method]
            saved = f"{100 - needed / 10:.0f} %"
            shown.add_row("  paper", f"{variance:.3f}", f"{cost:.3f}", "", f"{needed}", saved)
    return shown


def _measured(block: gridworld_learned.Block, episodes: int, pm: str) -> Table:
    from scopeval.experiments.gridworld_exact import Statistic

    shown = columns("method", "squared error", "|error|", "crossing", "saved")
    for row in block.rows:
        crossing, spread = row.crossing.cost, row.crossing.standard_error
        needed = "not reached" if crossing is None else f"{crossing:.0f}"
        needed += "" if spread is None else f" {pm} {spread:.0f}"
        shown.add_row(
            row.method,
            _with_error(row.measured_square, ".3f", pm),
            _with_error(Statistic(row.errors[:, -1]), ".4f", pm),
            needed,
            "" if crossing is None else f"{100 * (1 - crossing / episodes):.0f} %",
        )
    square, size = block.direct_square, Statistic(abs(block.direct_error.values))
    shown.add_row(
        "direct",
        _with_error(Statistic(episodes * square.values), ".3f", pm),
        _with_error(size, ".4f", pm),
        "",
        "",
    )
    return shown


def _verdicts(block: gridworld_learned.Block, config: gridworld_learned.Config) -> list[str]:
    """What the tables say, in words."""
    best, ros = block.cheapest, block.row("ros")
    said = []
    if best.crossing.cost is not None:
        said.append(
            f"Least cost for on-policy's accuracy: {best.method}, {best.crossing.cost:.0f} "
            "(measured crossing)."
        )
    beaten = [
        row.method
        for row in block.rows
        if row.method in ("scope", "scope-dr")
        and ros.crossing.cost is not None
        and (row.crossing.cost is None or row.crossing.cost > ros.crossing.cost)
    ]
    if beaten:
        said.append(f"ros needs less than {' and '.join(beaten)} here.")
    bias = block.direct_error
    error = "" if bias.standard_error is None else f" (standard error {bias.standard_error:.3f})"
    said.append(
        f"direct, the critics' own answer, is as accurate as {1 / block.direct_square.mean:,.0f} "
        f"on-policy episodes and no number of episodes makes it better; its bias is "
        f"{bias.mean:+.3f}{error} in the error of one on-policy episode."
    )
    return [" ".join(said)]


def _show_logs(result: log_quality.Result, command: str, footer: str) -> None:
    console = out()
    config = result.config
    for block in result.blocks:
        for method, (variance, cost) in block.limits.items():
            for features in (True, False):
                which = "with" if features else "without"
                console.print(
                    f"[bold]{method}, {block.size} x {block.size}, {which} the cells' "
                    f"coordinates[/] (limit: {variance:.3f} at cost {cost:.3f})"
                )
                shown = columns(
                    "\nlogs",
                    "\nvariance",
                    "worst\ntarget",
                    "pre-\ndicted",
                    "\ncost",
                    "worst\ntarget",
                    "pre-\ndicted",
                    "stays\nat pi",
                )
                for row in block.rows:
                    if (row.method, row.features) != (method, features):
                        continue
                    name = f"{row.episodes:,} episodes" if row.logs == "good" else row.logs
                    shown.add_row(
                        name,
                        f"{row.variance.mean:.3f}",
                        f"{row.variance.values.max():.3f}",
                        f"{row.predicted_variance.mean:.3f}",
                        f"{row.cost.mean:.3f}",
                        f"{row.cost.values.max():.3f}",
                        f"{row.predicted_cost.mean:.3f}",
                        f"{row.kept}",
                    )
                console.print(shown)
                console.print()
    paragraph(
        console,
        f"{config.targets} targets, cost law {config.cost_law}, seed {config.seed}. Variance and "
        "cost of one episode under the learned design, relative to on-policy Monte Carlo, exact; "
        "predicted: what the design expected, mean over targets. Stays at pi: targets for which "
        f"the design chose to change nothing. Bad logs have {config.bad_episodes:,} episodes.",
    )
    console.print(f"\n{command}", soft_wrap=True, markup=False)
    console.print(footer, soft_wrap=True, markup=False)
