"""Rows of decisions and outcomes: how they are written, compared and brought back."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.arrays import Bools, Floats
from scopeval.campaign import schema
from scopeval.campaign.episode import Decided, Episode, Observed
from scopeval.campaign.store import decode, encode
from scopeval.collection.choice import Choice
from scopeval.errors import CampaignError, InputError
from scopeval.policies.episode_state import EpisodeState
from scopeval.question.promise import COST

__all__ = [
    "action_of",
    "check_same",
    "episode_by_number",
    "next_log_weights",
    "observed_rows",
    "replay",
    "step_row",
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
