"""Damaged and altered files: always one of our errors or a right answer, never anything else.

Cases are seeded, so that a failure names the one to run again. Damage to bytes is tried in a child
process: a crash of a native library would otherwise take the test run with it.
"""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from scopeval import Transitions, read_logs, stream_logs, write_logs
from scopeval.errors import ScopevalError

FIELDS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
FORMATS = ("parquet", "foreign.parquet", "csv", "npz", "packed.npz")
DAMAGED = 300  # per format, for each kind of observation
ALTERED = 200  # per format
OUR_MISTAKES = (TypeError, KeyError, AttributeError, NameError, IndexError, AssertionError)


def example(vector):
    rng = np.random.default_rng(5)
    n = 60
    path = rng.normal(size=(n + 1, 2)) if vector else rng.integers(0, 9, n + 1)
    numbers = rng.normal(size=n).round(3), rng.random(n).round(3)
    return Transitions(
        np.arange(n) % 10, path[:-1], rng.integers(0, 4, n), *numbers, path[1:], rng.random(n) < 0.1
    )


def columns_of(log, form):
    """Names and arrays as they stand in a file: CSV has no vectors, only numbered columns."""
    columns = {name: getattr(log, name) for name in FIELDS}
    if form != "csv":
        return columns
    flat = {}
    for name, values in columns.items():
        split = enumerate(values.T) if values.ndim == 2 else ()
        flat |= {f"{name}_{i}": part for i, part in split} if values.ndim == 2 else {name: values}
    return flat


def save(columns, form, path):
    if "npz" in form:
        (np.savez_compressed if "packed" in form else np.savez)(path, **columns)
        return
    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    if form == "csv":
        pa.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def _arrow(values):
    return pa.array(list(values) if isinstance(values, np.ndarray) and values.ndim > 1 else values)


def sound_file(log, form, folder):
    path = folder / f"sound.{form}"
    if form == "parquet":
        write_logs(log, path)
    else:
        save(columns_of(log, form), form, path)
    return path.read_bytes()


def damaged(content, rng):
    """A few bytes or bits changed, a stretch lost, doubled or zeroed, or the end cut off."""
    data = bytearray(content)
    kind = rng.integers(6)
    if kind == 0:
        return bytes(data[: rng.integers(len(data))])
    start, stop = np.sort(rng.integers(0, len(data) + 1, 2))
    stop = min(int(stop), int(start) + 50)
    if kind == 1:
        del data[start:stop]
    elif kind == 2:
        data[start:stop] = data[start:stop] * 2
    elif kind == 3:
        data[start:stop] = bytes(stop - start)
    else:
        near_end = rng.random() < 0.5  # footers and directories are there
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(len(data) * 2 // 3 if near_end else 0, len(data))
            data[at] = data[at] ^ (1 << rng.integers(8)) if kind == 4 else rng.integers(256)
    return bytes(data)


def try_to_read(path, reader=read_logs):
    """The log, or None if it was refused in the way it should be."""
    try:
        return reader(path)
    except ScopevalError as error:
        refused = error
    assert not isinstance(refused.__cause__, OUR_MISTAKES), refused
    assert path.name in str(refused)
    return None


def check_structure(log):
    """What any log that was read must satisfy."""
    assert len({len(getattr(log, name)) for name in FIELDS}) == 1
    assert all(np.isfinite(getattr(log, name)).all() for name in FIELDS)
    assert (log.cost >= 0).all()
    assert (log.t >= 0).all()
    assert log.obs.shape == log.next_obs.shape


def read_damaged_files(form, folder):
    """Try all damaged files of a format; runs in a child process."""
    for vector in (False, True):
        log = example(vector)
        content = sound_file(log, form, folder)
        for case in range(DAMAGED):
            print(form, "vector" if vector else "state", case, flush=True)
            rng = np.random.default_rng([FORMATS.index(form), vector, case])
            path = folder / f"damaged.{form}"
            path.write_bytes(damaged(content, rng))
            got = try_to_read(path)
            if got is None:
                continue
            check_structure(got)
            if form == "parquet" or form.endswith("npz"):  # these have checksums
                assert got == log
            if form == "parquet":
                batches = try_to_read(path, lambda p: Transitions.concat(list(stream_logs(p))))
                assert batches == log


@pytest.mark.parametrize("form", FORMATS)
def test_damaged_bytes(form, tmp_path):
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import test_fuzz as fuzz; "
        "fuzz.read_damaged_files(sys.argv[2], pathlib.Path(sys.argv[3]))"
    )
    here = __file__.rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, here, form, tmp_path],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    last = done.stdout.strip().rpartition("\n")[2]
    assert done.returncode == 0, f"case {last}: exit {done.returncode}\n{done.stderr[-3000:]}"


def altered(columns, rng):
    """Drop, rename or retype a column, or replace some of its values; returns what was touched."""
    columns = dict(columns)
    name = str(rng.choice(list(columns)))
    values = columns[name].tolist()
    kind = rng.integers(8)
    if kind == 0:
        del columns[name]
    elif kind == 1:
        columns[name + str(rng.choice(["_", "s", "0", " ", "é"]))] = columns.pop(name)
    elif kind == 2:
        dtype = rng.choice(["i1", "u1", "i4", "u8", "f2", "f4", "f8", "?", "U5", "M8[s]"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            columns[name] = columns[name].astype(np.int64).astype(str(dtype))
    elif kind == 3:
        columns[name] = [str(value) for value in values]
    elif kind == 4:
        columns[name] = columns[name][: rng.integers(len(values))]
    elif kind == 5:
        added = str(rng.choice(["s", "done", "state", "episode", "obs_0", "x"]))
        columns[added] = columns[name]
        name = added
    elif columns[name].ndim == 1:
        odd = [np.nan, np.inf, -np.inf, 1e300, -1e300, 2.0**62, -1.0, 0.5, -0.0, 1e-320]
        changed = columns[name].astype(np.float64)
        changed[rng.integers(0, len(values), rng.integers(1, 4))] = rng.choice(odd)
        columns[name] = changed
    else:
        columns[name] = [row[: rng.integers(3)] if rng.random() < 0.1 else row for row in values]
    return columns, name


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "parquet"])
def test_altered_columns(form, tmp_path):
    read = 0
    for case in range(ALTERED):
        rng = np.random.default_rng([9, FORMATS.index(form), case])
        log = example(vector=case % 2 == 1)
        columns, touched = altered(columns_of(log, form), rng)
        path = tmp_path / f"altered.{form}"
        try:
            save(columns, form, path)
        except (pa.ArrowException, ValueError):
            continue  # no such file can exist
        got = try_to_read(path)
        if got is None:
            continue
        read += 1
        check_structure(got)
        if len(got) < len(log):  # next_obs was rebuilt, some rows have no successor
            continue
        for name in FIELDS:
            if not touched.startswith(name) and not (touched.startswith("obs") and "obs" in name):
                assert np.array_equal(getattr(got, name), getattr(log, name)), (case, name)
    assert read > ALTERED / 20  # the test is not only about refusals


def test_every_single_bit_of_a_small_file(tmp_path):
    """In a file of ours a flipped bit is found out, wherever it is, or does not matter."""
    log = example(vector=False).select(slice(0, 4))
    path = tmp_path / "log.parquet"
    write_logs(log, path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in range(0, len(content), 3):
        data = bytearray(content)
        data[at] ^= 1 << rng.integers(8)
        path.write_bytes(data)
        got = try_to_read(path)
        assert got is None or got == log, at


def test_a_zip_that_lies_about_sizes(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    path = tmp_path / "huge.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name in FIELDS:
            archive.writestr(f"{name}.npy", header.getvalue() + b"12345678")
    assert try_to_read(path) is None
