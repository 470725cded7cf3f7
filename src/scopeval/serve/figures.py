"""The figures of the live page."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import numpy as np

from scopeval.campaign.stages import narrowest_at
from scopeval.campaign.state import LookLine
from scopeval.campaign.terms import Terms
from scopeval.evaluation.result import rounded
from scopeval.report.evaluation_figures import Band, Trace, running
from scopeval.report.page import Figure
from scopeval.report.svg import INK, OURS, OWN, UNSAFE, canvas, figure_of
from scopeval.report.wording import amount

__all__ = ["differences_figure", "promise_figure", "spending_figure", "time_figure", "value_figure"]

#: Inches; three stand side by side.
SIZE = (3.7, 2.6)


def value_figure(trace: Trace, terms: Terms) -> Figure:
    """The estimate with its interval as it narrows."""
    goal = narrowest_at(terms)
    if terms.refit is not None:
        goal = max(round(goal / terms.refit.prior_variance), 1)
    band = running(trace.value, terms.alpha, goal, trace.stages)
    with canvas(*SIZE) as (drawing, ax):
        finite = np.isfinite(band.low)
        ax.fill_between(
            band.at[finite], band.low[finite], band.high[finite], color=OURS, alpha=0.18, lw=0
        )
        ax.plot(band.at, band.mean, color=OURS)
        ax.set_ylim(*_frame(band, []))
        ax.set_xlim(left=0)
        ax.locator_params(nbins=6)
        ax.set_xlabel("finished episodes")
        ax.set_ylabel("value")
        low, high = float(band.low[-1]), float(band.high[-1])
        said = f"{band.mean[-1]:.4g}"
        if np.isfinite(low) and np.isfinite(high):
            value, left, right = rounded((high - low) / 2, float(band.mean[-1]), low, high)
            said = f"{value}, interval from {left} to {right}"
        return figure_of(
            drawing,
            label=f"Line: the estimate against the number of episodes, now {said}.",
            caption="The estimate of the value. Shaded: its interval, which holds at all times "
            "together as far as seen, so that it may be looked at as often as one likes.",
        )


def spending_figure(trace: Trace, target_cost: float | None, budget: float | None) -> Figure:
    """What was spent, beside what the target policy would have cost, and the budget.

    Args:
        trace: of finished episodes.
        target_cost: of an episode of the target policy, estimated; None: not known.
        budget: of the plan; None: there is none.
    """
    n = len(trace.spent)
    at = np.unique(np.linspace(1, n, min(n, 160)).astype(int))
    spent = np.cumsum(trace.spent)[at - 1]
    with canvas(*SIZE) as (drawing, ax):
        ax.plot(at, spent, color=OURS, label="spent")
        if target_cost is not None:
            ax.plot(
                at,
                at * target_cost,
                color=OWN,
                dashes=(4, 1.5),
                label="target policy",
            )
        if budget is not None:
            ax.axhline(budget, color=UNSAFE, lw=1.2, ls=":", label="budget")
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.yaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        ax.locator_params(nbins=6)
        ax.set_xlabel("finished episodes")
        ax.set_ylabel("cost")
        ax.legend(
            loc="lower left",
            bbox_to_anchor=(-0.02, 1.0),
            ncols=3,
            borderpad=0.2,
            columnspacing=0.9,
            handlelength=1.3,
            handletextpad=0.4,
            fontsize=9.0,
        )
        beside = (
            ""
            if target_cost is None
            else (f"; as many episodes of the target policy: about {amount(n * target_cost)}")
        )
        of = "" if budget is None else f" of a budget of {amount(budget)}"
        return figure_of(
            drawing,
            label=f"Line: cost so far, {amount(float(spent[-1]))}{of}{beside}.",
            caption="The cost of finished episodes"
            + (
                ""
                if target_cost is None
                else ", beside an estimate of what as many of the target policy cost"
            )
            + ("." if budget is None else ", and the budget of the plan."),
        )


def differences_figure(looks: Sequence[LookLine], names: Sequence[str], base: int) -> Figure | None:
    """What was seen of several policies at each look; None: there were fewer than two."""
    if len(looks) < 2:
        return None
    with canvas(*SIZE) as (drawing, ax):
        for k, name in enumerate(names):
            seen = [(one.episodes, *one.differences[k]) for one in looks if k in one.differences]
            rows = np.array([row for row in seen if np.isfinite(row).all()], np.float64)
            if not len(rows):
                continue
            at, mean, low, high = rows.T
            (line,) = ax.plot(at, mean, label=name)
            ax.fill_between(at, low, high, color=line.get_color(), alpha=0.15, lw=0)
        ax.axhline(0, color=INK, lw=1.2)
        ax.locator_params(nbins=6)
        ax.set_xlabel("finished episodes")
        ax.set_ylabel(f"value less that of {names[base]}")
        ax.legend(fontsize=9.0)
        return figure_of(
            drawing,
            label=f"Lines: values less that of {names[base]} against the number of episodes.",
            caption="The differences to the baseline, with intervals that hold at all times "
            "together as far as seen. One that leaves zero is decided.",
        )


def promise_figure(trace: Trace, terms: Terms) -> Figure | None:
    """The promise about the cost, as the guard sees it; None: there is nothing to see yet."""
    excess = trace.excess[np.isfinite(trace.excess)]
    if len(excess) < 2:
        return None
    band = running(excess, terms.alpha, max(terms.stop.episodes or 1000, 50))
    with canvas(*SIZE) as (drawing, ax):
        finite = np.isfinite(band.low)
        ax.axhline(0, color=INK, lw=1.2)
        ax.fill_between(
            band.at[finite], band.low[finite], band.high[finite], color=OURS, alpha=0.18, lw=0
        )
        ax.plot(band.at, band.mean, color=OURS)
        ax.set_ylim(*_frame(band, [0.0]))
        ax.set_xlim(left=0)
        ax.locator_params(nbins=6)
        ax.set_xlabel("episodes of the behavior policy")
        ax.set_ylabel("cost less what is allowed")
        return figure_of(
            drawing,
            label=f"Line: mean cost of an episode less what is allowed, now {band.mean[-1]:.3g}; "
            "zero is the limit.",
            caption="Mean cost of an episode less what is allowed, with its interval. All of it "
            "above zero: the promise is refuted. All of it below: it is kept.",
        )


def _frame(band: Band, within: list[float]) -> tuple[float, float]:
    """Ends of the axis; the first episodes, whose bands are very wide, may stick out."""
    start = int(np.searchsorted(band.at, 0.12 * band.at[-1]))
    late = np.concatenate([band.low[start:], band.high[start:], band.mean[start:], within])
    late = late[np.isfinite(late)]
    low, high = float(late.min()), float(late.max())
    pad = 0.06 * (high - low) or 0.5
    return low - pad, high + pad


def time_figure(ended: list[float]) -> Figure | None:
    """Finished episodes against time, in UTC: where the line is flat, nothing has finished."""
    if len(ended) < 2 or ended[-1] <= ended[0]:
        return None
    first, last = min(ended), max(ended)
    hours = (np.sort(np.array(ended)) - first) / 3600.0
    count = np.arange(1, len(hours) + 1)
    with canvas(*SIZE) as (drawing, ax):
        ax.step(hours, count, where="post", color=OURS)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.locator_params(nbins=6)
        began = datetime.datetime.fromtimestamp(first, datetime.UTC).strftime("%Y-%m-%d %H:%M")
        ax.set_xlabel(f"hours since {began} UTC")
        ax.set_ylabel("finished episodes")
        return figure_of(
            drawing,
            label=f"Line: finished episodes against time, {len(ended)} in "
            f"{(last - first) / 3600.0:.3g} hours.",
            caption="Finished episodes against time. Where the line is flat, nothing has finished.",
        )
