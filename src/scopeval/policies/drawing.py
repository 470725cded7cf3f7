"""The drawing of an action from probabilities, by a uniform number.

The action is the first whose cumulative probability exceeds the number; where rounding leaves the
sum below it, the last one of positive probability. An action of probability 0 is never drawn.
`policies._random_kernel.drawn` is the same for compiled code, bit for bit.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats, Ints

__all__ = ["draw_action", "draw_actions"]


def draw_actions(probs: Floats, uniforms: Floats) -> Ints:
    """One action for each row of probabilities [B, A] and uniform number [B]."""
    cumulative = np.cumsum(probs, axis=1)
    chosen = (uniforms[:, None] >= cumulative).sum(axis=1)
    last = probs.shape[1] - 1 - np.argmax(probs[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(chosen, last))


def draw_action(probs: Floats, uniform: float) -> int:
    """`draw_actions` for one row, a controller may be waiting."""
    chosen = int(probs.cumsum().searchsorted(uniform, "right"))
    last = len(probs) - 1
    if not probs[last] > 0:
        last -= int(np.argmax(probs[::-1] > 0))
    return min(chosen, last)
