"""The calls of every step take a short way: the route is known from the address.

The functions that answer are those of `plant_routes`, which also describes them. All that is left
out is the search for the route and FastAPI's layers around it, which take longer than the decision.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scopeval.serve import plant_routes
from scopeval.serve.answers import TOLD, answer_to

__all__ = ["ROUTE", "ShortWay"]

#: Where the name of the route stands in the scope of a call.
ROUTE = "scopeval.route"

_VERBS: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "act": plant_routes.act,
    "observe": plant_routes.observe,
    "advance": plant_routes.advance,
    "end": plant_routes.end,
}
_PLACE = re.compile(r"/v1/episodes/([0-9]{1,10})/(act|observe|advance|end)")


class ShortWay:
    """Answers the calls of running episodes, and leaves all others to the application.

    Args:
        app: the application.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        found = None
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PLACE.fullmatch(scope["path"])
        if found is None:
            await self._app(scope, receive, send)
            return
        number, verb = found.groups()
        scope[ROUTE] = f"/v1/episodes/{{number}}/{verb}"
        scope["app"], scope["path_params"] = self._app, {"number": number}
        try:
            answer = await _VERBS[verb](Request(scope, receive))
        except TOLD as error:
            answer = answer_to(error)
        await answer(scope, receive, send)
