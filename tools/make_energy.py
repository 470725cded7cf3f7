"""Put the stored results into docs/data-center.md: ``python tools/make_energy.py``.

They are read from docs/results/energy: a file for each run of ``scopeval reproduce energy``, and
``campaign.json``, what examples/data_center_campaign.py printed. ``--campaign`` runs that example
and stores it anew; it needs EnergyPlus. A test checks that the page agrees with the files.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "data-center.md"
RESULTS = ROOT / "docs" / "results" / "energy"
CAMPAIGN = "campaign.json"
EXAMPLE = "examples/data_center_campaign.py"
#: Parts of the page, and the results that they show.
FILES = {
    "energy": "1-three-controllers.json",
    "weather": "2-energy.json",
    "half": "3-half.json",
}
HEADER = (
    "| controller | method | days | kWh a day | squared error | overheating | certificate "
    "| predicted |"
)


def page(text: str) -> str:
    """The page with the results that are stored now."""
    for name, file in FILES.items():
        text = _replaced(text, name, _table(json.loads((RESULTS / file).read_text("utf-8"))))
    told = json.loads((RESULTS / CAMPAIGN).read_text(encoding="utf-8"))
    shown = f"```sh\n{told['command']}\n```\n\n```text\n{told['printed'].rstrip()}\n```"
    return _replaced(text, "campaign", shown)


def _replaced(text: str, name: str, content: str) -> str:
    """The page with other content between the two comments of a name."""
    part = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)", re.DOTALL)
    return part.sub(lambda _: f"\n{content}\n\n", text)


def _table(content: dict[str, Any]) -> str:
    """The rows of one run, and its command."""
    lines = [HEADER, "|---" * 8 + "|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in content["rows"]]
    return "\n".join([*lines, "", "```sh", content["command"], "```"])


def _cells(row: dict[str, Any]) -> list[str]:
    if row["value"] is None:
        return [row["target"], row["method"], "0", "", "", "", "no design is offered", ""]
    told = row["verdict"]
    if row["ratio"] is not None and None not in row["ratio"]:
        told += f", {row['ratio'][0]:.2f} to {row['ratio'][1]:.2f}"
    predicted = row["predicted"]
    return [
        row["target"],
        row["method"],
        f"{row['days']:,}",
        _text(row["value"], 1),
        _text(row["square"], 2),
        _text(row["cost"], 2),
        told,
        "" if predicted is None else f"{predicted[0]:.2f}, {predicted[1]:.2f}",
    ]


def _text(found: list[float], digits: int) -> str:
    return f"{found[0]:.{digits}f} ± {found[1]:.{digits}f}"


def run_campaign() -> None:
    """Run the example, and store what it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / EXAMPLE)], check=True, capture_output=True, text=True
    )
    content = {"command": f"python {EXAMPLE}", "printed": done.stdout}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / CAMPAIGN).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if "--campaign" in sys.argv[1:]:
        run_campaign()
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")
