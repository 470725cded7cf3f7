"""What plants call: begin an episode, ask for actions, tell outcomes, end it.

Every call may be repeated after a lost answer: an episode is begun once for every `request`, a step
is decided and observed once. These routes are called at every step, so bodies are read by pydantic
straight from their bytes, and answers are written without another check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from scopeval.serve.desk import PlantDesk
from scopeval.serve.models import (
    ActBody,
    ActionAnswer,
    AdvanceAnswer,
    EndBody,
    EpisodeAnswer,
    HeartbeatBody,
    LoseBody,
    Name,
    ObserveAnswer,
    ObserveBody,
    StartBody,
)
from scopeval.serve.state import ServiceParts, parts_of
from scopeval.serve.tokens import Token

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["plants"])
Given = TypeVar("Given", bound=BaseModel)

#: Largest number of an episode.
LAST = 2**31 - 1


def _described(body: type[BaseModel] | None, number: bool = True) -> dict[str, Any]:
    """The part of the description that the signature does not tell."""
    found: dict[str, Any] = {}
    if number:
        kind = {"type": "integer", "minimum": 0, "maximum": LAST}
        found["parameters"] = [{"name": "number", "in": "path", "required": True, "schema": kind}]
    if body is not None:
        content = {"application/json": {"schema": body.model_json_schema()}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _caller(request: Request) -> tuple[ServiceParts, Token]:
    parts = parts_of(request)
    return parts, parts.access.caller(request, "plant")


async def _body(request: Request, kind: type[Given]) -> Given:
    """The body, checked. Only JSON: a page elsewhere cannot send that without being asked first."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json":
        raise HTTPException(422, "the body: expected Content-Type: application/json")
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**one, "loc": ("body", *one["loc"])} for one in wrong]
        ) from error


def _number(request: Request) -> int:
    text = str(request.path_params["number"])
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= LAST):
        raise HTTPException(422, f"number: expected a whole number from 0 to {LAST}")
    return int(text)


async def _answer(
    request: Request,
    kind: type[Given],
    verb: Callable[[PlantDesk, Token, int, Given], dict[str, Any]],
) -> Response:
    """What the desk answers about the episode that the address names."""
    parts, token = _caller(request)
    number, body = _number(request), await _body(request, kind)
    return JSONResponse(await parts.write(lambda: verb(parts.desk, token, number, body)))


@router.post(
    "/episodes", response_model=EpisodeAnswer, openapi_extra=_described(StartBody, number=False)
)
async def start(request: Request) -> Response:
    """Begin an episode on a plant; or resume its open one."""
    parts, token = _caller(request)
    body = await _body(request, StartBody)
    return JSONResponse(await parts.write(lambda: parts.desk.start(token, body)))


@router.get("/open-episode", response_model=EpisodeAnswer)
async def open_episode(request: Request, plant: Name) -> Response:
    """The open episode of a plant, with all that was recorded of it."""
    parts, token = _caller(request)
    return JSONResponse(await parts.write(lambda: parts.desk.open_on(token, plant)))


@router.get("/episodes/{number}", response_model=EpisodeAnswer, openapi_extra=_described(None))
async def episode(request: Request) -> Response:
    """An episode, as it stands in the journal."""
    parts, token = _caller(request)
    number = _number(request)
    return JSONResponse(await parts.write(lambda: parts.desk.look_up(token, number)))


@router.post(
    "/episodes/{number}/act", response_model=ActionAnswer, openapi_extra=_described(ActBody)
)
async def act(request: Request) -> Response:
    """The action of a step; it is on disk before this answers."""
    return await _answer(request, ActBody, PlantDesk.act)


@router.post(
    "/episodes/{number}/observe",
    response_model=ObserveAnswer,
    openapi_extra=_described(ObserveBody),
)
async def observe(request: Request) -> Response:
    """Record what the action of a step has led to."""
    return await _answer(request, ObserveBody, PlantDesk.observe)


@router.post(
    "/episodes/{number}/advance",
    response_model=AdvanceAnswer,
    openapi_extra=_described(ObserveBody),
)
async def advance(request: Request) -> Response:
    """Record the outcome of a step and decide the next one, in one call."""
    return await _answer(request, ObserveBody, PlantDesk.advance)


@router.post(
    "/episodes/{number}/end", response_model=EpisodeAnswer, openapi_extra=_described(EndBody)
)
async def end(request: Request) -> Response:
    """End an episode; it is evidence from now on."""
    return await _answer(request, EndBody, PlantDesk.end)


@router.post(
    "/episodes/{number}/lose", response_model=EpisodeAnswer, openapi_extra=_described(LoseBody)
)
async def lose(request: Request) -> Response:
    """Give an episode up; it is counted as lost, with what it has cost."""
    return await _answer(request, LoseBody, PlantDesk.lose)


@router.post("/heartbeat", status_code=204, openapi_extra=_described(HeartbeatBody, number=False))
async def heartbeat(request: Request) -> Response:
    """Tell that a plant is alive."""
    parts, token = _caller(request)
    body = await _body(request, HeartbeatBody)
    await parts.write(lambda: parts.desk.heartbeat(token, body.plant))
    return Response(status_code=204)
