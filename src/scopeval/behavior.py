"""The behaviour policy that `design` returns: runs in place of the target, and knows its limits.

Everything doubtful ends in the target's own probabilities, is counted, and is told: an observation
unlike the logs, a program without an answer, a critic that is not finite.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval import _behavior_kernel as kernel
from scopeval.acting import look
from scopeval.arrays import Floats
from scopeval.critic_mlp import MLPCritic
from scopeval.critic_model import ModelCritic
from scopeval.critic_table import TableCritic
from scopeval.critics import Critic, Estimates
from scopeval.errors import DataError, InputError
from scopeval.methods import Method, check_budget, method_named
from scopeval.policies import (
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    TabularPolicy,
    Time,
    Weighing,
    as_policy,
    offer,
)
from scopeval.solver import solve

__all__ = ["Action", "BehaviorPolicy", "Prediction", "load"]

FORMAT, READABLE = 3, (2, 3)
CHECKSUM = 32  # bytes of a SHA-256
#: Critics that say more than this (or not a number) are not believed: squares would overflow.
LARGEST = 1e150
#: Rows that are weighed together: what they need fits into the cache.
TOGETHER = 4096
KINDS = {"table": TableCritic, "mlp": MLPCritic, "model": ModelCritic}


@dataclass(frozen=True)
class Prediction:
    """What the design expects of itself, relative to running the target.

    Attributes:
        variance: relative variance, from the critics and their own errors.
        cost: relative cost, likewise.
        checked_variance: the same for a design on half of the logs, judged by critics of the other
            half; the gap to `variance` is what the critics cannot agree on.
        checked_cost: likewise.
    """

    variance: float
    cost: float
    checked_variance: float
    checked_cost: float


@dataclass
class Counts:
    """How often the behaviour policy was asked, and why it kept to the target."""

    asked: int = 0
    unseen: int = 0
    infeasible: int = 0
    not_finite: int = 0

    def add(self, other: Counts) -> None:
        """Count another's as well."""
        self.asked += other.asked
        self.unseen += other.unseen
        self.infeasible += other.infeasible
        self.not_finite += other.not_finite


@dataclass(frozen=True)
class Action:
    """One action to take, with the probabilities it was drawn with."""

    action: Any
    probability: float
    target_probability: float
    control: float = 0.0
    baseline: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """How mu follows from a critic's estimates; kept with the policy.

    `share` is for methods with a control variate b: it takes over that share of how q differs
    between the actions of a state, b = v + share (q - v). With the budget "episode", cost has a
    `price` instead of a budget in every state.
    """

    method: str
    epsilon: float
    horizon: int
    gamma: float
    floor: float
    margin: float
    constraint: str
    limit: float | None
    share: float = 1.0
    budget: str = "state"
    price: float = 0.0


@dataclass(frozen=True)
class Shape:
    """What the target looked like: number of actions (0: not known), width of vectors, states."""

    actions: int = 0
    width: int | None = None
    states: int | None = None


@dataclass(frozen=True)
class Report:
    """What was learned about the logs and the design; printed by `summary`."""

    rows: int
    regression: str
    support: float
    binding: float
    kept: float
    prediction: Prediction
    holdout: dict[str, float]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = field(default=())
    shape: Shape = field(default_factory=lambda: Shape())


class BehaviorPolicy:
    """A behaviour policy learned from logs, for one target.

    ``weigh`` re-weighs what the target offers (the form that `collect` asks for); ``probs`` gives
    probabilities for a batch; ``act`` draws one action. ``counts`` tells how often it fell back.
    """

    def __init__(
        self,
        target: Policy | ContinuousPolicy,
        critics: Sequence[Critic],
        recipe: Recipe,
        report: Report,
    ) -> None:
        self.target = target
        self.critics = list(critics)
        self.recipe = recipe
        self.report = report
        self.counts = Counts()
        self._method: Method = method_named(recipe.method)
        #: Action numbers of a finite target, None for a continuous one.
        self._every = None if isinstance(target, ContinuousPolicy) else np.arange(1)[None]

    # -- running -----------------------------------------------------------------------------

    def weigh(self, offered: Candidates, obs: Observations, t: Time) -> Weighing:
        """Mu over the offered candidates, and the control variate where the method has one."""
        times = np.broadcast_to(np.asarray(t), (len(offered.probs),))
        mu = np.empty_like(offered.probs)
        control = np.zeros_like(mu) if self._method.control_variate else None
        for step in np.unique(times):
            rows = np.flatnonzero(times == step)
            every = len(rows) == len(times)
            part = obs if every else obs[rows]
            pi = offered.probs if every else offered.probs[rows]
            acts = None if offered.actions.ndim == 2 else offered.actions[rows]
            mu_rows, b_rows = self._step(int(step), part, pi, acts)
            mu[rows] = mu_rows
            if control is not None:
                control[rows] = b_rows
        return Weighing(mu, control)

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Probabilities [B, A] (finite action sets)."""
        if isinstance(self.target, ContinuousPolicy):
            raise InputError("probs: the action set is continuous; use act() or weigh()")
        return self.weigh(offer(self.target, obs, t, np.random.default_rng(0)), obs, t).probs

    def act(self, obs: Any, t: int, rng: np.random.Generator) -> Action:
        """Draw one action for one observation; pass the probabilities on with the outcome."""
        batch = np.asarray(obs)[None]
        offered = self._offer(batch, t, rng)
        candidates = None if offered.actions.ndim == 2 else offered.actions
        mu, b = (x[0] for x in self._step(t, batch, offered.probs, candidates))
        k = kernel.drawn(mu, rng.random())
        pi, chosen = offered.probs[0], offered.actions[0, k]
        return Action(
            action=int(chosen) if np.ndim(chosen) == 0 else chosen,
            probability=float(mu[k]),
            target_probability=float(pi[k]),
            control=float(b[k]),
            baseline=float(pi @ b) if self._method.control_variate else 0.0,
        )

    def _offer(self, batch: Observations, t: int, rng: np.random.Generator) -> Candidates:
        """What the target offers; `offer` without asking again what kind of policy it is."""
        if isinstance(self._every, np.ndarray):
            pi = np.ascontiguousarray(self.target.probs(batch, t), np.float64)  # type: ignore[union-attr]
            if pi.shape[1] != self._every.shape[1]:
                self._every = np.arange(pi.shape[1])[None]
            return Candidates(self._every, pi)
        return offer(self.target, batch, t, rng)

    def _step(
        self, t: int, obs: Observations, pi: Floats, actions: NDArray[Any] | None
    ) -> tuple[Floats, Floats]:
        """Mu and b at one time step, with every doubt resolved in favour of pi."""
        self.counts.asked += len(pi)
        if not 0 <= t < len(self.critics):
            self.counts.unseen += len(pi)
            return pi, np.zeros_like(pi)
        found = look(
            self.critics[t],
            obs,
            actions,
            pi.shape[1],
            follows=self._method.follows_behavior,
            own_cost=self.recipe.constraint == "behavior",
        )
        if found is not None:
            return weigh_parts(self._method, self.recipe, pi, *found, counts=self.counts)
        estimates = self.critics[t].at(obs, actions)
        if estimates.q.shape != pi.shape:
            raise InputError(
                f"target: offers {pi.shape[1]} actions, the behaviour policy was designed for "
                f"{estimates.q.shape[1]}"
            )
        return weigh_rows(self._method, self.recipe, pi, estimates, counts=self.counts)

    # -- telling -----------------------------------------------------------------------------

    @property
    def predicted(self) -> Prediction:
        """Predicted variance and cost, relative to the target's own."""
        return self.report.prediction

    def table(self, states: int) -> tuple[Floats, Floats | None]:
        """Mu [T, S, A] and b [T, S, A] for state numbers, to assess or simulate exactly."""
        counts, self.counts = self.counts, Counts()
        try:
            every = np.arange(states)
            rng = np.random.default_rng(0)
            parts = [
                self.weigh(offer(self.target, every, t, rng), every, t)
                for t in range(self.recipe.horizon)
            ]
        finally:
            self.counts = counts
        mu = np.stack([part.probs for part in parts])
        if parts[0].control is None:
            return mu, None
        return mu, np.stack([part.control for part in parts if part.control is not None])

    def summary(self) -> str:
        """What a person should know before running it."""
        recipe, report, p = self.recipe, self.report, self.report.prediction
        lines = [
            f"behaviour policy by {recipe.method}, horizon {recipe.horizon}, "
            f"epsilon {recipe.epsilon:g}, learned from {report.rows:,} logged rows "
            f"({report.regression}, {report.seconds:.1f} s)",
            f"  predicted variance   {p.variance:.3f} of on-policy's "
            f"(checked on held-out logs: {p.checked_variance:.3f})",
            f"  predicted cost       {p.cost:.3f} of the target's "
            f"(checked: {p.checked_cost:.3f}; allowed: {1 + recipe.epsilon:.3f})",
            f"  support              {report.support:.1%} of the target's own steps are in "
            "the logs",
            (
                f"  constraint binds     in {report.binding:.1%} of the logged states"
                if recipe.budget == "state" or not self._method.constrained
                else f"  one budget           for whole episodes, at a price of {recipe.price:.3g}"
            ),
            f"  keeps to the target  {recipe.floor:.0%} everywhere, wholly in {report.kept:.1%} "
            "of the logged states",
        ]
        if self._method.control_variate and recipe.share < 1.0:
            lines.append(
                f"  control variate      takes over {recipe.share:.0%} of what the critics say "
                "about actions"
            )
        lines += [f"  held-out error       {k}: {v:.3g}" for k, v in report.holdout.items()]
        if self.counts.asked:
            c = self.counts
            lines.append(
                f"  so far asked {c.asked:,} times; kept to the target for an unseen observation "
                f"{c.unseen:,}, no affordable answer {c.infeasible:,}, not finite {c.not_finite:,}"
            )
        trouble = getattr(self.critics[0], "trouble", None)
        lines += [f"  warning: {text}" for text in report.warnings]
        lines += [f"  warning: the simulator failed; last: {trouble}"] if trouble else []
        lines += [f"  note: {text}" for text in report.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        p = self.report.prediction
        return (
            f"BehaviorPolicy(method={self.recipe.method!r}, horizon={self.recipe.horizon}, "
            f"predicted variance {p.variance:.3f}, predicted cost {p.cost:.3f})"
        )

    # -- keeping -----------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one file, whole or not at all; `load` brings it back. No pickle inside.

        The file is a NumPy archive (a zip file) whose comment is the checksum of all before it.

        Raises:
            InputError: critics of your own, which `load` could not bring back.
            DataError: the file cannot be written there.
        """
        parts = [critic.arrays() for critic in self.critics]
        kind = next((name for name, k in KINDS.items() if isinstance(self.critics[0], k)), None)
        if kind is None:
            raise InputError(
                f"save: critics of type {type(self.critics[0]).__name__} cannot be brought back; "
                "try regression='auto'"
            )
        arrays = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        if isinstance(self.critics[0], ModelCritic):
            arrays |= {f"shared_{k}": v for k, v in self.critics[0].shared().items()}
        header = {
            "format": FORMAT,
            "kind": kind,
            "recipe": asdict(self.recipe),
            "report": asdict(self.report),
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()[:-2] + CHECKSUM.to_bytes(2, "little")  # length of the comment
        place = Path(path).resolve()  # a link keeps pointing to the file
        draft = place.with_name(f".{place.name}.{secrets.token_hex(6)}.tmp")
        try:
            try:
                with draft.open("xb") as file:
                    file.write(content + hashlib.sha256(content).digest())
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, place)
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error})") from error


def weigh_rows(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    e: Estimates,
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Mu and b from a critic's estimates: the program, then the floor, pi wherever in doubt.

    Whatever the numbers are, the rows of mu are distributions and b is finite.
    """
    if len(pi) <= TOGETHER:
        return _weigh_some(method, recipe, pi, e, counts)
    mu, b = np.empty(pi.shape), np.empty(pi.shape)

    def work(start: int) -> Counts:
        some, told = slice(start, start + TOGETHER), Counts()
        mu[some], b[some] = _weigh_some(method, recipe, pi[some], e.select(some), told)
        return told

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for told in pool.map(work, range(0, len(pi), TOGETHER)):
            if counts is not None:
                counts.add(told)
    return mu, b


def _weigh_some(
    method: Method, recipe: Recipe, pi: Floats, e: Estimates, counts: Counts | None
) -> tuple[Floats, Floats]:
    own_cost = recipe.constraint == "behavior"
    parts = np.empty((5, *pi.shape))
    parts[0], parts[1] = e.q, e.noise
    parts[2] = e.carried[..., -1 if method.follows_behavior else 0]
    parts[3], parts[4] = e.cost_target, e.cost_behavior[..., -1] if own_cost else e.cost_target
    return weigh_parts(method, recipe, pi, parts, np.array(e.known), counts=counts)


def weigh_parts(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    parts: Floats,
    known: NDArray[np.bool_],
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """`weigh_rows` for the five numbers that matter: see `_behavior_kernel.programs`.

    What is not known keeps pi, and the program is solved over the other actions with the
    probability and the budget that pi leaves them.
    """
    pi = np.ascontiguousarray(pi, np.float64)
    share = float(recipe.share) if method.control_variate else -1.0
    rule = _rule(recipe)
    priced = method.constrained and recipe.budget == "episode"
    if len(pi) == 1:
        kind = method.constrained, method.tilted, method.follows_behavior
        price = float(recipe.price) if priced else -1.0
        mu, told = kernel.weigh_one(parts, known, pi, share, rule, price, kind, recipe.floor)
    else:
        program, (mu, status), more = kernel.programs(parts, known, pi, share, rule, priced)
        if priced:
            kernel.at_price(program[0], program[1], float(recipe.price), more[1], mu, status)
        elif method.constrained:
            solution = solve(*program)
            mu, status = solution.mu, solution.status
        elif method.tilted:
            kernel.in_proportion(program[0], known, pi, method.follows_behavior, mu, status)
        told = kernel.settle(mu, status, *more, recipe.floor)
    unseen, infeasible, not_finite = told
    if counts is not None:
        counts.unseen += unseen
        counts.infeasible += infeasible
        counts.not_finite += not_finite
    return mu, parts[0]


def budget(
    recipe: Recipe, pi: Floats, cost_target: Floats, cost: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Delta per unit of the known actions' probability.

    Relative: (1 + eps - margin) times what pi's known actions cost. Absolute: the limit, less what
    pi's unknown actions are thought to cost.
    """
    tables = (np.ascontiguousarray(x, np.float64) for x in (pi, cost_target, cost))
    return np.asarray(kernel.allowances(*tables, np.array(known), _rule(recipe)))


def _rule(recipe: Recipe) -> tuple[float, float, float]:
    """Share of the target's cost, absolute limit (NaN: none), largest number believed."""
    share = min(1.0 + recipe.epsilon - recipe.margin, LARGEST)
    if recipe.limit is None:
        return share, np.nan, LARGEST
    return share, min(recipe.limit, LARGEST) * (1.0 - recipe.margin), LARGEST


def load(path: str | Path, target: object) -> BehaviorPolicy:
    """Bring a saved behaviour policy back, for the target it was designed for.

    The target itself is not in the file: it is the user's, and may be a network.

    Raises:
        DataError: not a file that `save` wrote, damaged, or written in another format.
        InputError: a target of another shape.
    """
    policy = as_policy(target)
    name = f"{path}"
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error})") from error
    content, checksum = raw[:-CHECKSUM], raw[-CHECKSUM:]
    if hashlib.sha256(content).digest() != checksum:
        raise DataError(
            f"{name}: not a saved behaviour policy, or damaged (its checksum is not there or "
            "wrong); expected a file written by BehaviorPolicy.save, try designing anew"
        )
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        header = json.loads(bytes(arrays.pop("header")).decode())
        if header["format"] not in READABLE:
            raise DataError(
                f"{name}: written in format {header['format']}, this version reads {FORMAT}; "
                "try another version of scopeval, or design anew"
            )
        recipe = Recipe(**header["recipe"])
        if check_budget(recipe.budget) == "episode" and not 0.0 <= recipe.price < np.inf:
            raise ValueError(f"price {recipe.price}")
        report = header["report"]
        report["prediction"] = Prediction(**report["prediction"])
        report["shape"] = Shape(**report["shape"])
        report["warnings"] = tuple(report["warnings"])
        report["notes"] = tuple(report["notes"])
        kind = KINDS[header["kind"]]
        start = "shared_"
        shared = {k.removeprefix(start): arrays.pop(k) for k in list(arrays) if k.startswith(start)}
        steps = [{k: value[t] for k, value in arrays.items()} for t in range(recipe.horizon)]
        critics: list[Critic] = [
            *(ModelCritic.restored(shared, steps) if kind is ModelCritic else ()),
            *(kind(**own) for own in (steps if kind is not ModelCritic else ())),
        ]
        behavior = BehaviorPolicy(policy, critics, recipe, Report(**report))
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{name}: not a saved behaviour policy, or damaged ({error!r})") from error
    _check_target(name, behavior)
    return behavior


def _check_target(name: str, behavior: BehaviorPolicy) -> None:
    """See that a loaded policy can be asked about this target."""
    target, shape, horizon = behavior.target, behavior.report.shape, behavior.recipe.horizon
    if isinstance(target, ContinuousPolicy) or not shape.actions:
        return
    if isinstance(target, TabularPolicy):
        if shape.states is not None and target.states != shape.states:
            raise InputError(
                f"target: has {target.states} states, {name} was designed for one with "
                f"{shape.states}; expected the same target"
            )
        if target.horizon is not None and target.horizon < horizon:
            raise InputError(
                f"target: covers {target.horizon} time steps, {name} was designed for {horizon}"
            )
    obs = np.zeros(1, np.int64) if shape.width is None else np.zeros((1, shape.width))
    try:
        offered = np.asarray(target.probs(obs, 0))
    except Exception as error:
        raise InputError(
            f"target: cannot be asked about observations as in the logs of {name} "
            f"({type(error).__name__}: {error}); expected the target it was designed for"
        ) from error
    if offered.shape != (1, shape.actions):
        raise InputError(
            f"target: offers {offered.shape[-1]} actions, {name} was designed for "
            f"{shape.actions}; expected the same target"
        )
