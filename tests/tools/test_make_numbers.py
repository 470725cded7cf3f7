"""docs/numbers.md lists every number that decides, as the source has it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "tools" / "make_numbers.py"
spec = importlib.util.spec_from_file_location("make_numbers", PLACE)
make_numbers = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = make_numbers  # its dataclass looks there
spec.loader.exec_module(make_numbers)


def test_the_page_is_what_the_source_says():
    """Else name the number in tools/steering_numbers.txt and run tools/make_numbers.py."""
    assert make_numbers.PLACE.read_text(encoding="utf-8") == make_numbers.page()


def test_a_number_without_a_ground_is_an_error(monkeypatch):
    values = make_numbers.numbers()
    found = {**values, ("behavior/decision.py", "SURPRISE"): "0.7"}
    monkeypatch.setattr(make_numbers, "numbers", lambda: found)
    with pytest.raises(ValueError, match=r"missing \['behavior/decision.py SURPRISE'\]"):
        make_numbers.page()
    del found["behavior/decision.py", "SURPRISE"]
    del found["behavior/thresholds.py", "FLOOR"]
    with pytest.raises(ValueError, match=r"not in the source any more \['behavior/thresholds.py"):
        make_numbers.page()
