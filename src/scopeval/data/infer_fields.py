"""Infer time and next observations from the order of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.data.columns import Origin
from scopeval.errors import DataError

__all__ = ["Fields", "rebuild"]

Fields = dict[str, NDArray[Any]]


def rebuild(fields: Fields, borders: list[int], source: str) -> list[str]:
    """Fill in `t` and `next_obs` where they are missing, from the order of the rows.

    Args:
        fields: checked columns with `terminated`; changed in place.
        borders: rows where a new file begins.
        source: name of the log in error messages.

    Returns:
        Notes about what was done.
    """
    missing = [name for name in ("t", "next_obs") if name not in fields]
    if missing:
        known = {"episode", "truncated"} | ({"t"} if "t" not in missing else set())
        if not known & set(fields):
            raise DataError(
                f"{source}: no column for {' and '.join(missing)}, and nothing to rebuild it from; "
                "add it, or an episode column, or a truncated column (terminated alone does not "
                "show where a time limit cut an episode), with the rows in order"
            )
    notes = []
    if missing:
        starts = _episode_starts(fields, source)
        across = sum(1 for border in borders if not starts[border])
        if across:
            notes.append(f"{across:,} episodes continue from one file into the next")
    if "t" in missing:
        first = np.flatnonzero(starts)
        lengths = np.diff(np.append(first, starts.size))
        fields["t"] = _sealed(np.arange(starts.size) - np.repeat(first, lengths))
    if "next_obs" in missing:
        obs, terminated = fields["obs"], fields["terminated"]
        follows = np.append(~starts[1:], False)
        following = np.concatenate([obs[1:], obs[-1:]])
        following[~follows] = obs[~follows]
        fields["next_obs"] = _sealed(following)
        keep = follows | terminated
        dropped = int(keep.size - keep.sum())
        if dropped == keep.size:
            raise DataError(
                f"{source}: no row is followed by another one of its episode, so that next_obs "
                "cannot be rebuilt; add a column next_obs"
            )
        if dropped:
            notes.append(
                f"{dropped:,} of {keep.size:,} rows dropped: without a next_obs column the last "
                "row of an episode that did not terminate has no successor"
            )
            for name in tuple(fields):
                fields[name] = _sealed(fields[name][keep])
    return notes


def _episode_starts(fields: Fields, source: str) -> NDArray[np.bool_]:
    """True at the first row of each stretch of consecutive steps of one episode."""
    starts = np.zeros(len(fields["obs"]), np.bool_)
    starts[0] = True
    ended = fields["terminated"] | fields.get("truncated", np.bool_(False))
    starts[1:] |= ended[:-1]
    if "episode" in fields:
        ids = fields["episode"]
        changes = ids[1:] != ids[:-1]
        Origin(f"{source}: episode", error=DataError).refuse_where(
            np.append(ended[:-1] & ~changes, False),
            "goes on after it terminated or was truncated",
            "give each episode its own id",
        )
        starts[1:] |= changes
        runs = ids[np.append(True, changes)]
        again = runs.size - np.unique(runs).size
        if again:
            raise DataError(
                f"{source}: {again:,} episode ids come back after rows of other episodes; sort the "
                "rows by episode and time (ids must be unique over all files)"
            )
    if "t" in fields:
        starts[1:] |= fields["t"][1:] != fields["t"][:-1] + 1
    return starts


def _sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Mark as read-only: `Transitions` shares such an array instead of copying it."""
    array.flags.writeable = False
    return array
