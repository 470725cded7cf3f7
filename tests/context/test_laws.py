"""Copies in a history, and histories that contain the episodes, are named; chance is not."""

from __future__ import annotations

import numpy as np

from scopeval import History, estimate
from scopeval.context.laws import copies
from scopeval.envs.exogenous import simulate
from scopeval.envs.queue import Queue

QUEUE = Queue(horizon=12)


def test_copied_paths_and_own_paths_are_named_in_the_result():
    rng = np.random.default_rng(0)
    years, paths = QUEUE.paths(3000, rng), QUEUE.paths(200, rng)
    ran = simulate(QUEUE, QUEUE.policies()[0], paths, rng)
    for history, text in (
        (np.repeat(years[:50], 60, axis=0), "only 50 different paths"),
        (np.concatenate([years, paths]), "100% of the episodes' own paths"),
    ):
        result = estimate(ran, context=History(history, "arrivals", block=1))
        assert any(text in warning for warning in result.diagnostics.warnings)
    fine = estimate(ran, context=History(years, "arrivals", block=1))
    assert fine.context.copied == ()


def test_inputs_of_few_values_repeat_themselves_by_chance():
    """100 histories of coins, three in a row: 8 different paths, and none is a wrong table."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        history = History(rng.integers(2, size=(500, 3, 1)).astype(float), "coin", block=1)
        own = rng.integers(2, size=(int(rng.integers(20, 300)), 3, 1)).astype(float)
        assert copies(history, own) == ()
