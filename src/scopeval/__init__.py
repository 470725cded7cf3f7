"""scopeval: know a policy's value for a fraction of the cost, and never more dangerously.

Public names load when they are first used, so that ``import scopeval`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from scopeval import errors as errors
    from scopeval import exact as exact
    from scopeval import simulate as simulate
    from scopeval.policies import CallablePolicy as CallablePolicy
    from scopeval.policies import TabularPolicy as TabularPolicy
    from scopeval.policies import TorchPolicy as TorchPolicy
    from scopeval.policies import as_policy as as_policy
    from scopeval.solver import Solution as Solution
    from scopeval.solver import Status as Status
    from scopeval.solver import solve as solve

__version__ = "0.1.0"

#: Public name -> the module that defines it; a module's own name stands for the module itself.
_PUBLIC = {
    "CallablePolicy": "scopeval.policies",
    "Solution": "scopeval.solver",
    "Status": "scopeval.solver",
    "TabularPolicy": "scopeval.policies",
    "TorchPolicy": "scopeval.policies",
    "as_policy": "scopeval.policies",
    "errors": "scopeval.errors",
    "exact": "scopeval.exact",
    "simulate": "scopeval.simulate",
    "solve": "scopeval.solver",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_PUBLIC[name])
    value = module if _PUBLIC[name] == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
