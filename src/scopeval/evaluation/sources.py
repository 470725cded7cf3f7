"""Where evaluation gets its episodes from: batches of them, by either policy.

Two kinds of source give the same `Batch`: environments (`CollectedSource`, which also serves a
`TabularMDP` whose episodes are kept), and the compiled simulator of a `TabularMDP`
(`SimulatedSource`, where nothing but the numbers is kept). Both can be asked at any time to let the
target itself run; the control variate, if there is one, stays. `Sources` makes them, one for each
behavior policy that runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from scopeval.arrays import Floats, check_whole
from scopeval.behavior.methods import METHODS
from scopeval.collection.collector import NO_WORKERS, NoEpisodeError
from scopeval.collection.environments import EnvironmentPool, StepCost, name_of, open_environments
from scopeval.collection.episodes import Episodes, provenance_of
from scopeval.collection.plant import Plant
from scopeval.collection.rollout import Rollout
from scopeval.collection.shared_rollout import SharedEnvironments, SharedRollout, open_shared
from scopeval.collection.simulated import TabularFleet, simulated_episodes
from scopeval.errors import InputError
from scopeval.estimation.estimators import Estimator
from scopeval.evaluation.batches import Batch, refuse_dependent, summarize
from scopeval.exact import (
    Design,
    TabularMDP,
    WeightedDesign,
    assess,
    behavior_tables,
    policy_table,
    tabulate,
)
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    LearnedBehavior,
    Policy,
    largest_weight,
    weight_aware,
)
from scopeval.question.promise import Promise
from scopeval.question.question import Question, discount
from scopeval.safety.costs import (
    CostControl,
    EpisodeCosts,
    cost_control_of,
    limit_costs,
)
from scopeval.safety.guard import Guard
from scopeval.simulate import Summaries, summaries

__all__ = [
    "CollectedSource",
    "SimulatedSource",
    "Source",
    "Sources",
    "decisions_of",
    "open_sources",
]


class Source(Protocol):
    """Runs episodes by number, in batches."""

    @property
    def side_by_side(self) -> int:
        """How many episodes run at the same time; a batch should be a multiple of it."""
        ...

    @property
    def quick(self) -> bool:
        """Whether episodes take hardly any time, so that batches should be large."""
        ...

    @property
    def uncovered(self) -> str | None:
        """Which actions of the target the behavior policy leaves out; None: none known."""
        ...

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        ...


@dataclass(frozen=True)
class CollectedSource:
    """Episodes that are collected whole and then summarized.

    Attributes:
        collect: runs episodes first .. first+count-1 and keeps them, as `Rollout.run` does.
    """

    collect: Callable[..., Episodes]
    gamma: float
    estimator: Estimator
    side_by_side: int
    quick: bool = False
    uncovered: str | None = None
    cost_control: CostControl | None = None
    promise: Promise = field(default_factory=Promise)
    target: Policy | ContinuousPolicy | None = None
    cap: float = math.inf  # on the weights of the behavior policy

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        episodes = self.collect(first, count, by_target=by_target)
        if not first and episodes.lost and not len(episodes) and not episodes.interrupted:
            raise NoEpisodeError(episodes)
        if not first and callable(self.estimator):
            refuse_dependent(self.estimator, episodes)
        return summarize(
            episodes,
            self.gamma,
            self.estimator,
            self.cost_control,
            self.promise,
            self.target,
            1.0 if by_target else self.cap,
        )


@dataclass(frozen=True)
class Sources:
    """Sources of episodes in one environment, for one question.

    Attributes:
        env: the environment as it was given.
        environments: opened from it, here or on workers; None for a `TabularMDP`, which the
            simulator runs.
        question: with what was left open filled in.
        cut: number of steps as it was given; None: the model's own, for a `TabularMDP`.
        cost: as it was given.
        batch: as it was given.
        seed: of the episodes.
        promise: what the cost of the behavior policy is compared with.
        baseline: what runs today, and takes over where it must; None: the target does.
    """

    env: Any
    environments: EnvironmentPool | SharedEnvironments | None
    question: Question
    cut: int | None
    cost: str | StepCost | None
    batch: int | None
    seed: int
    promise: Promise = field(default_factory=Promise)
    baseline: Policy | None = None

    @property
    def steps(self) -> int | None:
        """Length of an episode, where it is known."""
        if self.question.horizon is None and isinstance(self.env, TabularMDP):
            return self.env.horizon
        return self.question.horizon

    def of(
        self,
        behavior: Behavior | Policy | None,
        estimator: Estimator,
        guard: Guard | None,
        *,
        keep: bool,
    ) -> Source:
        """The source that runs a behavior policy; None runs the target itself."""
        limit = guard.steps_exceeded if guard is not None and guard.limited else None
        target, horizon = self.question.policy, self.question.horizon
        environments = self.environments
        if environments is None:
            if self.batch is not None or self.cost not in (None, "none") or limit is not None:
                raise InputError(
                    "env: a TabularMDP is run by the compiled simulator, which runs whole episodes "
                    "and knows no limits within them, no side_by_side and no cost function; try "
                    "env=TabularEnv(mdp)"
                )
            free = self.cost == "none"
            if not weight_aware(behavior) or isinstance(behavior, WeightedDesign):
                return simulated_source(
                    self.env,
                    target,
                    behavior,
                    self.cut,
                    estimator=estimator,
                    free=free,
                    seed=self.seed,
                    keep=keep,
                    promise=self.promise,
                )
            mdp = self.env if self.cut is None else self.env.shortened(self.cut)
            horizon = mdp.horizon
            environments = open_environments(TabularFleet(mdp), cost="none" if free else None)
        if horizon is None:
            raise InputError(
                "horizon: needed, expected the number of steps at which episodes are cut"
            )
        horizon = check_whole("horizon", horizon, 1)
        rollout: Rollout | SharedRollout
        if isinstance(environments, SharedEnvironments):
            rollout = SharedRollout(
                environments,
                target,
                behavior,
                horizon=horizon,
                seed=self.seed,
                guard_step=limit,
                baseline=self.baseline,
            )
        else:
            rollout = Rollout(
                environments,
                target,
                behavior,
                horizon,
                self.seed,
                limit,
                self.baseline,
            )
        return CollectedSource(
            rollout.run,
            discount(self.question),
            estimator,
            len(environments),
            uncovered=_missing_entries(target, behavior),
            cost_control=None if self.cost == "none" else cost_control_of(target, behavior),
            promise=self.promise,
            target=target,
            cap=largest_weight(behavior),
        )

    def described(self, episodes: Episodes, behavior: Behavior | Policy | None) -> Episodes:
        """The episodes with where they come from."""
        plant = name_of(self.env) if self.environments is None else self.environments.plant
        provenance = provenance_of(plant, self.question.policy, behavior, episodes.horizon)
        return episodes.with_provenance(provenance)


@contextmanager
def open_sources(
    plant: Plant,
    question: Question,
    promise: Promise,
    *,
    cut: int | None,
    seed: int,
    baseline: Policy | None = None,
) -> Iterator[Sources]:
    """Open the environments, if there are any to open."""
    opened: AbstractContextManager[EnvironmentPool | SharedEnvironments | None]
    env, cost, batch = plant.env, plant.cost, plant.side_by_side
    if plant.crew is not None:
        if isinstance(env, TabularMDP):
            raise InputError(NO_WORKERS)
        opened = open_shared(env, batch, cost, plant.crew, plant.signals)
    elif isinstance(env, TabularMDP):
        opened = nullcontext()
    else:
        opened = open_environments(env, batch, cost, plant.signals)
    with opened as environments:
        yield Sources(env, environments, question, cut, cost, batch, seed, promise, baseline)


def decisions_of(behavior: Any) -> dict[str, int]:
    """How often a learned behavior policy was asked, and why it fell back to the target policy."""
    return asdict(behavior.counts) if isinstance(behavior, LearnedBehavior) else {}


def _missing_entries(target: Any, behavior: Any) -> str | None:
    """Entries of tables that mu leaves out; whether they are ever reached is not known here."""
    if not (isinstance(target, TabularPolicy) and isinstance(behavior, TabularPolicy)):
        return None
    if (target.states, target.actions) != (behavior.states, behavior.actions):
        return None  # collection says what is wrong with them
    T = behavior.horizon or target.horizon or 1
    T = min(T, target.horizon or T)
    holes = (target.table(T) > 0) & (behavior.table(T) == 0)
    if not holes.any():
        return None
    return _holes_are(int(holes.sum()))


def _holes_are(count: int) -> str:
    """A warning about places of tables that mu leaves out."""
    return (
        f"the behavior policy's table is 0 at {count:,} places where the target's is not; where "
        "those are reached, the target's cost is underestimated, and the value too unless the "
        "behavior was designed so"
    )


# -- episodes from the compiled simulator ----------------------------------------------------------


def simulated_source(
    mdp: TabularMDP,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    horizon: int | None,
    *,
    estimator: Estimator,
    free: bool,
    seed: int,
    keep: bool,
    promise: Promise,
) -> Source:
    """The source for a `TabularMDP`.

    Args:
        mdp: the model.
        target: pi.
        behavior: mu; None runs the target itself.
        horizon: cut the episodes there; None: the model's own.
        estimator: as in `evaluate`.
        free: costs count as 0.
        seed: of the episodes.
        keep: keep whole episodes and not only their numbers.
        promise: what the cost of the behavior policy is compared with.
    """
    if isinstance(target, ContinuousPolicy):
        raise InputError("policy: has continuous actions, the TabularMDP finitely many")
    if horizon is not None:
        if not 1 <= horizon <= mdp.horizon:
            raise InputError(f"horizon: got {horizon}, expected 1 to the MDP's {mdp.horizon}")
        mdp = mdp.shortened(horizon)
    pi = policy_table(mdp, "target", target)
    on_policy = behavior is None
    mu: Floats | WeightedDesign = pi
    b: Floats | None = None
    if isinstance(behavior, WeightedDesign):
        mu = behavior if behavior.target.shape == pi.shape else tabulate(mdp, pi, behavior)
        b = mu.control
    elif behavior is not None:
        mu, b = behavior_tables(mdp, pi, behavior)
    critic, q = cost_control_of(target, behavior), None
    if critic is not None and not free:
        every = np.arange(mdp.states)
        q = np.stack([critic.critic.cost_to_go(every, t) for t in range(mdp.horizon)])
    name = estimator if isinstance(estimator, str) else "auto"
    cap = largest_weight(behavior)
    source = SimulatedSource(
        mdp,
        pi,
        mu,
        b,
        on_policy=on_policy,
        estimator=name,
        free=free,
        seed=seed,
        cost_control=q,
        promise=promise,
        cap=cap,
    )
    if not keep and isinstance(estimator, str):
        return source
    run_pi = TabularPolicy(pi)
    run_mu: Design | WeightedDesign | None = None
    if isinstance(mu, WeightedDesign):
        run_mu = mu
    elif not on_policy:
        nothing = np.zeros(mu.shape[:2], np.bool_)
        run_mu = Design(mu, METHODS["on-policy"], b, nothing, nothing)

    def run(first: int, count: int, *, by_target: bool) -> Episodes:
        ran = None if by_target else run_mu
        return simulated_episodes(
            mdp, run_pi, ran, episodes=count, seed=seed, first=first, free=free
        )

    return CollectedSource(
        run,
        mdp.gamma,
        estimator,
        1,
        quick=True,
        uncovered=source.uncovered,
        cost_control=None if free else cost_control_of(run_pi, behavior),
        promise=promise,
        target=run_pi,
        cap=cap,
    )


class SimulatedSource:
    """Episodes of a `TabularMDP` by the compiled simulator, which gives numbers only.

    Args:
        mdp: the model.
        pi: the target's table [T, S, A].
        mu: the behavior policy's, or tables for every weight of an episode.
        b: its control variate; None is b = 0.
        on_policy: the target is what was to be run.
        estimator: as in `evaluate`.
        free: costs count as 0.
        seed: of the episodes.
        promise: what the cost of the behavior policy is compared with.
        cost_control: q^c [T, S, A] as the behavior policy estimates it; None: unknown.
        cap: on the weights of the behavior policy.
    """

    side_by_side, quick = 1, True

    def __init__(
        self,
        mdp: TabularMDP,
        pi: Floats,
        mu: Floats | WeightedDesign,
        b: Floats | None,
        *,
        on_policy: bool,
        estimator: str,
        free: bool,
        seed: int,
        promise: Promise,
        cost_control: Floats | None = None,
        cap: float = math.inf,
    ) -> None:
        if estimator == "dr" and b is None:
            raise InputError(
                "estimator: 'dr' needs a behavior policy with a control variate (method "
                "'scope-dr' or 'dopt'); try 'pdis'"
            )
        other = isinstance(mu, WeightedDesign) or (np.abs(pi - mu) > 1e-9).any()
        if estimator == "mc" and other:
            raise InputError(
                "estimator: 'mc', plain returns, gives the target's value only where the target "
                "itself is run; try 'auto'"
            )
        self._seed, self._on_policy = seed, on_policy
        self._cost_control, self._promise, self._cap = cost_control, promise, cap
        self._whole = estimator == "is"
        self._control = b if estimator in ("auto", "dr") else None
        self._mdp = mdp.without_cost() if free else mdp
        self._pi = TabularPolicy(pi)
        self._mu = mu if isinstance(mu, WeightedDesign) else TabularPolicy(mu)
        self.uncovered = self._left_out()

    def _left_out(self) -> str | None:
        """The mean weight is the probability that an episode of pi is one that mu can have.

        With a reward of 1 at the last step only, an episode's PDIS estimate is its weight.
        """
        mdp = self._mdp
        if isinstance(self._mu, WeightedDesign):
            # whether those entries are ever reached is not known here
            return _holes_are(self._mu.holes) if self._mu.holes else None
        mu, pi = (x.table(mdp.horizon) for x in (self._mu, self._pi))
        if not ((mu == 0.0) & (pi > 0.0)).any():
            return None
        last = np.zeros((mdp.horizon, mdp.states, mdp.actions))
        last[-1] = 1.0
        weights = mdp.with_reward(last, gamma=1.0)
        share = 1.0 - assess(weights, self._pi, self._mu).expectation
        if share <= 1e-9:
            return None
        warning = (
            f"the behavior policy never takes some actions that the target takes in {share:.3g} "
            "of its episodes"
        )
        bias = assess(mdp, self._pi, self._mu, self._control).bias
        scale = float(np.abs(mdp.reward).max()) * mdp.horizon
        if abs(bias) > 1e-9 * scale:
            return f"{warning}; the estimate is biased by {bias:.3g}"
        return f"{warning}; nothing is lost for the value, but the target's cost is underestimated"

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        target = self._on_policy or by_target
        ran = self._pi if target else self._mu
        done = summaries(
            self._mdp,
            self._pi,
            ran,
            control_variate=self._control,
            cost_control=self._cost_control,
            episodes=count,
            seed=self._seed,
            first=first,
        )
        return Batch(
            value=done.weight * done.returned if self._whole else done.estimate,
            returned=done.returned,
            weight=done.weight,
            costs=replace(self._costs(done, first, ran), cap=1.0 if target else self._cap),
            spent=done.spent,
            target_spent=done.weighted_spent,
            by_target=np.full(count, target),
            controlled=self._control is not None,
        )

    def _costs(
        self, done: Summaries, first: int, ran: TabularPolicy | WeightedDesign
    ) -> EpisodeCosts:
        """What the promise is about; the same episodes weighted for a reference policy."""
        if self._promise.limit is not None:
            return limit_costs(done.cost, self._promise.limit)
        if self._promise.compared == "target":
            controlled = self._cost_control is not None
            return EpisodeCosts(
                done.cost,
                done.weighted_cost,
                done.weight,
                done.exposure,
                own_controlled=done.own_controlled if controlled else None,
                target_controlled=done.target_controlled if controlled else None,
            )
        if isinstance(ran, WeightedDesign):
            raise InputError(
                "reference: the simulator weighs episodes of a weight-aware behavior policy for "
                "its own target only; try env=TabularEnv(mdp)"
            )
        other = policy_table(self._mdp, "reference", self._promise.of)
        again = summaries(
            self._mdp, other, ran, episodes=len(done.cost), seed=self._seed, first=first
        )
        holes = (other > 0) & (ran.table(self._mdp.horizon) <= 0)
        return EpisodeCosts(
            again.cost,
            again.weighted_cost,
            again.weight,
            again.exposure,
            covered=not holes.any(),
        )
