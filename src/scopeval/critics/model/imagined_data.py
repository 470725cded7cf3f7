"""Grounds for `design` by a model of the world: one per half of the logs, and both together."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock

import numpy as np

from scopeval._parallel import fan_out
from scopeval.critics.log_rows import Log
from scopeval.critics.model.answer_cache import Encoder
from scopeval.critics.model.network import Dynamics, Network, World
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.return_features import Foresight, foresee
from scopeval.critics.model.rollouts import Prospects, imagined, join, prospects, recall
from scopeval.critics.model.simulator import KnownDynamics
from scopeval.critics.model.training import Training, learn_network
from scopeval.critics.protocols import Rows
from scopeval.critics.sweep_data import Ground
from scopeval.errors import InputError
from scopeval.policies.protocols import ContinuousPolicy, Policy, Redraws

__all__ = ["Imagination"]


class Imagination:
    """Learns the dynamics from each half of a log, and follows the target through them.

    Known dynamics are only compared with the log.

    Attributes:
        holdout: held-out errors of the dynamics, by name.
    """

    def __init__(
        self,
        regression: ModelRegression,
        target: Policy | ContinuousPolicy,
        horizon: int,
        time_varying: bool,
        seed: int,
        gamma: float = 1.0,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.how, self.target, self.horizon, self.gamma = regression, target, horizon, gamma
        self.time_varying, self.seed = time_varying, seed
        self.progress = progress
        self.holdout: dict[str, float] = {}
        self._networks: list[World] = []
        self._foresights: list[Foresight] = []

    def grounds(self, halves: list[Rows], log: Log) -> tuple[list[Ground], Ground]:
        """Imagined ground of each half's network, and both together with their mean."""
        networks = self._networks = self.networks(halves, log)
        if not isinstance(self.how.dynamics, KnownDynamics):
            losses = [n.loss for n in networks if np.isfinite(n.loss)]  # none: every row ended
            self.holdout["dynamics"] = float(np.sqrt(np.mean(losses))) if losses else float("nan")
        tick = self._counting("learning how episodes go on", len(networks) * self.how.study.steps)
        found = [self._prospects(k, log) for k in range(len(networks))]  # asks the target
        foresights = fan_out(lambda k: self._foresight(k, found[k], tick), range(len(networks)))
        each = []
        self._foresights = foresights
        for k, network in enumerate(networks):
            ground = imagined(
                network,
                log.starts,
                self.target,
                self.how.using(Dynamics((network,)), foresights[k], log.rows),
                horizon=self.horizon,
                paths=self.how.paths,
                rng=np.random.default_rng((self.seed, 22, k)),
            )
            each.append(ground)
            recall(ground, networks, foresights)
        different = {id(network): network for network in networks}.values()
        both = self.how.using(Dynamics(tuple(different)), Foresight.join(foresights), log.rows)
        return each, join(each, networks, both)

    def _counting(self, what: str, total: int) -> Callable[[], None]:
        """Counts steps of several threads, and tells every hundredth of them."""
        lock, done = Lock(), 0
        every = max(total // 100, 1)

        def tick() -> None:
            nonlocal done
            with lock:
                done += 1
                if self.progress is not None and done % every == 0:
                    self.progress(what, min(done, total), total)

        return tick

    def _prospects(self, k: int, log: Log) -> Prospects:
        """What the target's episodes come to in the world of one network."""
        return prospects(
            self._networks[k],
            log.starts,
            self.target,
            horizon=self.horizon,
            gamma=self.gamma,
            paths=self.how.study.paths,
            rng=np.random.default_rng((self.seed, 23, k)),
        )

    def _foresight(self, k: int, found: Prospects, tick: Callable[[], None]) -> Foresight:
        return foresee(*found, self.horizon, self.how.study, 2 * self.seed + k, tick)

    def forget(self) -> None:
        """Drop what is remembered of this target's imagined episodes."""
        for network in self._networks:
            network.forget()
        for foresight in self._foresights:
            foresight.forget()

    def networks(self, halves: list[Rows], log: Log) -> list[World]:
        """The dynamics of each half; those of the settings, if they bring them.

        Of several ways to train them the one with the least held-out error is kept.

        A known world is that of both: each half imagines episodes of its own there.
        """
        if isinstance(self.how.dynamics, KnownDynamics):
            known = self.how.dynamics.world(self._encoder(log))
            self.holdout |= known.compare(log.rows, self.seed)
            return [known, known]
        if self.how.dynamics is not None:
            if not self.how.dynamics.learned:
                raise InputError(
                    "dynamics: got those of a design that has a simulator; expected KnownDynamics, "
                    "pass the simulator again"
                )
            return list(self.how.dynamics.networks)
        if min(len(half) for half in halves) < 4:
            raise InputError(f"logged: got {log.count} rows, expected at least 8 for a model")
        encoder, tried = self._encoder(log), self.how.trainings
        tick = self._counting("learning the dynamics", 2 * sum(how.steps for how in tried))

        def learn(how: Training, k: int) -> Network:
            seed = 2 * self.seed + k
            return learn_network(halves[k], halves[1 - k], encoder, how, seed, tick)

        each = [fan_out(partial(learn, how), range(2)) for how in tried]
        losses = [np.mean([network.loss for network in both]) for both in each]
        best = int(np.argmin(np.nan_to_num(losses, nan=np.inf)))
        return list(each[best])

    def _encoder(self, log: Log) -> Encoder:
        width = int(log.rows.obs.shape[1])
        world = np.ones(width, np.bool_)
        if isinstance(self.target, Redraws):
            world[width - self.target.drawn :] = False
        if isinstance(self.target, ContinuousPolicy):
            embedding = np.empty((0, log.rows.action.shape[1]))
        else:
            embedding = np.asarray(getattr(self.target, "embedding", np.eye(log.actions)), float)
        return Encoder(embedding, world, self.horizon if self.time_varying else 0)
