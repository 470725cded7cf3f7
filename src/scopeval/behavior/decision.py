"""What to run: the method, the method without its control variate, or the target policy itself.

Candidates are tried in order; the first that the cross-check and its own prediction confirm is
used. All thresholds of that decision are in `Thresholds`; docs/safety.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.cross_check import CrossCheck, cross_check
from scopeval.behavior.evidence import Evidence, with_price
from scopeval.behavior.methods import METHODS, Method, without_control_variate
from scopeval.behavior.settings import BUDGETS
from scopeval.behavior.step import Counts, Recipe, budget, weigh_rows
from scopeval.behavior.summary import Prediction
from scopeval.behavior.sweep import Followed, Swept, follow_own, ratio
from scopeval.critics.protocols import Caution, Estimates
from scopeval.critics.sweep_data import Points

__all__ = ["THRESHOLDS", "Decision", "Thresholds", "decide"]


@dataclass(frozen=True)
class Thresholds:
    """Every number that decides what is run.

    Attributes:
        floors: shares of the target policy that the cross-check chooses among, from the setting on.
        cost_excess: checked cost beyond what is allowed, relative to the target's, up to which a
            design is used; less is left unspent as a margin.
        least_support: share of the target policy's steps that the logs must show; else fall back.
        control_variate_support: the same for a control variate; else b = 0.
        control_variate_variance: checked relative variance below which a control variate is used.
        agreement: checked variance, relative to predicted, up to which a prediction is believed; a
            control variate with `Caution.trust` or more must agree that well.
        largest_margin: of the cost budget that is left unspent at most.
        episode_excess: predicted cost, relative to what is allowed, up to which one budget for
            whole episodes is used; else every state has its own.
        noted_support: support below which a warning is given.
        noted_infeasible: share of logged states without an affordable answer that is noted.
    """

    floors: tuple[float, ...] = (0.02, 0.25, 0.5, 0.75)
    cost_excess: float = 0.02
    least_support: float = 0.25
    control_variate_support: float = 0.5
    control_variate_variance: float = 0.9
    agreement: float = 1.08
    largest_margin: float = 0.5
    episode_excess: float = 1.001
    noted_support: float = 0.9
    noted_infeasible: float = 0.01


THRESHOLDS = Thresholds()
ON_POLICY = METHODS["on-policy"]


@dataclass(frozen=True)
class Candidate:
    """A method to try, with the kinds of budget that the cross-check may choose among."""

    method: Method
    budgets: tuple[str, ...]


@dataclass(frozen=True)
class Rejected:
    """Why a candidate is not used, and which others are out with it."""

    reason: str | None = None
    with_control_variate: bool = False  # every candidate that has one
    all_but_target: bool = False

    def excludes(self, candidate: Candidate) -> bool:
        """Whether a later candidate need not be tried."""
        method = candidate.method
        if self.all_but_target:
            return method.tilted
        return self.with_control_variate and method.control_variate


@dataclass(frozen=True)
class Design:
    """A sweep over all of the logs with one recipe, and what it predicts.

    Attributes:
        recipe: how mu follows from the critics.
        swept: the critics, and what they say.
        own: relative variance by these critics alone, and
        variance: the relative variance that is reported; at least the checked one if the critics
            are not trusted in full.
        cost: relative cost.
        binding: share of logged states where the cost budget binds.
        infeasible: share of logged states without an affordable answer.
    """

    recipe: Recipe
    swept: Swept
    own: float
    variance: float
    cost: float
    binding: float
    infeasible: float


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
    rejected = judge_support(evidence.support, method, thresholds)
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
            design = cautious(design, checked)
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
    return cross_check(evidence, method, floors, variants)


def with_margin(
    method: Method, checked: CrossCheck, caution: Caution, thresholds: Thresholds
) -> Recipe:
    """The best choice; it leaves unspent by how much its checked cost came out too high."""
    recipe = checked.choices[checked.best]
    if not method.tilted:
        return replace(recipe, method=method.name, budget="state", floor=1.0, share=1.0)
    if not method.constrained or recipe.limit is not None:
        return recipe
    excess = float(np.nan_to_num(checked.cost[:, checked.best].mean())) - (1.0 + recipe.epsilon)
    margin = max(excess, 0.0) + caution.margin
    return replace(recipe, margin=float(min(margin, thresholds.largest_margin)))


def design_on_all(evidence: Evidence, method: Method, recipe: Recipe) -> Design:
    """The final sweep, over all of the logs."""
    recipe = with_price(evidence, evidence.whole, method, recipe)
    binding = infeasible = 0.0
    own = follow_own(method, recipe)

    def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        nonlocal binding, infeasible
        followed = own(t, points, pi, e)
        if method.constrained:
            tight, unanswered = _constraint_shares(method, recipe, points, pi, e, followed[-1].mu)
            binding += tight / recipe.horizon
            infeasible += unanswered / recipe.horizon
        return followed

    swept = evidence.sweep(evidence.whole, follow, 2)
    variance = float(ratio(swept.variance[-1], swept.variance[0]))
    cost = float(ratio(swept.cost[-1], swept.cost[0]))
    return Design(recipe, swept, variance, variance, cost, binding, infeasible)


def _constraint_shares(
    method: Method, recipe: Recipe, points: Points, pi: Floats, e: Estimates, mu: Floats
) -> tuple[float, float]:
    """Shares of the logged states where the budget binds, and where the program has no answer."""
    counts, visited = Counts(), np.flatnonzero(points.logged)
    weigh_rows(method, recipe, pi[visited], e.select(visited), counts=counts)
    infeasible = counts.infeasible / len(visited)
    if recipe.budget == "episode":
        return float(recipe.price > 0.0), infeasible
    if recipe.floor >= 1.0:
        return 0.0, infeasible
    cost = e.cost_target if recipe.constraint == "target" else e.cost_behavior[..., -1]
    mass = np.where(e.known, pi, 0.0).sum(axis=1)
    allowed = budget(recipe, pi, e.cost_target, cost, e.known) * mass
    bare = (mu - recipe.floor * pi) / (1.0 - recipe.floor)
    spent = np.where(e.known, bare * cost, 0.0).sum(axis=1)
    tight = (spent >= allowed * (1.0 - 1e-9)) & (mass > 0)
    return float(points.logged @ tight), infeasible


def cautious(design: Design, checked: CrossCheck) -> Design:
    """Critics whose differences are not believed in full: the prediction is at least the check."""
    if design.recipe.share >= 1.0:
        return design
    return replace(design, variance=max(design.variance, float(checked.variance[checked.best])))


# -- the verdicts ----------------------------------------------------------------------------------


def judge_support(support: float, method: Method, thresholds: Thresholds) -> Rejected | None:
    """Whether the logs show enough of what the target policy does."""
    if not method.tilted or support >= thresholds.least_support:
        return None
    return Rejected(
        f"the logs show only {support:.0%} of the target policy's own steps, too few to judge a "
        "departure from it. The design falls back to the target policy: use on-policy evaluation, "
        "or log more",
        all_but_target=True,
    )


def judge_check(
    evidence: Evidence, method: Method, checked: CrossCheck, thresholds: Thresholds
) -> Rejected | None:
    """Whether held-out logs confirm the candidate."""
    variance, support = float(checked.variance[checked.best]), evidence.support
    if method.control_variate and not (
        variance < thresholds.control_variate_variance
        and support >= thresholds.control_variate_support
    ):
        return _poor_control_variate(variance, support)
    if not method.tilted:
        return None
    if not variance < min(evidence.caution.least, 1.0 - evidence.settings.least_gain):
        return Rejected(_why_no_gain(evidence, checked, variance, thresholds), all_but_target=True)
    cost, allowed = float(checked.cost[:, checked.best].mean()), 1.0 + evidence.settings.epsilon
    relative = method.constrained and evidence.settings.limit is None
    if relative and not cost <= allowed + thresholds.cost_excess:
        return Rejected(
            f"the cost is in doubt: held-out logs say that the design costs {cost:.3f} times the "
            f"target policy's cost where {allowed:.3f} is allowed. The design falls back to the "
            "target policy: log more episodes, or allow a larger epsilon",
            all_but_target=True,
        )
    return None


def _why_no_gain(
    evidence: Evidence, checked: CrossCheck, variance: float, thresholds: Thresholds
) -> str:
    """Nothing to gain, logs too thin, or critics too poor: each with what to do about it."""
    support, least = evidence.support, evidence.settings.least_gain
    found = f"(relative variance on held-out logs {variance:.2f})"
    if 1.0 - least <= checked.own_variance < np.inf:
        return (
            "there is nothing to gain: even by their own critics the logs promise less than "
            f"{least:.0%} {found}. The design falls back to the target policy: use "
            "on-policy evaluation, or try method='scope-dr', budget='episode' or a larger epsilon"
        )
    if support < thresholds.noted_support:
        return (
            f"the logs are too thin: they show {support:.0%} of the target policy's own steps, and "
            f"on held-out logs the design was not clearly better than the target policy {found}. "
            "The design falls back to the target policy: use on-policy evaluation, or log more "
            "episodes of controllers that act like the target policy"
        )
    errors = ", ".join(f"{name} {error:.2g}" for name, error in checked.errors.items())
    return (
        "the critics are too poor: the halves of the logs disagree "
        f"(held-out errors: {errors}), and on held-out logs the design was not clearly better than "
        f"the target policy {found}. The design falls back to the target policy: use on-policy "
        "evaluation, log more episodes, give features or a simulator, or try another regression"
    )


def judge_design(
    evidence: Evidence,
    method: Method,
    design: Design,
    checked: CrossCheck,
    thresholds: Thresholds,
) -> Rejected | None:
    """Whether the design from all of the logs keeps what the cross-check promised."""
    variance = float(checked.variance[checked.best])
    doubtful = variance >= evidence.caution.trust
    if method.control_variate and doubtful and variance > thresholds.agreement * design.own:
        return _poor_control_variate(variance, evidence.support)
    allowed = thresholds.episode_excess * (1.0 + design.recipe.epsilon)
    most = 1.0 - evidence.settings.least_gain
    kept = design.variance <= most and design.cost <= allowed
    if design.recipe.budget == "episode" and not kept:
        return Rejected()  # the price did not keep what it promised: try a budget in every state
    if method.tilted and not design.variance <= most:
        return Rejected(
            "there is nothing to gain within the cost budget: the design's predicted variance is "
            f"{design.variance:.2f} of the target policy's. The design falls back to the target "
            "policy: use on-policy evaluation, log more, or allow a larger epsilon",
            all_but_target=True,
        )
    return None


def _poor_control_variate(variance: float, support: float) -> Rejected:
    """A poor control variate can do more harm than a poor tilt."""
    return Rejected(
        "the logs are too thin for a control variate (relative variance on held-out logs "
        f"{variance:.2f}, support {support:.0%}); designed without one",
        with_control_variate=True,
    )


def notes(support: float, design: Design, thresholds: Thresholds) -> list[str]:
    """What the user should know although the design is used."""
    found = []
    if thresholds.least_support <= support < thresholds.noted_support:
        found.append(
            f"the logs do not show {1 - support:.0%} of the target policy's own steps; there the "
            "behavior policy falls back to the target policy, or uses estimates from neighboring "
            "states"
        )
    if design.infeasible > thresholds.noted_infeasible:
        found.append(
            f"in {design.infeasible:.0%} of the logged states no affordable behavior exists"
            + (" under the absolute limit" if design.recipe.limit is not None else "")
            + "; there it falls back to the target policy"
        )
    return found


def prediction(method: Method, design: Design, checked: CrossCheck) -> Prediction:
    """What the design predicts of itself, beside what held-out logs say."""
    return Prediction(
        variance=design.variance,
        cost=design.cost,
        checked_variance=float(checked.variance[checked.best]) if method.tilted else 1.0,
        checked_cost=float(checked.cost[:, checked.best].mean()) if method.tilted else 1.0,
    )
