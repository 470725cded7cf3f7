"""What is promised online, measured over many runs in the paper's Gridworld (n = 10, same-tilt).

Behavior policies come from exact values. Every test states the chance that it fails by accident
when nothing is wrong (before its seeds were fixed); "5 standard errors" is 6e-7.
"""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from experiments.baselines.ros import ros_tabular
from scopeval import Promise, Stop, evaluate, exact, simulate
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.estimation.moments import interval
from scopeval.safety.certificate import certify

MDP = Gridworld(10, "same-tilt", seed=0).mdp()
TARGETS = target_policies(30, 10)
PI = TARGETS[0]
ALONE = exact.assess(MDP, PI, PI)
SCOPE = exact.design(MDP, PI, "scope")

#: Cost equal to reward: a policy that goes where rewards are large goes where it is dear.
UNSAFE_MDP = Gridworld(10, "reward", seed=0).mdp()
UNSAFE = exact.design(UNSAFE_MDP, PI, "odi")
UNSAFE_ALONE = exact.assess(UNSAFE_MDP, PI, PI)


def standard_error_of_variance(x):
    return np.sqrt(((x - x.mean()) ** 4).mean() - x.var() ** 2) / np.sqrt(len(x))


# -- variance and bias ---------------------------------------------------------------------------


def test_ros_has_a_fifth_of_the_variance_and_no_bias():
    """200 runs of 1,000 episodes for each of 10 targets; all 30 average 0.218 +- 0.004.

    The bounds 0.18 and 0.35 are 5 standard errors away or more; so is the bias.
    """
    ratios, bias = [], []
    for target in TARGETS[:10]:
        alone = exact.assess(MDP, target, target)
        found = ros_tabular(MDP, target, runs=200, episodes=1000, alpha=1000.0).estimates[:, -1]
        ratios.append(found.var(ddof=1) / (alone.variance / 1000))
        bias.append((found.mean() - alone.value) / (found.std(ddof=1) / np.sqrt(200)))
    assert 0.18 < np.mean(ratios) < 0.35
    assert abs(np.sum(bias)) < 5 * np.sqrt(len(bias))


@pytest.mark.parametrize("method", ["scope", "scope-dr", "odi", "dopt"])
def test_designs_have_the_variance_cost_and_mean_that_dynamic_programming_says(method):
    """200 runs of 1,000 episodes, 5 standard errors on each of three numbers."""
    behavior = exact.design(MDP, PI, method)
    b = behavior.control
    done = simulate.summaries(MDP, PI, behavior, control_variate=b, episodes=200_000, seed=11)
    wanted = exact.assess(MDP, PI, behavior, b)
    x = done.estimate
    assert abs(x.var() - wanted.variance) < 5 * standard_error_of_variance(x)
    assert abs(x.mean() - ALONE.value) < 5 * x.std() / np.sqrt(len(x))
    assert abs(done.cost.mean() - wanted.cost) < 5 * done.cost.std() / np.sqrt(len(x))
    # and across runs, as for ROS: the variance of a mean of 1,000, with 200 of them
    means = x.reshape(200, 1000).mean(axis=1)
    relative = means.var(ddof=1) / (ALONE.variance / 1000)
    assert relative == pytest.approx(wanted.variance / ALONE.variance, rel=5 * np.sqrt(2 / 199))


# -- intervals -----------------------------------------------------------------------------------


def test_intervals_cover():
    """3,000 runs of 1,000 episodes: 93 % and 97 % are 5 standard errors from 95 %."""
    done = simulate.summaries(MDP, PI, SCOPE, episodes=3_000_000, seed=13)
    found = [interval(x) for x in done.estimate.reshape(3000, 1000)]
    assert 0.93 <= np.mean([x.contains(ALONE.value) for x in found]) <= 0.97
    whole = evaluate(
        MDP, PI, SCOPE, episodes=1000, seed=13, promise=Promise(action="tell")
    )  # it is the same interval
    assert whole.interval.low == pytest.approx(found[0].low)
    assert whole.interval.high == pytest.approx(found[0].high)


def test_sequences_miss_in_few_runs_over_all_looks():
    """100 runs, 20 looks each. 5 of 600 other runs missed; at 1 %, 6 of 100 would be 5e-4."""
    missed = 0
    for seed in range(100):
        looks = []
        evaluate(
            MDP,
            PI,
            SCOPE,
            episodes=1000,
            seed=seed,
            progress=lambda now, looks=looks: looks.append(now.interval.contains(ALONE.value)),
            stop=Stop(precision=1e-9, every=50),
            promise=Promise(action="tell"),
        )
        assert len(looks) == 20
        missed += not all(looks)
    assert missed <= 0.05 * 100


def test_precision_stops_honestly():
    """100 runs that stop by themselves. 1 of 900 other runs missed; at 1 %, 6 of 100: 5e-4."""
    found = [evaluate(MDP, PI, SCOPE, seed=s, stop=Stop(precision=0.06)) for s in range(100)]
    assert len({r.finished for r in found}) > 2  # the data decided
    assert all(r.interval.half_width <= 0.06 for r in found)
    assert np.mean([not r.interval.contains(ALONE.value) for r in found]) <= 0.05


# -- safety --------------------------------------------------------------------------------------


def test_scope_is_not_refuted_beyond_alpha():
    """SCOPE spends its whole budget here: its cost is exactly the target's, the worst case.

    The guard may alarm in 5 % of the runs; in 500 other runs it never did. A certificate for
    1,000 episodes, fixed in advance, should be wrong in 2.5 % and was in
    153 of 4,000 other runs, 3.8 %: weighted costs are skewed, and a t interval does not know. That
    is below alpha all the same; more than 6 % of 1,500 at 3.8 % has probability 2e-5.
    """
    assert exact.assess(MDP, PI, SCOPE).cost == pytest.approx(ALONE.cost)
    found = [evaluate(MDP, PI, SCOPE, episodes=1000, seed=s) for s in range(100)]
    assert sum(r.guard.switched_after is not None for r in found) <= 0.05 * 100
    switched = [r for r in found if r.guard.switched_after]
    assert all(r.certificate.verdict == "refuted" for r in switched)
    done = simulate.summaries(MDP, PI, SCOPE, episodes=1_500_000, seed=17)
    pairs = zip(done.cost.reshape(1500, -1), done.weighted_cost.reshape(1500, -1), strict=True)
    assert sum(certify(*pair).verdict == "refuted" for pair in pairs) <= 0.06 * 1500


def test_certificate_refutes_the_planted_policy():
    """It costs 1.105 times the target, 13 standard errors of 1,000 episodes: mostly refuted.

    In 1 of 40 other runs the weights had too heavy a tail to be trusted; fewer than 85 of 100 has a
    probability of 1e-8 at that rate.
    """
    assert exact.assess(UNSAFE_MDP, PI, UNSAFE).cost > 1.1 * UNSAFE_ALONE.cost
    refuted = 0
    for seed in range(100):
        found = evaluate(
            UNSAFE_MDP, PI, UNSAFE, episodes=1000, seed=seed, promise=Promise(action="tell")
        )
        assert found.certificate.verdict in ("refuted", "not enough evidence")
        assert found.certificate.ratio.low > 1.0
        refuted += found.certificate.verdict == "refuted"
    assert refuted >= 85
    allowed = evaluate(
        UNSAFE_MDP, PI, UNSAFE, episodes=1000, promise=Promise(at_most=1.2, action="tell")
    )
    assert allowed.certificate.verdict == "safe"


def test_guard_stops_the_planted_policy_early_and_the_estimate_stays_unbiased():
    """100 runs of 1,000 episodes in all; the bias to 5 standard errors.

    In 300 other runs the switch came after 256 episodes at the latest (median 192), 2 intervals
    missed, and an episode cost 1.017 times the target's.
    """
    found = [evaluate(UNSAFE_MDP, PI, UNSAFE, episodes=1000, seed=s) for s in range(100)]
    switched = [r.guard.switched_after for r in found]
    assert None not in switched
    assert np.median(switched) <= 256
    assert max(switched) < 1000
    for r in found:
        assert r.certificate.verdict == "refuted"
        assert ("Caution: " in r.certificate.sentence) == bool(r.certificate.reasons)
        assert r.certificate.episodes == r.guard.switched_after
        assert r.by_target == 1000 - r.guard.switched_after
        assert r.interval.method == "asymptotic sequence"
    x = np.array([r.estimate for r in found])
    assert abs(x.mean() - UNSAFE_ALONE.value) < 5 * x.std(ddof=1) / np.sqrt(100)
    missed = np.mean([not r.interval.contains(UNSAFE_ALONE.value) for r in found])
    assert missed <= 0.05
    # without the guard it would have been 1.105
    paid = np.mean([r.cost.per_episode for r in found])
    assert paid < 1.03 * UNSAFE_ALONE.cost


def test_plain_mean_is_unbiased_across_a_switch_and_other_weights_are_not():
    """The martingale argument of `tally`, with power: 40,000 runs of 40 episodes.

    The switch comes when costs have been high; cost is reward, so it comes after high values. The
    plain mean of a fixed number has mean J all the same. The mean of the stages' means, and the
    plain mean of what the behavior policy alone had run by then, do not: both are off by more than
    10 standard errors, so that a mistake of this kind would be seen.
    """
    runs, N, batch = 40_000, 40, 5
    how = {"episodes": runs * N}
    mu = simulate.summaries(UNSAFE_MDP, PI, UNSAFE, seed=1, **how)
    pi = simulate.summaries(UNSAFE_MDP, PI, PI, seed=2, **how)
    cost, z_mu, z_pi = (x.reshape(runs, N) for x in (mu.cost, mu.estimate, pi.estimate))
    tripped = np.cumsum(cost, axis=1) / np.arange(1, N + 1) > 1.05 * cost.mean()
    looks = tripped[:, batch - 1 : N - batch : batch]
    first = np.where(looks.any(axis=1), (np.argmax(looks, axis=1) + 1) * batch, N)
    by_mu = np.arange(N) < first[:, None]
    assert 0.3 < (first < N).mean() < 0.95

    def off(estimates):
        return (estimates.mean() - UNSAFE_ALONE.value) / (estimates.std() / np.sqrt(len(estimates)))

    plain = np.where(by_mu, z_mu, z_pi).mean(axis=1)
    assert abs(off(plain)) < 5
    stage_mu = (z_mu * by_mu).sum(axis=1) / first
    switched = first < N
    stage_pi = (z_pi * ~by_mu).sum(axis=1) / np.maximum(N - first, 1)
    stages = np.where(switched, (stage_mu + stage_pi) / 2, stage_mu)
    assert abs(off(stages)) > 10
    assert abs(off(stage_mu)) > 10


# -- plants that break ---------------------------------------------------------------------------


class Flaky(gymnasium.Env):
    """A walk of three steps; every step breaks with a chance of 1 %, whatever is done."""

    observation_space = gymnasium.spaces.Discrete(3)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = 0
        return 0, {}

    def step(self, action):
        if self.np_random.random() < 0.01:
            raise ConnectionError("no answer")
        reward = float(action) * (1 + self.s) + float(self.np_random.random())
        self.s = (self.s + 1 + int(action)) % 3
        return self.s, reward, False, False, {"cost": 1.0 + action}


def test_a_plant_that_breaks_at_one_step_in_a_hundred():
    """10,000 episodes of 3 steps: 1 - 0.99^3 = 2.97 % are lost; 5 standard errors are 0.85 %."""
    p, mu = np.full((3, 2), [0.5, 0.5]), np.full((3, 2), [0.4, 0.6])
    found = evaluate(
        Flaky, p, mu, episodes=10_000, horizon=3, seed=5, promise=Promise(action="tell")
    )
    assert found.started == 10_000
    assert found.finished + found.diagnostics.lost == 10_000
    assert abs(found.diagnostics.lost / 10_000 - (1 - 0.99**3)) < 0.0085
    # breaking does not depend on what is done: the finished ones are unbiased
    transition = np.zeros((3, 2, 3))
    for s in range(3):
        for a in range(2):
            transition[s, a, (s + 1 + a) % 3] = 1.0
    reward = np.array([[0.5, 1.5 + s] for s in range(3)])
    mdp = exact.TabularMDP([1.0, 0, 0], transition, reward, [[1.0, 2.0]] * 3, 3)
    truth = exact.assess(mdp, p, p).value
    assert abs(found.estimate - truth) < 5 * found.interval.half_width / 1.96
    told = " ".join(found.summary().split())
    assert f"{found.diagnostics.lost:,} episodes of 10,000 could not be finished" in told
    assert "no answer" in told
    assert "the estimate is that of the finished episodes" in told
