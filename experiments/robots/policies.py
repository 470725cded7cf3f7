"""The shipped controllers of the robots, from untrained to well trained.

``python -m experiments.robots.training`` made them (`training`). Each robot has a file of weights,
``weights/NAME.npz``, and ``weights/NAME.json`` with the command, seeds, versions, and every
policy's return and cost. 30 policies are *reported* (targets and logs of the experiments); 6 of
another training run are for *validation*: settings are tuned on those only.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.robots.env import robot_name
from scopeval.errors import DataError, InputError
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import Observations, Time

if TYPE_CHECKING:
    import torch

__all__ = [
    "FOLDER",
    "ROLES",
    "WEIGHTS",
    "RobotPolicy",
    "robot_policies",
    "robot_policy",
    "robot_record",
]

FOLDER = Path(__file__).parent / "weights"
ROLES = ("reported", "validation")
#: The arrays of a policy. Inputs are (obs - center) / scale, cut at +-10.
WEIGHTS = ("center", "scale", "w1", "b1", "w2", "b2", "w3", "b3", "log_std")
_CUT = 10.0


class RobotPolicy(GaussianPolicy):
    """A trained controller: two layers of tanh for the mean, constant standard deviations.

    Args:
        name: such as "hopper-07".
        weights: the arrays `WEIGHTS`; kept as float32.
        low: least value of each action dimension.
        high: largest value of each.
        draws: how many candidates it offers.

    Its arithmetic is float32 and row by row: an answer does not depend on the batch around it.
    """

    def __init__(
        self,
        name: str,
        weights: Mapping[str, NDArray[Any]],
        *,
        low: NDArray[Any],
        high: NDArray[Any],
        draws: int = 10,
    ) -> None:
        self.name = name
        self.weights = {key: np.array(weights[key], np.float32, order="C") for key in WEIGHTS}
        super().__init__(self._forward, self.weights["log_std"], low=low, high=high, draws=draws)

    def _forward(self, obs: Observations, t: Time) -> NDArray[np.float32]:
        from experiments.robots._mlp_kernel import affine

        w = self.weights
        x = (np.asarray(obs, np.float32) - w["center"]) / w["scale"]
        np.clip(x, -_CUT, _CUT, out=x)
        for k in "12":
            x = np.tanh(affine(x, w[f"w{k}"], w[f"b{k}"]))
        out: NDArray[np.float32] = affine(x, w["w3"], w["b3"])
        return out

    def torch_module(self) -> torch.nn.Module:
        """The same mean as a torch module, obs [B, d] -> [B, k]; its parameters can be trained.

        ``log_std`` [k] is a parameter of it as well.
        """
        import torch

        weights = {key: torch.tensor(value) for key, value in self.weights.items()}

        class Network(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                for key, value in weights.items():
                    if key in ("center", "scale"):
                        self.register_buffer(key, value)
                    else:
                        setattr(self, key, torch.nn.Parameter(value))

            def forward(self, obs: torch.Tensor) -> torch.Tensor:
                w: Any = self
                x = ((obs.float() - w.center) / w.scale).clamp(-_CUT, _CUT)
                x = torch.tanh(x @ w.w1 + w.b1)
                x = torch.tanh(x @ w.w2 + w.b2)
                out: torch.Tensor = x @ w.w3 + w.b3
                return out

        return Network()

    def __repr__(self) -> str:
        return f"RobotPolicy({self.name!r})"


def robot_policies(
    robot: str, role: str = "reported", *, draws: int = 10, folder: str | Path = FOLDER
) -> list[RobotPolicy]:
    """The shipped policies of a robot, from worst to best.

    Args:
        robot: its name.
        role: "reported" (30) or "validation" (6).
        draws: how many candidates they offer.
        folder: where the files are.
    """
    if role not in ROLES:
        raise InputError(f"role: got {role!r}, expected one of {', '.join(ROLES)}")
    record = robot_record(robot, folder=folder)
    arrays = _arrays(Path(folder) / f"{record['robot']}.npz")
    return [
        RobotPolicy(
            entry["name"],
            {key: arrays[key][row] for key in WEIGHTS},
            low=arrays["low"],
            high=arrays["high"],
            draws=draws,
        )
        for row, entry in enumerate(record["policies"])
        if entry["role"] == role
    ]


def robot_policy(name: str) -> RobotPolicy:
    """The shipped policy of this name, such as "hopper-07" or "hopper-v2"."""
    robot = str(name).split("-")[0]
    for role in ROLES:
        for policy in robot_policies(robot, role):
            if policy.name == name:
                return policy
    raise InputError(f"policy: got {name!r}, expected a shipped one, try {robot.lower()}-00")


def robot_record(robot: str, *, folder: str | Path = FOLDER) -> dict[str, Any]:
    """The record of a robot's policies: command, seeds, versions, returns, costs."""
    path = Path(folder) / f"{robot_name(robot)}.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}), expected the record of a robot's policies; try "
            f"python -m experiments.robots.training --robots {robot_name(robot)}"
        ) from error
    return record


@cache
def _arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in (*WEIGHTS, "low", "high")}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: cannot be read ({error}), expected policies' weights") from error
    return arrays
