"""The part of an evaluation's page about its stages: what each learned, and what it gave."""

from __future__ import annotations

import math

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stage_report import Stage
from scopeval.report.page import Check, Figure, Section, Table, Tone
from scopeval.report.svg import INK, OURS, OWN, SOFT, canvas, figure_of
from scopeval.report.wording import per_episode, sentence_of

__all__ = ["stage_section"]

_NONE = "\N{EN DASH}"
_HEADER = ("stage", "episodes", "learned from", "variance", "measured",
           "cost", "promise", "share", "error after")  # fmt: skip


def stage_section(e: Evaluation) -> Section | None:
    """The stages; None for an evaluation without stages."""
    if e.learning is None or not e.stages:
        return None
    learning = e.learning
    text = [
        "The evaluation ran in stages. The behavior policy of each was designed from what was "
        "known before it; the weight of its estimate was decided before it too, so the estimate is "
        "unbiased whatever the designs were.",
        f"The standard error was within twice its last value after {learning.precise_after:,} "
        f"episodes. {learning.refits} behavior policies were designed.",
    ]
    checks = [Check("bad", sentence_of(one.sentence)) for one in learning.changed]
    checks += [Check("good", sentence_of(one.sentence)) for one in learning.told if one.agrees]
    if learning.stopped is not None:
        checks.append(Check("plain", sentence_of(f"refitting stopped: {learning.stopped}")))
    if learning.payback is not None:
        tone: Tone = "open" if learning.payback.after is None else "good"
        checks.append(Check(tone, sentence_of(learning.payback.sentence)))
    checks += [
        Check("bad", sentence_of(f"stage {stage.number}: {stage.refuted}"))
        for stage in e.stages
        if stage.refuted is not None
    ]
    checks += [
        Check("plain", sentence_of(f"stage {stage.number}: {stage.why}"))
        for stage in e.stages
        if not stage.designed or ";" in stage.why or stage.prediction is None
    ]
    return Section("Stages", tuple(text), _figures(e), (_table(e),), tuple(checks))


def _table(e: Evaluation) -> Table:
    on_policy = e.on_policy.variance
    rows = tuple(_row(stage, on_policy) for stage in e.stages)
    return Table(
        "Variance of a value relative to running the policy itself, predicted (cross-checked) and "
        "measured; cost of an episode; verdict about the stage's own promise; share of the stage "
        "in the estimate; standard error of the whole after the stage",
        _HEADER,
        rows,
    )


def _row(stage: Stage, on_policy: float) -> tuple[str, ...]:
    p = stage.prediction
    measured = (
        stage.variance / on_policy if math.isfinite(on_policy) and on_policy > 0 else math.nan
    )
    return (
        f"{stage.number}",
        f"{stage.episodes:,}",
        f"{stage.rows:,} steps" if stage.rows and not stage.on_policy else "policy itself",
        _NONE if p is None else f"{p.variance:.2f} ({p.checked_variance:.2f})",
        f"{measured:.2f}" if math.isfinite(measured) else f"{stage.variance:.3g} (absolute)",
        per_episode(stage.cost),
        _NONE if stage.certificate is None else stage.certificate.verdict,
        f"{stage.share:.1%}",
        f"{stage.standard_error:.2g}",
    )


def _figures(e: Evaluation) -> tuple[Figure, ...]:
    """The standard error after each stage, and what each was predicted to give."""
    done = np.cumsum([stage.episodes for stage in e.stages])
    errors = np.array([stage.standard_error for stage in e.stages])
    if len(done) < 2 or not (errors > 0).all():
        return ()
    comparable = math.isfinite(e.on_policy.variance) and e.on_policy.variance > 0
    figures = [_error_figure(done, errors, e.on_policy.variance if comparable else None)]
    if comparable:
        figures.append(_variance_figure(e.stages, e.on_policy.variance))
    return tuple(figures)


def _error_figure(done: Ints, errors: Floats, on_policy: float | None) -> Figure:
    with canvas() as (drawing, ax):
        if on_policy is not None:
            usual = np.sqrt(on_policy / done)
            ax.plot(done, usual, color=OWN, dashes=(4, 1.5), label="the policy itself")
        ax.plot(done, errors, color=OURS, marker="o", ms=4, label="this evaluation")
        ax.set_xscale("log")
        ax.set_yscale("log")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda x, _: f"{x:,g}")
            axis.set_minor_formatter(lambda x, _: _label(x))
        ax.tick_params(which="minor", labelsize=9, labelcolor=INK)
        ax.set_xlabel("episodes (logarithmic)")
        ax.set_ylabel("standard error")
        ax.legend(loc="lower left")
        return figure_of(
            drawing,
            label=f"Line: the standard error falls from {errors[0]:.2g} after {done[0]:,} "
            f"episodes to {errors[-1]:.2g} after {done[-1]:,}.",
            caption="The standard error of the estimate after each stage; dashed: what running "
            "the policy itself would give.",
        )


def _variance_figure(stages: tuple[Stage, ...], on_policy: float) -> Figure:
    number = np.array([stage.number for stage in stages])
    measured = np.array([stage.variance / on_policy for stage in stages])
    predicted = np.array([1.0 if s.prediction is None else s.prediction.variance for s in stages])
    with canvas() as (drawing, ax):
        ax.axhline(1.0, color=OWN, lw=1.2, dashes=(4, 1.5), label="the policy itself")
        ax.plot(number, predicted, color=SOFT, marker="s", ms=4, ls=":", label="predicted")
        ax.plot(number, measured, color=OURS, marker="o", ms=4, label="measured")
        ax.set_ylim(0.0, 1.4 * max(1.0, float(measured.max())))
        ax.set_xticks(number)
        ax.set_xlabel("stage")
        ax.set_ylabel("relative variance")
        ax.legend(loc="upper right")
        return figure_of(
            drawing,
            label=f"Lines: the relative variance of a stage's values, measured {measured[0]:.2f} "
            f"in the first and {measured[-1]:.2f} in the last stage, beside what was predicted.",
            caption="The variance of an episode's value in each stage, relative to running the "
            "policy itself, beside what the design predicted.",
        )


def _label(x: float) -> str:
    """Label 2 and 5 between the powers of ten."""
    digit = round(x / 10 ** math.floor(math.log10(x) + 1e-9))
    return f"{x:g}" if digit in (2, 5) else ""
