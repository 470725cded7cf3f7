"""Shards: the same bits from every backend, whatever dies, is damaged or is interrupted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from scopeval.errors import InputError, MissingExtraError
from scopeval.paper.backends import store
from scopeval.paper.backends.shards import ShardError, run_shards
from scopeval.workers.queue import RETRIES
from started_programs import gone, run_ray_script

TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Shard:
    number: int
    seed: int = 0
    seconds: float = 0.0
    marker: str = ""  # a folder in which work leaves a trace of every call

    @property
    def label(self) -> str:
        return f"number {self.number}"


def leave_a_trace(shard: Shard) -> int:
    """How often this shard was called, this time included."""
    if not shard.marker:
        return 1
    path = Path(shard.marker) / str(shard.number)
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


def calls(folder: Path) -> dict[int, int]:
    return {int(path.name): path.stat().st_size for path in folder.iterdir()}


def draws(shard: Shard) -> dict[str, object]:
    """Numbers whose last bits would show any difference."""
    leave_a_trace(shard)
    time.sleep(shard.seconds)
    rng = np.random.default_rng((shard.seed, shard.number))
    matrix = rng.standard_normal((50, 50))
    return {"number": shard.number, "values": np.linalg.svd(matrix)[1].tolist()}


def dies_once(shard: Shard) -> dict[str, object]:
    if shard.number == 1 and leave_a_trace(shard) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return draws(Shard(shard.number))


def dies_always(shard: Shard) -> None:
    leave_a_trace(shard)
    if shard.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def fails(shard: Shard) -> int:
    if shard.number == 1:
        raise ZeroDivisionError("no luck")
    return shard.number


def threads(shard: Shard) -> list[str | None]:
    return [os.environ.get(name) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")]


def not_json(shard: Shard) -> object:
    return {"value": np.float32(1.0)}


def not_finite(shard: Shard) -> float:
    return float("nan")


SHARDS = [Shard(k) for k in range(4)]


@pytest.fixture
def wanted():
    return [draws(shard) for shard in SHARDS]


# -- the same bits -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "how", [{"backend": "serial"}, {"workers": 1}, {"workers": 2}], ids=["serial", "one", "two"]
)
def test_the_same_bits_whatever_the_backend(how, wanted, tmp_path):
    assert run_shards(draws, SHARDS, folder=tmp_path, **how) == wanted
    assert len(list(tmp_path.iterdir())) == len(SHARDS)  # no temporary file stays


def test_progress_counts_what_is_done(tmp_path):
    seen: list[tuple[int, int, str]] = []
    run_shards(draws, SHARDS[:2], backend="serial", folder=tmp_path)
    run_shards(
        draws,
        SHARDS,
        backend="serial",
        folder=tmp_path,
        progress=lambda *step: seen.append(step),
    )
    assert seen == [(2, 4, "resumed"), (3, 4, "number 2"), (4, 4, "number 3")]


def test_workers_have_one_thread(tmp_path):
    before = os.environ.get("OMP_NUM_THREADS")
    for folder, backend in (("a", "serial"), ("b", "processes")):
        answer = run_shards(threads, SHARDS[:1], backend=backend, folder=tmp_path / folder)
        assert answer == [["1", "1"]]
    assert os.environ.get("OMP_NUM_THREADS") == before


# -- resuming ------------------------------------------------------------------------------------


def test_running_again_computes_only_what_is_missing(tmp_path):
    (traces := tmp_path / "traces").mkdir()
    shards = [Shard(k, marker=str(traces)) for k in range(4)]
    run_shards(draws, shards[:3], backend="serial", folder=tmp_path / "kept")
    first = run_shards(draws, shards, backend="serial", folder=tmp_path / "kept")
    again = run_shards(draws, shards, workers=2, folder=tmp_path / "kept")
    assert again == first
    assert calls(traces) == {0: 1, 1: 1, 2: 1, 3: 1}


def test_another_configuration_function_or_code_is_not_resumed(tmp_path, monkeypatch):
    (traces := tmp_path / "traces").mkdir()
    kept = {"backend": "serial", "folder": tmp_path / "kept"}
    shard = Shard(0, marker=str(traces))
    run_shards(draws, [shard], **kept)
    run_shards(draws, [Shard(0, seed=1, marker=str(traces))], **kept)
    assert calls(traces) == {0: 2}
    assert run_shards(fails, [shard], **kept) == [0]
    monkeypatch.setattr(store, "source_digest", lambda: "another version of this package")
    run_shards(draws, [shard], **kept)
    assert calls(traces) == {0: 3}


def test_equal_shards_are_computed_once(tmp_path):
    (traces := tmp_path / "traces").mkdir()
    shards = [Shard(0, marker=str(traces))] * 3
    answers = run_shards(draws, shards, backend="serial", folder=tmp_path / "kept")
    assert len(answers) == 3
    assert calls(traces) == {0: 1}


@pytest.mark.parametrize("damage", ["cut", "empty", "value", "text", "other"])
def test_a_damaged_file_is_named_and_computed_again(damage, wanted, tmp_path):
    run_shards(draws, SHARDS, backend="serial", folder=tmp_path)
    paths = {json.loads(p.read_text())["label"]: p for p in tmp_path.iterdir()}
    path = paths["number 2"]
    text = path.read_text()
    path.write_text(
        {
            "cut": text[: len(text) // 2],
            "empty": "",
            "value": text.replace('"number": 2,\n    "values"', '"number": 3,\n    "values"'),
            "text": "\x00\xff",
            "other": paths["number 1"].read_text(),
        }[damage]
    )
    assert path.read_text() != text
    said: list[str] = []
    assert run_shards(draws, SHARDS, backend="serial", folder=tmp_path, notify=said.append) == (
        wanted
    )
    assert len(said) == 1
    assert str(path) in said[0]
    assert "number 2" in said[0]
    assert path.read_text() == text


# -- what goes wrong -----------------------------------------------------------------------------


def test_a_killed_worker_is_reported_and_its_shard_tried_again(wanted, tmp_path):
    (traces := tmp_path / "traces").mkdir()
    shards = [Shard(k, marker=str(traces)) for k in range(4)]
    said: list[str] = []
    answers = run_shards(dies_once, shards, workers=2, folder=tmp_path / "k", notify=said.append)
    assert answers == wanted
    assert len(said) == 1
    assert "number 1: its worker died" in said[0]
    assert "SIGKILL" in said[0]


def test_the_default_notice_is_a_log_message(tmp_path, caplog):
    (traces := tmp_path / "traces").mkdir()
    run_shards(dies_once, [Shard(1, marker=str(traces))], folder=tmp_path / "kept")
    assert "number 1: its worker died" in caplog.text


def test_a_shard_that_always_kills_its_worker_is_given_up(tmp_path):
    (traces := tmp_path / "traces").mkdir()
    shards = [Shard(k, marker=str(traces)) for k in range(2)]
    with pytest.raises(ShardError, match=f"number 1: its worker died {RETRIES + 1} times"):
        run_shards(dies_always, shards, workers=1, folder=tmp_path / "k", notify=lambda _: None)
    assert calls(traces) == {0: 1, 1: RETRIES + 1}
    assert len(list((tmp_path / "k").iterdir())) == 1  # the other one is kept


@pytest.mark.parametrize("backend", ["serial", "processes"])
def test_an_exception_names_the_shard_and_is_not_retried(backend, tmp_path):
    with pytest.raises(ShardError, match="number 1 failed: ZeroDivisionError: no luck") as caught:
        run_shards(fails, SHARDS, backend=backend, workers=1, folder=tmp_path)
    assert any("in fails" in note for note in caught.value.__notes__)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("work", "said"), [(not_json, "float32"), (not_finite, "JSON")])
def test_answers_must_be_json(work, said, tmp_path):
    with pytest.raises(ShardError, match=said):
        run_shards(work, SHARDS[:1], backend="serial", folder=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backend": "threads"}, "backend: got 'threads', expected one of serial"),
        ({"workers": 0}, "workers: got 0"),
        ({"workers": 1.5}, "workers: got 1.5"),
        ({"address": "auto"}, "address: got 'auto' with backend 'processes'"),
        ({"work": lambda shard: 1}, "work: .* expected a function at the top level"),
        ({"shards": [1]}, "shards: got int, expected a frozen dataclass"),
        ({"folder": "/dev/null/x"}, "cannot write"),
    ],
)
def test_what_is_refused(change, message, tmp_path):
    arguments = {"work": draws, "shards": SHARDS[:1], "folder": tmp_path, **change}
    with pytest.raises(InputError, match=message):
        run_shards(**arguments)


@contextlib.contextmanager
def half_way(tmp_path):
    """A program whose shards 0 and 1 are kept and 2 and 3 take a minute; its traces and files."""
    (traces := tmp_path / "traces").mkdir()
    kept = tmp_path / "kept"
    program = textwrap.dedent(
        f"""
        import sys
        sys.path[:0] = {[str(TESTS), str(TESTS.parents[1])]!r}
        from scopeval.paper.backends.shards import run_shards
        from test_backends import Shard, draws

        if __name__ == "__main__":
            shards = [Shard(k, seconds=60.0 * (k > 1), marker={str(traces)!r}) for k in range(4)]
            run_shards(draws, shards, workers=2, folder={str(kept)!r})
        """
    )
    (script := tmp_path / "script.py").write_text(program)
    running = subprocess.Popen(
        [sys.executable, str(script)],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # who runs the tests in the background may have had Ctrl-C ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        patience = time.monotonic() + 60
        while len(calls(traces)) < 4 or len(list(kept.glob("[!.]*"))) < 2:
            assert running.poll() is None
            assert time.monotonic() < patience
            time.sleep(0.05)
        yield running, traces, kept
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.communicate()


def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(tmp_path, wanted):
    with half_way(tmp_path) as (running, traces, kept):
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to everybody
        _, stderr = running.communicate(timeout=120)
        assert running.returncode != 0
        assert stderr.count("Traceback") == 1  # the parent's alone
        assert "KeyboardInterrupt" in stderr
        assert gone(running.pid)
    labels = {json.loads(path.read_text())["label"] for path in kept.iterdir()}
    assert labels == {"number 0", "number 1"}
    shards = [Shard(k, marker=str(traces)) for k in range(2)]
    assert run_shards(draws, shards, folder=kept) == wanted[:2]
    assert calls(traces) == dict.fromkeys(range(4), 1)


def test_workers_of_a_parent_that_was_killed_do_not_work_on(tmp_path):
    """Nobody can tell them to stop; a shard of theirs may take many minutes."""
    with half_way(tmp_path) as (running, _, _):
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        assert gone(running.pid)


# -- ray -----------------------------------------------------------------------------------------


def test_ray_missing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"scopeval\[ray\]"):
        run_shards(draws, SHARDS[:1], backend="ray", folder=tmp_path)


def on_ray(shard: Shard) -> dict[str, object]:
    if shard.number == 9:
        raise ZeroDivisionError("no luck")
    return draws(shard)


RAY = textwrap.dedent(
    """
    import json
    from pathlib import Path
    from ray.cluster_utils import Cluster
    from scopeval.paper.backends.shards import ShardError, run_shards
    from test_backends import Shard, on_ray

    cluster = Cluster(
        initialize_head=True,
        head_node_args={{"num_cpus": 1, "object_store_memory": 100 * 2**20}},
    )
    second = cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20)
    cluster.wait_for_nodes()
    removed, said = [], []

    def progress(done, total, what):
        if not removed:  # two of the three running shards are on the second node, or one is
            removed.append(what)
            cluster.remove_node(second)

    shards = [Shard(k, seconds=0.5 if k == 0 else 4.0) for k in range(4)]
    answers = run_shards(
        on_ray, shards, backend="ray", address=cluster.address, folder={folder!r},
        progress=progress, notify=said.append,
    )
    try:
        run_shards(on_ray, [Shard(9)], backend="ray", address=cluster.address, folder={folder!r})
    except ShardError as error:
        failure = str(error)
    cluster.shutdown()
    Path({result!r}).write_text(json.dumps([answers, removed, said, failure]))
    """
)


def test_a_ray_node_removed_in_mid_run_changes_nothing(tmp_path, wanted):
    """In a process of its own, so that nothing of the cluster outlives a failure."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'scopeval[ray]'")
    result = tmp_path / "result.json"
    (script := tmp_path / "script.py").write_text(
        RAY.format(folder=str(tmp_path / "kept"), result=str(result))
    )
    run_ray_script(script, TESTS)
    answers, removed, said, failure = json.loads(result.read_text())
    assert answers == wanted
    assert removed == ["number 0"]
    assert 1 <= len(said) <= 2
    assert all("its worker died" in line for line in said)
    assert "number 9 failed: ZeroDivisionError: no luck" in failure
