"""What a `Campaign` needs of whatever records it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from scopeval.campaign.audit import ShadowReport, Verification
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.episode import Episode, RecordsEpisodes
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms
from scopeval.campaign.view import CampaignStatus
from scopeval.collection.episodes import Episodes
from scopeval.comparison.mixture_episodes import MixtureEpisodes
from scopeval.comparison.result import Comparison
from scopeval.evaluation.result import Evaluation
from scopeval.logs.transitions import Transitions

__all__ = ["Backend"]


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
