"""The figures of the live page follow what was dropped, and the service's sockets do not wait."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

import pytest

from campaign.machine import run_episode, tables
from scopeval import Campaign, Stages
from scopeval.campaign.view import trace_of
from scopeval.errors import ServiceError
from scopeval.serve.client import HttpBackend

TARGET, BEHAVIOR = tables()


def course_of(campaign):
    """What the figures of the page draw."""
    with campaign.backend.store.read() as connection:
        return trace_of(campaign.backend.state(connection))


def test_a_dropped_episode_is_in_no_figure(place):
    with Campaign.create(place / "c", TARGET, horizon=5, behavior=BEHAVIOR, seed=2) as campaign:
        for _ in range(8):
            run_episode(campaign)
        assert course_of(campaign).value.mean() == pytest.approx(campaign.result().estimate)
        campaign.drop(3, "a broken sensor")
        run_episode(campaign)
        campaign.drop(8, "another one")
        trace, result = course_of(campaign), campaign.result()
        assert len(trace.value) == result.finished == 7
        assert trace.value.mean() == pytest.approx(result.estimate)
        assert len(trace.spent) == len(trace.excess) == 7


def test_runs_of_stages_follow_what_was_dropped(place):
    settings = Stages(first=5, method="odi")
    with Campaign.create(place / "c", TARGET, horizon=5, refit=settings) as campaign:
        campaign.backend.on_refit = None
        for _ in range(5):
            run_episode(campaign)
        campaign.refit()
        for _ in range(3):
            run_episode(campaign)
        campaign.drop(0, "a broken sensor")
        campaign.drop(6, "another one")
        stages = course_of(campaign).stages
        assert [(run.stage, run.episodes) for run in stages] == [(0, 4), (1, 2)]


def test_connections_of_the_service_do_not_wait_for_more_bytes(place):
    from scopeval.serve.app import Service, _bound

    found = []

    class Looks(asyncio.Protocol):
        def connection_made(self, transport):
            own = transport.get_extra_info("socket")
            found.append(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            transport.close()

    async def run():
        with _bound(Service(place / "c", TARGET, port=0)) as bound:
            server = await asyncio.get_running_loop().create_server(Looks, sock=bound)
            reader, writer = await asyncio.open_connection(*bound.getsockname()[:2])
            await reader.read()
            writer.close()
            server.close()

    asyncio.run(run())
    assert len(found) == 1
    assert found[0] != 0


def test_a_dead_service_is_told_after_the_first_failure(caplog):
    taken = socket.socket()  # bound, so that nobody else gets the port, and deaf
    taken.bind(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    waited = []
    line = HttpBackend(
        f"http://127.0.0.1:{port}",
        timeout=1.0,
        patience=0.5,
        sleep=lambda s: (waited.append(s), time.sleep(s)),
        jitter=lambda: 0.5,
    )
    with (
        taken,
        caplog.at_level(logging.WARNING, "scopeval.serve"),
        pytest.raises(ServiceError),
    ):
        line.get("/v1/status")
    (record,) = caplog.records
    assert "no answer (ConnectionRefusedError" in record.getMessage()
    assert "trying again for 0.5 seconds" in record.getMessage()
    assert waited
