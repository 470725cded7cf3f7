"""Every part of the experiment `compare` that needs no simulator, in its smallest form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments import compare
from experiments.common import run_experiment

SMALL = {"sizes": (4,), "pairs": 1, "episodes": 80, "logged": 60, "runs": 2}


def content_of(part: Any, place: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    for name, few in {
        "TOGETHER": 2, "SIMULATED": 300, "MOST_EPISODES": 600, "MOST_RETURNS": 2000,
        "CANDIDATES": 3,
    }.items():  # fmt: skip
        monkeypatch.setattr(compare, name, few)
    args = compare.Args(parts=(part,), out=place, backend="serial", **{**SMALL, **more})
    return run_experiment(compare, args)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["pairs", "promise", "same", "coverage", "best"])
def test_a_part_has_a_table(part: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    content = content_of(part, tmp_path, monkeypatch)
    first, *_ = compare.table(content)
    assert first.rows  # type: ignore[union-attr]
    assert {block["part"] for block in content["blocks"]} == {part}
    assert len(list((tmp_path / "jobs").iterdir())) == len(
        compare.jobs(compare.Args(parts=(part,), **SMALL))
    )


def test_unseen_worlds_by_both_measures_of_how_much_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """And the bounds are in order: no critics beat a bound on all behavior policies."""
    worlds = compare._unseen_worlds().WORLDS
    for name in [name for name in worlds if name != "recommender"]:  # the shortest episodes
        monkeypatch.delitem(worlds, name)
    content = content_of("unseen", tmp_path, monkeypatch)
    ratio = {(b["case"], b["how"]): b["ratio"]["mean"] for b in content["blocks"]}
    for case in ("x = 0.1", "x = 0.3", "10% of decisions differ", "30% of decisions differ"):
        known = ratio[case, compare.KNOWN_WORLD]
        assert ratio[case, compare.ANY_BEHAVIOR] <= known < 1.1
        assert ratio[case, compare.MARKOV] <= 1.1 * known
    assert ratio["x = 0.1", compare.KNOWN_WORLD] < ratio["x = 0.3", compare.KNOWN_WORLD]
