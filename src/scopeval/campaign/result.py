"""From rows of the journal to episodes, to the numbers of each, and to an `Evaluation`."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign.designs import BASELINE
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.state import CampaignState, budget_after, narrowest_at
from scopeval.campaign.steps import (
    path_of,
    read_episodes,
    read_lost,
    read_numbers,
    unanswered,
    weights_after,
)
from scopeval.campaign.store import DESIGNS, EPISODES, STEPS, Event, decode, reading_row
from scopeval.campaign.terms import Terms
from scopeval.campaign.transfer import kept_history, kept_logs
from scopeval.campaign.view import cut_short, short_episodes
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.collection.signal_paths import WithPaths
from scopeval.comparison.compare import comparison_of
from scopeval.comparison.context import JointContext, joint_context
from scopeval.comparison.mixture import Failure, MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.result import Comparison
from scopeval.comparison.totals import Outcome, PairedSettings, look_at
from scopeval.context.history import History
from scopeval.errors import DataError, InputError
from scopeval.evaluation.batches import Batch
from scopeval.evaluation.context_control import ContextControl
from scopeval.evaluation.result import Evaluation, GuardReport, plain_numbers
from scopeval.evaluation.stage_report import Learning, precise_after
from scopeval.evaluation.stages import Stages
from scopeval.evaluation.totals import RunInfo, Totals
from scopeval.logs.transitions import Transitions
from scopeval.question.inference import Inference
from scopeval.question.promise import COST, Promise
from scopeval.safety.costs import EpisodeCosts

__all__ = ["LookThread", "compare_now", "evaluation_of", "look_now", "mixture_now"]

log = logging.getLogger("scopeval.campaign")

#: The numbers of a finished episode that an evaluation is made of.
NUMBERS = ("value", "returned", "weight", "spent", "target_spent")


def unusable(history: History, episodes: WithPaths) -> str | None:
    """Why the paths of these episodes cannot be used, in words; None: they can.

    From the first cut path on the history is left out for all episodes: those with a whole path
    are others than those without.
    """
    try:
        history.paths_of(episodes)
    except DataError as error:
        return f"the history is not used: {error}"
    return None


def cap_of(connection: sa.Connection) -> float:
    """The weight that no episode of the campaign's designs can exceed; inf: unknown."""
    rows = connection.execute(
        sa.select(DESIGNS.c.kind, DESIGNS.c.about).where(DESIGNS.c.number != BASELINE)
    )
    caps = [1.0 if r.kind == "target" else json.loads(r.about).get("cap") for r in rows]
    return max((math.inf if cap is None else float(cap) for cap in caps), default=math.inf)


def batch_of(
    numbers: Sequence[dict[str, Any]], lost: Sequence[LostEpisode], cap: float = math.inf
) -> Batch:
    """The numbers of finished episodes, as an evaluation takes them in."""
    columns = {name: np.array([one[name] for one in numbers], np.float64) for name in NUMBERS}
    return Batch(
        value=columns["value"],
        returned=columns["returned"],
        weight=columns["weight"],
        costs=replace(EpisodeCosts.of_columns(numbers), cap=cap),
        spent=columns["spent"],
        target_spent=columns["target_spent"],
        by_target=np.array([one["by_target"] for one in numbers], np.bool_),
        controlled=any(one["controlled"] for one in numbers),
        fallbacks=sum(one["fallbacks"].get("failed", 0) for one in numbers),
        guarded=sum(one["guarded"] for one in numbers),
        handed_over=sum(one["guarded"] > 0 for one in numbers),
        steps=sum(one["length"] for one in numbers),
        lost=tuple(lost),
    )


_Numbers = Sequence[dict[str, Any]]


def evaluation_of(connection: sa.Connection, state: CampaignState) -> Evaluation:
    """The evaluation by all finished episodes, in the order of their numbers.

    The intervals are anytime-valid, for a campaign is looked at while it runs; but for those of a
    number of episodes that was fixed before, once they are over (`CampaignState.anytime`).
    """
    numbers, lost = read_numbers(connection), read_lost(connection)
    if not numbers:
        why = f"; the first was lost: {lost[0].reason}" if lost else ""
        raise InputError(f"result: {_nothing_yet(state)}{why}")
    terms, cap = state.terms, cap_of(connection)
    history, episodes, note = kept_history(connection), None, None
    if history is not None:
        episodes = read_episodes(connection, terms.horizon, signals=history.signals)
        note = unusable(history, episodes)
    control = None
    if history is not None and note is None:
        control = ContextControl(history, narrowest_at(terms))
    on_policy = all(one["by_target"] for one in numbers)
    controlled = any(one["controlled"] for one in numbers)
    counts: Counter[str] = Counter()
    for one in numbers:
        counts["asked"] += one["asked"]
        counts.update({name: n for name, n in one["fallbacks"].items() if name != "failed"})
    run = RunInfo(
        estimator="mc" if on_policy and not controlled else "auto",
        stopped=stopped_in_words(state),
        anytime=state.anytime is not None,
        uncovered=None,
        costs=any(one["spent"] for one in numbers),
        guard=None if on_policy else _guard(state),
        behavior=dict(counts) if counts["asked"] else {},
        notes=(*_too_short(connection, state), *(() if note is None else (note,))),
        baseline=terms.baseline,
    )
    if terms.refit is not None:
        return _staged(state, terms.refit, numbers, lost, run, control, episodes, cap)
    totals = Totals(
        Inference(terms.alpha, interval=terms.interval, return_bound=terms.return_bound),
        terms.promise,
        target_n=narrowest_at(terms),
        on_policy=on_policy,
        bound=terms.bound(),
        context=control,
    )
    totals.add(_adjusted(batch_of(numbers, lost, cap), control, episodes))
    return totals.result(run)


def _nothing_yet(state: CampaignState) -> str:
    """Why there is no result, in words."""
    text = "no episode is finished, expected at least one"
    if not state.shadowed:
        return text
    return (
        f"{text} that the campaign has run itself: the {state.shadowed:,} finished ones were run "
        f"by what runs today, which says nothing about another policy "
        f"({state.unconfirmed or 'shadow'}); try go_live()"
    )


def _too_short(connection: sa.Connection, state: CampaignState) -> tuple[str, ...]:
    """That episodes have ended too early, in words; (): none has."""
    short = short_episodes(connection, state.terms.horizon)
    return (cut_short(short, state.finished),) if short else ()


def _never_reset(episodes: MixtureEpisodes, state: CampaignState) -> tuple[str, ...]:
    """That most episodes begin where the one before on the plant has ended; (): they do not.

    Most, and far more than by chance: where all begin alike they are reset.
    """
    before: dict[str, int] = {}
    pairs = []
    for i, number in enumerate(episodes.index.tolist()):
        plant = state.lines[number].plant
        if plant in before:
            pairs.append((before[plant], i))
        before[plant] = i
    if len(pairs) < 2:
        return ()
    earlier, later = np.array(pairs).T
    both = np.concatenate([episodes.last_obs[earlier], episodes.obs[later, 0]])
    number = np.unique(both.reshape(len(both), -1), axis=0, return_inverse=True)[1].ravel()
    ends, begins = np.split(number, 2)
    same = int((ends == begins).sum())
    chance = float(np.bincount(ends, minlength=len(both)) @ np.bincount(begins, None, len(both)))
    if 2 * same <= len(pairs) or same <= 2 * chance / len(pairs):
        return ()
    return (
        f"{same:,} of {len(pairs):,} episodes begin with the observation with which the one before "
        "on the plant has ended: what a policy leaves behind is then the next one's luck, and the "
        "answer may have the wrong sign; expected episodes that begin anew, or long blocks with a "
        "price of the last state",
    )


def _rescued(state: CampaignState) -> tuple[str, ...]:
    """That the baseline has taken over in episodes of several policies, in words; (): in none."""
    if not state.rescued:
        return ()
    return (
        f"the baseline took the rest of {state.rescued:,} of {state.finished:,} episodes "
        f"({len(state.alarms):,} alarms): the values of the other policies include its rescue",
    )


def _adjusted(batch: Batch, control: ContextControl | None, episodes: Episodes | None) -> Batch:
    """The values less what the paths of these episodes explain, by what earlier ones have shown."""
    if control is None or not len(batch.value):
        return batch
    return replace(control.of(replace(batch, episodes=episodes)), episodes=None)


def _staged(
    state: CampaignState,
    settings: Stages,
    numbers: _Numbers,
    lost: Sequence[LostEpisode],
    run: RunInfo,
    control: ContextControl | None,
    episodes: Episodes | None,
    cap: float,
) -> Evaluation:
    """The stages, combined as `evaluate` does, by the weights of the journal."""
    terms = state.terms
    totals = Totals(
        Inference(terms.alpha, interval="sequence"),
        terms.promise,
        target_n=narrowest_at(terms),
        on_policy=False,
        bound=terms.bound(),
        settings=settings,
        context=control,
    )
    segment_of = state.allotment.of
    finished = groupby(numbers, key=lambda one: segment_of(one["number"]))
    missing = {
        segment: list(some) for segment, some in groupby(lost, key=lambda x: segment_of(x.index))
    }
    segments = {segment: list(some) for segment, some in finished}
    for number, one in enumerate(state.plans[: state.allotment.segments[-1].stage + 1]):
        parts = [segment for segment in state.allotment.segments if segment.stage == number]
        totals.begin(parts[0].weight if parts else 1.0, 1.0 + one.plan.epsilon)
        for segment in parts:
            totals.reweigh(segment.weight)
            some = segments.get(segment, [])
            part = None
            if episodes is not None:
                part = episodes.select(np.isin(episodes.index, [one["number"] for one in some]))
            batch = batch_of(some, missing.get(segment, []), cap)
            totals.add(_adjusted(batch, control, part))
        refuted = state.refuted_in
        why = refuted[1] if refuted is not None and refuted[0] == number else None
        totals.end(one.plan, why, covered=True, costs=run.costs, anytime=True)
    result = totals.result(run)
    stages = result.stages
    budget = budget_after(terms, state.plans, [stage.episodes for stage in stages])
    learning = Learning(
        refits=sum(stage.designed for stage in stages),
        seconds=math.fsum(stage.seconds for stage in stages),
        stopped=state.plans[-1].stopped,
        agreements=tuple(one for plan in state.plans for one in plan.agreements),
        payback=budget.payback if terms.promise.at_most < 1.0 else None,
        precise_after=precise_after(stages),
    )
    return replace(result, learning=learning)


def stopped_in_words(state: CampaignState) -> str:
    """Why there are no more episodes, or that there are."""
    if state.stopped:
        return f"the campaign was stopped: {state.reason}"
    if state.terms.policies and state.handed_over:  # later episodes are about the baseline alone
        return f"handed over to {state.terms.policies[state.terms.reference]}: {state.reason}"
    done, why = state.done(), state.anytime
    if done is None or state.open or why is None or state.terms.interval == "sequence":
        return done or "the campaign is not over"
    return f"{done}; the interval is anytime-valid, because {why}"


def _guard(state: CampaignState) -> GuardReport | None:
    """The first promise about the cost."""
    for number, guard in enumerate(state.terms.guards):
        watch = state.watch(number)
        if isinstance(guard, Promise) and guard.signal == COST and watch is not None:
            # a promise, a limit or an operator: what came first
            ends = ("hand over", "stop")
            cause = next((why for what, why in state.reasons.items() if what in ends), None)
            to = "the baseline" if state.terms.baseline else "the target"
            return GuardReport(state.handed_over_after, watch.state, cause, to)
    return None


# -- what was recorded -----------------------------------------------------------------------------


def read_mixture(connection: sa.Connection, state: CampaignState) -> MixtureEpisodes:
    """All finished episodes, in the order of their numbers; lost ones are listed with them.

    Args:
        connection: a consistent view.
        state: a copy of the state in that view.
    """
    query = (
        sa.select(STEPS)
        .join(EPISODES, EPISODES.c.number == STEPS.c.episode)
        .where(
            EPISODES.c.state == "finished",
            EPISODES.c.shadow.is_(False),
            STEPS.c.reward.is_not(None),
        )
        .order_by(STEPS.c.episode, STEPS.c.step)
    )
    grouped: dict[int, list[sa.Row[Any]]] = {}
    for row in connection.execute(query):
        if row.episode in state.lines:  # else it began after that moment
            grouped.setdefault(row.episode, []).append(row)
    return _episodes(grouped, state, tuple(read_lost(connection)))


def mixture_now(recorder: Recorder) -> MixtureEpisodes:
    """The same, at this moment."""
    with recorder.store.read() as connection:
        with recorder.lock:
            state = recorder.state(connection).copy()
        return read_mixture(connection, state)


def _episodes(
    grouped: Mapping[int, Sequence[sa.Row[Any]]], state: CampaignState, lost: tuple[Any, ...]
) -> MixtureEpisodes:
    """Episodes from their observed steps by number."""
    terms, signals = state.terms, state.terms.context
    T, K, N = terms.horizon, len(terms.shares), len(grouped)
    first = decode(next(iter(grouped.values()))[0].obs) if grouped else np.zeros((), np.int64)
    act = decode(next(iter(grouped.values()))[0].action) if grouped else np.zeros((), np.int64)
    kind = np.int64 if np.issubdtype(first.dtype, np.integer) else np.float64
    columns: dict[str, Any] = {
        "obs": np.zeros((N, T, *first.shape), kind),
        "action": np.zeros((N, T, *act.shape), act.dtype),
        "reward": np.zeros((N, T)),
        "cost": np.zeros((N, T)),
        "weights": np.ones((N, T + 1, K)),
        "shares": np.zeros((N, K)),
        "length": np.zeros(N, np.int64),
        "last_obs": np.zeros((N, *first.shape), kind),
        "terminated": np.zeros(N, np.bool_),
        "index": np.array(list(grouped), np.int64),
        "failed": np.zeros((N, K), np.bool_),
        "back": np.zeros(N, np.int64),
    }
    paths = np.full((N, T + 1, len(signals)), np.nan)
    failures: dict[int, Failure] = {}
    for i, (number, rows) in enumerate(grouped.items()):
        columns["shares"][i] = state.lines[number].shares
        columns["length"][i] = columns["back"][i] = len(rows)
        now = np.zeros(K)
        if signals:
            paths[i, : len(rows) + 1] = path_of(rows, signals)
        for t, row in enumerate(rows):
            with reading_row("the campaign", "steps", (number, t)):
                columns["obs"][i, t], columns["action"][i, t] = decode(row.obs), decode(row.action)
                columns["reward"][i, t], columns["cost"][i, t] = row.reward, row.cost
                if row.chooser == "baseline":
                    columns["back"][i] = min(columns["back"][i], t)
                else:
                    now, mute = weights_after(row), unanswered(row)
                    columns["failed"][i, mute] = True
                    for k in np.flatnonzero(mute):
                        why = state.failed.get(int(k), "no answer")
                        failures.setdefault(int(k), Failure(int(k), number, t, why))
                columns["weights"][i, t + 1 :] = np.exp(now)
        columns["last_obs"][i] = decode(rows[-1].next_obs)
        columns["terminated"][i] = bool(rows[-1].terminated)
    return MixtureEpisodes(
        **columns,
        failures=tuple(failures.values()),
        lost=lost,
        exogenous=paths if signals else None,
        signals=signals,
    )


# -- what it shows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """What a look is made of: the state of a moment, a copy, and what was recorded until then."""

    state: CampaignState
    episodes: MixtureEpisodes
    logs: Transitions | None
    context: JointContext | None = None
    notes: tuple[str, ...] = ()


def _read(recorder: Recorder, *, due: bool = False) -> _Seen | None:
    """What there is now; None: it was asked for where it is due, and is not.

    The state is locked for a moment, and not while the rows are read: plants go on.
    """
    with recorder.store.read() as connection:
        with recorder.lock:
            state = recorder.state(connection)
            if due and not state.look_due:
                return None
            state = state.copy()
        episodes, history = read_mixture(connection, state), kept_history(connection)
        logs, notes = kept_logs(connection), []
        if logs is not None and len(episodes) and logs.obs.shape[1:] != episodes.obs.shape[2:]:
            notes.append(
                f"the logs are not used: their observations have the shape {logs.obs.shape[1:]}, "
                f"those of the episodes {episodes.obs.shape[2:]}"
            )
            logs = None
        joint = None
        if history is not None and len(episodes):
            note = unusable(history, episodes)
            notes += [note] if note else []
            joint = joint_context(history, recorder.terms.stop.episodes or 1000)
            joint = None if note else joint
        notes += [*_too_short(connection, state), *_never_reset(episodes, state)]
        return _Seen(state, episodes, logs, joint, tuple(notes))


def _outcome(recorder: Recorder, policies: PolicySet, seen: _Seen) -> Outcome:
    """Values and intervals of what was recorded."""
    terms, state, episodes = recorder.terms, seen.state, seen.episodes
    if not len(episodes):
        raise InputError(f"result: {_nothing_yet(state)}")
    settings = _settings(terms, policies, seen)
    if recorder.analyst is None:  # what is learned from logs alone is learned once
        policies.begun()
        recorder.analyst = settings.analyst(episodes)
    recorder.analyst.context = seen.context
    outcome = settings.outcome(
        episodes,
        recorder.analyst.judge(episodes),
        stopped=stopped_in_words(state),
        shares=np.array(state.next_shares()),
        anytime=True,  # a campaign is looked at while it runs
    )
    looks: list[Any] = [(look.episodes, look.differences) for look in state.looks]
    return replace(
        outcome,
        dropped=dict(state.dropped),
        decided_after=dict(state.decided_after),
        looks=looks,
    )


def _settings(terms: Terms, policies: PolicySet, seen: _Seen) -> PairedSettings:
    inference = Inference(alpha=terms.alpha, interval="sequence", return_bound=terms.return_bound)
    planned = terms.stop.episodes or 1000
    return PairedSettings(
        policies, inference, terms.gamma, planned, terms.seed, seen.logs, context=seen.context
    )


def _comparison(
    recorder: Recorder, policies: PolicySet, outcome: Outcome, seen: _Seen
) -> Comparison:
    terms = recorder.terms
    settings, fair = _settings(terms, policies, seen), np.array(terms.shares)
    costs = settings.costs(terms.watched, float(fair[policies.baseline]), terms.horizon)
    ran = f"a campaign by a mixture of episodes ({policies.in_words(fair)})"
    cautions = _rescued(seen.state)
    return comparison_of(outcome, settings, ran, costs, (*seen.notes, *cautions), cautions)


def compare_now(recorder: Recorder, policies: PolicySet) -> Comparison:
    """The comparison by all finished episodes; no lock is held while it is computed."""
    seen = _read(recorder)
    assert seen is not None
    with recorder.looking:
        return _comparison(recorder, policies, _outcome(recorder, policies, seen), seen)


def look_now(recorder: Recorder, policies: PolicySet) -> bool:
    """Look at all finished episodes, where that is due, and write what was found; False: it is not.

    It takes as long as a comparison does; no lock of the journal is held meanwhile.
    """
    with recorder.looking:
        seen = _read(recorder, due=True)
        if seen is None:
            return False
        outcome = _outcome(recorder, policies, seen)
        base, look = policies.baseline, None
        failed = seen.episodes.failed[:, : policies.asked].any(axis=0)
        active = np.asarray(seen.state.active[: policies.asked] & ~failed)
        if active[base]:
            look = look_at(outcome.inferrer, policies, active, len(seen.episodes))
            outcome.looks = [*outcome.looks, (len(seen.episodes), look.differences)]
            for k, one in look.differences.items():
                if one.decided:
                    outcome.decided_after.setdefault(k, len(seen.episodes))
            for k in look.worse:
                outcome.dropped.setdefault(k, len(seen.episodes))
        comparison = _comparison(recorder, policies, outcome, seen)
    if recorder.closed:
        return False
    data = _data(comparison, seen.state.cursor)
    data["clear"] = {str(k): after for k, after in outcome.decided_after.items()}
    if look is not None:
        data |= {"best": look.best, "alike": look.alike, "width": look.width}
        data["worse"] = list(look.worse)
        data["seen"] = {str(k): [d.estimate, d.low, d.high] for k, d in look.differences.items()}
    plain: Any = plain_numbers(data)
    with recorder.writing() as (connection, state):
        if not state.look_due:
            return False  # another process was faster
        news = _news(state, policies, outcome, comparison)
        text = f"after {comparison.episodes:,} episodes: {comparison.sentence}"
        recorder.happen(connection, Event("look", text, data=plain), *news)
    return True


def _news(
    state: CampaignState, policies: PolicySet, outcome: Outcome, comparison: Comparison
) -> list[Event]:
    """What operators want to hear of, once."""
    news = []
    for k in sorted(outcome.decided_after.keys() - state.decided_after.keys()):
        name = policies.names[k]
        text = comparison.difference_in_words(name)
        news.append(Event("decided", f"after {comparison.episodes:,} episodes: {text}"))
    for k in sorted(outcome.dropped.keys() - state.dropped.keys()):
        text = f"{policies.names[k]} runs no more episodes: another policy is surely better"
        news.append(Event("policy dropped", text))
    return news


def _data(comparison: Comparison, cursor: int) -> dict[str, Any]:
    """What a look keeps of a comparison."""
    rows = {}
    for name in comparison.names:
        v, d = comparison.values[name], comparison.differences.get(name)
        rows[name] = {
            "value": [v.estimate, v.low, v.high],
            "difference": None if d is None else [d.estimate, d.low, d.high],
            "verdict": "baseline" if d is None else d.verdict,
            "more_episodes": None if d is None else d.more_episodes,
            "decided_after": None if d is None else d.decided_after,
        }
    certificate = comparison.certificate
    return {
        "episodes": comparison.episodes,
        "upto": cursor,
        "sentence": comparison.sentence,
        "policies": rows,
        "safety": None if certificate is None else [certificate.verdict, certificate.sentence],
    }


class LookThread:
    """Looks in a thread of its own when that is due, one at a time.

    Args:
        recorder: of the campaign.
        policies: that are compared.
    """

    def __init__(self, recorder: Recorder, policies: PolicySet) -> None:
        self._recorder, self._policies = recorder, policies
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless one runs."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="scopeval-look", daemon=True)
            self._thread.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the one that runs has ended, at most so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while look_now(self._recorder, self._policies):
                pass
        except Exception as error:  # the next episode that ends tries it again
            log.warning("the episodes could not be looked at: %s", error)
