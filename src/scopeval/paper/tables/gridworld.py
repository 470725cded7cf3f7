"""Tables of the Gridworld experiments, how to read them, and findings in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.paper import published
from scopeval.paper.methods import REFERENCE, constrained
from scopeval.paper.results import Statistic
from scopeval.report.page import Table

if TYPE_CHECKING:
    from scopeval.paper.experiments import gridworld, gridworld_exact, log_quality
    from scopeval.paper.published import Published
    from scopeval.paper.results import Result

#: Tables and paragraphs, in the order they are printed.
Shown = list[Table | str]

__all__ = ["show_exact", "show_learned", "show_logs"]

_RELATIVE = "Variance and cost of one episode are relative to on-policy Monte Carlo"
_NEEDED = "Needed: cost for the accuracy of 1,000 on-policy episodes, in on-policy episodes"


def show_exact(result: Result[gridworld_exact.Config, gridworld_exact.ExactBlock]) -> Shown:
    """Exact values: a table for each size and cost law, and how to read them."""
    config = result.config
    worlds = "one world" if config.worlds == 1 else f"{config.worlds} worlds"
    notes = (
        f"{config.targets} targets in {worlds}, seed {config.seed}; ± standard error over the "
        f"targets. {_RELATIVE}. {_NEEDED}. Worst state: expected cost from a state on, relative to "
        "the target policy's, at the state where it is largest; scope keeps it at most 1. scope "
        "(target): the constraint uses the cost-to-go under the target policy. Paper: from learned "
        "values; it does not say how rewards and costs were drawn."
    )
    return [*(_exact_table(block) for block in result.blocks), notes]


def _exact_table(block: gridworld_exact.ExactBlock) -> Table:
    paper = published.GRIDWORLD.get(block.size, {})
    rows = []
    for name, row in block.methods.items():
        worst = f"{row.statistic('worst_state').largest:.2f}"
        numbers = _numbers(row.variance, row.cost, row.needed)
        rows.append((name, *numbers, worst))
        if name in paper:
            rows.append(("  in the paper", *_published(paper[name]), ""))
    if "ros" in paper:
        rows.append(("ros, in the paper", *_published(paper["ros"]), ""))
    title = f"Gridworld {block.size} x {block.size}, cost law {block.cost_law}, exact values"
    return Table(
        title, ("method", "variance", "cost", "needed", "saved", "worst state"), tuple(rows)
    )


def show_learned(result: Result[gridworld.Config, gridworld.GridworldBlock]) -> Shown:
    """Learned designs: two tables and findings for each size and cost law; how to read them."""
    config = result.config
    shown: Shown = []
    for block in result.blocks:
        shown += [_learned_table(block, config), _measured_table(block, config), _findings(block)]
    return [
        *shown,
        f"{config.targets} targets, seed {config.seed}; ± standard error over the targets. "
        f"{_RELATIVE}: exact for learned designs; for ros, whose episodes depend on each other, "
        "measured over runs. Worst target: the largest cost of any target. "
        f"{_NEEDED}, by the product 1000 x variance x cost (ros: squared error instead of "
        "variance). Crossing: the same, read off the measured error curves. Squared error: after "
        f"{config.episodes:,} episodes, relative to on-policy's theoretical variance; |error| in "
        "units of the mean error of one on-policy episode. Limit: with exact values. ros-reset: "
        "ros that is reset after every episode, an ablation. Paper: it does not say how rewards "
        "and costs were drawn.",
    ]


def _learned_table(block: gridworld.GridworldBlock, config: gridworld.Config) -> Table:
    """Exact variance and cost of learned designs."""
    paper = published.GRIDWORLD.get(block.size, {})
    rows: list[tuple[str, ...]] = []
    for name, row in block.methods.items():
        if name == REFERENCE:
            rows.append((name, "1", "1", "1", "1000", "0%"))
            continue
        rows.append((name, *_with_worst(row.variance, row.cost, row.needed)))
        best = row.find("limit_variance"), row.find("limit_cost"), row.limit_needed
        if best[0] is not None and best[1] is not None and best[2] is not None:
            rows.append(("  limit", *_with_worst(best[0], best[1], best[2])))
        if name in paper:
            variance, cost, needed, saved = _published(paper[name])
            rows.append(("  paper", variance, cost, "", needed, saved))
    title = f"Gridworld {block.title}, {config.logged:,} logged episodes ({config.critics})"
    header = ("method", "variance", "cost", "worst target", "needed", "saved")
    return Table(title, header, tuple(rows))


def _measured_table(block: gridworld.GridworldBlock, config: gridworld.Config) -> Table:
    """Measured errors, and the critics' own estimate."""
    rows = []
    for name, row in block.methods.items():
        crossing, spread = row.crossing.cost, row.crossing.standard_error
        needed = "not reached" if crossing is None else f"{crossing:.0f}"
        needed += "" if spread is None else f" ± {spread:.0f}"
        rows.append(
            (
                name,
                row.statistic("measured_square").text(".3f"),
                Statistic(row.errors[:, -1]).text(".4f"),
                needed,
                "" if crossing is None else f"{1 - crossing / config.episodes:.0%}",
            )
        )
    square = Statistic(config.episodes * block.direct_square.values)
    error = Statistic(abs(block.direct_error.values))
    rows.append(("direct", square.text(".3f"), error.text(".4f"), "", ""))
    title = f"Errors measured over {config.runs} runs for each target"
    header = ("method", "squared error", "|error|", "crossing", "saved")
    return Table(title, header, tuple(rows))


def _findings(block: gridworld.GridworldBlock) -> str:
    """The findings of the tables, in words."""
    best, names = block.cheapest, list(block.methods)
    said = []
    if best.crossing.cost is not None:
        said.append(
            f"Least cost for on-policy's accuracy: {best.method}, {best.crossing.cost:.0f} "
            "(measured crossing)."
        )
    ros = block.methods["ros"].crossing.cost if "ros" in names else None
    costs = {name: block.methods[name].crossing.cost for name in constrained(names)}
    beaten = [name for name, cost in costs.items() if ros is not None and (cost or 1e99) > ros]
    if beaten:
        said.append(f"ros needs less than {' and '.join(beaten)} here.")
    bias = block.direct_error
    error = "" if bias.standard_error is None else f" (standard error {bias.standard_error:.3f})"
    said.append(
        f"direct, the critics' own estimate, is as accurate as {1 / block.direct_square.mean:,.0f} "
        "on-policy episodes, and no number of episodes makes it better. Its bias is "
        f"{bias.mean:+.3f}{error}, in units of the mean error of one on-policy episode."
    )
    return " ".join(said)


def show_logs(result: Result[log_quality.Config, log_quality.LogBlock]) -> Shown:
    """Quality of logs: a table for each method, with and without features; how to read them."""
    config = result.config
    shown: Shown = [
        _log_table(block, method, features)
        for block in result.blocks
        for method in block.limits
        for features in (True, False)
    ]
    return [
        *shown,
        f"{config.targets} targets, cost law {config.cost_law}, seed {config.seed}. {_RELATIVE}, "
        "exact, mean over targets. Worst target: the largest of any target. Predicted: by the "
        "design. Falls back: number of targets for which the design falls back to the target "
        "policy. Within 25 %: number of targets whose predicted variance is so near to the true "
        f"one. Bad logs have {config.bad_episodes:,} episodes.",
    ]


def _log_table(block: log_quality.LogBlock, method: str, features: bool) -> Table:
    rows = []
    for case, row in block.select(method, features=features).items():
        name = f"{case.episodes:,} episodes" if case.logs == "good" else case.logs
        numbers = (
            row.variance.mean,
            row.variance.largest,
            row.statistic("predicted_variance").mean,
            row.cost.mean,
            row.cost.largest,
            row.statistic("predicted_cost").mean,
        )
        fell_back = f"{sum(one.fell_back for one in row.outcomes)}"
        near = f"{sum(one.well_predicted for one in row.outcomes)}"
        rows.append((name, *(f"{x:.3f}" for x in numbers), fell_back, near))
    variance, cost = block.limits[method]
    title = (
        f"{method}, {block.size} x {block.size}, {'with' if features else 'without'} the cells' "
        f"coordinates (limit: {variance:.3f} at cost {cost:.3f})"
    )
    header = ("logs", "variance", "worst target", "pre\xaddicted", "cost", "worst target",
              "pre\xaddicted", "falls back", "within 25 %")  # fmt: skip
    return Table(title, header, tuple(rows))


def _numbers(variance: Statistic, cost: Statistic, needed: Statistic) -> tuple[str, str, str, str]:
    saved = f"{1 - needed.mean / 1000:.0%}"
    return variance.text(".3f"), cost.text(".3f"), needed.text(".0f"), saved


def _with_worst(variance: Statistic, cost: Statistic, needed: Statistic) -> tuple[str, ...]:
    first, second, third, saved = _numbers(variance, cost, needed)
    return first, second, f"{cost.largest:.3f}", third, saved


def _published(paper: Published) -> tuple[str, str, str, str]:
    return (
        f"{paper.variance:.3f}",
        f"{paper.cost:.3f}",
        f"{paper.needed}",
        f"{100 - paper.needed / 10:.0f}%",
    )
