"""The behavior policy that `design` returns, which runs in place of the target policy.

In every doubtful case it uses the target's own probabilities, and the case is counted and reported:
an observation unlike the logs, a program without a solution, a critic that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.behavior.promised_cost import PromisedCost
from scopeval.behavior.step import LARGEST, Recipe, StepResult, weigh_rows
from scopeval.behavior.summary import Prediction, Report, summary_of
from scopeval.behavior.weighted_step import PriceGrid, weigh_weighted
from scopeval.errors import InputError
from scopeval.models.model_critic import ModelCritic
from scopeval.models.protocols import Critic, Estimates
from scopeval.models.table import TableCritic
from scopeval.policies._random_kernel import drawn
from scopeval.policies.adapters import CallablePolicy, TabularPolicy, TorchPolicy
from scopeval.policies.fingerprint import Fingerprint, Identity
from scopeval.policies.protocols import (
    Candidates,
    ContinuousPolicy,
    Counts,
    EpisodeState,
    Observations,
    Policy,
    Time,
    Weighing,
    Why,
    offer,
    probs_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Action", "BehaviorPolicy"]


@dataclass(frozen=True)
class Action:
    """One action to take, with the probabilities and the random number it was drawn with."""

    action: Any
    probability: float
    target_probability: float
    control: float = 0.0
    baseline: float = 0.0
    uniform: float | None = None


class BehaviorPolicy:
    """A behavior policy learned from logs, for one target.

    ``weigh`` re-weighs what the target offers (the form that `collect` asks for); ``probs`` gives
    probabilities for a batch; ``act`` draws one action. ``counts`` says how often it decided, and
    fell back; `weigh` alone counts nothing, what runs episodes does.
    """

    def __init__(
        self,
        target: Policy | ContinuousPolicy,
        critics: Sequence[Critic],
        recipe: Recipe,
        report: Report,
        fingerprint: Fingerprint | None = None,
    ) -> None:
        self.target = target
        self.critics = list(critics)
        self.recipe = recipe
        self.report = report
        #: Of the target, so that `load` can recognize it; None: it was not taken.
        self.fingerprint = fingerprint
        self._identity: Identity | None = None
        self.counts = Counts()
        self._grid = None if recipe.prices is None else PriceGrid(*recipe.prices)
        self._normalized = isinstance(target, TabularPolicy | CallablePolicy | TorchPolicy)
        #: By time step: rows asked for, and then line 6 at every state (`_looked_up`).
        self._asked: dict[int, int] = {}
        self._tables: dict[int, tuple[Floats, StepResult]] = {}
        #: Action numbers of a finite target, None for a continuous one.
        self._every = None if isinstance(target, ContinuousPolicy) else np.arange(1)[None]

    # -- running -----------------------------------------------------------------------------

    def weigh(
        self,
        offered: Candidates,
        obs: Observations,
        t: Time,
        state: EpisodeState | None = None,
    ) -> Weighing:
        """Mu over the offered candidates, the control variate if there is one, and why.

        It is no decision in operation: what runs episodes counts (`counts`).

        Args:
            offered: what the target offers.
            obs: observations.
            t: time steps.
            state: of the episodes so far; needed if `weighted`.

        Raises:
            InputError: mu depends on the weight of the episode so far, and there is no state.
        """
        weight = None
        if self.weighted:
            if state is None:
                raise InputError(
                    "weigh: this behavior policy depends on the weight of the episode so far; use "
                    "weigh(offered, obs, t, EpisodeState.of_weights(w)), or act(..., weight=w)"
                )
            weight = state.weight
        pi = offered.probs
        if isinstance(t, int):
            acts = None if offered.actions.ndim == 2 else offered.actions
            return self._weighing(self._step(t, obs, pi, acts, weight))
        times = np.broadcast_to(np.asarray(t), (len(pi),))
        whole = StepResult(np.empty_like(pi), np.empty_like(pi), np.empty(len(pi), np.uint8))
        for step in np.unique(times):
            rows = np.flatnonzero(times == step)
            acts = None if offered.actions.ndim == 2 else offered.actions[rows]
            weights = None if weight is None else weight[rows]
            part = self._step(int(step), np.asarray(obs)[rows], pi[rows], acts, weights)
            whole.mu[rows], whole.control[rows], whole.why[rows] = part
        return self._weighing(whole)

    def _weighing(self, step: StepResult) -> Weighing:
        return Weighing(
            step.mu, step.control if self.recipe.method.control_variate else None, step.why
        )

    def cost_to_go(self, obs: Observations, t: int) -> Floats:
        """The target's expected cost from here on, for every action [B, A].

        Estimates that are missing are those of the target's other actions on average.
        """
        pi = np.asarray(offer(self.target, obs, t, np.random.default_rng(0)).probs)
        if not 0 <= t < len(self.critics):
            return np.zeros_like(pi)
        e = self._estimates(t, obs, pi, None)
        cost = np.maximum(e.cost_target, 0.0)
        known = e.known & (cost <= LARGEST)  # NaN is not
        mass = (pi * known).sum(axis=1, keepdims=True)
        mean = np.where(known, pi * cost, 0.0).sum(axis=1, keepdims=True)
        return np.where(known, cost, mean / np.where(mass > 0, mass, 1.0))

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A] (finite action sets), counted as decisions."""
        if self._every is None:
            raise InputError("probs: the action set is continuous; use act() or weigh()")
        weighing = self.weigh(self._offer(obs, t, np.random.default_rng(0)), obs, t)
        assert weighing.why is not None
        self.counts.add_rows(weighing.why)
        return weighing.probs

    def start_values(self, obs: Observations, seed: int = 0) -> Floats:
        """Estimated value of the target from first observations [B]: see `StartControl`.

        By the critics of the first step; 0 where they know nothing. For continuous actions the mean
        over what the target offers, drawn by `seed`.
        """
        if not self.critics:
            return np.zeros(len(obs))
        offered = offer(self.target, obs, 0, np.random.default_rng(seed))
        acts = None if offered.actions.ndim == 2 else offered.actions
        e = self._estimates(0, obs, offered.probs, acts)
        value = (offered.probs * e.q).sum(axis=1)
        return np.where(np.isfinite(value) & e.known.any(axis=1), value, 0.0)

    def act(
        self, obs: Any, t: int, rng: np.random.Generator, weight: float | None = None
    ) -> Action:
        """Draw one action for one observation; pass the probabilities on with the outcome.

        Args:
            obs: the observation.
            t: the time step.
            rng: draws the action.
            weight: of the episode so far, the product of target_probability / probability of its
                actions; needed by policies that depend on it (those of a frontier).
        """
        batch = np.asarray(obs)[None]
        offered = self._offer(batch, t, rng)
        uniform = rng.random()
        k, probability, by_target, control, b = self._draw(t, batch, offered, weight, uniform)
        chosen = offered.actions[0, k]
        return Action(
            action=int(chosen) if offered.actions.ndim == 2 else chosen,
            probability=probability,
            target_probability=by_target,
            control=control,
            baseline=float(offered.probs[0] @ b) if self.recipe.method.control_variate else 0.0,
            uniform=uniform,
        )

    def _draw(
        self, t: int, batch: Observations, offered: Candidates, weight: float | None, uniform: float
    ) -> tuple[int, float, float, float, Floats]:
        """Number of the action at `uniform`, its mu, pi and b, and b of all actions."""
        pi = offered.probs
        candidates = None if offered.actions.ndim == 2 else offered.actions
        weights = None
        if self.weighted:
            if weight is None or not weight >= 0.0:
                raise InputError(
                    f"weight: got {weight!r}, expected a number >= 0: the product of "
                    "target_probability / probability over the episode's actions so far, 1 at t = 0"
                )
            weights = EpisodeState.of_weights(np.array([weight])).weight
        mu, b, why = self._step(t, batch, pi, candidates, weights)
        self.counts.add_rows(why)
        k = drawn(mu[0], uniform)
        return k, float(mu[0, k]), float(pi[0, k]), float(b[0, k]), b[0]

    def _offer(self, batch: Observations, t: Time, rng: np.random.Generator) -> Candidates:
        """What the target offers; `offer` without asking again what kind of policy it is."""
        if isinstance(self._every, np.ndarray):
            if self._normalized:
                pi = np.ascontiguousarray(self.target.probs(batch, t), np.float64)  # type: ignore[union-attr]
            else:
                pi = probs_of(self.target, batch, t)  # type: ignore[arg-type]
            if pi.shape[1] != self._every.shape[1]:
                self._every = np.arange(pi.shape[1])[None]
            return Candidates(self._every, pi)
        return offer(self.target, batch, t, rng)

    def _step(
        self,
        t: int,
        obs: Observations,
        pi: Floats,
        actions: NDArray[Any] | None,
        weight: Floats | None,
    ) -> StepResult:
        """Mu and b at one time step, with every doubt resolved in favor of pi."""
        if not 0 <= t < len(self.critics):
            return StepResult(pi, np.zeros_like(pi), np.full(len(pi), Why.UNSEEN, np.uint8))
        if self._grid is None and isinstance(self.target, TabularPolicy):
            tabulated = self._looked_up(t, obs, pi)
            if tabulated is not None:
                return tabulated
        e = self._estimates(t, obs, pi, actions)
        if self._grid is not None and weight is not None:
            return weigh_weighted(self.recipe, self._grid, pi, e, t, weight)
        return weigh_rows(self.recipe, pi, e)

    def _looked_up(self, t: int, obs: Observations, pi: Floats) -> StepResult | None:
        """Rows of a table that holds line 6 at every state; the same bits as solving it again.

        It is made once as many rows were asked for as there are states. None: there is no table, or
        it is not for these rows.
        """
        critic, target = self.critics[t], self.target
        if not (isinstance(critic, TableCritic) and isinstance(target, TabularPolicy)):
            return None
        states = min(len(critic.q), target.states)
        if t not in self._tables:
            self._asked[t] = self._asked.get(t, 0) + len(pi)
            if self._asked[t] < states:
                return None
            every = np.arange(states)
            probs = target.probs(every, t)
            if probs.shape[1] != critic.q.shape[1]:
                return None
            self._tables[t] = probs, weigh_rows(self.recipe, probs, critic.at(every))
        probs, table = self._tables[t]
        rows = np.asarray(obs)
        if len(rows) == 1:  # a controller may be waiting
            if not 0 <= rows[0] < states:
                return None
            one = slice(int(rows[0]), int(rows[0]) + 1)
            asked, mu, control = (np.array(x[one]) for x in (probs, table.mu, table.control))
        elif not len(rows) or rows.min() < 0 or rows.max() >= states:
            return None
        else:
            asked, mu, control = (x.take(rows, 0) for x in (probs, table.mu, table.control))
        if not np.array_equal(asked, pi):  # it is not what the target offers there
            return None
        return StepResult(mu, control, table.why.take(rows))

    def _estimates(
        self, t: int, obs: Observations, pi: Floats, actions: NDArray[Any] | None
    ) -> Estimates:
        """The critics' answers for what the target offers, and for nothing else."""
        estimates = self.critics[t].at(obs, actions)
        if estimates.q.shape != pi.shape:
            raise InputError(
                f"target: offers {pi.shape[1]} actions, the behavior policy was designed for "
                f"{estimates.q.shape[1]}"
            )
        return estimates

    # -- reporting ---------------------------------------------------------------------------

    @property
    def predicted(self) -> Prediction:
        """Predicted variance and cost, relative to the target's own."""
        return self.report.prediction

    @property
    def fallback(self) -> str | None:
        """Why the logs confirm no design, so that it is the target policy; None: they do."""
        return self.report.fallback

    @property
    def falls_back(self) -> bool:
        """Whether the design fell back to the target policy; `report.fallback` says why."""
        return self.report.fallback is not None

    @property
    def promised(self) -> PromisedCost | None:
        """Whose cost it was designed not to exceed; None: the target policy's."""
        return self.report.promise

    def recognizes_reference(self, reference: Policy) -> bool | None:
        """Whether it was designed for the cost of this policy; None: it cannot be told."""
        promised = self.report.promise
        if promised is None:
            return False
        return promised.recognizes(reference, self.fingerprint, self.recipe.horizon)

    @property
    def weighted(self) -> bool:
        """Whether it depends on the weight of the episode so far."""
        return self.recipe.prices is not None

    @property
    def largest_weight(self) -> float:
        """No weight within an episode exceeds it; inf: there is no limit."""
        capped = self.weighted and self.recipe.cap is not None
        return float(self.recipe.cap or math.inf) if capped else math.inf

    def table(self, states: int) -> tuple[Floats, Floats | None]:
        """Mu [T, S, A] and b [T, S, A] for state numbers, to assess or simulate exactly."""
        every, rng = np.arange(states), np.random.default_rng(0)
        parts = [
            self.weigh(offer(self.target, every, t, rng), every, t)
            for t in range(self.recipe.horizon)
        ]
        mu = np.stack([part.probs for part in parts])
        if parts[0].control is None:
            return mu, None
        return mu, np.stack([part.control for part in parts if part.control is not None])

    def summary(self) -> str:
        """What a person should know before running it."""
        return summary_of(self.recipe, self.report, self.counts, self._simulator_error())

    def _simulator_error(self) -> str | None:
        """The last error of a simulator that stands for the dynamics."""
        first = self.critics[0] if self.critics else None
        return first.trouble if isinstance(first, ModelCritic) else None

    def __repr__(self) -> str:
        p = self.report.prediction
        return (
            f"BehaviorPolicy(method={self.recipe.method.name!r}, horizon={self.recipe.horizon}, "
            f"predicted variance {p.variance:.3f}, predicted cost {p.cost:.3f})"
        )

    def to_frame(self) -> DataFrame:
        """A pandas table of what it predicts of itself, relative to the target policy."""
        from scopeval.behavior.summary import policy_columns
        from scopeval.notebook.frame import frame_of

        return frame_of(policy_columns(self.recipe, self.report), index="quantity")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw its variance and cost beside the target policy's; on its frontier, if it has one."""
        from scopeval.behavior.summary import draw_policy

        return draw_policy(self.recipe, self.report, ax)

    def _repr_html_(self) -> str:
        from scopeval.behavior.summary import policy_card

        return policy_card(self.recipe, self.report).html()

    # -- saving ------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one file, whole or not at all; `scopeval.load` reads it. No pickle inside.

        Raises:
            InputError: critics of your own, which `load` could not restore.
            DataError: the file cannot be written there.
        """
        from scopeval.behavior.file import save  # `file` builds policies, so it imports this module

        save(self, path)

    def check_target(self, target: Policy | ContinuousPolicy) -> None:
        """Raise an InputError if this policy was designed for another target."""
        fingerprint = self.fingerprint
        if target is self.target or fingerprint is None:
            return
        if not isinstance(target, TabularPolicy):  # the same table in another form will do
            fingerprint = replace(fingerprint, table=None)
        fingerprint.check(
            target,
            self.recipe.horizon,
            "the behavior policy",
            "run it for its own target, and ask estimate(episodes, policy) about this one",
        )

    def identify(self) -> Identity:
        """Hashes of the target and of this policy, which recorded episodes carry."""
        if self._identity is None:
            from scopeval.behavior.file import digest

            try:
                design = digest(self)
            except InputError:  # critics of your own, or a simulator: no file can hold them
                design = None
            target = None if self.fingerprint is None else self.fingerprint.digest
            self._identity = Identity(target, design)
        return self._identity
