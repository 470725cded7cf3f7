"""Tables of the exact frontier, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.frontier_exact import Config, FrontierBlock
    from scopeval.paper.results import Result

__all__ = ["show_frontier"]


def show_frontier(result: Result[Config, FrontierBlock]) -> list[Table | str]:
    """One table for each world."""
    from scopeval.paper.experiments.frontier_worlds import ENVIRONMENTS

    config = result.config
    return [
        *(
            _by_target(block) if block.title in ENVIRONMENTS else _means(block)
            for block in result.blocks
        ),
        f"Least variance of one episode's estimate for an asked expected cost, both relative to "
        f"running the target policy; exact values, seed {config.seed}. Gridworld: mean and "
        f"standard error over {config.targets} targets, in brackets the number of targets where "
        "such a design exists, if not all. Weight-aware: behavior policies that know the weight "
        f"of the episode so far, which is at most {config.cap:g}, with b = q; cost: what they "
        "spend. Weight-blind: the best that know the state and the time only, with b = q. b = 0: "
        "weight-aware without a control variate or cap. Even: the least cost at no more than the "
        "target's own variance. Product: the least variance x cost.",
    ]


def _means(block: FrontierBlock) -> Table:
    rows = []
    for k, asked in enumerate(block.asked):
        cost = block.cost["weight-aware"][:, k]
        spent = f"{np.nanmean(cost):.3f}" if np.isfinite(cost).any() else "-"
        rows.append(
            (
                f"{asked:.2f}",
                _mean(block, "weight-aware", k),
                spent,
                _mean(block, "weight-blind", k),
                _mean(block, "b = 0", k),
            )
        )
    even, product = block.even[np.isfinite(block.even)], block.product
    caption = f"{block.title}: even {even.mean():.3f}, product {product.mean():.3f}"
    return Table(caption, ("asked", "weight-aware", "cost", "weight-blind", "b = 0"), tuple(rows))


def _mean(block: FrontierBlock, family: str, k: int) -> str:
    found = block.statistic(family, k)
    many = len(found.values)
    if not many:
        return "-"
    text = found.text(".3f")
    return text if many == len(block.targets) else f"{text} ({many})"


def _by_target(block: FrontierBlock) -> Table:
    rows = []
    for i, target in enumerate(block.targets):
        for family, variance in block.variance.items():
            aware = family == "weight-aware"
            rows.append(
                (
                    f"{target}, {family}",
                    *(_number(x) for x in variance[i]),
                    _number(block.even[i]) if aware else "",
                    _number(block.product[i]) if aware else "",
                )
            )
    header = ("target", *(f"{asked:g}" for asked in block.asked), "even", "product")
    return Table(block.title, header, tuple(rows))


def _number(x: float) -> str:
    return f"{x:.3g}" if np.isfinite(x) else "-"
