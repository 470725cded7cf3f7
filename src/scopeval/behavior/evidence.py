"""The logs made ready for the designs of one target policy: two halves, and all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.behavior.methods import Method
from scopeval.behavior.price import find_price
from scopeval.behavior.settings import Settings, choose_regression, varies
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
from scopeval.errors import InputError
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
from scopeval.policies.adapters import TabularPolicy, as_policy
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
    "evidence_of",
    "thin_out",
    "with_price",
]

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
        steps_done: time steps swept so far, and
        steps_expected: about how many there will be.
    """

    log: Log
    target: Policy | ContinuousPolicy
    settings: Settings
    regression: Regression | Networks
    steps_done: int = 0
    steps_expected: int = 0

    @cached_property
    def data(self) -> HalvedData:
        """Data for sweeps; where critics need a model of the world, it is learned now."""
        regression, settings = self.regression, self.settings
        question = Question((self.target,), settings.horizon, settings.gamma)
        if isinstance(regression, Networks):
            data = regression.sweep_data(self.log, question, settings.seed, settings.progress)
        else:
            data = _logged(self.log, question, settings.seed, regression)
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
        rows, seed = self.log.rows, self.settings.seed
        if rows.obs.ndim == 1:
            return table_support(self.whole, self.log, self.target, self.settings.horizon)
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
        if self.settings.progress is not None:
            self.settings.progress("design", self.steps_done, total)


def evidence_of(
    logged: Transitions | World | Iterable[Transitions],
    target: object,
    settings: Settings,
    methods: Sequence[Method] = (),
) -> Evidence:
    """Read the logs and choose how critics are learned.

    Args:
        logged: as for `design`.
        target: as for `design`.
        settings: what was asked for.
        methods: to be designed, which tells how long it will take.
    """
    pi = as_policy(target)
    regression, fold = settings.learn, None
    judged: list[Diagnosis] = []
    if isinstance(logged, LoggedStream):
        logged = _world_on_disk(logged, pi, settings)
    if isinstance(logged, World):
        regression, fold = _regression_in(logged, regression), logged.fold
        # its copies count once already: the rows must be those that were halved
        logged = logged.logged.with_notes(_examined(logged.logged, pi, settings, judged).notes)
    elif isinstance(logged, Transitions):
        logged = _examined(logged, pi, settings, judged)
    elif isinstance(logged, Iterable) and not isinstance(logged, LoggedStream | Mapping | str):
        logged = _examined_batches(logged, pi, settings, judged)
    merge = regression is None or isinstance(regression, Table)
    if isinstance(logged, LoggedStream) and merge:
        log = gather_stream(logged, pi, settings.horizon, settings.seed)
    else:
        log = gather(logged, pi, settings.horizon, settings.seed, merge, fold)
        log = replace(log, doubt=judged[0].doubt if judged else None)
    if isinstance(pi, TabularPolicy) and int(log.rows.obs.max()) < pi.states:
        codes = exchanged_codes(log.rows, pi)
        log = replace(log, notes=(*log.notes, codes)) if codes else log
    learn = choose_regression(regression, log, pi)
    evidence = Evidence(log, pi, settings, learn)
    evidence.steps_expected = settings.horizon * sum(_sweeps(evidence, one) for one in methods)
    return evidence


def _world_on_disk(
    logged: LoggedStream, target: Policy | ContinuousPolicy, settings: Settings
) -> World | LoggedStream:
    """A world learned from vectors on disk; other logs as they are."""
    how = settings.learn
    own = isinstance(how, Networks) and how.dynamics is None
    modeled = own or how is None
    first = next(logged.batches()).log.select(slice(0, 1))
    if not modeled or first.discrete_obs:
        return logged
    offered = check_batch(first, target, settings.horizon, 0, streamed=False)
    embedding = embedding_of(target)
    return World.learn(
        logged,
        actions=offered if embedding is None and not isinstance(target, ContinuousPolicy) else None,
        embedding=embedding,
        drawn=target.drawn if isinstance(target, Redraws) else 0,
        horizon=settings.horizon if varies(how) else None,
        training=how.training if isinstance(how, Networks) else None,
        seed=settings.seed,
        progress=settings.progress,
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


def _examined(
    logged: Transitions,
    target: Policy | ContinuousPolicy,
    settings: Settings,
    judged: list[Diagnosis],
) -> Transitions:
    """The log, if it does not contradict itself; what is suspicious is noted. Copies count once.

    The diagnosis is added to `judged`.
    """
    states = target.states if isinstance(target, TabularPolicy) else None
    log, diagnosis = examine(logged, Problem(settings.horizon, None, states))
    diagnosis.raise_errors("logs")
    judged.append(diagnosis)
    return log.with_notes(diagnosis.warnings)


def _examined_batches(
    batches: Iterable[Transitions],
    target: Policy | ContinuousPolicy,
    settings: Settings,
    judged: list[Diagnosis],
) -> Iterator[Transitions]:
    """The batches as they come; refused after the last one if they contradict each other."""
    states = target.states if isinstance(target, TabularPolicy) else None
    statistics, last = LogStatistics(), None
    for batch in batches:
        if last is not None:
            yield last
        if isinstance(batch, Transitions):
            statistics.add(batch)
        last = batch
    if last is not None:
        found = diagnosis_of(statistics.facts(), Problem(settings.horizon, None, states))
        found.raise_errors("logs")
        judged.append(found)
        yield last.with_notes(found.warnings) if isinstance(last, Transitions) else last


def _sweeps(evidence: Evidence, method: Method) -> int:
    """About how many a design takes; a price takes some five for each half and the whole.

    Two on the halves, two that judge them, one on all logs, and one for `drawn`.
    """
    needed = 5 + method.tilted
    if not method.has_price or evidence.settings.budget == "state":
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


def with_price(evidence: Evidence, data: SweepData, method: Method, recipe: Recipe) -> Recipe:
    """Where one budget is for whole episodes: the price of cost at which it is just spent.

    Which episodes there are, only the logged first observations tell: twice the standard error
    that comes from their number is left unspent.
    """
    if not method.has_price or recipe.budget == "state":
        return replace(recipe, budget="state")
    unit, root = 1.0, float(np.sqrt(evidence.log.starts.weight.sum()))

    def spent(prices: list[float]) -> list[float]:
        nonlocal unit
        priced = [Kind(method, replace(recipe, price=price)) for price in prices]
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
