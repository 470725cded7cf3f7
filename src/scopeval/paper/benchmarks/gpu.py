"""What a GPU gains: networks of a time step (`mlp`), of the dynamics (`model`), a whole design.

``python -m scopeval.paper.benchmarks.gpu --out gpu.json``, or the file itself as a script: torch
and numpy are enough for all but a whole design (``--log hopper.npz``). Without CUDA it says so, and
measures small sizes on the CPU.
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

__all__ = ["Size", "main", "networks", "training", "whole_design"]

#: Steps of training in one call, as in `critics.model.fitting`.
PIECE = 50


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


def training(steps: int = 1000, repeats: int = 3) -> list[dict[str, Any]]:
    """Seconds of a step of training the dynamics of a Hopper, for both sizes of networks.

    On the device, and by torch on the CPU; the compiled loop of the CPU is measured by
    ``scopeval bench vectors``.
    """
    import torch

    devices = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    steps = steps if len(devices) > 1 else 2 * PIECE
    return [
        {"width": width, "batch": batch, "steps": steps}
        | {device: _training(width, batch, steps, repeats, device) for device in devices}
        for width, batch in ((128, 128), (256, 256))
    ]


def _training(width: int, batch: int, steps: int, repeats: int, device: str) -> float:
    import torch

    from scopeval.critics.model.device_training import DeviceSteps

    rng = np.random.default_rng(0)
    n, inputs, outputs = 20_000, 14, 14
    x, y = (rng.standard_normal((n, k)).astype(np.float32) for k in (inputs, outputs - 1))
    end = (rng.random(n) < 0.01).astype(np.float32)
    weights = inputs * width + width + width**2 + width + (width + inputs + 1) * outputs
    flat = (0.1 * rng.standard_normal(weights)).astype(np.float32)
    made = DeviceSteps(x, y, np.ones_like(y), end, flat, width, 0.0, torch.device(device))
    factors = np.full(PIECE, 1e-3, np.float32), np.ones(PIECE, np.float32)

    def train() -> None:
        for _ in range(steps // PIECE):
            made.take(rng.integers(n, size=(PIECE, batch)), *factors, 0)

    return _median(train, repeats) / steps


def whole_design(
    log: str | Path, robot: str = "Hopper", *, wide: bool = False, repeats: int = 1
) -> dict[str, Any]:
    """Seconds of a whole design for a robot, on the device and without it, alternately.

    Args:
        log: a file of its logged episodes.
        robot: whose they are.
        wide: with the `WIDE` training, which learns contacts better.
        repeats: designs on each device, after one that is not counted.
    """
    from scopeval import design, read_logged
    from scopeval.critics.model.regression import ModelRegression
    from scopeval.critics.model.training import WIDE, Training
    from scopeval.paper.robots.env import HORIZON
    from scopeval.paper.robots.policies import robot_policies

    logged, target = read_logged(log), robot_policies(robot, "reported")[3]
    how = ModelRegression(training=WIDE if wide else Training())
    seconds: dict[str, list[float]] = {"cuda": [], "cpu": []}
    told = {}
    for _ in range(1 + repeats):
        for device, spent in seconds.items():
            began = time.perf_counter()
            made = design(
                logged, target, horizon=HORIZON, method="scope-dr", regression=how, device=device
            )
            spent.append(time.perf_counter() - began)
            told[device] = (made.predicted.variance, made.predicted.cost)
    return {
        "robot": robot,
        "training": "wide" if wide else "usual",
        "rows": len(logged),
        "seconds": {device: sorted(spent[1:])[repeats // 2] for device, spent in seconds.items()},
        "predicted": told,
    }


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print, and write a file if one is asked for."""
    import torch

    from scopeval._files import machine, now, versions, write_json

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--log", help="logged episodes of a Hopper: measure a whole design too")
    given = parser.parse_args(words)
    out = given.out

    cuda = torch.cuda.is_available()
    if not cuda:
        print(f"torch {torch.__version__} finds no CUDA device: small sizes, on the CPU alone")
    mlp = _compare_networks(Size() if cuda else TINY, ("cuda", "cpu") if cuda else ("cpu",))
    rows = training()
    for row in rows:
        print(f"training: {row}")
    whole = []
    if given.log is not None and cuda:
        whole = [whole_design(given.log, wide=wide) for wide in (False, True)]
        print(f"designs: {whole}")
    result = {
        "benchmark": "gpu",
        "command": "python -m scopeval.paper.benchmarks.gpu",
        "date": now(),
        "machine": machine(),
        "versions": versions("torch", "numpy"),
        "mlp": mlp,
        "training": rows,
        "designs": whole,
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
