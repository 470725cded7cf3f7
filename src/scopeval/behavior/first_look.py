"""A first look at logs of vectors: models trained for a moment tell whether anything is to gain.

A design on vectors takes most of its time to learn the dynamics and to simulate many episodes, also
just to say in the end that it falls back to the target policy. Small networks, few steps and few
episodes say nearly the same about that, in a fraction of the time. Only clear cases end here:
the logs hardly show what the target policy does, or even by their own critics, which are more
optimistic than the cross-check, designs from the halves promise next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scopeval.behavior.candidates import own_promise
from scopeval.behavior.decision import Decision, decide
from scopeval.behavior.evidence import Evidence
from scopeval.behavior.step import Recipe
from scopeval.models.model_critic import Study
from scopeval.models.networks import Networks
from scopeval.models.training import Training

__all__ = ["first_look"]

#: Share of the target policy's steps below which the logs are clearly too thin: less than a full
#: look asks for (`thresholds.LEAST_SUPPORT`), for small networks are worse.
SUPPORT = 0.35
#: Width of the networks, and steps of their training.
HIDDEN, STEPS = 64, 600
#: Simulated episodes of the critics, and of the return features; steps of the latter.
PATHS, STUDY_PATHS, STUDY_STEPS = 150, 500, 300


def first_look(
    logged: Evidence, asked: Sequence[Recipe]
) -> tuple[Evidence, dict[str, Decision]] | None:
    """Evidence of a first look and decisions by it, if all of them clearly fall back.

    Args:
        logged: the logs, of which nothing is learned yet.
        asked: designs to decide about.

    Returns:
        None if there may be something to gain, or there is nothing to save: no model has to be
        trained, or its training is as short.
    """
    regression = logged.regression
    if not isinstance(regression, Networks) or not regression.first_look:
        return None
    rows = len(logged.log.rows) // 2
    if regression.dynamics is not None or not all(one.method.tilted for one in asked):
        return None
    if sum(how.schedule(rows).steps for how in regression.trainings) < 3 * STEPS:
        return None
    evidence = replace(logged, regression=_shortened(regression), progress=None)
    decisions: dict[str, Decision] = {}
    for one in asked:
        shown = evidence.support >= SUPPORT
        if shown and own_promise(evidence, one) < 1.0 - evidence.least_gain:
            return None
        decision = decide(evidence, one)
        if decision.fallback is None or not _is_clear(evidence, decision):
            return None
        reason = f"{decision.fallback} (A first look showed this; nothing was learned in full)"
        others = tuple(note for note in decision.warnings if note != decision.fallback)
        decisions[one.method.name] = replace(decision, fallback=reason, warnings=(*others, reason))
    return evidence, decisions


def _is_clear(evidence: Evidence, decision: Decision) -> bool:
    """Whether more training would hardly change the decision to fall back."""
    if evidence.support < SUPPORT:
        return True
    least = 1.0 - evidence.least_gain
    return least <= decision.promised < np.inf  # infinite: nothing was checked


def _shortened(regression: Networks) -> Networks:
    return replace(
        regression,
        training=Training(hidden=HIDDEN, steps=STEPS),
        paths=min(regression.paths, PATHS),
        study=Study(
            paths=min(regression.study.paths, STUDY_PATHS),
            hidden=min(regression.study.hidden, HIDDEN),
            steps=min(regression.study.steps, STUDY_STEPS),
        ),
    )
