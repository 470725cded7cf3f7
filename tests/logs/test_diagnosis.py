"""Logs that contradict themselves are refused, and suspicious ones carry a note."""

from __future__ import annotations

import re

import numpy as np
import pytest

from scopeval import Transitions, collect, design, read_logs, sample_logs, stream_logs, write_logs
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import DataError, InputError
from scopeval.logs.diagnose import Problem, diagnose, examine
from scopeval.logs.statistics import LogStatistics
from small_worlds import random_mdp
from wearing_machine import ACTIONS, HORIZON, STATES, machine_log, shuffled, transitions

KNOWN = {"horizon": HORIZON, "actions": ACTIONS, "states": STATES}


def ones(columns, name):
    return np.ones_like(columns[name])


def permuted(values):
    return np.random.default_rng(0).permutation(values)


# --- the errors of the table: every one was believed ----------------------------------------------


def test_a_clean_log_is_clean():
    found = diagnose(transitions(machine_log()), **KNOWN)
    assert found.errors == found.warnings == ()
    assert found.facts.ordered
    assert found.facts.clashes.number == 0
    assert "nothing suspicious" in found.summary()
    found.raise_errors()


def test_a_log_is_looked_through_once(monkeypatch, tmp_path):
    """Whoever reads, samples, diagnoses and designs: every row is looked at once."""
    looked = []
    add = LogStatistics.add
    monkeypatch.setattr(
        LogStatistics,
        "add",
        lambda self, log, *more, **named: looked.append(len(log)) or add(self, log, *more, **named),
    )
    columns = machine_log()
    log = read_logs(columns)
    assert looked == [len(log)]
    target = np.full((STATES, ACTIONS), 1.0 / ACTIONS)
    design(log, target, horizon=HORIZON, method="scope")
    diagnose(log, **KNOWN)
    assert looked == [len(log)]
    (words,) = diagnose(log, horizon=HORIZON - 1).errors  # a new question to the same facts
    assert "longer episodes than horizon" in words
    write_logs(log, tmp_path / "log.parquet")
    looked.clear()
    sample = sample_logs(stream_logs(tmp_path / "log.parquet"), 50)
    design(sample, target, horizon=HORIZON, method="scope")
    assert looked == [len(log)]
    assert not any("order of episodes" in note for note in sample.notes)


@pytest.mark.parametrize("episodes", [8, 60])
@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (
            lambda log: {"terminated": ones(log, "terminated")},
            "terminated rows are followed by the next step",
        ),
        (lambda log: {"next_obs": log["obs"]}, "equals obs in every row"),
        (lambda log: {"next_obs": np.roll(log["next_obs"], -1)}, "not shifted"),
        (lambda log: {"next_obs": np.roll(log["next_obs"], 1)}, "not shifted"),
        (lambda log: {"next_obs": permuted(log["next_obs"])}, "is not the obs of the next row"),
        (lambda log: {"obs": permuted(log["obs"])}, "is not the obs of the next row"),
    ],
    ids=["terminated", "copied", "shifted", "shifted-back", "permuted", "permuted-obs"],
)
def test_contradictions_are_refused(lie, said, noise, episodes):
    columns = machine_log(episodes, noise=noise)
    wrong = columns | lie(columns)
    with pytest.raises(DataError, match=rf"log: contradictory log: .*{said}"):
        diagnose(transitions(wrong), **KNOWN).raise_errors()
    for ids in ([], ["episode"], ["truncated"], ["episode", "truncated"]):
        kept = {n: v for n, v in wrong.items() if n in ids or n not in ("episode", "truncated")}
        with pytest.raises(DataError, match=said):
            read_logs(kept)


def test_the_message_counts_and_names_rows():
    columns = machine_log(8)
    found = diagnose(transitions(columns | {"next_obs": columns["obs"]}))
    moves = (columns["obs"] != columns["next_obs"])[:-1] & (np.diff(columns["t"]) == 1)
    rows = ", ".join(str(row) for row in np.flatnonzero(moves)[:5])
    assert (
        f"in {moves.sum()} of {(np.diff(columns['t']) == 1).sum()} compared pairs"
        in found.errors[0]
    )
    assert f"(rows counted from 0: {rows}, ...)" in found.errors[0]


def test_terminations_are_judged_in_shuffled_logs_too():
    columns = machine_log()
    wrong = shuffled(columns | {"terminated": ones(columns, "terminated")})
    with pytest.raises(DataError, match="rows before the last time step are terminated"):
        read_logs(wrong)


@pytest.mark.parametrize("column", ["cost", "reward"])
@pytest.mark.parametrize("value", [0.0, 1.5])
def test_constant_columns_are_noted(column, value):
    columns = machine_log()
    log = read_logs(columns | {column: np.full(len(columns["t"]), value)})
    assert any(f"every {column} is {value:g}" in note for note in log.notes)


def test_states_numbered_from_one():
    columns = machine_log()
    wrong = columns | {"obs": columns["obs"] + 1, "next_obs": columns["next_obs"] + 1}
    # 7 follows terminated rows only, so that nothing is outside the table that is ever looked at
    assert wrong["obs"].max() < STATES
    assert wrong["next_obs"][~wrong["terminated"]].max() < STATES
    with pytest.raises(DataError, match=r"state 7.*knows 0 to 6; state 0 never occurs.*from 1"):
        diagnose(transitions(wrong), **KNOWN).raise_errors()
    assert any("state 0 never occurs" in note for note in read_logs(wrong).notes)


def test_actions_numbered_from_one():
    columns = machine_log()
    wrong = transitions(columns | {"action": columns["action"] + 1})
    assert any("action 0 never occurs" in text for text in diagnose(wrong).warnings)
    with pytest.raises(DataError, match=r"action 3.*knows 0 to 2; action 0 never occurs"):
        diagnose(wrong, actions=ACTIONS).raise_errors()


def test_stray_rows_at_the_start():
    columns = machine_log()
    wrong = {n: np.append(v + 1 if n == "t" else v, v[:1]) for n, v in columns.items()}
    with pytest.raises(DataError, match="only 1 rows have t below 1, but 60 rows have t = 1"):
        read_logs(wrong)
    few = {n: np.append(v + 1 if n == "t" else v, v[:1]) for n, v in machine_log(8).items()}
    assert any("the starts of some episodes are missing" in note for note in read_logs(few).notes)


def test_a_row_with_the_wrong_time():
    columns = machine_log()
    times = columns["t"].copy()
    times[5] = 0
    log = read_logs(columns | {"t": times})
    assert any("t goes up by more than one at 1 places" in note for note in log.notes)


def with_row(columns, at, episode_of):
    """A row with t = 0 is put in, of the same episode as another row."""
    return {n: np.insert(v, at, 0 if n == "t" else v[episode_of]) for n, v in columns.items()}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("where", ["last of an episode", "between", "end of the log"])
@pytest.mark.parametrize("batches", [1, 7])
def test_a_stray_start_is_named(where, ids, batches):
    """One row of t = 0 that no second step follows; nothing was said about it."""
    left_out = {"truncated"} if ids else {"truncated", "episode"}
    columns = {n: v for n, v in machine_log().items() if n not in left_out}
    rows = len(columns["t"])
    if where == "last of an episode":
        row = HORIZON - 1
        wrong = columns | {"t": np.where(np.arange(rows) == row, 0, columns["t"])}
    else:
        row = HORIZON if where == "between" else rows
        wrong = with_row(columns, row, HORIZON - 5)
    said = f"after 1 row with t = 0 no second step of the episode follows.*from 0: {row:,}\\)"
    (note,) = read_logs(wrong).notes
    assert re.search(said, note)
    log = transitions(wrong)
    parts = np.array_split(np.arange(len(log)), batches)
    found = diagnose([log.select(part) for part in parts])
    assert found.facts.short.number == 1
    assert found.facts.short.rows == (row,)
    assert not diagnose(transitions(columns)).facts.short.number


@pytest.mark.parametrize("ids", [True, False])
def test_a_stray_start_that_is_marked_as_an_end_cuts_another_episode(ids):
    columns = {n: v for n, v in machine_log().items() if ids or n != "episode"}
    row = HORIZON - 1
    assert columns["truncated"][row]
    wrong = columns | {"t": np.where(np.arange(len(columns["t"])) == row, 0, columns["t"])}
    (note,) = read_logs(wrong).notes
    assert re.search(rf"1 of 61 episodes stop without.*from 0: {row - 1}\).*the next row", note)


def test_short_episodes_are_not_stray():
    columns = machine_log()
    ended = columns["t"] == 0
    for name in ("terminated", "truncated"):  # every third episode ends at once, and says so
        some = ended & (columns["episode"] % 3 == 0)
        kept = ~((columns["episode"] % 3 == 0) & ~ended)
        log = {n: v[kept] for n, v in (columns | {name: columns[name] | some}).items()}
        assert not any("no second step" in note for note in read_logs(log).notes)
    cut = machine_log(200, cut=0.1)  # some of them after the first step
    assert diagnose(transitions(cut)).facts.short.number > 0
    assert not any("no second step" in note for note in read_logs(cut).notes)
    bandit = {n: v[ended] for n, v in columns.items()}
    assert not any("no second step" in note for note in read_logs(bandit).notes)


def test_time_that_does_not_start_at_zero():
    columns = machine_log()
    log = read_logs(columns | {"t": columns["t"] + 1})
    assert any("no rows of t = 0" in note and "numbered from 1" in note for note in log.notes)
    log = read_logs(columns | {"t": columns["t"] * 2})
    assert any("time steps between t = 0 and t = 38 have no row" in note for note in log.notes)
    log = read_logs(columns | {"t": columns["t"] + 1_700_000_000})
    assert any("t is very large" in note for note in log.notes)


def test_horizon_and_lengths():
    columns = machine_log()
    assert read_logs(columns, horizon=HORIZON).notes == ()
    longer = read_logs(columns, horizon=50)
    assert any("no logged episode is longer than 20 steps" in note for note in longer.notes)
    cut = read_logs(machine_log(cut=0.1), horizon=HORIZON)
    assert any("end before the horizon of 20 steps without" in note for note in cut.notes)
    last = columns["t"] == HORIZON - 1
    whole = np.isin(columns["episode"], columns["episode"][last])
    limited = {n: v[whole] for n, v in columns.items()} | {"terminated": last[whole]}
    for horizon, warned in ((None, True), (50, True), (HORIZON, False)):
        notes = read_logs(limited, horizon=horizon).notes
        assert any("every episode terminates at t = 19" in n for n in notes) is warned


def test_longer_episodes_than_the_horizon_are_no_contradiction():
    columns = machine_log()
    log, beyond = transitions(columns), int((columns["t"] >= 10).sum())
    said = rf"^log: the log has longer episodes than horizon=10: {beyond:,} rows have t = 10 or m"
    remedy = r"ore; try a larger horizon, or the first 10 steps only: logs\.select\(logs\.t < 10\)$"
    with pytest.raises(DataError, match=said + remedy):
        diagnose(log, horizon=10).raise_errors()
    with pytest.raises(DataError, match=r"^logs: the log has longer episodes than horizon=10"):
        design(log, np.full((STATES, ACTIONS), 1 / ACTIONS), horizon=10, method="scope")
    assert diagnose(log.select(log.t < 10), horizon=10).errors == ()
    wrong = transitions(columns | {"next_obs": columns["obs"]})
    with pytest.raises(DataError, match=r"^log: contradictory log: .*longer episodes than"):
        diagnose(wrong, horizon=10).raise_errors()


def test_numbers_beyond_the_target_policy_are_no_contradiction():
    with pytest.raises(DataError, match=r"^log: the log holds action 2, the target policy knows"):
        diagnose(transitions(machine_log()), actions=2).raise_errors()


def test_one_column_used_twice():
    columns = machine_log()
    log = read_logs(columns | {"cost": np.abs(columns["reward"]), "reward": columns["cost"]})
    assert log.notes == ()
    log = read_logs(columns | {"reward": columns["cost"]})
    assert any("reward and cost are equal in every row" in note for note in log.notes)


def test_swapped_columns():
    columns = machine_log()
    swapped = columns | {"cost": -columns["cost"], "reward": np.abs(columns["reward"])}
    with pytest.raises(DataError, match="no reward is negative: are reward and cost swapped"):
        read_logs(swapped)
    names = {"reward": "costs", "cost": "rewards"}
    renamed = columns | {"costs": columns["cost"], "rewards": np.abs(columns["reward"])}
    assert any("are they swapped" in note for note in read_logs(renamed, columns=names).notes)


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("copies", [2, 10])
@pytest.mark.parametrize("how", ["log by log", "row by row", "shuffled"])
def test_copies_count_once(how, copies, noise):
    columns = machine_log(8, noise=noise)
    repeat = np.repeat if how == "row by row" else np.tile
    stored = {name: repeat(values, copies) for name, values in columns.items()}
    stored = shuffled(stored) if how == "shuffled" else stored
    log = read_logs(stored)
    note = f"every row occurs {copies} times or a multiple of it, and counts once for {copies}"
    assert note in log.notes
    if how == "shuffled":
        assert sorted(log.reward) == sorted(columns["reward"])
    else:
        assert log == transitions(columns)
    again, diagnosis = examine(log)
    assert diagnosis.copies == 1
    assert again == log


def test_contradictions_are_found_behind_copies():
    columns = machine_log(8)
    wrong = columns | {"next_obs": columns["obs"]}
    with pytest.raises(DataError, match="equals obs in every row"):
        read_logs({name: np.repeat(values, 3) for name, values in wrong.items()})


def test_small_worlds_repeat_without_copies():
    """A bandit: every row occurs hundreds of times, and none of them is a copy."""
    rng = np.random.default_rng(0)
    zeros = np.zeros(2000, np.int64)
    action = rng.integers(5, size=2000)
    log = Transitions(zeros, zeros, action, rng.integers(8, size=2000), 0.1 * action, zeros)
    assert diagnose(log).copies == 1
    assert diagnose(Transitions.concat([log] * 3)).copies == 3


# --- logs that look odd and are right -------------------------------------------------------------


def test_shuffled_logs_cannot_be_compared():
    columns = machine_log()
    found = diagnose(transitions(shuffled(columns)), **KNOWN)
    assert found.errors == ()
    assert not found.facts.ordered
    assert any("not in the order of episodes" in text for text in found.warnings)
    wrong = shuffled(columns | {"next_obs": columns["obs"]})
    assert diagnose(transitions(wrong), **KNOWN).errors == ()


@pytest.mark.parametrize("several", [2, 3, 16])
@pytest.mark.parametrize("stretch", [1, 5, 10])
def test_environments_that_run_side_by_side(several, stretch):
    """Rows of several environments alternate in stretches: neighbors are not consecutive."""
    columns = machine_log(240, cut=0.02)
    owner = columns["episode"] % several
    place = np.empty(len(owner), np.int64)
    for one in range(several):
        mine = np.flatnonzero(owner == one)
        place[mine] = np.arange(len(mine)) // stretch
    order = np.lexsort((np.arange(len(owner)), owner, place))
    mixed = {name: values[order] for name, values in columns.items()}
    assert diagnose(transitions(mixed), **KNOWN).errors == ()
    read_logs(mixed)


def vector_log(seed=0, episodes=40, steps=30):
    """A slow oscillator with a constant third dimension."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(episodes):
        x = np.empty((steps + 1, 3))
        x[0] = [*rng.normal(size=2), 300.0]
        action = rng.integers(2, size=steps)
        for t in range(steps):
            push = 0.1 * (action[t] - 0.5)
            x[t + 1] = x[t] + [0.02 * x[t, 1], -0.02 * x[t, 0] + push, 0.0]
        columns = (np.arange(steps), x[:-1], action, rng.normal(size=steps), rng.random(steps))
        parts.append(Transitions(*columns, x[1:]))
    return Transitions.concat(parts)


def with_next(log, next_obs, obs=None):
    first = log.obs if obs is None else obs
    return Transitions(log.t, first, log.action, log.reward, log.cost, next_obs)


def test_vectors():
    log = vector_log()
    assert diagnose(log).errors == diagnose(log).warnings == ()
    rng = np.random.default_rng(0)
    one_dimension = log.next_obs.copy()
    one_dimension[:, 1] = np.roll(one_dimension[:, 1], 1)
    for wrong in (log.obs, np.roll(log.next_obs, 1, axis=0), rng.permutation(log.next_obs)):
        with pytest.raises(DataError, match="next_obs is not the obs of the next row"):
            diagnose(with_next(log, wrong)).raise_errors()
    with pytest.raises(DataError, match="next_obs is not the obs of the next row"):
        diagnose(with_next(log, one_dimension)).raise_errors()


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        (lambda x: x.astype(np.float32), False),
        (lambda x: np.round(x, 4), True),
        (lambda x: x * (1.0 + 1e-4), True),
    ],
    ids=["float32", "decimals", "normalization"],
)
def test_vectors_that_differ_a_little(change, warned):
    log = vector_log()
    found = diagnose(with_next(log, change(np.array(log.next_obs))))
    assert found.errors == ()
    assert any("of the usual step" in text for text in found.warnings) is warned


def test_a_few_contradictions_are_a_warning():
    columns = machine_log()
    following = columns["next_obs"].copy()
    following[[3, 40, 77, 200]] += 1
    log = read_logs(columns | {"next_obs": following})
    assert any("is not the obs of the next row" in note for note in log.notes)
    ended = columns["terminated"].copy()
    ended[3] = True
    log = read_logs(columns | {"terminated": ended})
    assert any("are followed by the next step" in note for note in log.notes)


def test_some_disorder_does_not_excuse_many_contradictions():
    """One pair of episodes in ten alternates, and a third of the next states are wrong."""
    columns = machine_log(200)
    episode = columns["episode"]
    order = np.lexsort((np.where(episode % 20 < 2, columns["t"], 0), episode - (episode % 20 == 1)))
    mixed = {name: values[order] for name, values in columns.items()}
    clean = diagnose(transitions(mixed), **KNOWN)
    assert clean.errors == ()
    assert 0.03 < clean.facts.disorder < 0.15
    following = mixed["next_obs"].copy()
    wrong = np.random.default_rng(0).random(len(following)) < 1 / 3
    following[wrong] = (following[wrong] + 1) % STATES
    found = diagnose(transitions(mixed | {"next_obs": following}), **KNOWN)
    with pytest.raises(DataError, match="is not the obs of the next row"):
        found.raise_errors()


def test_single_rows_and_single_steps():
    log = transitions(machine_log())
    assert diagnose(log.select([0]), **KNOWN).errors == ()
    assert diagnose(log.select(log.t == 0), horizon=1).errors == ()
    assert diagnose([], **KNOWN).errors == ()
    assert diagnose(log.select([]), **KNOWN).errors == ()


# --- streams --------------------------------------------------------------------------------------


def test_streams_are_judged_at_their_end(tmp_path):
    columns = machine_log(episodes=200)
    log = transitions(columns)
    write_logs(log, tmp_path / "good.parquet")
    batches = list(stream_logs(tmp_path / "good.parquet", batch_rows=100, horizon=50))
    assert Transitions.concat(batches) == log
    assert all(batch.notes == () for batch in batches[:-1])
    assert "no logged episode is longer" in batches[-1].notes[0]

    write_logs(transitions(columns | {"next_obs": columns["obs"]}), tmp_path / "bad.parquet")
    stream = stream_logs(tmp_path / "bad.parquet", batch_rows=100)
    with pytest.raises(DataError, match=r"bad\.parquet: contradictory log.*equals obs"):
        list(stream)
    assert len(stream.diagnose().errors) == 1

    write_logs(Transitions.concat([log, log]), tmp_path / "twice.parquet")
    with pytest.raises(DataError, match=r"occurs 2 times.*use read_logs"):
        list(stream_logs(tmp_path / "twice.parquet", batch_rows=100))
    assert len(read_logs(tmp_path / "twice.parquet")) == len(log)


def test_problem_sizes_travel_with_the_stream(tmp_path):
    columns = machine_log()
    wrong = columns | {"obs": columns["obs"] + 1, "next_obs": columns["next_obs"] + 1}
    write_logs(transitions(wrong), tmp_path / "log.parquet")
    stream = stream_logs(tmp_path / "log.parquet", batch_rows=64)
    assert "numbered from 1" in stream.diagnose(states=STATES).errors[0]
    assert examine(transitions(wrong), Problem(states=STATES))[1].errors


def test_huge_values_do_not_overflow():
    log = vector_log()
    scale = 1e300 * np.sign(log.obs)
    found = diagnose(with_next(log, -1e300 * np.sign(log.next_obs), scale))
    assert found.errors


def test_episodes_instead_of_a_log_are_told_what_to_try():
    mdp = random_mdp(np.random.default_rng(0))
    target = np.full((3, 2), 0.5)
    episodes = collect(TabularEnv(mdp), target, horizon=3, episodes=20, seed=0)
    with pytest.raises(InputError, match=r"got Episodes, .* try read_logs\(episodes\)"):
        design(episodes, target, horizon=3, method="scope")
    with pytest.raises(InputError, match="got Episodes"):
        design([episodes], target, horizon=3, method="scope")
    with pytest.raises(InputError, match=r"got int, .*try stream_logs"):
        design(3, target, horizon=3, method="scope")
    design(read_logs(episodes), target, horizon=3, method="scope")
