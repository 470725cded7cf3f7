"""Steps of Adam for the model's small networks on a device, as the compiled loop takes them.

The same rows, rates and dropped units as in `_training_kernel`, so that layers differ by rounding
alone, which many steps make larger.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from scopeval.critics.devices import Recorded, adam, uniform

__all__ = ["DeviceSteps"]


class _Layers(NamedTuple):
    """Parts of all weights in a row."""

    w1: torch.Tensor
    b1: torch.Tensor
    w2: torch.Tensor
    b2: torch.Tensor
    w3: torch.Tensor
    skip: torch.Tensor
    b3: torch.Tensor


class DeviceSteps:
    """Rows and weights on a device, and steps of Adam on them.

    Args:
        x: [n, I] inputs.
        y: [n, O], or [n, O - 1] where the last output is the logit of an end.
        counts: like y, 0 where an output has no meaning; empty: the error is squared.
        end: [n] 1 where an episode ended; empty: that is not learned.
        flat: all weights in a row.
        hidden: width of the hidden layers.
        dropout: share of the hidden units that is left out.
        device: where they are.
    """

    def __init__(
        self,
        x: NDArray[np.float32],
        y: NDArray[np.float32],
        counts: NDArray[np.float32],
        end: NDArray[np.float32],
        flat: NDArray[np.float32],
        hidden: int,
        dropout: float,
        device: torch.device,
    ) -> None:
        self._device, self._dropout = device, dropout
        self._x, self._y = self._put(x), self._put(y)
        self._counts = self._put(counts) if counts.size else None
        self._end = self._put(end) if end.size else None
        self._flat = self._put(flat.copy())
        self._m, self._v, self._gradient = (torch.zeros_like(self._flat) for _ in range(3))
        self._usual = torch.ones(y.shape[1], device=device)
        outputs = y.shape[1] + (self._counts is not None)
        self._weights = _parts(self._flat, x.shape[1], hidden, outputs)
        self._slopes = _parts(self._gradient, x.shape[1], hidden, outputs)
        self._take = Recorded(self._steps, device)

    @property
    def flat(self) -> NDArray[np.float32]:
        """All weights in a row, as they are now."""
        return np.asarray(self._flat.cpu().numpy())

    def take(
        self,
        picks: NDArray[np.int64],
        scale: NDArray[np.float32],
        over: NDArray[np.float32],
        seed: int,
    ) -> None:
        """Some steps.

        Args:
            picks: [steps, B] rows of each step.
            scale: [steps] rate of each step over its correction of the first moment.
            over: [steps] 1 / the correction of the second moment.
            seed: of the units that are left out.
        """
        self._take(*(self._put(part) for part in (picks, scale, over, np.array([seed]))))

    def _put(self, array: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _steps(
        self, picks: torch.Tensor, scale: torch.Tensor, over: torch.Tensor, seed: torch.Tensor
    ) -> None:
        steps, batch = picks.shape
        x, y = self._x[picks], self._y[picks]
        counts = [None] * steps if self._counts is None else self._counts[picks]
        end = [None] * steps if self._end is None else self._end[picks]
        kept = self._kept(seed, steps, batch)
        for k in range(steps):
            self._find_slopes(x[k], y[k], counts[k], end[k], None if kept is None else kept[k])
            adam(self._flat, self._gradient, self._m, self._v, scale[k], over[k])

    def _kept(self, seed: torch.Tensor, steps: int, batch: int) -> torch.Tensor | None:
        """What both hidden layers are multiplied by, [steps, 2, B, h]; None: nothing is left out.

        The draws of the compiled loop: the first layer by rows, then the second.
        """
        if self._dropout <= 0.0:
            return None
        hidden = len(self._weights.b1)
        draws = uniform(seed, 0, steps * 2 * batch * hidden).view(steps, 2, batch, hidden)
        return (draws >= self._dropout).float() / (1.0 - self._dropout)

    def _find_slopes(
        self,
        x: torch.Tensor,
        y: torch.Tensor,
        counts: torch.Tensor | None,
        end: torch.Tensor | None,
        kept: torch.Tensor | None,
    ) -> None:
        """The gradient of one step."""
        w, g = self._weights, self._slopes
        h1, s1 = _activated(torch.addmm(w.b1, x, w.w1))
        if kept is not None:
            h1, s1 = h1 * kept[0], s1 * kept[0]
        h2, s2 = _activated(torch.addmm(w.b2, h1, w.w2))
        if kept is not None:
            h2, s2 = h2 * kept[1], s2 * kept[1]
        out = torch.addmm(torch.addmm(w.b3, x, w.skip), h2, w.w3)
        slope = self._output_slopes(out, y, counts, end)
        torch.mm(h2.T, slope, out=g.w3)
        torch.mm(x.T, slope, out=g.skip)
        torch.sum(slope, 0, out=g.b3)
        back = torch.mm(slope, w.w3.T).mul_(s2)
        torch.mm(h1.T, back, out=g.w2)
        torch.sum(back, 0, out=g.b2)
        back = torch.mm(back, w.w2.T).mul_(s1)
        torch.mm(x.T, back, out=g.w1)
        torch.sum(back, 0, out=g.b1)

    def _output_slopes(
        self,
        out: torch.Tensor,
        y: torch.Tensor,
        counts: torch.Tensor | None,
        end: torch.Tensor | None,
    ) -> torch.Tensor:
        """Slopes of the loss at the outputs; see `_training_kernel` for its parts."""
        if counts is None:
            return (out - y) * (2.0 / out.numel())
        batch, w = y.shape
        wrong = (out[:, :w] - y).mul_(counts)
        self._usual.mul_(0.99).add_(wrong.abs().mean(0), alpha=0.01)
        unit = 1.0 / (self._usual + 1e-4)
        r = wrong * unit
        robust = counts * unit * r / (1.0 + r * r).sqrt_() * (0.1 / (batch * w))
        if end is None:
            last = torch.zeros_like(out[:, w:])
        else:
            last = ((torch.sigmoid(out[:, w]) - end) * (0.1 / batch))[:, None]
        return torch.cat([robust, last], 1)


def _activated(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Swish of z, and its derivative."""
    gate = 1.0 / (1.0 + z.abs())
    step = z * gate
    return 0.5 * z * (1.0 + step), 0.5 * (1.0 + step + step * gate)


def _parts(flat: torch.Tensor, inputs: int, hidden: int, outputs: int) -> _Layers:
    shapes = (
        (inputs, hidden), (hidden,), (hidden, hidden), (hidden,),
        (hidden, outputs), (inputs, outputs), (outputs,),
    )  # fmt: skip
    found, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        found.append(flat[at : at + size].view(shape))
        at += size
    return _Layers(*found)
