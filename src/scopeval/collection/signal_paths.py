"""Paths of exogenous signals that episodes have recorded: whole, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats, Ints
from scopeval.errors import DataError, InputError

__all__ = ["WithPaths", "record_signals", "signal_paths", "signal_start"]


class WithPaths(Protocol):
    """Episodes, of one policy or of several, as far as their paths are concerned."""

    @property
    def obs(self) -> NDArray[Any]:
        """[N, T] or [N, T, d]."""

    @property
    def last_obs(self) -> NDArray[Any]:
        """[N] or [N, d]."""

    @property
    def length(self) -> Ints:
        """[N]."""

    @property
    def index(self) -> Ints:
        """[N] numbers."""

    @property
    def horizon(self) -> int:
        """T."""

    @property
    def exogenous(self) -> Floats | None:
        """[N, T + 1, d]; NaN where nothing was reported."""

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of these columns."""

    def __len__(self) -> int: ...


def signal_paths(episodes: WithPaths, names: Sequence[str], length: int) -> Floats:
    """[N, L, d] the first `length` entries of the paths of some signals, or all there are.

    They begin at the reset, or at the first step if no reset reported them.

    Raises:
        InputError: the environment did not report them.
        DataError: the path of an episode has a hole, or is cut where the episode ended early.
    """
    missing = [
        name
        for name in names
        if name not in episodes.signals
        or episodes.exogenous is None
        or np.isnan(episodes.exogenous[:, :, episodes.signals.index(name)]).all()
    ]
    if missing or episodes.exogenous is None:
        raise InputError(
            f"context: the episodes have no signal {', '.join(map(repr, missing or names))}; "
            "expected that the environment reports info[name] at every step, or try columns of "
            "the observation, by their numbers"
        )
    paths = episodes.exogenous[:, :, [episodes.signals.index(name) for name in names]]
    if np.isnan(paths[:, 0]).all():
        paths = paths[:, 1:]
    paths = paths[:, :length]
    holes = ~np.isfinite(paths).all(axis=(1, 2))
    if holes.any():
        i = int(np.argmax(holes))
        at = int(np.argmax(~np.isfinite(paths[i]).all(axis=1)))
        raise DataError(
            f"context: in {int(holes.sum()):,} of {len(episodes):,} episodes a path of {names} has "
            f"a hole (the first, number {int(episodes.index[i])}, which has "
            f"{int(episodes.length[i])} steps, at time {at}). Where actions influence when an "
            "episode ends, a path that is cut there is not exogenous: report the whole path, "
            "info['name'] = [L] numbers at the last step, or take its beginning alone: "
            "History(paths[:, :1])"
        )
    return np.asarray(paths)


def signal_start(episodes: WithPaths, names: Sequence[str]) -> Floats:
    """[N, d] what the resets reported of some signals; NaN: nothing."""
    assert episodes.exogenous is not None
    return episodes.exogenous[:, 0, [episodes.signals.index(name) for name in names]]


def record_signals(path: Floats, at: int, seen: Floats) -> None:
    """Write the signals of a time, or of a whole path, which ends at the horizon, to [T + 1, d]."""
    if len(seen) == 1:
        path[at] = seen[0]
    elif len(seen) in (len(path), len(path) - 1):
        path[len(path) - len(seen) :] = seen
