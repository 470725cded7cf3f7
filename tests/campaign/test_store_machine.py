"""A campaign under any order of calls, kills and failing commits: one state machine over its store.

Two processes (two `Campaign` objects) work on one file. A kill drops an object without closing it.
A commit fails before it is on disk, or after, when only its answer is lost. At every kill and at
the end: `verify` is good, every process has the state that folding the journal from its beginning
gives, and what was told to a plant stands in the journal.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from machine import HORIZON, Machine, tables

from scopeval import Bound, Campaign, Limit, Promise, Ramp, Stop
from scopeval.errors import CampaignError, DataError

TARGET, BEHAVIOR = tables()
PLANTS = ("a", "b", "c")
WHO = st.sampled_from((0, 1))
PLANT = st.sampled_from(PLANTS)
TERMS = {
    "plain": {},
    "limits": {
        "promise": [
            Promise(),
            Limit(episode=4.0, action="tell"),
            Limit(total=60.0, action="pause"),
            Limit("heat", step=0.9, action="hand over"),
        ]
    },
    "ramp": {"ramp": Ramp((0.3, 1.0), episodes=2), "stop": Stop(episodes=6)},
    "bound": {"promise": Promise(bound=Bound(step=4.0))},
    "several": {"behavior": None, "stop": Stop(episodes=40, every=2)},
}
#: Two policies that are compared, where the terms are "several".
BOTH = {"today": TARGET, "new": BEHAVIOR}


def memory_of(state):
    """All that a state holds, but for what computes: comparable between two objects."""
    plain = {name: value for name, value in vars(state).items() if name not in COMPUTES}
    guards = [None if guard is None else repr(guard.state) for guard in state._guards]
    segments = state.allotment.segments, state.allotment.stage, state.next_weight()
    return plain, guards, segments, repr(state.interval)


COMPUTES = ("allotment", "_value", "_guards")


class Store(RuleBasedStateMachine):
    """The calls of plants and operators in any order, and what can happen to their processes."""

    @initialize(terms=st.sampled_from(sorted(TERMS)), seed=st.integers(0, 3))
    def create(self, terms, seed):
        self.folder = tempfile.TemporaryDirectory()
        self.where = Path(self.folder.name, "c.campaign")
        settings = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": seed} | TERMS[terms]
        self.target = BOTH if terms == "several" else TARGET
        Campaign.create(self.where, self.target, **settings).close()
        self.signals = {"heat": 0.5} if terms == "limits" else {}
        self.dead = []  # killed processes: their connections stay open until the end
        self.processes = [self.open() for _ in range(2)]
        self.episodes = [{}, {}]  # what each process holds, by plant
        self.told = {}  # actions that plants were told
        self.outcomes = {}  # outcomes that were acknowledged
        self.over = {}  # episodes that were acknowledged as ended or lost

    def open(self):
        campaign = Campaign.open(self.where, self.target)
        campaign.backend.on_look = None  # looks come by a rule
        return campaign

    # -- plants ----------------------------------------------------------------------------------

    @rule(who=WHO, plant=PLANT, resume=st.booleans())
    def start(self, who, plant, resume):
        with contextlib.suppress(CampaignError):
            self.episodes[who][plant] = self.processes[who].start(plant, resume=resume)

    @rule(who=WHO, plant=PLANT)
    def act(self, who, plant):
        episode = self.episodes[who].get(plant)
        if episode is None:
            return
        try:
            action = episode.act(self.observation(episode))
        except CampaignError:
            del self.episodes[who][plant]  # over, or ended elsewhere
            return
        known = self.told.setdefault((episode.number, episode.step), action)
        assert known == action, "a decision was told twice, with two actions"

    def observation(self, episode):
        """A function of what was observed, so that both processes see the same."""
        if episode.decided is not None:
            return int(episode.decided.obs)
        if episode.step and (episode.number, episode.step - 1) in self.outcomes:
            return self.outcomes[episode.number, episode.step - 1][2]
        return Machine().first(episode.number) if not episode.step else int(episode.last_obs)

    @rule(who=WHO, plant=PLANT, hot=st.booleans())
    def observe(self, who, plant, hot):
        episode = self.episodes[who].get(plant)
        if episode is None or episode.decided is None or episode.state != "open":
            return
        t, obs, action = episode.step, int(episode.decided.obs), episode.decided.action
        reward, cost, following, ended = Machine().step(episode.number, t, obs, action)
        outcome = self.outcomes.get((episode.number, t))
        signals = {name: 0.95 if hot else value for name, value in self.signals.items()}
        if outcome is not None:
            signals = outcome[4]
        try:
            episode.observe(reward, cost, following, terminated=ended, signals=signals)
        except CampaignError:
            del self.episodes[who][plant]
            return
        self.outcomes[episode.number, t] = (reward, cost, following, ended, signals)

    @rule(who=WHO, plant=PLANT, lose=st.booleans())
    def close(self, who, plant, lose):
        episode = self.episodes[who].get(plant)
        if episode is None:
            return
        try:
            episode.lose("given up") if lose else episode.end()
        except CampaignError:
            return
        del self.episodes[who][plant]
        state = "lost" if lose else "finished"
        assert self.over.setdefault(episode.number, state) == state

    # -- operators -------------------------------------------------------------------------------

    @rule(who=WHO, verb=st.sampled_from(("pause", "resume", "resume", "hand_over")))
    def command(self, who, verb):
        getattr(self.processes[who], verb)("asked for")

    @rule(who=WHO)
    def look(self, who):
        if self.target is BOTH:
            self.processes[who].look()

    @rule(who=WHO, data=st.data())
    def drop(self, who, data):
        finished = sorted(n for n, state in self.over.items() if state == "finished")
        if not finished:
            return
        number = data.draw(st.sampled_from(finished))
        self.processes[who].drop(number, "a broken sensor")
        self.over[number] = "dropped"

    # -- what happens to processes ---------------------------------------------------------------

    @rule(who=WHO)
    def kill(self, who):
        """The process is gone between two calls, and nothing was closed."""
        self.whole()
        self.dead.append(self.processes[who])
        self.processes[who] = self.open()
        self.episodes[who] = {}

    @rule(who=WHO, verb=st.sampled_from(("start", "act", "observe", "close", "command", "group")),
          plant=PLANT, lose=st.booleans(), after=st.booleans(), data=st.data())  # fmt: skip
    def failing_commit(self, who, verb, plant, lose, after, data):
        """A call fails when it is written: nothing is on disk, or only the answer is lost."""
        dialect = self.processes[who].backend.store.engine.dialect
        commit = dialect.do_commit

        def fail(connection):
            if after:
                commit(connection)
            raise sqlite3.OperationalError("disk I/O error")

        dialect.do_commit = fail
        noted = dict(self.told), dict(self.outcomes), dict(self.over)
        try:
            if verb == "start":
                self.processes[who].start(plant, resume=lose)
            elif verb == "act":
                self.act(who, plant)
            elif verb == "observe":
                self.observe(who, plant, lose)
            elif verb == "close":
                self.close(who, plant, lose)
            elif verb == "command":
                self.processes[who].pause("while it fails")
            else:
                with self.processes[who].group():
                    self.act(who, plant)
                    self.processes[who].pause("while it fails")
        except (DataError, CampaignError):
            self.told, self.outcomes, self.over = noted  # inside a group nothing is told before
        finally:
            dialect.do_commit = commit
        # the caller does not know: it fetches the episode again, as the documentation asks
        episode = self.episodes[who].pop(plant, None)
        if episode is not None:
            found = self.processes[who].episode(episode.number)
            self.note(found)
            if found.state == "open":
                self.episodes[who][plant] = found

    def note(self, episode):
        """What stands in the journal although nobody was told."""
        if episode.state != "open":
            self.over[episode.number] = episode.state
        with self.processes[0].backend.store.read() as connection:
            rows = connection.exec_driver_sql(
                "SELECT step, obs, action, reward FROM steps WHERE episode = ?", (episode.number,)
            ).all()
        for step, obs, action, reward in rows:
            if reward is not None and (episode.number, step) not in self.outcomes:
                numbers = Machine().step(episode.number, step, int(obs), int(action))
                self.outcomes[episode.number, step] = (*numbers, self.signals_of(episode, step))

    def signals_of(self, episode, step):
        with self.processes[0].backend.store.read() as connection:
            text = connection.exec_driver_sql(
                "SELECT signals FROM steps WHERE episode = ? AND step = ?", (episode.number, step)
            ).scalar()
        return json.loads(text) if text else {}

    # -- what must hold --------------------------------------------------------------------------

    def whole(self):
        """The journal is right, and every process has the state that it says."""
        with self.open() as fresh:
            checked = fresh.verify()
            assert checked.good, checked
            with fresh.backend.store.read() as connection:
                wanted = memory_of(fresh.backend.state(connection))
                rows = connection.exec_driver_sql(
                    "SELECT episode, step, action, reward FROM steps"
                ).all()
                states = dict(
                    connection.exec_driver_sql("SELECT number, state FROM episodes").all()
                )
            for process in self.processes:
                with process.backend.store.read() as connection:
                    assert memory_of(process.backend.state(connection)) == wanted
        journal = {(episode, step): (int(action), reward) for episode, step, action, reward in rows}
        for place, action in self.told.items():
            assert journal[place][0] == action, "a decision that was told is not in the journal"
        for place, outcome in self.outcomes.items():
            assert journal[place][1] == outcome[0], "an outcome is not in the journal"
        assert sorted(states) == list(range(len(states)))
        for number, state in self.over.items():
            assert states[number] == state

    def teardown(self):
        if not hasattr(self, "where"):
            return
        try:
            self.whole()
        finally:
            for campaign in (*self.dead, *self.processes):
                campaign.close()
            self.folder.cleanup()


class LongStore(Store):
    """The same, in many more examples."""


#: The same examples in every run.
FEW = settings(
    max_examples=20,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestStore = Store.TestCase
TestStore.settings = FEW
TestLongStore = pytest.mark.heavy(LongStore.TestCase)
TestLongStore.settings = settings(FEW, max_examples=200)
