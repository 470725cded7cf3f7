"""Target policies, and what a policy offers at an observation.

A *finite* policy answers ``probs(obs, t) -> [B, A]`` for a batch of observations at time t. One
over continuous actions answers ``candidates(obs, t, rng)`` instead: K actions drawn from it, each
with probability 1/K. `offer` reduces both to one form, a set of candidates with probabilities, and
a behavior policy re-weighs that set. Unbiasedness, the safety program and the estimators need
nothing else, so no later room asks whether the action set is finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints, check_probs
from scopeval.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = [
    "Behavior",
    "Candidates",
    "CapsWeights",
    "ContinuousPolicy",
    "EmbedsActions",
    "LearnedBehavior",
    "Policy",
    "Redraws",
    "Weighing",
    "WeightedBehavior",
    "checked_probs",
    "offer",
    "probs_of",
    "weigh",
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


@runtime_checkable
class EmbedsActions(Protocol):
    """A policy over a finite set that knows features of its actions."""

    @property
    def embedding(self) -> Floats:
        """[A, m] a vector for every action, for critics to learn from."""
        ...


@dataclass(frozen=True)
class Weighing:
    """How a behavior policy re-weighs an offer.

    ``probs`` [B, K] are the behavior probabilities mu. ``control`` [B, K] is the control variate
    b(s, a_k) that goes with them, or None for b = 0.
    """

    probs: Floats
    control: Floats | None = None


@runtime_checkable
class Behavior(Protocol):
    """A behavior policy designed for one target: re-weighs what the target offers."""

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
        """Behavior probabilities (and control variate) over the offered candidates."""
        ...


class Terms(Protocol):
    """What a behavior policy was designed for."""

    @property
    def horizon(self) -> int:
        """T."""
        ...

    @property
    def gamma(self) -> float:
        """The discount."""
        ...

    @property
    def epsilon(self) -> float:
        """The promise: it costs at most 1 + epsilon times the target."""
        ...


@runtime_checkable
class LearnedBehavior(Behavior, Protocol):
    """A behavior policy from `design`: it knows its terms, and counts its decisions."""

    @property
    def recipe(self) -> Terms:
        """What it was designed for."""
        ...

    @property
    def counts(self) -> DataclassInstance:
        """How often it was asked, and why it fell back to the target policy."""
        ...

    def table(self, states: int) -> tuple[Floats, Floats | None]:
        """Mu and b [T, S, A] for state numbers; not counted."""
        ...


@runtime_checkable
class WeightedBehavior(Behavior, Protocol):
    """A behavior policy that also depends on the weight of the episode so far.

    The weight is the product of the ratios pi/mu of the actions taken, 1 at the start. It is a
    function of the past, so the estimates stay unbiased. What runs episodes asks `weigh_at`.
    """

    def weigh_at(self, offered: Candidates, obs: Observations, t: Time, weight: Floats) -> Weighing:
        """Behavior probabilities (and control variate) for episodes of these weights [B]."""
        ...


@runtime_checkable
class CapsWeights(Protocol):
    """A behavior policy that knows a limit of the weights of its episodes."""

    @property
    def largest_weight(self) -> float:
        """No weight within an episode exceeds it; inf: there is no limit."""
        ...


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
    if isinstance(policy, ContinuousPolicy):
        return policy.candidates(obs, t, rng)
    probs = probs_of(policy, obs, t)
    every = np.broadcast_to(np.arange(probs.shape[-1]), probs.shape)
    return Candidates(actions=every, probs=probs)


def weigh(behavior: Behavior | Policy, offered: Candidates, obs: Observations, t: Time) -> Weighing:
    """The weighing of any behavior: a designed one, or a plain policy over the same actions."""
    if isinstance(behavior, Behavior):
        weighing = behavior.weigh(offered, obs, t)
    else:
        weighing = Weighing(behavior.probs(obs, t))
    if weighing.probs.shape != offered.probs.shape:
        raise InputError(
            f"behavior: got probabilities of shape {weighing.probs.shape} where the target offers "
            f"{offered.probs.shape}; expected the same action set"
        )
    return weighing
