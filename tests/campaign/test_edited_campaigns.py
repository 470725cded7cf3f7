"""Campaigns that somebody has edited: a `DataError` that names the row, and no memory asked for."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sqlite3

import numpy as np
import pytest
from machine import HORIZON, run_episode, tables
from numpy.lib import format as npy

from scopeval import Campaign, Transitions
from scopeval.campaign.terms import Terms
from scopeval.campaign.transfer import bytes_of_logs, logs_of_bytes
from scopeval.errors import DataError, InputError

TARGET, BEHAVIOR = tables()


def huge(shape=(10**13,)):
    """A .npy file whose header promises 72 TiB."""
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + b"\0" * 64


@pytest.fixture
def made(place):
    with Campaign.create(
        place / "c", TARGET, horizon=HORIZON, behavior=BEHAVIOR, seed=1
    ) as campaign:
        for _ in range(3):
            run_episode(campaign)
    return place / "c"


def edit(where, statement, *values):
    with sqlite3.connect(where) as connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def terms_with(where, **other):
    with sqlite3.connect(where) as connection:
        (text,) = connection.execute("select value from facts where name = 'terms'").fetchone()
    connection.close()
    return json.dumps(json.loads(text) | other)


FACT = "update facts set value = ? where name = ?"
EDITS = {
    "terms, no JSON": (FACT, ("{", "terms"), "table facts, row 'terms'"),
    "terms, a list": (FACT, ("[]", "terms"), "table facts, row 'terms'"),
    "target, no arrays": (FACT, ("{}", "target"), "table facts, row 'target'"),
    "events, no JSON": ("update events set data = 'x' where number = ?", (4,), "events, row 4"),
    "events, no numbers": (
        """update events set data = '{"spent": "x"}' where kind = 'ended' and episode = ?""",
        (1,),
        "table events, row ",
    ),
    "events, a list": ("update events set data = '[1]' where number = ?", (2,), "events, row 2"),
    "events, huge": (
        """update events set data = '{"stage": 1e999}' where number = ?""",
        (2,),
        "events, row 2",
    ),
    "steps, no JSON": ("update steps set obs = 'x' where episode = ?", (2,), "table steps, row"),
    "steps, text": ("update steps set obs = '\"x\"' where episode = ?", (2,), "table steps, row"),
    "steps, a list": ("update steps set action = '[1, 2]' where episode = ?", (2,), "table steps"),
    "no design": ("delete from designs where number = ?", (0,), "table designs, row 0"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_campaign_is_refused_by_row(made, name):
    statement, values, told = EDITS[name]
    edit(made, statement, *values)
    with pytest.raises(DataError, match=told):
        Campaign.open(made, TARGET)


def test_headers_that_promise_terabytes_are_refused(made):
    content = huge()
    edit(
        made,
        "update designs set content = ?, fingerprint = ? where number = 0",
        content,
        hashlib.sha256(content).hexdigest(),
    )
    with pytest.raises(DataError, match=r"design 0 .* takes 80,000,000,000,000 bytes"):
        Campaign.open(made, TARGET)
    text = base64.b64encode(content).decode()
    kept = {"obs": text, "t": text, "answers": text, "table": False}
    edit(made, FACT, json.dumps(kept), "target")
    with pytest.raises(DataError, match="takes 80,000,000,000,000 bytes"):
        Campaign.open(made, TARGET)


def test_a_horizon_that_no_memory_holds_is_refused(made):
    with pytest.raises(InputError, match="horizon: got 1,000,000,000"):
        Terms(horizon=10**9)
    edit(made, FACT, terms_with(made, horizon=10**9), "terms")
    with pytest.raises(DataError, match="row 'terms': horizon: got 1,000,000,000"):
        Campaign.open(made, TARGET)


def test_numbers_that_are_no_json_are_told_by_row(made):
    edit(made, "update episodes set numbers = 'x' where number = ?", 1)
    with (
        Campaign.open(made, TARGET) as campaign,
        pytest.raises(DataError, match="table episodes, row 1"),
    ):
        campaign.result()


def test_logs_that_would_unpack_to_far_more_than_they_are(monkeypatch):
    """The limits are those of files; smaller ones here, for speed."""
    n = 100_000
    zeros = np.zeros(n)
    whole = np.zeros(n, np.int64)
    logs = Transitions(whole, whole, whole, zeros, zeros, whole, np.zeros(n, np.bool_))
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        **{
            name: getattr(logs, name)
            for name in ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
        },
    )
    monkeypatch.setattr("scopeval._archive.FREE_BYTES", 1 << 20)
    with pytest.raises(DataError, match="would unpack to"):
        logs_of_bytes(buffer.getvalue())
    found = logs_of_bytes(bytes_of_logs(logs))  # our own are written so that they can be read
    assert len(found) == n
    for content in (b"", b"PK", buffer.getvalue()[:-40]):
        with pytest.raises(DataError, match="logs: not the columns of Transitions, or damaged"):
            logs_of_bytes(content)
