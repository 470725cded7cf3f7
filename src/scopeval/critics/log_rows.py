"""A log as rows to learn from: read once, in batches if need be, and halved for the check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Ints
from scopeval.critics.protocols import Rows
from scopeval.critics.table import merge_rows
from scopeval.data.transitions import Transitions, not_a_log
from scopeval.errors import InputError
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, Redraws, offer

__all__ = ["Log", "gather"]


@dataclass(frozen=True)
class Log:
    """The log as rows, with the fold of each, and where episodes start."""

    rows: Rows
    fold: Ints
    starts: Rows
    actions: int
    count: int
    notes: tuple[str, ...]


def gather(
    logged: Transitions | Iterable[Transitions],
    target: Policy | ContinuousPolicy,
    horizon: int,
    seed: int,
    merge: bool,
) -> Log:
    """Rows, folds and starts of a log, read once; batches are merged as they come.

    Only a table may merge: what else draws folds of its own among the rows would put all rows of
    one outcome into the same fold.
    """
    streamed = not isinstance(logged, Transitions)
    if streamed and not isinstance(logged, Iterable):
        raise not_a_log(logged)
    if streamed and not merge:
        raise InputError(
            "logged: streams are merged as they come, which only the table can learn from; try "
            "regression='table' or read_logged"
        )
    batches: Iterable[Transitions] = [logged] if isinstance(logged, Transitions) else logged
    parts: list[tuple[Rows, Rows, Ints]] = []
    count, actions = 0, 0
    notes: tuple[str, ...] = ()
    rng = np.random.default_rng((seed, 11))
    for batch in batches:
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
                "logged: streams are merged as they come, which needs state numbers; got vectors, "
                "try read_logged"
            )
        if actions == 0:
            offered = offer(target, np.asarray(batch.obs[:1]), 0, np.random.default_rng(0))
            actions = int(offered.probs.shape[1])
            wide = offered.actions.shape[2:]
            if not finite and wide != batch.action.shape[1:]:
                raise InputError(
                    f"logged: actions have {batch.action.shape[1]} dimensions, the target offers "
                    f"{wide[0]}; expected a log of the target's own problem"
                )
        batch.check(horizon=horizon, actions=actions if finite else None, source="logged")
        rows = replace(Rows.of(batch), next_obs=_following(batch, target, rng))
        fold = ((rng.permutation(len(rows)) + count) % 2).astype(np.int64)
        starts = rows.select(np.flatnonzero(rows.t == rows.t.min()))
        if merge and batch.discrete_obs:
            rows, starts, fold = _condense([(rows, starts, fold)])
        parts.append((rows, starts, fold))
        count += len(batch)
        notes = tuple(dict.fromkeys((*notes, *batch.notes)))
        if streamed and len(parts) > 8:
            parts = [_condense(parts)]
    if not parts:
        raise InputError("logged: no batches, expected logged rows")
    if len(parts) > 1:
        parts = [_condense(parts)]
    rows, starts, fold = parts[0]
    if len(np.unique(fold)) < 2:
        raise InputError(f"logged: got {count} row(s), expected at least 2; log more")
    first = starts.t == starts.t.min()
    if starts.t.min() > 0:
        notes = (*notes, f"no rows of t = 0: episodes are taken to start at t = {starts.t.min()}")
    return Log(rows, fold, starts.select(first), actions, count, notes)


def _following(
    batch: Transitions, target: Policy | ContinuousPolicy, rng: np.random.Generator
) -> Observations:
    """Next observations; after the end of an episode there is none, so its own stands in."""
    following: Observations = batch.next_obs
    if batch.terminated.any():
        ended = batch.terminated if batch.discrete_obs else batch.terminated[:, None]
        following = np.where(ended, batch.obs, batch.next_obs)
    if isinstance(target, Redraws):  # the logs hold another policy's draws
        following = target.redraw(following, batch.t + 1, rng)
    return following


def _condense(parts: list[tuple[Rows, Rows, Ints]]) -> tuple[Rows, Rows, Ints]:
    halves = [
        merge_rows(Rows.joined([rows.select(fold == k) for rows, _, fold in parts]))
        for k in range(2)
    ]
    fold = np.repeat(np.arange(2), [len(half) for half in halves])
    return Rows.joined(halves), merge_rows(Rows.joined([starts for _, starts, _ in parts])), fold
