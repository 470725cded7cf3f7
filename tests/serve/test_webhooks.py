"""Webhooks: every event in order and at least once, to configured addresses only."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign
from scopeval.errors import InputError
from scopeval.serve.webhooks import WAITS, Webhook, Webhooks, check_url, send

TARGET, BEHAVIOR = tables()


class Listener:
    """An address that writes down what it is told, and answers as it is asked to."""

    def __init__(self):
        self.told, self.statuses = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.told.append((self.path, dict(self.headers), body))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 204)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *words):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?x=1"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def numbers(self):
        return [json.loads(body)["number"] for _, _, body in self.told]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def listener():
    made = Listener()
    yield made
    made.close()


@pytest.fixture
def campaign(place):
    with Campaign.create(place / "c.campaign", TARGET, horizon=HORIZON, behavior=BEHAVIOR) as made:
        yield made


def test_events_are_told_in_order_and_signed(campaign, listener):
    hook = Webhook(listener.url, secret="quiet")
    hooks = Webhooks(campaign.backend, [hook])
    last = hooks.delivered(hook)
    assert last == campaign.status().last_event  # what was before is not told
    run_episode(campaign)
    campaign.pause("a storm", who="me")
    campaign.resume()
    last = hooks.send_news(hook, last)
    assert last == campaign.status().last_event
    kinds = [json.loads(body)["kind"] for _, _, body in listener.told]
    assert kinds == ["pause", "resume"]  # those of single episodes are not asked for
    path, headers, body = listener.told[0]
    assert path == "/hook?x=1"
    assert json.loads(body)["text"] == "a storm"
    sign = hmac.new(b"quiet", body, hashlib.sha256).hexdigest()
    assert headers["X-Scopeval-Signature"] == f"sha256={sign}"
    again = Webhooks(campaign.backend, [hook])  # after a restart
    assert again.send_news(hook, again.delivered(hook)) == last
    assert len(listener.told) == 2
    assert b"quiet" not in body
    assert listener.url.encode() not in campaign.backend.store.where.encode()


def test_what_is_not_taken_is_tried_again_and_nothing_waits_for_it(campaign, listener):
    """An alarm behind an event that is not taken arrives at once; redirects are not followed."""
    hook, now = Webhook(listener.url), [0.0]
    hooks = Webhooks(campaign.backend, [hook], clock=lambda: now[0])
    last = hooks.delivered(hook)
    campaign.pause()
    campaign.resume()
    listener.statuses = [500]
    last = hooks.send_news(hook, last)
    first, second = listener.numbers
    assert (second - first, hooks.waiting) == (1, 1)
    assert "1 events wait" in hooks.problems()[0]
    assert Webhooks(campaign.backend, [hook]).delivered(hook) == first - 1  # after a restart
    for moment, status in ((0.5, None), (1.0, 302), (5.9, None), (6.0, 204)):
        now[0] = moment
        listener.statuses = [status] if status else []
        last = hooks.send_news(hook, last)
    assert listener.numbers == [first, second, first, first]
    assert {path for path, _, _ in listener.told} == {"/hook?x=1"}
    assert hooks.waiting == 0
    assert Webhooks(campaign.backend, [hook]).delivered(hook) == last


def test_what_is_never_taken_is_given_up_and_counted(campaign, listener):
    hook, now = Webhook(listener.url), [0.0]
    hooks = Webhooks(campaign.backend, [hook], clock=lambda: now[0])
    last = hooks.delivered(hook)
    campaign.pause()
    listener.statuses = [500] * 100
    for wait in (0.0, *WAITS, 3600.0):
        now[0] += wait
        last = hooks.send_news(hook, last)
    assert len(listener.told) == 1 + len(WAITS)
    assert (hooks.failed, hooks.waiting) == (1, 0)
    again = Webhooks(campaign.backend, [hook])
    again.delivered(hook)
    assert again.failed == 1  # it is kept
    assert "given up" in again.problems()[0]


def test_an_address_that_drips_has_a_few_seconds_in_all(campaign, monkeypatch):
    """One byte every 50 ms, for ever: no packet is late, the answer is."""
    monkeypatch.setattr("scopeval.serve.webhooks.TIMEOUT", 0.3)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def drip():
            line, _ = listening.accept()
            with line, contextlib.suppress(OSError):
                line.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                for _ in range(1200):
                    line.sendall(b"a")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        began = time.monotonic()
        assert send(Webhook(url), campaign.events()[0]) is not None
        assert time.monotonic() - began < 30.0  # it drips for 60


def test_an_address_that_is_not_there_is_no_error(campaign):
    assert send(Webhook("http://127.0.0.1:9/"), campaign.events()[0]) == "ConnectionRefusedError"


def test_threads_start_and_stop(campaign, listener):
    hook = Webhook(listener.url, kinds=("pause",))
    hooks = Webhooks(campaign.backend, [hook], every=0.01)
    hooks.delivered(hook)
    hooks.start()
    campaign.pause()
    for _ in range(500):
        if listener.told:
            break
        threading.Event().wait(0.02)
    hooks.stop()
    assert len(listener.told) == 1
    assert not any(thread.is_alive() for thread in hooks._threads)


@pytest.mark.parametrize(
    "url", ["ftp://a/b", "file:///etc/passwd", "http://", "a", "http://a:b/", "http://u:p@a"]
)
def test_addresses_are_checked(url):
    with pytest.raises(InputError, match="webhook"):
        check_url(url)
