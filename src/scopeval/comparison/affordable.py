"""What is run where a promise is made about the cost: the mixture, or one with a design in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collection.environments import open_environments
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.control import Controls, TableControls
from scopeval.comparison.counted_model import learned_model, value_tables
from scopeval.comparison.estimators import doubly_robust
from scopeval.comparison.joint_design import (
    DESIGN_SHARES,
    JointDesign,
    contrast_variance,
    joint_design,
)
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.rollout import MixtureRollout
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.models.rows import Rows
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import Observations, Policy, Time
from scopeval.question.promise import Promise

__all__ = ["Affordable", "DesignPolicy", "affordable", "foreseen_variance"]

#: A mixture that costs so much more than promised, by the model, keeps the promise.
SLACK = 1e-6


@dataclass(frozen=True)
class DesignPolicy:
    """A design by state numbers; where the logs have shown nothing, the mean of the policies.

    Attributes:
        mu: [T, S, A].
        known: [S] states that the model knows.
        policies: that it was designed for.
    """

    mu: Floats
    known: Bools
    policies: tuple[Policy, ...]

    def probs(self, obs: Observations, t: Time) -> Floats:
        """[B, A]."""
        states = np.asarray(obs)
        inside = (states >= 0) & (states < len(self.known))
        at = np.where(inside, states, 0)
        probs = self.mu[np.minimum(t, len(self.mu) - 1), at]
        strange = ~(inside & self.known[at])
        if strange.any():
            each = [np.asarray(p.probs(states[strange], t), np.float64) for p in self.policies]
            probs[strange] = np.mean(each, axis=0)
        return np.asarray(probs)


@dataclass(frozen=True)
class Affordable:
    """What is run.

    Attributes:
        policies: with the design as the last one, if there is one.
        shares: of all of them.
        words: what it is.
        controls: exact action values, of a known MDP that a design was made for; None: they are
            learned.
    """

    policies: PolicySet
    shares: Floats
    words: str
    controls: Controls | None = None


def affordable(
    policies: PolicySet,
    shares: Floats,
    promise: Promise | None,
    env: Any,
    logs: Transitions | None,
    *,
    horizon: int,
    gamma: float,
) -> Affordable:
    """The mixture if it keeps the promise, as far as a model can tell, else one with a design.

    Without a promise, or without a model (neither a known one nor logs of state numbers), it is the
    mixture, and the guard watches it.

    Raises:
        InputError: nothing that answers the question costs so little.
    """
    words = f"a mixture of episodes ({policies.in_words(shares)})"
    plain = Affordable(policies, shares, words)
    if promise is None or policies.continuous:
        return plain
    model = _model(policies, env, logs, horizon, gamma)
    if model is None:
        return plain
    tables = _tables(policies, model.mdp, model.known)
    costs = np.array(
        [float(model.mdp.initial @ value_tables(model.mdp, "cost", pi)[1][0]) for pi in tables]
    )
    base = float(costs[policies.baseline])
    if base <= 0:
        return plain
    at_most = promise.at_most if promise.limit is None else promise.limit / base
    ratio = float(shares @ costs) / base
    if ratio <= at_most * (1.0 + SLACK):
        return plain
    margin = 0.0
    if model.rows is not None:
        margin = _margin(policies, model.rows, model.mdp, horizon, gamma, at_most)
    made = _best_share(model.mdp, tables, policies.baseline, at_most, margin)
    known = tuple(p for p in policies.policies if isinstance(p, Policy))
    inside = policies.with_design(DesignPolicy(made.mu, model.known, known))
    parts = np.append(made.shares, 1.0 - made.shares.sum())
    words = (
        f"a design for this question in a mixture of episodes ({inside.in_words(parts)}), because "
        f"the policies alone would cost {ratio:.3g} times the baseline's, and at most "
        f"{at_most:.4g} times was promised"
    )
    controls = None
    if model.rows is None:
        every = (*tables, made.mu)
        controls = TableControls.of_policies(model.mdp, every)
    return Affordable(inside, parts, words, controls)


def _best_share(
    mdp: TabularMDP, tables: Floats, baseline: int, at_most: float, margin: float
) -> JointDesign:
    """The design with the share of least variance, by simulation in the model.

    Raises:
        InputError: none keeps the promise; that of the largest share, which could cost the least.
    """
    best, least = None, np.inf
    for share in DESIGN_SHARES:
        try:
            made = joint_design(mdp, tables, baseline, at_most, share=share, margin=margin)
        except InputError:
            if best is None and share == DESIGN_SHARES[-1]:
                raise
            continue
        shares = np.append(made.shares, share)
        variance = foreseen_variance(mdp, tables, made.mu, shares, baseline)
        if variance > least:
            break  # the more of it the worse
        best, least = made, variance
    assert best is not None
    return best


@dataclass(frozen=True)
class _Model:
    """A model of the world by state numbers.

    Attributes:
        mdp: known, or learned.
        known: [S] states that it knows.
        rows: that it was learned from; None: it is the world itself.
    """

    mdp: TabularMDP
    known: Bools
    rows: Rows | None


def _model(
    policies: PolicySet, env: Any, logs: Transitions | None, horizon: int, gamma: float
) -> _Model | None:
    if isinstance(env, TabularMDP):
        mdp = env if env.horizon == horizon else env.shortened(horizon)
        return _Model(mdp, np.ones(mdp.states, np.bool_), None)
    if logs is None or logs.obs.ndim != 1 or logs.action.ndim != 1:
        return None
    rows = Rows.of(logs.select(logs.has_next))
    states = 1 + int(max(rows.obs.max(), rows.next_obs.max()))
    mdp = learned_model(rows, states, policies.actions_at(rows.obs[:1]), horizon, gamma)
    known = np.append(np.bincount(rows.obs, minlength=states) > 0, False)
    return _Model(mdp, known, rows)


def _tables(policies: PolicySet, mdp: TabularMDP, known: Bools) -> Floats:
    """Probabilities [K, T, S, A] of all policies; uniform where the model knows nothing."""
    shape = mdp.states, mdp.actions
    tables, reason = policies.tables(mdp.horizon, np.flatnonzero(known), shape)
    if reason:
        raise InputError(reason)
    return tables


def _margin(
    policies: PolicySet, rows: Rows, mdp: TabularMDP, horizon: int, gamma: float, at_most: float
) -> float:
    """How much more a design costs by logs that it was not made from: the mean of two halves."""
    episode = np.cumsum(rows.t == 0) % 2
    halves = [
        learned_model(rows.select(episode == half), mdp.states - 1, mdp.actions, horizon, gamma)
        for half in (0, 1)
    ]
    seen = [np.append(np.bincount(rows.obs, minlength=mdp.states - 1) > 0, False)] * 2
    tables = _tables(policies, mdp, seen[0])
    excess = []
    for made_from, judged_by in ((0, 1), (1, 0)):
        try:
            made = joint_design(halves[made_from], tables, policies.baseline, at_most)
        except InputError:
            continue  # so few logs know no cheaper way
        excess.append(_ratio(halves[judged_by], made, tables, policies.baseline) - at_most)
    return max(float(np.mean(excess)), 0.0) if excess else 0.0


def _ratio(mdp: TabularMDP, made: JointDesign, tables: Floats, baseline: int) -> float:
    """Cost of the mixture with this design relative to the baseline's, by a model."""
    K = len(tables)
    costs = np.array([float(mdp.initial @ value_tables(mdp, "cost", pi)[1][0]) for pi in tables])
    _, own = contrast_variance(mdp, tables, np.eye(K), made.mu)
    mixture = (1.0 - made.shares.sum()) * own + float(made.shares @ costs)
    return mixture / float(costs[baseline]) if costs[baseline] > 0 else 1.0


# -- how well a mixture will answer ---------------------------------------------------------------

#: Simulated episodes: the variance is known to 5 to 10 %, and kinds of mixtures meet the same luck.
SIMULATED = 1000


def foreseen_variance(
    mdp: TabularMDP, policies: Floats, mu: Floats, shares: Floats, baseline: int
) -> float:
    """Variance of an episode's differences to the baseline (their sum), with b_k = q_k.

    Args:
        mdp: the model.
        policies: [K, T, S, A].
        mu: of the design, [T, S, A].
        shares: of the policies and the design, [K + 1].
        baseline: number of the policy that the others are compared with.
    """
    K = len(policies)
    both = PolicySet({f"policy {k}": TabularPolicy(pi) for k, pi in enumerate(policies)})
    both = both.with_design(TabularPolicy(mu))
    controls = TableControls.of_policies(mdp, (*policies, mu))
    with open_environments(TabularFleet(mdp, SIMULATED), cost="none") as pool:
        rollout = MixtureRollout(pool, both, horizon=mdp.horizon, seed=0)
        episodes = rollout.run(0, SIMULATED, shares)
    y = doubly_robust(episodes, mdp.gamma, *controls.over(episodes))
    return float((y[:, :K] - y[:, [baseline]]).var(axis=0).sum())
