"""Every object that users hold shows itself: HTML, a plot, a table; and trackers are told."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from campaign.machine import run_episode, tables
from parsed_html import EVIL, parsed
from scopeval import (
    Campaign,
    Frontier,
    Stages,
    Stop,
    Table,
    Transitions,
    design,
    evaluate,
    frontier,
    read_logs,
)
from scopeval.campaign.campaign import draw_band
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import CampaignError, InputError
from scopeval.evaluation.tracking import Tracker
from scopeval.report.evaluation_figures import Band

MDP = Gridworld(size=5, seed=0).mdp()
POLICY = target_policies(1, size=5)[0]


@pytest.fixture(scope="module")
def logs():
    return gridworld_logs(MDP, episodes=300)


@pytest.fixture(scope="module")
def behavior(logs):
    return design(logs, POLICY, horizon=MDP.horizon, method="scope")


@pytest.fixture(scope="module")
def curve(logs):
    return frontier(logs, POLICY, horizon=MDP.horizon, points=12, learn=Table(features=cells(5)))


@pytest.fixture(scope="module")
def result(behavior):
    return evaluate(MDP, POLICY, behavior, episodes=300)


@pytest.fixture(scope="module")
def staged():
    return evaluate(MDP, POLICY, episodes=200, run=Stages())


@pytest.fixture
def campaign(tmp_path):
    target, behavior = tables()
    place = tmp_path / "a.campaign"
    made = Campaign.create(place, target, horizon=6, behavior=behavior, stop=Stop(episodes=40))
    with made as campaign:
        with campaign.group():  # one transaction, which is faster
            for k in range(30):
                run_episode(campaign, f"plant-{k % 2}")
        yield campaign


@pytest.mark.parametrize("name", ["logs", "behavior", "curve", "result", "staged", "campaign"])
def test_everything_shows_itself(name, request):
    shown = request.getfixturevalue(name)
    card = shown._repr_html_()
    parsed(card)
    assert len(card) < 12_000
    assert isinstance(shown.plot(), Axes)
    ax = Figure().add_subplot()
    assert shown.plot(ax) is ax
    assert ax.has_data()
    frame = shown.to_frame()
    assert len(frame) >= 1
    assert len(frame.columns) >= 3


def test_a_table_of_logs_can_be_read_back(logs):
    assert read_logs(logs.to_frame()) == logs
    rng = np.random.default_rng(0)
    n = 60
    x = rng.standard_normal((n + 1, 3))
    vectors = Transitions(
        np.arange(n) % 6, x[:-1], rng.standard_normal((n, 2)), x[1:, 0], np.ones(n), x[1:]
    )
    assert list(vectors.to_frame())[:4] == ["t", "obs_0", "obs_1", "obs_2"]
    assert read_logs(vectors.to_frame()) == vectors


def test_the_card_of_a_log_shows_its_notes_escaped(logs):
    assert "&lt;script&gt;" in logs.with_notes([EVIL])._repr_html_()
    parsed(logs.select([])._repr_html_())


def test_the_card_of_a_design_says_what_is_predicted(behavior):
    p = behavior.predicted
    card = behavior._repr_html_()
    assert f"{p.variance:.2f} of the target policy's variance at {p.cost:.2f}" in card.replace(
        "&#x27;", "'"
    )
    frame = behavior.to_frame()
    assert frame.loc["variance", "predicted"] == p.variance
    assert frame.loc["cost", "allowed"] == 1.0


def test_a_design_that_falls_back_says_so_first(logs):
    few = design(logs.select(slice(0, 30)), POLICY, horizon=MDP.horizon, method="scope")
    assert few.falls_back
    assert "Runs your own policy" in few._repr_html_()


def test_the_table_of_a_frontier_has_its_points(curve):
    frame = curve.to_frame()
    assert len(frame) == len(curve.points) > 2
    assert list(frame["safe_cost"]) == [p.safe_cost for p in curve.points]
    best = min(curve.points, key=lambda p: p.safe_variance * p.safe_cost)
    assert f"At {best.safe_cost:.2f}" in curve._repr_html_()


class NoPoints(Frontier):
    def __init__(self):
        self.points, self.warnings = (), ("held-out logs deny it",)


def test_a_frontier_without_points_says_what_to_do():
    none = NoPoints()
    assert none.warnings[0] in none._repr_html_()
    assert "log more, or run the target policy" in none._repr_html_()
    assert len(none.to_frame()) == 0
    assert repr(none) == "Frontier(0 points: held-out logs deny it)"


def legend_of(ax):
    return [] if ax.get_legend() is None else [t.get_text() for t in ax.get_legend().get_texts()]


def text_of(ax):
    return " ".join(" ".join(text.get_text() for text in ax.texts).split())


def test_the_plot_of_a_frontier_without_points_says_why(logs, curve):
    none = frontier(logs.select(slice(0, 8)), POLICY, horizon=MDP.horizon)
    assert none.points == ()
    assert none.why_empty
    html = none._repr_html_().replace("&#x27;", "'")
    assert all(warning in html for warning in none.warnings)
    assert none.why_empty in repr(none)
    ax = none.plot()
    assert legend_of(ax) == ["the target policy itself"]
    assert text_of(ax) == " ".join(none.why_empty.split())
    assert legend_of(curve.plot())[:2] == ["doubt: predicted to cross-checked", "frontier"]
    assert curve.why_empty == text_of(curve.plot()) == ""
    assert repr(curve) == f"Frontier({len(curve.points)} points)"


def test_a_frontier_without_costs_says_so(logs):
    free = replace(logs, cost=np.zeros(len(logs)))
    none = frontier(free, POLICY, horizon=MDP.horizon)
    assert "costs nothing: there is no cost to save" in text_of(none.plot())
    assert "costs nothing: there is no cost to save" in none._repr_html_()


def test_the_card_of_an_evaluation_says_the_sentence_and_the_verdict(result):
    card = result._repr_html_().replace("&#x27;", "'")
    assert result.sentence in card
    assert result.certificate.sentence in card
    row = result.to_frame().loc["all"]
    assert (row["estimate"], row["episodes"]) == (result.estimate, 300)
    assert row["verdict"] == result.certificate.verdict
    own = evaluate(MDP, POLICY, episodes=20)
    assert own.to_frame().loc["all", "verdict"] == ""  # there is nothing to certify


def test_an_evaluation_in_stages_has_a_row_for_each(staged):
    frame = staged.to_frame()
    assert list(frame.index) == [f"stage {s.number}" for s in staged.stages] + ["all"]
    assert frame["episodes"][:-1].sum() == frame.loc["all", "episodes"]
    total = (frame["share"] * frame["estimate"])[:-1].sum()
    assert total == pytest.approx(staged.estimate, rel=1e-9)


def test_the_colors_of_stages_have_a_legend(staged, result):
    assert {bool(stage.by_target) for stage in staged.stages} == {False, True}
    assert legend_of(staged.plot()) == [
        "stage of a behavior policy",
        "stage of the target policy",
    ]
    assert legend_of(result.plot()) == []  # the two lines have names
    same = replace(staged, stages=tuple(s for s in staged.stages if not s.by_target))
    assert legend_of(same.plot()) == ["stage of a behavior policy"]


def test_the_card_of_an_evaluation_says_in_words_when_its_interval_holds(result, staged):
    for shown, words in (
        (result, "with 95% confidence)"),
        (staged, "with 95% confidence)"),
        (replace(result, interval=replace(result.interval, method="asymptotic sequence")),
         "with 95% confidence at all times, as far as seen)"),
        (replace(result, interval=replace(result.interval, method="bets", alpha=0.1)),
         "with 90% confidence for any returns within the stated bounds)"),
    ):  # fmt: skip
        card = shown._repr_html_()
        assert words in card
        assert not re.search(r", t\)|asymptotic|martingale|bets", card)


def test_an_evaluation_of_one_episode_is_shown_without_an_interval(behavior):
    one = evaluate(MDP, POLICY, behavior, episodes=1)
    parsed(one._repr_html_())
    one.plot()
    assert np.isnan(one.to_frame().loc["all", "low"])


def test_the_table_of_a_campaign_has_its_episodes(campaign):
    first = campaign.start("plant-0")
    first.act(1)
    first.lose("the sensor broke")
    campaign.drop(3, "the wrong recipe")
    frame = campaign.to_frame()
    assert len(frame) == 31
    assert dict(frame["state"].value_counts()) == {"finished": 29, "lost": 1, "dropped": 1}
    kept = frame[frame["state"] == "finished"]
    assert kept["value"].mean() == pytest.approx(campaign.status().interval.estimate)
    assert "30 of 40 episodes" not in campaign._repr_html_()
    assert "29 of 40 episodes are finished" in campaign._repr_html_()


def test_a_campaign_without_episodes_has_a_card_and_empty_axes(tmp_path):
    target, _ = tables()
    with Campaign.create(tmp_path / "b.campaign", target, horizon=6) as empty:
        assert "0 episodes are finished" in empty._repr_html_()
        assert len(empty.to_frame()) == 0
        ax = Figure().add_subplot()
        assert empty.plot(ax) is ax
        assert (text_of(ax), legend_of(ax)) == ("no episode is finished", [])
        assert ax.get_xlabel() == "finished episodes"


def test_a_campaign_says_from_where_on_it_has_an_interval(campaign):
    begins = "too few episodes for an interval, which begins at 50"
    ax = campaign.plot()
    assert legend_of(ax) == ["estimate"]
    assert ax.get_legend().get_title().get_text() == begins
    assert f"with {begins}." in campaign._repr_html_()
    assert f"with {begins}" in str(campaign.status())
    assert "inf" not in str(campaign.status())
    assert "8.6 episodes, so that there is no estimate" in campaign.result().sentence


def test_the_band_of_a_campaign_is_drawn_as_far_as_it_is_finite():
    at, mean = np.arange(1.0, 4.0), np.array([1.0, 2.0, 1.5])
    low, high = np.array([-np.inf, 0.0, 1.0]), np.array([np.inf, np.inf, 2.0])
    ax, one = Figure().subplots(2)
    draw_band(Band(at, mean, low, high), 0.1, ax)
    assert legend_of(ax) == ["90% at all times together", "estimate"]
    assert ax.get_ylim() == pytest.approx((0.95, 2.05))
    draw_band(Band(at[:1], mean[:1], low[:1], high[:1]), 0.1, one)
    assert legend_of(one) == ["estimate"]
    assert one.lines[0].get_marker() == "o"


def test_a_campaign_whose_episodes_are_all_finished_says_so(tmp_path):
    target, _ = tables()
    for place, lost in (("c", 0), ("d", 1)):
        stop = Stop(episodes=60)
        with Campaign.create(tmp_path / f"{place}.campaign", target, horizon=6, stop=stop) as made:
            with made.group():
                for _ in range(59 - lost):
                    run_episode(made)
                if lost:
                    made.start().lose("the sensor broke")
            last = made.start("north")
            assert made.status().word == "running"
            assert (
                "Campaign: running: all 60 episodes were started; the target policy"
                in made._repr_html_()
            )
            last.act(1)
            last.observe(1.0, 1.0, 1, terminated=True)
            last.end()
            said = "all 60 episodes are finished"
            said = "all 60 episodes are over, 1 of them lost" if lost else said
            assert f"Campaign: complete: {said}" in made._repr_html_()
            assert str(made.status()).startswith(f"complete: {said}\n")
            assert made.status().state == "running"
            assert made.result().stopped == said
            with pytest.raises(CampaignError, match=rf"starts no episodes now \({said}\)"):
                made.start()
            assert legend_of(made.plot()) == ["95% at all times together", "estimate"]


# -- trackers ------------------------------------------------------------------------------------


@dataclass
class Written:
    """What TensorBoard's SummaryWriter looks like."""

    scalars: list = field(default_factory=list)

    def add_scalar(self, tag, scalar_value, global_step):
        self.scalars.append((tag, scalar_value, global_step))


class TensorBoard:
    """As the documentation shows it."""

    def __init__(self, writer, prefix="scopeval"):
        self.writer, self.prefix = writer, prefix

    def log(self, step, values):
        for name, value in values.items():
            self.writer.add_scalar(f"{self.prefix}/{name}", value, step)


def test_evaluate_tells_a_tracker(behavior):
    told, writer = [], Written()
    assert isinstance(TensorBoard(writer), Tracker)
    both = [evaluate(MDP, POLICY, behavior, episodes=200, progress=p, stop=Stop(every=50))
            for p in (told.append, TensorBoard(writer), None)]  # fmt: skip
    assert both[0].estimate == both[1].estimate == both[2].estimate
    assert (
        {step for _, _, step in writer.scalars} == {now.done for now in told} == {50, 100, 150, 200}
    )
    last = {name: value for name, value, step in writer.scalars if step == 200}
    assert (
        last["scopeval/estimate"] == told[-1].interval.estimate == pytest.approx(both[0].estimate)
    )
    assert all(np.isfinite(value) for _, value, _ in writer.scalars)


def test_stages_tell_a_tracker_too():
    writer = Written()
    evaluate(MDP, POLICY, episodes=120, progress=TensorBoard(writer), run=Stages())
    assert max(step for _, _, step in writer.scalars) == 120


def test_a_campaign_tells_a_tracker(campaign):
    writer = Written()
    campaign.track(TensorBoard(writer))
    assert ("scopeval/cost", campaign.status().spent, 30) in writer.scalars
    assert ("scopeval/share", 1.0, 30) in writer.scalars


def test_a_campaign_tells_a_function_as_evaluate_does(campaign):
    told = []
    campaign.track(lambda now: told.append((now.done, now.total, now.values())))
    campaign.track(told.append)
    status = campaign.status()
    assert told[0] == (30, 40, status.values())
    assert (told[1].interval, told[1].cost) == (status.interval, status.spent)


def test_a_campaign_goes_on_where_a_tracker_fails(campaign):
    class Far:
        def log(self, step, values):
            raise ConnectionError("no route to host")

    with pytest.warns(RuntimeWarning, match=r"tracker: Far.log raised ConnectionError: no route"):
        campaign.track(Far())
    for wrong, message in (
        (Far, "got the class Far, expected an object of it"),
        (5, "tracker: got 5, expected a function of one argument"),
        (None, "tracker: got None, expected an object"),
    ):
        with pytest.raises(InputError, match=message):
            campaign.track(wrong)
    run_episode(campaign)
    assert campaign.status().finished == 31


def test_with_tensorboard_itself(behavior, tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path) as writer:
        evaluate(MDP, POLICY, behavior, episodes=100, progress=TensorBoard(writer))
    files = list(tmp_path.glob("events.out.tfevents.*"))
    assert len(files) == 1
    assert b"scopeval/estimate" in files[0].read_bytes()
