"""Where a number comes from: the command, the versions and the machine that made a result file."""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from scopeval import __version__
from scopeval.errors import InputError

__all__ = ["check_place", "machine", "now", "versions", "write_json"]


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, scopeval and the packages named."""
    found = {"python": platform.python_version(), "scopeval": __version__}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def machine() -> dict[str, str | int]:
    """The processor, the cores this process may use, and the operating system."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {"cpu": _processor(), "cores": cores, "system": platform.platform()}


def now() -> str:
    """Date and time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def check_place(path: str | os.PathLike[str]) -> Path:
    """Refuse a place where a file cannot be written, before the work of making it."""
    goal = Path(path)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        if goal.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(goal.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise _unwritable(goal, error) from error
    return goal


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> Path:
    """Write a result file whole or not at all: a temporary file beside it, then a rename."""
    goal = check_place(path)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    part = goal.with_name(f".{goal.name}.{os.getpid()}.tmp")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, goal)
    except OSError as error:
        raise _unwritable(goal, error) from error
    finally:
        part.unlink(missing_ok=True)
    return goal


def _unwritable(path: Path, error: OSError) -> InputError:
    reason = error.strerror or str(error)
    return InputError(f"cannot write {path}: {reason}; expected a file in a writable folder")


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
