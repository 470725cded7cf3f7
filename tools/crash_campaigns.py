"""Kill campaigns at random moments, and compare them with campaigns that nobody disturbed.

    python tools/crash_campaigns.py [--kills 200] [--plants 4] [--postgres] [--lose] [--apart]
        [--refit] [--processes] [--compare] [--bound episode|step]

Campaigns with several plants run in a process that is killed (SIGKILL) again and again; with
``--postgres`` the database server is crashed too. Every plant notes each action that it was told.
At the end

- every noted action is in the journal, and no step was told two actions;
- episodes, steps and result are bit for bit those of a campaign with the same seed that ran without
  a break (plants resume), or all cut episodes are counted as lost (``--lose``);
- every decision is drawn again from the journal and is the same.

With ``--refit`` the campaigns run in stages: the behavior policy is designed anew as episodes
finish, in the process that is killed, also in the middle of a design.

With ``--processes`` as well, designs are computed by processes that the campaign starts and that
outlive it; when one arrives depends on the moment, so there is nothing to compare with.

With ``--compare`` the campaigns compare three policies: the running weights of each are in the
journal, and looks at all episodes, in the process that is killed, decide their shares.

With ``--bound`` the most that an episode or a step can cost is stated, so that guards are proofs.

With ``--apart`` every plant has a process of its own, all work on one campaign at the same time,
and each is killed by itself. Which episode has which number then depends on the moment, so there is
no undisturbed campaign to compare with.

Prints a table, and exits with status 1 where something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from postgres_server import MISSING, PostgresServer, binaries
from scopeval import Campaign, Check, Stop
from scopeval.campaign import schema
from scopeval.campaign.terms import Limit, Promise, Ramp
from scopeval.errors import CampaignError, DataError
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stages import Stages

HORIZON, STATES, ACTIONS, EPISODES = 6, 5, 3, 60
#: Mean seconds until a process is killed.
MEAN = 0.25

STAGES = Stages(first=15, method="odi", check=Check(least_gain=0.0))

#: Stated bounds by name: a step of `outcome` costs less than ACTIONS.
BOUNDS: dict[str, dict[str, float]] = {
    "none": {},
    "episode": {"cost_bound": float(HORIZON * ACTIONS)},
    "step": {"step_cost_bound": float(ACTIONS)},
}

RNG = np.random.default_rng(7)
TARGET = RNG.dirichlet(np.ones(ACTIONS), STATES)
BEHAVIOR = 0.6 * TARGET + 0.4 * RNG.dirichlet(np.ones(ACTIONS), STATES)

#: What is compared: one policy is surely worse soon, and loses its share.
POLICIES = {
    "today": TARGET,
    "new": BEHAVIOR,
    "bad": 0.1 * TARGET + 0.9 * np.eye(ACTIONS)[np.zeros(STATES, int)],
}


def outcome(episode: int, t: int, state: int, action: int) -> tuple[float, float, int, bool]:
    """Reward, cost, next state and end: a function of the place, so plants survive a crash."""
    rng = np.random.default_rng((11, episode, t, state, action))
    return (
        float(rng.normal(action)),
        float(action + rng.random()),
        int(rng.integers(STATES)),
        bool(rng.random() < 0.1),
    )


@dataclass
class Driver:
    """Runs the plants of one campaign in turn; the one that is least far goes first.

    Attributes:
        where: the database.
        seed: of the campaign.
        plants: how many.
        notes: file of the actions that plants were told.
        resume: whether plants go on with episodes that were cut.
        refit: whether the campaign runs in stages.
        processes: whether processes of their own make the designs.
        several: whether it compares policies.
        bound: which bound is stated, a name in BOUNDS.
        only: the one plant that is run; None: all.
    """

    where: str
    seed: int
    plants: int
    notes: Path
    resume: bool
    refit: bool = False
    processes: bool = False
    several: bool = False
    bound: str = "none"
    only: str | None = None

    def open(self) -> Campaign:
        """The campaign; it is created by whoever comes first."""
        target: Any = POLICIES if self.several else TARGET
        try:
            return self._by_hand(Campaign.open(self.where, target))
        except DataError as missing:
            if "no such file" not in str(missing) and "holds no campaign" not in str(missing):
                raise
        made = Campaign.create(
            self.where,
            target,
            horizon=HORIZON,
            behavior=None if self.refit or self.several else BEHAVIOR,
            seed=self.seed,
            stop=Stop(episodes=EPISODES, every=10 if self.several else None),
            ramp=Ramp((0.3, 1.0), episodes=15),
            guards=[Promise(), Limit(episode=16.0, action="tell")],
            refit=STAGES if self.refit else False,
            **BOUNDS[self.bound],
        )
        return self._by_hand(made)

    def _by_hand(self, campaign: Campaign) -> Campaign:
        """Designs and looks are made by `run`, at once, so that they arrive at the same episode."""
        campaign.backend.on_look = None
        if not self.processes:
            campaign.backend.on_refit = None
        return campaign

    def run(self) -> None:
        """Run until all episodes are over."""
        with self.open() as campaign:
            running: dict[str, Any] = {}
            names = [f"plant-{i}" for i in range(self.plants)]
            turns = dict.fromkeys(names if self.only is None else [self.only], 0)
            for plant in turns:
                found = campaign.episodes_on(plant)
                turns[plant] = sum(length for _, _, length in found)
                if any(state == "open" for _, state, _ in found):
                    episode = campaign.resume_episode(plant)
                    if not self.resume and not episode.over:
                        episode.lose("the process was killed")
                    elif episode.over:
                        episode.end()  # the turn that the crash has cut
                    else:
                        running[plant] = episode
            while turns or (self.several and campaign.look()):
                if not turns:
                    continue
                if self.refit and not self.processes:
                    campaign.refit()
                if self.several:
                    campaign.look()
                plant = min(turns, key=lambda name: (turns[name], name))
                try:
                    if plant not in running:
                        running[plant] = campaign.start(plant)
                except CampaignError:  # the plan is reached
                    del turns[plant]
                    continue
                turns[plant] += 1
                if self.turn(running[plant]):
                    del running[plant]

    def turn(self, episode: Any) -> bool:
        """One step of a plant; True: its episode is over."""
        obs = episode.last_obs
        state = int(np.random.default_rng((5, episode.number)).integers(STATES))
        state = state if obs is None else int(obs)
        t = episode.step
        action = episode.act(state)
        with self.notes.open("ab") as file:
            file.write(f"{episode.number} {t} {action}\n".encode())
        reward, cost, following, ended = outcome(episode.number, t, state, action)
        episode.observe(reward, cost, following, terminated=ended)
        if episode.over:
            episode.end()
        return bool(episode.over)


def forked(driver: Driver, server: Any) -> int:
    """Run a campaign in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 4
    try:
        driver.run()
        code = 0
    except DataError as error:  # the server is gone
        code = 3 if server is not None else 4
        if code == 4:
            print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def disturbed(drivers: list[Driver], rng: np.random.Generator, kills: int, server: Any) -> int:
    """Run drivers side by side and kill them at random moments; returns how often."""
    done = 0
    running: dict[int, tuple[Driver, float]] = {}
    waiting = list(drivers)
    while waiting or running:
        for driver in waiting:
            mean = MEAN * len(drivers) * (4.0 if driver.refit else 1.0)
            later = rng.exponential(mean) if done < kills else 1e9
            running[forked(driver, server)] = (driver, time.monotonic() + later)
        waiting = []
        time.sleep(0.002)
        for child, (driver, until) in list(running.items()):
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                del running[child]
                code = os.waitstatus_to_exitcode(status)
                if code not in (0, 3):
                    raise SystemExit("a campaign failed: see above")
                waiting += [driver] if code else []
            elif done < kills and time.monotonic() >= until:
                done += 1
                if server is not None and rng.random() < 0.5:
                    server.stop("immediate")
                    server.start()
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del running[child]
                waiting.append(driver)
    return done


def digest(campaign: Campaign) -> str:
    """Hash of all episodes and steps, but for the times."""
    found = hashlib.sha256()
    with campaign.backend.store.read() as connection:
        for table, order in (
            (schema.episodes, (schema.episodes.c.number,)),
            (schema.steps, (schema.steps.c.episode, schema.steps.c.step)),
        ):
            kept = [c for c in table.c if c.name not in ("started", "ended", "decided", "observed")]
            for row in connection.execute(sa.select(*kept).order_by(*order)):
                found.update(repr(tuple(row)).encode())
        looks = sa.select(schema.events.c.data).where(schema.events.c.kind == "look")
        for (text,) in connection.execute(looks.order_by(schema.events.c.number)):
            found.update(
                json.dumps({k: v for k, v in json.loads(text).items() if k != "upto"}).encode()
            )
    return found.hexdigest()


def untimed(result: Any) -> Any:
    """A result without the seconds that designs took."""
    if not isinstance(result, Evaluation):
        return result.to_dict()
    stages = tuple(replace(stage, seconds=0.0) for stage in result.stages)
    learning = None if result.learning is None else replace(result.learning, seconds=0.0)
    return replace(result, stages=stages, learning=learning)


def compare(driver: Driver, other: Driver | None) -> dict[str, Any]:
    """Numbers about one disturbed campaign; `other` ran without a break."""
    with driver.open() as campaign:
        status, result = campaign.status(), campaign.result()
        checked = campaign.verify()
        with campaign.backend.store.read() as connection:
            steps = schema.steps
            rows = connection.execute(sa.select(steps.c.episode, steps.c.step, steps.c.action))
            journal = {(e, t): action for e, t, action in rows}
        told: dict[tuple[int, int], set[str]] = {}
        for line in driver.notes.read_text().splitlines():
            episode, t, action = line.split()
            told.setdefault((int(episode), int(t)), set()).add(action)
        numbers: dict[str, Any] = {
            "decisions": checked.decisions,
            "told": len(told),
            "lost decisions": sum(place not in journal for place in told),
            "doubled decisions": sum(
                len(actions) > 1 or actions != {journal.get(place)}
                for place, actions in told.items()
            ),
            "drawn again and different": checked.different + checked.holes,
            "designs": len(campaign.designs()),
            "episodes": status.finished,
            "lost episodes": status.lost,
            "not accounted for": status.started - status.finished - status.lost,
        }
        if other is not None:
            with other.open() as calm:
                same = digest(campaign) == digest(calm)
                same = same and untimed(result) == untimed(calm.result())
            numbers["results that differ"] = int(not same)
        return numbers


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--plants", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="in PostgreSQL, and crash it too")
    parser.add_argument("--lose", action="store_true", help="plants do not resume their episodes")
    parser.add_argument("--apart", action="store_true", help="a process for every plant")
    parser.add_argument("--refit", action="store_true", help="in stages, with new designs")
    parser.add_argument("--processes", action="store_true", help="which compute the designs")
    parser.add_argument("--compare", action="store_true", help="several policies, with looks")
    parser.add_argument("--bound", choices=tuple(BOUNDS), default="none", help="on the cost")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    if asked.postgres and binaries() is None:
        print(MISSING, file=sys.stderr)
        return 2
    rng = np.random.default_rng(asked.seed)
    server = PostgresServer() if asked.postgres else None
    total: dict[str, int] = {"campaigns": 0, "kills": 0}
    try:
        with tempfile.TemporaryDirectory() as folder:
            while total["kills"] < asked.kills:
                number = total["campaigns"]
                alone = asked.lose or asked.apart or asked.processes
                names = [f"{number}-disturbed"] + ([] if alone else [f"{number}-calm"])
                drivers = [
                    Driver(
                        str(Path(folder, name)) if server is None else server.url(),
                        asked.seed + number,
                        asked.plants,
                        Path(folder, f"{name}.notes"),
                        not asked.lose,
                        asked.refit,
                        asked.processes,
                        asked.compare,
                        asked.bound,
                    )
                    for name in names
                ]
                for driver in drivers:
                    driver.notes.touch()
                left = asked.kills - total["kills"]
                parts = [drivers[0]]
                if asked.apart:
                    drivers[0].open().close()
                    plants = [f"plant-{i}" for i in range(asked.plants)]
                    parts = [replace(drivers[0], only=plant) for plant in plants]
                total["kills"] += disturbed(parts, rng, left, server)
                for driver in drivers[1:]:
                    disturbed([driver], rng, 0, None)
                found = compare(drivers[0], drivers[1] if len(drivers) > 1 else None)
                total["campaigns"] += 1
                for name, n in found.items():
                    total[name] = total.get(name, 0) + n
    finally:
        if server is not None:
            server.remove()
    if asked.json:
        print(json.dumps(total))
    else:
        for name, n in total.items():
            print(f"{name:<28}{n:>8,}")
    wrong = ("lost decisions", "doubled decisions", "drawn again and different")
    wrong += ("not accounted for", "results that differ")
    return int(any(total.get(name, 0) for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
