"""A model of the environment that is known: designs need no logs."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from scopeval.behavior.methods import Method
from scopeval.question.baseline import Baseline
from scopeval.question.promise import Promise
from scopeval.question.question import Question

__all__ = ["KnownModel"]


@runtime_checkable
class KnownModel(Protocol):
    """What `design` and `frontier` ask instead of learning, such as a `TabularMDP`."""

    def design_for(
        self, asked: Question, method: Method, promise: Promise, baseline: Baseline | None
    ) -> Any:
        """The optimal behavior policy."""
        ...

    def frontier_for(self, asked: Question, method: Method, **settings: Any) -> Any:
        """The least variance at every cost."""
        ...
