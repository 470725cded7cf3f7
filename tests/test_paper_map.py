"""docs/paper-map.md names functions and tests: each of them exists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "paper-map.md").read_text()


def rows() -> list[list[str]]:
    """The cells of every table row that is no header."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if line.startswith("|") and not line.startswith(("|---", "| Paper |"))
    ]


ROWS = rows()


def resolve(name: str) -> object:
    """``scopeval.exact.assess`` -> the function."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(name)


def test_the_page_has_its_tables():
    assert len(ROWS) > 30
    assert all(len(row) == 4 for row in ROWS), [row for row in ROWS if len(row) != 4]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_name_exists(row):
    *_, place, tests = row
    names = re.findall(r"`([^`]+)`", place)
    assert names
    for name in names:
        resolve(name)
    names = re.findall(r"`([^`]+)`", tests)
    assert names
    for name in names:
        file, _, test = name.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_every_paper_test_is_on_the_page():
    """A lemma's or theorem's test that nobody can find from the paper is half a test."""
    tree = ast.parse((TESTS / "test_paper.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith(
            ("test_lemma", "test_theorem", "test_eq", "test_algorithm")
        ):
            assert f"test_paper.py::{node.name}" in PAGE, node.name


def test_dead_links_are_seen():
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve("scopeval.exact.no_such_function")
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve("scopeval.no_such_module.f")
