"""Guard and certificate with q^c where costs have a heavy tail, or a disaster is rare.

Both promises are judged exactly at their limit, or just beyond it, with the exact q^c: estimates
with a control variate are precise until a large cost comes.
"""

from __future__ import annotations

import numpy as np

from scopeval import Guard, Promise, TabularPolicy, exact
from scopeval.exact import TabularMDP
from scopeval.policies.protocols import Candidates, EpisodeState
from scopeval.safety.certificate import Ledger
from scopeval.safety.costs import EpisodeCosts
from scopeval.simulate import Summaries, summaries

RUNS = 500
LEVELS, GOES_ON = 14, (0.35, 0.02)


def doubling() -> tuple[TabularMDP, TabularPolicy]:
    """The cost doubles from level to level, from .1 to 1,638; action 0 goes on more often.

    An episode at level k goes on with probability .35 or .02, so that costs have a tail of index
    1.5 where the target takes action 0.
    """
    S = LEVELS + 2
    transition, cost, reward = np.zeros((S, 2, S)), np.zeros((S, 2)), np.zeros((S, 2))
    for level in range(LEVELS + 1):
        for a, p in enumerate(GOES_ON):
            transition[level, a, level + 1] += p
            transition[level, a, S - 1] += 1 - p
        cost[level], reward[level] = 0.1 * 2**level, (1.0, 1.5)
    transition[S - 1, :, S - 1] = 1.0
    noise = np.full((S, 2), 0.25)
    noise[S - 1] = 0.0
    mdp = TabularMDP(np.eye(S)[0], transition, reward, cost, LEVELS + 1, reward_variance=noise)
    return mdp, TabularPolicy(np.full((S, 2), 0.5))


def true_cost(mdp: TabularMDP, mu: exact.WeightedDesign) -> float:
    """Of an episode, over all sequences of actions with their weights."""
    weight, chance, total = np.ones(1), np.ones(1), 0.0
    for level in range(LEVELS + 1):
        total += chance.sum() * mdp.cost[level, 0]
        n = len(weight)
        offered = Candidates(np.tile([0, 1], (n, 1)), np.full((n, 2), 0.5))
        probs = mu.weigh(offered, np.full(n, level), level, EpisodeState.of_weights(weight)).probs
        chance = np.concatenate([chance * probs[:, a] * p for a, p in enumerate(GOES_ON)])
        weight = np.concatenate([weight * 0.5 / probs[:, a] for a in (0, 1)])
    return float(total)


def costs(done: Summaries, rows: slice, *, control: bool) -> EpisodeCosts:
    return EpisodeCosts(
        done.cost[rows],
        done.weighted_cost[rows],
        done.weight[rows],
        done.exposure[rows],
        own_controlled=done.own_controlled[rows] if control else None,
        target_controlled=done.target_controlled[rows] if control else None,
    )


def test_heavy_tails_give_few_false_alarms_with_a_control_variate() -> None:
    """A frontier at .7 of the cost, the promise exactly at it, looks every 25 of 1,000 episodes.

    Alarms in .010 of 500 runs. They were .088 with the worst of the estimates in place of the worst
    of the costs (.042 without a control variate). If .03 were the truth, more than .06 would have a
    probability of 2e-4.
    """
    mdp, pi = doubling()
    mu = exact.frontier(mdp, pi).at(cost=0.7)
    epsilon = true_cost(mdp, mu) / exact.assess(mdp, pi, pi).cost - 1.0
    n, q = 1000, exact.cost_values(mdp, pi).q
    done = summaries(mdp, pi, mu, cost_control=q, episodes=n * RUNS, seed=3)
    alarms = 0
    for run in range(RUNS):
        guard = Guard(Promise(1.0 + epsilon))
        for first in range(run * n, run * n + n, 25):
            if guard.add(costs(done, slice(first, first + 25), control=True)).tripped:
                alarms += 1
                break
    assert alarms <= 0.06 * RUNS


def test_an_unseen_disaster_is_not_safe_because_a_control_variate_is_precise() -> None:
    """A disaster of 200, rare; the promise is .2 % below the true cost; 300 episodes.

    "Safe" in none of 500 runs, as without a control variate; it was in .17 of them while only the
    estimates were asked what three more episodes could cost. If .005 were the truth, more than 10
    of 500 would have a probability of 1e-4.
    """
    transition = np.zeros((2, 2, 2))
    transition[0, :, 1] = 0.0004, 0.0015
    transition[0, :, 0] = 1.0 - transition[0, :, 1]
    transition[1, :, 0] = 1.0
    disaster = np.zeros((2, 2, 2))
    disaster[0, :, 1] = 200.0
    usual, reward = np.tile([0.4, 0.1], (2, 1)), np.tile([1.0, 0.2], (2, 1))
    mdp = TabularMDP([1.0, 0.0], transition, reward, usual, 5, next_cost=disaster)
    pi, mu = (TabularPolicy(np.tile([p, 1.0 - p], (2, 1))) for p in (0.5, 0.48))
    ratio = exact.assess(mdp, pi, mu).cost / exact.assess(mdp, pi, pi).cost
    n, q = 300, exact.cost_values(mdp, pi).q
    done = summaries(mdp, pi, mu, cost_control=q, episodes=n * RUNS, seed=7)
    safe = {False: 0, True: 0}
    for control in safe:
        for run in range(RUNS):
            ledger = Ledger(Promise(0.998 * ratio))
            ledger.add(costs(done, slice(run * n, run * n + n), control=control))
            safe[control] += ledger.certificate().verdict == "safe"
    assert max(safe.values()) <= 10
