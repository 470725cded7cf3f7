"""Steps: who decides them and what, and how their rows are written, compared and brought back.

A decision is a function of the journal, so that it can be drawn again.
"""

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
from scopeval.campaign import schema
from scopeval.campaign.designs import BASELINE, Designs
from scopeval.campaign.episode import Decided, Episode, Observed
from scopeval.campaign.result import signals_of
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import decode, encode
from scopeval.collection.choice import Choice, CounterStreams, Place, Target, shadow
from scopeval.collection.episode_log import check_reading
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.rollout import choose
from scopeval.errors import CampaignError, InputError
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.episode_state import EpisodeState, log_sum
from scopeval.question.promise import COST

__all__ = [
    "Chosen",
    "Deciding",
    "MixtureDeciding",
    "action_of",
    "check_same",
    "check_state",
    "episode_by_number",
    "next_log_weights",
    "observed_rows",
    "replay",
    "step_row",
    "totals_now",
    "unanswered",
    "weights_after",
    "write_decision",
    "write_outcome",
]

_steps, _episodes = schema.steps, schema.episodes

# Statements of every step, built once: building one takes longer than carrying it out.
_add_decision = sa.insert(_steps)
#: An outcome is written once: `reward` is empty before.
_add_outcome = (
    sa.update(_steps)
    .where(
        _steps.c.episode == sa.bindparam("of_episode"),
        _steps.c.step == sa.bindparam("of_step"),
        _steps.c.reward.is_(None),
    )
    .values(
        {
            name: sa.bindparam(name)
            for name in ("reward", "cost", "signals", "next_obs", "terminated", "observed")
        }
    )
)
_set_length = (
    sa.update(_episodes)
    .where(_episodes.c.number == sa.bindparam("of_episode"))
    .values({name: sa.bindparam(name) for name in ("length", "spent", "terminated")})
)
episode_by_number = sa.select(_episodes).where(_episodes.c.number == sa.bindparam("of_episode"))
_all_steps = (
    sa.select(_steps).where(_steps.c.episode == sa.bindparam("of_episode")).order_by(_steps.c.step)
)
_observed_steps = _all_steps.where(_steps.c.reward.is_not(None))
_one_step = sa.select(_steps).where(
    _steps.c.episode == sa.bindparam("of_episode"), _steps.c.step == sa.bindparam("of_step")
)


def write_decision(
    connection: sa.Connection,
    episode: Episode,
    decided: Decided,
    choice: Choice,
    would: str | None,
    now: float,
    each: Sequence[float | None] | None = None,
) -> None:
    """Write the decision of an episode's next step, with what it depended on.

    Args:
        connection: of the transaction.
        episode: that runs.
        decided: what its plant is told.
        choice: the action and its probabilities.
        would: in shadow, what the behavior policy would do.
        now: seconds since 1970.
        each: of several policies the action's probabilities under each.

    Raises:
        IntegrityError: the step was decided already.
    """
    weight = episode.weight
    weights = [math.log(weight) if weight > 0 else -math.inf]
    if episode.running is not None:
        weights = episode.running.log_weights[0].tolist()
    row = {
        "episode": episode.number,
        "step": episode.step,
        "obs": encode(decided.obs),
        "action": str(choice.action) if isinstance(choice.action, int) else encode(choice.action),
        "probability": choice.probability,
        "target_probability": choice.target_probability,
        "control": choice.control,
        "baseline": choice.baseline,
        "chooser": choice.chooser,
        "would": would,
        "decided": now,
        "log_weights": json.dumps(weights),
        "returned": episode.returned,
        "target_probabilities": None if each is None else json.dumps(each),
    }
    connection.execute(_add_decision, row)


def write_outcome(
    connection: sa.Connection, episode: Episode, outcome: Observed, t: int, now: float
) -> bool:
    """Write the outcome of a step; False: it was written already."""
    row = {
        "of_episode": episode.number,
        "of_step": t,
        "reward": outcome.reward,
        "cost": outcome.cost,
        "signals": json.dumps(dict(outcome.signals)) if outcome.signals else None,
        "next_obs": encode(outcome.next_obs),
        "terminated": outcome.terminated,
        "observed": now,
    }
    if connection.execute(_add_outcome, row).rowcount != 1:
        return False
    length = {
        "of_episode": episode.number,
        "length": t + 1,
        "spent": episode.sums.get(COST, 0.0) + outcome.cost,
        "terminated": outcome.terminated,
    }
    connection.execute(_set_length, length)
    return True


def step_row(connection: sa.Connection, number: int, t: int) -> sa.Row[Any] | None:
    """A step of an episode."""
    return connection.execute(_one_step, {"of_episode": number, "of_step": t}).one_or_none()


def observed_rows(connection: sa.Connection, number: int) -> Sequence[sa.Row[Any]]:
    """The steps of an episode whose outcomes are recorded."""
    return connection.execute(_observed_steps, {"of_episode": number}).all()


def check_same(row: sa.Row[Any] | None, number: int, outcome: Observed, t: int) -> None:
    """See that a repeated outcome is the one that was recorded.

    Raises:
        CampaignError: the step was not decided.
        InputError: another outcome.
    """
    if row is None or row.reward is None:
        raise CampaignError(f"observe: step {t} of episode {number} was not decided")
    signals = json.loads(row.signals) if row.signals else {}
    kept = (row.reward, row.cost, bool(row.terminated), signals)
    given = (outcome.reward, outcome.cost, outcome.terminated, dict(outcome.signals))
    if kept != given or row.next_obs != encode(outcome.next_obs):
        raise InputError(
            f"observe: step {t} of episode {number} has another outcome already; "
            "nothing was changed, an outcome is recorded once"
        )


def check_state(target: Target, obs: NDArray[Any], t: int) -> None:
    """See that the step after t can be decided at `obs`: the states of a table are known.

    Raises:
        InputError: it is no state of the target.
    """
    if not isinstance(target, TabularPolicy):
        return
    if obs.ndim or not 0 <= obs < target.states or int(obs) != obs:
        raise InputError(
            f"next_obs: got {obs.tolist()!r:.60} at t={t}, expected a state of the target policy, "
            f"0..{target.states - 1}; nothing was recorded, try again with a good reading, or "
            "lose() the episode"
        )


def totals_now(connection: sa.Connection, state: CampaignState) -> dict[str, float]:
    """Sums of the watched signals over all episodes, running ones included."""
    running = list(state.open)
    totals = {COST: state.spent, **state.totals}
    if not running:
        return totals
    spent = connection.execute(
        sa.select(sa.func.sum(_episodes.c.spent)).where(_episodes.c.number.in_(running))
    ).scalar()
    totals[COST] += float(spent or 0.0)
    if any(name != COST for name in state.terms.signals):
        for number in running:
            for name, (total, *_) in signals_of(observed_rows(connection, number), 1.0).items():
                totals[name] = totals.get(name, 0.0) + total
    return totals


def replay(connection: sa.Connection, episode: Episode) -> None:
    """Bring the steps of an episode back from the journal."""
    episode.step, episode.weight, episode.sums, episode.returned = 0, 1.0, {}, 0.0
    episode.decided = episode.last_obs = episode.back = episode.by = None
    episode.terminated = False
    if episode.running is not None:
        episode.running = EpisodeState.start(1, episode.running.log_weights.shape[1])
    for row in connection.execute(_all_steps, {"of_episode": episode.number}):
        if row.target_probabilities is not None:
            episode.running = EpisodeState(weights_after(row)[None], np.array([row.returned]))
        episode.weight *= row.target_probability / row.probability
        episode.take_decision(Decided(decode(row.obs), action_of(row.action), row.chooser))
        if row.reward is not None:
            signals = json.loads(row.signals) if row.signals else {}
            episode.take_outcome(
                Observed(row.reward, row.cost, decode(row.next_obs), row.terminated, signals)
            )


def weights_after(row: sa.Row[Any]) -> Floats:
    """The running weights after a decision of the mixture, log u_k [K], by what stands in its row.

    log u_k + log pi_k - log mu; a policy without an answer keeps its weight.
    """
    before = np.array(json.loads(row.log_weights), np.float64)
    return next_log_weights(before, json.loads(row.target_probabilities), row.probability)


def next_log_weights(before: Floats, each: Sequence[float | None], probability: float) -> Floats:
    """The same, of numbers."""
    probs = np.array([probability if p is None else p for p in each], np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(before + np.log(probs) - math.log(probability))


def unanswered(row: sa.Row[Any]) -> Bools:
    """Which policies gave no answer when a step was decided, [K]."""
    return np.array([p is None for p in json.loads(row.target_probabilities)], np.bool_)


def action_of(text: str) -> Any:
    """An action as `act` returns it."""
    value = decode(text)
    return int(value) if value.ndim == 0 else value


# -- who decides -----------------------------------------------------------------------------------


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
