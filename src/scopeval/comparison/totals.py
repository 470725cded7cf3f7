"""What is known of several policies after the batches so far, and the shares of the next one.

    batch of episodes -> look: values, intervals -> shares of the next batch, or an end

The batches are those of the one loop, `evaluation.loop.run_batches`.

Shares change between batches only, and by past episodes only, so that every value stays unbiased:
a policy that is surely worse than another loses its share (never the baseline), one that failed
too, and with a ramp those of new policies grow.

`CostTerms` says what was promised about their cost: certificate and guard, against the baseline's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.episodes import discounts
from scopeval.comparison.context import HistoryError, JointContext
from scopeval.comparison.cross_fitting import Analyst, Judged
from scopeval.comparison.estimators import (
    Controls,
    centers_of,
    full_trajectory,
    learner_for,
    weighted_costs,
)
from scopeval.comparison.inference import Contrast, Inferrer, Observed
from scopeval.comparison.mixture import MixtureEpisodes, none_finished
from scopeval.comparison.policy_set import PolicySet, current_shares
from scopeval.errors import InputError
from scopeval.estimation.moments import Interval
from scopeval.evaluation.loop import Running, StoppingPlan, run_batches, watched
from scopeval.logs.transitions import Transitions
from scopeval.question.inference import Inference
from scopeval.question.promise import Compared, Promise
from scopeval.question.stop import Stop
from scopeval.safety.certificate import Certificate, Ledger
from scopeval.safety.cost_bound import CostBound, cost_bound_of
from scopeval.safety.costs import ControlledSum, CostSteps, EpisodeCosts, limit_costs
from scopeval.safety.guard import Guard

__all__ = [
    "CostTerms",
    "Look",
    "Outcome",
    "PairedSettings",
    "PairedTotals",
    "Ramping",
    "look_at",
    "run_mixture",
]

# -- what it costs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class CostTerms:
    """What is promised about the cost of a comparison.

    Attributes:
        promise: None: nothing is promised; the comparison may cost what an A/B test costs.
        baseline: number of the policy that the cost is compared with.
        gamma: discount of the promise, that of the returns.
        bound: what is known about the costs of episodes.
        alpha: error probability of certificate and guard.
    """

    promise: Promise | None
    baseline: int
    gamma: float
    bound: CostBound | None
    alpha: float

    @property
    def compared(self) -> Compared:
        """What the promise compares with."""
        limit = self.promise is not None and self.promise.limit is not None
        return "limit" if limit else "reference"

    def guard(self) -> Guard | None:
        """A guard of the promise; None: there is nothing to guard."""
        if self.promise is None or self.promise.action == "tell":
            return None
        return Guard(self.promise, alpha=self.alpha, bound=self.bound, compared=self.compared)

    def of(self, episodes: MixtureEpisodes, earlier: CostsAhead) -> EpisodeCosts:
        """Costs of finished episodes, and the baseline's by the same episodes.

        Their control variate is what earlier episodes cost from each step on (`safety.costs`):
        without it the baseline's cost has the noise of the draw of the policies.
        """
        discount = discounts(self.gamma, episodes.horizon)
        cost = np.asarray(episodes.cost @ discount)
        largest = episodes.cost.max(axis=1, initial=0.0)
        if self.compared == "limit":
            assert self.promise is not None
            assert self.promise.limit is not None
            return limit_costs(cost, self.promise.limit, largest)
        ahead = earlier.add(episodes, self.gamma) * episodes.steps
        of_baseline = self._sum_of(self.baseline, episodes, ahead)
        after = of_baseline.weights
        steps = CostSteps(
            ControlledSum(np.ones_like(after), episodes.cost, ahead, ahead, ahead, discount),
            of_baseline,
        )
        return EpisodeCosts(
            cost,
            weighted_costs(episodes, self.gamma)[:, self.baseline],
            after[:, -1],
            after @ discount,
            largest,
            cost,
            steps.target.plain(),
            steps,
        )

    def each(self, episodes: MixtureEpisodes, earlier: CostsAhead) -> Floats:
        """The cost of every policy by the same episodes, [N, K], each unbiased; NaN: it has none.

        With the same control variate as the baseline's.
        """
        ahead = earlier.add(episodes, self.gamma) * episodes.steps
        every = range(episodes.weights.shape[2])
        sums = np.stack([self._sum_of(k, episodes, ahead).plain() for k in every], axis=1)
        return np.where(episodes.taking_part, sums, np.nan)

    def _sum_of(self, k: int, episodes: MixtureEpisodes, ahead: Floats) -> ControlledSum:
        """Step by step what the cost of policy k is made of; `ahead` [N, T] is the control."""
        weights: Floats = episodes.weights[:, :, k]
        before, after = weights[:, :-1], weights[:, 1:]
        # no weight exceeds 1 / share, so that no ratio exceeds 1 / (share * the weight before)
        most = before * episodes.shares[:, [k]]
        peak = np.divide(ahead, most, out=np.zeros_like(ahead), where=most > 0)
        discount = discounts(self.gamma, episodes.horizon)
        return ControlledSum(after, episodes.cost, ahead, ahead, peak, discount)

    def certificate(self, episodes: MixtureEpisodes, *, anytime: bool) -> Certificate:
        """The verdict about the promise, or about at most the baseline's cost where none is."""
        ledger = Ledger(self.promise, alpha=self.alpha, bound=self.bound, compared=self.compared)
        ledger.add(self.of(episodes, CostsAhead(episodes.horizon)))
        return replace(ledger.certificate(anytime=anytime), runs="trial")


class CostsAhead:
    """What episodes have cost from each step on: the mean over all earlier ones, [T].

    It is known before an episode begins, so that it may stand in its control variate.
    """

    def __init__(self, horizon: int) -> None:
        self._sum, self._episodes = np.zeros(horizon), 0

    def add(self, episodes: MixtureEpisodes, gamma: float) -> Floats:
        """The means before each of some episodes, [N, T]; 0 before the first of all."""
        ahead = np.zeros_like(episodes.cost)
        follows = np.zeros(len(ahead))
        for t in reversed(range(episodes.horizon)):
            ahead[:, t] = follows = episodes.cost[:, t] + gamma * follows
        sums = self._sum + np.cumsum(ahead, axis=0)
        counts = self._episodes + np.arange(len(ahead))
        means = (sums - ahead) / np.maximum(counts, 1)[:, None]
        if len(ahead):
            self._sum, self._episodes = sums[-1], int(counts[-1]) + 1
        return np.maximum(means, 0.0)


# -- what is known ---------------------------------------------------------------------------------


#: Policies whose values were equal in so many episodes are taken to decide alike.
ALIKE = 500


@runtime_checkable
class Ramping(Protocol):
    """How the shares of new policies grow.

    A new policy has `shares[i]` of its fair share in stage i; the baseline has the rest. A stage
    ends after `episodes` finished episodes without an alarm.
    """

    @property
    def shares(self) -> tuple[float, ...]:
        """Of the stages, increasing."""
        ...

    @property
    def episodes(self) -> int:
        """Finished episodes that a stage needs."""
        ...


@dataclass(frozen=True)
class Look:
    """What the episodes so far show.

    Attributes:
        differences: to the baseline, by number of the policy.
        best: some policy is surely better than all others.
        alike: all of them decide alike, as far as seen.
        width: of the widest interval of a difference, half of it.
        worse: policies that lose their share, since another one is surely better.
    """

    differences: dict[int, Contrast]
    best: bool
    alike: bool
    width: float
    worse: tuple[int, ...]


def look_at(inferrer: Inferrer, policies: PolicySet, active: Bools, episodes: int) -> Look:
    """Look at what so many episodes show of the active policies, [K]; the baseline is active."""
    base = policies.baseline
    differences = {int(k): inferrer.difference(int(k), base) for k in np.flatnonzero(active)}
    del differences[base]
    better = inferrer.better(active)
    worse = np.flatnonzero(better.any(axis=0)) if policies.asked > 2 else np.zeros(0, np.int64)
    return Look(
        differences,
        bool((better.sum(axis=1) == active.sum() - 1)[active].any()),
        episodes >= ALIKE and all(one.flat for one in differences.values()),
        max((one.half_width for one in differences.values()), default=0.0),
        tuple(int(j) for j in worse if j != base),
    )


@dataclass
class Outcome:
    """What a comparison has come to.

    Attributes:
        episodes: all finished ones.
        judged: their values.
        inferrer: intervals from them.
        anytime: what the episodes showed may have decided how many there are.
        stopped: why there were no more, in words.
        shares: of the policies at the end.
        dropped: policies that lost their share because others are better, and after how many.
        decided_after: episodes after which a difference to the baseline was clear, by number.
        looks: number of episodes, and the differences to the baseline by number of the policy.
        plain: intervals from values without exogenous paths; None: there is no context.
    """

    episodes: MixtureEpisodes
    judged: Judged
    inferrer: Inferrer
    anytime: bool
    stopped: str
    shares: Floats
    dropped: dict[int, int] = field(default_factory=dict)
    decided_after: dict[int, int] = field(default_factory=dict)
    looks: list[tuple[int, dict[int, Contrast]]] = field(default_factory=list)
    plain: Inferrer | None = None


@dataclass(frozen=True)
class PairedSettings:
    """How policies are judged by the same episodes.

    Attributes:
        policies: of the comparison.
        inference: how intervals follow.
        gamma: discount.
        planned: number of episodes at which an anytime-valid interval is narrowest.
        seed: of the folds.
        logs: of past operation; None: there are none.
        controls: control variates that are known, and not learned; None: there are none.
        context: exogenous paths; None: there are none.
    """

    policies: PolicySet
    inference: Inference
    gamma: float
    planned: int
    seed: int
    logs: Transitions | None = None
    controls: Controls | None = None
    context: JointContext | None = None

    def costs(self, promise: Promise | None, share: float, horizon: int) -> CostTerms:
        """What is promised about the cost, checked.

        Args:
            promise: as the user gave it.
            share: the least that the baseline has: no episode weighs more for it than 1 / share.
            horizon: T.
        """
        if promise is not None and promise.of is not None:
            raise InputError(
                "promise.of: got it in a comparison, whose promise is about the baseline's cost; "
                "expected Promise(at_most=...) or Promise(limit=...), and baseline='name'"
            )
        bound = None
        if promise is not None:
            bound = cost_bound_of(
                promise.bound, horizon=horizon, gamma=self.gamma, largest_weight=1.0 / share
            )
        alpha = self.inference.alpha
        return CostTerms(promise, self.policies.baseline, self.gamma, bound, alpha)

    def analyst(self, episodes: MixtureEpisodes, *, by_labels: bool = False) -> Analyst:
        """Who judges episodes like these; `by_labels`: the policies cannot be asked."""
        learner = None
        if not by_labels:
            learner = learner_for(self.policies, episodes, gamma=self.gamma, seed=self.seed)
        return Analyst(
            self.policies, self.gamma, learner, self.logs, self.seed, self.controls, self.context
        )

    def inferrer(
        self,
        episodes: MixtureEpisodes,
        judged: Judged,
        *,
        anytime: bool,
        groups: Ints | None = None,
    ) -> Inferrer:
        """Intervals from values, which count the error of the history.

        Args:
            episodes: of the comparison.
            judged: their values.
            anytime: what the episodes showed may decide how many there are.
            groups: which may depend on each other, [N]; None: none do.
        """
        history = None
        if self.context is not None and judged.removed is not None:
            history = HistoryError(self.context.history, judged.removed)
        observed = Observed(
            judged.values,
            episodes.shares,
            episodes.weights[:, -1],
            episodes.returns(self.gamma),
            groups,
            history,
            judged.fold,
            judged.learned,
        )
        return Inferrer(
            observed,
            self.inference.alpha,
            anytime=anytime,
            target_n=self.planned,
            return_bound=self.inference.return_bound,
            asked=self.policies.asked,
        )

    def outcome(
        self,
        episodes: MixtureEpisodes,
        judged: Judged,
        *,
        stopped: str,
        shares: Floats,
        anytime: bool,
        groups: Ints | None = None,
    ) -> Outcome:
        """What values of episodes have come to; arguments as of `Outcome` and `inferrer`."""
        inferrer = self.inferrer(episodes, judged, anytime=anytime, groups=groups)
        plain = None
        if judged.plain is not None:
            plain = self.inferrer(episodes, judged.plain, anytime=anytime, groups=groups)
        return Outcome(episodes, judged, inferrer, anytime, stopped, shares, plain=plain)


class PairedTotals:
    """What is known after the batches so far, and the shares of the next one.

    Args:
        settings: how they are judged.
        stop: the plan.
        shares: of the policies, [K].
        ramp: how those of new policies grow; None: at once.

    Attributes:
        started: episodes that were started and are over.
        total: what they have cost.
        lost_in_a_row: of them, one after the other, up to now.
        interrupted: the user has stopped a batch.
        adaptive: the plan looks at what the episodes show.
    """

    def __init__(
        self, settings: PairedSettings, stop: Stop, shares: Floats, ramp: Ramping | None = None
    ) -> None:
        self._settings, self._policies, self._stop = settings, settings.policies, stop
        self._fair, self._ramp = shares, ramp
        self._parts: list[MixtureEpisodes] = []
        self._analyst: Analyst | None = None
        self._dropped: dict[int, int] = {}
        self._decided_after: dict[int, int] = {}
        self._looked: list[tuple[int, dict[int, Contrast]]] = []
        self._look: Look | None = None
        self._stage, self._stage_began = 0, 0
        self.started = self.lost_in_a_row = 0
        self.total, self.interrupted = 0.0, False
        self.adaptive = (
            stop.decided
            or stop.precision is not None
            or stop.cost is not None
            or settings.inference.interval == "sequence"
        )

    @property
    def finished(self) -> int:
        """Episodes with values."""
        return sum(len(part) for part in self._parts)

    @property
    def mean_cost(self) -> float:
        """What a started episode has cost on average; 0 before the first."""
        return self.total / self.started if self.started else 0.0

    @property
    def _active(self) -> Bools:
        """Policies that may have a share: neither dropped nor failed."""
        active = np.ones(len(self._policies), np.bool_)
        active[list(self._dropped)] = False
        for part in self._parts:
            active &= ~part.failed.any(axis=0)
        return active

    @property
    def shares(self) -> Floats:
        """Of the next batch: fair ones among the active; new policies' grow with a ramp."""
        part = None if self._ramp is None else self._ramp.shares[self._stage]
        return current_shares(self._fair, self._active, self._policies.baseline, part)

    @property
    def most(self) -> int | None:
        """Episodes until the ramp may climb; None: it is at its end, or there is none."""
        if self._ramp is None or self._stage + 1 >= len(self._ramp.shares):
            return None
        return self._ramp.episodes

    def answered(self, stop: Stop) -> str | None:
        """Whether all is known that was asked for, or there is nothing left to compare."""
        if not self._parts:
            return None
        if not self._active[self._policies.baseline]:
            return "stopped because the baseline failed: there is nothing to compare with"
        if self._active[: self._policies.asked].sum() < 2:
            return "stopped because only one policy is left"
        look, wanted = self._look, stop.precision
        if look is None:
            return None
        if stop.decided and look.best:
            return "stopped when it was decided"
        if stop.decided and look.alike:
            return "stopped because the policies decide alike: their values are equal"
        if wanted is not None and look.width <= wanted:
            return f"stopped when every difference was known to +- {wanted:g} or better"
        return None

    def add(self, part: MixtureEpisodes) -> None:
        """Take in a batch, look at what all episodes show, and climb the ramp."""
        finished, lost = len(part), len(part.lost)
        self.started += finished + lost
        self.lost_in_a_row = 0 if finished else self.lost_in_a_row + lost
        self.total += float(part.cost.sum()) + sum(one.cost for one in part.lost)
        self.interrupted |= part.interrupted
        self._parts.append(part)
        if self.adaptive and self.finished >= 2:
            self._look_at_all()
        if self.most is not None and self.finished - self._stage_began >= self.most:
            self._stage, self._stage_began = self._stage + 1, self.finished

    # -- what the episodes show --------------------------------------------------------------------

    def _judged(self, episodes: MixtureEpisodes) -> Judged:
        if self._analyst is None:
            self._analyst = self._settings.analyst(episodes)
        return self._analyst.judge(episodes)

    def _look_at_all(self) -> None:
        """Judge all episodes so far: what is decided, and who is dropped."""
        episodes = MixtureEpisodes.concat(self._parts)
        base, active = self._policies.baseline, self._active[: self._policies.asked]
        if not active[base]:
            return
        inferrer = self._settings.inferrer(episodes, self._judged(episodes), anytime=True)
        look = self._look = look_at(inferrer, self._policies, active, len(episodes))
        self._looked.append((len(episodes), look.differences))
        for k, difference in look.differences.items():
            if difference.decided:
                self._decided_after.setdefault(k, len(episodes))
        for j in look.worse:
            self._dropped[j] = len(episodes)

    def running(self) -> Running:
        """The numbers of this moment: estimates without control variates are enough to follow."""
        episodes = MixtureEpisodes.concat(self._parts)
        gamma, alpha = self._settings.gamma, self._settings.inference.alpha
        each = full_trajectory(episodes, gamma, centers_of(episodes, gamma))
        each[~episodes.taking_part] = np.nan
        base, more = self._policies.baseline, {}
        first = math.nan
        for k, name in enumerate(self._policies.names[: self._policies.asked]):
            if k == base:
                continue
            paired = each[:, k] - each[:, base]
            known = np.isfinite(paired)
            more[f"difference/{name}"] = float(paired[known].mean()) if known.any() else math.nan
            first = more[f"difference/{name}"] if math.isnan(first) else first
        now = Interval(first, -math.inf, math.inf, alpha, "running", len(episodes))
        return Running(self.started, self._stop.episodes, now, self.total, math.nan, None, more)

    def outcome(self, stopped: str, *, adaptive: bool) -> Outcome:
        """What it has come to.

        Args:
            stopped: why there were no more episodes.
            adaptive: what they showed may have decided how many there are.
        """
        if not self.finished:
            raise KeyboardInterrupt  # before there was anything to report
        episodes = MixtureEpisodes.concat(self._parts)
        outcome = self._settings.outcome(
            episodes,
            self._judged(episodes),
            stopped=stopped,
            shares=self.shares,
            anytime=adaptive or self.adaptive or bool(self._dropped),
        )
        return replace(
            outcome, dropped=self._dropped, decided_after=self._decided_after, looks=self._looked
        )


def run_mixture(
    run: Callable[[int, int, Floats], MixtureEpisodes],
    totals: PairedTotals,
    stop: Stop,
    costs: CostTerms,
    *,
    side_by_side: int = 1,
    progress: Callable[[Running], None] | None = None,
) -> Outcome:
    """Run batches of a mixture until the plan ends.

    Args:
        run: runs so many episodes from a number on, with shares.
        totals: what they show.
        stop: the plan.
        costs: what is promised.
        side_by_side: episodes that run at the same time.
        progress: called after every batch.
    """
    plan, guard = StoppingPlan(stop), costs.guard()
    guards = () if guard is None else (guard,)
    look = totals.adaptive or totals.most is not None
    plan.suit(side_by_side, guards, grow=look, check=look)

    earlier: CostsAhead | None = None

    def batch(first: int, count: int) -> None:
        nonlocal earlier
        part = run(first, count if totals.most is None else min(count, totals.most), totals.shares)
        if not len(part) and not totals.finished and not part.interrupted:
            raise none_finished(part.lost)
        totals.add(part)
        if guards:
            lost = sum(one.cost for one in part.lost)
            spent = part.cost.sum(axis=1)
            earlier = earlier or CostsAhead(part.horizon)
            state = watched(guards, costs.of(part, earlier), spent, lost, covered=True)
            if state.tripped:
                plan.end(f"stopped by the guard: {state.reason}")
        if progress is not None:
            progress(totals.running())

    run_batches(plan, totals, batch)
    return totals.outcome(plan.stopped, adaptive=plan.adaptive)
