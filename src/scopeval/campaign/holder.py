"""Which program runs a plant: whoever has started or resumed an episode there last."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass

__all__ = ["Holder"]


@dataclass(frozen=True)
class Holder:
    """The program that holds a plant, as the journal has it.

    Attributes:
        word: of the program, another after every start.
        since: when it took the plant, in seconds since 1970; None: an older journal.
        machine: where it runs; None: a program behind a service, or an older journal.
        process: its number there, likewise.
        released: it has closed the campaign.
    """

    word: str
    since: float | None = None
    machine: str | None = None
    process: int | None = None
    released: bool = False

    @classmethod
    def here(cls, word: str, now: float) -> Holder:
        """This process."""
        return cls(word, now, _machine(), os.getpid())

    @classmethod
    def of_text(cls, text: str | None) -> Holder | None:
        """What `to_text` made; the words of older journals stand alone. None: nobody."""
        if text is None:
            return None
        with contextlib.suppress(ValueError, TypeError):
            if text.startswith("{"):
                return cls(**json.loads(text))
        return cls(text)

    def to_text(self) -> str:
        """For the journal."""
        return json.dumps(asdict(self))

    @property
    def here_too(self) -> bool:
        """Whether it is this process: a campaign that was opened twice, as in a notebook."""
        return self.machine == _machine() and self.process == os.getpid()

    @property
    def gone(self) -> bool:
        """Whether it surely runs no more: it has closed the campaign, or its process is dead."""
        if self.released:
            return True
        if self.machine != _machine() or not isinstance(self.process, int) or os.name != "posix":
            return False
        try:
            os.kill(self.process, 0)  # sends nothing
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            return False
        return False

    @property
    def at(self) -> str:
        """When it took the plant, and which it is, in words."""
        words = f" (process {self.process})" if self.process is not None else ""
        try:
            return f" at {time.strftime('%H:%M:%S', time.localtime(self.since))}{words}"
        except (TypeError, ValueError, OverflowError, OSError):
            return words


def _machine() -> str:
    """This machine; of containers each is one, for it numbers its processes by itself."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()
