"""Mistakes that are easy to make end in a message that says what to try."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scopeval import (
    Campaign,
    EpisodeLog,
    Inference,
    Limit,
    Plant,
    Promise,
    Stages,
    Table,
    TabularPolicy,
    Transitions,
    as_policy,
    collect,
    compare,
    design,
    estimate,
    evaluate,
    exact,
    frontier,
    read_logs,
)
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import DataError, InputError, PlantError

SIZE = 4


@pytest.fixture(scope="module")
def world():
    """An environment, a target policy, another one, and a behavior policy for the first."""
    mdp = Gridworld(SIZE, seed=0).mdp()
    target, other = target_policies(2, SIZE)
    logs = gridworld_logs(mdp, 300, seed=1)
    return mdp, target, other, design(logs, target, horizon=mdp.horizon)


def replace_columns(log, **changes):
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    return Transitions(**{name: getattr(log, name) for name in names} | changes)


def refused(words, call):
    with pytest.raises(InputError, match=words):
        call()


# -- target and behavior policy --------------------------------------------------------------------


def test_target_and_behavior_that_are_swapped(world):
    mdp, target, _, behavior = world
    refused("are the two arguments swapped", lambda: evaluate(mdp, behavior, target, episodes=20))
    refused("are the two arguments swapped", lambda: collect(mdp, behavior, target, episodes=20))


@pytest.mark.parametrize("kind", ["table", "function"])
def test_a_behavior_that_was_designed_for_another_target(kind, world, tmp_path):
    mdp, target, other, behavior = world
    if kind == "function":
        logs = gridworld_logs(mdp, 300, seed=1)
        table, another = target.table(1)[0], other.table(1)[0]
        target, other = (lambda obs, t: table[obs]), (lambda obs, t: another[obs])
        behavior = design(logs, target, horizon=mdp.horizon)
    words = "is not the policy that the behavior policy was designed for"
    plant = lambda: TabularEnv(mdp)  # noqa: E731
    refused(words, lambda: evaluate(mdp, other, behavior, episodes=20))
    refused(words, lambda: evaluate(plant, other, behavior, episodes=20))
    refused(words, lambda: collect(plant, other, behavior, horizon=mdp.horizon, episodes=5))
    refused(words, lambda: EpisodeLog(mdp.horizon, target=other, behavior=behavior))
    again = TabularPolicy(target.table(1)[0]) if kind == "table" else lambda obs, t: table[obs]
    found = evaluate(plant, again, behavior, episodes=60, inference=Inference(keep=True))
    estimate(found.episodes, other)  # and so the other one is evaluated


def test_a_campaign_with_the_behavior_of_another_target(world, tmp_path):
    mdp, _, other, behavior = world
    refused(
        "is not the policy that the behavior policy was designed for",
        lambda: Campaign.create(
            tmp_path / "a.campaign", other, horizon=mdp.horizon, behavior=behavior
        ),
    )


# -- what a target policy gives --------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 7])
def test_a_module_that_ends_in_a_softmax(rows):
    torch.manual_seed(0)
    body = torch.nn.Linear(3, 4)
    ends = torch.nn.Sequential(body, torch.nn.Softmax(dim=1))
    obs = np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)
    plant = NoPlant()
    refused(
        "probabilities .* expected logits", lambda: evaluate(plant, ends, horizon=3, episodes=1)
    )
    refused("try the module without its softmax", lambda: as_policy(ends).probs(obs, 0))
    with torch.inference_mode():
        wanted = ends(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(as_policy(body).probs(obs, 0), wanted, rtol=1e-6)


class NoPlant:
    """One observation, and no episode."""

    action_space = observation_space = None

    def reset(self, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, True, False, {"cost": 0.0}


def test_functions_that_are_no_policies(world):
    mdp, target, _, _ = world
    table = target.table(1)[0]
    refused(r"does not take \(obs, t\)", lambda: evaluate(mdp, lambda obs: table[obs], episodes=9))
    best = table.argmax(axis=1)
    words = r"whole numbers, which look like actions.*np.eye\(A\)"
    refused(words, lambda: evaluate(mdp, lambda obs, t: best[obs], episodes=9))
    words = r"returned 1, which looks like an action.*deterministic\(f, actions=A\)"
    refused(words, lambda: evaluate(mdp, lambda obs, t: 1, episodes=9))
    evaluate(mdp, lambda obs, t, scale=1.0: table[obs], episodes=9)  # a third may have a default
    evaluate(mdp, lambda *asked: table[asked[0]], episodes=9)


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.95, 95, "0.05", 0.0, float("nan")])
def test_a_confidence_instead_of_a_probability_of_error(alpha):
    refused("probability of an error.*try alpha=0.05", lambda: Inference(alpha=alpha))


@pytest.mark.parametrize("at_most", [50, 105.0])
def test_percent_instead_of_a_multiple(at_most):
    refused("1.1: 10 % more", lambda: Promise(at_most=at_most))


@pytest.mark.parametrize("at_most", [0, -1, -0.3])
def test_nothing_may_be_spent(at_most):
    refused("expected a number above 0.*0.7: 30 % less", lambda: Promise(at_most=at_most))


def test_a_campaign_stops_as_an_evaluation_does(world, tmp_path):
    mdp, target, _, _ = world
    how = {"horizon": mdp.horizon}
    with Campaign.create(tmp_path / "a.campaign", target, episodes=50, **how) as campaign:
        assert campaign.terms.stop.episodes == 50
    words = r"stop: got 50, expected Stop\(...\), or try episodes=1000"
    refused(words, lambda: Campaign.create(tmp_path / "b.campaign", target, stop=50, **how))


def test_a_baseline_that_is_a_policy_beside_policies_with_names(world, tmp_path):
    mdp, target, other, _ = world
    table, where = target.table(1)[0], tmp_path / "a.campaign"
    policies = {"today": table, "new": other.table(1)[0]}
    words = r"baseline: got .*expected one of \['today', 'new'\]"
    for wrong in (table, ["today"], "old"):
        refused(
            f"(?s){words}",
            lambda b=wrong: Campaign.create(where, policies, horizon=mdp.horizon, baseline=b),
        )


def test_an_observation_that_is_no_state_of_the_target(world, tmp_path):
    mdp, target, _, _ = world
    with Campaign.create(tmp_path / "a.campaign", target, horizon=mdp.horizon) as campaign:
        episode = campaign.start("plant")
        episode.act(0)
        words = r"next_obs: got 16 at t=0, expected a state of the target policy, 0\.\.15"
        refused(words, lambda: episode.observe(1.0, 1.0, SIZE * SIZE))
        episode.observe(1.0, 1.0, SIZE * SIZE - 1)


def test_what_is_run_and_how_it_follows(world):
    """Each argument is named by its own name."""
    mdp, target, other, _ = world
    few = collect(mdp, target, episodes=5)
    for words, call in (
        ("^run: got str", lambda: evaluate(mdp, target, "scope", episodes=9)),
        (r"^run: got the class Stages.*try Stages\(\.\.\.\)",
         lambda: evaluate(mdp, target, Stages, episodes=9)),
        ("^run: got int, expected the behavior policy", lambda: estimate(few, run=5)),
        ("^baseline: got int", lambda: evaluate(mdp, target, episodes=9, baseline=3)),
        ("^policy: got dict.*for compare",
         lambda: evaluate(mdp, {"today": target, "new": other}, episodes=9)),
        (r"^inference: got dict, expected Inference\(",
         lambda: evaluate(mdp, target, episodes=9, inference={"alpha": 0.1})),
        ("^inference: got float", lambda: estimate(few, inference=0.1)),
        ("^inference: got float",
         lambda: compare(mdp, {"a": target, "b": other}, episodes=9, inference=0.1)),
        (r"^return_bound: got 3, expected \(low, high\)", lambda: Inference(return_bound=3)),
    ):  # fmt: skip
        refused(words, call)


def test_a_limit_that_cannot_act(world):
    mdp, target, *_ = world
    refused("limit of -3 on the cost", lambda: Limit(episode=-3.0))
    Limit("temperature", step=-3.0)  # other signals may be negative
    words = "the target itself runs, so that there is nothing to hand over to; expected baseline="
    limit = Limit(episode=1.0)
    plant = lambda: TabularEnv(mdp)  # noqa: E731
    for env in (mdp, plant):
        refused(words, lambda env=env: evaluate(env, target, horizon=6, episodes=9, promise=limit))
    evaluate(plant, target, horizon=6, episodes=9, promise=limit, baseline=target)


def test_numbers_instead_of_episodes():
    refused("got list, expected Episodes, as collect", lambda: estimate([1.0, 2.0]))


# -- designs in a finite MDP -----------------------------------------------------------------------


def test_collect_takes_what_evaluate_takes(world):
    """Every kind of behavior policy, in a `TabularMDP`; 4 standard errors: 6e-5 for each of 5."""
    mdp, target, _, behavior = world
    logs = gridworld_logs(mdp, 1000, seed=1)
    curve = frontier(logs, target, horizon=mdp.horizon, learn=Table(features=cells(SIZE)))
    table = target.table(1)[0]
    value = exact.assess(mdp, target, target).value
    for pi, run in (
        (target, behavior),
        (target, curve.best()),
        (target, exact.design(mdp, target)),
        (target, exact.frontier(mdp, target).at(cost=0.8)),
        (lambda obs, t: table[obs], None),
    ):
        episodes = collect(mdp, pi, run, episodes=400, seed=3)
        assert len(episodes) == 400
        found = estimate(episodes)
        assert abs(found.estimate - value) < 4.0 * found.interval.half_width / 1.96
        with_b = run is not None and getattr(run, "control", True) is not None
        assert (episodes.control is not None) == (episodes.baseline is not None) == with_b


def test_a_table_in_another_form_is_the_same_target(world):
    """Only answers can be compared then."""
    mdp, target, _, behavior = world
    table = target.table(1)[0]
    plant = lambda: TabularEnv(mdp)  # noqa: E731
    collect(plant, lambda obs, t: table[obs], behavior, horizon=mdp.horizon, episodes=2)


# -- functions and networks of another form --------------------------------------------------------


def test_a_cost_function_of_other_arguments(world):
    mdp, target, *_ = world
    log = gridworld_logs(mdp, 20, seed=1)
    columns = {name: getattr(log, name) for name in ("t", "obs", "action", "reward", "next_obs")}
    refused(
        r"cost: the function raised TypeError: .*; expected cost\(obs, action, reward, next_obs\)",
        lambda: read_logs(columns, cost=lambda obs, action, reward: reward),
    )
    plant = Plant(lambda: TabularEnv(mdp), cost=lambda obs, action, reward, following: 0.0)
    with pytest.raises(PlantError, match=r"expected cost\(obs, action, reward, next_obs, info\)"):
        collect(plant, target, horizon=3, episodes=2)


def test_a_function_of_one_observation():
    refused(r"lambda obs, t: \[f\(o\) for o in obs\]", lambda: as_policy(lambda obs: [0.5, 0.5]))


def test_a_network_of_other_observations():
    policy = as_policy(torch.nn.Linear(3, 2))
    words = r"cannot take observations of shape \(5, 4\) \(mat1 and mat2 shapes"
    refused(words, lambda: policy.probs(np.zeros((5, 4)), 0))


def test_actions_numbered_from_one(world):
    mdp, target, *_ = world
    log = gridworld_logs(mdp, 100, seed=1)
    wrong = replace_columns(log, action=log.action + 1)
    with pytest.raises(DataError, match="are actions numbered from 1"):
        design(wrong, target, horizon=SIZE)
    assert "numbered from 1" not in design(log, target, horizon=SIZE).summary()


def test_a_negative_cost(world):
    log = gridworld_logs(world[0], 20, seed=1)
    refused(
        "costs are amounts, at least 0; a constant .* changes what a promise",
        lambda: replace_columns(log, cost=log.cost - 1.0),
    )
