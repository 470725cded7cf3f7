"""Do paths of episodes and of a history have one law?"""

from __future__ import annotations

import numpy as np

from scopeval.arrays import Floats
from scopeval.context.history import History
from scopeval.estimation.moments import quantile

__all__ = ["copies", "law_differences", "outside"]

#: Probability with which paths of one law are said to differ, all columns together.
_ALARM = 0.01

#: Paths that are looked at for copies, at most and at least; a share of copies that is no chance.
_COMPARED, _FEWEST, _TOO_MANY = 20_000, 20, 0.2


def _summaries(paths: Floats) -> Floats:
    """[n, 2, d]: mean and spread of each column of a path."""
    return np.stack([paths.mean(axis=1), paths.std(axis=1)], axis=1)


def law_differences(history: History, paths: Floats) -> tuple[str, ...]:
    """Columns whose level or spread differs, in words; by blocks of the history.

    Two means and their standard errors for each; alarms for nothing with probability 0.01 in all.
    """
    if len(paths) < 3:
        return ()
    own, others = _summaries(paths), _summaries(history.paths)
    many = own.shape[1] * own.shape[2] // (1 + (paths.shape[1] == 1))
    limit = quantile(_ALARM / many, min(len(paths), history.blocks))
    found = []
    for i, name in enumerate(("mean", "spread within a path")):
        means, error = history.mean(others[:, i]), history.error(others[:, i])
        ours = own[:, i].mean(axis=0)
        noise = np.hypot(error, own[:, i].std(axis=0, ddof=1) / np.sqrt(len(own)))
        noise = np.where(noise > 0, noise, 1.0)
        found += [
            f"the {name} of {history.column_name(int(column))} is {ours[column]:.4g} in the "
            f"episodes and {means[column]:.4g} in the history, "
            f"{abs(ours[column] - means[column]) / noise[column]:.2g} standard errors apart"
            for column in np.flatnonzero(np.abs(ours - means) > limit * noise)
        ]
    return tuple(found)


def outside(history: History, paths: Floats) -> float:
    """Share of the history's paths whose mean is beyond all of the episodes', in some column."""
    own, others = paths.mean(axis=1), history.paths.mean(axis=1)
    beyond = (others < own.min(axis=0)) | (others > own.max(axis=0))
    return float(history.mean(beyond.any(axis=1)[:, None].astype(np.float64))[0])


def copies(history: History, paths: Floats) -> tuple[str, ...]:
    """Paths that stand in the history several times, or are the episodes' own, in words.

    Inputs of few values repeat themselves by chance, in a history as in episodes: more than that is
    a table that was joined wrongly, or a record that contains the evaluation.
    """
    own = [path.tobytes() for path in np.ascontiguousarray(paths[:_COMPARED])]
    rows = np.linspace(0, len(history.paths) - 1, min(len(history.paths), _COMPARED)).astype(int)
    others = [path.tobytes() for path in np.ascontiguousarray(history.paths[rows])]
    if len(own) < _FEWEST or len(others) < _FEWEST or history.chance is not None:
        return ()
    found = []
    some = min(len(own), len(others))
    picked = np.random.default_rng(0).permutation(len(others))[:some]
    repeated = 1.0 - len({others[i] for i in picked}) / some
    if repeated > _TOO_MANY + 1.0 - len(set(own[:some])) / some:
        found.append(
            f"the history has only {len(set(others)):,} different paths among {len(others):,}, the "
            f"episodes have {len(set(own)):,} among {len(own):,}: if paths were copied, the error "
            "of the history is larger than counted; leave out the copies"
        )
    known = set(others)
    there = sum(path in known for path in own) / len(own)
    if there > _TOO_MANY + 1.0 - len(known) / len(others):
        found.append(
            f"{100 * there:.0f}% of the episodes' own paths are in the history: then the estimate "
            "is biased and its interval too narrow; take a record from before the evaluation"
        )
    return tuple(found)
