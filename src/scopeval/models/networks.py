"""Critics by a model of the world: the default for observations that are vectors.

The dynamics are learned from each half of the logs, or a simulator is compared with them. Episodes
of the target policy are then simulated in the model of each half. What every model predicts at the
observations of these episodes is stored with them, because a design sweeps over them many times.
There are such data for each half of the logs, and for both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scopeval._parallel import fan_out
from scopeval._progress import Progress, count_steps
from scopeval.arrays import Bools, Floats, Ints
from scopeval.errors import InputError
from scopeval.models.dynamics import Dynamics, Encoder, StepModel, StepPrediction
from scopeval.models.layers import Weights
from scopeval.models.model_critic import (
    LearnedModel,
    ReturnNetworks,
    ReturnSamples,
    RolloutRegression,
    Study,
    learn_returns,
)
from scopeval.models.protocols import Caution, HalvedData, Points, SweepData
from scopeval.models.rows import Log, Rows
from scopeval.models.simulator import Simulator, SimulatorModel
from scopeval.models.training import Training, learn_halves
from scopeval.policies.drawing import draw_actions
from scopeval.policies.gaussian import GaussianPolicy
from scopeval.policies.protocols import (
    ContinuousPolicy,
    Observations,
    Policy,
    Redraws,
    embedding_of,
    offer,
    probs_of,
)
from scopeval.question.question import Question, discount

__all__ = [
    "Networks",
    "Rollouts",
    "first_observations",
    "redrawn",
    "sample_returns",
    "simulate_episodes",
]


#: Numbers of the models: see `LearnedModel.number`.
HALVES, BOTH = (0, 1), 2


@dataclass(frozen=True)
class Networks:
    """Learn a model of the world by networks; see `models.model_critic` for the method.

    Attributes:
        training: of the networks; of several ways, the one with the least held-out error is used.
        paths: episodes simulated in each network.
        study: how the return features are learned.
        ridge: penalty, relative to the number of rows.
        caution: where small errors grow fast, critics that are unbiased on average still overstate
            the differences between actions, so smaller shares of them are tried. On the other hand
            the cross-check is in a world that is as uncertain as the logs show, and is trusted.
        first_look: whether models are first trained for a moment, and in full only if these leave
            something to gain.
        simulates_costs: whether the cost of a design is taken from simulated episodes of the
            behavior policy, and kept within its budget there; else it is the critics' own.
        dynamics: a simulator (`Simulator`), or the `Dynamics` of an earlier design; None: they
            are learned from the logs.
        time_varying: whether rewards or dynamics depend on t beyond the observation. If not, every
            logged row serves every time step.
    """

    training: Training | tuple[Training, ...] = field(default_factory=Training)
    paths: int = 600
    study: Study = field(default_factory=Study)
    ridge: float = 3e-2
    caution: Caution = field(
        default_factory=lambda: Caution((0.35, 0.65, 1.0), 0.95, 0.01, (1.0, 1.0))
    )
    first_look: bool = True
    simulates_costs: bool = True
    dynamics: Dynamics | Simulator | None = None
    time_varying: bool = False
    name: str = "model"

    @property
    def trainings(self) -> tuple[Training, ...]:
        """All that are tried."""
        return (self.training,) if isinstance(self.training, Training) else tuple(self.training)

    def sweep_data(
        self, log: Log, question: Question, seed: int, report: Progress | None = None
    ) -> HalvedData:
        """Learn the models, and simulate episodes of the target policy in them.

        Args:
            log: the rows and their halves.
            question: the target policy, the horizon and the discount.
            seed: of all networks and episodes.
            report: called with (what, done, total).
        """
        steps, errors = self.step_models(log, question, seed, report)
        returns = self._learn_returns(steps, log.starts, question, seed, report)
        models = [LearnedModel.of(k, Dynamics((steps[k],)), returns[k], log.rows) for k in HALVES]
        rollouts = [
            simulate_episodes(
                step, log.starts, question, self.paths, np.random.default_rng((seed, 22, k))
            )
            for k, step in enumerate(steps)
        ]
        asked = question, log.actions, seed
        each = [_half(k, rollouts[k], models, self.ridge, *asked) for k in HALVES]
        # one simulator that serves both halves is one model, not the mean of two
        different = steps[:1] if steps[0] is steps[1] else steps
        both = LearnedModel.of(
            BOTH, Dynamics(tuple(different)), ReturnNetworks.join(returns), log.rows
        )

        def finish() -> None:
            """The design is done: a simulator no longer raises errors."""
            for model in steps:
                if isinstance(model, SimulatorModel):
                    model.start_running()

        return HalvedData(each, _both(each, rollouts, both, self.ridge), errors, finish)

    def step_models(
        self, log: Log, question: Question, seed: int, report: Progress | None = None
    ) -> tuple[list[StepModel], dict[str, float]]:
        """The dynamics of each half, and their held-out errors by name.

        They are those of the settings, where these have them. A simulator serves both halves, each
        with episodes of its own.
        """
        given, encoder = self.dynamics, _encoder(log, question, self.time_varying)
        if isinstance(given, Simulator):
            known = given.model(encoder)
            return [known, known], known.compare(log.rows, seed)
        if given is None:
            ticker = partial(count_steps, report, "learning the dynamics")
            halves = [log.rows.select(np.flatnonzero(log.fold == k)) for k in HALVES]
            networks: list[StepModel] = [
                *learn_halves(halves, encoder, self.trainings, seed, ticker)
            ]
        elif given.learned:
            networks = list(given.networks)
            if not given.encoder.same(encoder):
                raise InputError(
                    "dynamics: learned for other observations, actions or times than those of "
                    "this target policy; expected the same numbers and vectors of actions, and "
                    "the same time_varying"
                )
        else:
            raise InputError(
                "dynamics: got those of a design that has a simulator; expected Simulator, "
                "pass the simulator again"
            )
        losses = [n.loss for n in networks if np.isfinite(n.loss)]  # none: every row ended
        return networks, {"dynamics": float(np.sqrt(np.mean(losses))) if losses else float("nan")}

    def _learn_returns(
        self,
        steps: list[StepModel],
        starts: Rows,
        question: Question,
        seed: int,
        report: Progress | None,
    ) -> list[ReturnNetworks]:
        """The return features in the model of each half."""
        study, horizon = self.study, _horizon(question)
        paths = study.paths_of(horizon)
        # the target policy is the user's code, so it is not called in several threads
        samples = [
            sample_returns(step, starts, question, paths, np.random.default_rng((seed, 23, k)))
            for k, step in enumerate(steps)
        ]
        tick = count_steps(report, "learning how episodes go on", len(steps) * study.steps)
        return fan_out(
            lambda k: learn_returns(samples[k], horizon, study, 2 * seed + k, tick),
            range(len(steps)),
        )


# -- simulated episodes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollouts:
    """Simulated episodes, one entry for each time step.

    Attributes:
        obs: T + 1 entries [paths, d]; the last is what follows the last step.
        candidates: [paths, K, m] offered there; None: all actions of a finite set.
        predictions: of the model in which they were simulated.
        taken: [paths] which of the actions was taken.
        rows: the steps that were taken; row i leads to observation i of the next step.
    """

    obs: list[Observations]
    candidates: list[NDArray[Any] | None]
    predictions: list[StepPrediction]
    taken: list[Ints]
    rows: list[Rows]


def simulate_episodes(
    model: StepModel,
    starts: Rows,
    question: Question,
    paths: int,
    rng: np.random.Generator,
) -> Rollouts:
    """Episodes of the target policy, from where logged episodes start.

    An episode that ends is replaced by a copy of one that goes on, so that every step has enough
    rows. That it ended is in the rows' `alive`.
    """
    target = question.policy
    rollouts = Rollouts([first_observations(starts, paths, rng)], [], [], [], [])
    every = np.arange(paths)
    for t in range(_horizon(question)):
        obs = rollouts.obs[t] = redrawn(target, rollouts.obs[t], t, rng)
        offered = offer(target, obs, t, rng)
        candidates = None if offered.actions.ndim == 2 else offered.actions
        ahead = model.predict(obs, candidates, t)
        # candidates are draws already, so the first will do; of a finite set, draw one
        taken = (
            np.zeros(paths, np.int64)
            if candidates is not None
            else draw_actions(offered.probs, rng.random(paths))
        )
        ends = rng.random(paths) < ahead.end[every, taken]
        following = obs.copy()
        action = np.ascontiguousarray(offered.actions[every, taken])
        wrong = model.draw_errors(obs, action, t, rng)
        following[:, model.encoder.predicted] = np.clip(
            model.settle(ahead.next_obs[every, taken] + wrong), model.low, model.high
        )
        rollouts.candidates.append(candidates)
        rollouts.predictions.append(ahead)
        rollouts.taken.append(taken)
        rollouts.rows.append(
            Rows(
                t=np.full(paths, t),
                obs=obs,
                action=action,
                reward=ahead.reward[every, taken],
                reward_noise=np.full(paths, model.reward_noise),
                cost=ahead.cost[every, taken],
                cost_noise=np.zeros(paths),
                next_obs=following,
                alive=np.where(ends, 0.0, 1.0),
                weight=np.ones(paths),
                borrowed=np.zeros(paths, np.bool_),
                has_next=np.ones(paths, np.bool_),
            )
        )
        alive = np.flatnonzero(~ends)
        after = following.copy()
        if len(alive):
            after[ends] = following[rng.choice(alive, size=int(ends.sum()))]
        rollouts.obs.append(after)
    return rollouts


def sample_returns(
    model: StepModel,
    starts: Rows,
    question: Question,
    paths: int,
    rng: np.random.Generator,
) -> ReturnSamples:
    """What followed each step of many simulated episodes, to learn return features from.

    Without the model's errors: the critics account for them, and here they would only add noise.
    Only steps after which the episode went on are returned.
    """
    target, gamma = question.policy, discount(question)
    obs, path = first_observations(starts, paths, rng), np.arange(paths)
    steps: list[tuple[Ints, Bools, Weights, Floats]] = []  # of the episodes that had not ended
    for t in range(_horizon(question)):
        obs = redrawn(target, obs, t, rng)
        action = _one_action(target, obs, t, rng)
        prediction = model.predict(obs, action[:, None], t)
        on = rng.random(len(obs)) >= prediction.end[:, 0]
        ahead = prediction.next_obs[on, 0]
        gained = np.column_stack([prediction.reward[:, 0], prediction.cost[:, 0]])
        steps.append((path, on, ahead.astype(np.float32), gained))
        following = obs[on]
        following[:, model.encoder.predicted] = np.clip(model.settle(ahead), model.low, model.high)
        path, obs = path[on], following
        if not len(path):
            break
    after = np.zeros((paths, 2))
    samples: list[ReturnSamples] = []
    for t, (path, on, ahead, gained) in reversed(list(enumerate(steps))):
        samples.append(ReturnSamples(ahead, np.full(len(ahead), t), after[path[on]]))
        after[path] = gained + gamma * after[path]
    return ReturnSamples(
        np.concatenate([part.next_obs for part in samples]),
        np.concatenate([part.t for part in samples]),
        np.concatenate([part.returns for part in samples]),
    )


def first_observations(starts: Rows, paths: int, rng: np.random.Generator) -> Observations:
    """First observations, drawn as often as they were logged."""
    share = starts.weight / starts.weight.sum()
    return np.asarray(starts.obs)[rng.choice(len(starts), size=paths, p=share)]


def redrawn(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> Observations:
    """Observations with the entries that the target policy draws itself drawn anew, if any."""
    return target.redraw(obs, t, rng) if isinstance(target, Redraws) else obs


def _one_action(
    target: Policy | ContinuousPolicy, obs: Observations, t: int, rng: np.random.Generator
) -> NDArray[Any]:
    """One draw of the target policy for each observation."""
    if isinstance(target, ContinuousPolicy):
        if isinstance(target, GaussianPolicy):  # cheaper than candidates
            return target.sample(obs, t, rng)
        return target.candidates(obs, t, rng).actions[:, 0]
    return draw_actions(probs_of(target, obs, t), rng.random(len(obs)))


# -- the data of a design --------------------------------------------------------------------------


def _half(
    k: int,
    rollouts: Rollouts,
    models: list[LearnedModel],
    ridge: float,
    question: Question,
    actions: int,
    seed: int,
) -> SweepData:
    """The episodes of one half, with what the models of both halves predict there.

    The other half's model is needed because its designs are cross-checked here.
    """
    paths = len(rollouts.obs[0])
    share = np.full(paths, 1.0 / paths)
    points, taken = [], []
    for t, prediction in enumerate(rollouts.predictions):
        obs, candidates = rollouts.obs[t], rollouts.candidates[t]
        stored = {}
        for model in models:
            step = prediction
            if model.number != k:
                step = model.dynamics.predict(obs, candidates, t)
            stored[model.number] = step, model.returns.at(step.next_obs, t)
        taken.append(_taken(*stored[k], rollouts.taken[t]))
        points.append(Points(obs, share, share, candidates, stored))
    points.append(Points(rollouts.obs[-1], share, share))  # after the last step: no value
    successor = [np.arange(paths)] * len(rollouts.rows)
    regression = RolloutRegression(models[k], ridge, taken)
    return SweepData(rollouts.rows, points, successor, regression, question, actions, seed, {})


def _both(
    halves: list[SweepData], rollouts: list[Rollouts], model: LearnedModel, ridge: float
) -> SweepData:
    """The episodes of both halves, with the mean of what their models predict."""
    rows = [Rows.joined(parts) for parts in zip(*(half.rows for half in halves), strict=True)]
    points, taken = [], []
    for t, parts in enumerate(zip(*(half.points for half in halves), strict=True)):
        obs = np.concatenate([part.obs for part in parts])
        initial = np.concatenate([part.initial for part in parts]) / len(parts)
        some = [part.actions for part in parts if part.actions is not None]
        candidates = np.concatenate(some) if some else None
        stored = None
        if t < len(rows):
            # computed for each half already: rounding differs between batches of other sizes
            step = StepPrediction.mean(
                [_joined(k, parts) for k in range(len(model.dynamics.networks))]
            )
            seen = model.returns.at(step.next_obs, t)
            stored = {model.number: (step, seen)}
            chosen = np.concatenate([one.taken[t] for one in rollouts])
            taken.append(_taken(step, seen, chosen))
        points.append(Points(obs, initial, initial, candidates, stored))
    successor = [np.arange(len(part)) for part in rows]
    regression = RolloutRegression(model, ridge, taken)
    first = halves[0]
    return replace(
        first, rows=rows, points=points, successor=successor, regression=regression, learners={}
    )


def _encoder(log: Log, question: Question, time_varying: bool) -> Encoder:
    """Of the inputs that this target policy needs."""
    target = question.policy
    width = int(log.rows.obs.shape[1])
    predicted = np.ones(width, np.bool_)
    if isinstance(target, Redraws):
        predicted[width - target.drawn :] = False
    embedding = embedding_of(target)
    if isinstance(target, ContinuousPolicy):
        embedding = np.empty((0, log.rows.action.shape[1]))  # they are vectors already
    elif embedding is None:
        embedding = np.eye(log.actions)
    return Encoder(embedding, predicted, _horizon(question) if time_varying else 0)


def _horizon(question: Question) -> int:
    assert question.horizon is not None
    return question.horizon


def _taken(step: StepPrediction, seen: Weights, taken: Ints) -> tuple[Floats, Weights]:
    """Where the actions that were taken lead, and the return features there."""
    every = np.arange(len(taken))
    return step.next_obs[every, taken], seen[every, taken]


def _joined(k: int, parts: Sequence[Points]) -> StepPrediction:
    """What the model of half k predicts at the points of both halves."""
    predictions = []
    for part in parts:
        assert part.predicted is not None
        predictions.append(part.predicted[k][0])
    return StepPrediction.join(predictions)
