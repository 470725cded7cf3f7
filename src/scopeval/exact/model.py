"""Finite MDPs with costs and a fixed horizon, as tables."""

from __future__ import annotations

from collections.abc import Sequence
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
from scopeval.behavior.methods import Method
from scopeval.errors import InputError
from scopeval.exact.toy_text import TransitionCost, read_transitions
from scopeval.question.baseline import Baseline
from scopeval.question.promise import Promise
from scopeval.question.question import Question

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
        next_reward: a reward that depends on the next state too; it is added to `reward`. One of

            - [S, A, S] or [T, S, A, S] dense;
            - a scipy sparse matrix [S*A, S], or T of them in a list;
            - [N] or [T, N]: one number for each of the N stored entries of `transition`, which
              is then a CSR matrix and is taken as it is. A row may name a next state twice, for
              two ways to come there with different rewards.

            Numbers at transitions of probability zero are ignored.
        next_cost: likewise, added to `cost`. No possible transition may cost less than 0.

    Attributes:
        reward: the mean reward given (s, a), with the mean of `next_reward` in it.
        cost: likewise.
        next_reward: [1 or T, N] what the next state adds to that mean, for each stored entry of
            `transition`; None if the reward does not depend on the next state.
        next_cost: likewise.
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
        next_reward: Any = None,
        next_cost: Any = None,
    ) -> None:
        self.horizon = check_whole("horizon", horizon, 1, " of steps")
        if not (is_number(gamma) and 0.0 < gamma <= 1.0):
            raise InputError(f"gamma: got {gamma!r}, expected a discount in (0, 1]")
        self.gamma = float(gamma)
        self.initial = check_probs("initial", initial)
        if self.initial.ndim != 1:
            raise InputError(f"initial: got shape {self.initial.shape}, expected [S]")
        axes = ("t", "s", "a")
        self.reward = as_floats("reward", reward, axes=axes)
        self._check_table("reward", self.reward)
        self.states, self.actions = (int(n) for n in self.reward.shape[-2:])
        if len(self.initial) != self.states:
            raise InputError(
                f"initial: got {len(self.initial)} states, reward has {self.states}; "
                "expected the same number"
            )
        self.cost = check_cost("cost", cost, axes=axes)
        self._check_table("cost", self.cost)
        self.reward_variance = np.zeros((self.states, self.actions))
        if reward_variance is not None:
            self.reward_variance = check_cost("reward_variance", reward_variance, axes=axes)
            self._check_table("reward_variance", self.reward_variance)
        stored = any(_by_entry(table) for table in (next_reward, next_cost))
        self.transition = self._matrix(transition, stored)
        self.next_reward, self.reward = self._center("next_reward", next_reward, self.reward)
        self.next_cost, self.cost = self._center("next_cost", next_cost, self.cost)
        self._check_next_cost()

    @classmethod
    def from_gymnasium(
        cls,
        env: Any,
        horizon: int,
        *,
        cost: TransitionCost,
        gamma: float = 1.0,
        initial: ArrayLike | None = None,
    ) -> TabularMDP:
        """The model of a Gymnasium toy-text environment, from its transition table `P`.

        Args:
            env: such as ``gymnasium.make("FrozenLake-v1")``.
            horizon: number of steps T; the environment's own time limit is not used.
            cost: called as ``cost(state, action, next_state, reward, terminated)`` for every
                possible transition, at least 0.
            gamma: discount in (0, 1].
            initial: [S] distribution of the first state; default: the environment's
                ``initial_state_distrib``.

        A state that is entered with ``terminated`` is absorbing, at no reward and no cost. State
        numbers are the environment's.
        """
        found = read_transitions(env, cost, initial)
        nothing = np.zeros((found.states, found.actions))
        return cls(
            found.initial,
            found.transition,
            nothing,
            nothing,
            horizon,
            gamma=gamma,
            next_reward=found.reward,
            next_cost=found.cost,
        )

    # -- checks ------------------------------------------------------------------------------

    def _check_table(self, name: str, table: Floats) -> None:
        if table.ndim not in (2, 3) or 0 in table.shape:
            raise InputError(f"{name}: got shape {table.shape}, expected [S, A] or [T, S, A]")
        known = self.reward.shape[-2:]
        if table.shape[-2:] != known:
            raise InputError(f"{name}: got [S, A] = {table.shape[-2:]}, expected reward's {known}")
        if table.ndim == 3 and table.shape[0] != self.horizon:
            raise InputError(
                f"{name}: got {table.shape[0]} time steps, expected the horizon {self.horizon}"
            )

    def _matrix(self, transition: Any, stored: bool) -> Any:
        """P as a CSR matrix [S*A, S] with rows that sum to one; `stored`: keep its entries."""
        from scipy import sparse

        S, A = self.states, self.actions
        if stored and not (sparse.issparse(transition) and transition.format == "csr"):
            raise InputError(
                f"transition: got {type(transition).__name__}, expected a scipy CSR matrix: "
                "next_reward or next_cost has one number for each of its stored entries"
            )
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
        if stored:  # the product below would add up entries that name the same next state
            each = np.repeat(1.0 / total, np.diff(p.indptr))
            return sparse.csr_array((p.data * each, p.indices, p.indptr), shape=p.shape)
        return sparse.csr_array(p.multiply(1.0 / total[:, None]))

    def _center(self, name: str, given: Any, table: Floats) -> tuple[Floats | None, Floats]:
        """What the next state adds to the mean [1 or T, N], and the table with the mean in it."""
        if given is None:
            return None, table
        p = self.transition
        entries = self._entries(name, given)
        mean = np.add.reduceat(p.data * entries, p.indptr[:-1], axis=1)
        entries = np.where(p.data > 0, entries - np.repeat(mean, np.diff(p.indptr), axis=1), 0.0)
        mean = mean.reshape(-1, self.states, self.actions)
        return entries, table + (mean if len(mean) > 1 else mean[0])

    def _entries(self, name: str, given: Any) -> Floats:
        """`next_reward` or `next_cost` in any of its forms as [1 or T, N]."""
        from scipy import sparse

        p, S, A = self.transition, self.states, self.actions
        rows = np.repeat(np.arange(S * A), np.diff(p.indptr))
        if sparse.issparse(given):
            given = [given]
        if isinstance(given, Sequence) and any(sparse.issparse(x) for x in given):
            wrong = next((x.shape for x in given if x.shape != (S * A, S)), None)
            if wrong is not None:
                raise InputError(f"{name}: got shape {wrong}, expected [S*A, S] = {(S * A, S)}")
            picked = [np.asarray(sparse.csr_array(x)[rows, p.indices]).ravel() for x in given]
            entries = as_floats(name, np.stack(picked), axes=("t", "entry"))
        else:
            array = as_floats(name, given, axes=("t", "s", "a", "s'"))
            if array.ndim in (1, 2):
                entries = np.atleast_2d(array)
            elif array.shape[-3:] == (S, A, S) and array.ndim in (3, 4):
                entries = array.reshape(-1, S * A, S)[:, rows, p.indices]
            else:
                entries = np.empty((0, 0))
            if entries.shape[1:] != (p.nnz,):
                raise InputError(
                    f"{name}: got shape {array.shape}, expected [S, A, S] = {(S, A, S)} or one "
                    f"number for each of the {p.nnz} entries of transition, with or without time "
                    "in front"
                )
        if len(entries) not in (1, self.horizon):
            raise InputError(
                f"{name}: got {len(entries)} time steps, expected the horizon {self.horizon}"
            )
        return entries

    def _check_next_cost(self) -> None:
        if self.next_cost is None:
            return
        p = self.transition
        mean = self.cost.reshape(-1, self.states * self.actions)
        total = np.repeat(mean, np.diff(p.indptr), axis=1) + self.next_cost
        bad = (total < -1e-12 * (1.0 + np.abs(mean).max())) & (p.data > 0)
        if bad.any():
            entry = int(np.argmax(bad.any(axis=0)))
            s, a = divmod(int(np.searchsorted(p.indptr, entry, side="right")) - 1, self.actions)
            raise InputError(
                f"next_cost: cost and next_cost add up to {total[:, entry].min():.6g} at s={s}, "
                f"a={a}, s'={p.indices[entry]}; expected costs >= 0"
            )

    # -- expectations --------------------------------------------------------------------------

    def expect(self, value: Floats) -> Floats:
        """E[value(S') | s, a]: [S, A] for value [S], [S, A, n] for value [S, n]."""
        ahead = np.asarray(self.transition @ value)
        return ahead.reshape(self.states, self.actions, *value.shape[1:])

    def spread(self, value: Floats, added: Floats | None = None) -> Floats:
        """Var[value(S') | s, a] as [S, A], by deviations: a large mean takes no digits away.

        Variances that rounding explains (a standard deviation of 1e-13 of the values) are zero.

        Args:
            value: [S].
            added: [N], one number for each stored entry of `transition`, added to value(S').
        """
        p = self.transition
        ahead = np.asarray(p @ value)
        landed = value[p.indices]
        if added is not None:
            ahead = ahead + np.add.reduceat(p.data * added, p.indptr[:-1])
            landed = landed + added
        gap = landed - np.repeat(ahead, np.diff(p.indptr))
        square = np.add.reduceat(p.data * gap**2, p.indptr[:-1])
        square[square <= 1e-26 * ahead**2] = 0.0
        return np.asarray(square).reshape(self.states, self.actions)

    def at(self, name: str, t: int) -> Floats:
        """The table `reward`, `cost` or `reward_variance` at time t, [S, A]."""
        tables = {
            "reward": self.reward,
            "cost": self.cost,
            "reward_variance": self.reward_variance,
        }
        table = tables[name]
        return table[t] if table.ndim == 3 else table

    def next_reward_at(self, t: int) -> Floats | None:
        """What the next state adds to the mean reward at time t, [N]; None for nothing."""
        return None if self.next_reward is None else self.next_reward[t % len(self.next_reward)]

    # -- other MDPs of the same dynamics -------------------------------------------------------

    def shortened(self, horizon: int) -> TabularMDP:
        """The first steps of this MDP."""

        def first(table: Floats) -> Floats:
            return table[:horizon] if table.ndim == 3 else table

        return TabularMDP(
            self.initial,
            self.transition,
            first(self.reward),
            first(self.cost),
            horizon,
            gamma=self.gamma,
            reward_variance=first(self.reward_variance),
            next_reward=None if self.next_reward is None else self.next_reward[:horizon],
            next_cost=None if self.next_cost is None else self.next_cost[:horizon],
        )

    def without_cost(self) -> TabularMDP:
        """This MDP with all costs zero."""
        return TabularMDP(
            self.initial,
            self.transition,
            self.reward,
            np.zeros((self.states, self.actions)),
            self.horizon,
            gamma=self.gamma,
            reward_variance=self.reward_variance,
            next_reward=self.next_reward,
        )

    def with_reward(self, reward: ArrayLike, *, gamma: float | None = None) -> TabularMDP:
        """This MDP with another reward, certain given (s, a): [S, A] or [T, S, A]."""
        return TabularMDP(
            self.initial,
            self.transition,
            reward,
            self.cost,
            self.horizon,
            gamma=self.gamma if gamma is None else gamma,
            next_cost=self.next_cost,
        )

    # -- designs -------------------------------------------------------------------------------

    def design_for(
        self, asked: Question, method: Method, promise: Promise, baseline: Baseline | None
    ) -> Any:
        """The optimal behavior policy, for `scopeval.design`."""
        from scopeval.exact.assessment import assess
        from scopeval.exact.curve import frontier
        from scopeval.exact.optimum import optimal

        mdp: TabularMDP = self._asked(asked)
        target: Any = asked.policy
        at_most, limit, per = promise.at_most, promise.limit, promise.per
        other = promise.of if baseline is None or promise.of is not None else baseline.policy
        if limit is not None and per == "state":
            return optimal(mdp, target, method, constraint=method.constraint, limit=limit)
        if limit is not None or other not in (None, "target"):
            own = assess(mdp, target, target).cost
            theirs = assess(mdp, other, other).cost if limit is None else limit
            at_most, per = at_most * theirs / own, "episode"
        if at_most < 1.0:
            control = "q" if method.control_variate else "none"
            return frontier(mdp, target, control_variate=control).at(cost=at_most)
        return optimal(
            mdp,
            target,
            method,
            round(at_most - 1.0, 12),
            constraint=method.constraint,
            budget=per or "state",
        )

    def frontier_for(self, asked: Question, method: Method, **settings: Any) -> Any:
        """The least variance at every cost, for `scopeval.frontier`."""
        from scopeval.exact.curve import frontier

        stated = {name: value for name, value in settings.items() if value is not None}
        control = "q" if method.control_variate else "none"
        target: Any = asked.policy
        return frontier(self._asked(asked), target, control_variate=control, **stated)

    def _asked(self, asked: Question) -> TabularMDP:
        """This model over the horizon that is asked for."""
        return self if asked.horizon in (None, self.horizon) else self.shortened(asked.horizon)

    def __repr__(self) -> str:
        return f"TabularMDP(states={self.states}, actions={self.actions}, horizon={self.horizon})"


def _by_entry(table: Any) -> bool:
    """Whether a table has one number for each stored entry of the transition matrix."""
    from scipy import sparse

    if table is None or sparse.issparse(table):
        return False
    if isinstance(table, Sequence) and any(sparse.issparse(x) for x in table):
        return False
    return np.ndim(table) in (1, 2)
