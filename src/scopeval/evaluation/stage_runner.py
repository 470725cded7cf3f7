"""An evaluation in stages: each stage runs what was learned from the logs and all earlier stages.

designer: logs and earlier episodes      -> behavior policy of the stage, with its own promise
shares: expected variance of the design  -> weight of the stage, decided before it begins
batches of episodes, guard               -> as in `evaluator`, until the stage ends
agreement: older data, new episodes      -> are the logs still right? has the environment changed?
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from scopeval.evaluation.context_control import adjusted, context_control
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import RunInfo
from scopeval.evaluation.source_choice import (
    Sources,
    decisions_of,
    unbiased_estimator,
)
from scopeval.evaluation.stage_budget import StageBudget, unspent
from scopeval.evaluation.stage_design import Plan, StageDesigner, agreement_level
from scopeval.evaluation.stage_guard import StageGuard
from scopeval.evaluation.stage_report import Agreement, Learning, precise_after
from scopeval.evaluation.staged_totals import StagedTotals
from scopeval.evaluation.stages import (
    Shares,
    Stages,
    expected_progress,
    expected_variance,
    stage_sizes,
)
from scopeval.evaluation.stopping import INTERRUPTED, Running, StoppingPlan, run_batches
from scopeval.evaluation.task import EvaluationTask
from scopeval.policies.protocols import Behavior, Policy
from scopeval.safety.guard import Guard

__all__ = ["evaluate_in_stages"]


def evaluate_in_stages(
    task: EvaluationTask,
    sources: Sources,
    plan: StoppingPlan,
    settings: Stages,
    given: Behavior | Policy | None,
    progress: Callable[[Running], None] | None,
) -> Evaluation:
    """Run stages until the plan ends; `evaluate` describes the rest."""
    run = _StagedRun(task, sources, plan, settings, given, progress)
    for size in stage_sizes(settings, plan.stop.episodes):
        try:
            run.stage(size)
        except KeyboardInterrupt:  # while a design was made; batches end by themselves
            plan.stopped, plan.adaptive = INTERRUPTED, True
        if plan.stopped:
            break
    if not run.totals.finished:
        raise KeyboardInterrupt  # before there was anything to report
    return run.result()


class _StagedRun:
    """The state between stages."""

    def __init__(
        self,
        task: EvaluationTask,
        sources: Sources,
        plan: StoppingPlan,
        settings: Stages,
        given: Behavior | Policy | None,
        progress: Callable[[Running], None] | None,
    ) -> None:
        self._task, self._sources, self._plan, self._settings = task, sources, plan, settings
        self._progress, self._episodes = progress, plan.stop.episodes
        by, episodes = task.inference, plan.stop.episodes
        terms = task.terms._replace(horizon=sources.steps)
        self._designer = StageDesigner(
            sources.target, terms, settings, given, settings.logs, task.seed
        )
        #: The promise is not about the target's own cost, which then need not keep it.
        self._other = terms.promise.whose != "target"
        self._shares = Shares(episodes, settings)
        self._budget = StageBudget(
            0.0 if self._other else terms.epsilon, settings.promise_of, episodes
        )
        self._planned = len(list(stage_sizes(settings, episodes))) if episodes else None
        watched = self._watched(terms.epsilon)
        self._own = task.guard(watched) if task.limits else None
        self._whole = Guard(
            epsilon=watched, alpha=0.5 * by.alpha, bound=task.bound, whose=terms.promise.whose
        )
        self._switched: int | None = None  # the target policy runs everything from here on
        self._report: GuardReport | None = None
        self._decisions: dict[str, int] = {}
        self._uncovered: str | None = None
        self._agreements: list[Agreement] = []
        self._context = context_control(
            task.context, settings.design, episodes or 1000, by.return_bound, sources
        )
        self.totals = StagedTotals(
            alpha=by.alpha,
            epsilon=terms.epsilon,
            method=by.interval,
            target_n=episodes or 1000,
            variance=settings.prior_variance,
            keep=by.keep,
            bound=task.bound,
            whose=terms.promise.whose,
            context=self._context,
        )

    def _watched(self, epsilon: float) -> float:
        """The promise that a guard watches: never below the cost of what it hands over to."""
        return epsilon if self._other else max(epsilon, 0.0)

    def stage(self, size: int) -> None:
        """Design, run and judge one stage."""
        task, totals = self._task, self.totals
        left = None if self._episodes is None else self._episodes - totals.started
        margin = unspent(totals.stages, size)
        plan = self._designer.next(left, self._budget.asked, margin)
        weight = self._shares.next(
            size,
            expected_variance(plan.prediction, self._settings),
            fell_back=plan.new and plan.prediction is None,
            progress=expected_progress(plan.prediction),
        )
        totals.begin(weight, plan.epsilon)
        before = decisions_of(plan.behavior)
        guard = self._guard(plan)
        name = self._estimator(plan)
        source = adjusted(self._sources.of(plan.behavior, name, guard, keep=True), self._context)
        self._plan.suit(source, guard)
        switched = run_batches(
            source,
            self._plan,
            totals,
            guard,
            self._progress,
            self._episodes,
            until=totals.started + size,
            stage=len(totals.stages) + 1,
            by_target=self._switched is not None,
            hands_over=not self._other and self._sources.baseline is None,
        )
        refuted = None
        if guard is not None:
            self._report = self._report or GuardReport(None, guard.state)
            if switched is not None and self._switched is None:
                refuted = guard.state.reason
                self._switched, self._report = switched, GuardReport(switched, guard.state)
        for key, n in decisions_of(plan.behavior).items():
            self._decisions[key] = self._decisions.get(key, 0) + n - before[key]
        self._uncovered = self._uncovered or source.uncovered
        totals.end(plan, refuted, covered=source.uncovered is None, costs=task.costs)
        self._budget.add(totals.stages[-1].episodes, plan.cost)
        self._learn()

    def _learn(self) -> None:
        """Learn from the episodes of the stage that has ended, if older data agree with them."""
        found = self.totals.stage_episodes
        if found is None or not len(found):
            return
        level = agreement_level(self._settings, self._episodes)
        self._agreements += self._designer.learn(found, len(self.totals.stages), level)

    def _estimator(self, plan: Plan) -> str:
        """A stage without control variate, or of the target policy itself, has fewer choices."""
        name = self._task.inference.estimator
        if name == "dr" and plan.behavior is None:
            name = "auto"
        return unbiased_estimator(name, on_policy=plan.behavior is None)

    def _guard(self, plan: Plan) -> Guard | None:
        """The user's own guard watches all stages; else every stage has one of its own.

        It watches the stage's own promise; below the target policy's own cost it watches that cost
        instead, because only then is the target policy cheaper. Half of alpha is for all stages
        together, the stages share the other half.
        """
        task = self._task
        if not task.guarded or not task.costs or self._switched is not None:
            return None
        if self._own is not None:
            return self._own
        if plan.behavior is None and not self._other:
            return None
        k = len(self.totals.stages) + 1
        part = 1.0 / self._planned if self._planned else 6.0 / (math.pi * k) ** 2
        return StageGuard(
            self._whole,
            epsilon=self._watched(plan.epsilon),
            alpha=0.5 * task.inference.alpha * part,
            bound=task.bound,
            whose=task.terms.promise.whose,
        )

    def result(self) -> Evaluation:
        """The evaluation."""
        task, totals, plan = self._task, self.totals, self._plan
        baseline, promise = self._sources.baseline is not None, task.terms.promise
        if baseline and self._switched is not None:
            plan.stopped += "; the baseline goes on"
        run = RunInfo(
            estimator=task.inference.estimator,
            stopped=plan.stopped or "all stages were run",
            anytime=plan.adaptive or self._switched is not None,
            uncovered=self._uncovered,
            costs=task.costs,
            guard=self._report,
            behavior=self._decisions,
            notes=() if promise.note is None else (promise.note,),
            baseline=baseline,
        )
        found = totals.result(run)
        stages = totals.finished_stages()
        designer = self._designer
        learning = Learning(
            refits=sum(stage.designed for stage in stages),
            seconds=math.fsum(stage.seconds for stage in stages),
            stopped=designer.stopped,
            agreements=tuple(self._agreements),
            payback=self._budget.payback if task.terms.epsilon < 0.0 and not self._other else None,
            precise_after=precise_after(stages),
        )
        found = replace(found, stages=stages, learning=learning)
        if found.episodes is None:
            return found
        first = stages[0].behavior
        same = all(stage.behavior is first for stage in stages)
        one = first if same else None  # of several, none is named
        return replace(found, episodes=self._sources.described(found.episodes, one))
