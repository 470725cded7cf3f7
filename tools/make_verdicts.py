"""Put the stored rates of wrong verdicts into docs/safety.md: ``python tools/make_verdicts.py``.

They are read from docs/results/verdicts, where ``scopeval reproduce verdicts --out`` wrote them. A
test checks that the page agrees with the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "safety.md"
RESULTS = DOCS / "results" / "verdicts" / "verdicts.json"
PART = re.compile(r"(?<=<!-- verdicts -->\n).*?(?=<!-- end of verdicts -->)", re.DOTALL)
RULES = ("t interval", "as far as seen", "stated bound")


def page(text: str) -> str:
    """The page with the results that are stored now."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [
        f"```sh\n{content['command']}\n```\n",
        "| world | episodes | wrong verdict: t interval | without a bound | with a bound "
        "| right verdict: t interval | without a bound | with a bound "
        "| alarms: without a bound | with a bound |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for block in content["blocks"]:
        wrong, right = ("safe", "refuted") if block["ratio"] > 1 else ("refuted", "safe")
        rows = {(row["episodes"], row["rule"]): row for row in block["rows"]}
        for episodes in dict.fromkeys(row["episodes"] for row in block["rows"]):
            found: list[dict[str, Any]] = [rows[episodes, rule] for rule in RULES]
            cells = [f"{block['world']}, {block['ratio']:.3f}", f"{episodes:,}"]
            cells += [f"{row[wrong]:.3f}" for row in found]
            cells += [f"{row[right]:.3f}" for row in found]
            cells += [f"{row['alarm']:.3f}" for row in found[1:]]
            lines.append(f"| {' | '.join(cells)} |")
    shown = "\n" + "\n".join(lines) + "\n\n"
    return PART.sub(lambda _: shown, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")
