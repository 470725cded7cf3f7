"""Draw the figures of stored results anew: ``python tools/make_result_figures.py``.

``scopeval reproduce ... --out`` draws them too. This is for changes of how figures look: they are
drawn from the JSON files in docs/results, and nothing is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopeval.paper.figures.drawing import svg
from scopeval.paper.figures.frontier_exact import frontiers_by_cost
from scopeval.paper.figures.frontier_learned import learned_frontiers
from scopeval.paper.figures.gridworld import draw_gridworld
from scopeval.paper.figures.mujoco import draw_robots

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "docs" / "results"
#: Name of a JSON file -> what draws its figures.
DRAW: dict[str, Callable[[Mapping[str, Any]], dict[str, Figure]]] = {
    "gridworld": draw_gridworld,
    "mujoco": draw_robots,
    "frontier": frontiers_by_cost,
    "frontier-learned": learned_frontiers,
}


def figures(name: str) -> Iterator[tuple[Path, str]]:
    """Files of the figures that belong to all JSON files of a name, and the SVG of each."""
    for file in sorted(RESULTS.glob(f"*/{name}.json")):
        stored = json.loads(file.read_text(encoding="utf-8"))
        if "benchmark" in stored:  # of the same name
            continue
        drawn = DRAW[name](stored)
        for title, figure in drawn.items():
            place = file.parent / f"{title}.svg"
            if place.is_file():  # the pages show some of them
                yield place, svg(figure)


if __name__ == "__main__":
    for which in DRAW:
        for where, text in figures(which):
            where.write_text(text, encoding="utf-8")
            print(where)
