"""The verdict about the promise on the cost, and its words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from scopeval.estimation.moments import Interval
from scopeval.question.promise import Compared

__all__ = ["Certificate", "Verdict"]

Verdict = Literal["safe", "not refuted", "refuted", "not covered", "not enough evidence"]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What finished episodes of the behavior policy say about its safety promise.

    Attributes:
        difference: Interval for E[D] = J^c(mu) - (1 + epsilon) J^c(pi), in units of cost.
        ratio: Interval for J^c(mu) / J^c(pi). Open above (inf) when the target's cost is not
            separated from 0; the estimate is NaN when no episode has any weighted cost.
        verdict: "safe" when the interval of the difference ends at or below 0, "refuted" when it
            begins above 0, "not refuted" in between. "not covered" takes the place of the last two
            where the behavior policy leaves out actions of the target. "not enough evidence": the
            interval alone would say "safe" or "refuted", but `reasons` speak against trusting it.
        cost: Mean cost of the behavior policy's episodes.
        target_cost: Mean importance-weighted cost: the estimate of the target's.
        epsilon: The promise: at most 1 + epsilon times the target's cost.
        alpha: Probability with which an interval may miss; each of the two firm verdicts is wrong
            with probability alpha / 2 at most ("refuted" by a `Guard`, which spends all of its
            alpha on that side: alpha).
        episodes: Number of episodes.
        largest_cost: The most that one of them cost.
        cost_bound: The most that an episode can cost, as stated. The intervals then hold for every
            number of episodes and every distribution of costs up to it. None: nothing was stated,
            and the intervals hold for many episodes and costs like those seen.
        reasons: Why there is not enough evidence, or none, in words. Where a guard has refuted the
            promise the verdict is "refuted" all the same: these then speak against relying on it.
        expected_cost: Estimate of the behavior policy's expected cost with a control variate, which
            the ratio is about; NaN: there is none, and `cost` takes its place.
        compared: What the promise compares with: the target's cost, that of a reference policy, or
            a limit per episode, which `target_cost` then is.
    """

    difference: Interval
    ratio: Interval
    verdict: Verdict
    cost: float
    target_cost: float
    epsilon: float
    alpha: float
    episodes: int
    largest_cost: float = math.nan
    cost_bound: float | None = None
    reasons: tuple[str, ...] = ()
    expected_cost: float = math.nan
    compared: Compared = "target"

    @property
    def proved(self) -> bool:
        """Whether a firm verdict rests on a stated bound, and not only on the costs seen."""
        return self.cost_bound is not None and self.verdict in ("safe", "refuted")

    @property
    def sentence(self) -> str:
        """The verdict and its numbers in plain words."""
        if self.cost == 0 == self.target_cost:
            rare = 1 - self.alpha ** (1 / self.episodes)
            return (
                f"{self._claim()} None of {self._counted()} had any cost; {self._sure()} fewer "
                f"than {100 * rare:.2g}% of episodes have one."
            )
        spent = f"it cost {self.cost:.4g} per episode"
        if math.isfinite(self.expected_cost):
            spent += f"; its expected cost is estimated as {self.expected_cost:.4g},"
        against = f" against an estimated {self.target_cost:.4g} for the {self._policy()}"
        if self.compared == "limit":
            against = ""
        return (
            f"{self._claim()} Over {self._counted()} {spent}{against}{self._ratio()}.{self._seen()}"
        )

    def _policy(self) -> str:
        return "target" if self.compared == "target" else "reference policy"

    def _claim(self) -> str:
        limit = f"the {self._policy()}'s"
        if self.epsilon != 0:
            limit = f"{1 + self.epsilon:.4g} times {limit}"
        if self.compared == "limit":
            limit = f"the limit of {(1 + self.epsilon) * self.target_cost:.4g} per episode"
        seen = "" if self.proved else " as far as seen"
        if self.verdict == "safe":
            return (
                f"Safe{seen}: {self._sure()} the behavior policy's expected cost is at most "
                f"{limit}."
            )
        if self.verdict == "refuted":
            doubts = f" Caution: {'; '.join(self.reasons)}." if self.reasons else ""
            claim = f"Refuted{seen}: {self._sure()} the behavior policy's expected cost is above"
            if self.reasons:
                claim = f"Refuted{seen}, by the guard: the behavior policy's expected cost is above"
            return f"{claim} {limit}.{doubts}"
        if self.verdict == "not covered":
            return (
                f"Not covered: the behavior policy leaves out actions that the {self._policy()} "
                f"takes, so the {self._policy()}'s cost is underestimated and the promise can be "
                "proved but not refuted."
            )
        if self.verdict == "not enough evidence":
            return (
                "Not enough evidence to say whether the behavior policy's expected cost is at most "
                f"{limit}: {'; '.join(self.reasons)}."
            )
        return (
            f"Not refuted: {self._counted()} cannot tell whether the behavior policy's expected "
            f"cost is at most {limit}{self._more()}."
        )

    def _seen(self) -> str:
        """What the verdict rests on: the stated bound, or what was seen."""
        if self.verdict not in ("safe", "refuted"):
            return ""
        if self.cost_bound is not None:
            return (
                f" This holds for every distribution of costs up to {self.cost_bound:.4g} per "
                "episode, the stated bound."
            )
        if not math.isfinite(self.largest_cost):
            return ""
        return (
            f" No episode cost more than {self.largest_cost:.4g}; events rarer than 3 in "
            f"{self.episodes:,} episodes are not excluded. Promise(bound=...) makes it a proof."
        )

    def _sure(self) -> str:
        return f"with {100 * (1 - self.alpha):.4g}% confidence"

    def _counted(self) -> str:
        return f"{self.episodes:,} episode{'s' if self.episodes != 1 else ''}"

    def _ratio(self) -> str:
        r = self.ratio
        if self.compared == "limit":
            if not math.isfinite(r.high):
                return ""
            low, high = (x * self.target_cost for x in (r.low, r.high))
            return f" (between {low:.4g} and {high:.4g})"
        if math.isfinite(r.high):
            return f", a ratio of {r.estimate:.4g} (between {r.low:.4g} and {r.high:.4g})"
        if math.isfinite(r.low) and r.low > 0:
            return f", a ratio of at least {r.low:.4g}"
        return "; too few episodes to bound the ratio"

    def _more(self) -> str:
        d = self.difference
        if self.cost_bound is not None or d.estimate == 0 or not math.isfinite(d.half_width):
            return ""
        needed = math.ceil(d.n * (d.half_width / d.estimate) ** 2)
        return f" (a difference like the one seen takes about {needed:,})" if needed < 1e7 else ""
