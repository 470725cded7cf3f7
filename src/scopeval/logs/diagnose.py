"""Check whether a log agrees with itself, with the horizon and with the target policy.

A log whose columns contradict each other makes every estimate wrong, and a cross-check on held-out
rows cannot notice: both halves are wrong in the same way. Each rule takes the statistics of a log
and what the log is for, and yields its findings. A hard contradiction is an error, and so is a
misfit: the log itself may be right, but not for this horizon or target policy. What is only
suspicious, or a check that was not possible, is a warning, which stays with the log as a note.

No rule may refuse a correct log. Rules about consecutive rows therefore need a log whose rows are
in the order of its episodes (`LogFacts.ordered`), and more than a few contradictions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Bools, Ints
from scopeval.errors import DataError
from scopeval.logs.changes import HARMFUL, UnitChange, beyond_chance
from scopeval.logs.statistics import MOST_DISORDER, LogFacts, LogStatistics, RowCount, rows_once
from scopeval.logs.transitions import Transitions

__all__ = [
    "RULES",
    "Diagnosis",
    "Finding",
    "Problem",
    "diagnose",
    "diagnosis_of",
    "examine",
    "harmful_change",
]

#: Share of contradictory pairs or rows above which a log is refused. A clean log has none; logs
#: with a wrong next_obs had 44 % and more.
MOST_CONTRADICTIONS = 0.05
#: Vectors contradict if they differ by this share of the usual step; below it may be noise.
LEAST_CLASH = 0.3
#: Rows before the usual start are stray if they are fewer than this share of those that follow.
STRAY = 0.1
#: Counts below this prove nothing.
FEW = 30
#: Costs up to this are 0, as far as single precision can tell beside numbers about 1.
NO_COST = 1e-6


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
    if not facts.clashes.number:
        return
    share = facts.clashes.number / facts.compared
    hard = facts.clash_size >= LEAST_CLASH and beyond_chance(
        share, _tolerated(facts), facts.compared
    )
    where = _rows(facts.clashes)
    text = (
        f"next_obs is not the obs of the next row of the episode in {facts.clashes.number:,} of "
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
    if facts.ordered and facts.continued.number:
        hard = beyond_chance(facts.continued.number / total, _tolerated(facts), total)
        where = _rows(facts.continued)
        yield Finding(
            hard,
            f"{facts.continued.number:,} of {total:,} terminated rows are followed by the next "
            f"step of their episode{where}{advice}",
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
        yield Finding(False, f"t is very large in {facts.late_rows:,} rows; is it the time of day?")
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
    if facts.jumps.number and facts.ordered and not missing:
        where = _rows(facts.jumps)
        yield Finding(
            False, f"t goes up by more than one at {facts.jumps.number:,} places in the log{where}"
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
    if 0 < facts.short.number <= STRAY * episodes and middle <= facts.short.number:
        number = "1 row" if facts.short.number == 1 else f"{facts.short.number:,} rows"
        yield Finding(
            False,
            f"after {number} with t = 0 no second step of the episode follows, and nothing says "
            f"that it ended{_rows(facts.short)}: is t right there, or is the row "
            "stray?",
        )
    elif 0 < cuts <= MOST_CONTRADICTIONS * episodes and not times.cut_ends[last]:
        yield Finding(
            False,
            f"{cuts:,} of {episodes:,} episodes stop without being terminated or truncated, and "
            f"all others say that they ended{_rows(facts.cuts)}: is t right in the next "
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
            f"and {open_ends:,} of these did not terminate: the log does not show what follows; "
            f"try horizon={last + 1}",
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
    elif facts.largest_cost <= NO_COST:
        yield Finding(
            False,
            f"no cost is above {facts.largest_cost:.2g}, which may be rounding of 0: the log then "
            "cannot show which actions are expensive; are costs in this unit, and is it the right "
            "column?",
        )
    elif facts.constant_cost is not None:
        yield Finding(False, f"every cost is {facts.constant_cost:.6g}: is it the right column?")
    if facts.same_columns and facts.constant_reward is None:
        yield Finding(
            False, "reward and cost are equal in every row: has one column been used for both?"
        )


def costs(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """A cost is that of its own row, and of no other."""
    column = facts.costs
    if column.late is not None and not column.rises:
        same_row, before = column.late
        yield Finding(
            False,
            f"the state and action of the row before explain more of the cost ({before:.0%} of its "
            f"variance) than those of its own row ({same_row:.0%}): is the cost stored one step "
            "late, or does the state leave something out?",
        )
    if column.rises:
        yield Finding(
            False,
            "costs never fall within an episode, and rise in "
            f"{column.rises:,} of the rows looked at: are they totals since the start of the "
            "episode? The cost of a step is the difference",
        )
    if column.clipped:
        yield Finding(
            False,
            f"{column.clipped:.1%} of the costs equal the largest one, {facts.largest_cost:.6g}, "
            "and the others come close to it and hardly repeat: are they clipped? Larger costs are "
            "then in no number",
        )


def changes(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Rewards and costs of the same observation and action do not change in the course of a log."""
    for change in facts.changes:
        yield Finding(False, f"{_changed(change)}: check the units before and after")


def harmful_change(facts: LogFacts) -> str | None:
    """Why no design may rest on the log, if a column changes by so much."""
    for change in facts.changes:
        if change.factor > HARMFUL:
            return _changed(change)
    return None


def _changed(change: UnitChange) -> str:
    return (
        f"from about row {change.row:,} on, the {change.column} of the same observation and action "
        f"is another: its mean size goes from {change.before:.3g} to {change.after:.3g} (by chance "
        f"in fewer than one of {1.0 / max(change.chance, 1e-9):,.0f} logs)"
    )


def repeats(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """Every row is stored once."""
    repeats = facts.repeats
    if repeats.copies > 1:
        yield Finding(
            False,
            f"every row occurs {repeats.copies:,} times or a multiple of it: the log holds the "
            f"information of {facts.rows // repeats.copies:,} rows, not of {facts.rows:,}",
        )
    elif repeats.nearly > 1 and not facts.vectors:
        yield Finding(
            False,
            f"{repeats.share:.0%} of the distinct rows occur {repeats.nearly:,} times or a "
            "multiple of it, with rewards and costs rounded: were episodes stored several times, "
            "with small differences? Held-out rows are then copies of the others; keep each "
            "episode once",
        )
    elif facts.vectors and repeats.repeated:
        count = round(repeats.repeated * facts.rows)
        yield Finding(
            False,
            f"{'' if repeats.exact else 'about '}{count:,} of {facts.rows:,} rows repeat another "
            "row exactly (same t, obs, action, reward, cost, next_obs): was a part of the log "
            "stored twice?",
        )


def numbering(facts: LogFacts, problem: Problem) -> Iterable[Finding]:
    """States and actions are numbered from 0 and belong to the target policy."""
    for kind, least, largest, size in (
        ("state", facts.least_state, facts.largest_state, problem.states),
        ("action", facts.least_action, facts.largest_action, problem.actions),
    ):
        hint = f"{kind} 0 never occurs: are {kind}s numbered from 1?"
        if kind == "state" and least == 1:  # a final state is not used, but shows the numbering
            largest = max(largest, facts.largest_final_state)
        if size is not None and largest >= size:
            text = f"the log holds {kind} {largest:,}, the target policy knows 0 to {size - 1:,}"
            yield Finding(True, f"{text}; {hint}" if least == 1 else text, misfit=True)
        elif least == 1 and largest + 1 != size:  # numbers from 1 would hold one more
            yield Finding(False, hint)


#: All checks, in the order of their findings.
RULES: tuple[Callable[[LogFacts, Problem], Iterable[Finding]], ...] = (
    continuity,
    terminations,
    time_steps,
    unmarked_ends,
    horizon,
    columns,
    costs,
    changes,
    repeats,
    numbering,
)


def _tolerated(facts: LogFacts) -> float:
    """Share of contradictions that a correct log can have by its order.

    Rows of several episodes that alternate look linked in as many places as they look disordered,
    at most; twice that is allowed for.
    """
    return MOST_CONTRADICTIONS + 2.0 * facts.disorder


def _rows(count: RowCount) -> str:
    listed = ", ".join(f"{row:,}" for row in count.rows)
    return f" (rows counted from 0: {listed}{', ...' if count.number > len(count.rows) else ''})"


@dataclass(frozen=True)
class Diagnosis:
    """What was found out about a log.

    Attributes:
        errors: contradictions and misfits; such a log cannot be used.
        warnings: suspicious properties, and checks that were not possible.
        copies: every row occurs this many times or a multiple of it; 1 for a usual log.
        facts: the statistics behind it.
        contradictory: whether the log contradicts itself; otherwise errors are only misfits with
            the horizon or the target policy.
    """

    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    copies: int
    facts: LogFacts
    contradictory: bool

    @property
    def doubt(self) -> str | None:
        """Why no design may rest on this log, although it can be read; None: it may."""
        return harmful_change(self.facts)

    def raise_errors(self, source: str = "log") -> None:
        """Refuse a log with contradictions, or one that does not fit.

        Raises:
            DataError: with all errors, their counts and first rows.
        """
        if self.errors:
            kind = "contradictory log: " if self.contradictory else ""
            raise DataError(f"{source}: {kind}{'; '.join(self.errors)}")

    def summary(self) -> str:
        """One line for each finding."""
        facts = self.facts
        lines = [f"diagnosis of {facts.rows:,} rows"]
        if facts.ordered:
            lines.append(
                f"  rows are in the order of episodes; next_obs was compared in {facts.compared:,} "
                f"pairs of rows, {facts.clashes.number:,} disagree"
            )
        lines += [f"  error: {text}" for text in self.errors]
        lines += [f"  warning: {text}" for text in self.warnings]
        if not self.errors and not self.warnings:
            lines.append("  nothing suspicious was found")
        return "\n".join(lines)


def diagnose(
    log: Transitions | Iterable[Transitions],
    *,
    horizon: int | None = None,
    actions: int | None = None,
    states: int | None = None,
) -> Diagnosis:
    """Look for contradictions in a log; nothing is raised.

    Args:
        log: the log, or its batches in order.
        horizon: steps of an episode in the problem that the log is used for.
        actions: number of actions of the target policy.
        states: number of states of the target policy.
    """
    problem = Problem(horizon, actions, states)
    if isinstance(log, Transitions):
        return diagnosis_of(facts_of(log), problem)
    statistics = LogStatistics()
    for batch in log:
        statistics.add(batch)
    return diagnosis_of(statistics.facts(), problem)


def facts_of(
    log: Transitions, episode: Ints | None = None, truncated: Bools | None = None
) -> LogFacts:
    """The statistics of a log, which it keeps: a log is looked through once, when it is read.

    What it is used for (horizon, target policy) is judged by these facts alone.
    """
    if log.kept_facts is None:
        statistics = LogStatistics()
        statistics.add(log, episode=episode, truncated=truncated)
        log.keep_facts(statistics.facts())
    assert isinstance(log.kept_facts, LogFacts)
    return log.kept_facts


def diagnosis_of(facts: LogFacts, problem: Problem) -> Diagnosis:
    """The diagnosis from the statistics of a log."""
    findings = [finding for rule in RULES if facts.rows for finding in rule(facts, problem)]
    return Diagnosis(
        errors=tuple(finding.text for finding in findings if finding.hard),
        warnings=tuple(finding.text for finding in findings if not finding.hard),
        copies=facts.repeats.copies,
        facts=facts,
        contradictory=any(finding.hard and not finding.misfit for finding in findings),
    )


def examine(
    log: Transitions,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    *,
    episode: Ints | None = None,
    truncated: Bools | None = None,
) -> tuple[Transitions, Diagnosis]:
    """The log and its diagnosis; if every row is stored several times, each counts once from here.

    Args:
        log: the log.
        problem: what it is for.
        episode: the episode id of each row, where the log has it.
        truncated: the rows where a time limit cut an episode, where the log has it.
    """
    diagnosis = diagnosis_of(facts_of(log, episode, truncated), problem)
    copies = diagnosis.copies
    if copies == 1:
        return log, diagnosis
    rows = rows_once((log.t, log.obs, log.action, log.reward, log.cost, log.next_obs), copies)
    once, diagnosis = examine(
        log.select(rows),
        problem,
        episode=None if episode is None else episode[rows],
        truncated=None if truncated is None else truncated[rows],
    )
    note = f"every row occurs {copies:,} times or a multiple of it, and counts once for {copies:,}"
    return once, replace(diagnosis, warnings=(note, *diagnosis.warnings), copies=copies)
