from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from http_calls import Served

from campaign.machine import HORIZON, tables
from scopeval import Campaign

pytest.importorskip("fastapi", reason="no FastAPI here: try pip install 'scopeval[serve]'")
pytest.importorskip("uvicorn", reason="no uvicorn here: try pip install 'scopeval[serve]'")

from scopeval.serve.app import Service, Settings, serving
from scopeval.serve.auth import TokenStore
from scopeval.serve.models import Limits

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from postgres_server import MISSING, PostgresServer, binaries

TARGET, BEHAVIOR = tables()
ROLES = ("plant", "viewer", "operator")


@pytest.fixture
def create(place):
    """Creates a campaign with its tokens."""

    def create(*, tokens=ROLES, **terms):
        where = place / "c.campaign"
        terms = {"horizon": HORIZON, "behavior": BEHAVIOR, "seed": 3, "lease": 600.0} | terms
        with Campaign.create(where, TARGET, **terms) as campaign:
            book = TokenStore(campaign.backend.store, time.time)
            return where, {role: book.create(f"the {role}", role) for role in tokens}

    return create


@pytest.fixture
def served(create):
    """A campaign at work."""
    where, tokens = create()
    # on a busy machine a call may take longer than a plant would wait
    settings = Settings(limits=Limits(rate=1e6, failures=1e6, answer_seconds=300.0))
    with serving(Service(where, TARGET, port=0, settings=settings)) as url:
        yield Served(where, url, tokens)


@pytest.fixture
def postgres():
    """A running PostgreSQL server."""
    if binaries() is None:
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()
