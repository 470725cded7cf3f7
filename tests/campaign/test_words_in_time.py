"""What a campaign says when something goes wrong: at once, in its status and in its result."""

from __future__ import annotations

import numpy as np
import pytest

from scopeval import Campaign, Limit, Promise, Stop, Transitions, deterministic
from scopeval.errors import CampaignError, InputError

DAYS, HOURS, PUMPS = 20, 4, 3


def today(obs, t):
    """Pumps by the level, with some noise so that both policies are seen."""
    return np.stack([np.full(len(obs), p) for p in (0.5, 0.3, 0.2)], axis=1)


def softmax_of_level(obs, t):
    """A formula that overflows far away."""
    with np.errstate(over="ignore", invalid="ignore"):
        e = np.exp(np.outer(obs[:, 0], [0.0, 0.5, 1.5]))
        return e / e.sum(axis=1, keepdims=True)


def rounded(obs, t):
    return np.full((len(obs), PUMPS), 0.34)


def logs_of_a_tank(columns=1):
    rng = np.random.default_rng(0)
    level = rng.uniform(0.6, 4.0, (DAYS, HOURS + 1, columns))
    n = DAYS * HOURS
    return Transitions(
        t=np.tile(np.arange(HOURS), DAYS),
        obs=level[:, :-1].reshape(n, columns),
        action=rng.integers(0, PUMPS, n),
        reward=rng.normal(size=n),
        cost=rng.uniform(0.0, 1.0, n),
        next_obs=level[:, 1:].reshape(n, columns),
        terminated=np.tile(np.arange(HOURS) == HOURS - 1, DAYS),
    )


@pytest.fixture
def make(tmp_path):
    made = []

    def make(new=softmax_of_level, *, logs=None, **terms):
        terms = {"horizon": HOURS, "seed": 1} | terms
        policies = {"today": today, "new": new}
        made.append(Campaign.create(tmp_path / f"{len(made)}", policies, logs=logs, **terms))
        return made[-1]

    yield make
    for campaign in made:
        campaign.close()


def run_day(campaign, steps=HOURS, level=2.0, cost=1.0, **outcome):
    rng = np.random.default_rng(campaign.status().started)
    episode = campaign.start("tank")
    for t in range(steps):
        if episode.act([level]) is None:
            break
        last = {"terminated": t + 1 == steps} if outcome.get("terminated") else {}
        episode.observe(rng.normal(), cost, [level], **last)
    episode.end()


def test_policies_are_asked_at_the_observations_of_the_logs_before_anything_starts(make, tmp_path):
    with pytest.raises(InputError, match=r"policies\['new'\]: .*sum to 1.02 .* of the logs"):
        make(rounded, logs=logs_of_a_tank())
    with pytest.raises(InputError, match=r"policies\['new'\]: .*NaN .* observation \[3\.\d+\]"):
        make(lambda obs, t: np.where(obs > 3.0, np.nan, today(obs, t)), logs=logs_of_a_tank())
    assert not list(tmp_path.iterdir())
    assert make(logs=logs_of_a_tank()).status().started == 0


def test_a_policy_that_has_failed_says_where_and_why_in_the_status(make):
    campaign = make()
    run_day(campaign)
    run_day(campaign, level=7000.0)
    status = campaign.status()
    assert "NaN" in status.policies[1].reason
    assert status.policies[1].reason.endswith("(episode 1, step 0, at [7000.0])")
    assert "only one policy is left: new failed: policy: NaN" in status.done
    assert "at [7000.0]" in str(status)


@pytest.mark.parametrize("kept", [True, False])
def test_an_observation_of_another_width_than_that_of_the_logs_is_refused_at_once(make, kept):
    campaign = make(today, logs=logs_of_a_tank())
    if kept:  # found again in the database
        campaign.backend.shape = None
    with pytest.raises(
        InputError, match=r"got shape \(2,\) at t=0, expected \(1,\) as before, or as"
    ):
        campaign.start("tank").act([2.0, 0.1])


def test_logs_that_do_not_fit_are_left_out_with_words(make, monkeypatch):
    """As of a journal whose first observations were taken by an older version."""
    campaign = make(today, logs=logs_of_a_tank(2))
    monkeypatch.setattr(type(campaign.backend), "_learn_shape", lambda self: None)
    campaign.backend.shape = None
    for _ in range(3):
        run_day(campaign)
    (text,) = [x for x in campaign.result().warnings if "logs are not used" in x]
    assert "(2,)" in text
    assert "(1,)" in text


def test_a_number_where_a_policy_reads_a_row_says_so(make):
    episode = make().start("tank")
    with pytest.raises(InputError, match=r"observation is a number: .* such as act\(\[2.0\]\)"):
        episode.act(2.0)


def test_alarms_and_what_the_baseline_has_rescued_are_in_status_and_result(make):
    campaign = make(promise=Limit(step=2.0, action="fall back"), stop=Stop(episodes=6))
    for day in range(6):
        run_day(campaign, cost=3.0 if day < 2 else 1.0)
    assert "2 alarms, 2 episodes handed over to the baseline" in str(campaign.status())
    result = campaign.result()
    assert "Caution: the baseline took the rest of 2 of 6 episodes (2 alarms)" in result.sentence


def test_the_same_of_one_policy(tmp_path):
    with Campaign.create(
        tmp_path / "c",
        softmax_of_level,
        horizon=HOURS,
        baseline=deterministic(lambda obs: 0, actions=PUMPS),
        unconfirmed="target",
        promise=[Promise(of="target"), Limit(step=2.0, action="fall back")],
    ) as campaign:
        run_day(campaign, cost=3.0)
        run_day(campaign)
        assert "1 alarm, 1 episode handed over to the baseline" in str(campaign.status())
        assert "the baseline took the rest of 1 of 2 episodes" in str(campaign.result())


def test_a_stop_is_an_end_like_that_of_the_plan(make):
    campaign = make(stop=Stop(episodes=6))
    run_day(campaign)
    assert campaign.status().done is None
    campaign.stop("a leak")
    status = campaign.status()
    assert (status.done, status.headline) == ("a leak", "stopped: a leak")
    with pytest.raises(CampaignError, match="a leak"):
        campaign.start("tank")


def test_episodes_that_end_too_early_are_counted(make):
    campaign = make(stop=Stop(episodes=3))
    run_day(campaign, steps=2)
    run_day(campaign)
    run_day(campaign, steps=2, terminated=True)
    text = "1 of 3 finished episodes ended before the horizon without termination"
    assert text in str(campaign.status())
    assert any(text in warning for warning in campaign.result().warnings)


def test_no_result_says_whose_the_episodes_were(make):
    campaign = make(shadow=True)
    run_day(campaign)
    with pytest.raises(InputError, match="1 finished ones were run by what runs today"):
        campaign.result()


@pytest.mark.parametrize("reset", [True, False])
def test_a_plant_that_is_never_reset_is_noticed(make, reset):
    campaign, rng, level = make(stop=Stop(episodes=12)), np.random.default_rng(5), 2.0
    for _ in range(12):
        episode = campaign.start("tank")
        level = 2.0 if reset else level
        while not episode.over:
            episode.act([level])
            level = float(rng.uniform(0.6, 4.0))
            episode.observe(0.0, 1.0, [level])
        episode.end()
    said = [x for x in campaign.result().warnings if "the one before on the plant has ended" in x]
    assert [x.split(" episodes")[0] for x in said] == ([] if reset else ["11 of 11"])


def test_what_each_policy_costs_alone_is_in_the_result(make):
    campaign = make(lambda obs, t: np.tile([0.1, 0.1, 0.8], (len(obs), 1)), stop=Stop(episodes=60))
    rng = np.random.default_rng(6)
    with campaign.group():
        for _ in range(60):
            episode = campaign.start("tank")
            while not episode.over:
                pump = episode.act([2.0])
                episode.observe(float(rng.normal()), float(pump), [2.0])
            episode.end()
    result = campaign.result()
    # 4 hours of 0.3 + 0.4, and of 0.1 + 1.6; the probability of a false alarm is below 1e-3
    for name, truth in (("today", 4 * 0.7), ("new", 4 * 1.7)):
        paid = result.costs[name]
        assert abs(paid.estimate - truth) < 4 * paid.se
        assert paid.low < truth < paid.high
    assert "of each policy alone: today " in str(result).replace("\n             ", " ")
    assert result.to_frame()["cost"]["new"] == result.costs["new"].estimate
