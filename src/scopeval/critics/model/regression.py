"""Critics for vectors by a model of the world: the default for observations that are no numbers.

`dynamics` learns from the logs where an action leads; the target is then followed through imagined
episodes, and the critics are fitted on those, where the target itself goes:

    q_t(s, a) = r(s, a) + (1 - end(s, a)) g_t(m(s, a)),      m(s, a) = mean next observation,

with g_t a ridge regression on m, its squares and products, and on what `foresight` says of m: a
network that has learned from many imagined episodes how they go on. How q differs between the
actions of a state, which is all that a tilt can use, comes from the dynamics; g has to be right
only along the target's own ways. Cost and carried variance are read in the same manner. The noise
is what g leaves unexplained (chance, other actions to come, disagreement of the networks) and the
chance of an end.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from scopeval.arrays import Bools, Floats
from scopeval.critics.model.network import Dynamics, stack, unstack
from scopeval.critics.model.return_features import REACH as FAR
from scopeval.critics.model.return_features import Foresight, Study
from scopeval.critics.model.simulator import KnownDynamics, KnownWorld
from scopeval.critics.model.training import Training
from scopeval.critics.protocols import Caution, Critic, Estimates, Learner, Rows, Targets
from scopeval.errors import InputError
from scopeval.policies.protocols import Observations

__all__ = ["ModelCritic", "ModelRegression"]

#: Most squares and products; with more inputs the products are left out.
MOST_FEATURES = 200
#: Features by foresight: what is still earned and spent, their squares and product. Penalized less.
LEARNED, LIGHTER = 5, 0.01
#: Standard deviations beyond which an input is taken to be no further away.
REACH = 4.0
#: How far outside the logged range an observation is still known, in ranges.
SLACK = 0.1
#: What no value or variance exceeds: the square of it is still a number.
LARGEST = 1e100


@dataclass(frozen=True)
class ModelRegression:
    """Settings.

    Attributes:
        training: of the networks; of several ways that with the least held-out error is kept.
        paths: episodes imagined with each network.
        study: how foresight is learned.
        ridge: penalty, relative to the number of rows.
        caution: where small errors grow fast, critics that are right on average still say too
            much of every single action, so smaller shares are tried; on the other hand the check is
            in a world that is as wrong as the logs show, and can be believed.
        dynamics: `KnownDynamics`, where there is a simulator, or what was learned; set by `design`
            otherwise, and so is
        foresight: for the target.
        low: [d] least logged observation, and
        high: [d] largest; beyond, nothing is known.
        logged: [A] which actions of a finite set were logged at all; [0]: actions are vectors.
    """

    training: Training | tuple[Training, ...] = field(default_factory=Training)
    paths: int = 600
    study: Study = field(default_factory=Study)
    ridge: float = 3e-2
    caution: Caution = field(default_factory=lambda: Caution((0.35, 0.65, 1.0), 0.9, 0.95))
    dynamics: Dynamics | KnownDynamics | None = None
    foresight: Foresight | None = None
    low: Floats = field(default_factory=lambda: np.empty(0))
    high: Floats = field(default_factory=lambda: np.empty(0))
    logged: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    name: str = "model"

    def using(self, dynamics: Dynamics, foresight: Foresight, rows: Rows) -> ModelRegression:
        """The same with what was learned, for observations as in these rows."""
        both = np.concatenate([np.asarray(rows.obs), np.asarray(rows.next_obs)])
        low, high = both.min(axis=0), both.max(axis=0)
        room = SLACK * (high - low) + 1e-9
        actions = len(dynamics.encoder.embedding)
        logged = np.bincount(rows.action, minlength=actions) > 0 if actions else self.logged
        known = {"low": low - room, "high": high + room, "logged": logged}
        return replace(self, dynamics=dynamics, foresight=foresight, **known)

    @property
    def trainings(self) -> tuple[Training, ...]:
        """All that are tried."""
        return (self.training,) if isinstance(self.training, Training) else tuple(self.training)

    def prepare(self, rows: Rows, actions: int) -> Rows:
        """The rows as they are."""
        return rows

    def learner(self, rows: Rows, actions: int, seed: int) -> Learner:
        """Factorize the ridge for the rows of one time step."""
        return _ModelLearner(self, rows)


class _ModelLearner:
    def __init__(self, how: ModelRegression, rows: Rows) -> None:
        assert isinstance(how.dynamics, Dynamics)
        assert how.foresight is not None
        self.how, self.rows = how, rows
        self.t = int(rows.t[0])
        action = rows.action[:, None]
        taken = how.dynamics.outlook(np.asarray(rows.obs), action, self.t)
        self.goes_on = np.flatnonzero(rows.alive > 0)
        ahead = taken.ahead[self.goes_on, 0]
        if not len(ahead):
            ahead = taken.ahead[:, 0]
        self.mean, self.scale = ahead.mean(axis=0), ahead.std(axis=0)
        self.scale = np.where(self.scale > 1e-9, self.scale, 1.0)
        self.x = features(ahead, self.mean, self.scale, how.foresight.at(ahead, self.t))
        penalty = np.full(self.x.shape[1], how.ridge * len(ahead))
        penalty[0] = 0.0
        penalty[-LEARNED:] *= LIGHTER
        self.factor = cho_factor(self.x.T @ self.x + np.diag(penalty + 1e-9))

    def fit(self, targets: Targets) -> Critic:
        rows, on = self.rows, self.goes_on
        k = targets.cost_behavior.shape[1]
        # what follows the step; the step's own reward and cost come from the dynamics
        value = targets.reward - rows.reward
        cost = targets.cost_target - rows.cost
        beyond = targets.cost_behavior - targets.cost_target[:, None]
        y = np.column_stack([value, cost, beyond, targets.carried])[on]
        y = np.nan_to_num(y, nan=LARGEST).clip(-LARGEST, LARGEST)  # a variance may run away
        if len(on):
            heads = cho_solve(self.factor, self.x.T @ y)
            noise = (y[:, 0] - self.x @ heads[:, 0]) ** 2
            y = np.column_stack([y, noise])
            heads = np.column_stack([heads, cho_solve(self.factor, self.x.T @ noise)])
            low, high = y.min(axis=0), y.max(axis=0)
        else:
            heads = np.zeros((self.x.shape[1], 3 + 2 * k))
            low = high = np.zeros(3 + 2 * k)
        assert isinstance(self.how.dynamics, Dynamics)
        assert self.how.foresight is not None
        return ModelCritic(
            dynamics=self.how.dynamics,
            foresight=self.how.foresight,
            t=self.t,
            heads=np.ascontiguousarray(heads, np.float64),
            mean=self.mean,
            scale=self.scale,
            least=low,
            most=high,
            low=self.how.low,
            high=self.how.high,
            logged=self.how.logged,
            reward_noise=float(np.mean(rows.reward_noise)),
            followed=k,
        )


@dataclass(frozen=True)
class ModelCritic:
    """The critics of one time step: the dynamics, foresight, and `heads` [features, 3 + 2 k].

    In order: value, cost under the target, cost of each followed behavior beyond that, carried
    variance of each, noise. Answers stay between `least` and `most`, what was seen in the fit.
    """

    dynamics: Dynamics
    foresight: Foresight
    t: int
    heads: Floats
    mean: Floats
    scale: Floats
    least: Floats
    most: Floats
    low: Floats
    high: Floats
    logged: Bools
    reward_noise: float
    followed: int

    def at(self, obs: Observations, actions: NDArray[Any] | None = None) -> Estimates:
        """One step by the dynamics, the rest by the heads."""
        k = self.followed
        ahead = self.dynamics.outlook(obs, actions, self.t)
        flat = ahead.ahead.reshape(-1, ahead.ahead.shape[-1])
        heads, size = self._scaled
        seen = self.foresight.at(ahead.ahead, self.t).reshape(len(flat), -1)
        parts = [
            features(flat[i : i + 2048], self.mean, self.scale, seen[i : i + 2048], np.float32)
            @ heads
            for i in range(0, max(len(flat), 1), 2048)
        ]
        then = np.clip(np.concatenate(parts) * size, self.least, self.most)
        then = then.reshape(*ahead.end.shape, -1)
        stays = 1.0 - ahead.end
        value = then[..., 0]
        rest = stays[..., None] * then[..., 1:-1]
        cost_target = np.maximum(ahead.cost + rest[..., 0], 0.0)
        noise = stays * (np.maximum(then[..., -1], 0.0) + ahead.end * value**2)
        inside = np.all((obs >= self.low) & (obs <= self.high), axis=1, keepdims=True)
        return Estimates(
            q=ahead.reward + stays * value,
            cost_target=cost_target,
            cost_behavior=np.maximum(cost_target[..., None] + rest[..., 1 : 1 + k], 0.0),
            carried=np.maximum(rest[..., 1 + k :], 0.0),
            noise=noise + self.reward_noise,
            error=np.zeros_like(noise),
            known=np.broadcast_to(
                inside & self.logged if len(self.logged) else inside, noise.shape
            ),
        )

    @property
    def trouble(self) -> str | None:
        """What went wrong last with a simulator, if one is asked."""
        return next((n.trouble for n in self.dynamics.networks if isinstance(n, KnownWorld)), None)

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.float32], Floats]:
        """The heads in float32, and by how much each was made smaller: a variance may run away."""
        size = np.maximum(np.abs(self.heads).max(axis=0) / 1e30, 1.0)
        return (self.heads / size).astype(np.float32), size

    @cached_property
    def readied(self) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """What `acting` hands to its compiled call: of the dynamics, of foresight, and its own."""
        encoder = self.dynamics.encoder
        time = self.t / encoder.horizon if encoder.horizon else 0.0
        heads, size = self._scaled
        return (
            (*self.dynamics.stacked, encoder.world, time),
            (*self.foresight.stacked, self.foresight.when(self.t), np.float32(FAR)),
            (
                np.ascontiguousarray(heads.T),
                size,
                self.mean,
                self.scale,
                self.least,
                self.most,
                self.low,
                self.high,
                self.logged,
                float(self.reward_noise),
                int(self.followed),
                REACH,
                with_products(len(self.mean)),
            ),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What differs from step to step."""
        names = ("heads", "mean", "scale", "least", "most", "low", "high", "logged")
        own = {name: np.asarray(getattr(self, name)) for name in (*names, "reward_noise")}
        return own | {"step": np.asarray(self.t), "followed": np.asarray(self.followed)}

    def shared(self) -> dict[str, NDArray[Any]]:
        """What is the same at every step.

        Raises:
            InputError: the dynamics are a simulator of yours, which no file can hold.
        """
        if not self.dynamics.learned:
            raise InputError(
                "save: the dynamics of this design are a simulator, which no file can hold; "
                "expected dynamics learned from logs, try regression='auto', or design again"
            )
        return stack(self.dynamics.learned) | self.foresight.arrays()

    @classmethod
    def restored(
        cls, shared: dict[str, NDArray[Any]], steps: list[dict[str, NDArray[Any]]]
    ) -> list[ModelCritic]:
        """The critics that `arrays` and `shared` took apart."""
        foresight = Foresight.restored(shared)
        dynamics = unstack(shared)
        critics = []
        for own in steps:
            t, noise, k = (own.pop(name) for name in ("step", "reward_noise", "followed"))
            rest: dict[str, Any] = {"dynamics": dynamics, "foresight": foresight, **own}
            critics.append(cls(**rest, t=int(t), reward_noise=float(noise), followed=int(k)))
        return critics


def features(
    points: Floats, mean: Floats, scale: Floats, seen: NDArray[Any], kind: type = np.float64
) -> NDArray[Any]:
    """1, standardized inputs, squares, products (if not too many), and those by foresight."""
    from scopeval.critics.model._features_kernel import fill

    d = points.shape[1]
    products = with_products(d)
    out = np.empty((len(points), 1 + d + (d * (d + 1) // 2 if products else d) + LEARNED), kind)
    fill(np.ascontiguousarray(points), mean, scale, REACH, products, seen, out)
    return out


def with_products(d: int) -> bool:
    """Whether there are features for products of d inputs."""
    return 1 + d + d * (d + 1) // 2 <= MOST_FEATURES
