r"""The weight-aware recursion: the least variance for every price of cost, in one backward pass.

W_t = rho_0 ... rho_{t-1} is the weight of an episode so far. With a control variate b, mean value
v, nu = Var(R + gamma v(S') | s, a) and X = (q - b)^2 + nu, a behavior policy mu that may depend on
the whole history has

    variance  Var(v_0(S_0)) + E_mu[ sum_t gamma^{2t} W_t^2 sigma^2_t ]
    sigma^2_t = sum_a pi^2/mu X - (v - bbar)^2
    cost      E_mu[ sum_t gamma^t c_t ]

The weight multiplies the variance and not the cost. So the least variance + lambda * cost is the
optimum of an MDP whose state is (s, W), and what counts of W is u = lambda / W^2, the price of
cost for this episode (gamma^{-t} u in units of step t):

    g_t(s, u) = min_mu  sum_a { pi^2/mu [X + gamma^2 E g_{t+1}(S', u')] + gamma^{-t} u mu c }
                - (v - bbar)^2,                                   u' = u mu^2 / pi^2

In words: an episode whose weight has become small says little about pi, so it may as well be
cheap; one whose weight is large must be precise. Write g = A + gamma^{-t} u B, with A the variance
and B the cost of the minimizer. As a minimum of linear functions g is concave in u, so that its
tangent lies above it, and each repetition of

    minimize  sum_a pi^2/mu [X + gamma^2 E A(u')] + gamma^{-t} u sum_a mu [c + gamma E B(u')]

with u' held at the last mu lowers the objective. That is the priced program of
`scopeval.solver.solve_priced`, with a lower bound for mu. No behavior policy has less variance at
the same cost: the optimum over all histories depends on them through (s, W) only. b = q is the
best control variate: it makes the first part of X zero.

**Cap.** mu >= (W/K) pi keeps the weight at K or below: rho <= K/W. At W = K the behavior policy is
pi itself. mu depends on the past only, so the estimate stays unbiased. The bound is part of the
step and of what follows it; but it depends on W itself, so each lambda needs a pass of its own,
which starts from the pass for all. With the bound g need no longer be concave, and the answer need
not be the optimum: on tiny MDPs it was within 1 % of it for K = 10, and 4 % for K = 3.

The grid has U prices, evenly spaced in log u. Between them A and B are interpolated; beyond its
ends the last point stands for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from scopeval._parallel import fan_out_rows
from scopeval.arrays import Bools, Floats, Ints
from scopeval.exact.model import TabularMDP

__all__ = ["Problem", "Sweep", "pose", "sweep", "visited"]

#: Fewer states than this are not worth a second thread.
STATES_PER_THREAD = 32


class Problem(NamedTuple):
    """What the recursion needs of an MDP, a target and a control variate.

    Attributes:
        mdp: the model.
        pi: target, [T, S, A].
        mean: q - b, [T, S, A].
        noise: nu, [T, S, A].
        spread: Var(v_0(S_0)).
        visited: [T, S] states that an episode can be in, whatever it does.
    """

    mdp: TabularMDP
    pi: Floats
    mean: Floats
    noise: Floats
    spread: float
    visited: Bools


class Sweep(NamedTuple):
    """One backward pass over the grid.

    Attributes:
        prices: u, [U], evenly spaced in their logarithm.
        variance: of one episode's estimate with lambda = u, [U].
        cost: expected cost of one episode, [U].
        mu: [T, S, U, A].
    """

    prices: Floats
    variance: Floats
    cost: Floats
    mu: Floats


def pose(mdp: TabularMDP, pi: Floats, control: Floats) -> Problem:
    """The problem for pi and b, [T, S, A] each."""
    from scopeval.exact.known import known_steps

    mean, noise = np.empty(pi.shape), np.empty(pi.shape)
    for step in known_steps(mdp, pi, lambda *_: [], 0):
        mean[step.t], noise[step.t] = step.estimates.q - control[step.t], step.estimates.noise
    start, v = mdp.initial, step.value
    spread = float(start @ (v - start @ v) ** 2)
    return Problem(mdp, np.ascontiguousarray(pi), mean, noise, spread, visited(mdp))


def visited(mdp: TabularMDP) -> Bools:
    """[T, S] states that an episode can be in, whatever it does."""
    found = np.empty((mdp.horizon, mdp.states), np.bool_)
    here = mdp.initial > 0
    for t in range(mdp.horizon):
        found[t] = here
        here = np.asarray(mdp.transition.T @ np.repeat(here, mdp.actions).astype(float) > 0)
    return found


def sweep(
    problem: Problem,
    prices: Floats,
    share: Floats,
    *,
    repetitions: int,
    tolerance: float,
    start: Floats | None = None,
    threads: int | None = None,
) -> Sweep:
    """Solve for g_t(s, u) and its minimizer, backwards in t.

    Args:
        problem: what to solve.
        prices: [U], evenly spaced in their logarithm.
        share: [U] lower bound of mu in units of pi: the floor, and the cap's W/K.
        repetitions: of the inner program at most.
        tolerance: change of mu at which they end.
        start: mu [T, S, U, A] to begin from; default: pi at the lowest price, and then each
            price begins with what was found for the price below.
        threads: how many may work (default: all cores); the result does not depend on it.
    """
    from scopeval.exact._frontier_kernel import sweep_step

    mdp, pi = problem.mdp, problem.pi
    (T, S, A), U = pi.shape, len(prices)
    mu = np.empty((T, S, U, A))
    found = np.zeros((S, U, 2))  # A and B of the next step
    width = float(np.log(prices[-1] / prices[0])) / (U - 1)
    for t in reversed(range(T)):
        mu[t] = pi[t][:, None] if start is None else start[t]
        ahead = mdp.expect(found.reshape(S, -1)).reshape(S, A, U, 2)
        found = np.zeros((S, U, 2))
        here = np.flatnonzero(problem.visited[t])
        step = partial(
            sweep_step,
            np.array(pi[t]),  # one that may not be written would be compiled for once more
            problem.mean[t],
            problem.noise[t],
            np.ascontiguousarray(mdp.at("cost", t)),
            ahead,
            prices / mdp.gamma**t,
            width,
            mdp.gamma,
            share,
            repetitions,
            tolerance,
            start is None,
            mu[t],
            found,
        )
        fan_out_rows(_part(step, here), len(here), least=STATES_PER_THREAD, threads=threads)
    variance, cost = (mdp.initial @ found.reshape(S, -1)).reshape(U, 2).T
    return Sweep(prices, problem.spread + variance, cost, mu)


def _part(step: Callable[[Ints], None], states: Ints) -> Callable[[int, int], None]:
    """Call step on some of the states; what is found for one of them depends on no other."""
    return lambda start, stop: step(states[start:stop])
