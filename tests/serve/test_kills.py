"""A service and its client are killed at random moments: nothing is lost, doubled or different."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from campaign.machine import HORIZON, tables
from scopeval import Campaign
from scopeval.serve.auth import TokenStore

TARGET, BEHAVIOR = tables()
EPISODES, SEED = 20, 3

#: Runs one plant over HTTP until the episodes are over; notes each answer before it goes on.
CLIENT = """
import json, os, sys
from campaign.machine import Machine
from scopeval import connect
from scopeval.errors import CampaignError
url, token, notes, episodes = sys.argv[1:]
machine, file = Machine(), open(notes, "a")
def note(*what):
    file.write(json.dumps(what) + "\\n")
    file.flush()
    os.fsync(file.fileno())
with connect(url, token, patience=120.0) as campaign:
    while True:
        episode = campaign.start("a", resume=True, take_over=True)
        if episode.number >= int(episodes):
            break
        obs = machine.first(episode.number) if episode.last_obs is None else int(episode.last_obs)
        while not episode.over:
            t = episode.step
            action = episode.decided.action if episode.decided else episode.act(obs)
            note("act", episode.number, t, obs, action)
            reward, cost, following, ended = machine.step(episode.number, t, obs, action)
            episode.observe(reward, cost, following, terminated=ended)
            note("observe", episode.number, t, reward)
            obs = following
        episode.end()
"""


def started(where, policy, port):
    """A service in a process of its own."""
    words = ["serve", str(where), "--policy", str(policy), "--port", str(port)]
    program = "from scopeval.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def create(where):
    return Campaign.create(where, TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=SEED, lease=0.0)


@pytest.mark.heavy
def test_kills_of_the_service_and_of_its_client_change_nothing(place):
    """About 15 kills, at moments that differ from run to run."""
    where, notes, policy = place / "c.campaign", place / "notes", place / "policy.npy"
    np.save(policy, TARGET)
    with create(where) as campaign:
        token = TokenStore(campaign.backend.store, time.time).create("the plant", "plant")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    call = [sys.executable, "-c", CLIENT, f"http://127.0.0.1:{port}", token, str(notes)]
    here = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])}
    rng, kills = random.Random(SEED), {"service": 0, "client": 0}
    service = started(where, policy, port)
    client = subprocess.Popen([*call, str(EPISODES)], env=os.environ | here)
    try:
        until = time.monotonic() + 1500
        while client.poll() is None or client.returncode == -signal.SIGKILL:
            assert time.monotonic() < until, "the episodes are not over"
            before = lines_of(notes)
            while lines_of(notes) < before + rng.randrange(1, 12) and client.poll() is None:
                time.sleep(0.005)
            if client.poll() == 0:
                break
            if rng.random() < 0.7:
                service.kill()
                service.wait()
                kills["service"] += 1
                check(where, notes)  # before anything is started again
                service = started(where, policy, port)
            else:
                client.kill()
                client.wait()
                kills["client"] += 1
                client = subprocess.Popen([*call, str(EPISODES)], env=os.environ | here)
        assert client.returncode == 0
    finally:
        for process in (service, client):
            process.kill()
            process.wait()
    told = check(where, notes)
    assert kills["service"] >= 5
    assert kills["client"] >= 1
    with Campaign.open(where, TARGET) as campaign, create(place / "calm") as calm:
        run(calm)
        campaign.start("a", resume=True).lose("the last one, which was not run")
        calm.start("a").lose("the last one, which was not run")
        assert campaign.verify().good
        assert campaign.result().summary() == calm.result().summary()
        with campaign.backend.store.read() as connection:
            steps = connection.exec_driver_sql("select count(*) from steps").scalar()
        assert rows(campaign) == rows(calm)
    print(f"{kills}, {told} decisions noted, {steps} steps")


def run(campaign):
    """The same episodes, and nobody disturbs."""
    from campaign.machine import run_episode

    with campaign.group():
        for _ in range(EPISODES):
            run_episode(campaign, "a")


def rows(campaign):
    """All episodes and steps, but for times, and for the words of calls over HTTP."""
    columns = "number, plant, design, share, by_target, state, length, spent, terminated, numbers"
    of_steps = "obs, action, probability, target_probability, control, baseline, chooser, reward"
    with campaign.backend.store.read() as connection:
        run = connection.exec_driver_sql
        return [
            run(f"select {columns} from episodes order by number").all(),
            run(f"select {of_steps}, cost, next_obs from steps order by episode, step").all(),
        ]


def lines_of(notes):
    return notes.read_bytes().count(b"\n") if notes.exists() else 0


def check(where, notes):
    """All that was noted is in the journal, and no step was told two actions."""
    told = {}
    text = notes.read_text() if notes.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    with Campaign.open(where) as campaign, campaign.backend.store.read() as connection:
        chosen = "select episode, step, action, reward from steps"
        kept = {(r[0], r[1]): r[2:] for r in connection.exec_driver_sql(chosen)}
    for kind, number, t, *rest in lines:
        assert (number, t) in kept, f"lost: {kind} of episode {number}, step {t}"
        action, reward = kept[number, t]
        if kind == "act":
            assert told.setdefault((number, t), rest[1]) == rest[1], "told two actions"
            assert int(action) == rest[1]
        else:
            assert reward == rest[0]
    return len(told)
