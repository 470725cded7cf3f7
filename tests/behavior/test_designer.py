"""Design from logs: the paper's Gridworlds, the same answer every time, and words for bad input."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.mlp.regression import MLPRegression
from logged_worlds import cells, gridworld_logs, rows_of
from random_mdps import random_case
from scopeval import Check, Method, Promise, Table, TabularPolicy, Transitions, design, exact
from scopeval.behavior.methods import METHODS
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import DataError, InputError
from scopeval.models.table import TableCritic
from scopeval.policies.protocols import Candidates

# -- the paper's Gridworlds --------------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds():
    """Six targets, each in a world of its own, n = 10."""
    targets = target_policies(30, 10)
    return [(Gridworld(10, seed=k).mdp(), targets[k], k) for k in range(6)]


def learned_and_exact(worlds, episodes, method):
    """Relative variance and cost of the learned design, of the exact one, and as predicted."""
    found = []
    for mdp, target, k in worlds:
        log = gridworld_logs(mdp, episodes, seed=k)
        learned = design(log, target, horizon=10, method=method, learn=Table(features=cells(10)))
        on_policy = exact.assess(mdp, target, target)
        truth = exact.assess(mdp, target, *learned.table(100))
        best = exact.design(mdp, target, method)
        limit = exact.assess(mdp, target, best, best.control)
        found.append(
            (
                truth.variance / on_policy.variance,
                truth.cost / on_policy.cost,
                limit.variance / on_policy.variance,
                learned.predicted.variance,
                learned.predicted.cost,
            )
        )
    return np.array(found).T


@pytest.mark.parametrize(("method", "times"), [("scope", 1.15), ("scope-dr", 1.3)])
def test_gridworld_with_1000_episodes(worlds, method, times):
    variance, cost, best, predicted, predicted_cost = learned_and_exact(worlds, 1000, method)
    assert variance.mean() <= times * best.mean()
    assert cost.mean() <= 1.003
    assert cost.max() <= 1.01
    assert np.abs(predicted / variance - 1).mean() <= 0.15
    assert np.abs(predicted_cost / cost - 1).mean() <= 0.01


@pytest.mark.parametrize("method", ["scope", "scope-dr"])
def test_gridworld_with_30_episodes_is_never_much_worse_than_on_policy(worlds, method):
    variance, cost, *_ = learned_and_exact(worlds, 30, method)
    assert variance.max() <= 1.05
    assert variance.mean() < 0.95  # and still wins something
    assert cost.mean() <= 1.01
    assert cost.max() <= 1.03


def test_support_is_the_share_of_the_targets_own_steps():
    """Against the target's occupancy in the true world; the logs are plenty where they are."""
    mdp, target = Gridworld(5, seed=1).mdp(), target_policies(3, 5)[2]
    log = gridworld_logs(mdp, 6000, seed=1)
    assert design(log, target, horizon=5, method="scope").report.support == pytest.approx(
        1.0, abs=0.01
    )
    row = 2  # nobody has ever gone to the left from the middle column
    gone = (log.obs // 5 == row) & (log.action == 2)
    here, shown = mdp.initial, 0.0
    pi = target.table(5)
    hidden = np.zeros((25, 4), bool)
    hidden[np.arange(25) // 5 == row, 2] = True
    for t in range(5):
        step = here[:, None] * pi[t]
        shown += step[~hidden].sum()
        step = np.where(hidden, 0.0, step)  # nothing is known of what follows
        here = step.ravel() @ mdp.transition
    found = design(log.select(~gone), target, horizon=5, method="scope").report.support
    assert found == pytest.approx(shown / 5, abs=0.02)
    assert found < 0.9


def test_terminated_episodes_need_no_logs():
    rows = 400
    action = np.arange(rows) % 2
    log = Transitions(
        t=np.zeros(rows, int),
        obs=np.zeros(rows, int),
        action=action,
        reward=1.0 + action,
        cost=np.ones(rows),
        next_obs=np.zeros(rows, int),
        terminated=np.ones(rows, bool),
    )
    target = TabularPolicy(np.full((1, 2), 0.5))
    assert design(log, target, horizon=3, method="scope").report.support == pytest.approx(1.0)


@pytest.mark.parametrize("features", [True, False])
def test_a_control_variate_that_held_out_logs_do_not_bear_out_is_dropped(worlds, features):
    """A tenth of the rewards ten times too large: the plant is not so, but the logs are noisy."""
    rng = np.random.default_rng(0)
    for mdp, target, k in worlds[:3]:
        log = gridworld_logs(mdp, 1000, seed=k)
        spoilt = np.where(rng.random(len(log)) < 0.1, 10.0, 1.0)
        bad = Transitions(
            log.t, log.obs, log.action, log.reward * spoilt, log.cost, log.next_obs, log.terminated
        )
        place = cells(10) if features else None
        learned = design(bad, target, horizon=10, method="scope-dr", learn=Table(features=place))
        on_policy = exact.assess(mdp, target, target)
        truth = exact.assess(mdp, target, *learned.table(100))
        assert truth.variance <= 1.05 * on_policy.variance
        assert truth.cost <= 1.01 * on_policy.cost
        if learned.recipe.method.name != "scope-dr":
            thin = learned.report.support < 0.9
            why = "logs are too thin" if thin else "critics are too poor"
            assert f"the {why}" in learned.summary()


def test_one_deterministic_controller_teaches_nothing_about_other_actions(worlds):
    """Logs of a single controller: the other actions keep the target's probabilities exactly."""
    mdp, target, k = worlds[0]
    log = gridworld_logs(mdp, 300, seed=k)
    log = log.select(log.action == (log.obs * 7) % 4)
    learned = design(log, target, horizon=10, method="scope")
    mu, _ = learned.table(100)
    pi = target.table(10)
    seen = np.zeros((100, 4), bool)
    seen[log.obs, log.action] = True
    assert np.abs(mu - pi)[:, ~seen].max() < 1e-15
    assert np.abs(mu - pi).max() < 1e-12  # with one known action there is nothing to shift
    assert learned.report.support < 0.25
    assert "more episodes of controllers that act like the target policy" in learned.summary()
    on_policy = exact.assess(mdp, target, target)
    assert exact.assess(mdp, target, mu).variance == pytest.approx(on_policy.variance)


# -- the same answer every time ----------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    case = random_case(7, states=6, actions=3, horizon=5, time_varying=False, noisy=True)
    return case, rows_of(case, 1500, seed=7)


def test_the_same_seed_gives_the_same_bits(small, monkeypatch):
    case, log = small
    for regression in (Table(), MLPRegression(states=6, hidden=8, first_steps=40, steps=10)):
        one = design(log, case.target, horizon=5, seed=3, method="scope", learn=regression)
        monkeypatch.setattr("os.cpu_count", lambda: 7)
        monkeypatch.setattr("scopeval.solver.program.ROWS_PER_THREAD", 1)
        two = design(log, case.target, horizon=5, seed=3, method="scope", learn=regression)
        monkeypatch.undo()
        assert one.table(6)[0].tobytes() == two.table(6)[0].tobytes()
        assert one.recipe == two.recipe
        assert one.predicted == two.predicted
        other = design(log, case.target, horizon=5, seed=4, method="scope", learn=regression)
        assert other.predicted.checked_variance != one.predicted.checked_variance


def test_the_order_of_rows_does_not_matter_to_the_critics(small):
    """Folds are drawn by position, so the check may differ; the final critics do not."""
    case, log = small
    shuffled = log.select(np.random.default_rng(0).permutation(len(log)))
    one = design(log, case.target, horizon=5, method="odi", check=Check(floor=0.75))
    two = design(shuffled, case.target, horizon=5, method="odi", check=Check(floor=0.75))
    np.testing.assert_allclose(one.table(6)[0], two.table(6)[0], rtol=1e-9)
    for a, b in zip(one.critics, two.critics, strict=True):
        for name, values in a.arrays().items():
            np.testing.assert_allclose(values, b.arrays()[name], rtol=1e-9, atol=1e-12)


def test_progress_comes_to_its_end(small):
    case, log = small
    told = []
    design(log, case.target, horizon=5, progress=lambda *said: told.append(said), method="scope")
    steps = [i for _, i, _ in told]
    assert steps == list(range(1, len(told) + 1))  # a design that fails its check adds a sweep
    assert len(told) >= 30  # six sweeps of five steps
    assert told[-1] == ("design", len(told), len(told))


def test_the_next_observation_of_an_ended_episode_is_not_looked_at(small):
    case, log = small
    ended = np.random.default_rng(1).random(len(log)) < 0.3
    columns = [log.t, log.obs, log.action, log.reward, log.cost]
    one = Transitions(*columns, log.next_obs, ended)
    garbage = np.where(ended, 10**12, log.next_obs)
    two = Transitions(*columns, garbage, ended)
    mine = design(one, case.target, horizon=5, method="scope").table(6)[0]
    theirs = design(two, case.target, horizon=5, method="scope").table(6)[0]
    assert mine.tobytes() == theirs.tobytes()


# -- doubt -------------------------------------------------------------------------------------


def test_unseen_states_and_pairs_keep_the_target(small):
    case, log = small
    rows = (log.obs != 5) & (log.next_obs != 5) & ~((log.obs == 2) & (log.action == 1))
    target = np.tile(case.target[0], (1, 1)) * 0.7 + 0.1
    learned = design(log.select(rows), target, horizon=5, method="scope", check=Check(floor=0.0))
    pi = TabularPolicy(target)
    assert learned.recipe.method.name == "scope"
    for t in range(5):
        mu = learned.probs(np.arange(6), t)
        np.testing.assert_array_equal(mu[5], pi.probs(np.array([5]), t)[0])
        assert mu[2, 1] == pi.probs(np.array([2]), t)[0, 1]
        assert np.abs(mu[[0, 1, 3, 4]] - target[[0, 1, 3, 4]]).max() > 0.01
    assert learned.counts.unseen == 2 * 5
    assert learned.counts.asked == 6 * 5


class Broken:
    """A table whose answers are not finite for state 1, and for everything at t = 1."""

    def __init__(self, value, everywhere=False):
        self.inner, self.value, self.everywhere = Table(), value, everywhere
        self.name = "broken"

    def prepare(self, rows, actions):
        return self.inner.prepare(rows, actions)

    def learner(self, rows, actions, seed):
        learner, outer = self.inner.learner(rows, actions, seed), self

        class Learner:
            def fit(self, targets):
                fitted = learner.fit(targets)
                noise = fitted.noise.copy()
                noise[slice(None) if outer.everywhere else 1] = outer.value
                arrays = {**fitted.arrays(), "noise": noise}
                return TableCritic(**arrays)

        return Learner()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200, -3.0])
@pytest.mark.parametrize("everywhere", [False, True])
def test_critics_that_are_not_finite_keep_the_target(small, value, everywhere):
    case, log = small
    learned = design(
        log,
        case.target,
        horizon=5,
        method="scope",
        learn=Broken(value, everywhere),
        check=Check(floor=0.0),
    )
    for t in range(5):
        mu = learned.probs(np.arange(6), t)
        assert (mu >= 0).all()
        np.testing.assert_allclose(mu.sum(axis=1), 1.0, atol=1e-12)
        if not abs(value) < 10:
            np.testing.assert_array_equal(mu[1], case.target[t, 1])
    if learned.recipe.method.name != "on-policy" and not abs(value) < 10:
        assert learned.counts.not_finite == 5 * (6 if everywhere else 1)
    if everywhere and not abs(value) < 10:
        assert learned.recipe.method.name == "on-policy"
        assert learned.falls_back


def test_an_absolute_limit_can_be_out_of_reach(small):
    case, log = small
    loose = design(
        log, case.target, horizon=5, method="scope", promise=Promise(limit=1e6, per="state")
    )
    odi = design(log, case.target, horizon=5, method="odi")
    assert loose.predicted.variance < 1
    assert odi.predicted.variance < 1
    none = design(
        log, case.target, horizon=5, method="scope", promise=Promise(limit=0.0, per="state")
    )
    mu, _ = none.table(6)
    costly = (case.cost[0] > 0).all(axis=1)
    assert costly.any()
    np.testing.assert_allclose(mu[:, costly], case.target[:, costly], rtol=0, atol=1e-15)
    if none.recipe.method.name == "scope":
        assert "no affordable behavior exists under the absolute limit" in none.summary()
        none.probs(np.arange(6), 0)
        assert none.counts.infeasible >= costly.sum() - 1


def test_a_world_without_variance_stays_with_the_target():
    log = Transitions([0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1], [1.0] * 4, [0.0] * 4, [0] * 4)
    learned = design(log, np.full((1, 2), 0.5), horizon=1, method="scope")
    np.testing.assert_allclose(learned.probs(np.array([0]), 0), 0.5)
    assert learned.predicted.variance == pytest.approx(1.0)
    assert learned.predicted.cost == 1.0


@pytest.mark.parametrize("floor", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("method", METHODS)
def test_the_floor_holds(small, floor, method):
    case, log = small
    learned = design(log, case.target, horizon=5, method=method, check=Check(floor=floor))
    mu, _ = learned.table(6)
    assert learned.recipe.floor >= floor
    assert (mu >= floor * case.target - 1e-15).all()
    np.testing.assert_allclose(mu.sum(axis=2), 1.0, atol=1e-12)
    if method == "on-policy" or floor == 1.0:
        np.testing.assert_allclose(mu, case.target, atol=1e-15)


def test_epsilon_and_the_targets_own_cost_loosen_and_tighten():
    case = random_case(11, states=6, actions=4, horizon=5, time_varying=False, noisy=True)
    log = rows_of(case, 60_000, seed=0)

    def found(**how):
        mu, _ = design(log, case.target, horizon=5, check=Check(floor=0.0), **how).table(6)
        got = exact.assess(case.mdp, case.target, mu)
        own = exact.assess(case.mdp, case.target, case.target)
        return got.variance / own.variance, got.cost / own.cost

    tight, loose = (found(method="scope", promise=Promise(at_most=x)) for x in (1.0, 1.1))
    free = found(method="dopt")
    cautious = found(method=Method("scope", constrained=True, constraint="target"))
    assert tight[0] >= loose[0] - 1e-3
    assert tight[1] <= 1.003
    assert loose[1] <= 1.103
    assert cautious[1] <= 1.003
    assert cautious[0] >= tight[0] - 2e-3
    assert free[0] > 0


# -- arguments ---------------------------------------------------------------------------------


class Continuous:
    def candidates(self, obs, t, rng):
        return Candidates(np.zeros((len(obs), 2, 1)), np.full((len(obs), 2), 0.5))


def changed(log, **columns):
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    return Transitions(**{**{name: getattr(log, name) for name in names}, **columns})


BAD = {
    "horizon 0": ({"horizon": 0}, "horizon: got 0"),
    "horizon 2.5": ({"horizon": 2.5}, "horizon: got 2.5"),
    "horizon text": ({"horizon": "5"}, "horizon: got '5'"),
    "horizon none": ({"horizon": None}, "horizon: needed"),
    "horizon nan": ({"horizon": np.nan}, "horizon: got nan"),
    "horizon true": ({"horizon": True}, "horizon: got True"),
    "gamma 0": ({"gamma": 0}, r"gamma: got 0, expected a number in \(0, 1\]"),
    "gamma 1.1": ({"gamma": 1.1}, "gamma: got 1.1"),
    "gamma text": ({"gamma": "1"}, "gamma: got '1'"),
    "method": ({"method": "best"}, "method: got 'best', expected one of scope"),
    "method list": ({"method": ["scope"]}, r"method: got \['scope'\]"),
    "method none": ({"method": None}, "method: got None"),
    "method own": ({"method": Method("scope", tilted=False)}, "method: 'scope' is taken already"),
    "learn": ({"learn": "tree"}, "learn: got 'tree', expected Table"),
    "learn 3": ({"learn": 3}, "learn: got 3"),
    "seed -1": ({"seed": -1}, "seed: got -1"),
    "seed text": ({"seed": "x"}, "seed: got 'x'"),
    "features short": (
        {"learn": Table(features=np.zeros((5, 2)))},
        r"features: got shape \(5, 2\)",
    ),
    "features long": ({"learn": Table(features=np.zeros((7, 2)))}, r"expected \[6, d\]"),
    "features flat": (
        {"learn": Table(features=np.zeros(6))},
        r"features: got an array of shape \(6,\)",
    ),
    "features none": ({"learn": Table(features=np.zeros((6, 0)))}, r"features: got shape \(6, 0\)"),
    "features nan": ({"learn": Table(features=np.full((6, 1), np.nan))}, "features: nan at s=0"),
    "features text": ({"learn": Table(features=[["a"]] * 6)}, "features: cannot be read"),
    "target nan": ({"policy": np.full((6, 3), np.nan)}, "policy: NaN probability"),
    "target sums": ({"policy": np.full((6, 3), 0.5)}, "probabilities sum to 1.5"),
    "target wide": ({"policy": np.full((2, 6, 3), 1 / 3)}, "the table covers 0..1"),
    "target small": ({"policy": np.full((4, 3), 1 / 3)}, "state|table covers"),
    "target few actions": ({"policy": np.full((6, 2), 0.5)}, "actions=2"),
    "target number": ({"policy": 3}, "policy: got int"),
    "target nan late": (
        {"policy": lambda obs, t: np.full((len(obs), 3), np.nan if t == 1 else 1 / 3)},
        "policy: NaN probability",
    ),
    "target width": ({"policy": lambda obs, t: np.full((2, 3), 1 / 3)}, r"returned shape \(2, 3\)"),
    "target continuous": ({"policy": Continuous()}, "the target offers continuous actions"),
    "t beyond": ({"horizon": 3}, "3"),
    "one row": ({"logged": lambda log: log.select([0])}, r"got 1 row\(s\), expected at least 2"),
    "not a log": ({"logged": lambda log: "log.parquet"}, "try read_logs"),
    "number": ({"logged": lambda log: 3}, "try read_logs"),
    "none": ({"logged": lambda log: None}, "try read_logs"),
    "no batches": ({"logged": lambda log: iter([])}, "no batches"),
    "dict": ({"logged": lambda log: {"t": [0]}}, "or read_logs\\(columns\\)"),
    "negative action set": (
        {"logged": lambda log: changed(log, action=log.action + 1)},
        "actions=3",
    ),
    "continuous actions": (
        {"logged": lambda log: changed(log, action=np.zeros((len(log), 1)))},
        "the target offers action numbers",
    ),
    "vectors and table": (
        {
            "logged": lambda log: changed(
                log, obs=np.zeros((len(log), 2)), next_obs=np.zeros((len(log), 2))
            ),
            "policy": lambda obs, t: np.full((len(obs), 3), 1 / 3),
            "learn": Table(),
        },
        "Table needs state numbers",
    ),
    "streams of vectors": (
        {
            "logged": lambda log: [
                changed(log, obs=np.zeros((len(log), 2)), next_obs=np.zeros((len(log), 2)))
            ],
            "policy": lambda obs, t: np.full((len(obs), 3), 1 / 3),
        },
        "batches of a stream are merged, which needs state numbers",
    ),
    "streams and networks": (
        {"logged": lambda log: [log], "learn": MLPRegression()},
        "only a table can learn from",
    ),
    "state numbers like ids": (
        {
            "logged": lambda log: changed(log, obs=log.obs + 10**12),
            "policy": lambda obs, t: np.full((len(obs), 3), 1 / 3),
        },
        "holds state 1000000000005.*numbering the states",
    ),
    "a step without rows": (
        {"logged": lambda log: log.select(log.t != 2), "learn": Table(time_varying=True)},
        "no rows of time step 2",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named(small, name):
    case, log = small
    change, message = BAD[name]
    arguments = {"policy": case.target, "horizon": 5, **change}
    logged = arguments.pop("logged", lambda log: log)(log)
    with pytest.raises((InputError, DataError), match=message):
        design(logged, **arguments)


def test_two_rows_are_enough_to_answer():
    log = Transitions([0, 0], [0, 0], [0, 1], [1.0, 2.0], [1.0, 1.0], [0, 0])
    learned = design(log, np.full((1, 2), 0.5), horizon=1, method="scope")
    np.testing.assert_allclose(learned.probs(np.array([0]), 0).sum(), 1.0)
    assert learned.summary()


def test_logs_that_start_late_say_so(small):
    case, log = small
    learned = design(log.select(log.t >= 2), case.target, horizon=5, method="scope")
    assert "episodes are taken to start at t = 2" in learned.summary()
