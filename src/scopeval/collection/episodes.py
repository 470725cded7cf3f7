"""Finished episodes as padded columns: what collection makes and every estimator reads.

Row i is one episode, column t one step of it; columns at and after ``length[i]`` are padding
(reward, cost and control 0, probabilities 1), so that sums and backward recursions over [N, T] need
no mask: a padded step adds nothing and has importance ratio 1.

`EpisodeRecord` is one episode while it is recorded, `LostEpisode` where one was lost, and
`Provenance` says which policies and which environment they are of.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import MAX_BYTES, reading
from scopeval._files import now
from scopeval.arrays import Bools, Floats, Ints, is_number, where_first
from scopeval.collection.episodes_file import read_episodes, write_episodes
from scopeval.errors import InputError
from scopeval.policies.fingerprint import table_hash
from scopeval.policies.protocols import Behavior, ContinuousPolicy, LearnedBehavior, Policy

__all__ = [
    "EpisodeRecord",
    "Episodes",
    "LostEpisode",
    "Provenance",
    "discounts",
    "exogenous_of",
    "provenance_of",
]


@dataclass(frozen=True)
class Provenance:
    """Where episodes come from; None: it is not known.

    Attributes:
        target: hash of the target policy (`policies.fingerprint`).
        behavior: hash of the behavior policy that ran.
        epsilon: what that was designed for, and
        gamma: its discount.
        plant: name of the environment.
        recorded: date and time, UTC; two records that differ in nothing else are equal.
    """

    target: str | None = None
    behavior: str | None = None
    epsilon: float | None = None
    gamma: float | None = None
    plant: str | None = None
    recorded: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("target", "behavior", "plant", "recorded"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name}: got {value!r:.60}, expected text")
        for name in ("epsilon", "gamma"):
            value = getattr(self, name)
            if value is not None and not is_number(value):
                raise InputError(f"{name}: got {value!r:.60}, expected a number")

    @classmethod
    def shared(cls, parts: Sequence[Provenance | None]) -> Provenance | None:
        """What several have in common; of the times the earliest. None: nothing is known."""
        provenances = [cls() if part is None else part for part in parts]
        common = {
            f.name: getattr(provenances[0], f.name)
            for f in fields(cls)
            if len({getattr(part, f.name) for part in provenances}) == 1
        }
        times = [part.recorded for part in provenances if part.recorded is not None]
        common_part = cls(**common | {"recorded": min(times, default=None)})
        return None if common_part == cls() and common_part.recorded is None else common_part


@dataclass(frozen=True)
class LostEpisode:
    """An episode that could not be finished.

    Attributes:
        index: its number under the seed of the collection.
        step: time step at which it broke; 0 is the reset or the first step.
        reason: what happened, in words.
        cost: what it had cost by then (not discounted).
    """

    index: int
    step: int
    reason: str
    cost: float = 0.0


@dataclass
class EpisodeRecord:
    """One episode while it is recorded; every column has one entry per step.

    Attributes:
        index: number of the episode under the seed of the collection.
        obs: observations; one more than steps, the last is the one after the last step.
        action: actions taken.
        reward: rewards.
        cost: costs.
        probs: pairs (mu, pi): probabilities of the action taken.
        controls: pairs (b, bbar): the control variate of the action taken, and its mean under pi.
        terminated: the last step ended the episode for good.
        by_target: the whole episode was run by the target itself.
        fallbacks: steps at which the behavior policy failed.
        guarded: steps that a guard gave to the target.
        signals: names of exogenous signals that the environment reports.
        exogenous: [T+1, d] what they were at the reset and after each step; NaN: not reported.
    """

    index: int
    obs: Any = field(default_factory=list)
    action: Any = field(default_factory=list)
    reward: Any = field(default_factory=list)
    cost: Any = field(default_factory=list)
    probs: Any = field(default_factory=list)
    controls: Any = field(default_factory=list)
    terminated: bool = False
    by_target: bool = False
    fallbacks: int = 0
    guarded: int = 0
    signals: tuple[str, ...] = ()
    exogenous: Any = field(default_factory=list)


def exogenous_of(
    records: Sequence[EpisodeRecord], horizon: int
) -> tuple[tuple[str, ...], Floats | None]:
    """Names of exogenous signals, and their paths [N, T+1, d], NaN where there are none."""
    signals = {record.signals for record in records}
    if len(signals) != 1 or signals == {()}:
        return (), None
    names = signals.pop()
    paths = np.full((len(records), horizon + 1, len(names)), np.nan)
    for row, record in enumerate(records):
        one = np.asarray(record.exogenous, np.float64)[: horizon + 1]
        paths[row, : len(one)] = one
    return names, paths


# --------------------------------------------------------------------------------------------------

_STEPS = ("reward", "cost", "behavior_prob", "target_prob", "control", "baseline")

#: The array fields and their types; None: int64 or float64, whichever they hold.
_KINDS: dict[str, type | None] = {
    **dict.fromkeys(("obs", "action", "last_obs")),
    **dict.fromkeys((*_STEPS, "exogenous"), np.float64),
    **dict.fromkeys(("length", "index", "fallbacks", "guarded"), np.int64),
    **dict.fromkeys(("terminated", "by_target"), np.bool_),
}

_PADDING = {"behavior_prob": 1.0, "target_prob": 1.0}


@dataclass(frozen=True, eq=False, repr=False)
class Episodes:
    """N finished episodes of at most T steps; the arrays are read-only.

    Attributes:
        obs: state numbers int64 [N, T], or vectors float64 [N, T, d].
        action: action numbers int64 [N, T], or continuous actions float64 [N, T, k].
        reward: [N, T].
        cost: [N, T], at least 0.
        behavior_prob: mu of the action taken among the candidates offered, [N, T].
        target_prob: pi (p_k of the candidate set) of the same action, [N, T].
        length: number of steps of each episode, [N].
        last_obs: observation after the last step, [N] or [N, d].
        terminated: whether the last step ended the episode for good (and not the horizon), [N].
        control: b_t(S, A), the control variate of the action taken, [N, T]; None is b = 0.
        baseline: bbar_t(S) = sum_k p_k b_k, [N, T]; None exactly when `control` is. Both are kept
            because the candidates of a continuous policy exist only while it runs.
        by_target: the whole episode was run by the target itself, [N].
        index: number of the episode under the seed of its collection, [N].
        fallbacks: steps at which the behavior policy failed and the target's own probabilities
            were used, [N].
        guarded: steps that a guard gave to the target, [N].
        exogenous: [N, T+1, d] what the environment reported of `signals` at the reset and at each
            step, to the horizon also where the episode ended before; NaN: nothing.
        signals: the names of these columns.
        columns: numbers of columns of `obs` that no action changes, as the plant says.
        lost: the episodes that could not be finished. They are missing, and not at random when the
            environment fails in some situations rather than others.
        interrupted: collection was stopped by the user before all episodes were run.
        provenance: of which policies and environment they are, where that is known.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    cost: Floats
    behavior_prob: Floats
    target_prob: Floats
    length: Ints
    last_obs: NDArray[Any]
    terminated: Bools
    control: Floats | None = None
    baseline: Floats | None = None
    by_target: Bools = None  # type: ignore[assignment]
    index: Ints = None  # type: ignore[assignment]
    fallbacks: Ints = None  # type: ignore[assignment]
    guarded: Ints = None  # type: ignore[assignment]
    exogenous: Floats | None = None
    signals: tuple[str, ...] = ()
    columns: tuple[int, ...] = ()
    lost: tuple[LostEpisode, ...] = ()
    interrupted: bool = False
    provenance: Provenance | None = None

    def __post_init__(self) -> None:
        reward = np.asarray(self.reward)
        if reward.ndim != 2 or not reward.shape[1]:
            raise InputError(f"episodes: reward has shape {reward.shape}, expected [N, T]")
        rows = len(reward)
        defaults = {
            "by_target": np.zeros(rows, np.bool_),
            "index": np.arange(rows),
            "fallbacks": np.zeros(rows, np.int64),
            "guarded": np.zeros(rows, np.int64),
        }
        for name, default in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if (self.control is None) != (self.baseline is None):
            raise InputError("episodes: control and baseline go together, got only one of them")
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None:
                array = np.asarray(value) if kind is None else np.asarray(value, dtype=kind)
                if kind is None:
                    whole = np.issubdtype(array.dtype, np.integer)
                    array = array.astype(np.int64 if whole else np.float64, copy=False)
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)
        self._check()

    def _check(self) -> None:
        rows, horizon = self.reward.shape
        for name in ("obs", "action", *_STEPS):
            value = getattr(self, name)
            if value is not None and value.shape[:2] != (rows, horizon):
                raise InputError(
                    f"episodes: {name} has shape {value.shape}, expected "
                    f"[{rows}, {horizon}] like reward"
                )
        for name in ("length", "terminated", "by_target", "index", "fallbacks", "guarded"):
            if getattr(self, name).shape != (rows,):
                raise InputError(
                    f"episodes: {name} has shape {getattr(self, name).shape}, expected [{rows}]"
                )
        if self.last_obs.shape != (rows, *self.obs.shape[2:]):
            raise InputError(
                f"episodes: last_obs has shape {self.last_obs.shape}, expected "
                f"{(rows, *self.obs.shape[2:])}"
            )
        many = None if self.exogenous is None else (len(self.exogenous), self.exogenous.shape[-1])
        if many not in (None, (rows, len(self.signals))):
            raise InputError(
                f"episodes: exogenous has shape {self.exogenous.shape}, expected [{rows}, T+1, "  # type: ignore[union-attr]
                f"{len(self.signals)}] for the signals {self.signals}"
            )
        bad = (self.length < 1) | (self.length > horizon)
        if bad.any():
            raise InputError(
                f"episodes: length {self.length[bad][0]} {where_first(bad, ('episode',))}; "
                f"expected 1 to {horizon}"
            )
        axes = ("episode", "t")
        for name in _STEPS:
            value = getattr(self, name)
            if value is None:
                continue
            bad = ~np.isfinite(value)
            if bad.any():
                raise InputError(f"episodes: {name} is not finite {where_first(bad, axes)}")
            bad = (value != _PADDING.get(name, 0.0)) & ~self.steps
            if bad.any():
                raise InputError(
                    f"episodes: {name} is {value[bad][0]:.6g} {where_first(bad, axes)}, after the "
                    f"end of the episode; expected the padding {_PADDING.get(name, 0.0):g}"
                )
        for name, bad in (
            ("cost < 0", self.cost < 0),
            ("target_prob outside [0, 1]", (self.target_prob < 0) | (self.target_prob > 1)),
            ("behavior_prob outside (0, 1]", (self.behavior_prob <= 0) | (self.behavior_prob > 1)),
        ):
            if bad.any():
                raise InputError(f"episodes: {name} {where_first(bad, axes)}")

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
    def ratios(self) -> Floats:
        """rho_t = pi / mu of the action taken, [N, T]; 1 in the padding."""
        return self.target_prob / self.behavior_prob

    @property
    def weights(self) -> Floats:
        """prod_t rho_t of whole episodes, [N]."""
        return np.asarray(np.prod(self.ratios, axis=1))

    def returns(self, gamma: float = 1.0) -> Floats:
        """sum_t gamma^t R_t of each episode, [N]."""
        return np.asarray(self.reward @ discounts(gamma, self.horizon))

    def costs(self, gamma: float = 1.0) -> Floats:
        """sum_t gamma^t C_t of each episode, [N]: the realized cost."""
        return np.asarray(self.cost @ discounts(gamma, self.horizon))

    def select(self, rows: NDArray[Any] | slice | Sequence[int]) -> Episodes:
        """Some of the episodes, by numbers, mask or slice; `lost` stays with the whole."""
        picked: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[rows]
            for name in _KINDS
        }
        return Episodes(
            **picked, signals=self.signals, columns=self.columns, provenance=self.provenance
        )

    @staticmethod
    def of_records(
        records: Sequence[EpisodeRecord],
        horizon: int,
        *,
        controlled: bool,
        lost: Sequence[LostEpisode] = (),
        interrupted: bool = False,
    ) -> Episodes:
        """Pad recorded episodes to [N, T]; `controlled`: keep their control variates."""
        length = np.array([len(r.reward) for r in records], np.int64)
        steps = np.arange(horizon) < length[:, None]

        def padded(rows: list[Any], fill: float, empty: tuple[int, ...] = ()) -> NDArray[Any]:
            if not rows:
                return np.empty((0, horizon, *empty))
            flat = np.concatenate([np.asarray(row) for row in rows])
            out = np.full((len(rows), horizon, *flat.shape[1:]), fill, dtype=flat.dtype)
            out[steps] = flat
            return out

        none = np.empty((0, horizon), np.int64)
        probs = padded([r.probs for r in records], 1, (2,))
        controls = padded([r.controls for r in records], 0, (2,))
        controlled = controlled and bool(records)
        signals, exogenous = exogenous_of(records, horizon)
        return Episodes(
            exogenous=exogenous,
            signals=signals,
            obs=padded([r.obs[:-1] for r in records], 0) if records else none,
            action=padded([r.action for r in records], 0) if records else none,
            reward=padded([r.reward for r in records], 0),
            cost=padded([r.cost for r in records], 0),
            behavior_prob=probs[..., 0],
            target_prob=probs[..., 1],
            length=length,
            last_obs=np.array([r.obs[-1] for r in records], None if records else np.int64),
            terminated=np.array([r.terminated for r in records], np.bool_),
            control=controls[..., 0] if controlled else None,
            baseline=controls[..., 1] if controlled else None,
            by_target=np.array([r.by_target for r in records], np.bool_),
            index=np.array([r.index for r in records], np.int64),
            fallbacks=np.array([r.fallbacks for r in records], np.int64),
            guarded=np.array([r.guarded for r in records], np.int64),
            lost=tuple(lost),
            interrupted=interrupted,
        )

    @staticmethod
    def none(
        horizon: int, lost: Sequence[LostEpisode] = (), *, interrupted: bool = False
    ) -> Episodes:
        """No finished episode; some that were lost."""
        return Episodes.of_records(
            [], horizon, controlled=False, lost=lost, interrupted=interrupted
        )

    @staticmethod
    def concat(parts: Sequence[Episodes]) -> Episodes:
        """All episodes of several collections with the same horizon, in order.

        Where only some parts have a control variate, the others have b = 0.
        """
        if not parts:
            raise InputError("episodes: nothing to concatenate, expected at least one part")
        if len({part.horizon for part in parts}) > 1:
            got = sorted({part.horizon for part in parts})
            raise InputError(f"episodes: got parts with horizons {got}, expected one horizon")
        filled = [part for part in parts if len(part)] or [parts[0]]
        for name in ("obs", "action"):
            shapes = {getattr(part, name).shape[2:] for part in filled}
            if len(shapes) > 1:
                raise InputError(f"episodes: {name} has different widths {shapes} in the parts")
        if any(part.control is not None for part in filled):
            filled = [
                part
                if part.control is not None
                else part.with_control(np.zeros_like(part.reward), np.zeros_like(part.reward))
                for part in filled
            ]
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in filled])
            for name in _KINDS
            if getattr(filled[0], name) is not None
        }
        signals = {part.signals for part in filled}
        if len(signals) > 1:
            raise InputError(
                f"episodes: got parts with signals {sorted(signals)}, expected one set"
            )
        return Episodes(
            **columns,
            signals=signals.pop(),
            columns=filled[0].columns if len({part.columns for part in filled}) == 1 else (),
            lost=tuple(lost for part in parts for lost in part.lost),
            interrupted=any(part.interrupted for part in parts),
            provenance=Provenance.shared([part.provenance for part in parts])
            if any(part.provenance for part in parts)
            else None,
        )

    def with_control(self, control: Floats | None, baseline: Floats | None) -> Episodes:
        """The same episodes with another control variate (None, None: b = 0)."""
        return replace(self, control=control, baseline=baseline)

    def with_provenance(
        self, provenance: Provenance | None, columns: tuple[int, ...] | None = None
    ) -> Episodes:
        """The same episodes with another provenance; the arrays are not checked again.

        Args:
            provenance: of which policies and environment they are.
            columns: what the plant says of the observation's columns; None: as it is.
        """
        changed = copy(self)
        object.__setattr__(changed, "provenance", provenance)
        object.__setattr__(changed, "columns", self.columns if columns is None else columns)
        return changed

    def transitions(self) -> dict[str, NDArray[Any]]:
        """One row per step as a log has it, ready for `Transitions(**columns)`.

        Columns t, obs, action, reward, cost, next_obs, terminated; episodes one after another; and
        signals with their names where the environment reported some at every step.
        """
        real = self.steps
        following = np.empty_like(self.obs)
        following[:, :-1] = self.obs[:, 1:]
        rows, last = np.arange(len(self)), self.length - 1
        following[rows, last] = self.last_obs
        ends = np.zeros_like(real)
        ends[rows, last] = self.terminated
        reported: dict[str, NDArray[Any]] = {}
        if self.exogenous is not None and np.isfinite(signals := self.exogenous[:, 1:][real]).all():
            reported = {"exogenous": np.array(self.signals), "signals": signals}
        elif self.columns:
            reported = {"exogenous": np.array(self.columns)}
        return {
            **reported,
            "t": np.broadcast_to(np.arange(self.horizon), real.shape)[real],
            "obs": self.obs[real],
            "action": self.action[real],
            "reward": self.reward[real],
            "cost": self.cost[real],
            "next_obs": following[real],
            "terminated": ends[real],
        }

    def save(self, path: str | Path) -> None:
        """Write a compressed NPZ file, all of it or nothing (no pickle).

        Raises:
            DataError: the file cannot be written there, for example because the disk is full.
        """
        arrays = {n: getattr(self, n) for n in _KINDS if getattr(self, n) is not None}
        about: dict[str, Any] = {"lost": [asdict(one) for one in self.lost]}
        about["interrupted"] = self.interrupted
        if self.signals:
            about["signals"] = list(self.signals)
        if self.columns:
            about["columns"] = list(self.columns)
        if self.provenance is not None:
            about["provenance"] = asdict(self.provenance)
        write_episodes(path, arrays, about)

    @staticmethod
    def load(path: str | Path, *, max_bytes: int = MAX_BYTES) -> Episodes:
        """Read what `save` wrote; the file may come from anyone.

        Args:
            path: of the file.
            max_bytes: most bytes of memory that it may ask for.

        Raises:
            DataError: not a file of episodes, damaged, too large, or written in another format.
        """
        content = read_episodes(path, _KINDS, max_bytes)
        with reading(f"{path}", "a file of episodes that scopeval saved"):
            lost = tuple(LostEpisode(**one) for one in content.pop("lost"))
            where = content.pop("provenance")
            provenance = None if where is None else Provenance(**where)
            return Episodes(**content, lost=lost, provenance=provenance)

    def __repr__(self) -> str:
        gone = f", {len(self.lost):,} lost" if self.lost else ""
        return f"Episodes({len(self):,} of at most {self.horizon:,} steps{gone})"


def discounts(gamma: float, horizon: int) -> Floats:
    """gamma^t for t = 0..horizon-1."""
    if not 0.0 < gamma <= 1.0:
        raise InputError(f"gamma: got {gamma!r}, expected a discount in (0, 1]")
    return np.asarray(float(gamma) ** np.arange(horizon), dtype=np.float64)


def provenance_of(
    plant: str | None,
    target: Policy | ContinuousPolicy,
    behavior: Behavior | Policy | None,
    horizon: int,
) -> Provenance:
    """The provenance of episodes that begin now.

    Args:
        plant: name of the environment; None: not known.
        target: pi.
        behavior: what runs; None: the target itself.
        horizon: T.
    """
    learned = behavior if isinstance(behavior, LearnedBehavior) else None
    identity = None if learned is None else learned.identify()
    terms = None if learned is None else learned.recipe
    return Provenance(
        target=table_hash(target, horizon) or (identity.target if identity is not None else None),
        behavior=identity.behavior if identity is not None else None,
        epsilon=None if terms is None else terms.epsilon,
        gamma=None if terms is None else terms.gamma,
        plant=plant,
        recorded=now(),
    )
