"""Plants that call a service at the same time: one process, one connection for each."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["Load", "Mode", "drive"]

#: "act": `act` and `observe` are two calls; "advance": one; "commit": the bare endpoint.
Mode = Literal["act", "advance", "commit"]

STATES = 100


@dataclass
class Load:
    """What a load has come to.

    Attributes:
        seconds: how long it lasted.
        computed: seconds that the service computed in that time.
        decisions: answered actions, or rows.
        calls: answered calls of all kinds.
        errors: answers other than 200, and broken connections.
        waits: seconds of every call that asks for an action, or commits a row.
    """

    seconds: float = 0.0
    computed: float = 0.0
    decisions: int = 0
    calls: int = 0
    errors: list[str] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def add(self, other: Load) -> None:
        """Count another load in."""
        self.seconds += other.seconds
        self.computed += other.computed
        self.decisions += other.decisions
        self.calls += other.calls
        self.errors += other.errors
        self.waits += other.waits


class _Plant:
    """One plant with its connection."""

    def __init__(
        self, address: tuple[str, int], number: int, load: Load, until: float, token: str
    ) -> None:
        self._address, self._number, self._load, self._until = address, number, load, until
        self._rng, self._token = random.Random(number), token

    async def run(self, mode: Mode) -> None:
        """Call until the time is over."""
        try:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
            while time.perf_counter() < self._until:
                if mode == "commit":
                    await self._decide("/commit", {"step": 1, "obs": self._rng.randrange(STATES)})
                else:
                    await self._episode(mode)
            self._writer.close()
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self._load.errors.append(f"{type(error).__name__}: {error}")

    async def _episode(self, mode: Mode) -> None:
        word = secrets.token_hex(16)  # a word that was used before would find that episode
        told = await self._post("/v1/episodes", {"plant": f"plant-{self._number}", "request": word})
        place, obs = f"/v1/episodes/{told['number']}", self._rng.randrange(STATES)
        t, over, decided = 0, False, False
        while not over and time.perf_counter() < self._until:
            if not decided:
                await self._decide(f"{place}/act", {"step": t, "obs": obs})
            obs = self._rng.randrange(STATES)
            outcome = {"step": t, "reward": self._rng.random(), "cost": 1.0, "next_obs": obs}
            if mode == "advance":
                told = await self._decide(f"{place}/advance", outcome)
                decided = True
            else:
                told = await self._post(f"{place}/observe", outcome)
            over, t = bool(told.get("over", True)), t + 1
        if over:
            await self._post(f"{place}/end", {"steps": t})

    async def _decide(self, place: str, body: dict[str, Any]) -> Any:
        """A call that asks for an action."""
        began = time.perf_counter()
        told = await self._post(place, body)
        self._load.waits.append(time.perf_counter() - began)
        self._load.decisions += told.get("action", None) is not None
        return told

    async def _post(self, place: str, body: dict[str, Any]) -> Any:
        content = json.dumps(body).encode()
        head = (
            f"POST {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lower = answer.lower()
        at = lower.index(b"content-length:") + len(b"content-length:")
        told = await self._reader.readexactly(int(lower[at : lower.index(b"\r\n", at)]))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise ValueError(f"{place}: {answer[:12]!r} {told[:200]!r}")
        self._load.calls += 1
        return json.loads(told)


async def drive(
    url: str,
    plants: int,
    seconds: float,
    mode: Mode,
    token: str,
    *,
    watch: Callable[[], None] | None = None,
) -> Load:
    """Put a service under load.

    Args:
        url: of the service.
        plants: that call at the same time.
        seconds: how long.
        mode: what they call.
        token: that they show.
        watch: called every half second.
    """
    parts = urlsplit(url)
    address = (str(parts.hostname), int(parts.port or 80))
    load, began = Load(), time.perf_counter()
    tasks = [
        asyncio.create_task(_Plant(address, k, load, began + seconds, token).run(mode))
        for k in range(plants)
    ]
    while not all(task.done() for task in tasks):
        await asyncio.wait(tasks, timeout=0.5)
        if watch is not None:
            watch()
    load.seconds = time.perf_counter() - began
    return load
