"""What no action changes, named in logs and by environments, is seen by itself."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from scopeval import (
    Campaign,
    Episodes,
    History,
    Plant,
    Stages,
    Stop,
    Transitions,
    collect,
    compare,
    estimate,
    evaluate,
    read_logs,
    write_logs,
)
from scopeval.campaign.transfer import kept_history
from scopeval.envs.exogenous import ExogenousEnv, simulate
from scopeval.envs.queue import Queue
from scopeval.errors import DataError, InputError

QUEUE = Queue(horizon=20)
OLD, NEW = QUEUE.policies()[:2]


def ran(n, seed=0):
    rng = np.random.default_rng(seed)
    return simulate(QUEUE, OLD, QUEUE.paths(n, rng), rng)


def table(n=60):
    """As a historian has it: columns with names, some of which are the observation."""
    log = ran(n).transitions()
    (t, waiting, last), following = log["obs"].T, log["next_obs"].T
    return {
        "t": log["t"], "hour": t, "waiting": waiting, "came": last,
        "arrivals": log["signals"][:, 0],
        "action": log["action"], "reward": log["reward"], "cost": log["cost"],
        "hour2": following[0], "waiting2": following[1], "came2": following[2],
    }  # fmt: skip


COLUMNS = {"obs": ["hour", "waiting", "came"], "next_obs": ["hour2", "waiting2", "came2"]}


def test_names_are_columns_of_the_observation_or_signals_of_their_own(tmp_path):
    columns = table()
    inside = read_logs(columns, columns=COLUMNS, exogenous="came")
    assert inside.exogenous == (2,)
    assert inside.signals is None
    beside = read_logs(columns, columns=COLUMNS, exogenous=["arrivals"])
    assert beside.exogenous == ("arrivals",)
    assert np.array_equal(beside.signals[:, 0], columns["arrivals"])
    assert read_logs(columns, columns=COLUMNS, exogenous=(0, 2)).exogenous == (0, 2)
    for log in (inside, beside):
        place = tmp_path / "log.parquet"
        write_logs(log, place)
        assert read_logs(place) == log  # the file says it by itself
        assert read_logs(place, exogenous=()).exogenous == ()
        assert pickle.loads(pickle.dumps(log)) == log
        assert log.select(slice(0, 40)).exogenous == log.exogenous
        assert Transitions.concat([log, log]).exogenous == log.exogenous
    assert Transitions.concat([inside, beside]).exogenous == ()
    assert History.of_logs(inside).paths.shape == (60, 21, 1)
    assert History.of_logs(beside).paths[:, :, 0] == pytest.approx(
        History.of_logs(inside).paths[:, 1:, 0]
    )


def test_what_is_no_column_is_refused():
    columns = table(3)
    with pytest.raises(DataError, match="did you mean 'arrivals'"):
        read_logs(columns, columns=COLUMNS, exogenous="arival")
    with pytest.raises(InputError, match="some are columns of the observation and some"):
        read_logs(columns, columns=COLUMNS, exogenous=["came", "arrivals"])
    with pytest.raises((InputError, DataError), match="the observation's 3 columns"):
        read_logs(columns, columns=COLUMNS, exogenous=7)
    with pytest.raises(InputError, match="do not say what no action changes"):
        History.of_logs(read_logs(columns, columns=COLUMNS))
    with pytest.raises(InputError, match="names of signals in info or numbers"):
        Plant(ExogenousEnv(QUEUE), exogenous="arrivals")


def test_an_environment_says_it_and_its_episodes_and_logs_do():
    plant = Plant(ExogenousEnv(QUEUE))
    assert plant.signals == ("arrivals",)
    kept = collect(ExogenousEnv(QUEUE), OLD, horizon=20, episodes=8)
    assert kept.signals == ("arrivals",)
    assert read_logs(kept).exogenous == ("arrivals",)
    of_columns = collect(Plant(ExogenousEnv(QUEUE), exogenous=(2,)), OLD, horizon=20, episodes=8)
    assert read_logs(of_columns).exogenous == (2,)
    assert Episodes.concat([of_columns, of_columns]).select([0]).columns == (2,)


def test_a_context_is_made_of_logs_by_itself(tmp_path):
    """`compare`, `Stages`, `estimate`, campaigns: the same as with the history given."""
    log = read_logs(ran(400, 1))
    policies, env = {"old": OLD, "new": NEW}, ExogenousEnv(QUEUE)
    found = compare(env, policies, logs=log, horizon=20, episodes=80)
    given = compare(env, policies, logs=log, horizon=20, episodes=80, context=log)
    assert found.differences["new"] == given.differences["new"]
    assert found.context["new"].paths == 400
    assert estimate(ran(80), context=History.of_logs(log)).context.paths == 400
    assert estimate(ran(80), context=log).context.paths == 400
    columns = read_logs(table(200), columns=COLUMNS, exogenous="came")
    staged = evaluate(env, OLD, Stages(logs=columns), horizon=20, episodes=60)
    assert staged.context.what == "column 2 of the observation"
    campaign = Campaign.create(
        tmp_path / "queue.campaign", policies, logs=columns, horizon=20, stop=Stop(episodes=10)
    )
    with campaign.backend.store.read() as connection:
        assert kept_history(connection).columns == [2]


def test_logs_whose_episodes_end_early_say_what_to_do():
    log = read_logs(table(), columns=COLUMNS, exogenous="came")
    cut = log.select(slice(0, len(log) - 3))
    with pytest.raises(DataError, match=r"exogenous=\(\)"):
        compare(ExogenousEnv(QUEUE), {"old": OLD, "new": NEW}, logs=cut, horizon=20, episodes=20)


def test_columns_of_the_observation_are_suggested_where_the_plant_names_them():
    plant = Plant(ExogenousEnv(Queue()), exogenous=(2,))
    found = evaluate(plant, Queue().policies()[1], horizon=60, episodes=150)
    assert "goes with column 2 of the observation" in found.advice[0]
