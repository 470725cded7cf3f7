"""What runs today is the fallback: every case, and what it does to the estimand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from machine import HORIZON, Machine, run_episode, tables

from scopeval import Bound, Campaign, Limit, Promise
from scopeval.errors import InputError

TARGET, BEHAVIOR = tables()
TODAY = np.eye(3)[[0, 1, 2, 0]]


def create(place, **settings):
    settings = {"horizon": HORIZON, "behavior": BEHAVIOR, "baseline": TODAY} | settings
    return Campaign.create(place / "c", TARGET, **settings)


def test_a_design_that_is_not_confirmed_waits_for_an_operator(place, caplog):
    """Nobody has confirmed the target itself: today's controller runs until an operator says so."""
    with create(place, behavior=None) as campaign:
        assert "not confirmed: what runs today goes on" in caplog.text  # said at once
        status = campaign.status()
        assert not status.live
        first = "running: the design is not confirmed: what runs today goes on"
        assert str(status).startswith(first)
        number = run_episode(campaign)
        found = campaign.episode(number)
        assert (found.shadow, found.by) == (True, "baseline")
        report = campaign.shadow()
        assert report.earned.n == report.paid.n == 1
        with pytest.raises(InputError, match="no episode is finished"):
            campaign.result()
        campaign.go_live("we have looked at it", who="ada")
        assert "the target policy itself runs" in campaign.status().unconfirmed
        run_episode(campaign)
        assert campaign.result().finished == 1
        assert campaign.verify().good


def test_the_target_runs_where_that_is_asked_for(place):
    with create(place, behavior=None, unconfirmed="target") as campaign:
        assert campaign.status().live
        assert "the target policy itself runs" in str(campaign.status())
        episode = campaign.start()
        episode.act(1)
        assert episode.by == "target"


def test_a_policy_that_is_given_is_confirmed(place):
    with create(place) as campaign:
        assert campaign.status().unconfirmed is None
        assert campaign.status().live


def test_after_a_hand_over_the_baseline_runs_and_is_no_evidence(place):
    with create(place) as campaign:
        run_episode(campaign)
        episode = campaign.start()
        episode.act(1)
        episode.observe(0.0, 1.0, 2)
        campaign.hand_over("a noise")
        assert episode.act(2) == TODAY[2].argmax()
        assert (episode.by, episode.back) == ("baseline", 1)
        episode.observe(0.0, 1.0, 3, terminated=True)
        episode.end()
        assert campaign.result().finished == 2  # about the target until then, today's for the rest
        assert campaign.episodes().guarded.tolist() == [0, 1]
        run_episode(campaign)
        status = campaign.status()
        assert (status.finished, status.shadowed) == (2, 1)
        assert campaign.verify().good


def test_a_refuted_promise_ends_the_evaluation_with_the_next_episode(place):
    with create(place, promise=Promise(of="target", bound=Bound(step=1.5))) as campaign:
        running = campaign.start("b")
        running.act(1)
        other = campaign.start("a")
        other.act(1)
        other.observe(0.0, 9.0, 2)  # above the stated bound: nothing is known any more
        other.end()
        assert campaign.status().state == "handed over"
        running.observe(0.0, 1.0, 2)
        running.act(2)
        assert running.by == "behavior"  # it ends as it began
        assert campaign.start("a").shadow
        assert campaign.verify().good


def test_a_policy_without_an_answer_leaves_the_rest_to_the_baseline(place):
    class Fails:
        def weigh(self, offered, obs, t, state=None):
            if t == 2:
                raise RuntimeError("no answer")
            from scopeval.policies.protocols import Weighing

            return Weighing(offered.probs)

    with create(place, behavior=Fails()) as campaign:
        episode = campaign.start()
        for t in range(HORIZON):
            episode.act(1)
            assert episode.by == ("behavior" if t < 2 else "baseline")
            episode.observe(0.0, 1.0, 1)
        episode.end()
        (event,) = [event for event in campaign.events() if event.kind == "fallback"]
        assert (event.episode, event.data["step"]) == (0, 2)
    with Campaign.open(place / "c", TARGET, behavior=Fails()) as campaign:
        assert campaign.verify().good


class Silent:
    """A behavior policy that draws evenly, and has no answer once something was dear."""

    dear = False

    def weigh(self, offered, obs, t, state=None):
        from scopeval.policies.protocols import Weighing

        probs = np.full_like(offered.probs, 1 / 3)
        return Weighing(probs * np.nan if self.dear else probs)


class Drawn:
    """A random generator whose number is chosen by the test."""

    uniform = 0.5

    def random(self):
        return self.uniform


#: What gives control to the baseline after a step that costs 2.
CASES = {
    "a limit with fall back": {"promise": [Limit(step=1.5, action="fall back")]},
    "a limit with hand over": {"promise": [Limit(step=1.5, action="hand over")]},
    "an operator's hand-over": {"promise": []},
    "NaN": {"promise": [], "behavior": Silent},
}
THREE = 3
SMALL = TARGET[:2, :]
CALM = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def value_of(state=0, t=0, back=False):
    """Of the target until a step that costs 2, then of the baseline; the reward is the action."""
    if t == THREE:
        return 0.0
    probs = CALM[state] if back else SMALL[state]
    return sum(
        p * (a + value_of((state + a) % 2, t + 1, back or a == 2)) for a, p in enumerate(probs)
    )


def estimates(place, monkeypatch, case):
    """Probability and estimate of every episode that can happen."""
    even = np.full((2, 3), 1 / 3)
    for number, actions in enumerate(itertools.product(range(3), repeat=THREE)):
        given = {"promise": (), "behavior": even} | CASES[case]
        behavior = given["behavior"]() if case == "NaN" else given["behavior"]
        rng = Drawn()
        with Campaign.create(
            place / f"{number}", SMALL, horizon=THREE, baseline=CALM, seed=1,
            **given | {"behavior": behavior},
        ) as campaign:  # fmt: skip
            streams = campaign.backend._deciding.streams
            monkeypatch.setattr(streams, "now_at", lambda number, t, rng=rng: rng)
            episode, state, probability, back = campaign.start(), 0, 1.0, False
            for action in actions:
                probs = CALM[state] if back else even[state]
                probability *= probs[action]
                rng.uniform = probs[:action].sum() + probs[action] / 2
                if not probability:
                    break
                assert episode.act(state) == action
                assert (episode.by == "baseline") == back
                state = (state + action) % 2
                episode.observe(float(action), float(action), state)
                if action == 2 and not back:
                    back = True
                    if case == "an operator's hand-over":
                        campaign.hand_over("a noise")
                    elif case == "NaN":
                        behavior.dear = True
            if probability:
                episode.end()
                yield probability, campaign.backend._state.lines[0].value


@pytest.mark.parametrize("case", CASES)
def test_the_estimate_is_unbiased_for_the_target_until_then_and_the_baseline_for_the_rest(
    place, monkeypatch, case
):
    """Exact: the sum over all episodes of probability times estimate."""
    all_of_it = list(estimates(place, monkeypatch, case))
    assert sum(p for p, _ in all_of_it) == pytest.approx(1.0)
    assert sum(p * v for p, v in all_of_it) == pytest.approx(value_of(), rel=1e-12)


def test_an_operator_who_stops_after_a_bad_value_biases_by_what_the_docs_say(place, monkeypatch):
    """Two episodes are planned; who sees a first value below 1 stops. Exact, over both."""
    one = list(estimates(place, monkeypatch, "a limit with fall back"))
    mean = value_of()
    found = sum(
        p * (v if v < 1.0 else sum(q * (v + w) / 2 for q, w in one)) for p, v in one
    ) - mean  # fmt: skip
    bad = sum(p for p, v in one if v < 1.0)
    given = sum(p * v for p, v in one if v < 1.0) / bad
    assert 0.0 < bad < 1.0
    assert found < 0
    assert found == pytest.approx(bad * (given - mean) / 2, rel=1e-12)


def test_a_baseline_that_no_database_holds_must_be_passed_again(place):
    def today(obs, t):
        return TODAY[obs]

    with create(place, baseline=today) as campaign:
        run_episode(campaign)
    with pytest.raises(InputError, match="baseline: the campaign's is an object of your own"):
        Campaign.open(place / "c", TARGET)
    Campaign.open(place / "c", TARGET, baseline=today).close()


def test_falling_back_needs_a_baseline(place):
    with pytest.raises(InputError, match="needs a baseline"):
        create(place, baseline=None, promise=[Limit(step=1.0, action="fall back")])


def test_what_runs_today_feeds_later_designs(place):
    """Episodes of an incumbent are logs of the first refit."""
    from scopeval.campaign.refit import _read_logs

    with create(place, behavior=None, refit=True) as campaign:
        for _ in range(3):
            run_episode(campaign)
        last = campaign.status().last_event
        with campaign.backend.store.read() as connection:
            logs = _read_logs(connection, HORIZON, last + 1)
            assert len(logs.t) == campaign.shadow().decisions
            assert _read_logs(connection, HORIZON, 2) is None
        assert Machine().first(0) in logs.obs
