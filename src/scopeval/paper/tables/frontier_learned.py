"""Tables of the learned frontier, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.frontier_learned import LearnedBlock, LearnedConfig
    from scopeval.paper.results import Result

__all__ = ["show_learned_frontier"]


def show_learned_frontier(result: Result[LearnedConfig, LearnedBlock]) -> list[Table | str]:
    """One table for each world."""
    from scopeval.paper.experiments.frontier_worlds import ENVIRONMENTS

    config = result.config
    return [
        *(
            _by_target(block) if block.title in ENVIRONMENTS else _means(block)
            for block in result.blocks
        ),
        f"Frontiers learned from {config.logged:,} logged episodes, at asked expected costs; "
        f"variance and cost are relative to running the target policy and exact in the true model, "
        f"seed {config.seed}. Gridworld: mean and standard error over {config.targets} targets, in "
        "brackets the number of targets where such a design is offered, if not all. Exact: the "
        "design with exact values. Worst: the largest true cost over the asked one. Predicted: "
        "predicted over true variance, smallest to largest. Even: true variance and cost of "
        "at(variance=1). Best: of best().",
    ]


def _means(block: LearnedBlock) -> Table:
    rows = []
    for k, asked in enumerate(block.asked):
        many = len(block.statistic("variance", k).values)
        rows.append(
            (
                f"{asked:.2f}",
                _mean(block, "exact_variance", k),
                _mean(block, "variance", k) + ("" if many == len(block.targets) else f" ({many})"),
                _mean(block, "cost", k),
                _number(block.overspent(k)),
                " to ".join(_number(x) for x in block.agreement(k)),
            )
        )
    header = ("asked", "exact", "learned", "cost", "worst", "predicted")
    return Table(_caption(block), header, tuple(rows))


def _by_target(block: LearnedBlock) -> Table:
    rows = []
    for i, target in enumerate(block.targets):
        for k, asked in enumerate(block.asked):
            found = {name: values[i, k] for name, values in block.found.items()}
            rows.append(
                (
                    f"{target}, {asked:.2f}",
                    _number(found["exact_variance"]),
                    _number(found["variance"]),
                    _number(found["cost"]),
                    _number(found["predicted_variance"]),
                    _number(found["predicted_cost"]),
                )
            )
    header = ("target, asked", "exact", "learned", "cost", "predicted", "its cost")
    return Table(_caption(block), header, tuple(rows))


def _caption(block: LearnedBlock) -> str:
    told = []
    for name, rows in (("even", block.even), ("best", block.best)):
        known = rows[np.isfinite(rows).all(axis=1)]
        if len(known):
            told.append(f"{name} {known[:, 0].mean():.3f} at {known[:, 1].mean():.3f}")
    return f"{block.title}: {', '.join(told)}" if told else block.title


def _mean(block: LearnedBlock, name: str, k: int) -> str:
    found = block.statistic(name, k)
    return found.text(".3f") if len(found.values) else "-"


def _number(x: float) -> str:
    return f"{x:.3f}" if np.isfinite(x) else "-"
