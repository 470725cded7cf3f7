"""Behavior policies on disk: one file, checked, without pickle."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from scopeval._files import replace_file
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import check_budget
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction, Report, Shape
from scopeval.critics.mlp.regression import MLPCritic
from scopeval.critics.model.regression import ModelCritic
from scopeval.critics.protocols import Critic
from scopeval.critics.table import TableCritic
from scopeval.errors import DataError, InputError
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.protocols import (
    ContinuousPolicy,
)

__all__ = ["load", "save"]

FORMAT, READABLE = 3, (2, 3)

CHECKSUM = 32  # bytes of a SHA-256

KINDS = {"table": TableCritic, "mlp": MLPCritic, "model": ModelCritic}


def save(behavior: BehaviorPolicy, path: str | Path) -> None:
    """Write one file, whole or not at all.

    The file is a NumPy archive (a zip file) whose comment is the checksum of all before it.
    """
    parts = [critic.arrays() for critic in behavior.critics]
    kind = next((name for name, k in KINDS.items() if isinstance(behavior.critics[0], k)), None)
    if kind is None:
        raise InputError(
            f"save: critics of type {type(behavior.critics[0]).__name__} cannot be brought back; "
            "try regression='auto'"
        )
    arrays = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    if isinstance(behavior.critics[0], ModelCritic):
        arrays |= {f"shared_{k}": v for k, v in behavior.critics[0].shared().items()}
    header = {
        "format": FORMAT,
        "kind": kind,
        "recipe": asdict(behavior.recipe),
        "report": asdict(behavior.report),
    }
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    content = buffer.getvalue()[:-2] + CHECKSUM.to_bytes(2, "little")  # length of the comment
    replace_file(path, content + hashlib.sha256(content).digest())


def load(path: str | Path, target: object) -> BehaviorPolicy:
    """Bring a saved behavior policy back, for the target it was designed for.

    The target itself is not in the file: it is the user's, and may be a network.

    Raises:
        DataError: not a file that `save` wrote, damaged, or written in another format.
        InputError: a target of another shape.
    """
    policy = as_policy(target)
    name = f"{path}"
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error})") from error
    content, checksum = raw[:-CHECKSUM], raw[-CHECKSUM:]
    if hashlib.sha256(content).digest() != checksum:
        raise DataError(
            f"{name}: not a saved behavior policy, or damaged (its checksum is not there or "
            "wrong); expected a file written by BehaviorPolicy.save, try designing anew"
        )
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        header = json.loads(bytes(arrays.pop("header")).decode())
        if header["format"] not in READABLE:
            raise DataError(
                f"{name}: written in format {header['format']}, this version reads {FORMAT}; "
                "try another version of scopeval, or design anew"
            )
        recipe = Recipe(**header["recipe"])
        if (
            recipe.budget != "weighted"
            and check_budget(recipe.budget) == "episode"
            and not 0.0 <= recipe.price < np.inf
        ):
            raise ValueError(f"price {recipe.price}")
        report = header["report"]
        report["prediction"] = Prediction(**report["prediction"])
        report["shape"] = Shape(**report["shape"])
        report["warnings"] = tuple(report["warnings"])
        report["notes"] = tuple(report["notes"])
        kind = KINDS[header["kind"]]
        start = "shared_"
        shared = {k.removeprefix(start): arrays.pop(k) for k in list(arrays) if k.startswith(start)}
        steps = [{k: value[t] for k, value in arrays.items()} for t in range(recipe.horizon)]
        critics: list[Critic] = [
            *(ModelCritic.restored(shared, steps) if kind is ModelCritic else ()),
            *(kind(**own) for own in (steps if kind is not ModelCritic else ())),
        ]
        behavior = BehaviorPolicy(policy, critics, recipe, Report(**report))
    except DataError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{name}: not a saved behavior policy, or damaged ({error!r})") from error
    _check_target(name, behavior)
    return behavior


def _check_target(name: str, behavior: BehaviorPolicy) -> None:
    """See that a loaded policy can be asked about this target."""
    target, shape, horizon = behavior.target, behavior.report.shape, behavior.recipe.horizon
    if isinstance(target, ContinuousPolicy) or not shape.actions:
        return
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
    obs = np.zeros(1, np.int64) if shape.width is None else np.zeros((1, shape.width))
    try:
        offered = np.asarray(target.probs(obs, 0))
    except Exception as error:
        raise InputError(
            f"target: cannot be asked about observations as in the logs of {name} "
            f"({type(error).__name__}: {error}); expected the target it was designed for"
        ) from error
    if offered.shape != (1, shape.actions):
        raise InputError(
            f"target: offers {offered.shape[-1]} actions, {name} was designed for "
            f"{shape.actions}; expected the same target"
        )
