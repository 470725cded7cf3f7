"""The row solver on another device: the same mathematics as `scopeval.solver`, in torch.

Rows are independent and small, so a GPU is limited by how fast it reads weights and costs and
writes mu. If Triton is installed, one fused kernel solves a tile of rows in registers, and reads
and writes each number once; otherwise the same steps are operations on whole arrays.

The root is searched by Halley's steps from y = 1. A row where they leave the interval starts again
with Newton's, which cannot overstep the root because the curve h(y) is convex (see `solver`).
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from scopeval.errors import InputError

if TYPE_CHECKING:
    import torch

__all__ = ["find_device", "has_triton", "solve_tensors"]

SOLVED, INDIFFERENT, INFEASIBLE = 0, 1, 2
TIE = 1e-13
TINY = 1e-300
#: Numbers in a tile of the fused kernel, one warp each: the fastest sizes on an H200.
NARROW_TILE, WIDE_TILE = 128, 32
#: Most steps: weights over many orders of magnitude may need many of Newton's.
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
        fused: use one Triton kernel (CUDA only); None: where possible.

    Rows that are not SOLVED hold NaN. Numbers must be valid; `solve` checks them.
    """
    if fused is None:
        fused = weight.is_cuda and weight.shape[1] <= 1024 and has_triton()
    return _fused(weight, cost, budget) if fused else _whole(weight, cost, budget)


class _Rows(NamedTuple):
    """A batch in the form that the root is searched in; columns are [B, 1].

    Attributes:
        w: [B, A] weights, divided by the largest of the row.
        e: [B, A] costs above the cheapest action's; 0 for actions that cost as little.
        expensive: [B, A] whether e is above 0.
        gap: the budget above the cheapest action's cost, at least 0.
        r: [B, A] e / gap; 1 for the cheapest actions.
        cheap: total weight of the cheapest actions.
        largest: weight that all were divided by.
    """

    w: torch.Tensor
    e: torch.Tensor
    expensive: torch.Tensor
    gap: torch.Tensor
    r: torch.Tensor
    cheap: torch.Tensor
    largest: torch.Tensor


def _whole(
    weight: torch.Tensor, cost: torch.Tensor, budget: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Operation by operation over all rows."""
    import torch

    least, most = cost.min(1, keepdim=True).values, cost.max(1, keepdim=True).values
    tie = TIE * torch.maximum(torch.maximum(least.abs(), most.abs()), budget[:, None].abs())
    largest = weight.max(1, keepdim=True).values
    w = weight / torch.where(largest > TINY, largest, torch.inf)
    e = cost - least
    expensive = e > tie
    e = torch.where(expensive, e, 0.0)
    room = budget[:, None] - least
    gap = room.clamp(min=0.0)
    total, cheap = w.sum(1, keepdim=True), torch.where(expensive, 0.0, w).sum(1, keepdim=True)
    free = (w * e).sum(1, keepdim=True) <= gap * total
    status = torch.full_like(budget, SOLVED, dtype=torch.int8)
    status[((gap == 0) & ~free)[:, 0]] = INFEASIBLE
    status[(total == 0)[:, 0]] = INDIFFERENT
    status[(room < -tie)[:, 0]] = INFEASIBLE
    r = torch.where(expensive, e / torch.where(gap > 0, gap, 1.0), 1.0)
    rows = _Rows(w, e, expensive, gap, r, cheap, largest)
    mu, multiplier = _at_root(rows, *_find_root(rows))
    corner, at_corner, multiplier_there = _at_corner(rows, free)
    mu = torch.where(corner, at_corner, mu)
    multiplier = torch.where(corner, multiplier_there, multiplier)
    mu = torch.where(free, w / total, mu)
    multiplier = torch.where(free, 0.0, multiplier)
    bad = (status != SOLVED)[:, None]
    return (
        torch.where(bad, torch.nan, mu),
        torch.where(bad, torch.nan, multiplier)[:, 0],
        status,
    )


def _find_root(rows: _Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """The root y of h, and d = 1 - y^2, which is exact where y is close to 1."""
    import torch

    r, cheap = rows.r, rows.cheap
    c = torch.where(rows.expensive, rows.w * (r - 1.0), 0.0)
    y, d = torch.ones_like(rows.gap), torch.zeros_like(rows.gap)
    slow = torch.zeros_like(rows.gap, dtype=torch.bool)
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
    return y, d


def _at_root(rows: _Rows, y: torch.Tensor, d: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mu and the multiplier; what rounding overspends goes to the first of the cheapest actions."""
    import torch

    w, r, expensive, gap = rows.w, rows.r, rows.expensive, rows.gap
    inv = (r * d + y * y).rsqrt()
    p = torch.where(expensive, w * y * inv, w)
    norm = p.sum(1, keepdim=True)
    inverse = torch.where(expensive, w / (y * inv), w).sum(1, keepdim=True)
    spent = torch.where(expensive, p * r, 0.0).sum(1, keepdim=True) / norm
    share = torch.where(spent > 1.0, (spent - 1.0) / spent, 0.0)
    mu = p / norm * (1.0 - share)
    first = torch.zeros_like(mu).scatter_(1, (~expensive).double().argmax(1, keepdim=True), 1.0)
    multiplier = d / torch.where(gap > 0, gap, 1.0) * inverse * norm * rows.largest**2
    return mu + share * first, multiplier


def _at_corner(rows: _Rows, free: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows without weight on the cheapest actions whose curve ends above the budget; the answer.

    The cheapest actions then get the probability that the others cannot afford.
    """
    import torch

    w, expensive, gap = rows.w, rows.expensive, rows.gap
    root = torch.where(expensive, rows.e, 1.0).sqrt()
    spend = torch.where(expensive, w * root, 0.0).sum(1, keepdim=True)
    mass = torch.where(expensive, w / root, 0.0).sum(1, keepdim=True)
    corner = (rows.cheap == 0) & ~free & (spend >= gap * mass)
    rest = (1.0 - gap * mass / spend).clamp(min=0.0) / (~expensive).sum(1, keepdim=True)
    mu = torch.where(expensive, w * gap / (spend * root), rest)
    return corner, mu, (spend / gap) ** 2 * rows.largest**2


# -- one kernel ----------------------------------------------------------------------------------


def has_triton() -> bool:
    """Whether the fused kernel can be compiled here."""
    return find_spec("triton") is not None


@cache
def _kernel() -> Any:
    """The fused kernel. It is one function because Triton compiles it as a whole."""
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
        least = tl.min(q, axis=1)
        most = tl.max(tl.where(there, q, -float("inf")), axis=1)
        tie = tie_share * tl.maximum(tl.maximum(tl.abs(least), tl.abs(most)), tl.abs(delta))
        largest = tl.max(w, axis=1)
        w = w * tl.where(largest > tiny, 1.0 / largest, 0.0)[:, None]
        e = tl.where(there, q - least[:, None], 0.0)
        expensive = e > tie[:, None]
        e = tl.where(expensive, e, 0.0)
        gap = delta - least
        D = tl.maximum(gap, 0.0)
        total = tl.sum(w, axis=1)
        cheap = tl.sum(tl.where(expensive, 0.0, w), axis=1)
        free = tl.sum(w * e, axis=1) <= D * total
        per_gap = tl.where(D > 0, 1.0 / D, 1.0)
        r = tl.where(expensive, e * per_gap[:, None], 1.0)
        c = tl.where(expensive, w * (r - 1.0), 0.0)
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
        p = tl.where(expensive, w * y[:, None] * inv, w)
        norm = tl.sum(p, axis=1)
        inverse = tl.sum(tl.where(expensive, w * s * inv / y[:, None], w), axis=1)
        spent = tl.sum(tl.where(expensive, p * r, 0.0), axis=1) / norm
        share = tl.where(spent > 1.0, (spent - 1.0) / spent, 0.0)
        out = p * ((1.0 - share) / norm)[:, None]
        first = tl.min(tl.where(there & (expensive == 0), a[None, :], WIDTH), axis=1)
        out += tl.where(a[None, :] == first[:, None], share[:, None], 0.0)
        lam = d * per_gap * inverse * norm * largest * largest
        root = tl.sqrt(tl.where(expensive, e, 1.0))
        spend = tl.sum(tl.where(expensive, w * root, 0.0), axis=1)
        mass = tl.sum(tl.where(expensive, w / root, 0.0), axis=1)
        corner = (cheap == 0.0) & (free == 0) & (spend >= D * mass)
        count = tl.sum((there & (expensive == 0)).to(tl.float64), axis=1)
        rest = tl.maximum(1.0 - D * mass / spend, 0.0) / count
        at_end = tl.where(expensive, w * (D / spend)[:, None] / root, rest[:, None])
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
    _kernel()[grid](
        weight, cost, budget, mu, multiplier, status, rows, A, TINY, TIE,
        WIDTH=width, BLOCK=block, STEPS=STEPS, num_warps=1,
        # A product fused into the first sum across lanes is rounded differently in every lane.
        # Lanes could then disagree on whether a row is done, and wait for each other forever.
        enable_fp_fusion=False,
    )  # fmt: skip
    return mu, multiplier, status
