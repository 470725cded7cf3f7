r"""Compare policies by the episodes of an A/B test that was run already.

If every episode was assigned at random, its actions came from the mixture, whatever its label was:
the label is averaged out, and each episode has a value for every policy. That needs the policies'
own probabilities. Where they do not fit what was logged the comparison is the plain A/B test, by
labels, and says so.

What is checked:

- **the order**: where the labels change more rarely than a random order would, what differs between
  the times cannot be told from what differs between the policies: refused (Wald and Wolfowitz's
  test of runs, `RUNS`);
- **the probabilities**: in the episodes of policy k, log pi_j of the actions taken less its mean
  under pi_k, for every j: what the weights are made of, in standard errors (`MISFIT`); and actions
  that a policy never takes in its own episodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.comparison.ab_test import ABTest
from scopeval.comparison.analysis import Analyst, Judged
from scopeval.comparison.context import JointContext
from scopeval.comparison.control import learner_for
from scopeval.comparison.mixture import running_weights
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.totals import Outcome, inferrer_of
from scopeval.errors import DataError, InputError
from scopeval.logs.transitions import Transitions
from scopeval.question.inference import Inference

__all__ = ["Assigned", "assigned", "judge_recorded"]

#: A random order has so few changes of the label with this probability at most: then it was none.
RUNS = 1e-3
#: Probabilities misfit what was logged by so many standard errors; by chance once in 1.7 million.
MISFIT = 5.0
#: Log probabilities below this count as this where it is judged whether they fit.
LEAST_LOG = -7.0


@dataclass(frozen=True)
class Assigned:
    """An A/B test as episodes of a mixture.

    Attributes:
        episodes: with every policy's weight, or by labels.
        groups: what was assigned as a whole, by number; None: single episodes.
        by_labels: why the labels decide alone; None: they do not.
        notes: what was found, in words.
    """

    episodes: MixtureEpisodes
    groups: Ints | None
    by_labels: str | None
    notes: tuple[str, ...]


def assigned(test: ABTest, policies: PolicySet) -> Assigned:
    """Check the test, and weigh its episodes.

    Raises:
        InputError: names that fit no label.
        DataError: the order of the labels is not random.
    """
    number, kept, notes = _numbered(test, policies)
    groups = None
    if test.group is not None:
        groups = np.unique(test.group[kept], return_inverse=True)[1]
    _check_order(number, groups, policies)
    shares = np.bincount(number, minlength=len(policies)) / len(number)
    log_probs, why = _log_probs(test, kept, number, policies)
    if why is None:
        weights = running_weights(log_probs, shares)
    else:
        final = (np.arange(len(policies)) == number[:, None]) / shares
        T = test.reward.shape[1]
        weights = np.repeat(final[:, None], T + 1, axis=1)
        weights[:, 0] = 1.0
    return Assigned(_episodes(test, kept, weights, shares), groups, why, tuple(notes))


def judge_recorded(
    found: Assigned,
    policies: PolicySet,
    inference: Inference,
    *,
    gamma: float,
    logs: Transitions | None,
    seed: int,
    context: JointContext | None = None,
) -> Outcome:
    """Values and intervals, as for episodes that were run."""
    episodes = found.episodes
    learner = None
    if found.by_labels is None:
        learner = learner_for(policies, episodes, gamma=gamma, seed=seed)
    analyst = Analyst(policies, gamma, learner, logs, seed, context=context)
    judged: Judged = analyst.judge(episodes, found.groups)
    anytime = inference.interval == "sequence"
    if anytime and found.groups is not None:
        raise InputError(
            "inference: got interval='sequence' with groups, whose intervals are for a number of "
            "episodes fixed in advance; expected 't'"
        )
    of_values = partial(
        inferrer_of,
        episodes,
        gamma=gamma,
        inference=inference,
        anytime=anytime,
        target_n=len(episodes),
        groups=found.groups,
    )
    return Outcome(
        episodes,
        judged,
        of_values(judged, context),
        anytime,
        "all episodes that were given",
        episodes.shares[-1],
        plain=None if judged.plain is None else of_values(judged.plain, None),
    )


def _numbered(test: ABTest, policies: PolicySet) -> tuple[Ints, Ints, list[str]]:
    """Number of each episode's policy, which episodes count, and what to say about the others."""
    names, counts = np.unique(test.label, return_counts=True)
    missing = [name for name in policies.names if name not in names]
    if missing:
        raise InputError(
            f"policies: got {missing[0]!r}, expected names of policies that were given to episodes:"
            f" {', '.join(map(repr, names.tolist()))}"
        )
    rare = [str(n) for n, c in zip(names, counts, strict=True) if n in policies.names and c < 2]
    if rare:
        raise DataError(f"episodes: only one was given to {rare[0]!r}, expected at least two")
    place = {name: k for k, name in enumerate(policies.names)}
    number = np.array([place.get(str(name), -1) for name in test.label], np.int64)
    kept = np.flatnonzero(number >= 0)
    notes = []
    if len(kept) < len(number):
        others = sorted(set(names.tolist()) - set(policies.names))
        notes.append(
            f"{len(number) - len(kept):,} episodes of other policies ({', '.join(others)}) are "
            "left out"
        )
    return number[kept], kept, notes


def _check_order(number: Ints, groups: Ints | None, policies: PolicySet) -> None:
    """The labels must be in random order: of episodes, or of what was assigned as a whole."""
    what = "episodes"
    if groups is not None:
        first = np.unique(groups, return_index=True)[1]
        whole = all(len(np.unique(number[groups == g])) == 1 for g in range(groups.max() + 1))
        if not whole:
            return  # assigned within the groups, each of which is compared with itself
        number, what = number[np.sort(first)], "groups"
        for k, name in enumerate(policies.names):
            if (number == k).sum() < 2:
                raise DataError(
                    f"group: {name!r} was given to fewer than two groups, so that what differs "
                    "between groups cannot be told from what differs between policies; expected "
                    "at least two groups for each policy"
                )
    changes = int((number[1:] != number[:-1]).sum())
    if _too_orderly(number, changes):
        raise DataError(
            f"policy: the policies of {len(number):,} {what} change only {changes:,} times in the "
            "order in which they stand, as if one had run after the other. What has changed with "
            "time cannot be told from what differs between the policies. Expected a random order "
            "of single episodes; where plants or weeks were assigned as a whole, name their "
            "column as group"
        )


def _too_orderly(number: Ints, changes: int) -> bool:
    """Whether a random order has so few changes with a probability of at most `RUNS`.

    A random order of N labels with shares p has N (1 - sum p^2) changes on the average. Of few
    episodes the orders are sampled, of many the number of changes is about normal.
    """
    N = len(number)
    expected = N * (1.0 - float(((np.bincount(number) / N) ** 2).sum()))
    if changes >= expected:
        return False
    if N <= 200:
        draws = int(20.0 / RUNS)
        rng = np.random.default_rng(N)
        orders = rng.permuted(np.tile(number, (draws, 1)), axis=1)
        least = int(((orders[:, 1:] != orders[:, :-1]).sum(axis=1) <= changes).sum())
        return least <= draws * RUNS
    # the variance of the number of changes is at most N / 4 (Wald and Wolfowitz 1940)
    return (expected - changes) / math.sqrt(N / 4.0) > 3.1


def _log_probs(
    test: ABTest, kept: Ints, number: Ints, policies: PolicySet
) -> tuple[Floats, str | None]:
    """Log pi_k of the actions taken, [N, T, K], and why they cannot be used; None: they can."""
    N, T, K = len(kept), test.reward.shape[1], len(policies)
    if policies.continuous or test.action.ndim > 2:
        return np.zeros((N, T, K)), (
            "the actions are vectors, of which only what was carried out is recorded, so that the "
            "labels decide alone"
        )
    log_probs = np.zeros((N, T, K))
    surprise, variance = np.zeros((K, K)), np.zeros((K, K))
    never = np.zeros(K, np.int64)
    for t in range(T):
        rows = np.flatnonzero(test.length[kept] > t)
        if not len(rows):
            break
        answers = policies.ask(test.obs[kept[rows], t], t)
        if answers.reasons:
            k, reason = next(iter(answers.reasons.items()))
            raise InputError(f"policies[{policies.names[k]!r}]: {reason} at t={t}")
        action = test.action[kept[rows], t]
        A = answers.probs.shape[2]
        if (action < 0).any() or (action >= A).any():
            raise InputError(
                f"policies: got probabilities of {A} actions, the episodes have action "
                f"{int(action.max())}; expected policies over the actions that were logged"
            )
        with np.errstate(divide="ignore"):
            log_probs[rows, t] = np.log(answers.probs[np.arange(len(rows)), :, action])
        for k in range(K):
            mine = number[rows] == k
            never[k] += int(np.isinf(log_probs[rows, t, k][mine]).sum())
            with np.errstate(divide="ignore"):
                logs = np.maximum(np.log(answers.probs[mine]), LEAST_LOG)  # [n, K, A]
            probs = answers.probs[mine, k]
            mean = np.einsum("na,nja->nj", probs, logs)
            taken = logs[np.arange(len(logs)), :, action[mine]]
            surprise[k] += (taken - mean).sum(axis=0)
            variance[k] += (np.einsum("na,nja->nj", probs, logs**2) - mean**2).sum(axis=0)
    return log_probs, _misfit(test, kept, number, policies, log_probs, surprise, variance, never)


def _misfit(
    test: ABTest,
    kept: Ints,
    number: Ints,
    policies: PolicySet,
    log_probs: Floats,
    surprise: Floats,
    variance: Floats,
    never: Ints,
) -> str | None:
    """Whether the probabilities do not fit what was logged, in words."""
    tail = "; the labels decide alone, as in a plain A/B test"
    for k, name in enumerate(policies.names):
        if never[k]:
            return (
                f"{name!r} gives probability 0 to {never[k]:,} actions of its own episodes: it is "
                f"not what was run{tail}"
            )
        spread = np.sqrt(np.maximum(variance[k], 1e-9))
        z = float(np.abs(surprise[k] / spread).max())
        if z > MISFIT:
            return (
                f"the probabilities of {name!r} do not fit the actions of its own episodes (off by "
                f"{z:.1f} standard errors): it is not what was run{tail}"
            )
    if test.probability is not None:
        steps = np.arange(test.reward.shape[1]) < test.length[kept][:, None]
        own = np.exp(log_probs[np.arange(len(kept)), :, number])
        off = (np.abs(own - test.probability[kept]) > 1e-3) & steps
        if off.any():
            return (
                f"the policies' probabilities differ from the logged ones in {int(off.sum()):,} of "
                f"{int(steps.sum()):,} steps{tail}"
            )
    return None


def _episodes(test: ABTest, kept: Ints, weights: Floats, shares: Floats) -> MixtureEpisodes:
    N, K = len(kept), len(shares)
    last, ends = test.last_obs, test.terminated
    return MixtureEpisodes(
        obs=test.obs[kept],
        action=test.action[kept],
        reward=test.reward[kept],
        cost=test.cost[kept],
        weights=weights,
        shares=np.tile(shares, (N, 1)),
        length=test.length[kept],
        last_obs=test.obs[kept, 0] if last is None else last[kept],
        terminated=np.zeros(N, np.bool_) if ends is None else ends[kept],
        index=np.arange(N),
        failed=np.zeros((N, K), np.bool_),
        whole=last is not None,
        exogenous=None if test.exogenous is None else test.exogenous[kept],
        signals=test.signals,
    )
