"""Logs in which every row looks right by itself, and a column is not what it says."""

from __future__ import annotations

import numpy as np
import pytest

from logged_worlds import gridworld_logs
from scopeval import Transitions
from scopeval.envs.gridworld import Gridworld
from scopeval.logs.changes import SpreadRows
from scopeval.logs.diagnose import diagnose
from small_worlds import random_rows
from wearing_machine import machine_log, transitions

FIELDS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")


def changed(log: Transitions, **columns) -> Transitions:
    return Transitions(**{name: columns.get(name, getattr(log, name)) for name in FIELDS})


def from_row(log, column, row, factor, offset=0.0):
    """The log with other units from a row on."""
    values = getattr(log, column).copy()
    values[row:] = factor * values[row:] + offset
    return changed(log, **{column: values})


def learner_log(seed, *, episodes=300, steps=15, effect=0.0, noise=1.0, vectors=False):
    """Episodes of a controller that learns, with rewards of heavy tails.

    Actions and states are others at the end than at the start, the episodes have other lengths, and
    with `effect` every episode has a level of its own: none of this is an error.
    """
    rng = np.random.default_rng(seed)
    S, A = 6, 3
    upto = random_rows(rng, S, A, S).cumsum(axis=-1)
    mean, scale, q = rng.normal(size=(S, A)), rng.gamma(0.5, size=(S, A)), np.zeros((S, A))
    rows = []
    for episode in range(episodes):
        state, level = 0, effect * rng.normal()
        for t in range(steps):
            explores = rng.random() < max(0.05, 1.0 - episode / episodes)
            action = int(rng.integers(A)) if explores else int(q[state].argmax())
            after = min(int((rng.random() > upto[state, action]).sum()), S - 1)
            reward = mean[state, action] + noise * rng.standard_t(3) + level
            cost = scale[state, action] * rng.exponential()
            rows.append((t, state, action, reward, cost, after, after == S - 1))
            follows = 0.0 if after == S - 1 else 0.9 * q[after].max()
            q[state, action] += 0.2 * (reward + follows - q[state, action])
            state = after
            if after == S - 1:
                break
    log = Transitions(*map(np.array, zip(*rows, strict=True)))
    if not vectors:
        return log
    places = rng.normal(size=(S, 3))
    return changed(log, obs=places[log.obs], next_obs=places[log.next_obs])


def told(log, words):
    return [text for text in diagnose(log).warnings if words in text]


# --- units that change ----------------------------------------------------------------------------


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("column", ["reward", "cost"])
@pytest.mark.parametrize("factor", [100.0, 10.0, 3.0, 0.1])
def test_units_that_change_are_named(factor, column, vectors):
    log = learner_log(0, noise=0.3, vectors=vectors)
    wrong = from_row(log, column, len(log) // 2, factor)
    (text,) = told(wrong, "of the same observation and action is another")
    assert f"the {column} of" in text
    (change,) = diagnose(wrong).facts.changes
    assert change.factor == pytest.approx(max(factor, 1.0 / factor), rel=0.5)
    assert abs(change.row - len(log) // 2) <= len(log) / 8


@pytest.mark.parametrize("where", [0.15, 0.85])
def test_units_that_change_early_or_late_are_named(where):
    log = learner_log(0)
    assert told(from_row(log, "reward", int(where * len(log)), 100.0), "is another")


def test_an_offset_is_a_change():
    log = transitions(machine_log(300))
    assert told(from_row(log, "reward", len(log) // 2, 1.0, -2.0), "is another")


def test_small_changes_and_short_logs_are_not_told():
    log = transitions(machine_log(300))
    assert not told(from_row(log, "reward", len(log) // 2, 1.05), "is another")
    rounded = changed(log, reward=np.where(np.arange(len(log)) % 2, log.reward, log.reward + 1e-9))
    assert not told(rounded, "is another")
    few = transitions(machine_log(6))
    assert not told(from_row(few, "reward", len(few) // 2, 100.0), "is another")


def test_shuffled_logs_show_no_change():
    """The probability of failing by chance is that of a false alarm, 1e-4 by the bound."""
    log = transitions(machine_log(300))
    wrong = from_row(log, "reward", len(log) // 2, 100.0)
    assert not told(wrong.select(np.random.default_rng(0).permutation(len(log))), "is another")


@pytest.mark.parametrize("effect", [0.0, 2.0])
@pytest.mark.parametrize("vectors", [False, True])
def test_controllers_that_learn_are_no_change(effect, vectors):
    """Each of 4 x 10 logs is a false alarm with probability 1e-4 or less: 0.004 together."""
    for seed in range(10):
        log = learner_log(seed, episodes=200, effect=effect, vectors=vectors)
        assert diagnose(log).facts.changes == ()


def test_rare_costs_at_one_end_are_no_change():
    """Four disasters in the last eighth of a log have a probability of 2e-4, not of 1e-7."""
    log = transitions(machine_log(300))
    cost = np.zeros(len(log))
    cost[-40::10] = 50.0
    assert diagnose(changed(log, cost=cost)).facts.changes == ()


# --- costs that are something else ----------------------------------------------------------------


def totals(log):
    cost = log.cost.copy()
    for row in np.flatnonzero(np.diff(log.t) == 1) + 1:
        cost[row] += cost[row - 1]
    return cost


CLEAN = {
    "machine": lambda: transitions(machine_log(200)),
    "quiet machine": lambda: transitions(machine_log(200, noise=False)),
    "learner": lambda: learner_log(0),
    "vectors": lambda: learner_log(1, vectors=True),
    "gridworld": lambda: gridworld_logs(Gridworld(6, "uniform", seed=0).mdp(), 300, seed=0),
}
SUSPICIOUS = (
    "one step late",
    "totals since the start",
    "are they clipped",
    "rounding of 0",
    "is another",
)


@pytest.mark.parametrize("world", CLEAN)
def test_costs_of_clean_logs_are_not_suspected(world):
    log = CLEAN[world]()
    steps = np.ones(len(log))
    last = np.append(np.diff(log.t) != 1, True).astype(float)
    penalty = log.cost + 10.0 * (log.next_obs == log.next_obs.max()).reshape(len(log), -1)[:, 0]
    lasting = np.minimum(np.maximum(log.t - 5, 0), 1).astype(float)
    wear = log.obs.astype(float) if log.discrete_obs else log.cost
    for cost in (log.cost, steps, last, penalty, lasting, np.minimum(wear, 4.0)):
        warnings = diagnose(changed(log, cost=cost)).warnings
        assert not [text for text in warnings if any(words in text for words in SUSPICIOUS)]


@pytest.mark.parametrize("world", ["machine", "quiet machine", "gridworld"])
def test_late_costs_are_noted(world):
    log = CLEAN[world]()
    (text,) = told(changed(log, cost=np.roll(log.cost, 1)), "one step late")
    assert "100% of its variance" in text


@pytest.mark.parametrize("world", CLEAN)
def test_running_totals_are_noted(world):
    log = CLEAN[world]()
    wrong = changed(log, cost=totals(log))
    assert told(wrong, "totals since the start of the episode")
    assert not told(wrong, "one step late")


def test_clipped_costs_are_noted():
    log = learner_log(0)
    (text,) = told(changed(log, cost=np.minimum(log.cost, 1.0)), "are they clipped")
    assert "equal the largest one, 1," in text


@pytest.mark.parametrize("world", CLEAN)
def test_costs_next_to_nothing_are_noted(world):
    log = CLEAN[world]()
    cost = np.zeros(len(log))
    cost[::1000] = 1e-9
    assert told(changed(log, cost=cost), "no cost is above 1e-09, which may be rounding of 0")
    cost[5] = 1.0  # a rare disaster is none of that
    assert not told(changed(log, cost=cost), "rounding of 0")


# --- the sample -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_sample_does_not_depend_on_batches(seed, monkeypatch):
    monkeypatch.setattr("scopeval.logs.changes.MOST_ROWS", 500)
    monkeypatch.setattr("scopeval.logs.changes.BLOCK_ROWS", 16)
    rng = np.random.default_rng(seed)
    log = learner_log(seed, episodes=200)
    whole, merged = SpreadRows(), SpreadRows()
    whole.add(log)
    piece = SpreadRows()
    borders = np.sort(rng.integers(len(log), size=15))
    for start, stop in zip([0, *borders], [*borders, len(log)], strict=True):
        if rng.random() < 0.3:
            merged.merge(piece)
            piece = SpreadRows(int(start))
        piece.add(log.select(slice(start, stop)))
    merged.merge(piece)
    one, other = whole.whole(), merged.whole()
    assert 250 < len(one.row) <= 500
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(one.reward, log.reward[one.row])


# --- near-copies ----------------------------------------------------------------------------------


def copied(log, times, rng, jitter=0.0, longer=False):
    """Whole logs, one after the other, nearly the same."""
    parts = []
    for k in range(times):
        part = changed(log, reward=log.reward + jitter * rng.normal(size=len(log)))
        parts.append(part.select(slice(0, len(log) - k)) if longer else part)
    return Transitions.concat(parts)


@pytest.mark.parametrize("times", [2, 6])
@pytest.mark.parametrize(("jitter", "longer"), [(1e-7, False), (0.0, True), (1e-7, True)])
def test_near_copies_are_noted(times, jitter, longer):
    log = transitions(machine_log(9))
    wrong = copied(log, times, np.random.default_rng(0), jitter, longer)
    (text,) = told(wrong, "were episodes stored several times, with small differences")
    assert f"occur {times} times or a multiple of it" in text


def test_one_episode_more_does_not_hide_copies():
    log = transitions(machine_log(20))
    episode = np.cumsum(log.t == 0)
    wrong = Transitions.concat([*[log] * 6, log.select(episode == 1)])
    assert told(wrong, "were episodes stored several times")


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_rows_that_repeat_by_nature_are_no_near_copies(noise):
    """Rewards of three values, or none at all: each of 60 logs with probability 1e-4 at most."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        log = learner_log(seed, episodes=int(rng.integers(20, 300)), noise=0.0)
        reward = np.round(log.reward + noise * rng.integers(-1, 2, size=len(log)), 3)
        few = changed(log, reward=reward, cost=np.round(log.cost, int(seed % 3)))
        assert not told(few, "were episodes stored several times")
    starts = rng.integers(10, size=60)  # deterministic: all rows of a start occur equally often
    t = np.tile(np.arange(20), 60)
    obs = np.repeat(starts, 20) * 21 + t
    same = Transitions(t, obs, t % 3, np.sin(obs), np.cos(obs) ** 2, obs + 1)
    assert not told(same, "with small differences")
