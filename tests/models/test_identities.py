"""Identities of observations: found in logs, kept in simulated episodes, and nowhere invented."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import Question, Transitions, World, as_policy
from scopeval.models.identities import (
    DAMPING,
    NO_IDENTITIES,
    find_identities,
    identities_of,
)
from scopeval.models.networks import sample_returns, simulate_episodes
from scopeval.models.rows import gather
from scopeval.models.training import Training

N = 3000


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


#: Ways to show more numbers than there are: free coordinates [n, 3] -> entries, and identities.
SHOWN = {
    "angle": (lambda x: np.column_stack([np.sin(x[:, 0]), np.cos(x[:, 0])]), 1),
    "rotation": (lambda x: unit(np.column_stack([x, 1.5 + 0.0 * x[:, 0]])), 1),
    "sphere": (unit, 1),
    "sum": (lambda x: np.column_stack([x[:, 0], x[:, 1], x[:, 0] - 2.0 * x[:, 1]]), 1),
    "free": (lambda x: x[:, :2], 0),
    "switch": (lambda x: (x[:, :1] > 0.3).astype(float), 0),
    "constant": (lambda x: np.full((len(x), 1), 4.0), 0),
}


def shown(names, seed: int, n: int = N):
    """Observations that show free coordinates in these ways, in units of their own."""
    rng = np.random.default_rng(seed)
    parts = [SHOWN[name][0](rng.standard_normal((n, 3))) for name in names]
    obs = np.concatenate(parts, axis=1)
    units = rng.uniform(0.1, 10.0, obs.shape[1])  # a circle becomes an ellipse
    return obs * units + rng.uniform(-3.0, 3.0, obs.shape[1])


def found_in(obs, change=None):
    """The identities, where steps lead from anywhere to anywhere, or as is said."""
    return find_identities(obs, obs - np.roll(obs, 1, axis=0) if change is None else change)


WAYS = st.lists(st.sampled_from(sorted(SHOWN)), min_size=1, max_size=4)


@settings(deadline=None)
@given(WAYS, st.integers(0, 10_000))
def test_all_identities_are_found_and_no_others(names, seed):
    obs = shown(names, seed)
    found = found_in(obs)
    assert len(found) == sum(SHOWN[name][1] for name in names)
    if len(found):
        assert np.abs(found.misses(obs)).max() < 1e-7


@settings(deadline=None)
@given(WAYS, st.integers(0, 10_000))
def test_observations_that_miss_them_a_little_are_moved_a_little(names, seed):
    obs = shown(names, seed)
    found = found_in(obs)
    rng = np.random.default_rng(seed + 1)
    wrong = 0.02 * obs.std(axis=0) * rng.standard_normal(obs.shape)
    moved = found.keep(obs + wrong)
    if not len(found):
        np.testing.assert_array_equal(moved, obs + wrong)
        return
    assert np.abs(found.misses(moved)).max() < 1e-5
    # the nearest point where they hold is no further away than the one that we began with; steps
    # of Newton end near it, where identities bend only a little within the distance
    spread = obs.std(axis=0) + (obs.std(axis=0) == 0)
    back = np.linalg.norm((moved - obs - wrong) / spread, axis=1)
    assert (back <= 1.1 * np.linalg.norm(wrong / spread, axis=1) + 1e-9).all()
    np.testing.assert_allclose(found.keep(obs), obs, rtol=0, atol=1e-6 * spread.max())


def reference(found, obs):
    """The same steps, one observation at a time, by a library's solver."""
    out = []
    for began in (obs - found.mean) / found.scale:
        row = began
        for _ in range(4):
            missed = found.constant + row @ found.linear + (row * row) @ found.square
            if np.abs(missed).max() <= 1e-6:
                break
            slopes = found.linear + 2.0 * row[:, None] * found.square
            normal = slopes.T @ slopes
            normal += DAMPING * (np.trace(normal) + 1e-12) * np.eye(len(missed))
            row = row - slopes @ np.linalg.solve(normal, missed)
        row = row if np.abs(row - began).max() <= 1.0 else began
        out.append(found.mean + found.scale * row)
    return np.array(out)


@pytest.mark.parametrize("names", [["angle"], ["rotation", "angle"], ["sum", "sum", "free"]])
def test_compiled_steps_are_those_of_a_library(names):
    obs = shown(names, 5)
    found = found_in(obs)
    rng = np.random.default_rng(6)
    for size in (0.02, 0.5):
        some = obs[:200] + size * obs.std(axis=0) * rng.standard_normal((200, obs.shape[1]))
        np.testing.assert_allclose(found.keep(some), reference(found, some), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [0.02, 0.2])
@pytest.mark.parametrize("name", ["angle", "rotation", "sum"])
def test_identities_that_depend_on_each_other_are_kept_together(name, size):
    once = shown([name], 3)
    obs = np.concatenate([once, 2.0 * once], axis=1)
    found = found_in(obs)
    assert len(found) > 1 + once.shape[1]  # also between the two, entries and their squares
    rng = np.random.default_rng(4)
    wrong = size * obs.std(axis=0) * rng.standard_normal(obs.shape)
    moved = found.keep(obs + wrong)
    assert np.abs(found.misses(moved)).max() < 1e-3
    back, began = (
        np.linalg.norm(d / obs.std(axis=0), axis=1) for d in (moved - obs - wrong, wrong)
    )
    assert (back <= 1.5 * began).all()


def test_what_is_far_from_all_identities_is_uncertain_and_stays():
    obs = np.column_stack(
        [*(f(np.linspace(0.0, 6.28, N)) for f in (np.sin, np.cos)), shown(["free"], 1)]
    )
    found = found_in(obs)
    center = np.array([[0.02, 0.01, *obs[0, 2:]]])  # the mean of opposite directions
    np.testing.assert_array_equal(
        found.keep(center), found.mean + found.scale * ((center - found.mean) / found.scale)
    )
    near = np.array([[0.0, 0.8, *obs[0, 2:]]])
    np.testing.assert_allclose(found.keep(near)[0, :2], [0.0, 1.0], atol=1e-5)


# -- what looks like an identity and is none -------------------------------------------------------


def test_slow_entries_are_not_taken_for_equal():
    # x and its last value, over a range of 10,000 in steps of 2: equal to 1e-3 of their spread
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10_000.0, N)
    step = rng.choice([-2.0, 2.0], (2, N)) + 0.5 * rng.standard_normal((2, N))
    obs = np.column_stack([x + step[0], x])
    assert len(found_in(obs, np.column_stack([step[0], step[1]]))) == 0
    same = np.column_stack([x, x])  # but equal entries are, however slow
    assert len(found_in(same, np.column_stack([step[0], step[0]]))) == 2


@pytest.mark.parametrize("far", [-9999.0, 1e6])
@pytest.mark.parametrize("share", [0.1, 1.0 / N])
def test_values_far_away_do_not_make_identities_of_the_others(far, share):
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, N))
    x[: max(int(share * N), 1)] = far
    assert len(found_in(np.column_stack([x, y]))) == 0
    assert len(found_in(np.column_stack([x, np.where(x == far, far, y)]))) == 0


def test_switches_are_not_rounded_exact_or_not():
    rng = np.random.default_rng(2)
    y, noise = rng.standard_normal((2, N))
    on = (y > 0.5).astype(float)
    for switch in (on, on + 1e-6 * noise, 5.0 * on + 1e-3 * noise):
        assert len(found_in(np.column_stack([switch, rng.standard_normal(N)]))) == 0


def test_one_exception_in_the_logs_is_enough():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(N)
    obs = np.column_stack([x, x])
    obs[:3, 1] += 0.08
    change = 0.5 * rng.standard_normal((N, 1)) * np.ones(2)
    assert len(found_in(obs, change)) == 0
    assert len(found_in(obs[3:], change[3:])) == 2


def test_all_of_a_long_log_counts():
    rng = np.random.default_rng(4)
    angle = rng.uniform(-3.0, 3.0, 900_000)
    obs = np.column_stack([np.sin(angle), np.cos(angle)])
    assert len(found_in(obs)) == 1
    obs[450_000:, 1] *= 1.1
    assert len(found_in(obs)) == 0


def test_what_holds_only_about_is_no_identity():
    obs = shown(["angle", "free"], 1)
    rng = np.random.default_rng(2)
    for size in (0.05, 0.005):
        noisy = obs + size * obs.std(axis=0) * rng.standard_normal(obs.shape)
        assert len(found_in(noisy)) == 0
    rounded = np.round(obs / obs.std(axis=0), 3)  # a file with three digits
    assert len(found_in(rounded)) == 1


def test_too_few_rows_say_nothing():
    obs = shown(["angle"], 1)
    assert len(found_in(obs[:99])) == 0  # 5 features
    assert len(found_in(obs[:100])) == 1
    assert len(found_in(obs[:0])) == 0
    assert found_in(np.zeros((N, 0))) is NO_IDENTITIES


def test_numbers_that_are_not_finite_stay_what_they_are():
    bad = shown(["angle"], 1)
    bad[5, 1] = np.nan
    assert len(found_in(bad)) == 0
    found = found_in(shown(["angle"], 1))
    moved = found.keep(np.array([[np.nan, 0.0], [np.inf, 1.0], *shown(["angle"], 1)[:1]]))
    assert not np.isfinite(moved[:2]).all(axis=1).any()
    assert np.isfinite(moved[2]).all()


# -- in a world ------------------------------------------------------------------------------------

T = 40


def swinging(episodes: int, seed: int) -> Transitions:
    """A swing, shown by sine, cosine and speed; where it starts the identity does not hold yet."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(episodes):
        angle, speed = rng.uniform(-1.0, 1.0, 2)
        obs = np.array([np.sin(angle), np.cos(angle) + 0.1, speed])
        for t in range(T):
            a = int(rng.integers(2))
            speed += 0.3 * (2 * a - 1) - 0.4 * np.sin(angle) - 0.1 * speed
            angle += 0.4 * speed
            after = np.array([np.sin(angle), np.cos(angle), speed])
            rows.append((t, obs, a, np.cos(angle), 1.0, after, False))
            obs = after
    return Transitions(*(np.array(part) for part in zip(*rows, strict=True)))


@pytest.fixture(scope="module")
def world() -> World:
    return World.learn(swinging(80, 0), training=Training(hidden=32, steps=600), seed=1)


def simulated(world: World):
    """The observations of simulated episodes, after the first step."""
    pi = as_policy(lambda obs, t: np.full((len(obs), 2), 0.5))
    starts = gather(world.logged, pi, T, 1, merge=False).starts
    model, rng = world.dynamics.learned[0], np.random.default_rng(3)
    found = simulate_episodes(model, starts, Question(pi, T), 50, rng)
    plain = sample_returns(model, starts, Question(pi, T), 50, rng)
    return np.concatenate(found.obs[1:]), plain


def off(obs):
    return np.abs(obs[:, 0] ** 2 + obs[:, 1] ** 2 - 1.0)


def test_simulated_episodes_stay_where_the_identity_holds(world):
    known = world.dynamics.learned[0]
    assert [len(network.identities) for network in world.dynamics.learned] == [1, 1]
    noisy, plain = simulated(world)
    within = np.all((noisy > known.low) & (noisy < known.high), axis=1)  # else clipped afterward
    assert np.quantile(off(noisy[within]), 0.99) < 1e-5
    # one step of the network away from it; without it that adds up
    small = np.quantile(off(np.asarray(plain.next_obs, float)), 0.9)
    forgetful = replace(known, identities=NO_IDENTITIES)
    dynamics = replace(world.dynamics, networks=(forgetful, world.dynamics.networks[1]))
    noisy, plain = simulated(replace(world, dynamics=dynamics))
    assert np.quantile(off(noisy), 0.9) > 0.02
    assert np.quantile(off(np.asarray(plain.next_obs, float)), 0.9) > 2.0 * small


def test_only_predicted_entries_of_rows_that_go_on_count(world):
    rows = gather(
        world.logged, as_policy(lambda obs, t: np.full((len(obs), 2), 0.5)), T, 1, merge=False
    ).rows
    encoder = world.dynamics.encoder
    assert len(identities_of(rows, encoder.predicted)) == 1
    after, alive = np.array(rows.next_obs), np.array(rows.alive)
    after[::50], alive[::50] = 7.0, 0.0  # what follows the end of an episode means nothing
    assert len(identities_of(replace(rows, next_obs=after, alive=alive), encoder.predicted)) == 1
    assert len(identities_of(replace(rows, next_obs=after), encoder.predicted)) == 0
    drawn = replace(encoder, predicted=np.array([True, False, True]))
    assert len(identities_of(rows, drawn.predicted)) == 0


def test_a_saved_world_knows_its_identities(world, tmp_path):
    world.save(tmp_path / "world.npz")
    again = World.load(tmp_path / "world.npz")
    for mine, theirs in zip(world.dynamics.learned, again.dynamics.learned, strict=True):
        for name in ("mean", "scale", "constant", "linear", "square"):
            a, b = (getattr(each.identities, name) for each in (mine, theirs))
            np.testing.assert_array_equal(a, b)
    assert len(world.refit(swinging(5, 9)).dynamics.learned[0].identities) == 1
