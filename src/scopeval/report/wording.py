"""The first lines of an evaluation's page: the answer, the verdict, the headline numbers."""

from __future__ import annotations

import math

from scopeval.estimation.moments import Interval, confidence, counted
from scopeval.evaluation.result import Evaluation, blind, no_interval, one_end, rounded, unseen
from scopeval.report.page import Fact, Verdict
from scopeval.safety.certificate import Certificate

__all__ = [
    "amount",
    "answer_of",
    "by_itself",
    "facts_of",
    "holds_when",
    "per_episode",
    "promise_in_words",
    "sentence_of",
    "signed",
    "verdict_of",
    "with_error",
]

#: What a certificate says, in the answer and as a badge.
_SAFETY = {
    "safe": ("and safely", "good", "Safe"),
    "refuted": ("but not safely", "bad", "Not safe"),
    "not refuted": ("though not yet proved safe", "open", "Safety not decided"),
    "not covered": ("though its safety is unknown", "open", "Safety unknown"),
    "not enough evidence": (
        "though there is not enough evidence about its safety",
        "open",
        "Not enough evidence about safety",
    ),
}

#: Whose cost a ratio is about, by what the promise compares with.
_OWN = {"target": "the policy's own", "reference": "the baseline's", "limit": "the limit"}

#: What a table says about a promise: with a stated bound on costs, and without.
_PROVED = {"safe": "proved", "refuted": "DISPROVED"}
_SEEN = {
    "safe": "safe as far as seen",
    "refuted": "NOT KEPT as far as seen",
    "not refuted": "not decided",
    "not covered": "not known",
    "not enough evidence": "too few episodes",
}


def answer_of(e: Evaluation) -> str:
    """Estimate, interval, saved cost, safe or not: one sentence."""
    interval = e.interval
    if not e.known:
        return e.sentence
    if math.isfinite(interval.half_width):
        value, low, high = rounded(
            interval.half_width, interval.estimate, interval.low, interval.high
        )
        sure = confidence(interval.alpha)
        seen = " as far as seen" if blind(interval) else ""
        said = f"The policy is worth {value} ({sure} confidence{seen}: {low} to {high})"
        if interval.half_width == 0:
            said = f"The policy is worth {value}, the same in every episode"
    else:
        said = f"The policy is worth about {interval.estimate:.4g}, with {no_interval(interval)}"
    if by_itself(e):
        spent = f" at a cost of {amount(e.cost.total)}" if e.cost.total > 0 else ""
        return f"{said}, from {counted(e.finished)} of the policy itself{spent}."
    return f"{said}, {_saving(e)}{_safety(e)}."


def _saving(e: Evaluation) -> str:
    saved = _saved(e)
    if saved is None:
        return f"found in {counted(e.finished)}"
    paid = e.cost.total > 0
    if saved < -1:
        said = f"found {'at' if paid else 'in'} {_times(1 - saved)} times the "
        said += "cost" if paid else "episodes"
        return f"{said} that running the policy itself to the same precision takes"
    if paid:
        said = f"found at {abs(saved):.0%} {'less' if saved > 0 else 'more'} cost"
    else:
        said = f"found in {abs(saved):.0%} {'fewer' if saved > 0 else 'more'} episodes"
    return f"{said} than by running the policy itself to the same precision"


def _times(x: float) -> str:
    """A multiple in two digits."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.2g}"


def _safety(e: Evaluation) -> str:
    c = e.certificate
    if c is None:
        return ""
    said = f", {_words(e, c)[0]}{_seen(c)}"
    if c.verdict == "not covered":
        said += ", because it leaves out actions of the policy"
    elif not math.isnan(c.ratio.estimate):
        said += (
            f": an episode costs {c.ratio.estimate:.3g} times {_OWN[c.compared]} "
            f"(allowed: {1 + c.epsilon:.4g})"
        )
    if e.guard is not None and e.guard.switched_after is not None:
        # why, unless it is the verdict that was just told
        same = e.guard.cause is None and e.guard.state.refuted and c.verdict == "refuted"
        said += (
            f", so that the guard {e.guard.switch}" if same else f"; the guard {e.guard.sentence}"
        )
    return said


def _words(e: Evaluation, c: Certificate) -> tuple[str, str, str]:
    """What it says in the answer, its tone, and its badge.

    In stages, more than a cost below the policy's own need not be more than the policy's own.
    """
    at_own_cost = e.certificate_at_own_cost
    if c.verdict == "refuted" and at_own_cost is not None and at_own_cost.verdict != "refuted":
        return "but at more than the cost that was asked", "bad", "Above the cost that was asked"
    return _SAFETY[c.verdict]


def _seen(c: Certificate) -> str:
    """A firm verdict without a stated bound rests on the costs that were seen."""
    return "" if c.proved or c.verdict not in ("safe", "refuted") else " as far as seen"


def verdict_of(e: Evaluation) -> Verdict:
    """Safe or not, in a few words."""
    if e.guard is not None and e.guard.switched_after is not None:
        return Verdict("bad", f"The guard switched {e.guard.when}")
    if by_itself(e):
        return Verdict("plain", "The policy itself was run: nothing to certify")
    if e.certificate is None:
        return Verdict("plain", "No costs: nothing to certify")
    _, tone, text = _words(e, e.certificate)
    firm = e.certificate.verdict in ("safe", "refuted")
    sure = f", with {confidence(e.certificate.alpha)} confidence" if firm else ""
    return Verdict(tone, text + _seen(e.certificate) + sure)  # type: ignore[arg-type]


def promise_in_words(e: Evaluation) -> str:
    """What was promised about the cost, and the verdict; empty where nothing was promised."""
    c = e.certificate
    if c is None or by_itself(e):
        return ""
    most = f"at most {1 + c.epsilon:.4g}"
    if c.compared == "limit":
        most = f"at most {(1 + c.epsilon) * c.target_cost:.4g} an episode"
    elif c.compared == "reference":
        most += " of the reference's"
    if e.guard is not None and e.guard.switched_after is not None:
        return f"{most}: guard switched"
    return f"{most}: {_PROVED[c.verdict] if c.proved else _SEEN[c.verdict]}"


def facts_of(e: Evaluation) -> tuple[Fact, ...]:
    """The headline numbers."""
    interval = e.interval
    sure = (
        confidence(interval.alpha) + " confidence" + (", as far as seen" if blind(interval) else "")
    )
    if not math.isfinite(interval.half_width):
        sure = no_interval(interval) if e.known else "these episodes tell too little about it"
    facts = [Fact("Value of the policy", with_error(e), sure)]
    saved = _saved(e)
    if saved is not None:
        what = "Cost" if e.cost.total > 0 else "Episodes"
        number = f"{abs(saved):.0%}" if saved >= -1 else f"{_times(1 - saved)} times"
        against = "against the policy itself, to the same precision"
        name = "saved" if saved >= 0 else "added" if saved >= -1 else "spent"
        facts.append(Fact(f"{what} {name}", number, against))
    c = e.certificate
    if c is not None and not by_itself(e) and not math.isnan(c.ratio.estimate):
        ends = f" ({c.ratio.low:.3f} to {c.ratio.high:.3f})" if math.isfinite(c.ratio.high) else ""
        facts.append(
            Fact(
                "Cost of an episode",
                f"{c.ratio.estimate:.3f}",
                f"times {_OWN[c.compared]}{ends}; allowed: {1 + c.epsilon:g}",
            )
        )
    spent = f"total cost {amount(e.cost.total)}" if e.cost.total > 0 else ""
    facts.append(Fact("Episodes", f"{e.finished:,}", spent))
    return tuple(facts)


def _saved(e: Evaluation) -> float | None:
    """Share of the cost (or, without costs, of the episodes) that running mu saved."""
    on_policy = e.on_policy
    if on_policy.unknown is not None or by_itself(e):
        return None
    if e.cost.total > 0 and on_policy.total > 0:
        return 1 - e.cost.total / on_policy.total
    return 1 - e.finished / on_policy.episodes if on_policy.episodes > 0 else None


def holds_when(interval: Interval, stopped: str) -> str:
    """When an interval holds; `stopped`: why there were no more episodes."""
    if interval.method == "bets":
        return (
            "The interval is exact: it holds for any number of episodes and any distribution of "
            "returns within the stated bounds."
        )
    if interval.method == "asymptotic sequence":
        return (
            "The interval is anytime-valid as far as seen: it holds however the number of episodes "
            f"was decided, but {unseen(interval)}."
        )
    if interval.method == "clustered t":
        return "The interval allows episodes of one group to depend on each other."
    if interval.method == "studentized martingale":
        return (
            "The interval (studentized martingale) is valid although the stages adapt; their "
            f"lengths were fixed in advance ({stopped})."
        )
    return (
        f"The interval ({interval.method}) is valid if the number of episodes was fixed in "
        f"advance ({stopped})."
    )


# -- numbers as words --------------------------------------------------------------------------


def by_itself(e: Evaluation) -> bool:
    """Whether the policy itself ran every episode."""
    return e.by_target == e.finished


def with_error(e: Evaluation) -> str:
    """The estimate and its half-width, with as many digits as the half-width justifies."""
    width = e.interval.half_width
    if not e.known:
        return "not known"
    if not math.isfinite(width):
        known = f" ({no_interval(e.interval)})" if one_end(e.interval) else ""
        return f"{e.estimate:.4g}{known}"
    value, half = rounded(width, e.estimate, width)
    return f"{value} ± {half}"


def signed(x: float, spread: float) -> str:
    """A difference with its sign, and the digits that a spread of that size justifies."""
    text = rounded(spread, abs(x))[0]
    if not float(text.replace(",", "")):
        return text
    return ("+" if x > 0 else "\N{MINUS SIGN}") + text


def amount(x: float) -> str:
    """A cost: whole from a hundred on, else three digits."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def per_episode(x: float) -> str:
    """The cost of an episode: four digits, whole from a thousand on."""
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:#.4g}"


def sentence_of(text: str) -> str:
    """A remark as a sentence."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?")) else ".")
