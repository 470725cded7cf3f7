"""One decision: in a loop of one's own, on disk, and of a service that many plants call at once.

A controller waits for it. Beside it stands the least that it can take: one forward pass of the
policy's own network, one durable commit of SQLite, a bare endpoint that commits one row. Both sides
take turns on the same machine and disk.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, load_peer, not_installed, quiet
from benchmarks.service import Hosted, Load, Mode, create, driven, hosted
from benchmarks.worlds import cart_logs
from scopeval import Networks, TorchPolicy, design
from scopeval.arrays import Floats, check_whole
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.campaign import Campaign
from scopeval.envs.gridworld import Gridworld, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

__all__ = ["Config", "run", "under_load"]

HORIZON, STATES, ACTIONS = 20, 50, 4


@dataclass(frozen=True)
class Config:
    """What to measure."""

    calls: int = 20_000
    """Calls of `act` in a loop; on disk, a twentieth."""
    plants: int = 200
    """That call a service at the same time; 0: no service."""
    seconds: float = 60.0
    """Of load on the service with `act` and `observe`, and on the bare endpoint; of `advance`, a
    third of that."""
    turns: int = 6
    """In which the two alternate."""
    folder: str = ""
    """Where the databases are; empty: the place for temporary files."""
    database: str = ""
    """URL of an empty PostgreSQL database for the service; empty: SQLite."""
    model: Networks = field(
        default_factory=lambda: Networks(
            training=Training(steps=200), paths=100, study=Study(paths=100, steps=100)
        )
    )
    """How the world of the vectors is learned; how well does not matter for the time."""
    seed: int = 0
    """Of the policies, the campaigns and the plants."""

    def __post_init__(self) -> None:
        for name in ("calls", "turns"):
            check_whole(name, getattr(self, name), 1)
        check_whole("plants", self.plants, 0)
        if not self.seconds > 0:
            raise InputError(f"seconds: got {self.seconds!r}, expected a number above 0")


def run(config: Config) -> list[Comparison]:
    """In a loop, on disk, and of a service."""
    rows = [*_in_a_loop(config), *_on_disk(config)]
    return [*rows, *under_load(config)] if config.plants else rows


# -- in a loop of one's own ------------------------------------------------------------------------


def _in_a_loop(config: Config) -> list[Comparison]:
    """`act` of a table and of a learned world, beside the target's network."""
    if load_peer("torch") is None:
        return [_call("act", np.zeros((2, 1)), not_installed("torch"))]
    rng = np.random.default_rng(config.seed)
    vectors, observations = _vectors(config)
    forward = _forward(vectors, observations)
    rows = []
    for name, policy, seen in (
        ("table", *_gridworld(config)),
        ("vectors", vectors, observations),
    ):
        took = _alternating(_acting(policy, seen, rng), forward, config.calls)
        middle = np.median(took, axis=1) * 1e6
        note = f"{config.calls:,} calls; medians {middle[0]:.0f} and {middle[1]:.0f} us"
        rows.append(_call(f"act, {name}", took, note))
    return rows


def _call(name: str, took: Floats, note: str) -> Comparison:
    last = np.quantile(took, 0.99, axis=1)
    ours, peer = float(last[0]), float(last[1])
    return Comparison(name, ours, peer or None, "call, p99", "slower", goal=3.0, note=note)


def _acting(policy: BehaviorPolicy, seen: Any, rng: np.random.Generator) -> Callable[[int], object]:
    horizon, many = policy.recipe.horizon, len(seen)
    return lambda i: policy.act(seen[i % many], i % horizon, rng)


def _alternating(
    ours: Callable[[int], object], peer: Callable[[int], object], calls: int
) -> Floats:
    """Seconds [2, calls] of every call, a hundred of one side after a hundred of the other."""
    took = np.empty((2, calls))
    for call in (ours, peer):
        for i in range(100):
            call(i)
    clock = time.perf_counter
    with quiet():
        for start in range(0, calls, 100):
            for k, call in enumerate((ours, peer)):
                for i in range(start, min(start + 100, calls)):
                    began = clock()
                    call(i)
                    took[k, i] = clock() - began
    return took


def _gridworld(config: Config) -> tuple[BehaviorPolicy, list[int]]:
    mdp = Gridworld(10, seed=config.seed).mdp()
    target = target_policies(1, 10, seed=config.seed)[0]
    log = logs_of(mdp, [target], 300, seed=config.seed)
    return design(log, target, horizon=10), [int(s) for s in log.obs[:1000]]


def _vectors(config: Config) -> tuple[BehaviorPolicy, Floats]:
    """A design for a torch policy with two hidden layers of 64."""
    import torch

    torch.manual_seed(config.seed)
    layers: list[torch.nn.Module] = []
    for before, after in ((4, 64), (64, 64), (64, 2)):
        layers += [torch.nn.Linear(before, after), torch.nn.Tanh()]
    target = TorchPolicy(torch.nn.Sequential(*layers[:-1]))
    log = cart_logs(60, 20, config.seed)
    return design(log, target, horizon=20, learn=config.model), np.asarray(log.obs[:1000])


def _forward(policy: BehaviorPolicy, observations: Floats) -> Callable[[int], None]:
    """The target's network for one observation that is a tensor already."""
    import torch

    assert isinstance(policy.target, TorchPolicy)
    module = policy.target.module
    tensors = list(torch.tensor(observations, dtype=torch.float32)[:, None])

    def forward(i: int) -> None:
        with torch.inference_mode():
            module(tensors[i % len(tensors)])

    return forward


# -- on disk ---------------------------------------------------------------------------------------


def _on_disk(config: Config) -> list[Comparison]:
    """A step of a campaign in SQLite, `act` and `observe`, beside two commits."""
    rng = np.random.default_rng(config.seed)
    target = rng.dirichlet(np.ones(ACTIONS), STATES)
    behavior, calls = 0.7 * target + 0.3 / ACTIONS, max(config.calls // 20, 1)
    with tempfile.TemporaryDirectory(dir=config.folder or None) as folder:
        place = Path(folder, "campaign.sqlite")
        with (
            closing(sqlite3.connect(Path(folder, "peer.sqlite"), isolation_level=None)) as peer,
            Campaign.create(place, target, horizon=HORIZON, behavior=behavior) as campaign,
        ):
            took = _steps(campaign, _commits(peer), calls)
    last = np.quantile(took, 0.99, axis=1) * 1e3
    note = f"{calls:,} steps; 99th percentiles {last[0]:.2f} and {last[1]:.2f} ms"
    ours, other = (float(x) for x in np.median(took, axis=1))
    name = "a step on disk, SQLite"
    return [Comparison(name, ours, other, "step, median", "slower", goal=3.0, note=note)]


def _commits(connection: sqlite3.Connection) -> Callable[[int], None]:
    """Inserts a row and commits it, with the settings of a campaign."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(
        "CREATE TABLE steps (episode INTEGER, step INTEGER, obs TEXT, action TEXT, "
        "probability DOUBLE, target_probability DOUBLE, decided DOUBLE, "
        "PRIMARY KEY (episode, step))"
    )

    def commit(i: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        row = (i // HORIZON, i, "17", "2", 0.3, 0.25, time.time())
        connection.execute("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")

    return commit


def _steps(campaign: Campaign, commit: Callable[[int], None], calls: int) -> Floats:
    """Seconds [2, calls] of `act` and `observe`, and of the commits after each."""
    took, now = np.empty((2, calls)), time.perf_counter
    episode = campaign.start()
    with quiet():
        for i in range(-20, calls):
            if episode.over:
                episode.end()
                episode = campaign.start()
            began = now()
            action = episode.act(i % STATES)
            acted = now()
            commit(2 * (i + 20))
            committed = now()
            episode.observe(float(action), 1.0, (i + 1) % STATES)
            observed = now()
            commit(2 * (i + 20) + 1)
            if i >= 0:
                took[0, i] = acted - began + observed - committed
                took[1, i] = committed - acted + now() - observed
        episode.lose("the measurement is over")
    return took


# -- of a service ----------------------------------------------------------------------------------


def under_load(config: Config) -> list[Comparison]:
    """Throughput, 99th percentiles and memory, while many plants call at once."""
    name = f"decisions, {config.plants} plants"
    if load_peer("fastapi") is None or load_peer("uvicorn") is None:
        note = "the extra serve is not installed"
        return [Comparison(name, 0.0, None, "decision", "slower", goal=2.0, note=note)]
    with tempfile.TemporaryDirectory(dir=config.folder or None) as folder:
        where = config.database or str(Path(folder, "bench.campaign"))
        token = create(where, config.seed)
        with (
            hosted("campaign", where, config.seed) as ours,
            hosted("bare", where, config.seed) as bare,
        ):
            steps, rows, memory = _in_turns(config, ours, bare, token)
            quick = driven(ours, config.plants, config.seconds / 3, "advance", token)
    if steps.errors or quick.errors or rows.errors:
        raise RuntimeError(f"errors: {steps.errors + quick.errors + rows.errors}")
    if not (steps.decisions and quick.decisions and rows.decisions):
        raise RuntimeError("nothing was answered in time; try more seconds")
    peer = rows.seconds / rows.decisions
    quarter = max(len(memory) // 4, 1)
    first, last = (float(np.mean(part)) for part in (memory[:quarter], memory[-quarter:]))
    waits = [np.array(load.waits) for load in (steps, rows)]
    late = [float(np.quantile(wait, 0.99)) for wait in waits]
    middle = [1e3 * float(np.median(wait)) for wait in waits]
    return [
        *(
            Comparison(
                f"{name}, {how}",
                load.seconds / load.decisions,
                peer,
                unit="decision",
                sense="slower",
                goal=2.0,
                note=_numbers(load, rows),
            )
            for how, load in (("act and observe", steps), ("advance", quick))
        ),
        Comparison(
            f"act, {config.plants} plants",
            late[0],
            late[1],
            unit="call, p99",
            sense="slower",
            note=f"medians {middle[0]:.0f} and {middle[1]:.0f} ms; the service's memory went from "
            f"{first:.0f} to {last:.0f} MB",
        ),
    ]


def _numbers(load: Load, rows: Load) -> str:
    """Beside the ratio: computing does not depend on how busy the machine is."""
    return (
        f"{load.seconds:.0f} s, {load.decisions / load.seconds:,.0f} decisions a second, no error; "
        f"computing for a decision {1e3 * load.computed / load.decisions:.2f} ms, for a row "
        f"{1e3 * rows.computed / rows.decisions:.2f} ms"
    )


def _in_turns(
    config: Config, ours: Hosted, bare: Hosted, token: str
) -> tuple[Load, Load, list[float]]:
    """Both under load, one after the other; and the memory of the service, in MB."""
    each = config.seconds / config.turns
    steps, rows, memory = Load(), Load(), []
    modes: tuple[tuple[Hosted, Mode, Load], ...] = (
        (ours, "act", steps),
        (bare, "commit", rows),
    )
    for served, mode, _ in modes:  # a warm-up that does not count
        driven(served, config.plants, min(each, 5.0), mode, token)
    for _ in range(config.turns):
        for served, mode, load in modes:
            watch = (lambda: memory.append(ours.megabytes())) if served is ours else None
            load.add(driven(served, config.plants, each, mode, token, watch))
    return steps, rows, memory
