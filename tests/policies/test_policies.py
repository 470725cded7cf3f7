"""One suite for every kind of policy, and what each kind refuses."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch

from random_mdps import random_case
from scopeval import CallablePolicy, GaussianPolicy, TabularPolicy, TorchPolicy, as_policy, exact
from scopeval.errors import InputError
from scopeval.policies.protocols import (
    Behavior,
    Candidates,
    ContinuousPolicy,
    EpisodeState,
    Policy,
    Weighing,
    offer,
    weigh,
)

S, A, T = 7, 4, 5
RNG = np.random.default_rng(0)
TABLE = RNG.dirichlet(np.ones(A), S)
TIMED = RNG.dirichlet(np.ones(A), (T, S))
STATES = RNG.integers(S, size=11)
FEATURES = RNG.normal(size=(11, 3))


class Net(torch.nn.Module):
    """Logits with a dropout layer, which evaluation mode must silence."""

    def __init__(self, with_time: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Linear(3, A)
        self.drop = torch.nn.Dropout(0.5)
        self.with_time = with_time

    def forward(self, obs: torch.Tensor, t: torch.Tensor | None = None) -> torch.Tensor:
        out = self.drop(self.body(obs))
        if self.with_time:
            assert t is not None
            assert t.dtype == torch.int64
            assert t.shape == obs.shape[:1]
            out = out + torch.outer(t.float(), torch.arange(A).float())
        return out


class Embedding(torch.nn.Module):
    """Logits of discrete observations."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.table = torch.nn.Embedding(S, A)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        assert obs.dtype == torch.int64
        return self.table(obs)


def by_function(obs: np.ndarray, t: int | np.ndarray) -> np.ndarray:
    weight = 1.0 + np.abs(obs if obs.ndim == 1 else obs[:, 0])[:, None] * np.arange(A)
    weight = weight + np.broadcast_to(t, (len(obs),))[:, None] * np.arange(A)
    return weight / weight.sum(1, keepdims=True)


def designed(method: str) -> exact.Design:
    case = random_case(3, states=S, actions=A, horizon=T)
    return exact.design(case.mdp, case.target, method)


KINDS = {
    "table [S, A]": (TabularPolicy(TABLE), STATES),
    "table [T, S, A]": (TabularPolicy(TIMED), STATES),
    "torch": (TorchPolicy(Net(False)), FEATURES),
    "torch with time": (TorchPolicy(Net(True), with_time=True), FEATURES),
    "torch, discrete": (TorchPolicy(Embedding()), STATES),
    "torch, float32": (TorchPolicy(Net(False)), FEATURES.astype(np.float32)),
    "callable, vectors": (CallablePolicy(by_function), FEATURES),
    "callable, states": (CallablePolicy(by_function), STATES),
    "design, scope": (designed("scope"), STATES),
    "design, scope-dr": (designed("scope-dr"), STATES),
    "design, on-policy": (designed("on-policy"), STATES),
}


@pytest.fixture(params=KINDS, ids=list(KINDS))
def kind(request):
    return KINDS[request.param]


# -- the suite -----------------------------------------------------------------------------------


def test_rows_are_distributions(kind):
    policy, obs = kind
    for t in (0, T - 1):
        probs = policy.probs(obs, t)
        assert probs.shape == (len(obs), A)
        assert probs.dtype == np.float64
        assert (probs >= 0).all()
        np.testing.assert_allclose(probs.sum(1), 1.0, atol=1e-15 * 8)


def test_a_row_does_not_depend_on_its_neighbors(kind):
    policy, obs = kind
    whole = policy.probs(obs, 2)
    shuffle = np.random.default_rng(1).permutation(len(obs))
    np.testing.assert_allclose(policy.probs(obs[shuffle], 2), whole[shuffle], rtol=1e-6)
    for i in (0, len(obs) - 1):
        np.testing.assert_allclose(policy.probs(obs[i : i + 1], 2), whole[i : i + 1], rtol=1e-6)


def test_time_is_one_number_or_one_per_row(kind):
    policy, obs = kind
    for t in (0, 3):
        same = policy.probs(obs, np.full(len(obs), t))
        np.testing.assert_array_equal(policy.probs(obs, t), same)
        np.testing.assert_array_equal(policy.probs(obs, np.int64(t)), same)
    times = np.arange(len(obs)) % T
    mixed = policy.probs(obs, times)
    for t in range(T):
        np.testing.assert_allclose(mixed[times == t], policy.probs(obs[times == t], t), rtol=1e-6)


def test_asking_twice_gives_the_same_and_changes_nothing(kind):
    policy, obs = kind
    before = obs.copy()
    first = policy.probs(obs, 1).copy()
    answer = policy.probs(obs, 1)
    np.testing.assert_array_equal(first, answer)
    np.testing.assert_array_equal(obs, before)
    if answer.flags.writeable:
        answer[:] = 0.0  # a caller who scribbles on the answer does not change the policy
    np.testing.assert_array_equal(policy.probs(obs, 1), first)


def test_no_rows(kind):
    policy, obs = kind
    assert policy.probs(obs[:0], 0).shape == (0, A)


def test_is_a_policy_and_stays_itself(kind):
    policy, _ = kind
    assert isinstance(policy, Policy)
    assert not isinstance(policy, ContinuousPolicy)
    assert as_policy(policy) is policy
    assert "\n" not in repr(policy)


def test_offers_every_action_with_its_probability(kind):
    policy, obs = kind
    offered = offer(policy, obs, 1, np.random.default_rng(0))
    np.testing.assert_array_equal(offered.probs, policy.probs(obs, 1))
    np.testing.assert_array_equal(offered.actions, np.tile(np.arange(A), (len(obs), 1)))


def test_weighs_the_offer_of_any_target(kind):
    policy, obs = kind
    offered = Candidates(np.tile(np.arange(A), (len(obs), 1)), np.full((len(obs), A), 1 / A))
    np.testing.assert_array_equal(
        weigh(policy, offered, obs, 1, EpisodeState.start(len(obs), 1)).probs, policy.probs(obs, 1)
    )


def test_refuses_to_weigh_another_action_set(kind):
    policy, obs = kind
    offered = Candidates(np.zeros((len(obs), A + 1), int), np.full((len(obs), A + 1), 1 / (A + 1)))
    with pytest.raises(InputError, match=r"^behavior: got probabilities of shape .*same action"):
        weigh(policy, offered, obs, 1, EpisodeState.start(len(obs), 1))


# -- tables --------------------------------------------------------------------------------------


def test_table_is_looked_up():
    np.testing.assert_allclose(TabularPolicy(TABLE).probs(STATES, 3), TABLE[STATES])
    times = np.arange(len(STATES)) % T
    np.testing.assert_allclose(TabularPolicy(TIMED).probs(STATES, times), TIMED[times, STATES])
    assert TabularPolicy(TIMED).horizon == T
    assert TabularPolicy(TABLE).horizon is None
    np.testing.assert_array_equal(
        TabularPolicy(TABLE).table(3)[2], TabularPolicy(TABLE).table(1)[0]
    )


def test_a_table_is_not_the_callers_array():
    mine = TABLE.copy()
    policy = TabularPolicy(mine)
    mine[:] = 0.25
    np.testing.assert_allclose(policy.probs(STATES, 0), TABLE[STATES])


def test_single_precision_tables_are_normalized():
    policy = TabularPolicy(TABLE.astype(np.float32))
    np.testing.assert_allclose(policy.table(1)[0].sum(1), 1.0, atol=1e-15)


def changed(table, index, value):
    table = table.copy()
    table[index] = value
    return table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed(TABLE, (3, 1), np.nan), r"^policy: NaN probability at s=3;"),
        (changed(TABLE, (3, 1), -0.2), r"^policy: negative probability -0.2 at s=3; .*softmax"),
        (changed(TABLE, 3, [0.5, 0.5, 0.5, 0]), r"^policy: probabilities sum to 1.5 at s=3;"),
        (changed(TIMED, (2, 3), [1, 1, 0, 0]), r"^policy: probabilities sum to 2 at t=2, s=3;"),
        (changed(TIMED, 2, np.nan), r"^policy: NaN probability at t=2, s=0 \(and 6 more\)"),
        (changed(TABLE, (3, 1), np.inf), r"^policy: probabilities sum to inf at s=3"),
        (TABLE[0], r"^policy: got a table of shape \(4,\), expected \[S, A\] or \[T, S, A\]"),
        (TIMED[None], r"^policy: got a table of shape \(1, 5, 7, 4\)"),
        (TABLE[:, :0], r"^policy: got shape \(7, 0\), expected at least one action"),
        ([["a", "b"]], r"^policy: cannot be read as an array of numbers"),
    ],
)
def test_bad_tables(table, message):
    with pytest.raises(InputError, match=message):
        TabularPolicy(table)


@pytest.mark.parametrize(
    ("obs", "t", "message"),
    [
        (np.array([0, 7]), 0, r"^policy: state 7 is outside 0..6"),
        (np.array([0, -1]), 0, r"^policy: state -1 is outside 0..6"),
        (np.array([0.0]), 0, r"^policy: a tabular policy needs state numbers \[B\], got float64"),
        (np.array([[0]]), 0, r"^policy: a tabular policy needs state numbers \[B\], got int64"),
        (np.array([0]), 5, r"^policy: asked at time 5, the table covers 0..4"),
        (np.array([0]), -1, r"^policy: asked at time -1, the table covers 0..4"),
        (np.array([0, 0]), np.array([-1, 1]), r"^policy: asked at time -1"),
    ],
)
def test_bad_questions(obs, t, message):
    with pytest.raises(InputError, match=message):
        TabularPolicy(TIMED).probs(obs, t)


def test_a_table_that_is_too_short():
    with pytest.raises(InputError, match=r"covers 5 time steps, expected at least the horizon 6"):
        TabularPolicy(TIMED).table(6)


# -- functions and torch modules -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[0.5, 0.5], [0.7, 0.7]], r"^policy: probabilities sum to 1.4 at row=1;"),
        ([[0.5, 0.5], [np.nan, 1]], r"^policy: NaN probability at row=1;"),
        ([[0.5, 0.5], [-1, 2]], r"^policy: negative probability -1 at row=1;"),
        ([[0.5, 0.5]], r"^policy: returned shape \(1, 2\) for 2 observations, expected \[2, num"),
        ([0.5, 0.5], r"^policy: returned shape \(2,\) for 2 observations"),
        (None, r"^policy: "),
        ("no", r"^policy: cannot be read"),
    ],
)
def test_bad_answers_of_a_function(answer, message):
    with pytest.raises(InputError, match=message) as caught:
        CallablePolicy(lambda obs, t: answer).probs(np.zeros((2, 3)), 0)
    assert "\n" not in str(caught.value)


def test_not_a_function():
    with pytest.raises(InputError, match=r"^policy: 3 is not callable"):
        CallablePolicy(3)


def test_softmax_of_the_logits_in_double():
    net = Net(False)
    policy = TorchPolicy(net)
    logits = net(torch.as_tensor(FEATURES, dtype=torch.float32)).detach().numpy().astype(float)
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(policy.probs(FEATURES, 0), expected, rtol=1e-12)
    assert not net.training
    assert policy.logits(FEATURES, 0).requires_grad


class Broken(torch.nn.Module):
    def __init__(self, out: torch.Tensor) -> None:
        super().__init__()
        self.out = out

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.out


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (torch.zeros(3), r"returned shape \(3,\) for 2 observations, expected logits"),
        (torch.zeros(3, 4), r"returned shape \(3, 4\) for 2 observations"),
        ((torch.zeros(2, 4), torch.zeros(2)), r"a tuple \(is it an actor-critic\?\).*expected log"),
        ({"logits": torch.zeros(2, 4)}, r"returned a dict for 2 obs.*a function \(obs, t\)"),
        (torch.tensor([[0.0, 1.0], [0.0, float("nan")]]), r"NaN probability at row=1"),
    ],
)
def test_bad_modules(out, message):
    with pytest.raises(InputError, match=r"^policy.*" + message):
        TorchPolicy(Broken(out)).probs(np.zeros((2, 3)), 0)


# -- as_policy, offer and weigh ------------------------------------------------------------------


def test_as_policy_takes_what_the_user_has():
    assert isinstance(as_policy(TABLE), TabularPolicy)
    assert isinstance(as_policy(TABLE.tolist()), TabularPolicy)
    assert isinstance(as_policy(Net(False)), TorchPolicy)
    assert isinstance(as_policy(by_function), CallablePolicy)
    for nonsense in (3, "policy", None):
        with pytest.raises(InputError, match=r"^policy: got (int|str|NoneType), expected an obj"):
            as_policy(nonsense)


class Draws:
    """A continuous policy: K draws, 1/K each."""

    def candidates(self, obs, t, rng):
        K = 3
        return Candidates(rng.normal(size=(len(obs), K, 2)), np.full((len(obs), K), 1 / K))


class Tilted:
    """A behavior that re-weighs whatever is offered, and brings its control variate."""

    def weigh(self, offered, obs, t, state):
        weight = offered.probs * (1 + np.arange(offered.probs.shape[1]))
        return Weighing(weight / weight.sum(1, keepdims=True), control=offered.probs * 2)


def test_a_continuous_policy_offers_its_draws():
    policy = Draws()
    assert as_policy(policy) is policy
    one = offer(policy, FEATURES, 0, np.random.default_rng(7))
    two = offer(policy, FEATURES, 0, np.random.default_rng(7))
    assert one.actions.shape == (len(FEATURES), 3, 2)
    np.testing.assert_array_equal(one.actions, two.actions)
    np.testing.assert_allclose(one.probs, 1 / 3)


def test_a_designed_behavior_weighs_for_itself():
    behavior = Tilted()
    assert isinstance(behavior, Behavior)
    offered = offer(Draws(), FEATURES, 0, np.random.default_rng(7))
    found = weigh(behavior, offered, FEATURES, 0, EpisodeState.start(len(FEATURES), 1))
    np.testing.assert_allclose(found.probs[0], [1 / 6, 2 / 6, 3 / 6])
    np.testing.assert_allclose(found.control, 2 / 3)


@pytest.mark.parametrize("method", ["scope", "scope-dr", "dopt", "on-policy"])
def test_an_exact_design_brings_its_control_variate(method):
    """mu of a doubly robust design may skip actions that only b = q accounts for."""
    design = designed(method)
    offered = offer(TabularPolicy(TABLE), STATES, 0, np.random.default_rng(0))
    times = np.arange(len(STATES)) % T
    for t in (2, times):
        found = weigh(design, offered, STATES, t, EpisodeState.start(len(STATES), 1))
        if method in ("scope", "on-policy"):
            assert found.control is None
        else:
            np.testing.assert_array_equal(found.control, design.control[t, STATES])


def test_a_gaussian_policy_takes_its_bounds_from_the_action_space():
    box = gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([2, 3]))
    policy = GaussianPolicy(lambda obs, t: np.full((len(obs), 2), 9.0), [0.0, 0.0], space=box)
    assert policy.low.tolist() == [-1.0, 0.0]
    assert policy.sample(np.zeros((1, 1)), 0, np.random.default_rng(0)).tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({}, "got neither both bounds nor a box, expected .* space=env.action_space"),
        ({"low": [0.0]}, "got neither both bounds nor a box"),
        ({"space": gymnasium.spaces.Discrete(3)}, r"got the space Discrete\(3\), expected"),
        ({"space": gymnasium.spaces.Box(0, 1, (1,)), "low": [0.0]}, "either the box or its bounds"),
    ],
)
def test_bounds_that_are_none_are_said(bounds, message):
    with pytest.raises(InputError, match=message):
        GaussianPolicy(lambda obs, t: obs, [0.0], **bounds)
