"""A campaign in a notebook, on this machine or behind HTTP: its card, its plot, its table."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval.campaign.journal import Event
from scopeval.campaign.status import CampaignStatus, PlantStatus
from scopeval.campaign.terms import Terms
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation, no_interval, rounded
from scopeval.evaluation.stopping import Running
from scopeval.evaluation.tracking import Listener, listener_of
from scopeval.notebook.axes import axes_or_new, write_in
from scopeval.notebook.card import Card
from scopeval.notebook.frame import frame_of
from scopeval.notebook.sketch import OURS, Span, sketch_spans
from scopeval.report.evaluation_figures import Band, running, trace_of
from scopeval.report.wording import amount, confidence

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["NotebookViews"]

_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False}


class NotebookViews(ABC):
    """The verbs of a campaign that show it in a notebook; those that they need are abstract."""

    @abstractmethod
    def _created_with(self) -> Terms:
        """The terms of the campaign."""

    @abstractmethod
    def status(self) -> CampaignStatus:
        """The state now."""

    @abstractmethod
    def result(self, *, keep: bool = False) -> Evaluation:
        """What the target policy is worth, by all that is finished."""

    @abstractmethod
    def events(self, after: int = 0, *, most: int | None = None) -> list[Event]:
        """What happened after an event, in order; at most so many."""

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for every episode.

        `value` is unbiased for the target policy's value, `spent` is the cost; times are UTC.
        """
        columns = episode_columns(self.events())
        frame = frame_of(columns, index="episode")
        for name in ("started", "ended"):
            frame[name] = frame[name].astype("datetime64[s]")
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the estimate against the number of finished episodes, with its interval.

        The interval holds at all times together. Axes without an estimate or an interval say why.

        Args:
            ax: matplotlib axes; None: those of a new figure.
        """
        if not self.status().finished:
            ax = _labeled(axes_or_new(ax))
            write_in(ax, "no episode is finished")
            return ax
        terms = self._created_with()
        result = self.result(keep=True)
        trace = trace_of(result, terms.gamma)
        assert trace is not None  # the episodes were kept
        goal = max(terms.plan.episodes or len(trace.value), 1)
        band = running(trace.value, terms.alpha, goal, trace.stages)
        ax = _labeled(axes_or_new(ax))
        draw_band(band, terms.alpha, ax)
        if not np.isfinite(band.high - band.low).any():
            ax.legend(title=no_interval(result.interval), title_fontsize=8, **_LEGEND)
        return ax

    def track(self, tracker: Listener) -> None:
        """Tell the numbers of this moment, at the number of finished episodes.

        Args:
            tracker: a `Tracker`, or a function that takes a `Running`, as for `evaluate`. Where it
                raises an exception there is a warning, and the campaign goes on.

        Raises:
            InputError: it cannot be called so.
        """
        told = listener_of(tracker, "tracker")
        if told is None:
            raise InputError("tracker: got None, expected an object with log(step, values)")
        status = self.status()
        total = self._created_with().plan.episodes
        more = status.values()
        told(Running(status.finished, total, status.interval, status.spent, more=more))

    def _repr_html_(self) -> str:
        status = self.status()
        found = status.interval
        spans = [Span("value", found.low, found.estimate, found.high)]
        return Card(
            "Campaign: " + "; ".join(x for x in (status.word, status.reason, status.done) if x),
            sentence_of(status, self._created_with()),
            tuple(_plant(plant) for plant in status.plants),
            ("plant", "now", "finished", "lost") if status.plants else (),
            sketch_spans(spans) if found.n > 1 else "",
            tuple(f"{g.rule}: {g.alarm}" for g in status.guards if g.alarm is not None),
        ).html()


def draw_band(band: Band, alpha: float, ax: Axes) -> None:
    """Draw a running estimate, with its interval as far as that is finite."""
    seen = np.isfinite(band.high - band.low)
    if seen.any():
        ax.fill_between(
            band.at[seen], band.low[seen], band.high[seen], color=OURS, alpha=0.18, lw=0,
            label=f"{confidence(alpha)} at all times together",
        )  # fmt: skip
    alone = "o" if len(band.at) == 1 else None  # a line of one point is not seen
    ax.plot(band.at, band.mean, color=OURS, lw=2.0, marker=alone, label="estimate")
    ax.legend(**_LEGEND)
    late = band.at >= 0.12 * band.at[-1]  # the first intervals are too wide to show anything
    ends = np.concatenate([band.low[late & seen], band.high[late & seen], band.mean[late]])
    room = 0.05 * (np.ptp(ends) or 1.0)
    ax.set_ylim(float(ends.min() - room), float(ends.max() + room))


def _labeled(ax: Axes) -> Axes:
    """Axes of a running estimate."""
    ax.set_xlabel("finished episodes")
    ax.set_ylabel("value of the policy")
    return ax


def sentence_of(status: CampaignStatus, terms: Terms) -> str:
    """The state of a campaign in one sentence."""
    found = status.interval
    goal = "" if terms.plan.episodes is None else f" of {terms.plan.episodes:,}"
    said = f"{status.finished:,}{goal} episodes are finished"
    said += f", at a cost of {amount(status.spent)}" if status.spent else ""
    if not found.n:
        return f"{said}."
    if not math.isfinite(found.half_width):
        return f"{said}; the value is about {found.estimate:.4g}, with {no_interval(found)}."
    value, low, high = rounded(found.half_width, found.estimate, found.low, found.high)
    return (
        f"{said}; the policy's value is {value}, between {low} and {high} with "
        f"{confidence(found.alpha)} confidence at all times."
    )


def episode_columns(events: list[Event]) -> dict[str, list[Any]]:
    """The episodes as columns, from the events of a campaign."""
    rows: dict[int, dict[str, Any]] = {}
    for event in events:
        number = event.episode
        if number is None:
            continue
        if event.kind == "started":
            empty = dict.fromkeys(("ended", "value", "weight", "spent"), math.nan)
            rows[number] = {
                "episode": number,
                "plant": event.plant,
                "state": "open",
                "started": event.time,
                **empty,
            }
        elif event.kind in ("ended", "lost"):
            told = {"ended": event.time, "state": "lost" if event.kind == "lost" else "finished"}
            numbers = {
                k: float(event.data[k]) for k in ("value", "weight", "spent") if k in event.data
            }
            rows[number] |= told | numbers
        elif event.kind == "dropped":
            rows[number]["state"] = "dropped"
    names = ("episode", "plant", "state", "started", "ended", "value", "weight", "spent")
    return {name: [row[name] for row in rows.values()] for name in names}


def _plant(plant: PlantStatus) -> tuple[str, str, str, str]:
    doing = "idle"
    if plant.episode is not None:
        doing = f"episode {plant.episode:,}, {plant.step:,} steps"
    if plant.silent:
        doing += ", silent"
    return plant.name, doing, f"{plant.finished:,}", f"{plant.lost:,}"
