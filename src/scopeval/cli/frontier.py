"""``scopeval frontier``: what precision costs, and a behavior policy at any point of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scopeval.cli import options
from scopeval.cli.console import out, paragraph, print_line, print_table, progress_bar

if TYPE_CHECKING:
    from scopeval.behavior.frontier import Frontier
    from scopeval.behavior.policy import BehaviorPolicy
    from scopeval.report.page import Table

__all__ = ["frontier", "table_of"]

#: What a picture may be.
PICTURES = (".svg", ".png", ".pdf")


def frontier(
    data: options.Log,
    policy: options.TargetPolicy,
    horizon: options.Horizon,
    cost: Annotated[
        float | None,
        typer.Option(help="Choose the least variance at this part of the target policy's cost."),
    ] = None,
    variance: Annotated[
        float | None,
        typer.Option(help="Choose the least cost at this part of the target policy's variance."),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Choose the least variance x cost.")] = False,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="File for the behavior policy that is chosen.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="File for the curve: .svg, .png or .pdf.")
    ] = None,
    gamma: options.Gamma = 1.0,
    learn: options.Learn = "auto",
    features: options.Features = None,
    time_varying: options.TimeVarying = False,
    cap: Annotated[float, typer.Option(help="No weight of an episode exceeds it.")] = 30.0,
    columns: options.Columns = None,
    separator: options.Separator = None,
    decimal: options.Decimal = None,
    time: options.Time = None,
    gap: options.Gap = None,
    every: options.Every = None,
    seed: options.LogSeed = 0,
) -> None:
    """Learn from logs what precision costs, also below the target policy's own cost."""
    from scopeval._files import check_place
    from scopeval.behavior.frontier import frontier as learned
    from scopeval.cli.sources import columns_from, learn_from, policy_from
    from scopeval.errors import InputError
    from scopeval.logs.read import read_logs

    given = sum((cost is not None, variance is not None, best))
    if given > 1:
        raise InputError("cost, variance, best: got several of them, expected at most one")
    if out_file is not None and not given:
        raise InputError("out: needs one of --cost, --variance and --best, which choose a point")
    if picture is not None and picture.suffix.lower() not in PICTURES:
        raise InputError(f"picture: got {picture.name!r}, expected {', '.join(PICTURES)}")
    for file in (out_file, picture):
        if file is not None:
            check_place(file)
    target, how = policy_from(policy), learn_from(learn, features, time_varying)
    with progress_bar("reading the log") as progress:
        logged = read_logs(
            data, columns=columns_from(columns or []), horizon=horizon,
            separator=separator, decimal=decimal, time=time, gap=gap, every=every,
        )  # fmt: skip
        curve = learned(
            logged,
            target,
            horizon=horizon,
            gamma=gamma,
            learn=how,
            cap=cap,
            seed=seed,
            progress=lambda what, done, total: progress(
                done, total, "designing" if what == "design" else what
            ),
        )
        chosen: BehaviorPolicy | None = None
        if given:
            chosen = curve.best() if best else curve.at(cost=cost, variance=variance)
    _tell(curve, chosen, out_file, picture)


def _tell(
    curve: Frontier, chosen: BehaviorPolicy | None, out_file: Path | None, picture: Path | None
) -> None:
    """Save and print."""
    console = out()
    if curve.points:
        print_table(console, table_of(curve))
        paragraph(
            console,
            "All relative to running the target policy. Needed: the cost of reaching the target "
            "policy's own precision. Checked: what held-out logs say of designs from the others.",
        )
        if any(not point.pays for point in curve.points):
            paragraph(console, "* does not pay: the target policy's own episodes need no more.")
    for text in curve.warnings:
        paragraph(console, f"warning: {text}")
    if not curve.points:
        paragraph(console, "The logs bear out no point: run the target policy itself.")
    if chosen is not None:
        predicted = chosen.predicted
        paragraph(
            console,
            f"Chosen: {predicted.variance:.3f} of the variance at {predicted.safe_cost:.3f} of the "
            f"cost ({predicted.cost:.3f} expected, the rest is doubt).",
        )
        if out_file is not None:
            chosen.save(out_file)
            print_line(console, f"Behavior policy: {out_file}")
    if picture is not None and curve.points:
        _draw(curve, chosen, picture)
        print_line(console, f"Picture: {picture}")


def _draw(curve: Frontier, chosen: BehaviorPolicy | None, picture: Path) -> None:
    import io

    from matplotlib.figure import Figure

    from scopeval._files import replace_file

    figure = Figure(figsize=(5.6, 3.7), layout="constrained")
    curve.plot(figure.add_subplot(), chosen)
    content = io.BytesIO()
    figure.savefig(content, format=picture.suffix[1:].lower(), dpi=160)
    replace_file(picture, content.getvalue())


def table_of(curve: Frontier) -> Table:
    """The frontier at costs of 1, 0.9, ... of the target policy's, as far as the logs bear out."""
    import numpy as np

    from scopeval.report.page import Table

    points = sorted(curve.points, key=lambda p: p.safe_cost)  # ascending, for interpolation
    costs = np.array([p.safe_cost for p in points])
    columns = [
        np.array([p.safe_variance for p in points]),
        np.array([p.checked_variance for p in points]),
        np.array([p.checked_cost for p in points]),
    ]
    wanted = [x for x in np.arange(10, 0, -1) / 10 if costs[0] <= x <= costs[-1]]
    shown = sorted({float(costs[-1]), *wanted, float(costs[0])}, reverse=True)
    rows = []
    for x in shown:
        variance, checked_variance, checked_cost = (
            float(np.interp(x, costs, column)) for column in columns
        )
        rows.append(
            (
                f"{x:.3f}",
                f"{variance:.3f}",
                f"{variance * x:.3f}{'' if variance * x < 1.0 else ' *'}",
                f"{checked_variance:.3f}",
                f"{checked_cost:.3f}",
            )
        )
    header = ("cost", "variance", "needed", "checked variance", "checked cost")
    return Table("What precision costs", header, tuple(rows))
