"""The list of wrong edits for `make mutants` fits the code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def mutants():
    spec = importlib.util.spec_from_file_location("mutants", TOOLS / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = before


def test_every_text_occurs_exactly_once_and_every_test_exists(mutants):
    assert mutants.outdated(mutants.EDITS) == []
    assert len(mutants.EDITS) >= 40


def test_an_outdated_list_is_noticed(mutants):
    edit = mutants.EDITS[0]
    for wrong in (
        edit._replace(old="no such text"),
        edit._replace(old="return", new="pass"),
        edit._replace(new=edit.old),
        edit._replace(tests=("behavior/test_decision.py::test_nothing",)),
        edit._replace(tests=("behavior/no_such_file.py",)),
    ):
        assert mutants.outdated([wrong])
