r"""From episodes of a mixture to one value of every policy in every episode.

The questions are the baseline's value and the differences of the others to it. For each of them
held-out episodes choose the estimator of the least variance. What an estimator needs (centers c_k,
levels b_k(t), control variates b_k) and the choice come from *other* episodes and from logs:

    fold f of the episodes  <-  logs, and the other folds
        half of these       ->  fits, whose variances the other half measures: the choice
        all of these        ->  the fits that are applied to fold f

Given everything outside of the fold its values are independent and have the right mean, so that
their mean over all folds is exactly unbiased. Values of different folds depend on each other only
through the fits; that the mean of all of them is normal for many episodes, also at all times
together, is Theorem 3.2 of Waudby-Smith et al. (Annals of Statistics 2024; "sequential
cross-fitting").
"""

from __future__ import annotations

from dataclasses import dataclass

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
        plain: [N, K] the values without exogenous paths; None: there is no context.
        removed: [m, K] what was removed with them, over the history's paths.
    """

    values: Floats
    chosen: Ints
    plain: Floats | None = None
    removed: Floats | None = None

    @property
    def without_context(self) -> Judged:
        """The same with the values without exogenous paths."""
        return self if self.plain is None else Judged(self.plain, self.chosen)


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
    controls: tuple[Controls | None, ...]
    guessed: Guessed | None


@dataclass(frozen=True)
class _Sample:
    """Episodes, and their exogenous paths where there is a context."""

    episodes: MixtureEpisodes
    own: BlockMeans | None

    def __len__(self) -> int:
        return len(self.episodes)

    def select(self, rows: Bools | Ints) -> _Sample:
        """Some of them."""
        own = None if self.own is None else self.own.rows(rows)
        return _Sample(self.episodes.select(rows), own)


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
        own = None if self.context is None else self.context.described(episodes)
        sample = _Sample(episodes, own)
        each = [np.flatnonzero(fold == f) for f in range(int(fold.max()) + 1)]
        parts = [sample.select(rows) for rows in each]
        learned = self._learned_by_fold(parts) if slow and len(parts) == SLOW_FOLDS else None
        values, chosen = np.empty((N, K)), np.empty((N, K), np.int64)
        plain, removed = np.empty((N, K)), self._nothing_removed()
        for f, part in enumerate(parts):
            rest = [rows for g, rows in enumerate(each) if g != f]
            others = sample.select(np.concatenate(rest or each))
            if learned is None:
                spread = self._judged(others)
                fitted = self._fit(others, self._controls(others.episodes))
            else:
                by, judge = (f + 1) % len(parts), (f + 2) % len(parts)
                spread = self._spread(self._fit(parts[by], (learned[by],)), parts[judge])
                fitted = self._fit(others, (learned[by],))
            questions = self._questions(fitted, part)
            without = self._preferred(spread[: len(ESTIMATORS)])
            choice = self._preferred(spread) if rest else without
            for q in range(K):
                values[each[f], q] = questions[choice[q]][:, q]
                plain[each[f], q] = questions[without[q]][:, q]
            chosen[each[f]] = choice % len(ESTIMATORS)
            if removed is not None and fitted.guessed is not None and self.context is not None:
                taken = self.context.share * (fitted.guessed.paths @ self._L.T)
                removed += len(part) / N * np.where(choice >= len(ESTIMATORS), taken, 0.0)
        values, plain = values @ self._back.T, plain @ self._back.T
        values[~episodes.taking_part] = plain[~episodes.taking_part] = np.nan
        if removed is None:
            return Judged(values, chosen)
        return Judged(values, chosen, plain, removed @ self._back.T)

    def _nothing_removed(self) -> Floats | None:
        """[m, K] zeros; None: there is no context."""
        if self.context is None:
            return None
        return np.zeros((len(self.context.history.paths), len(self._L)))

    def _learned_by_fold(self, parts: list[_Sample]) -> list[Controls | None]:
        assert self._learner is not None
        return [self._learner.learn([part.episodes.transitions()]) for part in parts]

    def _judged(self, others: _Sample) -> Floats:
        """[E, K] variance of a value of each question by each estimator, by halves of others."""
        if len(others) < 4:
            return np.full((self._many, len(self._L)), np.inf)
        half = _folds(len(others), 2, self._seed) == 0
        spread = np.zeros((self._many, len(self._L)))
        for learned, judged in ((half, ~half), (~half, half)):
            known = others.select(learned)
            fitted = self._fit(known, self._controls(known.episodes))
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

    def _fit(self, known: _Sample, controls: tuple[Controls | None, ...]) -> _Fitted:
        episodes, gamma, guessed = known.episodes, self._gamma, None
        if self.context is not None and known.own is not None:
            guessed = self.context.learn(episodes, known.own, gamma)
        return _Fitted(centers_of(episodes, gamma), levels_of(episodes, gamma), controls, guessed)

    def _controls(self, known: MixtureEpisodes) -> tuple[Controls | None, ...]:
        """From logs and other episodes, and from these alone; what takes long, from logs only."""
        if self._standing is not None or self._learner is None or not self._learner.quick:
            return (self._standing,)
        seen = known.transitions()
        alone = self._learner.learn([seen])
        return (alone,) if self._logs is None else (self._learner.learn([self._logs, seen]), alone)

    def _questions(self, fitted: _Fitted, sample: _Sample) -> dict[int, Floats]:
        """[N, K], a column a question, for each estimator that there is, by its number."""
        gamma, episodes = self._gamma, sample.episodes
        each = {
            0: full_trajectory(episodes, gamma, fitted.centers),
            1: per_decision(episodes, gamma, fitted.levels),
        }
        for number, controls in enumerate(fitted.controls, 2):
            if controls is not None:
                control, baseline = controls_at(controls, self._policies, episodes)
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
