"""The transition tables of Gymnasium's toy-text environments: FrozenLake, CliffWalking, Taxi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats, check_probs
from scopeval.errors import InputError

__all__ = ["ToyText", "TransitionCost", "read_transitions"]

#: Called as cost(state, action, next_state, reward, terminated) for every possible transition.
TransitionCost = Callable[[int, int, int, float, bool], float]


class _Outcome(NamedTuple):
    chance: float
    state: int
    reward: float
    terminated: bool


class ToyText(NamedTuple):
    """Transitions [S*A, S] as CSR, and reward and cost [N] of each of their stored entries."""

    states: int
    actions: int
    initial: Floats
    transition: Any
    reward: Floats
    cost: Floats


def read_transitions(env: Any, cost: TransitionCost, initial: ArrayLike | None = None) -> ToyText:
    """Read ``env.unwrapped.P``: state -> action -> [(chance, next state, reward, terminated)].

    Two outcomes of one (s, a) may lead to the same next state with different rewards (a step and a
    fall that both end at CliffWalking's start), so every outcome is an entry of its own.
    """
    from scipy import sparse

    table = _table(env.unwrapped)
    start = _start(env.unwrapped, initial, len(table))
    S, A = len(table), len(table[0])
    ends = _ends(table, start)
    chances, following, rewards, costs, indptr = [], [], [], [], [0]
    for s in range(S):
        for a in range(A):
            # What the table lists after the end of an episode is no part of the episode.
            cell = [_Outcome(1.0, s, 0.0, True)] if s in ends else table[s][a]
            for chance, after, reward, over in cell:
                chances.append(chance)
                following.append(after)
                rewards.append(reward)
                costs.append(0.0 if s in ends else float(cost(s, a, after, reward, over)))
            indptr.append(len(chances))
    return ToyText(
        states=S,
        actions=A,
        initial=start,
        transition=sparse.csr_array((chances, following, indptr), shape=(S * A, S)),
        reward=np.array(rewards),
        cost=np.array(costs),
    )


def _table(world: Any) -> list[list[list[_Outcome]]]:
    """The possible outcomes of every state and action."""
    try:
        table = world.P
    except AttributeError as error:
        raise InputError(
            f"env: {type(world).__name__} has no transition table P; expected a toy-text "
            "environment such as FrozenLake-v1, or pass arrays to TabularMDP"
        ) from error
    return [
        [
            [
                _Outcome(float(p), int(after), float(r), bool(over))
                for p, after, r, over in table[s][a]
                if p > 0
            ]
            for a in range(len(table[s]))
        ]
        for s in range(len(table))
    ]


def _start(world: Any, initial: ArrayLike | None, states: int) -> Floats:
    if initial is None:
        try:
            initial = world.initial_state_distrib
        except AttributeError as error:
            raise InputError(
                "initial: the environment has no initial_state_distrib; pass initial=[S]"
            ) from error
    start = check_probs("initial", np.asarray(initial))
    if start.shape != (states,):
        raise InputError(f"initial: got shape {start.shape}, expected [S] = ({states},)")
    return start


def _ends(table: list[list[list[_Outcome]]], start: Floats) -> set[int]:
    """The states that end an episode, of those that an episode can come to.

    Taxi lists states that no episode comes to; from there a state may be entered without an end
    that otherwise ends the episode.
    """
    queue = [int(s) for s in np.flatnonzero(start)]
    seen, ends, passed = set(queue), set(), {}
    while queue:
        s = queue.pop()
        for a, cell in enumerate(table[s]):
            for _, after, _, over in cell:
                if over:
                    ends.add(after)
                    continue
                passed[after] = (s, a)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
    both = sorted(ends & passed.keys())
    if both:
        s, a = passed[both[0]]
        raise InputError(
            f"env: state {both[0]} ends an episode in some transitions and not at s={s}, a={a}; "
            "expected states that always end it or never do"
        )
    return ends
