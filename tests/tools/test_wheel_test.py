"""The wheel test finds interpreters; `make wheel-test` builds and installs."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "tools" / "wheel_test.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("tool_wheel_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_this_python_is_found_and_others_are_named(tool):
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = tool.interpreters([here, "3.0"])
    assert found == {here: sys.executable, "3.0": None}


def test_files_that_are_not_in_the_wheel_are_noticed(tool, tmp_path):
    empty = tmp_path / "scopeval-0-py3-none-any.whl"
    with zipfile.ZipFile(empty, "w"):
        pass
    missing = tool.missing_files(empty)
    assert {"scopeval/__init__.py", "scopeval/py.typed", "scopeval/report/page.css"} <= missing


def test_a_run_that_tries_nothing_fails(tool, monkeypatch, capsys):
    monkeypatch.setattr(tool, "build", lambda folder: folder)
    monkeypatch.setattr(tool, "missing_files", lambda wheel: set())
    monkeypatch.setattr(sys, "argv", ["wheel_test.py", "--versions", "3.0"])
    assert tool.main() == 1
    assert "Python 3.0: skipped" in capsys.readouterr().out


def test_the_smoke_test_is_python(tool):
    compile(tool.SMOKE, "smoke", "exec")
