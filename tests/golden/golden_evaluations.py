"""Golden cases of finite models, the program of every step, evaluations and frontiers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from experiments.mlp.regression import MLPRegression
from golden_designs import POINTS
from golden_worlds import (
    ASSESSMENT,
    BUDGETS,
    HOURS,
    INTERVAL,
    METHODS,
    MOMENTS,
    SIZE,
    STATE,
    STEPS,
    Drift,
    Failing,
    Fleet,
    Numbers,
    Pushed,
    Store,
    Unreliable,
    case,
    changing,
    documented,
    drifting,
    fields,
    grid,
    leaning,
    of_behavior,
    of_design,
    of_episodes,
    of_evaluation,
    of_log,
    prefixed,
    push_design,
    small_mlp,
    small_model,
    store,
    thin_grid,
)
from scopeval import (
    BehaviorPolicy,
    Bound,
    Check,
    Comparison,
    EpisodeLog,
    Episodes,
    Frontier,
    Guard,
    Inference,
    Limit,
    Plant,
    Promise,
    Question,
    Ramp,
    Stop,
    Table,
    TabularPolicy,
    collect,
    compare,
    design,
    estimate,
    evaluate,
    exact,
    frontier,
    load,
    read_logs,
    simulate,
    solve,
)
from scopeval.envs.tabular import TabularEnv
from scopeval.solver import solve_priced

# -- cases: finite models, exactly ---------------------------------------------------------------

for _where, _world in (("grid", grid), ("changing", changing)):
    for _method in METHODS:

        def _run(world: Any = _world, method: str = _method) -> Numbers:
            mdp, target, _ = world()
            numbers: Numbers = {}
            for budget in BUDGETS:
                found = exact.design(mdp, target, method, promise=Promise(per=budget))
                numbers |= prefixed(budget, of_design(found, mdp, target))
            return numbers

        case(f"exact.{_where}-{_method}")(_run)


@case("exact.settings")
def _exact_settings() -> Numbers:
    numbers: Numbers = {}
    for where, world in (("grid", grid), ("changing", changing)):
        mdp, target, _ = world()
        own = exact.cost_values(mdp, target).v
        settings: dict[str, dict[str, Any]] = {
            "epsilon": {"promise": Promise(at_most=1.1)},
            "target": {"constraint": "target", "promise": Promise(at_most=1.05)},
            "limit": {"promise": Promise(limit=0.9 * float(own[0].max()), per="state")},
            "limits": {"limits": 1.02 * own[0]},
            "dr": {"method": "scope-dr", "promise": Promise(at_most=1.03, per="episode")},
        }
        for name, some in settings.items():
            found = exact.design(mdp, target, **{"method": "scope", **some})
            numbers |= prefixed(f"{where}.{name}", of_design(found, mdp, target))
    return numbers


@case("exact.values")
def _exact_values() -> Numbers:
    mdp, target, _ = changing()
    rng = np.random.default_rng(1)
    behavior = TabularPolicy(rng.dirichlet(np.ones(3), (4, 5)))
    control = rng.normal(size=(4, 5, 3))
    found = exact.assess(mdp, target, behavior, control)
    holes = np.array(behavior.table(4))
    holes[:, :, 0] = 0.0
    bare = exact.assess(mdp, target, holes / holes.sum(axis=2, keepdims=True))
    values, costs = exact.values(mdp, target), exact.cost_values(mdp, behavior)
    return {
        "values": [values.v, costs.v],
        "actions": [values.q, costs.q],
        "assessed": fields(found, ASSESSMENT),
        "bare": fields(bare, ASSESSMENT),
        "variances": found.variances,
        "second": found.second_moments[1],
    }


@case("exact.solver")
def _solver() -> Numbers:
    rng = np.random.default_rng(2)
    weight, cost = rng.random((12, 4)), rng.random((12, 4))
    budget = cost.min(axis=1) + 0.3 * np.ptp(cost, axis=1)
    weight[3] = 0.0  # indifferent
    budget[4] = cost[4].min() - 0.1  # infeasible
    budget[5] = 2.0  # does not bind
    weight[6, cost[6].argmin()] = 0.0  # nothing on the cheapest
    budget[6] = cost[6].min() + 0.02
    weight[7] *= 1e-8
    cost[8] += 1e6
    budget[8] += 1e6
    found = solve(weight, cost, budget)
    kept = solve(weight, cost, budget, fallback=np.full((12, 4), 0.25))
    wide = rng.random((2, 20_000, 3))  # several threads
    numbers: Numbers = {
        "many": solve(wide[0], wide[1], wide[1].mean(axis=1)).mu.sum(axis=0),
        "mu": found.mu,
        "multiplier": found.multiplier,
        "status": [*found.status, *found.binding],
        "kept": kept.mu,
    }
    for price in (0.0, 0.7):
        priced = solve_priced(weight, cost, price)
        numbers[f"priced-{price}"] = priced.mu
        numbers[f"priced-{price}.status"] = priced.status
    return numbers


@case("exact.simulate")
def _simulate() -> Numbers:
    mdp, target, _ = changing()
    found = exact.design(mdp, target, "scope-dr")
    run = simulate.trajectories(mdp, found, episodes=20, seed=4, first=3)
    each = simulate.summaries(
        mdp, target, found, episodes=12, control_variate=found.control, seed=4
    )
    many = simulate.moments(mdp, target, found, episodes=40_000, seed=4, block=35_000)
    return {
        "states": run.states,
        "actions": run.actions,
        "rewards": run.rewards,
        "costs": run.costs,
        "summaries": [each.estimate, each.cost, each.weighted_cost],
        "moments": fields(many, MOMENTS),
    }


# -- cases: evaluations --------------------------------------------------------------------------


#: Stores that run side by side.
MANY = Plant(Store, side_by_side=4)


def costly(mdp: exact.TabularMDP) -> TabularPolicy:
    """A behavior policy that spends more than the target."""
    cost = mdp.at("cost", 0)
    weight = 0.2 + cost / cost.max(axis=1, keepdims=True)
    return TabularPolicy(weight / weight.sum(axis=1, keepdims=True))


@case("evaluate.model")
def _evaluate_model() -> Numbers:
    """A TabularMDP with exact and learned designs, and by the target itself."""
    mdp, target, log = grid()
    learned = design(log, target, horizon=mdp.horizon, method="scope-dr")
    plain = design(log, target, horizon=mdp.horizon, method="scope")
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "own": (None, {}),
        "learned": (learned, {}),
        "kept": (learned, {"inference": Inference(keep=True)}),
        "exact": (exact.design(mdp, target, "scope-dr"), {"seed": 3}),
        "plain": (plain, {"inference": Inference(alpha=0.1, interval="normal")}),
        "is": (plain, {"inference": Inference(estimator="is", interval="sequence")}),
        "pdis": (
            learned,
            {"promise": Promise(at_most=1.1), "inference": Inference(estimator="pdis")},
        ),
        "short": (learned, {"horizon": 3}),
    }
    numbers: Numbers = {}
    for name, (behavior, settings) in runs.items():
        env = Plant(mdp, cost="none") if name == "short" else mdp
        result = evaluate(env, target, behavior, episodes=200, **settings)
        numbers |= prefixed(name, of_evaluation(result))
    return numbers


@case("evaluate.changing")
def _evaluate_changing() -> Numbers:
    """Random rewards, a discount, an end; a design without coverage."""
    mdp, target, _ = changing()
    numbers: Numbers = {}
    for method in METHODS:
        behavior = exact.design(mdp, target, method)
        result = evaluate(mdp, target, behavior, episodes=150, seed=1)
        numbers |= prefixed(method, of_evaluation(result))
    bare = np.array(target.table(4))
    bare[:, :, 0] = 0.0
    holes = TabularPolicy(bare / bare.sum(axis=2, keepdims=True))
    numbers |= prefixed("holes", of_evaluation(evaluate(mdp, target, holes, episodes=150)))
    return numbers


@case("evaluate.stopping")
def _stopping() -> Numbers:
    """Precision, a cost budget, and a promise that is refuted."""
    mdp, target, log = grid()
    behavior = design(log, target, horizon=mdp.horizon, method="scope-dr")
    seen: list[list[float]] = []

    def look(now: Any) -> None:
        seen.append([now.done, now.cost, *fields(now.interval, INTERVAL)])

    precise = evaluate(mdp, target, behavior, progress=look, stop=Stop(precision=0.05))
    spent = evaluate(mdp, target, behavior, stop=Stop(cost=150.0, every=20))
    first = evaluate(mdp, target, behavior, episodes=100, stop=Stop(precision=1e-3))
    refuted = evaluate(mdp, target, costly(mdp), episodes=3000, seed=5)
    unguarded = evaluate(mdp, target, costly(mdp), episodes=300, promise=Promise(action="tell"))
    return (
        prefixed("precise", of_evaluation(precise))
        | prefixed("spent", of_evaluation(spent))
        | prefixed("first", of_evaluation(first))
        | prefixed("refuted", of_evaluation(refuted))
        | prefixed("unguarded", of_evaluation(unguarded))
        | {"progress": seen[:5], "looks": len(seen)}
    )


@case("evaluate.compare")
def _compare() -> Numbers:
    """Several policies: a number of episodes, until it is decided, a ramp, a plant, and again."""
    mdp, _, log = changing()
    rng = np.random.default_rng(5)
    old, *others = (rng.dirichlet(np.ones(mdp.actions), (4, mdp.states)) for _ in range(3))
    both = {"old": old, "new": 0.5 * old + 0.5 * others[0]}
    several = both | {"other": others[1]}
    plant = Plant(lambda: TabularEnv(mdp), side_by_side=8)
    runs: dict[str, Comparison] = {
        "fixed": compare(mdp, both, episodes=150),
        "logs": compare(mdp, both, episodes=150, logs=log),
        "decided": compare(mdp, several, stop=Stop(decided=True, episodes=300)),
        "ramp": compare(mdp, several, Ramp((0.2, 1.0), episodes=50), episodes=150),
        "plant": compare(plant, both, horizon=4, stop=Stop(precision=1e-3, episodes=100)),
    }
    numbers: Numbers = {}
    for name, result in runs.items():
        every = {f"value-{k}": v for k, v in result.values.items()}
        every |= {f"difference-{k}": v for k, v in result.differences.items()}
        for of, one in every.items():
            numbers |= prefixed(f"{name}-{of}", {"interval": fields(one, f"{INTERVAL} se")})
        numbers |= prefixed(name, {"cost": [result.cost.total], "n": [result.episodes]})
    return numbers


@case("evaluate.gymnasium")
def _evaluate_gymnasium() -> Numbers:
    target, _, behavior = store()
    usual: dict[str, Any] = {"horizon": HOURS, "episodes": 60}
    runs: dict[str, tuple[Any, Any, dict[str, Any]]] = {
        "kept": (MANY, behavior, {"inference": Inference(keep=True)}),
        "single": (Store(), behavior, {}),
        "own": (MANY, None, {"seed": 4}),
        "named-cost": (Plant(Store, "power", 4), behavior, {"policy": Question(target, gamma=0.9)}),
        "cost": (Plant(Store, lambda obs, action, reward, following, info: 1.0, 4), behavior, {}),
        "no-cost": (Plant(Store, "none", 4), behavior, {"inference": Inference(estimator="is")}),
        "limit": (MANY, behavior, {"seed": 2, "promise": [Limit(episode=5.0)]}),
        "total": (MANY, behavior, {"promise": [Promise(at_most=1.1), Limit(total=60.0)]}),
        "lost": (
            Plant(Unreliable, side_by_side=4),
            behavior,
            {"seed": 7, "inference": Inference(keep=True)},
        ),
        "failing": (MANY, Failing(behavior), {"seed": 8, "inference": Inference(keep=True)}),
        "fleet": (Fleet(), behavior, {"inference": Inference(keep=True)}),
        "precise": (MANY, behavior, {"episodes": 400, "stop": Stop(precision=0.8)}),
    }
    numbers: Numbers = {}
    for name, (env, how, settings) in runs.items():
        result = evaluate(env, run=how, **({"policy": target} | usual | settings))
        numbers |= prefixed(name, of_evaluation(result))
    return numbers


@case("evaluate.registered")
def _registered() -> Numbers:
    """The Gridworld as a registered environment, and a guard fed by hand."""
    mdp, target, _ = grid()
    make = "scopeval/Gridworld-v0"
    behavior = exact.design(mdp, target, "scope-dr", promise=Promise(per="episode"))
    result = evaluate(
        lambda: gymnasium.make(make, size=SIZE), target, behavior, horizon=SIZE, episodes=24
    )
    guard, rng = Guard(alpha=0.1, target_n=100), np.random.default_rng(0)
    states = []
    for _ in range(8):
        cost = 1.0 + rng.random(25)
        state = guard.update(cost, 0.7 * cost, spent=cost, lost=0.5)
        states.append([*fields(state, STATE), state.interval.low])
    return of_evaluation(result) | {"guard-states": states}


@case("evaluate.collect")
def _collect() -> Numbers:
    """Episodes of an environment and of a model; a guard in the middle of them; files."""
    target, _, behavior = store()
    mdp, own, _ = grid()
    some = collect(Store, target, behavior, horizon=HOURS, episodes=12, seed=3, first=5)
    guarded = collect(
        Plant(Store, side_by_side=3),
        target,
        behavior,
        horizon=HOURS,
        episodes=12,
        guard_step=lambda running: running > 3.0,
    )
    modeled = collect(mdp, own, exact.design(mdp, own, "scope-dr"), episodes=10, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        some.save(Path(folder) / "episodes.npz")
        back = Episodes.load(Path(folder) / "episodes.npz")
    return (
        prefixed("some", of_episodes(some))
        | prefixed("guarded", of_episodes(guarded))
        | prefixed("model", of_episodes(modeled))
        | prefixed("loaded", of_episodes(back))
    )


@case("evaluate.episode-log")
def _episode_log() -> Numbers:
    """A control loop of one's own, and estimates from its episodes."""
    target, _, behavior = store()
    log, rng, plant = EpisodeLog(horizon=HOURS), np.random.default_rng(6), Store()
    for day in range(40):
        level, _ = plant.reset(seed=500 + day)
        log.start()
        over = False
        for t in range(HOURS):
            chosen = behavior.act(level, t, rng)
            following, reward, over, _, info = plant.step(chosen.action)
            log.step(level, chosen, reward, info["cost"])
            level = following
            if over:
                break
        if day % 13 == 5:
            log.lose("given up")
        else:
            log.end(level, terminated=over)
    episodes = log.episodes()
    other = np.asarray(target.table(1)[0])[:, ::-1]
    q = np.linspace(-1.0, 1.0, HOURS * 8 * 3).reshape(HOURS, 8, 3)
    settings: dict[str, dict[str, Any]] = {
        "same": {"promise": Promise(at_most=1.1)},
        "anytime": {"anytime": True, "inference": Inference(alpha=0.1)},
        "pdis": {"gamma": 0.9, "inference": Inference(estimator="pdis", interval="normal")},
        "other": {"policy": other},
        "controlled": {"policy": target, "q": q},
    }
    numbers = prefixed("log", of_episodes(episodes))
    for name, some in settings.items():
        result = estimate(episodes, **some)
        numbers |= prefixed(name, of_evaluation(result))
        numbers.pop(f"{name}.steps", None)
    return numbers


@case("evaluate.read")
def _read() -> Numbers:
    """A CSV file with names of its own and without times, and a dict of arrays."""
    _, log, _ = store()
    rows = slice(0, 60)
    start = np.cumsum(log.t[rows] == 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        lines = ["day,level,setting,gain,energy,over"]
        columns = (start, log.obs[rows], log.action[rows], log.reward[rows], log.cost[rows])
        lines += [
            ",".join(map(str, (*row, int(end))))
            for row, end in zip(
                zip(*(x.tolist() for x in columns), strict=True), log.terminated[rows], strict=True
            )
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        names = {"episode": "day", "obs": "level", "action": "setting", "reward": "gain"}
        names |= {"cost": "energy", "terminated": "over"}
        found = read_logs(path, columns=names, horizon=HOURS)
    arrays: dict[str, Any] = {
        "t": log.t,
        "obs": log.obs,
        "action": log.action,
        "reward": log.reward,
        "next_obs": log.next_obs,
    }
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "log.npz", cost=log.cost, **arrays)
        zipped = read_logs(Path(folder) / "log.npz")
    days = [
        {"observations": [1, 2, 3], "actions": [0, 2], "rewards": [0.5, 1.0], "costs": [1.0, 0.0]},
        {"observations": [4, 5], "actions": [1], "rewards": [2.0], "costs": [0.3]},
    ]
    costed = read_logs(arrays, cost=lambda obs, action, reward, following: 1.0 + action)
    return (
        prefixed("csv", of_log(found))
        | prefixed("arrays", of_log(costed))
        | prefixed("npz", of_log(zipped))
        | prefixed("episodes", of_log(read_logs(days)))
    )


@case("network.evaluate-mlp")
def _evaluate_mlp() -> Numbers:
    behavior = design(drifting(), leaning, horizon=STEPS, method="scope-dr", learn=MLPRegression())
    result = evaluate(
        Plant(Drift, side_by_side=4),
        leaning,
        behavior,
        episodes=40,
        seed=1,
        inference=Inference(keep=True),
    )
    return of_evaluation(result)


@case("network.evaluate-gaussian")
def _evaluate_gaussian() -> Numbers:
    behavior = push_design("scope-dr", "state")
    result = evaluate(
        Pushed, behavior.target, behavior, episodes=40, seed=2, inference=Inference(keep=True)
    )
    own = evaluate(Pushed, behavior.target, horizon=STEPS, episodes=20, seed=3)
    return of_evaluation(result) | prefixed("own", of_evaluation(own))


# -- cases: frontiers, and what their points are worth -------------------------------------------

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
learned_case("with-and-without-b", grid, chosen={})
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
def _evaluate_points() -> Numbers:
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
def _point_of_a_file() -> Numbers:
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


def frontier_of_vectors(name: str, regression: Callable[[], Any], **settings: Any) -> None:
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


frontier_of_vectors("mlp", small_mlp, method="scope", points=12)
frontier_of_vectors("model", small_model, points=12)
