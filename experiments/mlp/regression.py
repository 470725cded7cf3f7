"""Critics for vectors: small networks, one per critic, fold and time step.

As in the paper: one hidden layer of 64, Adam with rate 1e-3. Added here, because errors of a critic
cost more than the design gains:

- inputs are standardized, targets too (per step), and step t starts from the weights of t + 1;
- the linear part of every head is solved exactly (ridge, per action; the normal equations do not
  change with t, so they are factorized once) and the network learns the rest of the target; a
  network that does not help on held-out rows is switched off;
- two folds: networks of fold 0 never see rows of fold 1. The noise head is fitted to the squared
  error of the *other* fold's q; training stops when the error on rows of the other fold stops
  falling; the estimate is the mean of the folds, and half their difference is the error of q;
- an observation outside the range of the logs is unknown (for state numbers: a pair never logged).

The networks are independent of each other, so they are trained in several threads, each by a
compiled loop. The result does not depend on the number of threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.mlp.critic import MLPCritic, unpack
from experiments.mlp.ridge import ONE_HOT_NOISE_RIDGE, ONE_HOT_RIDGE, Ridge
from scopeval._parallel import fan_out
from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.models.protocols import Critic, Learner, Targets
from scopeval.models.rows import Rows
from scopeval.policies.protocols import Observations

__all__ = ["MLPRegression"]

#: Rows of the other fold on which training is judged.
HELD_OUT = 2048
#: How far outside the logged range an observation is still known, in ranges.
SLACK = 0.1
#: A squared error counts at most this many times the average when the noise is learned.
LARGEST_NOISE = 100.0


@dataclass(frozen=True)
class MLPRegression:
    """Settings of the networks.

    Attributes:
        states: number of states when observations are state numbers (then one-hot), else None.
        hidden: width of the hidden layer.
        rate: Adam's learning rate.
        batch: rows per step and fold.
        first_steps: most training steps at t = T-1, where nothing is known yet.
        steps: most training steps at every earlier t.
        patience: checks without improvement on the other fold before training stops.
        time_varying: whether rewards or dynamics depend on t beyond the observation.
    """

    states: int | None = None
    hidden: int = 64
    rate: float = 1e-3
    batch: int = 256
    first_steps: int = 1000
    steps: int = 80
    patience: int = 3
    name: str = "mlp"
    time_varying: bool = False

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Standardize the inputs, draw the folds."""
        return _MLPLearner(self, rows, actions, seed)


class FoldInputs(NamedTuple):
    """Rows as compiled code takes them: vectors, or state numbers that stand for one-hot inputs."""

    x: NDArray[np.float32]  # [n, d], or empty
    code: Ints  # [n] state numbers, or empty
    action: Ints  # [n]
    upto: Floats  # [n] cumulative weights

    def select(self, which: Ints) -> FoldInputs:
        """Some of the rows; their weights are not needed."""
        return FoldInputs(
            self.x[which] if len(self.x) else self.x,
            self.code[which] if len(self.code) else self.code,
            self.action[which],
            self.upto[which],
        )


class _Job(NamedTuple):
    """A network to train: its fold, its head, and the targets of all rows."""

    fold: int
    head: int
    y: NDArray[np.float32]


class _MLPLearner:
    """The networks' inputs, and the weights of the last fitted step to start from."""

    def __init__(self, how: MLPRegression, rows: Rows, actions: int, seed: int) -> None:
        if len(rows) < 4:
            raise InputError(f"logged: got {len(rows)} rows, expected at least 4 for a network")
        self.how, self.A, self.seed = how, actions, seed
        self.fitted = 0
        self.mean, self.scale, self.low, self.high = _standards(rows)
        self.pairs = _logged_pairs(how, rows, actions)
        rng = np.random.default_rng((seed, 5))
        order = rng.permutation(len(rows))
        half = len(rows) // 2
        self.folds = [np.sort(order[:half]), np.sort(order[half:])]
        self.weight = rows.weight
        self.inputs = [self._inputs(rows, fold) for fold in self.folds]
        self.held = []  # rows of a fold on which networks of the *other* fold are judged
        for fold in self.folds:
            share = rows.weight[fold] / rows.weight[fold].sum()
            self.held.append(rng.choice(len(fold), size=HELD_OUT, p=share))
        self.ridges = []  # of each fold, and of all rows
        for fold in (*self.folds, np.arange(len(rows))):
            x, code, act, _ = self._inputs(rows, fold)
            self.ridges.append(Ridge(x, code, act, rows.weight[fold], how.states, actions))
        self.judged = self._judged(rows)
        self.net: NDArray[np.float32] | None = None

    def _judged(self, rows: Rows) -> Floats:
        """[n] 1 for rows whose pair the other fold has seen: only these show the noise."""
        judged = np.ones(len(rows))
        if self.how.states is not None:
            for f, fold in enumerate(self.folds):
                met = self.ridges[1 - f].count.reshape(-1, self.A) > 0
                judged[fold] = met[rows.obs[fold], rows.action[fold]]
            if not judged.any():
                judged[:] = 1.0
        return judged

    def _inputs(self, rows: Rows, fold: Ints) -> FoldInputs:
        upto = np.cumsum(rows.weight[fold])
        if self.how.states is not None:
            return FoldInputs(np.empty((0, 1), np.float32), rows.obs[fold], rows.action[fold], upto)
        x = _standardized(rows.obs[fold], self.mean, self.scale)
        return FoldInputs(x, np.empty(0, np.int64), rows.action[fold], upto)

    @property
    def width(self) -> int:
        """Number of inputs."""
        return self.how.states if self.how.states is not None else len(self.mean)

    def fit(self, targets: Targets) -> Critic:
        from experiments.mlp._kernel import standards

        # what a behavior costs beyond the target: a small difference, learned as such
        beyond = targets.cost_behavior - targets.cost_target[:, None]
        heads = np.column_stack([targets.reward, targets.cost_target, beyond, targets.carried])
        centre, spread = standards(heads, self.weight)
        spread = np.where(spread > 1e-12, spread, 1.0)
        y = ((heads - centre) / spread).astype(np.float32)
        H = heads.shape[1]
        fresh = self.net is None or self.net.shape[1] != H + 1
        if fresh:
            self.net = self._fresh(H + 1)
        assert self.net is not None
        steps = self.how.first_steps if fresh else self.how.steps
        self._solve(y, slice(0, H))
        self._train([_Job(f, head, y[:, head]) for f in range(2) for head in range(H)], steps)
        noise, level = self._noise(y[:, 0], targets.reward_noise / spread[0] ** 2)
        self._solve(noise[:, None], slice(H, H + 1), ONE_HOT_NOISE_RIDGE)
        self._train([_Job(f, H, noise) for f in range(2)], steps)
        every = self.ridges[2]
        full = [every.solve(y), every.solve(noise[:, None], ONE_HOT_NOISE_RIDGE)]
        self.fitted += 1
        return MLPCritic(
            net=self.net.copy(),
            shape=np.array([self.width, self.how.hidden, self.A]),
            intercept=np.concatenate([part[0] for part in full]).astype(np.float32),
            slope=np.concatenate([part[1] for part in full]).astype(np.float32),
            centre=np.append(centre, level * spread[0] ** 2),
            spread=np.append(spread, level * spread[0] ** 2),
            mean=self.mean,
            scale=self.scale,
            low=self.low,
            high=self.high,
            pairs=self.pairs,
            followed=np.int64(targets.cost_behavior.shape[1]),
        )

    def _noise(
        self, y: NDArray[np.float32], reward_noise: Floats
    ) -> tuple[NDArray[np.float32], float]:
        """Targets [n] of the noise head, 0 being the average, and the average itself.

        They are the squared errors of the fold that has not seen the row.
        """
        noise = np.empty(len(y), np.float32)
        for f in range(2):
            noise[self.folds[f]] = (y[self.folds[f]] - self._predict(1 - f, 0, f)) ** 2
        noise += reward_noise.astype(np.float32)
        level = max(float(np.average(noise, weights=self.weight * self.judged)), 1e-12)
        scaled = np.where(self.judged > 0, np.minimum(noise / level, LARGEST_NOISE), 1.0)
        return (scaled - 1.0).astype(np.float32), level

    def _solve(
        self, y: NDArray[np.float32], heads: slice, one_hot_ridge: float = ONE_HOT_RIDGE
    ) -> None:
        """Put the exact linear part into the networks' linear path."""
        assert self.net is not None
        for f in range(2):
            intercept, slope = self.ridges[f].solve(y[self.folds[f]], one_hot_ridge)
            layers = unpack(self.net[f, heads], self.width, self.how.hidden, self.A)
            layers.b2[...], layers.w3[...] = intercept, slope

    def _fresh(self, H: int) -> NDArray[np.float32]:
        """New networks [2 folds, H heads, all weights]; the linear path starts at zero."""
        d, h, A = self.width, self.how.hidden, self.A
        rng = np.random.default_rng((self.seed, 6))
        bound = 1.0 if self.how.states is not None else 1.0 / np.sqrt(d)
        net = np.zeros((2, H, d * h + h + A * h + A + A * d), np.float32)
        net[..., : d * h + h] = rng.uniform(-bound, bound, (2, H, d * h + h))
        small = 0.1 / np.sqrt(h)
        net[..., d * h + h : d * h + h + A * h] = rng.uniform(-small, small, (2, H, A * h))
        return net

    def _train(self, jobs: list[_Job], steps: int) -> None:
        """Train networks, each with random numbers of its own."""
        assert self.net is not None
        net, how = self.net, self.how
        seeds = [
            int(np.random.SeedSequence((self.seed, self.fitted, f, head)).generate_state(1)[0])
            for f, head, _ in jobs
        ]
        from experiments.mlp._kernel import train

        def work(k: int) -> None:
            f, head, y = jobs[k]
            held = self.held[1 - f]
            train(
                self.inputs[f],
                y[self.folds[f]],
                self.inputs[1 - f].select(held),
                y[self.folds[1 - f]][held],
                net[f, head],
                self.width,
                how.hidden,
                self.A,
                steps,
                how.batch,
                how.rate,
                how.patience,
                seeds[k],
            )

        fan_out(work, range(len(jobs)))

    def _predict(self, net_fold: int, head: int, row_fold: int) -> NDArray[np.float32]:
        """One head's answers for the rows of a fold, by the network of another."""
        assert self.net is not None
        flat = self.net[net_fold, head]
        from experiments.mlp._kernel import predict

        layers = unpack(flat, self.width, self.how.hidden, self.A)
        first = flat[: (self.width + 1) * self.how.hidden].reshape(self.width + 1, -1)
        return np.asarray(predict(self.inputs[row_fold], first, layers.w2, layers.b2, layers.w3))


def _standards(
    rows: Rows,
) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats, Floats]:
    """Mean and scale of the inputs, and the range within which they are known."""
    if rows.obs.ndim == 1:
        one = np.ones(1, np.float32)
        return 0 * one, one, np.zeros(1), np.zeros(1)
    mean, scale = rows.obs.mean(axis=0), rows.obs.std(axis=0)
    scale = np.where(scale > 1e-8, scale, 1.0)
    both = np.concatenate([rows.obs, rows.next_obs])
    low, high = both.min(axis=0), both.max(axis=0)
    room = SLACK * (high - low) + 1e-9
    return mean.astype(np.float32), scale.astype(np.float32), low - room, high + room


def _logged_pairs(how: MLPRegression, rows: Rows, actions: int) -> Bools:
    """State numbers: pairs [S, A] in the logs. Vectors: actions [1, A] in the logs."""
    pairs = np.zeros((how.states or 1, actions), np.bool_)
    pairs[rows.obs if rows.obs.ndim == 1 else 0, rows.action] = True
    return pairs


def _standardized(
    obs: Observations, mean: NDArray[np.float32], scale: NDArray[np.float32]
) -> NDArray[np.float32]:
    return np.ascontiguousarray((obs - mean) / scale, dtype=np.float32)
