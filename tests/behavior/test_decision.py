"""What to run: the one rule, its estimates, the margin of the cost budget, and what is said."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from behaviors import RECIPE, estimates
from scopeval import Networks, Question, Table, Transitions, exact
from scopeval.behavior import candidates, decision, designer
from scopeval.behavior.advice import (
    better_critics,
    cost_in_doubt,
    more_to_gain,
    no_control_variate,
    why_no_gain,
)
from scopeval.behavior.candidates import (
    Compared,
    Design,
    compare,
    kinds_of,
    noise_share,
)
from scopeval.behavior.decision import choose, decide
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.frontier_point import Point
from scopeval.behavior.methods import METHODS
from scopeval.behavior.priced_designs import Judged
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import Kind, line_6, sweep
from scopeval.behavior.thresholds import (
    CONTROL_VARIATE,
    FLOORS,
    HARMLESS,
    LEAST_GAIN,
    LEAST_SUPPORT,
    SLACK,
)
from scopeval.exact import TabularMDP
from scopeval.models.protocols import Caution

SCOPE, SCOPE_DR, ODI = METHODS["scope"], METHODS["scope-dr"], METHODS["odi"]
ABOVE, BELOW = 1 + 1e-9, 1 - 1e-9


def evidence(
    support: float = 1.0,
    caution: Caution = Caution(),  # noqa: B008
    least_gain: float = LEAST_GAIN,
):
    """The parts of an `Evidence` that the rule and its words read."""
    return SimpleNamespace(
        support=support,
        caution=caution,
        least_gain=least_gain,
        vectors=False,
        regression=Table(),
        drawn=0.5,
        log=SimpleNamespace(doubt=None),
    )


def compared(*some: tuple, cost=1.0, own=0.4) -> Compared:
    """By (method, share of the target policy, upper end of variance, share of b if not all)."""
    choices = [
        replace(RECIPE, method=METHODS[name], floor=floor, share=(*share, 1.0)[0])
        for name, floor, _, *share in some
    ]
    upper = np.array([one[2] for one in some], float)
    both = np.broadcast_to(np.asarray(cost, float), (2, len(some)))
    return Compared(choices, upper, upper, upper, np.full(len(some), own), both, {"q": 0.1})


def best_of(found: Compared, some=None) -> int | None:
    """The choice among all of them."""
    return choose(some or evidence(), found, np.ones(len(found.choices), np.bool_))


# -- the margin ----------------------------------------------------------------------------------


def test_designs_spend_the_cost_budget_less_the_margin():
    rng = np.random.default_rng(1)
    pi, cost = rng.dirichlet(np.ones(4), 200), rng.random((200, 4))
    e = estimates(10 * cost, cost=cost)  # expensive actions matter most
    own = (pi * cost).sum(axis=1)
    recipe = replace(RECIPE, floor=0.0, epsilon=0.1, margin=0.04)
    mu, _, _ = weigh_rows(recipe, pi, e)
    spent = (mu * cost).sum(axis=1) / own
    affordable = cost.min(axis=1) < 1.06 * own
    assert affordable.sum() > 150
    np.testing.assert_allclose(spent[affordable], np.minimum(spent, 1.06)[affordable], rtol=1e-9)
    assert spent[affordable].max() == pytest.approx(1.06)
    dearer = replace(e, cost_behavior=2.0 * e.cost_behavior)  # of the target's cost a share
    mu, _, _ = weigh_rows(recipe, pi, dearer)
    affordable = 2.0 * cost.min(axis=1) < 1.06 * own
    assert affordable.sum() > 20
    assert ((mu * 2.0 * cost).sum(axis=1) / own)[affordable].max() == pytest.approx(1.06)
    mu, _, _ = weigh_rows(replace(recipe, limit=0.5), pi, e)
    affordable = cost.min(axis=1) < 0.48
    assert (mu * cost).sum(axis=1)[affordable].max() == pytest.approx(0.5 * (1 - 0.04))


@pytest.mark.parametrize(
    ("checked", "epsilon", "caution", "margin"),
    [
        ((1.0, 1.0), 0.0, 0.0, 0.0),
        ((1.006, 1.002), 0.0, 0.0, 0.003),  # half of what the halves say at most
        ((1.02, 1.0), 0.0, 0.0, 0.01),
        ((0.9, 0.8), 0.0, 0.0, 0.0),  # cheaper than allowed: nothing is added
        ((1.2, 1.2), 0.1, 0.0, 0.05),
        ((1.02, 1.0), 0.0, 0.05, 0.06),  # the regression's own margin is added
        ((1.0, 1.0), 0.0, 0.05, 0.05),
        ((3.0, 5.0), 0.0, 0.0, 1.0),  # at most all that the target policy costs
    ],
)
def test_the_margin_is_by_how_much_the_upper_end_of_the_cost_is_too_high(
    checked, epsilon, caution, margin
):
    kind = Kind(replace(RECIPE, epsilon=epsilon))
    some = evidence(caution=Caution(margin=caution))
    assert candidates._margin(some, kind, np.array(checked)) == pytest.approx(margin)
    doubtful = evidence(caution=Caution(margin=caution, optimism=(1.0, 1.0)))  # none of it chance
    assert candidates._margin(doubtful, kind, np.array(checked)) == pytest.approx(
        min(2.0 * margin - caution, 1.0)
    )


def test_methods_without_a_constraint_have_no_margin():
    high = np.array([2.0, 2.0])
    assert candidates._margin(evidence(), Kind(replace(RECIPE, method=ODI)), high) == 0.0
    limited = Kind(replace(RECIPE, limit=1.0))
    assert candidates._margin(evidence(), limited, high) == 0.0


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


# -- what is compared ----------------------------------------------------------------------------


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
    asked = Question(rng.dirichlet(np.ones(3), states), horizon)
    return evidence_of(log, asked, least_gain=0.0)


def test_each_half_is_judged_by_the_other(noisy, monkeypatch):
    kind = Kind(Recipe(ODI, 4), (0.0, 0.5))
    found = compare(noisy, [kind])
    # there is nothing to gain, but by its own critics every design gains something
    assert found.own.max() < 0.99
    assert found.checked.min() > 1.0
    own = [sweep(half, line_6([kind]), 3) for half in noisy.halves]
    other = [sweep(noisy.halves[1 - k], line_6([kind], own[k].critics), 3) for k in (0, 1)]
    for said, swept in ((found.own, own), (found.checked, other)):
        total = sum(one.variance for one in swept)
        np.testing.assert_allclose(said, total[1:] / total[0], rtol=1e-12)
    np.testing.assert_allclose(found.cost, [x.cost[1:] / x.cost[0] for x in other], rtol=1e-12)
    whole = sweep(noisy.whole, line_6([kind]), 3)
    said = whole.variance[1:] / whole.variance[0]
    # the rewards are nothing but noise: what the critics say of themselves does not count
    np.testing.assert_allclose(found.expected, found.checked, rtol=1e-12)
    np.testing.assert_allclose(found.upper, found.checked, rtol=1e-12)
    assert decide(noisy, Recipe(ODI, 4)).fallback is not None
    monkeypatch.setattr(candidates, "noise_share", lambda disagreement: 0.5)
    found, gap = compare(noisy, [kind]), found.checked - found.own
    most = np.maximum(said, found.own)
    for end, base, share in ((found.expected, said, 4), (found.upper, most, 2)):
        np.testing.assert_allclose(end**2, (base + gap / share) * found.checked, rtol=1e-12)


def test_the_share_of_noise_is_what_differences_of_two_noisy_halves_say_of_it():
    rng = np.random.default_rng(0)
    for noise in (0.3, 1.0, 3.0):
        true, n = rng.normal(size=200_000), 200_000
        a, b = (true + noise * rng.normal(size=n) for _ in range(2))
        e = float(np.sqrt(np.mean((a - b) ** 2)) / np.std((a + b) / 2))
        assert noise_share(e) == pytest.approx(noise**2 / (1 + noise**2), rel=0.02)
    assert noise_share(0.0) == noise_share(float("nan")) == 0.0
    for error in (2.0, 9.0, 1e200, float("inf")):  # nothing but noise; squares would overflow
        assert noise_share(error) == 1.0


def test_the_check_of_the_whole_floor_is_the_target_policy(noisy):
    found = compare(noisy, [Kind(Recipe(SCOPE, 4), (0.0, 1.0))])
    for said in (found.expected, found.upper, found.checked, found.own):
        assert said[1] == pytest.approx(1.0, abs=1e-12)
    assert found.cost[:, 1] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert abs(found.checked[0] - 1.0) > 1e-3


def test_line_6_is_solved_once_for_all_shares_of_the_target(noisy):
    """Those of a kind mix the same policy; each is followed by its own variance and cost."""
    seen = []

    def look(step):
        seen.append(step)

    sweep(noisy.whole, line_6([Kind(Recipe(SCOPE_DR, 4), (0.02, 0.5, 1.0))]), 4, look)
    for step in seen:
        target, low, half, full = (one.mu for one in step.behaviors)
        np.testing.assert_allclose(full, target, atol=1e-15)
        bare = (low - 0.02 * target) / 0.98
        np.testing.assert_allclose(half, 0.5 * bare + 0.5 * target, atol=1e-12)
        assert (np.diff(step.variance[:, 1:], axis=1) != 0).any()


def test_all_kinds_are_compared():
    some = evidence(caution=Caution((0.5, 1.0)))
    kinds = kinds_of(some, Recipe(SCOPE_DR, 10, budget="episode"))
    said = [(kind.recipe.method.name, kind.recipe.budget, kind.recipe.share) for kind in kinds]
    assert said == [
        ("scope-dr", "state", 0.5), ("scope-dr", "state", 1.0),
        ("scope-dr", "episode", 0.5), ("scope-dr", "episode", 1.0),
        ("scope", "state", 1.0), ("scope", "episode", 1.0),
    ]  # fmt: skip
    assert kinds[0].floors == (*FLOORS, 1.0)  # the target policy with a control variate
    assert kinds[2].floors == kinds[4].floors == FLOORS
    *_, half, _ = kinds_of(evidence(), Recipe(SCOPE_DR, 10))  # where no share is as small
    assert (half.recipe.share, half.floors, half.recipe.budget) == (HARMLESS, (1.0,), "state")
    (third,) = kinds_of(evidence(), Recipe(ODI, 10, floor=0.3))
    assert third.floors == (0.3, 0.5, 0.75)
    (target,) = kinds_of(some, Recipe(METHODS["on-policy"], 10))
    assert target.shares == (1.0,)
    assert target.recipe.budget == "state"


def wheel(rng, episodes: int):
    """One step, three states, four actions, rewards that are noisy: a log and the true problem."""
    start, reward = np.full(3, 1 / 3), np.array([[0.0, 1, 2, 3], [3, 0, 1, 0], [1, 1, 0, 2]])
    cost = np.array([[1.0, 2, 1, 2], [2, 1, 1, 1], [1, 1, 2, 1]])
    obs, action = rng.integers(3, size=episodes), rng.integers(4, size=episodes)
    got = reward[obs, action] + rng.normal(size=episodes)
    nothing, done = np.zeros(episodes, int), np.ones(episodes, bool)
    log = Transitions(nothing, obs, action, got, cost[obs, action], obs, done)
    moves = np.broadcast_to(np.eye(3)[:, None], (3, 4, 3))
    mdp = TabularMDP(start, moves, reward, cost, 1, reward_variance=np.ones((3, 4)))
    return log, mdp


def test_expected_and_upper_end_over_many_logs():
    """Expected: the mean over logs of what is true; the upper end is above it.

    60 logs of one problem, seeded. The mean of expected - true lies within 4 standard errors of
    zero, which right estimates miss with a probability of 6e-5; the cross-check does not.
    """
    rng = np.random.default_rng(8)
    pi = rng.dirichlet(np.ones(4), 3)
    gaps, above = [], []
    for _ in range(60):
        log, mdp = wheel(rng, 120)
        run = evidence_of(log, Question(pi, 1))
        kind = Kind(Recipe(SCOPE_DR, 1), (1.0,))
        found = compare(run, [kind])
        b = run.whole.at(0).estimates(
            sweep(run.whole, line_6([kind]), 2).critics[0]
        ).q[None]  # fmt: skip
        own = exact.assess(mdp, pi, pi, None)
        true = exact.assess(mdp, pi, pi, b).variance / own.variance
        gaps.append((found.expected[0] - true, found.checked[0] - true))
        above.append(found.upper[0] - true)
    mean, error = np.mean(gaps, axis=0), np.std(gaps, axis=0) / np.sqrt(60)
    assert abs(mean[0]) < 4 * error[0]
    assert mean[1] > 4 * error[1]
    assert np.mean(above) > 0.0


# -- which one runs ------------------------------------------------------------------------------


def test_the_least_upper_end_of_all_runs():
    found = compared(("scope-dr", 0.02, 0.5), ("scope-dr", 0.5, 0.45), ("scope", 0.02, 0.4))
    assert best_of(found) == 2
    left = np.array([True, True, False])
    assert choose(evidence(), found, left) == 1
    assert choose(evidence(), found, left & False) is None


def test_a_design_must_be_worth_it():
    for least_gain in (0.0, 0.03, 0.15):
        most, some = 1 - least_gain, evidence(least_gain=least_gain)
        assert best_of(compared(("scope", 0.02, most * BELOW)), some) == 0
        for variance in (most, 1.2, np.nan):
            assert best_of(compared(("scope", 0.02, variance)), some) is None
    careful = evidence(caution=Caution(least=0.6))
    assert best_of(compared(("scope", 0.02, 0.61)), careful) is None
    assert best_of(compared(("scope", 0.02, 0.59)), careful) == 0


def test_the_gain_of_a_departure_counts_in_the_share_of_steps_that_logs_show():
    for support, variance, best in ((1.0, 0.96, 0), (0.5, 0.96, None), (0.5, 0.939, 0)):
        assert best_of(compared(("scope", 0.02, variance)), evidence(support)) == best
    riskless = compared(("scope-dr", 1.0, 0.7), ("scope", 0.02, 0.6))
    assert best_of(riskless, evidence(0.08)) == 1
    assert best_of(riskless, evidence(0.07)) == 0  # of the target policy itself all of it


def test_a_departure_must_be_worth_it_beside_the_control_variate_alone():
    for name in ("scope-dr", "scope"):
        for variance, best in ((0.97 * 0.5 * BELOW, 0), (0.97 * 0.5, 1), (0.499, 1)):
            assert best_of(compared((name, 0.02, variance), ("scope-dr", 1.0, 0.5))) == best
    two = ("scope-dr", 0.02, 0.46), ("scope-dr", 1.0, 0.5)
    assert best_of(compared(*two, cost=[[0.955, 1.0], [1.05, 1.0]])) == 0
    assert best_of(compared(*two, cost=[[0.945, 1.0], [1.06, 1.0]])) == 1  # variance times cost
    # what does not save enough itself is no measure
    assert best_of(compared(("scope", 0.02, 0.96), ("scope-dr", 1.0, 0.975))) == 0


def test_what_held_out_logs_deny_is_not_used():
    """A check at or above the target policy's own variance, whatever is left of it by all logs."""
    for checked, best in ((BELOW, 0), (1.0, None), (np.nan, None), (3.0, None)):
        found = compared(("scope", 0.02, 0.5))
        assert best_of(replace(found, checked=np.array([checked]))) == best


def test_a_cost_that_held_out_logs_deny_is_not_run():
    """In the mean of what the halves say; a share of the target that they allow runs instead."""
    one, careful = ("scope", 0.02, 0.5), ("scope", 0.5, 0.7)
    assert best_of(compared(one, cost=[[1.0], [1.0 + 2.0 * SLACK]])) == 0
    assert best_of(compared(one, cost=[[1.0], [1.001 + 2.0 * SLACK]])) is None
    assert best_of(compared(one, careful, cost=[[1.02, 1.0], [1.0, 1.0]])) == 1


def test_a_control_variate_must_save_more():
    most = CONTROL_VARIATE
    assert best_of(compared(("scope-dr", 0.02, most * BELOW), ("scope", 0.02, 0.9))) == 0
    for variance in (most, np.nan):
        assert best_of(compared(("scope-dr", 0.02, variance), ("scope", 0.02, 0.9))) == 1
        for floor in (0.02, 1.0):
            assert best_of(compared(("scope-dr", floor, variance))) is None
    assert best_of(compared(("scope-dr", 1.0, 0.6), ("scope-dr", 0.02, 0.7))) == 0


def test_half_of_a_control_variate_with_the_target_policy_may_save_little():
    half = ("scope-dr", 1.0, 0.97 * BELOW, HARMLESS)
    assert best_of(compared(half)) == 0
    assert best_of(compared(("scope-dr", 1.0, 0.9), half)) == 1  # all of it would save more
    assert best_of(compared(("scope-dr", 1.0, 0.75), half)) == 0
    assert best_of(compared(half, ("scope", 0.02, 0.95))) == 0  # a departure must save 3 % more
    assert best_of(compared(half, ("scope", 0.02, 0.94))) == 1
    for other in (("scope-dr", 1.0, 0.9, HARMLESS * ABOVE), ("scope-dr", 0.02, 0.9, HARMLESS)):
        assert best_of(compared(other)) is None


def test_half_of_a_control_variate_does_no_harm_up_to_four_times_its_size():
    """Exact: with pi, and no noise but its own draws, (1 - c / 2)^2 of the variance is left."""
    pi = np.random.default_rng(1).dirichlet(np.ones(4), 3)
    q = np.array([[0.0, 1, 2, 3], [3, 0, 1, 0], [1, 1, 0, 2]])
    moves = np.broadcast_to(np.eye(3)[:, None], (3, 4, 3))
    mdp = TabularMDP(np.full(3, 1 / 3), moves, q, np.ones((3, 4)), 1)
    v = (pi * q).sum(axis=1, keepdims=True)
    starts = float(np.var(v))  # of equally likely ones: no action changes it
    own = exact.assess(mdp, pi, pi, None).variance - starts
    for times in (0.5, 1.0, 2.0, 4.0):
        b = times * (v + HARMLESS * (q - v))
        left = exact.assess(mdp, pi, pi, b[None]).variance - starts
        assert left == pytest.approx((1 - times / 2) ** 2 * own, abs=1e-12)


def test_a_cost_that_held_out_logs_cannot_tell_is_heeded():
    for cost in (np.nan, np.inf):
        both = [[cost, 1.0], [1.0, 1.0]]
        found = compared(("scope", 0.02, 0.5), ("scope-dr", 1.0, 0.6), cost=both)
        assert best_of(found) == 1  # its cost is certain
        assert best_of(compared(("scope", 0.02, 0.5), cost=[[cost], [1.0]])) is None
        assert best_of(compared(("odi", 0.02, 0.5), cost=[[cost], [1.0]])) == 0
        said = why_no_gain(
            evidence(), Recipe(SCOPE, 10), compared(("scope", 0.02, 0.5), cost=[[cost], [1.0]])
        )
        assert said.startswith("the cost is in doubt")


def test_choices_that_do_equally_well_go_by_what_they_promise():
    found = compared(("scope-dr", 0.02, 0.5), ("scope-dr", 0.5, 0.5), ("scope", 0.02, 0.5))
    assert best_of(found) == 2  # what has no control variate cannot be harmed by one
    assert best_of(compared(("scope-dr", 0.02, 0.5), ("scope-dr", 0.5, 0.5))) == 1
    priced = compared(("scope", 0.5, 0.5), ("scope", 0.02, 0.5))
    first = priced.choices[0]
    priced.choices[0] = replace(first, budget="episode")
    assert best_of(priced) == 1


def design(variance: float = 0.5, cost: float = 1.0, **changes) -> Design:
    doubt = changes.pop("doubt", 0.0)
    recipe = replace(RECIPE, **changes)
    return Design(recipe, None, variance, cost, doubt, binding=0.0, infeasible=0.0)


def test_a_design_must_keep_its_promise_with_the_doubt_about_it():
    for epsilon in (0.0, 0.2):
        allowed = SLACK + 1 + epsilon
        for cost, doubt, kept in (
            (allowed * BELOW, 0.0, True),
            (allowed * ABOVE, 0.0, False),
            (allowed - 0.1, 0.1 * BELOW, True),
            (allowed - 0.1, 0.1 + 1e-9, False),
            (np.nan, 0.0, False),
        ):
            assert design(cost=cost, doubt=doubt, epsilon=epsilon).keeps_promise == kept


@pytest.fixture(scope="module")
def plenty():
    """Logs from which a design with a control variate is confirmed: actions differ in noise."""
    log, _ = wheel(np.random.default_rng(0), 2000)
    louder = log.reward + np.random.default_rng(2).normal(size=len(log)) * 3.0 * (log.action == 3)
    pi = np.tile([0.4, 0.2, 0.2, 0.2], (3, 1))
    return evidence_of(replace(log, reward=louder), Question(pi, 1))


def test_what_is_too_expensive_is_not_run(plenty, monkeypatch):
    """The next best is tried; in the end the target policy, with its control variate."""
    tried = []

    def expensive(run, recipe):
        made = original(run, recipe)
        tried.append((recipe.method.name, recipe.floor))
        return replace(made, cost=1.2, doubt=0.1) if recipe.floor < 1.0 else made

    original = decision.design_on_all
    first = decide(plenty, Recipe(SCOPE_DR, 1))
    assert first.fallback is None
    assert first.design.recipe.floor < 1.0
    monkeypatch.setattr(decision, "design_on_all", expensive)
    found = decide(plenty, Recipe(SCOPE_DR, 1))
    assert found.design.recipe.floor == 1.0
    assert found.design.recipe.method == SCOPE_DR
    assert found.fallback is None
    assert found.warnings == first.warnings
    assert len(set(tried)) == len(tried)
    assert tried[-1] == ("scope-dr", 1.0)
    found = decide(plenty, Recipe(SCOPE, 1))
    assert not found.design.recipe.method.tilted
    assert "never leave" in found.fallback
    assert found.prediction.variance == found.prediction.cost == 1.0


def test_logs_of_vectors_must_show_what_the_target_does():
    some = evidence(LEAST_SUPPORT * BELOW)
    assert decision._no_design(some, SCOPE) is None  # a table knows what it has seen
    some.vectors = True
    assert "too few to judge a departure from it" in decision._no_design(some, SCOPE)
    assert decision._no_design(some, METHODS["on-policy"]) is None
    some.support = LEAST_SUPPORT
    assert decision._no_design(some, SCOPE) is None
    some.log.doubt = "two units"
    assert "contradicts itself" in decision._no_design(some, SCOPE)


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


@pytest.mark.parametrize(("levels", "taken"), [(0.9, True), (0.05, False)])
def test_a_riskless_gain_is_taken(levels: float, taken: bool) -> None:
    """Actions cost the same and make 17 % of the variance: pi with half of b saves 13 %.

    With levels of .9 the draws make .25 * .9^2 of the variance, beside noise of 1.
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
    assert found.recipe.method.name == "scope-dr"
    assert found.predicted.variance == pytest.approx(0.87, abs=0.04)
    assert found.report.drawn == pytest.approx(0.17, abs=0.04)
    assert found.predicted.cost == 1.0
    assert first.startswith("Use it: 0.8")
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
    assert "method='scope-dr'" in more_to_gain(Recipe(SCOPE, 10))
    said = more_to_gain(Recipe(SCOPE_DR, 10))
    assert "scope-dr" not in said
    assert "Promise(per='episode')" in said
    assert "Promise(at_most=1.1)" in said
    assert "Promise(per=" not in more_to_gain(Recipe(SCOPE_DR, 10, budget="episode"))
    assert "a higher limit than 2" in more_to_gain(Recipe(SCOPE_DR, 10, limit=2.0))
    assert more_to_gain(Recipe(ODI, 10)) == ""


def test_words_about_a_cost_fit_the_case():
    assert "never leave" in cost_in_doubt(design(doubt=0.1), False)
    assert "simulated episodes of the design cost 1.000" in cost_in_doubt(design(doubt=0.1), True)
    assert "costs 1.200 times" in cost_in_doubt(design(cost=1.2), False)


@pytest.mark.parametrize(
    ("support", "says"),
    [(1.0, "the critics are too poor"), (0.9, "the critics are too poor"), (0.89, "too thin")],
)
def test_logs_are_called_thin_only_where_steps_are_missing(support: float, says: str) -> None:
    weak = compared(("scope-dr", 0.02, 0.95), ("scope", 0.02, 0.9))
    told = no_control_variate(evidence(support), weak)
    assert says in told
    assert ("too thin" in told) == (support < 0.9)
    assert "log more episodes" in told
    assert "held-out logs 0.95" in told
    assert says in why_no_gain(evidence(support), Recipe(SCOPE, 10), weak)
