"""`Campaign`: an evaluation that lasts, on several plants, through restarts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.episode import CampaignEpisode
from scopeval.campaign.opening import create_recorder, first_plan, open_recorder
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.refit import refit_now
from scopeval.campaign.refit_process import RefitProcess
from scopeval.campaign.registry import check_name
from scopeval.campaign.terms import Limit, Plan, Promise, Ramp, Terms
from scopeval.campaign.views import CampaignViews
from scopeval.data.transitions import Transitions
from scopeval.errors import CampaignError
from scopeval.evaluation.refitting import Refitting
from scopeval.policies.adapters import as_policy

__all__ = ["Campaign"]


class Campaign(CampaignViews):
    """An evaluation that lasts: every decision is on disk before it is carried out.

        campaign = Campaign.create("hall.campaign", policy, horizon=24, behavior=behavior)
        episode = campaign.start(plant="hall-3")
        while not episode.over:
            action = episode.act(obs)
            obs, reward, cost, ended = plant.run(action)
            episode.observe(reward, cost, obs, terminated=ended)
        episode.end()
        print(campaign.result())

    After any restart, `Campaign.open` goes on with the same file. Several processes may work on one
    campaign at the same time. Use `create` or `open`, not the constructor.

    Attributes:
        terms: what it was created with.
        journal: its database.
        refitting: the process that computes new designs.
    """

    def __init__(self, recorder: Recorder, target_name: str | None = None) -> None:
        super().__init__(recorder)
        self.refitting = RefitProcess(recorder.journal, recorder.target, target_name)
        if self.refitting.able:
            recorder.on_refit = self.refitting.start

    # -- opening -------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        where: str | os.PathLike[str],
        target: Any,
        *,
        horizon: int,
        behavior: Any = None,
        logs: Transitions | None = None,
        method: str = "scope-dr",
        epsilon: float | None = None,
        gamma: float | None = None,
        alpha: float = 0.05,
        seed: int = 0,
        guards: Sequence[Limit | Promise] | None = None,
        plan: Plan | None = None,
        ramp: Ramp | None = None,
        shadow: bool = False,
        silent_after: float = 3600.0,
        cost_bound: float | None = None,
        step_cost_bound: float | None = None,
        return_bound: tuple[float, float] | None = None,
        refit: bool | Refitting = False,
        target_name: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Campaign:
        """Begin a campaign.

        Args:
            where: a SQLite file that does not exist yet, or postgresql://user:password@host/name,
                an empty database.
            target: pi, in any form that `as_policy` takes.
            horizon: T, the most steps of an episode.
            behavior: mu: from `design`, a table, or any policy over the same actions. None: it is
                designed from `logs`; without logs the target itself runs.
            logs: past operation, for `design`.
            method: of that design; with a `Refitting` its own method counts.
            epsilon: the promise: mu costs at most 1 + epsilon times pi. Default: what a behavior
                from `design` promises, else 0.
            gamma: discount. Default: that of the behavior policy, else 1.
            alpha: probability with which an interval may miss.
            seed: of all random numbers.
            guards: what is watched. Default: the promise about the cost, which hands over to the
                target policy when it is refuted.
            plan: when no more episodes are started. Default: never.
            ramp: how the behavior policy's share grows. Default: it is 1 from the beginning.
            shadow: another controller, the incumbent, runs the plants: ``act(obs,
                incumbent=action)`` records what it does and what the behavior policy would do.
                Such episodes are no evidence about the target; `go_live` ends this.
            silent_after: seconds without a sign of life after which a plant is silent.
            cost_bound: the most that one episode can cost, if that is known. With it, or
            step_cost_bound: the most that one step can cost, certificate and guard are proofs for
                any number of episodes.
            return_bound: least and greatest possible return, if these are known.
            refit: run in stages, as `evaluate` does: design the behavior policy anew as episodes
                finish, from the logs and all of them; the settings are those of `evaluate`. The
                design is computed in a process of its own, and used by episodes that start
                afterwards; how much their values count is decided when they start.
            target_name: "module:attribute" of a target that is no table, for that process; else
                call `refit` when the status says that one is due.
            clock: seconds since 1970.

        Raises:
            InputError: an argument is wrong.
            DataError: there is a campaign already, or the place cannot be written.
        """
        policy = as_policy(target)
        settings = refit if isinstance(refit, Refitting) else None
        if refit and settings is None:
            settings = Refitting(method=method)
        first = first_plan(
            policy,
            behavior,
            logs,
            horizon,
            method=method,
            epsilon=epsilon,
            gamma=gamma,
            refit=settings,
            return_bound=return_bound,
            seed=seed,
        )
        own = first.behavior.recipe if isinstance(first.behavior, BehaviorPolicy) else None
        terms = Terms(
            horizon=horizon,
            epsilon=float(epsilon if epsilon is not None else own.epsilon if own else 0.0),
            gamma=float(gamma if gamma is not None else own.gamma if own else 1.0),
            alpha=alpha,
            seed=seed,
            guards=(Promise(),) if guards is None else tuple(guards),
            plan=plan or Plan(),
            ramp=ramp,
            shadow=shadow,
            silent_after=silent_after,
            cost_bound=cost_bound,
            step_cost_bound=step_cost_bound,
            return_bound=return_bound,
            refit=settings,
        )
        recorder = create_recorder(where, terms, policy, first, logs, clock)
        return cls(recorder, target_name)

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        target: Any = None,
        *,
        behavior: Any = None,
        check: bool = True,
        target_name: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Campaign:
        """Go on with a campaign, after any restart.

        Args:
            where: as for `create`.
            target: the same policy. None: only to look; nothing can be decided.
            behavior: needed where it is an object that no database can hold.
            check: see that the target is the same, by what is kept of it.
            target_name: as for `create`.
            clock: seconds since 1970.

        Raises:
            DataError: there is no campaign, or it is damaged.
            InputError: another target.
        """
        policy = None if target is None else as_policy(target)
        return cls(open_recorder(where, policy, behavior, check, clock), target_name)

    # -- episodes ------------------------------------------------------------------------------

    def start(
        self, plant: str = "plant", *, resume: bool = False, request: str | None = None
    ) -> CampaignEpisode:
        """Begin an episode on a plant.

        An episode of the plant that has not ended is ended if it is over, resumed with
        ``resume=True``, and else counted as lost with what it has cost.

        Args:
            plant: its name.
            resume: go on with the plant's open episode, where there is one.
            request: a word of the caller's; a call with the same word returns the same episode.

        Raises:
            CampaignError: the campaign is paused, stopped, or has reached its plan.
        """
        name = check_name(plant)
        with self._recorder.lock:
            if request is not None and (found := self._registry.by_request(request)) is not None:
                return found
            number = self._registry.open_on(name)
            if number is not None:
                episode = self.episode(number)
                if episode.over and episode.state == "open":
                    episode.end()
                elif resume:
                    self.heartbeat(name)
                    return episode
                elif episode.state == "open":
                    self._registry.check_starting()  # else it would be lost for nothing
                    episode.lose("the next one was started before it had ended")
            with self._recorder.undoing():
                return self._registry.begin(name, request)

    def resume_episode(self, plant: str = "plant") -> CampaignEpisode:
        """The plant's open episode, with all that was recorded of it.

        Where `episode.decided` is not None, a decision awaits its outcome: call `observe`.

        Raises:
            CampaignError: there is none.
        """
        number = self._registry.open_on(check_name(plant))
        if number is None:
            raise CampaignError(f"resume_episode: no episode is open on {plant!r}; expected start")
        return self.episode(number)

    def episode(self, number: int) -> CampaignEpisode:
        """An episode by number, as the journal has it.

        Raises:
            InputError: there is none.
        """
        return self._registry.episode(number)

    def drop(self, number: int, reason: str, *, who: str | None = None) -> None:
        """Take a finished episode out of the evidence, as after a broken sensor.

        It counts as lost from now on. Dropping by results biases the estimate: the reason stands in
        the journal and in the result.
        """
        self._registry.drop(number, reason, who)

    # -- what operators do -----------------------------------------------------------------------

    def pause(self, reason: str = "paused by an operator", *, who: str | None = None) -> None:
        """Start no more episodes until `resume`; running ones go on."""
        self._registry.command("pause", reason, who)

    def resume(self, reason: str = "resumed by an operator", *, who: str | None = None) -> None:
        """Start episodes again after a pause. A hand-over and a stop are for good."""
        self._registry.command("resume", reason, who)

    def hand_over(self, reason: str = "by an operator", *, who: str | None = None) -> None:
        """Let the target policy decide from the next step on, on all plants, for good."""
        self._registry.command("hand over", reason, who)

    def stop(self, reason: str = "stopped by an operator", *, who: str | None = None) -> None:
        """Start no more episodes, for good; the target policy finishes running ones."""
        self._registry.command("stop", reason, who)

    def go_live(self, reason: str = "by an operator", *, who: str | None = None) -> None:
        """End the shadow mode: episodes that start from now on are run by the campaign."""
        self._registry.command("live", reason, who)

    def tell_silence(self) -> list[str]:
        """Write an event for every plant that has fallen silent; returns their names.

        Call it now and then; every silence is told once. An episode of a plant that does not come
        back is given up by ``campaign.episode(number).lose(reason)``.
        """
        return self._registry.tell_silence()

    def heartbeat(self, plant: str) -> None:
        """Tell that a plant is alive, where nothing else does for long."""
        with self.journal.write() as connection:
            self._registry.seen(connection, check_name(plant))

    def refit(self) -> bool:
        """Compute the design that is due, in this process; False: none is due."""
        return refit_now(self._recorder)

    def start_refit(self) -> None:
        """Start the process that computes the design that is due, unless it runs.

        Raises:
            CampaignError: the target policy cannot be had in another process.
        """
        if not self.refitting.able:
            raise CampaignError(
                "refit: the target is no table, so that no other process can have it; expected "
                "target_name='module:attribute' where the campaign is opened"
            )
        self.refitting.start()

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """One transaction for all calls of this thread inside the block, which is faster.

        Nothing is on disk before the outermost block has ended: carry no action out before. A call
        that raises takes back only itself. If a block raises, nothing of it is recorded; fetch the
        episodes that were used in it again, with `episode`.
        """
        with self._recorder.lock, self._recorder.undoing(), self.journal.group():
            yield

    def close(self) -> None:
        """Give the connections to the database back."""
        self.refitting.leave()
        self.journal.close()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Campaign({self.journal.name!r}, horizon={self.terms.horizon})"
