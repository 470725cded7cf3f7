"""An experiment as a page: the saving and its price, then every figure and table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scopeval.report.figures import figure_of
from scopeval.report.page import (
    Check,
    Fact,
    Figure,
    Page,
    Section,
    Table,
    how_to_reproduce,
)
from scopeval.report.promises import beside, dearer, safely, verdict

if TYPE_CHECKING:
    from scopeval.experiments.gridworld import Block, Crossing, Result, Row

__all__ = ["page_of_experiment"]

_NONE = "\N{EN DASH}"
#: Methods that promise to cost at most 1 + epsilon times the policy.
_SAFE = ("scope", "scope-dr")


def page_of_experiment(
    result: Result, figures: Sequence[Figure] = (), *, command: str | None = None
) -> Page:
    """The page of the Gridworld experiment.

    Args:
        result: what `experiments.gridworld.run` returned.
        figures: more of them beside its own, by `figure_of` from any matplotlib figure.
        command: how to make it again, as one can type it.
    """
    config = result.config
    return Page(
        "The paper's Gridworld, reproduced",
        _answer(result),
        verdict(_dearer(result), config.epsilon),
        tuple(
            Fact(
                f"{method}, {_name(block)}",
                f"{block.row(method).saved:.0%} saved",
                _beside(block, method),
            )
            for block in result.blocks[:2]
            for method in _SAFE
        ),
        (
            Section("What was run", _setting(result), figures=(*_figures(result), *figures)),
            Section(
                "Tables",
                (
                    "Variance and cost of an episode are relative to running the policy itself, "
                    "with standard errors over the policies. Needed: the cost of reaching the "
                    "accuracy of 1,000 episodes of the policy itself, in such episodes, 1000 times "
                    "variance times cost. Crossing: the same read off the measured error curves, "
                    f"for {config.episodes:,} episodes; the one to trust for ros, whose error does "
                    "not fall like that of a mean. Exact: needed, if all values were known. Paper: "
                    "needed, from its tables.",
                ),
                tables=tuple(_table(block) for block in result.blocks),
            ),
            Section("What to make of it", checks=_checks(result)),
            how_to_reproduce(command, seed=config.seed),
        ),
    )


def _figures(result: Result) -> list[Figure]:
    from scopeval.experiments import figures

    drawn = (
        (
            figures.error_against_cost(result),
            "Mean error against the cost spent, both relative to one episode of the policy itself; "
            "shaded: standard errors over the policies. Where a curve meets the dotted line, the "
            "method is as accurate as the policy itself is in the end.",
        ),
        (
            figures.error_against_episodes(result),
            "The same against the number of episodes.",
        ),
        (
            figures.cost_by_target(result),
            "Expected cost of an episode for each policy, relative to the policy's own; the line "
            "is what is allowed. odi and dopt promise nothing about it.",
        ),
        (
            figures.frontier(result),
            "Variance against cost as more cost is allowed, learned from logs and with exact "
            "values.",
        ),
    )
    return [figure_of(one, label=f"Chart. {text}", caption=text) for one, text in drawn]


def _answer(result: Result) -> str:
    sizes = dict.fromkeys(f"{block.size} x {block.size}" for block in result.blocks)
    found = [f"{_saved([b.row(m) for b in result.blocks])} less with {m}" for m in _SAFE]
    kept = safely(_dearer(result), result.config.epsilon)
    return (
        f"On the Gridworld ({', '.join(sizes)}), finding out what a policy is worth costs "
        f"{' and '.join(found)} than running the policy itself to the same accuracy, {kept}."
    )


def _saved(rows: Sequence[Row]) -> str:
    shares = [row.saved for row in rows]
    if len(shares) > 2:
        return f"{min(shares):.0%} to {max(shares):.0%}"
    return " and ".join(f"{share:.0%}" for share in shares)


def _dearer(result: Result) -> list[str]:
    """Where a method that promises safety costs more, by more than the standard error."""
    costs = (
        (_name(block), method, block.row(method).cost)
        for block in result.blocks
        for method in _SAFE
    )
    return dearer(costs, result.config.epsilon)


def _setting(result: Result) -> tuple[str, ...]:
    c = result.config
    worlds = "a world of its own" if c.worlds is None else f"one of {c.worlds} worlds"
    return (
        f"{c.targets} random policies, each in {worlds}; every method that learns does so from the "
        f"same {c.logged:,} logged episodes of other controllers ({c.critics} critics); {c.runs} "
        f"runs of {c.episodes:,} episodes for each method and policy.",
    )


def _table(block: Block) -> Table:
    from scopeval.experiments.gridworld_exact import PAPER

    paper = PAPER.get(block.size, {})
    rows = [
        (
            row.method,
            row.variance.text(",.3f"),
            row.cost.text(",.3f"),
            row.needed.text(",.0f"),
            _crossing(row.crossing),
            f"{row.saved:.0%}",
            _NONE if row.limit_needed is None else f"{row.limit_needed.mean:,.0f}",
            f"{paper[row.method][2]:,}" if row.method in paper else _NONE,
        )
        for row in block.rows
    ]
    return Table(
        f"{block.size} x {block.size} Gridworld, cost law {block.cost_law}",
        ("method", "variance", "cost", "needed", "crossing", "saved", "exact", "paper"),
        tuple(rows),
    )


def _checks(result: Result) -> tuple[Check, ...]:
    said = []
    for block in result.blocks:
        best = block.cheapest
        said.append(
            Check(
                "good" if best.method in _SAFE else "open",
                f"{_name(block)}: {best.method} reaches the accuracy of the policy itself at the "
                f"least cost, {_crossing(best.crossing)} in units of its episodes"
                + ("." if best.method in _SAFE else "; it promises nothing about cost."),
            )
        )
        for method in _SAFE:
            said += _cost_check(block, block.row(method), result.config.epsilon)
        said.append(
            Check(
                "plain",
                f"{_name(block)}: the critics' own answer, from the logs alone, is off by "
                f"{block.direct_error.mean:.3f} of what one episode is; more episodes do not help "
                "it.",
            )
        )
    return tuple(said)


def _cost_check(block: Block, row: Row, epsilon: float) -> list[Check]:
    targets = len(row.cost.values)
    within = row.cost.within(1 + epsilon)
    return [
        Check(
            "good" if within else "bad",
            f"{_name(block)}: an episode of {row.method} costs {row.cost.text(',.3f')} times "
            f"the policy's own; {row.unsafe} of {targets} policies are above 1.01.",
        )
    ]


def _name(block: Block) -> str:
    law = "" if block.cost_law == "same-tilt" else f", {block.cost_law}"
    return f"{block.size} x {block.size}{law}"


def _beside(block: Block, method: str) -> str:
    from scopeval.experiments.gridworld_exact import PAPER

    return beside(block.row(method), PAPER.get(block.size, {}).get(method))


def _crossing(found: Crossing) -> str:
    if found.cost is None:
        return "never"
    spread = "" if found.standard_error is None else f" ± {found.standard_error:,.0f}"
    return f"{found.cost:,.0f}{spread}"
