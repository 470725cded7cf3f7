"""The process that computes new designs: what it imports, and what is told when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from machine import HORIZON, run_episode, tables

from scopeval import Campaign, Stages, Stop

TARGET, _ = tables()
SETTINGS = Stages(first=5, method="odi")
SOURCE = Path(__file__).parents[2] / "src"


def test_a_refit_that_fails_is_told_and_not_started_after_every_episode(place, monkeypatch):
    """Thirty episodes end while the design is due; it was started after each of them.

    After the first one a process that loads nothing fails in its place, which is faster.
    """
    with Campaign.create(
        place / "c",
        TARGET,
        horizon=HORIZON,
        refit=SETTINGS,
        stop=Stop(episodes=35),
        target_name="no_such_module:policy",
    ) as campaign:
        for _ in range(35):
            run_episode(campaign)
            campaign.backend.refitting.wait(300)
            if campaign.status().refit_failure:
                monkeypatch.setattr("scopeval.campaign.refit.PROGRAM", "raise OSError('full')")
        failed = [event for event in campaign.events() if event.kind == "refit failed"]
        assert [event.data["failures"] for event in failed] == [1, 2, 3, 4]
        text = failed[0].text
        assert "refit 1 failed (exit code 1: ModuleNotFoundError" in text
        assert "'no_such_module'" in text
        assert text.endswith("design 0 stays in use")
        status = campaign.status()
        assert status.refit_due
        assert status.refit_failure == failed[-1].text
        assert failed[-1].text in str(status)
        assert "(exit code 1: OSError: full)" in failed[-1].text
        campaign.start_refit()  # an operator does not wait
        campaign.backend.refitting.wait(300)
        assert campaign.events()[-1].data["failures"] == 5
        assert campaign.refit()  # a design by hand
        assert campaign.status().refit_failure is None


def test_the_end_by_a_signal_is_told(place):
    with Campaign.create(
        place / "c", TARGET, horizon=HORIZON, refit=SETTINGS, target_name="no_such_module:policy"
    ) as campaign:
        campaign.backend.refitting.start()
        campaign.backend.refitting._running.kill()
        campaign.backend.refitting.wait(300)
        assert "ended by SIGKILL" in campaign.events()[-1].text


@pytest.mark.parametrize("had", [False, True], ids=["elsewhere", "here"])
def test_the_process_imports_what_the_program_could_import(tmp_path, had):
    """What lies in the current folder is not run, unless the program itself imports from there.

    The target is in the folder of the program.
    """
    (tmp_path / "current").mkdir()
    (tmp_path / "program").mkdir()
    owned = "from pathlib import Path\nPath(__file__).with_name('OWNED').touch()\n"
    for name in ("json", "numba", "extra"):  # Python's own, ours, and one of the program
        (tmp_path / "current" / f"{name}.py").write_text(owned)
    (tmp_path / "program" / "own_target.py").write_text(
        ("import extra\n" if had else "")
        + f"import numpy as np\npolicy = np.array({TARGET.tolist()})\n"
    )
    (tmp_path / "program" / "run.py").write_text(
        textwrap.dedent(
            f"""
            import sys
            {"sys.path.append('')" if had else ""}
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from own_target import policy
            from machine import HORIZON, run_episode
            from scopeval import Campaign, Stages

            with Campaign.create(
                "c.campaign", policy, horizon=HORIZON, refit=Stages(first=5, method="odi"),
                target_name="own_target:policy",
            ) as campaign:
                for _ in range(5):
                    run_episode(campaign)
                campaign.backend.refitting.wait(120)
                kinds = [event.kind for event in campaign.events()]
                assert "design" in kinds, campaign.events()[-1].text
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program" / "run.py")],
        cwd=tmp_path / "current",
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "current" / "OWNED").exists() == had
