"""What to run: the method, the method without its control variate, or the target policy itself.

One rule decides. Candidates are tried in order: designs with a control variate, designs without
one, the target policy with a control variate, the target policy. Of the designs of a kind (every
floor, share of the control variate, kind of budget) the cross-check chooses the one with the least
variance times cost. It is used if its variance is below 1 - `least_gain` by held-out logs (with a
control variate: less) and by the critics that made it, and if its cost and the doubt about it keep
the promise, with a margin for what held-out logs found too expensive. `thresholds` has the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import least
from scopeval.behavior.advice import better_critics, more_to_gain, where_noise_is
from scopeval.behavior.cross_check import CrossCheck, cross_check, rank
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.final_design import Design, cautious, design_on_all
from scopeval.behavior.methods import METHODS, Method, without_control_variate
from scopeval.behavior.settings import BUDGETS
from scopeval.behavior.simulated_cost import with_simulated_cost
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction
from scopeval.behavior.thresholds import THRESHOLDS, Thresholds
from scopeval.models.protocols import Caution

__all__ = ["Decision", "decide", "judge_check", "judge_design", "judge_log", "judge_support"]

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
    promised: float = np.inf  # least variance that the halves promised by their own critics


@dataclass(frozen=True)
class Candidate:
    """A method to try, with the kinds of budget that the cross-check may choose among.

    `alone`: only the control variate is used, with the target policy itself, whose cost is certain.
    """

    method: Method
    budgets: tuple[str, ...]
    alone: bool = False


@dataclass(frozen=True)
class Rejected:
    """Why a candidate is not used, and which others are out with it."""

    reason: str | None = None
    with_control_variate: bool = False  # every candidate that departs and has one
    departures: bool = False  # every candidate that departs from the target policy
    all_but_target: bool = False

    def excludes(self, candidate: Candidate) -> bool:
        """Whether a later candidate need not be tried."""
        method = candidate.method
        if self.all_but_target:
            return method.tilted
        departs = method.tilted and not candidate.alone
        return departs and (
            self.departures or (self.with_control_variate and method.control_variate)
        )

    @property
    def decisive(self) -> bool:
        """Whether the target policy runs because of it, if nothing else is confirmed."""
        return self.all_but_target or self.departures


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
    if method.control_variate:
        yield Candidate(method, ("state",), alone=True)
    yield Candidate(ON_POLICY, ("state",))


def decide(evidence: Evidence, method: Method, thresholds: Thresholds = THRESHOLDS) -> Decision:
    """Try the candidates in order, and take the first that is confirmed."""
    checked: CrossCheck | None = None
    controlled: CrossCheck | None = None  # with a control variate
    promised = np.inf
    early = (
        judge_log(evidence.log.doubt, method),
        judge_support(evidence.support, method, thresholds, evidence.vectors),
    )
    rejections = [one for one in early if one is not None][:1]
    for candidate in candidates(method, evidence.settings.budget):
        if any(one.excludes(candidate) for one in rejections):
            continue
        how = candidate.method
        if candidate.alone:
            assert controlled is not None  # of the same method with its tilt
            checked = alone(controlled)
        elif how.tilted or checked is None:  # the target needs no check, only the critics' errors
            checked = check(evidence, candidate, thresholds)
            promised = min(promised, checked.own_variance) if how.tilted else promised
            controlled = checked if how.control_variate else controlled
        verdict = judge_check(
            evidence, how, checked, thresholds, asked=method, alone=candidate.alone
        )
        if verdict is None:
            recipe = with_margin(how, checked, evidence.caution, thresholds)
            design = within_budget(evidence, how, recipe, thresholds)
            if how.tilted:
                design = cautious(design, checked)
            verdict = judge_design(evidence, how, design, thresholds, asked=method)
        if verdict is None:
            heard = [] if candidate.alone else rejections  # the first line says what runs instead
            warnings = [one.reason for one in heard if one.reason is not None]
            decisive = [one.reason for one in heard if one.reason is not None and one.decisive]
            return Decision(
                method=how,
                design=design,
                prediction=prediction(how, design, checked),
                errors=checked.errors,
                warnings=(*warnings, *notes(evidence, design, thresholds)),
                fallback=decisive[-1] if decisive and not how.tilted else None,
                promised=promised,
            )
        rejections.append(verdict)
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
    checked = cross_check(evidence, method, floors, variants)
    return worth_departing(checked, settings.least_gain) if method.constrained else checked


def worth_departing(checked: CrossCheck, least_gain: float) -> CrossCheck:
    """Where a control variate alone does nearly as well, the target policy itself is run with it.

    Then its cost is certain. What counts is the cost of a given precision, variance times cost.
    """
    needed = checked.variance * checked.cost.mean(axis=0)
    itself = alone(checked)
    if needed[checked.best] <= (1.0 - least_gain) * needed[itself.best]:
        return checked
    return itself


def alone(checked: CrossCheck) -> CrossCheck:
    """The best choice that runs the target policy itself, if there is one."""
    own = [j for j, recipe in enumerate(checked.choices) if recipe.floor >= 1.0]
    if not own:
        return checked
    best = own[least(checked.variance[own], [rank(checked.choices[j]) for j in own])]
    return replace(checked, best=best)


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
    return replace(recipe, margin=min(margin, 1.0))  # 1: nothing is spent


def within_budget(
    evidence: Evidence, method: Method, recipe: Recipe, thresholds: Thresholds
) -> Design:
    """The design from all of the logs; for vectors, within its budget in simulated episodes.

    If it is not, more is left unspent, once. If that does not help, the target policy is run with
    the control variate, if there is one: that costs what it costs. What is still too expensive is
    rejected by `judge_design`.
    """

    def designed(how: Recipe) -> Design:
        design = design_on_all(evidence, method, how)
        return with_simulated_cost(evidence, method, design, thresholds)

    def too_expensive(one: Design) -> bool:
        simulated = evidence.vectors and one.doubt > 0.0 and recipe.limit is None
        return simulated and one.doubtful_excess > thresholds.cost_doubt

    design = designed(recipe)
    if too_expensive(design):
        margin = min(recipe.margin + design.doubtful_excess, 1.0)
        design = designed(replace(recipe, margin=margin))
    if too_expensive(design) and method.control_variate and recipe.epsilon >= 0.0:
        design = designed(replace(recipe, floor=1.0))
    return design


def prediction(method: Method, design: Design, checked: CrossCheck) -> Prediction:
    """What the design predicts of itself, beside what held-out logs say."""
    return Prediction(
        variance=design.variance,
        cost=design.cost,
        checked_variance=float(checked.variance[checked.best]) if method.tilted else 1.0,
        checked_cost=float(checked.cost[:, checked.best].mean()) if method.tilted else 1.0,
        doubt=design.doubt,
    )


# -- verdicts: is a candidate confirmed; if not, why, and what can a user do about it -------------


def judge_log(doubt: str | None, method: Method) -> Rejected | None:
    """Whether a design may rest on the log at all.

    Held-out rows cannot tell: both halves are the same mixture of two units.
    """
    if doubt is None or not method.tilted:
        return None
    return Rejected(
        f"the log contradicts itself about what it measures: {doubt}; bring all rows to the same "
        "units, or leave out those before or after",
        all_but_target=True,
    )


def judge_support(
    support: float, method: Method, thresholds: Thresholds, vectors: bool
) -> Rejected | None:
    """Whether logs of vectors show enough of what the target policy does.

    Networks have estimates everywhere, also where both halves of the logs show nothing.
    """
    if not (vectors and method.tilted) or support >= thresholds.least_support:
        return None
    return Rejected(
        f"only {support:.0%} of the target policy's own steps are as near to the logs as logged "
        "steps are, too few to judge a departure from it; log episodes of controllers that act "
        "like the target policy, or its own",
        all_but_target=True,
    )


def judge_check(
    evidence: Evidence,
    method: Method,
    checked: CrossCheck,
    thresholds: Thresholds,
    *,
    asked: Method | None = None,
    alone: bool = False,
) -> Rejected | None:
    """Whether held-out logs confirm the candidate; `asked` is the method that the user wants.

    Where the target policy itself runs with a control variate (`alone`) the cost is certain, and
    any gain that is worth it will do.
    """
    variance = float(checked.variance[checked.best])
    most = min(evidence.caution.least, _most(evidence))
    if method.control_variate and not alone:
        most = min(most, thresholds.control_variate_variance)
    gains = variance < most
    relative = method.constrained and evidence.settings.limit is None and not alone
    if gains and relative and not np.isfinite(checked.cost[:, checked.best]).all():
        return Rejected(
            "the cost is in doubt: held-out logs cannot tell what the design costs; log more "
            "episodes of controllers that act like the target policy",
            departures=True,
        )
    if gains or not method.tilted:
        return None
    if alone:
        return Rejected()
    if method.control_variate:
        return _poor_control_variate(evidence, variance, thresholds)
    why = _why_no_gain(evidence, asked or method, checked, variance, thresholds)
    return Rejected(why, departures=True)


def _most(evidence: Evidence) -> float:
    """The relative variance from which on a gain is not worth a departure."""
    return 1.0 - evidence.settings.least_gain


def _why_no_gain(
    evidence: Evidence, method: Method, checked: CrossCheck, variance: float, thresholds: Thresholds
) -> str:
    """Nothing to gain, logs too thin, or critics too poor: each with what to do about it."""
    support, least = evidence.support, evidence.settings.least_gain
    check = f"(relative variance on held-out logs {variance:.2f})"
    none_promised = 1.0 - least <= checked.own_variance < np.inf
    if none_promised and support >= thresholds.least_support:
        return (
            "there is nothing to gain: even by their own critics the logs promise less than "
            f"{least:.0%} {check}.{where_noise_is(evidence, method)}"
        )
    if support < thresholds.noted_support:
        return (
            f"the logs are too thin: they show {support:.0%} of the target policy's own steps, and "
            f"on held-out logs the design was not clearly better than the target policy {check}; "
            "log more episodes of controllers that act like the target policy"
        )
    errors = ", ".join(f"{name} {error:.2g}" for name, error in checked.errors.items())
    return (
        "the critics are too poor: the halves of the logs disagree "
        f"(held-out errors: {errors}), and on held-out logs the design was not clearly better than "
        f"the target policy {check}; {better_critics(evidence)}"
    )


def judge_design(
    evidence: Evidence,
    method: Method,
    design: Design,
    thresholds: Thresholds,
    *,
    asked: Method | None = None,
) -> Rejected | None:
    """Whether the design from all of the logs keeps what the cross-check promised."""
    relative = method.constrained and design.recipe.limit is None
    too_expensive = relative and not design.doubtful_excess <= thresholds.cost_doubt
    if too_expensive and design.doubt > 0.0:
        return Rejected(_cost_in_doubt(design, evidence.vectors), departures=True)
    gains = not method.tilted or design.variance <= _most(evidence)
    if design.recipe.budget == "episode" and (too_expensive or not gains):
        return Rejected()  # the price did not keep what it promised: try a budget in every state
    if gains:
        return None
    more = more_to_gain(evidence, asked or method)
    return Rejected(
        "there is nothing to gain within the cost budget: the design's predicted variance is "
        f"{design.variance:.2f} of the target policy's{more}",
        departures=True,
    )


def _cost_in_doubt(design: Design, vectors: bool) -> str:
    if vectors:
        return (
            f"the cost is in doubt: simulated episodes of the design cost {design.cost:.3f} times "
            f"the target policy's cost, with a standard error of {design.doubt:.3f}; log more "
            "episodes, or allow a higher cost, Promise(at_most=...)"
        )
    return (
        "the cost is in doubt: the logs enter states that they never leave, and the design comes "
        f"to them more or less often than the target policy, so that its cost of {design.cost:.3f} "
        f"times the target policy's may be wrong by {design.doubt:.3f}; log whole episodes, with "
        "these states"
    )


def _poor_control_variate(evidence: Evidence, variance: float, thresholds: Thresholds) -> Rejected:
    """A poor control variate can do more harm than a poor tilt."""
    support = evidence.support
    thin = support < thresholds.noted_support
    what = "the logs are too thin" if thin else "the critics are too poor"
    remedy = "log more episodes like the target policy's" if thin else better_critics(evidence)
    return Rejected(
        f"{what} for a control variate (relative variance on held-out logs {variance:.2f}, support "
        f"{support:.0%}); designed without one: {remedy}",
        with_control_variate=True,
    )


def notes(evidence: Evidence, design: Design, thresholds: Thresholds) -> list[str]:
    """What the user should know although the design is used."""
    support, remarks = evidence.support, []
    least = thresholds.least_support if evidence.vectors else 0.0  # below it was said already
    if least <= support < thresholds.noted_support:
        remarks.append(
            f"the logs do not show {1 - support:.0%} of the target policy's own steps; there the "
            "behavior policy falls back to the target policy, or uses estimates from neighboring "
            "states"
        )
    if design.infeasible > thresholds.noted_infeasible:
        remarks.append(
            f"in {design.infeasible:.0%} of the logged states no affordable behavior exists"
            + (" under the absolute limit" if design.recipe.limit is not None else "")
            + "; there it falls back to the target policy"
        )
    return remarks
