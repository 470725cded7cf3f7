"""The plan of a stage (`evaluation.stage_design.Plan`) as it stands in the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scopeval.behavior.summary import Prediction
from scopeval.campaign.allotment import Expected
from scopeval.campaign.terms import Terms
from scopeval.evaluation.refitting import Refitting, expected_progress, expected_variance
from scopeval.evaluation.stage_budget import StageBudget
from scopeval.evaluation.stage_design import Plan
from scopeval.evaluation.stage_report import Agreement

__all__ = ["StagePlan", "budget_after", "expected_of"]


@dataclass(frozen=True)
class StagePlan:
    """What a stage runs, and what was learned before it.

    Attributes:
        plan: of the stage, without the behavior policy itself.
        agreements: of older data with the episodes before it.
        stopped: why there are no more refits; None: there may be.
    """

    plan: Plan
    agreements: tuple[Agreement, ...] = ()
    stopped: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        p = self.plan
        return {
            "prediction": None if p.prediction is None else asdict(p.prediction),
            "epsilon": p.epsilon,
            "why": p.why,
            "new": p.new,
            "rows": p.rows,
            "seconds": p.seconds,
            "warnings": list(p.warnings),
            "agreements": [asdict(one) for one in self.agreements],
            "stopped": self.stopped,
        }

    @classmethod
    def of_event(cls, data: Mapping[str, Any], text: str) -> StagePlan:
        """The plan in the data of an event; what older journals say of it where there is none."""
        found = data.get("plan")
        if found is None:
            warnings = tuple(data.get("warnings", ()))
            new = bool(data.get("refit")) and "stays in use" not in text
            rows, seconds = int(data.get("rows", 0)), float(data.get("seconds", 0.0))
            return cls(Plan(None, None, 0.0, text, new, rows, seconds, warnings))
        prediction = found["prediction"]
        return cls(
            Plan(
                None,
                None if prediction is None else Prediction(**prediction),
                found["epsilon"],
                found["why"],
                found["new"],
                found["rows"],
                found["seconds"],
                tuple(found["warnings"]),
            ),
            tuple(Agreement(**one) for one in found["agreements"]),
            found["stopped"],
        )


def expected_of(plan: Plan, settings: Refitting) -> Expected:
    """What a stage with this plan is expected to give, as in `evaluate`."""
    variance = expected_variance(plan.prediction, settings)
    progress = expected_progress(plan.prediction)
    return Expected(variance, plan.new and plan.prediction is None, progress)


def budget_after(terms: Terms, plans: Sequence[StagePlan], episodes: Sequence[int]) -> StageBudget:
    """What was asked of the stages so far, with so many finished episodes each."""
    assert terms.refit is not None
    budget = StageBudget(terms.epsilon, terms.refit.promise, terms.plan.episodes)
    for one, count in zip(plans, episodes, strict=False):
        budget.add(count, one.plan.cost)
    return budget
