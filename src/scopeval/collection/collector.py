"""Run a policy in environments and keep the episodes.

At every step the target *offers* candidates with probabilities p_k (all actions of a finite set, or
K draws of a continuous policy), the behavior policy *re-weighs* them to mu_k, one is drawn and
executed, and p_k, mu_k and the control variate are recorded. The estimators need nothing else.

Seeds: all randomness of episode i under seed s comes from `numpy.random.SeedSequence(s,
spawn_key=(i,))`: the environment's reset seed, the candidates and the choices among them. Episode i
is the same episode however many run side by side and in whatever chunks they are asked for (up to
rounding where a policy's own arithmetic depends on the size of its batch, as float32 networks do).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from scopeval.arrays import check_whole
from scopeval.collection.environments import EnvironmentPool, name_of, open_environments
from scopeval.collection.episodes import Episodes, provenance_of
from scopeval.collection.plant import plant_of
from scopeval.collection.rollout import GuardStep, Rollout
from scopeval.collection.shared_rollout import SharedRollout, open_shared
from scopeval.collection.simulated import TabularFleet, simulated_episodes
from scopeval.errors import InputError, PlantError
from scopeval.exact import TabularMDP, WeightedDesign
from scopeval.policies.adapters import as_behavior
from scopeval.policies.protocols import weight_aware
from scopeval.question.question import question_of

__all__ = ["NO_WORKERS", "NoEpisodeError", "collect"]

NO_WORKERS = (
    "workers: got a TabularMDP, which the compiled simulator runs on all cores of this machine; "
    "expected no workers, or try env=lambda: TabularEnv(mdp)"
)


class NoEpisodeError(PlantError):
    """No episode could be finished; `episodes.lost` says what happened to each."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        lost = episodes.lost[0]
        super().__init__(
            f"none of {len(episodes.lost):,} episodes could be finished; the first, number "
            f"{lost.index}, was lost at step {lost.step}: {lost.reason}"
        )


def collect(
    env: Any,
    policy: Any,
    run: Any = None,
    *,
    horizon: int | None = None,
    episodes: int,
    seed: int = 0,
    first: int = 0,
    guard_step: GuardStep | None = None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Episodes:
    """Run episodes number first .. first+episodes-1 and keep what the estimators need.

    Args:
        env: where: an environment, the name of one, a function that makes one, a `TabularMDP`, or a
            `Plant` of these; or what `open_environments` has opened, for many calls with the same
            environments. (The compiled simulator, which runs a `TabularMDP`, takes tabular policies
            only; it has random numbers of its own, so the episodes are not those of the same MDP as
            an environment; an absorbing state without reward and cost ends the episode.)
        policy: pi, the target, in any form that `as_policy` takes.
        run: what is run: a design for the target, or a plain policy over the same finite actions;
            None runs the target itself.
        horizon: T; an episode that is not over by then is cut there. May be left out for a
            `TabularMDP`. An environment that truncates earlier ends the episode too.
        episodes: how many.
        seed: of the collection.
        first: number of the first episode.
        guard_step: called after every step with the costs so far of the running episodes, [B];
            returns which of them the target runs from the next step on. The ratio is 1 from there
            and the estimates stay unbiased. A guard that raises gives all of them to the target.
        progress: called as progress(done, total) after every episode, finished or lost.
        stop: asked before episodes are begun; True begins no more, those running are finished.

    Returns:
        The finished episodes, in order of their numbers. After a KeyboardInterrupt: those that were
        finished, marked `interrupted`, with the running ones among the lost.

    Raises:
        InputError: something to correct first (no cost reported, a target that gives NaN, ...).
        PlantError: the environment cannot be made.
        NoEpisodeError: every episode was lost.
    """
    asked = question_of(policy, horizon)
    target, horizon = asked.policy, asked.horizon
    behavior = as_behavior(run, target)
    episodes = check_whole("episodes", episodes, 1)
    seed, first = check_whole("seed", seed, 0), check_whole("first", first, 0)
    plant = plant_of(env)
    env, cost, batch, crew = plant.env, plant.cost, plant.side_by_side, plant.crew
    if isinstance(env, TabularMDP):
        if crew is not None:
            raise InputError(NO_WORKERS)
        if guard_step is not None or batch is not None or not (cost is None or cost == "none"):
            raise InputError(
                "env: a TabularMDP is run by the compiled simulator, which knows no guard_step, "
                "side_by_side or cost function; try env=TabularEnv(mdp)"
            )
        if weight_aware(behavior) and not isinstance(behavior, WeightedDesign):
            mdp = env if horizon is None else env.shortened(horizon)
            with open_environments(TabularFleet(mdp), None, cost) as pool:
                fleet = Rollout(pool, target, behavior, mdp.horizon, seed)
                done = fleet.run(first, episodes, progress=progress, stop=stop)
            return done.with_provenance(provenance_of(name_of(env), target, behavior, mdp.horizon))
        done = simulated_episodes(
            env,
            target,
            behavior,
            horizon=horizon,
            episodes=episodes,
            seed=seed,
            first=first,
            free=cost == "none",
        )
        if progress is not None:
            progress(episodes, episodes)
        return done.with_provenance(provenance_of(name_of(env), target, behavior, done.horizon))
    if horizon is None:
        raise InputError("horizon: needed, expected the number of steps at which episodes are cut")
    opened = isinstance(env, EnvironmentPool)
    if opened and not (batch is None and cost is None):
        raise InputError("env: opened with its own batch and cost, expected neither here")
    rollout: Rollout | SharedRollout
    if crew is not None:
        with open_shared(env, batch, cost, crew, plant.signals) as shared:
            rollout = SharedRollout(
                shared, target, behavior, horizon=horizon, seed=seed, guard_step=guard_step
            )
            result = rollout.run(first, episodes, progress=progress, stop=stop)
            name = shared.plant
    else:
        with (
            nullcontext(env)
            if opened
            else open_environments(env, batch, cost, plant.signals) as pool
        ):
            rollout = Rollout(
                pool, target, behavior, horizon=horizon, seed=seed, guard_step=guard_step
            )
            result = rollout.run(first, episodes, progress=progress, stop=stop)
            name = pool.plant
    if result.lost and not len(result) and not result.interrupted:
        raise NoEpisodeError(result)
    return result.with_provenance(provenance_of(name, target, behavior, horizon), plant.columns)
