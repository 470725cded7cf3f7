"""A campaign records every decision before it is carried out, and survives restarts."""

from __future__ import annotations

import numpy as np
import pytest
from machine import ACTIONS, HORIZON, STATES, Machine, run_episode, tables

from scopeval import Bound, Campaign, Inference, Promise, estimate
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.policies.protocols import Weighing

TARGET, BEHAVIOR = tables()


@pytest.fixture
def campaign(where):
    terms = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": 3}
    with Campaign.create(where, TARGET, **terms, lease=600.0) as made:  # however slow it is here
        yield made


def reopened(where):
    return Campaign.open(where, TARGET)


def test_a_campaign_gives_the_result_of_its_episodes(campaign):
    for _ in range(30):
        run_episode(campaign)
    result, episodes = campaign.result(), campaign.episodes()
    assert len(episodes) == result.finished == campaign.status().finished == 30
    other = estimate(episodes, anytime=True, inference=Inference(estimator="pdis"))
    assert result.estimate == pytest.approx(other.estimate, rel=1e-12)
    assert result.cost.total == pytest.approx(float(episodes.costs().sum()))
    assert result.certificate.difference.estimate == pytest.approx(
        other.certificate.difference.estimate
    )
    table = np.asarray(BEHAVIOR)
    steps = episodes.steps
    assert episodes.behavior_prob[steps] == pytest.approx(
        table[episodes.obs[steps], episodes.action[steps]]
    )


def test_a_decision_is_on_disk_before_act_returns(campaign, where):
    episode = campaign.start("a")
    action = episode.act(2)
    with reopened(where) as other:
        found = other.resume_episode("a")
        assert found.decided.action == action
        assert found.act(2) == action


def test_repeating_a_call_changes_nothing(campaign):
    episode = campaign.start("a")
    action = episode.act(1, step=0)
    assert episode.act(1, step=0) == action == episode.act(1)
    episode.observe(1.0, 2.0, 3, step=0)
    episode.observe(1.0, 2.0, 3, step=0)
    assert episode.act(1, step=0) == action
    assert episode.step == 1
    with pytest.raises(InputError, match="another outcome"):
        episode.observe(1.5, 2.0, 3, step=0)
    with pytest.raises(InputError, match="was decided at 1"):
        episode.act(2, step=0)
    episode.act(3)
    with pytest.raises(CampaignError, match="in order"):
        episode.act(3, step=2)


def test_starting_twice_by_one_request_is_one_episode(campaign):
    first = campaign.start("a", request="r1")
    assert campaign.start("a", request="r1").number == first.number
    assert campaign.status().started == 1


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        ((np.nan, 1.0, 2), "reward"),
        ((1.0, -1e-12, 2), "max\\(cost, 0.0\\)"),
        ((1.0, np.inf, 2), "cost"),
        ((1.0, 1.0, [1.0, 2.0]), "next_obs: got shape"),
        ((1.0, 1.0, np.nan), "next_obs"),
        (("x", 1.0, 2), "reward"),
    ],
)
def test_a_bad_reading_is_refused_and_not_recorded(campaign, outcome, says):
    episode = campaign.start()
    episode.act(1)
    with pytest.raises(InputError, match=says):
        episode.observe(*outcome)
    assert episode.decided is not None
    episode.observe(1.0, 1.0, 2)
    assert episode.step == 1
    episode.end()
    assert campaign.result().finished == 1


def test_a_bad_observation_is_refused(campaign):
    episode = campaign.start()
    for bad in (np.nan, STATES, "x", [[1]]):
        with pytest.raises(InputError):
            episode.act(bad)
    assert episode.decided is None
    episode.act(0)


def test_random_numbers_are_those_of_the_place(campaign, place):
    """The same campaign with interruptions decides the same: 20 episodes, reopened each time."""
    for _ in range(20):
        run_episode(campaign)
    again = place / "again.campaign"
    Campaign.create(again, TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=3).close()
    for _ in range(20):
        with Campaign.open(again, TARGET) as part:
            run_episode(part)
    with Campaign.open(again, TARGET) as other:
        assert other.result() == campaign.result()
        assert np.array_equal(other.episodes().action, campaign.episodes().action)


def test_an_episode_that_is_cut_is_resumed(campaign, where):
    machine = Machine()
    run_episode(campaign)
    episode = campaign.start("a")
    obs = machine.first(episode.number)
    action = episode.act(obs)
    with reopened(where) as other:
        found = other.start("a", resume=True)
        assert (found.number, found.decided.action) == (episode.number, action)
        assert other.status().started == 2


def test_an_episode_that_is_cut_is_lost_with_its_cost(campaign, where):
    episode = campaign.start("a")
    episode.act(1)
    episode.observe(0.0, 7.5, 2)
    with reopened(where) as other:
        with pytest.raises(CampaignError, match="another controller runs 'a'"):
            other.start("a")
        run_episode(other, "a", take_over=True)
        result = other.result()
        assert (result.started, result.finished, result.diagnostics.lost) == (2, 1, 1)
        assert result.cost.total == pytest.approx(7.5 + result.cost.per_episode)
        assert "before it had ended" in result.diagnostics.first_loss


def test_an_episode_that_is_over_is_ended_by_the_next_start(campaign):
    episode = campaign.start("a")
    episode.act(1)
    episode.observe(0.0, 1.0, 2, terminated=True)
    campaign.start("a")
    assert campaign.status().finished == 1


def test_operators_pause_hand_over_and_stop(campaign):
    episode = campaign.start("a")
    episode.act(1)
    episode.observe(0.0, 1.0, 2)
    campaign.pause("maintenance", who="ada")
    with pytest.raises(CampaignError, match="maintenance"):
        campaign.start("b")
    campaign.resume(who="ada")
    campaign.start("b")
    campaign.hand_over("a noise", who="ada")
    episode.act(2)
    episode.observe(0.0, 1.0, 2, terminated=True)
    episode.end()
    found = campaign.episodes()
    assert found.guarded.tolist() == [1]
    assert found.behavior_prob[0, 1] == found.target_prob[0, 1]
    run_episode(campaign, "a")
    assert campaign.episodes().by_target.tolist() == [False, True]
    campaign.stop()
    with pytest.raises(CampaignError, match="stopped"):
        campaign.start("a")
    assert [e.who for e in campaign.events() if e.kind == "pause"] == ["ada"]


def test_the_report_tells_plants_guards_designs_and_events(campaign, place):
    run_episode(campaign, "<b>hall</b>")
    campaign.pause("a <i>noise</i>", who="ada")
    text = campaign.report(place / "r.html").read_text()
    assert "&lt;b&gt;hall&lt;/b&gt;" in text
    assert "a &lt;i&gt;noise&lt;/i&gt;" in text
    assert campaign.designs()[0].fingerprint[:12] in text
    assert "expected cost at most 1 times the target policy" in text


def test_a_finished_episode_can_be_dropped(campaign):
    for _ in range(3):
        run_episode(campaign)
    campaign.drop(1, "the sensor was loose")
    result = campaign.result()
    assert (result.finished, result.diagnostics.lost) == (2, 1)
    assert campaign.episodes().index.tolist() == [0, 2]


def test_another_target_is_refused(campaign, where, place):
    run_episode(campaign)
    with pytest.raises(InputError, match="target"):
        Campaign.open(where, tables(1)[0])
    with pytest.raises(InputError, match="recorded is"):
        _open_by_function(place)


def _open_by_function(place):
    where = place / "f.campaign"

    def policy(obs, t):
        return np.asarray(TARGET)[obs]

    def other(obs, t):
        return np.full((len(obs), ACTIONS), 1 / ACTIONS)

    with Campaign.create(where, policy, horizon=HORIZON) as campaign:
        run_episode(campaign)
    Campaign.open(where, policy).close()
    return Campaign.open(where, other)


def test_places_that_cannot_be_are_told(place, campaign, where):
    with pytest.raises(DataError, match="no such file"):
        Campaign.open(place / "none", TARGET)
    with pytest.raises(DataError, match="already"):
        Campaign.create(where, TARGET, horizon=HORIZON)
    with pytest.raises(InputError, match="mysql"):
        Campaign.create("mysql://x/y", TARGET, horizon=HORIZON)


class Weighted:
    """A behavior policy that depends on the weight of the episode so far."""

    def __init__(self):
        self.seen = []

    def weigh(self, offered, obs, t, state):
        self.seen.append(float(state.weight[0]))
        share = 0.5 * np.minimum(state.weight, 1.0)[:, None]
        return Weighing((1 - share) * np.asarray(BEHAVIOR)[obs] + share * offered.probs)


def test_the_weight_travels_with_the_episode_through_restarts(place):
    where = place / "w.campaign"
    behavior = Weighted()
    with Campaign.create(where, TARGET, horizon=HORIZON, behavior=behavior) as campaign:
        episode = campaign.start()
        episode.act(1)
        episode.observe(0.0, 1.0, 2)
        episode.act(2)
        weight = episode.weight
    with pytest.raises(InputError, match="object of your own"):
        Campaign.open(where, TARGET)
    again = Weighted()
    with Campaign.open(where, TARGET, behavior=again) as campaign:
        episode = campaign.resume_episode()
        assert episode.weight == weight
        episode.observe(0.0, 1.0, 3)
        episode.act(3)
        assert again.seen == pytest.approx([weight], rel=1e-12)
        assert behavior.seen[0] == 1.0
        assert campaign.verify().good


def test_another_design_is_found_by_verification(place):
    where = place / "w.campaign"
    with Campaign.create(where, TARGET, horizon=HORIZON, behavior=Weighted()) as campaign:
        run_episode(campaign)

    class Other(Weighted):
        def weigh(self, offered, obs, t, state):
            return Weighing(offered.probs)

    with Campaign.open(where, TARGET, behavior=Other()) as campaign:
        found = campaign.verify()
        assert not found.good
        assert found.different > 0


def test_a_behavior_that_fails_falls_back_and_is_counted(place):
    class Fails:
        def weigh(self, offered, obs, t, state):
            raise RuntimeError("no answer")

    with Campaign.create(
        place / "f", TARGET, horizon=HORIZON, behavior=Fails(), seed=1
    ) as campaign:
        for _ in range(3):
            run_episode(campaign)
        result = campaign.result()
        assert result.diagnostics.fallbacks == int(campaign.episodes().length.sum())
        assert any(
            "fell back to the target policy in 100%" in w for w in result.diagnostics.warnings
        )


def test_a_frontier_point_is_kept_and_runs(place):
    """A design below the target policy's own cost depends on the weight; its file is kept."""
    from wearing_machine import HORIZON as LONG
    from wearing_machine import machine_log, policy, transitions

    logs = transitions(machine_log(300))
    where = place / "e.campaign"
    with Campaign.create(
        where, policy(), horizon=LONG, logs=logs, promise=Promise(0.9)
    ) as campaign:
        assert campaign.terms.promise.epsilon == -0.1
        episode = campaign.start()
        for _ in range(5):
            episode.act(1)
            episode.observe(0.0, 1.0, 1)
    with Campaign.open(where, policy()) as campaign:
        assert campaign.verify().good
        assert campaign.designs()[0].kind == "design"


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        ("cost", r"expected Promise\(...\) or Limit\(...\)"),
        (1.0, r"try Promise\(at_most=1\)"),
        (Promise(limit=3.0), r"is about the target policy's own cost, .* limits by Limit"),
        (Promise(of=np.full((3, 2), 0.5)), "is about the target policy's own cost"),
        ([Promise(), Promise(0.9)], "got 2 about 'cost', expected one"),
        (Promise(signal="heat", bound=Bound(step=1.0)), "proves promises about the cost only"),
    ],
)
def test_promises_that_a_campaign_cannot_keep(tmp_path, promise, words):
    with pytest.raises(InputError, match=words):
        Campaign.create(tmp_path / "c", np.full((3, 2), 0.5), horizon=3, promise=promise)
    assert not (tmp_path / "c").exists()


def test_with_a_baseline_a_promise_says_whose_cost_it_is_about(tmp_path):
    policy, today = np.full((3, 2), 0.5), np.full((3, 2), [0.9, 0.1])
    with pytest.raises(InputError, match=r"expected Promise\(of='target'\), or both policies"):
        Campaign.create(tmp_path / "a", policy, horizon=3, baseline=today, promise=Promise())
    both = {"today": today, "new": policy}
    with pytest.raises(InputError, match="whose promise is about the baseline's cost"):
        Campaign.create(tmp_path / "b", both, horizon=3, promise=Promise(of="target"))
    with Campaign.create(tmp_path / "c", policy, horizon=3, baseline=today) as campaign:
        rules = [guard.rule for guard in campaign.status().guards]
    assert rules == ["expected cost at most 1 times the target policy's"]
