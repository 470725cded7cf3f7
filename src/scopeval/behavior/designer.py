"""From logged data and a target policy to a safe behavior policy with little variance.

`sweep` is the paper's Algorithm 1. `design` runs it with the precautions that estimated critics
need:

1. The logs are halved. A behavior policy is designed on each half and *cross-checked* by critics
   that learn from the other half (`cross_check`).
2. The cross-check decides what is run (`decision`): how much of the target policy is mixed in, how
   much of the cost budget is left unspent, whether a control variate is used, or whether the design
   falls back to the target policy.
3. The final design uses all of the logs.

Differs from the paper: the cost in the constraint is q^c under mu, as in the paper's program; q^c
under pi, as its Algorithm 1 lists, is ``constraint="target"``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from scopeval._parallel import one_blas_thread
from scopeval._progress import LOGGER, Progress, follow_phases
from scopeval.arrays import is_number
from scopeval.behavior.allowed_cost import AllowedCost, check_allowed, expected_cost, noted
from scopeval.behavior.decision import Decision, decide
from scopeval.behavior.evidence import Evidence, evidence_of, gather_logs
from scopeval.behavior.first_look import first_look
from scopeval.behavior.frontier import frontier
from scopeval.behavior.methods import Method, method_named
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.settings import FLOOR, LEAST_GAIN, Settings
from scopeval.behavior.summary import Report, Shape
from scopeval.critics.model.regression import ModelRegression
from scopeval.critics.model.world import World
from scopeval.critics.protocols import Regression
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.policies.adapters import TabularPolicy, as_policy
from scopeval.policies.fingerprint import take_fingerprint
from scopeval.policies.protocols import ContinuousPolicy

__all__ = ["design", "designs"]


def design(
    logged: Transitions | World | Iterable[Transitions],
    target: object,
    *,
    horizon: int,
    method: str | Method = "scope",
    epsilon: float = 0.0,
    gamma: float = 1.0,
    regression: str | Regression | ModelRegression = "auto",
    features: NDArray[Any] | None = None,
    time_varying: bool = False,
    floor: float = FLOOR,
    constraint: str = "behavior",
    limit: float | None = None,
    reference: object = None,
    cost_limit: float | None = None,
    budget: str = "state",
    least_gain: float = LEAST_GAIN,
    seed: int = 0,
    device: str | None = None,
    progress: Progress | None = None,
    verbose: bool = False,
) -> BehaviorPolicy:
    """Learn a behavior policy for `target` from logs of unknown controllers.

    Args:
        logged: the log; a `World` learned from it, which serves many designs; or batches of it
            (`stream_logged`), which are merged as they come. From vectors on disk a `World` is
            learned, which uses a random sample for all but the training.
        target: pi: a policy, a table, a torch module that gives logits, or a function.
        horizon: T, the length of an episode.
        method: "scope" (the paper's), "scope-dr" (with a control variate), "odi", "dopt",
            "on-policy".
        epsilon: the expected cost may be (1+epsilon) times the target's. Below zero this is
            ``frontier(...).at(epsilon=epsilon)``: the behavior policy then depends on the weight of
            the episode so far.
        gamma: discount, of rewards and costs alike.
        regression: "table" (state numbers), "model" (vectors: by a model of the world), "mlp" (the
            paper's networks), "auto" chooses between the first two; or a `Regression` of your own.
        features: [S, d] coordinates of the states, so that pairs never logged can be guessed from
            their neighbors (table only).
        time_varying: whether rewards or dynamics depend on t beyond the observation. If not (the
            default, and the paper's setting), every logged row serves every time step.
        floor: at least this share of the target's own probabilities stays in the mixture: bounds
            every importance ratio by 1/floor, so that the estimate is unbiased whatever the
            critics say. Below zero epsilon the default is that of `frontier`.
        constraint: "behavior" or "target": whose cost-to-go the budget is spent on.
        limit: an absolute limit on the expected cost-to-go instead of (1+epsilon) times the
            target's.
        reference: another policy over the same finite actions, such as the one that runs today: an
            episode may cost (1+epsilon) times what its episodes cost, instead of the target's. The
            costs of both are estimated from the logs; `evaluate(reference=...)` judges the promise.
        cost_limit: or what an episode may cost, likewise.
        budget: "state": the promise holds from every state on (the paper's). "episode": it holds
            for whole episodes; what is saved in one state may be spent in another, often for far
            less variance. Held-out logs decide whether it is used.
        least_gain: relative variance that a design must save, predicted and cross-checked; else it
            falls back to the target policy, for no gain is worth the doubt about its cost.
        seed: of the halving and the networks.
        device: "cuda": networks for vectors are trained there, with the same results to the
            rounding of float32; what else is computed stays on the CPU.
        progress: called with (what, done, total); for vectors there are several of what, one after
            the other.
        verbose: show progress: a bar on a terminal or in a notebook, lines elsewhere. What is done
            is logged in any case, at level INFO of ``logging.getLogger("scopeval")``.

    Returns:
        A `BehaviorPolicy`; print its `summary()` before running it.
    """
    how = method_named(method)
    settings = Settings(
        horizon=horizon,
        gamma=gamma,
        regression=regression,
        features=features,
        time_varying=time_varying,
        seed=seed,
        device=device,
    )
    allowed: AllowedCost | None = None
    if reference is not None or cost_limit is not None:
        check_allowed(
            reference, cost_limit, epsilon=epsilon, limit=limit, logged=logged, target=target
        )
        allowed = _allowed(logged, target, reference, cost_limit, epsilon, settings)
        epsilon, budget = allowed.epsilon, "episode"
    if is_number(epsilon) and -1.0 < epsilon < 0.0:
        _check_frontier(how, constraint, limit, epsilon)
        curve = frontier(
            logged,
            target,
            horizon=horizon,
            method=how,
            gamma=gamma,
            regression=regression,
            features=features,
            time_varying=time_varying,
            floor=None if floor == FLOOR else floor,
            seed=seed,
            device=device,
            progress=progress,
            verbose=verbose,
        )
        try:
            return noted(curve.at(epsilon=epsilon), allowed)
        except InputError as error:
            raise error if allowed is None else allowed.refused(error) from None
    with follow_phases(progress, verbose=verbose) as told:
        settings = replace(
            settings,
            epsilon=epsilon,
            floor=floor,
            constraint=constraint,
            limit=limit,
            budget=budget,
            least_gain=least_gain,
            progress=told,
        )
        return noted(designs(logged, target, [how], settings)[how.name], allowed)


def _allowed(
    logged: Any,
    target: object,
    reference: object,
    cost_limit: float | None,
    epsilon: float,
    settings: Settings,
) -> AllowedCost:
    """What the budget of another policy, or a limit, is relative to the target's own cost."""

    def cost_of(policy: object) -> float:
        own = designs(logged, policy, ["on-policy"], settings)["on-policy"]
        return expected_cost(own, logged)

    own = cost_of(target)
    if cost_limit is not None:
        most, whose = (1.0 + epsilon) * cost_limit, "the limit allows"
    else:
        theirs = cost_of(reference)
        most, whose = (1.0 + epsilon) * theirs, f"the reference policy's {theirs:.4g} allows"
    words = (
        f"by the logs an episode of the target policy costs {own:.4g}; {whose} {most / own:.3g} "
        "times that, and the certificate judges it"
    )
    known = None if reference is None else as_policy(reference)
    assert not isinstance(known, ContinuousPolicy)  # `check_allowed` has refused it
    return AllowedCost(most / own - 1.0, words, epsilon, cost_limit, known)


def _check_frontier(method: Method, constraint: str, limit: float | None, epsilon: float) -> None:
    """Below the target policy's own cost there is one budget, for whole episodes."""
    if not method.has_price or limit is not None or constraint != "behavior":
        raise InputError(
            f"epsilon: got {epsilon:g} with method={method.name!r}, limit={limit!r}, "
            f"constraint={constraint!r}; below zero, expected method 'scope-dr' or 'scope' without "
            "limit and with constraint='behavior'"
        )


@one_blas_thread()  # threads of our own share the work
def designs(
    logged: Transitions | World | Iterable[Transitions],
    target: object,
    methods: Sequence[str | Method],
    settings: Settings,
) -> dict[str, BehaviorPolicy]:
    """Several methods for one target, by name: the logs are read, and a model learned, only once.

    Args:
        logged: as for `design`.
        target: as for `design`.
        methods: their names.
        settings: the other arguments of `design`.
    """
    began = time.perf_counter()
    wanted = [method_named(method) for method in methods]
    gathered = gather_logs(logged, target, settings)
    looked = first_look(gathered, wanted)
    if looked is not None:
        evidence, decisions = looked
        return {how.name: _designed(evidence, decisions[how.name], began) for how in wanted}
    evidence = evidence_of(gathered, wanted)
    try:
        return {how.name: _designed(evidence, decide(evidence, how), began) for how in wanted}
    finally:
        evidence.finish()


def _designed(evidence: Evidence, decision: Decision, began: float) -> BehaviorPolicy:
    """The behavior policy that was decided on, with its report."""
    target, log, design = evidence.target, evidence.log, decision.design
    obs = evidence.whole.at(0).obs
    report = Report(
        rows=log.count,
        regression=evidence.regression.name,
        support=evidence.support,
        binding=design.binding,
        kept=design.swept.unchanged,
        prediction=decision.prediction,
        holdout=decision.errors,
        warnings=decision.warnings,
        seconds=time.perf_counter() - began,
        notes=log.notes,
        shape=Shape(
            actions=log.actions,
            width=int(obs.shape[1]) if obs.ndim > 1 else None,
            states=target.states if isinstance(target, TabularPolicy) else None,
        ),
        fallback=decision.fallback,
    )
    LOGGER.info(
        "%s: predicted variance %.3f and cost %.3f of the target policy's own%s",
        decision.method.name,
        report.prediction.variance,
        report.prediction.cost,
        "" if decision.fallback is None else "; " + decision.fallback,
    )
    mark = take_fingerprint(target, design.recipe.horizon, evidence.logged_obs)
    critics = design.swept.critics
    return BehaviorPolicy(target, critics, design.recipe, report, decision.method, mark)
