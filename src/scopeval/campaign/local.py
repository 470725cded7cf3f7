"""What a campaign needs of a backend, and a database of this machine as one.

How a campaign is created and opened there, and all that looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopeval._files import versions
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.audit import shadow_report, verify_campaign
from scopeval.campaign.designs import (
    BASELINE,
    DesignRecord,
    Designs,
    NoTarget,
    Policies,
    check_several,
    check_target,
    policies_of_campaign,
    remember_target,
)
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.refit import RefitProcess, confirmed, refit_now
from scopeval.campaign.result import LookThread, compare_now, evaluation_of, look_now, mixture_now
from scopeval.campaign.stages import StagePlan
from scopeval.campaign.steps import read_episodes
from scopeval.campaign.store import (
    EPISODES,
    FORMAT,
    Event,
    Store,
    kept_digests,
    reading_row,
)
from scopeval.campaign.terms import Ramp, Terms, check_name, terms_digest
from scopeval.campaign.transfer import keep_history, keep_logs, migrate
from scopeval.campaign.view import (
    QUIET,
    CampaignStatus,
    ShadowReport,
    Verification,
    campaign_section,
    status_of,
)
from scopeval.collection.episodes import Episodes
from scopeval.comparison.joint_design import affordable
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet, shares_of
from scopeval.comparison.result import Comparison
from scopeval.context.history import History
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stage_design import Plan
from scopeval.logs.transitions import Transitions
from scopeval.question.promise import Promise

__all__ = ["LocalBackend", "create_local", "open_local", "with_shares"]

#: Seconds that `close` waits for a look to end.
LAST_WAIT = 5.0


class LocalBackend(Recorder):
    """What a `Campaign` needs, in a database that this process can reach.

    Args:
        store: the database.
        terms: of the campaign.
        policies: of the campaign.
        designs: the behavior policies.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        terms: Terms,
        policies: Policies,
        designs: Designs,
        clock: Callable[[], float],
    ) -> None:
        target = NoTarget() if policies.target is None else policies.target
        super().__init__(store, terms, target, designs, clock, policies.several)
        if policies.several is not None:
            self.look_thread = LookThread(self, policies.several)
            self.on_look = self.look_thread.start
        self.refitting = RefitProcess(self, policies.name)
        if self.refitting.able:
            self.on_refit = self.refitting.start

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """Carry out a command; False: there was nothing to do."""
        if name != "refit":
            return super().command(name, reason, who=who, number=number)
        with self.store.read() as connection:
            state = self.state(connection)
        if state.refits_due <= state.refits_done:
            return False
        if not self.refitting.able:
            raise CampaignError(
                "refit: the target is no table, so that no other process can have it; expected "
                "target_name='module:attribute' where the campaign is opened"
            )
        self.refitting.start(now=True)
        return True

    def refit_now(self) -> bool:
        """Compute the design that is due in this process; False: none is due."""
        return refit_now(self)

    def look(self) -> bool:
        """Look at the episodes of several policies in this thread; False: it is not due."""
        return look_now(self, self._several())

    def _several(self) -> PolicySet:
        """The policies that are compared.

        Raises:
            InputError: there is one, or they are not here.
        """
        if not self.terms.policies:
            raise InputError("look: the campaign has one policy; expected one over several")
        if self.policies is None:
            raise InputError(
                "policies: the campaign was opened without them, only to look, and its database "
                "cannot hold them; expected Campaign.open(where, {name: policy, ...})"
            )
        return self.policies

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> CampaignStatus:
        """The state now."""
        with self.lock, self.store.read() as connection:
            return status_of(connection, self.state(connection), self.clock())

    def events(
        self,
        after: int = 0,
        *,
        most: int | None = None,
        kinds: tuple[str, ...] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """What happened after an event."""
        with self.store.read() as connection:
            return self.store.events_after(connection, after, most, kinds=kinds, last=last)

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used."""
        with self.store.read() as connection:
            return self.kept.records(connection)

    def episodes(self, plant: str | None) -> Episodes:
        """All finished episodes, with the probabilities of the target policy.

        Of several policies it is the baseline; `mixture` has the weights of all.
        """
        with self.store.read() as connection:
            return read_episodes(connection, self.terms.horizon, plant=plant)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and steps of all episodes of a plant."""
        chosen = (
            EPISODES.select()
            .where(EPISODES.c.plant == check_name(plant))
            .order_by(EPISODES.c.number)
        )
        with self.store.read() as connection:
            rows = connection.execute(chosen).all()
        return [(row.number, row.state, row.length) for row in rows]

    def verify(self, head: str | None) -> Verification:
        """An audit."""
        with self.store.read() as connection:
            return verify_campaign(connection, self.terms, self.new_deciding(), head)

    def logs(self) -> Transitions:
        """The steps of all finished episodes."""
        with self.store.read() as connection:
            parts = [
                read_episodes(connection, self.terms.horizon, shadow=shadow)
                for shadow in (True, False)
            ]
        columns: list[dict[str, Any]] = [part.transitions() for part in parts if len(part)]
        filled = [Transitions(**one) for one in columns]
        if not filled:
            raise InputError("logs: no episode is finished, expected at least one")
        return Transitions.concat(filled)

    def shadow(self) -> ShadowReport:
        """Episodes in which what runs today has decided."""
        with self.store.read() as connection:
            return shadow_report(connection, self.terms)

    def mixture(self) -> MixtureEpisodes:
        """All finished episodes, with the weights of several policies."""
        self._several()
        return mixture_now(self)

    def result(self) -> Evaluation | Comparison:
        """What the target policy is worth, or which of several is better."""
        if self.terms.policies:
            return compare_now(self, self._several())
        with self.lock, self.store.read() as connection:
            return evaluation_of(connection, self.state(connection))

    def report(self, path: str | os.PathLike[str], title: str) -> Path:
        """Write the report."""
        from scopeval.report import page_of_comparison, page_of_evaluation, write_report

        events = [event for event in self.events() if event.kind not in QUIET]
        outcome, status, seed = self.result(), self.status(), self.terms.seed
        about = campaign_section(status, self.designs(), events)
        if isinstance(outcome, Comparison):
            page = page_of_comparison(outcome, title=title, seed=seed)
        else:
            known = not isinstance(self.target, NoTarget)
            design = self.kept.behavior(status.design) if known else None
            learned = design if isinstance(design, BehaviorPolicy) else None
            result, gamma = replace(outcome, episodes=self.episodes(None)), self.terms.gamma
            page = page_of_evaluation(result, learned, title=title, gamma=gamma, seed=seed)
        sections = (*page.sections[:-1], about, *page.sections[-1:])
        answer = f"The campaign is {status.headline}. {page.answer}"
        return write_report(replace(page, answer=answer, sections=sections), path)

    def close(self) -> None:
        """Close the connections, with all that is committed in the one file."""
        self.refitting.leave()
        if self.policies is not None:
            self.closed = True  # a look that takes longer is made again by whoever comes next
            self.look_thread.wait(LAST_WAIT)
        self.store.checkpoint()
        self.store.close()


# -- creating and opening --------------------------------------------------------------------------


def with_shares(
    policies: Policies,
    run: Mapping[str, float] | None,
    ramp: Ramp | None,
    promise: Promise | None,
    logs: Transitions | None,
    *,
    horizon: int,
    gamma: float,
) -> tuple[Policies, tuple[float, ...]]:
    """Several policies with their shares, and a design where they cost more than is promised.

    Raises:
        InputError: shares that are none, or nothing that answers the question costs so little.
    """
    several = policies.several
    assert several is not None
    if ramp is not None and ramp.shares[0] <= 0:
        raise InputError(
            f"ramp: got {ramp.shares!r:.40}, expected shares above 0: episodes without a policy "
            "have no value for it"
        )
    plan = affordable(
        several, shares_of(several, run), promise, None, logs, horizon=horizon, gamma=gamma
    )
    return replace(policies, several=plan.policies), tuple(plan.shares.tolist())


def create_local(
    where: str | os.PathLike[str],
    terms: Terms,
    policies: Policies,
    first: Plan,
    logs: Transitions | None,
    clock: Callable[[], float],
    context: History | None = None,
) -> LocalBackend:
    """A new campaign.

    Raises:
        DataError: there is a campaign already, or the place cannot be written.
    """
    store = Store(where, create=True)
    try:
        target, several = policies.target, policies.several
        assert target is not None
        designs = Designs(store, target, first.behavior, policies.baseline)
        backend = LocalBackend(store, terms, policies, designs, clock)
        with store.transaction() as connection:
            store.order(connection)
            store.create_tables(connection)
            if store.fact(connection, "format") is not None:
                raise DataError(
                    f"{store.name}: holds a campaign already; open it with Campaign.open, or "
                    "choose another place"
                )
            store.forget_head()
            store.set_fact(connection, "format", FORMAT)
            text = store.set_fact(connection, "terms", terms.to_json())
            store.set_fact(connection, "versions", versions("numpy", "sqlalchemy"))
            remember_target(store, connection, target, terms.horizon, first.behavior, logs)
            if (terms.refit is not None or several is not None) and logs is not None:
                keep_logs(connection, logs)
            if context is not None:
                keep_history(connection, context)
            if several is not None:
                marks = designs.keep_several(connection, several, clock())
            else:
                marks = {"0": designs.keep(connection, 0, first.behavior, clock(), "the first")}
            if terms.baseline:
                marks[str(BASELINE)] = designs.keep_baseline(connection, clock())
            data: dict[str, Any] = {"terms": terms_digest(text), "designs": marks}
            data["kept"] = kept_digests(connection)
            if several is None:
                data["confirmed"] = confirmed(designs.behavior(0), baseline=terms.baseline)
            if terms.refit is not None:
                data["plan"] = StagePlan(first).to_json()
            backend.happen(connection, Event("created", "the campaign was created", data=data))
    except BaseException:
        store.close()
        raise
    return backend


def open_local(
    where: str | os.PathLike[str],
    policies: Policies,
    *,
    check: bool,
    clock: Callable[[], float],
    patience: float | None = None,
) -> LocalBackend:
    """A campaign that exists.

    Raises:
        DataError: there is no campaign, or it is damaged.
        InputError: another target.
    """
    store = Store(where, create=False, patience=patience)
    try:
        migrate(store, clock)
        with store.read() as connection:
            store.check_head(connection)
            with reading_row(store.name, "facts", "terms"):
                terms = Terms.from_json(store.fact(connection, "terms"))
            policies = policies_of_campaign(store, connection, terms, policies)
            target = NoTarget() if policies.target is None else policies.target
            designs = Designs(store, target, policies.behavior, policies.baseline)
            backend = LocalBackend(store, terms, policies, designs, clock)
            if check and policies.several is not None:
                check_several(store, connection, policies.several)
            elif check and policies.target is not None:
                check_target(store, connection, policies.target, terms)
            state = backend.state(connection)
        if policies.target is not None and not terms.policies:
            designs.behavior(state.design)  # a damaged or missing one is told now
            if terms.baseline:
                designs.decider(BASELINE)
    except BaseException:
        store.close()
        raise
    return backend
