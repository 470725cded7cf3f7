"""What an evaluation in stages reports of each stage, and of what it learned."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from scopeval.behavior.summary import Prediction
from scopeval.policies.protocols import Behavior, Policy
from scopeval.safety.certificate import Certificate

__all__ = ["Agreement", "Learning", "Payback", "Stage", "precise_after"]


@dataclass(frozen=True)
class Stage:
    """One stage: what was run, and what it showed.

    Attributes:
        number: from 1 on.
        episodes: that were finished.
        by_target: of them, those that the target policy itself ran.
        why: what was run, and why, in words.
        designed: whether the design was made for this stage.
        rows: logged steps that the design was learned from; 0 for none.
        seconds: that the design took.
        prediction: of the design; None for the target policy itself.
        share: of the stage's estimate in the whole, decided before the stage.
        estimate: mean of the stage's values.
        variance: of one value.
        cost: of one episode, on average.
        epsilon: the stage's own promise.
        certificate: about that promise; None for the target policy itself, and without costs.
        refuted: why the guard gave the rest to the target policy; None: it did not.
        standard_error: of the whole estimate after this stage.
        warnings: of the design.
        behavior: the behavior policy; None for the target policy itself.
        parts: number of episodes and share of one of them, in order; one part, unless the weight
            changed within the stage (`Campaign`).
    """

    number: int
    episodes: int
    by_target: int
    why: str
    designed: bool
    rows: int
    seconds: float
    prediction: Prediction | None
    share: float
    estimate: float
    variance: float
    cost: float
    epsilon: float
    certificate: Certificate | None
    refuted: str | None
    standard_error: float
    warnings: tuple[str, ...] = ()
    behavior: Behavior | Policy | None = field(default=None, repr=False)
    parts: tuple[tuple[int, float], ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Everything but the behavior policy."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        del content["behavior"]
        for name in ("prediction", "certificate"):
            content[name] = None if content[name] is None else asdict(content[name])
        return content

    @property
    def on_policy(self) -> bool:
        """Whether the target policy itself was run."""
        return self.by_target == self.episodes

    @property
    def about_target(self) -> bool:
        """Whether the promise is about the target policy's own cost."""
        return self.certificate is None or self.certificate.compared == "target"

    @property
    def sentence(self) -> str:
        """The stage in one sentence."""
        said = f"{self.episodes:,} episodes, {self.why}"
        if self.prediction is not None:
            p = self.prediction
            said += (
                f" (predicted variance {p.variance:.2f}, cross-checked {p.checked_variance:.2f}; "
                f"cost {p.cost:.2f})"
            )
        if self.certificate is not None:
            times = "" if self.epsilon == 0 else f"{1 + self.epsilon:.3g} times "
            compared = {
                "target": f"{times}the target policy's cost",
                "reference": f"{times}the baseline's cost",
                "limit": "the limit",
            }[self.certificate.compared]
            said += f"; at most {compared}: {self.certificate.verdict}"
        if self.refuted is not None and self.about_target:
            said += "; the guard gave the rest to the target policy"
        elif self.refuted is not None:
            said += "; the guard ended the evaluation"
        return said


@dataclass(frozen=True)
class Agreement:
    """Whether older data agree with new episodes about rewards, costs and next observations.

    Attributes:
        what: which older data: "the logs" or "earlier stages".
        stage: number of the stage whose episodes they were compared with.
        p_value: probability of so large a disagreement in one environment that did not change.
        column: where the disagreement is largest: "reward", "cost" or "next observation".
        rows: of the new episodes that could be compared.
        agrees: whether the data are used on.
    """

    what: str
    stage: int
    p_value: float
    column: str
    rows: int
    agrees: bool

    @property
    def sentence(self) -> str:
        """In words."""
        about = f"{self.what} and the episodes of stage {self.stage}"
        if self.agrees:
            return f"{about} agree (p = {self.p_value:.2g}, {self.rows:,} steps compared)"
        verdict = f"{about} disagree about the {self.column} (p = {self.p_value:.2g})"
        if self.what == "the logs":
            return f"{verdict}: the logs were dropped"
        return (
            f"{verdict}: the environment seems to have changed before stage {self.stage}. Designs "
            "forget what came before; the estimate is a mixture of the values before and after"
        )


@dataclass(frozen=True)
class Payback:
    """A cost budget below the target policy's own, which the first stages cannot keep.

    Costs are relative to the target policy's.

    Attributes:
        promise: "stage": every stage after the first is asked to cost at most 1 + epsilon;
            "total": all episodes together are.
        asked: 1 + epsilon.
        predicted: relative cost of all episodes together, by the designs' predictions and the
            doubt about them.
        after: number of episodes after which the total is predicted to be within what was asked;
            None: not within this evaluation.
    """

    promise: str
    asked: float
    predicted: float
    after: int | None

    @property
    def sentence(self) -> str:
        """Which promise holds, in words."""
        if self.promise == "stage":
            said = (
                f"asked of every stage after the first: {self.asked:.3g} of the target policy's "
                f"cost; all episodes together are predicted to cost {self.predicted:.3g}"
            )
        else:
            said = (
                f"asked of all episodes together: {self.asked:.3g} of the target policy's cost; "
                f"predicted: {self.predicted:.3g}"
            )
        if self.after is None:
            return f"{said}; what the first stages cost more is not paid back in this evaluation"
        return f"{said}; what the first stages cost more is paid back after {self.after:,} episodes"


@dataclass(frozen=True)
class Learning:
    """What an evaluation in stages learned.

    Attributes:
        refits: number of designs that were made.
        seconds: that they took.
        stopped: why refitting stopped before the last stage; None: it did not.
        agreements: of older data with new episodes.
        payback: with a cost budget below the target policy's own; else None.
        precise_after: number of episodes after which the standard error was at most twice the
            last one.
    """

    refits: int
    seconds: float
    stopped: str | None
    agreements: tuple[Agreement, ...]
    payback: Payback | None
    precise_after: int

    @property
    def changed(self) -> tuple[Agreement, ...]:
        """Where older data do not agree with new episodes."""
        return tuple(one for one in self.agreements if not one.agrees)

    @property
    def notable(self) -> tuple[Agreement, ...]:
        """What a user should know: disagreements, and that the logs were used to the end."""
        logs = [one for one in self.agreements if one.what == "the logs"]
        return (*self.changed, *(logs[-1:] if logs and logs[-1].agrees else ()))


def precise_after(stages: tuple[Stage, ...]) -> int:
    """Episodes after which the standard error was at most twice the last one."""
    done, last = 0, stages[-1].standard_error
    for stage in stages:
        done += stage.episodes
        if math.isfinite(last) and stage.standard_error <= 2.0 * last:
            return done
    return done
