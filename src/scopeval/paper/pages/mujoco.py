"""The robots as a page: the saving and its price, promises and what came of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.paper.pages.promises import beside, dearer, safely, verdict
from scopeval.report.page import (
    Check,
    Fact,
    Figure,
    Page,
    Section,
    Table,
    how_to_reproduce,
)
from scopeval.report.svg import figure_of

if TYPE_CHECKING:
    from scopeval.paper.experiments.mujoco import Block, Result, Row

__all__ = ["page_of_mujoco"]

_NONE = "\N{EN DASH}"


def page_of_mujoco(result: Result, *, command: str | None = None) -> Page:
    """The page of the experiment with robots.

    Args:
        result: what `experiments.mujoco.run` returned.
        command: how to make it again, as one can type it.
    """
    config = result.config
    return Page(
        "The paper's robots, reproduced",
        _answer(result),
        verdict(_dearer(result), config.epsilon),
        tuple(
            Fact(
                f"{method}, {block.title}",
                f"{block.row(method).saved:.0%} saved",
                _beside(block, method),
            )
            for block in result.blocks
            if block.rows
            for method in _safe()
        )[:4],
        (
            Section("What was run", _setting(result), figures=_figures(result)),
            Section(
                "Tables",
                (
                    "Variance and cost of an episode are relative to running the policy itself, "
                    "with standard errors over the policies. Worst and dearest: the policy with "
                    "the largest, and its own standard error. Needed: the cost of reaching the "
                    "accuracy of 1,000 episodes of the policy itself, in such episodes, 1000 times "
                    "variance times cost (ros: squared error for variance, over runs of "
                    f"{config.ros_episodes} episodes). Paper: its variance, cost and needed.",
                ),
                tables=tuple(_table(block) for block in result.blocks if block.rows),
            ),
            Section(
                "What the designs expected",
                (
                    "Of themselves, by their critics, and checked on the other half of the logs; "
                    "beside what was measured. Stays: policies for which the design chose to "
                    "change nothing. Safe, open, refuted: certificates of the promised cost; "
                    "paired: the mean of their cost ratios, compared within the same episodes.",
                ),
                tables=tuple(_promised(block) for block in result.blocks if block.rows),
            ),
            Section("What to make of it", checks=_checks(result)),
            how_to_reproduce(command, seed=config.seed),
        ),
    )


def _safe() -> tuple[str, ...]:
    from scopeval.paper.experiments.mujoco import SAFE

    return SAFE


def _figures(result: Result) -> tuple[Figure, ...]:
    from scopeval.paper.figures import mujoco as figures

    drawn = []
    for protocol in result.config.protocols:
        drawn += [
            (
                figures.error_against_cost(result, protocol),
                f"Protocol {protocol}: mean error against the cost spent, both relative to one "
                "episode of the policy itself; shaded: standard errors over the policies. The "
                "dotted line is the accuracy of the policy itself in the end.",
            ),
            (
                figures.calibration(result, protocol),
                f"Protocol {protocol}: variance and cost as the designs predicted them (full) and "
                "as checked on the other half of the logs (hollow), against what was measured, one "
                "point for each policy. On the line the design was right, above it too hopeful.",
            ),
        ]
    return tuple(figure_of(one, label=f"Chart. {text}", caption=text) for one, text in drawn)


def _rows(result: Result) -> list[tuple[Block, Row]]:
    """Rows of the methods that promise something."""
    return [(b, b.row(method)) for b in result.blocks if b.rows for method in _safe()]


def _answer(result: Result) -> str:
    robots = dict.fromkeys(block.robot for block in result.blocks)
    found = []
    for method in _safe():
        shares = [row.saved for _, row in _rows(result) if row.method == method]
        if shares:
            least, most = min(shares), max(shares)
            said = f"{least:.0%}" if least == most else f"{least:.0%} to {most:.0%}"
            found.append(f"{said} less with {method}")
    if not found:
        return f"On {', '.join(robots)} no policy has returns that vary: there is nothing to win."
    kept = safely(_dearer(result), result.config.epsilon)
    return (
        f"On {', '.join(robots)}, finding out what a policy is worth costs {' and '.join(found)} "
        f"than running the policy itself to the same accuracy, {kept}."
    )


def _dearer(result: Result) -> list[str]:
    """Where a method that promises safety costs more, by more than the standard error."""
    costs = ((block.title, row.method, row.paired) for block, row in _rows(result))
    return dearer(costs, result.config.epsilon)


def _setting(result: Result) -> tuple[str, ...]:
    c = result.config
    return (
        f"Policies of each robot, from untrained to well trained ({c.role}); every method that "
        f"learns does so from the same {c.logged:,} logged episodes of 30 policies, {c.source}; "
        f"{c.runs} runs of {c.episodes} episodes for each method and policy, and three times "
        "as many of the policy itself. Protocol candidates: the policy offers ten actions, which "
        "designs re-weigh. Protocol bins, the paper's: the first action dimension in ten "
        "bins, the others drawn beforehand.",
    )


def _table(block: Block) -> Table:
    from scopeval.paper.experiments.mujoco import PAPER

    paper = PAPER[block.robot]
    rows = [
        (
            row.method,
            row.variance.text(",.3f"),
            row.worst.text(),
            row.cost.text(",.3f"),
            row.dearest.text(),
            row.needed.text(",.0f"),
            f"{row.saved:.0%}",
            "{:.3f}, {:.3f}, {:,}".format(*paper[row.method]) if row.method in paper else _NONE,
        )
        for row in block.rows
    ]
    return Table(
        block.title,
        ("method", "variance", "worst", "cost", "dearest", "needed", "saved", "paper"),
        tuple(rows),
    )


def _promised(block: Block) -> Table:
    rows = [
        (
            row.method,
            f"{row.variance.mean:.3f}",
            _told(row, "predicted_variance"),
            _told(row, "checked_variance"),
            f"{row.cost.mean:.3f}",
            _told(row, "certified_cost"),
            _told(row, "predicted_cost"),
            _told(row, "checked_cost"),
            f"{row.used.get('on-policy', 0)}",
            *(f"{row.certificates.get(name, 0)}" for name in ("safe", "not refuted", "refuted")),
        )
        for row in block.rows
        if row.told("floor") is not None
    ]
    return Table(
        block.title,
        ("method", "variance", "predicted", "checked", "cost", "paired", "predicted", "checked",
         "stays", "safe", "open", "refuted"),
        tuple(rows),
    )  # fmt: skip


def _checks(result: Result) -> tuple[Check, ...]:
    said = [
        Check(
            "plain",
            f"{block.title}: {len(block.excluded)} of {len(block.results)} policies have returns "
            f"without spread and are in no mean: {', '.join(block.excluded)}.",
        )
        for block in result.blocks
        if block.excluded
    ]
    allowed = 1 + result.config.epsilon
    for block, row in _rows(result):
        dear, bad = row.beyond("cost", allowed + 0.02), row.beyond("variance", 1.1)
        within = row.paired.within(allowed)
        said.append(
            Check(
                "good" if within and not dear else "bad",
                f"{block.title}: an episode of {row.method} costs {row.cost.text(',.3f')} times "
                f"the policy's own (paired: {row.paired.text(',.3f')}); more than two standard "
                f"errors above {allowed + 0.02:g}: "
                f"{', '.join(dear) or 'no policy'}; its promise is refuted by the certificate for: "
                f"{', '.join(row.refuted) or 'no policy'}.",
            )
        )
        low = row.variance.within(1)
        said.append(
            Check(
                "good" if low and not bad else "bad",
                f"{block.title}: its variance is {row.variance.text(',.3f')}; more than two "
                f"standard errors above 1.1: {', '.join(bad) or 'no policy'}.",
            )
        )
    return tuple(said)


def _beside(block: Block, method: str) -> str:
    from scopeval.paper.experiments.mujoco import PAPER

    return beside(block.row(method), PAPER[block.robot].get(method))


def _told(row: Row, name: str) -> str:
    told = row.told_mean(name)
    return _NONE if told is None else f"{told:.3f}"
