"""Environments that scopeval was not tuned on: models, logs, and how designs are judged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest

from experiments import unseen_envs
from experiments.worlds.finite import (
    FINITE,
    HIDDEN,
    LOGS,
    blackjack,
    finite_world,
)
from experiments.worlds.vectors import VECTOR_LOGS
from scopeval import Networks, design, exact
from scopeval.behavior.designer import designs
from scopeval.errors import InputError
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

# -- the worlds ----------------------------------------------------------------------------------


def test_blackjack_is_gymnasiums():
    """10,000 uniformly random games; each check fails on right code with probability 1e-6."""
    env = gymnasium.make("Blackjack-v1")
    rng = np.random.default_rng(0)
    mdp = blackjack(25)  # no hand takes more cards
    uniform = np.full((mdp.states, 2), 0.5)
    games = 10_000
    returns, busts, starts = np.zeros(games), np.zeros(games), np.zeros(mdp.states)
    for game in range(games):
        (total, dealer, ace), _ = env.reset(seed=game)
        starts[((total - 4) * 10 + dealer - 1) * 2 + int(ace)] += 1
        over = False
        while not over:
            hit = int(rng.integers(2))
            (total, dealer, ace), reward, over, _, _ = env.step(hit)
            returns[game] += float(reward)
            busts[game] += total > 21
    found = exact.assess(mdp, uniform, uniform)
    for mean, true, variance in (
        (returns.mean(), found.value, found.variance),
        (busts.mean(), found.cost, found.cost * (1 - found.cost)),
    ):
        assert abs(mean - true) < 4.9 * np.sqrt(variance / games)
    assert (starts[mdp.initial == 0] == 0).all()
    expected = games * mdp.initial[mdp.initial > 0]
    chi = float(((starts[mdp.initial > 0] - expected) ** 2 / expected).sum())
    degrees = len(expected) - 1
    assert abs(chi - degrees) < 5 * np.sqrt(2 * degrees)


def test_blackjack_known_values():
    """Sticking on 20 against a six: the dealer's final sums by hand-checked tables."""
    mdp = blackjack(1)
    stick = np.tile([1.0, 0.0], (mdp.states, 1))
    value = exact.values(mdp, stick).v[0]
    assert value[((20 - 4) * 10 + 6 - 1) * 2] == pytest.approx(0.704, abs=2e-3)
    assert value[((20 - 4) * 10 + 10 - 1) * 2] == pytest.approx(0.435, abs=2e-3)


@pytest.mark.parametrize("name", FINITE)
def test_targets_cost_something_and_are_functions_of_the_seed(name):
    world = finite_world(name, 3)
    for k in range(2):
        pi = world.target(k)
        assert (pi.table(1) > 0).all()
        alone = exact.assess(world.mdp, pi, pi)
        assert alone.cost > 1e-3
        assert alone.variance > 0
        np.testing.assert_array_equal(pi.table(1), finite_world(name, 3).target(k).table(1))
    assert not np.array_equal(pi.table(1), finite_world(name, 4).target(1).table(1))
    assert not np.array_equal(pi.table(1), world.target(0).table(1))


def test_loggers_get_better():
    for name in FINITE:
        world = finite_world(name)
        worth = [exact.assess(world.mdp, one, one).value for one in world.loggers()]
        assert worth[-1] == max(worth)
        assert worth[0] == min(worth)


@pytest.mark.parametrize("kind", LOGS)
def test_logs_follow_the_model(kind):
    world = finite_world("FrozenLake")
    mdp = world.mdp
    logs = world.logs(kind, 60, 1)
    assert logs == world.logs(kind, 60, 1)
    assert logs != world.logs(kind, 60, 0)
    chance = mdp.transition.toarray()[np.asarray(logs.obs) * mdp.actions + logs.action]
    assert (chance[np.arange(len(logs)), logs.next_obs] > 0).all()
    goal = mdp.states - 1
    np.testing.assert_allclose(logs.reward, np.asarray(logs.next_obs) == goal, atol=1e-12)
    np.testing.assert_allclose(
        logs.cost, logs.terminated & (np.asarray(logs.next_obs) != goal), atol=1e-12
    )
    assert (logs.t == 0).sum() == 60


def test_hidden_states_are_a_tenth_of_the_steps():
    world = finite_world("CliffWalking")
    whole, part = (world.logs(kind, 500, 3) for kind in ("mixed", "hidden states"))
    hidden = set(np.unique(whole.obs)) - set(np.unique(part.obs))
    assert hidden
    rows = np.isin(whole.obs, list(hidden))
    assert part == whole.select(~rows)
    target = world.target(3)
    own = world._episodes(target, 2000, np.zeros(world.mdp.states, bool), (9, 9))
    share = float(np.isin(own.obs, list(hidden)).mean())
    assert HIDDEN <= share < HIDDEN + 0.3  # the last state drawn may be a frequent one


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="environment: got 'Chess'"):
        finite_world("Chess")
    with pytest.raises(InputError, match="logs: got 'none'"):
        finite_world("Blackjack").logs("none", 5, 0)
    with pytest.raises(InputError, match="environments: got 'Chess'"):
        unseen_envs.Args(environments=("Chess",)).check()


# -- the experiment ------------------------------------------------------------------------------


def test_rows_are_exact_assessments():
    args = unseen_envs.Args(
        environments=("CliffWalking",), targets=2, episodes=(300,), missing_episodes=100, seed=1
    )
    rows = unseen_envs.job(args, "CliffWalking", 1)["rows"]
    assert len(rows) == len(unseen_envs.logs_of(args, "CliffWalking")) * len(args.methods)
    world = finite_world("CliffWalking", 1)
    target = world.target(1)
    logs = world.logs("mixed", 300, 1)
    mu = design(logs, target, horizon=world.mdp.horizon, method="scope-dr", seed=1)
    alone, found = (exact.assess(world.mdp, target, one) for one in (target, mu))
    [row] = [row for row in rows if (row["logs"], row["method"]) == ("mixed", "scope-dr")]
    assert row["variance"] == found.variance / alone.variance
    assert row["cost"] == found.cost / alone.cost
    assert row["predicted_variance"] == mu.predicted.variance
    assert row["checked_cost"] == mu.predicted.checked_cost
    assert row["used"] == mu.recipe.method.name


ROW = {
    "environment": "CliffWalking", "target": 0, "logs": "mixed", "episodes": 9, "method": "scope",
    "used": "scope", "predicted_variance": 1.0, "predicted_cost": 1.0, "checked_variance": 1.0,
    "checked_cost": 1.0, "variance": 1.0, "cost": 1.0, "variance_error": 0.0, "cost_error": 0.0,
}  # fmt: skip


def test_groups_count_what_is_outside_the_limits():
    changes = [
        {}, {"cost": 1.0051}, {"variance": 1.051}, {"predicted_variance": 0.69},
        {"predicted_variance": 1.41}, {"used": "on-policy"}, {"target": 1},
    ]  # fmt: skip
    args = unseen_envs.Args(environments=("CliffWalking",))
    made = unseen_envs.summary(args, [{"rows": [{**ROW, **change} for change in changes]}])
    chosen, reported = made["summary"][:2]
    assert (chosen["half"], reported["half"]) == unseen_envs.HALVES
    assert (chosen["designs"], chosen["fall_back"]) == (6, 1)
    assert (chosen["too_expensive"], chosen["too_variable"]) == (1, 1)
    assert chosen["well_predicted"] == 4 / 6
    assert chosen["well_predicted_departures"] == 3 / 5
    assert (chosen["worst_cost"], chosen["worst_variance"]) == (1.0051, 1.051)
    assert len(made["exceptions"]) == 4
    assert [group["environment"] for group in made["summary"]] == ["CliffWalking"] * 2 + ["all"] * 2
    counts, exceptions, _ = unseen_envs.table({"config": args.config, **made})
    assert (len(counts.rows), len(exceptions.rows)) == (4, 4)


def test_two_standard_errors_are_allowed_for_what_is_measured():
    row = {**ROW, "variance": 1.1, "cost": 1.01}
    near = {**row, "variance_error": 0.026, "cost_error": 0.0026}
    far = {**row, "variance_error": 0.024, "cost_error": 0.0024}
    for one, broken in ((row, True), (near, False), (far, True)):
        assert unseen_envs.too_variable(one) == unseen_envs.too_expensive(one) == broken


SMALL = Networks(
    training=Training(hidden=16, steps=250, batch=64),
    paths=80,
    study=Study(paths=80, hidden=8, steps=40, batch=64),
    first_look=False,
)


@pytest.mark.heavy
def test_designs_for_vectors_are_measured(monkeypatch):
    """What falls back is 1 exactly, the rest has standard errors; with small networks."""
    args = unseen_envs.Args(
        environments=("CartPole",), vector_episodes=(40,), vector_missing_episodes=30, measured=300
    )
    assert [kind for kind, _ in unseen_envs.logs_of(args, "CartPole")] == list(VECTOR_LOGS)
    monkeypatch.setattr(unseen_envs, "designs", partial(designs, learn=SMALL))
    some = replace(args, methods=("scope-dr",))
    for row in unseen_envs.job(some, "CartPole", 0)["rows"]:
        if row["used"] == "on-policy":
            assert (row["variance"], row["cost"], row["cost_error"]) == (1.0, 1.0, 0.0)
        else:
            assert 0.0 < row["cost_error"] < 0.2
            assert 0.0 < row["variance_error"] < 0.5
            assert abs(row["cost"] - 1.0) < 0.5
