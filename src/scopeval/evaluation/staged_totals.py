"""Running totals of an evaluation in stages: estimates of stages, combined by their weights."""

from __future__ import annotations

import math
from dataclasses import replace

from scopeval.collection.episodes import Episodes
from scopeval.estimation.running_moments import Interval
from scopeval.estimation.staged_moments import StagedMoments
from scopeval.evaluation.context_control import ContextControl
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.running_totals import RunInfo, RunningTotals
from scopeval.evaluation.sources import Batch
from scopeval.evaluation.stage_design import Plan
from scopeval.evaluation.stage_report import Stage
from scopeval.question.inference import IntervalMethod
from scopeval.safety.certificate import Certificate, Ledger
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.promise import Whose

__all__ = ["StagedTotals"]


class StagedTotals(RunningTotals):
    """What is known after the stages so far; each stage is judged by itself, and so is the whole.

    Args:
        alpha: probability with which an interval may miss.
        epsilon: what was asked: all episodes together are judged by it. Below 0 they are also
            judged by the target policy's own cost, which the guard watches.
        method: "t": the studentized interval for a fixed plan; "normal" is the same here;
            "sequence": always anytime-valid.
        target_n: number of episodes at which anytime-valid intervals are to be narrowest.
        variance: relative variance that is expected of most episodes.
        keep: keep the episodes.
        bound: what is known about the costs of episodes; None: nothing.
        whose: what the promise compares with.
        context: what has adjusted the values, by earlier episodes; None: nothing.
    """

    def __init__(
        self,
        *,
        alpha: float,
        epsilon: float,
        method: IntervalMethod,
        target_n: int,
        variance: float,
        keep: bool,
        bound: CostBound | None = None,
        whose: Whose = "target",
        context: ContextControl | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            epsilon=epsilon,
            method=method,
            target_n=target_n,
            on_policy=True,  # episodes of the target policy count for the whole promise too
            keep=keep,
            bound=bound,
            whose=whose,
            context=context,
        )
        own = alpha if context is None else context.sequence_alpha(alpha)
        # the martingale's time runs as fast as information does: 1 / variance for each episode
        self._staged = StagedMoments(own, max(round(target_n / variance), 1))
        self._epsilon = epsilon
        self._bound, self._whose = bound, whose
        self._at_own_cost = (
            Ledger(epsilon=0.0, alpha=alpha, target_n=target_n, bound=bound)
            if epsilon < 0.0 and whose == "target"
            else None
        )
        self._stage = _StageTotals(Ledger(epsilon=epsilon, alpha=alpha, bound=bound, whose=whose))
        self.stages: list[Stage] = []

    def begin(self, weight: float, epsilon: float) -> None:
        """Begin a stage whose episodes have this weight, and this promise of its own."""
        self._staged.begin(weight)
        if self._context is not None:
            self._context.weigh(weight)
        self._stage = _StageTotals(
            Ledger(epsilon=epsilon, alpha=self._alpha, bound=self._bound, whose=self._whose)
        )

    def reweigh(self, weight: float) -> None:
        """The episodes of this stage that follow have another weight."""
        self._staged.enter(len(self._staged.stages) - 1, weight)
        if self._context is not None:
            self._context.weigh(weight)

    def add(self, batch: Batch) -> None:
        """Take in a batch of the stage that was begun last."""
        super().add(batch)
        self._staged.update(batch.value)
        if self._at_own_cost is not None:
            self._at_own_cost.add(batch.costs)
        stage, judged = self._stage, ~batch.by_target | (self._whose != "target")
        stage.ledger.add(batch.costs.select(judged))
        stage.by_target += int(batch.by_target.sum())
        stage.spent += float(batch.spent.sum())
        if batch.episodes is not None:
            stage.kept.append(batch.episodes)

    @property
    def stage_episodes(self) -> Episodes | None:
        """The episodes of the stage that was begun last."""
        kept = self._stage.kept
        return Episodes.concat(kept) if kept else None

    @property
    def squared_error(self) -> float:
        """Squared standard error of the estimate."""
        of_history = 0.0 if self._context is None else self._context.error**2
        return self._staged.squared_error + of_history

    @property
    def _events(self) -> float:
        return self._staged.events

    def interval(self, *, anytime: bool) -> Interval:
        """Of the value, for a fixed plan or anytime-valid."""
        always = anytime or self._method == "sequence"
        found = self._staged.sequence() if always else self._staged.interval()
        return found if self._context is None else self._context.widened(found, self._alpha)

    def end(
        self,
        plan: Plan,
        refuted: str | None,
        *,
        covered: bool,
        costs: bool,
        anytime: bool = False,
    ) -> None:
        """End the stage that was begun last; `anytime`: it is looked at while it runs."""
        stage, moments = self._stage, self._staged.stages[-1].moments
        certificate: Certificate | None = None
        watched = anytime or refuted is not None
        if costs and stage.ledger.episodes:
            certificate = stage.ledger.certificate(covered=covered, anytime=watched)
            if refuted is not None:
                certificate = replace(certificate, verdict="refuted")
        error = self.squared_error
        self.stages.append(
            Stage(
                number=len(self.stages) + 1,
                episodes=moments.n,
                by_target=stage.by_target,
                why=plan.why,
                designed=plan.new,
                rows=plan.rows,
                seconds=plan.seconds,
                prediction=plan.prediction,
                share=0.0,  # of the whole, which is known at the end
                estimate=moments.mean if moments.n else math.nan,
                variance=moments.std**2,
                cost=stage.spent / max(moments.n, 1),
                epsilon=plan.epsilon,
                certificate=certificate,
                refuted=refuted,
                standard_error=math.sqrt(error) if error >= 0 else math.nan,
                warnings=plan.warnings,
                behavior=plan.behavior,
            )
        )

    def result(self, run: RunInfo) -> Evaluation:
        """The evaluation; with less than the target's own cost asked, both promises are judged."""
        found = super().result(run)
        if self._at_own_cost is None or found.certificate is None:
            return found
        own = self._at_own_cost.certificate(
            covered=run.uncovered is None,
            anytime=run.anytime,
            refuted=run.guard is not None and run.guard.state.refuted,
        )
        return replace(found, certificate_at_own_cost=own)

    def finished_stages(self) -> tuple[Stage, ...]:
        """The stages, with their shares of the whole estimate."""
        total = self._staged.total_weight or 1.0
        return tuple(
            replace(
                stage,
                share=found.total / total,
                parts=tuple((m.n, weight / total) for weight, m in found.parts.items()),
            )
            for stage, found in zip(self.stages, self._staged.stages, strict=True)
        )


class _StageTotals:
    """Sums of one stage."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.by_target = 0
        self.spent = 0.0
        self.kept: list[Episodes] = []
