"""What to run: the method, the method without its control variate, or the target policy itself.

Candidates are tried in order; the first that the cross-check and its own prediction confirm is
used. `thresholds` has all numbers of that decision, `verdicts` its rules and reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from scopeval.behavior.cross_check import CrossCheck, cross_check
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.final_design import Design, cautious, design_on_all
from scopeval.behavior.methods import METHODS, Method, without_control_variate
from scopeval.behavior.settings import BUDGETS
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction
from scopeval.behavior.thresholds import THRESHOLDS, Thresholds
from scopeval.behavior.verdicts import (
    Candidate,
    judge_check,
    judge_design,
    judge_support,
    notes,
)
from scopeval.critics.protocols import Caution

__all__ = ["Decision", "decide"]

ON_POLICY = METHODS["on-policy"]


@dataclass(frozen=True)
class Decision:
    """What is run, and why."""

    method: Method
    design: Design
    prediction: Prediction
    errors: dict[str, float]
    warnings: tuple[str, ...]
    fallback: str | None


def candidates(method: Method, budget: str) -> Iterator[Candidate]:
    """What to try, in order; the target policy itself is always the last."""
    methods = [method]
    if method.control_variate:
        methods.append(without_control_variate(method))
    for one in methods:
        if one.has_price and budget == "episode":
            yield Candidate(one, BUDGETS)
        if one.tilted:
            yield Candidate(one, ("state",))
    yield Candidate(ON_POLICY, ("state",))


def decide(evidence: Evidence, method: Method, thresholds: Thresholds = THRESHOLDS) -> Decision:
    """Try the candidates in order, and take the first that is confirmed."""
    warnings: list[str] = []
    fallback: str | None = None
    checked: CrossCheck | None = None
    rejected = judge_support(evidence.support, method, thresholds, evidence.vectors)
    for candidate in candidates(method, evidence.settings.budget):
        if rejected is not None:
            warnings += [rejected.reason] if rejected.reason else []
            fallback = rejected.reason if rejected.all_but_target and rejected.reason else fallback
            rejected = replace(rejected, reason=None)
            if rejected.excludes(candidate):
                continue
        how = candidate.method
        if how.tilted or checked is None:  # the target needs no check, only the critics' errors
            checked = check(evidence, candidate, thresholds)
        verdict = judge_check(evidence, how, checked, thresholds)
        if verdict is None:
            recipe = with_margin(how, checked, evidence.caution, thresholds)
            design = design_on_all(evidence, how, recipe)
            if how.tilted:
                design = cautious(design, checked, thresholds)
            verdict = judge_design(evidence, how, design, checked, thresholds)
        if verdict is None:
            found = prediction(how, design, checked)
            warnings += notes(evidence.support, design, thresholds)
            return Decision(how, design, found, checked.errors, tuple(warnings), fallback)
        rejected = verdict
    raise AssertionError("the target policy is never rejected")


# -- the steps of a decision -----------------------------------------------------------------------


def check(evidence: Evidence, candidate: Candidate, thresholds: Thresholds) -> CrossCheck:
    """Cross-check every floor, share of the control variate and budget that may be chosen."""
    method, settings = candidate.method, evidence.settings
    floors: tuple[float, ...] = (1.0,)
    if method.tilted:
        floors = (settings.floor, *(f for f in thresholds.floors if f > settings.floor))
    if method.control_variate:  # running the target itself is a choice too: b alone may do
        floors = (*floors, 1.0)
    shares = evidence.caution.shares if method.control_variate else (1.0,)
    recipe = settings.recipe(method.name)
    variants = [
        replace(recipe, share=share, budget=budget)
        for budget in candidate.budgets
        for share in shares
    ]
    found = cross_check(evidence, method, floors, variants)
    return worth_departing(found, settings.least_gain) if method.constrained else found


def worth_departing(checked: CrossCheck, least_gain: float) -> CrossCheck:
    """Where a control variate alone does nearly as well, the target policy itself is run with it.

    Then its cost is certain. What counts is the cost of a given precision, variance times cost.
    """
    needed = checked.variance * checked.cost.mean(axis=0)
    own = [j for j, recipe in enumerate(checked.choices) if recipe.floor >= 1.0]
    if not own:
        return checked
    alone = min(own, key=lambda j: float(np.nan_to_num(needed[j], nan=np.inf)))
    if needed[checked.best] <= (1.0 - least_gain) * needed[alone]:
        return checked
    return replace(checked, best=alone)


def with_margin(
    method: Method, checked: CrossCheck, caution: Caution, thresholds: Thresholds
) -> Recipe:
    """The best choice; it leaves unspent by how much its checked cost came out too high.

    If that is not small, also by how far the halves are apart.
    """
    recipe = checked.choices[checked.best]
    if not method.tilted:
        return replace(recipe, method=method.name, budget="state", floor=1.0, share=1.0)
    if not method.constrained or recipe.limit is not None:
        return recipe
    costs = np.nan_to_num(checked.cost[:, checked.best])
    excess = float(costs.mean()) - (1.0 + recipe.epsilon)
    if excess > thresholds.cost_doubt:
        excess += float(np.ptp(costs))  # twice the standard error of the mean of two
    margin = recipe.margin + max(excess, 0.0) + caution.margin
    return replace(recipe, margin=float(min(margin, thresholds.largest_margin)))


def prediction(method: Method, design: Design, checked: CrossCheck) -> Prediction:
    """What the design predicts of itself, beside what held-out logs say."""
    return Prediction(
        variance=design.variance,
        cost=design.cost,
        checked_variance=float(checked.variance[checked.best]) if method.tilted else 1.0,
        checked_cost=float(checked.cost[:, checked.best].mean()) if method.tilted else 1.0,
    )
