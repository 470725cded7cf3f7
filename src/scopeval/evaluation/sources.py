"""Where evaluation gets its episodes from: numbers per episode, in batches, by either policy.

Two kinds of source give the same `Batch`: environments (`CollectedSource`, which also serves a
`TabularMDP` whose episodes are kept), and the compiled simulator of a `TabularMDP`
(`simulated_source.SimulatedSource`, where nothing but the numbers is kept). Both can be asked at
any time to let the target itself run; the control variate, if there is one, stays.

Episodes from the compiled simulator of finite MDPs, in batches, by either policy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats, as_floats
from scopeval.behavior.methods import METHODS
from scopeval.collection.collector import NoEpisodeError
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.collection.simulated import simulated_episodes
from scopeval.errors import InputError
from scopeval.estimation.estimators import ESTIMATORS, Estimator, doubly_robust, pdis, pdis_cost
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
from scopeval.policies.protocols import Behavior, ContinuousPolicy, Policy, largest_weight
from scopeval.question.promise import Promise
from scopeval.safety.costs import CostControl, EpisodeCosts, cost_control_of, costs_of, limit_costs
from scopeval.simulate import Summaries, summaries

__all__ = ["Batch", "CollectedSource", "SimulatedSource", "Source", "simulated_source", "summarize"]


@dataclass(frozen=True)
class Batch:
    """One number per finished episode, [k] each, and what went wrong.

    Attributes:
        value: unbiased for J(pi).
        returned: the plain return, discounted.
        weight: the importance weight of the whole episode.
        costs: discounted as the returns are, and weighted; what the promise is about.
        spent: what the episode cost, not discounted.
        target_spent: the same weighted: unbiased for the target's.
        by_target: the whole episode was run by the target itself.
        controlled: a control variate was used.
        fallbacks: steps at which the behavior policy failed and fell back to the target policy.
        guarded: steps that a guard gave to the target, or to the baseline.
        handed_over: episodes with such steps.
        steps: of all finished episodes.
        lost: unfinished episodes.
        interrupted: the user stopped it.
        episodes: everything that was recorded, where it is kept.
    """

    value: Floats
    returned: Floats
    weight: Floats
    costs: EpisodeCosts
    spent: Floats
    target_spent: Floats
    by_target: Bools
    controlled: bool = False
    fallbacks: int = 0
    guarded: int = 0
    handed_over: int = 0
    steps: int = 0
    lost: tuple[LostEpisode, ...] = ()
    interrupted: bool = False
    episodes: Episodes | None = None


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


class RunEpisodes(Protocol):
    """Runs episodes first .. first+count-1 and keeps them, as `Rollout.run` does."""

    def __call__(self, first: int, count: int, *, by_target: bool) -> Episodes:
        """Run them."""
        ...


@dataclass(frozen=True)
class CollectedSource:
    """Episodes that are collected whole and then summarized."""

    collect: RunEpisodes
    gamma: float
    estimator: Estimator
    side_by_side: int
    quick: bool = False
    uncovered: str | None = None
    cost_control: CostControl | None = None
    promise: Promise = field(default_factory=Promise)
    target: Policy | None = None
    cap: float = math.inf  # on the weights of the behavior policy

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        episodes = self.collect(first, count, by_target=by_target)
        if not first and episodes.lost and not len(episodes) and not episodes.interrupted:
            raise NoEpisodeError(episodes)
        if not first and callable(self.estimator):
            refuse_dependent(self.estimator, episodes)
        batch = summarize(episodes, self.gamma, self.estimator, self.cost_control)
        costs = batch.costs
        if self.promise.compared != "target":
            costs = costs_of(episodes, self.gamma, None, self.promise, self.target)
        return replace(batch, costs=replace(costs, cap=1.0 if by_target else self.cap))


def summarize(
    episodes: Episodes,
    gamma: float,
    estimator: Estimator,
    cost_control: CostControl | None = None,
) -> Batch:
    """The numbers of collected episodes; estimator "auto": dr with a control variate, else pdis."""
    controlled = episodes.control is not None
    returned, spent = episodes.returns(gamma), episodes.costs()
    value = target_spent = np.empty(0)
    if len(episodes):
        values: Callable[[Episodes, float], Floats] = pdis
        if estimator == "auto" and controlled:
            values = doubly_robust
        elif isinstance(estimator, str) and estimator != "auto":
            values = ESTIMATORS[estimator]
        value = _given(estimator, episodes) if callable(estimator) else values(episodes, gamma)
        target_spent = pdis_cost(episodes)
    return Batch(
        value=value,
        returned=returned,
        weight=episodes.weights,
        costs=costs_of(episodes, gamma, cost_control),
        spent=spent,
        target_spent=target_spent,
        by_target=episodes.by_target,
        controlled=controlled and estimator in ("auto", "dr"),
        fallbacks=int(episodes.fallbacks.sum()),
        guarded=int(episodes.guarded.sum()),
        handed_over=int((episodes.guarded > 0).sum()),
        steps=int(episodes.length.sum()),
        lost=episodes.lost,
        interrupted=episodes.interrupted,
        episodes=episodes,
    )


def _given(estimator: Callable[[Episodes], ArrayLike], episodes: Episodes) -> Floats:
    """The values of the user's function, checked."""
    values = as_floats("estimator", estimator(episodes), ndim=(1,), axes=("episode",))
    if len(values) != len(episodes):
        raise InputError(
            f"estimator: the function gave {len(values)} values, expected one for each of "
            f"{len(episodes)} episodes"
        )
    return values


def refuse_dependent(estimator: Callable[[Episodes], ArrayLike], episodes: Episodes) -> None:
    """A function whose value of an episode depends on which others it is given with."""
    whole, part = np.asarray(_given(estimator, episodes)), np.arange(len(episodes)) % 2 == 0
    alone = _given(estimator, episodes.select(part))
    if np.abs(alone - whole[part]).max(initial=0.0) > 1e-9 * np.abs(whole).max(initial=1.0):
        raise InputError(
            "estimator: the function gives an episode another value among other episodes, and "
            "evaluate calls it batch by batch; expected values of each episode alone; collect "
            "first: estimate(collect(env, policy, run, episodes=1000), "
            "inference=Inference(estimator=...))"
        )


# -- episodes from the compiled simulator of finite mdps -------------------------------------------


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
    promise: Promise | None = None,
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
        promise: what the cost of the behavior policy is compared with; None: the target's.
    """
    if isinstance(target, ContinuousPolicy):
        raise InputError("target: has continuous actions, the TabularMDP finitely many")
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
    source = SimulatedSource(
        mdp, pi, mu, b, own=on_policy, estimator=name, free=free, seed=seed, cost_control=q
    )
    source.promise, source.cap = promise or Promise(), largest_weight(behavior)
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
        promise=promise or Promise(),
        target=run_pi,
        cap=largest_weight(behavior),
    )


class SimulatedSource:
    """Episodes of a `TabularMDP` by the compiled simulator, which gives numbers only.

    Args:
        mdp: the model.
        pi: the target's table [T, S, A].
        mu: the behavior policy's, or tables for every weight of an episode.
        b: its control variate; None is b = 0.
        own: the target is what was to be run.
        estimator: as in `evaluate`.
        free: costs count as 0.
        seed: of the episodes.
        cost_control: q^c [T, S, A] as the behavior policy estimates it; None: unknown.
    """

    side_by_side, quick = 1, True

    def __init__(
        self,
        mdp: TabularMDP,
        pi: Floats,
        mu: Floats | WeightedDesign,
        b: Floats | None,
        *,
        own: bool,
        estimator: str,
        free: bool,
        seed: int,
        cost_control: Floats | None = None,
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
        self._seed, self._own = seed, own
        self._cost_control = cost_control
        self.promise = Promise()  # what the cost of the behavior policy is compared with
        self.cap = math.inf  # on the weights of the behavior policy
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
            return self._holes(self._mu)
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

    @staticmethod
    def _holes(design: WeightedDesign) -> str | None:
        """Whether those entries are ever reached is not known here."""
        if not design.holes:
            return None
        return (
            f"the behavior policy's tables are 0 at {design.holes:,} places where the target's are "
            "not; where those are reached, the target's cost is underestimated, and the value too "
            "unless the behavior was designed so"
        )

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        target = self._own or by_target
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
            costs=replace(self._costs(done, first, ran), cap=1.0 if target else self.cap),
            spent=done.spent,
            target_spent=done.weighted_spent,
            by_target=np.full(count, target),
            controlled=self._control is not None,
        )

    def _costs(
        self, done: Summaries, first: int, ran: TabularPolicy | WeightedDesign
    ) -> EpisodeCosts:
        """What the promise is about; the same episodes weighted for a reference policy."""
        if self.promise.limit is not None:
            return limit_costs(done.cost, self.promise.limit)
        if self.promise.compared == "target":
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
        other = policy_table(self._mdp, "reference", self.promise.of)
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
