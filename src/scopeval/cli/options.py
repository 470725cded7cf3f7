"""Options that several commands have, each with its type and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "LOG",
    "POLICY",
    "Alpha",
    "AtMost",
    "Baseline",
    "Bound",
    "Columns",
    "Decimal",
    "Estimator",
    "Features",
    "Gamma",
    "Gap",
    "Horizon",
    "JsonFile",
    "Learn",
    "Limit",
    "Log",
    "LogSeed",
    "Policies",
    "Precision",
    "ReportFile",
    "ReturnBound",
    "Separator",
    "SideBySide",
    "Spend",
    "StepBound",
    "TargetPolicy",
    "Time",
    "TimeVarying",
]

LOG = "The log: .parquet, .csv, .jsonl, .npz or a folder."
POLICY = ".npy, .npz, .csv, TorchScript .pt or module:name"

# What is learned from.
Log = Annotated[str, typer.Option(help=LOG)]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        help="field=column of the log, once for each field; for a vector repeat obs=column, or "
        "separate its columns by commas."
    ),
]
Separator = Annotated[
    str | None,
    typer.Option(
        help="Separates the columns of a CSV file.", show_default="what its first lines show"
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option(help="Decimal point of a CSV file: . or ,", show_default="what its columns show"),
]
Time = Annotated[
    str | None, typer.Option(help="Column of times, by which episodes and steps are counted.")
]
Gap = Annotated[
    str | None,
    typer.Option(help="Longest pause within an episode, such as 11min; with --time."),
]
Every = Annotated[
    str | None,
    typer.Option(help="Time of an episode of a log that never pauses, such as 24h; with --time."),
]
Policies = Annotated[
    list[str],
    typer.Option(
        help=f"The target policy: {POLICY}. Or several to compare, name=policy, once for each; the "
        "first is what runs today."
    ),
]
TargetPolicy = Annotated[str, typer.Option(help=f"The target policy: {POLICY}.")]
Horizon = Annotated[int, typer.Option(help="Steps of an episode.")]
Gamma = Annotated[float, typer.Option(help="Discount.")]

# How it is learned.
Learn = Annotated[str, typer.Option(help="What learns: table, networks or auto.")]
Features = Annotated[Path | None, typer.Option(help="Coordinates of the states: .npy or .csv.")]
TimeVarying = Annotated[
    bool, typer.Option("--time-varying", help="Rewards or dynamics depend on time.")
]
LogSeed = Annotated[int, typer.Option(help="Seed of the halves of the log and of the networks.")]

# What no action changes.
Context = Annotated[
    Path | None,
    typer.Option(
        help="Paths of past operation of what no action changes: a log, or .npy, [m, L] or "
        "[m, L, d]; with --exogenous."
    ),
]
Exogenous = Annotated[
    str | None,
    typer.Option(
        help="What no action changes: names of columns of the log or of signals in info, or "
        "numbers of columns of the observation, with commas between them."
    ),
]

# When to stop.
Precision = Annotated[
    float | None, typer.Option(help="Stop when the half-width of the interval is at most this.")
]
Spend = Annotated[float | None, typer.Option(help="Stop when this cost has been spent.")]

# What is estimated, and where it is written.
Alpha = Annotated[float, typer.Option(help="Probability that the interval misses the value.")]
Estimator = Annotated[
    str,
    typer.Option(help="auto, mc, is, pdis, dr, or module:attribute; of episodes also wis and fqe."),
]
AtMost = Annotated[
    float | None,
    typer.Option(
        help="The promise: an episode costs at most this many times what the target policy's does, "
        "or the baseline's where there is one.",
        show_default="the behavior policy's, or 1",
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(help="The policy that runs today, as --policy: the promise is about its cost."),
]
Limit = Annotated[
    float | None,
    typer.Option(help="The promise: an episode is expected to cost at most this."),
]
Bound = Annotated[
    float | None,
    typer.Option(help="The most that an episode can cost: certificate and guard are proofs."),
]
StepBound = Annotated[float | None, typer.Option(help="The most that one step can cost, likewise.")]
SideBySide = Annotated[
    int | None, typer.Option(help="Environments side by side.", show_default="8")
]
ReturnBound = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LOW HIGH",
        help="Least and greatest possible return: the interval holds for any number of episodes.",
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the result to this file as well.")
]
ReportFile = Annotated[
    Path | None, typer.Option(help="Write a page to this file as well, such as r.html.")
]
