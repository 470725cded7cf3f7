"""Put stored results into the pages, and draw their figures anew: ``python tools/make_pages.py``.

They are read from docs/results, where ``python -m experiments.NAME --out`` wrote them; the tables
are those of the experiments. ``--campaign`` runs the campaign of the data center and stores what it
prints (it needs EnergyPlus). Tests check that the pages and figures agree with the files.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from experiments.common import markdown_of  # noqa: E402
from experiments.drawing import INK, looks_of, new_figure, svg  # noqa: E402

DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
CAMPAIGN = RESULTS / "energy" / "campaign.json"
#: Where the headline figure is, and the largest variance in it.
HEADLINE = RESULTS / "frontier" / "what-precision-costs.svg"
HIGHEST = 1.5


class Part(NamedTuple):
    """A part of a page: its mark, the experiment, and the stored files."""

    page: str
    mark: str
    experiment: str
    files: tuple[str, ...]


PARTS = (
    Part("reproduce-gridworld.md", "results", "gridworld", ("gridworld/gridworld.json",)),
    Part("reproduce-gridworld.md", "networks", "gridworld", ("gridworld-mlp/*.json",)),
    Part("reproduce-robots.md", "robots", "mujoco", ("mujoco/mujoco.json",)),
    Part("reproduce-robots.md", "robots, simulator", "mujoco", ("mujoco-simulator/mujoco.json",)),
    Part("reproduce-frontier.md", "frontier exact", "frontier", ("frontier*/frontier.json",)),
    Part(
        "reproduce-frontier.md",
        "frontier learned",
        "frontier",
        ("frontier*/frontier-learned.json",),
    ),
    Part("reproduce-frontier.md", "frontier robots", "mujoco", ("mujoco-frontier/*.json",)),
    Part("reproduce-environments.md", "foreign", "unseen_envs", ("foreign/foreign.json",)),
    Part("reproduce-environments.md", "choices", "choices", ("choices/*.json",)),
    Part("frontier.md", "unseen", "unseen_worlds", ("unseen-worlds/*.json",)),
    Part("reproduce-stages.md", "adaptive", "adaptive", ("adaptive/*.json",)),
    Part("reproduce-compare.md", "compare", "compare", ("compare/*.json",)),
    Part("data-center.md", "energy", "energy", ("energy/1-three-controllers.json",)),
    Part("data-center.md", "weather", "energy", ("energy/2-energy.json",)),
    Part("data-center.md", "context", "energy_context", ("energy_context/*.json",)),
    Part("context-tables.md", "context", "context", ("context/*.json",)),
    Part("context-tables.md", "exogeneity", "exogeneity", ("exogeneity/*.json",)),
    Part("data-center.md", "half", "energy", ("energy/3-half.json",)),
    Part("reproduce-verdicts.md", "verdicts", "verdicts", ("verdicts/verdicts.json",)),
)
#: The page that has the paper's numbers and ours side by side.
SUMMARY = "reproduce.md"
#: Figures that pages show, and their captions.
FIGURES = {
    "error-cost": "Error against cost spent",
    "error-episodes": "Error against episodes",
    "frontier": "Relative variance against relative cost",
    "cost-by-target": "Relative cost of the behavior policy, for each target policy",
    "calibration": "Predicted against measured variance and cost",
}


def page(name: str, text: str) -> str:
    """A page with the results that are stored now."""
    for part in PARTS:
        if part.page == name:
            shown = [shown_file(part, place) for place in files_of(part)]
            text = replaced(text, part.mark, "\n\n".join(shown) or "No full run is stored yet.")
    if name == SUMMARY:
        text = replaced(text, "beside the paper", beside_the_paper())
    if name == "data-center.md":
        told = json.loads(CAMPAIGN.read_text(encoding="utf-8"))
        printed = f"```sh\n{told['command']}\n```\n\n```text\n{told['printed'].rstrip()}\n```"
        text = replaced(text, "campaign", printed)
    return text


def replaced(text: str, mark: str, content: str) -> str:
    """The page with other content between the two comments of a mark."""
    part = re.compile(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end of {mark} -->)", re.DOTALL)
    return part.sub(lambda _: f"\n{content}\n\n", text)


def files_of(part: Part) -> list[Path]:
    """The stored files of a part."""
    return [place for pattern in part.files for place in sorted(RESULTS.glob(pattern))]


def shown_file(part: Part, place: Path) -> str:
    """Command, tables and figures of a stored result."""
    content = json.loads(place.read_text(encoding="utf-8"))
    if part.mark == "robots":
        add_beside(content)
    shown = [markdown_of(import_module(f"experiments.{part.experiment}"), content, notes=False)]
    learned = content["experiment"] == "frontier-learned"
    for name, words in FIGURES.items():
        for figure in sorted(place.parent.glob(f"{name}*.svg")):
            same_kind = (figure.stem == "frontier-learned") == learned
            if same_kind and (name == "frontier" or content["experiment"] != "frontier"):
                _, _, tail = figure.stem.partition(f"{name}-")
                caption = f"{words}, protocol {tail}" if tail in ("candidates", "bins") else words
                shown.append(f"![{caption}](results/{place.parent.name}/{figure.name})")
    return "\n\n".join(shown)


def figures(experiment: str) -> Iterator[tuple[Path, str]]:
    """Figures that lie beside the stored results of an experiment, and their SVG."""
    module = import_module(f"experiments.{experiment}")
    for part in PARTS:
        if part.experiment != experiment:
            continue
        for place in files_of(part):
            if any(place.parent.glob("*.svg")):
                content = json.loads(place.read_text(encoding="utf-8"))
                for title, figure in module.figure(content).items():
                    if (goal := place.with_name(f"{title}.svg")).is_file():
                        yield goal, svg(figure)


# -- ours beside the paper's -----------------------------------------------------------------------

#: Methods of the paper, and the one of ours that answers the same question.
SHOWN = ("scope", "odi", "ros", "scope-dr")


def beside_the_paper() -> str:
    """Relative variance at relative cost of every domain: ours, and the paper's in brackets."""
    lines = ["| domain | " + " | ".join(f"`{name}`" for name in SHOWN) + " |", "|---" * 5 + "|"]
    for file, title in (("gridworld/gridworld.json", _world), ("mujoco/mujoco.json", _robot)):
        content = json.loads((RESULTS / file).read_text(encoding="utf-8"))
        published = import_module(f"experiments.{Path(file).stem}").published
        for block in content["blocks"]:
            if (name := title(block)) is not None:
                cells = (_ours_and_theirs(block, method, published(block)) for method in SHOWN)
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _world(block: Mapping[str, Any]) -> str:
    return f"Gridworld {block['size']} x {block['size']}"


def _robot(block: Mapping[str, Any]) -> str | None:
    """Only the paper's protocol can be compared with it."""
    return str(block["robot"]) if block["protocol"] == "bins" else None


def _ours_and_theirs(
    block: Mapping[str, Any], method: str, published: Mapping[str, tuple[float, float, int]]
) -> str:
    for row in block["methods"]:
        if row["method"] == method:
            variance, cost = row["relative_variance"], row["relative_cost"]
            error = variance["standard_error"]
            cell = f"{variance['mean']:.2f} ± {error:.2f} @ {cost['mean']:.2f}"
            cell = cell.replace(" ", "&nbsp;")  # a line of its own, and the paper's below
            if row.get("used") and set(row["used"]) == {"on-policy"}:
                cell = "falls back"
            if method in published:
                variance, cost, _ = published[method]
                cell += f"<br>({variance:.2f}&nbsp;@&nbsp;{cost:.2f})"
            return cell
    return ""


# -- robots: the frontier's best point, and stages without logs, beside the methods ---------------


def add_beside(content: dict[str, Any]) -> None:
    """Give the tables rows of other experiments on the same robot."""
    for block in content["blocks"]:
        if block["protocol"] == "candidates":
            block["beside"] = beside(block["robot"])


def beside(robot: str) -> list[tuple[str, ...]]:
    """Rows of the frontier point with the least needed cost, and of stages without logs."""
    rows = []
    place = RESULTS / "mujoco-frontier" / f"{robot}.json"
    if place.is_file():
        [block] = json.loads(place.read_text(encoding="utf-8"))["blocks"]
        points = [_cheapest(block["points"], i) for i in range(len(block["targets"]))]
        rows.append(_cells("frontier", *zip(*points, strict=True)))
    place = RESULTS / "adaptive" / f"8-{robot}.json"
    if place.is_file():
        for row in json.loads(place.read_text(encoding="utf-8"))["rows"]:
            if (row["method"], row["logs"]) == ("adaptive", "none"):
                both = (row[name]["values"] for name in ("square", "cost"))
                rows.append(_cells("stages, no logs", *both))
    return rows


def _cheapest(points: list[dict[str, Any]], target: int) -> tuple[float, float]:
    """Measured variance and cost of the design that predicts the least product of the two.

    A target without a design is run as it is.
    """
    best, chosen = 1.0, (1.0, 1.0)
    for point in points:
        if point["verdicts"][target]:  # numbers are of targets with a design only
            at = sum(bool(verdict) for verdict in point["verdicts"][:target])
            names = ("variance", "cost", "predicted_variance", "predicted_cost")
            variance, cost, *predicted = (point[name]["values"][at] for name in names)
            if predicted[0] * predicted[1] < best:
                best, chosen = predicted[0] * predicted[1], (variance, cost)
    return chosen


def _cells(name: str, variances: Any, costs: Any) -> tuple[str, ...]:
    needed = [1000.0 * v * c for v, c in zip(variances, costs, strict=True)]
    return (
        f"{name} ({len(needed)} targets)",
        _mean(variances, ".3f"),
        f"{max(variances):.2f}",
        _mean(costs, ".3f"),
        f"{max(costs):.2f}",
        *("", ""),
        _mean(needed, ".0f"),
        f"{1.0 - statistics.mean(needed) / 1000.0:.0%}",
    )


def _mean(values: Any, form: str) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):{form}} ± {error:{form}}"


# -- the README's figure ---------------------------------------------------------------------------


def headline() -> str:
    """What precision costs on the Gridworld, as SVG."""
    exact, learned = (
        json.loads((RESULTS / "frontier" / f"{name}.json").read_text("utf-8"))["blocks"][0]
        for name in ("frontier", "frontier-learned")
    )
    names = {
        "best possible": "weight-aware",
        "best that ignores the weight": "weight-blind",
        "without a control variate": "b = 0",
    }
    lines: dict[str, list[tuple[float, float]]] = {}
    for label, family in names.items():
        points = exact["families"][family]
        lines[label] = [
            (p["asked"], p["relative_variance"]["mean"])
            for p in points
            if p["targets"] == points[0]["targets"] and p["relative_variance"]["mean"] <= HIGHEST
        ]
    lines["learned from 1,000 logged episodes"] = [
        (p["cost"]["mean"], p["variance"]["mean"]) for p in learned["points"] if p["variance"]
    ]
    with new_figure(4.8, 4.4) as figure:
        ax = figure.add_subplot()
        looks = looks_of(["scope-dr", "odi", "scope", "dopt"]).values()
        for (label, points), look in zip(lines.items(), looks, strict=True):
            x, y = zip(*points, strict=True)
            style: Mapping[str, Any] = {"color": look.color, "linestyle": look.line}
            ax.plot(x, y, marker=look.marker, ms=5, label=label, **style)
        ax.plot(1.0, 1.0, color=INK, marker="o", ms=8, ls="none", label="running the policy itself")
        ax.set_ylim(0.0, HIGHEST)
        ax.set_xlabel("cost of an episode / the policy's own")
        ax.set_ylabel("variance / the policy's own")
        figure.legend(loc="outside lower center", ncols=1)
        return svg(figure)


def run_campaign() -> None:
    """Run the data center's campaign, and store what it prints."""
    words = ["-m", "experiments.data_center.campaign"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, check=True, capture_output=True, text=True
    )
    content = {"command": f"python {' '.join(words)}", "printed": done.stdout}
    CAMPAIGN.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if "--campaign" in sys.argv[1:]:
        run_campaign()
    for which in dict.fromkeys([SUMMARY, *(part.page for part in PARTS)]):
        goal = DOCS / which
        goal.write_text(page(which, goal.read_text(encoding="utf-8")), encoding="utf-8")
    for experiment in ("gridworld", "mujoco", "frontier"):
        for goal, text in figures(experiment):
            goal.write_text(text, encoding="utf-8")
    HEADLINE.write_text(headline(), encoding="utf-8")
