"""Worlds on disk: one file, checked, without pickle, as files of behavior policies are.

Shapes and sizes are compared with each other and with limits before anything is made of the arrays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import MAX_BYTES, Archive, Header, open_sealed, read_header, write_sealed
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.models.model.identities import identities_of
from scopeval.models.model.network import Dynamics, Network
from scopeval.models.model.step_model import Encoder
from scopeval.models.model.training import Training
from scopeval.models.model.world import World, halves_of, settings_of
from scopeval.models.saved_arrays import NETWORK, Layout, Sizes

__all__ = ["read_world", "write_world"]

FORMAT = 1
#: Most bytes of the header, and most trainings in it.
LARGEST_HEADER, MOST_TRAININGS = 1 << 20, 16

#: The columns of the logs; n rows, d entries of an observation.
COLUMNS = {
    "t": Layout(np.int64, "n"),
    "obs": Layout(np.float64, "n d"),
    "reward": Layout(np.float64, "n"),
    "cost": Layout(np.float64, "n"),
    "next_obs": Layout(np.float64, "n d"),
    "terminated": Layout(np.bool_, "n"),
    "has_next": Layout(np.bool_, "n"),
    "fold": Layout(np.int64, "n"),
    "embedding": Layout(np.float64, "A m"),
    "predicted": Layout(np.bool_, "d"),
    "horizon": Layout(np.int64, ""),
}
#: What a network has beside `NETWORK`: its held-out errors, in the order of their expected size.
ERRORS = {
    "errors": Layout(np.float64, "kept w"),
    "expected_sizes": Layout(np.float64, "kept"),
    "size_weights": Layout(np.float64, "terms"),
    "judged": Layout(np.float64, "2"),
}


def write_world(path: str | os.PathLike[str], world: World) -> None:
    """Write one file, whole or not at all."""
    log, encoder = world.logged, world.dynamics.encoder
    arrays: dict[str, NDArray[Any]] = {
        **log.stored_columns(),
        "fold": world.fold,
        "embedding": encoder.embedding,
        "predicted": encoder.predicted,
        "horizon": np.asarray(encoder.horizon, np.int64),
    }
    for i, network in enumerate(world.dynamics.learned):
        arrays_of_network: dict[str, NDArray[Any]] = {
            **network.weights,
            "low": network.low,
            "high": network.high,
            "errors": network.errors,
            "expected_sizes": network.expected_sizes,
            "size_weights": network.size_weights,
            "judged": np.array([network.reward_noise, network.loss]),
        }
        arrays |= {f"net{i}_{name}": value for name, value in arrays_of_network.items()}
    header = {
        "format": FORMAT,
        "seed": world.seed,
        "refits": world.refits,
        "notes": list(log.notes),
        "trainings": [settings_of(training) for training in world.trainings],
    }
    write_sealed(path, json.dumps(header).encode(), arrays)


def read_world(path: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> World:
    """Read a file that `write_world` wrote."""
    remedy = "expected a file written by World.save, try learning it anew"
    with open_sealed(path, max_bytes, what="a saved world", remedy=remedy) as archive:
        header = _header(archive)
        _check_shapes(archive.headers)
        arrays = {key: archive.read(key) for key in archive.headers if key != "header"}
        try:
            return _world(header, arrays)
        except InputError as error:  # columns or settings that the library refuses
            raise ValueError(f"{error}") from error


def _header(archive: Archive) -> dict[str, Any]:
    header = json.loads(read_header(archive, LARGEST_HEADER))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f"format {header.get('format') if isinstance(header, dict) else header!r}")
    numbers = (header.get("seed"), header.get("refits"))
    if not all(type(n) is int and 0 <= n < 2**62 for n in numbers):
        raise ValueError(f"seed and refits {numbers}")
    notes, trainings = header.get("notes"), header.get("trainings")
    if not isinstance(notes, list) or not all(isinstance(text, str) for text in notes):
        raise ValueError("notes that are not text")
    if not isinstance(trainings, list) or not 1 <= len(trainings) <= MOST_TRAININGS:
        raise ValueError("trainings that are not a list of settings")
    return header


def _check_shapes(headers: Mapping[str, Header]) -> None:
    """See that the arrays fit each other; none has been read yet."""
    layouts = dict(COLUMNS)
    continuous = len(headers["embedding"].shape) == 2 and headers["embedding"].shape[0] == 0
    if "has_next" not in headers:  # every row has a successor
        del layouts["has_next"]
    layouts["action"] = Layout(np.float64, "n m") if continuous else Layout(np.int64, "n")
    for i in range(2):
        layouts |= {f"net{i}_{name}": layout for name, layout in (NETWORK | ERRORS).items()}
    names = set(headers) - {"header"}
    if names != set(layouts):
        missing, odd = sorted(set(layouts) - names), sorted(names - set(layouts))
        raise ValueError(f"arrays missing: {missing}, not expected: {odd}")
    sizes = Sizes()
    for name, layout in layouts.items():
        sizes.match(name, layout, headers[name])
    sizes.need("none may be 0", all(n > 0 for k, n in sizes.items() if k != "A"))
    sizes.need("outputs = w + 3", sizes["outputs"] == sizes["w"] + 3)
    sizes.need("inputs = d + m, or + 1", sizes["inputs"] - sizes["d"] - sizes["m"] in (0, 1))
    sizes.need("terms", sizes["terms"] in (1, 1 + 3 * sizes["inputs"]))


def _world(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> World:
    may_be_nan = {"net0_judged", "net1_judged"}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name not in may_be_nan and not np.isfinite(array).all():
            raise ValueError(f"array {name!r} holds numbers that are not finite")
    predicted, horizon = arrays["predicted"], int(arrays["horizon"])
    width, m = len(predicted), arrays["embedding"].shape[1]
    timed = arrays["net0_w1"].shape[0] - width - m
    if not 0 <= horizon < 2**31 or (horizon > 0) != bool(timed):
        raise ValueError(f"a horizon of {horizon}")
    if predicted.sum() != arrays["net0_low"].shape[0]:
        raise ValueError("networks of other entries of the observation")
    fold = arrays["fold"]
    if not np.isin(fold, (0, 1)).all() or len(np.unique(fold)) != 2:
        raise ValueError("halves that are not 0 and 1")
    log = Transitions(
        arrays["t"],
        arrays["obs"],
        arrays["action"],
        arrays["reward"],
        arrays["cost"],
        arrays["next_obs"],
        arrays["terminated"],
        header["notes"],
        arrays.get("has_next"),
    )
    embedding = arrays["embedding"]
    if len(embedding) and log.action.max() >= len(embedding):
        raise ValueError(f"action number {log.action.max()} of {len(embedding)}")
    encoder = Encoder(embedding, predicted, horizon)
    networks = tuple(_network(encoder, f"net{i}_", arrays) for i in range(2))
    for network, rows in zip(networks, halves_of(log, fold), strict=True):
        network.identities = identities_of(rows, encoder)
    trainings = tuple(Training(**_training(given)) for given in header["trainings"])
    return World(log, fold, Dynamics(networks), trainings, header["seed"], header["refits"])


def _network(encoder: Encoder, start: str, arrays: dict[str, NDArray[Any]]) -> Network:
    layers = {k.removeprefix(start): v for k, v in arrays.items() if k.startswith(start)}
    low, high = layers.pop("low"), layers.pop("high")
    errors, sizes, weights = (layers.pop(k) for k in ("errors", "expected_sizes", "size_weights"))
    noise, loss = layers.pop("judged")
    if not ((layers["scale"] > 0).all() and (layers["spread"] > 0).all()):
        raise ValueError("units that are not above 0")
    if not (low <= high).all() or not (np.diff(sizes) >= 0).all():
        raise ValueError("a range, or expected sizes, in the wrong order")
    if not 0 <= noise < np.inf or loss < 0 or np.isinf(loss):
        raise ValueError(f"held-out errors {noise}, {loss}")
    return Network(encoder, layers, low, high, errors, float(noise), float(loss), sizes, weights)


def _training(given: Any) -> dict[str, Any]:
    """The settings of a training, of the right types."""
    names = settings_of(Training())
    if isinstance(given, dict):
        given = {"gain": 1.0} | given  # files of version 0.1.0 did not say
    if not isinstance(given, dict) or set(given) != set(names):
        raise ValueError(f"a training of {sorted(given) if isinstance(given, dict) else given!r}")
    whole = {"hidden": given["hidden"], "batch": given["batch"]}
    if given["steps"] is not None:
        whole["steps"] = given["steps"]
    real = {name: given[name] for name in ("rate", "dropout")}
    if given["gain"] is not None:
        real["gain"] = given["gain"]
    if not all(type(n) is int and n < 2**31 for n in whole.values()) or not all(
        type(x) in (int, float) and np.isfinite(x) for x in real.values()
    ):
        raise ValueError(f"a training of {given}")
    return given
