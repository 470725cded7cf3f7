"""Where a number comes from: the command, the versions and the machine that made a result file."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import shlex
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from scopeval import __version__
from scopeval.errors import InputError

__all__ = ["command_line", "machine", "now", "versions", "write_json"]


def command_line() -> str:
    """The command as it was typed, with the program's name instead of its path."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


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


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> Path:
    """Write a result file whole or not at all: a temporary file beside it, then a rename."""
    goal = Path(path)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=goal.parent, prefix=f".{goal.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(name, 0o666 & ~mask)  # mkstemp's files are private; a result is not
            os.replace(name, goal)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            f"cannot write {goal}: {error.strerror or error}; try another place for the file"
        ) from error
    return goal


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
