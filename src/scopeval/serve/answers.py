"""Errors as answers: what was wrong, and never where in the program or on the disk."""

from __future__ import annotations

import logging

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from scopeval.errors import DataError, ScopevalError
from scopeval.serve.desk import problem_of
from scopeval.serve.group_writer import OverloadedError

__all__ = ["TOLD", "answer_to"]

log = logging.getLogger("scopeval.serve")

#: Errors that have an answer of their own; any other one is a fault of the service, a 500.
TOLD = (HTTPException, RequestValidationError, OverloadedError, ScopevalError)


def answer_to(error: Exception) -> Response:
    """The answer to a call that has raised one of `TOLD`."""
    if isinstance(error, RequestValidationError):
        return JSONResponse({"detail": _said(error)}, 422)
    if isinstance(error, OverloadedError):
        text = "too many calls wait for the database; try again"
        return JSONResponse({"detail": text}, 429, {"Retry-After": "1"})
    if isinstance(error, HTTPException):
        return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
    problem = problem_of(error)
    if problem is not None:
        return JSONResponse({"detail": problem[1]}, problem[0])
    kind = "the database" if isinstance(error, DataError) else "the service"
    log.error("%s", error)
    text = f"{kind} failed; nothing of this call was recorded, try it again"
    return JSONResponse({"detail": text}, 503, {"Retry-After": "1"})


def _said(error: RequestValidationError) -> str:
    """The first few problems of a body; the body itself is not repeated."""
    found = []
    for one in list(error.errors())[:3]:
        place = ".".join(str(part)[:60] for part in one.get("loc", ())[1:4])
        found.append(f"{place}: {one.get('msg', 'not valid')}" if place else str(one.get("msg")))
    return "; ".join(found)[:500]
