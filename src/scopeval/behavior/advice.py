"""What a user can do where a design is not confirmed: only what fits the problem at hand."""

from __future__ import annotations

import numpy as np

from scopeval.behavior.evidence import Evidence
from scopeval.behavior.methods import Method
from scopeval.models.model.regression import Networks
from scopeval.models.model.simulator import Simulator
from scopeval.models.table import Table

__all__ = ["better_critics", "more_to_gain", "where_noise_is"]


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


def more_to_gain(evidence: Evidence, method: Method) -> str:
    """Where even the critics themselves promise too little; empty: nothing is left to try."""
    settings, ways = evidence.settings, []
    if not method.control_variate and method.constrained:
        ways.append("method='scope-dr'")
    if method.has_price and settings.budget == "state" and settings.limit is None:
        ways.append("Promise(per='episode')")
    if method.constrained and settings.limit is None:
        ways.append(f"a higher cost, Promise(at_most={1.1 * (1.0 + settings.epsilon):.3g})")
    elif method.constrained:
        ways.append(f"a higher limit than {settings.limit:g}")
    return "; to save more, try " + ", or ".join(ways) if ways else ""


def where_noise_is(evidence: Evidence, method: Method) -> str:
    """Which part of the variance the policy's own draws make, and what is left to try."""
    if not np.isfinite(evidence.drawn):
        return more_to_gain(evidence, method)
    share = f"{evidence.drawn:.0%}"
    said = f" {share} of the target policy's variance comes from its own draws of actions"
    if share == "0%":
        return f"{said}, so that there is nothing to weigh: try compare(...)"
    return (
        f"{said}, {1.0 - evidence.drawn:.0%} from the environment{more_to_gain(evidence, method)}"
    )
