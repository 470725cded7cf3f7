"""Cards and sketches: short, escaped, self-contained; axes and tables where they are wanted."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from parsed_html import EVIL, parsed
from scopeval.errors import MissingExtraError
from scopeval.notebook.card import Card
from scopeval.notebook.frame import frame_of, vector_columns
from scopeval.notebook.sketch import (
    Bar,
    Span,
    axes_or_new,
    in_ipython,
    sketch_bars,
    sketch_curve,
    sketch_spans,
)


def test_everything_in_a_card_is_escaped():
    text = Card(EVIL, EVIL, ((EVIL, EVIL),), (EVIL, EVIL), remarks=(EVIL,)).html()
    assert parsed(text).seen == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert text.count("&lt;script&gt;") == 7
    for svg in (
        sketch_spans([Span(EVIL, 0.0, 1.0, 2.0)]),
        sketch_bars([Bar(EVIL, 1.0)], 1.0, EVIL),
    ):
        assert "script" not in parsed(svg).seen


def test_cards_ask_no_host_and_have_no_style_sheets():
    card = Card("a", "b", (("c", "1"),), sketch=sketch_curve([(0.5, 0.7), (1.0, 0.2)])).html()
    assert not re.search(r"https?:|//|<style|<link|@import|url\(", card)


def test_numbers_stand_on_the_right_and_words_on_the_left():
    card = Card("", "", (("name", "1,234.5", "12.0%", "two words", "3 of 4"),)).html()
    cells = re.findall(r"text-align:(\w+)[^>]*>([^<]*)<", card)
    assert [side for side, _ in cells] == ["left", "right", "right", "left", "left"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_cannot_be_drawn_is_left_out(bad):
    assert sketch_spans([Span("a", bad, 1.0, 2.0)]) == ""
    assert sketch_bars([Bar("a", bad)], 1.0, "one") == ""
    assert sketch_curve([(bad, 0.5), (0.5, bad), (1.0, 0.2)]) == ""
    assert sketch_spans([Span("a", 1.0, 1.0, 1.0)]) == ""
    assert sketch_spans([]) == sketch_bars([], 1.0, "one") == sketch_curve([]) == ""


def test_sketches_stay_inside_their_frame():
    drawn = sketch_bars([Bar("a", 0.9), Bar("b", 3.0)], 1.0, "one")
    drawn += sketch_spans([Span("a", -5.0, 0.0, 4.0), Span("b", -1.0, 0.0, 9.0)])
    for name in ("x", "x1", "x2", "cx"):
        for value in re.findall(rf' {name}="([^"]*)"', drawn):
            assert 0 <= float(value) <= 380


def test_axes_are_made_without_pyplot_outside_of_notebooks():
    assert not in_ipython()
    ax = axes_or_new(None, 4.0, 3.0)
    assert tuple(ax.figure.get_size_inches()) == (4.0, 3.0)
    assert axes_or_new(ax) is ax


def test_vectors_become_numbered_columns():
    assert list(vector_columns("obs", np.zeros((3, 2)))) == ["obs_0", "obs_1"]
    assert list(vector_columns("obs", np.zeros(3))) == ["obs"]


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'scopeval\[notebook\]'"):
        frame_of({"a": [1]})
