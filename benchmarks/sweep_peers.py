"""Peers of the sweep: fitted Q evaluation by d3rlpy, and networks trained one by one in torch."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import timed
from experiments.mlp.regression import MLPRegression
from scopeval._parallel import one_torch_thread
from scopeval.arrays import Floats, Ints
from scopeval.logs.transitions import Transitions

__all__ = ["Fitted", "Task", "fit_by_d3rlpy", "root_mean_square", "train_modules"]


@dataclass(frozen=True)
class Task:
    """A problem for d3rlpy.

    Attributes:
        log: rows to learn from.
        horizon: steps of an episode.
        pi: the target policy, the same everywhere.
        encoded: rows -> inputs of the network.
        held: rows to measure the error on.
        truth: true action values at these rows.
    """

    log: Transitions
    horizon: int
    pi: Floats
    encoded: Callable[[Transitions], Floats]
    held: Transitions
    truth: Floats


class Fitted(NamedTuple):
    """Seconds of training, updates, and the least error so far."""

    seconds: float
    updates: int
    error: float


def fit_by_d3rlpy(
    peer: Any, task: Task, error: float, *, patience: float, updates: int, seed: int
) -> Fitted:
    """Train until the held-out error is reached or the time is up.

    Args:
        peer: the module d3rlpy.
        task: the problem.
        error: to reach.
        patience: most seconds of training.
        updates: between two measurements of the error.
        seed: of torch.
    """
    import torch

    logging.getLogger("d3rlpy").setLevel(logging.ERROR)
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with silent[0], silent[1], one_torch_thread():
        torch.manual_seed(seed)
        data = _dataset(peer, task)
        # the settings that reached small errors fastest among those tried
        config = peer.ope.FQEConfig(
            gamma=1.0,
            learning_rate=3e-3,
            batch_size=256,
            target_update_interval=50,
            encoder_factory=peer.models.VectorEncoderFactory([256]),
        )
        fqe = peer.ope.DiscreteFQE(_algorithm(task.pi), config)
        fqe.build_with_dataset(data)
        inputs = task.encoded(task.held).astype(np.float32)
        spent, steps, best = 0.0, 0, float("inf")
        epochs = fqe.fitter(
            data,
            n_steps=10**9,
            n_steps_per_epoch=updates,
            logger_adapter=peer.logging.NoopAdapterFactory(),
            show_progress=False,
        )
        while best > error and spent < patience:
            spent += timed(lambda: next(epochs))
            steps += updates
            answers = fqe.predict_value(inputs, task.held.action)
            best = min(best, root_mean_square(answers - task.truth))
    return Fitted(spent, steps, best)


def _algorithm(probabilities: Floats) -> Any:
    """The target policy in the form that d3rlpy asks: an action for each observation."""
    import torch

    pi = torch.tensor(probabilities, dtype=torch.float32)

    class Target:
        @staticmethod
        def predict_best_action(obs: Any) -> Any:
            return torch.multinomial(pi.expand(len(obs), len(pi)), 1)[:, 0]

    class Algorithm:
        impl = Target()

    return Algorithm()


def _dataset(peer: Any, task: Task) -> Any:
    log = task.log
    order = np.lexsort((log.t, _episode(log)))
    return peer.dataset.MDPDataset(
        task.encoded(log)[order].astype(np.float32),
        log.action[order, None],
        log.reward[order, None].astype(np.float32),
        (log.t[order] == task.horizon - 1).astype(np.float32),
        action_space=peer.ActionSpace.DISCRETE,
        action_size=len(task.pi),
    )


def _episode(log: Transitions) -> Ints:
    """Numbers of episodes: rows of the same t are in the order of their episodes."""
    number = np.empty(len(log), np.int64)
    for t in range(int(log.t.max()) + 1):
        now = np.flatnonzero(log.t == t)
        number[now] = np.arange(len(now))
    return number


def train_modules(log: Transitions, actions: int, how: MLPRegression, networks: int) -> None:
    """Train the networks one after the other, then ask each at every row, as written by hand."""
    import torch

    torch.manual_seed(0)
    obs, action = torch.tensor(log.obs, dtype=torch.float32), torch.tensor(log.action)
    target = torch.tensor(log.reward, dtype=torch.float32)
    half = len(obs) // 2
    for _ in range(networks):
        hidden = torch.nn.Linear(obs.shape[1], how.hidden)
        net = torch.nn.Sequential(hidden, torch.nn.ReLU(), torch.nn.Linear(how.hidden, actions))
        # Torch's own: what is measured here is how long torch as it comes takes.
        adam = torch.optim.Adam(net.parameters(), lr=how.rate)
        for _ in range(how.steps):
            pick = torch.randint(half, (how.batch,))
            answer = net(obs[pick]).gather(1, action[pick, None])[:, 0]
            loss = torch.nn.functional.mse_loss(answer, target[pick])
            adam.zero_grad()
            loss.backward()
            adam.step()
        with torch.no_grad():
            net(obs)


def root_mean_square(errors: Floats) -> float:
    """Root mean square of the errors."""
    return float(np.sqrt(np.mean(errors**2)))
