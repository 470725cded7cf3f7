"""The paper's lemmas and theorems, on random MDPs, against definitions and not against our code.

Every test carries the paper's own label in its docstring. What the library computes by recursion is
compared with sums over every trajectory there is, or with plain loops written from the paper.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.worlds.staged import centering, survival_chain
from random_mdps import (
    Case,
    cases,
    estimates,
    every_path,
    loop_values,
    mean_and_variance,
    random_case,
    total_cost,
)
from scopeval import Method, Promise, Status, exact, simulate, solve

EPSILONS = (0.0, 0.1, 1.0)
#: SCOPE's program without its constraint: the least variance that PDIS can have.
UNCONSTRAINED = Method("unconstrained")


# -- the paper's formulas, as loops --------------------------------------------------------------


def inside_lambda(case: Case, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random mu of the enlarged space: zero wherever pi q = 0, and nowhere else."""
    mu = rng.dirichlet(np.ones(case.actions), case.reward.shape[:2]) + 0.02
    mu[case.target * q == 0.0] = 0.0
    empty = mu.sum(-1) == 0
    mu[empty] = case.target[empty]
    return mu / mu.sum(-1, keepdims=True)


def extended_reward(case: Case, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """r~ [T, S, A] and V [T+1, S] by Eq. "extended reward" and Lemma "recursive-var", gamma = 1."""
    q, v = loop_values(case, case.reward, case.target)
    T, S, A = q.shape
    r_tilde, V = np.zeros((T, S, A)), np.zeros((T + 1, S))
    for t in reversed(range(T)):
        for s in range(S):
            for a in range(A):
                p = case.transition[s, a]
                nu = p @ (v[t + 1] - p @ v[t + 1]) ** 2 if t < T - 1 else 0.0
                future = p @ V[t + 1] if t < T - 1 else 0.0
                r_tilde[t, s, a] = nu + q[t, s, a] ** 2 + future
            V[t, s] = spent(case.target[t, s], mu[t, s], r_tilde[t, s]) - v[t, s] ** 2
    return r_tilde, V


def spent(pi: np.ndarray, mu: np.ndarray, second: np.ndarray) -> float:
    """E_mu[rho^2 X] = the sum of pi^2 X / mu over the actions that mu takes."""
    return sum(p * p * x / m for p, m, x in zip(pi, mu, second, strict=True) if m > 0)


def check_decomposition(case: Case, mu: np.ndarray, control: np.ndarray | None, V: float) -> None:
    """V is the variance of the estimator over every trajectory there is."""
    paths = every_path(case, mu)
    _, variance = mean_and_variance(paths.chance, estimates(case, paths, mu, control))
    assert pytest.approx(variance, rel=1e-10, abs=1e-10) == V


def check_safe(case: Case, mu: np.ndarray, epsilon: float) -> None:
    """J^c(mu) <= (1+eps) J^c(pi), by adding up the costs of every trajectory."""
    ours, theirs = every_path(case, mu), every_path(case, case.target)
    paid = float(ours.chance @ total_cost(case, ours))
    allowed = (1 + epsilon) * float(theirs.chance @ total_cost(case, theirs))
    assert paid <= allowed * (1 + 1e-12) + 1e-15


def check_safe_everywhere(case: Case, mu: np.ndarray, epsilon: float) -> None:
    """v^c_mu <= (1+eps) v^c_pi at every (t, s)."""
    _, ours = loop_values(case, case.cost, mu)
    _, theirs = loop_values(case, case.cost, case.target)
    assert (ours <= (1 + epsilon) * theirs * (1 + 1e-12) + 1e-15).all()


def probs(design: exact.Design, case: Case) -> np.ndarray:
    return design.table(case.horizon)


# -- contextual bandits --------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(cases(horizons=(1, 1)), st.integers(0, 2**32 - 1))
def test_lemma_unbias_bandits(case, seed):
    """Lemma "unbias bandits": E_mu[rho r] = E_pi[r] for mu in Lambda, mu = 0 where pi r = 0."""
    mu = inside_lambda(case, case.reward, np.random.default_rng(seed))
    for s in range(case.states):
        ours = sum(
            mu[0, s, a] * (case.target[0, s, a] / mu[0, s, a]) * case.reward[0, s, a]
            for a in range(case.actions)
            if mu[0, s, a] > 0
        )
        assert ours == pytest.approx(case.target[0, s] @ case.reward[0, s], abs=1e-13)
    found = exact.assess(case.mdp, case.target, mu)
    assert found.value == pytest.approx(
        float(case.initial @ (case.target[0] * case.reward[0]).sum(1)), abs=1e-13
    )
    assert found.bias == pytest.approx(0.0, abs=1e-13)


def test_outside_lambda_the_bias_is_seen():
    """The converse of Lemma "unbias bandits": drop an action of pi r != 0 and J is missed."""
    case = random_case(0, states=2, actions=2, horizon=1, zero_rewards=False)
    case = case.but(target=np.full((1, 2, 2), 0.5))
    mu = np.array([[[1.0, 0.0], [0.5, 0.5]]])
    lost = -case.initial[0] * 0.5 * case.reward[0, 0, 1]
    assert exact.assess(case.mdp, case.target, mu).bias == pytest.approx(lost, abs=1e-14)


@settings(max_examples=60, deadline=None)
@given(cases(horizons=(1, 1), noisy=False), st.sampled_from(EPSILONS), st.integers(0, 2**32 - 1))
def test_lemma_convex_bandits(case, epsilon, seed):
    """Lemma "convex bandits": the program is convex, and pi is in its feasible set."""
    check_convex_and_feasible(case, epsilon, np.random.default_rng(seed))


@settings(max_examples=60, deadline=None)
@given(cases(horizons=(1, 1), noisy=False), st.sampled_from(EPSILONS))
def test_lemma_optimal_bandits(case, epsilon):
    """Lemma "optimal bandits": V_mu*(rho r) <= V_pi(r), and E_mu*[c] <= (1+eps) E_pi[c]."""
    mu = probs(
        exact.design(case.mdp, case.target, "scope", promise=Promise(at_most=1 + epsilon)), case
    )[0]
    for s in range(case.states):
        pi, r, c = case.target[0, s], case.reward[0, s], case.cost[0, s]
        # the common -E[r]^2 is left out of both sides
        assert spent(pi, mu[s], r**2) <= (pi @ r**2) * (1 + 1e-12) + 1e-15
        assert mu[s] @ c <= (1 + epsilon) * (pi @ c) * (1 + 1e-12) + 1e-15


# -- sequences -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(0, 2**32 - 1))
def test_lemma_pdis_unbiased(case, seed):
    """Lemma "rl pdis unbaised": E[G | S_t = s] = v_t(s) at all (t, s), mu = 0 where pi q = 0."""
    q, v = loop_values(case, case.reward, case.target)
    mu = inside_lambda(case, q, np.random.default_rng(seed))
    for t in range(case.horizon):
        for s in range(case.states):
            paths = every_path(case, mu, t, s)
            mean = float(paths.chance @ estimates(case, paths, mu, start=t))
            assert mean == pytest.approx(v[t, s], abs=1e-10)
    found = exact.assess(case.mdp, case.target, mu)
    assert found.bias == pytest.approx(0.0, abs=1e-11)
    check_decomposition(case, mu, None, found.variance)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from(["scope", "scope-dr", "odi", "dopt", "on-policy"]))
def test_every_design_is_unbiased(case, method):
    """Lemma "rl pdis unbaised" for the mu that we hand out, each with its control variate."""
    found = exact.design(case.mdp, case.target, method)
    mu = probs(found, case)
    paths = every_path(case, mu)
    mean = float(paths.chance @ estimates(case, paths, mu, found.control))
    J = float(case.initial @ loop_values(case, case.reward, case.target)[1][0])
    assert mean == pytest.approx(J, abs=1e-10)


def check_convex_and_feasible(case: Case, epsilon: float, rng: np.random.Generator) -> None:
    found = exact.design(case.mdp, case.target, "scope", promise=Promise(at_most=1 + epsilon))
    assert (found.status != Status.INFEASIBLE).all()
    mu = probs(found, case)
    qc_mu, _ = loop_values(case, case.cost, mu)
    _, vc_pi = loop_values(case, case.cost, case.target)
    r_tilde, _ = extended_reward(case.but(gamma=1.0), mu)
    for t in range(case.horizon):
        for s in range(case.states):
            pi, delta = case.target[t, s], (1 + epsilon) * vc_pi[t, s]
            assert pi @ qc_mu[t, s] <= delta * (1 + 1e-12) + 1e-15  # pi is feasible
            # between two policies of Lambda: the objective hangs, the cost is linear
            one, two = (0.9 * rng.dirichlet(np.ones(case.actions)) + 0.1 * pi for _ in range(2))
            x = rng.random()
            both = x * one + (1 - x) * two
            f1, f2, f = (spent(pi, m, r_tilde[t, s]) for m in (one, two, both))
            assert f <= (x * f1 + (1 - x) * f2) * (1 + 1e-12) + 1e-300
            if max(one @ qc_mu[t, s], two @ qc_mu[t, s]) <= delta:
                assert both @ qc_mu[t, s] <= delta * (1 + 1e-12) + 1e-15


@settings(max_examples=60, deadline=None)
@given(cases(noisy=False), st.sampled_from(EPSILONS), st.integers(0, 2**32 - 1))
def test_theorem_convex_rl(case, epsilon, seed):
    """Theorem "convex rl": convex, and sum_a pi q^c_mu <= (1+eps) v^c_pi at every (t, s)."""
    check_convex_and_feasible(case, epsilon, np.random.default_rng(seed))


@settings(max_examples=80, deadline=None)
@given(cases(), st.sampled_from(["scope", "scope-dr"]), st.sampled_from(EPSILONS))
def test_theorem_optimal_rl(case, method, epsilon):
    """Theorem "optimal rl": V(G | S_t = s) under mu* is not above the target's, at all (t, s)."""
    found = exact.design(case.mdp, case.target, method, promise=Promise(at_most=1 + epsilon))
    b = found.control
    ours = exact.assess(case.mdp, case.target, found, b)
    own = exact.assess(case.mdp, case.target, case.target, b)
    scale = ours.second_moments.max() + 1e-300
    assert (ours.variances <= own.variances + 1e-12 * scale).all()
    t = case.horizon // 2
    for s in range(case.states):  # and those are variances
        for mu, claimed in ((probs(found, case), ours), (case.target, own)):
            paths = every_path(case, mu, t, s)
            _, variance = mean_and_variance(paths.chance, estimates(case, paths, mu, b, t))
            assert claimed.variances[t, s] == pytest.approx(variance, rel=1e-9, abs=1e-12)


@settings(max_examples=80, deadline=None)
@given(cases(), st.sampled_from(["scope", "scope-dr"]), st.sampled_from(EPSILONS))
def test_theorem_optimal_rl_final(case, method, epsilon):
    """Theorem "optimal rl final": less variance than the target's, J^c(mu) <= (1+eps) J^c(pi)."""
    found = exact.design(case.mdp, case.target, method, promise=Promise(at_most=1 + epsilon))
    mu, b = probs(found, case), found.control
    ours, own = every_path(case, mu), every_path(case, case.target)
    _, variance = mean_and_variance(ours.chance, estimates(case, ours, mu, b))
    _, on_policy = mean_and_variance(own.chance, estimates(case, own, case.target, b))
    size = 1e-12 * (1 + np.abs(case.reward).sum() ** 2)
    assert variance <= on_policy + size
    check_safe(case, mu, epsilon)
    check_safe_everywhere(case, mu, epsilon)


@settings(max_examples=40, deadline=None)
@given(cases(gamma=1.0, noisy=False))
def test_lemma_recursive_tilde_r(case):
    """Lemma "recursive tilde r": 2qr - r^2 + E[rho r~'] is Eq. "extended reward", and our X."""
    found = exact.design(case.mdp, case.target, "scope")
    mu = probs(found, case)
    by_definition, V = extended_reward(case, mu)
    q, _ = loop_values(case, case.reward, case.target)
    T, S, A = q.shape
    by_lemma = np.zeros((T, S, A))
    for t in reversed(range(T)):
        for s in range(S):
            for a in range(A):
                r = case.reward[t, s, a]
                if t == T - 1:
                    by_lemma[t, s, a] = r**2
                    continue
                ahead = sum(
                    case.transition[s, a, x]
                    * spent(case.target[t + 1, x], mu[t + 1, x], by_lemma[t + 1, x])
                    for x in range(S)
                )
                by_lemma[t, s, a] = 2 * q[t, s, a] * r - r**2 + ahead
    np.testing.assert_allclose(by_lemma, by_definition, rtol=1e-9, atol=1e-10)
    ours = exact.assess(case.mdp, case.target, found)
    np.testing.assert_allclose(ours.second_moments, by_definition, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(ours.variances, V, rtol=1e-9, atol=1e-10)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_lemma_recursive_var(case):
    """Lemma "recursive-var": the recursion is V(G | S_t = s) over trajectories, at every (t, s)."""
    mu = case.behavior
    ours = exact.assess(case.mdp, case.target, mu)
    for t in range(case.horizon):
        for s in range(case.states):
            paths = every_path(case, mu, t, s)
            _, variance = mean_and_variance(paths.chance, estimates(case, paths, mu, start=t))
            assert ours.variances[t, s] == pytest.approx(variance, rel=1e-9, abs=1e-10)


@settings(max_examples=80, deadline=None)
@given(cases(), st.sampled_from(["none", "q", "arbitrary"]))
def test_eq_variance_decomposition(case, kind):
    """Eq. "variance decompose main", for b = 0, b = q and any b: V is the variance, to 1e-10."""
    q, _ = loop_values(case, case.reward, case.target)
    b = {"none": None, "q": q, "arbitrary": case.control}[kind]
    found = exact.assess(case.mdp, case.target, case.behavior, b)
    check_decomposition(case, case.behavior, b, found.variance)


@pytest.mark.parametrize("kind", ["none", "q", "arbitrary"])
@pytest.mark.parametrize("noisy", [False, True])
def test_eq_variance_decomposition_by_monte_carlo(kind, noisy):
    """The same by drawing a million episodes; false alarm 2e-6 per comparison (|z| < 4.75)."""
    case = random_case(11, states=4, actions=3, horizon=3, gamma=0.9, noisy=noisy)
    mu = 0.5 * case.behavior + 0.5 * case.target  # ratios of at most 2: the fourth moment is tame
    q, _ = loop_values(case, case.reward, case.target)
    b = {"none": None, "q": q, "arbitrary": case.control}[kind]
    truth = exact.assess(case.mdp, case.target, mu, b)
    G = simulate.summaries(
        case.mdp, case.target, mu, episodes=1_000_000, control_variate=b, seed=5
    ).estimate
    assert abs(G.mean() - truth.value) < 4.75 * G.std() / 1e3
    square = (G - G.mean()) ** 2
    assert abs(square.mean() - truth.variance) < 4.75 * square.std() / 1e3


def test_a_wrong_recursion_does_not_pass():
    """The judge can say no: gamma dropped from the look-ahead, or a variance left out."""
    case = random_case(3, states=3, actions=2, horizon=3, gamma=0.8, noisy=True)
    right = exact.assess(case.mdp, case.target, case.behavior).variance
    check_decomposition(case, case.behavior, None, right)
    undiscounted = exact.assess(case.but(gamma=1.0).mdp, case.target, case.behavior).variance
    silent = exact.assess(
        case.but(spread=np.zeros_like(case.spread)).mdp, case.target, case.behavior
    ).variance
    for wrong in (undiscounted, silent, right * (1 + 1e-8)):
        with pytest.raises(AssertionError):
            check_decomposition(case, case.behavior, None, wrong)


# -- the step of every (t, s) --------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(cases(), st.sampled_from(["scope", "scope-dr"]), st.sampled_from(EPSILONS), st.integers(0))
def test_no_feasible_policy_is_better(case, method, epsilon, seed):
    """Eq. "optimization object rl": random feasible mu', near and far, never beat mu*."""
    rng = np.random.default_rng(seed)
    found = exact.design(case.mdp, case.target, method, promise=Promise(at_most=1 + epsilon))
    mu = probs(found, case)
    X = exact.assess(case.mdp, case.target, mu, found.control).second_moments
    qc, _ = loop_values(case, case.cost, mu)
    _, vc = loop_values(case, case.cost, case.target)
    for t in range(case.horizon):
        for s in range(case.states):
            pi, delta = case.target[t, s], (1 + epsilon) * vc[t, s]
            best = spent(pi, mu[t, s], X[t, s])
            for size in (1.0, 0.1, 1e-3):
                for _ in range(5):
                    other = rng.dirichlet(np.full(case.actions, 0.7))
                    other = (1 - size) * mu[t, s] + size * other
                    excess, room = other @ qc[t, s] - delta, delta - pi @ qc[t, s]
                    if excess > 0 and room > 0:  # pulled towards pi until it is affordable
                        other = (other * room + pi * excess) / (room + excess)
                    if other @ qc[t, s] <= delta and (other[(pi > 0) & (X[t, s] > 0)] > 0).all():
                        assert best <= spent(pi, other, X[t, s]) * (1 + 1e-9) + 1e-14


def test_one_budget_for_all_rows():
    """Section 4's constant threshold, at the solver: a number stands for every row."""
    rng = np.random.default_rng(0)
    weight, cost = rng.random((5, 3)), rng.random((5, 3))
    np.testing.assert_array_equal(
        solve(weight, cost, 0.6).mu, solve(weight, cost, np.full(5, 0.6)).mu
    )


def clarabel(weight: np.ndarray, cost: np.ndarray, budget: float) -> np.ndarray:
    import cvxpy as cp

    mu = cp.Variable(len(weight))
    terms = [cp.quad_over_lin(float(w), mu[a]) for a, w in enumerate(weight) if w > 0]
    problem = cp.Problem(
        cp.Minimize(cp.sum(terms)), [cp.sum(mu) == 1, mu >= 0, cost @ mu <= budget]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in ("optimal", "optimal_inaccurate")
    return np.asarray(mu.value)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("seed", [0, 1])
def test_algorithm_1_line_6_by_clarabel(seed, epsilon):
    """The whole design, one cvxpy program per (t, s), each with its own values backwards."""
    case = random_case(seed, states=3, actions=3, horizon=3, zero_rewards=False)
    ours = probs(
        exact.design(case.mdp, case.target, "scope", promise=Promise(at_most=1 + epsilon)), case
    )
    _, v = loop_values(case, case.reward, case.target)
    _, vc = loop_values(case, case.cost, case.target)
    V, vc_mu = np.zeros(case.states), np.zeros(case.states)
    for t in reversed(range(case.horizon)):
        V_now, vc_now = np.zeros(case.states), np.zeros(case.states)
        for s in range(case.states):
            pi = case.target[t, s]
            p = case.transition[s]
            X = p @ V + np.array(
                [p[a] @ (case.reward[t, s, a] + v[t + 1]) ** 2 for a in range(case.actions)]
            )
            qc = case.cost[t, s] + p @ vc_mu
            mu = clarabel(pi * np.sqrt(X), qc, (1 + epsilon) * vc[t, s])
            np.testing.assert_allclose(ours[t, s], mu, atol=1e-3)
            V_now[s] = spent(pi, ours[t, s], X) - v[t, s] ** 2
            vc_now[s] = ours[t, s] @ qc
        V, vc_mu = V_now, vc_now


# -- the baselines' own recursions ---------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(cases(gamma=1.0, noisy=False))
def test_odi_recursion(case):
    """ODI (Liu and Zhang 2024): u_{T-1} = r^2, u_t = 2rq - r^2 + E_pi[u_{t+1}], mu ~ pi sqrt(u)."""
    q, _ = loop_values(case, case.reward, case.target)
    ours = probs(exact.design(case.mdp, case.target, "odi"), case)
    u_next = np.zeros((case.states, case.actions))
    for t in reversed(range(case.horizon)):
        ahead = (case.target[t + 1] * u_next).sum(1) if t < case.horizon - 1 else u_next.sum(1)
        r = case.reward[t]
        u = 2 * r * q[t] - r**2 + case.transition @ ahead
        u_next = u = np.where(u > 1e-13, u, 0.0)
        for s in range(case.states):
            pi = case.target[t, s]
            weight = pi * np.sqrt(u[s])
            # an action of pi that mu would never take: its authors keep pi
            keep = ((weight == 0) & (pi > 0)).any()
            mu = pi if keep else weight / weight.sum()
            np.testing.assert_allclose(ours[t, s], mu, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(cases(gamma=1.0, noisy=False))
def test_dopt_recursion(case):
    """DOpt (Liu et al. 2025): u_{T-1} = 0, u_t = nu_t + E[(sum pi sqrt(u'))^2], mu ~ pi sqrt(u)."""
    _, v = loop_values(case, case.reward, case.target)
    found = exact.design(case.mdp, case.target, "dopt")
    ours = probs(found, case)
    u_next = np.zeros((case.states, case.actions))
    for t in reversed(range(case.horizon)):
        last = t == case.horizon - 1
        V = np.zeros(case.states) if last else (case.target[t + 1] * np.sqrt(u_next)).sum(1) ** 2
        u = np.zeros_like(u_next)
        for s in range(case.states):
            for a in range(case.actions):
                p = case.transition[s, a]
                u[s, a] = p @ (v[t + 1] - p @ v[t + 1]) ** 2 + p @ V
            u[s] = np.where(u[s] > 1e-13, u[s], 0.0)
            pi = case.target[t, s]
            weight = pi * np.sqrt(u[s])
            mu = weight / weight.sum() if weight.any() else pi  # only where all u = 0, pi is kept
            np.testing.assert_allclose(ours[t, s], mu, atol=1e-6)
        u_next = u
    variance = exact.assess(case.mdp, case.target, found, found.control).variances[0]
    np.testing.assert_allclose(
        variance, (case.target[0] * np.sqrt(u_next)).sum(1) ** 2, rtol=1e-6, atol=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(cases(zero_rewards=False), st.sampled_from(["scope", "scope-dr"]))
def test_the_constraint_only_costs_variance(case, method):
    """Without the constraint the optimum is lower or equal, at every (t, s)."""
    free = Method("free", control_variate=method == "scope-dr")
    bound = exact.design(case.mdp, case.target, method)
    loose = exact.design(case.mdp, case.target, free)
    b = bound.control
    ours = exact.assess(case.mdp, case.target, bound, b).variances
    best = exact.assess(case.mdp, case.target, loose, b)
    assert (best.variances <= ours + 1e-10 * (best.second_moments.max() + 1e-300)).all()


# -- safety: options, and what happens without ---------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(cases(), st.sampled_from(["scope", "scope-dr"]))
def test_cost_to_go_of_the_target_is_safe_too(case, method):
    """Algorithm 1 lists q^c under pi: safe at eps = 0, by performance difference."""
    found = exact.design(case.mdp, case.target, method, constraint="target")
    mu = probs(found, case)
    qc, vc = loop_values(case, case.cost, case.target)
    assert ((mu * qc).sum(-1) <= vc[:-1] * (1 + 1e-12) + 1e-15).all()
    check_safe(case, mu, 0.0)
    check_safe_everywhere(case, mu, 0.0)
    ours = exact.assess(case.mdp, case.target, found, found.control)
    own = exact.assess(case.mdp, case.target, case.target, found.control)
    assert ours.variance <= own.variance + 1e-12 * (ours.second_moments.max() + 1e-300)


def test_cost_to_go_of_the_target_compounds_slack():
    """At eps > 0 its slack compounds and the promise can break; q^c under mu keeps it."""
    case = random_case(
        397,
        states=2,
        actions=2,
        horizon=4,
        time_varying=False,
        zero_probabilities=False,
        zero_rewards=False,
    )
    under_pi = exact.design(
        case.mdp, case.target, "scope", promise=Promise(at_most=1.3), constraint="target"
    )
    with pytest.raises(AssertionError):
        check_safe(case, probs(under_pi, case), 0.3)
    check_safe(
        case,
        probs(exact.design(case.mdp, case.target, "scope", promise=Promise(at_most=1.3)), case),
        0.3,
    )


@settings(max_examples=40, deadline=None)
@given(cases(horizons=(1, 4)), st.one_of(st.just(0.0), st.floats(1e-60, 3.0)))
def test_absolute_limit(case, limit):
    """Section 4: a constant threshold can be infeasible; pi is kept there and `status` says so.

    Positive limits below 1e-60 are left out: weights of 1e187 at each step have no finite variance.
    A limit is kept to the rounding of the costs, which are about 1: 1e-20 may become 1.4e-20 where
    one action costs less than that and another 0.5.
    """
    found = exact.design(case.mdp, case.target, "scope", promise=Promise(limit=limit, per="state"))
    mu = probs(found, case)
    qc, vc = loop_values(case, case.cost, mu)
    cheapest = qc.min(-1)
    kept = np.isclose(mu, case.target, rtol=1e-14, atol=0).all(-1)
    infeasible = found.status == Status.INFEASIBLE
    assert infeasible[cheapest > limit * (1 + 1e-12) + 1e-12].all()
    assert not infeasible[cheapest < limit * (1 - 1e-12) - 1e-12].any()
    assert kept[infeasible].all()
    solved = found.status == Status.SOLVED
    assert (vc[:-1][solved] <= limit * (1 + 1e-12) + 1e-16 * case.cost.max()).all()


def test_absolute_limit_by_state_and_time():
    """A limit of shape [S] or [T, S] is the same as a number where it is that number."""
    case = random_case(4, states=3, actions=3, horizon=3)
    plain = exact.design(case.mdp, case.target, "scope", promise=Promise(limit=0.9, per="state"))
    for same in (np.full(3, 0.9), np.full((3, 3), 0.9)):
        np.testing.assert_array_equal(
            probs(plain, case),
            probs(exact.design(case.mdp, case.target, "scope", limits=same), case),
        )
    tight = np.full((3, 3), 9.0)
    tight[0, 1] = 0.0  # nothing is free here: infeasible, and only here
    found = exact.design(case.mdp, case.target, "scope", limits=tight)
    assert [tuple(x) for x in np.argwhere(found.status == Status.INFEASIBLE)] == [(0, 1)]
    np.testing.assert_allclose(probs(found, case)[0, 1], case.target[0, 1], rtol=1e-14)


def planted() -> Case:
    """One state, two actions: the dear action carries all the reward's spread."""
    T = 3
    return Case(
        initial=np.ones(1),
        transition=np.ones((1, 2, 1)),
        reward=np.tile([[0.1, 2.0]], (T, 1, 1)),
        spread=np.zeros((T, 1, 2)),
        cost=np.tile([[0.0, 1.0]], (T, 1, 1)),
        gamma=1.0,
        target=np.full((T, 1, 2), 0.5),
        behavior=np.full((T, 1, 2), 0.5),
        control=np.zeros((T, 1, 2)),
    )


def test_without_the_constraint_the_safety_test_fails():
    """The judge can say no: ODI buys variance with cost, and `check_safe` catches it."""
    case = planted()
    check_safe(case, probs(exact.design(case.mdp, case.target, "scope"), case), 0.0)
    odi = probs(exact.design(case.mdp, case.target, "odi"), case)
    for epsilon in (0.0, 0.1):
        with pytest.raises(AssertionError):
            check_safe(case, odi, epsilon)
        with pytest.raises(AssertionError):
            check_safe_everywhere(case, odi, epsilon)
    a_hair = odi.copy()
    a_hair[:] = case.target + np.array([-1e-9, 1e-9])
    with pytest.raises(AssertionError):
        check_safe(case, a_hair, 0.0)


# -- the survival chain --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strength", "J", "sd", "unconstrained", "scope", "with_q", "scope_dr"),
    [
        (0.0, 59, 31, (0.626, 1.227), (0.994, 1.000), 0.510, (0.491, 0.961)),
        (0.6, 95, 16, (0.762, 1.016), (0.994, 1.000), 0.583, (0.419, 0.943)),
        (1.5, 99.9, 3, (0.908, 1.000), (0.998, 1.000), 0.820, (0.583, 1.000)),
    ],
    ids=["random", "mild", "good"],
)
def test_survival_chain(strength, J, sd, unconstrained, scope, with_q, scope_dr):
    """Where reward and cost both come from staying alive, safe PDIS gains nothing and b = q does.

    Relative variance and relative cost against on-policy Monte Carlo, to three digits.
    """
    mdp, pi = survival_chain(), centering(strength)
    own = exact.assess(mdp, pi, pi)
    assert own.value == pytest.approx(J, abs=0.5)
    assert np.sqrt(own.variance) == pytest.approx(sd, abs=0.5)

    def ratios(method: str | Method) -> tuple[float, float]:
        found = exact.design(mdp, pi, method)
        ours = exact.assess(mdp, pi, found, found.control)
        return ours.variance / own.variance, ours.cost / own.cost

    q = exact.values(mdp, pi).q
    assert ratios(UNCONSTRAINED) == pytest.approx(unconstrained, abs=6e-4)
    assert ratios("scope") == pytest.approx(scope, abs=6e-4)
    assert exact.assess(mdp, pi, pi, q).variance / own.variance == pytest.approx(with_q, abs=6e-4)
    variance, cost = ratios("scope-dr")
    # ties go to the cheapest actions: never above the figures, which are without that
    assert scope_dr[0] - 2e-3 < variance <= scope_dr[0] + 6e-4
    assert scope_dr[1] - 0.04 < cost <= scope_dr[1] + 6e-4
    # the statements that the figures make
    odi = ratios("odi")
    assert unconstrained[0] - 6e-4 <= odi[0] < 0.95
    assert ratios("scope")[0] >= 0.95
    assert ratios("scope-dr")[0] < 0.6
    assert max(ratios("scope")[1], ratios("scope-dr")[1]) <= 1 + 1e-12
