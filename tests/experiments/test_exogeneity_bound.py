"""The most powerful test of exogeneity has the right likelihoods, or its power bounds nothing."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.exogeneity import WORLDS, log_of, log_ratios

#: Effects so large that a wrong likelihood is seen, and so small that means exist.
EFFECTS = {"inventory": 0.05, "queue": 0.02, "battery": 0.15}


@pytest.mark.parametrize("world", WORLDS)
def test_likelihood_ratios_have_mean_1(world):
    """Of 20,000 episodes without the effect, and their inverses with it.

    Six means, 5 standard errors apart by chance: 4e-6.
    """
    effect = EFFECTS[world]
    for actual, sign in ((0.0, 1.0), (effect, -1.0)):
        log = log_of(world, 20_000, actual, np.random.default_rng(1))
        ratio = np.exp(sign * log_ratios(world, log, effect))
        assert ratio.std() > 0.05
        assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / np.sqrt(len(ratio))
        wrong = np.exp(sign * log_ratios(world, log, 2.0 * effect))
        if actual:  # the likelihood of another effect is told apart
            assert abs(wrong.mean() - 1.0) > 5.0 * wrong.std() / np.sqrt(len(wrong))


def test_the_least_influence_for_a_bias_is_along_what_the_estimate_takes_out():
    """Paths of 3 coins, g any function: d sd(g) >= bias, with equality along g.

    An influence tilts the law of a path to p (1 + e s), where s has mean 0: d = e sd(s) of an
    episode is what the best test has to see, and the bias is e E[g s].
    """
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(8))
    g = rng.normal(size=8)
    away = g - p @ g
    spread = np.sqrt(p @ away**2)

    def needed(s):
        """What the best test has to see, d sd(g), and the bias."""
        s = s - p @ s
        return np.sqrt(p @ s**2) * spread, abs(p @ (g * s))

    for s in rng.normal(size=(200, 8)):
        seen, bias = needed(s)
        assert seen > bias
    assert needed(away)[0] == pytest.approx(needed(away)[1])
