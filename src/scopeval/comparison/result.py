"""The result of a comparison: which policy is better, by how much, and how sure that is.

And how it is shown: in words, as a card and a forest plot in a notebook, and as a table.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from scopeval.comparison.inference import Contrast
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.context.report import ContextReport
from scopeval.estimation.moments import BURN_IN, Interval, confidence
from scopeval.evaluation.noise import Noise
from scopeval.evaluation.result import Spent, plain_numbers, rounded, unseen
from scopeval.notebook.card import Card
from scopeval.notebook.sketch import OURS, OWN, Span, axes_or_new, sketch_spans, write_in
from scopeval.safety.certificate import Certificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "Best",
    "Comparison",
    "Difference",
    "Verdict",
    "difference_of",
    "draw_differences",
    "round_guess",
    "rounded_ends",
    "shortened",
]

Verdict = Literal["better", "worse", "undecided", "failed"]

#: More episodes than this are not told as a number.
MANY = 10_000_000


@dataclass(frozen=True, slots=True)
class Difference(Contrast):
    """The value of a policy less that of the baseline; an `Interval`.

    Attributes:
        verdict: "better" or "worse" than the baseline where 0 is excluded, else "undecided";
            "failed": the policy gave no answer in some episode, and has no value.
        more_episodes: about how many more it takes to decide, if the difference is the one seen;
            None: it is decided, or nothing can be said.
        ab_episodes: about how many an A/B test would have needed for the same precision; NaN:
            unknown.
        decided_after: episodes after which the verdict was clear; None: it is not, or was not
            looked at before the end.
        shared: share of the episodes that serve both policies, from 0 (no episode of one could be
            one of the other: a plain A/B test) to 1 (all, the policies decide alike).
    """

    verdict: Verdict = "undecided"
    more_episodes: int | None = None
    ab_episodes: float = math.nan
    decided_after: int | None = None
    shared: float = math.nan

    def sentence(self, name: str, baseline: str) -> str:
        """The difference in words."""
        if self.verdict == "failed":
            return f"{name} has no value: it failed"
        if self.flat and self.n:
            return (
                f"{name} and {baseline} cannot be told apart: their values are equal in each of "
                f"{self.n:,} episodes, where both policies decide alike"
            )
        if not (math.isfinite(self.low) or math.isfinite(self.high)):
            begins = f" (an interval begins at {BURN_IN})" if self.n < BURN_IN else ""
            return (
                f"whether {name} is better than {baseline} is undecided: there are too few "
                f"episodes for an interval{begins}"
            )
        value, low, high = rounded_ends(self)
        if self.verdict == "undecided":
            more = _more(self.more_episodes)
            return (
                f"whether {name} is better than {baseline} is undecided: the difference is "
                f"{value}, {between_in_words(low, high)}{more}"
            )
        if self.verdict == "worse":
            value, low, high = rounded_ends(self, -1.0)
        return f"{name} is {self.verdict} than {baseline} by {value}, {between_in_words(low, high)}"


@dataclass(frozen=True)
class Best:
    """The policy with the largest estimate.

    Attributes:
        name: of it.
        decided: whether it is surely better than every other one.
        value: its value, in an interval that holds although it was chosen by these episodes.
    """

    name: str
    decided: bool
    value: Contrast


@dataclass(frozen=True)
class Comparison:
    """Policies compared by the same episodes.

    Attributes:
        baseline: name of the policy that runs today.
        values: of all policies by name; the interval of one is not to be compared with that of
            another: that is what `differences` are for.
        differences: to the baseline, by name, from paired values. Their intervals hold together.
        best: the policy with the largest estimate.
        cost: of the episodes.
        certificate: whether the promise on the cost was kept; None: there was none.
        cost_ratio: expected cost of an episode relative to the baseline's; None: no costs.
        costs: of an episode by each policy alone, by name, discounted as the returns; {}: no costs.
            The promise is about the episodes that were run, by the mixture, and not about these.
        ran: what ran, in words.
        stopped: why there were no more episodes, in words.
        episodes: finished ones.
        lost: episodes that could not be finished.
        shares: of the policies in the last episodes, by name.
        estimators: which estimator gave how large a share of the values, by name.
        failures: policies that gave no answer, by name, with the reason.
        dropped: policies that lost their share because others are surely better, by name, with
            the number of episodes after which.
        warnings: problems, in words.
        caveats: those of them that speak against trusting the answer; the sentence has them too.
        alpha: error probability of all that is said about differences together.
        looks: number of episodes, and by name estimate, low and high of the differences, whenever
            they were looked at on the way.
        recorded: everything that was recorded, where it was kept.
    """

    baseline: str
    values: Mapping[str, Contrast]
    differences: Mapping[str, Difference]
    best: Best | None
    cost: Spent
    certificate: Certificate | None
    cost_ratio: Interval | None
    ran: str
    stopped: str
    episodes: int
    lost: int
    shares: Mapping[str, float]
    estimators: Mapping[str, float]
    failures: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    alpha: float = 0.05
    looks: tuple[tuple[int, Mapping[str, tuple[float, float, float]]], ...] = ()
    context: Mapping[str, ContextReport] = field(default_factory=dict)
    recorded: MixtureEpisodes | None = field(default=None, repr=False)
    costs: Mapping[str, Contrast] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """All policies, the baseline first."""
        return (self.baseline, *self.differences)

    @property
    def decided(self) -> bool:
        """Whether every other policy is better or worse than the baseline, or has failed."""
        return all(d.verdict != "undecided" for d in self.differences.values())

    @property
    def noise(self) -> Mapping[str, Noise]:
        """By name, where the variance of an A/B test went; empty without context."""
        found = {}
        for name, report in self.context.items():
            d = self.differences[name]
            if d.n and math.isfinite(d.ab_episodes) and d.ab_episodes > 0:
                left = d.n / d.ab_episodes
                before = left / report.relative_variance if report.relative_variance > 0 else left
                found[name] = Noise(
                    1.0 - before,
                    before - left,
                    left,
                    of="the variance of an A/B test",
                    by="shared episodes and critics",
                )
        return found

    @property
    def sentence(self) -> str:
        """The answer in words, and what speaks against trusting it."""
        said = self._answer() + f" ({self._from()})."
        if self.caveats:
            said += f" Caution: {'; '.join(self.caveats)}."
        return said

    def difference_in_words(self, name: str) -> str:
        """One difference to the baseline in words."""
        if self.baseline in self.failures:
            return f"{self.baseline} failed, so that there is nothing to compare {name} with"
        return self.differences[name].sentence(name, self.baseline)

    def _answer(self) -> str:
        if len(self.differences) == 1:
            ((name, d),) = self.differences.items()
            text = self.difference_in_words(name)
            return text.replace("whether ", "Whether ", 1) if text.startswith("whether ") else text
        if self.baseline in self.failures:
            return f"{self.baseline} failed, so that there is nothing to compare the others with"
        groups: dict[str, list[str]] = {}
        for name, d in self.differences.items():
            groups.setdefault(d.verdict, []).append(name)
        parts = []
        for verdict in ("better", "worse"):
            if verdict in groups:
                verb = "is" if len(groups[verdict]) == 1 else "are"
                parts.append(f"{_listed(groups[verdict])} {verb} {verdict} than {self.baseline}")
        if "undecided" in groups:
            more = [self.differences[name].more_episodes for name in groups["undecided"]]
            known = [n for n in more if n is not None]
            tail = _more(max(known)) if len(known) == len(more) else ""
            parts.append(f"{_listed(groups['undecided'])} undecided{tail}")
        if "failed" in groups:
            parts.append(f"{_listed(groups['failed'])} failed")
        if self.best is not None:
            b = self.best
            value, low, high = rounded_ends(b.value)
            sure = "the best is" if b.decided else "the best may be"
            parts.append(f"{sure} {b.name}, with a value of {value}, {between_in_words(low, high)}")
        text = "; ".join(parts)
        return text

    def _from(self) -> str:
        parts = [f"{confidence(self.alpha)} confidence, {self.episodes:,} episodes"]
        sequences = [d for d in self.differences.values() if d.method == "asymptotic sequence"]
        if sequences and not all(d.flat for d in sequences):
            parts.append(f"as far as seen: {unseen(max(sequences, key=lambda d: d.n))}")
        needed = [d.ab_episodes for d in self.differences.values()]
        if needed and all(math.isfinite(n) for n in needed) and not self._plain:
            parts.append(f"an A/B test would have taken about {round_guess(max(needed))}")
        return "; ".join(parts)

    @property
    def _plain(self) -> bool:
        """Whether all of it is no more than an A/B test."""
        return all(d.shared == 0.0 for d in self.differences.values())

    def summary(self, width: int = 80) -> str:
        """The answer in words, then the details."""
        lines = [textwrap.fill(self.sentence, width)]

        def add(name: str, text: str) -> None:
            lines.append(
                textwrap.fill(
                    text, width, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13
                )
            )

        add("ran", f"{self.ran}; {self.stopped}")
        for name in self.names:
            add(shortened(name, 10), self._of(name))
        for name, text in self.failures.items():
            add("failed", f"{name}: {text}")
        for name, after in self.dropped.items():
            add("dropped", f"{name} after {after:,} episodes: others are surely better")
        if self.cost.total > 0:
            add("cost", self._cost())
        if self.certificate is not None:
            add("safety", self.certificate.sentence)
        add(
            "estimator", _listed([f"{name} {share:.0%}" for name, share in self.estimators.items()])
        )
        for name, report in self.context.items():
            add("context", self._in_context(name, report.sentence))
        for name, noise in self.noise.items():
            add("noise", self._in_context(name, noise.sentence))
        if self.lost:
            add(
                "lost",
                f"{self.lost:,} episodes could not be finished; the values are those of the "
                "finished ones, and biased if losses depend on what a policy does",
            )
        for text in self.warnings:
            if text not in self.caveats:
                add("warning", text)
        return "\n".join(lines)

    def _in_context(self, name: str, text: str) -> str:
        """What is said of a difference; of several with its name."""
        return text if len(self.context) == 1 else f"{name}: {text}"

    def _of(self, name: str) -> str:
        """A policy in one line."""
        v = self.values[name]
        if not math.isfinite(v.estimate):
            return "no value"
        value, low, high = rounded_ends(v)
        text = f"value {value}"
        if math.isfinite(v.low) or math.isfinite(v.high):
            text += f" ({low} to {high})"
        if name == self.baseline:
            return f"{text}; the baseline"
        d = self.differences[name]
        text += f"; {self.difference_in_words(name)}"
        if d.decided_after is not None:
            text += f"; clear after {d.decided_after:,} episodes"
        if d.shared == 0.0:
            text += "; no episode could serve both, so that this is a plain A/B test"
        elif math.isfinite(d.ab_episodes) and d.n:
            text += (
                f"; an A/B test would have taken {d.ab_episodes / d.n:.3g} times as many episodes"
            )
        return text

    def _cost(self) -> str:
        text = f"{self.cost.per_episode:.4g} per episode"
        if self.cost_ratio is not None and math.isfinite(self.cost_ratio.estimate):
            text += f", {self.cost_ratio.estimate:.4g} times the baseline's"
            if math.isfinite(self.cost_ratio.half_width):
                text += f" (between {self.cost_ratio.low:.4g} and {self.cost_ratio.high:.4g})"
        each = [f"{name} {cost_in_words(self, name)}" for name in self.names if name in self.costs]
        return f"{text}; of each policy alone: {', '.join(each)}" if each else text

    def __str__(self) -> str:
        return self.summary()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the episodes, ready for JSON; infinite and undefined numbers are None."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content.pop("recorded")
        content["values"] = {name: asdict(v) for name, v in self.values.items()}
        content["costs"] = {name: asdict(v) for name, v in self.costs.items()}
        content["differences"] = {
            name: asdict(d) | {"sentence": self.difference_in_words(name)}
            for name, d in self.differences.items()
        }
        for name in ("best", "cost", "certificate", "cost_ratio"):
            if content[name] is not None:
                content[name] = asdict(content[name])
        if self.certificate is not None:
            content["certificate"]["sentence"] = self.certificate.sentence
        content["context"] = {
            name: asdict(one) | {"sentence": one.sentence} for name, one in self.context.items()
        }
        content["noise"] = {
            name: asdict(one) | {"sentence": one.sentence} for name, one in self.noise.items()
        }
        content |= {"sentence": self.sentence, "decided": self.decided}
        plain = plain_numbers(content)
        assert isinstance(plain, dict)
        return plain

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for every policy."""
        from scopeval.notebook.frame import frame_of

        return frame_of(comparison_columns(self), index="policy")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the differences to the baseline as a forest plot."""
        return draw_differences(self, ax)

    def _repr_html_(self) -> str:
        return comparison_card(self).html()


def difference_of(
    contrast: Contrast,
    *,
    failed: bool,
    ab_variance: float,
    shared: float,
    decided_after: int | None,
) -> Difference:
    """The difference with its verdict.

    Args:
        contrast: the interval.
        failed: the policy has no value.
        ab_variance: of one episode's value of the difference in an A/B test with equal shares.
        shared: share of the episodes that serve both.
        decided_after: when it was clear.
    """
    c = contrast
    verdict: Verdict = "undecided"
    if failed:
        verdict = "failed"
    elif c.decided:
        verdict = "better" if c.low > 0 else "worse"
    more = None
    if verdict == "undecided" and not c.flat and math.isfinite(c.half_width) and c.estimate:
        toward = c.estimate - c.low if c.estimate > 0 else c.high - c.estimate
        more = math.ceil(min(c.n * max((toward / c.estimate) ** 2 - 1.0, 0.0), 1e15))
    variance = c.se**2 * c.n
    needed = c.n * ab_variance / variance if variance > 0 else math.nan
    return Difference(
        c.estimate, c.low, c.high, c.alpha, c.method, c.n, c.se, c.flat, c.events,
        verdict, more, needed, decided_after if verdict in ("better", "worse") else None, shared,
    )  # fmt: skip


def _more(n: int | None) -> str:
    if n is None:
        return ""
    if n > MANY:
        return "; more episodes would hardly decide it"
    return f"; about {round_guess(n)} more episodes would decide it, if this is the difference"


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


# -- in a notebook ---------------------------------------------------------------------------------


__all__ = [
    "between_in_words",
    "comparison_card",
    "comparison_columns",
    "cost_in_words",
    "draw_differences",
    "round_guess",
    "rounded_ends",
    "shortened",
]

_NONE = "\N{EN DASH}"


_HEADER = ("policy", "value", "difference", "between", "verdict")


def comparison_card(comparison: Comparison) -> Card:
    """The card: the answer in words, and a row for each policy."""
    spans = [
        Span(f"{name} less {comparison.baseline}", d.low, d.estimate, d.high)
        for name, d in comparison.differences.items()
        if math.isfinite(d.half_width) and d.half_width > 0
    ]
    if spans:
        spans.append(Span(comparison.baseline, 0.0, 0.0, 0.0, OWN))
    return Card(
        "Comparison",
        comparison.sentence,
        tuple(table_rows(comparison)),
        _HEADER,
        sketch=sketch_spans(spans),
        remarks=(
            *(x for x in comparison.warnings if x not in comparison.caveats),
            *(f"{name}: {one.sentence}" for name, one in comparison.noise.items()),
        ),
    )


def table_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """A row of text for each policy: name, value, difference, its interval, verdict."""
    rows: list[tuple[str, ...]] = []
    for name in comparison.names:
        v = comparison.values[name]
        value = _NONE
        if math.isfinite(v.estimate):
            value = rounded_ends(v)[0]
        if name == comparison.baseline:
            rows.append((name, value, _NONE, _NONE, "baseline"))
            continue
        d = comparison.differences[name]
        difference = between = _NONE
        if math.isfinite(d.low) or math.isfinite(d.high):
            difference, low, high = rounded_ends(d)
            between = f"{low} to {high}"
        rows.append((name, value, difference, between, d.verdict))
    return rows


def comparison_columns(comparison: Comparison) -> dict[str, list[Any]]:
    """A row for each policy, as columns."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in (
            "policy", "value", "value_low", "value_high", "difference", "low", "high", "se",
            "verdict", "more_episodes", "ab_episodes", "decided_after", "share",
            "cost", "cost_low", "cost_high", "episodes",
        )
    }  # fmt: skip
    for name in comparison.names:
        v, d = comparison.values[name], comparison.differences.get(name)
        paid = comparison.costs.get(name)
        row = {
            "policy": name,
            "value": v.estimate,
            "value_low": v.low,
            "value_high": v.high,
            "difference": math.nan if d is None else d.estimate,
            "low": math.nan if d is None else d.low,
            "high": math.nan if d is None else d.high,
            "se": math.nan if d is None else d.se,
            "verdict": "baseline" if d is None else d.verdict,
            "more_episodes": None if d is None else d.more_episodes,
            "ab_episodes": math.nan if d is None else d.ab_episodes,
            "decided_after": None if d is None else d.decided_after,
            "share": comparison.shares[name],
            "cost": paid.estimate if paid else math.nan,
            "cost_low": paid.low if paid else math.nan,
            "cost_high": paid.high if paid else math.nan,
            "episodes": v.n,
        }
        for column, value in row.items():
            columns[column].append(value)
    return columns


#: Colors of verdicts, which can be told apart on light and dark.
COLORS = {"better": "#1a7f37", "worse": "#b42318", "undecided": OURS, "failed": "#808080"}


def draw_differences(
    comparison: Comparison, ax: Axes | None, colors: Mapping[str, str] = COLORS
) -> Axes:
    """A forest plot: a row for each policy, the difference to the baseline with its interval.

    An end that nothing bounds is an arrow.

    Args:
        comparison: to draw.
        ax: where; None: on new axes.
        colors: of the verdicts.
    """
    rows = list(comparison.differences.items())
    ax = axes_or_new(ax, 5.4, 1.2 + 0.36 * len(rows))
    drawn = [(k, d) for k, (_, d) in enumerate(rows) if math.isfinite(d.low + d.high)]
    half = [
        (k, d)
        for k, (_, d) in enumerate(rows)
        if math.isfinite(d.low) != math.isfinite(d.high) and math.isfinite(d.estimate)
    ]
    ends = [0.0, *(x for _, d in drawn + half for x in (d.low, d.estimate, d.high))]
    ends = [x for x in ends if math.isfinite(x)]
    reach = 0.15 * (max(ends) - min(ends))
    for k, d in drawn + half:
        low, high = max(d.low, min(ends) - reach), min(d.high, max(ends) + reach)
        color = colors[d.verdict]
        ax.plot([low, high], [k, k], color=color, lw=2.0)
        ax.plot([d.estimate], [k], color=color, marker="o", ms=5)
        ax.plot([low], [k], color=color, marker="|" if low == d.low else "<", ms=7)
        ax.plot([high], [k], color=color, marker="|" if high == d.high else ">", ms=7)
    drawn += half
    if not drawn:
        write_in(ax, "There are too few episodes for an interval.")
    ax.axvline(0.0, color=OWN, lw=1.2, ls="--")
    ax.set_yticks(range(len(rows)), [f"{shortened(name, 20)}: {d.verdict}" for name, d in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)
    ax.locator_params(axis="x", nbins=6)
    level = f"{confidence(comparison.alpha)} intervals"
    ax.set_xlabel(  # it may begin left of the axes, and must not end right of them
        f"value less that of {shortened(comparison.baseline, 20)}, {level}", loc="right"
    )
    return ax


# -- words and rounded numbers of differences -----------------------------------------------------


def rounded_ends(d: Interval, sign: float = 1.0) -> tuple[str, str, str]:
    """Estimate, low and high (of the opposite where `sign` is -1), as exact as they are known.

    An end that nothing bounds is "inf" or "-inf".
    """
    low, high = sorted((sign * d.low, sign * d.high))
    ends = [x for x in (low, high) if math.isfinite(x)]
    spread = d.half_width if len(ends) == 2 else max(abs(sign * d.estimate - x) for x in [*ends, 0])
    value, below, above = rounded(spread, sign * d.estimate, low, high)
    return value, below, above


def cost_in_words(comparison: Comparison, name: str) -> str:
    """What an episode costs by a policy alone, with its interval."""
    paid = comparison.costs.get(name)
    if paid is None or not math.isfinite(paid.estimate):
        return "not known"
    if not (math.isfinite(paid.low) or math.isfinite(paid.high)):
        return f"{paid.estimate:.4g}" + (f" +- {paid.se:.2g}" if paid.se > 0 else "")
    value, low, high = rounded_ends(paid)
    return f"{value} ({low} to {high})"


def between_in_words(low: str, high: str) -> str:
    """Both ends in words; few events say nothing about the side of the long tail."""
    if high == "inf":
        return f"at least {low} (too few events for the other end)"
    if low == "-inf":
        return f"at most {high} (too few events for the other end)"
    return f"between {low} and {high}"


def round_guess(n: float) -> str:
    """Two digits are enough for a number that is a guess."""
    if n < 100:
        return f"{math.ceil(n):,}"
    digits = 1 - math.floor(math.log10(n))
    return f"{round(n, digits):,.0f}"


def shortened(name: str, most: int) -> str:
    """A name of at most so many letters."""
    return name if len(name) <= most else name[: most - 1].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
