"""scopeval: know a policy's value for a fraction of the cost, and never more dangerously.

Public names load when they are first used, so that ``import scopeval`` is quick.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from scopeval import errors as errors
    from scopeval import exact as exact
    from scopeval import simulate as simulate
    from scopeval.behavior import BehaviorPolicy as BehaviorPolicy
    from scopeval.behavior import load as load
    from scopeval.collect import collect as collect
    from scopeval.data import Transitions as Transitions
    from scopeval.design import design as design
    from scopeval.episodes import EpisodeLog as EpisodeLog
    from scopeval.episodes import Episodes as Episodes
    from scopeval.evaluate import estimate as estimate
    from scopeval.evaluate import evaluate as evaluate
    from scopeval.evaluation import Evaluation as Evaluation
    from scopeval.gaussian import GaussianPolicy as GaussianPolicy
    from scopeval.parquet import write_logged as write_logged
    from scopeval.policies import CallablePolicy as CallablePolicy
    from scopeval.policies import TabularPolicy as TabularPolicy
    from scopeval.policies import TorchPolicy as TorchPolicy
    from scopeval.policies import as_policy as as_policy
    from scopeval.readers import read_logged as read_logged
    from scopeval.readers import stream_logged as stream_logged
    from scopeval.safety import Guard as Guard
    from scopeval.solver import Solution as Solution
    from scopeval.solver import Status as Status
    from scopeval.solver import solve as solve

__version__ = "0.1.0"

#: Public name -> the module that defines it; a module stands for itself.
_PUBLIC = {
    "BehaviorPolicy": "scopeval.behavior",
    "CallablePolicy": "scopeval.policies",
    "EpisodeLog": "scopeval.episodes",
    "Episodes": "scopeval.episodes",
    "Evaluation": "scopeval.evaluation",
    "GaussianPolicy": "scopeval.gaussian",
    "Guard": "scopeval.safety",
    "Solution": "scopeval.solver",
    "Status": "scopeval.solver",
    "TabularPolicy": "scopeval.policies",
    "TorchPolicy": "scopeval.policies",
    "Transitions": "scopeval.data",
    "as_policy": "scopeval.policies",
    "collect": "scopeval.collect",
    "design": "scopeval.design",
    "errors": "scopeval",
    "estimate": "scopeval.evaluate",
    "evaluate": "scopeval.evaluate",
    "exact": "scopeval",
    "load": "scopeval.behavior",
    "read_logged": "scopeval.readers",
    "simulate": "scopeval",
    "solve": "scopeval.solver",
    "stream_logged": "scopeval.readers",
    "write_logged": "scopeval.parquet",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _PUBLIC[name] == __name__:
        value: object = import_module(f"{__name__}.{name}")
    else:
        value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})


class _FrontDoor(ModuleType):
    """Keeps ``scopeval.design`` the function, although ``scopeval/design.py`` is a module too.

    Importing a submodule sets it as an attribute of its package, also when another module of ours
    imports it. For the verbs `collect`, `design` and `evaluate` that would hide the function of the
    same name; here it has no effect. Their modules are reached as usual by ``from scopeval.design
    import ...``; only ``import scopeval.design as m`` also names the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        own = f"{__name__}.{name}"
        submodule = isinstance(value, ModuleType) and value.__name__ == own
        if not (submodule and _PUBLIC.get(name) == own):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
