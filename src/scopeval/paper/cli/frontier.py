"""``scopeval reproduce frontier``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from scopeval.paper.cli.options import (
    Address,
    Backend,
    FewTargets,
    OutDir,
    Targets,
    Workers,
    carry_out,
    from_stored,
    running,
)

if TYPE_CHECKING:
    from scopeval.paper.backends.shards import ShardOptions

__all__ = ["frontier", "run_frontier"]


def frontier(
    ctx: typer.Context,
    critics: Annotated[
        str,
        typer.Option(
            help="How values are computed: exact (dynamic programming), or table (learned from "
            "logged episodes, judged exactly)."
        ),
    ] = "exact",
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
            help="same-tilt, uniform, reward, opposite-tilt; may be repeated.",
            show_default="all; same-tilt for table",
        ),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            help="FrozenLake, CliffWalking, Taxi, Blackjack or none; may be repeated.",
            show_default="all; without Blackjack for table",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of worlds, targets and logs.")] = 0,
    quick: FewTargets = False,
    backend: Backend = "processes",
    workers: Workers = None,
    address: Address = None,
    out_dir: OutDir = Path("results/frontier"),
) -> None:
    """The frontier of variance against cost, exact or learned.

    Running it again after an interruption continues where it stopped.
    """
    run_frontier(ctx, environment, out_dir, running(backend, workers, address))


def run_frontier(
    ctx: typer.Context, environment: list[str] | None, out_dir: Path, how: ShardOptions
) -> None:
    """What the options of a command ask for: critics, size, targets, cost_law, seed, quick.

    Args:
        ctx: of the command; its options are filled in.
        environment: names of environments beside the Gridworlds; None: the usual ones.
        out_dir: folder for results.
        how: shards are run.
    """
    from scopeval.errors import InputError
    from scopeval.paper.saving import check_folder

    given = ctx.params
    critics, quick = given["critics"], given["quick"]
    if critics not in ("exact", "table"):
        raise InputError(f"critics: got {critics!r}, expected exact or table")
    exact = critics == "exact"
    sizes = given["size"] or ([10] if quick else [10, 30])
    many = given["targets"] if given["targets"] is not None else 3 if quick else 30
    laws = given["cost_law"] or _laws(exact and not quick)
    names = environment or _environments(exact, quick)
    given |= {"size": sizes, "targets": many, "cost_law": laws, "quick": False}
    if "environment" in given:
        given["environment"] = names
    folder = check_folder(out_dir, "frontier" if exact else "frontier-learned")
    chosen = Chosen(
        tuple(one for one in sizes if one),
        tuple(laws),
        many,
        tuple(name for name in names if name != "none"),
        given["seed"],
    )
    (_exact if exact else _learned)(ctx, chosen, folder, how)


class Chosen(NamedTuple):
    """What both experiments are told."""

    sizes: tuple[int, ...]
    cost_laws: tuple[str, ...]
    targets: int
    environments: tuple[str, ...]
    seed: int


def _laws(every: bool) -> list[str]:
    from scopeval.envs.gridworld import COST_LAWS

    return list(COST_LAWS) if every else ["same-tilt"]


def _environments(exact: bool, quick: bool) -> list[str]:
    from scopeval.paper.experiments.frontier_learned import LearnedConfig
    from scopeval.paper.experiments.frontier_worlds import ENVIRONMENTS

    if quick:
        return ["FrozenLake"]
    return list(ENVIRONMENTS) if exact else list(LearnedConfig().environments)


def _exact(ctx: typer.Context, chosen: Chosen, folder: Path, how: ShardOptions) -> None:
    from scopeval.paper.experiments import frontier_exact as experiment
    from scopeval.paper.figures.frontier_exact import frontiers_by_cost
    from scopeval.paper.tables.frontier_exact import show_frontier

    config = experiment.Config(**chosen._asdict())
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    carry_out(ctx, "frontier", folder, work, show_frontier, from_stored(frontiers_by_cost))


def _learned(ctx: typer.Context, chosen: Chosen, folder: Path, how: ShardOptions) -> None:
    from scopeval.paper.experiments import frontier_learned as experiment
    from scopeval.paper.figures.frontier_learned import learned_frontiers
    from scopeval.paper.tables.frontier_learned import show_learned_frontier

    config = experiment.LearnedConfig(**chosen._asdict())
    work = partial(experiment.run, config, folder=folder / "shards", **how)
    carry_out(
        ctx, "frontier-learned", folder, work, show_learned_frontier, from_stored(learned_frontiers)
    )
