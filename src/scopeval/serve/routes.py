"""The parts of a service, and what programs call: plants, viewers and operators.

Every call of a plant may be repeated after a lost answer: an episode is begun once for every
`request`, a step is decided and observed once. Bodies of these calls, which come at every step, are
read by pydantic straight from their bytes, and answers are written without another check.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from scopeval.campaign.campaign import LocalBackend
from scopeval.campaign.designs import DesignRecord
from scopeval.campaign.store import FACTS, Event
from scopeval.campaign.terms import COMMANDS, command_of
from scopeval.campaign.view import CampaignStatus, ShadowReport, Verification
from scopeval.errors import CampaignError, InputError, ScopevalError
from scopeval.serve.auth import Access, AuditEntry, AuditLog, Sessions, Token, address_of
from scopeval.serve.client import to_wire
from scopeval.serve.live import LivePage
from scopeval.serve.models import (
    ActBody,
    ActionAnswer,
    AdvanceAnswer,
    Body,
    CommandBody,
    EndBody,
    EpisodeAnswer,
    HeartbeatBody,
    Limits,
    LoseBody,
    Name,
    ObserveAnswer,
    ObserveBody,
    Problem,
    StartBody,
    StateAnswer,
)
from scopeval.serve.service import (
    CampaignService,
    Metrics,
    OverloadedError,
    Viewer,
    WriteQueue,
)
from scopeval.serve.webhooks import Webhooks

__all__ = [
    "AppState",
    "OperatorCaller",
    "State",
    "ViewerCaller",
    "carry_out",
    "get_state",
    "plants",
    "viewers",
]

# -- the parts of a service ------------------------------------------------------------------------


@dataclass
class AppState:
    """What a service is made of.

    Attributes:
        backend: for what is written, by `queue` only.
        service: the verbs that write.
        queue: runs them.
        viewer: looks.
        live: the live page.
        access: who may.
        sessions: of browsers.
        audit: the audit log.
        metrics: what is counted.
        hooks: who is told about events.
        limits: what callers may use.
        title: of the page.
    """

    backend: LocalBackend
    service: CampaignService
    queue: WriteQueue
    viewer: Viewer
    live: LivePage
    access: Access
    sessions: Sessions
    audit: AuditLog
    metrics: Metrics
    hooks: Webhooks
    limits: Limits
    title: str
    checked: tuple[float, str | None] = (-1e9, None)

    def counts(self) -> dict[str, int]:
        """What the parts have counted, by the names of `service.COUNTS`."""
        return {
            "decisions": self.service.decisions,
            "transactions": self.queue.groups,
            "written_calls": self.queue.calls,
            "database_errors": self.queue.failures,
            "webhook_failures": self.hooks.failed,
            "waiting_calls": self.queue.waiting,
            "webhook_waiting": self.hooks.waiting,
        }

    async def readiness(self) -> str | None:
        """Why nothing can be recorded now; None: it can. Tried at most once a second."""
        now = time.monotonic()
        if now - self.checked[0] < 1.0:
            return self.checked[1]
        why = None
        try:
            await self.queue.do(self._probe)
        except OverloadedError:
            why = "the database does not answer in time"
        except ScopevalError:
            why = "the database takes nothing"
        self.checked = (now, why)
        return why

    def _probe(self) -> None:
        """Write a row, which needs the lock and space on the disk."""
        now = json.dumps(self.backend.clock())
        with self.backend.store.transaction() as connection:
            chosen = FACTS.update().where(FACTS.c.name == "probe").values(value=now)
            if not connection.execute(chosen).rowcount:
                connection.execute(FACTS.insert().values(name="probe", value=now))


def get_state(request: Request) -> AppState:
    """The parts of the service that a request came to."""
    state = request.app.state.parts
    assert isinstance(state, AppState)
    return state


async def _state(request: Request) -> AppState:
    return get_state(request)


async def _viewer(request: Request) -> Token:
    return get_state(request).access.authorize(request, "viewer")


async def _operator(request: Request) -> Token:
    return get_state(request).access.authorize(request, "operator")


State = Annotated[AppState, Depends(_state)]
ViewerCaller = Annotated[Token, Depends(_viewer)]
OperatorCaller = Annotated[Token, Depends(_operator)]


# -- calls -----------------------------------------------------------------------------------------

Given = TypeVar("Given", bound=Body)

#: Largest number of an episode.
LAST = 2**31 - 1


#: What may be refused, in the description of every call.
REFUSED: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem} for code in (400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 503)
}


class PlantRoute(APIRoute):
    """A call of a plant, which reads what it is given by itself: there is nothing to be solved.

    It comes at every step: nothing stands between the router and the endpoint.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path fits."""
        methods = self.methods or set()
        if scope["method"] not in methods:
            allow = {"Allow": ", ".join(sorted(methods))}
            raise HTTPException(405, "the method is not allowed", allow)
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


plants = APIRouter(prefix="/v1", tags=["plants"], route_class=PlantRoute, responses=REFUSED)
viewers = APIRouter(responses=REFUSED)

# -- plants ----------------------------------------------------------------------------------------


def _described(body: type[BaseModel] | None, number: bool = True) -> dict[str, Any]:
    """The part of the description that the signature does not tell."""
    description: dict[str, Any] = {"security": [{"token": []}]}
    if number:
        kind = {"type": "integer", "minimum": 0, "maximum": LAST}
        description["parameters"] = [
            {"name": "number", "in": "path", "required": True, "schema": kind}
        ]
    if body is not None:
        content = {"application/json": {"schema": body.model_json_schema()}}
        description["requestBody"] = {"required": True, "content": content}
    return description


def _caller(request: Request) -> tuple[AppState, Token]:
    state = get_state(request)
    return state, state.access.authorize(request, "plant")


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


#: What a plant calls about an episode: the body, the answer and what the service does. Those of
#: every step come first: routes are compared in this order.
_VERBS: dict[str, tuple[type[Body], type[BaseModel], Callable[..., dict[str, Any]], str]] = {
    "act": (
        ActBody,
        ActionAnswer,
        CampaignService.act,
        "The action of a step; it is on disk before this answers.",
    ),
    "observe": (
        ObserveBody,
        ObserveAnswer,
        CampaignService.observe,
        "Record what the action of a step has led to.",
    ),
    "advance": (
        ObserveBody,
        AdvanceAnswer,
        CampaignService.advance,
        "Record the outcome of a step and decide the next one, in one call.",
    ),
    "end": (
        EndBody,
        EpisodeAnswer,
        CampaignService.end,
        "End an episode; it is evidence from now on.",
    ),
    "lose": (
        LoseBody,
        EpisodeAnswer,
        CampaignService.lose,
        "Give an episode up; it is counted as lost, with what it has cost.",
    ),
}


def _add_verb(name: str) -> None:
    kind, answer, verb, text = _VERBS[name]

    async def endpoint(request: Request) -> Response:
        state, token = _caller(request)
        number, body = _number(request), await _body(request, kind)
        return JSONResponse(await state.queue.do(lambda: verb(state.service, token, number, body)))

    plants.post(
        f"/episodes/{{number}}/{name}",
        response_model=answer,
        name=name,
        description=text,
        operation_id=f"episode_{name}",
        openapi_extra=_described(kind),
    )(endpoint)


for _verb in _VERBS:
    _add_verb(_verb)


@plants.post(
    "/episodes", response_model=EpisodeAnswer, openapi_extra=_described(StartBody, number=False)
)
async def start(request: Request) -> Response:
    """Begin an episode on a plant; or resume its open one."""
    state, token = _caller(request)
    body = await _body(request, StartBody)
    return JSONResponse(await state.queue.do(lambda: state.service.start(token, body)))


@plants.post(
    "/heartbeat",
    response_model=StateAnswer,
    openapi_extra=_described(HeartbeatBody, number=False),
)
async def heartbeat(request: Request) -> Response:
    """Record a sign of life; the answer says whether the campaign has control."""
    state, token = _caller(request)
    body = await _body(request, HeartbeatBody)
    return JSONResponse(await state.queue.do(lambda: state.service.heartbeat(token, body.plant)))


_PLANT = {"name": "plant", "in": "query", "required": True, "schema": {"type": "string"}}


@plants.get(
    "/open-episode",
    response_model=EpisodeAnswer,
    openapi_extra=_described(None, number=False) | {"parameters": [_PLANT]},
)
async def open_episode(request: Request) -> Response:
    """The open episode of a plant, with all that was recorded of it."""
    state, token = _caller(request)
    plant = request.query_params.get("plant", "")
    return JSONResponse(await state.queue.do(lambda: state.service.open_on(token, plant)))


@plants.get("/episodes/{number}", response_model=EpisodeAnswer, openapi_extra=_described(None))
async def episode(request: Request) -> Response:
    """An episode, as it stands in the journal."""
    state, token = _caller(request)
    number = _number(request)
    return JSONResponse(await state.queue.do(lambda: state.service.look_up(token, number)))


# -- viewers ---------------------------------------------------------------------------------------

_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string"}}}}
}


@viewers.get("/v1/status", tags=["viewers"], response_model=CampaignStatus)
async def status(state: State, token: ViewerCaller) -> Any:
    """The state of the campaign, at most half a second old: a `CampaignStatus`."""
    now = await asyncio.to_thread(state.viewer.status)
    return JSONResponse(to_wire(now) | {"word": now.word, "problems": list(now.problems)})


@viewers.get("/v1/result", tags=["viewers"], response_model=dict[str, Any])
async def result(state: State, token: ViewerCaller) -> Any:
    """The value of the target policy by all that is finished: an `Evaluation`.

    Of several policies a `Comparison`.
    """
    return JSONResponse(to_wire(await asyncio.to_thread(state.viewer.result)))


@viewers.get("/v1/events", tags=["viewers"], response_model=list[Event])
async def events(
    state: State,
    token: ViewerCaller,
    after: Annotated[int, Query(ge=0, le=LAST)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    kind: Annotated[list[str] | None, Query(max_length=20)] = None,
    last: bool = False,
) -> Any:
    """What happened after an event, in order; only some kinds, or only the last ones."""
    kinds = None if kind is None else tuple(kind)
    events_after = await asyncio.to_thread(
        state.viewer.backend.events, after, most=limit, kinds=kinds, last=last
    )
    return JSONResponse([to_wire(event) for event in events_after])


@viewers.get("/v1/designs", tags=["viewers"], response_model=list[DesignRecord])
async def designs(state: State, token: ViewerCaller) -> Any:
    """Every behavior policy that was used, and the baseline (number -1)."""
    records = await asyncio.to_thread(state.viewer.backend.designs)
    return JSONResponse([to_wire(one) for one in records])


@viewers.get("/v1/episodes", tags=["viewers"], response_class=FileResponse, responses=_FILE)
async def episodes(state: State, token: ViewerCaller, plant: Name | None = None) -> Response:
    """All finished episodes, as a file that `Episodes.load` reads."""
    return await state.viewer.file("episodes", plant)


@viewers.get("/v1/mixture", tags=["viewers"], response_class=FileResponse, responses=_FILE)
async def mixture(state: State, token: ViewerCaller) -> Response:
    """All finished episodes, with the weights of several policies: NPZ."""
    return await state.viewer.file("mixture", None)


@viewers.get("/v1/report", tags=["viewers"], response_class=FileResponse, responses=_FILE)
async def report(state: State, token: ViewerCaller, title: Name = "The campaign") -> Response:
    """The report as one HTML page."""
    return await state.viewer.file("report", title)


@viewers.get("/v1/logs", tags=["viewers"], response_class=FileResponse, responses=_FILE)
async def logs(state: State, token: ViewerCaller) -> Response:
    """The steps of all finished episodes as logs, those of the incumbent included: NPZ."""
    return await state.viewer.file("logs", None)


@viewers.get("/v1/terms", tags=["viewers"], response_model=dict[str, Any])
async def terms(state: State, token: ViewerCaller) -> Any:
    """What the campaign was created with."""
    return JSONResponse(to_wire(state.viewer.backend.terms.to_json()))


class PlantEpisode(BaseModel):
    """An episode of a plant: its number, its state and how many steps are recorded."""

    number: int
    state: Literal["open", "finished", "lost", "dropped"]
    step: int


@viewers.get("/v1/plants/episodes", tags=["viewers"], response_model=list[PlantEpisode])
async def episodes_on(state: State, token: ViewerCaller, plant: Name) -> Any:
    """Number, state and recorded steps of all episodes of a plant, in order."""
    rows = await asyncio.to_thread(state.viewer.backend.episodes_on, plant)
    return JSONResponse([{"number": n, "state": name, "step": k} for n, name, k in rows])


@viewers.get("/v1/shadow", tags=["viewers"], response_model=ShadowReport)
async def shadow(state: State, token: ViewerCaller) -> Any:
    """What today's controller has earned, and what would have been done: a `ShadowReport`."""
    return JSONResponse(to_wire(await asyncio.to_thread(state.viewer.backend.shadow)))


@viewers.get("/metrics", tags=["viewers"], response_class=Response)
async def metrics(state: State, token: ViewerCaller) -> Response:
    """Numbers for Prometheus."""
    now = await asyncio.to_thread(state.viewer.status)
    content = state.metrics.text(now, state.counts(), dict(state.access.refused))
    return Response(content, media_type="text/plain; version=0.0.4; charset=utf-8")


@viewers.get("/healthz", tags=["viewers"])
async def health() -> dict[str, str]:
    """Whether the service answers; it needs no token and tells nothing else."""
    return {"status": "ok"}


@viewers.get("/readyz", tags=["viewers"], responses={503: {"description": "not ready"}})
async def ready(state: State) -> Response:
    """Whether decisions can be recorded now; it needs no token and tells nothing else."""
    why = await state.readiness()
    status = {"status": "ready"} if why is None else {"status": "not ready", "detail": why}
    return JSONResponse(status, 200 if why is None else 503)


# -- operators -------------------------------------------------------------------------------------


@viewers.get("/v1/verification", tags=["operators"], response_model=Verification)
async def verification(
    state: State, token: OperatorCaller, head: Annotated[str | None, Query(max_length=100)] = None
) -> Any:
    """Draw every decision again and check every event, which takes its time."""
    return JSONResponse(to_wire(await asyncio.to_thread(state.viewer.verify, head)))


@viewers.get("/v1/audit", tags=["operators"], response_model=list[AuditEntry])
async def audit(
    state: State,
    token: OperatorCaller,
    before: Annotated[int | None, Query(ge=1, le=LAST)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """What operators did and what was refused, the newest first; older ones by `before`."""
    entries = await asyncio.to_thread(lambda: state.audit.last(limit, before=before))
    return JSONResponse([to_wire(entry) for entry in entries])


@viewers.post("/v1/tell-silence", tags=["operators"], response_model=list[str])
async def tell_silence(state: State, token: OperatorCaller) -> Any:
    """Write an event for every plant that has fallen silent; their names."""
    return JSONResponse(await state.queue.do(state.backend.tell_silence))


class Done(BaseModel):
    """Whether a command has done something."""

    done: bool


@viewers.post("/v1/look", tags=["operators"], response_model=Done)
async def look(state: State, token: OperatorCaller) -> Any:
    """Look at the episodes of several policies, where that is due; the service does so itself."""
    return JSONResponse({"done": await asyncio.to_thread(state.viewer.backend.look)})


async def carry_out(
    state: AppState, token: Token, address: str, name: str, body: CommandBody
) -> bool:
    """Run an operator's command; it is in the audit log with it, also where it is refused.

    Args:
        state: of the service.
        token: of the operator.
        address: of the caller.
        name: of the command.
        body: what was sent.

    Returns:
        False: there was nothing to do.
    """
    command, number = command_of(name), body.episode
    if command.about == "campaign" and number is not None:
        raise InputError(f"episode: {command.name} is about the whole campaign, got {number}")
    entry = AuditEntry(
        who=token.name,
        role=token.role,
        address=address,
        verb=command.name if number is None else f"{command.name} {number}",
        reason=body.reason,
        outcome="done",
        request=f"{token.key}:{body.request}",
    )
    try:
        done = await state.queue.do(lambda: state.service.command(command.name, entry, number))
    except (CampaignError, InputError) as error:
        refused = replace(entry, outcome=f"refused: {error}"[:500], request=None)
        await state.queue.do(lambda: state.audit.add(refused))
        raise
    state.viewer.expire()
    return done


def _add(name: str) -> None:
    command = COMMANDS[name]

    async def execute(
        body: CommandBody, request: Request, state: State, token: OperatorCaller
    ) -> Any:
        done = await carry_out(state, token, address_of(request), name, body)
        return JSONResponse({"done": done})

    viewers.post(
        f"/v1/commands/{name}",
        tags=["operators"],
        response_model=Done,
        name=name,
        description=command.text,
        operation_id=f"command_{name}",
    )(execute)


for _name in COMMANDS:
    _add(_name)
