"""Glitches on a plant are met at their step, and cost one step or one episode at most."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Check, EpisodeLog, design, estimate, evaluate
from scopeval.behavior.policy import Action
from scopeval.errors import InputError
from scopeval.evaluation.recorded import repeated_streams
from scopeval.exact import TabularMDP
from wearing_machine import HORIZON, STATES, machine_log, policy, transitions

TARGET = policy()
BEHAVIOR = 0.5 * TARGET + 0.5 / 3
GOOD = Action(1, 0.5, 0.25)


def started(horizon=3, **settings):
    log = EpisodeLog(horizon, **settings)
    log.start()
    return log


# -- bad readings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obs", "chosen", "reward", "cost", "says"),
    [
        (0, GOOD, 1.0, -1e-12, "max\\(cost, 0.0\\)"),
        (0, GOOD, np.nan, 1.0, "reward"),
        (0, GOOD, 1.0, np.inf, "cost"),
        (0, Action(1, 1 + 1e-4, 0.25), 1.0, 1.0, "probability: got 1.0001"),
        (0, Action(1, 0.0, 0.25), 1.0, 1.0, "probability: got 0.0"),
        (0, Action(1, np.nan, 0.25), 1.0, 1.0, "probability"),
        (0, Action(1, 0.5, -1e-3), 1.0, 1.0, "target_probability"),
        (0, Action(1, 0.5, 0.25, np.nan), 1.0, 1.0, "control"),
        (0, Action([1.0, 2.0], 0.5, 0.25), 1.0, 1.0, "action: got shape"),
        ([0.0, 1.0], GOOD, 1.0, 1.0, "obs: got shape"),
        (np.nan, GOOD, 1.0, 1.0, "obs"),
    ],
)
def test_a_bad_reading_is_refused_at_its_step(obs, chosen, reward, cost, says):
    log = started()
    log.step(0, GOOD, 1.0, 1.0)
    with pytest.raises(InputError, match=says):
        log.step(obs, chosen, reward, cost)
    log.step(1, GOOD, 1.0, 1.0)
    log.end()
    assert log.episodes().length.tolist() == [2]


def test_rounding_of_a_probability_does_not_spoil_the_campaign():
    log = started()
    log.step(0, Action(1, 1 + 1e-12, 1 + 1e-12), 1.0, 1.0)
    log.end()
    assert log.episodes().behavior_prob[0, 0] == 1.0


def test_one_bad_day_can_be_dropped():
    log = EpisodeLog(1)
    for day in range(4):
        log.start()
        log.step(0, GOOD, float(day), 1.0 + day)
        log.end()
    log.drop(2, "the sensor was loose")
    found = log.episodes()
    assert found.index.tolist() == [0, 1, 3]
    assert [(x.index, x.reason, x.cost) for x in found.lost] == [(2, "the sensor was loose", 3.0)]
    with pytest.raises(InputError, match="finished episode"):
        log.drop(2, "again")
    log.start()
    log.step(0, GOOD, 1.0, 1.0)
    log.end()
    assert log.episodes().index.tolist() == [0, 1, 3, 4]


# -- random numbers ------------------------------------------------------------------------------


def one_day(log, draw, rng):
    """A day of the wearing machine; `draw(obs, t)` chooses."""
    log.start()
    state = 0
    for t in range(HORIZON):
        chosen = draw(state, t)
        worn = rng.random() < 0.15 * (1 + chosen.action)
        log.step(state, chosen, float(chosen.action), 1.0 + chosen.action)
        state = min(state + worn, STATES - 1)
    log.end(state)


def test_a_generator_that_is_restarted_every_day_is_noticed():
    behavior = design(transitions(machine_log(200)), TARGET, horizon=HORIZON, method="odi")
    plant, log = np.random.default_rng(1), EpisodeLog(HORIZON)
    first = np.random.default_rng(0)
    one_day(log, lambda obs, t: behavior.act(obs, t, first), plant)
    again = np.random.default_rng(0)
    with pytest.raises(InputError, match="was used at t=0 before"):
        one_day(log, lambda obs, t: behavior.act(obs, t, again), plant)
    log.lose("a repeated generator")
    one_day(log, lambda obs, t: behavior.act(obs, t, first), plant)
    assert len(log) == 2


def by_hand(obs, rng):
    """As a user's own code draws: nothing says which random number it was."""
    action = int(rng.choice(3, p=BEHAVIOR[obs]))
    return Action(action, float(BEHAVIOR[obs, action]), float(TARGET[obs, action]))


@pytest.mark.parametrize("restarted", [True, False])
def test_choices_of_repeated_numbers_are_noticed_in_the_result(restarted):
    plant, log = np.random.default_rng(1), EpisodeLog(HORIZON)
    rng = np.random.default_rng(0)
    for _ in range(20):
        if restarted:
            rng = np.random.default_rng(0)
        one_day(log, lambda obs, t, rng=rng: by_hand(obs, rng), plant)
    said = [w for w in estimate(log.episodes()).diagnostics.warnings if "repeated" in w]
    assert len(said) == restarted
    assert (repeated_streams(log.episodes()) is not None) == restarted


def test_the_log_owns_a_generator_that_never_repeats():
    def days(count, **settings):
        log = EpisodeLog(HORIZON, target=TARGET, behavior=BEHAVIOR, **settings)
        plant = np.random.default_rng(1)
        for _ in range(count):
            one_day(log, lambda obs, t: log.act(obs), plant)
        return log.episodes()

    assert np.array_equal(days(3, seed=5).action, days(3, seed=5).action)
    assert not np.array_equal(days(3).action, days(3).action)  # 3^-60 at most
    found = days(50, seed=0)
    assert found.behavior_prob[found.steps] == pytest.approx(
        BEHAVIOR[found.obs[found.steps], found.action[found.steps]]
    )
    assert repeated_streams(found) is None


def test_act_knows_the_weight_of_the_episode():
    class Weighted:
        def weigh(self, offered, obs, t, state):
            from scopeval.policies.protocols import Weighing

            self.seen.append(float(state.weight[0]))
            return Weighing(BEHAVIOR[obs])

    Weighted.seen = []
    log = started(target=TARGET, behavior=Weighted(), seed=1)
    ratios = [1.0]
    for _ in range(3):
        chosen = log.act(0)
        log.step(0, chosen, 1.0, 1.0)
        ratios.append(ratios[-1] * chosen.target_probability / chosen.probability)
    assert Weighted.seen == pytest.approx(ratios[:-1])
    assert log.weight == pytest.approx(ratios[-1])


# -- the target's own episodes ---------------------------------------------------------------------


def test_the_targets_own_episodes_are_recorded_after_a_switch():
    log = EpisodeLog(2, target=TARGET, behavior=BEHAVIOR, seed=0)
    log.start()
    log.step(0, log.act(0), 1.0, 1.0)
    log.hand_over()
    log.step(1, log.act(1), 1.0, 1.0)
    log.end()
    log.start()
    log.step(0, log.act(0), 1.0, 1.0)
    log.end()
    found = log.episodes()
    assert found.by_target.tolist() == [False, True]
    assert found.guarded.tolist() == [1, 0]
    assert found.ratios[0, 1] == found.ratios[1, 0] == 1.0
    assert estimate(found).by_target == 1


def test_an_episode_by_the_target_takes_the_targets_decisions_only():
    log = EpisodeLog(2)
    log.start(by_target=True)
    with pytest.raises(InputError, match="by_target=True"):
        log.step(0, GOOD, 1.0, 1.0)
    log.step(0, Action(1, 0.25, 0.25), 1.0, 1.0)
    log.end()
    assert log.episodes().by_target.tolist() == [True]


# -- policies in single precision ------------------------------------------------------------------


class Single:
    """A policy object that answers in single precision, as torch users have it."""

    def __init__(self, off=0.0):
        self.off = off

    def probs(self, obs, t):
        return (TARGET[obs] * (1 + self.off)).astype(np.float32)


def test_single_precision_loses_no_gain():
    logs = transitions(machine_log(300))
    double = design(logs, TARGET, horizon=HORIZON, method="odi")
    single = design(logs, Single(), horizon=HORIZON, method="odi")
    assert not double.falls_back
    assert single.predicted.variance == pytest.approx(double.predicted.variance, rel=1e-4)
    rng = np.random.default_rng(0)
    for state in range(STATES):
        single.act(state, 0, rng)
    every = np.arange(STATES)
    assert single.probs(every, 0) == pytest.approx(double.probs(every, 0), abs=1e-4)
    assert single.counts.not_finite == 0


def test_rows_that_do_not_sum_to_one_are_refused():
    with pytest.raises(InputError, match="sum to"):
        design(transitions(machine_log(100)), Single(1e-3), horizon=HORIZON, method="scope")


# -- fallbacks -------------------------------------------------------------------------------------


class Fails:
    """A behavior policy that fails at some time steps."""

    def __init__(self, times):
        self.times = times

    def weigh(self, offered, obs, t, state):
        from scopeval.policies.protocols import Weighing

        if t in self.times:
            raise RuntimeError("no answer")
        return Weighing(offered.probs)


@pytest.mark.parametrize("often", [True, False])
def test_frequent_fallbacks_are_a_warning(often):
    log = EpisodeLog(HORIZON, target=TARGET, behavior=Fails([2, 3] if often else [2]), seed=0)
    plant = np.random.default_rng(1)
    for _ in range(20):
        one_day(log, lambda obs, t: log.act(obs), plant)
    found = estimate(log.episodes())
    share = found.diagnostics.fallbacks / float(log.episodes().length.sum())
    assert share == (0.1 if often else 0.05)
    said = [w for w in found.diagnostics.warnings if "fell back to the target policy in" in w]
    assert len(said) == often


def test_frequent_fallbacks_of_a_learned_policy_are_a_warning():
    columns = machine_log(200)
    early = columns["obs"] < 4
    some = transitions({name: column[early] for name, column in columns.items()})
    behavior = design(some, TARGET, horizon=HORIZON, method="odi", check=Check(least_gain=0.0))
    S, A = STATES, 3
    step = np.zeros((S, A, S))
    for s in range(S):
        step[s, :, min(s + 1, S - 1)] = 1.0
    world = TabularMDP(np.eye(S)[0], step, np.ones((S, A)), np.ones((S, A)), HORIZON)
    from scopeval.envs.tabular import TabularEnv

    found = evaluate(lambda: TabularEnv(world), TARGET, behavior, horizon=HORIZON, episodes=5)
    assert any("(unseen): the logs do not show" in w for w in found.diagnostics.warnings)
