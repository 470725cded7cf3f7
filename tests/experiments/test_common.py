"""What experiments share: jobs give the same bits whatever dies or is damaged; commands; tables."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import common, gridworld
from experiments.common import RunArgs, Table, mean_of, methods_of, run_jobs, text_of
from scopeval.errors import InputError
from scopeval.workers.attempt import WorkerError

ROOT = Path(__file__).parents[2]
JOBS = [{"number": k} for k in range(4)]


@dataclass(frozen=True)
class Args(RunArgs):
    seed: int = 0
    count: int = 4

    RANGES: ClassVar[tuple[str, ...]] = ("count",)


def trace(args: Args, number: int) -> int:
    """How often this job was done, this time included."""
    args.folder.mkdir(parents=True, exist_ok=True)
    path = args.folder / f"trace-{number}"
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def draws(args: Args, number: int) -> dict[str, object]:
    """Numbers whose last bits would show any difference."""
    trace(args, number)
    rng = np.random.default_rng((args.seed, number))
    return {"values": np.linalg.svd(rng.standard_normal((50, 50)))[1].tolist()}


def dies_once(args: Args, number: int) -> dict[str, object]:
    if number == 1 and trace(args, number) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"value": number}


def fails(args: Args, number: int) -> dict[str, object]:
    if number == 2:
        raise ZeroDivisionError("no luck")
    return {"value": number}


def not_finite(args: Args, number: int) -> dict[str, object]:
    return {"value": float("nan")}


@pytest.fixture
def serial(tmp_path):
    return Args(out=tmp_path / "serial", backend="serial")


@pytest.mark.heavy
def test_the_same_bits_in_processes(serial, tmp_path):
    wanted = run_jobs(draws, serial, JOBS)
    assert [row["number"] for row in wanted] == [0, 1, 2, 3]
    assert run_jobs(draws, Args(out=tmp_path / "two", workers=2), JOBS) == wanted


def test_answers_are_kept_and_damaged_ones_made_again(serial):
    wanted = run_jobs(draws, serial, JOBS[:3])
    files = sorted((serial.folder / "jobs").iterdir())
    files[0].write_text(files[0].read_text()[:40])
    files[1].unlink()
    assert run_jobs(draws, replace(serial, count=9), JOBS)[:3] == wanted
    sizes = [(serial.folder / f"trace-{k}").stat().st_size for k in range(4)]
    assert sorted(sizes) == [1, 1, 2, 2]  # two were made again, and one is new
    other = run_jobs(draws, replace(serial, seed=1), JOBS)
    assert other[0]["values"] != wanted[0]["values"]


@pytest.mark.heavy
def test_a_job_whose_worker_dies_is_done_again(tmp_path):
    rows = run_jobs(dies_once, Args(out=tmp_path, workers=2), JOBS)
    assert [row["value"] for row in rows] == [0, 1, 2, 3]


@pytest.mark.parametrize("backend", ["serial", pytest.param("processes", marks=pytest.mark.heavy)])
def test_a_job_that_fails_is_named_and_the_others_are_kept(backend, tmp_path):
    args = Args(out=tmp_path, backend=backend, workers=1)
    with pytest.raises((WorkerError, ZeroDivisionError), match=r"number 2|no luck"):
        run_jobs(fails, args, JOBS)
    assert len(list((tmp_path / "jobs").iterdir())) == 2
    with pytest.raises(Exception, match=r"nan|JSON"):
        run_jobs(not_finite, args, JOBS[:1])


def test_the_command_gives_the_same_options_again():
    args = gridworld.Args(sizes=(4, 5), targets=2, worlds=1, methods=("scope",), quick=True)
    words = args.command.split()
    assert words[:3] == ["python", "-m", "experiments.gridworld"]
    again = common.tyro.cli(gridworld.Args, args=words[3:])
    assert again.config == args.config
    assert "--worlds" not in gridworld.Args().command


def test_the_command_says_what_is_switched_off():
    from experiments import compare

    words = compare.Args(parts=("pairs",), separate=False).command.split()
    assert "--no-separate" in words
    assert not common.tyro.cli(compare.Args, args=words[3:]).separate


def test_what_no_job_measured_is_left_out_of_the_file():
    """`python -m experiments.gridworld` without other estimators ended here, after all its work."""
    rows = [{"target": 1, "estimators": {}}, {"target": 2, "estimators": {}}]
    table = pq.read_table(io.BytesIO(common._parquet(rows, "a command")))
    assert table.column_names == ["target"]
    assert table["target"].to_pylist() == [1, 2]


def test_means_and_tables():
    assert text_of(mean_of([1.0, 2.0, 3.0])) == "2.000 ± 0.577"
    assert text_of(mean_of([1.0]), ".1f") == "1.0"
    assert text_of(None) == ""
    table = Table("Title", ("a", "pre\xaddicted"), (("x", "1"),))
    assert table.markdown() == "**Title**\n\n| a | predicted |\n| --- | --- |\n| x | 1 |"


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (("guess",), "got 'guess', expected some of scope, .* or module:attribute"),
        (("scope", "scope"), "expected each once"),
        (("no_such_module:x",), "cannot import 'no_such_module'"),
    ],
)
def test_methods_that_are_refused(specs, message):
    with pytest.raises(InputError, match=message):
        methods_of(specs, ("ros",))
    assert methods_of(("ros", "scope"), ("ros",)) == ("on-policy", "ros", "scope")


def start(module, *words, folder, cwd):
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", f"experiments.{module}", *words, "--out", str(folder)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_method_an_estimator_and_a_model_of_ones_own_in_ten_lines(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from scopeval import Table\n"
        "from scopeval.behavior.methods import Method\n"
        "from scopeval.estimation.estimators import pdis\n\n"
        "def half_way(pi, second_moment, cost, budget):\n"
        "    return (pi + 1 / pi.shape[1]) / 2\n\n"
        "half = Method('half', step=half_way)\n\n"
        "def same(episodes):\n"
        "    return pdis(episodes)\n\n"
        "def learn(coordinates):\n"
        "    assert coordinates.shape == (9, 2)\n"
        "    return Table(features=coordinates)\n"
    )
    words = ["--sizes", "3", "--targets", "2", "--runs", "2", "--episodes", "10"]
    words += ["--logged", "60", "--epsilons", "0", "--workers", "1"]
    words += ["--estimators", "mine:same", "fqe", "pdis", "--critics", "mine:learn"]
    done = start("gridworld", *words, "--methods", "mine:half", folder="here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\nhalf " in done.stdout
    assert "of other estimators after 10 episodes, over 2 runs" in " ".join(done.stdout.split())
    content = json.loads((tmp_path / "here" / "gridworld.json").read_text())
    assert [row["method"] for row in content["blocks"][0]["methods"]] == ["on-policy", "half"]
    assert "--methods mine:half" in content["command"]
    squares = content["blocks"][0]["estimators"]
    assert set(squares) == {"on-policy", "half"}
    for by in squares.values():
        assert by["mine:same"]["mean"] == by["pdis"]["mean"] != by["fqe"]["mean"]
    file = str(tmp_path / "here" / "gridworld.json")
    common.main("experiments.gridworld", ["--from-stored", file, "--markdown"])
    assert "| half |" in capsys.readouterr().out


def test_what_is_refused_is_one_line(tmp_path, capsys):
    words = ["--targets", "2", "--worlds", "3", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        common.main("experiments.gridworld", words)
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: worlds: got 3 for 2 targets")
