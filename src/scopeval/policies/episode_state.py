"""What the next decision of an episode depends on, beyond the observation and the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from scopeval.arrays import Bools, Floats, Ints

__all__ = ["EpisodeState", "log_sum"]

#: Probability of the policies that still answer below which the baseline takes the rest.
NOBODY = 1e-12


@dataclass
class EpisodeState:
    """The running weights of N episodes with respect to K policies, and their returns so far.

    It belongs to what runs episodes. A design that depends on the weight reads it; others ignore
    it. With one target, u is W, the product of the ratios pi / mu so far.

    Attributes:
        log_weights: log u_k, [N, K]; -inf once an episode cannot be one of policy k.
        returned: sum of the rewards so far, [N].
    """

    log_weights: Floats
    returned: Floats

    @classmethod
    def start(cls, episodes: int, policies: int) -> EpisodeState:
        """Before the first step: all weights are 1."""
        return cls(np.zeros((episodes, policies)), np.zeros(episodes))

    @classmethod
    def of_weights(cls, weights: ArrayLike) -> EpisodeState:
        """Episodes of one target policy with these weights so far, [N]; returns are not known."""
        each = np.asarray(weights, np.float64)
        with np.errstate(divide="ignore"):
            return cls(np.log(each)[:, None], np.full(len(each), np.nan))

    @property
    def weights(self) -> Floats:
        """u_k, [N, K]."""
        return np.exp(self.log_weights)

    @property
    def weight(self) -> Floats:
        """Weights with respect to the first policy, the target of a design, [N]."""
        return np.exp(np.ascontiguousarray(self.log_weights[:, 0]))

    def select(self, rows: Ints) -> EpisodeState:
        """Some of the episodes."""
        return EpisodeState(self.log_weights[rows], self.returned[rows])

    def posterior(self, shares: Floats, answers: Bools, baseline: int) -> Floats:
        """Probability of each policy to act next, [N, K]: p_k u_k among those that answer.

        Where these have no probability left, the baseline acts, or the first that answers.

        Args:
            shares: p, [K].
            answers: which policies can be asked, [N, K].
            baseline: number of the policy that runs today.
        """
        chance = np.where(answers, shares * self.weights, 0.0)
        total = chance.sum(axis=1)
        lost = total <= NOBODY
        if lost.any():
            stands_in = np.where(answers[:, baseline], baseline, np.argmax(answers, axis=1))
            chance[lost] = np.eye(len(shares))[stands_in[lost]]
            total = chance.sum(axis=1)
        return np.asarray(chance / total[:, None])

    def act(self, log_probs: Floats, acting: Floats, answers: Bools, reward: Floats) -> None:
        """Take in one step: the weights after it, and the return.

        Args:
            log_probs: log pi_k of the action taken, [N, K].
            acting: the `posterior` that it was drawn with, [N, K].
            answers: which policies could be asked, [N, K]; the others keep their weight: their
                part of the mixture acts as the others do.
            reward: of the step, [N].
        """
        with np.errstate(divide="ignore"):
            log_mu = log_sum(np.log(acting) + np.where(answers, log_probs, -np.inf))
        change = np.where(answers, log_probs - log_mu[:, None], 0.0)
        self.log_weights = self.log_weights + change
        self.returned = self.returned + reward


def log_sum(x: Floats) -> Floats:
    """Log sum_k exp x_k by rows; -inf where all are."""
    most = x.max(axis=1)
    safe = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(safe + np.log(np.exp(x - safe[:, None]).sum(axis=1)))
