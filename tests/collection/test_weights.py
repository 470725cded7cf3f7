"""Behavior policies that depend on the weight of the episode so far are given it, step by step."""

from __future__ import annotations

import numpy as np
import pytest

from logged_worlds import cells
from random_mdps import random_case
from scopeval import (
    Campaign,
    Inference,
    Promise,
    Table,
    collect,
    estimate,
    evaluate,
    exact,
    frontier,
    simulate,
)
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust
from scopeval.policies.protocols import Weighing

MDP = Gridworld(5, seed=3).mdp()
PI = target_policies(1, 5, seed=3)[0]


class Recorder:
    """Runs the target mixed with uniform actions, and keeps the weights it was given."""

    def __init__(self):
        self.given = []

    def weigh(self, offered, obs, t, state):
        self.given.append((t, state.weight))
        return Weighing(0.5 * offered.probs + 0.5 / offered.probs.shape[1])


def test_the_weight_is_the_product_of_the_ratios_so_far():
    recorder = Recorder()
    episodes = collect(lambda: TabularEnv(MDP), PI, recorder, episodes=6, horizon=5, seed=1)
    ratios = episodes.target_prob / episodes.behavior_prob
    so_far = np.cumprod(np.column_stack([np.ones(6), ratios]), axis=1)
    given = {t: np.concatenate([w for s, w in recorder.given if s == t]) for t in range(5)}
    for t in range(5):
        np.testing.assert_allclose(np.sort(given[t]), np.sort(so_far[:, t]), rtol=1e-12)


@pytest.fixture(scope="module")
def policy():
    logs = gridworld_logs(MDP, episodes=600, seed=3)
    return frontier(logs, PI, horizon=5, learn=Table(features=cells(5))).at(cost=0.7)


@pytest.mark.parametrize("keep", [False, True])
def test_a_learned_frontier_is_run_in_a_model(policy, keep):
    """20,000 episodes: the truth is within 4.9 standard errors, once in a million it is not."""
    found = evaluate(
        MDP,
        PI,
        policy,
        episodes=20_000,
        seed=2,
        promise=Promise(at_most=1.0 + policy.recipe.epsilon, action="tell"),
        inference=Inference(keep=keep),
    )
    own, table = exact.assess(MDP, PI, PI), exact.tabulate(MDP, PI, policy)
    error = (found.interval.high - found.estimate) / 1.96
    assert abs(found.estimate - own.value) < 4.9 * error
    assert error**2 * 20_000 == pytest.approx(table.predicted.variance, rel=0.1)
    assert found.cost.per_episode == pytest.approx(table.predicted.cost, rel=0.03)
    assert found.diagnostics.largest_weight <= 30.0 + 1e-9
    assert found.certificate.epsilon == pytest.approx(policy.recipe.epsilon, abs=1e-11)
    assert policy.recipe.epsilon < -0.2
    cautious = evaluate(
        MDP,
        PI,
        policy,
        episodes=2000,
        seed=2,
        promise=Promise(at_most=0.8),
        inference=Inference(keep=keep),
    )
    assert cautious.certificate.verdict == "safe"


def test_kept_episodes_are_those_that_are_only_summarized(policy):
    table = exact.tabulate(MDP, PI, policy)
    kept = evaluate(
        MDP,
        PI,
        table,
        episodes=300,
        seed=4,
        promise=Promise(action="tell"),
        inference=Inference(keep=True),
    )
    run = simulate.summaries(MDP, PI, table, episodes=300, seed=4, control_variate=table.control)
    assert kept.episodes is not None
    np.testing.assert_allclose(kept.episodes.weights, run.weight, rtol=1e-9)
    np.testing.assert_allclose(doubly_robust(kept.episodes, 1.0), run.estimate, rtol=1e-9)
    collected = collect(MDP, PI, table, episodes=300, seed=4)
    np.testing.assert_array_equal(collected.behavior_prob, kept.episodes.behavior_prob)


def test_an_exact_frontier_is_evaluated_as_it_is():
    design = exact.frontier(MDP, PI, cap=5.0).at(cost=0.7)
    found = evaluate(
        MDP,
        PI,
        design,
        episodes=20_000,
        promise=Promise(at_most=0.7),
        inference=Inference(keep=True),
    )
    own = exact.assess(MDP, PI, PI)
    error = (found.interval.high - found.estimate) / 1.96
    assert abs(found.estimate - own.value) < 4.9 * error
    assert error**2 * 20_000 == pytest.approx(design.predicted.variance, rel=0.1)
    assert found.diagnostics.largest_weight <= 5.0 + 1e-9
    shorter = evaluate(MDP, PI, design, episodes=100, horizon=3)
    assert shorter.certificate.episodes == 100
    open_end = exact.frontier(MDP, PI, cap=None).at(cost=0.3)
    assert open_end.holes >= 0
    other = target_policies(2, 5, seed=3)[1]
    for keep in (False, True):
        with pytest.raises(InputError, match=r"^behavior: designed for another target policy"):
            evaluate(MDP, other, design, episodes=10, inference=Inference(keep=keep))
    with pytest.raises(InputError, match=r"^estimator: 'mc'"):
        evaluate(MDP, PI, design, episodes=10, inference=Inference(estimator="mc"))


def test_places_that_nothing_covers_are_told():
    """Without a cap and with b = q, actions whose outcome is certain are left out."""
    case = random_case(3, states=3, actions=3, horizon=4, deterministic=True, costs="sparse")
    design = exact.frontier(case.mdp, case.target, cap=None).at(variance=1.0)
    assert design.holes > 0
    found = evaluate(case.mdp, case.target, design, episodes=50, promise=Promise(action="tell"))
    assert "the behavior policy's table is 0 at" in " ".join(found.diagnostics.warnings)


def test_a_frontier_is_evaluated_in_an_environment_at_its_cost(policy):
    """3,000 episodes; all bounds are beyond 4 standard errors."""
    own = exact.assess(MDP, PI, PI)
    found = evaluate(
        lambda: TabularEnv(MDP),
        PI,
        policy,
        episodes=3000,
        horizon=5,
        promise=Promise(action="tell"),
    )
    error = found.interval.high - found.estimate
    assert abs(found.estimate - own.value) < 2.2 * error
    assert found.cost.per_episode / own.cost < 0.74
    assert found.diagnostics.largest_weight == pytest.approx(30.0, abs=1e-9)  # the cap is reached
    assert found.diagnostics.tail_index is None
    relative = (error / 1.96) ** 2 * 3000 / own.variance
    assert relative == pytest.approx(policy.predicted.variance, rel=0.4)


def test_the_cap_of_the_weights_comes_with_recorded_episodes_and_campaigns(policy, tmp_path):
    episodes = collect(MDP, PI, policy, episodes=2000, seed=3)
    assert estimate(episodes, run=policy).diagnostics.tail_index is None
    assert estimate(episodes).diagnostics.tail_index is not None  # nobody said where weights end
    campaign = Campaign.create(tmp_path / "a.campaign", PI, horizon=5, behavior=policy)
    assert campaign.designs()[0].about["cap"] == 30.0


@pytest.mark.heavy
def test_weights_that_end_at_the_cap_are_no_false_evidence(policy):
    """200 evaluations, the promise at the exact cost and 2 % below it.

    At the exact cost "safe" and "refuted" are wrong with a probability of at most 0.025 each: more
    than 12 of 200 by chance once in 500 times. 2 % below it "safe" is wrong, and many are refuted.
    """
    true = exact.tabulate(MDP, PI, policy).predicted.cost / exact.assess(MDP, PI, PI).cost
    verdicts = {}
    for factor in (1.0, 0.98):
        promise = Promise(at_most=true * factor, action="tell")
        runs = [
            evaluate(MDP, PI, policy, episodes=2000, seed=seed, promise=promise)
            for seed in range(200)
        ]
        assert sum(run.diagnostics.tail_index is None for run in runs) > 150
        verdicts[factor] = [run.certificate.verdict for run in runs]
    assert verdicts[1.0].count("safe") <= 12
    assert verdicts[1.0].count("refuted") <= 12
    assert "safe" not in verdicts[0.98]
    assert verdicts[0.98].count("refuted") > 50
