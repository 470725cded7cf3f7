"""Audits: every decision drawn again, every number computed again, every event checked; and shadow.

The random numbers of a decision are a function of the campaign's seed, its episode and its step. So
the journal, the target and the designs determine what must have been decided. The numbers of every
episode that is over are a function of its steps: they are computed again too. Every event has a
hash of itself and of the hash before it; the event that ends an episode has a hash of its steps,
the first one has a hash of the terms. So whoever edits a row must write all later events anew, and
then the head of the chain is another one: reports and webhooks have told it. Outcomes are what
plants have reported; those of a running episode are in no event yet.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign.state import CampaignState, narrowest_at
from scopeval.campaign.steps import (
    Chosen,
    Deciding,
    digest_of,
    earned_of,
    observed_rows,
    summary_of,
    weights_after,
)
from scopeval.campaign.store import (
    DESIGNS,
    EPISODES,
    EVENTS,
    FACTS,
    START,
    STEPS,
    Event,
    chained,
    kept_digests,
)
from scopeval.campaign.terms import Terms, terms_digest
from scopeval.campaign.view import ShadowReport, Verification
from scopeval.errors import InputError
from scopeval.estimation.moments import FEWEST_EVENTS, Interval
from scopeval.estimation.sequences import AsymptoticSequence

__all__ = ["shadow_report", "verify_campaign"]

#: How far probabilities may be off, for networks round differently from machine to machine.
SLACK = 1e-6
#: Most differences that are named.
NAMED = 20


class _Findings:
    """Counts differences by kind, and names the first."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: list[str] = []

    def add(self, kind: str, text: str, count: int = 1) -> None:
        """A difference."""
        self.counts[kind] += count
        if len(self.first) < NAMED:
            self.first.append(text)


def verify_campaign(
    connection: sa.Connection,
    terms: Terms,
    deciding: Deciding,
    head: str | None = None,
) -> Verification:
    """Draw all decisions again, compute all numbers again, and check all events.

    Args:
        connection: a consistent view.
        terms: of the campaign.
        deciding: decides steps as the campaign does.
        head: number:hash of an event that was told before; None: none is compared.
    """
    findings = _Findings()
    state = CampaignState(terms)
    events, last = _check_chain(connection, state, findings, head)
    _check_terms(connection, events, findings)
    over = {kind: _by_episode(events, kind) for kind in ("started", "ended", "lost", "dropped")}
    every = sa.select(EPISODES).order_by(EPISODES.c.number)
    decisions = expected = 0
    for episode in connection.execute(every).all():
        if episode.number != expected:
            gap = episode.number - expected
            findings.add("holes", f"episode {expected} is missing", gap)
        expected = episode.number + 1
        rows = connection.execute(
            sa.select(STEPS).where(STEPS.c.episode == episode.number).order_by(STEPS.c.step)
        ).all()
        text = _altered(episode, rows, {k: v.get(episode.number) for k, v in over.items()}, terms)
        if text is not None:
            findings.add("altered", f"episode {episode.number}: {text}")
        shares = state.lines[episode.number].shares if episode.number in state.lines else ()
        decisions += _check_decisions(episode, rows, deciding, shares, findings)
    if expected != state.last_episode + 1:
        findings.add(
            "holes", f"{state.last_episode + 1} episodes have started, {expected} are there"
        )
    alone = sa.select(STEPS.c.episode).where(STEPS.c.episode.not_in(sa.select(EPISODES.c.number)))
    for number in connection.execute(alone.distinct()).scalars():
        findings.add("altered", f"there are steps of episode {number}, which is not there")
    counts = findings.counts
    return Verification(
        decisions,
        counts["different"],
        counts["holes"],
        tuple(findings.first),
        counts["altered"],
        len(events),
        counts["broken"],
        last,
    )


def _check_chain(
    connection: sa.Connection, state: CampaignState, findings: _Findings, head: str | None
) -> tuple[list[Event], str]:
    """All events, and the head of their chain; the state is folded from them."""
    wanted, _, mark = (head or "").partition(":")
    if head is not None and not (wanted.isdecimal() and mark):
        raise InputError(f"head: got {head!r:.80}, expected number:hash as an audit prints it")
    before, number, events, seen = START, 0, [], head is None
    rows = connection.execute(sa.select(EVENTS).order_by(EVENTS.c.number))
    for row in rows:
        content = row._mapping
        if row.number != number + 1:
            findings.add(
                "holes", f"events are missing before {row.number}", row.number - number - 1
            )
        if row.hash != chained(before, dict(content)):
            findings.add("broken", f"event {row.number} ({row.kind}) was changed, or one before it")
        before, number = row.hash, row.number
        if wanted == str(number):
            seen = mark == row.hash
        event = Event(
            *(row.kind, row.text, row.plant, row.episode, row.who, json.loads(row.data)),
            *(row.number, row.time, row.hash),
        )
        events.append(event)
        state.fold(event)
    if not seen:
        findings.add("broken", f"event {wanted} is not the one with the hash {mark:.12}...")
    return events, f"{number}:{before}"


def _check_terms(connection: sa.Connection, events: Sequence[Event], findings: _Findings) -> None:
    """The terms and the designs are those that the events name."""
    text = connection.execute(sa.select(FACTS.c.value).where(FACTS.c.name == "terms")).scalar_one()
    kept = connection.execute(
        sa.select(DESIGNS.c.number, DESIGNS.c.fingerprint, DESIGNS.c.content)
    ).all()
    there = {str(row.number): row.fingerprint for row in kept}
    for row in kept:
        content = None if row.content is None else hashlib.sha256(row.content).hexdigest()
        if content != row.fingerprint:
            findings.add("altered", f"design {row.number}: its content was changed")
    named: dict[str, Any] = {}
    sealed: dict[str, str] = {}
    for event in events:
        sealed |= event.data.get("kept", {})
        digest = event.data.get("terms")
        if digest is not None and digest != terms_digest(text):
            findings.add("altered", "the terms were changed")
        named |= event.data.get("designs", {})
    for number, mark in named.items():
        if there.get(number, "") != mark:
            findings.add("altered", f"design {number}: another one was put in its place")
    for number in there.keys() - named.keys() if named else ():
        findings.add("altered", f"design {number}: no event has brought it")
    rows = kept_digests(connection) if sealed else {}  # older journals do not have them
    for name in sorted(rows.keys() | sealed.keys()):
        if rows.get(name) != sealed.get(name):
            findings.add("altered", f"{name}: the row was changed, added or deleted")


def _by_episode(events: Sequence[Event], kind: str) -> dict[int, list[Event]]:
    grouped: dict[int, list[Event]] = {}
    for event in events:
        if event.kind == kind and event.episode is not None:
            grouped.setdefault(event.episode, []).append(event)
    return grouped


def _check_decisions(
    episode: sa.Row[Any],
    rows: Sequence[sa.Row[Any]],
    deciding: Deciding,
    shares: Sequence[float],
    findings: _Findings,
) -> int:
    """Draw the decisions of an episode again; returns how many."""
    if episode.shadow:
        return 0
    weight, returned, drawn = 1.0, 0.0, 0
    weights = np.zeros(max(len(shares), 1))  # logs of the running weights
    for expected, row in enumerate(rows):
        if row.step != expected:
            findings.add("holes", f"episode {episode.number}: step {expected} is missing")
        try:
            text = _difference(deciding.again(episode, row, weight, shares), row)
        except InputError as error:
            if not shares:
                raise
            text = f"it cannot be drawn again ({error})"
        if row.log_weights is not None:
            kept = np.array(json.loads(row.log_weights), np.float64)
            if kept.shape != weights.shape or not np.allclose(kept, weights, SLACK, SLACK):
                text = f"its log weights are {row.log_weights:.60}, by the steps before {weights}"
            if not math.isclose(row.returned, returned, rel_tol=SLACK, abs_tol=SLACK):
                text = f"its return is {row.returned:.6g}, by the steps before {returned:.6g}"
        returned += row.reward or 0.0
        weight *= row.target_probability / row.probability
        if row.target_probabilities is not None:
            weights = weights_after(row)
        elif not shares:
            weights = np.array([math.log(weight) if weight > 0 else -math.inf])
        drawn += 1
        if text is not None:
            findings.add("different", f"episode {episode.number}, step {row.step}: {text}")
    return drawn


#: The events that end an episode, by its state.
_KINDS = {"open": [], "finished": ["ended"], "lost": ["lost"], "dropped": ["ended", "dropped"]}


def _altered(
    episode: sa.Row[Any],
    rows: Sequence[sa.Row[Any]],
    over: Mapping[str, list[Event] | None],
    terms: Terms,
) -> str | None:
    """What of an episode does not follow from its steps and its events, in words."""
    seen = [row for row in rows if row.reward is not None]
    spent = math.fsum(row.cost for row in seen)
    if not math.isclose(episode.spent, spent, rel_tol=SLACK, abs_tol=SLACK):
        return f"spent is {episode.spent:.6g}, by its steps it is {spent:.6g}"
    if episode.length != len(seen):
        return f"its length is {episode.length}, it has {len(seen)} steps"
    if bool(episode.terminated) != bool(seen and seen[-1].terminated):
        return "whether it has terminated is not what its last step says"
    kinds = [kind for kind in ("ended", "lost", "dropped") for _ in over[kind] or ()]
    if kinds != _KINDS.get(episode.state):
        return f"it is {episode.state:.40}, the events say {kinds or 'nothing'}"
    began = over["started"] or []
    if len(began) != 1 or began[0].plant != episode.plant:
        return "no event has started it on this plant"
    for name in ("design", "share", "by_target", "shadow"):
        if name in began[0].data and began[0].data[name] != getattr(episode, name):
            return f"{name} is {getattr(episode, name)}, it began with {began[0].data[name]}"
    if not kinds:
        late = (episode.numbers, episode.ended, episode.reason)
        return None if late == (None, None, None) else "it runs, and has numbers or an end"
    said = [event.text for event in over["dropped"] or over["lost"] or ()]
    if not said[0].endswith(str(episode.reason)) if said else episode.reason is not None:
        return f"its reason is {episode.reason!r:.60}, the events say another"
    end = (over["ended"] or over["lost"] or [])[0]
    if "steps" in end.data and end.data["steps"] != digest_of(seen):
        return "its steps are not those with which it ended"
    ended_as = "lost" if episode.state == "lost" else "finished"  # also where it was dropped later
    wanted = summary_of(episode, ended_as, seen, spent, terms)
    shadow: dict[str, Any] = {"shadow": bool(episode.shadow)}
    try:
        kept = json.loads(episode.numbers)
    except (TypeError, ValueError):
        return "its numbers in the table episodes are no JSON"
    for name, content, more in (("episodes", kept, {}), ("events", dict(end.data), shadow)):
        text = _unequal(content, wanted | more)
        if text is not None:
            return f"in the table {name}, {text}"
    return None


#: What journals of format 1 do not have.
_NEW = ("seen", "earned", "paid")


def _unequal(kept: Any, wanted: Any, name: str = "") -> str | None:
    """The first number that is not as it was computed again, in words."""
    if isinstance(wanted, dict) and isinstance(kept, dict):
        for key in [key for key in wanted if key not in _NEW or key in kept]:
            text = _unequal(kept.get(key), wanted[key], f"{name} {key}".strip())
            if text is not None:
                return text
        return None
    if isinstance(wanted, list) and isinstance(kept, list) and len(kept) == len(wanted):
        pairs = zip(kept, wanted, strict=True)
        return next((s for a, b in pairs if (s := _unequal(a, b, name)) is not None), None)
    plain = isinstance(wanted, int | float) and isinstance(kept, int | float)
    if plain and math.isclose(kept, wanted, rel_tol=SLACK, abs_tol=SLACK):
        return None
    return None if kept == wanted else f"{name} is {kept!r:.40}, by its steps {wanted!r:.40}"


def _difference(again: Chosen, row: sa.Row[Any]) -> str | None:
    """How a decision that was drawn again is not the one of the journal, in words."""
    action, mu, pi = again.choice.action, again.choice.probability, again.choice.target_probability
    each = None if row.target_probabilities is None else json.loads(row.target_probabilities)
    if each is not None or again.each is not None:
        drawn = [math.nan if p is None else p for p in again.each or ()]
        said = [math.nan if p is None else p for p in each or ()]
        if len(drawn) != len(said) or not np.allclose(drawn, said, 0.0, SLACK, equal_nan=True):
            return f"the probabilities of the policies are {said!r:.60}, drawn again {drawn!r:.60}"
    if again.each is not None and row.chooser != again.choice.chooser:
        return f"it was decided by the {row.chooser:.40}, drawn again by the {again.choice.chooser}"
    kept = np.asarray(json.loads(row.action))
    if np.shape(action) != kept.shape or np.abs(action - kept).max() > SLACK:
        return f"the action is {row.action:.60}, drawn again it is {action!r:.60}"
    off = max(abs(mu - row.probability), abs(pi - row.target_probability))
    return None if off <= SLACK else f"its probabilities are off by {off:.2g}"


def shadow_report(connection: sa.Connection, terms: Terms) -> ShadowReport:
    """The summary of what is in the journal."""
    texts = connection.execute(sa.select(STEPS.c.would).where(STEPS.c.would.is_not(None)))
    rows = [json.loads(text) for (text,) in texts]

    def mean(name: str) -> float | None:
        values = [row[name] for row in rows if row[name] is not None]
        return sum(values) / len(values) if values else None

    reasons = Counter(row["fallback"] for row in rows if row["fallback"] is not None)
    finished = connection.execute(
        sa.select(EPISODES.c.number)
        .join(EVENTS, sa.and_(EVENTS.c.episode == EPISODES.c.number, EVENTS.c.kind == "ended"))
        .where(EPISODES.c.state == "finished", EPISODES.c.shadow.is_(True))
        .order_by(EVENTS.c.number)
    ).scalars()
    sums = [earned_of(observed_rows(connection, n), terms.gamma) for n in finished.all()]
    return ShadowReport(
        decisions=len(rows),
        distance=mean("distance"),
        agreement=mean("probability"),
        target_agreement=mean("target_probability"),
        fallbacks=dict(reasons),
        earned=_interval([one["earned"] for one in sums], terms),
        paid=_interval([one["paid"] for one in sums], terms),
    )


def _interval(values: Sequence[float], terms: Terms) -> Interval | None:
    """An anytime-valid interval of a mean."""
    if not values:
        return None
    sequence = AsymptoticSequence(terms.alpha, narrowest_at(terms), fewest_events=FEWEST_EVENTS)
    return sequence.update(np.asarray(values, np.float64))
