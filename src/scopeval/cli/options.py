"""Options that several commands have, each with its type and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "LOG",
    "POLICY",
    "Alpha",
    "Columns",
    "CostBound",
    "CostBudget",
    "CostLimit",
    "Estimator",
    "Features",
    "Gamma",
    "Horizon",
    "JsonFile",
    "Log",
    "LogSeed",
    "Precision",
    "Reference",
    "Regression",
    "ReportFile",
    "ReturnBound",
    "Separator",
    "StepCostBound",
    "TargetPolicy",
    "TimeVarying",
]

LOG = "The log: .parquet, .csv, .jsonl, .npz or a folder."
POLICY = ".npy, .npz, .csv, TorchScript .pt or module:name"

# What is learned from.
Log = Annotated[str, typer.Option(help=LOG)]
Columns = Annotated[
    list[str] | None, typer.Option(help="field=column of the log; may be repeated.")
]
Separator = Annotated[
    str | None, typer.Option(help="Separates the columns of a CSV file, if not a comma.")
]
TargetPolicy = Annotated[str, typer.Option(help=f"The target policy: {POLICY}.")]
Horizon = Annotated[int, typer.Option(help="Steps of an episode.")]
Gamma = Annotated[float, typer.Option(help="Discount.")]

# How it is learned.
Regression = Annotated[str, typer.Option(help="table, model, mlp or auto.")]
Features = Annotated[Path | None, typer.Option(help="Coordinates of the states: .npy or .csv.")]
TimeVarying = Annotated[
    bool, typer.Option("--time-varying", help="Rewards or dynamics depend on time.")
]
LogSeed = Annotated[int, typer.Option(help="Seed of the halves of the log and of the networks.")]

# When to stop.
Precision = Annotated[
    float | None, typer.Option(help="Stop when the half-width of the interval is at most this.")
]
CostBudget = Annotated[float | None, typer.Option(help="Stop when this cost has been spent.")]

# What is estimated, and where it is written.
Alpha = Annotated[float, typer.Option(help="Probability that the interval misses the value.")]
Estimator = Annotated[str, typer.Option(help="auto, mc, is, pdis or dr.")]
Reference = Annotated[
    str | None,
    typer.Option(
        help="A policy whose expected cost must not be exceeded, as --policy.",
        show_default="the target policy",
    ),
]
CostLimit = Annotated[
    float | None,
    typer.Option(help="A limit on the expected cost of an episode, instead of a policy's."),
]
CostBound = Annotated[
    float | None,
    typer.Option(help="The most that an episode can cost: certificate and guard are proofs."),
]
StepCostBound = Annotated[
    float | None, typer.Option(help="The most that one step can cost, likewise.")
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
