"""What viewers and operators call."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from scopeval.errors import CampaignError, InputError
from scopeval.serve.access import address_of
from scopeval.serve.audit import AuditEntry
from scopeval.serve.metrics import campaign_lines
from scopeval.serve.models import CommandBody, EpisodeNumber, EventAnswer, Name
from scopeval.serve.state import OperatorCaller, Parts, ServiceParts, ViewerCaller
from scopeval.serve.tokens import Token
from scopeval.serve.wire import to_wire

__all__ = ["OperatorCommand", "router"]

router = APIRouter()


@router.get("/v1/status", tags=["viewers"], response_model=dict[str, Any])
async def status(parts: Parts, token: ViewerCaller) -> Any:
    """The state of the campaign, at most half a second old: a `CampaignStatus`."""
    return JSONResponse(to_wire(await asyncio.to_thread(parts.viewer.status)))


@router.get("/v1/result", tags=["viewers"], response_model=dict[str, Any])
async def result(parts: Parts, token: ViewerCaller) -> Any:
    """The value of the target policy by all that is finished: an `Evaluation`."""
    found = await asyncio.to_thread(parts.viewer.result)
    return JSONResponse(to_wire(found))


@router.get("/v1/events", tags=["viewers"], response_model=list[EventAnswer])
async def events(
    parts: Parts,
    token: ViewerCaller,
    after: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Any:
    """What happened after an event, in order."""
    found = await asyncio.to_thread(parts.viewer.events, after, limit)
    return JSONResponse([to_wire(event) for event in found])


@router.get("/v1/designs", tags=["viewers"], response_model=list[dict[str, Any]])
async def designs(parts: Parts, token: ViewerCaller) -> Any:
    """Every behavior policy that was used."""
    found = await asyncio.to_thread(parts.viewer.campaign.designs)
    return JSONResponse([to_wire(one) for one in found])


@router.get("/v1/episodes", tags=["viewers"], response_class=Response)
async def episodes(parts: Parts, token: ViewerCaller, plant: Name | None = None) -> Response:
    """All finished episodes, as a file that `Episodes.load` reads."""
    content = await asyncio.to_thread(parts.viewer.episodes, plant)
    return Response(content, media_type="application/octet-stream")


@router.get("/v1/report", tags=["viewers"], response_class=Response)
async def report(parts: Parts, token: ViewerCaller, title: Name = "The campaign") -> Response:
    """The report as one HTML page."""
    return Response(await asyncio.to_thread(parts.viewer.report, title), media_type="text/html")


@router.get("/v1/terms", tags=["viewers"], response_model=dict[str, Any])
async def terms(parts: Parts, token: ViewerCaller) -> Any:
    """What the campaign was created with."""
    return JSONResponse(to_wire(parts.viewer.campaign.terms.to_json()))


@router.get("/v1/plants/episodes", tags=["viewers"], response_model=list[dict[str, Any]])
async def episodes_on(parts: Parts, token: ViewerCaller, plant: Name) -> Any:
    """Number, state and recorded steps of all episodes of a plant, in order."""
    found = await asyncio.to_thread(parts.viewer.campaign.episodes_on, plant)
    return JSONResponse([{"number": n, "state": state, "step": k} for n, state, k in found])


@router.get("/v1/shadow", tags=["viewers"], response_model=dict[str, Any])
async def shadow(parts: Parts, token: ViewerCaller) -> Any:
    """What the behavior policy would have done in shadow episodes: a `ShadowReport`."""
    return JSONResponse(to_wire(await asyncio.to_thread(parts.viewer.campaign.shadow)))


@router.get("/v1/logs", tags=["viewers"], response_class=Response)
async def logs(parts: Parts, token: ViewerCaller) -> Response:
    """The steps of all finished episodes as logs, those of the incumbent included: NPZ."""
    content = await asyncio.to_thread(parts.viewer.logs)
    return Response(content, media_type="application/octet-stream")


@router.get("/v1/verification", tags=["operators"], response_model=dict[str, Any])
async def verification(parts: Parts, token: OperatorCaller) -> Any:
    """Draw every decision again and compare it with the journal, which takes its time."""
    return JSONResponse(to_wire(await asyncio.to_thread(parts.viewer.verify)))


@router.get("/metrics", tags=["viewers"], response_class=PlainTextResponse)
async def metrics(parts: Parts, token: ViewerCaller) -> PlainTextResponse:
    """Numbers for Prometheus."""
    found = await asyncio.to_thread(parts.viewer.status)
    counters = {
        "scopeval_decisions_total": ("Decisions answered.", parts.desk.decisions),
        "scopeval_transactions_total": ("Transactions written.", parts.writer.groups),
        "scopeval_written_calls_total": ("Calls in these transactions.", parts.writer.calls),
        "scopeval_refused_total": ("Calls with a wrong token or role.", parts.access.refused),
        "scopeval_limited_total": ("Calls above the rate.", parts.access.limited),
    }
    lines = campaign_lines(found, counters) + parts.metrics.lines()
    return PlainTextResponse(
        "\n".join(lines) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8"
    )


@router.get("/healthz", tags=["viewers"])
async def health() -> dict[str, str]:
    """Whether the service answers; it needs no token and tells nothing else."""
    return {"status": "ok"}


@router.get("/v1/audit", tags=["operators"], response_model=list[dict[str, Any]])
async def audit(parts: Parts, token: OperatorCaller) -> Any:
    """The last hundred actions of operators, the newest first."""
    found = await asyncio.to_thread(parts.audit.last)
    return JSONResponse([to_wire(entry) for entry in found])


@dataclass(frozen=True)
class OperatorCommand:
    """What an operator sent, and who it is."""

    parts: ServiceParts
    token: Token
    address: str
    body: CommandBody

    async def carry_out(self, verb: str, number: int | None = None) -> Response:
        """Run the verb; it is in the audit log with it, also where it is refused."""
        parts, token = self.parts, self.token
        entry = AuditEntry(
            who=token.name,
            role=token.role,
            address=self.address,
            verb=verb if number is None else f"{verb} {number}",
            reason=self.body.reason,
            outcome="done",
            request=f"{token.key}:{self.body.request}",
        )
        try:
            await parts.write(lambda: parts.desk.command(verb, entry, number))
        except (CampaignError, InputError) as error:
            refused = replace(entry, outcome=f"refused: {error}"[:500], request=None)
            await parts.write(lambda: parts.audit.add(refused))
            raise
        parts.viewer.expire()
        return Response(status_code=204)


async def _command(
    body: CommandBody, request: Request, parts: Parts, token: OperatorCaller
) -> OperatorCommand:
    return OperatorCommand(parts, token, address_of(request), body)


Command = Annotated[OperatorCommand, Depends(_command)]


@router.post("/v1/pause", tags=["operators"], status_code=204)
async def pause(command: Command) -> Response:
    """Start no more episodes until `resume`; running ones go on."""
    return await command.carry_out("pause")


@router.post("/v1/resume", tags=["operators"], status_code=204)
async def resume(command: Command) -> Response:
    """Start episodes again after a pause."""
    return await command.carry_out("resume")


@router.post("/v1/hand-over", tags=["operators"], status_code=204)
async def hand_over(command: Command) -> Response:
    """Let the target policy decide from the next step on, for good."""
    return await command.carry_out("hand over")


@router.post("/v1/stop", tags=["operators"], status_code=204)
async def stop(command: Command) -> Response:
    """Start no more episodes, for good; the target policy finishes running ones."""
    return await command.carry_out("stop")


@router.post("/v1/go-live", tags=["operators"], status_code=204)
async def go_live(command: Command) -> Response:
    """End the shadow mode: episodes that start from now on are run by the campaign."""
    return await command.carry_out("live")


@router.post("/v1/tell-silence", tags=["operators"], response_model=list[str])
async def tell_silence(parts: Parts, token: OperatorCaller) -> Any:
    """Write an event for every plant that has fallen silent; their names."""
    return JSONResponse(await parts.write(parts.campaign.tell_silence))


@router.post("/v1/refit", tags=["operators"], response_model=bool)
async def refit(command: Command) -> Any:
    """Start the process that computes the design that is due; false: none is due."""
    viewer = command.parts.viewer
    due = (await asyncio.to_thread(lambda: viewer.status(fresh=True))).refit_due
    if due:
        await command.carry_out("refit")
    return JSONResponse(due)


@router.post("/v1/episodes/{number}/drop", tags=["operators"], status_code=204)
async def drop(number: EpisodeNumber, command: Command) -> Response:
    """Take a finished episode out of the evidence; it counts as lost."""
    return await command.carry_out("drop", number)
