"""`compare` as users call it: answers, ends, what runs, and messages."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import scopeval
from random_mdps import random_case
from scopeval import (
    Bound,
    Comparison,
    GaussianPolicy,
    Inference,
    Plant,
    Promise,
    Question,
    Ramp,
    Stop,
    Transitions,
    assess,
    compare,
)
from scopeval.comparison.inference import Contrast
from scopeval.comparison.result import Difference, difference_of
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError

CASE = random_case(3, states=4, actions=3, horizon=5)
MDP, OLD = CASE.mdp, CASE.target
RNG = np.random.default_rng(3)
OTHER = RNG.dirichlet(np.ones(3), (5, 4))
NEW = 0.6 * OLD + 0.4 * OTHER
BOTH = {"today": OLD, "new": NEW}


def value(policy: np.ndarray) -> float:
    return float(assess(MDP, policy, policy).value)


def test_values_and_differences_are_right():
    """1,000 episodes, five standard errors: fails by chance once in 300,000."""
    result = compare(MDP, BOTH, episodes=1000)
    for name, policy in BOTH.items():
        assert abs(result.values[name].estimate - value(policy)) < 5 * result.values[name].se
    d = result.differences["new"]
    assert abs(d.estimate - (value(NEW) - value(OLD))) < 5 * d.se
    assert d.low < d.estimate < d.high
    # paired: the difference of the values is the value of the difference, and far better known
    gap = result.values["new"].estimate - result.values["today"].estimate
    assert d.estimate == pytest.approx(gap)
    assert d.se < 0.8 * np.hypot(result.values["new"].se, result.values["today"].se)
    assert d.ab_episodes > 2 * d.n
    assert result.baseline == "today"
    assert result.episodes == 1000
    assert d.verdict == ("better" if value(NEW) > value(OLD) else "worse")
    assert result.decided
    assert "confidence" in result.sentence
    assert str(result) == result.summary()


def test_the_interval_covers_as_often_as_it_says():
    """80 comparisons of 60 episodes: fewer than 69 hits by chance once in 500."""
    truth, hits = value(NEW) - value(OLD), 0
    for seed in range(80):
        hits += compare(MDP, BOTH, episodes=60, seed=seed).differences["new"].contains(truth)
    assert hits >= 69


def test_a_sequence_ends_when_it_is_decided_and_is_rarely_wrong():
    """12 runs; each ever misses with 0.05 at most: more than 3 misses by chance once in 400."""
    truth, wrong, early = value(NEW) - value(OLD), 0, 0
    for seed in range(12):
        result = compare(MDP, BOTH, stop=Stop(decided=True, episodes=4000), seed=seed)
        d = result.differences["new"]
        assert d.method == "asymptotic sequence"
        if "decided" in result.stopped:
            assert result.decided
            assert d.decided_after == result.episodes
            early += result.episodes < 4000
        wrong += not d.contains(truth)
    assert early >= 10
    assert wrong <= 3


def test_a_precision_ends_it():
    result = compare(MDP, BOTH, stop=Stop(precision=0.2))
    assert result.differences["new"].half_width <= 0.2
    assert "every difference was known to +- 0.2" in result.stopped
    assert result.looks[-1][0] == result.episodes


@pytest.mark.parametrize("factor", [1.0, 1.0 + 1e-13])
def test_the_same_policy_twice_has_no_winner(factor: float):
    """A copy, and one that differs by rounding: never better or worse, whatever the plan."""
    copy = OLD * np.where(np.arange(3) == 0, factor, 1.0)
    copy /= copy.sum(axis=2, keepdims=True)
    for plan in ({"episodes": 300}, {"stop": Stop(decided=True)}):
        result = compare(MDP, {"today": OLD, "copy": copy}, **plan)
        assert result.differences["copy"].verdict == "undecided"
        assert result.differences["copy"].flat
        assert not result.best.decided
        assert "cannot be told apart" in result.sentence
    assert "decide alike" in result.stopped


def test_two_policies_of_equal_value_rarely_have_a_winner():
    """Rewards that no action changes: 60 runs, each names one with 0.05 at most."""
    rewards = np.broadcast_to(RNG.normal(size=(5, 4, 1)), (5, 4, 3))
    mdp = scopeval.exact.TabularMDP(
        MDP.initial, np.tile(MDP.transition.toarray().reshape(4, 3, 4)[:, :1], (1, 3, 1)),
        rewards, np.zeros((4, 3)), 5, reward_variance=np.ones((4, 3)),
    )  # fmt: skip
    far = {"today": np.eye(3)[np.zeros((5, 4), int)], "new": OTHER}
    winners = 0
    for seed in range(60):
        result = compare(mdp, far, episodes=64, seed=seed)
        winners += result.differences["new"].verdict != "undecided"
    assert winners <= 9  # 3 expected; more than 9 by chance once in 1,000


def test_several_policies_the_best_and_those_that_lose_their_share():
    rng = np.random.default_rng(0)
    several = {"today": OLD} | {
        f"p{i}": 0.5 * OLD + 0.5 * rng.dirichlet(np.ones(3) * 0.3, (5, 4)) for i in range(4)
    }
    truth = {name: value(policy) for name, policy in several.items()}
    result = compare(MDP, several, stop=Stop(decided=True, episodes=6000))
    assert result.dropped
    assert "today" not in result.dropped
    assert result.shares["today"] > 0
    best = max(truth, key=lambda name: truth[name])
    assert all(truth[name] < truth[best] for name in result.dropped)
    if result.best.decided:
        assert result.best.name == best
    assert result.best.value.contains(truth[result.best.name])
    # the interval of the best knows that it was chosen
    assert result.best.value.half_width > result.values[result.best.name].half_width
    frame = result.to_frame()
    assert list(frame.index) == list(several)


def test_gymnasium_environments_deterministic_policies_and_functions():
    """Two controllers that never agree share no episode: a plain A/B test, and it says so."""
    env = Plant(lambda: TabularEnv(MDP))
    first, second = np.eye(3)[np.zeros((5, 4), int)], np.eye(3)[np.ones((5, 4), int)]
    policies = {"today": lambda obs, t: first[t, obs], "new": second}
    result = compare(env, policies, episodes=200, horizon=5)
    d = result.differences["new"]
    assert d.shared == 0.0
    assert abs(d.estimate - (value(second) - value(first))) < 5 * d.se
    assert "a plain A/B test" in result.summary()
    assert "an A/B test would have taken" not in result.sentence


class Line:
    """One number that the action moves; the reward is the action's part in the box. No costs."""

    action_space = None

    def reset(self, *, seed: int) -> Any:
        self.x = np.zeros(1)
        return self.x, {}

    def step(self, action: Any) -> Any:
        self.x = self.x + action
        return self.x, float(action[0]), False, False, {}


def test_gaussian_policies():
    def gaussian(mean: float) -> GaussianPolicy:
        return GaussianPolicy(
            lambda obs, t: np.full((len(obs), 1), mean), [0.0], low=[-9], high=[9]
        )

    result = compare(Line, {"today": gaussian(0.0), "new": gaussian(0.2)}, episodes=500, horizon=2)
    d = result.differences["new"]
    assert abs(d.estimate - 0.4) < 5 * d.se
    assert 0.7 < d.shared < 1.0
    assert result.cost.total == 0
    assert result.certificate is None


def test_a_policy_that_fails_has_no_value_and_the_others_do():
    def failing(obs: Any, t: int) -> np.ndarray:
        probs = np.array(OLD[t, obs])
        probs[(obs == 1) & (t >= 2)] = np.nan
        return probs

    result = compare(MDP, BOTH | {"bad": failing}, stop=Stop(episodes=600, every=200))
    assert result.differences["bad"].verdict == "failed"
    assert "NaN" in result.failures["bad"]
    assert result.shares["bad"] == 0.0
    d = result.differences["new"]
    assert d.n == 600
    assert abs(d.estimate - (value(NEW) - value(OLD))) < 5 * d.se
    assert "bad failed" in result.sentence


def test_the_baseline_that_fails_is_what_the_answer_says():
    def failing(obs: Any, t: int) -> np.ndarray:
        probs = np.array(OLD[t, obs])
        probs[(obs == 1) & (t >= 1)] = np.nan
        return probs

    policies = {"today": failing, "new": NEW}
    for more in ({}, {"third": OTHER}):
        result = compare(MDP, policies | more, episodes=64)
        assert result.sentence.startswith("today failed, so that there is nothing to compare")
        assert "new failed" not in result.summary()
        assert "new has no value" not in result.summary()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_policy_that_answers_about_other_actions_in_mid_episode_has_failed(at_once: bool):
    """Two probabilities in place of three, of a whole batch or of some of its episodes."""

    def failing(obs: Any, t: int) -> np.ndarray:
        if t == 3 and at_once:
            return np.full((len(obs), 2), 0.5)
        if t == 3 and len(set(obs.tolist())) > 1:
            raise RuntimeError("ragged")
        return np.full((1, 2), 0.5) if t == 3 and obs[0] == 1 else OLD[t, obs]

    result = compare(MDP, BOTH | {"bad": failing}, episodes=100)
    assert "2 probabilities where there are 3 actions" in result.failures["bad"]
    assert result.differences["bad"].verdict == "failed"
    d = result.differences["new"]
    assert abs(d.estimate - (value(NEW) - value(OLD))) < 5 * d.se


def test_a_plant_that_fails_for_good_leaves_what_was_finished():
    """Nobody knows the vectors of a batch in which every reset has failed."""
    begun = []

    class Fails:
        def reset(self, *, seed: int) -> Any:
            begun.append(seed)
            if len(begun) > 30:
                raise RuntimeError("no power")
            return np.zeros(3), {}

        def step(self, action: Any) -> Any:
            return np.ones(3), float(action), True, False, {"cost": 0.0}

    both = {name: lambda obs, t, p=p: np.tile([p, 1 - p], (len(obs), 1)) for p, name in
            ((0.5, "today"), (0.4, "new"))}  # fmt: skip
    result = compare(Fails, both, stop=Stop(episodes=200, every=20), horizon=2)
    assert (result.episodes, result.lost) == (30, 90)
    assert "lost episodes one after the other" in result.stopped


def test_a_policy_that_raises_in_mid_episode_ends_nothing():
    """Also where control variates are learned, which asks it about every state."""

    def failing(obs: Any, t: int) -> np.ndarray:
        if t >= 2 and (obs == 1).any():
            raise RuntimeError("no reading")
        return np.asarray(OLD[t, obs])

    env = Plant(lambda: TabularEnv(MDP))
    result = compare(env, BOTH | {"bad": failing}, episodes=100, horizon=5)
    assert "RuntimeError: no reading" in result.failures["bad"]
    assert "doubly robust" in result.estimators
    assert result.differences["new"].n == 100


class Wandering:
    """A number between 0 and 1 that the second action moves up; the reward is the number."""

    action_space = None

    def reset(self, *, seed: int) -> Any:
        self.rng = np.random.default_rng(seed)
        self.x = self.rng.random(1)
        return self.x, {}

    def step(self, action: Any) -> Any:
        move = 0.1 * (2 * int(action) - 1) + 0.1 * self.rng.normal(size=1)
        self.x = np.clip(self.x + move, 0.0, 1.0)
        return self.x, float(self.x[0]), False, False, {}


@pytest.mark.heavy
def test_a_policy_that_raises_does_not_take_the_others_control_variates():
    """Observations are vectors: one learned world for all; the third raises where x is large."""

    def controller(high: float, *, fails: bool = False) -> Any:
        def probs(obs: Any, t: int) -> np.ndarray:
            x = np.asarray(obs, float)[:, 0]
            if fails and t and (x > 0.7).any():
                raise RuntimeError("no reading")
            return np.stack([1.0 - high * x, high * x], axis=1)

        return probs

    policies = {
        "today": controller(0.5),
        "new": controller(0.6),
        "bad": controller(0.7, fails=True),
    }
    result = compare(Wandering, policies, episodes=180, horizon=12)
    assert set(result.failures) == {"bad"}
    assert "RuntimeError: no reading" in result.failures["bad"]
    assert result.differences["bad"].verdict == "failed"
    assert result.estimators.get("doubly robust", 0.0) > 0.0
    assert np.isfinite(result.differences["new"].half_width)


def test_a_ramp_gives_new_policies_small_shares_first_and_is_unbiased():
    ramp = Ramp(shares=(0.1, 0.5, 1.0), episodes=100)
    result = compare(MDP, BOTH, ramp, episodes=600, inference=Inference(keep=True))
    shares = result.recorded.shares
    assert shares[0] == pytest.approx([0.95, 0.05])
    assert shares[150] == pytest.approx([0.75, 0.25])
    assert shares[-1].tolist() == [0.5, 0.5]
    d = result.differences["new"]
    assert abs(d.estimate - (value(NEW) - value(OLD))) < 5 * d.se
    given = compare(MDP, BOTH, {"today": 0.8, "new": 0.2}, episodes=50)
    assert given.shares == {"today": 0.8, "new": 0.2}


def expensive() -> tuple[Any, dict[str, np.ndarray]]:
    """The new policy costs three times as much."""
    cost = np.zeros((4, 3))
    cost[:, 0], cost[:, 1] = 3.0, 1.0
    mdp = scopeval.exact.TabularMDP(
        MDP.initial,
        MDP.transition,
        RNG.normal(size=(4, 3)),
        cost,
        5,
        reward_variance=np.ones((4, 3)),
    )
    cheap, costly = np.tile([0.1, 0.8, 0.1], (5, 4, 1)), np.tile([0.9, 0.05, 0.05], (5, 4, 1))
    return mdp, {"today": cheap, "new": costly}


def test_costs_against_the_baselines():
    mdp, policies = expensive()
    result = compare(mdp, policies, episodes=300)
    assert result.certificate is None
    assert result.cost_ratio.low > 1.2
    assert "times the baseline's" in result.summary()


def test_a_promise_that_the_policies_break_is_kept_by_a_design():
    """The new policy costs 1.4 times today's. 1,000 episodes; the cost by six standard errors."""
    n = 5
    mdp = Gridworld(n, seed=0).mdp()
    tables = [p.table(n) for p in target_policies(8, n, seed=0)]
    order = np.argsort([assess(mdp, p, p).cost for p in tables])
    policies = {"today": tables[order[0]], "new": tables[order[-1]]}
    own, other = (assess(mdp, p, p) for p in policies.values())
    assert other.cost > 1.2 * own.cost
    logs = gridworld_logs(mdp, 2000, seed=0)
    plant = Plant(lambda: TabularEnv(mdp), side_by_side=100)
    found = []
    for env, known in ((mdp, {}), (plant, {"logs": logs, "horizon": n})):
        result = compare(env, policies, episodes=1000, promise=Promise(at_most=1.0), **known)
        assert "a design for this question" in result.ran
        assert list(result.shares) == ["today", "new"]
        error = np.sqrt(own.variance / 1000)  # costs vary about as rewards do
        assert result.cost.per_episode < own.cost + 6 * error
        assert result.cost.per_episode < 0.95 * (own.cost + other.cost) / 2
        assert result.certificate.verdict != "refuted"
        d = result.differences["new"]
        assert abs(d.estimate - (other.value - own.value)) < 5 * d.se
        assert d.ab_episodes > d.n
        found.append(d.se)
    assert found[0] < found[1]  # by the values of the known MDP, and by those that logs show
    with pytest.raises(InputError, match="not answerable"):
        compare(mdp, policies, episodes=100, promise=Promise(at_most=0.1))


def test_a_refuted_promise_ends_it():
    """Without logs nobody knows what the new policy costs: the guard sees it."""
    mdp, policies = expensive()
    result = compare(
        lambda: TabularEnv(mdp), policies, stop=Stop(episodes=2000, every=100), horizon=5,
        promise=Promise(at_most=1.0),
    )  # fmt: skip
    assert "stopped by the guard" in result.stopped
    assert result.episodes < 2000
    assert result.certificate.verdict in ("refuted", "not enough evidence")
    several = {name: lambda obs, t: np.full((len(obs), 6), 1 / 6) for name in "ab"}
    with pytest.raises(InputError, match="reports no cost"):  # a promise needs costs
        compare("Taxi-v4", several, episodes=5, horizon=2, promise=Promise())


def test_returns_with_stated_bounds_give_exact_intervals():
    """Bets: their interval holds for every number of episodes; wider than the usual one."""
    low = float(MDP.reward.min()) * 5 - 1
    high = float(MDP.reward.max()) * 5 + 1
    exact = compare(MDP, BOTH, episodes=400, inference=Inference(return_bound=(low, high)))
    d = exact.differences["new"]
    assert d.method == "bets"
    assert d.contains(value(NEW) - value(OLD))
    assert exact.values["today"].contains(value(OLD))
    assert d.half_width > compare(MDP, BOTH, episodes=400).differences["new"].half_width


def test_everything_has_a_form_for_json_notebooks_and_trackers():
    seen: list[Any] = []

    class Tracker:
        def log(self, step: int, values: Any) -> None:
            seen.append((step, dict(values)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compare(MDP, BOTH, stop=Stop(episodes=200, every=50), progress=Tracker())
    assert [step for step, _ in seen] == [50, 100, 150, 200]
    assert "difference/new" in seen[-1][1]
    again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert again["differences"]["new"]["verdict"] == result.differences["new"].verdict
    assert "<table" in result._repr_html_()
    ax = result.plot()
    assert "today" in ax.get_xlabel()
    assert isinstance(result, Comparison)


def test_the_same_seed_gives_the_same_result():
    a, b = (compare(MDP, BOTH, episodes=100, seed=7).to_dict() for _ in range(2))
    assert a == b
    assert a != compare(MDP, BOTH, episodes=100, seed=8).to_dict()


def test_a_question_has_the_discount():
    asked = Question({"new": NEW, "today": OLD}, horizon=5, gamma=0.5, baseline=1)
    result = compare(lambda: TabularEnv(MDP), asked, episodes=100)
    assert result.baseline == "today"
    lower = compare(lambda: TabularEnv(MDP), BOTH, episodes=100, horizon=5)
    assert abs(result.values["new"].estimate) < abs(lower.values["new"].estimate)


def one_row(obs: Any, action: Any) -> Transitions:
    """A log of one step."""
    state, one = np.asarray(obs)[None], np.zeros(1)
    return Transitions(
        t=np.zeros(1, int), obs=state, action=np.array([action]), reward=one, cost=one,
        next_obs=state, terminated=np.ones(1, bool),
    )  # fmt: skip


def test_one_episode_decides_nothing():
    """It does not say that both policies decide alike."""
    d = compare(MDP, BOTH, episodes=1).differences["new"]
    assert not d.flat
    assert d.verdict == "undecided"
    assert d.half_width == np.inf


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policies": {"today": OLD}}, "expected at least two"),
        ({"policies": {str(k): OLD for k in range(100)}}, "expected at most 20"),
        ({"policies": {"today": OLD, 3: NEW}}, "expected words on one line as names"),
        ({"policies": {"today": OLD, "two\nlines": NEW}}, "expected words on one line as names"),
        ({"policies": {"today": OLD, "today ": NEW}}, "without blanks around them"),
        ({"policies": {"today": OLD, "new" * 40: NEW}}, "at most 100 characters"),
        ({"policies": {"today": OLD, "the design": NEW}}, "try another"),
        ({"inference": 0.05}, "inference: got float"),
        ({"policies": {"today": OLD, "new": np.ones((4, 2)) / 2}}, "4 states and 2 actions"),
        ({"policies": {"today": OLD[:, :3], "new": NEW[:, :3]}}, "3 states and 3 actions"),
        ({"policies": {"today": OLD[:3], "new": NEW}}, "covers 3 time steps"),
        (
            {"policies": {"today": OLD, "new": lambda obs, t: np.full((len(obs), 2), 0.5)}},
            "different numbers of actions",
        ),
        ({"logs": [1, 2]}, "logs: got list"),
        ({"logs": one_row(np.zeros(2), 1)}, "expected numbers of states"),
        ({"logs": one_row(7, 1)}, "got states up to 7"),
        ({"logs": one_row(0, 3)}, "actions up to 3"),
        ({"policies": [OLD, NEW]}, "expected a dict of names and policies"),
        ({"baseline": "yesterday"}, "baseline: got 'yesterday'"),
        ({"episodes": None}, "stop="),
        ({"episodes": 0}, "episodes"),
        ({"run": 3}, "run: got int"),
        ({"run": {"today": 1.0}}, "expected one for each of"),
        ({"run": {"today": 0.5, "new": 0.6}}, "sum to 1"),
        ({"promise": 1.0}, "promise: got 1.0"),
        ({"promise": Promise(of=OLD)}, "about the baseline's cost"),
        ({"horizon": 99}, "expected at most the MDP's 5"),
        ({"env": Plant(lambda: TabularEnv(MDP), workers=2), "horizon": 5}, "workers"),
        ({"env": lambda: TabularEnv(MDP)}, "horizon: needed"),
    ],
)
def test_wrong_arguments(change: dict[str, Any], said: str):
    known: dict[str, Any] = {"env": MDP, "policies": BOTH, "episodes": 20} | change
    env, policies = known.pop("env"), known.pop("policies")
    with pytest.raises(InputError) as error:
        compare(env, policies, known.pop("run", None), **known)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        (one_row(np.zeros(2), 1), "expected numbers of states"),
        (one_row(0, np.array([0.5])), "expected numbers of states and numbers of actions"),
        (one_row(0, 3), "actions up to 3, expected at most 2"),
        ([1, 2], "logs: got list"),
    ],
)
def test_logs_that_do_not_fit_are_refused_before_the_first_step(logs: Any, said: str):
    """Functions do not say which states there are: the first observation does."""
    stepped = []

    class Plant(TabularEnv):
        def step(self, action: Any) -> Any:
            stepped.append(action)
            return super().step(action)

    functions = {name: lambda obs, t, pi=pi: pi[t, obs] for name, pi in BOTH.items()}
    with pytest.raises(InputError, match="logs: got") as error:
        compare(lambda: Plant(MDP), functions, episodes=20, horizon=5, logs=logs)
    assert said in str(error.value)
    assert not stepped


class Impatient(TabularEnv):
    """The user presses Ctrl-C in the n-th step of all."""

    def __init__(self, left: list[int]) -> None:
        super().__init__(MDP)
        self.left = left

    def step(self, action: Any) -> Any:
        self.left[0] -= 1
        if not self.left[0]:
            raise KeyboardInterrupt
        return super().step(action)


def test_an_interrupt_keeps_what_the_running_batch_had_finished():
    """The 297th step: of two episodes side by side at the 8th of their 10 steps together."""
    left = [297]
    plant = Plant(lambda: Impatient(left), side_by_side=2)
    result = compare(plant, BOTH, episodes=200, horizon=5)
    assert result.stopped == "interrupted by the user"
    whole = compare(Plant(lambda: TabularEnv(MDP), side_by_side=2), BOTH, episodes=58, horizon=5)
    assert (result.episodes, result.lost) == (58, 2)
    assert (whole.episodes, whole.lost) == (58, 0)
    assert result.values["new"].estimate == whole.values["new"].estimate
    left = [7]
    with pytest.raises(KeyboardInterrupt):  # before there is anything to report
        compare(Plant(lambda: Impatient(left), side_by_side=2), BOTH, episodes=200, horizon=5)


def test_a_bound_makes_the_certificate_a_proof():
    mdp, policies = expensive()
    result = compare(
        mdp, policies, {"today": 0.9, "new": 0.1}, episodes=600,
        promise=Promise(at_most=1.8, bound=Bound(step=3.0)),
    )  # fmt: skip
    assert result.certificate.verdict == "safe"
    assert result.certificate.proved


def _difference(low: float, estimate: float, high: float) -> Difference:
    contrast = Contrast(estimate, low, high, 0.05, "asymptotic sequence", 100, 1.0)
    return difference_of(contrast, failed=False, ab_variance=100.0, shared=0.5, decided_after=None)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((-np.inf, -4.3, -0.8), "new is worse than today by 4.3, at least 0.8"),
        ((0.8, 4.3, np.inf), "new is better than today by 4.3, at least 0.8"),
        ((-np.inf, -5.2, 0.1), "undecided: the difference is -5.2, at most 0.1"),
        ((-1.0, 5.2, np.inf), "undecided: the difference is 5.2, at least -1.0"),
        ((-np.inf, 5.2, np.inf), "undecided: there are too few episodes for an interval"),
        ((1.0, 2.0, 3.0), "new is better than today by 2.0, between 1.0 and 3.0"),
    ],
)
def test_an_interval_with_an_open_end_says_what_it_knows(ends: Any, said: str):
    """Few events leave an end open: the verdict, the words and the drawing say the same."""
    from matplotlib.figure import Figure

    from scopeval.comparison.result import draw_differences

    d = _difference(*ends)
    assert said in d.sentence("new", "today")
    shown = replace(compare(MDP, BOTH, episodes=50), differences={"new": d})
    ax = draw_differences(shown, Figure().subplots())
    drawn = {line.get_marker() for line in ax.lines}
    assert ("<" in drawn) == (ends[0] == -np.inf and np.isfinite(ends[2]))
    assert (">" in drawn) == (ends[2] == np.inf and np.isfinite(ends[0]))


def test_what_ran_names_the_ramp():
    result = compare(MDP, BOTH, Ramp(shares=(0.1, 1.0), episodes=20), episodes=60)
    assert "by a ramp: new policies had 0.1, then 1 of these shares" in result.ran


@pytest.mark.parametrize("estimator", ["wis", "pdis", np.sum])
def test_an_estimator_of_ones_own_is_refused(estimator):
    """The estimators of a comparison are chosen by held-out episodes; another was ignored."""
    with pytest.raises(InputError, match="held-out episodes choose"):
        compare(MDP, BOTH, episodes=20, inference=Inference(estimator=estimator))


def test_a_policy_that_answers_differently_when_it_is_asked_again_is_refused():
    rng = np.random.default_rng(0)

    def drawing(obs: Any, t: int) -> Any:
        return rng.dirichlet(np.ones(3), len(obs))

    with pytest.raises(InputError, match=r"'new'\]: gave other probabilities .* asked again"):
        compare(MDP, {"today": OLD, "new": drawing}, episodes=20)


def test_a_policy_that_writes_into_its_observations_changes_no_other():
    """Asked first, it would have made all others decide in state 0."""

    def plain(obs: Any, t: int) -> Any:
        return NEW[t, obs]

    def writing(obs: Any, t: int) -> Any:
        probs = NEW[t, obs]
        obs[:] = 0
        return probs

    found = [
        compare(MDP, {"new": one, "today": OLD}, episodes=60, seed=1).differences["today"]
        for one in (plain, writing)
    ]
    assert found[0] == found[1]


def test_returns_outside_of_their_bound_are_said_and_the_bound_is_not_used():
    bound = Inference(return_bound=(0.0, 1e-9))
    result = compare(MDP, BOTH, episodes=60, inference=bound)
    assert "lies outside return_bound" in result.sentence
    assert result.differences["new"].method == "t"
