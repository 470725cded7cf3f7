"""Put the stored results into docs/reproduce.md: ``python tools/make_results.py``.

They are read from docs/results/gridworld, foreign and mujoco..., where ``scopeval reproduce ...
--out`` wrote them. A test checks that the page agrees with the files.
"""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

from scopeval.paper.tables.foreign import measured

DOCS = Path(__file__).parents[1] / "docs"
PAGE = DOCS / "reproduce.md"
RESULTS = DOCS / "results" / "gridworld"
#: Gridworlds with the paper's own critics, a file for each run.
NETWORKS = DOCS / "results" / "gridworld-mlp"
FOREIGN = DOCS / "results" / "foreign"
#: Runs of the robots: the mark of their part of the page, and where they are.
ROBOTS = {
    "robots": DOCS / "results" / "mujoco",
    "robots, simulator": DOCS / "results" / "mujoco-simulator",
    "robots, simulator, episode": DOCS / "results" / "mujoco-simulator-episode",
    "robots, simulator, bins": DOCS / "results" / "mujoco-simulator-bins",
    "robots, episode": DOCS / "results" / "mujoco-episode",
    "robots, wide": DOCS / "results" / "mujoco-wide",
}
PART = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)
NOTHING = "\nNo full run is stored yet; the command above makes one.\n\n"
FIGURES = {
    "error-cost": "Error against cost spent",
    "error-episodes": "Error against episodes",
    "frontier": "Variance against cost for several epsilons",
    "cost-by-target": "Relative cost of the behavior policy, for each target policy",
}


ROBOTS_FIGURES = {
    "error-cost": "Error against cost spent",
    "calibration": "Predicted against measured variance and cost",
}


def page(text: str) -> str:
    """The page with the results that are stored now."""
    text = _networks(_gridworld(text))
    for mark, folder in ROBOTS.items():
        text = _robots(text, mark, folder)
    return _foreign(text)


def _gridworld(text: str) -> str:
    place = RESULTS / "gridworld.json"
    if not place.is_file():
        return PART.sub(NOTHING, text)
    content = json.loads(place.read_text(encoding="utf-8"))
    shown = _part(content, RESULTS, [_block(block) for block in content["blocks"]], FIGURES)
    return PART.sub(lambda _: shown, text)


def _networks(text: str) -> str:
    part = re.compile(r"(?<=<!-- networks -->\n).*?(?=<!-- end of networks -->)", re.DOTALL)
    runs = [json.loads(place.read_text(encoding="utf-8")) for place in sorted(NETWORKS.iterdir())]
    shown = "".join(
        _part(content, NETWORKS, [_block(block) for block in content["blocks"]], {})
        for content in runs
    )
    return part.sub(lambda _: shown, text)


def _robots(text: str, mark: str, folder: Path) -> str:
    part = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", re.DOTALL)
    place = folder / "mujoco.json"
    if not place.is_file():
        return part.sub(NOTHING, text)
    content = json.loads(place.read_text(encoding="utf-8"))
    figures = {
        f"{name}-{protocol}": f"{words}, protocol {protocol}"
        for protocol in content["config"]["protocols"]
        for name, words in ROBOTS_FIGURES.items()
    }
    tables = [_robot(block, beside=mark == "robots") for block in content["blocks"]]
    shown = _part(content, folder, tables, figures)
    return part.sub(lambda _: shown, text)


def _foreign(text: str) -> str:
    part = re.compile(r"(?<=<!-- foreign -->\n).*?(?=<!-- end of foreign -->)", re.DOTALL)
    place = FOREIGN / "foreign.json"
    if not place.is_file():
        return part.sub(NOTHING, text)
    content = json.loads(place.read_text(encoding="utf-8"))
    tables = [_counted(content["summary"]), _outside(content["exceptions"])]
    shown = _part(content, FOREIGN, tables, {})
    return part.sub(lambda _: shown, text)


def _counted(groups: list[dict[str, Any]]) -> str:
    lines = [
        "| environment | targets | designs | fall back | mean variance | worst | above "
        "| worst cost | above | well predicted |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for group in groups:
        predicted = group["well_predicted_departures"]
        cells = [
            group["environment"],
            group["half"],
            f"{group['designs']}",
            f"{group['fall_back']}",
            f"{group['mean_variance']:.3f}",
            measured(group["worst_variance"], group.get("worst_variance_error", 0.0)),
            f"{group['too_variable']}",
            measured(group["worst_cost"], group.get("worst_cost_error", 0.0), 4),
            f"{group['too_expensive']}",
            "" if predicted is None else f"{predicted:.0%}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _outside(rows: list[dict[str, Any]]) -> str:
    """The designs outside the limits."""
    if not rows:
        return "No design is outside the limits.\n"
    lines = [
        "The designs outside the limits:\n",
        "| environment, target | logs | method | variance | predicted | checked | cost | predicted "
        "| checked |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        asked, used = row["method"], row["used"]
        cells = [
            f"{row['environment']} {row['target']}",
            f"{row['episodes']:,}" if row["logs"] == "mixed" else row["logs"],
            asked if asked == used else f"{asked}, used {used}",
            measured(row["variance"], row.get("variance_error", 0.0)),
            *(f"{row[name]:.3f}" for name in ("predicted_variance", "checked_variance")),
            measured(row["cost"], row.get("cost_error", 0.0), 4),
            *(f"{row[name]:.4f}" for name in ("predicted_cost", "checked_cost")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _part(content: dict[str, Any], folder: Path, tables: list[str], figures: dict[str, str]) -> str:
    """The command, its tables, those figures that are there, and how long it took."""
    parts = [f"```sh\n{content['command']}\n```\n", *tables]
    for name, words in figures.items():
        if (folder / f"{name}.svg").is_file():
            parts.append(f"![{words}](results/{folder.name}/{name}.svg)\n\n*{words}.*\n")
    where = f"on a machine with {_cores(content)}."
    took = f"Run time: {content['seconds']:.0f} s {where}"
    if content["seconds"] < 1 or content.get("kept"):  # some of the work is of an earlier run
        took = f"Computed {where}"
    return "\n" + "\n".join([*parts, took]) + "\n\n"


def _robot(block: dict[str, Any], beside: bool) -> str:
    many = len(block["targets"])
    counted = many - len(block["excluded"])
    lines = [
        f"**{block['robot']}, {block['protocol']}** ({counted} of {many} targets)\n",
        "| method | variance | worst | cost | most expensive | paired | predicted | needed | saved "
        "| paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in block["methods"]:
        if row["method"] == "on-policy":
            continue
        predicted = [row.get(f"predicted_{name}", {}).get("mean") for name in ("variance", "cost")]
        cells = [
            row["method"],
            _plus_minus(row["relative_variance"], ".3f"),
            _extreme(row["worst"]),
            _plus_minus(row["relative_cost"], ".3f"),
            _extreme(row["most_expensive"]),
            _paired(row.get("certified_cost")),
            "" if None in predicted else "{:.3f}, {:.3f}".format(*predicted),
            _plus_minus(row["cost_needed"], ".0f"),
            f"{row['saved']:.0%}",
            _paper(block["paper"].get(row["method"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if beside and block["protocol"] == "candidates":
        lines += [f"| {' | '.join(cells)} |" for cells in _beside(block["robot"])]
    if block["excluded"]:
        names = ", ".join(block["excluded"])
        lines.append(f"\nNo variance to reduce, left out of the means: {names}.")
    return "\n".join(lines) + "\n"


def _beside(robot: str) -> list[list[str]]:
    """Rows of the frontier point with the least needed cost, and of stages without logs."""
    rows = []
    place = RESULTS.parent / "mujoco-frontier" / f"{robot}.json"
    if place.is_file():
        [block] = json.loads(place.read_text(encoding="utf-8"))["blocks"]
        points = [_cheapest(block["points"], i) for i in range(len(block["targets"]))]
        rows.append(_cells_beside("frontier", *zip(*points, strict=True)))
    place = RESULTS.parent / "adaptive" / f"8-{robot}.json"
    if place.is_file():
        for row in json.loads(place.read_text(encoding="utf-8"))["rows"]:
            if (row["method"], row["logs"]) == ("adaptive", "none"):
                both = (row[name]["values"] for name in ("square", "cost"))
                rows.append(_cells_beside("stages, no logs", *both))
    return rows


def _cheapest(points: list[dict[str, Any]], target: int) -> tuple[float, float]:
    """Measured variance and cost of the design that predicts the least product of the two.

    A target without a design is run as it is.
    """
    best, found = 1.0, (1.0, 1.0)
    for point in points:
        if point["verdicts"][target]:  # numbers are of targets with a design only
            at = sum(bool(verdict) for verdict in point["verdicts"][:target])
            numbers = {name: point[name]["values"][at] for name in _NUMBERS}
            product = numbers["predicted_variance"] * numbers["predicted_cost"]
            if product < best:
                best, found = product, (numbers["variance"], numbers["cost"])
    return found


_NUMBERS = ("variance", "cost", "predicted_variance", "predicted_cost")


def _cells_beside(name: str, variances: Any, costs: Any) -> list[str]:
    needed = [1000.0 * v * c for v, c in zip(variances, costs, strict=True)]
    return [
        f"{name} ({len(needed)} targets)",
        _mean(variances, ".3f"),
        f"{max(variances):.2f}",
        _mean(costs, ".3f"),
        f"{max(costs):.2f}",
        "",
        "",
        _mean(needed, ".0f"),
        f"{1.0 - statistics.mean(needed) / 1000.0:.0%}",
        "",
    ]


def _mean(values: Any, how: str) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):{how}} ± {error:{how}}"


def _paired(certified: dict[str, Any] | None) -> str:
    """Mean cost by the certificates, over the targets that have one."""
    values = [value for value in (certified or {}).get("values", []) if value is not None]
    if len(values) < 2:
        return ""
    return _mean(values, ".3f")


def _extreme(one: dict[str, Any]) -> str:
    return f"{one['value']:.2f} ± {one['error']:.2f}"


def _block(block: dict[str, Any]) -> str:
    size = block["size"]
    lines = [
        f"**{size} x {size}, cost law {block['cost_law']}**\n",
        "| method | variance | cost | worst state | needed | saved | crossing | in the paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in block["methods"]:
        if row["method"] == "on-policy":
            continue
        worst = row["worst_state"]
        cells = [
            row["method"],
            _plus_minus(row["relative_variance"], ".3f"),
            _plus_minus(row["relative_cost"], ".3f"),
            f"{max(worst['values']):.2f}" if worst else "",
            _plus_minus(row["cost_needed"], ".0f"),
            f"{row['saved']:.0%}",
            _crossing(row["crossing"]),
            _paper(block["paper"].get(row["method"])),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _plus_minus(statistic: dict[str, Any], form: str) -> str:
    error = statistic["standard_error"]
    mean = format(statistic["mean"], form)
    return mean if error is None else f"{mean} ± {format(error, form)}"


def _crossing(crossing: dict[str, Any]) -> str:
    if crossing["cost"] is None:
        return "not reached"
    return _plus_minus({"mean": crossing["cost"], **crossing}, ".0f")


def _paper(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    return f"{row['relative_variance']:.3f}, {row['relative_cost']:.3f}, {row['cost_needed']}"


def _cores(content: dict[str, Any]) -> str:
    machine = content.get("machine", {})
    cores = machine.get("cores", "?")
    return f"{cores} core{'s' * (cores != 1)} ({machine.get('cpu', 'unknown')})"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written to {PAGE}")
