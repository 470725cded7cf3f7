"""Steps: who decides them and what, and how their rows are written, compared and brought back.

A decision is a function of the journal, so that it can be drawn again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.campaign.designs import BASELINE, Designs
from scopeval.campaign.episode import Decided, Episode, Observed
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import EPISODES, STEPS, Store, decode, encode, reading_row
from scopeval.campaign.terms import Terms
from scopeval.collection.choice import Choice, CounterStreams, Place, Target, shadow
from scopeval.collection.episode_log import check_reading
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode, discounts
from scopeval.comparison.mixture import choose
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.evaluation.batches import summarize
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
    "digest_of",
    "earned_of",
    "episode_by_number",
    "next_log_weights",
    "observed_rows",
    "path_of",
    "read_episodes",
    "read_lost",
    "read_numbers",
    "replay",
    "step_row",
    "summary_of",
    "totals_now",
    "unanswered",
    "weights_after",
    "write_decision",
    "write_outcome",
]
#: Rows that are fetched together where all are read.
READ_TOGETHER = 1000

# Statements of every step, built once: building one takes longer than carrying it out.
_add_decision = sa.insert(STEPS)
#: An outcome is written once: `reward` is empty before.
_add_outcome = (
    sa.update(STEPS)
    .where(
        STEPS.c.episode == sa.bindparam("of_episode"),
        STEPS.c.step == sa.bindparam("of_step"),
        STEPS.c.reward.is_(None),
    )
    .values(
        {
            name: sa.bindparam(name)
            for name in ("reward", "cost", "signals", "next_obs", "terminated", "observed")
        }
    )
)
_set_length = (
    sa.update(EPISODES)
    .where(EPISODES.c.number == sa.bindparam("of_episode"))
    .values({name: sa.bindparam(name) for name in ("length", "spent", "terminated")})
)
episode_by_number = sa.select(EPISODES).where(EPISODES.c.number == sa.bindparam("of_episode"))
_all_steps = (
    sa.select(STEPS).where(STEPS.c.episode == sa.bindparam("of_episode")).order_by(STEPS.c.step)
)
_observed_steps = _all_steps.where(STEPS.c.reward.is_not(None))
_one_step = sa.select(STEPS).where(
    STEPS.c.episode == sa.bindparam("of_episode"), STEPS.c.step == sa.bindparam("of_step")
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
        sa.select(sa.func.sum(EPISODES.c.spent)).where(EPISODES.c.number.in_(running))
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


def path_of(rows: Sequence[sa.Row[Any]], signals: Sequence[str]) -> Floats:
    """[steps + 1, d] of one episode: NaN at its start, then what each step has reported."""
    path = np.full((len(rows) + 1, len(signals)), np.nan)
    for t, row in enumerate(rows, 1):
        seen = json.loads(row.signals) if row.signals else {}
        path[t] = [seen.get(name, np.nan) for name in signals]
    return path


def record_of(
    number: int, by_target: bool, rows: Sequence[sa.Row[Any]], signals: tuple[str, ...] = ()
) -> EpisodeRecord:
    """A recorded episode from its observed steps, in order, with the paths of some signals."""
    choosers = [row.chooser for row in rows]
    return EpisodeRecord(
        index=number,
        obs=[decode(row.obs) for row in rows] + [decode(row.next_obs) for row in rows[-1:]],
        action=[decode(row.action) for row in rows],
        reward=[row.reward for row in rows],
        cost=[row.cost for row in rows],
        probs=[(row.probability, row.target_probability) for row in rows],
        controls=[(row.control, row.baseline) for row in rows],
        terminated=bool(rows and rows[-1].terminated),
        by_target=by_target,
        fallbacks=sum(chooser == "fallback:failed" for chooser in choosers),
        guarded=sum(chooser in ("guard", "baseline") for chooser in choosers),
        signals=signals,
        exogenous=path_of(rows, signals) if signals else [],
    )


def signals_of(rows: Sequence[sa.Row[Any]], gamma: float) -> dict[str, list[float]]:
    """Of every signal three sums over the episode: plain, discounted, and weighted.

    The weighted one has the mean of the target policy's discounted one.
    """
    readings = [json.loads(row.signals) if row.signals else {} for row in rows]
    ratios = np.array([row.target_probability / row.probability for row in rows])
    factors = discounts(gamma, len(rows)) if rows else np.empty(0)
    weights = np.cumprod(ratios) * factors
    sums = {}
    for name in sorted({name for reading in readings for name in reading}):
        x = np.array([reading.get(name, 0.0) for reading in readings])
        sums[name] = [float(x.sum()), float(x @ factors), float(x @ weights)]
    return sums


def numbers_of(
    number: int, by_target: bool, rows: Sequence[sa.Row[Any]], horizon: int, gamma: float
) -> dict[str, Any]:
    """The numbers of a finished episode, ready for JSON."""
    record = record_of(number, by_target, rows)
    episode = Episodes.of_records([record], horizon, controlled=True)
    batch = summarize(episode, gamma, "mc" if by_target and not _controlled(rows) else "dr")
    numbers: dict[str, Any] = {
        "value": float(batch.value[0]),
        "returned": float(batch.returned[0]),
        "weight": float(batch.weight[0]),
        **{name: float(column[0]) for name, column in batch.costs.columns().items()},
        "spent": float(batch.spent[0]),
        "target_spent": float(batch.target_spent[0]),
    }
    choosers = [row.chooser for row in rows]
    reasons = [c.removeprefix("fallback:") for c in choosers if c.startswith("fallback:")]
    return numbers | {
        "by_target": by_target,
        "controlled": _controlled(rows),
        "length": len(rows),
        "asked": sum(c == "behavior" or c.startswith("fallback:") for c in choosers),
        "fallbacks": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "guarded": record.guarded,
        "signals": signals_of(rows, gamma),
    }


def summary_of(
    episode: sa.Row[Any], state: str, rows: Sequence[sa.Row[Any]], spent: float, terms: Terms
) -> dict[str, Any]:
    """What the event says that ends an episode, ready for JSON: a function of its steps.

    Args:
        episode: its row.
        state: in which it ends, "finished" or "lost".
        rows: of its observed steps.
        spent: their cost.
        terms: of the campaign.
    """
    if state == "finished" and not episode.shadow:
        return numbers_of(episode.number, episode.by_target, rows, terms.horizon, terms.gamma)
    numbers: dict[str, Any] = {"spent": spent, "signals": signals_of(rows, 1.0)}
    if episode.shadow:
        return numbers | earned_of(rows, terms.gamma)
    return numbers | {"seen": seen_of(bool(episode.by_target), rows, terms.gamma)}


def seen_of(by_target: bool, rows: Sequence[sa.Row[Any]], gamma: float) -> dict[str, Any]:
    """What is known about the costs of a lost episode, ready for JSON: sums over its steps."""
    factors = discounts(gamma, len(rows)) if rows else np.empty(0)
    ratios = np.array([row.target_probability / row.probability for row in rows])
    cost = np.array([row.cost for row in rows])
    weights = np.cumprod(ratios) * factors
    return {
        "by_target": by_target,
        "cost": float(cost @ factors),
        "weighted_cost": float(cost @ weights),
        "exposure": float(weights.sum()),
        "largest_step": float(cost.max(initial=0.0)),
    }


def earned_of(rows: Sequence[sa.Row[Any]], gamma: float) -> dict[str, float]:
    """Discounted sums of the rewards and costs of an episode that what runs today has decided."""
    factors = discounts(gamma, len(rows)) if rows else np.empty(0)
    return {
        "earned": float(np.array([row.reward for row in rows]) @ factors),
        "paid": float(np.array([row.cost for row in rows]) @ factors),
    }


def _controlled(rows: Sequence[sa.Row[Any]]) -> bool:
    return any(row.control or row.baseline for row in rows)


def digest_of(rows: Sequence[sa.Row[Any]]) -> str:
    """A hash of the observed steps of an episode, but for times: it is in the event of its end."""
    digest = hashlib.sha256()
    for row in rows:
        values = (
            *(row.step, row.obs, row.action, row.probability, row.target_probability),
            *(row.control, row.baseline, row.chooser, row.would, row.reward, row.cost),
            *(row.signals, row.next_obs, bool(row.terminated)),
            *(row.log_weights, row.returned, row.target_probabilities),
        )
        digest.update(json.dumps(values).encode())
    return digest.hexdigest()


def read_lost(connection: sa.Connection) -> list[LostEpisode]:
    """Lost and dropped episodes, in the order of their numbers."""
    rows = connection.execute(
        sa.select(EPISODES)
        .where(EPISODES.c.state.in_(("lost", "dropped")), EPISODES.c.shadow.is_(False))
        .order_by(EPISODES.c.number)
    )
    return [LostEpisode(r.number, r.length, r.reason or "no reason given", r.spent) for r in rows]


def read_numbers(connection: sa.Connection) -> list[dict[str, Any]]:
    """The numbers of all finished episodes, with and in the order of the episodes' numbers."""
    rows = connection.execute(
        sa.select(EPISODES.c.number, EPISODES.c.numbers)
        .where(EPISODES.c.state == "finished", EPISODES.c.shadow.is_(False))
        .order_by(EPISODES.c.number)
    )
    numbers = []
    for number, text in rows:
        with reading_row("the campaign", "episodes", number):
            numbers.append({"number": number, **json.loads(text)})
    return numbers


def read_episodes(
    connection: sa.Connection,
    horizon: int,
    *,
    shadow: bool = False,
    plant: str | None = None,
    signals: tuple[str, ...] = (),
) -> Episodes:
    """All finished episodes, in the order of their numbers; lost ones are listed with them."""
    chosen = sa.and_(EPISODES.c.state == "finished", EPISODES.c.shadow.is_(shadow))
    if plant is not None:
        chosen = sa.and_(chosen, EPISODES.c.plant == plant)
    rows = connection.execute(sa.select(EPISODES.c.number, EPISODES.c.by_target).where(chosen))
    by_target = {row.number: row.by_target for row in rows}
    query = (
        sa.select(STEPS)
        .join(EPISODES, EPISODES.c.number == STEPS.c.episode)
        .where(chosen, STEPS.c.reward.is_not(None))
        .order_by(STEPS.c.episode, STEPS.c.step)
    )
    steps: Any = connection.execute(query, execution_options={"yield_per": READ_TOGETHER})
    made = {  # one episode after the other: all rows together take ten times as much memory
        number: _compact(record_of(number, by_target[number], list(some), signals))
        for number, some in groupby(steps, lambda row: int(row.episode))
    }
    records = [made.get(n) or record_of(n, by_target[n], [], signals) for n in sorted(by_target)]
    controlled = any(np.any(record.controls) for record in records)
    try:
        episodes = Episodes.of_records(records, horizon, controlled=controlled)
    except MemoryError as error:
        raise DataError(
            f"{len(records):,} episodes of up to {horizon:,} steps do not fit into memory; "
            "expected fewer, try episodes(plant=...)"
        ) from error
    return episodes if plant is not None else replace(episodes, lost=tuple(read_lost(connection)))


def _compact(record: EpisodeRecord) -> EpisodeRecord:
    """The same with arrays in place of lists, which take a fifth of the memory."""
    names = ("obs", "action", "reward", "cost", "probs", "controls")
    columns: dict[str, Any] = {name: np.asarray(getattr(record, name)) for name in names}
    return replace(record, **columns)


def write_episodes(task: dict[str, Any]) -> None:
    """Write the finished episodes to a file, in a process of its own, which loads little else."""
    store = Store(task["where"], create=False)
    with store.read() as connection:
        horizon = int(store.fact(connection, "terms")["horizon"])
        read_episodes(connection, horizon, plant=task["about"]).save(task["file"])
    store.close()
