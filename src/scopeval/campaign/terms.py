"""What a campaign is asked for, fixed when it is created; and what operators can command.

Commands are one table for Python, the shell, HTTP and the page.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from scopeval import __version__
from scopeval._archive import MAX_BYTES
from scopeval.arrays import check_whole, is_number
from scopeval.errors import DataError, InputError
from scopeval.evaluation.stages import Stages, stage_sizes
from scopeval.question.inference import Inference, IntervalMethod
from scopeval.question.promise import COST, Bound, Limit, Promise, promises_and_limits
from scopeval.question.stop import Stop
from scopeval.safety.cost_bound import CostBound, cost_bound_of

__all__ = [
    "COMMANDS",
    "Command",
    "Ramp",
    "Terms",
    "Unconfirmed",
    "asked_and_guards",
    "check_name",
    "command_of",
    "rule_of",
    "terms_digest",
]

#: What happens while the design in use is not confirmed: nothing is run until an operator says so,
#: or the target policy runs.
Unconfirmed = Literal["refuse", "target"]

#: Most steps of an episode: its record has nine columns of at most 8 bytes for every step of the
#: horizon (observation, action, reward, cost, two probabilities, control, baseline, mask).
LONGEST = MAX_BYTES // (9 * 8)

#: Longest name of a plant.
LONGEST_NAME = 200


@dataclass(frozen=True)
class Ramp:
    """The share of the behavior policy in every decision grows by stages.

    A decision is drawn from share * mu + (1 - share) * pi. In `compare` it is the part of a fair
    share of the episodes that new policies have; what runs today has the rest. The next stage
    begins with the episodes that start after `episodes` of this one have finished without an alarm:
    it is decided by past episodes only, so the estimate stays unbiased.

    Attributes:
        shares: of the stages, increasing; the last may be below 1.
        episodes: finished episodes that a stage needs.
    """

    shares: tuple[float, ...] = (0.1, 0.3, 1.0)
    episodes: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple(self.shares))
        object.__setattr__(self, "episodes", check_whole("ramp.episodes", self.episodes, 1))
        if not self.shares or not all(is_number(x) and 0 <= x <= 1 for x in self.shares):
            raise InputError(f"ramp.shares: got {self.shares!r}, expected numbers in [0, 1]")
        if list(self.shares) != sorted(self.shares):
            raise InputError(f"ramp.shares: got {self.shares!r}, expected increasing numbers")


@dataclass(frozen=True)
class Terms:
    """Everything that is fixed when a campaign is created.

    Attributes:
        horizon: T.
        promise: about the cost: what designs are made to keep and the certificate judges, with what
            is known about costs.
        gamma: discount.
        alpha: probability with which an interval may miss.
        seed: of all random numbers.
        guards: the promises and limits that are watched, and what happens then.
        guard_alpha: probability of a false alarm of each promise; None: alpha.
        stop: when no more episodes are started.
        ramp: how the behavior policy's share grows; None: at once.
        shadow: the target policy runs, and it is recorded what the behavior policy would do.
        silent_after: seconds without a sign of life after which a plant is told as silent.
        lease: seconds after the last sign of life of a plant's controller in which another one
            cannot start on it, which would lose the running episode.
        baseline: whether a policy that runs today is the fallback.
        unconfirmed: what happens with a baseline while the design in use is not confirmed.
        return_bound: least and greatest possible return; None: unknown.
        interval: of the value once a number of episodes that was fixed before is over
            (`CampaignState.anytime`); until then, and else, it is a sequence.
        refit: how the behavior policy is designed anew from finished episodes; None: never.
        policies: names of several policies that are compared; (): there is one target policy.
        reference: number of the one of them that runs today: it plays the target policy's part in
            promises, and is the baseline.
        shares: of the policies in the first episodes, and of a design that runs beside them.
        context: names of the exogenous signals that the history is about, whose paths the database
            holds; every `observe` must be given them.
    """

    horizon: int
    promise: Promise = Promise()  # noqa: RUF009  (frozen)
    gamma: float = 1.0
    alpha: float = 0.05
    seed: int = 0
    guards: tuple[Promise | Limit, ...] = (Promise(),)
    guard_alpha: float | None = None
    stop: Stop = Stop()  # noqa: RUF009  (frozen)
    ramp: Ramp | None = None
    shadow: bool = False
    silent_after: float = 3600.0
    lease: float = 0.0
    baseline: bool = False
    unconfirmed: Unconfirmed = "target"
    return_bound: tuple[float, float] | None = None
    interval: IntervalMethod = "sequence"  # as in journals that do not say it
    refit: Stages | None = None
    policies: tuple[str, ...] = ()
    reference: int = 0
    shares: tuple[float, ...] = ()
    context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        horizon = check_whole("horizon", self.horizon, 1, " of steps")
        object.__setattr__(self, "horizon", horizon)
        if self.horizon > LONGEST:
            raise InputError(
                f"horizon: got {self.horizon:,}, expected at most {LONGEST:,} steps: the numbers "
                f"of one episode would take more than {MAX_BYTES:,} bytes"
            )
        object.__setattr__(self, "seed", check_whole("seed", self.seed, 0))
        if not (is_number(self.gamma) and 0 < self.gamma <= 1):
            raise InputError(f"gamma: got {self.gamma!r}, expected a number in (0, 1]")
        Inference(self.alpha, interval=self.interval)  # checks them
        if not (is_number(self.silent_after) and self.silent_after > 0):
            raise InputError(
                f"silent_after: got {self.silent_after!r}, expected seconds, a number above 0"
            )
        if not (is_number(self.lease) and self.lease >= 0):
            raise InputError(f"lease: got {self.lease!r}, expected seconds, a number >= 0")
        if self.unconfirmed not in get_args(Unconfirmed):
            raise InputError(
                f"unconfirmed: got {self.unconfirmed!r:.60}, expected 'refuse' or 'target'"
            )
        object.__setattr__(self, "guards", tuple(self.guards))
        if not self.baseline and any(guard.action == "fall back" for guard in self.guards):
            raise InputError(
                "guards: the action 'fall back' needs a baseline; expected baseline=policy, or "
                "the action 'hand over'"
            )
        if self.return_bound is not None:
            object.__setattr__(self, "return_bound", tuple(self.return_bound))
        object.__setattr__(self, "policies", tuple(self.policies))
        object.__setattr__(self, "shares", tuple(self.shares))
        object.__setattr__(self, "context", tuple(self.context))
        if self.stop.decided and not self.policies:
            raise InputError(
                "stop: got decided=True with one policy; expected several, such as "
                'Campaign.create(where, {"today": old, "new": new}, ...)'
            )
        self.bound()
        if self.refit is not None:
            self.refit.to_json()  # raises where no database can hold it

    def refit_after(self, number: int) -> int | None:
        """Finished episodes after which refit `number` (from 0) is due; None: never."""
        if self.refit is None:
            return None
        done = 0
        for count, size in enumerate(stage_sizes(self.refit, self.stop.episodes)):
            done += size
            if count == number:
                return done if self.stop.episodes is None or done < self.stop.episodes else None
        return None

    def bound(self) -> CostBound | None:
        """What is known about the cost of episodes; None: nothing."""
        # no episode weighs more for the baseline, whose share only grows
        most = 1.0 / self.shares[self.reference] if self.policies else math.inf
        return cost_bound_of(
            self.promise.bound, horizon=self.horizon, gamma=self.gamma, largest_weight=most
        )

    @property
    def reference_words(self) -> str:
        """Whose cost the promises are about, in words."""
        return f"{self.policies[self.reference]}'s" if self.policies else "the target policy's"

    @property
    def watched(self) -> Promise | None:
        """The promise about the cost that is watched."""
        promises = (one for one in self.guards if isinstance(one, Promise) and one.signal == COST)
        return next(promises, None)

    @property
    def signals(self) -> tuple[str, ...]:
        """The guarded signals beside the cost, and exogenous ones: every `observe` needs them."""
        return tuple(sorted({guard.signal for guard in self.guards} - {COST} | set(self.context)))

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON."""
        content = asdict(replace(self, refit=None))
        content["refit"] = None if self.refit is None else self.refit.to_json()
        content["guards"] = [
            {"kind": type(guard).__name__, **asdict(guard)} for guard in self.guards
        ]
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Terms:
        """What `to_json` made, also in older versions."""
        fields = dict(content)
        unknown = fields.keys() - {"epsilon", "plan", "cost_bound", "step_cost_bound"}
        unknown -= {one.name for one in dataclasses.fields(cls)}
        if unknown:
            raise DataError(
                f"terms: {', '.join(sorted(unknown))} not known to scopeval {__version__}; a newer "
                "one wrote them, expected that or a later one"
            )
        if "epsilon" in fields:
            _from_epsilon(fields)
        fields["promise"] = _guard(fields["promise"])
        fields["guards"] = tuple(_guard(one) for one in fields["guards"])
        if "plan" in fields:  # as campaigns before this version wrote it
            plan = fields.pop("plan")
            fields["stop"] = {"cost": plan.pop("cost_budget"), **plan}
        fields["stop"] = Stop(**fields["stop"])
        fields["ramp"] = None if fields["ramp"] is None else Ramp(**fields["ramp"])
        refit = fields.get("refit")
        fields["refit"] = None if refit is None else Stages.from_json(refit)
        return cls(**fields)


def terms_digest(text: str) -> str:
    """A hash of the terms, as they stand in the table of facts."""
    return hashlib.sha256(text.encode()).hexdigest()


def _guard(content: Mapping[str, Any]) -> Any:
    """A promise or a limit of its JSON."""
    fields = dict(content)
    if fields.pop("kind", "Promise") == "Limit":
        return Limit(**fields)
    return Promise(**fields | {"bound": Bound(**fields["bound"])})


def _from_epsilon(fields: dict[str, Any]) -> None:
    """Terms had numbers instead of a promise, and guards other promises than designs."""
    epsilon = fields.pop("epsilon")
    least = epsilon if fields.get("refit") is None else max(epsilon, 0.0)
    bound = {"episode": fields.pop("cost_bound", None), "step": fields.pop("step_cost_bound", None)}
    guards, alphas = [], []
    for one in fields["guards"]:
        guard = dict(one)
        if guard["kind"] == "Promise":
            asked = guard.pop("epsilon")
            alphas.append(guard.pop("alpha"))
            guard |= {"at_most": 1.0 + (least if asked is None else asked), "bound": {}}
            if guard["signal"] == COST:
                guard["bound"] = bound
        guards.append(guard)
    fields["promise"] = {"at_most": 1.0 + epsilon, "bound": bound}
    fields["guards"] = guards
    fields["guard_alpha"] = min(alphas, default=None)


def asked_and_guards(
    given: Any, usual: Promise | None, *, baseline: bool, refit: bool
) -> tuple[Promise | None, tuple[Promise | Limit, ...]]:
    """The promise about the cost that is asked of designs, and what is watched.

    In stages never less than the target policy's own cost is watched, as in `evaluate`: below it,
    handing over to the target policy would not lower the cost.

    Args:
        given: as the user gave it; None: the usual.
        usual: with one target policy, whose own cost is judged, what the behavior policy was
            designed for; None: there are several policies, and nothing is promised.
        baseline: there is one.
        refit: in stages.

    Raises:
        InputError: a promise that no campaign can judge.
    """
    if given is None:
        given = [] if usual is None else [usual]
    promises, limits = promises_and_limits(given, limits=True, campaign=True)
    several = usual is None
    right = {None} if several else {"target"} if baseline else {None, "target"}
    for one in promises:
        if one.limit is not None or not (one.of is None or isinstance(one.of, str)):
            whose = "the baseline's cost" if several else "the target policy's own cost"
            raise InputError(
                f"promise: got limit={one.limit!r}, of={one.of!r:.40}; a campaign's promise is "
                f"about {whose}, expected Promise(at_most=...), and limits by Limit(...)"
            )
        if one.signal != COST and one.bound.stated:
            raise InputError(
                f"promise.bound: got it for {one.signal!r}; a campaign proves promises about the "
                "cost only, leave it out"
            )
        if one.of not in right:
            raise InputError(
                "promise.of: got 'target' with several policies, whose promise is about the "
                "baseline's cost; leave it out"
                if several
                else "promise: with one policy and a baseline, whose cost is not known then; "
                "expected Promise(of='target'), or both policies by name: "
                '{"today": baseline, "new": policy}'
            )
    asked = next((one for one in promises if one.signal == COST), usual)
    watched = tuple(
        replace(one, at_most=max(one.at_most, 1.0)) if refit and one.signal == COST else one
        for one in promises
    )
    return asked, (*watched, *limits)


def rule_of(guard: Promise | Limit, reference: str) -> str:
    """A guard in words.

    Args:
        guard: it.
        reference: whose cost a promise compares with.
    """
    if isinstance(guard, Promise):
        return f"expected {guard.signal} at most {guard.at_most:g} times {reference}"
    parts = (("step", guard.step), ("episode", guard.episode), ("in total", guard.total))
    said = [
        f"{limit:g} {name}" if name == "in total" else f"{limit:g} a {name}"
        for name, limit in parts
        if limit is not None
    ]
    return f"{guard.signal} at most " + ", ".join(said).replace("a episode", "an episode")


def check_name(plant: str) -> str:
    """The name of a plant: printable text without spaces at its ends."""
    if not isinstance(plant, str) or not plant.strip() or not plant.isprintable():
        raise InputError(f"plant: got {plant!r:.60}, expected a name of printable letters")
    if plant != plant.strip():
        raise InputError(
            f"plant: got {plant!r:.60}, expected no spaces at the ends: two plants would look alike"
        )
    if len(plant) > LONGEST_NAME:
        raise InputError(f"plant: got a name of {len(plant)} letters, expected <= {LONGEST_NAME}")
    return plant


# -- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """What an operator can command.

    Attributes:
        name: as in ``scopeval campaign NAME`` and POST /v1/commands/NAME.
        event: kind of the event that it writes.
        text: what it does.
        question: asked before it is carried out.
        final: it cannot be undone.
        about: "campaign", or "episode": it needs the number of one.
    """

    name: str
    event: str
    text: str
    question: str
    final: bool = False
    about: str = "campaign"

    @property
    def label(self) -> str:
        """Of a button."""
        return self.name.replace("-", " ").capitalize()


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "pause",
            "pause",
            "No more episodes are started until it is resumed. Running ones go on.",
            "Pause the campaign?",
        ),
        Command("resume", "resume", "Episodes are started again.", "Resume the campaign?"),
        Command(
            "go-live",
            "live",
            "Episodes that start from now on are run by the campaign.",
            "Let the campaign run the plants?",
        ),
        Command(
            "hand-over",
            "hand over",
            "From the next step on the baseline decides on all plants; without a baseline the "
            "target policy does.",
            "Hand over?",
            final=True,
        ),
        Command(
            "stop",
            "stop",
            "Control goes back to all plants at once, and no more episodes are started. Episodes "
            "that this cuts count as lost.",
            "Stop the campaign?",
            final=True,
        ),
        Command("refit", "refit", "The design that is due is computed now.", "Compute the design?"),
        Command(
            "lose",
            "lost",
            "The running episode is given up, and counts as lost with what it has cost.",
            "Give this episode up?",
            final=True,
            about="episode",
        ),
        Command(
            "drop",
            "dropped",
            "The finished episode is taken out of the evidence. Dropping by results biases the "
            "estimate.",
            "Drop this episode?",
            final=True,
            about="episode",
        ),
    )
}


def command_of(name: str) -> Command:
    """A command by its name; spaces and underscores count as hyphens.

    Raises:
        InputError: there is none.
    """
    command = COMMANDS.get(name.replace(" ", "-").replace("_", "-"))
    if command is None:
        raise InputError(f"command: got {name!r:.40}, expected one of {', '.join(COMMANDS)}")
    return command
