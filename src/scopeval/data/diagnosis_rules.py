"""The rules by which a log is judged.

Each rule takes the statistics of a log and what the log is for, and yields its findings. A hard
finding is a contradiction, or a misfit: the log itself may be right, but not for this horizon or
target policy. Others are suspicious, or say that a check was not possible.

No rule may refuse a correct log. Rules about consecutive rows therefore need a log whose rows are
in the order of its episodes (`LogFacts.ordered`), and more than a few contradictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from scopeval.data.log_facts import MOST_DISORDER, LogFacts, beyond_chance

__all__ = ["RULES", "Finding", "Problem"]

#: Share of contradictory pairs or rows above which a log is refused. A clean log has none; logs
#: with a wrong next_obs had 44 % and more.
MOST_CONTRADICTIONS = 0.05
#: Vectors contradict if they differ by this share of the usual step; below it may be noise.
LEAST_CLASH = 0.3
#: Rows before the usual start are stray if they are fewer than this share of those that follow.
STRAY = 0.1
#: Counts below this prove nothing.
FEW = 30


@dataclass(frozen=True)
class Problem:
    """What the log is for, as far as it is known.

    Attributes:
        horizon: steps of an episode.
        actions: number of actions of the target policy.
        states: number of states of the target policy.
    """

    horizon: int | None = None
    actions: int | None = None
    states: int | None = None


@dataclass(frozen=True)
class Finding:
    """One result of a rule."""

    hard: bool
    text: str
    misfit: bool = False


def continuity(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """next_obs of a row is the obs of the row that continues its episode."""
    if not facts.ordered:
        if facts.disorder > MOST_DISORDER and facts.rows >= FEW:
            yield Finding(
                False,
                f"the rows are not in the order of episodes ({facts.disorder:.0%} neither continue "
                "the row before them nor start an episode), so that next_obs could not be compared "
                "with the rows that follow",
            )
        return
    if not facts.clashes:
        return
    share = facts.clashes / facts.compared
    hard = facts.clash_size >= LEAST_CLASH and beyond_chance(
        share, _tolerated(facts), facts.compared
    )
    where = _rows(facts.clashes, facts.clash_rows)
    text = (
        f"next_obs is not the obs of the next row of the episode in {facts.clashes:,} of "
        f"{facts.compared:,} compared pairs, {share:.1%}{where}"
    )
    if facts.stays:
        text += "; it equals obs in every row, so the same column may have been used twice"
    elif facts.clash_size < LEAST_CLASH:
        text += (
            f", by {facts.clash_size:.2g} of the usual step: is it rounding, noise or a running "
            "normalization?"
        )
    else:
        text += (
            ". Check that next_obs is not shifted, and that t is the time within the episode; if "
            "each row is right and only their order is not, shuffle the rows"
        )
    yield Finding(hard, text)


def terminations(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """An episode does not go on after it has terminated."""
    times = facts.times
    total = int(times.terminated.sum())
    advice = (
        "; mark only the last step of an episode that truly ended (a time limit is no "
        "termination), and count t from 0 in every episode"
    )
    if facts.ordered and facts.continued:
        hard = beyond_chance(facts.continued / total, _tolerated(facts), total)
        where = _rows(facts.continued, facts.continued_rows)
        yield Finding(
            hard,
            f"{facts.continued:,} of {total:,} terminated rows are followed by the next step of "
            f"their episode{where}{advice}",
        )
        return
    # in any order: rows with t + 1 need rows with t that did not terminate
    followed = 2 * times.rows[1:] >= times.rows[:-1]
    rows = int(times.rows[:-1][followed].sum())
    ended = int(times.terminated[:-1][followed].sum())
    if rows >= FEW and ended > (1 - MOST_CONTRADICTIONS) * rows:
        yield Finding(
            True,
            f"{ended:,} of {rows:,} rows before the last time step are terminated, although about "
            f"as many rows follow one step later{advice}",
        )


def time_steps(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Time starts at 0 and has no gaps."""
    if facts.late_rows:
        yield Finding(
            False, f"t is very large in {facts.late_rows:,} or more rows; is it the time of day?"
        )
        return
    rows = facts.times.rows
    present = np.flatnonzero(rows)
    first, last = int(present[0]), int(present[-1])
    before = np.concatenate([[0], np.cumsum(rows)[:-1]])
    usual = np.flatnonzero((before > 0) & (STRAY * (rows - FEW) >= before))
    if usual.size:
        start = int(usual[0])
        yield Finding(
            True,
            f"only {int(before[start]):,} rows have t below {start}, but {int(rows[start]):,} rows "
            f"have t = {start}; the few would be taken for the starts of all episodes: remove "
            "them, or count t from 0 in every episode",
        )
    elif first < last and rows[first + 1] > 1.5 * rows[first] + 3:
        yield Finding(
            False,
            f"{int(rows[first]):,} rows have t = {first}, but {int(rows[first + 1]):,} have t = "
            f"{first + 1}: the starts of some episodes are missing",
        )
    if not usual.size and first > 0:
        yield Finding(
            False,
            f"no rows of t = 0: episodes are taken to start at t = {first}"
            + (", is t numbered from 1?" if first == 1 else ""),
        )
    missing = last - first + 1 - present.size
    if missing:
        example = int(np.flatnonzero(rows[first:] == 0)[0]) + first
        yield Finding(
            False,
            f"{missing:,} time steps between t = {first} and t = {last} have no row (the first is "
            f"t = {example})",
        )
    if facts.jumps and facts.ordered and not missing:
        where = _rows(facts.jumps, facts.jump_rows)
        yield Finding(
            False, f"t goes up by more than one at {facts.jumps:,} places in the log{where}"
        )


def unmarked_ends(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Episodes go on until they are terminated or truncated, or many are cut without a word.

    A row whose t is 0 by mistake looks like an episode of one step, and cuts another one.
    """
    times = facts.times
    last = times.rows.size - 1
    if not facts.ordered or last < 1:
        return
    episodes, cuts = int(times.starts.sum()), int(times.cut_ends.sum())
    middle = int(times.cut_ends[1:last].sum())
    if 0 < facts.short <= STRAY * episodes and middle <= facts.short:
        number = "1 row" if facts.short == 1 else f"{facts.short:,} rows"
        yield Finding(
            False,
            f"after {number} with t = 0 no second step of the episode follows, and nothing says "
            f"that it ended{_rows(facts.short, facts.short_rows)}: is t right there, or is the row "
            "stray?",
        )
    elif 0 < cuts <= MOST_CONTRADICTIONS * episodes and not times.cut_ends[last]:
        yield Finding(
            False,
            f"{cuts:,} of {episodes:,} episodes stop without being terminated or truncated, and "
            f"all others say that they ended{_rows(cuts, facts.cut_rows)}: is t right in the next "
            "row?",
        )


def horizon(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """The log shows whole episodes of the length that is asked for."""
    times, last = facts.times, facts.times.rows.size - 1
    if facts.late_rows:
        return
    ended = int(times.terminated[last])
    length = problem.horizon
    limited = ended == times.terminated.sum() == times.rows[last] == times.rows.max()
    if limited and last > 0 and (length is None or length > last + 1):
        yield Finding(
            False,
            f"every episode terminates at t = {last}: if that is a time limit, these rows are not "
            "terminated",
        )
        return
    if length is None:
        return
    beyond = int(times.rows[length:].sum())
    if beyond:
        yield Finding(
            True,
            f"the log has longer episodes than horizon={length}: {beyond:,} rows have t = {length} "
            f"or more; try a larger horizon, or the first {length} steps only: "
            f"logs.select(logs.t < {length})",
            misfit=True,
        )
        return
    open_ends = int(times.rows[last]) - ended
    if length > last + 1 and open_ends:
        yield Finding(
            False,
            f"the horizon is {length:,}, but no logged episode is longer than {last + 1:,} steps, "
            f"and {open_ends:,} of these did not terminate: the log does not show what follows",
        )
        return
    episodes = int(times.ends.sum())
    cut = int((times.ends - times.terminated_ends)[: length - 1].sum())
    if facts.ordered and cut > MOST_CONTRADICTIONS * episodes:
        yield Finding(
            False,
            f"{cut:,} of {episodes:,} episodes end before the horizon of {length:,} steps without "
            "being terminated",
        )


def columns(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Rewards and costs differ from row to row and from each other."""
    if facts.rows < 2:
        return
    if facts.constant_reward is not None:
        yield Finding(
            False, f"every reward is {facts.constant_reward:.6g}: is it the right column?"
        )
    if facts.constant_cost == 0:
        yield Finding(
            False,
            "every cost is 0: the log cannot show which actions are expensive, and the cost is not "
            "limited; is it the right column?",
        )
    elif facts.constant_cost is not None:
        yield Finding(False, f"every cost is {facts.constant_cost:.6g}: is it the right column?")
    if facts.same_columns and facts.constant_reward is None:
        yield Finding(
            False, "reward and cost are equal in every row: has one column been used for both?"
        )


def repeats(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Every row is stored once."""
    found = facts.repeats
    if found.copies > 1:
        yield Finding(
            False,
            f"every row occurs {found.copies:,} times or a multiple of it: the log holds the "
            f"information of {facts.rows // found.copies:,} rows, not of {facts.rows:,}",
        )
    elif facts.vectors and found.repeated:
        count = round(found.repeated * facts.rows)
        yield Finding(
            False,
            f"{'' if found.exact else 'about '}{count:,} of {facts.rows:,} rows repeat another row "
            "exactly (same t, obs, action, reward, cost, next_obs): was a part of the log stored "
            "twice?",
        )


def numbering(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """States and actions are numbered from 0 and belong to the target policy."""
    for kind, zero, largest, size in (
        ("state", facts.state_zero, facts.largest_state, problem.states),
        ("action", facts.action_zero, facts.largest_action, problem.actions),
    ):
        hint = f"{kind} 0 never occurs: are {kind}s numbered from 1?"
        if kind == "state" and not zero:  # a final state is not used, but shows the numbering
            largest = max(largest, facts.largest_final_state)
        if size is not None and largest >= size:
            known = f"the log holds {kind} {largest:,}, the target policy knows 0 to {size - 1:,}"
            yield Finding(True, known if zero else f"{known}; {hint}", misfit=True)
        elif not zero:
            yield Finding(False, hint)


#: All checks, in the order of their findings.
RULES: tuple[Callable[[LogFacts, Problem], Iterable[Finding]], ...] = (
    continuity,
    terminations,
    time_steps,
    unmarked_ends,
    horizon,
    columns,
    repeats,
    numbering,
)


def _tolerated(facts: LogFacts) -> float:
    """Share of contradictions that a correct log can have by its order.

    Rows of several episodes that alternate look linked in as many places as they look disordered,
    at most; twice that is allowed for.
    """
    return MOST_CONTRADICTIONS + 2.0 * facts.disorder


def _rows(count: int, first: tuple[int, ...]) -> str:
    listed = ", ".join(f"{row:,}" for row in first)
    return f" (rows counted from 0: {listed}{', ...' if count > len(first) else ''})"
