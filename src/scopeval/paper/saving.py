"""Files that an experiment writes: one JSON file, Parquet tables, figures as SVG and PNG."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from scopeval._files import check_place, machine, now, replace_file, versions, write_json
from scopeval.paper.figures.drawing import png, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Savable", "check_folder", "save"]

#: Packages whose versions are recorded.
PACKAGES = ("numpy", "scipy", "numba", "torch", "pyarrow", "matplotlib")


class Savable(Protocol):
    """The result of an experiment."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""

    def tables(self) -> dict[str, dict[str, list[Any]]]:
        """For Parquet: table -> columns."""


def check_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """Refuse a folder that cannot be written to, before the work."""
    return check_place(Path(folder) / f"{name}.json").parent


def save(
    folder: str | os.PathLike[str],
    name: str,
    result: Savable,
    figures: Mapping[str, Figure],
    *,
    command: str,
    seconds: float,
    kept: int = 0,
) -> Path:
    """Write everything, each file whole or not at all; the path of the JSON file.

    Args:
        folder: where.
        name: of the JSON file: command, date, machine, versions, then the result's summary.
        result: its tables become ``TABLE.parquet``, with the command inside.
        figures: name -> figure; each becomes ``NAME.svg`` and ``NAME.png``.
        command: the command that gives the same numbers again.
        seconds: how long it took.
        kept: pieces of work that an earlier run had done, which are not in these seconds.
    """
    place = check_folder(folder, name)
    about = {
        "command": command,
        "date": now(),
        "seconds": round(seconds, 1),
        **({"kept": kept} if kept else {}),
        "machine": machine(),
        "versions": versions(*PACKAGES),
    }
    for title, columns in result.tables().items():
        replace_file(place / f"{title}.parquet", _parquet(columns, about))
    for title, figure in figures.items():
        replace_file(place / f"{title}.svg", svg(figure).encode())
        replace_file(place / f"{title}.png", png(figure))
    return write_json(place / f"{name}.json", {**about, **result.as_dict()})


def _parquet(columns: Mapping[str, list[Any]], about: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns)).replace_schema_metadata({"scopeval": json.dumps(about)})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()
