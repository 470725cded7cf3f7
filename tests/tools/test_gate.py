"""The gate: what is skipped there has failed, and another BLAS kernel is really another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "mark": '@pytest.mark.skipif(True, reason="{}")\ndef test_it():\n    pass\n',
    "call": 'def test_it():\n    pytest.skip("{}")\n',
    "fixture": '@pytest.fixture\ndef it():\n    pytest.skip("{}")\ndef test_it(it):\n    pass\n',
    "module": 'pytest.importorskip("no_such_package", reason="{}")\n',
}


def run_pytest(folder: Path, content: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text("import pytest\n" + content, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = (sys.executable, "-m", "pytest", "-p", "conftest", "-p", "no:cacheprovider", "-q")
    env = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT / "tests")}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take longer than the test
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("how", SKIPPED)
def test_what_is_skipped_in_the_gate_has_failed(how, tmp_path):
    content = SKIPPED[how].format("no browser here")
    failed = run_pytest(tmp_path, content, "true")
    assert failed.returncode in (1, 2)
    assert "no browser here" in failed.stdout
    assert "EXCUSED" in failed.stdout
    assert run_pytest(tmp_path, content, "").returncode in (0, 5)  # 5: nothing was collected


def test_some_reasons_are_excused_and_expected_failures_are_no_skips(tmp_path):
    for reason, status in (("root may write everywhere", 0), ("root may write everywhere x", 1)):
        done = run_pytest(tmp_path, SKIPPED["mark"].format(reason), "true")
        assert done.returncode == status, done.stdout
    failing = "@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    assert run_pytest(tmp_path, failing, "true").returncode == 0


def test_the_other_kernel_is_another_one():
    asked = "import numpy; from threadpoolctl import threadpool_info as info; print(sorted("
    asked += "one['architecture'] for one in info() if one['internal_api'] == 'openblas'))"
    plain = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}

    def shown(*command: str) -> str:
        return subprocess.run(
            (sys.executable, *command), env=plain, capture_output=True, text=True, check=True
        ).stdout.splitlines()[-1]

    own = shown("-c", asked)
    other = shown(str(ROOT / "tools" / "other_kernel.py"), "-c", asked)
    assert other != own or own == "[]"  # [] where BLAS is not OpenBLAS


def test_the_numeric_tests_are_where_the_makefile_says():
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (names,) = (line for line in text.splitlines() if line.startswith("NUMERIC :="))
    paths = names.removeprefix("NUMERIC :=").split()
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_heavy_tests_are_left_out_unless_they_are_asked_for():
    def collected(*more: str) -> str:
        command = (sys.executable, "-m", "pytest", "--collect-only", "-q", *more)
        places = ("tests/benchmarks/test_bench.py", "tests/tools/test_crash_campaigns.py")
        env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(
            (*command, *places), cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
        )
        return done.stdout

    heavy = collected("-m", "heavy")
    assert "test_campaigns_survive_kills" in heavy
    assert "tests/benchmarks/" in heavy
    assert "::" not in collected().replace("no tests", "")


EXAMPLES = """
import time
from hypothesis import given, settings, strategies as st
numbers = []
@given(st.integers())
@settings(max_examples=20)
def test_numbers(number):
    numbers.append(number)
    time.sleep(0.3 * (len(numbers) == 5))  # more than Hypothesis allows by itself
def test_written():
    print("drawn:", numbers)
"""


def test_examples_are_the_same_in_every_run_and_none_fails_by_the_clock(tmp_path):
    def drawn(*more: str) -> list[str]:
        (tmp_path / "test_it.py").write_text(EXAMPLES, encoding="utf-8")
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        plugins = ("-p", "_hypothesis_pytestplugin", "-p", "conftest", "-p", "no:cacheprovider")
        env = os.environ | {
            "PYTHONPATH": str(ROOT / "tests"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        env.pop("CI", None)  # there Hypothesis has such a profile of its own
        command = (sys.executable, "-m", "pytest", *plugins, "-s", "-q", *more)
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout
        return [line for line in done.stdout.splitlines() if "drawn:" in line]

    assert drawn() == drawn() != []
    assert drawn("--hypothesis-profile", "search") != drawn()
