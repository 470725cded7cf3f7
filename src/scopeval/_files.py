"""Files that appear whole or not at all, and the provenance that result files carry.

Every file that scopeval writes goes through `replace_file`.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import json
import os
import platform
import secrets
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from scopeval import __version__
from scopeval.errors import DataError, InputError

__all__ = ["check_place", "machine", "now", "replace_file", "versions", "write_json"]


def versions(*packages: str) -> dict[str, str]:
    """Versions of Python, scopeval and the packages named."""
    versions = {"python": platform.python_version(), "scopeval": __version__}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def machine() -> dict[str, str | int]:
    """The processor, the cores this process may use, and the operating system."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return {"cpu": _processor(), "cores": cores, "system": platform.platform()}


def now() -> str:
    """Date and time, UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def check_place(path: str | os.PathLike[str]) -> Path:
    """Create the folder of a file and check that the file can be written, before the work."""
    goal = Path(path)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        if goal.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not os.access(goal.parent, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise InputError(
            f"cannot write {goal}: {_reason(error)}; expected a file in a writable folder"
        ) from error
    return goal


def replace_file(path: str | os.PathLike[str], write: bytes | Callable[[IO[bytes]], None]) -> Path:
    """Write a file whole or not at all.

    The content goes to a draft in the same folder, which then takes the place of the file. A file
    that was there before survives any failure. Where a symbolic link was, there is a file
    afterwards: what the link pointed to is not touched, for somebody else may have made the link.
    The mode of the file is what the umask says.

    Args:
        path: the file; its folder must exist.
        write: the content, or a function that writes it to an open file (which can also be read).

    Raises:
        DataError: a full disk, a missing folder, no permission, or no regular file at this path.
    """
    goal = Path(path)
    try:
        if goal.exists() and not goal.is_file():
            raise OSError(errno.EINVAL, "it is a folder or a device, not a regular file")
        goal = goal.absolute()
        draft = goal.with_name(f".{goal.name}.{secrets.token_hex(6)}.tmp")
        try:
            with draft.open("x+b") as file:
                if isinstance(write, bytes):
                    file.write(write)
                else:
                    write(file)
                file.flush()
                os.fsync(file.fileno())  # the content is on disk before the name points to it
            os.replace(draft, goal)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be written ({_reason(error)}); expected a writable folder with enough "
            "space"
        ) from error
    return Path(path)


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> Path:
    """Write a result file whole or not at all; its folder is created."""
    goal = check_place(path)
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    return replace_file(goal, text.encode())


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
