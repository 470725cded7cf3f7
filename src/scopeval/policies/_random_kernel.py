"""Random numbers for compiled code: SplitMix64 (Steele, Lea, Flood 2014), and drawing by them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)


@compiled  # type: ignore[untyped-decorator]
def mix(x: Any) -> Any:
    """SplitMix64's output function."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


@compiled  # type: ignore[untyped-decorator]
def next_random(state: Any) -> Any:
    """A random 64-bit number, and the state after it."""
    state = state + _GOLDEN
    return mix(state), state


@compiled  # type: ignore[untyped-decorator]
def stream(seed: Any, episode: Any) -> Any:
    """Where episode `episode` of run `seed` starts its random stream."""
    return mix(mix(np.uint64(seed) + _GOLDEN) + np.uint64(episode) * _GOLDEN)


@compiled  # type: ignore[untyped-decorator]
def uniform(state: Any, index: Any) -> Any:
    """The index-th number in [0, 1) of a stream; any of them can be had without the others."""
    x = mix(state + (np.uint64(index) + np.uint64(1)) * _GOLDEN)
    return (x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled  # type: ignore[untyped-decorator]
def drawn(probs: Any, u: float) -> int:
    """The action of a uniform number; never one of probability zero. See `policies.drawing`."""
    chosen = 0
    running = 0.0
    for a in range(len(probs)):
        if probs[a] > 0.0:
            chosen = a
            running += probs[a]
            if u < running:
                break
    return chosen
