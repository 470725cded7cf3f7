"""The Gridworld's experiments, in small: numbers that must hold, by theory or by another way."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import gridworld, log_quality
from experiments.drawing import svg
from experiments.gridworld import crossing_of, episode_grid
from scopeval import Table, design, exact
from scopeval.envs.gridworld import (
    Gridworld,
    cells,
    gridworld_logs,
    logging_policies,
    target_policies,
)

SMALL = gridworld.Args(
    sizes=(5,), targets=4, runs=10, episodes=200, logged=300, seed=2, epsilons=(0.0, 0.5)
)


@pytest.fixture(scope="module")
def content():
    rows = [{**job, **gridworld.job(SMALL, **job)} for job in gridworld.jobs(SMALL)]
    return {"config": SMALL.config, "command": "", **gridworld.summary(SMALL, rows)}


def by_name(content):
    return {row["method"]: row for row in content["blocks"][0]["methods"]}


def test_learned_numbers_are_exact_assessments(content):
    k = 1
    mdp = Gridworld(5, "same-tilt", SMALL.seed + k).mdp()
    target = target_policies(SMALL.targets, 5, seed=SMALL.seed)[k]
    logs = gridworld_logs(mdp, SMALL.logged, seed=SMALL.seed + k)
    alone = exact.assess(mdp, target, target)
    seed = SMALL.seed + k
    mu = design(
        logs, target, horizon=5, method="scope-dr", seed=seed, learn=Table(features=cells(5))
    )
    ours = exact.assess(mdp, target, *mu.table(25))
    row = by_name(content)["scope-dr"]
    assert row["relative_variance"]["values"][k] == ours.variance / alone.variance
    assert row["relative_cost"]["values"][k] == ours.cost / alone.cost
    assert row["predicted_variance"]["values"][k] == mu.predicted.variance


def test_statistical_sanity(content):
    """Bounds are five standard errors, by theory, of means over 40 runs."""
    runs, rows = SMALL.runs * SMALL.targets, by_name(content)
    for name, row in rows.items():
        variance = np.array(row["relative_variance"]["values"])
        if not row["exact"]:
            continue
        # the mean over runs and targets of (squared error / variance) is chi-square / runs
        ratio = (np.array(row["measured_square"]["values"]) / variance).mean()
        assert abs(ratio - 1.0) < 5 * np.sqrt(2 / runs), name
        cost = row["relative_cost"]["mean"]
        assert row["measured_cost"]["mean"] == pytest.approx(cost, rel=0.02)
    for name in ("scope", "scope-dr"):
        assert rows[name]["relative_variance"]["mean"] < 0.7
        assert max(rows[name]["relative_cost"]["values"]) < 1.02
        assert max(rows[name]["limit_cost"]["values"]) <= 1 + 1e-9
    assert rows["scope-dr"]["cost_needed"]["mean"] < rows["scope"]["cost_needed"]["mean"]
    assert 0.03 < rows["ros"]["measured_square"]["mean"] < 0.9
    # ros that forgets is biased, and its needed cost says so
    assert rows["ros-reset"]["cost_needed"]["mean"] > rows["ros"]["cost_needed"]["mean"]
    first = rows["on-policy"]["curve"]["error"][0]
    assert first == pytest.approx(1.0, abs=5 * 0.75 / np.sqrt(runs))


def test_a_wider_budget_never_hurts_and_its_first_point_is_the_design(content):
    rows = by_name(content)
    for line in content["blocks"][0]["frontier"]:
        row = rows[line["method"]]
        assert line["variance"][0] == pytest.approx(row["relative_variance"]["mean"], rel=1e-12)
        assert (np.diff(line["limit_variance"]) <= 1e-12).all()


def test_tables_and_figures(content):
    first, errors, notes = gridworld.table(content)
    assert first.header[-1] == "crossing"
    assert [row[0] for row in errors.rows][-1] == "direct"
    assert "2 targets" not in notes
    drawn = gridworld.figure(content)
    assert set(drawn) == {"error-episodes", "error-cost", "cost-by-target", "frontier"}
    assert all(svg(one).startswith("<?xml") for one in drawn.values())


def test_exact_values_are_what_a_world_allows():
    args = gridworld.Args(
        critics="exact", sizes=(4,), targets=4, worlds=2, seed=7, methods=("scope", "scope-dr")
    )
    jobs = gridworld.jobs(args)
    assert [job["world"] for job in jobs] == [7, 8, 7, 8]
    for k, target in enumerate(target_policies(4, 4, seed=7)):
        mdp = Gridworld(4, "same-tilt", jobs[k]["world"]).mdp()
        alone = exact.assess(mdp, target, target)
        ours = exact.assess(mdp, target, exact.design(mdp, target, "scope"))
        found = gridworld.job(args, **jobs[k])["methods"]
        assert found["scope"]["relative_variance"] == pytest.approx(ours.variance / alone.variance)
        assert found["scope"]["relative_cost"] == pytest.approx(ours.cost / alone.cost)
        assert max(found[name]["worst_state"] for name in args.methods) <= 1 + 1e-9


# -- crossings -----------------------------------------------------------------------------------

COSTS = np.array([[1.0, 10.0, 100.0, 1000.0]])
OWN = np.array([[1.0, 0.3, 0.1, 0.03]])


def curve(*values):
    return np.array([values])


@pytest.mark.parametrize(
    ("errors", "cost"),
    [
        (curve(0.5, 0.15, 0.05, 0.015), 10 ** (2 + np.log10(0.05 / 0.03) / np.log10(0.05 / 0.015))),
        (curve(0.5, 0.02, 0.05, 0.01), 10 ** (2 + np.log10(0.05 / 0.03) / np.log10(5.0))),  # stays
        (curve(0.02, 0.02, 0.02, 0.02), 1.0),  # from the first episode on
        (curve(1.0, 0.5, 0.4, 0.31), None),  # never
        (OWN, 1000.0),
    ],
)
def test_crossings(errors, cost):
    found = crossing_of(errors, COSTS, OWN)
    assert found[0] == (None if cost is None else pytest.approx(cost))
    assert found[1] is None  # one target


def test_crossings_standard_error_is_the_jackknifes():
    rng = np.random.default_rng(0)
    errors = curve(0.5, 0.15, 0.05, 0.015) * rng.uniform(0.8, 1.2, (6, 1))
    costs, own = np.repeat(COSTS, 6, axis=0), np.repeat(OWN, 6, axis=0)
    left = [
        crossing_of(*(np.delete(x, k, axis=0) for x in (errors, costs, own)))[0] for k in range(6)
    ]
    assert crossing_of(errors, costs, own)[1] == pytest.approx(np.sqrt(5 / 6 * 6 * np.var(left)))


def test_the_grid_of_episodes():
    grid = episode_grid(1000)
    assert (grid[0], grid[-1]) == (1, 1000)
    assert (np.diff(grid) > 0).all()
    assert list(episode_grid(3)) == [1, 2, 3]


# -- the quality of logs -------------------------------------------------------------------------


def spoilt(kind):
    mdp = Gridworld(6, seed=1).mdp()
    controllers = logging_policies(30, mdp, seed=1)
    return tuple(log_quality._logs(mdp, controllers, k, 200, 1) for k in ("good", kind))


def test_one_controller_is_deterministic():
    _, bad = spoilt("one controller")
    chosen: dict[tuple[int, int], set[int]] = {}
    for t, s, a in zip(bad.t, bad.obs, bad.action, strict=True):
        chosen.setdefault((t, s), set()).add(a)
    assert {len(actions) for actions in chosen.values()} == {1}
    assert len(bad) == 200 * 6


def test_half_of_the_grid_is_never_left():
    good, bad = spoilt("half the grid")
    assert (good.obs % 6 > 3).any()
    assert not (bad.obs % 6 > 3).any()
    assert (bad.next_obs % 6 > 3).any()  # the step that ends an episode is in the log
    assert (bad.t == 0).sum() == 200


@pytest.mark.parametrize("kind", ["mixed-up rewards", "tenfold rewards"])
def test_a_tenth_of_the_rewards_is_wrong(kind):
    good, bad = spoilt(kind)
    wrong = good.reward != bad.reward
    assert wrong.mean() == pytest.approx(0.1, abs=0.04)
    for name in ("t", "obs", "action", "cost", "next_obs"):
        np.testing.assert_array_equal(getattr(good, name), getattr(bad, name))


def test_quality_has_a_row_for_every_case():
    args = log_quality.Args(sizes=(4,), targets=2, episodes=(30, 300), bad_episodes=200)
    rows = [{**job, **log_quality.job(args, **job)} for job in log_quality.jobs(args)]
    content = {"config": args.config, **log_quality.summary(args, rows)}
    [block] = content["blocks"]
    assert len(block["rows"]) == 6 * 2 * 2
    one = block["rows"][0]
    assert one["variance"]["worst"] == max(one["variance"]["values"])
    assert max(row["cost"]["worst"] for row in block["rows"]) < 1.05
    assert len(log_quality.table(content)) == 5
    assert "scope-dr, with coordinates" in svg(log_quality.figure(content)["log-quality"])
