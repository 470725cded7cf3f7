"""Critics for vectors: small networks, all heads and both folds trained in one batched pass.

As in the paper: one hidden layer of 64, Adam with rate 1e-3, one network per critic and time step.
Added here, because errors of a critic cost more than the tilt wins:

- inputs are standardised, targets too (per step), and the step t starts from the weights of t + 1;
- a linear path runs beside the hidden layer;
- two folds: networks of fold 0 never see rows of fold 1. The noise head is fitted to the squared
  error of the *other* fold's q; training stops when the other fold's error stops falling; the
  estimate is the mean of the folds, and half their difference is the error of q;
- an observation outside the range of the logs is unknown (for state numbers: a pair never logged).

The gradient of such a network is five matrix products; they are written out, for all heads at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats
from scopeval.critics import Critic, Estimates, Learner, Rows, Targets
from scopeval.errors import InputError
from scopeval.policies import Observations

if TYPE_CHECKING:
    import torch

__all__ = ["MLPCritic", "MLPRegression"]

WEIGHTS = ("w1", "b1", "w2", "b2", "w3")


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
        slack: how far outside the logged range an observation is still known, in ranges.
    """

    states: int | None = None
    hidden: int = 64
    rate: float = 1e-3
    batch: int = 256
    first_steps: int = 1000
    steps: int = 80
    patience: int = 3
    slack: float = 0.1
    name: str = "mlp"

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Standardise the inputs, draw the folds."""
        return _MLPLearner(self, rows, actions, seed)


class _MLPLearner:
    """The networks' inputs, and the weights of the last fitted step to start from."""

    def __init__(self, how: MLPRegression, rows: Rows, actions: int, seed: int) -> None:
        import torch

        if len(rows) < 4:
            raise InputError(f"logged: got {len(rows)} rows, expected at least 4 for a network")
        self.how, self.A = how, actions
        self.random = torch.Generator().manual_seed(seed)
        self.mean, self.scale, self.low, self.high = _standards(how, rows)
        self.known = _logged_pairs(how, rows, actions)
        x = _encode(rows.obs, how.states, self.mean, self.scale)
        order = np.random.default_rng((seed, 5)).permutation(len(rows))
        half = len(rows) // 2
        self.folds = [np.sort(order[:half]), np.sort(order[half:])]
        self.x = [torch.from_numpy(x[f]) for f in self.folds]
        self.action = [torch.from_numpy(rows.action[f]) for f in self.folds]
        self.upto = [torch.from_numpy(np.cumsum(rows.weight[f])) for f in self.folds]
        self.row_weight = rows.weight
        self.net: dict[str, torch.Tensor] | None = None

    def fit(self, targets: Targets) -> Critic:
        import torch

        k = targets.cost_behavior.shape[1]
        heads = np.column_stack(
            [targets.reward, targets.cost_target, targets.cost_behavior, targets.carried]
        )
        centre = np.average(heads, axis=0, weights=self.row_weight)
        spread = np.sqrt(np.average((heads - centre) ** 2, axis=0, weights=self.row_weight))
        spread = np.where(spread > 1e-12, spread, 1.0)
        y = ((heads - centre) / spread).astype(np.float32)
        extra = (targets.reward_noise / spread[0] ** 2).astype(np.float32)
        parts = [(torch.from_numpy(y[f]), torch.from_numpy(extra[f])) for f in self.folds]
        H = heads.shape[1] + 1
        first = self.net is None or self.net["b2"].shape[1] != H
        if first:
            self.net = self._fresh(H)
        assert self.net is not None
        self._train(self.net, parts, self.how.first_steps if first else self.how.steps)
        return MLPCritic(
            **{name: self.net[name].numpy().copy() for name in WEIGHTS},
            centre=centre,
            spread=spread,
            mean=self.mean,
            scale=self.scale,
            low=self.low,
            high=self.high,
            pairs=self.known,
            followed=np.int64(k),
        )

    def _fresh(self, H: int) -> dict[str, torch.Tensor]:
        """New networks [2 folds, H heads, ...]; the output starts at zero."""
        import torch

        d, h, A = self.x[0].shape[1], self.how.hidden, self.A
        bound = 1.0 / np.sqrt(max(1.0, d if self.how.states is None else 1.0))
        w1 = (torch.rand((2, H, d, h), generator=self.random) * 2 - 1) * bound
        b1 = (torch.rand((2, H, 1, h), generator=self.random) * 2 - 1) * bound
        w2 = (torch.rand((2, H, h, A), generator=self.random) * 2 - 1) * 0.1 / np.sqrt(h)
        return {
            "w1": w1,
            "b1": b1,
            "w2": w2,
            "b2": torch.zeros((2, H, 1, A)),
            "w3": torch.zeros((2, H, d, A)),
        }

    def _train(
        self,
        net: dict[str, torch.Tensor],
        parts: list[tuple[torch.Tensor, torch.Tensor]],
        steps: int,
    ) -> None:
        """Adam on squared errors, stopped by the other fold; the best weights are kept."""
        import torch

        moment = {name: torch.zeros_like(w) for name, w in net.items()}
        square = {name: torch.zeros_like(w) for name, w in net.items()}
        size = min(self.how.batch, *(len(x) for x in self.x))
        held = [self._draw(f, 4 * size) for f in range(2)]
        best, best_error, stale = None, np.inf, 0
        for step in range(1, steps + 1):
            rows = [self._draw(f, size) for f in range(2)]
            gradient = self._gradient(net, rows, parts)
            rate = self.how.rate * (1.0 if step <= 0.7 * steps else 0.3)
            for name, g in gradient.items():
                moment[name].mul_(0.9).add_(g, alpha=0.1)
                square[name].mul_(0.999).addcmul_(g, g, value=0.001)
                up = moment[name] / (1 - 0.9**step)
                down = (square[name] / (1 - 0.999**step)).sqrt_().add_(1e-8)
                net[name].addcdiv_(up, down, value=-rate)
            if step % 25 == 0 or step == steps:
                error = self._held_out(net, held, parts)
                if error < best_error * 0.999:
                    best_error, stale = error, 0
                    best = {name: w.clone() for name, w in net.items()}
                else:
                    stale += 1
                    if stale >= self.how.patience:
                        break
        if best is not None:
            for name, w in net.items():
                w.copy_(best[name])

    def _draw(self, fold: int, size: int) -> torch.Tensor:
        import torch

        upto = self.upto[fold]  # a row that stands for n logged ones is drawn n times as often
        u = torch.rand(size, generator=self.random, dtype=torch.float64) * upto[-1]
        return torch.searchsorted(upto, u, right=True).clamp_(max=len(upto) - 1)

    def _gradient(
        self,
        net: dict[str, torch.Tensor],
        rows: list[torch.Tensor],
        parts: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> dict[str, torch.Tensor]:
        """Of sum_heads mean_rows (prediction - target)^2, by hand."""
        import torch

        x = torch.stack([self.x[f][rows[f]] for f in range(2)])  # [2, B, d]
        act = torch.stack([self.action[f][rows[f]] for f in range(2)])  # [2, B]
        y = torch.stack([parts[f][0][rows[f]] for f in range(2)]).transpose(1, 2)  # [2, H-1, B]
        extra = torch.stack([parts[f][1][rows[f]] for f in range(2)])

        x4 = x[:, None]
        hidden = torch.relu(x4 @ net["w1"] + net["b1"])  # [2, H, B, h]
        out = hidden @ net["w2"] + x4 @ net["w3"] + net["b2"]  # [2, H, B, A]
        taken = act[:, None, :, None].expand(-1, out.shape[1], -1, 1)
        prediction = out.gather(3, taken).squeeze(3)  # [2, H, B]
        q_other = _forward(net, x, fold_of_net=(1, 0), head=0)
        q_other = q_other.gather(2, act[:, :, None]).squeeze(2)
        noise = (y[:, 0] - q_other) ** 2 + extra
        target = torch.cat([y, noise[:, None].clamp(max=100.0)], dim=1)
        slope = (2.0 / x.shape[1]) * (prediction - target)
        d_out = torch.zeros_like(out).scatter_(3, taken, slope[..., None])
        d_hidden = (d_out @ net["w2"].transpose(2, 3)) * (hidden > 0)
        xt = x4.transpose(2, 3)
        return {
            "w1": xt @ d_hidden,
            "b1": d_hidden.sum(dim=2, keepdim=True),
            "w2": hidden.transpose(2, 3) @ d_out,
            "b2": d_out.sum(dim=2, keepdim=True),
            "w3": xt @ d_out,
        }

    def _held_out(
        self,
        net: dict[str, torch.Tensor],
        rows: list[torch.Tensor],
        parts: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> float:
        """Squared error of each fold's mean heads on rows of the other fold."""
        total = 0.0
        for f in range(2):
            x, act = self.x[f][rows[f]], self.action[f][rows[f]]
            hidden = (x @ net["w1"][1 - f, :-1] + net["b1"][1 - f, :-1]).relu()
            out = hidden @ net["w2"][1 - f, :-1] + x @ net["w3"][1 - f, :-1] + net["b2"][1 - f, :-1]
            prediction = out.gather(2, act[None, :, None].expand(len(out), -1, 1)).squeeze(2)
            total += float(((prediction - parts[f][0][rows[f]].T) ** 2).mean())
        return total


def _forward(
    net: dict[str, torch.Tensor], x: torch.Tensor, fold_of_net: tuple[int, int], head: int
) -> torch.Tensor:
    """One head's outputs [2, B, A] for x [2, B, d], by the networks of the given folds."""
    f = list(fold_of_net)
    hidden = (x @ net["w1"][f, head] + net["b1"][f, head]).relu()
    out: torch.Tensor = hidden @ net["w2"][f, head] + x @ net["w3"][f, head] + net["b2"][f, head]
    return out


@dataclass(frozen=True)
class MLPCritic:
    """The networks of one time step, [2 folds, heads, ...], and how to read them."""

    w1: NDArray[np.float32]
    b1: NDArray[np.float32]
    w2: NDArray[np.float32]
    b2: NDArray[np.float32]
    w3: NDArray[np.float32]
    centre: Floats
    spread: Floats
    mean: NDArray[np.float32]
    scale: NDArray[np.float32]
    low: Floats
    high: Floats
    pairs: Bools
    followed: NDArray[np.int64] | np.int64

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """Mean of the folds; the noise head and half the folds' difference tell how sure."""
        k = int(self.followed)
        obs = np.asarray(obs)
        states = None if obs.ndim > 1 else len(self.pairs)
        out = self._outputs(obs, states)  # [2, H, B, A]
        scale = np.append(self.spread, self.spread[0] ** 2)[:, None, None]
        shift = np.append(self.centre, 0.0)[:, None, None]
        mean = out.mean(axis=0) * scale + shift
        error = ((out[0, 0] - out[1, 0]) * (0.5 * self.spread[0])) ** 2
        noise = np.maximum(mean[-1], 1e-3 * self.spread[0] ** 2)
        return Estimates(
            q=mean[0],
            cost_target=np.maximum(mean[1], 0.0),
            cost_behavior=np.maximum(np.moveaxis(mean[2 : 2 + k], 0, -1), 0.0),
            carried=np.maximum(np.moveaxis(mean[2 + k : 2 + 2 * k], 0, -1), 0.0),
            noise=noise,
            error=np.minimum(error, noise),
            known=self._known(obs),
        )

    def _outputs(self, obs: Observations, states: int | None) -> Floats:
        if states is not None:  # one-hot: a row of the weights
            s = np.clip(obs, 0, states - 1)
            hidden = np.maximum((self.w1[:, :, s] / self.scale[0]) + self.b1, 0.0)
            out = hidden @ self.w2 + self.w3[:, :, s] / self.scale[0] + self.b2
        else:
            x = _encode(obs, None, self.mean, self.scale)
            if len(x) > 4096:
                return self._torch_outputs(x)
            hidden = np.maximum(x @ self.w1 + self.b1, 0.0)
            out = hidden @ self.w2 + x @ self.w3 + self.b2
        return np.asarray(out, dtype=np.float64)

    def _torch_outputs(self, x: NDArray[np.float32]) -> Floats:
        """The same for large batches, in parts that fit the cache."""
        import torch

        net = [torch.from_numpy(getattr(self, name)) for name in WEIGHTS]
        w1, b1, w2, b2, w3 = net
        parts = []
        for part in torch.from_numpy(x).split(4096):
            hidden = torch.relu(part @ w1 + b1)
            parts.append(hidden @ w2 + part @ w3 + b2)
        return torch.cat(parts, dim=2).double().numpy()

    def _known(self, obs: Observations) -> Bools:
        if obs.ndim == 1:
            inside = (obs >= 0) & (obs < len(self.pairs))
            return np.asarray(self.pairs[np.where(inside, obs, 0)] & inside[:, None])
        inside = ((obs >= self.low) & (obs <= self.high)).all(axis=1)
        return np.asarray(inside[:, None] & self.pairs[0])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All fields."""
        return {name: np.asarray(getattr(self, name)) for name in self.__dataclass_fields__}


def _standards(
    how: MLPRegression, rows: Rows
) -> tuple[NDArray[np.float32], NDArray[np.float32], Floats, Floats]:
    """Mean and scale of the inputs, and the range within which they are known."""
    if rows.obs.ndim == 1:
        one = np.ones(1, np.float32)
        return 0 * one, one, np.zeros(1), np.zeros(1)
    mean, scale = rows.obs.mean(axis=0), rows.obs.std(axis=0)
    scale = np.where(scale > 1e-8, scale, 1.0)
    both = np.concatenate([rows.obs, rows.next_obs])
    low, high = both.min(axis=0), both.max(axis=0)
    room = how.slack * (high - low) + 1e-9
    return mean.astype(np.float32), scale.astype(np.float32), low - room, high + room


def _logged_pairs(how: MLPRegression, rows: Rows, actions: int) -> Bools:
    """State numbers: pairs [S, A] in the logs. Vectors: actions [1, A] in the logs."""
    pairs = np.zeros((how.states or 1, actions), np.bool_)
    pairs[rows.obs if rows.obs.ndim == 1 else 0, rows.action] = True
    return pairs


def _encode(
    obs: Observations,
    states: int | None,
    mean: NDArray[np.float32],
    scale: NDArray[np.float32],
) -> NDArray[np.float32]:
    if states is not None:
        return np.asarray(np.eye(states, dtype=np.float32)[obs] / scale[0])
    return np.asarray((obs - mean) / scale, dtype=np.float32)
