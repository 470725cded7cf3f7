"""The README's code runs and prints what it says; its numbers are the ones that are computed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scopeval.experiments import gridworld_exact

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_blocks_run_and_print_what_they_say(code, printed, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_there_is_something_to_test():
    assert len(BLOCKS) >= 1


def test_the_table_holds_the_computed_numbers():
    table = gridworld_exact.run(gridworld_exact.Config((10,), ("same-tilt",)))
    section = README.split("| 10 x 10")[1].split("| 30 x 30")[0]
    shown = [line for line in section.splitlines() if " ± " in line]
    for line, row in zip(shown, table.blocks[0].rows, strict=True):
        wanted = [
            f"{row.variance.mean:.3f} ± {row.variance.standard_error:.3f}",
            f"{row.cost.mean:.3f} ± {row.cost.standard_error:.3f}",
            f"{row.needed.mean:.0f} ± {row.needed.standard_error:.0f}",
            f"{row.worst_state.values.max():.2f}",
        ]
        assert [cell.strip() for cell in line.split("|")[2:6]] == wanted


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)  ", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
