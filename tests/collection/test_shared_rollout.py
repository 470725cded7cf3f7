"""Episodes on workers: the same bits as in one process, whatever dies or is interrupted."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.mlp.regression import MLPRegression
from scopeval import (
    Episodes,
    Limit,
    Plant,
    Promise,
    Stages,
    Stop,
    TorchPolicy,
    Transitions,
    Workers,
    collect,
    design,
    evaluate,
)
from scopeval.collection.collector import NoEpisodeError
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError, MissingExtraError
from scopeval.workers.attempt import pack
from started_programs import gone, run_ray_script
from walking_world import Make, Tilted, Walk, target

TESTS = Path(__file__).parents[1]
HORIZON = 6


def same(a: Episodes, b: Episodes) -> None:
    for name, value in vars(a).items():
        other = getattr(b, name)
        if isinstance(value, np.ndarray):
            assert value.dtype == other.dtype, name
            assert value.tobytes() == other.tobytes(), name
        elif name == "lost":
            assert [replace(x, reason="") for x in value] == [replace(x, reason="") for x in other]
        else:
            assert value == other, name


def told(result) -> str:
    return json.dumps(result.to_dict(), sort_keys=True, default=str)


@pytest.fixture(scope="module")
def alone():
    """In this process."""
    return collect(
        Plant(Make(), side_by_side=4), target, Tilted(), horizon=HORIZON, episodes=45, seed=3
    )


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_bits(workers, alone):
    seen: list[tuple[int, int]] = []
    found = collect(
        Plant(Make(), side_by_side=4, workers=workers),
        target,
        Tilted(),
        horizon=HORIZON,
        episodes=45,
        seed=3,
        progress=lambda *step: seen.append(step),
    )
    same(found, alone)
    assert seen == [(k, 45) for k in range(1, 46)]


def test_a_killed_worker_is_replaced_and_its_episodes_run_again(alone, tmp_path, caplog):
    """The test kills one of the two processes as soon as both work."""
    killed = []

    def kill_one():
        until = time.monotonic() + 60
        while not killed and time.monotonic() < until:
            pids = [int(path.name[3:]) for path in tmp_path.glob("pid*")]
            if len(pids) == 2:
                os.kill(pids[0], signal.SIGKILL)
                killed.append(pids[0])
            time.sleep(0.01)

    thread = threading.Thread(target=kill_one)
    thread.start()
    found = collect(
        Plant(Make("", str(tmp_path), 0.02), side_by_side=4, workers=2),
        target,
        Tilted(),
        horizon=HORIZON,
        episodes=45,
        seed=3,
    )
    thread.join()
    same(found, alone)
    assert killed
    assert "its worker died" in caplog.text
    assert "SIGKILL" in caplog.text
    assert len(list(tmp_path.glob("pid*"))) == 3


def test_trouble_in_environments_is_the_same_on_workers(tmp_path, monkeypatch):
    monkeypatch.setattr("scopeval.workers.attempt.RETRIES", 1)
    how = {"horizon": HORIZON, "episodes": 32, "seed": 5}
    lost = collect(Plant(Make("raises"), side_by_side=4), target, **how)
    assert lost.lost
    same(collect(Plant(Make("raises"), side_by_side=4, workers=2), target, **how), lost)
    # one that kills its process loses the whole group, because nobody can say which it was
    plant = Plant(Make("dies", str(tmp_path)), side_by_side=4, workers=2)
    died = collect(plant, target, **how)
    groups = {episode.index // 4 for episode in lost.lost}
    assert {episode.index for episode in died.lost} == {4 * g + k for g in groups for k in range(4)}
    assert all("its worker died 2 times" in episode.reason for episode in died.lost)
    assert "cost until then is not known" in died.lost[0].reason


class Broken:
    def probs(self, obs, t):
        return np.full((len(obs), 3), np.nan)


def test_torch_policies_can_be_sent():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    obs = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.trace(module, torch.zeros(1, 3))
    for policy in (TorchPolicy(module), TorchPolicy(script)):
        sent = pickle.loads(pack("policy", policy, ""))
        assert sent.probs(obs, 0).tobytes() == policy.probs(obs, 0).tobytes()


def test_errors_are_those_of_one_process():
    four = partial(Plant, side_by_side=4, workers=2)
    how = {"horizon": HORIZON, "episodes": 40}
    with pytest.raises(InputError, match="the environment reports no cost"):
        collect(four(Make("no cost")), target, **how)
    with pytest.raises(InputError, match="target at t=0"):
        collect(four(Make()), Broken(), **how)
    with pytest.raises(ZeroDivisionError) as caught:
        collect(four(Make()), lambda obs, t: 1 / 0, **how)
    assert any("Traceback" in note for note in caught.value.__notes__)
    with pytest.raises(NoEpisodeError, match="none of 4 episodes"):
        collect(Plant(Make(), cost=lambda *step: 1 / 0, workers=2), target, horizon=2, episodes=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": Walk(), "workers": 2}, "env: got Walk with workers.* a function that makes one"),
        ({"workers": 0}, "workers: got 0"),
        ({"workers": "ray"}, "workers: got 'ray'"),
        ({"cost": threading.Lock().locked}, "cost: cannot be sent"),
        ({"side_by_side": 0}, "side_by_side: got 0"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        collect(Plant(**{"env": Make(), "workers": 2, **change}), target, horizon=2, episodes=4)


def test_an_unknown_backend_is_refused():
    with pytest.raises(InputError, match="backend: got 'threads', expected one of processes, ray"):
        Workers(2, "threads")


def test_a_factory_that_cannot_be_sent_is_named():
    lock = threading.Lock()

    def make():
        with lock:
            return Walk()

    with pytest.raises(InputError, match=r"env: cannot be sent .*lock.* should open itself"):
        collect(Plant(make, workers=2), target, horizon=2, episodes=4)


def test_ray_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"scopeval\[ray\]"):
        collect(Plant(Make(), workers=Workers(backend="ray")), target, horizon=2, episodes=4)


# -- whole evaluations -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned():
    found = collect(Make(), target, horizon=HORIZON, episodes=150, seed=9)
    return design(
        Transitions(**found.transitions()),
        target,
        horizon=HORIZON,
        seed=0,
        method="scope",
        learn=MLPRegression(),
    )


def guarded(workers=None):
    """An evaluation in which the guard alarms: mu costs more than promised."""
    return evaluate(
        Plant(Make(), workers=workers),
        target,
        Tilted(),
        horizon=HORIZON,
        episodes=120,
        stop=Stop(every=24),
        promise=Promise(at_most=0.4),
    )


def limited(workers=None):
    return evaluate(
        Plant(Make(), side_by_side=4, workers=workers),
        target,
        Tilted(),
        horizon=HORIZON,
        episodes=80,
        stop=Stop(every=16),
        promise=Limit(episode=8.0, total=400.0),
    )


def budgeted(workers=None):
    return evaluate(
        Plant(Make(), workers=workers),
        target,
        Tilted(),
        horizon=HORIZON,
        stop=Stop(precision=0.4, cost=900.0),
    )


@pytest.mark.parametrize("run", [guarded, limited, budgeted])
def test_guard_and_stopping_do_not_depend_on_workers(run):
    wanted = run()
    assert told(run(workers=2)) == told(wanted)
    happened = {
        guarded: wanted.guard.switched_after,
        limited: wanted.diagnostics.guarded,
        budgeted: wanted.stopped.startswith("stopped when"),
    }
    assert happened[run]


def test_a_learned_policy_counts_its_decisions_on_workers(learned):
    def run(workers=None):
        plant = Plant(Make(), workers=workers)
        return evaluate(plant, target, learned, horizon=HORIZON, episodes=64)

    wanted = run()
    assert wanted.diagnostics.behavior["asked"] > 0
    assert told(run(workers=2)) == told(wanted)


def test_stages_do_not_depend_on_workers():
    """Each stage has a behavior policy of its own, which goes to workers that run already."""
    world = Gridworld(4, seed=0).mdp()
    pi = target_policies(1, 4, seed=0)[0]

    def run(workers=None):
        make = lambda: TabularEnv(world)  # noqa: E731  (one that only cloudpickle can send)
        plant = Plant(make, workers=workers)
        found = evaluate(plant, pi, Stages(first=60), horizon=world.horizon, episodes=240)
        timeless = [replace(stage, seconds=0.0) for stage in found.stages]
        assert sum(stage.designed for stage in timeless) > 0
        return told(replace(found, stages=(), learning=None)), [
            stage.episodes for stage in timeless
        ]

    assert run(workers=2) == run()


# -- Ctrl-C ----------------------------------------------------------------------------------------

INTERRUPTED = textwrap.dedent(
    """
    import json, sys
    from pathlib import Path
    from scopeval import Inference, Plant, Stop, evaluate
    from walking_world import Make, Tilted, target

    class Slow(Make):  # a class of the script itself
        pass

    def stuck():  # one that does not end its step
        return Make("", {marks!r}, 60.0)()

    make = Slow("", {marks!r}, 0.05) if {slow} else stuck
    found = evaluate(
        Plant(make, side_by_side=2, workers=2), target, Tilted(), horizon=6, episodes=10_000,
        stop=Stop(every=8), progress=lambda now: Path({marks!r}, "batch").touch(),
        inference=Inference(keep=True),
    )
    numbers = sorted([*found.episodes.index.tolist(), *[x.index for x in found.episodes.lost]])
    Path({result!r}).write_text(json.dumps(
        [found.stopped, numbers, [x.cost for x in found.episodes.lost]]
    ))
    """
)


def interrupt(tmp_path, slow: bool, ready: str):
    """Run the script, without `if __name__`, until a file is there; interrupt it as a terminal."""
    result = tmp_path / "result.json"
    (marks := tmp_path / "marks").mkdir()
    (script := tmp_path / "script.py").write_text(
        INTERRUPTED.format(marks=str(marks), result=str(result), slow=slow)
    )
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    running = subprocess.Popen(
        [sys.executable, str(script)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until = time.monotonic() + 120
        while len(list(marks.glob(ready))) < (1 if slow else 2):
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        _, stderr = running.communicate(timeout=60)  # far below the 60 s of a stuck step
        assert gone(running.pid)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    return running.returncode, stderr, result


def test_ctrl_c_keeps_what_is_finished_and_counts_what_was_spent(tmp_path):
    code, stderr, result = interrupt(tmp_path, True, "batch")
    assert code == 0, stderr
    stopped, numbers, costs = json.loads(result.read_text())
    assert stopped == "interrupted by the user"
    assert numbers == list(range(len(numbers)))  # every episode that was begun is told
    assert len(numbers) >= 8
    assert all(cost >= 0.0 for cost in costs)


def test_ctrl_c_does_not_wait_for_a_step_that_never_ends(tmp_path):
    code, stderr, _ = interrupt(tmp_path, False, "pid*")
    assert code != 0  # nothing was finished
    assert "KeyboardInterrupt" in stderr


# -- ray -------------------------------------------------------------------------------------------

RAY = textwrap.dedent(
    """
    import threading, time
    from pathlib import Path
    import ray
    from ray.cluster_utils import Cluster
    from scopeval import Plant, Workers, collect
    from scopeval.errors import InputError
    from walking_world import Make, Tilted, target

    small = 100 * 2**20
    cluster = Cluster(
        initialize_head=True, head_node_args={{"num_cpus": 1, "object_store_memory": small}}
    )
    second = cluster.add_node(num_cpus=2, object_store_memory=small)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)

    def kill_the_node():
        until = time.monotonic() + 60
        while len(list(Path({marks!r}).glob("pid*"))) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        cluster.remove_node(second)
        Path({marks!r}, "killed").touch()

    thread = threading.Thread(target=kill_the_node)
    thread.start()
    found = collect(
        Plant(Make("", {marks!r}, 0.1), side_by_side=4, workers=Workers(3, "ray")),
        target, Tilted(), horizon=6, episodes=45, seed=3,
    )
    thread.join()
    found.save({result!r})
    try:
        plant = Plant(Make("no cost"), workers=Workers(1, "ray"))
        collect(plant, target, horizon=6, episodes=4)
    except InputError as error:
        Path({marks!r}, "refused").write_text(str(error))
    ray.shutdown()
    cluster.shutdown()
    """
)


@pytest.mark.heavy
def test_the_same_bits_on_ray_with_a_node_killed(tmp_path, alone):
    """In a process of its own, so that nothing of the cluster outlives a failure."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'scopeval[ray]'")
    (marks := tmp_path / "marks").mkdir()
    result = tmp_path / "episodes.npz"
    (script := tmp_path / "script.py").write_text(RAY.format(marks=str(marks), result=str(result)))
    output = run_ray_script(script, TESTS)
    assert "its worker died" in output
    assert (marks / "killed").exists()
    assert "the environment reports no cost" in (marks / "refused").read_text()
    same(Episodes.load(result), alone)
