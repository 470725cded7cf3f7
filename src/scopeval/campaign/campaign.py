"""`Campaign`: an evaluation that lasts, on several plants, through restarts.

And a database of this machine as its backend; `serve.client` has the one over HTTP.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scopeval._files import versions
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.campaign.audit import shadow_report, verify_campaign
from scopeval.campaign.designs import (
    BASELINE,
    DesignRecord,
    Designs,
    NoTarget,
    Policies,
    check_several,
    check_target,
    first_plan,
    policies_of_campaign,
    remember_target,
)
from scopeval.campaign.episode import Backend, Episode
from scopeval.campaign.recorder import Recorder
from scopeval.campaign.refit import RefitProcess, confirmed, main, refit_now
from scopeval.campaign.result import LookThread, compare_now, evaluation_of, look_now, mixture_now
from scopeval.campaign.state import CampaignState, StagePlan
from scopeval.campaign.steps import read_episodes
from scopeval.campaign.store import (
    EPISODES,
    FORMAT,
    Event,
    Store,
    kept_digests,
    reading_row,
)
from scopeval.campaign.terms import (
    Ramp,
    Terms,
    Unconfirmed,
    asked_and_guards,
    check_name,
    terms_digest,
)
from scopeval.campaign.transfer import check_history, keep_history, keep_logs, migrate
from scopeval.campaign.view import (
    QUIET,
    CampaignStatus,
    ShadowReport,
    Verification,
    campaign_section,
    card_of,
    columns_of,
    status_of,
)
from scopeval.collection.episodes import Episodes
from scopeval.comparison.joint_design import affordable
from scopeval.comparison.mixture import MixtureEpisodes
from scopeval.comparison.policy_set import PolicySet, shares_of
from scopeval.comparison.result import Comparison
from scopeval.context.history import History, history_of
from scopeval.errors import CampaignError, DataError, InputError
from scopeval.estimation.moments import confidence
from scopeval.evaluation.loop import Running
from scopeval.evaluation.result import Evaluation, no_interval
from scopeval.evaluation.stage_design import Plan
from scopeval.evaluation.stages import Stages
from scopeval.evaluation.tracking import Listener, listener_of
from scopeval.logs.transitions import Transitions
from scopeval.notebook.frame import frame_of
from scopeval.notebook.sketch import OURS, axes_or_new, write_in
from scopeval.policies.adapters import as_policy
from scopeval.question.inference import Inference
from scopeval.question.promise import Limit, Promise
from scopeval.question.question import Question
from scopeval.question.stop import Stop, stop_of
from scopeval.report.evaluation_figures import Band, running, trace_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "Campaign",
    "LocalBackend",
    "create_local",
    "draw_band",
    "open_local",
    "with_shares",
]

log = logging.getLogger("scopeval.campaign")

_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False}

#: Seconds that `close` waits for a look to end.
LAST_WAIT = 5.0


class Campaign:
    """An evaluation that lasts: every decision is on disk before it is carried out.

        campaign = Campaign.create("hall.campaign", policy, horizon=24, behavior=behavior)
        episode = campaign.start(plant="hall-3", resume=True)
        while not episode.over:
            action = episode.decided.action if episode.decided else episode.act(obs)
            if action is None:
                break  # control went back to the plant's own controller
            obs, reward, cost, ended = plant.run(action)
            episode.observe(reward, cost, obs, terminated=ended)
        episode.end()
        print(campaign.result())

    After any restart, `Campaign.open` goes on with the same file; `scopeval.connect` gives the same
    object over HTTP. Several processes may work on one campaign at the same time. Use `create`,
    `open` or `connect`, not the constructor.

    Args:
        backend: what records: a database, or a service.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

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
        run: Mapping[str, float] | None = None,
        baseline: Any = None,
        unconfirmed: Unconfirmed = "refuse",
        method: str = "scope-dr",
        promise: Promise | Limit | Sequence[Promise | Limit] | None = None,
        gamma: float | None = None,
        inference: Inference | None = None,
        seed: int = 0,
        episodes: int | None = None,
        stop: Stop | None = None,
        ramp: Ramp | None = None,
        shadow: bool = False,
        silent_after: float = 3600.0,
        lease: float = 10.0,
        refit: bool | Stages = False,
        context: History | Transitions | None = None,
        target_name: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Campaign:
        """Begin a campaign.

        Args:
            where: a SQLite file that does not exist yet, or postgresql://user@host/name,
                an empty database.
            target: pi, in any form that `as_policy` takes. Or several policies by name, such as
                ``{"today": old, "new": new}``, to be compared as by `compare`: they run themselves,
                in a mixture of episodes, and the result is a `Comparison`.
            horizon: T, the most steps of an episode.
            behavior: mu: from `design`, a table, or any policy over the same actions. None: it is
                designed from `logs`; without logs the target itself runs.
            logs: past operation, for `design`; of several policies for control variates, and for a
                design where they would cost more than is promised.
            run: of several policies their shares of the episodes by name; None: equal ones.
            baseline: of several policies the name of the one that runs today, None: the first. Of
                one target policy: what runs today, in any form that `as_policy` takes. It is the
                fallback: after a limit with the action "fall back", where the policies have no
                answer, and after a
                hand-over it takes the rest of the episode; once a promise is refuted it runs the
                next ones. None: the target policy plays its part.
            unconfirmed: with a baseline, while the design in use is not confirmed: "refuse", the
                baseline runs and nothing is evaluated until an operator says so (`go_live`);
                "target", the target policy runs.
            method: of that design; with a `Stages` its own method counts.
            promise: what is promised, watched and certified: `Promise` about the cost, which
                designs are made to keep, or about another signal, and `Limit`. It is about the
                target policy's own cost, of several policies about the baseline's; with one policy
                and a baseline say ``of="target"``. Default: what a
                behavior from `design` promises, else that mu costs no more than pi; of several
                policies nothing. (): nothing is watched. With a ``bound`` certificate and guard
                are proofs for any number of episodes.
            gamma: discount. Default: that of the behavior policy, else 1.
            inference: how the result follows from the episodes: ``alpha``, the probability with
                which an interval may miss, and of a false alarm of a promise; ``return_bound``, the
                least and greatest possible return; and ``interval``. That one is reported at the
                end of a plan of so many episodes (``episodes=``) that nothing has cut short or
                changed. Until then, with another plan, with refits and of several policies the
                interval is anytime-valid.
            seed: of all random numbers.
            episodes: how many to start. Default: no end.
            stop: other ends.
            ramp: how the behavior policy's share grows, or those of new policies. Default: it is 1
                from the beginning.
            shadow: another controller, the incumbent, runs the plants: ``act(obs,
                incumbent=action)`` records what it does and what the behavior policy would do; with
                a baseline that one acts. Such episodes are no evidence about the target; `go_live`
                ends this.
            silent_after: seconds without a sign of life after which a plant is silent.
            lease: seconds after the last sign of life of a plant's program in which another one
                can neither resume nor lose its running episode, unless the program is gone; later
                it can, and the calls of the first one are refused. 0: both can.
            refit: run in stages, as `evaluate` does: design the behavior policy anew as episodes
                finish, from the logs and all of them; the settings are those of `evaluate`. The
                design is computed in a process of its own, and used by episodes that start
                afterwards; how much their values count is decided when they start.
            context: a `History` of what no action changes, such as demand, prices or weather, as in
                `evaluate`: its signals must be given to every ``observe(signals=...)``, or it names
                columns of the observation. None: of the logs, where they name such columns.
                Results are adjusted by earlier episodes. `status`, and a stop at a precision, are
                about the values as they are.
            target_name: "module:attribute" of a target that is no table, for that process; else
                call `refit` when the status says that one is due.
            clock: seconds since 1970.

        Raises:
            InputError: an argument is wrong.
            DataError: there is a campaign already, or the place cannot be written.
        """
        policies = Policies.of(target, behavior, baseline, target_name)
        several = policies.several is not None
        _check_for_several(several, run, refit, unconfirmed)
        inference = inference or Inference()
        _check_inference(inference)
        recipe = behavior.recipe if isinstance(behavior, BehaviorPolicy) else None
        if gamma is None and isinstance(target, Question):
            gamma = target.gamma
        stages = refit if isinstance(refit, Stages) else Stages(method=method) if refit else None
        if promise is None:
            _check_designed_for(behavior)
        usual = None if several else Promise(1.0 + recipe.epsilon if recipe else 1.0, of="target")
        asked, guards = asked_and_guards(
            promise, usual, baseline=policies.baseline is not None, refit=stages is not None
        )
        # a history of signals asks for them at every step, and a bound has no control variate
        bounded = inference.return_bound is not None
        quiet = not bounded and logs is not None and logs.signals is None
        history = check_history(
            history_of(context, logs if quiet else None, horizon), bounded=bounded
        )
        shares: tuple[float, ...] = ()
        if several:
            assert policies.several is not None
            if logs is not None:
                policies.several.check_logs(logs)
                policies.several.check_answers_in(logs)
            policies, shares = with_shares(
                policies, run, ramp, asked, logs, horizon=horizon, gamma=gamma or 1.0
            )
        assert policies.target is not None
        first = first_plan(
            policies.target,
            behavior,
            None if shares else logs,
            horizon,
            method=method,
            promise=asked,
            gamma=gamma,
            refit=stages,
            bounded=bounded,
            seed=seed,
        )
        if recipe is None and isinstance(first.behavior, BehaviorPolicy):
            recipe = first.behavior.recipe
        terms = Terms(
            horizon=horizon,
            promise=asked or Promise(),
            gamma=float(gamma if gamma is not None else recipe.gamma if recipe else 1.0),
            alpha=inference.alpha,
            seed=seed,
            guards=guards,
            stop=stop_of(episodes, stop, needed=False),
            ramp=ramp,
            shadow=shadow,
            silent_after=silent_after,
            lease=float(lease),
            baseline=policies.baseline is not None,
            unconfirmed="target" if several else unconfirmed,
            return_bound=inference.return_bound,
            interval="sequence" if several else inference.interval,
            refit=stages,
            policies=policies.names,
            reference=policies.several.baseline if policies.several else 0,
            shares=shares,
            context=() if history is None else history.signals,
        )
        made = cls(create_local(where, terms, policies, first, logs, clock, history))
        waits = made.status().unconfirmed
        if waits is not None:
            log.warning("%s: %s", made.backend.name, waits)
        return made

    @classmethod
    def open(
        cls,
        where: str | os.PathLike[str],
        target: Any = None,
        *,
        behavior: Any = None,
        baseline: Any = None,
        check: bool = True,
        target_name: str | None = None,
        patience: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Campaign:
        """Go on with a campaign, after any restart.

        A journal of an older format is brought to today's; then older versions cannot open it.

        Args:
            where: as for `create`.
            target: the same policy, or the same policies by name. None: only to look, unless the
                database holds them: several that are tables.
            behavior: needed where it is an object that no database can hold, likewise
            baseline: what runs today.
            check: see that the target is the same, by what is kept of it.
            target_name: as for `create`.
            patience: seconds that a call waits while another process writes; then it is refused
                and can be repeated. Default: 5.
            clock: seconds since 1970.

        Raises:
            DataError: there is no campaign, or it is damaged.
            InputError: another target.
        """
        policies = Policies.of(target, behavior, baseline, target_name)
        return cls(open_local(where, policies, check=check, clock=clock, patience=patience))

    # -- episodes ------------------------------------------------------------------------------

    def start(
        self,
        plant: str = "plant",
        *,
        resume: bool = False,
        request: str | None = None,
        take_over: bool = False,
    ) -> Episode:
        """Begin an episode on a plant.

        An episode of the plant that has not ended is ended if it is over, resumed with
        ``resume=True``, and else counted as lost with what it has cost.

        Args:
            plant: its name.
            resume: go on with the plant's open episode, where there is one.
            request: an idempotency key: a repeated call with the same key returns the same episode.
            take_over: start, or resume, although another program was active on the plant lately.
                Whoever has started or resumed last runs it; the calls of the former are refused.

        Raises:
            CampaignError: the campaign is paused, stopped, or has reached its plan; or another
                controller runs the plant.
        """
        return self.backend.start(plant, resume=resume, request=request, take_over=take_over)

    def resume_episode(self, plant: str = "plant") -> Episode:
        """The plant's open episode, with all that was recorded of it.

        Where `episode.decided` is not None, a decision awaits its outcome: call `observe`.

        Raises:
            CampaignError: there is none, or another program runs the plant.
        """
        episode = self.backend.resume_episode(plant)
        return episode if episode.over else self.start(plant, resume=True)

    def episode(self, number: int) -> Episode:
        """An episode by number, as the journal has it.

        Raises:
            NotFoundError: there is none.
        """
        return self.backend.episode(number)

    def heartbeat(self, plant: str) -> str:
        """Record a sign of life between episodes or steps.

        Returns:
            The state of the campaign: "running", "paused", "handed over" or "stopped". After a stop
            the plant's own controller has control.
        """
        return self.backend.heartbeat(plant)

    # -- what operators command ------------------------------------------------------------------

    def pause(self, reason: str = "paused by an operator", *, who: str | None = None) -> None:
        """Start no more episodes until `resume`; running ones go on."""
        self.backend.command("pause", reason, who=who)

    def resume(self, reason: str = "resumed by an operator", *, who: str | None = None) -> None:
        """Start episodes again after a pause. A hand-over and a stop are permanent."""
        self.backend.command("resume", reason, who=who)

    def hand_over(self, reason: str = "by an operator", *, who: str | None = None) -> None:
        """Let the baseline (without one, the target policy) decide from the next step on."""
        self.backend.command("hand-over", reason, who=who)

    def stop(self, reason: str = "stopped by an operator", *, who: str | None = None) -> None:
        """Give control back to all plants at once, and start no more episodes.

        The next `act` returns None. Episodes that this cuts count as lost, and the result says so.
        """
        self.backend.command("stop", reason, who=who)

    def go_live(self, reason: str = "by an operator", *, who: str | None = None) -> None:
        """Let the campaign run the episodes that start from now on, also by a design that is not
        confirmed."""  # noqa: D205, D209
        self.backend.command("go-live", reason, who=who)

    def lose(self, number: int, reason: str, *, who: str | None = None) -> None:
        """Give up the running episode of a plant that does not come back; it counts as lost."""
        self.backend.command("lose", reason, who=who, number=number)

    def drop(self, number: int, reason: str, *, who: str | None = None) -> None:
        """Take a finished episode out of the evidence, as after a broken sensor.

        It counts as lost from now on. Dropping by results biases the estimate: the reason stands in
        the journal and in the result.
        """
        self.backend.command("drop", reason, who=who, number=number)

    def start_refit(self, reason: str = "by an operator", *, who: str | None = None) -> bool:
        """Start the process that computes the design that is due; False: none is due.

        Raises:
            CampaignError: the target policy cannot be loaded in another process.
        """
        return self.backend.command("refit", reason, who=who)

    def refit(self, reason: str = "by an operator") -> bool:
        """Compute the design that is due: here, or over HTTP in a process of the service, which is
        not waited for. False: none is due."""  # noqa: D205, D209
        if isinstance(self.backend, LocalBackend):
            return self.backend.refit_now()
        return self.start_refit(reason)

    def tell_silence(self) -> list[str]:
        """Write an event for every plant that has fallen silent; returns their names.

        Call it now and then (a service does); each silence is reported once.
        """
        return self.backend.tell_silence()

    # -- looking -------------------------------------------------------------------------------

    @property
    def terms(self) -> Terms:
        """What it was created with."""
        return self.backend.terms

    def status(self) -> CampaignStatus:
        """The state now, for all processes that work on the campaign."""
        return self.backend.status()

    @property
    def running(self) -> int:
        """Number of episodes that have started and not ended."""
        return self.status().open

    def events(self, after: int = 0, *, most: int | None = None) -> list[Event]:
        """What happened after an event, in order; at most so many."""
        return self.backend.events(after, most=most)

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used, and the baseline."""
        return self.backend.designs()

    def episodes(self, *, plant: str | None = None) -> Episodes:
        """All finished episodes, in the order of their numbers, for an analysis of one's own."""
        return self.backend.episodes(plant)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and recorded steps of all episodes of a plant, in order."""
        return self.backend.episodes_on(plant)

    def verify(self, head: str | None = None) -> Verification:
        """Draw every decision again, and check every number and every event: an audit.

        Args:
            head: number:hash of an event, as a report, a webhook or an audit has told it: nothing
                before it was changed since.
        """
        return self.backend.verify(head)

    def logs(self) -> Transitions:
        """The steps of all finished episodes as logs, those of the incumbent included."""
        return self.backend.logs()

    def shadow(self) -> ShadowReport:
        """What today's controller has earned, and what the behavior policy would have done."""
        return self.backend.shadow()

    def look(self) -> bool:
        """Look now at the episodes of several policies, where that is due; False: it is not.

        It is done in a thread of its own when episodes end, and by a service.
        """
        return self.backend.look()

    def result(self, *, keep: bool = False) -> Any:
        """What the target policy is worth, by all that is finished: an `Evaluation`.

        Of several policies it is a `Comparison`, whose intervals are anytime-valid.

        Args:
            keep: keep the episodes in the result.

        Raises:
            InputError: no episode is finished.
        """
        result = self.backend.result()
        if not keep:
            return result
        if isinstance(result, Comparison):
            return replace(result, recorded=self.backend.mixture())
        return replace(result, episodes=self.backend.episodes(None))

    def report(self, path: str | os.PathLike[str], *, title: str = "The campaign") -> Path:
        """Write the result as one HTML page."""
        return self.backend.report(path, title)

    # -- in a notebook -------------------------------------------------------------------------

    def to_frame(self) -> DataFrame:
        """A pandas table with a row for every episode.

        `value` is unbiased for the target policy's value, `spent` is the cost; times are UTC.
        """
        state = CampaignState(self.terms)
        for event in self.events():
            state.fold(event)
        frame = frame_of(columns_of(state.lines), index="episode")
        for name in ("started", "ended"):
            frame[name] = frame[name].astype("datetime64[s]")
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the estimate against the number of finished episodes, with its interval.

        The interval holds at all times together. Of several policies draw the differences to the
        baseline. Axes without an estimate or an interval say why.

        Args:
            ax: matplotlib axes; None: those of a new figure.
        """
        if not self.status().finished:
            ax = _labeled(axes_or_new(ax))
            write_in(ax, "no episode is finished")
            return ax
        terms = self.terms
        if terms.policies:
            compared: Axes = self.result().plot(ax)
            return compared
        result = self.result(keep=True)
        trace = trace_of(result, terms.gamma)
        assert trace is not None  # the episodes were kept
        goal = max(terms.stop.episodes or len(trace.value), 1)
        band = running(trace.value, terms.alpha, goal, trace.stages)
        ax = _labeled(axes_or_new(ax))
        draw_band(band, terms.alpha, ax)
        drawn = np.isfinite(band.high - band.low).any()
        if not drawn and not np.isfinite(result.interval.half_width):
            ax.legend(title=no_interval(result.interval), title_fontsize=8, **_LEGEND)
        return ax

    def track(self, tracker: Listener) -> None:
        """Tell the numbers of this moment, at the number of finished episodes.

        Args:
            tracker: a `Tracker`, or a function that takes a `Running`, as for `evaluate`. Where it
                raises an exception there is a warning, and the campaign goes on.

        Raises:
            InputError: it cannot be called so.
        """
        listener = None if tracker is None else listener_of(tracker, "tracker")
        if listener is None:
            raise InputError("tracker: got None, expected an object with log(step, values)")
        status = self.status()
        total = self.terms.stop.episodes
        more = status.values()
        listener(Running(status.finished, total, status.interval, status.spent, more=more))

    def _repr_html_(self) -> str:
        return card_of(self.status(), self.terms).html()

    # -- inside --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def group(self) -> Iterator[None]:
        """One transaction for all calls of this thread inside the block, which is faster.

        Nothing is on disk before the outermost block has ended: carry no action out before. A call
        that raises takes back only itself. If a block raises, nothing of it is recorded; fetch the
        episodes that were used in it again, with `episode`. Over HTTP, where the service groups
        calls by itself, the block does nothing.
        """
        with self.backend.group():
            yield

    def close(self) -> None:
        """Close the connections; of SQLite the one file then holds everything."""
        self.backend.close()

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Campaign({self.backend.name!r})"


def _check_for_several(several: bool, run: Any, refit: Any, unconfirmed: str) -> None:
    """See that nothing is asked that is for one policy, or for several."""
    if several and (refit or unconfirmed != "refuse"):
        raise InputError(
            "refit, unconfirmed: got it with several policies, which run themselves; leave it out"
        )
    if not several and run is not None:
        raise InputError(
            "run: got shares with one policy; expected several, or behavior= and ramp="
        )


def _check_inference(inference: Inference) -> None:
    """See that a campaign can do what is asked."""
    if not isinstance(inference, Inference):
        raise InputError(f"inference: got {inference!r:.40}, expected Inference(alpha=0.05)")
    if inference.estimator != "auto" or inference.keep:
        raise InputError(
            "inference: got an estimator or keep=True; a campaign has its own estimator and keeps "
            "everything, leave it out, and try estimate(campaign.episodes(), ...) for others"
        )


def _check_designed_for(behavior: Any) -> None:
    """See that the campaign watches what the behavior policy was designed for."""
    promised = behavior.promised if isinstance(behavior, BehaviorPolicy) else None
    if promised is None:
        return
    cost = "the cost of a reference policy" if promised.whose == "reference" else "a cost limit"
    raise InputError(
        f"behavior: the behavior policy was designed for {cost}, and a campaign's promise is about "
        "the target policy's own cost; expected a design for that, or promise=[...] of your own, "
        "such as Limit(total=...)"
    )


def refit_task(task: dict[str, Any]) -> int:
    """Compute the design that is due, in the process that was started for it."""

    def opened(where: str, target: Any) -> LocalBackend:
        policies = Policies(as_policy(target))
        return open_local(where, policies, check=True, clock=time.time)

    return main(task, opened)


def draw_band(band: Band, alpha: float, ax: Axes) -> None:
    """Draw a running estimate, with its interval as far as that is finite."""
    seen = np.isfinite(band.high - band.low)
    if seen.any():
        ax.fill_between(
            band.at[seen], band.low[seen], band.high[seen], color=OURS, alpha=0.18, lw=0,
            label=f"{confidence(alpha)} at all times together",
        )  # fmt: skip
    alone = "o" if len(band.at) == 1 else None  # a line of one point is not seen
    ax.plot(band.at, band.mean, color=OURS, lw=2.0, marker=alone, label="estimate")
    ax.legend(**_LEGEND)
    late = band.at >= 0.12 * band.at[-1]  # the first intervals are too wide to show anything
    ends = np.concatenate([band.low[late & seen], band.high[late & seen], band.mean[late]])
    room = 0.05 * (np.ptp(ends) or 1.0)
    ax.set_ylim(float(ends.min() - room), float(ends.max() + room))


def _labeled(ax: Axes) -> Axes:
    """Axes of a running estimate."""
    ax.set_xlabel("finished episodes")
    ax.set_ylabel("value of the policy")
    return ax


# -- a database of this machine as the backend -----------------------------------------------------


class LocalBackend(Recorder):
    """What a `Campaign` needs, in a database that this process can reach.

    Args:
        store: the database.
        terms: of the campaign.
        policies: of the campaign.
        designs: the behavior policies.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: Store,
        terms: Terms,
        policies: Policies,
        designs: Designs,
        clock: Callable[[], float],
    ) -> None:
        target = NoTarget() if policies.target is None else policies.target
        super().__init__(store, terms, target, designs, clock, policies.several)
        if policies.several is not None:
            self.look_thread = LookThread(self, policies.several)
            self.on_look = self.look_thread.start
        self.refitting = RefitProcess(self, policies.name)
        if self.refitting.able:
            self.on_refit = self.refitting.start

    def command(
        self, name: str, reason: str, *, who: str | None = None, number: int | None = None
    ) -> bool:
        """Carry out a command; False: there was nothing to do."""
        if name != "refit":
            return super().command(name, reason, who=who, number=number)
        with self.store.read() as connection:
            state = self.state(connection)
        if state.refits_due <= state.refits_done:
            return False
        if not self.refitting.able:
            raise CampaignError(
                "refit: the target is no table, so that no other process can have it; expected "
                "target_name='module:attribute' where the campaign is opened"
            )
        self.refitting.start(now=True)
        return True

    def refit_now(self) -> bool:
        """Compute the design that is due in this process; False: none is due."""
        return refit_now(self)

    def look(self) -> bool:
        """Look at the episodes of several policies in this thread; False: it is not due."""
        return look_now(self, self._several())

    def _several(self) -> PolicySet:
        """The policies that are compared.

        Raises:
            InputError: there is one, or they are not here.
        """
        if not self.terms.policies:
            raise InputError("look: the campaign has one policy; expected one over several")
        if self.policies is None:
            names = self.terms.policies
            given = " ".join(f"--policy {name}=..." for name in names)
            raise InputError(
                f"policies: the campaign was opened without {', '.join(names)}, only to look, and "
                "its database cannot hold them; expected Campaign.open(where, {name: policy, "
                f"...}}), from the shell {given}"
            )
        return self.policies

    # -- looking -------------------------------------------------------------------------------

    def status(self) -> CampaignStatus:
        """The state now."""
        with self.lock, self.store.read() as connection:
            return status_of(connection, self.state(connection), self.clock())

    def events(
        self,
        after: int = 0,
        *,
        most: int | None = None,
        kinds: tuple[str, ...] | None = None,
        last: bool = False,
    ) -> list[Event]:
        """What happened after an event."""
        with self.store.read() as connection:
            return self.store.events_after(connection, after, most, kinds=kinds, last=last)

    def designs(self) -> list[DesignRecord]:
        """Every behavior policy that was used."""
        with self.store.read() as connection:
            return self.kept.records(connection)

    def episodes(self, plant: str | None) -> Episodes:
        """All finished episodes, with the probabilities of the target policy.

        Of several policies it is the baseline; `mixture` has the weights of all.
        """
        with self.store.read() as connection:
            return read_episodes(connection, self.terms.horizon, plant=plant)

    def episodes_on(self, plant: str) -> list[tuple[int, str, int]]:
        """Number, state and steps of all episodes of a plant."""
        chosen = (
            EPISODES.select()
            .where(EPISODES.c.plant == check_name(plant))
            .order_by(EPISODES.c.number)
        )
        with self.store.read() as connection:
            rows = connection.execute(chosen).all()
        return [(row.number, row.state, row.length) for row in rows]

    def verify(self, head: str | None) -> Verification:
        """An audit."""
        if self.terms.policies:
            self._several()  # they draw the decisions again
        with self.store.read() as connection:
            return verify_campaign(connection, self.terms, self.new_deciding(), head)

    def logs(self) -> Transitions:
        """The steps of all finished episodes."""
        with self.store.read() as connection:
            parts = [
                read_episodes(connection, self.terms.horizon, shadow=shadow)
                for shadow in (True, False)
            ]
        columns: list[dict[str, Any]] = [part.transitions() for part in parts if len(part)]
        filled = [Transitions(**one) for one in columns]
        if not filled:
            raise InputError("logs: no episode is finished, expected at least one")
        return Transitions.concat(filled)

    def shadow(self) -> ShadowReport:
        """Episodes in which what runs today has decided."""
        with self.store.read() as connection:
            return shadow_report(connection, self.terms)

    def mixture(self) -> MixtureEpisodes:
        """All finished episodes, with the weights of several policies."""
        self._several()
        return mixture_now(self)

    def result(self) -> Evaluation | Comparison:
        """What the target policy is worth, or which of several is better."""
        if self.terms.policies:
            return compare_now(self, self._several())
        with self.lock, self.store.read() as connection:
            return evaluation_of(connection, self.state(connection))

    def report(self, path: str | os.PathLike[str], title: str) -> Path:
        """Write the report."""
        from scopeval.report import page_of_comparison, page_of_evaluation, write_report

        events = [event for event in self.events() if event.kind not in QUIET]
        outcome, status, seed = self.result(), self.status(), self.terms.seed
        about = campaign_section(status, self.designs(), events)
        if isinstance(outcome, Comparison):
            page = page_of_comparison(outcome, title=title, seed=seed)
        else:
            known = not isinstance(self.target, NoTarget)
            design = self.kept.behavior(status.design) if known else None
            learned = design if isinstance(design, BehaviorPolicy) else None
            result, gamma = replace(outcome, episodes=self.episodes(None)), self.terms.gamma
            page = page_of_evaluation(result, learned, title=title, gamma=gamma, seed=seed)
        sections = (*page.sections[:-1], about, *page.sections[-1:])
        answer = f"The campaign is {status.headline}. {page.answer}"
        return write_report(replace(page, answer=answer, sections=sections), path)

    def close(self) -> None:
        """Close the connections, with all that is committed in the one file."""
        self.refitting.leave()
        self.release()
        if self.policies is not None:
            self.closed = True  # a look that takes longer is made again by whoever comes next
            self.look_thread.wait(LAST_WAIT)
        self.store.checkpoint()
        self.store.close()


# -- creating and opening --------------------------------------------------------------------------


def with_shares(
    policies: Policies,
    run: Mapping[str, float] | None,
    ramp: Ramp | None,
    promise: Promise | None,
    logs: Transitions | None,
    *,
    horizon: int,
    gamma: float,
) -> tuple[Policies, tuple[float, ...]]:
    """Several policies with their shares, and a design where they cost more than is promised.

    Raises:
        InputError: shares that are none, or nothing that answers the question costs so little.
    """
    several = policies.several
    assert several is not None
    if ramp is not None and ramp.shares[0] <= 0:
        raise InputError(
            f"ramp: got {ramp.shares!r:.40}, expected shares above 0: episodes without a policy "
            "have no value for it"
        )
    plan = affordable(
        several, shares_of(several, run), promise, None, logs, horizon=horizon, gamma=gamma
    )
    return replace(policies, several=plan.policies), tuple(plan.shares.tolist())


def create_local(
    where: str | os.PathLike[str],
    terms: Terms,
    policies: Policies,
    first: Plan,
    logs: Transitions | None,
    clock: Callable[[], float],
    context: History | None = None,
) -> LocalBackend:
    """A new campaign.

    Raises:
        DataError: there is a campaign already, or the place cannot be written.
    """
    store = Store(where, create=True)
    try:
        target, several = policies.target, policies.several
        assert target is not None
        designs = Designs(store, target, first.behavior, policies.baseline)
        backend = LocalBackend(store, terms, policies, designs, clock)
        with store.transaction() as connection:
            store.order(connection)
            store.create_tables(connection)
            if store.fact(connection, "format") is not None:
                raise DataError(
                    f"{store.name}: holds a campaign already; open it with Campaign.open, or "
                    "choose another place"
                )
            store.forget_head()
            store.set_fact(connection, "format", FORMAT)
            text = store.set_fact(connection, "terms", terms.to_json())
            store.set_fact(connection, "versions", versions("numpy", "sqlalchemy"))
            remember_target(store, connection, target, terms.horizon, first.behavior, logs)
            if (terms.refit is not None or several is not None) and logs is not None:
                keep_logs(connection, logs)
            if context is not None:
                keep_history(connection, context)
            if several is not None:
                marks = designs.keep_several(connection, several, clock())
            else:
                marks = {"0": designs.keep(connection, 0, first.behavior, clock(), "the first")}
            if terms.baseline:
                marks[str(BASELINE)] = designs.keep_baseline(connection, clock())
            data: dict[str, Any] = {"terms": terms_digest(text), "designs": marks}
            data["kept"] = kept_digests(connection)
            if several is None:
                data["confirmed"] = confirmed(designs.behavior(0), baseline=terms.baseline)
            if terms.refit is not None:
                data["plan"] = StagePlan(first).to_json()
            backend.happen(connection, Event("created", "the campaign was created", data=data))
    except BaseException:
        store.close()
        raise
    return backend


def open_local(
    where: str | os.PathLike[str],
    policies: Policies,
    *,
    check: bool,
    clock: Callable[[], float],
    patience: float | None = None,
) -> LocalBackend:
    """A campaign that exists.

    Raises:
        DataError: there is no campaign, or it is damaged.
        InputError: another target.
    """
    store = Store(where, create=False, patience=patience)
    try:
        migrate(store, clock)
        with store.read() as connection:
            store.check_head(connection)
            with reading_row(store.name, "facts", "terms"):
                terms = Terms.from_json(store.fact(connection, "terms"))
            policies = policies_of_campaign(store, connection, terms, policies)
            target = NoTarget() if policies.target is None else policies.target
            designs = Designs(store, target, policies.behavior, policies.baseline)
            backend = LocalBackend(store, terms, policies, designs, clock)
            if check and policies.several is not None:
                check_several(store, connection, policies.several)
            elif check and policies.target is not None:
                check_target(store, connection, policies.target, terms)
            state = backend.state(connection)
        if policies.target is not None and not terms.policies:
            designs.behavior(state.design)  # a damaged or missing one is told now
            if terms.baseline:
                designs.decider(BASELINE)
    except BaseException:
        store.close()
        raise
    return backend
