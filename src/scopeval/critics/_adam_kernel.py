"""What the compiled trainings of small networks share: a step of Adam, and random numbers.

A loop that calls `adam` compiles it with its own rules of rounding: fast arithmetic in `mlp`, every
operation as it is written in `model`.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

__all__ = ["adam", "next_random"]

ONE = np.float32(1.0)


def adam(w: Any, g: Any, m: Any, v: Any, scale: Any, over: Any) -> None:
    """One step of Adam on the weights w, with gradient g and running means m and v.

    scale is the rate / (1 - 0.9^step) and over is 1 / (1 - 0.999^step), as float32: they correct
    m and v for their start at zero.
    """
    a, b = np.float32(0.9), np.float32(0.999)
    for i in range(len(w)):
        m[i] = a * m[i] + (ONE - a) * g[i]
        v[i] = b * v[i] + (ONE - b) * g[i] * g[i]
        w[i] -= scale * m[i] / (np.sqrt(v[i] * over) + np.float32(1e-8))


@nb.njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def next_random(state: Any) -> Any:
    """SplitMix64: a random 64-bit number, and the state after it."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31)), state
