"""Logs of a robot and the dynamics learned from them, which all its targets share.

Neither depends on the target, so both are made once for a robot and protocol and kept as files:
``NAME-PROTOCOL.parquet`` (`robot_logs`) and ``NAME-PROTOCOL.npz`` (networks, no pickle inside).
Shards contain digests of the files they are computed from.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.robots.bins import BinnedPolicy
from experiments.robots.env import HORIZON
from experiments.robots.logs import write_robot_logs
from experiments.robots.policies import RobotPolicy, robot_policies
from scopeval._files import replace_file
from scopeval.errors import DataError
from scopeval.logs.read import read_logs
from scopeval.logs.transitions import Transitions
from scopeval.models.dynamics import Dynamics, StepModel, stack, unstack
from scopeval.models.identities import identities_of
from scopeval.models.networks import Networks
from scopeval.models.rows import Log, Rows, gather
from scopeval.models.training import Training
from scopeval.question.question import Question

__all__ = ["DYNAMICS", "Preparation", "Prepared", "prepare", "protocol_policy", "recall", "whole"]

#: Where critics have the dynamics from.
DYNAMICS = ("learned", "simulator")


@dataclass(frozen=True)
class Preparation:
    """Everything that logs and dynamics depend on.

    Attributes:
        robot: its name.
        protocol: "candidates" or "bins".
        seed: of the logs and of the training.
        logged: episodes.
        training: settings of the networks to try; none: the robot's simulator is used instead.
    """

    robot: str
    protocol: str
    seed: int
    logged: int
    training: tuple[Training, ...]

    @property
    def label(self) -> str:
        """The name used in messages."""
        return f"{self.robot}, {self.protocol}: logs{' and dynamics' if self.training else ''}"

    @property
    def name(self) -> str:
        """Name of the files, without their endings."""
        return f"{self.robot}-{self.protocol}"


@dataclass(frozen=True)
class Prepared:
    """Logs and dynamics; dynamics are None if the simulator is used."""

    logs: Transitions
    dynamics: Dynamics | None


def protocol_policy(policy: RobotPolicy, protocol: str) -> RobotPolicy | BinnedPolicy:
    """The target policy in a protocol."""
    return BinnedPolicy(policy) if protocol == "bins" else policy


def prepare(folder: Path, what: Preparation) -> dict[str, str]:
    """Make the logs, learn the dynamics, write both; the files' digests by their ending."""
    path = write_robot_logs(folder, what.robot, what.protocol, episodes=what.logged, seed=what.seed)
    networks = Dynamics(tuple(_learned(what, read_logs(path)))) if what.training else None
    out = io.BytesIO()
    np.savez(out, **({} if networks is None else _arrays(networks)))  # type: ignore[arg-type]
    replace_file(folder / f"{what.name}.npz", out.getvalue())
    return {ending: _digest(folder / f"{what.name}.{ending}") for ending in ("parquet", "npz")}


def _learned(what: Preparation, logs: Transitions) -> list[StepModel]:
    some, log, _ = _gathered(what, logs)
    how = Networks(training=what.training)
    return how.step_models(log, Question(some, HORIZON), what.seed)[0]


def _gathered(
    what: Preparation, logs: Transitions
) -> tuple[RobotPolicy | BinnedPolicy, Log, list[Rows]]:
    """One of the policies, the logs as a design has them, and their halves."""
    some = protocol_policy(robot_policies(what.robot)[0], what.protocol)
    log = gather(logs, some, HORIZON, what.seed, merge=False)
    return some, log, [log.rows.select(np.flatnonzero(log.fold == k)) for k in range(2)]


def whole(folder: Path, what: Preparation, digests: dict[str, str]) -> bool:
    """Whether the files exist and are unchanged."""
    try:
        return all(_digest(folder / f"{what.name}.{e}") == digests[e] for e in digests)
    except OSError:
        return False


@lru_cache(maxsize=1)
def recall(folder: Path, what: Preparation, parquet: str, npz: str) -> Prepared:
    """Read both files; those of the last robot and protocol stay in memory."""
    if not whole(folder, what, {"parquet": parquet, "npz": npz}):
        raise DataError(
            f"{folder / what.name}: .parquet or .npz is missing or not what was made for this run; "
            "expected no other program to write there, try running again"
        )
    path = folder / f"{what.name}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
        dynamics = _dynamics(arrays) if what.training else None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}), expected networks") from error
    logs = read_logs(folder / f"{what.name}.parquet")
    if dynamics is not None:
        for network, rows in zip(dynamics.learned, _gathered(what, logs)[2], strict=True):
            network.identities = identities_of(rows, network.encoder.predicted)
    return Prepared(logs, dynamics)


def _arrays(dynamics: Dynamics) -> dict[str, NDArray[Any]]:
    """`stack`, and what episodes are imagined with: the networks' held-out errors."""
    arrays = stack(dynamics.learned)
    for i, network in enumerate(dynamics.learned):
        arrays[f"wrong{i}"] = network.errors
        arrays[f"large{i}"] = network.expected_sizes
        arrays[f"size{i}"] = network.size_weights
        arrays[f"judged{i}"] = np.array([network.reward_noise, network.loss])
    return arrays


def _dynamics(arrays: dict[str, NDArray[Any]]) -> Dynamics:
    count = sum(name.startswith("wrong") for name in arrays)
    wrong = [arrays.pop(f"wrong{i}") for i in range(count)]
    judged = [arrays.pop(f"judged{i}") for i in range(count)]
    size = [(arrays.pop(f"large{i}"), arrays.pop(f"size{i}")) for i in range(count)]
    dynamics = unstack(arrays)
    for network, (sizes, own) in zip(dynamics.learned, size, strict=True):
        network.expected_sizes, network.size_weights = sizes, own
    for network, errors, (noise, loss) in zip(dynamics.learned, wrong, judged, strict=True):
        network.errors, network.reward_noise, network.loss = errors, float(noise), float(loss)
    return dynamics


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
