"""From logged data and a target policy to a safe behavior policy with little variance.

`sweep` is the paper's Algorithm 1. `design` runs it with the precautions that estimated critics
need:

1. The logs are halved. Behavior policies are designed on each half and *cross-checked* by critics
   that learn from the other half; then from all of the logs (`candidates`).
2. By that one is chosen (`decision`): how much of the target policy is mixed in, how much of the
   cost budget is left unspent, whether a control variate is used, or whether the design falls back
   to the target policy.

Differs from the paper: the cost in the constraint is q^c under mu, as in the paper's program; q^c
under pi, as its Algorithm 1 lists, is ``Method("scope", constrained=True, constraint="target")``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scopeval._parallel import one_blas_thread
from scopeval._progress import Progress, follow_phases
from scopeval.behavior.decision import behavior_policy, decide
from scopeval.behavior.evidence import Learn, evidence_of, learn_of
from scopeval.behavior.first_look import first_look
from scopeval.behavior.frontier import frontier
from scopeval.behavior.methods import METHODS, KnownModel, Method, method_named
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.promised_cost import PromisedCost, promised_reference
from scopeval.behavior.step import Recipe, check_budget
from scopeval.behavior.thresholds import FLOOR, LEAST_GAIN
from scopeval.errors import InputError
from scopeval.logs.transitions import Transitions
from scopeval.models.networks import Networks
from scopeval.models.protocols import Regression
from scopeval.models.world import World
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import ContinuousPolicy, Policy
from scopeval.question.baseline import Baseline, baseline_of
from scopeval.question.inference import Check
from scopeval.question.promise import Promise, promises_and_limits
from scopeval.question.question import Question, discount, question_of

__all__ = ["design", "designs"]


def design(
    logs: Transitions | World | Iterable[Transitions] | KnownModel,
    policy: Any,
    *,
    horizon: int | None = None,
    method: str | Method = "scope-dr",
    promise: Promise | Sequence[Promise] | None = None,
    gamma: float | None = None,
    learn: Learn | None = None,
    check: Check | None = None,
    baseline: Any = None,
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> BehaviorPolicy:
    """Learn a behavior policy for the target `policy` from logs of unknown controllers.

    Args:
        logs: what was logged; a `World` learned from it, which serves many designs; batches of it
            (`stream_logs`), which are merged as they come. From vectors on disk a `World` is
            learned, which uses a random sample for all but the training. Or a `TabularMDP`: nothing
            has to be learned then, and the design is the optimal one.
        policy: pi, the target: a policy, a table, a torch module that gives logits, or a function.
        horizon: T, the length of an episode; a `TabularMDP` has its own.
        method: "scope-dr" (the paper's with a control variate), "scope" (the paper's), "odi",
            "dopt", "on-policy", or a `Method`.
        promise: what an episode may cost: see `Promise`. Default: no more than the baseline's or,
            without one, the target's, from every state on. Below 1 this is
            ``frontier(...).at(cost=...)``: the behavior policy then depends on the weight of the
            episode so far. Held-out logs decide whether a promise for whole episodes, where one for
            every state is possible, is used for more than that.
        gamma: discount, of rewards and costs alike. Default: 1, or the `TabularMDP`'s own.
        learn: `Table`, `Networks`, `Simulator`, or a `Regression` of your own. Default: a table for
            state numbers, networks for vectors.
        check: what a design must show before it is used.
        baseline: what runs today, another policy over the same finite actions: the promise is then
            about its cost. The costs of both are estimated from the logs, and the certificate
            judges the promise.
        seed: of the halving and the networks.
        progress: True shows a bar on a terminal or in a notebook, lines elsewhere. A function is
            called with (what, done, total); for vectors there are several of what, one after the
            other. What is done is logged in any case, at level INFO of
            ``logging.getLogger("scopeval")``.

    Returns:
        A `BehaviorPolicy`; print its `summary()` before running it.
    """
    made_by, promised, today = method_named(method), _one(promise), baseline_of(baseline)
    question = question_of(policy, horizon, gamma)
    if isinstance(logs, KnownModel):
        if learn is not None or check is not None:
            raise InputError(
                "learn, check: got them with a model that is known, where nothing is learned; "
                "leave them out"
            )
        optimal: BehaviorPolicy = logs.design_for(question, made_by, promised, today)
        return optimal
    if question.horizon is None:
        raise InputError("horizon: needed, expected the number of steps of an episode")
    learned, gamma = learn_of(learn), discount(question)
    target, epsilon, limit, budget = question.policy, promised.epsilon, promised.limit, promised.per
    reference = _compared_with(promised, today)
    allowed: AllowedCost | None = None
    if reference is not None or (limit is not None and budget != "state"):
        check_allowed(reference, limit, logged=logs, target=target)
        on_policy = Recipe(METHODS["on-policy"], question.horizon, gamma)

        def cost_of(policy: object) -> float:
            own = designs(logs, policy, [on_policy], learn=learned, seed=seed)["on-policy"]
            return expected_cost(own, logs)

        allowed = _allowed(cost_of, target, reference, limit, epsilon)
        epsilon, budget, limit = allowed.epsilon, "episode", None
    if epsilon < 0.0:
        _check_frontier(made_by, epsilon, check)
        curve = frontier(
            logs,
            question,
            method=made_by,
            learn=learn,
            check=check,
            seed=seed,
            progress=progress,
        )
        try:
            cheaper = curve.at(cost=1.0 + epsilon)
        except InputError as error:
            raise error if allowed is None else allowed.refused(error) from None
        return cheaper if allowed is None else noted(cheaper, allowed)
    asked = check or Check()
    with follow_phases(progress) as report:
        recipe = Recipe(
            made_by,
            question.horizon,
            gamma,
            epsilon,
            limit,
            floor=FLOOR if asked.floor is None else asked.floor,
            budget="state" if budget is None else budget,
        )
        behavior = designs(
            logs,
            target,
            [recipe],
            learn=learned,
            least_gain=LEAST_GAIN if asked.least_gain is None else asked.least_gain,
            seed=seed,
            progress=report,
        )[made_by.name]
    return behavior if allowed is None else noted(behavior, allowed)


def _one(promise: Promise | Sequence[Promise] | None) -> Promise:
    """The promise about the cost."""
    promises, _ = promises_and_limits(promise)
    return promises[0] if promises else Promise()


def _check_frontier(method: Method, epsilon: float, check: Check | None) -> None:
    """Below the target policy's own cost there is one budget, for whole episodes."""
    if check is not None and check.least_gain is not None:
        raise InputError(
            f"least_gain: got {check.least_gain!r} with at most {1 + epsilon:g} of the cost; below "
            "1 a design saves cost and may save no variance, so leave it out, or try "
            "frontier(...).at(variance=...), which bounds the variance"
        )
    if not method.has_price or method.constraint != "behavior":
        raise InputError(
            f"promise: got at most {1 + epsilon:g} of the cost with method={method.name!r}, "
            f"constraint={method.constraint!r}; below 1, expected method 'scope-dr' or 'scope'"
        )


@one_blas_thread()  # threads of our own share the work
def designs(
    logged: Transitions | World | Iterable[Transitions],
    target: object,
    asked: Sequence[Recipe],
    *,
    learn: Regression | Networks | None = None,
    least_gain: float = LEAST_GAIN,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, BehaviorPolicy]:
    """Several designs for one target, by method: the logs are read, and a model learned, only once.

    Args:
        logged: as for `design`.
        target: as for `design`.
        asked: one of each method, with the same horizon and discount.
        learn: what learns; None: what suits the logs.
        least_gain: relative variance that a design must save.
        seed: as for `design`.
        progress: called with (what, done, total).
    """
    began = time.perf_counter()
    for one in asked:
        check_budget(one.budget, one.limit, one.method.constraint)
    question = Question((as_policy(target),), asked[0].horizon, asked[0].gamma)
    evidence = evidence_of(
        logged, question,
        learn=learn, least_gain=least_gain, seed=seed, progress=progress, asked=asked,
    )  # fmt: skip
    clear = first_look(evidence, asked) if isinstance(evidence.regression, Networks) else None
    if clear is not None:
        evidence, decisions = clear
    else:
        decisions = {one.method.name: decide(evidence, one) for one in asked}
    made = {
        name: behavior_policy(evidence, decision, began) for name, decision in decisions.items()
    }
    evidence.data.finish()
    return made


# -- what a promise about another policy's cost, or a limit, allows -------------------------------
#
# A design spends a multiple of the target's expected cost. Where the promise is about a reference
# policy, or a limit per episode, that multiple follows from expected costs that are estimated from
# the same logs: the critics of the design "on-policy" for either policy, at the starts of episodes.
# What comes out is as good as these estimates; the certificate judges the promise itself.


@dataclass(frozen=True)
class AllowedCost:
    """What an episode of the behavior policy may cost.

    Attributes:
        epsilon: relative to the target: 1 + epsilon times its cost.
        words: how it follows from the logs.
        stated: epsilon as it was given, relative to the reference policy's cost or the limit.
        limit: the limit; None: it is a reference policy's cost.
        reference: that policy.
    """

    epsilon: float
    words: str
    stated: float
    limit: float | None
    reference: Policy | None

    def refused(self, error: InputError) -> InputError:
        """Why there is no design below the target policy's own cost."""
        return InputError(
            f"promise: {self.words}, and no such design can be made from these logs: {error}. "
            "Running the target policy would cost more than is allowed"
        )


def noted(behavior: BehaviorPolicy, allowed: AllowedCost) -> BehaviorPolicy:
    """The design with its promise, and a note in its summary."""
    report, horizon = behavior.report, behavior.recipe.horizon
    promise = PromisedCost("limit", allowed.stated, allowed.limit)
    if allowed.reference is not None:
        fingerprint = behavior.fingerprint
        promise = promised_reference(allowed.reference, allowed.stated, fingerprint, horizon)
    notes = (*report.notes, allowed.words)
    behavior.report = replace(report, notes=notes, promise=promise)
    return behavior


def check_allowed(
    reference: Policy | None, limit: float | None, *, logged: object, target: object
) -> None:
    """Refuse settings that contradict each other."""
    if limit is not None and not limit > 0:
        raise InputError(f"promise.limit: got {limit!r}, expected a number above 0")
    if any(
        isinstance(as_policy(x), ContinuousPolicy) for x in (target, reference) if x is not None
    ):
        raise InputError(
            "promise: the cost of another policy, or a limit, needs finitely many actions; leave "
            "it out, and let evaluate(promise=Promise(limit=...)) judge the design"
        )
    if not isinstance(logged, Transitions):
        raise InputError(
            "logs: a promise about another policy's cost, or a limit, reads them several times; "
            "expected Transitions, try read_logs instead of stream_logs"
        )


def expected_cost(behavior: BehaviorPolicy, logged: Any) -> float:
    """The target's expected cost of an episode, by a design's critics at the logged starts."""
    starts = np.asarray(logged.obs)[np.asarray(logged.t) == 0]
    if not len(starts):
        raise InputError(
            "logs: has no step with t = 0, so that the cost of whole episodes is not known; "
            "expected a promise about the target's own cost, try Promise(of='target')"
        )
    costs = behavior.cost_to_go(starts, 0)
    pi = behavior.target.probs(starts, 0)  # type: ignore[union-attr]
    cost = float((pi * costs).sum(axis=1).mean())
    if not (math.isfinite(cost) and cost > 0):
        raise InputError(
            f"logs: the expected cost of an episode is estimated as {cost:g}; a budget relative "
            "to it needs costs above 0"
        )
    return cost


def _compared_with(promise: Promise, baseline: Baseline | None) -> Policy | None:
    """The policy whose cost the promise is about; None: the target, or a limit."""
    if promise.limit is not None or promise.of == "target":
        return None
    reference: Policy | None = promise.of
    if reference is None and baseline is not None:
        if promise.per == "state":
            raise InputError(
                "promise.per: got 'state' with a baseline, whose cost is known for whole episodes; "
                "expected 'episode', or leave it out"
            )
        reference = baseline.policy
    return reference


def _allowed(
    cost_of: Callable[[object], float],
    target: object,
    reference: Policy | None,
    limit: float | None,
    epsilon: float,
) -> AllowedCost:
    """What the budget of another policy, or a limit, is relative to the target's own cost."""
    target_cost = cost_of(target)
    if limit is not None:
        most, source = limit, "the limit allows"
    else:
        cost = cost_of(reference)
        most, source = (1.0 + epsilon) * cost, f"the reference policy's {cost:.4g} allows"
    words = (
        f"by the logs an episode of the target policy costs {target_cost:.4g}; {source} "
        f"{most / target_cost:.3g} times that, and the certificate judges it"
    )
    return AllowedCost(most / target_cost - 1.0, words, epsilon, limit, reference)
