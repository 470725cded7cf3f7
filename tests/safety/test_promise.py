"""Whose cost: a reference policy or a limit instead of the target, in design and evaluation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scopeval import (
    Bound,
    GaussianPolicy,
    Inference,
    Promise,
    Stages,
    TabularPolicy,
    as_policy,
    collect,
    design,
    estimate,
    evaluate,
    exact,
    load,
)
from scopeval.envs.gridworld import Gridworld, logging_policies, logs_of, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import InputError
from scopeval.safety.costs import costs_of
from small_worlds import every_trajectory, random_mdp, random_rows

MDP = Gridworld(5, "same-tilt", seed=0).mdp()
PI, INCUMBENT = target_policies(2, 5)
MU = exact.design(MDP, PI, "scope")
COST = {name: exact.assess(MDP, p, p).cost for name, p in (("pi", PI), ("incumbent", INCUMBENT))}
OWN = exact.assess(MDP, PI, MU).cost


@pytest.mark.parametrize("seed", range(4))
def test_the_references_cost_by_enumeration(seed: int) -> None:
    """Over all trajectories the weighted cost is the reference's, or too small where uncovered."""
    rng = np.random.default_rng(seed)
    mdp = random_mdp(rng, gamma=0.9, ends=bool(seed % 2))
    T, S, A = mdp.horizon, mdp.states, mdp.actions
    pi, mu, nu = (random_rows(rng, T, S, A) for _ in range(3))
    truth = mdp.initial @ exact.cost_values(mdp, TabularPolicy(nu)).v[0]
    promise = Promise(of=TabularPolicy(nu))
    holes = pi.copy()
    holes[1] = [0.0, 1.0]
    for table, covered in ((pi, True), (holes, False)):
        target = TabularPolicy(table)
        behavior = TabularPolicy(mu if covered else table)
        episodes, chance = every_trajectory(mdp, target, behavior, ends=bool(seed % 2))
        costs = costs_of(episodes, 0.9, None, promise, target)
        assert costs.covered == covered
        if covered:
            assert chance @ costs.weighted_cost == pytest.approx(truth, abs=1e-12)
        else:
            assert chance @ costs.weighted_cost < truth - 1e-6


def test_a_limit_needs_no_weights() -> None:
    episodes = collect(MDP, PI, MU, episodes=300)
    costs = costs_of(episodes, 1.0, None, Promise(limit=2.0))
    assert costs.weight is None
    assert (costs.weighted_cost == 2.0).all()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("bounded", [False, True])
def test_limits_are_judged(keep: bool, bounded: bool) -> None:
    """20 % above and below what an episode costs: safe and refuted, in the words of a limit."""
    bound = Bound(step=1.0) if bounded else Bound()
    for share, verdict in ((1.2, "safe"), (0.8, "refuted")):
        found = evaluate(
            MDP,
            PI,
            MU,
            episodes=2000,
            promise=Promise(limit=share * OWN, bound=bound, action="tell"),
            inference=Inference(keep=keep),
        )
        c = found.certificate
        assert c is not None
        assert c.verdict == verdict
        assert c.proved == bounded
        assert c.compared == "limit"
        assert f"the limit of {share * OWN:.4g} per episode" in c.sentence
        assert c.ratio.contains(1 / share)
        assert "target" not in c.sentence
        assert not math.isnan(c.ratio.high)


@pytest.mark.parametrize("environment", [False, True])
def test_a_reference_is_judged(environment: bool) -> None:
    """The incumbent's own cost is found by weights; promises 15 % above and below it are told."""
    env = TabularEnv(MDP) if environment else MDP
    many, ratio = (600 if environment else 20_000), OWN / COST["incumbent"]
    unsure = {"not enough evidence", "not refuted"} if environment else {"not enough evidence"}
    for share, verdicts in ((1.3, {"safe"} | unsure), (0.7, {"refuted"} | unsure)):
        found = evaluate(
            env,
            PI,
            MU,
            episodes=many,
            horizon=5,
            promise=Promise(at_most=share * ratio, of=INCUMBENT, action="tell"),
        )
        c = found.certificate
        assert c is not None
        assert c.compared == "reference"
        assert c.verdict in verdicts
        assert "reference policy's" in c.sentence
        assert c.target_cost == pytest.approx(COST["incumbent"], rel=0.2 if environment else 0.05)


def test_the_guard_ends_an_evaluation_whose_promise_is_not_the_targets() -> None:
    found = evaluate(MDP, PI, MU, episodes=5000, promise=Promise(limit=0.7 * OWN))
    assert found.by_target == 0
    assert found.finished < 5000
    assert found.stopped.startswith("stopped by the guard")
    assert "above the limit" in found.stopped
    assert "stopped by the guard" in found.summary()


def test_recorded_episodes_too() -> None:
    episodes = collect(MDP, PI, MU, episodes=500)
    same = estimate(episodes, promise=Promise(limit=1.3 * OWN)).certificate
    assert same is not None
    assert same.verdict == "safe"
    other = estimate(episodes, promise=Promise(of=INCUMBENT)).certificate
    assert other is not None
    assert other.compared == "reference"


# --- design ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logged():
    return logs_of(MDP, logging_policies(10, MDP, seed=0), 400, seed=0)


def test_a_limit_above_the_targets_cost_is_spent(logged) -> None:
    """The design costs at most 3 % more than is allowed; its critics are learned."""
    most = 1.1 * COST["pi"]
    made = design(logged, PI, horizon=5, method="scope-dr", promise=Promise(limit=most))
    assert made.recipe.epsilon == pytest.approx(0.1, abs=0.03)
    assert "by the logs an episode of the target policy costs" in made.summary()
    ran = evaluate(MDP, PI, made, episodes=4000)
    assert ran.cost.per_episode <= 1.03 * most
    assert ran.certificate is not None
    assert ran.certificate.compared == "limit"  # which the design has
    assert f"the limit of {most:.4g} per episode" in ran.certificate.sentence


def test_a_limit_below_the_targets_cost_is_a_point_of_the_frontier() -> None:
    """Ample logs: the cost is below the limit, which the certificate says as well."""
    logs = logs_of(MDP, logging_policies(10, MDP, seed=0), 2000, seed=0)
    made = design(logs, PI, horizon=5, method="scope-dr", promise=Promise(limit=0.9 * COST["pi"]))
    assert made.weighted
    assert made.recipe.epsilon == pytest.approx(-0.1, abs=0.03)
    ran = evaluate(MDP, PI, made, episodes=4000)
    assert ran.cost.per_episode <= 0.9 * COST["pi"]
    assert ran.certificate is not None
    assert (ran.certificate.compared, ran.certificate.verdict) == ("limit", "safe")


@pytest.mark.parametrize("share", [0.4, 0.3])
def test_a_limit_that_the_logs_do_not_bear_out_is_refused(logged, share: float) -> None:
    """400 logged episodes bear out points down to .46, and nothing costs .3 here."""
    most = share * COST["pi"]
    with pytest.raises(InputError) as caught:
        design(logged, PI, horizon=5, method="scope-dr", promise=Promise(limit=most))
    told = str(caught.value)
    assert told.startswith("promise: by the logs an episode of the target policy costs")
    assert f"the limit allows {share:.1f}"[:17] in told
    assert "log more" in told
    assert "Running the target policy would cost more than is allowed" in told


def test_a_reference_in_design(logged) -> None:
    expected = COST["incumbent"] / COST["pi"] - 1
    made = design(logged, PI, horizon=5, method="scope-dr", promise=Promise(of=INCUMBENT))
    assert made.recipe.epsilon == pytest.approx(expected, abs=0.05)
    assert "reference policy's" in made.summary()
    assert made.promised.whose == "reference"


# --- what a design promises goes with it ----------------------------------------------------------


@pytest.fixture(scope="module")
def for_incumbent(logged):
    return design(
        logged, PI, horizon=5, method="scope-dr", promise=Promise(at_most=1.2, of=INCUMBENT)
    )


def test_promises_are_in_files(logged, for_incumbent, tmp_path) -> None:
    limited = design(logged, PI, horizon=5, method="scope", promise=Promise(limit=1.1 * COST["pi"]))
    for made in (limited, for_incumbent):
        made.save(tmp_path / "a.scope")
        again = load(tmp_path / "a.scope", PI)
        assert again.promised == made.promised
        assert again.promised is not None
    assert again.recognizes_reference(INCUMBENT)
    assert not again.recognizes_reference(PI)
    found = evaluate(MDP, PI, limited, episodes=200).certificate
    assert found is not None
    assert (found.compared, found.epsilon) == ("limit", 0.0)
    recorded = estimate(collect(TabularEnv(MDP), PI, limited, horizon=5, episodes=60), run=limited)
    assert recorded.certificate is not None
    assert (recorded.certificate.compared, recorded.certificate.epsilon) == ("limit", 0.0)


def test_a_function_is_recognized_as_the_reference_by_its_answers(logged, tmp_path) -> None:
    def incumbent(obs, t):
        return INCUMBENT.probs(obs, t)

    def other(obs, t):
        return PI.probs(obs, t)

    made = design(logged, PI, horizon=5, method="scope", promise=Promise(of=incumbent))
    made.save(tmp_path / "a.scope")
    again = load(tmp_path / "a.scope", PI)
    assert again.promised.table is None
    assert again.recognizes_reference(as_policy(incumbent))
    assert not again.recognizes_reference(as_policy(other))
    assert not again.recognizes_reference(TabularPolicy(np.full((2, 4), 0.25)))


def test_the_reference_of_a_design_must_be_given_and_another_one_is_noticed(for_incumbent) -> None:
    with pytest.raises(InputError, match="designed for the cost of another policy"):
        evaluate(MDP, PI, for_incumbent, episodes=100)
    right = evaluate(MDP, PI, for_incumbent, episodes=100, baseline=INCUMBENT)
    other = evaluate(MDP, PI, for_incumbent, episodes=100, promise=Promise(of=PI))
    limit = evaluate(MDP, PI, for_incumbent, episodes=100, promise=Promise(limit=9.0))
    for found, epsilon in ((right, 0.2), (other, 0.0), (limit, 0.0)):
        assert found.certificate is not None
        assert found.certificate.epsilon == epsilon
    told = [any("not recognized" in x for x in f.diagnostics.warnings) for f in (right, other)]
    assert told == [False, True]


@pytest.mark.parametrize(
    "how", [{"promise": Promise(limit=2.0)}, {"promise": Promise(of=INCUMBENT)}]
)
def test_continuous_targets_have_no_other_promise(logged, how) -> None:
    gaussian = GaussianPolicy(lambda obs, t: 0.1 * obs[:, :1], [-0.5], low=[-2.0], high=[2.0])
    with pytest.raises(InputError, match="finitely many actions"):
        design(logged, gaussian, horizon=5, **how)


def test_a_limit_of_episodes_is_above_zero(logged) -> None:
    with pytest.raises(InputError, match=r"promise.limit: got 0"):
        design(logged, PI, horizon=5, promise=Promise(limit=0.0))
    with pytest.raises(InputError, match=r"promise.limit: got 0"):
        evaluate(MDP, PI, MU, episodes=5, promise=Promise(limit=0.0))


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"inference": Inference(return_bound=(0.0, 9.0))}, "return_bound"),
    ],
)
def test_what_stages_do_not_take_is_refused(more, name) -> None:
    with pytest.raises(InputError, match=f"^{name}: got it with Stages"):
        evaluate(MDP, PI, Stages(), episodes=5, **more)
