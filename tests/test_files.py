"""One writer for every file: whole or not at all, with errors that name the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import scopeval
from scopeval._files import check_place, replace_file, write_json
from scopeval.errors import DataError, InputError


def write_half(file):
    file.write(b"half")
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_the_old_file_survives_a_failure(tmp_path, monkeypatch, moment):
    path = tmp_path / "result"
    replace_file(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    if moment != "write":
        monkeypatch.setattr(os, moment, fail)
    with pytest.raises(DataError, match=r"result: cannot be written \(No space left"):
        replace_file(path, write_half if moment == "write" else b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["result"]


def test_an_interrupt_leaves_no_draft(tmp_path):
    def interrupted(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "result", interrupted)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_the_mode_is_what_the_umask_says(tmp_path, umask):
    before = os.umask(umask)
    try:
        replace_file(tmp_path / "result", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "result").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_replaced_and_what_it_points_to_is_not_touched(tmp_path, there):
    (tmp_path / "folder").mkdir()
    victim, link = tmp_path / "folder" / "victim", tmp_path / "link"
    if there:
        victim.write_bytes(b"precious")
    link.symlink_to(victim)
    assert replace_file(link, b"content") == link
    assert link.read_bytes() == b"content"
    assert not link.is_symlink()
    assert victim.exists() == there
    assert not there or victim.read_bytes() == b"precious"


def test_places_that_cannot_hold_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("absent/result", "No such file"),
        ("", "folder or a device"),
        ("pipe", "folder or a device"),
    ):
        with pytest.raises(DataError, match=rf"{tmp_path / name}: cannot be written .*{reason}"):
            replace_file(tmp_path / name, b"content")
    assert os.listdir(tmp_path) == ["pipe"]
    with pytest.raises(InputError, match="cannot write /dev/null/result"):
        check_place("/dev/null/result")
    with pytest.raises(InputError, match="cannot write /dev/null/result"):
        write_json("/dev/null/result", {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(DataError, match="Permission denied"):
        replace_file(tmp_path / "result", b"content")


def test_there_is_one_writer():
    root = Path(scopeval.__file__).parent
    writers = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if any(call in path.read_text() for call in ("os.replace(", "NamedTemporaryFile", "fsync("))
    ]
    assert writers == ["_files.py"]
