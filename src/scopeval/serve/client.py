"""`scopeval.connect`: a campaign on another machine, with the same verbs.

A call whose answer is lost is repeated: an episode is begun once for every call of `start`, a step
is decided and observed once, and an operator's command is carried out once.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scopeval._files import check_place, replace_file
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.journal import Event
from scopeval.campaign.log_bytes import logs_of_bytes
from scopeval.campaign.notebook_views import NotebookViews
from scopeval.campaign.shadow import ShadowReport
from scopeval.campaign.status import CampaignStatus
from scopeval.campaign.terms import Terms
from scopeval.campaign.verification import Verification
from scopeval.collection.episodes import Episodes
from scopeval.data.transitions import Transitions
from scopeval.evaluation.result import Evaluation
from scopeval.serve.line import Line
from scopeval.serve.remote_episode import RemoteEpisode, episode_of
from scopeval.serve.wire import from_wire

__all__ = ["RemoteCampaign", "connect"]


def connect(
    url: str, token: str | None = None, *, timeout: float = 30.0, patience: float = 60.0
) -> RemoteCampaign:
    """A campaign that `scopeval serve` serves.

    Args:
        url: its address, such as https://campaign.example:8321.
        token: from `scopeval serve-token`; None: the service is on this machine and has none.
        timeout: seconds that one attempt of a call may take.
        patience: seconds for which a call is repeated while the service cannot be reached.

    Raises:
        InputError: not an address.
    """
    return RemoteCampaign(Line(url, token, timeout, patience, time.sleep, random.random))


class RemoteCampaign(NotebookViews):
    """A campaign on another machine. Its methods are those of `Campaign`; threads may share it.

    Args:
        line: to the service.
    """

    def __init__(self, line: Line) -> None:
        self._line = line

    # -- plants --------------------------------------------------------------------------------

    def start(
        self, plant: str = "plant", *, resume: bool = False, request: str | None = None
    ) -> RemoteEpisode:
        """Begin an episode on a plant.

        Args:
            plant: its name.
            resume: go on with the plant's open episode, where there is one; else that is lost.
            request: 8 to 64 letters, digits, - or _; a call with the same ones returns the same
                episode. None: new ones.

        Raises:
            CampaignError: the campaign is paused, stopped, or has reached its plan.
        """
        word = secrets.token_hex(16) if request is None else request
        body = {"plant": plant, "resume": resume, "request": word}
        return episode_of(self._line, self._line.post("/v1/episodes", body))

    def resume_episode(self, plant: str = "plant") -> RemoteEpisode:
        """The plant's open episode, with all that was recorded of it.

        Raises:
            CampaignError: there is none.
        """
        place = f"/v1/open-episode?plant={quote(plant, safe='')}"
        return episode_of(self._line, self._line.get(place))

    def episode(self, number: int) -> RemoteEpisode:
        """An episode by number, as the journal has it."""
        return episode_of(self._line, self._line.get(f"/v1/episodes/{int(number)}"))

    def heartbeat(self, plant: str) -> None:
        """Tell that a plant is alive, where nothing else does for long."""
        self._line.post("/v1/heartbeat", {"plant": plant})

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> CampaignStatus:
        """The state now."""
        return from_wire(CampaignStatus, self._line.get("/v1/status"))

    @property
    def running(self) -> int:
        """Number of episodes that have started and not ended."""
        return self.status().open

    @property
    def terms(self) -> Terms:
        """What the campaign was created with."""
        return Terms.from_json(self._line.get("/v1/terms"))

    def _created_with(self) -> Terms:
        return self.terms

    def result(self, *, keep: bool = False) -> Evaluation:
        """What the target policy is worth, by all that is finished.

        Args:
            keep: keep the episodes in the result.

        Raises:
            InputError: no episode is finished.
        """
        found = from_wire(Evaluation, self._line.get("/v1/result"))
        return replace(found, episodes=self.episodes()) if keep else found

    def events(self, after: int = 0, *, most: int | None = None) -> list[Event]:
        """What happened after an event, in order; at most so many."""
        found: list[Event] = []
        while most is None or len(found) < most:
            last = found[-1].number if found else after
            limit = 1000 if most is None else min(most - len(found), 1000)
            some = self._line.get(f"/v1/events?after={int(last)}&limit={limit}")
            found += [from_wire(Event, one) for one in some]
            if len(some) < limit:
                break
        return found

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used."""
        return [from_wire(DesignRecord, one) for one in self._line.get("/v1/designs")]

    def episodes(self, *, plant: str | None = None) -> Episodes:
        """All finished episodes, in the order of their numbers, for an analysis of one's own."""
        place = "/v1/episodes" + ("" if plant is None else f"?plant={quote(plant, safe='')}")
        content = self._line.get_bytes(place)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "episodes.npz")
            path.write_bytes(content)
            return Episodes.load(path)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and recorded steps of all episodes of a plant, in order."""
        told = self._line.get(f"/v1/plants/episodes?plant={quote(plant, safe='')}")
        return [(int(one["number"]), str(one["state"]), int(one["step"])) for one in told]

    def report(self, path: str | os.PathLike[str], *, title: str = "The campaign") -> Path:
        """Write the report as one HTML page."""
        goal = check_place(path)
        return replace_file(goal, self._line.get_bytes(f"/v1/report?title={quote(title, safe='')}"))

    def shadow(self) -> ShadowReport:
        """What the behavior policy would have done in shadow episodes."""
        return from_wire(ShadowReport, self._line.get("/v1/shadow"))

    def logs(self) -> Transitions:
        """The steps of all finished episodes as logs, those of the incumbent included."""
        return logs_of_bytes(self._line.get_bytes("/v1/logs"))

    def verify(self) -> Verification:
        """Draw every decision again on the service and compare: an audit, by operators.

        It takes its time; connect with a `timeout` that is long enough.
        """
        return from_wire(Verification, self._line.get("/v1/verification"))

    # -- operators -----------------------------------------------------------------------------

    def pause(self, reason: str = "paused by an operator") -> None:
        """Start no more episodes until `resume`; running ones go on."""
        self._command("pause", reason)

    def resume(self, reason: str = "resumed by an operator") -> None:
        """Start episodes again after a pause."""
        self._command("resume", reason)

    def hand_over(self, reason: str = "by an operator") -> None:
        """Let the target policy decide from the next step on, on all plants, for good."""
        self._command("hand-over", reason)

    def stop(self, reason: str = "stopped by an operator") -> None:
        """Start no more episodes, for good; the target policy finishes running ones."""
        self._command("stop", reason)

    def go_live(self, reason: str = "by an operator") -> None:
        """End the shadow mode: episodes that start from now on are run by the campaign."""
        self._command("go-live", reason)

    def tell_silence(self) -> list[str]:
        """Write an event for every plant that has fallen silent; returns their names.

        The service does this by itself every few seconds.
        """
        return [str(name) for name in self._line.post("/v1/tell-silence", {})]

    def refit(self, reason: str = "by an operator") -> bool:
        """Let the service compute the design that is due, in a process of its own.

        The service does this by itself when an episode ends. Other than `Campaign.refit`, this does
        not wait for the design.

        Returns:
            False: none is due.
        """
        return bool(self._command("refit", reason))

    def drop(self, number: int, reason: str) -> None:
        """Take a finished episode out of the evidence; it counts as lost from now on."""
        self._command(f"episodes/{int(number)}/drop", reason)

    # -- inside --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this thread's connection."""
        self._line.close()

    def __enter__(self) -> RemoteCampaign:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteCampaign({self._line.url!r})"

    def _command(self, verb: str, reason: str) -> Any:
        body = {"reason": reason, "request": secrets.token_hex(16)}
        return self._line.post(f"/v1/{verb}", body)
