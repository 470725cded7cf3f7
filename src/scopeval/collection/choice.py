"""One decision: what the target policy offers, how it is weighed, and which action is drawn.

Everything doubtful ends in the target's own probabilities, and the decision says so.

Random numbers as a function of a seed, the episode and the step.

Philox is counter-based: the numbers of every (episode, step) begin at a place of their own. So they
are never repeated, a restart continues them, and any decision can be drawn again for an audit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, Bools, Floats, check_probs
from scopeval.errors import InputError
from scopeval.policies.drawing import draw_action
from scopeval.policies.protocols import (
    ROUNDING,
    Behavior,
    Candidates,
    ContinuousPolicy,
    EpisodeState,
    LearnedBehavior,
    Observations,
    Policy,
    Weighing,
    Why,
    checked_probs,
    weigh,
)

__all__ = [
    "Answer",
    "Asker",
    "Choice",
    "CounterStreams",
    "Decider",
    "Place",
    "Shadow",
    "Target",
    "draw_action",
    "shadow",
]

_STREAM = 1  # the last word of the counter; other uses of the same key would take another


class CounterStreams:
    """The random numbers of one campaign, or of one `EpisodeLog`.

    Args:
        seed: of all of them.
    """

    def __init__(self, seed: int) -> None:
        self._key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self._shared = np.random.Philox(key=self._key)
        self._fresh = self._shared.state
        self._generator = np.random.Generator(self._shared)

    def at(self, episode: int, step: int) -> np.random.Generator:
        """A generator for one decision."""
        counter = np.array([0, step, episode, _STREAM], np.uint64)
        return np.random.Generator(np.random.Philox(key=self._key, counter=counter))

    def now_at(self, episode: int, step: int) -> np.random.Generator:
        """The same numbers; the generator is moved by the next call.

        A new generator asks the system for entropy that it does not need, which takes longer than a
        decision.
        """
        self._fresh["state"]["counter"][:] = (0, step, episode, _STREAM)
        self._shared.state = self._fresh
        return self._generator


# --------------------------------------------------------------------------------------------------

Target = Policy | ContinuousPolicy

#: The names of fallbacks; of several, the first counts.
FALLBACKS = (
    (Why.UNSEEN, "unseen"),
    (Why.INFEASIBLE, "infeasible"),
    (Why.NOT_FINITE, "not_finite"),
)


class Choice(NamedTuple):
    """An action with the probabilities that it was drawn with.

    Attributes:
        action: a number, or a vector.
        probability: of the action under what was run.
        target_probability: of the same action under the target.
        control: b(s, a); 0 without a control variate.
        baseline: sum_a pi b; 0 without a control variate.
        chooser: "behavior", "target", "guard" (a guard gave the step to the target), or "fallback:"
            and the reason why the behavior policy fell back.
        uniform: the random number that drew it.
    """

    action: Any
    probability: float
    target_probability: float
    control: float = 0.0
    baseline: float = 0.0
    chooser: str = "behavior"
    uniform: float | None = None


class Place(NamedTuple):
    """The running episode, as far as the next decision depends on it.

    Attributes:
        episode: its number under the seed.
        step: the time step.
        weight: product of target_probability / probability so far.
        by_target: the target policy runs all of the episode.
        handed_over: the target policy decides from now on.
        share: of the behavior policy in the mixture with the target's probabilities.
    """

    episode: int
    step: int
    weight: float
    by_target: bool
    handed_over: bool
    share: float = 1.0


class Answer(NamedTuple):
    """What is run at B observations.

    Attributes:
        mu: [B, K] probabilities: the behavior policy's, or the target's own where that failed.
        b: [B, K] its control variate; 0 where it has none, or failed.
        failed: [B] where it raised, or gave what cannot be used.
        why: [B] bits of `Why`; 0 where it gives no reasons.
        controlled: it has brought a control variate.
    """

    mu: Floats
    b: Floats
    failed: Bools
    why: NDArray[np.uint8]
    controlled: bool = False

    @property
    def fallback(self) -> str | None:
        """Why it fell back at the first observation; None: it did not."""
        if self.failed[0]:
            return "failed"
        return next((name for bit, name in FALLBACKS if self.why[0] & bit), None)


class Asker:
    """Asks a behavior policy; the target's own probabilities are run where it has no answer.

    Args:
        behavior: mu; None: the target itself.
    """

    def __init__(self, behavior: Behavior | Policy | None) -> None:
        self.behavior = behavior
        self._counts = behavior.counts if isinstance(behavior, LearnedBehavior) else None

    def ask(
        self,
        offered: Candidates,
        obs: Observations,
        t: int,
        state: EpisodeState,
        *,
        by_target: bool = False,
        may_raise: bool = False,
    ) -> Answer:
        """Its answer at B observations; where it raises, each of them is asked for alone.

        Args:
            offered: what the target offers there.
            obs: [B] or [B, d].
            t: the time step.
            state: of the B episodes.
            by_target: the target runs; of the answer only the control variate is used.
            may_raise: an `InputError` at every observation is raised: a mistake to correct.
        """
        if self.behavior is None:
            pi, no = offered.probs, np.zeros(len(obs), np.uint8)
            return Answer(pi.copy(), np.zeros_like(pi), no.astype(np.bool_), no)
        try:
            answer = self._weighing(offered, obs, t, state)
        except Exception as error:
            alone = self._one_by_one(offered, obs, t, state, by_target)
            if may_raise and isinstance(error, InputError) and alone.failed.all():
                raise
            return alone
        return self._checked(answer, offered.probs, by_target)

    def _one_by_one(
        self, offered: Candidates, obs: Observations, t: int, state: EpisodeState, by_target: bool
    ) -> Answer:
        """Each observation asked for alone, after all together raised."""
        pi, B = offered.probs, len(obs)
        mu, b = pi.copy(), np.zeros_like(pi)
        failed, why, controlled = np.ones(B, np.bool_), np.zeros(B, np.uint8), False
        for i in range(B) if B > 1 else ():
            row = slice(i, i + 1)
            with suppress(Exception):
                few = Candidates(offered.actions[row], pi[row])
                answer = self._weighing(few, obs[row], t, state.select(np.array([i])))
                one = self._checked(answer, pi[row], by_target)
                mu[row], b[row], failed[row], why[row] = one[:4]
                controlled = controlled or one.controlled
        return Answer(mu, b, failed, why, controlled)

    def _checked(self, answer: Weighing, pi: Floats, by_target: bool = False) -> Answer:
        """What is run of an answer: the target's own probabilities where it cannot be used."""
        why = np.zeros(len(pi), np.uint8) if answer.why is None else answer.why
        if self._counts is not None and answer.why is not None:
            self._counts.add_rows(answer.why)
        probs, control = pi if by_target else answer.probs, answer.control
        total = probs.sum(axis=1)
        good = (probs.min(axis=1) >= 0) & (np.abs(total - 1.0) <= PROBABILITY_SLACK)
        if control is not None:
            good &= np.isfinite(control).all(axis=1)
        b = np.zeros_like(pi) if control is None else control
        if good.all():
            return Answer(probs / total[:, None], b, ~good, why, control is not None)
        mu, b = pi.copy(), np.where(good[:, None], b, 0.0)
        mu[good] = probs[good] / total[good, None]
        return Answer(mu, b, ~good, why, control is not None and bool(good.any()))

    def _weighing(
        self, offered: Candidates, obs: Observations, t: int, state: EpisodeState
    ) -> Weighing:
        """What it answers, in double precision."""
        assert self.behavior is not None
        answer = weigh(self.behavior, offered, obs, t, state)
        control = None if answer.control is None else np.asarray(answer.control, np.float64)
        return Weighing(np.asarray(answer.probs, np.float64), control, answer.why)


class Decider:
    """Decides single steps, whether they are kept in memory (`EpisodeLog`) or on disk (`Campaign`).

    What kinds of policies these are is found out once: it takes as long as a decision.

    Args:
        target: pi.
        behavior: mu; None: there is none.
    """

    def __init__(self, target: Target, behavior: Behavior | Policy | None) -> None:
        self.target, self.behavior = target, behavior
        self._asker = Asker(behavior)
        self._continuous = target if isinstance(target, ContinuousPolicy) else None
        self._finite = None if isinstance(target, ContinuousPolicy) else target
        self._every = np.broadcast_to(np.arange(0), (1, 0))  # numbers of all actions, [1, A]

    def decide(self, obs: NDArray[Any], streams: CounterStreams, at: Place) -> Choice:
        """The decision of a step.

        It is a function of the seed, the place and the observation: drawn again, it is the same.

        Raises:
            InputError: the target's answer cannot be used.
        """
        chooser = "behavior"
        if at.by_target or self.behavior is None:
            chooser = "target"
        elif at.handed_over:
            chooser = "guard"
        rng = streams.now_at(at.episode, at.step)
        return self.choose(obs, at.step, rng, weight=at.weight, share=at.share, chooser=chooser)

    def choose(
        self,
        obs: NDArray[Any],
        t: int,
        rng: np.random.Generator,
        *,
        weight: float = 1.0,
        share: float = 1.0,
        chooser: str = "behavior",
    ) -> Choice:
        """Draw one action.

        Args:
            obs: one observation.
            t: the time step.
            rng: draws candidates of a continuous target, then the action.
            weight: of the episode so far.
            share: of the behavior policy in the mixture with the target's probabilities.
            chooser: "behavior"; or "target" or "guard", which run the target's own probabilities.

        Raises:
            InputError: the target's answer cannot be used. Nothing can be run without it.
        """
        batch = obs[None]
        offered = self.offered(batch, t, rng)
        pi = offered.probs[0]
        answer = self._asker.ask(offered, batch, t, EpisodeState.of_weights([weight]))
        mu, b = pi, answer.b[0]
        if chooser == "behavior" and self.behavior is not None:
            mu = answer.mu[0]
            mu = mu if share == 1.0 else share * mu + (1.0 - share) * pi
        if chooser == "behavior" and (fallback := answer.fallback) is not None:
            chooser = f"fallback:{fallback}"
        uniform = rng.random()
        k = draw_action(mu, uniform)
        action = offered.actions[0, k]
        return Choice(
            action=int(action) if np.ndim(action) == 0 else np.asarray(action, np.float64),
            probability=float(mu[k]),
            target_probability=float(pi[k]),
            control=float(b[k]),
            baseline=float(pi @ b),
            chooser=chooser,
            uniform=uniform,
        )

    def offered(self, batch: NDArray[Any], t: int, rng: np.random.Generator) -> Candidates:
        """What the target offers at one observation, checked."""
        if self._continuous is not None:
            offered = self._continuous.candidates(batch, t, rng)
        else:
            assert self._finite is not None
            probs = np.ascontiguousarray(self._finite.probs(batch, t), np.float64)
            if probs.shape == self._every.shape:  # the usual answer, which takes the fewest checks
                total = probs.sum(axis=1)
                if abs(total.item() - 1.0) <= ROUNDING and probs.min() >= 0.0:
                    return Candidates(self._every, probs / total[:, None])
            probs = checked_probs(probs, t)
            every = np.broadcast_to(np.arange(probs.shape[-1]), probs.shape)
            self._every = every if every.ndim == 2 and len(every) == 1 else self._every
            offered = Candidates(actions=every, probs=probs)
        pi = check_probs(f"target at t={t}", offered.probs, axes=("row",))
        if pi.ndim != 2 or len(pi) != 1:
            raise InputError(
                f"target: returned probabilities of shape {pi.shape} for one observation, expected "
                "[1, number of actions]"
            )
        return Candidates(offered.actions, pi)

    def would(
        self, obs: NDArray[Any], t: int, rng: np.random.Generator
    ) -> tuple[Answer, Candidates]:
        """What the behavior policy would run, and what the target offers."""
        batch = obs[None]
        offered = self.offered(batch, t, rng)
        return self._asker.ask(offered, batch, t, EpisodeState.of_weights([1.0])), offered


class Shadow(NamedTuple):
    """What the target and the behavior policy would do where another controller acts.

    Attributes:
        action: that the behavior policy would take.
        distance: between mu and pi, in total variation: share of decisions that it changes.
        target_probability: of the controller's action under pi; None: continuous actions.
        probability: of the controller's action under mu; None: continuous actions.
        fallback: why the behavior policy falls back; None: it does not.
    """

    action: Any
    distance: float
    target_probability: float | None
    probability: float | None
    fallback: str | None


def shadow(
    target: Target,
    behavior: Behavior | Policy | None,
    obs: NDArray[Any],
    t: int,
    rng: np.random.Generator,
    taken: NDArray[Any],
) -> Shadow:
    """What would be done at an observation where another controller has taken an action."""
    answer, offered = Decider(target, behavior).would(obs, t, rng)
    pi, mu = offered.probs[0], answer.mu[0]
    k = draw_action(mu, rng.random())
    finite = offered.actions.ndim == 2
    if finite and not (taken.dtype.kind == "i" and taken.ndim == 0 and 0 <= taken < len(pi)):
        raise InputError(
            f"incumbent: got {taken.tolist()!r:.60} at t={t}, expected the number of an action in "
            f"0..{len(pi) - 1}; nothing was recorded"
        )
    return Shadow(
        action=offered.actions[0, k].tolist(),
        distance=float(0.5 * np.abs(mu - pi).sum()),
        target_probability=float(pi[int(taken)]) if finite else None,
        probability=float(mu[int(taken)]) if finite else None,
        fallback=answer.fallback,
    )
