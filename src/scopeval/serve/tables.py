"""Tables of the service, in the campaign's own database: tokens, audit log, delivered events."""

from __future__ import annotations

import sqlalchemy as sa

__all__ = ["audit", "deliveries", "tables", "tokens"]

tables = sa.MetaData()

#: Who may call. The secret of a token is not kept, only its hash. Revoked tokens stay.
tokens = sa.Table(
    "serve_tokens",
    tables,
    sa.Column("key", sa.Text, primary_key=True),  # the public part of a token
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("plants", sa.Text),  # JSON: names of plants; NULL: any
    sa.Column("hash", sa.Text, nullable=False),
    sa.Column("made", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
)

#: What operators did, and what they were refused.
audit = sa.Table(
    "serve_audit",
    tables,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("time", sa.Double, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("verb", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("request", sa.Text, unique=True),  # of the caller, so that a repeated call is one
    sa.Column("outcome", sa.Text, nullable=False),
)

#: The last event that was delivered to each webhook.
deliveries = sa.Table(
    "serve_deliveries",
    tables,
    sa.Column("url", sa.Text, primary_key=True),  # its hash: an address may hold a secret
    sa.Column("event", sa.Integer, nullable=False),
)
