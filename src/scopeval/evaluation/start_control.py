"""The value of the start as a control variate of an evaluation: `evaluate(..., starts=...)`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from scopeval.arrays import Floats
from scopeval.collection.environments import EnvironmentPool
from scopeval.collection.shared_rollout import SharedEnvironments
from scopeval.errors import InputError, PlantError
from scopeval.estimation.running_moments import Moments
from scopeval.estimation.start_states import StartControl
from scopeval.evaluation.result import StartReport
from scopeval.evaluation.source_choice import Sources
from scopeval.evaluation.sources import Batch, Source
from scopeval.exact import TabularMDP
from scopeval.policies.protocols import Observations

__all__ = ["KnowsStarts", "StartAdjustment", "Starts", "adjusted", "start_adjustment"]

#: Further starts: observations, how many resets to make, or those of a `TabularMDP`.
Starts = npt.ArrayLike | int | Literal["model"]

#: Between the seeds of further starts and those of episodes, which share the user's seed.
_APART = 0x53746172


@runtime_checkable
class KnowsStarts(Protocol):
    """A behavior policy with an estimate of the target's value at first observations."""

    def start_values(self, obs: Observations, seed: int = 0) -> Floats:
        """V [B]: finite, and fixed before the episodes that it adjusts."""
        ...


@dataclass
class StartAdjustment:
    """Adjusts the values of batches of episodes, and counts what that has changed.

    Attributes:
        control: the control variate.
        critic: tells v.
    """

    control: StartControl
    critic: KnowsStarts
    _plain: Moments = field(default_factory=Moments)
    _left: Moments = field(default_factory=Moments)

    def of(self, batch: Batch, first: int) -> Batch:
        """The batch with adjusted values; `first` is the number of its first episode."""
        if not len(batch.value):
            return batch
        assert batch.episodes is not None
        # candidates of continuous actions are drawn anew for every batch
        own = self.critic.start_values(batch.episodes.obs[:, 0], seed=first + 1)
        value = self.control.adjusted(batch.value, own)
        self._plain.merge(batch.value)
        self._left.merge(value)
        return replace(batch, value=value)

    @property
    def report(self) -> StartReport:
        """What was done."""
        n, plain = self._left.n, self._plain.std**2
        left = self._left.std**2 + max(n, 1) * self.control.own_error**2
        return StartReport(
            further=self.control.further,
            factor=self.control.factor,
            mean=self.control.mean,
            error=self.control.error,
            relative_variance=left / plain if n > 1 and plain > 0 else 1.0,
        )


@dataclass(frozen=True)
class AdjustedSource:
    """A source whose values are adjusted; its batches must have their episodes."""

    source: Source
    adjustment: StartAdjustment

    @property
    def side_by_side(self) -> int:
        """As the source says."""
        return self.source.side_by_side

    @property
    def quick(self) -> bool:
        """As the source says."""
        return self.source.quick

    @property
    def uncovered(self) -> str | None:
        """As the source says."""
        return self.source.uncovered

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        return self.adjustment.of(self.source.run(first, count, by_target=by_target), first)


def adjusted(source: Source, adjustment: StartAdjustment | None) -> Source:
    """The source with adjusted values, if they are to be."""
    return source if adjustment is None else AdjustedSource(source, adjustment)


def start_adjustment(
    starts: Starts | None,
    behavior: Any,
    episodes: int,
    return_bound: tuple[float, float] | None = None,
    sources: Sources | None = None,
) -> StartAdjustment | None:
    """What `starts` asks for; None: nothing.

    Args:
        starts: as in `evaluate`.
        behavior: tells v.
        episodes: how many are planned, whatever they show.
        return_bound: as in `evaluate`; its interval has no control variate.
        sources: of the episodes: environments that can be reset, or a `TabularMDP`.

    Raises:
        InputError: starts of another kind, or nothing that tells v.
        PlantError: a reset failed.
    """
    if starts is None:
        return None
    if return_bound is not None:
        raise InputError(
            "starts: got return_bound too, whose interval is from bets on plain returns and has "
            "no control variate; leave one of them out"
        )
    if not isinstance(behavior, KnowsStarts):
        raise InputError(
            "starts: needs a behavior policy from design, whose critics estimate the value of a "
            "start; leave starts out, or pass behavior=design(...)"
        )
    if isinstance(starts, str):
        return StartAdjustment(
            _of_model(starts, behavior, None if sources is None else sources.env), behavior
        )
    if isinstance(starts, int | np.integer) and not isinstance(starts, bool):
        obs = _resets(int(starts), sources)
    else:
        obs = np.asarray(starts)
    if obs.ndim not in (1, 2) or not np.issubdtype(obs.dtype, np.number):
        raise InputError(
            f"starts: got an array of shape {obs.shape} and type {obs.dtype}, expected first "
            "observations: state numbers [m] or vectors [m, d]"
        )
    return StartAdjustment(StartControl.of(behavior.start_values(obs), episodes), behavior)


def _of_model(starts: str, behavior: KnowsStarts, env: Any) -> StartControl:
    if starts != "model" or not isinstance(env, TabularMDP):
        raise InputError(
            f"starts: got {starts!r}, expected first observations, or a number of resets; 'model' "
            "is for a TabularMDP, which knows the law of its starts"
        )
    return StartControl.known(behavior.start_values(np.arange(env.states)), env.initial)


def _resets(count: int, sources: Sources | None) -> npt.NDArray[Any]:
    """First observations of further resets, which are independent of the episodes."""
    if sources is None or sources.environments is None:
        raise InputError(
            f"starts: got {count}, but there is no environment to reset; expected first "
            "observations, or 'model' for a TabularMDP"
        )
    if count < 2:
        raise InputError(f"starts: got {count} resets, expected at least 2")
    pool = sources.environments
    if isinstance(pool, SharedEnvironments):  # resets alone are not worth workers
        with pool.here() as here:
            return _first_observations(count, here, sources.seed)
    return _first_observations(count, pool, sources.seed)


def _first_observations(count: int, pool: EnvironmentPool, seed: int) -> npt.NDArray[Any]:
    state = np.random.SeedSequence([_APART, seed]).generate_state(count)
    seeds = [int(x) >> 1 for x in state]
    found = []
    for i in range(0, count, len(pool)):
        some = seeds[i : i + len(pool)]
        obs, failures = pool.reset(some)
        for failure in failures.values():
            raise PlantError(f"starts: a reset failed ({failure}); leave starts out")
        found.append(np.asarray(obs)[: len(some)])
    return np.concatenate(found)
