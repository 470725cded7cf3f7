"""Behavior policies: always valid, safe with true values, honest about doubt, kept on disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from behaviors import RECIPE, REPORT, anything, estimates, vector_target
from experiments.mlp.regression import MLPRegression
from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import BehaviorPolicy, CallablePolicy, TabularPolicy, Transitions, design, exact
from scopeval.behavior import step as step_module
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import weigh_rows
from scopeval.errors import InputError
from scopeval.policies.protocols import Candidates, Counts


def random_rows(rng, *shape):
    p = rng.gamma(0.5, size=shape) + 1e-12
    return p / p.sum(axis=-1, keepdims=True)


# -- valid whatever the critics say ------------------------------------------------------------


@given(anything())
@settings(max_examples=600, deadline=None)
def test_probabilities_are_valid_for_any_numbers(case):
    """Never an exception or a warning, never an invalid row: doubt ends in the target."""
    e, pi, recipe = case
    counts = Counts()
    mu, b, why = weigh_rows(recipe, pi, e)
    counts.add_rows(why)
    assert np.isfinite(b).all()
    assert np.isfinite(mu).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert (mu >= recipe.floor * pi * (1 - 1e-12)).all()
    unknown = ~e.known
    np.testing.assert_allclose(mu[unknown], pi[unknown], rtol=1e-12, atol=0)
    columns = [e.q, e.noise, e.cost_target, e.carried[..., -1], e.cost_behavior[..., -1]]
    doubtful = ~np.isfinite(np.stack(columns)).all(axis=(0, 2))
    needs = doubtful if recipe.method.constraint == "behavior" else doubtful & False
    np.testing.assert_allclose(mu[needs], pi[needs], rtol=1e-12, atol=0)
    assert counts.not_finite >= needs.sum()
    alone = Counts()  # one row goes another way: the same bits, the same doubts
    for i in range(len(pi)):
        row = slice(i, i + 1)
        one, own, why = weigh_rows(recipe, pi[row], e.select(row))
        alone.add_rows(why)
        np.testing.assert_array_equal(np.stack([one, own]), np.stack([mu[row], b[row]]))
    assert alone == counts


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-250, 1e-30, 1e-13, 1.0, 1e12, 1e140]))
@example(1324, 1.0)  # the room is 4e-8 of the largest cost, the bound 8e-8
@settings(max_examples=300, deadline=None)
def test_true_values_keep_the_constraint_to_rounding(seed, unit):
    """With the target's own cost as budget, also where some actions are unknown, in any unit."""
    rng = np.random.default_rng(seed)
    B, A = 16, int(rng.integers(2, 7))
    pi = random_rows(rng, B, A)
    pi[rng.random((B, A)) < 0.2] = 0.0
    pi[pi.sum(axis=1) == 0, 0] = 1.0
    pi /= pi.sum(axis=1, keepdims=True)
    cost = rng.random((B, A)) * 10.0 ** rng.uniform(-3, 3, (B, A)) * unit
    epsilon = float(rng.choice([0.0, 0.2]))
    e = estimates(
        rng.normal(size=(B, A)) * 10.0 ** rng.uniform(-4, 4, (B, A)),
        cost=cost,
        noise=rng.random((B, A)) * (rng.random((B, A)) < 0.7),
        known=rng.random((B, A)) < 0.7,
    )
    for name in ("scope", "scope-dr"):
        for floor in (0.0, 0.1):
            recipe = replace(RECIPE, method=METHODS[name], floor=floor, epsilon=epsilon)
            counts = Counts()
            mu, _, why = weigh_rows(recipe, pi, e)
            counts.add_rows(why)
            assert counts.infeasible == counts.not_finite == 0
            allowed = (1 + epsilon) * (pi * cost).sum(axis=1)
            spent = (mu * cost).sum(axis=1)
            assert (spent <= allowed + 1e-12 * cost.max(axis=1)).all()
            assert (mu[~e.known] == pi[~e.known]).all() or floor > 0
            np.testing.assert_allclose(mu[~e.known], pi[~e.known], rtol=1e-15)
            # and it is worth it: never more variance than the target, by these very numbers, but
            # for rounding. With D = budget - least cost, the optimum at a budget that is smaller
            # by r is at most D / (D - r) times as large: scale the expensive actions down by
            # (D - r) / D. Sums of A terms are wrong by r <= (A + 2) 2^-52 of the largest cost;
            # the budget, the mass of the known actions and the solver's own sums are such sums.
            some = np.where(e.known, pi, 0.0)
            least = np.where(e.known, cost, np.inf).min(axis=1, initial=np.inf)
            least[~e.known.any(axis=1)] = 0.0
            room = (1 + epsilon) * (some * cost).sum(axis=1) - some.sum(axis=1) * least
            wrong = 4 * (A + 2) * 2.0**-52 * np.where(e.known, cost, 0.0).max(axis=1)
            enough = room > 2 * wrong  # otherwise rounding alone decides
            rounding = wrong[enough] / (room - wrong)[enough]
            second = (e.q**2 if name == "scope" else 0.0) + e.noise
            weight = pi**2 * second
            ours = np.divide(weight, mu, out=np.zeros_like(mu), where=mu > 0)
            own = np.divide(weight, pi, out=np.zeros_like(pi), where=pi > 0)
            ours, own = ours.sum(axis=1)[enough], own.sum(axis=1)[enough]
            assert (ours <= own * (1 + 1e-13 + rounding)).all()


def test_counts_say_why():
    pi = np.full((5, 2), 0.5)
    q = np.array([[1.0, 2.0]] * 5)
    q[1, 0] = np.nan
    known = np.ones((5, 2), bool)
    known[2, 1] = False
    known[3] = False
    cost = np.ones((5, 2))
    cost[4] = 10.0
    e = estimates(q, cost=cost, known=known)
    counts = Counts()
    recipe = replace(RECIPE, limit=5.0)
    mu, _, why = weigh_rows(recipe, pi, e)
    counts.add_rows(why)
    assert (counts.not_finite, counts.unseen, counts.infeasible) == (1, 2, 1)
    assert mu[0, 1] > 0.6
    np.testing.assert_array_equal(mu[1:], pi[1:])


def test_a_target_outside_the_known_actions_is_unseen_and_not_infeasible():
    e = estimates([[1.0, 2.0]], known=np.array([[True, False]]))
    counts = Counts()
    mu, _, why = weigh_rows(RECIPE, np.array([[0.0, 1.0]]), e)
    counts.add_rows(why)
    assert (counts.unseen, counts.infeasible) == (1, 0)
    np.testing.assert_array_equal(mu, [[0.0, 1.0]])


# -- acting ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned():
    """A table policy with a control variate, and its target."""
    case = random_case(3, states=6, actions=4, horizon=5, time_varying=False, noisy=True)
    target = TabularPolicy(case.target)
    log = rows_of(case, 4000, seed=0)
    return design(log, target, horizon=5, method="scope-dr"), target


@pytest.fixture(scope="module")
def network():
    """A network policy over vectors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    log = Transitions(
        rng.integers(3, size=300),
        x,
        rng.integers(3, size=300),
        x[:, 0] + rng.normal(size=300),
        rng.random(300),
        x + 0.1 * rng.normal(size=(300, 2)),
    )
    small = MLPRegression(hidden=8, first_steps=60, steps=20)
    return design(log, vector_target, horizon=3, method="scope", learn=small)


def test_act_draws_from_probs(learned):
    """2,000 draws at each of 3 places; chi-square beyond its 1 - 1e-6 quantile fails."""
    from scipy.stats import chi2

    policy, target = learned
    rng = np.random.default_rng(1)
    for state, t in ((0, 0), (3, 2), (5, 4)):
        mu = policy.probs(np.array([state]), t)[0]
        pi = target.probs(np.array([state]), t)[0]
        weighing = policy.weigh(Candidates(np.arange(4)[None], pi[None]), np.array([state]), t)
        count = np.zeros(4)
        for _ in range(2000):
            drawn = policy.act(state, t, rng)
            count[drawn.action] += 1
            assert drawn.probability == mu[drawn.action] > 0
            assert drawn.target_probability == pi[drawn.action]
            assert drawn.control == weighing.control[0, drawn.action]
            assert drawn.baseline == pytest.approx(pi @ weighing.control[0])
        some = mu > 0
        statistic = ((count - 2000 * mu)[some] ** 2 / (2000 * mu[some])).sum()
        assert statistic < chi2.ppf(1 - 1e-6, max(some.sum() - 1, 1))


def test_act_never_draws_the_impossible():
    """Ten tenths sum to less than one: the last action, of probability zero, is not the rest."""

    class Last:
        def random(self):
            return 1.0 - 2**-53

    pi = np.append(np.full(10, 0.1), 0.0)
    assert np.cumsum(pi)[-1] < 1.0
    policy = BehaviorPolicy(CallablePolicy(lambda obs, t: pi[None]), [], RECIPE, REPORT)
    assert policy.act(0, 0, Last()).probability > 0


def test_doubt_is_counted_while_acting(learned, network):
    policy, _ = learned
    policy.counts = Counts()
    state = policy.probs(np.array([1, 2]), 0)
    assert state.shape == (2, 4)
    assert policy.counts.asked == 2
    assert "asked so far         2 times" in policy.summary()
    network.counts = Counts()
    here = np.zeros((2, 2))
    np.testing.assert_array_equal(network.probs(here, 99), vector_target(here, 99))
    assert network.counts.unseen == network.counts.asked == 2  # no critic beyond the horizon
    assert "fell back to the target policy for an unseen observation 2" in network.summary()
    network.counts = Counts()
    far = np.array([[50.0, 0.0], [0.0, 0.0]])
    mu = network.probs(far, 0)
    np.testing.assert_allclose(mu[0], vector_target(far, 0)[0], rtol=1e-15)
    assert network.counts.unseen >= 1


def test_another_action_set_is_named(learned):
    policy, _ = learned
    other = Candidates(np.arange(3)[None], np.full((1, 3), 1 / 3))
    with pytest.raises(InputError, match=r"offers 3 actions.*designed for 4"):
        policy.weigh(other, np.array([0]), 0)


def test_table_leaves_the_counts_alone(learned):
    policy, _ = learned
    before = replace(policy.counts)
    mu, b = policy.table(6)
    assert policy.counts == before
    assert mu.shape == b.shape == (5, 6, 4)
    np.testing.assert_array_equal(mu[2], policy.probs(np.arange(6), 2))
    mixed = policy.probs(np.array([0, 1, 2]), np.array([4, 0, 2]))
    np.testing.assert_array_equal(mixed, mu[[4, 0, 2], [0, 1, 2]])
    exact.assess(random_case(3, states=6, actions=4, horizon=5).mdp, mu, mu)


@pytest.mark.parametrize("name", list(METHODS))
def test_many_rows_are_weighed_as_few(name, monkeypatch):
    """Rows do not look at each other: in parts, by several threads, the same bits and counts."""
    rng = np.random.default_rng(5)
    B, A = 1000, 4
    pi = random_rows(rng, B, A)
    q = rng.normal(size=(B, A))
    q[rng.random((B, A)) < 0.01] = np.nan
    known = rng.random((B, A)) < 0.8
    e = estimates(q, cost=rng.random((B, A)), noise=rng.random((B, A)), known=known)
    told = []
    for together in (B, 64, 1):
        monkeypatch.setattr(step_module, "TOGETHER", together)
        counts = Counts()
        mu, b, why = weigh_rows(replace(RECIPE, method=METHODS[name]), pi, e)
        counts.add_rows(why)
        told.append((mu, b, counts))
    mu, b, counts = told[0]
    for mu_parts, b_parts, counts_parts in told[1:]:
        assert (mu == mu_parts).all()
        assert (b == b_parts).all()
        assert counts == counts_parts
    assert counts.not_finite > 0


def test_rows_of_a_table_are_looked_up_with_the_same_bits():
    """As soon as many were asked for; unless other probabilities are offered, or no state is."""
    case = random_case(4, states=6, actions=3, horizon=3, time_varying=False)
    target = TabularPolicy(case.target)
    policy = design(rows_of(case, 3000, seed=1), target, horizon=3, method="scope-dr")
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 6, 40)

    def asked(rows, pi):
        return policy.weigh(Candidates(np.broadcast_to(np.arange(3), pi.shape), pi), rows, 1)

    pi, other = target.probs(obs, 1), rng.dirichlet(np.ones(3), 40)
    solved, unlike = (weigh_rows(policy.recipe, p, policy.critics[1].at(obs)) for p in (pi, other))
    for some in (slice(0, 4), slice(4, 40), slice(7, 8)):  # six states: the second makes the table
        found = asked(obs[some], pi[some])
        for got, wanted in zip((found.probs, found.control, found.why), solved, strict=True):
            np.testing.assert_array_equal(got, wanted[some])
        assert policy._tables.keys() == (set() if some.start == 0 else {1})
    for some in (slice(0, 40), slice(5, 6)):
        np.testing.assert_array_equal(asked(obs[some], other[some]).probs, unlike.mu[some])
    assert np.abs(unlike.mu - solved.mu).max() > 0.01
    found.probs[:] = 0.0  # it is the caller's
    np.testing.assert_array_equal(asked(obs, pi).probs, solved.mu)
    assert asked(obs[:0], pi[:0]).probs.shape == (0, 3)
    outside = np.array([0, 6])
    found = asked(outside, target.probs(obs[:2], 1))
    np.testing.assert_array_equal(found.probs[1], target.probs(obs[:2], 1)[1])
