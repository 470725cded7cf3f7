"""Doubt about the cost: what may follow in states that the logs never leave.

A state that was entered in the logs but never left (its rows are missing) has a guess for its cost,
from the states that lead to it. Both halves of the logs share that guess, so the cross-check cannot
see that it is wrong. What can be computed is how much depends on it: with L_t(s) the probability
that an episode first comes to such a state s at step t, and v^c its guessed cost-to-go,

    doubt = sum_t,s |L_t(s) under mu - L_t(s) under pi| v^c_t(s)  /  cost of an episode under pi

is the largest error of the relative cost if the true costs are between zero and twice the guess.
Where mu and pi come to such states equally often, nothing depends on the guess.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.methods import Method
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import Swept
from scopeval.models.rows import Rows

__all__ = ["unseen_cost"]


def unseen_cost(evidence: Evidence, method: Method, recipe: Recipe, swept: Swept) -> float:
    """The doubt about the relative cost of a design for state numbers; 0 for vectors.

    Args:
        evidence: the logs.
        method: of the design.
        recipe: how mu follows from the critics.
        swept: the critics of all time steps.
    """
    data = evidence.whole
    points = data.at(0)
    if points.obs.ndim > 1 or not method.tilted:
        return 0.0
    left = [np.bincount(rows.obs, rows.weight, len(points.obs)) > 0 for rows in data.rows]
    if len(left) == 1 and left[0][data.rows[0].next_obs[data.rows[0].alive > 0]].all():
        return 0.0
    doubt, cost = 0.0, 0.0
    under_pi = under_mu = points.initial
    for t, critic in enumerate(swept.critics):
        step = min(t, len(data.rows) - 1)
        lost = ~left[step]
        pi = np.ascontiguousarray(points.target(evidence.target, t))
        e = points.estimates(critic)
        v_cost = (pi * e.cost_target).sum(axis=1)
        cost = cost if t else float(points.initial @ v_cost)
        doubt += float((np.abs(under_mu - under_pi) * v_cost)[lost].sum())
        mu = weigh_rows(method, recipe, pi, e).mu
        under_pi = _after(data.rows[step], np.where(lost, 0.0, under_pi), pi)
        under_mu = _after(data.rows[step], np.where(lost, 0.0, under_mu), mu)
    return doubt / cost if cost > 0 else 0.0


def _after(rows: Rows, here: Floats, policy: Floats) -> Floats:
    """Where one step leads, by the logged rows; what follows a pair without rows is left out."""
    A = policy.shape[1]
    pair = rows.obs * A + rows.action
    count = np.bincount(pair, rows.weight, policy.size)
    flow = (here[:, None] * policy).ravel()[pair] * rows.weight / count[pair]
    return np.bincount(rows.next_obs, flow * rows.alive, len(here)).astype(np.float64)
