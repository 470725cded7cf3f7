"""Certificate and guard with a stated bound: exact enumeration, and worlds that fool intervals.

Simulations are seeded. `ERROR` is the probability with which correct code would have failed on a
fresh seed, per comparison.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from experiments.worlds.costly import WORLDS
from scopeval import (
    Bound,
    EpisodeLog,
    Guard,
    Inference,
    Promise,
    TabularPolicy,
    estimate,
    evaluate,
    exact,
)
from scopeval.behavior.policy import Action
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.estimation.betting import FRACTIONS, Capital
from scopeval.safety.certificate import Ledger, certify
from scopeval.safety.cost_bound import BoundedComparison, CostBound, cost_bound_of
from scopeval.safety.costs import EpisodeCosts, costs_of, limit_costs
from small_worlds import every_trajectory, random_mdp, random_rows

ERROR = 1e-6
ALPHA = 0.05


def most(runs: int, rate: float) -> int:
    return int(stats.binom.ppf(1 - ERROR, runs, rate))


# --- bets ----------------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(-1, 50), min_size=2, max_size=4),
    seed=st.integers(0, 1000),
    n=st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
def test_the_expected_capital_never_grows(values: list[float], seed: int, n: int) -> None:
    """Over all sequences of n values with mean <= 0 and values >= -1 the capital averages <= 1.

    Seen to fail with a loss of half the true one.
    """
    x = np.array([-1.0, *values])
    p = np.random.default_rng(seed).dirichlet(np.ones(len(x)))
    if p @ x > 0:  # enough probability at the lower end to make the mean 0
        gains = p[1:] @ (x[1:] + 1)
        p = np.concatenate([[1 - p[1:].sum() / gains], p[1:] / gains])
    if p[0] < 0:
        return
    total = 0.0
    for places in itertools.product(range(len(x)), repeat=n):
        capital = Capital(np.array([1.0]))
        capital.update(x[list(places)][:, None])
        total += math.prod(p[i] for i in places) * math.exp(capital.logarithm[0])
    assert total <= 1 + 1e-9


def test_capital_is_the_mean_of_the_products() -> None:
    x = np.random.default_rng(0).uniform(-2, 30, size=(300, 3))
    loss = np.array([2.0, 4.0, 40.0])
    whole, parts = Capital(loss), Capital(loss)
    whole.update(x)
    for part in np.array_split(np.random.default_rng(1).permutation(x), 7):
        parts.update(part)
    plain = np.log(1 + FRACTIONS * (x / loss)[..., None]).sum(axis=0)
    expected = np.log(np.exp(plain - plain.max(1, keepdims=True)).mean(1)) + plain.max(1)
    np.testing.assert_allclose(whole.logarithm, expected, rtol=1e-9)
    np.testing.assert_allclose(parts.logarithm, expected, rtol=1e-9)  # neither order nor batches


# --- what is bounded -----------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("gamma", [1.0, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_every_estimate_of_the_targets_cost_by_enumeration(
    seed: int, gamma: float, ends: bool
) -> None:
    """Over all trajectories: the mean is the target's cost, and no value is above its end.

    Seen to fail with weights that stop growing at the end of an episode counted as 0.
    """
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma=gamma, ends=ends)
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    pi, mu = TabularPolicy(random_rows(rng, T, S, A)), TabularPolicy(random_rows(rng, T, S, A))
    truth = mdp.initial @ exact.cost_values(mdp, pi).v[0]
    episodes, chance = every_trajectory(mdp, pi, mu, ends=ends)
    costs = costs_of(episodes, gamma)
    heaviest = float(np.cumprod(episodes.ratios, axis=1).max())
    largest = float(episodes.cost.max())
    for bound in (
        cost_bound_of(
            Bound(step=largest), horizon=T, gamma=gamma, largest_weight=max(heaviest, 1.0)
        ),
        cost_bound_of(Bound(episode=T * largest), horizon=T, gamma=gamma),
    ):
        assert bound is not None
        assert bound.violation(costs) is None
        assert (costs.cost <= bound.episode + 1e-12).all()
        found = bound.for_refutation(costs)
        assert len(found) == (2 if bound.step else 1)
        for pair in found:
            assert chance @ pair.target == pytest.approx(truth, abs=1e-12)
            assert (pair.target <= pair.target_end + 1e-12).all()
        (plain,) = bound.for_safety(costs)
        assert (plain.target >= plain.target_end).all()


@pytest.mark.parametrize("seed", range(6))
def test_without_coverage_nothing_is_refuted_wrongly(seed: int) -> None:
    """A mu that leaves out actions: what a refutation may use is never too small on average."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, ends=bool(seed % 2))
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    pi, mu = TabularPolicy(random_rows(rng, T, S, A)), random_rows(rng, T, S, A)
    mu[:, 0] = [1.0, 0.0]
    mu[1] = [0.0, 1.0]
    truth = mdp.initial @ exact.cost_values(mdp, pi).v[0]
    episodes, chance = every_trajectory(mdp, pi, TabularPolicy(mu), ends=bool(seed % 2))
    costs = costs_of(episodes)
    assert chance @ costs.weighted_cost < truth - 1e-3
    for bound in (
        cost_bound_of(Bound(step=float(episodes.cost.max())), horizon=T, largest_weight=1e6),
        cost_bound_of(Bound(episode=float(T)), horizon=T, largest_weight=1e6),
    ):
        assert bound is not None
        for pair in bound.for_refutation(costs):
            assert pair.needs_coverage or chance @ pair.target >= truth - 1e-12


def test_the_simulator_knows_the_exposure() -> None:
    mdp = Gridworld(5, "reward", seed=0).mdp()
    pi = target_policies(1, 5)[0]
    mu = exact.design(mdp, pi, "odi")
    quick = evaluate(
        mdp, pi, mu, episodes=200, promise=Promise(bound=Bound(step=1.0), action="tell")
    )
    kept = evaluate(
        mdp,
        pi,
        mu,
        episodes=200,
        promise=Promise(bound=Bound(step=1.0), action="tell"),
        inference=Inference(keep=True),
    )
    assert quick.certificate is not None
    assert kept.certificate is not None
    # the difference of two means, in which sums over a batch may be rounded otherwise
    for name, value in asdict(kept.certificate.difference).items():
        near = value if isinstance(value, str) else pytest.approx(value, rel=1e-12)
        assert getattr(quick.certificate.difference, name) == near, name
    assert quick.certificate.ratio.low == kept.certificate.ratio.low


# --- worlds that fool intervals ------------------------------------------------------------------


@pytest.mark.parametrize("n", [50, 100, 1000])
@pytest.mark.parametrize("name", list(WORLDS))
def test_false_verdicts_and_missed_ratios(name: str, n: int) -> None:
    """Wrong firm verdicts at most alpha / 2, intervals that miss at most alpha, for every n.

    A t interval says "safe" in .96, .93 and .49 of the runs of the rare disaster and "refuted" in a
    fifth of the runs of the others. Seen to fail with the bound divided by 100.
    """
    world = WORLDS[name]()
    rng = np.random.default_rng([n, len(name)])
    runs = 200 if n < 1000 else 60
    wrong = missed = unsure = 0
    for _ in range(runs):
        ledger, careful = Ledger(alpha=ALPHA, bound=world.bound), Ledger(alpha=ALPHA)
        costs = world.draw(rng, n)
        ledger.add(costs)
        careful.add(costs)
        found = ledger.certificate()
        wrong += found.verdict == ("safe" if world.ratio > 1 else "refuted")
        missed += not found.ratio.contains(world.ratio)
        unsure += careful.certificate().verdict == ("safe" if world.ratio > 1 else "refuted")
    assert wrong <= most(runs, ALPHA / 2)
    assert missed <= most(runs, ALPHA)
    assert unsure <= most(runs, ALPHA / 2)  # without a bound nothing is proved, but it is careful


@pytest.mark.parametrize("name", ["skewed costs", "heavy weights"])
def test_false_alarms_over_all_time(name: str) -> None:
    """The promise holds: at most alpha of the guards ever trip in 1,000 episodes."""
    world = WORLDS[name]()
    rng = np.random.default_rng(len(name))
    runs = tripped = 0
    for _ in range(60):
        guard = Guard(alpha=ALPHA, bound=world.bound)
        runs += 1
        tripped += any(guard.add(world.draw(rng, 50)).tripped for _ in range(20))
    assert tripped <= most(runs, ALPHA)


def test_firm_verdicts_come_with_enough_episodes() -> None:
    """Costs up to 1, ratios .5 and 2, weights .5 to 1.5: both are proved with 2,000 episodes."""
    rng = np.random.default_rng(3)
    bound = CostBound(1.0)
    for ratio, verdict in ((0.5, "safe"), (2.0, "refuted")):
        weight = rng.uniform(0.5, 1.5, 2000)
        level = 0.8 if ratio == 2.0 else 0.3
        # the target's cost is level / ratio: costs depend on the weight, as they do in reality
        slope = (level / ratio - level) / (1 / 12)
        cost = np.clip(level + slope * (weight - 1) / 4 + rng.uniform(-0.1, 0.1, 2000), 0, 1)
        found = certify(cost, weight * cost, weight=weight, epsilon=0.0, bound=bound)
        assert found.cost / found.target_cost == found.ratio.estimate
        assert found.ratio.low <= found.ratio.estimate <= found.ratio.high
        tight = 0.05 if verdict == "safe" else -0.05
        promise = found.ratio.estimate - 1 + tight * 10
        firm = certify(cost, weight * cost, weight=weight, epsilon=promise, bound=bound)
        assert firm.verdict == verdict
        assert firm.proved
        assert "for every distribution of costs up to 1 per episode" in firm.sentence


def test_the_guard_with_a_bound_stops_the_planted_policy() -> None:
    """It costs 1.105 times the target; in 30 other runs the guard tripped by episode 1,525."""
    mdp = Gridworld(10, "reward", seed=0).mdp()
    pi = target_policies(1, 10)[0]
    mu = exact.design(mdp, pi, "odi")
    for seed in range(3):
        found = evaluate(
            mdp, pi, mu, episodes=4000, seed=seed, promise=Promise(bound=Bound(step=1.0))
        )
        assert found.guard is not None
        assert found.guard.switched_after is not None
        assert "promise is refuted after" in str(found.guard.state.reason)
        assert found.certificate is not None
        assert found.certificate.verdict == "refuted"
        assert found.certificate.difference.method == "bets"


@pytest.mark.parametrize(("cost", "verdict"), [(0.2, "safe"), (0.8, "refuted")])
def test_a_verdict_takes_a_capital_of_two_over_alpha(cost: float, verdict: str) -> None:
    """Equal costs against a limit of .5 and a bound of 1: the number of episodes is known exactly.

    Every episode gains .3 of a largest loss of .5. Seen to fail with any other threshold.
    """

    def capital(n: int) -> float:
        return float(np.mean((1 + FRACTIONS * 0.3 / 0.5) ** n))

    needed = next(n for n in range(1, 200) if capital(n) >= 2 / ALPHA)
    alarm = next(n for n in range(1, 200) if capital(n) >= 1 / ALPHA)
    for n in (needed - 1, needed):
        ledger = Ledger(alpha=ALPHA, bound=CostBound(1.0), compared="limit")
        ledger.add(limit_costs(np.full(n, cost), 0.5))
        assert (ledger.certificate().verdict == verdict) == (n == needed)
    for n in (alarm - 1, alarm):
        guard = Guard(alpha=ALPHA, bound=CostBound(1.0), compared="limit")
        tripped = guard.add(limit_costs(np.full(n, cost), 0.5)).tripped
        assert tripped == (n == alarm and verdict == "refuted")


@pytest.mark.parametrize(("mean", "told"), [(0.941, True), (0.97, False), (1.06, True)])
def test_weights_that_do_not_average_one_color_the_verdict(mean: float, told: bool) -> None:
    """A mean weight of .941 +- .018 is no plain verdict, although the interval is clear."""
    rng = np.random.default_rng(2)
    noise = rng.normal(size=1000)
    noise = (noise - noise.mean()) / noise.std(ddof=1)
    weight = mean + 0.018 * math.sqrt(1000) * np.clip(noise, -1.6, 1.6)
    weight += mean - weight.mean()
    cost = rng.gamma(4.0, size=1000)
    for share, verdict in ((0.5, "refuted"), (2.0, "safe")):
        found = certify(cost, share * cost * rng.uniform(0.9, 1.1, 1000), weight=weight)
        assert found.verdict == ("not enough evidence" if told else verdict)
        assert any("weights average" in reason for reason in found.reasons) == told
        assert (f"{mean:.3f} +- 0.01" in found.sentence) == told


# --- stating a bound -----------------------------------------------------------------------------


def test_costs_above_the_bound_void_it_and_trip_the_guard() -> None:
    costs = EpisodeCosts(np.array([1.0, 5.0]), np.array([1.0, 5.0]), np.array([1.0, 1.0]))
    bound = CostBound(4.0)
    ledger, guard = Ledger(bound=bound), Guard(bound=bound)
    ledger.add(costs)
    found = ledger.certificate()
    assert found.cost_bound is None
    assert not found.proved
    state = guard.add(costs)
    assert state.tripped
    assert not state.refuted
    assert "cost 5, above the stated bound of 4" in str(state.reason)


def test_a_bound_that_is_violated_later_proves_nothing_any_more() -> None:
    """What had been refuted by it is open again, and both intervals have no ends."""
    bound = CostBound(4.0, largest_weight=2.0)
    compared = BoundedComparison(bound, 1.0, ALPHA)
    compared.update(EpisodeCosts(np.full(400, 3.0), np.full(400, 1.0), np.ones(400)))
    assert compared.refuted(covered=True)
    assert compared.ratio(covered=True)[0] > 1.0
    compared.update(EpisodeCosts(np.array([5.0]), np.array([5.0]), np.ones(1)))
    assert not compared.refuted(covered=True)
    assert compared.ratio(covered=True) == (0.0, math.inf)
    assert compared.difference(covered=True) == (-4.0, 4.0)


@pytest.mark.parametrize(
    ("costs", "bound", "words"),
    [
        (EpisodeCosts(np.array([-1.0]), np.array([1.0])), CostBound(4.0), "at least 0"),
        (
            EpisodeCosts(np.array([2.0]), np.array([9.0]), np.array([4.5])),
            CostBound(4.0, largest_weight=3.0),
            "weight above 3",
        ),
        (
            EpisodeCosts(np.array([2.0]), np.array([2.0]), largest_step=np.array([1.5])),
            CostBound(4.0, 1.0, 4.0),
            "a step cost 1.5",
        ),
    ],
)
def test_what_contradicts_a_bound(costs: EpisodeCosts, bound: CostBound, words: str) -> None:
    assert words in str(bound.violation(costs))
    compared = BoundedComparison(bound, 1.0, ALPHA)
    compared.update(costs)
    assert compared.violated is not None
    assert not compared.safe
    assert not compared.refuted(covered=True)


def test_recorded_episodes_take_the_bound_too() -> None:
    """An `EpisodeLog` of a policy that costs .4 of the target: proved with a bound."""
    rng = np.random.default_rng(5)
    log = EpisodeLog(horizon=1)
    for _ in range(400):
        log.start()
        expensive = rng.random() < 0.2
        log.step(
            0,
            Action(int(expensive), 0.2 if expensive else 0.8, 0.5),
            1.0,
            1.0 if expensive else 0.1,
        )
        log.end(0, terminated=True)
    proved = estimate(log.episodes(), promise=Promise(bound=Bound(episode=1.0))).certificate
    assert proved is not None
    assert proved.verdict == "safe"
    assert proved.proved
    assert proved.cost_bound == 1.0
    seen = estimate(log.episodes()).certificate
    assert seen is not None
    assert "as far as seen" in seen.sentence
    assert "rarer than 3 in 400 episodes are not excluded" in seen.sentence


def test_environments_take_the_bound_and_the_cap_of_the_weights() -> None:
    mdp = Gridworld(4, "reward", seed=0).mdp()
    pi = target_policies(1, 4)[0]
    mu = exact.frontier(mdp, pi).at(cost=0.8)
    assert mu.largest_weight == 30.0
    found = evaluate(
        TabularEnv(mdp), pi, mu, horizon=4, episodes=300, promise=Promise(bound=Bound(step=1.0))
    )
    assert found.certificate is not None
    assert found.certificate.cost_bound == 4.0
    assert found.diagnostics.largest_weight <= 30.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Bound(episode=0.0), "bound.episode: got 0.0"),
        (lambda: Bound(step=math.inf), "bound.step: got inf"),
        (lambda: cost_bound_of(Bound(step=1.0), horizon=None), "horizon: needed"),
        (lambda: CostBound(1.0, largest_weight=0.5), "largest_weight"),
        (lambda: Guard(bound=CostBound(1.0)).update([0.5], [0.5]), "needs the weights"),
    ],
)
def test_errors_say_what_is_wrong(call, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call()


# --- lost episodes -------------------------------------------------------------------------------


@pytest.mark.parametrize("largest_weight", [math.inf, 20.0])
@pytest.mark.parametrize("step", [None, 1.0])
def test_a_cut_episode_counts_with_no_more_than_it_would_have(step, largest_weight):
    """For 200 random episodes and every cut, D of what was seen is at most D of the whole one.

    Seen to fail where a cut episode counts with its weighted cost so far.
    """
    rng, horizon, gamma = np.random.default_rng(0), 6, 0.9
    bound = cost_bound_of(
        Bound(None if step else 6.0, step),
        horizon=horizon,
        gamma=gamma,
        largest_weight=largest_weight,
    )
    factors = gamma ** np.arange(horizon)

    def found(costs):
        return {
            pair.kind: pair.behavior - 1.1 * pair.target for pair in bound.for_refutation(costs)
        } | {
            f"safe {pair.kind}": pair.behavior - 1.1 * pair.target
            for pair in bound.for_safety(costs)
        }

    for _ in range(200):
        cost = rng.random(horizon) * (rng.random(horizon) < 0.5)
        weights = np.cumprod(rng.uniform(0.3, 1.6, horizon))
        whole = EpisodeCosts(
            np.array([cost @ factors]),
            np.array([cost * weights @ factors]),
            weights[-1:],
            np.array([weights @ factors]),
            np.array([cost.max()]),
        )
        for k in range(horizon):
            cut = EpisodeCosts.of_cut(
                {
                    "cost": cost[:k] @ factors[:k],
                    "weighted_cost": cost[:k] * weights[:k] @ factors[:k],
                    "exposure": weights[:k] @ factors[:k],
                    "largest_step": cost[:k].max(initial=0.0),
                }
            )
            least, real = found(cut), found(whole)
            assert bound.violation(cut) is None
            for kind, value in real.items():
                if kind.startswith("safe"):
                    assert least[kind] >= value - 1e-12
                else:
                    assert least[kind] <= value + 1e-12


def test_a_lost_episode_is_in_the_total_and_needs_no_weights():
    guard = Guard(bound=CostBound(4.0), total_cost_limit=5.0)
    guard.update([], [], lost=2.0)
    seen = {"cost": 2.0, "weighted_cost": 1.0, "exposure": 0.5, "largest_step": 2.0}
    assert guard.lose(EpisodeCosts.of_cut(seen), spent=2.0).reason is None
    state = guard.lose(EpisodeCosts.of_cut(seen), spent=2.0)
    assert state.total_cost == 6.0
    assert "above the limit" in state.reason
