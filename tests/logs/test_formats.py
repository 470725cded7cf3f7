"""Formats beside Parquet, plain CSV and NPZ, and folders whose files differ."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scopeval import read_logs, stream_logs
from scopeval.errors import DataError, InputError
from wearing_machine import machine_log, transitions

COLUMNS = machine_log(8)
LOG = transitions(COLUMNS)


def csv_of(columns, separator=","):
    lines = [separator.join(columns)]
    lines += [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return "\n".join(lines) + "\n"


def json_lines_of(columns):
    lists = {name: values.tolist() for name, values in columns.items()}
    return "".join(
        json.dumps(dict(zip(lists, row, strict=True))) + "\n"
        for row in zip(*lists.values(), strict=True)
    )


def write(path, text):
    path.write_bytes(
        gzip.compress(text.encode()) if path.suffix.lower() == ".gz" else text.encode()
    )
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "A.CSV.GZ", "a.jsonl", "a.jsonl.gz"])
def test_text_files(tmp_path, name):
    text = csv_of(COLUMNS) if "csv" in name.lower() else json_lines_of(COLUMNS)
    assert read_logs(write(tmp_path / name, text)) == LOG


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators(tmp_path, ending, separator):
    path = write(tmp_path / f"log{ending}", csv_of(COLUMNS, separator))
    assert read_logs(path, separator=separator) == LOG
    assert read_logs(path) == LOG


def test_separators_that_cannot_be(tmp_path):
    path = write(tmp_path / "log.csv", csv_of(COLUMNS))
    for wrong in ("", ";;", "\n", '"'):
        with pytest.raises(InputError, match=r"separator: got .*one character"):
            read_logs(path, separator=wrong)
    with pytest.raises(InputError, match="is no CSV file"):
        read_logs(write(tmp_path / "log.jsonl", json_lines_of(COLUMNS)), separator=";")
    with pytest.raises(InputError, match="only CSV files have one"):
        read_logs(COLUMNS, separator=";")


def test_json_lines_with_vectors(tmp_path):
    rows = [
        {"t": t, "obs": [t, 0.5], "action": t % 2, "reward": 1 if t else 0.25, "cost": t,
         "next_obs": [t + 1, 0.5], "terminated": False}
        for t in range(6)
    ]  # fmt: skip
    path = write(tmp_path / "log.jsonl", "\n".join(map(json.dumps, rows)))
    log = read_logs(path)
    assert log.obs.tolist() == [[t, 0.5] for t in range(6)]
    assert log.reward.tolist() == [0.25, 1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "log.jsonl"),
        ("not json\n", "cannot be read as JSON lines"),
        ('{"t": 0, "obs": 1}\n{"t": 1, "obs": ', "cannot be read as JSON lines"),
        ('[{"t": 0}]\n', "log.jsonl"),
        (json_lines_of({"obs": np.ones(2), "action": np.ones(2)}), "no column for reward, cost"),
        (json_lines_of(COLUMNS) + '{"t": 1}\n', r"is missing \(null\)"),
    ],
)  # fmt: skip
def test_json_lines_that_cannot_be_used(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        read_logs(write(tmp_path / "log.jsonl", text))


def test_damaged_compression(tmp_path):
    whole = gzip.compress(csv_of(COLUMNS).encode())
    path = tmp_path / "log.csv.gz"
    for content in (whole[: len(whole) // 2], b"", b"no gzip at all", whole[:-6] + b"wrong!"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"log\.csv\.gz"):
            read_logs(path)


@pytest.mark.parametrize("field", ["terminated", "truncated", "episode"])
def test_a_first_file_that_lacks_a_column(tmp_path, field):
    fewer = {name: values for name, values in COLUMNS.items() if name != field}
    pq.write_table(pa.table(fewer), tmp_path / "a.parquet")
    pq.write_table(pa.table(COLUMNS), tmp_path / "b.parquet")
    for read in (read_logs, stream_logs):
        with pytest.raises(
            DataError, match=rf"b\.parquet: has a column '{field}'.*a\.parquet lacks"
        ):
            list(read(tmp_path).t if read is read_logs else read(tmp_path))
    log = read_logs(tmp_path, columns={field: None})
    assert not log.terminated.any() or field != "terminated"
    assert np.isin(log.reward, COLUMNS["reward"]).all()


@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl.gz"])
def test_what_unpacks_to_far_more_than_it_is_is_refused(tmp_path, monkeypatch, ending):
    """A compressed file of a few kB may hold GBs."""
    line = "0,0,1,1,0,0\n" if ending == ".csv.gz" else json.dumps(dict.fromkeys("toarcn", 0)) + "\n"
    path = tmp_path / f"log{ending}"
    path.write_bytes(gzip.compress((line * 200_000).encode(), 9))
    columns = dict(zip(("t", "obs", "action", "reward", "cost", "next_obs"), "toarcn", strict=True))
    monkeypatch.setattr("scopeval._archive.FREE_BYTES", 1000)
    with pytest.raises(DataError, match=r"bytes unpack to more than .*if you trust the file"):
        read_logs(path, columns=columns)
