"""What certificate and guard are functions of: a few numbers per finished episode."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from scopeval.arrays import Floats
from scopeval.collection.episodes import Episodes, discounts
from scopeval.errors import InputError
from scopeval.estimation.estimators import pdis_cost, step_weights
from scopeval.estimation.moments import finite_column
from scopeval.policies.protocols import Policy, probs_of
from scopeval.question.promise import Promise
from scopeval.safety.cost_control import CostControl, CostSteps

__all__ = ["EpisodeCosts", "costs_of", "limit_costs"]

#: One number per episode each.
_COLUMNS = (
    "cost",
    "weighted_cost",
    "weight",
    "exposure",
    "largest_step",
    "own_controlled",
    "target_controlled",
)


@dataclass(frozen=True)
class EpisodeCosts:
    """Costs of k finished episodes of the behavior policy, [k] each.

    Attributes:
        cost: C = sum_t gamma^t c_t.
        weighted_cost: P = sum_t gamma^t W_t c_t, W_t = rho_0 ... rho_t: the target's, unbiased
            where the behavior policy covers the target.
        weight: of the whole episode; None: unknown.
        exposure: sum_{t<T} gamma^t W_t, where an ended episode keeps its weight; None: unknown.
        largest_step: the most that one of its steps cost; None: unknown.
        own_controlled: the cost with q^c as control variate (`cost_control`); None: no critic.
        target_controlled: the target's, likewise; None exactly when `own_controlled` is.
        steps: what it is made of, for proofs; None: unknown.
        limit: the promise is about this limit, which `weighted_cost` then holds; None: about the
            cost of a policy.
        covered: no action of the policy that the promise is about is known to be left out.
        finished: False: the episodes were cut, and the columns are sums over the steps seen.
        cap: the weight that none of them can exceed, as the behavior policy states; inf: unknown.
    """

    cost: Floats
    weighted_cost: Floats
    weight: Floats | None = None
    exposure: Floats | None = None
    largest_step: Floats | None = None
    own_controlled: Floats | None = None
    target_controlled: Floats | None = None
    steps: CostSteps | None = None
    limit: float | None = None
    covered: bool = True
    finished: bool = True
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is None:
                continue
            column = finite_column(column, name)
            if name != "cost" and column.size != self.cost.size:
                raise InputError(
                    f"cost and {name} must describe the same episodes, got {self.cost.size} and "
                    f"{column.size}"
                )
            object.__setattr__(self, name, column)

    @staticmethod
    def of(cost: npt.ArrayLike, weighted_cost: npt.ArrayLike) -> EpisodeCosts:
        """Of two columns of numbers."""
        return EpisodeCosts(np.asarray(cost), np.asarray(weighted_cost))

    @staticmethod
    def of_columns(rows: Sequence[Mapping[str, Any]]) -> EpisodeCosts:
        """Of `columns`, one row per episode; a number that some row lacks is unknown."""
        columns: dict[str, Any] = {
            name: np.array([row[name] for row in rows], np.float64)
            if name in ("cost", "weighted_cost") or all(name in row for row in rows)
            else None
            for name in _COLUMNS
        }
        return EpisodeCosts(**columns)

    @staticmethod
    def of_cut(seen: Mapping[str, float]) -> EpisodeCosts:
        """Of an episode that was cut: cost, weighted_cost, exposure and largest_step so far."""
        columns: dict[str, Any] = {
            name: np.array([seen[name]], np.float64)
            for name in ("cost", "weighted_cost", "exposure", "largest_step")
        }
        return EpisodeCosts(**columns, finished=False)

    def columns(self) -> dict[str, Floats]:
        """The columns that are known, by name."""
        every = {name: getattr(self, name) for name in _COLUMNS}
        return {name: column for name, column in every.items() if column is not None}

    def __len__(self) -> int:
        return self.cost.size

    def select(self, rows: Any) -> EpisodeCosts:
        """Some of the episodes, by mask or numbers."""
        columns: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in _COLUMNS
        }
        steps = None if self.steps is None else self.steps.select(rows)
        return replace(self, **columns, steps=steps)

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """The best estimates of both expected costs: with a control variate, or the plain ones."""
        if self.own_controlled is None or self.target_controlled is None:
            return self.cost, self.weighted_cost
        return self.own_controlled, self.target_controlled


def costs_of(
    episodes: Episodes,
    gamma: float = 1.0,
    control: CostControl | None = None,
    promise: Promise | None = None,
    target: Policy | None = None,
) -> EpisodeCosts:
    """Of recorded episodes.

    Args:
        episodes: finished.
        gamma: discount.
        control: finds the control variate; None: none. For the target's cost only.
        promise: what they are compared with; None: the target's cost.
        target: the target policy, to check whether a reference policy is covered.
    """
    if not len(episodes):
        none = np.empty(0)
        return EpisodeCosts(none, none, none, none, none)
    largest, covered = episodes.cost.max(axis=1), True
    if promise is not None and promise.limit is not None:
        return limit_costs(episodes.costs(gamma), promise.limit, largest)
    if promise is not None and promise.compared == "reference":
        (episodes, covered), control = _about(promise.of, episodes, target), None
    steps = None if control is None else control.steps(episodes, gamma)
    return EpisodeCosts(
        episodes.costs(gamma),
        pdis_cost(episodes, gamma),
        episodes.weights,
        step_weights(episodes) @ discounts(gamma, episodes.horizon),
        largest,
        None if steps is None else steps.behavior.plain(),
        None if steps is None else steps.target.plain(),
        steps,
        covered=covered,
    )


def limit_costs(cost: Floats, limit: float, largest_step: Floats | None = None) -> EpisodeCosts:
    """Costs that are compared with a limit per episode: weights do not matter."""
    return EpisodeCosts(cost, np.full(len(cost), limit), largest_step=largest_step, limit=limit)


def _about(reference: Policy, episodes: Episodes, target: Policy | None) -> tuple[Episodes, bool]:
    """The same episodes as evidence about another policy, and whether they cover it.

    The behavior policy takes every action of the target. Where the other policy takes others, its
    cost is underestimated. Without a `target` coverage is not checked.
    """
    if episodes.action.ndim != 2 or not np.issubdtype(episodes.action.dtype, np.integer):
        raise InputError("reference: needs a finite action set, the episodes have vectors")
    probs, covered = np.ones_like(episodes.target_prob), True
    for t in range(episodes.horizon):
        rows = np.flatnonzero(episodes.length > t)
        if not len(rows):
            break
        obs = episodes.obs[rows, t]
        table = probs_of(reference, obs, t)
        probs[rows, t] = table[np.arange(len(rows)), episodes.action[rows, t]]
        if target is not None:
            covered &= not ((table > 0) & (probs_of(target, obs, t) <= 0)).any()
    none = np.zeros(len(episodes), np.bool_)
    changed = replace(episodes, target_prob=probs, control=None, baseline=None, by_target=none)
    return changed, covered
