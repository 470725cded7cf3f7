"""Golden numbers: what the library computes, so that a change of its structure can be judged.

    python tests/golden/golden.py write PATH [--only TEXT]
    python tests/golden/golden.py compare PATH [--only TEXT] [--exact]

`write` runs every case and writes a JSON file with one entry per line, ``"case/entry": numbers``.
Floats are written so that they can be read back bit for bit. `compare` runs the cases again, names
every entry that differs and by how much, and exits with status 1 if there is one. With ``--exact``
all bits must be the same. This can be expected only on one machine, with the same versions of
NumPy, SciPy, Numba and torch. Without it, entries may differ by `TABLES` or `NETWORKS`, relative to
the largest number of the entry.

A process that compiles kernels may differ in the last bits from one that loads them from Numba's
cache. So where bits matter (`write`, ``--exact``) and something was compiled, all cases are run
once more by a new process, whose answer counts.

With ``--only``, `write` leaves the lines of all other cases in the file as they are: so cases are
added.

The cases are in the other files of this folder. They use the names of ``scopeval`` itself and its
modules ``exact``, ``simulate``, ``solver`` and ``envs.gridworld`` only. Documented classes that are
defined elsewhere, such as the settings of a regression, are found by name. The attributes that are
read from results are listed in `golden_worlds` and next to the cases.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numba.core import event

sys.path.append(str(Path(__file__).parents[2]))  # the experiments, which some cases take critics of

import golden_designs
import golden_evaluations
import golden_stages
from golden_worlds import CASES, Floats

__all__ = [
    "CASES",
    "differences",
    "entries",
    "golden_designs",
    "golden_evaluations",
    "golden_stages",
    "read",
]

#: Relative tolerance of cases without networks, and of those named "network.".
TABLES, NETWORKS = 1e-9, 1e-6
#: Absolute tolerance, for numbers that are zero except for rounding.
NEARLY_ZERO = 1e-12


def entries(name: str) -> dict[str, Floats]:
    """Run a case: its numbers as float64 arrays."""
    return {
        f"{name}/{entry}": np.asarray(value, dtype=np.float64)
        for entry, value in CASES[name]().items()
        if value is not None
    }


def write(path: Path, numbers: Mapping[str, Floats]) -> None:
    """One entry a line."""
    lines = [f"{json.dumps(name)}: {json.dumps(value.tolist())}" for name, value in numbers.items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(path: Path) -> dict[str, Floats]:
    """What `write` wrote, bit for bit."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {name: np.asarray(value, dtype=np.float64) for name, value in content.items()}


def difference(name: str, was: Floats, now: Floats, *, exactly: bool = False) -> str | None:
    """How two arrays of one entry differ, in words; None: they do not."""
    if was.shape != now.shape:
        return f"{name}: shape {now.shape}, was {was.shape}"
    same = (was == now) & (np.signbit(was) == np.signbit(now)) | (np.isnan(was) & np.isnan(now))
    if same.all():
        return None
    if not exactly:
        rate = NETWORKS if name.startswith("network") else TABLES
        finite = np.abs(was[np.isfinite(was)])
        with np.errstate(invalid="ignore"):
            close = np.abs(was - now) <= rate * finite.max(initial=0.0) + NEARLY_ZERO
        same |= close
    if same.all():
        return None
    with np.errstate(invalid="ignore"):
        gap = np.where(same, 0.0, np.abs(was - now))
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(gap, nan=np.inf))), gap.shape)
    before, after = float(was[worst]), float(now[worst])
    relative = abs(after - before) / abs(before) if before else math.inf
    place = f" at {tuple(int(i) for i in worst)}" if worst else ""
    return (
        f"{name}: {int((~same).sum())} of {same.size} numbers differ; most{place}: {after!r}, was "
        f"{before!r} (by {abs(after - before):.3g}, relative {relative:.3g})"
    )


def differences(
    was: Mapping[str, Floats], now: Mapping[str, Floats], *, exactly: bool = False
) -> list[str]:
    """All that differs between two sets of entries."""
    found = [f"{name}: not computed any more" for name in was if name not in now]
    found += [f"{name}: not in the file" for name in now if name not in was]
    for name in was:
        if name in now:
            words = difference(name, was[name], now[name], exactly=exactly)
            found += [] if words is None else [words]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the result is the exit status."""
    parser = argparse.ArgumentParser(description="Write or compare golden numbers.")
    parser.add_argument("command", choices=("write", "compare"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--exact", action="store_true", help="demand the same bits")
    parser.add_argument("--only", default="", help="only cases whose names contain this")
    parser.add_argument("--times", action="store_true", help="tell how long each case took")
    parser.add_argument("--once", action="store_true", help="also where kernels were compiled")
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = parser.parse_args(words)
    chosen = [name for name in CASES if given.only in name]
    now: dict[str, Floats] = {}
    with event.install_recorder("numba:compile") as compiled:
        for name in chosen:
            began = time.perf_counter()
            now |= entries(name)
            if given.times:
                print(f"{time.perf_counter() - began:7.2f} s  {name}", file=sys.stderr)
    if compiled.buffer and (given.exact or given.command == "write") and not given.once:
        print("kernels were compiled; once more with those of the cache", file=sys.stderr)
        return subprocess.run([sys.executable, __file__, *words, "--once"], check=False).returncode
    if given.command == "write":
        kept = read(given.path) if given.only and given.path.exists() else {}
        kept = {name: x for name, x in kept.items() if name.split("/")[0] not in chosen}
        order = list(CASES)
        every = sorted((kept | now).items(), key=lambda one: order.index(one[0].split("/")[0]))
        write(given.path, dict(every))
        print(f"{len(chosen)} cases, {len(now):,} entries -> {given.path}")
        return 0
    was = {name: x for name, x in read(given.path).items() if given.only in name.split("/")[0]}
    found = differences(was, now, exactly=given.exact)
    print("\n".join(found) or f"{len(chosen)} cases, {len(now):,} entries: the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
