"""`EpisodeLog` is the in-memory face of a campaign: the same decisions, episodes and estimate."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from campaign.machine import HORIZON, Machine, tables
from scopeval import Campaign, EpisodeLog, Stop, design, estimate
from wearing_machine import HORIZON as DAYS
from wearing_machine import machine_log, policy, transitions

MACHINE = Machine(4)


def in_memory(log, count, horizon, *, hand_over_at=None, lose_at=None, first=None):
    for k in range(count):
        log.start()
        obs, t, ended = MACHINE.first(k) if first is None else first, 0, False
        while t < horizon and not ended:
            if (k, t) == hand_over_at:
                log.hand_over()
            chosen = log.act(obs)
            reward, cost, following, ended = MACHINE.step(k, t, obs, chosen.action)
            log.step(obs, chosen, reward, cost)
            obs, t = following, t + 1
            if k == lose_at:
                log.lose("the cable was pulled")
                break
        else:
            log.end(obs, terminated=ended)


def on_disk(campaign, count, *, hand_over_at=None, lose_at=None, first=None):
    for k in range(count):
        episode = campaign.start()
        obs = MACHINE.first(k) if first is None else first
        while not episode.over:
            if (k, episode.step) == hand_over_at:
                campaign.hand_over()
            action = episode.act(obs)
            reward, cost, obs, ended = MACHINE.step(k, episode.step, obs, action)
            episode.observe(reward, cost, obs, terminated=ended)
            if k == lose_at:
                episode.lose("the cable was pulled")
                break
        else:
            episode.end()


def assert_same(ours, theirs):
    for one in fields(ours):
        if one.name in ("provenance", "interrupted"):
            continue
        near, far = getattr(ours, one.name), getattr(theirs, one.name)
        if isinstance(near, np.ndarray):
            np.testing.assert_array_equal(near, far, err_msg=one.name)
        else:
            assert near == far, one.name


@pytest.mark.parametrize("hand_over_at", [None, (30, 2)])
def test_the_same_seed_gives_the_same_episodes_and_the_same_estimate(place, hand_over_at):
    target, behavior = tables()
    log = EpisodeLog(HORIZON, target=target, behavior=behavior, seed=5)
    in_memory(log, 60, HORIZON, hand_over_at=hand_over_at, lose_at=7)
    log.drop(11, "a broken sensor")
    with (
        Campaign.create(
            place / "c",
            target,
            horizon=HORIZON,
            behavior=behavior,
            seed=5,
            promise=(),
            stop=Stop(episodes=60),
        ) as campaign,
        campaign.group(),
    ):
        on_disk(campaign, 60, hand_over_at=hand_over_at, lose_at=7)
        campaign.drop(11, "a broken sensor")
        kept, result = campaign.episodes(), campaign.result()
    assert_same(log.episodes(), kept)
    answer = estimate(log.episodes(), anytime=True)
    assert answer.interval.estimate == pytest.approx(result.interval.estimate, rel=1e-12)
    assert answer.cost.total == pytest.approx(result.cost.total, rel=1e-12)
    assert (answer.started, answer.finished) == (result.started, result.finished) == (60, 58)


def test_a_learned_design_with_a_control_variate_decides_the_same(place):
    target = policy()
    behavior = design(transitions(machine_log(60)), target, horizon=DAYS, method="scope")
    log = EpisodeLog(DAYS, target=target, behavior=behavior, seed=2)
    in_memory(log, 8, DAYS, first=0)
    with (
        Campaign.create(
            place / "c", target, horizon=DAYS, behavior=behavior, seed=2, promise=()
        ) as campaign,
        campaign.group(),
    ):
        on_disk(campaign, 8, first=0)
        assert_same(log.episodes(), campaign.episodes())
