"""Run a policy in Gymnasium environments: episodes out, whatever goes wrong on the way.

At every step the target *offers* candidates with probabilities p_k (all actions of a finite set, or
K draws of a continuous policy), the behavior policy *re-weighs* them to mu_k, one is drawn and
executed, and p_k, mu_k and the control variate are written down. Nothing else is needed later.

Seeds: all randomness of episode i under seed s comes from `numpy.random.SeedSequence(s,
spawn_key=(i,))`: the environment's reset seed, the candidates and the choices among them. Episode i
is the same episode however many run side by side and in whatever chunks they are asked for (up to
rounding where a policy's own arithmetic depends on the size of its batch, as float32 networks do).

What goes wrong: an environment that raises or gives NaN loses the episode it is in; the record says
why. A behavior policy that fails at a step leaves that step to the target, counted. A target that
fails is an error at once, for nothing can be run without it. An environment that never returns from
`step` cannot be stopped from here: give it a time limit of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scopeval.arrays import Bools, Floats
from scopeval.collection.environment_pool import Broken, CostFunction, Plants, plants
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.collection.rollout import GuardStep, Record, Rollout, columns
from scopeval.errors import InputError, PlantError
from scopeval.exact import Design, TabularMDP
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    Time,
    Weighing,
)

__all__ = ["Episodes", "LostEpisode", "NoEpisodeError", "collect"]


class NoEpisodeError(PlantError):
    """Not one episode could be finished; `episodes.lost` says what happened to each."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        lost = episodes.lost[0]
        super().__init__(
            f"none of {len(episodes.lost):,} episodes could be finished; the first, number "
            f"{lost.index}, was lost at step {lost.step}: {lost.reason}"
        )


def collect(
    env: Any,
    target: Any,
    behavior: Any = None,
    *,
    horizon: int | None = None,
    episodes: int,
    seed: int = 0,
    first: int = 0,
    cost: str | CostFunction | None = None,
    batch: int | None = None,
    guard_step: GuardStep | None = None,
    progress: Callable[[int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Episodes:
    """Run episodes number first .. first+episodes-1 and keep what the estimators need.

    Args:
        env: a Gymnasium environment; the name of a registered one; a function that makes one
            (several are then run side by side, with one call of the policy per step); what
            `plants` has opened, for many calls with the same environments; a `Fleet`, which steps
            many environments by one call (such as `envs.mujoco.Robots`); or a `TabularMDP`, which
            the compiled simulator runs (tabular policies only; its random numbers are its
            own, so the episodes are not those of the same MDP as an environment; an absorbing
            state without reward and cost ends the episode).
        target: pi, in any form that `as_policy` takes.
        behavior: a `Behavior` designed for the target or a plain policy over the same finite
            actions; None runs the target itself.
        horizon: T; an episode that is not over by then is cut there. May be left out for a
            `TabularMDP`. An environment that truncates earlier by itself ends the episode too.
        episodes: how many.
        seed: of the collection.
        first: number of the first episode.
        cost: None: info["cost"], or the third of six values that `step` returns; a name: that entry
            of info; a function cost(obs, action, reward, next_obs, info); "none": costs are all 0.
        batch: how many environments to make (default 8) when `env` is a name or a function.
        guard_step: called after every step with the costs so far of the running episodes, [B];
            answers which of them the target shall run from the next step on. The ratio is 1 from
            there and the estimates stay unbiased. A guard that fails gives all of them to the
            target.
        progress: called as progress(done, total) after every episode, finished or lost.
        stop: asked before episodes are begun; True begins no more, those running are finished.

    Returns:
        The finished episodes, in order of their numbers. After a KeyboardInterrupt: those that were
        finished, marked `interrupted`, with the running ones among the lost.

    Raises:
        InputError: something to put right first (no cost reported, a target that gives NaN, ...).
        PlantError: the environment cannot be made.
        NoEpisodeError: every episode was lost.
    """
    policy = as_policy(target)
    how = _behavior(behavior)
    _whole("episodes", episodes, 1)
    _whole("seed", seed, 0)
    _whole("first", first, 0)
    if isinstance(env, TabularMDP):
        if guard_step is not None or batch is not None or not (cost is None or cost == "none"):
            raise InputError(
                "env: a TabularMDP is run by the compiled simulator, which knows no guard_step, "
                "batch or cost function; try env=TabularEnv(mdp)"
            )
        done = _simulated(env, policy, how, horizon, episodes, seed, first, cost == "none")
        if progress is not None:
            progress(episodes, episodes)
        return done
    if horizon is None:
        raise InputError("horizon: needed, expected the number of steps at which episodes are cut")
    opened = isinstance(env, Plants)
    if opened and not (batch is None and cost is None):
        raise InputError("env: opened with its own batch and cost, expected neither here")
    machines: Plants = env if opened else plants(env, batch, cost)
    run = Rollout(policy, how, _whole("horizon", horizon, 1), guard_step, proven=first > 0)
    lost: list[LostEpisode] = []
    finished: list[Record] = []
    running: list[Record] = []
    interrupted = False

    def over(record: Record, failure: Broken | None) -> None:
        running.remove(record)
        if failure is None:
            finished.append(record)
        else:
            lost.append(LostEpisode(record.index, len(record.reward), str(failure), record.paid))
        if progress is not None:
            progress(len(finished) + len(lost), episodes)

    try:
        for begin in range(first, first + episodes, len(machines)):
            if stop is not None and stop():
                break
            last = min(begin + len(machines), first + episodes)
            running.extend(Record(i, seed, run.horizon) for i in range(begin, last))
            run.side_by_side(list(running), machines, over)
    except KeyboardInterrupt:
        interrupted = True
        reason = "interrupted by the user"
        lost += [LostEpisode(r.index, len(r.reward), reason, r.paid) for r in running]
    finally:
        if not opened:
            machines.close()
    finished.sort(key=lambda record: record.index)
    lost.sort(key=lambda episode: episode.index)
    table = columns(finished, run.horizon, by_target=how is None, controlled=run.controlled)
    result = Episodes(**table, lost=tuple(lost), interrupted=interrupted)
    if lost and not finished and not interrupted:
        raise NoEpisodeError(result)
    return result


class _Tabled:
    """An exact design as a `Behavior`: its table, with its control variate."""

    def __init__(self, design: Design, control: Floats) -> None:
        self.design = design
        self.control = control

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
        """Look both up."""
        return Weighing(self.design.probs(obs, t), self.control[t, obs])


def _behavior(behavior: Any) -> Behavior | Policy | None:
    if isinstance(behavior, Design) and behavior.control is not None:
        return _Tabled(behavior, behavior.control)
    if behavior is None or isinstance(behavior, Behavior):
        return behavior
    policy = as_policy(behavior)
    if not isinstance(policy, Policy):
        raise InputError(
            "behavior: got a policy over continuous actions; expected one that re-weighs the "
            "target's candidates, weigh(offered, obs, t)"
        )
    return policy


def _simulated(
    mdp: TabularMDP,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    horizon: int | None,
    episodes: int,
    seed: int,
    first: int,
    free: bool,
) -> Episodes:
    """The same by the compiled simulator."""
    from scopeval.simulate import trajectories

    table = behavior.design if isinstance(behavior, _Tabled) else behavior
    if not isinstance(target, TabularPolicy) or not isinstance(table, TabularPolicy | None):
        raise InputError(
            "env: a TabularMDP needs tabular policies, target and behavior; try "
            "env=TabularEnv(mdp) for others"
        )
    T = mdp.horizon if horizon is None else _whole("horizon", horizon, 1)
    if mdp.horizon < T:
        raise InputError(f"horizon: got {T}, expected at most the MDP's {mdp.horizon}")
    run = trajectories(mdp, table or target, episodes=episodes, seed=seed, first=first)
    over = absorbing(mdp)[run.states[:, 1 : T + 1]]
    length = np.where(over.any(axis=1), np.argmax(over, axis=1) + 1, T)
    times = np.arange(T)
    real = times < length[:, None]
    states, actions = run.states[:, :T] * real, run.actions[:, :T] * real
    pi, mu = target.table(T), (table or target).table(T)
    control = baseline = None
    if isinstance(behavior, _Tabled):
        b = behavior.control[:T]
        control = b[times, states, actions] * real
        baseline = (pi * b).sum(axis=2)[times, states] * real
    return Episodes(
        obs=states,
        action=actions,
        reward=run.rewards[:, :T] * real,
        cost=run.costs[:, :T] * (real & (not free)),
        behavior_prob=np.where(real, mu[times, states, actions], 1.0),
        target_prob=np.where(real, pi[times, states, actions], 1.0),
        length=length,
        last_obs=run.states[np.arange(episodes), length],
        terminated=np.asarray(over.any(axis=1)),
        control=control,
        baseline=baseline,
        by_target=np.full(episodes, behavior is None),
        index=np.arange(first, first + episodes),
    )


def absorbing(mdp: TabularMDP) -> Bools:
    """States that are the end of an episode: never left, nothing to earn or to pay. [S]."""
    S, A = mdp.states, mdp.actions
    stays = mdp.transition[np.arange(S * A), np.repeat(np.arange(S), A)]
    ends = (np.asarray(stays).reshape(S, A) > 1 - 1e-12).all(axis=1)
    for table in (mdp.reward, mdp.cost, mdp.reward_variance):
        ends &= (table == 0).reshape(-1, S, A).all(axis=(0, 2))
    return np.asarray(ends)


def _whole(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < least:
        raise InputError(f"{name}: got {value!r}, expected a whole number >= {least}")
    return int(value)
