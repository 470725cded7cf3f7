"""What only looks: status, results, files, metrics.

It has a backend of its own, so that plants do not wait for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from fastapi.responses import FileResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from starlette.background import BackgroundTask

from scopeval import __version__
from scopeval.campaign.designs import Policies
from scopeval.campaign.local import LocalBackend, open_local
from scopeval.campaign.state import CampaignState
from scopeval.campaign.transfer import bytes_of_episodes, bytes_of_logs
from scopeval.campaign.view import CampaignStatus, Verification
from scopeval.comparison.result import Comparison
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.evaluation.result import Evaluation

__all__ = ["Counts", "Metrics", "Viewer", "write_file", "write_task"]

#: Seconds for which a status is used again; many may look, and each look reads the database.
FRESH = 0.5

#: Seconds that a file waits for the one before it, and that it may take.
WAIT, LONGEST = 60.0, 600.0

#: Steps above which a file is made by a process of its own, which does not hold up plants and whose
#: memory is then given back. One step takes about 25 microseconds, a process 2 seconds to start.
IN_PROCESS = 10_000

#: Nothing of scopeval is imported before the folders are those of the task.
PROGRAM = (
    "import json, sys; task = json.loads(sys.stdin.read()); sys.path[:] = task['path']; "
    "from {} import {} as write; write(task)"
)
#: What writes a file there. Episodes, which are many, need little of the package.
_WRITERS = {
    "episodes": ("scopeval.campaign.steps", "write_episodes"),
    "logs": ("scopeval.serve.viewer", "write_task"),
}

_NAMES = {
    "episodes": "episodes.npz",
    "mixture": "mixture.npz",
    "report": "report.html",
    "logs": "logs.npz",
}


class _File:
    """A file that was made, and is deleted when it was sent to all who wanted it.

    Args:
        about: what it is.
        began: when it was begun.
    """

    def __init__(self, about: tuple[str, str | None], began: float) -> None:
        self.about, self.began, self._users = about, began, 1
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name, _NAMES[about[0]])

    def use(self) -> None:
        """It is wanted once more."""
        self._users += 1

    def leave(self) -> None:
        """It is not needed any more by somebody."""
        self._users -= 1
        if not self._users:
            self._folder.cleanup()


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
        self._heavy, self._waiting = asyncio.Semaphore(1), 0
        self._file: _File | None = None  # kept while others wait, who may want the same
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
        computed = self.backend.result()  # takes a while, in which others may look
        self._result = (status.last_event, computed)
        return computed

    def result_or_none(self) -> Evaluation | None:
        """The result; None where no episode is finished, or several policies are compared.

        Of these the status has what was found last.
        """
        if self.backend.terms.policies:
            return None
        try:
            outcome = self.result()
        except (CampaignError, InputError):
            return None
        return outcome if isinstance(outcome, Evaluation) else None

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

        Whoever waits gets the file that another one has asked for, where it was begun after both
        have asked: it holds all that it must.

        Args:
            kind: "episodes", "mixture", "report" or "logs".
            about: the plant, or the title.
        """
        arrived = self._clock()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT):
                await self._heavy.acquire()
        except TimeoutError as late:
            if self._waiting == 1:
                self._forget_file()
            raise HTTPException(
                503, "other files are made; try again", {"Retry-After": "10"}
            ) from late
        finally:
            self._waiting -= 1
        try:
            file = self._file
            if file is None or file.about != (kind, about) or file.began < arrived:
                self._forget_file()
                file = _File((kind, about), self._clock())
                try:
                    await asyncio.to_thread(self._make, kind, file.path, about)
                except BaseException:
                    file.leave()
                    raise
                self._file = file
            file.use()
            if not self._waiting:
                self._forget_file()
        finally:
            self._heavy.release()
        media = "text/html" if kind == "report" else "application/octet-stream"
        return FileResponse(file.path, media_type=media, background=BackgroundTask(file.leave))

    def _forget_file(self) -> None:
        """Do not keep the last file for those who wait."""
        if self._file is not None:
            self._file.leave()
            self._file = None

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
            [sys.executable, "-P", "-c", PROGRAM.format(*_WRITERS[kind])],
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


# -- metrics ---------------------------------------------------------------------------------------


STATES = ("running", "paused", "handed over", "stopped")


@dataclass(frozen=True)
class Counts:
    """What the parts of a service have counted.

    Attributes:
        totals: by name, see TOTALS.
        waiting: calls that wait for the database.
        webhook_waiting: events that wait for another try.
        refused: calls by status.
    """

    totals: Mapping[str, int]
    waiting: int
    webhook_waiting: int
    refused: Mapping[int, int]


class Metrics:
    """Counts calls by route and status, and how long they took."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "scopeval_http_requests",
            "Calls by route and status.",
            ("route", "status"),
            registry=self._registry,
        )
        self._times = Histogram(
            "scopeval_http_request_duration_seconds",
            "Time from the head of a call to its answer.",
            ("route",),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one call."""
        self._calls.labels(route, str(status)).inc()
        self._times.labels(route).observe(seconds)

    def text(self, status: CampaignStatus, counts: Counts) -> bytes:
        """All of it."""
        registry = CollectorRegistry()
        registry.register(_Collector([*_campaign(status), *_service(counts)]))
        content: bytes = generate_latest(registry) + generate_latest(self._registry)
        return content


class _Collector:
    """Gives metrics that are made when they are asked for."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        return iter(self._metrics)


def _campaign(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about the campaign."""
    gauge = GaugeMetricFamily(
        "scopeval_campaign_state", "1 for the state that it is in.", labels=["state"]
    )
    for name in STATES:
        gauge.add_metric([name], int(status.state == name))
    yield gauge
    gauge = GaugeMetricFamily("scopeval_episodes", "Episodes.", labels=["state"])
    numbers = {"open": status.open, "finished": status.finished, "lost": status.lost}
    for name, episodes in (numbers | {"shadow": status.shadowed}).items():
        gauge.add_metric([name], episodes)
    yield gauge
    value = status.interval
    silent = sum(plant.silent for plant in status.plants)
    for name, about, number in (
        ("value", "Estimate of the target policy's value.", value.estimate),
        ("value_low", "Lower end of its interval.", value.low),
        ("value_high", "Upper end of its interval.", value.high),
        ("cost_spent", "Cost of all episodes.", status.spent),
        ("share", "Share of the behavior policy in new episodes.", status.share),
        ("design", "Number of the design of new episodes.", status.design),
        ("last_event", "Number of the last event.", status.last_event),
        ("plants_silent", "Plants that have fallen silent in an episode.", silent),
        ("problems", "Problems that somebody should see to.", len(status.problems)),
        ("refit_failed", "1 where a design that is due could not be computed.",
         int(status.refit_failure is not None)),
        ("unconfirmed", "1 where the design in use is not confirmed.",
         int(status.unconfirmed is not None)),
    ):  # fmt: skip
        yield GaugeMetricFamily(f"scopeval_{name}", about, value=number)
    if status.policies:
        yield from _policies(status)
    gauge = GaugeMetricFamily(
        "scopeval_guard_alarm", "1 for guards that have raised an alarm.", labels=["guard", "rule"]
    )
    for k, guard in enumerate(status.guards):
        gauge.add_metric([str(k), guard.rule], int(guard.alarm is not None))
    yield gauge
    gauge = GaugeMetricFamily(
        "scopeval_plant_seen_timestamp_seconds", "Last sign of life.", labels=["plant"]
    )
    for plant in status.plants:
        gauge.add_metric([plant.name], plant.seen)
    yield gauge


def _policies(status: CampaignStatus) -> Iterator[Metric]:
    """The numbers about several policies, as of the last look."""
    base = status.policies[0].name
    share = GaugeMetricFamily("scopeval_policy_share", "Share of new episodes.", labels=["policy"])
    for one in status.policies:
        share.add_metric([one.name], one.share)
    yield share
    for name, about in (
        ("difference", "Value less that of the baseline."),
        ("low", "Lower end of its anytime-valid interval."),
        ("high", "Upper end of its anytime-valid interval."),
    ):
        title = "difference" if name == "difference" else f"difference_{name}"
        gauge = GaugeMetricFamily(f"scopeval_{title}", about, labels=["policy", "baseline"])
        for one in status.policies[1:]:
            gauge.add_metric([one.name, base], getattr(one, name))
        yield gauge
    yield GaugeMetricFamily(
        "scopeval_looked_episodes", "Finished episodes at the last look.", value=status.looked
    )


#: What the totals are.
TOTALS = {
    "decisions": "Decisions answered.",
    "transactions": "Transactions written.",
    "written_calls": "Calls in these transactions.",
    "database_errors": "Transactions that were not committed.",
    "webhook_failures": "Events that a webhook did not take, given up.",
}


def _service(counts: Counts) -> Iterator[Metric]:
    """The numbers about the service."""
    about = GaugeMetricFamily("scopeval_build_info", "The version.", labels=["version"])
    about.add_metric([__version__], 1)
    yield about
    for name, text in TOTALS.items():
        yield CounterMetricFamily(f"scopeval_{name}", text, value=counts.totals[name])
    yield GaugeMetricFamily("scopeval_waiting_calls", "Calls that wait.", value=counts.waiting)
    yield GaugeMetricFamily(
        "scopeval_webhook_waiting",
        "Events that wait for another try.",
        value=counts.webhook_waiting,
    )
    refused = CounterMetricFamily(
        "scopeval_refused", "Calls with a wrong token, role or rate.", labels=["status"]
    )
    for status, calls in sorted(counts.refused.items()):
        refused.add_metric([str(status)], calls)
    yield refused
