"""Identities that all observations obey, such as sin^2 + cos^2 = 1, kept in simulated episodes.

Environments often show more numbers than they have: an angle by its sine and cosine, a rotation by
four numbers of length 1. A network is only trained where the identity holds.
Its predictions miss it by a little, from step to step by more, and soon simulated episodes are
where nothing was ever logged. There a robot may fall that never falls.

Identities of the form

    a + sum_i (b_i s_i + c_i s_i^2) = 0

are directions in which the features (1, s, s^2) of the logs do not vary at all: eigenvectors of
their second moments with eigenvalue zero. A simulated observation goes back to where all of them
hold by steps of Gauss and Newton, which change it as little as possible. Switches (0 or 1) are left
alone: between the two a prediction says how likely they are, and rounding it would hide that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scopeval._parallel import one_blas_thread
from scopeval.arrays import Bools, Floats
from scopeval.models.rows import Rows

__all__ = ["NO_IDENTITIES", "Identities", "find_identities", "identities_of"]

#: Root mean square of an identity over the logs, with features and coefficients of size 1. Without
#: rounding it is 1e-8; what is no identity has 1e-2 and more.
EXACT = 1e-3
#: By how much any row may miss it, compared with what a usual step changes: what is small compared
#: with the spread of slow entries may still be all that happens.
MISSED = 0.02
#: Rows for each feature from which on a direction without variation is no accident, and most
#: numbers that are looked at.
ROWS_PER_FEATURE, MOST_NUMBERS = 20, 2_000_000
#: Most steps back to the identities, and what is near enough.
STEPS, NEAR = 4, 1e-6
#: How far an entry is moved at most, in standard units. What is further away is uncertain rather
#: than wrong: halfway between two directions, the mean of both.
LONGEST = 1.0
#: Added to the normal equations, relative to their size: identities may depend on each other.
DAMPING = 1e-3


@dataclass(frozen=True)
class Identities:
    """Identities of observations of w entries, in standard units.

    Attributes:
        mean: [w] of the entries, and
        scale: [w] their spread; 1 for those that never vary.
        constant: [k] a of each of k identities,
        linear: [w, k] its b,
        square: [w, k] and its c.
    """

    mean: Floats
    scale: Floats
    constant: Floats
    linear: Floats
    square: Floats

    def __len__(self) -> int:
        """How many there are."""
        return len(self.constant)

    def misses(self, obs: Floats) -> Floats:
        """By how much observations [n, w] miss each identity [n, k]."""
        return self._misses((obs - self.mean) / self.scale)

    def keep(self, obs: Floats) -> Floats:
        """The observations [n, w], moved to where all identities hold, if that is near."""
        if not len(self):
            return obs
        start = (obs - self.mean) / self.scale
        z = start.copy()
        for _ in range(STEPS):
            missed = self._misses(z)
            off = np.flatnonzero((np.abs(missed) > NEAR).any(axis=1))
            if not len(off):
                break
            slopes = self.linear + 2.0 * z[off, :, None] * self.square  # [n, w, k]
            normal = np.einsum("nwj,nwk->njk", slopes, slopes)
            size = np.einsum("njj->n", normal) + 1e-12
            normal += DAMPING * size[:, None, None] * np.eye(len(self))
            step = np.linalg.solve(normal, missed[off, :, None])
            z[off] -= np.einsum("nwk,nk->nw", slopes, step[..., 0])
        near = (np.abs(z - start) <= LONGEST).all(axis=1, keepdims=True)
        return np.asarray(self.mean + self.scale * np.where(near, z, start))

    def _misses(self, z: Floats) -> Floats:
        """[n, k] for observations in standard units; a row does not look at the others."""
        linear = np.einsum("nw,wk->nk", z, self.linear)
        return np.asarray(self.constant + linear + np.einsum("nw,wk->nk", z * z, self.square))


#: None are known.
NO_IDENTITIES = Identities(np.zeros(0), np.ones(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))


def identities_of(rows: Rows, predicted: Bools) -> Identities:
    """Of the predicted entries that rows lead to: where episodes start, they may not hold yet."""
    on = np.flatnonzero(rows.goes_on)
    before, after = (
        np.asarray(obs, np.float64)[on][:, predicted] for obs in (rows.obs, rows.next_obs)
    )
    return find_identities(after, after - before)


@one_blas_thread()
def find_identities(obs: Floats, change: Floats) -> Identities:
    """The identities that observations obey; none if there are too few to tell.

    Args:
        obs: [n, w].
        change: [n, w] by how much the step that led there has changed each entry.
    """
    n, w = obs.shape
    many = 1 + 2 * w
    if w == 0 or n < ROWS_PER_FEATURE * many or not np.isfinite(obs).all():
        return NO_IDENTITIES
    some = slice(None, None, -(-n // max(MOST_NUMBERS // many, ROWS_PER_FEATURE * many)))
    obs, change = obs[some], change[some]
    mean, scale = obs.mean(axis=0), obs.std(axis=0)
    varies = scale > 1e-9 * np.maximum(np.abs(mean), 1.0)
    scale = np.where(varies, scale, 1.0)
    z = np.where(varies, (obs - mean) / scale, 0.0)
    z[:, [_is_switch(entry) for entry in z.T]] = 0.0
    features = np.column_stack([np.ones(len(z)), z, z * z])
    sizes = np.sqrt(np.einsum("ij,ij->j", features, features) / len(z))
    varying = np.flatnonzero(sizes > 0.0)  # entries that never vary stay as they are anyway
    scaled = features[:, varying] / sizes[varying]
    values, vectors = np.linalg.eigh(scaled.T @ scaled / len(z))
    exact = np.sqrt(np.maximum(values, 0.0)) <= EXACT
    coefficients = np.zeros((many, int(exact.sum())))
    coefficients[varying] = vectors[:, exact] / sizes[varying, None]
    step = np.array([_usual(one) for one in np.abs(change / scale).T])
    coefficients = coefficients[:, _holds(coefficients, z, step)]
    if not coefficients.shape[1]:
        return NO_IDENTITIES
    linear, square = (np.ascontiguousarray(coefficients[k : k + w]) for k in (1, 1 + w))
    return Identities(mean, scale, coefficients[0].copy(), linear, square)


def _is_switch(z: Floats) -> bool:
    """Whether an entry in standard units [n] has two values, about: it obeys an identity alone."""
    features = np.column_stack([np.ones(len(z)), z, z * z])
    features /= np.sqrt((features**2).mean(axis=0)) + 1e-300
    return bool(np.linalg.eigvalsh(features.T @ features / len(z))[0] <= EXACT**2)


def _usual(change: Floats) -> float:
    """The usual size of a change that is not zero."""
    some = change[change > 0.0]
    return float(np.median(some)) if len(some) else 0.0


def _holds(coefficients: Floats, z: Floats, step: Floats) -> Bools:
    """Whether every row obeys an identity, compared with what a usual step would change."""
    w = z.shape[1]
    missed = np.abs(coefficients[0] + z @ coefficients[1 : 1 + w] + (z * z) @ coefficients[1 + w :])
    linear, square = coefficients[1 : 1 + w], coefficients[1 + w :]
    weight = (step * step)[:, None]  # of sum_i step_i^2 (b_i + 2 c_i z_i)^2
    reach = (weight * linear**2).sum(axis=0) + 4.0 * (
        z @ (weight * linear * square) + (z * z) @ (weight * square**2)
    )
    return np.asarray((missed <= MISSED * np.sqrt(np.maximum(reach, 0.0)) + 1e-12).all(axis=0))
