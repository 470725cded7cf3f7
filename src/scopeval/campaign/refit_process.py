"""Computes designs that are due in a process of its own, so that no plant waits for one.

    python -m scopeval.campaign.refit_process < task.json

The task names the database, and the target policy: a table, or module:attribute. It comes by the
standard input, because a URL may hold a password.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import subprocess
import sys
import time
from typing import Any

from scopeval.campaign.journal import Journal
from scopeval.campaign.opening import open_recorder
from scopeval.campaign.refit import refit_now
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["RefitProcess", "main"]

#: Processes that outlive the campaign object that started them.
_outliving: list[subprocess.Popen[bytes]] = []


class RefitProcess:
    """Starts the process when a design is due, one at a time.

    Args:
        journal: of the campaign.
        target: pi; only a table can be sent to another process,
        name: or "module:attribute", from which that process imports it.
    """

    def __init__(
        self, journal: Journal, target: Policy | ContinuousPolicy, name: str | None
    ) -> None:
        self._journal, self._target, self._name = journal, target, name
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def able(self) -> bool:
        """Whether the target policy can be had in another process."""
        return self._name is not None or isinstance(self._target, TabularPolicy)

    def start(self) -> None:
        """Start the process, unless it runs."""
        if not self.able or (self._running is not None and self._running.poll() is None):
            return
        task: dict[str, Any] = {"where": self._journal.where, "name": self._name}
        if self._name is None and isinstance(self._target, TabularPolicy):
            table = self._target.table(self._target.horizon or 1)
            task["table"] = (table if self._target.horizon else table[0]).tolist()
        self._running = subprocess.Popen(
            [sys.executable, "-m", "scopeval.campaign.refit_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the plants' process
        )
        assert self._running.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._running.stdin as pipe:
            pipe.write(json.dumps(task).encode())

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the process has ended."""
        if self._running is not None:
            self._running.wait(seconds)

    def leave(self) -> None:
        """Let the process end by itself."""
        if self._running is not None and self._running.poll() is None:
            _outliving.append(self._running)


def main() -> int:
    """Compute what is due."""
    task = json.loads(sys.stdin.read())
    target: Any = task.get("table")
    if target is None:
        module, _, attribute = task["name"].partition(":")
        sys.path.insert(0, "")
        target = importlib.import_module(module)
        for name in attribute.split("."):
            target = getattr(target, name)
    recorder = open_recorder(task["where"], as_policy(target), None, True, time.time)
    try:
        return 0 if refit_now(recorder) else 1
    finally:
        recorder.journal.close()


if __name__ == "__main__":
    sys.exit(main())
