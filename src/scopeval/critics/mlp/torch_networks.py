"""The networks of `critics.mlp` on a device: all folds and heads trained as one stack.

Rows are drawn, and networks are trained, stopped and switched off, as in the compiled loop
(`_kernel`). So results differ by the rounding of float32 alone, and where rounding decides when to
stop. Vectors only. This module needs torch and numpy and nothing else, so that it runs on a bare
machine with a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scopeval.critics.devices import Recorded, adam, find_device, uniform

__all__ = ["Stack", "answers", "find_device"]

#: As in the compiled loop: the share by which a network must lower the held-out error ...
WORTH = 0.02
#: ... and steps between two checks of the held-out error.
CHECK = 20


class Stack:
    """Rows of two folds, kept on a device, and networks trained on them.

    Args:
        x: [n, d] standardized inputs.
        act: [n] actions taken.
        folds: the rows of each fold.
        upto: cumulative weights of each fold's rows.
        held: entries of each fold by which networks of the *other* fold are judged.
        hidden: width of the hidden layer.
        actions: their number.
        device: where they are.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        act: NDArray[np.int64],
        folds: Sequence[NDArray[np.int64]],
        upto: Sequence[NDArray[np.float64]],
        held: Sequence[NDArray[np.int64]],
        hidden: int,
        actions: int,
        device: torch.device,
    ) -> None:
        self.d, self.h, self.A, self.device = x.shape[1], hidden, actions, device
        self.x = self._put(np.column_stack([x, np.ones(len(x), np.float32)]))  # [n, d + 1]
        self.taken = self._put(np.eye(actions, dtype=np.float32))[self._put(act)]  # [n, A]
        self.folds = [self._put(fold) for fold in folds]
        self.upto = [self._put(part) for part in upto]
        self.held = [fold[self._put(part)] for fold, part in zip(self.folds, held, strict=True)]
        self.loops: dict[tuple[int, int], _Loop] = {}

    def _put(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

    def train(
        self,
        net: NDArray[np.float32],
        fold: Sequence[int],
        y: NDArray[np.float32],
        seeds: Sequence[int],
        *,
        steps: int,
        batch: int,
        rate: float,
        patience: int,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Train N networks side by side; returns them, and their errors on held-out rows [N].

        Args:
            net: [N, all weights]: w1 [d, h], b1 [h], w2 [A, h], b2 [A], w3 [A, d] of each.
            fold: the fold that each learns from.
            y: [N, n] targets.
            seeds: of each network's draws.
            steps: at most so many.
            batch: rows per step.
            rate: Adam's.
            patience: checks without improvement before a network stops.
        """
        N, h, A, d = len(net), self.h, self.A, self.d
        o2, o3 = (d + 1) * h, (d + 1) * h + A * h
        flat, targets, start = self._put(net), self._put(y), self._put(np.array(seeds, np.int64))
        linear = torch.cat([flat[:, o3 + A :].view(N, A, d), flat[:, o3 : o3 + A, None]], 2)
        if (N, batch) not in self.loops:
            self.loops[N, batch] = _Loop(N, batch, d, h, A, self.device)
        loop = self.loops[N, batch]
        loop.start(flat[:, :o3])
        moving, w1, w2 = loop.moving, loop.w1, loop.w2
        other = self._left(torch.stack([self.held[1 - f] for f in fold]), targets, linear)

        best, best_error = moving.clone(), _error(w1, w2, *other)
        stale = torch.zeros(N, dtype=torch.int64, device=self.device)
        for begin in range(0, steps, CHECK):
            some = min(CHECK, steps - begin)
            rows = self._drawn(fold, start, begin * batch, some * batch)
            step = np.arange(begin + 1, begin + some + 1)
            fast = np.where(step <= 0.7 * steps, rate, 0.3 * rate) / (1.0 - 0.9**step)
            rates = np.stack([fast, 1.0 / (1.0 - 0.999**step)]).astype(np.float32)
            loop.run(*self._left(rows, targets, linear), self._put(rates))
            error = _error(w1, w2, *other)
            going = stale < patience  # the others have stopped, but stay in the stack
            better = going & (error < best_error * 0.999)
            best_error = torch.where(better, error, best_error)
            best = torch.where(better[:, None], moving, best)
            stale = torch.where(going, torch.where(better, 0, stale + 1), stale)
            if not bool((stale < patience).any()):
                break
        bare = (other[2] ** 2).mean(1)
        off = bare <= best_error * (1.0 + WORTH)
        flat[:, :o3] = best
        flat[:, o2:o3] *= ~off[:, None]
        return flat.cpu().numpy(), torch.where(off, bare, best_error).cpu().numpy()

    def predict(self, net: NDArray[np.float32], fold: int) -> NDArray[np.float32]:
        """One network's answers for the rows of a fold and the taken actions."""
        d, h, A, rows = self.d, self.h, self.A, self.folds[fold]
        o2, o3 = (d + 1) * h, (d + 1) * h + A * h
        flat, x, taken = self._put(net), self.x[rows], self.taken[rows]
        out = (x @ flat[:o2].view(d + 1, h)).relu_() @ flat[o2:o3].view(A, h).T  # bias: x ends in 1
        out += x[:, :d] @ flat[o3 + A :].view(A, d).T + flat[o3 : o3 + A]
        return np.asarray((out * taken).sum(1).cpu().numpy())

    def _drawn(
        self, fold: Sequence[int], start: torch.Tensor, begin: int, count: int
    ) -> torch.Tensor:
        """The rows [N, count] that the compiled loop draws, from its draw `begin` on."""
        u = uniform(start, begin, count)
        rows = torch.empty(u.shape, dtype=torch.int64, device=self.device)
        for f, (those, upto) in enumerate(zip(self.folds, self.upto, strict=True)):
            mine = torch.tensor([k for k, own in enumerate(fold) if own == f], device=self.device)
            if len(mine):
                found = torch.searchsorted(upto, u[mine] * upto[-1], right=True)
                rows[mine] = those[found.clamp_(max=len(upto) - 1)]
        return rows

    def _left(
        self, rows: torch.Tensor, y: torch.Tensor, linear: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inputs, taken actions, and the targets less the linear parts, at rows [N, m]."""
        x, taken = self.x[rows], self.taken[rows]
        known = (torch.bmm(x, linear.transpose(1, 2)) * taken).sum(2)
        return x, taken, y.gather(1, rows) - known


class _Loop:
    """Steps of Adam for N networks, recorded once on CUDA and then replayed.

    The networks are small: launching the operations of a step takes longer than computing them.
    """

    def __init__(self, N: int, batch: int, d: int, h: int, A: int, device: torch.device) -> None:
        def room(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float32, device=device)

        self.batch, o2 = batch, (d + 1) * h
        self.moving, self.m, self.v = (room(N, o2 + A * h) for _ in range(3))
        self.w1 = self.moving[:, :o2].view(N, d + 1, h)
        self.w2 = self.moving[:, o2:].view(N, A, h)
        self.run = Recorded(self._steps, device)

    def start(self, weights: torch.Tensor) -> None:
        """Start with these weights."""
        self.moving.copy_(weights)
        self.m.zero_()
        self.v.zero_()

    def _steps(
        self, x: torch.Tensor, taken: torch.Tensor, rest: torch.Tensor, rates: torch.Tensor
    ) -> None:
        for k in range(rates.shape[1]):
            now = slice(k * self.batch, (k + 1) * self.batch)
            gradient = _gradient(x[:, now], taken[:, now], rest[:, now], self.w1, self.w2)
            adam(self.moving, gradient, self.m, self.v, rates[0, k], rates[1, k])


def answers(
    obs: NDArray[Any],
    mean: NDArray[np.float32],
    scale: NDArray[np.float32],
    nets: tuple[NDArray[np.float32], ...],
    intercept: NDArray[np.float32],
    slope: NDArray[np.float32],
    device: torch.device,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All heads [H, B, A], and the difference of the folds' q [B, A], for `MLPCritic`.

    Args:
        obs: [B, d].
        mean: [d] of the inputs.
        scale: [d] of the inputs.
        nets: w1 [2, H, d, h], b1 [2, H, h], w2 [2, H, A, h], b2 [2, H, A], w3 [2, H, A, d].
        intercept: [H, A] of the linear part of both folds together.
        slope: [H, A, d], likewise.
        device: where it is computed.
    """

    def put(array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(device)

    x = ((put(obs) - put(mean)) / put(scale)).float()
    w1, b1, w2, b2, w3 = map(put, nets)
    difference = x @ (w3[0, 0] - w3[1, 0]).T + (b2[0, 0] - b2[1, 0])
    heads = x @ put(slope).transpose(1, 2) + put(intercept)[:, None]
    for f, head in zip(*np.nonzero(nets[2].any(axis=(2, 3))), strict=True):
        learned = torch.addmm(b1[f, head], x, w1[f, head]).relu_() @ w2[f, head].T
        heads[head] += 0.5 * learned
        if head == 0:
            difference += learned if f == 0 else -learned
    return _fetched(heads), _fetched(difference)


def _fetched(found: torch.Tensor) -> NDArray[np.float64]:
    """As float64; from CUDA through pinned memory, which torch keeps for the next call."""
    here = torch.empty(found.shape, dtype=torch.float64, pin_memory=found.is_cuda)
    return np.asarray(here.copy_(found.double()).numpy())


def _forward(
    w1: torch.Tensor, w2: torch.Tensor, x: torch.Tensor, taken: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The hidden layer [N, m, h], and its part of the taken actions' outputs [N, m]."""
    hidden = torch.bmm(x, w1).relu_()
    return hidden, (torch.bmm(hidden, w2.transpose(1, 2)) * taken).sum(2)


def _gradient(
    x: torch.Tensor, taken: torch.Tensor, rest: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor
) -> torch.Tensor:
    """Gradient of the mean squared error, [N, weights of w1, b1, w2]."""
    hidden, out = _forward(w1, w2, x, taken)
    slope = taken * ((out - rest) * (2.0 / x.shape[1]))[..., None]
    back = torch.bmm(slope, w2) * (hidden > 0)
    first = torch.bmm(x.transpose(1, 2), back)
    second = torch.bmm(slope.transpose(1, 2), hidden)
    return torch.cat([first.flatten(1), second.flatten(1)], 1)


def _error(
    w1: torch.Tensor, w2: torch.Tensor, x: torch.Tensor, taken: torch.Tensor, rest: torch.Tensor
) -> torch.Tensor:
    """Mean squared error of each network."""
    return ((_forward(w1, w2, x, taken)[1] - rest) ** 2).mean(1)
