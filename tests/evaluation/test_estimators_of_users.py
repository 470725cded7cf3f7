"""Functions for estimators, weighted importance sampling and fitted Q evaluation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from scopeval import (
    EpisodeLog,
    History,
    Inference,
    Stages,
    TabularPolicy,
    collect,
    estimate,
    evaluate,
    exact,
)
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.estimation.estimators import pdis, weighted_pdis
from scopeval.estimation.fitted_q import fitted_q
from scopeval.report.evaluation_figures import trace_of
from small_worlds import every_trajectory, random_mdp, random_rows


@dataclass(frozen=True)
class Action:
    action: int
    probability: float
    target_probability: float
    control: float = 0.0
    baseline: float = 0.0


WIS = Inference(estimator="wis")
#: A bandit: action 0 earns 1, action 1 nothing; the target takes the first with 0.8, what ran 0.5.
TARGET, RAN = (0.8, 0.2), 0.5
VALUE = 0.8


def bandit(actions):
    """Episodes of one step with these actions."""
    log = EpisodeLog(1)
    for action in actions:
        log.start()
        log.step(0, Action(action, RAN, TARGET[action]), 1.0 - action, 0.0)
        log.end(terminated=True)
    return log.episodes()


def world(episodes, seed):
    mdp = Gridworld(size=3, seed=0).mdp()
    policy = target_policies(1, size=3)[0]
    ran = TabularPolicy(np.full((9, 4), 0.25))
    return mdp, policy, collect(mdp, policy, ran, episodes=episodes, seed=seed)


def test_weighted_importance_sampling_has_its_exact_bias():
    """All episodes of a bandit, with their probabilities: the mean is 0.65 where 0.8 is right.

    By hand with two episodes: (1 + 2 (1.6 / 2.0) + 0) / 4. The bias falls like 1/N; pdis has none.
    """
    bias = {}
    for n in (2, 4, 8):
        every = [bandit(actions) for actions in itertools.product((0, 1), repeat=n)]
        bias[n] = np.mean([estimate(some, inference=WIS).estimate for some in every]) - VALUE
        other = [estimate(some, inference=Inference(estimator="pdis")).estimate for some in every]
        assert np.mean(other) == pytest.approx(VALUE, abs=1e-12)
    assert bias[2] == pytest.approx(0.65 - VALUE, abs=1e-12)
    assert -0.15 < bias[4] < bias[8] < 0
    assert bias[8] == pytest.approx(-0.192 / 8, rel=0.2)  # J var(w) - cov(w, w r) = -0.192


def test_its_values_are_its_derivatives_by_the_weight_of_an_episode():
    """The delta method against finite differences of the textbook sum."""
    gamma = 0.9
    _, _, episodes = world(40, 3)
    weights = np.cumprod(episodes.ratios, axis=1)

    def textbook(counts):
        w = weights * counts[:, None]
        return sum(
            gamma**t * (w[:, t] @ episodes.reward[:, t]) / w[:, t].sum()
            for t in range(episodes.horizon)
        )

    ones = np.ones(40)
    center, h = textbook(ones), 1e-5
    slopes = [(textbook(ones + h * one) - textbook(ones - h * one)) / (2 * h) for one in np.eye(40)]
    values = weighted_pdis(episodes, gamma)
    np.testing.assert_allclose(values, center + 40 * np.array(slopes), rtol=1e-6, atol=1e-6)
    found = estimate(episodes, gamma=gamma, inference=WIS)
    assert found.estimate == pytest.approx(center, abs=1e-12)
    assert found.standard_error == pytest.approx(values.std(ddof=1) / np.sqrt(40))


def test_its_interval_contains_the_value_in_95_of_100_cases():
    """300 runs of 200 episodes; 0.95 +- 0.05 is four standard errors: a false alarm in 1e-4."""
    mdp, policy, every = world(60_000, 5)
    value = exact.assess(mdp, policy, policy).value
    inside = 0
    for k in range(300):
        interval = estimate(every.select(slice(200 * k, 200 * k + 200)), inference=WIS).interval
        inside += interval.low < value < interval.high
    assert abs(inside / 300 - 0.95) < 0.05


def test_a_function_gives_the_values():
    _, _, episodes = world(200, 1)
    found = estimate(episodes, inference=Inference(estimator=pdis))
    named = estimate(episodes, inference=Inference(estimator="pdis"))
    assert (found.estimate, found.interval) == (named.estimate, named.interval)
    assert found.estimator == "pdis (a function)"
    assert "by the function pdis, whose values are taken to be independent and" in found.sentence
    assert (
        "by weighted importance sampling, which is biased"
        in estimate(episodes, inference=WIS).sentence
    )
    assert trace_of(found) is None
    assert trace_of(estimate(episodes, inference=WIS)) is None
    assert "<" in found._repr_html_()


def dictionary_fqe(episodes, counts, target, gamma):
    """The textbook, one row at a time: what `counts` copies of each episode give."""
    rows = []
    for i, length in enumerate(episodes.length):
        states = [*episodes.obs[i, :length], episodes.last_obs[i]]
        for t in range(length):
            over = t == length - 1 and episodes.terminated[i]
            step = (states[t], episodes.action[i, t]), episodes.reward[i, t]
            rows.append((counts[i], *step, None if over else states[t + 1]))
    ahead = {}
    for t in reversed(range(episodes.horizon)):
        total, weight = {}, {}
        for count, pair, reward, following in rows:
            total[pair] = total.get(pair, 0.0) + count * (
                reward + gamma * ahead.get(following, 0.0)
            )
            weight[pair] = weight.get(pair, 0.0) + count
        ahead = {}
        for (s, a), gained in total.items():
            chance = target.probs(np.array([s]), t)[0, a]
            ahead[s] = ahead.get(s, 0.0) + chance * gained / weight[s, a]
    return counts @ [ahead[s] for s in episodes.obs[:, 0]] / counts.sum()


@pytest.mark.parametrize("ends", [False, True])
def test_fitted_q_evaluation_is_that_of_the_textbook_and_so_are_its_derivatives(ends):
    rng, gamma = np.random.default_rng(4), 0.9
    mdp = random_mdp(rng, states=3, horizon=4, ends=ends)
    target = TabularPolicy(random_rows(rng, 4, 3, 2))
    every, _ = every_trajectory(mdp, target, TabularPolicy(np.full((3, 2), 0.5)), ends=ends)
    some = every.select(rng.choice(len(every), 40))
    values, ones, h = fitted_q(some, gamma, target), np.ones(40), 1e-5
    center = dictionary_fqe(some, ones, target, gamma)
    assert values.mean() == pytest.approx(center, abs=1e-12)
    around = [
        [dictionary_fqe(some, ones + sign * h * one, target, gamma) for sign in (1, -1)]
        for one in np.eye(40)
    ]
    slopes = np.array([(up - down) / (2 * h) for up, down in around])
    np.testing.assert_allclose(values, center + 40 * slopes, rtol=1e-6, atol=1e-6)


def test_fitted_q_evaluation_is_biased_by_what_no_episode_shows():
    """300 runs of 400 episodes; 0.95 +- 0.05 is four standard errors: a false alarm in 1e-4."""
    mdp, policy, every = world(120_000, 5)
    value, by = exact.assess(mdp, policy, policy).value, Inference(estimator="fqe")
    found = [
        estimate(every.select(slice(400 * k, 400 * k + 400)), policy, inference=by)
        for k in range(300)
    ]
    inside = [e.interval.low < value < e.interval.high for e in found]
    assert abs(np.mean(inside) - 0.95) < 0.05
    assert "by fitted Q evaluation, a model of these episodes, which is biased" in found[0].sentence
    weighted = estimate(every.select(slice(400)), policy)
    assert found[0].standard_error < weighted.standard_error
    few = [fitted_q(every.select(slice(8 * k, 8 * k + 8)), 1.0, policy).mean() for k in range(2000)]
    error = np.std(few) / 2000**0.5
    assert abs(np.mean(few) - value) > 8 * error  # what is never seen counts as 0


@pytest.mark.parametrize("estimator", ["fqe", "pdis"])
def test_a_policy_over_fewer_actions_than_were_run_is_refused(estimator):
    _, _, episodes = world(20, 1)
    two = TabularPolicy(np.full((9, 2), 0.5))
    with pytest.raises(InputError, match="probabilities of 2 actions, and episodes with action 3"):
        estimate(episodes, two, inference=Inference(estimator=estimator))


def test_evaluate_takes_a_function_batch_by_batch():
    mdp, policy, _ = world(2, 1)
    ran, by = TabularPolicy(np.full((9, 4), 0.25)), Inference(estimator=pdis)
    for env in (mdp, lambda: TabularEnv(mdp)):
        named = evaluate(
            env, policy, ran, episodes=300, horizon=3, inference=Inference(estimator="pdis")
        )
        given = evaluate(env, policy, ran, episodes=300, horizon=3, inference=by)
        assert given.estimate == pytest.approx(named.estimate, abs=1e-12)
        assert given.interval.high == pytest.approx(named.interval.high, abs=1e-12)
        assert given.estimator == "pdis (a function)"
        assert "by the function pdis" in given.sentence
    with pytest.raises(InputError, match="another value among other episodes"):
        evaluate(mdp, policy, ran, episodes=300, inference=Inference(estimator=weighted_pdis))
    with pytest.raises(InputError, match="an estimator of your own: got it with Stages"):
        evaluate(mdp, policy, Stages(), episodes=300, inference=by)


@pytest.mark.parametrize(
    ("estimator", "more", "message"),
    [
        (3, {}, "estimator: got 3, expected a name, or a function"),
        ("wdr", {}, "estimator: got 'wdr', expected one of"),
        (lambda e: np.ones(3), {}, "estimator: the function gave 3 values, expected one for each"),
        (lambda e: np.full(len(e), np.nan), {}, "estimator: nan at episode=0"),
        (lambda e: 1.0, {}, "estimator: got an array of shape"),
        ("wis", {"anytime": True}, "'wis', whose interval is for a number of episodes that was"),
        ("wis", {"interval": "sequence"}, "'wis', whose interval is for a number of episodes"),
        ("wis", {"return_bound": (-50.0, 50.0)}, "'wis' with return_bound"),
        (pdis, {"return_bound": (-50.0, 50.0)}, "a function with return_bound"),
        ("fqe", {"anytime": True}, "'fqe', whose interval is for a number of episodes that was"),
        ("fqe", {}, "policy: needed with estimator 'fqe'"),
        (pdis, {"context": History.starts(np.array([0, 1]))}, "a function with context"),
    ],
)
def test_what_cannot_be_done_is_said(estimator, more, message):
    _, _, episodes = world(20, 1)
    terms = {name: more[name] for name in ("interval", "return_bound") if name in more}
    rest = {name: value for name, value in more.items() if name not in terms}
    with pytest.raises(InputError, match=message):
        estimate(episodes, inference=Inference(estimator=estimator, **terms), **rest)
