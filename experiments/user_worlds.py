"""Finite worlds like those of users, their target policies and their logs: see `unseen_worlds`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import comb, exp, factorial
from typing import Any

import numpy as np
from scipy import sparse

from scopeval.exact import TabularMDP

__all__ = ["LOGS", "PARTS", "TARGETS", "WORLDS", "logs_for", "target_of"]

Outcome = tuple[float, Any, float, float]  # probability, next state, reward, cost


# -- worlds ----------------------------------------------------------------------------------------


def world_of(
    states: Sequence[Any],
    actions: Sequence[Any],
    outcomes: Callable[[Any, Any], Iterable[Outcome]],
    start: Any,
    horizon: int,
) -> TabularMDP:
    """The MDP in which an action in a state has these outcomes."""
    number = {state: k for k, state in enumerate(states)}
    indptr, indices, chances, rewards, costs = [0], [], [], [], []
    for state in states:
        for action in actions:
            rows = [row for row in outcomes(state, action) if row[0] > 0.0]
            chances += [row[0] for row in rows]
            indices += [number[row[1]] for row in rows]
            rewards += [row[2] for row in rows]
            costs += [row[3] for row in rows]
            indptr.append(len(indices))
    shape = (len(states) * len(actions), len(states))
    nothing = np.zeros((len(states), len(actions)))
    initial = np.zeros(len(states))
    initial[number[start]] = 1.0
    return TabularMDP(
        initial,
        sparse.csr_array((np.array(chances), np.array(indices), np.array(indptr)), shape=shape),
        nothing,
        nothing,
        horizon,
        next_reward=np.array(rewards),
        next_cost=np.array(costs),
    )


def poisson(mean: float, most: int) -> list[float]:
    """Probabilities of 0..most; the rest is at `most`."""
    chances = [exp(-mean) * mean**k / factorial(k) for k in range(most)]
    return [*chances, max(1.0 - sum(chances), 0.0)]


def binomial(count: int, chance: float) -> list[float]:
    """Probabilities of 0..count successes."""
    return [comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(count + 1)]


def walk(place: int, least: int, most: int, stay: float) -> list[tuple[float, int]]:
    """A random walk that stays, or goes one up or down, within limits."""
    move = (1.0 - stay) / 2.0
    steps = ((stay, place), (move, max(place - 1, least)), (move, min(place + 1, most)))
    return list(steps)


def queue() -> TabularMDP:
    """Customers wait; a faster server takes more power, a small cost in every step."""
    arrivals = ([0.55, 0.35, 0.10], [0.25, 0.45, 0.30])

    def outcomes(state: Any, rate: float) -> Iterable[Outcome]:
        waiting, busy = state
        cost = 0.05 + rate**2
        for a, p in enumerate(arrivals[busy]):
            for served, q in ((1, rate), (0, 1.0 - rate)):
                left = min(max(waiting - served, 0) + a, 15)
                for switch, r in ((0, 0.9), (1, 0.1)):
                    yield p * q * r, (left, busy ^ switch), -left / 10.0, cost

    states = [(n, m) for n in range(16) for m in (0, 1)]
    return world_of(states, (0.3, 0.55, 0.75, 0.95), outcomes, (3, 0), 60)


def dosing() -> TabularMDP:
    """A dose lowers severity and raises toxicity; rarely, and worse when toxic, harm is large."""

    def outcomes(state: Any, dose: int) -> Iterable[Outcome]:
        if state == "ward":
            yield 0.5, "ward", -0.6, 0.5
            yield 0.5, (3, 0), -0.6, 0.5
            return
        severity, toxicity = state
        harm = min(0.0008 * 3.2**toxicity * (1 + 0.5 * dose), 0.4)
        reward, cost = -severity / 6.0, 0.02 * dose
        yield harm, "ward", reward - 1.0, 15.0
        down, up = 0.08 + 0.13 * dose, 0.22
        raised, cleared = 0.11 * dose, 0.35 if dose < 2 else 0.1
        for s, p in ((-1, down), (1, up), (0, 1 - down - up)):
            for x, q in ((1, raised), (-1, cleared), (0, 1 - raised - cleared)):
                following = (min(max(severity + s, 0), 6), min(max(toxicity + x, 0), 4))
                yield (1 - harm) * p * q, following, reward, cost

    states = [(s, x) for s in range(7) for x in range(5)] + ["ward"]
    return world_of(states, range(5), outcomes, (4, 0), 24)


def inventory() -> TabularMDP:
    """Orders arrive at once; demand has seasons; a lost sale is a cost."""
    demands = (poisson(1.5, 9), poisson(4.0, 12))

    def outcomes(state: Any, order: int) -> Iterable[Outcome]:
        stock, season = state
        ready = min(stock + order, 18)
        for d, p in enumerate(demands[season]):
            left, lost = max(ready - d, 0), max(d - ready, 0)
            reward = float(ready - left) - 0.1 * left - (0.8 if order else 0.0)
            for switch, q in ((0, 0.92), (1, 0.08)):
                yield p * q, (left, season ^ switch), reward, 0.05 + float(lost)

    states = [(n, m) for n in range(19) for m in (0, 1)]
    return world_of(states, (0, 2, 5, 9), outcomes, (6, 0), 30)


def battery() -> TabularMDP:
    """Buy when power is cheap, sell when it is not; wear grows with the power and at the ends."""

    def outcomes(state: Any, power: int) -> Iterable[Outcome]:
        charge, price = state
        moved = min(max(charge + power, 0), 8) - charge
        cost = 0.05 + 0.12 * moved**2 + (0.25 if charge + moved in (0, 8) else 0.0)
        reward = -moved * (0.5 + 0.35 * price) * (1.0 if moved < 0 else 1.1)
        for p, following in walk(price, 0, 4, 0.4):
            yield p, (charge + moved, following), reward, cost

    states = [(c, p) for c in range(9) for p in range(5)]
    return world_of(states, (-2, -1, 0, 1, 2), outcomes, (4, 2), 48)


def recommender() -> TabularMDP:
    """Insistent items are clicked more, tire the user, and rarely make them complain and leave."""
    pull, tiring, harm = (0.0, 0.12, 0.2, 0.3, 0.42), (0, 0.1, 0.25, 0.45, 0.7), (0, 1, 2, 4, 8)

    def outcomes(state: Any, item: int) -> Iterable[Outcome]:
        if state == "left":
            yield 1.0, "left", 0.0, 0.0
            return
        interest, fatigue = state
        leaves = min(0.0015 * harm[item] * 1.9**fatigue, 0.5)
        yield leaves, "left", 0.0, 5.0
        click = (0.05 + pull[item]) * (0.4 + 0.2 * interest) * 0.85**fatigue
        for clicked, p in ((1, click), (0, 1 - click)):
            for tired, q in ((1, tiring[item]), (0, 1 - tiring[item])):
                for x, r in ((1, 0.15 + 0.35 * clicked), (0, 0.85 - 0.35 * clicked)):
                    moved = min(interest + 1, 4) if x else max(interest - (not clicked), 0)
                    rest = min(fatigue + 1, 4) if tired else max(fatigue - 1, 0)
                    yield (1 - leaves) * p * q * r, (moved, rest), float(clicked), 0.02 * item

    states = [(i, f) for i in range(5) for f in range(5)] + ["left"]
    return world_of(states, range(5), outcomes, (2, 0), 20)


def maintenance() -> TabularMDP:
    """A worn machine earns as a new one does, until it breaks."""

    def outcomes(state: Any, action: str) -> Iterable[Outcome]:
        wear, load = state
        if action == "service":
            for p, following in walk(load, 0, 2, 0.6):
                yield p, (max(wear - 5, 0), following), 0.0, 0.6
            return
        speed = {"slow": 0.5, "usual": 1.0, "fast": 1.5}[action]
        breaks = min(0.0006 * 1.75**wear * speed, 0.5)
        wears = 0.12 + 0.22 * speed
        for p, following in walk(load, 0, 2, 0.6):
            yield p * breaks, (0, following), -2.0, 25.0
            for worn, q in ((1, wears), (0, 1 - wears)):
                reward = speed**0.7 * (0.5 + 0.5 * load)
                yield p * (1 - breaks) * q, (min(wear + worn, 10), following), reward, 0.05

    states = [(w, n) for w in range(11) for n in range(3)]
    return world_of(states, ("slow", "usual", "fast", "service"), outcomes, (0, 1), 40)


def ward() -> TabularMDP:
    """Beds and admissions: turning patients away earns nothing, overflow is a rare large cost."""

    def outcomes(state: Any, admitted: int) -> Iterable[Outcome]:
        beds, wave = state
        for gone, p in enumerate(binomial(beds, 0.14)):
            for urgent, q in enumerate(poisson(0.35 + 0.4 * wave, 4)):
                total = beds - gone + urgent + admitted
                over, placed = max(total - 12, 0), min(admitted, max(12 - total + admitted, 0))
                for switch, r in ((0, 0.93), (1, 0.07)):
                    reward = 1.0 * placed - 0.05 * beds
                    yield p * q * r, (min(total, 12), wave ^ switch), reward, 0.02 + 6.0 * over

    states = [(b, w) for b in range(13) for w in (0, 1)]
    return world_of(states, range(4), outcomes, (6, 0), 50)


def clotting() -> TabularMDP:
    """A level is kept in its range; far above it bleeding is rare and grave, below it clots are."""

    def outcomes(state: Any, change: int) -> Iterable[Outcome]:
        level, trend = state
        bleeds, clots = 0.0007 * exp(0.95 * level), 0.0005 * exp(-0.85 * level)
        reward = 1.0 if abs(level) <= 1 else 0.0
        yield min(bleeds, 0.3), (0, 0), reward - 1.0, 20.0
        yield min(clots, 0.3), (0, 0), reward - 1.0, 12.0
        rest = 1.0 - min(bleeds, 0.3) - min(clots, 0.3)
        bent = min(max(trend + change, -2), 2)
        for p, step in ((0.25, -1), (0.5, 0), (0.25, 1)):
            for q, following in walk(bent, -2, 2, 0.7):
                moved = min(max(level + step + (bent if abs(bent) == 1 else bent // 2), -5), 5)
                yield rest * p * q, (moved, following), reward, 0.05 + 0.1 * abs(change)

    states = [(x, d) for x in range(-5, 6) for d in range(-2, 3)]
    return world_of(states, (-1, 0, 1), outcomes, (-2, 0), 30)


def reservoir() -> TabularMDP:
    """Water earns more from a high level; a full reservoir floods when it rains."""
    rain = (poisson(0.8, 5), poisson(1.8, 6), poisson(3.2, 8))

    def outcomes(state: Any, release: int) -> Iterable[Outcome]:
        level, regime = state
        let = min(release, level)
        for inflow, p in enumerate(rain[regime]):
            total = level - let + inflow
            flood = max(total - 14, 0)
            for q, following in walk(regime, 0, 2, 0.8):
                reward = let * (0.5 + level / 14.0)
                cost = (
                    0.03 + 4.0 * flood + 0.15 * max(release - 2, 0) + (0.5 if level == 0 else 0.0)
                )
                yield p * q, (min(total, 14), following), reward, cost

    states = [(x, r) for x in range(15) for r in range(3)]
    return world_of(states, range(5), outcomes, (7, 1), 52)


def marketing() -> TabularMDP:
    """Contacts sell; each has a price, and who is contacted too often leaves."""
    sells, price, annoys = (0.0, 0.05, 0.1, 0.18), (0.0, 0.05, 0.3, 0.6), (0.0, 1.0, 1.3, 2.5)

    def outcomes(state: Any, contact: int) -> Iterable[Outcome]:
        if state == "lost":
            yield 1.0, "lost", 0.0, 0.0
            return
        recency, loyalty, pressed = state
        leaves = min(0.004 * annoys[contact] * 2.2**pressed / (1 + loyalty), 0.5)
        buys = (0.06 + sells[contact]) * (0.5 + 0.4 * loyalty) * 0.8**recency
        pressure = min(pressed + 1, 3) if contact else max(pressed - 1, 0)
        yield leaves, "lost", 0.0, 4.0
        for amount, share in ((1.0, 0.7), (4.0, 0.3)):
            following = (0, min(loyalty + 1, 2), pressure)
            yield (1 - leaves) * buys * share, following, amount, price[contact]
        for fades, share in ((1, 0.1), (0, 0.9)):
            following = (min(recency + 1, 4), max(loyalty - fades, 0), pressure)
            yield (1 - leaves) * (1 - buys) * share, following, 0.0, price[contact]

    states = [(r, x, k) for r in range(5) for x in range(3) for k in range(4)] + ["lost"]
    return world_of(states, range(4), outcomes, (1, 1, 0), 26)


def support() -> TabularMDP:
    """Agents on call: waiting callers cost value, agents cost wages in every step."""

    def outcomes(state: Any, change: int) -> Iterable[Outcome]:
        waiting, agents, rush = state
        team = min(max(agents + change, 1), 5)
        for calls, p in enumerate(poisson(1.2 + 1.4 * rush, 7)):
            for done, q in enumerate(binomial(min(waiting, team), 0.6)):
                left = min(waiting - done + calls, 12)
                for switch, r in ((0, 0.95), (1, 0.05)):
                    cost = 0.1 + 0.15 * team + 0.1 * abs(change)
                    yield p * q * r, (left, team, rush ^ switch), done - 0.25 * left, cost

    states = [(n, k, m) for n in range(13) for k in range(1, 6) for m in (0, 1)]
    return world_of(states, (-1, 0, 1), outcomes, (2, 2, 0), 45)


#: Numbers may be chosen on the first part; the second is for reports only.
PARTS: dict[str, tuple[Callable[[], TabularMDP], ...]] = {
    "choose": (queue, dosing, inventory, battery, recommender),
    "report": (maintenance, ward, clotting, reservoir, marketing, support),
}
WORLDS = {make.__name__: (part, make) for part, makes in PARTS.items() for make in makes}


# -- target policies and logs ----------------------------------------------------------------------

TARGETS = ("random", "soft", "trained", "near-optimal", "careful")
LOGS = ("varied-1000", "varied-300", "incumbent", "like-50")


def best_values(mdp: TabularMDP, price: float = 0.0) -> np.ndarray:
    """Action values [T, S, A] of the best policy for reward - price * cost."""
    after, q = np.zeros(mdp.states), np.empty((mdp.horizon, mdp.states, mdp.actions))
    for t in reversed(range(mdp.horizon)):
        q[t] = mdp.at("reward", t) - price * mdp.at("cost", t) + mdp.expect(after)
        after = q[t].max(axis=1)
    return q


def softmax(q: np.ndarray, sharpness: float) -> np.ndarray:
    """Probabilities that grow with q, in units of its usual differences."""
    scale = float((q.max(axis=2) - q.mean(axis=2)).mean()) or 1.0
    weight = np.exp(np.clip(sharpness / scale * (q - q.max(axis=2, keepdims=True)), -30.0, 0.0))
    return weight / weight.sum(axis=2, keepdims=True)


def price_of(mdp: TabularMDP) -> float:
    """What cost is worth to the careful: as much as reward, by what actions change of both."""
    reward, cost = best_values(mdp), np.zeros_like(best_values(mdp))
    after = np.zeros(mdp.states)
    even = np.full((mdp.states, mdp.actions), 1.0 / mdp.actions)
    for t in reversed(range(mdp.horizon)):
        cost[t] = mdp.at("cost", t) + mdp.expect(after)
        after = (even * cost[t]).sum(axis=1)
    return float(np.ptp(reward, axis=2).mean() / max(np.ptp(cost, axis=2).mean(), 1e-12))


def target_of(mdp: TabularMDP, kind: str, seed: int) -> np.ndarray:
    """A target policy [T, S, A]."""
    if kind == "random":
        rng = np.random.default_rng((seed, 11))
        rows = rng.dirichlet(np.ones(mdp.actions), mdp.states)
        return np.repeat(0.95 * rows[None] + 0.05 / mdp.actions, mdp.horizon, axis=0)
    if kind == "careful":
        return softmax(best_values(mdp, price_of(mdp)), 2.0)
    if kind == "near-optimal":
        return 0.95 * softmax(best_values(mdp), 20.0) + 0.05 / mdp.actions
    return softmax(best_values(mdp), {"soft": 0.7, "trained": 2.5}[kind])


def logs_for(mdp: TabularMDP, target: np.ndarray, kind: str, seed: int) -> Any:
    """Logged rows of one kind."""
    from scopeval.envs.gridworld import logging_policies, logs_of
    from scopeval.policies.adapters import TabularPolicy

    if kind.startswith("varied"):
        controllers = logging_policies(30, mdp, seed=seed)
        return logs_of(mdp, controllers, int(kind.split("-")[1]), seed=seed)
    if kind == "like-50":
        return logs_of(mdp, [TabularPolicy(target)], 50, seed=seed)
    incumbent = softmax(best_values(mdp, 0.3 * price_of(mdp)), 1e9)
    noisy = 0.9 * incumbent + 0.1 / mdp.actions
    return logs_of(mdp, [TabularPolicy(noisy)], 1000, seed=seed)
