r"""A comparison without the noise that exogenous paths explain.

Policy k has its own guess g_k of its return from the path xi of an episode, and

    Z_k = Y_k - s u_k ( g_k(xi) - mean of g_k over the history ),       s = m / (m + n)

with the whole weight u_k of the episode has the mean of Y_k: given the path the mean of u_k is 1,
since no action changes the path. The noise must be taken out inside of the weight. Where policies
are unrelated, an episode serves one of them alone, with u_k = 1 / p_k, and subtracting a guess of
the *difference* of two policies would leave the path's noise in each.

g_k is learned from other folds, by a regression of returns that are weighted by u_k. Whether it is
used is one more choice of the estimator, made by held-out episodes for each question.

Policies that have much in common are judged step by step, with weights u_k(t) that still change.
There the noise must be taken out of each reward before it is weighted, by a guess h_t of it,

    R_t - s ( h_t(xi) - mean of h_t over the history ),

which holds for all steps, also after an episode's end. h is the user's (`History.rewards`), fixed
before the episodes; everything else is then learned from these rewards. The mean over the history
is the same for all policies, so that no difference has its error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from scopeval.arrays import Floats
from scopeval.collection.environments import EnvironmentPool
from scopeval.collection.episodes import discounts
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.context.control import FIRST
from scopeval.context.exogeneity import FEWEST, column_tests, exogeneity_warnings, steps_of
from scopeval.context.features import BlockMeans
from scopeval.context.history import History
from scopeval.context.laws import copies, law_differences, outside
from scopeval.context.regression import Guesses, learn_guesses
from scopeval.context.report import ContextReport
from scopeval.errors import InputError
from scopeval.estimation.moments import Interval
from scopeval.evaluation.context_control import resolved_history

__all__ = ["Guessed", "HistoryError", "JointContext", "joint_context", "reports_of"]


@dataclass(frozen=True)
class Guessed:
    """g_k of every policy, learned from some episodes, less their means over the history.

    Attributes:
        each: of every policy.
        paths: [m, K] over the history's paths.
        mean: [K].
    """

    each: tuple[Guesses, ...]
    paths: Floats
    mean: Floats

    def of(self, own: BlockMeans) -> Floats:
        """[n, K] of episodes."""
        columns = [guesses.of(own)[:, 0] for guesses in self.each]
        return np.asarray(np.stack(columns, axis=1) - self.mean)


@dataclass(frozen=True)
class JointContext:
    """What a history says of episodes that serve several policies.

    Attributes:
        history: paths of what no action changes.
        share: s.
    """

    history: History
    share: float

    def described(self, episodes: MixtureEpisodes) -> BlockMeans:
        """The episodes' own paths, as regressions take them."""
        return BlockMeans(self.history.inputs(self.history.paths_of(episodes)))

    def learn(self, episodes: MixtureEpisodes, own: BlockMeans, gamma: float) -> Guessed:
        """From these episodes."""
        final, returns, part = episodes.weights[:, -1], episodes.returns(gamma), None
        each = []
        for k in range(final.shape[1]):
            part = np.flatnonzero((final[:, k] > 0) & episodes.taking_part[:, k])
            if len(part) < 2:
                each.append(Guesses.before(1, guess=self.history.guesses))
                continue
            each.append(
                learn_guesses(
                    own.rows(part),
                    returns[part, None],
                    self.history.levels,
                    guess=self.history.guesses,
                    weights=final[part, k],
                )
            )
        paths = np.stack([one.of(self.history.described)[:, 0] for one in each], axis=1)
        return Guessed(tuple(each), paths, self.history.mean(paths))

    def by_step(self, episodes: MixtureEpisodes) -> MixtureEpisodes | None:
        """The episodes less what their paths say of every step's reward; None: it says nothing."""
        history = self.history
        if history.rewards is None:
            return None
        each = history.step_rewards(history.paths_of(episodes))
        if each.shape[1] != episodes.horizon:
            raise InputError(
                f"context: rewards of paths are [n, {each.shape[1]}], expected one for each of the "
                f"{episodes.horizon} steps"
            )
        usual = history.mean(history.step_rewards(history.paths))
        return replace(episodes, reward=episodes.reward - self.share * (each - usual))

    def removed_by_step(self, gamma: float) -> Floats:
        """[m] what `by_step` takes out of a return, over the history's paths."""
        each = self.history.step_rewards(self.history.paths)
        return np.asarray(self.share * (each @ discounts(gamma, each.shape[1])))

    def removed(self, guessed: Guessed, episodes: MixtureEpisodes, own: BlockMeans) -> Floats:
        """[N, K] what is to be subtracted from the values; its mean is 0."""
        return np.asarray(self.share * episodes.weights[:, -1] * guessed.of(own))


@dataclass(frozen=True)
class HistoryError:
    """How wrong the means over the history may be.

    Attributes:
        history: of it.
        removed: [m, K] what was removed of every policy's values, over the history's paths.
    """

    history: History
    removed: Floats

    def of(self, k: int, j: int | None = None) -> float:
        """Standard error of a value, or of a difference."""
        column = self.removed[:, k] if j is None else self.removed[:, k] - self.removed[:, j]
        return float(self.history.error(column[:, None])[0])

    def widened(
        self, found: Interval, alpha: float, k: int, j: int | None, *, anytime: bool
    ) -> tuple[float, float]:
        """The ends of an interval with the error of the history counted, which misses with alpha.

        At all times: `found` misses with alpha / 2, and so do the means over the history together,
        which are learned anew at every look; those of the b-th doubling with 6 / (pi b)^2 of it.
        """
        error = self.of(k, j)
        if error == 0.0 or not math.isfinite(found.half_width):
            return found.low, found.high
        if not anytime:
            ours = self.history.quantile(alpha) * error
            below, above = found.estimate - found.low, found.high - found.estimate
            return found.estimate - math.hypot(below, ours), found.estimate + math.hypot(
                above, ours
            )
        b = max(math.floor(math.log2(max(found.n, 1) / FIRST)), 0) + 1
        ours = self.history.quantile(6.0 * (alpha / 2) / (math.pi * b) ** 2) * error
        return found.low - ours, found.high + ours


def joint_context(
    context: History | None,
    episodes: int,
    return_bound: tuple[float, float] | None = None,
    *,
    env: object = None,
    pool: EnvironmentPool | None = None,
    seed: int = 0,
) -> JointContext | None:
    """What `context` asks of a comparison; None: nothing.

    Args:
        context: as in `compare`.
        episodes: how many are planned, whatever they show.
        return_bound: its intervals have no control variate.
        env: a `TabularMDP` knows the law of its starts.
        pool: environments that can be reset.
        seed: of the resets.

    Raises:
        InputError: context of another kind, or nothing that describes a path.
    """
    history = resolved_history(context, return_bound, env=env, pool=pool, seed=seed)
    if history is None:
        return None
    if history.starts_only and history.features is None and history.numbers:
        raise InputError(
            "context: starts that are state numbers need something that describes them: "
            "History.starts(..., features=function)"
        )
    return JointContext(history, history.share(episodes))


def reports_of(
    context: JointContext,
    episodes: MixtureEpisodes,
    plain: Mapping[str, Interval],
    adjusted: Mapping[str, tuple[float, float]],
) -> dict[str, ContextReport]:
    """What the history has done for the differences.

    Args:
        context: of the comparison.
        episodes: all of them.
        plain: by name the interval without context; its standard error follows.
        adjusted: by name the squared standard errors of the difference without context and with.
    """
    history, paths = context.history, context.history.paths_of(episodes)
    differs = law_differences(history, paths)
    dependent = _dependent(episodes, history, paths)
    beyond, copied = outside(history, paths), copies(history, paths)
    return {
        name: ContextReport(
            what=history.what,
            paths=history.count,
            share=context.share,
            error=0.0,
            relative_variance=after / before if before > 0 else 1.0,
            kept=after / before if before > 0 else 1.0,
            law=history.law,
            plain=plain[name],
            differs=differs,
            dependent=dependent,
            outside=beyond,
            copied=copied,
        )
        for name, (before, after) in adjusted.items()
    }


def _dependent(episodes: MixtureEpisodes, history: History, paths: Floats) -> tuple[str, ...]:
    """Columns that depend on the actions, in words.

    For any function r_t of the path up to the next value, E[(u_k(t + 1) - 1) r_t] = 0 where no
    action influences it: its law is the same under every policy.
    """
    if history.starts_only or paths.shape[1] < 2 or len(episodes) < FEWEST:
        return ()
    steps = steps_of(episodes, history, paths)
    drawn = (episodes.weights[:, 1 : steps + 1] - 1.0) * episodes.taking_part[:, None]
    tests = column_tests(episodes, history, paths, np.asarray(drawn), None)
    return exogeneity_warnings(tests, "under some policies")
