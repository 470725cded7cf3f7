"""What a campaign keeps of a history of exogenous inputs, and the paths of its episodes.

The signals of a step are in the journal (`observe(signals=...)`), so that an episode's path is what
was reported after each of its steps. The history is in the database, and fixed when the campaign is
created: whether it helps must not decide whether it is used.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval._archive import open_archive, pack, reading
from scopeval.arrays import Floats
from scopeval.campaign import schema
from scopeval.collection.signal_paths import WithPaths
from scopeval.context.history import History
from scopeval.errors import DataError, InputError

__all__ = ["check_history", "keep_history", "kept_history", "path_of", "unusable"]

#: Name of the history beside the logs.
_NAME = "context"
_COLUMNS = ("paths", "names", "numbers", "about")


def check_history(context: History | None, *, bounded: bool) -> History | None:
    """See that a database can hold it.

    Raises:
        InputError: another kind, or one with functions.
    """
    if context is None:
        return None
    if not isinstance(context, History):
        raise InputError(
            f"context: got {type(context).__name__}, expected a History, such as "
            'History(paths, "demand")'
        )
    if bounded:
        raise InputError(
            "context: got return_bound too, whose interval is from bets on plain returns and has "
            "no control variate; leave one of them out"
        )
    if callable(context.columns) or context.features is not None:
        raise InputError(
            "context: got a function of yours, which no database can hold; expected "
            "History(paths, names or numbers of columns)"
        )
    if context.source is not None or context.chance is not None:
        raise InputError(
            "context: got starts that a simulator makes; expected History.starts(observations)"
        )
    return context


def keep_history(connection: sa.Connection, history: History) -> None:
    """Write it."""
    buffer = io.BytesIO()
    numbers = () if history.signals or history.columns is None else history.columns
    pack(
        buffer,
        {
            "paths": history.paths,
            "names": np.array(history.signals, np.str_),
            "numbers": np.atleast_1d(np.asarray(numbers, np.int64)),
            "about": np.array([json.dumps({"law": history.law, "block": history.block})]),
        },
    )
    row = {"name": _NAME, "content": buffer.getvalue()}
    connection.execute(schema.logs.insert(), row)


def kept_history(connection: sa.Connection) -> History | None:
    """What `keep_history` wrote; None: the campaign has none."""
    table = schema.logs
    content = connection.execute(sa.select(table.c.content).where(table.c.name == _NAME)).scalar()
    if content is None:
        return None
    with (
        reading(_NAME, "the history of a campaign"),
        open_archive(_NAME, io.BytesIO(content), len(content), names=_COLUMNS) as archive,
    ):
        paths, names, numbers, about = (archive.read(name) for name in _COLUMNS)
        kept = json.loads(str(about[0]))
        columns: Any = [str(x) for x in names] or [int(x) for x in numbers] or None
        return History(paths, columns, law=kept["law"], block=kept["block"])


def path_of(rows: Sequence[sa.Row[Any]], signals: Sequence[str]) -> Floats:
    """[steps + 1, d] of one episode: NaN at its start, then what each step has reported."""
    path = np.full((len(rows) + 1, len(signals)), np.nan)
    for t, row in enumerate(rows, 1):
        seen = json.loads(row.signals) if row.signals else {}
        path[t] = [seen.get(name, np.nan) for name in signals]
    return path


def unusable(history: History, episodes: WithPaths) -> str | None:
    """Why the paths of these episodes cannot be used, in words; None: they can.

    From the first cut path on the history is left out for all episodes: those with a whole path
    are others than those without.
    """
    try:
        history.paths_of(episodes)
    except DataError as error:
        return f"the history is not used: {error}"
    return None
