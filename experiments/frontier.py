"""The frontier of variance and cost: how far below the target's own cost? Exact, or from logs.

For every target policy and every asked cost, relative to the target's own, the least relative
variance. With exact values (``--critics exact``) that of three families of behavior policies:

- ``weight-aware``: `exact.frontier` with b = q, each design within the cap on weights;
- ``weight-blind``: the best that know the state and the time only (`exact.improve_blind`), with
  b = q;
- ``b = 0``: `exact.frontier` without a control variate, its curve without the cap.

Beside them the least cost at no more than the target's own variance, and the least product of
variance and cost. With ``--critics table``, `scopeval.frontier` learns from logged episodes; each
design is judged exactly in the true model, beside what was predicted and what a design with exact
values reaches at the same cost.

Worlds: the paper's Gridworld, a world for each target, and Gymnasium's finite environments, where
the three targets are a softmax of the optimal values, from nearly optimal to nearly random.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from experiments import drawing
from experiments.common import Note, RunArgs, Table, main, mean_of, text_of
from experiments.gridworld import CostLaw
from experiments.worlds.finite import finite_world
from scopeval import Transitions, exact, frontier
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.models import table as models
from scopeval.policies.adapters import TabularPolicy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from scopeval.arrays import Floats

Name = Literal["FrozenLake", "CliffWalking", "Taxi", "Blackjack"]
#: Of an environment: horizon, and beta of the softmax of its three targets.
ENVIRONMENTS: dict[str, tuple[int, tuple[float, float, float]]] = {
    "FrozenLake": (60, (10.0, 3.0, 1.0)),
    "CliffWalking": (40, (1.0, 0.3, 0.1)),
    "Taxi": (20, (3.0, 1.0, 0.3)),
    "Blackjack": (10, (3.0, 1.0, 0.3)),
}
FAMILIES = ("weight-aware", "weight-blind", "b = 0")
#: Numbers of a learned design: variance and cost in the true model; what it predicted; what
#: held-out logs said; and the variance of the design with exact values.
FIELDS = ("variance", "cost", "predicted_variance", "predicted_cost", "checked_variance",
          "checked_cost", "exact_variance")  # fmt: skip
#: Points of the table in which a learned design is judged.
POINTS = 48
#: Variances above are not drawn: the axis is for what is worth running.
MOST = 3.0


@dataclass(frozen=True)
class Args(RunArgs):
    """What precision costs."""

    critics: Literal["exact", "table"] = "exact"
    """Exact values, or learned from logged episodes."""
    sizes: tuple[int, ...] = (10, 30)
    """Sizes of the Gridworld: cells along one side, also the horizon; may be empty."""
    cost_laws: tuple[CostLaw, ...] = ("same-tilt",)
    """How its costs are drawn, see `envs.gridworld`."""
    targets: int = 30
    """Number of target policies of each Gridworld, each in its own world."""
    environments: tuple[Name, ...] = ("FrozenLake", "CliffWalking", "Taxi")
    """Finite environments of Gymnasium; may be empty."""
    asked: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
    """Costs, relative to the target's own."""
    cap: float = 30.0
    """Largest weight of an episode, of exact designs."""
    logged: int = 1000
    """Logged episodes to learn from."""
    seed: int = 0
    """Target k is in world seed + k; the logs follow from it, too."""

    RANGES: ClassVar[tuple[str, ...]] = ("sizes", "cost_laws", "targets", "environments")

    @property
    def name(self) -> str:
        """Exact and learned frontiers are two files."""
        return "frontier" if self.critics == "exact" else "frontier-learned"


QUICK: dict[str, Any] = {"sizes": (10,), "targets": 3, "environments": ("FrozenLake",)}


def jobs(args: Args) -> list[dict[str, Any]]:
    """One for each target, world by world; size 0: an environment."""
    grids = [
        {"world": law, "size": size, "target": k}
        for size in args.sizes
        for law in args.cost_laws
        for k in range(args.targets)
    ]
    others = [{"world": n, "size": 0, "target": k} for n in args.environments for k in range(3)]
    return grids + others


def job(args: Args, world: str, size: int, target: int) -> dict[str, Any]:
    """The frontiers of one target."""
    mdp, pi = model_of(world, size, target, args.seed)
    if args.critics == "exact":
        return _exact(args, mdp, pi)
    if size:
        logs = gridworld_logs(mdp, args.logged, seed=args.seed + target)
    else:
        logs = replace(finite_world(world, args.seed), mdp=mdp).logs("mixed", args.logged, target)
    return _learned(args, mdp, pi, logs, cells(size) if size else None, args.seed + target)


def model_of(world: str, size: int, target: int, seed: int) -> tuple[TabularMDP, TabularPolicy]:
    """The world as a model, and the target."""
    if size:
        mdp = Gridworld(size, world, seed + target).mdp()
        return mdp, target_policies(target + 1, size, seed=seed)[target]
    horizon, betas = ENVIRONMENTS[world]
    mdp = finite_world(world).mdp.shortened(horizon)
    return mdp, softmax_target(mdp, betas[target])


def softmax_target(mdp: TabularMDP, beta: float) -> TabularPolicy:
    """pi_t(a | s) proportional to exp(beta (Q* - V*) / scale), scale the mean gap of Q*."""
    q = np.empty((mdp.horizon, mdp.states, mdp.actions))
    best = np.zeros(mdp.states)
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at("reward", t) + mdp.gamma * mdp.expect(best)
        best = q[t].max(axis=1)
    gap = q - q.max(axis=2, keepdims=True)
    mean = -gap.mean(axis=2)
    weight = np.exp(beta * gap / float(mean[mean > 1e-9].mean()))
    return TabularPolicy(weight / weight.sum(axis=2, keepdims=True))


# -- exact -----------------------------------------------------------------------------------------


def _exact(args: Args, mdp: TabularMDP, pi: TabularPolicy) -> dict[str, Any]:
    """(variance, cost) for each family and asked cost, or (None, None)."""
    curve = exact.frontier(mdp, pi, cap=args.cap)
    plain = exact.frontier(mdp, pi, control_variate="none", cap=None)
    best, blind = curve.best().predicted, _blind_curve(mdp, pi, curve, min(args.asked))
    simple = plain.prices, plain.relative_variance, plain.relative_cost
    return {
        "weight-aware": [_point(curve, cost=asked) for asked in args.asked],
        "weight-blind": [_read(*blind, asked) for asked in args.asked],
        "b = 0": [_read(*simple, asked) for asked in args.asked],
        "even": _point(curve, variance=1.0)[1],
        "product": best.relative_variance * best.relative_cost,
    }


def _point(curve: exact.Frontier, **asked: float) -> tuple[float | None, float | None]:
    """A design's relative variance and cost, or nothing where there is none."""
    try:
        found = curve.at(**asked).predicted
    except InputError:  # nothing within the cap is that cheap, or that precise
        return None, None
    return found.relative_variance, found.relative_cost


def _blind_curve(
    mdp: TabularMDP, pi: TabularPolicy, curve: exact.Frontier, least: float
) -> tuple[Floats, Floats, Floats]:
    """Prices, relative variance and relative cost of designs that know no weights.

    Each price begins with what was found for the one below. The curve ends where the least of the
    asked costs is reached.
    """
    own, made, points = curve.own, None, []
    for price in curve.prices:
        made = exact.improve_blind(mdp, pi, float(price), start=made)
        points.append(exact.assess(mdp, pi, made))
        if points[-1].cost <= least * own.cost and len(points) > 1:
            break
    variance = np.array([point.variance for point in points]) / (own.variance or 1.0)
    cost = np.array([point.cost for point in points]) / (own.cost or 1.0)
    return curve.prices[: len(points)], variance, cost


def _read(
    prices: Floats, variance: Floats, cost: Floats, asked: float
) -> tuple[float | None, float | None]:
    """The least variance at no more than a cost, between the points of a curve."""
    from scipy.interpolate import PchipInterpolator

    places = np.log(prices)
    fine = np.linspace(places[0], places[-1], 64 * len(places))
    between = [PchipInterpolator(places, x)(fine) for x in (variance, cost)]
    within = between[1] <= asked
    if not within.any():
        return None, None
    k = int(np.argmin(np.where(within, between[0], np.inf)))
    return float(between[0][k]), float(between[1][k])


# -- learned ---------------------------------------------------------------------------------------


def _learned(
    args: Args,
    mdp: TabularMDP,
    pi: TabularPolicy,
    logs: Transitions,
    features: Floats | None,
    seed: int,
) -> dict[str, Any]:
    """`FIELDS` at every asked cost, None where no design is offered."""
    curve = frontier(
        logs,
        pi,
        horizon=mdp.horizon,
        gamma=mdp.gamma,
        learn=models.Table(features=features),
        seed=seed,
    )
    limit = exact.frontier(mdp, pi)

    def offered(**asked: float) -> BehaviorPolicy | None:
        try:
            return curve.at(**asked)
        except InputError:  # the logs do not bear one out
            return None

    def judged(design: BehaviorPolicy | None) -> tuple[float | None, float | None]:
        if design is None:
            return None, None
        found = exact.tabulate(mdp, pi, design, points=POINTS).predicted
        return found.relative_variance, found.relative_cost

    points = []
    for asked in args.asked:
        design = offered(cost=asked)
        told: tuple[float | None, ...] = (None,) * 4
        if design is not None:
            said = design.predicted
            told = (said.variance, said.safe_cost, said.checked_variance, said.checked_cost)
        numbers = (*judged(design), *told, _point(limit, cost=asked)[0])
        points.append(dict(zip(FIELDS, numbers, strict=True)))
    return {
        "points": points,
        "even": judged(offered(variance=1.0)),
        "best": judged(curve.best() if curve.points else None),
    }


# -- summary ---------------------------------------------------------------------------------------


def by_world(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """For each world: its title, and its rows."""
    for size, world in dict.fromkeys((row["size"], row["world"]) for row in rows):
        title = f"Gridworld {size} x {size}, {world}" if size else world
        yield title, [row for row in rows if (row["size"], row["world"]) == (size, world)]


def summary(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A block for each world."""
    block = _exact_block if args.critics == "exact" else _learned_block
    return {"blocks": [{"world": title, **block(args, found)} for title, found in by_world(rows)]}


def _exact_block(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "families": {
            family: [
                {
                    "asked": asked,
                    "targets": sum(row[family][k][0] is not None for row in rows),
                    "relative_variance": _mean([row[family][k][0] for row in rows]),
                    "relative_cost": [row[family][k][1] for row in rows],
                }
                for k, asked in enumerate(args.asked)
            ]
            for family in FAMILIES
        },
        "cost_at_equal_variance": [row["even"] for row in rows],
        "least_product": [row["product"] for row in rows],
    }


def _learned_block(args: Args, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    points = []
    for k, asked in enumerate(args.asked):
        here = [row["points"][k] for row in rows]
        many = sum(point["variance"] is not None for point in here)
        numbers = {name: _mean([point[name] for point in here]) for name in FIELDS}
        points.append({"asked": asked, "targets": many, **numbers})
    return {"points": points, **{name: [row[name] for row in rows] for name in ("even", "best")}}


def _mean(values: Sequence[float | None]) -> dict[str, Any] | None:
    """Over the targets that have a design."""
    some = [value for value in values if value is not None]
    return mean_of(some) if some else None


def table(content: Mapping[str, Any]) -> list[Table | str]:
    """One table for each world."""
    config, learned = content["config"], "points" in content["blocks"][0]
    made = _learned_table if learned else _exact_table
    words = (
        f"Mean and standard error over the targets, in brackets the number of those that have such "
        f"a design, if not all; relative to running the target policy; seed {config['seed']}. "
    )
    if learned:
        words += (
            f"Learned from {config['logged']:,} logged episodes, and judged exactly in the true "
            "model. Exact: the design with exact values. Largest / asked: the largest true cost "
            "over the asked one. Predicted / true: of the variance, smallest to largest."
        )
    else:
        words += (
            "Weight-aware: behavior policies that know the weight of the episode so far, which is "
            f"at most {config['cap']:g}, with b = q. Weight-blind: the best that know the state "
            "and the time only, with b = q. b = 0: weight-aware without a control variate or cap."
        )
    return [*(made(block) for block in content["blocks"]), Note(words)]


def _exact_table(block: Mapping[str, Any]) -> Table:
    families = block["families"]
    most = max(point["targets"] for point in families["weight-aware"])
    rows = [
        (f"{points[0]['asked']:.2f}", *(_cell(x["relative_variance"], most) for x in points))
        for points in zip(*families.values(), strict=True)
    ]
    even = [x for x in block["cost_at_equal_variance"] if x is not None]
    product = block["least_product"]
    caption = f"{block['world']}: least product of variance and cost {np.mean(product):.3f}"
    if even:
        caption += f", the target's own variance at {np.mean(even):.3f} of its cost"
    return Table(caption, ("asked cost", *families), tuple(rows))


def _learned_table(block: Mapping[str, Any]) -> Table:
    rows = []
    for point in block["points"]:
        cells = [f"{point['asked']:.2f}", _cell(point["exact_variance"])]
        if point["variance"] is None:
            rows.append((*cells, *["-"] * 4))
            continue
        everyone = len((point["exact_variance"] or point["variance"])["values"])
        true, told = (point[name]["values"] for name in ("variance", "predicted_variance"))
        quotients = [p / t for p, t in zip(told, true, strict=True)]
        cells += [_cell(point["variance"], everyone), _cell(point["cost"])]
        cells += [f"{max(point['cost']['values']) / point['asked']:.3f}"]
        rows.append((*cells, f"{min(quotients):.2f} to {max(quotients):.2f}"))
    header = ("asked cost", "exact", "learned", "true cost", "largest / asked", "predicted / true")
    return Table(block["world"], header, tuple(rows))


def _cell(mean: Mapping[str, Any] | None, everyone: int | None = None) -> str:
    """The mean, and the number of targets if it is not everyone; a dash where there is none."""
    if mean is None:
        return "-"
    many = len(mean["values"])
    return text_of(mean) + (f" ({many})" if everyone is not None and many < everyone else "")


def figure(content: Mapping[str, Any]) -> dict[str, Figure]:
    """Relative variance against relative cost: Gridworlds of a size, environments, or learned."""
    if "points" in content["blocks"][0]:
        drawn = [(block["world"], _learned_curves(block)) for block in content["blocks"]]
        return {"frontier-learned": drawing.frontier_figure(drawn)}
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for block in content["blocks"]:
        words = block["world"].split()
        name = f"frontier-{words[1]}" if words[0] == "Gridworld" else "frontier-environments"
        groups.setdefault(name, []).append(block)
    return {
        name: drawing.frontier_figure(
            [(b["world"].removeprefix("Gridworld "), _exact_curves(b)) for b in blocks]
        )
        for name, blocks in groups.items()
    }


def _exact_curves(block: Mapping[str, Any]) -> list[drawing.Curve]:
    """Means over the targets, at the asked costs where all of them have a design."""
    looks = drawing.looks_of(["scope-dr", "odi", "scope"]).values()
    curves = []
    for (family, points), look in zip(block["families"].items(), looks, strict=True):
        shown = [
            (np.mean(point["relative_cost"]), point["relative_variance"]["mean"])
            for point in points
            if point["targets"] == len(point["relative_cost"])
            and point["relative_variance"]["mean"] <= MOST
        ]
        cost, variance = np.array(shown, dtype=float).reshape(-1, 2).T
        curves.append(drawing.Curve(family, look, cost, variance))
    return curves


def _learned_curves(block: Mapping[str, Any]) -> list[drawing.Curve]:
    """Means over the targets that have a design."""
    learned, limit = drawing.looks_of(["scope-dr", "odi"]).values()
    points = [point for point in block["points"] if point["variance"] is not None]
    asked = np.array([point["asked"] for point in points])
    cost, variance, best = (
        np.array([point[name]["mean"] for point in points])
        for name in ("cost", "variance", "exact_variance")
    )
    return [
        drawing.Curve("learned from logs", learned, cost, variance),
        drawing.Curve("exact values", limit, asked, best),
    ]


if __name__ == "__main__":
    main("experiments.frontier")
