"""scopeval campaign and scopeval estimate."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval import Campaign, Episodes, Promise, Transitions, design, estimate
from scopeval.cli.app import app

RUNNER = CliRunner()
RNG = np.random.default_rng(0)
TARGET = RNG.dirichlet(np.ones(3), 4)
BEHAVIOR = 0.7 * TARGET + 0.1


def run(*words, code=0):
    done = RUNNER.invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A campaign that was created by the command, with ten episodes."""
    monkeypatch.chdir(tmp_path)
    np.save("target.npy", TARGET)
    np.save("behavior.npy", BEHAVIOR)
    said = run(
        *("campaign", "create", "c.campaign", "--policy", "target.npy", "--horizon", 3),
        *("--behavior", "behavior.npy", "--episodes", 20, "--seed", 4, "--ramp", "0.5,1.0"),
        *("--limit", "cost:episode:50:pause", "--limit", "cost:total:1000:hand-over"),
    )
    assert "guard: cost at most 50 an episode (pause)" in said
    assert "guard: cost at most 1000 in total (hand over)" in said
    with Campaign.open("c.campaign", TARGET) as campaign, campaign.group():
        for _ in range(10):
            episode = campaign.start("hall-1")
            while not episode.over:
                episode.observe(float(episode.act(1)), 1.0, 1)
            episode.end()
    return tmp_path


def test_without_the_extra_one_line_says_what_to_install():
    code = "import sys; sys.modules['sqlalchemy'] = None; from scopeval.cli import main; main()"
    words = [sys.executable, "-c", code, "campaign", "status", "c.campaign"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2
    assert "A campaign needs the package 'sqlalchemy'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_status_says_how_far_it_is(files):
    said = run("campaign", "status", "c.campaign")
    assert "running" in said
    assert "10 episodes finished" in said
    assert "hall-1: idle, 10 finished" in said
    found = json.loads(run("campaign", "status", "c.campaign", "--json"))
    assert (found["finished"], found["share"]) == (10, 0.5)
    assert found["plants"][0]["name"] == "hall-1"


def test_report_writes_a_page(files):
    assert "Report: r.html" in run("campaign", "report", "c.campaign", "--out", "r.html")
    assert "10 episodes" in (files / "r.html").read_text()


def test_exported_episodes_give_the_same_estimate(files):
    run("campaign", "export", "c.campaign", "e.npz")
    with Campaign.open("c.campaign") as campaign:
        assert np.array_equal(Episodes.load("e.npz").action, campaign.episodes().action)
        value = campaign.result().estimate
    said = run("estimate", "e.npz", "e.npz", "--json", "r.json", "--report", "r.html")
    assert "20 episodes" in said
    assert json.loads((files / "r.json").read_text())["estimate"] == pytest.approx(value)
    other = np.full((4, 3), 1 / 3)
    np.save("other.npy", other)
    said = run("estimate", "e.npz", "--policy", "other.npy", "--json", "r.json")
    expected = estimate(Episodes.load("e.npz"), other).estimate
    assert json.loads((files / "r.json").read_text())["estimate"] == pytest.approx(expected)


def test_a_campaign_moves_to_another_database(files):
    run("campaign", "export", "c.campaign", "all.jsonl.gz")
    assert "10 finished" in run("campaign", "import", "all.jsonl.gz", "other.campaign")
    with Campaign.open("c.campaign", TARGET) as one, Campaign.open("other.campaign", TARGET) as two:
        assert one.result() == two.result()
        assert one.events() == two.events()
        assert two.verify().good
        assert two.start("hall-1").number == 10
    said = run("campaign", "import", "all.jsonl.gz", "other.campaign", code=2)
    assert "already" in said


def test_a_damaged_export_is_refused(files):
    run("campaign", "export", "c.campaign", "all.jsonl.gz")
    lines = gzip.decompress((files / "all.jsonl.gz").read_bytes()).splitlines(keepends=True)
    for name, edited in {
        "short": lines[:-3],
        "changed": [line.replace(b'"cost": 1.0', b'"cost": 2.0') for line in lines],
        "type": [line.replace(b'"cost": 1.0', b'"cost": "x"') for line in lines],
        "table": [line.replace(b'["steps"', b'["others"') for line in lines],
        "head": lines[1:],
    }.items():
        (files / name).write_bytes(gzip.compress(b"".join(edited)))
        assert "damaged" in run("campaign", "import", name, f"{name}.campaign", code=2)
    (files / "raw").write_bytes(b"x" * 100)
    assert "damaged" in run("campaign", "import", "raw", "raw.campaign", code=2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--limit", "cost:50"], "signal:what:number:action"),
        (["--limit", "cost:episode:5:explode"], "action"),
        (["--ramp", "a,b"], "shares"),
        (["--ramp", "1.0,0.5"], "increasing"),
    ],
)
def test_wrong_settings_are_told(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    np.save("target.npy", TARGET)
    said = run(
        *("campaign", "create", "c", "--policy", "target.npy", "--horizon", 3, *words), code=2
    )
    assert says in said
    assert "already" not in said


def test_a_limit_leaves_the_promise_that_the_behavior_was_designed_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("target.npy", TARGET)
    rng = np.random.default_rng(0)
    t, obs = np.tile(np.arange(3), 300), rng.integers(0, 4, 901)
    columns = {"t": t, "obs": obs[:-1], "next_obs": obs[1:], "action": rng.integers(0, 3, 900)}
    noise = {"reward": rng.normal(size=900), "cost": rng.random(900)}
    log = Transitions(**columns, **noise, terminated=t == 2)
    design(log, TARGET, horizon=3, promise=Promise(at_most=1.3)).save("b.scope")
    words = ("--policy", "target.npy", "--horizon", 3, "--behavior", "b.scope")
    for k, more in enumerate(((), ("--limit", "cost:total:99:pause"), ("--bound", 9))):
        said = run("campaign", "create", f"{k}.campaign", *words, *more)
        assert "guard: expected cost at most 1.3 times the target policy's" in said


def test_several_policies_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("old.npy", TARGET)
    np.save("new.npy", BEHAVIOR)
    both = ("--policy", "today=old.npy", "--policy", "new=new.npy")
    said = run(
        *("campaign", "create", "c.campaign", *both, "--horizon", 3, "--episodes", 60),
        *("--share", "today=0.75", "--share", "new=0.25", "--decided"),
    )
    assert "design: mixture" in said
    with Campaign.open("c.campaign") as campaign:
        assert campaign.terms.policies == ("today", "new")
        assert campaign.terms.shares == (0.75, 0.25)
        assert campaign.terms.stop.decided
        with campaign.group():
            for _ in range(60):
                episode = campaign.start("hall-1")
                while not episode.over:
                    episode.observe(float(episode.act(1)), 1.0, 1)
                episode.end()
        campaign.look()
    said = " ".join(run("campaign", "status", "c.campaign").split())
    assert "today: baseline" in said
    assert "new: " in said
    found = json.loads(run("campaign", "status", "c.campaign", "--json"))
    assert [one["name"] for one in found["policies"]] == ["today", "new"]
    assert "today" in run("campaign", "report", "c.campaign", "--out", "r.html")
    assert "good" in run("campaign", "verify", "c.campaign", *both)
    said = run("campaign", "create", "d.campaign", "--policy", "a=old.npy", "--horizon", 3, code=2)
    assert "at least two" in " ".join(said.split())


def test_policies_that_no_database_holds_are_asked_for_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    lines = "def today(obs, t):\n    return np.tile([0.5, 0.5], (len(obs), 1))\n"
    text = (
        "import numpy as np\n" + lines + lines.replace("today", "new").replace("0.5,", "0.4 + .1,")
    )
    (tmp_path / "pumps_of_a_tank.py").write_text(text)
    both = ("--policy", "today=pumps_of_a_tank:today", "--policy", "new=pumps_of_a_tank:new")
    run("campaign", "create", "c.campaign", *both, "--horizon", 2, "--episodes", 3)
    import pumps_of_a_tank

    policies = {"today": pumps_of_a_tank.today, "new": pumps_of_a_tank.new}
    with Campaign.open("c.campaign", policies) as campaign:
        for _ in range(3):
            episode = campaign.start("tank")
            while not episode.over:
                episode.observe(float(episode.act([1.0])), 1.0, [1.0])
            episode.end()
    for verb in (("verify", "c.campaign"), ("report", "c.campaign", "--out", "r.html")):
        said = " ".join(run("campaign", *verb, code=2).split())
        assert "without today, new" in said
        assert "--policy today=... --policy new=..." in said
        run("campaign", *verb, *both)
