"""What the logs show of the target policy: the support, and what hides where they show nothing.

Support is the share of the target policy's own steps that the logs show.

State numbers: the target policy is followed through the MDP that the logs show; a step is shown if
its pair of state and action was logged.

Vectors never repeat, so nearness decides. The logs are split by episodes. The distance from a step
to the nearest logged step of one part, with the same action, is compared with the distances of the
other part's steps, which the same controllers took: a step is shown if it is no farther than 99 %
of these (`USUAL`). So a target policy that acts like the controllers has a support of about 99 %,
whatever the units and however many dimensions there are. The target policy's steps are those of
episodes that are simulated in the models of the world. Without a model they are single steps, from
logged observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.behavior.step import Recipe, weigh_rows
from scopeval.models.protocols import Critic, SweepData
from scopeval.models.rows import Log, Rows
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import ContinuousPolicy, Policy, offer

__all__ = [
    "USUAL",
    "Steps",
    "exchanged_codes",
    "simulated_steps",
    "single_steps",
    "table_support",
    "unseen_cost",
    "vector_support",
]

#: Share of held-out logged steps that count as near the logs.
USUAL = 0.99
#: Most logged steps of a part that others are compared with, and
NEIGHBORS = 10_000
#: most steps that are compared with them.
COMPARED = 2_000
#: Least expected number of rows of an action, for the chi-square law to hold.
LEAST_EXPECTED = 5.0
#: Standard errors of chi-square: at most so many for codes that fit, at least so many for codes
#: that do not. A normal law is beyond 4 in 3 of 100,000 logs.
FITS, MISFITS = 4.0, 8.0


class Steps(NamedTuple):
    """Some steps: observations [n, d], and actions as numbers [n] or vectors [n, m]."""

    obs: Floats
    action: NDArray[np.generic]

    def select(self, which: Ints | Bools) -> Steps:
        """Some of them."""
        return Steps(self.obs[which], self.action[which])


def table_support(data: SweepData, log: Log) -> float:
    """Support for state numbers.

    Borrowed rows lead on, but do not count as logged. Where nothing is known of a pair, all that
    would follow is lost.
    """
    A, points, horizon = log.actions, data.at(0), data.horizon
    S = len(points.obs)
    here = points.initial
    shown, total = 0.0, float(horizon)
    for t in range(horizon):
        rows = data.rows[min(t, len(data.rows) - 1)]
        pair = rows.obs * A + rows.action
        count = np.bincount(pair, rows.weight, S * A)
        logged = np.bincount(pair, rows.weight * ~rows.borrowed, S * A) > 0
        step = (here[:, None] * points.target(data.question.policy, t)).ravel()
        shown += float(step @ logged)
        flow = step[pair] * rows.weight / count[pair]
        here = np.bincount(rows.next_obs, flow * rows.alive, S).astype(np.float64)
        total -= float(flow @ (1.0 - rows.alive)) * (horizon - 1 - t)  # over: no logs needed
    return float(shown / max(total, 1e-12))


def vector_support(rows: Rows, steps: Steps, seed: int = 0) -> float:
    """Share of the steps that are as near to the logs as held-out logged steps are.

    Args:
        rows: of the log, those of an episode one after the other.
        steps: of the target policy.
        seed: of the rows that are compared, if there are many.
    """
    rng = np.random.default_rng((seed, 25))
    logged = Steps(np.asarray(rows.obs, np.float64), rows.action)
    logged, steps = _in_units(logged, steps)
    part = _parts(rows.t)
    steps = steps.select(_some(np.arange(len(steps.obs)), COMPARED, rng))
    shown = []
    for k in range(2):
        near = logged.select(_some(np.flatnonzero(part == k), NEIGHBORS, rng))
        held_out = logged.select(_some(np.flatnonzero(part != k), COMPARED, rng))
        usual = np.quantile(_distances(near, held_out), USUAL, method="higher")
        far = _distances(near, steps)
        shown.append(float(np.mean((far <= usual) & (far < np.inf))))
    return float(np.mean(shown))


def simulated_steps(data: SweepData, seed: int) -> Steps:
    """Steps of simulated episodes of the target policy, as often as the policy takes them.

    Episodes that end are replaced by others, so the rows of a time step stand for the share of
    episodes that last until then.
    """
    rng = np.random.default_rng((seed, 26))
    share, lasting = [], 1.0
    for rows in data.rows:
        share.append(lasting)
        lasting *= float(rows.alive.mean())
    counts = rng.multinomial(COMPARED, np.array(share) / np.sum(share))
    taken = [
        (rows, rng.integers(len(rows), size=count))
        for rows, count in zip(data.rows, counts, strict=True)
    ]
    obs = [np.asarray(rows.obs, np.float64)[which] for rows, which in taken]
    return Steps(np.concatenate(obs), np.concatenate([rows.action[which] for rows, which in taken]))


def single_steps(rows: Rows, target: Policy | ContinuousPolicy, seed: int) -> Steps:
    """What the target policy would do at some of the logged observations."""
    rng = np.random.default_rng((seed, 26))
    some = _some(np.arange(len(rows)), COMPARED, rng)
    steps = []
    for t in np.unique(rows.t[some]):  # a policy is asked for one time step at once
        obs = np.asarray(rows.obs, np.float64)[some[rows.t[some] == t]]
        offered = offer(target, obs, int(t), rng)
        taken = draw_actions(offered.probs, rng.random(len(obs)))
        steps.append(Steps(obs, offered.actions[np.arange(len(obs)), taken]))
    return Steps(*(np.concatenate(parts) for parts in zip(*steps, strict=True)))


def _in_units(logged: Steps, steps: Steps) -> tuple[Steps, Steps]:
    """Observations, with actions that are vectors, in units of their spread in the logs."""

    def joined(some: Steps) -> Floats:
        if some.action.ndim == 1:
            return some.obs
        return np.concatenate([some.obs, np.asarray(some.action, np.float64)], axis=1)

    points, others = joined(logged), joined(steps)
    scale = points.std(axis=0)
    # what never varies has no unit of its own: any other value is far away
    scale = np.where(scale > 1e-9 * np.abs(points).max(axis=0), scale, 1e-9)
    numbers = [
        some.action if some.action.ndim == 1 else np.zeros(len(some.action), np.int64)
        for some in (logged, steps)
    ]
    return Steps(points / scale, numbers[0]), Steps(others / scale, numbers[1])


def _parts(times: Ints) -> Ints:
    """Every other episode, for steps in one episode are near each other. [n] of 0 or 1."""
    starts = np.append(True, np.diff(times) <= 0)
    part = (np.cumsum(starts) - 1) % 2
    if part.any():
        return part
    return (np.arange(len(times)) >= len(times) // 2).astype(np.int64)  # a single episode


def _some(places: Ints, most: int, rng: np.random.Generator) -> Ints:
    """At most so many of them, in their order."""
    if len(places) <= most:
        return places
    return np.sort(rng.choice(places, most, replace=False))


def _distances(near: Steps, steps: Steps) -> Floats:
    """[n] from each step to the nearest one with the same action; infinite if there is none."""
    from scipy.spatial import KDTree

    distance = np.full(len(steps.obs), np.inf)
    for action in np.unique(steps.action):
        same = near.obs[near.action == action]
        asked = np.flatnonzero(steps.action == action)
        if len(same):
            distance[asked] = KDTree(same).query(steps.obs[asked])[0]
    return distance


# -- what follows where the logs show nothing ------------------------------------------------------


def unseen_cost(
    data: SweepData,
    recipe: Recipe,
    critics: Sequence[Critic],
) -> float:
    """The doubt about the relative cost of a design for state numbers; 0 for vectors.

    A state that was entered in the logs but never left (its rows are missing) has a guess for its
    cost, from the states that lead to it. Both halves of the logs share that guess, so the cross-
    check cannot see that it is wrong. What can be computed is how much depends on it: with L_t(s)
    the probability that an episode first comes to such a state s at step t, and v^c its guessed
    cost-to-go,

        doubt = sum_t,s |L_t(s) under mu - L_t(s) under pi| v^c_t(s)  /  cost of an episode under pi

    is the largest error of the relative cost if the true costs are between zero and twice the
    guess. Where mu and pi come to such states equally often, nothing depends on the guess.

    Args:
        data: all of the logs.
        recipe: how mu follows from the critics.
        critics: of all time steps.
    """
    points = data.at(0)
    if points.obs.ndim > 1 or not recipe.method.tilted:
        return 0.0
    left = [np.bincount(rows.obs, rows.weight, len(points.obs)) > 0 for rows in data.rows]
    if len(left) == 1 and left[0][data.rows[0].next_obs[data.rows[0].alive > 0]].all():
        return 0.0
    doubt, cost = 0.0, 0.0
    under_pi = under_mu = points.initial
    for t, critic in enumerate(critics):
        step = min(t, len(data.rows) - 1)
        lost = ~left[step]
        pi = np.ascontiguousarray(points.target(data.question.policy, t))
        e = points.estimates(critic)
        v_cost = (pi * e.cost_target).sum(axis=1)
        cost = cost if t else float(points.initial @ v_cost)
        doubt += float((np.abs(under_mu - under_pi) * v_cost)[lost].sum())
        mu = weigh_rows(recipe, pi, e).mu
        under_pi = _after(data.rows[step], np.where(lost, 0.0, under_pi), pi)
        under_mu = _after(data.rows[step], np.where(lost, 0.0, under_mu), mu)
    return doubt / cost if cost > 0 else 0.0


def _after(rows: Rows, here: Floats, policy: Floats) -> Floats:
    """Where one step leads, by the logged rows; what follows a pair without rows is left out."""
    A = policy.shape[1]
    pair = rows.obs * A + rows.action
    count = np.bincount(pair, rows.weight, policy.size)
    flow = (here[:, None] * policy).ravel()[pair] * rows.weight / count[pair]
    return np.bincount(rows.next_obs, flow * rows.alive, len(here)).astype(np.float64)


# -- actions under other numbers -------------------------------------------------------------------


def exchanged_codes(rows: Rows, target: TabularPolicy) -> str | None:
    """What to tell where another coding of the actions fits the target policy, and theirs not.

    A log may hold any controllers, so that actions which do not fit the target policy say nothing.
    But in episodes of the target itself, with other codes, the frequencies of actions in every
    state fit pi after one permutation of the codes, and not before. Pearson's chi-square judges
    both. Controllers other than the target fit no permutation, unless they are its mirror image.
    """
    from scipy.optimize import linear_sum_assignment

    A = target.actions
    pi = np.asarray(target.probs(np.asarray(rows.obs), rows.t))
    state = np.unique(rows.obs, return_inverse=True)[1].ravel()
    S = int(state.max()) + 1
    weight = np.asarray(rows.weight, np.float64)
    counts: Floats = np.bincount(state * A + rows.action, weight, S * A).astype(np.float64)
    logged = counts.reshape(S, A)
    each = [np.bincount(state, weight * pi[:, b], S) for b in range(A)]
    expected: Floats = np.stack(each, axis=1).astype(np.float64)
    if _distance(logged, expected) < MISFITS:
        return None
    # the most likely coding; a small share for actions that the target never takes
    likely = np.log(np.maximum(expected / expected.sum(axis=1, keepdims=True), 1e-3))
    code, meant = linear_sum_assignment(-(logged.T @ likely))
    if (code == meant).all() or not _distance(logged, expected[:, meant]) < FITS:
        return None
    swaps = ", ".join(f"{a} as {b}" for a, b in zip(code, meant, strict=True) if a != b)
    return (
        "the logged actions do not fit the target policy as they are coded, but do so in every "
        f"state if {swaps} is read: are these episodes of the target policy with other action "
        "codes? Every number about actions is then wrong"
    )


def _distance(logged: Floats, expected: Floats) -> float:
    """Chi-square above its mean, in standard errors; nothing to compare: 0.

    Actions that are expected to be rare in a state are one action.
    """
    common = expected >= LEAST_EXPECTED
    rare_logged = np.where(common, 0.0, logged).sum(axis=1)
    rare = np.where(common, 0.0, expected).sum(axis=1)
    squares = np.where(common, (logged - expected) ** 2 / np.where(common, expected, 1.0), 0.0)
    together = rare >= LEAST_EXPECTED
    # too rare even together: their rows count against a least expectation
    more = (rare_logged - rare) ** 2 / np.maximum(rare, LEAST_EXPECTED)
    free = float(np.maximum(common.sum(axis=1) + together - 1, 0).sum())
    if free == 0.0:
        return 0.0
    return float((squares.sum() + more.sum() - free) / np.sqrt(2.0 * free))
