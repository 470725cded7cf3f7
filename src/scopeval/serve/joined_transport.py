"""A connection that sends the head and the body of an answer together.

uvicorn writes them one after the other, and each is a call of the system of its own, which for a
short answer takes as long as all of the rest.
"""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["JoinedTransport"]

#: Bytes that wait at most.
MOST_WAITING = 65_536


class JoinedTransport(asyncio.Transport):
    """Passes on what is written in one turn of the event loop, at its end.

    Args:
        transport: of the connection.
        loop: that it belongs to.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._waiting: list[bytes] = []
        self._size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send it with what else is written now."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(bytes(data))
        self._size += len(data)
        if self._size > MOST_WAITING:
            self._flush()

    def _flush(self) -> None:
        if self._waiting and not self._transport.is_closing():
            self._transport.write(b"".join(self._waiting))
        self._waiting.clear()
        self._size = 0

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._waiting.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether it is closed, or will be."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Who is told what arrives."""
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Who is told what arrives."""
        return self._transport.get_protocol()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What is known of the connection."""
        return self._transport.get_extra_info(name, default)
