"""What every step takes: answers of the plants' routes, and one packet without a delay."""

from __future__ import annotations

import socket

from scopeval.serve.app import Service, _bound


def test_answers_do_not_wait_for_acknowledgments():
    """asyncio sets TCP_NODELAY only where the protocol of the socket is named."""
    with _bound(Service("nowhere", None, port=0)) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_right_and_wrong_calls_have_their_answers(served):
    start = {"plant": "a", "request": "12345678"}
    _, told, _ = served.call("POST", "/v1/episodes", start, token="plant")
    place = f"/v1/episodes/{told['number']}"
    outcome = {"step": 0, "reward": 1.0, "cost": 1.0, "next_obs": 1}
    calls = [
        ("act", {"step": 0, "obs": 1}, 200),
        ("act", {"step": 0, "obs": 2}, 422),  # was decided at another observation
        ("act", {"step": 0}, 422),
        ("act", {"step": 0, "obs": 1, "more": 1}, 422),
        ("observe", outcome | {"cost": -1.0}, 422),
        ("end", {"steps": 5}, 409),
        ("act", {"step": 7, "obs": 1}, 409),
    ]
    for verb, body, status in calls:
        found = served.call("POST", f"{place}/{verb}", body, token="plant")
        assert found[0] == status, verb
        for name in ("Cache-Control", "X-Content-Type-Options", "Content-Security-Policy"):
            assert name in found[2]
    for token, status in ((None, 401), ("viewer", 403), ("nonsense", 401)):
        assert served.call("POST", f"{place}/act", calls[0][1], token=token)[0] == status
    text = {"Content-Type": "text/plain"}
    found = served.call("POST", f"{place}/act", raw=b"{}", token="plant", headers=text)
    assert found[0] == 422
    assert served.call("GET", f"{place}/act", token="plant")[0] == 405
    _, lines, _ = served.call("GET", "/metrics", token="viewer")
    assert 'route="/v1/episodes/{number}/act",status="200"' in lines
