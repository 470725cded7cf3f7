"""Verdicts, stages and frontiers, in small."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import adaptive, frontier, verdicts
from experiments.drawing import svg
from experiments.worlds.costly import WORLDS
from experiments.worlds.staged import problem
from scopeval import exact
from scopeval.errors import InputError


def content_of(module, args):
    rows = [{**job, **module.job(args, **job)} for job in module.jobs(args)]
    return {"config": args.config, "command": args.command, **module.summary(args, rows)}


# -- verdicts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(WORLDS))
def test_worlds_are_what_they_say(name):
    """The ratio and the mean weight to six standard errors of 400,000 episodes; the bound holds."""
    world = WORLDS[name]()
    costs = world.draw(np.random.default_rng(0), 400_000)
    assert world.bound.violation(costs) is None
    gap = costs.cost - world.ratio * costs.weighted_cost
    assert abs(gap.mean()) < 6 * gap.std() / np.sqrt(400_000)
    assert costs.weight is not None
    assert abs(costs.weight.mean() - 1) < 6 * costs.weight.std() / np.sqrt(400_000)


def test_the_old_rule_is_wrong_and_the_new_ones_are_not():
    """40 runs: the t interval says "safe" in .93 of them; 20 or fewer have probability 1e-14."""
    args = verdicts.Args(worlds=("rare disaster",), episodes=(100,), runs=40)
    content = content_of(verdicts, args)
    safe = {row["rule"]: row["safe"] for row in content["blocks"][0]["rows"]}
    assert safe["t interval"] > 0.5
    assert safe["as far as seen"] == safe["stated bound"] == 0
    table, words = verdicts.table(content)
    assert table.rows[0][:2] == ("rare disaster, 1.114", "100")
    assert "40 runs" in words
    with pytest.raises(InputError, match="worlds: got 'flat'"):
        verdicts.Args(worlds=("flat",)).check()


# -- stages --------------------------------------------------------------------------------------


def test_methods_without_logs_are_run_once_and_on_policy_is_one():
    args = adaptive.Args(worlds=("gridworld-4", "CartPole"), logs=("none", "30"), targets=1)
    jobs = [(job["world"], job["method"], job["logs"]) for job in adaptive.jobs(args)]
    assert ("gridworld-4", "ros", "none") in jobs
    assert ("CartPole", "bps", "none") not in jobs  # finite worlds only
    assert ("gridworld-4", "fixed", "none") not in jobs
    with pytest.raises(InputError, match="world: got 'moon'"):
        adaptive.Args(worlds=("moon",)).check()


def test_stages_and_a_fixed_design_are_judged_exactly():
    args = adaptive.Args(
        worlds=("gridworld-4",), logs=("100",), methods=("adaptive", "fixed"), targets=2, runs=1,
        episodes=60,
    )  # fmt: skip
    content = content_of(adaptive, args)
    stages, fixed = content["rows"]
    assert stages["covered"]["mean"] in (0.0, 0.5, 1.0)
    assert 0 < stages["square"]["mean"] < 2
    given = problem("gridworld-4", 0, "100", 0)
    assert fixed["square"]["values"][0] < 1.2
    assert fixed["measured"] is None
    assert given.own.variance == exact.assess(given.env, given.target, given.target).variance
    table, _ = adaptive.table(content)
    assert [row[:2] for row in table.rows] == [
        ("100 episodes", "adaptive"), ("100 episodes", "fixed"),
    ]  # fmt: skip


# -- frontiers -----------------------------------------------------------------------------------


def test_exact_frontiers_are_ordered():
    args = frontier.Args(sizes=(4,), targets=2, environments=(), asked=(1.0, 0.8, 0.6))
    content = content_of(frontier, args)
    [block] = content["blocks"]
    best, blind, plain = (
        np.array([point["relative_variance"]["mean"] for point in block["families"][name]])
        for name in frontier.FAMILIES
    )
    assert (np.diff(best) >= 0).all()
    assert (best <= 1.02 * blind).all()  # knowing the weight never hurts, but for the grid
    assert (best <= 1.02 * plain).all()
    assert block["world"] == "Gridworld 4 x 4, same-tilt"
    assert svg(frontier.figure(content)["frontier-4"]).startswith("<?xml")


def test_learned_frontiers_stand_beside_exact_ones():
    args = frontier.Args(
        critics="table", sizes=(4,), targets=2, environments=(), asked=(1.0, 0.7), logged=600
    )
    content = content_of(frontier, args)
    [block] = content["blocks"]
    for point in block["points"]:
        assert point["exact_variance"]["mean"] <= point["variance"]["mean"] * 1.02
        assert max(point["cost"]["values"]) < 1.1 * point["asked"]
    table, _ = frontier.table(content)
    assert [row[0] for row in table.rows] == ["1.00", "0.70"]
    assert "frontier-learned" in frontier.figure(content)


def test_targets_of_environments_are_softmax_policies():
    mdp, target = frontier.model_of("FrozenLake", 0, 0, 0)
    assert mdp.horizon == 60
    np.testing.assert_allclose(target.table(60).sum(axis=2), 1.0)
    mild, wild = (frontier.model_of("FrozenLake", 0, k, 0)[1].table(60) for k in (0, 2))
    entropy = [-(p * np.log(np.maximum(p, 1e-300))).sum(axis=2).mean() for p in (mild, wild)]
    assert entropy[0] < entropy[1]
