"""The live page for people: sign in, look, and for operators pause, hand over and stop."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import ValidationError

from scopeval.serve.access import LOCAL, Session, address_of, check_form, is_own_origin, may
from scopeval.serve.models import CommandBody
from scopeval.serve.pages import figure_part, page, parts_of_view
from scopeval.serve.state import Parts, ServiceParts
from scopeval.serve.tokens import Role, Token
from scopeval.serve.view_routes import OperatorCommand

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

COOKIE = "scopeval_session"
Verb = Literal["pause", "resume", "hand-over", "stop"]

#: What a verb does, and what is asked before.
ASKED = {
    "pause": (
        "Pause the campaign?",
        "No more episodes are started until it is resumed. Running ones go on.",
        "Yes, pause",
    ),
    "resume": ("Resume the campaign?", "Episodes are started again.", "Yes, resume"),
    "hand-over": (
        "Hand over to the target policy?",
        "From the next step on the target policy decides, on all plants. This cannot be undone.",
        "Yes, hand over for good",
    ),
    "stop": (
        "Stop the campaign?",
        "No more episodes are started, and the target policy finishes running ones. This cannot "
        "be undone.",
        "Yes, stop for good",
    ),
}


def _known(parts: ServiceParts, request: Request) -> tuple[Session, Token] | None:
    """The session of a browser with its token; None: it must sign in."""
    session = parts.sessions.find(request.cookies.get(COOKIE))
    if session is None:
        return None
    if session.key == LOCAL.key:
        return (session, LOCAL) if parts.access.open else None
    token = parts.access.tokens.by_key(session.key)
    return None if token is None else (session, token)


def _needed(parts: ServiceParts, request: Request, role: Role) -> tuple[Session, Token]:
    """The session and token of somebody who may."""
    known = _known(parts, request)
    if known is None:
        raise HTTPException(401, "sign in")
    parts.access.admit(known[1], role)
    return known


def _remember(response: Response, request: Request, session: Session) -> None:
    response.set_cookie(
        COOKIE,
        session.number,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.get("/")
async def live_page(request: Request, parts: Parts) -> Response:
    """The live page."""
    known = _known(parts, request)
    fresh = None
    if known is None and parts.access.open:
        fresh = parts.sessions.begin(LOCAL)
        known = fresh, LOCAL
    if known is None:
        return RedirectResponse("sign-in", 303)
    session, token = known
    parts.access.admit(token, "viewer")
    told = await asyncio.to_thread(parts.live.view)
    key, figures = await asyncio.to_thread(parts.live.figures)
    content = {
        "title": parts.title,
        "signed_in": token is not LOCAL,
        "who": token.name,
        "role": token.role,
        "operator": may(token, "operator"),
        "form": session.form,
        "key": key,
        "parts": {**parts_of_view(told), "figures": figure_part(figures)},
    }
    answer = page("live.html.jinja", content, script="live.js")
    if fresh is not None:
        _remember(answer, request, fresh)
    return answer


@router.get("/live")
async def live_parts(
    request: Request, parts: Parts, figures: Annotated[str, Query(max_length=40)] = ""
) -> Response:
    """The parts of the live page, for its script; figures only where they have changed."""
    _, token = _needed(parts, request, "viewer")
    told = parts_of_view(await asyncio.to_thread(parts.live.view))
    if not may(token, "operator"):
        del told["buttons"]
    key, drawn = await asyncio.to_thread(parts.live.figures)
    if key != figures:
        told["figures"] = figure_part(drawn)
    return JSONResponse({"parts": told, "figures": key})


@router.get("/report")
async def report(request: Request, parts: Parts) -> Response:
    """The report, for a browser."""
    _needed(parts, request, "viewer")
    content = await asyncio.to_thread(parts.viewer.report, "The campaign")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy}
    return Response(content, media_type="text/html", headers=headers)


@router.get("/sign-in")
async def sign_in_page(parts: Parts) -> Response:
    """Ask for a token."""
    return _sign_in(parts, "")


def _sign_in(parts: ServiceParts, wrong: str, status: int = 200) -> Response:
    content = {
        "title": parts.title,
        "heading": "Sign in",
        "text": "With a token of a viewer or an operator. It is made by scopeval serve-token.",
        "wrong": wrong,
        "action": "sign-in",
        "form": None,
        "label": "Token",
        "field": "token",
        "kind": "password",
        "final": False,
        "yes": "Sign in",
        "back": "",
    }
    return page("ask.html.jinja", content, status=status)


@router.post("/sign-in")
async def sign_in(request: Request, parts: Parts) -> Response:
    """Begin a session."""
    given = await _form(request)
    if not is_own_origin(request):
        raise HTTPException(403, "the form is not from this page; load the page again")
    token = parts.access.tokens.find(given.get("token", "").strip())
    if token is None or not may(token, "viewer"):
        refusal = parts.access.unknown(request)
        wrong = "This is not a valid token of a viewer or an operator."
        return _sign_in(parts, wrong if refusal.status_code == 401 else "Too many attempts: wait.",
                        refusal.status_code)  # fmt: skip
    answer = RedirectResponse("./", 303)
    _remember(answer, request, parts.sessions.begin(token))
    return answer


@router.post("/sign-out")
async def sign_out(request: Request, parts: Parts) -> Response:
    """End a session."""
    session, _ = _needed(parts, request, "viewer")
    check_form(session, (await _form(request)).get("form", ""), request)
    parts.sessions.end(session)
    answer = RedirectResponse("sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/operate/{verb}")
async def ask(verb: Verb, request: Request, parts: Parts) -> Response:
    """Ask an operator whether it is meant."""
    session, _ = _needed(parts, request, "operator")
    return _ask(parts, verb, session, "")


def _ask(
    parts: ServiceParts, verb: str, session: Session, wrong: str, status: int = 200
) -> Response:
    heading, text, yes = ASKED[verb]
    content = {
        "title": parts.title,
        "heading": heading,
        "text": text,
        "wrong": wrong,
        "action": verb,
        "form": session.form,
        "request_word": secrets.token_hex(16),
        "label": "Reason, for the journal",
        "field": "reason",
        "kind": "text",
        "final": verb in ("hand-over", "stop"),
        "yes": yes,
        "back": "../",
    }
    return page("ask.html.jinja", content, status=status)


@router.post("/operate/{verb}")
async def operate(verb: Verb, request: Request, parts: Parts) -> Response:
    """Carry out what an operator wants."""
    session, token = _needed(parts, request, "operator")
    given = await _form(request)
    check_form(session, given.get("form", ""), request)
    try:
        body = CommandBody(reason=given.get("reason", ""), request=given.get("request", ""))
    except ValidationError:
        return _ask(parts, verb, session, "Give a reason, of at most 500 letters.", 422)
    command = OperatorCommand(parts, token, address_of(request), body)
    await command.carry_out(verb.replace("-", " "))
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
async def docs(request: Request, parts: Parts) -> Response:
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
    content = {"title": parts.title, "about": described["info"]["description"], "groups": groups}
    return page("docs.html.jinja", content)
