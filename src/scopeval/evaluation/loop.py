"""The one loop of an evaluation: design, run a batch, count, watch, until the plan ends it.

designer: logs and earlier episodes      -> behavior policy of the stage, with its own promise
shares: expected variance of the design  -> weight of the stage, decided before it begins
source: episodes by number, in batches   -> one value per episode, mean J(pi) given the past
totals, guards, stopping plan            -> another batch? does the target policy take over?
agreement: older data, new episodes      -> are the logs still right? has the environment changed?

Without `Stages` there is one stage: its policy is given, its weight is 1, and nothing is learned.
Batches and their end (`run_batches`, `StoppingPlan`) are those of comparisons too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from scopeval.arrays import Floats
from scopeval.context.history import History
from scopeval.errors import InputError
from scopeval.estimation.estimators import name_of_estimator
from scopeval.estimation.moments import Interval
from scopeval.evaluation.batches import unbiased_estimator
from scopeval.evaluation.context_control import context_control
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.sources import Source, Sources, decisions_of
from scopeval.evaluation.stage_design import Plan, StageDesigner
from scopeval.evaluation.stage_report import Agreement, Learning, Stage, precise_after
from scopeval.evaluation.stages import (
    Shares,
    StageBudget,
    Stages,
    expected_progress,
    expected_variance,
    stage_part,
    stage_sizes,
    unspent,
)
from scopeval.evaluation.totals import RunInfo, Totals
from scopeval.policies.protocols import Behavior, Policy
from scopeval.question.inference import Inference
from scopeval.question.promise import Limit, Promise
from scopeval.question.question import Question
from scopeval.question.stop import Stop
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.costs import EpisodeCosts
from scopeval.safety.guard import Guard, GuardState

__all__ = [
    "INTERRUPTED",
    "EvaluationLoop",
    "EvaluationTask",
    "Running",
    "Seen",
    "StoppingPlan",
    "limits_of_guard",
    "run_batches",
    "watched",
]


@dataclass(frozen=True)
class EvaluationTask:
    """What is estimated, promised and watched.

    Attributes:
        question: with what was left open filled in.
        promise: what is promised, likewise.
        inference: how the result follows from the episodes.
        limits: act within an episode.
        costs: there are any.
        seed: of the episodes.
        bound: what is known about the costs of episodes; None: nothing.
        context: paths of what no action changes; None: none.
        columns: of the observation that the plant calls exogenous.
        note: a warning for the user; None: there is none.
        baseline: there is one, which takes the rest of an episode that passes its limit.
    """

    question: Question
    promise: Promise
    inference: Inference
    limits: tuple[Limit, ...]
    costs: bool
    seed: int
    bound: CostBound | None = None
    context: History | None = None
    columns: tuple[int, ...] = ()
    note: str | None = None
    baseline: bool = False

    def guard(self, at_most: float | None = None) -> Guard | None:
        """Watches the promise and the limits; None: nothing is to be watched.

        Args:
            at_most: watch another multiple than the promise of the evaluation.
        """
        if not self.costs or self.promise.action == "tell":
            return None
        episode, total = limits_of_guard(self.limits) if self.limits else (None, None)
        return Guard(
            self.promise if at_most is None else replace(self.promise, at_most=at_most),
            alpha=self.inference.alpha,
            episode_cost_limit=episode,
            goes_on=self.baseline,
            total_cost_limit=total,
            bound=self.bound,
        )


def limits_of_guard(limits: Sequence[Limit]) -> tuple[float | None, float | None]:
    """The most that an episode, and that all of them, may cost.

    Raises:
        InputError: a limit that only a campaign knows.
    """
    for limit in limits:
        if limit.step is not None or limit.action != "hand over":
            raise InputError(
                f"promise: got {limit!r}, expected Limit(episode=..., total=...) that hands over; "
                "limits of a step, and other actions, are for campaigns"
            )
    episode = [x.episode for x in limits if x.episode is not None]
    total = [x.total for x in limits if x.total is not None]
    return min(episode, default=None), min(total, default=None)


# --------------------------------------------------------------------------------------------------

INTERRUPTED = "interrupted by the user"


class Seen(Protocol):
    """What the episodes so far show, of one policy (`Totals`) or of several (`PairedTotals`)."""

    @property
    def started(self) -> int:
        """Episodes that were started and are over."""
        ...

    @property
    def total(self) -> float:
        """What they have cost."""
        ...

    @property
    def mean_cost(self) -> float:
        """What a started episode has cost on average; 0 before the first."""
        ...

    @property
    def lost_in_a_row(self) -> int:
        """Episodes that were lost one after the other, up to now."""
        ...

    @property
    def interrupted(self) -> bool:
        """The user has stopped a batch."""
        ...

    def answered(self, stop: Stop) -> str | None:
        """Why what they show ends the plan; None: it does not."""
        ...


class StoppingPlan:
    """When an evaluation stops, and how many episodes it runs until it checks again.

    Stopping rules are checked after every batch. Only anytime-valid intervals are compared with the
    wanted precision, so that checking often does not affect coverage.

    Args:
        stop: when no more episodes are started.
    """

    #: Episodes between two checks, unless given; in the simulator it grows up to LARGEST.
    CHUNK, LARGEST = 64, 1 << 16
    #: Where only precision or budget is given, and neither is ever reached.
    MOST = 10**9
    #: So many episodes lost one after the other: the environment does not work any more.
    DEAD = 64

    def __init__(self, stop: Stop) -> None:
        self.stop = stop
        self._episodes = self.MOST if stop.episodes is None else stop.episodes
        self._budget, self._given = stop.cost, stop.every
        self._side_by_side = 1
        self._grows = self._checks = self._careful = False
        self.stopped = ""  # why, once it has
        #: The data influence the number of episodes.
        self.adaptive = stop.precision is not None or stop.cost is not None or stop.decided

    def suit(
        self, side_by_side: int, guards: Sequence[Guard], *, grow: bool, check: bool = False
    ) -> None:
        """Check as often as the episodes allow and the guards ask for.

        Args:
            side_by_side: episodes that run at the same time.
            guards: that watch them.
            grow: check more rarely the more episodes there are.
            check: though neither guards nor the plan ask for it.
        """
        self._side_by_side, self._grows = side_by_side, grow
        self._checks = check or bool(guards) or self.adaptive
        self._careful = any(guard.limited for guard in guards)

    def end(self, why: str) -> None:
        """End it because of what was seen."""
        self.stopped, self.adaptive = why, True

    def next(self, totals: Seen) -> int:
        """How many episodes to run now; 0: no more, and `stopped` says why."""
        left = self._episodes - totals.started
        if left <= 0 and not totals.interrupted:
            self.stopped = f"all {self._episodes:,} episodes were run"
            return 0
        if not self.stopped:
            if totals.interrupted:
                self.end(INTERRUPTED)
            elif why := totals.answered(self.stop):
                self.end(why)
            elif self._budget and totals.total >= self._budget:
                self.end(f"stopped when the cost budget of {self._budget:g} was reached")
            elif totals.lost_in_a_row >= self.DEAD:
                lost = totals.lost_in_a_row
                self.end(f"stopped after {lost:,} lost episodes one after the other")
        if self.stopped:
            return 0
        return max(1, min(left, self._chunk(totals.started), self._affordable(totals)))

    def _chunk(self, done: int) -> int:
        """Episodes until the next check."""
        if self._given is not None:
            return self._given
        if self._careful:
            return self._side_by_side
        if self._grows:
            return min(max(self.CHUNK, done // 4), self.LARGEST) if self._checks else self.LARGEST
        return -(-self.CHUNK // self._side_by_side) * self._side_by_side

    def _affordable(self, totals: Seen) -> int:
        """So few that the budget is hardly overspent: nine tenths of the rest, by the mean cost."""
        if self._budget is None:
            return self._episodes
        doubled = max(self._side_by_side, totals.started)  # at most twice as many as were seen
        if totals.mean_cost == 0:
            return doubled
        return min(doubled, int(0.9 * (self._budget - totals.total) / totals.mean_cost))


@dataclass(frozen=True)
class Running:
    """The state of an evaluation that is running.

    Attributes:
        done: episodes started and over.
        total: of how many; None: until precision or budget is reached.
        interval: anytime-valid, so that checking it often does not affect coverage.
        cost: spent so far.
        error: standard error of the estimate; NaN: not known.
        stage: number of the stage that runs, from 1; None: there are no stages.
        more: other numbers by name, of a campaign.
    """

    done: int
    total: int | None
    interval: Interval
    cost: float
    error: float = math.nan
    stage: int | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """The numbers by name, for a `Tracker`; what is not finite is left out."""
        numbers = {
            "estimate": self.interval.estimate,
            "low": self.interval.low,
            "high": self.interval.high,
            "cost": self.cost,
            **self.more,
        }
        return {name: value for name, value in numbers.items() if math.isfinite(value)}


def run_batches(
    plan: StoppingPlan, totals: Seen, batch: Callable[[int, int], None], until: int | None = None
) -> None:
    """Run batches until the plan ends.

    Args:
        plan: how many episodes, and why there are no more.
        totals: what they show.
        batch: runs so many episodes from a number on, and takes them into the totals.
        until: end when so many episodes were started, also if the plan goes on.
    """
    try:
        while count := plan.next(totals):
            if until is not None and totals.started >= until:
                break
            batch(totals.started, count if until is None else min(count, until - totals.started))
    except KeyboardInterrupt:
        plan.end(INTERRUPTED)


def watched(
    guards: Sequence[Guard], costs: EpisodeCosts, spent: Floats, lost: float, *, covered: bool
) -> GuardState:
    """The state of the first guard that trips by these episodes, or of the last.

    Args:
        guards: at least one.
        costs: of the episodes, as the promise counts them.
        spent: what they cost, not discounted.
        lost: what unfinished episodes cost.
        covered: no action of the target is known to be left out.
    """
    states = [guard.add(costs, spent=spent, lost=lost, covered=covered) for guard in guards]
    return next((one for one in states if one.tripped), states[-1])


class EvaluationLoop:
    """One evaluation that runs.

    Args:
        task: what is asked for.
        sources: run episodes.
        plan: when it ends.
        progress: called after every batch.
        run: the behavior policy; None: the target itself. In stages: of the first one; None: it is
            designed from the logs, or the target itself runs.
        stages: settings of the stages; None: there is one, which runs `run`.
        unconfirmed: why the logs confirm no design, so that the target itself runs.
    """

    def __init__(
        self,
        task: EvaluationTask,
        sources: Sources,
        plan: StoppingPlan,
        progress: Callable[[Running], None] | None,
        run: Behavior | Policy | None,
        stages: Stages | None = None,
        unconfirmed: str | None = None,
    ) -> None:
        self._task, self._sources, self._plan = task, sources, plan
        self._progress, self._run, self._unconfirmed = progress, run, unconfirmed
        by, episodes, promise = task.inference, plan.stop.episodes, task.promise
        self._episodes = episodes
        #: The promise is about the target's own cost, which the target then keeps by itself.
        self._of_target = promise.compared == "target"
        self._switched: int | None = None  # the target policy runs everything from here on
        self._report: GuardReport | None = None
        self._decisions: dict[str, int] = {}
        self._uncovered: str | None = None
        self._refuted: str | None = None  # why a guard has switched, in this stage
        self._context = (
            None
            if task.context is None
            else context_control(task.context, run, episodes or 1000, by.return_bound, sources)
        )
        self.totals = Totals(
            by,
            promise,
            target_n=episodes or 1000,
            on_policy=run is None,
            bound=task.bound,
            context=self._context,
            settings=stages,
            columns=task.columns,
        )
        self._staging = None if stages is None else _Staging(task, sources, stages, run, episodes)
        #: The guard that watches all episodes; in stages each has its own if there is no limit.
        self._watch: Guard | None = None
        if stages is not None and task.limits:
            self._watch = task.guard(self._watched(promise.at_most))
        elif stages is None and (run is not None or not self._of_target):
            self._watch = task.guard()

    def evaluate(self) -> Evaluation:
        """Run stages until the plan ends."""
        sizes: Iterable[int | None] = [None]  # without stages: until the plan ends
        if self._staging is not None:
            sizes = stage_sizes(self._staging.settings, self._episodes)
        for size in sizes:
            try:
                self._stage(size)
            except KeyboardInterrupt:  # while a design was made; batches end by themselves
                self._plan.end(INTERRUPTED)
            if self._plan.stopped:
                break
        if not self.totals.finished:
            raise KeyboardInterrupt  # before there was anything to report
        return self._result()

    def _stage(self, size: int | None) -> None:
        """Design, run and judge one stage."""
        task, totals, staging = self._task, self.totals, self._staging
        plan = Plan(self._run, None, task.promise.epsilon, "the policy that was given")
        if staging is not None:
            assert size is not None
            plan = staging.next(size, totals)
        guards = self._guards(plan)
        limited = next((guard for guard in guards if guard.limited), None)
        keep = staging is not None or task.inference.keep or self._context is not None
        on_policy, name = plan.behavior is None, task.inference.estimator
        if staging is not None and name == "dr" and on_policy:
            name = "auto"  # a stage without control variate has fewer choices
        estimator = unbiased_estimator(name, on_policy=on_policy)
        source = self._sources.of(plan.behavior, estimator, limited, keep=keep)
        before = decisions_of(plan.behavior)
        self._plan.suit(source.side_by_side, guards, grow=source.quick)
        self._refuted = None
        until = None if size is None else totals.started + size
        run_batches(self._plan, totals, partial(self._batch, source, guards), until)
        for key, n in decisions_of(plan.behavior).items():
            self._decisions[key] = self._decisions.get(key, 0) + n - before[key]
        self._uncovered = self._uncovered or source.uncovered
        if staging is not None:
            covered = source.uncovered is None
            totals.end(plan, self._refuted, covered=covered, costs=task.costs)
            staging.learn(plan, totals)

    def _batch(self, source: Source, guards: Sequence[Guard], first: int, count: int) -> None:
        """Run a batch; a guard may switch to the target policy by it."""
        made = source.run(first, count, by_target=self._switched is not None)
        if self._context is not None:
            made = self._context.of(made)
        self.totals.add(made)
        if guards and self._switched is None:
            lost = sum(x.cost for x in made.lost)
            covered = source.uncovered is None
            state = watched(guards, made.costs, made.spent, lost, covered=covered)
            to: str | None = "the target"
            if state.tripped:
                self._refuted, self._switched = state.reason, self.totals.started
                if not self._of_target or self._sources.baseline is not None:
                    to = "the baseline" if self._sources.baseline is not None else None
                    self._plan.end(f"stopped by the guard: {state.reason}")
            self._report = GuardReport(self._switched, state, to=to)
        if self._progress is not None:
            self._tell(self._progress)

    def _tell(self, progress: Callable[[Running], None]) -> None:
        """Tell who wants to know how far it is."""
        totals, staging = self.totals, self._staging
        now, square = totals.interval(anytime=True), totals.squared_error
        error = math.sqrt(square) if square > 0 else math.nan
        stage = None if staging is None else len(totals.stages) + 1
        progress(Running(totals.started, self._episodes, now, totals.total, error, stage))

    # -- guards --------------------------------------------------------------------------------

    def _watched(self, at_most: float) -> float:
        """The multiple that a guard watches: never below the cost of what it hands over to."""
        return max(at_most, 1.0) if self._of_target else at_most

    def _guards(self, plan: Plan) -> tuple[Guard, ...]:
        """What watches a stage; the first one that trips says why.

        In stages: the stage's own promise, and that of all stages together; below the target
        policy's own cost that cost instead, because only then is the target policy cheaper. A short
        stage alone cannot refute anything, but several of them can: differences of costs are those
        of a martingale over all stages. Half of alpha is for all stages together, the stages share
        the other half.
        """
        task, staging = self._task, self._staging
        if self._switched is not None:
            return ()
        if self._watch is not None:
            return (self._watch,)
        if staging is None or task.promise.action == "tell" or not task.costs:
            return ()
        if plan.behavior is None and self._of_target:
            return ()
        half, promise = 0.5 * task.inference.alpha, task.promise
        if staging.whole is None:
            of_all = replace(promise, at_most=self._watched(promise.at_most))
            staging.whole = Guard(of_all, alpha=half, bound=task.bound)
        number = len(self.totals.stages) + 1
        part = half * stage_part(staging.settings, self._episodes, number)
        of_stage = replace(promise, at_most=self._watched(1.0 + plan.epsilon))
        stage = Guard(of_stage, alpha=part, bound=task.bound)
        return stage, staging.whole

    # -- the result ----------------------------------------------------------------------------

    def _result(self) -> Evaluation:
        task, plan, staging = self._task, self._plan, self._staging
        baseline = self._sources.baseline is not None
        if baseline and self._switched is not None:
            plan.stopped += "; the baseline goes on"
        on_policy = staging is None and self._run is None
        estimator = unbiased_estimator(task.inference.estimator, on_policy=on_policy)
        run = RunInfo(
            estimator=name_of_estimator(estimator),
            stopped=plan.stopped or "all stages were run",
            anytime=plan.adaptive or self._switched is not None,
            uncovered=self._uncovered,
            costs=task.costs,
            guard=self._report,
            behavior=self._decisions,
            notes=() if task.note is None else (task.note,),
            unconfirmed=self._unconfirmed if staging is None else None,
            baseline=baseline,
        )
        result = self.totals.result(run)
        if staging is not None:
            payback = task.promise.epsilon < 0.0 and self._of_target
            result = replace(result, learning=staging.learning(result.stages, payback=payback))
        if result.episodes is None:
            return result
        one, stages = self._run, result.stages
        if stages:  # of several policies, none is named
            same = all(stage.behavior is stages[0].behavior for stage in stages)
            one = stages[0].behavior if same else None
        return replace(result, episodes=self._sources.described(result.episodes, one))


class _Staging:
    """What stages add to the loop: designs, weights and what is asked of the next one.

    Args:
        task: what is asked for.
        sources: run episodes.
        settings: of the stages.
        first: the behavior policy of the first stage; None: see `StageDesigner`.
        episodes: of the whole plan; None where it has no end.
    """

    def __init__(
        self,
        task: EvaluationTask,
        sources: Sources,
        settings: Stages,
        first: Behavior | Policy | None,
        episodes: int | None,
    ) -> None:
        self.settings, self._episodes = settings, episodes
        question, promise = replace(task.question, horizon=sources.steps), task.promise
        self._designer = StageDesigner(question, promise, settings, first, settings.logs, task.seed)
        self._shares = Shares(episodes, settings)
        epsilon = promise.epsilon if promise.compared == "target" else 0.0
        self._budget = StageBudget(epsilon, settings.promise_of, episodes)
        self._agreements: list[Agreement] = []
        self.whole: Guard | None = None  # watches the promise of all stages together

    def next(self, size: int, totals: Totals) -> Plan:
        """Design the next stage, and begin it with a weight that is decided before it."""
        left = None if self._episodes is None else self._episodes - totals.started
        plan = self._designer.next(left, self._budget.asked, unspent(totals.stages, size))
        weight = self._shares.next(
            size,
            expected_variance(plan.prediction, self.settings),
            fell_back=plan.new and plan.prediction is None,
            progress=expected_progress(plan.prediction),
        )
        totals.begin(weight, 1.0 + plan.epsilon)
        return plan

    def learn(self, plan: Plan, totals: Totals) -> None:
        """Learn from the stage that has ended, and from older data that agree with it."""
        self._budget.add(totals.stages[-1].episodes, plan.cost)
        episodes = totals.stage_episodes
        if episodes is not None and len(episodes):
            number = len(totals.stages)
            level = self.settings.significance * stage_part(self.settings, self._episodes, number)
            self._agreements += self._designer.learn(episodes, number, level)

    def learning(self, stages: tuple[Stage, ...], *, payback: bool) -> Learning:
        """What was learned; `payback`: less than the target's own cost was asked."""
        return Learning(
            refits=sum(stage.designed for stage in stages),
            seconds=math.fsum(stage.seconds for stage in stages),
            stopped=self._designer.stopped,
            agreements=tuple(self._agreements),
            payback=self._budget.payback if payback else None,
            precise_after=precise_after(stages),
        )
