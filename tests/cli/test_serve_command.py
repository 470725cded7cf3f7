"""The commands serve and serve-token."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import numpy as np
import pytest
from typer.testing import CliRunner

from campaign.machine import HORIZON, Machine, run_episode, tables
from scopeval import Campaign, connect
from scopeval.cli.app import app

pytest.importorskip("fastapi", reason="no FastAPI here: try pip install 'scopeval[serve]'")
from scopeval.serve.auth import TokenStore

TARGET, BEHAVIOR = tables()


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("policy.npy", TARGET)
    Campaign.create("hall.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR).close()
    return "hall.campaign"


def run(*words):
    return CliRunner().invoke(app, ["serve-token", *words])


def test_tokens_are_made_listed_and_revoked(where):
    made = run("create", where, "hall 3", "--role", "plant", "--plant", "hall-3")
    assert made.exit_code == 0
    assert made.output.startswith("scopeval_")
    assert made.output.count("\n") == 1
    listed = run("list", where).output
    assert "hall 3" in listed
    assert "valid" in listed
    assert made.output.split("_")[2].strip() not in listed
    assert run("revoke", where, "hall 3").output == "revoked: hall 3\n"
    assert "revoked" in run("list", where).output
    again = run("revoke", where, "hall 3")
    assert again.exit_code == 2
    assert "no valid token" in again.output
    assert run("create", where, "x", "--role", "king").exit_code == 2
    assert run("list", "nowhere.campaign").exit_code == 2


def test_other_addresses_are_refused_without_tokens(where):
    done = CliRunner().invoke(
        app, ["serve", where, "--policy", "policy.npy", "--host", "0.0.0.0", "--port", "0"]
    )
    assert done.exit_code == 2
    assert "nobody has a token" in done.output
    done = CliRunner().invoke(
        app, ["serve", where, "--policy", "policy.npy", "--webhook", "file:///etc/passwd"]
    )
    assert done.exit_code == 2
    assert "webhook" in done.output


def test_the_log_and_the_signals_are_as_before_when_a_service_has_ended(where, capfd):
    """The stream that it wrote to may be closed by then."""
    log = logging.getLogger("scopeval.serve")
    before = log.handlers[:], log.level, log.propagate, signal.getsignal(signal.SIGTERM)
    done = CliRunner().invoke(
        app, ["serve", where, "--policy", "policy.npy", "--host", "0.0.0.0", "--port", "0"]
    )
    assert done.exit_code == 2
    assert (log.handlers, log.level, log.propagate, signal.getsignal(signal.SIGTERM)) == before
    log.warning("refused")
    assert "Logging error" not in capfd.readouterr().err


def started(where, port):
    """A service in a process of its own, which answers."""
    words = ["serve", where, "--policy", "policy.npy", "--port", str(port), "--title", "Hall"]
    program = "import sys; from scopeval.cli import main; main()"
    served = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    )
    assert f"http://127.0.0.1:{port}/" in served.stdout.readline()
    return served


@pytest.fixture
def port():
    """A free port that the system gives nobody else: below those of outgoing calls."""
    for port in random.sample(range(10_000, 30_000), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("none of 100 ports is free")


def test_a_service_starts_answers_and_ends(where, port):
    token = run("create", where, "hall", "--role", "plant").output.strip()
    served = started(where, port)
    try:
        with connect(f"http://127.0.0.1:{port}", token) as campaign:
            assert campaign.start("hall-1").number == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert json.load(answer) == {"status": "ok"}
    finally:
        served.send_signal(signal.SIGINT)
        rest = served.communicate(timeout=300)[0]
    assert served.returncode in (0, 130)
    assert "Traceback" not in rest


def test_a_plant_goes_on_when_the_service_is_killed_and_started_again(where, port, tmp_path):
    """kill -9 between and within calls: nothing is lost or doubled, the result is the same."""
    with Campaign.open(where, TARGET) as campaign:
        book = TokenStore(campaign.backend.store, time.time)
        token, viewer = book.create("hall", "plant"), book.create("me", "viewer")
    machine, killed, running = Machine(), [], [started(where, port)]

    def kill():
        running[-1].kill()
        running[-1].communicate()
        running.append(started(where, port))
        killed.append(True)

    url = f"http://127.0.0.1:{port}"
    with connect(url, token, patience=120.0) as campaign, connect(url, viewer) as looking:
        for number in range(6):
            episode = campaign.start("hall-1", resume=True)
            obs = machine.first(number)
            restart = threading.Thread(target=kill) if number == 2 else None
            while not episode.over:
                if restart is not None and episode.step == 1:
                    restart.start()
                action = episode.act(obs)
                reward, cost, obs, ended = machine.step(number, episode.step, obs, action)
                episode.observe(reward, cost, obs, terminated=ended)
            episode.end()
            if restart is not None and restart.ident is not None:
                restart.join()
        found = looking.result()
    running[-1].kill()
    running[-1].communicate()
    assert killed
    with Campaign.create(
        tmp_path / "local.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR
    ) as local:
        for _ in range(6):
            run_episode(local, "hall-1")
        assert found == local.result()
        assert len(found.diagnostics.warnings) == len(local.result().diagnostics.warnings)
