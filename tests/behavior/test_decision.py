"""What to run: every verdict at both sides of its threshold, and the margin of the cost budget."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from behaviors import RECIPE, estimates
from scopeval import Networks, Table, Transitions
from scopeval.behavior import designer
from scopeval.behavior.advice import better_critics, more_to_gain
from scopeval.behavior.cross_check import CrossCheck, cross_check
from scopeval.behavior.decision import (
    Rejected,
    _poor_control_variate,
    candidates,
    judge_check,
    judge_design,
    judge_support,
    with_margin,
    worth_departing,
)
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.final_design import Design, cautious, noise_share
from scopeval.behavior.frontier_point import Point
from scopeval.behavior.methods import METHODS
from scopeval.behavior.priced_designs import Judged
from scopeval.behavior.settings import Settings
from scopeval.behavior.step import weigh_rows
from scopeval.behavior.thresholds import THRESHOLDS
from scopeval.models.protocols import Caution

SCOPE, SCOPE_DR, ODI = METHODS["scope"], METHODS["scope-dr"], METHODS["odi"]
ABOVE, BELOW = 1 + 1e-9, 1 - 1e-9


def checked(variance: float = 0.5, costs=(1.0, 1.0), **changes) -> CrossCheck:
    choices = [replace(RECIPE, method="scope", **changes)]
    cost = np.array(costs)[:, None]
    return CrossCheck(choices, np.array([variance]), 0.4, cost, {"cost critic": 0.1}, 0)


def evidence(support: float = 1.0, caution: Caution = Caution(), **settings):  # noqa: B008
    """The parts of an `Evidence` that verdicts read."""
    return SimpleNamespace(
        support=support,
        caution=caution,
        settings=Settings(10, **settings),
        vectors=False,
        regression=Table(),
    )


def design(variance: float = 0.5, cost: float = 1.0, **changes) -> Design:
    doubt = changes.pop("doubt", 0.0)
    recipe = replace(RECIPE, **changes)
    return Design(recipe, None, variance, cost, doubt, binding=0.0, infeasible=0.0)


# -- the margin ----------------------------------------------------------------------------------


def test_designs_spend_the_cost_budget_less_the_margin():
    rng = np.random.default_rng(1)
    pi, cost = rng.dirichlet(np.ones(4), 200), rng.random((200, 4))
    e = estimates(10 * cost, cost=cost)  # expensive actions matter most
    own = (pi * cost).sum(axis=1)
    recipe = replace(RECIPE, method="scope", floor=0.0, epsilon=0.1, margin=0.04)
    mu, _, _ = weigh_rows(SCOPE, recipe, pi, e)
    spent = (mu * cost).sum(axis=1) / own
    affordable = cost.min(axis=1) < 1.06 * own
    assert affordable.sum() > 150
    np.testing.assert_allclose(spent[affordable], np.minimum(spent, 1.06)[affordable], rtol=1e-9)
    assert spent[affordable].max() == pytest.approx(1.06)
    dearer = replace(e, cost_behavior=2.0 * e.cost_behavior)  # of the target's cost a share
    mu, _, _ = weigh_rows(SCOPE, replace(recipe, constraint="behavior"), pi, dearer)
    affordable = 2.0 * cost.min(axis=1) < 1.06 * own
    assert affordable.sum() > 20
    assert ((mu * 2.0 * cost).sum(axis=1) / own)[affordable].max() == pytest.approx(1.06)
    mu, _, _ = weigh_rows(SCOPE, replace(recipe, limit=0.5), pi, e)
    affordable = cost.min(axis=1) < 0.48
    assert (mu * cost).sum(axis=1)[affordable].max() == pytest.approx(0.5 * (1 - 0.04))


@pytest.mark.parametrize(
    ("costs", "epsilon", "own", "margin"),
    [
        ((1.0, 1.0), 0.0, 0.0, 0.0),
        ((1.006, 1.002), 0.0, 0.0, 0.004),  # the mean of the halves is too expensive by 0.004
        ((1.02, 1.0), 0.0, 0.0, 0.03),  # by 0.01, and they differ by 0.02
        ((0.9, 0.8), 0.0, 0.0, 0.0),  # cheaper than allowed: nothing is added
        ((1.2, 1.2), 0.1, 0.0, 0.1),
        ((1.02, 1.0), 0.0, 0.05, 0.08),  # the regression's own margin is added
        ((1.0, 1.0), 0.0, 0.05, 0.05),
        ((np.nan, 1.0), 0.0, 0.0, 0.0),
        ((3.0, 5.0), 0.0, 0.0, 1.0),  # at most all that the target policy costs
    ],
)
def test_the_margin_is_by_how_much_the_checked_cost_came_out_too_high(costs, epsilon, own, margin):
    found = with_margin(
        SCOPE, checked(0.5, costs, epsilon=epsilon), Caution(margin=own), THRESHOLDS
    )
    assert found.margin == pytest.approx(margin)


def test_methods_without_a_constraint_have_no_margin():
    for method in (ODI, METHODS["on-policy"]):
        assert with_margin(method, checked(0.5, (2.0, 2.0)), Caution(), THRESHOLDS).margin == 0.0
    limited = checked(0.5, (2.0, 2.0), limit=1.0)
    assert with_margin(SCOPE, limited, Caution(), THRESHOLDS).margin == 0.0


def test_the_safe_cost_of_a_frontier_point():
    """The predicted cost and the doubt."""
    for checked_cost, doubt in ((0.9, 0.0), (0.9, 0.1), (0.6, 0.0)):
        found = Point(1.0, 0.5, 0.7, 0.5, checked_cost, doubt).safe_cost
        assert found == pytest.approx(0.7 + doubt)


def test_the_doubt_about_a_frontiers_cost():
    """All that the check adds, never less than nothing, and room for its error."""
    more, room = np.array([-0.1, 0.1, 0.3]), np.array([0.05, 0.05, 0.15])
    judged = Judged(more, more, more, more, more, room)
    assert judged.doubt(0) == pytest.approx(0.05)
    assert judged.doubt(1) == pytest.approx(0.15)
    assert judged.doubt(1.5) == pytest.approx(0.3)


# -- the cross-check -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noisy():
    """Few logs, and rewards that are noise: what one half believes, the other denies."""
    rng = np.random.default_rng(3)
    n, horizon, states = 30, 4, 6
    walk = rng.integers(0, states, (n, horizon + 1))
    log = Transitions(
        np.tile(np.arange(horizon), n),
        walk[:, :-1].ravel(),
        rng.integers(0, 3, n * horizon),
        rng.normal(size=n * horizon),
        rng.random(n * horizon),
        walk[:, 1:].ravel(),
        np.zeros(n * horizon, bool),
    )
    settings = Settings(horizon, least_gain=0.0)
    return evidence_of(log, rng.dirichlet(np.ones(3), states), settings)


def test_each_half_is_judged_by_the_other(noisy):
    found = cross_check(noisy, ODI, (0.0, 0.5), [noisy.settings.recipe("odi")])
    # there is nothing to gain, but by its own critics every design gains something
    assert found.own_variance < 0.98
    assert found.variance.min() > 1.0
    assert found.best == np.argmin(found.variance)
    assert len(set(found.variance)) == 2


def test_the_check_of_the_whole_floor_is_the_target_policy(noisy):
    found = cross_check(noisy, SCOPE, (0.0, 1.0), [noisy.settings.recipe("scope")])
    assert found.variance[1] == pytest.approx(1.0, abs=1e-12)
    assert found.cost[:, 1] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert abs(found.variance[0] - 1.0) > 1e-3


# -- verdicts ------------------------------------------------------------------------------------


def test_support():
    least = THRESHOLDS.least_support
    assert judge_support(least, SCOPE, THRESHOLDS, True) is None
    found = judge_support(least * BELOW, SCOPE, THRESHOLDS, True)
    assert found.all_but_target
    assert "too few to judge a departure from it" in found.reason
    assert judge_support(0.0, METHODS["on-policy"], THRESHOLDS, True) is None
    assert judge_support(0.0, SCOPE, THRESHOLDS, False) is None  # a table knows what it has seen


def test_a_cost_that_held_out_logs_cannot_tell_is_heeded():
    for costs in ((np.nan, 1.0), (1.0, np.inf)):
        found = judge_check(evidence(), SCOPE, checked(0.5, costs), THRESHOLDS)
        assert found.departures
        assert not found.all_but_target
        assert "the cost is in doubt" in found.reason
    assert judge_check(evidence(), SCOPE, checked(0.5, (9.0, 9.0)), THRESHOLDS) is None  # a margin
    unknown = checked(0.5, (np.nan, np.nan))
    assert judge_check(evidence(), ODI, unknown, THRESHOLDS) is None
    assert judge_check(evidence(limit=1.0), SCOPE, unknown, THRESHOLDS) is None
    assert judge_check(evidence(), SCOPE_DR, unknown, THRESHOLDS, alone=True) is None


def test_a_design_must_be_worth_it():
    for least_gain in (0.0, 0.03, 0.2):
        some = evidence(least_gain=least_gain)
        most = 1 - least_gain
        assert judge_check(some, SCOPE, checked(most * BELOW), THRESHOLDS) is None
        for variance in (most, 1.2, np.nan):
            assert judge_check(some, SCOPE, checked(variance), THRESHOLDS).departures
        assert judge_design(some, SCOPE, design(most), THRESHOLDS) is None
        for variance in (most * ABOVE, np.nan):
            found = judge_design(some, SCOPE, design(variance), THRESHOLDS)
            assert found.departures
    careful = evidence(caution=Caution(least=0.6))
    assert judge_check(careful, SCOPE, checked(0.61), THRESHOLDS).departures
    assert judge_check(careful, SCOPE, checked(0.59), THRESHOLDS) is None


def test_without_a_gain_the_method_without_its_control_variate_is_tried():
    for least_gain, most in ((0.03, THRESHOLDS.control_variate_variance), (0.2, 0.8)):
        some = evidence(least_gain=least_gain)
        assert judge_check(some, SCOPE_DR, checked(most * BELOW), THRESHOLDS) is None
        for variance in (most, 1.2, np.nan):
            found = judge_check(some, SCOPE_DR, checked(variance), THRESHOLDS)
            assert found.with_control_variate
            assert not found.all_but_target


def test_one_budget_for_whole_episodes_must_keep_its_promise():
    for epsilon in (0.0, 0.2):
        allowed = THRESHOLDS.cost_doubt + 1 + epsilon
        for cost, variance, fine in (
            (allowed * BELOW, 0.5, True),
            (allowed * ABOVE, 0.5, False),
            (1.0, 0.98, False),
            (np.nan, 0.5, False),
        ):
            made = design(variance, cost, epsilon=epsilon, budget="episode")
            found = judge_design(evidence(), SCOPE, made, THRESHOLDS)
            assert (found is None) == fine
            assert fine or not found.decisive  # a budget in every state is tried next


def test_a_prediction_that_is_not_believed_in_full_is_at_least_the_check():
    assert cautious(design(0.3, share=1.0), checked(0.5)).variance == 0.3
    assert cautious(design(0.3, share=0.5), checked(0.5)).variance == 0.5
    assert cautious(design(0.7, share=0.5), checked(0.5)).variance == 0.7


def test_the_more_noise_a_critic_has_the_less_its_own_prediction_counts():
    """The share of noise is what differences of two noisy halves say of it."""
    rng = np.random.default_rng(0)
    for noise in (0.3, 1.0, 3.0):
        true, n = rng.normal(size=200_000), 200_000
        a, b = (true + noise * rng.normal(size=n) for _ in range(2))
        e = float(np.sqrt(np.mean((a - b) ** 2)) / np.std((a + b) / 2))
        assert noise_share(e) == pytest.approx(noise**2 / (1 + noise**2), rel=0.02)

    def told(error, own=0.2, check=0.8):
        found = replace(checked(check), errors={"reward critic": error})
        return cautious(design(own, share=1.0), found).variance

    assert told(0.0) == told(float("nan")) == pytest.approx(0.2)
    assert told(1.0) == pytest.approx(0.2**0.6 * 0.8**0.4)
    for error in (2.0, 9.0, 1e200, float("inf")):  # nothing but noise; squares would overflow
        assert told(error) == pytest.approx(0.8)
    assert told(9.0, own=0.9) == pytest.approx(0.9)  # never less than the design's own
    assert told(9.0, own=0.0) == pytest.approx(0.8)


def test_a_cost_that_depends_on_guesses_is_heeded():
    most = THRESHOLDS.cost_doubt
    for epsilon in (0.0, 0.1):
        allowed = 1.0 + epsilon
        asked = evidence(), SCOPE

        def verdict(cost, doubt, asked=asked, epsilon=epsilon, **changes):
            made = design(0.5, cost, doubt=doubt, epsilon=epsilon, **changes)
            return judge_design(*asked, made, THRESHOLDS)

        assert verdict(allowed, BELOW * most) is None
        rejected = verdict(allowed, ABOVE * most)
        assert rejected.departures
        assert "never leave" in rejected.reason
        assert verdict(allowed - 0.1, 0.1 + BELOW * most) is None
        assert verdict(allowed - 0.1, 0.1 + ABOVE * most) is not None
        assert verdict(allowed + 0.0009, 0.0) is None  # without doubt, others judge the cost
        assert verdict(allowed, 1.0, limit=3.0) is None  # an absolute limit has no ratio


@pytest.mark.parametrize(
    ("variance", "cost", "best"),
    [
        (0.48, 1.0, 0),  # 4 % less than the control variate alone
        (0.486, 1.0, 1),
        (0.486, 0.99, 0),  # but also cheaper
        (0.48, 1.02, 1),  # or more expensive
        (0.45, np.nan, 1),
    ],
)
def test_a_departure_must_be_worth_it_beside_the_control_variate_alone(variance, cost, best):
    choices = [replace(RECIPE, floor=0.5), replace(RECIPE, floor=1.0), replace(RECIPE, floor=1.0)]
    costs = np.array([[cost, 1.0, 1.0]] * 2)
    found = CrossCheck(choices, np.array([variance, 0.5, 0.6]), 0.4, costs, {}, 0)
    assert worth_departing(found, 0.03).best == best


def test_without_a_control_variate_there_is_no_other_choice():
    found = checked(0.999, (1.02, 1.0), floor=0.02)
    assert worth_departing(found, 0.03) is found


def test_the_control_variate_alone_is_taken_where_it_saves_enough():
    """Its cost is certain: what held-out logs say it saves is enough."""
    for variance, fine in ((0.97 * BELOW, True), (0.97, False), (np.nan, False)):
        found = judge_check(
            evidence(), SCOPE_DR, checked(variance, floor=1.0), THRESHOLDS, alone=True
        )
        assert (found is None) == fine
        assert fine or not (found.decisive or found.reason)


def test_what_speaks_against_departing_leaves_the_control_variate_alone():
    every = {name: list(candidates(METHODS[name], "episode")) for name in ("scope-dr", "scope")}
    alone = [one for one in every["scope-dr"] if one.alone]
    assert len(alone) == 1
    assert every["scope-dr"].index(alone[0]) == len(every["scope-dr"]) - 2  # before the target
    assert not any(one.alone for one in every["scope"])
    for rejected, kept in (
        (Rejected("x", departures=True), True),
        (Rejected("x", with_control_variate=True), True),
        (Rejected("x", all_but_target=True), False),
        (Rejected(), True),
    ):
        assert rejected.excludes(alone[0]) != kept
        assert not rejected.excludes(every["scope-dr"][-1])  # the target itself
    left = [one for one in every["scope-dr"] if not Rejected("x", departures=True).excludes(one)]
    assert left == [alone[0], every["scope-dr"][-1]]


def queue_like(levels: float = 1.0):
    """A log whose rewards are nearly all noise, but for what the first action gives."""
    rng = np.random.default_rng(4)
    n, horizon = 400, 4
    action = rng.integers(0, 2, (n, horizon))
    obs = np.tile(np.arange(horizon), (n, 1))
    return Transitions(
        obs.ravel(),
        obs.ravel(),
        action.ravel(),
        (rng.normal(size=(n, horizon)) + levels * action).ravel(),
        np.ones(n * horizon),
        np.minimum(obs + 1, horizon - 1).ravel(),
        (obs == horizon - 1).ravel(),
    )


@pytest.mark.parametrize(("levels", "taken"), [(0.55, True), (0.05, False)])
def test_a_riskless_gain_is_taken(levels: float, taken: bool) -> None:
    """Actions cost the same and make 7 % of the variance: pi with b saves it, nothing else does.

    With levels of .55 the draws make .25 * .55^2 = 7 % of a step's variance.
    """
    pi = np.full((4, 2), 0.5)
    found = designer.design(queue_like(levels), pi, horizon=4)
    first = found.summary().splitlines()[0]
    if not taken:
        assert found.report.fallback is not None
        assert found.predicted.variance == 1.0
        assert first.startswith("Runs your own policy: the logs confirm no design: ")
        return
    assert found.report.fallback is None
    assert found.recipe.method == "scope-dr"
    assert found.predicted.variance == pytest.approx(0.93, abs=0.03)
    assert found.report.drawn == pytest.approx(0.07, abs=0.03)
    assert found.predicted.cost == 1.0
    assert first.startswith("Use it: 0.9")
    assert found.report.warnings == ()


def test_of_a_policy_that_always_takes_one_action_nothing_can_be_weighed():
    found = designer.design(queue_like(0.55), np.eye(2)[[0, 0, 0, 0]], horizon=4)
    first = found.summary().splitlines()[0]
    assert "so that there is nothing to weigh: try compare(...)" in first
    assert "to save more" not in first


# -- advice --------------------------------------------------------------------------------------


def test_advice_fits_the_case():
    def of(regression, **settings):
        some = evidence(**settings)
        some.regression = regression
        return some

    features = np.zeros((3, 1))
    assert "features" in better_critics(of(Table()))
    assert "features" not in better_critics(of(Table(features=features)))
    assert "features" not in better_critics(of(Networks()))
    assert "simulator" in better_critics(of(Networks()))
    assert "method='scope-dr'" in more_to_gain(of(Table()), SCOPE)
    said = more_to_gain(of(Table()), SCOPE_DR)
    assert "scope-dr" not in said
    assert "Promise(per='episode')" in said
    assert "Promise(at_most=1.1)" in said
    assert "Promise(per=" not in more_to_gain(of(Table(), budget="episode"), SCOPE_DR)
    assert "a higher limit than 2" in more_to_gain(of(Table(), limit=2.0), SCOPE_DR)
    assert more_to_gain(of(Table()), ODI) == ""


@pytest.mark.parametrize(
    ("support", "says"),
    [(1.0, "the critics are too poor"), (0.9, "the critics are too poor"), (0.89, "too thin")],
)
def test_logs_are_called_thin_only_where_steps_are_missing(support: float, says: str) -> None:
    told = _poor_control_variate(evidence(support), 0.95, THRESHOLDS).reason
    assert says in told
    assert ("too thin" in told) == (support < 0.9)
    assert "log more episodes" in told
