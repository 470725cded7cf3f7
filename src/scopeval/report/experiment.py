"""An experiment as a page: tables and figures of many evaluations."""

from __future__ import annotations

from collections.abc import Sequence

from scopeval.report.page import (
    Check,
    Fact,
    Figure,
    Page,
    Section,
    Table,
    Verdict,
    how_to_reproduce,
)

__all__ = ["page_of_experiment"]


def page_of_experiment(
    title: str,
    answer: str,
    verdict: Verdict,
    *,
    facts: Sequence[Fact] = (),
    figures: Sequence[Figure] = (),
    tables: Sequence[Table] = (),
    notes: Sequence[str] = (),
    checks: Sequence[Check] = (),
    sections: Sequence[Section] = (),
    command: str,
    seed: int,
    packages: Sequence[str] = ("numpy", "scipy", "numba"),
) -> Page:
    """The page of an experiment.

    Args:
        title: what was done.
        answer: what came out, in one sentence.
        verdict: whether what was promised held.
        facts: the numbers that everybody asks for.
        figures: drawings, by `figure_of` from any matplotlib figure.
        tables: the numbers.
        notes: how to read them, in words.
        checks: what was looked at and how it came out.
        sections: whatever else there is.
        command: how to make it again, as one can type it.
        seed: likewise.
        packages: whose versions matter.
    """
    middle = [
        Section("Figures", figures=tuple(figures)),
        Section("Tables", tuple(notes), tables=tuple(tables)),
        Section("What was checked", checks=tuple(checks)),
    ]
    return Page(
        title,
        answer,
        verdict,
        tuple(facts),
        (
            *(s for s in middle if s.text or s.figures or s.tables or s.checks),
            *sections,
            how_to_reproduce(command, seed=seed, packages=packages),
        ),
    )
