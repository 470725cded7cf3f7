"""The mixture of episodes and the estimators, against sums over all trajectories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from random_mdps import Case, Paths, cases, every_path, random_case
from scopeval.comparison.counted_model import value_tables
from scopeval.comparison.estimators import (
    ab_variance,
    doubly_robust,
    full_trajectory,
    per_decision,
    weighted_costs,
)
from scopeval.comparison.joint_design import foreseen_variance
from scopeval.comparison.mixture import MixtureEpisodes, mixture_probs, running_weights
from scopeval.policies.episode_state import EpisodeState

FEW = settings(max_examples=40, deadline=None)


class Enumerated:
    """Every trajectory of a mixture, its probability, and the library's episodes of it."""

    def __init__(self, case: Case, policies: np.ndarray, shares: np.ndarray) -> None:
        T, S, A = case.reward.shape
        uniform = np.full((T, S, A), 1.0 / A)
        paths = every_path(case, uniform)
        times = np.arange(T)
        taken = policies[:, times, paths.states[:, :T], paths.actions]  # [K, N, T]
        self.world = paths.chance * float(A) ** T  # without the actions
        self.path = taken.prod(axis=2).T  # [N, K]
        self.of_policy = self.world[:, None] * self.path  # chance under each policy
        self.chance = self.of_policy @ shares
        with np.errstate(divide="ignore"):
            log_probs = np.log(np.moveaxis(taken, 0, 2))
        keep = self.chance > 0
        self.of_policy, self.chance = self.of_policy[keep], self.chance[keep]
        self.world = self.world[keep]
        weights = running_weights(log_probs[keep], shares)
        self.episodes = _episodes(paths, keep, weights, shares)

    def mean(self, values: np.ndarray) -> np.ndarray:
        return self.chance @ values

    def variance(self, values: np.ndarray) -> np.ndarray:
        return self.chance @ (values - self.mean(values)) ** 2


def _episodes(
    paths: Paths, keep: np.ndarray, weights: np.ndarray, shares: np.ndarray
) -> MixtureEpisodes:
    N, T = paths.rewards[keep].shape
    return MixtureEpisodes(
        obs=paths.states[keep, :T],
        action=paths.actions[keep],
        reward=paths.rewards[keep],
        cost=paths.costs[keep],
        weights=weights,
        shares=np.tile(shares, (N, 1)),
        length=np.full(N, T),
        last_obs=paths.states[keep, T],
        terminated=np.zeros(N, bool),
        index=np.arange(N),
        failed=np.zeros((N, weights.shape[2]), bool),
    )


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Case, np.ndarray, np.ndarray]:
    """An MDP, two to four policies (some deterministic, some equal), and shares."""
    case = draw(cases(horizons=(1, 4)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    T, S, A = case.reward.shape
    policies = [case.target]
    for kind in draw(st.lists(st.sampled_from("rds"), min_size=1, max_size=3)):
        if kind == "r":
            policies.append(rng.dirichlet(np.ones(A), (T, S)))
        elif kind == "d":
            policies.append(np.eye(A)[rng.integers(A, size=(T, S))])
        else:
            policies.append(0.9 * case.target + 0.1 * rng.dirichlet(np.ones(A), (T, S)))
    shares = rng.dirichlet(np.full(len(policies), 3.0)) * 0.9 + 0.1 / len(policies)
    return case, np.stack(policies), shares / shares.sum()


@FEW
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_every_estimator_is_unbiased_for_every_policy(made: Any, seed: int):
    case, policies, shares = made
    every, rng = Enumerated(case, policies, shares), np.random.default_rng(seed)
    e, gamma = every.episodes, case.gamma
    truth = every.of_policy.T @ e.returns(gamma)
    T, S, A = case.reward.shape
    K = len(policies)
    centers, levels = rng.normal(size=K), rng.normal(size=(T, K))
    b = rng.normal(size=(K, T, S, A))
    times = np.arange(T)
    control = np.moveaxis(b[:, times, e.obs, e.action], 0, 2)
    baseline = np.moveaxis((policies * b).sum(axis=3)[:, times, e.obs], 0, 2)
    scale = 1.0 + np.abs(truth).max()
    for values in (
        full_trajectory(e, gamma, centers),
        per_decision(e, gamma, levels),
        doubly_robust(e, gamma, control, baseline),
    ):
        assert every.mean(values) == pytest.approx(truth, abs=1e-9 * scale)
    assert every.mean(weighted_costs(e)) == pytest.approx(every.of_policy.T @ e.cost.sum(axis=1))


@FEW
@given(mixtures())
def test_weights_are_bounded_and_sum_to_one(made: Any):
    case, policies, shares = made
    weights = Enumerated(case, policies, shares).episodes.weights
    assert weights @ shares == pytest.approx(1.0)
    assert (weights <= 1.0 / shares + 1e-9).all()


@FEW
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_no_contrast_has_more_variance_than_that_of_the_ab_test(made: Any, seed: int):
    """Rao and Blackwell: the same centers, the label averaged out; for every contrast."""
    case, policies, shares = made
    every, rng = Enumerated(case, policies, shares), np.random.default_rng(seed)
    e, K = every.episodes, len(policies)
    centers, contrast = rng.normal(size=K), rng.normal(size=K)
    ours = every.variance(full_trajectory(e, case.gamma, centers) @ contrast)
    returns = e.returns(case.gamma)
    mean = second = 0.0
    for label, share in enumerate(shares):
        values = np.tile(centers, (len(e), 1))
        values[:, label] += (returns - centers[label]) / share
        chance = share * every.of_policy[:, label]
        mean += chance @ (values @ contrast)
        second += chance @ (values @ contrast) ** 2
    assert ours <= second - mean**2 + 1e-9 * (1.0 + second)


def _turning() -> Case:
    """R_1 = -R_0 = -1 or 1 by the first state; what is done at t = 1 has no effect."""
    sign = np.array([1.0, -1.0])
    reward = np.stack([np.tile(sign[:, None], 2), -np.tile(sign[:, None], 2)])
    zero = np.zeros((2, 2, 2))
    stay = np.tile(np.eye(2)[:, None], (1, 2, 1))
    return Case(np.full(2, 0.5), stay, reward, zero, zero, 1.0, zero, zero, zero)


def test_per_decision_can_be_worse_than_the_ab_test():
    """Policies that differ at t = 1 only: variance 4 where the A/B test has none."""
    case = _turning()
    old = np.array([[[0.5, 0.5]] * 2, [[1.0, 0.0]] * 2])
    new = np.array([[[0.5, 0.5]] * 2, [[0.0, 1.0]] * 2])
    every = Enumerated(case, np.stack([old, new]), np.array([0.5, 0.5]))
    e, difference = every.episodes, np.array([-1.0, 1.0])
    one_by_one = per_decision(e, 1.0, np.zeros((2, 2)))
    assert every.variance(one_by_one @ difference) == pytest.approx(4.0)
    whole = full_trajectory(e, 1.0, np.zeros(2))
    assert every.variance(whole @ difference) == pytest.approx(0.0)
    q = np.moveaxis(np.tile(_to_go(case), (2, 1, 1, 1)), 0, 3)  # q of both, [T, S, A, K]
    control = q[np.arange(2), e.obs, e.action]
    dr = doubly_robust(e, 1.0, control, q[np.arange(2), e.obs, 0])
    assert every.variance(dr @ difference) == pytest.approx(0.0)


def _to_go(case: Case) -> np.ndarray:
    return np.flip(np.flip(case.reward, 0).cumsum(axis=0), 0)


@FEW
@given(mixtures())
def test_the_state_of_a_running_episode_has_the_weights_of_the_recorded_one(made: Any):
    case, policies, shares = made
    every = Enumerated(case, policies, shares)
    e, K = every.episodes, len(policies)
    state = EpisodeState.start(len(e), K)
    answers = np.ones((len(e), K), bool)
    chance = np.ones(len(e))
    for t in range(e.horizon):
        acting = state.posterior(shares, answers, 0)
        probs = np.moveaxis(policies[:, t, e.obs[:, t]], 0, 1)
        rows = np.arange(len(e))
        chance *= mixture_probs(acting, probs)[rows, e.action[:, t]]
        with np.errstate(divide="ignore"):
            state.act(np.log(probs[rows, :, e.action[:, t]]), acting, answers, e.reward[:, t])
        assert state.weights == pytest.approx(e.weights[:, t + 1])
    assert state.returned == pytest.approx(e.returns(1.0))
    assert chance * every.world == pytest.approx(every.chance)


def test_a_policy_that_does_not_answer_keeps_its_weight_and_the_others_theirs():
    state = EpisodeState.start(1, 3)
    shares, answers = np.array([0.5, 0.25, 0.25]), np.array([[True, True, False]])
    acting = state.posterior(shares, answers, 0)
    assert acting == pytest.approx(np.array([[2 / 3, 1 / 3, 0.0]]))
    state.act(np.log([[0.2, 0.8, 0.3]]), acting, answers, np.zeros(1))
    mu = 2 / 3 * 0.2 + 1 / 3 * 0.8
    assert state.weights == pytest.approx(np.array([[0.2 / mu, 0.8 / mu, 1.0]]))
    assert state.weights @ shares == pytest.approx(1.0)


def test_where_nobody_has_probability_left_the_baseline_acts():
    state = EpisodeState(np.array([[-np.inf, -np.inf, np.log(4.0)]]), np.zeros(1))
    acting = state.posterior(
        np.array([0.5, 0.25, 0.25]), np.array([[True, True, False]]), baseline=1
    )
    assert acting.tolist() == [[0.0, 1.0, 0.0]]


@FEW
@given(mixtures())
def test_the_ab_tests_variance_from_the_same_episodes(made: Any):
    """With every trajectory repeated as often as it is probable it is s^2 / p."""
    case, policies, shares = made
    every = Enumerated(case, policies, shares)
    returns = every.episodes.returns(case.gamma)
    mean = every.of_policy.T @ returns
    truth = (every.of_policy * (returns[:, None] - mean) ** 2).sum(axis=0)
    many = np.random.default_rng(0).choice(len(returns), 4000, p=every.chance / every.chance.sum())
    found, spread = ab_variance(every.episodes.select(many), case.gamma, shares)
    assert found == pytest.approx(spread / shares)
    # 4,000 draws: within a fifth and a fiftieth of the largest square but for about 1e-3
    assert spread == pytest.approx(truth, rel=0.35, abs=0.05 * (1 + returns.max() ** 2))


@pytest.mark.parametrize("shares", [(0.2, 0.3, 0.5), (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("seed", range(3))
def test_the_foreseen_variance_is_that_over_all_trajectories(seed: int, shares: Any):
    """With a design in the mixture and b_k = q_k; 1,000 simulated episodes: within a quarter."""
    case = random_case(seed, states=3, actions=2, horizon=3)
    rng, p = np.random.default_rng(seed), np.array(shares)
    every = np.stack([case.target, *rng.dirichlet(np.ones(2), (2, 3, 3))])  # last: the design
    made = Enumerated(case, every, p)
    e, times = made.episodes, np.arange(3)
    q = np.stack([value_tables(case.mdp, "reward", pi)[0] for pi in every])
    control = np.moveaxis(q[:, times, e.obs, e.action], 0, 2)
    baseline = np.moveaxis((every * q).sum(axis=3)[:, times, e.obs], 0, 2)
    y = doubly_robust(e, case.gamma, control, baseline)
    truth = float(made.variance(y[:, 1] - y[:, 0]))
    foreseen = foreseen_variance(case.mdp, every[:2], every[2], p, 0)
    assert foreseen == pytest.approx(truth, rel=0.25)
