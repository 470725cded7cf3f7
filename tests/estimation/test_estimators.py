"""Estimators against the enumeration of every trajectory, and against exact dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Episodes, TabularPolicy, exact
from scopeval.errors import InputError
from scopeval.estimation.estimators import (
    ESTIMATORS,
    controlled,
    cross_fitted,
    direct,
    doubly_robust,
    importance_sampling,
    monte_carlo,
    pdis,
    pdis_cost,
    step_weights,
    trajectory_weights,
    weighted_doubly_robust,
    weighted_pdis,
)
from small_worlds import every_trajectory, random_mdp, random_rows

CASES = [
    {"seed": s, "gamma": g, "noise": n, "ends": e}
    for s, (g, n, e) in enumerate(
        [
            (1.0, False, False),
            (0.9, False, False),
            (0.8, True, False),
            (1.0, False, True),
            (0.7, False, True),
            (0.95, True, True),
        ]
    )
]


def world(seed, gamma, noise, ends, **more):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma=gamma, noise=noise, ends=ends, **more)
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    target = TabularPolicy(random_rows(rng, T, S, A))
    behavior = TabularPolicy(random_rows(rng, T, S, A))
    b = rng.normal(size=(T, S, A))
    if ends:
        b[:, -1] = 0.0  # a real episode is over there
    return mdp, target, behavior, b


def mean_and_variance(values, chance):
    mean = chance @ values
    return mean, chance @ (values - mean) ** 2


@pytest.mark.parametrize("case", CASES)
def test_enumeration_pdis_and_dr_have_the_exact_mean_and_variance(case):
    mdp, target, behavior, b = world(**case)
    for control in (None, b, exact.values(mdp, target).q):
        episodes, chance = every_trajectory(mdp, target, behavior, control, ends=case["ends"])
        assert chance.sum() == pytest.approx(1, abs=1e-12)
        if case["ends"]:
            assert (episodes.length < mdp.horizon).any()
        values = (pdis if control is None else doubly_robust)(episodes, mdp.gamma)
        mean, variance = mean_and_variance(values, chance)
        expected = exact.assess(mdp, target, behavior, control)
        assert mean == pytest.approx(expected.value, abs=1e-12)
        assert variance == pytest.approx(expected.variance, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_enumeration_without_coverage_gives_the_exact_bias_and_variance(case):
    mdp, target, behavior, b = world(**case)
    holes = behavior.table(mdp.horizon).copy()
    holes[:, 0] = [1.0, 0.0]
    holes[1] = [0.0, 1.0]
    for control in (None, b):
        episodes, chance = every_trajectory(
            mdp, target, TabularPolicy(holes), control, ends=case["ends"]
        )
        values = (pdis if control is None else doubly_robust)(episodes, mdp.gamma)
        mean, variance = mean_and_variance(values, chance)
        expected = exact.assess(mdp, target, holes, control)
        assert abs(expected.bias) > 1e-3
        assert mean == pytest.approx(expected.expectation, abs=1e-12)
        assert variance == pytest.approx(expected.variance, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_enumeration_importance_sampling_cost_and_weights(case):
    mdp, target, behavior, _ = world(**case)
    episodes, chance = every_trajectory(mdp, target, behavior, ends=case["ends"])
    value = exact.assess(mdp, target, behavior).value
    assert chance @ importance_sampling(episodes, mdp.gamma) == pytest.approx(value, abs=1e-12)
    cost = mdp.initial @ exact.cost_values(mdp, target).v[0]
    assert chance @ pdis_cost(episodes, mdp.gamma) == pytest.approx(cost, abs=1e-12)
    own = mdp.initial @ exact.cost_values(mdp, behavior).v[0]
    assert chance @ episodes.costs(mdp.gamma) == pytest.approx(own, abs=1e-12)
    assert chance @ trajectory_weights(episodes) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(chance @ step_weights(episodes), 1, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_enumeration_importance_sampling_variance_is_that_of_the_returns_reweighed(case):
    """E[IS^2] under mu = E[(prod rho) return^2] under pi: another sum over another set."""
    mdp, target, behavior, _ = world(**case)
    episodes, chance = every_trajectory(mdp, target, behavior, ends=case["ends"])
    second = chance @ importance_sampling(episodes, mdp.gamma) ** 2
    on_policy, pi_chance = every_trajectory(mdp, target, target, ends=case["ends"])
    mu = behavior.table(mdp.horizon)
    weight = np.ones(len(on_policy))
    for t in range(mdp.horizon):
        alive = on_policy.length > t
        taken = mu[t, on_policy.obs[alive, t], on_policy.action[alive, t]]
        weight[alive] *= on_policy.target_prob[alive, t] / taken
    expected = pi_chance @ (weight * on_policy.returns(mdp.gamma) ** 2)
    assert second == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_enumeration_on_policy_is_monte_carlo(case):
    mdp, target, _, b = world(**case)
    episodes, chance = every_trajectory(mdp, target, target, b, ends=case["ends"])
    values = monte_carlo(episodes, mdp.gamma)
    mean, variance = mean_and_variance(values, chance)
    expected = exact.assess(mdp, target, target)
    assert mean == pytest.approx(expected.value, abs=1e-12)
    assert variance == pytest.approx(expected.variance, rel=1e-12, abs=1e-12)
    for same in (pdis, importance_sampling, weighted_pdis):
        np.testing.assert_allclose(same(episodes, mdp.gamma), values, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_zero_control_is_pdis(case):
    mdp, target, behavior, b = world(**case)
    episodes, _ = every_trajectory(mdp, target, behavior, 0 * b, ends=case["ends"])
    np.testing.assert_array_equal(doubly_robust(episodes, mdp.gamma), pdis(episodes, mdp.gamma))
    np.testing.assert_allclose(
        weighted_doubly_robust(episodes, mdp.gamma), weighted_pdis(episodes, mdp.gamma), atol=1e-12
    )
    np.testing.assert_array_equal(direct(episodes), 0)


@pytest.mark.parametrize("gamma", [1.0, 0.8])
@pytest.mark.parametrize("ends", [False, True])
def test_true_q_in_a_deterministic_world_leaves_no_error_at_all(gamma, ends):
    mdp, target, behavior, _ = world(3, gamma, False, ends, fixed=True)
    q = exact.values(mdp, target).q
    episodes, _ = every_trajectory(mdp, target, behavior, q, ends=ends)
    value = exact.assess(mdp, target, target).value
    for estimator in (doubly_robust, weighted_doubly_robust, direct):
        np.testing.assert_allclose(estimator(episodes, gamma).mean(), value, atol=1e-12)
    np.testing.assert_allclose(doubly_robust(episodes, gamma), value, atol=1e-12)
    assert np.ptp(pdis(episodes, gamma)) > 0.1


@pytest.mark.parametrize("case", CASES)
def test_controlled_by_table_and_by_function_is_what_was_recorded(case):
    mdp, target, behavior, b = world(**case)
    recorded, _ = every_trajectory(mdp, target, behavior, b, ends=case["ends"])
    plain = recorded.with_control(None, None)

    def function(obs, t):
        return b[t, obs]

    for q in (b, function):
        again = controlled(plain, q, target)
        np.testing.assert_allclose(again.control, recorded.control, atol=1e-15)
        np.testing.assert_allclose(again.baseline, recorded.baseline, atol=1e-15)
        for estimator in (doubly_robust, weighted_doubly_robust, direct):
            np.testing.assert_allclose(
                estimator(plain, mdp.gamma, q=q, target=target),
                estimator(recorded, mdp.gamma),
                atol=1e-14,
            )


@pytest.mark.parametrize("case", CASES)
def test_weighted_estimators_are_their_textbook_sums(case):
    mdp, target, behavior, b = world(**case)
    every, chance = every_trajectory(mdp, target, behavior, b, ends=case["ends"])
    rows = np.random.default_rng(case["seed"]).choice(len(every), 40, p=chance / chance.sum())
    episodes = every.select(rows)
    n, T = 40, mdp.horizon
    simple = robust = 0.0
    for t in range(T):
        w = np.array([np.prod(episodes.ratios[i, : t + 1]) for i in range(n)])
        before = np.array([np.prod(episodes.ratios[i, :t]) for i in range(n)])
        w, before = w / w.sum(), before / before.sum()
        simple += mdp.gamma**t * w @ episodes.reward[:, t]
        robust += mdp.gamma**t * w @ (episodes.reward[:, t] - episodes.control[:, t])
        robust += mdp.gamma**t * before @ episodes.baseline[:, t]
    assert weighted_pdis(episodes, mdp.gamma).mean() == pytest.approx(simple, abs=1e-12)
    assert weighted_doubly_robust(episodes, mdp.gamma).mean() == pytest.approx(robust, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_weighted_estimators_converge(case):
    """Consistency, without sampling noise: counts proportional to the true probabilities."""
    mdp, target, behavior, b = world(**case)
    every, chance = every_trajectory(mdp, target, behavior, b, ends=case["ends"])
    value = exact.assess(mdp, target, behavior).value
    rng = np.random.default_rng(17)
    errors = []
    for n in (100, 100_000):
        rows = rng.choice(len(every), n, p=chance / chance.sum())
        got = [
            f(every.select(rows), mdp.gamma).mean() for f in (weighted_pdis, weighted_doubly_robust)
        ]
        errors.append(np.abs(np.array(got) - value).max())
    assert errors[1] < max(0.1 * errors[0], 0.03)


@pytest.mark.parametrize("case", CASES)
def test_sampled_means_and_variances(case):
    """z-tests at 4.9 standard errors: a right estimator fails one with probability 1e-6.

    Half of mu is pi, so that ratios stay below 2 and the normal approximation is right.
    """
    mdp, target, behavior, b = world(**case)
    T = mdp.horizon
    behavior = TabularPolicy((behavior.table(T) + target.table(T)) / 2)
    every, chance = every_trajectory(mdp, target, behavior, b, ends=case["ends"])
    rows = np.random.default_rng(case["seed"] + 50).choice(
        len(every), 200_000, p=chance / chance.sum()
    )
    episodes = every.select(rows)
    for values, expected in (
        (pdis(episodes, mdp.gamma), exact.assess(mdp, target, behavior)),
        (doubly_robust(episodes, mdp.gamma), exact.assess(mdp, target, behavior, b)),
    ):
        n = len(values)
        assert abs(values.mean() - expected.value) < 4.9 * np.sqrt(expected.variance / n)
        squares = (values - expected.value) ** 2
        assert abs(squares.mean() - expected.variance) < 4.9 * squares.std() / np.sqrt(n)


def test_cross_fitting_judges_no_episode_by_its_own_critic():
    mdp, target, behavior, _ = world(**CASES[1])
    every, chance = every_trajectory(mdp, target, behavior)
    rows = np.random.default_rng(5).choice(len(every), 60, p=chance / chance.sum())
    episodes = every.select(rows)
    seen = []

    def fit(training):
        seen.append(len(training))
        return np.full((mdp.states, mdp.actions), float(training.reward.sum()))

    fitted = cross_fitted(fit, episodes, target, folds=4, seed=3)
    assert seen == [45] * 4
    totals = episodes.reward.sum()
    left_out = totals - fitted.control[:, 0]  # rewards of the episode's own fold
    own = {round(x, 9): episodes.reward[np.isclose(left_out, x)].sum() for x in left_out}
    assert len(own) == 4
    for out, expected in own.items():
        assert out == pytest.approx(expected, abs=1e-8)


def test_cross_fitted_values_are_unbiased():
    """Mean over many small samples, b fitted by a table of averages, at 4.9 standard errors."""
    rng = np.random.default_rng(0)
    mdp = random_mdp(rng, states=2, horizon=1)
    target = TabularPolicy(random_rows(rng, 2, 2))
    behavior = TabularPolicy(random_rows(rng, 2, 2))
    every, chance = every_trajectory(mdp, target, behavior)
    value = exact.assess(mdp, target, behavior).value

    def fit(training):
        table = np.zeros((2, 2))
        count = np.zeros((2, 2))
        np.add.at(table, (training.obs[:, 0], training.action[:, 0]), training.reward[:, 0])
        np.add.at(count, (training.obs[:, 0], training.action[:, 0]), 1)
        return table / np.maximum(count, 1)

    got = np.array(
        [
            doubly_robust(
                cross_fitted(
                    fit, every.select(rng.choice(len(every), 10, p=chance)), target, folds=5, seed=k
                )
            ).mean()
            for k in range(1000)
        ]
    )
    assert abs(got.mean() - value) < 4.9 * got.std() / np.sqrt(len(got))


EVERY = [*ESTIMATORS.values(), weighted_pdis, weighted_doubly_robust, direct]


@pytest.mark.parametrize("estimator", EVERY)
def test_every_estimator_gives_one_finite_value_per_episode(estimator):
    mdp, target, _, b = world(**CASES[5])
    episodes, _ = every_trajectory(mdp, target, target, b, ends=True)
    values = estimator(episodes, 0.9)
    assert values.shape == (len(episodes),)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    values[:] = 0  # the caller's own array
    with pytest.raises(InputError, match="none"):
        estimator(episodes.select(slice(0)), 0.9)
    if estimator is not direct:
        for gamma in (0.0, 1.1, float("nan")):
            with pytest.raises(InputError, match="gamma"):
                estimator(episodes, gamma)


def test_weights_that_are_all_zero_give_zero():
    kw = {"cost": [[0.0]], "length": [1], "last_obs": [0], "terminated": [False]}
    episodes = Episodes(
        obs=[[0]], action=[[0]], reward=[[1.0]], behavior_prob=[[1.0]], target_prob=[[0.0]], **kw
    )
    assert weighted_pdis(episodes) == 0


def test_errors_say_what_to_do():
    mdp, target, behavior, b = world(**CASES[0])
    episodes, _ = every_trajectory(mdp, target, behavior)
    with pytest.raises(InputError, match=r"ratio .* at episode=0, t=0.*pdis"):
        monte_carlo(episodes)
    with pytest.raises(InputError, match="no control variate"):
        doubly_robust(episodes)
    with pytest.raises(InputError, match="target: needed"):
        doubly_robust(episodes, q=b)
    with pytest.raises(InputError, match="time steps"):
        doubly_robust(episodes, q=b[:1], target=target)
    with pytest.raises(InputError, match="covers states"):
        doubly_robust(episodes, q=b[0, :1], target=target)
    with pytest.raises(InputError, match="q at t=0"):
        doubly_robust(episodes, q=lambda obs, t: np.full((len(obs), 2), np.nan), target=target)
    with pytest.raises(InputError, match="expected"):
        doubly_robust(episodes, q=lambda obs, t: np.zeros((len(obs), 3)), target=target)
    with pytest.raises(InputError, match="folds"):
        cross_fitted(lambda e: b, episodes.select([0]), target, folds=2)
