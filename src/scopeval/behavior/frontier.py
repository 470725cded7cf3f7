"""The whole frontier of variance against cost, learned from logs: also below the target's own cost.

One backward sweep over a grid of prices gives every point (`weighted_step`). As for `design`, half
of the logs determine the behavior policies and the other half judges them; a point that the
held-out half does not bear out is not offered.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from scopeval._parallel import one_blas_thread
from scopeval._progress import Progress, follow_phases
from scopeval.arrays import is_number
from scopeval.behavior.decision import Decision, decide, judge_support
from scopeval.behavior.evidence import Evidence, evidence_of
from scopeval.behavior.frontier_check import judge
from scopeval.behavior.frontier_point import Curve, Point
from scopeval.behavior.frontier_views import FrontierViews
from scopeval.behavior.methods import METHODS, KnownModel, Method, method_named
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.price import approach
from scopeval.behavior.settings import Learn, Settings, learn_of
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction, Report, Shape
from scopeval.behavior.sweep import Swept, follow_own, ratio
from scopeval.behavior.thresholds import THRESHOLDS
from scopeval.behavior.weighted_step import PriceGrid, follow_fixed_prices, follow_prices
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.models.model.regression import Networks
from scopeval.models.model.world import World
from scopeval.models.table import Table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.fingerprint import take_fingerprint
from scopeval.question.inference import Check
from scopeval.question.question import question_of

__all__ = ["Frontier", "frontier"]

#: Prices on the grid, for tables and networks, and for critics by a model of the world.
PRICES, MODEL_PRICES = 40, 24
#: The grid reaches so many decades below and above variance / cost of the target policy. Above,
#: because prices are lambda / W^2, and most episodes of a cheap behavior policy have small weights.
DECADES = (3.0, 6.0)
NO_COST = "by the logs the target policy costs nothing: there is no cost to save; try design"
ONLY_CHEAPER = (
    "at the target policy's own cost the logs bear out no gain in variance; cheaper points are "
    "offered as far as held-out logs agree, and may have more variance than predicted"
)
#: Points are offered up to so many decades above it.
HIGHEST = 3.0
#: Least share of the target policy, unless given: with tables, and with simulated dynamics. Points
#: are cross-checked without the cap, which in a design gives a share of 1/30 at weight 1. With much
#: less a few simulated episodes of enormous weight would deny every point.
LEAST_SHARE, MODEL_SHARE = 0.005, 0.05
#: What a chosen design costs is computed on a grid so many times as fine, that ends with so small a
#: weight. With tables only: others would have to learn as many functions.
FINER, LEAST_WEIGHT = 2, 1e-5
#: How often the search is repeated with what that says.
SEARCHES = 3
#: Weight that no episode exceeds.
CAP = 30.0


class _Capped(NamedTuple):
    """A design at one price with the cap in force, and the grid of prices it is on."""

    swept: Swept
    grid: PriceGrid
    point: Point


class Frontier(FrontierViews):
    """What evaluating a policy takes, as variance against cost; every point is a behavior policy.

    Attributes:
        points: from the least variance to the least cost; only those that held-out logs bear out.
        warnings: what the user should know.
    """

    def __init__(
        self, evidence: Evidence, decision: Decision, recipe: Recipe, cap: float, prices: int
    ) -> None:
        self._began = time.perf_counter()
        self._evidence, self._decision, self._recipe = evidence, decision, recipe
        own = decision.design.swept
        unit = float(own.variance[0] / own.cost[0]) if own.cost[0] > 0 else 1.0
        unit = unit if unit > 0 else 1.0
        self._grid = PriceGrid.around(unit, DECADES, prices)
        self._cap = cap
        costs = bool(own.cost[0] > 0)
        self.warnings = decision.warnings if costs else (*decision.warnings, NO_COST)
        self.points: tuple[Point, ...] = ()
        if decision.method.tilted and costs:
            judged = self._judged = judge(evidence, decision.method, recipe, self._grid)
            every = [
                Point(
                    float(price),
                    float(judged.variance[j]),
                    float(judged.cost[j]),
                    float(max(judged.variance[j] + judged.more_variance[j], 0.0)),
                    float(judged.cost[j] + judged.more_cost[j]),
                    judged.doubt(j),
                )
                for j, price in enumerate(self._grid.prices)
                if price <= unit * 10.0**HIGHEST
            ]
            self.points = tuple(point for point in every if point.offered)
            if not self.points:
                first = every[0]
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
        e, odi = self._evidence, METHODS["odi"]
        recipe = replace(self._recipe, method="odi", epsilon=0.0, cap=None)
        swept = e.sweep(e.whole, follow_own(odi, recipe), 2)
        both = (ratio(x[1], x[0]) for x in (swept.variance, swept.cost))
        variance, cost = (float(x) for x in both)
        return Curve(self.points, (variance, cost))

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
        return self._most_precise(float(given[0]))

    def best(self) -> BehaviorPolicy:
        """The point with the least variance times cost: what reaching a given precision costs."""
        self._need_points("best")
        return self._designed(self._run_of(self._capped(self.least_needed.price)))

    def _cheapest(self, variance: float) -> BehaviorPolicy:
        self._need_points("variance")
        fine = [p for p in self.points if p.safe_variance <= variance]
        if not fine:
            least = min(p.safe_variance for p in self.points)
            raise InputError(
                f"variance: got {variance:g}, but the least that the logs bear out is {least:.3g} "
                "of the target policy's; try that, or log more"
            )
        return self._designed(self._search("variance", variance))

    def _most_precise(self, cost: float) -> BehaviorPolicy:
        """The least price at which an episode costs no more, with the cap in force."""
        self._need_points("cost")
        cheapest = min(p.safe_cost for p in self.points)
        if cost < cheapest * (1.0 - 1e-9):
            raise InputError(
                f"cost: got {cost:g} of the target policy's, but the least that the logs bear out "
                f"is {cheapest:.3f}; try that, or log more"
            )
        found = self._search("cost", cost)
        point = found.point
        if point.safe_cost > cost * (1.0 + 1e-3):
            raise InputError(
                f"cost: got {cost:g} of the target policy's, but within the cap {self._cap:g} the "
                f"least that the logs bear out is {point.safe_cost:.3f}; try that, or log more"
            )
        return self._designed(found, cost)

    def _search(self, by: str, asked: float) -> _Capped:
        """The design whose promised cost, or expected variance, is as asked, or a little less.

        The curve, which has no cap, says where to begin.
        """
        sign = 1.0 if by == "cost" else -1.0  # the one falls with the price, the other rises
        known = {
            sign * float(np.log(p.price)): p.safe_cost if by == "cost" else p.safe_variance
            for p in self.points
        }
        places = np.array(sorted(known))
        tried: dict[float, _Capped] = {}

        def read(found: _Capped) -> float:
            return found.point.safe_cost if by == "cost" else found.point.safe_variance

        def reached(place: float) -> float:
            if place not in tried:
                tried[place] = self._capped(float(np.exp(sign * place)))
            return read(tried[place])

        aim = asked
        for _ in range(SEARCHES):
            found = tried[approach(reached, aim, places, np.array([known[x] for x in places]))]
            runs = self._run_of(found)
            if not (read(runs) > asked * (1.0 + 1e-6) and read(found) <= aim * (1.0 + 1e-6)):
                break
            aim *= asked / read(runs)
        return runs

    @one_blas_thread()
    def _run_of(self, found: _Capped) -> _Capped:
        """The same design; its variance and cost are those of what runs between two prices."""
        method, recipe, e = self._decision.method, self._recipe, self._evidence
        if not isinstance(e.regression, Table):
            return found
        (swept, grid, point), finer = (
            found,
            found.grid.refined(FINER, found.point.price / LEAST_WEIGHT**2),
        )
        follow = follow_fixed_prices(method, recipe, grid, swept.critics, point.price, finer)
        runs = e.sweep(e.whole, follow, 1 + finer.count)
        k = 1 + FINER * grid.place_of(point.price)
        more = [
            float(ratio(x[k], x[0])) - before
            for x, before in ((runs.variance, point.variance), (runs.cost, point.cost))
        ]
        point = replace(
            point,
            variance=point.variance + more[0],
            cost=point.cost + more[1],
            checked_variance=max(point.checked_variance + more[0], 0.0),
            checked_cost=point.checked_cost + more[1],
        )
        return found._replace(point=point)

    @one_blas_thread()
    def _capped(self, price: float) -> _Capped:
        """The design at a price with the cap in force, and the grid it is on.

        It is checked without the cap: what held-out logs say more is carried over.
        """
        method, recipe, e = self._decision.method, self._recipe, self._evidence
        grid, k = self._grid.within_cap(price, self._cap)
        swept = e.sweep(e.whole, follow_prices(method, recipe, grid, price), 1 + grid.count)
        variance = float(ratio(swept.variance[1 + k], swept.variance[0]))
        cost = float(ratio(swept.cost[1 + k], swept.cost[0]))
        free = self._judged
        place = float(np.log(price / self._grid.low) / np.log(self._grid.ratio))
        checked = (
            max(variance + free.read(free.more_variance, place), 0.0),
            cost + free.read(free.more_cost, place),
        )
        point = Point(price, variance, cost, *checked, free.doubt(place))
        return _Capped(swept, grid, point)

    def _designed(self, found: _Capped, cost: float | None = None) -> BehaviorPolicy:
        """The behavior policy, which promises the cost that was asked for; None: its own."""
        evidence, (swept, grid, point) = self._evidence, found
        recipe = replace(
            self._recipe,
            budget="weighted",
            price=point.price,
            epsilon=point.safe_cost - 1.0 if cost is None else round(cost - 1.0, 12),
            prices=(grid.low, grid.ratio, grid.count),
            cap=self._cap,
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
        method = self._decision.method
        return BehaviorPolicy(target, swept.critics, recipe, report, method, mark)

    def _need_points(self, name: str) -> None:
        if not self.points:
            raise InputError(
                f"{name}: the logs bear out no point of a frontier ({self.why_empty}); log more, "
                "or run the target policy"
            )


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
    how, given = method_named(method), check or Check()
    asked = question_of(policy, horizon, gamma)
    if isinstance(logs, KnownModel):
        settings: dict[str, Any] = {"cap": cap, "points": points, "floor": given.floor}
        known: Frontier = logs.frontier_for(asked, how, **settings)
        return known
    if asked.horizon is None:
        raise InputError("horizon: needed, expected the number of steps of an episode")
    with follow_phases(progress) as told:
        return _learned_frontier(
            logs,
            asked.policy,
            how,
            Settings(
                horizon=asked.horizon,
                gamma=1.0 if asked.gamma is None else asked.gamma,
                learn=learn_of(learn),
                floor=LEAST_SHARE if given.floor is None else given.floor,
                constraint=how.constraint,
                seed=seed,
                progress=told,
            ),
            cap,
            points,
            own_floor=given.floor is not None,
        )


@one_blas_thread()  # threads of our own share the work
def _learned_frontier(
    logs: Transitions | World | Iterable[Transitions],
    target: object,
    method: Method,
    settings: Settings,
    cap: float,
    points: int | None,
    *,
    own_floor: bool,
) -> Frontier:
    evidence = evidence_of(logs, target, settings)
    model = isinstance(evidence.regression, Networks)
    if model and not own_floor:
        evidence = replace(evidence, settings=replace(settings, floor=MODEL_SHARE))
    decision = decide(evidence, method)
    shown = judge_support(evidence.support, method, THRESHOLDS, evidence.vectors) is None
    if not decision.method.tilted and shown and evidence.log.doubt is None:
        # a design that saves no variance at the target's own cost may still save cost: the
        # cross-check of every point decides
        decision = replace(decision, method=method, warnings=(ONLY_CHEAPER,))
    recipe = replace(
        evidence.settings.recipe(decision.method.name),
        share=decision.design.recipe.share,
        cap=cap,
    )
    many = points if points is not None else (MODEL_PRICES if model else PRICES)
    return Frontier(evidence, decision, recipe, cap, many)
