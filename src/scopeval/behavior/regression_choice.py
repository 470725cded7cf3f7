"""What learns from the logs: as asked, or as suits them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from scopeval.arrays import Floats, as_floats
from scopeval.errors import DataError, InputError
from scopeval.models.model.regression import Networks
from scopeval.models.model.simulator import Simulator
from scopeval.models.protocols import Regression
from scopeval.models.rows import Log
from scopeval.models.table import Table
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["Learn", "choose_regression", "learn_of", "varies"]

#: What ``learn=`` takes: a value, or a regression of your own.
Learn = Table | Networks | Simulator | Regression

#: Largest table (states times actions) that is tried.
MOST_PAIRS = 50_000_000


def learn_of(learn: Learn | None) -> Regression | Networks | None:
    """What was given as ``learn=``; None: it is chosen when the logs are known.

    Raises:
        InputError: it is nothing that learns.
    """
    if isinstance(learn, Simulator):
        return Networks(dynamics=learn)
    if learn is None or isinstance(learn, Regression | Networks):
        return learn
    raise InputError(
        f"learn: got {learn!r:.60}, expected Table(...) for state numbers, Networks(...) for "
        "vectors, Simulator(step), or a Regression of your own; try to leave it out"
    )


def varies(learn: object) -> bool:
    """Whether rewards or dynamics depend on t beyond the observation, as it was stated."""
    return bool(getattr(learn, "time_varying", False))


def choose_regression(
    learn: Regression | Networks | None, log: Log, target: Policy | ContinuousPolicy
) -> Regression | Networks:
    """The regression that was asked for, if it suits the log and the target."""
    discrete = log.rows.obs.ndim == 1
    states = int(max(log.rows.obs.max(), log.rows.next_obs.max())) + 1 if discrete else None
    if states is not None and isinstance(target, TabularPolicy):
        if states > target.states:
            raise DataError(
                f"logged: holds state {states - 1}, the target's table covers 0.."
                f"{target.states - 1}; expected a log of the target's problem"
            )
        states = target.states
    if states is not None and states * log.actions > MOST_PAIRS:
        raise DataError(
            f"logged: holds state {states - 1}, a table would need {states * log.actions:,} "
            f"entries per time step, expected at most {MOST_PAIRS:,}; try numbering the states "
            "from 0 without gaps, or vectors"
        )
    if learn is None:
        learn = Table() if discrete else Networks()
    if isinstance(target, ContinuousPolicy) and not isinstance(learn, Networks):
        raise InputError(
            f"learn: got {learn.name!r} for continuous actions, expected Networks(), or leave it "
            "out"
        )
    if discrete and isinstance(learn, Networks):
        raise InputError(
            "learn: Networks need observations that are vectors, the log holds state numbers; try "
            "Table()"
        )
    if isinstance(learn, Table):
        if not discrete:
            raise InputError(
                "learn: Table needs state numbers, the log holds vectors; try Networks()"
            )
        if learn.states is None:
            features = _features(learn.features, states)
            return replace(learn, states=states, features=features)
    return learn


def _features(features: NDArray[Any] | None, states: int | None) -> Floats | None:
    if features is None:
        return None
    points = as_floats("features", features, ndim=(2,), axes=("s", "feature"))
    if len(points) != states or points.shape[1] == 0:
        raise InputError(
            f"features: got shape {points.shape}, expected [{states}, d], one row of coordinates "
            "per state"
        )
    return points
