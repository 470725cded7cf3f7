"""q^c as control variate of the certificate: exact enumeration, ends, noise, the whole library."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from scopeval import (
    Bound,
    Check,
    Inference,
    Promise,
    TabularPolicy,
    collect,
    design,
    estimate,
    evaluate,
    exact,
)
from scopeval.envs.gridworld import Gridworld, logging_policies, logs_of, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.policies.protocols import Weighing
from scopeval.safety.certificate import Ledger
from scopeval.safety.cost_bound import cost_bound_of
from scopeval.safety.costs import ROOM, ControlledSum, CostControl, EpisodeCosts, costs_of
from scopeval.simulate import summaries
from small_worlds import every_trajectory, random_mdp, random_rows

ERROR = 1e-6
ALPHA = 0.05


class Table:
    """A critic from tables: b [T, S, A], and mu."""

    def __init__(self, target: TabularPolicy, b: np.ndarray, mu: np.ndarray) -> None:
        self.target, self.b, self.mu = target, b, mu

    def cost_to_go(self, obs, t):
        return self.b[t, obs]

    def weigh(self, offered, obs, t, state):
        return Weighing(self.mu[t, obs])


def world(seed: int, gamma: float, ends: bool):
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma=gamma, ends=ends)
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    pi, mu = TabularPolicy(random_rows(rng, T, S, A)), random_rows(rng, T, S, A)
    right = exact.cost_values(mdp, pi).q
    wrong = rng.exponential(3.0, size=(T, S, A))
    return mdp, pi, mu, (right, wrong, np.zeros_like(wrong), 50 * wrong)


CASES = [(s, g, e) for s in range(3) for g, e in ((1.0, False), (0.8, True))]


@pytest.mark.parametrize(("seed", "gamma", "ends"), CASES)
def test_any_control_variate_keeps_the_mean_and_the_ends(
    seed: int, gamma: float, ends: bool
) -> None:
    """Over all trajectories, for right and wrong q^c: the exact mean, and no value beyond its ends.

    Seen to fail with a factor that knows the control of the action taken.
    """
    mdp, pi, mu, controls = world(seed, gamma, ends)
    truth = mdp.initial @ exact.cost_values(mdp, pi).v[0]
    own = mdp.initial @ exact.cost_values(mdp, TabularPolicy(mu)).v[0]
    episodes, chance = every_trajectory(mdp, pi, TabularPolicy(mu), ends=ends)
    heaviest = max(float(np.cumprod(episodes.ratios, axis=1).max()), 1.0)
    step = float(episodes.cost.max())
    scaled = False
    for b in controls:
        costs = costs_of(episodes, gamma, CostControl(pi, Table(pi, b, mu)))
        assert costs.steps is not None
        assert chance @ costs.pair[0] == pytest.approx(own, abs=1e-9)
        assert chance @ costs.pair[1] == pytest.approx(truth, abs=1e-9)
        for bound in (
            cost_bound_of(
                Bound(step=step), horizon=mdp.horizon, gamma=gamma, largest_weight=heaviest
            ),
            cost_bound_of(Bound(episode=3 * step), horizon=mdp.horizon, largest_weight=heaviest),
        ):
            assert bound is not None
            for pair in (*bound.for_safety(costs), *bound.for_refutation(costs)):
                assert chance @ pair.behavior == pytest.approx(own, abs=1e-9)
                assert chance @ pair.target == pytest.approx(truth, abs=1e-9)
            for pair in bound.for_safety(costs):
                assert (pair.behavior <= pair.behavior_end + 1e-9).all()
                assert (pair.target >= pair.target_end - 1e-9).all()
            for pair in bound.for_refutation(costs):
                assert (pair.behavior >= pair.behavior_end - 1e-9).all()
                assert (pair.target <= pair.target_end + 1e-9).all()
            kinds = [pair.kind for pair in bound.for_refutation(costs)]
            assert kinds == ["weighted", "controlled", "from the top"]
            low = bound.for_safety(costs)[1]
            assert low.target_end == -ROOM * bound.episode
            scaled |= bool(np.abs(low.target - costs.pair[1]).max() > 1e-6)
    assert scaled  # the last control is so large that factors below 1 are needed


@pytest.mark.parametrize("seed", range(3))
def test_a_right_control_leaves_little_noise_and_zero_is_the_weighted_cost(seed: int) -> None:
    mdp, pi, mu, (right, _, nothing, _) = world(seed, 1.0, False)
    episodes, chance = every_trajectory(mdp, pi, TabularPolicy(mu))

    def variance(b: np.ndarray) -> float:
        x = costs_of(episodes, 1.0, CostControl(pi, Table(pi, b, mu))).pair[1]
        return float(chance @ (x - chance @ x) ** 2)

    plain = costs_of(episodes)
    assert plain.own_controlled is None
    np.testing.assert_allclose(
        costs_of(episodes, 1.0, CostControl(pi, Table(pi, nothing, mu))).pair[1],
        plain.weighted_cost,
    )
    assert variance(right) < 0.6 * variance(nothing)


def test_where_the_target_ran_the_control_does_not_matter() -> None:
    """All weights 1: the certificate is that of the costs themselves, safe with ratio 1."""
    rng = np.random.default_rng(1)
    mdp, pi, _, (_, wrong, _, _) = world(1, 1.0, False)
    own = pi.table(mdp.horizon)
    episodes = collect(mdp, pi, pi, episodes=50, seed=int(rng.integers(100)))
    ledger = Ledger()
    ledger.add(costs_of(episodes, 1.0, CostControl(pi, Table(pi, wrong, own))))
    found = ledger.certificate()
    assert found.verdict == "safe"
    assert found.ratio.estimate == 1.0


@pytest.mark.parametrize(("seed", "gamma", "ends"), CASES)
def test_steps_that_a_limit_gave_to_the_target_are_the_targets(
    seed: int, gamma: float, ends: bool
) -> None:
    """Mu decides one step, then the target: the exact mean over all trajectories of both sums."""
    mdp, pi, mu, controls = world(seed, gamma, ends)
    run = np.concatenate([mu[:1], pi.table(mdp.horizon)[1:]])
    truth = mdp.initial @ exact.cost_values(mdp, pi).v[0]
    own = mdp.initial @ exact.cost_values(mdp, TabularPolicy(run)).v[0]
    episodes, chance = every_trajectory(mdp, pi, TabularPolicy(run), ends=ends)
    limited = replace(episodes, guarded=np.maximum(episodes.length - 1, 0))
    for b in controls:
        costs = costs_of(limited, gamma, CostControl(pi, Table(pi, b, mu)))
        assert costs.steps is not None
        assert chance @ costs.pair[0] == pytest.approx(own, abs=1e-9)
        assert chance @ costs.pair[1] == pytest.approx(truth, abs=1e-9)
    # the test can fail: taken for mu's steps, the mean is another one
    taken = costs_of(episodes, gamma, CostControl(pi, Table(pi, controls[1], mu)))
    assert abs(chance @ taken.pair[0] - own) > 1e-3


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.floats(1.0, 20.0), st.booleans())
@example(0, 5.0, False)
def test_the_upper_end_holds_where_the_rest_costs_all_it_can(
    seed: int, heaviest: float, stepwise: bool
) -> None:
    """The sum stays below (K + 1/4) B when a huge control comes first and the whole cost last.

    This end is what a proof of "safe" rests on. Without K in front of what the rest can cost it
    would be passed: by (K - 1) B in the last episode here.
    """
    rng = np.random.default_rng(seed)
    n, T, bound = 50, 4, 2.0
    weights = rng.uniform(0.0, heaviest, (n, T))
    weights[-10:] = heaviest
    cost = rng.dirichlet(np.full(T, 0.3), n) * bound * rng.uniform(0.5, 1.0, (n, 1))
    cost[-1] = 0.0, 0.0, 0.0, bound
    control = np.zeros((n, T))
    baseline = rng.exponential(10.0, (n, T))
    step = float(cost.max()) if stepwise else None
    steps = ControlledSum(weights, cost, control, baseline, baseline, np.ones(T))
    found = steps.not_above(heaviest, bound, step)
    end = (heaviest + ROOM) * bound
    assert found.max() <= end * (1 + 1e-12)
    assert found[-1] == pytest.approx(end, rel=1e-9)  # and is reached


# --- learned policies -----------------------------------------------------------------------------

SIZE = 5
MDP = Gridworld(SIZE, "same-tilt", seed=0).mdp()
PI = target_policies(1, SIZE)[0]


@pytest.fixture(scope="module")
def learned():
    loggers = logging_policies(10, MDP, seed=0)
    logged = logs_of(MDP, loggers, 400, seed=0)
    found = design(logged, PI, horizon=SIZE, method="scope-dr", seed=0, check=Check(least_gain=0.0))
    assert not found.falls_back
    assert found.recipe.floor < 1.0  # else there is no difference in cost to find
    return found


def test_less_noise_with_learned_critics(learned) -> None:
    """The difference's interval is at most 0.7 times as wide; both sources agree on it."""
    quick = evaluate(MDP, PI, learned, episodes=400, promise=Promise(action="tell"))
    kept = evaluate(
        MDP,
        PI,
        learned,
        episodes=400,
        promise=Promise(action="tell"),
        inference=Inference(keep=True),
    )
    assert kept.episodes is not None
    plain = Ledger()
    plain.add(costs_of(kept.episodes))
    assert quick.certificate is not None
    assert kept.certificate is not None
    found, without = quick.certificate.difference, plain.certificate().difference
    assert found.half_width == pytest.approx(kept.certificate.difference.half_width, rel=1e-9)
    assert found.half_width < 0.7 * without.half_width
    recorded = estimate(kept.episodes, run=learned).certificate
    assert recorded is not None
    assert recorded.difference.low == pytest.approx(found.low, rel=1e-9)


def test_asking_for_costs_is_not_counted(learned) -> None:
    before = learned.counts.asked
    result = evaluate(
        TabularEnv(MDP),
        PI,
        learned,
        horizon=SIZE,
        episodes=20,
        promise=Promise(bound=Bound(step=1.0), action="tell"),
    )
    assert learned.counts.asked - before == 20 * SIZE
    assert result.certificate is not None
    assert result.certificate.cost_bound == SIZE


def test_coverage_with_a_control_variate(learned) -> None:
    """The true difference is missed at most ALPHA of the time, with and without a bound."""
    mu, _ = learned.table(MDP.states)
    q = np.stack([learned.cost_to_go(np.arange(MDP.states), t) for t in range(SIZE)])
    truth = exact.assess(MDP, PI, mu).cost - exact.assess(MDP, PI, PI).cost
    runs, n, missed = 400, 200, 0
    done = summaries(MDP, PI, mu, cost_control=q, episodes=runs * n, seed=5)
    gap = (done.own_controlled - done.target_controlled).reshape(runs, n)
    half = stats.t.ppf(1 - ALPHA / 2, n - 1) * gap.std(axis=1, ddof=1) / math.sqrt(n)
    missed = int((np.abs(gap.mean(axis=1) - truth) > half).sum())
    assert missed <= stats.binom.ppf(1 - ERROR, runs, ALPHA + 0.01)
    assert abs(gap.mean() - truth) < 6 * gap.std() / math.sqrt(runs * n)


def test_proofs_need_fewer_episodes_with_a_control_variate() -> None:
    """Exact q^c, a policy of .95 of the cost: proved where the plain sums prove nothing."""
    mdp, pi = Gridworld(4, "same-tilt", seed=1).mdp(), target_policies(1, 4)[0]
    mu = exact.frontier(mdp, pi).at(cost=0.95)
    q = exact.cost_values(mdp, pi).q

    class Critic(Table):
        def weigh(self, offered, obs, t, state):
            return mu.weigh(offered, obs, t, state)

    episodes = collect(mdp, pi, mu, episodes=800, seed=3)
    bound = cost_bound_of(Bound(step=float(mdp.cost.max())), horizon=4, largest_weight=30.0)
    found = {}
    for name, control in (("plain", None), ("q", CostControl(pi, Critic(pi, q, np.empty(0))))):
        ledger = Ledger(bound=bound)
        ledger.add(costs_of(episodes, 1.0, control))
        found[name] = ledger.certificate()
    assert found["plain"].verdict == "not refuted"
    assert found["q"].verdict == "safe"
    assert found["q"].proved
    assert found["q"].difference.high < found["plain"].difference.high


@pytest.mark.parametrize(("surprise", "firm"), [(0.1, True), (6.0, False)])
def test_a_refutation_survives_episodes_like_the_worst_estimates_seen(
    firm: bool, surprise: float
) -> None:
    """With a control variate the worst episode is the worst of its estimates, not of plain costs.

    Plain costs reach 9 here, and three more episodes of 9 would undo any verdict about a difference
    of .03. Estimates with a control variate are within .1 of 2, so that three more change nothing,
    unless one of them was off by 6. Seen to fail with plain costs in place of the estimates.
    """
    cost, weight, own, target = _estimates(0.03)
    target[7] += surprise
    ledger = Ledger()
    ledger.add(EpisodeCosts(cost, cost * weight, weight, None, None, own, target))
    found = ledger.certificate()
    assert found.verdict == ("refuted" if firm else "not enough evidence")
    if not firm:
        assert f"{target[7]:.4g}" in found.reasons[0]


def test_a_certificate_does_not_contradict_the_guard_of_the_same_episodes():
    """What alone refutes nothing stands beside the guard's verdict as a caution."""
    cost, weight, own, target = _estimates(0.03)
    target[7] += 6.0
    ledger = Ledger()
    ledger.add(EpisodeCosts(cost, cost * weight, weight, None, None, own, target))
    alone, with_guard = ledger.certificate(), ledger.certificate(refuted=True)
    assert alone.verdict == "not enough evidence"
    assert with_guard.verdict == "refuted"
    assert with_guard.reasons
    assert with_guard.sentence.startswith("Refuted as far as seen, by the guard: ")
    assert f"Caution: {with_guard.reasons[0]}" in with_guard.sentence
    assert "confidence" not in with_guard.sentence


@pytest.mark.parametrize(("saved", "firm"), [(0.03, False), (0.1, True)])
def test_safe_survives_episodes_like_the_worst_costs_seen(saved: float, firm: bool) -> None:
    """A control variate does not know what has not happened: three more of the plain costs of 9."""
    cost, weight, own, target = _estimates(-saved)
    ledger = Ledger()
    ledger.add(EpisodeCosts(cost, cost * weight, weight, None, None, own, target))
    found = ledger.certificate()
    assert found.verdict == ("safe" if firm else "not enough evidence")
    if not firm:
        assert f"{cost.max():.4g}" in found.reasons[0]


def _estimates(difference: float):
    """Costs and weights of 1,000 episodes, and precise estimates with a known difference."""
    rng = np.random.default_rng(5)
    n = 1000
    cost = rng.gamma(2.0, size=n)
    weight = np.exp(rng.normal(-0.005, 0.1, n))
    own = 2.0 + difference + rng.uniform(-0.1, 0.1, n)
    return cost, weight, own, 2.0 + rng.uniform(-0.1, 0.1, n)
