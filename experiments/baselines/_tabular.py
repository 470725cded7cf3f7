"""Independent runs of a baseline in a finite MDP: parameters of the target, and threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from scopeval._parallel import fan_out
from scopeval.arrays import Floats
from scopeval.errors import InputError
from scopeval.exact import TabularMDP, policy_table
from scopeval.policies.adapters import TabularPolicy

#: Pieces that runs are divided into: more than threads, so that none waits long for the others.
PIECES = 64


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


def share_runs(work: Callable[[int, int], None], runs: int, threads: int | None) -> None:
    """Call work(lo, hi) on pieces of the runs, which do not depend on each other."""
    edges = np.unique(np.linspace(0, runs, PIECES + 1).astype(int)).tolist()
    fan_out(lambda span: work(*span), pairwise(edges), threads=threads)
