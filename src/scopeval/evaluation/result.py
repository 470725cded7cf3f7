"""The result of an evaluation: the estimate, its interval, its cost, the certificate."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from scopeval.collection.episodes import Episodes
from scopeval.context.report import ContextReport
from scopeval.estimation.estimators import BIASED
from scopeval.estimation.moments import BURN_IN, Interval, confidence, counted
from scopeval.evaluation.noise import Noise
from scopeval.evaluation.stage_report import Learning, Stage
from scopeval.safety.certificate import UNSEEN, Certificate
from scopeval.safety.guard import GuardState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "Diagnostics",
    "Evaluation",
    "GuardReport",
    "OnPolicy",
    "Spent",
    "blind",
    "no_interval",
    "one_end",
    "plain_numbers",
    "rounded",
    "unseen",
]

#: Fields of an `Evaluation` that are dataclasses, or None.
_PARTS = (
    "interval", "cost", "certificate", "diagnostics", "guard", "on_policy", "learning", "context",
    "certificate_at_own_cost",
)  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """The cost of the evaluation (not discounted).

    Attributes:
        per_episode: mean over the finished episodes.
        total: of all episodes, lost ones included up to where they failed.
    """

    per_episode: float
    total: float


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of the estimate.

    Attributes:
        effective_size: number of equally weighted episodes with the same precision (Kish).
        largest_weight: the largest weight of an episode.
        tail_index: Pareto k of the weights; above 0.7 the interval is too narrow. None: no spread.
        mean_weight: of whole episodes; 1 in expectation where the behavior covers the target.
        mean_weight_error: its standard error.
        fallbacks: steps at which the behavior policy failed and fell back to the target policy.
        guarded: steps that the guard gave to the target.
        lost: episodes that could not be finished.
        first_loss: what happened to the first of them.
        behavior: how often a learned behavior policy was asked, and why it fell back.
        warnings: problems, in words; empty when there are none.
        caveats: those of them that speak against trusting the interval; the sentence has them too.
    """

    effective_size: float
    largest_weight: float
    tail_index: float | None
    mean_weight: float
    mean_weight_error: float
    fallbacks: int
    guarded: int
    lost: int
    first_loss: str | None
    behavior: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True)
class OnPolicy:
    """The cost of running the target itself, estimated from the same episodes.

    With W the weight of an episode and G its return, E_mu[W (G - J)^2] is the variance of pi's
    return, and the weighted cost has the mean of pi's, so that pi need not be run.

    Attributes:
        variance: of one on-policy return; NaN where unknown.
        variance_error: its standard error.
        cost: of one on-policy episode.
        episodes: that would give the same precision.
        total: the cost of those.
        unknown: why the comparison cannot be made, in words; None when it can.
    """

    variance: float
    variance_error: float
    cost: float
    episodes: float
    total: float
    unknown: str | None = None


@dataclass(frozen=True)
class GuardReport:
    """What the guard did.

    Attributes:
        switched_after: number of episodes after which the target, or the baseline, took over; None:
            never.
        state: its last state.
        cause: what made it switch, where it was not the promise that the state is about: a limit,
            or an operator, of a campaign; None: the state says it.
        to: who took over; None: nobody, the evaluation ended.
    """

    switched_after: int | None
    state: GuardState
    cause: str | None = None
    to: str | None = "the target"

    @property
    def switch(self) -> str:
        """To whom it switched, and when; "" if it did not."""
        if self.switched_after is None:
            return ""
        did = "ended the evaluation" if self.to is None else f"switched to {self.to}"
        return f"{did} {self.when}"

    @property
    def when(self) -> str:
        """After how many episodes it switched, in words."""
        n = self.switched_after or 0
        return f"after {counted(n)}" if n else "in the first episode"

    @property
    def sentence(self) -> str:
        """Whether it switched, to whom, when, and why at first."""
        if self.switched_after is None:
            return "checked every batch and did not switch"
        return f"{self.switch}: {self.cause or self.state.reason or 'the reason is not known'}"


@dataclass(frozen=True)
class Evaluation:
    """The value of a policy, with everything that belongs to it.

    Attributes:
        estimate: of J(pi). NaN where the episodes tell too little about pi, because their weights
            leave too few effective episodes; the interval is then the whole line. (NaN, and not
            None: it is a number in every other case, and sums and plots with NaN stay unknown.)
        interval: confidence interval; its `method` says which. "asymptotic sequence" is valid
            however the number of episodes was decided, as far as seen: events rarer than 3 in so
            many episodes are not excluded. "bets" is valid for any number of them and any returns
            within the stated bounds, the others when the number was fixed in advance.
        cost: the cost of the evaluation.
        certificate: whether what was asked about the cost was kept (`epsilon`); in stages by all
            episodes together. None without costs.
        diagnostics: of the weights, fallbacks and losses.
        guard: what the guard did; None without one.
        on_policy: the cost of running the target itself.
        estimator: its name.
        finished: episodes that the estimate comes from.
        started: all episodes.
        by_target: finished episodes that the target itself ran.
        stopped: why there were no more episodes, in words.
        episodes: everything that was recorded, where it was kept.
        stages: what was run in each stage, and what it showed; empty without stages.
        learning: what was learned between stages; None without stages.
        context: what exogenous paths have done as a control variate; None: not used.
        advice: what would take out most of the variance, in words.
        certificate_at_own_cost: in stages, where less than the target's own cost was asked: whether
            all episodes together cost at most the target's own, which the guard watches; else None.
        unconfirmed: why the logs confirm no design, so that the target itself ran; None: they do,
            or nothing was designed.
        standard_error: of the estimate; NaN with fewer than two episodes, or without an estimate.
    """

    estimate: float
    interval: Interval
    cost: Spent
    certificate: Certificate | None
    diagnostics: Diagnostics
    guard: GuardReport | None
    on_policy: OnPolicy
    estimator: str
    finished: int
    started: int
    by_target: int
    stopped: str
    episodes: Episodes | None = field(default=None, repr=False)
    stages: tuple[Stage, ...] = ()
    learning: Learning | None = None
    context: ContextReport | None = None
    advice: tuple[str, ...] = ()
    certificate_at_own_cost: Certificate | None = None
    unconfirmed: str | None = None
    standard_error: float = math.nan

    @property
    def noise(self) -> Noise | None:
        """Where a return's variance went; None: no context was used, or it is not known."""
        if self.context is None or self.on_policy.unknown or not self.on_policy.episodes > 0:
            return None
        if self.by_target == self.finished:  # nothing was designed
            return Noise(0.0, 1.0 - self.context.relative_variance, self.context.relative_variance)
        left = self.finished / self.on_policy.episodes
        before = left / self.context.relative_variance
        return Noise(1.0 - before, before - left, left)

    @property
    def safety_told(self) -> tuple[str, ...]:
        """What is known about the promises on the cost, in words; empty where there are none.

        Where the target itself ran every episode only a promise below its own cost can be broken.
        """
        c, at_own_cost = self.certificate, self.certificate_at_own_cost
        if c is None or (self.by_target == self.finished and c.epsilon >= 0):
            return ()
        if at_own_cost is None:
            return (c.sentence,)
        whole = "This is about all episodes together, those of the target policy itself included."
        return f"{c.sentence} {whole}", at_own_cost.sentence

    @property
    def on_policy_cost(self) -> float | None:
        """The cost of on-policy evaluation to the same precision; None: unknown."""
        return None if self.on_policy.unknown else self.on_policy.total

    @property
    def sentence(self) -> str:
        """The answer in one sentence, and in another what speaks against trusting it."""
        before = ""
        if self.unconfirmed is not None:
            before = f"The policy itself was run, the logs confirm no design: {self.unconfirmed}. "
        if not self.known:
            return before + self._nothing()
        said = f"{before}The policy's value is {self._number()}"
        said += f", from {counted(self.finished)}"
        if self.started > self.finished:
            said += f" ({self.started - self.finished:,} more were lost)"
        if self.cost.total > 0:
            said += f" at a cost of {self._spent()}"
        said += self._by() + self._compared() + "."
        caveats = "; ".join(self.diagnostics.caveats)
        return f"{said} Caution: {caveats}." if caveats else said

    @property
    def known(self) -> bool:
        """Whether the episodes tell anything about the value."""
        return not math.isnan(self.estimate)

    def _nothing(self) -> str:
        spent = f" They cost {self._spent()}." if self.cost.total > 0 else ""
        size = self.diagnostics.effective_size
        much, why = "nothing", "all of their weights are zero"
        if size:
            much = "too little"
            why = f"their weights leave an effective number of {size:.1f} episodes"
        return (
            f"These {counted(self.finished)} tell {much} about the policy's value: "
            f"{why}, so that there is no estimate and no interval. Run more episodes, with a "
            f"behavior policy that is closer to the policy, or the policy itself.{spent}"
        )

    def _spent(self) -> str:
        return f"{self.cost.per_episode:.4g} each ({_sum(self.cost.total)} in total)"

    def _by(self) -> str:
        """What a reader must know about the estimator."""
        if self.estimator in BIASED:
            return f", by {BIASED[self.estimator]}"
        name, function, _ = self.estimator.partition(" (a function)")
        if not function:
            return ""
        return f", by the function {name}, whose values are taken to be independent and unbiased"

    def _number(self) -> str:
        interval = self.interval
        if not math.isfinite(interval.half_width):
            seen = f" ({unseen(interval)})" if blind(interval) and one_end(interval) else ""
            return f"about {interval.estimate:.4g}, with {no_interval(interval)}{seen}"
        value, low, high = rounded(
            interval.half_width, interval.estimate, interval.low, interval.high
        )
        if interval.half_width == 0:
            return f"{value} in every episode, so that there is no spread for an interval"
        said = f"{value}, with {confidence(interval.alpha)} confidence between {low} and {high}"
        return said + (f" as far as seen ({unseen(interval)})" if blind(interval) else "")

    def _compared(self) -> str:
        on_policy = self.on_policy
        if on_policy.unknown or self.by_target == self.finished:
            return ""
        many = counted(max(round(on_policy.episodes), 1))
        if on_policy.total <= 0 or self.cost.total <= 0:
            return f"; running the policy itself would have taken about {many}"
        ratio = on_policy.total / self.cost.total
        times = ", as much" if 0.95 < ratio < 1.05 else f", {ratio:.2g} times as much"
        if ratio <= 0.95:
            times = f": this evaluation cost {1 / ratio:.2g} times as much"
        return (
            f"; running the policy itself to the same precision would have taken about {many} and "
            f"cost {_sum(on_policy.total)}{times}"
        )

    def summary(self, width: int = 80) -> str:
        """The answer in one sentence, then the details."""
        d = self.diagnostics
        lines = [textwrap.fill(self.sentence, width)]

        def add(name: str, text: str) -> None:
            lines.append(
                textwrap.fill(
                    text, width, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13
                )
            )

        add("interval", f"{self._interval()}; {self.stopped}")
        add("estimator", self.estimator)
        if self.context is not None:
            add("context", self.context.sentence)
        if self.noise is not None:
            add("noise", self.noise.sentence)
        for text in self.advice:
            add("try", text)
        for name, text in self._staged():
            add(name, text)
        for text in self.safety_told:
            add("safety", text)
        if self.by_target == self.finished and not self.safety_told:
            add("safety", "the policy itself was run: there is nothing to certify")
        if self.guard is not None:
            add("guard", self._guard())
        if self.by_target < self.finished:
            add("weights", self._weights())
            if self.on_policy.unknown:
                add("on-policy", f"comparison unknown: {self.on_policy.unknown}")
        if d.lost:
            add(
                "lost",
                f"{counted(d.lost)} of {self.started:,} could not be finished (the "
                f"first: {d.first_loss}); the estimate is that of the finished episodes, and "
                "biased if losses depend on what the policy does",
            )
        kept = {name: n for name, n in d.behavior.items() if n and name != "asked"}
        if d.fallbacks or kept:
            why = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in kept.items())
            parts = [f"{d.fallbacks:,} steps because it failed"] if d.fallbacks else []
            parts += [f"of {d.behavior['asked']:,} decisions: {why}"] if kept else []
            add("fell back", "; ".join(parts))
        for text in d.warnings:
            if text not in d.caveats:  # those are in the sentence
                add("warning", text)
        return "\n".join(lines)

    def _staged(self) -> list[tuple[str, str]]:
        """The stages, and what was learned between them, as lines of the summary."""
        if self.learning is None:
            return []
        lines = [(f"stage {stage.number}", stage.sentence) for stage in self.stages]
        learning = self.learning
        if learning.stopped is not None:
            lines.append(("refitting", f"stopped: {learning.stopped}"))
        lines += [
            ("logs" if a.what == "the logs" else "drift", a.sentence) for a in learning.notable
        ]
        if learning.payback is not None:
            lines.append(("budget", learning.payback.sentence))
        lines.append(
            (
                "precise",
                f"the standard error was within twice its last value after "
                f"{counted(learning.precise_after)}",
            )
        )
        return lines

    def _interval(self) -> str:
        if self.interval.method == "bets":
            return (
                "exact: it holds for any number of episodes and any returns within the stated "
                "bounds"
            )
        if self.interval.method == "asymptotic sequence":
            return (
                "anytime-valid as far as seen: it holds however the number of episodes was "
                f"decided, but {unseen(self.interval)}; stating return_bound makes it hold for any "
                "returns"
            )
        if self.interval.method == "studentized martingale":
            return "studentized martingale, for stages whose lengths were fixed in advance"
        return f"{self.interval.method}, for a number of episodes fixed in advance"

    def _guard(self) -> str:
        assert self.guard is not None
        if self.guard.switched_after is None and self.certificate_at_own_cost is not None:
            return (
                f"{self.guard.sentence}; in stages it guards the target's own cost, not the lower "
                "one that was asked: handing over to the target would not lower the cost"
            )
        return self.guard.sentence

    def _weights(self) -> str:
        d = self.diagnostics
        tail = "" if d.tail_index is None else f", tail index {d.tail_index:.2f}"
        return (
            f"mean {d.mean_weight:.3f} +- {d.mean_weight_error:.3f} (expected: 1), largest "
            f"{d.largest_weight:.3g}{tail}, effective number of episodes {d.effective_size:,.0f}"
        )

    def __str__(self) -> str:
        return self.summary()

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for every stage, if there are any, and one for all of them."""
        from scopeval.evaluation.result_views import evaluation_columns
        from scopeval.notebook.frame import frame_of

        return frame_of(evaluation_columns(self.to_dict()), index="part")

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the interval, those of the stages, and what the policy itself would have given."""
        from scopeval.evaluation.result_views import draw_evaluation

        return draw_evaluation(self.to_dict(), ax)

    def _repr_html_(self) -> str:
        from scopeval.evaluation.result_views import evaluation_card

        return evaluation_card(self.to_dict()).html()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the episodes, ready for JSON; infinite and undefined numbers are None."""
        content = {name: getattr(self, name) for name in self.__dataclass_fields__}
        content.pop("episodes")
        content["stages"] = [stage.as_dict() for stage in self.stages]
        for name in _PARTS:
            if content[name] is not None:
                content[name] = asdict(content[name])
        for name in ("certificate", "certificate_at_own_cost"):
            if content[name] is not None:
                content[name]["sentence"] = getattr(self, name).sentence
        if self.guard is not None:
            content["guard"]["sentence"] = self._guard()
        content |= {
            "sentence": self.sentence,
            "safety_told": self.safety_told,
            "on_policy_cost": self.on_policy_cost,
            "noise": None if self.noise is None else _of_noise(self.noise),
        }
        plain = plain_numbers(content)
        assert isinstance(plain, dict)
        return plain


def _of_noise(noise: Noise) -> dict[str, Any]:
    """Ready for JSON."""
    return asdict(noise) | {"sentence": noise.sentence}


def blind(interval: Interval) -> bool:
    """Whether an interval that is said to hold at all times holds only as far as seen."""
    return interval.method == "asymptotic sequence" and interval.half_width > 0


def unseen(interval: Interval) -> str:
    """What an interval without a stated bound cannot exclude, in words: the rule of three."""
    return f"events rarer than {UNSEEN} in {counted(interval.n)} are not excluded"


def one_end(interval: Interval) -> bool:
    """Whether one end of an interval is known, and the other is open."""
    return math.isfinite(interval.low) != math.isfinite(interval.high)


def no_interval(interval: Interval) -> str:
    """The end of an interval that is known, or why none is, in words.

    A confidence sequence begins at a certain number of values, and says nothing about the side of
    a long tail before that has been seen.
    """
    if one_end(interval):
        side, end = "at most", interval.high
        if math.isfinite(interval.low):
            side, end = "at least", interval.low
        seen = " as far as seen" if blind(interval) else ""
        number = rounded(abs(interval.estimate - end), end)[0]
        return f"{confidence(interval.alpha)} confidence that it is {side} {number}{seen}"
    begins = interval.method == "asymptotic sequence" and interval.n < BURN_IN
    return "too few episodes for an interval" + (f", which begins at {BURN_IN}" if begins else "")


def rounded(spread: float, *numbers: float) -> list[str]:
    """Numbers with as many digits as a spread of that size justifies (two of the spread's)."""
    if not math.isfinite(spread) or spread <= 0:
        return [f"{x:.6g}" for x in numbers]
    places = 1 - math.floor(math.log10(spread))
    if places > 12:
        return [f"{x:.12g}" for x in numbers]
    written = [f"{x:,.{max(places, 0)}f}" for x in numbers]
    return [x.removeprefix("-") if float(x.replace(",", "")) == 0 else x for x in written]


def _sum(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.4g}"


def plain_numbers(value: Any) -> Any:
    """Ready for JSON: infinite and undefined numbers are None."""
    if isinstance(value, Mapping):
        return {str(key): plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_numbers(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
