"""A few kills of `tools/crash_campaigns.py`; its page in the docs has the figures of many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "crash_campaigns.py"


OPTIONS = [
    [],
    ["--postgres"],
    ["--lose"],
    ["--apart"],
    ["--lose", "--bound", "episode"],
    ["--lose", "--bound", "step"],
    ["--refit", "--processes"],
    ["--compare"],
    ["--compare", "--lose"],
    ["--power"],
]


@pytest.mark.heavy
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_campaigns_survive_kills(options):
    kills = 3 if options == ["--postgres"] else 5
    place = dict(os.environ)
    if options:  # on a disk
        place.pop("TMPDIR", None)
    done = subprocess.run(
        [sys.executable, str(TOOL), "--json", "--kills", str(kills), *options],
        capture_output=True,
        text=True,
        env=place,
        timeout=600,
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= kills
    assert found["decisions"] > 200
    assert found["lost at a kill"] == found["lost decisions"] == found["doubled decisions"] == 0
    assert found["drawn again and different"] == found["not accounted for"] == 0
    assert found.get("results that differ", 0) == 0
    assert found["lost episodes"] > 0 or "--lose" not in options


@pytest.mark.heavy
def test_commits_that_do_not_wait_for_the_disk_are_noticed():
    """The loss of power loses what it must: without synchronous=FULL the tool fails."""
    options = ["--power", "--unsynced", "--kills", "8"]
    done = subprocess.run(
        [sys.executable, str(TOOL), *options], capture_output=True, text=True, timeout=600
    )
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 1
    assert "rows are missing" in done.stderr or "lost at a kill" in done.stdout
