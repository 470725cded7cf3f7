"""What is asked: the value of policies, for a goal, over a horizon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scopeval.arrays import check_whole, is_number
from scopeval.errors import InputError
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["Question", "discount", "question_of"]


@dataclass(frozen=True)
class Question:
    """The expected total of a signal in an episode, under one or several policies.

    The verbs take the policy and keywords; a question may take their place.

    Attributes:
        policies: one, or several by name: their numbers are those of `policies` from there on.
        horizon: T, the most steps of an episode; None: that of a known model, or of a design.
        gamma: discount, of the goal and of all other signals alike; None: that of a known model, or
            of a design, else 1.
        goal: the name of the signal whose expected total is wanted.
        names: of the policies.
        baseline: number of the policy that runs today; None: it is none of them.
        contrasts: pairs of numbers (k, j) whose difference, value k less value j, is wanted.
    """

    policies: Any
    horizon: int | None = None
    gamma: float | None = None
    goal: str = "reward"
    names: tuple[str, ...] = ()
    baseline: int | None = None
    contrasts: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        given, names = self.policies, self.names
        if isinstance(given, Mapping):
            names, given = tuple(str(name) for name in given), tuple(given.values())
        elif not isinstance(given, list | tuple) or _is_table(given):
            given = (given,)
        policies = tuple(as_policy(one) for one in given)
        names = tuple(names) or tuple(f"policy {k}" for k in range(len(policies)))
        if not policies or len(names) != len(policies) or len(set(names)) != len(names):
            raise InputError(
                f"policies: got {len(policies)} with the names {names!r}, expected at least one, "
                "each with a name of its own"
            )
        if self.horizon is not None:
            horizon = check_whole("horizon", self.horizon, 1, " of steps")
            object.__setattr__(self, "horizon", horizon)
        if self.gamma is not None and not (is_number(self.gamma) and 0.0 < self.gamma <= 1.0):
            raise InputError(f"gamma: got {self.gamma!r}, expected a number in (0, 1]")
        if not isinstance(self.goal, str) or not self.goal:
            raise InputError(f"goal: got {self.goal!r}, expected the name of a signal")
        pairs = tuple((int(k), int(j)) for k, j in self.contrasts)
        places = [x for pair in pairs for x in pair]
        if self.baseline is not None:
            places.append(self.baseline)
        if not all(0 <= x < len(policies) for x in places):
            raise InputError(
                f"baseline, contrasts: got {self.baseline!r}, {self.contrasts!r}, expected numbers "
                f"of policies, 0..{len(policies) - 1}"
            )
        object.__setattr__(self, "policies", policies)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "contrasts", pairs)

    @property
    def policy(self) -> Policy | ContinuousPolicy:
        """The one policy, where there is one."""
        if len(self.policies) != 1:
            raise InputError(
                f"policies: got {len(self.policies)}, expected one; several are compared by "
                "compare(env, {name: policy, ...})"
            )
        one: Policy | ContinuousPolicy = self.policies[0]
        return one


def _is_table(given: Sequence[Any]) -> bool:
    """Whether a list is a table of probabilities, and not several policies."""
    try:
        return np.asarray(given, np.float64).ndim in (2, 3) and not any(
            hasattr(one, "probs") for one in given
        )
    except (TypeError, ValueError):
        return False


def discount(question: Question) -> float:
    """The discount; 1 where the question has none."""
    return 1.0 if question.gamma is None else float(question.gamma)


def question_of(policy: Any, horizon: int | None = None, gamma: float | None = None) -> Question:
    """The question of a verb's arguments: a policy and keywords, or a `Question` for all of them.

    Raises:
        InputError: both say something about the horizon or the discount, or there are several
            policies.
    """
    if not isinstance(policy, Question):
        return Question((as_policy(policy),), horizon, gamma)
    for name, given, stated in (
        ("horizon", horizon, policy.horizon),
        ("gamma", gamma, policy.gamma),
    ):
        if given is not None and stated is not None and given != stated:
            raise InputError(f"{name}: got {given!r}, the question has {stated!r}; leave it out")
    if (policy.horizon, policy.gamma) != (horizon or policy.horizon, gamma or policy.gamma):
        return replace(policy, horizon=horizon or policy.horizon, gamma=gamma or policy.gamma)
    policy.policy  # noqa: B018  raises where there are several
    return policy
