"""What a GPU gains: the networks of one time step, and the solver.

``python -m scopeval.paper.benchmarks.gpu --out gpu.json``, or the file itself as a script: torch
and numpy are enough. Without CUDA it says so, and measures small sizes on the CPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).resolve().parents[3])

__all__ = ["Size", "main", "networks", "solver"]


@dataclass(frozen=True)
class Size:
    """Size of the problem, as in a sweep of `MLPRegression` over vectors."""

    tuples: int = 100_000
    inputs: int = 11
    actions: int = 10
    hidden: int = 64
    heads: int = 7
    """Outputs that are learned, the noise included."""
    steps: int = 80
    batch: int = 256
    held: int = 2048
    horizon: int = 100
    """Steps of the whole sweep; its time is extrapolated from one step."""
    repeats: int = 5


TINY = Size(tuples=2_000, hidden=8, steps=20, batch=32, held=64, repeats=1)


class _Networks:
    """Random rows, and the networks of all heads and both folds on a device."""

    def __init__(self, size: Size, device: Any) -> None:
        from scopeval.critics.mlp.torch_networks import Stack

        self.size, self.device = size, device
        rng = np.random.default_rng(0)
        n, d, h, A, H = size.tuples, size.inputs, size.hidden, size.actions, size.heads
        self.x, act = rng.normal(size=(n, d)).astype(np.float32), rng.integers(A, size=n)
        bent = np.abs(self.x[:, :H].T) * (1 + act % 2) + 0.3 * rng.normal(size=(H, n))
        self.y = np.tile(bent.astype(np.float32), (2, 1))  # [2 folds x heads, n]
        order = rng.permutation(n)
        folds = [np.sort(order[: n // 2]), np.sort(order[n // 2 :])]
        upto = [np.cumsum(np.ones(len(fold))) for fold in folds]
        held = [rng.integers(len(fold), size=size.held) for fold in folds]
        # a network's parameters: first layer, second layer's weights, its offsets, linear part
        self.second, self.offset = (d + 1) * h, (d + 1) * h + A * h
        self.start = np.zeros((2 * H, self.offset + A + A * d), np.float32)
        self.start[:, : self.second] = rng.uniform(-1, 1, (2 * H, self.second)) / np.sqrt(d)
        width = self.offset - self.second
        self.start[:, self.second : self.offset] = (
            rng.uniform(-1, 1, (2 * H, width)) * 0.1 / np.sqrt(h)
        )
        self.stack = Stack(self.x, act, folds, upto, held, h, A, device)
        self.net = self.start.copy()

    def train(self) -> None:
        """All heads of both folds, then the noise."""
        size, H = self.size, self.size.heads
        last = np.arange(2 * H) % H == H - 1
        fold = np.arange(2 * H) // H
        for which in (np.flatnonzero(~last), np.flatnonzero(last)):
            self.net[which], _ = self.stack.train(
                self.start[which],
                fold[which].tolist(),
                self.y[which],
                which.tolist(),
                steps=size.steps,
                batch=size.batch,
                rate=1e-3,
                patience=10**9,  # all steps
            )
            if len(which) > 2:  # the noise is the error of the other fold's networks
                for f in range(2):
                    self.stack.predict(self.net[(1 - f) * H], f)

    def ask(self) -> None:
        """Answers of all networks at every row."""
        from scopeval.critics.mlp.torch_networks import answers

        d, h, A, H = self.size.inputs, self.size.hidden, self.size.actions, self.size.heads
        flat = self.net.reshape(2, H, -1)
        parts = (
            flat[..., : d * h].reshape(2, H, d, h),
            flat[..., d * h : self.second],
            flat[..., self.second : self.offset].reshape(2, H, A, h),
            flat[..., self.offset : self.offset + A],
            flat[..., self.offset + A :].reshape(2, H, A, d),
        )
        zero, one = np.zeros(d, np.float32), np.ones(d, np.float32)
        means = parts[3].mean(axis=0), parts[4].mean(axis=0)
        answers(self.x, zero, one, parts, *means, self.device)


def networks(size: Size, device: str) -> dict[str, Any]:
    """Seconds of one time step: train all networks, then ask them at every tuple.

    Also `net`, the trained networks, to compare devices by.
    """
    import torch

    where = torch.device(device)
    made = _Networks(size, where)
    training, asking = (_median(call, size.repeats) for call in (made.train, made.ask))
    return {
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else device,
        "train": training,
        "answer": asking,
        "step": training + asking,
        "sweep": (training + asking) * size.horizon,
        # networks that do not help on held-out rows are switched off
        "networks": int(made.net[:, made.second : made.offset].any(axis=1).sum()),
        "net": made.net,
    }


def solver(rows: int = 4_000_000, repeats: int = 20) -> list[dict[str, Any]]:
    """Seconds of the solver for A = 4, 10, 100, beside the time that moving the bytes alone takes.

    The limit is a copy of as many bytes as the solver must read and write (weights, costs, budget,
    mu, multiplier, status), by torch on the same device in the same run.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = rows if device == "cuda" else max(rows // 100, 1000)
    return [_solver(max(rows * 4 // A, 1000), A, device, repeats) for A in (4, 10, 100)]


def _solver(B: int, A: int, device: str, repeats: int) -> dict[str, Any]:
    import torch

    from scopeval.solver.gpu import has_triton, solve_tensors

    torch.manual_seed(A)
    w, q = (torch.rand(B, A, dtype=torch.float64, device=device) for _ in range(2))
    mean = (w * q).sum(1) / w.sum(1)
    low = q.min(1).values
    share = torch.where(torch.rand(B, dtype=torch.float64, device=device) < 0.5, 0.6, 1.1)
    delta = low + share * (mean - low)  # the budget binds in half of the rows
    moved = B * (3 * 8 * A + 8 + 8 + 1)
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device)
    sink = torch.empty_like(source)
    few = max(2, repeats // 10)
    seconds = {
        "copy": _median(lambda: sink.copy_(source), repeats),
        "torch": _median(lambda: solve_tensors(w, q, delta, fused=False), few),
    }
    found: dict[str, Any] = {"device": device, "A": A, "rows": B, "bytes": moved}
    if device == "cuda" and has_triton():
        seconds["fused"] = _median(lambda: solve_tensors(w, q, delta, fused=True), repeats)
        one, two = (solve_tensors(w, q, delta, fused=fused)[0] for fused in (True, False))
        found["largest difference"] = float((one - two).abs().max())
        found["overspent"] = float(((one * q).sum(1) - delta).max())
    return found | {"seconds": seconds}


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print, and write a file if one is asked for."""
    import torch

    from scopeval._files import machine, now, versions, write_json

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", help="JSON file to write")
    out = parser.parse_args(words).out

    cuda = torch.cuda.is_available()
    if not cuda:
        print(f"torch {torch.__version__} finds no CUDA device: small sizes, on the CPU alone")
    mlp = _compare_networks(Size() if cuda else TINY, ("cuda", "cpu") if cuda else ("cpu",))
    rows = solver()
    for row in rows:
        print(f"solver: {row}")
    result = {
        "benchmark": "gpu",
        "command": "python -m scopeval.paper.benchmarks.gpu",
        "date": now(),
        "machine": machine(),
        "versions": versions("torch", "numpy"),
        "mlp": mlp,
        "solver": rows,
    }
    if out:
        print(write_json(out, result))
    return result


def _compare_networks(size: Size, devices: Sequence[str]) -> dict[str, Any]:
    print(
        f"mlp: {2 * size.heads} networks, {size.steps} steps of {size.batch} rows, "
        f"{size.tuples:,} tuples, {size.inputs} inputs, {size.actions} actions, "
        f"{size.hidden} hidden"
    )
    found = [networks(size, device) for device in devices]
    nets = [one.pop("net") for one in found]
    for one in found:
        print(
            f"  {one['device']}: {one['step']:.4f} s per time step (train {one['train']:.4f}, "
            f"answer {one['answer']:.4f}, by {one['networks']} networks), a sweep of "
            f"T={size.horizon}: {one['sweep']:.1f} s"
        )
    mlp: dict[str, Any] = {"size": asdict(size), "found": found}
    if len(found) > 1:
        mlp["times_faster"] = found[1]["step"] / found[0]["step"]
        mlp["largest_difference"] = float(np.abs(nets[0] - nets[1]).max())
        print(
            f"  {mlp['times_faster']:.1f} times faster; weights differ by at most "
            f"{mlp['largest_difference']:.1e}"
        )
    return mlp


def _median(call: Callable[[], object], repeats: int) -> float:
    """Seconds, after one call that does not count."""
    import torch

    times = []
    for _ in range(1 + repeats):
        if torch.cuda.is_available():  # finish what is under way
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[repeats // 2]


if __name__ == "__main__":
    main()
