r"""From episodes of a mixture to one value of every policy in every episode.

The questions are the baseline's value and the differences of the others to it. For each of them
held-out episodes choose the estimator of the least variance. What an estimator needs (centers c_k,
levels b_k(t), control variates b_k) and the choice come from *other* episodes and from logs:

    fold f of the episodes  <-  logs, and the other folds
        half of these       ->  fits, whose variances the other half measures: the choice
        all of these        ->  the fits that are applied to fold f

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

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from scopeval.arrays import Bools, Floats, Ints, least
from scopeval.comparison.context import Guessed, JointContext
from scopeval.comparison.control import ControlLearner, Controls, controls_at
from scopeval.comparison.estimators import (
    centers_of,
    doubly_robust,
    full_trajectory,
    levels_of,
    per_decision,
)
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet
from scopeval.context.features import BlockMeans
from scopeval.logs.transitions import Transitions

__all__ = ["ESTIMATORS", "Analyst", "Judged", "contrasts"]

#: In order of preference among equals. The last one is there where there are logs: they may be of
#: another world, and what they teach then is worse than what the episodes alone do.
ESTIMATORS = ("full trajectory", "per decision", "doubly robust", "doubly robust without the logs")
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
    """What the estimators need, learned from other episodes."""

    centers: Floats
    levels: Floats
    controls: tuple[Controls, ...]
    guessed: Guessed | None


@dataclass(frozen=True)
class _Fit:
    """What estimators need, and the variances by which one of them is chosen, [E, K]."""

    fitted: _Fitted
    spread: Floats


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
        self._policies, self._gamma, self._learner = policies, gamma, learner
        self._logs = logs
        self._L = contrasts(policies)
        self._back = np.linalg.inv(self._L)
        self._seed = seed
        self._standing = controls  # from nobody's fold
        if controls is None and learner is not None and not learner.quick and logs is not None:
            self._standing = learner.learn([logs])

    def judge(self, episodes: MixtureEpisodes, groups: Ints | None = None) -> Judged:
        """Values of all episodes, at least two.

        Args:
            episodes: to be judged.
            groups: episodes that may depend on each other, by number: they share a fold.
        """
        N, K = len(episodes), len(self._L)
        slow = self._learner is not None and not self._learner.quick and self._standing is None
        whole = np.arange(N) if groups is None else groups
        many = int(whole.max()) + 1
        fold = _folds(many, min(SLOW_FOLDS if slow else FOLDS, many), self._seed)[whole]
        sample = _Sample(
            episodes,
            None if self.context is None else self.context.described(episodes),
            None
            if self._standing is None
            else controls_at(self._standing, self._policies, episodes),
        )
        each = [np.flatnonzero(fold == f) for f in range(int(fold.max()) + 1)]
        parts = [sample.select(rows) for rows in each]
        F = len(parts)
        ring = self._learned_by_fold(parts) if slow and F == SLOW_FOLDS else None
        # with exogenous paths as far as others confirm them, and without
        values, chosen = np.empty((2, N, K)), np.empty((N, K), np.int64)
        learned, removed = np.zeros((2, N, F, K)), self._nothing_removed()
        for f, part in enumerate(parts):
            rest = [rows for g, rows in enumerate(each) if g != f]
            others = sample.select(np.concatenate(rest or each))
            fit = self._fit(others) if ring is None else self._fit_in_ring(others, parts, f, ring)
            values[:, each[f]], choice = self._valued(fit, part, alone=not rest)
            chosen[each[f]] = choice % len(ESTIMATORS)
            guessed = fit.fitted.guessed
            if removed is not None and guessed is not None and self.context is not None:
                taken = self.context.share * (guessed.paths @ self._L.T)
                removed += len(part) / N * np.where(choice >= len(ESTIMATORS), taken, 0.0)
        if ring is None and F > 2:
            for f, g in combinations(range(F), 2):
                rest = [rows for h, rows in enumerate(each) if h not in (f, g)]
                fit = self._fit(sample.select(np.concatenate(rest)))
                for one, other in ((f, g), (g, f)):
                    less = values[:, each[one]] - self._valued(fit, parts[one])[0]
                    learned[:, each[one], other] = less @ self._back.T
        values = values @ self._back.T
        values[:, ~episodes.taking_part] = np.nan
        found = [Judged(y, chosen, fold, some) for y, some in zip(values, learned, strict=True)]
        if removed is None:
            return found[0]
        return replace(found[0], plain=found[1], removed=removed @ self._back.T)

    def _fit(self, others: _Sample) -> _Fit:
        """All of the others teach, and halves of them choose."""
        return _Fit(self._fitted(others, self._controls(others.episodes)), self._judged(others))

    def _fit_in_ring(
        self, others: _Sample, parts: list[_Sample], f: int, learned: list[tuple[Controls, ...]]
    ) -> _Fit:
        """The next fold teaches control variates, and the one after it chooses.

        So no two folds teach each other, but for centers and levels.
        """
        by, judge = (f + 1) % len(parts), (f + 2) % len(parts)
        spread = self._spread(self._fitted(parts[by], learned[by]), parts[judge])
        return _Fit(self._fitted(others, learned[by]), spread)

    def _valued(self, fit: _Fit, part: _Sample, *, alone: bool = False) -> tuple[Floats, Ints]:
        """[2, n, K] answers to the questions, with exogenous paths and without, and the choice."""
        questions = self._questions(fit.fitted, part)
        without = self._preferred(fit.spread[: len(ESTIMATORS)])
        choice = without if alone else self._preferred(fit.spread)
        answers = [
            np.stack([questions[c][:, q] for q, c in enumerate(picked)], axis=1)
            for picked in (choice, without)
        ]
        return np.stack(answers), choice

    def _nothing_removed(self) -> Floats | None:
        """[m, K] zeros; None: there is no context."""
        if self.context is None:
            return None
        return np.zeros((len(self.context.history.paths), len(self._L)))

    def _learned_by_fold(self, parts: list[_Sample]) -> list[tuple[Controls, ...]]:
        assert self._learner is not None
        made = [self._learner.learn([part.episodes.transitions()]) for part in parts]
        return [() if one is None else (one,) for one in made]

    def _judged(self, others: _Sample) -> Floats:
        """[E, K] variance of a value of each question by each estimator, by halves of others."""
        if len(others) < 4:
            return np.full((self._many, len(self._L)), np.inf)
        half = _folds(len(others), 2, self._seed) == 0
        spread = np.zeros((self._many, len(self._L)))
        for learned, judged in ((half, ~half), (~half, half)):
            known = others.select(learned)
            fitted = self._fitted(known, self._controls(known.episodes))
            spread += self._spread(fitted, others.select(judged))
        return spread

    @property
    def _many(self) -> int:
        """Number E of estimators: with a context each without, then each with it."""
        return len(ESTIMATORS) * (1 if self.context is None else 2)

    def _spread(self, fitted: _Fitted, judged: _Sample) -> Floats:
        """[E, K] variance of a value of each question by each estimator; inf: there is none."""
        spread = np.full((self._many, len(self._L)), np.inf)
        if len(judged) > 1:
            for number, values in self._questions(fitted, judged).items():
                spread[number] = values.var(axis=0, ddof=1)
        return spread

    def _preferred(self, spread: Floats) -> Ints:
        """[K] the estimator of least variance; the floor where it is not known."""
        if not np.isfinite(spread[0]).all():
            return np.zeros(spread.shape[1], np.int64)
        floor = np.where(spread[0] > 0, spread[0], 1.0)
        relative = np.where(
            spread[0] > 0, spread / floor / LEAST_GAIN, np.where(spread > 0, np.inf, 1.0)
        )
        relative[0] = 1.0
        return np.array([least(column) for column in relative.T])

    def _fitted(self, known: _Sample, controls: tuple[Controls, ...]) -> _Fitted:
        episodes, gamma, guessed = known.episodes, self._gamma, None
        if self.context is not None and known.own is not None:
            guessed = self.context.learn(episodes, known.own, gamma)
        return _Fitted(centers_of(episodes, gamma), levels_of(episodes, gamma), controls, guessed)

    def _controls(self, known: MixtureEpisodes) -> tuple[Controls, ...]:
        """From logs and other episodes, and from these alone; none where that takes long."""
        if self._standing is not None or self._learner is None or not self._learner.quick:
            return ()
        seen = known.transitions()
        rows = [[seen]] if self._logs is None else [[self._logs, seen], [seen]]
        made = [self._learner.learn(some) for some in rows]
        return tuple(one for one in made if one is not None)

    def _questions(self, fitted: _Fitted, sample: _Sample) -> dict[int, Floats]:
        """[N, K], a column a question, for each estimator that there is, by its number."""
        gamma, episodes = self._gamma, sample.episodes
        each = {
            0: full_trajectory(episodes, gamma, fitted.centers),
            1: per_decision(episodes, gamma, fitted.levels),
        }
        given = [] if sample.control is None else [sample.control]
        given += [controls_at(one, self._policies, episodes) for one in fitted.controls]
        for number, (control, baseline) in enumerate(given, 2):
            each[number] = doubly_robust(episodes, gamma, control, baseline)
        if self.context is not None and fitted.guessed is not None and sample.own is not None:
            removed = self.context.removed(fitted.guessed, episodes, sample.own)
            each |= {len(ESTIMATORS) + i: y - removed for i, y in each.items()}
        return {
            i: np.asarray(np.where(episodes.taking_part, y, 0.0) @ self._L.T)
            for i, y in each.items()
        }


def _folds(count: int, folds: int, seed: int) -> Ints:
    """A fold for each episode: every `folds` episodes in a row are one of each, in random order.

    The folds of the first episodes do not depend on how many follow.
    """
    rng = np.random.default_rng((seed, 31))
    blocks = np.tile(np.arange(folds), (-(-count // folds), 1))
    return np.asarray(rng.permuted(blocks, axis=1).ravel()[:count])
