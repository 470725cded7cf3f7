"""What a GPU gives: the networks of one time step, and the solver.

``python -m scopeval.paper.benchmarks.gpu --out gpu.json``, or the file itself as a script:
torch and numpy are enough. Without CUDA it says so, and takes small sizes on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run as a script
    sys.path[0] = str(Path(__file__).resolve().parents[3])

__all__ = ["Size", "main", "networks", "solver"]


@dataclass(frozen=True)
class Size:
    """Of the problem: as `MLPRegression` meets it in a sweep over vectors."""

    tuples: int = 100_000
    inputs: int = 11
    actions: int = 10
    hidden: int = 64
    heads: int = 7
    """With the noise, which is trained after the others."""
    steps: int = 80
    batch: int = 256
    held: int = 2048
    horizon: int = 100
    """Steps of the whole sweep, for which those measured stand."""
    repeats: int = 5


TINY = Size(tuples=2_000, hidden=8, steps=20, batch=32, held=64, repeats=1)


def networks(size: Size, device: str) -> dict[str, Any]:
    """Seconds of one time step: train all networks, then ask them at every tuple.

    Also `net`, the trained networks, to compare devices by.
    """
    import numpy as np
    import torch

    from scopeval.critics.mlp.torch_networks import Stack, answers

    where = torch.device(device)
    rng = np.random.default_rng(0)
    n, d, h, A, H = size.tuples, size.inputs, size.hidden, size.actions, size.heads
    x, act = rng.normal(size=(n, d)).astype(np.float32), rng.integers(A, size=n)
    bent = np.abs(x[:, :H].T) * (1 + act % 2) + 0.3 * rng.normal(size=(H, n))
    y = np.tile(bent.astype(np.float32), (2, 1))  # [2 folds x heads, n]
    order = rng.permutation(n)
    folds = [np.sort(order[: n // 2]), np.sort(order[n // 2 :])]
    upto = [np.cumsum(np.ones(len(fold))) for fold in folds]
    held = [rng.integers(len(fold), size=size.held) for fold in folds]
    o2, o3 = (d + 1) * h, (d + 1) * h + A * h
    start = np.zeros((2 * H, o3 + A + A * d), np.float32)
    start[:, :o2] = rng.uniform(-1, 1, (2 * H, o2)) / np.sqrt(d)
    start[:, o2:o3] = rng.uniform(-1, 1, (2 * H, o3 - o2)) * 0.1 / np.sqrt(h)
    stack = Stack(x, act, folds, upto, held, h, A, where)
    last = np.arange(2 * H) % H == H - 1
    fold = np.arange(2 * H) // H
    net = start.copy()

    def train() -> None:
        for which in (np.flatnonzero(~last), np.flatnonzero(last)):
            net[which], _ = stack.train(
                start[which],
                fold[which].tolist(),
                y[which],
                which.tolist(),
                steps=size.steps,
                batch=size.batch,
                rate=1e-3,
                patience=10**9,  # all steps
            )
            if len(which) > 2:  # the noise is what the other fold's networks leave
                for f in range(2):
                    stack.predict(net[(1 - f) * H], f)

    zero, one = np.zeros(d, np.float32), np.ones(d, np.float32)
    flat = net.reshape(2, H, -1)

    def ask() -> None:
        parts = (
            flat[..., : d * h].reshape(2, H, d, h),
            flat[..., d * h : o2],
            flat[..., o2:o3].reshape(2, H, A, h),
            flat[..., o3 : o3 + A],
            flat[..., o3 + A :].reshape(2, H, A, d),
        )
        answers(x, zero, one, parts, parts[3].mean(axis=0), parts[4].mean(axis=0), where)

    training, asking = _median(train, size.repeats, where), _median(ask, size.repeats, where)
    return {
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else device,
        "train": training,
        "answer": asking,
        "step": training + asking,
        "sweep": (training + asking) * size.horizon,
        "networks": int(net[:, o2:o3].any(axis=1).sum()),  # that were not switched off
        "net": net,
    }


def solver() -> Any:
    """What `scopeval.solver.gpu` measures of itself; None where there is no such module."""
    if importlib.util.find_spec("scopeval.solver.gpu") is None:
        return None
    return importlib.import_module("scopeval.solver.gpu").benchmark()


def main(words: Sequence[str] | None = None) -> dict[str, Any]:
    """Measure, print, and write a file where one is asked for."""
    import numpy as np
    import torch

    from scopeval._files import machine, now, versions, write_json

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", help="JSON file to write")
    out = parser.parse_args(words).out

    cuda = torch.cuda.is_available()
    if not cuda:
        print(f"torch {torch.__version__} finds no CUDA device: small sizes, on the CPU alone")
    size = Size() if cuda else TINY
    print(
        f"mlp: {2 * size.heads} networks, {size.steps} steps of {size.batch} rows, "
        f"{size.tuples:,} tuples, {size.inputs} inputs, {size.actions} actions, "
        f"{size.hidden} hidden"
    )
    found = [networks(size, device) for device in (("cuda", "cpu") if cuda else ("cpu",))]
    nets = [one.pop("net") for one in found]
    for one in found:
        print(
            f"  {one['device']}: {one['step']:.4f} s per time step (train {one['train']:.4f}, "
            f"answer {one['answer']:.4f}, by {one['networks']} networks), a sweep of "
            f"T={size.horizon}: {one['sweep']:.1f} s"
        )
    mlp: dict[str, Any] = {"size": asdict(size), "found": found}
    if cuda:
        mlp["times_faster"] = found[1]["step"] / found[0]["step"]
        mlp["largest_difference"] = float(np.abs(nets[0] - nets[1]).max())
        print(
            f"  {mlp['times_faster']:.1f} times faster; weights differ by at most "
            f"{mlp['largest_difference']:.1e}"
        )
    rows = solver()
    for row in rows or ():
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


def _median(call: Callable[[], object], repeats: int, where: Any) -> float:
    """Seconds, after one call that does not count."""
    import torch

    times = []
    for _ in range(1 + repeats):
        began = time.perf_counter()
        call()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[repeats // 2]


if __name__ == "__main__":
    main()
