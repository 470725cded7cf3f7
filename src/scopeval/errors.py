"""What can go wrong, said so that the reader can act: what was got, what was expected, what to try.

Everything scopeval raises on purpose is a `ScopevalError`. Each kind also inherits the builtin
exception a caller would reach for first, so `except ValueError` keeps working.
"""

from __future__ import annotations

__all__ = [
    "CampaignError",
    "DataError",
    "InputError",
    "MissingExtraError",
    "NotFoundError",
    "PlantError",
    "ScopevalError",
    "ServiceError",
]


class ScopevalError(Exception):
    """Base of every exception that scopeval raises on purpose."""


class InputError(ScopevalError, ValueError):
    """An argument has a wrong shape, value or kind."""


class NotFoundError(InputError):
    """An argument names something that is not there."""


class DataError(ScopevalError, ValueError):
    """A file or table of logged data cannot be used; the message names file, column and row."""


class PlantError(ScopevalError, RuntimeError):
    """The environment could not be run at all, or no episode of it could be finished."""


class CampaignError(ScopevalError, RuntimeError):
    """The campaign is paused, stopped or finished, or an episode is over: no such call now.

    Args:
        text: what was got and what was expected.
        code: the same for programs, such as "paused" or "wrong_step".
    """

    def __init__(self, text: str, code: str = "conflict") -> None:
        super().__init__(text)
        self.code = code


class ServiceError(ScopevalError, ConnectionError):
    """A service could not be reached, or it failed; the call may be repeated."""


class MissingExtraError(ScopevalError, ImportError):
    """An optional dependency is not installed; the message names the pip command."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed; "
            f"try: pip install 'scopeval[{extra}]', in a clone of the repository "
            f"pip install '.[{extra}]'"
        )
