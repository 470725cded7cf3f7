"""Campaigns over several policies: what was recorded, and what it shows.

Episodes are those of a mixture (`scopeval.comparison`): the shares of an episode are fixed when it
starts, and the running weight of every policy stands in the journal with each decision. From time
to time all finished episodes are looked at, outside of any transaction; what was found is an event,
and the shares of later episodes follow from it.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval._archive import open_archive, pack, reading
from scopeval.arrays import Bools, Floats
from scopeval.campaign import schema
from scopeval.campaign.designs import kept_history, logs_of_bytes
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.result import path_of, read_lost, stopped_in_words, unusable
from scopeval.campaign.state import CampaignState
from scopeval.campaign.steps import unanswered, weights_after
from scopeval.campaign.store import Event, decode, reading_row
from scopeval.campaign.terms import Terms
from scopeval.comparison.affordable import DesignPolicy
from scopeval.comparison.analysis import Analyst
from scopeval.comparison.compare import comparison_of
from scopeval.comparison.context import JointContext, joint_context
from scopeval.comparison.control import learner_for
from scopeval.comparison.costs import cost_terms_of
from scopeval.comparison.mixture_episodes import Failure, MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.result import Comparison
from scopeval.comparison.totals import Outcome, judged, look_at, outcome_of
from scopeval.errors import InputError
from scopeval.evaluation.result import plain_numbers
from scopeval.policies.protocols import Policy
from scopeval.question.inference import Inference

__all__ = [
    "LookThread",
    "bytes_of_episodes",
    "compare_now",
    "episodes_of_bytes",
    "look_now",
    "mixture_now",
    "with_kept_design",
]

log = logging.getLogger("scopeval.campaign")


# -- what was recorded -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Facts:
    """What the state says of the episodes: shares by number, and who has failed."""

    horizon: int
    policies: int
    shares: dict[int, tuple[float, ...]]
    failed: dict[int, str]
    signals: tuple[str, ...] = ()

    @classmethod
    def of(cls, state: CampaignState) -> _Facts:
        """A copy, so that the state may go on."""
        shares = {n: line.shares for n, line in state.lines.items() if line.shares}
        terms = state.terms
        return cls(terms.horizon, len(terms.shares), shares, dict(state.failed), terms.context)


def read_mixture(connection: sa.Connection, facts: _Facts) -> MixtureEpisodes:
    """All finished episodes, in the order of their numbers; lost ones are listed with them."""
    table, steps = schema.episodes, schema.steps
    query = (
        sa.select(steps)
        .join(table, table.c.number == steps.c.episode)
        .where(table.c.state == "finished", table.c.shadow.is_(False), steps.c.reward.is_not(None))
        .order_by(steps.c.episode, steps.c.step)
    )
    grouped: dict[int, list[sa.Row[Any]]] = {}
    for row in connection.execute(query):
        if row.episode in facts.shares:  # else it began after these facts
            grouped.setdefault(row.episode, []).append(row)
    return _episodes(grouped, facts, tuple(read_lost(connection)))


def mixture_now(recorder: Recorder) -> MixtureEpisodes:
    """The same, at this moment."""
    with recorder.store.read() as connection:
        with recorder.lock:
            facts = _Facts.of(recorder.state(connection))
        return read_mixture(connection, facts)


def _episodes(
    grouped: Mapping[int, Sequence[sa.Row[Any]]], facts: _Facts, lost: tuple[Any, ...]
) -> MixtureEpisodes:
    """Episodes from their observed steps by number."""
    T, K, N = facts.horizon, facts.policies, len(grouped)
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
    paths = np.full((N, T + 1, len(facts.signals)), np.nan)
    failures: dict[int, Failure] = {}
    for i, (number, rows) in enumerate(grouped.items()):
        columns["shares"][i] = facts.shares[number]
        columns["length"][i] = columns["back"][i] = len(rows)
        now = np.zeros(K)
        if facts.signals:
            paths[i, : len(rows) + 1] = path_of(rows, facts.signals)
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
                        why = facts.failed.get(int(k), "no answer")
                        failures.setdefault(int(k), Failure(int(k), number, t, why))
                columns["weights"][i, t + 1 :] = np.exp(now)
        columns["last_obs"][i] = decode(rows[-1].next_obs)
        columns["terminated"][i] = bool(rows[-1].terminated)
    return MixtureEpisodes(
        **columns,
        failures=tuple(failures.values()),
        lost=lost,
        exogenous=paths if facts.signals else None,
        signals=facts.signals,
    )


_COLUMNS = (
    "obs", "action", "reward", "cost", "weights", "shares", "length", "last_obs", "terminated",
    "index", "failed", "back",
)  # fmt: skip


def bytes_of_episodes(episodes: MixtureEpisodes) -> bytes:
    """The columns, compressed."""
    buffer = io.BytesIO()
    pack(buffer, {name: np.asarray(getattr(episodes, name)) for name in _COLUMNS})
    return buffer.getvalue()


def episodes_of_bytes(content: bytes) -> MixtureEpisodes:
    """What `bytes_of_episodes` made; without what was lost, and reasons of failures.

    Raises:
        DataError: other bytes, or bytes that would unpack to far more than they are.
    """
    name = "episodes"
    with (
        reading(name, "the episodes of a campaign over several policies"),
        open_archive(name, io.BytesIO(content), len(content), names=_COLUMNS) as archive,
    ):
        columns: dict[str, Any] = {one: archive.read(one) for one in _COLUMNS}
        rows = {len(column) for column in columns.values()}
        if len(rows) != 1 or columns["weights"].ndim != 3 or columns["reward"].ndim != 2:
            raise ValueError(f"columns of {sorted(rows)} rows")
    failed = np.flatnonzero(columns["failed"].any(axis=0))
    failures = tuple(Failure(int(k), -1, 0, "no answer") for k in failed)
    return MixtureEpisodes(**columns, failures=failures)


def with_kept_design(policies: PolicySet, content: bytes | None) -> PolicySet:
    """The policies, with the design that `bytes_of_design` has kept."""
    if content is None:
        return policies
    name = "design 0"
    with (
        reading(name, "a design of a comparison"),
        open_archive(name, io.BytesIO(content), len(content), names=("mu", "known")) as archive,
    ):
        mu, fits = archive.read("mu"), archive.read("known")
    plain = tuple(p for p in policies.policies if isinstance(p, Policy))
    return policies.with_design(DesignPolicy(mu, fits, plain))


# -- what it shows ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Seen:
    """What a look is made of: episodes, and what the journal says of them."""

    episodes: MixtureEpisodes
    dropped: dict[int, int]
    decided_after: dict[int, int]
    stopped: str
    shares: Floats
    looks: list[tuple[int, dict[int, Any]]]
    active: Bools
    cursor: int
    context: JointContext | None = None
    note: str | None = None


def _read(recorder: Recorder, *, due: bool = False) -> tuple[_Seen, Any] | None:
    """What there is now, and the logs; None: it was asked for where it is due, and is not.

    The state is locked for a moment, and not while the rows are read: plants go on.
    """
    with recorder.store.read() as connection:
        with recorder.lock:
            state = recorder.state(connection)
            if due and not state.look_due:
                return None
            facts, rest = (
                _Facts.of(state),
                _Seen(
                    None,  # type: ignore[arg-type]
                    dict(state.dropped),
                    dict(state.decided_after),
                    stopped_in_words(state),
                    np.array(state.next_shares()),
                    [(look.episodes, look.differences) for look in state.looks],
                    state.active[: len(state.terms.policies)],
                    state.cursor,
                ),
            )
        episodes, history = read_mixture(connection, facts), kept_history(connection)
        seen = replace(rest, episodes=episodes)
        if history is not None and len(episodes):
            note = unusable(history, episodes)
            joint = joint_context(history, recorder.terms.stop.episodes or 1000)
            seen = replace(seen, context=None if note else joint, note=note)
        return seen, _logs(connection)


def _logs(connection: sa.Connection) -> Any:
    content = connection.execute(
        sa.select(schema.logs.c.content).where(schema.logs.c.name == "first")
    ).scalar()
    return None if content is None else logs_of_bytes(content)


def _outcome(recorder: Recorder, policies: PolicySet, seen: _Seen, logs: Any) -> Outcome:
    """Values and intervals of what was recorded."""
    terms, episodes = recorder.terms, seen.episodes
    if not len(episodes):
        raise InputError("result: no episode is finished, expected at least one")
    if recorder.analyst is None:  # what is learned from logs alone is learned once
        policies.begun()
        learner = learner_for(policies, episodes, gamma=terms.gamma, seed=terms.seed)
        recorder.analyst = Analyst(policies, terms.gamma, learner, logs, terms.seed)
    recorder.analyst.context = seen.context
    outcome = outcome_of(
        episodes,
        judged(recorder.analyst, episodes, terms.gamma),
        seen.context,
        stopped=seen.stopped,
        shares=seen.shares,
        gamma=terms.gamma,
        inference=_inference(terms),
        anytime=True,  # a campaign is looked at while it runs
        target_n=terms.stop.episodes or 1000,
        asked=policies.asked,
    )
    return replace(
        outcome, dropped=seen.dropped, decided_after=seen.decided_after, looks=seen.looks
    )


def _inference(terms: Terms) -> Inference:
    return Inference(alpha=terms.alpha, interval="sequence", return_bound=terms.return_bound)


def _comparison(
    recorder: Recorder, policies: PolicySet, outcome: Outcome, seen: _Seen
) -> Comparison:
    terms = recorder.terms
    fair = np.array(terms.shares)
    costs = cost_terms_of(
        terms.watched,
        baseline=policies.baseline,
        largest_weight=1.0 / float(fair[policies.baseline]),
        horizon=terms.horizon,
        gamma=terms.gamma,
        alpha=terms.alpha,
    )
    ran = f"a campaign by a mixture of episodes ({policies.in_words(fair)})"
    notes = () if seen.note is None else (seen.note,)
    return comparison_of(
        outcome, policies, terms.gamma, _inference(terms), ran, costs, notes, context=seen.context
    )


def compare_now(recorder: Recorder, policies: PolicySet) -> Comparison:
    """The comparison by all finished episodes; no lock is held while it is computed."""
    read = _read(recorder)
    assert read is not None
    with recorder.looking:
        return _comparison(recorder, policies, _outcome(recorder, policies, *read), read[0])


def look_now(recorder: Recorder, policies: PolicySet) -> bool:
    """Look at all finished episodes, where that is due, and write what was found; False: it is not.

    It takes as long as a comparison does; no lock of the journal is held meanwhile.
    """
    with recorder.looking:
        read = _read(recorder, due=True)
        if read is None:
            return False
        seen, outcome = read[0], _outcome(recorder, policies, *read)
        base, look = policies.baseline, None
        failed = seen.episodes.failed[:, : policies.asked].any(axis=0)
        active = np.asarray(seen.active & ~failed)
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
    data = _data(comparison, seen.cursor)
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
