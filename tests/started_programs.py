"""Programs that tests start in processes of their own, so that nothing outlives a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def run_ray_script(script: Path, modules: Path, seconds: float = 150.0) -> str:
    """What the script prints; nothing of its cluster outlives a failure.

    Args:
        script: to run; it must end with status 0.
        modules: folder where the cluster's workers find the test's own module.
        seconds: it may take.
    """
    folders = [modules, Path(__file__).parent, os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_memory_monitor_refresh_ms": "0",
    }
    running = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=env,
        start_new_session=True,
    )
    try:
        output, _ = running.communicate(timeout=seconds)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    assert running.returncode == 0, output
    return output


def gone(group: int) -> bool:
    """Whether nobody of a process group is left, or soon nobody will be."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
