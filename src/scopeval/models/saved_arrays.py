"""The arrays of saved critics: their names, types, shapes, and what has to hold between them.

A file may come from a stranger, and compiled code does not check where it reads. So every array is
compared with a layout before a critic is made of it. Letters in a shape are sizes that must agree
wherever they occur:

    T time steps, S states, A actions (0: they are vectors), k behaviors that were followed,
    H heads, d inputs of a critic, w of those what the world decides, m width of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import Header
from scopeval.errors import InputError
from scopeval.models import layers
from scopeval.models.model_critic import RETURN_FEATURES, ModelCritic, with_products
from scopeval.models.protocols import Critic
from scopeval.models.table import TableCritic

__all__ = ["arrays_of", "check_shapes", "check_values", "kind_of", "restore"]

#: The critics that a file can hold.
KINDS: dict[str, type[TableCritic | ModelCritic]] = {"table": TableCritic, "model": ModelCritic}
#: Start of the names of what all time steps share.
SHARED = "shared_"

Arrays = Mapping[str, NDArray[Any]]


class Layout(NamedTuple):
    """Type and shape of an array; a letter is a size to be found, a number is itself."""

    dtype: type[np.generic]
    shape: str


class Sizes(dict[str, int]):
    """The sizes of a file's critics, by the letters of the layouts."""

    def match(self, name: str, layout: Layout, header: Header) -> None:
        """Compare an array with its layout; sizes that occur first are learned from it."""
        wanted = layout.shape.split()
        if header.dtype != np.dtype(layout.dtype) or len(header.shape) != len(wanted):
            raise ValueError(
                f"array {name!r} has type {header.dtype} and shape {header.shape}, expected "
                f"{np.dtype(layout.dtype)} and [{', '.join(wanted)}]"
            )
        for letter, size in zip(wanted, header.shape, strict=True):
            if size != (int(letter) if letter.isdigit() else self.setdefault(letter, size)):
                known = [str(self.get(letter, letter)) for letter in wanted]
                raise ValueError(
                    f"array {name!r} has shape {header.shape}, expected [{', '.join(wanted)}] = "
                    f"({', '.join(known)})"
                )

    @property
    def followed(self) -> int:
        """How many behaviors the critics followed."""
        return self["k"] if "k" in self else (self["H"] - 3) // 2

    def need(self, what: str, holds: bool) -> None:
        """Refuse sizes that do not fit each other."""
        if not holds:
            raise ValueError(f"arrays whose sizes do not fit ({what}): {dict(self)}")


TABLE = {
    "q": Layout(np.float64, "T S A"),
    "cost_target": Layout(np.float64, "T S A"),
    "cost_behavior": Layout(np.float64, "T S A k"),
    "carried": Layout(np.float64, "T S A k"),
    "noise": Layout(np.float64, "T S A"),
    "error": Layout(np.float64, "T S A"),
    "known": Layout(np.bool_, "T S A"),
}
MODEL = {
    "heads": Layout(np.float64, "T features H"),
    "mean": Layout(np.float64, "T w"),
    "scale": Layout(np.float64, "T w"),
    "least": Layout(np.float64, "T H"),
    "most": Layout(np.float64, "T H"),
    "low": Layout(np.float64, "T d"),
    "high": Layout(np.float64, "T d"),
    "logged": Layout(np.bool_, "T A"),
    "reward_noise": Layout(np.float64, "T"),
    "step": Layout(np.int64, "T"),
    "followed": Layout(np.int64, "T"),
    "shared_embedding": Layout(np.float64, "A m"),
    "shared_world": Layout(np.bool_, "d"),
    "shared_timed": Layout(np.int64, "1"),
    "shared_fore_horizon": Layout(np.int64, ""),
}
#: Of every network of the dynamics; its outputs are w + 3.
NETWORK = {
    "w1": Layout(np.float32, "inputs first"),
    "b1": Layout(np.float32, "first"),
    "w2": Layout(np.float32, "first second"),
    "b2": Layout(np.float32, "second"),
    "w3": Layout(np.float32, "second outputs"),
    "skip": Layout(np.float32, "inputs outputs"),
    "b3": Layout(np.float32, "outputs"),
    "mean": Layout(np.float32, "inputs"),
    "scale": Layout(np.float32, "inputs"),
    "centre": Layout(np.float32, "outputs"),
    "spread": Layout(np.float32, "outputs"),
    "low": Layout(np.float64, "w"),
    "high": Layout(np.float64, "w"),
}
#: Of the networks that say how episodes go on, stacked; `ahead` is w + 1.
RETURNS = {
    "w1": Layout(np.float32, "n ahead third"),
    "b1": Layout(np.float32, "n third"),
    "w2": Layout(np.float32, "n third fourth"),
    "b2": Layout(np.float32, "n fourth"),
    "w3": Layout(np.float32, "n fourth 2"),
    "skip": Layout(np.float32, "n ahead 2"),
    "b3": Layout(np.float32, "n 2"),
    "mean": Layout(np.float32, "n w"),
    "scale": Layout(np.float32, "n w"),
}
assert set(NETWORK) == {*layers.NETWORK, "centre", "spread", "low", "high"}
assert set(RETURNS) == set(layers.NETWORK)


def _layouts(kind: str, names: Mapping[str, Header]) -> dict[str, Layout]:
    """The layouts of all arrays of a kind; networks of the dynamics are counted."""
    if kind != "model":
        return TABLE
    layouts = dict(MODEL)
    layouts |= {f"{SHARED}fore_{name}": layout for name, layout in RETURNS.items()}
    count = sum(name.startswith(f"{SHARED}net") and name.endswith("_w1") for name in names)
    for i in range(max(count, 1)):
        layouts |= {f"{SHARED}net{i}_{name}": layout for name, layout in NETWORK.items()}
    return layouts


def check_shapes(kind: str, headers: Mapping[str, Header], width: int | None) -> Sizes:
    """See that arrays can be critics of this kind, by their headers alone.

    Args:
        kind: of critics.
        headers: of all arrays.
        width: of an observation; None: they are state numbers.

    Raises:
        ValueError: they cannot.
    """
    layouts, sizes = _layouts(kind, headers), Sizes()
    if set(layouts) != set(headers):
        missing, odd = sorted(set(layouts) - set(headers)), sorted(set(headers) - set(layouts))
        raise ValueError(f"arrays missing: {missing}, not expected: {odd}")
    for name, layout in layouts.items():
        sizes.match(name, layout, headers[name])
    may_be_empty = {"A"} if kind == "model" else set()
    sizes.need("none may be 0", all(n > 0 for k, n in sizes.items() if k not in may_be_empty))
    _relate(kind, sizes, width)
    return sizes


def _relate(kind: str, sizes: Sizes, width: int | None) -> None:
    """See that the sizes fit each other."""
    if kind == "table":
        sizes.need("a table is for state numbers", width is None)
        return
    sizes.need("H = 3 + 2 k", sizes["H"] % 2 == 1 and sizes["H"] >= 5)
    w = sizes["w"]
    squares = w * (w + 1) // 2 if with_products(w) else w
    sizes.need(f"d = {width}", sizes["d"] == width)
    sizes.need("features", sizes["features"] == 1 + w + squares + RETURN_FEATURES)
    sizes.need(
        "outputs = w + 3, ahead = w + 1", (w + 3, w + 1) == (sizes["outputs"], sizes["ahead"])
    )
    sizes.need("inputs = d + m, or + 1", sizes["inputs"] - sizes["d"] - sizes["m"] in (0, 1))


def check_values(kind: str, arrays: Arrays, sizes: Sizes) -> None:
    """See that what counts, indexes and divides is what the sizes say.

    Values and weights of tables and networks may be anything, also NaN: a behavior policy falls
    back to the target policy there, and counts it.

    Raises:
        ValueError: it is not.
    """
    if kind == "model":
        for name, array in arrays.items():
            _need(name, {name: array}, lambda x: np.isfinite(x).all(), "finite numbers")
        _need("step", arrays, lambda x: (x == np.arange(sizes["T"])).all())
        _need("reward_noise", arrays, lambda x: (x >= 0).all())
        _need("shared_fore_horizon", arrays, lambda x: x == sizes["T"])
        timed = sizes["inputs"] - sizes["d"] - sizes["m"]
        _need("shared_timed", arrays, lambda x: x[0] == (sizes["T"] if timed else 0))
        _need("shared_world", arrays, lambda x: x.sum() == sizes["w"])
    if kind != "table":
        _need("followed", arrays, lambda x: (3 + 2 * x == sizes["H"]).all())
    for name in arrays:
        if name == "scale" or name.endswith("_scale"):
            _need(name, arrays, lambda x: (x > 0).all(), "numbers above 0")


def _need(
    name: str,
    arrays: Arrays,
    holds: Callable[[NDArray[Any]], Any],
    expected: str = "what the other arrays say",
) -> None:
    if not holds(arrays[name]):
        first = np.ravel(arrays[name])[:4].tolist()
        raise ValueError(f"array {name!r} holds {first}, expected {expected}")


def kind_of(critic: Critic) -> str:
    """The kind of a critic.

    Raises:
        InputError: it is one of your own.
    """
    kind = next((name for name, k in KINDS.items() if isinstance(critic, k)), None)
    if kind is None:
        raise InputError(
            f"save: critics of type {type(critic).__name__} cannot be brought back; "
            "try regression='auto'"
        )
    return kind


def arrays_of(critics: list[Critic], width: int | None) -> dict[str, NDArray[Any]]:
    """All arrays of the critics of T time steps, stacked [T, ...], as `restore` expects them.

    Args:
        critics: of all time steps.
        width: of an observation; None: they are state numbers.

    Raises:
        InputError: critics that no file can hold.
    """
    kind = kind_of(critics[0])
    parts = [critic.arrays() for critic in cast(list[TableCritic | ModelCritic], critics)]
    arrays = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    if isinstance(critics[0], ModelCritic):
        arrays |= {f"{SHARED}{k}": v for k, v in critics[0].shared().items()}
    headers = {name: Header(array.dtype, array.shape) for name, array in arrays.items()}
    for name, layout in _layouts(kind, headers).items():
        if name in arrays and np.can_cast(arrays[name].dtype, layout.dtype):
            arrays[name] = np.asarray(arrays[name], layout.dtype)
            headers[name] = Header(arrays[name].dtype, arrays[name].shape)
    try:
        check_values(kind, arrays, check_shapes(kind, headers, width))
    except ValueError as error:
        raise InputError(
            f"save: critics that cannot be brought back ({error}); expected those of `design`"
        ) from error
    return arrays


def restore(kind: str, arrays: Arrays) -> list[Critic]:
    """The critics that `arrays_of` took apart."""
    shared = {k.removeprefix(SHARED): v for k, v in arrays.items() if k.startswith(SHARED)}
    each = {k: v for k, v in arrays.items() if not k.startswith(SHARED)}
    horizon = len(next(iter(each.values())))
    steps = [{k: value[t] for k, value in each.items()} for t in range(horizon)]
    if kind == "model":
        return [*ModelCritic.restored(shared, steps)]
    return [KINDS[kind](**step) for step in steps]
