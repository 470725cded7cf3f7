"""The compiled part of `scopeval.policies.protocols`: a softmax that costs little for one row."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

compiled = nb.njit(cache=True, nogil=True, error_model="numpy")


@compiled  # type: ignore[untyped-decorator]
def softmax(logits: Any) -> Any:
    """Probabilities [B, A] in double precision, and whether all of them are numbers."""
    B, A = logits.shape
    probs = np.empty((B, A))
    valid = True
    for i in range(B):
        top = -np.inf
        for a in range(A):
            top = max(top, np.float64(logits[i, a]))
        total = 0.0
        for a in range(A):
            probs[i, a] = np.exp(np.float64(logits[i, a]) - top)
            total += probs[i, a]
        for a in range(A):
            probs[i, a] /= total
        valid = valid and total == total
    return probs, valid
