"""The figures of an evaluation's page."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scopeval.arrays import Floats, Ints
from scopeval.errors import InputError
from scopeval.estimation.estimators import ESTIMATORS
from scopeval.estimation.moments import FEWEST_EVENTS
from scopeval.estimation.sequences import AsymptoticSequence, StagedMoments
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.result import Evaluation, rounded
from scopeval.evaluation.stage_report import Stage
from scopeval.report.page import Figure
from scopeval.report.svg import (
    INK,
    OURS,
    OWN,
    SAFE,
    SOFT,
    UNSAFE,
    canvas,
    draw_band,
    figure_of,
    label_powers,
)
from scopeval.report.wording import amount
from scopeval.safety.certificate import Certificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Run",
    "Trace",
    "certificate_figure",
    "cost_figure",
    "promise_figure",
    "running_figure",
    "stage_figures",
    "trace_of",
    "values_figure",
    "weights_figure",
]

_POINTS = 160  # of a running line


class Run(NamedTuple):
    """Episodes that follow each other: number of their stage (from 0), how many, weight of one."""

    stage: int
    episodes: int
    weight: float


@dataclass(frozen=True)
class Trace:
    """One number per finished episode, in order, [n] each.

    Attributes:
        value: unbiased for the target policy's value.
        weight: importance weight of the whole episode.
        spent: what the episode cost.
        excess: its cost over what was promised, unbiased; NaN where the target itself ran.
        stages: runs of episodes of one stage and one weight, in order; none: equal weights.
    """

    value: Floats
    weight: Floats
    spent: Floats
    excess: Floats
    stages: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Band:
    """A running mean with its anytime-valid interval after the first `at` values."""

    at: Floats
    mean: Floats
    low: Floats
    high: Floats


def trace_of(evaluation: Evaluation, gamma: float = 1.0) -> Trace | None:
    """The numbers of the kept episodes, one by one.

    None where none were kept, or where their values are of a function or of a baseline.

    Raises:
        InputError: the episodes do not give the evaluation's estimate with this discount.
    """
    if evaluation.episodes is None or evaluation.estimator not in ESTIMATORS:
        return None
    batch = summarize(evaluation.episodes, gamma, evaluation.estimator)
    scale = max(abs(evaluation.estimate), float(np.abs(batch.value).max(initial=0.0)))
    stages = tuple(
        Run(number, count, weight)
        for number, stage in enumerate(evaluation.stages)
        for count, weight in stage.parts
        if count
    )
    values = running(batch.value, 0.05, 1, stages).mean[-1] if stages else batch.value.mean()
    if abs(float(values) - evaluation.estimate) > 1e-6 * scale:
        raise InputError(
            f"gamma: got {gamma:g}, with which the kept episodes give {values:.6g} and "
            f"not the estimate of {evaluation.estimate:.6g}; expected the evaluation's discount"
        )
    epsilon = 0.0 if evaluation.certificate is None else evaluation.certificate.epsilon
    excess = batch.costs.cost - (1 + epsilon) * batch.costs.weighted_cost
    excess = np.where(batch.by_target, np.nan, excess)
    return Trace(batch.value, batch.weight, batch.spent, excess, stages)


def running(values: Floats, alpha: float, target_n: int, stages: Sequence[Run] = ()) -> Band:
    """The anytime-valid sequence at about 160 points; `stages` as in `Trace`."""
    ends = np.unique(np.linspace(0, len(values), min(len(values), _POINTS) + 1).astype(int))
    plain = AsymptoticSequence(alpha, target_n, fewest_events=FEWEST_EVENTS)
    staged = StagedMoments(alpha, target_n)
    borders = np.cumsum([0, *(run.episodes for run in stages)])
    seen = []
    for lo, hi in itertools.pairwise(np.unique([*ends, *borders])):
        if not stages:
            now = plain.update(values[lo:hi])
        else:
            if lo in borders:
                run = stages[int(np.searchsorted(borders, lo))]
                staged.enter(run.stage, run.weight)
            staged.update(values[lo:hi])
            now = staged.sequence()
        seen.append((hi, now.estimate, now.low, now.high))
    at, mean, low, high = np.array(seen, dtype=float).T
    return Band(at, mean, low, high)


def running_figure(
    trace: Trace,
    evaluation: Evaluation,
    *,
    by: str,
    on_policy: Trace | None = None,
    truth: float | None = None,
) -> Figure:
    """The running estimate against episodes or cost (`by`)."""
    alpha = evaluation.interval.alpha
    with canvas() as (drawing, ax):
        shown = []
        for one, color, dashes, name in (
            (on_policy, OWN, (4, 1.5), "the policy itself"),
            (trace, OURS, (), "this evaluation"),
        ):
            if one is None:
                continue
            band = running(one.value, alpha, max(len(one.value), 1), one.stages)
            x = band.at if by == "episodes" else np.cumsum(one.spent)[band.at.astype(int) - 1]
            ends = (band.mean, band.low, band.high)
            draw_band(ax, x, ends, color, label=name, dashes=dashes or (None, None))
            shown.append((x, band))
        if truth is not None:
            ax.axhline(truth, color=INK, lw=1.0, ls=":", label="exact value")
        end = evaluation.interval
        if math.isfinite(end.half_width):
            ax.errorbar(
                [shown[-1][0][-1]],
                [end.estimate],
                yerr=[[end.estimate - end.low], [end.high - end.estimate]],
                color=OURS,
                capsize=3.5,
                marker="o",
                ms=4,
                lw=1.8,
                clip_on=False,
                zorder=5,
            )
        within = [x for x in (truth, end.low, end.high) if x is not None and math.isfinite(x)]
        _limits(ax, shown, within)
        ax.set_xlabel("episodes" if by == "episodes" else "cost spent")
        ax.set_ylabel("estimate of the value")
        if on_policy is not None or truth is not None:
            _legend(ax)
        words = "number of episodes" if by == "episodes" else "cost"
        value, low, high = rounded(end.half_width, end.estimate, end.low, end.high)
        return figure_of(
            drawing,
            label=f"Line: the running estimate against the {words}, ending at {value}, interval "
            f"from {low} to {high}.",
            caption=f"The estimate against the {words}. Shaded: the anytime-valid interval, which "
            "may be checked as often as one likes, and holds as far as seen. Bar: the reported "
            "interval.",
        )


def _limits(ax: Axes, shown: Sequence[tuple[Floats, Band]], within: Sequence[float]) -> None:
    """Leave the first episodes off the chart, where the bands are too wide to show anything."""
    low, high = list(within), list(within)
    for _, band in shown:
        start = int(np.searchsorted(band.at, 0.12 * band.at[-1]))
        for ends, store in (
            (band.low, low),
            (band.high, high),
            (band.mean, low),
            (band.mean, high),
        ):
            late = ends[start:]
            store += list(late[np.isfinite(late)])
    if max(high) > min(low):
        pad = 0.04 * (max(high) - min(low))
        ax.set_ylim(min(low) - pad, max(high) + pad)
    ax.set_xlim(left=0)
    ax.locator_params(nbins=6)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")


def cost_figure(evaluation: Evaluation, source: str) -> Figure:
    """The cost of this evaluation beside that of running the policy itself, known from `source`."""
    ours, on_policy_cost = evaluation.cost.total, evaluation.on_policy.total
    with canvas(height=1.9) as (drawing, ax):
        names = ["this evaluation", "the policy itself,\nto the same precision"]
        bars = ax.barh(names, [ours, on_policy_cost], color=[OURS, OWN], height=0.58)
        ax.bar_label(bars, [f" {amount(ours)}", f" {amount(on_policy_cost)}"], padding=2, color=INK)
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
        ax.set_xlim(0, 1.18 * max(ours, on_policy_cost))
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        ax.set_xlabel("total cost")
        return figure_of(
            drawing,
            label=f"Bars: this evaluation cost {amount(ours)}, the policy itself would have cost "
            f"{amount(on_policy_cost)} for the same precision.",
            caption="The cost of this evaluation, beside the cost of running the policy itself to "
            f"the same precision: about {evaluation.on_policy.episodes:,.0f} episodes, estimated "
            f"from {source}.",
        )


def certificate_figure(evaluation: Evaluation) -> Figure:
    """The interval of the cost difference, and the limit at zero."""
    certificate = evaluation.certificate
    assert certificate is not None
    d = certificate.difference
    with canvas(height=1.9) as (drawing, ax):
        reach = 1.35 * max(abs(d.low), abs(d.high), 1e-12)
        ax.axvspan(-reach, 0, color=SAFE, alpha=0.10, lw=0)
        ax.axvspan(0, reach, color=UNSAFE, alpha=0.10, lw=0)
        ax.axvline(0, color=INK, lw=1.2)
        ax.errorbar(
            [d.estimate],
            [0],
            xerr=[[d.estimate - d.low], [d.high - d.estimate]],
            color=OURS,
            marker="o",
            ms=6,
            capsize=6,
            lw=2.2,
        )
        ax.set_xlim(-reach, reach)
        ax.set_ylim(-1, 1)
        ax.text(-0.97 * reach, 0.62, "cheaper than promised", color=SAFE, ha="left")
        ax.text(0.97 * reach, 0.62, "more expensive", color=UNSAFE, ha="right")
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.grid(visible=False)
        ax.locator_params(axis="x", nbins=5)
        ax.set_xlabel("cost of an episode, less what is allowed")
        middle, low, high = rounded(d.half_width, d.estimate, d.low, d.high)
        most = "" if certificate.epsilon == 0 else f"{1 + certificate.epsilon:g} times "
        return figure_of(
            drawing,
            label=f"Interval: the cost of an episode less what is allowed is {middle}, between "
            f"{low} and {high}; zero is the limit. Verdict: {certificate.verdict}.",
            caption="The safety certificate: expected cost of an episode of the behavior policy "
            f"less {most}the target policy's, with its interval. {_side(certificate)}",
        )


def _side(certificate: Certificate) -> str:
    """On which side of the line the interval lies, and what follows."""
    d = certificate.difference
    if certificate.verdict == "safe":
        return "It lies left of the line: safe."
    if certificate.verdict == "refuted":
        return "It lies right of the line: the promise is refuted."
    where = "holds the line" if d.low < 0 < d.high else "lies on one side of the line"
    why = {
        "not refuted": "which side is right is not decided",
        "not covered": "safety is unknown",
    }.get(certificate.verdict, "there is not enough evidence about safety")
    link = ": " if d.low < 0 < d.high else ", but "
    return f"It {where}{link}{why}."


def promise_figure(trace: Trace, evaluation: Evaluation) -> Figure | None:
    """The running cost difference, which the guard watches."""
    excess = trace.excess[np.isfinite(trace.excess)]
    if len(excess) < 2 or evaluation.certificate is None:
        return None
    band = running(excess, evaluation.certificate.alpha, len(excess))
    with canvas(height=4.3) as (drawing, ax):
        ax.axhline(0, color=INK, lw=1.2)
        draw_band(ax, band.at, (band.mean, band.low, band.high), OURS)
        _limits(ax, [(band.at, band)], [0.0])
        ax.set_xlabel("episodes of the behavior policy")
        ax.set_ylabel("cost less what is allowed")
        said = "the guard did not switch"
        if evaluation.guard is None:
            said = "there was no guard"
        elif (after := evaluation.guard.switched_after) is not None:
            ax.axvline(min(after, len(excess)), color=UNSAFE, ls="--", lw=1.2)
            said = f"the guard {evaluation.guard.switch}"
        return figure_of(
            drawing,
            label="Line: the running mean of cost less what is allowed, with its interval; zero is "
            f"the limit; {said}.",
            caption="Running mean of an episode's cost less what is allowed. A guard switches "
            f"when the whole interval lies above zero; {said}.",
            shape="tall",
        )


def values_figure(trace: Trace, evaluation: Evaluation, on_policy: Trace | None = None) -> Figure:
    """The distribution of the values of single episodes."""
    with canvas() as (drawing, ax):
        both = trace.value if on_policy is None else np.concatenate([trace.value, on_policy.value])
        low, high = np.quantile(both, [0.001, 0.999])
        if high <= low:
            low, high = low - 0.5, high + 0.5
        edges = np.linspace(low, high, 41).tolist()
        outside = int(((trace.value < low) | (trace.value > high)).sum())
        if on_policy is not None:
            ax.hist(
                on_policy.value,
                edges,
                weights=np.full(len(on_policy.value), 100 / len(on_policy.value)),
                histtype="step",
                color=OWN,
                lw=1.5,
                label="the policy itself",
            )
        ax.hist(
            trace.value,
            edges,
            weights=np.full(len(trace.value), 100 / len(trace.value)),
            color=OURS,
            alpha=0.55,
            label="this evaluation",
        )
        ax.axvline(evaluation.estimate, color=INK, lw=1.2)
        ax.set_xlabel("value of one episode")
        ax.set_ylabel("share of episodes, %")
        if on_policy is not None:
            _legend(ax)
        spread = float(trace.value.std(ddof=1)) if len(trace.value) > 1 else 0.0
        beyond = f" {outside:,} lie outside the chart." if outside else ""
        return figure_of(
            drawing,
            label=f"Histogram of the values of single episodes: mean {evaluation.estimate:.4g}, "
            f"standard deviation {spread:.3g}.",
            caption="Every episode gives one unbiased value; the estimate (line) is their "
            f"{'weighted ' if trace.stages else ''}mean. "
            f"The less they spread, the fewer episodes are needed.{beyond}",
        )


def weights_figure(trace: Trace) -> Figure | None:
    """The distribution of the weights."""
    w = trace.weight
    positive = w[w > 0]
    if not len(positive) or np.ptp(np.log10(positive)) < 1e-9:
        return None
    with canvas() as (drawing, ax):
        # how small the smallest weights are does not matter: none of them counts
        low = max(float(positive.min()), float(positive.max()) * 1e-4)
        tiny = int((positive < low).sum())
        edges = np.geomspace(low, float(positive.max()) * (1 + 1e-9), 41).tolist()
        share = np.full(len(positive), 100 / len(w))
        ax.hist(np.maximum(positive, low), edges, weights=share, color=OURS, alpha=0.55)
        ax.axvline(1.0, color=INK, lw=1.2)
        ax.set_xscale("log")
        label_powers(ax.xaxis, between=edges[-1] / edges[0] < 300)
        ax.set_xlabel("weight of an episode (logarithmic)")
        ax.set_ylabel("share of episodes, %")
        none = int((w == 0).sum())
        zero = f" {none:,} of {len(w):,} have weight 0." if none else ""
        if tiny:
            zero += f" The first bar holds {tiny:,} that are smaller still."
        return figure_of(
            drawing,
            label=f"Histogram of the importance weights, from {positive.min():.2g} to "
            f"{positive.max():.3g}; 1 is marked.",
            caption="How much more likely each episode is under the target policy. Weights near 1 "
            f"are good; a few very large ones would dominate the estimate.{zero}",
        )


def _legend(ax: Axes) -> None:
    """Above the axes, where it hides nothing."""
    ax.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        borderpad=0.2,
        columnspacing=1.2,
        handlelength=1.6,
        handletextpad=0.5,
    )


# -- of its stages ---------------------------------------------------------------------------------


def stage_figures(e: Evaluation) -> tuple[Figure, ...]:
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
        label_powers(ax.xaxis)
        label_powers(ax.yaxis)
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
