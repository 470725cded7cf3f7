"""Behavior policies that depend on the weight of the episode, as tables: to assess and to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Floats, Ints, as_floats, check_probs, check_whole, is_number
from scopeval.behavior.weighted_step import PriceGrid
from scopeval.errors import InputError
from scopeval.exact.assessment import assess
from scopeval.exact.known import sweep_prices, visited
from scopeval.exact.model import TabularMDP
from scopeval.exact.tables import AnyPolicy, check_horizon, control_table, policy_table
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    EpisodeState,
    Observations,
    Time,
    Weighing,
    largest_weight,
)

if TYPE_CHECKING:
    from scopeval.models.protocols import Estimates

__all__ = ["Point", "WeightedDesign", "tabulate"]

#: Smallest weight of a table, and the largest for behavior policies without a cap.
SMALLEST, USUAL_CAP = 1e-4, 1e2
#: Numbers in a table at most.
LARGEST = 200_000_000


@dataclass(frozen=True)
class Point:
    """A point of a frontier.

    Attributes:
        price: lambda, of cost in units of variance.
        variance: of one episode's estimate, as the recursion predicts it.
        cost: expected cost of one episode, likewise.
        relative_variance: variance over that of running the target policy (plain returns).
        relative_cost: cost over that of the target policy.
    """

    price: float
    variance: float
    cost: float
    relative_variance: float
    relative_cost: float


class WeightedDesign:
    """A behavior policy mu_t(a | s, W), by tables on a grid of prices.

    An episode of weight W has the price u = price / (gamma^t W^2). Between two prices of the grid
    the tables are mixed linearly, so that mu is a distribution that covers the target wherever they
    are; then mu >= max(floor, W/cap) pi is enforced. So the weight never exceeds the cap.

    Attributes:
        predicted: the `Point` of the frontier that this is.
        prices: u, [U].
        mu: [T, S, U, A].
        target: pi, [T, S, A].
        control: b [T, S, A], or None for b = 0.
        floor: least share of the target.
        cap: largest weight; infinite for none.
        grid: place of an episode's price on the grid of prices at weight 1 and t = 0, width of the
            grid in log price, and how many places a time step of discount is.
    """

    def __init__(
        self,
        predicted: Point,
        prices: Floats,
        mu: Floats,
        target: Floats,
        control: Floats | None,
        *,
        floor: float,
        cap: float,
        gamma: float,
    ) -> None:
        self.predicted = predicted
        self.prices = prices
        self.mu = mu
        self.target = target
        self.control = control
        self.floor = floor
        self.cap = cap
        width = float(np.log(prices[-1] / prices[0])) / (len(prices) - 1)
        origin = float(np.log(predicted.price / prices[0])) / width
        self.grid = (origin, width, -float(np.log(gamma)) / width)

    #: It depends on the weight of the episode so far.
    weighted = True

    @property
    def largest_weight(self) -> float:
        """No weight within an episode exceeds it; inf: there is no limit."""
        return self.cap

    @property
    def holes(self) -> int:
        """Entries of the tables that are 0 where the target's are not, if nothing bounds them."""
        if self.floor > 0.0 or self.cap < np.inf:
            return 0
        return int(((self.mu == 0.0) & (self.target > 0.0)[:, :, None]).sum())

    def weigh(
        self,
        offered: Candidates,
        obs: Observations,
        t: Time,
        state: EpisodeState | None = None,
    ) -> Weighing:
        """Mu over the offered actions at the weights of the episodes, and the control variate.

        Args:
            offered: what the target offers, all of its actions.
            obs: state numbers [B].
            t: time steps.
            state: of the episodes so far.

        Raises:
            InputError: there is no state.
        """
        from scopeval.exact._weighted_kernel import weigh_rows

        if state is None:
            raise InputError(
                "weigh: this behavior policy depends on the weight of the episode so far; use "
                "weigh(offered, obs, t, EpisodeState.of_weights(w))"
            )
        states, times, weights = self._rows(offered, obs, t, state.weight)
        pi = np.ascontiguousarray(offered.probs)
        mu = np.empty_like(pi)
        weigh_rows(self.mu, times, states, weights, pi, self.grid, self.floor, self.cap, mu)
        return Weighing(mu, None if self.control is None else self.control[times, states])

    def at_prices(self, prices: Floats, t: int, states: Ints) -> Floats:
        """Mu at time t in these states for episodes of these prices u, [U, B, A]."""
        A, shape = self.target.shape[2], (len(prices), len(states))
        gamma = np.exp(-self.grid[2] * self.grid[1])
        weight = np.sqrt(self.predicted.price / (gamma**t * prices))
        every = np.tile(states, len(prices))
        offered = Candidates(np.broadcast_to(np.arange(A), (len(every), A)), self.target[t, every])
        state = EpisodeState.of_weights(np.repeat(weight, len(states)))
        return self.weigh(offered, every, t, state).probs.reshape(*shape, A)

    def table_at(self, weight: float) -> Floats:
        """Mu [T, S, A] for episodes of one weight."""
        T, S, A = self.target.shape
        every = np.arange(S)
        actions = np.broadcast_to(np.arange(A), (S, A))
        state = EpisodeState.of_weights(np.full(S, weight))
        return np.stack(
            [
                self.weigh(Candidates(actions, self.target[t]), every, t, state).probs
                for t in range(T)
            ]
        )

    def _rows(
        self, offered: Candidates, obs: Observations, t: Time, weight: ArrayLike
    ) -> tuple[Ints, Ints, Floats]:
        T, S, A = self.target.shape
        rows = len(offered.probs)
        if offered.probs.shape[1] != A:
            raise InputError(f"target: offers {offered.probs.shape[1]} actions, the design has {A}")
        numbers = {"state": (np.asarray(obs), S), "time": (np.asarray(t), T)}
        for name, (array, end) in numbers.items():
            bad = (array < 0) | (array >= end)
            if bad.any():
                raise InputError(f"{name}: got {array[bad].flat[0]}, expected 0..{end - 1}")
        weights = as_floats("weight", weight)
        if (weights < 0).any():
            raise InputError(f"weight: got {weights.min():.6g}, expected numbers >= 0")
        states, times, weights = (
            np.ascontiguousarray(np.broadcast_to(x, (rows,))) for x in (obs, t, weights)
        )
        return states.astype(np.int64), times.astype(np.int64), weights

    def __repr__(self) -> str:
        p = self.predicted
        return (
            f"WeightedDesign(relative variance {p.relative_variance:.3f}, "
            f"relative cost {p.relative_cost:.3f}, price {p.price:.3g}, cap {self.cap:g})"
        )


def tabulate(
    mdp: TabularMDP,
    target: AnyPolicy,
    behavior: Behavior,
    *,
    points: int = 60,
    weights: tuple[float, float] | None = None,
) -> WeightedDesign:
    """Any weight-aware behavior policy on a grid of weights, and what it is worth.

    The sweep of `scopeval.exact.frontier` with mu given: `predicted` holds the variance
    and the cost of running the behavior policy, up to the interpolation between weights, and
    `scopeval.simulate` can run the table.

    Args:
        mdp: the model.
        target: pi.
        behavior: such as a `BehaviorPolicy` of a learned frontier.
        points: number of weights, evenly spaced in their logarithm; one of them is 1.
        weights: smallest and largest; beyond them the end of the grid stands for all. Default: from
            1e-4 to the cap of the behavior policy, or to 100 if it has none.

    Raises:
        InputError: the table would be too large; run such a behavior in `TabularEnv(mdp)`.
    """
    many = check_whole("points", points, 4, " of weights")
    low, high = (SMALLEST, _cap(behavior)) if weights is None else weights
    if not (is_number(low) and is_number(high) and 0.0 < low < 1.0 < high):
        raise InputError(f"weights: got {weights!r}, expected smallest < 1 < largest")
    pi = policy_table(mdp, "target", target)
    own = assess(mdp, pi, pi, None)
    if pi.size * many > LARGEST:
        raise InputError(
            f"behavior: a table for {pi.size:,} actions of all states and steps at {many} weights "
            f"is too large, expected at most {LARGEST:,} numbers; try env=TabularEnv(mdp)"
        )
    cells = np.log(high) * (many - 1) / np.log(high / low)
    k = int(np.clip(round(cells), 1, many - 2))  # from the largest weight, exactly, to 1
    grid = np.exp(np.log(high) / k * (k - np.arange(many)))
    check_horizon(mdp, behavior)
    mu, control = _tables(mdp, pi, behavior, grid)
    prices = PriceGrid(high**-2.0, high ** (2.0 / k), many)

    def looked_up(t: int, here: Ints, _: Estimates) -> Floats:
        return np.array(mu[t, here].transpose(1, 0, 2), order="C")

    swept = sweep_prices(mdp, pi, control_table(mdp, control), prices, looked_up)
    variance, cost = (float(x[k]) for x in swept)
    point = Point(1.0, variance, cost, variance / (own.variance or 1.0), cost / (own.cost or 1.0))
    return WeightedDesign(
        point, prices.prices, mu, pi, control, floor=0.0, cap=np.inf, gamma=mdp.gamma
    )


def _cap(behavior: Behavior) -> float:
    """The largest weight, where the behavior policy becomes the target."""
    cap = largest_weight(behavior)
    return cap if 1.0 < cap < np.inf else USUAL_CAP


def _tables(
    mdp: TabularMDP, pi: Floats, behavior: Behavior, weights: Floats
) -> tuple[Floats, Floats | None]:
    """Mu [T, S, U, A] and b [T, S, A] or None; mu is pi where no episode can be."""
    _, S, A = pi.shape
    every, actions = np.arange(S), np.arange(A)
    mu, controls = np.repeat(pi[:, :, None], len(weights), axis=2), []
    for t, states in enumerate(visited(mdp)):
        here = np.flatnonzero(states)
        rows = np.repeat(here, len(weights))
        offered = Candidates(np.broadcast_to(actions, (len(rows), A)), pi[t, rows])
        now = weights * mdp.gamma ** (-0.5 * t)  # of the prices on the grid
        state = EpisodeState.of_weights(np.tile(now, len(here)))
        weighed = behavior.weigh(offered, rows, t, state)
        probs = check_probs("behavior", weighed.probs, axes=("s",))
        mu[t, here] = probs.reshape(len(here), len(weights), A)
        if weighed.control is not None:
            offered = Candidates(np.broadcast_to(actions, (S, A)), pi[t])
            whole = behavior.weigh(offered, every, t, EpisodeState.start(S, 1)).control
            controls.append(np.zeros((S, A)) if whole is None else whole)
    return mu, np.stack(controls) if controls else None
