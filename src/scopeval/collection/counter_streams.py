"""Random numbers as a function of a seed, the episode and the step.

Philox is counter-based: the numbers of every (episode, step) begin at a place of their own. So they
are never repeated, a restart continues them, and any decision can be drawn again for an audit.
"""

from __future__ import annotations

import numpy as np

__all__ = ["CounterStreams"]

_STREAM = 1  # the last word of the counter; other uses of the same key would take another


class CounterStreams:
    """The random numbers of one campaign, or of one `EpisodeLog`.

    Args:
        seed: of all of them.
    """

    def __init__(self, seed: int) -> None:
        self._key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        self._shared = np.random.Philox(key=self._key)
        self._fresh = self._shared.state
        self._generator = np.random.Generator(self._shared)

    def at(self, episode: int, step: int) -> np.random.Generator:
        """A generator for one decision."""
        counter = np.array([0, step, episode, _STREAM], np.uint64)
        return np.random.Generator(np.random.Philox(key=self._key, counter=counter))

    def now_at(self, episode: int, step: int) -> np.random.Generator:
        """The same numbers; the generator is moved by the next call.

        A new generator asks the system for entropy that it does not need, which takes longer than a
        decision.
        """
        self._fresh["state"]["counter"][:] = (0, step, episode, _STREAM)
        self._shared.state = self._fresh
        return self._generator
