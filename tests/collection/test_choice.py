"""One decision at a time is made of the same bits as many at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scopeval.arrays import check_probs
from scopeval.collection.choice import Decider
from scopeval.collection.episode_log import check_number, check_reading
from scopeval.errors import InputError
from scopeval.policies.drawing import draw_action, draw_actions
from scopeval.policies.protocols import probs_of

some = st.one_of(st.just(0.0), st.floats(0, 1))
amounts = hnp.arrays(np.float64, st.integers(1, 12), elements=some)


class Fixed:
    """A policy that answers the same everywhere."""

    def __init__(self, row):
        self.row = row

    def probs(self, obs, t):
        return np.tile(self.row, (len(obs), 1))


@given(amounts, st.floats(0, 1, exclude_max=True))
def test_one_action_is_drawn_as_many_are(row, uniform):
    assert draw_action(row, uniform) == draw_actions(row[None], np.array([uniform]))[0]


@given(amounts.filter(lambda row: row.sum() > 1e-3), st.sampled_from([np.float64, np.float32]))
def test_an_offer_has_the_bits_of_all_checks(row, dtype):
    policy = Fixed((row / row.sum()).astype(dtype))
    decider, obs = Decider(policy, None), np.array([0])
    expected = check_probs("target", probs_of(policy, obs, 0), axes=("row",))
    for _ in range(2):  # the first answer tells how many actions there are
        found = decider.offered(obs, 0, np.random.default_rng(0))
        np.testing.assert_array_equal(found.probs, expected)
        np.testing.assert_array_equal(found.actions, [np.arange(len(row))])


@pytest.mark.parametrize("row", [[0.5, 0.6], [1.5, -0.5], [np.nan, 1.0], [np.inf, 0.0]])
def test_an_offer_that_turns_bad_is_refused(row):
    policy = Fixed([0.25, 0.75])
    decider, obs = Decider(policy, None), np.array([0])
    decider.offered(obs, 0, np.random.default_rng(0))
    policy.row = row
    with pytest.raises(InputError, match=r"policy at t=3.*row=0"):
        decider.offered(obs, 3, np.random.default_rng(0))


@pytest.mark.parametrize("value", [3, -(2**63) + 1, 2**63 - 1])
@pytest.mark.parametrize("like", [None, ()])
def test_a_state_is_read_alike_in_every_form(value, like):
    read = [check_reading("obs", x, 0, like) for x in (value, np.int64(value), np.array(value))]
    assert {(x.dtype, x.shape, x.item()) for x in read} == {(np.dtype(np.int64), (), value)}
    with pytest.raises(InputError, match="got shape"):
        check_reading("obs", value, 0, (2,))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, True, "1"])
def test_a_number_that_is_none_is_refused(value):
    with pytest.raises(InputError, match="expected a finite number"):
        check_number("reward", value, 0)
