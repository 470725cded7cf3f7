"""Where torch computes; Adam, recordings and the random numbers of compiled loops there.

This module needs torch and numpy and nothing else, so that it runs on a bare machine with a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from scopeval.errors import InputError

__all__ = ["Recorded", "adam", "find_device", "uniform"]

#: Adam's shares of a new gradient and of its square, in the rounding of the compiled loops.
NEW, NEW_SQUARE = (float(np.float32(1.0) - np.float32(old)) for old in (0.9, 0.999))


def find_device(name: str) -> torch.device:
    """Torch's device of that name: "cpu", "cuda" or "cuda:1"."""
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if name != "cpu" and (kind != "cuda" or not (name == kind or number.isdecimal())):
        raise InputError(f"device: got {name!r}, expected 'cpu', 'cuda' or 'cuda:' and a number")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and int(number or 0) >= found:
        raise InputError(
            f"device: got {name!r}, but torch {torch.__version__} finds "
            f"{found or 'no'} CUDA device{'s' * (found != 1)}; try device='cpu', or a build of "
            "torch for CUDA (https://pytorch.org/get-started)"
        )
    return torch.device(name)


def adam(
    w: torch.Tensor,
    gradient: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    scale: torch.Tensor,
    over: torch.Tensor,
) -> None:
    """One step of Adam, in place; arguments as those of `critics._adam_kernel.adam`."""
    m.mul_(0.9).add_(gradient, alpha=NEW)
    v.mul_(0.999).addcmul_(gradient, gradient, value=NEW_SQUARE)
    size = (v * over).sqrt_().add_(1e-8)
    w.addcmul_(m / size, scale, value=-1.0)


class Recorded:
    """A function of tensors that is recorded on CUDA at its second call, and replayed from then on.

    Launching the operations of small networks takes longer than computing them. Calls with inputs
    of other shapes than the first are not replayed.

    Args:
        work: the function; what it changes must stay in the same place.
        device: where it works.
    """

    def __init__(self, work: Callable[..., None], device: torch.device) -> None:
        self._work, self._device = work, device
        self._inputs: tuple[torch.Tensor, ...] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *inputs: torch.Tensor) -> None:
        """Call the function, or replay it with these inputs."""
        first = self._inputs
        if self._device.type != "cuda":
            self._work(*inputs)
        elif first is None:  # the first call allocates memory, which must not be recorded
            self._work(*inputs)
            self._inputs = inputs
        elif any(mine.shape != given.shape for mine, given in zip(first, inputs, strict=True)):
            self._work(*inputs)
        else:
            for mine, given in zip(first, inputs, strict=True):
                mine.copy_(given)
            self._replay(first)

    def _replay(self, inputs: tuple[torch.Tensor, ...]) -> None:
        with torch.cuda.device(self._device):
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
                with torch.cuda.graph(self._graph, stream=aside):
                    self._work(*inputs)
            self._graph.replay()


def uniform(seeds: torch.Tensor, begin: int, count: int) -> torch.Tensor:
    """Draws begin + 1 .. begin + count of SplitMix64 from every seed, in [0, 1), [N, count].

    int64 stands for uint64: sums and products wrap alike.
    """
    k = torch.arange(begin + 1, begin + count + 1, device=seeds.device)
    z = seeds[:, None] + k * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return _shifted(z ^ _shifted(z, 31), 11).double() * (1.0 / 9007199254740992.0)


def _shifted(z: torch.Tensor, by: int) -> torch.Tensor:
    """Shifted to the right, with zeros from the left."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits
