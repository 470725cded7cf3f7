"""The paper's five robots, many side by side: MuJoCo without Gymnasium's overhead.

`Robots` steps any number of copies of one robot. The results are those of Gymnasium's environments
(version 5), bit for bit; it is faster because observations and rewards of all copies are computed
at once. `robot_env` is the Gymnasium environment itself, with the cost in its info.

Episodes are cut after `HORIZON` steps. The cost of a step is the squared norm of the action that
was executed, clipped to the robot's limits. Ant is made without contact forces in its observation
(27 numbers, as in older versions); everything else is Gymnasium's default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from scopeval.arrays import Bools, Floats, check_whole
from scopeval.errors import InputError, MissingExtraError

__all__ = ["HORIZON", "ROBOTS", "Moves", "Robots", "robot_env", "robot_name", "squared_norm"]

#: Steps of an episode.
HORIZON = 100

#: Rows of the simulator's arrays: positions, velocities, and what the robot adds to them.
_State = list[Floats]


@dataclass(frozen=True)
class Moves:
    """What one step of B robots gave."""

    obs: Floats
    reward: Floats
    cost: Floats
    terminated: Bools


@dataclass(frozen=True)
class _Robot:
    """How observations and rewards follow from the simulator's state.

    Attributes:
        name: Gymnasium's, without version.
        observe: state -> observations.
        place: observations, number of positions -> positions and velocities they describe.
        reward: state before, state after, actions, seconds -> rewards and whether it has fallen.
        views: more arrays of the simulator's data to look at.
        normal: whether first velocities are normal; else they are uniform.
        forces: whether contact forces have to be computed.
        options: for `gymnasium.make`.
    """

    name: str
    observe: Callable[[_State], Floats]
    place: Callable[[Floats, int], tuple[Floats, Floats]]
    reward: Callable[[_State, _State, NDArray[np.float32], float], tuple[Floats, Bools]]
    views: Callable[[Any], list[Floats]] = lambda data: []
    normal: bool = False
    forces: bool = False
    options: tuple[tuple[str, Any], ...] = ()


class Robots:
    """n copies of a robot, each in its own episode.

    Args:
        robot: one of `ROBOTS`.
        n: how many copies.

    Attributes:
        robot: its name.
        low: least value of each action dimension; float32 [k].
        high: largest value of each; float32 [k].
        width: length of an observation.
    """

    def __init__(self, robot: str, n: int = 1) -> None:
        self.robot = robot_name(robot)
        self._kind = _KINDS[self.robot]
        plain = _plain(self.robot)
        self._model = plain.model
        self._frames = int(plain.frame_skip)
        self._seconds = float(plain.dt)
        self._noise = float(plain._reset_noise_scale)
        self._start = (plain.init_qpos, plain.init_qvel)
        self.low: NDArray[np.float32] = plain.action_space.low
        self.high: NDArray[np.float32] = plain.action_space.high
        self.width = int(plain.observation_space.shape[0])
        count = check_whole("n", n, 1, " of robots")
        import mujoco

        self._mujoco: Any = mujoco
        self._data = [mujoco.MjData(self._model) for _ in range(count)]
        self._control = [data.ctrl for data in self._data]
        each = [[data.qpos, data.qvel, *self._kind.views(data)] for data in self._data]
        self._views = [list(views) for views in zip(*each, strict=True)]
        self._state: _State = [np.empty((count, *views[0].shape)) for views in self._views]

    def __len__(self) -> int:
        return len(self._data)

    def reset(self, seeds: Sequence[int], which: ArrayLike | None = None) -> Floats:
        """Begin an episode in each robot (of `which`), seeded as Gymnasium's reset; [B, width]."""
        rows = self._rows(which)
        if len(seeds) != len(rows):
            raise InputError(f"seeds: got {len(seeds)}, expected one each for {len(rows)} robots")
        for i, seed in zip(rows, seeds, strict=True):
            rng, data, noise = np.random.default_rng(int(seed)), self._data[i], self._noise
            self._mujoco.mj_resetData(self._model, data)
            data.qpos[:] = self._start[0] + rng.uniform(-noise, noise, self._model.nq)
            data.qvel[:] = self._start[1] + (
                noise * rng.standard_normal(self._model.nv)
                if self._kind.normal
                else rng.uniform(-noise, noise, self._model.nv)
            )
            self._mujoco.mj_forward(self._model, data)
        return self._kind.observe(self._read(rows))

    def put(self, obs: ArrayLike, which: ArrayLike | None = None) -> None:
        """Put each robot (of `which`) into the state that an observation [B, width] describes.

        What observations do not contain is lost: the position along the track, velocities beyond
        the limits they are clipped to, and the lag of the simulator's position of an ant's body
        (which changes the speed of its first step a little).
        """
        rows = self._rows(which)
        seen = np.asarray(obs, np.float64)
        if seen.shape != (len(rows), self.width):
            raise InputError(f"obs: got shape {seen.shape}, expected ({len(rows)}, {self.width})")
        positions, velocities = self._kind.place(seen, self._model.nq)
        for i, position, velocity in zip(rows, positions, velocities, strict=True):
            data = self._data[i]
            self._mujoco.mj_resetData(self._model, data)
            data.qpos[:], data.qvel[:] = position, velocity
            self._mujoco.mj_forward(self._model, data)
        self._read(rows)

    def step(self, actions: ArrayLike, which: ArrayLike | None = None) -> Moves:
        """Execute actions [B, k], clipped to the limits, in each robot (of `which`)."""
        rows = self._rows(which)
        moves = np.asarray(actions, np.float32)
        if moves.shape != (len(rows), len(self.low)):
            raise InputError(
                f"actions: got shape {moves.shape}, expected ({len(rows)}, {len(self.low)})"
            )
        moves = np.clip(moves, self.low, self.high)
        model, data, control, step = self._model, self._data, self._control, self._mujoco.mj_step
        before = [values[rows] for values in self._state]
        for i, move in zip(rows, moves, strict=True):
            control[i][:] = move
            step(model, data[i], nstep=self._frames)
        if self._kind.forces:
            for i in rows:
                self._mujoco.mj_rnePostConstraint(model, data[i])
        now = self._read(rows)
        reward, terminated = self._kind.reward(before, now, moves, self._seconds)
        return Moves(self._kind.observe(now), reward, squared_norm(moves), terminated)

    def _read(self, rows: list[int]) -> _State:
        for values, views in zip(self._state, self._views, strict=True):
            for i in rows:
                values[i] = views[i]
        return [values[rows] for values in self._state]

    def _rows(self, which: ArrayLike | None) -> list[int]:
        rows = np.arange(len(self)) if which is None else np.asarray(which, np.int64)
        return list(rows.tolist())

    def __repr__(self) -> str:
        return f"Robots({self.robot!r}, n={len(self)})"


class _Priced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes the cost into info, and clips actions before they are executed."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        space: Any = self.action_space
        move = np.clip(np.asarray(action, np.float32), space.low, space.high)
        obs, reward, terminated, truncated, info = self.env.step(move)
        cost = float(squared_norm(move[None])[0])
        return obs, reward, terminated, truncated, {**info, "cost": cost}


def robot_env(robot: str) -> gymnasium.Env[Any, Any]:
    """Gymnasium's own robot, cut after `HORIZON` steps, with ``info["cost"]``."""
    return _Priced(_gymnasium(robot_name(robot)))


def robot_name(robot: str) -> str:
    """The name as in `ROBOTS`, from any spelling of its letters."""
    for name in ROBOTS:
        if str(robot).lower() == name.lower():
            return name
    raise InputError(f"robot: got {robot!r}, expected one of {', '.join(ROBOTS)}")


def squared_norm(actions: NDArray[Any]) -> Floats:
    """The cost of actions [B, k]: their squared norms [B]."""
    return np.asarray(np.square(actions.astype(np.float64)).sum(axis=1))


@cache
def _plain(name: str) -> Any:
    """Gymnasium's robot, to read its model and limits from; never stepped, never changed."""
    return _gymnasium(name).unwrapped


def _gymnasium(name: str) -> Any:
    try:
        import mujoco  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("mujoco", "mujoco", f"the robot {name}") from error
    return gymnasium.make(
        f"{name}-v5",
        disable_env_checker=True,
        max_episode_steps=HORIZON,
        **dict(_KINDS[name].options),
    )


# The following is Gymnasium's arithmetic, operation by operation: its order decides the last bit.


def _joints(state: _State) -> Floats:
    """Positions without x, and velocities, clipped (Hopper, Walker2d)."""
    return np.concatenate([state[0][:, 1:], np.clip(state[1], -10, 10)], axis=1)


def _placed(obs: Floats, positions: int, left_out: int) -> tuple[Floats, Floats]:
    """Positions, those that are left out first and zero, and velocities."""
    seen = positions - left_out
    return np.concatenate([np.zeros((len(obs), left_out)), obs[:, :seen]], axis=1), obs[:, seen:]


def _tracked(obs: Floats, positions: int) -> tuple[Floats, Floats]:
    """All positions but x are seen (Hopper, Walker2d)."""
    return _placed(obs, positions, 1)


def _forward(
    healthy: Callable[[_State], Bools],
) -> Callable[[_State, _State, NDArray[np.float32], float], tuple[Floats, Bools]]:
    """Reward for speed and for being up, less the effort (Hopper, Walker2d)."""

    def reward(
        before: _State, now: _State, moves: NDArray[np.float32], seconds: float
    ) -> tuple[Floats, Bools]:
        up = healthy(now)
        speed = (now[0][:, 0] - before[0][:, 0]) / seconds
        effort = 1e-3 * np.square(moves).sum(axis=1)  # float32, as there
        return speed + up * 1.0 - effort, ~up

    return reward


def _hopper_up(state: _State) -> Bools:
    z, angle = state[0][:, 1], state[0][:, 2]
    rest = np.concatenate([state[0][:, 2:], state[1]], axis=1)
    near = (np.abs(rest) < 100).all(axis=1)
    return np.asarray(near & (z > 0.7) & (z < np.inf) & (np.abs(angle) < 0.2))


def _walker_up(state: _State) -> Bools:
    z, angle = state[0][:, 1], state[0][:, 2]
    return np.asarray((z > 0.8) & (z < 2.0) & (np.abs(angle) < 1.0))


def _ant_reward(
    before: _State, now: _State, moves: NDArray[np.float32], seconds: float
) -> tuple[Floats, Bools]:
    z = now[0][:, 2]
    finite = np.isfinite(now[0]).all(axis=1) & np.isfinite(now[1]).all(axis=1)
    up = finite & (z >= 0.2) & (z <= 1.0)
    speed = (now[2][:, 0] - before[2][:, 0]) / seconds
    effort = 0.5 * np.square(moves).sum(axis=1)
    contact = 5e-4 * np.square(np.clip(now[3], -1.0, 1.0)).sum(axis=1)
    return (speed + up * 1.0) - (effort + contact), ~up


def _double_pendulum_reward(
    before: _State, now: _State, moves: NDArray[np.float32], seconds: float
) -> tuple[Floats, Bools]:
    x, y = now[2][:, 0], now[2][:, 2]
    v1, v2 = now[1][:, 1], now[1][:, 2]
    fallen = y <= 1
    off = 0.01 * x**2 + (y - 2) ** 2
    reward = 10.0 * ~fallen - off - (1e-3 * v1**2 + 5e-3 * v2**2)
    return np.asarray(reward, np.float64), fallen


def _double_pendulum_obs(state: _State) -> Floats:
    angles = np.ascontiguousarray(state[0][:, 1:])
    parts = (state[0][:, :1], np.sin(angles), np.cos(angles), np.clip(state[1], -10, 10))
    return np.concatenate([*parts, np.clip(state[3][:, :1], -10, 10)], axis=1)


def _double_pendulum_placed(obs: Floats, positions: int) -> tuple[Floats, Floats]:
    angles = np.arctan2(obs[:, 1:3], obs[:, 3:5])
    return np.concatenate([obs[:, :1], angles], axis=1), obs[:, 5 : 5 + positions]


def _pendulum_obs(state: _State) -> Floats:
    return np.concatenate([state[0], state[1]], axis=1)


def _pendulum_reward(
    before: _State, now: _State, moves: NDArray[np.float32], seconds: float
) -> tuple[Floats, Bools]:
    obs = _pendulum_obs(now)
    fallen = ~np.isfinite(obs).all(axis=1) | (np.abs(obs[:, 1]) > 0.2)
    return (~fallen).astype(np.float64), fallen


_KINDS = {
    robot.name: robot
    for robot in (
        _Robot(
            "Ant",
            observe=lambda state: np.concatenate([state[0][:, 2:], state[1]], axis=1),
            place=lambda obs, n: _placed(obs, n, 2),
            reward=_ant_reward,
            views=lambda data: [data.xpos[1], data.cfrc_ext.reshape(-1)],
            normal=True,
            forces=True,
            options=(("include_cfrc_ext_in_observation", False),),
        ),
        _Robot("Hopper", observe=_joints, place=_tracked, reward=_forward(_hopper_up)),
        _Robot(
            "InvertedDoublePendulum",
            observe=_double_pendulum_obs,
            place=_double_pendulum_placed,
            reward=_double_pendulum_reward,
            views=lambda data: [data.site_xpos[0], data.qfrc_constraint],
            normal=True,
        ),
        _Robot(
            "InvertedPendulum",
            observe=_pendulum_obs,
            place=lambda obs, n: _placed(obs, n, 0),
            reward=_pendulum_reward,
        ),
        _Robot("Walker2d", observe=_joints, place=_tracked, reward=_forward(_walker_up)),
    )
}
#: The robots' names.
ROBOTS = tuple(_KINDS)
