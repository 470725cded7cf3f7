"""From a log to an answer by the command line: design, evaluate, and what they say on the way."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from scopeval import (
    Check,
    Episodes,
    Promise,
    TabularPolicy,
    TorchPolicy,
    Transitions,
    collect,
    design,
    exact,
    load,
    write_logs,
)
from scopeval.cli import design as design_command
from scopeval.cli.app import app
from scopeval.cli.sources import columns_from, environment_from, policy_from
from scopeval.envs.gridworld import Gridworld, logging_policies, target_policies
from scopeval.errors import DataError, InputError

LEARN = importlib.import_module("scopeval.behavior.designer")
MDP = Gridworld(5, seed=0).mdp()
PI = target_policies(1, 5)[0]


class Logits(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.tensor(np.log(PI.table(1)[0])).float())

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return self.table[state]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log, a policy in every form, a world to import, and a behavior policy."""
    place = tmp_path_factory.mktemp("flow")
    loggers = logging_policies(10, MDP)
    parts = [collect(MDP, p, episodes=60, seed=k) for k, p in enumerate(loggers)]
    log = Transitions(**Episodes.concat(parts).transitions())
    write_logs(log, place / "logs.parquet")
    table = PI.table(1)[0]
    np.save(place / "pi.npy", table)
    np.savez(place / "pi.npz", probs=table)
    np.savetxt(place / "pi.csv", table, delimiter=",", header="up,down,left,right", comments="")
    torch.save(Logits(), place / "pickled.pt")
    (place / "my_world.py").write_text(
        "from scopeval.envs.gridworld import Gridworld, target_policies\n"
        "from scopeval.envs.tabular import TabularEnv\n"
        "mdp = Gridworld(5, seed=0).mdp()\n"
        "pi = target_policies(1, 5)[0]\n"
        "class box:\n    table = pi\n"
        "def make():\n    return TabularEnv(mdp)\n"
        "def dear(obs, action, reward, next_obs, info):\n    return 2 * info['cost']\n"
    )
    (place / "broken_world.py").write_text("raise RuntimeError('not today')\n")
    design(log, PI, horizon=5, method="scope-dr").save(place / "mu.scope")
    return place


@pytest.fixture(autouse=True)
def _there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))


def invoke(*words: str):
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "80"})


def assert_fits(text: str) -> None:
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if len(line) > 80] == []


DESIGN = ("design", "--data", "logs.parquet", "--policy", "pi.npy", "--horizon", "5")
EVALUATE = ("evaluate", "--policy", "pi.npy", "--env", "my_world:mdp")


# -- design --------------------------------------------------------------------------------------


def test_design_writes_what_the_library_designs(folder):
    result = invoke(*DESIGN, "--method", "scope-dr", "--out", "made.scope")
    assert result.exit_code == 0, result.output
    assert_fits(result.stdout)
    assert "behavior policy by scope-dr, horizon 5" in result.stdout
    assert "predicted variance" in result.stdout
    assert result.stdout.splitlines()[-1] == "Behavior policy: made.scope"
    made, wanted = load("made.scope", PI), load("mu.scope", PI)
    np.testing.assert_allclose(made.table(25)[0], wanted.table(25)[0])
    os.unlink("made.scope")


def test_a_limit_goes_from_the_design_to_the_evaluation(folder):
    """The promise is in the file: the certificate of the evaluation is about it."""
    made = invoke(*DESIGN, "--method", "scope-dr", "--limit", "9", "--out", "limited.scope")
    assert made.exit_code == 0, made.output
    assert "the limit allows" in " ".join(made.output.split())
    found = invoke(
        *EVALUATE, "--behavior", "limited.scope", "--episodes", "100", "--json", "limited.json"
    )
    assert found.exit_code == 0, found.output
    result = json.loads((folder / "limited.json").read_text())
    assert result["certificate"]["compared"] == "limit"
    both = invoke(*DESIGN, "--at-most", "0.9", "--limit", "9", "--out", "x.scope")
    assert both.exit_code != 0
    assert "a limit stands for itself" in both.output


def test_further_resets_are_a_control_variate(folder):
    words = ("evaluate", "--policy", "pi.npy", "--env", "my_world:make", "--behavior", "mu.scope")
    found = invoke(*words, "--episodes", "40", "--starts", "100", "--json", "starts.json")
    assert found.exit_code == 0, found.output
    assert "its mean known by 100 paths of history" in " ".join(found.output.split())
    result = json.loads((folder / "starts.json").read_text())
    assert result["context"]["paths"] == 100
    assert "--starts 100" in result["command"]


def test_design_defaults_are_the_librarys():
    here = inspect.signature(design_command.design).parameters
    there = inspect.signature(design).parameters
    assert here["method"].default == there["method"].default
    assert here["at_most"].default == Promise().at_most
    assert (here["limit"].default, here["per"].default) == (Promise().limit, Promise().per)
    assert here["floor"].default == Check().floor
    assert here["gamma"].default == 1.0


def test_design_passes_its_options_on(monkeypatch):
    seen = {}

    class Made:
        def save(self, path):
            seen["path"] = path

        def summary(self):
            return "made"

    def pretend(logged, target, **options):
        seen.update(options, rows=len(logged))
        options["progress"]("design", 1, 5)
        return Made()

    monkeypatch.setattr(LEARN, "design", pretend)
    np.save("xy.npy", np.zeros((25, 2)))
    words = "--at-most 1.1 --gamma 0.9 --learn table --features xy.npy --time-varying"
    more = "--floor 0.3 --per episode --seed 7 --columns reward=reward --out x.scope"
    result = invoke(*DESIGN, *words.split(), *more.split())
    assert result.exit_code == 0, result.output
    assert seen["promise"] == Promise(at_most=1.1, per="episode")
    assert (seen["gamma"], seen["check"], seen["seed"]) == (0.9, Check(floor=0.3), 7)
    assert seen["learn"].time_varying
    assert seen["learn"].features.shape == (25, 2)
    assert seen["path"] == Path("x.scope")


def test_interrupted_design_leaves_nothing(monkeypatch, folder):
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = set(os.listdir())
    monkeypatch.setattr(LEARN, "design", interrupt)
    result = invoke(*DESIGN, "--out", "never.scope")
    assert result.exit_code == 130
    assert set(os.listdir()) == before
    monkeypatch.undo()
    os.chdir(folder)
    monkeypatch.setattr(np, "savez_compressed", interrupt)
    assert invoke(*DESIGN, "--out", "never.scope").exit_code == 130
    assert set(os.listdir()) == before


# -- evaluate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["my_world:mdp", "my_world:make"])
def test_evaluate_says_and_writes_the_answer(env, tmp_path):
    words = ["evaluate", "--env", env, "--policy", "pi.npy", "--behavior", "mu.scope"]
    file = tmp_path / "answer.json"
    result = invoke(*words, "--episodes", "400", "--json", str(file))
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if str(file) not in line]
    assert_fits("\n".join(lines))
    assert result.stdout.startswith("The policy's value is ")
    content = json.loads(file.read_text())
    assert os.listdir(tmp_path) == [file.name]
    assert content["finished"] == 400
    assert content["estimator"] == "dr"
    assert content["command"].startswith(f"scopeval evaluate --env {env} --policy pi.npy")
    truth = exact.assess(MDP, PI, PI).value
    # 5 standard errors: 6e-7
    half = (content["interval"]["high"] - content["interval"]["low"]) / 2
    assert abs(content["estimate"] - truth) < 5 * half / 1.96
    assert content["sentence"] in " ".join(result.stdout.split())


def test_evaluate_writes_a_page(tmp_path):
    page = tmp_path / "page.html"
    result = invoke(*EVALUATE, "--behavior", "mu.scope", "--episodes", "200", "--report", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "The policy is worth" in text
    assert "--report" not in text  # the command shown is the one that gives the numbers
    assert text.count("<svg") >= 4


def test_a_registered_environment():
    # its own world is 10 x 10, not the 5 x 5 of the policy here
    table = np.tile(PI.table(1)[0][:1], (100, 1))
    np.save("ten.npy", table)
    words = ["--env", "scopeval/Gridworld-v0", "--policy", "ten.npy", "--horizon", "10"]
    result = invoke("evaluate", *words, "--episodes", "20")
    assert result.exit_code == 0, result.output
    assert "the policy itself was run" in result.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--precision", "0.1", "--behavior", "mu.scope"], "narrower"),
        (["--spend", "50", "--behavior", "mu.scope"], "cost budget of 50"),
        (["--episodes", "64", "--no-guard", "--behavior", "mu.scope"], "all 64 episodes"),
        (["--episodes", "64", "--behavior", "my_world:pi"], "estimator  pdis"),
        (["--episodes", "64", "--cost", "none"], "estimator  mc"),
    ],
)
def test_evaluate_stops_as_told(words, told):
    result = invoke(*EVALUATE, *words)
    assert result.exit_code == 0, result.output
    assert_fits(result.stdout)
    assert told in " ".join(result.stdout.split()) or told in result.stdout
    assert ("guard" in result.stdout) == ("--behavior" in words and "--no-guard" not in words)


def test_a_cost_function_is_imported():
    words = ["evaluate", "--env", "my_world:make", "--policy", "pi.npy", "--horizon", "5"]
    plain = invoke(*words, "--episodes", "30", "--json", "a.json")
    double = invoke(*words, "--episodes", "30", "--cost", "my_world:dear", "--json", "b.json")
    assert (plain.exit_code, double.exit_code) == (0, 0)
    a, b = (json.loads(Path(name).read_text())["cost"]["total"] for name in ("a.json", "b.json"))
    assert b == pytest.approx(2 * a)


def test_interrupted_evaluation_tells_what_it_has(monkeypatch):
    from scopeval.evaluation.sources import SimulatedSource

    run, calls = SimulatedSource.run, []

    def stop(self, first, count, *, by_target):
        calls.append(first)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, first, count, by_target=by_target)

    monkeypatch.setattr(SimulatedSource, "run", stop)
    result = invoke(*EVALUATE, "--behavior", "mu.scope", "--episodes", "5000")
    assert result.exit_code == 130
    assert "from 128 episodes" in " ".join(result.stdout.split())
    assert "interrupted" in result.stderr


# -- policies and environments by name -----------------------------------------------------------


def test_every_form_of_a_policy(tmp_path):
    script = tmp_path / "pi.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(Logits()).save(str(script))
    states = np.arange(25)
    wanted = PI.probs(states, 0)
    for text in ("pi.npy", "pi.npz", "pi.csv", "my_world:pi", "my_world:box.table", str(script)):
        found = policy_from(text)
        np.testing.assert_allclose(found.probs(states, 0), wanted, rtol=1e-5)
        assert isinstance(found, TorchPolicy if text == str(script) else TabularPolicy)


def test_a_pickled_module_is_never_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "was_here"),))

    torch.save(Evil(), tmp_path / "evil.pt")
    np.save(tmp_path / "evil.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    for name in ("evil.pt", "evil.npy"):
        with pytest.raises(DataError):
            policy_from(str(tmp_path / name))
    assert not (tmp_path / "was_here").exists()


def test_names_of_environments():
    assert environment_from("CartPole-v1") == "CartPole-v1"
    assert environment_from("scopeval/Gridworld-v0") == "scopeval/Gridworld-v0"
    assert environment_from("some_module:Env-v0") == "some_module:Env-v0"  # Gymnasium's own form
    assert environment_from("my_world:mdp").states == 25


def test_columns():
    assert columns_from([]) is None
    assert columns_from(["reward=r", "obs=x,y"]) == {"reward": "r", "obs": "x,y"}  # split later
    assert columns_from(["obs=x", "reward=r", "obs=y"]) == {"obs": ["x", "y"], "reward": "r"}
    with pytest.raises(InputError, match="expected field=column"):
        columns_from(["reward"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*EVALUATE], "episodes: needed unless"),
        ([*EVALUATE, "--episodes", "0"], "episodes: got 0"),
        ([*EVALUATE, "--episodes", "5", "--estimator", "guess"], "estimator: got 'guess'"),
        ([*EVALUATE, "--episodes", "5", "--json", "/dev/null/x"], "cannot write /dev/null/x"),
        ([*EVALUATE, "--episodes", "5", "--behavior", "nix.scope"], "nix.scope: no such file"),
        ([*EVALUATE, "--episodes", "5", "--behavior", "nix"], "got 'nix', expected a table"),
        (["evaluate", "--env", "x:y", "--policy", "pi.npy"], "cannot import 'x'"),
        (["evaluate", "--env", "Nix-v0", "--policy", "pi.npy", "--episodes", "1"], "Nix"),
        (["evaluate", "--env", "my_world:nix", "--policy", "pi.npy"], "has no 'nix'"),
        (["evaluate", "--env", "broken_world:x", "--policy", "pi.npy"], "not today"),
        (["evaluate", "--env", "my_world:make", "--policy", "pi.npy", "--episodes", "1"], "horizo"),
        (["evaluate", "--env", "x", "--policy", "pickled.pt"], "not a TorchScript file"),
        (["evaluate", "--env", "x", "--policy", "nix.pt"], "nix.pt: no such file"),
        (["evaluate", "--env", "x", "--policy", "nix.csv"], "nix.csv: no such file"),
        (["evaluate", "--env", "x", "--policy", "my_world.py"], "expected a table"),
        ([*DESIGN, "--method", "guess", "--out", "x.scope"], "method: got 'guess'"),
        ([*DESIGN, "--columns", "reward", "--out", "x.scope"], "columns: got 'reward'"),
        ([*DESIGN, "--out", "/dev/null/x"], "cannot write /dev/null/x"),
        ([*DESIGN, "--features", "nix.npy", "--out", "x.scope"], "nix.npy: no such file"),
        ([*DESIGN, "--data", "nix.parquet", "--out", "x.scope"], "nix.parquet"),
        ([*DESIGN, "--horizon", "2", "--out", "x.scope"], "horizon"),
    ],
)
def test_errors_are_one_line_and_status_2(words, message):
    result = invoke(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not Path("x.scope").exists()


@pytest.mark.parametrize("command", ["design", "evaluate"])
def test_help_fits(command):
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert_fits(result.stdout)


# -- stages ----------------------------------------------------------------------------------------


def test_no_logs_and_no_behavior_policy_are_needed(tmp_path):
    report = tmp_path / "r.html"
    words = [
        "evaluate", "--env", "my_world:mdp", "--policy", "pi.npy", "--stages", "--episodes", "120",
        "--json", str(tmp_path / "r.json"), "--report", str(report),
    ]  # fmt: skip
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "stage 1" in done.output
    content = json.loads((tmp_path / "r.json").read_text())
    assert sum(stage["episodes"] for stage in content["stages"]) == 120
    assert ">Stages</h2>" in report.read_text()


def test_stages_begin_with_logs_that_are_given():
    words = [
        "evaluate", "--env", "my_world:mdp", "--policy", "pi.npy", "--logs", "logs.parquet",
        "--episodes", "60", "--horizon", "5",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [*words, "--stages"])
    assert done.exit_code == 0, done.output
    assert "steps of the logs" in " ".join(done.output.split())
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
