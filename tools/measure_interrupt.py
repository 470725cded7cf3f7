"""Measure how long a design on vectors runs on after Ctrl-C.

    python tools/measure_interrupt.py [--times 3] [--regression model|mlp]

A process designs a behavior policy for CartPole from 300 logged episodes, at default settings. It
is sent SIGINT in every phase of the design, some random time after the phase has begun. Measured
are the seconds until it has ended, and the seconds of the processor that it used in them (all
threads together), which other work on the machine does not change. It needs Linux.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

PROGRAM = """
import sys
from scopeval import design, read_logged
from scopeval.paper.experiments.foreign_vectors import vector_world

seen = set()

def told(what, done, total):
    if what not in seen:
        seen.add(what)
        print(what, flush=True)

target = vector_world("CartPole").target(0)
log = read_logged(sys.argv[1])
design(log, target, horizon=200, method="scope-dr", regression=sys.argv[2], progress=told)
print("done", flush=True)
"""

#: Seconds within a phase after which the signal comes, at most.
LATEST = 2.0


def phases(log: Path, regression: str) -> list[str]:
    """What a whole design does, in order; the first run also compiles."""
    words = [sys.executable, "-c", PROGRAM, str(log), regression]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split("\n")[:-2]


def processor_seconds(pid: int) -> float:
    """That a running process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def seconds_to_end(log: Path, regression: str, phase: str, wait: float) -> tuple[float, float]:
    """Seconds, and those of the processor, from the signal to the end; NaN: it had ended."""
    words = [sys.executable, "-c", PROGRAM, str(log), regression]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            if line.strip() == phase:
                break
        time.sleep(wait)
        if run.poll() is not None:
            return float("nan"), float("nan")
        begin, used = time.perf_counter(), processor_seconds(run.pid)
        run.send_signal(signal.SIGINT)
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        took = time.perf_counter() - begin
    return took, usage.ru_utime + usage.ru_stime - used


def main() -> None:
    """Print a line for every phase."""
    parser = argparse.ArgumentParser(description="Measure how fast Ctrl-C ends a design.")
    parser.add_argument("--times", type=int, default=3, help="signals in every phase")
    parser.add_argument("--regression", default="model", choices=("model", "mlp"))
    options = parser.parse_args()
    from scopeval.data.parquet import write_logged
    from scopeval.paper.experiments.foreign_vectors import vector_world

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.parquet"
        write_logged(vector_world("CartPole").logs("mixed", 300, 0), log)
        for phase in phases(log, options.regression):
            waits = rng.uniform(0.0, LATEST, options.times)
            every = [seconds_to_end(log, options.regression, phase, wait) for wait in waits]
            took, used = np.nanmax(every, axis=0)
            print(f"{phase:<34} {took:5.2f} s at most, {used:5.2f} of the processor", flush=True)


if __name__ == "__main__":
    main()
