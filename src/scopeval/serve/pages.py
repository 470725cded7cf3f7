"""Pages from their templates: escaped, with a style and a script that the page's policy allows."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FunctionLoader, StrictUndefined

from scopeval import __version__
from scopeval.report.page import Figure
from scopeval.serve.live_view import LiveView

__all__ = ["figure_part", "page", "parts_of_view"]

#: Parts of the live page, as they are replaced.
PARTS = ("state", "buttons", "facts", "safety", "stages", "plants", "events")


def _read(name: str, package: str = "scopeval.serve") -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@functools.cache
def _style() -> str:
    return _read("page.css", "scopeval.report") + _read("live.css")


def parts_of_view(view: LiveView) -> dict[str, str]:
    """The parts of the live page, as HTML."""
    macros = _templates().get_template("parts.html.jinja").module.__dict__
    return {name: macros[name](view) for name in PARTS}


def figure_part(figures: tuple[Figure, ...]) -> str:
    """The figures, as HTML."""
    macros = _templates().get_template("parts.html.jinja").module.__dict__
    html: str = macros["figures"](figures)
    return html


def page(
    template: str, content: Mapping[str, Any], *, script: str | None = None, status: int = 200
) -> HTMLResponse:
    """A page.

    Args:
        template: its name.
        content: what it shows.
        script: name of the one script that it may run.
        status: of the answer.
    """
    nonce = secrets.token_urlsafe(16)
    html = (
        _templates()
        .get_template(template)
        .render(
            {
                "nonce": nonce,
                "style": _style(),
                "script": "" if script is None else _read(script),
                "version": __version__,
                **content,
            }
        )
    )
    allowed = [
        "default-src 'none'",
        f"style-src 'nonce-{nonce}'",
        "style-src-attr 'unsafe-inline'",  # the figures
        "img-src data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
    if script is not None:
        allowed.append(f"script-src 'nonce-{nonce}'")
    headers = {
        "Content-Security-Policy": "; ".join(allowed),
        "Referrer-Policy": "same-origin",
        "X-Frame-Options": "DENY",
    }
    return HTMLResponse(html, status, headers=headers)
