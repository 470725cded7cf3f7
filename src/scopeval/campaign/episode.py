"""One episode of a campaign, as a plant's control loop sees it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from scopeval.campaign import schema
from scopeval.campaign.journal import decode, encode
from scopeval.campaign.terms import Terms
from scopeval.collection.readings import check_cost_reading, check_number, check_reading
from scopeval.errors import CampaignError, InputError

__all__ = ["CampaignEpisode", "Decided", "Observed"]


class Decided(NamedTuple):
    """A decision that is on disk and whose outcome is not: obs and action."""

    obs: NDArray[Any]
    action: Any


class Observed(NamedTuple):
    """What a plant reports of a step."""

    reward: float
    cost: float
    next_obs: NDArray[Any]
    terminated: bool
    signals: Mapping[str, float]


class WritesEpisodes(Protocol):
    """What an episode needs of the recorder (`campaign.recorder`)."""

    @property
    def terms(self) -> Terms:
        """Of the campaign."""
        ...

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Of an observation."""
        ...

    def act(
        self, episode: CampaignEpisode, obs: Any, step: int | None, incumbent: Any = None
    ) -> Any:
        """Decide a step."""
        ...

    def observe(
        self,
        episode: CampaignEpisode,
        values: tuple[Any, Any, Any, Any, Mapping[str, Any]],
        step: int | None,
    ) -> None:
        """Record an outcome."""
        ...

    def end(self, episode: CampaignEpisode) -> None:
        """End it."""
        ...

    def lose(self, episode: CampaignEpisode, reason: str) -> None:
        """Give it up."""
        ...


@dataclass
class CampaignEpisode:
    """A running episode; `Campaign.start` makes it.

        episode = campaign.start(plant="hall-3")
        while not episode.over:
            action = episode.act(obs)
            obs, reward, cost, ended = plant.run(action)
            episode.observe(reward, cost, obs, terminated=ended)
        episode.end()

    Attributes:
        recorder: writes what happens.
        number: of the episode in the campaign.
        plant: where it runs.
        design: number of the design that it uses.
        share: of the behavior policy in its decisions.
        by_target: the target policy decides all of it.
        shadow: it is recorded what the behavior policy would do.
        step: number of steps whose outcome is recorded.
        weight: product of target_probability / probability so far.
        sums: of the guarded readings so far.
        decided: the decision whose outcome is awaited; None: `act` is next.
        last_obs: what was observed last; None: nothing yet.
        terminated: the last step ended it for good.
        state: "open", "finished", "lost" or "dropped".
    """

    recorder: WritesEpisodes
    number: int
    plant: str
    design: int
    share: float
    by_target: bool
    shadow: bool
    step: int = 0
    weight: float = 1.0
    sums: dict[str, float] = field(default_factory=dict)
    decided: Decided | None = None
    last_obs: NDArray[Any] | None = None
    terminated: bool = False
    state: str = "open"

    @property
    def over(self) -> bool:
        """Whether there is no further step: it terminated, or the horizon is reached."""
        return self.terminated or self.step >= self.recorder.terms.horizon or self.state != "open"

    def act(self, obs: Any, *, incumbent: Any = None, step: int | None = None) -> Any:
        """The action to take now: a number, or a vector.

        The decision and its probabilities are on disk when this returns. Called again for the same
        step, it returns the same action.

        Args:
            obs: the observation.
            incumbent: in a shadow episode, what the plant's own controller does; it is returned.
            step: number of the step, to repeat a call whose answer was lost; None: the next one.

        Raises:
            InputError: a bad reading, or another observation for a step that was decided.
            CampaignError: the episode is over.
        """
        return self.recorder.act(self, obs, step, incumbent)

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
        """
        self.recorder.observe(self, (reward, cost, next_obs, terminated, signals or {}), step)

    def end(self) -> None:
        """End the episode; it is evidence from now on. Called again, it changes nothing."""
        self.recorder.end(self)

    def lose(self, reason: str) -> None:
        """Give the episode up: it is counted as lost, with what it has cost."""
        self.recorder.lose(self, reason)

    # -- used by the campaign ------------------------------------------------------------------

    def check_next(self, step: int | None) -> int:
        """The step that `act` is about."""
        t = self.step if step is None else step
        if self.state != "open":
            raise CampaignError(f"act: episode {self.number} is {self.state}; start another one")
        if t == self.step and not self.over:
            return t
        if self.over and t >= self.step:
            raise CampaignError(
                f"act: episode {self.number} has no step {t}: it "
                + ("has terminated" if self.terminated else f"has {self.step} steps already")
                + "; expected end()"
            )
        if t > self.step:
            raise CampaignError(f"act: got step {t}, expected {self.step}: steps come in order")
        return t

    def read(self, values: tuple[Any, Any, Any, Any, Mapping[str, Any]], t: int) -> Observed:
        """Check what a plant reports of step t."""
        reward, cost, next_obs, terminated, signals = values
        terms = self.recorder.terms
        missing = [name for name in terms.signals if name not in signals]
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
            next_obs=check_reading("next_obs", next_obs, t, self.recorder.shape),
            terminated=bool(terminated),
            signals={name: check_number(name, x, t) for name, x in sorted(signals.items())},
        )

    def count(self, found: Observed) -> None:
        """Take an outcome into the sums."""
        self.step += 1
        self.decided = None
        self.terminated = found.terminated
        self.last_obs = found.next_obs
        for name, value in {"cost": found.cost, **found.signals}.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def replay(self, connection: sa.Connection) -> None:
        """Bring the steps back from the journal."""
        table = schema.steps
        self.step, self.weight, self.sums, self.decided = 0, 1.0, {}, None
        self.last_obs = None
        rows = connection.execute(
            sa.select(table).where(table.c.episode == self.number).order_by(table.c.step)
        )
        for row in rows:
            self.weight *= row.target_probability / row.probability
            self.last_obs = decode(row.obs)
            self.decided = Decided(self.last_obs, action_of(row.action))
            if row.reward is not None:
                signals = json.loads(row.signals) if row.signals else {}
                self.count(
                    Observed(row.reward, row.cost, decode(row.next_obs), row.terminated, signals)
                )


def action_of(text: str) -> Any:
    """An action as `act` returns it."""
    value = decode(text)
    return int(value) if value.ndim == 0 else value


def same(text: str, value: NDArray[Any]) -> bool:
    """Whether a reading is the one in the journal."""
    return text == encode(value)
