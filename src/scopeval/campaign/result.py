"""From rows of the journal to episodes, to the numbers of each, and to an `Evaluation`."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.arrays import Floats
from scopeval.campaign import schema
from scopeval.campaign.designs import BASELINE, kept_history
from scopeval.campaign.stages import budget_after, narrowest_at
from scopeval.campaign.state import CampaignState
from scopeval.campaign.store import Store, decode, reading_row
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode, discounts
from scopeval.collection.signal_paths import WithPaths
from scopeval.context.history import History
from scopeval.errors import DataError, InputError
from scopeval.evaluation.batches import Batch, summarize
from scopeval.evaluation.context_control import ContextControl
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.stage_report import Learning, precise_after
from scopeval.evaluation.stages import Stages
from scopeval.evaluation.totals import RunInfo, Totals
from scopeval.question.promise import COST, Promise
from scopeval.safety.costs import EpisodeCosts

__all__ = [
    "batch_of",
    "digest_of",
    "earned_of",
    "evaluation_of",
    "numbers_of",
    "path_of",
    "read_episodes",
    "read_lost",
    "read_numbers",
    "record_of",
    "seen_of",
    "signals_of",
    "stopped_in_words",
    "unusable",
    "write_episodes",
]

#: The numbers of a finished episode that an evaluation is made of.
NUMBERS = ("value", "returned", "weight", "spent", "target_spent")


def path_of(rows: Sequence[sa.Row[Any]], signals: Sequence[str]) -> Floats:
    """[steps + 1, d] of one episode: NaN at its start, then what each step has reported."""
    path = np.full((len(rows) + 1, len(signals)), np.nan)
    for t, row in enumerate(rows, 1):
        seen = json.loads(row.signals) if row.signals else {}
        path[t] = [seen.get(name, np.nan) for name in signals]
    return path


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


def cap_of(connection: sa.Connection) -> float:
    """The weight that no episode of the campaign's designs can exceed; inf: unknown."""
    table = schema.designs
    rows = connection.execute(
        sa.select(table.c.kind, table.c.about).where(table.c.number != BASELINE)
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
        steps=sum(one["length"] for one in numbers),
        lost=tuple(lost),
    )


def read_lost(connection: sa.Connection) -> list[LostEpisode]:
    """Lost and dropped episodes, in the order of their numbers."""
    table = schema.episodes
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state.in_(("lost", "dropped")), table.c.shadow.is_(False))
        .order_by(table.c.number)
    )
    return [LostEpisode(r.number, r.length, r.reason or "no reason given", r.spent) for r in rows]


def read_numbers(connection: sa.Connection) -> list[dict[str, Any]]:
    """The numbers of all finished episodes, with and in the order of the episodes' numbers."""
    table = schema.episodes
    rows = connection.execute(
        sa.select(table.c.number, table.c.numbers)
        .where(table.c.state == "finished", table.c.shadow.is_(False))
        .order_by(table.c.number)
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
    table = schema.episodes
    chosen = sa.and_(table.c.state == "finished", table.c.shadow.is_(shadow))
    if plant is not None:
        chosen = sa.and_(chosen, table.c.plant == plant)
    rows = connection.execute(sa.select(table.c.number, table.c.by_target).where(chosen))
    by_target = {row.number: row.by_target for row in rows}
    query = (
        sa.select(schema.steps)
        .join(table, table.c.number == schema.steps.c.episode)
        .where(chosen, schema.steps.c.reward.is_not(None))
        .order_by(schema.steps.c.episode, schema.steps.c.step)
    )
    made = {  # one episode after the other: all rows together take ten times as much memory
        number: record_of(number, by_target[number], list(some), signals)
        for number, some in groupby(connection.execute(query), lambda row: int(row.episode))
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


def write_episodes(task: dict[str, Any]) -> None:
    """Write the finished episodes to a file, in a process of its own, which loads little else."""
    store = Store(task["where"], create=False)
    with store.read() as connection:
        horizon = int(store.fact(connection, "terms")["horizon"])
        read_episodes(connection, horizon, plant=task["about"]).save(task["file"])
    store.close()


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


_Numbers = Sequence[dict[str, Any]]


def evaluation_of(connection: sa.Connection, state: CampaignState) -> Evaluation:
    """The evaluation by all finished episodes, in the order of their numbers.

    The intervals are anytime-valid: a campaign is looked at while it runs.
    """
    numbers, lost = read_numbers(connection), read_lost(connection)
    if not numbers:
        why = f"; the first was lost: {lost[0].reason}" if lost else ""
        raise InputError(f"result: no episode is finished, expected at least one{why}")
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
        anytime=True,
        uncovered=None,
        costs=any(one["spent"] for one in numbers),
        guard=None if on_policy else _guard(state),
        behavior=dict(counts) if counts["asked"] else {},
        notes=() if note is None else (note,),
    )
    if terms.refit is not None:
        return _staged(state, terms.refit, numbers, lost, run, control, episodes, cap)
    totals = Totals(
        alpha=terms.alpha,
        promise=terms.promise,
        method="sequence",
        target_n=narrowest_at(terms),
        on_policy=on_policy,
        keep=False,
        bound=terms.bound(),
        return_bound=terms.return_bound,
        context=control,
    )
    totals.add(_adjusted(batch_of(numbers, lost, cap), control, episodes))
    return totals.result(run)


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
        alpha=terms.alpha,
        promise=terms.promise,
        method="sequence",
        target_n=narrowest_at(terms),
        on_policy=False,
        keep=False,
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
    return state.done() or "the campaign is not over"


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
