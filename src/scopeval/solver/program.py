r"""The program of every row (a state), in two forms. It knows no reinforcement learning.

    minimize    sum_a  weight_a^2 / mu_a   [ + price sum_a mu_a cost_a ]
    subject to  sum_a mu_a = 1,   mu >= floor,   [ sum_a mu_a cost_a <= budget ]

(the paper's Eq. "optimization object rl", with weight = pi sqrt(r~), cost = q^c, budget = delta;
the floor is a share of pi). Cost has a price (`solve_priced`), or a budget (`solve`): with the
price at which the budget is just spent both have the same answer. Several costs with a price each
are one: sum_j price_j cost_j.

**At a price**, stationarity gives mu_a = max(floor_a, weight_a / sqrt(eta + price cost_a)), eta
such that mu sums to one. The sum of what lies above the floor, to the power -2, is a power mean of
the eta + price cost_a, hence concave in eta: Newton's steps rise to the root and never pass it.

**With a budget** the price is searched, and eta with it. If price 0 is affordable it is the answer
(ODI's). Otherwise write e = cost - min cost >= 0, D = budget - min cost, r = e/D, and price / eta =
(1 - y^2) / (y^2 D) with y in (0, 1]:

    mu_a = max(floor_a, k weight_a / sqrt(s_a)),        s_a = y^2 + (1 - y^2) r_a
    h(y) = (y / k) sum_a mu_a (r_a - 1) = 0             (costs what may be spent)

with k such that mu sums to one. Without a floor y/k = sum weight y / sqrt(s), and h is *convex*: a
term's second derivative has the sign of (r_a - 1)^2 weight_a >= 0. The kernel takes Halley's steps
from y = 1, in a bracket; y and 1 - y^2 are both carried, so that neither end loses digits.

**Corners.** No weight on the cheapest actions and h positive down to y = 0: the weighted actions
spend the whole budget and the left-over probability goes to the cheapest actions, where it buys
safety and costs no variance. All weights zero: any mu will do (`Status.INDIFFERENT`). Budget below
what the cheapest action and the floors cost, or equal to it while more expensive actions carry
weight: no mu has a finite objective (`Status.INFEASIBLE`).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Floats, as_floats, is_number
from scopeval.errors import InputError

__all__ = ["Solution", "Status", "solve", "solve_priced"]

#: Fewer rows than this are not worth a second thread.
ROWS_PER_THREAD = 8192


class Status(enum.IntEnum):
    """How a row ended."""

    SOLVED = 0
    """mu is optimal and affordable to rounding."""
    INDIFFERENT = 1
    """All weights are zero: every mu is optimal."""
    INFEASIBLE = 2
    """No mu of finite objective meets the budget."""


@dataclass(frozen=True)
class Solution:
    """The answer for B rows.

    Attributes:
        mu: [B, A] probabilities. Rows that are not SOLVED hold the `fallback` that was given, or
            without one: the cheapest actions (INDIFFERENT), NaN (INFEASIBLE).
        multiplier: [B] Lagrange multiplier of the budget, minus the derivative of the optimum with
            respect to the budget. Positive where the budget binds, NaN where INFEASIBLE.
        status: [B] values of `Status`.
    """

    mu: Floats
    multiplier: Floats
    status: NDArray[np.int8]

    @property
    def binding(self) -> NDArray[np.bool_]:
        """Rows [B] where the budget costs something."""
        return np.asarray(self.multiplier > 0.0)


def solve_priced(
    weight: ArrayLike, cost: ArrayLike, price: float, *, floor: ArrayLike | None = None
) -> Solution:
    """Minimize ``sum weight^2 / mu + price * sum mu cost``, for each of B rows.

    The budget of `solve` moved into the objective. With the price at which the budget is just spent
    both have the same answer.

    Args:
        weight: [B, A], at least zero, and less than 1e100.
        cost: [B, A], numbers of less than 1e100.
        price: at least zero.
        floor: [B, A], what mu is at least; sums of less than 1 (default: zero).

    Returns:
        A `Solution` without INFEASIBLE rows; INDIFFERENT ones, all weights zero, hold the cheapest
        actions.
    """
    from scopeval.solver._kernel import price_rows

    w, q = _matrix("weight", weight), _matrix("cost", cost)
    if w.ndim != 2 or w.shape[1] == 0:
        raise InputError(f"weight: got shape {w.shape}, expected [rows, at least one action]")
    if q.shape != w.shape:
        raise InputError(f"cost: got shape {q.shape}, expected weight's shape {w.shape}")
    if not (is_number(price) and 0.0 <= price < np.inf):
        raise InputError(f"price: got {price!r}, expected a number >= 0")
    least = _floors(floor, w)
    mu, status = np.empty_like(w), np.empty(len(w), np.int8)
    multiplier = np.full(len(w), float(price))
    refused = int(price_rows(w, q, float(price), least, mu, status, 0, len(w)))
    if refused >= 0:
        raise InputError(
            f"weight, cost: row {refused} holds {w[refused]} and {q[refused]}, expected weights of "
            "at least zero, and both less than 1e100 in size"
        )
    _fill(mu, multiplier, status, q, None)
    return Solution(mu=mu, multiplier=multiplier, status=status)


def solve(
    weight: ArrayLike,
    cost: ArrayLike,
    budget: ArrayLike,
    *,
    floor: ArrayLike | None = None,
    fallback: ArrayLike | None = None,
    threads: int | None = None,
) -> Solution:
    """Minimize ``sum weight^2 / mu`` with mean cost at most the budget, for each of B rows.

    Args:
        weight: [B, A], at least zero.
        cost: [B, A], any finite numbers.
        budget: [B], or one number for all rows.
        floor: [B, A], what mu is at least; sums of less than 1 (default: zero).
        fallback: [B, A] probabilities to put into the rows that are not SOLVED.
        threads: how many threads may work (default: all cores). The result does not depend on it.

    Returns:
        A `Solution`. Every SOLVED row satisfies ``sum mu cost <= budget + 1e-12 * scale`` with
        scale = the row's largest magnitude of cost and budget.
    """
    from scopeval.solver._kernel import solve_rows

    w = _matrix("weight", weight)
    q = _matrix("cost", cost)
    if w.ndim != 2 or w.shape[1] == 0:
        raise InputError(f"weight: got shape {w.shape}, expected [rows, at least one action]")
    if q.shape != w.shape:
        raise InputError(f"cost: got shape {q.shape}, expected weight's shape {w.shape}")
    delta = _matrix("budget", budget)
    if delta.shape not in ((), (len(w),)):
        raise InputError(f"budget: got shape {delta.shape}, expected ({len(w)},), one per row")
    delta = np.ascontiguousarray(np.broadcast_to(delta, (len(w),)))
    least = _floors(floor, w)

    mu = np.empty_like(w)
    multiplier = np.empty(len(w))
    status = np.empty(len(w), dtype=np.int8)

    def work(start: int, stop: int) -> int:
        return int(solve_rows(w, q, delta, least, mu, multiplier, status, start, stop))

    bad = fan_out_rows(work, len(w), least=ROWS_PER_THREAD, threads=threads)
    if max(bad) >= 0:
        _refuse(next(row for row in bad if row >= 0), w, q, delta)
    _fill(mu, multiplier, status, q, fallback)
    return Solution(mu=mu, multiplier=multiplier, status=status)


def _matrix(name: str, value: ArrayLike) -> Floats:
    try:
        return np.asarray(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: cannot be read as an array of numbers ({error})") from error


def _floors(floor: ArrayLike | None, weight: Floats) -> Floats:
    """The floors [B, A], or [1, A] for all rows."""
    if floor is None:
        return np.zeros((1, weight.shape[1]))
    least = _matrix("floor", floor)
    if least.shape != weight.shape:
        raise InputError(f"floor: got shape {least.shape}, expected weight's shape {weight.shape}")
    wrong = ~((least >= 0.0).all(axis=1) & (least.sum(axis=1) < 1.0))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"floor: row {row} holds {least[row]}, expected a sum of less than 1")
    return least


def _refuse(row: int, weight: Floats, cost: Floats, budget: Floats) -> None:
    """Say what is wrong with a row that the kernel refused."""
    for name, values in (("weight", weight[row]), ("cost", cost[row]), ("budget", budget[[row]])):
        bad = ~np.isfinite(values) | (values < 0 if name == "weight" else False)
        if bad.any():
            place = f"row {row}" + (f", action {int(np.argmax(bad))}" if name != "budget" else "")
            wanted = "finite weights >= 0" if name == "weight" else "finite numbers"
            raise InputError(f"{name}: got {values[bad][0]:.6g} at {place}; expected {wanted}")
    raise InputError(
        f"row {row}: a weight, cost or budget is 1e300 or larger; try scaling them down"
    )


def _fill(
    mu: Floats,
    multiplier: Floats,
    status: NDArray[np.int8],
    cost: Floats,
    fallback: ArrayLike | None,
) -> None:
    """Fill the rows that are not SOLVED."""
    if not status.any():
        return
    indifferent = status == Status.INDIFFERENT
    infeasible = status == Status.INFEASIBLE
    multiplier[indifferent] = 0.0
    multiplier[infeasible] = np.nan
    if fallback is not None:
        other = as_floats("fallback", fallback, ndim=(2,), axes=("row", "action"))
        if other.shape != mu.shape:
            raise InputError(f"fallback: got shape {other.shape}, expected {mu.shape}")
        unsolved = status != Status.SOLVED
        mu[unsolved] = other[unsolved]
    else:
        mu[infeasible] = np.nan
        cheapest = cost[indifferent] == cost[indifferent].min(axis=1, keepdims=True)
        mu[indifferent] = cheapest / cheapest.sum(axis=1, keepdims=True)
