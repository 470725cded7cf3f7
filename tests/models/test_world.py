"""A learned world: the same designs as from its logs; saved, refitted, refused where it must be."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from experiments.mlp.regression import MLPRegression
from scopeval import Check, Networks, Table, Transitions, World, design, frontier
from scopeval._archive import CHECKSUM
from scopeval.behavior.frontier import MODEL_SHARE
from scopeval.errors import DataError, InputError
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

T = 4
HOW = Training(hidden=16, steps=250, batch=64)
QUICK = Networks(training=HOW, paths=60, study=Study(paths=80, hidden=8, steps=40, batch=64))
WITHOUT = replace(QUICK, training=Training())  # a world has networks already


def target(obs, t):
    right = 1.0 / (1.0 + np.exp(-obs[:, 0]))
    return np.stack([1.0 - right, right], axis=1)


def logs(episodes: int, seed: int, shift: float = 0.0) -> Transitions:
    """A walk on a line with noise; it ends beyond 2."""
    rng = np.random.default_rng(seed)
    columns: list[tuple[np.ndarray, ...]] = []
    for _ in range(episodes):
        x = shift + rng.standard_normal(2)
        for t in range(T):
            a = int(rng.integers(2))
            after = x + np.array([0.5 * (2 * a - 1), 0.0]) + 0.1 * rng.standard_normal(2)
            end = bool(after[0] > shift + 2.0)
            columns.append((t, x, a, x[0] + a, 1.0 + a, after, end))
            x = after
            if end:
                break
    return Transitions(*(np.array(part) for part in zip(*columns, strict=True)))


@pytest.fixture(scope="module")
def log() -> Transitions:
    return logs(150, 0)


@pytest.fixture(scope="module")
def world(log) -> World:
    return World.learn(log, training=HOW, seed=3)


def numbers(behavior) -> bytes:
    probs = behavior.probs(np.linspace(-1, 1, 10).reshape(5, 2), 1)
    return probs.tobytes() + np.array([behavior.predicted.variance]).tobytes()


def test_a_design_in_a_world_is_the_design_from_its_logs(log, world):
    one = design(log, target, horizon=T, seed=3, method="scope", learn=QUICK)
    two = design(world, target, horizon=T, seed=3, method="scope", learn=WITHOUT)
    assert numbers(one) == numbers(two)
    assert one.report.holdout == two.report.holdout
    assert world.error == one.report.holdout["dynamics"]


def test_one_world_serves_methods_targets_and_seeds(world):
    def other(obs, t):
        return target(obs, t)[:, ::-1]

    for policy, method, seed in ((target, "scope", 3), (other, "scope-dr", 8)):
        made = design(world, policy, horizon=T, method=method, seed=seed, learn=WITHOUT)
        assert made.report.rows == len(world.logged)
    for given, floor in ((None, MODEL_SHARE), (0.01, 0.01)):
        curve = frontier(
            world, target, horizon=T, points=4, learn=WITHOUT, check=Check(floor=given)
        )
        assert curve._designs[0].recipe.floor == floor


def test_a_saved_world_is_the_same(world, tmp_path):
    path = tmp_path / "line.world"
    world.save(path)
    back = World.load(path)
    assert back.logged == world.logged
    assert back.logged.notes == world.logged.notes
    assert (back.seed, back.trainings, back.error) == (3, (HOW,), world.error)
    one, two = (design(w, target, horizon=T, method="scope", learn=WITHOUT) for w in (world, back))
    assert numbers(one) == numbers(two)
    more = logs(30, 5)
    assert back.refit(more).error == world.refit(more).error
    assert "World(Transitions(" in repr(back)


def test_a_refit_takes_a_fraction_of_the_steps_and_learns(world, log):
    more, steps = logs(300, 1), []
    fitted = world.refit(more, progress=lambda what, done, total: steps.append(total))
    assert set(steps) == {2 * 75}  # of 2 * 250
    assert len(fitted.logged) == len(log) + len(more)
    np.testing.assert_array_equal(fitted.fold[: len(log)], world.fold)  # no row changes its half
    assert abs(int(fitted.fold.sum()) * 2 - len(fitted.fold)) <= 2
    anew = World.learn(Transitions.concat([log, more]), training=HOW, seed=3)
    assert fitted.error < 1.15 * anew.error
    assert fitted.refits == 1
    assert fitted.refit(logs(20, 7)).refits == 2
    assert world.refits == 0  # the world itself has not changed


def test_a_refit_on_other_logs_begins_anew(world):
    """Where inputs have moved far, the units of the old networks are no use."""
    far = logs(600, 2, shift=50.0)
    found = world.refit(far)
    old, new = world.dynamics.learned[0], found.dynamics.learned[0]
    assert not np.array_equal(old.weights["mean"], new.weights["mean"])
    near = world.refit(logs(20, 2))
    np.testing.assert_array_equal(old.weights["mean"], near.dynamics.learned[0].weights["mean"])


def test_continuous_actions_and_time(tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    x, a = rng.standard_normal((n, 2)), rng.standard_normal((n, 1))
    log = Transitions(rng.integers(0, 3, n), x, a, x[:, 0], a[:, 0] ** 2, x + 0.1 * a)
    world = World.learn(log, horizon=3, training=HOW)
    assert world.dynamics.encoder.horizon == 3
    assert not world.dynamics.encoder.finite
    world.save(tmp_path / "w")
    assert World.load(tmp_path / "w").dynamics.encoder.same(world.dynamics.encoder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": 1}, "the logs hold action number 1"),
        ({"actions": 0}, "actions"),
        ({"embedding": [[1.0]]}, "the logs hold action number 1"),
        ({"drawn": 2}, "drawn: got 2"),
        ({"horizon": 0}, "horizon"),
        ({"seed": -1}, "seed"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(log, change, said):
    with pytest.raises(InputError, match=said):
        World.learn(log, **change)


def test_logs_and_settings_that_do_not_fit_are_refused(world, log):
    with pytest.raises(InputError, match="state numbers"):
        World.learn(Transitions([0, 0], [0, 1], [0, 1], [0, 1], [0, 1], [1, 0]))
    with pytest.raises(InputError, match="expected"):
        World.learn("logs.parquet")
    with pytest.raises(InputError, match="expected"):
        world.refit("logs.parquet")
    for regression in (MLPRegression(), Table(), replace(WITHOUT, dynamics=world.dynamics)):
        with pytest.raises(InputError, match="with a World"):
            design(world, target, horizon=T, method="scope", learn=regression)
    with pytest.raises(InputError, match="other observations, actions or times"):
        design(world, target, horizon=T, method="scope", learn=replace(WITHOUT, time_varying=True))
    many = World.learn(log, actions=3, training=HOW)
    with pytest.raises(InputError, match="other observations, actions or times"):
        design(many, target, horizon=T, method="scope", learn=WITHOUT)


def rewritten(content: bytes, edit) -> bytes:
    """A file with other arrays and a right checksum, as a stranger could write it."""
    import hashlib

    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    edit(arrays)
    out = io.BytesIO()
    np.savez(out, **arrays)
    made = out.getvalue()[:-2] + CHECKSUM.to_bytes(2, "little")
    return made + hashlib.sha256(made).digest()


def header_with(**change):
    def edit(arrays):
        header = json.loads(arrays["header"].tobytes()) | change
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return edit


def array_with(name, value):
    def edit(arrays):
        array = arrays[name].copy()
        array[(0,) * array.ndim] = value
        arrays[name] = array

    return edit


EDITS = {
    "another format": header_with(format=9),
    "a negative seed": header_with(seed=-1),
    "a seed that is text": header_with(seed="1"),
    "notes": header_with(notes=[1]),
    "no training": header_with(trainings=[]),
    "an odd training": header_with(trainings=[{"hidden": 1}]),
    "a training of no rate": header_with(
        trainings=[{"hidden": 8, "steps": None, "batch": 8, "rate": 0.0, "dropout": 0.0}]
    ),
    "a half too many": array_with("fold", 2),
    "a weight that is not finite": array_with("net1_w2", np.nan),
    "no spread": array_with("net0_spread", 0.0),
    "a range upside down": array_with("net0_low", 1e6),
    "sizes out of order": array_with("net0_expected_sizes", 1e6),
    "an action that is unknown": array_with("action", 7),
    "a negative cost": array_with("cost", -1.0),
    "time": lambda arrays: arrays.update(horizon=np.asarray(5)),
    "no array of that name": lambda arrays: arrays.pop("net1_w2"),
    "one array too many": lambda arrays: arrays.update(extra=np.zeros(1)),
    "another shape": lambda arrays: arrays.update(net0_b2=np.zeros(3, np.float32)),
    "another type": lambda arrays: arrays.update(net0_b2=arrays["net0_b2"].astype(np.float64)),
    "fewer rows": lambda arrays: arrays.update(t=arrays["t"][:-1]),
    "other entries": lambda arrays: arrays.update(predicted=~arrays["predicted"]),
}


@pytest.mark.parametrize("name", EDITS)
def test_files_that_were_edited_are_refused(world, tmp_path, name):
    path = tmp_path / "w"
    world.save(path)
    path.write_bytes(rewritten(path.read_bytes(), lambda arrays: None))
    World.load(path)  # a rewritten file that was not edited is fine
    path.write_bytes(rewritten(path.read_bytes(), EDITS[name]))
    with pytest.raises(DataError, match="not a saved world, or damaged"):
        World.load(path)


def test_damage_and_sizes_are_noticed(world, tmp_path):
    path = tmp_path / "w"
    world.save(path)
    content = path.read_bytes()
    with pytest.raises(DataError, match="expected at most 1,000"):
        World.load(path, max_bytes=1000)
    path.write_bytes(content[:500] + b"x" + content[501:])
    with pytest.raises(DataError, match="checksum"):
        World.load(path)
    path.write_bytes(b"")
    with pytest.raises(DataError):
        World.load(path)
    with pytest.raises(DataError, match="no such file"):
        World.load(tmp_path / "nothing")
