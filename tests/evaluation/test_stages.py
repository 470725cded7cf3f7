"""Evaluation in stages: unbiased by construction, whatever the data make of the designs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from scopeval import (
    CallablePolicy,
    Episodes,
    Inference,
    Promise,
    Question,
    Stages,
    Stop,
    Table,
    TabularPolicy,
    Transitions,
    collect,
    evaluate,
    exact,
)
from scopeval.behavior.summary import Prediction
from scopeval.collection.simulated import TabularFleet
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import DataError, InputError
from scopeval.estimation.weights import WeightDiagnostics
from scopeval.evaluation.batches import summarize
from scopeval.evaluation.loop import EvaluationLoop, EvaluationTask, StoppingPlan
from scopeval.evaluation.stage_design import Plan, StageDesigner
from scopeval.evaluation.stages import (
    Shares,
    StageBudget,
    expected_progress,
    expected_variance,
    stage_sizes,
)
from scopeval.report import page_of_evaluation
from small_worlds import random_mdp, random_rows

GRID = Gridworld(5, seed=1).mdp()
PI = target_policies(1, 5, seed=1)[0]
TRUTH = exact.assess(GRID, PI, PI)
QUICK = Stages(learn=Table(features=cells(5)))


# -- lengths and weights ---------------------------------------------------------------------------


def test_stages_grow_and_a_short_rest_belongs_to_the_last():
    doubling = Stages(growth=2.0)
    assert list(stage_sizes(doubling, 1000)) == [30, 30, 60, 120, 240, 520]
    assert list(stage_sizes(doubling, 960)) == [30, 30, 60, 120, 240, 480]
    assert list(stage_sizes(doubling, 300)) == [30, 30, 60, 180]
    assert list(stage_sizes(Stages(), 20)) == [20]
    assert list(stage_sizes(Stages(), 100)) == [30, 15, 23, 32]
    assert list(stage_sizes(Stages(first=2, growth=1.5), 6)) == [2, 1, 1, 2]
    assert list(itertools.islice(stage_sizes(doubling, None), 4)) == [30, 30, 60, 120]


@pytest.mark.parametrize("episodes", [1, 2, 31, 100, 999, 12345])
@pytest.mark.parametrize("growth", [1.1, 1.5, 2.0, 10.0])
def test_stages_hold_all_episodes(episodes, growth):
    sizes = list(stage_sizes(Stages(growth=growth), episodes))
    assert sum(sizes) == episodes
    assert min(sizes) >= 1


def test_shares_add_up_and_an_early_stage_never_counts_more_than_later_ones():
    rng = np.random.default_rng(0)
    for _ in range(200):
        settings = Stages(first=int(rng.integers(2, 40)), growth=float(rng.uniform(1.2, 3)))
        sizes = list(stage_sizes(settings, 500))
        shares = Shares(500, settings)
        weights = [shares.next(size, float(rng.uniform(0.0, 3.0))) for size in sizes]
        assert np.dot(weights, sizes) == pytest.approx(500)
        left = 500.0
        for k, (weight, size) in enumerate(zip(weights, sizes, strict=True)):
            after = sum(sizes[k:])
            assert weight <= left / after * (1 + 1e-9)
            left -= weight * size


def test_shares_are_those_of_least_variance_if_all_is_predicted():
    """Designs that are as good as the prior: shares are inverse to variances."""
    shares, sizes, variances = Shares(1000, Stages()), [400, 600], [0.2, 0.2]
    found = [shares.next(size, v) for size, v in zip(sizes, variances, strict=True)]
    assert found == pytest.approx([1.0, 1.0])
    shares = Shares(10**6, Stages(prior_variance=0.2))  # nearly all is still to come
    found = [shares.next(size, v) for size, v in ((30, 1.0), (10**6 - 30, 0.2))]
    assert found[1] / found[0] == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize("episodes", [300, 1000, 5000])
def test_designs_that_all_fall_back_cost_hardly_any_precision(episodes):
    """Squared error relative to the plain mean of as many on-policy episodes."""
    shares, square = Shares(episodes, Stages()), 0.0
    for k, size in enumerate(stage_sizes(Stages(), episodes)):
        weight = shares.next(size, 1.0, fell_back=k > 0)
        square += (weight * size / episodes) ** 2 / size * episodes
    assert 1.0 <= square < 1.05


def test_a_prediction_has_a_floor_and_the_check_counts():
    settings = Stages(least_variance=0.05)
    assert expected_variance(None, settings) == 1.0
    assert expected_variance(Prediction(0.001, 1.0, 0.001, 1.0), settings) == 0.05
    assert 0.2 < expected_variance(Prediction(0.2, 1.0, 0.4, 1.0), settings) < 0.4
    assert expected_variance(Prediction(float("nan"), 1.0, 0.4, 1.0), settings) == 1.0


def test_progress_is_half_of_what_the_other_half_of_the_data_brought():
    assert expected_progress(None) == 1.0
    assert expected_progress(Prediction(0.2, 1.0, 0.45, 1.0)) == pytest.approx(1.5)
    assert expected_progress(Prediction(0.4, 1.0, 0.2, 1.0)) == 1.0  # it never takes away
    assert expected_progress(Prediction(0.0, 1.0, 1.0, 1.0)) == 2.0
    assert expected_progress(Prediction(0.2, 1.0, float("nan"), 1.0)) == 1.0
    # all but the first episodes are still to come, and are expected to be better by that factor
    shares = Shares(10**6, Stages())
    found = [shares.next(30, 0.3, progress=1.5), shares.next(10**6 - 30, 0.2)]
    assert found[1] / found[0] == pytest.approx(1.5, rel=1e-3)


# -- unbiased, exactly -----------------------------------------------------------------------------

#: One state, two actions, one step; a reward of 0 or `HIGH`.
PROBS, HIGH, CHANCE = np.array([0.3, 0.7]), np.array([1.0, 3.0]), np.array([0.5, 0.2])
OUTCOMES = list(itertools.product((0, 1), (0, 1)))  # action, whether the reward is high
VALUE = float(PROBS @ (HIGH * CHANCE))


@dataclass
class Script:
    """Plays out given outcomes, and counts how likely they are under what is run."""

    baseline = None
    env = None
    environments = None
    seed = 0

    outcomes: list[tuple[int, int]]
    chance: float = 1.0
    target: TabularPolicy = field(default_factory=lambda: TabularPolicy(PROBS[None]))
    steps: int = 1
    stages: list[list[float]] = field(default_factory=list)

    def of(self, behavior, estimator, guard, *, keep):
        mu = PROBS if behavior is None else behavior.table(1)[0, 0]
        self.stages.append([])

        def run(first, count, *, by_target):
            some = self.outcomes[first : first + count]
            a, high = (np.array(column) for column in zip(*some, strict=True))
            for k in range(count):
                p = CHANCE[a[k]] if high[k] else 1.0 - CHANCE[a[k]]
                self.chance *= mu[a[k]] * p
            zeros = np.zeros((count, 1), np.int64)
            episodes = Episodes(
                obs=zeros,
                action=a[:, None],
                reward=(HIGH[a] * high)[:, None],
                cost=1.0 + 0.1 * a[:, None],
                behavior_prob=mu[a][:, None],
                target_prob=PROBS[a][:, None],
                length=np.ones(count, np.int64),
                last_obs=np.zeros(count, np.int64),
                terminated=np.ones(count, np.bool_),
                by_target=np.full(count, behavior is None),
            )
            batch = summarize(episodes, 1.0, "pdis")
            self.stages[-1] += batch.value.tolist()
            return batch

        return SimpleNamespace(run=run, side_by_side=1, quick=False, uncovered=None)


def greedy(self, asked, margin):
    """A design, and a prediction, that depend on the rewards seen so far as crudely as may be."""
    reward = np.concatenate([part.reward for part in self._seen])
    action = np.concatenate([part.action for part in self._seen])
    worth = np.array([0.3 + reward[action == a].sum() for a in (0, 1)])
    mu = TabularPolicy((worth / worth.sum())[None])
    variance = float(0.05 + reward.mean() / 3.0)
    return Plan(mu, Prediction(variance, 1.0, variance, 1.0), 0.0, "greedy", new=True)


def variance_under(behavior) -> float:
    """Of one value pi(a) / mu(a) reward."""
    mu = PROBS if behavior is None else behavior.table(1)[0, 0]
    return float((PROBS**2 / mu * CHANCE * HIGH**2).sum() - VALUE**2)


def test_estimate_is_unbiased_for_every_outcome_with_designs_that_depend_on_the_data(monkeypatch):
    """The sum over all outcomes of four episodes in three stages is J(pi), to rounding.

    Weights 1 / variance divided by their sum at the end, which are not known before the stage, are
    biased on the same outcomes: the test can tell the difference.
    """
    monkeypatch.setattr(StageDesigner, "_designed", greedy)
    # four episodes may tell too little for a value to be told; what is hidden then is unbiased too
    monkeypatch.setattr(WeightDiagnostics, "no_evidence", False)
    settings = Stages(first=2, growth=1.5, least_variance=0.01)
    task = EvaluationTask(
        Question(PROBS[None], 1, 1.0), Promise(), Inference(estimator="pdis"), (), True, 0
    )
    total = mean = naive = square = expected = 0.0
    for outcomes in itertools.product(OUTCOMES, repeat=4):
        script = Script(list(outcomes))
        plan = StoppingPlan(Stop(4))
        found = EvaluationLoop(task, script, plan, None, None, settings).evaluate()
        assert [stage.episodes for stage in found.stages] == [2, 1, 1]
        total += script.chance
        mean += script.chance * found.estimate
        inverse = [
            len(values) / (1.0 if stage.prediction is None else stage.prediction.variance)
            for values, stage in zip(script.stages, found.stages, strict=True)
        ]
        means = [np.mean(values) for values in script.stages]
        naive += script.chance * float(np.dot(inverse, means) / sum(inverse))
        square += script.chance * (found.estimate - VALUE) ** 2
        expected += script.chance * sum(
            stage.share**2 * variance_under(stage.behavior) / stage.episodes
            for stage in found.stages
        )
        shares = [stage.share for stage in found.stages]
        assert sum(shares) == pytest.approx(1.0)
        assert found.estimate == pytest.approx(float(np.dot(shares, means)))
    assert total == pytest.approx(1.0, abs=1e-12)
    assert mean == pytest.approx(VALUE, abs=1e-12)
    assert abs(naive - VALUE) > 1e-3
    assert square == pytest.approx(expected, abs=1e-12)  # stages are uncorrelated given the past


# -- the whole flow --------------------------------------------------------------------------------


def test_no_logs_are_needed():
    found = evaluate(GRID, PI, episodes=500, seed=3, run=QUICK)
    assert found.finished == 500
    assert [stage.episodes for stage in found.stages] == list(stage_sizes(QUICK, 500))
    assert found.stages[0].on_policy
    assert not found.stages[-1].on_policy
    assert found.interval.contains(TRUTH.value)  # one seed; misses by chance in 5 % of seeds
    assert found.interval.method == "studentized martingale"
    own = (found.interval.half_width / 1.97) ** 2
    assert own < 0.5 * TRUTH.variance / 500
    assert found.learning.refits == sum(stage.designed for stage in found.stages)
    text = found.summary()
    assert "stage 1" in text
    assert "nothing is known yet" in text
    again = evaluate(GRID, PI, episodes=500, seed=3, run=QUICK)
    assert again.estimate == found.estimate
    content = found.to_dict()
    assert len(content["stages"]) == len(found.stages)
    assert content["learning"]["refits"] == found.learning.refits


def test_logs_make_the_first_design():
    logs = gridworld_logs(GRID, 300)
    found = evaluate(GRID, PI, episodes=100, seed=2, run=replace(QUICK, logs=logs))
    assert found.stages[0].designed
    assert not found.stages[0].on_policy
    assert found.stages[1].rows > found.stages[0].rows


def test_a_given_behavior_runs_first():
    behavior = exact.design(GRID, PI, "scope")
    found = evaluate(GRID, PI, episodes=90, seed=2, run=replace(QUICK, design=behavior))
    assert "was given" in found.stages[0].why
    assert found.stages[0].by_target == 0


def test_precision_stops_between_and_within_stages():
    found = evaluate(GRID, PI, seed=2, run=QUICK, stop=Stop(precision=0.05))
    assert found.interval.method == "asymptotic sequence"
    assert found.interval.half_width <= 0.05
    assert found.interval.contains(TRUTH.value)
    plain = evaluate(GRID, PI, seed=2, stop=Stop(precision=0.05))
    assert found.finished < plain.finished


def test_below_the_target_policys_own_cost():
    found = evaluate(GRID, PI, episodes=400, seed=2, run=QUICK, promise=Promise(at_most=0.8))
    payback = found.learning.payback
    assert payback.promise == "stage"
    assert found.stages[-1].prediction.cost < 0.85
    assert "of every stage after the first" in found.summary()
    whole = Stages(promise_of="total", learn=Table(features=cells(5)))
    total = evaluate(GRID, PI, whole, episodes=400, seed=2, promise=Promise(at_most=0.8))
    assert total.learning.payback.predicted <= payback.predicted + 1e-9
    assert total.certificate.epsilon == -0.2


def test_the_certificate_of_stages_judges_the_cost_that_was_asked():
    """`verdict` answers the question of `epsilon`, and the own cost is judged beside it.

    With this seed all episodes together cost about 0.70 of the target policy's: above the 0.6 that
    was asked, and below its own cost.
    """
    found = evaluate(GRID, PI, episodes=400, seed=4, run=QUICK, promise=Promise(at_most=0.6))
    assert found.certificate.epsilon == pytest.approx(-0.4)
    assert found.certificate.verdict == "refuted"
    assert found.certificate_at_own_cost.epsilon == 0.0
    assert found.certificate_at_own_cost.verdict == "safe"
    words = " ".join(found.summary().split())
    assert "Refuted as far as seen: with 95% confidence the behavior policy's" in words
    assert "about all episodes together, those of the target policy itself included" in words
    assert "at most the target's" in words
    assert "checked every batch and did not switch; in stages it guards the target's own" in words
    assert found.to_dict()["certificate_at_own_cost"]["verdict"] == "safe"
    assert found.to_frame().loc["all", "verdict"] == "refuted"
    card = found._repr_html_()
    assert "0.6 times the target" in card
    assert "at most the target" in card
    page = page_of_evaluation(found)
    told = " ".join(text for section in page.sections for text in section.text)
    assert "0.6 times the target's" in told
    assert "at most the target's" in told
    plain = evaluate(GRID, PI, episodes=200, seed=2, run=QUICK)
    assert plain.certificate.epsilon == 0.0
    assert plain.certificate_at_own_cost is None


def test_stages_that_only_ran_the_target_do_not_keep_a_lower_cost():
    """30 episodes are one stage, the target policy itself: 0.8 of its cost was asked."""
    found = evaluate(GRID, PI, episodes=30, seed=2, run=QUICK, promise=Promise(at_most=0.8))
    assert found.by_target == found.finished
    assert found.certificate.verdict == "refuted"
    assert "nothing to certify" not in found.summary()
    assert found.to_frame().loc["all", "verdict"] == "refuted"


def test_the_total_promise_asks_later_stages_to_pay():
    budget = StageBudget(-0.3, "total", 1000)
    assert budget.asked == pytest.approx(0.7)
    budget.add(100, 1.0)
    assert budget.asked == pytest.approx(0.7 - 30 / 900)
    assert budget.payback.after is None
    budget.add(800, budget.asked)
    assert budget.payback.after is None
    budget.add(100, budget.asked)
    assert budget.payback.predicted == pytest.approx(0.7)
    assert budget.payback.after == 1000
    stages = StageBudget(-0.3, "stage", 1000)
    stages.add(100, 1.0)
    assert stages.asked == pytest.approx(0.7)
    stages.add(400, 0.6)
    assert stages.payback.after == 400  # 100 x 0.3 = 300 x 0.1


def test_refitting_stops_when_nothing_is_left_to_gain():
    settings = Stages(worth=1e9, learn=Table(features=cells(5)))
    found = evaluate(GRID, PI, episodes=500, seed=3, run=settings)
    assert found.learning.stopped is not None
    assert "less than the 1e+09" in found.learning.stopped
    assert "continues with the last design" in found.stages[-1].why
    assert found.interval.contains(TRUTH.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": 1},
        {"growth": 1.0},
        {"promise_of": "day"},
        {"significance": 0.0},
        {"method": "none"},
    ],
)
def test_settings_are_checked(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Stages(**wrong)


def test_an_interrupt_while_a_design_is_made_keeps_what_was_finished(monkeypatch):
    usual, calls = StageDesigner._designed, []

    def slow(self, asked, margin):
        calls.append(asked)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return usual(self, asked, margin)

    monkeypatch.setattr(StageDesigner, "_designed", slow)
    found = evaluate(GRID, PI, episodes=500, seed=3, run=QUICK)
    assert found.stopped == "interrupted by the user"
    assert [stage.episodes for stage in found.stages] == [30, 15]
    assert found.interval.method == "asymptotic sequence"


def test_a_design_that_fails_does_not_end_the_evaluation(monkeypatch):
    def broken(self, logged, asked, margin):
        raise DataError("logged: not today")

    monkeypatch.setattr(StageDesigner, "_design", broken)
    found = evaluate(GRID, PI, episodes=100, seed=3, run=QUICK)
    assert found.finished == 100
    assert found.by_target == 100
    assert "no design could be made (logged: not today)" in found.stages[1].why
    with pytest.raises(DataError, match="not today"):  # logs that are given must be sound
        evaluate(GRID, PI, episodes=100, seed=3, run=replace(QUICK, logs=gridworld_logs(GRID, 50)))


def test_episodes_of_several_designs_name_none_of_them():
    found = evaluate(GRID, PI, episodes=120, seed=3, run=QUICK, inference=Inference(keep=True))
    assert len(found.episodes) == 120
    assert found.episodes.provenance.behavior is None
    assert found.episodes.provenance.target is not None


def test_stages_of_vectors_refit_one_learned_world():
    rng = np.random.default_rng(0)

    def part(rows):
        obs = rng.normal(size=(rows, 2))
        action = rng.integers(2, size=rows)
        after = 0.9 * obs + action[:, None]
        return Transitions(np.zeros(rows, int), obs, action, obs[:, 0], action, after)

    target = CallablePolicy(lambda obs, t: np.full((len(obs), 2), 0.5))
    designer = StageDesigner(Question(target, 1, 1.0), Promise(), Stages(), None, None, 0)
    parts = [part(200)]
    first = designer._data(parts)
    assert (len(first.logged), first.refits) == (200, 0)
    assert designer._data(parts) is first
    parts.append(part(100))
    second = designer._data(parts)
    assert (len(second.logged), second.refits) == (300, 1)
    assert np.array_equal(second.fold[:200], first.fold)
    designer.forget("earlier stages")
    assert designer._data(parts[1:]).refits == 0


# -- safety ----------------------------------------------------------------------------------------

#: Much more expensive than the target policy.
GREEDY = TabularPolicy(0.1 * PI.table(1)[0] + 0.9 * np.eye(4)[GRID.cost.argmax(axis=1)])


def test_a_refuted_promise_ends_all_tilting():
    """Unbiased all the same; fails by chance with probability below 1e-5."""
    settings = Stages(first=300, learn=Table(features=cells(5)))
    found = evaluate(GRID, PI, episodes=900, seed=3, run=replace(settings, design=GREEDY))
    first, second = found.stages[0], found.stages[1]
    assert first.refuted is not None
    assert first.certificate.verdict == "refuted"
    assert 0 < first.by_target < first.episodes
    assert second.by_target == second.episodes
    assert found.guard.switched_after < 300
    assert abs(found.estimate - TRUTH.value) < 5 * np.sqrt(found.on_policy.variance / 300)


def test_short_stages_are_judged_together(monkeypatch):
    """No stage alone has enough episodes to be judged, but all of them together have."""

    def expensive(self, asked, margin):
        return Plan(GREEDY, Prediction(1.0, 1.0, 1.0, 1.0), 0.0, "greedy", new=True)

    monkeypatch.setattr(StageDesigner, "_designed", expensive)
    settings = Stages(first=20, growth=1.2)
    found = evaluate(GRID, PI, episodes=300, seed=3, run=settings)
    assert found.guard.switched_after is not None
    refuted = [stage.number for stage in found.stages if stage.refuted is not None]
    assert len(refuted) == 1
    assert found.stages[refuted[0] - 1].episodes < 50  # the burn-in of a stage's own guard
    assert all(stage.on_policy for stage in found.stages[refuted[0] :])


def test_a_stage_has_its_own_promise():
    found = evaluate(GRID, PI, episodes=240, seed=2, run=QUICK, promise=Promise(at_most=1.1))
    assert {stage.epsilon for stage in found.stages if not stage.on_policy} == {0.1}
    assert found.certificate.epsilon == 0.1
    assert found.stages[0].certificate is None


# -- the fleet -------------------------------------------------------------------------------------


def test_the_fleet_has_the_laws_of_its_mdp():
    """Mean reward and cost of 4,000 episodes; fails by chance with probability below 1e-5."""
    rng = np.random.default_rng(5)
    mdp = random_mdp(rng, noise=True, ends=True)
    policy = TabularPolicy(random_rows(rng, mdp.states, mdp.actions))
    truth = exact.assess(mdp, policy, policy)
    found = collect(TabularFleet(mdp, 500), policy, horizon=mdp.horizon, episodes=4000, seed=1)
    for values, wanted in ((found.returns(), truth.value), (found.costs(), truth.cost)):
        assert abs(values.mean() - wanted) < 5 * values.std() / np.sqrt(len(values))
    again = collect(TabularFleet(mdp, 7), policy, horizon=mdp.horizon, episodes=50, seed=1)
    assert np.array_equal(again.reward, found.reward[:50])


def test_behavior_that_depends_on_the_weight_runs_in_a_model():
    """Unbiased estimate and the predicted cost; fails by chance with probability below 1e-5."""
    mdp, target = GRID, PI
    behavior = exact.frontier(mdp, target).at(cost=0.7)
    found = evaluate(mdp, target, behavior, episodes=2000, seed=3)
    error = found.interval.half_width / 1.96
    assert abs(found.estimate - TRUTH.value) < 5 * error
    assert found.cost.per_episode < 0.75 * TRUTH.cost
