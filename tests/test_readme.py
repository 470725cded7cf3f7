"""The README's code runs and prints what it says; its numbers are the ones that are computed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "docs/results/gridworld/gridworld.json").read_text(encoding="utf-8"))
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_blocks_run_and_print_what_they_say(code, printed, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_there_is_something_to_test():
    assert len(BLOCKS) >= 1


@pytest.mark.parametrize("block", RESULTS["blocks"], ids=lambda block: block["size"])
def test_the_tables_hold_the_stored_results(block):
    """The results that `scopeval reproduce gridworld` wrote, which name their command and seed."""
    size = block["size"]
    section = README.split(f"| {size} x {size} |")[1].split("\n\n")[0]
    rows = {line.split("|")[1].strip(): line for line in section.splitlines() if " ± " in line}
    assert set(rows) == {"scope", "scope-dr", "odi", "dopt", "ros"}
    for method in block["methods"]:
        if method["method"] in rows:
            wanted = [
                f"{method[key]['mean']:.{digits}f} ± {method[key]['standard_error']:.{digits}f}"
                for key, digits in (
                    ("relative_variance", 3),
                    ("relative_cost", 3),
                    ("cost_needed", 0),
                )
            ]
            wanted.append(f"{max(method['relative_cost']['values']):.3f}")
            assert [cell.strip() for cell in rows[method["method"]].split("|")[2:6]] == wanted


def test_the_savings_are_those_of_the_table():
    for name in ("scope", "scope-dr"):
        saved = [
            f"{100 - method['cost_needed']['mean'] / 10:.0f} %"
            for block in RESULTS["blocks"]
            for method in block["methods"]
            if method["method"] == name
        ]
        assert " and ".join(saved) in README


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)  ", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
