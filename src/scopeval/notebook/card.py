"""A card: what a notebook shows for an object, as a piece of HTML.

It is a sentence, a small table, at most one sketch, and remarks. Every text is escaped. Styles are
attributes and colors are relative to the notebook's own, so that a card fits light and dark pages
and survives viewers that remove style sheets. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

__all__ = ["Card"]

_BOX = "max-width:46em;overflow-x:auto;line-height:1.4;margin:.3em 0"
_TABLE = "border-collapse:collapse;margin:.4em 0;font-size:.92em;color:inherit;background:none"
_ROW = "background:none;color:inherit"
_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = f"padding:.15em .9em .15em 0;vertical-align:top;{_LINE}"
_REMARK = "margin:.25em 0;padding-left:.6em;border-left:3px solid #c8730f"

_NUMBER = re.compile("[-+]?[0-9][0-9.,]*%?|\N{EN DASH}")


@dataclass(frozen=True)
class Card:
    """A card.

    Attributes:
        title: what the object is.
        sentence: the one sentence that matters.
        rows: of the table; the first cell of each names the row.
        header: of the table; empty: none.
        sketch: an SVG of `sketch`; goes in as it is.
        remarks: what the user should know, such as warnings.
    """

    title: str
    sentence: str
    rows: tuple[tuple[str, ...], ...] = ()
    header: tuple[str, ...] = ()
    sketch: str = ""
    remarks: tuple[str, ...] = ()

    def html(self) -> str:
        """The card as HTML."""
        parts = [
            f'<div style="{_BOX}">',
            f'<div style="font-weight:600">{html.escape(self.title)}</div>',
            f"<div>{html.escape(self.sentence)}</div>",
            self.sketch,
            self._table(),
            *(f'<div style="{_REMARK}">{html.escape(text)}</div>' for text in self.remarks),
            "</div>",
        ]
        return "".join(parts)

    def _table(self) -> str:
        if not self.rows:
            return ""
        head = ""
        if self.header:
            cells = "".join(
                _cell("th", text, k, "font-weight:600") for k, text in enumerate(self.header)
            )
            head = f'<thead><tr style="{_ROW}">{cells}</tr></thead>'
        body = "".join(f'<tr style="{_ROW}">{_cells(row)}</tr>' for row in self.rows)
        return f'<table style="{_TABLE}">{head}<tbody>{body}</tbody></table>'


def _cells(row: tuple[str, ...]) -> str:
    first = _cell("th", row[0], 0, "font-weight:normal;opacity:.75")
    return first + "".join(_cell("td", text, k) for k, text in enumerate(row) if k)


def _cell(kind: str, text: str, column: int, more: str = "") -> str:
    """A cell; numbers stand on the right, and the names of rows are not broken."""
    number = column > 0 and _NUMBER.fullmatch(text) is not None
    align = "right" if number else "left"
    wrap = "nowrap" if column == 0 or number else "normal"
    style = f"{_CELL};text-align:{align};white-space:{wrap}" + (f";{more}" if more else "")
    return f'<{kind} style="{style}">{html.escape(text)}</{kind}>'
