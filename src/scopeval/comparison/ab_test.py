"""An A/B test that was run already: which policy each episode was given, and what happened."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval.arrays import Bools, Floats, Ints
from scopeval.collection.episodes import Episodes
from scopeval.errors import DataError, InputError
from scopeval.logs.columns import ColumnMap, choose_columns
from scopeval.logs.diagnose import Problem
from scopeval.logs.read import FieldReader
from scopeval.logs.sources import open_path
from scopeval.logs.tables import Table

__all__ = ["ABTest", "read_ab_test"]


@dataclass(frozen=True, eq=False, repr=False)
class ABTest:
    """Finished episodes of an A/B test, in the order in which they were run.

    Attributes:
        obs: state numbers [N, T], or vectors [N, T, d].
        action: numbers [N, T], or vectors [N, T, m].
        reward: [N, T]; 0 after the end.
        cost: [N, T]; 0 after the end.
        length: number of steps, [N].
        label: name of the policy that each episode was given, [N].
        last_obs: observation after the last step, [N] or [N, d]; None: not recorded.
        terminated: whether the last step ended the episode for good, [N].
        probability: of the actions taken, as they were logged, [N, T]; None: not logged.
        group: what was assigned as a whole, such as the plant or the week, [N]; None: every episode
            was assigned by itself.
        exogenous: [N, T + 1, d] signals that no action changes, as of `Episodes`; None: none.
        signals: their names.
    """

    obs: NDArray[Any]
    action: NDArray[Any]
    reward: Floats
    cost: Floats
    length: Ints
    label: NDArray[np.str_]
    last_obs: NDArray[Any] | None = None
    terminated: Bools | None = None
    probability: Floats | None = None
    group: NDArray[np.str_] | None = None
    exogenous: Floats | None = None
    signals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.reward)
        for name in ("label", "group"):
            names = getattr(self, name)
            if names is None:
                continue
            names = np.asarray(names).astype(np.str_)
            if names.shape != (rows,):
                raise InputError(
                    f"{name}: got shape {names.shape}, expected [{rows}], one for each episode"
                )
            object.__setattr__(self, name, names)
        if not rows:
            raise InputError("episodes: got none that was finished, expected some of each policy")

    def __len__(self) -> int:
        return len(self.reward)

    @classmethod
    def of(
        cls,
        episodes: Episodes | Mapping[str, Episodes],
        label: Sequence[str] | None = None,
        group: Sequence[str] | None = None,
    ) -> ABTest:
        """From `Episodes`: all with their labels, or those of each policy by its name.

        Args:
            episodes: by name they are put in the order of their numbers (`index`), if no number is
                there twice: then it is not known in which order they were run.
            label: name of the policy of each.
            group: what was assigned as a whole, of each.
        """
        if isinstance(episodes, Mapping):
            if label is not None:
                raise InputError("label: got it with episodes by name, leave it out")
            names = [name for name, part in episodes.items() for _ in range(len(part))]
            whole = Episodes.concat(list(episodes.values()))
            label = names
            if len(np.unique(whole.index)) == len(whole):
                order = np.argsort(whole.index, kind="stable")
                whole, label = whole.select(order), [names[i] for i in order]
            episodes = whole
        if label is None:
            raise InputError(
                "label: needed, expected the name of the policy that each episode was given"
            )
        return cls(
            obs=episodes.obs,
            action=episodes.action,
            reward=episodes.reward,
            cost=episodes.cost,
            length=episodes.length,
            label=np.asarray(label),
            last_obs=episodes.last_obs,
            terminated=episodes.terminated,
            probability=episodes.behavior_prob,
            group=None if group is None else np.asarray(group),
            exogenous=episodes.exogenous,
            signals=episodes.signals,
        )


def read_ab_test(
    source: str | os.PathLike[str],
    *,
    policy: str = "policy",
    group: str | None = None,
    probability: str | None = None,
    columns: ColumnMap | None = None,
) -> ABTest:
    """Read the episodes of an A/B test from a log, a row for every step.

    Args:
        source: a file, as for `read_logs`; the rows of an episode stand together, in order, and the
            episodes in the order in which they were run.
        policy: the column with the name of the policy that the episode was given.
        group: the column of what was assigned as a whole, such as the plant or the week.
        probability: the column of the logged probabilities of the actions taken.
        columns: which column is which field, as for `read_logs`. An ``episode`` column, or ``t``,
            tells where episodes begin.

    Raises:
        DataError: the file cannot be read, a column is missing, or an episode has two policies.
    """
    table = open_path(source)
    choices = choose_columns(table.names, columns, table.source, cost_needed=False)
    for name in (policy, group, probability):
        if name is not None and name not in table.names:
            raise DataError(
                f"{table.source}: no column {name!r}; it has {', '.join(map(repr, table.names))}; "
                "the column with the policy of each episode is named by policy="
            )
    fields, _ = FieldReader(table, choices, Problem()).gather()
    starts = _starts(fields, table.source)
    label = _names(table, policy, starts)
    rows = _Rows(starts, len(fields["obs"]))
    cost, ends = fields.get("cost"), fields.get("terminated")
    following, last = fields.get("next_obs"), rows.last
    return ABTest(
        obs=rows.padded(fields["obs"]),
        action=rows.padded(fields["action"]),
        reward=rows.padded(np.asarray(fields["reward"], np.float64)),
        cost=rows.padded(np.zeros(rows.count) if cost is None else np.asarray(cost, np.float64)),
        length=rows.length,
        label=label,
        last_obs=None if following is None else following[last],
        terminated=None if ends is None else np.asarray(ends, np.bool_)[last],
        probability=None
        if probability is None
        else rows.padded(_numbers(table, probability), fill=1.0),
        group=None if group is None else _names(table, group, starts),
    )


class _Rows:
    """Rows of a log as episodes."""

    def __init__(self, starts: Ints, count: int) -> None:
        self.count = count
        self.length = np.diff(np.append(starts, count))
        self.last = starts + self.length - 1
        self._steps = np.arange(int(self.length.max())) < self.length[:, None]

    def padded(self, rows: NDArray[Any], fill: float = 0.0) -> NDArray[Any]:
        """[N, T] or [N, T, d]."""
        out = np.full((*self._steps.shape, *rows.shape[1:]), fill, dtype=rows.dtype)
        out[self._steps] = rows
        return out


def _starts(fields: Mapping[str, NDArray[Any]], source: str) -> Ints:
    """The first row of each episode."""
    if "episode" in fields:
        number = fields["episode"]
        starts = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
        if len(np.unique(number[starts])) < len(starts):
            raise DataError(
                f"{source}: the rows of some episodes do not stand together; expected them sorted "
                "by episode and time"
            )
        return np.asarray(starts, np.int64)
    if "t" not in fields:
        raise DataError(
            f"{source}: no episode column and no t, which tell where episodes begin; expected one"
        )
    return np.asarray(np.flatnonzero(fields["t"] == fields["t"].min()), np.int64)


def _names(table: Table, column: str, starts: Ints) -> NDArray[np.str_]:
    """One name for each episode."""
    names = np.array([str(x) for x in _column(table, column)], np.str_)
    mixed = names != np.repeat(names[starts], np.diff(np.append(starts, len(names))))
    if mixed.any():
        row = int(np.argmax(mixed))
        raise DataError(
            f"{table.source}: column {column!r} changes within an episode, at row {row}, to "
            f"{str(names[row])!r}; expected one for each episode"
        )
    return np.asarray(names[starts])


def _numbers(table: Table, column: str) -> Floats:
    return np.asarray([float(x) for x in _column(table, column)], np.float64)


def _column(table: Table, column: str) -> list[Any]:
    """All values of a column, as they are."""
    values: list[Any] = []
    for part in table.parts([column]):
        raw = part.columns[column]
        values += raw.to_pylist() if hasattr(raw, "to_pylist") else list(raw)
    return values
