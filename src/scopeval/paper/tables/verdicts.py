"""The table of wrong verdicts, and how to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments.verdicts import Config, VerdictBlock
    from scopeval.paper.results import Result

__all__ = ["show_verdicts"]


def show_verdicts(result: Result[Config, VerdictBlock]) -> list[Table | str]:
    """One table for each world."""
    from scopeval.paper.experiments.verdicts import LOOK

    config = result.config
    return [
        *(_table(block) for block in result.blocks),
        f"Shares of {config.runs:,} runs, alpha {config.alpha:g}, seed {config.seed}; a share p "
        "has a standard error of sqrt(p (1 - p) / runs). t interval: the rule before bounds could "
        "be stated. As far as seen: certificate and guard without a bound. Stated bound: both with "
        "the most that an episode (heavy weights, ordinary, too expensive: a step) can cost. "
        "Unsure: not enough evidence. Alarm: the guard tripped at some of its looks, every "
        f"{LOOK} episodes; this is false where the ratio is at most 1.",
    ]


def _table(block: VerdictBlock) -> Table:
    from scopeval.paper.experiments.verdicts import RULES

    right = "refuted" if block.wrong == "safe" else "safe"
    rows = [
        (
            f"{n:,}",
            rule,
            f"{block.share(k, rule, block.wrong):.3f}",
            f"{block.share(k, rule, right):.3f}",
            "" if rule == RULES[0] else f"{block.share(k, rule, 'not enough evidence'):.3f}",
            "" if rule == RULES[0] else f"{block.share(k, rule, 'alarm'):.3f}",
        )
        for k, n in enumerate(block.episodes)
        for rule in RULES
    ]
    header = (
        "episodes", "rule", f"{block.wrong} (wrong)", f"{right} (right)", "unsure", "alarm"
    )  # fmt: skip
    return Table(f"{block.world}, true ratio {block.ratio:.3f}", header, tuple(rows))
