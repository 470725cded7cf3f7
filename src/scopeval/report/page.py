"""The parts of a report, and how it becomes a file.

A `Page` is plain text and finished figures: it knows nothing of evaluations or experiments. Every
text is escaped; only the figures of `svg.figure_of` go in as they are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

from scopeval._files import check_place, replace_file, versions
from scopeval.errors import InputError

__all__ = [
    "NONE",
    "Check",
    "Fact",
    "Figure",
    "Page",
    "Section",
    "Table",
    "Tone",
    "Verdict",
    "how_to_reproduce",
    "render",
    "write_report",
]

Tone = Literal["good", "open", "bad", "plain"]
Shape = Literal["plain", "wide", "tall"]


@dataclass(frozen=True)
class Verdict:
    """The badge: safe or not, in a few words.

    Attributes:
        tone: decides its color and its sign.
        text: the words.
    """

    tone: Tone
    text: str


@dataclass(frozen=True)
class Fact:
    """One headline number."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows, the others hold numbers, or `words`."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: bool = False

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.header)]
        if wrong:
            raise InputError(
                f"rows: got {len(wrong[0])} cells in {wrong[0]!r}, expected {len(self.header)}, "
                "one for each word of the header"
            )


@dataclass(frozen=True)
class Figure:
    """A figure.

    Attributes:
        svg: as `svg.figure_of` made it; goes into the page as it is.
        label: the text for readers who cannot see it.
        caption: what it shows, below it.
        shape: "wide" takes the width of the page, "tall" stands beside two others.
    """

    svg: str
    label: str
    caption: str
    shape: Shape = "plain"


@dataclass(frozen=True)
class Check:
    """Something that was checked; `tone` says with which result."""

    tone: Tone
    text: str


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs, then the other parts in this order."""

    title: str
    text: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    checks: tuple[Check, ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Page:
    """A report: first the answer, then the details."""

    title: str
    answer: str
    verdict: Verdict
    facts: tuple[Fact, ...] = ()
    sections: tuple[Section, ...] = ()


#: In a cell of a table: there is no number.
NONE = "\N{EN DASH}"


def how_to_reproduce(
    command: str | None = None,
    *,
    seed: int | None = None,
    packages: Sequence[str] = ("numpy", "scipy", "numba", "torch"),
    more: Mapping[str, str] | None = None,
) -> Section:
    """The last section: the command, the seed and the versions.

    Args:
        command: the command line; line breaks stay.
        seed: of everything random.
        packages: whose versions matter.
        more: other rows of the table.
    """
    rows = [] if seed is None else [("seed", str(seed))]
    rows += list((more or {}).items())
    rows += list(versions(*packages).items())
    return Section(
        "How to reproduce this",
        ("The command, the seed and the versions that made this page.",),
        tables=(Table("Seed and versions", ("what", "which"), tuple(rows)),),
        code=command or "",
    )


def render(page: Page) -> str:
    """The page as HTML."""
    from jinja2 import Environment, StrictUndefined

    room = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    here = resources.files("scopeval.report")
    source = here.joinpath("page.html.jinja").read_text(encoding="utf-8")
    style = here.joinpath("page.css").read_text(encoding="utf-8")
    html = room.from_string(source).render(page=page, style=style, versions=versions())
    return html.rstrip() + "\n"


def write_report(page: Page, path: str | os.PathLike[str]) -> Path:
    """Write the page as one HTML file, whole or not at all.

    Raises:
        InputError: there can be no file at this path.
        DataError: writing failed, as on a full disk.
    """
    goal = check_place(path)
    return replace_file(goal, render(page).encode())
