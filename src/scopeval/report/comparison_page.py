"""A comparison as a page: the answer, the differences as a forest plot, a row for each policy."""

from __future__ import annotations

import math

import numpy as np

from scopeval.arrays import Floats
from scopeval.comparison.result import (
    Comparison,
    cost_in_words,
    draw_differences,
    round_guess,
    rounded_ends,
    shortened,
)
from scopeval.estimation.moments import Interval, confidence
from scopeval.report.page import (
    NONE,
    Check,
    Fact,
    Figure,
    Page,
    Section,
    Table,
    Tone,
    Verdict,
    how_to_reproduce,
)
from scopeval.report.svg import (
    INK,
    OPEN,
    OURS,
    SAFE,
    UNSAFE,
    canvas,
    draw_band,
    figure_of,
    noise_figure,
)
from scopeval.report.wording import amount, holds_when, sentence_of

__all__ = ["page_of_comparison"]

_COLORS = {"better": SAFE, "worse": UNSAFE, "undecided": OURS, "failed": OPEN}


def page_of_comparison(
    comparison: Comparison,
    *,
    title: str = "Which policy is better?",
    command: str | None = None,
    seed: int | None = None,
) -> Page:
    """The page of a comparison.

    Args:
        comparison: what `compare` returned.
        title: of the page.
        command: the command that makes it again.
        seed: of the comparison.
    """
    sections = [
        _answered(comparison),
        _spent(comparison),
        _noisy(comparison),
        _trusted(comparison),
        how_to_reproduce(command, seed=seed),
    ]
    return Page(
        title,
        comparison.sentence,
        _verdict(comparison),
        _facts(comparison),
        tuple(section for section in sections if section is not None),
    )


def _verdict(c: Comparison) -> Verdict:
    """The badge."""
    if c.certificate is not None and c.certificate.verdict == "refuted":
        return Verdict("bad", "The promise about the cost was not kept")
    counts = {v: [n for n, d in c.differences.items() if d.verdict == v] for v in _COLORS}
    if c.baseline in c.failures:
        return Verdict("bad", f"{c.baseline} failed")
    if counts["failed"]:
        return Verdict("bad", f"{', '.join(counts['failed'])} failed")
    if counts["undecided"]:
        many = len(counts["undecided"])
        rest = "Undecided" if many == len(c.differences) else f"{many} undecided"
        return Verdict("open", rest)
    if len(c.differences) == 1:
        ((name, d),) = c.differences.items()
        tone: Tone = "good" if d.verdict == "better" else "bad"
        return Verdict(tone, f"{name} is {d.verdict} than {c.baseline}")
    return Verdict("good", f"Decided: {len(counts['better'])} better, {len(counts['worse'])} worse")


def _facts(c: Comparison) -> tuple[Fact, ...]:
    facts = []
    if len(c.differences) == 1:
        ((name, d),) = c.differences.items()
        facts.append(
            Fact(f"{name} less {c.baseline}", _with_ends(d), f"{confidence(d.alpha)} confidence")
        )
    elif c.best is not None:
        sure = "surely the best" if c.best.decided else "may be the best"
        facts.append(Fact("Best", c.best.name, sure))
    facts.append(Fact("Episodes", f"{c.episodes:,}", c.stopped))
    needed = [d.ab_episodes for d in c.differences.values() if math.isfinite(d.ab_episodes)]
    if needed:
        note = "for the same precision of every difference"
        facts.append(Fact("An A/B test", f"about {round_guess(max(needed))} episodes", note))
    if c.cost.total > 0:
        note = f"{amount(c.cost.total)} in total"
        if c.cost_ratio is not None and math.isfinite(c.cost_ratio.estimate):
            note = f"{c.cost_ratio.estimate:.3g} times the baseline's"
        facts.append(Fact("Cost of an episode", amount(c.cost.per_episode), note))
    return tuple(facts)


def _with_ends(d: Interval) -> str:
    if not (math.isfinite(d.low) or math.isfinite(d.high)):
        return "not known"
    value, low, high = rounded_ends(d)
    return f"{value} ({low} to {high})"


def _answered(c: Comparison) -> Section:
    figures = [_forest(c)]
    if (looks := _looks_figure(c)) is not None:
        figures.append(looks)
    header = (
        "policy",
        "value",
        f"less {c.baseline}",
        "verdict",
        "clear after",
        "A/B test",
        "share",
        *(("cost alone",) if c.costs else ()),
    )
    rows: list[tuple[str, ...]] = []
    for name in c.names:
        paid = (cost_in_words(c, name),) if c.costs else ()
        v, d = c.values[name], c.differences.get(name)
        value = _with_ends(v) if math.isfinite(v.estimate) else "no value"
        if d is None:
            share = f"{c.shares[name]:.3g}"
            rows.append((name, value, NONE, "baseline", NONE, NONE, share, *paid))
            continue
        after = NONE if d.decided_after is None else f"{d.decided_after:,}"
        needed = round_guess(d.ab_episodes) if math.isfinite(d.ab_episodes) else NONE
        share = f"{c.shares[name]:.3g}"
        rows.append((name, value, _with_ends(d), d.verdict, after, needed, share, *paid))
    caption = (
        "Values and paired differences; when a difference was clear, how many episodes an A/B test "
        "would have needed for it, and the policy's share of the last episodes"
    )
    caption += "; what an episode costs by the policy alone" if c.costs else ""
    return Section(
        "The answer",
        (f"What ran: {c.ran}.",),
        tuple(figures),
        (Table(caption, header, tuple(rows)),),
    )


def _forest(c: Comparison) -> Figure:
    with canvas(4.8, 1.2 + 0.4 * len(c.differences)) as (drawing, ax):
        draw_differences(c, ax, colors=_COLORS)
        said = "; ".join(
            f"{name}: {_with_ends(d)}, {d.verdict}" for name, d in c.differences.items()
        )
        return figure_of(
            drawing,
            label=f"Forest plot of the differences to {c.baseline}. {said}.",
            caption=f"Each policy's value less that of {c.baseline} (dashed line), by the same "
            "episodes. The intervals hold together.",
        )


def _looks_figure(c: Comparison) -> Figure | None:
    """The differences against the number of episodes, where they were looked at."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    lines = _looks(c)
    if max(map(len, lines.values()), default=0) < 2:
        return None
    every = np.concatenate(list(lines.values()))
    seen = every[:, 1:][np.isfinite(every[:, 1:])]
    margin = 0.05 * np.ptp([*seen, 0.0])
    bottom, top = min(seen.min(), 0.0) - margin, max(seen.max(), 0.0) + margin
    with canvas() as (drawing, ax):
        for k, (name, line) in enumerate(lines.items()):
            n, middle, low, high = line.T
            color = f"C{k % 10}" if len(c.differences) > 1 else _COLORS[c.differences[name].verdict]
            ends = np.clip(low, bottom, None), np.clip(high, None, top)  # an open end leaves it
            label = shortened(name, 20)
            draw_band(ax, n, (middle, *ends), color, label=label, marker="o", ms=3)
        if 1 < len(lines) <= 10:
            ax.legend(loc="best")
        ax.axhline(0.0, color=INK, lw=1.0, ls=":")
        if top > bottom:
            ax.set_ylim(bottom, top)
        if every[:, 0].max() < 10 * every[:, 0].min():
            ax.locator_params(axis="x", nbins=6)
            ax.set_xlabel("episodes")
        else:
            ax.set_xscale("log")
            ax.xaxis.set_minor_formatter(NullFormatter())
            ax.set_xlabel("episodes (logarithmic)")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        ax.set_ylabel(f"value less that of {shortened(c.baseline, 20)}")
        return figure_of(
            drawing,
            label="Lines: the differences against the number of episodes, with their intervals.",
            caption="The differences while the episodes came. Shaded: the anytime-valid intervals; "
            "a policy is better or worse once its interval leaves the dotted line.",
        )


def _looks(c: Comparison) -> dict[str, Floats]:
    """Rows (episodes, difference, low, high) of the looks by policy; an end may be open."""
    lines = {}
    for name in c.differences:
        seen = [(n, *at[name]) for n, at in c.looks if name in at]
        seen = [row for row in seen if math.isfinite(row[1]) and any(map(math.isfinite, row[2:]))]
        if seen:
            lines[name] = np.array(seen, float)
    return lines


def _spent(c: Comparison) -> Section | None:
    if c.certificate is None and c.cost.total <= 0:
        return None
    text = []
    if c.certificate is not None:
        text.append(c.certificate.sentence)
    elif c.cost_ratio is not None and math.isfinite(c.cost_ratio.estimate):
        text.append(
            f"An episode cost {c.cost_ratio.estimate:.4g} times what the baseline's does. Nothing "
            "was promised: an A/B test with the same shares costs as much."
        )
    return Section("Cost and safety", tuple(text)) if text else None


def _noisy(c: Comparison) -> Section | None:
    """What exogenous paths have taken out."""
    if not c.context:
        return None
    several = len(c.context) > 1
    return Section(
        "Where the noise is",
        tuple(
            sentence_of(f"{name}: {one.sentence}" if several else one.sentence)
            for name, one in c.context.items()
        ),
        tuple(noise_figure(one, name if several else "") for name, one in c.noise.items()),
    )


def _trusted(c: Comparison) -> Section:
    checks = [Check("bad", sentence_of(text)) for text in c.warnings]
    one = next(iter(c.differences.values()))
    checks.append(Check("good", holds_when(one, c.stopped)))
    for name, d in c.differences.items():
        if d.shared == 0.0:
            text = f"No episode could serve both {name} and {c.baseline}: a plain A/B test."
            checks.append(Check("open", text))
    if c.lost:
        text = f"{c.lost:,} episodes could not be finished; values are biased if losses depend on "
        checks.append(Check("bad", text + "what a policy does."))
    else:
        checks.append(Check("good", f"All {c.episodes:,} episodes were finished."))
    checks += [Check("bad", f"{name} failed: {text}.") for name, text in c.failures.items()]
    checks += [
        Check("plain", f"{name} was dropped after {after:,} episodes: others are surely better.")
        for name, after in c.dropped.items()
    ]
    used = ", ".join(f"{name} {share:.0%}" for name, share in c.estimators.items())
    checks.append(Check("plain", f"Estimators that held-out episodes chose: {used}."))
    return Section("Diagnostics", checks=tuple(checks))
