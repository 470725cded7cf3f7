"""Episodes of a mixture, in a finite MDP and in Gymnasium environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from random_mdps import random_case
from scopeval import GaussianPolicy
from scopeval.collection.environments import open_environments
from scopeval.collection.simulated import TabularFleet
from scopeval.comparison.estimators import full_trajectory
from scopeval.comparison.mixture import MixtureEpisodes, MixtureRollout, running_weights
from scopeval.comparison.policy_set import PolicySet, shares_of
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError

HALF = np.array([0.5, 0.5])


def two_policies(seed: int = 3) -> tuple[Any, list[np.ndarray]]:
    case = random_case(seed, states=4, actions=3, horizon=5, absorbing=True)
    rng = np.random.default_rng(seed)
    return case.mdp, [case.target, 0.5 * case.target + 0.5 * rng.dirichlet(np.ones(3), (5, 4))]


def run(
    env: Any, policies: dict[str, Any], count: int, horizon: int, shares: Any = HALF
) -> MixtureEpisodes:
    with open_environments(env, cost="none") as pool:
        return MixtureRollout(pool, PolicySet(policies), horizon=horizon, seed=1).run(
            0, count, np.asarray(shares)
        )


def test_weights_are_those_of_the_recorded_actions():
    mdp, (old, new) = two_policies()
    e = run(TabularFleet(mdp, 64), {"old": old, "new": new}, 200, 5)
    assert len(e) == 200
    taken = np.stack([p[np.arange(5), e.obs, e.action] for p in (old, new)], axis=2)
    with np.errstate(divide="ignore"):
        log_probs = np.where(e.steps[:, :, None], np.log(taken), 0.0)
    assert e.weights == pytest.approx(running_weights(log_probs, HALF))
    assert (e.length < 5).any()  # some reach the absorbing state


def test_the_values_are_those_of_the_policies():
    """4,000 episodes; six standard errors: fails by chance once in 1e8."""
    from scopeval import assess

    mdp, (old, new) = two_policies()
    e = run(TabularFleet(mdp, 1000), {"old": old, "new": new}, 4000, 5, [0.3, 0.7])
    for k, policy in enumerate((old, new)):
        y = full_trajectory(e, mdp.gamma, np.zeros(2))[:, k]
        error = y.std() / np.sqrt(len(y))
        assert abs(y.mean() - assess(mdp, policy, policy).value) < 6 * error


def test_episodes_do_not_depend_on_how_many_run_side_by_side():
    mdp, (old, new) = two_policies()
    many = run(TabularFleet(mdp, 50), {"old": old, "new": new}, 50, 5)
    few = run(TabularFleet(mdp, 7), {"old": old, "new": new}, 50, 5)
    assert np.array_equal(many.action, few.action)
    assert many.weights == pytest.approx(few.weights)


def test_a_log_of_them_has_all_steps():
    mdp, (old, new) = two_policies()
    e = run(TabularFleet(mdp, 50), {"old": old, "new": new}, 50, 5)
    log = e.transitions()
    assert len(log) == e.length.sum()
    first = int(e.length[0])
    assert log.next_obs[: first - 1].tolist() == e.obs[0, 1:first].tolist()
    assert log.next_obs[first - 1] == e.last_obs[0]
    assert log.terminated.sum() == e.terminated.sum()


def test_gymnasium_environments_and_functions():
    mdp, (old, new) = two_policies()
    policies = {"old": lambda obs, t: old[t, obs], "new": new}
    e = run(lambda: TabularEnv(mdp), policies, 30, 5)
    assert len(e) == 30
    assert e.weights @ HALF == pytest.approx(1.0)


def test_a_policy_that_fails_in_mid_episode_takes_no_part_and_the_others_stay_unbiased():
    """2,000 episodes, six standard errors."""
    from scopeval import assess

    mdp, (old, new) = two_policies()

    def failing(obs: Any, t: int) -> np.ndarray:
        probs = np.array(old[t, obs])
        probs[(obs == 1) & (t >= 2)] = np.nan
        return probs

    class Failing:
        probs = staticmethod(failing)

    thirds = np.full(3, 1 / 3)
    e = run(TabularFleet(mdp, 500), {"old": old, "new": new, "bad": Failing()}, 2000, 5, thirds)
    assert e.failed[:, 2].any()
    assert not e.failed[:, :2].any()
    (failure,) = e.failures
    assert failure.policy == 2
    assert failure.step >= 2
    assert "NaN" in failure.reason
    assert e.weights @ thirds == pytest.approx(1.0)
    for k, policy in enumerate((old, new)):
        y = full_trajectory(e, mdp.gamma, np.zeros(3))[:, k]
        assert abs(y.mean() - assess(mdp, policy, policy).value) < 6 * y.std() / np.sqrt(len(y))


class Line:
    """One number that the action moves; the reward is the action's part in the box."""

    action_space = None

    def reset(self, *, seed: int) -> Any:
        self.x = np.zeros(1)
        return self.x, {}

    def step(self, action: Any) -> Any:
        self.x = self.x + action
        return self.x, float(action[0]), False, False, {}


def gaussian(mean: float) -> GaussianPolicy:
    return GaussianPolicy(lambda obs, t: np.full((len(obs), 1), mean), [0.0], low=[-1], high=[1])


def test_gaussian_policies_by_the_density_of_what_was_drawn():
    """A clipped normal has a known mean; 3,000 episodes of 2 steps, six standard errors."""
    from scipy.stats import norm

    e = run(Line, {"old": gaussian(0.0), "new": gaussian(0.3)}, 3000, 2)
    assert (np.abs(e.action) == 1).mean() > 0.2  # clipped: no density of its own there
    for k, mean in enumerate((0.0, 0.3)):
        low, high = -1 - mean, 1 - mean
        inside = norm.pdf(low) - norm.pdf(high) + mean * (norm.cdf(high) - norm.cdf(low))
        truth = 2 * (inside - norm.cdf(low) + norm.sf(high))
        y = full_trajectory(e, 1.0, np.zeros(2))[:, k]
        assert abs(y.mean() - truth) < 6 * y.std() / np.sqrt(len(y))
    assert 0 < e.weights[:, -1].min() < 0.9  # episodes are shared


class Fixed:
    """A deterministic controller of continuous actions."""

    def candidates(self, obs: Any, t: Any, rng: Any) -> Any:
        from scopeval.policies.protocols import Candidates

        return Candidates(np.full((len(obs), 1, 1), 0.25), np.ones((len(obs), 1)))


def test_a_controller_without_density_shares_no_episode():
    e = run(Line, {"old": Fixed(), "new": gaussian(0.0)}, 200, 2)
    final = e.weights[:, -1]
    assert set(np.unique(final.round(9)).tolist()) == {0.0, 2.0}
    assert (e.action[final[:, 0] > 1] == 0.25).all()


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ([1, 2], "expected a dict of names and policies"),
        ({"old": np.ones((2, 2)) / 2}, "expected at least two"),
        ({str(k): np.ones((2, 2)) / 2 for k in range(100)}, "expected at most 20"),
        (
            {"old": np.ones((2, 2)) / 2, 3: np.ones((2, 2)) / 2},
            "expected words on one line as names",
        ),
        (
            {"old": np.ones((2, 2)) / 2, " ": np.ones((2, 2)) / 2},
            "expected words on one line as names",
        ),
        ({"old": np.ones((2, 2)) / 2, "new": gaussian(0.0)}, "over the same actions"),
        ({"old": np.ones((2, 2)) / 2, "new": "what"}, "policies['new']"),
    ],
)
def test_policies_that_cannot_be_compared(policies: Any, said: str):
    with pytest.raises(InputError) as error:
        PolicySet(policies)
    assert said in str(error.value)


def test_different_action_sets_and_shares_that_are_none():
    mdp, (old, new) = two_policies()
    with pytest.raises(InputError, match="different numbers of actions"):
        run(TabularFleet(mdp, 5), {"old": old, "new": np.ones((5, 4, 2)) / 2}, 5, 5)
    two = PolicySet({"old": old, "new": new})
    for bad in ([0.5, 0.6], [1.0, 0.0], {"old": 1.0}, [1.0]):
        with pytest.raises(InputError, match="shares"):
            shares_of(two, bad)
    assert shares_of(two, {"new": 0.1, "old": 0.9}).tolist() == [0.9, 0.1]


def test_a_policy_that_never_answers_is_an_error_at_once():
    mdp, (old, _) = two_policies()
    with pytest.raises(InputError, match=r"policies\['new'\]"):
        run(TabularFleet(mdp, 5), {"old": old, "new": lambda obs, t: 1 / 0}, 5, 5)


@pytest.mark.parametrize("how", ["NaN", "an exception"])
@pytest.mark.parametrize("kind", ["with a density", "without"])
def test_a_continuous_policy_that_fails_takes_no_part_and_the_others_stay_unbiased(
    how: str, kind: str
):
    """4,000 episodes of 3 steps, six standard errors; the third fails where x is above 0.3."""
    from scipy.stats import norm

    def mean(obs: Any, t: int) -> np.ndarray:
        out = np.full((len(obs), 1), 0.4)
        if (bad := np.asarray(obs)[:, 0] > 0.3).any() and how == "an exception":
            raise RuntimeError("no reading")
        out[bad] = np.nan
        return out

    class Drawing:
        def candidates(self, obs: Any, t: Any, rng: Any) -> Any:
            from scopeval.policies.protocols import Candidates

            return Candidates(mean(obs, t)[:, None], np.ones((len(obs), 1)))

    bad = GaussianPolicy(mean, [0.0], low=[-1], high=[1]) if kind == "with a density" else Drawing()
    several = {"old": gaussian(0.0), "new": gaussian(0.3), "bad": bad}
    e = run(Line, several, 4000, 3, np.full(3, 1 / 3))
    assert not e.lost
    assert not e.failed[:, :2].any()
    assert [one.policy for one in e.failures] == [2]
    assert e.failures[0].reason
    assert e.weights @ np.full(3, 1 / 3) == pytest.approx(1.0)
    if kind == "without":  # it is asked only where the episode can be its own
        assert (e.weights[e.failed[:, 2], -1, 2] > 0).all()
        assert e.failed[:, 2].any()
    for k, center in enumerate((0.0, 0.3)):
        low, high = -1 - center, 1 - center
        inside = norm.pdf(low) - norm.pdf(high) + center * (norm.cdf(high) - norm.cdf(low))
        truth = 3 * (inside - norm.cdf(low) + norm.sf(high))
        y = full_trajectory(e, 1.0, np.zeros(3))[:, k]
        assert abs(y.mean() - truth) < 6 * y.std() / np.sqrt(len(y))


def test_a_density_of_one_point_and_a_continuous_policy_that_never_answers_are_errors():
    point = GaussianPolicy(lambda obs, t: np.zeros((len(obs), 1)), [-np.inf], low=[-1], high=[1])
    nothing = GaussianPolicy(lambda obs, t: np.full((len(obs), 1), np.nan), 0.0, low=[-1], high=[1])
    for bad, said in ((point, "infinity|standard"), (nothing, "NaN")):
        with pytest.raises(InputError, match=rf"policies\['new'\].*{said}"):
            run(Line, {"old": gaussian(0.0), "new": bad}, 5, 2)


def test_where_only_a_policy_without_a_share_answers_the_episode_is_lost():
    """Nobody who may act has an answer: no action is made up."""
    mdp, (old, new) = two_policies()

    def failing(obs: Any, t: int) -> np.ndarray:
        probs = np.array(old[t, obs])
        probs[obs == 1] = np.nan
        return probs

    e = run(TabularFleet(mdp, 50), {"old": failing, "new": new}, 200, 5, np.array([1.0, 0.0]))
    assert e.lost
    assert all("no policy gave an answer" in one.reason for one in e.lost)
    assert not (e.obs == 1)[e.steps].any()
