"""The behaviour policy that `design` returns: runs in place of the target, and knows its limits.

Everything doubtful ends in the target's own probabilities, is counted, and is told: an observation
unlike the logs, a program without an answer, a critic that is not finite.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Floats
from scopeval.critic_mlp import MLPCritic
from scopeval.critic_table import TableCritic
from scopeval.critics import Critic, Estimates
from scopeval.errors import DataError, InputError
from scopeval.methods import Method, method_named, tilt
from scopeval.policies import (
    Candidates,
    ContinuousPolicy,
    Observations,
    Policy,
    Time,
    Weighing,
    as_policy,
    offer,
)
from scopeval.solver import Status

__all__ = ["Action", "BehaviorPolicy", "Prediction", "load"]

FORMAT = 1
KINDS = {"table": TableCritic, "mlp": MLPCritic}


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
    """How mu follows from a critic's estimates; kept with the policy."""

    method: str
    epsilon: float
    horizon: int
    gamma: float
    floor: float
    margin: float
    constraint: str
    limit: float | None


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
        offered = offer(self.target, batch, t, rng)
        weighing = self.weigh(offered, batch, t)
        mu = weighing.probs[0]
        k = min(int(np.searchsorted(np.cumsum(mu), rng.random(), side="right")), len(mu) - 1)
        b, bbar = 0.0, 0.0
        if weighing.control is not None:
            b = float(weighing.control[0, k])
            bbar = float(offered.probs[0] @ weighing.control[0])
        chosen = offered.actions[0, k]
        return Action(
            action=int(chosen) if np.ndim(chosen) == 0 else chosen,
            probability=float(mu[k]),
            target_probability=float(offered.probs[0, k]),
            control=b,
            baseline=bbar,
        )

    def _step(
        self, t: int, obs: Observations, pi: Floats, actions: NDArray[Any] | None
    ) -> tuple[Floats, Floats]:
        """Mu and b at one time step, with every doubt resolved in favour of pi."""
        self.counts.asked += len(pi)
        if not 0 <= t < len(self.critics):
            self.counts.unseen += len(pi)
            return pi, np.zeros_like(pi)
        estimates = self.critics[t].at(obs, actions)
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
            f"  support              {report.support:.1%} of the target's actions are in the logs",
            f"  constraint binds     in {report.binding:.1%} of the logged states",
            f"  keeps to the target  {recipe.floor:.0%} everywhere, wholly in {report.kept:.1%} "
            "of the logged states",
        ]
        lines += [f"  held-out error       {k}: {v:.3g}" for k, v in report.holdout.items()]
        if self.counts.asked:
            c = self.counts
            lines.append(
                f"  so far asked {c.asked:,} times; kept to the target for an unseen observation "
                f"{c.unseen:,}, no affordable answer {c.infeasible:,}, not finite {c.not_finite:,}"
            )
        lines += [f"  warning: {text}" for text in report.warnings]
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
        """Write one file, whole or not at all; `load` brings it back. No pickle inside."""
        arrays: dict[str, NDArray[Any]] = {}
        kind = next((name for name, k in KINDS.items() if isinstance(self.critics[0], k)), "other")
        parts = [critic.arrays() for critic in self.critics]
        for name in parts[0]:
            arrays[name] = np.stack([part[name] for part in parts])
        header = {
            "format": FORMAT,
            "kind": kind,
            "recipe": asdict(self.recipe),
            "report": asdict(self.report),
        }
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        target = Path(path)
        handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=target.name)
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def weigh_rows(
    method: Method,
    recipe: Recipe,
    pi: Floats,
    e: Estimates,
    *,
    counts: Counts | None = None,
) -> tuple[Floats, Floats]:
    """Mu and b from a critic's estimates: the program, then the floor, pi wherever in doubt."""
    finite = np.isfinite(e.q + e.cost_target + e.noise + e.cost_behavior.sum(2)).all(axis=1)
    finite &= np.isfinite(e.carried).all(axis=(1, 2))
    clean = np.where(finite[:, None], 1.0, np.nan)
    b = np.nan_to_num(e.q * clean) if method.control_variate else np.zeros_like(pi)
    followed = -1 if method.follows_behavior else 0
    second = (e.q - b) ** 2 + e.noise + e.carried[..., followed]
    known = e.known & finite[:, None]
    cost = e.cost_behavior[..., -1] if recipe.constraint == "behavior" else e.cost_target
    step = tilt(
        method,
        pi,
        np.nan_to_num(second * clean),
        np.nan_to_num(cost * clean),
        budget(recipe, pi, np.nan_to_num(e.cost_target * clean), np.nan_to_num(cost), known),
        known,
    )
    if counts is not None:
        counts.not_finite += int((~finite).sum())
        counts.unseen += int((finite & ~((known | (pi == 0)).all(axis=1))).sum())
        counts.infeasible += int((step.status == Status.INFEASIBLE).sum())
    mu = (1.0 - recipe.floor) * step.mu + recipe.floor * pi
    return mu, b


def budget(
    recipe: Recipe, pi: Floats, cost_target: Floats, cost: Floats, known: NDArray[np.bool_]
) -> Floats:
    """Delta per unit of the known actions' probability.

    Relative: (1 + eps - margin) times what pi's known actions cost. Absolute: the limit, less what
    pi's unknown actions are thought to cost.
    """
    mass = np.where(known, pi, 0.0).sum(axis=1)
    if recipe.limit is None:
        spend = (1.0 + recipe.epsilon - recipe.margin) * np.where(known, pi * cost_target, 0).sum(1)
    else:
        spend = recipe.limit * (1.0 - recipe.margin) - np.where(known, 0.0, pi * cost).sum(axis=1)
    return np.asarray(spend / np.where(mass > 0, mass, 1.0))


def load(path: str | Path, target: object) -> BehaviorPolicy:
    """Bring a saved behaviour policy back, for the target it was designed for.

    The target itself is not in the file: it is the user's, and may be a network.
    """
    name = f"{path}"
    try:
        raw = Path(path).read_bytes()
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError) as e:
        raise DataError(f"{name}: not a saved behaviour policy, or damaged ({e})") from e
    try:
        header = json.loads(bytes(arrays.pop("header")).decode())
        if header["format"] != FORMAT:
            raise DataError(
                f"{name}: written in format {header['format']}, this version reads {FORMAT}; "
                "try another version of scopeval, or design anew"
            )
        recipe = Recipe(**header["recipe"])
        report = header["report"]
        report["prediction"] = Prediction(**report["prediction"])
        report["warnings"] = tuple(report["warnings"])
        report["notes"] = tuple(report["notes"])
        kind = KINDS[header["kind"]]
        critics = [
            kind(**{key: value[t] for key, value in arrays.items()}) for t in range(recipe.horizon)
        ]
        return BehaviorPolicy(as_policy(target), critics, recipe, Report(**report))
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{name}: not a saved behaviour policy, or damaged ({error!r})") from error
