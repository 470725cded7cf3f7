r"""Values of episodes without the noise that their exogenous paths explain.

With n episodes (values Y_i, paths xi_i) and m paths of history, and g a function of a path that is
fixed before episode i is run,

    Z_i = Y_i - k ( g(xi_i) - mean of g over the history ),        k = m / (m + n)

has the mean of Y, because no action changes the path: its law is the same under the behavior and
the target policy, and the history's. The variance of the mean of Z is

    Var(Y - k g) / n  +  k^2 Var(g) / m

where the second part is the same for all episodes and does not shrink with n. g comes from other
episodes, all of its choices included: from the other folds where the number of episodes is fixed
(`cross_fitted`), from earlier ones where it is not, and in stages (`Adjuster`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats
from scopeval.context.features import BlockMeans
from scopeval.context.history import History
from scopeval.context.regression import Guesses, learn_guesses
from scopeval.estimation.moments import Interval, Moments, moments_interval, quantile

__all__ = ["FIRST", "Adjusted", "Adjuster", "cross_fitted", "fixed_interval"]

#: Folds of a sample; each is judged by what the others show. Few episodes have more of them.
_FOLDS, _MORE_FOLDS, _FEW = 5, 10, 100
#: Earlier episodes at which g is learned for the first time, and then anew at every doubling.
FIRST = 16


@dataclass(frozen=True)
class Adjusted:
    """Values of episodes with K questions, less what their paths explain.

    Attributes:
        values: [n, K].
        error: [K] standard error of the history's means: the part that n does not reduce.
        share: k.
    """

    values: Floats
    error: Floats
    share: float


def cross_fitted(
    values: Floats, paths: Floats, history: History, *, planned: int | None = None, seed: int = 0
) -> Adjusted:
    """Adjust the values of a number of episodes that was fixed in advance.

    Args:
        values: [n, K], unbiased for K questions; all have the same paths.
        paths: [n, L, d] of the episodes, as `History.paths_of` gives them.
        history: paths of the same columns.
        planned: how many episodes were planned; default n.
        seed: of the folds.
    """
    own, others = BlockMeans(history.inputs(paths)), history.described
    return _crossed(values, own, others, history, planned or len(values), seed)


def fixed_interval(found: Adjusted, history: History, alpha: float, method: str = "t") -> Interval:
    """Of the first question, for a number of episodes that was fixed in advance."""
    moments = Moments()
    moments.merge(found.values[:, 0])
    plain = moments_interval(moments, alpha=alpha, method=method)
    if moments.constant:
        return plain
    half = plain.half_width
    if method == "t" and math.isfinite(half):
        half *= quantile(alpha, 1.0 + _freedom(found.values[:, 0])) / quantile(alpha, moments.n)
    ours = history.quantile(alpha) * float(found.error[0])
    half = math.hypot(half, ours)
    return replace(plain, low=plain.estimate - half, high=plain.estimate + half)


def _freedom(values: Floats) -> float:
    """Degrees of freedom 2 / Var(s^2 / sigma^2) of the sample variance, n - 1 for normal values.

    What is left of a value where its path explains most of it is small on most days and large on a
    few: the fourth moment says how little a sample variance is then known.
    """
    n, off = len(values), values - values.mean()
    excess = float((off**4).mean() / (off**2).mean() ** 2) - 3.0
    return 2.0 / (2.0 / (n - 1) + max(excess, 0.0) / n)


@dataclass
class _Part:
    """Episodes whose values were adjusted by one g: their weight, and the error [K] of its mean."""

    error: Floats
    weight: float = 0.0


class Adjuster:
    """Adjusts values by what *earlier* episodes say, so that one may stop at any time.

    g is learned anew whenever the number of episodes has doubled. All their means over the history
    together are off by at most `margin` with probability 1 - alpha: the b-th of them has the level
    6 alpha / (pi b)^2.

    Args:
        history: paths.
        questions: K values of each episode.
        planned: how many episodes there may be; it decides the share k, which must be fixed.

    Attributes:
        history: paths.
        share: k.
        n: number of episodes so far.
        weight: how much an episode counts that follows, as in stages.
    """

    def __init__(self, history: History, questions: int = 1, planned: int = 1) -> None:
        self.history = history
        self.share = history.share(planned)
        self.n, self.weight = 0, 1.0
        self._planned, self._questions = planned, questions
        self._values: list[Floats] = []
        self._own: list[Floats] = []
        self._parts: list[_Part] = []
        self._next = FIRST
        self._use(Guesses.before(questions, guess=history.guesses))

    def _use(self, guesses: Guesses) -> None:
        self._guesses = guesses
        guessed = guesses.of(self.history.described)
        self._mean = self.history.mean(guessed)
        self._parts.append(_Part(self.share * self.history.error(guessed)))

    def add(self, values: Floats, paths: Floats) -> Floats:
        """Adjusted values [n, K] of the episodes that follow, with paths [n, L, d]."""
        own = BlockMeans(self.history.inputs(paths))
        found = np.array(values, np.float64)
        first = 0
        while first < len(values):
            last = min(first + self._next - self.n, len(values))
            part = slice(first, last)
            found[part] -= self.share * (self._guesses.of(own.rows(part)) - self._mean)
            self._parts[-1].weight += self.weight * (last - first)
            self._values.append(values[part])
            self._own.append(own.paths[part])
            self.n += last - first
            if self.n == self._next:
                self._next *= 2
                known = BlockMeans(np.concatenate(self._own))
                self._use(_learned(self.history, known, np.concatenate(self._values)))
            first = last
        return found

    def crossed(self) -> Adjusted:
        """The values again, adjusted by other folds: for a number of episodes fixed in advance."""
        own = BlockMeans(np.concatenate(self._own))
        return _crossed(
            np.concatenate(self._values), own, self.history.described, self.history, self._planned
        )

    @property
    def error(self) -> Floats:
        """[K] standard error that the means over the history bring, at most."""
        return self._mixed([part.error for part in self._parts])

    def margin(self, alpha: float) -> Floats:
        """[K] what the means over the history are off by at most, at all times at once."""
        off, b = [], 0
        for part in self._parts:
            b += bool(part.error.any())
            level = 6.0 * alpha / (math.pi * max(b, 1)) ** 2
            uncertain = part.error.any()
            off.append(self.history.quantile(level) * part.error if uncertain else part.error)
        return self._mixed(off)

    def _mixed(self, each: list[Floats]) -> Floats:
        """Weighted mean over the parts."""
        weights = [part.weight for part in self._parts]
        total = sum(weights) or 1.0
        return np.asarray(sum(w / total * one for w, one in zip(weights, each, strict=True)))


def _learned(history: History, own: BlockMeans, values: Floats) -> Guesses:
    return learn_guesses(own, values, history.levels, guess=history.guesses)


def _crossed(
    values: Floats,
    own: BlockMeans,
    others: BlockMeans,
    history: History,
    planned: int,
    seed: int = 0,
) -> Adjusted:
    n, K = values.shape
    share = history.share(planned)
    folds = min(_FOLDS if n >= _FEW else _MORE_FOLDS, n)
    fold = np.random.default_rng(seed).permutation(n) % folds
    found, over = np.array(values, np.float64), np.zeros((len(others), K))
    for f in range(folds if n > 1 else 0):
        held = fold == f
        learned = _learned(history, own.rows(~held), values[~held])
        guessed = learned.of(others)
        found[held] -= share * (learned.of(own.rows(held)) - history.mean(guessed))
        over += held.mean() * guessed
    return Adjusted(found, share * history.error(over), share)
