"""The simulator's benchmark: its peers estimate the same."""

from __future__ import annotations

import pytest

from benchmarks import simulate
from scopeval import exact
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import InputError

MDP = Gridworld(5, seed=0).mdp()
PI = target_policies(1, 5)[0]


def test_sizes_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="multiple of side_by_side"):
        simulate.Config(peer_episodes=100)


def test_peers_of_the_simulator_estimate_the_same():
    """Each peer's mean is within 5 standard errors of the exact value: 6e-7."""
    config = simulate.Config(5, peer_episodes=640, side_by_side=16)
    world = simulate._World(MDP, PI, exact.design(MDP, PI))
    truth = exact.assess(MDP, PI, PI).value
    for mean, error in (
        simulate._vector_environment(world, config)(),
        simulate._vectorized(world, 20_000, 0),
    ):
        assert abs(mean - truth) < 5 * error
