r"""Finite MDPs whose model is known: values, variance, cost and the optimal design, exactly.

This is the ground truth of the library: everything learned from data is compared with it.

With a control variate b and bbar = sum_a pi b, every estimator of the family is

    G_t = bbar_t(S) + rho_t (R + gamma G_{t+1} - b_t(S, A))    b = 0: PDIS, b = q: doubly robust

and its conditional mean m_t(s) and variance V_t(s) under a behavior policy mu follow backwards:

    X_t(s,a) = E[(R + gamma m_{t+1}(S') - b_t(s,a))^2 | s,a] + gamma^2 E[V_{t+1}(S') | s,a]
    m_t(s)   = bbar_t(s) + sum_{a: mu>0} pi (r + gamma E[m_{t+1}(S')] - b_t(s,a))
    V_t(s)   = sum_{a: mu>0} pi^2 / mu X_t(s,a) - (m_t(s) - bbar_t(s))^2

(paper: Lemma "recursive-var" and Eq. "variance r - v", there for b = 0, gamma = 1 and rewards that
are a function of (s, a); X is then its extended reward r~). Where mu covers pi, m = v. The sums
skip actions that mu never takes, so that the recursion is right for any mu, and `Assessment.bias`
shows what a mu without coverage loses.
"""

from __future__ import annotations

from scopeval.exact.assessment import Assessment, Values, assess, cost_values, values
from scopeval.exact.curve import Frontier, frontier
from scopeval.exact.model import TabularMDP
from scopeval.exact.optimum import Design, design, design_at_price, improve_blind
from scopeval.exact.tables import (
    behavior_tables,
    control_table,
    policy_table,
)
from scopeval.exact.weighted_design import Point, WeightedDesign, tabulate

__all__ = [
    "Assessment",
    "Design",
    "Frontier",
    "Point",
    "TabularMDP",
    "Values",
    "WeightedDesign",
    "assess",
    "behavior_tables",
    "control_table",
    "cost_values",
    "design",
    "design_at_price",
    "frontier",
    "improve_blind",
    "policy_table",
    "tabulate",
    "values",
]
