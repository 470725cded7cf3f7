"""``scopeval compare``: in an environment, and by the file of an A/B test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval.cli.app import app
from scopeval.envs.gridworld import Gridworld, target_policies

MDP = Gridworld(4, seed=0).mdp()
OLD, OTHER = (p.table(4) for p in target_policies(2, 4))
NEW = 0.6 * OLD + 0.4 * OTHER
HERE = ("--env", "compared_world:make")
POLICIES = ("--policy", "today=old.npy", "--policy", "new=new.npy")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    np.save(tmp_path / "old.npy", OLD)
    np.save(tmp_path / "new.npy", NEW)
    (tmp_path / "compared_world.py").write_text(
        "from scopeval.envs.gridworld import Gridworld\n"
        "from scopeval.envs.tabular import TabularEnv\n"
        "mdp = Gridworld(4, seed=0).mdp()\n"
        "def make():\n    return TabularEnv(mdp)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def invoke(*words: str):
    return CliRunner().invoke(app, ["compare", *words], env={"COLUMNS": "80"})


def write_test(path: Path, count: int = 60) -> None:
    rng = np.random.default_rng(0)
    lines = ["episode,obs,action,reward,cost,arm"]
    for i in range(count):
        name, policy = [("today", OLD), ("new", NEW)][int(rng.integers(2))]
        state = int(np.argmax(MDP.initial))
        for t in range(4):
            action = int(rng.choice(4, p=policy[t, state]))
            reward, cost = MDP.reward[state, action], MDP.cost[state, action]
            lines.append(f"{i},{state},{action},{float(reward)},{float(cost)},{name}")
            row = MDP.transition[[state * 4 + action]].toarray()[0]
            state = int(rng.choice(len(row), p=row))
    path.write_text("\n".join(lines))


def test_in_an_environment_with_page_and_json(folder: Path):
    done = invoke("--env", "compared_world:make", *POLICIES, "--episodes", "80", "--horizon", "4",
                  "--report", "page.html", "--json", "result.json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "a mixture of episodes" in done.stdout
    result = json.loads((folder / "result.json").read_text())
    assert result["episodes"] == 80
    assert result["command"].startswith("scopeval compare --policy today=old.npy")
    page = (folder / "page.html").read_text()
    assert "Forest plot of the differences to today" in page
    assert "Which policy is better?" in page


def test_until_it_is_decided_with_shares_a_promise_and_a_discount():
    done = invoke("--env", "compared_world:make", *POLICIES, "--episodes", "128", "--decided",
                  "--horizon", "4", "--share", "today=0.8", "--share", "new=0.2",
                  "--at-most", "1.5", "--gamma", "0.9", "--report", "page.html")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "today 0.8, new 0.2" in done.stdout
    assert "safety" in done.stdout


def test_a_ramp():
    done = invoke("--env", "compared_world:make", *POLICIES, "--episodes", "90",
                  "--horizon", "4", "--ramp", "0.2,1", "--ramp-episodes", "40")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "90 episodes" in " ".join(done.stdout.split())


def test_by_the_file_of_an_ab_test(folder: Path):
    write_test(folder / "ab.csv")
    done = invoke("--episodes", "ab.csv", "--label", "arm", *POLICIES)
    assert done.exit_code == 0, done.output
    assert "a recorded A/B test" in done.stdout
    assert "60 episodes" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--episodes", "100", *POLICIES), "env: needed"),
        (("--env", "compared_world:make", "--episodes", "ab.csv", *POLICIES), "expected a number"),
        (("--env", "compared_world:make", "--policy", "old.npy", "--horizon", "4"), "name=value"),
        (
            ("--env", "compared_world:make", "--policy", "a=old.npy", "--policy", "a=new.npy"),
            "twice",
        ),
        (("--env", "compared_world:make", "--policy", "a=old.npy", "--episodes", "9"), "two"),
        (("--episodes", "none.csv", *POLICIES), "no such file"),
        ((*HERE, *POLICIES, "--horizon", "4"), "episodes: needed"),
        ((*HERE, *POLICIES, "--horizon", "4", "--share", "today=x"), "name=number"),
        ((*HERE, *POLICIES, "--ramp", "0.1", "--share", "today=1"), "one of the two"),
        ((*HERE, *POLICIES, "--ramp", "0.1;1"), "expected shares such as"),
    ],
)
def test_wrong_words_are_one_line(words: tuple[str, ...], said: str):
    done = invoke(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
