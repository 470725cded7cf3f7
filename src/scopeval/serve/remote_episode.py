"""An episode of a campaign on another machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from scopeval.errors import InputError
from scopeval.serve.line import Line

__all__ = ["RemoteDecision", "RemoteEpisode", "episode_of"]


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


def episode_of(line: Line, told: dict[str, Any]) -> RemoteEpisode:
    """The episode that an answer describes."""
    decided = told["decided"]
    names = (
        *("number", "plant", "design", "share", "by_target", "shadow"),
        *("step", "over", "terminated"),
    )
    return RemoteEpisode(
        line,
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
