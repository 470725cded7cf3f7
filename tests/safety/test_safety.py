"""Certificate and guard against planted truths.

Simulations are seeded. `ERROR` is the probability with which correct code would have failed on a
fresh seed, per comparison. Each statistical test was seen to fail with the fault it names.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from scopeval import Guard, Promise
from scopeval.errors import InputError
from scopeval.safety.certificate import certify
from scopeval.safety.costs import EpisodeCosts

ERROR = 1e-6
ALPHA = 0.05


def most(runs: int, rate: float) -> int:
    return int(stats.binom.ppf(1 - ERROR, runs, rate))


def least(runs: int, rate: float) -> int:
    return int(stats.binom.ppf(ERROR, runs, rate))


def episodes(
    g: np.random.Generator, shape: int | tuple[int, ...], *, ratio: float = 1.0, tail: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Costs of mean 4 and weighted costs of mean 4 / ratio: J^c(mu) = ratio J^c(pi).

    The weights are log-normal: `tail` = 1 gives D a skewness of about -6.
    """
    cost = g.gamma(4.0, size=shape)
    return cost, cost * g.lognormal(-(tail**2) / 2, tail, shape) / ratio


# --- certificate ---------------------------------------------------------------------------------


def test_coverage_of_difference_and_ratio() -> None:
    """Both intervals miss ALPHA of the time, +- 0.01 for the central limit theorem at n = 300.

    Seen to fail with the covariance left out of Fieller's set, with 1 - epsilon for 1 + epsilon and
    with the 1 - alpha quantile.
    """
    runs, n, ratio, epsilon = 3000, 300, 0.8, 0.1
    cost, weighted = episodes(np.random.default_rng(1), (runs, n), ratio=ratio, tail=0.3)
    truth = 4 - (1 + epsilon) * 4 / ratio
    found = [certify(c, w, epsilon=epsilon) for c, w in zip(cost, weighted, strict=True)]
    for misses in (
        sum(not f.difference.contains(truth) for f in found),
        sum(not f.ratio.contains(ratio) for f in found),
    ):
        assert least(runs, ALPHA - 0.01) <= misses <= most(runs, ALPHA + 0.01)


def test_wrong_verdicts_at_the_edge_of_the_promise() -> None:
    """With E[D] = 0 either end of the interval misses alpha / 2 of the time (+- 0.004).

    Verdicts are firm less often than that. Seen to fail with twice the alpha.
    """
    runs = 4000
    cost, weighted = episodes(np.random.default_rng(2), (runs, 500), tail=0.2)
    found = [certify(c, w) for c, w in zip(cost, weighted, strict=True)]
    ends = sum(f.difference.high < 0 for f in found), sum(f.difference.low > 0 for f in found)
    for missed, firm in zip(ends, ("safe", "refuted"), strict=True):
        assert least(runs, ALPHA / 2 - 0.004) <= missed <= most(runs, ALPHA / 2 + 0.004)
        assert sum(f.verdict == firm for f in found) <= missed


@pytest.mark.parametrize(
    ("ratio", "epsilon", "verdict"),
    [
        (0.8, 0.0, "safe"),
        (1.2, 0.0, "refuted"),
        (1.2, 0.5, "safe"),
        (0.8, -0.5, "refuted"),
        (1.0, 0.0, "not refuted"),
    ],
)
def test_verdicts(ratio: float, epsilon: float, verdict: str) -> None:
    cost, weighted = episodes(np.random.default_rng(3), 2000, ratio=ratio, tail=0.3)
    found = certify(cost, weighted, epsilon=epsilon)
    assert found.verdict == verdict
    assert found.sentence.lower().startswith(verdict)
    assert found.cost == pytest.approx(cost.mean())
    assert found.target_cost == pytest.approx(weighted.mean())
    assert f"{found.ratio.estimate:.4g}" in found.sentence
    assert "2,000 episodes" in found.sentence
    assert (f"{1 + epsilon:.4g} times" in found.sentence) == (epsilon != 0)


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 60),
    tail=st.sampled_from([0.1, 0.5, 2.0]),
    epsilon=st.floats(-0.9, 3.0),
)
@settings(max_examples=200, deadline=None)
def test_ratio_and_difference_agree(seed: int, n: int, tail: float, epsilon: float) -> None:
    """1 + epsilon is in a bounded Fieller set exactly when 0 is in the difference's interval."""
    g = np.random.default_rng(seed)
    cost = g.gamma(0.5, size=n) - (1.0 if seed % 3 == 0 else 0.0)
    weighted = cost * g.lognormal(0, tail, n)
    found = certify(cost, weighted, epsilon=epsilon)
    agree = found.ratio.contains(1 + epsilon) == found.difference.contains(0.0)
    if math.isfinite(found.ratio.high):
        assert agree
        assert found.ratio.contains(found.ratio.estimate)
    else:  # what was left of an unbounded set holds all of it
        assert found.ratio.contains(1 + epsilon) or not found.difference.contains(0.0)


def test_target_cost_not_separated_from_zero() -> None:
    weighted = np.zeros(50)
    weighted[7] = 3.0
    sure = certify(np.full(50, 2.0) + np.linspace(0, 1, 50), weighted)
    assert sure.verdict == "refuted"
    assert sure.ratio.high == math.inf
    assert sure.ratio.low > 1
    assert "ratio of at least" in sure.sentence
    rare = np.roll(weighted, 1)
    unsure = certify(rare, weighted)
    assert (unsure.ratio.low, unsure.ratio.high) == (0.0, math.inf)
    assert unsure.verdict == "not refuted"
    assert "too few episodes" in unsure.sentence
    signed = certify(rare - 0.05, weighted)
    assert (signed.ratio.low, signed.ratio.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-9])
def test_behavior_that_is_the_target(noise: float) -> None:
    """All weights 1, up to rounding of either sign: safe, ratio 1."""
    cost = np.random.default_rng(4).gamma(2.0, size=100)
    for sign in (-1, 1):
        for epsilon in (0.0, 0.2):
            found = certify(cost, cost * (1 + sign * noise), epsilon=epsilon)
            assert found.verdict == "safe"
            assert found.ratio.estimate == pytest.approx(1, abs=1e-8)
            assert found.ratio.half_width < 1e-8
    constant = certify(np.full(5, 2.0), np.full(5, 2.0))
    assert constant.difference.half_width == 0
    assert constant.verdict == "safe"
    assert certify(cost, cost, epsilon=-0.1).verdict == "refuted"


def test_no_cost_at_all() -> None:
    found = certify(np.zeros(100), np.zeros(100))
    assert found.verdict == "not enough evidence"
    assert found.reasons[0] == "only 0 of 100 episodes had any cost"
    assert (found.difference.low, found.difference.high) == (0, 0)
    assert math.isnan(found.ratio.estimate)
    assert (found.ratio.low, found.ratio.high) == (0, math.inf)
    assert "None of 100 episodes had any cost" in found.sentence
    assert "fewer than 3% of episodes" in found.sentence


def test_one_episode_decides_nothing() -> None:
    found = certify([5.0], [1.0])
    assert found.verdict == "not refuted"
    assert found.difference.half_width == math.inf
    assert found.ratio.high == math.inf
    assert "1 episode cannot tell" in found.sentence


def test_not_refuted_says_how_many_would_settle_it() -> None:
    cost, weighted = episodes(np.random.default_rng(5), 100, ratio=0.95)
    found = certify(cost, weighted)
    assert found.verdict == "not refuted"
    assert "takes about" in found.sentence


# --- guard ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [0.5, 1.0])
def test_false_alarms_over_all_time(tail: float) -> None:
    """E[D] = 0, looked at every 20 of 2,000 episodes: at most ALPHA of 1,000 guards ever trip.

    Seen to fail with fixed-n quantiles and (tail 1) with skew_factor = 0.
    """
    runs, n = 1000, 2000
    cost, weighted = episodes(np.random.default_rng(6), (runs, n), tail=tail)
    tripped = 0
    for c, w in zip(cost, weighted, strict=True):
        guard = Guard(alpha=ALPHA)
        tripped += any(guard.update(c[i : i + 20], w[i : i + 20]).tripped for i in range(0, n, 20))
    assert tripped <= most(runs, ALPHA)


def test_skewed_costs_give_few_false_alarms() -> None:
    """The target's rare large costs are still to come in 200 runs; the promise holds.

    16 of these runs alarmed when the worst was thought to be seen, and none does now. More than 4
    have a probability of 4e-3 if 1 run in 200 does.
    """
    n, alarms = 1500, 0
    for k in range(200):
        g = np.random.default_rng([31, k])
        risky = g.random(n) < 0.46  # of two actions; the target takes the risky one in half
        c = np.where(risky, np.minimum(np.exp(3.0 * g.standard_normal(n)), 19_000.0), 30.0)
        w = np.where(risky, 0.5 / 0.46, 0.5 / 0.54) * c
        guard = Guard()
        alarms += any(guard.update(c[i : i + 50], w[i : i + 50]).tripped for i in range(0, n, 50))
    assert alarms <= 4


def test_an_alarm_survives_one_more_episode_of_the_worst_kind() -> None:
    """The lower bound stays above 0 after it, with a control variate too."""
    g = np.random.default_rng(33)
    cost, weighted = episodes(g, 400, ratio=1.3)
    guard = Guard()
    for i in range(0, 400, 10):
        if guard.update(cost[i : i + 10], weighted[i : i + 10]).tripped:
            break
    seen = guard.state.episodes
    assert 50 < seen < 400
    alone = Guard()
    alone.update(cost[:seen], weighted[:seen])
    again = alone.update([0.0], [weighted[:seen].max()])
    assert again.interval.low > 0
    # estimates by a control variate hardly differ, but one more episode may have the plain cost
    own, target = 5.0 + 0.1 * g.random(400), 4.9 + 0.1 * g.random(400)
    near = EpisodeCosts(cost, weighted, own_controlled=own, target_controlled=target)
    assert not Guard().add(near).tripped
    far = EpisodeCosts(cost, weighted, own_controlled=own + 1.0, target_controlled=target)
    assert Guard().add(far).tripped


def test_unsafe_behavior_is_caught_early() -> None:
    """Twice the promised cost: E[D] = 2 with deviation 2: 50 guards of 50 trip in 300 episodes.

    Seen to fail with the sign of D turned.
    """
    g = np.random.default_rng(8)
    for _ in range(50):
        guard = Guard()
        cost, weighted = episodes(g, 300, ratio=2.0)
        for i in range(0, 300, 10):
            state = guard.update(cost[i : i + 10], weighted[i : i + 10])
            if state.tripped:
                break
        assert state.tripped
        assert state.interval.low > 0
        assert state.reason is not None
        assert "refuted" in state.reason
        assert state.interval.low <= 2.0


def test_guard_allows_what_epsilon_allows() -> None:
    cost, weighted = episodes(np.random.default_rng(9), 3000, ratio=1.3, tail=0.3)
    assert Guard().update(cost, weighted).tripped
    assert not Guard(Promise(1.4)).update(cost, weighted).tripped


def test_behavior_that_is_the_target_never_trips() -> None:
    cost = np.random.default_rng(10).gamma(2.0, size=5000)
    for noise in (0.0, 1e-16, -1e-9, 1e-9):
        assert not Guard().update(cost, cost * (1 - noise)).tripped
    same = np.full(5000, 3.0)
    assert not Guard().update(same, same * (1 - 1e-12)).tripped
    assert not Guard().update(np.zeros(5000), np.zeros(5000)).tripped
    assert Guard().update(same, 0.9 * same).tripped  # and a certain excess does


def test_what_is_not_covered_is_not_refuted_by_the_guard() -> None:
    """Seen to fail with coverage ignored."""
    cost, weighted = episodes(np.random.default_rng(11), 1000, ratio=2.0)
    assert Guard().update(cost, weighted).tripped
    assert not Guard().update(cost, weighted, covered=False).tripped


def test_total_cost_limit() -> None:
    guard = Guard(total_cost_limit=10.0)
    assert not guard.update([5.0, 5.0], [5.0, 5.0]).tripped
    assert not guard.step_limit_exceeded(0.0)
    assert guard.step_limit_exceeded(0.1)
    state = guard.update([0.5], [0.5])
    assert state.tripped
    assert state.reason == "3 episodes cost 10.5 in total, above the limit of 10"
    assert (state.episodes, state.total_cost) == (3, 10.5)


def test_episode_cost_limit() -> None:
    guard = Guard(episode_cost_limit=2.0)
    assert not guard.step_limit_exceeded(2.0)
    assert guard.step_limit_exceeded(2.1)
    assert guard.step_limit_exceeded(math.nan)
    assert not Guard().step_limit_exceeded(1e9)
    assert not guard.state.tripped  # asking changes nothing
    assert not guard.update([2.0, 1.0], [1.0, 1.0]).tripped
    first = guard.update([3.0, 1.0], [1.0, 1.0])
    assert first.tripped
    assert first.reason == "an episode cost 3, above the limit of 2"
    later = guard.update(np.zeros(1000), np.ones(1000))  # stays tripped, keeps counting
    assert later.tripped
    assert later.reason == first.reason
    assert (later.episodes, later.total_cost) == (1004, 7.0)


def test_empty_batches_and_no_news() -> None:
    guard = Guard(total_cost_limit=0.0, episode_cost_limit=0.0)
    state = guard.update([], [])
    assert (state.tripped, state.reason, state.episodes, state.total_cost) == (False, None, 0, 0.0)
    assert state.interval.low == -math.inf


def test_a_refused_batch_is_not_counted() -> None:
    guard = Guard()
    guard.update([0.5], [0.2])
    with pytest.raises(InputError, match="weighted_cost must be finite"):
        guard.update([0.5, 9.0], [0.2, math.nan])
    assert (guard.state.episodes, guard.state.total_cost) == (1, 0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: certify([], []), "no episodes"),
        (lambda: certify([1.0, 2.0], [1.0]), "got 2 and 1"),
        (lambda: certify([1.0, math.nan], [1.0, 1.0]), "cost must be finite.* index 1"),
        (lambda: certify([1.0], [math.inf]), "weighted_cost must be finite"),
        (lambda: certify([[1.0]], [[1.0]]), "one dimension"),
        (lambda: certify([1.0], [1.0], epsilon=-1.0), "at_most"),
        (lambda: certify([1.0], [1.0], alpha=2.0), "alpha"),
        (lambda: Guard(alpha=0.0), "alpha"),
        (lambda: Guard(total_cost_limit=math.nan), "total_cost_limit"),
        (lambda: Guard().update([1.0], []), "got 1 and 0"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()
