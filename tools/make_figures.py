"""Draw the pictures of docs/how-it-works.md: ``python tools/make_figures.py``.

Everything in them is computed here, by the library. The same bytes every time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scopeval import solve
from scopeval.arrays import Floats
from scopeval.report import figure_of
from scopeval.report.svg import INK, LINE, OURS, OWN, SOFT, UNSAFE, canvas

FOLDER = Path(__file__).parents[1] / "docs" / "figures"

#: The pages' colors, light and dark; a figure follows the scheme of the page it stands in.
LIGHT = "--soft:#56606a;--line:#d9dcdf;--ours:#0b63b5;--own:#b35900;--good:#1a7f37;--bad:#b42318"
DARK = "--soft:#a5afb9;--line:#454c54;--ours:#6cb2f2;--own:#f0a35e;--good:#5cc27a;--bad:#ff8a7d"
STYLE = (
    f"<style>svg{{color:#1c2126;--card:#fff;{LIGHT};font-family:system-ui,sans-serif}}"
    f"@media(prefers-color-scheme:dark){{svg{{color:#e3e6e9;--card:#1f2129;{DARK}}}}}</style>"
)

#: A bandit: the policy's probabilities, mean reward and its spread, cost of four actions.
PI = np.array([0.4, 0.1, 0.4, 0.1])
REWARD = np.array([1.0, 6.0, 1.0, 8.0])
SPREAD = np.array([1.0, 3.0, 1.0, 4.0])
COST = np.array([1.0, 2.0, 2.0, 5.0])

WEIGHT = PI * np.sqrt(REWARD**2 + SPREAD**2)  # w = pi sqrt(X)
VALUE, OWN_COST = float(PI @ REWARD), float(PI @ COST)


def behavior(epsilon: float) -> Floats:
    """The bandit's best behavior policy within (1 + epsilon) times the policy's cost."""
    budget = (1 + epsilon) * OWN_COST
    return np.asarray(solve(WEIGHT[None], COST[None], np.array([budget])).mu[0])


def relative(mu: Floats) -> tuple[float, float]:
    """Variance and cost of one pull, relative to the policy's own."""
    own = float((WEIGHT**2 / PI).sum()) - VALUE**2
    return (float((WEIGHT**2 / mu).sum()) - VALUE**2) / own, float(mu @ COST) / OWN_COST


def tilt() -> str:
    """Probabilities of four actions: the policy, the best without a budget, the best within it."""
    free = WEIGHT / WEIGHT.sum()
    rows = [
        ("the policy itself", PI, OWN),
        ("least variance, no budget", free, SOFT),
        ("least variance within the policy's cost", behavior(0.0), OURS),
    ]
    with canvas(7.4, 3.6) as (drawing, axes):
        for k, (name, mu, color) in enumerate(rows):
            variance, cost = relative(mu)
            label = f"{name}: variance {variance:.2f}, cost {cost:.2f}"
            axes.bar(np.arange(4) + 0.27 * (k - 1), mu, 0.25, color=color, label=label)
        text = [
            f"reward {r:g} ± {s:g}\ncost {c:g}"
            for r, s, c in zip(REWARD, SPREAD, COST, strict=True)
        ]
        axes.set_xticks(np.arange(4), text)
        axes.set_ylabel("probability")
        axes.set_ylim(0, 0.65)
        axes.legend(loc="upper right", frameon=False)
        return figure_of(drawing, label="", caption="").svg


def frontier() -> str:
    """What less variance costs: the best behavior policy for every budget."""
    free = WEIGHT / WEIGHT.sum()
    largest = relative(free)[1] - 1
    curve = np.array([relative(behavior(e)) for e in np.linspace(0, largest, 80)])
    with canvas(7.4, 3.6) as (drawing, axes):
        axes.plot(curve[:, 1], curve[:, 0], color=OURS, lw=2)
        axes.axvline(1.0, color=LINE, lw=1.2, zorder=0)
        axes.plot(1.0, 1.0, "o", color=OWN, ms=8)
        axes.annotate("the policy itself", (1.0, 1.0), (9, -3), textcoords="offset points")
        for epsilon in (0.0, 0.1, 0.2, 0.3):
            variance, cost = relative(behavior(epsilon))
            axes.plot(cost, variance, "o", color=OURS, ms=7)
            axes.annotate(f"ε = {epsilon:g}", (cost, variance), (7, 5), textcoords="offset points")
        variance, cost = relative(free)
        axes.plot(cost, variance, "o", color=UNSAFE, ms=8)
        axes.annotate(
            "no budget", (cost, variance), (0, -18), textcoords="offset points", ha="center"
        )
        axes.set_xlabel("cost, relative to the policy's own")
        axes.set_ylabel("variance, relative")
        axes.set_xlim(0.95, cost + 0.1)
        axes.set_ylim(0, 1.1)
        axes.tick_params(colors=INK)
        return figure_of(drawing, label="", caption="").svg


def flow() -> str:
    """How a design is cross-checked before it is used."""
    parts = [
        _box(8, 96, 104, ("the logs",), "line"),
        _box(160, 36, 150, ("half A", "→ design A"), "ours"),
        _box(160, 142, 150, ("half B", "→ design B"), "own"),
        _box(368, 36, 160, ("critics of B", "judge design A"), "own"),
        _box(368, 142, 160, ("critics of A", "judge design B"), "ours"),
        _box(586, 60, 166, ("less variance than", "the target policy?"), "line", 92),
        _box(
            586,
            236,
            166,
            ("final design", "from all of the logs,", "with floor and margin"),
            "good",
            80,
        ),
        _box(368, 242, 160, ("fall back to the", "target policy, warn"), "bad"),
        _arrow((112, 112), (158, 66)),
        _arrow((112, 138), (158, 166)),
        _arrow((310, 64), (366, 64)),
        _arrow((310, 170), (366, 170)),
        _arrow((528, 70), (584, 92)),
        _arrow((528, 164), (584, 132)),
        _arrow((690, 152), (690, 234)),
        _arrow((620, 152), (530, 244)),
        _text(712, 198, "yes", "start"),
        _text(558, 204, "no", "end"),
    ]
    style = "fill:currentColor;font-size:14px"
    return f'<svg viewBox="0 0 760 324" style="{style}">' + "".join(parts) + "</svg>"


def _box(x: int, y: int, width: int, lines: Sequence[str], color: str, height: int = 56) -> str:
    middle = y + height / 2 - 9 * (len(lines) - 1) + 5
    text = "".join(
        _text(x + width / 2, middle + 18 * k, line, "middle") for k, line in enumerate(lines)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" '
        f'style="fill:none;stroke:var(--{color});stroke-width:2"/>{text}'
    )


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    a, b = np.array(start, float), np.array(end, float)
    along = (b - a) / np.linalg.norm(b - a)
    across = np.array([-along[1], along[0]])
    left, right = b - 9 * along + 4 * across, b - 9 * along - 4 * across
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (b, left, right))
    x, y = b - 8 * along
    return (
        f'<path d="M{a[0]:g} {a[1]:g}L{x:.1f} {y:.1f}" style="stroke:var(--soft);fill:none"/>'
        f'<polygon points="{points}" style="fill:var(--soft)"/>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" style="text-anchor:{anchor}">{words}</text>'


def document(svg: str) -> str:
    """A drawing as a file of its own, with the colors of both schemes."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    size = f'width="{box[1]}" height="{box[2]}"'
    svg = svg.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" {size} ', 1)
    return svg.replace(">", f">{STYLE}", 1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for draw in (tilt, frontier, flow):
        place = FOLDER / f"{draw.__name__}.svg"
        place.write_text(document(draw()), encoding="utf-8")
        print(f"{place} ({place.stat().st_size:,} bytes)")
