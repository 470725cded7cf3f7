"""Gymnasium's classic control environments for many episodes side by side.

The same dynamics, starts, rewards and ends as `CartPole-v1`, `MountainCar-v0`, `Acrobot-v1` and
`Pendulum-v1` (the tests compare them step by step), on arrays instead of one episode at a time.
That is what measuring small differences in cost needs. Costs are ours:

- ``CartPole``: |x| / 2.4, the distance from the middle of the track;
- ``MountainCar`` and ``Acrobot``: 1 for every step with the engine or motor on;
- ``Pendulum``: the square of the torque, relative to the largest. The torque is one of five.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from scopeval.arrays import Bools, Floats, Ints

__all__ = ["Acrobot", "CartPole", "Control", "MountainCar", "Pendulum", "Stepped"]


class Stepped(NamedTuple):
    """What one step of n episodes leads to."""

    state: Floats  # [n, k]
    reward: Floats  # [n]
    cost: Floats  # [n]
    ended: Bools  # [n]


class Control(Protocol):
    """One environment.

    Attributes:
        name: its name.
        gymnasium: and in Gymnasium.
        horizon: steps after which an episode is cut off.
        levels: [A] what the actions do, from -1 to 1; [A, k] where they do several things.
    """

    name: str
    gymnasium: str
    horizon: int
    levels: Floats

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states [n, k]."""
        ...

    def observe(self, state: Floats) -> Floats:
        """What a policy sees of the states, [n, d]."""
        ...

    def step(self, state: Floats, action: Ints) -> Stepped:
        """Take one action in each."""
        ...

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """A controller's wish between -1 and 1 for each observation; gains of 1 do well.

        [n], or [n, k] as the levels are.
        """
        ...


def _rounded(state: Floats) -> Floats:
    """As an environment hands it out: in float32."""
    return np.asarray(state, np.float32).astype(np.float64)


def _within(wish: Floats) -> Floats:
    return np.asarray(np.clip(wish, -1.0, 1.0), np.float64)


class CartPole:
    """Balance a pole on a cart; state x, x', angle, angle'."""

    name, gymnasium, horizon = "CartPole", "CartPole-v1", 200
    levels = np.array([-1.0, 1.0])
    #: Ends of the track, and angle (12 degrees) at which the pole counts as fallen.
    track, fallen = 2.4, np.pi / 15.0

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states."""
        return rng.uniform(-0.05, 0.05, (episodes, 4))

    def observe(self, state: Floats) -> Floats:
        """What a policy sees."""
        return _rounded(state)

    def step(self, state: Floats, action: Ints) -> Stepped:
        """Cart of 1 kg, pole of 0.1 kg and half length 0.5 m, force of 10 N; Euler, 0.02 s."""
        _, dx, angle, spin = state.T
        sin, cos = np.sin(angle), np.cos(angle)
        push = (10.0 * self.levels[action] + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        speed = push - 0.05 * turn * cos / 1.1
        after = state + 0.02 * np.column_stack([dx, speed, spin, turn])
        ended = (np.abs(after[:, 0]) > self.track) | (np.abs(after[:, 2]) > self.fallen)
        return Stepped(after, np.ones(len(state)), np.abs(after[:, 0]) / self.track, ended)

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """Push toward where the pole leans."""
        return _within(obs @ (gains * np.array([0.15, 0.3, 6.0, 1.2])))


class MountainCar:
    """Drive a weak car out of a valley; state x, x'."""

    name, gymnasium, horizon = "MountainCar", "MountainCar-v0", 200
    levels = np.array([-1.0, 0.0, 1.0])

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states."""
        return np.column_stack([rng.uniform(-0.6, -0.4, episodes), np.zeros(episodes)])

    def observe(self, state: Floats) -> Floats:
        """What a policy sees."""
        return _rounded(state)

    def step(self, state: Floats, action: Ints) -> Stepped:
        """The slope is 3 cos(3 x), the engine weaker than it."""
        level = self.levels[action]
        speed = state[:, 1] + 0.001 * level - 0.0025 * np.cos(3.0 * state[:, 0])
        speed = np.clip(speed, -0.07, 0.07)
        x = np.clip(state[:, 0] + speed, -1.2, 0.6)
        speed = np.where((x == -1.2) & (speed < 0.0), 0.0, speed)
        ended = (x >= 0.5) & (speed >= 0.0)
        return Stepped(np.column_stack([x, speed]), np.full(len(x), -1.0), np.abs(level), ended)

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """With the speed, and on the left rather to the right."""
        wish = obs @ (gains[:2] * np.array([-0.2, 150.0])) - 0.1 * gains[2]
        return _within(wish)


class Acrobot:
    """Swing two links up by the joint between them; state both angles and their speeds."""

    name, gymnasium, horizon = "Acrobot", "Acrobot-v1", 200
    levels = np.array([-1.0, 0.0, 1.0])

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states."""
        return _rounded(rng.uniform(-0.1, 0.1, (episodes, 4)))

    def observe(self, state: Floats) -> Floats:
        """What a policy sees."""
        first, second, *speeds = state.T
        angles = (np.cos(first), np.sin(first), np.cos(second), np.sin(second))
        return _rounded(np.column_stack([*angles, *speeds]))

    def step(self, state: Floats, action: Ints) -> Stepped:
        """One step of 0.2 s by the classic Runge-Kutta rule."""
        torque, dt = self.levels[action], 0.2
        k1 = self._change(state, torque)
        k2 = self._change(state + dt / 2 * k1, torque)
        k3 = self._change(state + dt / 2 * k2, torque)
        k4 = self._change(state + dt * k3, torque)
        after = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        after[:, :2] = (after[:, :2] + np.pi) % (2 * np.pi) - np.pi
        after[:, 2] = np.clip(after[:, 2], -4 * np.pi, 4 * np.pi)
        after[:, 3] = np.clip(after[:, 3], -9 * np.pi, 9 * np.pi)
        height = -np.cos(after[:, 0]) - np.cos(after[:, 0] + after[:, 1])
        ended = height > 1.0
        return Stepped(after, np.where(ended, 0.0, -1.0), np.abs(torque), ended)

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """Pump energy: push with the motion of the joint."""
        wish = obs[:, 4:] @ (gains[:2] * np.array([-1.4, 0.7])) + 0.2 * gains[2] * obs[:, 3]
        return _within(wish)

    @staticmethod
    def _change(state: Floats, torque: Floats) -> Floats:
        """Lagrange's equations, mass matrix times acceleration = force; links of 1 m and 1 kg."""
        first, second, v1, v2 = state.T
        sin, cos, g = np.sin(second), np.cos(second), 9.8
        m11, m12, m22 = 3.5 + cos, 1.25 + 0.5 * cos, 1.25
        weight = 0.5 * g * np.sin(first + second)
        f1 = (0.5 * v2**2 + v1 * v2) * sin - 1.5 * g * np.sin(first) - weight
        f2 = torque - 0.5 * v1**2 * sin - weight
        determinant = m11 * m22 - m12**2
        a1 = (m22 * f1 - m12 * f2) / determinant
        a2 = (m11 * f2 - m12 * f1) / determinant
        return np.column_stack([v1, v2, a1, a2])


class Pendulum:
    """Swing a pendulum up and hold it; state angle, 0 at the top, and its speed."""

    name, gymnasium, horizon = "Pendulum", "Pendulum-v1", 100
    levels = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    #: Torque at a level of 1.
    torque = 2.0

    def start(self, episodes: int, rng: np.random.Generator) -> Floats:
        """First states."""
        return np.asarray(rng.uniform(-1.0, 1.0, (episodes, 2)) * np.array([np.pi, 1.0]))

    def observe(self, state: Floats) -> Floats:
        """What a policy sees."""
        return _rounded(np.column_stack([np.cos(state[:, 0]), np.sin(state[:, 0]), state[:, 1]]))

    def step(self, state: Floats, action: Ints) -> Stepped:
        """A rod of 1 m and 1 kg; 0.05 s, the new speed first."""
        angle, speed = state.T
        push = self.torque * self.levels[action]
        around = (angle + np.pi) % (2 * np.pi) - np.pi
        reward = -(around**2 + 0.1 * speed**2 + 0.001 * push**2)
        speed = np.clip(speed + 0.05 * (15.0 * np.sin(angle) + 3.0 * push), -8.0, 8.0)
        after = np.column_stack([angle + 0.05 * speed, speed])
        return Stepped(after, reward, self.levels[action] ** 2, np.zeros(len(angle), np.bool_))

    def steer(self, obs: Floats, gains: Floats) -> Floats:
        """Near the top: hold it there. Else add energy, up to what the top needs."""
        cos, sin, speed = obs.T
        hold = -(4.0 * gains[0] * sin + 1.0 * gains[1] * speed)
        lacking = 10.0 * (1.0 - cos) - speed**2 / 1.5
        pump = gains[2] * 0.3 * speed * np.sign(lacking)
        return _within(np.where(cos > 0.85, hold, pump))
