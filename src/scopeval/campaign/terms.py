"""What a campaign is asked for, checked when it is created and kept with it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from scopeval._archive import MAX_BYTES
from scopeval.arrays import check_alpha, check_whole, is_number
from scopeval.behavior.settings import check_epsilon
from scopeval.errors import InputError
from scopeval.evaluation.stages import Stages, stage_sizes
from scopeval.question.stop import Stop
from scopeval.safety.cost_bound import CostBound, cost_bound_of

__all__ = [
    "COST",
    "GuardAction",
    "Limit",
    "Promise",
    "Ramp",
    "Terms",
    "Unconfirmed",
    "check_name",
    "guards_of",
]

#: What a guard does: tell; start no more episodes; let the baseline take the rest of this episode;
#: let the baseline (without one, the target policy) decide from now on, for good; give control back
#: at once and start no more episodes, for good.
GuardAction = Literal["tell", "pause", "fall back", "hand over", "stop"]

#: What happens while the design in use is not confirmed: nothing is run until an operator says so,
#: or the target policy runs.
Unconfirmed = Literal["refuse", "target"]

#: The name of the cost among the guarded signals.
COST = "cost"


#: Most steps of an episode: its record has nine columns of at most 8 bytes for every step of the
#: horizon (observation, action, reward, cost, two probabilities, control, baseline, mask).
LONGEST = MAX_BYTES // (9 * 8)

#: Longest name of a plant.
LONGEST_NAME = 200

ACTIONS = ", ".join(repr(action) for action in get_args(GuardAction))


def _check_guard(signal: str, action: str) -> None:
    if not isinstance(signal, str) or not signal:
        raise InputError(f"guards: got the signal {signal!r}, expected a name")
    if action not in get_args(GuardAction):
        raise InputError(f"guards: got the action {action!r}, expected one of {ACTIONS}")


@dataclass(frozen=True)
class Limit:
    """A guard with limits on the cost, or on another signal that `observe` is given.

    Attributes:
        signal: "cost", or the name of a signal.
        step: the most that one step may read.
        episode: the most that the steps of an episode may sum to.
        total: the most that all episodes together may sum to, running and lost ones included.
        action: what happens at the next decision after a limit was exceeded.
    """

    signal: str = COST
    step: float | None = None
    episode: float | None = None
    total: float | None = None
    action: GuardAction = "hand over"

    def __post_init__(self) -> None:
        _check_guard(self.signal, self.action)
        given = [x for x in (self.step, self.episode, self.total) if x is not None]
        if not given or not all(is_number(x) for x in given):
            raise InputError(
                f"guards: got a limit on {self.signal!r} with step={self.step!r}, "
                f"episode={self.episode!r}, total={self.total!r}; expected numbers, at least one"
            )

    def rule(self, epsilon: float, reference: str = "") -> str:
        """In words; `epsilon` is what the campaign guards, against the cost of `reference`."""
        parts = (("step", self.step), ("episode", self.episode), ("in total", self.total))
        said = [
            f"{limit:g} {name}" if name == "in total" else f"{limit:g} a {name}"
            for name, limit in parts
            if limit is not None
        ]
        return f"{self.signal} at most " + ", ".join(said).replace("a episode", "an episode")


@dataclass(frozen=True)
class Promise:
    """A guard that tests, anytime-valid: at most 1 + epsilon times the target policy's own.

    Attributes:
        signal: "cost", or the name of a signal.
        epsilon: None: that of the campaign, in stages at least 0 (`Terms.guarded_epsilon`).
        alpha: probability of a false alarm over all time.
        action: what happens when the promise is refuted.
    """

    signal: str = COST
    epsilon: float | None = None
    alpha: float = 0.05
    action: GuardAction = "hand over"

    def __post_init__(self) -> None:
        _check_guard(self.signal, self.action)
        if self.epsilon is not None and not (is_number(self.epsilon) and self.epsilon > -1):
            raise InputError(
                f"guards: epsilon is {self.epsilon!r}, expected a number above -1 or None"
            )
        check_alpha(self.alpha)

    def rule(self, epsilon: float, reference: str = "the target policy's") -> str:
        """In words; `epsilon` is what the campaign guards, against the cost of `reference`."""
        times = 1 + (epsilon if self.epsilon is None else self.epsilon)
        return f"expected {self.signal} at most {times:g} times {reference}"


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
        check_whole("ramp.episodes", self.episodes, 1)
        if not self.shares or not all(is_number(x) and 0 <= x <= 1 for x in self.shares):
            raise InputError(f"ramp.shares: got {self.shares!r}, expected numbers in [0, 1]")
        if list(self.shares) != sorted(self.shares):
            raise InputError(f"ramp.shares: got {self.shares!r}, expected increasing numbers")


@dataclass(frozen=True)
class Terms:
    """Everything that is fixed when a campaign is created.

    Attributes:
        horizon: T.
        epsilon: the promise: the behavior policy costs at most 1 + epsilon times the target.
        gamma: discount.
        alpha: probability with which an interval may miss.
        seed: of all random numbers.
        guards: what is watched, and what happens then.
        stop: when no more episodes are started.
        ramp: how the behavior policy's share grows; None: at once.
        shadow: the target policy runs, and it is recorded what the behavior policy would do.
        silent_after: seconds without a sign of life after which a plant is told as silent.
        lease: seconds after the last sign of life of a plant's controller in which another one
            cannot start on it, which would lose the running episode.
        baseline: whether a policy that runs today is the fallback.
        unconfirmed: what happens with a baseline while the design in use is not confirmed.
        cost_bound: the most that an episode can cost; None: unknown.
        step_cost_bound: the most that a step can cost; None: unknown. With a bound, certificate and
            promises about the cost are proofs.
        return_bound: least and greatest possible return; None: unknown.
        refit: how the behavior policy is designed anew from finished episodes; None: never.
        policies: names of several policies that are compared; (): there is one target policy.
        reference: number of the one of them that runs today: it plays the target policy's part in
            promises, and is the baseline.
        shares: of the policies in the first episodes, and of a design that runs beside them.
        context: names of the exogenous signals that the history is about, whose paths the database
            holds; every `observe` must be given them.
    """

    horizon: int
    epsilon: float = 0.0
    gamma: float = 1.0
    alpha: float = 0.05
    seed: int = 0
    guards: tuple[Limit | Promise, ...] = (Promise(),)
    stop: Stop = Stop()  # noqa: RUF009  (frozen)
    ramp: Ramp | None = None
    shadow: bool = False
    silent_after: float = 3600.0
    lease: float = 0.0
    baseline: bool = False
    unconfirmed: Unconfirmed = "target"
    cost_bound: float | None = None
    step_cost_bound: float | None = None
    return_bound: tuple[float, float] | None = None
    refit: Stages | None = None
    policies: tuple[str, ...] = ()
    reference: int = 0
    shares: tuple[float, ...] = ()
    context: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon, 1, " of steps")
        if self.horizon > LONGEST:
            raise InputError(
                f"horizon: got {self.horizon:,}, expected at most {LONGEST:,} steps: the numbers "
                f"of one episode would take more than {MAX_BYTES:,} bytes"
            )
        check_whole("seed", self.seed, 0)
        if not (is_number(self.epsilon) and self.epsilon > -1):
            check_epsilon(self.epsilon)
        if not (is_number(self.gamma) and 0 < self.gamma <= 1):
            raise InputError(f"gamma: got {self.gamma!r}, expected a number in (0, 1]")
        check_alpha(self.alpha)
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
        object.__setattr__(self, "guards", guards_of(self.guards))
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
            self.cost_bound,
            self.step_cost_bound,
            horizon=self.horizon,
            gamma=self.gamma,
            largest_weight=most,
        )

    @property
    def reference_words(self) -> str:
        """Whose cost the promises are about, in words."""
        return f"{self.policies[self.reference]}'s" if self.policies else "the target policy's"

    @property
    def guarded_epsilon(self) -> float:
        """What a `Promise` without an epsilon of its own watches.

        In stages never less than the target policy's own cost, as in `evaluate`: below it, handing
        over to the target policy would not lower the cost.
        """
        return self.epsilon if self.refit is None else max(self.epsilon, 0.0)

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
        """What `to_json` made."""
        kinds = {"Limit": Limit, "Promise": Promise}
        fields = dict(content)
        guards = []
        for one in fields["guards"]:
            named = dict(one)
            guards.append(kinds[named.pop("kind")](**named))
        fields["guards"] = tuple(guards)
        if "plan" in fields:  # as campaigns before this version wrote it
            plan = fields.pop("plan")
            fields["stop"] = {"cost": plan.pop("cost_budget"), **plan}
        fields["stop"] = Stop(**fields["stop"])
        fields["ramp"] = None if fields["ramp"] is None else Ramp(**fields["ramp"])
        refit = fields.get("refit")
        fields["refit"] = None if refit is None else Stages.from_json(refit)
        return cls(**fields)


def guards_of(given: Any) -> tuple[Limit | Promise, ...]:
    """A list of guards, checked."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(
            f"guards: got {given!r:.60}, expected a list, such as guards=[Limit(total=...)]"
        )
    guards = tuple(given)
    for guard in guards:
        if not isinstance(guard, Limit | Promise):
            raise InputError(
                f"guards: got {guard!r:.60}, expected Limit(...) or Promise(...) of "
                "scopeval.campaign.terms"
            )
    return guards


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
