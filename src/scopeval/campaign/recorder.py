"""Records decisions and outcomes, and keeps the state of a campaign up to date.

A decision is drawn, written and committed before it is returned. The random numbers of a step are a
function of its place, so a decision that was not committed is drawn again in the same way.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from scopeval.campaign import schema, statements
from scopeval.campaign.designs import Designs
from scopeval.campaign.episode import CampaignEpisode, Decided, Observed, action_of, same
from scopeval.campaign.journal import Event, Journal, encode
from scopeval.campaign.rows import numbers_of, signals_of
from scopeval.campaign.state import CampaignState
from scopeval.campaign.terms import COST, Terms
from scopeval.collection.choice import Choice, Place, Target, shadow
from scopeval.collection.counter_streams import CounterStreams
from scopeval.collection.readings import check_reading
from scopeval.errors import CampaignError, InputError

__all__ = ["Recorder"]


class Recorder:
    """Writes what happens in a campaign.

    Args:
        journal: the database.
        terms: of the campaign.
        target: pi.
        designs: the behavior policies.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        journal: Journal,
        terms: Terms,
        target: Target,
        designs: Designs,
        clock: Callable[[], float],
    ) -> None:
        self.journal, self.terms, self.target, self.designs = journal, terms, target, designs
        self.clock = clock
        self.on_refit: Callable[[], None] | None = None  # called when a new design is due
        self.shape: tuple[int, ...] | None = None  # of an observation, once there was one
        self._streams = CounterStreams(terms.seed)
        self._state: CampaignState | None = None
        self._happened = 0  # times that events were written
        self.lock = threading.RLock()

    # -- state ---------------------------------------------------------------------------------

    def state(self, connection: sa.Connection) -> CampaignState:
        """The state after all events that are committed."""
        with self.lock:
            if self._state is None:
                self._state = CampaignState(self.terms)
                news = self.journal.events_after(connection, 0)
            else:
                news = self.journal.news_after(connection, self._state.cursor)
            for event in news:
                self._state.fold(event)
            return self._state

    @contextlib.contextmanager
    def undoing(self) -> Iterator[None]:
        """Where the block fails after it has written events, rebuild the state when next needed.

        A call that is refused before changes nothing, and must not cost a reading of all events.
        """
        before = self._happened
        try:
            yield
        except BaseException:
            if self._happened != before:
                self._state = None
            raise

    def happen(self, connection: sa.Connection, *happened: Event) -> CampaignState:
        """Write events, and those that follow from them; the lock of `order` is held."""
        state = self.state(connection)
        self._happened += 1
        queue = list(happened)
        while queue:
            number = state.cursor + 1
            event = self.journal.add_event(connection, queue.pop(0), number, self.clock())
            state.fold(event)
            if event.kind in ("ended", "lost"):
                queue += state.refuted()
                stage = None if queue else state.next_stage()
                queue += [event for event in (stage, state.next_refit()) if event is not None]
        return state

    # -- the verbs of an episode ---------------------------------------------------------------

    def act(
        self, episode: CampaignEpisode, obs: Any, step: int | None, incumbent: Any = None
    ) -> Any:
        """The action of a step; it is on disk when this returns."""
        with self.lock:
            t = episode.check_next(step)
            seen = check_reading("obs", obs, t, self.shape)
            if t < episode.step or episode.decided is not None:
                return self._repeated(episode, seen, t)
            try:
                with self.journal.append() as connection:
                    if episode.shadow:
                        choice = self._follow(connection, episode, seen, t, incumbent)
                    else:
                        choice = self._decide(connection, episode, seen, t)
            except IntegrityError:  # another process has decided this step: its word holds
                self.refresh(episode)
                return self._repeated(episode, seen, t)
            self.shape = seen.shape
            episode.weight *= choice.target_probability / choice.probability
            episode.decided, episode.last_obs = Decided(seen, choice.action), seen
            return choice.action

    def _decide(
        self, connection: sa.Connection, episode: CampaignEpisode, obs: Any, t: int
    ) -> Choice:
        state = self.state(connection)
        self._check_open(state, episode, "act")
        place = Place(
            episode.number, t, episode.weight, episode.by_target, state.handed_over, episode.share
        )
        choice = self.designs.decider(episode.design).decide(obs, self._streams, place)
        self._write_decision(connection, episode, obs, t, choice)
        return choice

    def _follow(
        self, connection: sa.Connection, episode: CampaignEpisode, obs: Any, t: int, incumbent: Any
    ) -> Choice:
        """Record the incumbent's action, and what the behavior policy would do."""
        if incumbent is None:
            raise InputError(
                f"incumbent: needed at t={t} of a shadow episode, expected the action that the "
                "plant's own controller takes; nothing was recorded"
            )
        taken = check_reading("incumbent", incumbent, t, None)
        behavior = self.designs.behavior(episode.design)
        rng = self._streams.at(episode.number, t)
        would = shadow(self.target, behavior, obs, t, rng, taken)
        action = int(taken) if taken.ndim == 0 and taken.dtype.kind == "i" else taken
        choice = Choice(action, 1.0, would.target_probability or 0.0, chooser="incumbent")
        self._write_decision(connection, episode, obs, t, choice, json.dumps(would._asdict()))
        return choice

    def _write_decision(
        self,
        connection: sa.Connection,
        episode: CampaignEpisode,
        obs: Any,
        t: int,
        choice: Choice,
        would: str | None = None,
    ) -> None:
        row = {
            "episode": episode.number,
            "step": t,
            "obs": encode(obs),
            "action": _written(choice.action),
            "probability": choice.probability,
            "target_probability": choice.target_probability,
            "control": choice.control,
            "baseline": choice.baseline,
            "chooser": choice.chooser,
            "would": would,
            "decided": self.clock(),
        }
        self.journal.add_decision(connection, row)

    def _check_open(self, state: CampaignState, episode: CampaignEpisode, verb: str) -> None:
        """See that no other process has ended or lost the episode."""
        if episode.number not in state.open:
            episode.state = self.refresh(episode).state
            raise CampaignError(f"{verb}: episode {episode.number} is {episode.state}")

    def _repeated(self, episode: CampaignEpisode, obs: Any, t: int) -> Any:
        """The action that was decided for a step."""
        row = self._step(episode.number, t)
        if row is None:
            raise CampaignError(f"act: step {t} of episode {episode.number} was not decided")
        if not same(row.obs, obs):
            raise InputError(
                f"obs: step {t} of episode {episode.number} was decided at {row.obs:.60}, got "
                f"{encode(obs):.60}; nothing was recorded. Carry out episode.decided.action and "
                "call observe(), or lose() the episode"
            )
        return action_of(row.action)

    def observe(
        self,
        episode: CampaignEpisode,
        values: tuple[Any, Any, Any, Any, Mapping[str, Any]],
        step: int | None,
    ) -> None:
        """Record the outcome of a step."""
        with self.lock:
            waiting = episode.decided is not None and episode.state == "open"
            t = step if step is not None else episode.step - (0 if waiting else 1)
            found = episode.read(values, t)
            if t < episode.step:
                self._check_same(episode, found, t)
                return
            if not waiting or t != episode.step:
                raise CampaignError(
                    f"observe: step {t} of episode {episode.number} was not decided; expected act()"
                )
            with self.undoing(), self.journal.append() as connection:
                state = self.state(connection)
                self._check_open(state, episode, "observe")
                written = self._write_outcome(connection, episode, found, t)
                if written:
                    self._check_limits(connection, state, episode, found)
            if not written:  # another process has recorded it
                self.refresh(episode)
                self._check_same(episode, found, t)
                return
            episode.count(found)

    def _write_outcome(
        self, connection: sa.Connection, episode: CampaignEpisode, found: Observed, t: int
    ) -> bool:
        outcome = {
            "of_episode": episode.number,
            "of_step": t,
            "reward": found.reward,
            "cost": found.cost,
            "signals": json.dumps(dict(found.signals)) if found.signals else None,
            "next_obs": encode(found.next_obs),
            "terminated": found.terminated,
            "observed": self.clock(),
        }
        length = {
            "of_episode": episode.number,
            "length": t + 1,
            "spent": episode.sums.get(COST, 0.0) + found.cost,
            "terminated": found.terminated,
        }
        return self.journal.add_outcome(connection, outcome, length)

    def _check_limits(
        self,
        connection: sa.Connection,
        state: CampaignState,
        episode: CampaignEpisode,
        found: Observed,
    ) -> None:
        """Raise alarms of limits at once, in the same transaction."""
        readings = {COST: found.cost, **found.signals}
        sums = {name: episode.sums.get(name, 0.0) + x for name, x in readings.items()}
        totals = self._totals(connection, state) if state.limited_totals else {}
        if state.exceeded(episode.number, readings, sums, totals):
            self.journal.order(connection)
            state = self.state(connection)  # what others have told in between
            self.happen(connection, *state.exceeded(episode.number, readings, sums, totals))

    def _totals(self, connection: sa.Connection, state: CampaignState) -> dict[str, float]:
        """Sums over all episodes, running ones included."""
        self.journal.settle(connection)
        running = list(state.open)
        totals = {COST: state.spent, **state.totals}
        if not running:
            return totals
        table = schema.episodes
        spent = connection.execute(
            sa.select(sa.func.sum(table.c.spent)).where(table.c.number.in_(running))
        ).scalar()
        totals[COST] += float(spent or 0.0)
        if any(name != COST for name in self.terms.signals):
            for number in running:
                for name, (total, *_) in signals_of(self._rows(connection, number), 1.0).items():
                    totals[name] = totals.get(name, 0.0) + total
        return totals

    def _check_same(self, episode: CampaignEpisode, found: Observed, t: int) -> None:
        row = self._step(episode.number, t)
        if row is None or row.reward is None:
            raise CampaignError(f"observe: step {t} of episode {episode.number} was not decided")
        signals = json.loads(row.signals) if row.signals else {}
        known = (row.reward, row.cost, bool(row.terminated), signals)
        given = (found.reward, found.cost, found.terminated, dict(found.signals))
        if known != given or not same(row.next_obs, found.next_obs):
            raise InputError(
                f"observe: step {t} of episode {episode.number} has another outcome already; "
                "nothing was changed, an outcome is recorded once"
            )

    def end(self, episode: CampaignEpisode) -> None:
        """End an episode: it is evidence from now on."""
        with self.lock:
            if episode.state == "finished":
                return
            if episode.state != "open":
                raise CampaignError(f"end: episode {episode.number} is {episode.state}")
            if not episode.step or episode.decided is not None:
                raise CampaignError(
                    f"end: episode {episode.number} "
                    + ("awaits the outcome of its last action" if episode.step else "has no steps")
                    + "; expected observe() first, or lose()"
                )
            self._close(episode, "finished", None)

    def lose(self, episode: CampaignEpisode, reason: str) -> None:
        """Count an episode as lost."""
        with self.lock:
            if episode.state == "lost":
                return
            if episode.state != "open":
                raise CampaignError(f"lose: episode {episode.number} is {episode.state}")
            self._close(episode, "lost", str(reason) or "no reason given")

    def _close(self, episode: CampaignEpisode, state: str, reason: str | None) -> None:
        with self.undoing(), self.journal.write() as connection:
            self.close_in(connection, episode.number, state, reason)
        episode.state = state
        known = self._state
        if self.on_refit is not None and known and known.refits_due > known.refits_done:
            self.on_refit()

    def close_in(
        self, connection: sa.Connection, number: int, state: str, reason: str | None
    ) -> None:
        """End or lose an episode, inside a transaction."""
        self.journal.order(connection)
        table = schema.episodes
        row = connection.execute(statements.episode_by_number, {"of_episode": number}).one()
        if row.state != "open":
            if row.state == state:
                return
            raise CampaignError(f"episode {number} is {row.state}")
        rows = self._rows(connection, number)
        numbers: dict[str, Any] = {"spent": row.spent, "signals": signals_of(rows, 1.0)}
        if state == "finished" and not row.shadow:
            numbers = numbers_of(number, row.by_target, rows, self.terms.horizon, self.terms.gamma)
        connection.execute(
            table.update()
            .where(table.c.number == number)
            .values(state=state, ended=self.clock(), reason=reason, numbers=json.dumps(numbers))
        )
        kind = "ended" if state == "finished" else "lost"
        text = f"episode {number} {'has ended' if kind == 'ended' else f'is lost: {reason}'}"
        data = numbers | {"shadow": bool(row.shadow)}
        self.happen(connection, Event(kind, text, row.plant, number, data=data))

    # -- reading -------------------------------------------------------------------------------

    def refresh(self, episode: CampaignEpisode) -> CampaignEpisode:
        """Bring an episode to what the journal says."""
        table = schema.episodes
        with self.journal.read() as connection:
            row = connection.execute(sa.select(table).where(table.c.number == episode.number)).one()
            episode.state = row.state
            episode.replay(connection)
        if episode.decided is not None:
            self.shape = episode.decided.obs.shape
        return episode

    def _step(self, number: int, t: int) -> sa.Row[Any] | None:
        table = schema.steps
        with self.journal.read() as connection:
            return connection.execute(
                sa.select(table).where(table.c.episode == number, table.c.step == t)
            ).one_or_none()

    def _rows(self, connection: sa.Connection, number: int) -> Sequence[sa.Row[Any]]:
        """The observed steps of an episode."""
        return connection.execute(statements.observed_steps, {"of_episode": number}).all()


def _written(action: Any) -> str:
    """An action as JSON."""
    return str(action) if isinstance(action, int) else encode(action)
