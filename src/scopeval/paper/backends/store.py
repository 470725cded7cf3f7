"""Answers of shards as files, named by everything that the answer depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scopeval._files import write_json
from scopeval.errors import InputError
from scopeval.workers.queue import Job

__all__ = ["Store", "as_json"]

FORMAT = 1


class Store:
    """One JSON file for each answer."""

    def __init__(
        self, work: Callable[[Any], Any], folder: Path, notify: Callable[[str], None]
    ) -> None:
        self.name = f"{work.__module__}.{work.__qualname__}"
        self.folder, self.notify = folder, notify

    def key(self, shard: Any) -> str:
        """Digest of the work function's name, the shard and this package's source."""
        if not is_dataclass(shard) or isinstance(shard, type):
            raise InputError(f"shards: got {type(shard).__name__}, expected a frozen dataclass")
        kind = f"{type(shard).__module__}.{type(shard).__qualname__}"
        return _digest(as_json([FORMAT, self.name, kind, asdict(shard), source_digest()]))

    def path(self, key: str) -> Path:
        """The file of an answer."""
        return self.folder / f"{key[:24]}.json"

    def read(self, key: str, label: str) -> tuple[bool, Any]:
        """Whether the answer is there and undamaged, and the answer."""
        path = self.path(key)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["key"] == key and content["checksum"] == _digest(as_json(content["result"])):
                return True, content["result"]
            reason = "its checksum is wrong"
        except FileNotFoundError:
            return False, None
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error) or type(error).__name__
        self.notify(f"{path} ({label}) is damaged: {reason}; computing it again")
        return False, None

    def write(self, key: str, job: Job, text: str) -> Any:
        """Keep an answer, given as JSON, and return it."""
        result = json.loads(text)
        write_json(
            self.path(key),
            {
                "key": key,
                "label": job.label,
                "work": self.name,
                "config": asdict(job.content),
                "checksum": _digest(as_json(result)),
                "result": result,
            },
        )
        return result


def as_json(value: Any) -> str:
    """JSON that is the same text for the same value."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def source_digest() -> str:
    """Digest of this package's source: answers of other code are not reused."""
    root = Path(__file__).parents[2]
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
