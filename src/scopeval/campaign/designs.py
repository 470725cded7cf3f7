"""What a campaign keeps of policies, logs and a history: designs, the baseline, fingerprints.

A design (`scopeval.design`) is kept as its file, a table as its numbers. Any other object cannot be
kept; it is recognized by name only, and must be passed again to `Campaign.open`.

Of the target its fingerprint is kept (`policies.fingerprint`), where observations are known to ask
it at. In any case it must give the probabilities that were recorded with the last decisions. A
history of exogenous inputs is fixed when the campaign is created: whether it helps must not decide
whether it is used.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from scopeval._archive import npy_of_bytes
from scopeval._files import versions
from scopeval.arrays import PROBABILITY_SLACK, Floats
from scopeval.behavior.file import load
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.store import (
    DESIGNS,
    STEPS,
    Store,
    decode,
    reading_row,
)
from scopeval.campaign.terms import Terms
from scopeval.campaign.transfer import packed, unpacked
from scopeval.collection.choice import Decider, Target
from scopeval.comparison.joint_design import DesignPolicy
from scopeval.comparison.policy_set import PolicySet
from scopeval.errors import DataError, InputError
from scopeval.evaluation.stage_design import Plan, StageDesigner
from scopeval.evaluation.stages import Stages
from scopeval.logs.transitions import Transitions
from scopeval.policies.adapters import TabularPolicy, as_behavior, as_policy
from scopeval.policies.fingerprint import Fingerprint, take_fingerprint
from scopeval.policies.protocols import (
    Behavior,
    ContinuousPolicy,
    Observations,
    Policy,
    Time,
    probs_of,
)
from scopeval.question.promise import Promise
from scopeval.question.question import Question

__all__ = [
    "BASELINE",
    "DesignRecord",
    "Designs",
    "NoTarget",
    "Policies",
    "check_several",
    "check_target",
    "first_plan",
    "policies_of_campaign",
    "remember_target",
]

#: Number of the baseline among the designs.
BASELINE = -1


@dataclass(frozen=True)
class Policies:
    """The policies of a campaign that a database may not hold.

    Attributes:
        target: pi; None: only to look.
        behavior: mu, where it is an object of one's own.
        baseline: what runs today; None: none, or a table that the database holds.
        name: "module:attribute" of the target, for the process that computes new designs.
        several: the policies that are compared, one of which is target and baseline; None: there is
            one target policy, or they are known from the database.
    """

    target: Target | None
    behavior: Any = None
    baseline: Target | None = None
    name: str | None = None
    several: PolicySet | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of several policies; (): there is one."""
        return () if self.several is None else self.several.names[: self.several.asked]

    @classmethod
    def of(
        cls, target: Any, behavior: Any = None, baseline: Any = None, name: str | None = None
    ) -> Policies:
        """Of what users give: one target policy, several by name, or None, only to look.

        Args:
            target: in any form that `as_policy` takes, or a mapping of names to such.
            behavior: mu.
            baseline: what runs today; of several policies the name of one, None: the first.
            name: of the target.
        """
        if isinstance(target, Question) and len(target.policies) > 1:
            baseline = target.names[target.baseline or 0] if baseline is None else baseline
            target = dict(zip(target.names, target.policies, strict=True))
        if isinstance(target, Mapping):
            several = PolicySet(target, baseline)
            if behavior is not None:
                raise InputError(
                    "behavior: got it with several policies, which run themselves; leave it out"
                )
            first = several.policies[several.baseline]
            return cls(first, None, first, name, several)
        today = None if baseline is None else as_policy(baseline)
        return cls(None if target is None else as_policy(target), behavior, today, name)


class NoTarget:
    """Stands for the target policy where a campaign is opened only to look."""

    def probs(self, obs: Observations, t: Time) -> Floats:
        """Nothing can be asked."""
        raise InputError(
            "target: the campaign was opened without its target policy, only to look; expected "
            "Campaign.open(where, target)"
        )


@dataclass(frozen=True)
class DesignRecord:
    """A behavior policy that was used in a campaign.

    Attributes:
        number: its place among them.
        kind: "target" (none: the target itself), "design", "table" or "own".
        fingerprint: hash of it; None: it cannot be recognized.
        made: seconds since 1970.
        about: versions, predictions, and why it was made.
    """

    number: int
    kind: str
    fingerprint: str | None
    made: float
    about: Mapping[str, Any]


class Designs:
    """Keeps behavior policies in the journal, and brings them back.

    Args:
        store: of the campaign.
        target: pi.
        own: a behavior policy that cannot be kept.
        baseline: what runs today, where it cannot be kept.
    """

    def __init__(
        self, store: Store, target: Target, own: object = None, baseline: Target | None = None
    ) -> None:
        self._store, self._target = store, target
        self._own = as_behavior(own)
        self._baseline = baseline
        self._loaded: dict[int, Behavior | Policy | None] = {}
        self._deciders: dict[int, Decider] = {}

    def keep(
        self, connection: sa.Connection, number: int, behavior: object, made: float, why: str
    ) -> str | None:
        """Write a behavior policy; None is the target itself. Returns its fingerprint."""
        policy: Any = behavior
        if not (number == BASELINE and isinstance(behavior, ContinuousPolicy)):
            policy = as_behavior(behavior, self._target)
        kind, content, fingerprint = _packed(policy)
        about: dict[str, Any] = {"why": why, "versions": versions("numpy", "torch", "numba")}
        if isinstance(policy, BehaviorPolicy):
            p = policy.predicted
            about |= {
                "method": policy.recipe.method.name,
                "epsilon": policy.recipe.epsilon,
                "predicted_variance": p.variance,
                "predicted_cost": p.cost,
                "falls_back": policy.falls_back,
                "cap": policy.largest_weight if np.isfinite(policy.largest_weight) else None,
            }
        connection.execute(
            DESIGNS.insert().values(
                number=number,
                kind=kind,
                fingerprint=fingerprint,
                content=content,
                made=made,
                about=json.dumps(about),
            )
        )
        self._loaded[number] = policy
        self._deciders.pop(number, None)
        return fingerprint

    def behavior(self, number: int) -> Behavior | Policy | None:
        """A behavior policy by number; None: the target itself."""
        if number not in self._loaded:
            self._loaded[number] = self._load(number)
        return self._loaded[number]

    def decider(self, number: int) -> Decider:
        """Decides steps by the target and a behavior policy."""
        if number not in self._deciders:
            if number == BASELINE:  # a policy of its own: what it draws has the ratio 1
                self._deciders[number] = Decider(self._today(), None)
            else:
                self._deciders[number] = Decider(self._target, self.behavior(number))
        return self._deciders[number]

    def _today(self) -> Target:
        """The baseline."""
        baseline: Any = self._baseline if self._baseline is not None else self.behavior(BASELINE)
        return baseline  # type: ignore[no-any-return]

    def keep_baseline(self, connection: sa.Connection, made: float) -> str | None:
        """Write what runs today; returns its fingerprint."""
        return self.keep(connection, BASELINE, self._baseline, made, "what runs today")

    def keep_several(
        self, connection: sa.Connection, policies: PolicySet, made: float
    ) -> dict[str, str | None]:
        """Write several policies and how they run, number 0; returns the fingerprints by number."""
        content = bytes_of_design(policies)
        rows: list[tuple[str, bytes | None, str]] = [
            ("mixture", content, "a mixture of episodes" + (" with a design" if content else ""))
        ]
        for name, policy in zip(policies.names[: policies.asked], policies.policies, strict=False):
            table = isinstance(policy, TabularPolicy)
            kind, kept, _ = _packed(policy) if table else ("own", None, None)  # type: ignore[arg-type]
            rows.append((kind, kept, f"policy {name!r}"))
        marks: dict[str, str | None] = {}
        for number, (kind, kept, why) in enumerate(rows):
            mark = None if kept is None else hashlib.sha256(kept).hexdigest()
            about = json.dumps({"why": why, "versions": versions("numpy")})
            values = {"number": number, "kind": kind, "fingerprint": mark, "content": kept}
            connection.execute(DESIGNS.insert().values(**values, made=made, about=about))
            marks[str(number)] = mark
        return marks

    def records(self, connection: sa.Connection) -> list[DesignRecord]:
        """All of them."""
        chosen = (
            DESIGNS.c.number,
            DESIGNS.c.kind,
            DESIGNS.c.fingerprint,
            DESIGNS.c.made,
            DESIGNS.c.about,
        )
        rows = connection.execute(sa.select(*chosen).order_by(DESIGNS.c.number))
        records = []
        for r in rows:
            with reading_row(self._store.name, "designs", r.number):
                about = json.loads(r.about)
            records.append(DesignRecord(r.number, r.kind, r.fingerprint, r.made, about))
        return records

    def _load(self, number: int) -> Behavior | Policy | None:
        with self._store.read() as connection:
            row = kept_row(self._store, connection, number)
        if row.kind == "target":
            return None
        if row.kind == "own" and number == BASELINE:
            if self._baseline is None:
                raise InputError(
                    "baseline: the campaign's is an object of your own, which no database can "
                    "hold; pass it again, Campaign.open(where, target, baseline=...)"
                )
            return self._baseline  # type: ignore[return-value]
        if row.kind == "own":
            if self._own is None:
                raise InputError(
                    f"behavior: the campaign's design {number} is an object of your own, which no "
                    "database can hold; pass it again, Campaign.open(where, target, behavior=...)"
                )
            return self._own
        if row.kind == "table":
            return table_of(self._store, row)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"design-{number}.scope")
            path.write_bytes(row.content)
            return load(path, self._target)


def _packed(policy: Behavior | Policy | None) -> tuple[str, bytes | None, str | None]:
    """Kind, content and fingerprint."""
    if policy is None:
        return "target", None, None
    content: bytes | None = None
    if isinstance(policy, TabularPolicy):
        buffer = io.BytesIO()
        table = policy.table(policy.horizon or 1)
        np.save(buffer, table if policy.horizon else table[0], allow_pickle=False)
        kind, content = "table", buffer.getvalue()
    elif isinstance(policy, BehaviorPolicy):
        kind = "design"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "design.scope")
            try:
                policy.save(path)
                content = path.read_bytes()
            except InputError:  # critics of one's own, which no file can hold
                kind = "own"
    else:
        kind = "own"
    return kind, content, None if content is None else hashlib.sha256(content).hexdigest()


def bytes_of_design(policies: PolicySet) -> bytes | None:
    """The design that runs beside several policies; None: there is none."""
    if len(policies) == policies.asked:
        return None
    design = policies.policies[-1]
    assert isinstance(design, DesignPolicy)
    return packed({"mu": design.mu, "known": design.known})


def first_plan(
    target: Target,
    behavior: Any,
    logs: Transitions | None,
    horizon: int,
    *,
    method: str,
    promise: Promise | None,
    gamma: float | None,
    refit: Stages | None,
    bounded: bool,
    seed: int,
) -> Plan:
    """What a campaign begins with: a behavior policy as given, or designed from the logs.

    Raises:
        InputError: it was designed for another horizon, or stages do not have what is asked for.
    """
    if isinstance(behavior, BehaviorPolicy) and behavior.recipe.horizon != horizon:
        raise InputError(
            f"horizon: got {horizon}, the behavior policy was designed for "
            f"{behavior.recipe.horizon}"
        )
    if refit is not None and bounded:
        raise InputError("return_bound: stages have none; expected refit=False with it")
    if refit is not None:  # the first stage is planned as that of `evaluate` is
        question, asked = Question(target, horizon, gamma), promise or Promise()
        designer = StageDesigner(question, asked, refit, as_behavior(behavior), logs, seed)
        return designer.next(None, asked.at_most)
    if behavior is None and logs is not None:
        from scopeval.behavior.designer import design

        behavior = design(
            logs,
            target,
            horizon=horizon,
            method=method,
            promise=None if promise is None else replace(promise, action="tell"),
            gamma=gamma,
            seed=seed,
        )
    return Plan(behavior, None, 0.0, "the first")


def with_kept_design(policies: PolicySet, content: bytes | None) -> PolicySet:
    """The policies, with the design that `bytes_of_design` has kept."""
    if content is None:
        return policies
    with unpacked("design 0", "a design of a comparison", content, ("mu", "known")) as columns:
        mu, fits = columns["mu"], columns["known"]
    plain = tuple(p for p in policies.policies if isinstance(p, Policy))
    return policies.with_design(DesignPolicy(mu, fits, plain))


def kept_row(store: Store, connection: sa.Connection, number: int) -> sa.Row[Any]:
    """A row of the table of designs, whose content is what it was."""
    row = connection.execute(sa.select(DESIGNS).where(DESIGNS.c.number == number)).one_or_none()
    if row is None:
        raise DataError(f"{store.name}: table designs, row {number}: missing")
    mark = None if row.content is None else hashlib.sha256(row.content).hexdigest()
    if mark != row.fingerprint or (mark is None and row.kind in ("table", "design")):
        raise DataError(f"design {number} of {store.name}: damaged, its fingerprint does not fit")
    return row


def table_of(store: Store, row: sa.Row[Any]) -> TabularPolicy:
    """The policy in a row of the kind "table"."""
    with reading_row(store.name, "designs", row.number):
        name = f"design {row.number} of {store.name}"
        return TabularPolicy(npy_of_bytes(name, row.content))


def kept_design(store: Store, connection: sa.Connection) -> bytes | None:
    """The design that runs beside several policies."""
    content: bytes | None = kept_row(store, connection, 0).content
    return content


def kept_policies(
    store: Store, connection: sa.Connection, names: Sequence[str]
) -> dict[str, TabularPolicy | None]:
    """Several policies by name; None: an object of one's own, which no database can hold."""
    rows = {name: kept_row(store, connection, k) for k, name in enumerate(names, 1)}
    return {n: table_of(store, row) if row.kind == "table" else None for n, row in rows.items()}


#: So many of the last decisions are compared.
COMPARED = 64


def remember_target(
    store: Store,
    connection: sa.Connection,
    target: Target,
    horizon: int,
    behavior: Any,
    logs: Transitions | None,
) -> None:
    """Keep the target's fingerprint, where one can be taken."""
    mark = behavior.fingerprint if isinstance(behavior, BehaviorPolicy) else None
    if mark is None and isinstance(target, TabularPolicy):
        states = np.arange(target.states)
        mark = take_fingerprint(target, horizon, lambda t: states)
    if mark is None and logs is not None:
        mark = take_fingerprint(target, horizon, lambda t: logs.obs)
    if mark is None:
        return
    arrays = {name: _array_text(array) for name, array in _arrays(mark).items()}
    store.set_fact(connection, "target", {"table": mark.table, **arrays})


def check_target(store: Store, connection: sa.Connection, target: Target, terms: Terms) -> None:
    """See that a policy is the campaign's target.

    Raises:
        InputError: it is another policy.
    """
    kept = store.fact(connection, "target")
    if kept is not None:
        with reading_row(store.name, "facts", "target"):
            obs, t, answers = (_array_of(name, kept[name]) for name in ("obs", "t", "answers"))
            mark = Fingerprint(obs, t, answers, kept["table"])
        mark.check(target, terms.horizon, store.name)
    if isinstance(target, ContinuousPolicy):
        return  # its probabilities are 1/K for any policy of K candidates
    chosen = STEPS.c.chooser != "baseline"  # its own probabilities
    for row, obs, action in _last_decisions(store, connection, chosen):
        _check_policy(store, "target", target, row, obs, action, row.target_probability)


def _last_decisions(
    store: Store, connection: sa.Connection, chosen: sa.ColumnElement[bool]
) -> Iterator[tuple[sa.Row[Any], NDArray[Any], int]]:
    """Rows of the last decisions, with observation and action."""
    query = sa.select(STEPS).where(chosen).order_by(STEPS.c.decided.desc()).limit(COMPARED)
    for row in connection.execute(query).all():
        with reading_row(store.name, "steps", (row.episode, row.step)):
            obs, action = decode(row.obs), int(decode(row.action))
            if obs.dtype.kind not in "iuf" or not isinstance(row.target_probability, float):
                raise ValueError(f"obs {row.obs:.60}, probability {row.target_probability!r:.60}")
        yield row, obs, action


def _check_policy(
    store: Store,
    name: str,
    policy: Policy,
    row: sa.Row[Any],
    obs: NDArray[Any],
    action: int,
    recorded: float,
) -> None:
    """See that a policy gives an action the probability that was recorded."""
    probs = probs_of(policy, obs[None], row.step)
    now = float(probs[0, action]) if action < probs.shape[1] else -1.0
    if not abs(now - recorded) <= PROBABILITY_SLACK:
        expected = "target" if name == "target" else "policies"
        raise InputError(
            f"{name}: is not the policy of {store.name}: its probability of action {action} at "
            f"{row.obs:.60}, t={row.step} is {now:.6g}, recorded is {recorded:.6g}; expected the "
            f"same {expected}"
        )


def check_several(store: Store, connection: sa.Connection, policies: PolicySet) -> None:
    """See that several policies are those of the campaign: they give what was recorded last.

    Raises:
        InputError: one is another policy.
    """
    if policies.continuous:
        return  # densities are recorded relative to each other
    kept = kept_policies(store, connection, policies.names[: policies.asked])
    for name, policy, before in zip(policies.names, policies.policies, kept.values(), strict=False):
        if before is None or not isinstance(policy, TabularPolicy):
            continue
        T = max(before.horizon or 1, policy.horizon or 1)
        tables = before.table(T), policy.table(T)
        if tables[0].shape != tables[1].shape or np.abs(tables[0] - tables[1]).max() > 1e-9:
            raise InputError(
                f"policies[{name!r}]: is not the policy of {store.name}, which holds another "
                "table; expected the same policies"
            )
    chosen = STEPS.c.target_probabilities.is_not(None)
    for row, obs, action in _last_decisions(store, connection, chosen):
        with reading_row(store.name, "steps", (row.episode, row.step)):
            each = json.loads(row.target_probabilities)
        for k, recorded in enumerate(each):
            policy, name = policies.policies[k], f"policies[{policies.names[k]!r}]"
            if recorded is not None and isinstance(policy, Policy):
                _check_policy(store, name, policy, row, obs, action, recorded)


def _arrays(mark: Fingerprint) -> dict[str, Any]:
    return {"obs": mark.obs, "t": mark.t, "answers": mark.answers}


def _array_text(array: Any) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return base64.b64encode(buffer.getvalue()).decode()


def _array_of(name: str, text: str) -> Any:
    return npy_of_bytes(name, base64.b64decode(text))


def policies_of_campaign(
    store: Store, connection: sa.Connection, terms: Terms, given: Policies
) -> Policies:
    """The policies of a campaign that is opened: those that were given, or that it holds.

    Raises:
        InputError: they are not those of the campaign.
    """
    names = terms.policies
    if not names:
        if given.several is not None:
            raise InputError(
                f"target: got {', '.join(given.several.names)}; the campaign of {store.name} has "
                "one target policy, expected that"
            )
        return given
    if given.several is None and given.target is not None:
        raise InputError(
            f"target: got one policy; the campaign of {store.name} compares {', '.join(names)}, "
            'expected all of them, such as {"today": old, "new": new}'
        )
    kept = kept_policies(store, connection, names)
    if given.several is None:
        if any(policy is None for policy in kept.values()):
            return given  # only to look
        several = PolicySet(kept, names[terms.reference])
    else:
        mine = dict(zip(given.several.names, given.several.policies, strict=True))
        if set(mine) != set(names):
            raise InputError(
                f"target: got {', '.join(mine)}; the campaign of {store.name} compares "
                f"{', '.join(names)}, expected these names"
            )
        several = PolicySet({name: mine[name] for name in names}, names[terms.reference])
    several = with_kept_design(several, kept_design(store, connection))
    first = several.policies[several.baseline]
    return Policies(first, None, first, given.name, several)
