"""Behavior policies on disk: one file, checked, without pickle.

A file may come from anyone. The checksum at its end shows damage, not intent: a stranger can
compute it too. So every field and array is validated before a policy is made of it, and sizes are
compared with limits before memory is allocated (`scopeval._archive`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import MAX_BYTES, Header, open_sealed, read_header, write_sealed
from scopeval.behavior.file_header import LARGEST_HEADER, FileHeader, check_recipe
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.errors import InputError
from scopeval.models.saved_arrays import (
    Sizes,
    arrays_of,
    check_shapes,
    check_values,
    kind_of,
    restore,
)
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.fingerprint import Fingerprint, take_fingerprint
from scopeval.policies.protocols import ContinuousPolicy, Policy, offer

__all__ = ["digest", "load", "save"]

#: Start of the names of a fingerprint's arrays, and most observations of one.
PROBE, MOST_PROBES = "probe_", 4096

NO_FINGERPRINT = (
    "the target policy could not be checked: the file holds no fingerprint of the one that this "
    "was designed for"
)
NOT_COMPARED = "the target policy was not compared with the one that this was designed for"


# -- writing ---------------------------------------------------------------------------------------


def save(behavior: BehaviorPolicy, path: str | Path) -> None:
    """Write one file, whole or not at all."""
    arrays = _critics_of(behavior)
    target, mark = behavior.target, behavior.fingerprint
    if mark is None and isinstance(target, TabularPolicy):
        states = np.arange(target.states)
        mark = take_fingerprint(target, behavior.recipe.horizon, lambda t: states)
    header = FileHeader(
        kind=kind_of(behavior.critics[0]),
        recipe=behavior.recipe,
        report=behavior.report,
        fingerprinted=mark is not None,
        table=None if mark is None else mark.table,
    )
    if mark is not None:
        probes = {"obs": mark.obs, "t": mark.t, "answers": mark.answers}
        arrays |= {PROBE + name: array for name, array in probes.items()}
    write_sealed(path, header.encode(), arrays)


def digest(behavior: BehaviorPolicy) -> str:
    """One word for a behavior policy: a hash of its recipe and its critics.

    Raises:
        InputError: critics that no file can hold.
    """
    digest = hashlib.sha256(repr(sorted(behavior.recipe.record().items())).encode())
    for name, array in sorted(_critics_of(behavior).items()):
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _critics_of(behavior: BehaviorPolicy) -> dict[str, NDArray[Any]]:
    """The critics' arrays, and a recipe that `load` will accept."""
    arrays = arrays_of(behavior.critics, behavior.report.shape.width)
    try:
        check_recipe(behavior.recipe)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"save: a recipe that cannot be loaded again ({error})") from error
    if len(behavior.critics) != behavior.recipe.horizon:
        raise InputError(
            f"save: critics of {len(behavior.critics)} time steps, expected "
            f"{behavior.recipe.horizon}, the horizon"
        )
    return arrays


# -- reading ---------------------------------------------------------------------------------------


def load(
    path: str | Path, target: object, *, check_target: bool = True, max_bytes: int = MAX_BYTES
) -> BehaviorPolicy:
    """Bring a saved behavior policy back, for the target it was designed for.

    The target itself is not in the file: it is the user's, and may be a network. It is recognized
    by its answers at a few observations, and a table also by a hash.

    Args:
        path: of the file.
        target: as for `design`.
        check_target: False: do not compare the target with the one of the design.
        max_bytes: most bytes of memory that the file may ask for.

    Raises:
        DataError: not a file that `save` wrote, damaged, too large, or written in another format.
        InputError: another target.
    """
    policy = as_policy(target)
    name = f"{path}"
    remedy = "expected a file written by BehaviorPolicy.save, try designing anew"
    with open_sealed(path, max_bytes, what="a saved behavior policy", remedy=remedy) as archive:
        header = FileHeader.decode(read_header(archive, LARGEST_HEADER), name)
        sizes = _check_headers(archive.headers, header)
        arrays = {key: archive.read(key) for key in archive.headers if key != "header"}
        mark = _fingerprint(arrays, header)
        check_values(header.kind, arrays, sizes)
        critics = restore(header.kind, arrays)
    _check_shape(name, policy, header, sizes, mark)
    if check_target and mark is not None:
        mark.check(policy, header.recipe.horizon, name)
        return BehaviorPolicy(policy, critics, header.recipe, header.report, fingerprint=mark)
    note = NO_FINGERPRINT if mark is None else NOT_COMPARED
    notes = tuple(dict.fromkeys((*header.report.notes, note)))
    return BehaviorPolicy(policy, critics, header.recipe, replace(header.report, notes=notes))


def _check_headers(headers: Mapping[str, Header], header: FileHeader) -> Sizes:
    """See that all arrays together can be what the header says; none has been read yet."""
    shape, kind = header.report.shape, header.kind
    own = {k: v for k, v in headers.items() if k != "header" and not k.startswith(PROBE)}
    sizes = check_shapes(kind, own, shape.width)
    actions = sizes["A"]
    if sizes["T"] != header.recipe.horizon:
        raise ValueError(f"critics of {sizes['T']} time steps, horizon {header.recipe.horizon}")
    prices = header.recipe.prices
    if prices is not None and sizes.followed != 1 + prices[2]:
        raise ValueError(f"critics of {sizes.followed} behaviors, prices {prices}")
    if shape.actions and actions not in (0, shape.actions):
        raise ValueError(f"critics of {actions} actions, expected {shape.actions}")
    probes = {k.removeprefix(PROBE): v for k, v in headers.items() if k.startswith(PROBE)}
    if set(probes) != ({"obs", "t", "answers"} if header.fingerprinted else set()):
        raise ValueError(f"a fingerprint of {sorted(probes)}")
    if not header.fingerprinted:
        return sizes
    (count,) = probes["t"].shape
    drawn, dtype = 3 if actions == 0 else 2, np.int64 if shape.width is None else np.float64
    wanted = {
        "obs": (dtype, (count,) if shape.width is None else (count, shape.width)),
        "t": (np.int64, (count,)),
        "answers": (np.float64, (count, *probes["answers"].shape[1:])),
    }
    last = (actions or sizes["m"],)
    if (
        not 1 <= count <= MOST_PROBES
        or any(probes[k] != (np.dtype(kind), size) for k, (kind, size) in wanted.items())
        or len(probes["answers"].shape) != drawn
        or probes["answers"].shape[-1:] != last
    ):
        raise ValueError(f"a fingerprint of {probes}")
    return sizes


def _fingerprint(arrays: dict[str, NDArray[Any]], header: FileHeader) -> Fingerprint | None:
    """Take the fingerprint out of the arrays."""
    if not header.fingerprinted:
        return None
    obs, t, answers = (arrays.pop(PROBE + name) for name in ("obs", "t", "answers"))
    inside = (np.diff(t) >= 0).all() and t[0] >= 0 and t[-1] < header.recipe.horizon
    if not (inside and np.isfinite(obs).all() and np.isfinite(answers).all()):
        raise ValueError("a fingerprint that is not finite, or of other time steps")
    return Fingerprint(obs, t, answers, header.table)


def _check_shape(
    name: str,
    target: Policy | ContinuousPolicy,
    header: FileHeader,
    sizes: Sizes,
    mark: Fingerprint | None,
) -> None:
    """See that the critics can be asked about what this target offers."""
    shape, horizon = header.report.shape, header.recipe.horizon
    continuous, actions = isinstance(target, ContinuousPolicy), sizes["A"]
    if continuous != (actions == 0):
        kinds = ("action numbers", "continuous actions")
        raise InputError(
            f"target: offers {kinds[continuous]}, {name} was designed for one that offers "
            f"{kinds[not continuous]}; expected the same target"
        )
    if isinstance(target, TabularPolicy):
        if shape.states is not None and target.states != shape.states:
            raise InputError(
                f"target: has {target.states} states, {name} was designed for one with "
                f"{shape.states}; expected the same target"
            )
        if target.horizon is not None and target.horizon < horizon:
            raise InputError(
                f"target: covers {target.horizon} time steps, {name} was designed for {horizon}"
            )
    if mark is not None:
        obs, t = mark.obs[:1], int(mark.t[0])
    else:
        obs, t = np.zeros(1, np.int64) if shape.width is None else np.zeros((1, shape.width)), 0
    try:
        offered = offer(target, obs, t, np.random.default_rng(0))
        offers = np.shape(offered.actions)[2:] if continuous else np.shape(offered.probs)[1:]
    except Exception as error:
        raise InputError(
            f"target: cannot be asked about observations as in the logs of {name} "
            f"({type(error).__name__}: {error}); expected the target it was designed for"
        ) from error
    wanted = sizes["m"] if continuous else actions
    if offers != (wanted,):
        what = "dimensions of actions" if continuous else "actions"
        got = offers[0] if len(offers) == 1 else f"an array of shape {offers} as"
        raise InputError(
            f"target: offers {got} {what}, {name} was designed for {wanted}; expected the same "
            "target"
        )
