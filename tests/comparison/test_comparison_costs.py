"""What a comparison says about its cost, against sums over all trajectories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mixture import Enumerated, mixtures

from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.totals import CostsAhead, CostTerms
from scopeval.safety.costs import ROOM

FEW = settings(max_examples=40, deadline=None)


class Fixed(CostsAhead):
    """Earlier episodes have cost this, [T]."""

    def __init__(self, ahead: np.ndarray) -> None:
        super().__init__(len(ahead))
        self.ahead = ahead

    def add(self, episodes: MixtureEpisodes, gamma: float) -> np.ndarray:
        return np.tile(self.ahead, (len(episodes), 1))


@FEW
@given(mixtures(), st.integers(0, 2**32 - 1))
def test_costs_are_unbiased_whatever_earlier_episodes_have_cost(made: Any, seed: int):
    case, policies, shares = made
    every, gamma = Enumerated(case, policies, shares), case.gamma
    e = replace(every.episodes, cost=np.abs(every.episodes.cost))
    ahead = 3.0 * np.random.default_rng(seed).random(e.horizon)
    k = seed % len(policies)
    costs = CostTerms(None, k, gamma, None, 0.05).of(e, Fixed(ahead))
    each = e.cost @ gamma ** np.arange(e.horizon)
    truth = every.of_policy[:, k] @ each
    assert costs.steps is not None
    assert costs.pair[0] == pytest.approx(each)
    assert every.mean(costs.weighted_cost) == pytest.approx(truth, abs=1e-9)
    assert every.mean(costs.pair[1]) == pytest.approx(truth, abs=1e-9)
    alone = CostTerms(None, k, gamma, None, 0.05).each(e, Fixed(ahead))  # of all, the same
    assert alone[:, k] == pytest.approx(costs.pair[1])
    for j in range(len(policies)):
        assert every.mean(alone[:, j]) == pytest.approx(every.of_policy[:, j] @ each, abs=1e-9)
    # as do the sums that proofs use, which stay between their ends
    most, heaviest = float(each.max()) + 0.1, 1.0 / shares[k]
    low, high = (
        costs.steps.target.not_below(ROOM * most),
        costs.steps.target.not_above(heaviest, most, None),
    )
    for values in (low, high):
        assert every.mean(values) == pytest.approx(truth, abs=1e-9)
    assert low.min() >= -ROOM * most - 1e-9
    assert high.max() <= (heaviest + ROOM) * most + 1e-9


@FEW
@given(mixtures(), st.integers(1, 5))
def test_the_control_variate_of_an_episode_knows_earlier_ones_only(made: Any, cut: int):
    case, policies, shares = made
    e, gamma = Enumerated(case, policies, shares).episodes, case.gamma
    ahead = np.zeros(e.cost.shape)
    for t in range(e.horizon):
        ahead[:, t] = e.cost[:, t:] @ gamma ** np.arange(e.horizon - t)
    whole = CostsAhead(e.horizon).add(e, gamma)
    assert (whole[0] == 0).all()
    for i in (1, len(e) // 2, len(e) - 1):
        if 0 < i < len(e):
            assert whole[i] == pytest.approx(np.maximum(ahead[:i].mean(axis=0), 0), abs=1e-12)
    earlier = CostsAhead(e.horizon)  # batches do not matter
    parts = [earlier.add(e.select(np.arange(len(e)) < cut), gamma)]
    parts.append(earlier.add(e.select(np.arange(len(e)) >= cut), gamma))
    assert np.concatenate(parts) == pytest.approx(whole, abs=1e-12)


def test_the_draw_of_the_policies_is_no_noise_of_the_cost():
    """Two policies that cost the same, in each step: an A/B test would be sure of the ratio.

    Weighted costs alone have the noise of the coin that draws the policies.
    """
    rng, N, T = np.random.default_rng(0), 200, 4
    first = rng.random(N) < 0.5
    weights = np.ones((N, T + 1, 2))
    weights[:, 1:] = np.where(first[:, None, None], [2.0, 0.0], [0.0, 2.0])
    e = MixtureEpisodes(
        obs=np.zeros((N, T), np.int64),
        action=np.where(first[:, None], 0, np.ones((N, T), np.int64)),
        reward=np.zeros((N, T)),
        cost=1.0 + 0.01 * rng.normal(size=(N, T)),
        weights=weights,
        shares=np.full((N, 2), 0.5),
        length=np.full(N, T),
        last_obs=np.zeros(N, np.int64),
        terminated=np.zeros(N, bool),
        index=np.arange(N),
        failed=np.zeros((N, 2), bool),
    )
    terms = CostTerms(None, 0, 1.0, None, 0.05)
    costs = terms.of(e, CostsAhead(T))
    assert costs.weighted_cost.std() > 3.9
    assert costs.pair[1][10:].std() < 0.1
    alone = terms.each(e, CostsAhead(T))
    assert alone[10:].std(axis=0).max() < 0.1
    ratio = terms.certificate(e, anytime=False).ratio
    assert ratio.high - ratio.low < 0.1  # most of it by the first episode, which has no earlier one
