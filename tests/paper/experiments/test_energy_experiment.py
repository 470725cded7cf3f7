"""The data center experiment: its rows by hand, in a made-up room, and once in the engine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from contextlib import contextmanager

import gymnasium
import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval import read_logged
from scopeval.cli.app import app
from scopeval.envs.data_center import recorded_logs
from scopeval.envs.data_center.environment import LEVELS, usual_energy
from scopeval.envs.data_center.logs import RECORDED
from scopeval.errors import InputError
from scopeval.paper.experiments import energy, energy_days
from scopeval.paper.tables.energy import show_energy

installed = pytest.mark.skipif(
    importlib.util.find_spec("pyenergyplus") is None,
    reason="no EnergyPlus here: try pip install 'scopeval[energyplus]'",
)


class MadeUpRoom(gymnasium.Env):
    """Rewards and costs by simple formulas; observations as the data center has them."""

    observation_space = gymnasium.spaces.Box(-50.0, 100.0, (6,))
    action_space = gymnasium.spaces.Discrete(5)

    def __init__(self, reward="energy"):
        self.saving = reward == "saving"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hour, self.outdoor, self.level = 0, self.np_random.uniform(15.0, 30.0), 2
        return self.observe(), {}

    def step(self, action):
        before, self.level = self.outdoor, int(action)
        self.outdoor += self.np_random.normal(0.0, 1.0)
        self.hour += 1
        reward = -max(self.outdoor - LEVELS[self.level], 0.0) - 4.0
        if self.saving:
            reward += float(usual_energy((before + self.outdoor) / 2.0))
        cost = max(LEVELS[self.level] - 25.0, 0.0)
        return self.observe(), reward, False, self.hour == 24, {"cost": cost}

    def observe(self):
        return np.array([self.hour, self.outdoor, 25.0, 0.6, 35.0, LEVELS[self.level]])


@pytest.fixture
def made_up(monkeypatch):
    rooms = contextmanager(lambda reward: iter([lambda: MadeUpRoom(reward)]))
    monkeypatch.setattr(energy_days, "_rooms", rooms)
    monkeypatch.setattr(energy, "check_installed", lambda: None)


def test_rows_of_the_target_itself_and_the_log(made_up, tmp_path):
    config = energy.Config(
        ("bold",), ("on-policy", "energy on-policy"), logged=23, own=6, days=2, seed=3
    )
    result = energy.run(config, folder=tmp_path, backend="serial")
    log = read_logged(tmp_path / "logs.parquet")
    assert len(log) == 23 * 24
    own, plain = result.rows
    assert (own.method, own.days, own.square, own.verdict) == ("on-policy", 6, (1.0, 0.0), "")
    assert own.value[0] > plain.value[0]  # the usual energy is added
    assert own.cost[0] == plain.cost[0] == 1.0
    again = energy.run(config, folder=tmp_path, backend="serial")
    assert again == result
    table = show_energy(result)[0]
    assert table.rows[0][:3] == ("bold", "on-policy", "6")
    assert json.loads(json.dumps(result.as_dict()))["rows"][0]["target"] == "bold"


def test_the_recorded_logs_are_the_usual_ones(tmp_path):
    digest = energy_days.write_logs(None, 0, tmp_path, {"backend": "serial"})
    assert digest == hashlib.sha256(RECORDED.read_bytes()).hexdigest()
    np.testing.assert_array_equal(
        read_logged(tmp_path / "logs.parquet").reward, recorded_logs().reward
    )


@pytest.mark.parametrize(
    ("method", "learns", "reward"),
    [
        ("scope-dr", True, "saving"),
        ("adaptive", False, "saving"),
        ("frontier adaptive", False, "saving"),
        ("frontier adaptive with logs", True, "saving"),
        ("energy scope-dr starts", True, "energy"),
    ],
)
def test_what_a_method_learns_from_and_its_reward(method, learns, reward):
    shard = energy_days.Shard("bold", method, 2, 2, 0.5, 0, "")
    assert (shard.learns, shard.reward) == (learns, reward)


def test_energy_is_the_saving_without_the_usual_energy(made_up):
    shard = energy_days.Shard("usual", "on-policy", 4, 0, 1.0, 0, "")
    days = energy_days.own_days(shard)
    room = MadeUpRoom("energy")
    controller = energy_days.target_controllers()["usual"].policy()
    ran = energy_days.collect(
        lambda: room,
        controller,
        horizon=24,
        episodes=4,
        seed=energy_days._seed(0, 1, 1),
        batch=1,
    )
    known = energy_days.Own.of(days, "energy on-policy")
    np.testing.assert_allclose(known.value, ran.returns())
    np.testing.assert_allclose(energy_days.Own.of(days, "scope-dr").value, days["value"])


def test_the_squared_error_of_stages_is_that_of_their_weighted_sum():
    rng = np.random.default_rng(0)
    own, value = rng.normal(0.0, 2.0, 500), rng.normal(0.0, 1.0, 60)
    whole, error = energy._square(value, [], own)
    assert whole == pytest.approx(value.var(ddof=1) / own.var(ddof=1))
    # normal values: the relative errors of both variances are sqrt(2 / n); 30 % is 3 of theirs
    assert error / whole == pytest.approx(np.sqrt(2 / 60 + 2 / 500), rel=0.3)
    stages = [(20, 0.25, True), (40, 0.75, False)]
    expected = 0.25**2 * own.var(ddof=1) / 20 + 0.75**2 * value[20:].var(ddof=1) / 40
    found, _ = energy._square(value, stages, own)
    assert found == pytest.approx(expected / (own.var(ddof=1) / 60))


def test_where_no_design_is_offered_the_row_says_so():
    own = energy_days.Own(np.arange(5.0), np.ones(5))
    shard = energy_days.Shard("bold", "frontier", 9, 0, 0.5, 0, "")
    row = energy._row(shard, {"said": ["the logs do not bear it out"]}, own)
    assert row.days == 0
    shown = show_energy(energy.EnergyResult(energy.Config(), (row,)))
    assert "no design is offered" in shown[0].rows[0]
    assert "bear it out" in shown[-1]


@pytest.mark.parametrize(
    "wrong",
    [{"targets": ("brave",)}, {"methods": ("luck",)}, {"days": 1}, {"logged": 3}, {"asked": 0.0}],
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(InputError, match="expected"):
        energy.Config(**wrong)


@installed
def test_a_day_of_the_recorded_log_comes_out_again():
    """Its actions in the weather of its seed; another version of the engine may differ a little."""
    found, log = energy_days._logged_days(energy_days.LogShard(0, 1, 0)), recorded_logs()
    np.testing.assert_array_equal(found["action"], log.action[:24])
    np.testing.assert_allclose(found["reward"], log.reward[:24], atol=0.05)
    np.testing.assert_allclose(found["cost"], log.cost[:24], atol=0.01)
    np.testing.assert_allclose(found["next_obs"], log.next_obs[:24], atol=0.02)


@installed
def test_the_command_runs_a_design_in_the_engine(tmp_path):
    words = [
        "reproduce", "energy", "--target", "bold", "--methods", "on-policy,scope-dr", "--logged",
        "10", "--own", "2", "--days", "3", "--backend", "serial", "--out", str(tmp_path),
    ]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "energy.json").read_text())
    own, design = content["rows"]
    assert own["value"][0] > 0.0
    assert design["days"] == 3
    assert design["verdict"]
    assert design["predicted"] is not None
