"""The logs made ready for the designs of one target policy: two halves, and all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.behavior.coverage import support_of
from scopeval.behavior.methods import Method
from scopeval.behavior.regression_choice import choose_regression, put_on_device
from scopeval.behavior.settings import Settings
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.behavior.sweep import Follow, Followed, Swept, sweep
from scopeval.critics.log_rows import Log, gather
from scopeval.critics.model.imagined_data import Imagination
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.protocols import Caution, Cautious, Estimates, Regression, Rows
from scopeval.critics.sweep_data import Ground, Points, logged_ground
from scopeval.critics.table import TableRegression
from scopeval.data.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy

__all__ = ["CHECK_ROWS", "Evidence", "follow_own", "gather_evidence", "thin_out"]

#: At most so many rows of each half serve the cross-check of a design for vectors.
CHECK_ROWS = 25_000


@dataclass
class Evidence:
    """What the logs say, ready to be swept.

    Attributes:
        log: the rows of the log, and their halves.
        target: pi.
        settings: what was asked for.
        regression: how critics are learned.
        halves: data of each half; neither shares a row with the other.
        whole: data of all logs.
        held_out_errors: of the dynamics, by name.
        forget: drops the answers that were cached for this target.
        steps_done: time steps swept so far, and
        steps_expected: about how many there will be.
    """

    log: Log
    target: Policy | ContinuousPolicy
    settings: Settings
    regression: Regression
    halves: list[Ground]
    whole: Ground
    held_out_errors: dict[str, float] = field(default_factory=dict)
    forget: Callable[[], None] = lambda: None
    steps_done: int = 0
    steps_expected: int = 1

    @property
    def caution(self) -> Caution:
        """How far these critics are trusted."""
        regression = self.regression
        return regression.caution if isinstance(regression, Cautious) else Caution()

    @cached_property
    def support(self) -> float:
        """Share of the target policy's own steps that the logs show."""
        return support_of(self.whole, self.log, self.target, self.settings.horizon)

    def sweep(self, data: Ground, follow: Follow, followed: int) -> Swept:
        """`sweep` over a half or all of the logs."""
        return sweep(
            data,
            self.target,
            follow,
            horizon=self.settings.horizon,
            gamma=self.settings.gamma,
            actions=self.log.actions,
            followed=followed,
            seed=self.settings.seed,
            tick=self._tick,
        )

    def _tick(self) -> None:
        self.steps_done += 1
        if self.settings.progress is not None:
            done = min(self.steps_done, self.steps_expected)
            self.settings.progress("design", done, self.steps_expected)


def gather_evidence(
    logged: Transitions | Iterable[Transitions], target: object, settings: Settings
) -> Evidence:
    """Read the logs, choose how critics are learned, and learn a model where they need one."""
    pi = as_policy(target)
    regression = settings.regression
    merge = isinstance(regression, TableRegression) or regression in ("auto", "table")
    log = gather(logged, pi, settings.horizon, settings.seed, merge)
    learn = choose_regression(regression, log, pi, settings.features)
    if settings.device is not None:
        learn = put_on_device(learn, settings.device)
    halves = [np.flatnonzero(log.fold == k) for k in range(2)]
    if isinstance(learn, ModelRegression):
        return _imagined(log, pi, settings, learn, halves)
    return _logged(log, pi, settings, learn, halves)


def _imagined(
    log: Log,
    target: Policy | ContinuousPolicy,
    settings: Settings,
    regression: ModelRegression,
    halves: list[Ints],
) -> Evidence:
    """Episodes of the target policy in models of the world, one learned from each half."""
    imagination = Imagination(
        regression,
        target,
        settings.horizon,
        settings.time_varying,
        settings.seed,
        settings.gamma,
        settings.progress,
    )
    each, whole = imagination.grounds([log.rows.select(half) for half in halves], log)
    errors, forget = imagination.holdout, imagination.forget
    return Evidence(log, target, settings, regression, each, whole, errors, forget)


def _logged(
    log: Log,
    target: Policy | ContinuousPolicy,
    settings: Settings,
    regression: Regression,
    halves: list[Ints],
) -> Evidence:
    """The logged rows themselves."""
    varying = settings.time_varying
    rows = log.rows if varying else replace(log.rows, t=np.zeros_like(log.rows.t))
    most = CHECK_ROWS if rows.obs.ndim > 1 and not varying else len(rows)
    states = target.states if isinstance(target, TabularPolicy) else None

    def data_of(some: Rows) -> Ground:
        return logged_ground(
            some,
            log.starts,
            regression,
            actions=log.actions,
            steps=settings.horizon if varying else 1,
            states=states,
            everything=rows,
        )

    each = [data_of(rows.select(thin_out(half, most, settings.seed))) for half in halves]
    whole = data_of(rows.select(np.arange(len(rows))))
    return Evidence(log, target, settings, regression, each, whole)


def follow_own(method: Method, *recipes: Recipe) -> Follow:
    """Follow the target and the behavior policies that the critics themselves imply."""

    def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
        followed = [followed_target(pi, e)]
        for j, recipe in enumerate(recipes, start=1):
            mu, b = weigh_rows(method, recipe, pi, e.following(j))
            followed.append(Followed(mu, b, e.carried[..., j], e.cost_behavior[..., j]))
        return followed

    return follow


def followed_target(pi: Floats, e: Estimates) -> Followed:
    """The target itself, without a control variate: what everything is compared with."""
    return Followed(pi, np.zeros_like(pi), e.carried[..., 0], e.cost_behavior[..., 0])


def thin_out(rows: Ints, most: int, seed: int) -> Ints:
    """At most so many of the rows, drawn at random, in their order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng((seed, 12)).choice(rows, most, replace=False))
