"""Gymnasium's finite environments as exact models, with target policies and loggers of their own.

No threshold or default of scopeval was tuned on these environments. Each has a cost of its own:

- ``FrozenLake``: the 8 x 8 lake, slippery; a fall into a hole costs 1;
- ``CliffWalking``: slippery; a fall off the cliff costs 1;
- ``Taxi``: a pick-up or drop-off in a wrong place costs 1;
- ``Blackjack``: going bust costs 1.

A policy takes a uniformly random action with probability `slip`, else one with a probability
proportional to exp(beta advantage(s, a) + noise z(s, a)). The advantages are those of the optimal
policy for the reward less `fear` times the cost, in units of their mean gap; z is standard normal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from scopeval import simulate
from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy

__all__ = ["FINITE", "LOGS", "FiniteWorld", "blackjack", "finite_world"]

#: Kinds of logs; all but "mixed" miss a part of what a target policy does.
LOGS = ("mixed", "one controller", "random", "hidden states")
#: Number of loggers, from uniformly random to good.
LOGGERS = 10
#: Discount of the optimal policy that advantages come from.
DISCOUNT = 0.98
#: Range of a target's share of uniformly random actions; it is drawn log-uniformly.
SLIP = (0.01, 0.2)
#: Share of a target policy's steps that are at the states that logs of "hidden states" never show.
HIDDEN = 0.1


def blackjack(horizon: int) -> TabularMDP:
    """Gymnasium's Blackjack-v1 (an infinite deck, no bonus for a natural), exactly.

    State ((sum - 4) * 10 + dealer's card - 1) * 2 + usable ace, for sums of 4 to 21; the last
    state is the end. Action 0 sticks, 1 hits. Going bust costs 1.
    """
    from scipy import sparse

    cards = {card: 1 / 13 + (3 / 13 if card == 10 else 0.0) for card in range(1, 11)}
    end = 18 * 10 * 2
    outcomes: list[tuple[float, int, float, float]] = []  # chance, next state, reward, cost
    indptr = [0]
    final = {card: _dealer_totals(cards, card) for card in cards}
    for s in range(end):
        total, dealer, usable = s // 20 + 4, s // 2 % 10 + 1, s % 2
        for reward in (-1.0, 0.0, 1.0):
            chance = sum(p for own, p in final[dealer].items() if np.sign(total - own) == reward)
            outcomes += [(chance, end, reward, 0.0)] if chance else []
        indptr.append(len(outcomes))
        for card, chance in cards.items():
            after, ace = _hand(total, bool(usable), card)
            if after > 21:
                outcomes.append((chance, end, -1.0, 1.0))
            else:
                outcomes.append((chance, _state(after, dealer, ace), 0.0, 0.0))
        indptr.append(len(outcomes))
    for _ in range(2):
        outcomes.append((1.0, end, 0.0, 0.0))
        indptr.append(len(outcomes))
    chances, following, rewards, costs = (
        np.array(column) for column in zip(*outcomes, strict=True)
    )
    initial = np.zeros(end + 1)
    for first, p in cards.items():
        for second, q in cards.items():
            total, ace = _hand(*_hand(0, False, first), second)
            for dealer, r in cards.items():
                initial[_state(total, dealer, ace)] += p * q * r
    nothing = np.zeros((end + 1, 2))
    return TabularMDP(
        initial,
        sparse.csr_array((chances, following, indptr), shape=((end + 1) * 2, end + 1)),
        nothing,
        nothing,
        horizon,
        next_reward=rewards,
        next_cost=costs,
    )


def _state(total: int, dealer: int, usable: bool) -> int:
    return ((total - 4) * 10 + dealer - 1) * 2 + usable


def _hand(total: int, usable: bool, card: int) -> tuple[int, bool]:
    """The sum and whether it has an ace that counts 11, after another card."""
    hard = total - 10 * usable + card
    ace = (usable or card == 1) and hard + 10 <= 21
    return hard + 10 * ace, ace


def _dealer_totals(cards: dict[int, float], shown: int) -> dict[int, float]:
    """Distribution of the dealer's final sum, 0 when bust; he draws below 17."""
    final: dict[int, float] = {}

    def draw(total: int, usable: bool, chance: float) -> None:
        for card, p in cards.items():
            after, ace = _hand(total, usable, card)
            if after < 17:
                draw(after, ace, chance * p)
            else:
                own = after if after <= 21 else 0
                final[own] = final.get(own, 0.0) + chance * p

    draw(*_hand(0, False, shown), 1.0)
    return final


def _frozen_lake() -> TabularMDP:
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    return TabularMDP.from_gymnasium(
        FrozenLakeEnv(map_name="8x8", is_slippery=True),
        100,
        cost=lambda s, a, after, reward, over: float(over and reward == 0.0),
    )


def _cliff_walking() -> TabularMDP:
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

    return TabularMDP.from_gymnasium(
        CliffWalkingEnv(is_slippery=True),
        100,
        cost=lambda s, a, after, reward, over: float(reward <= -100.0),
    )


def _taxi() -> TabularMDP:
    from gymnasium.envs.toy_text.taxi import TaxiEnv  # its registered version differs by release

    return TabularMDP.from_gymnasium(
        TaxiEnv(), 50, cost=lambda s, a, after, reward, over: float(reward <= -10.0)
    )


@dataclass(frozen=True)
class _Recipe:
    """How to make one of the environments.

    Attributes:
        make: the exact model.
        beta: range of the targets' beta; it is drawn log-uniformly.
        fear: largest weight of the cost in a target's advantages, drawn uniformly from 0 on.
    """

    make: Callable[[], TabularMDP]
    beta: tuple[float, float]
    fear: float


_RECIPES = {
    "FrozenLake": _Recipe(_frozen_lake, (0.5, 6.0), 1.0),
    "CliffWalking": _Recipe(_cliff_walking, (0.5, 10.0), 20.0),
    "Taxi": _Recipe(_taxi, (0.5, 8.0), 10.0),
    "Blackjack": _Recipe(lambda: blackjack(10), (0.5, 6.0), 1.0),
}
#: Names of the finite environments.
FINITE = tuple(_RECIPES)


@dataclass(frozen=True, eq=False)
class FiniteWorld:
    """One environment with its model; everything drawn is a function of the seed.

    Attributes:
        name: of the environment.
        mdp: its exact model.
        seed: of policies and logs.
    """

    name: str
    mdp: TabularMDP
    seed: int

    def target(self, number: int) -> TabularPolicy:
        """Target policy of this number: its beta, fear and noise are drawn."""
        rng = self._rng(0, number)
        recipe = _RECIPES[self.name]
        beta = float(np.exp(rng.uniform(*np.log(recipe.beta))))
        fear = float(rng.uniform(0.0, recipe.fear))
        slip = float(np.exp(rng.uniform(*np.log(SLIP))))
        return self._policy(beta, fear, float(rng.uniform(0.0, 1.0)), slip, rng)

    def loggers(self) -> list[TabularPolicy]:
        """Controllers from uniformly random to good, with preferences of their own."""
        betas = (0.0, *np.geomspace(0.25, 8.0, LOGGERS - 1))
        return [
            self._policy(float(beta), 0.0, 0.5 if beta else 0.0, 0.02, self._rng(1, k))
            for k, beta in enumerate(betas)
        ]

    def logs(self, kind: str, episodes: int, target: int) -> Transitions:
        """Logs of one of `LOGS` for one target; fewer episodes are a part of more.

        An episode ends at a state that ends it, else at the horizon. The rows at "hidden states"
        are missing.
        """
        if kind not in LOGS:
            raise InputError(f"logs: got {kind!r}, expected one of {', '.join(LOGS)}")
        loggers = self.loggers()
        controllers = {"one controller": loggers[-1:], "random": loggers[:1]}.get(kind, loggers)
        hidden = np.zeros(self.mdp.states, np.bool_)
        if kind == "hidden states":
            hidden[self._hidden(target)] = True
        parts = []
        for k, controller in enumerate(controllers[:episodes]):
            count = len(range(k, episodes, len(controllers)))
            parts.append(self._episodes(controller, count, hidden, (target, k)))
        return Transitions.concat(parts)

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, FINITE.index(self.name), *key))

    def _policy(
        self, beta: float, fear: float, noise: float, slip: float, rng: np.random.Generator
    ) -> TabularPolicy:
        advantage = _advantages(self.mdp, fear)
        logits = beta * advantage + noise * rng.standard_normal(advantage.shape)
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        soft = weight / weight.sum(axis=1, keepdims=True)
        return TabularPolicy((1.0 - slip) * soft + slip / self.mdp.actions)

    def _hidden(self, target: int) -> Ints:
        """States drawn until a tenth of the target's steps are there; never one of the first."""
        mdp, policy = self.mdp, self.target(target).table(self.mdp.horizon)
        at, visits = mdp.initial, np.zeros(mdp.states)
        for t in range(mdp.horizon):
            visits += at
            at = mdp.transition.T @ (at[:, None] * policy[t]).ravel()
        visits[_ends(mdp)] = 0.0
        visits /= visits.sum()
        order = self._rng(2, target).permutation(np.flatnonzero((visits > 0) & (mdp.initial == 0)))
        return np.asarray(order[: np.searchsorted(np.cumsum(visits[order]), HIDDEN) + 1])

    def _episodes(
        self,
        controller: TabularPolicy,
        count: int,
        hidden: np.ndarray[tuple[int], np.dtype[np.bool_]],
        key: Sequence[int],
    ) -> Transitions:
        stream = int(self._rng(3, *key).integers(2**62))
        run = simulate.trajectories(self.mdp, controller, episodes=count, seed=stream, threads=1)
        over = np.zeros(self.mdp.states, np.bool_)
        over[_ends(self.mdp)] = True
        inside = ~(over | hidden)[run.states[:, :-1]]
        times = np.broadcast_to(np.arange(self.mdp.horizon), inside.shape)
        return Transitions(
            t=times[inside],
            obs=run.states[:, :-1][inside],
            action=run.actions[inside],
            reward=run.rewards[inside],
            cost=np.maximum(run.costs[inside], 0.0),  # sums of a mean and its deviation
            next_obs=run.states[:, 1:][inside],
            terminated=over[run.states[:, 1:]][inside],
        )


def finite_world(name: str, seed: int = 0) -> FiniteWorld:
    """One of `FINITE`, ready to use."""
    if name not in _RECIPES:
        raise InputError(f"environment: got {name!r}, expected one of {', '.join(FINITE)}")
    return FiniteWorld(name, _RECIPES[name].make(), seed)


def _ends(mdp: TabularMDP) -> Ints:
    """The states that no action leaves."""
    chances = mdp.transition.toarray().reshape(mdp.states, mdp.actions, mdp.states)
    own = np.einsum("sas->sa", chances)
    return np.flatnonzero((own >= 1.0 - 1e-12).all(axis=1))


def _advantages(mdp: TabularMDP, fear: float) -> Floats:
    """Of the optimal policy for reward - fear * cost, in units of their mean gap; [S, A]."""
    gain = mdp.at("reward", 0) - fear * mdp.at("cost", 0)
    value = np.zeros(mdp.states)
    for _ in range(500):  # 0.98^500 = 4e-5 of the values is left
        q = gain + DISCOUNT * mdp.expect(value)
        value = q.max(axis=1)
    gap = q - value[:, None]
    scale = -float(gap.mean()) or 1.0
    return gap / scale
