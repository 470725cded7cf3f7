"""A log as rows to learn from: read once, in batches if need be, and halved for the cross-check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from scopeval.arrays import Ints
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions, not_a_log
from scopeval.models.protocols import Rows
from scopeval.models.table import merge_rows
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, Redraws, offer

__all__ = [
    "JoinedParts",
    "Log",
    "Part",
    "check_batch",
    "following_obs",
    "gather",
    "halved",
    "log_of",
    "part_of",
]

#: Batches of a stream that are kept apart before they are merged into one.
MOST_PARTS = 8


@dataclass(frozen=True)
class Log:
    """A log as rows.

    Attributes:
        rows: to learn from.
        fold: [n] the half of the logs, 0 or 1, that each row belongs to.
        starts: the rows at which episodes start.
        actions: number of actions, or of candidates, that the target policy offers.
        count: how many rows were logged.
        notes: what a user should know about the log.
        doubt: why no design may rest on it; None: it may.
    """

    rows: Rows
    fold: Ints
    starts: Rows
    actions: int
    count: int
    notes: tuple[str, ...]
    doubt: str | None = None


class Part(NamedTuple):
    """The rows of one or several batches, first rows of episodes, and the half of each row."""

    rows: Rows
    starts: Rows
    fold: Ints


def gather(
    logged: Transitions | Iterable[Transitions],
    target: Policy | ContinuousPolicy,
    horizon: int,
    seed: int,
    merge: bool,
    fold: Ints | None = None,
) -> Log:
    """Rows, folds and starts of a log, read once.

    Args:
        logged: the log, or batches of it.
        target: pi.
        horizon: T.
        seed: of the halves.
        merge: equal rows of state numbers become one. Only a table may merge: other regressions
            draw folds of their own among the rows, and all rows of one outcome would then be in
            the same fold.
        fold: the half of each row, where it is known already; else the seed decides.
    """
    parts = JoinedParts()
    count, actions = 0, 0
    notes: tuple[str, ...] = ()
    for batch in _batches(logged, merge):
        streamed = not isinstance(logged, Transitions)
        actions = check_batch(batch, target, horizon, actions, streamed=streamed)
        parts.add(part_of(batch, target, count, seed, merge, fold))
        count += len(batch)
        notes = tuple(dict.fromkeys((*notes, *batch.notes)))
    return log_of(parts, count, actions, notes)


def log_of(parts: JoinedParts, count: int, actions: int, notes: tuple[str, ...]) -> Log:
    """All parts as a log."""
    if not count:
        raise InputError("logged: no batches, expected logged rows")
    rows, starts, fold = parts.whole()
    if len(np.unique(fold)) < 2:
        raise InputError(f"logged: got {count} row(s), expected at least 2; log more")
    first = starts.t == starts.t.min()
    if starts.t.min() > 0:
        notes = (*notes, f"no rows of t = 0: episodes are taken to start at t = {starts.t.min()}")
    return Log(rows, fold, starts.select(first), actions, count, notes)


class JoinedParts:
    """Parts that are merged as they come, because a stream may be larger than memory."""

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        """Add what comes next."""
        self._parts.append(part)
        if len(self._parts) > MOST_PARTS:
            self._parts = [_merged(self._parts)]

    def whole(self) -> Part:
        """All of them as one."""
        return self._parts[0] if len(self._parts) == 1 else _merged(self._parts)


def check_batch(
    batch: Transitions,
    target: Policy | ContinuousPolicy,
    horizon: int,
    actions: int,
    *,
    streamed: bool,
) -> int:
    """Check a batch; how many actions the target offers, if `actions` does not say it (0)."""
    _check_kind(batch, target, streamed)
    actions = actions or _offered(batch, target)
    finite = not isinstance(target, ContinuousPolicy)
    batch.check(horizon=horizon, actions=actions if finite else None, source="logged")
    return actions


def _batches(logged: Transitions | Iterable[Transitions], merge: bool) -> Iterable[Transitions]:
    """The batches of a log."""
    if isinstance(logged, Transitions):
        return [logged]
    if not isinstance(logged, Iterable):
        raise not_a_log(logged)
    if not merge:
        raise InputError(
            "logged: batches of a stream are merged, and only a table can learn from merged rows; "
            "try regression='table' or read_logs"
        )
    return logged


def _check_kind(batch: Transitions, target: Policy | ContinuousPolicy, streamed: bool) -> None:
    """Check that a batch has the kind of actions and observations that is needed."""
    if not isinstance(batch, Transitions):
        raise not_a_log(batch)
    finite = not isinstance(target, ContinuousPolicy)
    if batch.discrete_actions != finite:
        raise InputError(
            f"logged: holds {'action numbers' if batch.discrete_actions else 'action vectors'}"
            f", the target offers {'action numbers' if finite else 'continuous actions'}; "
            "expected a log of the target's own problem"
        )
    if streamed and not batch.discrete_obs:
        raise InputError(
            "logged: batches of a stream are merged, which needs state numbers; got vectors, "
            "try read_logs"
        )


def _offered(batch: Transitions, target: Policy | ContinuousPolicy) -> int:
    """How many actions, or candidates, the target policy offers at an observation of a batch."""
    offered = offer(target, np.asarray(batch.obs[:1]), 0, np.random.default_rng(0))
    width = offered.actions.shape[2:]
    if isinstance(target, ContinuousPolicy) and width != batch.action.shape[1:]:
        raise InputError(
            f"logged: actions have {batch.action.shape[1]} dimensions, the target offers "
            f"{width[0]}; expected a log of the target's own problem"
        )
    return int(offered.probs.shape[1])


def part_of(
    batch: Transitions,
    target: Policy | ContinuousPolicy,
    count: int,
    seed: int,
    merge: bool,
    fold: Ints | None = None,
) -> Part:
    """The rows of a batch, halved at random; `count` rows came before, so halves stay equal.

    Where the batch begins decides its random numbers, so that batches can be read in any order.
    """
    rng = np.random.default_rng((seed, 11, count) if count else (seed, 11))
    rows = replace(Rows.of(batch), next_obs=_following(batch, target, rng))
    if fold is None:
        fold = halved(len(rows), rng, count)
    part = Part(rows, rows.select(np.flatnonzero(rows.t == rows.t.min())), fold)
    return _merged([part]) if merge and batch.discrete_obs else part


def halved(rows: int, rng: np.random.Generator, before: int = 0) -> Ints:
    """The half, 0 or 1, of each of some rows that come after others; halves stay equal."""
    return np.asarray((rng.permutation(rows) + before) % 2, np.int64)


def following_obs(batch: Transitions) -> Observations:
    """Next observations; after the end of an episode there is none, so its own stands in."""
    following: Observations = batch.next_obs
    if batch.terminated.any():
        ended = batch.terminated if batch.discrete_obs else batch.terminated[:, None]
        following = np.where(ended, batch.obs, batch.next_obs)
    return following


def _following(
    batch: Transitions, target: Policy | ContinuousPolicy, rng: np.random.Generator
) -> Observations:
    """The same; what the target policy draws itself is drawn."""
    following = following_obs(batch)
    if isinstance(target, Redraws):  # the logs hold another policy's draws
        following = target.redraw(following, batch.t + 1, rng)
    return following


def _merged(parts: list[Part]) -> Part:
    """All parts as one, equal rows of a half merged."""
    halves = [
        merge_rows(Rows.joined([part.rows.select(part.fold == k) for part in parts]))
        for k in range(2)
    ]
    starts = merge_rows(Rows.joined([part.starts for part in parts]))
    fold = np.repeat(np.arange(2), [len(half) for half in halves])
    return Part(Rows.joined(halves), starts, fold)
