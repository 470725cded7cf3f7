r"""g, a guess of an episode's value from its path: ridge regression, chosen by held-out errors.

For every `Level` of features and every strength of the ridge, each episode is predicted from the
others (leave one out, in closed form). A prediction is shrunk by the factor in [0, 1] that suits
those held-out predictions, and the best of them is taken where it beats the plain mean; else g = 0.
All that looks at the given episodes only: whoever applies g to others, or to a history that is
independent of them, applies a fixed function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from scopeval.arrays import Floats
from scopeval.context.features import BlockMeans, Level, PathFeatures

__all__ = ["Guesses", "learn_guesses"]

#: Strengths of the ridge, in units of the number of episodes (features have deviation 1).
_STRENGTHS = np.geomspace(1e-3, 10.0, 9)
#: Episodes for each feature: with fewer of them the level is not tried.
_EPISODES_PER_FEATURE = 2
#: So many levels in a row that are no better end the search.
_PATIENCE = 3
#: Fewer episodes than this teach nothing.
FEWEST = 8


@dataclass(frozen=True)
class Guesses:
    """g of K questions: of each, features and their coefficients.

    Attributes:
        parts: features, questions [k] that use them, and coefficients [p, k].
        questions: K.
        kept: [K] share of the values' held-out variance that g leaves; 1: g = 0.
        given: g is the user's own guess, for all questions.
    """

    parts: tuple[tuple[PathFeatures, list[int], Floats], ...]
    questions: int
    kept: Floats
    given: bool = False

    @classmethod
    def before(cls, questions: int, *, guess: bool) -> Guesses:
        """What is known before the first episode: nothing, or the user's guess."""
        return cls((), questions, np.ones(questions), guess)

    def of(self, paths: BlockMeans) -> Floats:
        """[n, K], for n paths."""
        if self.given:
            return np.repeat(paths.of(1)[:, :1], self.questions, axis=1)
        found = np.zeros((len(paths), self.questions))
        for features, which, coefficients in self.parts:
            first = 0
            for piece in features.pieces(paths):
                found[first : first + len(piece), which] = piece @ coefficients
                first += len(piece)
        return found


@dataclass
class _Best:
    """The best coefficients so far of one question."""

    error: float
    level: int = -1
    coefficients: Floats = field(default_factory=lambda: np.zeros(0))


def learn_guesses(
    paths: BlockMeans,
    values: Floats,
    levels: Sequence[Level],
    *,
    guess: bool = False,
    weights: Floats | None = None,
) -> Guesses:
    """From episodes with n paths and values [n, K].

    Args:
        paths: of the episodes.
        values: of the episodes, for each question.
        levels: how closely paths may be described.
        guess: the paths are [n, 1, 1], a guess of the value itself: the regression is about what is
            left of the value, so that little evidence keeps the guess.
        weights: [n] above 0, how much an episode counts; None: all the same. Errors are weighted
            by their squares, which is the variance of a weighted value.
    """
    n, K = values.shape
    w = np.ones(n) if weights is None else weights / weights.mean()
    prior = paths.of(1)[:, :1] if guess else np.zeros((n, 1))
    centered = _less_mean(values - prior, w)
    plain = _squares(_less_mean(values, w), w)
    best = [_Best(error) for error in plain]
    if guess:
        for k, error in enumerate(_squares(centered, w)):
            if error < best[k].error:
                best[k] = _Best(error, 0, np.zeros(1))
    features: dict[int, PathFeatures] = {}
    idle = 0
    many = float(w.sum() ** 2 / (w**2).sum())  # what the episodes are worth
    for number, level in enumerate(levels if many >= FEWEST else ()):
        _, length, width = paths.paths.shape
        columns = level.columns(width)
        if length < level.blocks or columns * _EPISODES_PER_FEATURE > many:
            continue
        if idle == _PATIENCE:
            break
        features[number] = PathFeatures.learn(paths, level)
        better = _try(features[number].of(paths), centered, w, number, best)
        idle = 0 if better else idle + 1
    parts = []
    for number in sorted({one.level for one in best} - {-1}):
        made = features.get(number) or PathFeatures.learn(paths, levels[number])
        which = [k for k in range(K) if best[k].level == number]
        slope = np.stack([best[k].coefficients for k in which], axis=1)
        if guess:  # the guess itself, in units of its feature
            spread = np.where(np.isfinite(made.spread), made.spread, 0.0)
            slope = slope + (made.scale * spread)[:, None]
        parts.append((made, which, slope))
    errors = np.array([one.error for one in best])
    kept = np.where(plain > 0, errors / np.where(plain > 0, plain, 1.0), 1.0)
    return Guesses(tuple(parts), K, kept)


def _less_mean(x: Floats, w: Floats) -> Floats:
    """Columns less their weighted means."""
    return np.asarray(x - w @ x / w.sum())


def _squares(centered: Floats, w: Floats) -> Floats:
    """[K] sums of squares of weighted held-out errors of the weighted mean."""
    held_out = w * w.sum() / np.maximum(w.sum() - w, 1e-9)
    return np.asarray(((held_out[:, None] * centered) ** 2).sum(axis=0))


def _try(design: Floats, centered: Floats, w: Floats, level: int, best: list[_Best]) -> bool:
    """Ridge of all strengths: `best` is replaced where a held-out error is smaller; was any?"""
    better = False
    n = len(design)
    root = np.sqrt(w)[:, None]
    left, sizes, right = np.linalg.svd(root * _less_mean(design, w), full_matrices=False)
    along, square = left.T @ (root * centered), left * left
    energy_of_values = ((w[:, None] * centered) ** 2).sum(axis=0)
    for strength in _STRENGTHS * n:
        shrunk = sizes**2 / (sizes**2 + strength)
        errors = centered - left @ (shrunk[:, None] * along) / root
        errors /= (1.0 - w / w.sum() - square @ shrunk)[:, None]
        predicted = _less_mean(centered - errors, w)
        energy = ((w[:, None] * predicted) ** 2).sum(axis=0)
        common = (w[:, None] ** 2 * centered * predicted).sum(axis=0)
        factor = np.clip(common / np.where(energy > 0, energy, 1.0), 0.0, 1.0)
        error = energy_of_values - 2.0 * factor * common + factor**2 * energy
        for k in np.flatnonzero(error < [one.error for one in best]):
            slope = right.T @ (sizes / (sizes**2 + strength) * along[:, k])
            best[k] = _Best(float(error[k]), level, factor[k] * slope)
            better = True
    return better
