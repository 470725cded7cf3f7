"""The files in deploy/ fit the service, as far as they can be checked without installing it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

from campaign.machine import HORIZON, tables
from scopeval import Campaign

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMMAND = [sys.executable, "-c", "from scopeval.cli import main; main()"]


def options_of(text):
    return set(re.findall(r"--[a-z-]+", text))


def test_commands_of_the_unit_and_the_image_have_options_that_exist():
    done = subprocess.run([*COMMAND, "serve", "--help"], capture_output=True, text=True, check=True)
    there = options_of(done.stdout)
    unit = (DEPLOY / "scopeval.service").read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    image = (DEPLOY / "Dockerfile").read_text()
    (command,) = re.findall(r"^CMD \[\"serve.*$", image, re.M)
    assert options_of(start) | options_of(command) <= there
    assert "--proxy" in there  # nginx.conf asks for it


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_unit(tmp_path):
    text = (
        (DEPLOY / "scopeval.service")
        .read_text()
        .replace("/opt/scopeval/bin/scopeval", sys.executable)
    )
    unit = tmp_path / "scopeval.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "scopeval.service:" not in done.stderr, done.stderr


def test_rules_ask_for_metrics_that_exist():
    pytest.importorskip("prometheus_client")
    from scopeval.serve import service

    source = Path(service.__file__).read_text()
    text = (DEPLOY / "prometheus-rules.yml").read_text()
    for name in set(re.findall(r"scopeval_(\w+)", text)) - {"scopeval"}:
        plain = re.sub(r"_(total|bucket)$", "", name)
        assert f'"{plain}"' in source or f"scopeval_{plain}" in source, name


def test_the_proxy_sends_what_the_service_believes():
    text = (DEPLOY / "nginx.conf").read_text()
    assert text.count("{") == text.count("}")
    for name in ("Host $host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto $scheme"):
        assert f"proxy_set_header {name};" in text


def instructions():
    """The Dockerfile as (word, rest), lines that go on joined."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(" ", 1)) for line in lines]


def of(word):
    return [rest for name, rest in instructions() if name == word]


def test_the_image_copies_what_is_there_and_runs_what_is_installed():
    for line in of("COPY"):
        *sources, _ = line.split()
        assert sources
        for source in sources:
            assert (ROOT / source).exists(), source
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = map(json.loads, of("ENTRYPOINT"))
    assert entry[0] in project["scripts"]
    (run,) = of("RUN")
    (extras,) = re.findall(r"/build\[([\w,]+)\]", run)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (image,) = of("FROM")
    least = project["requires-python"].removeprefix(">=").split(".")
    assert [int(x) for x in re.findall(r"\d+", image)] >= [int(x) for x in least]
    assert of("USER")[0] in run  # which adds it
    check = json.loads(of("HEALTHCHECK")[0].removeprefix("CMD "))
    compile(check[2], "HEALTHCHECK", "exec")


@pytest.mark.heavy
def test_the_steps_of_the_image_give_a_service_that_runs_and_ends(tmp_path):
    """What the Dockerfile says, in a virtual environment: no image is built, nothing is root."""
    build, data, env = tmp_path / "build", tmp_path / "data", tmp_path / "env"
    build.mkdir()
    for line in of("COPY"):
        *sources, goal = line.split()
        for source in sources:
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            copy(
                ROOT / source, tmp_path / goal.strip("/") / ("" if goal.endswith("src") else source)
            )
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    path = {"PATH": f"{env / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": ""}
    (run,) = of("RUN")
    install = run.partition(" && ")[0].replace("/build", str(build))
    done = subprocess.run(
        install, shell=True, env=os.environ | path, capture_output=True, text=True, check=False
    )
    if re.search("Could not find a version|ConnectionError|NewConnectionError", done.stderr):
        pytest.skip("no package index here")
    assert done.returncode == 0, done.stderr[-2000:]
    data.mkdir()
    target, behavior = tables()
    np.save(data / "policy.npy", target)
    Campaign.create(data / "hall.campaign", target, horizon=HORIZON, behavior=behavior).close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def inside(words):
        return [word.replace("/data", str(data)).replace("8321", port) for word in words]

    (entry,) = map(json.loads, of("ENTRYPOINT"))
    entry[0] = str(env / "bin" / entry[0])
    token = [*entry, "serve-token", "create", str(data / "hall.campaign"), "plants"]
    subprocess.run([*token, "--role", "plant"], env=os.environ | path, check=True, cwd=data)
    command = [*entry, *inside(json.loads(of("CMD")[0])), "--port", port]
    check = inside(json.loads(of("HEALTHCHECK")[0].removeprefix("CMD ")))
    with subprocess.Popen(command, env=os.environ | path, cwd=data) as service:
        try:
            for _ in range(240):
                healthy = subprocess.run(check, env=os.environ | path, capture_output=True)
                if healthy.returncode == 0:
                    break
                time.sleep(0.5)
            assert healthy.returncode == 0, healthy.stderr
            service.send_signal(getattr(signal, of("STOPSIGNAL")[0]))
            assert service.wait(60) == 0
        finally:
            service.kill()
