"""A controller that returns one action, as a policy."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import deterministic
from scopeval.errors import InputError


def test_the_action_has_probability_one():
    vectors = np.array([[20.0, 1.0], [22.0, 1.0]])
    for function in (
        lambda obs, t: 2 if obs[0] > 21.0 else t,
        lambda obs, t=1: np.int64(2) if obs[0] > 21.0 else t,
    ):
        old = deterministic(function, actions=3)
        assert old.probs(vectors, 1).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    alone = deterministic(lambda obs: obs % 2, actions=2)
    assert alone.probs(np.array([3, 4]), 0).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert alone.probs(np.array([3, 4]), np.array([0, 1])).shape == (2, 2)


@pytest.mark.parametrize("answer", [3, -1, 0.5, "left", [0, 1], None])
def test_what_is_no_action_is_named(answer):
    old = deterministic(lambda obs, t: answer, actions=3)
    with pytest.raises(InputError, match=r"at t=4, expected the number of an action in 0\.\.2"):
        old.probs(np.array([1]), 4)


def test_what_is_no_controller_is_refused():
    with pytest.raises(InputError, match="function: got int, expected a function"):
        deterministic(3, actions=3)
    with pytest.raises(InputError, match="actions: got 0"):
        deterministic(lambda obs, t: 0, actions=0)
