"""Episodes in, one value per episode out, so that every interval works with every estimator.

All estimators of the family are one backward recursion (control variate b, bbar = sum_a pi b):

    G_t = bbar_t(S) + rho_t (R + gamma G_{t+1} - b_t(S, A)),     rho_t = pi_t(A|S) / mu_t(A|S)

b = 0 is per-decision importance sampling (paper: Eq. "PDIS"), b = q-hat the doubly robust estimator
(Jiang and Li 2016). G_0 is unbiased for J(pi) whatever b is, as long as mu covers pi. The weighted
estimators divide by the sum of the weights instead of N: less variance, and a bias that falls like
1/N. Their values are linearized (delta method): the mean is the estimate, and the spread is that of
what an episode adds to it, so that an interval for many episodes follows as from any values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Floats, as_floats, where_first
from scopeval.collection.episodes import Episodes, discounts
from scopeval.errors import InputError
from scopeval.policies.protocols import Observations, Policy, Time, probs_of

__all__ = [
    "BIASED",
    "ESTIMATORS",
    "Estimator",
    "controlled",
    "cross_fitted",
    "direct",
    "doubly_robust",
    "importance_sampling",
    "monte_carlo",
    "name_of_estimator",
    "pdis",
    "pdis_cost",
    "step_weights",
    "trajectory_weights",
    "weighted_doubly_robust",
    "weighted_pdis",
]

#: q-hat as a function (obs [B], t) -> [B, A].
QFunction = Callable[[Observations, Time], ArrayLike]


def monte_carlo(episodes: Episodes, gamma: float = 1.0) -> Floats:
    """The returns sum_t gamma^t R_t: valid only where the target itself was run."""
    _some(episodes)
    bad = np.abs(episodes.ratios - 1.0) > 1e-9
    if bad.any():
        raise InputError(
            f"monte_carlo: importance ratio {episodes.ratios[bad][0]:.6g} "
            f"{where_first(bad, ('episode', 't'))}; plain returns give the target's value "
            "only where the target itself was run (all ratios 1), try pdis or doubly_robust"
        )
    return episodes.returns(gamma)


def importance_sampling(episodes: Episodes, gamma: float = 1.0) -> Floats:
    """(prod_t rho_t) sum_t gamma^t R_t: importance sampling of whole trajectories. Unbiased."""
    _some(episodes)
    return trajectory_weights(episodes) * episodes.returns(gamma)


def pdis(episodes: Episodes, gamma: float = 1.0) -> Floats:
    """Per-decision importance sampling: G_t = rho_t (R_t + gamma G_{t+1}).

    A reward is weighted by the ratios up to it and by no later one (Precup et al. 2000; paper: Eq.
    "PDIS"). Unbiased.
    """
    return _recursion(episodes, episodes.reward, gamma, None, None)


def pdis_cost(episodes: Episodes, gamma: float = 1.0) -> Floats:
    """Per-decision importance-sampled cost: an unbiased estimate of the *target's* cost."""
    return _recursion(episodes, episodes.cost, gamma, None, None)


def doubly_robust(
    episodes: Episodes,
    gamma: float = 1.0,
    *,
    q: ArrayLike | QFunction | None = None,
    target: Policy | None = None,
) -> Floats:
    """G_t = bbar_t + rho_t (R_t + gamma G_{t+1} - b_t(A_t)): PDIS around a control variate.

    b is what the behavior policy recorded with the episodes, or q-hat given here. Unbiased when b
    does not come from these same episodes; for one that does, see `cross_fitted`.

    Args:
        episodes: what was collected.
        gamma: discount.
        q: instead of the recorded b: a table [S, A] or [T, S, A], or a function
            (obs, t) -> [B, A].
        target: the target policy, needed with `q`.
    """
    control, baseline = _control(episodes, q, target)
    return _recursion(episodes, episodes.reward, gamma, control, baseline)


def weighted_pdis(episodes: Episodes, gamma: float = 1.0) -> Floats:
    """PDIS with every step's weights divided by their mean over the episodes.

    With w_t = prod_{k<=t} rho_k the estimate is sum_t gamma^t m_t with the weighted mean
    m_t = (sum_i w_t R_t) / (sum_i w_t) (Precup et al. 2000). Biased, consistent. The value of an
    episode is sum_t gamma^t [ m_t + (w_t / mean w_t) (R_t - m_t) ]. After its end an episode keeps
    its last weight.
    """
    _some(episodes)
    terms = _self_normalized(step_weights(episodes), episodes.reward)
    return np.asarray(terms @ discounts(gamma, episodes.horizon))


def weighted_doubly_robust(
    episodes: Episodes,
    gamma: float = 1.0,
    *,
    q: ArrayLike | QFunction | None = None,
    target: Policy | None = None,
) -> Floats:
    """Doubly robust with normalized weights (Thomas and Brunskill 2016, WDR).

    sum_t gamma^t [ w_t (R_t - b_t(A_t)) + w_{t-1} bbar_t ], w_{-1} = 1, where both products are
    weighted means as in `weighted_pdis`.
    Biased, consistent; b = 0 is `weighted_pdis`. Arguments as in `doubly_robust`.
    """
    control, baseline = _control(episodes, q, target)
    weights = step_weights(episodes)
    before = np.ones_like(weights)
    before[:, 1:] = weights[:, :-1]
    terms = _self_normalized(weights, episodes.reward - control)
    terms += _self_normalized(before, baseline)
    return np.asarray(terms @ discounts(gamma, episodes.horizon))


def direct(
    episodes: Episodes,
    gamma: float = 1.0,
    *,
    q: ArrayLike | QFunction | None = None,
    target: Policy | None = None,
) -> Floats:
    """v-hat(S_0) = bbar_0(S_0): the critic's own estimate, with all of its bias.

    For reference only: no reward of these episodes enters, so it is no evidence about the target.
    `gamma` is the one the critic was fitted with and is not used. Arguments as in `doubly_robust`.
    """
    return np.array(_control(episodes, q, target)[1][:, 0])


def step_weights(episodes: Episodes) -> Floats:
    """w_t = prod_{k<=t} rho_k, [N, T]; after the end an episode keeps its last weight."""
    return np.asarray(np.cumprod(episodes.ratios, axis=1))


def trajectory_weights(episodes: Episodes) -> Floats:
    """prod_t rho_t of whole episodes, [N]: mean 1; their spread shows how far mu is from pi."""
    return episodes.weights


def controlled(episodes: Episodes, q: ArrayLike | QFunction, target: Policy) -> Episodes:
    """The episodes with b = q-hat recorded: control = q(S, A), baseline = sum_a pi(a|S) q(S, a).

    For finite action sets. With continuous actions the candidates that bbar averages over exist
    only during collection, and the behavior policy records b there.
    """
    if episodes.action.ndim != 2 or not np.issubdtype(episodes.action.dtype, np.integer):
        raise InputError(
            f"q: the episodes hold continuous actions {episodes.action.shape}; expected action "
            "numbers, try a behavior policy that brings its control variate"
        )
    function = q if callable(q) else _table(q, episodes.horizon)
    control = np.zeros_like(episodes.reward)
    baseline = np.zeros_like(episodes.reward)
    for t in range(episodes.horizon):
        rows = np.flatnonzero(episodes.length > t)
        if not len(rows):
            break
        obs, action = episodes.obs[rows, t], episodes.action[rows, t]
        probs = probs_of(target, obs, t)
        b = as_floats(f"q at t={t}", function(obs, t), ndim=(2,), axes=("row", "action"))
        if b.shape != probs.shape:
            raise InputError(
                f"q: got shape {b.shape} at t={t}, expected {probs.shape} as the target's "
                "probabilities"
            )
        control[rows, t] = b[np.arange(len(rows)), action]
        baseline[rows, t] = (probs * b).sum(axis=1)
    return episodes.with_control(control, baseline)


def cross_fitted(
    fit: Callable[[Episodes], ArrayLike | QFunction],
    episodes: Episodes,
    target: Policy,
    *,
    folds: int = 5,
    seed: int = 0,
) -> Episodes:
    """The episodes with b learned from *other* episodes: no episode is judged by its own critic.

    Each fold's b comes from `fit` on the episodes outside it, so that given those b is a fixed
    function and the doubly robust values keep mean J(pi). Values of different folds are dependent,
    weakly: each has helped to fit the others' b.

    Args:
        fit: episodes -> q-hat, a table or a function (obs, t) -> [B, A].
        episodes: what was collected.
        target: the target policy.
        folds: number of folds, at least 2.
        seed: of the partition.
    """
    if not 2 <= folds <= len(episodes):
        raise InputError(
            f"folds: got {folds} for {len(episodes)} episodes, expected 2 to that many"
        )
    fold = np.random.default_rng(seed).permutation(len(episodes)) % folds
    control = np.zeros_like(episodes.reward)
    baseline = np.zeros_like(episodes.reward)
    for k in range(folds):
        held = fold == k
        part = controlled(episodes.select(held), fit(episodes.select(~held)), target)
        control[held], baseline[held] = part.control, part.baseline
    return episodes.with_control(control, baseline)


#: The estimators whose values are independent and have mean J(pi), by the name a user types.
ESTIMATORS: dict[str, Callable[[Episodes, float], Floats]] = {
    "mc": monte_carlo,
    "is": importance_sampling,
    "pdis": pdis,
    "dr": doubly_robust,
}
#: Biased baselines, in words: only of episodes that were collected, in a number fixed before.
BIASED = {
    "wis": "weighted importance sampling, which is biased",
    "fqe": "fitted Q evaluation, a model of these episodes, which is biased",
}
#: A name, or a function that gives a value of each episode.
Estimator = str | Callable[[Episodes], ArrayLike]


def name_of_estimator(estimator: Estimator) -> str:
    """As results have it."""
    if isinstance(estimator, str):
        return estimator
    return f"{getattr(estimator, '__name__', 'given')} (a function)"


def _recursion(
    episodes: Episodes,
    signal: Floats,
    gamma: float,
    control: Floats | None,
    baseline: Floats | None,
) -> Floats:
    _some(episodes)
    discounts(gamma, 1)  # a discount in (0, 1]
    ratios = episodes.ratios
    value = np.zeros(len(episodes))
    for t in reversed(range(episodes.horizon)):
        value = signal[:, t] + gamma * value
        if control is not None and baseline is not None:
            value = baseline[:, t] + ratios[:, t] * (value - control[:, t])
        else:
            value = ratios[:, t] * value
    return value


def _control(
    episodes: Episodes, q: ArrayLike | QFunction | None, target: Policy | None
) -> tuple[Floats, Floats]:
    _some(episodes)
    if q is not None:
        if target is None:
            raise InputError("target: needed with q, to average q over the target's actions")
        episodes = controlled(episodes, q, target)
    if episodes.control is None or episodes.baseline is None:
        raise InputError(
            "the episodes carry no control variate; expected a behavior policy that brings one "
            "(method 'scope-dr' or 'dopt'), or q= and target=; without either, try pdis"
        )
    return episodes.control, episodes.baseline


def _self_normalized(weights: Floats, values: Floats) -> Floats:
    """Weighted means of columns, linearized; 0 where no episode has any weight."""
    mean = weights.mean(axis=0)
    ratios = weights / np.where(mean > 0, mean, 1.0)
    center = (ratios * values).mean(axis=0)
    return np.asarray(center + ratios * (values - center))


def _table(q: ArrayLike, horizon: int) -> QFunction:
    table = as_floats("q", q, ndim=(2, 3), axes=("t", "s", "a"))
    if table.ndim == 3 and len(table) < horizon:
        raise InputError(f"q: got {len(table)} time steps, expected the horizon {horizon}")

    def look_up(obs: Observations, t: Time) -> NDArray[np.float64]:
        states = np.asarray(obs)
        if states.ndim != 1 or not np.issubdtype(states.dtype, np.integer):
            raise InputError(
                f"q: a table needs state numbers, the episodes hold {states.dtype} {states.shape}"
            )
        if states.size and not 0 <= states.min() <= states.max() < table.shape[-2]:
            raise InputError(
                f"q: the table covers states 0..{table.shape[-2] - 1}, the episodes visit "
                f"{states.min()}..{states.max()}"
            )
        return np.asarray(table[t, states] if table.ndim == 3 else table[states])

    return look_up


def _some(episodes: Episodes) -> None:
    if not len(episodes):
        why = f"; the first was lost: {episodes.lost[0].reason}" if episodes.lost else ""
        raise InputError(f"episodes: got none, expected at least one finished episode{why}")
