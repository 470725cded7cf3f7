"""What the compiled baselines need of a finite MDP, and threads that share independent runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats
from scopeval.collection.simulated import absorbing
from scopeval.errors import InputError
from scopeval.exact import TabularMDP, policy_table
from scopeval.policies.adapters import TabularPolicy
from scopeval.simulate import plain_arrays


def world(mdp: TabularMDP) -> tuple[object, ...]:
    """The MDP's plain arrays, and the states where episodes end."""
    return (*plain_arrays(mdp), absorbing(mdp))


def parameters(mdp: TabularMDP, target: ArrayLike | TabularPolicy, positions: bool) -> Floats:
    """The target's table over what its parameters belong to: [1, S, A] or [T, S, A]."""
    table = policy_table(mdp, "target", target)
    if not positions:
        return np.ascontiguousarray(table)
    if (table != table[0]).any():
        raise InputError(
            "positions: the target depends on time, so its parameters belong to (t, position); "
            "try positions=False"
        )
    return np.ascontiguousarray(table[:1])


def spread_runs(work: Callable[[int, int], None], runs: int, threads: int | None) -> None:
    """Call work(lo, hi) on pieces of the runs, which know nothing of each other."""
    workers = min(threads or os.cpu_count() or 1, runs)
    edges = np.linspace(0, runs, 4 * workers + 1).astype(int)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, edges[:-1].tolist(), edges[1:].tolist()))


def whole(name: str, value: int, least: int) -> int:
    """A whole number that is large enough."""
    if isinstance(value, bool) or int(value) != value or value < least:
        raise InputError(f"{name}: got {value!r}, expected a whole number >= {least}")
    return int(value)
