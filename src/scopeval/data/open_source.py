"""Open a source of logged data as a table: a path, a data frame, arrays, episodes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scopeval.data.column_names import ColumnMap
from scopeval.data.episode_sources import load_minari, open_episodes
from scopeval.data.parquet import SUFFIXES, open_parquet
from scopeval.data.table_sources import (
    Mapped,
    NpzTable,
    Table,
    open_csv,
    open_frame,
    open_json_lines,
    reading,
)
from scopeval.data.transitions import Recorded
from scopeval.errors import DataError, InputError

__all__ = ["Opened", "open_path", "open_source"]


class Opened(NamedTuple):
    """A source as a table, and the column map that still applies to it."""

    table: Table
    columns: ColumnMap | None


def open_source(
    source: object, columns: ColumnMap | None, *, cost_needed: bool, separator: str | None = None
) -> Opened:
    """Open whatever `read_logged` accepts."""
    name = "Minari dataset"
    if isinstance(source, str) and source.startswith("minari:"):
        name = source
        source = load_minari(source.removeprefix("minari:"))
    if isinstance(source, (str, os.PathLike)):
        return Opened(open_path(source, separator), columns)
    if separator is not None:
        raise InputError(f"separator: got {separator!r}, but only CSV files have one; leave it out")
    if isinstance(source, Mapping):
        arrays = {str(key): values for key, values in source.items()}
        return Opened(Mapped("dict", arrays), columns)
    if isinstance(source, Recorded):
        return Opened(Mapped("episodes", source.transitions()), columns)
    if hasattr(source, "iterate_episodes"):
        episodes = source.iterate_episodes()
    elif isinstance(source, (list, tuple)):
        name, episodes = "list of episodes", source
    else:
        return Opened(open_frame(source), columns)
    return Opened(open_episodes(episodes, columns, name, cost_needed=cost_needed), None)


def open_path(source: str | os.PathLike[str], separator: str | None = None) -> Table:
    """Open a file or a folder; its name tells the format."""
    path = Path(source)
    ending = path.suffix.lower()
    if ending == ".gz":
        ending = path.with_suffix("").suffix.lower() + ending
    with reading(str(path), "a file"):
        if not path.exists():
            raise DataError(f"{path}: no such file or folder (looked in {Path.cwd()})")
        if ending in (".csv", ".csv.gz"):
            return open_csv(path, "," if separator is None else separator)
        if separator is not None:
            raise InputError(f"separator: got {separator!r}, but {path} is no CSV file")
        if path.is_dir() or ending in SUFFIXES:
            return open_parquet(path)
        if ending in (".jsonl", ".jsonl.gz"):
            return open_json_lines(path)
        if ending == ".npz":
            return NpzTable(path)
    raise DataError(
        f"{path}: cannot tell the format from {ending or 'a name without ending'!r}; expected "
        ".parquet, .pq, .csv, .csv.gz, .jsonl, .jsonl.gz, .npz, or a folder of Parquet files"
    )
