"""`context`: exogenous paths, and the value of the start, as control variates of evaluations."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import (
    History,
    Inference,
    Plant,
    Promise,
    Stages,
    Stop,
    collect,
    design,
    estimate,
    evaluate,
    exact,
)
from scopeval.collection.signal_paths import signal_paths
from scopeval.envs.exogenous import ExogenousEnv, simulate
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.queue import Queue
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import DataError, InputError, PlantError
from scopeval.evaluation.context_control import context_control
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

    def weigh(self, offered, obs, t, state):
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
    found = evaluate(ANYWHERE, PI, learned, episodes=20_000, context=History.starts("model"))
    assert 0.5 * own.variance < OF_STARTS
    v = learned.start_values(np.arange(WORLD.states))
    # given the start, values have mean VALUES: of Var(v) and Var(VALUES - v) only the latter stays
    rest = VALUES - v
    left = (
        own.variance - OF_STARTS + float(ANYWHERE.initial @ (rest - ANYWHERE.initial @ rest) ** 2)
    )
    assert error_of(found.interval) ** 2 == pytest.approx(left / 20_000, rel=0.05)
    assert found.context is not None
    assert found.context.relative_variance == pytest.approx(left / own.variance, rel=0.08)
    for result in (found, plain):
        assert abs(result.estimate - TRUE.value) < 4.9 * error_of(result.interval)
    assert found.certificate.verdict == plain.certificate.verdict
    assert "is a control variate, its mean known by its known law" in " ".join(
        found.summary().split()
    )
    assert found.to_dict()["context"]["paths"] is None
    assert "The first observation is a control variate" in str(page_of_evaluation(found))
    assert plain.context is None


def test_recorded_episodes_resets_and_observations_agree(learned):
    """The same episodes, adjusted by the same further starts: the same numbers."""
    found = evaluate(
        TabularEnv(ANYWHERE),
        PI,
        learned,
        horizon=5,
        episodes=200,
        inference=Inference(keep=True),
        context=History.starts(starts(3000)),
    )
    assert found.episodes is not None
    again = estimate(found.episodes, run=learned, context=History.starts(starts(3000)))
    assert again.interval.low == pytest.approx(found.interval.low, rel=1e-9)
    assert again.interval.high == pytest.approx(found.interval.high, rel=1e-9)
    assert again.context.relative_variance == pytest.approx(found.context.relative_variance)
    resets = evaluate(
        TabularEnv(ANYWHERE), PI, learned, horizon=5, episodes=200, context=History.starts(3000)
    )
    assert resets.context.paths == 3000
    assert resets.context.error == pytest.approx(found.context.error, rel=0.1)
    assert resets.estimate != found.estimate
    assert resets.episodes is None
    plain = estimate(found.episodes, run=learned)
    assert found.interval.half_width < 0.7 * plain.interval.half_width


@pytest.mark.parametrize("stops", ["episodes", "precision"])
def test_intervals_cover_whatever_the_value_of_the_start(stops):
    """150 evaluations at 95 %, a wrong v, few further starts; over 20 misses: probability 1e-5."""
    missed = 0
    for seed in range(150):
        how = (
            {"episodes": 60}
            if stops == "episodes"
            else {"episodes": 400, "stop": Stop(precision=1.0)}
        )
        found = evaluate(
            ANYWHERE,
            PI,
            Wrong(),
            seed=seed,
            promise=Promise(action="tell"),
            context=History.starts(starts(40, seed + 1000)),
            **how,
        )
        missed += not found.interval.contains(TRUE.value)
    assert missed <= (20 if stops == "episodes" else 9)


def test_a_wrong_value_of_the_start_is_not_used():
    found = evaluate(
        ANYWHERE,
        PI,
        Wrong(),
        episodes=2000,
        promise=Promise(action="tell"),
        context=History.starts("model"),
    )
    assert found.context.relative_variance < 1.01


def test_the_number_of_episodes_decides_nothing_where_it_was_decided_by_them(learned):
    """The factor must not depend on what the episodes showed."""
    for n in (60, 150):
        episodes = collect(TabularEnv(ANYWHERE), PI, learned, horizon=5, episodes=n)
        found = estimate(episodes, run=learned, anytime=True, context=History.starts(starts(500)))
        assert found.context.share == 500 / 501
        assert found.interval.method == "asymptotic sequence"


def test_frontier_points_know_their_starts_too(learned):
    from scopeval import frontier

    logs = gridworld_logs(ANYWHERE, 1000, seed=0)
    point = frontier(logs, PI, horizon=5).at(cost=0.95)
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
        (ANYWHERE, {"context": lambda: History.starts("logs")}, "a number of resets"),
        (ANYWHERE, {"context": lambda: History.starts(100)}, "no environment to reset"),
        (TabularEnv(ANYWHERE), {"context": lambda: History.starts("model")}, "for a TabularMDP"),
        (TabularEnv(ANYWHERE), {"context": lambda: History.starts(1)}, "of resets >= 2"),
        (
            ANYWHERE,
            {"context": lambda: History.starts(np.zeros((2, 3, 4)))},
            "expected first observations",
        ),
        (
            ANYWHERE,
            {
                "inference": Inference(return_bound=(0.0, 9.0)),
                "context": lambda: History.starts("model"),
            },
            "leave one of them out",
        ),
        (ANYWHERE, {"context": lambda: np.zeros((3, 4))}, "expected a History"),
        (TabularEnv(ANYWHERE), {"context": lambda: History(np.zeros((3, 4)), "wind")}, "no signal"),
    ],
)
def test_what_cannot_be_is_refused(learned, env, how, words):
    with pytest.raises((InputError, DataError), match=words):
        evaluate(
            env,
            PI,
            learned,
            horizon=5,
            episodes=50,
            **{k: v() if k == "context" else v for k, v in how.items()},
        )


def test_who_knows_no_values_is_refused():
    with pytest.raises(InputError, match="state numbers need something that describes"):
        evaluate(ANYWHERE, PI, episodes=50, context=History.starts("model"))
    assert context_control(None, None, 5) is None


def test_a_reset_that_fails_is_told(learned):
    with pytest.raises(PlantError, match="jammed"):
        evaluate(Broken(), PI, learned, horizon=5, episodes=50, context=History.starts(20))


QUEUE = Queue()


def arrivals(count, seed=9):
    return History(QUEUE.paths(count, np.random.default_rng(seed)), "arrivals", block=1)


def of_queue(**how):
    policy = QUEUE.policies()[1]
    return evaluate(lambda: ExogenousEnv(QUEUE), policy, horizon=60, context=arrivals(4000), **how)


def test_signals_of_an_environment_are_recorded_and_taken_out(tmp_path):
    """At least half of the variance of a queue is its arrivals'; the same episodes again agree."""
    found = of_queue(episodes=150, inference=Inference(keep=True))
    assert found.context.relative_variance < 0.6
    assert found.context.what == "arrivals"
    assert found.interval.half_width < 0.8 * found.context.plain.half_width
    assert not found.context.differs
    again = estimate(found.episodes, context=arrivals(4000))
    assert again.interval == found.interval
    found.episodes.save(tmp_path / "kept.npz")
    kept = type(found.episodes).load(tmp_path / "kept.npz")
    assert kept.signals == ("arrivals",)
    assert estimate(kept, context=arrivals(4000)).interval == found.interval
    assert signal_paths(kept.select(slice(0, 5)), ["arrivals"], 60).shape == (5, 60, 1)


def test_without_a_fixed_number_earlier_episodes_decide():
    found = of_queue(episodes=300, stop=Stop(precision=1.0), seed=1)
    assert found.interval.method == "asymptotic sequence"
    assert found.context.relative_variance < 0.75
    always = of_queue(episodes=300, inference=Inference(interval="sequence"), seed=1)
    assert always.interval.half_width == pytest.approx(found.interval.half_width)


def test_stages_take_a_context_too():
    mdp = ANYWHERE
    plain = evaluate(mdp, PI, Stages(), episodes=600)
    found = evaluate(mdp, PI, Stages(), episodes=600, context=by_value())
    assert found.context.relative_variance < 0.7
    assert abs(found.estimate - TRUE.value) < 4.9 * error_of(found.interval)
    assert found.stages[-1].variance < plain.stages[0].variance


def by_value():
    return History.starts("model", features=lambda paths: VALUES[paths[:, 0, 0].astype(int)])


def test_another_law_is_noticed_and_may_be_wanted():
    """Busier arrivals than the episodes': a warning, or the value in that climate."""
    busy = arrivals(3000).paths + (np.random.default_rng(0).random((3000, 60, 1)) < 0.3)
    env, policy = ExogenousEnv(QUEUE), QUEUE.policies()[1]
    kept = evaluate(env, policy, horizon=60, episodes=150, inference=Inference(keep=True),
                    context=arrivals(3000)).episodes  # fmt: skip
    wrong = estimate(kept, context=History(busy, "arrivals", block=1))
    assert any("another law" in text for text in wrong.diagnostics.warnings)
    typical = estimate(kept, context=History(busy, "arrivals", block=1, law="typical"))
    rng = np.random.default_rng(1)
    true = simulate(QUEUE, policy, busy[:, :, 0], rng).returns()
    assert not any("another law" in text for text in typical.diagnostics.warnings)
    assert typical.context.plain.estimate > typical.estimate + 20
    assert (
        abs(typical.estimate - true.mean()) < abs(typical.context.plain.estimate - true.mean()) / 3
    )
    assert "in the climate of the history" in typical.summary().replace("\n             ", " ")


class Ends:
    """An episode that an action ends early, which reports the whole path, or only what was seen."""

    def __init__(self, whole):
        self.whole, self.rng = whole, np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.rng, self.t = np.random.default_rng(seed), 0
        self.path = self.rng.normal(size=4)
        return np.zeros(1), {}

    def step(self, action):
        over, reward = action == 1, float(self.path[self.t])
        self.t += 1
        seen = self.path[self.t - 1] if not self.whole else self.path
        return np.zeros(1), reward, over, False, {"cost": 0.0, "wind": seen}


def test_paths_go_on_after_an_early_end_or_are_refused():
    context = History(np.random.default_rng(3).normal(size=(500, 4)), "wind", block=1)
    half = lambda obs, t: np.full((len(obs), 2), 0.5)  # noqa: E731
    found = evaluate(Ends(whole=True), half, horizon=4, episodes=120, context=context)
    assert found.context.relative_variance < 0.9
    with pytest.raises(DataError, match="is cut there is not exogenous"):
        evaluate(Ends(whole=False), half, horizon=4, episodes=50, context=context)
    begun = History(context.paths[:, :1], "wind", block=1)
    assert evaluate(Ends(whole=False), half, horizon=4, episodes=120, context=begun)


def test_the_lever_that_is_worth_trying_is_named(learned):
    """Most of the variance is the start's, or the signal's, and the result says so."""

    class FromAnywhere(Ends):
        def reset(self, *, seed=None, options=None):
            _, info = super().reset(seed=seed)
            self.first = self.rng.normal() * 5
            return np.array([self.first]), info

        def step(self, action):
            _, reward, over, cut, info = super().step(0)
            return np.zeros(1), reward + self.first, over, cut, info

    half = lambda obs, t: np.full((len(obs), 2), 0.5)  # noqa: E731
    plain = evaluate(FromAnywhere(whole=True), half, horizon=4, episodes=150)
    [told] = plain.advice
    assert "decided where an episode starts: context=History.starts(2000)" in told
    assert told in " ".join(plain.summary().split())
    found = evaluate(FromAnywhere(whole=True), half, horizon=4, episodes=150,
                     context=History.starts(2000))  # fmt: skip
    assert found.advice == ()
    assert found.noise.context > 0.8
    assert found.noise.left + found.noise.context + found.noise.design == pytest.approx(1.0)
    assert "% by context" in found.summary()
    of_design = evaluate(ANYWHERE, PI, learned, episodes=400, context=by_value())
    assert of_design.noise.design > 0.05
    assert found.noise.design == 0.0  # the policy itself ran: nothing was designed
    of_queue = evaluate(Plant(lambda: ExogenousEnv(QUEUE), exogenous=("arrivals",)),
                        QUEUE.policies()[1], horizon=60, episodes=150)  # fmt: skip
    assert "goes with arrivals" in of_queue.advice[0]
