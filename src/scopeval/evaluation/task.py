"""What an evaluation is asked for, with defaults filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scopeval.context.history import History
from scopeval.errors import InputError
from scopeval.question.inference import Inference
from scopeval.question.promise import Limit, Promise
from scopeval.question.question import Question
from scopeval.safety.cost_bound import CostBound
from scopeval.safety.guard import Guard

__all__ = ["EvaluationTask", "limits_of_guard"]


@dataclass(frozen=True)
class EvaluationTask:
    """What is estimated, promised and watched.

    Attributes:
        question: with what was left open filled in.
        promise: what is promised, likewise.
        inference: how the result follows from the episodes.
        limits: act within an episode.
        costs: there are any.
        seed: of the episodes.
        bound: what is known about the costs of episodes; None: nothing.
        context: paths of what no action changes; None: none.
        note: a warning for the user; None: there is none.
        baseline: there is one, which takes the rest of an episode that passes its limit.
    """

    question: Question
    promise: Promise
    inference: Inference
    limits: tuple[Limit, ...]
    costs: bool
    seed: int
    bound: CostBound | None = None
    context: History | None = None
    note: str | None = None
    baseline: bool = False

    def guard(self, epsilon: float | None = None) -> Guard | None:
        """Watches the promise and the limits; None: nothing is to be watched.

        Args:
            epsilon: watch another promise than that of the evaluation.
        """
        if not self.costs or not self.promise.guarded:
            return None
        episode, total = limits_of_guard(self.limits)
        return Guard(
            epsilon=self.promise.epsilon if epsilon is None else epsilon,
            alpha=self.inference.alpha,
            episode_cost_limit=episode,
            goes_on=self.baseline,
            total_cost_limit=total,
            bound=self.bound,
            whose=self.promise.compared,
        )


def limits_of_guard(limits: Sequence[Limit]) -> tuple[float | None, float | None]:
    """The most that an episode, and that all of them, may cost.

    Raises:
        InputError: a limit that only a campaign knows.
    """
    for limit in limits:
        if limit.step is not None or limit.action != "hand over":
            raise InputError(
                f"promise: got {limit!r}, expected Limit(episode=..., total=...) that hands over; "
                "limits of a step, and other actions, are for campaigns"
            )
    episode = [x.episode for x in limits if x.episode is not None]
    total = [x.total for x in limits if x.total is not None]
    return min(episode, default=None), min(total, default=None)
