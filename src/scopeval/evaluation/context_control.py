"""An evaluation without the noise that its context explains: `evaluate(..., context=...)`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.collection.environments import EnvironmentPool
from scopeval.collection.episodes import Episodes
from scopeval.collection.plant import Plant
from scopeval.collection.shared_rollout import SharedEnvironments
from scopeval.context.control import Adjusted, Adjuster, fixed_interval
from scopeval.context.exogeneity import exogeneity, exogeneity_warnings
from scopeval.context.history import History
from scopeval.context.laws import copies, law_differences, outside
from scopeval.context.report import ContextReport
from scopeval.errors import InputError, PlantError
from scopeval.estimation.moments import Interval, Moments, moments_interval
from scopeval.evaluation.batches import Batch
from scopeval.evaluation.sources import Sources
from scopeval.exact import TabularMDP
from scopeval.policies.protocols import Observations

__all__ = [
    "ContextControl",
    "KnowsStarts",
    "context_control",
    "resolved_history",
    "with_signals",
]

#: Between the seeds of further starts and those of episodes, which share the user's seed.
_APART = 0x53746172
#: Episodes that exogeneity is tested on, at most.
_TESTED = 5000


@runtime_checkable
class KnowsStarts(Protocol):
    """A behavior policy with an estimate of the target's value at first observations."""

    def start_values(self, obs: Observations, seed: int = 0) -> Floats:
        """V [B]: finite, and fixed before the episodes that it adjusts."""
        ...


@dataclass
class ContextControl:
    """Adjusts the values of batches of episodes by their paths, and says what that has changed.

    Attributes:
        history: paths of what no action changes.
        planned: how many episodes are planned, whatever they show.
    """

    history: History
    planned: int
    _plain: Moments = field(default_factory=Moments)
    _paths: list[Floats] = field(default_factory=list)
    _kept: list[Episodes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._adjuster = Adjuster(self.history, planned=self.planned)
        self._crossed: Adjusted | None = None

    def of(self, batch: Batch) -> Batch:
        """The batch with values adjusted by what earlier episodes say."""
        if not len(batch.value):
            return batch
        assert batch.episodes is not None
        paths = self.history.paths_of(batch.episodes)
        value = self._adjuster.add(batch.value[:, None], paths)[:, 0]
        self._plain.merge(batch.value)
        self._paths.append(paths)
        if self._adjuster.n <= _TESTED:
            self._kept.append(batch.episodes)
        self._crossed = None
        return replace(batch, value=value)

    def weigh(self, weight: float) -> None:
        """How much an episode counts that follows, in stages."""
        self._adjuster.weight = weight

    @property
    def error(self) -> float:
        """What the means over the history add to the standard error of the estimate."""
        one = self._adjuster if self._crossed is None else self._crossed
        return float(one.error[0])

    def sequence_alpha(self, alpha: float) -> float:
        """What a confidence sequence of adjusted values may miss: the history has the rest."""
        return alpha if self.history.chance is not None else alpha / 2

    def widened(self, interval: Interval, alpha: float) -> Interval:
        """A confidence sequence of `sequence_alpha`, with the error of the history counted."""
        ours = float(self._adjuster.margin(alpha - self.sequence_alpha(alpha))[0])
        return replace(interval, low=interval.low - ours, high=interval.high + ours, alpha=alpha)

    def fixed(self, alpha: float, method: str) -> tuple[Interval, Moments]:
        """For a number of episodes fixed in advance: the interval, and moments of the values.

        The values are adjusted again, each by what all other folds of the episodes say.
        """
        if self._crossed is None:
            self._crossed = self._adjuster.crossed()
        moments = Moments()
        moments.merge(self._crossed.values[:, 0])
        return fixed_interval(self._crossed, self.history, alpha, method), moments

    def report(self, squared_error: float, spread: float, alpha: float) -> ContextReport:
        """What was done.

        Args:
            squared_error: of the estimate.
            spread: standard deviation of the adjusted values.
            alpha: level of the plain interval.
        """
        plain = self._plain
        before = plain.std**2
        paths = np.concatenate(self._paths)
        return ContextReport(
            what=self.history.what,
            paths=self.history.count,
            share=self.history.share(self.planned),
            error=self.error,
            relative_variance=squared_error * plain.n / before if before > 0 else 1.0,
            kept=spread**2 / before if before > 0 else 1.0,
            law=self.history.law,
            plain=moments_interval(plain, alpha=alpha),
            differs=law_differences(self.history, paths),
            dependent=exogeneity_warnings(exogeneity(Episodes.concat(self._kept), self.history)),
            outside=outside(self.history, paths),
            copied=copies(self.history, paths),
        )


def with_signals(plant: Plant, context: History | None) -> Plant:
    """The plant, which reports the signals that the context consists of."""
    if not isinstance(context, History):  # what else it is, is refused later
        return plant
    every = (*(plant.exogenous or ()), *context.signals)
    return replace(plant, exogenous=tuple(dict.fromkeys(every)))


def context_control(
    context: History | None,
    behavior: Any,
    episodes: int,
    return_bound: tuple[float, float] | None = None,
    sources: Sources | None = None,
) -> ContextControl | None:
    """What `context` asks for; None: nothing.

    Args:
        context: as in `evaluate`.
        behavior: may know the value of a start.
        episodes: how many are planned, whatever they show.
        return_bound: as in `evaluate`; its interval has no control variate.
        sources: of the episodes: environments that can be reset, or a `TabularMDP`.

    Raises:
        InputError: context of another kind, or nothing that describes a path.
        PlantError: a reset failed.
    """
    env = None if sources is None else sources.env
    pool = None if sources is None else sources.environments
    seed = 0 if sources is None else sources.seed
    history = resolved_history(context, return_bound, env=env, pool=pool, seed=seed)
    if history is None:
        return None
    if history.starts_only and history.features is None and isinstance(behavior, KnowsStarts):
        critic, numbers = behavior, history.numbers
        return ContextControl(
            history.described_by(lambda paths: critic.start_values(_as_obs(paths, numbers))),
            episodes,
        )
    if history.starts_only and history.features is None and history.numbers:
        raise InputError(
            "context: starts that are state numbers need something that describes them: "
            "run=design(...), whose critics estimate the value of a start, or "
            "History.starts(..., features=function)"
        )
    return ContextControl(history, episodes)


def resolved_history(
    context: History | None,
    return_bound: tuple[float, float] | None,
    *,
    env: object,
    pool: EnvironmentPool | SharedEnvironments | None,
    seed: int,
) -> History | None:
    """The history, with the starts that it asks for; None: none was given.

    Raises:
        InputError: context of another kind, or nothing to reset.
        PlantError: a reset failed.
    """
    if context is None:
        return None
    if not isinstance(context, History):
        raise InputError(
            f"context: got {type(context).__name__}, expected a History, try "
            "History(paths, columns) or History.starts(2000)"
        )
    if return_bound is not None:
        raise InputError(
            "context: got return_bound too, whose interval is from bets on plain returns and has "
            "no control variate; leave one of them out"
        )
    return context.resolved(lambda source: _starts(source, env, pool, seed))


def _as_obs(paths: Floats, numbers: bool) -> NDArray[Any]:
    """First observations, as policies get them."""
    return paths[:, 0, 0].astype(np.int64) if numbers else paths[:, 0]


def _starts(
    source: int | str, env: object, pool: EnvironmentPool | SharedEnvironments | None, seed: int
) -> History:
    """First observations of further resets, which are independent of the episodes; or their law."""
    if isinstance(source, str):
        if not isinstance(env, TabularMDP):
            raise InputError(
                "starts: 'model' is for a TabularMDP, which knows the law of its starts; expected "
                "first observations, or a number of resets"
            )
        history = History.starts(np.arange(env.states))
        return history.with_chance(env.initial)
    if pool is None:
        raise InputError(
            f"starts: got {source}, but there is no environment to reset; expected first "
            "observations, or 'model' for a TabularMDP"
        )
    if isinstance(pool, SharedEnvironments):  # resets alone are not worth workers
        with pool.here() as here:
            return History.starts(_first_observations(source, here, seed))
    return History.starts(_first_observations(source, pool, seed))


def _first_observations(count: int, pool: EnvironmentPool, seed: int) -> NDArray[Any]:
    state = np.random.SeedSequence([_APART, seed]).generate_state(count)
    seeds = [int(x) >> 1 for x in state]
    rows = []
    for i in range(0, count, len(pool)):
        some = seeds[i : i + len(pool)]
        obs, failures = pool.reset(some)
        for failure in failures.values():
            raise PlantError(f"starts: a reset failed ({failure}); leave context out")
        rows.append(np.asarray(obs)[: len(some)])
    return np.concatenate(rows)
