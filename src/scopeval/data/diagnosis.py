"""Check whether a log agrees with itself, with the horizon and with the target policy.

A log whose columns contradict each other makes every estimate wrong, and a cross-check on held-out
rows cannot notice: both halves are wrong in the same way. The rules (`diagnosis_rules`) find such
logs. A hard contradiction is an error, and so is a log that does not fit the horizon or the target
policy; what is only suspicious is a warning, which stays with the log as a note.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from scopeval.arrays import Bools, Ints
from scopeval.data.diagnosis_rules import RULES, Problem
from scopeval.data.log_facts import LogFacts
from scopeval.data.log_statistics import LogStatistics
from scopeval.data.repeated_rows import rows_once
from scopeval.data.transitions import Transitions
from scopeval.errors import DataError

__all__ = ["Diagnosis", "Examined", "Problem", "diagnose", "diagnosis_of", "examine"]


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
                f"pairs of rows, {facts.clashes:,} disagree"
            )
        lines += [f"  error: {text}" for text in self.errors]
        lines += [f"  warning: {text}" for text in self.warnings]
        if not self.errors and not self.warnings:
            lines.append("  nothing suspicious was found")
        return "\n".join(lines)


@dataclass(frozen=True)
class Examined:
    """A log whose copies count once, and its diagnosis."""

    log: Transitions
    diagnosis: Diagnosis


def diagnose(
    log: Transitions | Iterable[Transitions],
    *,
    horizon: int | None = None,
    actions: int | None = None,
    states: int | None = None,
) -> Diagnosis:
    """Look for contradictions in a log, in one pass; nothing is raised.

    Args:
        log: the log, or its batches in order.
        horizon: steps of an episode in the problem that the log is used for.
        actions: number of actions of the target policy.
        states: number of states of the target policy.
    """
    statistics = LogStatistics()
    for batch in [log] if isinstance(log, Transitions) else log:
        statistics.add(batch)
    return diagnosis_of(statistics, Problem(horizon, actions, states))


def diagnosis_of(statistics: LogStatistics, problem: Problem) -> Diagnosis:
    """The diagnosis from statistics that were collected before."""
    facts = statistics.facts()
    findings = [found for rule in RULES if facts.rows for found in rule(facts, problem)]
    return Diagnosis(
        errors=tuple(found.text for found in findings if found.hard),
        warnings=tuple(found.text for found in findings if not found.hard),
        copies=facts.repeats.copies,
        facts=facts,
        contradictory=any(found.hard and not found.misfit for found in findings),
    )


def examine(
    log: Transitions,
    problem: Problem = Problem(),  # noqa: B008  (frozen)
    *,
    episode: Ints | None = None,
    truncated: Bools | None = None,
) -> Examined:
    """Diagnose a log; if every row is stored several times, each counts once from here on.

    Args:
        log: the log.
        problem: what it is for.
        episode: the episode id of each row, where the log has it.
        truncated: the rows where a time limit cut an episode, where the log has it.
    """
    statistics = LogStatistics()
    statistics.add(log, episode=episode, truncated=truncated)
    diagnosis = diagnosis_of(statistics, problem)
    copies = diagnosis.copies
    if copies == 1:
        return Examined(log, diagnosis)
    rows = rows_once((log.t, log.obs, log.action, log.reward, log.cost, log.next_obs), copies)
    once = examine(
        log.select(rows),
        problem,
        episode=None if episode is None else episode[rows],
        truncated=None if truncated is None else truncated[rows],
    )
    said = f"every row occurs {copies:,} times or a multiple of it, and counts once for {copies:,}"
    warnings = (said, *once.diagnosis.warnings)
    return Examined(once.log, replace(once.diagnosis, warnings=warnings, copies=copies))
