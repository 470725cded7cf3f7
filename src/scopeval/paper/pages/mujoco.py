"""The robots as a page: what was saved, whether the promised cost was kept, and predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.paper import published
from scopeval.paper.figures import mujoco as figures
from scopeval.paper.methods import constrained
from scopeval.paper.tables import mujoco as tables
from scopeval.report.page import Fact, Figure, Page, Section, Verdict, how_to_reproduce
from scopeval.report.svg import figure_of

if TYPE_CHECKING:
    from scopeval.paper.experiments.mujoco import Config
    from scopeval.paper.experiments.mujoco_results import RobotBlock, RobotMethod
    from scopeval.paper.results import Result

    RobotResult = Result[Config, RobotBlock]

__all__ = ["page_of_mujoco"]


def page_of_mujoco(result: RobotResult, *, command: str | None = None) -> Page:
    """The page of the experiment with robots.

    Args:
        result: what `experiments.mujoco.run` returned.
        command: how to make it again, as one can type it.
    """
    config = result.config
    blocks = [block for block in result.blocks if block.methods]
    safe = [
        (block, block.methods[name])
        for block in blocks
        for name in constrained(list(block.methods))
    ]
    over = [
        f"{row.method} costs {row.paired.mean:.3f} times the target policy on {block.title}"
        for block, row in safe
        if not row.paired.within(1 + config.epsilon)
    ]
    return Page(
        "The paper's robots, reproduced",
        _answer(result, [row for _, row in safe], over),
        _verdict(over, config.epsilon, min((len(row.outcomes) for _, row in safe), default=0)),
        tuple(_fact(block, row) for block, row in safe)[:4],
        (
            Section("What was run", (_setting(config),), figures=_figures(result)),
            Section(
                "Tables",
                (tables.measured_notes(config),),
                tables=tuple(tables.measured_table(block) for block in blocks),
            ),
            Section(
                "What the designs predicted",
                (tables.predicted_notes(),),
                tables=tuple(tables.predicted_table(block) for block in blocks),
            ),
            Section(
                "Findings",
                checks=tuple(
                    check
                    for block in result.blocks
                    for check in tables.findings(block, config.epsilon)
                ),
            ),
            how_to_reproduce(command, seed=config.seed),
        ),
    )


def _answer(result: RobotResult, rows: list[RobotMethod], over: list[str]) -> str:
    robots = ", ".join(dict.fromkeys(block.robot for block in result.blocks))
    found = []
    for method in dict.fromkeys(row.method for row in rows):
        shares = [row.saved for row in rows if row.method == method]
        least, most = min(shares), max(shares)
        said = f"{least:.0%}" if least == most else f"{least:.0%} to {most:.0%}"
        found.append(f"{said} less with {method}")
    if not found:
        return f"On {robots} no target policy has returns that vary: there is nothing to reduce."
    kept = (
        f"but not always within the budget: {'; '.join(over)}"
        if over
        else f"and the expected cost of an episode is at most {1 + result.config.epsilon:g} times "
        "the target policy's, on average over the targets and within standard error"
    )
    return (
        f"On {robots}, estimating the value of a policy costs {' and '.join(found)} than running "
        f"the policy itself to the same accuracy, {kept}."
    )


def _verdict(over: list[str], epsilon: float, targets: int) -> Verdict:
    """The badge; `targets` is the least number of targets of any robot."""
    allowed = f"{1 + epsilon:g}"
    if over:
        return Verdict("bad", f"A cost ratio is above {allowed} by more than its standard error")
    text = f"Cost ratios at most {allowed}, within standard error"
    if targets < tables.ENOUGH:
        text += f", of {targets} targets: too few to be sure"
    return Verdict(tables.tone_of(good=True, targets=targets), text)


def _fact(block: RobotBlock, row: RobotMethod) -> Fact:
    paper = published.ROBOTS[block.robot].get(row.method)
    beside = f"the paper: {paper.saved:.1%}; " if paper else ""
    note = f"{beside}cost ratio {row.cost.text('.3f')}"
    return Fact(f"{row.method}, {block.title}", f"{row.saved:.0%} saved", note)


def _setting(config: Config) -> str:
    return (
        f"Policies of each robot, from untrained to well trained ({config.role}). Every method "
        f"that learns uses the same {config.logged:,} logged episodes of 30 policies, "
        f"{config.source}. Each method runs {config.runs} times {config.episodes} episodes for "
        "each policy, and the policy itself three times as many. Protocol candidates: the policy "
        "offers ten actions, which designs re-weigh. Protocol bins, the paper's: the first action "
        "dimension in ten bins, the others drawn beforehand."
    )


def _figures(result: RobotResult) -> tuple[Figure, ...]:
    drawn = []
    stored = result.as_dict()
    for protocol in result.config.protocols:
        drawn += [
            (
                figures.error_against_cost(stored, protocol),
                f"Protocol {protocol}: mean error against the cost spent, both relative to one "
                "on-policy episode; shaded: standard errors over the targets. The dotted line is "
                "the accuracy of on-policy Monte Carlo at the end.",
            ),
            (
                figures.calibration(stored, protocol),
                f"Protocol {protocol}: variance and cost as the designs predicted them (full) and "
                "as checked on the other half of the logs (hollow), against what was measured, one "
                "point for each target. On the line the design was right, above it too optimistic.",
            ),
        ]
    return tuple(figure_of(one, label=f"Chart. {text}", caption=text) for one, text in drawn)
