"""A campaign moves between databases."""

from __future__ import annotations

import pytest
from machine import HORIZON, run_episode, tables

from scopeval import Campaign
from scopeval.campaign.transfer import export_campaign, import_campaign, prune_campaign
from scopeval.errors import DataError, InputError

TARGET, BEHAVIOR = tables()


def test_from_a_file_to_a_server_and_back(place, postgres):
    first, server, last = place / "a.campaign", postgres.url(), place / "b.campaign"
    with Campaign.create(first, TARGET, horizon=HORIZON, behavior=BEHAVIOR) as campaign:
        for _ in range(5):
            run_episode(campaign)
        known = campaign.result(), campaign.events(), campaign.designs()
        export_campaign(campaign.backend.store, place / "x.gz")
    import_campaign(place / "x.gz", server)
    with Campaign.open(server, TARGET) as campaign:
        assert (campaign.result(), campaign.events(), campaign.designs()) == known
        export_campaign(campaign.backend.store, place / "y.gz")
    import_campaign(place / "y.gz", last)
    with Campaign.open(last, TARGET) as campaign:
        assert (campaign.result(), campaign.events(), campaign.designs()) == known


def test_nothing_is_left_of_a_damaged_file(place):
    (place / "x.gz").write_bytes(b"no")
    with pytest.raises(DataError, match="damaged"):
        import_campaign(place / "x.gz", place / "c")
    with pytest.raises(DataError, match="holds no campaign"):
        Campaign.open(place / "c", TARGET)


def test_old_refusals_and_dead_tokens_are_deleted_and_evidence_is_not(place):
    pytest.importorskip("fastapi")
    from scopeval.serve.auth import AuditEntry, AuditLog, TokenStore

    now = [1e9]
    with Campaign.create(place / "a", TARGET, horizon=HORIZON) as campaign:
        run_episode(campaign)
        store = campaign.backend.store
        book, log = TokenStore(store, lambda: now[0]), AuditLog(store, lambda: now[0])
        kept = book.create("control room", "operator")
        book.create("old", "viewer", days=1)
        book.create("gone", "viewer")
        book.revoke("gone")
        for outcome in ("done", "refused: wrong token"):
            log.add(AuditEntry("x", "operator", "127.0.0.1", "pause", "smoke", outcome))
        before = campaign.events()
        now[0] += 40 * 86_400
        log.add(AuditEntry("x", "", "127.0.0.1", "GET /v1/status", "", "refused: role"))
        assert prune_campaign(store, 30, lambda: now[0]) == {"refused calls": 1, "dead tokens": 2}
        book.refresh()
        assert [token.name for token in book.all()] == ["control room"]
        assert book.find(kept) is not None
        outcomes = [one.outcome for one in log.last(20)]
        assert outcomes.count("refused: role") == 1
        assert "refused: wrong token" not in outcomes
        assert "1 refused calls, 2 dead tokens" in log.last(1)[0].reason
        assert campaign.events() == before
        assert campaign.verify().good
        with pytest.raises(InputError, match="days"):
            prune_campaign(store, 0, lambda: now[0])


def test_tokens_and_the_audit_log_move_too(place):
    """Who did what is evidence, and the copy is not open to everybody."""
    pytest.importorskip("fastapi")
    from scopeval.serve.auth import AuditEntry, AuditLog, TokenStore

    with Campaign.create(place / "a", TARGET, horizon=HORIZON) as campaign:
        store = campaign.backend.store
        token = TokenStore(store, lambda: 1e9).create("control room", "operator")
        entry = AuditEntry("control room", "operator", "127.0.0.1", "pause", "smoke", "done")
        AuditLog(store, lambda: 1e9).add(entry)
        export_campaign(store, place / "x.gz")
    import_campaign(place / "x.gz", place / "b")
    with Campaign.open(place / "b", TARGET) as campaign:
        store = campaign.backend.store
        assert TokenStore(store, lambda: 1e9).find(token).name == "control room"
        assert "smoke" in [one.reason for one in AuditLog(store, lambda: 1e9).last(5)]
