"""The episodes of a campaign: begun, found and dropped; and what operators command."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from scopeval.campaign import schema, statements
from scopeval.campaign.episode import CampaignEpisode
from scopeval.campaign.journal import Event
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.state import CampaignState
from scopeval.campaign.status import any_silent, plants_of
from scopeval.errors import CampaignError, InputError

__all__ = ["Registry", "check_name"]

#: Longest name of a plant, and longest reason that is kept.
LONGEST_NAME, LONGEST_REASON = 200, 2000


class Registry:
    """The episodes and plants of a campaign.

    Args:
        recorder: of the campaign.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._journal = recorder, recorder.journal

    def begin(self, plant: str, request: str | None) -> CampaignEpisode:
        """Begin an episode with the next number."""
        table = schema.episodes
        try:
            with self._journal.write() as connection:
                self._journal.order(connection)
                state = self._recorder.state(connection)
                _check_starting(state)
                number = state.last_episode + 1
                behavior = self._recorder.designs.behavior(state.design)
                row: dict[str, Any] = {
                    "number": number,
                    "plant": plant,
                    "request": request,
                    "design": state.design,
                    "share": state.share,
                    "by_target": state.live and (state.handed_over or behavior is None),
                    "shadow": not state.live,
                    "state": "open",
                    "started": self._recorder.clock(),
                    "length": 0,
                    "spent": 0.0,
                    "terminated": False,
                }
                connection.execute(table.insert(), row)
                self.seen(connection, plant)
                data: dict[str, Any] = {
                    "stage": state.stage,
                    "design": state.design,
                    "shadow": not state.live,
                }
                if state.live and state.terms.refit is not None:
                    data["value_weight"] = state.next_weight()
                self._recorder.happen(
                    connection,
                    Event("started", f"episode {number} began", plant, number, data=data),
                )
        except IntegrityError:
            if request is not None and (found := self.by_request(request)) is not None:
                return found
            raise
        return CampaignEpisode(
            self._recorder,
            number,
            plant,
            row["design"],
            row["share"],
            row["by_target"],
            row["shadow"],
        )

    def check_starting(self) -> None:
        """See that episodes are started now.

        Raises:
            CampaignError: they are not.
        """
        with self._recorder.lock, self._journal.read() as connection:
            _check_starting(self._recorder.state(connection))

    def open_on(self, plant: str) -> int | None:
        """Number of the plant's open episode."""
        with self._recorder.lock, self._journal.read() as connection:
            running = self._recorder.state(connection).open.values()
            return max((one.number for one in running if one.plant == plant), default=None)

    def on_plant(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and steps of all episodes of a plant."""
        table = schema.episodes
        with self._journal.read() as connection:
            rows = connection.execute(
                sa.select(table.c.number, table.c.state, table.c.length)
                .where(table.c.plant == plant)
                .order_by(table.c.number)
            )
            return [(row.number, row.state, row.length) for row in rows]

    def by_request(self, request: str) -> CampaignEpisode | None:
        """The episode that a call with this word has begun."""
        with self._journal.read() as connection:
            number = connection.execute(
                statements.number_by_request, {"by_request": request}
            ).scalar()
        return None if number is None else self.episode(number)

    def command(self, kind: str, reason: str, who: str | None) -> None:
        """Write what an operator wants."""
        with (
            self._recorder.lock,
            self._recorder.undoing(),
            self._journal.write() as connection,
        ):
            self._journal.order(connection)
            self._recorder.happen(connection, Event(kind, _short(reason), who=who))

    def seen(self, connection: sa.Connection, plant: str) -> None:
        """Note a sign of life."""
        table, moment = schema.plants, self._recorder.clock()
        done = connection.execute(statements.set_seen, {"of_plant": plant, "seen": moment})
        if not done.rowcount:
            connection.execute(table.insert().values(name=plant, seen=moment))

    def tell_silence(self) -> list[str]:
        """Write an event for plants that have fallen silent, one for every silence."""
        recorder, patience = self._recorder, self._recorder.terms.silent_after
        with self._journal.read() as connection:
            if not any_silent(connection, recorder.clock(), patience):
                return []
        table, told = schema.events, []
        with recorder.lock, recorder.undoing(), self._journal.write() as connection:
            self._journal.order(connection)
            for plant in plants_of(connection, recorder.clock(), patience):
                last = connection.execute(
                    sa.select(sa.func.max(table.c.time)).where(
                        table.c.kind == "silent", table.c.plant == plant.name
                    )
                ).scalar()
                if plant.silent and (last is None or last < plant.seen):
                    waited = recorder.clock() - plant.seen
                    text = f"nothing was heard of {plant.name} for {waited:,.0f} s"
                    recorder.happen(connection, Event("silent", text, plant.name, plant.episode))
                    told.append(plant.name)
        return told

    def episode(self, number: int) -> CampaignEpisode:
        """An episode by number, as the journal has it."""
        table = schema.episodes
        with self._journal.read() as connection:
            row = connection.execute(sa.select(table).where(table.c.number == number)).one_or_none()
        if row is None:
            raise InputError(f"episode: got {number!r}, there is no episode of that number")
        return self._recorder.refresh(self._handle(row))

    def drop(self, number: int, reason: str, who: str | None) -> None:
        """Take a finished episode out of the evidence."""
        table = schema.episodes
        with (
            self._recorder.lock,
            self._recorder.undoing(),
            self._journal.write() as connection,
        ):
            self._journal.order(connection)
            row = connection.execute(sa.select(table).where(table.c.number == number)).one_or_none()
            if row is None or row.state != "finished":
                state = "not there" if row is None else row.state
                raise CampaignError(f"drop: episode {number} is {state}, expected a finished one")
            connection.execute(
                table.update()
                .where(table.c.number == number)
                .values(state="dropped", reason=_short(reason))
            )
            text = f"episode {number} was dropped: {_short(reason)}"
            self._recorder.happen(
                connection, Event("dropped", text, row.plant, number, who, {"spent": row.spent})
            )

    def _handle(self, row: sa.Row[Any]) -> CampaignEpisode:
        return CampaignEpisode(
            self._recorder,
            row.number,
            row.plant,
            row.design,
            row.share,
            row.by_target,
            row.shadow,
            state=row.state,
        )


def _check_starting(state: CampaignState) -> None:
    halted = state.paused or state.stopped
    why = f"{state.word}; {state.reason}" if halted else state.done()
    if why is not None:
        raise CampaignError(f"start: the campaign starts no episodes now ({why})")


def check_name(plant: str) -> str:
    """The name of a plant: printable text."""
    if not isinstance(plant, str) or not plant.strip() or not plant.isprintable():
        raise InputError(f"plant: got {plant!r:.60}, expected a name of printable letters")
    if len(plant) > LONGEST_NAME:
        raise InputError(f"plant: got a name of {len(plant)} letters, expected <= {LONGEST_NAME}")
    return plant


def _short(reason: str) -> str:
    return str(reason)[:LONGEST_REASON] or "no reason given"
