"""Transitions, and reading and writing logs: every source, every error, every rebuilt field."""

from __future__ import annotations

import decimal
import pickle
import zlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from scopeval import Transitions, read_logs, stream_logs, write_logs
from scopeval.errors import DataError, InputError, MissingExtraError, ScopevalError

FIELDS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")


def example(episodes=6, *, vector=False, continuous=False, seed=0):
    """Whole episodes of 2 to 6 steps; odd ones terminate, even ones are cut. Also their ids."""
    rng = np.random.default_rng(seed)
    logs, ids = [], []
    for episode in range(episodes):
        n = int(rng.integers(2, 7))
        path = rng.normal(size=(n + 1, 3)) if vector else rng.integers(0, 9, n + 1)
        action = rng.normal(size=(n, 2)) if continuous else rng.integers(0, 4, n)
        ends = np.arange(n) == n - 1
        logs.append(
            Transitions(
                np.arange(n), path[:-1], action, rng.normal(size=n), rng.random(n), path[1:],
                ends & (episode % 2 == 1),
            )
        )  # fmt: skip
        ids += [episode] * n
    return Transitions.concat(logs), np.asarray(ids)


def as_dict(log):
    return {name: getattr(log, name) for name in FIELDS}


def as_lists(log):
    return {name: getattr(log, name).tolist() for name in FIELDS}


def ends_of(ids):
    return np.append(ids[1:] != ids[:-1], True)


KINDS = [
    pytest.param({}, id="tabular"),
    pytest.param({"vector": True}, id="vector"),
    pytest.param({"vector": True, "continuous": True}, id="continuous"),
]


# --- Transitions ---------------------------------------------------------------------------------


def test_coerces_lists_and_narrow_types():
    log = Transitions([0, 1.0], [3, 4], np.float32([1, 0]), [1, 2], np.float32([0.5, 0]), [4, 5])
    assert [getattr(log, name).dtype for name in FIELDS] == [
        np.int64, np.int64, np.int64, np.float64, np.float64, np.int64, np.bool_,
    ]  # fmt: skip
    assert not log.terminated.any()
    assert log.discrete_obs
    assert log.discrete_actions
    assert len(log) == 2
    log = Transitions([0], np.int8([[1, 2]]), [True], [1], [0], np.float16([[1, 2]]), [1.0])
    assert log.obs.dtype == log.next_obs.dtype == np.float64
    assert log.terminated.tolist() == [True]
    assert not log.discrete_obs
    flat = Transitions([0], [1.0], [[0.5]], [1], [0], [2])
    assert flat.obs.shape == flat.next_obs.shape == (1, 1)
    assert not flat.discrete_actions


def test_arrays_are_read_only_and_independent_of_the_caller():
    reward = np.ones(2)
    log = Transitions([0, 1], [0, 1], [0, 1], reward, [0, 0], [1, 2])
    reward[0] = np.nan
    assert log.reward.tolist() == [1, 1]
    for part in (
        log,
        log.select([0]),
        Transitions.concat([log, log]),
        pickle.loads(pickle.dumps(log)),
    ):
        for name in FIELDS:
            with pytest.raises(ValueError, match="read-only"):
                getattr(part, name)[0] = 0
    with pytest.raises(AttributeError):
        log.t = np.zeros(2)
    view = reward[:]
    view.flags.writeable = False  # the owner can still write
    seen = Transitions([0], [0], [0], view[1:], [0], [1]).reward
    reward[1] = 7
    assert seen.tolist() == [1]
    sealed = np.arange(2.0)
    sealed.flags.writeable = False
    assert Transitions([0, 1], [0, 1], [0, 1], sealed, [0, 0], [1, 2]).reward is sealed


GOOD = {
    "t": [0, 1, 2], "obs": [0, 1, 2], "action": [0, 1, 0], "reward": [0.0, 1.0, 2.0],
    "cost": [1.0, 0.0, 0.0], "next_obs": [1, 2, 0], "terminated": [False, False, True],
}  # fmt: skip

BAD_VALUES = [
    ({"reward": [0, np.nan, np.nan]}, "reward.*is NaN in 2 of 3 rows.*1, 2"),
    ({"reward": [0, np.inf, 0]}, "reward.*is infinite in 1 of 3 rows.*: 1"),
    ({"cost": [0, 0, -1]}, "cost.*is negative in 1 of 3 rows.*: 2"),
    ({"cost": [0, -np.inf, 0]}, "cost.*is infinite"),
    ({"t": [-1, 0, 1]}, "t.*is negative.*: 0"),
    ({"t": [0, 0.5, 1]}, "t.*not a whole number.*: 1"),
    ({"t": [0, 1e18, 1]}, "t.*too large"),
    ({"action": [0, 0.5, 1]}, "action.*is fractional.*: 1.*continuous"),
    ({"action": [0, -1, 1]}, "action.*negative action"),
    ({"action": np.array([2**63, 1, 0], np.uint64)}, "action.*does not fit into int64"),
    ({"obs": [0, -1, 0]}, "obs.*negative state"),
    ({"obs": [0.0, np.nan, 0], "next_obs": [0.0, 0, 0]}, "obs.*is NaN"),
    ({"obs": np.zeros((3, 2)), "next_obs": np.zeros((3, 4))}, "width"),
    ({"obs": np.zeros((3, 2)), "next_obs": [0, 1, 2]}, "width"),
    ({"obs": np.zeros((3, 0)), "next_obs": np.zeros((3, 0))}, "obs.*shape"),
    ({"obs": np.zeros((3, 2, 2))}, "obs.*shape"),
    ({"reward": [[1, 2]] * 3}, "reward.*expected one number per row"),
    ({"reward": 1.0}, "reward.*single number"),
    ({"reward": [1, 2]}, "rows.*reward 2"),
    ({"reward": ["a", "b", "c"]}, "reward.*text"),
    ({"reward": [1, None, 2]}, "reward.*mixed or missing"),
    ({"reward": [1j, 0, 0]}, "reward.*complex"),
    ({"reward": np.array(["2020-01-01"] * 3, "M8[D]")}, "reward.*dates"),
    ({"reward": np.ma.masked_equal([1.0, 2.0, 3.0], 2.0)}, "reward.*masked.*: 1"),
    ({"obs": [[1, 2], [1], [1, 2]]}, "obs.*same width"),
    ({"terminated": [0, 2, 0]}, "terminated.*neither 0 nor 1.*: 1"),
    ({"terminated": [0, np.nan, 0]}, "terminated.*neither 0 nor 1"),
]


@pytest.mark.parametrize(("change", "message"), BAD_VALUES)
def test_bad_values_are_refused_everywhere(change, message):
    with pytest.raises(InputError, match=f"(?s){message}"):
        Transitions(**(GOOD | change))
    with pytest.raises(DataError, match=f"(?s)dict: .*{message}"):
        read_logs(GOOD | change)


def test_no_rows():
    with pytest.raises(InputError, match="no rows"):
        Transitions([], [], [], [], [], [])


def test_select_and_concat():
    log, _ = example(vector=True)
    mask = log.t == 1
    assert log.select(mask) == log.select(np.flatnonzero(mask))
    assert log.select(slice(2, 5)) == log.select([2, 3, 4])
    assert len(log.select([])) == 0
    assert log.select([]).summary() == "Transitions: no rows"
    assert len(log.select(3)) == 1
    assert Transitions.concat([log.select(slice(0, 3)), log.select(slice(3, None))]) == log
    assert log != log.select([0])
    assert log != "log"
    for wrong in ([10**6], np.ones(3, bool), [[0, 1]], [0.5]):
        with pytest.raises(InputError, match="rows must be"):
            log.select(wrong)
    with pytest.raises(InputError, match="at least one"):
        Transitions.concat([])
    with pytest.raises(InputError, match=r"logs\[1\].obs is numbers"):
        Transitions.concat([log, example()[0]])


def test_check_and_summary():
    log, _ = example()
    log.check(horizon=6, actions=4, states=9)
    with pytest.raises(DataError, match=r"plant: t is 3 or more.*outside horizon=3"):
        log.check(horizon=3, source="plant")
    with pytest.raises(DataError, match=r"action is 2 or more .largest 3., outside actions=2"):
        log.check(actions=2)
    with pytest.raises(DataError, match="obs is 4 or more"):
        log.check(states=4)
    with pytest.raises(DataError, match="holds vectors of width 3, but states=4"):
        example(vector=True)[0].check(states=4)
    for wrong in (0, -1, 1.5, True, "4"):
        with pytest.raises(InputError, match="horizon must be a positive integer"):
            log.check(horizon=wrong)
    text = log.summary()
    assert f"{len(log):,} rows, t from 0 to" in text
    assert "state numbers from 0" in text
    assert "rows, obs=states" in repr(log)
    assert "vectors[3]" in repr(example(vector=True)[0])
    assert "vectors of width 3" in example(vector=True)[0].summary()


# --- sources -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_round_trip_is_exact(tmp_path, kind):
    log, _ = example(**kind)
    log = Transitions(**as_dict(log), notes=("made here",))
    write_logs(log, tmp_path / "log.parquet")
    again = read_logs(tmp_path / "log.parquet", horizon=6)
    assert again == log
    assert again.notes == ("made here",)
    table = pq.read_table(tmp_path / "log.parquet")  # any reader understands it
    assert table.num_rows == len(log)
    assert table["terminated"].to_pylist() == log.terminated.tolist()
    assert np.asarray(table["obs"].to_pylist()).tolist() == log.obs.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_log(tmp_path, kind):
    log, _ = example(**kind)
    lists = as_lists(log)
    table = pa.table(lists)
    pq.write_table(table, tmp_path / "log.pq", row_group_size=5)
    np.savez(tmp_path / "log.npz", **as_dict(log), extra=np.array([{}], object))
    np.savez_compressed(tmp_path / "packed.npz", **as_dict(log))
    flat = {}
    for name, values in as_dict(log).items():
        parts = values.T if values.ndim == 2 else [values]
        flat |= {f"{name}_{i}" if values.ndim == 2 else name: part for i, part in enumerate(parts)}
    pa.csv.write_csv(pa.table(flat), tmp_path / "log.csv")
    sources = [
        as_dict(log), lists, table, table.to_batches()[0], pd.DataFrame(lists), flat,
        pd.DataFrame(lists, index=np.arange(len(log)) + 7),
        SimpleNamespace(to_arrow=lambda: table),
        Stream(table),
        tmp_path / "log.pq", str(tmp_path / "log.npz"), tmp_path / "packed.npz",
        tmp_path / "log.csv",
    ]  # fmt: skip
    for source in sources:
        assert read_logs(source) == log, source


class Stream:
    """What polars and others look like from outside."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_folder_in_sorted_order_and_stream(tmp_path):
    log, _ = example(40, vector=True)
    cut = len(log) // 2
    (tmp_path / "deep").mkdir()
    write_logs(log.select(slice(0, cut)), tmp_path / "a.parquet")
    write_logs(log.select(slice(cut, None)), tmp_path / "deep" / "b.parquet")
    empty = pq.read_table(tmp_path / "a.parquet").slice(0, 0).replace_schema_metadata(None)
    pq.write_table(empty, tmp_path / "empty.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden.parquet").touch()
    assert read_logs(tmp_path) == log
    stream = stream_logs(tmp_path, batch_rows=7, horizon=6, actions=4)
    assert stream.rows == len(log)
    for _ in range(2):
        batches = list(stream)
        assert max(len(batch) for batch in batches) <= 7
        assert Transitions.concat(batches) == log
    doubled = stream_logs(tmp_path, cost=lambda obs, action, reward, next_obs: reward**2)
    assert np.array_equal(Transitions.concat(list(doubled)).cost, log.reward**2)


def test_arrow_types_that_hold_numbers():
    log, _ = example(vector=True)
    table = pa.table(as_lists(log))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(log.obs.ravel()), 3)
    tensor = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.float64(), [3]), fixed)
    for obs in (fixed, tensor, table["obs"].cast(pa.large_list(pa.float64()))):
        assert read_logs(table.set_column(1, "obs", obs)) == log
    actions = log.action.tolist()
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.dictionary(pa.int8(), pa.int64())):
        changed = pa.array(actions).cast(kind) if not pa.types.is_dictionary(kind) else (
            pa.array(actions).dictionary_encode()
        )  # fmt: skip
        assert read_logs(table.set_column(2, "action", changed)) == log
    cents = [decimal.Decimal(i) / 4 for i in range(len(log))]
    decimals = read_logs(table.set_column(3, "reward", pa.array(cents)))
    assert decimals.reward.tolist() == [i / 4 for i in range(len(log))]
    chunks = pa.concat_tables([table.slice(0, 4), table.slice(4)])
    assert read_logs(chunks) == log


def test_type_decides_between_states_and_vectors():
    log, _ = example()
    table = as_dict(log) | {"obs": log.obs.astype(float)}
    assert read_logs(table).obs.shape == (len(log), 1)
    assert read_logs(table, discrete=True) == log
    assert read_logs(as_dict(log), discrete=False).obs.shape == (len(log), 1)
    with pytest.raises(DataError, match="'obs' is not a whole number"):
        read_logs(as_dict(log) | {"obs": log.obs + 0.5}, discrete=True)


def test_csv_types_are_inferred_from_the_whole_file(tmp_path):
    n = 300_000  # over a megabyte of whole rewards, then a fractional one
    rows = {name: np.ones(n, np.int64) for name in FIELDS[:-1]}
    rows["reward"] = np.append(np.ones(n - 1), 0.5)
    pa.csv.write_csv(pa.table(rows | {"reward": [*[1] * (n - 1), 0.5]}), tmp_path / "a.csv")
    log = read_logs(tmp_path / "a.csv")
    assert np.array_equal(log.reward, rows["reward"])
    assert log.discrete_obs
    assert log.notes[0] == "no terminated column: no row counts as terminated"


# --- meaning of columns --------------------------------------------------------------------------


def renamed(log, **names):
    return {names.get(name, name): values for name, values in as_dict(log).items()}


def test_aliases_and_explicit_columns():
    log, _ = example()
    letters = dict(zip(FIELDS, ("step", "s", "a", "r", "c", "s'"), strict=False))
    assert read_logs(renamed(log, **letters)) == log
    odd = {name: f"my {name}" for name in FIELDS}
    assert read_logs(renamed(log, **odd), columns=odd) == log
    vector, _ = example(vector=True)
    x, y, z = vector.obs.T
    table = as_dict(vector) | {"x": x, "y": y, "z": z, "obs": np.zeros(len(x))}
    assert read_logs(table, columns={"obs": ["x", "y", "z"]}) == vector
    one = read_logs(as_dict(log) | {"torque": log.reward}, columns={"action": ["torque"]})
    assert one.action.shape == (len(log), 1)
    assert not read_logs(as_dict(log), columns={"terminated": None}).terminated.any()


BAD_COLUMNS = [
    ({"obs": "stat"}, {}, DataError, "no column 'stat'.*did you mean 'state'.*it has"),
    ({"rewards": "r"}, {}, InputError, "no field 'rewards', did you mean 'reward'"),
    ({"reward": ["reward"]}, {}, InputError, "one column"),
    ({"obs": []}, {}, InputError, "one column"),
    ("obs", {}, InputError, "must be a dict"),
    ({"obs": None}, {}, DataError, "no column for obs"),
    (None, {"s": [0] * 3, "observation": [0] * 3, "obs": None}, DataError, "could both be obs"),
    (None, {"obs": None, "obs_0": [0.0] * 3, "obs_2": [0.0] * 3}, DataError, "not numbered 0 to 1"),
    (None, {"reward": None, "Reward": [0] * 3}, DataError, "for reward.*did you mean 'Reward'"),
    (None, {"cost": None}, DataError, "no column for cost.*or pass the function cost="),
    (None, {"terminated": None, "done": [0, 0, 1]}, DataError, "'done' may mix"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "change", "error", "message"), BAD_COLUMNS)
def test_columns_that_cannot_be_found(columns, change, error, message):
    table = {name: values for name, values in (GOOD | change).items() if values is not None}
    if columns and "obs" in columns:
        table["state"] = table["obs"]
    with pytest.raises(error, match=f"(?s){message}"):
        read_logs(table, columns=columns)


def test_done_is_taken_only_when_told_so():
    log, _ = example()
    table = renamed(log, terminated="done")
    assert read_logs(table, columns={"terminated": "done"}) == log
    assert not read_logs(table, columns={"terminated": None}).terminated.any()


def test_a_column_name_that_appears_twice(tmp_path):
    table = pa.table(GOOD)
    twice = table.append_column("reward", table["cost"])
    with pytest.raises(DataError, match="'reward' appears twice"):
        read_logs(twice)


# --- rebuilding t and next_obs -------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ids", ["number", "text", "float", "truncated"])
def test_rebuilds_t(kind, ids, tmp_path):
    log, episode = example(12, **kind)
    table = as_lists(log)
    del table["t"]
    table |= {
        "number": {"episode": episode},
        "text": {"episode_id": [f"run {i}" for i in episode]},
        "float": {"episode": episode.astype(float)},
        "truncated": {"truncated": ends_of(episode) & ~log.terminated},
    }[ids]
    assert read_logs(table) == log
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=4)
    assert read_logs(tmp_path / "a.parquet") == log


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("marks", ["t", "episode", "truncated", "t and episode"])
def test_rebuilds_next_obs(kind, marks):
    log, episode = example(12, **kind)
    table = as_dict(log)
    del table["next_obs"]
    cut = ends_of(episode) & ~log.terminated
    if "episode" in marks:
        table["episode"] = episode
    if marks == "truncated":
        table["truncated"] = cut
    if "t" not in marks.split():
        del table["t"]
    rebuilt = read_logs(table)
    assert np.array_equal(rebuilt.has_next, ~cut)
    for name in FIELDS:
        shown = ~(log.terminated | cut) if name == "next_obs" else slice(None)
        assert np.array_equal(getattr(rebuilt, name)[shown], getattr(log, name)[shown]), name
    last = log.terminated | cut
    assert np.array_equal(rebuilt.next_obs[last], rebuilt.obs[last])
    assert f"{cut.sum()} of {len(log)} rows have no successor" in rebuilt.notes[0]
    assert f"{cut.sum()} rows" in rebuilt.summary()


def test_rows_without_a_successor_come_back_from_files(tmp_path):
    log, episode = example(12)
    table = {k: v for k, v in as_dict(log).items() if k != "next_obs"}
    rebuilt = read_logs(table | {"episode": episode})
    assert not rebuilt.has_next.all()
    write_logs(rebuilt, tmp_path / "a.parquet")
    assert read_logs(tmp_path / "a.parquet") == rebuilt
    assert read_logs(rebuilt.to_frame()) == rebuilt
    assert pickle.loads(pickle.dumps(rebuilt)) == rebuilt
    assert Transitions.concat([rebuilt, log]).has_next.sum() == len(log) + rebuilt.has_next.sum()
    assert "has_next" not in log.to_frame()


def test_a_cost_function_is_not_asked_where_nothing_is_known_to_follow(tmp_path):
    log, episode = example(12)
    cut = ends_of(episode) & ~log.terminated
    table = {k: v for k, v in as_dict(log).items() if k != "next_obs"} | {"episode": episode}
    read = read_logs(table, cost=lambda obs, action, reward, following: following * 1.0)
    assert len(read) == (~cut).sum()
    assert f"{cut.sum()} rows without a successor left out" in "; ".join(read.notes)
    write_logs(read_logs(table), tmp_path / "a.parquet")
    stream = stream_logs(tmp_path / "a.parquet", cost=lambda *columns: columns[-1] * 1.0)
    with pytest.raises(DataError, match="rows without a successor"):
        list(stream)


def test_rebuilds_across_files(tmp_path):
    log, episode = example(12)
    table = pa.table({k: v for k, v in as_dict(log).items() if k != "t"} | {"episode": episode})
    cut = int(np.flatnonzero(~ends_of(episode))[4]) + 1  # in the middle of an episode
    pq.write_table(table.slice(0, cut), tmp_path / "1.parquet")
    pq.write_table(table.slice(cut), tmp_path / "2.parquet")
    again = read_logs(tmp_path)
    assert again == log
    assert again.notes == ("1 episodes continue from one file into the next",)


def test_a_gap_in_t_is_not_bridged():
    steps, zeros = [0, 1, 3, 4], [0] * 4
    table = {"t": steps, "obs": steps, "action": zeros, "reward": zeros, "cost": zeros}
    log = read_logs(table | {"episode": [7] * 4, "terminated": [0, 0, 0, 1]})
    assert log.t.tolist() == steps
    assert log.next_obs[log.has_next].tolist() == [1, 4, 4]
    assert log.has_next.tolist() == [True, False, True, True]


def without(*names, **more):
    return {name: values for name, values in GOOD.items() if name not in names} | more


BAD_ORDER = [
    (without("t"), "no column for t, and nothing to rebuild"),
    (without("t", "next_obs"), "no column for t and next_obs.*truncated column"),
    (without("t", episode=[0, 1, 0], terminated=[0, 0, 0]), "1 episode ids come back"),
    (without("t", episode=[0, 0, 0], terminated=[1, 0, 0]), "goes on after it terminated.*: 0"),
    (without("t", episode=[0, None, 0]), "'episode' holds mixed or missing"),
    (without("next_obs", t=[0, 0, 0], terminated=[0, 0, 0]), "no row is followed"),
]


@pytest.mark.parametrize(("table", "message"), BAD_ORDER)
def test_what_cannot_be_rebuilt(table, message):
    with pytest.raises(DataError, match=f"(?s){message}"):
        read_logs(table)


def test_null_episode_ids():
    table = pa.table(without("t", episode=["a", None, "a"]))
    with pytest.raises(DataError, match=r"'episode' is missing \(null\) in 1 of 3 rows"):
        read_logs(table)


def test_single_duplicates_are_noted_for_vectors_only():
    log, _ = example(vector=True)
    twice = Transitions.concat([log, log.select([0, 1])])
    assert "2 of" in read_logs(as_dict(twice)).notes[0]
    assert read_logs(as_dict(log)).notes == ()
    states, _ = example()
    assert read_logs(as_dict(Transitions.concat([states, states.select([0, 1])]))).notes == ()


# --- episodes ------------------------------------------------------------------------------------


def episodes_of(log, ids, make=dict):
    made = []
    for episode in np.unique(ids):
        part = log.select(ids == episode)
        made.append(
            make(
                observations=np.concatenate([part.obs, part.next_obs[-1:]]),
                actions=part.action,
                rewards=part.reward,
                costs=part.cost,
                terminated=part.terminated,
                truncated=~part.terminated & (part.t == part.t[-1]),
            )
        )
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [dict, SimpleNamespace])
def test_lists_of_episodes(kind, make):
    log, ids = example(**kind)
    assert read_logs(episodes_of(log, ids, make), horizon=6) == log
    pairs = [as_dict(log.select(ids == episode)) for episode in np.unique(ids)]
    assert read_logs(pairs) == log
    assert read_logs(tuple(pairs[:1])) == log.select(ids == 0)


def test_episode_variants():
    log, ids = example()
    episodes = episodes_of(log, ids)
    for episode in episodes:
        episode["terminated"] = bool(episode["terminated"][-1])
        episode["energy"] = episode.pop("costs")
    assert read_logs(episodes, columns={"cost": "energy"}) == log
    empty = {"observations": [0], "actions": [], "rewards": [], "energy": [], "terminated": False}
    assert read_logs([*episodes, empty], columns={"cost": "energy"}) == log
    vector, ids = example(vector=True)
    computed = read_logs(episodes_of(vector, ids), cost=lambda o, a, r, o2: np.abs(o[:, 0]))
    assert np.array_equal(computed.cost, np.abs(vector.obs[:, 0]))


ONE = {
    "observations": [0, 1, 2], "actions": [0, 1], "rewards": [0.0, 1.0], "costs": [0.0, 0.0],
    "terminated": [False, True],
}  # fmt: skip
BAD_EPISODES = [
    ([], "no episodes"),
    (
        [ONE, ONE | {"observations": [0, 1]}],
        "episode 1 has 2 observations for 2 actions, expected 3",
    ),
    ([ONE, ONE | {"rewards": [0.0]}], "episode 1: reward has 1 entries for 2 actions"),
    ([ONE, {k: v for k, v in ONE.items() if k != "rewards"}], "episode 1 has no 'rewards'"),
    ([ONE | {"terminated": [True, False]}], "terminated at step 0 of 2"),
    ([ONE | {"observations": {"a": [0, 1, 2]}}], "composite"),
    ([ONE | {"observations": [[0], [1, 2], [3]]}], "episode 0: observations"),
    ([ONE, ONE | {"observations": np.zeros((3, 2))}], "episode 1: obs has shape"),
    ([ONE, ONE | {"rewards": [0.0, np.nan]}], "'reward' is NaN in 1 of 4 rows.*episode 1 step 1"),
    ([ONE, ONE | {"rewards": ["a", "b"]}], "reward.*text"),
    ([ONE | {"actions": 3}], "actions is a single value"),
    ([1, 2], "episode 0 is a int"),
    ([ONE, None], "episode 1 is a NoneType"),
    ([{k: v for k, v in ONE.items() if k != "terminated"} | {"dones": [0, 1]}], "'dones' may mix"),
]


@pytest.mark.parametrize(("episodes", "message"), BAD_EPISODES)
def test_bad_episodes(episodes, message):
    with pytest.raises(DataError, match=f"(?s)list of episodes.*{message}"):
        read_logs(episodes)


def minari_like(log, ids, with_costs):
    """Objects with the attributes and the L + 1 infos of a Minari dataset."""
    episodes = []
    for one in episodes_of(log, ids):
        costs = one.pop("costs")
        infos = {"cost": np.append(99.0, costs)} if with_costs else {}
        renames = {"terminated": "terminations", "truncated": "truncations"}
        episodes.append(
            SimpleNamespace(**{renames.get(k, k): v for k, v in one.items()}, id=0, infos=infos)
        )
    return SimpleNamespace(iterate_episodes=lambda: iter(episodes))


@pytest.mark.parametrize("kind", KINDS)
def test_minari_datasets(kind):
    log, ids = example(**kind)
    assert read_logs(minari_like(log, ids, with_costs=True)) == log
    bare = minari_like(log, ids, with_costs=False)
    with pytest.raises(DataError, match=r"no column for cost.*cost="):
        read_logs(bare)
    computed = read_logs(bare, cost=lambda obs, action, reward, next_obs: reward**2)
    assert np.array_equal(computed.cost, log.reward**2)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_minari_by_name(monkeypatch, tmp_path):
    minari = pytest.importorskip("minari")
    from gymnasium.spaces import Box, Discrete
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    said = (
        r"minari:no/such-v0: the dataset is not on this machine.*try: minari download no/such-v0$"
    )
    with pytest.raises(DataError, match=said):
        read_logs("minari:no/such-v0")
    log, ids = example(vector=True)
    buffers = []
    for number, one in enumerate(episodes_of(log, ids)):
        steps = {name: list(values) for name, values in one.items()}
        steps["terminations"], steps["truncations"] = (
            steps.pop("terminated"),
            steps.pop("truncated"),
        )
        infos = {"cost": [0.0, *steps.pop("costs")]}
        buffers.append(EpisodeBuffer(id=number, infos=infos, **steps))
    minari.create_dataset_from_buffers(
        "test/tiny-v0", buffers, observation_space=Box(-9, 9, (3,), np.float64),
        action_space=Discrete(4), algorithm_name="x", author="x", author_email="x",
        code_permalink="x", description="x",
    )  # fmt: skip
    assert read_logs("minari:test/tiny-v0") == log
    assert read_logs(minari.load_dataset("test/tiny-v0")) == log


def test_minari_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "minari", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'scopeval.minari.'"):
        read_logs("minari:no/such-v0")


BAD_COSTS = [
    (lambda o, a, r, o2: r - 100, "negative"),
    (lambda o, a, r, o2: r[:1], "1 values for 3 rows"),
    (lambda o, a, r, o2: r * np.nan, "NaN"),
    (lambda o, a, r, o2: 1.0, "single number"),
]


@pytest.mark.parametrize(("cost", "message"), BAD_COSTS)
def test_bad_cost_functions(cost, message):
    with pytest.raises(DataError, match=f"result of the cost function.*{message}"):
        read_logs(without("cost"), cost=cost)


# --- files that cannot be used -------------------------------------------------------------------


def table(**changes):
    return pa.table(GOOD | changes)


def lists(*rows):
    return pa.array(rows, pa.list_(pa.float64()))


BAD_TABLES = [
    (table(reward=pa.array([0.0, None, None])), r"'reward' is missing \(null\) in 2 of 3.*1, 2"),
    (table(reward=pa.nulls(3)), r"'reward' is missing \(null\) in 3 of 3"),
    (table(reward=["1", "x y", "2"]), "'reward' is text such as 'x y' in 1 of 3.*: 1"),
    (table(reward=["1", "2", "3"]), "'reward' holds numbers stored as text"),
    (table(reward=pa.array([1, 2, 3], pa.timestamp("s"))), "'reward' has type timestamp"),
    (table(action=pa.array([2**63, 0, 0], pa.uint64())), "'action' does not fit into int64"),
    (table(obs=lists([1, 2], [1], [1, 2])), "'obs' is a list of another width.*: 1"),
    (table(obs=lists([1, 2], None, [1, 2])), r"'obs' is missing \(null\).*: 1"),
    (table(obs=lists([1, 2], [1, None], [1, 2])), r"'obs' has a missing \(null\) entry.*: 1"),
    (table(obs=lists([1, 2], [1, np.nan], [1, 2])), "'obs' is NaN in 1 of 3"),
    (table(obs=lists([], [], [])), "'obs'.*shape"),
    (table(obs=[[[1.0]]] * 3), "'obs' holds lists of lists"),
    (table(obs=[["a"]] * 3), "'obs' is text such as 'a'"),
    (table(obs=[{"x": 1}] * 3), "'obs' has type struct"),
    (table(obs=lists(*[[1.0, 2]] * 3), next_obs=lists(*[[1.0]] * 3)), "obs has width"),
    (table(reward=lists(*[[1.0, 2]] * 3)), "'reward'.*one number per row"),
    (table(cost=[0.0, -1.0, 0.0]), "'cost' is negative in 1 of 3.*: 1"),
    (table(t=[0, 1, 9]), "'t' is 5 or more .largest 9., outside horizon=5,.*: 2"),
    (table(action=[0, 1, 9]), "'action' is 2 or more .largest 9., outside actions=2"),
    (table(action=lists(*[[1.0]] * 3)), "holds vectors of width 1, but actions=2"),
    (pa.table(GOOD).slice(0, 0), "no rows"),
]


@pytest.mark.parametrize(("bad", "message"), BAD_TABLES)
def test_bad_tables(bad, message, tmp_path):
    path = tmp_path / "bad.parquet"
    pq.write_table(bad, path)
    for source, name in ((bad, "pyarrow Table"), (path, "bad.parquet")):
        with pytest.raises(DataError, match=f"(?s){name}: .*{message}"):
            read_logs(source, horizon=5, actions=2)
    with pytest.raises(DataError, match=f"(?s)bad.parquet: .*{message}"):
        list(stream_logs(path, horizon=5, actions=2))


def test_rows_are_named_as_in_the_file(tmp_path):
    n = 2**18 + 10
    column = np.zeros(n)
    column[-3] = np.nan
    data = dict.fromkeys(FIELDS[:-1], np.zeros(n, int)) | {"reward": column}
    pq.write_table(pa.table(data), tmp_path / "big.parquet")
    with pytest.raises(DataError, match=f"is NaN in 1 of .*: {n - 3}"):
        read_logs(tmp_path / "big.parquet")


def write(path, content):
    path.write_bytes(content)
    return path


def test_files_that_are_not_what_they_seem(tmp_path):
    cases = [
        (tmp_path / "absent.parquet", "no such file"),
        (write(tmp_path / "a.txt", b"x"), "cannot tell the format from '.txt'"),
        (write(tmp_path / "plain", b"x"), "without ending"),
        (write(tmp_path / "zero.parquet", b""), "empty"),
        (write(tmp_path / "junk.parquet", b"junk" * 100), "cannot be read as Parquet"),
        (write(tmp_path / "short.parquet", b"PAR1"), "cannot be read as Parquet"),
        (write(tmp_path / "zero.csv", b""), "cannot be read as CSV"),
        (write(tmp_path / "head.csv", ",".join(FIELDS).encode() + b"\n"), "no rows"),
        (write(tmp_path / "ragged.csv", b"t,obs\n1,2\n3\n"), "cannot be read as CSV.*columns"),
        (write(tmp_path / "zero.npz", b""), "cannot be read as NPZ"),
        (write(tmp_path / "junk.npz", b"junk" * 100), "cannot be read as NPZ"),
    ]
    (tmp_path / "folder").mkdir()
    (tmp_path / "bare").mkdir()
    cases.append((tmp_path / "bare", "no Parquet files.*nothing"))
    write(tmp_path / "folder" / "a.csv", b"x")
    cases.append((tmp_path / "folder", "no Parquet files.*a.csv"))
    np.savez(tmp_path / "objects.npz", **(GOOD | {"obs": np.array([{}, 1, "a"], object)}))
    cases.append((tmp_path / "objects.npz", "array 'obs' has type object.*never unpickled"))
    np.savez(tmp_path / "lengths.npz", **(GOOD | {"obs": [1, 2]}))
    cases.append((tmp_path / "lengths.npz", "different numbers of rows"))
    for path, message in cases:
        with pytest.raises(DataError, match=f"(?s){path.name}.*{message}"):
            read_logs(path)


def test_unpickling_never_happens(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path / "sprung").touch, ()

    np.savez(tmp_path / "trap.npz", **(GOOD | {"reward": np.array([Trap()] * 3, object)}))
    with pytest.raises(DataError, match="never unpickled"):
        read_logs(tmp_path / "trap.npz")
    assert not (tmp_path / "sprung").exists()


def test_csv_values(tmp_path):
    head = "t,obs,action,reward,cost,next_obs\n"
    for cell, message in [
        ("abc", "'reward' is text such as 'abc' in 1 of 2"),
        ("", "'reward' is missing"),
        ("nan", "'reward' is NaN"),
        ("inf", "'reward' is infinite"),
        ("1e999", "'reward' is infinite"),
        ("2020-01-01", "'reward'"),
    ]:
        write(tmp_path / "a.csv", f"{head}0,0,0,1.5,0,0\n1,0,0,{cell},0,0\n".encode())
        with pytest.raises(DataError, match=f"a.csv: column {message}"):
            read_logs(tmp_path / "a.csv")


def test_folders_whose_files_differ(tmp_path):
    log, _ = example()
    write_logs(log, tmp_path / "a.parquet")
    write_logs(example(vector=True)[0], tmp_path / "b.parquet")
    with pytest.raises(
        DataError, match=r"b.parquet: obs is float64 of width \[3\], in .*a.parquet"
    ):
        read_logs(tmp_path)
    with pytest.raises(DataError, match="same kind"):
        list(stream_logs(tmp_path))
    pq.write_table(pa.table({"t": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: no column 'action', which .*a.parquet has"):
        read_logs(tmp_path)


def test_stream_arguments(tmp_path):
    with pytest.raises(DataError, match="only Parquet"):
        stream_logs(write(tmp_path / "a.csv", b"t\n1\n"))
    pq.write_table(pa.table(without("t", episode=[0, 0, 0])), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="no column for t, which a stream needs"):
        stream_logs(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="batch_rows"):
        stream_logs(tmp_path / "a.parquet", batch_rows=0)
    for bad in ({"horizon": 0}, {"actions": 2.5}):
        with pytest.raises(InputError, match="positive integer"):
            read_logs(GOOD, **bad)
        with pytest.raises(InputError, match="positive integer"):
            stream_logs(tmp_path / "a.parquet", **bad)


def test_things_that_are_no_source():
    for source in (3, None, object(), np.zeros(3)):
        with pytest.raises(InputError, match="cannot read logged data from"):
            read_logs(source)
    mixed = pd.DataFrame({**GOOD, "reward": [1, "a", 2.0]})
    with pytest.raises(DataError, match="pandas DataFrame"):
        read_logs(mixed)


# --- writing -------------------------------------------------------------------------------------


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    old, _ = example(seed=1)
    path = tmp_path / "log.parquet"
    write_logs(old, path)

    def half(table, file, **options):
        file.write(b"PAR1 half a file")
        raise OSError("disk full")

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", half)
        with pytest.raises(DataError, match=r"cannot be written .*disk full"):
            write_logs(example(seed=2)[0], path)
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_logs(example(seed=2)[0], path)
    assert [found.name for found in tmp_path.iterdir()] == ["log.parquet"]
    assert read_logs(path) == old
    write_logs(example(seed=2)[0], path)
    assert read_logs(path) == example(seed=2)[0]


def test_where_logs_can_be_written(tmp_path):
    log, _ = example()
    with pytest.raises(InputError, match=r"must end in \.parquet"):
        write_logs(log, tmp_path / "log.csv")
    with pytest.raises(InputError, match="no rows"):
        write_logs(log.select([]), tmp_path / "log.parquet")
    with pytest.raises(DataError, match="cannot be written"):
        write_logs(log, tmp_path / "absent" / "log.parquet")
    write_logs(log, tmp_path / "log.parquet")
    (tmp_path / "link.parquet").symlink_to(tmp_path / "log.parquet")
    write_logs(log.select([0]), tmp_path / "link.parquet")
    assert len(read_logs(tmp_path / "link.parquet")) == 1
    assert len(read_logs(tmp_path / "log.parquet")) == len(log)


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("scopeval.logs.tables._FORMAT", 3)
    write_logs(example()[0], tmp_path / "log.parquet")
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"format 3.*update scopeval"):
        read_logs(tmp_path / "log.parquet")


def test_the_footer_of_an_older_format_is_compared(tmp_path):
    """Format 1 had a checksum of the footer alone; damaged, pyarrow may end the process."""
    log, path = example()[0], tmp_path / "log.parquet"
    write_logs(log, path)
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    pages, footer = content[: start - 18], content[start:]
    assert content[start - 18 : start - 4] == b"scopeval-whole"
    head = pages + b"scopeval-seal" + zlib.crc32(footer).to_bytes(4, "little")
    path.write_bytes(head + footer)
    assert read_logs(path) == log
    for at in range(len(footer) - 8):
        path.write_bytes(head + footer[:at] + bytes([footer[at] ^ 1]) + footer[at + 1 :])
        with pytest.raises(DataError, match="is not what was written"):
            read_logs(path)


def test_every_error_is_ours():
    assert issubclass(DataError, ScopevalError)
    assert issubclass(InputError, ValueError)


def test_a_parquet_file_that_would_unpack_to_far_more_than_it_is(tmp_path, monkeypatch):
    """A footer tells sizes before anything is read; smaller limits here, for speed."""
    n = 100_000
    names = ("t", "obs", "action", "reward", "cost", "next_obs")
    columns = {name: np.zeros(n, np.int64) for name in names} | {"terminated": np.ones(n, bool)}
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd")
    monkeypatch.setattr("scopeval._archive.FREE_BYTES", 1 << 20)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"would unpack to 5,600,000.*stream_logs"):
        read_logs(path)
    assert stream_logs(path).rows == n
    pq.write_table(pa.table(columns), path, compression="none", use_dictionary=False)
    assert len(read_logs(path)) > 0


def test_logs_with_equal_rows_are_written_so_that_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr("scopeval._archive.FREE_BYTES", 1 << 20)
    n = 100_000
    zeros, whole = np.zeros(n), np.zeros(n, np.int64)
    log = Transitions(whole, whole, whole, zeros, zeros, whole, np.ones(n, np.bool_))
    write_logs(log, tmp_path / "log.parquet")
    assert len(read_logs(tmp_path / "log.parquet")) > 0
