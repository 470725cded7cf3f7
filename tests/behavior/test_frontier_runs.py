"""What was assessed is what runs: the cost and variance of a point, in the model that the logs are.

The logs hold every pair as often as the model says, so that their table is that model.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from experiments.user_worlds import world_of
from random_mdps import random_case
from scopeval import Check, Table, TabularPolicy, Transitions, exact, frontier
from scopeval.envs.gridworld import logs_of
from scopeval.exact import TabularMDP

ROWS = 4000


def model_and_logs(mdp, seed=0):
    """Logs with `ROWS` or so of every pair, and the MDP in which chances are just their shares."""
    P, size = mdp.transition, mdp.states * mdp.actions
    entry_pair = np.repeat(np.arange(size), np.diff(P.indptr))
    count = np.maximum(np.round(ROWS * P.data), 1).astype(int)
    share = count / np.bincount(entry_pair, count, size)[entry_pair]
    model = TabularMDP(
        mdp.initial, sparse.csr_array((share, P.indices, P.indptr), shape=P.shape),
        mdp.reward, mdp.cost, mdp.horizon, gamma=mdp.gamma,
    )  # fmt: skip
    entry = np.repeat(np.arange(len(P.data)), count)
    pair = entry_pair[entry]
    starts = mdp.initial[pair // mdp.actions] > 0
    rows = Transitions(
        t=np.where(starts, 0, 1 + np.arange(len(pair)) % (mdp.horizon - 1)),
        obs=pair // mdp.actions,
        action=pair % mdp.actions,
        reward=mdp.reward.ravel()[pair],
        cost=mdp.cost.ravel()[pair],
        next_obs=P.indices[entry],
        terminated=np.zeros(len(pair), bool),
    )
    return model, rows.select(np.random.default_rng(seed).permutation(len(rows)))


def waiting_line(horizon):
    """Customers wait, and a faster server takes more power: many cheap steps."""

    def outcomes(waiting, rate):
        for come, p in ((0, 0.5), (1, 0.35), (2, 0.15)):
            for served, q in ((1, rate), (0, 1.0 - rate)):
                left = min(max(waiting - served, 0) + come, 6)
                yield p * q, left, 0.0, 0.0

    made = world_of(range(7), (0.3, 0.6, 0.95), outcomes, 2, horizon)
    reward = np.repeat(-np.arange(7.0)[:, None], 3, axis=1)
    cost = np.repeat([[0.14, 0.41, 0.95]], 7, axis=0)
    return TabularMDP(made.initial, made.transition, reward, cost, horizon)


def random_problem(seed):
    case = random_case(seed, states=4, actions=3, horizon=8, time_varying=False)
    mdp = case.mdp
    first = np.eye(mdp.states)[0]  # a log's starts are of one state here
    return TabularMDP(first, mdp.transition, mdp.reward, mdp.cost + 0.1, 8), case.target


def problems():
    yield waiting_line(60), np.array([[0.05, 0.15, 0.8]] * 7)
    for seed in range(3):
        yield random_problem(seed)


@pytest.mark.parametrize("number", range(4))
def test_the_policy_that_runs_costs_and_varies_as_assessed(number):
    """At prices that no grid was made for. Solved from another first guess at run time than in the
    sweep, as once, a long line costs 20 % more than assessed; without the longer grid 1 %; from pi
    alone its mu jumps between local minima, and it costs .5 % more.
    """
    mdp, target = list(problems())[number]
    model, log = model_and_logs(mdp)
    own = exact.assess(model, target, target)
    curve = frontier(log, target, horizon=mdp.horizon, learn=Table(), check=Check(floor=0.01))
    unit = own.variance / own.cost
    for designs in curve._designs:
        costs = []
        for price in unit * np.array([0.37, 3.1, 24.0]):
            found = designs.at_price(float(price))
            behavior = curve._designed(designs, found)
            runs = exact.tabulate(model, target, behavior, points=300).predicted
            costs.append(runs.relative_cost)
            assert found.point.cost == pytest.approx(runs.relative_cost, rel=2e-3)
            # tables of 200 and of 600 weights differ by .2 %
            assert found.point.variance == pytest.approx(runs.relative_variance, rel=3e-3)
        assert costs[0] > costs[1] > costs[2]
        assert costs[2] < 0.8


@pytest.mark.parametrize("number", range(4))
def test_designs_in_a_known_mdp_cost_and_vary_as_predicted(number):
    """The same recursion with the known MDP as its model; its tables are mixed between prices.

    On a grid that is only twice as fine the cost of a long line is .4 % off.
    """
    mdp, target = list(problems())[number]
    curve = exact.frontier(mdp, target)
    unit = curve.own.variance / curve.own.cost
    for price in unit * np.array([0.37, 3.1, 24.0]):
        found = curve.at_price(float(price))
        runs = exact.tabulate(mdp, target, found, points=300).predicted
        assert found.predicted.cost == pytest.approx(runs.cost, rel=2e-3)
        assert found.predicted.variance == pytest.approx(runs.variance, rel=1e-2)


def accidents():
    """Faster earns more; an accident is rare and costs 200 times a step, and rarer when slow."""

    def outcomes(wear, speed):
        if wear == "accident":
            yield 1.0, 0, -2.0, 20.0
            return
        harm, wears = (0.0005, 0.002, 0.006)[speed] * (1 + wear), (0.1, 0.4, 0.7)[speed]
        reward = (0.2, 0.6, 1.0)[speed] + 0.1 * wear
        yield harm, "accident", reward, 0.1
        yield (1.0 - harm) * wears, min(wear + 1, 4), reward, 0.1
        yield (1.0 - harm) * (1.0 - wears), max(wear - 1, 0), reward, 0.1

    return world_of((*range(5), "accident"), range(3), outcomes, 0, 12)


def test_promised_costs_know_that_accidents_are_rare():
    """About 40 accidents in each of ten logs. Nearly every point looks cheaper than it is.

    A promise may be exceeded in one of 44 logs: three of ten have a chance of 1e-3. Without what
    the check adds and its error half of them are.
    """
    mdp, target = accidents(), np.tile([0.3, 0.4, 0.3], (6, 1))
    logger = TabularPolicy(np.full((6, 3), 1 / 3))
    exceeded, optimistic, offered = 0, 0, 0
    for seed in range(10):
        curve = frontier(logs_of(mdp, [logger], 400, seed=seed), target, horizon=12, points=24)
        asked = 0.5 + 0.5 * min((point.safe_cost for point in curve.points), default=1.0)
        if asked > 0.98:  # the target policy's own cost, or nearly
            continue
        offered += 1
        policy = curve.at(cost=asked)
        true = exact.tabulate(mdp, target, policy, points=60).predicted.relative_cost
        exceeded += true > 1.005 * asked
        optimistic += true > 1.005 * policy.predicted.cost
    assert offered >= 6
    assert exceeded <= 2
    assert optimistic >= offered / 2
