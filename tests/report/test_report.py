"""The report: first the answer, everything escaped, nothing fetched, the same bytes every time."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from scopeval import (
    Bound,
    Inference,
    Limit,
    Plant,
    Promise,
    Stages,
    Stop,
    TabularPolicy,
    compare,
    errors,
    evaluate,
    exact,
)
from scopeval.envs.gridworld import Gridworld, cells, gridworld_logs, target_policies
from scopeval.envs.tabular import TabularEnv
from scopeval.estimation.moments import Interval
from scopeval.evaluation.result import GuardReport
from scopeval.exact import TabularMDP
from scopeval.models import table as tables
from scopeval.report import (
    Check,
    Fact,
    Page,
    Section,
    Table,
    Verdict,
    figure_of,
    how_to_reproduce,
    page_of_comparison,
    page_of_evaluation,
    render,
    write_report,
)
from scopeval.report.evaluation_figures import certificate_figure
from scopeval.report.svg import canvas
from scopeval.report.wording import answer_of, promise_in_words, signed

GRID = Gridworld(5, seed=1).mdp()
PI = target_policies(1, 5, seed=1)[0]
#: An exact design leaves out actions where nothing is uncertain; with a share of the target none.
EXACT = exact.design(GRID, PI, "scope-dr")
DR = exact.Design(
    0.6 * EXACT.table(5) + 0.4 * PI.table(5),
    EXACT.method,
    EXACT.control,
    EXACT.status,
    EXACT.binding,
)
#: Twice as dear as the target at every step, and the promise is broken soon.
GREEDY = TabularPolicy(0.1 * PI.table(1)[0] + 0.9 * np.eye(4)[GRID.cost.argmax(axis=1)])
NASTY = "<script>alert('x')</script> & \"quoted\" </style></svg>"

VOID = {"meta", "link", "br", "path", "use", "rect", "image"}


class Outline(HTMLParser):
    """Reads a page strictly: every element is closed, in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and data.strip():
            self.text.setdefault(self.open[-1], []).append(data.strip())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def assert_self_contained(html: str) -> None:
    assert "//" not in html  # no address of any kind, not even a name space
    assert not re.search(r"@import|@font-face|<script|javascript:| on\w+=", html)
    for tag, attrs in Outline(html).elements:
        assert tag not in {"script", "iframe", "object", "embed", "img", "base", "form"}
        for name in ("src", "href", "xlink:href", "action", "data"):
            where = attrs.get(name)
            assert where is None or where.startswith("#") or where == "data:,"


#: Without costs.
FREE = Plant(GRID, cost="none")
#: A promise that three hundred episodes can prove.
USUAL = {
    "episodes": 300,
    "seed": 3,
    "promise": Promise(at_most=1.1),
    "inference": Inference(keep=True),
}


def evaluation(run=DR, env=GRID, **options):
    return evaluate(env, PI, run, **{**USUAL, **options})


# -- the page of an evaluation -------------------------------------------------------------------


def full_page() -> Page:
    return page_of_evaluation(
        evaluation(),
        on_policy=evaluation(None, seed=4),
        truth=exact.assess(GRID, PI, PI).value,
        command="scopeval evaluate --seed 3",
        seed=3,
    )


def test_the_answer_comes_first_then_figures_tables_words_and_how_to_reproduce():
    page = full_page()
    html = render(page)
    assert_self_contained(html)
    outline = Outline(html)
    titles = [section.title for section in page.sections]
    assert outline.text["h1"] == [page.title]
    assert outline.text["h2"] == titles
    assert titles == [
        "The estimate",
        "Cost and safety",
        "Diagnostics",
        "How to reproduce this",
    ]
    assert html.index('class="answer"') < html.index("<h2") < html.index("<figure")
    assert html.index("<figure") < html.index("<table") < html.index("<pre")
    assert len(outline.all("figure")) == len(outline.all("svg")) == 7
    assert len(outline.all("table")) == len(outline.text["caption"]) == 2
    assert {"seed", "python", "scopeval", "numpy"} <= set(outline.text["th"])


def test_every_figure_has_words_and_every_scrolling_box_can_be_reached():
    outline = Outline(render(full_page()))
    drawings = [a for a in outline.all("div") if a.get("role") == "img"]
    assert len(drawings) == 7
    assert all(len(a["aria-label"]) > 40 for a in drawings)
    assert all(a["aria-hidden"] == "true" for a in outline.all("svg"))
    scrolling = [a for a in outline.all("div") if a.get("class") == "scroll"]
    assert all(a["tabindex"] == "0" and a["aria-label"] for a in scrolling)
    headings = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch(r"h\d", tag)]
    assert headings == [1] + [2] * (len(headings) - 1)
    assert outline.all("html") == [{"lang": "en"}]
    assert all(a["scope"] in ("col", "row") for a in outline.all("th"))


def test_the_sentence_has_estimate_interval_saving_and_safety():
    e = evaluation()
    said = answer_of(e)
    assert said.count(".") - len(re.findall(r"\d\.\d", said)) == 1  # one sentence
    assert f"{e.estimate:.3f}"[:4] in said
    assert "95% confidence" in said
    saved = 1 - e.cost.total / e.on_policy.total
    assert saved > 0
    assert f"{saved:.0%} less cost" in said
    assert e.certificate is not None
    assert e.certificate.verdict == "safe"
    assert "and safely" in said
    assert f"{e.certificate.ratio.estimate:.3g} times" in said


def test_same_input_same_bytes(tmp_path):
    first, second = (write_report(full_page(), tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.html", "b.html"]  # no temporary file stays


def test_settings_of_the_user_do_not_reach_the_page_and_stay_what_they_are():
    plain = render(full_page())
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert render(full_page()) == plain
        assert mpl.rcParams["font.size"] == 30


def test_the_page_is_small():
    assert len(render(full_page()).encode()) < 200_000


@pytest.mark.parametrize(
    ("options", "tone", "words"),
    [
        ({}, "good", "and safely"),
        ({"run": GREEDY}, "bad", ", so that the guard switched to the target after"),
        (
            {"run": GREEDY, "promise": Promise(action="tell")},
            "open",
            "not enough evidence about its safety",
        ),
        ({"promise": Promise(at_most=0.5, action="tell")}, "bad", "but not safely as far"),
        ({"run": DR, "episodes": 5}, "open", "not yet proved safe"),
        ({"run": None}, "plain", "of the policy itself at a cost of"),
        ({"run": DR, "env": FREE}, "plain", "fewer episodes than by running"),
        ({"run": None, "env": FREE}, "plain", "of the policy itself."),
        ({"run": DR, "episodes": 1}, "open", "too few episodes for an interval"),
        ({"run": PI}, "good", "1 times"),
        (
            {"episodes": None, "stop": Stop(precision=0.05), "promise": Promise(at_most=1.4)},
            "good",
            "and safely as far",
        ),
        (
            {"episodes": 3000, "promise": Promise(at_most=1.3, bound=Bound(step=1.0))},
            "good",
            "and safely: an",
        ),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_every_kind_of_result_is_a_page(options, tone, words, keep):
    e = evaluation(**options, inference=Inference(keep=keep))
    page = page_of_evaluation(e)
    assert page.verdict.tone == tone
    assert words in page.answer
    html = render(page)
    assert_self_contained(html)
    assert not re.search(r"\b(nan|inf)\b", html)
    assert ("keep=True" in html) == (not keep or e.finished == 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"run": None}, ""),
        ({"run": DR, "env": FREE}, ""),
        ({"run": DR}, "at most 1.1: safe as far as seen"),
        ({"run": DR, "episodes": 1}, "at most 1.1: not decided"),
        (
            {"episodes": 3000, "promise": Promise(at_most=1.3, bound=Bound(step=1.0))},
            "at most 1.3: proved",
        ),
        ({"run": GREEDY, "episodes": 2000}, "at most 1.1: guard switched"),
        ({"promise": Promise(at_most=0.5, action="tell")}, "at most 0.5: NOT KEPT as far as seen"),
        ({"promise": Promise(limit=9.0)}, "at most 9 an episode: safe as far as seen"),
        (
            {"promise": Promise(at_most=1.1, of=PI)},
            "at most 1.1 of the reference's: safe as far as seen",
        ),
    ],
)
def test_a_promise_in_words(options, words):
    assert promise_in_words(evaluation(**options)) == words


def test_a_guard_that_stepped_in_is_the_first_thing_told():
    e = evaluation(GREEDY, episodes=2000)
    after = e.guard.switched_after
    assert after is not None
    page = page_of_evaluation(e)
    assert page.verdict == Verdict("bad", f"The guard switched after {after:,} episodes")
    switched = f"switched to the target after {after:,} episodes"
    assert switched in render(page).split("<h2")[2]
    assert page.answer.endswith(f", so that the guard {switched}.")
    assert f"{switched}: the promise is refuted" in render(page)


def test_a_switch_names_what_came_first():
    """A limit in the first episode, of a campaign: the promise itself has no reason to give."""
    e = evaluation()
    limit = "the temperature read 70.4, above the limit of 70"
    guard = GuardReport(0, e.guard.state, limit, "the baseline")
    assert guard.sentence == f"switched to the baseline in the first episode: {limit}"
    page = page_of_evaluation(replace(e, guard=guard))
    assert page.verdict == Verdict("bad", "The guard switched in the first episode")
    assert f"; the guard switched to the baseline in the first episode: {limit}." in page.answer
    assert "None" not in render(page)
    assert "the reason is not known" in GuardReport(3, e.guard.state).sentence


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (Promise(limit=9.0), "times the limit (allowed: 1)"),
        (Promise(at_most=1.1, of=PI), "times the baseline's (allowed: 1.1)"),
        (Promise(at_most=1.1), "times the policy's own (allowed: 1.1)"),
    ],
)
def test_a_ratio_says_whose_cost_it_is_about(promise, words):
    page = page_of_evaluation(evaluation(promise=promise))
    assert words in page.answer
    assert words.partition(" (")[0] in page.facts[2].note


def test_an_evaluation_that_costs_many_times_more_is_told_as_a_multiple():
    """No "-1900%"."""
    e = evaluation()
    much = replace(e, cost=replace(e.cost, total=20 * e.on_policy.total))
    page = page_of_evaluation(much)
    assert "found at 20 times the cost that running the policy itself" in page.answer
    assert ("Cost spent", "20 times") in [(x.label, x.value) for x in page.facts]
    assert not re.search(r"\d{4,}%", render(page))


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-math.inf, 1.5, "95% confidence that it is at most 1.50 as far as seen"),
        (0.5, math.inf, "95% confidence that it is at least 0.50 as far as seen"),
    ],
)
def test_the_end_that_is_known_is_shown(low, high, words):
    e = evaluation(inference=Inference(keep=False))
    one = Interval(1.0, low, high, 0.05, "asymptotic sequence", 60)
    e = replace(e, estimate=1.0, interval=one)
    assert f"value is about 1, with {words}" in e.sentence
    assert "events rarer than 3 in 60 episodes are not excluded" in e.sentence
    page = page_of_evaluation(e)
    assert f"The policy is worth about 1, with {words}" in page.answer
    assert words in render(page)
    assert page.facts[0].note == words
    e.plot()


def test_lost_episodes_and_other_warnings_are_told():
    e = evaluation()
    bad = replace(e.diagnostics, lost=2, first_loss="number 7, it <broke>", warnings=("odd",))
    html = render(page_of_evaluation(replace(e, diagnostics=bad)))
    assert "2 episodes of 300 could not be finished (the first: number 7, it &lt;broke&gt;)" in html
    assert "Odd." in html
    assert "All 300 episodes were finished" not in html


def test_an_undefined_comparison_is_told_and_not_drawn():
    e = evaluation()
    nan = math.nan
    unknown = replace(
        e.on_policy, variance=nan, episodes=nan, total=nan, unknown="too heavy a tail"
    )
    html = render(page_of_evaluation(replace(e, on_policy=unknown)))
    assert "the policy itself would take is unknown: too heavy a tail" in html
    assert "saved" not in html
    assert not re.search(r"\bnan\b", html)


def test_beside_the_policy_s_own_episodes_the_saving_is_measured_by_them():
    """Weights with a heavy tail say nothing of what the policy itself would have cost."""
    e, own = evaluation(), evaluation(None, seed=4)
    nan = math.nan
    unknown = replace(e.on_policy, variance=nan, episodes=nan, total=nan, unknown="a heavy tail")
    page = page_of_evaluation(replace(e, on_policy=unknown), on_policy=own)
    ratio = own.standard_error / e.standard_error
    spared = 1 - e.cost.total / (own.cost.total * ratio**2)
    assert own.standard_error == pytest.approx(own.episodes.returns(1.0).std(ddof=1) / 300**0.5)
    assert spared > 0.1
    assert f"found at {spared:.0%} less cost" in page.answer
    assert "s own episodes." in render(page)


def test_what_a_learned_behavior_promised_stands_beside_what_came_out():
    from scopeval import design

    log = gridworld_logs(GRID, episodes=200, seed=5)
    behavior = design(log, PI, horizon=5, method="scope-dr", learn=tables.Table(features=cells(5)))
    e = evaluation(behavior)
    page = page_of_evaluation(e, behavior)
    section = next(s for s in page.sections if s.title.startswith("The behavior policy"))
    assert [row[0] for row in section.tables[0].rows] == [
        "variance of an episode's value",
        "cost of an episode",
    ]
    assert section.tables[0].rows[0][1] == f"{behavior.predicted.variance:.3f}"
    assert section.tables[0].rows[1][3] == f"{e.certificate.ratio.estimate:.3f}"


def test_episodes_of_an_environment_and_limits_within_them():
    limit = Limit(episode=0.5 * float(exact.assess(GRID, PI, PI).cost))
    e = evaluate(
        TabularEnv(GRID),
        PI,
        DR,
        horizon=5,
        episodes=40,
        promise=limit,
        inference=Inference(keep=True),
    )
    assert_self_contained(render(page_of_evaluation(e)))


def test_stages_have_a_section_of_their_own():
    def page() -> str:
        found = evaluate(
            GRID,
            PI,
            episodes=240,
            run=Stages(learn=tables.Table(features=cells(5))),
            promise=Promise(at_most=0.9),
            inference=Inference(keep=True),
        )
        return render(page_of_evaluation(found, seed=0))

    text = page()
    Outline(text)
    assert ">Stages</h2>" in text
    assert "Stage 1: nothing is known yet" in text
    assert "of every stage after the first" in text
    assert "valid although the stages adapt" in text
    assert text == page()


def test_the_wrong_discount_is_refused():
    mdp = TabularMDP(GRID.initial, GRID.transition, GRID.reward, GRID.cost, GRID.horizon, gamma=0.7)
    e = evaluate(mdp, PI, episodes=50, inference=Inference(keep=True))
    assert page_of_evaluation(e, gamma=0.7).sections
    with pytest.raises(errors.InputError, match=r"gamma: got 1, .*expected the evaluation's"):
        page_of_evaluation(e)


# -- pages of anything ---------------------------------------------------------------------------


def test_all_text_is_escaped():
    with canvas() as (drawing, ax):
        ax.plot([1, 2], label=NASTY)
        ax.set_title(NASTY)
        ax.legend()
        figure = figure_of(drawing, label=NASTY, caption=NASTY)
    section = Section(
        NASTY,
        (NASTY,),
        (figure,),
        (Table(NASTY, (NASTY, NASTY), ((NASTY, NASTY),)),),
        (Check("bad", NASTY),),
        NASTY,
    )
    page = Page(NASTY, NASTY, Verdict("open", NASTY), (Fact(NASTY, NASTY, NASTY),), (section,))
    html = render(page)
    outline = Outline(html)
    assert outline.all("script") == []
    assert html.count("</style>") == 1
    assert html.count("alert") == html.count("&lt;script&gt;alert") >= 14
    assert outline.text["h1"] == [NASTY]
    assert [a["aria-label"] for a in outline.all("div") if a.get("role") == "img"] == [NASTY]


def test_drawings_follow_the_page_and_do_not_mix():
    pages = []
    for label in ("0.12345", "0.6"):
        drawing = Drawing(figsize=(8, 3))
        ax = drawing.subplots()
        ax.plot([0, 1], marker="o")
        ax.set_xticks([0, 1], [label, "#1f77b4"])
        pages.append(figure_of(drawing, label="x", caption="y"))
    for figure in pages:
        assert figure.shape == "wide"  # as drawn
        assert "var(--ours)" in figure.svg
        assert "#1f77b4</text>" in figure.svg  # only colors become colors
        assert not re.search(r"font-family|DejaVu|xmlns|<metadata|<\?xml|width=\"\d+pt", figure.svg)
    assert "0.12345</text>" in pages[0].svg  # only coordinates are shortened
    names = [set(re.findall(r' id="([^"]+)"', figure.svg)) for figure in pages]
    assert names[0]
    assert names[1]
    assert not names[0] & names[1]
    for figure, own in zip(pages, names, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', figure.svg)) == own


def test_rows_must_fit_the_header():
    with pytest.raises(errors.InputError, match="got 1 cells in"):
        Table("t", ("a", "b"), (("x",),))


def test_how_to_reproduce_names_command_seed_and_versions():
    section = how_to_reproduce("scopeval demo", seed=7, more={"data": "logs.parquet"})
    cells_of = dict(section.tables[0].rows)
    assert section.code == "scopeval demo"
    assert cells_of["seed"] == "7"
    assert cells_of["data"] == "logs.parquet"
    assert {"python", "scopeval", "numpy"} <= set(cells_of)


@pytest.mark.parametrize(
    ("x", "spread", "shown"),
    [(0.004, 0.016, "+0.004"), (-0.004, 0.016, "\N{MINUS SIGN}0.004"), (-1e-9, 0.016, "0.000")],
)
def test_differences_carry_their_sign(x, spread, shown):
    assert signed(x, spread) == shown


# -- the file ------------------------------------------------------------------------------------


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    goal = tmp_path / "new" / "report.html"
    page = Page("t", "a", Verdict("good", "v"))
    assert write_report(page, goal) == goal
    before = goal.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(errors.DataError, match=r"report.html: cannot be written .No space left"):
        write_report(replace(page, title="other"), goal)
    assert goal.read_bytes() == before
    assert os.listdir(goal.parent) == [goal.name]


def test_a_place_that_cannot_be_is_refused():
    with pytest.raises(errors.InputError, match="cannot write"):
        write_report(Page("t", "a", Verdict("good", "v")), "/dev/null/report.html")


def test_the_package_brings_its_template_and_style():
    here = resources.files("scopeval.report")
    for name in ("page.html.jinja", "page.css"):
        assert here.joinpath(name).is_file()


def luminance(color: str) -> float:
    parts = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_contrast_of_every_color_in_dark_and_light():
    """Text at least 4.5 to 1 (WCAG AA), lines of figures at least 3 to 1."""
    style = resources.files("scopeval.report").joinpath("page.css").read_text(encoding="utf-8")
    themes = re.findall(r":root \{([^}]*--ink[^}]*)\}", style)
    assert len(themes) == 2
    for theme in themes:
        colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", theme))
        for ground in ("paper", "card"):
            for name, color in colors.items():
                if name in ("paper", "card", "line"):
                    continue
                a, b = sorted([luminance(color), luminance(colors[ground])])
                least = 3.0 if name.startswith("c") and name[1:].isdigit() else 4.5
                assert (b + 0.05) / (a + 0.05) >= least, (name, ground)


def test_the_caption_of_the_certificate_is_its_verdict():
    """The badge, and the words below the figure, say the same."""
    e = evaluation()
    for verdict, words in (
        ("safe", "left of the line: safe"),
        ("refuted", "right of the line: the promise is refuted"),
        ("not refuted", "which side is right is not decided"),
        ("not covered", "safety is unknown"),
        ("not enough evidence", "there is not enough evidence about safety"),
    ):
        for low, high in ((-2.0, -1.0), (-1.0, 1.0), (1.0, 2.0)):
            d = replace(e.certificate.difference, estimate=(low + high) / 2, low=low, high=high)
            caption = certificate_figure(
                replace(e, certificate=replace(e.certificate, verdict=verdict, difference=d))
            ).caption
            assert words in caption
            assert ("safe." in caption) == (verdict == "safe")


def test_a_comparison_draws_looks_with_open_ends_and_not_one_alone():
    old, new = target_policies(2, 5, seed=1)
    c = compare(GRID, {"old": old, "new": new}, episodes=60)
    inf = math.inf
    seen = [(20, -0.5, -inf, 0.5), (50, -0.4, -inf, 0.2), (90, -0.4, -0.7, -0.1)]

    def figures(looks):
        some = tuple((n, {"new": tuple(ends)}) for n, *ends in looks)
        return page_of_comparison(replace(c, looks=some)).sections[0].figures

    assert len(figures([])) == len(figures(seen[:1])) == 1
    alone, open_ended = figures(seen[1:])[1], figures(seen)[1]
    ticks = re.findall(r">(\d+)</text>", alone.svg)
    assert 2 <= len(ticks) <= 6  # within a power of ten the axis is linear
    band = re.findall(r'd="(M[^"]*)"[^>]*fill-opacity|fill-opacity', open_ended.svg)
    assert band
    assert "nan" not in open_ended.svg
    assert "inf" not in open_ended.svg.replace("info", "")


def test_a_table_of_words_is_read_from_the_left():
    table = Table("Events", ("time", "in words"), (("now", "a long sentence"),), words=True)
    html = render(Page("t", "a", Verdict("open", "v"), (), (Section("s", tables=(table,)),)))
    assert '<table class="words">' in html
