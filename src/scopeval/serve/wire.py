"""Results as JSON and back: dataclasses by the types of their fields.

Infinite and undefined numbers, which JSON lacks, travel as "Infinity", "-Infinity" and "NaN".
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from scopeval.errors import DataError

__all__ = ["from_wire", "to_wire"]

Kind = TypeVar("Kind")
_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def to_wire(value: Any) -> Any:
    """A dataclass, or what is in one, ready for JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_wire(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_wire(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_wire(kind: type[Kind], content: Any) -> Kind:
    """What `to_wire` was given.

    Args:
        kind: the dataclass.
        content: decoded JSON.

    Raises:
        DataError: it is not of that kind.
    """
    try:
        value: Kind = _build(kind, content)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the service's answer is not a {kind.__name__} ({error}); try the same version of "
            "scopeval on both sides"
        ) from error
    return value


def _build(kind: Any, content: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        given = {f.name for f in dataclasses.fields(kind)} & set(content)
        return kind(**{name: _build(hints[name], content[name]) for name in given})
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if content is None:
            return None
        return _build(next(one for one in inside if one is not types.NoneType), content)
    if origin is tuple:
        kinds = inside[:1] * len(content) if inside[-1:] == (...,) else inside
        return tuple(_build(each, one) for each, one in zip(kinds, content, strict=True))
    if origin is not None and isinstance(content, dict):
        return {key: _build(inside[1], one) for key, one in content.items()}
    if kind is float:
        return _NUMBERS[content] if isinstance(content, str) else float(content)
    return content
