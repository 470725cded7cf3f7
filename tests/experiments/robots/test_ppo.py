"""PPO: it learns, a checkpoint is complete, and train-policies leaves what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.robots import ppo
from experiments.robots.env import Robots
from experiments.robots.policies import WEIGHTS, RobotPolicy, robot_policies, robot_record
from experiments.robots.training import Config, run_episodes, spread, train_policies
from scopeval.errors import InputError

pytest.importorskip("mujoco")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def measured(checkpoint, robots):
    policy = RobotPolicy("", checkpoint.weights, low=robots.low, high=robots.high)
    return run_episodes(policy, robots, episodes=40, seed=1).returns.mean()


def test_it_learns_to_balance():
    config = ppo.Config(steps=8192, rollout=64, minibatches=8, epochs=6, learning_rate=1e-3, keep=1)
    found = list(ppo.train("InvertedPendulum", config, seed=0))
    assert [c.steps for c in found] == [1024 * k for k in range(9)]
    robots = Robots("InvertedPendulum", 40)
    first, last = measured(found[0], robots), measured(found[-1], robots)
    assert first < 12
    assert last > 50


def test_a_seed_is_a_run_and_passes_give_checkpoints():
    config = ppo.Config(steps=512, rollout=32, minibatches=4, epochs=4, keep=2)
    runs = [list(ppo.train("Hopper", config, seed=seed)) for seed in (3, 3, 4)]
    assert [c.steps for c in runs[0]] == [0, 512, 512]
    for a, b, c in zip(*runs, strict=True):
        assert set(a.weights) == set(WEIGHTS)
        for name in WEIGHTS:
            np.testing.assert_array_equal(a.weights[name], b.weights[name])
            assert a.weights[name].dtype == np.float32
        assert not np.array_equal(a.weights["w1"], c.weights["w1"])
    np.testing.assert_array_equal(runs[0][0].weights["log_std"], 0)
    assert not np.array_equal(runs[0][1].weights["w2"], runs[0][2].weights["w2"])


def test_chosen_checkpoints_are_spread_in_return():
    returns = np.array([0.0, 1, 1, 5, 2, 9, 10, 9.9, 4, 6.2, 8, 7])
    chosen = spread(returns, 6)
    np.testing.assert_array_equal(returns[chosen], [0, 2, 4, 6.2, 8, 10])
    assert len(set(spread(np.array([0.0, 0, 0, 7, 7]), 4))) == 4


def test_train_policies_writes_resumes_and_says(tmp_path):
    config = Config(reported=4, validation=2, look=3, measure=5, scale=0.06)
    said = []
    [path] = train_policies(
        ["invertedpendulum"], config, tmp_path, command="x", progress=lambda *a: said.append(a[2])
    )
    assert path == tmp_path / "InvertedPendulum.json"
    assert "InvertedPendulum, reported: training" in said
    record = robot_record("InvertedPendulum", folder=tmp_path)
    assert record["command"] == "x"
    assert {"versions", "training", "config", "machine"} <= set(record)
    assert [e["name"] for e in record["policies"]] == [
        *(f"invertedpendulum-{k:02d}" for k in range(4)),
        "invertedpendulum-v0",
        "invertedpendulum-v1",
    ]
    policies = robot_policies("InvertedPendulum", "validation", folder=tmp_path)
    assert policies[1].name == "invertedpendulum-v1"
    assert {e["seed"] for e in record["policies"]} == {0, 1}
    stamp = path.stat().st_mtime_ns
    train_policies(["InvertedPendulum"], config, tmp_path)
    assert path.stat().st_mtime_ns == stamp
    assert not list(tmp_path.glob(".*"))
    with pytest.raises(InputError, match="expected one of Ant"):
        train_policies(["Cat"], config, tmp_path)
