"""Only a policy that is a torch module needs torch: a process in which it cannot be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scopeval
from scopeval.cli.sources import policy_from
from scopeval.errors import MissingExtraError

TESTS = Path(__file__).parent

PROGRAM = """
import sys
sys.modules["torch"] = None  # an import of it fails from now on

import numpy as np
from scopeval import Networks, Stop, collect, compare, design, evaluate, frontier, read_logs
from scopeval.models.model_critic import Study
from scopeval.models.training import Training
from scopeval.cli.demonstration import Config, run
from walking_world import Walk

shown = run(Config(size=4, logged=100, episodes=100), "demo")
assert shown.learned.finished == 100

def policy(obs, t):
    up = 1.0 / (1.0 + np.exp(-obs[:, 0]))
    return np.stack([0.4 * up, 0.3 * np.ones(len(obs)), 0.7 - 0.4 * up], axis=1)

def other(obs, t):
    return policy(-obs, t)

few = Networks(
    training=Training(hidden=8, steps=50, batch=32),
    paths=20,
    study=Study(paths=40, hidden=8, steps=20, batch=32),
)
logs = read_logs(collect(Walk, policy, episodes=60, horizon=3, seed=1))
made = design(logs, policy, horizon=3, learn=few)
frontier(logs, policy, horizon=3, points=3, learn=few)
evaluate(Walk, policy, made, episodes=20, horizon=3)
compare(Walk, {"a": policy, "b": other}, horizon=3, stop=Stop(episodes=40))
assert sys.modules["torch"] is None
"""


def test_demo_design_evaluate_frontier_and_compare_need_no_torch(tmp_path):
    program = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_imports_torch_before_a_torch_policy_comes_in():
    """The few functions that import it are given a torch module, or read one from a file."""
    root = Path(scopeval.__file__).parent
    importing = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import) and any(x.name == "torch" for x in node.names):
                importing.add(str(path.relative_to(root)))
    policies = {f"policies/{name}.py" for name in ("adapters", "gaussian")}
    assert importing == {*policies, "cli/sources.py", "_parallel.py"}


def test_a_file_of_torch_without_torch_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "policy.pt"
    path.touch()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"policy\.pt.*pip install 'scopeval\[torch\]'"):
        policy_from(str(path))
