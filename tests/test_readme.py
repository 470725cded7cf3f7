"""The README's code runs and prints what it says; its numbers are the ones that are computed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import scopeval

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "docs/results/gridworld/gridworld.json").read_text(encoding="utf-8"))
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_blocks_run_and_print_what_they_say(code, printed, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.split() == printed.split()


def test_there_is_something_to_test():
    assert len(BLOCKS) >= 1


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_both_commands_are_named(command):
    assert re.search(rf"^    {command} +# \w", README, re.MULTILINE)


def stored(name):
    return json.loads((ROOT / "docs/results" / name).read_text(encoding="utf-8"))


def headline_numbers():
    """Relative cost and squared error of each line of the first table, from the stored results."""
    grid = next(block for block in RESULTS["blocks"] if block["size"] == 10)
    design = next(row for row in grid["methods"] if row["method"] == "scope-dr")
    points = stored("frontier/frontier-learned.json")["blocks"][0]["points"]
    at = {point["asked"]: (point["cost"], point["variance"]) for point in points}
    rows = stored("adaptive/1-gridworld-10-no-logs.json")["rows"]
    learned = next(row for row in rows if row["method"] == "adaptive")
    return {
        "designed from logs": (design["relative_cost"], design["relative_variance"]),
        "at most 0.8 of": at[0.8],
        "at most 0.6 of": at[0.6],
        "without any logs": (learned["cost"], learned["square"]),
    }


def test_the_first_table_holds_the_stored_results():
    """Up to rounding, and to what measuring again changes."""
    section = README.split("| what is run |")[1].split("\n\n")[0]
    for words, wanted in headline_numbers().items():
        line = next(line for line in section.splitlines() if words in line)
        shown = re.findall(r"([\d.]+) ± ([\d.]+)", line)
        for (mean, error), number in zip(shown, wanted, strict=True):
            assert float(mean) == pytest.approx(number["mean"], abs=0.02)
            assert float(error) == pytest.approx(number["standard_error"], abs=0.005)


def test_the_robots_are_those_of_the_stored_results():
    found = {
        block["robot"]: row["relative_variance"]["mean"]
        for block in stored("mujoco/mujoco.json")["blocks"]
        for row in block["methods"]
        if block["protocol"] == "candidates" and row["method"] == "scope-dr"
    }
    found.pop("Ant", None)
    assert f"{min(found.values()):.2f} to {max(found.values()):.2f} of the variance" in README


def test_the_savings_are_those_of_the_table():
    for name in ("scope", "scope-dr"):
        saved = [
            f"{100 - method['cost_needed']['mean'] / 10:.0f} %"
            for block in RESULTS["blocks"]
            for method in block["methods"]
            if method["method"] == name
        ]
        assert " and ".join(saved) in README


def test_what_a_typical_user_gets_is_what_is_stored():
    """How many designs fall back in environments that were not tuned on, and by which version."""
    content = stored("foreign/foreign.json")
    rows = [row for row in content["summary"] if row["half"] == "reported on"]
    rows = [row for row in rows if row["environment"] != "all"]
    designs, fallen = (sum(row[name] for row in rows) for name in ("designs", "fall_back"))
    mean = sum(row["designs"] * row["mean_variance"] for row in rows) / designs
    words = " ".join(README.split())
    assert f"{fallen} of {designs} designs fall back" in words
    assert f"with a mean variance of {mean:.3f}" in words
    version = content["versions"]["scopeval"]
    older = version != scopeval.__version__
    assert (f"(by version {version.removesuffix('.0')};" in words) == older


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)  ", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
