"""The command line: what it prints, where, how wide, and with which exit status."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import scopeval
from scopeval import errors, exact
from scopeval.cli import demonstration as demo_experiment
from scopeval.cli.app import app
from scopeval.envs.gridworld import Gridworld, target_policies

PROGRAM = str(Path(sys.executable).with_name("scopeval"))


def invoke(*words: str, env: dict[str, str] | None = None):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80", **(env or {})})


def spawn(*words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, env=env, check=False, timeout=300
    )


def assert_fits(text: str) -> None:
    assert "\x1b" not in text  # plain where there is no terminal
    wide = [line for line in text.splitlines() if len(line) > 80]
    assert wide == []


# -- the program itself --------------------------------------------------------------------------


def test_program_helps_without_loading_what_is_heavy():
    done = spawn("--help")
    assert done.returncode == 0, done.stderr
    assert_fits(done.stdout)
    for command in ("demo", "design", "campaign"):
        assert command in done.stdout
    code = (
        "import sys; sys.argv = ['scopeval', '--help']; from scopeval.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'numba', 'torch', 'scipy', 'matplotlib', 'pyarrow', 'gymnasium', 'cvxpy'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.splitlines()[-1] == "[]"


def test_program_demo(tmp_path):
    done = spawn("demo", "--out", str(tmp_path / "demo"))
    assert done.returncode == 0, done.stderr
    phases = done.stderr.splitlines()  # what is done, also where there is no terminal
    assert phases[0].startswith("writing logs")
    assert phases[1] == "comparing with a new policy"
    assert phases[2] == "designing from the logs"
    assert phases[-1] == "writing the report"
    lines = done.stdout.splitlines()
    assert_fits("\n".join(line for line in lines if str(tmp_path) not in line))
    assert len(lines) <= 32
    assert sum(bool(line.strip()) for line in lines) <= 26
    for word in (
        "is better than today",
        "an A/B test would have",
        "old controllers",
        "at 0.6 of its cost",
        "learns without logs",
        "--seed 1",
        "Proved",
    ):
        assert word in done.stdout
    assert sorted(os.listdir(tmp_path / "demo")) == ["logs.parquet", "report.html"]
    report = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "scopeval demo --seed 0 --episodes 1000" in report
    said = " ".join(done.stdout.split())
    assert re.search(r'class="answer">([^<]*)</p>', report)[1].replace("&#39;", "'") in said


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["demo"],
        ["campaign", "create"],
    ],
)
def test_every_help_fits_in_80_columns(words):
    result = invoke(*words, "--help")
    assert result.exit_code == 0
    assert_fits(result.stdout)
    assert "..." not in result.stdout.split("Options:")[-1]  # no summary is cut short


def test_version():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"scopeval {scopeval.__version__}"


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["demo", "--seed", "-1"], "seed: got -1"),
        (["demo", "--episodes", "1"], "episodes: got 1"),
        (["demo", "--out", "/dev/null/x"], "cannot write to /dev/null/x"),
    ],
)
def test_what_the_library_refuses_is_one_line_and_status_2(words, message):
    result = invoke(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_usage_errors_are_status_2_too():
    result = invoke("nonsense")
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


def test_brackets_in_a_message_are_printed(monkeypatch):
    def fail(*_: object) -> None:
        raise errors.DataError("column [red]: try pip install 'scopeval[bench]'")

    monkeypatch.setattr(demo_experiment, "run", fail)
    assert "column [red]: try pip install 'scopeval[bench]'" in invoke("demo").stderr


@pytest.mark.parametrize("how", ["option", "environment"])
def test_debug_shows_the_exception(how):
    if how == "option":
        result = invoke("--debug", "demo", "--seed", "-1")
    else:
        result = invoke("demo", "--seed", "-1", env={"SCOPEVAL_DEBUG": "1"})
    assert isinstance(result.exception, errors.InputError)


def test_interrupt_is_status_130(monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo_experiment, "run", interrupt)
    result = invoke("demo")
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


# -- demo ----------------------------------------------------------------------------------------


def test_demo_is_honest(tmp_path):
    """Exact values judge it. Estimates: within 5 standard errors, 6e-7 each by accident."""
    result = demo_experiment.run(demo_experiment.Config(seed=3), tmp_path)
    mdp, target = Gridworld(10, seed=3).mdp(), target_policies(1, 10, seed=3)[0]
    alone = exact.assess(mdp, target, target)
    assert result.truth == pytest.approx(alone.value)
    assert len(scopeval.read_logs(result.logs)) == result.rows == 10_000
    designed, found = result.designed
    ours = exact.assess(mdp, target, *designed.table(mdp.states))
    assert abs(found.estimate - alone.value) < 5 * (ours.variance / found.finished) ** 0.5
    assert ours.cost <= 1.01 * alone.cost
    assert ours.variance < 0.7 * alone.variance
    assert result.cheap is not None
    assert result.no_cheap == ""
    for e in (result.cheap.evaluation, result.learned):
        # their own errors, whose variance is below the policy's
        assert abs(e.estimate - alone.value) < 2.5 * (e.interval.high - e.interval.low)
        assert e.interval.half_width < result.on_policy.interval.half_width
    for e in (found, result.cheap.evaluation, result.learned):
        assert e.certificate is not None
        assert e.certificate.proved
        assert e.certificate.verdict == "safe"
        assert e.guard is not None
    assert result.cheap.evaluation.cost.total < 0.7 * result.on_policy.cost.total
    assert len(result.learned.stages) > 3
    assert result.same_precision is not None
    ratio = result.same_precision.interval.half_width / found.interval.half_width
    assert ratio == pytest.approx(1.0, abs=0.25)
    for e in (result.on_policy, result.same_precision):
        assert e.by_target == e.finished
        assert abs(e.estimate - alone.value) < 5 * (alone.variance / e.finished) ** 0.5


def test_demo_says_when_logs_bear_out_no_cheap_behavior_policy(tmp_path, monkeypatch):
    """Nothing of the story is hard-coded: with a part that cannot be reached it is told so."""
    config = demo_experiment.Config

    def asked(**settings):
        return config(**settings, part=0.01, logged=60)

    monkeypatch.setattr(demo_experiment, "Config", asked)
    shown = invoke("demo", "--episodes", "50", "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    assert "No evaluation at 0.01 of the cost: " in shown.stdout
    assert "at 0.01 of its cost" not in shown.stdout
    assert ("\nProved: " in shown.stdout) == (": proved\n" in shown.stdout)
    assert_fits("\n".join(x for x in shown.stdout.splitlines() if str(tmp_path) not in x))
    assert "No logs needed" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_demo_gives_the_same_page_every_time(tmp_path):
    pages = []
    for folder in ("a", "b"):
        out = tmp_path / folder
        shown = invoke("demo", "--seed", "2", "--episodes", "100", "--out", str(out))
        assert shown.exit_code == 0, shown.output
        pages.append((out / "report.html").read_bytes())
    assert pages[0] == pages[1]


# -- the package's front door --------------------------------------------------------------------


def test_import_is_light_and_every_public_name_loads():
    code = (
        "import sys, scopeval\n"
        "heavy = {'numba', 'torch', 'scipy', 'matplotlib', 'pyarrow', 'gymnasium', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "for name in scopeval.__all__: getattr(scopeval, name)\n"
        "print(set(scopeval.__all__) <= set(dir(scopeval)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "True"]


def test_public_names_are_the_ones_that_type_checkers_see():
    source = Path(scopeval.__file__).read_text()
    block = source.split("if TYPE_CHECKING:")[1].split("__version__")[0]
    names = re.findall(r"import \w+ as (\w+)", block)
    assert sorted(names) == sorted(set(scopeval.__all__) - {"__version__"})


def test_a_misspelt_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="solv"):
        scopeval.solv  # noqa: B018
