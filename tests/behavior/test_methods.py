"""Methods are open: one of your own goes wherever the built-in ones go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.frontier import model_of
from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import Method, Status, design, evaluate, exact, load
from scopeval.behavior.methods import METHODS, method_named, register
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.errors import InputError
from scopeval.models.protocols import Estimates
from scopeval.policies.protocols import Why


def proportional(pi, second_moment, cost, budget):
    """DOpt's step, written by a user."""
    weight = pi * np.sqrt(second_moment)
    total = weight.sum(axis=1, keepdims=True)
    return np.where(total > 0, weight / np.where(total > 0, total, 1.0), pi)


def line_6(method, pi, X):
    """Mu for second moments X, without a floor and without costs."""
    zero, two = np.zeros_like(X), np.zeros((*X.shape, 2))
    e = Estimates(zero, zero, two, two, X, zero, np.ones(X.shape, np.bool_))
    recipe = Recipe(method, 1, floor=0.0)
    return weigh_rows(recipe, pi, e)


@pytest.fixture
def own():
    method = register(Method("own", control_variate=True, step=proportional))
    yield method
    METHODS.pop("own")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_a_users_step_is_the_built_in_one_if_it_does_the_same(seed, actions):
    rng = np.random.default_rng(seed)
    pi, X = rng.dirichlet(np.ones(actions), 7), rng.gamma(0.5, size=(7, actions))
    mine = line_6(Method("own", control_variate=True, step=proportional), pi, X)
    np.testing.assert_allclose(mine.mu, line_6(METHODS["dopt"], pi, X).mu, rtol=1e-12)


def test_exact_and_learned_designs_take_it(own, tmp_path):
    case = random_case(3, states=5, time_varying=False, zero_probabilities=False)
    mdp, pi, T = case.mdp, case.target, case.mdp.horizon
    built_in, mine = (exact.design(mdp, pi, name) for name in ("dopt", own))
    np.testing.assert_allclose(mine.table(T), built_in.table(T), rtol=1e-9)
    log = rows_of(case, 8000, seed=1)
    plain, learned = (design(log, pi, horizon=T, method=name) for name in ("dopt", own))
    assert learned.recipe.method.name == "own"
    np.testing.assert_allclose(learned.table(5)[0], plain.table(5)[0], rtol=1e-9)
    assert learned.predicted.variance == pytest.approx(plain.predicted.variance)
    learned.save(tmp_path / "own.scope")
    again = load(tmp_path / "own.scope", pi)
    np.testing.assert_array_equal(again.table(5)[0], learned.table(5)[0])
    assert np.isfinite(evaluate(mdp, pi, learned, episodes=50).estimate)


def test_rows_that_are_no_distributions_fall_back_to_the_target_and_are_counted():
    def broken(pi, second_moment, cost, budget):
        mu = pi.copy()
        mu[0] = np.nan
        mu[1] *= 2.0
        return mu

    pi, X = np.full((3, 2), 0.5), np.ones((3, 2))
    result = line_6(Method("broken", step=broken), pi, X)
    np.testing.assert_array_equal(result.mu, pi)
    assert list(result.why) == [Why.NOT_FINITE, Why.NOT_FINITE, 0]
    with pytest.raises(InputError, match=r"step: returned shape \(2,\), expected \(3, 2\)"):
        line_6(Method("flat", step=lambda *_: np.zeros(2)), pi, X)


def test_names_are_taken_once(own):
    assert register(own) is own
    assert method_named("own") is own
    with pytest.raises(InputError, match="'own' is taken already"):
        register(Method("own"))
    with pytest.raises(InputError, match="has to be registered first"):
        method_named("nobody's")
    with pytest.raises(InputError, match="got str, expected a Method"):
        register("own")


# -- ties ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["scope", "scope-dr"]))
def test_ties_go_to_the_cheap(seed, name):
    """Of random problems with ties: with pi in tied states, no less variance, and no less cost."""
    case = random_case(seed, states=4, time_varying=False)
    rng = np.random.default_rng(seed)
    outcome = np.eye(4)[rng.integers(4, size=(4, case.actions))]
    certain = rng.random((4, 1, 1)) < 0.6  # states that are left for one state by each action
    reward = np.where(rng.random(case.reward.shape[1:]) < 0.3, 0.0, case.reward[0])
    mdp = exact.TabularMDP(
        case.initial, np.where(certain, outcome, case.transition).reshape(-1, 4), reward,
        np.abs(case.cost[0]), case.horizon,
    )  # fmt: skip
    pi = case.target
    found = exact.design(mdp, pi, name)
    tied = found.status == Status.INDIFFERENT
    mu = found.table(mdp.horizon)
    plain = np.where(tied[..., None], np.broadcast_to(pi, mu.shape), mu)
    cheap, usual = (exact.assess(mdp, pi, x, found.control) for x in (mu, plain))
    assert cheap.variance <= usual.variance * (1 + 1e-9) + 1e-12
    assert cheap.cost <= usual.cost * (1 + 1e-9) + 1e-12
    assert abs(cheap.bias) < 1e-9


def test_with_a_certain_world_and_its_values_the_cheapest_policy_is_run():
    """Taxi: the world is deterministic, so that with b = q any behavior policy will do."""
    mdp, pi = model_of("Taxi", 0, 1, 0)
    own = exact.assess(mdp, pi, pi)
    found = exact.design(mdp, pi, "scope-dr")
    told = exact.assess(mdp, pi, found, found.control)
    assert told.cost <= 0.02 * own.cost  # it hardly ever moves illegally
    assert told.variance <= 0.01 * own.variance
    assert abs(told.bias) < 1e-9
    # ODI and DOpt, the paper's, know nothing of costs
    other = exact.design(mdp, pi, "dopt")
    assert exact.assess(mdp, pi, other, other.control).cost > 0.5 * own.cost


def test_learned_ties_go_to_the_cheapest_action_that_is_known():
    e = Estimates(
        q=np.array([[1.0, 2.0, 3.0]] * 3),
        cost_target=np.array([[3.0, 1.0, 0.5]] * 3),
        cost_behavior=np.array([[[3.0] * 2, [1.0] * 2, [0.5] * 2]] * 3),
        carried=np.zeros((3, 3, 2)),
        noise=np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]),
        error=np.zeros((3, 3)),
        known=np.array([[True, True, True], [True, True, False], [True, True, True]]),
    )
    pi = np.array([[0.5, 0.3, 0.2]] * 3)
    recipe = Recipe(METHODS["scope-dr"], 1, floor=0.1)
    mu, _, _ = weigh_rows(recipe, pi, e)

    def kept(cheapest, known):
        """The cheapest action, with a small share of the target among the known ones."""
        own = np.array(known) * pi[0]
        return 0.98 * np.array(cheapest) + 0.02 * own / own.sum()

    np.testing.assert_allclose(mu[0], 0.9 * kept([0, 0, 1], [1, 1, 1]) + 0.1 * pi[0])
    # of an action that is not known the target's probability is taken
    inner = 0.8 * kept([0, 1, 0], [1, 1, 0]) + np.array([0.0, 0.0, 0.2])
    np.testing.assert_allclose(mu[1], 0.9 * inner + 0.1 * pi[1])
    np.testing.assert_allclose(mu[2], 0.9 * np.array([0.0, 1.0, 0.0]) + 0.1 * pi[2], atol=1e-9)
