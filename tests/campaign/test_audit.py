"""Every edit of a journal is found, a lost -wal too; journals of older formats go on."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import sqlite3
import stat
from pathlib import Path

import pytest
from machine import ACTIONS, HORIZON, STATES, Machine, run_episode, tables

from scopeval import Bound, Campaign, Limit, Promise, Ramp, Stages, Stop
from scopeval.campaign.store import FORMAT
from scopeval.campaign.terms import Terms
from scopeval.campaign.transfer import import_campaign
from scopeval.errors import DataError, InputError

TARGET, BEHAVIOR = tables()
JOURNALS = Path(__file__).parent / "journals"
OLD = JOURNALS / "format-1.campaign.gz"


@pytest.fixture
def made(place):
    guards = [Promise(), Limit(episode=100.0)]
    with Campaign.create(
        place / "c", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=1, promise=guards
    ) as campaign:
        for _ in range(9):
            run_episode(campaign)
        campaign.pause("lunch", who="ada")
        campaign.resume(who="ada")
    return place / "c"


def edit(where, *statements):
    with sqlite3.connect(where) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
    connection.close()


def verified(where, head=None):
    with Campaign.open(where, TARGET) as campaign:
        return campaign.verify(head)


def refused_or(where):
    """The audit; None: the campaign cannot even be opened."""
    try:
        return verified(where)
    except InputError:
        return None


NUMBERS = "update episodes set numbers = json_set(numbers, '$.{}', {}) where number = 2"
EDITS = {
    "an action": "update steps set action = (action + 1) % 3 where episode = 1 and step = 0",
    "a probability": "update steps set probability = 0.9 where episode = 1 and step = 0",
    "a value": NUMBERS.format("value", 500.0),
    "a cost": NUMBERS.format("cost", 0.1),
    "a reward": "update steps set reward = reward + 500 where episode = 1 and step = 0",
    "all rewards": "update steps set reward = reward + 1000",
    "all costs 0": "update steps set cost = 0",
    "an observation after it": "update steps set next_obs = 0 where episode = 1 and next_obs <> 0",
    "a weight": "update steps set log_weights = '[1.0]' where episode = 1 and step = 1",
    "an episode lost": "update episodes set state = 'lost' where number = 3",
    "a share": "update episodes set share = 0.5 where number = 3",
    "a plant": "update episodes set plant = 'other' where number = 3",
    "an event's text": "update events set text = 'nothing' where kind = 'pause'",
    "who has paused": "update events set who = 'bob' where kind = 'pause'",
    "when": "update events set time = time - 3600 where kind = 'pause'",
    "alpha": "update facts set value = json_set(value, '$.alpha', 0.2) where name = 'terms'",
    "no guards": "update facts set value = json_set(value, '$.guards', json('[]')) "
    "where name = 'terms'",
    "the seed": "update facts set value = json_set(value, '$.seed', 9) where name = 'terms'",
    "a forged event": "insert into events select max(number) + 1, 0.0, 'pause', 'forged', null, "
    "null, 'control room', '{}', 'abc' from events",
    "a design": "insert into designs select 7, kind, fingerprint, content, made, about "
    "from designs",
}


@pytest.mark.parametrize("name", EDITS)
def test_every_edit_is_found(made, name):
    edit(made, EDITS[name])
    # the last decisions are compared when it is opened
    found = refused_or(made)
    assert found is None or (not found.good and found.first)


def test_deleted_episodes_are_found(made):
    """The worst ones, or the last one, with all their rows."""
    for number in (4, 8):
        copy = made.with_name(f"copy-{number}")
        shutil.copy(made, copy)
        edit(
            copy,
            f"delete from steps where episode = {number}",
            f"delete from events where episode = {number}",
            f"delete from episodes where number = {number}",
        )
        assert not verified(copy).good


def test_whoever_writes_all_hashes_anew_has_another_head(made):
    """The last rows of all tables are cut off: only the head that was told says so."""
    head = verified(made).head
    assert verified(made, head).good
    copy = made.with_name("copy")
    shutil.copy(made, copy)
    edit(copy, "delete from events where number > 15", "delete from steps where episode > 5",
         "delete from episodes where number > 5")  # fmt: skip
    with sqlite3.connect(copy) as connection:
        connection.execute("delete from events where episode > 5")
        connection.execute("delete from events where kind = 'started' and episode > 5")
    connection.close()
    assert not verified(copy, head).good
    with pytest.raises(InputError, match="number:hash"):
        verified(made, "nonsense")


@pytest.mark.parametrize("harm", ["lost", "cut", "a bit", "garbage"])
def test_a_lost_or_damaged_wal_is_noticed(place, harm):
    campaign = Campaign.create(place / "c", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=1)
    campaign.backend.store.checkpoint()
    for _ in range(3):
        run_episode(campaign)
    folder = place / "crashed"
    folder.mkdir()
    for path in place.glob("c*"):
        if path.is_file():
            shutil.copy(path, folder / path.name)
    campaign.close()
    wal = folder / "c-wal"
    content = bytearray(wal.read_bytes())
    (folder / "c-shm").unlink(missing_ok=True)
    if harm == "lost":
        wal.unlink()
    elif harm == "cut":
        wal.write_bytes(content[: len(content) // 2])
    elif harm == "a bit":
        content[len(content) // 2] ^= 1
        wal.write_bytes(content)
    else:
        wal.write_bytes(b"\0" * len(content))
    with pytest.raises(DataError, match="-wal was lost, damaged or not copied"):
        Campaign.open(folder / "c", TARGET)


def test_a_clean_end_leaves_everything_in_one_file_that_nobody_else_reads(made):
    assert not made.with_name("c-wal").exists()
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    copy = made.with_name("copy")
    shutil.copy(made, copy)
    with Campaign.open(copy, TARGET) as campaign:
        assert campaign.status().finished == 9


def test_a_journal_of_format_1_goes_on(place):
    """Written by the code before: 6 finished episodes, 2 lost or dropped ones, an open one."""
    where = place / "old.campaign"
    where.write_bytes(gzip.decompress(OLD.read_bytes()))
    with Campaign.open(where, TARGET) as campaign:
        status = campaign.status()
        assert (status.finished, status.lost, status.open) == (6, 2, 1)
        assert "value about 1.255" in str(status)
        assert campaign.verify().good
        assert campaign.events()[-1].kind == "migrated"
        episode = campaign.resume_episode("b")
        assert episode.decided is not None
        episode.observe(1.0, 1.0, 2, signals={"heat": 0.1})
        run_episode_with(campaign, "a")
        assert campaign.verify().good
    with Campaign.open(where, TARGET) as campaign:  # migrated once
        assert [e.kind for e in campaign.events()].count("migrated") == 1
    edit(where, "update facts set value = '0' where name = 'format'")
    with pytest.raises(DataError, match="damaged, or was never released"):
        Campaign.open(where, TARGET)


def test_a_journal_of_format_2_goes_on(place):
    """Its terms do not say which interval is reported at the end: the sequence, as before.

    Written by the code before: 7 of 8 episodes are finished, the last is open. Its export is read,
    too.
    """
    where = place / "old.campaign"
    where.write_bytes(gzip.decompress((JOURNALS / "format-2.campaign.gz").read_bytes()))
    import_campaign(JOURNALS / "format-2.jsonl.gz", place / "copy.campaign")
    for one in (where, place / "copy.campaign"):
        with Campaign.open(one, TARGET) as campaign:
            assert campaign.verify().good
            episode = campaign.resume_episode("b")
            episode.observe(1.0, 1.0, 2, terminated=True)
            episode.end()
            assert campaign.status().word == "complete"
            assert campaign.status().interval.method == "asymptotic sequence"
            assert campaign.verify().good
            with campaign.backend.store.read() as connection:
                assert campaign.backend.store.fact(connection, "format") == FORMAT


def test_an_older_scopeval_says_which_version_it_takes(made):
    for wrote in ('{"scopeval": "9.1.0"}', '{"scopeval": "9.1.0", "numpy": "3.0"}'):
        edit(
            made,
            f"update facts set value = '{FORMAT + 1}' where name = 'format'",
            f"update facts set value = '{wrote}' where name = 'versions'",
        )
        with pytest.raises(DataError, match=r"by scopeval 9\.1\.0, and scopeval .* reads"):
            Campaign.open(made, TARGET)
    # where somebody forgot to count the format up, the terms themselves say it
    edit(
        made,
        f"update facts set value = '{FORMAT}' where name = 'format'",
        "update facts set value = json_set(value, '$.patience', 3) where name = 'terms'",
    )
    with pytest.raises(DataError, match="terms: patience not known to scopeval"):
        Campaign.open(made, TARGET)


#: What the terms of a format say. Who adds a field here counts `FORMAT` up, and gives journals
#: before it what they meant (`transfer.migrate`), or a default that says the same.
FIELDS_OF_TERMS = {
    Terms: (
        *("alpha", "baseline", "context", "gamma", "guard_alpha", "guards", "horizon", "interval"),
        *("lease", "policies", "promise", "ramp", "reference", "refit", "return_bound", "seed"),
        *("shadow", "shares", "silent_after", "stop", "unconfirmed"),
    ),
    Promise: ("action", "at_most", "bound", "limit", "of", "per", "signal"),
    Limit: ("action", "episode", "signal", "step", "total"),
    Bound: ("episode", "step"),
    Stop: ("cost", "decided", "episodes", "every", "precision"),
    Ramp: ("episodes", "shares"),
}


def test_new_terms_have_a_new_format():
    assert FORMAT == 3
    for kind, names in FIELDS_OF_TERMS.items():
        assert tuple(sorted(one.name for one in dataclasses.fields(kind))) == names, kind


def run_episode_with(campaign, plant):
    machine, episode = Machine(), campaign.start(plant)
    obs = machine.first(episode.number)
    while not episode.over:
        reward, cost, obs, ended = machine.step(episode.number, episode.step, obs, episode.act(obs))
        episode.observe(reward, cost, obs, terminated=ended, signals={"heat": 0.1})
    episode.end()


def test_terms_that_had_numbers_instead_of_promises_are_read_as_they_were():
    before = Terms(horizon=HORIZON, refit=Stages()).to_json()
    for name in ("promise", "guard_alpha"):
        del before[name]
    before |= {"epsilon": -0.3, "cost_bound": 15.0, "step_cost_bound": None, "alpha": 0.1}
    plain = {"kind": "Promise", "signal": "cost", "alpha": 0.05, "action": "hand over"}
    heat = {"kind": "Promise", "signal": "heat", "alpha": 0.01, "action": "pause"}
    limit = {"kind": "Limit", "signal": "cost", "step": 2.0, "episode": None, "total": None}
    before["guards"] = [
        plain | {"epsilon": None},  # in stages the target's own cost is watched
        limit | {"action": "fall back"},
        heat | {"epsilon": 0.2},
    ]
    before["baseline"] = True
    terms = Terms.from_json(before)
    bound = Bound(episode=15.0)
    assert terms.promise == Promise(0.7, bound=bound)
    assert terms.guards == (
        Promise(1.0, bound=bound),
        Limit(step=2.0, action="fall back"),
        Promise(1.2, signal="heat", action="pause"),
    )
    assert (terms.alpha, terms.guard_alpha) == (0.1, 0.01)
    assert Terms.from_json(json.loads(json.dumps(terms.to_json()))) == terms
    before |= {"refit": None, "guards": [plain | {"epsilon": None}]}
    (watched,) = Terms.from_json(before).guards
    assert watched.at_most == 0.7


def test_tokens_of_format_1_are_kept(place):
    from scopeval.serve.auth import TokenStore

    where = place / "old.campaign"
    where.write_bytes(gzip.decompress(OLD.read_bytes()))
    with Campaign.open(where) as campaign:
        book = TokenStore(campaign.backend.store, lambda: 1.8e9)
        assert [(one.name, one.role) for one in book.all()] == [
            ("hall", "plant"),
            ("room", "operator"),
        ]
        book.create("hall", "plant")  # revoked before, so that the name is free


def test_a_clock_that_was_ahead_does_not_hide_a_dead_plant(place):
    """A sign of life three days in the future."""
    now = [1e6 + 3 * 86_400.0]
    with Campaign.create(
        place / "c", TARGET, horizon=HORIZON, behavior=BEHAVIOR, silent_after=20.0,
        clock=lambda: now[0],
    ) as campaign:  # fmt: skip
        campaign.start("a").act(1)
        now[0] = 1e6
        assert campaign.status().plants[0].silent
        assert campaign.tell_silence() == ["a"]
        campaign.heartbeat("a")
        assert not campaign.status().plants[0].silent
        now[0] += 22
        assert campaign.status().plants[0].silent


def test_the_numbers_of_the_machine_are_those_of_the_stored_journal():
    assert (HORIZON, STATES, ACTIONS) == (5, 4, 3)
    assert json.dumps(TARGET[0].tolist())[:9] == json.dumps(tables()[0][0].tolist())[:9]
