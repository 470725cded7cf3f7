"""`scopeval.connect`: a campaign on another machine, with the same verbs.

A call whose answer is lost is repeated: an episode is begun once for every call of `start`, a step
is decided and observed once, and an operator's command is carried out once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import logging
import math
import os
import random
import secrets
import ssl
import tempfile
import threading
import time
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import numpy as np

from scopeval import __version__
from scopeval._files import check_place, replace_file
from scopeval.campaign.campaign import Campaign
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.episode import Decided, Episode, Observed
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms, command_of
from scopeval.campaign.transfer import episodes_of_bytes, logs_of_bytes
from scopeval.campaign.view import CampaignStatus, ShadowReport, Verification
from scopeval.collection.episodes import Episodes
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.result import Comparison
from scopeval.errors import (
    CampaignError,
    DataError,
    InputError,
    NotFoundError,
    ScopevalError,
    ServiceError,
)
from scopeval.evaluation.result import Evaluation
from scopeval.logs.transitions import Transitions

__all__ = ["HttpBackend", "connect", "from_wire", "to_wire"]

log = logging.getLogger("scopeval.serve")

#: Statuses after which a call is repeated: nothing was recorded, or it is safe to record it again.
RETRY_STATUSES = (408, 429, 502, 503, 504)

#: Seconds between attempts: doubled each time up to the last.
FIRST_WAIT, LAST_WAIT = 0.1, 5.0

#: Most bytes of an answer.
LARGEST = 2**31


def connect(
    url: str, token: str | None = None, *, timeout: float = 30.0, patience: float = 60.0
) -> Campaign:
    """A campaign that `scopeval serve` serves.

    Args:
        url: its address, such as https://campaign.example:8321.
        token: from `scopeval serve-token`; None: only to look, from the service's own machine.
        timeout: seconds that one attempt of a call may take.
        patience: seconds for which a call is repeated while the service cannot be reached.

    Raises:
        InputError: not an address.
    """
    return Campaign(HttpBackend(url, token, timeout=timeout, patience=patience))


class _ThreadLocal(threading.local):
    """The connection of a thread."""

    connection: http.client.HTTPConnection | None = None


class HttpBackend:
    """What a `Campaign` needs, from a service; threads may share it.

    Args:
        url: of the service.
        token: shown with every call; None: none is.
        timeout: seconds for one attempt.
        patience: seconds for which a call is repeated.
        sleep: waits.
        jitter: a number in [0, 1), so that many callers do not repeat at the same moment.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            self._port = parts.port
        except ValueError:
            good = False
        if not good or parts.username is not None:
            raise InputError(f"url: got {url!r:.100}, expected http://host:port or https://...")
        if token is not None and not token.isascii():
            raise InputError("token: expected the text that scopeval serve-token printed")
        self.name = url.rstrip("/")
        self.shape: tuple[int, ...] | None = None  # the service checks it
        self._host, self._root = parts.hostname or "", parts.path.rstrip("/")
        self._context = ssl.create_default_context() if parts.scheme == "https" else None
        self._timeout, self._patience = timeout, patience
        self._sleep, self._jitter = sleep, jitter
        self._local = _ThreadLocal()
        self._controller = secrets.token_hex(8)
        self._terms: Terms | None = None
        self._headers = {"User-Agent": f"scopeval/{__version__}", "Accept": "*/*"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"

    # -- episodes ------------------------------------------------------------------------------

    def start(self, plant: str, *, resume: bool, request: str | None, take_over: bool) -> Episode:
        """As of `Campaign`; a request is 8 to 64 letters, digits, - or _."""
        body = {
            "plant": plant,
            "resume": resume,
            "request": secrets.token_hex(16) if request is None else request,
            "take_over": take_over,
            "controller": self._controller,
        }
        episode = self._episode(self.post("/v1/episodes", body))
        episode.holder = self._controller
        return episode

    def resume_episode(self, plant: str) -> Episode:
        """As of `Campaign`."""
        return self._episode(self.get(f"/v1/open-episode?plant={quote(plant, safe='')}"))

    def episode(self, number: int) -> Episode:
        """As of `Campaign`."""
        return self._episode(self.get(f"/v1/episodes/{int(number)}"))

    def _episode(self, answer: dict[str, Any]) -> Episode:
        names = ("number", "plant", "design", "share", "by_target", "shadow", "horizon")
        episode = Episode(self, **{name: answer[name] for name in names})
        _fill(episode, answer)
        return episode

    def refresh(self, episode: Episode) -> None:
        """Bring an episode to what the journal says."""
        _fill(episode, self.get(f"/v1/episodes/{episode.number}"))

    def act(self, episode: Episode, t: int, obs: Any, incumbent: Any) -> Decided | None:
        """The decision of a step, which is on the service's disk."""
        body: dict[str, Any] = {"step": t, "obs": obs.tolist()}
        if incumbent is not None:
            body["incumbent"] = _plain(incumbent)
        answer = self._call(episode, "act", body)
        return self._decided(episode, t, obs, answer)

    def observe(self, episode: Episode, t: int, outcome: Observed) -> None:
        """Record an outcome."""
        answer = self._call(episode, "observe", _outcome(t, outcome))
        _count(episode, t, outcome, answer)

    def advance(self, episode: Episode, t: int, outcome: Observed) -> Decided | None:
        """An outcome and the next decision in one call, both or neither."""
        answer = self._call(episode, "advance", _outcome(t, outcome))
        _count(episode, t, outcome, answer)
        if answer["action"] is None:
            return None
        return self._decided(episode, t + 1, outcome.next_obs, answer)

    def _decided(
        self, episode: Episode, t: int, obs: Any, answer: dict[str, Any]
    ) -> Decided | None:
        if answer["action"] is None:  # control went back to the plant
            self.refresh(episode)
            return None
        decided = Decided(obs, _action(answer["action"]), answer["by"] or "behavior")
        if t == episode.step:
            episode.take_decision(decided)
        return decided

    def end(self, episode: Episode) -> None:
        """End an episode."""
        _fill(episode, self._call(episode, "end", {"steps": episode.step}))

    def lose(self, episode: Episode, reason: str) -> None:
        """Give an episode up."""
        _fill(episode, self._call(episode, "lose", {"reason": reason}))

    def _call(self, episode: Episode, verb: str, body: dict[str, Any]) -> Any:
        by = {} if episode.holder is None else {"controller": episode.holder}
        return self.post(f"/v1/episodes/{episode.number}/{verb}", body | by)

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """Nothing: the service groups calls by itself."""
        yield

    # -- commands and looking ----------------------------------------------------------------------

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """Carry out a command, under the name of the token."""
        body: dict[str, Any] = {"reason": reason, "request": secrets.token_hex(16)}
        if number is not None:
            body["episode"] = int(number)
        return bool(self.post(f"/v1/commands/{command_of(name).name}", body)["done"])

    def heartbeat(self, plant: str) -> str:
        """Note a sign of life."""
        return str(self.post("/v1/heartbeat", {"plant": plant})["state"])

    def tell_silence(self) -> list[str]:
        """As of `Campaign`; the service does this by itself every few seconds."""
        return [str(name) for name in self.post("/v1/tell-silence", {})]

    @property
    def terms(self) -> Terms:
        """Of the campaign; they never change."""
        if self._terms is None:
            self._terms = Terms.from_json(self.get("/v1/terms"))
        return self._terms

    def status(self) -> CampaignStatus:
        """The state now."""
        return from_wire(CampaignStatus, self.get("/v1/status"))

    def events(
        self,
        after: int = 0,
        *,
        most: int | None = None,
        kinds: tuple[str, ...] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """What happened after an event."""
        events: list[Event] = []
        while most is None or len(events) < most:
            limit = 1000 if most is None else min(most - len(events), 1000)
            asked: list[tuple[str, Any]] = [
                ("after", events[-1].number if events and not last else after),
                ("limit", limit),
            ]
            asked += [("kind", kind) for kind in kinds or ()] + ([("last", 1)] if last else [])
            some = self.get(f"/v1/events?{urlencode(asked)}")
            events += [from_wire(Event, one) for one in some]
            if len(some) < limit or last:
                break
        return events

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used."""
        return [from_wire(DesignRecord, one) for one in self.get("/v1/designs")]

    def episodes(self, plant: str | None) -> Episodes:
        """All finished episodes."""
        place = "/v1/episodes" + ("" if plant is None else f"?plant={quote(plant, safe='')}")
        content = self.get_bytes(place)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "episodes.npz")
            path.write_bytes(content)
            return Episodes.load(path)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and recorded steps of all episodes of a plant."""
        rows = self.get(f"/v1/plants/episodes?plant={quote(plant, safe='')}")
        return [(int(one["number"]), str(one["state"]), int(one["step"])) for one in rows]

    def verify(self, head: str | None) -> Verification:
        """An audit by the service, for operators; connect with a `timeout` that is long enough."""
        asked = "" if head is None else f"?head={quote(head, safe='')}"
        return from_wire(Verification, self.get(f"/v1/verification{asked}"))

    def logs(self) -> Transitions:
        """The steps of all finished episodes."""
        return logs_of_bytes(self.get_bytes("/v1/logs"))

    def shadow(self) -> ShadowReport:
        """Episodes in which what runs today has decided."""
        return from_wire(ShadowReport, self.get("/v1/shadow"))

    def look(self) -> bool:
        """Let the service look at the episodes of several policies, where that is due."""
        return bool(self.post("/v1/look", {})["done"])

    def mixture(self) -> MixtureEpisodes:
        """All finished episodes, with the weights of several policies."""
        return episodes_of_bytes(self.get_bytes("/v1/mixture"))

    def result(self) -> Evaluation | Comparison:
        """What the target policy is worth, or which of several is better."""
        kind: type[Any] = Comparison if self.terms.policies else Evaluation
        result: Evaluation | Comparison = from_wire(kind, self.get("/v1/result"))
        return result

    def report(self, path: str | os.PathLike[str], title: str) -> Path:
        """Write the report."""
        goal = check_place(path)
        return replace_file(goal, self.get_bytes(f"/v1/report?title={quote(title, safe='')}"))

    # -- calls ---------------------------------------------------------------------------------

    def get(self, place: str) -> Any:
        """What is at a place, decoded."""
        return json.loads(self._repeat("GET", place, None))

    def get_bytes(self, place: str) -> bytes:
        """What is at a place."""
        return self._repeat("GET", place, None)

    def post(self, place: str, body: dict[str, Any]) -> Any:
        """The answer to a call; None: it has no content."""
        content = self._repeat("POST", place, json.dumps(body).encode())
        return json.loads(content) if content else None

    def close(self) -> None:
        """Close this thread's connection."""
        if self._local.connection is not None:
            self._local.connection.close()
            self._local.connection = None

    def _repeat(self, method: str, place: str, body: bytes | None) -> bytes:
        until = time.monotonic() + self._patience
        wait, warned = FIRST_WAIT, False
        while True:
            asked: float | None = None
            fresh = self._local.connection is None  # an old connection may just have been idle
            try:
                status, content, asked = self._attempt(method, place, body)
                if 200 <= status < 300:
                    return content
                if status not in RETRY_STATUSES:
                    raise _error(status, content)
                why = f"status {status}"
            except (OSError, http.client.HTTPException) as error:
                self.close()
                why = f"{type(error).__name__}: {error}"
                if fresh and not warned:
                    warned = True
                    log.warning(
                        "%s: no answer (%s); trying again for %g seconds",
                        self.name,
                        why,
                        self._patience,
                    )
            pause = max(wait * (0.5 + self._jitter()), asked or 0.0)
            if time.monotonic() + pause > until:
                raise ServiceError(
                    f"{self.name}: no answer for {self._patience:g} seconds ({why}); the call is "
                    "safe to repeat"
                )
            self._sleep(pause)
            wait = min(2 * wait, LAST_WAIT)

    def _attempt(
        self, method: str, place: str, body: bytes | None
    ) -> tuple[int, bytes, float | None]:
        """Status, content, and the seconds that the service asks to wait."""
        if self._local.connection is None:
            self._local.connection = self._connect()
        headers = self._headers
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        self._local.connection.request(method, self._root + place, body, headers)
        answer = self._local.connection.getresponse()
        whole = min(answer.length or 0, LARGEST)
        content = answer.read(LARGEST)
        if len(content) < whole:  # `read` with a number says nothing of a connection that broke
            raise http.client.IncompleteRead(content, whole - len(content))
        later = answer.headers.get("Retry-After", "")
        return answer.status, content, float(later) if later.isdecimal() else None

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=self._context
        )


def _error(status: int, content: bytes) -> ScopevalError:
    """An answer that is not to be repeated, as an exception."""
    try:
        answer = json.loads(content)
        text, code = str(answer["detail"]), str(answer.get("code", "conflict"))
    except (ValueError, KeyError, TypeError):
        text, code = f"status {status}", "conflict"
    if status in (401, 403):
        return InputError(f"token: refused ({text})")
    if status == 404 and code == "not_found":
        return NotFoundError(text)
    if status == 409 and code == "no_result":
        return InputError(text)
    if status == 409:
        return CampaignError(text, code)
    if 400 <= status < 500:
        return InputError(text)
    return ServiceError(f"the service failed ({text}); see its log")


def _fill(episode: Episode, answer: dict[str, Any]) -> None:
    """Bring an episode to what an answer says."""
    for name in ("state", "step", "terminated", "by", "back", "halted"):
        setattr(episode, name, answer[name])
    episode.signals = tuple(answer["signals"])
    last, decided = answer["last_obs"], answer["decided"]
    episode.last_obs = None if last is None else np.asarray(last)
    episode.decided = None
    if decided is not None:
        obs, action = np.asarray(decided["obs"]), _action(decided["action"])
        episode.decided = Decided(obs, action, decided["by"])


def _outcome(t: int, outcome: Observed) -> dict[str, Any]:
    return {
        "step": t,
        "reward": outcome.reward,
        "cost": outcome.cost,
        "next_obs": outcome.next_obs.tolist(),
        "terminated": outcome.terminated,
        "signals": dict(outcome.signals),
    }


def _count(episode: Episode, t: int, outcome: Observed, answer: dict[str, Any]) -> None:
    if t == episode.step:
        episode.take_outcome(outcome)
        episode.halted = bool(answer["over"]) and not episode.complete


def _plain(value: Any) -> Any:
    """A reading ready for JSON; what is not finite is rejected here, where it can be fixed."""
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


# -- results as JSON -------------------------------------------------------------------------------


Kind = TypeVar("Kind")
_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def to_wire(value: Any) -> Any:
    """A dataclass, or what is in one, ready for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_wire(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_wire(kind: type[Kind], content: Any) -> Kind:
    """What `to_wire` was given.

    Args:
        kind: the dataclass.
        content: decoded JSON.

    Raises:
        DataError: it is not of that kind.
    """
    try:
        value: Kind = _build(kind, content)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the service's answer is not a {kind.__name__} ({error}); try the same version of "
            "scopeval on both sides"
        ) from error
    return value


def _build(kind: Any, content: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        given = {f.name for f in dataclasses.fields(kind)} & set(content)
        return kind(**{name: _build(hints[name], content[name]) for name in given})
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if content is None:
            return None
        return _build(next(one for one in inside if one is not types.NoneType), content)
    if origin is tuple:
        kinds = inside[:1] * len(content) if inside[-1:] == (...,) else inside
        return tuple(_build(each, one) for each, one in zip(kinds, content, strict=True))
    if origin is not None and isinstance(content, dict):
        return {key: _build(inside[1], one) for key, one in content.items()}
    if kind is float:
        return _NUMBERS[content] if isinstance(content, str) else float(content)
    return content
