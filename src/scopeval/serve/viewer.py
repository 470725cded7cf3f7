"""Everything that only looks. It has a campaign of its own, so that plants do not wait for it."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scopeval.campaign.campaign import Campaign
from scopeval.campaign.journal import Event
from scopeval.campaign.log_bytes import bytes_of_logs
from scopeval.campaign.status import CampaignStatus
from scopeval.campaign.verification import Verification
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation
from scopeval.serve.history import History

__all__ = ["Viewer"]

#: Seconds for which a status is used again; many may look, and each look reads the database.
FRESH = 0.5

#: Events that are read at a time.
CHUNK = 1_000


class Viewer:
    """Looks at a campaign. Calls take their time and come from threads.

    Args:
        campaign: opened for this purpose only.
        clock: seconds.
    """

    def __init__(self, campaign: Campaign, clock: Callable[[], float] = time.monotonic) -> None:
        self.campaign, self._clock = campaign, clock
        self.history = History(campaign.terms)
        self._lock = threading.Lock()
        self._status: tuple[float, CampaignStatus] | None = None
        self._result: tuple[int, Evaluation] | None = None
        self._reading = threading.Lock()
        self._verifying = threading.Lock()

    def status(self, *, fresh: bool = False) -> CampaignStatus:
        """The status; at most `FRESH` seconds old, or of this moment."""
        with self._lock:
            now = self._clock()
            if self._status is None or fresh or now - self._status[0] > FRESH:
                self._status = (now, self.campaign.status())
            return self._status[1]

    def expire(self) -> None:
        """Read the status anew when it is next asked for: an operator has just changed it."""
        self._status = None

    def result(self) -> Evaluation:
        """The result by all that is finished; computed once for every event.

        Raises:
            InputError: no episode is finished.
        """
        last = self.status(fresh=True).last_event
        with self._lock:
            if self._result is None or self._result[0] != last:
                self._result = (last, self.campaign.result())
            return self._result[1]

    def result_or_none(self) -> Evaluation | None:
        """The result; None where no episode is finished."""
        try:
            return self.result()
        except InputError:
            return None

    def events(self, after: int, many: int) -> list[Event]:
        """Events after a number."""
        return self.campaign.events(after, most=many)

    def update_history(self) -> History:
        """What the page draws, with the newest events."""
        with self._reading:
            while news := self.campaign.events(self.history.last, most=CHUNK):
                for event in news:
                    self.history.fold(event)
            return self.history

    def report(self, title: str) -> bytes:
        """The report as a page."""
        return self._written("report.html", lambda path: self.campaign.report(path, title=title))

    def logs(self) -> bytes:
        """The steps of all finished episodes."""
        return bytes_of_logs(self.campaign.logs())

    def verify(self) -> Verification:
        """All decisions drawn again, one audit at a time."""
        with self._verifying:
            return self.campaign.verify()

    def episodes(self, plant: str | None) -> bytes:
        """All finished episodes, as a file of `Episodes.save`."""
        return self._written("episodes.npz", self.campaign.episodes(plant=plant).save)

    def _written(self, name: str, write: Callable[[Path], Any]) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            write(path)
            return path.read_bytes()
