"""Writes what happens in a campaign, in a database that this process can reach.

A decision is drawn, written and committed before it is returned. The random numbers of a step are a
function of its place, so a decision that was not committed is drawn again in the same way. Guards
decide in the transaction that ends an episode or records a reading.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError

from scopeval.campaign.designs import Designs
from scopeval.campaign.episode import Backend, Decided, Episode, Observed
from scopeval.campaign.holder import Holder
from scopeval.campaign.state import CampaignState
from scopeval.campaign.steps import (
    Deciding,
    MixtureDeciding,
    action_of,
    check_same,
    check_state,
    digest_of,
    episode_by_number,
    next_log_weights,
    observed_rows,
    replay,
    step_row,
    summary_of,
    totals_now,
    write_decision,
    write_outcome,
)
from scopeval.campaign.store import (
    DAMAGED,
    EPISODES,
    EVENTS,
    PLANTS,
    START,
    STEPS,
    Event,
    Store,
    decode,
    encode,
    reading_row,
)
from scopeval.campaign.terms import Terms, check_name, command_of
from scopeval.campaign.transfer import kept_logs
from scopeval.campaign.view import any_silent, plants_of
from scopeval.collection.choice import CounterStreams, Target
from scopeval.collection.episode_log import check_reading
from scopeval.comparison.cross_fitting import Analyst
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import CampaignError, InputError, NotFoundError, ScopevalError
from scopeval.policies.episode_state import EpisodeState
from scopeval.question.promise import COST

__all__ = ["Recorder"]

#: Longest reason that is kept.
LONGEST_REASON = 2000
#: Longest reading that is told with it.
LONGEST_READING = 200

_number_by_request = sa.select(EPISODES.c.number).where(
    EPISODES.c.request == sa.bindparam("by_request")
)
_set_seen = (
    sa.update(PLANTS)
    .where(PLANTS.c.name == sa.bindparam("of_plant"))
    .values(seen=sa.bindparam("seen"))
)
_holder = sa.select(PLANTS.c.holder).where(PLANTS.c.name == sa.bindparam("of_plant"))


class Recorder(Backend):
    """The half of a backend that writes what happens, and keeps the state up to date.

    Args:
        store: the database.
        terms: of the campaign.
        target: pi.
        designs: the behavior policies.
        clock: seconds since 1970.
        policies: that are compared; None: there is one target policy.
    """

    def __init__(
        self,
        store: Store,
        terms: Terms,
        target: Target,
        designs: Designs,
        clock: Callable[[], float],
        policies: PolicySet | None = None,
    ) -> None:
        self.store, self.target, self.kept = store, target, designs
        self._terms = terms
        self.clock, self.policies = clock, policies
        self.on_refit: Callable[[], None] | None = None  # called when a new design is due
        self.on_look: Callable[[], None] | None = None  # called when a look is due
        self.looking, self.closed = threading.Lock(), False  # one look at a time
        self.analyst: Analyst | None = None
        self.shape: tuple[int, ...] | None = None  # of an observation, once there was one
        self.holder = secrets.token_hex(8)  # this program, for the leases of plants
        self._deciding = self.new_deciding()
        self._state: CampaignState | None = None
        self._happened = 0  # times that events were written
        # a lease is measured by a clock that nobody sets, as far as this process has heard itself
        self._elapsed = time.monotonic if clock is time.time else clock
        self._heard: dict[str, float] = {}
        self.lock = threading.RLock()

    @property
    def terms(self) -> Terms:
        """Of the campaign."""
        return self._terms

    @property
    def name(self) -> str:
        """The place, without a password."""
        return self.store.name

    def new_deciding(self) -> Deciding:
        """Decides steps, with a random generator of its own."""
        streams = CounterStreams(self.terms.seed)
        if self.policies is not None:
            return MixtureDeciding(self.policies, self.kept, streams)
        return Deciding(self.target, self.kept, streams, baseline=self.terms.baseline)

    # -- state ---------------------------------------------------------------------------------

    def state(self, connection: sa.Connection) -> CampaignState:
        """The state after all events that are committed."""
        with self.lock:
            if self._state is None:
                self._state = CampaignState(self.terms)
                news = self.store.events_after(connection, 0)
            else:
                news = self.store.news_after(connection, self._state.cursor, self._state.head)
            for event in news:
                try:
                    self._state.fold(event)
                except DAMAGED:
                    self._state = None
                    with reading_row(self.store.name, "events", event.number):
                        raise
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

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """One transaction for all calls of this thread inside the block."""
        with self.lock, self.undoing(), self.store.group():
            yield

    @contextlib.contextmanager
    def writing(self) -> Iterator[tuple[sa.Connection, CampaignState]]:
        """A transaction that may write events, and the state in it."""
        with self.lock, self.undoing(), self.store.transaction() as connection:
            self.store.order(connection)
            yield connection, self.state(connection)

    def happen(self, connection: sa.Connection, *happened: Event) -> CampaignState:
        """Write events, and those that follow from them; the lock of `order` is held."""
        state = self.state(connection)
        self._happened += 1
        queue = list(happened)
        while queue:
            number = state.cursor + 1
            before = state.head or START
            event = self.store.add_event(connection, queue.pop(0), number, self.clock(), before)
            state.fold(event)
            if event.kind in ("ended", "lost"):
                queue += state.refuted()
                stage = None if queue else state.next_stage()
                queue += [event for event in (stage, state.next_refit()) if event is not None]
        return state

    # -- episodes ------------------------------------------------------------------------------

    def start(
        self,
        plant: str,
        *,
        resume: bool = False,
        request: str | None = None,
        take_over: bool = False,
        holder: str | None = None,
        who: str | None = None,
    ) -> Episode:
        """Begin an episode, or resume the open one; the arguments are those of `Campaign.start`."""
        name, holder = check_name(plant), holder or self.holder
        with self.lock:
            if request is not None and (earlier := self._by_request(request)) is not None:
                return earlier
            number = self.open_on(name)
            if number is not None:
                episode = self.episode(number)
                episode.who = who
                if episode.over and episode.state == "open":
                    episode.end()
                elif resume:
                    if not take_over:
                        self._check_lease(name, holder, resume=True)
                    with self.store.transaction() as connection:
                        self._seen(connection, name, holder)
                    episode = self.episode(number)  # what the program before has done until then
                    episode.who, episode.holder = who, holder
                    return episode
                elif episode.state == "open":
                    self._check_starting()  # else it would be lost for nothing
                    if not take_over:
                        self._check_lease(name, holder, resume=False)
                    episode.lose("the next one was started before it had ended")
            with self.undoing():
                episode = self._begin(name, request, holder, who)
            episode.holder = holder
            return episode

    def _begin(self, plant: str, request: str | None, holder: str, who: str | None) -> Episode:
        """Begin an episode with the next number."""
        try:
            with self.store.transaction() as connection:
                self.store.order(connection)
                state = self.state(connection)
                state.check_starting()
                number = state.last_episode + 1
                by_target = state.handed_over or (
                    not self.terms.policies and self.kept.behavior(state.design) is None
                )
                row: dict[str, Any] = {
                    "number": number,
                    "plant": plant,
                    "request": request,
                    "design": state.design,
                    "share": state.share,
                    "by_target": state.evaluating and by_target,
                    "shadow": not state.evaluating,
                    "state": "open",
                    "started": self.clock(),
                    "length": 0,
                    "spent": 0.0,
                    "terminated": False,
                }
                connection.execute(EPISODES.insert(), row)
                self._seen(connection, plant, holder)
                data: dict[str, Any] = {"stage": state.stage}
                data |= {name: row[name] for name in ("design", "shadow", "share", "by_target")}
                if state.evaluating and state.terms.refit is not None:
                    data["value_weight"] = state.next_weight()
                if state.evaluating and self.terms.policies:
                    data["shares"] = state.next_shares()
                self.happen(
                    connection,
                    Event("started", f"episode {number} began", plant, number, who, data),
                )
        except IntegrityError:
            if request is not None and (earlier := self._by_request(request)) is not None:
                return earlier
            raise
        return self._handle(row)

    def _check_starting(self) -> None:
        with self.store.read() as connection:
            self.state(connection).check_starting()

    def _check_lease(self, plant: str, holder: str, *, resume: bool) -> None:
        """See that no other program runs the plant.

        One that is gone does not; and a process may resume what it has begun itself.
        """
        if not self.terms.lease:
            return
        with self.store.read() as connection:
            other = Holder.of_text(connection.execute(_holder, {"of_plant": plant}).scalar())
            if other is None or other.word == holder or other.gone or (resume and other.here_too):
                return
            waited = next(
                self.clock() - one.seen
                for one in plants_of(connection, self.clock(), self.terms.lease)
                if one.name == plant
            )
        if plant in self._heard:
            waited = min(waited, self._elapsed() - self._heard[plant])
        if waited < self.terms.lease:
            expected = (
                "two programs would drive one plant. Stop one of them; expected"
                if resume
                else "its episode would be lost. Expected resume=True to go on with it,"
            )
            cost = "go on in its place" if resume else "lose it"
            raise CampaignError(
                f"start: another controller runs {plant!r} and was active {waited:.1f} s ago; "
                f"{expected} take_over=True to {cost}, or a start after {self.terms.lease:g} s of "
                "silence",
                "plant_busy",
            )

    def _check_holder(self, connection: sa.Connection, episode: Episode, verb: str) -> None:
        """See that no other program has resumed the episode, or begun the next one, since then."""
        if episode.holder is None or not self.terms.lease:
            return
        text = connection.execute(_holder, {"of_plant": episode.plant}).scalar()
        now = Holder.of_text(text)
        if now is not None and now.word != episode.holder:
            self.refresh(episode)
            raise CampaignError(
                f"{verb}: another program took over {episode.plant!r}{now.at}; nothing was "
                "recorded. Stop one of the two: the one that has started or resumed last runs it",
                "taken_over",
            )

    def open_on(self, plant: str) -> int | None:
        """Number of the plant's open episode."""
        with self.lock, self.store.read() as connection:
            running = self.state(connection).open.values()
            return max((one.number for one in running if one.plant == plant), default=None)

    def resume_episode(self, plant: str) -> Episode:
        """The plant's open episode."""
        number = self.open_on(check_name(plant))
        if number is None:
            text = f"resume_episode: no episode is open on {plant!r}; expected start"
            raise CampaignError(text, "no_episode")
        return self.episode(number)

    def _by_request(self, request: str) -> Episode | None:
        """The episode that a call with this word has begun."""
        with self.store.read() as connection:
            number = connection.execute(_number_by_request, {"by_request": request}).scalar()
        return None if number is None else self.episode(number)

    def episode(self, number: int) -> Episode:
        """An episode by number, as the journal has it."""
        with self.store.read() as connection:
            row = connection.execute(episode_by_number, {"of_episode": number}).one_or_none()
        if row is None:
            raise NotFoundError(f"episode: got {number!r}, there is no episode of that number")
        episode = self._handle(dict(row._mapping))
        self.refresh(episode)
        return episode

    def _handle(self, row: Mapping[str, Any]) -> Episode:
        names = ("number", "plant", "design", "share", "by_target", "shadow", "state")
        many = len(self.terms.shares)
        return Episode(
            self,
            **{name: row[name] for name in names},
            horizon=self.terms.horizon,
            signals=self.terms.signals,
            running=EpisodeState.start(1, many) if many else None,
        )

    def refresh(self, episode: Episode) -> None:
        """Bring an episode to what the journal says."""
        with self.lock, self.store.read() as connection:
            row = connection.execute(episode_by_number, {"of_episode": episode.number}).one()
            with reading_row(self.store.name, "steps", episode.number):
                replay(connection, episode)
            state = self.state(connection)
        episode.state, episode.halted = row.state, state.stopped and row.state == "open"
        line = state.lines.get(episode.number)
        if line is not None and line.cut:
            episode.back = episode.step
        if episode.decided is not None:
            self.shape = episode.decided.obs.shape

    # -- the verbs of an episode ---------------------------------------------------------------

    def act(self, episode: Episode, t: int, obs: Any, incumbent: Any) -> Decided | None:
        """The decision of a step; it is on disk when this returns."""
        with self.lock:
            if self.shape is None:
                self._learn_shape()
            obs = check_reading("obs", obs, t, self.shape)
            self._heard[episode.plant] = self._elapsed()
            if t < episode.step or episode.decided is not None:
                with self.store.read() as connection:
                    self._check_holder(connection, episode, "act")
                return self._repeated(episode, obs, t)
            decided = None
            try:
                with self.undoing(), self.store.transaction() as connection:
                    state = self.state(connection)
                    self._check_holder(connection, episode, "act")
                    self._check_open(state, episode, "act")
                    if not state.stopped:
                        chosen = self._deciding.choose(state, episode, obs, incumbent)
                        choice = chosen.choice
                        decided = Decided(obs, choice.action, choice.chooser)
                        if chosen.failure is not None:
                            self._fall_back(connection, episode, chosen.failure)
                        self._tell_failures(connection, state, episode, obs, chosen.failed)
                        now = self.clock()
                        write_decision(
                            connection, episode, decided, choice, chosen.would, now, chosen.each
                        )
            except IntegrityError:  # another process has decided this step: its decision wins
                self.refresh(episode)
                return self._repeated(episode, obs, t)
            if decided is None:
                self.end(episode)
                return None
            self.shape = obs.shape
            episode.weight *= choice.target_probability / choice.probability
            if chosen.each is not None:
                assert episode.running is not None
                before = episode.running.log_weights[0]
                after = next_log_weights(before, chosen.each, choice.probability)
                episode.running = EpisodeState(after[None], np.array([episode.returned]))
            episode.take_decision(decided)
            return decided

    def _learn_shape(self) -> None:
        """What an observation looks like: as in the steps before, or else in the logs."""
        with self.store.transaction() as connection:  # whose errors are told, in a group too
            some = connection.execute(sa.select(STEPS.c.obs).limit(1)).scalar()
            if some is not None:
                with reading_row(self.store.name, "steps", "obs"):
                    self.shape = decode(some).shape
            elif (logs := kept_logs(connection)) is not None:
                self.shape = logs.obs.shape[1:]

    def _fall_back(self, connection: sa.Connection, episode: Episode, why: str) -> None:
        """Let the baseline take the rest of an episode."""
        self.store.order(connection)
        text = f"the baseline takes the rest of episode {episode.number}: {why}"
        data = {"step": episode.step}
        self.happen(connection, Event("fallback", text, episode.plant, episode.number, data=data))

    def _tell_failures(
        self,
        connection: sa.Connection,
        state: CampaignState,
        episode: Episode,
        obs: Any,
        failed: Mapping[int, str],
    ) -> None:
        """Of several policies, tell those that gave no answer: they take no part any more."""
        news, names = [], (*self.terms.policies, "the design")
        at = encode(obs)[:LONGEST_READING]
        for k in sorted(failed.keys() - state.failed.keys()):
            data = {"policy": k, "step": episode.step, "obs": at}
            data["reason"] = failed[k][:LONGEST_REASON]
            text = (
                f"{names[k]} {failed[k]} in episode {episode.number}, step "
                f"{episode.step}, at {at}: it takes no part any more"
            )
            news.append(Event("policy failed", text, episode.plant, episode.number, data=data))
        if news:
            self.store.order(connection)
            self.happen(connection, *news)

    def _check_open(self, state: CampaignState, episode: Episode, verb: str) -> None:
        """See that no other process has ended or lost the episode."""
        if episode.number not in state.open:
            self.refresh(episode)
            code = f"episode_{episode.state}"
            raise CampaignError(f"{verb}: episode {episode.number} is {episode.state}", code)

    def _repeated(self, episode: Episode, obs: Any, t: int) -> Decided:
        """What was decided for a step."""
        row = self._step(episode.number, t)
        if row is None:
            raise CampaignError(f"act: step {t} of episode {episode.number} was not decided")
        if row.obs != encode(obs):
            raise InputError(
                f"obs: step {t} of episode {episode.number} was decided at {row.obs:.60}, got "
                f"{encode(obs):.60}; nothing was recorded. Carry out episode.decided.action and "
                "call observe(), or lose() the episode"
            )
        return Decided(obs, action_of(row.action), row.chooser)

    def observe(self, episode: Episode, t: int, outcome: Observed) -> None:
        """Record the outcome of a step."""
        with self.lock:
            check_reading("next_obs", outcome.next_obs, t, self.shape)
            self._heard[episode.plant] = self._elapsed()
            if t < episode.step:
                with self.store.read() as connection:
                    self._check_holder(connection, episode, "observe")
                check_same(self._step(episode.number, t), episode.number, outcome, t)
                return
            if not outcome.terminated and t + 1 < self.terms.horizon:
                check_state(self.target, outcome.next_obs, t)
            with self.undoing(), self.store.transaction() as connection:
                state = self.state(connection)
                self._check_holder(connection, episode, "observe")
                self._check_open(state, episode, "observe")
                written = write_outcome(connection, episode, outcome, t, self.clock())
                if written:
                    self._check_limits(connection, state, episode, outcome)
                halted = self.state(connection).stopped
            if not written:  # another process has recorded it
                self.refresh(episode)
                check_same(self._step(episode.number, t), episode.number, outcome, t)
                return
            episode.take_outcome(outcome)
            episode.halted = halted

    def advance(self, episode: Episode, t: int, outcome: Observed) -> Decided | None:
        """An outcome and the next decision, both or neither."""
        try:
            with self.group():
                self.observe(episode, t, outcome)
                if outcome.terminated or t + 1 >= episode.horizon or episode.halted:
                    return None
                return self.act(episode, t + 1, outcome.next_obs, None)
        except BaseException:
            with contextlib.suppress(Exception):
                self.refresh(episode)
            raise

    def _check_limits(
        self, connection: sa.Connection, state: CampaignState, episode: Episode, outcome: Observed
    ) -> None:
        """Raise alarms of limits at once, in the same transaction."""
        readings = {COST: outcome.cost, **outcome.signals}
        sums = {name: episode.sums.get(name, 0.0) + x for name, x in readings.items()}
        totals = totals_now(connection, state) if state.limited_totals else {}
        if state.exceeded(episode.number, readings, sums, totals):
            self.store.order(connection)
            state = self.state(connection)  # what others have told in between
            self.happen(connection, *state.exceeded(episode.number, readings, sums, totals))

    def end(self, episode: Episode) -> None:
        """End an episode: it is evidence from now on, unless a stop has cut it."""
        with self.lock:
            if episode.state == "finished":
                return
            if episode.state != "open":
                raise CampaignError(f"end: episode {episode.number} is {episode.state}")
            with self.store.read() as connection:
                state = self.state(connection)
            if state.stopped and not episode.complete and episode.decided is None:
                why = f"control went back to the plant at step {episode.step}: {state.reason}"
                self._close(episode, "lost", why, cut=True)
                episode.back = episode.step
                return
            if not episode.step or episode.decided is not None:
                raise CampaignError(
                    f"end: episode {episode.number} "
                    + ("awaits the outcome of its last action" if episode.step else "has no steps")
                    + "; expected observe() first, or lose()"
                )
            self._close(episode, "finished", None)

    def lose(self, episode: Episode, reason: str) -> None:
        """Count an episode as lost."""
        with self.lock:
            if episode.state == "lost":
                return
            if episode.state != "open":
                raise CampaignError(f"lose: episode {episode.number} is {episode.state}")
            self._close(episode, "lost", _short(reason))

    def _close(
        self,
        episode: Episode,
        state: str,
        reason: str | None,
        *,
        cut: bool = False,
    ) -> None:
        with self.undoing(), self.store.transaction() as connection:
            self._check_holder(connection, episode, "end" if state == "finished" else "lose")
            self._close_in(connection, episode, state, reason, cut=cut)
        episode.state = state
        now = self._state
        if self.on_refit is not None and now and now.refits_due > now.refits_done:
            self.on_refit()
        if self.on_look is not None and now and now.look_due:
            self.on_look()

    def _close_in(
        self,
        connection: sa.Connection,
        episode: Episode,
        state: str,
        reason: str | None,
        *,
        cut: bool,
    ) -> None:
        """End or lose an episode, inside a transaction."""
        self.store.order(connection)
        number = episode.number
        row = connection.execute(episode_by_number, {"of_episode": number}).one()
        if row.state != "open":
            if row.state == state:
                return
            raise CampaignError(f"episode {number} is {row.state}")
        rows = observed_rows(connection, number)
        numbers = summary_of(row, state, rows, row.spent, self.terms)
        connection.execute(
            EPISODES.update()
            .where(EPISODES.c.number == number)
            .values(state=state, ended=self.clock(), reason=reason, numbers=json.dumps(numbers))
        )
        kind = "ended" if state == "finished" else "lost"
        text = f"episode {number} {'has ended' if kind == 'ended' else f'is lost: {reason}'}"
        data = numbers | {"shadow": bool(row.shadow), "steps": digest_of(rows)}
        data |= {"cut": True} if cut else {}
        self.happen(connection, Event(kind, text, row.plant, number, episode.who, data))

    # -- commands and plants ---------------------------------------------------------------------

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """Carry out a command, but for "refit", which the campaign does."""
        command = command_of(name)
        if command.about == "episode":
            if number is None:
                raise InputError(f"{name}: expected the number of an episode")
            if command.name == "drop":
                self._drop(number, reason, who)
            else:
                episode = self.episode(number)
                if episode.state != "open":
                    raise CampaignError(f"lose: episode {number} is {episode.state}")
                episode.who = who
                self.lose(episode, reason)
            return True
        with self.writing() as (connection, _):
            self.happen(connection, Event(command.event, _short(reason), who=who))
        return True

    def _drop(self, number: int, reason: str, who: str | None) -> None:
        """Take a finished episode out of the evidence."""
        with self.writing() as (connection, _):
            row = connection.execute(episode_by_number, {"of_episode": number}).one_or_none()
            if row is None or row.state != "finished":
                state = "not there" if row is None else row.state
                raise CampaignError(f"drop: episode {number} is {state}, expected a finished one")
            connection.execute(
                EPISODES.update()
                .where(EPISODES.c.number == number)
                .values(state="dropped", reason=_short(reason))
            )
            text = f"episode {number} was dropped: {_short(reason)}"
            data = {"spent": row.spent, "shadow": bool(row.shadow)}
            state = self.happen(connection, Event("dropped", text, row.plant, number, who, data))
            due = state.look_due
        if due and self.on_look is not None:
            self.on_look()

    def heartbeat(self, plant: str) -> str:
        """Note a sign of life; returns the state of the campaign in one or two words."""
        name = check_name(plant)
        with self.lock, self.store.transaction() as connection:
            self._seen(connection, name, None)
            return self.state(connection).word

    def _seen(self, connection: sa.Connection, plant: str, holder: str | None) -> None:
        """Note a sign of life, and who runs the plant where that is given."""
        moment, self._heard[plant] = self.clock(), self._elapsed()
        if not connection.execute(_set_seen, {"of_plant": plant, "seen": moment}).rowcount:
            connection.execute(PLANTS.insert().values(name=plant, seen=moment))
        if holder is not None and self.terms.lease:
            chosen = PLANTS.update().where(PLANTS.c.name == plant)
            here = holder == self.holder  # else a program behind a service, which says its word
            now = Holder.here(holder, moment) if here else Holder(holder, moment)
            connection.execute(chosen.values(holder=now.to_text()))

    def release(self) -> None:
        """Let go of all plants, so that the next program need not wait; else their leases end."""
        if self.terms.lease and self._state is not None:
            with contextlib.suppress(ScopevalError, DBAPIError):
                self._release()

    def _release(self) -> None:
        with self.lock, self.store.transaction() as connection:
            rows = connection.execute(sa.select(PLANTS.c.name, PLANTS.c.holder)).all()
            for name, text in rows:
                now = Holder.of_text(text)
                if now is not None and now.word == self.holder:
                    chosen = PLANTS.update().where(PLANTS.c.name == name)
                    connection.execute(chosen.values(holder=replace(now, released=True).to_text()))

    def tell_silence(self) -> list[str]:
        """Write an event for plants that have fallen silent, one for every silence."""
        patience = self.terms.silent_after
        with self.store.read() as connection:
            if not any_silent(connection, self.clock(), patience):
                return []
        names = []
        with self.writing() as (connection, _):
            for plant in plants_of(connection, self.clock(), patience):
                last = connection.execute(
                    sa.select(sa.func.max(EVENTS.c.time)).where(
                        EVENTS.c.kind == "silent", EVENTS.c.plant == plant.name
                    )
                ).scalar()
                if plant.silent and (last is None or last < plant.seen):
                    waited = self.clock() - plant.seen
                    text = f"no contact with {plant.name} for {waited:,.0f} s"
                    self.happen(connection, Event("silent", text, plant.name, plant.episode))
                    names.append(plant.name)
        return names

    # -- reading -------------------------------------------------------------------------------

    def _step(self, number: int, t: int) -> sa.Row[Any] | None:
        with self.store.read() as connection:
            return step_row(connection, number, t)


def _short(reason: str) -> str:
    return str(reason)[:LONGEST_REASON] or "no reason given"
