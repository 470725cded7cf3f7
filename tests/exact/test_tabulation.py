"""Weight-aware behavior policies on a grid of weights: what they are worth, and running them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from histories import enumerate_design
from random_mdps import random_case
from scopeval import exact, frontier, simulate
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.policies.protocols import Candidates, EpisodeState, Weighing

#: |z| beyond this happens once in a million comparisons of a right program.
Z = 4.9


class Cautious:
    """Nearer to the target as the weight grows; a control variate of its own."""

    def __init__(self, case):
        self.case = case

    def weigh(self, offered, obs, t, state):
        share = (state.weight / (1.0 + state.weight))[:, None]
        mu = share * offered.probs + (1.0 - share) * self.case.behavior[t, obs]
        return Weighing(mu, self.case.control[t, obs])


@pytest.mark.parametrize("seed", range(4))
def test_variance_and_cost_by_every_path(seed):
    case = random_case(seed, states=3, actions=2, horizon=4, gamma=0.9, noisy=seed % 2 == 1)
    behavior = Cautious(case)

    def probs(t, s, weight):
        offered = Candidates(np.arange(2)[None], case.target[t, s][None])
        state = EpisodeState.of_weights(np.array([weight]))
        return behavior.weigh(offered, np.array([s]), t, state).probs[0]

    _, variance, cost, _ = enumerate_design(case, case.control, probs)
    found = exact.tabulate(case.mdp, case.target, behavior)
    assert found.predicted.variance == pytest.approx(variance, rel=2e-3)
    assert found.predicted.cost == pytest.approx(cost, rel=1e-3)
    np.testing.assert_array_equal(found.control, case.control)
    own = exact.assess(case.mdp, case.target, case.target)
    assert found.predicted.relative_cost == found.predicted.cost / own.cost


def test_a_design_of_the_frontier_again():
    case = random_case(3, states=3, actions=3, horizon=4, zero_probabilities=False)
    design = exact.frontier(case.mdp, case.target, cap=8.0, points=80).at(cost=0.8)
    again = exact.tabulate(case.mdp, case.target, design, points=200, weights=(1e-4, 20.0))
    assert again.predicted.variance == pytest.approx(design.predicted.variance, rel=5e-3)
    assert again.predicted.cost == pytest.approx(design.predicted.cost, rel=5e-3)


def test_a_learned_behavior_that_knows_its_weight():
    """Three comparisons at one in a million each, of the table with its simulation."""
    mdp, target = Gridworld(5).mdp(), target_policies(1, 5)[0]
    learned = frontier(gridworld_logs(mdp, 500), target, horizon=5).at(cost=0.85)
    assert learned.weighted
    found = exact.tabulate(mdp, target, learned)
    run = simulate.summaries(mdp, target, found, episodes=100_000, control_variate=found.control)
    own = exact.assess(mdp, target, target)
    for x, want, slack in (
        (run.estimate, own.value, 0.0),
        ((run.estimate - own.value) ** 2, found.predicted.variance, 0.02),
        (run.cost, found.predicted.cost, 0.01),
    ):
        assert abs(x.mean() - want) < Z * x.std() / np.sqrt(len(x)) + slack * abs(want)
    assert found.predicted.relative_variance < 0.6
    assert learned.counts.asked == 0
    with pytest.raises(InputError, match=r"^behavior: it depends on the weight of the episode"):
        exact.assess(mdp, target, learned)
    with pytest.raises(InputError, match=r"^behavior: designed for horizon 5, expected at least 9"):
        exact.tabulate(
            exact.TabularMDP(mdp.initial, mdp.transition, mdp.reward, mdp.cost, 9), target, learned
        )


def test_bad_grids():
    case = random_case(0, states=2, actions=2, horizon=2)
    for weights in ((2.0, 3.0), (0.1, 0.9), (0.0, 2.0), (np.nan, 2.0)):
        with pytest.raises(InputError, match=r"^weights: got .*expected smallest < 1 < largest"):
            exact.tabulate(case.mdp, case.target, Cautious(case), weights=weights)
    with pytest.raises(InputError, match=r"^points: got 2, expected a whole number of weights"):
        exact.tabulate(case.mdp, case.target, Cautious(case), points=2)


def test_one_price_without_weights():
    """The design behind budget="episode": cheaper as the price rises; price 0 is dopt."""
    mdp, target = Gridworld(5).mdp(), target_policies(1, 5)[0]
    own = exact.assess(mdp, target, target)
    unit = own.variance / own.cost
    found = [
        exact.assess(mdp, target, exact.design_at_price(mdp, target, x * unit))
        for x in (0.0, 0.1, 0.3, 1.0)
    ]
    assert all(a.cost > b.cost for a, b in itertools.pairwise(found))
    assert all(a.variance < b.variance for a, b in itertools.pairwise(found))
    dopt = exact.assess(mdp, target, exact.design(mdp, target, "dopt"))
    assert found[0].variance == pytest.approx(dopt.variance, rel=1e-9)
    with pytest.raises(InputError, match=r"^price: got -1, expected a number >= 0"):
        exact.design_at_price(mdp, target, -1)
