"""What the next stage leaves unspent, by what earlier stages cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scopeval import Stages, Table, evaluate, exact
from scopeval.behavior.designer import designs
from scopeval.behavior.methods import METHODS
from scopeval.behavior.step import Recipe
from scopeval.envs.gridworld import (
    Gridworld,
    cells,
    logging_policies,
    logs_of,
    target_policies,
)
from scopeval.evaluation import loop
from scopeval.evaluation.stage_design import StageDesigner
from scopeval.evaluation.stages import MOST_UNSPENT, Shares, expected_progress, unspent
from scopeval.safety.certificate import certify

GRID = Gridworld(5, "reward", seed=3).mdp()
PI = target_policies(1, 5)[0]


@pytest.fixture(scope="module")
def stage():
    """A finished stage of any kind; tests give it certificates of their own."""
    return evaluate(GRID, PI, episodes=40, seed=0, run=Stages()).stages[0]


def ended(stage, n: int, excess: float):
    """A stage of n episodes that cost 2 (1 + excess) where the target policy's cost 2."""
    noise = np.resize([-1e-9, 1e-9], n)
    certificate = certify(2.0 * (1.0 + excess) + noise, np.full(n, 2.0))
    return replace(stage, episodes=n, certificate=certificate)


def test_an_excess_is_expected_again_and_paid_back(stage):
    """The same excess again is canceled, and what was spent too much is paid back in the stage."""
    earlier = [ended(stage, 100, 0.004), ended(stage, 100, -0.002)]
    margin = unspent(earlier, 200)
    excess = 0.5 * (0.004 - 0.002)
    assert margin == pytest.approx(excess * 2.0)
    assert 200 * excess + 200 * (excess - margin) == pytest.approx(0.0)


def test_savings_are_not_spent_and_the_margin_is_limited(stage):
    assert unspent([], 10) == 0.0
    assert unspent([replace(stage, certificate=None)], 10) == 0.0
    assert unspent([ended(stage, 100, -0.1)], 10) == 0.0
    assert unspent([ended(stage, 100, 0.1)], 10) == MOST_UNSPENT


def test_a_margin_lowers_the_cost_of_a_design():
    logs = logs_of(GRID, logging_policies(5, GRID, seed=1), episodes=300, seed=2)
    plain, less = (
        designs(logs, PI, [Recipe(METHODS["scope-dr"], GRID.horizon, margin=margin)])["scope-dr"]
        for margin in (0.0, 0.03)
    )
    assert less.recipe.margin == plain.recipe.margin + 0.03
    spent = [exact.assess(GRID, PI, one).cost for one in (plain, less)]
    assert spent[1] < spent[0] - 0.01 * exact.assess(GRID, PI, PI).cost


def test_stages_are_run_with_the_margin_and_the_progress(monkeypatch):
    """What is decided before a stage reaches its design and its weight."""
    margins, told, usual, weigh = [], [], StageDesigner._designed, Shares.next

    def designed(self, asked, margin):
        margins.append(margin)
        return usual(self, asked, margin)

    def weighed(self, size, variance, *, fell_back=False, progress=1.0):
        told.append(progress)
        return weigh(self, size, variance, fell_back=fell_back, progress=progress)

    monkeypatch.setattr(StageDesigner, "_designed", designed)
    monkeypatch.setattr(Shares, "next", weighed)
    monkeypatch.setattr(loop, "unspent", lambda stages, size: 0.001 * len(stages))
    found = evaluate(GRID, PI, episodes=150, seed=1, run=Stages(learn=Table(features=cells(5))))
    assert margins == [0.001 * k for k in range(1, len(found.stages))]
    assert told == [expected_progress(stage.prediction) for stage in found.stages]
    assert max(told) > 1.0
