"""Read the fields of a log from a table: choose the columns, check their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from scopeval.data import columns as column
from scopeval.data.column_names import Choice
from scopeval.data.columns import Origin
from scopeval.data.infer_fields import Fields
from scopeval.data.table_sources import Part, Table, from_arrow, identities, reading
from scopeval.data.transitions import check_below
from scopeval.errors import DataError

__all__ = ["FieldReader", "Kind", "kind_of", "refuse_other_kind"]


#: Type and width of a field.
Kind = tuple[np.dtype[Any], tuple[int, ...]]


def kind_of(values: NDArray[Any]) -> Kind:
    """Type and width."""
    return values.dtype, values.shape[1:]


def refuse_other_kind(field: str, known: Kind, kind: Kind, first: str, source: str) -> None:
    """Refuse a part of a log whose field is of another kind than in the first part."""
    if kind != known:
        raise DataError(
            f"{source}: {field} is {kind[0]} of width {list(kind[1])}, in {first} {known[0]} of "
            f"width {list(known[1])}; all parts of a log must have the same kind"
        )


@dataclass(frozen=True)
class FieldReader:
    """A table, the choice of its columns, and the limits on their values."""

    table: Table
    choices: Mapping[str, Choice]
    horizon: int | None
    actions: int | None
    discrete: bool | None

    def parts(self) -> Iterator[tuple[Part, Fields]]:
        """The checked fields of each part."""
        names = dict.fromkeys(name for choice in self.choices.values() for name in choice.names)
        kinds: dict[str, Kind] = {}
        first = ""
        for part in self.table.parts(list(names)):
            fields = self._checked(part)
            first = first or part.source
            for field in ("obs", "action"):
                kind = kind_of(fields[field])
                refuse_other_kind(field, kinds.setdefault(field, kind), kind, first, part.source)
            yield part, fields

    def gather(self) -> tuple[Fields, list[int]]:
        """All parts as one, and the rows where a new file begins."""
        pieces: dict[str, list[NDArray[Any]]] = {field: [] for field in self.choices}
        borders: list[int] = []
        rows = 0
        for part, fields in self.parts():
            for field, values in fields.items():
                pieces[field].append(values)
            if part.first_row == 0 and rows:
                borders.append(rows)
            rows += len(fields["obs"])
        if not rows:
            raise DataError(f"{self.table.source}: no rows; a log needs at least one transition")
        gathered: Fields = {}
        for field in self.choices:  # one field at a time: only one field is in memory twice
            several = pieces.pop(field)
            if len(several) == 1:
                gathered[field] = several[0]
            else:
                gathered[field] = np.concatenate(several)
                gathered[field].flags.writeable = False  # Transitions then shares it
        return gathered, borders

    def _checked(self, part: Part) -> Fields:
        fields: Fields = {}
        for field in sorted(self.choices, key=lambda name: name == "next_obs"):  # obs comes first
            with reading(part.source, "a table"):
                fields[field] = self._field(part, field, fields)
        lengths = {field: len(values) for field, values in fields.items()}
        if len(set(lengths.values())) > 1:
            got = ", ".join(f"{field} {length:,}" for field, length in lengths.items())
            raise DataError(
                f"{part.source}: columns have different numbers of rows ({got}); to read one "
                "episode with an observation more than actions pass a list, [episode]"
            )
        if "next_obs" in fields and fields["next_obs"].shape != fields["obs"].shape:
            raise DataError(
                f"{part.source}: obs has width {list(fields['obs'].shape[1:])} and next_obs "
                f"{list(fields['next_obs'].shape[1:])}; they must be the same"
            )
        return fields

    def _field(self, part: Part, field: str, before: Fields) -> NDArray[Any]:
        choice = self.choices[field]
        origins = [_origin(part, name, field) for name in choice.names]
        raw = [part.columns[name] for name in choice.names]
        origin = origins[0]
        if field == "episode":
            return identities(raw[0], origin)
        arrays = [_as_numpy(one, at) for one, at in zip(raw, origins, strict=True)]
        values: Any = arrays[0]
        if choice.stacked:
            scalars = [column.reals(one, at) for one, at in zip(arrays, origins, strict=True)]
            values = np.column_stack(scalars)
        if field == "t":
            times = column.wholes(values, origin)
            origin.refuse_where(times < 0, "is negative", "count time from 0")
            check_below(times, self.horizon, "horizon", origin)
            return times
        if field == "obs":
            return column.observations(values, origin, self.discrete)
        if field == "next_obs":
            return column.observations(values, origin, discrete=before["obs"].ndim == 1)
        if field == "action":
            chosen = column.actions(values, origin)
            check_below(chosen, self.actions, "actions", origin)
            return chosen
        if field == "reward":
            return column.reals(values, origin)
        if field == "cost":
            costs = column.reals(values, origin)
            swapped = "reward" in before and bool((before["reward"] >= 0).all())
            hint = "; no reward is negative: are reward and cost swapped?" if swapped else ""
            origin.refuse_where(costs < 0, "is negative", f"costs are amounts, at least 0{hint}")
            return costs
        return column.flags(values, origin)


def _origin(part: Part, name: str, field: str) -> Origin:
    meaning = "" if name == field else f" ({field})"
    return Origin(
        f"{part.source}: column {name!r}{meaning}", part.first_row, part.starts, DataError
    )


def _as_numpy(values: Any, origin: Origin) -> Any:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return from_arrow(values, origin)
    return values
