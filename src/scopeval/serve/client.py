"""`scopeval.connect`: a campaign on another machine, with the same verbs.

A call whose answer is lost is repeated: an episode is begun once for every call of `start`, a step
is decided and observed once, and an operator's command is carried out once.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from scopeval._files import check_place, replace_file
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.journal import Event
from scopeval.campaign.status import CampaignStatus
from scopeval.collection.episodes import Episodes
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation
from scopeval.serve.line import Line
from scopeval.serve.wire import from_wire

__all__ = ["RemoteCampaign", "RemoteEpisode", "connect"]


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


class RemoteDecision(NamedTuple):
    """A decision whose outcome is awaited."""

    obs: Any
    action: Any


@dataclass
class RemoteEpisode:
    """A running episode, as `Campaign.start` gives it.

    Attributes:
        number: of the episode in the campaign.
        plant: where it runs.
        design: number of the design that it uses.
        share: of the behavior policy in its decisions.
        by_target: the target policy decides all of it.
        shadow: it is recorded what the behavior policy would do.
        step: number of steps whose outcome is recorded.
        over: there is no further step.
        terminated: the last step ended it for good.
        state: "open", "finished", "lost" or "dropped".
        decided: the decision whose outcome is awaited; None: `act` is next.
    """

    _line: Line
    number: int
    plant: str
    design: int
    share: float
    by_target: bool
    shadow: bool
    step: int
    over: bool
    terminated: bool
    state: str
    decided: RemoteDecision | None

    def act(self, obs: Any, *, step: int | None = None, incumbent: Any = None) -> Any:
        """The action to take now: a number, or a vector. It is on the service's disk.

        Args:
            obs: the observation.
            step: number of the step, to repeat a call; None: the next one.
            incumbent: in shadow, the action that the plant's own controller takes.

        Raises:
            InputError: a bad reading, or another observation for a step that was decided.
            CampaignError: the episode is over.
            ServiceError: the service could not be reached for as long as `patience`.
        """
        t = self.step if step is None else step
        body = {"step": t, "obs": _plain(obs)}
        if incumbent is not None:
            body["incumbent"] = _plain(incumbent)
        told = self._call("act", body)
        action = _action(told["action"])
        if t == self.step:
            self.decided = RemoteDecision(np.asarray(obs), action)
        return action

    def observe(
        self,
        reward: float,
        cost: float,
        next_obs: Any,
        *,
        terminated: bool = False,
        signals: Mapping[str, float] | None = None,
        step: int | None = None,
    ) -> None:
        """Record what the last action led to.

        Args:
            reward: of the step.
            cost: of the step, at least 0.
            next_obs: the observation after it.
            terminated: whether the episode has ended for good.
            signals: other readings by name.
            step: number of the step, to repeat a call; None: the one decided.

        Raises:
            InputError: a bad reading; nothing of it was recorded.
            CampaignError: no decision awaits an outcome.
            ServiceError: the service could not be reached for as long as `patience`.
        """
        t = self._observed(step)
        body = _outcome(t, reward, cost, next_obs, terminated, signals)
        self._count(t, self._call("observe", body), terminated)

    def advance(
        self,
        reward: float,
        cost: float,
        next_obs: Any,
        *,
        terminated: bool = False,
        signals: Mapping[str, float] | None = None,
        step: int | None = None,
    ) -> Any:
        """`observe`, and `act` at `next_obs`, in one call; both are recorded, or nothing.

        Returns:
            The next action; None: the episode is over.
        """
        t = self._observed(step)
        body = _outcome(t, reward, cost, next_obs, terminated, signals)
        told = self._call("advance", body)
        self._count(t, told, terminated)
        if told["action"] is None:
            return None
        action = _action(told["action"])
        if t + 1 == self.step:
            self.decided = RemoteDecision(np.asarray(next_obs), action)
        return action

    def end(self) -> None:
        """End the episode; it is evidence from now on. Called again, it changes nothing."""
        self.state = self._call("end", {"steps": self.step})["state"]

    def lose(self, reason: str) -> None:
        """Give the episode up: it is counted as lost, with what it has cost."""
        self.state = self._call("lose", {"reason": str(reason) or "no reason given"})["state"]

    def _call(self, verb: str, body: dict[str, Any]) -> Any:
        return self._line.post(f"/v1/episodes/{self.number}/{verb}", body)

    def _observed(self, step: int | None) -> int:
        if step is not None:
            return step
        return self.step if self.decided is not None else max(self.step - 1, 0)

    def _count(self, t: int, told: dict[str, Any], terminated: bool) -> None:
        if t == self.step:
            self.step, self.decided, self.terminated = t + 1, None, bool(terminated)
        self.over = bool(told["over"])


class RemoteCampaign:
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
        return self._episode(self._line.post("/v1/episodes", body))

    def episode(self, number: int) -> RemoteEpisode:
        """An episode by number, as the journal has it."""
        return self._episode(self._line.get(f"/v1/episodes/{int(number)}"))

    def heartbeat(self, plant: str) -> None:
        """Tell that a plant is alive, where nothing else does for long."""
        self._line.post("/v1/heartbeat", {"plant": plant})

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> CampaignStatus:
        """The state now."""
        return from_wire(CampaignStatus, self._line.get("/v1/status"))

    def result(self) -> Evaluation:
        """What the target policy is worth, by all that is finished.

        Raises:
            InputError: no episode is finished.
        """
        return from_wire(Evaluation, self._line.get("/v1/result"))

    def events(self, after: int = 0) -> list[Event]:
        """What happened, in order."""
        found: list[Event] = []
        while True:
            last = found[-1].number if found else after
            some = self._line.get(f"/v1/events?after={int(last)}&limit=1000")
            found += [from_wire(Event, one) for one in some]
            if len(some) < 1000:
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

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report as one HTML page."""
        goal = check_place(path)
        return replace_file(goal, self._line.get_bytes("/v1/report"))

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

    def drop(self, number: int, reason: str) -> None:
        """Take a finished episode out of the evidence; it counts as lost from now on."""
        self._command(f"episodes/{int(number)}/drop", reason)

    # -- inside --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close this thread's connection."""
        self._line.close()

    def __enter__(self) -> RemoteCampaign:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RemoteCampaign({self._line.url!r})"

    def _command(self, verb: str, reason: str) -> None:
        self._line.post(f"/v1/{verb}", {"reason": reason, "request": secrets.token_hex(16)})

    def _episode(self, told: dict[str, Any]) -> RemoteEpisode:
        decided = told["decided"]
        names = (
            *("number", "plant", "design", "share", "by_target", "shadow"),
            *("step", "over", "terminated"),
        )
        return RemoteEpisode(
            self._line,
            **{name: told[name] for name in names},
            state=told["state"],
            decided=None
            if decided is None
            else RemoteDecision(np.asarray(decided["obs"]), _action(decided["action"])),
        )


def _outcome(
    t: int,
    reward: float,
    cost: float,
    next_obs: Any,
    terminated: bool,
    signals: Mapping[str, float] | None,
) -> dict[str, Any]:
    return {
        "step": t,
        "reward": _plain(reward),
        "cost": _plain(cost),
        "next_obs": _plain(next_obs),
        "terminated": _plain(terminated),
        "signals": {name: _plain(value) for name, value in (signals or {}).items()},
    }


def _plain(value: Any) -> Any:
    """A reading ready for JSON; what is not finite is refused here, where the remedy is."""
    plain = np.asarray(value).tolist()
    try:
        json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"got {value!r:.60}, expected finite numbers; nothing was recorded, try again with a "
            "good reading, or lose() the episode"
        ) from error
    return plain


def _action(value: Any) -> Any:
    return value if isinstance(value, int) else np.asarray(value, np.float64)
