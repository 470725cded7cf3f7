"""The cross-check: a design from one half of the logs, judged by critics of the other half.

A design that is judged by the critics it was built from always looks good. Here the behavior policy
is fixed by one half, and its variance and cost are what critics of the other half say they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats, least
from scopeval.behavior.evidence import CHECK_ROWS, Evidence, thin_out, with_price
from scopeval.behavior.methods import Method
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import (
    Follow,
    Followed,
    Swept,
    follow_own,
    followed_target,
    ratio,
)
from scopeval.models.protocols import Critic, Estimates, Points

__all__ = ["CrossCheck", "cross_check", "own_promise", "rank"]


@dataclass(frozen=True)
class CrossCheck:
    """What held-out logs say about several choices.

    Attributes:
        choices: one recipe for each variant and floor.
        variance: [choices] relative variance.
        own_variance: the least relative variance that the halves' own critics predict.
        cost: [2, choices] relative cost, as each half judges the design of the other.
        errors: how far critics of the two halves disagree, by name.
        best: the choice with the least variance; of several, the first by `rank`.
    """

    choices: list[Recipe]
    variance: Floats
    own_variance: float
    cost: Floats
    errors: dict[str, float]
    best: int


def cross_check(
    evidence: Evidence, method: Method, floors: Sequence[float], variants: Sequence[Recipe]
) -> CrossCheck:
    """Design on each half, judge by critics of the other half: every variant, every floor."""
    many = len(variants) * len(floors)
    variance, costs = np.zeros(many), np.zeros((2, many))
    target_variance = 0.0
    recipes = [
        [with_price(evidence, half, method, variant) for variant in variants]
        for half in evidence.halves
    ]
    designed = [
        evidence.sweep(half, follow_own(method, *some), 1 + len(some))
        for half, some in zip(evidence.halves, recipes, strict=True)
    ]
    for k in range(2):
        fixed = _follow_fixed(method, designed[k].critics, recipes[k], floors)
        judged = evidence.sweep(evidence.halves[1 - k], fixed, 1 + many)
        variance += judged.variance[1:]
        target_variance += judged.variance[0]
        costs[k] = ratio(judged.cost[1:], judged.cost[0])
    relative = ratio(variance, target_variance)
    choices = [replace(variant, floor=floor) for variant in variants for floor in floors]
    return CrossCheck(
        choices=choices,
        variance=relative,
        own_variance=float(np.mean([_least_own(swept) for swept in designed])),
        cost=costs,
        errors=evidence.data.held_out_errors | _disagreements(evidence, designed),
        best=least(relative, [rank(recipe) for recipe in choices]),
    )


def rank(recipe: Recipe) -> tuple[bool, float]:
    """The order of choices that do equally well: the one that promises more comes first.

    A budget in every state is a promise about the rest of the episode wherever it stands, and so
    more than one about whole episodes. Then the larger share of the target policy: smaller weights,
    and a cost that is more certain.
    """
    return recipe.budget != "state", -recipe.floor


def own_promise(evidence: Evidence, method: Method) -> float:
    """The least relative variance that designs from the halves promise by their own critics.

    With a budget in every state. Nothing is judged by other critics here.
    """
    shares = evidence.caution.shares if method.control_variate else (1.0,)
    recipe = replace(evidence.settings.recipe(method.name), budget="state")
    follow = follow_own(method, *(replace(recipe, share=share) for share in shares))
    swept = [evidence.sweep(half, follow, 1 + len(shares)) for half in evidence.halves]
    return float(np.mean([_least_own(one) for one in swept]))


def _least_own(swept: Swept) -> float:
    return float(np.nan_to_num(ratio(swept.variance[1:], swept.variance[0]), nan=np.inf).min())


def _follow_fixed(
    method: Method, critics: list[Critic], recipes: list[Recipe], floors: Sequence[float]
) -> Follow:
    """Follow behavior policies that other critics determine, at every floor."""
    bare = [replace(recipe, floor=0.0) for recipe in recipes]

    def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        followed = [followed_target(pi, e)]
        own = points.estimates(critics[t])
        for k, recipe in enumerate(bare, start=1):
            mu, b, _ = weigh_rows(method, recipe, pi, own.following(k))
            for floor in floors:
                j = len(followed)
                mixed = (1.0 - floor) * mu + floor * pi
                followed.append(Followed(mixed, b, e.carried[..., j], e.cost_behavior[..., j]))
        return followed

    return follow


def _disagreements(evidence: Evidence, designed: list[Swept]) -> dict[str, float]:
    """How far critics that share no data disagree, in the middle of the horizon."""
    middle = evidence.settings.horizon // 2
    points = evidence.whole.at(middle)
    seen = thin_out(np.flatnonzero(points.logged), CHECK_ROWS, evidence.settings.seed)
    asked = points.obs[seen], None if points.actions is None else points.actions[seen]
    a, b = (swept.critics[middle].at(*asked) for swept in designed)
    weight = (points.logged[seen, None] * (a.known & b.known)).ravel()
    return {
        "reward critic": _disagreement(a.q, b.q, weight),
        "cost critic": _disagreement(a.cost_target, b.cost_target, weight),
    }


def _disagreement(a: Floats, b: Floats, weight: Floats) -> float:
    """Root mean square difference of two critics, in units of their spread."""
    a, b, total = a.ravel(), b.ravel(), weight.sum()
    if total == 0:
        return float("nan")
    weight = weight / total
    mean = (a + b) / 2
    spread = np.sqrt(weight @ (mean - weight @ mean) ** 2)
    return float(np.sqrt(weight @ (a - b) ** 2) / spread) if spread > 0 else 0.0
