"""Threads: every item once and in order, spans that cover all rows, torch's setting restored."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from scopeval import Transitions, World, design, frontier
from scopeval._parallel import (
    _blas_libraries,
    _take_control,
    fan_out,
    fan_out_rows,
    one_blas_thread,
    one_torch_thread,
    stop_if_unwanted,
)
from scopeval.envs.gridworld import Gridworld, gridworld_logs, target_policies
from scopeval.models import world as world_module
from scopeval.models.training import Training
from scopeval.workers.attempt import attempt


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_results_are_in_the_order_of_the_items(threads):
    assert fan_out(lambda x: x * x, range(20), threads=threads) == [x * x for x in range(20)]
    assert fan_out(lambda x: x, [], threads=threads) == []


def test_items_are_computed_at_the_same_time():
    """Two items that wait for each other: one thread alone would never finish."""
    meet = threading.Barrier(2, timeout=60)
    assert sorted(fan_out(lambda _: meet.wait(), range(2), threads=2)) == [0, 1]


def test_an_error_in_a_thread_is_raised():
    with pytest.raises(ZeroDivisionError):
        fan_out(lambda x: 1 // x, [1, 0, 2], threads=2)


@given(st.integers(0, 500), st.integers(1, 64), st.integers(1, 9), st.integers(1, 5))
def test_spans_cover_all_rows_and_start_at_whole_blocks(rows, block, least, threads):
    spans = fan_out_rows(lambda lo, hi: (lo, hi), rows, block=block, least=least, threads=threads)
    assert len(spans) <= threads
    assert [row for lo, hi in spans for row in range(lo, hi)] == list(range(rows))
    assert all(lo % block == 0 for lo, _ in spans)
    if len(spans) > 1:
        assert all(-(-(hi - lo) // block) >= least for lo, hi in spans)


def test_the_number_of_cores_is_asked_at_every_call(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert len(fan_out_rows(lambda lo, hi: (lo, hi), 300)) == 3


def test_torch_has_its_threads_back_after_the_last_caller():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_torch_thread():
            assert torch.get_num_threads() == 1
            with one_torch_thread():
                assert torch.get_num_threads() == 1
            assert torch.get_num_threads() == 1

        def inside(_: int) -> int:
            with one_torch_thread():
                return torch.get_num_threads()

        with one_torch_thread(), ThreadPoolExecutor(4) as pool:
            assert set(pool.map(inside, range(8))) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_after_an_error_the_other_threads_end_early():
    """The second item would run for ever; it ends because nobody waits for it any more."""
    began, ended = threading.Event(), threading.Event()

    def work(item: int) -> None:
        if item == 0:
            began.wait(60)
            raise ZeroDivisionError
        began.set()
        try:
            while True:
                stop_if_unwanted()
                ended.wait(0.001)
        finally:
            ended.set()

    with pytest.raises(ZeroDivisionError):
        fan_out(work, range(2), threads=2)
    assert ended.is_set()
    stop_if_unwanted()  # outside of `fan_out`: nothing


def blas_threads():
    found = _blas_libraries().select(user_api="blas").info()
    return {one["num_threads"] for one in found}


@pytest.fixture
def two_blas_threads():
    """As on a machine with two cores, wherever this is."""
    _take_control()
    with _blas_libraries().limit(limits=2, user_api="blas"):
        assert blas_threads() == {2}
        yield


@pytest.mark.usefixtures("two_blas_threads")
@pytest.mark.parametrize("learn", [design, frontier])
def test_designs_leave_blas_one_thread(learn):
    """Seen to fail without the limit around each."""
    world, seen = Gridworld(3).mdp(), set()
    own = target_policies(1, 3)[0]

    def policy(obs, t):
        seen.update(blas_threads())
        return own.probs(obs, t)

    learn(gridworld_logs(world, 100), policy, horizon=3)
    assert seen == {1}


@pytest.mark.usefixtures("two_blas_threads")
def test_a_world_leaves_blas_one_thread(monkeypatch):
    """Also before and after the training; seen to fail without the limit around each."""
    rng, seen = np.random.default_rng(0), []
    halved = world_module.halved

    def look(*given):
        seen.append(blas_threads())
        return halved(*given)

    def log():
        obs = rng.normal(size=(60, 2))
        moved = obs + 0.1 * rng.normal(size=(60, 2))
        columns = {"reward": obs[:, 0], "cost": obs[:, 1] ** 2, "terminated": np.zeros(60, bool)}
        return Transitions(
            np.zeros(60, int), obs, rng.integers(0, 2, 60), next_obs=moved, **columns
        )

    monkeypatch.setattr(world_module, "halved", look)
    world = World.learn(log(), training=Training(steps=2))
    world.refit(log())
    assert seen == [{1}, {1}]


@pytest.mark.usefixtures("two_blas_threads")
def test_jobs_have_one_blas_thread():
    """Also in this process, where BLAS was loaded before: the same bits as by workers."""
    found = attempt(lambda job: sorted(blas_threads()), None)
    assert (found.kind, found.value) == ("done", [1])
    assert blas_threads() == {2}


@pytest.mark.usefixtures("two_blas_threads")
def test_any_thread_limits_the_threads_of_blas_and_any_restores_them():
    """Seen to fail where the thread that was first keeps control, as threadpoolctl has it."""
    threads, before = blas_threads, blas_threads()
    with one_blas_thread():  # this thread has the control that others need
        pass
    inside, entered, leave = [], threading.Event(), threading.Event()

    def first():
        with one_blas_thread():
            inside.append(threads())
            entered.set()
            leave.wait()

    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(first)
        entered.wait()
        with one_blas_thread():  # and leaves last
            leave.set()
            work.result()
            inside.append(threads())
    assert inside == [{1}, {1}]
    assert threads() == before


def test_blas_has_its_threads_back_after_the_last_caller():
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    def threads() -> set[int]:
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    before = threads()
    with one_blas_thread():
        assert threads() == {1}
        with one_blas_thread():
            assert threads() == {1}
        assert threads() == {1}
    assert threads() == before
