r"""The world that rows of state numbers show, as a `TabularMDP`, and values in it.

A pair that was seen has the mean of its rows. One that was never seen is like the mean of the
state's other actions, and a state that was never left like the states that lead to it; one that
was never entered either is absorbing, without reward.

Several such worlds side by side are one MDP whose states are those of all of them, so that one
recursion has the values of all: `CountedParts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.models.rows import Rows

__all__ = ["CountedParts", "learned_model", "value_tables"]


def value_tables(mdp: TabularMDP, name: str, pi: Floats) -> tuple[Floats, Floats]:
    """Q [T, S, A] and v [T + 1, S] of a policy's rewards, or costs, in a known model."""
    T, S, A = pi.shape
    q, v = np.zeros((T, S, A)), np.zeros((T + 1, S))
    for t in reversed(range(T)):
        q[t] = mdp.at(name, t) + mdp.gamma * mdp.expect(v[t + 1])
        v[t] = np.einsum("sa,sa->s", pi[t], q[t])
    return q, v


def learned_model(rows: Rows, states: int, actions: int, horizon: int, gamma: float) -> TabularMDP:
    """The MDP that logged rows show: counts, mean rewards and costs.

    Args:
        rows: of the log, which may stand for several each.
        states: number of states; the MDP has one more, where episodes are that are over.
        actions: number of actions.
        horizon: T.
        gamma: discount.
    """
    from scipy import sparse

    S, A, over, weight = states, actions, states, rows.weight
    pair = rows.obs * A + rows.action
    count = np.bincount(pair, weight, S * A)
    seen = count > 0
    n = np.where(seen, count, 1.0)
    reward = np.bincount(pair, weight * rows.reward, S * A) / n
    away = rows.reward_noise + (rows.reward - reward[pair]) ** 2
    square = np.bincount(pair, weight * away, S * A)
    pooled = float(square.sum() / max(weight.sum() - seen.sum(), 1))
    noise = (square + 2.0 * pooled) / (n + 1.0)  # as `models.table`: two rows of average noise
    cost = np.bincount(pair, weight * rows.cost, S * A) / n
    following = np.where(rows.alive > 0, rows.next_obs, over)
    moves = sparse.csr_array(
        sparse.coo_array((weight / n[pair], (pair, following)), shape=(S * A, S + 1))
    )
    guess, never = _guesses(rows, seen.reshape(S, A))
    leave = sparse.csr_array(
        (np.ones(len(never)), (never, np.full(len(never), over))), shape=(S * A, S + 1)
    )
    moves = moves + guess @ moves + leave
    reward, cost = reward + guess @ reward, cost + guess @ cost
    noise[np.diff(guess.indptr) > 0] = pooled
    last = sparse.csr_array((np.ones(A), (np.arange(A), np.full(A, over))), shape=(A, S + 1))
    first = rows.t == 0
    initial = np.bincount(rows.obs[first], weight[first], S + 1)
    if not initial.any():
        initial = np.bincount(rows.obs, weight, S + 1)

    def whole(column: Floats) -> Floats:
        return np.append(column, np.zeros(A)).reshape(S + 1, A)

    return TabularMDP(
        initial / initial.sum(),
        sparse.csr_array(sparse.vstack([moves, last])),
        whole(reward),
        whole(cost),
        horizon,
        gamma=gamma,
        reward_variance=whole(noise),
    )


def _guesses(rows: Rows, seen: Any) -> tuple[Any, Ints]:
    """How pairs never seen follow from seen ones, and pairs of which nothing is known.

    Args:
        rows: as of `learned_model`.
        seen: [S, A].

    Returns:
        A sparse matrix [S*A, S*A], the rows of unseen pairs are weights that sum to 1; and pairs.
    """
    from scipy import sparse

    S, A = seen.shape
    many = seen.sum(axis=1)
    usual = seen / np.maximum(many, 1)[:, None]  # [S, A] weights of the mean of a state's actions
    like = np.flatnonzero(~seen & (many > 0)[:, None])
    into = np.flatnonzero((rows.alive > 0) & (many[rows.next_obs] == 0))
    lost, before, weight = rows.next_obs[into], rows.obs[into], rows.weight[into]
    weight = weight / np.bincount(lost, weight, S)[lost]
    # of the state of a pair, and of every state that leads to it
    pair = np.concatenate([like, (lost[:, None] * A + np.arange(A)).ravel()])
    state = np.concatenate([like // A, np.repeat(before, A)])
    share = np.concatenate([np.ones(len(like)), np.repeat(weight, A)])
    entries = (
        (share[:, None] * usual[state]).ravel(),
        (np.repeat(pair, A), (state[:, None] * A + np.arange(A)).ravel()),
    )
    guess = sparse.csr_array(sparse.coo_array(entries, shape=(S * A, S * A)))
    guess.eliminate_zeros()
    return guess, np.flatnonzero(~seen.ravel() & (np.diff(guess.indptr) == 0))


@dataclass(frozen=True)
class CountedParts:
    """Parts of logs, counted once, of which several worlds are made side by side.

    Equal rows are one with their mean reward and cost; how much these differ is not kept.

    Attributes:
        states: of one world.
        actions: that occur.
        kinds: [kinds] what rows are there, by number.
        sums: number of rows, rewards and costs, [3, parts, kinds].
    """

    states: int
    actions: int
    kinds: Ints
    sums: Floats

    @classmethod
    def of(cls, parts: Sequence[Transitions], states: int) -> CountedParts:
        """Those rows whose next state is known."""
        parts = [part.select(part.has_next) for part in parts]
        log = Transitions.concat(parts)
        alive = (~log.terminated).astype(np.int64)
        A = 1 + int(log.action.max())
        code = ((log.obs * A + log.action) * states + log.next_obs) * 2 + alive
        kinds, kind = np.unique(code, return_inverse=True)
        of = np.repeat(np.arange(len(parts)), [len(part) for part in parts]) * len(kinds) + kind
        size = len(parts) * len(kinds)
        sums = [np.bincount(of, column, size) for column in (None, log.reward, log.cost)]
        each = np.asarray(sums, np.float64).reshape(3, len(parts), len(kinds))
        return cls(states, A, np.asarray(kinds, np.int64), each)

    def worlds(self, fits: Sequence[Sequence[int]]) -> Rows:
        """Rows of several worlds: the states of world e begin at e * `states`.

        Args:
            fits: numbers of the parts that show each world.
        """
        member = np.zeros((len(fits), self.sums.shape[1]))
        for e, fit in enumerate(fits):
            member[e, list(fit)] = 1.0
        count, reward, cost = member @ self.sums
        world, place = np.nonzero(count)
        weight = count[world, place]
        pair, after = np.divmod(self.kinds[place] // 2, self.states)
        zeros = np.zeros(len(place))
        return Rows(
            t=np.zeros(len(place), np.int64),
            obs=world * self.states + pair // self.actions,
            action=pair % self.actions,
            reward=reward[world, place] / weight,
            reward_noise=zeros,
            cost=cost[world, place] / weight,
            cost_noise=zeros,
            next_obs=world * self.states + after,
            alive=(self.kinds[place] % 2).astype(np.float64),
            weight=weight,
            borrowed=zeros > 0,
            has_next=np.ones(len(place), np.bool_),
        )
