"""What runs today takes over: limits, failures, refuted promises, designs that nothing confirms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from scopeval import (
    Baseline,
    CallablePolicy,
    Inference,
    Limit,
    Promise,
    Stages,
    TabularPolicy,
    Transitions,
    design,
    evaluate,
    exact,
)
from scopeval.collection import rollout as rollouts
from scopeval.collection.environments import open_environments
from scopeval.collection.rollout import Rollout
from scopeval.envs.gridworld import Gridworld, logs_of, target_policies
from scopeval.errors import InputError
from scopeval.estimation.estimators import doubly_robust, pdis, pdis_cost
from scopeval.policies.protocols import Weighing

T, S, A = 3, 3, 2
LIMIT = 1.4


class Walk:
    """Three states in a ring; every action has a reward and a cost of its own."""

    rewards = np.random.default_rng(0).normal(size=(T, S, A))
    costs = np.random.default_rng(1).uniform(0.2, 1.2, size=(T, S, A))

    def reset(self, *, seed=None, options=None):
        self.t = self.s = 0
        return self.s, {}

    def step(self, action):
        reward, cost = self.rewards[self.t, self.s, action], self.costs[self.t, self.s, action]
        self.t, self.s = self.t + 1, (self.s + 1 + int(action)) % S
        return self.s, float(reward), False, False, {"cost": float(cost)}


class Failing:
    """Mu with a control variate; where it is asked at `bad` its answer is no distribution."""

    def __init__(self, mu, control, bad):
        self.mu, self.control, self.bad = mu, control, bad

    def weigh(self, offered, obs, t, state):
        probs = self.mu[t, np.asarray(obs)].copy()
        if self.bad is not None and t == self.bad[0]:
            probs[np.asarray(obs) == self.bad[1]] = np.nan
        return Weighing(probs, self.control[t, np.asarray(obs)])


def tables(seed):
    rng = np.random.default_rng(seed)
    pi, mu, old = (rng.dirichlet(np.ones(A), (T, S)) for _ in range(3))
    return pi, mu, old, rng.normal(size=(T, S, A))


def paths(first, then, bad):
    """All sequences of actions with their probability under `first` until a limit, then `then`.

    Independent of the code under test: (actions, probability, return, cost, steps of `then`).
    """
    for actions in itertools.product(range(A), repeat=T):
        s, chance, value, cost, late, handed = 0, 1.0, 0.0, 0.0, 0, False
        for t, a in enumerate(actions):
            handed = handed or (bad is not None and (t, s) == bad)
            chance *= (then if handed else first)[t, s, a]
            late += handed
            value += Walk.rewards[t, s, a]
            cost += Walk.costs[t, s, a]
            handed = handed or cost > LIMIT
            s = (s + 1 + a) % S
        yield actions, chance, value, cost, late


@pytest.mark.parametrize("bad", [None, (0, 0), (1, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_episodes_are_about_the_policy_until_the_limit_and_then_the_baseline(
    seed, bad, monkeypatch
):
    """The sum over all trajectories: unbiased for that value and for the baseline's own cost."""
    pi, mu, old, control = tables(seed)
    runs = list(paths(mu, old, bad))
    script = {"actions": (), "t": 0}

    def scripted(probs, uniforms):
        chosen = script["actions"][script["t"]]
        script["t"] += 1
        return np.array([chosen])

    monkeypatch.setattr(rollouts, "draw_actions", scripted)
    run = Rollout(
        open_environments(Walk()),
        TabularPolicy(pi),
        Failing(mu, control, bad),
        horizon=T,
        seed=0,
        guard_step=lambda paid: paid > LIMIT,
        baseline=TabularPolicy(old),
    )
    value = plain = own = 0.0
    for k, (actions, chance, _, _, late) in enumerate(runs):
        script.update(actions=actions, t=0)
        episodes = run.run(k, 1)
        recorded = float(np.prod(episodes.behavior_prob[0]))
        assert recorded == pytest.approx(chance, abs=1e-12)
        assert int(episodes.guarded[0]) == late
        last = T - late
        np.testing.assert_array_equal(
            episodes.behavior_prob[0, last:], episodes.target_prob[0, last:]
        )
        value += chance * float(doubly_robust(episodes)[0])
        plain += chance * float(pdis(episodes)[0])
        own += chance * float(pdis_cost(episodes)[0])
    truth = sum(chance * total for _, chance, total, _, _ in paths(pi, old, bad))
    spent = sum(chance * cost for _, chance, _, cost, _ in paths(pi, old, bad))
    assert sum(chance for _, chance, *_ in runs) == pytest.approx(1.0)
    assert value == pytest.approx(truth, abs=1e-12)
    assert plain == pytest.approx(truth, abs=1e-12)
    assert own == pytest.approx(spent, abs=1e-12)
    assert sum(late > 0 for *_, late in runs) > 0


def test_without_a_baseline_the_target_takes_the_rest():
    pi, mu, _, control = tables(0)
    run = Rollout(
        open_environments(Walk()),
        TabularPolicy(pi),
        Failing(mu, control, None),
        horizon=T,
        seed=0,
        guard_step=lambda paid: paid > 0.0,
    )
    episodes = run.run(0, 50)
    assert (episodes.guarded == T - 1).all()
    at = np.arange(50)[:, None], np.arange(1, T)[None]
    np.testing.assert_allclose(
        episodes.target_prob[at], pi[at[1], episodes.obs[at], episodes.action[at]]
    )


def test_a_limit_is_counted_and_the_episodes_go_on():
    pi, mu, old, _ = tables(1)
    found = evaluate(
        Walk,
        pi,
        mu,
        horizon=T,
        episodes=200,
        promise=[Promise(at_most=9.0), Limit(episode=LIMIT)],
        baseline=old,
        inference=Inference(keep=True),
    )
    handed = int((found.episodes.guarded > 0).sum())
    assert 0 < handed < 200
    assert found.finished == 200
    assert found.guard.switched_after is None
    words = f"the baseline took the rest of {handed} of 200 episodes"
    assert any(words in text for text in found.diagnostics.warnings)
    assert words in " ".join(found.summary().split())


def test_a_refuted_promise_ends_the_evaluation_and_the_baseline_goes_on():
    pi, mu, _, _ = tables(1)
    cheap = np.zeros((S, A))
    cheap[np.arange(S), Walk.costs.mean(axis=0).argmin(axis=1)] = 1.0
    covering = 0.9 * cheap + 0.1 * pi[0]
    found = evaluate(
        Walk, pi, mu, horizon=T, episodes=4000, promise=Promise(at_most=0.5), baseline=covering
    )
    assert found.finished < 4000
    assert found.by_target == 0
    assert found.stopped.startswith("stopped by the guard: the promise is refuted")
    assert found.stopped.endswith("the baseline goes on")


def test_the_target_itself_is_guarded_against_the_baselines_cost():
    pi, _, old, _ = tables(1)
    found = evaluate(Walk, pi, horizon=T, episodes=4000, promise=Promise(at_most=0.3), baseline=old)
    assert found.stopped.startswith("stopped by the guard: the promise is refuted")
    assert found.certificate.compared == "reference"


@pytest.fixture(scope="module")
def unconfirmed():
    """A design from logs that show one action only."""
    zeros = np.zeros(12, np.int64)
    log = Transitions(np.arange(12) % 3, zeros, zeros, np.ones(12), np.ones(12), zeros)
    made = design(log, np.full((S, A), 0.5), horizon=T)
    assert made.falls_back
    return made


def test_a_design_that_the_logs_do_not_confirm_is_said_first(unconfirmed):
    target, old = np.full((S, A), 0.5), tables(0)[2]
    first = unconfirmed.summary().splitlines()[0]
    assert first.startswith("Runs your own policy: the logs confirm no design: ")
    assert unconfirmed.summary().count(unconfirmed.report.fallback) == 1
    for baseline in (None, old):
        found = evaluate(Walk, target, unconfirmed, episodes=60, baseline=baseline)
        assert found.unconfirmed == unconfirmed.report.fallback
        said = "The policy itself was run, the logs confirm no design: "
        assert found.sentence.startswith(said)
        assert found.summary().startswith(said)


def test_a_design_that_the_logs_do_not_confirm_can_be_refused(unconfirmed):
    careful = Baseline(tables(0)[2], unconfirmed="refuse")
    with pytest.raises(InputError, match=r"the logs confirm no design .*; nothing was run"):
        evaluate(Walk, np.full((S, A), 0.5), unconfirmed, episodes=60, baseline=careful)


def test_a_baseline_with_other_actions_is_refused():
    pi, mu, _, _ = tables(0)
    wide = CallablePolicy(lambda obs, t: np.full((len(obs), 3), 1 / 3))
    with pytest.raises(InputError, match=r"baseline: returned probabilities of shape"):
        evaluate(Walk, pi, mu, horizon=T, episodes=60, promise=Limit(episode=0.5), baseline=wide)


@pytest.fixture(scope="module")
def grid():
    mdp = Gridworld(4, "same-tilt", seed=0).mdp()
    return mdp, *target_policies(2, 4)


@pytest.mark.parametrize("logged", [0, 300])
def test_stages_promise_what_the_baseline_costs(grid, logged):
    """Every stage, that of the target itself included, is judged by the baseline's cost."""
    mdp, pi, old = grid
    logs = logs_of(mdp, [pi, old], logged, seed=1) if logged else None
    ratio = exact.assess(mdp, pi, pi).cost / exact.assess(mdp, old, old).cost
    stages = Stages(logs=logs, first=100)
    found = evaluate(
        mdp, pi, stages, episodes=600, promise=Promise(at_most=1.3 * ratio), baseline=old, seed=3
    )
    assert found.finished == 600
    assert found.certificate.compared == "reference"
    assert found.certificate.episodes == 600
    assert found.certificate.verdict != "refuted"
    # by weights of the baseline, which the designs for the target do not keep small
    assert found.certificate.target_cost == pytest.approx(exact.assess(mdp, old, old).cost, rel=0.3)
    assert {stage.epsilon for stage in found.stages} == {found.certificate.epsilon}
    assert abs(found.estimate - exact.assess(mdp, pi, pi).value) < 4 * found.interval.half_width


def test_stages_end_when_the_promise_is_refuted(grid):
    mdp, pi, old = grid
    found = evaluate(
        mdp, pi, Stages(first=300), episodes=3000, promise=Promise(at_most=0.2), baseline=old
    )
    assert found.finished < 3000
    assert found.stopped.startswith("stopped by the guard: the promise is refuted")
    assert found.stopped.endswith("the baseline goes on")
