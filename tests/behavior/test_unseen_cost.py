"""Doubt about the cost from states that the logs never leave."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from experiments.worlds.finite import finite_world
from scopeval import Question, TabularPolicy, Transitions, design, exact
from scopeval.behavior import candidates
from scopeval.behavior.candidates import design_on_all
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.support import unseen_cost

S, A, T = 5, 2, 4


def small_log(rng, rows=400, wild=1):
    """Random rows, each an episode's step; none starts from the last state.

    Rewards of action `wild` vary most. Action 1 often leads to the last state.
    """
    state = rng.integers(S - 1, size=rows)
    state[:40] = 0
    action = rng.integers(A, size=rows)
    away = (action == 1) & (rng.random(rows) < 0.5)
    return Transitions(
        t=np.where(np.arange(rows) < 40, 0, 1),
        obs=state,
        action=action,
        reward=rng.normal(size=rows) * (1.0 + 5.0 * (action == wild)),
        cost=rng.uniform(0.1, 1.0, rows),
        next_obs=np.where(away, S - 1, rng.integers(S, size=rows)),
        terminated=np.zeros(rows, bool),
    )


def by_trajectories(log, pi, mu, v_cost):
    """The sum over all trajectories through the logged rows, up to the state never left."""
    chance = np.zeros((S, A, S))
    np.add.at(chance, (log.obs, log.action, log.next_obs), 1.0)
    total = chance.sum(axis=2, keepdims=True)
    chance = np.divide(chance, total, out=np.zeros_like(chance), where=total > 0)
    arrivals = np.zeros((2, T + 1))
    for k, policy in enumerate((pi, mu)):
        for length in range(1, T):
            for states in product(range(S - 1), repeat=length):
                for actions in product(range(A), repeat=length):
                    p = float(states[0] == 0)
                    for t, (s, a) in enumerate(zip(states, actions, strict=True)):
                        after = states[t + 1] if t + 1 < length else S - 1
                        p *= policy[t, s, a] * chance[s, a, after]
                    arrivals[k, length] += p
    return float(sum(abs(arrivals[1, t] - arrivals[0, t]) * v_cost[t] for t in range(T)))


@pytest.mark.parametrize("wild", [0, 1])
@pytest.mark.parametrize("seed", range(3))
def test_doubt_is_what_depends_on_the_guess(seed, wild):
    """Also where the behavior policy comes to the last state less often than the target."""
    rng = np.random.default_rng(seed)
    log = small_log(rng, wild=wild)
    pi = TabularPolicy(rng.dirichlet(np.ones(A), size=S))
    evidence = evidence_of(log, Question(pi, T))
    recipe = Recipe(METHODS["odi"], T)  # departs without regard to cost
    found = design_on_all(evidence, recipe)
    doubt = unseen_cost(evidence.whole, recipe, found.swept.critics)
    points = evidence.whole.at(0)
    mu, v_cost, guess = [], [], []
    for t in range(T):
        e = points.estimates(found.swept.critics[t])
        own = pi.probs(points.obs, t)
        mu.append(weigh_rows(recipe, own, e)[0])
        v_cost.append((own * e.cost_target).sum(axis=1))
        guess.append(v_cost[-1][S - 1])
    expected = by_trajectories(log, pi.table(T), np.stack(mu), guess) / v_cost[0][0]
    assert expected > 1e-3
    assert doubt == pytest.approx(expected, rel=1e-9)


def test_no_doubt_where_every_state_was_left():
    rng = np.random.default_rng(3)
    log = small_log(rng)
    kept = log.select(np.asarray(log.next_obs) < S - 1)
    pi = TabularPolicy(rng.dirichlet(np.ones(A), size=S))
    evidence = evidence_of(kept, Question(pi, T))
    found = design_on_all(evidence, Recipe(METHODS["scope"], T))
    assert found.doubt == 0.0


def test_a_design_whose_cost_depends_on_a_guess_is_not_run(monkeypatch):
    """Taxi without the rows of states where a tenth of the target's steps are.

    The target policy itself runs, at its own cost, with a control variate. Without the doubt
    another policy would run.
    """
    world = finite_world("Taxi")
    target, horizon = world.target(0), world.mdp.horizon
    logs = world.logs("hidden states", 1000, 0)
    hidden = design(logs, target, horizon=horizon, method="scope-dr")
    assert hidden.recipe.floor == 1.0
    assert "at the cost of your own policy" in hidden.summary()
    alone = exact.assess(world.mdp, target, target)
    assert exact.assess(world.mdp, target, hidden).cost == pytest.approx(alone.cost)
    whole = design(world.logs("mixed", 1000, 0), target, horizon=horizon, method="scope-dr")
    assert whole.recipe.floor < 1.0
    monkeypatch.setattr(candidates, "unseen_cost", lambda *asked: 0.0)
    believed = design(logs, target, horizon=horizon, method="scope-dr")
    assert believed.recipe.floor < 1.0


def test_a_critic_whose_halves_disagree_is_not_believed():
    """Random logs of the frozen lake: few episodes ever reach the goal."""
    world = finite_world("FrozenLake")
    target = world.target(2)
    learned = design(
        world.logs("random", 1000, 2), target, horizon=world.mdp.horizon, method="scope"
    )
    assert learned.report.holdout["reward critic"] > 2.0
    assert learned.predicted.variance == pytest.approx(learned.predicted.checked_variance)
    alone = exact.assess(world.mdp, target, target)
    true = exact.assess(world.mdp, target, learned).variance / alone.variance
    assert learned.predicted.variance == pytest.approx(true, rel=0.3)
