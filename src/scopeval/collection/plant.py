"""Where episodes come from: an environment, with what has to be known to run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scopeval.arrays import check_whole
from scopeval.collection.environments import StepCost
from scopeval.errors import InputError
from scopeval.workers.crew import Workers, workers_of

__all__ = ["Plant", "plant_of"]


@dataclass(frozen=True)
class Plant:
    """Where episodes come from; a bare environment is a plant too.

    Attributes:
        env: a Gymnasium environment; the name of a registered one; a function that makes one
            (several are then run side by side, with one call of the policy per step); a `Fleet`,
            which steps many environments by one call; or a `TabularMDP`, which the compiled
            simulator runs.
        cost: where a step's cost is found. None: info["cost"], or the third of six values that
            `step` returns; a name: that entry of info; a function cost(obs, action, reward,
            next_obs, info); "none": costs are all 0.
        side_by_side: how many environments to make (default 8) when `env` is a name or a function.
        workers: how many workers run the episodes, which make `side_by_side` environments each;
            `env` is then a name or a function that makes one. The episodes are the same bits for
            any number of workers. One that dies is replaced, and its episodes are run again. A
            number, or `Workers`. None: in this process.
        exogenous: what no action changes, such as demand or weather: names of signals that the
            environment reports in ``info``, a number at every step (and at the reset, if it has one
            then) or all numbers to the horizon at once; and numbers of columns of the observation.
            A `History` names its own. None: the environment's attribute `exogenous`, if it has one.
    """

    env: Any
    cost: str | StepCost | None = None
    side_by_side: int | None = None
    workers: Workers | int | None = None
    exogenous: Sequence[int | str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.env, Plant):
            raise InputError("env: got a Plant in a Plant; try dataclasses.replace(plant, ...)")
        if self.side_by_side is not None:
            whole = check_whole("side_by_side", self.side_by_side, 1)
            object.__setattr__(self, "side_by_side", whole)
        if self.workers is not None:
            workers_of(self.workers)
        named = self.exogenous
        if named is None:
            env = self.env if callable(self.env) else getattr(self.env, "unwrapped", self.env)
            named = getattr(env, "exogenous", ())
            named = named if isinstance(named, tuple | list) else ()
        if isinstance(named, str) or not all(isinstance(one, int | str) for one in named):
            raise InputError(
                f"exogenous: got {named!r:.60}, expected names of signals in info or numbers of "
                'columns of the observation, such as ("demand",)'
            )
        object.__setattr__(self, "exogenous", tuple(named))

    @property
    def signals(self) -> tuple[str, ...]:
        """Names of exogenous signals."""
        return tuple(name for name in self.exogenous or () if isinstance(name, str))

    @property
    def columns(self) -> tuple[int, ...]:
        """Numbers of exogenous columns of the observation."""
        return tuple(number for number in self.exogenous or () if isinstance(number, int))

    @property
    def crew(self) -> Workers | None:
        """The workers; None: the work is done in this process."""
        return None if self.workers is None else workers_of(self.workers)


def plant_of(env: Any) -> Plant:
    """A plant as it is, or of a bare environment."""
    return env if isinstance(env, Plant) else Plant(env)
