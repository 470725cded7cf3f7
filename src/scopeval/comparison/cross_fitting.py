r"""From episodes of a mixture to one value of every policy in every episode.

The questions are the baseline's value and the differences of the others to it. For each of them
held-out episodes choose the estimator of the least variance. What an estimator needs (centers c_k,
levels b_k(t), control variates b_k) and the choice come from *other* episodes and from logs:

    fold f of the episodes  <-  fits from logs and all other folds, by the estimator whose values
                                vary least: those of all other folds h, by fits from neither f nor h

Given everything outside of the fold its values are independent and have the right mean, so that
their mean over all folds is exactly unbiased. That the mean of all of them is normal for many
episodes, also at all times together, is Theorem 3.2 of Waudby-Smith et al. (Annals of Statistics
2024; "sequential cross-fitting").

Values of two folds f and g depend on each other, since each learns from the other, and their means
M_f and M_g have a covariance, which the spread of the values does not show. Let M_f^g be the mean
of fold f by fits and choice from neither f nor g. Given all other folds M_f^g depends on f alone,
and M_g - M_g^f has mean 0 given all but g; so all products but one have mean 0:

    Cov(M_f, M_g) = E[ (M_f - M_f^g) (M_g - M_g^f) ]

The sum of these products over all pairs is an unbiased estimate of what the variance lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, permutations

import numpy as np

from scopeval.arrays import Bools, Floats, Ints, least
from scopeval.comparison.context import Guessed, JointContext
from scopeval.comparison.estimators import (
    ControlLearner,
    Controls,
    centers_of,
    doubly_robust,
    full_trajectory,
    levels_of,
    per_decision,
)
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.context.features import BlockMeans
from scopeval.logs.transitions import Transitions

__all__ = ["ESTIMATORS", "Analyst", "Judged", "contrasts"]

#: In order of preference among equals. The last one is there where there are logs: they may be of
#: another world, and what they teach then is worse than what the episodes alone do.
ESTIMATORS = ("full trajectory", "per decision", "doubly robust", "doubly robust without the logs")
#: How exogenous paths are used, beside not at all: the number of an estimator's group.
BY_EPISODE, BY_STEP = 1, 2
#: Folds of the episodes; each is judged by what the others show.
FOLDS = 5
#: With control variates that take long to learn: learned from one, chosen by another, applied.
SLOW_FOLDS = 3
#: The floor is left only for an estimator that is better by more than the noise of a choice.
LEAST_GAIN = 0.97


@dataclass(frozen=True)
class Judged:
    """The values of episodes.

    Attributes:
        values: [N, K], a column for each policy; NaN where the episode has no value for it. The
            difference of two columns is an unbiased value of the policies' difference.
        chosen: [N, K] number of the estimator: of the baseline's value, and of each difference.
        fold: [N] the fold of each; None: no fold has learned from another.
        learned: [N, F, K] by how much the values are changed by what fold f has taught.
        plain: the same without exogenous paths; None: there is no context.
        removed: [m, K] what was removed with them, over the history's paths.
    """

    values: Floats
    chosen: Ints
    fold: Ints | None = None
    learned: Floats | None = None
    plain: Judged | None = None
    removed: Floats | None = None


def contrasts(policies: PolicySet) -> Floats:
    """L [K, K]: the baseline's value, and in the other rows the differences to it."""
    L = np.eye(len(policies))
    L[:, policies.baseline] -= 1.0
    L[policies.baseline, policies.baseline] = 1.0
    return L


@dataclass(frozen=True)
class _Fitted:
    """What the estimators need, learned from other episodes; control variates come beside it."""

    centers: Floats
    levels: Floats
    guessed: Guessed | None


@dataclass(frozen=True)
class _Sample:
    """Episodes, with their exogenous paths and what is the same for all fits.

    Attributes:
        episodes: of it.
        own: exogenous paths; None: there is no context.
        control: b_k and bbar_k by control variates that no fold teaches; None: there are none.
    """

    episodes: MixtureEpisodes
    own: BlockMeans | None
    control: tuple[Floats, Floats] | None = None

    def __len__(self) -> int:
        return len(self.episodes)

    def select(self, rows: Bools | Ints) -> _Sample:
        """Some of them."""
        own = None if self.own is None else self.own.rows(rows)
        control = None
        if self.control is not None:
            control = (self.control[0][rows], self.control[1][rows])
        return _Sample(self.episodes.select(rows), own, control)


class Analyst:
    """Gives values to episodes, by what is known from others.

    Args:
        policies: of the comparison.
        gamma: discount.
        learner: of control variates; None: there are none.
        logs: of past operation; None: there are none.
        seed: of the folds.
        controls: that are known, and not learned; None: there are none.
        context: exogenous paths; None: there are none.

    Attributes:
        policies: the same.
        context: the same.
    """

    def __init__(
        self,
        policies: PolicySet,
        gamma: float,
        learner: ControlLearner | None,
        logs: Transitions | None,
        seed: int,
        controls: Controls | None = None,
        context: JointContext | None = None,
    ) -> None:
        self.context = context
        self.policies, self._gamma, self._learner = policies, gamma, learner
        self._logs = logs
        self._L = contrasts(policies)
        self._back = np.linalg.inv(self._L)
        self._seed = seed
        self._standing = controls  # from nobody's fold
        if controls is None and learner is not None and not learner.quick and logs is not None:
            self._standing = next(learner.learn([logs], [[0]]))

    def judge(self, episodes: MixtureEpisodes, groups: Ints | None = None) -> Judged:
        """Values of all episodes; of a single one there are no others to learn from.

        Args:
            episodes: to be judged.
            groups: episodes that may depend on each other, by number: they share a fold.
        """
        N, K = len(episodes), len(self._L)
        if N < 2:
            values = full_trajectory(episodes, self._gamma, np.zeros(K))
            values[~episodes.taking_part] = np.nan
            return Judged(values, np.zeros(values.shape, np.int64))
        slow = self._learner is not None and not self._learner.quick and self._standing is None
        whole = np.arange(N) if groups is None else groups
        many = int(whole.max()) + 1
        fold = _folds(many, min(SLOW_FOLDS if slow else FOLDS, many), self._seed)[whole]
        F = int(fold.max()) + 1
        every = [np.flatnonzero(fold == f) for f in range(F)]
        folds = _Folds(self, self._views(episodes), every)
        ring = slow and F == SLOW_FOLDS
        if ring:
            folds.close_ring()
        else:
            folds.leave_out()
        # with exogenous paths as far as others confirm them, and without
        values, chosen = np.empty((2, N, K)), np.empty((N, K), np.int64)
        learned, removed = np.zeros((2, N, F, K)), self._nothing_removed()
        for f, rows in enumerate(folds.rows):
            values[:, rows], choice = folds.values(frozenset([f]), f)
            chosen[rows] = choice % len(ESTIMATORS)
            guessed = folds.fit(frozenset([f])).guessed
            if removed is not None and guessed is not None and self.context is not None:
                way, part = choice // len(ESTIMATORS), len(rows) / N
                taken = self.context.share * (guessed.paths @ self._L.T)
                removed += part * np.where(way == BY_EPISODE, taken, 0.0)
                if (way == BY_STEP).any():  # the same for all policies
                    same = np.outer(self.context.removed_by_step(self._gamma), self._L.sum(axis=1))
                    removed += part * np.where(way == BY_STEP, same, 0.0)
        for f, g in () if ring or F < 3 else permutations(range(F), 2):
            less = values[:, folds.rows[f]] - folds.values(frozenset([f, g]), f)[0]
            learned[:, folds.rows[f], g] = less @ self._back.T
        values = values @ self._back.T
        values[:, ~episodes.taking_part] = np.nan
        found = [Judged(y, chosen, fold, some) for y, some in zip(values, learned, strict=True)]
        if removed is None:
            return found[0]
        return replace(found[0], plain=found[1], removed=removed @ self._back.T)

    def _views(self, episodes: MixtureEpisodes) -> list[_Sample]:
        """The episodes as they are, and less what their paths say of every step's reward."""
        control = None if self._standing is None else self._standing.over(episodes)
        if self.context is None:
            return [_Sample(episodes, None, control)]
        views = [_Sample(episodes, self.context.described(episodes), control)]
        less = self.context.by_step(episodes)
        return views if less is None else [*views, _Sample(less, None, control)]

    def _nothing_removed(self) -> Floats | None:
        """[m, K] zeros; None: there is no context."""
        if self.context is None:
            return None
        return np.zeros((len(self.context.history.paths), len(self._L)))

    @property
    def many(self) -> int:
        """Number E of estimators: each without context, then each by every use of it."""
        if self.context is None:
            return len(ESTIMATORS)
        last = BY_EPISODE if self.context.history.rewards is None else BY_STEP
        return len(ESTIMATORS) * (1 + last)

    def fit(self, known: _Sample) -> _Fitted:
        """From these episodes."""
        episodes, gamma, guessed = known.episodes, self._gamma, None
        if self.context is not None and known.own is not None:
            guessed = self.context.learn(episodes, known.own, gamma)
        return _Fitted(centers_of(episodes, gamma), levels_of(episodes, gamma), guessed)

    def controls(
        self, parts: Sequence[_Sample], fits: Sequence[Sequence[int]], *, quick: bool = True
    ) -> Iterator[tuple[Controls, ...]]:
        """Control variates by some of the parts, for each of the fits.

        Of learning in milliseconds by logs too, and by the parts alone.

        Args:
            parts: of the episodes.
            fits: numbers of parts.
            quick: none where learning takes long.
        """
        learner = self._learner
        if self._standing is not None or learner is None or (quick and not learner.quick):
            yield from (() for _ in fits)
            return
        rows = [part.episodes.transitions() for part in parts]
        asked, each = [list(fit) for fit in fits], 1
        if self._logs is not None and learner.quick:
            rows.append(self._logs)
            asked = [rest for fit in asked for rest in ([*fit, len(parts)], fit)]
            each = 2
        made = learner.learn(rows, asked)
        for _ in fits:
            yield tuple(one for one in islice(made, each) if one is not None)

    def answers(
        self, fitted: _Fitted, controls: Sequence[Controls], sample: _Sample
    ) -> dict[int, Floats]:
        """[N, K], a column a question, for each estimator that there is, by its number."""
        gamma, episodes = self._gamma, sample.episodes
        each = {
            0: full_trajectory(episodes, gamma, fitted.centers),
            1: per_decision(episodes, gamma, fitted.levels),
        }
        given = [] if sample.control is None else [sample.control]
        given += [one.over(episodes) for one in controls]
        for number, (control, baseline) in enumerate(given, 2):
            each[number] = doubly_robust(episodes, gamma, control, baseline)
        if self.context is not None and fitted.guessed is not None and sample.own is not None:
            removed = self.context.removed(fitted.guessed, episodes, sample.own)
            each |= {BY_EPISODE * len(ESTIMATORS) + i: y - removed for i, y in each.items()}
        return {
            i: np.asarray(np.where(episodes.taking_part, y, 0.0) @ self._L.T)
            for i, y in each.items()
        }


class _Folds:
    """What some folds teach of others.

    Args:
        analyst: fits and applies.
        views: all episodes; as they are, and less what paths say of their rewards.
        rows: of each fold.
    """

    def __init__(self, analyst: Analyst, views: list[_Sample], rows: list[Ints]) -> None:
        self.rows, self._analyst, self._views = rows, analyst, views
        self._parts = [[view.select(each) for each in rows] for view in views]
        self._fits: dict[frozenset[int], _Fitted] = {}
        self._answers: dict[tuple[frozenset[int], int], dict[int, Floats]] = {}
        self._spreads: dict[frozenset[int], Floats] = {}

    def leave_out(self) -> None:
        """Fits without one fold, without two, and without three, and their answers of these."""
        F = len(self.rows)
        sizes = range(1, max(min(F - 1, 3), 1) + 1)
        outs = [frozenset(out) for size in sizes for out in combinations(range(F), size)]
        rest = [self._rest(out) for out in outs]
        learned = [self._analyst.controls(parts, rest) for parts in self._parts]
        for out, *controls in zip(outs, *learned, strict=True):
            fits = [self._analyst.fit(self._others(out, view)) for view in self._views]
            self._fits[out] = fits[0]
            for f in out:
                self._answers[out, f] = self._answered(fits, controls, f)

    def close_ring(self) -> None:
        """For what takes long to learn: the next fold teaches it, and the one after it chooses.

        So no two folds teach each other, but for centers and levels.
        """
        F, analyst = len(self.rows), self._analyst
        alone = [[f] for f in range(F)]
        each = (analyst.controls(parts, alone, quick=False) for parts in self._parts)
        learned = list(zip(*each, strict=True))
        for f in range(F):
            by, judge, out = (f + 1) % F, (f + 2) % F, frozenset([f])
            by_one = [analyst.fit(parts[by]) for parts in self._parts]
            self._spreads[out] = self._spread([self._answered(by_one, learned[by], judge)])
            fits = [analyst.fit(self._others(out, view)) for view in self._views]
            self._fits[out] = fits[0]
            self._answers[out, f] = self._answered(fits, learned[by], f)

    def _answered(
        self, fits: Sequence[_Fitted], controls: Sequence[tuple[Controls, ...]], f: int
    ) -> dict[int, Floats]:
        """Answers of fold f by all estimators, in all views."""
        found = self._analyst.answers(fits[0], controls[0], self._parts[0][f])
        for fitted, control, parts in zip(fits[1:], controls[1:], self._parts[1:], strict=True):
            answers = self._analyst.answers(fitted, control, parts[f])
            found |= {BY_STEP * len(ESTIMATORS) + i: y for i, y in answers.items()}
        return found

    def _rest(self, out: frozenset[int]) -> list[int]:
        """All folds but some; a single fold has only itself."""
        every = range(len(self.rows))
        return [f for f in every if f not in out] or list(every)

    def _others(self, out: frozenset[int], view: _Sample) -> _Sample:
        return view.select(np.concatenate([self.rows[f] for f in self._rest(out)]))

    def fit(self, out: frozenset[int]) -> _Fitted:
        """By all folds but some."""
        return self._fits[out]

    def spread(self, out: frozenset[int]) -> Floats:
        """[E, K] variance of an answer by each estimator, as folds that are not left out show."""
        if out not in self._spreads:
            held = [h for h in range(len(self.rows)) if h not in out]
            some = held if len(held) > 1 else []
            self._spreads[out] = self._spread([self._answers[out | {h}, h] for h in some])
        return self._spreads[out]

    def _spread(self, answers: list[dict[int, Floats]]) -> Floats:
        """Of all answers together; inf: there is no such estimator, or too little to judge it."""
        spread = np.full((self._analyst.many, len(self._analyst.policies)), np.inf)
        for number in answers[0] if answers else ():
            y = np.concatenate([one[number] for one in answers if number in one])
            if all(number in one for one in answers) and len(y) > 1:
                spread[number] = y.var(axis=0, ddof=1)
        return spread

    def values(self, out: frozenset[int], f: int) -> tuple[Floats, Ints]:
        """[2, n, K] answers of fold f, with exogenous paths and without, and who gave them."""
        spread, answers = self.spread(out), self._answers[out, f]
        without = _preferred(spread[: len(ESTIMATORS)])
        choice = without if len(self.rows) == 1 else _preferred(spread)
        picked = [
            np.stack([answers[c][:, q] for q, c in enumerate(each)], axis=1)
            for each in (choice, without)
        ]
        return np.stack(picked), choice


def _preferred(spread: Floats) -> Ints:
    """[K] the estimator of least variance; the floor where it is not known."""
    if not np.isfinite(spread[0]).all():
        return np.zeros(spread.shape[1], np.int64)
    floor = np.where(spread[0] > 0, spread[0], 1.0)
    relative = np.where(
        spread[0] > 0, spread / floor / LEAST_GAIN, np.where(spread > 0, np.inf, 1.0)
    )
    relative[0] = 1.0
    return np.array([least(column) for column in relative.T])


def _folds(count: int, folds: int, seed: int) -> Ints:
    """A fold for each episode: every `folds` episodes in a row are one of each, in random order.

    The folds of the first episodes do not depend on how many follow.
    """
    rng = np.random.default_rng((seed, 31))
    blocks = np.tile(np.arange(folds), (-(-count // folds), 1))
    return np.asarray(rng.permuted(blocks, axis=1).ravel()[:count])
