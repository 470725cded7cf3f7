"""The robots' experiment, in small: numbers by hand, what is shared, and going on."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from experiments import mujoco
from experiments.common import Judged, run_experiment, variance_error
from experiments.mujoco import Args, pooled_value
from experiments.robots import preparation
from experiments.robots.logs import robot_logs
from experiments.robots.preparation import Preparation
from scopeval import read_logs
from scopeval.errors import DataError, InputError
from scopeval.models.dynamics import Dynamics, Encoder
from scopeval.models.rows import Rows
from scopeval.models.training import WIDE, Training, learn_network

TINY = {**mujoco.QUICK, "targets": 1, "runs": 3, "episodes": 4, "logged": 60}
WHAT = Preparation("Hopper", "bins", seed=0, logged=2, training=(Training(hidden=1, steps=1),))


def test_end_to_end_and_going_on(tmp_path):
    args = Args(**TINY, protocols=("candidates",), out=tmp_path, backend="serial")
    content = run_experiment(mujoco, args)
    [block] = content["blocks"]
    assert [row["method"] for row in block["methods"]] == list(mujoco.DEFAULT_METHODS)
    [table, *_, notes] = mujoco.table(content)
    assert table.caption == "InvertedPendulum, candidates: 1 of 1 targets"
    assert "60 logged episodes" in notes
    for name in ("error-cost-candidates", "calibration-candidates"):
        assert (tmp_path / f"{name}.svg").read_text().startswith("<?xml")
    logs = read_logs(tmp_path / "prepared" / "InvertedPendulum-candidates.parquet")
    assert logs == robot_logs("InvertedPendulum", episodes=60)
    # somebody cleaned up: logs and dynamics are made again, to the same bits
    (tmp_path / "prepared" / "InvertedPendulum-candidates.npz").unlink()
    for path in (tmp_path / "jobs").iterdir():
        if "outcomes" in json.loads(path.read_text())["answer"]:
            path.unlink()
    again = run_experiment(mujoco, args)
    for one in (content, again):
        one["blocks"][0]["targets"][0]["design_seconds"] = 0
    assert again["blocks"] == content["blocks"]


def test_the_papers_protocol_by_the_robots_own_simulator(tmp_path, monkeypatch):
    """Nothing is learned of the dynamics; targets without a spread are named and in no mean."""
    how = {**TINY, "protocols": ("bins",), "dynamics": "simulator", "paths": 25}
    args = Args(**how, methods=("scope-dr",), out=tmp_path, backend="serial")
    [block] = run_experiment(mujoco, args)["blocks"]
    assert block["methods"][1]["predicted_variance"]["mean"] < 0.95
    monkeypatch.setattr(mujoco, "LEAST_SPREAD", 1e9)
    answer = mujoco.job(args, "InvertedPendulum", "bins", 15, "", "", False)
    assert answer["excluded"]
    assert list(answer["outcomes"]) == ["on-policy"]
    content = {
        "config": args.config,
        **mujoco.summary(args, [{"robot": "InvertedPendulum", "protocol": "bins", **answer}]),
    }
    assert "left out of the means: invertedpendulum-15" in mujoco.table(content)[0]
    assert mujoco.figure(content)


def test_random_numbers_of_a_method_do_not_depend_on_the_others():
    one, other = (
        mujoco._Target(Args(methods=names, logged=2), "InvertedPendulum", "candidates", 3, ("", ""))
        for names in (("scope", "dopt"), ("dopt",))
    )
    assert one.seed("dopt") == other.seed("dopt")
    seeds = [other.seed(name) for name in (*mujoco.DEFAULT_METHODS, "mine", "frontier 0.5")]
    assert len(set(seeds)) == len(seeds)


# -- arithmetic ----------------------------------------------------------------------------------


def test_standard_error_of_a_variance():
    values = np.array([0.0, 0.0, 1.0, 1.0])  # variance 1/3, fourth moment 1/16
    expected = math.sqrt((1 / 16 - (1 / 3) * (1 / 9)) / 4)
    assert math.isclose(variance_error(values), expected)
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(4000, 300))
    spread = draws.var(axis=1, ddof=1).std()
    assert abs(np.mean([variance_error(x) for x in draws[:500]]) / spread - 1) < 0.1


def judged(values, costs):
    return Judged(np.array(values, float), np.array(costs, float), None)


def test_numbers_of_a_method_by_hand():
    own = judged([1.0, 3.0, 1.0, 3.0], [2.0, 2.0, 4.0, 4.0])
    ran = judged([2.0, 3.0, 2.0, 1.0], [3.0, 3.0, 3.0, 3.3])
    found = mujoco._outcome(ran, own, 2.0, 1.0, 2)
    assert math.isclose(found["variance"], 2 / 3)
    assert math.isclose(found["relative_variance"], 0.5)  # of 4/3
    assert math.isclose(found["relative_cost"], 12.3 / 12)
    v, v_se, o_se = 2 / 3, variance_error(ran.values), variance_error(own.values)
    by_hand = math.sqrt((v_se / (4 / 3)) ** 2 + (v * o_se / (4 / 3) ** 2) ** 2)
    assert math.isclose(found["relative_variance_error"], by_hand)
    cost_se, own_se = (x.costs.std(ddof=1) / 2 for x in (ran, own))
    by_hand = math.sqrt((cost_se / 3) ** 2 + (12.3 / 12 * own_se / 3) ** 2)
    assert math.isclose(found["relative_cost_error"], by_hand)
    assert found["errors"] == [0.5, 0.5]  # |0, 1, 0, -1|, then pairs: 2.5 and 1.5
    np.testing.assert_allclose(found["costs"], [12.3 / 12, 2 * 12.3 / 12])
    alone = mujoco._outcome(own, own, 2.0, 1.0, 2)
    assert (alone["relative_variance"], alone["relative_variance_error"]) == (1.0, 0.0)


def test_ros_is_judged_by_runs():
    own = judged([1.0, 3.0, 1.0, 3.0], [2.0] * 4)
    runs = np.array([1.5, 3.5, 2.0])
    found = mujoco._moments(runs, np.full(3, 3.0), own, 2)
    assert math.isclose(found["variance"], 2 * runs.var(ddof=1))
    assert math.isclose(found["relative_variance"], 2 * runs.var(ddof=1) / (4 / 3))
    assert found["relative_cost"] == 1.5


def test_the_truth_is_weighted_by_precision():
    own = np.array([0.0, 2.0] * 10)
    sharp = np.array([1.4, 1.6] * 10)
    value, error = pooled_value([own, sharp])
    w = np.array([20 / own.var(ddof=1), 20 / sharp.var(ddof=1)])
    assert math.isclose(value, w @ [1.0, 1.5] / w.sum())
    assert math.isclose(error, w.sum() ** -0.5)
    dull, _ = pooled_value([own, np.full(20, 1.5)])  # no more than 100 times sharper
    assert math.isclose(dull, (1.0 + 100 * 1.5) / 101)


# -- what is asked -------------------------------------------------------------------------------


def test_targets_are_evenly_spread():
    assert mujoco._spread(30, 30).tolist() == list(range(30))
    assert mujoco._spread(30, 3).tolist() == [5, 15, 25]
    assert mujoco._spread(3, 5).tolist() == [0, 1, 2]
    assert mujoco._spread(30, 0).tolist() == []


def test_networks_of_a_preparation():
    assert Args(networks="best").preparation("Hopper", "bins").training == (Training(), WIDE)
    assert Args(dynamics="simulator").preparation("Hopper", "bins").training == ()
    with pytest.raises(InputError, match="a simulator has none"):
        Args(dynamics="simulator", networks="wide").check()
    with pytest.raises(InputError, match="robot: got 'Moon', expected one of Ant"):
        Args(robots=("Moon",)).check()
    with pytest.raises(InputError, match="expected --protocols candidates"):
        Args(frontier=True).check()


# -- what is shared ------------------------------------------------------------------------------


def test_networks_come_back_whole():
    logs = robot_logs("InvertedPendulum", episodes=4)
    rows = Rows.of(logs)
    encoder = Encoder(np.empty((0, 1)), np.ones(4, np.bool_))
    how = Training(hidden=4, steps=3, batch=8)
    dynamics = Dynamics(tuple(learn_network(rows, rows, encoder, how, k) for k in range(2)))
    back = preparation._dynamics(preparation._arrays(dynamics))
    for one, other in zip(dynamics.networks, back.networks, strict=True):
        np.testing.assert_array_equal(one.errors, other.errors)
        np.testing.assert_array_equal(one.expected_sizes, other.expected_sizes)
        np.testing.assert_array_equal(one.size_weights, other.size_weights)
        assert (one.reward_noise, one.loss) == (other.reward_noise, other.loss)
        assert set(one.weights) == set(other.weights)
    asked = logs.obs[:3], logs.action[:3, None], 0
    np.testing.assert_array_equal(dynamics.predict(*asked).next_obs, back.predict(*asked).next_obs)


def test_networks_that_come_back_know_the_identities_of_the_logs(tmp_path):
    how = (Training(hidden=4, steps=3, batch=8),)
    what = replace(WHAT, robot="InvertedDoublePendulum", logged=60, training=how)
    found = preparation.prepare(tmp_path, what)
    back = preparation.recall(tmp_path, what, found["parquet"], found["npz"])
    assert [len(network.identities) for network in back.dynamics.learned] == [2, 2]  # two angles


def test_files_of_another_run_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"Hopper-bins: \.parquet or \.npz is missing or not what"):
        preparation.recall(tmp_path, WHAT, "p", "n")
