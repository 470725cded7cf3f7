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

from scopeval.arrays import Floats
from scopeval.critics.model.step_model import Encoder
from scopeval.critics.protocols import Rows

__all__ = ["NO_IDENTITIES", "Identities", "find_identities", "identities_of"]

#: Root mean square of an identity over the logs, with features and coefficients of size 1. Without
#: rounding it is 1e-8; what is no identity has 1e-2 and more.
EXACT = 1e-3
#: Rows for each feature from which on a direction without variation is no accident, and most rows.
ROWS_PER_FEATURE, MOST_ROWS = 20, 50_000
#: Most steps back to the identities, the longest one in standard units, and what is near enough.
STEPS, LONGEST, NEAR = 4, 0.5, 1e-6
#: Added to the normal equations, relative to their size: identities may depend on each other.
DAMPING = 1e-9


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
        z = (obs - self.mean) / self.scale
        return np.asarray(self.constant + z @ self.linear + (z * z) @ self.square)

    def keep(self, obs: Floats) -> Floats:
        """The observations [n, w], moved to where all identities hold."""
        if not len(self):
            return obs
        from scopeval.critics.model._identities_kernel import keep

        z = np.ascontiguousarray((obs - self.mean) / self.scale)
        keep(z, self.constant, self.linear, self.square, STEPS, LONGEST, NEAR, DAMPING)
        return np.asarray(self.mean + self.scale * z)


#: None are known.
NO_IDENTITIES = Identities(np.zeros(0), np.ones(0), np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0)))


def identities_of(rows: Rows, encoder: Encoder) -> Identities:
    """The identities of what the rows lead to: where episodes start, they may not hold yet."""
    return find_identities(np.asarray(rows.next_obs)[rows.alive > 0][:, encoder.predicted])


def find_identities(obs: Floats) -> Identities:
    """The identities that observations [n, w] obey; none if there are too few to tell."""
    obs = np.asarray(obs, np.float64)
    n, w = obs.shape
    if w == 0 or n < ROWS_PER_FEATURE * (1 + 2 * w):
        return NO_IDENTITIES
    obs = obs[:: -(-n // MOST_ROWS)]
    mean, scale = obs.mean(axis=0), obs.std(axis=0)
    varies = scale > 1e-9 * np.maximum(np.abs(mean), 1.0)
    switches = ((obs == obs.min(axis=0)) | (obs == obs.max(axis=0))).all(axis=0)
    scale = np.where(varies, scale, 1.0)
    z = np.where(varies & ~switches, (obs - mean) / scale, 0.0)
    features = np.column_stack([np.ones(len(z)), z, z * z])
    sizes = np.sqrt((features**2).mean(axis=0))
    some = np.flatnonzero(sizes > 0.0)  # entries that never vary stay as they are anyway
    moments = features[:, some] / sizes[some]
    values, vectors = np.linalg.eigh(moments.T @ moments / len(z))
    exact = np.sqrt(np.maximum(values, 0.0)) <= EXACT
    if not np.isfinite(values).all() or not exact.any():
        return NO_IDENTITIES
    found = np.zeros((1 + 2 * w, int(exact.sum())))
    found[some] = vectors[:, exact] / sizes[some, None]
    linear, square = (np.ascontiguousarray(found[k : k + w]) for k in (1, 1 + w))
    return Identities(mean, scale, found[0].copy(), linear, square)
