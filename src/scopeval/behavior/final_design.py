"""The design from all of the logs, after the cross-check has chosen its recipe."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scopeval.behavior.cross_check import CrossCheck
from scopeval.behavior.evidence import Evidence, with_price
from scopeval.behavior.methods import Method
from scopeval.behavior.step import Recipe
from scopeval.behavior.support import unseen_cost
from scopeval.behavior.sweep import SweepStep, Swept, follow_own, ratio
from scopeval.policies.protocols import Why

__all__ = ["Design", "cautious", "design_on_all", "noise_share"]


@dataclass(frozen=True)
class Design:
    """A sweep over all of the logs with one recipe, and what it predicts.

    Attributes:
        recipe: how mu follows from the critics.
        swept: the critics, and what they say.
        variance: relative variance; what is told of it is nearer to the checked one, the less the
            critics are believed (`cautious`).
        cost: relative cost.
        doubt: about that cost, from states that the logs never leave.
        binding: share of logged states where the cost budget binds.
        infeasible: share of logged states without an affordable answer.
    """

    recipe: Recipe
    swept: Swept
    variance: float
    cost: float
    doubt: float
    binding: float
    infeasible: float

    @property
    def doubtful_excess(self) -> float:
        """How far the cost may be above what is allowed, if the doubt is justified."""
        return self.cost + self.doubt - (1.0 + self.recipe.epsilon)


def design_on_all(evidence: Evidence, method: Method, recipe: Recipe) -> Design:
    """The final sweep, over all of the logs."""
    recipe = with_price(evidence, evidence.whole, method, recipe)
    binding = infeasible = 0.0

    def measure(step: SweepStep) -> None:
        nonlocal binding, infeasible
        if method.constrained:
            tight, unanswered = _constraint_shares(recipe, step)
            binding += tight / recipe.horizon
            infeasible += unanswered / recipe.horizon

    swept = evidence.sweep(evidence.whole, follow_own(method, recipe), 2, measure)
    variance = float(ratio(swept.variance[-1], swept.variance[0]))
    cost = float(ratio(swept.cost[-1], swept.cost[0]))
    doubt = 0.0
    if method.constrained:
        doubt = unseen_cost(evidence.whole, evidence.target, method, recipe, swept.critics)
    return Design(recipe, swept, variance, cost, doubt, binding, infeasible)


def _constraint_shares(recipe: Recipe, step: SweepStep) -> tuple[float, float]:
    """Shares of the logged states where the budget binds, and where the program has no answer."""
    logged, why = step.points.logged, step.behaviors[-1].why
    assert why is not None
    infeasible = float(np.mean((why[logged > 0] & Why.INFEASIBLE) > 0))
    if recipe.budget == "episode":
        return float(recipe.price > 0.0), infeasible
    if recipe.floor >= 1.0:
        return 0.0, infeasible
    return float(logged @ ((why & Why.BINDING) > 0)), infeasible


def cautious(design: Design, checked: CrossCheck) -> Design:
    """The variance that is told: between the design's own prediction and the cross-check's.

    Critics whose differences are not believed in full: at least the checked one. Else the check
    counts by the share of noise in the reward critic of a half.
    """
    told = float(checked.variance[checked.best])
    if design.recipe.share >= 1.0:
        weight = noise_share(checked.errors.get("reward critic", 0.0))
        told = design.variance ** (1.0 - weight) * told**weight
    return replace(design, variance=max(design.variance, told))


def noise_share(disagreement: float) -> float:
    """Which part of the variance of a half's critic is noise, from how far the halves disagree.

    With errors of variance s^2 in each half and true differences of variance d^2, the halves differ
    by 2 s^2 in the mean square, their mean has the spread d^2 + s^2 / 2, and e^2 is the ratio:

        s^2 / (d^2 + s^2) = e^2 / (2 + e^2 / 2)
    """
    e = min(float(np.nan_to_num(disagreement)), 2.0)  # where nothing but noise is left
    return e**2 / (2.0 + e**2 / 2.0)
