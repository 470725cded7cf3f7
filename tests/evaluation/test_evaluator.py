"""The whole flow on small worlds: what the result says is what exact values and sums say.

Chances of failing by accident are stated where a test samples; seeds are fixed.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import scopeval
from scopeval import (
    EpisodeLog,
    Episodes,
    Evaluation,
    Inference,
    Limit,
    Plant,
    Promise,
    Question,
    Stop,
    TabularPolicy,
    collect,
    estimate,
    evaluate,
    exact,
)
from scopeval.behavior.policy import Action
from scopeval.collection.collector import NoEpisodeError
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust, pdis, pdis_cost, trajectory_weights
from scopeval.estimation.moments import interval
from scopeval.evaluation.loop import Running
from scopeval.exact import TabularMDP
from scopeval.safety.certificate import certify
from small_worlds import every_trajectory, random_mdp, random_rows

GRID = Gridworld(5, seed=1).mdp()
PI = target_policies(1, 5, seed=1)[0]
SCOPE = exact.design(GRID, PI, "scope")
#: An exact design leaves out actions where nothing is uncertain; with a share of the target none.
EXACT = exact.design(GRID, PI, "scope-dr")
DR = exact.Design(
    0.6 * EXACT.table(GRID.horizon) + 0.4 * PI.table(GRID.horizon),
    EXACT.method,
    EXACT.control,
    EXACT.status,
    EXACT.binding,
)
TRUTH = exact.assess(GRID, PI, PI)


# -- the same numbers as by hand -----------------------------------------------------------------


@pytest.mark.parametrize("behavior", [None, SCOPE, DR, PI])
@pytest.mark.parametrize("keep", [False, True])
def test_result_is_what_the_parts_say(behavior, keep):
    found = evaluate(
        GRID,
        PI,
        behavior,
        episodes=300,
        seed=3,
        promise=Promise(action="tell"),
        inference=Inference(keep=keep),
    )
    episodes = collect(GRID, PI, behavior, episodes=300, seed=3)
    values = pdis(episodes) if episodes.control is None else doubly_robust(episodes)
    wanted = interval(values)
    for end in ("estimate", "low", "high"):
        assert getattr(found.interval, end) == pytest.approx(getattr(wanted, end), rel=1e-9)
    assert found.estimate == found.interval.estimate
    assert (found.interval.method, found.finished, found.started) == ("t", 300, 300)
    assert found.cost.total == pytest.approx(episodes.costs().sum())
    assert found.cost.per_episode == pytest.approx(episodes.costs().mean())
    certificate = certify(episodes.costs(), pdis_cost(episodes))
    assert found.certificate.verdict == certificate.verdict
    assert found.certificate.ratio.low == pytest.approx(certificate.ratio.low, rel=1e-6)
    weights = trajectory_weights(episodes)
    assert found.diagnostics.mean_weight == pytest.approx(weights.mean())
    assert found.diagnostics.largest_weight == pytest.approx(weights.max())
    size = weights.sum() ** 2 / (weights**2).sum()
    assert found.diagnostics.effective_size == pytest.approx(size)
    assert found.estimator == {None: "mc"}.get(behavior, "dr" if behavior is DR else "pdis")
    assert (found.episodes is not None) == keep
    if keep:
        np.testing.assert_array_equal(found.episodes.reward, episodes.reward)


@pytest.mark.parametrize("name", ["is", "pdis", "dr"])
def test_estimators_of_the_simulator_are_those_of_the_episodes(name):
    quick = evaluate(
        GRID,
        PI,
        DR,
        episodes=200,
        promise=Promise(action="tell"),
        inference=Inference(estimator=name),
    )
    kept = evaluate(
        GRID,
        PI,
        DR,
        episodes=200,
        promise=Promise(action="tell"),
        inference=Inference(estimator=name, keep=True),
    )
    assert quick.interval.low == pytest.approx(kept.interval.low)
    assert quick.estimator == kept.estimator == name


@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_discounted_world(gamma):
    mdp = random_mdp(np.random.default_rng(0), horizon=4, gamma=gamma, noise=True)
    pi = TabularPolicy(random_rows(np.random.default_rng(1), mdp.states, mdp.actions))
    mu = exact.design(mdp, pi, "scope")
    quick = evaluate(mdp, pi, mu, episodes=5000, promise=Promise(action="tell"))
    kept = evaluate(
        mdp, pi, mu, episodes=5000, promise=Promise(action="tell"), inference=Inference(keep=True)
    )
    assert quick.estimate == pytest.approx(kept.estimate)
    assert quick.cost.total == pytest.approx(kept.episodes.costs().sum())  # not discounted
    assert quick.certificate.cost == pytest.approx(kept.episodes.costs(gamma).mean())
    alone = exact.assess(mdp, pi, pi)
    # 5 standard errors each: 1e-6
    spread = quick.interval.half_width / 1.96
    assert abs(quick.estimate - alone.value) < 5 * spread
    assert abs(quick.on_policy.variance - alone.variance) < 5 * quick.on_policy.variance_error
    with pytest.raises(InputError, match=r"gamma: got 0\.5"):
        evaluate(mdp, Question(pi, gamma=0.5), mu, episodes=10)


def test_on_policy_comparison_is_unbiased_by_every_trajectory():
    """E_mu[W (G - J)^2] is the variance of pi's return: summed over all trajectories."""
    rng = np.random.default_rng(5)
    mdp = random_mdp(rng, noise=True)
    pi, mu = (TabularPolicy(random_rows(rng, mdp.states, mdp.actions)) for _ in range(2))
    episodes, chance = every_trajectory(mdp, pi, mu)
    alone = exact.assess(mdp, pi, pi)
    centred = trajectory_weights(episodes) * (episodes.returns() - alone.value) ** 2
    assert chance @ centred == pytest.approx(alone.variance)
    assert chance @ pdis_cost(episodes) == pytest.approx(alone.cost)


def test_on_policy_comparison_in_a_large_sample():
    found = evaluate(GRID, PI, DR, episodes=50_000, promise=Promise(action="tell"))
    ours = exact.assess(GRID, PI, DR, DR.control)
    wanted = 50_000 * TRUTH.variance / ours.variance
    assert found.on_policy.episodes == pytest.approx(wanted, rel=0.05)
    assert found.on_policy.cost == pytest.approx(TRUTH.cost, rel=0.01)
    assert found.on_policy_cost == pytest.approx(wanted * TRUTH.cost, rel=0.06)
    assert "times as much" in found.sentence


def test_on_policy_comparison_is_unknown_where_it_should_be():
    few = evaluate(GRID, PI, SCOPE, episodes=5)
    assert few.on_policy_cost is None
    assert "unknown: too few episodes" in few.summary()
    certain = TabularMDP([1.0], [[[1.0], [1.0]]], [[1.0, 1.0]], [[1.0, 2.0]], 3)
    none = evaluate(certain, [[0.5, 0.5]], episodes=10)
    assert none.interval.half_width == 0
    assert none.on_policy_cost is None


def test_every_finite_policy_runs_in_the_simulator():
    table = PI.table(1)[0]
    found = {
        evaluate(GRID, target, behavior, episodes=100, seed=2).estimate
        for target in (PI, table, lambda obs, t: table[obs])
        for behavior in (SCOPE, lambda obs, t: SCOPE.probs(obs, t))
    }
    assert len({round(x, 12) for x in found}) == 1


def test_a_shorter_horizon_is_the_first_steps():
    found = evaluate(GRID, PI, episodes=20_000, horizon=2, seed=1)
    short = TabularMDP(GRID.initial, GRID.transition, GRID.reward, GRID.cost, 2)
    wanted = exact.assess(short, PI, PI).value
    assert abs(found.estimate - wanted) < 5 * found.interval.half_width / 1.96  # 1e-6
    with pytest.raises(InputError, match="horizon: got 9"):
        evaluate(GRID, PI, episodes=5, horizon=9)


def test_chunks_and_threads_do_not_matter():
    whole = evaluate(GRID, PI, SCOPE, episodes=1000, seed=7, promise=Promise(action="tell"))
    parts = evaluate(
        GRID, PI, SCOPE, episodes=1000, seed=7, stop=Stop(every=37), promise=Promise(action="tell")
    )
    assert whole.estimate == pytest.approx(parts.estimate, rel=1e-12)
    assert whole.interval.high == pytest.approx(parts.interval.high, rel=1e-12)
    assert whole.on_policy.variance == pytest.approx(parts.on_policy.variance, rel=1e-9)


# -- stopping ------------------------------------------------------------------------------------


def test_precision_stops_with_the_sequence():
    found = evaluate(GRID, PI, DR, episodes=100_000, stop=Stop(precision=0.05))
    assert found.interval.half_width <= 0.05
    assert found.interval.method == "asymptotic sequence"
    assert found.certificate.difference.method == "asymptotic sequence"
    assert found.started < 100_000
    assert "narrower" in found.stopped
    assert "anytime-valid" in found.summary()


def test_precision_out_of_reach_is_still_a_sequence():
    found = evaluate(GRID, PI, DR, episodes=200, stop=Stop(precision=1e-6))
    assert found.finished == 200
    assert found.interval.method == "asymptotic sequence"


@pytest.mark.parametrize("env", [GRID, TabularEnv(GRID), lambda: TabularEnv(GRID)])
def test_cost_budget_is_hardly_overspent(env):
    found = evaluate(env, PI, SCOPE, horizon=5, stop=Stop(cost=100.0))
    most = 8 if callable(env) else 1  # episodes that run at the same time
    assert 100.0 <= found.cost.total < 100.0 + most * GRID.cost.max() * 5
    assert "budget" in found.stopped
    assert found.interval.method == "asymptotic sequence"


def test_whichever_comes_first():
    assert evaluate(GRID, PI, SCOPE, episodes=100, stop=Stop(cost=1e9)).finished == 100
    assert "budget" in evaluate(GRID, PI, SCOPE, stop=Stop(precision=1e-9, cost=50.0)).stopped


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "episodes: needed unless"),
        ({"episodes": 0}, "episodes: got 0"),
        ({"episodes": 2.5}, "episodes: got 2.5"),
        ({"env": Plant(GRID, cost="none"), "stop": Stop(cost=5)}, "stop.cost: given with"),
        ({"stop": Stop(decided=True)}, "stop.decided: got True with one policy"),
        ({"episodes": 5, "promise": 0.7}, r"try Promise\(at_most=0.7\)"),
        ({"episodes": 5, "seed": -1}, "seed: got -1"),
        ({"episodes": 5, "inference": Inference(estimator="wpdis")}, "estimator: got 'wpdis'"),
        ({"episodes": 5, "inference": Inference(estimator="wis")}, "'wis'.* collect first"),
        ({"episodes": 5, "inference": Inference(estimator=len)}, "estimator: got an array of"),
        ({"episodes": 5, "inference": Inference(estimator="dr")}, "estimator: 'dr' needs"),
        ({"episodes": 5, "inference": Inference(estimator="mc")}, "estimator: 'mc'"),
        ({"episodes": 5, "env": Plant(GRID, side_by_side=3)}, "TabularMDP is run by"),
        ({"episodes": 5, "promise": [Limit(episode=1.0)]}, "try env=TabularEnv"),
    ],
)
def test_what_cannot_be_done_is_said(wrong, message):
    with pytest.raises(InputError, match=message):
        evaluate(policy=PI, run=SCOPE, **{"env": GRID, **wrong})


def test_progress_tells_how_it_stands():
    seen: list[Running] = []
    found = evaluate(GRID, PI, SCOPE, episodes=500, progress=seen.append)
    assert [r.done for r in seen] == sorted(r.done for r in seen)
    assert seen[-1].done == seen[-1].total == 500
    assert seen[-1].interval.estimate == pytest.approx(found.estimate)
    assert seen[-1].cost == pytest.approx(found.cost.total)


def test_interrupt_gives_what_was_finished():
    def stop(now: Running) -> None:
        if now.done >= 128:
            raise KeyboardInterrupt

    found = evaluate(GRID, PI, SCOPE, episodes=10_000, progress=stop)
    assert 128 <= found.finished < 10_000
    assert found.stopped == "interrupted by the user"
    assert found.interval.method == "asymptotic sequence"

    def at_once(*_: object) -> np.ndarray:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(TabularEnv(GRID), at_once, episodes=10, horizon=5)


# -- environments --------------------------------------------------------------------------------


def test_environments_give_the_same_kind_of_result():
    found = evaluate(lambda: TabularEnv(GRID), PI, DR, episodes=400, horizon=5, seed=4)
    assert abs(found.estimate - TRUTH.value) < 5 * found.interval.half_width / 1.96  # 1e-6
    assert (found.estimator, found.interval.method) == ("dr", "t")
    assert found.guard.switched_after is None
    assert found.episodes is None
    kept = evaluate(
        lambda: TabularEnv(GRID),
        PI,
        DR,
        episodes=400,
        horizon=5,
        seed=4,
        inference=Inference(keep=True),
    )
    assert kept.estimate == found.estimate
    assert estimate(kept.episodes).estimate == pytest.approx(found.estimate)


def test_limit_within_an_episode_gives_it_to_the_target():
    limit = float(np.quantile(GRID.cost, 0.9))
    found = evaluate(
        lambda: TabularEnv(GRID),
        PI,
        SCOPE,
        episodes=60,
        horizon=5,
        promise=Limit(episode=limit),
        inference=Inference(keep=True),
    )
    assert found.diagnostics.guarded > 0
    assert found.guard.switched_after is not None
    assert "above the limit" in found.guard.state.reason
    assert found.by_target == 60 - found.guard.switched_after
    later = found.episodes.by_target
    assert (found.episodes.ratios[later] == 1).all()
    assert found.certificate.episodes == 60 - found.by_target
    assert found.certificate.verdict != "refuted"


def test_no_costs():
    found = evaluate(
        Plant(lambda: TabularEnv(GRID), cost="none"), PI, SCOPE, episodes=50, horizon=5
    )
    assert found.certificate is None
    assert found.guard is None
    assert "cost" not in found.sentence
    quick = evaluate(Plant(GRID, cost="none"), PI, SCOPE, episodes=50)
    assert (quick.certificate, quick.cost.total) == (None, 0.0)
    assert quick.estimate == evaluate(GRID, PI, SCOPE, episodes=50).estimate


class Crashing(gymnasium.Env):
    """Two actions, reward and cost 1 and 0; breaks with a given chance at every step."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, chance: float, after: int = 0) -> None:
        self.chance, self.after, self.begun = chance, after, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun += 1
        return 0, {}

    def step(self, action):
        if self.begun > self.after and self.np_random.random() < self.chance:
            raise RuntimeError("the pump stopped")
        return 0, float(action), False, False, {"cost": 1.0}


def test_lost_episodes_are_counted_and_paid_for():
    found = evaluate(
        Crashing(0.1), [[0.5, 0.5]], episodes=200, horizon=3, inference=Inference(keep=True)
    )
    assert found.started == 200
    assert found.finished == 200 - found.diagnostics.lost
    assert 20 < found.diagnostics.lost < 90
    assert found.interval.method == "t"  # the number started was fixed
    paid = sum(x.cost for x in found.episodes.lost)
    assert found.cost.total == pytest.approx(3.0 * found.finished + paid)
    assert "the pump stopped" in found.diagnostics.first_loss
    assert "the estimate is that of the finished episodes" in " ".join(found.summary().split())
    assert f"({found.diagnostics.lost:,} more were lost)" in found.sentence


def test_an_environment_that_dies_ends_the_evaluation():
    found = evaluate(Crashing(1.0, after=100), [[0.5, 0.5]], horizon=3, stop=Stop(precision=1e-6))
    assert found.finished == 100
    assert "lost episodes one after the other" in found.stopped
    assert found.interval.method == "asymptotic sequence"
    with pytest.raises(NoEpisodeError, match="the pump stopped"):
        evaluate(Crashing(1.0), [[0.5, 0.5]], episodes=10, horizon=3)


# -- coverage ------------------------------------------------------------------------------------


def holed() -> tuple[TabularMDP, TabularPolicy, exact.Design]:
    """Action 1 earns nothing and costs a lot: an exact design never takes it."""
    mdp = TabularMDP([1.0], [[[1.0], [1.0]]], [[1.0, 0.0]], [[0.1, 1.0]], 1)
    pi = TabularPolicy([[0.5, 0.5]])
    return mdp, pi, exact.design(mdp, pi, "scope")


@pytest.mark.parametrize("keep", [False, True])
def test_a_behavior_that_leaves_actions_out_cannot_be_refuted(keep):
    mdp, pi, mu = holed()
    assert mu.table(1)[0, 0, 1] == 0
    found = evaluate(mdp, pi, mu, episodes=400, inference=Inference(keep=keep))
    assert found.estimate == pytest.approx(0.5)  # nothing is lost for the value
    # it costs 0.1 against the target's 0.55; the weighted cost is 0.05
    assert found.certificate.target_cost == pytest.approx(0.05)
    assert found.certificate.verdict == "not covered"
    assert "Not covered" in found.certificate.sentence
    assert found.guard.switched_after is None
    assert found.on_policy.unknown is not None
    assert any("never takes some actions" in text for text in found.diagnostics.warnings)
    assert not any("biased" in text for text in found.diagnostics.warnings)


def test_without_the_coverage_check_it_would_be_refuted():
    mdp, pi, mu = holed()
    episodes = collect(mdp, pi, mu, episodes=400)
    unchecked = certify(episodes.costs(), pdis_cost(episodes))
    assert unchecked.difference.low > 0
    assert unchecked.verdict == "not enough evidence"  # all costs are equal
    assert certify(episodes.costs(), pdis_cost(episodes), covered=False).verdict == "not covered"


def test_the_standard_error_of_the_estimate():
    """The spread of the episodes' values by the root of their number; with none it is unknown."""
    found = evaluate(
        GRID,
        PI,
        SCOPE,
        episodes=300,
        promise=Promise(action="tell"),
        inference=Inference(keep=True),
    )
    values = pdis(found.episodes)
    expected = values.std(ddof=1) / np.sqrt(300)
    assert found.standard_error == pytest.approx(expected, rel=1e-9)
    assert math.isnan(evaluate(GRID, PI, SCOPE, episodes=1).standard_error)


def test_a_biased_behavior_is_told():
    mdp, pi, _ = holed()
    found = evaluate(mdp, pi, [[0.0, 1.0]], episodes=50)
    assert any("biased by -0.5" in text for text in found.diagnostics.warnings)
    through = evaluate(TabularEnv(mdp), pi, [[0.0, 1.0]], episodes=50, horizon=1)
    assert any("table is 0 at 1 places" in text for text in through.diagnostics.warnings)


def test_an_unknown_hole_shows_in_the_weights():
    """Functions have no table to look at: the mean weight tells. 4 standard errors: 3e-5."""
    pi, mu = np.array([0.4, 0.3, 0.3]), np.array([0.5, 0.5, 0.0])
    mdp = TabularMDP([1.0], np.ones((1, 3, 1)), [[1.0, 2.0, 3.0]], [[1.0, 1.0, 1.0]], 1)
    found = evaluate(
        TabularEnv(mdp), lambda o, t: pi[None], lambda o, t: mu[None], episodes=400, horizon=1
    )
    assert any("where 1 is expected" in text for text in found.diagnostics.warnings)


def test_zero_where_it_is_never_reached_is_no_hole():
    transition = np.zeros((2, 2, 2))
    transition[:, :, 0] = 1.0  # state 1 is never reached
    mdp = TabularMDP([1.0, 0.0], transition, np.ones((2, 2)), np.ones((2, 2)), 2)
    found = evaluate(mdp, np.full((2, 2), 0.5), [[0.3, 0.7], [0.0, 1.0]], episodes=50)
    assert all("had the same return" in text for text in found.diagnostics.warnings)
    assert found.certificate.verdict == "not refuted"


# -- episodes of one's own -----------------------------------------------------------------------


class Reactor:
    """A plant that knows nothing of Gymnasium."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self.mdp, self.rng = mdp, rng
        self.p = mdp.transition.toarray().reshape(mdp.states, mdp.actions, mdp.states)

    def start(self) -> int:
        self.s = int(self.rng.choice(self.mdp.states, p=self.mdp.initial))
        return self.s

    def apply(self, a: int) -> tuple[int, float, float]:
        r, c = self.mdp.reward[self.s, a], self.mdp.cost[self.s, a]
        self.s = int(self.rng.choice(self.mdp.states, p=self.p[self.s, a]))
        return self.s, float(r), float(c)


class Designed:
    """`act` as `BehaviorPolicy` has it, for an exact design."""

    def __init__(self, design: exact.Design) -> None:
        self.design = design

    def act(self, obs: int, t: int, rng: np.random.Generator) -> Action:
        mu, pi = self.design.probs(np.array([obs]), t)[0], PI.probs(np.array([obs]), t)[0]
        a = int(rng.choice(len(mu), p=mu))
        b = self.design.control[t, obs]
        return Action(a, float(mu[a]), float(pi[a]), float(b[a]), float(pi @ b))


def test_a_control_loop_of_ones_own():
    rng = np.random.default_rng(0)
    plant, behavior, log = Reactor(GRID, rng), Designed(DR), EpisodeLog(horizon=5)
    for _ in range(300):
        log.start()
        obs = plant.start()
        for t in range(5):
            chosen = behavior.act(obs, t, rng)
            following, reward, cost = plant.apply(chosen.action)
            log.step(obs, chosen, reward, cost)
            obs = following
        log.end(obs)
    assert len(log) == 300
    found = estimate(log.episodes())
    assert isinstance(found, Evaluation)
    assert found.estimator == "dr"
    assert abs(found.estimate - TRUTH.value) < 5 * found.interval.half_width / 1.96  # 1e-6
    assert found.certificate.episodes == 300
    assert estimate(log.episodes(), anytime=True).interval.method == "asymptotic sequence"
    columns = log.episodes().transitions()
    assert len(columns["t"]) == 1500


def test_log_of_episodes_that_end_early_or_break():
    log = EpisodeLog(horizon=3)
    chosen = Action(1, 0.5, 0.25)
    with pytest.raises(InputError, match="expected start"):
        log.step(0, chosen, 1.0, 1.0)
    log.start()
    with pytest.raises(InputError, match="no steps"):
        log.end()
    log.step(np.array([0.5, 1.0]), chosen, 1.0, 2.0)
    log.end(np.array([0.7, 1.0]), terminated=True)
    log.start()
    log.step(np.array([0.1, 1.0]), chosen, 1.0, 3.0)
    log.start()  # the one before is lost
    for _ in range(3):
        log.step(np.array([0.1, 1.0]), chosen, 1.0, 2.0)
    with pytest.raises(InputError, match="3 steps already"):
        log.step(np.array([0.1, 1.0]), chosen, 1.0, 2.0)
    log.end()
    log.start()
    with pytest.raises(InputError, match="reward: got nan at t=0"):
        log.step(np.array([0.1, 1.0]), chosen, math.nan, 2.0)
    log.lose("the operator stepped in")
    found = log.episodes()
    assert found.length.tolist() == [1, 3]
    assert found.terminated.tolist() == [True, False]
    assert found.index.tolist() == [0, 2]
    assert found.obs.shape == (2, 3, 2)
    assert [(x.index, x.step, x.cost) for x in found.lost] == [(1, 1, 3.0), (3, 0, 0.0)]
    assert found.control is None
    result = estimate(found)
    assert (result.finished, result.started, result.diagnostics.lost) == (2, 4, 2)
    assert result.estimate == pytest.approx((0.5 + 0.5 + 0.25 + 0.125) / 2)
    assert len(EpisodeLog(3).episodes()) == 0
    with pytest.raises(InputError, match="none that was finished"):
        estimate(EpisodeLog(3).episodes())


def test_another_target_from_the_same_episodes():
    episodes = collect(GRID, PI, DR, episodes=300, seed=1)
    other = TabularPolicy(random_rows(np.random.default_rng(3), GRID.states, GRID.actions))
    found = estimate(episodes, other)
    states, actions = episodes.obs, episodes.action
    ratios = other.table(1)[0][states, actions] / episodes.behavior_prob
    wanted = (np.cumprod(ratios, axis=1) * episodes.reward).sum(axis=1)
    assert found.estimate == pytest.approx(wanted.mean())
    assert found.estimator == "pdis"
    q = exact.values(GRID, other).q
    assert estimate(episodes, other, q=q).estimator == "dr"
    assert estimate(episodes, PI).estimate == pytest.approx(doubly_robust(episodes).mean())
    with pytest.raises(InputError, match="policy: needed with q"):
        estimate(episodes, q=q)


def test_episodes_of_the_target_itself_are_on_policy():
    episodes = collect(GRID, PI, PI, episodes=50)
    found = estimate(episodes)
    assert found.by_target == 50
    assert found.estimator == "mc"
    assert estimate(Episodes.concat([episodes])).estimate == found.estimate


# -- words and files -----------------------------------------------------------------------------


@pytest.mark.parametrize("behavior", [None, SCOPE, DR])
@pytest.mark.parametrize("episodes", [1, 3, 400])
def test_summary_begins_with_the_answer_and_fits(behavior, episodes):
    found = evaluate(GRID, PI, behavior, episodes=episodes)
    text = str(found)
    assert text.startswith("The policy's value is ")
    assert text.replace("\n", " ").startswith(found.sentence)
    assert max(map(len, text.splitlines())) <= 80
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["estimate"] == found.estimate
    assert content["sentence"] == found.sentence
    assert content["certificate"]["verdict"] == found.certificate.verdict
    assert set(content) >= {"interval", "cost", "diagnostics", "guard", "on_policy", "stopped"}
    with pytest.raises(AttributeError):
        found.estimate = 3.0


def test_the_answer_has_the_digits_that_the_interval_justifies():
    found = evaluate(GRID, PI, SCOPE, episodes=400)
    low, high = found.interval.low, found.interval.high
    assert f"with 95% confidence between {low:.3f} and {high:.3f}" in found.sentence


# -- the front door ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "imports",
    [
        "import scopeval",
        "import scopeval.behavior.designer, scopeval.evaluation.evaluator",
        "from scopeval.behavior.designer import design; import scopeval.evaluation, scopeval",
        "import scopeval.cli.design, scopeval.cli.evaluate; import scopeval",
    ],
)
def test_the_verbs_are_functions_whatever_was_imported_before(imports):
    code = (
        f"{imports}\nimport types\n"
        "for name in ('design', 'collect', 'evaluate'):\n"
        "    verb = getattr(scopeval, name)\n"
        "    assert isinstance(verb, types.FunctionType), verb\n"
        "from scopeval import design, collect, evaluate\n"
        "from scopeval.behavior.designer import design as same\n"
        "assert design is same is scopeval.design\n"
        "import scopeval.exact; assert isinstance(scopeval.exact, types.ModuleType)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_front_door_can_be_patched(monkeypatch):
    monkeypatch.setattr(scopeval, "evaluate", "something else")
    assert scopeval.evaluate == "something else"
    monkeypatch.undo()
    assert scopeval.evaluate is evaluate
