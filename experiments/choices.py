"""What the decision about a design is worth, and each number of it: designs with and without it.

Every variant decides about the same logs, so differences are paired. All is exact: Gridworlds of
seeds that are not reported elsewhere, the same with logs in which a tenth of the rewards is ten
times too large (spoilt), Gymnasium's finite environments (`worlds.finite`) and worlds like those of
users (`unseen_worlds`). Numbers may be chosen on the half `choose`; `report` is what
counts: other Gridworlds, other targets of the finite environments, other worlds of users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from experiments.common import Note, RunArgs, Table, main
from experiments.unseen_worlds import BROKEN, PREDICTION, true_of
from experiments.user_worlds import LOGS, PARTS, TARGETS, WORLDS, logs_for, target_of
from experiments.worlds.finite import FINITE, finite_world
from scopeval import exact
from scopeval.behavior import candidates, decision
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.errors import InputError
from scopeval.question.question import Question

FAMILIES = ("gridworld", "spoilt", "finite", "unseen")
#: What is decided without, and what stands in the place of the number then.
VARIANTS: dict[str, dict[ModuleType, Any]] = {
    "as it is": {},
    "FLOORS": {candidates: ()},
    "SLACK": {candidates: np.inf},
    "CONTROL_VARIATE": {decision: np.inf},
}
#: Gridworlds: sizes, numbers of logged episodes, targets, and where the seeds begin.
SIZES, EPISODES, GRIDS = (4, 10), (100, 300, 1000), {"choose": 12, "report": 30}
FIRST_SEED = {"choose": 5000, "report": 11000}
#: Targets of the finite environments, and their logs.
NUMBERS = {"choose": (0, 2, 4), "report": (11, 13, 15, 17, 19)}
FINITE_LOGS = (
    ("mixed", 1000), ("mixed", 100), ("mixed", 32),
    ("one controller", 1000), ("random", 1000), ("hidden states", 1000),
)  # fmt: skip
#: What is designed.
KINDS = {
    "gridworld": (("scope-dr", "state"), ("scope", "state"), ("scope-dr", "episode")),
    "spoilt": (("scope-dr", "state"),),
    "finite": (("scope-dr", "state"),),
    "unseen": (("scope-dr", "state"),),
}


@dataclass(frozen=True)
class Args(RunArgs):
    """Designs with and without each number of the decision."""

    half: str = "report"
    """choose or report."""
    families: tuple[str, ...] = FAMILIES
    """Of worlds."""
    without: tuple[str, ...] = tuple(VARIANTS)
    """Numbers that are left out, each in turn; "as it is": none, which comes first."""

    RANGES: ClassVar[tuple[str, ...]] = ("half", "families")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        if self.half not in GRIDS:
            raise InputError(f"half: got {self.half!r}, expected choose or report")
        for name in self.families:
            if name not in FAMILIES:
                raise InputError(f"families: got {name!r}, expected {', '.join(FAMILIES)}")
        for name in self.without:
            if name not in VARIANTS:
                raise InputError(f"without: got {name!r}, expected {', '.join(VARIANTS)}")


QUICK: dict[str, Any] = {"half": "choose", "families": ("gridworld",)}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each world and target policy."""
    first, many = FIRST_SEED[args.half], GRIDS[args.half]
    every: list[tuple[str, str, str]] = []
    if "gridworld" in args.families:
        every += [("gridworld", f"{n}", f"{first + k}") for k in range(many) for n in SIZES]
    if "spoilt" in args.families:
        every += [("spoilt", f"{SIZES[-1]}", f"{first + k}") for k in range(many)]
    if "finite" in args.families:
        every += [("finite", name, f"{k}") for name in FINITE for k in NUMBERS[args.half]]
    if "unseen" in args.families:
        every += [("unseen", make.__name__, t) for make in PARTS[args.half] for t in TARGETS]
    return [{"family": f, "world": world, "target": target} for f, world, target in every]


def problems(family: str, world: str, target: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Name of the logs, model, target policy and logs."""
    if family == "unseen":
        mdp = WORLDS[world][1]()
        pi = target_of(mdp, target, 0)
        for kind in LOGS:
            yield kind, mdp, pi, logs_for(mdp, pi, kind, 0)
    elif family == "finite":
        made, number = finite_world(world), int(target)
        for kind, episodes in FINITE_LOGS:
            if world == "Taxi" and episodes < 1000:  # its states are many
                continue
            policy = made.target(number)
            yield f"{kind} {episodes}", made.mdp, policy, made.logs(kind, episodes, number)
    else:
        from scopeval.envs.gridworld import Gridworld, logging_policies, logs_of, target_policies

        size, seed = int(world), int(target)
        mdp = Gridworld(size, "same-tilt", seed).mdp()
        controllers = logging_policies(30, mdp, seed=seed)
        policy = target_policies(1, size, seed=seed)[0]
        for episodes in EPISODES if family == "gridworld" else EPISODES[-1:]:
            logged = logs_of(mdp, controllers, episodes, seed=seed)
            if family == "spoilt":
                tenth = np.random.default_rng(seed).random(len(logged)) < 0.1
                logged = replace(logged, reward=np.where(tenth, 10.0, 1.0) * logged.reward)
            yield f"{episodes}", mdp, policy, logged


def job(args: Args, family: str, world: str, target: str) -> dict[str, Any]:
    """What every variant decides: variance, cost, predicted variance, and whether it falls back."""
    rows = []
    for logs, mdp, pi, logged in problems(family, world, target):
        own = exact.assess(mdp, pi, pi, None)
        for method, budget in KINDS[family]:
            evidence = evidence_of(logged, Question(pi, mdp.horizon))
            asked = Recipe(METHODS[method], mdp.horizon, budget=budget)
            decided: dict[str, list[float]] = {}
            for name in args.without:
                with ExitStack() as left_out:
                    for module, value in VARIANTS[name].items():
                        left_out.enter_context(mock.patch.object(module, name, value))
                    made = decision.decide(evidence, asked)
                true = (1.0, 1.0)
                if made.design.recipe.method.tilted:
                    true = true_of(mdp, pi, own, evidence, made.design)
                told = made.prediction.variance
                decided[name] = [float(x) for x in (*true, told, made.fallback is not None)]
            rows.append({"logs": logs, "kind": f"{method}, {budget}", "decided": decided})
    return {"rows": rows}


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """For each family and kind of design, every variant against the first one."""
    lines = []
    for family in args.families:
        for method, budget in KINDS[family]:
            kind = f"{method}, {budget}"
            some = [
                one["decided"]
                for row in rows
                if row["family"] == family
                for one in row["rows"]
                if one["kind"] == kind
            ]
            lines += compared(some, {"half": args.half, "family": family, "kind": kind})
    return {"lines": lines}


def compared(some: Sequence[Mapping[str, Any]], common: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A line for each variant."""
    names = [name for name in VARIANTS if name in some[0]] if some else []
    cells = {name: np.array([one[name] for one in some], np.float64) for name in names}
    lines = []
    for name in names:
        variance, cost, told, back = cells[name].T
        log = np.log(np.maximum(variance, 1e-6))
        more = log - np.log(np.maximum(cells[names[0]][:, 0], 1e-6))
        used = back == 0.0
        ratio = told[used] / variance[used]
        lines.append(
            {
                **common,
                "without": name,
                "designs": len(some),
                "log_variance": float(log.mean()),
                "more": float(more.mean()),
                "error": float(more.std(ddof=1) / np.sqrt(len(more))),
                "worse": int((more > 0.01).sum()),
                "better": int((more < -0.01).sum()),
                "fall_back": int(back.sum()),
                "cost": float(cost.max()),
                "broken": int((cost > BROKEN).sum()),
                "predicted": int(((ratio >= PREDICTION[0]) & (ratio <= PREDICTION[1])).sum()),
                "used": int(used.sum()),
            }
        )
    return lines


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """One line for each family, kind of design and variant; those without an effect share one."""
    header = (
        "half", "designs", "without", "number", "log variance, mean", "more than as it is",
        "1 % worse, better", "fall back", "cost, largest", "> 1.005", "predicted within .8 to 1.25",
    )  # fmt: skip
    shown: dict[tuple[str, ...], list[str]] = {}
    for line in content["lines"]:
        cells = (
            f"{line['designs']}",
            f"{line['log_variance']:.4f}",
            f"{line['more']:+.4f} ± {line['error']:.4f}",
            f"{line['worse']}, {line['better']}",
            f"{line['fall_back']}",
            f"{line['cost']:.4f}",
            f"{line['broken']}",
            f"{line['predicted']} of {line['used']}",
        )
        what = (line["half"], f"{line['family']}: {line['kind']}")
        shown.setdefault((*what, *cells), []).append(line["without"])
    lines = tuple(
        (*key[:2], "; ".join(names), *key[2:])  # the same decisions
        for key, names in shown.items()
    )
    return [
        Table("", header, lines),
        Note(
            "Variance and cost are exact and relative to the target policy's. ± is the standard "
            "error of the mean paired difference."
        ),
    ]


if __name__ == "__main__":
    main("experiments.choices")
