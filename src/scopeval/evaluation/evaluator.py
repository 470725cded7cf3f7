"""The whole flow: run a policy in place of the target, and report what the target is worth.

source (environments or simulator)        episodes by number, in batches
  -> batch: one value per episode         mean J(pi) given all earlier episodes
  -> running totals                       estimate, interval, certificate, diagnostics
  -> guard: switch to the target?         when the promise is refuted, or a limit is passed
  -> stopping plan: another batch?        episodes, precision or cost budget, whichever is first
running totals -> Evaluation
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from scopeval.arrays import check_whole, is_number
from scopeval.collection.environments import EnvironmentPool, StepCost, open_environments
from scopeval.collection.provenance import name_of, provenance_of
from scopeval.collection.rollout import Rollout
from scopeval.errors import InputError
from scopeval.estimation.estimators import ESTIMATORS
from scopeval.estimation.running_moments import Interval
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import IntervalMethod, RunInfo, RunningTotals
from scopeval.evaluation.simulated_source import simulated_source
from scopeval.evaluation.sources import CollectedSource, Source
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import TabularPolicy, as_behavior, as_policy
from scopeval.policies.protocols import Behavior, ContinuousPolicy, LearnedBehavior, Policy
from scopeval.safety.guard import Guard

__all__ = ["INTERRUPTED", "Running", "StoppingPlan", "evaluate", "unbiased_estimator"]

INTERRUPTED = "interrupted by the user"


@dataclass(frozen=True)
class Running:
    """The state of an evaluation that is running.

    Attributes:
        done: episodes started and over.
        total: of how many; None: until precision or budget is reached.
        interval: anytime-valid, so that checking it often does not affect coverage.
        cost: spent so far.
    """

    done: int
    total: int | None
    interval: Interval
    cost: float


def evaluate(
    env: Any,
    target: Any,
    behavior: Any = None,
    *,
    horizon: int | None = None,
    episodes: int | None = None,
    precision: float | None = None,
    cost_budget: float | None = None,
    alpha: float = 0.05,
    epsilon: float | None = None,
    gamma: float | None = None,
    estimator: str = "auto",
    interval: IntervalMethod = "t",
    guard: bool | Guard | None = True,
    cost: str | StepCost | None = None,
    seed: int = 0,
    batch: int | None = None,
    chunk: int | None = None,
    keep: bool = False,
    progress: Callable[[Running], None] | None = None,
) -> Evaluation:
    """Estimate J(target) by running `behavior` in its place.

    At least one of `episodes`, `precision` and `cost_budget` says when to stop; the first to be
    reached does. With `episodes` alone the interval is the one for a fixed number of episodes;
    otherwise, or when the guard has switched, it is an anytime-valid sequence (see
    `running_totals`).

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `TabularMDP`, which the compiled simulator runs.
        target: pi, in any form that `as_policy` takes.
        behavior: mu: what `design` or `exact.design` made for this target, or any policy over the
            same actions. None runs the target itself.
        horizon: T; may be left out for a `TabularMDP` and for a behavior from `design`.
        episodes: how many to start (at most).
        precision: stop when the anytime-valid interval is +- this wide, or narrower.
        cost_budget: start no more episodes once their costs (not discounted) reach this.
        alpha: probability with which an interval may miss, and the guard may alarm for nothing.
        epsilon: the promise to certify and guard: mu costs at most 1 + epsilon times pi. Default:
            what a behavior from `design` promises, else 0.
        gamma: discount. Default: the `TabularMDP`'s or the behavior's own, else 1.
        estimator: "mc", "is", "pdis" or "dr"; "auto": mc for the target itself, dr where the
            behavior brings a control variate, else pdis.
        interval: for a fixed number of episodes: "t" or "normal"; "sequence": anytime-valid always.
        guard: watch the promise and let the target run the remaining episodes once it is refuted;
            a `Guard` of your own may also have limits, which act at once, within an episode.
        cost: where a step's cost is found, as in `collect`; "none": there are no costs.
        seed: of the episodes; the same seed gives the same result.
        batch: environments to run side by side.
        chunk: episodes between two checks. Default 64, in the simulator growing with the number of
            episodes done.
        keep: keep everything that was recorded in `.episodes`.
        progress: called after every batch.

    Returns:
        An `Evaluation`. Ctrl-C ends the evaluation with what was finished by then.

    Raises:
        InputError: an argument is wrong.
        PlantError: the environment cannot be made, or no episode of it can be finished.
    """
    terms = _terms(env, behavior, horizon=horizon, gamma=gamma, epsilon=epsilon)
    name = unbiased_estimator(estimator, on_policy=behavior is None)
    counts = _counts(behavior)
    plan = StoppingPlan(episodes, precision, cost_budget, chunk)
    check_whole("seed", seed, 0)
    policy, how = as_policy(target), as_behavior(behavior)
    if cost == "none" and cost_budget is not None:
        raise InputError("cost_budget: given with cost='none', expected costs to count")
    totals = RunningTotals(
        alpha=alpha,
        epsilon=terms.epsilon,
        method=interval,
        target_n=episodes or 1000,
        on_policy=how is None,
        keep=keep,
    )
    watch = None
    if guard and how is not None and cost != "none":
        watch = guard if isinstance(guard, Guard) else Guard(epsilon=terms.epsilon, alpha=alpha)
    modeled = isinstance(env, TabularMDP)
    with nullcontext() if modeled else open_environments(env, batch, cost) as environments:
        source: Source
        if environments is not None:
            source = _environment_source(environments, policy, how, terms, name, seed, watch)
        elif batch is not None or cost not in (None, "none") or (watch and watch.limited):
            raise InputError(
                "env: a TabularMDP is run by the compiled simulator, which runs whole episodes and "
                "knows no limits within them, no batch and no cost function; try "
                "env=TabularEnv(mdp)"
            )
        else:
            free = cost == "none"
            source = simulated_source(
                env, policy, how, horizon, estimator=name, free=free, seed=seed, keep=keep
            )
        plan.suit(source, watch)
        switched = _run(source, plan, totals, watch, progress, episodes)
    if not totals.finished:
        raise KeyboardInterrupt  # before there was anything to report
    run = RunInfo(
        estimator=name,
        stopped=plan.stopped,
        anytime=plan.adaptive or switched is not None,
        uncovered=source.uncovered,
        costs=cost != "none",
        guard=None if watch is None else GuardReport(switched, watch.state),
        behavior={key: n - counts[key] for key, n in _counts(how).items()},
    )
    result = totals.result(run)
    if result.episodes is None:
        return result
    plant = name_of(env) if environments is None else environments.plant
    known = provenance_of(plant, policy, how, result.episodes.horizon)
    return replace(result, episodes=result.episodes.with_provenance(known))


def _run(
    source: Source,
    plan: StoppingPlan,
    totals: RunningTotals,
    guard: Guard | None,
    progress: Callable[[Running], None] | None,
    episodes: int | None,
) -> int | None:
    """Run batches until the plan says stop; returns after how many episodes the guard switched."""
    switched: int | None = None
    try:
        while count := plan.next(totals):
            found = source.run(totals.started, count, by_target=switched is not None)
            totals.add(found)
            if guard is not None and switched is None:
                state = guard.update(
                    found.cost,
                    found.weighted_cost,
                    spent=found.spent,
                    lost=sum(x.cost for x in found.lost),
                    covered=source.uncovered is None,
                )
                switched = totals.started if state.tripped else None
            if progress is not None:
                now = totals.interval(anytime=True)
                progress(Running(totals.started, episodes, now, totals.total))
    except KeyboardInterrupt:
        plan.stopped, plan.adaptive = INTERRUPTED, True
    return switched


class Terms(NamedTuple):
    """What the evaluation is about, after defaults are filled in."""

    horizon: int | None
    gamma: float
    epsilon: float


def _terms(
    env: Any,
    behavior: Any,
    *,
    horizon: int | None,
    gamma: float | None,
    epsilon: float | None,
) -> Terms:
    """What is not given comes from the `TabularMDP`, or from a learned behavior policy."""
    own = behavior.recipe if isinstance(behavior, LearnedBehavior) else None
    if isinstance(env, TabularMDP):
        if gamma not in (None, env.gamma):
            raise InputError(f"gamma: got {gamma}, the TabularMDP has {env.gamma}; leave it out")
        gamma = env.gamma
    if own is not None:
        horizon = own.horizon if horizon is None else horizon
        gamma = own.gamma if gamma is None else gamma
        epsilon = own.epsilon if epsilon is None else epsilon
    return Terms(horizon, float(1.0 if gamma is None else gamma), float(epsilon or 0.0))


def _environment_source(
    environments: EnvironmentPool,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    terms: Terms,
    estimator: str,
    seed: int,
    guard: Guard | None,
) -> Source:
    if terms.horizon is None:
        raise InputError("horizon: needed, expected the number of steps at which episodes are cut")
    rollout = Rollout(
        environments,
        target,
        behavior,
        horizon=check_whole("horizon", terms.horizon, 1),
        seed=seed,
        guard_step=guard.steps_exceeded if guard is not None and guard.limited else None,
    )
    return CollectedSource(
        rollout.run,
        terms.gamma,
        estimator,
        len(environments),
        uncovered=_missing_entries(target, behavior),
    )


def _counts(behavior: Any) -> dict[str, int]:
    """How often a learned behavior policy was asked, and why it fell back to the target policy."""
    return asdict(behavior.counts) if isinstance(behavior, LearnedBehavior) else {}


def _missing_entries(target: Any, behavior: Any) -> str | None:
    """Entries of tables that mu leaves out; whether they are ever reached is not known here."""
    if not (isinstance(target, TabularPolicy) and isinstance(behavior, TabularPolicy)):
        return None
    if (target.states, target.actions) != (behavior.states, behavior.actions):
        return None  # collection says what is wrong with them
    T = behavior.horizon or target.horizon or 1
    T = min(T, target.horizon or T)
    holes = (target.table(T) > 0) & (behavior.table(T) == 0)
    if not holes.any():
        return None
    return (
        f"the behavior policy's table is 0 at {int(holes.sum()):,} places where the target's is "
        "not; where those are reached, the target's cost is underestimated, and the value too "
        "unless the behavior was designed so"
    )


def unbiased_estimator(name: str, *, on_policy: bool) -> str:
    """The name of an estimator that has an interval; "auto" is "mc" for the target itself."""
    names = ("auto", *ESTIMATORS)
    if name not in names:
        raise InputError(
            f"estimator: got {name!r}, expected one of {', '.join(names)}; others are biased, "
            "or their values are not independent, so that no interval here would be valid: see "
            "scopeval.estimation.estimators"
        )
    return "mc" if name == "auto" and on_policy else name


class StoppingPlan:
    """When an evaluation stops, and how many episodes it runs until it checks again.

    Stopping rules are checked after every batch. Only anytime-valid intervals are compared with the
    wanted precision, so that checking often does not affect coverage.

    Args:
        episodes: how many to start at most; None: no limit of its own.
        precision: stop when the anytime-valid interval is +- this wide, or narrower.
        cost_budget: start no more episodes once their costs reach this.
        chunk: episodes between two checks; None: as suits the source.
    """

    #: Episodes between two checks, unless given; in the simulator it grows up to LARGEST.
    CHUNK, LARGEST = 64, 1 << 16
    #: Where only precision or budget is given, and neither is ever reached.
    MOST = 10**9
    #: So many episodes lost one after the other: the environment does not work any more.
    DEAD = 64

    def __init__(
        self,
        episodes: int | None,
        precision: float | None,
        cost_budget: float | None,
        chunk: int | None,
    ) -> None:
        if episodes is None and precision is None and cost_budget is None:
            raise InputError(
                "episodes: needed unless precision or cost_budget says when to stop; try "
                "episodes=1000"
            )
        for name, value in (("precision", precision), ("cost_budget", cost_budget)):
            if value is not None and not (is_number(value) and value > 0):
                raise InputError(f"{name}: got {value!r}, expected a number above 0")
        self._episodes = self.MOST if episodes is None else check_whole("episodes", episodes, 1)
        self._precision, self._budget = precision, cost_budget
        self._given = None if chunk is None else check_whole("chunk", chunk, 1)
        self._side_by_side = 1
        self._grows = self._checks = self._careful = False
        self.stopped = ""  # why, once it has
        self.adaptive = precision is not None or cost_budget is not None  # data influence n

    def suit(self, source: Source, guard: Guard | None) -> None:
        """Check as often as the source allows and the guard asks for."""
        self._side_by_side = source.side_by_side
        self._grows = source.quick
        self._checks = guard is not None or self._precision is not None or self._budget is not None
        self._careful = guard is not None and guard.limited

    def next(self, totals: RunningTotals) -> int:
        """How many episodes to run now; 0: no more, and `stopped` says why."""
        left = self._episodes - totals.started
        if left <= 0 and not totals.interrupted:
            self.stopped = f"all {self._episodes:,} episodes were run"
            return 0
        if totals.interrupted:
            self.stopped = INTERRUPTED
        elif self._precision and totals.interval(anytime=True).half_width <= self._precision:
            self.stopped = f"stopped when the interval was +- {self._precision:g} or narrower"
        elif self._budget and totals.total >= self._budget:
            self.stopped = f"stopped when the cost budget of {self._budget:g} was reached"
        elif totals.lost_in_a_row >= self.DEAD:
            lost = totals.lost_in_a_row
            self.stopped = f"stopped after {lost:,} lost episodes one after the other"
        if self.stopped:
            self.adaptive = True
            return 0
        return max(1, min(left, self._chunk(totals.started), self._affordable(totals)))

    def _chunk(self, done: int) -> int:
        if self._given is not None:
            return self._given
        if self._careful:
            return self._side_by_side
        if self._grows:
            return min(max(self.CHUNK, done // 4), self.LARGEST) if self._checks else self.LARGEST
        return -(-self.CHUNK // self._side_by_side) * self._side_by_side

    def _affordable(self, totals: RunningTotals) -> int:
        """So few that the budget is hardly overspent: nine tenths of the rest, by the mean cost."""
        if self._budget is None:
            return self._episodes
        known = max(self._side_by_side, totals.started)  # at most twice as many as were seen
        if totals.mean_cost == 0:
            return known
        return min(known, int(0.9 * (self._budget - totals.total) / totals.mean_cost))
