"""Plain calls to a served campaign."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlsplit

from scopeval.campaign.store import Store


class Served:
    """A served campaign with a token for every role, and plain calls to it."""

    def __init__(self, where, url, tokens):
        self.where, self.url, self.tokens = where, url, tokens

    def call(self, method, place, body=None, *, token=None, headers=None, raw=None):
        """Status, decoded content and headers."""
        parts = urlsplit(self.url)
        line = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
        given = {"Content-Type": "application/json"} if body is not None or raw else {}
        if token is not None:
            given["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        content = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            line.request(method, place, content, given | (headers or {}))
            answer = line.getresponse()
            text = answer.read()
        finally:
            line.close()
        try:
            text = json.loads(text)
        except ValueError:
            text = text.decode("utf-8", "replace")
        return answer.status, text, answer.headers

    def journal(self):
        """All rows that an estimate or an audit is made of."""
        journal = Store(self.where, create=False)
        with journal.read() as connection:
            found = {
                name: connection.exec_driver_sql(f"SELECT * FROM {name} ORDER BY 1, 2").all()
                for name in ("episodes", "steps", "events", "designs", "facts")
            }
        journal.close()
        return found
