"""Behavior policies: always valid, safe with true values, honest about doubt, kept on disk."""

from __future__ import annotations

import io
import os
import pickle
import time
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from behaviors import RECIPE, REPORT, anything, estimates, vector_target
from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import design, exact, load
from scopeval.behavior import file as room
from scopeval.behavior import step as step_module
from scopeval.behavior.methods import METHODS
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.behavior.step import Counts, weigh_rows
from scopeval.critics.mlp.regression import MLPRegression
from scopeval.data.transitions import Transitions
from scopeval.errors import DataError, InputError
from scopeval.policies.adapters import CallablePolicy, TabularPolicy
from scopeval.policies.protocols import Candidates


def random_rows(rng, *shape):
    p = rng.gamma(0.5, size=shape) + 1e-12
    return p / p.sum(axis=-1, keepdims=True)


# -- valid whatever the critics say ------------------------------------------------------------


@given(anything())
@settings(max_examples=600, deadline=None)
def test_probabilities_are_valid_for_any_numbers(case):
    """Never an exception or a warning, never an invalid row: doubt ends in the target."""
    e, pi, recipe = case
    counts = Counts()
    mu, b = weigh_rows(METHODS[recipe.method], recipe, pi, e, counts=counts)
    assert np.isfinite(b).all()
    assert np.isfinite(mu).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert (mu >= recipe.floor * pi * (1 - 1e-12)).all()
    unknown = ~e.known
    np.testing.assert_allclose(mu[unknown], pi[unknown], rtol=1e-12, atol=0)
    columns = [e.q, e.noise, e.cost_target, e.carried[..., -1], e.cost_behavior[..., -1]]
    doubtful = ~np.isfinite(np.stack(columns)).all(axis=(0, 2))
    needs = doubtful if recipe.constraint == "behavior" else doubtful & False
    np.testing.assert_allclose(mu[needs], pi[needs], rtol=1e-12, atol=0)
    assert counts.not_finite >= needs.sum()
    alone = Counts()  # one row goes another way: the same bits, the same doubts
    for i in range(len(pi)):
        row = slice(i, i + 1)
        method = METHODS[recipe.method]
        one, own = weigh_rows(method, recipe, pi[row], e.select(row), counts=alone)
        np.testing.assert_array_equal(np.stack([one, own]), np.stack([mu[row], b[row]]))
    assert alone == counts


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-250, 1e-30, 1e-13, 1.0, 1e12, 1e140]))
@settings(max_examples=300, deadline=None)
def test_true_values_keep_the_constraint_to_rounding(seed, unit):
    """With the target's own cost as budget, also where some actions are unknown, in any unit."""
    rng = np.random.default_rng(seed)
    B, A = 16, int(rng.integers(2, 7))
    pi = random_rows(rng, B, A)
    pi[rng.random((B, A)) < 0.2] = 0.0
    pi[pi.sum(axis=1) == 0, 0] = 1.0
    pi /= pi.sum(axis=1, keepdims=True)
    cost = rng.random((B, A)) * 10.0 ** rng.uniform(-3, 3, (B, A)) * unit
    epsilon = float(rng.choice([0.0, 0.2]))
    e = estimates(
        rng.normal(size=(B, A)) * 10.0 ** rng.uniform(-4, 4, (B, A)),
        cost=cost,
        noise=rng.random((B, A)) * (rng.random((B, A)) < 0.7),
        known=rng.random((B, A)) < 0.7,
    )
    for name in ("scope", "scope-dr"):
        for floor in (0.0, 0.1):
            recipe = replace(RECIPE, method=name, floor=floor, epsilon=epsilon)
            counts = Counts()
            mu, _ = weigh_rows(METHODS[name], recipe, pi, e, counts=counts)
            assert counts.infeasible == counts.not_finite == 0
            allowed = (1 + epsilon) * (pi * cost).sum(axis=1)
            spent = (mu * cost).sum(axis=1)
            assert (spent <= allowed + 1e-12 * cost.max(axis=1)).all()
            assert (mu[~e.known] == pi[~e.known]).all() or floor > 0
            np.testing.assert_allclose(mu[~e.known], pi[~e.known], rtol=1e-15)
            # and it is worth it: never more variance than the target, by these very numbers
            second = (e.q**2 if name == "scope" else 0.0) + e.noise
            weight = pi**2 * second
            ours = np.divide(weight, mu, out=np.zeros_like(mu), where=mu > 0)
            own = np.divide(weight, pi, out=np.zeros_like(pi), where=pi > 0)
            assert (ours.sum(axis=1) <= own.sum(axis=1) * (1 + 1e-9)).all()


def test_counts_say_why():
    pi = np.full((5, 2), 0.5)
    q = np.array([[1.0, 2.0]] * 5)
    q[1, 0] = np.nan
    known = np.ones((5, 2), bool)
    known[2, 1] = False
    known[3] = False
    cost = np.ones((5, 2))
    cost[4] = 10.0
    e = estimates(q, cost=cost, known=known)
    counts = Counts()
    recipe = replace(RECIPE, limit=5.0)
    mu, _ = weigh_rows(METHODS["scope"], recipe, pi, e, counts=counts)
    assert (counts.not_finite, counts.unseen, counts.infeasible) == (1, 2, 1)
    assert mu[0, 1] > 0.6
    np.testing.assert_array_equal(mu[1:], pi[1:])


def test_a_target_outside_the_known_actions_is_unseen_and_not_infeasible():
    e = estimates([[1.0, 2.0]], known=np.array([[True, False]]))
    counts = Counts()
    mu, _ = weigh_rows(METHODS["scope"], RECIPE, np.array([[0.0, 1.0]]), e, counts=counts)
    assert (counts.unseen, counts.infeasible) == (1, 0)
    np.testing.assert_array_equal(mu, [[0.0, 1.0]])


# -- acting ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned():
    """A table policy with a control variate, and its target."""
    case = random_case(3, states=6, actions=4, horizon=5, time_varying=False, noisy=True)
    target = TabularPolicy(case.target)
    log = rows_of(case, 4000, seed=0)
    return design(log, target, horizon=5, method="scope-dr"), target


@pytest.fixture(scope="module")
def network():
    """A network policy over vectors."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    log = Transitions(
        rng.integers(3, size=300),
        x,
        rng.integers(3, size=300),
        x[:, 0] + rng.normal(size=300),
        rng.random(300),
        x + 0.1 * rng.normal(size=(300, 2)),
    )
    small = MLPRegression(hidden=8, first_steps=60, steps=20)
    return design(log, vector_target, horizon=3, method="scope", regression=small)


def test_act_draws_from_probs(learned):
    """2,000 draws at each of 3 places; chi-square beyond its 1 - 1e-6 quantile fails."""
    from scipy.stats import chi2

    policy, target = learned
    rng = np.random.default_rng(1)
    for state, t in ((0, 0), (3, 2), (5, 4)):
        mu = policy.probs(np.array([state]), t)[0]
        pi = target.probs(np.array([state]), t)[0]
        weighing = policy.weigh(Candidates(np.arange(4)[None], pi[None]), np.array([state]), t)
        count = np.zeros(4)
        for _ in range(2000):
            drawn = policy.act(state, t, rng)
            count[drawn.action] += 1
            assert drawn.probability == mu[drawn.action] > 0
            assert drawn.target_probability == pi[drawn.action]
            assert drawn.control == weighing.control[0, drawn.action]
            assert drawn.baseline == pytest.approx(pi @ weighing.control[0])
        some = mu > 0
        statistic = ((count - 2000 * mu)[some] ** 2 / (2000 * mu[some])).sum()
        assert statistic < chi2.ppf(1 - 1e-6, max(some.sum() - 1, 1))


def test_act_never_draws_the_impossible():
    """Ten tenths sum to less than one: the last action, of probability zero, is not the rest."""

    class Last:
        def random(self):
            return 1.0 - 2**-53

    pi = np.append(np.full(10, 0.1), 0.0)
    assert np.cumsum(pi)[-1] < 1.0
    policy = BehaviorPolicy(CallablePolicy(lambda obs, t: pi[None]), [], RECIPE, REPORT)
    assert policy.act(0, 0, Last()).probability > 0


def test_act_is_quick(learned, network):
    """Printed, not asserted: the machine may be busy. The goal is a p99 below a millisecond."""
    rng = np.random.default_rng(0)
    for name, policy, obs in (("table", learned[0], 2), ("mlp", network, np.zeros(2))):
        took = []
        for _ in range(2000):
            began = time.perf_counter()
            policy.act(obs, 1, rng)
            took.append(time.perf_counter() - began)
        print(f"act, {name}: median {np.median(took) * 1e6:.0f} us", end=", ")
        print(f"p99 {np.quantile(took, 0.99) * 1e6:.0f} us")


def test_doubt_is_counted_while_acting(learned, network):
    policy, _ = learned
    policy.counts = Counts()
    state = policy.probs(np.array([1, 2]), 0)
    assert state.shape == (2, 4)
    assert policy.counts.asked == 2
    assert "asked so far         2 times" in policy.summary()
    network.counts = Counts()
    here = np.zeros((2, 2))
    np.testing.assert_array_equal(network.probs(here, 99), vector_target(here, 99))
    assert network.counts.unseen == network.counts.asked == 2  # no critic beyond the horizon
    assert "fell back to the target policy for an unseen observation 2" in network.summary()
    network.counts = Counts()
    far = np.array([[50.0, 0.0], [0.0, 0.0]])
    mu = network.probs(far, 0)
    np.testing.assert_allclose(mu[0], vector_target(far, 0)[0], rtol=1e-15)
    assert network.counts.unseen >= 1


def test_another_action_set_is_named(learned):
    policy, _ = learned
    other = Candidates(np.arange(3)[None], np.full((1, 3), 1 / 3))
    with pytest.raises(InputError, match=r"offers 3 actions.*designed for 4"):
        policy.weigh(other, np.array([0]), 0)


# -- keeping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["scope", "scope-dr", "odi", "dopt", "on-policy"])
def test_table_round_trip(method, tmp_path):
    case = random_case(4, states=5, actions=3, horizon=4, gamma=0.9, absorbing=True)
    log = rows_of(case, 2000, seed=0, absorbing=True)
    for target in (TabularPolicy(case.target), CallablePolicy(lambda s, t: case.target[t, s])):
        for varying in (False, True):
            policy = design(log, target, horizon=4, method=method, gamma=0.9, time_varying=varying)
            path = tmp_path / "behavior.scope"
            policy.save(path)
            back = load(path, target)
            assert back.recipe == policy.recipe
            assert back.report == policy.report
            for mine, theirs in zip(policy.table(5), back.table(5), strict=True):
                assert (mine is None) == (theirs is None)
                if mine is not None:
                    assert mine.tobytes() == theirs.tobytes()
            assert [x.name for x in tmp_path.iterdir()] == [path.name]


def test_network_round_trip(network, tmp_path):
    path = tmp_path / "behavior.scope"
    network.save(path)
    back = load(path, vector_target)
    obs = np.random.default_rng(0).normal(size=(50, 2))
    for t in range(3):
        assert back.probs(obs, t).tobytes() == network.probs(obs, t).tobytes()
    assert back.report == network.report


def test_saved_file_holds_no_pickle(learned, tmp_path):
    path = tmp_path / "behavior.scope"
    learned[0].save(path)
    with np.load(path, allow_pickle=False) as archive:  # still a NumPy archive for anyone
        assert {archive[name].dtype.kind for name in archive.files} <= set("bfiu")


def test_damaged_files_are_refused(learned, tmp_path):
    """300 seeded cases: bytes flipped, cut short, zeroed, doubled. A checksum misses none."""
    policy, target = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for case in range(300):
        raw = bytearray(whole)
        at = int(rng.integers(len(raw)))
        if case % 4 == 0:
            raw[at] ^= 1 << int(rng.integers(8))
        elif case % 4 == 1:
            raw = raw[:at]
        elif case % 4 == 2:
            for place in rng.integers(len(raw), size=20):
                raw[place] = (raw[place] + 1 + int(rng.integers(255))) % 256
        else:
            raw = raw[:at] + raw[max(0, at - 7) :]
        path.write_bytes(raw)
        with pytest.raises(DataError, match=r"behavior\.scope: "):
            load(path, target)
    path.write_bytes(whole)
    load(path, target)


def sealed(content):
    """Bytes with the checksum of a saved file: damage that the checksum does not show."""
    import hashlib

    return content + hashlib.sha256(content).digest()


def archive_of(**content):
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    return buffer.getvalue()[:-2] + (32).to_bytes(2, "little")


def test_other_files_are_refused(learned, tmp_path, monkeypatch):
    policy, target = learned
    path = tmp_path / "behavior.scope"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("hello.txt", "hello")
    zipped = other.getvalue()[:-2] + (32).to_bytes(2, "little")
    header = np.frombuffer(b'{"format": 2, "kind": "table"}', np.uint8)
    for raw in (
        b"",
        b"x",
        pickle.dumps({"a": 1}),
        other.getvalue(),
        archive_of(a=np.zeros(3)),
        sealed(b""),
        sealed(pickle.dumps({"a": 1})),
        sealed(zipped),
        sealed(archive_of(a=np.zeros(3))),
        sealed(archive_of(header=np.zeros(3))),
        sealed(archive_of(header=np.array([{"a": 1}], dtype=object))),
        sealed(archive_of(header=header)),
        sealed(archive_of(header=np.frombuffer(b"[1, 2]", np.uint8))),
        sealed(archive_of(header=np.frombuffer(b"\xff\xfe", np.uint8))),
    ):
        path.write_bytes(raw)
        with pytest.raises(DataError, match="not a saved behavior policy"):
            load(path, target)
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "nothing.scope", target)
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path, target)
    monkeypatch.setattr(room, "FORMAT", 99)
    policy.save(path)
    monkeypatch.undo()
    with pytest.raises(DataError, match="written in format 99, this version reads 3"):
        load(path, target)


def test_loading_for_another_target_is_refused(learned, network, tmp_path):
    policy, target = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    probs = target.table(5)
    with pytest.raises(InputError, match=r"has 7 states.*designed for one with 6"):
        load(path, np.full((7, 4), 0.25))
    with pytest.raises(InputError, match=r"offers 3 actions.*designed for 4"):
        load(path, np.full((6, 3), 1 / 3))
    with pytest.raises(InputError, match=r"covers 3 time steps.*designed for 5"):
        load(path, np.array(probs[:3]))
    with pytest.raises(InputError, match="cannot be asked"):
        load(path, vector_target)
    network.save(path)
    with pytest.raises(InputError, match="cannot be asked"):
        load(path, np.full((6, 3), 1 / 3))
    with pytest.raises(InputError, match="expected an object with probs"):
        load(path, 3)


@pytest.mark.parametrize("moment", ["savez_compressed", "fsync", "replace"])
def test_never_half_written(learned, tmp_path, monkeypatch, moment):
    policy, _ = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(np if moment == "savez_compressed" else os, moment, fail)
    with pytest.raises((DataError, OSError), match="no space left"):
        policy.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == [path.name]
    with pytest.raises(DataError, match="cannot be written"):
        policy.save(tmp_path / "no folder" / "behavior.scope")


def test_critics_of_ones_own_are_not_saved(learned, tmp_path):
    _, target = learned

    class Own:
        def arrays(self):
            return {"a": np.zeros(1)}

    own = BehaviorPolicy(target, [Own()], RECIPE, REPORT)
    with pytest.raises(InputError, match="Own cannot be brought back"):
        own.save(tmp_path / "x.scope")
    assert not list(tmp_path.iterdir())


def test_table_leaves_the_counts_alone(learned):
    policy, _ = learned
    before = replace(policy.counts)
    mu, b = policy.table(6)
    assert policy.counts == before
    assert mu.shape == b.shape == (5, 6, 4)
    np.testing.assert_array_equal(mu[2], policy.probs(np.arange(6), 2))
    mixed = policy.probs(np.array([0, 1, 2]), np.array([4, 0, 2]))
    np.testing.assert_array_equal(mixed, mu[[4, 0, 2], [0, 1, 2]])
    exact.assess(random_case(3, states=6, actions=4, horizon=5).mdp, mu, mu)


@pytest.mark.parametrize("name", list(METHODS))
def test_many_rows_are_weighed_as_few(name, monkeypatch):
    """Rows do not look at each other: in parts, by several threads, the same bits and counts."""
    rng = np.random.default_rng(5)
    B, A = 1000, 4
    pi = random_rows(rng, B, A)
    q = rng.normal(size=(B, A))
    q[rng.random((B, A)) < 0.01] = np.nan
    known = rng.random((B, A)) < 0.8
    e = estimates(q, cost=rng.random((B, A)), noise=rng.random((B, A)), known=known)
    told = []
    for together in (B, 64, 1):
        monkeypatch.setattr(step_module, "TOGETHER", together)
        counts = Counts()
        told.append((*weigh_rows(METHODS[name], RECIPE, pi, e, counts=counts), counts))
    mu, b, counts = told[0]
    for mu_parts, b_parts, counts_parts in told[1:]:
        assert (mu == mu_parts).all()
        assert (b == b_parts).all()
        assert counts == counts_parts
    assert counts.not_finite > 0
