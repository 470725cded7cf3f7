"""Which column of a table is which field of a log, and Arrow columns as numpy arrays.

Our fields are `t, obs, action, reward, cost, next_obs, terminated, has_next`, and three that only
help to rebuild missing ones: `truncated` (cut by a time limit), `episode` (an id) and `time` (a
clock).
A unit in brackets behind a name, as in "T1 [°C]", may be left out.
A field is read from the column that the caller names; else from the column of that name; else from
numbered columns (``obs_0, obs_1, ...``: a vector); else from the one alias below that the table
has.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from scopeval.errors import DataError, InputError
from scopeval.logs.values import Origin, wholes

__all__ = [
    "ALIASES",
    "Choice",
    "ColumnMap",
    "choose_columns",
    "choose_exogenous",
    "from_arrow",
    "identities",
    "refuse_other_columns",
    "swapped_columns",
]

_NUMBER = r"^\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*$"
#: Start of base64 text whose bytes are an LZ4 frame.
_LZ4 = "BCJNG"
#: What stands behind a name in brackets.
_UNIT = re.compile(r"\s*(\[[^\]]*\]|\([^)]*\))$")
_MISSING = "remove these rows or fill in the values"
ColumnMap = Mapping[str, str | Sequence[str] | None]
#: Names of columns of a table, or numbers of columns of the observation.
Exogenous = int | str | Sequence[int] | Sequence[str]
ALIASES: dict[str, tuple[str, ...]] = {
    "t": ("timestep", "step", "time_step"),
    "obs": ("observation", "observations", "state", "s"),
    "action": ("actions", "a"),
    "reward": ("rewards", "r"),
    "cost": ("costs", "c"),
    "next_obs": ("next_observation", "next_observations", "next_state", "s_next", "s'"),
    "terminated": ("terminations", "terminal", "terminals"),
    "has_next": (),
    "truncated": ("truncations", "timeout", "timeouts"),
    "episode": ("episode_id",),
    "time": (),
}
#: Read only where the caller names it.
_NAMED_ONLY = ("time",)
_VECTORS = ("obs", "next_obs", "action")
_DONE = ("done", "dones")


def from_arrow(column: Any, origin: Origin) -> NDArray[Any]:
    """An Arrow column as numpy: [N], or [N, d] for a column of lists; no copy where possible."""
    array = _one_array(column)
    _refuse_null(array, origin)
    kind = array.type
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif pa.types.is_dictionary(kind):
        return from_arrow(array.dictionary_decode(), origin)
    elif _is_text(kind):
        _refuse_text(array, origin)
    elif _is_list(kind):
        return _from_lists(array, origin)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        origin.fail(f"has type {kind}, expected numbers", "convert the column")
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values


def identities(column: Any, origin: Origin) -> NDArray[np.int64]:
    """A column of names (numbers or text) as int64 that are equal exactly where the names are."""
    if not isinstance(column, (pa.Array, pa.ChunkedArray)):
        values = np.asarray(column)
        if values.dtype.kind not in "US" or values.ndim != 1:
            return wholes(values, origin)
        column = pa.array(values.astype(str))
    array = _one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not _is_text(array.type):
        values = from_arrow(array, origin)
        return values.view(np.int64) if values.dtype == np.uint64 else wholes(values, origin)
    _refuse_null(array, origin)
    encoded = array.dictionary_encode()
    names = encoded.dictionary.to_pylist()  # one per episode, not per row
    digests = [hashlib.blake2b(repr(name).encode(), digest_size=8).digest() for name in names]
    codes: NDArray[np.int64] = np.frombuffer(b"".join(digests), np.int64)
    rows: NDArray[np.int64] = codes[encoded.indices.to_numpy()]
    return rows


def _one_array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column


def _refuse_null(array: Any, origin: Origin) -> None:
    if array.null_count:
        origin.refuse_where(
            array.is_null().to_numpy(zero_copy_only=False), "is missing (null)", _MISSING
        )


def _is_text(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or str(kind) in ("string_view", "binary_view")
    )


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _refuse_text(array: Any, origin: Origin) -> None:
    """Name the cells that are no numbers, with the decimal point that most cells have."""
    text = array.cast(pa.large_string())
    points, commas = (
        pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)
        for pattern in (_NUMBER, _NUMBER.replace(r"\.", ","))
    )
    with_commas = commas.sum() > points.sum()
    bad = ~(commas if with_commas else points)
    advice = "expected numbers" + (" with decimal commas, as in most rows" if with_commas else "")
    if with_commas and not bad.any():
        bad, advice = ~points, "expected decimal points; of a CSV file pass decimal=','"
    if bad.any():
        example = text[int(np.argmax(bad))].as_py()[:40]
        if example.startswith(_LZ4):
            advice += (
                "; it is compressed, as RLlib does with observations: let RLlib write it with "
                "output_compress_columns=[]"
            )
        origin.refuse_where(bad, f"is text such as {example!r}", advice)
    origin.fail("holds numbers stored as text", "store the column as numbers")


def _from_lists(array: Any, origin: Origin) -> NDArray[Any]:
    widths = (
        np.broadcast_to(array.type.list_size, len(array))
        if (pa.types.is_fixed_size_list(array.type))
        else pc.list_value_length(array).to_numpy(zero_copy_only=False)
    )
    width = int(widths[0]) if len(widths) else 0
    origin.refuse_where(
        widths != width,
        f"is a list of another width than row {origin.first_row} ({width})",
        "every vector must have the same width",
    )
    values = _one_array(array.flatten())
    if _is_list(values.type):
        origin.fail("holds lists of lists", "flatten each row to one list")
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False).reshape(-1, width)
        origin.refuse_where(missing, "has a missing (null) entry", _MISSING)
    flat = from_arrow(values, origin)
    return flat.reshape(len(array), width)


@dataclass(frozen=True)
class Choice:
    """The column of a field, or the scalar columns that together make a vector."""

    names: tuple[str, ...]
    stacked: bool = False


def choose_columns(
    names: Sequence[str], columns: ColumnMap | None, source: str, *, cost_needed: bool = True
) -> dict[str, Choice]:
    """Choose the columns of each field.

    Args:
        names: the columns of the table.
        columns: the caller's choice, field by field; None for a field that is not to be read.
        source: name of the table in error messages.
        cost_needed: whether the table must have a cost column.

    Raises:
        InputError: `columns` is not a mapping of our fields.
        DataError: a column that is not there, or a field that cannot be found or is ambiguous.
    """
    named = _caller_choices(names, columns or {}, source)
    searched = {
        field: _find(field, names, source)
        for field in ALIASES
        if field not in named and field not in _NAMED_ONLY
    }
    choices = {field: choice for field, choice in (named | searched).items() if choice is not None}
    used = {name for choice in choices.values() for name in choice.names}
    _refuse_double_names(names, used, source)
    if "terminated" not in choices and "terminated" not in named:
        _refuse_done([name for name in _DONE if name in names and name not in used], source)
    required = ("obs", "action", "reward", "cost") if cost_needed else ("obs", "action", "reward")
    _refuse_missing([field for field in required if field not in choices], names, source)
    return choices


def choose_exogenous(
    exogenous: Exogenous, choices: Mapping[str, Choice], names: Sequence[str], source: str
) -> tuple[tuple[int, ...] | tuple[str, ...], Choice | None]:
    """What no action changes: numbers of columns of the observation, or names of further columns.

    Returns:
        As `Transitions` has it; and the columns of its signals, if it is those.

    Raises:
        InputError: some are columns of the observation, and some are not.
        DataError: the table has no such column.
    """
    asked: list[int | str] = [exogenous] if isinstance(exogenous, int | str) else list(exogenous)
    texts = [one for one in asked if isinstance(one, str)]
    if not texts:
        return tuple(one for one in asked if not isinstance(one, str)), None
    parts = choices["obs"].names if choices["obs"].stacked else ()
    columns = [_named("exogenous", text, names, source).names[0] for text in texts]
    inside = [parts.index(name) for name in columns if name in parts]
    if len(inside) == len(asked):
        return tuple(inside), None
    if inside or len(texts) < len(asked):
        raise InputError(
            f"exogenous: got {asked}, of which some are columns of the observation and some are "
            "not; expected one kind, try to add the others to columns={'obs': [...]}"
        )
    for text, name in zip(texts, columns, strict=True):
        if name not in names:
            raise DataError(
                f"{source}: no column {text!r} (exogenous){did_you_mean(text, names)}; it has "
                f"{_listed(names)}"
            )
    return tuple(texts), Choice(tuple(columns), stacked=True)


def refuse_other_columns(
    choices: Mapping[str, Choice],
    columns: ColumnMap | None,
    names: Sequence[str],
    source: str,
    first: str,
) -> None:
    """Refuse a further file that has a field which the first file of the folder lacks.

    Raises:
        DataError: the field would be read from some files and made up for others.
    """
    for field in ALIASES:
        if field in choices or field in (columns or {}) or field in _NAMED_ONLY:
            continue
        choice = _find(field, names, source)
        if choice is not None:
            raise DataError(
                f"{source}: has a column {choice.names[0]!r} ({field}), which {first} lacks; all "
                f"files of a folder must have the same columns, to ignore it pass columns="
                f'{{"{field}": None}}'
            )


def swapped_columns(choices: Mapping[str, Choice]) -> list[str]:
    """A note if the names of the reward and cost columns suggest that they are swapped."""
    if not {"reward", "cost"} <= set(choices):
        return []
    reward, cost = (choices[field].names[0] for field in ("reward", "cost"))
    if "cost" in reward.lower() and "reward" in cost.lower():
        return [f"reward is read from column {reward!r} and cost from {cost!r}: are they swapped?"]
    return []


def _refuse_double_names(names: Sequence[str], used: Collection[str], source: str) -> None:
    for name in sorted(used):
        if list(names).count(name) > 1:
            raise DataError(f"{source}: column {name!r} appears twice; rename one of them")


def _refuse_done(done: Sequence[str], source: str) -> None:
    """``done`` is no alias of `terminated`: it often also marks the end by a time limit."""
    if done:
        raise DataError(
            f"{source}: column {done[0]!r} may mix episodes that terminated with episodes that a "
            "time limit cut (whose value goes on); if it marks only true terminations pass "
            f'columns={{"terminated": "{done[0]}"}}, to ignore it columns={{"terminated": None}}'
        )


def _refuse_missing(missing: Sequence[str], names: Sequence[str], source: str) -> None:
    if not missing:
        return
    guesses = "".join(did_you_mean(field, names) for field in missing)
    or_function = ", or pass the function cost=" if "cost" in missing else ""
    raise DataError(
        f"{source}: no column for {', '.join(missing)}; it has {_listed(names)}{guesses}; "
        f'name them with columns={{"{missing[0]}": "name of the column", ...}}{or_function}'
    )


def did_you_mean(name: str, names: Collection[str]) -> str:
    """``, did you mean 'x'?`` if one of the names is close to this one, else nothing."""
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in names], n=1, cutoff=0.6)
    original = [k for k in names if close and k.lower() == close[0]]
    return f", did you mean {original[0]!r}?" if original else ""


def _caller_choices(
    names: Sequence[str], columns: ColumnMap, source: str
) -> dict[str, Choice | None]:
    if not isinstance(columns, Mapping):
        raise InputError(f"columns must be a dict of our fields, got {type(columns).__name__}")
    named: dict[str, Choice | None] = {}
    for field, value in columns.items():
        if field not in ALIASES:
            raise InputError(
                f"columns: no field {field!r}{did_you_mean(str(field), ALIASES)}; the fields are "
                f"{', '.join(ALIASES)} (columns maps our field to the name in the table)"
            )
        if value is None:
            named[field] = None
            continue
        choice = _named(field, value, names, source)
        if choice.stacked and (field not in _VECTORS or not choice.names):
            raise InputError(
                f"columns: {field} must be the name of one column, got {value!r}; only "
                f"{', '.join(_VECTORS)} can be a list of columns"
            )
        for name in choice.names:
            if name not in names:
                raise DataError(
                    f"{source}: no column {name!r} (for {field}){did_you_mean(str(name), names)}; "
                    f"it has {_listed(names)}"
                )
        named[field] = choice
    return named


def _named(field: str, value: str | Sequence[str], names: Sequence[str], source: str) -> Choice:
    """The choice of one field; "a, b" are two columns unless there is one of that name."""
    several = not isinstance(value, str)
    parts = tuple(value)
    if isinstance(value, str):
        pieces = tuple(part.strip() for part in value.split(","))
        several = len(pieces) > 1 and field in _VECTORS and not _called(value, names)
        parts = pieces if several else (value,)
    chosen = []
    for part in parts:
        same = _called(part, names)
        if len(same) > 1:
            raise DataError(
                f"{source}: {' and '.join(map(repr, same))} could both be {part!r} (for {field}); "
                "give the name with its unit"
            )
        chosen.append(same[0] if same else part)
    return Choice(tuple(chosen), stacked=several)


def _called(name: str, names: Sequence[str]) -> list[str]:
    """The column of this name; else those that have it with a unit behind, as "T1 [°C]"."""
    if name in names:
        return [name]
    return [one for one in names if _UNIT.sub("", str(one)) == name]


def _find(field: str, names: Sequence[str], source: str) -> Choice | None:
    for candidates in ((field,), ALIASES[field]):
        choices = [Choice((one,)) for name in candidates for one in _called(name, names)]
        if field in _VECTORS and not choices:
            choices = [choice for name in candidates if (choice := _numbered(name, names, source))]
        if len(choices) > 1:
            several = " and ".join(repr(choice.names[0]) for choice in choices)
            raise DataError(
                f"{source}: {several} could both be {field}; choose with "
                f'columns={{"{field}": "{choices[0].names[0]}"}}'
            )
        if choices:
            return choices[0]
    return None


def _numbered(base: str, names: Sequence[str], source: str) -> Choice | None:
    pattern = re.compile(re.escape(base) + "_([0-9]{1,6})")
    numbers = sorted(int(match[1]) for name in names if (match := pattern.fullmatch(name)))
    if not numbers:
        return None
    parts = tuple(f"{base}_{number}" for number in range(len(numbers)))
    if not set(parts) <= set(names):
        raise DataError(
            f"{source}: columns {base}_... are not numbered 0 to {len(numbers) - 1} "
            f"(found {', '.join(str(number) for number in numbers)}); name them with columns="
        )
    return Choice(parts, stacked=True)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:30])
    return f"{shown}, ... ({len(names)} columns)" if len(names) > 30 else shown or "no columns"
