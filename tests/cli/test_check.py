"""``scopeval check``: the diagnosis and the picture of a log, at 80 columns, with its status."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from scopeval import Transitions, write_logs
from scopeval.cli.app import app
from wearing_machine import machine_log, policy, shuffled, transitions


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def invoke(*words: str):
    return CliRunner().invoke(app, ["check", *words], env={"COLUMNS": "80"})


def lines_of(result, code=0):
    assert result.exit_code == code, result.output
    lines = result.stdout.splitlines()
    assert "\x1b" not in result.stdout
    assert [line for line in lines if len(line) > 80 or line != line.rstrip()] == []
    return lines


def test_a_clean_log():
    columns = machine_log(300)
    log = transitions(columns)
    write_logs(log, "log.parquet")
    np.save("pi.npy", policy())
    lines = lines_of(invoke("log.parquet", "--policy", "pi.npy", "--horizon", "20"))
    assert lines[0] == f"log.parquet: {len(log):,} rows"
    assert "  300 episodes" in lines
    assert any(line.startswith("  19 to 20 ") and line.endswith("#" * 40) for line in lines)
    first = next(line for line in lines if line.startswith("    0 to 1 "))
    taken = np.bincount(log.action[log.t < 2], minlength=3) / (log.t < 2).sum()
    assert first.split()[-3:] == [f"{share:.0%}" for share in taken]
    assert "  6 states occur; in them 18 of 18 pairs of state and action" in lines
    assert "  there with probability 0.00%" in lines
    assert lines[-1] == "No contradictions, nothing suspicious."


def test_a_contradictory_log():
    columns = machine_log()
    wrong = columns | {"next_obs": columns["obs"], "cost": np.zeros_like(columns["cost"])}
    write_logs(transitions(wrong), "log.parquet")
    lines = lines_of(invoke("log.parquet", "--horizon", "15"), code=1)
    text = " ".join(" ".join(lines).split())
    assert "error: next_obs is not the obs of the next row" in text
    assert "error: the log has longer episodes than horizon=15" in text
    assert "warning: every cost is 0" in text
    assert lines[-1] == "The log is contradictory and cannot be used."


def test_no_end_of_a_range_is_minus_zero():
    columns = machine_log()
    lost = -np.clip(columns["reward"], 0.0, None)  # losses, of which the least is -0.0
    write_logs(transitions(columns | {"reward": lost}), "log.parquet")
    reward = next(line for line in lines_of(invoke("log.parquet")) if line.startswith("reward"))
    assert np.signbit(lost.max())
    assert reward.endswith(" to 0")


def test_a_log_of_longer_episodes():
    write_logs(transitions(machine_log()), "log.parquet")
    lines = lines_of(invoke("log.parquet", "--horizon", "15"), code=1)
    assert "try a larger horizon" in " ".join(lines)
    assert lines[-1] == "The log cannot be used with this horizon or policy."


def test_states_against_the_policy():
    columns = machine_log()
    write_logs(
        transitions(columns | {k: columns[k] + 1 for k in ("obs", "next_obs")}), "log.parquet"
    )
    assert lines_of(invoke("log.parquet"))[-1] == "No contradictions; see the warnings."
    np.save("pi.npy", policy())
    lines = lines_of(invoke("log.parquet", "--policy", "pi.npy"), code=1)
    assert any("are states numbered from 1" in line for line in lines)
    assert lines[-1] == "The log cannot be used with this horizon or policy."


def test_other_formats_orders_and_actions():
    columns = shuffled(machine_log())
    text = ";".join(columns) + "\n"
    text += "\n".join(";".join(map(str, row)) for row in zip(*columns.values(), strict=True))
    with open("log.csv", "w") as file:
        file.write(text.replace("cost", "energy", 1))
    lines = lines_of(invoke("log.csv", "--separator", ";", "--columns", "cost=energy"))
    assert any("estimated from the number of rows" in line for line in lines)
    assert any("not in the order of episodes" in line for line in lines)

    rng = np.random.default_rng(0)
    t, x = np.tile(np.arange(30), 20), rng.normal(size=(601, 2))
    log = Transitions(t, x[:-1], rng.normal(size=(600, 2)), t, t, x[1:])
    write_logs(log, "vectors.parquet")
    lines = lines_of(invoke("vectors.parquet"))
    assert "  20 episodes, all of 30 steps" in lines
    assert "rows by time (t)" in lines

    many = Transitions(t, t, rng.integers(20, size=600), x[:-1, 0], t, t + 1)
    write_logs(many, "many.parquet")
    assert any(line.endswith("  other") for line in lines_of(invoke("many.parquet")))


def test_a_clock_instead_of_steps():
    columns = machine_log()
    write_logs(transitions(columns | {"t": columns["t"] + 1_700_000_000}), "log.parquet")
    lines = lines_of(invoke("log.parquet"))
    assert any("t is very large" in line for line in lines)
    assert "episode lengths" not in lines


def test_what_cannot_be_read():
    for words in (["absent.parquet"], ["log.txt"]):
        result = invoke(*words)
        assert result.exit_code == 2
        assert "error:" in result.stderr


def test_missing_columns_are_named_as_the_command_takes_them(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("Zeit;Temp;Stufe\n1;2;3\n")
    done = invoke(str(path))
    assert done.exit_code == 2
    assert "--columns obs=NAME" in " ".join(done.output.split())
