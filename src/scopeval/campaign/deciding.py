"""Who decides a step, and what: the behavior policy, the target policy, or what runs today."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.campaign.designs import BASELINE, Designs
from scopeval.campaign.episode import Episode
from scopeval.campaign.state import CampaignState
from scopeval.campaign.steps import unanswered
from scopeval.campaign.store import decode
from scopeval.collection.choice import Choice, CounterStreams, Place, Target, shadow
from scopeval.collection.episode_log import check_reading
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.rollout import choose
from scopeval.errors import InputError
from scopeval.policies.episode_state import EpisodeState, log_sum

__all__ = ["Chosen", "Deciding", "MixtureDeciding"]


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


class MixtureDeciding(Deciding):
    """Decides steps by the mixture of several policies.

    Args:
        policies: of the comparison.
        designs: what is kept of them.
        streams: the random numbers.
    """

    def __init__(self, policies: PolicySet, designs: Designs, streams: CounterStreams) -> None:
        super().__init__(policies.policies[policies.baseline], designs, streams, baseline=True)
        self._policies = policies

    def choose(self, state: CampaignState, episode: Episode, obs: Any, incumbent: Any) -> Chosen:
        """The decision of an episode's next step.

        Raises:
            InputError: no policy has an answer.
        """
        t = episode.step
        if episode.shadow:
            return self._follow(episode, obs, t, incumbent)
        if state.taken_over(episode.number):
            return Chosen(self.by_baseline(episode.number, t, obs))
        if state.started > 1 or t:
            self._policies.begun()
        assert episode.running is not None
        shares = np.array(state.lines[episode.number].shares)
        return self._draw(episode.number, t, obs, episode.running, shares)

    def _draw(
        self,
        number: int,
        t: int,
        obs: NDArray[Any],
        running: EpisodeState,
        shares: Floats,
        mute: Bools | None = None,
    ) -> Chosen:
        rng = self.streams.now_at(number, t)
        uniform = np.array([rng.random()])
        made = choose(self._policies, obs[None], t, running, shares, uniform, [rng], mute)
        usable, log_probs = made.usable[0], made.log_probs[0]
        if not usable.any():
            k, reason = next(iter(made.reasons.items()))
            raise InputError(
                f"policies: none has an answer at t={t} (policies[{self._policies.names[k]!r}]: "
                f"{reason}); nothing was recorded, try again with a good reading, or lose() the "
                "episode"
            )
        with np.errstate(divide="ignore"):
            drawn = np.log(made.acting[0]) + np.where(usable, log_probs, -np.inf)
        log_mu = float(log_sum(drawn[None])[0])
        # of continuous actions densities, all relative to one number, so that none exceeds 1
        base, unit = self._policies.baseline, 0.0
        if self._policies.continuous:
            unit = log_mu - math.log(made.acting[0, base] or 1.0)
        each = [math.exp(x - unit) if ok else None for x, ok in zip(log_probs, usable, strict=True)]
        mu = math.exp(log_mu - unit)
        of_baseline = each[base]
        action: Any = made.actions[0]
        choice = Choice(
            action=int(action) if np.ndim(action) == 0 else np.asarray(action, np.float64),
            probability=mu,
            target_probability=mu if of_baseline is None else of_baseline,
            chooser="mixture",
            uniform=float(uniform[0]),
        )
        return Chosen(choice, each=tuple(each), failed=dict(made.reasons))

    def _follow(self, episode: Episode, obs: Any, t: int, incumbent: Any) -> Chosen:
        """What runs today decides."""
        if incumbent is None:
            return Chosen(self.by_baseline(episode.number, t, obs))
        return Chosen(self.by_incumbent(incumbent, t))

    def again(
        self, episode: sa.Row[Any], row: sa.Row[Any], weight: float, shares: Sequence[float]
    ) -> Chosen:
        """A decision of the journal, drawn again."""
        obs = decode(row.obs)
        if row.chooser == "baseline":
            return Chosen(self.by_baseline(episode.number, row.step, obs))
        self._policies.begun()
        before = EpisodeState(np.array([json.loads(row.log_weights)]), np.array([row.returned]))
        return self._draw(episode.number, row.step, obs, before, np.array(shares), unanswered(row))
