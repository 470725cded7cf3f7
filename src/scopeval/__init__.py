"""scopeval: a policy's value from fewer episodes, at no more than its own expected cost.

Public names load when they are first used, so that ``import scopeval`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from scopeval import errors as errors
    from scopeval import exact as exact
    from scopeval import simulate as simulate
    from scopeval.behavior.designer import design as design
    from scopeval.behavior.file import load as load
    from scopeval.behavior.frontier import Frontier as Frontier
    from scopeval.behavior.frontier import frontier as frontier
    from scopeval.behavior.policy import BehaviorPolicy as BehaviorPolicy
    from scopeval.campaign.campaign import Campaign as Campaign
    from scopeval.collection.collector import collect as collect
    from scopeval.collection.episode_log import EpisodeLog as EpisodeLog
    from scopeval.collection.episodes import Episodes as Episodes
    from scopeval.critics.model.world import World as World
    from scopeval.data.parquet import write_logged as write_logged
    from scopeval.data.readers import read_logged as read_logged
    from scopeval.data.sampled_rows import sample_logged as sample_logged
    from scopeval.data.streams import stream_logged as stream_logged
    from scopeval.data.transitions import Transitions as Transitions
    from scopeval.evaluation.evaluator import evaluate as evaluate
    from scopeval.evaluation.recorded import estimate as estimate
    from scopeval.evaluation.refitting import Refitting as Refitting
    from scopeval.evaluation.result import Evaluation as Evaluation
    from scopeval.policies.adapters import CallablePolicy as CallablePolicy
    from scopeval.policies.adapters import TabularPolicy as TabularPolicy
    from scopeval.policies.adapters import TorchPolicy as TorchPolicy
    from scopeval.policies.adapters import as_policy as as_policy
    from scopeval.policies.gaussian import GaussianPolicy as GaussianPolicy
    from scopeval.safety.guard import Guard as Guard
    from scopeval.serve.client import connect as connect
    from scopeval.solver.program import Solution as Solution
    from scopeval.solver.program import Status as Status
    from scopeval.solver.program import solve as solve

__version__ = "0.1.0"

#: Public name -> the module that defines it; a module stands for itself.
_PUBLIC = {
    "BehaviorPolicy": "scopeval.behavior.policy",
    "CallablePolicy": "scopeval.policies.adapters",
    "Campaign": "scopeval.campaign.campaign",
    "EpisodeLog": "scopeval.collection.episode_log",
    "Episodes": "scopeval.collection.episodes",
    "Evaluation": "scopeval.evaluation.result",
    "Frontier": "scopeval.behavior.frontier",
    "GaussianPolicy": "scopeval.policies.gaussian",
    "Guard": "scopeval.safety.guard",
    "Refitting": "scopeval.evaluation.refitting",
    "Solution": "scopeval.solver",
    "Status": "scopeval.solver",
    "TabularPolicy": "scopeval.policies.adapters",
    "TorchPolicy": "scopeval.policies.adapters",
    "Transitions": "scopeval.data.transitions",
    "World": "scopeval.critics.model.world",
    "as_policy": "scopeval.policies.adapters",
    "collect": "scopeval.collection.collector",
    "connect": "scopeval.serve.client",
    "design": "scopeval.behavior.designer",
    "errors": "scopeval",
    "estimate": "scopeval.evaluation.recorded",
    "evaluate": "scopeval.evaluation.evaluator",
    "exact": "scopeval",
    "frontier": "scopeval.behavior.frontier",
    "load": "scopeval.behavior.file",
    "read_logged": "scopeval.data.readers",
    "simulate": "scopeval",
    "solve": "scopeval.solver",
    "sample_logged": "scopeval.data.sampled_rows",
    "stream_logged": "scopeval.data.streams",
    "write_logged": "scopeval.data.parquet",
}

#: Package that a public name needs -> the extra that brings it, and what needs it.
_EXTRAS = {"sqlalchemy": ("serve", "A campaign")}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for (PEP 562)."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _PUBLIC[name] == __name__:
        value: object = import_module(f"{__name__}.{name}")
    else:
        try:
            value = getattr(import_module(_PUBLIC[name]), name)
        except ModuleNotFoundError as missing:
            if missing.name not in _EXTRAS:
                raise
            from scopeval.errors import MissingExtraError

            raise MissingExtraError(missing.name, *_EXTRAS[missing.name]) from missing
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
