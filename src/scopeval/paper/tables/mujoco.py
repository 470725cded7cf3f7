"""Tables of the robots, how to read them, and findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.paper import published
from scopeval.paper.methods import REFERENCE, constrained
from scopeval.report.page import Check, Table, Tone

if TYPE_CHECKING:
    from scopeval.paper.experiments.mujoco import Config
    from scopeval.paper.experiments.mujoco_results import RobotBlock, RobotMethod
    from scopeval.paper.results import Result

__all__ = [
    "ENOUGH",
    "findings",
    "measured_notes",
    "measured_table",
    "predicted_notes",
    "predicted_table",
    "show_robots",
    "tone_of",
]


def show_robots(result: Result[Config, RobotBlock]) -> list[Table | str]:
    """Two tables and findings for each robot and protocol; how to read them."""
    shown: list[Table | str] = []
    for block in result.blocks:
        if block.methods:
            shown += [measured_table(block), predicted_table(block)]
        shown += [finding.text for finding in findings(block, result.config.epsilon)]
    return [*shown, f"{measured_notes(result.config)} {predicted_notes()}"]


def measured_table(block: RobotBlock) -> Table:
    """What was measured."""
    paper = published.ROBOTS[block.robot]
    rows: list[tuple[str, ...]] = []
    for name, row in block.methods.items():
        if name == REFERENCE:
            rows.append((name, "1", "1", "1", "1", "1000", "0%"))
            continue
        rows.append(
            (
                name,
                row.variance.text(".3f"),
                row.worst("variance").text,
                row.cost.text(".3f"),
                row.worst("cost").text,
                f"{row.needed.mean:.0f}",
                f"{row.saved:.0%}",
            )
        )
        if name in paper:
            v, c, needed = paper[name]
            saved = f"{100 - needed / 10:.0f}%"
            rows.append(("  paper", f"{v:.3f}", "", f"{c:.3f}", "", f"{needed}", saved))
    counted = len(block.results) - len(block.excluded)
    title = f"{block.title}: {counted} of {len(block.results)} targets"
    header = ("method", "variance", "worst target", "cost", "worst target", "needed", "saved")
    return Table(title, header, tuple(rows))


def measured_notes(config: Config) -> str:
    """How to read `measured_table`."""
    return (
        f"{config.role.capitalize()} policies; {config.runs} runs of {config.episodes} episodes "
        "for each policy and method, three times as many on-policy; "
        f"{config.logged:,} logged episodes; {config.source}; seed {config.seed}; ± standard error "
        "over the targets. Variance and cost of one episode are relative to on-policy Monte Carlo. "
        "Worst target: the target with the largest number, and its own standard error. Needed: "
        "cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes, 1000 x variance "
        "x cost (ros: squared error instead of variance, over runs of "
        f"{config.ros_episodes} episodes)."
    )


def predicted_table(block: RobotBlock) -> Table:
    """What the designs predicted, beside what was measured."""
    rows = [
        (
            name,
            f"{row.variance.mean:.3f}",
            _mean(row, "predicted_variance"),
            _mean(row, "checked_variance"),
            f"{row.cost.mean:.3f}",
            _mean(row, "certified_cost"),
            _mean(row, "predicted_cost"),
            _mean(row, "checked_cost"),
            f"{row.used.get(REFERENCE, 0)}",
            " ".join(
                str(row.certificates.get(verdict, 0))
                for verdict in ("safe", "not refuted", "refuted")
            ),
        )
        for name, row in block.methods.items()
        if row.of_designs("floor") is not None
    ]
    header = ("method", "variance", "pre\xaddicted", "checked", "cost", "paired", "pre\xaddicted",
              "checked", "falls back", "certi\xadficates")  # fmt: skip
    return Table(f"{block.title}: what the designs predicted", header, tuple(rows))


def predicted_notes() -> str:
    """How to read `predicted_table`."""
    return (
        "Predicted: by the design's critics; checked: the same on the other half of the logs. "
        "Paired: the cost by the certificates, which compare within the same episodes. Falls back: "
        "number of targets for which the design falls back to the target policy. Certificates: "
        "numbers of targets whose expected cost is certified safe, not refuted, refuted."
    )


#: So many targets are needed before a finding counts as good: with three, luck is enough.
ENOUGH = 10


def tone_of(good: bool, targets: int) -> Tone:
    """The sign of a finding: good ones are open where there are too few targets."""
    if not good:
        return "bad"
    return "good" if targets >= ENOUGH else "open"


def findings(block: RobotBlock, epsilon: float) -> list[Check]:
    """The findings of the tables, in words."""
    said = []
    if block.excluded:
        said.append(
            Check(
                "plain",
                f"{block.title}: {len(block.excluded)} of {len(block.results)} targets have "
                f"returns without spread and are in no mean: {', '.join(block.excluded)}.",
            )
        )
    allowed = 1 + epsilon
    for name in constrained(list(block.methods)):
        row = block.methods[name]
        expensive, noisy = row.beyond("cost", allowed + 0.02), row.beyond("variance", 1.1)
        within = row.paired.within(allowed)
        said.append(
            Check(
                tone_of(within and not expensive, len(row.outcomes)),
                f"{block.title}: the expected cost of {name} is {row.paired.text('.3f')} times the "
                f"target policy's (paired), {'within' if within else 'ABOVE'} its budget of "
                f"{allowed:g} up to standard error. Targets more than two standard errors above "
                f"{allowed + 0.02:g}: {_listed(expensive)}; refuted by the certificate: "
                f"{_listed(row.refuted)}.",
            )
        )
        said.append(
            Check(
                tone_of(row.variance.within(1) and not noisy, len(row.outcomes)),
                f"{block.title}: the variance of {name} is {row.variance.text('.3f')}. Targets "
                f"more than two standard errors above 1.1: {_listed(noisy)}.",
            )
        )
    return said


def _listed(targets: list[str]) -> str:
    return ", ".join(targets) or "none"


def _mean(row: RobotMethod, name: str) -> str:
    found = row.mean_of_designs(name)
    return "" if found is None else f"{found:.3f}"
