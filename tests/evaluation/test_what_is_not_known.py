"""What an evaluation does not know is said where the value is said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scopeval import Episodes, Inference, estimate, evaluate, exact
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.estimation.moments import Moments, few_events
from scopeval.estimation.weights import diagnose_weights
from scopeval.report import page_of_evaluation


def episodes_of(value, mu=0.5, pi=0.5):
    """Episodes of one step with these returns, and both probabilities of what was done."""
    n = len(value)
    column = np.ones((n, 1))
    return Episodes(
        obs=np.zeros((n, 1), np.int64),
        action=np.zeros((n, 1), np.int64),
        reward=np.asarray(value, np.float64)[:, None],
        cost=0.5 * column,
        behavior_prob=np.broadcast_to(mu, n)[:, None] * column,
        target_prob=np.broadcast_to(pi, n)[:, None] * column,
        length=np.ones(n, np.int64),
        last_obs=np.zeros(n, np.int64),
        terminated=np.ones(n, np.bool_),
    )


def rare_losses(count, n=600):
    """Returns 1 +- 0.1, and so many losses of 40."""
    value = 1.0 + 0.1 * np.random.default_rng(0).standard_normal(n)
    value[:count] -= 40.0
    return value


# -- no evidence -----------------------------------------------------------------------------------


def test_episodes_without_weight_give_no_value_and_no_interval():
    """60 episodes of one action, and a target that never takes it."""
    found = estimate(episodes_of(np.arange(60.0)), np.array([[0.0, 1.0]]))
    assert math.isnan(found.estimate)
    assert math.isnan(found.interval.estimate)
    assert (found.interval.low, found.interval.high) == (-math.inf, math.inf)
    assert found.on_policy_cost is None
    said = "These 60 episodes tell nothing about the policy's value: all of their weights are zero"
    assert found.sentence.startswith(said)
    assert said in " ".join(found.summary().split())
    row = found.to_frame().loc["all"]
    assert math.isnan(row["estimate"])
    assert row["caveats"].startswith(said)
    told = found.to_dict()
    assert told["estimate"] is None
    assert said in found._repr_html_().replace("&#x27;", "'")
    page = page_of_evaluation(found)
    assert page.answer.startswith(said)
    assert page.facts[0].value == "not known"
    found.plot()


@pytest.mark.parametrize(("share", "known"), [(3, False), (9, False), (15, True)])
def test_a_few_effective_episodes_give_no_value(share, known):
    """Of 200 episodes only a few have a weight: below 10 effective ones there is no value."""
    pi = np.where(np.arange(200) < share, 0.5, 1e-9)
    found = estimate(episodes_of(np.arange(200.0), pi=pi))
    assert found.diagnostics.effective_size == pytest.approx(share, rel=1e-3)
    assert found.known is known
    if known:  # there is one, and the caveat stands beside it
        words = f"Caution: the effective number of episodes is {share:.1f} of 200"
        assert words in found.sentence
        assert words.removeprefix("Caution: ") in found.to_frame().loc["all", "caveats"]
        summary = " ".join(found.summary().split())
        assert summary.count("effective number of episodes is") == 1
    else:
        assert "tell too little about the policy's value" in found.sentence
        assert f"leave an effective number of {share:.1f} episodes" in found.sentence


def test_few_episodes_of_about_equal_weights_are_evidence():
    pi = np.linspace(0.4, 0.6, 8)
    found = estimate(episodes_of(np.arange(8.0), pi=pi))
    assert found.known
    assert "Caution" not in found.sentence
    assert not diagnose_weights(np.ones(3)).no_evidence
    assert diagnose_weights(np.array([1.0, 0.0, 0.0, 0.0])).no_evidence


def test_stated_bounds_hold_for_any_weights():
    found = estimate(
        episodes_of(np.arange(60.0)),
        np.array([[0.0, 1.0]]),
        inference=Inference(return_bound=(-100.0, 100.0)),
    )
    assert found.interval.method == "bets"
    assert (found.interval.low, found.interval.high) == (-100.0, 100.0)


def test_a_comparison_with_cheaper_episodes_of_the_policy_itself_can_be_read():
    """Values of weighted episodes vary more than returns, so fewer of the policy's own suffice."""
    rng = np.random.default_rng(2)
    taken = rng.random(4000) < 0.1
    mu, pi = np.where(taken, 0.1, 0.9), np.where(taken, 0.9, 0.1)
    found = estimate(episodes_of(5.0 + rng.standard_normal(4000), mu=mu, pi=pi))
    assert found.on_policy.episodes < 100
    assert "a few episodes" not in found.sentence
    assert f"about {found.on_policy.episodes:.0f} episodes and cost" in found.sentence
    ratio = found.cost.total / found.on_policy.total
    assert f": this evaluation cost {ratio:.2g} times as much." in found.sentence


# -- rare events -----------------------------------------------------------------------------------


def test_a_sequence_says_that_rare_events_are_not_excluded():
    """No loss of 40 among 600 episodes: the interval is narrow, and must say what it rests on."""
    found = estimate(episodes_of(rare_losses(0)), inference=Inference(interval="sequence"))
    assert found.interval.high < 1.1
    words = "as far as seen (events rarer than 3 in 600 episodes are not excluded)"
    assert words in found.sentence
    assert "anytime-valid as far as seen" in found.summary()
    assert words in found._repr_html_()
    page = page_of_evaluation(found)
    assert "95% confidence as far as seen" in page.answer
    assert "as far as seen" in page.facts[0].note
    bounded = estimate(episodes_of(rare_losses(0)), inference=Inference(return_bound=(-40.0, 3.0)))
    assert "as far as seen" not in bounded.sentence
    assert "exact: it holds for any number of episodes" in " ".join(bounded.summary().split())


@pytest.mark.parametrize("interval", ["t", "normal", "sequence"])
def test_an_interval_from_few_events_says_how_many(interval):
    found = estimate(episodes_of(rare_losses(7)), inference=Inference(interval=interval))
    words = "Caution: the interval rests on about 7 events in 600 episodes"
    assert words in found.sentence
    assert words in found._repr_html_()
    assert "rests on about 7 events" in found.to_frame().loc["all", "caveats"]
    assert "rests on" in " ".join(found.diagnostics.warnings)


def test_stages_from_few_events_say_so_too():
    from scopeval.estimation.sequences import StagedMoments

    staged = StagedMoments()
    value = np.random.default_rng(0).permutation(rare_losses(5))
    for part, weight in zip(np.split(value, [200]), (0.5, 1.0), strict=True):
        staged.begin(weight)
        staged.update(part)
    assert staged.events == pytest.approx(5.0, rel=0.4)
    assert few_events(staged.events, 600) is not None


def test_ordinary_values_get_no_words_about_events():
    """Grid world with 300 episodes, and 2,000 samples of normal values of 20 to 600 episodes.

    The values of a sample of 20 look like few events where its skewness is above sqrt(2), which has
    probability 0.3 % there: 6 of 2,000 are expected, and more than 20 have probability 1e-6.
    """
    mdp, pi = Gridworld(5, seed=1).mdp(), target_policies(1, 5, seed=1)[0]
    for method in ("scope", "scope-dr"):
        found = evaluate(mdp, pi, exact.design(mdp, pi, method), episodes=300)
        assert found.diagnostics.caveats == ()
        assert "Caution" not in found.sentence
        assert "as far as seen" not in found.sentence
    rng, told = np.random.default_rng(3), 0
    for _ in range(2000):
        n = int(rng.integers(20, 600))
        moments = Moments()
        moments.merge(rng.standard_normal(n))
        told += few_events(moments.events, n) is not None
    assert told <= 20
