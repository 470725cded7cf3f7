"""Campaigns with a history of what no action changes: durable, and adjusted by earlier episodes."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from scopeval import Campaign, History, Inference
from scopeval.envs.inventory import Inventory
from scopeval.errors import InputError

WORLD = Inventory(horizon=6)
T = WORLD.horizon


def up_to(level):
    """Order up to a level: probabilities [41, 4] by the stock."""
    away = np.abs(np.arange(41)[:, None] + np.array([0.0, 5.0, 10.0, 15.0]) - level)
    weight = np.exp(-away)
    return weight / weight.sum(axis=1, keepdims=True)


OLD, NEW = up_to(10.0), up_to(16.0)


@pytest.fixture(scope="module")
def history():
    return History(WORLD.paths(3000, np.random.default_rng(1)), "demand", block=1)


def run(campaign, episodes, *, cut=None, seed=0):
    """Episodes of the shop; from number `cut` on one ends early."""
    rng = np.random.default_rng(seed)
    with campaign.group():
        for number in range(episodes):
            path, stock = WORLD.paths(1, rng), WORLD.begin(1)
            episode = campaign.start("shop")
            for t in range(T):
                action = episode.act(int(stock[0]))
                done = WORLD.step(stock, np.array([action]), path[:, t], rng)
                stock = done.state
                ends = number == cut and t == 2
                episode.observe(
                    float(done.reward[0]), float(done.cost[0]), int(stock[0]), terminated=ends,
                    signals={"demand": float(path[0, t])},
                )  # fmt: skip
                if ends:
                    break
            episode.end()


def test_the_history_is_kept_and_used(tmp_path, history):
    place = tmp_path / "shop.campaign"
    campaign = Campaign.create(place, OLD, horizon=T, seed=1, context=history)
    run(campaign, 120)
    campaign.close()
    again = Campaign.open(place, OLD)
    result = again.result()
    assert result.context.relative_variance < 0.5
    assert result.context.dependent == ()
    assert "by context" in result.noise.sentence
    plain = result.context.plain
    assert result.interval.half_width < plain.half_width * 1.3  # at all times against fixed
    assert "context" in result.summary()
    again.verify()
    again.close()


def test_without_the_signal_nothing_is_observed(tmp_path, history):
    campaign = Campaign.create(tmp_path / "shop.campaign", OLD, horizon=T, context=history)
    episode = campaign.start("shop")
    episode.act(10)
    with pytest.raises(InputError, match="demand missing"):
        episode.observe(1.0, 0.0, 9)
    campaign.close()


def test_a_cut_path_ends_its_use_and_is_said(tmp_path, history):
    campaign = Campaign.create(tmp_path / "shop.campaign", OLD, horizon=T, context=history)
    run(campaign, 40, cut=20)
    result = campaign.result()
    assert result.context is None
    assert "the history is not used" in result.summary()
    campaign.close()


def test_several_policies(tmp_path, history):
    both = {"today": OLD, "new": NEW}
    campaign = Campaign.create(tmp_path / "shop.campaign", both, horizon=T, seed=1, context=history)
    campaign.backend.on_look = None
    run(campaign, 150)
    result = campaign.result()
    assert result.context["new"].relative_variance < 0.9
    assert result.noise["new"].context > 0.05
    campaign.close()


def test_what_no_database_can_hold_is_refused(tmp_path, history):
    place = tmp_path / "shop.campaign"
    own = History(history.paths, "demand", features=lambda paths: paths[:, :, 0])
    for context, text in (
        (own, "a function of yours"),
        (History.starts(200), "starts that a simulator makes"),
        (history.paths, "expected a History"),
    ):
        with pytest.raises(InputError, match=text):
            Campaign.create(place, OLD, horizon=T, context=context)
    with pytest.raises(InputError, match="return_bound"):
        Campaign.create(
            place, OLD, horizon=T, context=history, inference=Inference(return_bound=(-1e3, 1e3))
        )
    assert not place.exists()


def test_a_damaged_history_is_noticed(tmp_path, history):
    from scopeval.errors import DataError

    place = tmp_path / "shop.campaign"
    campaign = Campaign.create(place, OLD, horizon=T, context=history)
    run(campaign, 20)
    campaign.close()
    with sqlite3.connect(place) as connection:
        connection.execute("update logs set content = x'00' where name = 'context'")
    with pytest.raises(DataError, match="context"):
        Campaign.open(place).result()
