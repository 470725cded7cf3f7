"""Find the column of each field in a table.

Our fields are `t, obs, action, reward, cost, next_obs, terminated`, and two that only help to
rebuild missing ones: `truncated` (cut by a time limit) and `episode` (an id). A field is read from
the column that the caller names; else from the column of that name; else from numbered columns
(``obs_0, obs_1, ...``: a vector); else from the one alias below that the table has.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scopeval.errors import DataError, InputError

__all__ = [
    "ALIASES",
    "Choice",
    "ColumnMap",
    "choose_columns",
    "refuse_other_columns",
    "swapped_columns",
]

ColumnMap = Mapping[str, str | Sequence[str] | None]

ALIASES: dict[str, tuple[str, ...]] = {
    "t": ("timestep", "step", "time_step"),
    "obs": ("observation", "observations", "state", "s"),
    "action": ("actions", "a"),
    "reward": ("rewards", "r"),
    "cost": ("costs", "c"),
    "next_obs": ("next_observation", "next_observations", "next_state", "s_next", "s'"),
    "terminated": ("terminations", "terminal", "terminals"),
    "truncated": ("truncations", "timeout", "timeouts"),
    "episode": ("episode_id",),
}
_VECTORS = ("obs", "next_obs", "action")
_DONE = ("done", "dones")


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
    found = {field: _find(field, names, source) for field in ALIASES if field not in named}
    choices = {field: choice for field, choice in (named | found).items() if choice is not None}
    used = {name for choice in choices.values() for name in choice.names}
    _refuse_double_names(names, used, source)
    if "terminated" not in choices and "terminated" not in named:
        _refuse_done([name for name in _DONE if name in names and name not in used], source)
    required = ("obs", "action", "reward", "cost") if cost_needed else ("obs", "action", "reward")
    _refuse_missing([field for field in required if field not in choices], names, source)
    return choices


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
        if field in choices or field in (columns or {}):
            continue
        found = _find(field, names, source)
        if found is not None:
            raise DataError(
                f"{source}: has a column {found.names[0]!r} ({field}), which {first} lacks; all "
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


def did_you_mean(name: str, known: Collection[str]) -> str:
    """``, did you mean 'x'?`` if a known name is close to this one, else nothing."""
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.6)
    original = [k for k in known if close and k.lower() == close[0]]
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
        choice = Choice((value,)) if isinstance(value, str) else Choice(tuple(value), stacked=True)
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


def _find(field: str, names: Sequence[str], source: str) -> Choice | None:
    for candidates in ((field,), ALIASES[field]):
        found = [Choice((name,)) for name in candidates if name in names]
        if field in _VECTORS and not found:
            found = [choice for name in candidates if (choice := _numbered(name, names, source))]
        if len(found) > 1:
            several = " and ".join(repr(choice.names[0]) for choice in found)
            raise DataError(
                f"{source}: {several} could both be {field}; choose with "
                f'columns={{"{field}": "{found[0].names[0]}"}}'
            )
        if found:
            return found[0]
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
