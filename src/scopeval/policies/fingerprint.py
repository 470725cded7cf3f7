"""Recognize a target policy again, without keeping it.

A behavior policy is valid for one target only, and the target is not in its file. What is kept is
how the target answers at some observations, and for a table also a hash of all its entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, offer

__all__ = [
    "PROBES",
    "TOLERANCE",
    "Fingerprint",
    "Identity",
    "table_hash",
    "take_answers",
    "take_fingerprint",
]

#: Most observations that are kept of each probed time step, and most numbers of all of these.
PROBES, PROBED_NUMBERS = 16, 1 << 16
#: How far answers may be off, for networks in single precision round differently from machine to
#: machine: sums in another order alone change probabilities by up to 2e-6 (256 hidden units,
#: logits up to 17). Of continuous actions: relative to the largest.
TOLERANCE = 1e-5
#: Entries of a table are compared to about this precision.
TABLE_UNIT = 1e-8
#: Seed of the draws from a continuous policy.
DRAWS_SEED = 20


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """How a target policy answers.

    Attributes:
        obs: [P] or [P, d] observations.
        t: [P] time steps at which it is asked there, in increasing order.
        answers: [P, A] probabilities; of a continuous policy [P, K, m] candidates, drawn with a
            fixed seed.
        table: hash of a `TabularPolicy`'s entries; None for other policies.
    """

    obs: Observations
    t: Ints
    answers: Floats
    table: str | None = None

    @property
    def digest(self) -> str:
        """One word for all of it: of a table its hash, else a hash of observations and answers."""
        if self.table is not None:
            return self.table
        parts = (self.obs, self.t, self.answers)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    def check(
        self,
        policy: Policy | ContinuousPolicy,
        horizon: int,
        source: str,
        otherwise: str = "load with check_target=False if it is the same",
    ) -> None:
        """See that a policy is this one.

        Args:
            policy: to be recognized.
            horizon: the number of time steps that matter.
            source: where the fingerprint is from, for messages.
            otherwise: what to try if not a new design.

        Raises:
            InputError: it is another policy, or cannot be asked.
        """
        try:
            answers = take_answers(policy, self.obs, self.t)
        except Exception as error:
            raise InputError(
                f"target: cannot be asked about observations as in the logs of {source} "
                f"({type(error).__name__}: {error}); expected the target it was designed for"
            ) from error
        if answers.shape != self.answers.shape:
            raise InputError(
                f"target: answers {answers.shape[1:]} numbers at an observation, the target that "
                f"{source} was designed for {self.answers.shape[1:]}; expected the same target"
            )
        off = np.abs(answers - self.answers).max(initial=0.0) / _scale(self.answers)
        same_table = self.table in (None, table_hash(policy, horizon))
        if off <= TOLERANCE and same_table:
            return
        unit = "of the largest action" if self.answers.ndim == 3 else "in probability"
        where = (
            f"at {len(self.t)} stored observations its answers are off by up to {off:.2g} {unit}"
        )
        if off <= TOLERANCE:
            where = f"it agrees at {len(self.t)} stored observations, but not in the whole table"
        raise InputError(
            f"target: is not the policy that {source} was designed for: {where}; expected the same "
            f"target, design again for this one, or {otherwise}"
        )


class Identity(NamedTuple):
    """Hashes of a behavior policy and of the target it was designed for; None: not known."""

    target: str | None
    behavior: str | None


def take_fingerprint(
    policy: Policy | ContinuousPolicy, horizon: int, points: Callable[[int], Observations]
) -> Fingerprint | None:
    """The fingerprint of a policy; None without observations, or if its answers are not repeatable.

    Args:
        policy: the target.
        horizon: T.
        points: gives observations at which it can be asked at a time step.
    """
    times = sorted({0, horizon // 2, horizon - 1})
    chosen = [_some(points(t)) for t in times]
    obs = np.concatenate(chosen)
    if not len(obs):
        return None
    obs = obs.astype(np.int64 if np.issubdtype(obs.dtype, np.integer) else np.float64)
    t = np.repeat(np.array(times, np.int64), [len(some) for some in chosen])
    answers = take_answers(policy, obs, t)
    if not np.isfinite(answers).all() or not np.array_equal(answers, take_answers(policy, obs, t)):
        return None
    return Fingerprint(obs, t, answers, table_hash(policy, horizon))


def table_hash(policy: Policy | ContinuousPolicy, horizon: int) -> str | None:
    """A hash of a table's entries up to the horizon; None for other policies.

    A table that does not depend on time has the same hash as one that repeats it.
    """
    if not isinstance(policy, TabularPolicy):
        return None
    table = policy.table(horizon)
    if (table == table[0]).all():
        table = table[:1]
    shape = np.array(table.shape, np.int64).tobytes()
    return hashlib.sha256(shape + _coarse(table)).hexdigest()


def _some(obs: Observations) -> Observations:
    """A few observations, evenly chosen."""
    width = int(np.prod(obs.shape[1:], dtype=np.int64))
    count = min(len(obs), PROBES, max(1, PROBED_NUMBERS // max(width, 1)))
    return np.asarray(obs[np.linspace(0, len(obs) - 1, count).astype(np.int64)])


def take_answers(policy: Policy | ContinuousPolicy, obs: Observations, t: Ints) -> Floats:
    """What a policy answers, asked once for every time step."""
    parts = []
    for step in np.unique(t):
        rng = np.random.default_rng((DRAWS_SEED, int(step)))
        offered = offer(policy, obs[t == step], int(step), rng)
        parts.append(offered.actions if isinstance(policy, ContinuousPolicy) else offered.probs)
    return np.concatenate(parts).astype(np.float64)


def _scale(answers: Floats) -> float:
    """What differences are measured in."""
    return max(1.0, float(np.abs(answers).max(initial=0.0))) if answers.ndim == 3 else 1.0


def _coarse(table: Floats) -> bytes:
    """Entries in units, as bytes; the shift keeps usual numbers away from where they would flip."""
    return np.floor(table / TABLE_UNIT + 0.3819660112501051).tobytes()
