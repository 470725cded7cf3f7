"""NPZ files of unknown origin: sizes are checked before anything is read, nothing is unpickled."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from scopeval import _archive, read_logs
from scopeval.cli.sources import features_from, policy_from
from scopeval.errors import DataError
from wearing_machine import machine_log

COLUMNS = machine_log(8)
ROWS = len(COLUMNS["obs"])


def npy_header(shape, descr="<f8"):
    file = io.BytesIO()
    layout = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, layout)
    return file.getvalue()


def zipped(path, content):
    """An archive of the log, with the bytes of `reward` replaced."""
    np.savez(path, **COLUMNS)
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in (members | {"reward.npy": content}).items():
            archive.writestr(name, raw)
    return path


@pytest.fixture
def nothing_is_read(monkeypatch):
    """The content of an array is never asked for."""

    def refuse(file, name):
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(_archive, "_read_array", refuse)


@pytest.mark.usefixtures("nothing_is_read")
def test_logs_that_would_unpack_to_much_more_than_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(_archive, "FREE_BYTES", 1000)
    many = {name: np.repeat(values[:1], 100_000, axis=0) for name, values in COLUMNS.items()}
    np.savez_compressed(tmp_path / "bomb.npz", **many)
    with pytest.raises(DataError, match=r"bomb\.npz: .* would unpack to .* at most 200 times"):
        read_logs(tmp_path / "bomb.npz")
    monkeypatch.setattr(_archive.open_archive.__wrapped__, "__defaults__", (1000,))
    with pytest.raises(DataError, match=r"bomb\.npz: takes .* bytes, .* 1,000; write .* Parquet"):
        read_logs(tmp_path / "bomb.npz")


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize("descr", ["<f8", "|b1", "<U1000"])
def test_headers_of_80_terabytes(tmp_path, descr):
    path = zipped(tmp_path / "huge.npz", npy_header((10**13,), descr) + bytes(8))
    with pytest.raises(DataError, match=r"huge\.npz: .* 'reward' .* takes .* the file holds 8"):
        read_logs(path)


@pytest.mark.usefixtures("nothing_is_read")
def test_both_headers_may_lie(tmp_path):
    """The zip directory promises 80 TB too; then the size of the file itself decides."""
    path = zipped(tmp_path / "lies.npz", npy_header((100_000_000,)))
    raw = path.read_bytes()
    real = len(npy_header((100_000_000,)))
    small, large = struct.pack("<L", real), struct.pack("<L", real + 800_000_000)
    at = raw.rindex(b"reward.npy")  # the entry in the directory, 46 bytes long before the name
    entry = raw[at - 46 : at].replace(small * 2, small + large)
    path.write_bytes(raw[: at - 46] + entry + raw[at:])
    with pytest.raises(DataError, match=r"lies\.npz: .* would unpack to 800,"):
        read_logs(path)


@pytest.mark.usefixtures("nothing_is_read")
def test_object_arrays(tmp_path):
    wrong = COLUMNS | {"reward": np.array([None] * ROWS, object)}
    np.savez(tmp_path / "objects.npz", **wrong)
    with pytest.raises(DataError, match=r"objects\.npz: .* 'reward' has type object .* unpickled"):
        read_logs(tmp_path / "objects.npz")


def test_arrays_that_are_not_asked_for_may_be_anything(tmp_path):
    path = tmp_path / "log.npz"
    np.savez(path, **COLUMNS, other=np.array([{}], object))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("huge.npy", npy_header((10**13,)))
        archive.writestr("readme.txt", "not an array")
    assert np.array_equal(read_logs(path).reward, COLUMNS["reward"])


def test_episodes_named_by_bytes(tmp_path):
    names = np.char.add("day ", COLUMNS["episode"].astype(str)).astype("S")
    np.savez(tmp_path / "log.npz", **(COLUMNS | {"episode": names}))
    assert len(read_logs(tmp_path / "log.npz")) == ROWS


@pytest.mark.usefixtures("nothing_is_read")
@pytest.mark.parametrize("read", [policy_from, features_from])
def test_tables_of_the_command_line(tmp_path, monkeypatch, read):
    monkeypatch.setattr(_archive, "FREE_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", pi=np.zeros(1_000_000))
    np.save(tmp_path / "objects.npy", np.array([None], object))
    np.savez(tmp_path / "objects.npz", pi=np.array([None], object))
    np.savez(tmp_path / "two.npz", pi=np.zeros(1), mu=np.zeros(1))
    (tmp_path / "huge.npy").write_bytes(npy_header((10**13,)) + bytes(8))
    (tmp_path / "short.npy").write_bytes(npy_header((4,)) + bytes(8))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "text.csv").write_text("a,b\nx,y\n")
    for name, said in (
        ("bomb.npz", "would unpack to 8,000,000"),
        ("objects.npy", "has type object .* never unpickled"),
        ("objects.npz", "has type object .* never unpickled"),
        ("two.npz", "holds the arrays pi, mu; expected one"),
        ("huge.npy", "takes 80,000,000,000,000 bytes, the file holds 8"),
        ("short.npy", "takes 32 bytes, the file holds 8"),
        ("empty.npy", "damaged"),
        ("empty.npz", "damaged"),
        ("text.csv", "not a table of numbers, or damaged"),
    ):
        path = tmp_path / name
        with pytest.raises(DataError, match=f"(?s){name}: .*{said}"):
            read(str(path) if read is policy_from else path)
