"""Creates and opens the database of a campaign."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from scopeval._files import versions
from scopeval.arrays import Floats
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign import schema
from scopeval.campaign.designs import Designs
from scopeval.campaign.identity import check_target, remember_target
from scopeval.campaign.journal import Event, Journal
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.refit import keep_logs
from scopeval.campaign.stage_plans import StagePlan
from scopeval.campaign.terms import Terms
from scopeval.collection.choice import Target
from scopeval.data.transitions import Transitions
from scopeval.errors import DataError, InputError
from scopeval.evaluation import source_choice
from scopeval.evaluation.refitting import Refitting
from scopeval.evaluation.stage_design import Plan, StageDesigner
from scopeval.policies.adapters import as_behavior
from scopeval.policies.protocols import Observations, Time

__all__ = ["NoTarget", "create_recorder", "first_plan", "open_recorder"]


def first_plan(
    target: Target,
    behavior: Any,
    logs: Transitions | None,
    horizon: int,
    *,
    method: str,
    epsilon: float | None,
    gamma: float | None,
    refit: Refitting | None,
    return_bound: tuple[float, float] | None,
    seed: int,
) -> Plan:
    """What a campaign begins with: a behavior policy as given, or designed from the logs.

    Raises:
        InputError: it was designed for another horizon, or stages do not have what is asked for.
    """
    if isinstance(behavior, BehaviorPolicy) and behavior.recipe.horizon != horizon:
        raise InputError(
            f"horizon: got {horizon}, the behavior policy was designed for "
            f"{behavior.recipe.horizon}"
        )
    if refit is not None and return_bound is not None:
        raise InputError("return_bound: stages have none; expected refit=False with it")
    if refit is not None:  # the first stage is planned as that of `evaluate` is
        terms = source_choice.Terms(horizon, 1.0 if gamma is None else gamma, epsilon or 0.0)
        designer = StageDesigner(target, terms, refit, as_behavior(behavior), logs, seed)
        return designer.next(None, 1.0 + terms.epsilon)
    if behavior is None and logs is not None:
        from scopeval.behavior.designer import design

        behavior = design(
            logs,
            target,
            horizon=horizon,
            method=method,
            epsilon=epsilon or 0.0,
            gamma=1.0 if gamma is None else gamma,
            seed=seed,
        )
    return Plan(behavior, None, 0.0, "the first")


def create_recorder(
    where: str | os.PathLike[str],
    terms: Terms,
    target: Target,
    first: Plan,
    logs: Transitions | None,
    clock: Callable[[], float],
) -> Recorder:
    """A new campaign; the arguments are those of `Campaign.create`.

    Raises:
        DataError: there is a campaign already, or the place cannot be written.
    """
    journal = Journal(where, create=True)
    try:
        designs = Designs(journal, target, first.behavior)
        recorder = Recorder(journal, terms, target, designs, clock)
        with journal.write() as connection:
            journal.order(connection)
            journal.create_tables(connection)
            if journal.fact(connection, "format") is not None:
                raise DataError(
                    f"{journal.name}: holds a campaign already; open it with Campaign.open, or "
                    "choose another place"
                )
            journal.set_fact(connection, "format", schema.FORMAT)
            journal.set_fact(connection, "terms", terms.to_json())
            journal.set_fact(connection, "versions", versions("numpy", "sqlalchemy"))
            remember_target(journal, connection, target, terms.horizon, first.behavior, logs)
            if terms.refit is not None and logs is not None:
                keep_logs(connection, logs)
            designs.keep(connection, 0, first.behavior, clock(), "the first")
            data = {} if terms.refit is None else {"plan": StagePlan(first).to_json()}
            recorder.happen(connection, Event("created", "the campaign was created", data=data))
    except BaseException:
        journal.close()
        raise
    return recorder


class NoTarget:
    """Stands for the target policy where a campaign is opened only to look."""

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Nothing can be asked."""
        raise InputError(
            "target: the campaign was opened without its target policy, only to look; expected "
            "Campaign.open(where, target)"
        )


def open_recorder(
    where: str | os.PathLike[str],
    target: Target | None,
    behavior: Any,
    check: bool,
    clock: Callable[[], float],
) -> Recorder:
    """A campaign that exists; the arguments are those of `Campaign.open`.

    Raises:
        DataError: there is no campaign, or it is damaged.
        InputError: another target.
    """
    journal = Journal(where, create=False)
    try:
        with journal.read() as connection:
            kind = journal.fact(connection, "format")
            if kind != schema.FORMAT:
                raise DataError(
                    f"{journal.name}: written in format {kind!r:.60}, expected {schema.FORMAT}; "
                    "try a newer scopeval"
                )
            terms = Terms.from_json(journal.fact(connection, "terms"))
            policy = NoTarget() if target is None else target
            designs = Designs(journal, policy, behavior)
            recorder = Recorder(journal, terms, policy, designs, clock)
            if check and target is not None:
                check_target(journal, connection, target, terms)
            state = recorder.state(connection)
        if target is not None:
            designs.behavior(state.design)  # a damaged or missing one is told now
    except BaseException:
        journal.close()
        raise
    return recorder
