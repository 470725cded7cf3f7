"""BPS: behavior policy search (Hanna, Thomas, Stone, Niekum; ICML 2017).

Stochastic gradient descent on the behavior policy's parameters theta, begun at the target's own,
to make the trajectory importance-sampling estimate IS(H) = prod_t rho_t sum_t gamma^t R_t less
variable. IS is unbiased whatever theta is, so the gradient of its mean squared error is (their
Theorem 1)

    d MSE / d theta = E_{H ~ pi_theta}[ -IS(H)^2 sum_t grad log pi_theta(A_t | S_t) ].

Every episode of the search is an online episode: its cost counts, and its IS value, computed with
the probabilities under which it was run, is part of the estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from experiments.baselines._tabular import parameters, share_runs
from scopeval.arrays import Bools, Floats, check_whole
from scopeval.collection.collector import NoEpisodeError, collect
from scopeval.collection.environments import StepCost, open_environments
from scopeval.collection.episodes import Episodes
from scopeval.collection.simulated import absorbing
from scopeval.errors import InputError
from scopeval.estimation.estimators import importance_sampling
from scopeval.exact import TabularMDP
from scopeval.policies.adapters import TabularPolicy, TorchPolicy
from scopeval.simulate import plain_arrays

if TYPE_CHECKING:
    import torch

__all__ = ["BpsRuns", "Searched", "bps", "bps_gradient", "bps_tabular"]


@dataclass(frozen=True)
class BpsRuns:
    """Independent runs of behavior policy search.

    Attributes:
        values: importance-sampled returns of all online episodes, [runs, episodes].
        costs: their costs, [runs, episodes].
        policies: the behavior policy each run ended with, [runs, S, A] or [runs, T, S, A].
        diverged: [runs] whether parameters overflowed; the last finite policy was then kept.
    """

    values: Floats
    costs: Floats
    policies: Floats
    diverged: Bools

    @property
    def estimates(self) -> Floats:
        """The estimate after each episode: running means of the values, [runs, episodes]."""
        count = np.arange(1, self.values.shape[1] + 1)
        return np.asarray(np.cumsum(self.values, axis=1) / count)


def bps_tabular(
    mdp: TabularMDP,
    target: ArrayLike | TabularPolicy,
    *,
    runs: int,
    episodes: int,
    learning_rate: float = 1e-2,
    batch: int = 10,
    search: int | None = None,
    seed: int = 0,
    first: int = 0,
    positions: bool = True,
    threads: int | None = None,
) -> BpsRuns:
    """Many independent runs with a tabular softmax policy, compiled.

    Args:
        mdp: the model. An absorbing state without reward and cost ends the episode.
        target: pi, the evaluation policy.
        runs: independent repetitions.
        episodes: of each run, all of them online.
        learning_rate: of the gradient descent; the authors use 1e-2 on their grid. It has to suit
            the scale of returns: the gradient grows with their square.
        batch: episodes per gradient step; the authors use 10.
        search: number of episodes after which the policy is not changed; None: search to the end.
        seed: run r is a pure function of (seed, r), whatever the number of threads.
        first: number of the first run.
        positions: parameters are shared over time; False: one set per time step.
        threads: how many may work (default: all cores).
    """
    from experiments.baselines._bps_kernel import run_bps

    table = parameters(mdp, target, positions)
    size = (check_whole("runs", runs, 1), check_whole("episodes", episodes, 1))
    until = episodes if search is None else check_whole("search", search, 0)
    rate = _checked_rate(learning_rate)
    check_whole("seed", seed, 0)
    check_whole("batch", batch, 1)
    values, costs = np.empty(size), np.empty(size)
    found = np.empty((runs, *table.shape))
    diverged = np.zeros(runs, np.bool_)
    model, ends = plain_arrays(mdp), absorbing(mdp)

    def work(lo: int, hi: int) -> None:
        search = mdp.gamma, rate, batch, until, mdp.horizon
        out = values[lo:hi], costs[lo:hi], found[lo:hi], diverged[lo:hi]
        run_bps(seed, first + lo, *search, model, ends, table, *out)

    share_runs(work, runs, threads)
    return BpsRuns(values, costs, found[:, 0] if positions else found, diverged)


@dataclass(frozen=True)
class Searched:
    """One run of behavior policy search in an environment.

    Attributes:
        episodes: all of its online episodes, with the probabilities under which they were run; the
            estimate is ``importance_sampling(episodes, gamma).mean()``.
        behavior: the policy it ended with.
        diverged: the parameters overflowed, and the last finite policy was used from then on.
    """

    episodes: Episodes
    behavior: TorchPolicy
    diverged: bool


def bps_gradient(
    target: TorchPolicy,
    theta: dict[str, torch.Tensor],
    episodes: Episodes,
    gamma: float = 1.0,
) -> dict[str, torch.Tensor]:
    """The mean of -IS^2 sum_t grad log pi_theta(A_t|S_t) over episodes that pi_theta has run."""
    from experiments.baselines._reparametrized import log_likelihood_gradient

    square = importance_sampling(episodes, gamma) ** 2
    real = episodes.steps
    times = np.broadcast_to(np.arange(episodes.horizon), real.shape)[real]
    weight = np.repeat(-square / len(episodes), episodes.length)
    return log_likelihood_gradient(
        target, theta, episodes.obs[real], episodes.action[real], times, weight
    )


def bps(
    env: Any,
    target: TorchPolicy,
    *,
    horizon: int,
    episodes: int,
    learning_rate: float = 5e-5,
    batch: int = 10,
    search: int | None = None,
    gamma: float = 1.0,
    seed: int = 0,
    cost: str | StepCost | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Searched:
    """One run with a torch policy in a Gymnasium environment; the user's module is never changed.

    Args:
        env: an environment, its registered name, or a function that makes one.
        target: the evaluation policy.
        horizon: T.
        episodes: how many online episodes in all.
        learning_rate: the authors use 5e-5 on CartPole, 1e-6 where actions are continuous.
        batch: episodes per gradient step.
        search: number of episodes after which the policy is not changed; None: search to the end.
        gamma: discount.
        seed: of the collection, as in `collect`.
        cost: as in `collect`.
        progress: called as progress(done, total).
    """
    from experiments.baselines._reparametrized import own_parameters, with_parameters

    if not isinstance(target, TorchPolicy):
        raise InputError(
            f"target: got {type(target).__name__}, expected a TorchPolicy; try bps_tabular for "
            "tabular policies"
        )
    check_whole("episodes", episodes, 1)
    check_whole("batch", batch, 1)
    rate = _checked_rate(learning_rate)
    until = episodes if search is None else check_whole("search", search, 0)
    theta = own_parameters(target.module)
    behavior = with_parameters(target, theta)
    parts: list[Episodes] = []
    diverged = False
    with open_environments(env, cost=cost) as environments:
        for done in range(0, episodes, batch):
            many = min(batch, episodes - done)
            try:
                part = collect(
                    environments,
                    target,
                    behavior,
                    horizon=horizon,
                    episodes=many,
                    first=done,
                    seed=seed,
                )
            except NoEpisodeError as nothing:  # all of them were lost: they are listed in it
                part = nothing.episodes
            parts.append(part)
            if progress is not None:
                progress(done + many, episodes)
            if part.interrupted:
                break
            if diverged or not len(part) or many < batch or done + many > until:
                continue
            moved = _descend(theta, bps_gradient(target, theta, part, gamma), rate)
            if moved is None:
                diverged = True
            else:
                theta, behavior = moved, with_parameters(target, moved)
    result = Episodes.concat(parts)
    if not len(result) and not result.interrupted:
        raise NoEpisodeError(result)
    return Searched(result, behavior, diverged)


def _descend(
    theta: dict[str, torch.Tensor], slope: dict[str, torch.Tensor], rate: float
) -> dict[str, torch.Tensor] | None:
    """Theta after one gradient step; None if it overflows."""
    import torch

    from experiments.baselines._reparametrized import moved_parameters

    moved = moved_parameters(theta, slope, rate)
    return moved if all(bool(torch.isfinite(x).all()) for x in moved.values()) else None


def _checked_rate(rate: float) -> float:
    if not (np.isfinite(rate) and rate > 0):
        raise InputError(f"learning_rate: got {rate!r}, expected a finite number > 0")
    return float(rate)
