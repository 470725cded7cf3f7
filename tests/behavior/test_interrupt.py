"""Ctrl-C while a design learns from vectors: the process ends, with all its threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from scopeval import Transitions, write_logs

#: A design that would take days: the signal comes while networks are trained in several threads.
PROGRAM = """
import os
import sys
import threading
os.cpu_count = lambda: 2
from scopeval import Networks, design, read_logs
from scopeval.models.training import Training

def told(what, done, total):
    if done == 500:
        print(what, flush=True)

endless = Networks(training=Training(steps=10**9))
log = read_logs(sys.argv[1])
design(log, lambda obs, t: obs * 0 + 0.5, horizon=3, learn=endless, progress=told)
"""


@pytest.fixture
def log(tmp_path):
    rng = np.random.default_rng(0)
    n = 2000
    x, a = rng.standard_normal((n, 2)), rng.integers(2, size=n)
    rows = Transitions(np.zeros(n, int), x, a, x[:, 0] + a, np.ones(n), x + 0.1)
    write_logs(rows, tmp_path / "log.parquet")
    return str(tmp_path / "log.parquet")


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A shell lets programs in the background ignore it, and their children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(words, log, until: str) -> tuple[int, str]:
    """Exit status and stderr of a process that gets SIGINT once it has printed something.

    It is given a minute to end, which it does not need; one that ignores the signal never ends.
    """
    process = subprocess.Popen(
        [sys.executable, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            stream = process.stdout if until == "stdout" else process.stderr
            for line in stream:
                if "learning the dynamics" in line:
                    break
            process.send_signal(signal.SIGINT)
            _, rest = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, rest


def test_a_program_ends_with_keyboard_interrupt(log):
    status, said = interrupted(["-c", PROGRAM, log], log, "stdout")
    assert status in (-signal.SIGINT, 130), said
    assert said.strip().endswith("KeyboardInterrupt")


def test_the_command_ends_with_status_130(log, tmp_path):
    """Off a terminal the command prints what it does, which is what the test waits for."""
    (tmp_path / "pi.py").write_text(
        "def probs(obs, t):\n    return obs * 0 + 0.5\n", encoding="utf-8"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "import scopeval.models.training as training\n"
        "training.STEPS_PER_ROOT = training.MOST_STEPS = 10**9\n"
        "from scopeval.cli.app import main\n"
        f"sys.argv = ['scopeval', 'design', '--data', {log!r}, '--policy', 'pi:probs', "
        f"'--horizon', '3', '--out', {str(tmp_path / 'mu.scope')!r}]\n"
        "main()\n"
    )
    status, said = interrupted(["-c", program], log, "stderr")
    assert status == 130, said
    assert "interrupted" in said
    assert not (tmp_path / "mu.scope").exists()


def test_at_most_one_piece_of_training_runs_after_the_signal(monkeypatch):
    """Two threads train networks that are never done; a real SIGINT comes to the main thread.

    A thread may have asked whether it is still wanted just before; it begins one piece then.
    """
    from scopeval import _parallel
    from scopeval.models import _layers_kernel
    from scopeval.models.layers import LAYERS, Examples, Schedule, fit_layers

    begun = {"before": 0, "after": 0}

    def piece(*arguments):
        unwanted = _parallel._THREAD.unwanted
        begun["after" if unwanted.is_set() else "before"] += 1
        assert begun["after"] < 5  # else it would never end
        if begun["before"] == 4:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        if begun["before"] >= 4:
            assert unwanted.wait(60)  # until the main thread has been told

    monkeypatch.setattr(_layers_kernel, "train", piece)
    shapes = {"w1": (2, 3), "b1": (3,), "w2": (3, 3), "b2": (3,), "w3": (3, 1), "b3": (1,)}
    layers = {name: np.zeros(shapes.get(name, (1,)), np.float32) for name in LAYERS}
    rows, none = np.zeros((10, 2), np.float32), np.zeros((0, 0), np.float32)
    examples = Examples(rows, rows[:, :1], none, none[0:0].ravel())

    def learn(k):
        return fit_layers(layers, examples, Schedule(10**9, 5, 0.1), np.random.default_rng(k))

    with pytest.raises(KeyboardInterrupt):
        _parallel.fan_out(learn, range(3), threads=2)
    assert begun["before"] in (4, 5)
    assert begun["after"] <= 2  # one for each thread


def test_a_signal_while_work_is_handed_over_ends_it_too(monkeypatch):
    """The main thread is told between two items; the first one must not go on to its end."""
    from concurrent.futures import ThreadPoolExecutor

    from scopeval import _parallel

    ended = []
    submit = ThreadPoolExecutor.submit

    def interrupted(pool, *arguments):
        if getattr(pool, "begun", False):
            raise KeyboardInterrupt
        pool.begun = True
        return submit(pool, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _parallel.fan_out(lambda _: ended.append(_parallel._THREAD.unwanted.wait(20)), range(2))
    assert ended == [True]
