"""Which source runs the episodes: environments, or the compiled simulator of a finite MDP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from scopeval.arrays import check_whole
from scopeval.collection.collector import NO_WORKERS
from scopeval.collection.environments import EnvironmentPool, StepCost, open_environments
from scopeval.collection.episodes import Episodes
from scopeval.collection.plant import Plant
from scopeval.collection.provenance import name_of, provenance_of
from scopeval.collection.rollout import Rollout
from scopeval.collection.shared_rollout import SharedEnvironments, SharedRollout, open_shared
from scopeval.collection.simulated import TabularFleet
from scopeval.context.history import History
from scopeval.errors import InputError
from scopeval.estimation.estimators import BIASED, ESTIMATORS, Estimator
from scopeval.evaluation.sources import CollectedSource, Source, simulated_source
from scopeval.exact import TabularMDP, WeightedDesign
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    LearnedBehavior,
    Policy,
    largest_weight,
    weight_aware,
)
from scopeval.question.inference import Inference
from scopeval.question.promise import Bound, Promise
from scopeval.question.question import Question, discount
from scopeval.safety.cost_bound import CostBound, cost_bound_of
from scopeval.safety.costs import cost_control_of
from scopeval.safety.guard import Guard

__all__ = [
    "Sources",
    "bound_of",
    "completed",
    "decisions_of",
    "open_sources",
    "refuse_terms",
    "unbiased_estimator",
]


def completed(question: Question, env: Any, behavior: Any) -> Question:
    """What is left open comes from the `TabularMDP`, or from a learned behavior policy."""
    horizon, gamma = question.horizon, question.gamma
    if isinstance(env, TabularMDP):
        if gamma not in (None, env.gamma):
            raise InputError(f"gamma: got {gamma}, the TabularMDP has {env.gamma}; leave it out")
        gamma = env.gamma
    if isinstance(behavior, LearnedBehavior):
        recipe = behavior.recipe
        horizon = recipe.horizon if horizon is None else horizon
        gamma = recipe.gamma if gamma is None else gamma
    return replace(question, horizon=horizon, gamma=float(1.0 if gamma is None else gamma))


def bound_of(
    env: Any,
    question: Question,
    behavior: Behavior | Policy | None,
    bound: Bound,
) -> CostBound | None:
    """What is known about the costs of episodes: stated bounds, and the largest weight."""
    horizon = question.horizon
    if horizon is None and isinstance(env, TabularMDP):
        horizon = env.horizon
    return cost_bound_of(
        bound.episode,
        bound.step,
        horizon=horizon,
        gamma=discount(question),
        largest_weight=largest_weight(behavior),
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
    def target(self) -> Policy | ContinuousPolicy:
        """Pi."""
        return self.question.policy

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
        if self.environments is not None:
            return self._in_environments(
                self.environments, self.question.horizon, behavior, estimator, guard
            )
        limited = guard is not None and guard.limited
        if self.batch is not None or self.cost not in (None, "none") or limited:
            raise InputError(
                "env: a TabularMDP is run by the compiled simulator, which runs whole episodes and "
                "knows no limits within them, no side_by_side and no cost function; try "
                "env=TabularEnv(mdp)"
            )
        if weight_aware(behavior) and not isinstance(behavior, WeightedDesign):
            mdp = self.env if self.cut is None else self.env.shortened(self.cut)
            pool = open_environments(
                TabularFleet(mdp), cost="none" if self.cost == "none" else None
            )
            return self._in_environments(pool, mdp.horizon, behavior, estimator, guard)
        return simulated_source(
            self.env,
            self.target,
            behavior,
            self.cut,
            estimator=estimator,
            free=self.cost == "none",
            seed=self.seed,
            keep=keep,
            promise=self.promise,
        )

    def _in_environments(
        self,
        environments: EnvironmentPool | SharedEnvironments,
        horizon: int | None,
        behavior: Behavior | Policy | None,
        estimator: Estimator,
        guard: Guard | None,
    ) -> Source:
        if horizon is None:
            raise InputError(
                "horizon: needed, expected the number of steps at which episodes are cut"
            )
        horizon = check_whole("horizon", horizon, 1)
        guard_step = guard.steps_exceeded if guard is not None and guard.limited else None
        rollout: Rollout | SharedRollout
        if isinstance(environments, SharedEnvironments):
            rollout = SharedRollout(
                environments,
                self.target,
                behavior,
                horizon=horizon,
                seed=self.seed,
                guard_step=guard_step,
                baseline=self.baseline,
            )
        else:
            rollout = Rollout(
                environments,
                self.target,
                behavior,
                horizon,
                self.seed,
                guard_step,
                self.baseline,
            )
        return CollectedSource(
            rollout.run,
            discount(self.question),
            estimator,
            len(environments),
            uncovered=_missing_entries(self.target, behavior),
            cost_control=None if self.cost == "none" else cost_control_of(self.target, behavior),
            promise=self.promise,
            target=None if isinstance(self.target, ContinuousPolicy) else self.target,
            cap=largest_weight(behavior),
        )

    def described(self, episodes: Episodes, behavior: Behavior | Policy | None) -> Episodes:
        """The episodes with where they come from."""
        plant = name_of(self.env) if self.environments is None else self.environments.plant
        provenance = provenance_of(plant, self.target, behavior, episodes.horizon)
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
    return (
        f"the behavior policy's table is 0 at {int(holes.sum()):,} places where the target's is "
        "not; where those are reached, the target's cost is underestimated, and the value too "
        "unless the behavior was designed so"
    )


def unbiased_estimator(estimator: Estimator, *, on_policy: bool) -> Estimator:
    """What gives the values while episodes run; "auto" is "mc" for the target itself."""
    if not isinstance(estimator, str):
        return estimator
    names = ("auto", *ESTIMATORS)
    if estimator in BIASED:
        raise InputError(
            f"estimator: got {estimator!r}, which needs all episodes at once; expected a function "
            f"or one of {', '.join(names)} while episodes run; for others collect first: "
            "estimate(collect(env, policy, run, episodes=1000), policy, "
            f"inference=Inference(estimator={estimator!r}))"
        )
    if estimator not in names:
        raise InputError(
            f"estimator: got {estimator!r}, expected one of {', '.join(names)}, or a function: "
            "Episodes -> one value per episode"
        )
    return "mc" if estimator == "auto" and on_policy else estimator


def refuse_terms(by: Inference, context: History | None) -> None:
    """What needs the values of an estimator that is offered here, with another one."""
    estimator = by.estimator
    if isinstance(estimator, str) and estimator not in BIASED:
        return
    if by.return_bound is not None or context is not None:
        which = repr(estimator) if isinstance(estimator, str) else "a function"
        given = "context" if by.return_bound is None else "return_bound"
        raise InputError(
            f"estimator: got {which} with {given}, expected one of {', '.join(ESTIMATORS)} there; "
            f"leave {given} out"
        )
