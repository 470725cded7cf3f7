r"""From logged data and a target to a safe, variance-minimizing behavior policy: Algorithm 1.

`sweep` is the paper's algorithm; `design` runs it with the precautions that estimated critics need:

1. The logs are halved. A behavior policy is designed on each half and *checked* by critics that
   learn from the other half: what it is worth there, not what its own critics promise.
2. That check decides how far to depart from the target (the *floor*: mu <- (1-floor) mu + floor pi,
   floor = 1 being the target itself) and how much of the budget to leave unspent (the *margin*: by
   as much as the checked cost came out too high).
3. The final design uses all of the logs, with that floor and margin.

Differs from the paper: the second moment X is learned in the form (q - b)^2 + noise +
E[gamma^2 V'], equal to its extended reward r~ for b = 0 and gamma = 1 (see `exact`), because each
part is at least zero and needs no model of the reward. The cost in the constraint is q^c under mu,
as in the paper's program; q^c under pi, as its Algorithm 1 lists, is ``constraint="target"``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints, check_whole, is_number
from scopeval.behavior import _sweep_kernel as kernel
from scopeval.behavior.coverage import support_of
from scopeval.behavior.methods import (
    BUDGETS,
    METHODS,
    Method,
    check_budget,
    check_epsilon,
    method_named,
)
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.price import find_price
from scopeval.behavior.regression_choice import choose_regression, put_on_device
from scopeval.behavior.summary import Prediction, Report, Shape
from scopeval.behavior.weighing import Recipe, weigh_rows
from scopeval.critics.log_rows import Log, gather
from scopeval.critics.model.imagined_data import Imagination
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.protocols import Caution, Critic, Estimates, Regression, Targets
from scopeval.critics.sweep_data import Ground, Points, logged_ground
from scopeval.critics.table import TableRegression
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["design", "designs", "sweep"]

#: Departures from the target that the check chooses among.
FLOORS = (0.02, 0.25, 0.5, 0.75)

#: A control variate is used if the checked relative variance is below this, and ...
WORTH = 0.9
#: ... below `Caution.trust`, or at most so many times the predicted one: little to win, but surely.
AGREEMENT = 1.08
#: The logs must show at least this share of the target's own steps; else the target is kept.
LEAST_SUPPORT = 0.25
#: And this share for a control variate; else b = 0.
VARIATE_SUPPORT = 0.5
#: At most so many rows of each half serve the check of a design for vectors.
CHECK_ROWS = 25_000

#: Of a recipe that stays at the target.
AT_TARGET: dict[str, Any] = {"method": "on-policy", "margin": 0.0, "budget": "state", "price": 0.0}

#: mu and b of every followed behavior: (t, points, pi, estimates) -> [(mu, b), ...]
Follow = Callable[[int, Points, Floats, Estimates], list[tuple[Floats, Floats]]]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Swept:
    """What a backward sweep found.

    Attributes:
        critics: one per time step.
        variance: [k] variance of one episode's estimate, per followed behavior.
        cost: [k] expected cost of an episode, likewise; index 0 is the target itself, b = 0.
        kept: share of logged states where mu is pi, mean over time; of the last behavior.
        start_spread: [k] how much the cost, less its ratio times the target's, differs between
            first observations, in units of the target's cost: standard deviation.
    """

    critics: list[Critic]
    variance: Floats
    cost: Floats
    kept: float
    start_spread: Floats


@np.errstate(over="ignore", invalid="ignore")  # critics that are not finite are told by counts
def sweep(
    ground: Ground,
    target: Policy | ContinuousPolicy,
    follow: Follow,
    *,
    horizon: int,
    gamma: float,
    actions: int,
    followed: int,
    seed: int,
    tick: Callable[[], None] = lambda: None,
) -> Swept:
    """Algorithm 1: backwards in t, fit the critics, solve for mu, carry the values on.

    Args:
        ground: the rows to learn from at each time step, and where values are needed.
        target: pi.
        follow: the behaviors whose cost and variance are carried along.
        horizon: T.
        gamma: discount.
        actions: number of actions, or of candidates.
        followed: how many behaviors `follow` returns.
        seed: of whatever the regression draws.
        tick: called after every time step.
    """
    pooled = len(ground.rows) == 1
    learners = [ground.learner(0, actions, seed)] if pooled else []
    v = np.zeros(len(ground.at(horizon).obs))
    v_cost = np.zeros_like(v)
    V = costs = np.zeros((len(v), followed))
    critics: list[Critic] = []
    kept = 0.0
    for t in reversed(range(horizon)):  # Alg. 1, line 4
        step = 0 if pooled else t
        part, to, points = ground.rows[step], ground.successor[step], ground.at(t)
        learner = learners[0] if pooled else ground.learner(t, actions, seed)
        ahead = gamma * part.alive
        critic = learner.fit(  # Alg. 1, lines 3 and 5
            Targets(
                reward=part.reward + ahead * v[to],
                cost_target=part.cost + ahead * v_cost[to],
                cost_behavior=part.cost[:, None] + ahead[:, None] * costs[to],
                carried=(gamma * ahead)[:, None] * V[to],
                reward_noise=part.reward_noise,
            )
        )
        critics.append(critic)
        e = critic.at(points.obs, points.actions)
        pi = np.ascontiguousarray(points.target(target, t))
        behaviors = follow(t, points, pi, e)  # Alg. 1, line 6
        q, noise, carried, cost = map(
            np.ascontiguousarray, (e.q, e.noise, e.carried, e.cost_behavior)
        )
        error, own = np.ascontiguousarray(e.error), np.ascontiguousarray(e.cost_target)
        v, v_cost, unsure = kernel.values(pi, q, own, error)
        V, costs, same = np.empty((len(v), followed)), np.empty((len(v), followed)), v > 0
        for j, (mu, b) in enumerate(behaviors):
            kernel.follow(pi, mu, b, q, noise, carried, cost, v, unsure, j, V, costs, same)
        kept += float(points.logged @ same) / horizon
        tick()
    start = ground.at(0).initial
    spread = float(start @ (v - start @ v) ** 2)
    cost = start @ costs
    away = costs - _ratio(cost, cost[0]) * costs[:, :1]
    apart = np.sqrt(start @ away**2) / (cost[0] if cost[0] > 0 else 1.0)
    return Swept(critics[::-1], start @ V + spread, cost, kept, apart)


def design(
    logged: Transitions | Iterable[Transitions],
    target: object,
    *,
    horizon: int,
    method: str | Method = "scope",
    epsilon: float = 0.0,
    gamma: float = 1.0,
    regression: str | Regression = "auto",
    features: NDArray[Any] | None = None,
    time_varying: bool = False,
    floor: float = FLOORS[0],
    constraint: str = "behavior",
    limit: float | None = None,
    budget: str = "state",
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> BehaviorPolicy:
    """Learn a behavior policy for `target` from logs of unknown controllers.

    Args:
        logged: the log, or batches of it (`stream_logged`), which are then merged as they come:
            state numbers only.
        target: pi: a policy, a table, a torch module that gives logits, or a function.
        horizon: T, the length of an episode.
        method: "scope" (the paper's), "scope-dr" (with a control variate), "odi", "dopt",
            "on-policy".
        epsilon: the expected cost may be (1+epsilon) times the target's.
        gamma: discount, of rewards and costs alike.
        regression: "table" (state numbers), "model" (vectors: by a model of the world), "mlp" (the
            paper's networks), "auto" chooses between the first two; or a `Regression` of your own.
        features: [S, d] coordinates of the states, so that pairs never logged can be guessed from
            their neighbors (table only).
        time_varying: whether rewards or dynamics depend on t beyond the observation. If not (the
            default, and the paper's setting), every logged row serves every time step.
        floor: at least this share of the target's own probabilities stays in the mixture: bounds
            every importance ratio by 1/floor, so that the estimate is unbiased whatever the
            critics say.
        constraint: "behavior" or "target": whose cost-to-go the budget is spent on.
        limit: an absolute limit on the expected cost-to-go instead of (1+epsilon) times the
            target's.
        budget: "state": the promise holds from every state on (the paper's). "episode": it holds
            for whole episodes; what is saved in one state may be spent in another, often for far
            less variance. Held-out logs decide whether it is used.
        seed: of the halving and the networks.
        device: "cuda": networks for vectors (regression "mlp") are trained there, with the same
            results to the rounding of float32.
        progress: called with (what, done, total); for vectors there are several of what, one after
            the other.

    Returns:
        A `BehaviorPolicy`; print its `summary()` before running it.
    """
    settings = {
        "epsilon": epsilon,
        "gamma": gamma,
        "regression": regression,
        "features": features,
        "time_varying": time_varying,
        "floor": floor,
        "constraint": constraint,
        "limit": limit,
        "budget": budget,
        "seed": seed,
        "device": device,
        "progress": progress,
    }
    how = method_named(method)
    return designs(logged, target, [how], horizon=horizon, **settings)[how.name]


def designs(
    logged: Transitions | Iterable[Transitions],
    target: object,
    methods: Sequence[str | Method],
    *,
    horizon: int,
    **settings: Any,
) -> dict[str, BehaviorPolicy]:
    """Several methods for one target, by name: the logs are read, and a model learned, only once.

    Args:
        logged: as for `design`.
        target: as for `design`.
        methods: their names.
        horizon: as for `design`.
        settings: the other arguments of `design`.
    """
    run = _opened(logged, target, horizon=horizon, **settings)
    wanted = [method_named(method) for method in methods]
    run.total = sum(map(run.sweeps, wanted)) * horizon
    try:
        return {how.name: run.design(how) for how in wanted}
    finally:
        run.forget()


def _opened(
    logged: Transitions | Iterable[Transitions],
    target: object,
    *,
    horizon: int,
    epsilon: float = 0.0,
    gamma: float = 1.0,
    regression: str | Regression = "auto",
    features: NDArray[Any] | None = None,
    time_varying: bool = False,
    floor: float = FLOORS[0],
    constraint: str = "behavior",
    limit: float | None = None,
    budget: str = "state",
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
) -> _Run:
    """Check the arguments, read the logs, lay the ground."""
    pi = as_policy(target)
    if limit is not None and not (is_number(limit) and limit >= 0):
        raise InputError(
            f"limit: got {limit!r}, expected a number >= 0: what the rest of an episode may cost"
        )
    recipe = Recipe(
        method="scope",
        epsilon=check_epsilon(epsilon),
        horizon=check_whole("horizon", horizon, 1, " of steps"),
        gamma=_between("gamma", gamma, 0.0, 1.0),
        floor=_between("floor", floor, 0.0, 1.0),
        margin=0.0,
        constraint=constraint,
        limit=None if limit is None else float(limit),
        budget=check_budget(budget, limit, constraint),
    )
    seed = check_whole("seed", seed, 0)
    if constraint not in ("behavior", "target"):
        raise InputError(f"constraint: got {constraint!r}, expected 'behavior' or 'target'")

    merge = isinstance(regression, TableRegression) or regression in ("auto", "table")
    log = gather(logged, pi, recipe.horizon, seed, merge)
    learn = choose_regression(regression, log, pi, features)
    if device is not None:
        learn = put_on_device(learn, device)
    return _Run(log, pi, recipe, learn, time_varying, seed, progress)


class _Run:
    """One call of `design`: the halves, the check, the final sweep."""

    def __init__(
        self,
        log: Log,
        target: Policy | ContinuousPolicy,
        recipe: Recipe,
        regression: Regression,
        time_varying: bool,
        seed: int,
        progress: Progress | None,
    ) -> None:
        self.began = time.perf_counter()
        self.log, self.target, self.recipe, self.regression = log, target, recipe, regression
        self.seed, self.progress, self.done, self.total = seed, progress, 0, 5 * recipe.horizon
        halves = [np.flatnonzero(log.fold == k) for k in range(2)]
        if isinstance(regression, ModelRegression):
            parts = [log.rows.select(half) for half in halves]
            gamma, horizon = recipe.gamma, recipe.horizon
            imagine = Imagination(regression, target, horizon, time_varying, seed, gamma, progress)
            self.halves, self.whole = imagine.grounds(parts, log)
            self.holdout, self.forget = imagine.holdout, imagine.forget
            return
        self.holdout, self.forget = {}, lambda: None
        rows = log.rows if time_varying else replace(log.rows, t=np.zeros_like(log.rows.t))
        most = CHECK_ROWS if rows.obs.ndim > 1 and not time_varying else len(rows)
        states = target.states if isinstance(target, TabularPolicy) else None

        def ground(some: Ints) -> Ground:
            return logged_ground(
                rows.select(some),
                log.starts,
                regression,
                actions=log.actions,
                steps=recipe.horizon if time_varying else 1,
                states=states,
                everything=rows,
            )

        self.halves = [ground(_thinned(half, most, seed)) for half in halves]
        self.whole = ground(np.arange(len(rows)))

    # -- the steps ---------------------------------------------------------------------------

    def sweeps(self, how: Method) -> int:
        """About how many a design takes; a price takes some five for each half and the whole."""
        if not how.constrained or self.recipe.budget == "state":
            return 5
        caution = getattr(self.regression, "caution", Caution())
        return 5 + 5 * (1 + 2 * (len(caution.shares) if how.control_variate else 1))

    def design(
        self,
        how: Method,
        warnings: tuple[str, ...] = (),
        budgets: tuple[str, ...] = BUDGETS,
    ) -> BehaviorPolicy:
        """Halve, check, design; `budgets` are those to choose from, if the user lets us choose."""
        if METHODS.get(how.name) != how:
            raise InputError(f"method: got {how!r}, expected one of {', '.join(METHODS)}")
        self.recipe = replace(self.recipe, method=how.name)
        support = support_of(self.whole, self.log, self.target, self.recipe.horizon)
        if how.tilted and support < LEAST_SUPPORT:
            told = (
                f"the logs show only {support:.0%} of the target's own steps, too few to judge a "
                "departure from it; it stays at the target. Use on-policy evaluation, or log more",
            )
            how, warnings = METHODS["on-policy"], (*warnings, *told)
            self.recipe = replace(self.recipe, method=how.name)
        floors = tuple(f for f in FLOORS if f > self.recipe.floor)
        floors = (self.recipe.floor, *floors) if how.tilted else (1.0,)
        if how.control_variate:  # running the target itself is a choice too: b alone may do
            floors = (*floors, 1.0)
        caution = getattr(self.regression, "caution", Caution())
        shares = caution.shares if how.control_variate else (1.0,)
        if not how.constrained or self.recipe.budget == "state":
            budgets = ("state",)
        variants = [
            replace(self.recipe, share=share, budget=budget)
            for budget in budgets
            for share in shares
        ]
        choices = [replace(variant, floor=floor) for variant in variants for floor in floors]
        checked_variance, both_costs, disagreement = self._check(how, floors, variants)
        checked_cost = both_costs.mean(axis=0)
        best = int(np.argmin(np.nan_to_num(checked_variance, nan=np.inf)))
        checked = float(checked_variance[best])
        if how.control_variate and not (checked < WORTH and support >= VARIATE_SUPPORT):
            return self._without_control(how, warnings, checked, support)
        recipe = choices[best]
        if how.constrained and recipe.limit is None:
            # what both halves say, less what they cannot agree on
            doubt = 0.5 * abs(float(both_costs[0, best] - both_costs[1, best]))
            excess = float(np.nan_to_num(checked_cost[best] - doubt)) - (1.0 + recipe.epsilon)
            recipe = replace(recipe, margin=float(np.clip(excess, 0.0, 0.5)))
        words = list(warnings)
        if how.tilted and not checked < caution.least:
            words.append(
                "the logs are too thin: on held-out logs the design was not clearly better than "
                f"running the target itself (relative variance {checked:.2f}); it stays at the "
                "target. Use on-policy evaluation, or log more"
            )
            how, recipe = METHODS["on-policy"], replace(recipe, **AT_TARGET)
        recipe = self._with_price(self.whole, how, recipe)
        once_more = recipe.budget == "episode" and len(budgets) > 1
        final, binding, infeasible = self._final(how, recipe)
        predicted = float(_ratio(final.variance[-1], final.variance[0]))
        if how.control_variate and checked >= caution.trust and checked > AGREEMENT * predicted:
            return self._without_control(how, warnings, checked, support)
        if recipe.share < 1.0:  # critics known to say too much: what the other half says
            predicted = max(predicted, checked)
        spent = float(_ratio(final.cost[-1], final.cost[0]))
        if once_more and not (predicted <= 1.0 and spent <= 1.001 * (1.0 + recipe.epsilon)):
            return self.design(how, warnings, ("state",))  # the price did not keep what it promised
        if how.tilted and not predicted <= 1.0:
            words.append(
                "the safe design has more predicted variance than running the target itself "
                f"({predicted:.2f} times); it stays at the target. Use on-policy evaluation, log "
                "more, or allow a larger epsilon"
            )
            how, recipe = METHODS["on-policy"], replace(recipe, **AT_TARGET)
            final, binding, infeasible = self._final(how, recipe)
            predicted = float(_ratio(final.variance[-1], final.variance[0]))
        if LEAST_SUPPORT <= support < 0.9:
            words.append(
                f"the logs do not show {1 - support:.0%} of the target's own steps; there the "
                "behavior keeps to the target, or to guesses from neighboring states"
            )
        if infeasible > 0.01:
            words.append(
                f"in {infeasible:.0%} of the logged states no affordable behavior exists"
                + (" under the absolute limit" if recipe.limit is not None else "")
                + "; the target is kept there"
            )
        obs = self.whole.at(0).obs
        report = Report(
            rows=self.log.count,
            regression=self.regression.name,
            support=support,
            binding=binding,
            kept=final.kept,
            prediction=Prediction(
                variance=predicted,
                cost=float(_ratio(final.cost[-1], final.cost[0])),
                checked_variance=float(checked_variance[best]) if how.tilted else 1.0,
                checked_cost=float(checked_cost[best]) if how.tilted else 1.0,
            ),
            holdout=disagreement,
            warnings=tuple(words),
            seconds=time.perf_counter() - self.began,
            notes=self.log.notes,
            shape=Shape(
                actions=self.log.actions,
                width=int(obs.shape[1]) if obs.ndim > 1 else None,
                states=self.target.states if isinstance(self.target, TabularPolicy) else None,
            ),
        )
        return BehaviorPolicy(self.target, final.critics, recipe, report)

    def _without_control(
        self,
        how: Method,
        warnings: tuple[str, ...],
        checked: float,
        support: float,
    ) -> BehaviorPolicy:
        """The same with b = 0: a poor control variate can do more harm than a poor tilt."""
        told = (
            "the logs are too thin for a control variate (relative variance on held-out logs "
            f"{checked:.2f}, support {support:.0%}); designed without one"
        )
        plain = METHODS["scope" if how.constrained else "odi"]
        return self.design(plain, (*warnings, told))

    def _check(
        self, how: Method, floors: tuple[float, ...], variants: list[Recipe]
    ) -> tuple[Floats, Floats, dict[str, float]]:
        """Design on each half, judge by critics of the other half: every variant, every floor."""
        many = len(variants) * len(floors)
        variance, costs = np.zeros(many), np.zeros((2, many))
        base_variance = 0.0
        recipes = [[self._with_price(half, how, one) for one in variants] for half in self.halves]
        designed = [
            self._sweep(half, self._own(how, *some), 1 + len(some))
            for half, some in zip(self.halves, recipes, strict=True)
        ]
        for k in range(2):
            critics = designed[k].critics
            bare = [replace(recipe, floor=0.0) for recipe in recipes[k]]

            def fixed(
                t: int,
                points: Points,
                pi: Floats,
                e: Estimates,
                critics: list[Critic] = critics,
                bare: list[Recipe] = bare,
            ) -> list[tuple[Floats, Floats]]:
                judged = [(pi, np.zeros_like(pi))]
                said = critics[t].at(points.obs, points.actions)
                for j, recipe in enumerate(bare):
                    mu, b = weigh_rows(how, recipe, pi, said.following(1 + j))
                    judged += [((1.0 - floor) * mu + floor * pi, b) for floor in floors]
                return judged

            found = self._sweep(self.halves[1 - k], fixed, 1 + many)
            variance += found.variance[1:]
            base_variance += found.variance[0]
            costs[k] = _ratio(found.cost[1:], found.cost[0])
        middle = self.recipe.horizon // 2
        points = self.whole.at(middle)
        seen = _thinned(np.flatnonzero(points.logged), CHECK_ROWS, self.seed)
        asked = points.obs[seen], None if points.actions is None else points.actions[seen]
        a, b = (d.critics[middle].at(*asked) for d in designed)
        weight = (points.logged[seen, None] * (a.known & b.known)).ravel()
        errors = self.holdout | {
            "reward critic": _disagreement(a.q, b.q, weight),
            "cost critic": _disagreement(a.cost_target, b.cost_target, weight),
        }
        return _ratio(variance, base_variance), costs, errors

    def _final(self, how: Method, recipe: Recipe) -> tuple[Swept, float, float]:
        """All of the logs; also the shares of logged states that bind or have no answer."""
        from scopeval.behavior.weighing import Counts, budget

        binding = infeasible = 0.0
        own = self._own(how, recipe)

        def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[tuple[Floats, Floats]]:
            nonlocal binding, infeasible
            behaviors = own(t, points, pi, e)
            if not how.constrained:
                return behaviors
            counts, visited = Counts(), np.flatnonzero(points.logged)
            weigh_rows(how, recipe, pi[visited], e.select(visited), counts=counts)
            infeasible += counts.infeasible / len(visited) / recipe.horizon
            if recipe.budget == "episode":
                binding += float(recipe.price > 0.0) / recipe.horizon
            elif recipe.floor < 1.0:
                cost = e.cost_behavior[..., -1]
                if recipe.constraint == "target":
                    cost = e.cost_target
                mass = np.where(e.known, pi, 0.0).sum(axis=1)
                allowed = budget(recipe, pi, e.cost_target, cost, e.known) * mass
                bare = (behaviors[-1][0] - recipe.floor * pi) / (1.0 - recipe.floor)
                spent = np.where(e.known, bare * cost, 0.0).sum(axis=1)
                tight = (spent >= allowed * (1.0 - 1e-9)) & (mass > 0)
                binding += float(points.logged @ tight) / recipe.horizon
            return behaviors

        return self._sweep(self.whole, follow, 2), binding, infeasible

    def _with_price(self, ground: Ground, how: Method, recipe: Recipe) -> Recipe:
        """Where one budget is for whole episodes: the price of cost at which it is just spent.

        Which episodes there are, only the logged first observations tell: twice the standard error
        that comes from their number stays unspent.
        """
        if not how.constrained or recipe.budget == "state":
            return replace(recipe, budget="state")
        unit, root = 1.0, float(np.sqrt(self.log.starts.weight.sum()))

        def spent(prices: list[float]) -> list[float]:
            nonlocal unit
            recipes = [replace(recipe, price=price) for price in prices]
            swept = self._sweep(ground, self._own(how, *recipes), 1 + len(recipes))
            unit = float(_ratio(swept.variance[0], swept.cost[0]))
            ratios = _ratio(swept.cost, swept.cost[0]) + 2.0 * swept.start_spread / root
            return [float(ratio) for ratio in np.nan_to_num(ratios[1:], nan=np.inf)]

        allowed = 1.0 + recipe.epsilon - recipe.margin
        if spent([0.0])[0] <= allowed:
            return replace(recipe, price=0.0)
        price = find_price(spent, allowed, unit, slack=1e-3 * allowed)
        if price is None:  # no price saves enough: every state keeps its own budget
            return replace(recipe, budget="state")
        return replace(recipe, price=price)

    # -- what the steps share ----------------------------------------------------------------

    def _own(self, how: Method, *recipes: Recipe) -> Follow:
        """Follow the target and the behaviors that these very critics imply, one per recipe."""

        def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[tuple[Floats, Floats]]:
            own = (
                weigh_rows(how, recipe, pi, e.following(1 + j)) for j, recipe in enumerate(recipes)
            )
            return [(pi, np.zeros_like(pi)), *own]

        return follow

    def _sweep(self, ground: Ground, follow: Follow, followed: int) -> Swept:
        def tick() -> None:
            self.done += 1
            if self.progress is not None:
                self.progress("design", min(self.done, self.total), self.total)

        return sweep(
            ground,
            self.target,
            follow,
            horizon=self.recipe.horizon,
            gamma=self.recipe.gamma,
            actions=self.log.actions,
            followed=followed,
            seed=self.seed,
            tick=tick,
        )


def _thinned(rows: Ints, most: int, seed: int) -> Ints:
    """At most so many of the rows, drawn at random, in their order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng((seed, 12)).choice(rows, most, replace=False))


def _ratio(value: Any, base: Any) -> Any:
    """Value / base, 1 where both are zero (nothing to win, nothing to pay)."""
    value, base = np.asarray(value, dtype=float), np.asarray(base, dtype=float)
    safe = np.where(base > 0, base, 1.0)
    return np.where(base > 0, value / safe, np.where(value > 0, np.inf, 1.0))


def _disagreement(a: Floats, b: Floats, weight: Floats) -> float:
    """Root mean square difference of two critics that share no data, in units of their spread."""
    a, b, total = a.ravel(), b.ravel(), weight.sum()
    if total == 0:
        return float("nan")
    weight = weight / total
    mean = (a + b) / 2
    spread = np.sqrt(weight @ (mean - weight @ mean) ** 2)
    return float(np.sqrt(weight @ (a - b) ** 2) / spread) if spread > 0 else 0.0


def _between(name: str, value: float, low: float, high: float) -> float:
    inside = is_number(value) and low <= value <= high
    if not inside or (name == "gamma" and value == 0):
        bracket = "(" if name == "gamma" else "["
        raise InputError(f"{name}: got {value!r}, expected a number in {bracket}{low:g}, {high:g}]")
    return float(value)
