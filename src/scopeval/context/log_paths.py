"""Paths of observations in a log, and how much of its returns goes with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.context.features import LEVELS, BlockMeans
from scopeval.context.regression import learn_guesses
from scopeval.errors import DataError, InputError
from scopeval.logs.transitions import Transitions

__all__ = ["LogEpisodes", "LogNoise", "episodes_of", "log_noise"]

#: Episodes that the diagnosis is from: at least, and at most.
FEWEST, MOST = 50, 2000
#: Share of the variance that a column must go with to be named.
WORTH = 0.25
#: Columns of the observation that are looked at one by one, at most.
MOST_COLUMNS = 30
#: Actions that have a path of their own, at most.
MOST_ACTIONS = 10


@dataclass(frozen=True)
class LogEpisodes:
    """The whole episodes of a log, in order.

    Attributes:
        obs: [N, L + 1, d], before each step and after the last.
        signals: [N, L, d] what was reported of the log's exogenous signals; None: it has none.
        action: [N, L] numbers or [N, L, k].
        returns: [N].
        short: number of episodes that are shorter, and left out.
    """

    obs: Floats
    signals: Floats | None
    action: NDArray[Any]
    returns: Floats
    short: int

    def paths(self, exogenous: Sequence[int] | Sequence[str]) -> Floats:
        """[N, L + 1, d] columns of the observation, or [N, L, d] the signals, which are all named.

        Raises:
            InputError: there are no such columns.
        """
        if self.signals is not None and isinstance(exogenous[0], str):
            return self.signals
        numbers = [i for i in exogenous if isinstance(i, int)]
        if len(numbers) < len(exogenous) or not 0 <= min(numbers) <= max(numbers) < self.width:
            raise InputError(
                f"exogenous: got {list(exogenous)}, expected numbers of the observation's "
                f"{self.width} columns, from 0"
            )
        return self.obs[:, :, numbers]

    @property
    def width(self) -> int:
        """Number of columns of the observation."""
        return int(self.obs.shape[2])


def episodes_of(logs: Transitions, horizon: int | None = None) -> LogEpisodes:
    """The episodes that go on to the horizon; None: to the longest one's.

    Raises:
        InputError: observations that are state numbers, and no signals beside them.
        DataError: the rows are not in the order of episodes from t = 0.
    """
    if logs.discrete_obs and logs.signals is None:
        raise InputError(
            "logs: their observations are state numbers, expected vectors with columns"
        )
    logs = logs.select(logs.has_next)
    starts = np.flatnonzero(logs.t == 0)
    ends = np.append(starts[1:], len(logs))
    if not len(starts) or starts[0] != 0:
        raise DataError("logs: no row has t = 0, expected whole episodes, rows in order")
    length = ends - starts
    steps = np.arange(len(logs)) - np.repeat(starts, length)
    if (steps != logs.t).any():
        row = int(np.argmax(steps != logs.t))
        raise DataError(
            f"logs: row {row:,} has t = {int(logs.t[row])}, expected {int(steps[row])}: rows in "
            "the order of their episodes"
        )
    L = int(length.max()) if horizon is None else horizon
    whole = np.flatnonzero(length >= L)
    rows = starts[whole][:, None] + np.arange(L)
    following = logs.next_obs[rows[:, -1]][:, None] if len(whole) else logs.next_obs[:0, None]
    obs = np.concatenate([logs.obs[rows], following], axis=1).astype(np.float64)
    return LogEpisodes(
        obs=obs.reshape(len(whole), L + 1, -1),
        signals=None if logs.signals is None else logs.signals[rows],
        action=logs.action[rows],
        returns=logs.reward[rows].sum(axis=1),
        short=len(length) - len(whole),
    )


@dataclass
class LogNoise:
    """Collects whole episodes of a log that is read in parts, as many as the diagnosis needs."""

    _parts: list[Transitions] = field(default_factory=list)
    _episodes: int = 0

    def add(self, log: Transitions) -> None:
        """Take in the rows that follow."""
        if self._episodes <= MOST and not (log.discrete_obs and log.signals is None):
            self._parts.append(log)
            self._episodes += int((log.t == 0).sum())

    def lines(self) -> list[str]:
        """What is known, in words; nothing: too little."""
        if not self._parts:
            return []
        log = Transitions.concat(self._parts)
        try:
            episodes = episodes_of(log)
        except (DataError, InputError):
            return []
        return log_noise(episodes, log.exogenous)


def log_noise(
    episodes: LogEpisodes, exogenous: tuple[int, ...] | tuple[str, ...] = ()
) -> list[str]:
    """How much of the variance of returns goes with exogenous columns, with actions, with neither.

    From a log alone it is a hint: its controllers may have reacted to a column, and a column that
    actions influence goes with the returns too.

    Args:
        episodes: of the log.
        exogenous: what no action changes; (): not known, so that each column of the observation is
            tried.
    """
    n = min(len(episodes.returns), MOST)
    values = episodes.returns[:n]
    if n < FEWEST or not values.std() > 0:
        return []
    if exogenous:
        paths = episodes.paths(exogenous)[:n]
        kept = _kept(paths, values)
        acted_paths = _acted(episodes, n)[:, : paths.shape[1]]
        both = min(_kept(np.concatenate([paths, acted_paths], axis=2), values), kept)
        taken, acted = 1.0 - kept, kept - both
        c = round(20 * taken)
        a = min(round(20 * acted), 20 - c)
        names = " and ".join(
            name if isinstance(name, str) else f"column {name}" for name in exogenous
        )
        return [
            f"[{'c' * c}{'a' * a}{'.' * (20 - c - a)}] of the variance of an episode's return in "
            f"this log: {100 * taken:.0f}% goes with {names} (context takes that out), "
            f"{100 * acted:.0f}% with the actions besides (a design may), {100 * both:.0f}% with "
            f"neither (more episodes)"
        ]
    obs = episodes.obs[:n]
    found = [
        (1.0 - _kept(obs[:, :, [i]], values), i) for i in range(min(obs.shape[2], MOST_COLUMNS))
    ]
    told = [
        f"{100 * share:.0f}% of the variance of an episode's return goes with column {i} of the "
        "observation: if no action changes it, context takes that out"
        for share, i in sorted(found, reverse=True)
        if share >= WORTH
    ]
    return told


def _kept(paths: Floats, values: Floats) -> float:
    """Share of the variance that held-out predictions from paths leave."""
    return float(learn_guesses(BlockMeans(paths), values[:, None], LEVELS).kept[0])


def _acted(episodes: LogEpisodes, n: int) -> Floats:
    """[n, L + 1, k] paths of the actions; the last entry is the mean of those before."""
    action = episodes.action[:n]
    if action.ndim == 2:
        many = min(int(action.max()) + 1, MOST_ACTIONS)
        taken = (action[:, :, None] == np.arange(1, max(many, 2))).astype(np.float64)
    else:
        taken = action.astype(np.float64)
    return np.concatenate([taken, taken.mean(axis=1, keepdims=True)], axis=1)
