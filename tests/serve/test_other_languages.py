"""The control loops of docs/serve.md run, in Python, a shell and Node, also after a restart."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from campaign.machine import HORIZON, Machine, tables
from scopeval import Campaign, Stop, connect
from scopeval.errors import CampaignError
from scopeval.serve.app import Service, serving

TARGET, _ = tables()
PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
BLOCKS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
LOOP = re.search(r'```python title="plant.py"\n(.*?)```', PAGE, re.DOTALL)[1]


class Plant(http.server.BaseHTTPRequestHandler):
    """A plant whose sensor is noisy: no two readings are alike, but for the state that it is in."""

    state, steps, machine = 1, 0, Machine()
    carried: list[int]

    def do_GET(self):
        kind, _, action = self.path.strip("/").partition("/")
        if kind == "sensor":
            answer = type(self).state
        else:
            self.carried.append(int(action))
            t = len(self.carried) - 1
            reward, cost, obs, _ = self.machine.step(0, t, type(self).state, int(action))
            type(self).state = obs
            answer = {"reward": reward, "cost": cost, "next_obs": obs}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *about):
        pass


@pytest.fixture
def plant():
    kind = type("OnePlant", (Plant,), {"carried": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", kind
    server.shutdown()
    thread.join()
    server.server_close()


def program(language, plant):
    """The block of the page, with the plant's own two functions."""
    if language == "bash":
        (block,) = [one for one in BLOCKS if "curl" in one]
        own = f"""read_sensor() {{ curl -s {plant}/sensor; }}
carry_out() {{ curl -s {plant}/run/"$1"; }}"""
        return ["bash", "-ec", f"{own}\n{block}"]
    (block,) = [one for one in BLOCKS if "fetch(" in one]
    own = f"""const URL = process.env.URL, TOKEN = process.env.TOKEN;
const readSensor = () => fetch('{plant}/sensor').then(r => r.json());
const carryOut = a => fetch('{plant}/run/' + a).then(r => r.json());"""
    return ["node", "--input-type=module", "-e", f"{own}\n{block}"]


@pytest.mark.parametrize("language", ["bash", "node"])
def test_the_loop_of_the_page_runs_an_episode_and_goes_on_with_one(served, plant, language):
    needs = ("bash", "curl", "jq") if language == "bash" else ("node",)
    for name in needs:
        if shutil.which(name) is None:
            pytest.skip(f"no {name} here, in which some plants are programmed")
    url, kind = plant
    # the program before it was killed: a decision is on disk whose outcome is not
    _, episode, _ = served.call(
        "POST", "/v1/episodes", {"plant": "hall-3", "request": "12345678"}, token="plant"
    )
    decided = served.call(
        "POST", f"/v1/episodes/{episode['number']}/act", {"step": 0, "obs": 1}, token="plant"
    )[1]["action"]
    kind.state = 2  # by now the sensor reads something else
    environment = os.environ | {"URL": served.url, "TOKEN": served.tokens["plant"]}
    done = subprocess.run(
        program(language, url), env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert len(kind.carried) == HORIZON
    assert kind.carried[0] == decided  # and was not asked for again
    with Campaign.open(served.where, TARGET) as campaign:
        status = campaign.status()
        assert (status.finished, status.lost, status.open) == (1, 0, 0)
        assert campaign.verify().good


class NoisyPlant:
    """A plant in the program: its sensor reads something else at every look."""

    def __init__(self):
        self.state, self.carried, self.machine = 2, [], Machine()

    def read(self):
        return self.state

    def run(self, action):
        t = len(self.carried)
        self.carried.append(action)
        reward, cost, self.state, _ = self.machine.step(0, t, self.state, action)
        return self.state, reward, cost, False


def test_the_loop_in_python_goes_on_with_what_was_decided_and_ends_with_the_plan(create):
    where, tokens = create(stop=Stop(episodes=2), lease=0.2)
    with serving(Service(where, TARGET, port=0)) as url:
        with connect(url, tokens["plant"]) as before:  # killed before it has reported
            decided = before.start("hall-3").act(1)
        time.sleep(0.3)  # its lease ends
        plant = NoisyPlant()
        names = {"plant": plant}
        loop = LOOP.replace("http://127.0.0.1:8321", url).replace("scopeval_...", tokens["plant"])
        with pytest.raises(CampaignError) as over:
            exec(compile(loop, "plant.py", "exec"), names)
        names["campaign"].close()
        assert over.value.code == "plan_reached"
        assert plant.carried[0] == decided
        assert len(plant.carried) == 2 * HORIZON
    with Campaign.open(where, TARGET) as campaign:
        assert (campaign.status().finished, campaign.status().lost) == (2, 0)
        assert campaign.verify().good
