"""The compiled simulator against exact values, against itself, and against the environment."""

from __future__ import annotations

import tracemalloc

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings

from random_mdps import cases, estimates, every_path, random_case, total_cost
from scopeval import _simulate_kernel as kernel
from scopeval import exact, simulate
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError

#: |z| beyond this happens once in a million comparisons of a right program.
Z = 4.9


def z_of(x, truth):
    return abs(x.mean() - truth) / (x.std(ddof=1) / np.sqrt(len(x)))


def cases_to_run():
    yield "plain", random_case(1, states=4, actions=3, horizon=5)
    yield "discounted", random_case(2, states=3, actions=4, horizon=6, gamma=0.7)
    yield "noisy", random_case(3, states=3, actions=3, horizon=4, noisy=True)
    yield "absorbing", random_case(4, states=4, actions=2, horizon=6, absorbing=True)
    yield "one state", random_case(5, states=1, actions=3, horizon=3)
    yield "deterministic", random_case(6, states=4, actions=3, horizon=4, deterministic=True)


CASES = dict(cases_to_run())


@pytest.fixture(params=CASES, ids=list(CASES))
def case(request):
    return CASES[request.param]


# -- against exact values ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["on-policy", "behavior", "behavior, b"])
def test_means_and_variances_are_the_exact_ones(case, kind):
    """72 comparisons at one in a million each."""
    mu = case.target if kind == "on-policy" else 0.5 * case.behavior + 0.5 * case.target
    b = case.control if kind == "behavior, b" else None
    run = simulate.summaries(case.mdp, case.target, mu, episodes=300_000, control_variate=b, seed=1)
    truth = exact.assess(case.mdp, case.target, mu, b)
    own_cost = exact.assess(case.mdp, case.target, case.target).cost
    assert z_of(run.estimate, truth.value) < Z
    assert z_of((run.estimate - truth.value) ** 2, truth.variance) < Z
    assert z_of(run.cost, truth.cost) < Z or run.cost.std() < 1e-12
    assert z_of(run.weighted_cost, own_cost) < Z


def test_weighted_cost_is_too_small_where_mu_leaves_actions_of_pi_out():
    """Lambda keeps the value unbiased, not the cost: half of pi's cost is never seen here."""
    mdp = exact.TabularMDP([1.0], np.ones((1, 2, 1)), [[0.0, 1.0]], [[1.0, 1.0]], 1)
    pi = np.full((1, 2), 0.5)
    mu = exact.design(mdp, pi, "scope")
    np.testing.assert_array_equal(mu.table(1), [[[0.0, 1.0]]])
    run = simulate.summaries(mdp, pi, mu, episodes=10)
    np.testing.assert_array_equal(run.estimate, 0.5)
    np.testing.assert_array_equal(run.cost, 1.0)
    np.testing.assert_array_equal(run.weighted_cost, 0.5)  # J^c(pi) is 1


def test_every_transition_has_its_probability():
    """Counts of (s, a, s') by a chi-square statistic with false alarm below 1e-6."""
    from scipy.stats import chi2

    case = random_case(8, states=5, actions=3, horizon=4, zero_probabilities=False)
    run = simulate.trajectories(case.mdp, case.behavior, episodes=100_000, seed=2)
    s, a, following = run.states[:, :-1].ravel(), run.actions.ravel(), run.states[:, 1:].ravel()
    seen = np.zeros((5, 3, 5))
    np.add.at(seen, (s, a, following), 1)
    expected = seen.sum(2, keepdims=True) * case.transition
    possible = case.transition > 0
    assert not seen[~possible].any()
    statistic = ((seen - expected)[possible] ** 2 / np.maximum(expected[possible], 1e-9)).sum()
    freedom = possible.sum() - possible.any(2).sum()
    assert chi2.sf(statistic, freedom) > 1e-6
    assert z_of((run.states[:, 0] == 1).astype(float), case.initial[1]) < Z


def test_random_rewards_have_their_mean_and_variance():
    case = random_case(9, states=2, actions=2, horizon=3, noisy=True)
    run = simulate.trajectories(case.mdp, case.behavior, episodes=400_000, seed=3)
    for t in range(3):
        for s in range(2):
            for a in range(2):
                here = (run.states[:, t] == s) & (run.actions[:, t] == a)
                noise = run.rewards[here, t] - case.reward[t, s, a]
                if here.any():
                    assert z_of(noise, 0.0) < Z
                    assert z_of(noise**2, case.spread[t, s, a] ** 2) < Z


def test_noise_of_one_step_is_independent_of_what_comes_next():
    """Given (s, a): no correlation of the noise with the next state or with other steps' noise."""
    case = random_case(9, states=2, actions=2, horizon=3, noisy=True)
    run = simulate.trajectories(case.mdp, case.behavior, episodes=400_000, seed=4)
    s, a = run.states[:, :-1], run.actions
    t = np.arange(3)
    noise = run.rewards - case.reward[t, s, a]
    later = run.states[:, 1:] - case.transition[s, a, 1]
    for i in range(3):
        assert z_of(noise[:, i] * later[:, i], 0.0) < Z
        for j in range(i):
            assert z_of(noise[:, i] * noise[:, j], 0.0) < Z


def test_uniforms_are_uniform_and_streams_do_not_repeat():
    from scipy.stats import kstest

    keys = [np.uint64(kernel.stream(0, i)) for i in range(300)]
    u = np.array([[kernel.uniform(key, k) for k in range(40)] for key in keys])
    assert ((u >= 0) & (u < 1)).all()
    assert kstest(u.ravel(), "uniform").pvalue > 1e-6
    assert len(np.unique(u)) == u.size
    other = np.array([kernel.uniform(np.uint64(kernel.stream(1, i)), 0) for i in range(300)])
    assert abs(np.corrcoef(other, u[:, 0])[0, 1]) < 0.3


# -- the same bits -------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [0, 1, 40_000])
def test_same_bits_for_any_threads_and_blocks(monkeypatch, N):
    case = CASES["noisy"]
    whole = simulate.summaries(case.mdp, case.target, case.behavior, episodes=N, threads=1)
    paths = simulate.trajectories(case.mdp, case.behavior, episodes=N, threads=1)
    for threads, block in ((2, 16384), (3, 1000), (1, 77_777)):
        monkeypatch.setattr(simulate, "BLOCK", block)
        other = simulate.summaries(
            case.mdp, case.target, case.behavior, episodes=N, threads=threads
        )
        for name in ("estimate", "cost", "weighted_cost"):
            assert getattr(whole, name).tobytes() == getattr(other, name).tobytes()
        again = simulate.trajectories(case.mdp, case.behavior, episodes=N, threads=threads)
        for name in ("states", "actions", "rewards", "costs"):
            assert getattr(paths, name).tobytes() == getattr(again, name).tobytes()


def test_same_bits_from_any_first_episode():
    case = CASES["noisy"]
    whole = simulate.summaries(case.mdp, case.target, case.behavior, episodes=500, seed=9)
    paths = simulate.trajectories(case.mdp, case.behavior, episodes=500, seed=9)
    for first, n in ((0, 10), (123, 100), (499, 1)):
        part = simulate.summaries(
            case.mdp, case.target, case.behavior, episodes=n, first=first, seed=9
        )
        np.testing.assert_array_equal(part.estimate, whole.estimate[first : first + n])
        some = simulate.trajectories(case.mdp, case.behavior, episodes=n, first=first, seed=9)
        np.testing.assert_array_equal(some.rewards, paths.rewards[first : first + n])


def test_another_seed_is_another_run():
    case = CASES["noisy"]
    one = simulate.summaries(case.mdp, case.target, episodes=100, seed=1).estimate
    two = simulate.summaries(case.mdp, case.target, episodes=100, seed=2).estimate
    assert not np.isin(one, two).any()


@settings(max_examples=30, deadline=None)
@given(cases())
def test_estimates_are_those_of_the_trajectories(case):
    """Episode by episode: the definition, in plain numpy, on what `trajectories` returns."""
    paths = simulate.trajectories(case.mdp, case.behavior, episodes=64, seed=4)
    for b in (None, case.control):
        run = simulate.summaries(
            case.mdp, case.target, case.behavior, episodes=64, control_variate=b, seed=4
        )
        G = estimates(case, paths, case.behavior, b)
        np.testing.assert_allclose(run.estimate, G, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(run.cost, total_cost(case, paths), rtol=1e-12)
    ratio, due = np.ones(64), np.zeros(64)
    for t in range(case.horizon):
        s, a = paths.states[:, t], paths.actions[:, t]
        ratio = ratio * case.target[t, s, a] / case.behavior[t, s, a]
        due += case.gamma**t * ratio * paths.costs[:, t]
    np.testing.assert_allclose(run.weighted_cost, due, rtol=1e-9, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_only_what_is_possible_happens(case):
    paths = simulate.trajectories(case.mdp, case.target, episodes=64, seed=5)
    s, a, t = paths.states[:, :-1], paths.actions, np.arange(case.horizon)
    assert (case.initial[s[:, 0]] > 0).all()
    assert (case.target[t, s, a] > 0).all()
    assert (case.transition[s, a, paths.states[:, 1:]] > 0).all()
    np.testing.assert_array_equal(paths.costs, case.mdp.cost[t, s, a])
    if not case.spread.any():
        np.testing.assert_array_equal(paths.rewards, case.reward[t, s, a])


def test_sums_that_rounding_leaves_below_one_draw_nothing_impossible():
    """Ten tenths add up to 1 - 1e-16: the largest uniform must not find the empty slot behind."""
    tenths = np.append(np.full(10, 0.1), [0.0, 0.0])
    assert np.cumsum(tenths)[-1] < 1.0
    sums = simulate.cumulative(tenths)
    largest = 1.0 - 2.0**-53
    assert kernel.draw(sums, 0, 12, largest) == 9
    assert kernel.draw(sums, 0, 12, 0.0) == 0
    assert kernel.draw(simulate.cumulative(np.array([0.0, 1.0, 0.0])), 0, 3, 0.0) == 1
    many = np.append(np.zeros(20), tenths)  # bisection instead of a walk
    assert kernel.draw(simulate.cumulative(many), 0, 32, largest) == 29
    assert kernel.draw(simulate.cumulative(many), 0, 32, 0.0) == 20
    rows = simulate.cumulative_rows(
        np.concatenate([tenths, [1.0], tenths]), np.array([0, 12, 13, 25])
    )
    np.testing.assert_array_equal(rows, np.concatenate([sums, [1.0], sums]))


# -- moments -------------------------------------------------------------------------------------


def test_moments_are_those_of_the_summaries(case):
    run = simulate.summaries(case.mdp, case.target, case.behavior, episodes=5_000, seed=6)
    found = simulate.moments(
        case.mdp, case.target, case.behavior, episodes=5_000, seed=6, block=777
    )
    assert found.episodes == 5_000
    for name, mean, variance in (
        ("estimate", found.estimate, found.variance),
        ("cost", found.cost, found.cost_variance),
        ("weighted_cost", found.weighted_cost, found.weighted_cost_variance),
    ):
        x = getattr(run, name)
        assert mean == pytest.approx(x.mean(), rel=1e-10, abs=1e-13)
        assert variance == pytest.approx(x.var(ddof=1), rel=1e-9, abs=1e-13)


def test_memory_of_moments_does_not_grow():
    case = CASES["plain"]
    peaks = []
    for episodes in (50_000, 400_000):
        tracemalloc.start()
        simulate.moments(case.mdp, case.target, case.behavior, episodes=episodes, block=1 << 14)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize("episodes", [-1, 2.5, "many", True, None, float("nan")])
def test_bad_counts(episodes):
    case = CASES["plain"]
    for call in (simulate.summaries, simulate.moments, simulate.trajectories):
        with pytest.raises(InputError, match=r"^episodes: got .*, expected a whole number >= "):
            call(case.mdp, case.target, episodes=episodes)


@pytest.mark.parametrize("name", ["seed", "first"])
@pytest.mark.parametrize("value", [-1, 1.5, 2.0, 2**63, "a", None])
def test_bad_numbers_of_streams(name, value):
    case = CASES["plain"]
    for call in (simulate.summaries, simulate.trajectories):
        with pytest.raises(InputError, match=rf"^{name}: got .*, expected"):
            call(case.mdp, case.target, episodes=1, **{name: value})


# -- the environment is the same process ---------------------------------------------------------


class Replay:
    """A random generator that hands out the simulator's uniforms, in the environment's order."""

    def __init__(self, seed: int, episode: int, noisy: bool) -> None:
        self.key = np.uint64(kernel.stream(seed, episode))
        self.order = self._order(noisy)

    def _order(self, noisy: bool):
        yield 0
        t = 0
        while True:
            yield 4 * t + 2  # the next state
            if noisy:
                yield 4 * t + 3
                yield 4 * t + 4
            t += 1

    def random(self) -> float:
        return float(kernel.uniform(self.key, next(self.order)))


def check_replay(mdp: exact.TabularMDP, behavior: np.ndarray, episodes: int, first: int) -> None:
    paths = simulate.trajectories(mdp, behavior, episodes=episodes, seed=12, first=first)
    env = TabularEnv(mdp)
    for i in range(episodes):
        env.np_random = Replay(12, first + i, bool(mdp.reward_variance.any()))
        s, info = env.reset()
        assert info == {}
        assert s == paths.states[i, 0]
        for t in range(mdp.horizon):
            s, r, terminated, truncated, info = env.step(paths.actions[i, t])
            assert s == paths.states[i, t + 1]
            assert r == paths.rewards[i, t]
            assert info["cost"] == paths.costs[i, t]
            assert not terminated
            assert truncated == (t == mdp.horizon - 1)


def test_environment_replays_the_simulator_bit_by_bit(case):
    check_replay(case.mdp, case.behavior, 100, first=1_000)


def test_environment_replays_the_gridworld():
    mdp = Gridworld(12).mdp()
    check_replay(mdp, target_policies(1, 12)[0], 50, first=0)


def test_environment_and_simulator_share_their_sums():
    """Bits of every row's cumulative probabilities, on a world where a running sum would drift."""
    mdp = Gridworld(30).mdp()
    p = mdp.transition
    sums = simulate.cumulative_rows(p.data, p.indptr.astype(np.int64))
    for row in range(0, p.shape[0], 7):
        lo, hi = p.indptr[row], p.indptr[row + 1]
        np.testing.assert_array_equal(sums[lo:hi], simulate.cumulative(p.data[lo:hi]))


def test_environment_is_reproducible_by_seed():
    env = TabularEnv(CASES["noisy"].mdp)
    runs = []
    for _ in range(2):
        s, _ = env.reset(seed=3)
        steps = [env.step(np.int64(0))[:2] for _ in range(4)]
        runs.append((s, steps))
    assert runs[0] == runs[1]
    assert isinstance(env, gymnasium.Env)


def test_enumeration_and_simulation_agree_on_what_can_happen():
    """The judge itself: every simulated trajectory is among the enumerated ones."""
    case = random_case(14, states=2, actions=2, horizon=3)
    paths = every_path(case, case.behavior)
    known = {(tuple(s), tuple(a)) for s, a in zip(paths.states, paths.actions, strict=True)}
    run = simulate.trajectories(case.mdp, case.behavior, episodes=2_000)
    seen = {(tuple(s), tuple(a)) for s, a in zip(run.states, run.actions, strict=True)}
    assert seen <= known
    assert len(seen) > len(known) / 2
