"""``scopeval reproduce mujoco``, in small: numbers, files, and going on after an interruption."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval.cli.app import app
from scopeval.critics.model.network import Dynamics
from scopeval.critics.model.return_features import Study
from scopeval.critics.model.step_model import Encoder
from scopeval.critics.model.training import WIDE, Training, learn_network
from scopeval.critics.protocols import Rows
from scopeval.data.readers import read_logged
from scopeval.errors import DataError, InputError
from scopeval.paper import published
from scopeval.paper.cli.options import words_from
from scopeval.paper.experiments import mujoco, mujoco_outcome, mujoco_prepare, mujoco_target
from scopeval.paper.experiments.mujoco import QUICK, Config
from scopeval.paper.experiments.mujoco_outcome import (
    Designed,
    OnPolicy,
    RobotOutcome,
    TargetResult,
    pooled_value,
    variance_error,
)
from scopeval.paper.experiments.mujoco_prepare import Preparation
from scopeval.paper.experiments.mujoco_results import block_of
from scopeval.paper.experiments.mujoco_target import DEFAULT_METHODS as METHODS
from scopeval.paper.figures import mujoco as mujoco_figures
from scopeval.paper.pages.mujoco import page_of_mujoco
from scopeval.paper.results import Result
from scopeval.paper.robots.logs import robot_logs
from scopeval.paper.tables.mujoco import show_robots
from scopeval.report import render

TINY = QUICK(protocols=("candidates",), targets=2, runs=6, episodes=4, ros_targets=1)
WHAT = Preparation("Hopper", "bins", seed=0, logged=2, training=(Training(hidden=1, steps=1),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mujoco")


@pytest.fixture(scope="module")
def printed(folder) -> str:
    """The whole command, with one protocol of its two."""
    command = "reproduce mujoco --quick --protocols candidates --targets 2 --runs 6 --episodes 4"
    done = CliRunner().invoke(
        app, [*command.split(), "--backend", "serial", "--out", str(folder)], env={"COLUMNS": "80"}
    )
    assert done.exit_code == 0, done.output
    return done.output


# -- end to end ----------------------------------------------------------------------------------


def test_the_command_prints_tables_and_leaves_everything_behind(printed, folder):
    assert max(map(len, printed.splitlines()[:20])) <= 80
    assert "InvertedPendulum, candidates: 2 of 2 targets" in printed
    for method in METHODS:
        assert f"\n{method}" in printed
    assert "0.439" in printed  # the paper's
    told = json.loads((folder / "mujoco.json").read_text())
    assert told["command"] == (
        "scopeval reproduce mujoco --robots InvertedPendulum --protocols candidates --role "
        "reported --targets 2 --runs 6 --episodes 4 --ros-targets 1 --ros-episodes 5 "
        "--budget state --dynamics learned --networks usual --seed 0 "
        "--quick"
    )
    [block] = told["blocks"]
    assert [row["method"] for row in block["methods"]] == list(METHODS)
    for row in block["methods"]:
        assert len(row["targets"]) == (1 if row["method"] == "ros" else 2)
    for name in ("error-cost-candidates", "calibration-candidates"):
        assert (folder / f"{name}.svg").read_text().startswith("<?xml")
        assert (folder / f"{name}.png").read_bytes()[1:4] == b"PNG"
    assert "InvertedPendulum" in (folder / "report.html").read_text()
    rows = pq.read_table(folder / "targets.parquet").to_pylist()
    assert len(rows) == 2 * 5 + 1
    by = {(r["target"], r["method"]): r for r in rows}
    name = block["methods"][1]["targets"][0]
    assert by[name, "scope"]["relative_cost"] == block["methods"][1]["relative_cost"]["values"][0]
    assert by[name, "scope"]["asked"] > 0
    assert by[name, "on-policy"]["relative_variance"] == 1.0
    logs = read_logged(folder / "prepared" / "InvertedPendulum-candidates.parquet")
    assert logs == robot_logs("InvertedPendulum", episodes=200)


def test_going_on_gives_the_same_numbers(printed, folder):
    before = json.loads((folder / "mujoco.json").read_text())
    shards = sorted((folder / "shards").iterdir())
    targets = [path for path in shards if "target" in json.loads(path.read_text())["label"]]
    assert (len(shards), len(targets)) == (3, 2)
    targets[0].unlink()  # as if it had been interrupted there, and somebody had cleaned up
    (folder / "prepared" / "InvertedPendulum-candidates.npz").unlink()
    done: list[tuple[int, int, str]] = []
    again = mujoco.run(
        TINY, folder=folder, backend="serial", progress=lambda *how: done.append(how)
    )
    assert [k for k, _, _ in done] == [1, 1, 2]  # prepared before; one target before; the other
    assert _untimed(again.as_dict()["blocks"]) == _untimed(before["blocks"])


def _untimed(blocks):
    return json.loads(
        json.dumps(blocks), object_hook=lambda d: {**d, "design_seconds": 0} if d else d
    )


def test_the_papers_protocol_runs_too(tmp_path):
    config = replace(TINY, protocols=("bins",), targets=1, ros_targets=0, paths=40, runs=4)
    [block] = mujoco.run(config, folder=tmp_path, backend="serial").blocks
    assert block.title == "InvertedPendulum, bins"
    assert list(block.methods) == list(METHODS[:-1])
    designed = block.methods["scope"].outcomes[0].designed
    assert designed is not None
    assert designed.used in ("scope", "on-policy")
    assert 0 < designed.floor <= 1


def test_critics_by_the_robots_own_simulator_in_both_protocols(tmp_path):
    """Nothing is learned of the dynamics; what the design expects is then what happens."""
    config = replace(
        TINY,
        protocols=("candidates", "bins"),
        dynamics="simulator",
        targets=1,
        ros_targets=0,
        logged=60,
        paths=25,
        study=Study(paths=40, hidden=16, steps=200),
        runs=6,
        episodes=6,
    )
    result = mujoco.run(config, folder=tmp_path, backend="serial")
    assert [len(np.load(path)) for path in (tmp_path / "prepared").glob("*.npz")] == [0, 0]
    for block in result.blocks:
        designed = block.methods["scope-dr"].outcomes[0].designed
        assert designed.used == "scope-dr"
        assert block.methods["scope-dr"].variance.mean < 0.8  # on-policy: 1
        assert designed.predicted_variance < 0.8
        assert designed.certificate != "refuted"
    page = render(page_of_mujoco(result))
    assert "dynamics by the robot&#39;s simulator" in page or config.source in page
    assert "by the robot's simulator" in config.source


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dynamics", "guessed"], "dynamics: got 'guessed', expected one of learned, simulator"),
        (["--networks", "huge"], "networks: got 'huge', expected one of usual, wide, best"),
        (["--networks", "wide", "--dynamics", "simulator"], "networks: a simulator has none"),
    ],
)
def test_worlds_that_cannot_be_are_refused(options, said, tmp_path):
    done = CliRunner().invoke(app, ["reproduce", "mujoco", *options, "--out", str(tmp_path)])
    assert done.exit_code != 0
    assert said in str(done.exception or "") + done.output
    assert not list(tmp_path.iterdir())


def test_networks_and_budget_are_told():
    assert Config(networks="best").trainings == (Training(), WIDE)
    assert Config(networks="wide").trainings == (WIDE,)
    assert "by wide networks" in Config(networks="wide").source
    assert "one budget for whole episodes" in Config(budget="episode").source
    assert Config().source == "dynamics learned from them by usual networks"


def test_targets_without_variance_are_named_and_in_no_mean(tmp_path, monkeypatch):
    monkeypatch.setattr(mujoco_outcome, "LEAST_SPREAD", 1e9)
    monkeypatch.setattr(
        mujoco_target.TargetRun, "learn", lambda self: pytest.fail("nothing to learn")
    )
    config = replace(TINY, targets=1, logged=30, usual=Training(hidden=4, steps=5))
    result = mujoco.run(config, folder=tmp_path, backend="serial")
    [block] = result.blocks
    assert block.excluded == ("invertedpendulum-15",)
    assert block.methods == {}
    assert block.as_dict()["excluded"] == ["invertedpendulum-15"]
    assert [outcome.relative_cost for outcome in block.results[0].outcomes.values()] == [1.0]
    html = render(page_of_mujoco(result))
    assert "returns without spread and are in no mean: invertedpendulum-15" in html
    for draw in (mujoco_figures.error_against_cost, mujoco_figures.calibration):
        assert draw(result.as_dict(), "candidates") is not None


# -- arithmetic ----------------------------------------------------------------------------------


def test_standard_error_of_a_variance():
    values = np.array([0.0, 0.0, 1.0, 1.0])  # variance 1/3, fourth moment 1/16
    expected = math.sqrt((1 / 16 - (1 / 3) * (1 / 9)) / 4)
    assert math.isclose(variance_error(values), expected)
    rng = np.random.default_rng(0)
    draws = rng.exponential(size=(4000, 300))
    spread = draws.var(axis=1, ddof=1).std()
    assert abs(np.mean([variance_error(x) for x in draws[:500]]) / spread - 1) < 0.1


def test_numbers_of_a_method_by_hand():
    own, costs = np.array([1.0, 3.0, 1.0, 3.0]), np.array([2.0, 2.0, 4.0, 4.0])
    base = OnPolicy(own, costs, 2.0, 1.0)
    values, paid = np.array([2.0, 3.0, 2.0, 1.0]), np.array([3.0, 3.0, 3.0, 3.3])
    found = base.outcome(values, paid, np.array([1, 2]), 0, None)
    assert math.isclose(found.variance, 2 / 3)
    assert math.isclose(found.relative_variance, 0.5)  # of 4/3
    assert math.isclose(found.relative_cost, 12.3 / 12)
    v, v_se, o_se = 2 / 3, variance_error(values), variance_error(own)
    own_variance = 4 / 3
    by_hand = math.sqrt((v_se / own_variance) ** 2 + (v * o_se / own_variance**2) ** 2)
    assert math.isclose(found.relative_variance_error, by_hand)
    cost_se, own_se = (x.std(ddof=1) / 2 for x in (paid, costs))
    by_hand = math.sqrt((cost_se / 3) ** 2 + (12.3 / 12 * own_se / 3) ** 2)
    assert math.isclose(found.relative_cost_error, by_hand)
    assert found.errors == (0.5, 0.5)  # |0, 1, 0, -1|, then pairs: 2.5 and 1.5
    np.testing.assert_allclose(found.costs, [12.3 / 12, 2 * 12.3 / 12])
    alone = base.outcome(own, costs, np.array([1]), 0, None)
    assert (alone.relative_variance, alone.relative_variance_error) == (1.0, 0.0)


def test_ros_is_judged_by_runs():
    own, costs = np.array([1.0, 3.0, 1.0, 3.0]), np.full(4, 2.0)
    base = OnPolicy(own, costs, 2.0, 1.0)
    returns = np.array([[1.0, 2.0], [3.0, 4.0], [2.0, 2.0]])  # means 1.5, 3.5, 2
    found = base.ros_outcome(returns, np.full((3, 2), 3.0))
    runs = np.array([1.5, 3.5, 2.0])
    assert math.isclose(found.variance, 2 * runs.var(ddof=1))
    assert math.isclose(found.relative_variance, 2 * runs.var(ddof=1) / (4 / 3))
    assert math.isclose(found.square or 0.0, 2 * np.mean((runs - 2) ** 2) / (4 / 3))
    np.testing.assert_allclose(found.errors, [2 / 3, 2 / 3])
    np.testing.assert_allclose(found.costs, [1.5, 3.0])
    assert found.relative_cost == 1.5


def test_the_truth_is_weighted_by_precision():
    own = np.array([0.0, 2.0] * 10)
    sharp = np.array([1.4, 1.6] * 10)
    value, error = pooled_value(own, [sharp])
    w = np.array([20 / own.var(ddof=1), 20 / sharp.var(ddof=1)])
    assert math.isclose(value, w @ [1.0, 1.5] / w.sum())
    assert math.isclose(error, w.sum() ** -0.5)
    dull, _ = pooled_value(own, [np.full(20, 1.5)])  # no more than 100 times sharper
    assert math.isclose(dull, (1.0 + 100 * 1.5) / 101)


def _outcome(variance, cost, *, square=None, designed=None, error=0.1):
    return RobotOutcome(
        mean=1.0,
        variance=variance,
        variance_error=0.1,
        cost=cost,
        cost_error=0.1,
        relative_variance=variance,
        relative_variance_error=error,
        relative_cost=cost,
        relative_cost_error=0.01,
        square=square,
        lost=0,
        errors=(1.0, 0.5),
        costs=(cost, 2 * cost),
        designed=designed,
    )


def _designed(used, variance, verdict):
    return Designed(
        used=used,
        predicted_variance=variance,
        predicted_cost=1.0,
        checked_variance=None,
        checked_cost=1.0,
        floor=0.02,
        margin=0.0,
        kept=0.0,
        binding=0.5,
        warnings=("thin",),
        asked=10,
        unseen=1,
        infeasible=0,
        not_finite=0,
        certificate=verdict,
        certified_cost=1.0,
        certified_low=0.9,
        certified_high=None,
    )


def _target(name, spread, **outcomes):
    own = {"on-policy": _outcome(1.0, 1.0)}
    named = {method.replace("_", "-"): outcome for method, outcome in outcomes.items()}
    return TargetResult(name, 10.0, 0.1, 10.0, spread, 5.0, 1.0, own | named)


def _result(config, results) -> Result:
    return Result("mujoco", config, (block_of(WHAT, results, METHODS, 2, 2),))


def _by_hand() -> Result:
    results = [
        _target(
            "a",
            1.0,
            scope=_outcome(0.5, 1.0, designed=_designed("scope", 0.4, "safe")),
            scope_dr=_outcome(0.2, 1.05, designed=_designed("scope", 0.1, "refuted")),
            ros=_outcome(0.8, 1.0, square=0.9),
        ),
        _target("b", 0.0),
        _target(
            "c",
            2.0,
            scope=_outcome(1.5, 0.9, designed=_designed("on-policy", 1.0, "not refuted")),
            scope_dr=_outcome(0.4, 1.0, designed=_designed("scope-dr", 0.3, "safe")),
        ),
    ]
    config = Config(("Hopper",), ("bins",), targets=3, episodes=2, ros_episodes=2)
    return _result(config, results)


def test_means_over_targets_by_hand():
    result = _by_hand()
    [block] = result.blocks
    assert block.excluded == ("b",)
    assert list(block.methods) == ["on-policy", "scope", "scope-dr", "ros"]
    scope = block.methods["scope"]
    assert scope.targets == ("a", "c")
    assert scope.variance.mean == 1.0
    assert scope.variance.standard_error == 0.5
    assert math.isclose(scope.cost.mean, 0.95)
    assert math.isclose(scope.needed.mean, (500 + 1350) / 2)
    assert math.isclose(scope.saved, 1 - 0.925)
    worst = scope.worst("variance")
    assert (worst.target, worst.value, worst.error) == ("c", 1.5, 0.1)
    assert scope.worst("cost").target == "a"
    assert scope.beyond("variance", 1.1) == ["c"]
    assert scope.beyond("variance", 1.3) == []  # 1.5 - 2 x 0.1 is not above
    assert block.methods["scope-dr"].beyond("cost", 1.02) == ["a"]
    assert scope.used == {"on-policy": 1, "scope": 1}
    assert scope.certificates == {"not refuted": 1, "safe": 1}
    assert scope.paired.values.tolist() == [1.0, 1.0]
    assert block.methods["ros"].paired.values.tolist() == [1.0]  # has no certificate: as measured
    assert (scope.refuted, block.methods["scope-dr"].refuted) == ([], ["a"])
    ros = block.methods["ros"]
    assert ros.targets == ("a",)
    assert ros.needed.mean == 900.0  # by the squared error
    told = scope.as_dict()
    assert told["predicted_variance"] == {"mean": 0.7, "values": [0.4, 1.0]}
    assert told["checked_variance"] == {"mean": None, "values": [None, None]}
    assert math.isclose(told["relative_variance_noise"], math.sqrt(2) * 0.1 / 2)
    whole = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert (
        whole["blocks"][0]["paper"]["scope"]["cost_needed"]
        == published.ROBOTS["Hopper"]["scope"].needed
    )


def test_the_page_and_the_tables_say_so():
    result = _by_hand()
    page = page_of_mujoco(result, command="scopeval reproduce mujoco")
    html = render(page)
    assert html == render(page_of_mujoco(result, command="scopeval reproduce mujoco"))
    assert page.verdict.tone == "open"  # 1.025 with a standard error of 0.025, of two targets
    assert page.verdict.text.endswith(", of 2 targets: too few to be sure")
    assert "good" not in {check.tone for check in page.sections[3].checks}
    [table] = page.sections[1].tables
    assert table.rows[1] == (
        "scope", "1.000 ± 0.500", "1.50 ± 0.10", "0.950 ± 0.050", "1.00 ± 0.01", "925", "7%",
    )  # fmt: skip
    assert table.rows[2] == ("  paper", "0.596", "", "0.930", "", "552", "45%")
    shown = show_robots(result)
    assert table in shown
    said = " ".join(part for part in shown if isinstance(part, str))
    assert "1 of 3 targets have returns without spread and are in no mean: b." in said
    assert (
        "Hopper, bins: the expected cost of scope-dr is 1.000 ± 0.000 times the target policy's "
        "(paired), within its budget of 1 up to standard error. Targets more than two standard "
        "errors above 1.02: a; refuted by the certificate: a."
    ) in said
    assert all(part in html.replace("&#39;", "'") for part in said.split(". ")[:3])


@pytest.mark.parametrize(
    ("paired", "copies", "tone"),
    [(1.0, 5, "good"), (1.0, 1, "open"), (1.04, 5, "bad"), (1.04, 1, "bad")],
)
def test_the_promise_is_judged_by_the_certificates(paired, copies, tone):
    """Independent episodes say 1.05 and 1.06; what was compared within the same ones counts.

    Ten targets are enough for a tick, two are not.
    """
    told = replace(_designed("scope", 0.4, "safe"), certified_cost=paired)
    results = [
        _target(
            name,
            1.0,
            scope=_outcome(0.5, cost, designed=told),
            scope_dr=_outcome(0.5, cost, designed=told),
        )
        for k in range(copies)
        for name, cost in ((f"a{k}", 1.05), (f"b{k}", 1.06))
    ]
    config = Config(("Hopper",), ("bins",), targets=len(results), episodes=2, ros_episodes=2)
    page = page_of_mujoco(_result(config, results), command="x")
    assert page.verdict.tone == tone


def test_results_survive_json():
    [block] = _by_hand().blocks
    for result in block.results:
        told = json.loads(json.dumps(asdict(result)))
        assert TargetResult.of(told) == result


# -- what is asked -------------------------------------------------------------------------------


def test_targets_are_evenly_spread():
    assert mujoco._spread(30, 30).tolist() == list(range(30))
    assert mujoco._spread(30, 3).tolist() == [5, 15, 25]
    assert mujoco._spread(3, 5).tolist() == [0, 1, 2]
    assert mujoco._spread(30, 0).tolist() == []
    shards = replace(TINY, targets=6, ros_targets=2).shards([{"parquet": "p", "npz": "n"}])
    assert [s.target for s in shards] == [2, 7, 12, 17, 22, 27]
    assert [s.target for s in shards if s.ros_episodes] == [7, 22]
    some = replace(TINY, role="validation", targets=30).shards([{"parquet": "p", "npz": "n"}])
    assert [(s.role, s.target) for s in some] == [("validation", k) for k in range(6)]


def test_lists_may_have_commas():
    assert words_from(["Ant,Hopper", "Ant"], ()) == ("Ant", "Hopper")
    assert words_from(None, ("x",)) == ("x",)


def test_mistakes_are_told():
    with pytest.raises(InputError, match="robot: got 'Moon', expected one of Ant"):
        Config(robots=("Moon",))
    with pytest.raises(InputError, match="protocols: got 'x', expected one of candidates, bins"):
        QUICK(protocols=("x",))
    with pytest.raises(InputError, match="role: got 'x', expected one of reported, validation"):
        QUICK(role="x")
    with pytest.raises(InputError, match="runs"):
        QUICK(runs=1)


# -- what is shared ------------------------------------------------------------------------------


def test_networks_come_back_whole():
    logs = robot_logs("InvertedPendulum", episodes=4)
    rows = Rows.of(logs)
    encoder = Encoder(np.empty((0, 1)), np.ones(4, np.bool_))
    how = Training(hidden=4, steps=3, batch=8)
    dynamics = Dynamics(tuple(learn_network(rows, rows, encoder, how, k) for k in range(2)))
    back = mujoco_prepare._dynamics(mujoco_prepare._arrays(dynamics))
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
    found = mujoco_prepare.prepare(tmp_path, what)
    back = mujoco_prepare.recall(tmp_path, what, found["parquet"], found["npz"])
    assert [len(network.identities) for network in back.dynamics.learned] == [2, 2]  # two angles


def test_files_of_another_run_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"Hopper-bins: \.parquet or \.npz is missing or not what"):
        mujoco_prepare.recall(tmp_path, WHAT, "p", "n")
