"""What golden cases share: small worlds, environments and logs, and what is read from results.

Results are read by their public attributes, as numbers, never sentences.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, reduce
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import scopeval
from experiments.mlp.regression import MLPRegression
from scopeval import (
    BehaviorPolicy,
    Episodes,
    Evaluation,
    GaussianPolicy,
    Networks,
    Promise,
    TabularPolicy,
    Transitions,
    collect,
    design,
    exact,
)
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies

METHODS = ("scope", "scope-dr", "odi", "dopt", "on-policy")
BUDGETS = ("state", "episode")
#: Words that stand for a choice, by the attribute that holds them; a number takes their place.
CHOICES = {
    "method": METHODS,
    "budget": (*BUDGETS, "weighted"),
    "constraint": ("behavior", "target"),
    "estimator": ("auto", "mc", "is", "pdis", "dr"),
    "compared": ("target", "reference", "limit"),
    "verdict": ("safe", "not refuted", "refuted", "not covered", "not enough evidence"),
}

PREDICTED = "variance cost checked_variance checked_cost"
RECIPE = "method epsilon horizon gamma floor margin constraint limit share budget price"
REPORT = "rows support binding kept warnings notes shape.actions shape.width shape.states"
COUNTS = "asked unseen infeasible not_finite"
ACTION = "action probability target_probability control baseline"
INTERVAL = "estimate low high alpha n"
ESTIMATE = "estimate finished started by_target estimator"
COST = "cost.per_episode cost.total on_policy_cost"
DIAGNOSTICS = (
    "effective_size largest_weight tail_index mean_weight mean_weight_error fallbacks guarded lost "
    "warnings"
)
ON_POLICY = "variance variance_error cost episodes total"
CERTIFICATE = "verdict cost target_cost epsilon alpha episodes"
GUARD = "switched_after state.tripped state.episodes state.total_cost state.refuted"
STATE = "tripped episodes total_cost refuted"
MOMENTS = "episodes estimate variance cost cost_variance weighted_cost weighted_cost_variance"
ASSESSMENT = "value expectation bias variance cost"

Floats = NDArray[np.float64]
#: What a case returns: entry -> anything that becomes an array of numbers. None: not there.
Numbers = dict[str, Any]
Case = Callable[[], Numbers]

#: All cases by name; the part before the dot is the group.
CASES: dict[str, Case] = {}


def case(name: str) -> Callable[[Case], Case]:
    """Register a case."""

    def register(function: Case) -> Case:
        if name in CASES:
            raise ValueError(f"two cases are called {name}")
        CASES[name] = function
        return function

    return register


def documented(name: str, having: str = "") -> Any:
    """A class of the package by its name, whichever module defines it.

    Args:
        name: of the class.
        having: an attribute that tells it from other classes of this name.
    """
    root = Path(scopeval.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if f"\nclass {name}:" in text or f"\nclass {name}(" in text:
            parts = path.relative_to(root).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found = getattr(import_module(".".join(("scopeval", *parts))), name)
            if not having or hasattr(found, having):
                return found
    raise LookupError(f"no class {name} in {root}")


def number(source: Any, path: str) -> float:
    """An attribute (of an attribute) as a number: NaN for None, the length of a tuple."""
    value = reduce(getattr, path.split("."), source)
    if value is None:
        return math.nan
    if isinstance(value, tuple):
        return float(len(value))
    name = path.split(".")[-1]
    if isinstance(value, str):
        return float(CHOICES[name].index(value))
    return float(np.sum(value))


def fields(source: Any, paths: str) -> list[float]:
    """Several attributes."""
    return [number(source, path) for path in paths.split()]


def prefixed(prefix: str, some: Numbers) -> Numbers:
    """The same with a word before every name."""
    return {f"{prefix}.{name}": value for name, value in some.items()}


def of_behavior(behavior: BehaviorPolicy) -> Numbers:
    """A learned behavior policy, but for its probabilities."""
    return {
        "predicted": fields(behavior.predicted, PREDICTED),
        "recipe": [
            number(SimpleNamespace(**behavior.recipe.record()), name) for name in RECIPE.split()
        ],
        "report": fields(behavior.report, REPORT),
        "holdout": list(behavior.report.holdout.values()),
    }


def of_table(mu: Floats, b: Floats | None, mdp: exact.TabularMDP, target: Any) -> Numbers:
    """Some rows of tables [T, S, A], and what all of them are worth in a model."""
    times = np.unique([0, len(mu) // 2, len(mu) - 1])
    states = np.unique(np.linspace(0, mu.shape[1] - 1, 5).astype(int))
    some = np.ix_(times, states)
    return {
        "probs": mu[some],
        "control": None if b is None else b[some],
        "assessed": fields(exact.assess(mdp, target, mu, b), ASSESSMENT),
    }


def of_design(found: exact.Design, mdp: exact.TabularMDP, target: Any) -> Numbers:
    """An exact design: its tables, how the programs ended, in how many states the budget binds."""
    ended = np.bincount(np.asarray(found.status, np.int64).ravel(), minlength=3)
    table = np.asarray(found.table(mdp.horizon))
    return of_table(table, found.control, mdp, target) | {
        "ended": [*ended, int(found.binding.sum())]
    }


def of_evaluation(result: Evaluation) -> Numbers:
    """An evaluation, with a few of its episodes where they were kept."""
    found: Numbers = {
        "estimate": fields(result, ESTIMATE),
        "interval": fields(result.interval, INTERVAL),
        "cost": fields(result, COST),
        "diagnostics": fields(result.diagnostics, DIAGNOSTICS),
        "asked": list(result.diagnostics.behavior.values()) or None,
        "on_policy": fields(result.on_policy, ON_POLICY),
    }
    if (certificate := result.certificate) is not None:
        both = (certificate.difference, certificate.ratio)
        found["certificate"] = fields(certificate, CERTIFICATE)
        found["certificate_intervals"] = [fields(one, INTERVAL) for one in both]
    if (guard := result.guard) is not None:
        found["guard"] = fields(guard, GUARD)
        found["guard_interval"] = fields(guard.state.interval, INTERVAL)
    if result.episodes is not None:
        found |= of_episodes(result.episodes)
    return found


def of_episodes(episodes: Episodes, rows: int = 3) -> Numbers:
    """A few episodes step by step, and sums over all of them."""
    some = episodes.select(slice(0, rows))
    steps = [some.obs, some.action, some.reward, some.cost, some.behavior_prob, some.target_prob]
    if some.control is not None and some.baseline is not None:
        steps += [some.control, some.baseline]
    summed = "length terminated by_target index fallbacks guarded reward cost last_obs ratios"
    return {
        "steps": np.hstack([np.asarray(x, np.float64).reshape(len(some), -1) for x in steps]),
        "sums": [len(episodes), *fields(episodes, summed)],
        "lost": [fields(one, "index step cost") for one in episodes.lost] or None,
    }


def of_log(log: Transitions) -> Numbers:
    """The first rows of a log, and sums over all of them."""
    names = "t obs action reward cost next_obs terminated"
    columns = [np.asarray(getattr(log, name), np.float64) for name in names.split()]
    return {
        "rows": np.column_stack([column[:5].reshape(len(column[:5]), -1) for column in columns]),
        "sums": [len(log), len(log.notes), *fields(log, names)],
    }


# -- worlds, environments and logs ---------------------------------------------------------------

#: Side and horizon of the Gridworld; horizons of the store and of the drifting point.
SIZE = 5
HOURS = 6
STEPS = 3


def logged(parts: list[Episodes]) -> Transitions:
    """Collected episodes as a log."""
    columns: dict[str, Any] = dict(Episodes.concat(parts).transitions())
    return Transitions(**columns)


@cache
def grid() -> tuple[exact.TabularMDP, TabularPolicy, Transitions]:
    """A Gridworld, a target and 1,500 logged rows."""
    mdp = Gridworld(size=SIZE, seed=0).mdp()
    return mdp, target_policies(2, size=SIZE)[1], gridworld_logs(mdp, 300)


def thin_grid(episodes: int, seed: int = 0) -> Transitions:
    """A few logged episodes of the Gridworld."""
    return gridworld_logs(grid()[0], episodes, seed=seed)


@cache
def changing() -> tuple[exact.TabularMDP, TabularPolicy, Transitions]:
    """Rewards that are random and depend on time, a discount, and a state that ends the episode."""
    S, A, T = 5, 3, 4
    rng = np.random.default_rng(7)
    transition = rng.dirichlet(np.full(S, 0.5), (S, A))
    transition[-1] = np.eye(S)[-1]
    reward, cost = rng.normal(size=(T, S, A)), rng.random((T, S, A))
    spread = 0.3 * rng.random((T, S, A))
    for table in (reward, cost, spread):
        table[:, -1] = 0.0
    initial = np.array([0.5, 0.3, 0.1, 0.1, 0.0])
    mdp = exact.TabularMDP(
        initial, transition, reward, cost, T, gamma=0.9, reward_variance=spread**2
    )
    target = TabularPolicy(rng.dirichlet(np.ones(A), (T, S)))
    loggers = [TabularPolicy(rng.dirichlet(np.ones(A), S)) for _ in range(3)]
    parts = [collect(mdp, logger, episodes=150, seed=k) for k, logger in enumerate(loggers)]
    return mdp, target, logged(parts)


class Store(gymnasium.Env[int, int]):
    """A cold store: eight temperature levels, three settings of the compressor."""

    observation_space = gymnasium.spaces.Discrete(8)  # type: ignore[assignment]
    action_space = gymnasium.spaces.Discrete(3)  # type: ignore[assignment]
    energy, cooling = (0.2, 1.0, 2.5), (0, 2, 3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        """Start at a middle temperature."""
        super().reset(seed=seed)
        self.level = 3
        return self.level, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """It gets warmer by chance and colder by the compressor."""
        warmer = 1 + int(self.np_random.integers(3))
        spoiled = max(self.level - 4, 0) * float(self.np_random.random())
        self.level = int(np.clip(self.level + warmer - self.cooling[action], 0, 7))
        paid = {"cost": self.energy[action], "power": 2.0 * self.energy[action]}
        return self.level, 1.0 - spoiled, self.level == 7, False, paid


class Unreliable(Store):
    """A store whose compressor fails at times."""

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Raise now and then."""
        if self.np_random.random() < 0.02:
            raise RuntimeError("the compressor failed")
        return super().step(action)


class Fleet:
    """Four stores behind one call, without chance."""

    def __init__(self) -> None:
        self.level = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return len(self.level)

    def reset(self, seeds: Any, which: Any) -> Any:
        """Start at a level that the seed says."""
        self.level[which] = [int(seed) % 5 for seed in seeds]
        return self.level[which]

    def step(self, actions: Any, which: Any) -> Any:
        """It gets two levels warmer, and colder by the compressor."""
        was = self.level[which]
        now = np.clip(was + 2 - np.array(Store.cooling)[actions], 0, 7)
        self.level[which] = now
        return SimpleNamespace(
            obs=now,
            reward=1.0 - 0.2 * was,
            cost=np.array(Store.energy)[actions],
            terminated=now == 7,
        )


class Failing:
    """A behavior policy that fails at one level, and offers no probabilities at another."""

    def __init__(self, behavior: BehaviorPolicy) -> None:
        self.behavior = behavior

    def weigh(self, offered: Any, obs: Any, t: Any, state: Any) -> Any:
        """As the other does, where it can."""
        if (np.asarray(obs) == 4).any():
            raise RuntimeError("no answer")
        found = self.behavior.weigh(offered, obs, t, state)
        return replace(found, probs=np.where((obs == 2)[:, None], np.nan, found.probs))


@cache
def store() -> tuple[TabularPolicy, Transitions, BehaviorPolicy]:
    """A target for the store, a log of other controllers, and a design."""
    warm = 1.0 / (1.0 + np.exp(3.0 - np.arange(8)))
    table = 0.9 * np.stack([1 - warm, warm * (1 - warm / 2), warm**2 / 2], axis=1) + 0.1 / 3
    target = TabularPolicy(table)

    def logger(obs: Any, t: Any) -> Any:
        cool = 1.0 / (1.0 + np.exp(2.0 - np.asarray(obs, np.float64)))
        return np.stack([0.8 - 0.6 * cool, 0.1 + 0.2 * cool, 0.1 + 0.4 * cool], axis=1)

    parts = [
        collect(Store, by, horizon=HOURS, episodes=100, seed=20 + k)
        for k, by in enumerate((logger, np.full((8, 3), 1 / 3)))
    ]
    log = logged(parts)
    return target, log, design(log, target, horizon=HOURS, method="scope-dr")


class Drift(gymnasium.Env[Floats, Any]):
    """A point that drifts: two numbers to see, three actions or one continuous action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    finite = True

    def __init__(self) -> None:
        self.action_space = (
            gymnasium.spaces.Discrete(3)
            if self.finite
            else gymnasium.spaces.Box(-3.0, 3.0, (1,), np.float64)
        )

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Start near (1, 0)."""
        super().reset(seed=seed)
        self.x = np.array([1.0, 0.0]) + 0.3 * self.np_random.standard_normal(2)
        return self.x.copy(), {}

    def step(self, action: Any) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Move by the action; the episode ends far to the right."""
        push = float(action) - 1.0 if self.finite else float(action[0])
        reward = push + 0.5 * self.x[0] + 0.2 * float(self.np_random.standard_normal())
        paid = 0.3 + push * push
        noise = 0.1 * self.np_random.standard_normal(2)
        self.x = self.x + np.array([0.4 * push, 0.2 * self.x[0]]) + noise
        return self.x.copy(), reward, bool(self.x[0] > 2.2), False, {"cost": paid}


class Pushed(Drift):
    """The same with a continuous action."""

    finite = False


def leaning(obs: Any, t: Any) -> Any:
    """Three actions; to the left, the more so the farther to the right."""
    x = np.asarray(obs, np.float64)
    logits = np.stack([0.5 * x[:, 0], 0.3 * x[:, 1], 0.2 - 0.5 * x[:, 0]], axis=1)
    weight = np.exp(logits)
    return weight / weight.sum(axis=1, keepdims=True)


def uniform(obs: Any, t: Any) -> Any:
    """Any of three actions."""
    return np.full((len(obs), 3), 1 / 3)


def normal(shift: float, spread: float) -> GaussianPolicy:
    """A continuous policy that pushes against the first number."""
    return GaussianPolicy(
        lambda obs, t: shift - 0.2 * obs[:, :1], [math.log(spread)], low=[-3.0], high=[3.0], draws=5
    )


@cache
def drifting() -> Transitions:
    """160 logged episodes with finite actions."""
    parts = [
        collect(Drift, by, horizon=STEPS, episodes=80, seed=30 + k)
        for k, by in enumerate((uniform, leaning))
    ]
    return logged(parts)


@cache
def pushed() -> Transitions:
    """160 logged episodes with continuous actions."""
    parts = [
        collect(Pushed, normal(shift, 1.2), horizon=STEPS, episodes=80, seed=40 + k)
        for k, shift in enumerate((-0.3, 0.5))
    ]
    return logged(parts)


def small_mlp(**settings: Any) -> Any:
    """The paper's networks with few steps of training: quick, and rounding does not grow."""
    return MLPRegression(hidden=32, first_steps=40, steps=10, **settings)


def small_model(**settings: Any) -> Any:
    """Settings of "model" with few steps of training."""
    training, study = documented("Training"), documented("Study")
    return Networks(
        training=training(hidden=16, steps=80, batch=128),
        paths=60,
        study=study(paths=100, hidden=8, steps=60, batch=128),
        **settings,
    )


@cache
def push_design(method: str, budget: str) -> BehaviorPolicy:
    """A design for continuous actions."""
    settings: dict[str, Any] = {"method": method, "promise": Promise(per=budget)}
    target = normal(0.0, 0.8)
    return design(pushed(), target, horizon=STEPS, learn=small_model(), **settings)
