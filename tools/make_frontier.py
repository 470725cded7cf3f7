"""Put the stored frontiers into docs/reproduce.md and draw them for the README.

    python tools/make_frontier.py

They are read from docs/results/frontier..., where ``scopeval reproduce frontier --out`` wrote them.
A test checks that the page agrees with the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reproduce.md"
#: Folders of runs; each may hold exact frontiers and learned ones.
FOLDERS = ("frontier", "frontier-30", "frontier-environments")
#: Frontiers of robots, a file for each run of ``scopeval reproduce mujoco --frontier``.
ROBOTS = DOCS / "results" / "mujoco-frontier"
#: Where the headline figure is, and the largest variance in it.
HEADLINE = DOCS / "results" / "frontier" / "what-precision-costs.svg"
HIGHEST = 1.5
NOTHING = "\nNo full run is stored yet; the command above makes one.\n\n"


def page(text: str) -> str:
    """The page with the results that are stored now."""
    for mark, file, table in (
        ("frontier exact", "frontier.json", exact_table),
        ("frontier learned", "frontier-learned.json", learned_table),
    ):
        part = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", re.DOTALL)
        shown = stored(file, table)
        text = part.sub(lambda _, shown=shown: shown or NOTHING, text)
    part = re.compile(
        r"(?<=<!-- frontier robots -->\n).*?(?=<!-- end of frontier robots -->)", re.DOTALL
    )
    return part.sub(lambda _: robots() or NOTHING, text)


def robots() -> str:
    """The stored frontiers of robots: command and table of each."""
    parts = []
    for place in sorted(ROBOTS.glob("*.json")):
        content = json.loads(place.read_text(encoding="utf-8"))
        parts.append(f"\n    {content['command']}\n")
        parts += [f"\n**{block['robot']}**\n\n{robot_table(block)}" for block in content["blocks"]]
    return "".join(parts) + "\n" if parts else ""


def robot_table(block: dict[str, Any]) -> str:
    """What designs at asked costs have in measured episodes, beside what they predicted."""
    header = ["asked cost", "targets", "variance", "cost", "largest / asked", "predicted", "safe"]
    rows = []
    for point in block["points"]:
        every, some = len(block["targets"]), point["variance"]
        many = 0 if some is None else len(some["values"])
        cells = [f"{point['asked']:.2f}", f"{many} of {every}"]
        if some is None:
            rows.append([*cells, *["-"] * 5])
            continue
        largest = max(point["cost"]["values"]) / point["asked"]
        safe = sum(verdict == "safe" for verdict in point["verdicts"])
        cells += [_spread(some), _spread(point["cost"]), f"{largest:.3f}"]
        rows.append([*cells, _spread(point["predicted_variance"]), f"{safe}"])
    return _markdown(header, rows)


def stored(file: str, table: Callable[[dict[str, Any]], str]) -> str:
    """All stored runs of one kind: their commands, tables and figures."""
    parts = []
    for folder in FOLDERS:
        place = DOCS / "results" / folder / file
        if not place.is_file():
            continue
        content = json.loads(place.read_text(encoding="utf-8"))
        parts.append(f"\n    {content['command']}\n")
        parts += [f"\n**{block['world']}**\n\n{table(block)}" for block in content["blocks"]]
        exact = file == "frontier.json"
        for figure in sorted(place.parent.glob("frontier-*.svg")):
            if (figure.stem == "frontier-learned") != exact:
                address = f"results/{folder}/{figure.name}"
                parts.append(f"\n![Relative variance against relative cost]({address})\n")
    return "".join(parts) + "\n" if parts else ""


def exact_table(block: dict[str, Any]) -> str:
    """Least variance at asked costs, by family."""
    families = block["families"]
    header = ["asked cost", *families]
    rows = []
    for k, point in enumerate(next(iter(families.values()))):
        cells = [_spread(family[k]["relative_variance"]) for family in families.values()]
        most = max(x["targets"] for x in next(iter(families.values())))
        many = [family[k]["targets"] for family in families.values()]
        told = [
            cell if n in (0, most) else f"{cell} ({n})" for cell, n in zip(cells, many, strict=True)
        ]
        rows.append([f"{point['asked']:.2f}", *told])
    even = [x for x in block["cost_at_equal_variance"] if x is not None]
    product = block["least_product"]
    note = f"Least product of variance and cost: {sum(product) / len(product):.3f}."
    if even:
        note = f"The target's own variance at {sum(even) / len(even):.3f} of its cost. {note}"
    return f"{_markdown(header, rows)}\n{note}\n"


def learned_table(block: dict[str, Any]) -> str:
    """What designs from logs have, beside what they predicted and what is possible."""
    header = ["asked cost", "exact", "learned", "true cost", "largest / asked", "predicted / true"]
    rows = []
    for point in block["points"]:
        if point["variance"] is None:
            rows.append([f"{point['asked']:.2f}", _spread(point["exact_variance"]), *["-"] * 4])
            continue
        costs, true = point["cost"]["values"], point["variance"]["values"]
        quotients = [
            p / t for p, t in zip(point["predicted_variance"]["values"], true, strict=True)
        ]
        everyone = len(point["exact_variance"]["values"])
        many = "" if point["targets"] == everyone else f" ({point['targets']})"
        rows.append(
            [
                f"{point['asked']:.2f}",
                _spread(point["exact_variance"]),
                _spread(point["variance"]) + many,
                _spread(point["cost"]),
                f"{max(costs) / point['asked']:.3f}",
                f"{min(quotients):.2f} to {max(quotients):.2f}",
            ]
        )
    return _markdown(header, rows)


def headline() -> str:
    """The README's figure: what precision costs on the Gridworld, as SVG."""
    from scopeval.paper.figures.drawing import INK, looks_of, new_figure, svg

    content = json.loads((DOCS / "results" / FOLDERS[0] / "frontier.json").read_text("utf-8"))
    block = content["blocks"][0]
    lines = {
        "best possible": block["families"]["weight-aware"],
        "best that ignores the weight": block["families"]["weight-blind"],
        "without a control variate": block["families"]["b = 0"],
    }
    shown = {
        label: [
            (p["asked"], p["relative_variance"]["mean"])
            for p in points
            if p["targets"] == points[0]["targets"] and p["relative_variance"]["mean"] <= HIGHEST
        ]
        for label, points in lines.items()
    }
    learned = DOCS / "results" / FOLDERS[0] / "frontier-learned.json"
    if learned.is_file():
        found = json.loads(learned.read_text("utf-8"))["blocks"][0]["points"]
        same = len(found[0]["exact_variance"]["values"]) == lines["best possible"][0]["targets"]
        found = found if same else []  # means over other targets are not to be compared
        shown["learned from 1,000 logged episodes"] = [
            (p["cost"]["mean"], p["variance"]["mean"]) for p in found if p["variance"] is not None
        ]
    with new_figure(4.8, 4.4) as figure:
        ax = figure.add_subplot()
        looks = looks_of(["scope-dr", "odi", "scope", "dopt"]).values()
        for (label, points), look in zip(shown.items(), looks, strict=False):
            if not points:
                continue
            x, y = zip(*points, strict=True)
            ax.plot(
                x, y, color=look.color, linestyle=look.line, marker=look.marker, ms=5, label=label
            )
        ax.plot(1.0, 1.0, color=INK, marker="o", ms=8, ls="none", label="running the policy itself")
        ax.set_ylim(0.0, HIGHEST)
        ax.set_xlabel("cost of an episode / the policy's own")
        ax.set_ylabel("variance / the policy's own")
        figure.legend(loc="outside lower center", ncols=1)
        return svg(figure)


def _spread(found: dict[str, Any] | None) -> str:
    """Mean and standard error; a dash where there is no design."""
    if found is None:
        return "-"
    error = found["standard_error"]
    return f"{found['mean']:.3f}" + ("" if error is None else f" ± {error:.3f}")


def _markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    HEADLINE.write_text(headline(), encoding="utf-8")
    print(f"written to {PAGE} and {HEADLINE}")
