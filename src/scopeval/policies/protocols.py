"""Target policies, and what a policy offers at an observation.

A *finite* policy answers ``probs(obs, t) -> [B, A]`` for a batch of observations at time t. One
over continuous actions answers ``candidates(obs, t, rng)`` instead: K actions drawn from it, each
with probability 1/K. `offer` reduces both to one form, a set of candidates with probabilities, and
a behavior policy re-weighs that set. Unbiasedness, the safety program and the estimators need
nothing else, so no later room asks whether the action set is finite.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints, check_probs
from scopeval.errors import InputError
from scopeval.policies.episode_state import EpisodeState

__all__ = [
    "Behavior",
    "Candidates",
    "ContinuousPolicy",
    "Counts",
    "EpisodeState",
    "LearnedBehavior",
    "Policy",
    "Redraws",
    "Weighing",
    "Why",
    "checked_probs",
    "embedding_of",
    "largest_weight",
    "offer",
    "probs_of",
    "weigh",
    "weight_aware",
]

#: Observations of a batch: int64 [B] (discrete) or float64 [B, d].
Observations = NDArray[Any]

#: One time step for the whole batch, or one per row.
Time = int | Ints

#: How far a row may be from summing to one and still count as double precision.
ROUNDING = 1e-12


@runtime_checkable
class Policy(Protocol):
    """A policy over a finite action set."""

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A] of every action, for observations [B] or [B, d] at time t."""
        ...


@dataclass(frozen=True)
class Candidates:
    """What a policy offers at each of B observations: K actions and their probabilities [B, K].

    ``actions`` is [B, K] (finite action sets: action numbers) or [B, K, d] (continuous actions).
    """

    actions: NDArray[Any]
    probs: Floats


@runtime_checkable
class ContinuousPolicy(Protocol):
    """A policy over continuous actions, known by draws from it."""

    def candidates(self, obs: Observations, t: Time, rng: np.random.Generator) -> Candidates:
        """Draw K actions per observation; ``probs`` is 1/K everywhere."""
        ...


@runtime_checkable
class Redraws(Protocol):
    """A policy that has drawn part of its action before it is asked for the rest.

    That part is the last `drawn` entries of the observation. In a log of *another* policy those
    are that policy's; `redraw` puts this policy's own in their place.
    """

    @property
    def drawn(self) -> int:
        """How many of an observation's last entries the policy draws itself."""
        ...

    def redraw(self, obs: Observations, t: Time, rng: np.random.Generator) -> Observations:
        """The observations [B, d] with fresh draws of this policy in their last entries."""
        ...


def embedding_of(policy: object) -> Floats | None:
    """A vector for every action, [A, m], for critics to learn from; None: a policy states none.

    A policy over a finite set may have them as its attribute `embedding`.
    """
    embedding = getattr(policy, "embedding", None)
    return None if embedding is None else np.asarray(embedding, np.float64)


class Why(enum.IntFlag):
    """What is to be said of a row: the first three are fallbacks to the target policy."""

    UNSEEN = 1
    """The logs say nothing about some of the actions: these keep the target's probability."""
    INFEASIBLE = 2
    """No probabilities of finite variance meet the budget."""
    NOT_FINITE = 4
    """An estimate is not a number, or too large."""
    INDIFFERENT = 8
    """All actions are as good: no variance can be saved."""
    BINDING = 16
    """The budget, or the price of cost, costs variance."""


#: The bits of `Why` that are fallbacks.
FALLBACKS = int(Why.UNSEEN | Why.INFEASIBLE | Why.NOT_FINITE)


@dataclass(frozen=True)
class Weighing:
    """How a behavior policy re-weighs an offer.

    Attributes:
        probs: [B, K] behavior probabilities mu.
        control: [B, K] control variate b(s, a_k) that goes with them, or None for b = 0.
        why: [B] bits of `Why`, or None where a behavior policy has no reasons to give.
    """

    probs: Floats
    control: Floats | None = None
    why: NDArray[np.uint8] | None = None


@dataclass
class Counts:
    """How often a behavior policy was asked for a decision, and why it fell back to the target.

    What runs episodes counts: to weigh alone counts nothing.
    """

    asked: int = 0
    unseen: int = 0
    infeasible: int = 0
    not_finite: int = 0

    def add(self, other: Counts) -> None:
        """Count another's as well."""
        self.asked += other.asked
        self.unseen += other.unseen
        self.infeasible += other.infeasible
        self.not_finite += other.not_finite

    def add_rows(self, why: NDArray[np.uint8]) -> None:
        """Count rows by their reasons, bits of `Why`."""
        self.asked += len(why)
        if len(why) == 1 and not int(why[0]) & FALLBACKS:  # a controller may be waiting
            return
        self.unseen += int(np.count_nonzero(why & int(Why.UNSEEN)))
        self.infeasible += int(np.count_nonzero(why & int(Why.INFEASIBLE)))
        self.not_finite += int(np.count_nonzero(why & int(Why.NOT_FINITE)))


@runtime_checkable
class Behavior(Protocol):
    """A behavior policy designed for one target: re-weighs what the target offers."""

    def weigh(
        self, offered: Candidates, obs: Observations, t: Time, state: EpisodeState
    ) -> Weighing:
        """Behavior probabilities and control variate over the offered candidates, and why.

        Args:
            offered: what the target offers at B observations.
            obs: [B] or [B, d].
            t: time steps.
            state: of the episodes so far. mu may depend on it, for it is a function of the past;
                most behavior policies ignore it.
        """
        ...


@runtime_checkable
class LearnedBehavior(Behavior, Protocol):
    """A behavior policy from `design` or `frontier`: it knows its terms, the target and costs."""

    @property
    def recipe(self) -> Any:
        """What it was designed for: `horizon`, `gamma`, `epsilon` (`behavior.step.Recipe`)."""
        ...

    @property
    def counts(self) -> Counts:
        """Decisions in operation, counted by what runs it."""
        ...

    @property
    def target(self) -> Any:
        """The target policy."""
        ...

    @property
    def fallback(self) -> str | None:
        """Why the logs confirm no design, so that it is the target policy; None: they do."""
        ...

    def check_target(self, target: Policy | ContinuousPolicy) -> None:
        """Raise an InputError if the target is another one than it was designed for."""
        ...

    @property
    def weighted(self) -> bool:
        """Whether it depends on the weight of the episode so far."""
        ...

    @property
    def largest_weight(self) -> float:
        """No weight within an episode exceeds it; inf: there is no limit."""
        ...

    def cost_to_go(self, obs: Observations, t: int) -> Floats:
        """Estimate of the target's q^c [B, A]: finite and at least 0."""
        ...

    def start_values(self, obs: Observations, seed: int = 0) -> Floats:
        """Estimate of the target's value at first observations [B]: finite, and fixed."""
        ...

    @property
    def promised(self) -> Any:
        """Whose cost it was designed not to exceed (`PromisedCost`); None: the target policy's."""
        ...

    def recognizes_reference(self, reference: Policy) -> bool | None:
        """Whether it was designed for the cost of this policy; None: it cannot be told."""
        ...

    def identify(self) -> Any:
        """Who it is, and for whom: `policies.fingerprint.Identity`."""
        ...


def weight_aware(behavior: object) -> bool:
    """Whether a behavior policy says that it depends on the weight of the episode so far."""
    return bool(getattr(behavior, "weighted", False))


def largest_weight(behavior: object) -> float:
    """The weight that no episode exceeds, as far as the behavior policy knows; inf: no limit."""
    return float(getattr(behavior, "largest_weight", np.inf))


def probs_of(policy: Policy, obs: Observations, t: Time) -> Floats:
    """Probabilities [B, A] of any object with `probs`, in double precision.

    Rows in single precision sum to 1 but for about 1e-7: they are normalized. Rows in double
    precision are not changed.

    Raises:
        InputError: rows that are off by more than 1e-5, or negative.
    """
    return checked_probs(np.ascontiguousarray(policy.probs(obs, t), np.float64), t)


def checked_probs(probs: Floats, t: Time) -> Floats:
    """What `probs_of` makes of a policy's answer at time t."""
    if probs.ndim == 2 and probs.size:
        off = np.abs(probs.sum(axis=1) - 1.0).max()
        if off <= ROUNDING and probs.min() >= 0.0:
            return probs
    return check_probs(f"policy at t={t}", probs, axes=("row",))


def offer(
    policy: Policy | ContinuousPolicy, obs: Observations, t: Time, rng: np.random.Generator
) -> Candidates:
    """The candidates of any policy: all actions of a finite one, K draws of a continuous one."""
    draw = getattr(policy, "candidates", None)  # what makes a `ContinuousPolicy`, 20 us faster
    if draw is not None:
        return cast(Candidates, draw(obs, t, rng))
    probs = probs_of(cast(Policy, policy), obs, t)
    every = np.broadcast_to(np.arange(probs.shape[-1]), probs.shape)
    return Candidates(actions=every, probs=probs)


def weigh(
    behavior: Behavior | Policy,
    offered: Candidates,
    obs: Observations,
    t: Time,
    state: EpisodeState,
) -> Weighing:
    """The weighing of any behavior: a designed one, or a plain policy over the same actions."""
    if isinstance(behavior, Behavior):
        weighing = behavior.weigh(offered, obs, t, state)
    else:
        weighing = Weighing(behavior.probs(obs, t))
    given = (("probabilities", weighing.probs), ("a control variate", weighing.control))
    for name, value in given:
        if value is not None and np.shape(value) != offered.probs.shape:
            raise InputError(
                f"behavior: got {name} of shape {np.shape(value)} where the target offers "
                f"{offered.probs.shape}; expected the same action set"
            )
    return weighing
