"""The verb `evaluate`: its arguments become a task, environments are opened, the loop runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scopeval.arrays import check_whole
from scopeval.collection.plant import Plant, plant_of
from scopeval.context.history import History, history_of
from scopeval.errors import InputError
from scopeval.evaluation.batches import refuse_terms
from scopeval.evaluation.context_control import with_signals
from scopeval.evaluation.loop import (
    EvaluationLoop,
    EvaluationTask,
    StoppingPlan,
    limits_of_guard,
)
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.sources import open_sources
from scopeval.evaluation.stages import Stages
from scopeval.evaluation.tracking import Listener, follow_batches
from scopeval.exact import TabularMDP
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import as_behavior
from scopeval.policies.protocols import Behavior, LearnedBehavior, Policy, largest_weight
from scopeval.question.baseline import Baseline, baseline_of, judged_promise, unrecognized
from scopeval.question.inference import Inference, inference_of
from scopeval.question.promise import Limit, Promise, promises_and_limits
from scopeval.question.question import Question, discount, question_of
from scopeval.question.stop import Stop, stop_of
from scopeval.safety.cost_bound import cost_bound_of

__all__ = ["evaluate"]


def evaluate(
    env: Any,
    policy: Any,
    run: Any = None,
    *,
    episodes: int | None = None,
    stop: Stop | None = None,
    horizon: int | None = None,
    promise: Promise | Limit | Sequence[Promise | Limit] | None = None,
    baseline: Any = None,
    inference: Inference | None = None,
    context: History | Transitions | None = None,
    seed: int = 0,
    progress: Listener | bool | None = None,
) -> Evaluation:
    """Estimate the value of the target `policy` by running another policy in its place.

    The evaluation ends after `episodes`, or as `stop` says. With a number of episodes alone the
    interval is the one for a fixed number of episodes; otherwise, or when the guard has switched,
    it is an anytime-valid sequence (see `totals`).

    Args:
        env: where: a Gymnasium environment, the name of a registered one, a function that makes
            one, or a `TabularMDP`, which the compiled simulator runs; or a `Plant`, which also says
            where a step's cost is found, how many environments run side by side, and on which
            workers.
        policy: pi, the target, in any form that `as_policy` takes; or a `Question`, which may have
            a discount (default: the `TabularMDP`'s or the design's own, else 1).
        run: what is run: what `design` made for this target, or any policy over the same actions;
            `Stages`, which design it while they run; None: the target itself.
        episodes: how many to start.
        stop: other ends: a precision, a cost.
        horizon: T; may be left out for a `TabularMDP` and with a design.
        promise: what is certified and guarded: a `Promise` about the expected cost, and `Limit`s
            that act at once, within an episode. Default: what the design promises, else that an
            episode costs no more than the baseline's or, without one, the target's. With a
            ``bound`` certificate and guard hold for any number of episodes and any distribution of
            costs up to it (see `safety.cost_bound`).
        baseline: what runs today, another policy over the same finite actions, or a `Baseline`. The
            promise is then about its cost, which comes from the same episodes, weighted. It takes
            the rest of an episode that passes a limit, and of one in which the behavior policy
            fails: such an episode is about the target until then and the baseline afterwards, and
            is counted. When the guard refutes the promise the evaluation ends, and the baseline
            goes on.
        inference: how the result follows from the episodes, and whether these are kept.
        context: a `History` of what no action changes, such as demand, prices or weather: the noise
            that these bring is removed from the estimate, as far as other episodes (without a fixed
            number of episodes, and in stages: earlier ones) confirm it. The interval contains the
            error of the history. It must be independent of the episodes and, unless it says
            otherwise, have the law of their paths. `History.starts` is about where episodes start.
            Or a log that says what is exogenous (`read_logs`); `Stages(logs)` is asked by itself.
        seed: of the episodes; the same seed gives the same result.
        progress: True shows how far it is: a bar on a terminal or in a notebook, lines elsewhere;
            None: on a terminal only; False: never. A function is called after every batch with a
            `Running`; of a `Tracker` ``log`` is called with the number of episodes done and the
            numbers by name. An exception in it is a warning, and does not end the evaluation;
            Ctrl-C does.

    Returns:
        An `Evaluation`. Ctrl-C ends the evaluation with what was finished by then.

    Raises:
        InputError: an argument is wrong.
        PlantError: the environment cannot be made, or no episode of it can be finished.
    """
    plan, plant = StoppingPlan(stop_of(episodes, stop)), plant_of(env)
    if plan.stop.decided:
        raise InputError(
            "stop.decided: got True with one policy; expected compare(env, {name: policy, ...})"
        )
    seed = check_whole("seed", seed, 0)
    stages = run if isinstance(run, Stages) else None
    asked, today = question_of(policy, horizon), None
    if baseline is not None:
        today = baseline_of(baseline)
    history: History | None = None
    if context is not None or stages is not None:
        history = history_of(context, None if stages is None else stages.logs, asked.horizon)
        plant = with_signals(plant, history)
    behavior = as_behavior(run if stages is None else stages.design, asked.policy)
    unconfirmed = _unconfirmed(behavior, today)
    task = _task(
        plant,
        asked,
        behavior,
        promise,
        today,
        inference_of(inference),
        history,
        seed=seed,
        in_stages=stages is not None,
    )
    if plant.cost == "none" and plan.stop.cost is not None:
        raise InputError("stop.cost: given with cost='none', expected costs to count")
    opened = open_sources(
        plant,
        task.question,
        task.promise,
        cut=asked.horizon,
        seed=seed,
        baseline=None if today is None else today.policy,
    )
    with follow_batches(progress) as listener, opened as sources:
        return EvaluationLoop(
            task, sources, plan, listener, behavior, stages, unconfirmed
        ).evaluate()


def _unconfirmed(behavior: Behavior | Policy | None, baseline: Baseline | None) -> str | None:
    """Why the logs confirm no design; None: they do, or nothing was designed from logs.

    Raises:
        InputError: they do not, and then nothing is to be run.
    """
    why = behavior.fallback if isinstance(behavior, LearnedBehavior) else None
    if why is not None and baseline is not None and baseline.unconfirmed == "refuse":
        raise InputError(
            f"run: the logs confirm no design ({why}), so that the target itself would run; "
            "nothing was run. Log more, or try baseline=Baseline(policy, unconfirmed='target')"
        )
    return why


def _task(
    plant: Plant,
    asked: Question,
    behavior: Behavior | Policy | None,
    promise: Promise | Limit | Sequence[Promise | Limit] | None,
    baseline: Baseline | None,
    inference: Inference,
    context: History | None,
    *,
    seed: int,
    in_stages: bool,
) -> EvaluationTask:
    """What is asked for, with defaults filled in."""
    promises, limits = promises_and_limits(promise, limits=True)
    stated = promises[0] if promises else None
    judged = judged_promise(behavior, stated, baseline)
    if in_stages:
        _check_stages(inference)
    if context is not None or inference.return_bound is not None:
        refuse_terms(inference, context)
    question = _completed(asked, plant.env, behavior)
    horizon = question.horizon
    if horizon is None and isinstance(plant.env, TabularMDP):
        horizon = plant.env.horizon
    bound = cost_bound_of(
        judged.bound,
        horizon=horizon,
        gamma=discount(question),
        largest_weight=largest_weight(None if in_stages else behavior),
    )
    if limits:
        limits_of_guard(limits)  # refuses those that only campaigns know
        if behavior is None and baseline is None and not in_stages:
            raise InputError(
                f"promise: got {limits[0]!r} where the target itself runs, so that there is "
                "nothing to hand over to; expected baseline=, the policy that takes over, or run="
            )
    return EvaluationTask(
        question=question,
        promise=judged,
        inference=inference,
        limits=limits,
        costs=plant.cost != "none",
        seed=seed,
        context=context,
        columns=plant.columns,
        bound=bound,
        note=unrecognized(behavior, judged) if judged.compared == "reference" else None,
        baseline=baseline is not None,
    )


def _check_stages(inference: Inference) -> None:
    """Stages are designed anew from their own episodes: what must be fixed before is refused."""
    stated = {
        "return_bound": inference.return_bound is not None,
        "an estimator of your own": callable(inference.estimator),
    }
    names = [name for name, given in stated.items() if given]
    if names:
        raise InputError(
            f"{', '.join(names)}: got it with Stages; try run=design(logs, policy, ...)"
        )


def _completed(question: Question, env: Any, behavior: Any) -> Question:
    """What is left open comes from the `TabularMDP`, or from a learned behavior policy."""
    horizon, gamma = question.horizon, question.gamma
    if isinstance(env, TabularMDP):
        if gamma not in (None, env.gamma):
            raise InputError(f"gamma: got {gamma}, the TabularMDP has {env.gamma}; leave it out")
        gamma = env.gamma
    if isinstance(behavior, LearnedBehavior):
        recipe = behavior.recipe
        horizon = recipe.horizon if horizon is None else horizon
        gamma = recipe.gamma if gamma is None else gamma
    return replace(question, horizon=horizon, gamma=float(1.0 if gamma is None else gamma))
