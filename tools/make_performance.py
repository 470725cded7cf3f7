"""Put the stored measurements into docs/performance.md: ``python tools/make_performance.py``.

They are read from docs/results/bench, where ``python -m benchmarks --out`` wrote them. Tests check
that the page says what the files say, and that it explains every row that misses its goal.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from scopeval import __version__

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "performance.md"
RESULTS = DOCS / "results" / "bench"
PART = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)
TITLES = {
    "design": "From logs to a design",
    "evaluate": "A whole evaluation, time per step",
    "compare": "A comparison of several policies",
    "live": "One decision",
    "growth": "Growth: time per row, and slopes (1 is linear)",
    "solver": "Line 6, time per row",
}


def stored() -> dict[str, dict[str, Any]]:
    """The measurements, by benchmark."""
    files = {name: RESULTS / f"{name}.json" for name in TITLES}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in files.items()
        if path.is_file()
    }


def missed() -> list[str]:
    """Names of the rows that miss their goal."""
    return [row["name"] for each in stored().values() for row in each["rows"] if not _fine(row)]


def page(text: str) -> str:
    """The page with the measurements that are stored now."""
    found = stored()
    if not found:
        return PART.sub("\nNothing is stored yet; the command above measures.\n\n", text)
    parts = [
        f"**{TITLES[name]}**\n\n{_where(each)}\n\n{_table(each['rows'])}"
        for name, each in found.items()
    ]
    return PART.sub(lambda _: "\n" + "\n".join(parts) + "\n", text)


def _where(content: dict[str, Any]) -> str:
    machine, version = content["machine"], content["versions"]["scopeval"]
    older = "" if version == __version__ else ", older than the code you have"
    return (
        f"`{content['command']}`, {content['date'][:10]}, {machine['cores']} cores "
        f"({machine['cpu']}), version {version}{older}."
    )


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| | ours | peer or limit | ratio | goal | met | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        bound = {"slower": "at most", "faster": "at least"}[row["sense"]]
        cells = [
            row["name"],
            _amount(row["ours"], row["unit"]),
            _at_least(row, _amount(row["peer"], row["unit"])),
            _at_least(row, _times(row["ratio"])),
            "" if row["goal"] is None else f"{bound} {row['goal']:,g}",
            {True: "yes", False: "**no**", None: ""}[row["met"]],
            row["note"],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _fine(row: dict[str, Any]) -> bool:
    return row["goal"] is None or row["met"] is True


def _at_least(row: dict[str, Any], text: str) -> str:
    return f"> {text}" if row["stopped"] and text else text


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:,.{2 if ratio < 10 else 0}f}"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "not installed"
    if unit == "slope":
        return f"{value:.2f}"
    for name, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")
