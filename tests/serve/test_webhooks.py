"""Webhooks: every event in order and at least once, to configured addresses only."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from campaign.machine import HORIZON, run_episode, tables
from scopeval import Campaign
from scopeval.errors import InputError
from scopeval.serve.tables import tables as own_tables
from scopeval.serve.webhooks import Webhook, Webhooks, check_url, send

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
        own_tables.create_all(made.journal.engine)
        yield made


def waiting(waited):
    def wait(seconds):
        waited.append(seconds)
        return False

    return wait


def test_events_are_told_in_order_and_signed(campaign, listener):
    hook = Webhook(listener.url, secret="quiet")
    hooks = Webhooks(campaign, [hook])
    last = hooks.delivered(hook)
    assert last == campaign.status().last_event  # what was before is not told
    run_episode(campaign)
    campaign.pause("a storm", who="me")
    campaign.resume()
    last = hooks.tell(hook, last)
    assert last == campaign.status().last_event
    kinds = [json.loads(body)["kind"] for _, _, body in listener.told]
    assert kinds == ["pause", "resume"]  # those of single episodes are not asked for
    path, headers, body = listener.told[0]
    assert path == "/hook?x=1"
    assert json.loads(body)["text"] == "a storm"
    sign = hmac.new(b"quiet", body, hashlib.sha256).hexdigest()
    assert headers["X-Scopeval-Signature"] == f"sha256={sign}"
    again = Webhooks(campaign, [hook])  # after a restart
    assert again.tell(hook, again.delivered(hook)) == last
    assert len(listener.told) == 2
    assert b"quiet" not in body
    assert listener.url.encode() not in campaign.journal.where.encode()


def test_what_is_not_taken_is_tried_again_and_redirects_are_not_followed(campaign, listener):
    hook, waited = Webhook(listener.url), []
    hooks = Webhooks(campaign, [hook], wait=waiting(waited))
    last = hooks.delivered(hook)
    campaign.pause()
    campaign.resume()
    listener.statuses = [500, 302, 404]
    hooks.tell(hook, last)
    first, second = sorted(set(listener.numbers))
    assert listener.numbers == [first] * 4 + [second]
    assert {path for path, _, _ in listener.told} == {"/hook?x=1"}
    assert waited == [1.0, 5.0, 30.0]


def test_what_is_never_taken_is_given_up_after_a_while(campaign, listener):
    hook, waited = Webhook(listener.url), []
    hooks = Webhooks(campaign, [hook], wait=waiting(waited))
    last = hooks.delivered(hook)
    campaign.pause()
    campaign.resume()
    listener.statuses = [500] * 5
    hooks.tell(hook, last)
    assert hooks.failed == 1
    assert len(listener.told) == 6
    assert len(waited) == 4


def test_an_end_while_waiting_keeps_the_event_for_later(campaign, listener):
    hook = Webhook(listener.url)
    hooks = Webhooks(campaign, [hook], wait=lambda seconds: True)
    last = hooks.delivered(hook)
    campaign.pause()
    listener.statuses = [500]
    assert hooks.tell(hook, last) == last
    assert Webhooks(campaign, [hook]).delivered(hook) == last


def test_an_address_that_is_not_there_is_no_error(campaign):
    assert send(Webhook("http://127.0.0.1:9/"), campaign.events()[0]) == "ConnectionRefusedError"


def test_threads_start_and_stop(campaign, listener):
    hook = Webhook(listener.url, kinds=("pause",))
    hooks = Webhooks(campaign, [hook], every=0.01)
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


@pytest.mark.parametrize("url", ["ftp://a/b", "file:///etc/passwd", "http://", "a", "http://a:b/"])
def test_addresses_are_checked(url):
    with pytest.raises(InputError, match="webhook"):
        check_url(url)
