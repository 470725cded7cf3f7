"""From batches of episodes to an `Evaluation`, by running sums: memory does not grow.

Unbiasedness and the guard. Whatever runs episode i (behavior or target, as earlier episodes
decided), its value has mean J(pi) given all earlier ones: sum_{i<=n} (value_i - J) is a martingale.
So the *plain mean* is unbiased when the number of episodes n is fixed, also when a guard changed
the policy in between at a time that the data chose. Weighting the two stages by their precision
would not be: the weights would depend on the same data. When the data also choose n (a wanted
precision, a cost budget) the mean has a bias of order 1/n; the anytime-valid sequence covers J(pi)
all the same, and is therefore the interval that is reported. It is also reported when the guard
has switched, because the data have then chosen how much variance the mean has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from scopeval.collection.episodes import Episodes
from scopeval.context.report import ContextReport
from scopeval.estimation.betting import BoundedReturns, FewOutcomes
from scopeval.estimation.moments import (
    Interval,
    Moments,
    Scatter,
    few_events,
    moments_interval,
)
from scopeval.estimation.sequences import StagedMoments
from scopeval.estimation.weights import (
    FAR,
    HEAVY_TAIL,
    RunningWeights,
    WeightDiagnostics,
)
from scopeval.evaluation.batches import Batch
from scopeval.evaluation.context_control import ContextControl
from scopeval.evaluation.noise import NoiseMeter
from scopeval.evaluation.result import (
    Diagnostics,
    Evaluation,
    GuardReport,
    OnPolicy,
    Spent,
)
from scopeval.evaluation.stage_design import Plan
from scopeval.evaluation.stage_report import Stage
from scopeval.evaluation.stages import Stages
from scopeval.question.inference import Inference
from scopeval.question.promise import Promise
from scopeval.question.stop import Stop
from scopeval.safety.certificate import Certificate, Ledger
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.costs import RESOLUTION

__all__ = ["RunInfo", "Totals"]


_OFTEN = 0.05  # share of decisions that fell back above which it is a warning
_REASONS = {
    "unseen": "the logs do not show these situations; add logs that do",
    "infeasible": "the cost budget allows nothing else there; allow a larger epsilon",
    "not_finite": "its critics or its target gave numbers that cannot be used; look for overflow",
    "failed": "it raised an error or its answer was no distribution; ask it by hand to see why",
}
_UNSURE = 0.25  # relative standard error of the on-policy variance above which it is unknown
_WEIGHT = np.array([0.0, 0.0, 1.0, 0.0])  # of the sums below: the weight itself


@dataclass(frozen=True)
class RunInfo:
    """What the episodes themselves do not say.

    Attributes:
        estimator: its name; "auto": dr with a control variate, else pdis.
        stopped: why there were no more episodes, in words.
        anytime: the data influenced the number of episodes.
        uncovered: which actions of the target the behavior policy leaves out; None: none known.
        costs: whether there are costs.
        guard: what the guard did; None without one.
        behavior: how often a learned behavior policy was asked, and why it fell back.
        notes: other warnings.
        unconfirmed: why the logs confirm no design, so that the target itself ran; None: they do,
            or nothing was designed.
        baseline: the policy that runs today is what takes over.
    """

    estimator: str
    stopped: str
    anytime: bool
    uncovered: str | None
    costs: bool
    guard: GuardReport | None
    behavior: Mapping[str, int]
    notes: tuple[str, ...] = ()
    unconfirmed: str | None = None
    baseline: bool = False


class Totals:
    """What is known after the batches so far; without stages there is one, of weight 1.

    In stages each is judged by its own promise, and all episodes together by what was asked.

    Args:
        by: how the result follows. Several stages have the studentized interval of a martingale
            instead of "t".
        promise: to certify. In stages, below 0, all episodes are also judged by the
            target policy's own cost, which the guard watches.
        target_n: number of episodes at which the anytime-valid intervals are to be narrowest.
        on_policy: the target is what was to be run.
        bound: what is known about the costs of episodes; None: nothing.
        context: what has adjusted the values; None: nothing.
        settings: of the stages; None: there are none.
    """

    def __init__(
        self,
        by: Inference,
        promise: Promise,
        *,
        target_n: int,
        on_policy: bool,
        bound: CostBound | None = None,
        context: ContextControl | None = None,
        settings: Stages | None = None,
        columns: tuple[int, ...] = (),
    ) -> None:
        alpha, return_bound = by.alpha, by.return_bound
        self._context = context
        self._noise = NoiseMeter(columns)
        self._fixed: Moments | None = None  # values of a fixed number of episodes, if others
        level = alpha if context is None else context.sequence_alpha(alpha)
        # a martingale's time runs as fast as information does: 1 / variance for each episode
        prior = 1.0 if settings is None else settings.prior_variance
        self._values = StagedMoments(level, max(round(target_n / prior), 1))
        self._second = Scatter(4)  # W (G - c)^2, W (G - c), W, weighted spending
        self._weights = RunningWeights()
        self._ledger = Ledger(promise, alpha=alpha, target_n=target_n, bound=bound)
        self._at_own_cost = (
            Ledger(alpha=alpha, target_n=target_n, bound=bound)
            if settings is not None and promise.epsilon < 0.0 and promise.compared == "target"
            else None
        )
        self._returns = None if return_bound is None else BoundedReturns(return_bound, alpha)
        self._outcomes = FewOutcomes()
        self._alpha, self._method = alpha, by.interval
        self._bound, self._promise = bound, promise
        # in stages episodes of the target policy count for the whole promise too
        self._on_policy = on_policy or settings is not None
        self._center: float | None = None  # c, which keeps digits where returns are large
        self._spent = 0.0
        self._by_target = self._fallbacks = self._guarded = self._steps = self._lost = 0
        self._handed_over = 0
        self._first_loss: str | None = None
        self._controlled = False
        self._kept: list[Episodes] | None = [] if by.keep else None
        self.finished = self.started = self.lost_in_a_row = 0
        self.total = 0.0  # what all started episodes cost
        self.interrupted = False
        self.stages: list[Stage] = []  # that have ended
        self._staged = settings is not None
        self._stage: _StageTotals | None = None
        if not self._staged:
            self._values.enter(0, 1.0)

    def begin(self, weight: float, at_most: float) -> None:
        """Begin a stage whose episodes have this weight, and this promise of its own."""
        self._values.begin(weight)
        if self._context is not None:
            self._context.weigh(weight)
        self._stage = _StageTotals(
            Ledger(replace(self._promise, at_most=at_most), alpha=self._alpha, bound=self._bound)
        )

    def reweigh(self, weight: float) -> None:
        """The episodes of this stage that follow have another weight."""
        self._values.enter(len(self._values.stages) - 1, weight)
        if self._context is not None:
            self._context.weigh(weight)

    @property
    def mean_cost(self) -> float:
        """What a started episode has cost on average; 0 before the first."""
        return self.total / self.started if self.started else 0.0

    def answered(self, stop: Stop) -> str | None:
        """Whether the wanted precision is reached."""
        wanted = stop.precision
        if wanted is None or self.interval(anytime=True).half_width > wanted:
            return None
        return f"stopped when the interval was +- {wanted:g} or narrower"

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        k = len(batch.value)
        if self._center is None and k:
            self._center = float(batch.value.mean())
        gap = batch.returned - (self._center or 0.0)
        w = batch.weight
        self._values.update(batch.value)
        self._second.merge(np.stack([w * gap**2, w * gap, w, batch.target_spent], axis=1))
        self._weights.update(w, batch.costs.cap)
        self._outcomes.update(batch.returned)
        if self._returns is not None:
            self._returns.update(w, batch.returned)
        judged = ~batch.by_target | self._on_policy
        self._ledger.add(batch.costs if judged.all() else batch.costs.select(judged))
        if self._at_own_cost is not None:
            self._at_own_cost.add(batch.costs)
        if self._stage is not None:
            self._stage.add(batch, by_target=self._promise.compared != "target")
        self._spent += float(batch.spent.sum())
        self.total += float(batch.spent.sum()) + sum(x.cost for x in batch.lost)
        self.finished += k
        self.started += k + len(batch.lost)
        self.lost_in_a_row = 0 if k else self.lost_in_a_row + len(batch.lost)
        self._lost += len(batch.lost)
        if batch.lost and self._first_loss is None:
            self._first_loss = f"number {batch.lost[0].index}, {batch.lost[0].reason}"
        self._by_target += int(batch.by_target.sum())
        self._fallbacks += batch.fallbacks
        self._guarded += batch.guarded
        self._handed_over += batch.handed_over
        self._steps += batch.steps
        self._controlled |= batch.controlled
        self.interrupted |= batch.interrupted
        if self._context is None:
            self._noise.add(batch)
        if self._kept is not None and batch.episodes is not None:
            self._kept.append(batch.episodes)

    @property
    def stage_episodes(self) -> Episodes | None:
        """The episodes of the stage that was begun last, if they were recorded."""
        kept = [] if self._stage is None else self._stage.kept
        return Episodes.concat(kept) if kept else None

    @property
    def _moments(self) -> Moments:
        """Of the values that the estimate is the mean of."""
        return self._fixed or self._values.whole

    @property
    def squared_error(self) -> float:
        """Squared standard error of the estimate; NaN before the first value."""
        of_history = 0.0 if self._context is None else self._context.error**2
        fixed = self._fixed
        if fixed is not None:
            return fixed.std**2 / max(fixed.n, 1) + of_history
        return self._values.squared_error + of_history

    def interval(self, *, anytime: bool) -> Interval:
        """Of the value: by stated bounds, the running sequence, or for a plan fixed in advance."""
        if self._returns is not None and self._returns.violated is None:
            low, high = self._returns.ends
            return Interval(self._values.estimate, low, high, self._alpha, "bets", self.finished)
        self._fixed = None
        if not (anytime or self._method == "sequence"):
            if self._staged:
                return self._widened(self._values.interval())
            if self._context is None or not self.finished:
                return moments_interval(self._moments, alpha=self._alpha, method=self._method)
            interval, self._fixed = self._context.fixed(self._alpha, self._method)
            return interval
        return self._widened(self._values.sequence())

    def _widened(self, interval: Interval) -> Interval:
        """The interval, with the error of the history counted."""
        return interval if self._context is None else self._context.widened(interval, self._alpha)

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
        assert self._stage is not None
        stage, moments = self._stage, self._values.stages[-1].moments
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

    def finished_stages(self) -> tuple[Stage, ...]:
        """The stages, with their shares of the whole estimate."""
        total = self._values.total_weight or 1.0
        return tuple(
            replace(
                stage,
                share=values.powers(1) / total,
                parts=tuple((m.n, weight / total) for weight, m in values.parts.items()),
            )
            for stage, values in zip(self.stages, self._values.stages, strict=False)
        )

    def result(self, run: RunInfo) -> Evaluation:
        """The evaluation."""
        interval = self.interval(anytime=run.anytime)
        weight_error = self._second.error(_WEIGHT)
        weights = self._weights.diagnostics if self.finished else None
        # Bets on bounded returns hold for any weights. With a control variate the values are mostly
        # the critics', which small weights do not spoil; but some weight there must be.
        if (
            weights is not None
            and interval.method != "bets"
            and (not weights.effective_size if self._controlled else weights.no_evidence)
        ):
            interval = replace(interval, estimate=math.nan, low=-math.inf, high=math.inf)
        certificate = self._certificate(self._ledger, run) if run.costs else None
        at_own_cost: Certificate | None = None
        if certificate is not None and self._at_own_cost is not None:
            at_own_cost = self._certificate(self._at_own_cost, run)
        context: ContextReport | None = None
        if self._context is not None and self.finished:
            context = self._context.report(self.squared_error, self._moments.std, self._alpha)
        diagnostics = self._diagnostics(run, weights, weight_error, context)
        error, square = math.nan, self.squared_error
        if self.finished > 1 and not math.isnan(interval.estimate) and square >= 0:
            error = math.sqrt(square)
        estimator = run.estimator
        if estimator == "auto":
            estimator = "dr" if self._controlled else "pdis"
        return Evaluation(
            estimate=interval.estimate,
            interval=interval,
            cost=Spent(self._spent / max(self.finished, 1), self.total),
            certificate=certificate,
            diagnostics=diagnostics,
            guard=run.guard,
            on_policy=self._own_cost(run.uncovered, diagnostics.tail_index, interval),
            estimator=estimator,
            finished=self.finished,
            started=self.started,
            by_target=self._by_target,
            stopped=run.stopped,
            episodes=Episodes.concat(self._kept) if self._kept else None,
            context=context,
            advice=self._noise.advice,
            stages=self.finished_stages() if self._staged else (),
            certificate_at_own_cost=at_own_cost,
            unconfirmed=run.unconfirmed,
            standard_error=error,
        )

    @staticmethod
    def _certificate(ledger: Ledger, run: RunInfo) -> Certificate | None:
        if not ledger.episodes:
            return None
        return ledger.certificate(
            covered=run.uncovered is None,
            anytime=run.anytime,
            refuted=run.guard is not None and run.guard.state.refuted,
        )

    def _caveats(self, weights: WeightDiagnostics | None) -> list[str]:
        """What speaks against trusting the interval, in words.

        Weights say little about values with a control variate, whose own few events do.
        """
        bounds = self._returns
        caveats = [] if weights is None or self._controlled else list(weights.warnings)
        if bounds is not None and bounds.violated is None:
            return caveats
        events = self._values.events  # about how many values their spread comes from
        if self._fixed is not None:
            events = 0.0 if self._fixed.flat else self._fixed.events
        outcomes = self._outcomes.warning or few_events(events, self.finished)
        return caveats if outcomes is None else [*caveats, outcomes]

    def _diagnostics(
        self,
        run: RunInfo,
        weights: WeightDiagnostics | None,
        error: float,
        context: ContextReport | None,
    ) -> Diagnostics:
        warnings = [] if run.uncovered is None else [run.uncovered]
        warnings += [*run.notes, *_often_fell_back(run.behavior, self._fallbacks, self._steps)]
        if run.baseline and self._handed_over:
            warnings.append(
                f"the baseline took the rest of {self._handed_over:,} of {self.finished:,} "
                f"episodes ({self._guarded:,} steps): those are about the policy until then, and "
                "about the baseline afterwards"
            )
        if context is not None:
            warnings += context.warnings
        caveats = self._caveats(weights)
        warnings += caveats
        if self._returns is not None and self._returns.violated is not None:
            warnings.append(self._returns.violated)
        mean, size, largest, tail = float(self._second.mean[2]), 0.0, 0.0, None
        if weights is not None:
            size, largest = weights.effective_size, weights.largest
            tail = weights.tail_index
            warnings += [text for text in weights.warnings if text not in caveats]
            if run.uncovered is None and mean < 1 - FAR * error - RESOLUTION:
                warnings.append(
                    f"the weights average {mean:.3f} +- {error:.3f} where 1 is expected: the "
                    "behavior policy may leave out actions of the target, or large weights are "
                    "still to come"
                )
        return Diagnostics(
            effective_size=size,
            largest_weight=largest,
            tail_index=tail,
            mean_weight=mean,
            mean_weight_error=error,
            fallbacks=self._fallbacks,
            guarded=self._guarded,
            lost=self._lost,
            first_loss=self._first_loss,
            behavior=run.behavior,
            warnings=tuple(warnings),
            caveats=tuple(caveats),
        )

    def _own_cost(self, uncovered: str | None, tail: float | None, interval: Interval) -> OnPolicy:
        """What running the target itself would have taken, for the same standard error.

        E_mu[W (G - J)^2] = Var_pi(G), and so many episodes average it down to our error.
        """
        moments = self._moments
        cost = float(self._second.mean[3])
        gap = moments.mean - (self._center or 0.0)
        around = np.array([1.0, -2.0 * gap, gap * gap, 0.0])  # (G - J)^2 = (G - c - gap)^2
        variance, error = float(self._second.mean @ around), self._second.error(around)
        unknown = None
        if math.isnan(interval.estimate):
            unknown = "these episodes tell too little about the policy"
        elif moments.n < 2 or not self.squared_error > 0:
            unknown = "the values have no spread to compare with"
        elif uncovered is not None:
            unknown = "the behavior policy leaves out actions of the target"
        elif self._by_target < moments.n:
            if tail is not None and tail > HEAVY_TAIL:
                unknown = "the weights have too heavy a tail"
            elif not error <= _UNSURE * variance:
                unknown = f"too few episodes (variance of a return {variance:.3g} +- {error:.3g})"
        if unknown is not None:
            return OnPolicy(math.nan, math.nan, cost, math.nan, math.nan, unknown)
        episodes = variance / self.squared_error
        return OnPolicy(variance, error, cost, episodes, episodes * cost)


class _StageTotals:
    """Sums of one stage.

    Args:
        ledger: judges its own promise.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.by_target = 0
        self.spent = 0.0
        self.kept: list[Episodes] = []

    def add(self, batch: Batch, *, by_target: bool) -> None:
        """Take in a batch; `by_target`: the promise is about episodes of the target too."""
        self.ledger.add(batch.costs.select(~batch.by_target | by_target))
        self.by_target += int(batch.by_target.sum())
        self.spent += float(batch.spent.sum())
        if batch.episodes is not None:
            self.kept.append(batch.episodes)


def _often_fell_back(behavior: Mapping[str, int], failed: int, steps: int) -> list[str]:
    """A warning for every reason for which many decisions were the target policy's own."""
    asked = behavior.get("asked", 0)
    counts = {name: (n, asked) for name, n in behavior.items() if name != "asked"}
    counts["failed"] = (failed, steps)
    return [
        f"the behavior policy fell back to the target policy in {100 * n / of:.3g}% of {of:,} "
        f"decisions ({name.replace('_', ' ')}): {_REASONS.get(name, 'see summary()')}"
        for name, (n, of) in counts.items()
        if of and n > _OFTEN * of
    ]
