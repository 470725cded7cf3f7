"""What `design` decides before it learns: which regression suits the logs, what the logs show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from scopeval.arrays import Floats, as_floats
from scopeval.critics.log_rows import Log
from scopeval.critics.mlp.regression import MLPRegression
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.protocols import Regression
from scopeval.critics.table import TableRegression
from scopeval.errors import DataError, InputError
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["choose_regression", "put_on_device"]

#: Largest table (states times actions) that is tried.
MOST_PAIRS = 50_000_000


def choose_regression(
    regression: str | Regression | ModelRegression,
    log: Log,
    target: Policy | ContinuousPolicy,
    features: NDArray[Any] | None,
) -> Regression | ModelRegression:
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
    if regression == "auto":
        regression = "table" if discrete else "model"
    if isinstance(target, ContinuousPolicy) and not (
        regression == "model" or isinstance(regression, ModelRegression)
    ):
        raise InputError(
            f"regression: got {regression!r} for continuous actions, expected 'model' (or 'auto')"
        )
    if discrete and (regression == "model" or isinstance(regression, ModelRegression)):
        raise InputError(
            "regression: 'model' needs observations that are vectors, the log holds state "
            "numbers; try 'table'"
        )
    if features is not None and regression != "table":
        raise InputError(
            "features: only regression='table' borrows from neighbors; leave features out"
        )
    if regression == "table":
        if not discrete:
            raise InputError(
                "regression: 'table' needs state numbers, the log holds vectors; try 'model'"
            )
        return TableRegression(states=states, features=_features(features, states))
    if regression == "mlp":
        return MLPRegression(states=states)
    if regression == "model":
        return ModelRegression()
    if not isinstance(regression, Regression | ModelRegression):
        raise InputError(
            f"regression: got {regression!r}, expected 'auto', 'table', 'model', 'mlp' or a "
            "Regression"
        )
    return regression


def put_on_device(
    regression: Regression | ModelRegression, device: str
) -> Regression | ModelRegression:
    """The same, learning there."""
    if isinstance(regression, MLPRegression):
        return replace(regression, device=device)
    if isinstance(regression, ModelRegression):
        trainings = tuple(replace(how, device=device) for how in regression.trainings)
        return replace(
            regression, training=trainings, study=replace(regression.study, device=device)
        )
    if device != "cpu":
        raise InputError(
            f"device: got {device!r}, but critics by regression {regression.name!r} are learned on "
            "the CPU; try regression='model' or 'mlp' (vectors), or leave device out"
        )
    return regression


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
