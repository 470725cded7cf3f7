"""The live page in a real browser: it lives, operators can act on it, and nobody else can."""

from __future__ import annotations

import shutil
import time

import pytest
from http_calls import Served

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign, Ramp, Stop
from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.auth import TokenStore
from scopeval.serve.models import Limits

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="no Playwright here: try pip install playwright"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no browser here: try apt-get install chromium"
)

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
TARGET, BEHAVIOR = tables()
ATTACK = '<img src=x onerror="document.title=1"><script>document.title=2</script>{{7*7}}'
ROLES = ("viewer", "operator", "plant")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=60_000)
        patient = {"timeout": 180_000.0}
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS), **patient)
        yield running
        running.close()


@pytest.fixture
def page(place):
    """The campaign, which others write to as well, and its service."""
    where = place / "c.campaign"
    with Campaign.create(
        where,
        TARGET,
        horizon=HORIZON,
        behavior=BEHAVIOR,
        stop=Stop(episodes=500, cost=5000.0),
        ramp=Ramp((0.5, 1.0), 40),
    ) as campaign:
        book = TokenStore(campaign.backend.store, time.time)
        tokens = {role: book.create(f"<i>{role}</i>", role) for role in ROLES}
        settings = Settings(limits=Limits(rate=1e6, failures=1e6), title="Hall <3>")
        with serving(Service(where, TARGET, port=0, settings=settings)) as url:
            yield campaign, Served(where, url, tokens)


#: What Chromium says where a field was filled before the page had put the focus on it: no fault.
EARLY = "Autofocus processing was blocked because a document already has a focused element."


@pytest.fixture
def visit(browser, page):
    """Opens the page as somebody; in the end nothing may be wrong or fetched elsewhere."""
    _, served = page
    said, asked, contexts = [], [], []

    def visit(role, width=1200):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(served.url + "/")
        tab.fill("input[name=token]", served.tokens[role])
        tab.click("button")
        return tab

    yield visit
    for context in contexts:
        context.close()
    assert [text for text in said if text != EARLY] == []
    assert [url for url in asked if not url.startswith((served.url, "data:"))] == []


def soon(tab, where, text):
    sync_api.expect(tab.locator(where)).to_contain_text(text)


def test_values_change_while_episodes_arrive(page, visit):
    campaign, _ = page
    tab = visit("viewer")
    assert "No episode is finished" in tab.inner_text("#safety")
    assert tab.locator("figure").count() == 0
    for k in range(60):
        run_episode(campaign, f"hall-{k % 2}")
    soon(tab, "#facts", "60")
    tab.wait_for_selector("figure svg")
    assert tab.locator("figure").count() == 4
    first = tab.inner_text("#facts")
    assert "between" in first
    assert "of the budget of 5,000" in first
    assert "stage 2 of 2" in tab.inner_text("#stages")
    assert "hall-1" in tab.inner_text("#plants")
    assert "stage 2 of 2" in tab.inner_text("#events")
    drawn = tab.inner_html("#figures")
    run_episode(campaign, "hall-2")
    soon(tab, "#plants", "hall-2")
    soon(tab, "#facts", "61")
    with tab.expect_response("**/live?**"):
        pass
    assert tab.inner_html("#figures") != drawn
    assert tab.inner_text("#facts") != first
    campaign.pause("a storm")
    soon(tab, "#state", "a storm")
    assert "Paused" in tab.inner_text("#state")


def test_an_operator_pauses_resumes_and_stops_with_a_reason(page, visit):
    campaign, served = page
    tab = visit("operator")
    tab.click("text=Pause …")
    assert "until it is resumed" in tab.inner_text("form")
    tab.click("text=No, go back")
    assert campaign.status().state == "running"
    tab.click("text=Pause …")
    tab.click("text=Yes, pause")  # without a reason the browser does not send it
    assert "operate/pause" in tab.url
    tab.fill("input[name=reason]", "a <b>storm</b>")
    tab.click("text=Yes, pause")
    tab.wait_for_selector("#state")
    assert campaign.status().state == "paused"
    assert "a <b>storm</b>" in tab.inner_text("#state")
    for verb, yes in (("Resume", "Yes, resume"), ("Hand over", "for good"), ("Stop", "for good")):
        tab.click(f"text={verb} …")
        tab.fill("input[name=reason]", "because")
        tab.click(f"text={yes}")
        tab.wait_for_selector("#state")
    assert campaign.status().state == "stopped"
    assert tab.locator("#buttons a").count() == 0
    _, log, _ = served.call("GET", "/v1/audit", token="operator")
    log = [one for one in log if one["verb"] != "token"]
    assert [one["verb"] for one in log] == ["stop", "hand-over", "resume", "pause"]
    assert {one["who"] for one in log} == {"<i>operator</i>"}
    tab.click("text=Sign out")
    assert "sign-in" in tab.url
    tab.goto(served.url + "/")
    assert "sign-in" in tab.url


def test_a_viewer_has_no_buttons_and_no_way_around(page, visit):
    campaign, served = page
    tab = visit("viewer")
    tab.wait_for_selector("#facts")
    with tab.expect_response("**/live?**") as waiting:
        pass
    assert "buttons" not in waiting.value.json()["parts"]
    assert tab.locator("text=Pause …").count() == 0
    cookie = "; ".join(f"{c['name']}={c['value']}" for c in tab.context.cookies())
    form = tab.get_attribute("input[name=form]", "value")
    kind = {"Cookie": cookie, "Content-Type": "application/x-www-form-urlencoded"}
    body = f"form={form}&reason=because&request=12345678".encode()
    assert served.call("GET", "/operate/pause", headers=kind)[0] == 403
    assert served.call("POST", "/operate/pause", raw=body, headers=kind)[0] == 403
    assert campaign.status().state == "running"


def test_a_form_of_another_page_is_refused(page, visit):
    """CSRF: without the form's word, with a wrong one, from another origin, without a cookie."""
    campaign, served = page
    tab = visit("operator")
    tab.wait_for_selector("#facts")
    cookies = tab.context.cookies()
    assert [(c["httpOnly"], c["sameSite"]) for c in cookies] == [(True, "Strict")]
    form = tab.get_attribute("input[name=form]", "value")
    kind = {
        "Cookie": "; ".join(f"{c['name']}={c['value']}" for c in cookies),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    good = f"form={form}&reason=because&request=12345678".encode()
    nothing = b"reason=because&request=12345678"
    for body, headers, status in (
        (nothing, kind, 403),
        (good.replace(b"form=", b"form=x"), kind, 403),
        (good, kind | {"Origin": "https://evil.example"}, 403),
        (good, kind | {"Origin": "null"}, 403),
        (good, kind | {"Content-Type": "text/plain"}, 415),
        (good, {"Content-Type": kind["Content-Type"]}, 401),
    ):
        assert served.call("POST", "/operate/stop", raw=body, headers=headers)[0] == status
        assert campaign.status().state == "running"
    assert served.call("POST", "/operate/stop", raw=good, headers=kind)[0] == 303
    assert campaign.status().state == "stopped"


def test_names_of_plants_are_text(page, visit):
    campaign, served = page
    run_episode(campaign, ATTACK)
    campaign.start(ATTACK).lose(ATTACK)
    campaign.pause(ATTACK, who=ATTACK)
    tab = visit("operator")
    tab.wait_for_selector("#plants table")
    with tab.expect_response("**/live?**"):
        pass
    sync_api.expect(tab).to_have_title("(1) Hall <3>")
    assert tab.locator("img").count() == 0
    assert tab.locator("#plants script, #events script, #state script").count() == 0
    for part in ("#plants", "#events", "#state"):
        assert ATTACK in tab.inner_text(part)
    tab.goto(served.url + "/report")
    assert tab.locator("img, script").count() == 0


def test_it_fits_a_telephone(page, visit):
    campaign, served = page
    for k in range(55):
        run_episode(campaign, f"hall_with_a_name_that_is_much_longer_than_a_phone_is_wide_{k % 3}")
    tab = visit("operator", width=400)
    tab.wait_for_selector("figure svg")
    outside = tab.evaluate(
        """[...document.querySelectorAll('figure svg')].flatMap(svg => {
             const frame = svg.getBoundingClientRect();
             return [...svg.querySelectorAll('text')].filter(text => {
               const box = text.getBoundingClientRect();
               return box.left < frame.left - 2 || box.right > frame.right + 2
                 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2;
             }).map(text => text.textContent);
           })"""
    )
    assert outside == []
    for place in ("/", "/operate/stop", "/docs"):
        tab.goto(served.url + place)
        wide, window = tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window == 400, place
        cut = tab.evaluate(
            """[...document.querySelectorAll('p, li, h1, h2, dd, td, th, figcaption, a, button')]
               .filter(x => x.getBoundingClientRect().right > innerWidth + 1)
               .map(x => x.textContent)"""
        )
        assert cut == [], place


def test_the_page_says_when_the_service_is_gone(browser, create):
    where, tokens = create()
    with serving(Service(where, TARGET, port=0)) as url:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(url + "/")
        tab.fill("input[name=token]", tokens["viewer"])
        tab.click("button")
        tab.wait_for_selector("#facts")
        assert not tab.is_visible("#stale")
    tab.wait_for_selector("#stale", state="visible")
    context.close()


@pytest.mark.parametrize("role", ["plant", "nobody"])
def test_others_cannot_sign_in(browser, page, role):
    _, served = page
    context = browser.new_context()
    tab = context.new_page()
    tab.goto(served.url + "/")
    tab.fill("input[name=token]", served.tokens.get(role, "scopeval_a_b"))
    tab.click("button")
    assert "not a valid token" in tab.inner_text("[role=alert]")
    assert tab.context.cookies() == []
    context.close()


def test_without_tokens_this_machine_may_look(browser, create):
    where, _ = create(tokens=())
    with serving(Service(where, TARGET, port=0)) as url:
        context = browser.new_context()
        tab = context.new_page()
        tab.goto(url + "/")
        tab.wait_for_selector("#facts")
        assert tab.locator("#buttons a").count() == 0
        context.close()


def test_a_silent_plant_is_in_the_header_the_title_and_can_be_given_up(create, browser):
    where, tokens = create(silent_after=0.5)
    with Campaign.open(where, TARGET) as campaign:
        campaign.start("hall-1").act(1)
        time.sleep(0.7)
        with serving(Service(where, TARGET, port=0)) as url:
            context = browser.new_context()
            tab = context.new_page()
            tab.goto(url + "/")
            tab.fill("input[name=token]", tokens["operator"])
            tab.click("button")
            tab.wait_for_selector("#problems li")
            assert "hall-1 is silent" in tab.inner_text("#problems")
            assert "1 to see to" in tab.inner_text("#state")
            assert tab.title().startswith("(1) ")
            row = tab.inner_text("#plants tbody tr")
            assert "episode 0" in row
            assert "by the behavior" in row
            tab.click("text=Give up episode 0 …")
            tab.fill("input[name=reason]", "the cable was pulled")
            tab.click("text=for good")
            tab.wait_for_selector("#state")
            assert campaign.status().lost == 1
            lost = campaign.events()[-1]
            assert (lost.kind, lost.who) == ("lost", "the operator")
            tab.select_option("#kind", "silent")
            sync_api.expect(tab.locator("#events tbody")).not_to_contain_text("lost")
            context.close()
