"""Change critical code, one wrong edit at a time, and see whether the tests notice.

    python tools/mutants.py [--only TEXT] [--range FIRST:LAST] [--list]

The edits are in `mutant_edits.py`. Each is made in a temporary copy of the repository, where its
tests are run. Before, all of these tests must pass in a copy without an edit. An edit that no test
notices *survives*: a test is missing. The status is 1 if any survives, or if the list is out of
date: the text of an edit must occur exactly once in its file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutant_edits import EDITS, Edit

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "tools", "docs", "examples", "experiments", "benchmarks", "README.md")
COPIED += ("pyproject.toml", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "mkdocs.yml")
COPIED += ("constraints.txt",)
#: Seconds that the tests of one edit may take; an edit that makes them endless is noticed, too.
PATIENCE = 1200


def outdated(edits: Iterable[Edit], root: Path = ROOT) -> list[str]:
    """What is wrong with the list itself."""
    wrong = []
    for edit in edits:
        text = (root / "src" / "scopeval" / edit.file).read_text(encoding="utf-8")
        if (found := text.count(edit.old)) != 1:
            wrong.append(f"{edit.file}: {edit.old!r} occurs {found} times ({edit.why})")
        if edit.old == edit.new:
            wrong.append(f"{edit.file}: {edit.old!r} is not changed ({edit.why})")
        for test in edit.tests:
            file, _, name = test.partition("::")
            path = root / "tests" / file
            if not path.is_file() or (name and f"def {name}(" not in path.read_text("utf-8")):
                wrong.append(f"tests/{test}: no such test ({edit.why})")
    return wrong


#: Hypothesis need not look for the smallest example that fails.
NO_SHRINKING = """
from hypothesis import Phase, settings

settings.register_profile("mutants", phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.load_profile("mutants")
"""


def copied(goal: Path) -> None:
    """Copy the repository; dates are kept, so that compiled code remains valid."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, goal / name, ignore=shutil.ignore_patterns(".hypothesis"))
        else:
            shutil.copy2(source, goal / name)
    with (goal / "tests" / "conftest.py").open("a", encoding="utf-8") as file:
        file.write(NO_SHRINKING)


def run_tests(place: Path, tests: Sequence[str], compile_anew: bool) -> int:
    """The status of pytest: 0 if all pass, 1 if some fail; -1 if they take too long."""
    environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    if compile_anew:  # the cache of a function does not notice changes in functions that it calls
        environment["NUMBA_CACHE_DIR"] = str(place / "compiled")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [*command, *(f"tests/{test}" for test in tests)],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return -1
    if done.returncode not in (0, 1):
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode


def survives(edit: Edit) -> bool | None:
    """Whether the tests pass although the edit was made; None: they could not be run."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        copied(place)
        path = place / "src" / "scopeval" / edit.file
        path.write_text(path.read_text("utf-8").replace(edit.old, edit.new), "utf-8")
        status = run_tests(place, edit.tests, "_kernel" in edit.file)
    return {0: True, 1: False, -1: False}.get(status)


def numbered(part: str, text: str) -> list[tuple[int, Edit]]:
    """The edits with numbers FIRST:LAST, both included, whose file or reason contains the text."""
    first, colon, last = part.partition(":")
    if not colon or not all(end.isdigit() for end in (first, last) if end):
        raise ValueError(f"--range: got {part!r}, expected FIRST:LAST, such as 1:10")
    low, high = int(first or 1), int(last or len(EDITS))
    chosen = [
        (n, edit)
        for n, edit in enumerate(EDITS, 1)
        if low <= n <= high and text in f"{edit.file}: {edit.why}"
    ]
    if not chosen:
        raise ValueError(f"no edit {part} has {text!r} in its file or reason; try --list")
    return chosen


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for every edit."""
    parser = argparse.ArgumentParser(description="See whether tests notice wrong edits.")
    parser.add_argument("--only", default="", help="edits whose file or reason contains this")
    parser.add_argument("--range", default=":", help="edits with these numbers, such as 1:10")
    parser.add_argument("--list", action="store_true", help="check and print the list only")
    options = parser.parse_args(arguments)
    wrong = outdated(EDITS)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    try:
        chosen = numbered(options.range, options.only)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print(*(f"{n:>3} {edit.file}: {edit.why}" for n, edit in chosen), sep="\n")
    if options.list or wrong:
        return int(bool(wrong))
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        tests = sorted({test for _, edit in chosen for test in edit.tests})
        if run_tests(Path(folder), tests, compile_anew=False) != 0:
            print("the tests do not pass without an edit")
            return 1
    counts = {"noticed": 0, "survives": 0, "not run": 0}
    for n, edit in chosen:
        start = time.monotonic()
        found = {True: "survives", False: "noticed", None: "not run"}[survives(edit)]
        counts[found] += 1
        took = time.monotonic() - start
        print(f"{n:>3} {found:<9} {took:5.0f} s  {edit.file}: {edit.why}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(counts["noticed"] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
