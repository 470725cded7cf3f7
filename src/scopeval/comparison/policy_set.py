"""The policies of one comparison: their names, their kinds, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import PROBABILITY_SLACK, Bools, Floats, Ints, as_floats
from scopeval.errors import InputError
from scopeval.exact import TabularMDP
from scopeval.exact.tables import policy_table
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.drawing import draw_actions
from scopeval.policies.protocols import ContinuousPolicy, Observations, Policy

__all__ = [
    "MOST_POLICIES",
    "Answers",
    "Normal",
    "PolicySet",
    "WithDensity",
    "current_shares",
    "shares_of",
]

#: Each policy gets a share of the episodes, and differences hold together: more need other rules.
MOST_POLICIES = 20
#: Names stand in sentences and tables.
LONGEST_NAME = 100
#: What runs beside the policies, by name.
DESIGN = "the design"


@runtime_checkable
class WithDensity(Protocol):
    """A normal distribution over actions, clipped to a box; its dimensions are independent.

    The density is that of the drawn action, before it is clipped; `GaussianPolicy` is such a
    policy.
    """

    low: Floats
    high: Floats

    def mean(self, obs: Observations, t: int) -> Floats:
        """[B, d]."""
        ...

    def std(self, obs: Observations, t: int) -> Floats:
        """[B, d]."""
        ...


@dataclass(frozen=True)
class Normal:
    """The distributions of drawn actions, mean and std [B, d], and which can be used, [B].

    `reason` says what the first unusable answer was.
    """

    mean: Floats
    std: Floats
    usable: Bools
    reason: str

    def log_density(self, actions: Floats) -> Floats:
        """Of drawn actions [B, d], [B]; -inf where there is no distribution."""
        ok = self.usable
        out = np.full(len(ok), -np.inf)
        with np.errstate(over="ignore"):  # far away: a density of 0
            z = (actions[ok] - self.mean[ok]) / self.std[ok]
            square = z * z
        each = -0.5 * square - np.log(self.std[ok]) - 0.5 * math.log(2.0 * math.pi)
        out[ok] = each.sum(axis=1)
        return out


@dataclass
class Answers:
    """Probabilities [B, K, A] of all policies, and which of them can be used, [B, K].

    `reasons` says what the first unusable answer of a policy was, by its number.
    """

    probs: Floats
    usable: Bools
    reasons: dict[int, str] = field(default_factory=dict)


class PolicySet:
    """Policies by name, one of them the baseline.

    Args:
        policies: name -> policy, in any form that `as_policy` takes; at least two.
        baseline: name of the policy that runs today; None: the first.

    Attributes:
        names: in the order in which they were given.
        policies: likewise.
        baseline: number of the baseline.
        continuous: whether actions are vectors.
        asked: how many of them are compared: all but a design that runs beside them.
    """

    def __init__(self, policies: Any, baseline: str | None = None) -> None:
        _check_names(policies, baseline)
        self.names = tuple(policies)
        self.baseline = 0 if baseline is None else self.names.index(baseline)
        self.policies: list[Policy | ContinuousPolicy] = []
        for name, policy in policies.items():
            try:
                self.policies.append(as_policy(policy))
            except InputError as error:
                raise InputError(f"policies[{name!r}]: {error}") from error
        kinds = [isinstance(policy, ContinuousPolicy) for policy in self.policies]
        if any(kinds) and not all(kinds):
            some = self.names[kinds.index(True)], self.names[kinds.index(False)]
            raise InputError(
                f"policies: {some[0]!r} has continuous actions and {some[1]!r} a finite set; "
                "expected policies over the same actions"
            )
        self.continuous = kinds[0]
        self._check_boxes()
        self._actions: int | None = None
        self._answered = np.zeros(len(self), np.bool_)
        self.asked = len(self)

    def check_world(self, env: Any, horizon: int) -> None:
        """Refuse tables that are not of this world.

        Args:
            env: where episodes run; only of a `TabularMDP` it is known before.
            horizon: T.

        Raises:
            InputError: one of them.
        """
        mdp = env if isinstance(env, TabularMDP) else None
        for name, policy in zip(self.names, self.policies, strict=True):
            if not isinstance(policy, TabularPolicy):
                continue
            if mdp is None:
                policy.table(horizon)
            else:
                policy_table(mdp, f"policies[{name!r}]", policy)

    def check_logs(self, logs: Transitions | None, first: Observations | None = None) -> None:
        """Refuse logs whose observations or actions are not those of this comparison.

        Args:
            logs: of past operation; None: there are none.
            first: observations of an episode's beginning, once they are known; None: only tables
                say what observations are.

        Raises:
            InputError: such logs.
        """
        if logs is None:
            return
        if not isinstance(logs, Transitions):
            raise InputError(
                f"logs: got {type(logs).__name__}, expected Transitions, as read_logs gives them"
            )
        tables = [p for p in self.policies if isinstance(p, TabularPolicy)]
        S, width = math.inf, ()
        if tables:
            S, A = tables[0].states, tables[0].actions
        elif first is not None and not self.continuous:
            width, A = first.shape[1:], self._actions or self.actions_at(first)
        else:
            return
        if logs.obs.shape[1:] != width or logs.action.ndim != 1:
            states = f"vectors of {width[0]} as observations" if width else "numbers of states"
            raise InputError(
                f"logs: got observations {logs.obs.shape} and actions {logs.action.shape}, "
                f"expected {states} and numbers of actions, as the episodes have; try logs=None if "
                "they are of another world"
            )
        if (not width and logs.obs.max() >= S) or logs.action.max() >= A:
            states = "" if math.isinf(S) else f"states up to {int(logs.obs.max())} and "
            most = "" if math.isinf(S) else f"{S - 1} and "
            raise InputError(
                f"logs: got {states}actions up to {int(logs.action.max())}, expected at most "
                f"{most}{A - 1}, as the policies have; try logs=None if they are of another world"
            )

    def check_answers_in(self, logs: Transitions) -> None:
        """See that every policy has an answer at all observations of logs.

        Raises:
            InputError: one of them has none.
        """
        for t in np.unique(logs.t).tolist() if not self.continuous else ():
            obs = logs.obs[logs.t == t]
            for k, name in enumerate(self.names):
                try:
                    usable, reason = self._ask(k, obs, int(t))[1:]
                except InputError as error:
                    raise InputError(f"{error}, at observations of the logs") from error
                if not usable.all():
                    raise InputError(
                        f"policies[{name!r}]: {reason} at t={t}, at the observation "
                        f"{obs[np.argmin(usable)].tolist()!r:.200} of the logs; a policy without "
                        "an answer takes no part in a campaign any more: mend it before it begins"
                    )

    def with_design(self, design: Policy) -> PolicySet:
        """The same policies and one more that runs beside them; nothing is asked about it."""
        several = copy(self)
        several.names = (*self.names, DESIGN)
        several.policies = [*self.policies, design]
        several._answered = np.append(self._answered, False)
        return several

    def begun(self) -> None:
        """All of them have answered before: one that gives no answer now has failed."""
        self._answered[:] = True

    @property
    def in_order(self) -> list[int]:
        """Numbers of the policies that are compared, the baseline first."""
        return [self.baseline, *(k for k in range(self.asked) if k != self.baseline)]

    def in_words(self, shares: Floats) -> str:
        """Shares by name."""
        order = [*self.in_order, *range(self.asked, len(self))]
        return ", ".join(f"{self.names[k]} {shares[k]:.3g}" for k in order)

    def actions_at(self, obs: Observations) -> int:
        """Number of actions."""
        return int(self.ask(obs, 0).probs.shape[2])

    def __len__(self) -> int:
        return len(self.names)

    @property
    def dense(self) -> Bools:
        """[K]: continuous policies whose density is known; the others share no episode."""
        return np.array([isinstance(policy, WithDensity) for policy in self.policies])

    @property
    def box(self) -> tuple[Floats, Floats] | None:
        """Limits of continuous actions, where a policy states them."""
        for policy in self.policies:
            if isinstance(policy, WithDensity):
                return policy.low, policy.high
        return None

    def ask(self, obs: Observations, t: int) -> Answers:
        """What all policies answer at observations [B]; finite actions only.

        Raises:
            InputError: different numbers of actions, or a policy that has never answered.
        """
        each = [self._ask(k, obs, t) for k in range(len(self))]
        widths = {self.names[k]: p.shape[1] for k, (p, ok, _) in enumerate(each) if ok.any()}
        if len(set(widths.values())) > 1:
            raise InputError(
                f"policies: got different numbers of actions {widths}; expected policies over the "
                "same actions"
            )
        A = next(iter(widths.values()), self._actions or 1)
        self._actions = A
        answers = Answers(np.zeros((len(obs), len(self), A)), np.zeros((len(obs), len(self)), bool))
        for k, (probs, usable, reason) in enumerate(each):
            answers.usable[:, k] = usable
            if usable.any():
                answers.probs[usable, k] = probs[usable]
            if reason:
                answers.reasons[k] = reason
        return answers

    def check_answers(self, obs: Observations, t: int) -> None:
        """Refuse policies that answer differently when they are asked again.

        Weights and control variates need what a policy would do, so its answer must follow from the
        observation and the time step.
        """
        if self.continuous:
            return
        first, again = self.ask(obs, t), self.ask(obs, t)
        both = (first.usable & again.usable)[:, :, None]
        if first.probs.shape == again.probs.shape:
            away = np.where(both, np.abs(first.probs - again.probs), 0.0).max(axis=(0, 2))
            k = int(np.argmax(away))
            if away[k] > PROBABILITY_SLACK:
                raise InputError(
                    f"policies[{self.names[k]!r}]: gave other probabilities (by {away[k]:.2g}) for "
                    f"the same observations at t={t} when it was asked again; expected a function "
                    "of the observation and the time step, without draws or memory of its own"
                )

    def tables(self, horizon: int, states: Ints, shape: tuple[int, int]) -> tuple[Floats, str]:
        """What all policies answer at some states, and why the first cannot where it cannot.

        Args:
            horizon: T.
            states: numbers of the states that are asked about.
            shape: number of states, and of actions.

        Returns:
            [K, T, S, A], uniform in all other states and where a policy gives no answer; and words.
        """
        S, A = shape
        tables, reason = np.full((len(self), horizon, S, A), 1.0 / A), ""
        for t in range(horizon):
            answers = self.ask(states, t)
            probs = np.where(answers.usable[:, :, None], answers.probs, 1.0 / A)
            tables[:, t, states] = np.moveaxis(probs, 1, 0)
            for k, why in answers.reasons.items():
                reason = reason or f"policies[{self.names[k]!r}]: {why} at t={t}"
        return tables, reason

    def probs_of(self, k: int, obs: Observations, t: int) -> tuple[Floats, Bools]:
        """What one policy answers, [B, A], and which rows can be used; the others are 0."""
        probs, usable, _ = self._ask(k, obs, t)
        return np.where(usable[:, None], probs, 0.0), usable

    def _ask(self, k: int, obs: Observations, t: int) -> tuple[Floats, Bools, str]:
        """One policy: probabilities [B, A], which rows can be used, and why the first cannot."""
        policy: Any = self.policies[k]  # to ask what kind it is takes as long as its answer
        try:
            probs = np.asarray(policy.probs(obs.copy(), t), np.float64)  # it may write in it
            usable, reason = _usable(probs, len(obs))
        except Exception as error:
            probs, usable, reason = self._one_by_one(policy, obs, t)
            if not self._answered[k] and not usable.any():
                number = (
                    "; the observation is a number: where the policy reads a row of numbers, "
                    "expected a list, such as act([2.0])"
                )
                raise InputError(
                    f"policies[{self.names[k]!r}]: gave no probabilities at t={t} ({error})"
                    + (number if obs.ndim == 1 else "")
                ) from error
        if self._actions is not None and probs.shape[1] != self._actions:  # it changed its mind
            reason = _other_width(probs.shape[1], self._actions)
            probs, usable = np.zeros((len(obs), self._actions)), np.zeros(len(obs), np.bool_)
        self._answered[k] |= usable.any()
        if not self._answered[k]:
            raise InputError(f"policies[{self.names[k]!r}]: {reason} at t={t}")
        if usable.any():
            probs = probs / np.where(usable, probs.sum(axis=1), 1.0)[:, None]
        return probs, usable, reason

    def _one_by_one(self, policy: Policy, obs: Observations, t: int) -> tuple[Floats, Bools, str]:
        """The rows of a batch that failed as a whole."""

        def answer(row: Observations) -> Floats:
            probs = np.asarray(policy.probs(row, t), np.float64)
            good, why = _usable(probs, 1)
            if not good.all():
                raise InputError(why)
            return np.asarray(probs[0])

        rows, reason = _each_row(answer, obs)
        width = self._actions or next((len(row) for row in rows if row is not None), 1)
        for i, row in enumerate(rows):
            if row is not None and len(row) != width:
                rows[i], reason = None, reason or _other_width(len(row), width)
        probs = np.stack([np.full(width, np.nan) if row is None else row for row in rows])
        return probs, np.array([row is not None for row in rows]), reason

    def normal(self, k: int, obs: Observations, t: int) -> Normal:
        """The distributions of a continuous policy with a density.

        Raises:
            InputError: it has never answered.
        """
        policy: Any = self.policies[k]
        shape = len(obs), len(policy.low)
        reason = ""
        try:
            both = _normal(policy, obs.copy(), t)
            usable = np.ones(len(obs), np.bool_)
        except Exception:
            rows, reason = _each_row(lambda row: _normal(policy, row, t)[:, 0], obs)
            usable = np.array([row is not None for row in rows])
            both = np.ones((2, *shape))
            for i, row in enumerate(rows):
                if row is not None:
                    both[:, i] = row
        self._has_answered(k, usable, reason, t)
        return Normal(both[0], both[1], usable, reason)

    def draw(
        self, k: int, obs: Observations, t: int, draws: Sequence[np.random.Generator]
    ) -> tuple[list[Floats | None], str]:
        """Actions of a continuous policy without a density; None where it gives none, and why.

        Raises:
            InputError: it has never answered.
        """
        policy: Any = self.policies[k]
        streams = iter(draws)

        def answer(row: Observations) -> Floats:
            rng = next(streams)
            offered = policy.candidates(row, t, rng)
            pick = draw_actions(offered.probs, np.array([rng.random()]))[0]
            action = np.asarray(offered.actions[0, pick], np.float64)
            if not np.isfinite(action).all():
                raise InputError(f"returned the action {action}")
            return action

        rows, reason = _each_row(answer, obs)
        self._has_answered(k, np.array([row is not None for row in rows]), reason, t)
        return rows, reason

    def _has_answered(self, k: int, usable: Bools, reason: str, t: int) -> None:
        """Note it; a policy that has never answered is an error and no failure."""
        self._answered[k] |= usable.any()
        if not self._answered[k] and len(usable):
            raise InputError(f"policies[{self.names[k]!r}]: {reason} at t={t}")

    def _check_boxes(self) -> None:
        """Limits decide what is executed: they must not depend on who has drawn the action."""
        boxes = {
            name: (policy.low.tolist(), policy.high.tolist())
            for name, policy in zip(self.names, self.policies, strict=True)
            if isinstance(policy, WithDensity)
        }
        if len({str(box) for box in boxes.values()}) > 1:
            raise InputError(
                f"policies: got different limits of the actions {boxes}; expected the same low and "
                "high for all, which are the plant's"
            )


def shares_of(policies: PolicySet, shares: Any) -> Floats:
    """Shares of the episodes, [K], that sum to 1; None: equal ones."""
    if shares is None:
        return np.full(len(policies), 1.0 / len(policies))
    if isinstance(shares, Mapping):
        if set(shares) != set(policies.names):
            raise InputError(
                f"shares: got {sorted(map(str, shares))}, expected one for each of "
                f"{list(policies.names)}"
            )
        shares = [shares[name] for name in policies.names]
    p = as_floats("shares", shares, ndim=(1,), axes=("policy",))
    if p.shape != (len(policies),) or (p <= 0).any() or abs(p.sum() - 1.0) > 1e-9:
        raise InputError(
            f"shares: got {p.tolist()}, expected {len(policies)} numbers above 0 that sum to 1"
        )
    return np.asarray(p / p.sum())


def current_shares(fair: Floats, active: Bools, baseline: int, part: float | None) -> Floats:
    """Shares of the next episodes, [K]: fair ones among the active policies.

    Args:
        fair: shares at the beginning, [K].
        active: policies that may have a share, [K].
        baseline: number of the policy that runs today.
        part: of their share that new policies have, in a ramp; the baseline has the rest.
    """
    shares = np.where(active, fair, 0.0)
    if not shares.any():
        return np.asarray(fair)
    shares = shares / shares.sum()
    if part is not None and active[baseline]:
        shares = shares * part
        shares[baseline] += 1.0 - shares.sum()
    return np.asarray(shares)


def _each_row(
    answer: Callable[[Observations], Floats], obs: Observations
) -> tuple[list[Floats | None], str]:
    """What a policy answers to each observation by itself, and why not to the first it does not."""
    rows: list[Floats | None] = []
    reason = ""
    for i in range(len(obs)):
        try:
            rows.append(answer(obs[i : i + 1].copy()))
        except InputError as error:
            rows.append(None)
            reason = reason or str(error)
        except Exception as error:
            rows.append(None)
            reason = reason or f"{type(error).__name__}: {error}"
    return rows, reason


def _normal(policy: Any, obs: Observations, t: int) -> Floats:
    """Means and standard deviations, [2, B, d]."""
    shape = len(obs), len(policy.low)
    both = [np.asarray(x, np.float64) for x in (policy.mean(obs, t), policy.std(obs, t))]
    if any(x.shape != shape for x in both):
        raise InputError(
            f"returned shapes {both[0].shape} and {both[1].shape}, expected {shape} of mean and std"
        )
    if not np.isfinite(both).all():
        raise InputError("returned NaN or infinity for mean or std")
    if (both[1] <= 0).any():
        raise InputError(
            "returned a standard deviation of 0, which is no density; a controller that draws "
            "nothing is an object with candidates(obs, t, rng)"
        )
    return np.stack(both)


def _other_width(width: int, actions: int) -> str:
    """That an answer is about other actions, in words."""
    return f"returned {width} probabilities where there are {actions} actions"


def _usable(probs: Floats, rows: int) -> tuple[Bools, str]:
    """Which rows are distributions, and what the first other one is."""
    if probs.ndim != 2 or len(probs) != rows:
        raise InputError(
            f"policy: returned shape {probs.shape} for {rows} observations, expected "
            f"[{rows}, number of actions]"
        )
    with np.errstate(invalid="ignore"):
        good = (probs >= 0).all(axis=1) & (np.abs(probs.sum(axis=1) - 1.0) <= PROBABILITY_SLACK)
    if good.all():
        return np.asarray(good), ""
    worst: NDArray[Any] = probs[np.argmin(good)]
    what = "NaN" if np.isnan(worst).any() else f"{np.array2string(worst, precision=3)}"
    return np.asarray(good), f"returned {what} instead of probabilities"


def _is_name(name: Any) -> bool:
    plain = isinstance(name, str) and name.isprintable() and name == name.strip()
    return plain and 0 < len(name) <= LONGEST_NAME


def _check_names(policies: Any, baseline: str | None) -> None:
    if not isinstance(policies, Mapping):
        raise InputError(
            f"policies: got {type(policies).__name__}, expected a dict of names and policies, such "
            'as {"today": old, "new": new}'
        )
    bad = [name for name in policies if not _is_name(name)]
    if bad:
        raise InputError(
            f"policies: got the name {bad[0]!r:.60}, expected words on one line as names, of at "
            f"most {LONGEST_NAME} characters, without blanks around them"
        )
    if DESIGN in policies:
        raise InputError(
            f"policies: got the name {DESIGN!r}, which is what a design beside them is called; "
            "try another"
        )
    if len(policies) < 2:
        raise InputError(
            f"policies: got {len(policies)}, expected at least two to compare; the value of one is "
            "evaluate(env, policy, ...)"
        )
    if len(policies) > MOST_POLICIES:
        raise InputError(
            f"policies: got {len(policies)}, expected at most {MOST_POLICIES}: the episodes are "
            "shared among them; try to leave out candidates by an estimate from logs first"
        )
    if baseline is not None and not (isinstance(baseline, str) and baseline in policies):
        raise InputError(f"baseline: got {baseline!r:.60}, expected one of {list(policies)}")
