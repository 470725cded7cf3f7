"""What plants call: begin an episode, ask for actions, tell outcomes, end it.

Every call may be repeated after a lost answer: an episode is begun once for every `request`, a step
is decided and observed once.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from scopeval.serve.models import (
    ActBody,
    ActionAnswer,
    AdvanceAnswer,
    EndBody,
    EpisodeAnswer,
    EpisodeNumber,
    HeartbeatBody,
    LoseBody,
    ObserveAnswer,
    ObserveBody,
    StartBody,
)
from scopeval.serve.state import Parts, PlantCaller

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["plants"])


@router.post("/episodes", response_model=EpisodeAnswer)
async def start(body: StartBody, parts: Parts, token: PlantCaller) -> Any:
    """Begin an episode on a plant; or resume its open one."""
    return await parts.write(lambda: parts.desk.start(token, body))


@router.get("/episodes/{number}", response_model=EpisodeAnswer)
async def episode(number: EpisodeNumber, parts: Parts, token: PlantCaller) -> Any:
    """An episode, as it stands in the journal."""
    return await parts.write(lambda: parts.desk.look_up(token, number))


@router.post("/episodes/{number}/act", response_model=ActionAnswer)
async def act(number: EpisodeNumber, body: ActBody, parts: Parts, token: PlantCaller) -> Any:
    """The action of a step; it is on disk before this answers."""
    return await parts.write(lambda: parts.desk.act(token, number, body))


@router.post("/episodes/{number}/observe", response_model=ObserveAnswer)
async def observe(
    number: EpisodeNumber, body: ObserveBody, parts: Parts, token: PlantCaller
) -> Any:
    """Record what the action of a step has led to."""
    return await parts.write(lambda: parts.desk.observe(token, number, body))


@router.post("/episodes/{number}/advance", response_model=AdvanceAnswer)
async def advance(
    number: EpisodeNumber, body: ObserveBody, parts: Parts, token: PlantCaller
) -> Any:
    """Record the outcome of a step and decide the next one, in one call."""
    return await parts.write(lambda: parts.desk.advance(token, number, body))


@router.post("/episodes/{number}/end", response_model=EpisodeAnswer)
async def end(number: EpisodeNumber, body: EndBody, parts: Parts, token: PlantCaller) -> Any:
    """End an episode; it is evidence from now on."""
    return await parts.write(lambda: parts.desk.end(token, number, body.steps))


@router.post("/episodes/{number}/lose", response_model=EpisodeAnswer)
async def lose(number: EpisodeNumber, body: LoseBody, parts: Parts, token: PlantCaller) -> Any:
    """Give an episode up; it is counted as lost, with what it has cost."""
    return await parts.write(lambda: parts.desk.lose(token, number, body.reason))


@router.post("/heartbeat", status_code=204)
async def heartbeat(body: HeartbeatBody, parts: Parts, token: PlantCaller) -> Response:
    """Tell that a plant is alive."""
    await parts.write(lambda: parts.desk.heartbeat(token, body.plant))
    return Response(status_code=204)
