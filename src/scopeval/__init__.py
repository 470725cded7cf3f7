"""scopeval: a policy's value from fewer episodes, at no more than its own expected cost.

Public names load when they are first used, so that ``import scopeval`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from scopeval import errors as errors
    from scopeval import exact as exact
    from scopeval import simulate as simulate
    from scopeval.behavior.designer import design as design
    from scopeval.behavior.file import load as load
    from scopeval.behavior.frontier import Frontier as Frontier
    from scopeval.behavior.frontier import frontier as frontier
    from scopeval.behavior.methods import Method as Method
    from scopeval.behavior.policy import BehaviorPolicy as BehaviorPolicy
    from scopeval.campaign.campaign import Campaign as Campaign
    from scopeval.campaign.terms import Ramp as Ramp
    from scopeval.collection.collector import collect as collect
    from scopeval.collection.episode_log import EpisodeLog as EpisodeLog
    from scopeval.collection.episodes import Episodes as Episodes
    from scopeval.collection.plant import Plant as Plant
    from scopeval.comparison.compare import compare as compare
    from scopeval.comparison.recorded import ABTest as ABTest
    from scopeval.comparison.recorded import read_ab_test as read_ab_test
    from scopeval.comparison.result import Comparison as Comparison
    from scopeval.context.history import History as History
    from scopeval.evaluation.evaluator import evaluate as evaluate
    from scopeval.evaluation.recorded import estimate as estimate
    from scopeval.evaluation.result import Evaluation as Evaluation
    from scopeval.evaluation.stages import Stages as Stages
    from scopeval.exact.assessment import assess as assess
    from scopeval.logs.read import read_logs as read_logs
    from scopeval.logs.stream import sample_logs as sample_logs
    from scopeval.logs.stream import stream_logs as stream_logs
    from scopeval.logs.tables import write_logs as write_logs
    from scopeval.logs.transitions import Transitions as Transitions
    from scopeval.models.networks import Networks as Networks
    from scopeval.models.simulator import Simulator as Simulator
    from scopeval.models.table import Table as Table
    from scopeval.models.world import World as World
    from scopeval.policies.adapters import CallablePolicy as CallablePolicy
    from scopeval.policies.adapters import TabularPolicy as TabularPolicy
    from scopeval.policies.adapters import TorchPolicy as TorchPolicy
    from scopeval.policies.adapters import as_policy as as_policy
    from scopeval.policies.adapters import deterministic as deterministic
    from scopeval.policies.gaussian import GaussianPolicy as GaussianPolicy
    from scopeval.question.baseline import Baseline as Baseline
    from scopeval.question.inference import Check as Check
    from scopeval.question.inference import Inference as Inference
    from scopeval.question.promise import Bound as Bound
    from scopeval.question.promise import Limit as Limit
    from scopeval.question.promise import Promise as Promise
    from scopeval.question.question import Question as Question
    from scopeval.question.stop import Stop as Stop
    from scopeval.safety.guard import Guard as Guard
    from scopeval.serve.client import connect as connect
    from scopeval.solver.program import Solution as Solution
    from scopeval.solver.program import Status as Status
    from scopeval.solver.program import solve as solve
    from scopeval.workers.crew import Workers as Workers

__version__ = "0.2.0"

#: Public name -> the module that defines it; a module stands for itself.
_PUBLIC = {
    "ABTest": "scopeval.comparison.recorded",
    "Baseline": "scopeval.question.baseline",
    "BehaviorPolicy": "scopeval.behavior.policy",
    "Bound": "scopeval.question.promise",
    "CallablePolicy": "scopeval.policies.adapters",
    "Campaign": "scopeval.campaign.campaign",
    "Check": "scopeval.question.inference",
    "Comparison": "scopeval.comparison.result",
    "EpisodeLog": "scopeval.collection.episode_log",
    "Episodes": "scopeval.collection.episodes",
    "Evaluation": "scopeval.evaluation.result",
    "Frontier": "scopeval.behavior.frontier",
    "GaussianPolicy": "scopeval.policies.gaussian",
    "History": "scopeval.context.history",
    "Guard": "scopeval.safety.guard",
    "Inference": "scopeval.question.inference",
    "Limit": "scopeval.question.promise",
    "Method": "scopeval.behavior.methods",
    "Networks": "scopeval.models.networks",
    "Plant": "scopeval.collection.plant",
    "Promise": "scopeval.question.promise",
    "Question": "scopeval.question.question",
    "Ramp": "scopeval.campaign.terms",
    "Simulator": "scopeval.models.simulator",
    "Solution": "scopeval.solver",
    "Stages": "scopeval.evaluation.stages",
    "Status": "scopeval.solver",
    "Stop": "scopeval.question.stop",
    "Table": "scopeval.models.table",
    "TabularPolicy": "scopeval.policies.adapters",
    "TorchPolicy": "scopeval.policies.adapters",
    "Transitions": "scopeval.logs.transitions",
    "Workers": "scopeval.workers.crew",
    "World": "scopeval.models.world",
    "as_policy": "scopeval.policies.adapters",
    "assess": "scopeval.exact.assessment",
    "collect": "scopeval.collection.collector",
    "compare": "scopeval.comparison.compare",
    "connect": "scopeval.serve.client",
    "deterministic": "scopeval.policies.adapters",
    "design": "scopeval.behavior.designer",
    "errors": "scopeval",
    "estimate": "scopeval.evaluation.recorded",
    "evaluate": "scopeval.evaluation.evaluator",
    "exact": "scopeval",
    "frontier": "scopeval.behavior.frontier",
    "load": "scopeval.behavior.file",
    "read_ab_test": "scopeval.comparison.recorded",
    "read_logs": "scopeval.logs.read",
    "sample_logs": "scopeval.logs.stream",
    "simulate": "scopeval",
    "solve": "scopeval.solver",
    "stream_logs": "scopeval.logs.stream",
    "write_logs": "scopeval.logs.tables",
}

#: Package that a public name needs -> the extra that brings it, and what needs it.
_EXTRAS = {"sqlalchemy": ("campaign", "A campaign")}
_NOT_HERE = () if find_spec("sqlalchemy") else ("Campaign", "connect")

#: ``from scopeval import *`` takes what can be loaded here.
__all__ = ["__version__", *(name for name in _PUBLIC if name not in _NOT_HERE)]


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
