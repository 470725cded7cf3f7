"""What the compiled trainings of small networks share: a step of Adam.

A loop that calls `adam` compiles it with its own rules of rounding: fast arithmetic in `mlp`, every
operation as it is written in `model`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["adam"]

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
