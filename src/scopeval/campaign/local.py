"""What a campaign needs of a backend, and a database of this machine as one.

How a campaign is created and opened there, and all that looks.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa

from scopeval._files import versions
from scopeval.arrays import Floats
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign import schema
from scopeval.campaign.audit import (
    ShadowReport,
    Verification,
    shadow_report,
    terms_digest,
    verify_campaign,
)
from scopeval.campaign.comparison import (
    LookThread,
    compare_now,
    look_now,
    mixture_now,
    with_kept_design,
)
from scopeval.campaign.designs import (
    BASELINE,
    DesignRecord,
    Designs,
    check_several,
    check_target,
    keep_history,
    kept_design,
    kept_policies,
    remember_target,
)
from scopeval.campaign.episode import Episode, RecordsEpisodes
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.refit import RefitProcess, confirmed, keep_logs, refit_now
from scopeval.campaign.result import evaluation_of, read_episodes
from scopeval.campaign.stages import StagePlan
from scopeval.campaign.store import Event, Store, reading_row
from scopeval.campaign.terms import Ramp, Terms, check_name
from scopeval.campaign.transfer import migrate
from scopeval.campaign.view import QUIET, CampaignStatus, campaign_section, status_of
from scopeval.collection.choice import Target
from scopeval.collection.episodes import Episodes
from scopeval.comparison.affordable import affordable
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet, shares_of
from scopeval.comparison.result import Comparison
from scopeval.context.history import History
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stage_design import Plan
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import as_policy
from scopeval.policies.protocols import Observations, Time
from scopeval.question.promise import Promise
from scopeval.question.question import Question

__all__ = ["Backend", "LocalBackend", "Policies", "create_local", "open_local"]

#: Seconds that `close` waits for a look to end.
LAST_WAIT = 5.0


@dataclass(frozen=True)
class Policies:
    """The policies of a campaign that a database may not hold.

    Attributes:
        target: pi; None: only to look.
        behavior: mu, where it is an object of one's own.
        baseline: what runs today; None: none, or a table that the database holds.
        name: "module:attribute" of the target, for the process that computes new designs.
        several: the policies that are compared, one of which is target and baseline; None: there is
            one target policy, or they are known from the database.
    """

    target: Target | None
    behavior: Any = None
    baseline: Target | None = None
    name: str | None = None
    several: PolicySet | None = None

    @classmethod
    def of(
        cls, target: Any, behavior: Any = None, baseline: Any = None, name: str | None = None
    ) -> Policies:
        """Of what users give: one target policy, several by name, or None, only to look.

        Args:
            target: in any form that `as_policy` takes, or a mapping of names to such.
            behavior: mu.
            baseline: what runs today; of several policies the name of one, None: the first.
            name: of the target.
        """
        if isinstance(target, Question) and len(target.policies) > 1:
            baseline = target.names[target.baseline or 0] if baseline is None else baseline
            target = dict(zip(target.names, target.policies, strict=True))
        if isinstance(target, Mapping):
            several = PolicySet(target, baseline)
            if behavior is not None:
                raise InputError(
                    "behavior: got it with several policies, which run themselves; leave it out"
                )
            first = several.policies[several.baseline]
            return cls(first, None, first, name, several)
        today = None if baseline is None else as_policy(baseline)
        return cls(None if target is None else as_policy(target), behavior, today, name)


class NoTarget:
    """Stands for the target policy where a campaign is opened only to look."""

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Nothing can be asked."""
        raise InputError(
            "target: the campaign was opened without its target policy, only to look; expected "
            "Campaign.open(where, target)"
        )


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
        table = schema.episodes
        chosen = table.select().where(table.c.plant == check_name(plant)).order_by(table.c.number)
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
        about = campaign_section(self.status(), self.designs(), events)
        outcome = self.result()
        if isinstance(outcome, Comparison):
            page = page_of_comparison(outcome, title=title, seed=self.terms.seed)
            return write_report(
                replace(page, sections=(*page.sections[:-1], about, *page.sections[-1:])), path
            )
        design = None
        if not isinstance(self.target, NoTarget):
            design = self.kept.behavior(self.status().design)
        learned = design if isinstance(design, BehaviorPolicy) else None
        result = replace(outcome, episodes=self.episodes(None))
        page = page_of_evaluation(
            result, learned, title=title, gamma=self.terms.gamma, seed=self.terms.seed
        )
        return write_report(
            replace(page, sections=(*page.sections[:-1], about, *page.sections[-1:])), path
        )

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
            store.set_fact(connection, "format", schema.FORMAT)
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
            policies = _found(store, connection, terms, policies)
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


def _found(store: Store, connection: sa.Connection, terms: Terms, given: Policies) -> Policies:
    """The policies of a campaign that is opened: those that were given, or that it holds.

    Raises:
        InputError: they are not those of the campaign.
    """
    names = terms.policies
    if not names:
        if given.several is not None:
            raise InputError(
                f"target: got {', '.join(given.several.names)}; the campaign of {store.name} has "
                "one target policy, expected that"
            )
        return given
    if given.several is None and given.target is not None:
        raise InputError(
            f"target: got one policy; the campaign of {store.name} compares {', '.join(names)}, "
            'expected all of them, such as {"today": old, "new": new}'
        )
    kept = kept_policies(store, connection, names)
    if given.several is None:
        if any(policy is None for policy in kept.values()):
            return given  # only to look
        several = PolicySet(kept, names[terms.reference])
    else:
        mine = dict(zip(given.several.names, given.several.policies, strict=True))
        if set(mine) != set(names):
            raise InputError(
                f"target: got {', '.join(mine)}; the campaign of {store.name} compares "
                f"{', '.join(names)}, expected these names"
            )
        several = PolicySet({name: mine[name] for name in names}, names[terms.reference])
    several = with_kept_design(several, kept_design(store, connection))
    first = several.policies[several.baseline]
    return Policies(first, None, first, given.name, several)


# -- what a campaign needs of any backend ----------------------------------------------------------


class Backend(RecordsEpisodes, Protocol):
    """What a `Campaign` needs: a database of this machine, or a service over HTTP."""

    @property
    def terms(self) -> Terms:
        """Of the campaign."""
        ...

    @property
    def name(self) -> str:
        """The place, without a password."""
        ...

    def start(self, plant: str, *, resume: bool, request: str | None, take_over: bool) -> Episode:
        """As of `Campaign` and `Episode`."""
        ...

    def resume_episode(self, plant: str) -> Episode:
        """As of `Campaign` and `Episode`."""
        ...

    def episode(self, number: int) -> Episode:
        """As of `Campaign` and `Episode`."""
        ...

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """As of `Campaign` and `Episode`."""
        ...

    def heartbeat(self, plant: str) -> str:
        """As of `Campaign` and `Episode`."""
        ...

    def tell_silence(self) -> list[str]:
        """As of `Campaign` and `Episode`."""
        ...

    def group(self) -> contextlib.AbstractContextManager[None]:
        """As of `Campaign` and `Episode`."""
        ...

    def status(self) -> CampaignStatus:
        """As of `Campaign` and `Episode`."""
        ...

    def events(
        self,
        after: int = 0,
        *,
        most: int | None = None,
        kinds: tuple[str, ...] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """As of `Campaign` and `Episode`."""
        ...

    def designs(self) -> list[DesignRecord]:
        """As of `Campaign` and `Episode`."""
        ...

    def episodes(self, plant: str | None) -> Episodes:
        """As of `Campaign` and `Episode`."""
        ...

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """As of `Campaign` and `Episode`."""
        ...

    def verify(self, head: str | None) -> Verification:
        """As of `Campaign` and `Episode`."""
        ...

    def logs(self) -> Transitions:
        """As of `Campaign` and `Episode`."""
        ...

    def shadow(self) -> ShadowReport:
        """As of `Campaign` and `Episode`."""
        ...

    def look(self) -> bool:
        """As of `Campaign` and `Episode`."""
        ...

    def mixture(self) -> MixtureEpisodes:
        """Finished episodes with the weights of several policies."""
        ...

    def result(self) -> Evaluation | Comparison:
        """As of `Campaign` and `Episode`."""
        ...

    def report(self, path: str | os.PathLike[str], title: str) -> Path:
        """As of `Campaign` and `Episode`."""
        ...

    def close(self) -> None:
        """As of `Campaign` and `Episode`."""
        ...
