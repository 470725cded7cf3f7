"""Critics for vectors: small networks, one per critic, fold and time step.

As in the paper: one hidden layer of 64, Adam with rate 1e-3. Added here, because errors of a critic
cost more than the tilt wins:

- inputs are standardized, targets too (per step), and step t starts from the weights of t + 1;
- the linear part of every head is solved exactly (ridge, per action; the normal equations do not
  change with t, so they are factorized once) and the network learns what is left of the target; a
  network that does not help on held-out rows is switched off;
- two folds: networks of fold 0 never see rows of fold 1. The noise head is fitted to the squared
  error of the *other* fold's q; training stops when the error on rows of the other fold stops
  falling; the estimate is the mean of the folds, and half their difference is the error of q;
- an observation outside the range of the logs is unknown (for state numbers: a pair never logged).

Networks share nothing, so they are trained side by side, each by a compiled loop that holds no
lock. The result does not depend on the number of threads. With ``device="cuda"`` they are trained
there as one stack (`torch_networks`), with the same results to the rounding of float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out, fan_out_rows
from scopeval.arrays import Bools, Floats
from scopeval.critics.protocols import Critic, Estimates, Learner, Rows, Targets
from scopeval.errors import InputError
from scopeval.policies.protocols import Observations

__all__ = ["MLPCritic", "MLPRegression"]

#: Rows of the other fold on which training is judged.
HELD_OUT = 2048
#: How far outside the logged range an observation is still known, in ranges.
SLACK = 0.1
#: Pseudo-rows at the mean that every one-hot pair starts with.
ONE_HOT_RIDGE = 0.1
ONE_HOT_NOISE_RIDGE = 2.0
#: Answers at fewer observations than this are not worth the way to a device.
DEVICE_ROWS = 4096


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
        device: "cpu", or "cuda" (also "cuda:1"): where networks are trained, and asked at many
            observations. Vectors only: networks for state numbers stay on the CPU.
    """

    states: int | None = None
    hidden: int = 64
    rate: float = 1e-3
    batch: int = 256
    first_steps: int = 1000
    steps: int = 80
    patience: int = 3
    name: str = "mlp"
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.device != "cpu":
            from scopeval.critics.mlp import torch_networks as critic_mlp_torch

            critic_mlp_torch.find_device(self.device)  # or say that there is none

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Standardize the inputs, draw the folds."""
        return _MLPLearner(self, rows, actions, seed)


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
        self.held = []  # rows of the fold on which the *other* fold's networks are judged
        for fold in self.folds:
            share = rows.weight[fold] / rows.weight[fold].sum()
            self.held.append(rng.choice(len(fold), size=HELD_OUT, p=share))
        every = np.arange(len(rows))
        self.ridges = [
            _Ridge(*self._inputs(rows, fold), how.states, actions, rows.weight[fold])
            for fold in (*self.folds, every)
        ]
        # rows whose pair the other fold has never seen say nothing about the noise
        self.judged = np.ones(len(rows))
        if how.states is not None:
            for f, fold in enumerate(self.folds):
                met = self.ridges[1 - f].count.reshape(-1, actions) > 0
                self.judged[fold] = met[rows.obs[fold], rows.action[fold]]
            if not self.judged.any():
                self.judged[:] = 1.0
        self.net: NDArray[np.float32] | None = None
        self.stack = self._stack(rows) if how.device != "cpu" and how.states is None else None

    def _stack(self, rows: Rows) -> Any:
        """The inputs on the device."""
        from scopeval.critics.mlp import torch_networks as critic_mlp_torch

        x = _standardized(rows.obs, self.mean, self.scale)
        upto = [part[3] for part in self.inputs]
        where = critic_mlp_torch.find_device(self.how.device)
        return critic_mlp_torch.Stack(
            x, rows.action, self.folds, upto, self.held, self.how.hidden, self.A, where
        )

    def _inputs(self, rows: Rows, fold: NDArray[np.int64]) -> tuple[Any, Any, Any, Any]:
        """x, state numbers, actions and cumulative weights of a fold; one of the first two."""
        upto = np.cumsum(rows.weight[fold])
        if self.how.states is not None:
            return np.empty((0, 1), np.float32), rows.obs[fold], rows.action[fold], upto
        x = _standardized(rows.obs[fold], self.mean, self.scale)
        return x, np.empty(0, np.int64), rows.action[fold], upto

    @property
    def width(self) -> int:
        """Number of inputs."""
        return self.how.states if self.how.states is not None else len(self.mean)

    def fit(self, targets: Targets) -> Critic:
        from scopeval.critics.mlp._kernel import standards

        k = targets.cost_behavior.shape[1]
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
        self._train([(f, head, y[:, head]) for f in range(2) for head in range(H)], steps)
        noise = np.empty(len(y), np.float32)
        for f in range(2):  # the squared error of the fold that has not seen the row
            noise[self.folds[f]] = (y[self.folds[f], 0] - self._predict(1 - f, 0, f)) ** 2
        noise += (targets.reward_noise / spread[0] ** 2).astype(np.float32)
        level = max(float(np.average(noise, weights=self.weight * self.judged)), 1e-12)
        scaled = np.where(self.judged > 0, np.minimum(noise / level, 100.0), 1.0)
        scaled = (scaled - 1.0).astype(np.float32)  # 0: as noisy as the average
        self._solve(scaled[:, None], slice(H, H + 1), ONE_HOT_NOISE_RIDGE)
        self._train([(f, H, scaled) for f in range(2)], steps)
        full = [self.ridges[2].solve(y), self.ridges[2].solve(scaled[:, None], ONE_HOT_NOISE_RIDGE)]
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
            followed=np.int64(k),
            device=self.how.device,
        )

    def _solve(
        self, y: NDArray[np.float32], heads: slice, one_hot_ridge: float = ONE_HOT_RIDGE
    ) -> None:
        """Put the exact linear part into the networks' linear path."""
        assert self.net is not None
        for f in range(2):
            intercept, slope = self.ridges[f].solve(y[self.folds[f]], one_hot_ridge)
            *_, b2, w3 = _unpack(self.net[f, heads], self.width, self.how.hidden, self.A)
            b2[...], w3[...] = intercept, slope

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

    def _train(self, jobs: list[tuple[int, int, NDArray[np.float32]]], steps: int) -> None:
        """Train (fold, head, targets of all rows), side by side."""
        assert self.net is not None
        net, how = self.net, self.how
        seeds = {
            (f, head): int(
                np.random.SeedSequence((self.seed, self.fitted, f, head)).generate_state(1)[0]
            )
            for f, head, _ in jobs
        }
        if self.stack is not None:
            those = [f for f, _, _ in jobs], [head for _, head, _ in jobs]
            net[those], _ = self.stack.train(
                net[those],
                those[0],
                np.stack([y for _, _, y in jobs]),
                list(seeds.values()),
                steps=steps,
                batch=how.batch,
                rate=how.rate,
                patience=how.patience,
            )
            return
        from scopeval.critics.mlp._kernel import train

        def work(job: tuple[int, int, NDArray[np.float32]]) -> None:
            f, head, y = job
            x, code, act, upto = self.inputs[f]
            other, held = self.inputs[1 - f], self.held[1 - f]
            train(
                x,
                code,
                act,
                y[self.folds[f]],
                upto,
                other[0][held] if len(other[0]) else other[0],
                other[1][held] if len(other[1]) else other[1],
                other[2][held],
                y[self.folds[1 - f]][held],
                net[f, head],
                self.width,
                how.hidden,
                self.A,
                steps,
                how.batch,
                how.rate,
                how.patience,
                seeds[f, head],
            )

        fan_out(work, jobs)

    def _predict(self, net_fold: int, head: int, row_fold: int) -> NDArray[np.float32]:
        """One head's answers for the rows of a fold, by the networks of another."""
        assert self.net is not None
        if self.stack is not None:
            return np.asarray(self.stack.predict(self.net[net_fold, head], row_fold))
        from scopeval.critics.mlp._kernel import predict

        x, code, act, _ = self.inputs[row_fold]
        flat = self.net[net_fold, head]
        _, _, *rest = _unpack(flat, self.width, self.how.hidden, self.A)
        first = flat[: (self.width + 1) * self.how.hidden].reshape(self.width + 1, -1)
        return np.asarray(predict(x, code, act, first, *rest))


class _Ridge:
    """Linear regression per action, its normal equations factorized once."""

    def __init__(
        self, x: Any, code: Any, act: Any, upto: Any, states: int | None, A: int, weight: Floats
    ) -> None:
        self.x, self.code, self.act, self.weight = x, code, act, weight
        self.states, self.A = states, A
        if states is not None:  # one-hot: the normal equations are a count
            self.pair = code * A + act
            self.count = np.bincount(self.pair, weight, states * A)
            return
        self.parts = []
        for a in range(A):
            rows = np.flatnonzero(act == a)
            z = np.column_stack([np.ones(len(rows)), x[rows]]).astype(np.float64)
            zw = z * weight[rows, None]
            gram = z.T @ zw
            gram[1:, 1:] += (1.0 + 1e-3 * weight[rows].sum()) * np.eye(x.shape[1])
            gram[0, 0] += 1e-3
            self.parts.append((rows, np.linalg.solve(gram, zw.T)))

    def solve(
        self, y: NDArray[np.float32], one_hot_ridge: float = ONE_HOT_RIDGE
    ) -> tuple[Floats, Floats]:
        """Intercepts [H, A] and slopes [H, A, d] for targets [n, H]."""
        H = y.shape[1]
        if self.states is not None:
            slope = np.empty((H, self.A, self.states))
            for head in range(H):
                total = np.bincount(self.pair, self.weight * y[:, head], len(self.count))
                table = total / (self.count + one_hot_ridge)
                slope[head] = table.reshape(self.states, self.A).T
            return np.zeros((H, self.A)), slope
        solved = [inverse @ y[rows] for rows, inverse in self.parts]  # [1 + d, H] each
        both = np.stack(solved, axis=1)  # [1 + d, A, H]
        return both[0].T, np.moveaxis(both[1:], (0, 1, 2), (2, 1, 0))


def _unpack(flat: NDArray[np.float32], d: int, h: int, A: int) -> tuple[Any, ...]:
    """w1 [d, h], b1 [h], w2 [A, h], b2 [A], w3 [A, d] of flat weights [..., all]."""
    lead = flat.shape[:-1]
    o1, o2, o3, o4 = d * h, d * h + h, d * h + h + A * h, d * h + h + A * h + A
    return (
        flat[..., :o1].reshape(*lead, d, h),
        flat[..., o1:o2],
        flat[..., o2:o3].reshape(*lead, A, h),
        flat[..., o3:o4],
        flat[..., o4:].reshape(*lead, A, d),
    )


@dataclass(frozen=True)
class MLPCritic:
    """The networks of one time step, [2 folds, heads, all weights], and how to read them.

    `intercept` [heads, A] and `slope` [heads, A, d] are the linear part learned from both folds
    together; the folds' own linear parts serve only to see how far they differ. `device` says where
    many observations are answered; it is not saved.
    """

    net: NDArray[np.float32]
    intercept: NDArray[np.float32]
    slope: NDArray[np.float32]
    shape: NDArray[np.int64]
    centre: Floats
    spread: Floats
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    low: Floats
    high: Floats
    pairs: Bools
    followed: NDArray[np.int64] | np.int64
    device: str = "cpu"

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Mean of the folds; the noise head and half the folds' difference tell how sure."""
        k = int(self.followed)
        obs = np.asarray(obs)
        if obs.ndim > 1 and (self.device == "cpu" or len(obs) < DEVICE_ROWS):
            return self._at_vectors(obs)
        # out [H, B, A], and the difference of the folds' q [B, A]
        out, difference = self._at_numbers(obs) if obs.ndim == 1 else self._on_device(obs)
        known = self._known(obs)
        if obs.ndim == 1:  # a pair never logged: the mean of the state's logged ones
            some = known.any(axis=1, keepdims=True)
            count = np.maximum(known.sum(axis=1, keepdims=True), 1)
            usual = (out * known).sum(axis=2, keepdims=True) / count
            out = np.where(known | ~some, out, usual)
        mean = out * self.spread[:, None, None] + self.centre[:, None, None]
        noise = np.maximum(mean[-1], 0.05 * self.spread[-1])
        error = np.minimum((difference * (0.5 * self.spread[0])) ** 2, noise)
        return Estimates(
            q=mean[0],
            cost_target=np.maximum(mean[1], 0.0),
            cost_behavior=np.maximum(np.moveaxis(mean[1] + mean[2 : 2 + k], 0, -1), 0.0),
            carried=np.maximum(np.moveaxis(mean[2 + k : 2 + 2 * k], 0, -1), 0.0),
            noise=noise + error,
            error=error,
            known=known,
        )

    def _at_vectors(self, obs: Observations) -> Estimates:
        """By the compiled loop, some rows in every thread."""
        from scopeval.critics.mlp._kernel import BLOCK, answer

        if obs.shape[1:] != self.low.shape:
            raise InputError(
                f"obs: got vectors of shape {obs.shape[1:]}, expected {self.low.shape} as in the "
                "logs"
            )
        B, A, k = len(obs), int(self.shape[2]), int(self.followed)
        q, cost, noise, error = (np.empty((B, A)) for _ in range(4))
        behind, carried = np.empty((B, A, k)), np.empty((B, A, k))
        known = np.empty((B, A), np.bool_)
        given = np.ascontiguousarray(obs, np.float64)

        def work(lo: int, hi: int) -> None:
            answer(
                self.net,
                self.intercept,
                self.slope,
                self.centre,
                self.spread,
                self.mean,
                self.scale,
                self.low,
                self.high,
                self.pairs,
                k,
                int(self.shape[1]),
                given,
                q,
                cost,
                behind,
                carried,
                noise,
                error,
                known,
                lo,
                hi,
            )

        fan_out_rows(work, B, block=BLOCK)
        return Estimates(q, cost, behind, carried, noise, error, known)

    def _at_numbers(self, states: Observations) -> tuple[Floats, Floats]:
        """All heads [H, B, A], and the difference of the folds' q [B, A], in standard units."""
        w1, b1, w2, b2, w3 = _unpack(self.net, *(int(n) for n in self.shape))
        on = w2.any(axis=(2, 3))  # networks that are not switched off
        learned = np.zeros((*w2.shape[:2], len(states), w2.shape[2]), np.float32)
        s = np.clip(states, 0, int(self.shape[0]) - 1)
        for net in zip(*np.nonzero(on), strict=True):  # one-hot: a row of the weights
            learned[net] = np.maximum(w1[net][s] + b1[net], 0.0) @ w2[net].T
        linear = np.swapaxes(self.slope[..., s], 1, 2)
        own = w3[0, 0][:, s].T - w3[1, 0][:, s].T
        heads = learned.mean(axis=0) + linear + self.intercept[:, None]
        difference = learned[0, 0] - learned[1, 0] + own + b2[0, 0] - b2[1, 0]
        return np.asarray(heads, np.float64), np.asarray(difference, np.float64)

    def _on_device(self, obs: Observations) -> tuple[Floats, Floats]:
        """The same on the device, all at once."""
        from scopeval.critics.mlp import torch_networks as critic_mlp_torch

        return critic_mlp_torch.answers(
            obs,
            self.mean,
            self.scale,
            _unpack(self.net, *(int(n) for n in self.shape)),
            self.intercept,
            self.slope,
            critic_mlp_torch.find_device(self.device),
        )

    def _known(self, obs: Observations) -> Bools:
        if obs.ndim == 1:
            inside = (obs >= 0) & (obs < len(self.pairs))
            return np.asarray(self.pairs[np.where(inside, obs, 0)] & inside[:, None])
        within = np.all((obs >= self.low) & (obs <= self.high), axis=1, keepdims=True)
        return np.asarray(within & self.pairs[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields but the device."""
        names = [name for name in self.__dataclass_fields__ if name != "device"]
        return {name: np.asarray(getattr(self, name)) for name in names}


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
