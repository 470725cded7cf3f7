"""The files in deploy/ fit the service, as far as they can be checked without installing it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"
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
    from scopeval.serve import viewer

    source = Path(viewer.__file__).read_text()
    text = (DEPLOY / "prometheus-rules.yml").read_text()
    for name in set(re.findall(r"scopeval_(\w+)", text)) - {"scopeval"}:
        plain = re.sub(r"_(total|bucket)$", "", name)
        assert f'"{plain}"' in source or f"scopeval_{plain}" in source, name


def test_the_proxy_sends_what_the_service_believes():
    text = (DEPLOY / "nginx.conf").read_text()
    assert text.count("{") == text.count("}")
    for name in ("Host $host", "X-Forwarded-For $remote_addr", "X-Forwarded-Proto $scheme"):
        assert f"proxy_set_header {name};" in text
