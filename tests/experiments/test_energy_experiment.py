"""The data center experiment: its rows by hand, in a made-up room, and once in the engine."""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager

import gymnasium
import numpy as np
import pytest

from experiments import energy
from experiments.common import run_experiment
from experiments.data_center import recorded_logs
from experiments.data_center.environment import LEVELS, usual_energy
from scopeval import read_logs

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
    monkeypatch.setattr(energy, "_rooms", rooms)


def test_rows_of_the_target_itself_and_the_log(made_up, tmp_path):
    args = energy.Args(
        targets=("bold",), methods=("on-policy", "energy on-policy"), logged=23, own=6, seed=3,
        out=tmp_path, backend="serial",
    )  # fmt: skip
    content = run_experiment(energy, args)
    assert len(read_logs(tmp_path / "logs.parquet")) == 23 * 24
    own, plain = content["rows"]
    assert (own["method"], own["days"], own["square"]) == ("on-policy", 6, [1.0, 0.0])
    assert own["value"][0] > plain["value"][0]  # the usual energy is added
    assert own["cost"][0] == plain["cost"][0] == 1.0
    assert run_experiment(energy, args)["rows"] == content["rows"]
    assert energy.table(content)[0].rows[0][:3] == ("bold", "on-policy", "6")
    ran = energy.collect(
        lambda: MadeUpRoom("energy"),
        energy.target_controllers()["bold"].policy(),
        horizon=24,
        episodes=6,
        seed=energy._seed(3, 2, 1),
    )
    assert plain["value"][0] == pytest.approx(ran.returns().mean())


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
    own = energy.Own(np.arange(5.0), np.ones(5))
    row = energy._row({"said": ["the logs do not bear it out"]}, own)
    assert row["days"] == 0
    content = {
        "config": energy.Args().config,
        "rows": [{"target": "bold", "method": "frontier", **row}],
    }
    shown = energy.table(content)
    assert "no design is offered" in shown[0].rows[0]
    assert "bear it out" in shown[-1]


@installed
def test_a_day_of_the_recorded_log_comes_out_again():
    """Its actions in the weather of its seed; another version of the engine may differ a little."""
    found, log = energy.logged_days(energy.Args(logged=1), 0), recorded_logs()
    np.testing.assert_array_equal(found["action"], log.action[:24])
    np.testing.assert_allclose(found["reward"], log.reward[:24], atol=0.05)
    np.testing.assert_allclose(found["cost"], log.cost[:24], atol=0.01)
    np.testing.assert_allclose(found["next_obs"], log.next_obs[:24], atol=0.02)


@installed
def test_a_design_runs_in_the_engine(tmp_path):
    args = energy.Args(
        targets=("bold",), methods=("on-policy", "scope-dr"), own=2, days=3, out=tmp_path,
        backend="serial",
    )  # fmt: skip
    own, design = run_experiment(energy, args)["rows"]
    assert own["value"][0] > 0.0
    assert design["days"] == 3
    assert design["verdict"]
    assert design["predicted"] is not None
