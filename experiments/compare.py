"""How many episodes does a comparison take, beside an A/B test and what else a user can do?

The variance (or squared error) of J(new) - J(old) by 1,000 episodes, relative to that of an A/B
test of as many. Parts:

- ``pairs``: Gridworlds; old and other are random policies, new = (1 - x) old + x other. With 1,000
  logged episodes and without; beside two separate designs from the same logs (500 episodes each).
  One on-policy evaluation of each policy is the A/B test;
- ``unseen``: worlds like users' (`experiments.unseen_worlds`), 10 and 30 % of decisions changed;
- ``promise``: the cheapest and the most expensive of twelve policies, "at most today's cost";
- ``same``: A/A tests, the same policy twice, a copy that differs by rounding, and two policies of
  equal value: how often a winner is named, with a fixed number of episodes and by a sequence;
- ``best``: ten candidates: the gap to the best, beside an A/B/n test, and episodes until it is
  known.

"Covers": how often the interval for a fixed number of episodes contains the true difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal

import numpy as np

from experiments.common import RunArgs, Table, main, mean_of
from scopeval import Plant, Promise, Stop, assess, compare, design, evaluate
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.exact import TabularMDP

Part = Literal["pairs", "unseen", "promise", "same", "best"]
PARTS: tuple[Part, ...] = ("pairs", "unseen", "promise", "same", "best")


@dataclass(frozen=True)
class Args(RunArgs):
    """How many episodes a comparison takes."""

    parts: tuple[Part, ...] = PARTS
    """What to measure."""
    sizes: tuple[int, ...] = (10, 30)
    """Cells along one side of the Gridworlds; also the horizon."""
    pairs: int = 30
    """Pairs of policies, each in its own world."""
    changes: tuple[float, ...] = (0.2, 0.5, 1.0)
    """Shares x of the other policy."""
    episodes: int = 1000
    """Of every comparison."""
    logged: int = 1000
    """Episodes in the logs."""
    separate: bool = True
    """Two separate designs too, which take most of the time."""
    runs: int = 1000
    """A/A tests of each kind."""
    seed: int = 0
    """Pair k is in world seed + k, and its logs and episodes follow from that number."""

    RANGES: ClassVar[tuple[str, ...]] = ("parts", "sizes", "pairs", "runs")


QUICK: dict[str, Any] = {"sizes": (10,), "pairs": 3, "runs": 40}
#: A/A tests in one job.
TOGETHER = 20
#: Candidates of the part ``best``, and their share of the other policy.
CANDIDATES, MIXED = 10, 0.3
#: Share of decisions that differ in unseen worlds.
DIFFER = (0.1, 0.3)


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each world and pair."""
    every: list[dict[str, Any]] = []
    for part in args.parts:
        if part in ("pairs", "promise", "best"):
            every += [
                {"part": part, "world": f"{size} x {size}", "pair": k}
                for size in args.sizes
                for k in range(args.pairs)
            ]
        elif part == "unseen":
            few = -(-args.pairs // 10)
            names = [*_unseen_worlds().WORLDS][: 2 if args.pairs < 10 else None]
            every += [{"part": part, "world": w, "pair": k} for w in names for k in range(few)]
        else:
            count = -(-args.runs // TOGETHER)
            every += [{"part": part, "world": "10 x 10", "pair": k} for k in range(count)]
    return every


def job(args: Args, part: Part, world: str, pair: int) -> dict[str, Any]:
    """All comparisons of one pair."""
    run = {"pairs": _pairs, "unseen": _unseen, "promise": _promise, "same": _same, "best": _best}
    return {"results": run[part](args, world, args.seed + pair)}


# -- pairs -----------------------------------------------------------------------------------------


def _pairs(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=seed).mdp()
    old, other = (p.table(size) for p in target_policies(2, size, seed=seed))
    logs = gridworld_logs(mdp, args.logged, seed=seed)
    results = []
    for x in args.changes:
        new = (1.0 - x) * old + x * other
        results += _measured(args, mdp, old, new, logs, seed, {"x": x})
    return results


def _unseen(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    worlds = _unseen_worlds()
    mdp = worlds.WORLDS[world][1]()
    old = worlds.target_of(mdp, "trained", seed)
    other = worlds.target_of(mdp, ("random", "soft", "careful")[seed % 3], seed)
    logs = worlds.logs_for(mdp, old, f"varied-{args.logged}", seed)
    apart = _distance(mdp, old, other)
    results = []
    for share in DIFFER:
        x = min(share / apart, 1.0)
        new = (1.0 - x) * old + x * other
        results += _measured(args, mdp, old, new, logs, seed, {"x": share}, separate=False)
    return results


def _unseen_worlds() -> Any:
    return import_module("experiments.unseen_worlds")


def _distance(mdp: TabularMDP, old: np.ndarray, other: np.ndarray) -> float:
    """Mean total-variation distance of the decisions, where the old policy goes."""
    chance, total = np.asarray(mdp.initial), 0.0
    for t in range(mdp.horizon):
        total += float(chance @ np.abs(old[t] - other[t]).sum(axis=1)) / 2.0 / mdp.horizon
        chance = np.asarray(mdp.transition.T @ (chance[:, None] * old[t]).ravel())
    return total


def _measured(
    args: Args,
    mdp: TabularMDP,
    old: np.ndarray,
    new: np.ndarray,
    logs: Any,
    seed: int,
    case: Mapping[str, Any],
    *,
    separate: bool = True,
) -> list[dict[str, Any]]:
    """By logs, without logs, and by two separate designs."""
    truth = {name: assess(mdp, p, p) for name, p in (("old", old), ("new", new))}
    ab = 2.0 * (truth["old"].variance + truth["new"].variance)
    gap = truth["new"].value - truth["old"].value
    rows = []
    for how, known in (("1,000 logged episodes", logs), ("no logs", None)):
        found = compare(
            mdp, {"old": old, "new": new}, episodes=args.episodes, logs=known, seed=seed + 10**6
        )
        d = found.differences["new"]
        rows.append(
            {
                **case,
                "how": how,
                "ratio": d.se**2 * d.n / ab,
                "square": (d.estimate - gap) ** 2 * d.n / ab,
                "covers": bool(d.contains(gap)),
                "cost": found.cost.per_episode / truth["old"].cost,
            }
        )
    if not (separate and args.separate):
        return rows
    half, squares, away, spent = args.episodes // 2, [], -gap, 0.0
    for sign, name, policy in ((-1.0, "old", old), (1.0, "new", new)):
        mu = design(logs, policy, horizon=mdp.horizon, seed=seed)
        one = evaluate(mdp, policy, mu, episodes=half, seed=seed + 10**6 + len(name))
        squares.append((one.interval.half_width / 1.96) ** 2)
        away += sign * one.estimate
        spent += one.cost.per_episode / 2.0
    error = sum(squares)
    rows.append(
        {
            **case,
            "how": "two separate designs",
            "ratio": error * args.episodes / ab,
            "square": away**2 * args.episodes / ab,
            "covers": abs(away) <= 1.96 * error**0.5,
            "cost": spent / truth["old"].cost,
        }
    )
    return rows


# -- a promise, A/A tests, the best of ten ---------------------------------------------------------


def _promise(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=seed).mdp()
    tables = [p.table(size) for p in target_policies(12, size, seed=seed)]
    costs = [assess(mdp, p, p).cost for p in tables]
    old, new = tables[int(np.argmin(costs))], tables[int(np.argmax(costs))]
    truth = [assess(mdp, p, p) for p in (old, new)]
    ab, gap = 2.0 * sum(t.variance for t in truth), truth[1].value - truth[0].value
    logs = gridworld_logs(mdp, args.logged, seed=seed)
    plant = Plant(lambda: TabularEnv(mdp), side_by_side=256)
    rows = []
    for how, env, promise, known in (
        ("the policies alone", mdp, None, logs),
        ("design, known MDP", mdp, Promise(at_most=1.0), None),
        ("design, from logs", plant, Promise(at_most=1.0), logs),
    ):
        x = max(costs) / min(costs)
        try:
            found = compare(
                env,
                {"old": old, "new": new},
                episodes=args.episodes,
                horizon=size,
                promise=promise,
                logs=known,
                seed=seed + 10**6,
            )
        except InputError:  # not answerable at this cost
            rows.append({"x": x, "how": f"{how}: not answerable"})
            continue
        d = found.differences["new"]
        rows.append(
            {
                "x": x,
                "how": how,
                "ratio": d.se**2 * d.n / ab,
                "square": (d.estimate - gap) ** 2 * d.n / ab,
                "covers": bool(d.contains(gap)),
                "cost": found.cost.per_episode / truth[0].cost,
            }
        )
    return rows


def _same(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    """The same policy, a copy with rounding, and other policies of equal value."""
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=0).mdp()
    old, other = (p.table(size) for p in target_policies(2, size, seed=0))
    copy = old * (1.0 + 1e-15 * np.random.default_rng(seed).normal(size=old.shape))
    level = TabularMDP(  # rewards that no action changes
        mdp.initial,
        mdp.transition,
        np.zeros((mdp.states, mdp.actions)),
        np.zeros((mdp.states, mdp.actions)),
        mdp.horizon,
        reward_variance=np.ones((mdp.states, mdp.actions)),
    )
    rows = []
    for run in range(TOGETHER):
        number = (seed - args.seed) * TOGETHER + run
        for kind, model, second in (
            ("the same policy", mdp, old),
            ("a copy that differs by rounding", mdp, copy),
            ("another policy of equal value", level, other),
        ):
            for how, plan in (
                ("fixed", {"episodes": 100}),
                ("sequence", {"stop": Stop(episodes=400, decided=True)}),
            ):
                found = compare(model, {"old": old, "new": second}, seed=number, **plan)
                winner = found.differences["new"].verdict != "undecided"
                rows.append({"x": 0.0, "how": f"{kind}, {how}", "winner": winner})
    return rows


def _best(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=seed).mdp()
    common, *others = (p.table(size) for p in target_policies(CANDIDATES + 1, size, seed=seed))
    several = {f"p{k}": (1.0 - MIXED) * common + MIXED * p for k, p in enumerate(others)}
    truth = {name: assess(mdp, p, p) for name, p in several.items()}
    best = max(truth, key=lambda name: truth[name].value)
    logs = gridworld_logs(mdp, args.logged, seed=seed)
    order = {best: several[best], **several}
    found = compare(mdp, order, episodes=args.episodes, logs=logs, seed=seed + 10**6)
    ratios, covered = [], []
    for name, d in found.differences.items():
        covered.append(d.low <= truth[name].value - truth[best].value <= d.high)
        ab = CANDIDATES * (truth[name].variance + truth[best].variance)
        ratios.append(d.se**2 * d.n / ab)
    known = compare(
        mdp, order, stop=Stop(decided=True, episodes=20_000), logs=logs, seed=seed + 2 * 10**6
    )
    return [
        {"x": MIXED, "how": "gap to the best", "ratio": float(np.mean(ratios)),
         "covers": all(covered)},
        {"x": MIXED, "how": "episodes until it is known", "ratio": float(known.episodes),
         "covers": known.best is not None and known.best.decided and known.best.name == best},
    ]  # fmt: skip


# -- tables ----------------------------------------------------------------------------------------


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with standard errors over pairs, for every part, world and kind."""
    cases: dict[tuple[str, str, float, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for one in row["results"]:
            x = 0.0 if row["part"] == "promise" else one["x"]
            cases.setdefault((row["part"], row["world"], x, one["how"]), []).append(one)
    blocks = []
    for (part, world, x, how), every in cases.items():
        block: dict[str, Any] = {"part": part, "world": world, "x": x, "how": how, "n": len(every)}
        if part == "same":
            block["winners"] = float(np.mean([one["winner"] for one in every]))
        else:
            said = [one for one in every if "ratio" in one]
            block["worst"] = max((one["ratio"] for one in said), default=None)
            block["covers"] = float(np.mean([one["covers"] for one in said])) if said else None
            for name in ("ratio", "square", "cost"):
                measured = [one[name] for one in every if name in one]
                block[name] = mean_of(measured) if measured else None
        blocks.append(block)
    return {"blocks": blocks}


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table for each part."""
    shown: list[Table | str] = []
    for part in PARTS:
        blocks = [b for b in content["blocks"] if b["part"] == part]
        if not blocks:
            continue
        if part == "same":
            tests = tuple((b["how"], f"{b['n']:,}", f"{b['winners']:.3f}") for b in blocks)
            shown.append(Table("A/A tests: how often a winner is named", _SAME, tests))
            continue
        rows = tuple(
            (
                f"{b['world']}, x = {b['x']:g}" if part != "promise" else b["world"],
                b["how"],
                f"{b['n']}",
                _with_error(b["ratio"]),
                "-" if b["worst"] is None else f"{b['worst']:.3g}",
                _with_error(b["square"]),
                "-" if b["covers"] is None else f"{b['covers']:.2f}",
                _with_error(b["cost"]),
            )
            for b in blocks
        )
        shown.append(Table(_CAPTIONS[part], _HEADER, rows))
    config = content["config"]
    return [
        *shown,
        f"{config['pairs']} pairs, {config['episodes']:,} episodes each, seed {config['seed']}. "
        "Ratio: the variance of one episode's value of the difference, from out-of-fold values, "
        "relative to that of an A/B test (exact). Worst: of any pair. Square: the squared error "
        "against the exact difference, relative to what the A/B test's is in expectation. Cost of "
        "an episode: relative to the old policy's. ± is the standard error over pairs.",
    ]


_SAME = ("test", "runs", "winner")
_HEADER = ("world", "by", "pairs", "ratio", "worst", "square", "covers", "cost")
_CAPTIONS = {
    "pairs": "Variance of J(new) - J(old) relative to an A/B test of as many episodes",
    "unseen": "The same in worlds like users', x: share of the decisions that differ",
    "promise": "A new policy that is more expensive, with at most today's cost",
    "best": "Ten candidates: gap to the best relative to an A/B/n test; episodes until it is known",
}


def _with_error(numbers: Mapping[str, Any] | None) -> str:
    if numbers is None:
        return "-"
    mean, error = numbers["mean"], numbers["standard_error"]
    if mean is None or not np.isfinite(mean):
        return "-"
    return f"{mean:.3g} ± {error:.1g}" if error is not None else f"{mean:.3g}"


if __name__ == "__main__":
    main("experiments.compare")
