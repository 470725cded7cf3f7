"""How ``scopeval reproduce`` prints its results: tables, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.cli.console import closing, columns, out, paragraph, plus_minus

if TYPE_CHECKING:
    from rich.table import Table

    from scopeval.paper.experiments import gridworld as gridworld_learned
    from scopeval.paper.experiments import gridworld_exact, log_quality

__all__ = ["show_exact", "show_learned", "show_logs"]


def show_exact(table: gridworld_exact.Table, command: str, footer: str) -> None:
    """Exact values: one table for each size and cost law."""
    console = out()
    pm = plus_minus(console)
    config = table.config
    for block in table.blocks:
        console.print(
            f"[bold]Gridworld {block.size} x {block.size}, cost law {block.cost_law}, "
            "exact values[/]"
        )
        console.print(_block(block, pm))
        console.print()
    worlds = "one world" if config.world_count == 1 else f"{config.world_count} worlds"
    closing(
        console,
        command,
        footer,
        f"{config.targets} targets in {worlds}, seed {config.seed}; {pm} standard error over the "
        "targets. Variance and cost of one episode are relative to on-policy Monte Carlo. Needed: "
        "cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes. Worst state: "
        "expected cost from a state on, relative to the target's, where it is largest; scope "
        "promises at most 1. scope (target): constraint on the cost-to-go under the target. "
        "Paper: from learned values; it does not say how rewards and costs were drawn.",
    )


def _block(block: gridworld_exact.Block, pm: str) -> Table:
    from scopeval.paper.experiments.gridworld_exact import PAPER

    paper = dict(PAPER.get(block.size, {}))
    shown = columns("method", "variance", "cost", "needed", "saved", "worst state")

    def published(name: str, label: str) -> None:
        if label in paper:
            variance, cost, needed = paper[label]
            saved = f"{100 - needed / 10:.0f} %"
            shown.add_row(name, f"{variance:.3f}", f"{cost:.3f}", f"{needed}", saved, "")

    for row in block.rows:
        shown.add_row(
            row.label,
            row.variance.text(".3f", pm),
            row.cost.text(".3f", pm),
            row.needed.text(".0f", pm),
            f"{100 * row.saved:.0f} %",
            f"{row.worst_state.values.max():.2f}",
        )
        published("  in the paper", row.label)
    published("ros, in the paper", "ros")
    return shown


def show_learned(result: gridworld_learned.Result, command: str, footer: str) -> None:
    """Learned designs: what they are worth, what was measured, and what follows."""
    console = out()
    pm = plus_minus(console)
    config = result.config
    for block in result.blocks:
        console.print(
            f"[bold]Gridworld {block.size} x {block.size}, cost law {block.cost_law}, "
            f"{config.logged:,} logged episodes ({config.critics})[/]"
        )
        console.print(_learned(block, pm))
        console.print()
        console.print(f"[bold]The same, measured over {config.runs} runs for each target[/]")
        console.print(_measured(block, config.episodes, pm))
        console.print()
        for sentence in _verdicts(block, config):
            paragraph(console, sentence)
        console.print()
    closing(
        console,
        command,
        footer,
        f"{config.targets} targets, seed {config.seed}; {pm} standard error over the targets. "
        "Variance and cost of one episode are relative to on-policy Monte Carlo: exact for learned "
        "designs; for ros, whose episodes depend on each other, measured, its variance over runs. "
        "Dearest: the largest cost of any target. Needed: cost for the accuracy of 1,000 on-policy "
        "episodes, in on-policy episodes, by the product 1000 x variance x cost (ros: squared "
        "error for variance). Crossing: the same, read off the measured error curves. Squared "
        f"error: after {config.episodes:,} episodes, relative to on-policy's by theory; |error| in "
        "units of what one on-policy episode makes. Limit: with exact values. ros-reset: ros that "
        "forgets after every episode, an ablation. Paper: it does not say how rewards and costs "
        "were drawn.",
    )


def _learned(block: gridworld_learned.Block, pm: str) -> Table:
    from scopeval.paper.experiments.gridworld_exact import PAPER

    paper = PAPER.get(block.size, {})
    shown = columns("method", "variance", "cost", "dearest", "needed", "saved")
    for row in block.rows:
        if row.method == "on-policy":
            shown.add_row("on-policy", "1", "1", "1", "1000", "0 %")
            continue
        shown.add_row(
            row.method,
            row.variance.text(".3f", pm),
            row.cost.text(".3f", pm),
            f"{row.cost.values.max():.3f}",
            row.needed.text(".0f", pm),
            f"{100 * row.saved:.0f} %",
        )
        best = row.limit_needed
        if row.limit_variance is not None and row.limit_cost is not None and best is not None:
            shown.add_row(
                "  limit",
                row.limit_variance.text(".3f", pm),
                row.limit_cost.text(".3f", pm),
                f"{row.limit_cost.values.max():.3f}",
                best.text(".0f", pm),
                f"{100 - best.mean / 10:.0f} %",
            )
        if row.method in paper:
            variance, cost, needed = paper[row.method]
            saved = f"{100 - needed / 10:.0f} %"
            shown.add_row("  paper", f"{variance:.3f}", f"{cost:.3f}", "", f"{needed}", saved)
    return shown


def _measured(block: gridworld_learned.Block, episodes: int, pm: str) -> Table:
    from scopeval.paper.experiments.gridworld_exact import Statistic

    shown = columns("method", "squared error", "|error|", "crossing", "saved")
    for row in block.rows:
        crossing, spread = row.crossing.cost, row.crossing.standard_error
        needed = "not reached" if crossing is None else f"{crossing:.0f}"
        needed += "" if spread is None else f" {pm} {spread:.0f}"
        shown.add_row(
            row.method,
            row.measured_square.text(".3f", pm),
            Statistic(row.errors[:, -1]).text(".4f", pm),
            needed,
            "" if crossing is None else f"{100 * (1 - crossing / episodes):.0f} %",
        )
    square, size = block.direct_square, Statistic(abs(block.direct_error.values))
    shown.add_row(
        "direct",
        Statistic(episodes * square.values).text(".3f", pm),
        size.text(".4f", pm),
        "",
        "",
    )
    return shown


def _verdicts(block: gridworld_learned.Block, config: gridworld_learned.Config) -> list[str]:
    """What the tables say, in words."""
    best, ros = block.cheapest, block.row("ros")
    said = []
    if best.crossing.cost is not None:
        said.append(
            f"Least cost for on-policy's accuracy: {best.method}, {best.crossing.cost:.0f} "
            "(measured crossing)."
        )
    beaten = [
        row.method
        for row in block.rows
        if row.method in ("scope", "scope-dr")
        and ros.crossing.cost is not None
        and (row.crossing.cost is None or row.crossing.cost > ros.crossing.cost)
    ]
    if beaten:
        said.append(f"ros needs less than {' and '.join(beaten)} here.")
    bias = block.direct_error
    error = "" if bias.standard_error is None else f" (standard error {bias.standard_error:.3f})"
    said.append(
        f"direct, the critics' own answer, is as accurate as {1 / block.direct_square.mean:,.0f} "
        f"on-policy episodes and no number of episodes makes it better; its bias is "
        f"{bias.mean:+.3f}{error} in the error of one on-policy episode."
    )
    return [" ".join(said)]


def show_logs(result: log_quality.Result, command: str, footer: str) -> None:
    """Quality of logs: one table for each method, with and without features."""
    console = out()
    config = result.config
    for block in result.blocks:
        for method, (variance, cost) in block.limits.items():
            for features in (True, False):
                which = "with" if features else "without"
                console.print(
                    f"[bold]{method}, {block.size} x {block.size}, {which} the cells' "
                    f"coordinates[/] (limit: {variance:.3f} at cost {cost:.3f})"
                )
                shown = columns(
                    "\nlogs",
                    "\nvariance",
                    "worst\ntarget",
                    "pre-\ndicted",
                    "\ncost",
                    "worst\ntarget",
                    "pre-\ndicted",
                    "stays\nat pi",
                )
                for row in block.rows:
                    if (row.method, row.features) != (method, features):
                        continue
                    name = f"{row.episodes:,} episodes" if row.logs == "good" else row.logs
                    shown.add_row(
                        name,
                        f"{row.variance.mean:.3f}",
                        f"{row.variance.values.max():.3f}",
                        f"{row.predicted_variance.mean:.3f}",
                        f"{row.cost.mean:.3f}",
                        f"{row.cost.values.max():.3f}",
                        f"{row.predicted_cost.mean:.3f}",
                        f"{row.kept}",
                    )
                console.print(shown)
                console.print()
    closing(
        console,
        command,
        footer,
        f"{config.targets} targets, cost law {config.cost_law}, seed {config.seed}. Variance and "
        "cost of one episode under the learned design, relative to on-policy Monte Carlo, exact; "
        "predicted: what the design expected, mean over targets. Stays at pi: targets for which "
        f"the design chose to change nothing. Bad logs have {config.bad_episodes:,} episodes.",
    )
