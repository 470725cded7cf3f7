"""What designs and frontiers are worth in worlds like those of users, which no rule was made for.

Eleven finite worlds (queues, dosing, inventory, batteries, ...) of 20 to 60 steps, whose noise is
mostly their own, several with rare large costs. Their models are known, so that the variance and
the cost of everything that would run are exact, and so is the least variance at every cost. Two
parts: numbers of the library may be chosen on `choose`; what is reported is `report`.

Each of five target policies (random, soft, trained, near-optimal, careful) is met with four kinds
of logs: 1,000 and 300 episodes of thirty different controllers, 1,000 of one deterministic
controller with 10 % noise, and 50 of the target policy itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from experiments.common import Note, RunArgs, Table, main
from experiments.user_worlds import LOGS, PARTS, TARGETS, WORLDS, logs_for, target_of
from scopeval.errors import InputError
from scopeval.exact import TabularMDP

#: A promise on the cost is broken above so many times what was asked for.
BROKEN = 1.005
#: What a fallback may forgo of the variance, and a point at the target's own cost may have more.
FORGONE, MORE_VARIANCE = 0.97, 1.02
#: Predicted / true variance of a good prediction.
PREDICTION = (0.8, 1.25)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Args(RunArgs):
    """Designs and frontiers in worlds like those of users."""

    part: str = "report"
    """choose, report or all."""
    worlds: tuple[str, ...] = ()
    """Names of worlds; all of the part if it is left out."""
    targets: tuple[str, ...] = TARGETS
    """Kinds of target policies."""
    logs: tuple[str, ...] = LOGS
    """Kinds of logs."""
    seeds: tuple[int, ...] = (0,)
    """Of logs and random targets."""
    costs: tuple[float, ...] = (1.0, 0.8, 0.5)
    """Asked of the frontier, relative to the target's own."""

    RANGES: ClassVar[tuple[str, ...]] = ("part", "worlds", "targets", "seeds")

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""
        for name, given, expected in (
            ("part", (self.part,), (*PARTS, "all")),
            ("worlds", self.worlds, tuple(WORLDS)),
            ("targets", self.targets, TARGETS),
            ("logs", self.logs, LOGS),
        ):
            for one in given:
                if one not in expected:
                    raise InputError(f"{name}: got {one!r}, expected some of {', '.join(expected)}")


QUICK: dict[str, Any] = {
    "worlds": ("maintenance", "marketing"),
    "targets": ("soft", "near-optimal"),
    "logs": ("varied-1000", "like-50"),
}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each world, target and seed: all kinds of logs share its exact frontier."""
    parts = tuple(PARTS) if args.part == "all" else (args.part,)
    names = args.worlds or tuple(make.__name__ for part in parts for make in PARTS[part])
    return [
        {"world": world, "target": target, "seed": seed}
        for seed in args.seeds
        for world in names
        for target in args.targets
    ]


def job(args: Args, world: str, target: str, seed: int) -> dict[str, Any]:
    """A design, and points of a frontier, from each kind of logs, with what is true of them."""
    from scopeval import exact

    mdp = WORLDS[world][1]()
    pi = target_of(mdp, target, seed)
    own = exact.assess(mdp, pi, pi, None)
    optimum = least_variances(mdp, pi, args.costs)
    rows: list[dict[str, Any]] = []
    for kind in args.logs:
        logged = logs_for(mdp, pi, kind, seed)
        rows.append({"verb": "design", "logs": kind, "asked": 1.0})
        rows[-1] |= design_row(mdp, pi, own, logged)
        for asked, shown in frontier_rows(mdp, pi, own, logged, args.costs):
            rows.append({"verb": "frontier", "logs": kind, "asked": asked, **shown})
            rows[-1]["optimum"] = optimum[asked]
    return {"rows": [{k: rounded(v) for k, v in row.items()} for row in rows]}


def rounded(value: Any) -> Any:
    """Six digits are more than any table shows."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def least_variances(
    mdp: TabularMDP, pi: np.ndarray, costs: Sequence[float]
) -> dict[float, float | None]:
    """The exact frontier's variance at each asked cost; None: no design is that cheap."""
    from scopeval import exact

    curve = exact.frontier(mdp, pi, floor=0.005)
    least: dict[float, float | None] = {}
    for asked in costs:
        try:
            least[asked] = min(curve.at(cost=asked).predicted.relative_variance, 1e9)
        except InputError:
            least[asked] = None
    return least


def design_row(mdp: TabularMDP, pi: Any, own: Any, logged: Any) -> dict[str, Any]:
    """A design, with what is true of it; of a fallback, what it forwent."""
    import scopeval

    behavior = scopeval.design(logged, pi, horizon=mdp.horizon)
    row = truth(mdp, pi, own, behavior)
    if row["falls_back"]:
        row["forced"] = forced(mdp, pi, own, logged)
    return row


def forced(mdp: TabularMDP, pi: Any, own: Any, logged: Any) -> float:
    """The true variance of what has the least upper end, used whatever that is.

    1 if it costs more than the target policy.
    """
    from scopeval.behavior.candidates import compare, design_on_all, kinds_of
    from scopeval.behavior.evidence import evidence_of
    from scopeval.behavior.methods import METHODS
    from scopeval.behavior.step import Recipe
    from scopeval.question.question import Question

    evidence = evidence_of(logged, Question(pi, mdp.horizon))
    asked = Recipe(METHODS["scope-dr"], mdp.horizon)
    compared = compare(evidence, kinds_of(evidence, asked))
    design = design_on_all(evidence, compared.choices[int(np.argmin(compared.upper))])
    variance, cost = true_of(mdp, pi, own, evidence, design)
    return variance if cost <= BROKEN else 1.0


def true_of(mdp: TabularMDP, pi: Any, own: Any, evidence: Any, design: Any) -> tuple[float, float]:
    """Exact relative variance and cost of a design from all of the logs."""
    from scopeval import exact
    from scopeval.behavior.step import weigh_rows

    points = evidence.whole.at(0)
    mu, b = (np.empty((mdp.horizon, mdp.states, mdp.actions)) for _ in range(2))
    for t, critic in enumerate(design.swept.critics):
        table = np.ascontiguousarray(points.target(evidence.target, t))
        one = weigh_rows(design.recipe, table, points.estimates(critic))
        mu[t], b[t] = one.mu, one.control
    true = exact.assess(mdp, pi, mu, b if design.recipe.method.control_variate else None)
    return true.variance / own.variance, true.cost / own.cost


def frontier_rows(
    mdp: TabularMDP, pi: Any, own: Any, logged: Any, costs: Sequence[float]
) -> Iterable[tuple[float, dict[str, Any]]]:
    """The frontier's point at each asked cost, with what is true of it."""
    import scopeval

    curve = scopeval.frontier(logged, pi, horizon=mdp.horizon)
    for asked in costs:
        try:
            behavior = curve.at(cost=asked)
        except InputError:
            yield asked, {"offered": False}
            continue
        yield asked, {"offered": True, **truth(mdp, pi, own, behavior)}


def truth(mdp: TabularMDP, pi: Any, own: Any, behavior: Any) -> dict[str, Any]:
    """What is predicted and what is true, all relative to running the target policy."""
    from scopeval import exact

    true: Any = exact.assess(mdp, pi, behavior) if not behavior.weighted else None
    if true is None:
        true = exact.tabulate(mdp, pi, behavior).predicted
    predicted = behavior.report.prediction
    return {
        "variance": float(true.variance / own.variance),
        "cost": float(true.cost / own.cost),
        "predicted": float(predicted.variance),
        "checked": float(predicted.checked_variance),
        "falls_back": behavior.report.fallback is not None,
    }


# -- tables ----------------------------------------------------------------------------------------


def summary(args: Args, rows: Sequence[Row]) -> dict[str, Any]:
    """All rows, flat."""
    names = ("world", "target", "seed")
    return {
        "rows": [{**{k: row[k] for k in names}, **one} for row in rows for one in row["rows"]],
    }


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """Whether promises are kept, then designs and points by world and by kind of logs."""
    rows = content["rows"]
    designs = [row for row in rows if row["verb"] == "design"]
    points = [row for row in rows if row["verb"] == "frontier"]
    return [
        promises(designs, points),
        Table(
            "Designs",
            ("world", "designs", "fall back", "log variance, mean", "largest cost"),
            tuple(design_line(name, some) for name, some in grouped(designs, "world")),
        ),
        Table(
            "Points of frontiers",
            (
                "world", "asked", "offered (possible)", "variance, median (optimum)",
                "true/asked cost: mean, max", "> 1.005", "predicted/true: 10 %, median, 90 %",
            ),
            tuple(
                point_line(name, asked, some)
                for name, part in grouped(points, "world")
                for asked, some in grouped(part, "asked", everything=False)
            ),
        ),
        Table(
            "Points by logs",
            ("logs", "asked", "offered of possible", "> 1.005"),
            tuple(
                logs_line(name, asked, some)
                for name, part in grouped(points, "logs")
                for asked, some in grouped(part, "asked", everything=False)
            ),
        ),
        Note(
            "All relative to running the target policy; exact. Possible: the exact frontier has a "
            "design at that cost. ± is one standard error; the limit is the exact one of Clopper "
            "and Pearson, 95 %, one-sided, as if points were independent."
        ),
    ]  # fmt: skip


def promises(designs: Sequence[Row], points: Sequence[Row]) -> Table:
    """What must hold, each as a count."""
    used = [row for row in points if row["offered"]]
    at_own = [row for row in used if row["asked"] == 1.0]
    back = [row for row in designs if row["falls_back"]]
    held = [row for row in designs if not row["falls_back"]]
    lines = [
        counted(
            "points that cost more than 1.005 of what was asked",
            [row["cost"] > BROKEN * row["asked"] for row in used],
        ),
        counted(
            "sets of logs with such a point below the target's own cost",
            [
                any(row["cost"] > BROKEN * row["asked"] for row in some)
                for _, some in grouped(
                    [{**row, "set": set_of_logs(row)} for row in used if row["asked"] < 1.0],
                    "set",
                    everything=False,
                )
            ],
        ),
        counted("designs that cost more than 1.005", [row["cost"] > BROKEN for row in designs]),
        counted(
            "at the target's own cost: predicted variance above 1",
            [row["predicted"] > 1.0 + 1e-9 for row in at_own],
        ),
        counted(
            "likewise: true variance above 1.02",
            [row["variance"] > MORE_VARIANCE for row in at_own],
        ),
        counted(
            "fallbacks that forwent more than 3 % of the variance",
            [row["forced"] < FORGONE for row in back],
        ),
        counted("designs predicted within .8 to 1.25 of the truth", [near(row) for row in held]),
        counted("points predicted within .8 to 1.25 of the truth", [near(row) for row in used]),
    ]
    for asked in dict.fromkeys(row["asked"] for row in points):
        possible = [
            row["offered"]
            for row in points
            if row["asked"] == asked and row["logs"] == "varied-1000" and row["optimum"] is not None
        ]
        lines.append(
            counted(f"possible points at {asked:g}, 1,000 varied episodes: offered", possible)
        )
    return Table("Promises", ("what", "of", "share", "95 % limit"), tuple(lines))


def set_of_logs(row: Row) -> tuple[Any, ...]:
    """Which logs a row is from: those that are like the target's are of one target each."""
    target = row["target"] if row["logs"] == LOGS[-1] else None
    return row["world"], row["seed"], row["logs"], target


def counted(name: str, hits: Sequence[bool]) -> tuple[str, ...]:
    """How many, their share with its standard error, and its upper limit."""
    from scipy.stats import beta

    n, k = len(hits), sum(hits)
    if not n:
        return name, "0 of 0", "-", "-"
    share = k / n
    limit = 1.0 if k == n else float(beta.ppf(0.95, k + 1, n - k))
    error = (share * (1 - share) / n) ** 0.5
    return name, f"{k} of {n}", f"{share:.3f} ± {error:.3f}", f"{limit:.3f}"


def near(row: Row) -> bool:
    """Whether the prediction of the variance is good."""
    return bool(PREDICTION[0] <= row["predicted"] / row["variance"] <= PREDICTION[1])


def design_line(name: str, some: Sequence[Row]) -> tuple[str, ...]:
    """A world's designs."""
    logs = np.log([max(row["variance"], 1e-6) for row in some])
    error = logs.std(ddof=1) / len(logs) ** 0.5 if len(logs) > 1 else np.nan
    back = sum(row["falls_back"] for row in some)
    most = max(row["cost"] for row in some)
    return name, f"{len(some)}", f"{back}", f"{logs.mean():.3f} ± {error:.3f}", f"{most:.4f}"


def point_line(name: str, asked: float, some: Sequence[Row]) -> tuple[str, ...]:
    """A world's points at one asked cost."""
    possible = sum(row["optimum"] is not None for row in some)
    used = [row for row in some if row["offered"]]
    first = (name, f"{asked:g}", f"{len(used)} ({possible})")
    if not used:
        return (*first, "-", "-", "-", "-")
    ratio = np.array([row["cost"] / row["asked"] for row in used])
    quotient = np.quantile([row["predicted"] / row["variance"] for row in used], (0.1, 0.5, 0.9))
    best = [row["optimum"] for row in used if row["optimum"] is not None]
    return (
        *first,
        f"{np.median([row['variance'] for row in used]):.2f} "
        f"({np.median(best) if best else np.nan:.2f})",
        f"{ratio.mean():.3f}, {ratio.max():.3f}",
        f"{(ratio > BROKEN).sum()}",
        ", ".join(f"{x:.2f}" for x in quotient),
    )


def logs_line(name: str, asked: float, some: Sequence[Row]) -> tuple[str, ...]:
    """Points from one kind of logs at one asked cost."""
    possible = [row for row in some if row["optimum"] is not None]
    offered = sum(row["offered"] for row in possible)
    over = sum(row["cost"] > BROKEN * asked for row in some if row["offered"])
    return name, f"{asked:g}", f"{offered} of {len(possible)}", f"{over}"


def grouped(
    rows: Sequence[Row], key: str, *, everything: bool = True
) -> Iterable[tuple[Any, list[Row]]]:
    """Rows by the value of a key, and all of them."""
    for value in dict.fromkeys(row[key] for row in rows):
        yield value, [row for row in rows if row[key] == value]
    if everything and rows:
        yield "**all**", list(rows)


if __name__ == "__main__":
    main("experiments.unseen_worlds")
