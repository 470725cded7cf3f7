"""Files of episodes: a sealed archive with a header, checked before use, without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import MAX_BYTES, Archive, open_sealed, read_header, write_sealed
from scopeval.arrays import is_number
from scopeval.errors import DataError

__all__ = ["read_episodes", "write_episodes"]

FORMAT = 2

#: Most bytes of the header; every lost episode has a line in it.
LARGEST_HEADER = 64 << 20

#: Least probability of an action that was taken: its inverse is still a number.
SMALLEST_PROBABILITY = 1e-300


def write_episodes(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
) -> None:
    """Write a file, whole or not at all.

    Args:
        path: of the file.
        arrays: the columns of the episodes.
        about: lost, interrupted, signals and provenance.

    Raises:
        DataError: it cannot be written, for example because the disk is full.
    """
    write_sealed(path, json.dumps({"format": FORMAT, **about}).encode(), arrays)


def read_episodes(
    path: str | os.PathLike[str],
    kinds: Mapping[str, type[np.generic] | None],
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """The fields of `Episodes` that a file holds; lost episodes and the provenance are mappings.

    Args:
        path: of the file.
        kinds: the types of the arrays that may be in it; None: int64 or float64.
        max_bytes: most bytes of memory that it may ask for.

    Raises:
        DataError: not a file of episodes, damaged, too large, or written in another format.
    """
    what, remedy = "a file of episodes that scopeval saved", "expected one by Episodes.save"
    with open_sealed(path, max_bytes, what=what, remedy=remedy) as archive:
        about = _header(archive)
        if about["format"] != FORMAT:
            raise DataError(
                f"{path}: written in format {about['format']!r:.60}, expected {FORMAT}; "
                "try a newer scopeval"
            )
        for name, header in archive.headers.items():
            if name not in kinds:
                continue  # what a newer version may add
            kind = kinds[name]
            if header.dtype not in ((np.int64, np.float64) if kind is None else (kind,)):
                raise ValueError(f"array {name!r} has type {header.dtype}")
        where, interrupted = about.get("provenance"), about["interrupted"]
        if not isinstance(interrupted, bool):
            raise ValueError(f"interrupted is {interrupted!r:.60}")
        signals = about.get("signals", [])
        if not (isinstance(signals, list) and all(isinstance(name, str) for name in signals)):
            raise ValueError(f"signals are {signals!r:.60}")
        columns = about.get("columns", [])
        if not (
            isinstance(columns, list) and all(type(one) is int and one >= 0 for one in columns)
        ):
            raise ValueError(f"columns are {columns!r:.60}")
        return {
            **_checked({name: archive.read(name) for name in archive.headers if name in kinds}),
            "lost": [_lost(one) for one in about["lost"]],
            "interrupted": interrupted,
            "provenance": where,
            "signals": tuple(signals),
            "columns": tuple(columns),
        }


def _checked(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Refuse counts below zero, and probabilities whose inverse overflows."""
    least = float(arrays["behavior_prob"].min(initial=1.0))
    if 0.0 < least < SMALLEST_PROBABILITY:
        raise ValueError(f"array 'behavior_prob' holds {least:g}")
    for name in {"index", "fallbacks", "guarded"} & set(arrays):
        if (arrays[name] < 0).any():
            raise ValueError(f"array {name!r} holds a number below 0")
    return arrays


def _lost(one: Any) -> dict[str, Any]:
    """The fields of a lost episode."""
    numbers = [one["index"], one["step"], one.get("cost", 0.0)]
    if not all(is_number(x) and x >= 0 for x in numbers) or not isinstance(one["reason"], str):
        raise ValueError(f"a lost episode {one!r:.60}")
    return dict(one)


def _header(archive: Archive) -> dict[str, Any]:
    """What `write_episodes` says about the arrays."""
    about = json.loads(read_header(archive, LARGEST_HEADER))
    if not isinstance(about, dict):
        raise ValueError("a header that is no mapping")
    return about
