"""What a report says about the campaign itself: plants, guards, designs, events."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.journal import Event
from scopeval.campaign.status import CampaignStatus
from scopeval.report import Section, Table

__all__ = ["campaign_section"]

#: Kinds of events that happen with every episode; a report counts them elsewhere.
USUAL = {"started", "ended"}
#: Most events that are listed, the last ones.
LISTED = 50


def campaign_section(
    status: CampaignStatus, designs: Sequence[DesignRecord], events: Sequence[Event]
) -> Section:
    """The section; times are UTC."""
    told = [event for event in events if event.kind not in USUAL]
    text = [f"The campaign is {status.word}" + (f": {status.reason}." if status.reason else ".")]
    if status.done:
        text.append(f"It starts no more episodes: {status.done}.")
    if len(told) > LISTED:
        text.append(f"The last {LISTED} of {len(told):,} events are listed.")
    return Section(
        "The campaign",
        tuple(text),
        tables=(
            Table(
                "Plants",
                ("plant", "last sign of life", "finished", "lost"),
                tuple(
                    (p.name, _time(p.seen), f"{p.finished:,}", f"{p.lost:,}") for p in status.plants
                ),
            ),
            Table(
                "Guards",
                ("what is watched", "action", "told"),
                tuple((g.rule, g.action, g.alarm or "nothing") for g in status.guards),
            ),
            Table(
                "Designs",
                ("number", "made", "kind", "fingerprint", "why"),
                tuple(
                    (
                        str(d.number),
                        _time(d.made),
                        d.kind,
                        (d.fingerprint or "unknown")[:12],
                        str(d.about.get("why", "")),
                    )
                    for d in designs
                ),
            ),
            Table(
                "Events",
                ("time", "what", "by", "in words"),
                tuple((_time(e.time), e.kind, e.who or "", e.text) for e in told[-LISTED:]),
            ),
        ),
    )


def _time(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")
