"""Every object that users hold shows itself: HTML, a plot, a table; and trackers are told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from campaign.machine import run_episode, tables
from parsed_html import EVIL, parsed
from scopeval import Campaign, Transitions, design, evaluate, frontier, read_logged
from scopeval.behavior.frontier_views import FrontierViews
from scopeval.campaign.notebook_views import episode_columns
from scopeval.campaign.terms import Plan
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.errors import InputError
from scopeval.evaluation.tracking import Tracker

MDP = Gridworld(size=5, seed=0).mdp()
POLICY = target_policies(1, size=5)[0]


@pytest.fixture(scope="module")
def logs():
    return gridworld_logs(MDP, episodes=300)


@pytest.fixture(scope="module")
def behavior(logs):
    return design(logs, POLICY, horizon=MDP.horizon)


@pytest.fixture(scope="module")
def curve(logs):
    return frontier(logs, POLICY, horizon=MDP.horizon, features=cells(5), prices=12)


@pytest.fixture(scope="module")
def result(behavior):
    return evaluate(MDP, POLICY, behavior, episodes=300)


@pytest.fixture(scope="module")
def staged():
    return evaluate(MDP, POLICY, episodes=200, refit=True)


@pytest.fixture
def campaign(tmp_path):
    target, behavior = tables()
    place = tmp_path / "a.campaign"
    made = Campaign.create(place, target, horizon=6, behavior=behavior, plan=Plan(episodes=40))
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
    assert read_logged(logs.to_frame()) == logs
    rng = np.random.default_rng(0)
    n = 60
    x = rng.standard_normal((n + 1, 3))
    vectors = Transitions(
        np.arange(n) % 6, x[:-1], rng.standard_normal((n, 2)), x[1:, 0], np.ones(n), x[1:]
    )
    assert list(vectors.to_frame())[:4] == ["t", "obs_0", "obs_1", "obs_2"]
    assert read_logged(vectors.to_frame()) == vectors


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
    few = design(logs.select(slice(0, 30)), POLICY, horizon=MDP.horizon)
    assert few.falls_back
    assert "Falls back to the target policy" in few._repr_html_()


def test_the_table_of_a_frontier_has_its_points(curve):
    frame = curve.to_frame()
    assert len(frame) == len(curve.points) > 2
    assert list(frame["safe_cost"]) == [p.safe_cost for p in curve.points]
    best = min(curve.points, key=lambda p: p.safe_variance * p.safe_cost)
    assert f"At {best.safe_cost:.2f}" in curve._repr_html_()


class NoPoints(FrontierViews):
    points = ()
    warnings = ("held-out logs deny it",)


def test_a_frontier_without_points_says_what_to_do():
    none = NoPoints()
    assert none.warnings[0] in none._repr_html_()
    assert "log more, or run the target policy" in none._repr_html_()
    assert len(none.to_frame()) == 0


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
    assert kept["value"].mean() == pytest.approx(campaign.result().estimate)
    assert "30 of 40 episodes" not in campaign._repr_html_()
    assert "29 of 40 episodes are finished" in campaign._repr_html_()
    assert episode_columns([])["episode"] == []


def test_a_campaign_without_episodes_has_a_card_and_no_plot(tmp_path):
    target, _ = tables()
    with Campaign.create(tmp_path / "b.campaign", target, horizon=6) as empty:
        assert "0 episodes are finished" in empty._repr_html_()
        assert len(empty.to_frame()) == 0
        with pytest.raises(InputError, match="no episode is finished"):
            empty.plot()


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
    both = [evaluate(MDP, POLICY, behavior, episodes=200, progress=p, chunk=50)
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
    evaluate(MDP, POLICY, episodes=120, refit=True, progress=TensorBoard(writer))
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
