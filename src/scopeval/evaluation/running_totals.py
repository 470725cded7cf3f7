"""From batches of episodes to an `Evaluation`, by running sums: memory does not grow.

Unbiasedness and the guard. Whatever runs episode i (behavior or target, as earlier episodes
decided), its value has mean J(pi) given all earlier ones: sum_{i<=n} (value_i - J) is a martingale.
So the *plain mean* is unbiased when the number of episodes n is fixed, also when a guard changed
the policy in between at a time that the data chose. Weighing the two stages by their precision
would not be: the weights would depend on the same data. When the data also choose n (a wanted
precision, a cost budget) the mean has a bias of order 1/n; the anytime-valid sequence covers J(pi)
all the same, and is therefore the interval that is reported. It is also reported when the guard
has switched, for then the data have chosen how much variance the mean has.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.estimation.intervals import Interval, moments_interval
from scopeval.estimation.sequences import AsymptoticSequence
from scopeval.estimation.streaming_moments import Scatter
from scopeval.estimation.weight_diagnostics import RunningWeights
from scopeval.evaluation.batches import Batch
from scopeval.evaluation.result import Diagnostics, Evaluation, GuardReport, OnPolicy, Spent
from scopeval.safety.certificate import Ledger

__all__ = ["IntervalMethod", "Tally"]

IntervalMethod = Literal["t", "normal", "sequence"]

_UNSURE = 0.25  # relative standard error of the on-policy variance above which it is unknown
_HEAVY_TAIL = 0.7


class Tally:
    """What is known after the batches so far."""

    def __init__(
        self,
        *,
        alpha: float,
        epsilon: float,
        method: IntervalMethod,
        target_n: int,
        on_policy: bool,
        keep: bool,
    ) -> None:
        if method not in get_args(IntervalMethod):
            raise InputError(
                f"interval: got {method!r}, expected one of {get_args(IntervalMethod)}"
            )
        self.sequence = AsymptoticSequence(alpha, target_n)
        self.ledger = Ledger(epsilon=epsilon, alpha=alpha, target_n=target_n)
        self.weights = RunningWeights()
        self.started = self.by_target = 0
        self.total = 0.0
        self.lost = 0
        self.first_loss: str | None = None
        self._alpha = alpha
        self._own = on_policy  # the target is what was to be run
        self._method: IntervalMethod = method
        self._spent = 0.0
        self._fallbacks = self._guarded = 0
        self._controlled = False
        self._centre: float | None = None
        self._second = Scatter(4)  # W (G - c)^2, W (G - c), W, weighted spending
        self._kept: list[Episodes] | None = [] if keep else None

    @property
    def finished(self) -> int:
        """Episodes that have a value."""
        return self.sequence.moments.n

    @property
    def mean_cost(self) -> float:
        """What a started episode has cost on average; 0 before the first."""
        return self.total / self.started if self.started else 0.0

    def add(self, batch: Batch) -> None:
        """Take in a batch."""
        self.sequence.update(batch.value)
        own = ~batch.by_target | self._own
        self.ledger.update(batch.cost[own], batch.weighted_cost[own])
        self.weights.update(batch.weight)
        if self._centre is None and len(batch):
            self._centre = float(batch.value.mean())
        gap = batch.returned - (self._centre or 0.0)
        w = batch.weight
        self._second.merge(np.stack([w * gap**2, w * gap, w, batch.target_spent], axis=1))
        self._spent += float(batch.spent.sum())
        self.total += float(batch.spent.sum()) + sum(x.cost for x in batch.lost)
        self.started += len(batch) + len(batch.lost)
        self.by_target += int(batch.by_target.sum())
        self.lost += len(batch.lost)
        if batch.lost and self.first_loss is None:
            self.first_loss = f"number {batch.lost[0].index}, {batch.lost[0].reason}"
        self._fallbacks += batch.fallbacks
        self._guarded += batch.guarded
        self._controlled |= batch.controlled
        if self._kept is not None and batch.episodes is not None:
            self._kept.append(batch.episodes)

    def interval(self, *, anytime: bool) -> Interval:
        """Of the value: the running sequence, or the one for a fixed number of episodes."""
        if anytime or self._method == "sequence":
            return self.sequence.interval
        return moments_interval(self.sequence.moments, alpha=self._alpha, method=self._method)

    def result(
        self,
        *,
        anytime: bool,
        estimator: str,
        stopped: str,
        uncovered: str | None,
        costs: bool,
        guard: GuardReport | None,
        behavior: dict[str, int],
    ) -> Evaluation:
        """All of it."""
        interval = self.interval(anytime=anytime)
        certificate = None
        if costs and self.ledger.episodes:
            certificate = self.ledger.certificate(covered=uncovered is None, anytime=anytime)
            if guard is not None and guard.state.refuted:
                certificate = replace(certificate, verdict="refuted")  # by its one-sided sequence
        diagnostics = self._diagnostics(uncovered, behavior)
        return Evaluation(
            estimate=interval.estimate,
            interval=interval,
            cost=Spent(self._spent / max(self.finished, 1), self.total),
            certificate=certificate,
            diagnostics=diagnostics,
            guard=guard,
            on_policy=self._on_policy(uncovered, diagnostics.tail_index),
            estimator=("dr" if self._controlled else "pdis") if estimator == "auto" else estimator,
            finished=self.finished,
            started=self.started,
            by_target=self.by_target,
            stopped=stopped,
            episodes=Episodes.concat(self._kept) if self._kept else None,
        )

    def _diagnostics(self, uncovered: str | None, behavior: dict[str, int]) -> Diagnostics:
        said = [] if uncovered is None else [uncovered]
        mean, error = float(self._second.mean[2]), self._error(np.array([0.0, 0.0, 1.0, 0.0]))
        if self.finished:
            weights = self.weights.diagnostics
            said += weights.warnings
            if uncovered is None and mean < 1 - 4 * error - 1e-6:
                said.append(
                    f"the weights average {mean:.3f} +- {error:.3f} where 1 is expected: the "
                    "behavior policy may leave out actions of the target, or large weights are "
                    "still to come"
                )
            size, tail = weights.effective_size, weights.tail_index
        else:
            size, tail = 0.0, None
        return Diagnostics(
            effective_size=size,
            largest_weight=self.weights.largest,
            tail_index=tail,
            mean_weight=mean,
            mean_weight_error=error,
            fallbacks=self._fallbacks,
            guarded=self._guarded,
            lost=self.lost,
            first_loss=self.first_loss,
            behavior=behavior,
            warnings=tuple(said),
        )

    def _on_policy(self, uncovered: str | None, tail: float | None) -> OnPolicy:
        """E_mu[W (G - J)^2] = Var_pi(G), and what it takes to average that down to our error."""
        moments = self.sequence.moments
        cost = float(self._second.mean[3])
        gap = moments.mean - (self._centre or 0.0)
        around = np.array([1.0, -2.0 * gap, gap * gap, 0.0])  # (G - J)^2 = (G - c - gap)^2
        variance, error = float(self._second.mean @ around), self._error(around)
        unknown = None
        if moments.n < 2 or moments.std == 0:
            unknown = "the values have no spread to compare with"
        elif uncovered is not None:
            unknown = "the behavior policy leaves out actions of the target"
        elif self.by_target < moments.n:
            if tail is not None and tail > _HEAVY_TAIL:
                unknown = "the weights have too heavy a tail"
            elif not error <= _UNSURE * variance:
                unknown = f"too few episodes (variance of a return {variance:.3g} +- {error:.3g})"
        if unknown is not None:
            return OnPolicy(math.nan, math.nan, cost, math.nan, math.nan, unknown)
        episodes = variance / (moments.std**2 / moments.n)
        return OnPolicy(variance, error, cost, episodes, episodes * cost)

    def _error(self, direction: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        """Standard error of a linear combination of the means."""
        n = self._second.n
        spread = float(direction @ self._second.covariance @ direction)
        return math.sqrt(max(spread, 0.0) / n) if n > 1 else math.inf
