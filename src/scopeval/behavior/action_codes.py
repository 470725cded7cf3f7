"""Do logged actions fit the target policy only if their codes are exchanged?

A log may hold any controllers, so that actions which do not fit the target policy say nothing. But
in episodes of the target itself, with other codes, the frequencies of actions in every state fit pi
after one permutation of the codes, and not before. Pearson's chi-square judges both. Controllers
other than the target fit no permutation, unless they are its mirror image.
"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.models.rows import Rows
from scopeval.policies.adapters import TabularPolicy

__all__ = ["exchanged_codes"]

#: Least expected number of rows of an action, for the chi-square law to hold.
LEAST_EXPECTED = 5.0
#: Standard errors of chi-square: at most so many for codes that fit, at least so many for codes
#: that do not. A normal law is beyond 4 in 3 of 100,000 logs.
FITS, MISFITS = 4.0, 8.0


def exchanged_codes(rows: Rows, target: TabularPolicy) -> str | None:
    """What to tell where another coding of the actions fits the target policy, and theirs not."""
    from scipy.optimize import linear_sum_assignment

    A = target.actions
    pi = np.asarray(target.probs(np.asarray(rows.obs), rows.t))
    state = np.unique(rows.obs, return_inverse=True)[1].ravel()
    S = int(state.max()) + 1
    weight = np.asarray(rows.weight, np.float64)
    counts: Floats = np.bincount(state * A + rows.action, weight, S * A).astype(np.float64)
    logged = counts.reshape(S, A)
    each = [np.bincount(state, weight * pi[:, b], S) for b in range(A)]
    expected: Floats = np.stack(each, axis=1).astype(np.float64)
    if _distance(logged, expected) < MISFITS:
        return None
    # the most likely coding; a small share for actions that the target never takes
    likely = np.log(np.maximum(expected / expected.sum(axis=1, keepdims=True), 1e-3))
    code, meant = linear_sum_assignment(-(logged.T @ likely))
    if (code == meant).all() or not _distance(logged, expected[:, meant]) < FITS:
        return None
    swaps = ", ".join(f"{a} as {b}" for a, b in zip(code, meant, strict=True) if a != b)
    return (
        "the logged actions do not fit the target policy as they are coded, but do so in every "
        f"state if {swaps} is read: are these episodes of the target policy with other action "
        "codes? Every number about actions is then wrong"
    )


def _distance(logged: Floats, expected: Floats) -> float:
    """Chi-square above its mean, in standard errors; nothing to compare: 0.

    Actions that are expected to be rare in a state are one action.
    """
    common = expected >= LEAST_EXPECTED
    rare_logged = np.where(common, 0.0, logged).sum(axis=1)
    rare = np.where(common, 0.0, expected).sum(axis=1)
    squares = np.where(common, (logged - expected) ** 2 / np.where(common, expected, 1.0), 0.0)
    together = rare >= LEAST_EXPECTED
    # too rare even together: their rows count against a least expectation
    more = (rare_logged - rare) ** 2 / np.maximum(rare, LEAST_EXPECTED)
    free = float(np.maximum(common.sum(axis=1) + together - 1, 0).sum())
    if free == 0.0:
        return 0.0
    return float((squares.sum() + more.sum() - free) / np.sqrt(2.0 * free))
