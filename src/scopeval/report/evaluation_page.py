"""An evaluation as a page: the answer, the figures, the diagnostics, how to reproduce it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from scopeval.behavior.frontier_point import draw_curve
from scopeval.behavior.summary import support_in_words
from scopeval.estimation.moments import confidence, counted
from scopeval.evaluation.result import Evaluation, OnPolicy
from scopeval.evaluation.stage_report import Stage
from scopeval.report import evaluation_figures as drawings
from scopeval.report.page import NONE, Check, Figure, Page, Section, Table, Tone, how_to_reproduce
from scopeval.report.svg import canvas, figure_of, noise_figure
from scopeval.report.wording import (
    amount,
    answer_of,
    by_itself,
    facts_of,
    holds_when,
    per_episode,
    promise_in_words,
    sentence_of,
    signed,
    verdict_of,
    with_error,
)

if TYPE_CHECKING:
    from scopeval.behavior.policy import BehaviorPolicy
    from scopeval.behavior.step import Recipe

__all__ = ["page_of_evaluation", "stage_section"]

_STAGE_HEADER = ("stage", "episodes", "learned from", "variance", "measured",
           "cost", "promise", "share", "error after")  # fmt: skip


def page_of_evaluation(
    evaluation: Evaluation,
    behavior: BehaviorPolicy | None = None,
    on_policy: Evaluation | None = None,
    *,
    beside: Mapping[str, Evaluation] | None = None,
    truth: float | None = None,
    title: str = "What is the policy worth?",
    intro: str = "",
    gamma: float | None = None,
    command: str | None = None,
    seed: int | None = None,
) -> Page:
    """The page of an evaluation.

    Args:
        evaluation: what `evaluate` or `estimate` returned; made with ``keep=True`` it has more
            figures.
        behavior: what ran, if `design` made it: its predictions stand beside what was measured.
        on_policy: an evaluation by the policy itself, to compare with: its own returns, and not
            weighted ones, then say what the same precision would have cost.
        beside: more evaluations of the same policy for the table, by name.
        truth: the exact value, where it is known.
        title: of the page.
        intro: what was evaluated, in words.
        gamma: the discount of the evaluation; None: the behavior's, or 1.
        command: the command that makes it again.
        seed: of the evaluation.
    """
    if gamma is None:
        gamma = 1.0 if behavior is None else behavior.recipe.gamma
    source = "the weighted episodes"
    if on_policy is not None and (measured := _measured(evaluation, on_policy)) is not None:
        evaluation, source = replace(evaluation, on_policy=measured), "the policy's own episodes"
    trace = drawings.trace_of(evaluation, gamma)
    plain = None if on_policy is None else drawings.trace_of(on_policy, gamma)
    runs: dict[str, Evaluation] = {_runner(evaluation, behavior): evaluation}
    if on_policy is not None:
        runs["the policy itself"] = on_policy
    runs.update(beside or {})
    sections = [
        _answered(evaluation, runs, trace, plain, truth, intro),
        _paid(evaluation, trace, source),
        _noisy(evaluation),
        _trusted(evaluation, trace, plain),
        stage_section(evaluation),
        _designed(evaluation, behavior),
        how_to_reproduce(command, seed=seed),
    ]
    return Page(
        title,
        answer_of(evaluation),
        verdict_of(evaluation),
        facts_of(evaluation),
        tuple(section for section in sections if section is not None),
    )


def _measured(e: Evaluation, alone: Evaluation) -> OnPolicy | None:
    """What the same precision takes by what the policy's own episodes say; None: they do not."""
    plain = alone.on_policy
    if (
        not by_itself(alone)
        or plain.unknown is not None
        or by_itself(e)
        or not e.standard_error > 0
    ):
        return None
    episodes = plain.variance / e.standard_error**2
    return replace(plain, episodes=episodes, total=episodes * plain.cost)


def _answered(
    e: Evaluation,
    runs: Mapping[str, Evaluation],
    trace: drawings.Trace | None,
    on_policy: drawings.Trace | None,
    truth: float | None,
    intro: str,
) -> Section:
    text = [intro] if intro else []
    text.append(e.sentence)
    figures: list[Figure] = []
    if not e.known:
        pass  # nothing is known that could be drawn
    elif trace is not None and len(trace.value) > 1:
        figures.append(drawings.running_figure(trace, e, by="episodes", truth=truth))
        if trace.spent.sum() > 0:
            figures.append(
                drawings.running_figure(trace, e, by="cost", on_policy=on_policy, truth=truth)
            )
    else:
        text.append(
            "The episodes themselves were not kept, so this page has fewer figures; keep=True "
            "keeps them."
        )
    header = ["what was run", "episodes", "estimate", "cost of an episode", "total cost"]
    promised = len(runs) > 1 and any(map(promise_in_words, runs.values()))
    header += ["promised, relative"] if promised else []
    if truth is not None:
        header.insert(3, "error")
        text.append(f"The exact value is {truth:.5g}. No method had access to it.")
    rows = []
    for name, run in runs.items():
        row = [name, f"{run.finished:,}", with_error(run)]
        row += (
            []
            if truth is None
            else [signed(run.estimate - truth, run.interval.half_width) if run.known else NONE]
        )
        costs = run.cost.total > 0
        row += (
            [per_episode(run.cost.per_episode), amount(run.cost.total)] if costs else [NONE, NONE]
        )
        row += [promise_in_words(run) or NONE] if promised else []
        rows.append(tuple(row))
    sure = confidence(e.interval.alpha)
    table = Table(f"Estimates with their {sure} intervals", tuple(header), tuple(rows))
    return Section("The estimate", tuple(text), tuple(figures), (table,))


def _noisy(e: Evaluation) -> Section | None:
    """Where a return's variance went; what would take more of it out."""
    if e.noise is None and not e.advice:
        return None
    text = tuple(sentence_of(one) for one in e.advice)
    figures = () if e.noise is None else (noise_figure(e.noise),)
    return Section("Where the noise is", text, figures)


def _paid(e: Evaluation, trace: drawings.Trace | None, source: str) -> Section | None:
    text, figures = [], []
    if not by_itself(e):
        if e.on_policy.unknown is None and min(e.on_policy.total, e.cost.total) > 0:
            figures.append(drawings.cost_figure(e, source))
        elif e.on_policy.unknown is not None:
            text.append(
                f"How many episodes the policy itself would take is unknown: {e.on_policy.unknown}."
            )
    text += e.safety_told
    if e.certificate is not None and e.certificate.episodes and not by_itself(e):
        if trace is not None and (figure := drawings.promise_figure(trace, e)) is not None:
            figures.append(figure)
        if math.isfinite(e.certificate.difference.half_width):
            figures.append(drawings.certificate_figure(e))
    if not text and not figures:
        return None
    return Section("Cost and safety", tuple(text), tuple(figures))


def _trusted(
    e: Evaluation, trace: drawings.Trace | None, on_policy: drawings.Trace | None
) -> Section:
    figures: list[Figure] = []
    if trace is not None and len(trace.value) > 1:
        if e.known:
            figures.append(drawings.values_figure(trace, e, on_policy))
        if not by_itself(e) and (figure := drawings.weights_figure(trace)) is not None:
            figures.append(figure)
    return Section("Diagnostics", figures=tuple(figures), checks=_checks(e))


def _checks(e: Evaluation) -> tuple[Check, ...]:
    """The diagnostics as sentences."""
    d = e.diagnostics
    checks = [Check("bad", sentence_of(text)) for text in d.warnings]
    checks.append(Check("good", holds_when(e.interval, e.stopped)))
    if e.context is not None:
        checks.append(Check("plain", sentence_of(e.context.sentence)))
    if not by_itself(e):
        weights = _weights(e)
        checks += [check for check in weights if check.tone == "good" or not d.warnings]
        checks += _guarded(e)
    if d.lost:
        checks.append(
            Check(
                "bad",
                f"{counted(d.lost)} of {e.started:,} could not be finished (the first: "
                f"{d.first_loss}). The estimate is biased if losses depend on what the policy "
                "does.",
            )
        )
    else:
        checks.append(Check("good", f"All {e.finished:,} episodes were finished."))
    kept = {name: n for name, n in d.behavior.items() if n and name != "asked"}
    if kept:
        why = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in kept.items())
        checks.append(
            Check(
                "plain",
                f"In some of {d.behavior['asked']:,} decisions the behavior policy fell back to "
                f"the target policy: {why}.",
            )
        )
    if d.fallbacks:
        checks.append(
            Check(
                "bad",
                f"In {d.fallbacks:,} steps the behavior policy failed and fell back to the target "
                "policy.",
            )
        )
    return tuple(checks)


def _weights(e: Evaluation) -> list[Check]:
    d = e.diagnostics
    error = f" ± {d.mean_weight_error:.3f}" if math.isfinite(d.mean_weight_error) else ""
    share = d.effective_size / max(e.finished, 1)
    checks = [
        Check(
            "good" if abs(d.mean_weight - 1) <= 4 * d.mean_weight_error + 1e-6 else "bad",
            f"The weights average {d.mean_weight:.3f}{error}, where 1 is expected; the largest is "
            f"{d.largest_weight:.3g}.",
        ),
        Check(
            "good" if share >= 0.3 else "open",
            f"The effective number of episodes is {d.effective_size:,.0f} ({share:.0%} of "
            f"{e.finished:,}).",
        ),
    ]
    if d.tail_index is not None and d.tail_index <= 0.7:
        checks.append(
            Check(
                "good",
                f"The tail of the weights is light (Pareto index {d.tail_index:.2f}; above 0.7 the "
                "interval would be too narrow).",
            )
        )
    return checks


def _guarded(e: Evaluation) -> list[Check]:
    if e.guard is None:
        return [Check("open", "There was no guard.")] if e.certificate else []
    checks = [Check("good", f"The guard {e.guard.sentence}.")]
    if e.guard.switched_after is not None:
        checks = [Check("bad", f"The guard {e.guard.sentence}. The estimate stays unbiased.")]
    if e.diagnostics.guarded:
        checks.append(
            Check("plain", f"It gave {e.diagnostics.guarded:,} single steps to the target policy.")
        )
    return checks


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
    checks += [Check("good", sentence_of(one.sentence)) for one in learning.notable if one.agrees]
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
    table = Table(
        "Variance of a value relative to running the policy itself, predicted (cross-checked) and "
        "measured; cost of an episode; verdict about the stage's own promise; share of the stage "
        "in the estimate; standard error of the whole after the stage",
        _STAGE_HEADER,
        tuple(_row(stage, e.on_policy.variance) for stage in e.stages),
    )
    return Section("Stages", tuple(text), drawings.stage_figures(e), (table,), tuple(checks))


def _row(stage: Stage, on_policy: float) -> tuple[str, ...]:
    p = stage.prediction
    measured = (
        stage.variance / on_policy if math.isfinite(on_policy) and on_policy > 0 else math.nan
    )
    return (
        f"{stage.number}",
        f"{stage.episodes:,}",
        f"{stage.rows:,} steps" if stage.rows and not stage.on_policy else "policy itself",
        NONE if p is None else f"{p.variance:.2f} ({p.checked_variance:.2f})",
        f"{measured:.2f}" if math.isfinite(measured) else f"{stage.variance:.3g} (absolute)",
        per_episode(stage.cost),
        NONE if stage.certificate is None else stage.certificate.verdict,
        f"{stage.share:.1%}",
        f"{stage.standard_error:.2g}",
    )


def _designed(e: Evaluation, behavior: BehaviorPolicy | None) -> Section | None:
    """The design's predictions beside what was measured."""
    if behavior is None:
        return None
    recipe, report, expected = behavior.recipe, behavior.report, behavior.predicted
    measured = [NONE, NONE]
    if e.on_policy.unknown is None and e.on_policy.episodes > 0:
        measured[0] = f"{e.finished / e.on_policy.episodes:.3f}"
    if e.certificate is not None and not math.isnan(e.certificate.ratio.estimate):
        measured[1] = f"{e.certificate.ratio.estimate:.3f}"
    rows = (
        (
            "variance of an episode's value",
            f"{expected.variance:.3f}",
            f"{expected.checked_variance:.3f}",
            measured[0],
        ),
        (
            "cost of an episode",
            f"{expected.cost:.3f}",
            f"{expected.checked_cost:.3f}",
            measured[1],
        ),
    )
    curve = frontier_figure(behavior)
    most = "" if recipe.epsilon == 0 else f"{1 + recipe.epsilon:.3g} times "
    checks = [Check("open", sentence_of(text)) for text in report.warnings]
    checks += [Check("plain", sentence_of(text)) for text in report.notes]
    return Section(
        "The behavior policy that was run",
        (
            f"Designed by {recipe.method} from {report.rows:,} logged steps ({report.regression} "
            f"critics), for {recipe.horizon} steps per episode and an expected cost of at most "
            f"{most}the target policy's. Support: {support_in_words(report)}. "
            f"{_spent(recipe, report.binding)} At least {100 * recipe.floor:.2g}% of the target "
            "policy is mixed in everywhere.",
        ),
        figures=() if curve is None else (curve,),
        tables=(
            Table(
                "Relative to running the policy itself: predicted and measured",
                ("", "predicted", "cross-checked on other logs", "measured"),
                rows,
            ),
        ),
        checks=tuple(checks),
    )


def _spent(recipe: Recipe, binding: float) -> str:
    if recipe.budget == "weighted":
        return (
            "It depends on the weight of the episode so far: what says little about the target "
            f"policy is kept cheap. No weight exceeds {recipe.cap:g}."
        )
    return f"The cost budget binds in {binding:.0%} of the logged states."


def _runner(e: Evaluation, behavior: BehaviorPolicy | None) -> str:
    if by_itself(e):
        return "the policy itself (this evaluation)"
    if behavior is None:
        return "behavior policy"
    recipe = behavior.recipe
    part = f" at {1 + recipe.epsilon:.2g} of the cost" if recipe.budget == "weighted" else ""
    return f"behavior policy ({recipe.method}{part})"


def frontier_figure(behavior: BehaviorPolicy) -> Figure | None:
    """The frontier that the behavior policy was chosen on; None: it was not chosen on one."""
    curve, chosen = behavior.report.curve, behavior.predicted
    if curve is None or not curve.points:
        return None
    with canvas(height=3.4) as (drawing, ax):
        draw_curve(curve, ax, (chosen.variance, chosen.safe_cost))
        return figure_of(
            drawing,
            label="Relative variance against relative cost of the behavior policies that the logs "
            f"bear out; chosen: {chosen.variance:.3f} of the variance at {chosen.safe_cost:.3f} of "
            "the cost of the target policy.",
            caption="Which precision costs what: each point of the line is a behavior policy that "
            "the logs bear out. The shade reaches from what its critics predict to what held-out "
            "logs say.",
        )
