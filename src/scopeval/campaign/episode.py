"""One episode of a campaign, as a plant's control loop sees it, and what is behind it.

An `Episode` checks, counts and repeats; its backend records: in a database of this machine
(`campaign.campaign`), or in a service over HTTP (`serve.client`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms
from scopeval.campaign.view import CampaignStatus, ShadowReport, Verification
from scopeval.collection.episode_log import check_cost_reading, check_number, check_reading
from scopeval.collection.episodes import Episodes
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.result import Comparison
from scopeval.errors import CampaignError, InputError
from scopeval.evaluation.result import Evaluation
from scopeval.logs.transitions import Transitions
from scopeval.policies.episode_state import EpisodeState
from scopeval.question.promise import COST

__all__ = ["Backend", "Decided", "Episode", "Observed"]


class Decided(NamedTuple):
    """A decision that is on disk and whose outcome is not.

    Attributes:
        obs: where it was decided.
        action: what to do.
        by: who decided: "behavior", "target", "mixture" (of several policies), "guard" (the target,
            after a hand-over), "baseline", "incumbent" or "fallback:" and why the behavior policy
            fell back.
    """

    obs: NDArray[Any]
    action: Any
    by: str = "behavior"


class Observed(NamedTuple):
    """What a plant reports of a step."""

    reward: float
    cost: float
    next_obs: NDArray[Any]
    terminated: bool
    signals: Mapping[str, float]


class Backend(Protocol):
    """What records a campaign: a database of this machine, or a service over HTTP.

    The verbs of a step change the episode too. Those of a campaign are described in `Campaign`.

    Attributes:
        shape: of an observation; None: there was none yet.
    """

    shape: tuple[int, ...] | None

    @property
    def terms(self) -> Terms:
        """Of the campaign."""

    @property
    def name(self) -> str:
        """The place, without a password."""

    # of an episode

    def refresh(self, episode: Episode) -> None:
        """Bring an episode to what the journal says."""

    def act(self, episode: Episode, t: int, obs: NDArray[Any], incumbent: Any) -> Decided | None:
        """The decision of a step; None: control went back to the plant."""

    def observe(self, episode: Episode, t: int, outcome: Observed) -> None:
        """Record an outcome."""

    def advance(self, episode: Episode, t: int, outcome: Observed) -> Decided | None:
        """An outcome and the next decision, both or neither."""

    def end(self, episode: Episode) -> None:
        """End an episode."""

    def lose(self, episode: Episode, reason: str) -> None:
        """Give an episode up."""

    # of a campaign

    def start(self, plant: str, *, resume: bool, request: str | None, take_over: bool) -> Episode:
        """Begin an episode."""

    def resume_episode(self, plant: str) -> Episode:
        """The open episode of a plant."""

    def episode(self, number: int) -> Episode:
        """An episode by number."""

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """Carry out one of COMMANDS; False: there was nothing to do."""

    def heartbeat(self, plant: str) -> str:
        """Note a sign of life; the state."""

    def tell_silence(self) -> list[str]:
        """Write events about silent plants."""

    def group(self) -> contextlib.AbstractContextManager[None]:
        """One transaction."""

    def status(self) -> CampaignStatus:
        """The state now."""

    def events(
        self,
        after: int = 0,
        *,
        most: int | None = None,
        kinds: tuple[str, ...] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """What happened after an event, of some kinds, and where there are more the last ones."""

    def designs(self) -> list[DesignRecord]:
        """Behavior policies that were used."""

    def episodes(self, plant: str | None) -> Episodes:
        """All finished episodes."""

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and steps of all episodes of a plant."""

    def verify(self, head: str | None) -> Verification:
        """An audit."""

    def logs(self) -> Transitions:
        """The steps of finished episodes."""

    def shadow(self) -> ShadowReport:
        """Episodes of what runs today."""

    def look(self) -> bool:
        """Look at the episodes of several policies, where that is due."""

    def mixture(self) -> MixtureEpisodes:
        """Finished episodes with the weights of several policies."""

    def result(self) -> Evaluation | Comparison:
        """The result by all that is finished."""

    def report(self, path: str | os.PathLike[str], title: str) -> Path:
        """Write the report."""

    def close(self) -> None:
        """Close the connections."""


@dataclass
class Episode:
    """A running episode; `Campaign.start` makes it.

        episode = campaign.start(plant="hall-3", resume=True)
        while not episode.over:
            action = episode.decided.action if episode.decided else episode.act(obs)
            if action is None:
                break  # control went back to the plant's own controller
            obs, reward, cost, ended = plant.run(action)
            episode.observe(reward, cost, obs, terminated=ended)
        episode.end()

    Attributes:
        backend: records what happens.
        number: of the episode in the campaign.
        plant: where it runs.
        design: number of the design that it uses.
        share: of the behavior policy in its decisions.
        by_target: the target policy decides all of it.
        shadow: what runs today decides; it is recorded what the behavior policy would do.
        horizon: the most steps.
        signals: readings beside the cost that every `observe` must be given.
        step: number of steps whose outcome is recorded.
        decided: the decision whose outcome is awaited; None: `act` is next.
        by: who decided last (see `Decided`); None: nobody yet.
        back: the step from which on the baseline, or the plant's own controller, has control; None:
            the campaign has it.
        last_obs: what was observed last; None: nothing yet.
        terminated: the last step ended it for good.
        halted: the campaign was stopped, so that there is no further step.
        state: "open", "finished", "lost" or "dropped".
        weight: product of target_probability / probability so far; on this machine only, as are
        returned: the sum of the rewards, and
        sums: of the guarded readings so far.
        running: of several policies the running weight of each, likewise.
        who: whose calls these are, for the journal; None: a program of this machine.
        holder: word of the program that has started or resumed it; None: of none, to look at it.
    """

    backend: Backend = field(repr=False)
    number: int
    plant: str
    design: int
    share: float
    by_target: bool
    shadow: bool
    horizon: int
    signals: tuple[str, ...] = ()
    step: int = 0
    decided: Decided | None = None
    by: str | None = None
    back: int | None = None
    last_obs: NDArray[Any] | None = None
    terminated: bool = False
    halted: bool = False
    state: str = "open"
    weight: float = 1.0
    returned: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)
    running: EpisodeState | None = field(default=None, compare=False)
    who: str | None = field(default=None, compare=False)
    holder: str | None = field(default=None, compare=False)

    @property
    def complete(self) -> bool:
        """Whether it has run to its end: it terminated, or the horizon is reached."""
        return self.terminated or self.step >= self.horizon

    @property
    def over(self) -> bool:
        """Whether there is no further step: it is complete, given up, or control went back."""
        return self.complete or self.halted or self.state != "open"

    def act(self, obs: Any, *, incumbent: Any = None, step: int | None = None) -> Any:
        """The action to take now: a number, or a vector; None: control went back to the plant.

        The decision and its probabilities are on disk when this returns. Called again for the same
        step, it returns the same action. `by` says who has decided.

        Args:
            obs: the observation.
            incumbent: in a shadow episode, what the plant's own controller does; it is returned.
                With a baseline it is not needed: the baseline decides.
            step: number of the step, to repeat a call whose answer was lost; None: the next one.

        Raises:
            InputError: a bad reading, or another observation for a step that was decided.
            CampaignError: the episode is over.
            ServiceError: the service could not be reached for as long as `patience`.
        """
        if self.halted or (self.state == "lost" and self.back is not None):
            self.end()
            return None
        t = self.step if step is None else step
        problem = self._problem_of_act(t)
        if problem is not None and self.state == "open":  # another process may have gone on
            self.backend.refresh(self)
            problem = self._problem_of_act(t)
        if problem is not None:
            code = "wrong_step" if self.state == "open" else f"episode_{self.state}"
            raise CampaignError(problem, code)
        seen = check_reading("obs", obs, t, self.backend.shape)
        decided = self.backend.act(self, t, seen, incumbent)
        return None if decided is None else decided.action

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
            signals: other readings by name; those that a guard watches are needed.
            step: number of the step, to repeat a call whose answer was lost; None: the one decided.

        Raises:
            InputError: a bad reading; nothing of it was recorded.
            CampaignError: no decision awaits an outcome.
            ServiceError: the service could not be reached for as long as `patience`.
        """
        t, outcome = self._outcome((reward, cost, next_obs, terminated, signals or {}), step)
        self.backend.observe(self, t, outcome)

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
        t, outcome = self._outcome((reward, cost, next_obs, terminated, signals or {}), step)
        decided = self.backend.advance(self, t, outcome)
        return None if decided is None else decided.action

    def end(self) -> None:
        """End the episode; it is evidence from now on. Called again, it changes nothing.

        One that a stop has cut counts as lost.
        """
        if self.state == "finished" or (self.state == "lost" and self.back is not None):
            return
        self.backend.end(self)

    def lose(self, reason: str) -> None:
        """Give the episode up: it is counted as lost, with what it has cost."""
        self.backend.lose(self, str(reason) or "no reason given")

    # -- used by the backends ------------------------------------------------------------------

    def take_decision(self, decided: Decided) -> None:
        """Await the outcome of a decision."""
        self.decided, self.by, self.last_obs = decided, decided.by, decided.obs
        if decided.by.startswith("baseline") and self.back is None and not self.shadow:
            self.back = self.step

    def take_outcome(self, outcome: Observed) -> None:
        """Take an outcome into the sums."""
        self.step += 1
        self.decided = None
        self.terminated = outcome.terminated
        self.last_obs = outcome.next_obs
        self.returned += outcome.reward
        for name, value in {COST: outcome.cost, **outcome.signals}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def _problem_of_act(self, t: int) -> str | None:
        """Why a step cannot be decided; None: it can."""
        if self.state != "open":
            return f"act: episode {self.number} is {self.state}; start another one"
        if t < self.step or (t == self.step and not self.complete):
            return None
        if self.complete:
            why = "has terminated" if self.terminated else f"has {self.step} steps already"
            return f"act: episode {self.number} has no step {t}: it {why}; expected end()"
        return f"act: got step {t}, expected {self.step}: steps come in order"

    def _outcome(
        self, values: tuple[Any, Any, Any, Any, Mapping[str, Any]], step: int | None
    ) -> tuple[int, Observed]:
        """Number of the step that an outcome is about, and the outcome, checked.

        Raises:
            CampaignError: that step was not decided.
        """
        if not self._awaited(step) and self.state == "open":
            self.backend.refresh(self)  # another process may have gone on
        if step is None and self.state == "lost" and self.back is not None:
            raise CampaignError(
                f"observe: control went back to the plant at step {self.back}; nothing was "
                "recorded",
                "episode_lost",
            )
        waiting = self.decided is not None and self.state == "open"
        t = step if step is not None else self.step - (0 if waiting else 1)
        outcome = self._read(values, t)
        if not self._awaited(t):
            raise CampaignError(
                f"observe: step {t} of episode {self.number} was not decided; expected act()"
                if self.state == "open"
                else f"observe: episode {self.number} is {self.state}",
                "wrong_step" if self.state == "open" else f"episode_{self.state}",
            )
        return t, outcome

    def _awaited(self, step: int | None) -> bool:
        """Whether the outcome of a step is awaited, or was recorded."""
        waiting = self.decided is not None and self.state == "open"
        if step is None:
            return waiting
        return 0 <= step < self.step or (waiting and step == self.step)

    def _read(self, values: tuple[Any, Any, Any, Any, Mapping[str, Any]], t: int) -> Observed:
        """Check what a plant reports of step t."""
        reward, cost, next_obs, terminated, signals = values
        missing = [name for name in self.signals if name not in signals]
        if missing:
            raise InputError(
                f"signals: {', '.join(missing)} missing at t={t}, expected all that a guard "
                "watches; nothing was recorded"
            )
        if not isinstance(terminated, bool | np.bool_):
            raise InputError(f"terminated: got {terminated!r:.60} at t={t}, expected True or False")
        return Observed(
            reward=check_number("reward", reward, t),
            cost=check_cost_reading("cost", cost, t),
            next_obs=check_reading("next_obs", next_obs, t, self.backend.shape),
            terminated=bool(terminated),
            signals={name: check_number(name, x, t) for name, x in sorted(signals.items())},
        )
