"""A process that runs EnergyPlus: started by `engine.Engine`, one line of JSON for every message.

EnergyPlus calls back at every time step. At the beginning of an hour this process reports what the
last hour was like, and waits for the next set point. It is a script of its own and imports nothing
of scopeval, so that it starts at once. When its input ends, so does the process.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, TextIO

SET_POINT, LOAD = "Supply Set Point", "Server Load"
#: What is read at every time step: name of the variable, and of the thing it belongs to.
INLET = ("ITE Air Inlet Dry-Bulb Temperature", "Servers")
ROOM = ("Zone Mean Air Temperature", "Room")
COIL = ("Cooling Coil Electricity Rate", "Cooling Coil")
FAN = ("Fan Electricity Rate", "Supply Fan")


class Run:
    """One day in EnergyPlus.

    Args:
        api: the engine's.
        task: from `Engine.begin`.
        answers: where reports are written.
    """

    def __init__(self, api: Any, task: dict[str, Any], answers: TextIO) -> None:
        self._api, self._exchange, self._task, self._answers = api, api.exchange, task, answers
        self._variables: dict[tuple[str, str], int] = {}
        self._set_point: int | None = None
        self._load: int | None = None
        self._chosen = float(task["set_point"])
        self._steps, self._joules, self._excess = 0, 0.0, 0.0
        self._room, self._inlet = 0.0, 0.0
        self.stopped = False

    def run(self) -> int:
        """Simulate the day; returns EnergyPlus's own code, 0 for success."""
        api = self._api
        state = api.state_manager.new_state()
        try:
            api.runtime.set_console_output_status(state, False)
            for name, key in (INLET, ROOM, COIL, FAN):
                self._exchange.request_variable(state, name, key)
            begin, end = fatal(self._begin), fatal(self._end)
            api.runtime.callback_begin_zone_timestep_before_init_heat_balance(state, begin)
            api.runtime.callback_end_zone_timestep_after_zone_reporting(state, end)
            task = self._task
            arguments = ["-w", task["weather"], "-d", task["folder"], task["building"]]
            return int(api.runtime.run_energyplus(state, arguments))
        finally:
            api.runtime.clear_callbacks()
            api.state_manager.delete_state(state)

    def report(self, **more: Any) -> None:
        """Write what the last hour was like."""
        found = {
            "energy": self._joules / 3.6e6,
            "excess": self._excess / 3600.0,
            "room": self._room,
            "inlet": self._inlet,
        }
        send(self._answers, found | more)
        self._joules = self._excess = 0.0

    def _begin(self, state: Any) -> None:
        """At the beginning of a time step: set points hold from here on."""
        if self.stopped or not self._exchange.api_data_fully_ready(state):
            return
        if self._set_point is None:
            self._find(state)
        warming = self._exchange.warmup_flag(state)
        each = int(self._task["steps"])
        hour = self._exchange.hour(state) if warming else self._steps // each
        if not warming and self._steps % each == 0:
            self.report()
            message = json.loads(sys.stdin.readline() or "null")
            if message is None:  # the caller is gone
                os._exit(0)
            if "stop" in message:
                self.stopped = True
                self._api.runtime.stop_simulation(state)
                return
            self._chosen = float(message["set_point"])
        self._exchange.set_actuator_value(state, self._set_point, self._chosen)
        self._exchange.set_actuator_value(state, self._load, self._task["load"][hour % 24])

    def _end(self, state: Any) -> None:
        """At the end of a time step."""
        if self._set_point is None or self.stopped:
            return
        value = {
            name: self._exchange.get_variable_value(state, handle)
            for name, handle in self._variables.items()
        }
        self._room, self._inlet = value[ROOM], value[INLET]
        if self._exchange.warmup_flag(state):
            return
        seconds = 3600.0 / int(self._task["steps"])
        self._steps += 1
        self._joules += seconds * (value[COIL] + value[FAN])
        self._excess += seconds * max(0.0, self._inlet - float(self._task["allowed"]))

    def _find(self, state: Any) -> None:
        exchange = self._exchange
        kind = ("Schedule:Constant", "Schedule Value")
        self._set_point = exchange.get_actuator_handle(state, *kind, SET_POINT)
        self._load = exchange.get_actuator_handle(state, *kind, LOAD)
        for name, key in (INLET, ROOM, COIL, FAN):
            self._variables[name, key] = exchange.get_variable_handle(state, name, key)
        handles = [self._set_point, self._load, *self._variables.values()]
        if min(handles) < 0:
            raise RuntimeError(f"the building lacks a set point or a sensor: handles {handles}")


def fatal(step: Callable[[Any], None]) -> Callable[[Any], None]:
    """A callback whose errors end the process; EnergyPlus would ignore them and go on."""

    def safely(state: Any) -> None:
        try:
            step(state)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(3)

    return safely


def send(answers: TextIO, message: dict[str, Any]) -> None:
    """One message as one line."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def main() -> None:
    """Serve days until the input ends."""
    # the engine may print: its standard output goes where errors go
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        from pyenergyplus.api import EnergyPlusAPI

        api = EnergyPlusAPI()
        send(answers, {"version": str(api.functional.ep_version())})
        for line in sys.stdin:
            run = Run(api, json.loads(line), answers)
            code = run.run()
            if run.stopped:
                send(answers, {"stopped": True})
            else:
                run.report(code=code)


if __name__ == "__main__":
    main()
