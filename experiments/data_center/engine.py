"""EnergyPlus in a process of its own: a crash of the engine is an error message, and nothing else.

The process is started with the first day and serves one day after the other (`worker`).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from experiments.data_center.weather import Day
from scopeval.errors import MissingExtraError, PlantError

__all__ = ["Engine", "Hour", "check_installed", "weather_file"]

BUILDING = Path(__file__).with_name("building.epJSON")
WORKER = Path(__file__).with_name("worker.py")
#: The longest that an answer may take, in seconds; an hour takes some milliseconds.
PATIENCE = 120.0
#: Of glibc: keep memory from one day to the next, which halves the CPU time of a day.
MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TOP_PAD_": "67108864",
}
#: Lines of the engine's messages that an error repeats.
SHOWN = 8


@dataclass(frozen=True)
class Hour:
    """What an hour was like.

    Attributes:
        energy: of the compressor and the fan, in kWh.
        excess: degree-hours of the servers' inlet air above what is allowed.
        room: temperature of the room at its end, in °C.
        inlet: temperature of the servers' inlet air at its end.
    """

    energy: float
    excess: float
    room: float
    inlet: float


def check_installed() -> None:
    """Refuse to go on without EnergyPlus."""
    if find_spec("pyenergyplus") is None:
        raise MissingExtraError("pyenergyplus-lbnl", "energyplus", "the data center")


def weather_file(place: str) -> str:
    """Path of a weather file that the wheel ships, such as that of ``usa_ca_fresno``."""
    check_installed()
    from pyenergyplus.dataset import weather_files

    return str(weather_files[place])


class Engine:
    """Runs days in a process of its own.

    Args:
        allowed: highest temperature of the servers' inlet air that costs nothing, in °C.
        warm_up: the set point before the day begins.
    """

    def __init__(self, allowed: float, warm_up: float) -> None:
        check_installed()
        self._allowed, self._warm_up = allowed, warm_up
        self._building: dict[str, Any] = json.loads(BUILDING.read_text(encoding="utf-8"))
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._errors: IO[str] | None = None
        self._kept: Any = None
        self._unread = b""
        self._waiting = False  # the process waits for a set point
        self._fresh = False

    def begin(self, day: Day) -> Hour:
        """Start a day; returns how it begins, with no energy and no excess."""
        self.ask_day(day)
        return self.answer()

    def hour(self, set_point: float) -> Hour:
        """Run the next hour with that set point."""
        self.ask_hour(set_point)
        return self.answer()

    def launch(self) -> None:
        """Start the process, if there is none; it is not waited for."""
        if self._process is None:
            self._start()

    def ask_day(self, day: Day) -> None:
        """Start a day; `answer` then returns how it begins."""
        if self._waiting:
            self._send({"stop": True})
            self._waiting = False
            self._read()
        self.launch()
        if self._fresh:
            version = str(self._read()["version"]).split(".")
            self._building["Version"]["Version"]["version_identifier"] = ".".join(version[:2])
            self._fresh = False
        assert self._folder is not None
        folder = Path(self._folder.name)
        (folder / "day.epw").write_text(day.epw, encoding="latin-1")
        period = self._building["RunPeriod"]["Day"]
        for end in ("begin", "end"):
            period[f"{end}_month"], period[f"{end}_day_of_month"] = day.month, day.date
        (folder / "day.epJSON").write_text(json.dumps(self._building), encoding="utf-8")
        task = {
            "weather": str(folder / "day.epw"),
            "building": str(folder / "day.epJSON"),
            "folder": str(folder),
            "load": day.load.tolist(),
            "set_point": self._warm_up,
            "allowed": self._allowed,
            "steps": self._building["Timestep"]["Timestep"]["number_of_timesteps_per_hour"],
        }
        self._send(task)

    def ask_hour(self, set_point: float) -> None:
        """Run the next hour with that set point; `answer` then returns what it was like."""
        if not self._waiting:
            raise PlantError("the day is over; begin another one")
        self._waiting = False
        self._send({"set_point": set_point})

    def answer(self) -> Hour:
        """Wait for what was asked; the last answer of a day has the engine's code."""
        found = self._read()
        if found.get("code", 0) != 0:
            raise self._failure(f"EnergyPlus stopped with code {found['code']}")
        self._waiting = "code" not in found
        return Hour(found["energy"], found["excess"], found["room"], found["inlet"])

    def close(self) -> None:
        """End the process and remove its files."""
        if self._kept is not None:
            self._kept()  # only once, also when Python ends
        self._process = self._folder = self._errors = self._kept = None
        self._unread, self._waiting = b"", False

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="scopeval-energyplus-")
        self._errors = (Path(self._folder.name) / "messages.txt").open("w+", encoding="utf-8")
        # -P: this folder's names must not hide others. A session of its own: Ctrl-C is not for it
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | MEMORY,
            start_new_session=True,
        )
        self._kept = weakref.finalize(self, _end, self._process, self._folder, self._errors)
        self._fresh = True  # it tells its version first

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failure("the process of EnergyPlus has ended") from error

    def _read(self) -> dict[str, Any]:
        """The next message."""
        assert self._process is not None
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([source], [], [], PATIENCE)
            if not ready:
                raise self._failure(f"EnergyPlus gave no answer for {PATIENCE:g} s")
            piece = os.read(source, 65536)
            if not piece:
                raise self._failure("the process of EnergyPlus has ended")
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _failure(self, what: str) -> PlantError:
        """The error with the engine's own last words; the next day gets a new process."""
        said: list[str] = []
        if self._folder is not None:
            for name in ("eplusout.err", "messages.txt"):
                place = Path(self._folder.name) / name
                if place.exists():
                    lines = place.read_text(encoding="utf-8", errors="replace").splitlines()
                    grave = [x.strip() for x in lines if "Severe" in x or "Fatal" in x]
                    said += grave[:SHOWN] if name.endswith(".err") else lines[-SHOWN:]
        self.close()
        words = "\n".join(said) or "it left no message"
        return PlantError(
            f"{what}; this day is lost, the next one starts it anew. It said:\n{words}"
        )


def _end(
    process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str], errors: IO[str]
) -> None:
    """End a process by closing its input, or by force."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # it died with something unread
                pipe.close()
    try:
        process.wait(timeout=2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    errors.close()
    folder.cleanup()
