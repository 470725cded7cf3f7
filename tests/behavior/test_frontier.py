"""The learned frontier: unbiased and capped whatever the critics say, cheaper at higher prices."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from behaviors import anything
from experiments.mlp.regression import MLPRegression
from logged_worlds import cells, rows_of
from random_mdps import random_case
from scopeval import (
    Check,
    Promise,
    Table,
    TabularPolicy,
    Transitions,
    design,
    exact,
    frontier,
    load,
)
from scopeval.behavior import evidence as evidence_module
from scopeval.behavior.file_header import FileHeader
from scopeval.behavior.frontier import LEAST_SHARE, envelope
from scopeval.behavior.frontier_point import Point
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.behavior.weighted_step import PriceGrid, weigh_weighted
from scopeval.envs.gridworld import Gridworld, gridworld_logs, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.stage_design import Plan
from scopeval.models.protocols import Estimates
from scopeval.policies.protocols import Candidates, Counts, EpisodeState

GRID = PriceGrid(1e-3, 4.0, 9)
RECIPE = Recipe(
    METHODS["scope-dr"], 4, epsilon=-0.3, budget="weighted", price=0.3, cap=10.0,
    prices=(GRID.low, GRID.ratio, GRID.count),
)  # fmt: skip


def fair_coin(obs, t):
    return np.full((len(obs), 2), 0.5)


def random_estimates(rng, rows, actions):
    shape = (rows, actions)
    return Estimates(
        q=rng.normal(size=shape),
        cost_target=rng.random(shape),
        cost_behavior=rng.random((*shape, 1 + GRID.count)),
        carried=rng.random((*shape, 1 + GRID.count)),
        noise=rng.random(shape),
        error=np.zeros(shape),
        known=rng.random(shape) < 0.9,
    )


@settings(max_examples=300, deadline=None)
@given(anything(), st.sampled_from([0.0, 1e-300, 1e-3, 1.0, 9.9, 10.0, 1e9, np.inf]))
def test_probabilities_are_valid_for_any_numbers(case, weight):
    """Never an exception or a warning, never an invalid row: doubt falls back to the target."""
    e, pi, _ = case
    wide = [np.repeat(x[..., :1], 1 + GRID.count, axis=-1) for x in (e.carried, e.cost_behavior)]
    e = replace(e, carried=wide[0], cost_behavior=wide[1])
    counts = Counts()
    weights = np.full(len(pi), weight)
    mu, b, why = weigh_weighted(RECIPE, GRID, pi, e, 0, weights)
    counts.add_rows(why)
    assert np.isfinite(b).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(axis=1), 1.0, atol=1e-9)
    if weight >= 10.0:
        np.testing.assert_allclose(mu, pi, atol=1e-12)  # at the cap it is the target


def test_known_actions_of_hardly_any_probability_fall_back_to_the_target():
    """Its square is 0, and 0 times infinity not a number. Seen to fail if `improve` passes it."""
    shape, many = (1, 3), 1 + GRID.count
    cost = np.zeros((*shape, many))
    cost[0, 1] = 1e77
    zero = np.zeros(shape)
    known = np.array([[False, True, True]])
    e = Estimates(zero, cost[..., 0], cost, np.full((*shape, many), 1e150), zero, zero, known)
    pi = np.array([[1.0, 1e-310, 1e-310]])
    mu, _, _ = weigh_weighted(RECIPE, GRID, pi, e, 0, np.ones(1))
    np.testing.assert_array_equal(mu, pi)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 10.0), st.floats(0.3, 1.0))
def test_the_weight_never_exceeds_the_cap(seed, weight, gamma):
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.ones(3), 5)
    e = random_estimates(rng, 5, 3)
    recipe = replace(RECIPE, gamma=gamma)
    mu, _, _ = weigh_weighted(recipe, GRID, pi, e, 2, np.full(5, weight))
    taken = mu > 0
    assert (weight * pi[taken] / mu[taken]).max() <= 10.0 + 1e-9
    assert (mu[pi > 0] > 0).all()  # no action of the target is left out


@pytest.mark.parametrize("method", ["scope-dr", "scope"])
def test_the_estimate_is_unbiased_whatever_the_critics_say(method):
    """The mean over all trajectories is J(pi) exactly, with critics that are pure noise."""
    for seed in range(5):
        case = random_case(seed, states=2, actions=2, horizon=3, time_varying=False)
        mdp, pi = case.mdp, TabularPolicy(case.target).table(3)
        rng = np.random.default_rng(seed)
        critics = [random_estimates(rng, mdp.states, 2) for _ in range(3)]
        P = mdp.transition.toarray().reshape(mdp.states, 2, mdp.states)

        def mean(s, t, weight, so_far, critics=critics, mdp=mdp, pi=pi, P=P):
            if t == 3:
                return so_far
            here = critics[t].select([s])
            mu, b, _ = weigh_weighted(
                replace(RECIPE, method=METHODS[method]),
                GRID,
                pi[t, [s]],
                here,
                t,
                np.array([weight]),
            )
            baseline = float(pi[t, s] @ b[0])
            total = 0.0
            for a in np.flatnonzero(mu[0]):
                rho = pi[t, s, a] / mu[0, a]
                gain = weight * (baseline + rho * (mdp.at("reward", t)[s, a] - b[0, a]))
                for s2 in np.flatnonzero(P[s, a]):
                    after = mean(s2, t + 1, weight * rho, so_far + gain)
                    total += mu[0, a] * P[s, a, s2] * after
            return total

        found = sum(mdp.initial[s] * mean(s, 0, 1.0, 0.0) for s in range(mdp.states))
        expected = exact.assess(mdp, case.target, case.target).value
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.fixture(scope="module")
def learned():
    mdp, pi = Gridworld(6, seed=2).mdp(), target_policies(1, 6, seed=2)[0]
    logs = gridworld_logs(mdp, episodes=800, seed=2)
    return mdp, pi, logs, frontier(logs, pi, horizon=6, learn=Table(features=cells(6)))


def test_higher_prices_cost_less_and_vary_more(learned):
    *_, curve = learned
    assert curve._designs[0].recipe.floor == LEAST_SHARE
    cost = np.array([p.cost for p in curve.points])
    variance = np.array([p.variance for p in curve.points])
    assert len(cost) > 10
    assert (np.diff(cost) <= 1e-6).all()
    assert (np.diff(variance) >= -1e-6 * variance[:-1]).all()
    assert cost[-1] < 0.6 < 0.8 < cost[0] <= 1.0


def simulated(mdp, pi, policy, episodes, seed):
    """Mean, variance and cost of episodes of a weight-dependent policy; and the largest weight."""
    rng, n = np.random.default_rng(seed), episodes
    P = mdp.transition.toarray().reshape(mdp.states, mdp.actions, mdp.states)
    s = rng.choice(mdp.states, size=n, p=mdp.initial)
    weight, value, cost, i, largest = np.ones(n), np.zeros(n), np.zeros(n), np.arange(n), 1.0
    for t in range(mdp.horizon):
        p = pi.probs(s, t)
        offered = Candidates(np.tile(np.arange(mdp.actions), (n, 1)), p)
        found = policy.weigh(offered, s, t, EpisodeState.of_weights(weight))
        mu, b = found.probs, found.control
        a = np.minimum((rng.random((n, 1)) >= mu.cumsum(axis=1)).sum(axis=1), mdp.actions - 1)
        rho = p[i, a] / mu[i, a]
        value += weight * ((p * b).sum(axis=1) + rho * (mdp.reward[s, a] - b[i, a]))
        weight, cost = weight * rho, cost + mdp.cost[s, a]
        largest = max(largest, weight.max())
        following = (rng.random((n, 1)) >= P[s, a].cumsum(axis=1)).sum(axis=1)
        s = np.minimum(following, mdp.states - 1)
    return value.mean(), value.var(ddof=1), cost.mean(), largest


def test_half_of_the_cost_is_kept_and_the_estimate_is_right(learned):
    """40,000 episodes: errors below are 4.5 standard errors, 1e-5 by accident."""
    mdp, pi, _, curve = learned
    own = exact.assess(mdp, pi, pi)
    for asked in (0.8, 0.6):
        policy = curve.at(cost=asked)
        mean, variance, cost, largest = simulated(mdp, pi, policy, 40_000, 5)
        assert abs(mean - own.value) < 4.5 * np.sqrt(variance / 40_000)
        assert cost / own.cost <= 1.01 * asked
        assert policy.predicted.variance == pytest.approx(variance / own.variance, rel=0.3)
        assert variance < 0.5 * own.variance
        assert largest <= 30.0 + 1e-9


def test_with_plenty_of_logs_long_episodes_are_predicted_and_nearly_optimal():
    """Weights become small in long cheap episodes: the grid must know prices far above lambda."""
    short, pi = Gridworld(4, seed=5).mdp(), target_policies(1, 4, seed=5)[0]
    mdp = exact.TabularMDP(short.initial, short.transition, short.reward, short.cost, 20)
    logs = logs_of(mdp, [TabularPolicy(np.full((16, 4), 0.25))], 3000, seed=1)
    curve = frontier(logs, pi, horizon=20)
    limit = exact.frontier(mdp, pi)
    for asked in (0.8, 0.5, 0.3):
        policy = curve.at(cost=asked)
        found = exact.tabulate(mdp, pi, policy).predicted
        assert found.relative_cost == pytest.approx(policy.predicted.cost, rel=0.015)
        assert found.relative_variance == pytest.approx(policy.predicted.variance, rel=0.05)
        least = limit.at(cost=found.relative_cost).predicted.relative_variance
        assert least * 0.99 <= found.relative_variance <= 1.03 * least


def test_points_are_chosen_by_cost_variance_or_product(learned, tmp_path):
    _, pi, logs, curve = learned
    cheap = curve.at(variance=1.0)
    assert cheap.predicted.variance <= 1.05
    assert cheap.predicted.cost < 0.6
    best = curve.best()
    product = best.predicted.variance * best.predicted.cost
    assert product <= 1.1 * min(p.safe_variance * p.safe_cost for p in curve.points)
    by_design = design(
        logs,
        pi,
        horizon=6,
        method="scope-dr",
        promise=Promise(at_most=0.7),
        learn=Table(features=cells(6)),
    )
    assert by_design.recipe == curve.at(cost=0.7).recipe
    by_design.save(tmp_path / "cheap.scope")
    again = load(tmp_path / "cheap.scope", pi)
    assert again.recipe == by_design.recipe
    one = np.random.default_rng(0)
    offered = Candidates(np.arange(4)[None], pi.probs(np.array([3]), 2))
    state = EpisodeState.of_weights(np.array([0.5]))
    probs = again.weigh(offered, np.array([3]), 2, state).probs[0]
    assert by_design.act(3, 2, one, weight=0.5).probability in probs


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ({}, "expected exactly one of them"),
        ({"cost": 0.5, "variance": 1.0}, "expected exactly one of them"),
        ({"cost": float("nan")}, "expected exactly one of them"),
        ({"cost": 0.01}, "the least that the logs bear out is"),
        ({"variance": 1e-6}, "the least that the logs bear out is"),
    ],
)
def test_bad_points(learned, point, message):
    with pytest.raises(InputError, match=message):
        learned[-1].at(**point)


def test_a_cost_that_the_cap_does_not_allow_is_refused(learned, monkeypatch):
    curve = learned[-1]
    designs = curve._designs[0]
    at_price = designs.at_price

    def expensive(price):
        found = at_price(price)
        return found._replace(point=replace(found.point, doubt=0.5))

    monkeypatch.setattr(designs, "at_price", expensive)
    with pytest.raises(InputError, match="within the cap 30 the least that the logs bear out is"):
        curve.at(cost=0.7)


def test_weights_must_be_given(learned):
    policy = learned[-1].at(cost=0.7)
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match="weight: got None, expected a number >= 0"):
        policy.act(3, 0, rng)
    with pytest.raises(InputError, match="depends on the weight of the episode so far"):
        policy.probs(np.array([3]), 0)


def test_a_frontier_without_a_gain_at_the_targets_own_cost():
    """Rewards that no action changes: a design is refused, but half of the cost can be saved."""
    short, pi = Gridworld(4, seed=1).mdp(), target_policies(1, 4, seed=1)[0]
    rng = np.random.default_rng(0)
    reward = np.repeat(rng.random((16, 1)), 4, axis=1)
    flat = exact.TabularMDP(
        short.initial, np.repeat(np.eye(16)[None], 4, axis=0).transpose(1, 0, 2).reshape(64, 16),
        reward, short.cost, 6, reward_variance=np.ones((16, 4)),
    )  # fmt: skip
    logs = logs_of(flat, [TabularPolicy(np.full((16, 4), 0.25))], 2000, seed=1)
    assert design(logs, pi, horizon=6, method="scope-dr").falls_back
    curve = frontier(logs, pi, horizon=6)
    assert "no gain in variance" in curve.warnings[0]
    found = exact.tabulate(flat, pi, curve.at(cost=0.8)).predicted
    assert found.relative_cost <= 0.81
    assert found.relative_variance <= 1.5


def test_points_are_offered_where_held_out_logs_agree_or_say_it_is_better():
    for variance, checked, offered in (
        (0.2, 0.6, True), (0.2, 0.9, True), (0.2, 1.01, False), (0.5, 1.5, True),
        (0.5, 1.51, False), (0.0, 0.9, True),
    ):  # fmt: skip
        point = Point(1.0, variance, 0.7, checked, 0.7, 0.0)
        assert point.offered == offered
        assert not replace(point, doubt=np.inf).offered  # its cost cannot be told
        assert point.safe_variance >= checked / 3.0


@pytest.mark.parametrize("rows", [8, 16, 30])
def test_at_its_own_cost_a_frontier_is_no_worse_than_the_target_policy(rows):
    """Few logs: what one half of them promises the other denies, and the target policy runs."""
    case = random_case(1, states=6, actions=3, time_varying=False)
    log = rows_of(case, 30, seed=1).select(np.arange(rows))
    curve = frontier(log, case.target, horizon=case.mdp.horizon)
    behavior = curve.at(cost=1.0)
    assert behavior.falls_back
    assert behavior.predicted.variance == 1.0
    assert curve.at(cost=1.5).predicted.variance <= 1.0
    assert not any(p.safe_cost >= 1.0 and p.safe_variance >= 1.0 for p in curve.points)


def test_an_empty_frontier_is_not_a_cost_out_of_reach(learned, monkeypatch):
    *_, curve = learned
    with pytest.raises(InputError, match=r"cost: got 0.05 of .* the least that the logs bear out"):
        curve.at(cost=0.05)
    monkeypatch.setattr(curve, "points", ())
    monkeypatch.setattr(curve, "_designs", [])
    itself = curve.at(cost=1.0)
    assert not itself.weighted
    assert itself.predicted.variance <= 1.0
    assert curve.best().recipe == itself.recipe == curve.at(variance=1.0).recipe
    with pytest.raises(InputError, match=r"cost: got 0.9, but the frontier is empty"):
        curve.at(cost=0.9)


def test_the_envelope_leaves_out_what_another_curve_is_better_than():
    def point(variance, cost):
        return Point(1.0, variance, cost, variance, cost, 0.0)

    one, other = [point(0.5, 0.9), point(0.9, 0.5)], [point(0.6, 0.8), point(0.95, 0.6)]
    itself = point(0.98, 1.0)
    assert envelope([one, other], itself) == (one[0], other[0], one[1])
    assert envelope([[*one, point(0.99, 1.0)]], itself) == tuple(one)


@pytest.mark.parametrize(("support", "warned"), [(0.4, "only 40%"), (0.5, "no gain in variance")])
def test_vectors_need_their_own_support_for_cheaper_points(monkeypatch, support, warned):
    """Below the least support of vectors there is no frontier, as there is no design."""
    monkeypatch.setattr(evidence_module, "vector_support", lambda *_: support)
    rng = np.random.default_rng(0)
    t = rng.integers(2, size=400)
    x, k = rng.normal(size=(400, 2)), rng.integers(2, size=400)
    log = Transitions(t, x, k, rng.normal(size=400), 0.5 + k, rng.normal(size=(400, 2)))
    few = MLPRegression(hidden=3, first_steps=20, steps=20)
    curve = frontier(log, fair_coin, horizon=2, points=6, learn=few)
    assert warned in curve.warnings[0]
    assert not (curve.points and support < 0.5)


@pytest.mark.parametrize("episodes", [2, 400])
def test_tables_need_support_for_cheaper_points(episodes):
    """Two episodes do not tell what a cheaper policy costs; without this there are 20 points."""
    mdp = Gridworld(6, seed=3).mdp()
    (policy,) = target_policies(1, 6)
    logs = gridworld_logs(mdp, episodes=episodes, seed=1)
    curve = frontier(logs, policy.table(6), horizon=6)
    support = curve.at(cost=1.0).report.support
    assert (support < 0.5) == (episodes == 2)
    assert bool(curve.points) == (episodes == 400)


@pytest.mark.parametrize("support", [1.0, 0.4])
def test_where_half_of_a_control_variate_runs_cheaper_points_have_all_of_it(monkeypatch, support):
    """Their departures need support, as where the target policy runs alone."""
    monkeypatch.setattr(evidence_module, "table_support", lambda *_: support)
    rng = np.random.default_rng(4)
    obs, action = np.tile(np.arange(4), (400, 1)), rng.integers(0, 2, (400, 4))
    reward = rng.normal(size=(400, 4)) + 0.9 * action
    log = Transitions(
        *(x.ravel() for x in (obs, obs, action, reward, 0.9 + 0.2 * action)),
        np.minimum(obs + 1, 3).ravel(),
        (obs == 3).ravel(),
    )
    curve = frontier(log, np.full((4, 2), 0.5), horizon=4)
    itself = curve.at(cost=1.0)
    assert (itself.recipe.floor, itself.recipe.share) == (1.0, 0.5)
    assert bool(curve.points) == (support >= 0.5)
    if not curve.points:
        assert "only 40%" in curve.why_empty
        return
    point = curve.at(cost=0.96)
    assert point.recipe.share == 1.0


@pytest.mark.parametrize("floor", [0.02, 0.0201])
def test_a_given_floor_is_used_below_zero_epsilon(learned, floor):
    """Also where it is the default of designs at the target policy's own cost."""
    _, pi, logs, _ = learned
    how = {
        "horizon": 6,
        "promise": Promise(at_most=0.7),
        "learn": Table(features=cells(6)),
    }
    assert design(logs, pi, check=Check(floor=floor), **how).recipe.floor == floor
    assert design(logs, pi, **how).recipe.floor == LEAST_SHARE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"check": Check(least_gain=0.1)}, "least_gain: got 0.1 with at most 0.7"),
        ({"method": "odi"}, "promise: got at most 0.7 of the cost with method='odi'"),
    ],
)
def test_what_a_frontier_cannot_use_is_refused(learned, given, message):
    _, pi, logs, _ = learned
    with pytest.raises(InputError, match=message):
        design(logs, pi, horizon=6, promise=Promise(at_most=0.7), **given)


def test_a_budget_in_every_state_and_a_limit_of_episodes_are_refused(learned):
    _, pi, logs, _ = learned
    with pytest.raises(InputError, match="per: got 'state' with a baseline"):
        design(logs, pi, horizon=6, promise=Promise(per="state"), baseline=pi)


def test_the_predicted_cost_is_expected_and_epsilon_is_what_was_asked(learned):
    """A cost that is asked for is promised; the prediction itself is without the doubt."""
    _, pi, logs, curve = learned
    how = {"horizon": 6, "method": "scope-dr", "learn": Table(features=cells(6))}
    asked = {
        "design": design(logs, pi, promise=Promise(at_most=0.7), **how),
        "at": curve.at(cost=0.7),
    }
    for policy in asked.values():
        told = policy.predicted
        assert policy.recipe.epsilon == -0.3
        assert told.doubt > 0.0
        assert told.safe_cost == told.cost + told.doubt
        assert told.safe_cost <= 0.7 * (1.0 + 1e-3)
        assert f"{told.cost:.3f} of the target policy's (with its doubt: " in policy.summary()
        assert "allowed: 0.700)" in policy.summary()
    by_variance = curve.at(variance=1.0)
    assert by_variance.recipe.epsilon == by_variance.predicted.safe_cost - 1.0
    plain = design(logs, pi, **how)
    assert plain.recipe.epsilon == 0.0
    assert plain.predicted.safe_cost >= plain.predicted.cost


def test_stages_count_the_cost_with_its_doubt(learned):
    told = learned[-1].at(cost=0.7).predicted
    assert Plan(None, told, -0.3, "").cost == told.safe_cost > told.cost


def test_headers_of_older_files_say_that_the_doubt_is_included(learned):
    curve = learned[-1]
    policy = curve.at(cost=0.7)
    content = json.loads(FileHeader("table", policy.recipe, policy.report).encode())
    now = FileHeader.decode(json.dumps(content).encode(), "new").report
    assert (now.prediction, now.notes) == (policy.predicted, policy.report.notes)
    content["format"] = 5
    del content["report"]["prediction"]["doubt"]
    content["report"]["prediction"]["cost"] = policy.predicted.safe_cost
    old = FileHeader.decode(json.dumps(content).encode(), "old").report
    assert old.prediction.safe_cost == policy.predicted.safe_cost
    assert "the predicted cost includes the doubt about it" in old.notes[-1]


def test_points_that_do_not_pay_are_marked():
    """Variance times cost of 1: as much is known from the target policy's own episodes."""
    cheap = Point(1.0, 7.0, 0.3, 10.0, 0.3, doubt=0.01)
    assert not cheap.pays
    assert cheap.needed == pytest.approx(cheap.safe_variance * 0.31)
    assert f"{cheap.needed:.3g} times" in cheap.does_not_pay
    assert Point(1.0, 0.4, 0.6, 0.5, 0.6, doubt=0.01).pays


def test_a_behavior_that_does_not_pay_says_so(learned):
    *_, curve = learned
    paying = [point for point in curve.points if point.pays]
    rest = [point for point in curve.points if not point.pays]
    assert paying
    assert rest
    words = "this point does not pay"
    assert words not in curve.at(cost=paying[0].safe_cost).summary()
    capped = replace(rest[-1], price=paying[-1].price)  # whatever it was chosen for
    designs = curve._designs[0]
    found = curve._designed(designs, designs.at_price(paying[-1].price)._replace(point=capped))
    assert words in " ".join(found.summary().split())
    frame = curve.to_frame()
    assert list(frame["pays"]) == [point.needed < 1.0 for point in curve.points]
