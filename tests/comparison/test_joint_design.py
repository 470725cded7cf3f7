"""The design for several policies: its variance against sums over all trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_mdps import Case, cases, every_path, random_case
from scopeval.comparison.counted_model import learned_model, value_tables
from scopeval.comparison.joint_design import contrast_variance, joint_design
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.models.rows import Rows


@st.composite
def several(draw: st.DrawFn) -> tuple[Case, np.ndarray, np.ndarray]:
    """An MDP, two or three policies (some deterministic), and a design that covers them."""
    case = draw(cases(horizons=(1, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T, S, A = case.reward.shape
    policies = [case.target]
    for kind in draw(st.lists(st.sampled_from("rd"), min_size=1, max_size=2)):
        other = rng.dirichlet(np.ones(A), (T, S))
        policies.append(other if kind == "r" else np.eye(A)[other.argmax(axis=2)])
    return case, np.stack(policies), rng.dirichlet(np.ones(A), (T, S)) * 0.9 + 0.1 / A


@settings(max_examples=30, deadline=None)
@given(several(), st.integers(0, 2**32 - 1))
def test_the_variance_of_contrasts_is_that_over_all_trajectories(made: Any, seed: int):
    """Doubly robust values with b_k = q_k and the products of pi_k / mu: their exact variance."""
    case, policies, mu = made
    K, T = len(policies), len(case.reward)
    L = np.random.default_rng(seed).normal(size=(2, K))
    paths = every_path(case, mu)
    times = np.arange(T)
    values = np.zeros((len(paths.chance), K))
    for k, pi in enumerate(policies):
        q, v = value_tables(case.mdp, "reward", pi)
        taken = (times, paths.states[:, :T], paths.actions)
        ratio = np.cumprod(pi[taken] / mu[taken], axis=1)
        before = np.concatenate([np.ones((len(ratio), 1)), ratio[:, :-1]], axis=1)
        each = ratio * (paths.rewards - q[taken]) + before * v[times, paths.states[:, :T]]
        values[:, k] = each @ case.mdp.gamma**times
    x = values @ L.T
    truth = float((paths.chance @ (x - paths.chance @ x) ** 2).sum())
    variance, cost = contrast_variance(case.mdp, policies, L, mu)
    assert variance == pytest.approx(truth, rel=1e-8, abs=1e-10)
    spent = paths.costs @ case.mdp.gamma**times
    assert cost == pytest.approx(float(paths.chance @ spent), rel=1e-9, abs=1e-12)


def two(n: int = 4, seed: int = 0) -> tuple[Any, np.ndarray]:
    mdp = Gridworld(size=n, seed=seed).mdp()
    some = target_policies(6, n, seed=seed)
    tables = [p.table(n) for p in some]
    costs = [float(mdp.initial @ value_tables(mdp, "cost", p)[1][0]) for p in tables]
    order = np.argsort(costs)
    return mdp, np.stack([tables[order[0]], tables[order[-1]]])


def test_the_mixture_with_the_design_keeps_the_promise():
    """A new policy that costs more than today's: the plain mixture costs more, this one does not.

    The design has less variance than running today's policy, and less than at a lower cost.
    """
    mdp, policies = two()
    share = 0.8
    made = joint_design(mdp, policies, 0, 1.0, share=share)
    own = [float(mdp.initial @ value_tables(mdp, "cost", p)[1][0]) for p in policies]
    assert (own[0] + own[1]) / 2 > 1.05 * own[0]
    assert made.mixture_cost <= own[0] * (1 + 1e-9)
    assert made.mixture_cost >= own[0] * 0.999
    assert made.mixture_cost == pytest.approx(
        share * made.cost + float(made.shares @ np.array(own))
    )
    L = np.array([[-1.0, 1.0]])
    variance, cost = contrast_variance(mdp, policies, L, made.mu)
    assert variance == pytest.approx(made.variance)
    assert cost == pytest.approx(made.cost)
    assert joint_design(mdp, policies, 0, 0.95, share=share).variance > variance


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_of_one_step_no_other_design_has_less_variance_plus_price_times_cost(seed: int):
    case = random_case(seed, states=3, actions=3, horizon=1, noisy=True, next_state=True)
    rng = np.random.default_rng(seed)
    policies = np.stack([case.target, rng.dirichlet(np.ones(3), (1, 3))])
    try:
        made = joint_design(case.mdp, policies, 0, 0.9)
    except InputError:
        return  # one policy is cheapest already
    L = np.array([[-1.0, 1.0]])
    least = made.variance + made.price * made.cost
    for _ in range(40):
        other = 0.8 * made.mu + 0.2 * rng.dirichlet(np.ones(3), (1, 3))
        variance, cost = contrast_variance(case.mdp, policies, L, other)
        assert variance + made.price * cost >= least * (1 - 1e-9)


def test_what_is_not_answerable_says_at_which_cost_it_is():
    mdp, policies = two()
    with pytest.raises(InputError, match=r"not answerable.*try Promise\(at_most=(0\.\d+)") as error:
        joint_design(mdp, policies, 0, 0.1)
    least = float(str(error.value).split("at_most=")[1].rstrip(")"))
    made = joint_design(mdp, policies, 0, least)
    assert made.mixture_cost <= least * made.baseline_cost * (1 + 1e-9)


def test_a_learned_model_of_many_logs_is_the_known_one():
    """5,000 episodes: the cost of the design by the true model is within 2 % of the promise."""
    n = 4
    mdp, policies = two(n)
    log = gridworld_logs(mdp, 5000, seed=1)
    model = learned_model(Rows.of(log), n * n, 4, n, 1.0)
    padded = np.concatenate([policies, np.full((2, n, 1, 4), 0.25)], axis=2)
    made = joint_design(model, padded, 0, 1.0)
    _, cost = contrast_variance(mdp, policies, np.array([[-1.0, 1.0]]), made.mu[:, :-1])
    own = [float(mdp.initial @ value_tables(mdp, "cost", p)[1][0]) for p in policies]
    mixture = 0.9 * cost + float(made.shares @ np.array(own))
    assert mixture <= 1.02 * own[0]


def test_pairs_that_were_never_seen_are_like_the_others_of_their_state():
    case = random_case(1, states=3, actions=2, horizon=2)
    rows = Rows(
        t=np.array([0, 1, 0]),
        obs=np.array([0, 1, 0]),
        action=np.array([0, 1, 0]),
        reward=np.array([1.0, 2.0, 3.0]),
        reward_noise=np.zeros(3),
        cost_noise=np.zeros(3),
        cost=np.array([0.5, 0.25, 0.5]),
        next_obs=np.array([1, 0, 0]),
        alive=np.array([1.0, 0.0, 1.0]),
        weight=np.ones(3),
        borrowed=np.zeros(3, bool),
        has_next=np.ones(3, bool),
    )
    model = learned_model(rows, case.mdp.states, 2, 2, 1.0)
    p = model.transition.toarray().reshape(4, 2, 4)
    assert p[0, 0].tolist() == p[0, 1].tolist() == [0.5, 0.5, 0.0, 0.0]
    assert p[1, 1].tolist() == p[2, 0].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert model.reward[0].tolist() == [2.0, 2.0]
    assert model.cost[0].tolist() == [0.5, 0.5]
    assert model.initial.tolist() == [1.0, 0.0, 0.0, 0.0]
