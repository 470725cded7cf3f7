"""The header of a saved behavior policy: every field has a type and a range.

A wrong field is an error here, and not a policy that costs more than was promised.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from scopeval.arrays import is_number
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.promised_cost import check_promised
from scopeval.behavior.step import Recipe, check_budget, check_epsilon
from scopeval.behavior.summary import Report
from scopeval.errors import DataError

__all__ = ["FORMAT", "FileHeader", "check_recipe"]

#: The format that is written, and all that are read. Before format 4 there was no fingerprint, and
#: before format 5 no promise about another cost than the target policy's. Before format 6 the doubt
#: about its cost was part of the predicted cost of a point of a frontier.
FORMAT, READABLE = 6, (2, 3, 4, 5, 6)
DOUBT_INCLUDED = (
    "the predicted cost includes the doubt about it: the file was written by an earlier version"
)
#: Most bytes of a header.
LARGEST_HEADER = 1 << 20
#: Longest horizon: every time step becomes an object, whatever its arrays take.
LONGEST_HORIZON = 1_000_000
#: An expected cost of more than a thousand times the target's is no budget.
LARGEST_EPSILON = 1e3
#: Prices of a policy that depends on the weight of the episode: how many, and the last.
MOST_PRICES, LARGEST_PRICE = 10_000, 1e150


@dataclass(frozen=True)
class FileHeader:
    """What a file says of its policy, apart from the critics' arrays.

    Attributes:
        kind: of its critics.
        recipe: how mu follows from them.
        report: what was learned.
        fingerprinted: whether arrays of the target's fingerprint are in the file, and
        table: the hash of its table, if it is one.
    """

    kind: str
    recipe: Recipe
    report: Report
    fingerprinted: bool = False
    table: str | None = None

    def encode(self) -> bytes:
        """The header as bytes, for a file."""
        content = {
            "format": FORMAT,
            "kind": self.kind,
            "recipe": self.recipe.record(),
            "report": asdict(self.report),
            "fingerprint": {"table": self.table} if self.fingerprinted else None,
        }
        return json.dumps(content).encode()

    @classmethod
    def decode(cls, raw: bytes, source: str) -> FileHeader:
        """From bytes.

        Raises:
            DataError: another format.
            ValueError, and other errors: not a header.
        """
        if len(raw) > LARGEST_HEADER:
            raise ValueError(f"a header of {len(raw):,} bytes")
        content = json.loads(raw.decode())
        number = content["format"]
        if type(number) is not int or number not in READABLE:
            raise DataError(
                f"{source}: written in format {_short(number)}, this version reads {FORMAT}; "
                "try another version of scopeval, or design anew"
            )
        if content["kind"] not in ("table", "model"):
            raise ValueError(f"critics of kind {_short(content['kind'])}")
        recipe = _recipe(content["recipe"])
        check_recipe(recipe)
        report = _record(Report, "report", content["report"])
        if report.promise is not None:
            check_promised(report.promise)
        if number < 6 and recipe.budget == "weighted":
            notes = tuple(dict.fromkeys((*report.notes, DOUBT_INCLUDED)))
            report = replace(report, notes=notes)
        if number < 4:
            return cls(content["kind"], recipe, report)
        fingerprint = content["fingerprint"]
        table = None if fingerprint is None else _decoded(str | None, "table", fingerprint["table"])
        return cls(content["kind"], recipe, report, fingerprint is not None, table)


# -- recipe ----------------------------------------------------------------------------------------


def _recipe(value: Any) -> Recipe:
    """From JSON; what a file of any format has must be there."""
    stated = {"method", "epsilon", "horizon", "gamma", "floor", "margin", "constraint", "limit"}
    if not isinstance(value, dict) or not stated <= set(value):
        raise ValueError(f"recipe is {_short(value)}, expected {', '.join(sorted(stated))}")
    constraint = _decoded(str, "constraint", value["constraint"])
    rest = {name: x for name, x in value.items() if name != "constraint"}
    recipe: Recipe = _record(Recipe, "recipe", rest)
    return replace(recipe, method=replace(recipe.method, constraint=constraint))


def check_recipe(recipe: Recipe) -> None:
    """Refuse a recipe that `design` would never make.

    Raises:
        ValueError: (or `InputError`, which is one) names the field.
    """
    method_named(recipe.method.name)
    for name, holds in (
        ("epsilon", recipe.epsilon <= LARGEST_EPSILON),
        ("horizon", type(recipe.horizon) is int and 1 <= recipe.horizon <= LONGEST_HORIZON),
        ("gamma", _within(recipe.gamma, 1.0) and recipe.gamma > 0),
        ("floor", _within(recipe.floor, 1.0)),
        ("margin", _within(recipe.margin, 1.0)),
        ("share", _within(recipe.share, 1.0)),
        ("limit", recipe.limit is None or _within(recipe.limit)),
        ("price", _within(recipe.price)),
        ("cap", recipe.cap is None or (_within(recipe.cap) and recipe.cap > 0)),
        ("prices", (recipe.prices is None) == (recipe.budget != "weighted")),
    ):
        if not holds:
            raise ValueError(f"{name} is {_short(recipe.record()[name])}, out of range")
    if recipe.prices is None:
        check_epsilon(recipe.epsilon)
        check_budget(recipe.budget, recipe.limit, recipe.method.constraint)
    else:
        _check_weighted(recipe, *recipe.prices)


def _check_weighted(recipe: Recipe, low: float, ratio: float, count: int) -> None:
    """A recipe whose prices depend on the weight of the episode; it may cost less than the target.

    The last price of the grid must be a number too.
    """
    grid = _within(low) and low > 0 and _within(ratio, 1e9) and ratio > 1
    if not (grid and type(count) is int and 2 <= count <= MOST_PRICES):
        raise ValueError(f"prices are {_short((low, ratio, count))}")
    if not math.log(low) + count * math.log(ratio) < math.log(LARGEST_PRICE):
        raise ValueError(f"prices are {_short((low, ratio, count))}")
    if not (is_number(recipe.epsilon) and recipe.epsilon > -1.0):
        raise ValueError(f"epsilon is {_short(recipe.epsilon)}, expected more than -1")
    if recipe.limit is not None or recipe.method.constraint != "behavior":
        raise ValueError(f"limit {_short(recipe.limit)}, constraint {recipe.method.constraint}")


def _within(value: Any, most: float = math.inf) -> bool:
    """A finite number, at least 0 and at most so much."""
    return is_number(value) and 0.0 <= value <= most


# -- fields by their types -------------------------------------------------------------------------


def _decoded(kind: Any, name: str, value: Any) -> Any:
    """A value from JSON as the type that a dataclass declares.

    Raises:
        ValueError: it is of another type.
    """
    if kind is Method:
        return method_named(_decoded(str, name, value))
    if is_dataclass(kind):
        return _record(kind, name, value)
    if get_origin(kind) is UnionType:
        (inner,) = (some for some in get_args(kind) if some is not NoneType)
        return None if value is None else _decoded(inner, name, value)
    if get_origin(kind) is tuple and isinstance(value, list):
        inner = get_args(kind)
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(_decoded(*both) for both in zip(each, [name] * len(each), value, strict=True))
    if get_origin(kind) is dict and isinstance(value, dict):
        inner = get_args(kind)[1]
        return {_printable(k): _decoded(inner, f"{name} {k}", v) for k, v in value.items()}
    if kind is float and type(value) in (int, float):  # NaN and infinity are predictions too
        return float(value)
    if kind is str and type(value) is str:
        return _printable(value)
    if kind in (int, bool) and type(value) is kind and abs(value) < 2**63:
        return value
    expected = kind.__name__ if isinstance(kind, type) else kind
    raise ValueError(f"{name} is {_short(value)}, expected {expected}")


def _record(kind: Any, name: str, value: Any) -> Any:
    """A dataclass from a mapping with its fields; those with a default may be missing."""
    types = get_type_hints(kind)
    if not isinstance(value, dict) or not set(value) <= set(types):
        raise ValueError(f"{name} is {_short(value)}, expected some of {', '.join(types)}")
    return kind(**{field: _decoded(types[field], field, value[field]) for field in value})


def _printable(text: str) -> str:
    """Without control characters: it may be printed on a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _short(value: Any) -> str:
    return ascii(value)[:60]
