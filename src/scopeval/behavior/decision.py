r"""What to run: one rule for every design.

All that may run is compared at once: designs with and without the control variate b, for every
share of the target policy and of b; the target policy itself with b; the target policy. The one
with the least upper end of variance runs, if that saves `least_gain`, if the halves of the logs
do not deny it, and if its cost keeps the promise. A departure from the target policy must save as
much of variance times cost beside the target policy with b, whose cost is certain.

**What a design from all logs W is worth.** Its own critics are too optimistic: J_W(mu_W) is too
low. How much is seen in the halves A and B of the logs, by gap = J_B(mu_A) - J_A(mu_A): what the
other half says of a design beyond what its own half says. Errors have a variance in proportion to
1 / n. In the gap two critics err, each with twice the variance that critics of all logs have: a
quarter of it is left in the design from all logs. If it were all optimism, none of it error of the
judge, a half would be left. So

    expected = J_W(mu_W) + gap / 4        upper end = max(J_W(mu_W), J_A(mu_A)) + gap / 2

where a gap below 0 counts as 0. With fewer rows critics are more optimistic. Where all logs promise
more than their halves, it is what neither half has seen, and neither could check: the upper end
does not count on it.

Errors of networks are in part no chance, which more logs do not cure: all of the gap is left
(`models.protocols.Caution`). Critics that are noise promise nothing: with the share n of noise in
them (`noise_share`) both become end^(1 - n) J_B(mu_A)^n, a mean of the end and the check.

**A control variate** can do harm that held-out logs do not see: rewards that the logs have wrong
are in both halves. So it must save more (`CONTROL_VARIATE`). A part of it, with the target policy
itself, does none even where q is several times too large (`HARMLESS`): what that saves is taken.

**Cost.** What the halves say of each other's designs must keep the promise: of the larger one's
excess a half, as of the variance, is left unspent. Where already their mean is above it, by more
than `SLACK`, it does not run. The design from all logs must keep it
too, with the doubt about states that the logs never leave, or the error of simulated episodes; else
the next best is tried.

**Support.** Of steps that no log shows both halves have the same guess. So the gain of a departure
counts in the share of the target policy's steps that the logs show.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from scopeval._progress import LOGGER
from scopeval.arrays import Bools, least
from scopeval.behavior.advice import (
    cost_in_doubt,
    no_control_variate,
    notes,
    too_little_support,
    why_no_gain,
)
from scopeval.behavior.candidates import (
    Compared,
    Design,
    compare,
    design_on_all,
    is_harmless,
    kinds_of,
    rank,
    target_itself,
)
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.methods import Method
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.simulated_cost import with_simulated_cost
from scopeval.behavior.step import Recipe
from scopeval.behavior.summary import Prediction, Report, Shape
from scopeval.behavior.thresholds import CONTROL_VARIATE, LEAST_SUPPORT, SLACK
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.fingerprint import take_fingerprint

__all__ = ["Decision", "behavior_policy", "choose", "decide"]


@dataclass(frozen=True)
class Decision:
    """What is run, and why.

    Attributes:
        design: from all of the logs.
        prediction: what is told of it.
        errors: how far critics of the two halves disagree.
        warnings: what the user should know.
        fallback: why the target policy runs in place of a design; None: it does not.
        promised: least relative variance that the halves promise by their own critics.
    """

    design: Design
    prediction: Prediction
    errors: dict[str, float]
    warnings: tuple[str, ...]
    fallback: str | None
    promised: float = np.inf


def decide(evidence: Evidence, wanted: Recipe) -> Decision:
    """Compare all that may run, and take the best whose cost keeps the promise."""
    method = wanted.method
    trouble = _no_design(evidence, method)
    asked = wanted if trouble is None else target_itself(wanted)
    compared = compare(evidence, kinds_of(evidence, asked))
    left = np.ones(len(compared.choices), np.bool_)
    best = choose(evidence, compared, left)
    while best is not None:
        one = compared.choices[best]
        design = _within_budget(evidence, one)
        if design.keeps_promise or not _has_promise(one):
            break
        trouble = cost_in_doubt(design, evidence.vectors)
        left &= [not _departs_further(other, one) for other in compared.choices]
        best = choose(evidence, compared, left)
    if best is None:
        one = target_itself(wanted)
        design = design_on_all(evidence, one)
        if method.tilted and trouble is None:
            trouble = why_no_gain(evidence, wanted, compared)
    remarks = notes(evidence, design)
    if best is None and trouble is not None:
        remarks = [trouble, *remarks]
    elif best is not None and asked.method.control_variate and not one.method.control_variate:
        remarks = [no_control_variate(evidence, compared), *remarks]
    return Decision(
        design=design,
        prediction=_prediction(design, compared, best),
        errors=compared.errors,
        warnings=tuple(remarks),
        fallback=trouble if best is None else None,
        promised=float(compared.own.min()) if asked.method.tilted else np.inf,
    )


def _no_design(evidence: Evidence, method: Method) -> str | None:
    """Why no design can be made of these logs, nor judged by them."""
    if not method.tilted:
        return None
    if evidence.log.doubt is not None:  # held-out rows are the same mixture of two units
        return (
            f"the log contradicts itself about what it measures: {evidence.log.doubt}; bring all "
            "rows to the same units, or leave out those before or after"
        )
    # networks have estimates everywhere, also where both halves of the logs show nothing
    if evidence.vectors and evidence.support < LEAST_SUPPORT:
        return too_little_support(evidence)
    return None


def choose(evidence: Evidence, compared: Compared, left: Bools) -> int | None:
    """The best of what is left to choose among; None: the target policy itself."""
    choices, upper = compared.choices, compared.upper
    most = min(1.0 - evidence.least_gain, evidence.caution.least)
    # held-out logs can say what it costs (NaN: they cannot), and do not deny that it is allowed
    cost = np.where(np.isfinite(compared.cost).all(axis=0), compared.cost.mean(axis=0), np.inf)
    able = [
        one.method.tilted and (not _has_promise(one) or c <= 1.0 + one.epsilon + SLACK)
        for c, one in zip(cost, choices, strict=True)
    ]
    alone = np.array([one.floor >= 1.0 for one in choices])
    # what a departure gains counts where the logs show what the target policy does
    gain = np.where(alone, 1.0, evidence.support) * (1.0 - np.minimum(upper, 1.0))
    # held-out logs need not see all of the gain, but may not deny it
    worth = left & (gain > 1.0 - most) & (compared.checked < 1.0) & np.array(able)
    strong = np.array([not one.method.control_variate or is_harmless(one) for one in choices])
    worth &= strong | (upper < CONTROL_VARIATE)
    # a departure must save as much beside the target policy with its control variate, in what a
    # precision costs: variance times cost, the larger one of what the halves say
    certain = upper[worth & alone].min(initial=np.inf)
    needed = upper * np.where(np.isfinite(cost), compared.cost.max(axis=0), 1.0)
    places = np.flatnonzero(worth & (alone | (needed < (1.0 - evidence.least_gain) * certain)))
    if not len(places):
        return None
    return int(places[least(upper[places], [rank(choices[j]) for j in places])])


def _has_promise(one: Recipe) -> bool:
    """Whether its cost could break a promise relative to the target's."""
    return one.floor < 1.0 and one.method.constrained and one.limit is None


def _departs_further(other: Recipe, one: Recipe) -> bool:
    """Whether it is the same design, or one with a smaller share of the target policy."""
    same = other.method == one.method and other.budget == one.budget
    return same and other.share == one.share and other.floor <= one.floor


def _within_budget(evidence: Evidence, one: Recipe) -> Design:
    """The design from all of the logs; for vectors, within its budget in simulated episodes.

    If it is not, more is left unspent, once.
    """
    design = with_simulated_cost(evidence, design_on_all(evidence, one))
    simulated = evidence.vectors and design.doubt > 0.0 and _has_promise(one)
    if not simulated or design.keeps_promise or not np.isfinite(design.doubtful_excess):
        return design
    margin = min(one.margin + design.doubtful_excess, 1.0)
    return with_simulated_cost(evidence, design_on_all(evidence, replace(one, margin=margin)))


def _prediction(design: Design, compared: Compared, best: int | None) -> Prediction:
    """What is told of the design: what it is expected to be worth, beside the check."""
    if best is None:
        return Prediction(1.0, 1.0, 1.0, 1.0, 0.0)
    return Prediction(
        variance=float(compared.expected[best]),
        cost=design.cost,
        checked_variance=float(compared.checked[best]),
        checked_cost=float(compared.cost[:, best].mean()),
        doubt=design.doubt,
    )


def behavior_policy(evidence: Evidence, decision: Decision, began: float) -> BehaviorPolicy:
    """The behavior policy that was decided on, with its report."""
    target, log, design = evidence.target, evidence.log, decision.design
    obs = evidence.whole.at(0).obs
    asked = (
        design.recipe.method.tilted or decision.fallback is not None
    )  # more than the target itself
    drawn = evidence.drawn if asked and np.isfinite(evidence.drawn) else None
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
        drawn=drawn,
    )
    LOGGER.info(
        "%s: predicted variance %.3f and cost %.3f of the target policy's own%s",
        design.recipe.method,
        report.prediction.variance,
        report.prediction.cost,
        "" if decision.fallback is None else "; " + decision.fallback,
    )
    fingerprint = take_fingerprint(target, design.recipe.horizon, evidence.logged_obs)
    critics = design.swept.critics
    return BehaviorPolicy(target, critics, design.recipe, report, fingerprint)
