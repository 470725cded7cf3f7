"""What an experiment leaves behind: a JSON file, Parquet tables, figures as SVG and PNG."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopeval._files import check_place, machine, now, replace_file, versions, write_json
from scopeval.paper.figures.gridworld import png, svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PACKAGES", "check_folder", "save"]

#: Whose versions matter.
PACKAGES = ("numpy", "scipy", "numba", "torch", "pyarrow", "matplotlib")


def check_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """Refuse a folder that cannot be written to, before the work."""
    return check_place(Path(folder) / f"{name}.json").parent


def save(
    folder: str | os.PathLike[str],
    name: str,
    *,
    command: str,
    seconds: float,
    summary: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, list[Any]]],
    figures: Mapping[str, Figure],
) -> Path:
    """Write everything; each file whole or not at all.

    Args:
        folder: where.
        name: of the JSON file: command, date, machine, versions, then the summary.
        command: what was typed.
        seconds: how long it took.
        summary: for JSON.
        tables: name -> columns; each becomes ``name.parquet``, with the command inside.
        figures: name -> figure; each becomes ``name.svg`` and ``name.png``.
    """
    place = check_folder(folder, name)
    about = {
        "command": command,
        "date": now(),
        "seconds": round(seconds, 1),
        "machine": machine(),
        "versions": versions(*PACKAGES),
    }
    for title, columns in tables.items():
        replace_file(place / f"{title}.parquet", _parquet(columns, about))
    for title, figure in figures.items():
        replace_file(place / f"{title}.svg", svg(figure).encode())
        replace_file(place / f"{title}.png", png(figure))
    return write_json(place / f"{name}.json", {**about, **summary})


def _parquet(columns: Mapping[str, list[Any]], about: dict[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(dict(columns)).replace_schema_metadata({"scopeval": json.dumps(about)})
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()
