"""What a user waits for, beside what one would use instead: ``python -m benchmarks [NAME ...]``.

Without a name all are measured, in ten minutes on two cores; ``growth --heavy``: 10^8 rows, Ray.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from benchmarks.harness import Comparison, save
from experiments.common import Table, errors_in_one_line
from scopeval._files import check_place, machine
from scopeval.cli.console import err, out, print_line, print_table
from scopeval.errors import MissingExtraError

Name = Literal["design", "evaluate", "compare", "live", "growth", "solver"]


@dataclass(frozen=True)
class Args:
    """Measure speed beside peers, as ratios."""

    names: tyro.conf.Positional[tuple[Name, ...]] = ()
    """Which; all if none is named."""
    out: Path = Path("results/bench")
    """Folder for the results, NAME.json."""
    quick: bool = False
    """Small sizes, for a first look."""
    heavy: bool = False
    """10^8 logged rows, and Ray beside processes: an hour, and 1.2 GB of disk."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark, in the module of its name.

    Attributes:
        title: head of its table.
        packages: whose versions are recorded.
        quick: settings of the small version.
        among_all: settings where all are measured, so that they take 10 minutes together.
    """

    title: str
    packages: tuple[str, ...]
    quick: dict[str, Any]
    among_all: dict[str, Any] = field(default_factory=dict)


BENCHMARKS = {
    "design": Benchmark(
        "from logs to a design",
        ("numpy", "numba", "torch", "d3rlpy"),
        {"size": 10, "episodes": 300, "horizon": 20, "prices": 12, "patience": 5.0, "repeats": 1},
    ),
    "evaluate": Benchmark(
        "an evaluation, time per step",
        ("numpy", "numba", "gymnasium", "ray"),
        {"episodes": 50_000, "peer_episodes": 64, "slow_episodes": 64, "repeats": 1},
    ),
    "compare": Benchmark(
        "a comparison",
        ("numpy", "numba", "scipy"),
        {"size": 5, "logged": 200, "episodes": 200, "calls": 200, "repeats": 1},
    ),
    "live": Benchmark(
        "one decision",
        ("numpy", "numba", "torch", "sqlalchemy", "fastapi", "uvicorn"),
        {"calls": 2_000, "plants": 20, "seconds": 6.0, "turns": 2},
        {"seconds": 20.0, "turns": 4},
    ),
    "growth": Benchmark(
        "growth",
        ("numpy", "numba", "pyarrow", "ray"),
        {
            "rows": (100_000, 400_000),
            "file_rows": 50_000,
            "vectors": (20_000, 40_000),
            "decades": (("design, actions", 1, 3),),
            "repeats": 1,
        },
        {"repeats": 1},
    ),
    "solver": Benchmark(
        "line 6, time per row",
        ("numpy", "numba", "cvxpy", "clarabel"),
        {"rows": 10_000, "solves": 20, "repeats": 1},
    ),
}


#: Settings of ``--heavy``.
HEAVY: dict[str, dict[str, Any]] = {
    "evaluate": {"backends": ("processes", "ray")},
    "growth": {"rows": (10_000_000, 100_000_000), "backends": ("processes", "ray")},
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure what is asked for, one after the other."""
    args = tyro.cli(Args, args=words, description=__doc__)
    began = time.perf_counter()
    for name in args.names or BENCHMARKS:
        what = BENCHMARKS[name]
        settings = what.quick if args.quick else {} if args.names else what.among_all
        settings = settings | HEAVY.get(name, {}) if args.heavy else settings
        with errors_in_one_line():
            try:
                measure(name, check_place(args.out / f"{name}.json"), settings, args)
            except MissingExtraError as error:
                if args.names:
                    raise
                print_line(out(), f"{name}: {error}, or: make bench")
        out().print()
    minutes, seconds = divmod(round(time.perf_counter() - began), 60)
    print_line(out(), f"All together: {minutes} min {seconds} s")


def measure(name: str, place: Path, settings: dict[str, Any], args: Args) -> None:
    """Run one benchmark, print its table, and write its file."""
    what, module = BENCHMARKS[name], importlib.import_module(f"benchmarks.{name}")
    config = module.Config(**settings)
    print_line(err(), f"measuring: {name}")
    rows = module.run(config)
    chosen = [*args.names, *["--quick"] * args.quick, *["--heavy"] * args.heavy]
    command = " ".join(["python -m benchmarks", *chosen])
    print_table(out(), table_of(what.title, rows))
    for row in rows:
        if row.note:
            print_line(out(), f"{row.name}: {row.note}")
    host = machine()
    print_line(out(), f"{host['cpu']}, {host['cores']} cores")
    print_line(out(), command)
    path = save(place, name, command, rows, packages=what.packages, seed=config.seed)
    print_line(err(), f"Results: {path}")


def table_of(title: str, rows: Sequence[Comparison]) -> Table:
    """Comparisons as a table."""
    cells = tuple(
        (
            row.name,
            amount(row.ours, row.unit),
            "none" if row.peer is None else "> " * row.stopped + amount(row.peer, row.unit),
            _ratio(row),
            "" if row.goal is None else f"{_BOUNDS[row.sense]} {row.goal:,g}",
            {True: "yes", False: "no", None: "" if row.goal is None else "?"}[row.met],
        )
        for row in rows
    )
    return Table("", (title, "ours", "peer", "ratio", "goal", "met"), cells)


_BOUNDS = {"slower": "<=", "faster": ">="}


def _ratio(row: Comparison) -> str:
    if row.ratio is None:
        return ""
    return f"{'> ' * row.stopped}{row.ratio:,.{2 if row.ratio < 10 else 0}f}x {row.sense}"


def amount(value: float, unit: str) -> str:
    """A duration with three digits, or a slope."""
    if unit == "slope":
        return f"{value:.2f}"
    for name, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


if __name__ == "__main__":
    main(sys.argv[1:])
