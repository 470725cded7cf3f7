"""`History`: paths of what no action changes, such as demand, prices, weather and arrivals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from scopeval.arrays import Floats, as_floats, check_whole
from scopeval.collection.signal_paths import WithPaths, signal_paths
from scopeval.context.features import LEVELS, PLAIN, BlockMeans, Level
from scopeval.context.log_paths import episodes_of
from scopeval.errors import DataError, InputError
from scopeval.estimation.moments import quantile
from scopeval.logs.transitions import Transitions

__all__ = ["Columns", "History", "Law", "Resets", "history_of"]

Law = Literal["same", "typical"]
#: Where episodes have what a path consists of.
Columns = int | str | Sequence[int] | Sequence[str] | Callable[[npt.NDArray[Any]], npt.ArrayLike]
#: Paths [m], [m, L] or [m, L, d]; or a function (count, generator) that samples them.
Paths = npt.ArrayLike | Callable[[int, np.random.Generator], npt.ArrayLike]
#: First observations of further resets, so many of them; or how to get the model's.
Resets = Callable[[Any], "History"]


@dataclass(frozen=True, eq=False, init=False, repr=False)
class History:
    """Paths of exogenous columns: what they do is the same whatever the actions are.

    A path has one entry for each time, the first of them at the start of an episode, and goes on to
    the horizon whether or not an episode ends before. Its law is known far better from years of
    history than a policy's value is from episodes, and so the noise that it brings can be removed.

    Args:
        paths: [m, L], or [m, L, d] for d columns; or a function (count, rng) that samples such
            paths, independent of each other. With L = T entries they are those at the times of the
            T actions; one more is what comes after the last action.
        columns: where episodes have these columns: numbers of columns of the observation; names of
            signals that the environment reports by ``info[name]``; or a function of the
            observations [B] or [B, d] that gives [B, d]. Not needed for paths of length 1, which
            are then the first observation.
        law: "same": the paths have the law of the episodes' own. "typical": they are of another
            law, such as a typical year's; the value is then standardized to that law.
        features: a function of paths [n, L, d]. What it gives, [n, k], takes the place of the
            features of `context.features`; [n]: a guess of the value itself.
        rewards: a function of paths that gives [n, T], a guess of the reward of every step, known
            before the episodes, such as the energy that a building takes in this weather. A
            comparison takes it out of the rewards before these are weighted, where held-out
            episodes confirm it. Elsewhere its total is the guess of the value.
        count: how many paths to sample with a function.
        seed: of that sample.
        block: the paths are in order of time, and those more than so many apart are independent.
            1: all are. None: m^(1/3), rounded up; for paths that are sampled, 1.

    Attributes:
        paths: [m, L, d].
        columns: as given.
        law: as given.
        features: as given; None with `rewards`: their total.
        rewards: as given.
        block: length of a block.
        chance: [m] probability of each path where the law is known; None: all count the same.
        numbers: the paths are state numbers.
        source: what starts are taken from, before an evaluation has made them.
    """

    paths: Floats
    columns: Columns | None
    law: Law
    features: Callable[[Floats], npt.ArrayLike] | None
    rewards: Callable[[Floats], npt.ArrayLike] | None
    block: int
    chance: Floats | None
    numbers: bool
    source: int | str | None

    def __init__(
        self,
        paths: Paths,
        columns: Columns | None = None,
        *,
        law: Law = "same",
        features: Callable[[Floats], npt.ArrayLike] | None = None,
        rewards: Callable[[Floats], npt.ArrayLike] | None = None,
        count: int = 10_000,
        seed: int = 0,
        block: int | None = None,
    ) -> None:
        if callable(paths):
            paths = paths(check_whole("count", count, 2), np.random.default_rng(seed))
            block = block or 1
        array = as_floats("paths", paths, ndim=(1, 2, 3), axes=("path", "t", "column"))
        array = array.reshape(*array.shape, *(1,) * (3 - array.ndim))
        if len(array) < 2 or not array.shape[1] or not array.shape[2]:
            raise InputError(f"paths: got shape {array.shape}, expected at least 2 paths [m, L, d]")
        if law not in get_args(Law):
            raise InputError(f"law: got {law!r}, expected one of {get_args(Law)}")
        if columns is None and array.shape[1] > 1:
            raise InputError(
                f"columns: needed for paths of {array.shape[1]} times; expected numbers of "
                'columns of the observation, names of signals such as "demand", or a function'
            )
        automatic = math.ceil(len(array) ** (1 / 3))
        self._set(
            paths=array,
            columns=columns,
            law=law,
            features=self._total if features is None and rewards is not None else features,
            rewards=rewards,
            block=automatic if block is None else check_whole("block", block, 1),
            chance=None,
            numbers=False,
            source=None,
        )

    def _total(self, paths: Floats) -> Floats:
        """[n] what the user's guess of the rewards comes to."""
        return np.asarray(self.step_rewards(paths).sum(axis=1))

    def step_rewards(self, paths: Floats) -> Floats:
        """[n, T] the user's guess of the reward of every step."""
        assert self.rewards is not None
        name = "rewards of paths"
        made = as_floats(name, self.rewards(paths), ndim=(2,), axes=("path", "t"))
        if len(made) != len(paths):
            raise InputError(f"{name}: got {len(made):,} rows for {len(paths):,} paths")
        return made

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def starts(
        cls,
        source: npt.ArrayLike | int | str,
        *,
        features: Callable[[Floats], npt.ArrayLike] | None = None,
    ) -> History:
        """First observations alone: what an episode is worth depends on where it starts.

        Args:
            source: further first observations, [m] or [m, d], of the law of the episodes' own and
                independent of them; or how many resets of the environment to make; or "model": a
                `TabularMDP` knows their law.
            features: as in `History`. Default: the value of the start as a behavior policy from
                `design` estimates it; without one, features of the observation.
        """
        if isinstance(source, str) or (isinstance(source, int) and not isinstance(source, bool)):
            found = cls(np.zeros(2), features=features)
            if isinstance(source, str) and source != "model":
                raise InputError(
                    f"starts: got {source!r}, expected first observations, a number of resets, or "
                    "'model'"
                )
            if not isinstance(source, str):
                check_whole("starts", source, 2, " of resets")
            found._set(source=source)
            return found
        array = np.asarray(source)
        if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.number):
            raise InputError(
                f"starts: got an array of shape {array.shape} and type {array.dtype}, expected "
                "first observations: state numbers [m] or vectors [m, d]"
            )
        found = cls(array.reshape(len(array), 1, -1), features=features, block=1)
        found._set(numbers=array.ndim == 1 and np.issubdtype(array.dtype, np.integer))
        return found

    @classmethod
    def of_logs(
        cls,
        logs: Transitions,
        columns: int | Sequence[int] | None = None,
        *,
        horizon: int | None = None,
        law: Law = "same",
        block: int | None = None,
    ) -> History:
        """Paths of past operation, by any controllers: what no action changes, in a log.

        It has the same law whoever was in control. Where the design was learned from the same log,
        the estimate is unbiased for many episodes only.

        Args:
            logs: rows in the order of their episodes, each from t = 0 to the horizon.
            columns: numbers of columns of the observation, which no action changes; None: what the
                log itself says is exogenous.
            horizon: T; None: the longest episode's.
            law: as in `History`.
            block: as in `History`.

        Raises:
            DataError: episodes that are shorter: where actions influence the end, what is left is a
                selection; or rows that are in no order.
            InputError: observations without such columns, or a log that names none.
        """
        exogenous = logs.exogenous if columns is None else tuple(np.atleast_1d(columns).tolist())
        if not exogenous:
            raise InputError(
                "logs: they do not say what no action changes; expected "
                "read_logs(..., exogenous=...), or numbers of columns of the observation"
            )
        found = episodes_of(logs, horizon)
        if found.short:
            raise DataError(
                f"logs: {found.short:,} of {found.short + len(found.obs):,} episodes end before "
                f"{found.action.shape[1]} steps. Where actions influence the end, the others' "
                "paths are a selection. Try a shorter horizon, paths from a record of their own, "
                "or read_logs(..., exogenous=()) to do without context"
            )
        return cls(found.paths(exogenous), list(exogenous), law=law, block=block)

    def resolved(self, resets: Resets) -> History:
        """With the first observations that `starts` asked for."""
        if self.source is None:
            return self
        return _replaced(resets(self.source), features=self.features)

    def described_by(self, features: Callable[[Floats], npt.ArrayLike]) -> History:
        """The same paths with a function that describes them."""
        return _replaced(self, features=features)

    def with_chance(self, chance: npt.ArrayLike) -> History:
        """The same paths, whose probabilities [m] are known: no other path is possible."""
        known = as_floats("chance", chance, ndim=(1,))
        if known.shape != (len(self.paths),) or (known < 0).any() or abs(known.sum() - 1) > 1e-6:
            raise InputError(
                f"chance: got shape {known.shape} and sum {known.sum():.6g}, expected "
                f"{len(self.paths)} probabilities that sum to 1"
            )
        return _replaced(self, chance=known / known.sum())

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that the paths consist of; empty: they are in the observation."""
        if isinstance(self.columns, str):
            return (self.columns,)
        if isinstance(self.columns, Sequence):
            return tuple(name for name in self.columns if isinstance(name, str))
        return ()

    def column_name(self, number: int) -> str:
        """What a column of the paths is called."""
        if self.starts_only:
            return f"column {number} of the first observation"
        if self.signals:
            return self.signals[number]
        if callable(self.columns):
            return f"column {number} of the path"
        return f"column {np.atleast_1d(np.asarray(self.columns))[number]} of the observation"

    @property
    def what(self) -> str:
        """The columns, in words."""
        if self.starts_only:
            return "the first observation"
        return " and ".join(self.column_name(i) for i in range(self.paths.shape[2]))

    def __repr__(self) -> str:
        if self.source is not None:
            return f"History.starts({self.source!r})"
        m, length, d = self.paths.shape
        return f"History({m:,} paths of {length:,} times and {d} columns)"

    @property
    def starts_only(self) -> bool:
        """Whether the paths are first observations."""
        return self.columns is None

    @property
    def count(self) -> float:
        """Number m of paths; inf where their law is known."""
        return math.inf if self.chance is not None else len(self.paths)

    def share(self, episodes: int) -> float:
        """k, the share of g that is removed: m / (m + n), the best where g = E[Y | path].

        All of it where the law is known, or where another law is wanted.
        """
        if self.law == "typical" or math.isinf(self.count):
            return 1.0
        return self.count / (self.count + max(episodes, 1))

    def inputs(self, paths: Floats) -> Floats:
        """What regressions are about: the paths, or the rows [n, 1, k] of the user's features."""
        if self.features is None:
            return paths
        name = "features of paths"
        made = as_floats(name, self.features(paths), ndim=(1, 2), axes=("path", "feature"))
        if len(made) != len(paths):
            raise InputError(f"{name}: got {len(made):,} rows for {len(paths):,} paths")
        return made.reshape(len(paths), 1, -1)

    @cached_property
    def described(self) -> BlockMeans:
        """What the regressions are applied to."""
        return BlockMeans(self.inputs(self.paths))

    @property
    def guesses(self) -> bool:
        """Whether `features` gives a guess of the value itself."""
        if self.features is None:
            return False
        return np.ndim(self.features(self.paths[:2])) == 1

    @property
    def levels(self) -> Sequence[Level]:
        """How closely paths may be described."""
        return LEVELS if self.features is None else PLAIN

    def mean(self, guesses: Floats) -> Floats:
        """Means [K] of guesses [m, K] over the paths."""
        return np.asarray(guesses.mean(axis=0) if self.chance is None else self.chance @ guesses)

    def error(self, guesses: Floats) -> Floats:
        """Standard errors [K] of these means, by means of blocks."""
        if self.chance is not None:
            return np.zeros(guesses.shape[1])
        n = self.blocks
        means = guesses[: n * (len(guesses) // n)].reshape(n, -1, guesses.shape[1]).mean(axis=1)
        return np.asarray(means.std(axis=0, ddof=1) / math.sqrt(n))

    @property
    def blocks(self) -> int:
        """Number of blocks that count as independent."""
        return max(len(self.paths) // self.block, 2)

    def quantile(self, alpha: float) -> float:
        """How many standard errors the mean over the paths is off with this probability."""
        return quantile(alpha, None if self.chance is not None else self.blocks)

    def paths_of(self, episodes: WithPaths) -> Floats:
        """The episodes' own paths, [n, L, d].

        Raises:
            InputError: the episodes do not have these columns.
            DataError: an episode ended before its path did, and what came after is not recorded.
        """
        length, width = self.paths.shape[1:]
        if self.signals:
            found = signal_paths(episodes, self.signals, length)
        else:
            found = self._observed(episodes, length)
        if found.shape[2] != width:
            raise InputError(
                f"context: the history has {width} column(s), the episodes' paths have "
                f"{found.shape[2]}; expected the same columns in the same order"
            )
        if found.shape[1] < length:
            raise InputError(
                f"context: the history's paths have {length} times, the episodes' have "
                f"{found.shape[1]}; try History(paths[:, :{found.shape[1]}])"
            )
        return found[:, :length]

    def _observed(self, episodes: WithPaths, length: int) -> Floats:
        """Paths that are columns of the observation; observations end with the episode."""
        cut = episodes.length + 1 < min(length, episodes.horizon + 1)
        if cut.any():
            i = int(np.argmax(cut))
            raise DataError(
                f"context: {int(cut.sum()):,} of {len(episodes):,} episodes ended before their "
                f"path did (the first, number {int(episodes.index[i])}, after "
                f"{int(episodes.length[i])} of {episodes.horizon} steps). Where actions influence "
                "the end, a path that is cut there is not exogenous. Report the whole path as a "
                "signal, info['name'] = path at the last step, or take its beginning alone: "
                "History(paths[:, :1])"
            )
        many = min(length, episodes.horizon + 1)
        obs = np.zeros((len(episodes), many, *episodes.obs.shape[2:]), episodes.obs.dtype)
        seen = min(many, episodes.horizon)
        obs[:, :seen] = episodes.obs[:, :seen]
        last = episodes.length < many
        obs[last, episodes.length[last]] = episodes.last_obs[last]
        if callable(self.columns):
            flat = obs.reshape(-1, *obs.shape[2:])
            made = as_floats("columns", self.columns(flat), ndim=(1, 2))
            return made.reshape(len(obs), many, -1)
        vectors = obs[..., None] if obs.ndim == 2 else obs
        if self.columns is None:
            return vectors.astype(np.float64)
        numbers = np.atleast_1d(np.asarray(self.columns))
        if numbers.min() < 0 or numbers.max() >= vectors.shape[2]:
            raise InputError(
                f"columns: got {numbers.tolist()}, expected numbers of the observation's "
                f"{vectors.shape[2]} columns, from 0"
            )
        return vectors[:, :, numbers].astype(np.float64)


def history_of(
    context: History | Transitions | None, logs: object = None, horizon: int | None = None
) -> History | None:
    """The history that is given, or else the one that logs hold.

    Args:
        context: as in `evaluate`.
        logs: what else is known of past operation; it counts where it says what is exogenous.
        horizon: of the episodes.

    Raises:
        DataError: logs whose paths cannot be used, see `History.of_logs`.
        InputError: `context` is a log that does not say what is exogenous.
    """
    if isinstance(context, Transitions):
        return History.of_logs(context, horizon=horizon)
    if context is None and isinstance(logs, Transitions) and logs.exogenous:
        return History.of_logs(logs, horizon=horizon)
    return context


def _replaced(history: History, **fields: Any) -> History:
    """The same with other fields, which are not checked."""
    found = object.__new__(History)
    found._set(**{name: getattr(history, name) for name in History.__dataclass_fields__})
    found._set(**fields)
    return found
