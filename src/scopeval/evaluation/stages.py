"""Settings of an evaluation in stages, the stages' lengths, and the weights of their estimates.

Weights. The estimate of stage k is the mean of its episodes' values; it has mean J(pi) given all
earlier stages. The whole estimate is sum_k a_k (estimate of stage k) with sum_k a_k = 1. It is
unbiased if every a_k is decided before stage k. Weights 1 / variance that are divided by their sum
afterwards are not: the sum knows later stages, and these know what stage k showed. So each stage
takes its share of what earlier ones have left (`Shares`), and the last one takes the rest.

What each stage may cost, where less than the target policy's own cost is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from scopeval.arrays import check_whole, is_number
from scopeval.behavior.evidence import Learn, learn_of, varies
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.summary import Prediction
from scopeval.behavior.thresholds import FLOOR, LEAST_GAIN
from scopeval.errors import InputError
from scopeval.evaluation.stage_report import Payback, Stage
from scopeval.logs.transitions import Transitions
from scopeval.models.networks import Networks
from scopeval.models.table import Table
from scopeval.question.inference import Check
from scopeval.question.promise import Scope

__all__ = [
    "PromiseOf",
    "Shares",
    "StageBudget",
    "Stages",
    "expected_progress",
    "expected_variance",
    "stage_sizes",
    "unspent",
]

#: What a cost budget below the target policy's own cost is about.
PromiseOf = Literal["stage", "total"]

#: How much the cross-check counts in the variance that is expected of a design (as a power).
CHECK_SHARE = 0.3

#: Later designs are not expected to have less than the present variance divided by this.
MOST_PROGRESS = 2.0


@dataclass(frozen=True)
class Stages:
    """An evaluation that learns while it runs; no logs are needed.

    Passed as ``run=``: stages grow, and the behavior policy of each is designed from the logs, if
    there are any, and all earlier episodes.

    Attributes:
        logs: of past operation: the first stage is designed from them, later ones from them and all
            earlier episodes.
        design: what the first stage runs. None: a design from the logs, or else the target itself.
        first: episodes of the first stage.
        growth: after every stage but the last there are this many times as many episodes.
        method: of the designs, as in `design`; so are
        learn: what learns, and
        check: what a design must show.
        per: "state" or "episode": what a promise of at least the target's own cost is about.
        promise_of: below the target's own cost: "stage": every stage after the first is to keep the
            promise. "total": all episodes together are; later stages pay for what the first ones
            cost more.
        most_variance: below the target's own cost: the largest relative variance, cross-checked,
            that a stage may have for the sake of a low cost.
        worth: a refit must be expected to save at least this many of the remaining episodes.
        episode_seconds: time that one episode takes, where the time that a refit takes matters: it
            must then be expected to save that time too. None: only episodes count.
        prior_variance: relative variance expected of later stages as long as nothing is known.
        least_variance: no design is expected to have less relative variance than this.
        significance: probability with which logs, or a change between stages, are reported wrongly.
    """

    logs: Transitions | None = None
    design: Any = None
    first: int = 30
    growth: float = 1.5
    method: str | Method = "scope-dr"
    learn: Learn | None = None
    check: Check = field(default_factory=Check)
    per: Scope = "state"
    promise_of: PromiseOf = "stage"
    most_variance: float = 1.0
    worth: float = 1.0
    episode_seconds: float | None = None
    prior_variance: float = 0.4
    least_variance: float = 0.05
    significance: float = 0.01

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", check_whole("first", self.first, 2, " of episodes"))
        _check_above("growth", self.growth, 1.1)
        for name in ("worth", "most_variance", "prior_variance", "least_variance"):
            _check_above(name, getattr(self, name), 0.0)
        if self.episode_seconds is not None:
            _check_above("episode_seconds", self.episode_seconds, 0.0)
        if not (is_number(self.significance) and 0.0 < self.significance < 1.0):
            raise InputError(
                f"significance: got {self.significance!r}, expected a number between 0 and 1"
            )
        for name, kinds in (("promise_of", get_args(PromiseOf)), ("per", get_args(Scope))):
            if getattr(self, name) not in kinds:
                raise InputError(f"{name}: got {getattr(self, name)!r}, expected one of {kinds}")
        method_named(self.method)
        learn_of(self.learn)

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, without logs and first design, which are kept apart.

        Raises:
            InputError: a method or a regression of your own, which no file can hold.
        """
        learn: Any = None
        if isinstance(self.learn, Table):
            learn = {"kind": "Table"} | {
                field.name: getattr(self.learn, field.name) for field in fields(self.learn)
            }
            if self.learn.features is not None:
                learn["features"] = np.asarray(self.learn.features).tolist()
        elif self.learn == Networks():
            learn = {"kind": "Networks"}
        if (learn is None) != (self.learn is None) or not isinstance(self.method, str):
            raise InputError(
                "stages: got a method or a regression of your own, which no database can hold; "
                "expected the name of a method, and Table(...) or Networks()"
            )
        names = [field.name for field in fields(self) if field.name not in ("logs", "design")]
        plain = {name: getattr(self, name) for name in names}
        return plain | {"learn": learn, "check": asdict(self.check)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Stages:
        """What `to_json` made."""
        rest = dict(content)
        learn = rest.pop("learn")
        if learn is not None:
            kinds: dict[str, Any] = {"Table": Table, "Networks": Networks}
            given = dict(learn)
            kind = kinds[given.pop("kind")]
            if given.get("features") is not None:
                given["features"] = np.asarray(given["features"])
            learn = kind(**given)
        return cls(learn=learn, check=Check(**rest.pop("check")), **rest)

    @property
    def floor(self) -> float:
        """The least share of the target policy in a design."""
        return FLOOR if self.check.floor is None else self.check.floor

    @property
    def least_gain(self) -> float:
        """The relative variance that a design must save."""
        return LEAST_GAIN if self.check.least_gain is None else self.check.least_gain

    @property
    def time_varying(self) -> bool:
        """Whether rewards or dynamics depend on t beyond the observation, as it was stated."""
        return varies(self.learn)


def _check_above(name: str, value: float, least: float) -> None:
    if not (is_number(value) and value >= least):
        raise InputError(f"{name}: got {value!r}, expected a number of at least {least:g}")


def stage_sizes(settings: Stages, episodes: int | None) -> Iterator[int]:
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


def stage_part(settings: Stages, episodes: int | None, number: int) -> float:
    """The part of a probability of error that is for one stage of a plan, numbered from 1.

    All stages have the same. Where their number is not known, 6 / (pi number)^2: the sum is 1.
    """
    if episodes is None:
        return 6.0 / (math.pi * number) ** 2
    return 1.0 / len(list(stage_sizes(settings, episodes)))


def expected_variance(prediction: Prediction | None, settings: Stages) -> float:
    """Relative variance to expect of a design: between what it predicts and its cross-check.

    The check judges designs from half of the data, so it is pessimistic; the prediction is by the
    critics that made the design, so it is optimistic. None is the target policy itself.
    """
    if prediction is None:
        return 1.0
    variance = prediction.variance ** (1.0 - CHECK_SHARE) * prediction.checked_variance**CHECK_SHARE
    return max(variance, settings.least_variance) if math.isfinite(variance) else 1.0


def expected_progress(prediction: Prediction | None) -> float:
    """The factor by which later designs, from more data, are expected to have less variance.

    Designs from half of the data have the cross-check's variance, those from all of them the
    predicted one. The next doubling is expected to bring half as much, on a logarithmic scale.
    """
    if prediction is None:
        return 1.0
    progress = math.sqrt(prediction.checked_variance / max(prediction.variance, 1e-12))
    return min(max(progress, 1.0), MOST_PROGRESS) if math.isfinite(progress) else 1.0


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

    def __init__(self, episodes: int | None, settings: Stages) -> None:
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


# -- what each stage may cost ----------------------------------------------------------------------

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
        (stage.certificate.episodes, stage.certificate.difference.estimate / target_cost)
        for stage in stages
        if stage.certificate is not None and (target_cost := stage.certificate.target_cost) > 0.0
    ]
    done = sum(n for n, _ in judged)
    if not done:
        return 0.0
    excess = math.fsum(n * one for n, one in judged) / done
    return min(max(excess, 0.0) * (1.0 + done / max(size, 1)), MOST_UNSPENT)
