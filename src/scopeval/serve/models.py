"""Bodies of requests and answers. Everything is checked strictly; what is unknown is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ActBody",
    "ActionAnswer",
    "AdvanceAnswer",
    "CommandBody",
    "EndBody",
    "EpisodeAnswer",
    "EpisodeNumber",
    "EventAnswer",
    "HeartbeatBody",
    "LoseBody",
    "Name",
    "ObserveAnswer",
    "ObserveBody",
    "Problem",
    "StartBody",
]

_LARGEST = 2**63 - 1

Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Whole = Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
Number = Whole | Finite
#: A state number, or a row of numbers.
Reading = Number | Annotated[list[Number], Field(max_length=8_192)]
Step = Annotated[int, Field(strict=True, ge=0, le=10_000_000)]
EpisodeNumber = Annotated[int, Field(ge=0, le=2**31 - 1)]
#: Printable; control characters are refused.
Name = Annotated[
    str, Field(strict=True, min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
Reason = Annotated[
    str, Field(strict=True, min_length=1, max_length=500, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
#: Of the caller's choice; a repeated call with the same word has no further effect.
Request = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{8,64}$")]


class Body(BaseModel):
    """A body without fields that are not asked for."""

    model_config = ConfigDict(extra="forbid")


class StartBody(Body):
    """Begin an episode on a plant."""

    plant: Name
    request: Request
    resume: Annotated[bool, Field(strict=True)] = False


class ActBody(Body):
    """Ask for the action of a step; in shadow, tell what the plant's own controller does."""

    step: Step
    obs: Reading
    incumbent: Reading | None = None


class ObserveBody(Body):
    """Tell what the action of a step has led to."""

    step: Step
    reward: Finite
    cost: Finite
    next_obs: Reading
    terminated: Annotated[bool, Field(strict=True)] = False
    signals: Annotated[dict[Name, Finite], Field(max_length=64)] = Field(default_factory=dict)


class EndBody(Body):
    """End an episode, which has so many steps: a call that comes too early is refused."""

    steps: Step


class LoseBody(Body):
    """Give an episode up."""

    reason: Reason


class HeartbeatBody(Body):
    """Tell that a plant is alive."""

    plant: Name


class CommandBody(Body):
    """What an operator wants, and why."""

    reason: Reason
    request: Request


class EpisodeAnswer(BaseModel):
    """An episode, as it stands in the journal."""

    number: int
    plant: str
    state: Literal["open", "finished", "lost", "dropped"]
    step: int
    over: bool
    terminated: bool
    by_target: bool
    shadow: bool
    design: int
    share: float
    horizon: int
    decided: dict[str, Any] | None = Field(
        description="The decision whose outcome is awaited: obs and action."
    )


class ActionAnswer(BaseModel):
    """The action of a step. It is on disk."""

    step: int
    action: int | list[float]


class ObserveAnswer(BaseModel):
    """The outcome of a step was recorded."""

    step: int
    over: bool


class AdvanceAnswer(BaseModel):
    """The outcome was recorded, and the next action is on disk; None: the episode is over."""

    step: int
    over: bool
    action: int | list[float] | None


class EventAnswer(BaseModel):
    """Something that happened."""

    number: int
    time: float
    kind: str
    text: str
    plant: str | None
    episode: int | None
    who: str | None
    data: dict[str, Any]


class Problem(BaseModel):
    """Why a call was refused."""

    detail: str
