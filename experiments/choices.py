"""What a design could have been: every candidate, what the logs say of it, and what is true.

    python -m experiments.choices --part choose --workers 16 --out choices.json

A rule that chooses a design can be tried on these rows without a new run: for each of many worlds,
target policies and logs they hold, for every candidate (with a control variate or without, every
floor, several margins of the cost budget), the variance and the cost that one half of the logs says
of a design from the other half, for several halvings; what the design from all of the logs predicts
of itself; and its exact variance and cost. Beside them is what the library decided.

The worlds are part `choose` of `unseen_worlds`, and Gridworlds of other seeds than are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.user_worlds import LOGS, PARTS, TARGETS, WORLDS, logs_for, target_of

FLOORS = (0.02, 0.25, 0.5, 0.75)
MARGINS = (0.0, 0.02, 0.06)
SHARES = (0.5, 1.0)
#: Gridworlds: sizes, numbers of logged episodes, and where their seeds begin.
SIZES, EPISODES, FIRST_SEED = (4, 10), (100, 300, 1000), 5000


@dataclass(frozen=True)
class Job:
    """A world, a target policy and some logs."""

    family: str
    world: str
    target: str
    logs: str
    seed: int = 0


def jobs(part: str, targets: Sequence[str], seeds: Sequence[int], grids: int) -> list[Job]:
    """All of a part of the unseen worlds, and some Gridworlds."""
    found = [
        Job("unseen", make.__name__, target, kind, seed)
        for seed in seeds
        for make in PARTS[part]
        for target in targets
        for kind in LOGS
    ]
    found += [
        Job("gridworld", f"{size}", f"{FIRST_SEED + k}", f"{episodes}", FIRST_SEED + k)
        for size in SIZES
        for k in range(grids)
        for episodes in EPISODES
    ]
    return found


def problem_of(task: Job) -> tuple[Any, Any, Any]:
    """Model, target policy and logs."""
    if task.family == "unseen":
        mdp = WORLDS[task.world][1]()
        pi = target_of(mdp, task.target, task.seed)
        return mdp, pi, logs_for(mdp, pi, task.logs, task.seed)
    from scopeval.envs.gridworld import Gridworld, logging_policies, logs_of, target_policies

    size = int(task.world)
    mdp = Gridworld(size, "same-tilt", task.seed).mdp()
    policy = target_policies(1, size, seed=task.seed)[0]
    controllers = logging_policies(30, mdp, seed=task.seed)
    return mdp, policy, logs_of(mdp, controllers, int(task.logs), seed=task.seed)


def job(task: Job) -> dict[str, Any]:
    """Every candidate, and what the library decides."""
    import scopeval
    from scopeval import exact
    from scopeval.behavior.evidence import evidence_of
    from scopeval.behavior.methods import METHODS
    from scopeval.behavior.settings import Settings

    mdp, pi, logged = problem_of(task)
    own = exact.assess(mdp, pi, pi, None)
    best = exact.assess(mdp, pi, exact.design(mdp, pi, "scope-dr"))
    began = time.perf_counter()
    chosen = scopeval.design(logged, pi, horizon=mdp.horizon, method="scope-dr", seed=task.seed)
    seconds = time.perf_counter() - began
    true = exact.assess(mdp, pi, chosen)
    settings = Settings(horizon=mdp.horizon, seed=task.seed)
    evidence = evidence_of(logged, pi, settings)
    splits = [evidence] + [
        evidence_of(logged, pi, replace(settings, seed=task.seed + 1000 * k)) for k in range(1, 4)
    ]
    candidates: list[dict[str, Any]] = []
    for name in ("scope-dr", "scope"):
        method = METHODS[name]
        recipes = recipes_of(settings.recipe(name), method.control_variate)
        checked = [halves_say(one, method, recipes) for one in splits]
        for j, recipe in enumerate(recipes):
            candidates.append(
                {
                    "method": name,
                    "floor": recipe.floor,
                    "margin": recipe.margin,
                    "share": recipe.share,
                    "checks": [
                        {key: values[..., j].tolist() for key, values in one.items()}
                        for one in checked
                    ],
                    **truth(mdp, pi, own, evidence, method, recipe),
                }
            )
    return {
        **asdict(task),
        "support": evidence.support,
        "optimum": best.variance / own.variance,
        "stack": {
            "variance": true.variance / own.variance,
            "cost": true.cost / own.cost,
            "predicted": chosen.predicted.variance,
            "method": chosen.recipe.method,
            "floor": chosen.recipe.floor,
            "fallback": chosen.report.fallback,
            "warnings": list(chosen.report.warnings),
            "seconds": seconds,
        },
        "candidates": candidates,
    }


def recipes_of(recipe: Any, control: bool) -> list[Any]:
    """All candidates of a method."""
    found = [
        replace(recipe, share=share, margin=margin, floor=floor)
        for share in (SHARES if control else (1.0,))
        for margin in MARGINS
        for floor in FLOORS
    ]
    return found + [replace(recipe, share=share, floor=1.0) for share in SHARES if control]


def halves_say(evidence: Any, method: Any, recipes: Sequence[Any]) -> dict[str, np.ndarray]:
    """Of designs from each half: by its own critics, by the other half's, and by all of the logs.

    Arrays [2, recipes]: relative variance and cost.
    """
    from scopeval.behavior.step import weigh_rows
    from scopeval.behavior.sweep import Followed, follow_own, followed_target, ratio

    found: dict[str, np.ndarray] = {}
    many = 1 + len(recipes)
    for k in range(2):
        designed = evidence.sweep(evidence.halves[k], follow_own(method, *recipes), many)

        def follow(t: int, points: Any, pi: Any, e: Any, critics: Any = designed.critics) -> Any:
            followed = [followed_target(pi, e)]
            said = points.estimates(critics[t])
            for j, recipe in enumerate(recipes, start=1):
                mu, b, _ = weigh_rows(method, recipe, pi, said.following(j))
                followed.append(Followed(mu, b, e.carried[..., j], e.cost_behavior[..., j]))
            return followed

        other = evidence.sweep(evidence.halves[1 - k], follow, many)
        whole = evidence.sweep(evidence.whole, follow, many)
        for name, swept in (("own", designed), ("other", other), ("whole", whole)):
            for by in ("variance", "cost"):
                values = getattr(swept, by)
                found.setdefault(f"{name}_{by}", np.ones((2, len(recipes))))
                found[f"{name}_{by}"][k] = ratio(values[1:], values[0])
    return found


def truth(mdp: Any, pi: Any, own: Any, evidence: Any, method: Any, recipe: Any) -> dict[str, float]:
    """What the design from all of the logs predicts of itself, and what is true of it."""
    from scopeval import exact
    from scopeval.behavior.final_design import design_on_all
    from scopeval.behavior.step import weigh_rows

    design = design_on_all(evidence, method, recipe)
    points = evidence.whole.at(0)
    mu, b = (np.empty((mdp.horizon, mdp.states, mdp.actions)) for _ in range(2))
    for t, critic in enumerate(design.swept.critics):
        table = np.ascontiguousarray(points.target(evidence.target, t))
        one = weigh_rows(method, recipe, table, points.estimates(critic))
        mu[t], b[t] = one.mu, one.control
    true = exact.assess(mdp, pi, mu, b if method.control_variate else None)
    return {
        "predicted_variance": design.own,
        "predicted_cost": design.cost,
        "doubt": design.doubt,
        "variance": true.variance / own.variance,
        "cost": true.cost / own.cost,
    }


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--part", default="choose")
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,))
    parser.add_argument("--grids", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--most", type=int, default=10**9)
    parser.add_argument("--out", default="")
    args = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    tasks = jobs(args.part, args.targets, args.seeds, args.grids)[: args.most]
    if args.workers == 1:
        rows = [job(task) for task in tasks]
    else:
        with ProcessPoolExecutor(args.workers) as pool:
            rows = list(pool.map(job, tasks))
    if args.out:
        Path(args.out).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
