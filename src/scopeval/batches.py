"""Where evaluation gets its episodes from: numbers per episode, in batches, by either policy.

Two sources give the same `Batch`: the compiled simulator for a `TabularMDP` (`Simulated`, nothing
but the numbers is kept) and Gymnasium environments (`Collected`). Both can be asked at any time to
let the target itself run; the control variate, if there is one, stays, for it does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collect import NoEpisodeError, collect
from scopeval.episodes import Episodes, LostEpisode
from scopeval.errors import InputError
from scopeval.estimators import (
    ESTIMATORS,
    doubly_robust,
    pdis,
    pdis_cost,
    trajectory_weights,
)
from scopeval.exact import Design, TabularMDP, assess
from scopeval.methods import METHODS
from scopeval.plants import CostFunction, plants
from scopeval.policies import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    TabularPolicy,
    Time,
    Weighing,
    offer,
    weigh,
)
from scopeval.rollout import GuardStep
from scopeval.safety import Guard
from scopeval.simulate import summaries

__all__ = ["Batch", "Collected", "Simulated", "Source", "open_source", "summarise"]


@dataclass(frozen=True)
class Batch:
    """One number per finished episode, [k] each, and what went wrong.

    Attributes:
        value: unbiased for J(pi).
        returned: the plain return, discounted.
        weight: the importance weight of the whole episode.
        cost: discounted as the returns are; what the promise is about.
        weighted_cost: unbiased for the target's, likewise.
        spent: what the episode really cost, not discounted.
        target_spent: the same weighted: unbiased for the target's.
        by_target: the whole episode was run by the target itself.
        controlled: a control variate was used.
        fallbacks: steps that the behaviour policy left to the target because it failed.
        guarded: steps that a guard gave to the target.
        lost: unfinished episodes.
        interrupted: the user stopped it.
        episodes: all there is to know, where it is kept.
    """

    value: Floats
    returned: Floats
    weight: Floats
    cost: Floats
    weighted_cost: Floats
    spent: Floats
    target_spent: Floats
    by_target: Bools
    controlled: bool = False
    fallbacks: int = 0
    guarded: int = 0
    lost: tuple[LostEpisode, ...] = ()
    interrupted: bool = False
    episodes: Episodes | None = None

    def __len__(self) -> int:
        return len(self.value)


class Source(Protocol):
    """Runs episodes by number, in batches."""

    @property
    def side_by_side(self) -> int:
        """How many episodes run at the same time; a batch had better be a multiple."""
        ...

    @property
    def quick(self) -> bool:
        """Whether episodes cost next to no time, so that batches had better be large."""
        ...

    @property
    def uncovered(self) -> str | None:
        """What the behaviour policy leaves out of the target, in words; None: nothing known."""
        ...

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        ...

    def close(self) -> None:
        """Give back what was opened."""
        ...


def summarise(episodes: Episodes, gamma: float, estimator: str) -> Batch:
    """The numbers of collected episodes; estimator "auto": dr with a control variate, else pdis."""
    controlled = episodes.control is not None
    if not len(episodes):
        none = np.empty(0)
        value, weight, weighted, target_spent = none, none, none, none
    else:
        if estimator == "auto":
            value = doubly_robust(episodes, gamma) if controlled else pdis(episodes, gamma)
        else:
            value = ESTIMATORS[estimator].values(episodes, gamma)
        weight = trajectory_weights(episodes)
        weighted, target_spent = pdis_cost(episodes, gamma), pdis_cost(episodes)
    return Batch(
        value=value,
        returned=episodes.returns(gamma),
        weight=weight,
        cost=episodes.costs(gamma),
        weighted_cost=weighted,
        spent=episodes.costs(),
        target_spent=target_spent,
        by_target=episodes.by_target,
        controlled=controlled and estimator in ("auto", "dr"),
        fallbacks=int(episodes.fallbacks.sum()),
        guarded=int(episodes.guarded.sum()),
        lost=episodes.lost,
        interrupted=episodes.interrupted,
        episodes=episodes,
    )


class Collected:
    """Episodes in Gymnasium environments, by `collect`; also of a `TabularMDP` to be kept."""

    def __init__(
        self,
        env: Any,
        target: Policy | ContinuousPolicy,
        behavior: Any,
        *,
        horizon: int | None,
        gamma: float,
        estimator: str,
        cost: str | CostFunction | None,
        batch: int | None,
        seed: int,
        guard_step: GuardStep | None = None,
        uncovered: str | None = None,
    ) -> None:
        self.quick = simulated = isinstance(env, TabularMDP)
        self._env = env if simulated else plants(env, batch, cost)
        self._cost = cost if simulated else None
        self.side_by_side = 1 if simulated else len(self._env)
        self._target, self._behavior = target, behavior
        self._kept = None if behavior is None else _kept(behavior, simulated)
        self._horizon, self._gamma, self._estimator = horizon, gamma, estimator
        self._seed, self._guard_step = seed, guard_step
        self.uncovered = uncovered

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        try:
            episodes = collect(
                self._env,
                self._target,
                self._kept if by_target else self._behavior,
                horizon=self._horizon,
                episodes=count,
                seed=self._seed,
                first=first,
                cost=self._cost,
                guard_step=None if by_target else self._guard_step,
            )
        except NoEpisodeError as error:
            if first == 0:
                raise
            episodes = error.episodes
        if by_target:
            episodes = replace(episodes, by_target=np.ones(len(episodes), np.bool_))
        return summarise(episodes, self._gamma, self._estimator)

    def close(self) -> None:
        """Close the environments that were made here."""
        if not isinstance(self._env, TabularMDP):
            self._env.close()


class Simulated:
    """Episodes of a `TabularMDP` by the compiled simulator; any finite policies, as tables.

    The simulator gives an estimate, a cost and a weighted cost per episode and no weight. Asked
    three times for the same episodes it gives all: the return is the estimate of mu's own value,
    and the weight is the PDIS estimate of a reward of 1 at the last step.
    """

    side_by_side, quick = 1, True

    def __init__(
        self,
        mdp: TabularMDP,
        target: Policy,
        behavior: Any,
        *,
        estimator: str,
        free: bool,
        seed: int,
    ) -> None:
        self._seed = seed
        self._on_policy = behavior is None
        pi, mu, b = _tables(mdp, target, behavior)
        if estimator == "dr" and b is None:
            raise InputError(
                "estimator: 'dr' needs a behaviour policy with a control variate (method "
                "'scope-dr' or 'dopt'); try 'pdis'"
            )
        if estimator == "mc" and (np.abs(pi - mu) > 1e-9).any():
            raise InputError(
                "estimator: 'mc', plain returns, gives the target's value only where the target "
                "itself is run; try 'auto'"
            )
        self._whole = estimator == "is"
        self._control = b if estimator in ("auto", "dr") else None
        cost = np.zeros_like(mdp.cost) if free else mdp.cost
        last = np.zeros((mdp.horizon, mdp.states, mdp.actions))
        last[-1] = 1.0
        self._mdp = TabularMDP(
            mdp.initial,
            mdp.transition,
            mdp.reward,
            cost,
            mdp.horizon,
            gamma=mdp.gamma,
            reward_variance=mdp.reward_variance,
        )
        self._weigher = TabularMDP(mdp.initial, mdp.transition, last, cost, mdp.horizon)
        self._pi, self._mu = TabularPolicy(pi), TabularPolicy(mu)
        self.uncovered = self._left_out()

    def _left_out(self) -> str | None:
        """The mean weight is the chance that an episode of pi is one that mu can have."""
        share = 1.0 - assess(self._weigher, self._pi, self._mu).expectation
        if share <= 1e-9:
            return None
        told = (
            f"the behaviour policy never takes some actions that the target takes in {share:.3g} "
            "of its episodes"
        )
        bias = assess(self._mdp, self._pi, self._mu, self._control).bias
        scale = float(np.abs(self._mdp.reward).max()) * self._mdp.horizon
        if abs(bias) > 1e-9 * scale:
            return f"{told}; the estimate is biased by {bias:.3g}"
        return f"{told}; nothing is lost for the value, but the target's cost is underestimated"

    def run(self, first: int, count: int, *, by_target: bool) -> Batch:
        """Run episodes first .. first+count-1."""
        target = self._on_policy or by_target
        mu = self._pi if target else self._mu
        how: dict[str, Any] = {"episodes": count, "seed": self._seed, "first": first}
        main = summaries(self._mdp, self._pi, mu, control_variate=self._control, **how)
        weigher = summaries(self._weigher, self._pi, mu, **how)
        plain = main if target and self._control is None else summaries(self._mdp, mu, **how)
        return Batch(
            value=weigher.estimate * plain.estimate if self._whole else main.estimate,
            returned=plain.estimate,
            weight=weigher.estimate,
            cost=main.cost,
            weighted_cost=main.weighted_cost,
            spent=weigher.cost,
            target_spent=weigher.weighted_cost,
            by_target=np.full(count, target),
            controlled=self._control is not None,
        )

    def close(self) -> None:
        """Nothing is open."""


def open_source(
    env: Any,
    target: Policy | ContinuousPolicy,
    behavior: Any,
    *,
    horizon: int | None,
    gamma: float,
    estimator: str,
    cost: str | CostFunction | None,
    seed: int,
    batch: int | None,
    keep: bool,
    guard: Guard | None,
) -> Source:
    """The source for an environment; arguments as in `evaluate`."""
    limited = guard is not None and guard.limited
    if not isinstance(env, TabularMDP):
        if horizon is None:
            horizon = getattr(getattr(behavior, "recipe", None), "horizon", None)
        return Collected(
            env,
            target,
            behavior,
            horizon=horizon,
            gamma=gamma,
            estimator=estimator,
            cost=cost,
            batch=batch,
            seed=seed,
            guard_step=guard.steps_exceeded if guard is not None and limited else None,
            uncovered=_holes(target, behavior),
        )
    if limited or batch is not None or not (cost is None or cost == "none"):
        raise InputError(
            "env: a TabularMDP is run by the compiled simulator, which runs whole episodes and "
            "knows no limits within them, no batch and no cost function; try env=TabularEnv(mdp)"
        )
    if isinstance(target, ContinuousPolicy):
        raise InputError("target: has continuous actions, the TabularMDP finitely many")
    mdp = env if horizon is None else _cut(env, horizon)
    free = cost == "none"
    simulated = Simulated(mdp, target, behavior, estimator=estimator, free=free, seed=seed)
    if not keep:
        return simulated
    pi, mu, b = _tables(mdp, target, behavior)
    tilted = behavior is not None
    nothing = np.zeros(mu.shape[:2], np.bool_)
    return Collected(
        mdp,
        TabularPolicy(pi),
        Design(mu, METHODS["on-policy"], b, nothing, nothing) if tilted else None,
        horizon=None,
        gamma=gamma,
        estimator=estimator,
        cost=cost,
        batch=None,
        seed=seed,
        uncovered=simulated.uncovered,
    )


def _cut(mdp: TabularMDP, horizon: int) -> TabularMDP:
    """The first steps of an MDP."""
    if not 1 <= horizon <= mdp.horizon:
        raise InputError(f"horizon: got {horizon}, expected 1 to the MDP's {mdp.horizon}")

    def first(table: Floats) -> Floats:
        return table[:horizon] if table.ndim == 3 else table

    return TabularMDP(
        mdp.initial,
        mdp.transition,
        first(mdp.reward),
        first(mdp.cost),
        horizon,
        gamma=mdp.gamma,
        reward_variance=first(mdp.reward_variance),
    )


class _Kept:
    """The target itself, with the control variate of a behaviour policy."""

    def __init__(self, behavior: Behavior) -> None:
        self._behavior = behavior

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
        return Weighing(offered.probs, weigh(self._behavior, offered, obs, t).control)


def _kept(behavior: Any, simulated: bool) -> Any:
    """What runs once the behaviour policy may not; None: the bare target."""
    return _Kept(behavior) if isinstance(behavior, Behavior) and not simulated else None


def _tables(mdp: TabularMDP, target: Policy, behavior: Any) -> tuple[Floats, Floats, Floats | None]:
    """pi, mu and b [T, S, A] of any finite policies on a finite MDP."""
    states, rng = np.arange(mdp.states), np.random.default_rng(0)
    offers = [offer(target, states, t, rng) for t in range(mdp.horizon)]
    pi = np.stack([o.probs for o in offers])
    if behavior is None:
        return pi, pi, None
    if hasattr(behavior, "table") and hasattr(behavior, "recipe"):  # a learned behaviour: not
        mu, b = behavior.table(mdp.states)  # counted as asked
        if len(mu) < mdp.horizon:
            raise InputError(
                f"behavior: designed for horizon {len(mu)}, expected at least {mdp.horizon}"
            )
        return pi, mu[: mdp.horizon], None if b is None else b[: mdp.horizon]
    found = [weigh(behavior, o, states, t) for t, o in enumerate(offers)]
    controls = [w.control for w in found if w.control is not None]
    return pi, np.stack([w.probs for w in found]), np.stack(controls) if controls else None


def _holes(target: Any, behavior: Any) -> str | None:
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
        f"the behaviour policy's table is 0 at {int(holes.sum()):,} places where the target's is "
        "not; where those are reached, the target's cost is underestimated, and the value too "
        "unless the behaviour was designed so"
    )
