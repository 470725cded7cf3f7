"""The data center: its weather, controllers, messages, and days in the real engine."""

from __future__ import annotations

import importlib.util
import os
import signal

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from experiments.data_center import (
    DAYS,
    Controller,
    DataCenterEnv,
    DataCenterFleet,
    Season,
    campaign,
    operators,
    recorded_logs,
    target_controllers,
)
from experiments.data_center import engine as engine_module
from experiments.data_center.engine import Engine, Hour
from experiments.data_center.environment import LEVELS, observe, usual_energy
from experiments.data_center.weather import COLUMNS, HOURS, relative_humidity
from scopeval.errors import DataError, InputError, MissingExtraError, PlantError

installed = pytest.mark.skipif(
    importlib.util.find_spec("pyenergyplus") is None,
    reason="no EnergyPlus here: try pip install 'scopeval[energyplus]'",
)
MONTH_DAYS = {5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31}


def recorded(month: int, date: int, hour: int) -> float:
    """A temperature that tells the day and the hour."""
    return 20.0 + month + date / 10.0 + 5.0 * np.sin(2.0 * np.pi * hour / 24.0)


@pytest.fixture
def weather_file(tmp_path):
    """A made-up year from May to October."""
    lines = ["LOCATION,Nowhere,-,-,made up,0,36.8,-119.7,-8.0,100.0", *["-"] * 7]
    for month, days in MONTH_DAYS.items():
        for date in range(1, days + 1):
            for hour in range(1, HOURS + 1):
                row = ["0"] * COLUMNS
                row[:5] = ["1990", str(month), str(date), str(hour), "60"]
                row[6:10] = [f"{recorded(month, date, hour):.1f}", "10.0", "50", "101000"]
                lines.append(",".join(row))
    place = tmp_path / "made-up.epw"
    place.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return place


def test_a_day_is_of_the_season_and_has_the_noise_that_is_promised(weather_file):
    """300 days: a standard deviation of 1.65 is known to 0.07, the bounds are 4 of them away."""
    season = Season(weather_file)
    days = [season.draw(np.random.default_rng(seed)) for seed in range(300)]
    assert {day.month for day in days} == {6, 7, 8, 9}
    assert len({(day.month, day.date) for day in days}) > DAYS // 2
    noise = np.array(
        [[day.outdoor[h] - recorded(day.month, day.date, h + 1) for h in range(24)] for day in days]
    )
    assert abs(noise.std() - np.hypot(1.5, 0.7)) < 0.28
    assert abs(noise.mean()) < 0.4  # 4 standard errors
    error = np.array([day.forecast - day.outdoor.mean() for day in days])
    assert abs(error.std() - 1.0) < 0.17
    load = np.array([day.load for day in days])
    assert load.min() >= 0.3
    assert load.max() <= 1.0
    assert load[:, 14:17].mean() > load[:, 2:5].mean() + 0.2


def test_the_same_seed_draws_the_same_day(weather_file):
    season = Season(weather_file)
    one, again, other = (season.draw(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one.epw == again.epw
    assert (one.load == again.load).all()
    assert one.epw != other.epw


def test_the_weather_file_of_a_day_says_what_the_day_says(weather_file):
    day = Season(weather_file).draw(np.random.default_rng(5))
    lines = day.epw.splitlines()
    assert lines[7] == f"DATA PERIODS,1,1,Data,Sunday,{day.month}/{day.date},{day.month}/{day.date}"
    rows = [line.split(",") for line in lines[8:]]
    assert len(rows) == HOURS
    np.testing.assert_allclose([float(row[6]) for row in rows], day.outdoor)
    for row in rows:
        dry, dew, humidity = (float(x) for x in row[6:9])
        assert dew <= dry
        assert 0 < humidity <= 100


def test_humidity_at_the_dew_point_is_full_and_halves_eleven_degrees_above():
    assert relative_humidity(20.0, 20.0) == 100.0
    assert relative_humidity(20.0, 9.3) == pytest.approx(50.0, abs=0.5)  # as in tables


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n" * 20, "LOCATION"),
        ("LOCATION,x\n" + "-\n" * 7 + "1,2,3\n", "35 columns"),
        ("LOCATION,x\n" + "-\n" * 7 + ",".join(["7"] * 35) + "\n", "whole year"),
    ],
)
def test_other_files_are_refused_with_what_is_wrong(tmp_path, text, said):
    place = tmp_path / "other.epw"
    place.write_text(text)
    with pytest.raises(DataError, match=said):
        Season(place)


def test_without_the_extra_the_message_has_the_remedy(monkeypatch, weather_file):
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'scopeval\[energyplus\]'"):
        DataCenterEnv(weather=weather_file)


def test_another_reward_is_refused():
    with pytest.raises(InputError, match="reward: got 'money'"):
        DataCenterEnv(reward="money")


def test_controllers_give_probabilities_and_the_bold_one_is_warmer():
    rng = np.random.default_rng(0)
    obs = np.column_stack(
        [
            np.arange(50) % 24,
            rng.uniform(15, 42, 50),
            rng.uniform(20, 35, 50),
            rng.uniform(0.3, 1, 50),
            rng.uniform(30, 45, 50),
            rng.choice(LEVELS, 50),
        ]
    )
    wished = {}
    for name, controller in target_controllers().items():
        probs = controller.policy().probs(obs, 0)
        assert probs.shape == (50, 5)
        assert probs.min() >= controller.slip / 5
        np.testing.assert_allclose(probs.sum(axis=1), 1.0)
        wished[name] = (probs @ np.array(LEVELS)).mean()
    assert wished["cautious"] < wished["usual"] < wished["bold"]
    each = [Controller(25.0).probs(one)[0] for one in obs]
    np.testing.assert_allclose(Controller(25.0).probs(obs), each)
    assert operators(4, seed=1) == operators(9, seed=1)[:4]


def test_an_observation_has_the_weather_before_the_hour_and_the_load_of_the_hour(weather_file):
    day = Season(weather_file).draw(np.random.default_rng(5))
    last = Hour(1.0, 0.0, 36.0, 25.0)
    expected = [7.0, day.outdoor[6], day.forecast, day.load[7], 36.0, 26.0]
    np.testing.assert_allclose(observe(day, 7, last, 26.0), expected)
    assert observe(day, 24, last, 26.0)[1] == day.outdoor[23]


def test_the_usual_energy_is_the_fan_alone_where_outdoor_air_suffices():
    assert usual_energy(10.0) == usual_energy(21.0) == pytest.approx(4.2)
    assert usual_energy(31.0) == pytest.approx(4.2 + 19.5)
    assert usual_energy(60.0) == usual_energy(37.0)


def test_the_recorded_log_has_a_season_of_days():
    log = recorded_logs()
    assert len(log) == 300 * HOURS
    np.testing.assert_array_equal(log.t, np.tile(np.arange(HOURS), 300))
    obs, following = np.asarray(log.obs), np.asarray(log.next_obs)
    np.testing.assert_array_equal(obs[:, 0], log.t)
    np.testing.assert_array_equal(following[:, -1], np.array(LEVELS)[log.action])
    assert set(np.unique(log.action)) == set(range(5))
    assert log.cost.min() == 0.0 < log.cost.mean()


# -- in the engine ---------------------------------------------------------------------------------


@pytest.fixture
def room(weather_file):
    env = DataCenterEnv(weather=weather_file)
    yield env
    env.close()


def run(env: DataCenterEnv, level: int, seed: int) -> tuple[float, float, list[np.ndarray]]:
    obs, _ = env.reset(seed=seed)
    total, cost, seen = 0.0, 0.0, [obs]
    for hour in range(24):
        obs, reward, terminated, truncated, info = env.step(level)
        assert not terminated
        assert truncated == (hour == 23)
        total, cost = total + reward, cost + info["cost"]
        seen.append(obs)
    return total, cost, seen


@installed
def test_warmer_air_takes_less_energy_and_overheats(room):
    cold, mild, warm = (run(room, level, seed=3) for level in (0, 2, 4))
    assert cold[0] < mild[0] < warm[0] < 0.0
    assert cold[1] == mild[1] == 0.0
    # set to 28 °C, 1 above the allowed 27, and a little room air: more than 24 degree-hours
    assert 24.0 < warm[1] < 100.0
    assert run(room, 2, seed=4)[0] != mild[0]


@installed
def test_the_same_seed_gives_the_same_bits_in_any_process(room, weather_file):
    first = run(room, 3, seed=8)
    run(room, 1, seed=9)
    room.reset(seed=10)  # a day that is left in the middle
    room.step(0)
    again = run(room, 3, seed=8)
    other = DataCenterEnv(weather=weather_file, reward="saving")
    try:
        saving, cost, seen = run(other, 3, seed=8)
    finally:
        other.close()
    assert first[:2] == again[:2]
    assert cost == first[1]
    np.testing.assert_array_equal(first[2], again[2])
    np.testing.assert_array_equal(first[2], seen)
    outdoor = np.array(seen)[:, 1]  # a day begins with its own last hour
    usual = usual_energy((outdoor[1:] + outdoor[:-1]) / 2.0).sum()
    assert saving == pytest.approx(first[0] + usual)


@installed
def test_rooms_side_by_side_have_the_days_of_a_single_one(room, weather_file, caplog):
    """Also when a day is begun while others run, and when the engine of one of them is killed."""
    alone = {seed: run(room, 3, seed) for seed in (5, 6, 7)}
    rooms = DataCenterFleet(2, weather=weather_file)
    both, totals = np.array([0, 1]), np.zeros(2)
    obs = rooms.reset([5, 6], both)
    np.testing.assert_array_equal(obs, [alone[5][2][0], alone[6][2][0]])
    for _ in range(24):
        totals += rooms.step(np.array([3, 3]), both).reward
    assert totals.tolist() == [alone[5][0], alone[6][0]]
    rooms.reset([1, 2], both)
    np.testing.assert_array_equal(rooms.reset([7], both[1:]), [alone[7][2][0]])
    process = rooms._engines[0]._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    moved = rooms.step(np.array([3, 3]), both)
    assert np.isnan(moved.obs[0]).all()
    assert np.isnan([moved.reward[0], moved.cost[0]]).all()
    np.testing.assert_array_equal(moved.obs[1], alone[7][2][1])
    assert "this day is lost" in caplog.text
    np.testing.assert_array_equal(rooms.reset([5], both[:1]), [alone[5][2][0]])
    rooms.close()


@installed
def test_gymnasium_agrees(weather_file):
    env = gymnasium.make("scopeval/DataCenter-v0", weather=weather_file)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


@installed
def test_a_crash_of_the_engine_is_a_message_and_the_next_day_runs(room):
    alone = run(room, 2, seed=1)
    room.reset(seed=1)
    process = room._engine._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with pytest.raises(PlantError, match="has ended; this day is lost"):
        room.step(2)
    assert run(room, 2, seed=1)[:2] == alone[:2]


@installed
def test_what_the_engine_says_is_repeated(room):
    """It stops where a construction is missing, and crashes where the fan is."""
    racks = room._engine._building["Construction"].pop("Racks")
    with pytest.raises(PlantError, match=r"(?s)stopped with code 1;.*Severe.*RACKS"):
        room.reset(seed=1)
    room._engine._building["Construction"]["Racks"] = racks
    del room._engine._building["Fan:ConstantVolume"]
    with pytest.raises(PlantError, match=r"(?s)this day is lost.*Severe.*SUPPLY FAN"):
        room.reset(seed=1)


@installed
def test_an_engine_that_hangs_is_given_up(room, monkeypatch):
    room.reset(seed=1)
    process = room._engine._process
    monkeypatch.setattr(engine_module, "PATIENCE", 0.2)
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(PlantError, match="no answer"):
        room.step(2)
    assert process.poll() is not None


@installed
def test_steps_out_of_order_are_refused(room):
    with pytest.raises(PlantError, match="before reset"):
        room.step(0)
    run(room, 2, seed=0)
    with pytest.raises(PlantError, match="the day is over"):
        room.step(0)
    with pytest.raises(InputError, match="level from 0 to 4"):
        room.step(7)


@installed
def test_the_process_ends_with_the_environment(weather_file):
    engine = Engine(27.0, 24.0)
    engine.begin(Season(weather_file).draw(np.random.default_rng(0)))
    process, folder = engine._process, engine._folder.name
    del engine
    assert process.poll() is not None
    assert not os.path.exists(folder)


@installed
def test_data_center_campaign(tmp_path, capsys):
    logs = recorded_logs()
    some = logs.select(np.arange(len(logs)) // 24 % 4 == 0)  # every fourth day
    result = campaign.main(tmp_path, days=2, logs=some)
    said = capsys.readouterr().out
    assert "9 hours of the day are recorded" in said
    assert "can be drawn again: True" in said
    assert result.finished == 4
