"""ROS: robust on-policy sampling (Zhong, Zhang, Schaefer, Albrecht, Hanna; NeurIPS 2022).

On-policy episodes that correct each other: after every step the behavior policy moves away from
actions that were taken too often, so that the data are closer to the target policy's distribution
than independent episodes would be. With g the mean, over all steps ever collected, of
grad log pi_theta(A|S) at the evaluation parameters theta_e,

    theta_b = theta_e - alpha g,     the next action is drawn from pi_theta_b

(their Algorithm 1). For a tabular softmax policy that is, with n(s,a) and n(s) counts of what was
done and N the number of steps so far,

    logit_b(s,a) = log pi(a|s) - alpha (n(s,a) - n(s) pi(a|s)) / N.

The estimate is the plain mean of the returns: no importance weights. Episodes depend on each other,
so an interval that assumes independence is not valid; variance is measured across runs.

`ros_tabular` is the closed form, compiled. `ros` runs any torch module in an environment, one step
after the other. `ros_autograd.ros_fleet` runs many runs at once, for modules that torch can map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from experiments.baselines._tabular import parameters, share_runs
from scopeval.arrays import Floats, check_probs, check_whole
from scopeval.collection.collector import NoEpisodeError
from scopeval.collection.environments import (
    Environment,
    EnvironmentFailure,
    StepCost,
    open_environments,
)
from scopeval.collection.episodes import EpisodeRecord, Episodes, LostEpisode
from scopeval.collection.rollout import EpisodeStreams, draw_actions
from scopeval.collection.simulated import absorbing
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import TabularPolicy, TorchPolicy
from scopeval.policies.protocols import Observations, Time
from scopeval.simulate import plain_arrays

if TYPE_CHECKING:
    import torch

__all__ = ["RosRuns", "RosSampler", "ros", "ros_tabular"]


@dataclass(frozen=True)
class RosRuns:
    """Independent runs of ROS, each of many episodes that are *not* independent.

    Attributes:
        returns: [runs, episodes].
        costs: [runs, episodes].
        offline_returns: [M] returns of the episodes that each run began with; they are part of the
            mean.
        fallbacks: steps that fell back to the target policy, because parameters had overflowed.
    """

    returns: Floats
    costs: Floats
    offline_returns: Floats = field(default_factory=lambda: np.empty(0))
    fallbacks: int = 0

    @property
    def estimates(self) -> Floats:
        """The estimate after each episode: running means of the returns, [runs, episodes]."""
        known = len(self.offline_returns)
        count = known + np.arange(1, self.returns.shape[1] + 1)
        total = self.offline_returns.sum() + np.cumsum(self.returns, axis=1)
        return np.asarray(total / count)


def ros_tabular(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
    *,
    runs: int,
    episodes: int,
    alpha: float = 1000.0,
    seed: int = 0,
    first: int = 0,
    positions: bool = True,
    reset_each_episode: bool = False,
    offline: Episodes | None = None,
    threads: int | None = None,
) -> RosRuns:
    """Many independent runs of ROS with a tabular softmax policy, compiled.

    Args:
        mdp: the model. An absorbing state without reward and cost ends the episode.
        target: pi, the evaluation policy.
        runs: independent repetitions of the whole evaluation.
        episodes: of each run.
        alpha: step size; the authors use 1,000 for tabular policies (10,000 with offline data).
        seed: run r is a pure function of (seed, r), whatever the number of threads.
        first: number of the first run.
        positions: the policy's parameters belong to positions and are shared over time; False:
            to (t, position), as for a target that depends on time.
        reset_each_episode: an ablation: forget all counts after every episode.
        offline: episodes to begin with, which must be (nearly) the target's own; they count like
            ROS's own, and their returns are part of the mean.
        threads: at most this many (default: all cores).
    """
    from experiments.baselines._ros_kernel import run_ros

    table = parameters(mdp, target, positions)
    model, ends = plain_arrays(mdp), absorbing(mdp)
    counts = np.zeros(table.shape)
    known = np.empty(0)
    if offline is not None:
        _count(offline, counts)
        counts[:, ends] = 0.0  # an episode is over there
        known = offline.returns(mdp.gamma)
    size = (check_whole("runs", runs, 1), check_whole("episodes", episodes, 1))
    returns, costs = np.empty(size), np.empty(size)
    step = checked_alpha(alpha)
    check_whole("seed", seed, 0)

    def work(lo: int, hi: int) -> None:
        problem = mdp.gamma, step, mdp.horizon, model, ends, table, counts
        run_ros(seed, first + lo, *problem, reset_each_episode, returns[lo:hi], costs[lo:hi])

    share_runs(work, runs, threads)
    return RosRuns(returns, costs, known)


class RosSampler:
    """The moving behavior policy pi_theta_b of a torch policy, by automatic differentiation.

    The target's module is never changed: theta_b is kept beside it.
    """

    def __init__(self, target: TorchPolicy, alpha: float = 10.0) -> None:
        from experiments.baselines._reparametrized import own_parameters

        self.target = target
        self.alpha = checked_alpha(alpha)
        self.steps = 0
        self._theta = own_parameters(target.module)
        self._mean = {name: value.double() * 0 for name, value in self._theta.items()}

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Pi_theta_b, [B, A]."""
        from experiments.baselines._reparametrized import moved_parameters, with_parameters

        moved = moved_parameters(self._theta, self._mean, self.alpha)
        return with_parameters(self.target, moved).probs(obs, t)

    def observe(self, obs: Observations, action: Any, t: Time) -> None:
        """Add the gradients of B steps to the running mean."""
        from experiments.baselines._reparametrized import log_likelihood_gradient

        many = len(obs)
        slope = log_likelihood_gradient(self.target, self._theta, obs, action, t, np.ones(many))
        self.steps += many
        self._mean = {
            name: mean + (slope[name] - many * mean) / self.steps
            for name, mean in self._mean.items()
        }

    def state(self) -> tuple[int, dict[str, torch.Tensor]]:
        """Number of steps and mean gradient; tensors are replaced and never changed in place."""
        return self.steps, self._mean

    def restore(self, state: tuple[int, dict[str, torch.Tensor]]) -> None:
        """Return to an earlier `state`."""
        self.steps, self._mean = state


def ros(
    env: Any,
    target: TorchPolicy,
    *,
    horizon: int,
    episodes: int,
    alpha: float = 10.0,
    seed: int = 0,
    cost: str | StepCost | None = None,
    offline: Episodes | None = None,
    reset_each_episode: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Episodes:
    """One run of ROS with a torch policy in a Gymnasium environment.

    The estimate is ``result.returns(gamma).mean()`` (with offline data: over both).

    Args:
        env: an environment, its registered name, or a function that makes one.
        target: the evaluation policy.
        horizon: T.
        episodes: how many, one after the other: each changes what the next does.
        alpha: step size; the authors use 10 on CartPole with a network.
        seed: of the collection, as in `collect`.
        cost: as in `collect`.
        offline: (nearly) on-policy episodes to begin with.
        reset_each_episode: an ablation: forget all steps after every episode.
        progress: called as progress(done, total).

    Returns:
        Episodes with the probabilities that were used; steps of lost episodes do not count.
    """
    if not isinstance(target, TorchPolicy):
        raise InputError(
            f"target: got {type(target).__name__}, expected a TorchPolicy; try ros_tabular for "
            "tabular policies"
        )
    check_whole("horizon", horizon, 1)
    check_whole("episodes", episodes, 1)
    sampler = RosSampler(target, alpha)
    if offline is not None:
        for t in range(offline.horizon):
            rows = offline.length > t
            if rows.any():
                sampler.observe(offline.obs[rows, t], offline.action[rows, t], t)
    [environment] = open_environments(env, 1, cost)
    tell = progress or (lambda done, total: None)
    try:
        return _run_all(environment, sampler, seed, horizon, episodes, reset_each_episode, tell)
    finally:
        environment.close()


def _run_all(
    environment: Environment,
    sampler: RosSampler,
    seed: int,
    horizon: int,
    episodes: int,
    reset_each_episode: bool,
    progress: Callable[[int, int], None],
) -> Episodes:
    """Run the episodes one after the other; the sampler forgets the steps of lost ones."""
    beginning = sampler.state()
    finished: list[EpisodeRecord] = []
    lost: list[LostEpisode] = []
    interrupted = False
    record = None
    try:
        for index in range(episodes):
            before = beginning if reset_each_episode else sampler.state()
            sampler.restore(before)
            record = EpisodeRecord(index)
            try:
                _run_episode(environment, sampler, record, seed, horizon)
                finished.append(record)
            except EnvironmentFailure as failure:
                sampler.restore(before)
                lost.append(LostEpisode(index, len(record.reward), str(failure)))
            record = None
            progress(index + 1, episodes)
    except KeyboardInterrupt:
        interrupted = True
        if record is not None:
            reason = "interrupted by the user"
            lost.append(LostEpisode(record.index, len(record.reward), reason))
    result = Episodes.of_records(
        finished, horizon, controlled=False, lost=lost, interrupted=interrupted
    )
    if lost and not finished and not interrupted:
        raise NoEpisodeError(result)
    return result


def _run_episode(
    environment: Environment, sampler: RosSampler, record: EpisodeRecord, seed: int, horizon: int
) -> None:
    """Run one episode; every step changes the behavior policy of the next."""
    streams = EpisodeStreams(seed, record.index, horizon)
    record.obs.append(environment.reset(streams.env_seed))
    for t in range(horizon):
        obs = record.obs[-1][None]
        pi = check_probs(f"target at t={t}", sampler.target.probs(obs, t), axes=("row",))
        try:
            mu = sampler.probs(obs, t)
        except InputError:  # too large a step: parameters overflowed
            mu, record.fallbacks = pi, record.fallbacks + 1
        k = int(draw_actions(mu, streams.uniforms[t : t + 1])[0])
        outcome = environment.step(np.asarray(k))
        record.probs.append((mu[0, k], pi[0, k]))
        record.controls.append((0.0, 0.0))
        record.obs.append(outcome.obs)
        record.action.append(k)
        record.reward.append(outcome.reward)
        record.cost.append(outcome.cost)
        record.terminated = outcome.terminated
        sampler.observe(obs, [k], t)
        if outcome.terminated or outcome.truncated:
            break


def checked_alpha(alpha: float) -> float:
    """A step size that can be used."""
    if not (np.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha: got {alpha!r}, expected a finite number >= 0 (0: on-policy)")
    return float(alpha)


def _count(episodes: Episodes, counts: Floats) -> None:
    """Add the episodes' actions to counts [T or 1, S, A]."""
    depth, S, A = counts.shape
    log = episodes.transitions()
    states, actions = log["obs"], log["action"]
    for name, values, many in (("obs", states, S), ("action", actions, A)):
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise InputError(f"offline: {name} holds vectors, expected numbers below {many}")
        if values.size and not 0 <= values.min() <= values.max() < many:
            raise InputError(f"offline: {name} {values.max()} is outside 0..{many - 1}")
    np.add.at(counts, (log["t"] % depth, states, actions), 1.0)
