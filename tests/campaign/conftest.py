from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
from postgres_server import MISSING, PostgresServer, binaries


@pytest.fixture(scope="session")
def postgres():
    """A running PostgreSQL server."""
    if binaries() is None:
        pytest.skip(MISSING)
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request):
    """A new place for a campaign, in each kind of database."""
    if request.param == "sqlite":
        return request.getfixturevalue("place") / "c.campaign"
    return request.getfixturevalue("postgres").url()
