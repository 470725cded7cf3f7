"""How ``scopeval reproduce foreign`` prints its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scopeval.cli.console import closing, columns, out

if TYPE_CHECKING:
    from rich.table import Table

    from scopeval.paper.experiments.foreign import Result

__all__ = ["show_foreign"]


def show_foreign(result: Result, command: str, footer: str) -> None:
    """One table that counts, and one of the designs that broke a promise or predicted badly."""
    from scopeval.paper.experiments.foreign import MOST_COST, MOST_VARIANCE, PREDICTION

    console = out()
    console.print("[bold]Designs in environments that scopeval was not tuned on[/]")
    console.print(_counts(result))
    console.print()
    if result.exceptions:
        console.print("[bold]Designs outside the limits[/]")
        console.print(_exceptions(result))
        console.print()
    config = result.config
    low, high = PREDICTION
    closing(
        console,
        command,
        footer,
        f"{config.targets} targets in each environment, seed {config.seed}; half of them (even "
        "numbers) thresholds may be chosen on, the other half is what counts. Variance and cost "
        "of one episode under the learned design, relative to running the target policy, exact. "
        f"Limits: variance {MOST_VARIANCE}, cost {MOST_COST}, predicted / true variance {low} to "
        f"{high}. Well predicted: share within these, of the designs that do not fall back to the "
        "target policy.",
    )


def _counts(result: Result) -> Table:
    shown = columns(
        "\nenvironment",
        "\ntargets",
        "\ndesigns",
        "fall\nback",
        "mean\nvariance",
        "worst\nvariance",
        "above\nlimit",
        "worst\ncost",
        "above\nlimit",
        "well pre-\ndicted",
    )
    shown.padding = (0, 1, 0, 0)
    for group in result.groups:
        row = group.as_dict()
        predicted = row["well_predicted_departures"]
        shown.add_row(
            group.environment,
            group.half.split()[0],
            f"{row['designs']}",
            f"{row['fall_back']}",
            f"{row['mean_variance']:.3f}",
            f"{row['worst_variance']:.3f}",
            f"{row['too_variable']}",
            f"{row['worst_cost']:.4f}",
            f"{row['too_expensive']}",
            "" if predicted is None else f"{predicted:.0%}",
        )
    return shown


def _exceptions(result: Result) -> Table:
    shown = columns(
        "environment,\ntarget",
        "\nlogs",
        "\nmethod",
        "\nvariance",
        "pre-\ndicted",
        "\nchecked",
        "\ncost",
        "pre-\ndicted",
        "\nchecked",
    )
    shown.padding = (0, 1, 0, 0)
    for row in result.exceptions:
        name = f"{row.episodes:,}" if row.logs == "mixed" else row.logs
        shown.add_row(
            f"{row.environment} {row.target}",
            name,
            row.method,
            f"{row.variance:.3f}",
            f"{row.predicted_variance:.3f}",
            f"{row.checked_variance:.3f}",
            f"{row.cost:.3f}",
            f"{row.predicted_cost:.3f}",
            f"{row.checked_cost:.3f}",
        )
    return shown
