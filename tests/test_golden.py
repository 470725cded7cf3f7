"""What the library computes is what it computed when tests/golden/golden.json was written.

A change of structure must not change a number. A change of behavior changes some on purpose: then
write the file anew with ``python tests/golden/golden.py write tests/golden/golden.json`` and say in
the change log what differs and why. New cases are added with ``--only``, which keeps all others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "tests" / "golden" / "golden.json"

sys.path.insert(0, str(FILE.parent))
import golden  # noqa: E402


@pytest.fixture(scope="module")
def stored():
    return golden.read(FILE)


@pytest.mark.parametrize("name", golden.CASES)
def test_the_numbers_are_the_same(name, stored):
    was = {entry: value for entry, value in stored.items() if entry.split("/")[0] == name}
    found = golden.differences(was, golden.entries(name))
    assert not found, "\n".join(found)


def test_the_file_holds_these_cases_and_no_others(stored):
    assert list(dict.fromkeys(entry.split("/")[0] for entry in stored)) == list(golden.CASES)


def test_numbers_are_read_back_bit_for_bit(tmp_path):
    numbers = np.array([0.1 + 0.2, -0.0, 1e-310, np.inf, -np.inf, np.nan, 3.0])
    golden.write(tmp_path / "a.json", {"case/entry": numbers, "case/one": np.array(2.5)})
    back = golden.read(tmp_path / "a.json")
    assert back["case/entry"].tobytes() == numbers.tobytes()
    assert back["case/one"].shape == ()


def test_cases_are_added_without_a_change_of_the_others(tmp_path):
    path = tmp_path / "golden.json"
    path.write_text('{\n"exact.solver/mu": [0.1, 1.5],\n"exact.simulate/states": [2.0]\n}\n')
    assert golden.main(["write", str(path), "--only", "exact.values"]) == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[-2] == '"exact.simulate/states": [2.0]'
    assert '"exact.solver/mu": [0.1, 1.5],' in lines
    assert sum(line.startswith('"exact.values/') for line in lines) == 6


def test_the_judge_can_say_no(tmp_path, capsys):
    was = np.array([1.0, 2.0, np.nan])
    assert golden.difference("table.x/y", was, was.copy(), exactly=True) is None
    near = was + np.array([0.0, 1e-12, 0.0])
    assert golden.difference("table.x/y", was, near) is None
    assert "1 of 3 numbers differ" in golden.difference("table.x/y", was, near, exactly=True)
    far = was + np.array([1e-7, 0.0, 0.0])
    assert "table.x/y: 1 of 3 numbers differ; most at (0,): 1.0000001" in golden.difference(
        "table.x/y", was, far
    )
    assert golden.difference("network.x/y", was, far) is None
    assert golden.difference("network.x/y", was, np.array([1.0, 2.0, 0.0])) is not None
    assert golden.difference("network.x/y", was, np.array([1.0, 2.0, np.inf])) is not None
    assert "shape (2,), was (3,)" in golden.difference("network.x/y", was, was[:2])
    assert golden.differences({"a/b": was}, {"a/c": was}) == [
        "a/b: not computed any more",
        "a/c: not in the file",
    ]
    path = tmp_path / "golden.json"
    assert golden.main(["write", str(path), "--only", "exact.solver"]) == 0
    assert golden.main(["compare", str(path), "--only", "exact.solver", "--exact"]) == 0
    content = json.loads(path.read_text(encoding="utf-8"))
    content["exact.solver/mu"][0][0] += 1e-6
    path.write_text(json.dumps(content), encoding="utf-8")
    assert golden.main(["compare", str(path), "--only", "exact.solver"]) == 1
    assert "exact.solver/mu: 1 of 48 numbers differ" in capsys.readouterr().out
