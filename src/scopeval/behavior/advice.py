"""Why a design is not confirmed, and what a user can do about it: only what fits the case."""

from __future__ import annotations

import numpy as np

from scopeval.behavior.candidates import Compared, Design
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.step import Recipe
from scopeval.behavior.thresholds import LEAST_SUPPORT, NOTED_INFEASIBLE, NOTED_SUPPORT
from scopeval.models.networks import Networks
from scopeval.models.simulator import Simulator
from scopeval.models.table import Table

__all__ = [
    "better_critics",
    "cost_in_doubt",
    "more_to_gain",
    "no_control_variate",
    "notes",
    "too_little_support",
    "where_noise_is",
    "why_no_gain",
]

LIKE_TARGET = "log more episodes of controllers that act like the target policy"


def why_no_gain(evidence: Evidence, asked: Recipe, compared: Compared) -> str:
    """Nothing to gain, logs too thin, or critics too poor: each with what to do about it."""
    support, gain = evidence.support, evidence.least_gain
    untold = ~np.isfinite(compared.cost).all(axis=0)
    if asked.method.constrained and (compared.upper[untold] < 1.0 - gain).any():
        return (
            "the cost is in doubt: held-out logs cannot tell what the design costs; " + LIKE_TARGET
        )
    variance = float(np.nan_to_num(compared.checked, nan=np.inf).min())
    check = f"(relative variance on held-out logs {variance:.2f})"
    promised = float(compared.own.min())
    if 1.0 - gain <= promised < np.inf and support >= LEAST_SUPPORT:
        return (
            "there is nothing to gain: even by their own critics the logs promise less than "
            f"{gain:.0%} {check}.{where_noise_is(evidence, asked)}"
        )
    if support < NOTED_SUPPORT:
        return (
            f"the logs are too thin: they show {support:.0%} of the target policy's own steps, and "
            f"on held-out logs the design was not clearly better than the target policy {check}; "
            + LIKE_TARGET
        )
    errors = ", ".join(f"{name} {error:.2g}" for name, error in compared.errors.items())
    return (
        "the critics are too poor: the halves of the logs disagree "
        f"(held-out errors: {errors}), and on held-out logs the design was not clearly better than "
        f"the target policy {check}; {better_critics(evidence)}"
    )


def too_little_support(evidence: Evidence) -> str:
    """Where logs of vectors hardly show what the target policy does."""
    return (
        f"only {evidence.support:.0%} of the target policy's own steps are as near to the logs as "
        "logged steps are, too few to judge a departure from it; log episodes of controllers that "
        "act like the target policy, or its own"
    )


def cost_in_doubt(design: Design, vectors: bool) -> str:
    """Where a design may cost more than it may."""
    if vectors and design.doubt > 0.0:
        return (
            f"the cost is in doubt: simulated episodes of the design cost {design.cost:.3f} times "
            f"the target policy's cost, with a standard error of {design.doubt:.3f}; log more "
            "episodes, or allow a higher cost, Promise(at_most=...)"
        )
    if not design.doubt > 0.0:
        return (
            f"the cost is in doubt: the design from all logs costs {design.cost:.3f} times the "
            f"target policy's, where {1.0 + design.recipe.epsilon:g} is allowed; log more episodes"
        )
    return (
        "the cost is in doubt: the logs enter states that they never leave, and the design comes "
        f"to them more or less often than the target policy, so that its cost of {design.cost:.3f} "
        f"times the target policy's may be wrong by {design.doubt:.3f}; log whole episodes, with "
        "these states"
    )


def no_control_variate(evidence: Evidence, compared: Compared) -> str:
    """A poor control variate can do more harm than a poor tilt."""
    with_one = [one.method.control_variate for one in compared.choices]
    variance = float(compared.checked[with_one].min())
    support = evidence.support
    thin = support < NOTED_SUPPORT
    what = "the logs are too thin" if thin else "the critics are too poor"
    remedy = "log more episodes like the target policy's" if thin else better_critics(evidence)
    return (
        f"{what} for a control variate (relative variance on held-out logs {variance:.2f}, support "
        f"{support:.0%}); designed without one: {remedy}"
    )


def notes(evidence: Evidence, design: Design) -> list[str]:
    """What the user should know although the design is used."""
    support, remarks = evidence.support, []
    least = LEAST_SUPPORT if evidence.vectors else 0.0  # below it was said already
    if least <= support < NOTED_SUPPORT:
        remarks.append(
            f"the logs do not show {1 - support:.0%} of the target policy's own steps; there the "
            "behavior policy falls back to the target policy, or uses estimates from neighboring "
            "states"
        )
    if design.infeasible > NOTED_INFEASIBLE:
        remarks.append(
            f"in {design.infeasible:.0%} of the logged states no affordable behavior exists"
            + (" under the absolute limit" if design.recipe.limit is not None else "")
            + "; there it falls back to the target policy"
        )
    return remarks


def better_critics(evidence: Evidence) -> str:
    """Where critics are too poor."""
    regression, more = evidence.regression, "log more episodes"
    if isinstance(regression, Table):
        if regression.features is not None:
            return more
        return f"{more}, or give features of the states, learn=Table(features=...)"
    if not isinstance(regression, Networks):
        return f"{more}, or learn in another way (Networks, Table)"
    if isinstance(regression.dynamics, Simulator):
        return f"{more}, or make the simulator agree better with them"
    return f"{more}, or give a simulator, learn=Simulator(...)"


def more_to_gain(asked: Recipe) -> str:
    """Where even the critics themselves promise too little; empty: nothing is left to try."""
    method, ways = asked.method, []
    if not method.control_variate and method.constrained:
        ways.append("method='scope-dr'")
    if method.has_price and asked.budget == "state" and asked.limit is None:
        ways.append("Promise(per='episode')")
    if method.constrained and asked.limit is None:
        ways.append(f"a higher cost, Promise(at_most={1.1 * (1.0 + asked.epsilon):.3g})")
    elif method.constrained:
        ways.append(f"a higher limit than {asked.limit:g}")
    return "; to save more, try " + ", or ".join(ways) if ways else ""


def where_noise_is(evidence: Evidence, asked: Recipe) -> str:
    """Which part of the variance the policy's own draws make, and what is left to try."""
    if not np.isfinite(evidence.drawn):
        return more_to_gain(asked)
    share = f"{evidence.drawn:.0%}"
    said = f" {share} of the target policy's variance comes from its own draws of actions"
    if share == "0%":
        return f"{said}, so that there is nothing to weigh: try compare(...)"
    return f"{said}, {1.0 - evidence.drawn:.0%} from the environment{more_to_gain(asked)}"
