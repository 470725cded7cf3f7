"""Everything that only looks. It has a backend of its own, so that plants do not wait for it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from fastapi.responses import FileResponse
from starlette.background import BackgroundTask

from scopeval.campaign.audit import Verification
from scopeval.campaign.comparison import bytes_of_episodes
from scopeval.campaign.designs import bytes_of_logs
from scopeval.campaign.local import LocalBackend, Policies, open_local
from scopeval.campaign.state import CampaignState
from scopeval.campaign.view import CampaignStatus
from scopeval.comparison.result import Comparison
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.evaluation.result import Evaluation

__all__ = ["Viewer", "write_file", "write_task"]

#: Seconds for which a status is used again; many may look, and each look reads the database.
FRESH = 0.5

#: Seconds that a file waits for the one before it, and that it may take.
WAIT, LONGEST = 60.0, 600.0

#: Finished steps above which a file is made by a process of its own, whose memory is then given
#: back; one takes about 100 bytes a step, and starting a process about 2 seconds.
IN_PROCESS = 100_000

#: Nothing of scopeval is imported before the folders are those of the task.
PROGRAM = (
    "import json, sys; task = json.loads(sys.stdin.read()); sys.path[:] = task['path']; "
    "from scopeval.serve.viewer import write_task; write_task(task)"
)

_NAMES = {
    "episodes": "episodes.npz",
    "mixture": "mixture.npz",
    "report": "report.html",
    "logs": "logs.npz",
}


class Viewer:
    """Looks at a campaign. It has a backend of its own, so that plants do not wait for it.

    Args:
        backend: opened for this purpose only.
        clock: seconds.
    """

    def __init__(self, backend: LocalBackend, clock: Callable[[], float] = time.monotonic) -> None:
        self.backend, self._clock = backend, clock
        self._lock = threading.Lock()
        self._status: tuple[float, CampaignStatus] | None = None
        self._result: tuple[int, Evaluation | Comparison] | None = None
        self._heavy = asyncio.Semaphore(1)
        self._verifying = threading.Lock()

    def status(self, *, fresh: bool = False) -> CampaignStatus:
        """The status; at most `FRESH` seconds old, or of this moment."""
        with self._lock:
            now = self._clock()
            if self._status is None or fresh or now - self._status[0] > FRESH:
                self._status = (now, self.backend.status())
            return self._status[1]

    def expire(self) -> None:
        """Read the status anew when it is next asked for: an operator has just changed it."""
        self._status = None

    def result(self) -> Evaluation | Comparison:
        """The result by all that is finished; computed once for every event.

        Raises:
            CampaignError: no episode is finished.
        """
        status = self.status(fresh=True)
        if not status.finished:
            raise CampaignError(
                "result: no episode is finished, expected at least one", "no_result"
            )
        with self._lock:
            if self._result is not None and self._result[0] == status.last_event:
                return self._result[1]
            if not status.policies:
                self._result = (status.last_event, self.backend.result())
                return self._result[1]
        found = self.backend.result()  # takes a while, in which others may look
        self._result = (status.last_event, found)
        return found

    def result_or_none(self) -> Evaluation | None:
        """The result; None where no episode is finished, or several policies are compared.

        Of these the status has what was found last.
        """
        if self.backend.terms.policies:
            return None
        try:
            found = self.result()
        except (CampaignError, InputError):
            return None
        return found if isinstance(found, Evaluation) else None

    def state(self) -> CampaignState:
        """The state, folded from all events so far."""
        with self.backend.lock, self.backend.store.read() as connection:
            return self.backend.state(connection)

    def verify(self, head: str | None) -> Verification:
        """An audit, one at a time."""
        with self._verifying:
            return self.backend.verify(head)

    async def file(self, kind: str, about: str | None) -> FileResponse:
        """A file as an answer: one is made at a time, and it is sent in pieces from the disk.

        Args:
            kind: "episodes", "mixture", "report" or "logs".
            about: the plant, or the title.
        """
        try:
            async with asyncio.timeout(WAIT):
                await self._heavy.acquire()
        except TimeoutError as late:
            raise HTTPException(
                503, "other files are made; try again", {"Retry-After": "10"}
            ) from late
        try:
            folder = tempfile.TemporaryDirectory()  # removed when it was sent
            path = Path(folder.name, _NAMES[kind])
            try:
                await asyncio.to_thread(self._make, kind, path, about)
            except BaseException:
                folder.cleanup()
                raise
        finally:
            self._heavy.release()
        media = "text/html" if kind == "report" else "application/octet-stream"
        done = BackgroundTask(folder.cleanup)
        return FileResponse(path, media_type=media, background=done)

    def _make(self, kind: str, path: Path, about: str | None) -> None:
        if kind == "report":
            self.result()  # refused here where there is none
        lines = self.state().lines.values()
        steps = len(lines) * self.backend.terms.horizon
        alone = kind == "report"  # it shows the design, which another process may not have
        alone |= kind == "mixture"  # needs the policies, likewise
        if steps <= IN_PROCESS or alone:
            write_file(self.backend, kind, path, about)
            return
        where, here = self.backend.store.where, os.getcwd()
        task = {
            "where": where if "://" in where else os.path.abspath(where),
            "path": [os.path.join(here, entry) for entry in sys.path],
            "kind": kind,
            "file": str(path),
            "about": about,
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM],
            input=json.dumps(task).encode(),
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
        if done.returncode:
            lines_said = done.stderr.decode(errors="replace").strip().splitlines()
            raise DataError(f"{kind}: {lines_said[-1] if lines_said else 'no file was made'}")


def write_file(backend: LocalBackend, kind: str, path: Path, about: str | None) -> None:
    """Write one of the files."""
    if kind == "episodes":
        backend.episodes(about).save(path)
    elif kind == "logs":
        path.write_bytes(bytes_of_logs(backend.logs()))
    elif kind == "mixture":
        path.write_bytes(bytes_of_episodes(backend.mixture()))
    else:
        backend.report(path, about or "The campaign")


def write_task(task: dict[str, Any]) -> None:
    """Write a file, in the process that was started for it."""
    backend = open_local(task["where"], Policies(None), check=False, clock=time.time)
    write_file(backend, task["kind"], Path(task["file"]), task["about"])
    backend.store.close()
