"""Logs as the bytes of a compressed NPZ file, for a database or a line."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np

from scopeval.data.transitions import Transitions
from scopeval.errors import DataError

__all__ = ["bytes_of_logs", "logs_of_bytes"]

_COLUMNS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")


def bytes_of_logs(logs: Transitions) -> bytes:
    """The columns, compressed."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {name: getattr(logs, name) for name in _COLUMNS}
    np.savez_compressed(buffer, **columns)
    return buffer.getvalue()


def logs_of_bytes(content: bytes) -> Transitions:
    """What `bytes_of_logs` made.

    Raises:
        DataError: other bytes.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            columns: dict[str, Any] = {name: arrays[name] for name in _COLUMNS}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"logs: damaged ({error}); expected the columns of Transitions") from error
    return Transitions(**columns)
