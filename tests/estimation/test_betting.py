"""Intervals of values with stated bounds of the returns, and the warning about few outcomes.

Simulations are seeded; `ERROR` is the probability with which correct code would have failed on a
fresh seed, per comparison.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typer.testing import CliRunner

from scopeval import EpisodeLog, Inference, TabularPolicy, estimate, evaluate, exact
from scopeval.behavior.policy import Action
from scopeval.cli.app import app
from scopeval.errors import InputError
from scopeval.estimation.betting import (
    FRACTIONS,
    BettingSequence,
    BoundedReturns,
    FewOutcomes,
    lower_end,
)
from scopeval.exact import TabularMDP
from scopeval.report import page_of_evaluation
from small_worlds import every_trajectory, random_mdp, random_rows

ERROR = 1e-6
ALPHA = 0.05


def most(runs: int, rate: float) -> int:
    return int(stats.binom.ppf(1 - ERROR, runs, rate))


def found(weight, returned, bounds=(0.0, 1.0), alpha=ALPHA) -> tuple[float, float]:
    running = BoundedReturns(bounds, alpha)
    running.update(np.asarray(weight, float), np.asarray(returned, float))
    return running.ends


@pytest.mark.parametrize("n", [20, 100, 1000])
def test_rare_successes_are_covered(n: int) -> None:
    """Success with probability .0014, on-policy: both ends together miss at most ALPHA.

    A t interval of 1,000 such episodes is [0, 0] in a quarter of the runs. Seen to fail with the
    weights left out of the upper end.
    """
    rng = np.random.default_rng(n)
    runs, missed = 300, 0
    for _ in range(runs):
        low, high = found(np.ones(n), rng.random(n) < 0.0014)
        missed += not low <= 0.0014 <= high
    assert missed <= most(runs, ALPHA)


@pytest.mark.parametrize("heavy", [1.0, 3.0])
def test_weighted_returns_are_covered(heavy: float) -> None:
    """Log-normal weights that go with the return; the mean of W R is the truth, for any tail."""
    rng = np.random.default_rng(int(heavy))
    runs, missed, n = 200, 0, 200
    weights = np.exp(heavy * stats.norm.ppf((np.arange(2000) + 0.5) / 2000))
    weights /= weights.mean()
    returns = np.linspace(0, 1, 2000) ** 2
    truth = float((weights * returns).mean())
    for _ in range(runs):
        k = rng.integers(2000, size=n)
        low, high = found(weights[k], 5 * returns[k] - 2, bounds=(-2, 3))
        missed += not low <= 5 * truth - 2 <= high
    assert missed <= most(runs, ALPHA)


@pytest.mark.parametrize("seed", range(4))
def test_both_means_by_enumeration(seed: int) -> None:
    """W (R - lo) and W (hi - R) over all trajectories; without coverage both are too small."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma=0.9, ends=bool(seed % 2))
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    pi, mu = TabularPolicy(random_rows(rng, T, S, A)), random_rows(rng, T, S, A)
    value = exact.assess(mdp, pi, pi).value
    holes = mu.copy()
    holes[:, 0] = [1.0, 0.0]
    for table, covered in ((mu, True), (holes, False)):
        episodes, chance = every_trajectory(mdp, pi, TabularPolicy(table), ends=bool(seed % 2))
        r, w = episodes.returns(0.9), episodes.weights
        lo, hi = float(r.min()) - 0.5, float(r.max()) + 20.0
        below, above = chance @ (w * (r - lo)), chance @ (w * (hi - r))
        if covered:
            assert below == pytest.approx(value - lo, abs=1e-10)
            assert above == pytest.approx(hi - value, abs=1e-10)
        else:
            assert below <= value - lo + 1e-10
            assert above <= hi - value + 1e-10


@given(values=st.lists(st.floats(0, 100), min_size=1, max_size=40), threshold=st.floats(0.1, 6))
@settings(max_examples=200, deadline=None)
def test_the_lower_end_is_where_the_capital_reaches_the_threshold(
    values: list[float], threshold: float
) -> None:
    """Against a fine grid of m, with the capital by its definition."""
    x = np.array(values)
    low = lower_end(x, 100.0, threshold)
    assert 0 <= low <= 100

    def capital(m: float) -> float:
        logs = np.log1p(FRACTIONS[:, None] * (x / m - 1)).sum(axis=1)
        return float(logs.max() + np.log(np.exp(logs - logs.max()).mean()))

    if low > 0:
        assert capital(low) >= threshold - 1e-9
    if x.any() and low < 100 * (1 - 1e-5):
        assert capital(max(low * (1 + 1e-5), 1e-9)) < threshold + 1e-3


def test_each_end_spends_half_of_alpha() -> None:
    """The capital that rejects is 2 / alpha, for both ends. Seen to fail with any other."""
    rng = np.random.default_rng(7)
    w, r = rng.lognormal(size=100), rng.random(100)
    low, high = found(w, r, alpha=0.1)
    assert low == lower_end(w * r, 1.0, math.log(20))
    assert high == 1 - lower_end(w * (1 - r), 1.0, math.log(20))


def test_ends_do_not_depend_on_order_or_batches() -> None:
    rng = np.random.default_rng(3)
    w, r = rng.lognormal(size=300), rng.random(300)
    whole, parts = BoundedReturns((0, 1), ALPHA), BoundedReturns((0, 1), ALPHA)
    assert whole.ends == (0.0, 1.0)
    whole.update(w, r)
    for rows in np.array_split(rng.permutation(300), 5):
        parts.update(w[rows], r[rows])
    assert whole.ends == pytest.approx(parts.ends, rel=1e-6)


@pytest.mark.parametrize(
    ("returns", "warned"),
    [
        (np.zeros(1000), "all 1,000 episodes had the same return, 0"),
        (np.r_[np.zeros(999), 1.0], "only 1 of 1,000 episodes had a return other than 0"),
        (np.r_[np.full(50, 2.0), np.arange(9)], "only 8 of 59"),
        (np.r_[np.zeros(990), np.ones(10)], None),
        (np.linspace(0, 1, 30), None),
        (np.zeros(1), None),
    ],
)
def test_few_outcomes_are_told(returns: np.ndarray, warned: str | None) -> None:
    for size in (1, 7, 2000):
        few = FewOutcomes()
        for start in range(0, len(returns), size):
            few.update(returns[start : start + size])
        assert (few.warning is None) == (warned is None)
        assert warned is None or warned in str(few.warning)


# --- through the whole library --------------------------------------------------------------------


def lottery(chance: float) -> TabularMDP:
    """One step; the second state, which pays 1 at the second step, is reached rarely."""
    move = [[[1 - chance, chance], [1 - chance, chance]], [[0, 1], [0, 1]]]
    return TabularMDP([1.0, 0.0], move, [[0.0, 0.0], [1.0, 1.0]], [[0.1, 0.1], [0.1, 0.1]], 2)


def test_evaluate_tells_and_gives_an_exact_interval() -> None:
    mdp, pi = lottery(0.0014), TabularPolicy([[0.5, 0.5]] * 2)
    seed = next(s for s in range(50) if evaluate(mdp, pi, episodes=500, seed=s).estimate == 0)
    plain = evaluate(mdp, pi, episodes=500, seed=seed)
    assert "0 in every episode, so that there is no spread for an interval" in plain.sentence
    assert any("had the same return" in text for text in plain.diagnostics.warnings)
    assert "the same in every episode" in page_of_evaluation(plain).answer
    found = evaluate(mdp, pi, episodes=500, seed=seed, inference=Inference(return_bound=(0, 1)))
    assert found.interval.low == 0
    assert 0.0014 < found.interval.high < 0.02
    assert found.interval.method == "bets"
    assert not found.diagnostics.warnings
    assert "exact" in found.summary()
    assert "is exact" in str(page_of_evaluation(found))
    wide = evaluate(
        mdp,
        pi,
        TabularPolicy([[0.9, 0.1]] * 2),
        episodes=500,
        inference=Inference(return_bound=(0, 1)),
    )
    assert wide.interval.low <= 0.0014 <= wide.interval.high


def test_returns_outside_the_bound_void_it() -> None:
    log = EpisodeLog(horizon=1)
    for k in range(20):
        log.start()
        log.step(0, Action(0, 0.5, 0.5), float(k), 0.0)
        log.end(0, terminated=True)
    kept = estimate(log.episodes(), inference=Inference(return_bound=(0, 19)))
    assert (kept.interval.method, kept.interval.high <= 19) == ("bets", True)
    void = estimate(log.episodes(), inference=Inference(return_bound=(0, 5)))
    assert void.interval.method == "t"
    assert any("outside return_bound" in text for text in void.diagnostics.warnings)


@pytest.mark.parametrize("bounds", [(1.0, 0.0), (0.0, math.inf), (0.0,), 3.0])
def test_bad_bounds(bounds) -> None:
    with pytest.raises(InputError, match="return_bound"):
        BoundedReturns(bounds, ALPHA)


def test_the_command(tmp_path, monkeypatch) -> None:
    code = "import test_betting\nfrom scopeval.envs.tabular import TabularEnv\n"
    code += "def make():\n    return TabularEnv(test_betting.lottery(0.2))\n"
    (tmp_path / "lotteries.py").write_text(code)
    np.save(tmp_path / "pi.npy", np.full((2, 2), 0.5))
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["evaluate", "--env", "lotteries:make", "--policy", str(tmp_path / "pi.npy")]
    words += ["--horizon", "2", "--episodes", "60", "--return-bound", "0", "1"]
    words += ["--bound", "0.2", "--json", str(tmp_path / "r.json")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["interval"]["method"] == "bets"
    assert told["certificate"]["cost_bound"] == 0.2


def interval_by_definition(values, alpha, side, cells):
    """Nearest rejected candidates on the grid, by the formulas of Waudby-Smith and Ramdas."""
    threshold = (2 if side == "both" else 1) / alpha
    low, high = 0, cells
    candidates = np.arange(cells + 1) / cells
    up, down = np.ones(cells + 1), np.ones(cells + 1)
    total, squares = 0.0, 0.0
    for i, x in enumerate(values, start=1):
        variance = (0.25 + squares) / i  # of the values before this one
        bet = math.sqrt(2 * math.log(threshold) / (variance * i * math.log(1 + i)))
        for k in range(1, cells):
            m = candidates[k]
            up[k] *= 1 + min(bet, 0.5 / m) * (x - m)
            down[k] *= 1 - min(bet, 0.5 / (1 - m)) * (x - m)
            if side != "upper" and up[k] >= threshold:
                low = max(low, k)
            if side != "lower" and down[k] >= threshold:
                high = min(high, k)
        total += x
        squares += (x - (0.5 + total) / (i + 1)) ** 2
    return candidates[low], candidates[high]


@pytest.mark.parametrize("side", ["both", "lower", "upper"])
@pytest.mark.parametrize("seed", range(4))
def test_intervals_are_those_of_the_definition(side, seed):
    rng = np.random.default_rng(seed)
    values = rng.beta(*rng.uniform(0.3, 3.0, 2), size=60)
    alpha, cells = (0.05, 0.2)[seed % 2], 40
    sequence = BettingSequence(alpha, side=side, grid=cells)
    for count in (5, 20, 60):
        sequence = BettingSequence(alpha, side=side, grid=cells)
        found = sequence.update(values[:count])
        low, high = interval_by_definition(values[:count], alpha, side, cells)
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert high - low < 0.9 or side != "both"  # it learned something
