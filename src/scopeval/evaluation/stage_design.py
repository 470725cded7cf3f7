"""The behavior policy of each stage, designed from the logs and from all earlier episodes.

A design may depend on everything that happened before its stage: the values of the stage keep the
mean J(pi) given the past. Within a stage nothing is learned.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.behavior.evidence import learn_of
from scopeval.behavior.methods import method_named
from scopeval.behavior.summary import Prediction
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError, ScopevalError
from scopeval.evaluation.agreement import drift_test
from scopeval.evaluation.stage_report import Agreement
from scopeval.evaluation.stages import Stages, expected_variance
from scopeval.logs.transitions import Transitions
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    Policy,
    Redraws,
    embedding_of,
)
from scopeval.question.inference import Check
from scopeval.question.promise import Promise
from scopeval.question.question import Question, discount

if TYPE_CHECKING:
    from scopeval.behavior.frontier import Frontier
    from scopeval.behavior.policy import BehaviorPolicy
    from scopeval.models.world import World

__all__ = ["Plan", "StageDesigner"]

#: Names of older data in reports.
LOGS, STAGES = "the logs", "earlier stages"
#: Refits in a row that are expected to save too little before refitting stops.
PATIENCE = 2


@dataclass(frozen=True)
class Plan:
    """What a stage runs, and why.

    Attributes:
        behavior: mu; None runs the target policy itself.
        prediction: of the design; None for the target policy itself.
        epsilon: the stage's own promise: it costs at most 1 + epsilon times the target policy.
        why: in words.
        new: the design was made for this stage.
        rows: logged steps that it was learned from; 0 for none.
        seconds: that the design took.
        warnings: of the design.
    """

    behavior: Behavior | Policy | None
    prediction: Prediction | None
    epsilon: float
    why: str
    new: bool = False
    rows: int = 0
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def cost(self) -> float:
        """Relative cost that the budget of all stages counts: the predicted one and its doubt."""
        return 1.0 if self.prediction is None else self.prediction.safe_cost


class StageDesigner:
    """Designs the stages of one evaluation.

    Args:
        question: target policy, horizon and discount.
        promise: about the cost, with what was left open filled in.
        settings: of the designs.
        given: a behavior policy for the first stage; None: from the logs, or the target itself.
        logs: of past operation; None: there are none.
        seed: of the designs.
    """

    def __init__(
        self,
        question: Question,
        promise: Promise,
        settings: Stages,
        given: Behavior | Policy | None,
        logs: Transitions | None,
        seed: int,
    ) -> None:
        self._question, self._promise, self._settings = question, promise, settings
        self._target = question.policy
        self._given, self.logs, self._seed = given, logs, seed
        self._seen: list[Transitions] = []
        self._last: Plan | None = None
        self._variances: deque[float] = deque(maxlen=PATIENCE + 1)
        self._world: World | None = None  # learned from the first parts of the data, so many:
        self._in_world = 0
        self.stopped: str | None = None  # why there are no more refits

    def resume(self, plans: Sequence[Plan], stopped: str | None) -> None:
        """Go on after the stages with these plans, which another process has made."""
        self._last, self.stopped = plans[-1], stopped
        for plan in plans:
            if plan.new and plan.prediction is not None:
                self._variances.append(expected_variance(plan.prediction, self._settings))

    def add(self, episodes: Episodes) -> None:
        """Learn from the episodes of a finished stage."""
        self._seen.append(self.rows_of(episodes))

    def learn(self, episodes: Episodes, number: int, level: float) -> list[Agreement]:
        """Learn from the episodes of a finished stage, and from older data that agree with them.

        Args:
            episodes: of the stage.
            number: of the stage, from 1.
            level: the p-value below which older data disagree.
        """
        agreements = []
        for what, old in self.older():
            seen = drift_test(
                old,
                self.rows_of(episodes),
                time_varying=self._settings.time_varying,
                seed=self._seed + number,
            )
            agrees = seen.p_value >= level
            agreements.append(Agreement(what, number, seen.p_value, seen.column, seen.rows, agrees))
            if not agrees:
                self.forget(what)
        self.add(episodes)
        return agreements

    @staticmethod
    def rows_of(episodes: Episodes) -> Transitions:
        """Episodes as a log."""
        columns: dict[str, Any] = episodes.transitions()
        return Transitions(**columns)

    def older(self) -> list[tuple[str, Transitions]]:
        """Data that designs learn from, by name: the logs, and all finished stages."""
        parts = [] if self.logs is None else [(LOGS, self.logs)]
        return [*parts, (STAGES, Transitions.concat(self._seen))] if self._seen else parts

    def forget(self, what: str) -> None:
        """Do not learn from these data any more; an environment that changed makes both wrong."""
        self.logs, self._world = None, None
        if what == STAGES:
            self._seen.clear()

    def next(self, remaining: int | None, asked: float, margin: float = 0.0) -> Plan:
        """The next stage.

        Args:
            remaining: episodes that are left; None: not known.
            asked: the relative cost that is asked of it, 1 + epsilon or less.
            margin: part of the cost budget that a design leaves unspent.
        """
        first = self._last is None
        if first and self._given is not None:
            plan = self._as_given(self._given)
        elif first and self.logs is None:
            why = "nothing is known yet: the target policy itself is run"
            plan = Plan(None, None, self._promised(0.0), why)
        elif first or self._worth_it(remaining):
            plan = self._designed(asked, margin)
        else:
            plan = self._continued(self.stopped or "the refit was skipped")
        self._last = plan
        return plan

    def _as_given(self, behavior: Behavior | Policy) -> Plan:
        from scopeval.behavior.policy import BehaviorPolicy  # loads numba

        if not isinstance(behavior, BehaviorPolicy):
            unknown = Prediction(1.0, 1.0, 1.0, 1.0)
            return Plan(behavior, unknown, self._promise.epsilon, "the behavior policy was given")
        return Plan(
            behavior,
            behavior.predicted,
            self._promised(behavior.recipe.epsilon),
            "the behavior policy was given",
            rows=behavior.report.rows,
            warnings=behavior.report.warnings,
        )

    def _promised(self, epsilon: float) -> float:
        """A stage's own promise; about another cost than the target's all have the same."""
        return epsilon if self._promise.compared == "target" else self._promise.epsilon

    def _continued(self, why: str, warnings: tuple[str, ...] = ()) -> Plan:
        last = self._last
        assert last is not None
        return Plan(
            last.behavior,
            last.prediction,
            last.epsilon,
            f"continues with the last design: {why}",
            rows=last.rows,
            warnings=warnings,
        )

    # -- designing ---------------------------------------------------------------------------

    def _designed(self, asked: float, margin: float) -> Plan:
        began = time.perf_counter()
        parts = [] if self.logs is None else [self.logs]
        try:
            made = self._made([*parts, *self._seen], asked, margin)
        except ScopevalError as error:
            if self._last is None:
                raise
            # an evaluation that runs goes on with what it has
            return self._continued(f"no design could be made ({error})", (str(error),))
        if made is None and self._last is None:
            why = (
                "the target policy itself is run: the logs bear out no design that costs so little"
            )
            return Plan(None, None, self._promised(0.0), why, True)
        if made is None:
            return self._continued("the cross-check allows no lower cost than the target policy's")
        seconds = time.perf_counter() - began
        report = made.report
        if report.fallback is not None:
            why = f"the target policy itself is run: {report.fallback}"
            promised = self._promised(0.0)
            return Plan(None, None, promised, why, True, report.rows, seconds, report.warnings)
        self._variances.append(expected_variance(made.predicted, self._settings))
        source = (
            "the logs and earlier episodes"
            if parts and self._seen
            else ("earlier episodes" if self._seen else "the logs")
        )
        why = f"designed from {report.rows:,} steps of {source}"
        promised, predicted = self._promised(made.recipe.epsilon), made.predicted
        if asked < 1.0 and predicted.safe_cost > asked + 0.005:
            why += f"; the cross-check allows no less than {predicted.safe_cost:.2f} of the cost"
        return Plan(made, predicted, promised, why, True, report.rows, seconds, report.warnings)

    def _made(self, parts: list[Transitions], asked: float, margin: float) -> BehaviorPolicy | None:
        """The design; None: there is none that is cheap enough."""
        if self._promise.compared == "target":
            return self._design(self._data(parts), asked, margin)
        from scopeval.behavior.designer import design  # loads numba

        s = self._settings
        try:
            return design(
                Transitions.concat(parts),
                self._target,
                horizon=self._question.horizon,
                method=s.method,
                promise=replace(self._promise, per=None),
                gamma=discount(self._question),
                learn=s.learn,
                check=s.check,
                seed=self._seed,
            )
        except InputError:  # the logs bear out no design that costs so little
            return None

    def _data(self, parts: list[Transitions]) -> Transitions | World:
        """What a design learns from; of vectors one learned world, which is refitted."""
        from scopeval.models.world import World  # loads numba

        whole, s = Transitions.concat(parts), self._settings
        if whole.discrete_obs or s.learn is not None:
            return whole
        target = self._target
        if self._world is None:
            embedding = embedding_of(target)
            many = None
            if not isinstance(target, ContinuousPolicy):
                many = target.probs(whole.obs[:1], 0).shape[1]
            self._world = World.learn(
                whole,
                actions=many,
                embedding=embedding,
                drawn=target.drawn if isinstance(target, Redraws) else 0,
                horizon=self._question.horizon if s.time_varying else None,
                seed=self._seed,
            )
        elif len(parts) > self._in_world:
            self._world = self._world.refit(Transitions.concat(parts[self._in_world :]))
        self._in_world = len(parts)
        return self._world

    def _design(
        self, logged: Transitions | World, asked: float, margin: float
    ) -> BehaviorPolicy | None:
        """The design; None: the last one, which is cheaper than any that could be made now."""
        from scopeval.behavior.designer import designs  # loads numba
        from scopeval.behavior.frontier import frontier
        from scopeval.behavior.step import Recipe

        s, T = self._settings, self._question.horizon
        if T is None:
            raise InputError("horizon: needed, expected the number of steps of an episode")
        if asked < 1.0:
            curve = frontier(
                logged,
                self._target,
                horizon=T,
                method=s.method,
                gamma=discount(self._question),
                learn=s.learn,
                check=Check(floor=s.floor),
                seed=self._seed,
            )
            cost = _affordable(curve, asked, s.most_variance)
            if cost is not None:
                return curve.at(cost=cost)
            if self._last is not None and self._last.cost < 0.99:
                return None
        method = method_named(s.method)
        recipe = Recipe(
            method,
            T,
            discount(self._question),
            max(self._promise.epsilon, 0.0),
            floor=s.floor,
            margin=margin,
            budget=s.per,
        )
        made = designs(
            logged,
            self._target,
            [recipe],
            learn=learn_of(s.learn),
            least_gain=s.least_gain,
            seed=self._seed,
        )
        return made[method.name]

    # -- whether to ----------------------------------------------------------------------------

    def _worth_it(self, remaining: int | None) -> bool:
        """Whether a refit is expected to save more than it costs; else refitting stops.

        Errors of critics fall like 1 / (number of episodes), so a refit after `growth` times as
        many is expected to gain 1 / growth of what the one before gained. Noise can hide a gain
        once, so `PATIENCE` refits in a row must have gained too little.
        """
        if self.stopped is not None:
            return False
        if remaining is None or len(self._variances) <= PATIENCE or self._last is None:
            return True
        s, v = self._settings, np.array(self._variances)
        saved = remaining * np.abs(np.diff(v)) / (v[-1] * s.growth)
        least = s.worth
        if s.episode_seconds is not None:
            least += self._last.seconds / s.episode_seconds
        if (saved >= least).any():
            return True
        self.stopped = (
            f"another refit is expected to save {saved.max():.2g} of the remaining {remaining:,} "
            f"episodes, less than the {least:.2g} that it costs"
        )
        return False


def _affordable(curve: Frontier, asked: float, most_variance: float) -> float | None:
    """The least cost, not below what is asked, whose cross-checked variance is small enough."""
    usable = [point for point in curve.points if point.checked_variance <= most_variance]
    if not usable:
        return None
    return max(asked, min(point.safe_cost for point in usable))
