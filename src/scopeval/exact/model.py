"""Finite MDPs with costs and a fixed horizon, as tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import (
    Floats,
    as_floats,
    check_cost,
    check_probs,
    check_whole,
    is_number,
    where_first,
)
from scopeval.errors import InputError

__all__ = ["TabularMDP"]


class TabularMDP:
    """A finite MDP with costs and a fixed horizon.

    Early termination is an absorbing state with zero reward and cost.

    Args:
        initial: [S] distribution of the first state.
        transition: [S, A, S] dense, or a scipy sparse matrix [S*A, S] whose row s*A + a holds
            p(. | s, a).
        reward: [S, A], or [T, S, A] when it depends on time: the mean reward.
        cost: same shapes, at least 0.
        horizon: number of steps T.
        gamma: discount in (0, 1], of rewards and costs alike.
        reward_variance: [S, A] or [T, S, A]: variance of the reward given (s, a), independent of
            the next state given (s, a). Default 0.
    """

    def __init__(
        self,
        initial: ArrayLike,
        transition: Any,
        reward: ArrayLike,
        cost: ArrayLike,
        horizon: int,
        *,
        gamma: float = 1.0,
        reward_variance: ArrayLike | None = None,
    ) -> None:
        self.horizon = check_whole("horizon", horizon, 1, " of steps")
        if not (is_number(gamma) and 0.0 < gamma <= 1.0):
            raise InputError(f"gamma: got {gamma!r}, expected a discount in (0, 1]")
        self.gamma = float(gamma)
        self.initial = check_probs("initial", initial)
        if self.initial.ndim != 1:
            raise InputError(f"initial: got shape {self.initial.shape}, expected [S]")
        axes = ("t", "s", "a")
        self.reward = self._table("reward", as_floats("reward", reward, axes=axes))
        self.states, self.actions = (int(n) for n in self.reward.shape[-2:])
        if len(self.initial) != self.states:
            raise InputError(
                f"initial: got {len(self.initial)} states, reward has {self.states}; "
                "expected the same number"
            )
        self.cost = self._table("cost", check_cost("cost", cost, axes=axes))
        self.reward_variance = (
            np.zeros((self.states, self.actions))
            if reward_variance is None
            else self._table(
                "reward_variance", check_cost("reward_variance", reward_variance, axes=axes)
            )
        )
        self.transition = self._matrix(transition)

    def _table(self, name: str, table: Floats) -> Floats:
        if table.ndim not in (2, 3) or 0 in table.shape:
            raise InputError(f"{name}: got shape {table.shape}, expected [S, A] or [T, S, A]")
        known = getattr(self, "reward", table)
        if table.shape[-2:] != known.shape[-2:]:
            raise InputError(
                f"{name}: got [S, A] = {table.shape[-2:]}, expected reward's {known.shape[-2:]}"
            )
        if table.ndim == 3 and table.shape[0] != self.horizon:
            raise InputError(
                f"{name}: got {table.shape[0]} time steps, expected the horizon {self.horizon}"
            )
        return table

    def _matrix(self, transition: Any) -> Any:
        """P as a sparse [S*A, S] matrix with rows that sum to one."""
        from scipy import sparse

        S, A = self.states, self.actions
        if sparse.issparse(transition):
            p = sparse.csr_array(transition, dtype=np.float64)
        else:
            dense = as_floats("transition", transition, axes=("s", "a", "s'"))
            if dense.ndim == 3:
                if dense.shape != (S, A, S):
                    raise InputError(
                        f"transition: got shape {dense.shape}, expected [S, A, S] = {(S, A, S)}"
                    )
                dense = dense.reshape(S * A, S)
            p = sparse.csr_array(dense)
        if p.shape != (S * A, S):
            raise InputError(f"transition: got shape {p.shape}, expected [S*A, S] = {(S * A, S)}")
        bad = ~(np.isfinite(p.data) & (p.data >= 0))
        if bad.any():
            entry = int(np.argmax(bad))
            s, a = divmod(int(np.searchsorted(p.indptr, entry, side="right")) - 1, A)
            raise InputError(
                f"transition: probability {p.data[entry]:.6g} at s={s}, a={a}, "
                f"s'={p.indices[entry]}; expected finite numbers >= 0"
            )
        total = np.asarray(p.sum(axis=1)).ravel()
        bad = np.abs(total - 1.0) > 1e-8
        if bad.any():
            place = where_first(bad.reshape(S, A), ("s", "a"))
            raise InputError(
                f"transition: probabilities sum to {total[bad][0]:.6g} {place}; expected 1"
            )
        return sparse.csr_array(p.multiply(1.0 / total[:, None]))

    def expect(self, value: Floats) -> Floats:
        """E[value(S') | s, a] as [S, A], for value [S]."""
        return np.asarray(self.transition @ value).reshape(self.states, self.actions)

    def spread(self, value: Floats) -> Floats:
        """Var[value(S') | s, a] as [S, A], by deviations: a large mean takes no digits away.

        Spreads that rounding explains (a standard deviation of 1e-13 of the values) are zero.
        """
        p = self.transition
        ahead = np.asarray(p @ value)
        gap = value[p.indices] - np.repeat(ahead, np.diff(p.indptr))
        square = np.add.reduceat(p.data * gap**2, p.indptr[:-1])
        square[square <= 1e-26 * ahead**2] = 0.0
        return np.asarray(square).reshape(self.states, self.actions)

    def at(self, name: str, t: int) -> Floats:
        """The table `reward`, `cost` or `reward_variance` at time t, [S, A]."""
        table: Floats = getattr(self, name)
        return table[t] if table.ndim == 3 else table

    def __repr__(self) -> str:
        return f"TabularMDP(states={self.states}, actions={self.actions}, horizon={self.horizon})"
