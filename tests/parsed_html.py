"""A parser that refuses HTML whose tags are not closed in order, and a text to be escaped."""

from __future__ import annotations

from html.parser import HTMLParser

EVIL = '<script>alert("x")</script>&'


class Balanced(HTMLParser):
    """Refuses tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    found = Balanced()
    found.feed(text)
    found.close()
    assert not found.open
    return found
