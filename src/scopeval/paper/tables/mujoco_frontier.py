"""Tables of the robots' frontiers, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.mujoco_frontier import FrontierConfig, RobotFrontier
    from scopeval.paper.results import Result

__all__ = ["show_robot_frontiers"]


def show_robot_frontiers(result: Result[FrontierConfig, RobotFrontier]) -> list[Table | str]:
    """One table for each robot."""
    robots = result.config.robots
    return [
        *(_table(block) for block in result.blocks),
        f"Frontiers of scope-dr learned from {robots.logged:,} logged episodes, {robots.source}; "
        f"seed {robots.seed}. Mean and standard error over the targets that have a design at the "
        "asked cost; variance and cost are relative to the target's own, measured in "
        f"{robots.runs * robots.episodes:,} episodes. Worst: the largest measured cost over the "
        "asked one. Promised: variance and cost as predicted. Safe, refuted: certificates on the "
        "asked cost; the others have not enough evidence.",
    ]


def _table(block: RobotFrontier) -> Table:
    rows = []
    for k, asked in enumerate(block.asked):
        cost = block.statistic("cost", k)
        verdicts = [row[k] for row in block.verdicts]
        rows.append(
            (
                f"{asked:.2f}",
                f"{len(cost.values)} of {len(block.targets)}",
                *(_mean(block, name, k) for name in ("variance", "cost")),
                f"{cost.largest / asked:.3f}" if len(cost.values) else "-",
                *(_mean(block, f"predicted_{name}", k) for name in ("variance", "cost")),
                f"{verdicts.count('safe')}, {verdicts.count('refuted')}",
            )
        )
    header = (
        "asked", "targets", "variance", "cost", "worst", "promised", "its cost", "safe, refuted",
    )  # fmt: skip
    return Table(block.title, header, tuple(rows))


def _mean(block: RobotFrontier, name: str, k: int) -> str:
    found = block.statistic(name, k)
    known = found.values[np.isfinite(found.values)]
    return found.text(".3f") if len(known) else "-"
