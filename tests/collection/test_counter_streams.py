"""Random numbers as a function of seed, episode and step."""

from __future__ import annotations

import numpy as np

from scopeval.collection.choice import CounterStreams


def test_the_generator_that_is_moved_gives_the_numbers_of_a_new_one():
    streams = CounterStreams(7)
    for episode, step in [(0, 0), (3, 5), (2**31, 9), (3, 5), (0, 1)]:
        new, moved = streams.at(episode, step), streams.now_at(episode, step)
        np.testing.assert_array_equal(new.random(5), moved.random(5))
        assert new.integers(10, dtype=np.int32) == moved.integers(10, dtype=np.int32)
        np.testing.assert_array_equal(new.normal(size=3), moved.normal(size=3))
