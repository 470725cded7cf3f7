"""The experiments with learned designs, in small: numbers, files, and the same bits every time."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from scopeval import exact, simulate
from scopeval.behavior.designer import design
from scopeval.cli.app import app
from scopeval.data.transitions import Transitions
from scopeval.envs.gridworld import (
    Gridworld,
    cells,
    gridworld_logs,
    logging_policies,
    logs_of,
    target_policies,
)
from scopeval.errors import InputError
from scopeval.paper.experiments import gridworld, log_quality
from scopeval.paper.experiments.gridworld_target import episode_grid, evaluate_target
from scopeval.paper.figures.drawing import png, svg
from scopeval.paper.figures.gridworld import draw_gridworld
from scopeval.paper.figures.log_quality import draw_logs
from scopeval.paper.results import Crossing, Result, Statistic, crossing_of

SMALL = gridworld.Config((5,), targets=4, runs=10, episodes=200, logged=300, seed=2)
METHODS, EPSILONS = SMALL.methods, SMALL.epsilons
SMALL_LOGS = log_quality.Config((5,), targets=3, seed=1, episodes=(30, 1000), bad_episodes=300)


@pytest.fixture(scope="module")
def result(tmp_path_factory) -> Result:
    return gridworld.run(SMALL, folder=tmp_path_factory.mktemp("shards"), backend="serial")


@pytest.fixture(scope="module")
def quality(tmp_path_factory) -> Result:
    return log_quality.run(SMALL_LOGS, folder=tmp_path_factory.mktemp("shards"), backend="serial")


# -- logs ----------------------------------------------------------------------------------------


def test_logs_are_shared_out_in_turn_and_nested():
    mdp = Gridworld(4, seed=1).mdp()
    controllers = logging_policies(3, mdp, seed=1)
    few, many = (logs_of(mdp, controllers, n, seed=1) for n in (5, 50))
    assert (len(few), len(many)) == (5 * 4, 50 * 4)
    rows = {tuple(row) for row in np.stack([many.obs, many.action, many.t], axis=1).tolist()}
    assert {tuple(r) for r in np.stack([few.obs, few.action, few.t], axis=1).tolist()} <= rows
    assert (many.t.reshape(-1, 4) == np.arange(4)).all()
    assert (many.next_obs.reshape(-1, 4)[:, :-1] == many.obs.reshape(-1, 4)[:, 1:]).all()


def test_logs_follow_the_model_and_their_seed():
    mdp = Gridworld(4, seed=1).mdp()
    logs = gridworld_logs(mdp, 60, seed=1)
    assert logs == gridworld_logs(mdp, 60, seed=1)
    assert logs != gridworld_logs(mdp, 60, seed=2)
    np.testing.assert_array_equal(logs.reward, mdp.reward[logs.obs, logs.action])
    np.testing.assert_array_equal(logs.cost, mdp.cost[logs.obs, logs.action])
    assert len(gridworld_logs(mdp, 7, seed=1)) == 7 * 4  # fewer episodes than controllers


def test_cells_are_the_states_coordinates():
    x, y = cells(3)[1 * 3 + 2]
    assert (x, y) == (1, 2)


# -- the Gridworld -------------------------------------------------------------------------------


def test_shapes_and_what_holds_by_definition(result):
    [block] = result.blocks
    assert list(block.methods) == list(METHODS)
    assert block.grid[0] == 1
    assert block.grid[-1] == SMALL.episodes
    for row in block.methods.values():
        assert row.errors.shape == row.costs.shape == (SMALL.targets, len(block.grid))
        assert (np.diff(row.costs, axis=1) > 0).all()
        np.testing.assert_allclose(
            row.costs[:, -1], SMALL.episodes * row.statistic("measured_cost").values
        )
        assert row.exact == (not row.method.startswith("ros"))
    own = block.methods["on-policy"]
    assert (own.variance.mean, own.cost.mean, own.needed.mean) == (1.0, 1.0, 1000.0)
    assert own.crossing == Crossing(float(SMALL.episodes), None)
    for line in block.frontier:
        assert line.variance.shape == (SMALL.targets, len(EPSILONS))
        row = block.methods[line.method]
        np.testing.assert_array_equal(line.variance[:, 0], row.variance.values)
        np.testing.assert_array_equal(line.limit_cost[:, 0], row.statistic("limit_cost").values)
        assert (np.diff(line.limit_variance, axis=1) <= 1e-12).all()  # a wider budget never hurts


def test_learned_numbers_are_exact_assessments(result):
    k = 1
    mdp = Gridworld(5, "same-tilt", SMALL.seed + k).mdp()
    target = target_policies(SMALL.targets, 5, seed=SMALL.seed)[k]
    logs = gridworld_logs(mdp, SMALL.logged, seed=SMALL.seed + k)
    alone = exact.assess(mdp, target, target)
    seed = SMALL.seed + k
    mu = design(logs, target, horizon=5, method="scope-dr", features=cells(5), seed=seed)
    table, b = mu.table(25)
    ours = exact.assess(mdp, target, table, b)
    row = result.blocks[0].methods["scope-dr"]
    assert row.variance.values[k] == ours.variance / alone.variance
    assert row.cost.values[k] == ours.cost / alone.cost
    assert row.statistic("predicted_variance").values[k] == mu.predicted.variance


def test_statistical_sanity(result):
    """Bounds are five standard errors, by theory, of means over 40 runs."""
    [block] = result.blocks
    runs = SMALL.runs * SMALL.targets
    for row in block.methods.values():
        if not row.exact:
            continue
        # the mean over runs and targets of (squared error / variance) is chi-square / runs
        ratio = (row.statistic("measured_square").values / row.variance.values).mean()
        assert abs(ratio - 1.0) < 5 * np.sqrt(2 / runs), row.method
        assert row.statistic("measured_cost").mean == pytest.approx(row.cost.mean, rel=0.02)
        expected = np.sqrt(row.variance.values / SMALL.episodes)  # |error| falls like sqrt
        assert abs((row.errors[:, -1] / expected).mean() - 1.0) < 5 * 0.8 / np.sqrt(runs)
    for name in ("scope", "scope-dr"):
        row = block.methods[name]
        assert row.variance.mean < 0.7
        assert row.cost.values.max() < 1.02
        assert row.statistic("limit_cost").largest <= 1 + 1e-9
    assert block.methods["scope-dr"].needed.mean < block.methods["scope"].needed.mean
    assert 0.03 < block.methods["ros"].statistic("measured_square").mean < 0.9
    # ros that forgets is biased, and its needed cost says so
    assert block.methods["ros-reset"].needed.mean > block.methods["ros"].needed.mean


def test_errors_start_at_one_and_direct_is_measured_in_the_same_unit(result):
    [block] = result.blocks
    first = block.methods["on-policy"].errors[:, 0]
    assert first.mean() == pytest.approx(1.0, abs=5 * 0.75 / np.sqrt(SMALL.runs * SMALL.targets))
    mdp = Gridworld(5, "same-tilt", SMALL.seed).mdp()
    target = target_policies(1, 5, seed=SMALL.seed)[0]
    many = simulate.summaries(mdp, target, episodes=100_000, seed=9)
    truth = exact.assess(mdp, target, target)
    unit = np.abs(many.estimate - truth.value).mean()
    answer = evaluate_target(SMALL.shards[0])
    assert answer["unit"] == pytest.approx(unit, rel=0.1)
    error = answer["direct"] - answer["truth"]
    assert block.direct_error.values[0] == pytest.approx(error / answer["unit"])
    assert block.direct_square.values[0] == pytest.approx(error**2 / truth.variance)
    assert abs(error) < 3 * unit


def test_the_same_bits_in_processes_and_for_more_targets(result, tmp_path):
    again = gridworld.run(replace(SMALL, targets=2), folder=tmp_path, workers=2)
    few, many = again.tables(), result.tables()
    for name, columns in few.items():
        keep = [k for k, target in enumerate(many[name]["target"]) if target < 2]
        for column, values in columns.items():
            assert values == [many[name][column][k] for k in keep], (name, column)


def test_other_seeds_give_other_numbers(result, tmp_path):
    other = replace(SMALL, targets=1, seed=3)
    again = gridworld.run(other, folder=tmp_path, backend="serial")
    assert (
        again.blocks[0].methods["odi"].errors[0, 0] != result.blocks[0].methods["odi"].errors[0, 0]
    )


def test_the_worlds_are_shared_in_turn():
    config = replace(SMALL, worlds=2)
    assert [shard.world for shard in config.shards] == [2, 3, 2, 3]
    assert [shard.world for shard in SMALL.shards] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": 0}, "targets"),
        ({"runs": 1}, "runs"),
        ({"episodes": 1}, "episodes"),
        ({"logged": 0}, "logged"),
        ({"seed": -1}, "seed"),
        ({"worlds": 5}, "worlds: got 5 for 4 targets"),
        ({"critics": "exact"}, "critics: got 'exact', expected one of table, mlp"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"sizes": (1,)}, "size"),
        ({"cost_laws": ("heavy",)}, "cost_law"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(SMALL, **change)


def test_networks_learn_it_too(tmp_path):
    config = gridworld.Config(
        (2,), targets=1, runs=2, episodes=20, logged=40, critics="mlp", epsilons=(0.0,)
    )
    [block] = gridworld.run(config, folder=tmp_path, backend="serial").blocks
    for method in ("scope", "scope-dr"):
        assert 0 < block.methods[method].variance.mean < 1.5


# -- crossings -----------------------------------------------------------------------------------


def curve(*errors: float) -> np.ndarray:
    return np.array([errors])


COSTS = curve(1.0, 10.0, 100.0, 1000.0)
OWN = curve(1.0, 0.3, 0.1, 0.03)


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
    assert found.cost == (None if cost is None else pytest.approx(cost))
    assert found.standard_error is None  # one target


def test_crossings_standard_error_is_the_jackknifes():
    rng = np.random.default_rng(0)
    errors = curve(0.5, 0.15, 0.05, 0.015) * rng.uniform(0.8, 1.2, (6, 1))
    costs, own = np.repeat(COSTS, 6, axis=0), np.repeat(OWN, 6, axis=0)
    left = [
        crossing_of(*(np.delete(x, k, axis=0) for x in (errors, costs, own))).cost for k in range(6)
    ]
    found = crossing_of(errors, costs, own)
    assert found.standard_error == pytest.approx(np.sqrt(5 / 6 * 6 * np.var(left)))


def test_the_grid_of_episodes():
    grid = episode_grid(1000)
    assert (grid[0], grid[-1]) == (1, 1000)
    assert (np.diff(grid) > 0).all()
    assert list(episode_grid(3)) == [1, 2, 3]


# -- the quality of logs -------------------------------------------------------------------------


def test_quality_has_a_row_for_every_case(quality):
    [block] = quality.blocks
    assert len(block.cases) == (2 + len(log_quality.BAD)) * 2 * 2
    for row in block.cases.values():
        assert row.variance.values.shape == (3,)
        assert row.cost.values.max() < 1.05
        assert (row.variance.values > 0).all()
    for method, (variance, cost) in block.limits.items():
        good = block.select(method, features=True, good=True)
        assert [case.episodes for case in good] == [30, 1000]
        few, many = good.values()
        assert many.variance.mean < few.variance.mean
        assert variance < 1.02 * many.variance.mean
        assert cost <= 1 + 1e-9
        assert many.statistic("predicted_variance").mean == pytest.approx(
            many.variance.mean, rel=0.3
        )
        bad = block.select(method, features=False, good=False)
        assert [case.logs for case in bad] == list(log_quality.BAD)


def spoilt(kind: str) -> tuple[Transitions, Transitions]:
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
    if kind == "tenfold rewards":
        np.testing.assert_allclose(bad.reward[wrong], 10 * good.reward[wrong])
    else:
        assert set(bad.reward) <= set(good.reward)


def test_quality_gives_the_same_bits_in_processes(quality, tmp_path):
    again = log_quality.run(SMALL_LOGS, folder=tmp_path, workers=2)
    assert again.tables() == quality.tables()


# -- files and figures ---------------------------------------------------------------------------


def invoke(*words: str):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})


def assert_fits(text: str) -> None:
    assert [line for line in text.splitlines() if len(line) > 80] == []


TINY = ["--size", "4", "--targets", "2", "--backend", "serial"]


def test_reproduce_gridworld_writes_what_it_prints(tmp_path):
    words = ["reproduce", "gridworld", *TINY, "--runs", "3", "--episodes", "50"]
    shown = invoke(*words, "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    command = (
        "scopeval reproduce gridworld --critics table --size 4 --targets 2 --runs 3 "
        "--episodes 50 --cost-law same-tilt --budget state --seed 0"
    )
    lines = shown.stdout.splitlines()
    assert command in lines
    assert_fits("\n".join(x for x in lines if x != command and str(tmp_path) not in x))
    pictures = ("error-episodes", "error-cost", "cost-by-target", "frontier")
    tables = ("targets", "curves", "frontier")
    files = {f"{name}.{ext}" for name in pictures for ext in ("svg", "png")}
    files |= {f"{name}.parquet" for name in tables} | {"gridworld.json", "shards"}
    assert set(os.listdir(tmp_path)) == files

    content = json.loads((tmp_path / "gridworld.json").read_text())
    assert content["command"] == command
    assert content["config"]["seed"] == 0
    assert {"python", "scopeval", "numpy", "torch"} <= set(content["versions"])
    [block] = content["blocks"]
    by_method = {row["method"]: row for row in block["methods"]}
    table = pq.read_table(tmp_path / "targets.parquet")
    assert json.loads(table.schema.metadata[b"scopeval"])["command"] == command
    rows = table.to_pylist()
    assert len(rows) == 2 * len(METHODS)
    for method, row in by_method.items():
        ours = [r["variance"] for r in rows if r["method"] == method]
        assert row["relative_variance"]["values"] == ours
        assert len(row["curve"]["error"]) == len(block["episodes"])
        if method != "on-policy":
            mean, error = np.mean(ours), np.std(ours, ddof=1) / np.sqrt(2)
            assert f"{mean:.3f} ± {error:.3f}" in shown.stdout
    curves = pq.read_table(tmp_path / "curves.parquet")
    assert curves.num_rows == len(rows) * len(block["episodes"])
    assert pq.read_table(tmp_path / "frontier.parquet").num_rows == 2 * 2 * len(EPSILONS)


def test_safety_parameters_of_the_figure_are_settings(tmp_path):
    few = ["--methods", "on-policy,scope", "--epsilons", "0", "--epsilons", "0.5"]
    words = ["reproduce", "gridworld", *TINY, "--runs", "3", "--episodes", "50", *few]
    shown = invoke(*words, "--out", str(tmp_path))
    assert "--epsilons 0.0 --epsilons 0.5" in " ".join(shown.stdout.split())
    rows = pq.read_table(tmp_path / "frontier.parquet").to_pylist()
    assert [row["epsilon"] for row in rows] == [0.0, 0.5] * 2


def test_running_it_again_resumes(tmp_path):
    words = ["reproduce", "gridworld", *TINY, "--runs", "3", "--episodes", "50"]
    first = invoke(*words, "--out", str(tmp_path))
    stamps = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "shards").iterdir()}
    damaged = next((tmp_path / "shards").iterdir())
    damaged.write_text("{")
    again = invoke(*words, "--out", str(tmp_path))
    assert again.exit_code == 0
    assert f"{damaged} (4 x 4, same-tilt, target" in again.stderr
    assert first.stdout.splitlines()[:-1] == again.stdout.splitlines()[:-1]
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "shards").iterdir()}
    assert [name for name in stamps if stamps[name] != after[name]] == [damaged.name]
    assert json.loads((tmp_path / "gridworld.json").read_text())["kept"] == len(stamps) - 1


def test_reproduce_logs_writes_what_it_prints(tmp_path):
    shown = invoke("reproduce", "logs", *TINY, "--out", str(tmp_path))
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert_fits("\n".join(x for x in lines if str(tmp_path) not in x))
    expected = ["log-quality.png", "log-quality.svg", "logs.json", "logs.parquet", "shards"]
    assert sorted(os.listdir(tmp_path)) == expected
    content = json.loads((tmp_path / "logs.json").read_text())
    assert content["command"] in lines
    rows = content["blocks"][0]["rows"]
    assert len(rows) == 10 * 2 * 2
    for row in rows:
        assert row["variance"]["worst"] == max(row["variance"]["values"])
        assert f"{row['variance']['mean']:.3f}" in shown.stdout
    assert pq.read_table(tmp_path / "logs.parquet").num_rows == 2 * len(rows)


def test_predictions_of_one_number_of_episodes(tmp_path):
    """How many predictions are near the truth, counted again from the numbers."""
    words = ("reproduce", "logs", *TINY, "--episodes", "300", "--no-bad", "--out", str(tmp_path))
    shown = invoke(*words)
    assert shown.exit_code == 0, shown.output
    assert "Within 25 %: number of targets" in " ".join(shown.stdout.split())
    assert sorted(os.listdir(tmp_path)) == ["logs.json", "logs.parquet", "shards"]
    assert "--episodes 300 --no-bad" in shown.stdout  # the command, to be typed again
    rows = json.loads((tmp_path / "logs.json").read_text())["blocks"][0]["rows"]
    assert [row["episodes"] for row in rows] == [300] * 4
    for row in rows:
        ratio = np.array(row["predicted_variance"]["values"]) / row["variance"]["values"]
        assert row["well_predicted"] == int((np.abs(ratio - 1) <= 0.25).sum())
    with pytest.raises(InputError, match="bad: got 'lost'"):
        log_quality.Config(bad=("lost",))


def test_a_place_that_cannot_be_written_is_refused_before_the_work():
    for command in ("gridworld", "logs"):
        shown = invoke("reproduce", command, "--out", "/dev/null/x")
        assert shown.exit_code == 2
        assert "cannot write /dev/null/x" in shown.stderr


FIGURES = ("error-episodes", "error-cost", "cost-by-target", "frontier")


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_the_gridworld(name, result):
    figure = draw_gridworld(result.as_dict())[name]
    text = svg(figure)
    assert text == svg(draw_gridworld(result.as_dict())[name])  # the same bytes
    assert "<text" in text  # text is text
    assert "5 x 5, same-tilt" in text
    assert "scope-dr" in text
    assert "<dc:date>" not in text
    assert png(figure).startswith(b"\x89PNG")


def test_figure_of_the_logs(quality):
    text = svg(draw_logs(quality)["log-quality"])
    for word in ("scope-dr, without coordinates", "logged episodes", "tenfold", "good logs"):
        assert word in text


def test_figures_do_not_look_at_the_users_settings(result):
    import matplotlib as mpl

    plain = svg(draw_gridworld(result.as_dict())["frontier"])
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "red"}):
        assert svg(draw_gridworld(result.as_dict())["frontier"]) == plain


def test_one_target_has_no_standard_errors(tmp_path):
    config = gridworld.Config((4,), targets=1, runs=2, episodes=20, logged=60)
    alone = gridworld.run(config, folder=tmp_path, backend="serial")
    svg(draw_gridworld(alone.as_dict())["error-cost"])
    assert json.loads(json.dumps(alone.as_dict(), allow_nan=False))["experiment"] == "gridworld"
    assert alone.blocks[0].methods["ros"].statistic("measured_square").standard_error is None
    assert isinstance(alone.blocks[0].direct_error, Statistic)
    assert Path(tmp_path).is_dir()
