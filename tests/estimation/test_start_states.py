"""The part of the variance that comes from the starts, removed by further starts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from scopeval import design, exact, simulate
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.estimation.running_moments import quantile
from scopeval.estimation.start_states import adjust_starts, start_share

#: A law of one episode: chance, v at its start, value. And of a start: chance, v.
EPISODE = [(0.2, 1.0, 3.0), (0.3, 1.0, -1.0), (0.1, 4.0, 5.0), (0.4, 4.0, 2.5)]
START = [(0.5, 1.0), (0.5, 4.0)]


def error_of(found):
    return found.half_width / quantile(0.05)


def test_unbiased_with_an_unbiased_variance_by_enumeration():
    """All outcomes of two episodes and three further starts, with v that is not the value."""
    n, m = 2, 3
    mean = square = variance = 0.0
    for episodes in product(EPISODE, repeat=n):
        for starts in product(START, repeat=m):
            chance = np.prod([e[0] for e in episodes]) * np.prod([s[0] for s in starts])
            found = adjust_starts(
                [e[2] for e in episodes], [e[1] for e in episodes], [s[1] for s in starts]
            )
            mean += chance * found.estimate
            square += chance * found.estimate**2
            variance += chance * error_of(found) ** 2
    true = sum(p * value for p, _, value in EPISODE)
    assert mean == pytest.approx(true, abs=1e-12)
    assert variance == pytest.approx(square - mean**2, abs=1e-12)


def test_a_true_value_leaves_the_share_of_the_starts_that_theory_says():
    """v = E[value | start]: of Var(v) / n only Var(v) / (n + m) is left, in expectation."""
    rng = np.random.default_rng(0)
    n, m = 20_000, 60_000
    own, others = rng.normal(0, 2.0, n), rng.normal(0, 2.0, m)
    values = own + rng.normal(0, 1.0, n)
    error = error_of(adjust_starts(values, own, others))
    assert error**2 == pytest.approx(1.0 / n + 4.0 / (n + m), rel=0.05)
    assert start_share(values, own) == pytest.approx(0.8, abs=0.02)


def test_intervals_cover():
    """2,000 intervals of 95 %; fails on right code with probability 1e-6."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        own, others = rng.normal(0, 2.0, 100), rng.normal(0, 2.0, 300)
        values = 3.0 + 0.5 * own + rng.normal(0, 1.0, 100)  # v is twice too large
        found = adjust_starts(values, own, others)
        hits += found.low <= 3.0 <= found.high
    assert abs(hits / 2000 - 0.95) < 4.9 * np.sqrt(0.05 * 0.95 / 2000) + 0.005


def test_start_values_of_a_design_explain_the_starts():
    """A Gridworld that starts anywhere: exact variances by dynamic programming."""
    world = Gridworld(5, seed=0).mdp()
    anywhere = exact.TabularMDP(
        np.full(world.states, 1.0 / world.states),
        world.transition,
        world.reward,
        world.cost,
        world.horizon,
    )
    target = target_policies(1, 5)[0]
    learned = design(gridworld_logs(anywhere, 1000, seed=0), target, horizon=5)
    alone = exact.assess(anywhere, target, target)
    v = exact.values(anywhere, target).v[0]
    of_starts = float(anywhere.initial @ (v - anywhere.initial @ v) ** 2)
    n, m = 4000, 40_000
    run = simulate.trajectories(anywhere, target, episodes=n, seed=0, threads=1)
    values = run.rewards.sum(axis=1)
    own = learned.start_values(run.states[:, 0])
    others = learned.start_values(np.random.default_rng(0).integers(world.states, size=m))
    found = adjust_starts(values, own, others)
    assert of_starts > 0.3 * alone.variance
    expected = (alone.variance - of_starts) / n + of_starts / (n + m)
    assert error_of(found) ** 2 == pytest.approx(expected, rel=0.15)
    assert abs(found.estimate - alone.value) < 4.9 * error_of(found)


def test_wrong_input_is_refused():
    with pytest.raises(InputError, match="own: got 2 values of starts for 3 episodes"):
        adjust_starts([1.0, 2.0, 3.0], [1.0, 2.0], [1.0, 2.0])
    with pytest.raises(InputError, match="expected at least 2 each"):
        adjust_starts([1.0, 2.0], [1.0, 2.0], [1.0])
    with pytest.raises(InputError, match="others"):
        adjust_starts([1.0, 2.0], [1.0, 2.0], [1.0, np.nan])
    assert start_share([1.0, 1.0], [0.0, 1.0]) == 0.0
