"""Environments that scopeval was not tuned on: models, logs, and how designs are judged."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import gymnasium
import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval import exact
from scopeval.behavior.designer import design
from scopeval.cli.app import app
from scopeval.errors import InputError
from scopeval.paper.experiments import foreign
from scopeval.paper.experiments.foreign_designs import HALVES, ForeignDesign
from scopeval.paper.experiments.foreign_vectors import VECTOR_LOGS
from scopeval.paper.experiments.foreign_worlds import (
    FINITE,
    HIDDEN,
    LOGS,
    blackjack,
    finite_world,
)

SMALL = foreign.Config(
    ("CliffWalking", "Blackjack"), targets=2, episodes=(300, 32), missing_episodes=100, seed=1
)


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> foreign.ForeignResult:
    return foreign.run(SMALL, folder=tmp_path_factory.mktemp("shards"), backend="serial")


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
        foreign.Config(environments=("Chess",))


# -- the experiment ------------------------------------------------------------------------------


def test_rows_are_exact_assessments(result):
    assert len(result.rows) == 2 * 2 * len(SMALL.logs("Blackjack")) * len(SMALL.methods)
    world = finite_world("CliffWalking", SMALL.seed)
    target = world.target(1)
    logs = world.logs("mixed", 300, 1)
    horizon = world.mdp.horizon
    mu = design(logs, target, horizon=horizon, method="scope-dr", seed=SMALL.seed)
    alone, found = (exact.assess(world.mdp, target, one) for one in (target, mu))
    [row] = [
        row
        for row in result.rows
        if (row.environment, row.target, row.logs, row.episodes, row.method)
        == ("CliffWalking", 1, "mixed", 300, "scope-dr")
    ]
    assert row.variance == found.variance / alone.variance
    assert row.cost == found.cost / alone.cost
    assert row.predicted_variance == mu.predicted.variance
    assert row.checked_cost == mu.predicted.checked_cost
    assert row.used == mu.recipe.method
    assert row.warnings == len(mu.report.warnings)
    assert row.half == "reported on"


def test_groups_count_what_is_outside_the_limits(result):
    row = replace(
        result.rows[0], used="scope", variance=1.0, cost=1.0, predicted_variance=1.0, target=0
    )
    rows = (
        row,
        replace(row, cost=1.0051),
        replace(row, variance=1.051),
        replace(row, predicted_variance=0.69),
        replace(row, predicted_variance=1.41),
        replace(row, used="on-policy"),
        replace(row, target=1),
    )
    made = foreign.ForeignResult(SMALL, rows)
    chosen, reported = made.groups[:2]
    assert (chosen.half, reported.half) == HALVES
    counts = chosen.as_dict()
    assert (counts["designs"], counts["fall_back"]) == (6, 1)
    assert (counts["too_expensive"], counts["too_variable"]) == (1, 1)
    assert counts["well_predicted"] == 4 / 6
    assert counts["well_predicted_departures"] == 3 / 5
    assert (counts["worst_cost"], counts["worst_variance"]) == (1.0051, 1.051)
    assert made.exceptions == rows[1:5]
    assert [group.environment for group in made.groups] == ["CliffWalking"] * 2 + ["all"] * 2


def test_two_standard_errors_are_allowed_for_what_is_measured(result):
    row = replace(result.rows[0], variance=1.1, cost=1.01, predicted_variance=1.1)
    assert row.too_variable
    assert row.too_expensive
    near = replace(row, variance_error=0.026, cost_error=0.0026)
    assert not near.too_variable
    assert not near.too_expensive
    far = replace(row, variance_error=0.024, cost_error=0.0024)
    assert far.too_variable
    assert far.too_expensive


def test_designs_for_vectors_are_measured():
    """A small shard: what falls back is 1 exactly, the rest has standard errors."""
    config = foreign.Config(("CartPole",), vector_targets=1, vector_episodes=(40,), measured=300)
    shard = foreign.Shard("CartPole", 0, 0, (("mixed", 40),), config.methods, 300, "")
    rows = [ForeignDesign(**row) for row in foreign.judge_designs(shard)["rows"]]
    assert [row.method for row in rows] == list(config.methods)
    for row in rows:
        if row.falls_back:
            assert (row.variance, row.cost, row.cost_error) == (1.0, 1.0, 0.0)
        else:
            assert 0.0 < row.cost_error < 0.2
            assert 0.0 < row.variance_error < 0.5
            assert abs(row.cost - 1.0) < 0.5
    assert config.logs("CartPole")[0] == ("mixed", 40)
    assert [kind for kind, _ in config.logs("CartPole")][1:] == list(VECTOR_LOGS[1:])
    assert len(config.numbers("CartPole")) == 1


def test_reproduce_foreign_writes_what_it_prints(tmp_path):
    words = ("--environment", "Blackjack", "--targets", "2", "--backend", "serial")
    shown = CliRunner().invoke(app, ["reproduce", "foreign", *words, "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    content = json.loads((tmp_path / "foreign.json").read_text())
    assert content["command"] in lines
    assert max(len(x) for x in lines if x != content["command"] and str(tmp_path) not in x) <= 80
    assert sorted(os.listdir(tmp_path)) == ["designs.parquet", "foreign.json", "shards"]
    assert pq.read_table(tmp_path / "designs.parquet").num_rows == 2 * 6 * 2
    [total] = [
        x for x in content["summary"] if x["environment"] == "all" and x["half"] == "reported on"
    ]
    assert total["designs"] == 12
    assert f"{total['worst_cost']:.4f}" in shown.stdout
