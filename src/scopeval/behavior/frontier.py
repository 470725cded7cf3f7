"""The whole frontier of variance against cost, learned from logs: also below the target's own cost.

One backward sweep over a grid of prices gives every point (`weighted_step`). As for `design`, half
of the logs determine the behavior policies and the other half judges them; a point that the
held-out half does not bear out is not offered.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scopeval._parallel import one_blas_thread
from scopeval._progress import Progress, follow_phases
from scopeval.arrays import is_number, least
from scopeval.behavior.advice import too_little_support
from scopeval.behavior.decision import Decision, behavior_policy, decide
from scopeval.behavior.evidence import Evidence, Learn, evidence_of, learn_of
from scopeval.behavior.frontier_point import Curve, Point, draw_curve, least_needed
from scopeval.behavior.methods import (
    METHODS,
    KnownModel,
    Method,
    method_named,
    without_control_variate,
)
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.priced_designs import PricedDesign, PricedDesigns
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction, Report, Shape
from scopeval.behavior.sweep import Kind, line_6, ratio, sweep
from scopeval.behavior.thresholds import LEAST_SUPPORT
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.models.networks import Networks
from scopeval.models.world import World
from scopeval.notebook.card import Card
from scopeval.notebook.frame import frame_of
from scopeval.notebook.sketch import sketch_curve
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.fingerprint import take_fingerprint
from scopeval.question.inference import Check
from scopeval.question.promise import check_multiple
from scopeval.question.question import discount, question_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Frontier", "frontier"]

#: Prices on the grid, for tables and networks, and for critics by a model of the world.
PRICES, MODEL_PRICES = 40, 24
NO_COST = "by the logs the target policy costs nothing: there is no cost to save; try design"
ONLY_CHEAPER = (
    "at the target policy's own cost the logs bear out no gain in variance; cheaper points are "
    "offered as far as held-out logs agree, and may have more variance than predicted"
)
#: Least share of the target policy, unless given: with tables, and with simulated dynamics. Points
#: are cross-checked without the cap, which in a design gives a share of 1/30 at weight 1. With much
#: less a few simulated episodes of enormous weight would deny every point.
LEAST_SHARE, MODEL_SHARE = 0.005, 0.05
#: Weight that no episode exceeds.
CAP = 30.0

_COLUMNS = (
    "price", "safe_variance", "safe_cost", "needed", "pays", "variance", "cost",
    "checked_variance", "checked_cost", "doubt",
)  # fmt: skip


class Frontier:
    """What evaluating a policy takes, as variance against cost; every point is a behavior policy.

    It is the lower envelope of designs with and, where it is in doubt, without the control variate.
    At the target policy's own cost it is no worse than `design`, which runs the target policy
    itself, with a control variate where that saves variance, unless held-out logs confirm more.

    Attributes:
        points: from the least variance to the least cost; only those that held-out logs bear out,
            and that are better than what `design` runs.
        warnings: what the user should know.
    """

    def __init__(
        self,
        evidence: Evidence,
        decision: Decision,
        recipes: Sequence[Recipe],
        warnings: tuple[str, ...],
        prices: int,
    ) -> None:
        self._began = time.perf_counter()
        self._evidence, self._decision = evidence, decision
        swept = decision.design.swept
        costs = bool(swept.cost[0] > 0)
        unit = float(swept.variance[0] / swept.cost[0]) if costs else 1.0
        unit = unit if unit > 0 else 1.0
        self.warnings = warnings if costs else (*warnings, NO_COST)
        self._designs = [
            PricedDesigns(evidence, recipe, unit, prices) for recipe in (recipes if costs else ())
        ]
        self.points = envelope([one.points for one in self._designs], self._itself)
        if self._designs and not any(one.points for one in self._designs):
            first = self._designs[0].first
            self.warnings = (
                *self.warnings,
                "held-out logs deny what the critics predict at every price: a relative "
                f"variance of {first.variance:.3g} was predicted, they say "
                f"{first.checked_variance:.3g}",
            )

    @cached_property
    def curve(self) -> Curve:
        """The points, and where ODI lies, as the critics predict it."""
        if not self.points:
            return Curve()
        recipe = replace(self._designs[0].recipe, method=METHODS["odi"], epsilon=0.0, cap=None)
        swept = sweep(self._evidence.whole, line_6([Kind(recipe)]), 2)
        both = (ratio(x[1], x[0]) for x in (swept.variance, swept.cost))
        variance, cost = (float(x) for x in both)
        return Curve(self.points, (variance, cost))

    @cached_property
    def _itself(self) -> Point:
        """What `design` runs: weight-blind, and promised to cost no more than the target policy."""
        p = self._decision.prediction
        return Point(0.0, p.variance, 1.0, p.checked_variance, 1.0, 0.0)

    def _run_itself(self) -> BehaviorPolicy:
        behavior = behavior_policy(self._evidence, self._decision, self._began)
        behavior.report = replace(behavior.report, curve=self.curve)
        return behavior

    # -- choosing ----------------------------------------------------------------------------

    def at(self, *, cost: float | None = None, variance: float | None = None) -> BehaviorPolicy:
        """The behavior policy at one point.

        Args:
            cost: the expected cost may be this multiple of the target policy's; the least variance
                there. Or
            variance: the relative variance may be this; the least cost there.

        Raises:
            InputError: not exactly one of them, or a point that the logs do not bear out.
        """
        given = [x for x in (cost, variance) if x is not None]
        if len(given) != 1 or not is_number(given[0]):
            raise InputError(
                f"at: got cost={cost!r}, variance={variance!r}, expected exactly one of them, a "
                "number"
            )
        if variance is not None:
            return self._cheapest(float(variance))
        return self._most_precise(check_multiple("cost", cost))

    def best(self) -> BehaviorPolicy:
        """The point with the least variance times cost: what reaching a given precision costs."""
        designs = []
        for one in self._designs:
            if one.points:
                price = least_needed(one.points).price
                designs.append((one, one.at_price(price)))
        designs.sort(key=lambda each: each[1].point.needed)
        if not designs or not designs[0][1].point.needed < self._itself.needed:
            return self._run_itself()
        return self._designed(*designs[0])

    def _cheapest(self, variance: float) -> BehaviorPolicy:
        designs = [
            (one, one.search("variance", variance))
            for one in self._designs
            if any(p.safe_variance <= variance for p in one.points)
        ]
        designs.sort(key=lambda each: each[1].point.safe_cost)
        itself = self._itself
        if itself.variance <= variance and (
            not designs or designs[0][1].point.safe_cost >= itself.safe_cost
        ):
            return self._run_itself()
        if not designs:
            least = min(p.safe_variance for p in (*self.points, itself))
            raise InputError(
                f"variance: got {variance:g}, but the least that the logs bear out is {least:.3g} "
                "of the target policy's; try that, or log more"
            )
        return self._designed(*designs[0])

    def _most_precise(self, cost: float) -> BehaviorPolicy:
        """The least variance at this cost, with the cap in force."""
        designs = [
            (one, one.search("cost", cost))
            for one in self._designs
            if any(p.safe_cost <= cost * (1.0 + 1e-9) for p in one.points)
        ]
        within = [each for each in designs if each[1].point.safe_cost <= cost * (1.0 + 1e-3)]
        within.sort(key=lambda each: each[1].point.safe_variance)
        if cost >= 1.0 - 1e-12 and not (within and self._is_better(*within[0])):
            return self._run_itself()
        if not within:
            raise InputError(self._why_not_at(cost, [each[1].point for each in designs]))
        return self._designed(*within[0], cost)

    def _is_better(self, designs: PricedDesigns, priced: PricedDesign) -> bool:
        """Whether a point at the target policy's own cost is used instead of what `design` runs.

        If that takes no risk, both halves of the logs must confirm a gain that is worth one.
        """
        itself = self._itself
        if self._decision.design.recipe.floor < 1.0:
            return priced.point.safe_variance < itself.variance
        most = (1.0 - self._evidence.least_gain) * itself.variance
        return designs.confirmed_variance(priced.point) < most

    def _why_not_at(self, cost: float, tried: Sequence[Point]) -> str:
        """An empty frontier and a cost out of reach are two things."""
        if not any(one.points for one in self._designs):
            return (
                f"cost: got {cost:g}, but the frontier is empty: the logs bear out no point below "
                f"the target policy's own cost ({self.why_empty}); log more, or run the target "
                "policy, at(cost=1)"
            )
        points = [p for one in self._designs for p in one.points]
        within = ""
        if tried:  # the curve has no cap
            points, within = list(tried), f"within the cap {self._designs[0].recipe.cap:g} "
        return (
            f"cost: got {cost:g} of the target policy's, but {within}the least that the logs bear "
            f"out is {min(p.safe_cost for p in points):.3f}; try that, or log more"
        )

    def _designed(
        self, designs: PricedDesigns, priced: PricedDesign, cost: float | None = None
    ) -> BehaviorPolicy:
        """The behavior policy, which promises the cost that was asked for; None: its own."""
        evidence, (swept, grid, point) = self._evidence, priced
        recipe = replace(
            designs.recipe,
            budget="weighted",
            price=point.price,
            epsilon=point.safe_cost - 1.0 if cost is None else round(cost - 1.0, 12),
            prices=(grid.low, grid.ratio, grid.count),
        )
        obs, target = evidence.whole.at(0).obs, evidence.target
        report = Report(
            rows=evidence.log.count,
            regression=evidence.regression.name,
            support=evidence.support,
            binding=1.0,
            kept=swept.unchanged,
            prediction=Prediction(
                variance=point.safe_variance,
                cost=point.cost,
                checked_variance=point.checked_variance,
                checked_cost=point.checked_cost,
                doubt=point.doubt,
            ),
            holdout=self._decision.errors,
            warnings=self.warnings if point.pays else (*self.warnings, point.does_not_pay),
            seconds=time.perf_counter() - self._began,
            notes=evidence.log.notes,
            shape=Shape(
                actions=evidence.log.actions,
                width=int(obs.shape[1]) if obs.ndim > 1 else None,
                states=target.states if isinstance(target, TabularPolicy) else None,
            ),
            curve=self.curve,
        )
        mark = take_fingerprint(target, recipe.horizon, evidence.logged_obs)
        return BehaviorPolicy(target, swept.critics, recipe, report, mark)

    # -- showing -----------------------------------------------------------------------------

    @property
    def why_empty(self) -> str:
        """Why there are no points; empty where there are some."""
        if self.points:
            return ""
        return "; ".join(self.warnings) or "held-out logs confirm no design"

    @property
    def least_needed(self) -> Point:
        """The point with the least variance times cost; of several, the one that costs less."""
        return least_needed(self.points)

    def plot(self, ax: Axes | None = None, chosen: BehaviorPolicy | None = None) -> Axes:
        """Draw the curve with the target policy, ODI and what was chosen; doubts are shaded.

        Args:
            ax: matplotlib axes; None: those of a new figure, which is ``.figure``.
            chosen: a behavior policy of this frontier.
        """
        point = None if chosen is None else chosen.predicted
        at = None if point is None else (point.variance, point.safe_cost)
        return draw_curve(self.curve, ax, at, self.why_empty)

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for each point, from the least variance to the least cost.

        `safe_variance` and `safe_cost` are what to expect, `needed` is their product, and a point
        `pays` if that is below 1; see `Point` for the others.
        """
        return frame_of({name: [getattr(p, name) for p in self.points] for name in _COLUMNS})

    def __repr__(self) -> str:
        why = "" if self.points else f": {self.why_empty}"
        return f"Frontier({len(self.points)} points{why})"

    def _repr_html_(self) -> str:
        if not self.points:
            sentence = "The logs bear out no point: log more, or run the target policy."
            return Card("Frontier", sentence, remarks=self.warnings or (self.why_empty,)).html()
        best, points = self.least_needed, self.points
        named = (
            ("least variance", points[least([p.safe_variance for p in points])]),
            ("best(): least needed", best),
            ("least cost", points[least([p.safe_cost for p in points])]),
        )
        return Card(
            f"Frontier of variance against cost, {len(self.points)} points",
            f"At {best.safe_cost:.2f} of the target policy's cost, {best.safe_variance:.2f} of its "
            f"variance: a given precision for {best.needed:.2f} of the "
            "total cost.",
            tuple((name, *_numbers(point)) for name, point in named),
            ("", "variance", "cost", "needed"),
            sketch_curve([(p.safe_cost, p.safe_variance) for p in self.points]),
            self.warnings,
        ).html()


def envelope(curves: Sequence[Sequence[Point]], itself: Point) -> tuple[Point, ...]:
    """The points of several curves that no point of another one, nor `itself`, is better than."""

    def beaten(p: Point, others: Iterable[Point]) -> bool:
        return any(
            q.safe_cost <= p.safe_cost and q.safe_variance <= p.safe_variance for q in others
        )

    kept = []
    for curve in curves:
        others = [q for other in curves if other is not curve for q in other]
        kept += [p for p in curve if not beaten(p, (*others, itself))]
    return tuple(sorted(kept, key=lambda p: p.safe_variance) if len(curves) > 1 else kept)


def _numbers(p: Point) -> tuple[str, str, str]:
    numbers = (p.safe_variance, p.safe_cost, p.needed)
    return tuple(f"{x:.2f}" for x in numbers)  # type: ignore[return-value]


def frontier(
    logs: Transitions | World | Iterable[Transitions] | KnownModel,
    policy: Any,
    *,
    horizon: int | None = None,
    method: str | Method = "scope-dr",
    gamma: float | None = None,
    learn: Learn | None = None,
    check: Check | None = None,
    cap: float = CAP,
    points: int | None = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Frontier:
    """Learn the whole frontier of variance against cost from logs.

    Args:
        logs: as for `design`, and so are
        policy: the target policy,
        horizon: the length of an episode,
        method: "scope-dr", or "scope" for b = 0,
        gamma: the discount,
        learn: what learns,
        check: what a design must show; its floor is by default less than a design's, because the
            cap bounds the weights already,
        cap: the weight of an episode never exceeds it.
        points: how many prices of cost are tried.
        seed: of the halving and the networks.
        progress: as for `design`.
    """
    chosen, given = method_named(method), check or Check()
    asked = question_of(policy, horizon, gamma)
    if isinstance(logs, KnownModel):
        settings: dict[str, Any] = {"cap": cap, "points": points, "floor": given.floor}
        exact: Frontier = logs.frontier_for(asked, chosen, **settings)
        return exact
    if asked.horizon is None:
        raise InputError("horizon: needed, expected the number of steps of an episode")
    recipe = Recipe(
        chosen,
        asked.horizon,
        discount(asked),
        floor=LEAST_SHARE if given.floor is None else given.floor,
    )
    with follow_phases(progress) as watched, one_blas_thread():  # threads of our own share the work
        evidence = evidence_of(logs, asked, learn=learn_of(learn), seed=seed, progress=watched)
        if isinstance(evidence.regression, Networks) and given.floor is None:
            recipe = replace(recipe, floor=MODEL_SHARE)
        return _learned_frontier(evidence, recipe, cap, points)


def _learned_frontier(
    evidence: Evidence, asked: Recipe, cap: float, points: int | None
) -> Frontier:
    method, decision = asked.method, decide(evidence, asked)
    best, warnings = decision.design.recipe, decision.warnings
    chosen = [best.method]
    if best.floor >= 1.0:
        # where no departure is confirmed, one may still save cost: the cross-check of every point
        # decides, which logs must be able to (tables' too: a point departs further than a design)
        possible = evidence.support >= LEAST_SUPPORT and evidence.log.doubt is None
        chosen = [method] if possible else []
        if possible and method.control_variate:
            chosen.append(without_control_variate(method))
        if not best.method.tilted and possible:
            warnings = (ONLY_CHEAPER,)
        elif best.method.tilted and not possible:
            warnings = (*warnings, too_little_support(evidence))
    elif best.method != method:
        chosen.append(method)  # a control variate that does not pay there may pay below
    # a part of the control variate may be for the target policy itself
    share = best.share if best.share in evidence.caution.shares else 1.0
    recipes = [
        replace(asked, method=one, share=share if one == best.method else 1.0, cap=cap)
        for one in chosen
    ]
    model = isinstance(evidence.regression, Networks)
    many = points if points is not None else (MODEL_PRICES if model else PRICES)
    return Frontier(evidence, decision, recipes, warnings, many)
