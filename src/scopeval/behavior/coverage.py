"""Which share of the target policy's own steps the logs cover."""

from __future__ import annotations

import numpy as np

from scopeval.critics.log_rows import Log
from scopeval.critics.sweep_data import Ground
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["support_of"]


def support_of(ground: Ground, log: Log, target: Policy | ContinuousPolicy, horizon: int) -> float:
    """Share of the target's own steps that the logs show.

    State numbers: the target is followed forwards through what was logged (and borrowed); a step
    counts if its pair was logged. Where nothing is known of a pair, all that would follow is lost.
    Vectors never repeat: whether the action was logged at all.
    """
    A, points = log.actions, ground.at(0)
    if points.actions is not None:
        return 1.0
    assert isinstance(target, Policy)
    if points.obs.ndim > 1:
        taken = np.bincount(log.rows.action, minlength=A) > 0
        pi = target.probs(points.obs, 0)
        return float(points.logged @ (pi * taken).sum(axis=1))
    S = len(points.obs)
    here = points.initial
    shown, total = 0.0, float(horizon)
    for t in range(horizon):
        rows = ground.rows[min(t, len(ground.rows) - 1)]
        pair = rows.obs * A + rows.action
        count = np.bincount(pair, rows.weight, S * A)
        logged = np.bincount(pair, rows.weight * ~rows.borrowed, S * A) > 0
        step = (here[:, None] * target.probs(points.obs, t)).ravel()
        shown += float(step @ logged)
        flow = step[pair] * rows.weight / count[pair]
        here = np.bincount(rows.next_obs, flow * rows.alive, S).astype(np.float64)
        total -= float(flow @ (1.0 - rows.alive)) * (horizon - 1 - t)  # over: no logs needed
    return float(shown / max(total, 1e-12))
