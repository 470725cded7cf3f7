"""What a historian exports: times instead of episodes, semicolons, decimal commas, units."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import read_logs
from scopeval.errors import DataError, InputError

HEADING = "Zeitstempel;KW01.TT101.PV [°C];KW01.LAST.PV;Stufe;Güte;Energie [kWh]"
COLUMNS = {
    "obs": ["KW01.TT101.PV [°C]", "KW01.LAST.PV"],
    "action": "Stufe",
    "reward": "Güte",
    "cost": "Energie [kWh]",
}


def shifts(lengths, step=timedelta(minutes=10), pause=timedelta(hours=8)):
    """Times of shifts with pauses between them."""
    now, times = datetime(2026, 1, 31, 6), []
    for length in lengths:
        times += [now + k * step for k in range(length)]
        now = times[-1] + pause
    return times


def german(times, seed=0):
    rng = np.random.default_rng(seed)
    rows = [HEADING]
    for time in times:
        numbers = [*rng.normal(20, 2, 2), *rng.normal(-1, 0.1, 1), *rng.random(1)]
        a, b, r, c = (f"{x:.4f}".replace(".", ",") for x in numbers)
        rows.append(f"{time:%d.%m.%Y %H:%M};{a};{b};{rng.integers(3)};{r};{c}")
    return "\n".join(rows) + "\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "historian.csv"
    file.write_text(german(shifts([36, 36, 20])), encoding="utf-8")
    return file


def test_a_german_historian_is_read_without_any_other_tool(path):
    log = read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min")
    assert log.obs.shape == (36 + 36 + 20, 2)
    assert (log.reward < 0).all()
    assert np.flatnonzero(log.t == 0).tolist() == [0, 36, 72]
    assert np.flatnonzero(~log.has_next).tolist() == [35, 71, 91]
    assert log.t.max() == 35
    text = "; ".join(log.notes)
    assert "3 episodes by 'Zeitstempel', where a pause of more than 11min begins one" in text
    assert "3 of 92 rows have no successor" in text


def test_a_unit_behind_a_name_may_be_left_out(path):
    plain = {**COLUMNS, "obs": ["KW01.TT101.PV", "KW01.LAST.PV"], "cost": "Energie"}
    log = read_logs(path, columns=plain, time="Zeitstempel", gap="11min")
    assert log == read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min")
    table = pd.DataFrame({"episode": [0, 0, 0], "obs": [0, 1, 2], "action [-]": [0, 1, 0]})
    table["reward (EUR)"], table["cost [kWh]"] = [1.0, 2.0, 3.0], [0.0, 1.0, 1.0]
    assert read_logs(table).reward.tolist() == [1.0, 2.0, 3.0]
    both = table.assign(**{"cost [EUR]": 1.0})
    with pytest.raises(DataError, match=r"'cost \[kWh\]' and 'cost \[EUR\]' could both be cost"):
        read_logs(both)
    with pytest.raises(DataError, match=r"could both be 'cost' \(for cost\); give the name with"):
        read_logs(both, columns={"cost": "cost"})


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252", "utf-16"])
def test_what_spreadsheets_write_is_read(tmp_path, path, encoding):
    other = tmp_path / "other.csv"
    other.write_text(path.read_text(encoding="utf-8"), encoding=encoding)
    log = read_logs(other, columns=COLUMNS, time="Zeitstempel", gap="0,2h")
    assert log == read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min")


def test_shifts_are_as_long_as_their_rows(path):
    """The last row of a shift has no successor, and is a step all the same."""
    log = read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min", horizon=36)
    assert not any("try horizon" in note for note in log.notes)
    log = read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min", horizon=37)
    assert any(note.endswith("try horizon=36") for note in log.notes)


def test_columns_of_a_vector_in_one_word(path):
    columns = {**COLUMNS, "obs": "KW01.TT101.PV [°C], KW01.LAST.PV"}
    log = read_logs(path, columns=columns, time="Zeitstempel", gap="11min")
    assert log == read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min")


@pytest.mark.parametrize("gap", ["11min", "660 s", "0.2h", 660, timedelta(minutes=11)])
def test_gaps_in_any_unit(path, gap):
    assert (read_logs(path, columns=COLUMNS, time="Zeitstempel", gap=gap).t == 0).sum() == 3


def test_without_a_gap_the_message_says_which_to_try(path):
    with pytest.raises(InputError, match=r"the usual step is 600 and the longest 28800.*gap=900"):
        read_logs(path, columns=COLUMNS, time="Zeitstempel")


@pytest.mark.parametrize("gap", ["eleven", "5 parsecs", -1, 0, float("nan"), [1]])
def test_gaps_that_are_none(path, gap):
    with pytest.raises(InputError, match="gap: got"):
        read_logs(path, columns=COLUMNS, time="Zeitstempel", gap=gap)


def test_a_gap_alone_is_refused(path):
    with pytest.raises(InputError, match="without time"):
        read_logs(path, columns=COLUMNS, gap="11min")


def test_rows_out_of_order_are_named(tmp_path):
    times = shifts([5, 5])
    times[3], times[2] = times[2], times[3]
    file = tmp_path / "h.csv"
    file.write_text(german(times), encoding="utf-8")
    with pytest.raises(DataError, match=r"not later than in the row before in 1 of .*\(.*: 3\)"):
        read_logs(file, columns=COLUMNS, time="Zeitstempel", gap="11min")


def test_a_missing_row_is_told(tmp_path):
    times = shifts([20])
    del times[7]
    file = tmp_path / "h.csv"
    file.write_text(german(times), encoding="utf-8")
    log = read_logs(file, columns=COLUMNS, time="Zeitstempel", gap="1h")
    assert "1 steps of 'Zeitstempel' are at least twice as long" in "; ".join(log.notes)
    assert (log.t == 0).sum() == 1
    assert (read_logs(file, columns=COLUMNS, time="Zeitstempel", gap="11min").t == 0).sum() == 2


def test_an_episode_column_and_times_together():
    frame = pd.DataFrame(
        {
            "episode": [0, 0, 0, 1, 1, 1],
            "when": pd.date_range("2026-01-01", periods=6, freq="h"),
            "obs": np.arange(6.0),
            "action": 0,
            "reward": 1.0,
            "cost": 0.0,
        }
    )
    assert read_logs(frame, time="when").t.tolist() == [0, 1, 2, 0, 1, 2]


@given(
    lengths=st.lists(st.integers(2, 9), min_size=1, max_size=6),
    minutes=st.integers(1, 30),
    factor=st.floats(1.01, 4.0),
)
@settings(deadline=None, max_examples=40)
def test_any_shifts_come_back(lengths, minutes, factor):
    step = timedelta(minutes=minutes)
    times = shifts(lengths, step, pause=5 * step)
    n = len(times)
    frame = pd.DataFrame(
        {"w": times, "obs": np.arange(n) * 1.0, "action": 0, "reward": 0.5, "cost": 1.0}
    )
    log = read_logs(frame, time="w", gap=factor * step)
    assert log.t.tolist() == [t for length in lengths for t in range(length)]
    assert np.array_equal(log.next_obs, log.obs + log.has_next[:, None])


def test_decimal_commas_need_another_separator(tmp_path):
    file = tmp_path / "x.csv"
    file.write_text("obs;action;reward;cost;episode\n1,5;0;2,5;1;0\n2,5;1;3;1,5;0\n")
    assert read_logs(file).reward.tolist() == [2.5, 3.0]
    assert read_logs(file, separator=";", decimal=",").obs.tolist() == [[1.5], [2.5]]
    with pytest.raises(DataError, match="is text such as '1,5'"):
        read_logs(file, decimal=".")
    with pytest.raises(InputError, match="decimal: got 'x'"):
        read_logs(file, decimal="x")
    with pytest.raises(InputError, match="also separates the columns"):
        read_logs(file, separator=",", decimal=",")


def test_text_with_commas_is_no_number(tmp_path):
    """A column of words keeps the file's points as they are."""
    file = tmp_path / "x.csv"
    file.write_text("obs;action;reward;cost;episode;place\n1.5;0;2.5;1;0;a,b\n2.5;1;3;1.5;0;1,2\n")
    assert read_logs(file).reward.tolist() == [2.5, 3.0]


def test_a_plant_that_never_pauses_is_cut_into_days(tmp_path):
    """Five days, the first begins at six; in the third an hour is missing: three are whole."""
    start = datetime(2026, 3, 1, 6)
    times = [start + k * timedelta(minutes=10) for k in range(6 * (24 * 4 + 18))]
    hole = datetime(2026, 3, 3, 9)
    times = [t for t in times if not hole <= t < hole + timedelta(hours=1)]
    times = [t + timedelta(minutes=k % 2) for k, t in enumerate(times)]  # not quite regular
    file = tmp_path / "plant.csv"
    file.write_text(german(times), encoding="utf-8")
    with pytest.raises(DataError, match=r"horizon=144.*read_logs\(time=..., every='24h'\)"):
        read_logs(file, columns=COLUMNS, time="Zeitstempel", gap="11min", horizon=144)
    for every in ("24h", timedelta(days=1), 86400):
        log = read_logs(file, columns=COLUMNS, time="Zeitstempel", every=every, horizon=144)
        assert np.flatnonzero(log.t == 0).tolist() == [0, 144, 288]
        assert log.t.max() == 143
    text = "; ".join(log.notes)
    assert "3 episodes of 86400 each by 'Zeitstempel'" in text
    assert "2 pieces with holes left out (246 rows)" in text
    with pytest.raises(DataError, match="each has a hole; the usual step is 660"):
        read_logs(file, columns=COLUMNS, time="Zeitstempel", every="1000h")
    with pytest.raises(InputError, match="gap, every: got '11min', '24h', expected one of them"):
        read_logs(file, columns=COLUMNS, time="Zeitstempel", every="24h", gap="11min")
    with pytest.raises(InputError, match="every: got 'daily'"):
        read_logs(file, columns=COLUMNS, time="Zeitstempel", every="daily")


@pytest.mark.parametrize("cell", ["Bad Input", "1.234,5", "7.5"])
@pytest.mark.parametrize("stated", [None, ","])
def test_the_one_bad_cell_is_named_and_not_the_good_ones(path, cell, stated):
    lines = path.read_text("utf-8").splitlines()
    parts = lines[18].split(";")
    parts[1] = cell
    lines[18] = ";".join(parts)
    path.write_text("\n".join(lines), encoding="utf-8")
    words = f"is text such as '{cell}' in 1 of 92 rows.*17.*expected numbers with decimal commas"
    with pytest.raises(DataError, match=words):
        read_logs(path, columns=COLUMNS, time="Zeitstempel", gap="11min", decimal=stated)
