"""Timing two computations fairly, and the comparisons and files that come out of it.

The two take turns, so that a busy moment of the machine affects both, and the best time of each
counts: whatever disturbs a computation only makes it slower.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from scopeval._files import machine, now, versions, write_json
from scopeval.errors import InputError

__all__ = [
    "BestSeconds",
    "Comparison",
    "in_own_process",
    "load_peer",
    "not_installed",
    "peak_megabytes",
    "quiet",
    "race",
    "save",
    "timed",
]


@dataclass(frozen=True)
class BestSeconds:
    """Best wall-clock seconds of both."""

    ours: float
    peer: float


@dataclass(frozen=True)
class Comparison:
    """One comparison.

    Attributes:
        name: what was compared.
        ours: seconds per `unit`; the growth if the unit is "slope".
        peer: the same of the peer or the limit; None: it is not installed.
        unit: what was timed: "row", "pass", "episode" ...; "slope": d log(time or memory) / d
            log(size).
        sense: "slower": ratio = ours / peer, and the goal is an upper bound; "faster": ratio =
            peer / ours, and the goal is a lower bound.
        goal: bound on the ratio; None: there is no goal.
        note: what else the reader should know (sizes, agreement of the answers).
        stopped: the peer was stopped before it was done, so its time and the ratio are lower
            bounds.
    """

    name: str
    ours: float
    peer: float | None
    unit: str
    sense: Literal["slower", "faster"]
    goal: float | None = None
    note: str = ""
    stopped: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times slower, or faster, ours is."""
        if self.peer is None:
            return None
        return self.ours / self.peer if self.sense == "slower" else self.peer / self.ours

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal or a peer, or if it was stopped early."""
        ratio = self.ratio
        if self.goal is None or ratio is None:
            return None
        if self.sense == "slower":
            return ratio <= self.goal
        return True if ratio >= self.goal else None if self.stopped else False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def race(ours: Callable[[], object], peer: Callable[[], object], *, repeats: int) -> BestSeconds:
    """Time both in turn, `repeats` times, after one call of each that does not count."""
    if repeats < 1:
        raise InputError(f"repeats: got {repeats}, expected a whole number >= 1")
    ours(), peer()
    best = [float("inf"), float("inf")]
    with quiet():
        for _ in range(repeats):
            for k, call in enumerate((ours, peer)):
                best[k] = min(best[k], timed(call))
    return BestSeconds(*best)


def timed(call: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the garbage collector."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load_peer(name: str) -> Any:
    """The peer's module, or None if it is not installed. Its messages while loading are dropped."""
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def not_installed(package: str) -> str:
    """The note of a comparison without its peer."""
    return f"{package} is not installed: make bench"


def in_own_process(function: str, *words: object) -> Any:
    """What a function of these benchmarks returns, called in its own process.

    Args:
        function: "module.name" within `benchmarks`.
        words: its arguments, numbers or text.
    """
    module, _, name = function.rpartition(".")
    program = (
        f"import json, sys; from benchmarks.{module} import {name} as run; "
        "print(json.dumps(run(*json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, json.dumps(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{function}{words} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peak_megabytes(call: Callable[[], object]) -> float:
    """How much memory a call takes at most, beyond what this process has before, in MB."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # or freed memory would be used first
    before = _status("VmRSS")
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="utf-8") as file:
        file.write("5")  # reset the peak
    call()
    return _status("VmHWM") - before


def _status(field: str) -> float:
    """Resident memory of this process: now (VmRSS) or at its peak (VmHWM), in MB."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="utf-8") as file:
            found = next(line for line in file if line.startswith(field))
        return int(found.split()[1]) / 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS: bytes


def save(
    path: str | os.PathLike[str],
    name: str,
    command: str,
    rows: Sequence[Comparison],
    *,
    packages: Sequence[str] = (),
    seed: int | None = None,
) -> Path:
    """Write the comparisons with the command, the machine, the versions and the date."""
    return write_json(
        path,
        {
            "benchmark": name,
            "command": command,
            "date": now(),
            "machine": machine(),
            "versions": versions(*packages),
            **({} if seed is None else {"seed": seed}),
            "rows": [row.as_dict() for row in rows],
        },
    )
