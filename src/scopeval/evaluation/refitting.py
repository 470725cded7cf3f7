"""Settings of an evaluation in stages, the stages' lengths, and the weights of their estimates.

Weights. The estimate of stage k is the mean of its episodes' values; it has mean J(pi) given all
earlier stages. The whole estimate is sum_k a_k (estimate of stage k) with sum_k a_k = 1. It is
unbiased if every a_k is decided before stage k. Weights 1 / variance that are divided by their sum
afterwards are not: the sum knows later stages, and these know what stage k showed. So each stage
takes its share of what earlier ones have left (`Shares`), and the last one takes the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from numpy.typing import NDArray

from scopeval.arrays import check_whole, is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.settings import FLOOR, LEAST_GAIN
from scopeval.behavior.summary import Prediction
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.protocols import Regression
from scopeval.errors import InputError

__all__ = [
    "Promise",
    "Refitting",
    "Shares",
    "expected_progress",
    "expected_variance",
    "stage_sizes",
]

#: What a cost budget below the target policy's own cost is about.
Promise = Literal["stage", "total"]

#: How much the cross-check counts in the variance that is expected of a design (as a power).
CHECK_SHARE = 0.3

#: Later designs are not expected to have less than the present variance divided by this.
MOST_PROGRESS = 2.0


@dataclass(frozen=True)
class Refitting:
    """How an evaluation learns while it runs.

    Attributes:
        first: episodes of the first stage.
        growth: after every stage but the last there are this many times as many episodes.
        method: of the designs, as in `design`; so are
        regression: how critics are learned,
        features: coordinates of the states,
        time_varying: whether rewards or dynamics depend on t,
        floor: the least share of the target policy,
        budget: "state" or "episode", and
        least_gain: the relative variance that a design must save.
        promise: with epsilon below zero: "stage": every stage after the first is to cost at most
            1 + epsilon times the target policy's cost. "total": all episodes together are; later
            stages pay for what the first ones cost more.
        most_variance: with epsilon below zero: the largest relative variance, cross-checked, that
            a stage may have for the sake of a low cost.
        worth: a refit must be expected to save at least this many of the remaining episodes.
        episode_seconds: time that one episode takes, where the time that a refit takes matters: it
            must then be expected to save that time too. None: only episodes count.
        prior_variance: relative variance expected of later stages as long as nothing is known.
        least_variance: no design is expected to have less relative variance than this.
        significance: probability with which logs, or a change between stages, are reported wrongly.
    """

    first: int = 30
    growth: float = 1.5
    method: str | Method = "scope-dr"
    regression: str | Regression | ModelRegression = "auto"
    features: NDArray[Any] | None = None
    time_varying: bool = False
    floor: float = FLOOR
    budget: str = "state"
    least_gain: float = LEAST_GAIN
    promise: Promise = "stage"
    most_variance: float = 1.0
    worth: float = 1.0
    episode_seconds: float | None = None
    prior_variance: float = 0.4
    least_variance: float = 0.05
    significance: float = 0.01

    def __post_init__(self) -> None:
        check_whole("first", self.first, 2, " of episodes")
        _check_above("growth", self.growth, 1.1)
        for name in ("worth", "most_variance", "prior_variance", "least_variance"):
            _check_above(name, getattr(self, name), 0.0)
        if self.episode_seconds is not None:
            _check_above("episode_seconds", self.episode_seconds, 0.0)
        if not (is_number(self.significance) and 0.0 < self.significance < 1.0):
            raise InputError(
                f"significance: got {self.significance!r}, expected a number between 0 and 1"
            )
        if self.promise not in get_args(Promise):
            raise InputError(f"promise: got {self.promise!r}, expected one of {get_args(Promise)}")
        method_named(self.method)


def _check_above(name: str, value: float, least: float) -> None:
    if not (is_number(value) and value >= least):
        raise InputError(f"{name}: got {value!r}, expected a number of at least {least:g}")


def stage_sizes(settings: Refitting, episodes: int | None) -> Iterator[int]:
    """Lengths of the stages: each ends after `growth` times as many episodes as the one before.

    A rest that is shorter than a stage belongs to it. Without a number of episodes there is no end.
    """
    done, end = 0, float(settings.first)
    while episodes is None or done < episodes:
        size = max(round(end) - done, 1)
        if episodes is not None and (episodes - done) - size < size:
            size = episodes - done
        yield size
        done += size
        end = max(end * settings.growth, done + 1.0)


def expected_variance(prediction: Prediction | None, settings: Refitting) -> float:
    """Relative variance to expect of a design: between what it predicts and its cross-check.

    The check judges designs from half of the data, so it is pessimistic; the prediction is by the
    critics that made the design, so it is optimistic. None is the target policy itself.
    """
    if prediction is None:
        return 1.0
    found = prediction.variance ** (1.0 - CHECK_SHARE) * prediction.checked_variance**CHECK_SHARE
    return max(found, settings.least_variance) if math.isfinite(found) else 1.0


def expected_progress(prediction: Prediction | None) -> float:
    """The factor by which later designs, from more data, are expected to have less variance.

    Designs from half of the data have the cross-check's variance, those from all of them the
    predicted one. The next doubling is expected to bring half as much, on a logarithmic scale.
    """
    if prediction is None:
        return 1.0
    found = math.sqrt(prediction.checked_variance / max(prediction.variance, 1e-12))
    return min(max(found, 1.0), MOST_PROGRESS) if math.isfinite(found) else 1.0


class Shares:
    """The weight of a stage, decided before it begins.

    An episode counts in inverse proportion to the expected variance of its stage. For stages to
    come the least variance that was expected so far is assumed, or less: divided by the progress
    that is expected of later designs, and as long as nothing is known the prior, both as powers
    that are the share of all episodes that are still to come. So an episode of an early stage never
    counts more than those to come do on average: a prediction that is too optimistic cannot ruin
    the estimate. Every design that falls back to the target policy takes the prior half of the way
    to 1, on a logarithmic scale: later designs will hardly be better.

    Args:
        episodes: of the whole plan; None where it has no end.
        settings: of the stages.
    """

    def __init__(self, episodes: int | None, settings: Refitting) -> None:
        self._episodes, self._settings = episodes, settings
        self._begun, self._left = 0, 1.0
        self._least = math.inf
        self._prior = settings.prior_variance
        self._size, self._share = 0, 0.0  # of the stage that was begun last

    def next(
        self, size: int, variance: float, *, fell_back: bool = False, progress: float = 1.0
    ) -> float:
        """Weight of one episode of the next stage, in units of an average episode's.

        Args:
            size: number of its episodes.
            variance: relative variance that is expected of it.
            fell_back: a design was tried, and fell back to the target policy.
            progress: expected of later designs (`expected_progress`).
        """
        if fell_back:
            self._prior = math.sqrt(min(self._prior, 1.0))
        variance = max(variance, self._settings.least_variance)
        self._least = min(self._least, variance)
        if self._episodes is None:
            return 1.0 / variance
        after = max(self._episodes - self._begun - size, 0)
        to_come = after / self._episodes
        prior = min(self._prior, self._least / progress)
        here, there = size / variance, after / (self._least ** (1.0 - to_come) * prior**to_come)
        share = self._left if after == 0 else self._left * here / (here + there)
        self._begun += size
        self._left -= share
        self._size, self._share = size, share
        return share * self._episodes / size

    def cut(self, done: int) -> None:
        """The stage that was begun last ends after so many of its episodes.

        What the others were to have is left for later stages, so that all weights together stay
        what they were planned to be.
        """
        if self._episodes is not None and done < self._size:
            self._begun -= self._size - done
            self._left += self._share * (1.0 - done / self._size)
            self._share *= done / self._size
            self._size = done
