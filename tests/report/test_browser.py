"""The report in a real browser: nothing wrong in the console, nothing fetched, nothing cut off."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from scopeval import Inference, Promise, evaluate, exact
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.report import page_of_evaluation, write_report

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="no Playwright here: try pip install playwright"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser here: try apt-get install chromium"
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
LOOKS = [(width, scheme) for width in (400, 1400) for scheme in ("light", "dark")]


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        patient = {"timeout": 180_000.0}
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), **patient)
        yield running
        running.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """What is written, and the file."""
    mdp, target = Gridworld(5, seed=1).mdp(), target_policies(1, 5, seed=1)[0]
    behavior = exact.design(mdp, target, "scope-dr")
    written = page_of_evaluation(
        evaluate(
            mdp,
            target,
            behavior,
            episodes=400,
            promise=Promise(at_most=1.1),
            inference=Inference(keep=True),
        ),
        on_policy=evaluate(mdp, target, episodes=400, seed=1, inference=Inference(keep=True)),
        truth=exact.assess(mdp, target, target).value,
        title="A policy with a_name_that_is_much_longer_than_any_telephone_is_wide_and_no_spaces",
        command="scopeval evaluate " + " ".join(f"--option-{k} {k}" for k in range(30)),
        seed=0,
    )
    return written, write_report(written, tmp_path_factory.mktemp("report") / "report.html")


class Visit:
    """The page opened in a window, with everything that the browser said and asked for."""

    def __init__(self, browser, file: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.scheme = scheme
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab = self.context.new_page()
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.tab.goto(file.as_uri(), wait_until="networkidle")

    def __enter__(self):
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.fixture(scope="module", params=LOOKS, ids=lambda look: f"{look[0]}-{look[1]}")
def visit(request, browser, page):
    with Visit(browser, page[1], *request.param) as one:
        yield one


def test_nothing_is_said_and_nothing_fetched(visit, page):
    assert visit.said == []
    assert visit.asked == [page[1].as_uri()]


def test_the_sentence_comes_first_and_every_figure_is_drawn(visit, page):
    written, tab = page[0], visit.tab
    assert tab.inner_text(".answer") == written.answer
    assert tab.inner_text(".verdict").endswith(written.verdict.text)
    assert tab.locator(".answer").bounding_box()["y"] < 300
    wanted = sum(len(section.figures) for section in written.sections)
    boxes = [svg.bounding_box() for svg in tab.locator("figure svg").all()]
    assert len(boxes) == wanted >= 6
    window = tab.viewport_size["width"]
    for box in boxes:
        assert box["width"] > 0.4 * min(window, 900)
        assert box["height"] > 80
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= window
    assert tab.locator("h2").all_inner_texts() == [s.title for s in written.sections]


def test_nothing_sticks_out(visit):
    wide, window = visit.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window
    cut = visit.tab.evaluate(
        """[...document.querySelectorAll('p, li, h1, h2, dd, figcaption, caption')]
           .filter(x => x.getBoundingClientRect().right > innerWidth + 1)
           .map(x => x.textContent)"""
    )
    assert cut == []


def test_text_in_figures_stays_inside_and_is_large_enough(visit):
    bad = visit.tab.evaluate(
        """[...document.querySelectorAll('figure svg')].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(text => {
               const box = text.getBoundingClientRect();
               return box.left < frame.left - 2 || box.right > frame.right + 2
                 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2
                 || Math.min(box.width, box.height) < 5;
             }).map(text => text.textContent);
           })"""
    )
    assert bad == []


def brightness(color: str) -> float:
    numbers = [float(x) for x in color[color.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


def test_dark_is_dark_and_light_is_light_also_in_the_figures(visit):
    ground, text, drawn = visit.tab.evaluate(
        """[getComputedStyle(document.body).backgroundColor,
            getComputedStyle(document.querySelector('.answer')).color,
            getComputedStyle(document.querySelector('figure svg text')).fill]"""
    )
    dark = brightness(ground) < 60
    assert dark == (visit.scheme == "dark")
    for color in (text, drawn):
        assert (brightness(color) > 200) == dark
        assert (brightness(color) < 60) != dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_white_and_holds_everything(browser, page, scheme):
    with Visit(browser, page[1], 1400, scheme) as one:
        one.tab.emulate_media(media="print", color_scheme=scheme)
        one.tab.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
        ground, wide, window = one.tab.evaluate(
            """[getComputedStyle(document.body).backgroundColor,
                document.documentElement.scrollWidth, innerWidth]"""
        )
        assert brightness(ground) == 255
        assert wide <= window
        assert one.tab.pdf(format="A4").startswith(b"%PDF")
