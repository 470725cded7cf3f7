"""Comparisons without the noise of paths: exactly unbiased, best where little is shared."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from gymnasium.spaces import Discrete

from scopeval import History, Inference, Stop, compare
from scopeval.comparison import cross_fitting
from scopeval.comparison.context import JointContext
from scopeval.comparison.cross_fitting import BY_EPISODE, BY_STEP, ESTIMATORS, Analyst, _Folds
from scopeval.comparison.estimators import per_decision
from scopeval.comparison.mixture import MixtureEpisodes, running_weights
from scopeval.comparison.policy_set import PolicySet
from scopeval.context import regression
from scopeval.envs.exogenous import ExogenousEnv
from scopeval.envs.inventory import Inventory
from scopeval.errors import DataError, InputError
from scopeval.report import page_of_comparison

#: Demand of a day, which no action changes, and its chance; orders; their rewards.
DEMAND = {0: 0.6, 1: 0.4}


def reward(demand, order):
    return 4.0 * demand * (0.5 + order) + 0.3 * order - 1.0


def mixture(some, probs):
    """One-step episodes (demand, order) of policies with order probabilities [K, 2]."""
    demand, order = np.array(some).T
    n = len(some)
    with np.errstate(divide="ignore"):
        log_probs = np.log(probs[:, order].T)[:, None]
    shares = np.full(len(probs), 1.0 / len(probs))
    return MixtureEpisodes(
        obs=np.zeros((n, 1), np.int64),
        action=order[:, None],
        reward=np.array([[reward(d, o)] for d, o in some]),
        cost=np.zeros((n, 1)),
        weights=running_weights(log_probs, shares),
        shares=np.tile(shares, (n, 1)),
        length=np.ones(n, np.int64),
        last_obs=np.zeros(n, np.int64),
        terminated=np.ones(n, np.bool_),
        index=np.arange(n),
        failed=np.zeros((n, len(probs)), np.bool_),
        exogenous=np.stack([np.full(n, np.nan), demand], axis=1)[:, :, None],
        signals=("demand",),
    )


UNRELATED, RELATED = [[1.0, 0.0], [0.0, 1.0]], [[0.7, 0.3], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("probs", "way"), [(UNRELATED, BY_EPISODE), (RELATED, BY_EPISODE), (RELATED, BY_STEP)]
)
def test_unbiased_by_enumeration(monkeypatch, probs, way):
    """All samples of 3 or 4 episodes and 2 paths of history, through a guess that is corrected."""
    floor = way * len(ESTIMATORS)  # the number of the full trajectory with a context
    monkeypatch.setattr(regression, "FEWEST", 1)
    monkeypatch.setattr(regression, "_EPISODES_PER_FEATURE", 1)
    each = np.array(probs)
    policies = PolicySet({"old": each[:1], "new": each[1:]})
    many = 3 * len(ESTIMATORS)
    monkeypatch.setattr(_Folds, "spread", lambda self, out: np.full((many, 2), 1.0))
    monkeypatch.setattr(
        cross_fitting, "_preferred", lambda spread: np.full(2, floor if len(spread) == many else 0)
    )
    mu = each.mean(axis=0)
    outcomes = list(product(DEMAND, (0, 1)))
    chance = {(d, o): DEMAND[d] * mu[o] for d, o in outcomes}
    true = np.array(
        [sum(DEMAND[d] * p[o] * reward(d, o) for d, o in outcomes) for p in each]
    )  # fmt: skip
    mean, used = np.zeros(2), 0.0
    for past in product(DEMAND, repeat=2):
        history = History(
            np.array(past, float)[:, None], "demand", block=1, rewards=lambda p: 4.0 * p[:, :, 0]
        )
        context = JointContext(history, 0.8)
        analyst = Analyst(policies, 1.0, None, None, 0, context=context)
        for some in product(outcomes, repeat=4 if way == BY_EPISODE else 3):
            p = np.prod([DEMAND[d] for d in past]) * np.prod([chance[one] for one in some])
            if p == 0.0:
                continue
            judged = analyst.judge(mixture(some, each))
            if way == BY_STEP:  # the error of the history is that of all policies alike
                same = np.repeat(context.removed_by_step(1.0)[:, None], 2, axis=1)
                np.testing.assert_allclose(judged.removed, same, atol=1e-12)
            mean += p * judged.values.mean(axis=0)
            used += p * float(np.abs(judged.values - judged.plain.values).max() > 1e-9)
    assert mean == pytest.approx(true, abs=1e-12)
    assert used > 0.2


def test_a_guess_of_every_reward_is_exactly_unbiased_where_actions_end_episodes():
    """All episodes of two steps and all histories of two paths; order 1 ends at once, or not."""
    probs = np.array([[[0.7, 0.3], [0.4, 0.6]], [[0.2, 0.8], [0.9, 0.1]]])  # [K, T, A]
    levels = np.array([[1.0, -2.0], [0.5, 3.0]])
    true, mean = np.zeros(2), np.zeros(2)
    paths = list(product(DEMAND, repeat=2))
    law = {path: DEMAND[path[0]] * DEMAND[path[1]] for path in paths}
    for path, orders in product(paths, product((0, 1), repeat=2)):
        steps = 1 if orders[0] == 1 else 2
        if steps == 1 and orders[1] == 1:
            continue  # the second order is never given
        each = probs[:, range(steps), orders[:steps]]  # [K, steps]
        rewards = [reward(path[t], orders[t]) if t < steps else 0.0 for t in range(2)]
        true += law[path] * each.prod(axis=1) * sum(rewards)
        with np.errstate(divide="ignore"):
            log_probs = np.log(np.concatenate([each, np.ones((2, 2 - steps))], axis=1).T)
        one = MixtureEpisodes(
            obs=np.zeros((1, 2), np.int64),
            action=np.array([orders]),
            reward=np.array([rewards]),
            cost=np.zeros((1, 2)),
            weights=running_weights(log_probs[None], np.array([0.5, 0.5])),
            shares=np.full((1, 2), 0.5),
            length=np.array([steps]),
            last_obs=np.zeros(1, np.int64),
            terminated=np.ones(1, np.bool_),
            index=np.zeros(1, np.int64),
            failed=np.zeros((1, 2), np.bool_),
            exogenous=np.array([[[np.nan], *([x] for x in path)]]),
            signals=("demand",),
        )
        chance = law[path] * each.prod(axis=1).mean()
        for past in product(paths, repeat=2):
            history = History(
                np.array(past, float), "demand", block=1,
                rewards=lambda p: p[:, :, 0] * [3.0, -1.0] + p[:, ::-1, 0],
            )  # fmt: skip
            less = JointContext(history, 0.8).by_step(one)
            weight = chance * law[past[0]] * law[past[1]]
            mean += weight * per_decision(less, 1.0, levels)[0]
    assert mean == pytest.approx(true, abs=1e-12)


WORLD = Inventory(horizon=12)
T = WORLD.horizon


def up_to(level, loose):
    """Order up to a level: probabilities [41, 4] by the stock."""
    away = np.abs(np.arange(41)[:, None] + np.array([0.0, 5.0, 10.0, 15.0]) - level)
    weight = np.exp(-away / loose)
    return weight / weight.sum(axis=1, keepdims=True)


OLD, NEW, BAD = up_to(10.0, 1.0), up_to(16.0, 1.0), up_to(2.0, 1.0)
NEAR = 0.7 * OLD + 0.3 * NEW


class Counted(ExogenousEnv):
    """The stock is what is observed."""

    def __init__(self):
        super().__init__(WORLD)
        self.observation_space = Discrete(41)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return int(obs[1]), info

    def step(self, action):
        obs, *rest = super().step(action)
        return (int(obs[1]), *rest)


@pytest.fixture(scope="module")
def years():
    return WORLD.paths(6000, np.random.default_rng(1))


def test_unrelated_policies_need_a_part_of_the_episodes(years):
    """Their demand explains what no episode can share, and the answer says so."""
    result = compare(
        Counted(), {"old": OLD, "new": NEW}, episodes=200, horizon=T,
        context=History(years, "demand", block=1), seed=3,
    )  # fmt: skip
    d = result.differences["new"]
    assert d.n / d.ab_episodes < 0.25
    assert result.context["new"].relative_variance < 0.5
    assert result.context["new"].dependent == ()
    noise = result.noise["new"]
    assert noise.design + noise.context + noise.left == pytest.approx(1.0)
    assert "context" in result.summary()
    assert "by context" in result.summary()
    assert "by context" in page_of_comparison(result).sections[2].figures[0].label
    assert "by context" in result._repr_html_()
    assert result.to_dict()["noise"]["new"]["context"] == pytest.approx(noise.context)


def test_similar_policies_gain_where_the_reward_of_every_step_is_guessed(years):
    """A reward that is mostly demand: 1/3 of the variance that whole episodes' guesses leave."""

    class Priced(Counted):
        def step(self, action):
            obs, reward, *rest, info = super().step(action)
            return obs, reward - 40.0 * info["demand"], *rest, info

    def said(**how):
        history = History(years, "demand", block=1, **how)
        found = compare(
            Priced(), {"old": OLD, "new": NEAR}, episodes=200, horizon=T, context=history, seed=3
        )
        return found.differences["new"], found

    usual, _ = said()
    by_step, found = said(rewards=lambda paths: -40.0 * paths[:, :, 0])
    assert by_step.se**2 < usual.se**2 / 3
    assert abs(by_step.estimate - usual.estimate) < 4 * usual.se
    # the mean over the history is the same for both policies: only values have its error
    assert found.context["new"].relative_variance < 1 / 3


def test_what_cannot_be_done_is_refused(years):
    pair, history = {"old": OLD, "new": NEW}, History(years, "demand")
    with pytest.raises(InputError, match="return_bound"):
        compare(
            Counted(), pair, episodes=20, horizon=T, context=history,
            inference=Inference(return_bound=(-1e4, 1e4)),
        )  # fmt: skip
    with pytest.raises(InputError, match="no signal 'wind'"):
        compare(
            Counted(), pair, episodes=20, horizon=T, context=History(years, "wind")
        )  # fmt: skip
    with pytest.raises(InputError, match="expected a History"):
        compare(Counted(), pair, episodes=20, horizon=T, context=years)
    whole = History(years, "demand", rewards=lambda paths: paths[:, :5, 0])
    with pytest.raises(InputError, match="one for each of the 12 steps"):
        compare(Counted(), pair, episodes=20, horizon=T, context=whole)


class Cut(Counted):
    """Ends when the stock is low, which actions decide."""

    def step(self, action):
        obs, reward, _, truncated, info = super().step(action)
        return obs, reward, obs < 1, truncated, info


def test_paths_that_actions_cut_are_refused(years):
    with pytest.raises(DataError, match="whole path"):
        compare(
            Cut(), {"old": OLD, "new": NEW}, episodes=20, horizon=T,
            context=History(years, "demand"),
        )  # fmt: skip


class Stock(Counted):
    """Reports as demand what actions decide in part."""

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | {"demand": info["demand"] + obs}


def test_a_column_that_depends_on_actions_is_named(years):
    result = compare(
        Stock(), {"old": OLD, "new": NEW}, episodes=200, horizon=T,
        context=History(years, "demand", block=1),
    )  # fmt: skip
    assert "demand depends on the actions" in result.sentence


def test_at_all_times(years):
    """A look at a time, with the error of the history, and an end when it is decided."""
    result = compare(
        Counted(), {"old": BAD, "new": NEW}, horizon=T,
        stop=Stop(decided=True, episodes=600), context=History(years, "demand", block=1),
    )  # fmt: skip
    d = result.differences["new"]
    assert d.verdict == "better"
    assert d.alpha == 0.05
    assert result.episodes < 600
