"""The guard of a stage: it watches the stage's own promise, and that of all stages together."""

from __future__ import annotations

import numpy.typing as npt

from scopeval.safety.cost_bound import CostBound
from scopeval.safety.episode_costs import EpisodeCosts
from scopeval.safety.guard import Guard, GuardState
from scopeval.safety.promise import Whose

__all__ = ["StageGuard"]


class StageGuard(Guard):
    """Trips when the stage's own promise is refuted, or that of all stages together.

    A short stage alone cannot refute anything, but several of them can. The differences of costs
    are those of a martingale over all stages, so the guard of the whole is valid too.

    Args:
        whole: watches the promise of all stages together.
        epsilon: the stage's own promise.
        alpha: probability of a false alarm in this stage.
        bound: what is known about the costs of episodes; None: nothing.
        whose: what the promise compares with.
    """

    def __init__(
        self,
        whole: Guard,
        *,
        epsilon: float,
        alpha: float,
        bound: CostBound | None,
        whose: Whose = "target",
    ) -> None:
        super().__init__(epsilon=epsilon, alpha=alpha, bound=bound, whose=whose)
        self._whole = whole

    @property
    def state(self) -> GuardState:
        """Its state now; that of the whole if only the whole has tripped."""
        own, whole = super().state, self._whole.state
        return whole if whole.tripped and not own.tripped else own

    def add(
        self,
        costs: EpisodeCosts,
        *,
        spent: npt.ArrayLike | None = None,
        lost: float = 0.0,
        covered: bool = True,
    ) -> GuardState:
        """Take in a batch of finished episodes of the stage."""
        self._whole.add(costs, spent=spent, lost=lost, covered=covered)
        super().add(costs, spent=spent, lost=lost, covered=covered)
        return self.state

    def lose(self, costs: EpisodeCosts, *, spent: float) -> GuardState:
        """Take in an episode of the stage that was cut."""
        self._whole.lose(costs, spent=spent)
        super().lose(costs, spent=spent)
        return self.state
