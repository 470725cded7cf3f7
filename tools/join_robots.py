"""Join runs of ``scopeval reproduce mujoco`` for single robots into one result.

    python tools/join_robots.py results/Ant results/Hopper ... --out docs/results/mujoco
    python tools/make_result_figures.py

A robot's numbers do not depend on the other robots of a run, so a long experiment may be divided
among sittings or machines. All runs must have the same settings; seconds add up.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scopeval._files import write_json


def joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result of several.

    Args:
        runs: contents of their JSON files.

    Raises:
        ValueError: a robot comes twice, or the settings differ.
    """
    runs = sorted(runs, key=lambda run: str(run["config"]["robots"]))
    robots = [robot for run in runs for robot in run["config"]["robots"]]
    if len(set(robots)) < len(robots):
        raise ValueError(f"robots: got {', '.join(robots)}, expected each once")
    settings = [{**run["config"], "robots": []} for run in runs]
    for run, own in zip(runs, settings, strict=True):
        if own != settings[0]:
            odd = sorted(key for key in own if own[key] != settings[0].get(key))
            names = ", ".join(run["config"]["robots"])
            raise ValueError(f"{names}: other settings ({', '.join(odd)}) than the first run")
    first = runs[0]
    before, after = first["command"].split("--robots", 1)
    rest = after.split("--protocols", 1)[1]
    named = " ".join(f"--robots {robot}" for robot in robots)
    return {
        **first,
        "command": f"{before}{named} --protocols{rest}",
        "date": max(run["date"] for run in runs),
        "seconds": round(sum(run["seconds"] for run in runs), 1),
        **({"kept": True} if any(run.get("kept") for run in runs) else {}),
        "config": {**first["config"], "robots": robots},
        "blocks": [block for run in runs for block in run["blocks"]],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Join runs of single robots.")
    parser.add_argument("folders", nargs="+", type=Path, help="each with a mujoco.json")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    runs = [json.loads((f / "mujoco.json").read_text(encoding="utf-8")) for f in given.folders]
    content = joined(runs)
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "mujoco.json", content)
    print(f"{len(content['config']['robots'])} robots: {given.out / 'mujoco.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
