"""Runs a comparison: batches of episodes of the mixture, looks at what they show, until an end.

    batch of episodes -> guard -> look: values, intervals -> shares of the next batch, or an end

Shares change between batches only, and by past episodes only, so that every value stays unbiased:
a policy that is surely worse than another loses its share (never the baseline), one that failed
too, and with a ramp those of new policies grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from scopeval.arrays import Bools, Floats, Ints
from scopeval.comparison.analysis import Analyst, Judged
from scopeval.comparison.context import HistoryError, JointContext
from scopeval.comparison.control import Controls, learner_for
from scopeval.comparison.costs import CostTerms
from scopeval.comparison.estimators import centers_of, full_trajectory
from scopeval.comparison.inference import Contrast, Inferrer, Observed
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet, current_shares
from scopeval.errors import PlantError
from scopeval.estimation.moments import Interval
from scopeval.evaluation.loop import INTERRUPTED, Running
from scopeval.logs.transitions import Transitions
from scopeval.question.inference import Inference
from scopeval.question.stop import Stop

__all__ = [
    "Look",
    "Outcome",
    "Ramping",
    "Runner",
    "RunsMixture",
    "inferrer_of",
    "judged",
    "look_at",
]

#: Episodes until the first look; the next ones come after a quarter more.
FIRST_LOOK = 64
#: Policies whose values were equal in so many episodes are taken to decide alike.
ALIKE = 500
#: So many episodes lost one after the other: the environment does not work any more.
DEAD = 64


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


class RunsMixture(Protocol):
    """Runs episodes by number, with shares."""

    def run(self, first: int, count: int, shares: Floats) -> MixtureEpisodes:
        """Run episodes first .. first+count-1."""
        ...


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
        alarm: why the guard ended it; None: it did not.
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
    alarm: str | None = None
    looks: list[tuple[int, dict[int, Contrast]]] = field(default_factory=list)
    plain: Inferrer | None = None


def judged(analyst: Analyst, episodes: MixtureEpisodes, gamma: float) -> Judged:
    """Values of all episodes, however few."""
    if len(episodes) < 2:  # there are no others to learn from
        values = full_trajectory(episodes, gamma, np.zeros(episodes.shares.shape[1]))
        values[~episodes.taking_part] = np.nan
        return Judged(values, np.zeros(values.shape, np.int64))
    return analyst.judge(episodes)


def inferrer_of(
    episodes: MixtureEpisodes,
    found: Judged,
    context: JointContext | None,
    *,
    gamma: float,
    inference: Inference,
    anytime: bool,
    target_n: int,
    asked: int | None = None,
    groups: Ints | None = None,
) -> Inferrer:
    """Intervals from values, which count the error of the history; arguments as of `Inferrer`."""
    history = None
    if context is not None and found.removed is not None:
        history = HistoryError(context.history, found.removed)
    observed = Observed(
        found.values,
        episodes.shares,
        episodes.weights[:, -1],
        episodes.returns(gamma),
        groups,
        history,
        found.fold,
        found.learned,
    )
    return Inferrer(
        observed,
        inference.alpha,
        anytime=anytime,
        target_n=target_n,
        return_bound=inference.return_bound,
        asked=asked,
    )


class Runner:
    """Runs episodes until the plan ends.

    Args:
        rollout: runs them.
        policies: of the comparison.
        stop: the plan.
        costs: what is promised.
        inference: how intervals follow.
        gamma: discount.
        logs: of past operation; None: there are none.
        seed: of the folds.
        shares: of the policies, [K].
        ramp: how those of new policies grow; None: at once.
        quick: episodes take hardly any time.
        controls: that are known, and not learned; None: there are none.
        context: exogenous paths; None: there are none.
        progress: called after every batch.
    """

    def __init__(
        self,
        rollout: RunsMixture,
        policies: PolicySet,
        *,
        stop: Stop,
        costs: CostTerms,
        inference: Inference,
        gamma: float,
        logs: Transitions | None,
        seed: int,
        shares: Floats,
        ramp: Ramping | None = None,
        quick: bool = False,
        controls: Controls | None = None,
        context: JointContext | None = None,
        progress: Callable[[Running], None] | None = None,
    ) -> None:
        self._rollout, self._policies, self._stop = rollout, policies, stop
        self._costs, self._inference, self._gamma = costs, inference, gamma
        self._logs, self._seed, self._ramp = logs, seed, ramp
        self._fair, self._quick, self._progress = shares, quick, progress
        self._controls, self._context = controls, context
        self._guard = costs.guard()
        self._parts: list[MixtureEpisodes] = []
        self._analyst: Analyst | None = None
        self._dropped: dict[int, int] = {}
        self._decided_after: dict[int, int] = {}
        self._looked: list[tuple[int, dict[int, Contrast]]] = []
        self._stage, self._stage_began = 0, 0
        self._started = self._lost_in_a_row = 0
        self._spent = 0.0
        self._why = ""
        self._early = False  # the data have decided when to stop
        self._clear: tuple[bool, bool, float] | None = None

    @property
    def _adaptive(self) -> bool:
        stop = self._stop
        return (
            stop.decided
            or stop.precision is not None
            or stop.cost is not None
            or self._inference.interval == "sequence"
        )

    @property
    def _finished(self) -> int:
        return sum(len(part) for part in self._parts)

    @property
    def _active(self) -> Bools:
        """Policies that may have a share: neither dropped nor failed."""
        active = np.ones(len(self._policies), np.bool_)
        active[list(self._dropped)] = False
        for part in self._parts:
            active &= ~part.failed.any(axis=0)
        return active

    def run(self) -> Outcome:
        """Until the end."""
        try:
            while count := self._next():
                self._batch(count)
        except KeyboardInterrupt:
            self._why, self._early = INTERRUPTED, True
        if not self._finished:
            raise KeyboardInterrupt  # before there was anything to report
        episodes = MixtureEpisodes.concat(self._parts)
        found = self._judge(episodes)
        alarm = None if self._guard is None else self._guard.state.reason
        return Outcome(
            episodes,
            found,
            self._inferrer(episodes, found),
            self._anytime,
            self._why,
            self._shares(),
            self._dropped,
            self._decided_after,
            alarm,
            self._looked,
            None if found.plain is None else self._inferrer(episodes, found.plain),
        )

    @property
    def _anytime(self) -> bool:
        return self._adaptive or self._early or bool(self._dropped)

    # -- batches ---------------------------------------------------------------------------------

    def _next(self) -> int:
        """How many episodes to run now; 0: no more, and why is known."""
        stop = self._stop
        left = math.inf if stop.episodes is None else stop.episodes - self._started
        if left <= 0:
            self._why = f"all {stop.episodes:,} episodes were run"
            return 0
        if self._ended():
            return 0
        return int(min(left, self._chunk()))

    def _ended(self) -> bool:
        """Whether something other than the number of episodes ends it."""
        stop, state = self._stop, None if self._guard is None else self._guard.state
        if state is not None and state.tripped:
            self._end(f"stopped by the guard: {state.reason}")
        elif self._parts and not self._active[self._policies.baseline]:
            self._end("stopped because the baseline failed: there is nothing to compare with")
        elif self._parts and self._active[: self._policies.asked].sum() < 2:
            self._end("stopped because only one policy is left")
        elif stop.cost is not None and self._spent >= stop.cost:
            self._end(f"stopped when the cost budget of {stop.cost:g} was reached")
        elif self._lost_in_a_row >= DEAD:
            self._end(f"stopped after {self._lost_in_a_row:,} lost episodes one after the other")
        elif self._clear is not None:
            decided, alike, width = self._clear
            if stop.decided and decided:
                self._end("stopped when it was decided")
            elif stop.decided and alike:
                self._end("stopped because the policies decide alike: their values are equal")
            elif stop.precision is not None and width <= stop.precision:
                self._end(
                    f"stopped when every difference was known to +- {stop.precision:g} or better"
                )
        return bool(self._why)

    def _end(self, why: str) -> None:
        self._why, self._early = why, True

    def _chunk(self) -> int:
        """Episodes of the next batch."""
        stop = self._stop
        if stop.every is not None:
            count = stop.every
        elif self._adaptive or self._ramp is not None:
            count = max(FIRST_LOOK, self._started // 4)
        else:
            count = 1024 if self._quick else FIRST_LOOK
        if self._ramp is not None and self._stage + 1 < len(self._ramp.shares):
            count = min(count, self._ramp.episodes)
        if stop.cost is not None and self._spent > 0:
            rest = 0.9 * (stop.cost - self._spent) / self._spent * self._started
            count = min(count, max(1, int(rest)))
        return max(1, count)

    def _batch(self, count: int) -> None:
        try:
            part = self._rollout.run(self._started, count, self._shares())
        except PlantError:
            if not self._parts:
                raise
            self._started += count
            self._lost_in_a_row += count
            return
        self._started += count
        self._lost_in_a_row = 0 if len(part) else self._lost_in_a_row + count
        self._spent += float(part.cost.sum()) + sum(one.cost for one in part.lost)
        self._parts.append(part)
        if self._guard is not None:
            lost = sum(one.cost for one in part.lost)
            self._guard.add(
                self._costs.of(part), spent=part.cost.sum(axis=1), lost=lost, covered=True
            )
        if self._looks():
            self._look()
        self._climb()
        if self._progress is not None:
            self._tell()

    # -- what the episodes show --------------------------------------------------------------------

    def _looks(self) -> bool:
        """Whether what the episodes show can change anything."""
        return self._adaptive and self._finished >= 2

    def _judge(self, episodes: MixtureEpisodes) -> Judged:
        if self._analyst is None:
            learner = learner_for(self._policies, episodes, gamma=self._gamma, seed=self._seed)
            self._analyst = Analyst(
                self._policies,
                self._gamma,
                learner,
                self._logs,
                self._seed,
                self._controls,
                self._context,
            )
        return judged(self._analyst, episodes, self._gamma)

    def _inferrer(self, episodes: MixtureEpisodes, found: Judged) -> Inferrer:
        return inferrer_of(
            episodes,
            found,
            self._context,
            gamma=self._gamma,
            inference=self._inference,
            anytime=self._anytime,
            target_n=self._stop.episodes or 1000,
            asked=self._policies.asked,
        )

    def _look(self) -> None:
        """Judge all episodes so far: what is decided, and who is dropped."""
        episodes = MixtureEpisodes.concat(self._parts)
        inferrer = self._inferrer(episodes, self._judge(episodes))
        base, active = self._policies.baseline, self._active[: self._policies.asked]
        if not active[base]:
            return
        look = look_at(inferrer, self._policies, active, len(episodes))
        self._looked.append((len(episodes), look.differences))
        for k, difference in look.differences.items():
            if difference.decided:
                self._decided_after.setdefault(k, len(episodes))
        self._clear = (look.best, look.alike, look.width)
        for j in look.worse:
            self._dropped[j] = len(episodes)

    def _shares(self) -> Floats:
        """Of the next batch: fair ones among the active; new policies' grow with a ramp."""
        part = None if self._ramp is None else self._ramp.shares[self._stage]
        return current_shares(self._fair, self._active, self._policies.baseline, part)

    def _climb(self) -> None:
        """The next stage of the ramp, after enough episodes without an alarm."""
        if self._ramp is None or self._stage + 1 >= len(self._ramp.shares):
            return
        if self._finished - self._stage_began >= self._ramp.episodes:
            self._stage, self._stage_began = self._stage + 1, self._finished

    def _tell(self) -> None:
        """The numbers of this moment: estimates without control variates are enough to follow."""
        assert self._progress is not None
        episodes = MixtureEpisodes.concat(self._parts)
        each = full_trajectory(episodes, self._gamma, centers_of(episodes, self._gamma))
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
        now = Interval(first, -math.inf, math.inf, self._inference.alpha, "running", len(episodes))
        self._progress(
            Running(self._started, self._stop.episodes, now, self._spent, math.nan, None, more)
        )
