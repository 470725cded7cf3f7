"""Put the stored results into docs/adaptive.md: ``python tools/make_adaptive.py``.

They are read from docs/results/adaptive, one file for each run of ``scopeval reproduce adaptive``.
A test checks that the page agrees with the files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "adaptive.md"
RESULTS = DOCS / "results" / "adaptive"
PART = re.compile(r"(?<=<!-- adaptive -->\n).*?(?=<!-- end of adaptive -->)", re.DOTALL)
HEADER = (
    "| logs | method | squared error | measured | cost | most expensive | covered | ever missed "
    "| logs dropped |"
)


def page(text: str) -> str:
    """The page with the results that are stored now."""
    shown = "\n" + "\n".join(
        _run(json.loads(place.read_text(encoding="utf-8")))
        for place in sorted(RESULTS.glob("*.json"))
    )
    return PART.sub(lambda _: shown + "\n", text)


def _run(content: dict[str, Any]) -> str:
    """The tables of one run, a command below each set."""
    parts = []
    epsilon = content["config"]["epsilon"]
    for world in content["config"]["worlds"]:
        rows = [row for row in content["rows"] if row["world"] == world]
        asked = "" if epsilon == 0 else f", {1 + epsilon:g} of the target policy's cost asked for"
        lines = [f"**{world}{asked}**", "", HEADER, "|---" * 9 + "|"]
        lines += [f"| {' | '.join(_cells(row))} |" for row in rows]
        parts.append("\n".join(lines) + "\n")
    return "\n".join([*parts, f"```sh\n{content['command']}\n```\n"])


def _cells(row: dict[str, Any]) -> list[str]:
    logs = f"{int(row['logs']):,} episodes" if row["logs"].isdigit() else row["logs"]
    dropped = None if row["logs"] == "none" else row["dropped"]
    return [
        logs,
        row["method"],
        _text(row["square"], 3),
        "" if row["measured"] is None else _text(row["measured"], 2),
        _text(row["cost"], 3),
        f"{max(row['cost']['values']):.3f}",
        _share(row["covered"]),
        _share(row["missed"]),
        _share(dropped),
    ]


def _text(found: dict[str, Any], digits: int) -> str:
    error = found["standard_error"]
    mean = f"{found['mean']:.{digits}f}"
    return mean if error is None else f"{mean} ± {error:.{digits}f}"


def _share(found: dict[str, Any] | None) -> str:
    return "" if found is None else f"{found['mean']:.1%}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")
