"""Golden cases of frontiers: learned from logs, exact, and what their points are worth."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from golden_designs import POINTS
from golden_numbers import (
    ASSESSMENT,
    Numbers,
    case,
    documented,
    fields,
    of_behavior,
    of_evaluation,
    prefixed,
)
from golden_worlds import (
    HOURS,
    STEPS,
    Drift,
    Store,
    changing,
    drifting,
    grid,
    leaning,
    small_mlp,
    small_model,
    store,
    thin_grid,
)
from scopeval import (
    BehaviorPolicy,
    Bound,
    Check,
    Frontier,
    Inference,
    Plant,
    Promise,
    Table,
    evaluate,
    exact,
    frontier,
    load,
    simulate,
)

POINT = "variance cost checked_variance checked_cost safe_variance safe_cost"
EXACT_POINT = "variance cost relative_variance relative_cost"
#: Weights of an episode so far at which behavior policies are asked.
WEIGHTS = (0.2, 1.0, 6.0)
#: Points that most cases choose, by the arguments of `Frontier.at`; an empty one is the best point.
CHOSEN: Mapping[str, dict[str, float]] = {
    "cheap": {"cost": 0.8},
    "own": {"cost": 1.0},
    "best": {},
}


def chosen_of(curve: Any, how: dict[str, float]) -> Any:
    """A point of a learned or exact frontier."""
    return curve.at(**how) if how else curve.best()


def of_curve(curve: Frontier) -> Numbers:
    """Every fifth point of a learned frontier, how many there are, and where ODI lies."""
    return {
        "points": [fields(point, POINT) for point in curve.points[::5]],
        "offered": [len(curve.points), len(curve.warnings)],
        "odi": curve.curve.odi,
    }


def answers_at(behavior: Any, obs: Any, horizon: int, target: Any) -> Numbers:
    """Probabilities at some times and weights; the control variate, if there is one."""
    offer = documented("Candidates")
    probs, control = [], []
    for t in sorted({0, horizon // 2, horizon - 1}):
        own = np.ascontiguousarray(target(obs, t))
        offered = offer(np.broadcast_to(np.arange(own.shape[1]), own.shape), own)
        for weight in WEIGHTS:
            state = documented("EpisodeState").of_weights(np.full(len(own), weight))
            found = behavior.weigh(offered, obs, t, state)
            probs.append(found.probs)
            control.append(found.control)
    return {"probs": probs, "control": None if control[0] is None else control[:: len(WEIGHTS)]}


def of_point(behavior: BehaviorPolicy) -> Numbers:
    """What a point of a learned frontier promises."""
    return of_behavior(behavior) | {"cap": behavior.largest_weight}


def learned_case(
    name: str,
    world: Callable[[], Any] = changing,
    log: Callable[[], Any] | None = None,
    chosen: Mapping[str, dict[str, float]] = CHOSEN,
    **settings: Any,
) -> None:
    """Register a frontier for state numbers, some of its points, and what these are worth."""

    def run() -> Numbers:
        mdp, target, logged = world()
        known = {"horizon": mdp.horizon, "gamma": mdp.gamma} | settings
        curve = frontier(logged if log is None else log(), target, **known)
        numbers = of_curve(curve)
        states = np.unique(np.linspace(0, mdp.states - 1, 5).astype(int))
        for where, how in chosen.items():
            behavior = chosen_of(curve, how)
            found = of_point(behavior) | answers_at(behavior, states, mdp.horizon, target.probs)
            table = exact.tabulate(mdp, target, behavior, points=40)
            found["tabulated"] = fields(table.predicted, EXACT_POINT)
            numbers |= prefixed(where, found)
        return numbers

    case(f"frontier.{name}")(run)


learned_case("scope-dr", learn=Table(time_varying=True))
learned_case("scope", method="scope", learn=Table(time_varying=True))
learned_case("pooled", chosen={"cheap": {"cost": 0.7}, "precise": {"variance": 0.9}})
# at a cost of 1 the search for its price ends one step earlier or later with another kernel of BLAS
learned_case(
    "grid-scope",
    grid,
    method="scope",
    chosen={"cheap": {"cost": 0.8}, "near": {"cost": 0.9}, "best": {}},
)
learned_case(
    "grid-settings",
    grid,
    method="scope",
    cap=4.0,
    points=16,
    seed=3,
    gamma=0.9,
    check=Check(floor=0.05),
)
learned_case("denied", grid, chosen={})
learned_case("thin", grid, lambda: thin_grid(60), method="scope", chosen={"best": {}})


def exact_case(name: str, world: Callable[[], Any], **settings: Any) -> None:
    """Register an exact frontier, some of its designs, and what these are worth."""

    def run() -> Numbers:
        mdp, target, _ = world()
        curve = exact.frontier(mdp, target, **settings)
        numbers: Numbers = {
            "curve": [curve.relative_variance[::5], curve.relative_cost[::5]],
            "own": fields(curve.own, ASSESSMENT),
        }
        states = np.unique(np.linspace(0, mdp.states - 1, 5).astype(int))
        for where, how in (CHOSEN | {"below": {"cost": 0.7}}).items():
            found = chosen_of(curve, how)
            again = exact.tabulate(mdp, target, found, points=40)
            numbers |= prefixed(where, answers_at(found, states, mdp.horizon, target.probs))
            numbers[f"{where}.predicted"] = fields(found.predicted, EXACT_POINT)
            numbers[f"{where}.tabulated"] = fields(again.predicted, EXACT_POINT)
        return numbers

    case(f"frontier.exact-{name}")(run)


exact_case("grid", grid)
exact_case("changing", changing)
exact_case("none", changing, control_variate="none", points=24, cap=8.0, floor=0.02)
exact_case("uncapped", grid, cap=None)


@case("frontier.evaluate")
def _evaluate() -> Numbers:
    """Points run by the simulator and in an environment; a table of one."""
    mdp, target, log = changing()
    settings: dict[str, Any] = {
        "horizon": mdp.horizon,
        "gamma": mdp.gamma,
        "learn": Table(time_varying=True),
    }
    learned = frontier(log, target, **settings).at(cost=0.8)
    best = exact.frontier(mdp, target).at(cost=0.7)
    table = exact.tabulate(mdp, target, learned)
    many = simulate.moments(mdp, target, table, episodes=2000, seed=6)
    plant, logged, _ = store()
    cheap = frontier(logged, plant, horizon=HOURS, method="scope").at(cost=0.9)
    runs = {
        "learned": evaluate(
            mdp, target, learned, episodes=200, seed=1, inference=Inference(keep=True)
        ),
        "exact": evaluate(mdp, target, best, episodes=200, seed=2),
        "bounded": evaluate(
            mdp,
            target,
            learned,
            episodes=300,
            seed=3,
            promise=Promise(at_most=0.8, bound=Bound(episode=4.0)),
        ),
        "store": evaluate(
            Plant(Store, side_by_side=4),
            plant,
            cheap,
            horizon=HOURS,
            episodes=40,
            inference=Inference(keep=True),
        ),
    }
    numbers: Numbers = {"moments": [many.estimate, many.variance, many.cost]}
    for name, result in runs.items():
        numbers |= prefixed(name, of_evaluation(result))
    return numbers


@case("frontier.save-load")
def _save_load() -> Numbers:
    """A point from a file gives the same answers; single actions."""
    target, log, _ = store()
    behavior = frontier(log, target, horizon=HOURS, method="scope").at(cost=0.9)
    with tempfile.TemporaryDirectory() as folder:
        behavior.save(Path(folder) / "mu.scope")
        back = load(Path(folder) / "mu.scope", target)
    states, rng = np.arange(8), np.random.default_rng(5)
    here = answers_at(behavior, states, HOURS, target.probs)
    there = answers_at(back, states, HOURS, target.probs)
    drawn = [back.act(s, t, rng, weight=w) for t, s, w in ((0, 3, 1.0), (2, 5, 0.3), (5, 1, 4.0))]
    return (
        of_point(back)
        | there
        | {
            "same": np.array_equal(here["probs"], there["probs"]),
            "act": [fields(x, "action probability target_probability") for x in drawn],
        }
    )


def vector_case(name: str, regression: Callable[[], Any], **settings: Any) -> None:
    """Register a frontier for vectors and finite actions; its best point is run."""

    def run() -> Numbers:
        curve = frontier(drifting(), leaning, horizon=STEPS, learn=regression(), **settings)
        behavior = curve.best()
        result = evaluate(Plant(Drift, side_by_side=4), leaning, behavior, episodes=20, seed=2)
        drawn, best = of_curve(curve), of_point(behavior)
        del drawn["odi"]  # by float32 networks it is known to 4e-7 only
        del best["holdout"]  # rewards that differ by 1e-10 may change it by 1e-3
        return (
            drawn
            | prefixed("best", best)
            | prefixed("best", answers_at(behavior, POINTS, STEPS, leaning))
            | prefixed("run", of_evaluation(result))
        )

    case(f"network.frontier-{name}")(run)


vector_case("mlp", small_mlp, method="scope", points=12)
vector_case("model", small_model, points=12)
