"""`starts`: the value of the start as a control variate of evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import design, estimate, evaluate, exact
from scopeval.collection.collector import collect
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError, PlantError
from scopeval.evaluation.start_control import start_adjustment
from scopeval.report import page_of_evaluation

WORLD = Gridworld(5, seed=0).mdp()
ANYWHERE = exact.TabularMDP(
    np.full(WORLD.states, 1.0 / WORLD.states),
    WORLD.transition,
    WORLD.reward,
    WORLD.cost,
    WORLD.horizon,
)
PI = target_policies(1, 5)[0]
TRUE = exact.assess(ANYWHERE, PI, PI)
VALUES = exact.values(ANYWHERE, PI).v[0]
OF_STARTS = float(ANYWHERE.initial @ (VALUES - ANYWHERE.initial @ VALUES) ** 2)


class Wrong:
    """Runs the target, with a value of starts that is wrong, and differs between starts."""

    target = PI

    def weigh(self, offered, obs, t):
        from scopeval.policies.protocols import Weighing

        return Weighing(offered.probs)

    def start_values(self, obs, seed=0):
        return np.asarray(obs) % 3 - 7.0


@pytest.fixture(scope="module")
def learned():
    return design(gridworld_logs(ANYWHERE, 1000, seed=0), PI, horizon=5, method="scope-dr")


def starts(count, seed=0):
    return np.random.default_rng(seed).integers(WORLD.states, size=count)


def error_of(found):
    return found.half_width / 1.96


def test_a_known_law_removes_what_theory_says(learned):
    """The exact variance that is left: that of the design, less the part of the starts."""
    own = exact.assess(ANYWHERE, PI, *learned.table(WORLD.states))
    plain = evaluate(ANYWHERE, PI, learned, episodes=20_000)
    found = evaluate(ANYWHERE, PI, learned, episodes=20_000, starts="model")
    assert 0.5 * own.variance < OF_STARTS
    v = learned.start_values(np.arange(WORLD.states))
    # given the start, values have mean VALUES: of Var(v) and Var(VALUES - v) only the latter stays
    rest = VALUES - v
    left = (
        own.variance - OF_STARTS + float(ANYWHERE.initial @ (rest - ANYWHERE.initial @ rest) ** 2)
    )
    assert error_of(found.interval) ** 2 == pytest.approx(left / 20_000, rel=0.05)
    assert found.starts is not None
    assert found.starts.relative_variance == pytest.approx(left / own.variance, rel=0.08)
    for result in (found, plain):
        assert abs(result.estimate - TRUE.value) < 4.9 * error_of(result.interval)
    assert found.certificate.verdict == plain.certificate.verdict
    assert "control variate, its mean known by their known law" in " ".join(found.summary().split())
    assert found.to_dict()["starts"]["further"] is None
    assert "The value of the start is a control variate" in str(page_of_evaluation(found))
    assert plain.starts is None


def test_recorded_episodes_resets_and_observations_agree(learned):
    """The same episodes, adjusted by the same further starts: the same numbers."""
    found = evaluate(
        TabularEnv(ANYWHERE), PI, learned, horizon=5, episodes=200, starts=starts(3000), keep=True
    )
    assert found.episodes is not None
    again = estimate(found.episodes, starts=starts(3000), behavior=learned)
    assert again.interval.low == pytest.approx(found.interval.low, rel=1e-9)
    assert again.interval.high == pytest.approx(found.interval.high, rel=1e-9)
    assert again.starts.relative_variance == pytest.approx(found.starts.relative_variance)
    resets = evaluate(TabularEnv(ANYWHERE), PI, learned, horizon=5, episodes=200, starts=3000)
    assert resets.starts.further == 3000
    assert resets.starts.mean == pytest.approx(found.starts.mean, abs=4 * found.starts.error * 1.5)
    assert resets.starts.mean != found.starts.mean
    assert resets.episodes is None
    plain = estimate(found.episodes, behavior=learned)
    assert found.interval.half_width < 0.7 * plain.interval.half_width


@pytest.mark.parametrize("stops", ["episodes", "precision"])
def test_intervals_cover_whatever_the_value_of_the_start(stops):
    """300 evaluations at 95 %, a wrong v, few further starts; over 33 misses: probability 1e-5."""
    missed = widened = 0
    for seed in range(300):
        how = {"episodes": 60} if stops == "episodes" else {"precision": 1.0, "episodes": 400}
        found = evaluate(
            ANYWHERE, PI, Wrong(), **how, seed=seed, starts=starts(40, seed + 1000), guard=None
        )
        missed += not found.interval.contains(TRUE.value)
        widened += found.starts.error > 0
    assert missed <= (33 if stops == "episodes" else 15)
    assert widened == 300


def test_a_value_of_the_start_that_adds_variance_is_told():
    found = evaluate(ANYWHERE, PI, Wrong(), episodes=2000, starts="model", guard=None)
    assert found.starts.relative_variance > 1.0
    assert any("leave starts out" in text for text in found.diagnostics.warnings)


def test_the_number_of_episodes_decides_nothing_where_it_was_decided_by_them(learned):
    """The factor must not depend on what the episodes showed."""
    for n in (60, 150):
        episodes = collect(TabularEnv(ANYWHERE), PI, learned, horizon=5, episodes=n)
        found = estimate(episodes, starts=starts(500), behavior=learned, anytime=True)
        assert found.starts.factor == 500 / 501
        assert found.interval.method == "asymptotic sequence"


def test_frontier_points_know_their_starts_too(learned):
    from scopeval.behavior.frontier import frontier

    logs = gridworld_logs(ANYWHERE, 1000, seed=0)
    point = frontier(logs, PI, horizon=5).at(epsilon=-0.05)
    every = np.arange(WORLD.states)
    assert point.start_values(every) == pytest.approx(learned.start_values(every), abs=0.3)
    assert np.corrcoef(point.start_values(every), VALUES)[0, 1] > 0.9


class Broken:
    """An environment whose second reset fails."""

    def __init__(self) -> None:
        self.inside = TabularEnv(ANYWHERE)
        self.action_space = self.inside.action_space
        self.observation_space = self.inside.observation_space
        self.count = 0

    def reset(self, *, seed=None, options=None):
        self.count += 1
        if self.count == 2:
            raise RuntimeError("jammed")
        return self.inside.reset(seed=seed)

    def step(self, action):
        return self.inside.step(action)


@pytest.mark.parametrize(
    ("env", "how", "words"),
    [
        (ANYWHERE, {"starts": "logs"}, "a number of resets"),
        (ANYWHERE, {"starts": 100}, "no environment to reset"),
        (TabularEnv(ANYWHERE), {"starts": "model"}, "for a TabularMDP"),
        (TabularEnv(ANYWHERE), {"starts": 1}, "at least 2"),
        (ANYWHERE, {"starts": np.zeros((2, 3, 4))}, "expected first observations"),
        (ANYWHERE, {"starts": "model", "return_bound": (0.0, 9.0)}, "leave one of them out"),
        (ANYWHERE, {"starts": "model", "refit": True}, "starts: got it with refit"),
    ],
)
def test_what_cannot_be_is_refused(learned, env, how, words):
    with pytest.raises(InputError, match=words):
        evaluate(env, PI, learned, horizon=5, episodes=50, **how)


def test_who_knows_no_values_is_refused():
    with pytest.raises(InputError, match="needs a behavior policy from design"):
        evaluate(ANYWHERE, PI, episodes=50, starts="model")
    assert start_adjustment(None, None, 5) is None


def test_a_reset_that_fails_is_told(learned):
    with pytest.raises(PlantError, match="jammed"):
        evaluate(Broken(), PI, learned, horizon=5, episodes=50, starts=20)
