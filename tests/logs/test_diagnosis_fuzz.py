"""Random clean logs are never refused, and batches give the same diagnosis as the whole log."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopeval import Transitions
from scopeval.logs.diagnose import diagnose
from scopeval.logs.statistics import LogFacts, LogStatistics, RowCount, Times
from small_worlds import random_rows

sizes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "states": st.integers(1, 6),
        "actions": st.integers(1, 4),
        "horizon": st.integers(1, 30),
        "episodes": st.integers(1, 60),
        "end": st.sampled_from([0.0, 0.02, 0.2, 0.7]),
        "cut": st.sampled_from([0.0, 0.02, 0.2, 0.7]),
        "vectors": st.booleans(),
        "exact": st.booleans(),
    }
)


def clean_log(seed, states, actions, horizon, episodes, end, cut, vectors, exact):
    """Episodes of a random MDP; with `exact`, rewards and costs take few values."""
    rng = np.random.default_rng(seed)
    moves = random_rows(rng, states, actions, states)
    places = rng.normal(size=(states, 3))
    first = random_rows(rng, states)
    rows = []
    for episode in range(episodes):
        state = int(rng.choice(states, p=first))
        for t in range(horizon):
            action = int(rng.integers(actions))
            following = int(rng.choice(states, p=moves[state, action]))
            ends, cuts = rng.random() < end, rng.random() < cut
            reward, cost = rng.normal(), rng.random()
            if exact:
                reward, cost = float(following == 0), float(action)
            # nothing follows a terminated row, so that its next_obs may be anything
            after = int(rng.integers(states)) if ends else following
            rows.append((t, state, action, reward, cost, after, ends, episode, cuts))
            state = following
            if ends or cuts:
                break
    t, obs, action, reward, cost, after, ended, ids, cuts = map(np.array, zip(*rows, strict=True))
    if vectors:
        obs, after = places[obs], places[after]
    return Transitions(t, obs, action, reward, cost, after, ended), ids, cuts


def arranged(log, ids, cuts, order, rng):
    """The same rows in another order that a correct log may have."""
    rows = np.arange(len(log))
    if order == "shuffled":
        rows = rng.permutation(len(log))
    elif order == "by time":
        rows = np.lexsort((ids, log.t))
    elif order == "thinned":
        kept = np.flatnonzero(rng.random(len(log)) < rng.uniform(0.3, 1.0))
        rows = kept if kept.size else rows[:1]
    elif order == "side by side":
        lanes, stretch = int(rng.integers(2, 6)), int(rng.integers(1, 12))
        lane = ids % lanes
        place = np.empty(len(log), np.int64)
        for one in range(lanes):
            mine = np.flatnonzero(lane == one)
            place[mine] = np.arange(len(mine)) // stretch
        rows = np.lexsort((rows, lane, place))
    return log.select(rows), ids[rows], cuts[rows]


ORDERS = ["episodes", "shuffled", "by time", "thinned", "side by side"]


@settings(max_examples=300, deadline=None)
@given(sizes, st.sampled_from(ORDERS), st.booleans(), st.booleans())
def test_clean_logs_are_never_refused(size, order, with_ids, with_cuts):
    rng = np.random.default_rng(size["seed"])
    log, ids, cuts = arranged(*clean_log(**size), order, rng)
    found = diagnose(log, horizon=size["horizon"], actions=size["actions"], states=size["states"])
    assert found.errors == ()
    statistics = LogStatistics()
    statistics.add(log, episode=ids if with_ids else None, truncated=cuts if with_cuts else None)
    facts = statistics.facts()
    if order == "episodes":
        assert facts.clashes == facts.continued == facts.jumps == RowCount()
        assert facts.disorder == 0
    np.testing.assert_array_equal(facts.times.rows, np.bincount(log.t))
    assert facts.times.starts.sum() == facts.times.ends.sum() == len(log) - facts.linked


@settings(max_examples=200, deadline=None)
@given(
    sizes,
    st.sampled_from(ORDERS),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_batches_give_the_same_diagnosis(size, order, with_ids, lie, lengths):
    rng = np.random.default_rng(size["seed"])
    log, ids, cuts = arranged(*clean_log(**size), order, rng)
    if lie:
        columns = [log.t, log.obs, log.action, log.reward, log.cost, rng.permutation(log.next_obs)]
        log = Transitions(*columns, rng.permutation(log.terminated))
    whole, parts = LogStatistics(), LogStatistics()
    whole.add(log, episode=ids if with_ids else None, truncated=cuts)
    start = k = 0
    while start < len(log):
        part = slice(start, start + lengths[k % len(lengths)])
        parts.add(log.select(part), episode=ids[part] if with_ids else None, truncated=cuts[part])
        start, k = part.stop, k + 1
    assert_same(whole.facts(), parts.facts())
    if not with_ids:
        batches = [log.select(slice(i, i + 7)) for i in range(0, len(log), 7)]
        one, other = diagnose(log), diagnose(iter(batches))
        assert (one.errors, one.warnings) == (other.errors, other.warnings)


def assert_same(one: LogFacts, other: LogFacts) -> None:
    for field in fields(LogFacts):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, Times):
            for part in fields(Times):
                np.testing.assert_array_equal(getattr(mine, part.name), getattr(theirs, part.name))
        elif field.name == "clash_size":
            assert mine == pytest.approx(theirs, rel=1e-9)
        else:
            assert mine == theirs, field.name


@settings(max_examples=100, deadline=None)
@given(sizes.filter(lambda size: size["states"] > 2 and size["horizon"] > 4), st.booleans())
def test_lies_are_found_where_there_is_evidence(size, shift):
    log, _, _ = clean_log(**(size | {"episodes": 60, "end": 0.02, "cut": 0.0}))
    wrong = np.roll(log.next_obs, 1, axis=0) if shift else log.obs
    lie = Transitions(log.t, log.obs, log.action, log.reward, log.cost, wrong, log.terminated)
    moved = (log.next_obs != wrong).reshape(len(log), -1).any(axis=1)
    pairs = (np.diff(log.t) == 1) & ~log.terminated[:-1]
    share = (moved[:-1] & pairs).sum() / pairs.sum()
    if not 0.05 < share < 0.2:  # between them the count decides
        assert bool(diagnose(lie).errors) == bool(share > 0.05)


@pytest.mark.parametrize("seed", range(20))
def test_samples_of_large_logs_do_not_depend_on_batches(seed, monkeypatch):
    """With little room, most contents are dropped; chunks are smaller than batches, and larger."""
    monkeypatch.setattr("scopeval.logs.statistics.CAPACITY", 400)
    monkeypatch.setattr("scopeval.logs.statistics.CHUNK", 16)
    rng = np.random.default_rng(seed)
    size = {"states": 4, "actions": 3, "horizon": 12, "episodes": 60, "end": 0.02, "cut": 0.02}
    log, _, _ = clean_log(seed, **size, vectors=bool(seed % 2), exact=False)
    copies = int(rng.integers(1, 4))
    log = Transitions.concat([log] * copies)
    whole, parts = LogStatistics(), LogStatistics()
    whole.add(log)
    borders = np.sort(rng.integers(len(log), size=20))
    for start, stop in zip([0, *borders], [*borders, len(log)], strict=True):
        parts.add(log.select(slice(start, stop)))
    assert_same(whole.facts(), parts.facts())
    assert whole.facts().repeats.copies == copies
    assert not whole.facts().repeats.exact
