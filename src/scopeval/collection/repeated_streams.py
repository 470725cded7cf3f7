"""Random numbers that were used twice, seen from what they chose.

A generator that begins anew with the same seed every day draws the same numbers every day: at the
same time step and observation the same action follows, always. The episodes are then not
independent, and no interval made of them is valid.
"""

from __future__ import annotations

import math

import numpy as np

from scopeval.collection.episodes import Episodes

__all__ = ["repeated_streams"]

#: Chance of a false warning, at most.
CHANCE = 1e-9
#: Time steps that are looked at.
STEPS = 64


def repeated_streams(episodes: Episodes) -> str | None:
    """A warning where all episodes choose alike; None: they do not, or there is nothing to see.

    Of n independent draws with probability p of the action seen, all are the same with probability
    p^n + (1 - p)^n at most. The product over all observations that were met more than once at the
    same time step must stay above `CHANCE`.
    """
    chance = groups = 0.0
    for t in range(min(episodes.horizon, STEPS)):
        rows = np.flatnonzero((episodes.length > t) & ~episodes.by_target)
        if len(rows) < 2:
            continue
        _, group = np.unique(episodes.obs[rows, t], axis=0, return_inverse=True)
        group = group.ravel()
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        sizes = np.diff(starts, append=len(order))
        first = rows[order[np.repeat(starts, sizes)]]
        own = rows[order]
        same_p = np.abs(episodes.behavior_prob[own, t] - episodes.behavior_prob[first, t]) < 1e-9
        differs = episodes.action[own, t] != episodes.action[first, t]
        if (differs.any(axis=-1) if differs.ndim == 2 else differs).any():
            return None
        alike = np.logical_and.reduceat(same_p, starts)
        p = episodes.behavior_prob[rows[order[starts]], t]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.logaddexp(sizes * np.log(p), sizes * np.log1p(-p))
        counted = alike & (sizes > 1)
        chance += float(logs[counted].sum())
        groups += float(counted.sum())
    if chance >= math.log(CHANCE):
        return None
    return (
        f"at all {groups:,.0f} places that were met more than once the same action was chosen, by "
        "chance less likely than one in a billion: the random numbers seem to be repeated, as by a "
        "generator that is seeded anew for every episode. Such episodes are not independent, and "
        "the interval is too narrow; use one generator for all, or EpisodeLog.act"
    )
