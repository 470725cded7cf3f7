"""What the golden cases read from results: public attributes, as numbers, never sentences."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import scopeval
from scopeval import BehaviorPolicy, Episodes, Evaluation, Transitions, exact

METHODS = ("scope", "scope-dr", "odi", "dopt", "on-policy")
BUDGETS = ("state", "episode")
#: Words that stand for a choice, by the attribute that holds them; a number takes their place.
CHOICES = {
    "method": METHODS,
    "budget": (*BUDGETS, "weighted"),
    "constraint": ("behavior", "target"),
    "estimator": ("auto", "mc", "is", "pdis", "dr"),
    "whose": ("target", "reference", "limit"),
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
        "recipe": fields(behavior.recipe, RECIPE),
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
