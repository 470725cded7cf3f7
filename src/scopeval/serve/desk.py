"""The campaign's verbs as the service calls them: by numbers and words, safe to repeat."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import sqlalchemy as sa

from scopeval.campaign import schema
from scopeval.campaign.campaign import Campaign
from scopeval.campaign.episode import CampaignEpisode
from scopeval.campaign.terms import Limit
from scopeval.errors import CampaignError, InputError, ScopevalError
from scopeval.serve.audit import AuditEntry, AuditLog
from scopeval.serve.limits import Limits
from scopeval.serve.models import ActBody, EndBody, LoseBody, ObserveBody, StartBody
from scopeval.serve.tokens import Token

__all__ = ["ForbiddenError", "PlantDesk", "TooManyError", "problem_of"]


class ForbiddenError(ScopevalError):
    """The token is for other plants."""


class TooManyError(ScopevalError):
    """A limit of the service is reached."""


class PlantDesk:
    """Everything that writes. It runs in the thread of the `GroupWriter`.

    Running episodes are kept at hand, as many as may be open. After an error an episode is read
    again from the journal, which is what counts.

    Args:
        campaign: the campaign.
        limits: of the service.
        audit: the audit log.
    """

    def __init__(self, campaign: Campaign, limits: Limits, audit: AuditLog) -> None:
        self._campaign, self._limits, self._audit = campaign, limits, audit
        self._running: OrderedDict[int, CampaignEpisode] = OrderedDict()
        self.decisions = 0

    def forget(self) -> None:
        """Read all episodes again: a transaction was not committed."""
        self._running.clear()

    # -- plants --------------------------------------------------------------------------------

    def start(self, token: Token, body: StartBody) -> dict[str, Any]:
        """Begin an episode; where that is refused, nothing is changed."""
        check_plant(token, body.plant)
        # a word belongs to its token: one plant cannot take another's episode by guessing
        request = f"{token.key}:{body.plant}:{body.request}"
        with self._campaign.group():
            before = self._campaign.running
            episode = self._campaign.start(body.plant, resume=body.resume, request=request)
            if self._campaign.running > max(before, self._limits.open_episodes):
                raise TooManyError(
                    f"start: {before} episodes are open, and no more than "
                    f"{self._limits.open_episodes} may be; end() or lose() some"
                )
        for number in [n for n, one in self._running.items() if one.plant == body.plant]:
            del self._running[number]  # lost or ended by the start of this one
        self._keep(episode)
        return self.describe(episode)

    def act(self, token: Token, number: int, body: ActBody) -> dict[str, Any]:
        """Decide a step."""
        return self._safely(
            token, number, lambda one: self._act(one, body.step, body.obs, body.incumbent)
        )

    def _act(
        self, episode: CampaignEpisode, step: int, obs: Any, incumbent: Any = None
    ) -> dict[str, Any]:
        try:
            action = episode.act(obs, step=step, incumbent=incumbent)
        except ScopevalError:
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"obs: the target policy has no answer for it at step {step} "
                f"({type(error).__name__}); nothing was recorded"
            ) from error
        self.decisions += 1
        return {"step": step, "action": plain(action)}

    def observe(self, token: Token, number: int, body: ObserveBody) -> dict[str, Any]:
        """Record an outcome."""
        return self._safely(token, number, lambda episode: self._observe(episode, body))

    def _observe(self, episode: CampaignEpisode, body: ObserveBody) -> dict[str, Any]:
        episode.observe(
            body.reward,
            body.cost,
            body.next_obs,
            terminated=body.terminated,
            signals=body.signals,
            step=body.step,
        )
        return {"step": body.step, "over": episode.over}

    def advance(self, token: Token, number: int, body: ObserveBody) -> dict[str, Any]:
        """Record an outcome and decide the next step, both or neither."""

        def both(episode: CampaignEpisode) -> dict[str, Any]:
            with self._together():
                told = self._observe(episode, body)
                last = body.terminated or body.step + 1 >= self._campaign.terms.horizon
                if last:
                    return told | {"action": None}
                decided = self._act(episode, body.step + 1, body.next_obs)
                return told | {"action": decided["action"]}

        return self._safely(token, number, both)

    def _together(self) -> contextlib.AbstractContextManager[None]:
        """An outcome and a decision, both or neither."""
        alarms = any(isinstance(guard, Limit) for guard in self._campaign.terms.guards)
        return self._campaign.group() if alarms else self._campaign.journal.append_together()

    def end(self, token: Token, number: int, body: EndBody) -> dict[str, Any]:
        """End an episode of so many steps."""

        def end(episode: CampaignEpisode) -> dict[str, Any]:
            if body.steps != episode.step:
                raise CampaignError(
                    f"end: got {body.steps} steps, episode {number} has {episode.step}; nothing "
                    "was changed"
                )
            episode.end()
            return self.describe(episode)

        return self._safely(token, number, end)

    def lose(self, token: Token, number: int, body: LoseBody) -> dict[str, Any]:
        """Give an episode up."""

        def lose(episode: CampaignEpisode) -> dict[str, Any]:
            episode.lose(body.reason)
            return self.describe(episode)

        return self._safely(token, number, lose)

    def heartbeat(self, token: Token, plant: str) -> None:
        """Note a sign of life of a plant that has run an episode."""
        check_plant(token, plant)
        table = schema.plants
        with self._campaign.journal.read() as connection:
            known = connection.execute(sa.select(table).where(table.c.name == plant)).first()
        if known is None:
            raise InputError(f"plant: {plant!r:.60} has not run an episode; expected start")
        self._campaign.heartbeat(plant)

    def open_on(self, token: Token, plant: str) -> dict[str, Any]:
        """The open episode of a plant, as the journal has it."""
        check_plant(token, plant)
        return self.look_up(token, self._campaign.resume_episode(plant).number)

    def look_up(self, token: Token, number: int) -> dict[str, Any]:
        """An episode, as the journal has it."""
        self._running.pop(number, None)
        return self._safely(token, number, self.describe)

    # -- operators -----------------------------------------------------------------------------

    def command(self, verb: str, entry: AuditEntry, number: int | None = None) -> None:
        """Carry out what an operator wants, and write it into the audit log, both or neither.

        Args:
            verb: "pause", "resume", "hand over", "stop", "live", "refit", or "drop" with the number
                of an episode.
            entry: for the log; its outcome is filled in here.
            number: of the episode.
        """
        assert entry.request is not None
        if self._audit.has(entry.request) is not None:
            return  # the answer to the first call was lost
        verbs: dict[str, Callable[..., None]] = {
            "pause": self._campaign.pause,
            "resume": self._campaign.resume,
            "hand over": self._campaign.hand_over,
            "stop": self._campaign.stop,
            "live": self._campaign.go_live,
        }
        with self._campaign.group():
            if verb == "drop":
                assert number is not None
                self._campaign.drop(number, entry.reason, who=entry.who)
                self._running.pop(number, None)
            elif verb == "refit":
                self._campaign.start_refit()
            else:
                verbs[verb](entry.reason, who=entry.who)
            self._audit.add(entry)

    # -- inside --------------------------------------------------------------------------------

    def _safely(
        self, token: Token, number: int, verb: Callable[[CampaignEpisode], dict[str, Any]]
    ) -> dict[str, Any]:
        episode = self._running.get(number) or self._campaign.episode(number)
        if token.role == "plant":
            check_plant(token, episode.plant)
        self._keep(episode)
        try:
            return verb(episode)
        except BaseException:
            self._running.pop(number, None)
            raise
        finally:
            if episode.state != "open":
                self._running.pop(number, None)

    def _keep(self, episode: CampaignEpisode) -> None:
        self._running[episode.number] = episode
        self._running.move_to_end(episode.number)
        if len(self._running) > self._limits.open_episodes:
            self._running.popitem(last=False)

    def describe(self, episode: CampaignEpisode) -> dict[str, Any]:
        """An episode as an answer."""
        decided = episode.decided
        return {
            "number": episode.number,
            "plant": episode.plant,
            "state": episode.state,
            "step": episode.step,
            "over": episode.over,
            "terminated": episode.terminated,
            "by_target": episode.by_target,
            "shadow": episode.shadow,
            "design": episode.design,
            "share": episode.share,
            "horizon": self._campaign.terms.horizon,
            "decided": None
            if decided is None
            else {"obs": plain(decided.obs), "action": plain(decided.action)},
        }


def check_plant(token: Token, plant: str) -> None:
    """See that a token is for a plant."""
    if token.plants is not None and plant not in token.plants:
        raise ForbiddenError("this token is for other plants")


def plain(value: Any) -> Any:
    """A number or a list."""
    return np.asarray(value).tolist()


def problem_of(error: Exception) -> tuple[int, str] | None:
    """Status and text of an answer; None: it is no fault of the caller's."""
    if isinstance(error, ForbiddenError):
        return 403, str(error)
    if isinstance(error, TooManyError):
        return 429, str(error)
    if isinstance(error, CampaignError):
        return 409, str(error)
    if isinstance(error, InputError):
        missing = str(error).endswith("there is no episode of that number")
        return 404 if missing else 422, str(error)
    return None
