"""What can be seen of a campaign at any time."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.journal import Event
from scopeval.campaign.notebook_views import NotebookViews
from scopeval.campaign.opening import NoTarget
from scopeval.campaign.outcome import evaluation_of
from scopeval.campaign.page_section import campaign_section
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.registry import Registry, check_name
from scopeval.campaign.rows import read_episodes
from scopeval.campaign.shadow import ShadowReport, shadow_report
from scopeval.campaign.status import CampaignStatus, status_of
from scopeval.campaign.terms import Terms
from scopeval.campaign.verification import Verification, verify_decisions
from scopeval.collection.episodes import Episodes
from scopeval.data.transitions import Transitions
from scopeval.errors import InputError
from scopeval.evaluation.result import Evaluation

__all__ = ["CampaignViews"]


class CampaignViews(NotebookViews):
    """The verbs of a `Campaign` that change nothing.

    Args:
        recorder: of the campaign.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.journal = recorder.journal
        self._registry = Registry(recorder)
        self.terms = recorder.terms

    def _created_with(self) -> Terms:
        return self.terms

    def status(self) -> CampaignStatus:
        """The state now, for all processes that work on the campaign."""
        with self._recorder.lock, self.journal.read() as connection:
            state = self._recorder.state(connection)
            return status_of(connection, state, self._recorder.clock())

    @property
    def running(self) -> int:
        """Number of episodes that have started and not ended."""
        with self._recorder.lock, self.journal.read() as connection:
            return len(self._recorder.state(connection).open)

    def events(self, after: int = 0, *, most: int | None = None) -> list[Event]:
        """What happened after an event, in order; at most so many."""
        with self.journal.read() as connection:
            return self.journal.events_after(connection, after, most)

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used."""
        with self.journal.read() as connection:
            return self._recorder.designs.records(connection)

    def episodes(self, *, plant: str | None = None) -> Episodes:
        """All finished episodes, in the order of their numbers, for an analysis of one's own."""
        with self.journal.read() as connection:
            return read_episodes(connection, self.terms.horizon, plant=plant)

    def verify(self) -> Verification:
        """Draw every decision again and compare it with the journal: an audit."""
        with self.journal.read() as connection:
            return verify_decisions(connection, self.terms, self._recorder.designs)

    def logs(self) -> Transitions:
        """The steps of all finished episodes as logs, those of the incumbent included."""
        with self.journal.read() as connection:
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
        """What the behavior policy would have done in shadow episodes."""
        with self.journal.read() as connection:
            return shadow_report(connection)

    def result(self, *, keep: bool = False) -> Evaluation:
        """What the target policy is worth, by all that is finished.

        Args:
            keep: keep the episodes in the result.

        Raises:
            InputError: no episode is finished.
        """
        with self._recorder.lock, self.journal.read() as connection:
            state = self._recorder.state(connection)
            found = evaluation_of(connection, state)
            kept = read_episodes(connection, self.terms.horizon) if keep else None
        return found if kept is None else replace(found, episodes=kept)

    def report(self, path: str | os.PathLike[str], *, title: str = "The campaign") -> Path:
        """Write the result as one HTML page."""
        from scopeval.report import page_of_evaluation, write_report

        design = None
        if not isinstance(self._recorder.target, NoTarget):
            design = self._recorder.designs.behavior(self.status().design)
        learned = design if isinstance(design, BehaviorPolicy) else None
        page = page_of_evaluation(
            self.result(keep=True),
            learned,
            title=title,
            gamma=self.terms.gamma,
            seed=self.terms.seed,
        )
        about = campaign_section(self.status(), self.designs(), self.events())
        whole = replace(page, sections=(*page.sections[:-1], about, *page.sections[-1:]))
        return write_report(whole, path)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and recorded steps of all episodes of a plant, in order."""
        return self._registry.on_plant(check_name(plant))
