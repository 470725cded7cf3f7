"""All that may run, compared by the halves of the logs, and the design from all of them.

What is compared, and what the ends of the variance and the cost rest on, says `decision`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.evidence import CHECK_ROWS, Evidence, thin_out, with_price
from scopeval.behavior.methods import METHODS, without_control_variate
from scopeval.behavior.step import BUDGETS, Recipe
from scopeval.behavior.support import unseen_cost
from scopeval.behavior.sweep import Kind, SweepStep, Swept, line_6, ratio, sweep
from scopeval.behavior.thresholds import FLOORS, HARMLESS, SLACK
from scopeval.models.protocols import SweepData
from scopeval.policies.protocols import Why

__all__ = [
    "ON_POLICY",
    "Compared",
    "Design",
    "compare",
    "design_on_all",
    "is_harmless",
    "kinds_of",
    "noise_share",
    "own_promise",
    "rank",
    "target_itself",
]

ON_POLICY = METHODS["on-policy"]


def rank(recipe: Recipe) -> tuple[bool, bool, float]:
    """The order of designs that do equally well: the one that promises more comes first.

    A method without a control variate cannot be harmed by one. A budget in every state is a
    promise about the rest of the episode wherever it stands. A larger share of the target
    policy has smaller weights, and a cost that is more certain.
    """
    return recipe.budget != "state", recipe.method.control_variate, -recipe.floor


def is_harmless(recipe: Recipe) -> bool:
    """Whether it can hardly do harm: the target policy with so much of a control variate."""
    return recipe.floor >= 1.0 and recipe.share <= HARMLESS


@dataclass(frozen=True)
class Compared:
    """All that may run, [n] each, relative to running the target policy.

    Attributes:
        choices: n designs that may run.
        expected: variance as a design from all logs, and
        upper: its upper end.
        checked: variance of the halves' designs, by critics of the other half, and
        own: by their own critics.
        cost: [2, n] cost, as each half judges the design of the other.
        errors: how far critics of the two halves disagree, by name.
    """

    choices: list[Recipe]
    expected: Floats
    upper: Floats
    checked: Floats
    own: Floats
    cost: Floats
    errors: dict[str, float]


@dataclass(frozen=True)
class Design:
    """A sweep over all of the logs with one recipe, and what it predicts.

    Attributes:
        recipe: how mu follows from the critics.
        swept: the critics, and what they say.
        variance: relative variance.
        cost: relative cost.
        doubt: about that cost, from states that the logs never leave, or of simulated episodes.
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

    @property
    def keeps_promise(self) -> bool:
        """Whether that is within the slack of a promise; NaN is not."""
        return self.doubtful_excess <= SLACK


# -- all that may run, compared --------------------------------------------------------------------


def kinds_of(evidence: Evidence, asked: Recipe) -> list[Kind]:
    """What may run, by what line 6 has to be solved for."""
    method = asked.method
    if not method.tilted:
        return [Kind(target_itself(asked))]
    methods = [method]
    if method.control_variate:
        methods.append(without_control_variate(method))
    departing = (asked.floor, *(floor for floor in FLOORS if floor > asked.floor))
    kinds = []
    for one in methods:
        both = one.has_price and asked.budget == "episode"
        for budget in BUDGETS if both else ("state",):
            # the target policy itself may run with a control variate
            floors = (*departing, 1.0) if one.control_variate and budget == "state" else departing
            for share in evidence.caution.shares if one.control_variate else (1.0,):
                recipe = replace(asked, method=one, share=share, budget=budget)
                kinds.append(Kind(recipe, floors))
        if one.control_variate and min(evidence.caution.shares) > HARMLESS:
            recipe = replace(asked, method=one, share=HARMLESS, budget="state")
            kinds.append(Kind(recipe, (1.0,)))
    return kinds


def compare(evidence: Evidence, kinds: Sequence[Kind]) -> Compared:
    """Design on each half and judge by the other; then design on all logs."""
    many = 1 + sum(len(kind.shares) for kind in kinds)
    halves = evidence.halves
    made = [[_priced(evidence, half, kind) for kind in kinds] for half in halves]
    own = [sweep(half, line_6(some), many) for half, some in zip(halves, made, strict=True)]
    cross = [sweep(halves[1 - k], line_6(made[k], own[k].critics), many) for k in range(2)]
    cost = np.stack([ratio(swept.cost[1:], swept.cost[0]) for swept in cross])
    final, first = [], 0
    for kind in kinds:
        margin = _margin(evidence, kind, cost[:, first])
        recipe = replace(kind.recipe, margin=margin)
        final.append(_priced(evidence, evidence.whole, kind._replace(recipe=recipe)))
        first += len(kind.shares)
    whole = sweep(evidence.whole, line_6(final), many)
    said, checked, mine = (_relative(some) for some in ([whole], cross, own))
    errors = _disagreements(evidence, own)
    gap, noise = np.maximum(checked - mine, 0.0), noise_share(errors["reward critic"])
    usual, most = evidence.caution.optimism

    def end(said: Floats, share: float) -> Floats:
        return np.asarray((said + share * gap) ** (1.0 - noise) * checked**noise)

    return Compared(
        choices=[replace(kind.recipe, floor=floor) for kind in final for floor in kind.shares],
        expected=end(said, usual),
        # what all logs promise and no half does, no half could check
        upper=end(np.maximum(said, mine), most),
        checked=checked,
        own=mine,
        cost=cost,
        errors=evidence.data.held_out_errors | errors,
    )


def _relative(swept: Sequence[Swept]) -> Floats:
    """Variances relative to the target's, of sweeps together."""
    total = np.sum([one.variance for one in swept], axis=0)
    return np.asarray(ratio(total[1:], total[0]))


def _priced(evidence: Evidence, data: SweepData, kind: Kind) -> Kind:
    """With the price of cost at which an episode's budget is just spent."""
    return kind._replace(recipe=with_price(evidence, data, kind.recipe))


def _margin(evidence: Evidence, kind: Kind, checked: Floats) -> float:
    """What is left unspent: by how much the upper end of the cost is above what is allowed.

    What the halves say of each other's designs [2] is more than is left in the design from all
    logs: at most a half, as of the variance (`Caution.optimism`), of the larger one. Designs with a
    larger share of the target policy exceed it less.
    """
    recipe = kind.recipe
    if not recipe.method.constrained or recipe.limit is not None:
        return recipe.margin
    excess = max(float(np.nan_to_num(checked).max()) - (1.0 + recipe.epsilon), 0.0)
    excess *= evidence.caution.optimism[1]
    return min(recipe.margin + excess + evidence.caution.margin, 1.0)  # 1: nothing is spent


def noise_share(disagreement: float) -> float:
    """Which part of the variance of a half's critic is noise, from how far the halves disagree.

    With errors of variance s^2 in each half and true differences of variance d^2, the halves differ
    by 2 s^2 in the mean square, their mean has the spread d^2 + s^2 / 2, and e^2 is the ratio:

        s^2 / (d^2 + s^2) = e^2 / (2 + e^2 / 2)
    """
    e = min(float(np.nan_to_num(disagreement)), 2.0)  # where nothing but noise is left
    return e**2 / (2.0 + e**2 / 2.0)


def target_itself(asked: Recipe) -> Recipe:
    """The target policy, without a control variate."""
    return replace(asked, method=ON_POLICY, budget="state", floor=1.0, share=1.0)


def own_promise(evidence: Evidence, asked: Recipe) -> float:
    """The least relative variance that designs from the halves promise by their own critics.

    With a budget in every state. Nothing is judged by other critics here.
    """
    kinds = [
        kind._replace(floors=(asked.floor,))
        for kind in kinds_of(evidence, asked)
        if kind.recipe.budget == "state"
    ]
    own = [sweep(half, line_6(kinds), 1 + len(kinds)) for half in evidence.halves]
    return float(_relative(own).min())


def _disagreements(evidence: Evidence, designed: Sequence[Swept]) -> dict[str, float]:
    """How far critics that share no data disagree, in the middle of the horizon."""
    middle = evidence.whole.horizon // 2
    points = evidence.whole.at(middle)
    seen = thin_out(np.flatnonzero(points.logged), CHECK_ROWS, evidence.seed)
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


# -- the design from all of the logs ---------------------------------------------------------------


def design_on_all(evidence: Evidence, recipe: Recipe) -> Design:
    """The final sweep, over all of the logs."""
    method = recipe.method
    binding = infeasible = 0.0

    def measure(step: SweepStep) -> None:
        nonlocal binding, infeasible
        if method.constrained:
            tight, unanswered = _constraint_shares(recipe, step)
            binding += tight / recipe.horizon
            infeasible += unanswered / recipe.horizon

    swept = sweep(evidence.whole, line_6([Kind(recipe)]), 2, measure)
    variance = float(ratio(swept.variance[-1], swept.variance[0]))
    cost = float(ratio(swept.cost[-1], swept.cost[0]))
    doubt = 0.0
    if method.constrained:
        doubt = unseen_cost(evidence.whole, recipe, swept.critics)
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
