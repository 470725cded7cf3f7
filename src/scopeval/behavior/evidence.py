"""The logs made ready for the designs of one target policy: two halves, and all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._progress import Progress
from scopeval.arrays import Floats, Ints, as_floats, check_whole
from scopeval.behavior.price import find_price
from scopeval.behavior.step import Recipe
from scopeval.behavior.support import (
    exchanged_codes,
    simulated_steps,
    single_steps,
    table_support,
    vector_support,
)
from scopeval.behavior.sweep import (
    Followed,
    Kind,
    followed_target,
    line_6,
    ratio,
    sweep,
)
from scopeval.behavior.thresholds import LEAST_GAIN
from scopeval.errors import DataError, InputError
from scopeval.logs.diagnose import Diagnosis, Problem, diagnosis_of, examine
from scopeval.logs.statistics import LogStatistics
from scopeval.logs.stream import LoggedStream
from scopeval.logs.transitions import Transitions
from scopeval.models.networks import Networks
from scopeval.models.protocols import (
    Caution,
    Estimates,
    HalvedData,
    Points,
    Regression,
    SweepData,
    logged_sweep_data,
)
from scopeval.models.rows import Log, Rows, check_batch, gather, gather_stream
from scopeval.models.simulator import Simulator
from scopeval.models.table import Table
from scopeval.models.world import World
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    ContinuousPolicy,
    Observations,
    Policy,
    Redraws,
    embedding_of,
)
from scopeval.question.question import Question

__all__ = [
    "CHECK_ROWS",
    "Evidence",
    "Learn",
    "evidence_of",
    "learn_of",
    "thin_out",
    "varies",
    "with_price",
]

#: At most so many rows of each half serve the cross-check of a design for vectors.
CHECK_ROWS = 25_000


@dataclass
class Evidence:
    """What the logs say, ready to be swept.

    Attributes:
        log: the rows of the log, and their halves.
        question: the target policy, the horizon and the discount.
        regression: how critics are learned.
        least_gain: relative variance that a design must save.
        seed: of everything random.
        progress: called with (what, done, total).
        steps_done: time steps swept so far, and
        steps_expected: about how many there will be.
    """

    log: Log
    question: Question
    regression: Regression | Networks
    least_gain: float = LEAST_GAIN
    seed: int = 0
    progress: Progress | None = None
    steps_done: int = 0
    steps_expected: int = 0

    @property
    def target(self) -> Policy | ContinuousPolicy:
        """Pi."""
        return self.question.policy

    @cached_property
    def data(self) -> HalvedData:
        """Data for sweeps; where critics need a model of the world, it is learned now."""
        log, regression = self.log, self.regression
        if isinstance(regression, Networks):
            data = regression.sweep_data(log, self.question, self.seed, self.progress)
        else:
            data = _logged(log, self.question, self.seed, regression)
        both = [replace(half, tick=self._tick) for half in data.halves]
        return replace(data, halves=both, whole=replace(data.whole, tick=self._tick))

    @property
    def halves(self) -> list[SweepData]:
        """Data of each half; neither shares a row with the other."""
        return self.data.halves

    @property
    def whole(self) -> SweepData:
        """Data of all logs."""
        return self.data.whole

    @property
    def caution(self) -> Caution:
        """How far these critics are trusted."""
        regression = self.regression
        return getattr(regression, "caution", None) or Caution()

    @property
    def vectors(self) -> bool:
        """Whether observations are vectors."""
        return self.log.rows.obs.ndim > 1

    @cached_property
    def support(self) -> float:
        """Share of the target policy's own steps that the logs show.

        A simulator shows all of them; how wrong it is on logged steps is reported apart.
        """
        rows, seed = self.log.rows, self.seed
        if rows.obs.ndim == 1:
            return table_support(self.whole, self.log)
        if not isinstance(self.regression, Networks):
            return vector_support(rows, single_steps(rows, self.target, seed), seed)
        if isinstance(self.regression.dynamics, Simulator):
            return 1.0
        return vector_support(rows, simulated_steps(self.whole, seed), seed)

    @cached_property
    def drawn(self) -> float:
        """Share of the target's variance that its own draws make; the rest is the environment's.

        Beside the target policy it is followed with b = q, which takes out just that.
        """

        def follow(t: int, points: Points, pi: Floats, e: Estimates) -> list[Followed]:
            q = np.where(np.isfinite(e.q), e.q, 0.0)
            known = Followed(pi, q, e.carried[..., 1], e.cost_behavior[..., 1])
            return [followed_target(pi, e), known]

        swept = sweep(self.whole, follow, 2)
        return float(np.clip(1.0 - ratio(swept.variance[1], swept.variance[0]), 0.0, 1.0))

    def logged_obs(self, t: int) -> Observations:
        """Observations of time step t that the logs, or imagined episodes, show."""
        points = self.whole.at(t)
        return points.obs[points.logged > 0]

    def _tick(self) -> None:
        self.steps_done += 1
        total = max(self.steps_expected, self.steps_done)
        if self.progress is not None:
            self.progress("design", self.steps_done, total)


def evidence_of(
    logged: Transitions | World | Iterable[Transitions],
    question: Question,
    *,
    learn: Regression | Networks | None = None,
    least_gain: float = LEAST_GAIN,
    seed: int = 0,
    progress: Progress | None = None,
    asked: Sequence[Recipe] = (),
) -> Evidence:
    """Read the logs and choose how critics are learned.

    Args:
        logged: as for `design`.
        question: the target policy, the horizon and the discount.
        learn: what learns; None: what suits the logs.
        least_gain: relative variance that a design must save.
        seed: of everything random.
        progress: called with (what, done, total).
        asked: designs that will be made, which tells how long it will take.
    """
    pi, horizon, fold = question.policy, question.horizon, None
    assert horizon is not None
    seed = check_whole("seed", seed, 0)
    problem = Problem(horizon, None, pi.states if isinstance(pi, TabularPolicy) else None)
    judged: list[Diagnosis] = []
    if isinstance(logged, LoggedStream):
        logged = _world_on_disk(logged, pi, horizon, learn, seed, progress)
    if isinstance(logged, World):
        learn, fold = _regression_in(logged, learn), logged.fold
        # its copies count once already: the rows must be those that were halved
        logged = logged.logged.with_notes(_examined(logged.logged, problem, judged).notes)
    elif isinstance(logged, Transitions):
        logged = _examined(logged, problem, judged)
    elif isinstance(logged, Iterable) and not isinstance(logged, LoggedStream | Mapping | str):
        logged = _examined_batches(logged, problem, judged)
    merge = learn is None or isinstance(learn, Table)
    if isinstance(logged, LoggedStream) and merge:
        log = gather_stream(logged, pi, horizon, seed)
    else:
        log = gather(logged, pi, horizon, seed, merge, fold)
        log = replace(log, doubt=judged[0].doubt if judged else None)
    if isinstance(pi, TabularPolicy) and int(log.rows.obs.max()) < pi.states:
        codes = exchanged_codes(log.rows, pi)
        log = replace(log, notes=(*log.notes, codes)) if codes else log
    regression = choose_regression(learn, log, pi)
    evidence = Evidence(log, question, regression, least_gain, seed, progress)
    evidence.steps_expected = horizon * sum(_sweeps(evidence, one) for one in asked)
    return evidence


def _world_on_disk(
    logged: LoggedStream,
    target: Policy | ContinuousPolicy,
    horizon: int,
    learn: Regression | Networks | None,
    seed: int,
    progress: Progress | None,
) -> World | LoggedStream:
    """A world learned from vectors on disk; other logs as they are."""
    own = isinstance(learn, Networks) and learn.dynamics is None
    modeled = own or learn is None
    first = next(logged.batches()).log.select(slice(0, 1))
    if not modeled or first.discrete_obs:
        return logged
    offered = check_batch(first, target, horizon, 0, streamed=False)
    embedding = embedding_of(target)
    return World.learn(
        logged,
        actions=offered if embedding is None and not isinstance(target, ContinuousPolicy) else None,
        embedding=embedding,
        drawn=target.drawn if isinstance(target, Redraws) else 0,
        horizon=horizon if varies(learn) else None,
        training=learn.training if isinstance(learn, Networks) else None,
        seed=seed,
        progress=progress,
    )


def _regression_in(world: World, regression: Regression | Networks | None) -> Networks:
    """The critics of a model of the world, with the dynamics that were learned."""
    if regression is None:
        regression = Networks()
    if not isinstance(regression, Networks) or regression.dynamics is not None:
        raise InputError(
            f"learn: got {regression!r:.60} with a World, which has its own dynamics; expected "
            "Networks(...) without dynamics, or leave it out"
        )
    return replace(regression, dynamics=world.dynamics)


def _examined(logged: Transitions, problem: Problem, judged: list[Diagnosis]) -> Transitions:
    """The log, if it does not contradict itself; what is suspicious is noted. Copies count once.

    The diagnosis is added to `judged`.
    """
    log, diagnosis = examine(logged, problem)
    diagnosis.raise_errors("logs")
    judged.append(diagnosis)
    return log.with_notes(diagnosis.warnings)


def _examined_batches(
    batches: Iterable[Transitions], problem: Problem, judged: list[Diagnosis]
) -> Iterator[Transitions]:
    """The batches as they come; refused after the last one if they contradict each other."""
    statistics, last = LogStatistics(), None
    for batch in batches:
        if last is not None:
            yield last
        if isinstance(batch, Transitions):
            statistics.add(batch)
        last = batch
    if last is not None:
        diagnosis = diagnosis_of(statistics.facts(), problem)
        diagnosis.raise_errors("logs")
        judged.append(diagnosis)
        yield last.with_notes(diagnosis.warnings) if isinstance(last, Transitions) else last


def _sweeps(evidence: Evidence, asked: Recipe) -> int:
    """About how many a design takes; a price takes some five for each half and the whole.

    Two on the halves, two that judge them, one on all logs, and one for `drawn`.
    """
    method = asked.method
    needed = 5 + method.tilted
    if not method.has_price or asked.budget == "state":
        return needed
    return needed + 5 * (1 + 2 * (len(evidence.caution.shares) if method.control_variate else 1))


def _logged(log: Log, question: Question, seed: int, regression: Regression) -> HalvedData:
    """The logged rows themselves."""
    varying, target = varies(regression), question.policy
    rows = log.rows if varying else replace(log.rows, t=np.zeros_like(log.rows.t))
    most = CHECK_ROWS if rows.obs.ndim > 1 and not varying else len(rows)
    steps = question.horizon if varying else 1
    assert steps is not None

    def data_of(some: Rows) -> SweepData:
        return logged_sweep_data(
            some,
            log.starts,
            regression,
            question,
            actions=log.actions,
            seed=seed,
            steps=steps,
            states=target.states if isinstance(target, TabularPolicy) else None,
            everything=rows,
        )

    halves = [np.flatnonzero(log.fold == k) for k in range(2)]
    each = [data_of(rows.select(thin_out(half, most, seed))) for half in halves]
    whole = data_of(rows.select(np.arange(len(rows))))
    return HalvedData(each, whole)


def with_price(evidence: Evidence, data: SweepData, recipe: Recipe) -> Recipe:
    """Where one budget is for whole episodes: the price of cost at which it is just spent.

    Which episodes there are, only the logged first observations tell: twice the standard error
    that comes from their number is left unspent.
    """
    if not recipe.method.has_price or recipe.budget == "state":
        return replace(recipe, budget="state")
    unit, root = 1.0, float(np.sqrt(evidence.log.starts.weight.sum()))

    def spent(prices: list[float]) -> list[float]:
        nonlocal unit
        priced = [Kind(replace(recipe, price=price)) for price in prices]
        swept = sweep(data, line_6(priced), 1 + len(priced))
        unit = float(ratio(swept.variance[0], swept.cost[0]))
        ratios = ratio(swept.cost, swept.cost[0]) + 2.0 * swept.start_spread / root
        return [float(one) for one in np.nan_to_num(ratios[1:], nan=np.inf)]

    allowed = 1.0 + recipe.epsilon - recipe.margin
    if spent([0.0])[0] <= allowed:
        return replace(recipe, price=0.0)
    price = find_price(spent, allowed, unit, slack=1e-3 * allowed)
    if price is None:  # no price saves enough: every state keeps its own budget
        return replace(recipe, budget="state")
    return replace(recipe, price=price)


def thin_out(rows: Ints, most: int, seed: int) -> Ints:
    """At most so many of the rows, drawn at random, in their order."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng((seed, 12)).choice(rows, most, replace=False))


# -- what learns from the logs: as asked, or as suits them -----------------------------------------

#: What ``learn=`` takes: a value, or a regression of your own.
Learn = Table | Networks | Simulator | Regression

#: Largest table (states times actions) that is tried.
MOST_PAIRS = 50_000_000


def learn_of(learn: Learn | None) -> Regression | Networks | None:
    """What was given as ``learn=``; None: it is chosen when the logs are known.

    Raises:
        InputError: it is nothing that learns.
    """
    if isinstance(learn, Simulator):
        return Networks(dynamics=learn)
    if learn is None or isinstance(learn, Regression | Networks):
        return learn
    raise InputError(
        f"learn: got {learn!r:.60}, expected Table(...) for state numbers, Networks(...) for "
        "vectors, Simulator(step), or a Regression of your own; try to leave it out"
    )


def varies(learn: object) -> bool:
    """Whether rewards or dynamics depend on t beyond the observation, as it was stated."""
    return bool(getattr(learn, "time_varying", False))


def choose_regression(
    learn: Regression | Networks | None, log: Log, target: Policy | ContinuousPolicy
) -> Regression | Networks:
    """The regression that was asked for, if it suits the log and the target."""
    discrete = log.rows.obs.ndim == 1
    states = int(max(log.rows.obs.max(), log.rows.next_obs.max())) + 1 if discrete else None
    if states is not None and isinstance(target, TabularPolicy):
        if states > target.states:
            raise DataError(
                f"logs: holds state {states - 1}, the target's table covers 0.."
                f"{target.states - 1}; expected a log of the target's problem"
            )
        states = target.states
    if states is not None and states * log.actions > MOST_PAIRS:
        raise DataError(
            f"logs: holds state {states - 1}, a table would need {states * log.actions:,} "
            f"entries per time step, expected at most {MOST_PAIRS:,}; try numbering the states "
            "from 0 without gaps, or vectors"
        )
    if learn is None:
        learn = Table() if discrete else Networks()
    if isinstance(target, ContinuousPolicy) and not isinstance(learn, Networks):
        raise InputError(
            f"learn: got {learn.name!r} for continuous actions, expected Networks(), or leave it "
            "out"
        )
    if discrete and isinstance(learn, Networks):
        raise InputError(
            "learn: Networks need observations that are vectors, the log holds state numbers; try "
            "Table()"
        )
    if isinstance(learn, Table):
        if not discrete:
            raise InputError(
                "learn: Table needs state numbers, the log holds vectors; try Networks()"
            )
        if learn.states is None:
            features = _features(learn.features, states)
            return replace(learn, states=states, features=features)
    return learn


def _features(features: NDArray[Any] | None, states: int | None) -> Floats | None:
    if features is None:
        return None
    points = as_floats("features", features, ndim=(2,), axes=("s", "feature"))
    if len(points) != states or points.shape[1] == 0:
        raise InputError(
            f"features: got shape {points.shape}, expected [{states}, d], one row of coordinates "
            "per state"
        )
    return points
