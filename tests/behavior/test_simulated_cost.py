"""The cost of a design for vectors, from episodes of the behavior policy in the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Check, Networks, Question, Transitions, design
from scopeval.behavior import decision, simulated_cost
from scopeval.behavior.candidates import design_on_all
from scopeval.behavior.evidence import evidence_of
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.thresholds import SLACK
from scopeval.models.model_critic import ModelCritic, Study
from scopeval.models.training import Training

T = 6
SMALL = Networks(
    training=Training(hidden=24, steps=900, batch=128),
    paths=300,
    study=Study(paths=300, hidden=12, steps=200, batch=128),
)


def moved(x, k):
    """The next place, reward and cost of action k: to the right, what is to gain varies more."""
    return x + 0.4 * (2 * k - 1), (1.0 + k) * x + k, 0.2 + 0.5 * k + 0.3 * np.maximum(x, 0.0)


def fair(obs, t):
    return np.full((len(obs), 2), 0.5)


@pytest.fixture(scope="module")
def evidence():
    rng = np.random.default_rng(0)
    t = np.tile(np.arange(T), 700)
    x, k = np.empty(len(t)), rng.integers(2, size=len(t))
    here = 0.0
    for i, step in enumerate(t):
        here = rng.normal(0.0, 0.5) if step == 0 else here
        x[i] = here
        here = moved(here, k[i])[0]
    after, reward, cost = moved(x, k)
    log = Transitions(t, x[:, None], k, reward, cost, after[:, None])
    return evidence_of(log, Question(fair, T), learn=SMALL)


@pytest.fixture(scope="module")
def designed(evidence):
    return design_on_all(evidence, Recipe(METHODS["scope-dr"], T, floor=0.1))


def true_cost(designed, own, episodes=20_000):
    """Mean cost of episodes in the world itself, and its standard error."""
    rng = np.random.default_rng(8)
    x, total = rng.normal(0.0, 0.5, episodes), np.zeros(episodes)
    for t, critic in enumerate(designed.swept.critics):
        mu = fair(x[:, None], t)
        if not own:
            mu = weigh_rows(designed.recipe, mu, critic.at(x[:, None]))[0]
        k = (rng.random(episodes) < mu[:, 1]).astype(np.int64)
        x, _, cost = moved(x, k)
        total += cost
    return total.mean(), total.std() / np.sqrt(episodes)


def test_the_simulated_cost_is_that_of_the_world(evidence, designed):
    """Up to four standard errors; chance of a false alarm below 1e-4."""
    found = simulated_cost.simulated_cost(evidence, designed, 600)
    (mine, error), (own, own_error) = (true_cost(designed, own) for own in (False, True))
    truth = mine / own
    spread = np.hypot(found.error, np.hypot(error, truth * own_error) / own)
    assert abs(found.cost - truth) < 4.0 * spread + 2e-3  # the model is not exact
    assert 0.0 < found.error < 0.02
    assert abs(found.cost - 1.0) > 10.0 * found.error  # there is something to see


def test_any_critics_will_do_but_good_ones_take_chance_away(evidence, designed, monkeypatch):
    """Estimates that are wrong change the spread, not the mean (four standard errors)."""
    good = simulated_cost.simulated_cost(evidence, designed, 600)
    given = ModelCritic.given

    def wrong(self, obs, step, returns):
        e = given(self, obs, step, returns)
        return replace(e, cost_target=np.cos(9.0 * e.q), cost_behavior=e.cost_behavior)

    monkeypatch.setattr(ModelCritic, "given", wrong)
    bad = simulated_cost.simulated_cost(evidence, designed, 600)
    assert bad.error > 2.0 * good.error
    assert abs(bad.cost - good.cost) < 4.0 * np.hypot(bad.error, good.error)


@pytest.mark.parametrize(("cost", "asked"), [(0.9, [300]), (0.999, [300, 1200])])
def test_more_episodes_where_the_cost_is_near_its_limit(
    evidence, designed, monkeypatch, cost, asked
):
    seen = []

    def simulate(evidence, one, paths):
        seen.append(paths)
        return simulated_cost.SimulatedCost(cost, 0.01)

    monkeypatch.setattr(simulated_cost, "simulated_cost", simulate)
    found = simulated_cost.with_simulated_cost(evidence, designed)
    assert seen == asked
    assert (found.cost, found.doubt) == (cost, 0.01)


def pretend(monkeypatch, cost_of):
    """Let simulated episodes cost what a function of the recipe says, plus or minus 0.01."""

    def with_cost(evidence, one):
        if one.recipe.floor >= 1.0 or not one.recipe.method.constrained:
            return one
        return replace(one, cost=cost_of(one.recipe), doubt=0.01)

    monkeypatch.setattr(decision, "with_simulated_cost", with_cost)


def test_more_is_left_unspent_first(evidence, designed, monkeypatch):
    """By what was too much, with its standard error; a design within its budget is left alone."""
    pretend(monkeypatch, lambda recipe: 1.03 - recipe.margin)
    recipe = replace(designed.recipe, margin=0.01)
    found = decision._within_budget(evidence, recipe)
    assert found.recipe.floor == recipe.floor
    assert found.recipe.margin == pytest.approx(0.01 + 0.03)
    assert found.cost == pytest.approx(0.99)
    pretend(monkeypatch, lambda recipe: 0.98)
    assert decision._within_budget(evidence, recipe).recipe.margin == 0.01
    pretend(monkeypatch, lambda recipe: 1.2)  # it is not run then: see test_decision
    assert not decision._within_budget(evidence, recipe).keeps_promise


def test_designs_say_what_was_simulated(evidence):
    log = evidence.log.rows
    logged = Transitions(log.t, log.obs, log.action, log.reward, log.cost, log.next_obs)
    how = {"horizon": T, "method": "scope-dr", "check": Check(least_gain=0.0)}
    simulated, plain = (
        design(logged, fair, learn=replace(SMALL, simulates_costs=flag), **how)
        for flag in (True, False)
    )
    if simulated.recipe.floor < 1.0:
        assert simulated.predicted.cost != plain.predicted.cost
    assert simulated.predicted.cost <= 1.0 + SLACK
