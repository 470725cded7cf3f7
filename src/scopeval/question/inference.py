"""How the result follows from the episodes, and how a design is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from numpy.typing import ArrayLike

from scopeval.arrays import check_alpha, is_number
from scopeval.errors import InputError

__all__ = ["Check", "Inference", "IntervalMethod", "inference_of"]

#: "t" and "normal" are for a fixed number of episodes, "sequence" holds at all times together.
IntervalMethod = Literal["t", "normal", "sequence"]


@dataclass(frozen=True)
class Inference:
    """How the result follows from the episodes.

    Attributes:
        alpha: probability with which an interval may miss, and the guard may alarm for nothing.
        estimator: "mc", "is", "pdis" or "dr"; "auto": mc for the target itself, dr where the
            behavior policy brings a control variate, else pdis. Or a function, Episodes -> one
            value per episode, taken to be independent with the policy's value as their mean.
            `estimate` also takes two biased baselines: "wis", weighted importance sampling, and
            "fqe", fitted Q evaluation.
        interval: for a fixed number of episodes: "t" or "normal"; "sequence": anytime-valid always.
        return_bound: (low, high) that contain every possible return, discounted as the value is.
            The interval then holds for any number of episodes, any distribution of returns and any
            weights; it is wider.
        keep: keep everything that was recorded in `.episodes`.
    """

    alpha: float = 0.05
    estimator: str | Callable[[Any], ArrayLike] = "auto"
    interval: IntervalMethod = "t"
    return_bound: tuple[float, float] | None = None
    keep: bool = False

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        if not isinstance(self.estimator, str) and not callable(self.estimator):
            raise InputError(
                f"estimator: got {self.estimator!r:.40}, expected a name, or a function: Episodes "
                "-> one value per episode"
            )
        if self.interval not in get_args(IntervalMethod):
            raise InputError(
                f"interval: got {self.interval!r}, expected one of {get_args(IntervalMethod)}"
            )
        if self.return_bound is not None:
            if not (isinstance(self.return_bound, Sequence) and len(self.return_bound) == 2):
                raise InputError(
                    f"return_bound: got {self.return_bound!r:.40}, expected (low, high), two "
                    "finite numbers that contain every possible return"
                )
            object.__setattr__(self, "return_bound", tuple(self.return_bound))


def inference_of(given: Inference | None) -> Inference:
    """What was given as ``inference=``; None: the usual one."""
    if given is not None and not isinstance(given, Inference):
        raise InputError(
            f"inference: got {type(given).__name__}, expected Inference(...), such as "
            "Inference(alpha=0.1)"
        )
    return given or Inference()


@dataclass(frozen=True)
class Check:
    """How a design is checked before it is run.

    Attributes:
        floor: at least this share of the target's own probabilities stays in the mixture: bounds
            every importance ratio by 1/floor, so that the estimate is unbiased whatever the models
            say. None: 0.02; of a `frontier`, whose weights have a cap, 0.005, and 0.05 with
            networks.
        least_gain: relative variance that a design must save, predicted and cross-checked; else it
            falls back to the target policy, for no gain is worth the doubt about its cost. None:
            0.03. Not below the target's own cost, where a design saves cost, and may save no
            variance.
    """

    floor: float | None = None
    least_gain: float | None = None

    def __post_init__(self) -> None:
        for name in ("floor", "least_gain"):
            value = getattr(self, name)
            if value is not None and not (is_number(value) and 0.0 <= value <= 1.0):
                raise InputError(f"{name}: got {value!r}, expected a number in [0, 1]")
