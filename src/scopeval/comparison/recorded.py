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
  under pi_k, for every j: what the weights are made of, in standard errors (`MISFIT`); whether the
  actions are far likelier by how often each was taken before (`_capital`); and actions that a
  policy never takes in its own episodes.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.episodes import Episodes
from scopeval.comparison.mixture import MixtureEpisodes, running_weights
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.totals import Outcome, PairedSettings
from scopeval.errors import DataError, InputError
from scopeval.logs.columns import ColumnMap, choose_columns
from scopeval.logs.diagnose import Problem
from scopeval.logs.read import FieldReader
from scopeval.logs.sources import open_path
from scopeval.logs.tables import Table

__all__ = ["ABTest", "Assigned", "assigned", "judge_recorded", "read_ab_test"]

#: A random order has so few changes of the label with this probability at most: then it was none.
RUNS = 1e-3
#: Probabilities misfit what was logged by so many standard errors; by chance once in 1.7 million.
MISFIT = 5.0
#: Log probabilities below this count as this where it is judged whether they fit.
LEAST_LOG = -7.0


@dataclass(frozen=True, eq=False, repr=False)
class ABTest:
    """Finished episodes of an A/B test, in the order in which they were run.

    Attributes:
        obs: state numbers [N, T], or vectors [N, T, d].
        action: numbers [N, T], or vectors [N, T, m].
        reward: [N, T]; 0 after the end.
        cost: [N, T]; 0 after the end.
        length: number of steps, [N].
        label: name of the policy that each episode was given, [N].
        last_obs: observation after the last step, [N] or [N, d]; None: not recorded.
        terminated: whether the last step ended the episode for good, [N].
        probability: of the actions taken, as they were logged, [N, T]; None: not logged.
        group: what was assigned as a whole, such as the plant or the week, [N]; None: every episode
            was assigned by itself.
        exogenous: [N, T + 1, d] signals that no action changes, as of `Episodes`; None: none.
        signals: their names.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    cost: Floats
    length: Ints
    label: NDArray[np.str_]
    last_obs: NDArray[Any] | None = None
    terminated: Bools | None = None
    probability: Floats | None = None
    group: NDArray[np.str_] | None = None
    exogenous: Floats | None = None
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.reward)
        if not rows:
            raise InputError("episodes: got none that was finished, expected some of each policy")
        self._check_columns()
        for name in ("label", "group"):
            names = getattr(self, name)
            if names is None:
                continue
            names = np.asarray(names).astype(np.str_)
            if names.shape != (rows,):
                raise InputError(
                    f"{name}: got shape {names.shape}, expected [{rows}], one for each episode"
                )
            object.__setattr__(self, name, names)

    def _check_columns(self) -> None:
        """Refuse columns that are not of the same episodes and steps, and what is no number."""
        shape = np.shape(self.reward)
        for name in ("reward", "cost", "obs", "action", "probability"):
            column = getattr(self, name)
            if column is None:
                continue
            if len(shape) != 2 or np.shape(column)[:2] != shape:
                raise InputError(
                    f"{name}: got shape {np.shape(column)}, expected {list(shape[:2])} as the "
                    "rewards, a row for each episode and a column for each step"
                )
            if name in ("reward", "cost") and not np.isfinite(column).all():
                bad = int(np.argwhere(~np.isfinite(column))[0][0])
                raise InputError(
                    f"{name}: got NaN or infinity in episode {bad} (counted from 0), expected "
                    "numbers, and 0 after the end of an episode; to leave such episodes out is "
                    "biased if what makes it NaN depends on the policy"
                )
        length = np.asarray(self.length)
        if length.shape != shape[:1] or (length < 1).any() or (length > shape[1]).any():
            raise InputError(
                f"length: got shape {length.shape} and numbers from {length.min(initial=0)} to "
                f"{length.max(initial=0)}, expected for each of {shape[0]} episodes its number of "
                f"steps, 1 to {shape[1]}"
            )

    def __len__(self) -> int:
        return len(self.reward)

    @classmethod
    def of(
        cls,
        episodes: Episodes | Mapping[str, Episodes],
        label: Sequence[str] | None = None,
        group: Sequence[str] | None = None,
    ) -> ABTest:
        """From `Episodes`: all with their labels, or those of each policy by its name.

        Args:
            episodes: by name they are put in the order of their numbers (`index`), if no number is
                there twice: then it is not known in which order they were run.
            label: name of the policy of each.
            group: what was assigned as a whole, of each.
        """
        if isinstance(episodes, Mapping):
            for name, part in episodes.items():
                if not isinstance(part, Episodes):
                    raise InputError(
                        f"episodes[{name!r}]: got {type(part).__name__}, expected Episodes, such "
                        "as collect(...) gives them"
                    )
            if label is not None:
                raise InputError("label: got it with episodes by name, leave it out")
            names = [name for name, part in episodes.items() for _ in range(len(part))]
            whole = Episodes.concat(list(episodes.values()))
            label = names
            if len(np.unique(whole.index)) == len(whole):
                order = np.argsort(whole.index, kind="stable")
                whole, label = whole.select(order), [names[i] for i in order]
            episodes = whole
        if label is None:
            raise InputError(
                "label: needed, expected the name of the policy that each episode was given"
            )
        return cls(
            obs=episodes.obs,
            action=episodes.action,
            reward=episodes.reward,
            cost=episodes.cost,
            length=episodes.length,
            label=np.asarray(label),
            last_obs=episodes.last_obs,
            terminated=episodes.terminated,
            probability=episodes.behavior_prob,
            group=None if group is None else np.asarray(group),
            exogenous=episodes.exogenous,
            signals=episodes.signals,
        )


def read_ab_test(
    source: str | os.PathLike[str],
    *,
    policy: str = "policy",
    group: str | None = None,
    probability: str | None = None,
    columns: ColumnMap | None = None,
) -> ABTest:
    """Read the episodes of an A/B test from a log, a row for every step.

    Args:
        source: a file, as for `read_logs`; the rows of an episode stand together, in order, and the
            episodes in the order in which they were run.
        policy: the column with the name of the policy that the episode was given.
        group: the column of what was assigned as a whole, such as the plant or the week.
        probability: the column of the logged probabilities of the actions taken.
        columns: which column is which field, as for `read_logs`. An ``episode`` column, or ``t``,
            tells where episodes begin.

    Raises:
        DataError: the file cannot be read, a column is missing, or an episode has two policies.
    """
    table = open_path(source)
    choices = choose_columns(table.names, columns, table.source, cost_needed=False)
    for name in (policy, group, probability):
        if name is not None and name not in table.names:
            raise DataError(
                f"{table.source}: no column {name!r}; it has {', '.join(map(repr, table.names))}; "
                "the column with the policy of each episode is named by policy="
            )
    fields, _ = FieldReader(table, choices, Problem()).gather()
    starts = _starts(fields, table.source)
    label = _names(table, policy, starts)
    rows = _Rows(starts, len(fields["obs"]))
    cost, ends = fields.get("cost"), fields.get("terminated")
    following, last = fields.get("next_obs"), rows.last
    return ABTest(
        obs=rows.padded(fields["obs"]),
        action=rows.padded(fields["action"]),
        reward=rows.padded(np.asarray(fields["reward"], np.float64)),
        cost=rows.padded(np.zeros(rows.count) if cost is None else np.asarray(cost, np.float64)),
        length=rows.length,
        label=label,
        last_obs=None if following is None else following[last],
        terminated=None if ends is None else np.asarray(ends, np.bool_)[last],
        probability=None
        if probability is None
        else rows.padded(_numbers(table, probability), fill=1.0),
        group=None if group is None else _names(table, group, starts),
    )


class _Rows:
    """Rows of a log as episodes."""

    def __init__(self, starts: Ints, count: int) -> None:
        self.count = count
        self.length = np.diff(np.append(starts, count))
        self.last = starts + self.length - 1
        self._steps = np.arange(int(self.length.max())) < self.length[:, None]

    def padded(self, rows: NDArray[Any], fill: float = 0.0) -> NDArray[Any]:
        """[N, T] or [N, T, d]."""
        out = np.full((*self._steps.shape, *rows.shape[1:]), fill, dtype=rows.dtype)
        out[self._steps] = rows
        return out


def _starts(fields: Mapping[str, NDArray[Any]], source: str) -> Ints:
    """The first row of each episode."""
    if "episode" in fields:
        number = fields["episode"]
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        if len(np.unique(number[starts])) < len(starts):
            raise DataError(
                f"{source}: the rows of some episodes do not stand together; expected them sorted "
                "by episode and time"
            )
        return np.asarray(starts, np.int64)
    if "t" not in fields:
        raise DataError(
            f"{source}: no episode column and no t, which tell where episodes begin; expected one"
        )
    return np.asarray(np.flatnonzero(fields["t"] == fields["t"].min()), np.int64)


def _names(table: Table, column: str, starts: Ints) -> NDArray[np.str_]:
    """One name for each episode."""
    names = np.array([str(x) for x in _column(table, column)], np.str_)
    mixed = names != np.repeat(names[starts], np.diff(np.append(starts, len(names))))
    if mixed.any():
        row = int(np.argmax(mixed))
        raise DataError(
            f"{table.source}: column {column!r} changes within an episode, at row {row}, to "
            f"{str(names[row])!r}; expected one for each episode"
        )
    return np.asarray(names[starts])


def _numbers(table: Table, column: str) -> Floats:
    return np.asarray([float(x) for x in _column(table, column)], np.float64)


def _column(table: Table, column: str) -> list[Any]:
    """All values of a column, as they are."""
    values: list[Any] = []
    for part in table.parts([column]):
        raw = part.columns[column]
        values += raw.to_pylist() if hasattr(raw, "to_pylist") else list(raw)
    return values


# -- which policy each episode was given, and the weights of the others --------------------------


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


def judge_recorded(found: Assigned, settings: PairedSettings) -> Outcome:
    """Values and intervals, as for episodes that were run."""
    episodes, labels = found.episodes, found.by_labels is not None
    if not labels:
        settings.policies.check_logs(settings.logs, episodes.obs[:1, 0])
    anytime = settings.inference.interval == "sequence"
    if anytime and found.groups is not None:
        raise InputError(
            "inference: got interval='sequence' with groups, whose intervals are for a number of "
            "episodes fixed in advance; expected 't'"
        )
    analyst = settings.analyst(episodes, by_labels=labels)
    return settings.outcome(
        episodes,
        analyst.judge(episodes, found.groups),
        stopped="all episodes that were given",
        shares=episodes.shares[-1],
        anytime=anytime,
        groups=found.groups,
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
                f"{int(action.min() if (action < 0).any() else action.max())}; expected policies "
                "over the actions that were logged, which are numbers from 0 on"
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
    steps = np.arange(test.reward.shape[1]) < test.length[kept][:, None]
    own = log_probs[np.arange(len(kept)), :, number]
    surely = -math.log(math.erfc(MISFIT / math.sqrt(2.0)))
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
        mine = steps & (number == k)[:, None]
        state = test.obs[kept][mine] if test.obs.ndim == 2 else np.zeros(mine.sum(), np.int64)
        if _capital(state, test.action[kept][mine], own[mine]) > surely:
            return (
                f"the probabilities of {name!r} do not fit the actions of its own episodes, which "
                f"are far likelier by how often each was taken before: it is not what was run{tail}"
            )
    if test.probability is not None:
        off = (np.abs(np.exp(own) - test.probability[kept]) > 1e-3) & steps
        if off.any():
            return (
                f"the policies' probabilities differ from the logged ones in {int(off.sum()):,} of "
                f"{int(steps.sum()):,} steps{tail}"
            )
    return None


def _capital(state: Ints, action: Ints, log_prob: Floats) -> float:
    """The largest log capital of a gambler who bets that actions come as they came before.

    The bet on action a in state s is (n(s, a) + A pi(a | s)) / (n(s) + A), with n counted over the
    steps before. If the actions are those of pi the capital, prod bet / pi, is a martingale, which
    ever reaches 1 / alpha with probability alpha at most (Ville's inequality).

    Args:
        state: of every step, in the order in which they were taken; one number for vectors.
        action: taken.
        log_prob: of it, by pi.
    """
    A = 1 + int(action.max(initial=0))
    with np.errstate(over="ignore"):
        likely = _earlier(state * A + action) * np.exp(-log_prob)
    grown = np.log((likely + A) / (_earlier(state) + A))
    return float(np.cumsum(grown).max(initial=0.0))


def _earlier(key: Ints) -> Ints:
    """How often each key was there before."""
    order = np.argsort(key, kind="stable")
    _, first, count = np.unique(key[order], return_index=True, return_counts=True)
    earlier = np.empty(len(key), np.int64)
    earlier[order] = np.arange(len(key)) - np.repeat(first, count)
    return earlier


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
