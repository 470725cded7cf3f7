"""Logged transitions: the data that designs are learned from.

One row is one step of one episode, (t, s, a, r, c, s') in the paper's letters. The policy that
chose the actions may be unknown, and a log may mix any number of policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.errors import DataError, InputError
from scopeval.logs.values import Origin, actions, flags, observations, reals, wholes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Recorded", "Transitions", "check_below", "not_a_log"]

_FIELDS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated", "has_next")


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Transitions:
    """A log as columns, one row per step.

    The arguments may be anything that numpy can convert to an array: lists, narrower integers,
    float32, whole numbers stored as floats. They are checked once, here, and the arrays are
    read-only afterwards. Writable arguments are copied, read-only ones are shared.

    Attributes:
        t: time within the episode, from 0; int64 [N].
        obs: state numbers, int64 [N], or vectors, float64 [N, d]. The type decides: a flat array
            of integers is state numbers, a flat array of floats is vectors of width 1.
        action: number of the action, int64 [N], or continuous actions, float64 [N, k].
        reward: float64 [N].
        cost: what the step cost or risked, at least 0; float64 [N].
        next_obs: like `obs`; ignored where `terminated`, and where not `has_next`.
        terminated: True where the value after the step is zero; bool [N]. An episode cut by a time
            limit is *not* terminated. Omitted: never.
        notes: remarks about the log, such as rows that look like duplicates.
        has_next: False where nobody recorded what followed, as in the last row of an episode that
            was cut; bool [N]. Its reward and cost are data all the same. Omitted: always True.
        exogenous: what no action changes, such as weather or demand: numbers of columns of `obs`,
            or the names of the columns of `signals`.
        signals: what the environment reported of these names at each step; float64 [N, d], or None.

    Raises:
        InputError: wrong shape or type, NaN, infinity, negative cost, time, state or action, no
            rows; with counts and the first rows.
    """

    t: NDArray[np.int64]
    obs: NDArray[np.int64] | NDArray[np.float64]
    action: NDArray[np.int64] | NDArray[np.float64]
    reward: NDArray[np.float64]
    cost: NDArray[np.float64]
    next_obs: NDArray[np.int64] | NDArray[np.float64]
    terminated: NDArray[np.bool_]
    notes: tuple[str, ...]
    has_next: NDArray[np.bool_]
    exogenous: tuple[int, ...] | tuple[str, ...]
    signals: NDArray[np.float64] | None

    def __init__(
        self,
        t: ArrayLike,
        obs: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        cost: ArrayLike,
        next_obs: ArrayLike,
        terminated: ArrayLike | None = None,
        notes: Sequence[str] = (),
        has_next: ArrayLike | None = None,
        exogenous: int | str | Sequence[int] | Sequence[str] = (),
        signals: ArrayLike | None = None,
    ) -> None:
        first = observations(obs, Origin("obs"))
        columns: dict[str, NDArray[Any]] = {
            "t": wholes(t, Origin("t")),
            "obs": first,
            "action": actions(action, Origin("action")),
            "reward": reals(reward, Origin("reward")),
            "cost": reals(cost, Origin("cost")),
            "next_obs": observations(next_obs, Origin("next_obs"), discrete=first.ndim == 1),
            "terminated": np.zeros(len(first), np.bool_)
            if terminated is None
            else flags(terminated, Origin("terminated")),
            "has_next": np.ones(len(first), np.bool_)
            if has_next is None
            else flags(has_next, Origin("has_next")),
        }
        if signals is not None:
            columns["signals"] = _signals(signals)
        Origin("t").refuse_where(columns["t"] < 0, "is negative", "count time from 0")
        Origin("cost").refuse_where(
            columns["cost"] < 0,
            "is negative",
            "costs are amounts, at least 0; a constant added to every step changes what a promise "
            "relative to another cost means",
        )
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            got = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise InputError(f"columns must have the same number of rows, got {got}")
        if not len(first):
            raise InputError("no rows; a log needs at least one transition")
        if first.shape != columns["next_obs"].shape:
            raise InputError(
                f"obs has width {first.shape[1]} and next_obs has width "
                f"{columns['next_obs'].shape[1]}; they must be the same"
            )
        arguments = (t, obs, action, reward, cost, next_obs, terminated, has_next, signals)
        for name, argument in zip((*_FIELDS, "signals"), arguments, strict=True):
            if name in columns:
                columns[name] = _owned(columns[name], argument)
        names = _exogenous(exogenous, first, columns.get("signals"))
        self._set(columns, tuple(notes), names)

    def _set(
        self,
        columns: dict[str, NDArray[Any]],
        notes: tuple[str, ...],
        exogenous: tuple[int, ...] | tuple[str, ...],
    ) -> None:
        object.__setattr__(self, "signals", None)
        for name, values in columns.items():
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        object.__setattr__(self, "notes", notes)
        object.__setattr__(self, "exogenous", exogenous)

    @classmethod
    def _of_checked(
        cls,
        columns: dict[str, NDArray[Any]],
        notes: tuple[str, ...],
        exogenous: tuple[int, ...] | tuple[str, ...],
    ) -> Transitions:
        """Build from columns that have been checked already."""
        made = cls.__new__(cls)
        made._set(columns, notes, exogenous)
        return made

    @property
    def kept_facts(self) -> Any:
        """The statistics of the log (`LogFacts`), if it was diagnosed; None otherwise."""
        return self.__dict__.get("_kept_facts")

    def keep_facts(self, facts: object) -> Transitions:
        """Keep the statistics, so that the log is read through once."""
        object.__setattr__(self, "_kept_facts", facts)
        return self

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Those that there are; `signals` is the last."""
        columns: dict[str, NDArray[Any]] = {name: getattr(self, name) for name in _FIELDS}
        return columns if self.signals is None else {**columns, "signals": self.signals}

    def __len__(self) -> int:
        return len(self.t)

    def __eq__(self, other: object) -> bool:
        """Whether every column is equal; notes are not compared."""
        if not isinstance(other, Transitions):
            return NotImplemented
        mine, theirs = self._columns(), other._columns()
        return (
            self.exogenous == other.exogenous
            and mine.keys() == theirs.keys()
            and all(np.array_equal(values, theirs[name]) for name, values in mine.items())
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        *columns, has_next = (getattr(self, name) for name in _FIELDS)
        return Transitions, (*columns, self.notes, has_next, self.exogenous, self.signals)

    def __repr__(self) -> str:
        obs = "states" if self.discrete_obs else f"vectors[{self.obs.shape[1]}]"
        action = "numbers" if self.discrete_actions else f"vectors[{self.action.shape[1]}]"
        return f"Transitions({len(self):,} rows, obs={obs}, action={action})"

    @property
    def discrete_obs(self) -> bool:
        """Whether observations are state numbers (and not vectors)."""
        return self.obs.ndim == 1

    @property
    def discrete_actions(self) -> bool:
        """Whether actions are numbers of a finite set (and not vectors)."""
        return self.action.ndim == 1

    def select(self, rows: ArrayLike | slice) -> Transitions:
        """The rows at these positions, or where this mask is True; there may be none.

        Raises:
            InputError: a mask of another length, or a position beyond the last row.
        """
        index: Any = rows
        if not isinstance(rows, slice):
            index = np.atleast_1d(np.asarray(rows))
            if index.size == 0 and index.dtype != np.bool_:
                index = index.astype(np.int64)
        try:
            columns = {name: values[index] for name, values in self._columns().items()}
        except IndexError as cause:
            raise InputError(
                f"rows must be positions below {len(self):,} or a mask of that length ({cause})"
            ) from cause
        if columns["t"].ndim != 1:
            raise InputError(f"rows must be one-dimensional, got shape {list(index.shape)}")
        return self._of_checked(columns, self.notes, self.exogenous)

    def with_notes(self, notes: Sequence[str]) -> Transitions:
        """The same log with further notes; equal ones are kept once."""
        every = tuple(dict.fromkeys((*self.notes, *notes)))
        made = self._of_checked(self._columns(), every, self.exogenous)
        return made.keep_facts(self.kept_facts)

    @staticmethod
    def concat(logs: Sequence[Transitions]) -> Transitions:
        """Several logs of one problem, one after the other.

        Exogenous columns stay where all logs name the same ones.

        Raises:
            InputError: nothing to join, or logs with different kinds of observations or actions.
        """
        if not logs:
            raise InputError("concat needs at least one Transitions, got none")
        for name in ("obs", "action"):
            kinds = [(getattr(log, name).dtype, getattr(log, name).shape[1:]) for log in logs]
            for i, kind in enumerate(kinds):
                if kind != kinds[0]:
                    raise InputError(
                        f"logs[{i}].{name} is {_kind(*kind)}, logs[0].{name} is {_kind(*kinds[0])}"
                    )
        every = [log._columns() for log in logs]
        agree = len({log.exogenous for log in logs}) == 1
        names = every[0] if agree else _FIELDS
        columns = {name: np.concatenate([one[name] for one in every]) for name in names}
        notes = dict.fromkeys(note for log in logs for note in log.notes)
        return Transitions._of_checked(columns, tuple(notes), logs[0].exogenous if agree else ())

    def check(
        self,
        horizon: int | None = None,
        actions: int | None = None,
        states: int | None = None,
        source: str = "transitions",
    ) -> None:
        """Check the log against the size of a problem.

        Args:
            horizon: steps in an episode; every t must be below.
            actions: size of the action set; every action must be below.
            states: number of states; every state number must be below.
            source: name of the log in error messages.

        Raises:
            DataError: rows outside, with counts and the first rows.
            InputError: a size that is not a positive integer.
        """
        check_below(self.t, horizon, "horizon", Origin(f"{source}: t", error=DataError))
        check_below(self.action, actions, "actions", Origin(f"{source}: action", error=DataError))
        for name in ("obs", "next_obs"):
            values = getattr(self, name)
            check_below(values, states, "states", Origin(f"{source}: {name}", error=DataError))

    def summary(self) -> str:
        """A few lines of text: size, ranges, terminations, notes."""
        if not len(self):
            return "Transitions: no rows"
        lines = [f"Transitions: {len(self):,} rows, t from {self.t.min()} to {self.t.max()}"]
        lines += [f"  {name:<13} {text}" for name, text in self._facts()]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])

    def _facts(self) -> list[tuple[str, str]]:
        ended, cut = int(self.terminated.sum()), int((~self.has_next).sum())
        return [
            ("observations", _described(self.obs, "state numbers")),
            ("actions", _described(self.action, "numbers")),
            ("reward", _spread(self.reward)),
            ("cost", _spread(self.cost)),
            ("terminated", f"{ended:,} rows ({100 * ended / len(self):.2g} %)"),
            *([("exogenous", ", ".join(map(str, self.exogenous)))] if self.exogenous else []),
            *([("no successor", f"{cut:,} rows")] if cut else []),
        ]

    def stored_columns(self) -> dict[str, NDArray[Any]]:
        """The columns as files and tables hold them: `has_next` only where it says anything."""
        return {k: v for k, v in self._columns().items() if k != "has_next" or not v.all()}

    def to_frame(self) -> DataFrame:
        """A pandas table with one row per step, which `read_logs` reads back.

        Vectors become numbered columns: obs_0, obs_1, ...
        """
        from scopeval.notebook.frame import frame_of, vector_columns

        columns: dict[str, Any] = {}
        for name, values in self.stored_columns().items():
            columns |= vector_columns(name, values)
        return frame_of(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the mean reward and the mean cost of a step by time, the middle half shaded.

        Args:
            ax: matplotlib axes; None: those of a new figure.
        """
        from scopeval.notebook.sketch import OURS, OWN, axes_or_new

        ax = axes_or_new(ax)
        order = np.argsort(self.t, kind="stable")
        times, starts = np.unique(self.t[order], return_index=True)
        for name, color in (("reward", OURS), ("cost", OWN)):
            groups = np.split(getattr(self, name)[order], starts[1:])
            quarters = np.array([np.quantile(group, (0.25, 0.75)) for group in groups])
            ax.fill_between(times, quarters[:, 0], quarters[:, 1], color=color, alpha=0.15, lw=0)
            ax.plot(times, [group.mean() for group in groups], color=color, lw=2.0, label=name)
        ax.set_xlabel("time within the episode")
        ax.set_ylabel("mean of a step; shaded: middle half")
        ax.legend(frameon=False)
        return ax

    def _repr_html_(self) -> str:
        from scopeval.notebook.card import Card

        facts: list[tuple[str, str]] = []
        if len(self):
            facts = [("time", f"from {self.t.min()} to {self.t.max()}"), *self._facts()]
        doubt = ", with remarks" if self.notes else ""
        title = f"{len(self):,} logged steps{doubt}."
        return Card("Logs", title, tuple(facts), remarks=self.notes).html()


@runtime_checkable
class Recorded(Protocol):
    """Recorded episodes (`Episodes`), which can be made a log."""

    def transitions(self) -> dict[str, NDArray[Any]]:
        """The columns of a log."""


def not_a_log(value: object, name: str = "logs") -> InputError:
    """The error for a value that should be a log, with what to try instead."""
    kind = type(value).__name__
    if isinstance(value, Recorded) and not isinstance(value, type):
        remedy = (
            "expected Transitions; try read_logs(episodes), or "
            "Transitions(**episodes.transitions())"
        )
    elif isinstance(value, Mapping):
        remedy = "expected Transitions; try Transitions(**columns), or read_logs(columns)"
    else:
        remedy = "expected Transitions (try read_logs) or batches of them (try stream_logs)"
    return InputError(f"{name}: got {kind}, {remedy}")


def check_below(values: NDArray[Any], size: int | None, name: str, origin: Origin) -> None:
    """Check that every number is below `size`; `name` is the argument that holds the size."""
    if size is None:
        return
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool) or size < 1:
        raise InputError(f"{name} must be a positive integer, got {size!r}")
    if values.ndim != 1:
        origin.fail(
            f"holds vectors of width {values.shape[1]}, but {name}={size} expects numbers from 0 "
            f"to {size - 1}",
            f"leave {name} out",
        )
    beyond = values >= size
    if beyond.any():
        hint = (
            "; read_logs(time=..., every='24h') cuts what never pauses" if name == "horizon" else ""
        )
        if name != "horizon" and values.min() == 1:
            hint = f"; 0 never occurs: are {name} numbered from 1?"
        origin.refuse_where(
            beyond,
            f"is {size} or more (largest {values.max()}), outside {name}={size},",
            f"numbers run from 0 to {size - 1}: change {name} or remove these rows{hint}",
        )


def _owned(array: NDArray[Any], argument: object) -> NDArray[Any]:
    """The array itself if no other code can write to it, else a copy."""
    if array.base is None and array is not argument:
        return array  # made here, while checking
    owner: Any = array
    while isinstance(owner, np.ndarray) and not owner.flags.writeable:
        owner = owner.base
    return array.copy() if isinstance(owner, np.ndarray) else array


def _signals(values: ArrayLike) -> NDArray[np.float64]:
    """[N, d]; of one signal [N] will do."""
    array = np.asarray(values)
    columns = array[:, None] if array.ndim == 1 else array
    if columns.ndim != 2:
        raise InputError(f"signals: got shape {list(array.shape)}, expected [N, d]")
    return np.column_stack([reals(one, Origin("signals")) for one in columns.T])


def _exogenous(
    names: int | str | Sequence[int] | Sequence[str],
    obs: NDArray[Any],
    signals: NDArray[np.float64] | None,
) -> tuple[int, ...] | tuple[str, ...]:
    """Numbers of columns of the observation, or the names of the signals."""
    several = np.atleast_1d(np.asarray(names)).tolist() if np.size(names) else []
    if several and all(isinstance(name, str) for name in several):
        if signals is None or signals.shape[1] != len(several):
            got = "none" if signals is None else f"{signals.shape[1]} columns"
            raise InputError(f"exogenous: got the names {several} and signals with {got}")
        return tuple(several)
    if signals is not None:
        raise InputError(f"exogenous: got {names!r}, expected the names of the signals")
    width = obs.shape[1] if obs.ndim == 2 else 0
    if not all(type(number) is int and 0 <= number < width for number in several):
        raise InputError(
            f"exogenous: got {names!r}, expected numbers of the observation's {width} columns, "
            "from 0, or names with signals="
        )
    return tuple(several)


def _kind(dtype: np.dtype[Any], width: tuple[int, ...]) -> str:
    return f"vectors of width {width[0]}" if width else f"numbers ({dtype})"


def _described(values: NDArray[Any], numbers: str) -> str:
    if values.ndim == 1:
        return f"{numbers} from {values.min()} to {values.max()}"
    return (
        f"vectors of width {values.shape[1]}, values from {values.min():.4g} to {values.max():.4g}"
    )


def _spread(values: NDArray[np.float64]) -> str:
    return f"mean {values.mean():.4g}, from {values.min() + 0.0:.4g} to {values.max() + 0.0:.4g}"
