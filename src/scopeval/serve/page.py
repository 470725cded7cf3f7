"""The live page for people: sign in, look, and for operators pause, hand over and stop.

Pages are made from their templates: escaped, with a style and a script that the page's policy
allows.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from jinja2 import Environment, FunctionLoader, StrictUndefined
from pydantic import ValidationError

from scopeval import __version__
from scopeval.campaign.terms import Command, command_of
from scopeval.campaign.view import moment, reading
from scopeval.report.page import Figure
from scopeval.serve.auth import (
    LOCAL,
    Role,
    Session,
    Token,
    address_of,
    check_form,
    has_role,
    is_own_origin,
)
from scopeval.serve.live import KINDS, LiveView, ago
from scopeval.serve.models import CommandBody, EpisodeNumber
from scopeval.serve.routes import AppState, State, carry_out

__all__ = ["figure_part", "page", "parts_of_view", "router"]

#: Parts of the live page, as they are replaced.
PARTS = ("state", "problems", "buttons", "facts", "safety", "stages", "plants", "events")


def _read(name: str, package: str = "scopeval.serve") -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"ago": ago, "moment": moment, "reading": reading}
    return made


@functools.cache
def _style() -> str:
    return _read("page.css", "scopeval.report") + _read("live.css")


def parts_of_view(view: LiveView, *, operator: bool) -> dict[str, str]:
    """The parts of the live page, as HTML; operators see what they can do."""
    macros = _templates().get_template("parts.html.jinja").module.__dict__
    return {name: macros[name](view, operator) for name in PARTS}


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


router = APIRouter(include_in_schema=False)

COOKIE = "scopeval_session"


def _session(state: AppState, request: Request) -> tuple[Session, Token] | None:
    """The session of a browser with its token; None: it must sign in."""
    session = state.sessions.find(request.cookies.get(COOKIE))
    if session is None:
        return None
    if session.key == LOCAL.key:
        return (session, LOCAL) if state.access.anonymous(request) else None
    token = state.access.tokens.by_key(session.key)
    return None if token is None else (session, token)


def _needed(state: AppState, request: Request, role: Role) -> tuple[Session, Token]:
    """The session and token of somebody who may."""
    signed_in = _session(state, request)
    if signed_in is None:
        raise HTTPException(401, "sign in")
    state.access.check(signed_in[1], role, request)
    return signed_in


def _remember(response: Response, request: Request, session: Session) -> None:
    response.set_cookie(
        COOKIE,
        session.number,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.get("/")
async def live_page(request: Request, state: State) -> Response:
    """The live page."""
    signed_in = _session(state, request)
    fresh = None
    if signed_in is None and state.access.anonymous(request):
        fresh = state.sessions.begin(LOCAL)
        signed_in = fresh, LOCAL
    if signed_in is None:
        return RedirectResponse("sign-in", 303)
    session, token = signed_in
    state.access.check(token, "viewer", request)
    view = await asyncio.to_thread(state.live.view)
    key, figures = await asyncio.to_thread(state.live.figures)
    content = {
        "title": state.title,
        "signed_in": token is not LOCAL,
        "who": token.name,
        "role": token.role,
        "operator": has_role(token, "operator"),
        "form": session.csrf_token,
        "key": key,
        "problems": len(view.problems),
        "several": bool(state.viewer.backend.terms.policies),
        "kinds": KINDS,
        "parts": {
            **parts_of_view(view, operator=has_role(token, "operator")),
            "figures": figure_part(figures),
        },
    }
    answer = page("live.html.jinja", content, script="live.js")
    if fresh is not None:
        _remember(answer, request, fresh)
    return answer


@router.get("/live")
async def live_parts(
    request: Request,
    state: State,
    figures: Annotated[str, Query(max_length=40)] = "",
    kind: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """The parts of the live page, for its script; figures only where they have changed."""
    _, token = _needed(state, request, "viewer")
    view = await asyncio.to_thread(state.live.view, kind if kind in KINDS else "")
    parts = parts_of_view(view, operator=has_role(token, "operator"))
    if not has_role(token, "operator"):
        del parts["buttons"]
    key, drawn = await asyncio.to_thread(state.live.figures)
    if key != figures:
        parts["figures"] = figure_part(drawn)
    title = f"({len(view.problems)}) {state.title}" if view.problems else state.title
    return JSONResponse({"parts": parts, "figures": key, "title": title})


@router.get("/report")
async def report(request: Request, state: State) -> Response:
    """The report, for a browser."""
    _needed(state, request, "viewer")
    answer = await state.viewer.file("report", "The campaign")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    answer.headers["Content-Security-Policy"] = policy
    return answer


@router.get("/sign-in")
async def sign_in_page(state: State) -> Response:
    """Ask for a token."""
    return _sign_in(state, "")


#: The form that asks for a token; others differ from it.
_FORM: dict[str, Any] = {
    "heading": "Sign in",
    "text": "With a token of a viewer or an operator. It is made by scopeval serve-token.",
    "action": "sign-in",
    "form": None,
    "episode": None,
    "label": "Token",
    "field": "token",
    "kind": "password",
    "final": False,
    "yes": "Sign in",
    "back": "",
}


def _sign_in(state: AppState, wrong: str, status: int = 200) -> Response:
    return page("ask.html.jinja", _FORM | {"title": state.title, "wrong": wrong}, status=status)


@router.post("/sign-in")
async def sign_in(request: Request, state: State) -> Response:
    """Begin a session."""
    given = await _form(request)
    if not is_own_origin(request):
        raise HTTPException(403, "the form is not from this page; load the page again")
    token = state.access.tokens.find(given.get("token", "").strip())
    if token is None or not has_role(token, "viewer"):
        refusal = state.access.unauthorized(request)
        wrong = "This is not a valid token of a viewer or an operator."
        return _sign_in(state, wrong if refusal.status_code == 401 else "Too many attempts: wait.",
                        refusal.status_code)  # fmt: skip
    answer = RedirectResponse("./", 303)
    _remember(answer, request, state.sessions.begin(token))
    return answer


@router.post("/sign-out")
async def sign_out(request: Request, state: State) -> Response:
    """End a session."""
    session, _ = _needed(state, request, "viewer")
    check_form(session, (await _form(request)).get("form", ""), request)
    state.sessions.end(session)
    answer = RedirectResponse("sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/operate/{name}")
async def ask(
    name: str, request: Request, state: State, episode: EpisodeNumber | None = None
) -> Response:
    """Ask an operator whether it is meant."""
    session, _ = _needed(state, request, "operator")
    return _ask(state, command_of(name), episode, session, "")


def _ask(
    state: AppState,
    command: Command,
    episode: int | None,
    session: Session,
    wrong: str,
    status: int = 200,
) -> Response:
    content = _FORM | {
        "title": state.title,
        "heading": command.question if episode is None else f"{command.question} ({episode})",
        "text": command.text + (" This cannot be undone." if command.final else ""),
        "wrong": wrong,
        "action": command.name,
        "form": session.csrf_token,
        "episode": episode,
        "request_word": secrets.token_hex(16),
        "label": "Reason, for the journal",
        "field": "reason",
        "kind": "text",
        "final": command.final,
        "yes": f"Yes, {command.label.lower()}" + (" for good" if command.final else ""),
        "back": "../",
    }
    return page("ask.html.jinja", content, status=status)


@router.post("/operate/{name}")
async def operate(name: str, request: Request, state: State) -> Response:
    """Carry out what an operator wants."""
    session, token = _needed(state, request, "operator")
    given = await _form(request)
    check_form(session, given.get("form", ""), request)
    command, number = command_of(name), given.get("episode", "")
    episode = int(number) if number.isdecimal() and len(number) < 10 else None
    try:
        body = CommandBody(
            reason=given.get("reason", ""), request=given.get("request", ""), episode=episode
        )
    except ValidationError:
        text = "Give a reason, of at most 500 letters."
        return _ask(state, command, episode, session, text, 422)
    await carry_out(state, token, address_of(request), command.name, body)
    return RedirectResponse("../", 303)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "expected a form")
    try:
        text = (await request.body()).decode("utf-8")
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=10)
    except ValueError as error:
        raise HTTPException(422, "the form cannot be read") from error
    return {name: values[0] for name, values in fields.items()}


@router.get("/docs")
async def docs(request: Request, state: State) -> Response:
    """What programs can call; from the same description as openapi.json."""
    described = request.app.openapi()
    schemas = described["components"]["schemas"]
    groups: dict[str, list[dict[str, str]]] = {}
    for path, methods in described["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            ref = schema.get("$ref", "").rpartition("/")[2]
            fields = schemas.get(ref, schema).get("properties", {})
            groups.setdefault(about["tags"][0], []).append(
                {
                    "method": method.upper(),
                    "path": path,
                    "text": about.get("description", "").replace("`", ""),
                    "fields": ", ".join(fields),
                }
            )
    content = {"title": state.title, "about": described["info"]["description"], "groups": groups}
    return page("docs.html.jinja", content)
