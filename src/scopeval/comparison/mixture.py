r"""The mixture of episodes: one set of episodes that serves K policies at once.

Policies pi_1 ... pi_K have shares p_k that are fixed before an episode. An A/B test draws one of
them for each episode. Seen without the label, its actions come from

    mu(a | history) = sum_k p_k u_k pi_k(a | s) / sum_k p_k u_k,     u_k = prod pi_k / mu

with the running weights u_k, 1 at the start. Always sum_k p_k u_k = 1, so that no weight exceeds
1 / p_k: p_k u_k is the probability, given the episode so far, that it is an episode of policy k.
Nothing is ever run but the policies themselves.

The action of a step is drawn from the mixture; of continuous policies first the policy, by its
probability given the episode so far, then its action. A continuous policy without a density cannot
share episodes: an action that it has drawn is its own, and one that another has drawn is not.

A policy that gives no answer in mid-episode takes no part from there on: the others act, by their
probabilities. It has no value then, and those of the others stay unbiased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.environments import EnvironmentFailure, EnvironmentPool, Outcomes
from scopeval.collection.episodes import LostEpisode, discounts
from scopeval.collection.rollout import INTERRUPTED, EpisodeStreams, draw_actions
from scopeval.collection.signal_paths import record_signals
from scopeval.comparison.policy_set import Normal, PolicySet
from scopeval.errors import PlantError
from scopeval.logs.transitions import Transitions
from scopeval.policies.episode_state import EpisodeState, log_sum
from scopeval.policies.protocols import Observations

__all__ = [
    "Failure",
    "MixtureChoice",
    "MixtureEpisodes",
    "MixtureRollout",
    "choose",
    "mixture_probs",
    "none_finished",
    "running_weights",
]

# -- episodes --------------------------------------------------------------------------------------


#: Fields with a row for each episode.
_ROWS = (
    "obs", "action", "reward", "cost", "weights", "shares", "length", "last_obs", "terminated",
    "index", "failed", "back",
)  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """The first time that a policy gave no answer.

    Attributes:
        policy: its number.
        episode: number of the episode.
        step: the time step.
        reason: what it gave instead of probabilities.
    """

    policy: int
    episode: int
    step: int
    reason: str


@dataclass(frozen=True, eq=False)
class MixtureEpisodes:
    """N finished episodes of at most T steps, run by a mixture of K policies.

    Attributes:
        obs: state numbers [N, T], or vectors [N, T, d].
        action: as executed: numbers [N, T], or vectors [N, T, m].
        reward: [N, T]; 0 after the end.
        cost: [N, T]; 0 after the end.
        weights: u_k before every step and after the last, [N, T + 1, K]; constant after the end.
        shares: p_k of the episode, [N, K]; 0: the policy took no part, and its weight is no value.
        length: number of steps, [N].
        last_obs: observation after the last step, [N] or [N, d].
        terminated: whether the last step ended the episode for good, [N].
        index: number of the episode under the seed, [N].
        failed: which policies gave no answer somewhere in the episode, [N, K].
        failures: the first of each policy.
        lost: episodes that the environment did not finish.
        whole: whether `last_obs` was recorded.
        back: the step from which on the baseline had control, [N]: it decided alone, whatever the
            policies are, and the weights stay; the length (the default), where it never had.
        exogenous: [N, T + 1, d] signals that no action changes, at the start and after each step;
            NaN where nothing was reported; None: there are none.
        signals: their names.
        interrupted: the user stopped them.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    cost: Floats
    weights: Floats
    shares: Floats
    length: Ints
    last_obs: NDArray[Any]
    terminated: Bools
    index: Ints
    failed: Bools
    failures: tuple[Failure, ...] = ()
    lost: tuple[LostEpisode, ...] = ()
    whole: bool = True
    back: Ints = None  # type: ignore[assignment]
    exogenous: Floats | None = None
    signals: tuple[str, ...] = ()
    interrupted: bool = False

    def __post_init__(self) -> None:
        given: Ints | None = self.back
        if given is None:
            object.__setattr__(self, "back", self.length)

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def horizon(self) -> int:
        """Number of columns T."""
        return int(self.reward.shape[1])

    @property
    def steps(self) -> Bools:
        """[N, T]: which columns are steps and not padding."""
        return np.arange(self.horizon) < self.length[:, None]

    @property
    def taking_part(self) -> Bools:
        """[N, K]: policies that the episode has a value for: they had a share, and never failed.

        A policy that failed once has no value in any episode: those before the failure are the
        episodes in which it did not fail.
        """
        return np.asarray((self.shares > 0) & ~self.failed.any(axis=0))

    def returns(self, gamma: float) -> Floats:
        """sum_t gamma^t R_t of each episode, [N]."""
        return np.asarray(self.reward @ discounts(gamma, self.horizon))

    def select(self, rows: NDArray[Any]) -> MixtureEpisodes:
        """Some of the episodes, by numbers or mask."""
        paths = None if self.exogenous is None else self.exogenous[rows]
        return replace(self, **{name: getattr(self, name)[rows] for name in _ROWS}, exogenous=paths)

    @staticmethod
    def concat(parts: Sequence[MixtureEpisodes]) -> MixtureEpisodes:
        """All episodes of several parts with the same horizon and policies.

        Of a part without any only what was lost counts: nobody knows the width of its vectors.
        """
        if len(parts) == 1:
            return parts[0]
        some = [part for part in parts if len(part)] or parts[:1]
        joined = {name: np.concatenate([getattr(part, name) for part in some]) for name in _ROWS}
        first: dict[int, Failure] = {}
        for failure in (one for part in parts for one in part.failures):
            first.setdefault(failure.policy, failure)
        lost = tuple(one for part in parts for one in part.lost)
        whole = all(part.whole for part in some)
        paths = [part.exogenous for part in some if part.exogenous is not None]
        return MixtureEpisodes(
            **joined,
            failures=tuple(first.values()),
            lost=lost,
            whole=whole,
            exogenous=np.concatenate(paths) if len(paths) == len(some) else None,
            signals=some[0].signals,
            interrupted=any(part.interrupted for part in parts),
        )

    def transitions(self) -> Transitions:
        """The steps as a log, to learn from; without those whose next observation is unknown."""
        steps = self.steps
        following = np.concatenate([self.obs[:, 1:], self.last_obs[:, None]], axis=1)
        last = np.arange(self.horizon) == self.length[:, None] - 1
        at = np.nonzero(last)
        following = following.copy()
        following[at] = self.last_obs
        times = np.broadcast_to(np.arange(self.horizon), steps.shape)
        if not self.whole:
            steps = steps & ~(last & ~self.terminated[:, None])
        return Transitions(
            t=times[steps],
            obs=self.obs[steps],
            action=self.action[steps],
            reward=self.reward[steps],
            cost=self.cost[steps],
            next_obs=following[steps],
            terminated=(last & self.terminated[:, None])[steps],
        )


assert set(_ROWS) <= {field.name for field in fields(MixtureEpisodes)}


def mixture_probs(acting: Floats, probs: Floats) -> Floats:
    """Mu [N, A] of finite actions: sum_k of the posterior [N, K] times pi_k [N, K, A]."""
    return np.asarray(np.einsum("nk,nka->na", acting, probs))


def running_weights(log_probs: Floats, shares: Floats) -> Floats:
    """u_k before every step and after the last, [N, T + 1, K], of recorded episodes.

    The products telescope: u_k = prod pi_k / sum_j p_j prod pi_j.

    Args:
        log_probs: log pi_k of the actions taken, [N, T, K]; 0 after the end of an episode.
        shares: p, [K], positive.
    """
    N, T, K = log_probs.shape
    path = np.zeros((N, T + 1, K))
    np.cumsum(log_probs, axis=1, out=path[:, 1:])
    with np.errstate(invalid="ignore"):
        mixed = log_sum((path + np.log(shares)).reshape(-1, K)).reshape(N, T + 1, 1)
        weights = np.exp(path - mixed)
    return np.asarray(np.nan_to_num(weights, nan=0.0))


# -- running them side by side ---------------------------------------------------------------------


@dataclass
class _Tape:
    """What happens in B episodes side by side."""

    indices: range
    uniforms: Floats
    streams: list[EpisodeStreams]
    state: EpisodeState
    reward: Floats
    cost: Floats
    weights: Floats
    failed: Bools
    running: Bools
    length: Ints
    terminated: Bools
    obs: NDArray[Any] = field(default_factory=lambda: np.empty(0))
    action: NDArray[Any] | None = None
    exogenous: Floats = field(default_factory=lambda: np.empty((0, 0, 0)))

    @classmethod
    def blank(
        cls, indices: range, seed: int, horizon: int, policies: int, signals: int = 0
    ) -> tuple[_Tape, Ints]:
        """A tape, and the seeds of its environments."""
        streams = [EpisodeStreams(seed, index, horizon) for index in indices]
        B = len(indices)
        tape = cls(
            indices,
            np.stack([one.uniforms for one in streams]),
            streams,
            EpisodeState.start(B, policies),
            np.zeros((B, horizon)),
            np.zeros((B, horizon)),
            np.ones((B, horizon + 1, policies)),
            np.zeros((B, policies), np.bool_),
            np.ones(B, np.bool_),
            np.zeros(B, np.int64),
            np.zeros(B, np.bool_),
            exogenous=np.full((B, horizon + 1, signals), np.nan),
        )
        return tape, np.array([one.env_seed for one in streams])

    def begin(self, first: NDArray[Any]) -> None:
        """Record the first observations."""
        kind = np.int64 if np.issubdtype(first.dtype, np.integer) else np.float64
        self.obs = np.zeros((len(first), self.reward.shape[1] + 1, *first.shape[1:]), kind)
        self.obs[:, 0] = first

    def add(self, t: int, rows: Ints, actions: NDArray[Any], outcomes: Outcomes) -> None:
        """Record one step."""
        if self.action is None:
            self.action = np.zeros((*self.reward.shape, *actions.shape[1:]), actions.dtype)
        done = outcomes.done
        at = rows[done]
        if not len(at):
            return
        self.obs[at, t + 1] = outcomes.obs[done]
        self.action[at, t] = actions[done]
        self.reward[at, t], self.cost[at, t] = outcomes.reward[done], outcomes.cost[done]
        self.weights[at, t + 1 :] = self.state.weights[at, None]
        self.terminated[at] = outcomes.terminated[done]
        self.length[at] = t + 1
        for row, seen in outcomes.exogenous.items():
            record_signals(self.exogenous[rows[row]], t + 1, seen)


@dataclass(frozen=True)
class MixtureChoice:
    """One decision of each of B episodes.

    Attributes:
        actions: as executed, [B] or [B, d].
        log_probs: log pi_k of what was drawn, [B, K].
        acting: probability of each policy to act, [B, K].
        usable: who answered, [B, K].
        reasons: what the first unusable answer of a policy was, by its number.
    """

    actions: NDArray[Any]
    log_probs: Floats
    acting: Floats
    usable: Bools
    reasons: dict[int, str] = field(default_factory=dict)


class MixtureRollout:
    """Runs episodes of a mixture in a pool of environments.

    Args:
        environments: where to run.
        policies: of the comparison.
        horizon: T; an episode that is not over by then is cut there.
        seed: of the episodes.
        logs: that will be learned from: refused before the first step if they do not fit.
    """

    def __init__(
        self,
        environments: EnvironmentPool,
        policies: PolicySet,
        *,
        horizon: int,
        seed: int,
        logs: Transitions | None = None,
    ) -> None:
        self.environments, self.policies = environments, policies
        self.horizon, self.seed, self._logs, self._unchecked = horizon, seed, logs, True
        self._failures: dict[int, Failure] = {}

    def run(self, first: int, count: int, shares: Floats) -> MixtureEpisodes:
        """Run episodes number first .. first+count-1 with these shares, [K].

        After Ctrl-C: those that were finished, with the running ones among the lost.
        """
        parts: list[MixtureEpisodes] = []
        side_by_side, interrupted = len(self.environments), False
        try:
            for begin in range(first, first + count, side_by_side):
                last = min(begin + side_by_side, first + count)
                self._side_by_side(range(begin, last), shares, parts)
        except KeyboardInterrupt:
            if not parts:
                raise
            interrupted = True
        failures = tuple(self._failures.values())
        return replace(MixtureEpisodes.concat(parts), failures=failures, interrupted=interrupted)

    def _side_by_side(self, indices: range, shares: Floats, parts: list[MixtureEpisodes]) -> None:
        """One episode in each environment, all at the same time step; they are a new part."""
        signals = self.environments.signals
        tape, seeds = _Tape.blank(
            indices, self.seed, self.horizon, len(self.policies), len(signals)
        )
        lost: list[LostEpisode] = []

        def lose(row: int, failure: EnvironmentFailure | str) -> None:
            tape.running[row] = False
            spent = float(tape.cost[row].sum())
            lost.append(LostEpisode(indices[row], int(tape.length[row]), str(failure), spent))

        try:
            self._run(tape, [int(seed) for seed in seeds], shares, lose)
        except KeyboardInterrupt:
            for row in np.flatnonzero(tape.running).tolist():
                lose(row, INTERRUPTED)
            raise
        finally:
            parts.append(self._finished(tape, lost, shares))

    def _run(
        self,
        tape: _Tape,
        seeds: list[int],
        shares: Floats,
        lose: Callable[[int, EnvironmentFailure | str], None],
    ) -> None:
        """Reset, and step until all episodes are over."""
        signals = self.environments.signals
        first, failures = self.environments.reset(seeds)
        for row, failure in failures.items():
            lose(row, failure)
        tape.begin(first)
        for row, environment in enumerate(self.environments[: len(seeds)] if signals else ()):
            if environment.first is not None:
                record_signals(tape.exogenous[row], 0, environment.first)
        for t in range(self.horizon):
            rows = np.flatnonzero(tape.running)
            if not len(rows):
                break
            choice = self._choose(tape, rows, t, shares)
            if self._unchecked:
                self.policies.check_logs(self._logs, tape.obs[rows, 0])
                self.policies.check_answers(tape.obs[rows, 0], 0)
                self._unchecked = False
            mute = np.asarray(~choice.usable.any(axis=1))  # nobody answers
            for row in rows[mute]:
                lose(int(row), "no policy gave an answer")
            rows, choice = rows[~mute], _rows_of(choice, np.asarray(~mute))
            if not len(rows):
                break
            outcomes = self.environments.step(choice.actions, rows)
            part = EpisodeState(tape.state.log_weights[rows], tape.state.returned[rows])
            reward = np.where(outcomes.done, outcomes.reward, 0.0)
            part.act(choice.log_probs, choice.acting, choice.usable, reward)
            tape.state.log_weights[rows], tape.state.returned[rows] = (
                part.log_weights,
                part.returned,
            )
            tape.add(t, rows, choice.actions, outcomes)
            for row, failure in outcomes.failures.items():
                lose(int(rows[row]), failure)
            over = outcomes.done & (outcomes.terminated | outcomes.truncated)
            tape.running[rows[outcomes.done if t + 1 == self.horizon else over]] = False
            if outcomes.interrupted:
                raise KeyboardInterrupt

    def _finished(self, tape: _Tape, lost: list[LostEpisode], shares: Floats) -> MixtureEpisodes:
        gone = {one.index for one in lost}
        rows = np.array([i for i, index in enumerate(tape.indices) if index not in gone], np.int64)
        action = np.zeros_like(tape.reward, np.int64) if tape.action is None else tape.action
        length = tape.length[rows]
        obs = tape.obs if tape.obs.ndim > 1 else np.zeros((len(tape.reward), self.horizon + 1))
        steps = np.arange(self.horizon) < length[:, None]
        shown = obs[rows, :-1].copy()
        shown[~steps] = 0
        return MixtureEpisodes(
            obs=shown,
            action=action[rows],
            reward=tape.reward[rows],
            cost=tape.cost[rows],
            weights=tape.weights[rows],
            shares=np.tile(shares, (len(rows), 1)),
            length=length,
            last_obs=obs[rows, length],
            terminated=tape.terminated[rows],
            index=np.array(tape.indices, np.int64)[rows],
            failed=tape.failed[rows],
            lost=tuple(lost),
            exogenous=tape.exogenous[rows] if self.environments.signals else None,
            signals=self.environments.signals,
        )

    def _choose(self, tape: _Tape, rows: Ints, t: int, shares: Floats) -> MixtureChoice:
        state = EpisodeState(tape.state.log_weights[rows], tape.state.returned[rows])
        streams = [tape.streams[row] for row in rows if self.policies.continuous]
        draws = [one.candidates for one in streams]
        uniforms = tape.uniforms[rows, t]
        made = choose(self.policies, tape.obs[rows, t], t, state, shares, uniforms, draws)
        for k, reason in made.reasons.items():
            bad = rows[~made.usable[:, k]]
            tape.failed[bad, k] = True
            first = tape.indices[int(bad[0])]
            self._failures.setdefault(k, Failure(k, first, t, reason))
        return made


def none_finished(lost: Sequence[LostEpisode]) -> PlantError:
    """That no episode could be finished."""
    return PlantError(
        f"none of {len(lost):,} episodes could be finished; the first was lost at step "
        f"{lost[0].step}: {lost[0].reason}"
    )


# -- decisions -------------------------------------------------------------------------------------


def choose(
    policies: PolicySet,
    obs: Observations,
    t: int,
    state: EpisodeState,
    shares: Floats,
    uniforms: Floats,
    draws: Sequence[np.random.Generator],
    mute: Bools | None = None,
) -> MixtureChoice:
    """The next actions of a mixture.

    Args:
        policies: of the comparison.
        obs: observations [B].
        t: the time step.
        state: the running weights.
        shares: of the policies, [K].
        uniforms: draw the actions; of continuous policies, who acts.
        draws: draw the actions of continuous policies; of finite actions there are none.
        mute: [K] policies that gave no answer when this was decided before; None: they are asked.
    """
    if policies.continuous:
        return _draw(policies, obs, t, state, shares, uniforms, draws, mute)
    answers = policies.ask(obs, t)
    if mute is not None:
        answers.usable[:, mute] = False
        answers.probs[:, mute] = 0.0
    usable = answers.usable & (shares > 0)
    acting = state.posterior(shares, usable, policies.baseline)
    mu = mixture_probs(acting, answers.probs)
    mu[~usable.any(axis=1)] = 1.0 / mu.shape[1]  # these rows are lost
    actions = draw_actions(mu, uniforms)
    taken = answers.probs[np.arange(len(obs)), :, actions]
    with np.errstate(divide="ignore"):
        log_probs = np.log(taken)
    return MixtureChoice(
        actions, log_probs, acting, _heard(answers.usable, usable), answers.reasons
    )


def _draw(
    policies: PolicySet,
    obs: Observations,
    t: int,
    state: EpisodeState,
    shares: Floats,
    uniforms: Floats,
    draws: Sequence[np.random.Generator],
    mute: Bools | None,
) -> MixtureChoice:
    """Of continuous policies: who acts, its action, and everybody's density of it."""
    B, K, dense = len(obs), len(policies), policies.dense
    reasons: dict[int, str] = {}
    answers = np.ones((B, K), np.bool_)
    if mute is not None:
        answers[:, mute] = False
    normals: dict[int, Normal] = {}
    for k in map(int, np.flatnonzero(dense)):
        normals[k] = policies.normal(k, obs, t)
        answers[:, k] &= normals[k].usable
        reasons[k] = normals[k].reason
    # one without a density is asked where the episode can be its own, or nobody else is left
    chance = np.where(answers, shares * state.weights, 0.0)
    alone = chance[:, dense].sum(axis=1) <= 0
    drawn: dict[tuple[int, int], Floats] = {}
    for k in map(int, np.flatnonzero(~dense)):
        rows = np.flatnonzero(answers[:, k] & ((chance[:, k] > 0) | alone))
        each, reasons[k] = policies.draw(k, obs[rows], t, [draws[i] for i in rows.tolist()])
        answers[rows, k] = [action is not None for action in each]
        drawn |= {(int(i), k): a for i, a in zip(rows, each, strict=True) if a is not None}
    usable = answers & (shares > 0)
    acting = state.posterior(shares, usable, policies.baseline)
    who = draw_actions(acting, uniforms)
    # [d]: any action, for rows that are lost since nobody answers
    some = next((one.mean[0] for one in normals.values()), next(iter(drawn.values()), np.empty(0)))
    actions = np.zeros((B, len(some)))
    for i in np.flatnonzero(usable.any(axis=1)).tolist():
        k = int(who[i])
        if dense[k]:
            noise = draws[i].standard_normal(len(some))
            actions[i] = normals[k].mean[i] + normals[k].std[i] * noise
        else:
            actions[i] = drawn[i, k]
    log_probs = np.full((B, K), -np.inf)
    for k in range(K):
        if dense[k]:
            log_probs[:, k] = np.where(dense[who], normals[k].log_density(actions), -np.inf)
        else:
            log_probs[who == k, k] = 0.0
    box = policies.box
    executed: Floats = actions if box is None else np.clip(actions, *box)
    said = {k: reason for k, reason in reasons.items() if reason}
    return MixtureChoice(executed, log_probs, acting, _heard(answers, usable), said)


def _heard(answers: Bools, usable: Bools) -> Bools:
    """Who answered, [B, K]; nobody, where only policies without a share did: they may not act."""
    return np.asarray(answers & np.asarray(usable.any(axis=1))[:, None])


def _rows_of(choice: MixtureChoice, which: Bools) -> MixtureChoice:
    return MixtureChoice(
        choice.actions[which], choice.log_probs[which], choice.acting[which], choice.usable[which]
    )
