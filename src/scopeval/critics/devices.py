"""Where torch computes, and the random numbers of compiled loops there.

This module needs torch and numpy and nothing else, so that it runs on a bare machine with a GPU.
"""

from __future__ import annotations

import torch

from scopeval.errors import InputError

__all__ = ["find_device", "uniform"]


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
