"""Values of episodes by fits and choices from others, against sums over all data sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from scopeval import Transitions
from scopeval.comparison.cross_fitting import Analyst, contrasts
from scopeval.comparison.estimators import AskedControls
from scopeval.comparison.inference import Contrast, Inferrer, Observed
from scopeval.comparison.mixture import MixtureEpisodes, running_weights
from scopeval.comparison.policy_set import PolicySet

OLD, NEW = np.array([[0.7, 0.3]]), np.array([[0.2, 0.8]])
SHARES = np.array([0.6, 0.4])
#: (action, reward, chance of the reward): one step, one state, rewards with noise
OUTCOMES = ((0, 2.0, 1.0), (1, 2.0, 0.9), (1, -4.0, 0.1))


def episodes_of(numbers: Sequence[int]) -> MixtureEpisodes:
    """Episodes of one step: their outcomes by number."""
    action = np.array([[OUTCOMES[i][0]] for i in numbers])
    reward = np.array([[OUTCOMES[i][1]] for i in numbers])
    taken = np.stack([OLD[0, action], NEW[0, action]], axis=2)
    N = len(numbers)
    return MixtureEpisodes(
        obs=np.zeros((N, 1), np.int64),
        action=action,
        reward=reward,
        cost=np.zeros((N, 1)),
        weights=running_weights(np.log(taken), SHARES),
        shares=np.tile(SHARES, (N, 1)),
        length=np.ones(N, np.int64),
        last_obs=np.zeros(N, np.int64),
        terminated=np.ones(N, bool),
        index=np.arange(N),
        failed=np.zeros((N, 2), bool),
    )


def chance_of(number: int) -> float:
    action, _, chance = OUTCOMES[number]
    return float(SHARES @ [OLD[0, action], NEW[0, action]]) * chance


@dataclass(frozen=True)
class Means:
    """The control variate is the mean reward of each action in the rows."""

    quick: bool

    def learn(self, parts: Sequence[Transitions], fits: Sequence[Sequence[int]]) -> Iterator[Any]:
        return (self._learn(Transitions.concat([parts[i] for i in fit])) for fit in fits)

    def _learn(self, log: Transitions) -> Any:
        mean = [
            log.reward[log.action == a].mean() if (log.action == a).any() else 0 for a in (0, 1)
        ]

        def q(policy: int, obs: Any, t: int) -> np.ndarray:
            return np.tile(np.array(mean, float), (len(obs), 1)) * (1.0 + 0.1 * policy)

        return AskedControls(PolicySet({"old": OLD, "new": NEW}), q)


@pytest.mark.parametrize("learner", [None, Means(quick=True), Means(quick=False)])
@pytest.mark.parametrize("count", [2, 5])
def test_the_mean_over_all_folds_is_exactly_unbiased(learner: Any, count: int):
    """The sum over all data sets of 2 and 5 episodes, with fits and choices made in each."""
    policies = PolicySet({"old": OLD, "new": NEW})
    mean = {0: 2.0, 1: 1.4}
    truth = np.array([p[0, 0] * mean[0] + p[0, 1] * mean[1] for p in (OLD, NEW)])
    total, expected, chosen = 0.0, np.zeros(2), set()
    for numbers in itertools.product(range(len(OUTCOMES)), repeat=count):
        chance = float(np.prod([chance_of(i) for i in numbers]))
        judged = Analyst(policies, 1.0, learner, None, seed=1).judge(episodes_of(numbers))
        total += chance
        expected += chance * judged.values.mean(axis=0)
        chosen |= set(judged.chosen.ravel().tolist())
    assert total == pytest.approx(1.0)
    assert expected == pytest.approx(truth, abs=1e-10)
    # of one step the first two estimators are the same; the choice differs between data sets
    if count == 5:
        assert chosen == ({0} if learner is None else {0, 2})


@pytest.mark.parametrize("learner", [None, Means(quick=True)])
def test_the_variance_counts_what_folds_have_learned_from_each_other(learner: Any):
    """The sum over all data sets of 5 episodes: the estimated variance of the mean is unbiased.

    The spread of the values alone lacks a part. With a covariance C of the folds it has the mean
    Var - C N / (N - 1), which is why N / (N - 1) times the estimate of C is added here.
    """
    policies, N = PolicySet({"old": OLD, "new": NEW}), 5
    chances, means, spreads, shared = [], [], [], []
    for numbers in itertools.product(range(len(OUTCOMES)), repeat=N):
        e = episodes_of(numbers)
        judged = Analyst(policies, 1.0, learner, None, seed=1).judge(e)
        observed = Observed(
            judged.values, e.shares, e.weights[:, -1], e.returns(1.0),
            fold=judged.fold, learned=judged.learned,
        )  # fmt: skip
        y = np.column_stack([judged.values, judged.values[:, 1] - judged.values[:, 0]])
        chances.append(np.prod([chance_of(i) for i in numbers]))
        means.append(y.mean(axis=0))
        spreads.append(y.var(axis=0, ddof=1) / N)
        shared.append(
            [observed.shared(k, j, np.ones(N)) for k, j in ((0, None), (1, None), (1, 0))]
        )
    chance = np.array(chances)
    variance = chance @ (np.array(means) - chance @ np.array(means)) ** 2
    seen, lacks = chance @ np.array(spreads), N / (N - 1) * (chance @ np.array(shared))
    assert seen + lacks == pytest.approx(variance, rel=1e-9)
    assert (np.abs(lacks) > 0.005 * variance).all()


def test_logs_of_another_world_do_no_harm():
    """Held-out episodes choose the control variates of the episodes alone.

    400 episodes in which the second action has 10 more; by the bad logs it has 40 less. With good
    logs, which here say what the episodes say, the choice hardly matters.
    """
    rng = np.random.default_rng(0)
    chances = [chance_of(i) for i in range(len(OUTCOMES))]

    def some(count: int) -> MixtureEpisodes:
        e = episodes_of(rng.choice(len(OUTCOMES), count, p=chances).tolist())
        return replace(e, reward=e.reward + 10.0 * e.action)

    episodes, good = some(400), some(4000).transitions()
    bad = replace(good, reward=good.reward - 50.0 * good.action)
    policies = PolicySet({"old": OLD, "new": NEW})
    spread = {}
    for name, logs in (("good", good), ("bad", bad), ("none", None)):
        judged = Analyst(policies, 1.0, Means(quick=True), logs, 0).judge(episodes)
        spread[name] = (judged.values[:, 1] - judged.values[:, 0]).var()
    plain = Analyst(policies, 1.0, None, None, 0).judge(episodes).values
    assert spread["none"] < 0.85 * (plain[:, 1] - plain[:, 0]).var()
    assert spread["bad"] == pytest.approx(spread["none"])
    assert spread["good"] == pytest.approx(spread["none"], rel=0.05)


def test_the_difference_of_two_columns_is_the_chosen_value_of_the_difference():
    L = contrasts(PolicySet({"a": OLD, "b": NEW, "c": OLD}, "b"))
    assert L.tolist() == [[1, -1, 0], [0, 1, 0], [0, -1, 1]]


def test_episodes_without_a_share_have_no_value():
    e = episodes_of([0, 1, 2, 0] * 10)
    shares = e.shares.copy()
    shares[20:] = [1.0, 0.0]
    parted = MixtureEpisodes(
        **{n: getattr(e, n) for n in e.__dataclass_fields__} | {"shares": shares}
    )
    judged = Analyst(PolicySet({"old": OLD, "new": NEW}), 1.0, None, None, 0).judge(parted)
    assert np.isfinite(judged.values[:20]).all()
    assert np.isnan(judged.values[20:, 1]).all()
    assert np.isfinite(judged.values[20:, 0]).all()


@pytest.mark.parametrize("anytime", [False, True])
def test_intervals_are_widened_by_what_folds_share(anytime: bool):
    """By the square root of the variance that is added, where it is positive."""
    rng, N = np.random.default_rng(0), 200
    fold = np.arange(N) % 2
    values = rng.normal(size=(N, 2))
    learned = np.zeros((N, 2, 2))
    other = 1 - fold
    learned[np.arange(N), other, 1] = 0.1
    plain = Observed(values, np.full((N, 2), 0.5), np.ones((N, 2)), values[:, 0])

    def interval(some: np.ndarray | None) -> Contrast:
        seen = replace(plain, fold=None if some is None else fold, learned=some)
        return Inferrer(seen, 0.05, anytime=anytime, target_n=N).difference(1, 0)

    usual, wider = interval(None), interval(learned)
    added = 2 * (0.1 / 2) ** 2  # each fold is half of the episodes
    assert wider.se == pytest.approx(np.sqrt(usual.se**2 + added))
    assert wider.half_width / usual.half_width == pytest.approx(wider.se / usual.se)
    assert wider.estimate == usual.estimate
    negative = np.where((fold == 0)[:, None, None], learned, -learned)
    assert interval(negative) == usual
