"""Bodies of requests and answers. Everything is checked strictly; what is unknown is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ActBody",
    "ActionAnswer",
    "AdvanceAnswer",
    "Body",
    "Code",
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
    "StateAnswer",
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
    take_over: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="Start although another controller was active lately."
    )
    controller: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{0,64}$")] = Field(
        default="", description="A word of the program that runs the plant; another after a start."
    )


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
    """What an operator wants, and why; for "lose" and "drop" with the number of an episode."""

    reason: Reason
    request: Request
    episode: EpisodeNumber | None = None


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
    by: str | None = Field(description="Who decided last: behavior, target, guard, baseline, ...")
    back: int | None = Field(
        description="The step from which on the baseline, or the plant's controller, has control."
    )
    halted: bool = Field(description="The campaign was stopped: there is no further step.")
    signals: list[str] = Field(description="Readings that every observation must have.")
    last_obs: Any = Field(description="What was observed last; null: nothing yet.")
    decided: dict[str, Any] | None = Field(
        description="The decision whose outcome is awaited: obs, action and by."
    )


class ActionAnswer(BaseModel):
    """The action of a step, which is on disk; null: control went back to the plant."""

    step: int
    action: int | list[float] | None
    by: str | None
    back: int | None


class ObserveAnswer(BaseModel):
    """The outcome of a step was recorded."""

    step: int
    over: bool


class AdvanceAnswer(BaseModel):
    """The outcome was recorded, and the next action is on disk; None: the episode is over."""

    step: int
    over: bool
    action: int | list[float] | None
    by: str | None
    back: int | None


class StateAnswer(BaseModel):
    """The state of the campaign, for a plant."""

    state: Literal["running", "paused", "handed over", "stopped"]
    control: Literal["campaign", "plant"]


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
    hash: str


#: What went wrong, for programs.
Code = Literal[
    "paused",
    "stopped",
    "plan_reached",
    "plant_busy",
    "no_episode",
    "no_result",
    "conflict",
    "wrong_step",
    "episode_open",
    "episode_lost",
    "episode_finished",
    "episode_dropped",
    "not_found",
    "invalid",
    "unauthorized",
    "forbidden",
    "other_plant",
    "too_many_episodes",
    "overloaded",
    "rate",
    "too_large",
    "too_slow",
    "wrong_host",
    "database",
    "service",
    "refused",
]


class Problem(BaseModel):
    """Why a call was refused: in words, and for programs."""

    detail: str
    code: Code
