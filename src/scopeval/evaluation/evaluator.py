"""The whole flow: run a policy in place of the target, and report what the target is worth.

source (environments or simulator)        episodes by number, in batches
  -> batch: one value per episode         mean J(pi) given all earlier episodes
  -> running totals                       estimate, interval, certificate, diagnostics
  -> guard: switch to the target?         when the promise is refuted, or a limit is passed
  -> stopping plan: another batch?        episodes, precision or cost budget, whichever is first
running totals -> Evaluation
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scopeval.arrays import check_whole
from scopeval.collection.environments import StepCost
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.result import Evaluation, GuardReport
from scopeval.evaluation.running_totals import IntervalMethod, RunInfo, RunningTotals
from scopeval.evaluation.source_choice import (
    Sources,
    bound_of,
    decisions_of,
    open_sources,
    terms_of,
    unbiased_estimator,
)
from scopeval.evaluation.stage_runner import StagedTask, evaluate_in_stages
from scopeval.evaluation.start_control import (
    Starts,
    adjusted,
    start_adjustment,
)
from scopeval.evaluation.stopping import INTERRUPTED, Running, StoppingPlan, run_batches
from scopeval.evaluation.tracking import Listener, follow_batches
from scopeval.policies.adapters import as_behavior, as_policy
from scopeval.policies.protocols import Behavior, Policy
from scopeval.safety.guard import Guard
from scopeval.safety.promise import Promise, promise_with
from scopeval.workers.crew import CrewSize

__all__ = ["INTERRUPTED", "Running", "StoppingPlan", "evaluate", "unbiased_estimator"]


def evaluate(
    env: Any,
    target: Any,
    behavior: Any = None,
    *,
    horizon: int | None = None,
    episodes: int | None = None,
    precision: float | None = None,
    cost_budget: float | None = None,
    alpha: float = 0.05,
    epsilon: float | None = None,
    gamma: float | None = None,
    estimator: str = "auto",
    interval: IntervalMethod = "t",
    guard: bool | Guard | None = True,
    reference: Any = None,
    cost_limit: float | None = None,
    cost_bound: float | None = None,
    step_cost_bound: float | None = None,
    return_bound: tuple[float, float] | None = None,
    starts: Starts | None = None,
    cost: str | StepCost | None = None,
    seed: int = 0,
    batch: int | None = None,
    chunk: int | None = None,
    keep: bool = False,
    logs: Transitions | None = None,
    refit: bool | Refitting = False,
    progress: Listener | None = None,
    verbose: bool = False,
    workers: int | None = None,
    backend: str | None = None,
) -> Evaluation:
    """Estimate J(target) by running `behavior` in its place.

    At least one of `episodes`, `precision` and `cost_budget` says when to stop; the first to be
    reached does. With `episodes` alone the interval is the one for a fixed number of episodes;
    otherwise, or when the guard has switched, it is an anytime-valid sequence (see
    `running_totals`).

    Args:
        env: a Gymnasium environment, the name of a registered one, a function that makes one, or a
            `TabularMDP`, which the compiled simulator runs.
        target: pi, in any form that `as_policy` takes.
        behavior: mu: what `design` or `exact.design` made for this target, or any policy over the
            same actions. None runs the target itself.
        horizon: T; may be left out for a `TabularMDP` and for a behavior from `design`.
        episodes: how many to start (at most).
        precision: stop when the anytime-valid interval is +- this wide, or narrower.
        cost_budget: start no more episodes once their costs (not discounted) reach this.
        alpha: probability with which an interval may miss, and the guard may alarm for nothing.
        epsilon: the promise to certify and guard: mu costs at most 1 + epsilon times pi. Default:
            what a behavior from `design` promises, else 0.
        gamma: discount. Default: the `TabularMDP`'s or the behavior's own, else 1.
        estimator: "mc", "is", "pdis" or "dr"; "auto": mc for the target itself, dr where the
            behavior brings a control variate, else pdis.
        interval: for a fixed number of episodes: "t" or "normal"; "sequence": anytime-valid always.
        guard: watch the promise and let the target run the remaining episodes once it is refuted;
            a `Guard` of your own may also have limits, which act at once, within an episode.
        reference: another policy over the same finite actions, such as the one that runs today: the
            promise is then about its cost instead of the target's. Its cost comes from the same
            episodes, weighted. When the guard refutes the promise the evaluation ends, because the
            target is not known to keep it.
        cost_limit: or a limit on the expected cost of an episode, likewise; epsilon is then 0
            unless it is given. A behavior policy that was designed for a limit has it already.
        cost_bound: the most that one episode can cost (not discounted), if that is known.
            Certificate and guard then hold for any number of episodes and any distribution of
            costs up to it (see `safety.cost_bound`).
        step_cost_bound: the most that one step can cost, likewise; both may be given.
        return_bound: (low, high) that contain every possible return, discounted as the value is.
            The interval then holds for any number of episodes, any distribution of returns and any
            weights; it is wider.
        starts: further first observations, [m] or [m, d]: the estimated value of a start, by a
            behavior from `design`, then serves as a control variate (`StartControl`), and the
            interval contains the error of its mean. They must have the same law as the episodes'
            own starts and be independent of them and of the logs of the design. A number: so many
            resets of the environment are made for it. "model": the law of a `TabularMDP`'s starts
            is known.
        cost: where a step's cost is found, as in `collect`; "none": there are no costs.
        seed: of the episodes; the same seed gives the same result.
        batch: environments to run side by side.
        chunk: episodes between two checks. Default 64, in the simulator growing with the number of
            episodes done.
        keep: keep everything that was recorded in `.episodes`.
        logs: of past operation, with `refit`: the first stage is designed from them, later ones
            from them and all earlier episodes.
        refit: run stages that grow, and design the behavior policy of each from the logs, if there
            are any, and all earlier episodes. The first stage runs `behavior`, or a design from the
            logs, or else the target itself: no logs are needed. True, or a `Refitting` with
            settings of your own.
        progress: called after every batch with a `Running`; or a `Tracker`, whose ``log`` is called
            with the number of episodes done and the numbers by name. An exception in it is a
            warning, and does not end the evaluation; Ctrl-C does.
        verbose: show how far it is: a bar on a terminal or in a notebook, lines elsewhere.
        workers: run the episodes on so many workers, which make `batch` environments each; `env` is
            then a name or a function that makes one. The result is the same bits for any number of
            workers: guard, stages and stopping rules are asked after every `chunk` episodes, in
            their order. At most chunk / batch workers have something to do. One that dies is
            replaced, and its episodes are run again. None: in this process.
        backend: of the workers: "processes" on this machine (default), or "ray", a cluster (the one
            that this process is connected to, that of RAY_ADDRESS, or a new one on this machine);
            alone, one worker for each core.

    Returns:
        An `Evaluation`. Ctrl-C ends the evaluation with what was finished by then.

    Raises:
        InputError: an argument is wrong.
        PlantError: the environment cannot be made, or no episode of it can be finished.
    """
    promise = promise_with(behavior, reference, cost_limit)
    terms = terms_of(env, behavior, horizon=horizon, gamma=gamma, epsilon=epsilon, promise=promise)
    name = unbiased_estimator(estimator, on_policy=behavior is None)
    plan = StoppingPlan(episodes, precision, cost_budget, chunk)
    check_whole("seed", seed, 0)
    policy, how = as_policy(target), as_behavior(behavior)
    if cost == "none" and cost_budget is not None:
        raise InputError("cost_budget: given with cost='none', expected costs to count")
    settings = _refitting(refit, logs)
    crew, costs = CrewSize(workers, backend), cost != "none"
    opened = open_sources(
        env, policy, terms, horizon=horizon, cost=cost, batch=batch, seed=seed, crew=crew
    )
    if settings is not None:
        _check_stages(promise, return_bound, starts)
        bound = bound_of(env, terms, None, cost_bound, step_cost_bound)
        with follow_batches(progress, verbose=verbose) as told, opened as sources:
            task = StagedTask(
                terms, episodes, alpha, estimator, interval, guard, costs, seed, keep, told, bound
            )
            return evaluate_in_stages(task, sources, plan, settings, how, logs)
    counts = decisions_of(how)
    bound = bound_of(env, terms, how, cost_bound, step_cost_bound)
    watch = None
    if how is not None and costs:
        usual = Guard(epsilon=terms.epsilon, alpha=alpha, bound=bound, whose=promise.whose)
        watch = _watch(guard, usual)
    with follow_batches(progress, verbose=verbose) as told, opened as sources:
        adjustment = start_adjustment(starts, how, episodes or 1000, return_bound, sources)
        totals = RunningTotals(
            alpha=alpha,
            epsilon=terms.epsilon,
            method=interval,
            target_n=episodes or 1000,
            on_policy=how is None,
            keep=keep,
            bound=bound,
            whose=promise.whose,
            return_bound=return_bound,
            starts=None if adjustment is None else adjustment.control,
        )
        source = adjusted(sources.of(how, name, watch, keep=keep or bool(adjustment)), adjustment)
        plan.suit(source, watch)
        own = promise.whose == "target"  # the target then keeps the promise by itself
        switched = run_batches(source, plan, totals, watch, told, episodes, hands_over=own)
    if not totals.finished:
        raise KeyboardInterrupt  # before there was anything to report
    run = RunInfo(
        estimator=name,
        stopped=plan.stopped,
        anytime=plan.adaptive or switched is not None,
        uncovered=source.uncovered,
        costs=costs,
        guard=None if watch is None else GuardReport(switched, watch.state),
        behavior={key: n - counts[key] for key, n in decisions_of(how).items()},
        notes=() if promise.note is None else (promise.note,),
        starts=None if adjustment is None else adjustment.report,
    )
    return _described(totals.result(run), sources, how)


def _described(result: Evaluation, sources: Sources, how: Behavior | Policy | None) -> Evaluation:
    """The result; its episodes, if they were kept, say where they come from."""
    if result.episodes is None:
        return result
    return replace(result, episodes=sources.described(result.episodes, how))


def _watch(guard: bool | Guard | None, usual: Guard) -> Guard | None:
    """The guard that was asked for."""
    if isinstance(guard, Guard):
        return guard
    return usual if guard else None


def _check_stages(
    promise: Promise, return_bound: tuple[float, float] | None, starts: Starts | None
) -> None:
    """Stages are designed anew from their own episodes: what must be fixed before is refused."""
    stated = {
        "reference": promise.whose == "reference",
        "cost_limit": promise.whose == "limit",
        "return_bound": return_bound is not None,
        "starts": starts is not None,
    }
    names = [name for name, given in stated.items() if given]
    if names:
        raise InputError(
            f"{', '.join(names)}: got it with refit, expected refit=False; try "
            "behavior=design(logs, target, ...) and evaluate(env, target, behavior, ...) with it"
        )


def _refitting(refit: bool | Refitting, logs: Transitions | None) -> Refitting | None:
    """Settings of stages; None: no stages."""
    if isinstance(refit, Refitting):
        return refit
    if refit:
        return Refitting()
    if logs is not None:
        raise InputError(
            "logs: given without refit; try refit=True, or behavior=design(logs, target, ...)"
        )
    return None
