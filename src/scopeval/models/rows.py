"""A log as rows to learn from: read once, in batches if need be, and halved for the cross-check.

A table cannot tell equal rows apart, so for state numbers equal rows become one, with a weight.

Every piece of a log on disk (a file, or a block of a dataset) becomes a table of sums, here or on
workers; the pieces are merged in their order, so that the result is the same bits whoever has read
them, and memory holds one batch and the sums. Networks learn from rows as they come. A row belongs
to the half that its content says, wherever and whenever it is read: the networks of the halves
never share a row, as with logs in memory, and equal rows are in the same half.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions, not_a_log
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy, Redraws, offer

if TYPE_CHECKING:  # it loads pyarrow
    from scopeval.logs.stream import LoggedStream
    from scopeval.logs.tables import Table

__all__ = [
    "IN_MEMORY",
    "Log",
    "Part",
    "Rows",
    "StreamedRows",
    "add_part",
    "check_batch",
    "following_obs",
    "gather",
    "gather_stream",
    "halved",
    "halves_by_content",
    "log_of",
    "merge_rows",
    "part_of",
    "rows_to_learn",
    "those_that_lead_on",
]

#: Rows that are merged at a time: they stay in the processor's cache.
BLOCK = 1 << 19
#: Numbers for combinations of keys stay below this, so that they fit into 64 bits.
MOST_CODES = 1 << 62
#: Batches of a stream that are kept apart before they are merged into one.
MOST_PARTS = 8


@dataclass(frozen=True)
class Rows:
    """Logged rows as the learners see them; equal rows of a table problem are merged.

    Attributes:
        t: [n] time steps.
        obs: [n] state numbers or [n, d].
        action: [n] action numbers, or [n, k] continuous actions.
        reward: [n] reward (mean of the merged rows).
        reward_noise: [n] variance of the reward within the merged rows.
        cost: [n] cost, likewise, and
        cost_noise: [n] its variance.
        next_obs: like obs.
        alive: [n] 1.0 where the episode goes on, 0.0 where it terminated.
        weight: [n] how many logged rows this one stands for.
        borrowed: [n] True for rows that a table copied from neighbors of a pair that was never
            logged; they are a guess, not evidence.
        has_next: [n] False where nobody recorded what followed: such a row serves where nothing
            that follows counts (`models.protocols.logged_sweep_data`), and its next_obs is its obs.
    """

    t: Ints
    obs: Observations
    action: NDArray[Any]
    reward: Floats
    reward_noise: Floats
    cost: Floats
    cost_noise: Floats
    next_obs: Observations
    alive: Floats
    weight: Floats
    borrowed: Bools
    has_next: Bools

    @classmethod
    def of(cls, log: Transitions) -> Rows:
        """Every row of a log as it is: nothing is merged."""
        n = len(log)
        return cls(
            t=log.t,
            obs=log.obs,
            action=log.action,
            reward=log.reward,
            reward_noise=np.zeros(n),
            cost=log.cost,
            cost_noise=np.zeros(n),
            next_obs=log.next_obs,
            alive=(~log.terminated).astype(np.float64),
            weight=np.ones(n),
            borrowed=np.zeros(n, np.bool_),
            has_next=log.has_next,
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts, one part after the other."""
        names = cls.__dataclass_fields__
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def __len__(self) -> int:
        return len(self.t)

    def select(self, which: NDArray[Any] | slice) -> Rows:
        """Some of the rows."""
        return Rows(
            self.t[which],
            self.obs[which],
            self.action[which],
            self.reward[which],
            self.reward_noise[which],
            self.cost[which],
            self.cost_noise[which],
            self.next_obs[which],
            self.alive[which],
            self.weight[which],
            self.borrowed[which],
            self.has_next[which],
        )

    @property
    def goes_on(self) -> Bools:
        """[n] where a next observation was recorded."""
        return np.asarray((self.alive > 0) & self.has_next)


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
    parts = list[Part]()
    count, actions = 0, 0
    notes: tuple[str, ...] = ()
    streamed = not isinstance(logged, Transitions)
    if streamed and (not isinstance(logged, Iterable) or isinstance(logged, Mapping | str)):
        raise not_a_log(logged)
    if streamed and not merge:
        raise InputError(
            "logs: batches of a stream are merged, and only a table can learn from merged rows; "
            "try regression='table' or read_logs"
        )
    for batch in [logged] if isinstance(logged, Transitions) else logged:
        actions = check_batch(batch, target, horizon, actions, streamed=streamed)
        add_part(parts, part_of(batch, target, count, seed, merge, fold))
        count += len(batch)
        notes = tuple(dict.fromkeys((*notes, *batch.notes)))
    return log_of(parts, count, actions, notes)


def log_of(parts: list[Part], count: int, actions: int, notes: tuple[str, ...]) -> Log:
    """All parts as a log."""
    if not count:
        raise InputError("logs: no batches, expected logged rows")
    rows, starts, fold = parts[0] if len(parts) == 1 else _merged(parts)
    if len(np.unique(fold)) < 2:
        raise InputError(f"logs: got {count} row(s), expected at least 2; log more")
    first = starts.t == starts.t.min()
    if starts.t.min() > 0:
        notes = (*notes, f"no rows of t = 0: episodes are taken to start at t = {starts.t.min()}")
    return Log(rows, fold, starts.select(first), actions, count, notes)


def add_part(parts: list[Part], part: Part) -> None:
    """Add what comes next; parts are merged as they come: a stream may be larger than memory."""
    parts.append(part)
    if len(parts) > MOST_PARTS:
        parts[:] = [_merged(parts)]


def check_batch(
    batch: Transitions,
    target: Policy | ContinuousPolicy,
    horizon: int,
    actions: int,
    *,
    streamed: bool,
) -> int:
    """Check a batch; how many actions, or candidates, the target offers, if `actions` is 0."""
    if not isinstance(batch, Transitions):
        raise not_a_log(batch)
    finite = not isinstance(target, ContinuousPolicy)
    if batch.discrete_actions != finite:
        raise InputError(
            f"logs: holds {'action numbers' if batch.discrete_actions else 'action vectors'}"
            f", the target offers {'action numbers' if finite else 'continuous actions'}; "
            "expected a log of the target's own problem"
        )
    if streamed and not batch.discrete_obs:
        raise InputError(
            "logs: batches of a stream are merged, which needs state numbers; got vectors, "
            "try read_logs"
        )
    if not actions:
        offered = offer(target, np.asarray(batch.obs[:1]), 0, np.random.default_rng(0))
        actions, width = int(offered.probs.shape[1]), offered.actions.shape[2:]
        if not finite and width != batch.action.shape[1:]:
            raise InputError(
                f"logs: actions have {batch.action.shape[1]} dimensions, the target offers "
                f"{width[0]}; expected a log of the target's own problem"
            )
    batch.check(horizon=horizon, actions=actions if finite else None, source="logs")
    return actions


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
    following = following_obs(batch)
    if isinstance(target, Redraws):  # the logs hold another policy's draws
        following = target.redraw(following, batch.t + 1, rng)
    rows = replace(Rows.of(batch), next_obs=following)
    if fold is None:
        fold = halved(len(rows), rng, count)
    part = Part(rows, rows.select(np.flatnonzero(rows.t == rows.t.min())), fold)
    return _merged([part]) if merge and batch.discrete_obs else part


def halved(rows: int, rng: np.random.Generator, before: int = 0) -> Ints:
    """The half, 0 or 1, of each of some rows that come after others; halves stay equal."""
    return np.asarray((rng.permutation(rows) + before) % 2, np.int64)


def following_obs(batch: Transitions) -> Observations:
    """Next observations; where there is none, or none was recorded, its own stands in."""
    following: Observations = batch.next_obs
    without = batch.terminated | ~batch.has_next
    if without.any():
        without = without if batch.discrete_obs else without[:, None]
        following = np.where(without, batch.obs, batch.next_obs)
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


def merge_rows(rows: Rows, *, by_time: bool = True) -> Rows:
    """Rows with the same (t, s, a, s', alive, has_next) as one, weighted by their number.

    A table cannot tell them apart. Ten million logged rows become a few thousand.
    """
    if len(rows) > BLOCK:
        spans = (slice(i, i + BLOCK) for i in range(0, len(rows), BLOCK))
        rows = Rows.joined([_merged_block(rows.select(span), by_time) for span in spans])
    return _merged_block(rows, by_time)


def _merged_block(rows: Rows, by_time: bool) -> Rows:
    keys = [rows.obs, rows.action, rows.next_obs, rows.alive, rows.has_next]
    keys = [np.asarray(key, np.int64) for key in keys]
    if by_time:
        keys.insert(0, rows.t)
    first, group = _groups(keys)
    weight = np.bincount(group, rows.weight).astype(np.float64)

    def mean(column: Floats) -> Floats:
        return np.asarray(np.bincount(group, rows.weight * column) / weight)

    reward, cost = mean(rows.reward), mean(rows.cost)
    return Rows(
        t=rows.t[first],
        obs=rows.obs[first],
        action=rows.action[first],
        reward=reward,
        reward_noise=mean(rows.reward_noise + (rows.reward - reward[group]) ** 2),
        cost=cost,
        cost_noise=mean(rows.cost_noise + (rows.cost - cost[group]) ** 2),
        next_obs=rows.next_obs[first],
        alive=rows.alive[first],
        weight=weight,
        borrowed=rows.borrowed[first],
        has_next=rows.has_next[first],
    )


def those_that_lead_on(rows: Rows) -> Rows:
    """The rows with a successor; rewards and costs have the means of all rows at (t, s, a).

    q(s, a) = E[r] + gamma E[v(S')]: the first mean takes every row, the second one those that show
    S'. Vectors do not repeat, so that their rewards and costs stay as they are.
    """
    kept = np.flatnonzero(rows.has_next)
    some = rows.select(kept)
    if rows.obs.ndim > 1 or rows.action.ndim > 1 or not len(kept):
        return some
    _, group = _groups([rows.t, rows.obs, rows.action])
    mine = group[kept]
    count, own = np.bincount(group, rows.weight), np.bincount(mine, some.weight, group.max() + 1)

    def shifted(column: Floats) -> Floats:
        mean = np.bincount(group, rows.weight * column) / count
        return np.asarray(
            column[kept]
            + mean[mine]
            - (np.bincount(mine, some.weight * column[kept], len(count))[mine] / own[mine])
        )

    return replace(some, reward=shifted(rows.reward), cost=shifted(rows.cost))


def _groups(keys: list[Ints]) -> tuple[Ints, Ints]:
    """The first row of each combination of keys, and every row's combination, in keys' order."""
    code, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        many = int(key.max(initial=0)) + 1
        if size * many >= MOST_CODES:  # numbers with gaps: only those that occur are counted
            code, key = (np.unique(x, return_inverse=True)[1] for x in (code, key))
            size, many = (int(x.max(initial=0)) + 1 for x in (code, key))
        code, size = code * many + key, size * many
    _, first, group = np.unique(code, return_index=True, return_inverse=True)
    return first, group


# -- a log on disk ---------------------------------------------------------------------------------


def _merged_rows(
    target: Policy | ContinuousPolicy,
    horizon: int,
    seed: int,
    piece: Table,
    batches: Iterator[Transitions],
) -> tuple[Part, int]:
    """The rows of a piece, equal ones merged, and how many actions the target offers."""
    row, actions, parts = piece.first_row, 0, list[Part]()
    for log in batches:
        actions = check_batch(log, target, horizon, actions, streamed=True)
        add_part(parts, part_of(log, target, row, seed, merge=True))
        row += len(log)
    return parts[0] if len(parts) == 1 else _merged(parts), actions


def gather_stream(
    logged: LoggedStream, target: Policy | ContinuousPolicy, horizon: int, seed: int
) -> Log:
    """Rows, halves and starts of a log on disk, for a table.

    Args:
        logged: the log; it says which workers read it.
        target: pi.
        horizon: T.
        seed: of the halves.

    Raises:
        DataError: the log contradicts itself.
        InputError: it does not fit the target, or it has vectors.
    """
    from scopeval.logs.stream import read_pieces

    parts, actions = list[Part](), 0

    def take(read: tuple[Part, int]) -> None:
        nonlocal actions
        add_part(parts, read[0])
        actions = actions or read[1]

    keep = partial(_merged_rows, target, horizon, seed)
    diagnosis, notes = read_pieces(logged, keep, take)
    log = log_of(parts, logged.rows, actions, notes)
    return replace(log, doubt=diagnosis.doubt)


# -- rows of a log on disk for networks ------------------------------------------------------------


#: Rows of a log on disk that are drawn into memory; the rest only trains the networks.
IN_MEMORY = 200_000
#: Rows of a half that are mixed and learned from together.
BUFFER = 50_000


@dataclass(frozen=True)
class StreamedRows:
    """The rows of one half of a log on disk.

    Attributes:
        logged: the log.
        half: 0 or 1.
        seed: of the halves and of the order.
    """

    logged: LoggedStream
    half: int
    seed: int

    def buffers(self) -> Iterator[Rows]:
        """Rows in random order, without end, `BUFFER` or a few more at a time."""
        from scopeval.logs.stream import shuffled_batches

        rng = np.random.default_rng((self.seed, 24, self.half))
        parts, have = list[Rows](), 0
        for batch in shuffled_batches(self.logged, rng):
            rows = batch.select(np.flatnonzero(halves_by_content(batch, self.seed) == self.half))
            if not len(rows):
                continue
            parts.append(rows_to_learn(rows))
            have += len(rows)
            if have >= BUFFER:
                yield Rows.joined(parts)
                parts, have = [], 0


def rows_to_learn(log: Transitions) -> Rows:
    """The rows of a log as networks of the dynamics learn them."""
    return replace(Rows.of(log), next_obs=following_obs(log))


def halves_by_content(log: Transitions, seed: int) -> Ints:
    """The half, 0 or 1, of each row: a bit of the hash of its content."""
    from scopeval.logs.statistics import hash_rows

    columns = (log.t, log.obs, log.action, log.reward, log.cost, log.next_obs)
    code = hash_rows([np.full(len(log), seed), *columns])
    code = (code ^ (code >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(code >> np.uint64(63), np.int64)
