"""Histories from logs, and what logs alone say about where the noise is."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval import History, Transitions, write_logs
from scopeval.cli.app import app
from scopeval.context.log_paths import LogNoise, episodes_of
from scopeval.envs.exogenous import simulate
from scopeval.envs.queue import Queue
from scopeval.errors import DataError, InputError

QUEUE = Queue(horizon=20)


def log_of(n, seed=0, exogenous=()):
    rng = np.random.default_rng(seed)
    paths = QUEUE.paths(n, rng)
    columns = simulate(QUEUE, QUEUE.policies()[0], paths, rng).transitions()
    del columns["exogenous"], columns["signals"]
    return paths, Transitions(**columns, exogenous=exogenous)


def test_paths_of_a_log_are_those_of_its_episodes():
    paths, log = log_of(60)
    history = History.of_logs(log, 2)
    assert history.paths.shape == (60, 21, 1)
    assert history.paths[:, 1:, 0] == pytest.approx(paths)  # who came last
    assert history.columns == [2]
    assert len(History.of_logs(log, (1, 2), horizon=20).column_name(1)) > 0
    assert episodes_of(log).returns.shape == (60,)


def test_what_is_a_selection_or_out_of_order_is_refused():
    _, log = log_of(60)
    with pytest.raises(DataError, match="are a selection"):
        History.of_logs(log.select(slice(0, len(log) - 3)), 2)
    with pytest.raises(DataError, match="no row has t = 0"):
        History.of_logs(log.select(np.arange(len(log))[::-1]), 2)
    with pytest.raises(InputError, match="3 columns"):
        History.of_logs(log, 7)
    with pytest.raises(InputError, match="state numbers"):
        History.of_logs(
            Transitions([0], np.array([1]), [0], [1.0], [0.0], np.array([1]), [False]), 0
        )


def test_a_log_alone_says_where_its_noise_is():
    _, log = log_of(400, exogenous=2)
    noise = LogNoise()
    half = 200 * QUEUE.horizon
    noise.add(log.select(slice(0, half)))
    noise.add(log.select(slice(half, len(log))))
    [bar] = noise.lines()
    assert "goes with column 2" in bar
    assert bar.startswith("[cccc")
    unnamed = LogNoise()
    unnamed.add(log_of(400)[1])
    assert any("goes with column 2" in text for text in unnamed.lines())
    with pytest.raises(InputError, match="3 columns"):
        log_of(4, exogenous=9)


def test_noise_that_goes_with_nothing_is_not_said_to():
    """30 logs of 200 episodes whose rewards are pure noise: a quarter is never claimed."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        n, T = 200, 5
        log = Transitions(
            t=np.tile(np.arange(T), n), obs=rng.normal(size=(n * T, 2)),
            action=rng.integers(2, size=n * T), reward=rng.normal(size=n * T),
            cost=np.zeros(n * T), next_obs=rng.normal(size=(n * T, 2)),
        )  # fmt: skip
        noise = LogNoise()
        noise.add(log)
        assert noise.lines() == []


def test_check_shows_the_bar(tmp_path):
    place = tmp_path / "log.parquet"
    write_logs(log_of(120)[1], place)
    shown = CliRunner().invoke(app, ["check", str(place), "--exogenous", "2"])
    assert shown.exit_code == 0, shown.output
    assert "where the noise is" in shown.output
    assert "context takes that out" in " ".join(shown.output.split())
    wrong = CliRunner().invoke(app, ["check", str(place), "--exogenous", "outdoor"])
    assert wrong.exit_code != 0


def test_evaluate_by_the_command_line_takes_a_history(tmp_path):
    years = QUEUE.paths(500, np.random.default_rng(5))
    np.save(tmp_path / "years.npy", years)
    (tmp_path / "shop_for_test.py").write_text(
        "from scopeval.envs.exogenous import ExogenousEnv\n"
        "from scopeval.envs.queue import Queue\n"
        "queue = Queue(horizon=20)\npolicy = queue.policies()[0]\n"
        "def env():\n    return ExogenousEnv(queue)\n"
    )
    words = ["evaluate", "--env", "shop_for_test:env", "--policy", "shop_for_test:policy",
             "--horizon", "20", "--episodes", "60", "--context", str(tmp_path / "years.npy"),
             "--exogenous", "arrivals"]  # fmt: skip
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(tmp_path)
        shown = CliRunner().invoke(app, words)
        assert shown.exit_code == 0, shown.output
        assert "by context" in " ".join(shown.output.split())
        alone = CliRunner().invoke(app, words[:-2])
        assert alone.exit_code != 0
