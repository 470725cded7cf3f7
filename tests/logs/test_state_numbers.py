"""Tuples of discrete parts get one number, the same in logs and in collection."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from scopeval import Plant, collect, read_logs
from scopeval.errors import InputError
from scopeval.logs.state_numbers import StateNumbers

BLACKJACK = StateNumbers((32, 11, 2), (0, 0, 0))


def test_numbers_and_parts():
    space = spaces.Tuple([spaces.Discrete(3, start=5), spaces.Discrete(4), spaces.Discrete(2)])
    numbers = StateNumbers.of_space(space)
    assert numbers == StateNumbers((3, 4, 2), (5, 0, 0))
    assert numbers.states == 24
    every = [(a, b, c) for a in (5, 6, 7) for b in range(4) for c in range(2)]
    assert [int(numbers.number(parts)) for parts in every] == list(range(24))
    columns = numbers.parts(np.arange(24))
    assert list(zip(*(column.tolist() for column in columns), strict=True)) == every
    np.testing.assert_array_equal(numbers.number(columns), np.arange(24))
    assert int(BLACKJACK.number((14, 10, True))) == (14 * 11 + 10) * 2 + 1


def test_spaces_that_have_no_numbers():
    for space in (
        spaces.Discrete(3),
        spaces.Box(0, 1),
        spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1)]),
        spaces.MultiDiscrete([3, 3]),
        None,
    ):
        assert StateNumbers.of_space(space) is None


def test_parts_outside():
    for wrong, said in (
        ((1, 2), "2 parts, expected 3"),
        ((32, 0, 0), "part 0 is 32, expected 0 to 31"),
        ((0, -1, 0), "part 1 is -1"),
        ((0, 0.5, 0), "part 1 is float64"),
    ):
        with pytest.raises(InputError, match=said):
            BLACKJACK.number(wrong)
    with pytest.raises(InputError, match="got 704, expected numbers from 0 to 703"):
        BLACKJACK.parts([3, 704])


def test_blackjack_from_collection_to_log():
    assert StateNumbers.of_space(gymnasium.make("Blackjack-v1").observation_space) == BLACKJACK
    policy = np.tile([0.4, 0.6], (BLACKJACK.states, 1))
    episodes = collect(Plant("Blackjack-v1", cost="none"), policy, horizon=10, episodes=200, seed=0)
    assert not episodes.lost
    total, card, _ = BLACKJACK.parts(episodes.obs[:, 0])
    assert total.min() >= 4
    assert total.max() <= 21
    assert card.min() >= 1
    log = read_logs(episodes)
    assert log.discrete_obs
    assert log == read_logs(episodes.transitions())
    assert not any("obs" in note for note in log.notes)


def test_an_observation_outside_its_space_loses_its_episode():
    class Wrong(gymnasium.Env):
        observation_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)])
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return (0, int(seed % 2 and 7)), {}

        def step(self, action):
            return (1, 1), 0.0, True, False, {"cost": 0.0}

    episodes = collect(Wrong, np.full((4, 2), 0.5), horizon=2, episodes=20, seed=0)
    assert 0 < len(episodes.lost) < 20
    assert "is not in its space" in episodes.lost[0].reason


def test_logs_with_tuples():
    steps = 4
    pairs = [(k, 10, k % 2) for k in range(steps + 1)]
    rest = {"actions": [0] * steps, "rewards": np.arange(4.0), "costs": np.arange(4.0)}
    by_step = read_logs([{"observations": pairs, **rest}])
    columns = tuple(np.array(column) for column in zip(*pairs, strict=True))
    by_part = read_logs([{"observations": columns, **rest}])
    assert by_step == by_part
    assert by_part.obs.shape == (steps, 3)
    numbered = read_logs([{"observations": BLACKJACK.number(columns), **rest}])
    assert numbered.discrete_obs
