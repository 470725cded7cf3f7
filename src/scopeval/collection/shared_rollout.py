"""Episodes by number on workers: the same bits for any number of workers, whichever runs which.

A group is as many episodes as one process would run side by side, and workers run whole groups.
So every episode has the same neighbors as without workers, and its policies are asked for the same
rows together. The order in which groups end does not matter: they are sorted by number before
anything is computed of them. A group whose worker dies is run again, with the same numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pickle import loads
from typing import Any, NamedTuple

from scopeval.collection.environments import (
    SIDE_BY_SIDE,
    EnvironmentPool,
    Fleet,
    StepCost,
    Steppable,
    check_batch,
    name_of,
    open_environments,
)
from scopeval.collection.episodes import Episodes, LostEpisode
from scopeval.collection.rollout import INTERRUPTED, GuardStep, Rollout
from scopeval.errors import InputError, PlantError
from scopeval.policies.protocols import Behavior, ContinuousPolicy, LearnedBehavior, Policy
from scopeval.workers.attempt import Job, Queue, Work, pack
from scopeval.workers.crew import Crew, Workers, open_crew

__all__ = ["SharedEnvironments", "SharedRollout", "open_shared"]

_UNKNOWN = "its cost until then is not known"
_HINTS = {
    "env": "expected the name of a registered environment, or a function that makes one from plain "
    "numbers and text: what it needs, such as an open file, it should open itself",
    "cost": "expected a function of plain numbers, or a name in info",
    "target": "expected a policy of arrays, a torch module or a plain function",
    "baseline": "expected a policy of arrays, a torch module or a plain function",
    "behavior": "expected what `design` makes, or a policy of arrays",
}


@dataclass(frozen=True)
class Group:
    """Episodes that one worker runs side by side.

    Attributes:
        first: number of the first one.
        count: how many.
        by_target: the target itself runs.
        opening: they are the first of all, so that a missing cost is a mistake of the caller's.
        guard: the guard's question after every step, packed; None: there is none.
    """

    first: int
    count: int
    by_target: bool
    opening: bool
    guard: bytes | None


class GroupDone(NamedTuple):
    """What a worker answers: the episodes, and what the behavior policy has counted."""

    episodes: Episodes
    counts: dict[str, int]


@dataclass
class EpisodeWork:
    """Runs groups in a worker, in environments that it makes there.

    Attributes:
        token: of the environments, which later work in the same worker goes on with.
        env: name of a registered environment, or a function that makes one.
        batch: environments side by side.
        cost: where a step's cost is found.
        signals: names of exogenous signals in ``info``.
        rollout: what is run, without environments.
    """

    token: str
    env: Any
    batch: int
    cost: str | StepCost | None
    signals: tuple[str, ...]
    rollout: Rollout
    _pool: EnvironmentPool | None = None

    def take_over(self, before: Work | None) -> None:
        """Go on with the environments of earlier work."""
        if isinstance(before, EpisodeWork) and before.token == self.token:
            self._pool = before._pool

    def __call__(self, group: Group) -> GroupDone:
        if self._pool is None:
            self._pool = open_environments(self.env, self.batch, self.cost, self.signals)
        assert self._pool.reader is not None
        # what a worker has seen before must not matter
        self._pool.reader.begin(cost_seen=not group.opening)
        guard = None if group.guard is None else loads(group.guard)
        run = replace(self.rollout, environments=self._pool, guard_step=guard)
        before = _counts(run.behavior)
        episodes = run.run(group.first, group.count, by_target=group.by_target)
        after = _counts(run.behavior)
        return GroupDone(episodes, {name: n - before[name] for name, n in after.items()})


@dataclass
class SharedEnvironments:
    """Environments that workers make for themselves.

    Attributes:
        crew: the workers.
        env: name of a registered environment, or a function that makes one.
        batch: how many run side by side in each worker.
        cost: where a step's cost is found.
        signals: names of exogenous signals in ``info``.
        token: by which workers know them again.
        begun: episodes have been run.
    """

    crew: Crew
    env: Any
    batch: int
    cost: str | StepCost | None
    signals: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    begun: bool = False

    def __len__(self) -> int:
        return self.batch

    @property
    def plant(self) -> str | None:
        """Name of the environments."""
        return name_of(self.env)

    def here(self) -> EnvironmentPool:
        """The same environments in this process."""
        return open_environments(self.env, self.batch, self.cost, self.signals)

    def pack(self, rollout: Rollout) -> bytes:
        """The work function, for workers."""
        work = EpisodeWork(self.token, self.env, self.batch, self.cost, self.signals, rollout)
        try:
            return pack("env", work, "")
        except InputError:
            parts: dict[str, Any] = {"env": self.env, "cost": self.cost}
            parts |= {name: getattr(rollout, name) for name in ("target", "behavior", "baseline")}
            for name, part in parts.items():  # the message names the one that is to blame
                pack(name, part, _HINTS[name])
            raise


@contextmanager
def open_shared(
    env: Any,
    batch: int | None,
    cost: str | StepCost | None,
    size: Workers,
    signals: Sequence[str] = (),
) -> Iterator[SharedEnvironments]:
    """Workers that make environments; both end with the block.

    Args:
        env: name of a registered environment, or a function that makes one.
        batch: how many run side by side in each worker; default 8.
        cost: where a step's cost is found.
        size: how many workers of which kind.
        signals: names of exogenous signals in ``info``.
    """
    if batch is not None:
        check_batch(batch)
    made = isinstance(env, Steppable | Fleet) and not isinstance(env, type)
    if made or isinstance(env, EnvironmentPool) or not (isinstance(env, str) or callable(env)):
        raise InputError(
            f"env: got {type(env).__name__} with workers, which make environments of their own; "
            "expected the name of a registered one or a function that makes one, try "
            "env=lambda: MyEnv(...) (for a TabularMDP: lambda: TabularEnv(mdp))"
        )
    with open_crew(size.count, size.backend) as crew:
        yield SharedEnvironments(crew, env, batch or SIDE_BY_SIDE, cost, tuple(signals))


class SharedRollout:
    """`Rollout` on workers.

    Args:
        environments: where to run.
        target: pi; it offers the candidates.
        behavior: mu, which re-weighs them; None runs the target itself.
        horizon: T; an episode that is not over by then is cut there.
        seed: of the collection.
        guard_step: as in `Rollout`. Every worker has a copy from the beginning of the batch, so it
            must be a function of the costs that it is called with.
        baseline: as in `Rollout`.
    """

    def __init__(
        self,
        environments: SharedEnvironments,
        target: Policy | ContinuousPolicy,
        behavior: Behavior | Policy | None,
        *,
        horizon: int,
        seed: int,
        guard_step: GuardStep | None = None,
        baseline: Policy | None = None,
    ) -> None:
        self._environments, self._guard_step = environments, guard_step
        nowhere = EnvironmentPool(())
        self._rollout = Rollout(nowhere, target, behavior, horizon, seed, baseline=baseline)
        self._work = environments.pack(self._rollout)
        self._loaded = False

    def run(
        self,
        first: int,
        count: int,
        *,
        by_target: bool = False,
        progress: Callable[[int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> Episodes:
        """Run episodes number first .. first+count-1; see `Rollout.run`."""
        crew = self._environments.crew
        if not self._loaded:
            crew.load(self._work)
            self._loaded = True
        none = Episodes.none(self._rollout.horizon)
        done: dict[int, Episodes] = {}
        over = 0

        def keep(begin: int, answer: GroupDone) -> None:
            nonlocal over
            done[begin] = answer.episodes
            _add_counts(self._rollout.behavior, answer.counts)
            for _ in range(len(answer.episodes) + len(answer.episodes.lost)):
                over += 1
                if progress is not None:
                    progress(over, count)

        queue = _Groups(self._jobs(first, count, by_target), keep, stop=stop)
        queue.none = none
        interrupted = False
        try:
            crew.run(queue)
        except KeyboardInterrupt:
            interrupted = True
            for begin in queue.running:
                why = f"{INTERRUPTED}; {_UNKNOWN}"
                done[begin] = _lost(queue.jobs[begin].content, why, none)
        parts = [done[begin] for begin in sorted(done)]
        _check_observations(parts)
        if interrupted or not parts:
            parts.append(replace(none, interrupted=interrupted))
        return Episodes.concat(parts)

    def _jobs(self, first: int, count: int, by_target: bool) -> dict[int, Job]:
        """Groups by the number of their first episode; they begin where `Rollout` begins them."""
        guard = None
        if self._guard_step is not None:  # packed now: it may have learned from earlier batches
            hint = "expected a function of the costs so far"
            guard = pack("guard_step", self._guard_step, hint)
        jobs = {}
        for begin in range(first, first + count, len(self._environments)):
            size = min(len(self._environments), first + count - begin)
            group = Group(begin, size, by_target, not self._environments.begun, guard)
            self._environments.begun = True
            jobs[begin] = Job(group, f"episodes {begin} to {begin + size - 1}")
        return jobs


class _Groups(Queue[int]):
    """Groups of episodes."""

    none: Episodes  # no finished episode, of the horizon that is run

    def give_up(self, key: int, why: str) -> None:
        """An environment that kills its process loses its episodes, like one that raises."""
        lost = _lost(self.jobs[key].content, f"{why}; {_UNKNOWN}", self.none)
        self.keep(key, GroupDone(lost, {}))


def _lost(group: Group, why: str, none: Episodes) -> Episodes:
    """A group without an answer."""
    numbers = range(group.first, group.first + group.count)
    return replace(none, lost=tuple(LostEpisode(index, 0, why) for index in numbers))


def _counts(behavior: Behavior | Policy | None) -> dict[str, int]:
    return asdict(behavior.counts) if isinstance(behavior, LearnedBehavior) else {}


def _add_counts(behavior: Behavior | Policy | None, more: dict[str, int]) -> None:
    """The behavior policy here has decided nothing: its copies in the workers have."""
    if isinstance(behavior, LearnedBehavior):
        for name, n in more.items():
            setattr(behavior.counts, name, getattr(behavior.counts, name) + n)


def _check_observations(parts: Sequence[Episodes]) -> None:
    """Every worker knows only the observations of its own episodes."""
    shapes = {part.obs.shape[2:]: part.index[0] for part in reversed(parts) if len(part)}
    if len(shapes) > 1:
        (one, a), (other, b), *_ = shapes.items()
        raise PlantError(
            f"observations have shape {one} in episode {a} and {other} in episode {b}; expected "
            "one shape"
        )
