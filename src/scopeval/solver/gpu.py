"""The row solver on another device: the same mathematics as `scopeval.solver`, in torch.

Rows are independent and small, so a GPU is limited by how fast it reads weights and costs and
writes mu. Where Triton is there, one fused kernel does a tile of rows in registers, reading and
writing each number once; otherwise the same steps as whole-array operations.

Halley's steps from y = 1; a row that they lead astray starts again with Newton's, which cannot
overstep the root, for the curve h(y) is convex (see `solver`).
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from scopeval.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["benchmark", "find_device", "solve_tensors"]

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2
TIE = 1e-13
TINY = 1e-300
#: Numbers in a tile of the fused kernel, one warp each: what was fastest on an H200.
NARROW_TILE, WIDE_TILE = 128, 32
#: Most steps: weights over many orders of magnitude may need Newton's for long.
STEPS = 2000


def find_device(name: str) -> torch.device:
    """Torch's device of that name: "cpu", "cuda" or "cuda:1"."""
    import torch

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


def solve_tensors(
    weight: torch.Tensor, cost: torch.Tensor, budget: torch.Tensor, *, fused: bool | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mu [B, A], multiplier [B] and status [B] for float64 tensors on any device.

    Args:
        weight: [B, A], at least zero.
        cost: [B, A].
        budget: [B].
        fused: by one Triton kernel (CUDA only); None: where possible.

    Rows that are not SOLVED hold NaN. Numbers are taken to be valid; `solve` checks them.
    """
    if fused is None:
        fused = weight.is_cuda and weight.shape[1] <= 1024 and _triton() is not None
    return _fused(weight, cost, budget) if fused else _whole(weight, cost, budget)


def _whole(
    weight: torch.Tensor, cost: torch.Tensor, budget: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Operation by operation over all rows."""
    import torch

    cheapest, dearest = cost.min(1, keepdim=True).values, cost.max(1, keepdim=True).values
    tie = TIE * torch.maximum(torch.maximum(cheapest.abs(), dearest.abs()), budget[:, None].abs())
    largest = weight.max(1, keepdim=True).values
    w = weight / torch.where(largest > TINY, largest, torch.inf)
    e = cost - cheapest
    dear = e > tie
    e = torch.where(dear, e, 0.0)
    gap = budget[:, None] - cheapest
    D = gap.clamp(min=0.0)
    total, cheap = w.sum(1, keepdim=True), torch.where(dear, 0.0, w).sum(1, keepdim=True)
    free = (w * e).sum(1, keepdim=True) <= D * total
    status = torch.full_like(budget, SOLVED, dtype=torch.int8)
    status[((D == 0) & ~free)[:, 0]] = INFEASIBLE
    status[(total == 0)[:, 0]] = INDIFFERENT
    status[(gap < -tie)[:, 0]] = INFEASIBLE
    r = torch.where(dear, e / torch.where(D > 0, D, 1.0), 1.0)
    c = torch.where(dear, w * (r - 1.0), 0.0)
    y, d, slow = torch.ones_like(D), torch.zeros_like(D), torch.zeros_like(D, dtype=torch.bool)
    for _ in range(STEPS):
        inv = (r * d + y * y).rsqrt()
        s1 = c * r * inv**3
        h = (c * inv).sum(1, keepdim=True) * y - cheap
        slope = s1.sum(1, keepdim=True)
        curve = 3.0 * (s1 * inv**2 * (r - 1.0)).sum(1, keepdim=True) * y
        halley, newton = 2.0 * h * slope / (2.0 * slope * slope - h * curve), h / slope
        fits = (halley < y) & (d + halley * (2.0 * y - halley) > 0.0) & (slope > 0.0)
        # a step that cancels nearly all of y may land just beyond the root: go back a little
        back = (h < 0.0) & (-newton < 0.5 * y) & (d + newton * (2.0 * y - newton) > 0.0)
        falls = ((h > 0.0) | back) & (slope > 0.0) & (newton < y)
        step = torch.where(slow, torch.where(falls, newton, 0.0), torch.where(fits, halley, 0.0))
        again = ~slow & ~fits
        d = torch.where(again, 0.0, d + step * (2.0 * y - step))
        y = torch.where(again, 1.0, y - step)
        slow = slow | again
        near = step.abs() <= torch.where(slow, 1e-8, 1e-6) * torch.minimum(y, d)
        if bool((near & ~again).all()):
            break
    inv = (r * d + y * y).rsqrt()
    p = torch.where(dear, w * y * inv, w)
    norm = p.sum(1, keepdim=True)
    inverse = torch.where(dear, w / (y * inv), w).sum(1, keepdim=True)
    spent = torch.where(dear, p * r, 0.0).sum(1, keepdim=True) / norm
    share = torch.where(spent > 1.0, (spent - 1.0) / spent, 0.0)
    mu = p / norm * (1.0 - share)
    first = torch.zeros_like(mu).scatter_(1, (~dear).double().argmax(1, keepdim=True), 1.0)
    mu = mu + share * first
    multiplier = d / torch.where(D > 0, D, 1.0) * inverse * norm * largest**2
    # no weight on the cheapest actions, and the end of the curve is still too dear
    root = torch.where(dear, e, 1.0).sqrt()
    spend = torch.where(dear, w * root, 0.0).sum(1, keepdim=True)
    mass = torch.where(dear, w / root, 0.0).sum(1, keepdim=True)
    corner = (cheap == 0) & ~free & (spend >= D * mass)
    rest = (1.0 - D * mass / spend).clamp(min=0.0) / (~dear).sum(1, keepdim=True)
    mu = torch.where(corner, torch.where(dear, w * D / (spend * root), rest), mu)
    multiplier = torch.where(corner, (spend / D) ** 2 * largest**2, multiplier)
    mu = torch.where(free, w / total, mu)
    multiplier = torch.where(free, 0.0, multiplier)
    bad = (status != SOLVED)[:, None]
    return (
        torch.where(bad, torch.nan, mu),
        torch.where(bad, torch.nan, multiplier)[:, 0],
        status,
    )


# -- one kernel ----------------------------------------------------------------------------------

_KERNEL: list[Any] = []


def _triton() -> Any:
    """The fused kernel, or None without Triton."""
    if not _KERNEL:
        try:
            _KERNEL.append(_made())
        except ImportError:
            _KERNEL.append(None)
    return _KERNEL[0]


def _made() -> Any:
    import triton  # type: ignore[import-not-found, unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found, unused-ignore]

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def kernel(  # type: ignore[no-untyped-def]
        weight, cost, budget, mu, multiplier, status, rows, A, tiny, tie_share,
        WIDTH: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
    ):  # fmt: skip
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        a = tl.arange(0, WIDTH)
        there = (i[:, None] < rows) & (a[None, :] < A)
        at = i[:, None].to(tl.int64) * A + a[None, :]
        w = tl.load(weight + at, mask=there, other=0.0)
        q = tl.load(cost + at, mask=there, other=float("inf"))
        delta = tl.load(budget + i, mask=i < rows, other=0.0)
        cheapest = tl.min(q, axis=1)
        dearest = tl.max(tl.where(there, q, -float("inf")), axis=1)
        tie = tie_share * tl.maximum(tl.maximum(tl.abs(cheapest), tl.abs(dearest)), tl.abs(delta))
        largest = tl.max(w, axis=1)
        w = w * tl.where(largest > tiny, 1.0 / largest, 0.0)[:, None]
        e = tl.where(there, q - cheapest[:, None], 0.0)
        dear = e > tie[:, None]
        e = tl.where(dear, e, 0.0)
        gap = delta - cheapest
        D = tl.maximum(gap, 0.0)
        total = tl.sum(w, axis=1)
        cheap = tl.sum(tl.where(dear, 0.0, w), axis=1)
        free = tl.sum(w * e, axis=1) <= D * total
        per_gap = tl.where(D > 0, 1.0 / D, 1.0)
        r = tl.where(dear, e * per_gap[:, None], 1.0)
        c = tl.where(dear, w * (r - 1.0), 0.0)
        y = tl.full((BLOCK,), 1.0, tl.float64)
        d = tl.full((BLOCK,), 0.0, tl.float64)
        going = tl.max((~free & (total > 0) & (D > 0)).to(tl.int32), axis=0)
        slow = tl.full((BLOCK,), 0, tl.int32)
        n = 0
        while (going > 0) & (n < STEPS):
            inv = tl.rsqrt(r * d[:, None] + (y * y)[:, None])
            inv2 = inv * inv
            s1 = c * r * inv * inv2
            h = tl.sum(c * inv, axis=1) * y - cheap
            slope = tl.sum(s1, axis=1)
            curve = 3.0 * tl.sum(s1 * inv2 * (r - 1.0), axis=1) * y
            halley = 2.0 * h * slope / (2.0 * slope * slope - h * curve)
            newton = h / slope
            fits = (halley < y) & (d + halley * (2.0 * y - halley) > 0.0) & (slope > 0.0)
            back = (h < 0.0) & (-newton < 0.5 * y) & (d + newton * (2.0 * y - newton) > 0.0)
            falls = ((h > 0.0) | back) & (slope > 0.0) & (newton < y)
            step = tl.where(fits, halley, 0.0)
            step = tl.where(slow > 0, tl.where(falls, newton, 0.0), step)
            over = free | (total == 0) | (D == 0)
            step = tl.where(over, 0.0, step)
            again = (slow == 0) & (fits == 0) & (over == 0)
            d = tl.where(again, 0.0, d + step * (2.0 * y - step))
            y = tl.where(again, 1.0, y - step)
            slow = tl.where(again, 1, slow)
            enough = tl.where(slow > 0, 1e-8, 1e-6) * tl.minimum(y, d)
            far = again | ((tl.abs(step) > enough) & (over == 0))
            going = tl.max(far.to(tl.int32), axis=0)
            n += 1
        s = r * d[:, None] + (y * y)[:, None]
        inv = tl.rsqrt(s)
        p = tl.where(dear, w * y[:, None] * inv, w)
        norm = tl.sum(p, axis=1)
        inverse = tl.sum(tl.where(dear, w * s * inv / y[:, None], w), axis=1)
        spent = tl.sum(tl.where(dear, p * r, 0.0), axis=1) / norm
        share = tl.where(spent > 1.0, (spent - 1.0) / spent, 0.0)
        out = p * ((1.0 - share) / norm)[:, None]
        first = tl.min(tl.where(there & (dear == 0), a[None, :], WIDTH), axis=1)
        out += tl.where(a[None, :] == first[:, None], share[:, None], 0.0)
        lam = d * per_gap * inverse * norm * largest * largest
        root = tl.sqrt(tl.where(dear, e, 1.0))
        spend = tl.sum(tl.where(dear, w * root, 0.0), axis=1)
        mass = tl.sum(tl.where(dear, w / root, 0.0), axis=1)
        corner = (cheap == 0.0) & (free == 0) & (spend >= D * mass)
        count = tl.sum((there & (dear == 0)).to(tl.float64), axis=1)
        rest = tl.maximum(1.0 - D * mass / spend, 0.0) / count
        at_end = tl.where(dear, w * (D / spend)[:, None] / root, rest[:, None])
        out = tl.where(corner[:, None], at_end, out)
        lam = tl.where(corner, (spend / D) * (spend / D) * largest * largest, lam)
        out = tl.where(free[:, None], w / total[:, None], out)
        lam = tl.where(free, 0.0, lam)
        how = tl.where((D == 0) & (free == 0), 2, 0)
        how = tl.where(total == 0, 1, how)
        how = tl.where(gap < -tie, 2, how)
        out = tl.where(how[:, None] == 0, out, float("nan"))
        lam = tl.where(how == 0, lam, float("nan"))
        tl.store(mu + at, out, mask=there)
        tl.store(multiplier + i, lam, mask=i < rows)
        tl.store(status + i, how.to(tl.int8), mask=i < rows)

    return kernel


def _fused(
    weight: torch.Tensor, cost: torch.Tensor, budget: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    rows, A = weight.shape
    mu = torch.empty_like(weight)
    multiplier = torch.empty_like(budget)
    status = torch.empty(rows, dtype=torch.int8, device=weight.device)
    width = 1 << (A - 1).bit_length()
    block = max(1, (NARROW_TILE if width <= 8 else WIDE_TILE) // width)
    grid = ((rows + block - 1) // block,)
    _triton()[grid](
        weight, cost, budget, mu, multiplier, status, rows, A, TINY, TIE,
        WIDTH=width, BLOCK=block, STEPS=STEPS, num_warps=1,
        # A product fused into the first sum across lanes is rounded differently in every lane; then
        # lanes can disagree on whether a row is done, and wait for each other for ever.
        enable_fp_fusion=False,
    )  # fmt: skip
    return mu, multiplier, status


# -- measured ------------------------------------------------------------------------------------


def benchmark(rows: int = 4_000_000, repeats: int = 20) -> list[dict[str, Any]]:
    """Rows a second for A = 4, 10, 100 beside the time that moving the bytes alone takes.

    The limit is a copy of as many bytes as the solver must read and write (weights, costs, budget,
    mu, multiplier, status), by torch on the same device in the same run.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = rows if device == "cuda" else max(rows // 100, 1000)
    return [_measured(max(rows * 4 // A, 1000), A, device, repeats) for A in (4, 10, 100)]


def _measured(B: int, A: int, device: str, repeats: int) -> dict[str, Any]:
    import torch

    torch.manual_seed(A)
    w, q = (torch.rand(B, A, dtype=torch.float64, device=device) for _ in range(2))
    mean = (w * q).sum(1) / w.sum(1)
    low = q.min(1).values
    share = torch.where(torch.rand(B, dtype=torch.float64, device=device) < 0.5, 0.6, 1.1)
    delta = low + share * (mean - low)  # half of the rows bind
    moved = B * (3 * 8 * A + 8 + 8 + 1)
    source = torch.empty(moved // 2, dtype=torch.uint8, device=device)
    sink = torch.empty_like(source)
    seconds = {"copy": _timed(lambda: sink.copy_(source), repeats)}
    seconds["torch"] = _timed(lambda: _whole(w, q, delta), max(2, repeats // 10))
    found: dict[str, Any] = {"device": device, "A": A, "rows": B, "bytes": moved}
    if device == "cuda" and _triton() is not None:
        seconds["fused"] = _timed(lambda: _fused(w, q, delta), repeats)
        one, two = _fused(w, q, delta), _whole(w, q, delta)
        found["largest difference"] = float((one[0] - two[0]).abs().max())
        found["overspent"] = float(((one[0] * q).sum(1) - delta).max())
    return found | {"seconds": seconds}


def _timed(call: Any, repeats: int) -> float:
    """Median seconds."""
    import torch

    call()
    times = []
    for _ in range(repeats):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)[len(times) // 2]


if __name__ == "__main__":
    for line in benchmark():
        sys.stdout.write(f"{line}\n")
