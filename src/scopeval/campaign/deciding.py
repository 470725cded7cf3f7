"""Who decides a step, and what: the behavior policy, the target policy, or what runs today."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from scopeval.campaign.designs import BASELINE, Designs
from scopeval.campaign.episode import Episode
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import decode
from scopeval.collection.choice import Choice, Place, Target, shadow
from scopeval.collection.counter_streams import CounterStreams
from scopeval.collection.readings import check_reading
from scopeval.errors import InputError

__all__ = ["Chosen", "Deciding"]


@dataclass(frozen=True)
class Chosen:
    """A choice.

    Attributes:
        choice: the action and its probabilities.
        would: JSON, what the behavior policy would do in shadow; None: not in shadow.
        failure: why the baseline takes the rest of the episode; None: nothing has failed.
        each: of several policies the probability of the action under each, [K], None for one that
            gave no answer; None: one policy, or the baseline decides alone.
        failed: which gave none, by number, and why.
    """

    choice: Choice
    would: str | None = None
    failure: str | None = None
    each: tuple[float | None, ...] | None = None
    failed: Mapping[int, str] = field(default_factory=dict)


class Deciding:
    """Decides steps. A decision is a function of the journal, so that it can be drawn again.

    Where the baseline decides, its ratio is 1 and it has no control variate: the episode is about
    the target policy until then, and the baseline for the rest.

    Args:
        target: pi.
        designs: the behavior policies and the baseline.
        streams: the random numbers.
        baseline: whether there is one.
    """

    def __init__(
        self, target: Target, designs: Designs, streams: CounterStreams, *, baseline: bool
    ) -> None:
        self._target, self._designs, self.streams = target, designs, streams
        self._baseline = baseline

    def choose(self, state: CampaignState, episode: Episode, obs: Any, incumbent: Any) -> Chosen:
        """The decision of an episode's next step.

        Args:
            state: of the campaign.
            episode: that runs.
            obs: what is observed.
            incumbent: in shadow, what the plant's own controller does.

        Raises:
            InputError: a policy cannot answer, or the incumbent's action is needed.
        """
        t = episode.step
        if episode.shadow:
            return self._follow(episode, obs, t, incumbent)
        taken_over = state.taken_over(episode.number)
        if taken_over and self._baseline:
            return Chosen(self.by_baseline(episode.number, t, obs))
        place = Place(
            *(episode.number, t, episode.weight, episode.by_target, taken_over, episode.share)
        )
        try:
            choice = self._designs.decider(episode.design).decide(obs, self.streams, place)
        except InputError as error:
            if not self._baseline:
                raise
            failure = f"the target policy has no answer ({error})"
        else:
            if choice.chooser != "fallback:failed" or not self._baseline:
                return Chosen(choice)
            failure = "the behavior policy has no answer"
        return Chosen(self.by_baseline(episode.number, t, obs), failure=failure)

    def by_baseline(self, number: int, t: int, obs: Any) -> Choice:
        """The baseline's own decision at a step of an episode."""
        rng = self.streams.now_at(number, t)
        return self._designs.decider(BASELINE).choose(obs, t, rng, chooser="baseline")

    def _follow(self, episode: Episode, obs: Any, t: int, incumbent: Any) -> Chosen:
        """What runs today decides, and what the behavior policy would do."""
        choice = None
        if incumbent is None and self._baseline:
            choice = self.by_baseline(episode.number, t, obs)
            incumbent = choice.action
        elif incumbent is None:
            raise InputError(
                f"incumbent: needed at t={t} of a shadow episode, expected the action that the "
                "plant's own controller takes; nothing was recorded"
            )
        taken = check_reading("incumbent", incumbent, t, None)
        behavior = self._designs.behavior(episode.design)
        rng = self.streams.at(episode.number, t)
        would = shadow(self._target, behavior, obs, t, rng, taken)
        if choice is None:
            choice = self.by_incumbent(incumbent, t, would.target_probability or 0.0)
        return Chosen(choice, json.dumps(would._asdict()))

    def by_incumbent(self, incumbent: Any, t: int, target_probability: float = 1.0) -> Choice:
        """What the plant's own controller does."""
        taken = check_reading("incumbent", incumbent, t, None)
        action = int(taken) if taken.ndim == 0 and taken.dtype.kind == "i" else taken
        return Choice(action, 1.0, target_probability, chooser="incumbent")

    def again(
        self, episode: sa.Row[Any], row: sa.Row[Any], weight: float, shares: Sequence[float]
    ) -> Chosen:
        """A decision of the journal, drawn again.

        Args:
            episode: its row.
            row: of the step.
            weight: of the episode before the step.
            shares: of several policies; (): there is one.
        """
        obs = decode(row.obs)
        if row.chooser == "baseline":
            return Chosen(self.by_baseline(episode.number, row.step, obs))
        choice = self._designs.decider(episode.design).choose(
            obs,
            row.step,
            self.streams.now_at(episode.number, row.step),
            weight=weight,
            share=episode.share,
            chooser="behavior" if row.chooser.startswith("fallback:") else row.chooser,
        )
        return Chosen(choice)
