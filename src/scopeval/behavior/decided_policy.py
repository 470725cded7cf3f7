"""The behavior policy that was decided on, with its report."""

from __future__ import annotations

import time

import numpy as np

from scopeval._progress import LOGGER
from scopeval.behavior.decision import Decision
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.summary import Report, Shape
from scopeval.policies.adapters import TabularPolicy
from scopeval.policies.fingerprint import take_fingerprint

__all__ = ["designed"]


def _drawn_share(evidence: Evidence, decision: Decision) -> float | None:
    """Where the target's variance comes from; None: it is not known, or nothing else was asked."""
    if not decision.method.tilted and decision.fallback is None:
        return None
    return evidence.drawn if np.isfinite(evidence.drawn) else None


def designed(evidence: Evidence, decision: Decision, began: float) -> BehaviorPolicy:
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
        drawn=_drawn_share(evidence, decision),
    )
    LOGGER.info(
        "%s: predicted variance %.3f and cost %.3f of the target policy's own%s",
        decision.method.name,
        report.prediction.variance,
        report.prediction.cost,
        "" if decision.fallback is None else "; " + decision.fallback,
    )
    fingerprint = take_fingerprint(target, design.recipe.horizon, evidence.logged_obs)
    critics = design.swept.critics
    return BehaviorPolicy(target, critics, design.recipe, report, decision.method, fingerprint)
