"""What callers may send and are answered: bodies, rates, sizes, and how long they may take.

Everything is checked strictly; what is unknown is refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scopeval.arrays import check_whole, is_number
from scopeval.errors import InputError

__all__ = [
    "LARGEST_HEAD",
    "ActBody",
    "ActionAnswer",
    "AdvanceAnswer",
    "Body",
    "BodyLimit",
    "Code",
    "CommandBody",
    "EndBody",
    "EpisodeAnswer",
    "EpisodeNumber",
    "HeartbeatBody",
    "Limits",
    "LoseBody",
    "Name",
    "ObserveAnswer",
    "ObserveBody",
    "Problem",
    "RateLimit",
    "StartBody",
    "StateAnswer",
    "refuse",
]

_LARGEST = 2**63 - 1

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
Number = Whole | Finite
#: A state number, or a row of numbers.
Reading = Number | Annotated[list[Number], Field(max_length=8_192)]
Step = Annotated[int, Field(strict=True, ge=0, le=10_000_000)]
EpisodeNumber = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: Printable; control characters are refused.
Name = Annotated[
    str, Field(strict=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
Reason = Annotated[
    str, Field(strict=True, min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
#: Of the caller's choice; a repeated call with the same word has no further effect.
Request = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{8,64}$")]
Controller = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{0,64}$")]


class Body(BaseModel):
    """A body without fields that are not asked for."""

    model_config = ConfigDict(extra="forbid")


class StartBody(Body):
    """Begin an episode on a plant."""

    plant: Name
    request: Request
    resume: Annotated[bool, Field(strict=True)] = False
    take_over: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="Start although another controller was active lately."
    )
    controller: Controller = Field(
        default="", description="A word of the program that runs the plant; another after a start."
    )


class EpisodeBody(Body):
    """A call of the program that runs an episode."""

    controller: Controller | None = Field(
        default=None,
        description="As in the start. Where another program has taken over since, the call is "
        "refused; without it, it is not.",
    )


class ActBody(EpisodeBody):
    """Ask for the action of a step; in shadow, tell what the plant's own controller does."""

    step: Step
    obs: Reading
    incumbent: Reading | None = None


class ObserveBody(EpisodeBody):
    """Tell what the action of a step has led to."""

    step: Step
    reward: Finite
    cost: Finite
    next_obs: Reading
    terminated: Annotated[bool, Field(strict=True)] = False
    signals: Annotated[dict[Name, Finite], Field(max_length=64)] = Field(default_factory=dict)


class EndBody(EpisodeBody):
    """End an episode, which has so many steps: a call that comes too early is refused."""

    steps: Step


class LoseBody(EpisodeBody):
    """Give an episode up."""

    reason: Reason


class HeartbeatBody(Body):
    """Tell that a plant is alive."""

    plant: Name


class CommandBody(Body):
    """What an operator wants, and why; for "lose" and "drop" with the number of an episode."""

    reason: Reason
    request: Request
    episode: EpisodeNumber | None = None


class EpisodeAnswer(BaseModel):
    """An episode, as it stands in the journal."""

    number: int
    plant: str
    state: Literal["open", "finished", "lost", "dropped"]
    step: int
    over: bool
    terminated: bool
    by_target: bool
    shadow: bool
    design: int
    share: float
    horizon: int
    by: str | None = Field(description="Who decided last: behavior, target, guard, baseline, ...")
    back: int | None = Field(
        description="The step from which on the baseline, or the plant's controller, has control."
    )
    halted: bool = Field(description="The campaign was stopped: there is no further step.")
    signals: list[str] = Field(description="Readings that every observation must have.")
    last_obs: Any = Field(description="What was observed last; null: nothing yet.")
    decided: dict[str, Any] | None = Field(
        description="The decision whose outcome is awaited: obs, action and by."
    )


class ActionAnswer(BaseModel):
    """The action of a step, which is on disk; null: control went back to the plant."""

    step: int
    action: int | list[float] | None
    by: str | None
    back: int | None


class ObserveAnswer(BaseModel):
    """The outcome of a step was recorded."""

    step: int
    over: bool


class AdvanceAnswer(BaseModel):
    """The outcome was recorded, and the next action is on disk; None: the episode is over."""

    step: int
    over: bool
    action: int | list[float] | None
    by: str | None
    back: int | None


class StateAnswer(BaseModel):
    """The state of the campaign, for a plant."""

    state: Literal["running", "paused", "handed over", "stopped"]
    control: Literal["campaign", "plant"]


#: What went wrong, for programs.
Code = Literal[
    "paused",
    "stopped",
    "plan_reached",
    "plant_busy",
    "taken_over",
    "no_episode",
    "no_result",
    "conflict",
    "wrong_step",
    "episode_open",
    "episode_lost",
    "episode_finished",
    "episode_dropped",
    "not_found",
    "invalid",
    "unauthorized",
    "forbidden",
    "other_plant",
    "too_many_episodes",
    "overloaded",
    "rate",
    "too_large",
    "too_slow",
    "wrong_host",
    "database",
    "service",
    "refused",
]


class Problem(BaseModel):
    """Why a call was refused: in words, and for programs."""

    detail: str
    code: Code


# -- limits ----------------------------------------------------------------------------------------


#: Most bytes of the head of a request.
LARGEST_HEAD = 16_384


@dataclass(frozen=True)
class Limits:
    """What a caller may use.

    Attributes:
        body: most bytes of a request's body.
        rate: calls a second that a token may make, on average; twice as many at once.
        failures: wrong tokens a second from one address, likewise.
        open_episodes: most episodes that are open at a time.
        waiting: most calls that wait for the database.
        answer_seconds: longest time that a call waits for the database.
        connections: most connections at a time, and
        per_address: from one address.
        head_seconds: longest time until the head of a request is complete.
        body_seconds: longest time until its body is complete.
    """

    body: int = 65_536
    rate: float = 100.0
    failures: float = 1.0
    open_episodes: int = 1_000
    waiting: int = 10_000
    answer_seconds: float = 10.0
    connections: int = 2_000
    per_address: int = 500
    head_seconds: float = 10.0
    body_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("body", "open_episodes", "waiting", "connections", "per_address"):
            check_whole(name, getattr(self, name), 1)
        for name in ("rate", "failures", "answer_seconds", "head_seconds", "body_seconds"):
            value = getattr(self, name)
            if not (is_number(value) and value > 0):
                raise InputError(f"{name}: got {value!r}, expected a number above 0")


class RateLimit:
    """A bucket for every caller: it fills at `rate`, and holds `burst` calls.

    Args:
        rate: calls a second.
        burst: calls at once; at least 1.
        most: callers that are remembered; the one that called longest ago is forgotten.
        clock: seconds.
    """

    def __init__(
        self,
        rate: float,
        burst: float,
        most: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate, self._burst, self._most, self._clock = rate, max(burst, 1.0), most, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allow(self, who: str) -> bool:
        """Whether a call is within the rate; counts it if so."""
        level = self._level(who)
        allowed = level >= 1.0
        self._buckets[who] = (level - 1.0 if allowed else level, self._clock())
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return allowed

    def empty(self, who: str) -> bool:
        """Whether nothing is left; counts nothing."""
        return self._level(who) < 1.0

    def _level(self, who: str) -> float:
        now = self._clock()
        level, last = self._buckets.get(who, (self._burst, now))
        return min(self._burst, level + self._rate * (now - last))


class BodyLimit:
    """Reads a body before anything else sees it: 413 where it is too large, 408 where too slow.

    Args:
        app: the application.
        limits: the limits.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._large = f"the body has more than {limits.body} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        length = headers.get("content-length", "0")
        if "content-length" in headers and "transfer-encoding" in headers:
            why = "the body has two lengths: Content-Length and Transfer-Encoding"
            await refuse(400, "invalid", why, send, scope)
            return
        if not length.isdecimal() or int(length[:20]) > self._limits.body:
            await refuse(413, "too_large", self._large, send, scope)
            return
        if length == "0" and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                body = await self._read(receive)
        except TimeoutError:
            seconds = self._limits.body_seconds
            why = f"the body took longer than {seconds:g} seconds"
            await refuse(408, "too_slow", why, send, scope)
            return
        if body is None:
            await refuse(413, "too_large", self._large, send, scope)
            return
        await self._app(scope, _given(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None: it is too large."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            part = message.get("body", b"")
            size += len(part)
            if size > self._limits.body:
                return None
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read, then what the server says."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


async def refuse(status: int, code: str, why: str, send: Send, scope: Scope) -> None:
    """Answer a request whose body is not read, and close the connection."""
    content = {"detail": why, "code": code}
    answer = JSONResponse(content, status, headers={"connection": "close"})

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    await answer(scope, nothing, send)
