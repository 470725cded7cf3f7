"""Behavior policies that depend on the whole history of a tiny MDP: every one of them.

Level t of a tree has one node for each history (s_0, a_0, ..., s_t), in an array of shape
[S, A, S, ..., A, S]. Nothing here calls the library's recursions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

from random_mdps import Case, loop_values


def _tables(case: Case, control: np.ndarray) -> Any:
    """pi, X, (v - bbar)^2 and cost, [T, S, A] or [T, S]."""
    T, S, A = case.reward.shape
    reward, cost = case.reward.copy(), case.cost.copy()
    ahead_reward = np.zeros((T, S, A, S)) if case.next_reward is None else case.next_reward
    reward += (case.transition * ahead_reward).sum(-1)
    if case.next_cost is not None:
        cost += (case.transition * case.next_cost).sum(-1)
    q, v = loop_values(case, reward, case.target)
    total = ahead_reward + case.gamma * v[1:, None, None, :]  # [T, S, A, S]
    mean = (case.transition * total).sum(-1, keepdims=True)
    nu = case.spread**2 + (case.transition * (total - mean) ** 2).sum(-1)
    lead = v[:-1] - (case.target * control).sum(-1)
    start = float(case.initial @ (v[0] - case.initial @ v[0]) ** 2)
    return (q - control) ** 2 + nu, lead**2, cost, start


def objective(case: Case, control: np.ndarray, levels: list[Any]) -> tuple[Any, Any]:
    """Variance and cost of history-dependent behavior probabilities, one tensor for each level."""
    X, lead, cost, start = _tables(case, control)
    T, S, A = case.reward.shape
    p = torch.tensor(case.transition)
    V = C = torch.zeros((S,) + (A, S) * T, dtype=torch.float64)
    for t in reversed(range(T)):
        mu = levels[t]  # [..., S, A]
        pi, x = torch.tensor(case.target[t]), torch.tensor(X[t])
        later_v, later_c = (p * V).sum(-1), (p * C).sum(-1)  # [..., S, A]
        V = (pi**2 / mu * (x + case.gamma**2 * later_v)).sum(-1) - torch.tensor(lead[t])
        C = (mu * (torch.tensor(cost[t]) + case.gamma * later_c)).sum(-1)
    first = torch.tensor(case.initial)
    return first @ V + start, first @ C


def history_levels(case: Case, logits: list[Any], cap: float | None) -> list[Any]:
    """Softmax of the logits at every node, mixed with pi as far as the cap on weights demands."""
    levels, weight = [], None
    for t, raw in enumerate(logits):
        mu = torch.softmax(raw, dim=-1)
        pi = torch.tensor(case.target[t])
        if cap is not None:
            weight = torch.ones(raw.shape[:-1], dtype=torch.float64) if weight is None else weight
            share = (weight / cap)[..., None]
            mu = share * pi + (1 - share) * mu
            ratio = weight[..., None] * (pi / mu)
            weight = ratio[..., None].expand(*ratio.shape, case.states)
        levels.append(mu)
    return levels


def best_of_all(
    case: Case,
    control: np.ndarray,
    price: float,
    *,
    blind: bool = False,
    cap: float | None = None,
    starts: int = 4,
) -> tuple[float, float]:
    """Least variance + price * cost over all histories' behaviors: its variance and cost.

    With `blind` only behaviors that know the state and time. By L-BFGS from several starts.
    """
    T, S, A = case.reward.shape
    deep = [(S,) + (A, S) * t + (A,) for t in range(T)]
    shapes = [(S, A)] * T if blind else deep
    sizes = [int(np.prod(shape)) for shape in shapes]
    rng = np.random.default_rng(0)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny

    def points(x: Any) -> tuple[Any, Any]:
        raw = [
            part.reshape(shape).expand(full)
            for part, shape, full in zip(torch.split(x, sizes), shapes, deep, strict=True)
        ]
        return objective(case, control, history_levels(case, raw, cap))

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = torch.tensor(x, requires_grad=True)
        variance, cost = points(z)
        total = variance + price * cost
        total.backward()
        return float(total.detach()), z.grad.numpy()

    found = [
        minimize(
            value, 0.5 * k * rng.normal(size=sum(sizes)), jac=True, method="L-BFGS-B",
            bounds=[(-30, 30)] * sum(sizes), options={"maxiter": 1000, "ftol": 1e-11},
        )
        for k in range(starts)
    ]  # fmt: skip
    best = min(found, key=lambda result: result.fun)
    variance, cost = points(torch.tensor(best.x))
    torch.set_num_threads(threads)
    return float(variance), float(cost)


def enumerate_design(
    case: Case, control: np.ndarray, probs: Any
) -> tuple[float, float, float, float]:
    """Mean, variance and cost of a weight-aware behavior, and its largest weight, by every path.

    `probs(t, s, weight)` gives mu [A]. Rewards take two values where they are random.
    """
    rows: list[tuple[float, float, float]] = []  # chance, estimate, cost
    largest = 1.0

    def grow(t: int, s: int, chance: float, weight: float, estimate: float, paid: float) -> None:
        nonlocal largest
        largest = max(largest, weight)
        if t == case.horizon:
            rows.append((chance, estimate, paid))
            return
        mu, pi = probs(t, s, weight), case.target[t, s]
        scale = case.gamma**t
        base = estimate + scale * weight * float(pi @ control[t, s])
        signs = (-1.0, 1.0) if case.spread[t, s].any() else (0.0,)
        for a in np.flatnonzero(mu):
            rho = pi[a] / mu[a]
            for after in np.flatnonzero(case.transition[s, a]):
                for sign in signs:
                    r = case.reward[t, s, a] + sign * case.spread[t, s, a]
                    c = case.cost[t, s, a]
                    if case.next_reward is not None and case.next_cost is not None:
                        r += case.next_reward[t, s, a, after]
                        c += case.next_cost[t, s, a, after]
                    odds = chance * mu[a] * case.transition[s, a, after] / len(signs)
                    got = base + scale * weight * rho * (r - control[t, s, a])
                    grow(t + 1, int(after), odds, weight * rho, got, paid + scale * c)

    for s in np.flatnonzero(case.initial):
        grow(0, int(s), float(case.initial[s]), 1.0, 0.0, 0.0)
    chance, estimate, cost = np.array(rows).T
    mean = float(chance @ estimate)
    return mean, float(chance @ (estimate - mean) ** 2), float(chance @ cost), largest
