"""What each stage may cost, where less than the target policy's own cost is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from scopeval.evaluation.stage_report import Payback, Stage
from scopeval.evaluation.stages import PromiseOf

__all__ = ["StageBudget", "unspent"]

#: No stage is asked for less than this share of the cost that is asked for in all.
LEAST_SHARE = 0.7

#: The largest part of a cost budget that is left unspent because of what earlier stages cost.
MOST_UNSPENT = 0.03


class StageBudget:
    """The relative cost that is asked of the next stage.

    Without logs the first stage is the target policy itself, whose relative cost is 1. With the
    promise "total" later stages are asked for less than 1 + epsilon, so that all episodes together
    keep it; costs are counted as the designs predict them, with the doubt about them.

    Args:
        epsilon: the promise.
        promise: what it is about.
        episodes: of the whole plan; None where it has no end.
    """

    def __init__(self, epsilon: float, promise: PromiseOf, episodes: int | None) -> None:
        self._allowed, self._promise, self._episodes = 1.0 + epsilon, promise, episodes
        self._done, self._spent, self._last = 0, 0.0, 1.0
        self._after: int | None = None

    def add(self, episodes: int, cost: float) -> None:
        """Count a stage with its predicted relative cost, and the doubt about it."""
        before = self._spent - self._allowed * self._done
        self._done += episodes
        self._spent += episodes * cost
        self._last = cost
        debt = self._spent - self._allowed * self._done
        if debt > 1e-9 * self._done:
            self._after = None
        elif self._after is None:
            saving = self._allowed - cost
            needed = math.ceil(before / saving - 1e-9) if saving > 0 and before > 0 else episodes
            self._after = self._done - episodes + min(max(needed, 0), episodes)

    @property
    def asked(self) -> float:
        """Relative cost that is asked of the next stage."""
        if self._promise == "stage" or self._allowed >= 1.0 or not self._done:
            return self._allowed
        debt = self._spent - self._allowed * self._done
        # without an end: within as many episodes as were run so far
        left = self._done if self._episodes is None else max(self._episodes - self._done, 1)
        return max(self._allowed - max(debt, 0.0) / left, LEAST_SHARE * self._allowed)

    @property
    def payback(self) -> Payback:
        """What is predicted of all episodes together."""
        spent = self._spent / max(self._done, 1)
        return Payback(self._promise, self._allowed, spent, self._after)


def unspent(stages: Iterable[Stage], size: int) -> float:
    """The part of its cost budget that the design of the next stage leaves unspent.

    Critics from few episodes are wrong about costs, and the next ones mostly in the same direction.
    So the next design expects the excess that the certificates of earlier stages estimate, and pays
    it back within its own episodes.

    Args:
        stages: that have ended.
        size: episodes of the next one.
    """
    judged = [
        (stage.certificate.episodes, stage.certificate.difference.estimate / own)
        for stage in stages
        if stage.certificate is not None and (own := stage.certificate.target_cost) > 0.0
    ]
    done = sum(n for n, _ in judged)
    if not done:
        return 0.0
    excess = math.fsum(n * one for n, one in judged) / done
    return min(max(excess, 0.0) * (1.0 + done / max(size, 1)), MOST_UNSPENT)
