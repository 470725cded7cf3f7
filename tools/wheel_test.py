"""Build the wheel, install it into clean environments and use it there: ``make wheel-test``.

For every Python from 3.11 to 3.14 that is found on this machine; the others are named as skipped.
Dependencies have the versions of constraints.txt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")

#: Runs in the new environment: from logs to a report, with files that only a whole wheel has.
SMOKE = """
import importlib.util
import sys
from pathlib import Path
import numpy as np
import scopeval
from scopeval import Inference, design, evaluate, load, write_logs
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.report import page_of_evaluation, write_report

assert sys.prefix in scopeval.__file__, scopeval.__file__
assert importlib.util.find_spec("torch") is None  # an extra
world = Gridworld(size=4, seed=0).mdp()
logs, policy = gridworld_logs(world, 200), target_policies(1, size=4)[0]
behavior = design(logs, policy, horizon=4)
result = evaluate(world, policy, behavior, episodes=200, inference=Inference(keep=True))
truth = world.initial @ scopeval.exact.values(world, policy).v[0]
assert abs(result.estimate - truth) < 10 * result.interval.half_width
behavior.save("grid.scope")
assert load("grid.scope", policy).predicted == behavior.predicted
write_report(page_of_evaluation(result, behavior), "report.html")
assert "<svg" in Path("report.html").read_text(encoding="utf-8")
write_logs(logs, "logs.parquet")
np.save("policy.npy", policy.table(1)[0])
"""
COMMANDS = (
    ("--help",),
    ("check", "logs.parquet", "--policy", "policy.npy", "--horizon", "4"),
    ("design", "--data", "logs.parquet", "--policy", "policy.npy", "--horizon", "4",
     "--out", "again.scope"),
)  # fmt: skip


def interpreters(versions: Sequence[str] = VERSIONS) -> dict[str, str | None]:
    """A program for each version of Python; None: there is none on this machine."""
    return {version: _interpreter(version) for version in versions}


def _interpreter(version: str) -> str | None:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    on_path = shutil.which(f"python{version}")
    candidates = [sys.executable, *([on_path] if on_path else [])]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for program in candidates:
        ask = [program, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        told = subprocess.run(ask, capture_output=True, text=True, check=False)
        if told.returncode == 0 and told.stdout.strip() == version:
            return program
    return None


def build(folder: Path) -> Path:
    """The wheel."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True)
    (wheel,) = folder.glob("scopeval-*.whl")
    return wheel


def missing_files(wheel: Path) -> set[str]:
    """Files of the package that are under version control and not in the wheel."""
    listed = subprocess.run(
        ["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    with zipfile.ZipFile(wheel) as archive:
        return {name.removeprefix("src/") for name in listed} - set(archive.namelist())


def install(program: str, folder: Path, wheel: Path) -> Path:
    """A clean environment with the wheel in it; returns its programs' folder."""
    subprocess.run([program, "-m", "venv", str(folder)], check=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(programs / "python"), "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, str(wheel)], check=True)
    return programs


def use(programs: Path, folder: Path) -> None:
    """Run the smoke test in an empty folder, without this repository's code."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    python = [str(programs / "python"), "-I", "-W", "error", "-c", SMOKE]
    subprocess.run(python, cwd=folder, env=clean, check=True)
    for words in COMMANDS:
        command = [str(programs / "scopeval"), *words]
        subprocess.run(command, cwd=folder, env=clean, check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Try every version; 1 where one fails, or none could be tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--versions", nargs="*", default=list(VERSIONS))
    asked = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as place:
        wheel = build(Path(place))
        if left := missing_files(wheel):
            print("not in the wheel:", *sorted(left))
            return 1
        for version, program in interpreters(asked.versions).items():
            if program is None:
                results[version] = "skipped: no such Python on this machine"
                continue
            empty = Path(place, f"work-{version}")
            empty.mkdir()
            try:
                use(install(program, Path(place, version), wheel), empty)
                results[version] = "passed"
            except subprocess.CalledProcessError as failure:
                results[version] = f"FAILED: {failure.cmd[:3]}"
    for version, result in results.items():
        print(f"Python {version}: {result}")
    passed = any(result == "passed" for result in results.values())
    return 0 if passed and not any("FAILED" in result for result in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
