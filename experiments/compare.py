"""How many episodes does a comparison take, beside an A/B test and what else a user can do?

The variance (or squared error) of J(new) - J(old) by 1,000 episodes, relative to that of an A/B
test of as many. Parts:

- ``pairs``: Gridworlds; old and other are random policies, new = (1 - x) old + x other. With 1,000
  logged episodes, without, and with as many of another world (bad logs); beside two separate
  designs from the same logs (500 episodes each). One on-policy evaluation of each policy is the A/B
  test;
- ``unseen``: worlds like users' (`experiments.unseen_worlds`); 10 and 30 % of the decisions are
  another policy's (new = (1 - x) old + x other), or so many differ (the total-variation distance of
  the decisions is x, which is more of the other policy); beside what critics that know the world
  would reach, and what no behavior policy could be better than;
- ``promise``: the cheapest and the most expensive of twelve policies, "at most today's cost";
- ``same``: A/A tests, the same policy twice, a copy that differs by rounding, and two policies of
  equal value: how often a winner is named, with a fixed number of episodes and by a sequence;
- ``coverage``: how often intervals for 300 episodes contain the truth, without logs and with them
  (differences), and how often sequences with a stated bound on returns do at every look up to 500
  (5 x 5);
- ``best``: ten candidates: the gap to the best, beside an A/B/n test, and episodes until it is
  known, beside the same rule on returns of an A/B/n test;
- ``vectors``: a cart and pole with two actions, controllers near to each other and far ones;
- ``robots``: checkpoints of one training, the next one and one ten later (extra ``mujoco``);
- ``data-center``: the bold controller against the usual one, without logs, as it is and with the
  weather and the load as context (extra ``energyplus``).

"Covers": how often the interval for a fixed number of episodes contains the true difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from experiments.common import RunArgs, Table, main, mean_of
from scopeval import (
    Comparison,
    Inference,
    Plant,
    Promise,
    Stop,
    assess,
    compare,
    design,
    evaluate,
)
from scopeval.collection.environments import open_environments
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.counted_model import value_tables
from scopeval.comparison.estimators import TableControls
from scopeval.comparison.joint_design import outcome_covariance
from scopeval.comparison.mixture import MixtureEpisodes, MixtureRollout
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.totals import PairedSettings, PairedTotals, run_mixture
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import TabularPolicy

Part = Literal[
    "pairs", "unseen", "promise", "same", "coverage", "best", "vectors", "robots",
    "data-center",
]  # fmt: skip
PARTS: tuple[Part, ...] = ("pairs", "unseen", "promise", "same", "coverage", "best")


#: Robots, and which of their 30 checkpoints are compared: the next one, and one far from it.
ROBOTS = ("InvertedPendulum", "Hopper", "Walker2d")
CHECKPOINTS = ((14, 15), (24, 25), (10, 20), (19, 29))


@dataclass(frozen=True)
class Args(RunArgs):
    """How many episodes a comparison takes."""

    parts: tuple[Part, ...] = PARTS
    """What to measure; the three parts whose worlds are not tables are asked for by name."""
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
    """A/A tests of each kind, and comparisons whose coverage is counted."""
    robots: tuple[str, ...] = ROBOTS
    """Whose checkpoints are compared."""
    seed: int = 0
    """Pair k is in world seed + k, and its logs and episodes follow from that number."""

    RANGES: ClassVar[tuple[str, ...]] = ("parts", "sizes", "pairs", "runs", "robots")


QUICK: dict[str, Any] = {"sizes": (10,), "pairs": 3, "runs": 40}
#: A/A tests in one job.
TOGETHER = 20
#: Candidates of the part ``best``, and their share of the other policy.
CANDIDATES, MIXED = 10, 0.3
#: Simulated episodes of the best possible estimator.
SIMULATED = 4000
KNOWN_WORLD, MARKOV = "critics that know the world", "the same, states trusted to be Markov"
ANY_BEHAVIOR = "the same, a bound for any behavior policy"
#: Share of the decisions that are another policy's in unseen worlds, or that differ.
DIFFER = (0.1, 0.3)
#: Of a sequence for the best of ten, by our values and by the returns of an A/B/n test.
MOST_EPISODES, MOST_RETURNS = 20_000, 300_000
#: Gains of the cart's new controller, relative to today's.
GAINS = (0.95, 0.8, 0.5)


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each world and pair."""
    every: list[dict[str, Any]] = []
    for part in args.parts:
        if part in ("pairs", "promise", "best"):
            worlds, few = [f"{size} x {size}" for size in args.sizes], args.pairs
        elif part == "unseen":
            worlds = [*_unseen_worlds().WORLDS][: 2 if args.pairs < 10 else None]
            few = -(-args.pairs // 10)
        elif part in ("same", "coverage"):
            worlds = ["5 x 5" if part == "same" else "10 x 10"]
            few = -(-args.runs // TOGETHER)
        elif part == "robots":
            worlds, few = list(args.robots), len(CHECKPOINTS)
        else:
            worlds, few = [part], -(-args.pairs // 10)
        every += [{"part": part, "world": w, "pair": k} for w in worlds for k in range(few)]
    return every


def job(args: Args, part: Part, world: str, pair: int) -> dict[str, Any]:
    """All comparisons of one pair."""
    run = {
        "pairs": _pairs, "unseen": _unseen, "promise": _promise, "same": _same, "best": _best,
        "coverage": _coverage,
        "vectors": _vectors, "robots": _robots, "data-center": _data_center,
    }  # fmt: skip
    return {"results": run[part](args, world, args.seed + pair)}


# -- pairs -----------------------------------------------------------------------------------------


def _pairs(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=seed).mdp()
    old, other = (p.table(size) for p in target_policies(2, size, seed=seed))
    logs = gridworld_logs(mdp, args.logged, seed=seed)
    bad = gridworld_logs(Gridworld(size, seed=seed + 10**4).mdp(), args.logged, seed=seed)
    results = []
    for x in args.changes:
        new = (1.0 - x) * old + x * other
        results += _measured(args, mdp, old, new, logs, seed, f"x = {x:g}", bad=bad)
    return results


def _unseen(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    worlds = _unseen_worlds()
    mdp = worlds.WORLDS[world][1]()
    old = worlds.target_of(mdp, "trained", seed)
    other = worlds.target_of(mdp, ("random", "soft", "careful")[seed % 3], seed)
    logs = worlds.logs_for(mdp, old, f"varied-{args.logged}", seed)
    apart = _distance(mdp, old, other)
    results = []
    for case, shares in (
        ("x = {:g}", DIFFER),
        ("{:.0%} of decisions differ", [share / apart for share in DIFFER]),
    ):
        for share, x in zip(DIFFER, shares, strict=True):
            new = old + min(x, 1.0) * (other - old)
            name = case.format(share)
            results += _measured(args, mdp, old, new, logs, seed, name, separate=False)
            results += [{"case": name, **row} for row in _best_possible(mdp, old, new, seed)]
    return results


def _best_possible(mdp: TabularMDP, old: np.ndarray, new: np.ndarray, seed: int) -> Any:
    """What critics that know the world reach, and bounds, relative to the A/B test's variance.

    With b_k = q_k what is left is the noise of the world, sum_t gamma^2t E[s_t^2] with the variance
    s_t^2 of u_new (R + gamma v_new(S')) - u_old (R + gamma v_old(S')) given the past and the
    action: no estimator that holds without the Markov property does better with these episodes
    (Kallus and Uehara, JMLR 2020, Theorem 1). Under another behavior policy, whose episodes are
    w_t times as likely, the terms are E[s_t^2 / w_t] with E[w_t] = 1, so at least E[s_t]^2: no
    design does better. The last row is what one could reach that trusts the states to be Markov,
    and weighs them by how often each policy is there (Theorem 2).
    """
    ab = 2.0 * sum(assess(mdp, p, p).variance for p in (old, new))
    both = PolicySet({"old": TabularPolicy(old), "new": TabularPolicy(new)})
    with open_environments(TabularFleet(mdp, SIMULATED), cost="none") as pool:
        rollout = MixtureRollout(pool, both, horizon=mdp.horizon, seed=seed)
        episodes = rollout.run(0, SIMULATED, np.full(2, 0.5))
    v = np.stack([value_tables(mdp, "reward", p)[1] for p in (old, new)])
    first = v[1, 0] - v[0, 0]
    mixture = least = float(mdp.initial @ (first - mdp.initial @ first) ** 2)
    for t in range(mdp.horizon):
        u = episodes.weights[:, t + 1] * [-1.0, 1.0] * episodes.steps[:, t, None]
        noise = outcome_covariance(mdp, v, t)[episodes.obs[:, t], episodes.action[:, t]]
        square = np.maximum(np.einsum("ni,nij,nj->n", u, noise, u), 0.0)
        mixture += mdp.gamma ** (2 * t) * float(square.mean())
        least += mdp.gamma ** (2 * t) * float(np.sqrt(square).mean()) ** 2
    return [
        {"how": KNOWN_WORLD, "ratio": mixture / ab},
        {"how": ANY_BEHAVIOR, "ratio": least / ab},
        {"how": MARKOV, "ratio": _markov_variance(mdp, old, new) / ab},
    ]


def _markov_variance(mdp: TabularMDP, old: np.ndarray, new: np.ndarray) -> float:
    """Sum over the steps of the noise of the world, weighted by occupancies of pairs."""
    values = [value_tables(mdp, "reward", p)[1] for p in (old, new)]
    p, S, A = mdp.transition, mdp.states, mdp.actions
    rows = np.diff(p.indptr)
    first = values[1][0] - values[0][0]
    total = float(mdp.initial @ (first - mdp.initial @ first) ** 2)
    at = [np.array(mdp.initial), np.array(mdp.initial)]
    for t in range(mdp.horizon):
        each = [(d[:, None] * pi[t]).ravel() for d, pi in zip(at, (old, new), strict=True)]
        mixed = sum(each) / 2.0
        w = [np.divide(one, mixed, out=np.zeros(S * A), where=mixed > 0) for one in each]
        added = mdp.next_reward_at(t)
        landed = [
            mdp.gamma * v[t + 1][p.indices] + (0.0 if added is None else added) for v in values
        ]
        outcome = np.repeat(w[1], rows) * landed[1] - np.repeat(w[0], rows) * landed[0]
        mean = np.add.reduceat(p.data * outcome, p.indptr[:-1])
        noise = np.add.reduceat(p.data * (outcome - np.repeat(mean, rows)) ** 2, p.indptr[:-1])
        noise = noise + (w[1] - w[0]) ** 2 * mdp.at("reward_variance", t).ravel()
        total += mdp.gamma ** (2 * t) * float(mixed @ noise)
        at = [np.asarray(p.T @ one) for one in each]
    return total


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
    case: str,
    *,
    bad: Any = None,
    separate: bool = True,
) -> list[dict[str, Any]]:
    """By logs, without logs, by logs of another world, and by two separate designs."""
    truth = {name: assess(mdp, p, p) for name, p in (("old", old), ("new", new))}
    ab = 2.0 * (truth["old"].variance + truth["new"].variance)
    gap = truth["new"].value - truth["old"].value
    rows = []
    kinds = [("1,000 logged episodes", logs), ("no logs", None)]
    if bad is not None:
        kinds.append(("logs of another world", bad))
    for how, known in kinds:
        found = compare(
            mdp, {"old": old, "new": new}, episodes=args.episodes, logs=known, seed=seed + 10**6
        )
        d = found.differences["new"]
        rows.append(
            {
                "case": case,
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
            "case": case,
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
    rows: list[dict[str, Any]] = []
    for how, env, promise, known in (
        ("the policies alone", mdp, None, logs),
        ("design, known MDP", mdp, Promise(at_most=1.0), None),
        ("design, from logs", plant, Promise(at_most=1.0), logs),
    ):
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
            rows.append({"how": f"{how}: not answerable"})
            continue
        d = found.differences["new"]
        rows.append(
            {
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
                ("sequence", {"stop": Stop(episodes=256, decided=True, every=128)}),
            ):
                found = compare(model, {"old": old, "new": second}, seed=number, **plan)
                winner = found.differences["new"].verdict != "undecided"
                rows.append({"how": f"{kind}, {how}", "winner": winner})
    return rows


def _coverage(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    """Ten worlds in turn, x = 1: differences and values, without logs; differences with them."""
    size = int(world.split()[0])
    mdp = Gridworld(size, seed=seed % 10).mdp()
    policies = {
        name: p.table(size)
        for name, p in zip(("old", "new"), target_policies(2, size, seed=seed % 10), strict=True)
    }
    truth = {name: assess(mdp, p, p).value for name, p in policies.items()}
    gap = truth["new"] - truth["old"]
    logs = gridworld_logs(mdp, args.logged, seed=seed)
    rows = []
    for run in range(TOGETHER):
        number = (seed - args.seed) * TOGETHER + run
        found, known = (
            compare(mdp, policies, episodes=300, logs=some, seed=number) for some in (None, logs)
        )
        for how, one in (("the difference", found), ("the difference, with logs", known)):
            d = one.differences["new"]
            rows.append(
                {"how": how, "covers": bool(d.contains(gap)), "ratio": d.se**2,
                 "square": (d.estimate - gap) ** 2}
            )  # fmt: skip
        if run % 2 == 0:
            rows.append(_sequence(number))
        for name, v in found.values.items():
            hit = bool(v.contains(truth[name]))
            away = v.estimate - truth[name]
            rows.append(
                {"how": f"the value of {name}", "covers": hit, "ratio": v.se**2,
                 "square": away**2}
            )  # fmt: skip
    return rows


def _sequence(number: int) -> dict[str, Any]:
    """Whether a sequence with a stated bound contains the difference at every look."""
    mdp = Gridworld(5, seed=number % 10).mdp()
    old, new = (p.table(5) for p in target_policies(2, 5, seed=number % 10))
    gap = assess(mdp, new, new).value - assess(mdp, old, old).value
    best, worst = np.zeros(mdp.states), np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        reward = mdp.at("reward", t)
        best = (reward + mdp.gamma * mdp.expect(best)).max(axis=1)
        worst = (reward + mdp.gamma * mdp.expect(worst)).min(axis=1)
    bound = (
        float(mdp.initial @ worst),
        float(mdp.initial @ best),
    )  # one start, rewards without noise
    plan = Inference(interval="sequence", return_bound=bound)
    policies = {"old": old, "new": new}
    found = compare(mdp, policies, episodes=500, inference=plan, seed=number + 10**6)
    looks = [seen["new"][1:] for _, seen in found.looks]
    always = all(low <= gap <= high for low, high in looks)
    return {"how": "the difference at every look, with a stated bound", "covers": always}


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
    plan = Stop(decided=True, episodes=MOST_EPISODES)
    known = compare(mdp, order, stop=plan, logs=logs, seed=seed + 2 * 10**6)
    named = known.best is not None and known.best.decided and known.best.name == best
    usual = _by_returns([truth[name] for name in order], seed)
    return [
        {"how": "gap to the best", "ratio": float(np.mean(ratios)),
         "covers": all(covered)},
        {"how": "episodes until the best is known", "covers": named,
         "ratio": known.episodes / usual, "episodes": known.episodes, "usual": usual},
    ]  # fmt: skip


def _by_returns(truth: Sequence[Any], seed: int) -> int:
    """Episodes of an A/B/n test until the best is known, by the same rule from returns alone.

    The returns of policy k are normal, with its exact mean and variance; the first is the baseline.
    """
    K = len(truth)
    rng = np.random.default_rng((seed, 5))
    mean = np.array([one.value for one in truth])
    spread = np.sqrt([one.variance for one in truth])

    def run(first: int, count: int, shares: np.ndarray) -> MixtureEpisodes:
        label = rng.choice(K, count, p=shares)
        weights = np.ones((count, 2, K))
        with np.errstate(divide="ignore", invalid="ignore"):
            own = (label[:, None] == np.arange(K)) / shares
        weights[:, 1] = np.nan_to_num(own, nan=0.0)
        zeros = np.zeros((count, 1), np.int64)
        return MixtureEpisodes(
            obs=zeros,
            action=zeros,
            reward=rng.normal(mean[label], spread[label])[:, None],
            cost=np.zeros((count, 1)),
            weights=weights,
            shares=np.tile(shares, (count, 1)),
            length=np.ones(count, np.int64),
            last_obs=zeros[:, 0],
            terminated=np.ones(count, np.bool_),
            index=first + np.arange(count),
            failed=np.zeros((count, K), np.bool_),
        )

    stop = Stop(decided=True, episodes=MOST_RETURNS)
    policies = PolicySet({str(k): np.ones((1, 1)) for k in range(K)})
    nothing = TableControls(np.zeros((K, 1, 1, 1)), np.zeros((K, 1, 1)))
    settings = PairedSettings(policies, Inference(), 1.0, MOST_RETURNS, seed, controls=nothing)
    costs = settings.costs(None, 1.0 / K, 1)
    totals = PairedTotals(settings, stop, np.full(K, 1.0 / K))
    return len(run_mixture(run, totals, stop, costs).episodes)


# -- worlds that are no tables ---------------------------------------------------------------------


def _vectors(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    """A cart and pole: today's controller and one with smaller gains."""
    from experiments.worlds.classic_control import CartPole
    from experiments.worlds.control_fleet import ControlFleet

    cart = CartPole()
    size = cart.observe(cart.start(1, np.random.default_rng(0))).shape[1]

    def controller(gain: float) -> Any:
        def probs(obs: np.ndarray, t: int) -> np.ndarray:
            wish = cart.steer(np.asarray(obs, np.float64), np.full(size, gain))
            score = np.exp(-((cart.levels - wish[:, None]) ** 2))
            return np.asarray(0.9 * score / score.sum(axis=1, keepdims=True) + 0.05)

        return probs

    rows = []
    for gain in GAINS:
        fleet = ControlFleet(cart, 250)
        both = {"old": controller(1.0), "new": controller(gain)}
        rows.append(_said(f"gains x {gain:g}", compare(
            fleet, both, episodes=args.episodes, horizon=60, seed=seed + 10**6
        )))  # fmt: skip
    return rows


def _robots(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    """Two checkpoints of one training: Gaussian policies."""
    from experiments.robots.env import HORIZON, robot_env
    from experiments.robots.policies import robot_policies

    every = robot_policies(world)
    first, second = CHECKPOINTS[(seed - args.seed) % len(CHECKPOINTS)]
    both = {"old": every[first], "new": every[second]}
    found = compare(
        Plant(lambda: robot_env(world)),
        both,
        episodes=args.episodes,
        horizon=HORIZON,
        seed=seed + 10**6,
    )
    return [_said(f"checkpoints {first} and {second}", found)]


def _data_center(args: Args, world: str, seed: int) -> list[dict[str, Any]]:
    """The bold controller against the usual one, a season's days, without logs."""
    from experiments.data_center import DataCenterFleet, target_controllers
    from experiments.data_center.weather import HOURS
    from experiments.energy_context import weather_history

    controllers = target_controllers()
    both = {name: controllers[name].policy() for name in ("usual", "bold")}
    history = weather_history(100 * args.episodes, seed)
    rows = []
    for how, context in (("bold against usual", None), ("the same, weather as context", history)):
        rooms = DataCenterFleet(2, "energy")
        try:
            found = compare(
                rooms,
                both,
                episodes=args.episodes,
                horizon=HOURS,
                context=context,
                seed=seed + 10**6,
            )
        finally:
            rooms.close()
        rows.append(_said(how, found))
    return rows


def _said(how: str, found: Comparison) -> dict[str, Any]:
    """Relative to an A/B test by the same episodes: what is exact is not known here."""
    (d,) = found.differences.values()
    used = max(found.estimators, key=lambda name: found.estimators[name])
    return {"how": f"{how}, {used}", "ratio": d.n / d.ab_episodes}


# -- tables ----------------------------------------------------------------------------------------


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means with standard errors over pairs, for every part, world and kind."""
    cases: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        for one in row["results"]:
            key = row["part"], row["world"], one.get("case", ""), one["how"]
            cases.setdefault(key, []).append(one)
    blocks = []
    for key, every in cases.items():
        block: dict[str, Any] = dict(zip(("part", "world", "case", "how"), key, strict=True))
        block["n"] = len(every)
        if key[0] == "same":
            block["winners"] = float(np.mean([one["winner"] for one in every]))
        else:
            said = [one for one in every if "ratio" in one]
            block["worst"] = max((one["ratio"] for one in said), default=None)
            covers = [one["covers"] for one in every if "covers" in one]
            block["covers"] = float(np.mean(covers)) if covers else None
            for name in ("ratio", "square", "cost", "episodes", "usual"):
                measured = [one[name] for one in every if name in one]
                block[name] = mean_of(measured) if measured else None
        blocks.append(block)
    return {"blocks": blocks}


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """A table for each part."""
    shown: list[Table | str] = []
    for part in get_args(Part):
        blocks = [b for b in content["blocks"] if b["part"] == part]
        if not blocks:
            continue
        if part == "same":
            tests = tuple((b["how"], f"{b['n']:,}", f"{b['winners']:.3f}") for b in blocks)
            shown.append(Table("A/A tests: how often a winner is named", _SAME, tests))
            continue
        if part == "coverage":
            shown.append(Table("How often 95 % intervals contain the truth", _COVERAGE, tuple(
                (b["how"], f"{b['n']:,}", f"{b['covers']:.3f}",
                 "-" if b["square"] is None
                 else f"{b['ratio']['mean'] / b['square']['mean']:.2f}") for b in blocks
            )))  # fmt: skip
            continue
        rows = tuple(
            (
                f"{b['world']}, {b['case']}" if b["case"] else b["world"],
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
        shown += _beside_the_best(blocks)
        shown += [_until_known(b) for b in blocks if b.get("usual")]
    config = content["config"]
    return [
        *shown,
        f"{config['pairs']} pairs, {config['episodes']:,} episodes each, seed {config['seed']}. "
        "Ratio: the variance of one episode's value of the difference, from out-of-fold values, "
        "relative to that of an A/B test (exact). Worst: of any pair. Square: the squared error "
        "against the exact difference, relative to what the A/B test's is in expectation. Cost of "
        "an episode: relative to the old policy's. ± is the standard error over pairs.",
    ]


def _beside_the_best(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Ours relative to critics that know the world, of every case."""
    known = {(b["world"], b["case"]): b["ratio"]["mean"] for b in blocks if b["how"] == KNOWN_WORLD}
    said, bounds = [], (KNOWN_WORLD, ANY_BEHAVIOR, MARKOV)
    for how in dict.fromkeys(b["how"] for b in blocks if b["how"] not in bounds):
        each = [
            b["ratio"]["mean"] / known[b["world"], b["case"]]
            for b in blocks
            if b["how"] == how and (b["world"], b["case"]) in known
        ]
        if each:
            said.append(
                f"By {how} the ratio is {min(each):.2f} to {max(each):.2f} of that of critics that "
                f"know the world (mean {np.mean(each):.2f}, {len(each)} cases)."
            )
    return said


def _until_known(block: Mapping[str, Any]) -> str:
    ours, usual = (block[name]["mean"] for name in ("episodes", "usual"))
    capped = sum(n >= MOST_RETURNS for n in block["usual"]["values"])
    return (
        f"{block['world']}: the best of ten was known after {ours:,.0f} episodes on the average "
        f"(at most {MOST_EPISODES:,}; 'covers': it was named and was the best), by the same rule "
        f"from the returns of an A/B/n test after {usual:,.0f} (at most {MOST_RETURNS:,}, which "
        f"{capped} of {block['n']} reached undecided)."
    )


_COVERAGE = ("interval of", "runs", "covers", "estimated variance / squared error")
_SAME = ("test", "runs", "winner")
_HEADER = ("world", "by", "pairs", "ratio", "worst", "square", "covers", "cost")
_CAPTIONS = {
    "pairs": "Variance of J(new) - J(old) relative to an A/B test of as many episodes",
    "unseen": "The same in worlds like users'",
    "promise": "A new policy that is more expensive, with at most today's cost",
    "best": "Ten candidates, x = 0.3: gap to the best, and episodes until it is known, relative to "
    "an A/B/n test",
    "vectors": "A cart and pole, without logs, relative to an A/B test by the same episodes",
    "robots": "Checkpoints of one training, without logs, likewise",
    "data-center": "The bold controller against the usual one, without logs, likewise",
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
