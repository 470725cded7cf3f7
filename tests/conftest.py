"""Where the environment variable CI is "true", a test that is skipped has failed.

A gate that skips what it cannot run says nothing about it. `EXCUSED` holds the only exceptions.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: No example may fail because a machine is busy, and no new one by chance: `make test` has the same
#: examples in every run. `make test-heavy` searches further ones (the profile "search").
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same examples", derandomize=True, **PATIENT)
settings.register_profile("search", derandomize=False, print_blob=True, **PATIENT)
settings.load_profile("same examples")

#: Where the files of tests are, if there is room: campaigns wait for a disk at every step. What a
#: lost disk does is tested by `tools/crash_campaigns.py`.
MEMORY, ROOM = Path("/dev/shm"), 2 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

#: Reasons to skip that hold on a machine where everything that `make test` and .ci/run install is
#: there. Python packages of `make test`, a browser and PostgreSQL are not among them.
EXCUSED = (
    "root may write everywhere",
    "there is one",  # tests of what is said without a GPU
    "d3rlpy is not installed: make bench",  # only `make bench` installs it
    r"datasets \(Hugging Face\) is not installed",  # no extra does; other tests read such rows
    "RLlib is not installed",  # nor this one, which needs more than Ray
    "no (bash|curl|jq|node) here, in which some plants are programmed",
)
#: EnergyPlus has wheels for these machines only (pyproject.toml).
ENERGYPLUS = (("linux", "x86_64"), ("darwin", "arm64"))
if (sys.platform, platform.machine()) not in ENERGYPLUS:
    EXCUSED = (*EXCUSED, "no EnergyPlus here.*")

#: Folders and files whose tests are all `heavy`: benchmarks, and worlds of the laboratory whose
#: results are stored.
HEAVY = tuple(
    Path(__file__).parent / name
    for name in (
        "benchmarks",
        "experiments/baselines",
        "experiments/mlp",
        "experiments/robots",
        "experiments/test_data_center.py",
        "experiments/test_energy_experiment.py",
        "experiments/test_lunar_lander.py",
        "experiments/test_mujoco_experiment.py",
        "experiments/test_vectors.py",
    )
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder for a campaign."""
    return tmp_path


def is_heavy(path: Path) -> bool:
    """Whether all tests of a file are."""
    return any(path.is_relative_to(place) for place in HEAVY)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what is left out anyway."""
    left_out = config.getoption("markexpr") == "not heavy"
    return True if left_out and is_heavy(collection_path) else None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in these folders."""
    for item in items:
        if is_heavy(item.path):
            item.add_marker("heavy")


def unexcused(reason: str) -> bool:
    """Whether a test that is skipped for this reason has failed."""
    if os.environ.get("CI") != "true":
        return False
    return not any(re.fullmatch(one, reason.removeprefix("Skipped: ")) for one in EXCUSED)


def _judged(report: Any) -> Any:
    if not report.skipped or hasattr(report, "wasxfail"):
        return report
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if unexcused(reason):
        report.outcome = "failed"
        report.longrepr = f"{reason}\n(skipped, and CI=true: see EXCUSED in tests/conftest.py)"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Any:
    """A test."""
    return _judged((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Any:
    """A whole file."""
    return _judged((yield))
