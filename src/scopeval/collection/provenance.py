"""Where episodes come from: which policies, which environment, when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import FunctionType
from typing import Any

from scopeval._files import now
from scopeval.arrays import is_number
from scopeval.errors import InputError
from scopeval.policies.fingerprint import table_hash
from scopeval.policies.protocols import Behavior, ContinuousPolicy, LearnedBehavior, Policy

__all__ = ["Provenance", "name_of", "provenance_of"]


@dataclass(frozen=True)
class Provenance:
    """Where episodes come from; None: it is not known.

    Attributes:
        target: hash of the target policy (`policies.fingerprint`).
        behavior: hash of the behavior policy that ran.
        epsilon: what that was designed for, and
        gamma: its discount.
        plant: name of the environment.
        recorded: date and time, UTC; two records that differ in nothing else are equal.
    """

    target: str | None = None
    behavior: str | None = None
    epsilon: float | None = None
    gamma: float | None = None
    plant: str | None = None
    recorded: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("target", "behavior", "plant", "recorded"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name}: got {value!r:.60}, expected text")
        for name in ("epsilon", "gamma"):
            value = getattr(self, name)
            if value is not None and not is_number(value):
                raise InputError(f"{name}: got {value!r:.60}, expected a number")

    @classmethod
    def shared(cls, parts: Sequence[Provenance | None]) -> Provenance | None:
        """What several have in common; of the times the earliest. None: nothing is known."""
        provenances = [cls() if part is None else part for part in parts]
        common = {
            f.name: getattr(provenances[0], f.name)
            for f in fields(cls)
            if len({getattr(part, f.name) for part in provenances}) == 1
        }
        times = [part.recorded for part in provenances if part.recorded is not None]
        common_part = cls(**common | {"recorded": min(times, default=None)})
        return None if common_part == cls() and common_part.recorded is None else common_part


def provenance_of(
    plant: str | None,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    horizon: int,
) -> Provenance:
    """The provenance of episodes that begin now.

    Args:
        plant: name of the environment; None: not known.
        target: pi.
        behavior: what runs; None: the target itself.
        horizon: T.
    """
    learned = behavior if isinstance(behavior, LearnedBehavior) else None
    identity = None if learned is None else learned.identify()
    terms = None if learned is None else learned.recipe
    return Provenance(
        target=table_hash(target, horizon) or (identity.target if identity is not None else None),
        behavior=identity.behavior if identity is not None else None,
        epsilon=None if terms is None else terms.epsilon,
        gamma=None if terms is None else terms.gamma,
        plant=plant,
        recorded=now(),
    )


def name_of(env: Any) -> str | None:
    """Name of an environment: as it is registered, else of its class or of what makes it."""
    if isinstance(env, str):
        return env
    if isinstance(env, type | FunctionType):
        return None if env.__name__ == "<lambda>" else env.__name__
    spec = getattr(env, "spec", None)  # of Gymnasium: under which name it is registered
    return type(env).__name__ if spec is None else str(spec.id)
