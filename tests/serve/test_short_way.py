"""What every step takes: a known route without FastAPI's layers, and one packet for an answer."""

from __future__ import annotations

import asyncio
import re

from scopeval.serve import short_way
from scopeval.serve.joined_transport import MOST_WAITING, JoinedTransport


class Recording(asyncio.Transport):
    """Notes what it is told to do."""

    def __init__(self):
        super().__init__()
        self.told, self.closed = [], False

    def write(self, data):
        self.told.append(data)

    def close(self):
        self.closed = True
        self.told.append("close")

    def abort(self):
        self.told.append("abort")

    def is_closing(self):
        return self.closed


def test_what_is_written_in_one_turn_is_sent_together_and_before_a_close():
    async def main():
        line = Recording()
        joined = JoinedTransport(line, asyncio.get_running_loop())
        joined.write(b"head ")
        joined.write(b"body")
        assert line.told == []
        await asyncio.sleep(0)
        assert line.told == [b"head body"]
        joined.write(b"x" * (MOST_WAITING + 1))  # much is not kept waiting
        assert len(line.told) == 2
        joined.write(b"last")
        joined.close()
        await asyncio.sleep(0)
        assert line.told[2:] == [b"last", "close"]
        assert joined.is_closing()
        joined.write(b"too late")
        await asyncio.sleep(0)
        assert line.told[-1] == "close"

    asyncio.run(main())


def test_both_ways_give_the_same_answers(served, monkeypatch):
    start = {"plant": "a", "request": "12345678"}
    _, told, _ = served.call("POST", "/v1/episodes", start, token="plant")
    place = f"/v1/episodes/{told['number']}"
    outcome = {"step": 0, "reward": 1.0, "cost": 1.0, "next_obs": 1}
    calls = [
        ("act", {"step": 0, "obs": 1}),
        ("act", {"step": 0, "obs": 2}),  # was decided at another observation
        ("act", {"step": 0}),
        ("act", {"step": 0, "obs": 1, "more": 1}),
        ("observe", outcome | {"cost": -1.0}),
        ("end", {"steps": 5}),
        ("act", {"step": 7, "obs": 1}),
    ]
    for verb, body in calls:
        short = served.call("POST", f"{place}/{verb}", body, token="plant")
        with monkeypatch.context() as patched:
            patched.setattr(short_way, "_PLACE", re.compile("never"))
            long = served.call("POST", f"{place}/{verb}", body, token="plant")
        assert (short[0], short[1]) == (long[0], long[1]), verb
        for name in ("Cache-Control", "X-Content-Type-Options", "Content-Security-Policy"):
            assert short[2][name] == long[2][name]
    for token, status in ((None, 401), ("viewer", 403), ("nonsense", 401)):
        assert served.call("POST", f"{place}/act", calls[0][1], token=token)[0] == status
    text = {"Content-Type": "text/plain"}
    found = served.call("POST", f"{place}/act", raw=b"{}", token="plant", headers=text)
    assert found[0] == 422
    assert served.call("GET", f"{place}/act", token="plant")[0] == 405
    _, lines, _ = served.call("GET", "/metrics", token="viewer")
    assert 'route="/v1/episodes/{number}/act",status="200"' in lines
