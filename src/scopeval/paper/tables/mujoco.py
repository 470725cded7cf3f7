"""How ``scopeval reproduce mujoco`` prints its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.cli.console import closing, columns, out, paragraph, plus_minus

if TYPE_CHECKING:
    from rich.table import Table

    from scopeval.paper.experiments.mujoco import Block, Result, Row

__all__ = ["show_mujoco"]


def show_mujoco(result: Result, command: str, footer: str) -> None:
    """Two tables for each robot and protocol: what was measured, and what was promised."""
    console = out()
    pm = plus_minus(console)
    config = result.config
    for block in result.blocks:
        counted = len(block.results) - len(block.excluded)
        console.print(f"[bold]{block.title}[/]: {counted} of {len(block.results)} targets")
        if block.rows:
            console.print(_measured(block, pm))
            console.print()
            console.print("[bold]What the designs expected[/]")
            console.print(_promised(block))
            console.print()
        for sentence in _verdicts(block, config.epsilon):
            paragraph(console, sentence)
        console.print()
    closing(
        console,
        command,
        footer,
        f"{config.role.capitalize()} policies; {config.runs} runs of {config.episodes} episodes "
        f"for each and method, three times as many on-policy; {config.logged:,} logged episodes; "
        f"{config.source}; seed {config.seed}; {pm} standard error, of means over the targets. "
        "Variance and cost of one episode are relative to on-policy Monte Carlo. Worst, dearest: "
        "the target with the largest, and its own standard error. Needed: cost for the accuracy "
        "of 1,000 on-policy episodes, in on-policy episodes, 1000 x variance x cost "
        f"(ros: squared error for variance, over runs of {config.ros_episodes} episodes). "
        "Paired: the cost by the certificates, which compare within the same episodes. "
        "Expected: by the design's critics, and checked on the other half of the logs; stays at "
        "pi: targets for which the design chose to change nothing; certificates: safe, not "
        "refuted, refuted.",
    )


def _measured(block: Block, pm: str) -> Table:
    from scopeval.paper.experiments.mujoco import PAPER

    shown = columns("method", "variance", "worst", "cost", "dearest", "needed", "saved")
    shown.padding = (0, 1, 0, 0)  # one blank less between columns: they are many
    for row in block.rows:
        if row.method == "on-policy":
            shown.add_row("on-policy", "1", "1", "1", "1", "1000", "0%")
            continue
        shown.add_row(
            row.method,
            row.variance.text(".3f", pm),
            row.worst.text(pm),
            row.cost.text(".3f", pm),
            row.dearest.text(pm),
            f"{row.needed.mean:.0f}",
            f"{100 * row.saved:.0f}%",
        )
        if row.method in PAPER[block.robot]:
            variance, cost, needed = PAPER[block.robot][row.method]
            shown.add_row(
                "  paper", f"{variance:.3f}", "", f"{cost:.3f}", "", f"{needed}",
                f"{100 - needed / 10:.0f}%",
            )  # fmt: skip
    return shown


def _promised(block: Block) -> Table:
    shown = columns(
        "\nmethod",
        "\nvariance",
        "\nexpected",
        "\nchecked",
        "\ncost",
        "\npaired",
        "\nexpected",
        "\nchecked",
        "stays\nat pi",
        "certi-\nficates",
    )
    shown.padding = (0, 1, 0, 0)
    for row in block.rows:
        if row.told("floor") is None:
            continue
        shown.add_row(
            row.method,
            f"{row.variance.mean:.3f}",
            _told(row, "predicted_variance"),
            _told(row, "checked_variance"),
            f"{row.cost.mean:.3f}",
            _told(row, "certified_cost"),
            _told(row, "predicted_cost"),
            _told(row, "checked_cost"),
            f"{row.used.get('on-policy', 0)}",
            " ".join(
                str(row.certificates.get(name, 0)) for name in ("safe", "not refuted", "refuted")
            ),
        )
    return shown


def _verdicts(block: Block, epsilon: float) -> list[str]:
    """What the tables say, in words."""
    from scopeval.paper.experiments.mujoco import SAFE

    said = []
    if block.excluded:
        said.append(
            f"{len(block.excluded)} targets have returns without spread and are in no mean: "
            f"{', '.join(block.excluded)}."
        )
    for row in block.rows:
        if row.method not in SAFE:
            continue
        dear = row.beyond("cost", 1.02 + epsilon)
        bad = row.beyond("variance", 1.1)
        within = row.paired.within(1.0 + epsilon)
        said.append(
            f"{row.method}: mean paired cost "
            f"{'within' if within else 'ABOVE'} its budget; more than two standard errors above "
            f"{1.02 + epsilon:g} in cost: {', '.join(dear) or 'none'}; above 1.1 in variance: "
            f"{', '.join(bad) or 'none'}; promise refuted by the certificate: "
            f"{', '.join(row.refuted) or 'none'}."
        )
    return said


def _told(row: Row, name: str) -> str:
    told = row.told_mean(name)
    return "" if told is None else f"{told:.3f}"
