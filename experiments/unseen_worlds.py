"""What designs and frontiers are worth in worlds like those of users, which no rule was made for.

    python -m experiments.unseen_worlds --quick
    python -m experiments.unseen_worlds --part report --workers 16 --out rows.json
    python -m experiments.unseen_worlds --read rows.json

Eleven finite worlds (queues, dosing, inventory, batteries, ...) of 20 to 60 steps, whose noise is
mostly their own, several with rare large costs. Their models are known, so that the variance and
the cost of everything that would run are exact, and so is the least variance at every cost. Two
parts: numbers of the library may be chosen on `choose`; what is reported is `report`.

Each of five target policies (random, soft, trained, near-optimal, careful) is met with four kinds
of logs: 1,000 and 300 episodes of thirty different controllers, 1,000 of one deterministic
controller with 10 % noise, and 50 of the target policy itself.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.user_worlds import LOGS, PARTS, TARGETS, WORLDS, logs_for, target_of
from scopeval.exact import TabularMDP

# -- one job ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Args:
    """What to run.

    Attributes:
        worlds: names; default: all of the part.
        part: "choose", "report" or "all".
        targets: kinds of target policies.
        logs: kinds of logs.
        seeds: of logs and random targets.
        methods: of designs.
        costs: asked of the frontier, relative to the target's own.
        workers: processes.
        out: a JSON file for the rows.
        read: such a file to show instead of a run.
        quick: two worlds, two targets, two kinds of logs.
    """

    worlds: tuple[str, ...] = ()
    part: str = "all"
    targets: tuple[str, ...] = TARGETS
    logs: tuple[str, ...] = LOGS
    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = ("scope-dr",)
    costs: tuple[float, ...] = (1.0, 0.8, 0.5)
    workers: int = 1
    out: str = ""
    read: str = ""
    quick: bool = False


@dataclass(frozen=True)
class Job:
    """One world, target and seed; all kinds of logs share its exact frontier."""

    world: str
    target: str
    seed: int
    logs: tuple[str, ...]
    methods: tuple[str, ...]
    costs: tuple[float, ...]


def jobs(args: Args) -> list[Job]:
    """One for each world, target and seed."""
    if args.quick:
        return [
            Job(world, target, 0, ("varied-1000", "like-50"), args.methods, args.costs)
            for world in ("dosing", "maintenance")
            for target in ("soft", "near-optimal")
        ]
    parts = tuple(PARTS) if args.part == "all" else (args.part,)
    names = args.worlds or tuple(make.__name__ for part in parts for make in PARTS[part])
    return [
        Job(world, target, seed, args.logs, args.methods, args.costs)
        for seed in args.seeds
        for world in names
        for target in args.targets
    ]


def job(task: Job) -> list[dict[str, Any]]:
    """All designs and points of a job, with what is true of them."""
    from scopeval import exact

    mdp = WORLDS[task.world][1]()
    pi = target_of(mdp, task.target, task.seed)
    own = exact.assess(mdp, pi, pi, None)
    optimum = least_variances(mdp, pi, task.costs)
    rows: list[dict[str, Any]] = []
    for kind in task.logs:
        logged = logs_for(mdp, pi, kind, task.seed)
        common = {
            "part": WORLDS[task.world][0],
            "world": task.world,
            "target": task.target,
            "logs": kind,
            "seed": task.seed,
        }
        for method in task.methods:
            shown = design_row(mdp, pi, own, logged, method)
            rows.append({**common, "verb": "design", "method": method, "asked": 1.0, **shown})
            rows[-1]["optimum"] = optimum[1.0][0] if 1.0 in optimum else None
        for asked, shown in frontier_rows(mdp, pi, own, logged, task.costs):
            best, reached = optimum[asked]
            rows.append(
                {
                    **common,
                    "verb": "frontier",
                    "method": "scope-dr",
                    "asked": asked,
                    **shown,
                    "optimum": best,
                    "optimum_cost": reached,
                }
            )
    return rows


def least_variances(
    mdp: TabularMDP, pi: np.ndarray, costs: Sequence[float]
) -> dict[float, tuple[float | None, float | None]]:
    """The exact frontier's variance and cost at each asked cost; None: no design is that cheap."""
    from scopeval import exact
    from scopeval.errors import InputError

    curve = exact.frontier(mdp, pi, floor=0.005)
    found: dict[float, tuple[float | None, float | None]] = {}
    for asked in costs:
        try:
            point = curve.at(cost=asked).predicted
            found[asked] = (min(point.relative_variance, 1e9), point.relative_cost)
        except InputError:
            found[asked] = (None, None)
    return found


def design_row(mdp: TabularMDP, pi: Any, own: Any, logged: Any, method: str) -> dict[str, Any]:
    """A design by one method, with what is true of it."""
    import scopeval

    began = time.perf_counter()
    behavior = scopeval.design(logged, pi, horizon=mdp.horizon, method=method)
    return {"seconds": time.perf_counter() - began, **truth(mdp, pi, own, behavior)}


def frontier_rows(
    mdp: TabularMDP, pi: Any, own: Any, logged: Any, costs: Sequence[float]
) -> Iterable[tuple[float, dict[str, Any]]]:
    """The frontier's point at each asked cost, with what is true of it."""
    import scopeval
    from scopeval.errors import ScopevalError

    began = time.perf_counter()
    curve = scopeval.frontier(logged, pi, horizon=mdp.horizon, method="scope-dr")
    spent = time.perf_counter() - began
    for asked in costs:
        began = time.perf_counter()
        try:
            behavior = curve.at(cost=asked)
        except ScopevalError as reason:
            yield asked, {"offered": False, "why": str(reason)[:200], "seconds": spent}
            continue
        spent += time.perf_counter() - began
        yield asked, {"seconds": spent, **truth(mdp, pi, own, behavior)}


def truth(mdp: TabularMDP, pi: Any, own: Any, behavior: Any) -> dict[str, Any]:
    """What is promised and what is true, all relative to running the target policy."""
    from scopeval import exact

    if behavior.weighted:
        shown = exact.tabulate(mdp, pi, behavior).predicted
        variance, cost = shown.variance, shown.cost
    else:
        assessed = exact.assess(mdp, pi, behavior)
        variance, cost = assessed.variance, assessed.cost
    predicted = behavior.report.prediction
    return {
        "offered": True,
        "variance": variance / own.variance,
        "cost": cost / own.cost,
        "predicted_variance": predicted.variance,
        "predicted_cost": predicted.cost,
        "promised_cost": predicted.safe_cost,
        "checked_variance": predicted.checked_variance,
        "checked_cost": predicted.checked_cost,
        "support": behavior.report.support,
        "fallback": behavior.report.fallback,
        "runs": behavior.recipe.method,
        "warnings": list(behavior.report.warnings),
    }


# -- tables ----------------------------------------------------------------------------------------


def table(rows: Sequence[dict[str, Any]]) -> str:
    """What the rows show, as Markdown."""
    return "\n".join([*design_table(rows), "", *frontier_table(rows), "", *logs_table(rows)])


def design_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Designs by world."""
    lines = [
        "| world | designs | fall back | mean log variance | most expensive | > 1.005 "
        "| predicted/true within .8-1.25 | true/optimum, median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    designs = [row for row in rows if row["verb"] == "design"]
    for name, some in grouped(designs, "world"):
        used = [row for row in some if row["fallback"] is None]
        logs = np.log([max(row["variance"], 1e-6) for row in some])
        most = max(row["cost"] for row in some)
        over = sum(row["cost"] > 1.005 for row in some)
        near = [0.8 <= row["predicted_variance"] / row["variance"] <= 1.25 for row in used]
        gap = [row["variance"] / row["optimum"] for row in some if row.get("optimum")]
        lines.append(
            f"| {name} | {len(some)} | {len(some) - len(used)} | {logs.mean():.4f} | {most:.4f} "
            f"| {over} | {sum(near)} of {len(near)} | {np.median(gap):.2f} |"
        )
    return lines


def frontier_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Points of frontiers by world and asked cost."""
    lines = [
        "| world | asked | offered (possible) | variance, median (optimum) "
        "| true/asked cost: mean, max | > 1.005 | > 1.02 | variance > 1.02 at cost 1 "
        "| predicted/true: 10 %, median, 90 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    points = [row for row in rows if row["verb"] == "frontier"]
    for name, part in grouped(points, "world"):
        for asked, some in grouped(part, "asked", everything=False):
            lines.append(f"| {name} | {asked} {points_in_words(some)}")
    return lines


def points_in_words(some: Sequence[dict[str, Any]]) -> str:
    """The cells of one row of the table of points."""
    possible = sum(row["optimum"] is not None for row in some)
    used = [row for row in some if row["offered"]]
    if not used:
        return f"| 0 ({possible}) | - | - | - | - | - | - |"
    variance = np.array([row["variance"] for row in used])
    ratio = np.array([row["cost"] / row["asked"] for row in used])
    quotient = np.quantile(
        [row["predicted_variance"] / row["variance"] for row in used], (0.1, 0.5, 0.9)
    )
    best = [row["optimum"] for row in used if row["optimum"] is not None]
    worse = sum(row["asked"] == 1.0 and row["variance"] > 1.02 for row in used)
    return (
        f"| {len(used)} ({possible}) | {np.median(variance):.2f} "
        f"({np.median(best) if best else np.nan:.2f}) | {ratio.mean():.3f}, {ratio.max():.3f} "
        f"| {(ratio > 1.005).sum()} | {(ratio > 1.02).sum()} | {worse} "
        f"| {quotient[0]:.2f}, {quotient[1]:.2f}, {quotient[2]:.2f} |"
    )


def logs_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Points by kind of logs."""
    lines = ["| logs | asked | offered of possible | > 1.005 |", "|---|---|---|---|"]
    points = [row for row in rows if row["verb"] == "frontier"]
    for name, part in grouped(points, "logs"):
        for asked, some in grouped(part, "asked", everything=False):
            possible = [row for row in some if row["optimum"] is not None]
            used = [row for row in possible if row["offered"]]
            over = sum(row["cost"] > 1.005 * asked for row in some if row["offered"])
            lines.append(f"| {name} | {asked} | {len(used)} of {len(possible)} | {over} |")
    return lines


def grouped(
    rows: Sequence[dict[str, Any]], key: str, *, everything: bool = True
) -> Iterable[tuple[Any, list[dict[str, Any]]]]:
    """Rows by the value of a key, and all of them."""
    for value in dict.fromkeys(row[key] for row in rows):
        yield value, [row for row in rows if row[key] == value]
    if everything and rows:
        yield "**all**", list(rows)


def run(args: Args) -> list[dict[str, Any]]:
    """All rows, by several processes if asked."""
    tasks = jobs(args)
    if args.workers == 1:
        return [row for task in tasks for row in job(task)]
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(args.workers) as pool:
        return [row for rows in pool.map(job, tasks) for row in rows]


def parsed() -> Args:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    default = Args()
    for name, value in vars(default).items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", action="store_true")
        elif isinstance(value, tuple):
            kind = {"seeds": int, "costs": float}.get(name, str)
            parser.add_argument(f"--{name}", type=kind, nargs="+", default=value)
        else:
            parser.add_argument(f"--{name}", type=type(value), default=value)
    given: dict[str, Any] = vars(parser.parse_args())
    chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}
    return Args(**chosen)


if __name__ == "__main__":
    args = parsed()
    if args.read:
        kept = json.loads(Path(args.read).read_text(encoding="utf-8"))["rows"]
    else:
        kept = run(args)
    if args.out:
        Path(args.out).write_text(json.dumps({"args": vars(args), "rows": kept}), encoding="utf-8")
    print(table(kept))
