"""Scripts that start a Ray cluster, run in a process of their own that does not outlive a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
