"""Kill campaigns at random moments, and compare them with campaigns that nobody disturbed.

    python tools/crash_campaigns.py [--kills 200] [--plants 4] [--postgres] [--lose] [--apart]
        [--refit] [--processes] [--compare] [--bound episode|step] [--power] [--unsynced]

Campaigns with several plants run in a process that is killed (SIGKILL) again and again; with
``--postgres`` the database server is crashed too. Every plant notes each action that it was told,
and each outcome that was taken.

- After every kill, before anything is started again, all that was noted is in the journal. (Later
  it would say nothing: a decision that was lost is drawn again, and is the same.)
- At the end every noted action is in the journal, and no step was told two actions;
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

With ``--power`` a kill is a loss of power: of the files of the campaign only what was synced is
sure to be left, and every sector of 512 bytes that was written since then is there or not, at
random (`keep_synced.c`, which needs a C compiler). With ``--unsynced`` as well, SQLite does not
wait for the disk: decisions must then be lost, and the tool must say so. PostgreSQL is not tested
in this way.

With ``--apart`` every plant has a process of its own, all work on one campaign at the same time,
and each is killed by itself. Which episode has which number then depends on the moment, so there is
no undisturbed campaign to compare with.

Prints a table, and exits with status 1 where something differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
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
from scopeval import Bound, Campaign, Check, Limit, Promise, Ramp, Stop
from scopeval.campaign.store import EPISODES, EVENTS, STEPS, Store
from scopeval.errors import CampaignError, DataError
from scopeval.evaluation.result import Evaluation
from scopeval.evaluation.stages import Stages

HORIZON, STATES, ACTIONS, PLANNED = 6, 5, 3, 60
#: When a process is killed: mostly after a random number of answers, with this mean, in the middle
#: of what follows; else after a random number of seconds, which may be in the middle of its start.
ANSWERS, SECONDS, EARLY = 12.0, 0.25, 0.2

STAGES = Stages(first=15, method="odi", check=Check(least_gain=0.0))

#: Stated bounds by name: a step of `outcome` costs less than ACTIONS.
BOUNDS = {
    "none": Bound(),
    "episode": Bound(episode=float(HORIZON * ACTIONS)),
    "step": Bound(step=float(ACTIONS)),
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
        notes: file of what the plants were answered; one each where they are apart.
        resume: whether plants go on with episodes that were cut.
        refit: whether the campaign runs in stages.
        processes: whether processes of their own make the designs.
        several: whether it compares policies.
        bound: which bound is stated, a name in BOUNDS.
        only: the one plant that is run; None: all.
        unsynced: whether commits do not wait for the disk.
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
    unsynced: bool = False

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
            stop=Stop(episodes=PLANNED, every=10 if self.several else None),
            ramp=Ramp((0.3, 1.0), episodes=15),
            promise=[Promise(bound=BOUNDS[self.bound]), Limit(episode=16.0, action="tell")],
            refit=STAGES if self.refit else False,
        )
        return self._by_hand(made)

    def _by_hand(self, campaign: Campaign) -> Campaign:
        """Designs and looks are made by `run`, at once, so that they arrive at the same episode."""
        if self.unsynced:
            engine = campaign.backend.store.engine
            engine.dispose()
            sa.event.listen(engine, "connect", lambda c, _: c.execute("PRAGMA synchronous=OFF"))
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
        self.note(f"{episode.number} {t} {action}")
        reward, cost, following, ended = outcome(episode.number, t, state, action)
        episode.observe(reward, cost, following, terminated=ended)
        self.note(f"{episode.number} {t} observed")
        if episode.over:
            episode.end()
        return bool(episode.over)

    def note(self, line: str) -> None:
        """Note what the campaign has answered; what is noted survives."""
        with self.notes.open("ab") as file:
            file.write(f"{line}\n".encode())

    def noted(self) -> list[tuple[int, int, str]]:
        """Episode, step and what was answered."""
        files = [self.notes] if self.only else self.notes.parent.glob(f"{self.notes.name}*")
        lines = (line.split() for file in files for line in file.read_text().splitlines())
        return [(int(episode), int(t), text) for episode, t, text in lines]

    def missing(self) -> int:
        """Answers that are not in the journal, as it lies there now."""
        noted = self.noted()
        if not noted:
            return 0
        with tempfile.TemporaryDirectory() as folder:
            where = self.where
            if "://" not in where and self.only is None:  # looking must not repair it
                for path in Path(where).parent.glob(f"{Path(where).name}*"):
                    if not path.name.endswith(("-shm", ".notes")):
                        shutil.copy(path, folder)
                where = str(Path(folder, Path(where).name))
            store = Store(where, create=False)
            with store.read() as connection:
                rows = connection.execute(sa.select(STEPS.c.episode, STEPS.c.step, STEPS.c.reward))
                journal = {(e, t): reward for e, t, reward in rows}
            store.close()
        return sum(
            (e, t) not in journal or (text == "observed" and journal[e, t] is None)
            for e, t, text in noted
        )


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


@dataclass(frozen=True)
class Fate:
    """When a process is killed.

    Attributes:
        until: a moment.
        size: of its file of notes.
    """

    until: float = math.inf
    size: float = math.inf

    @classmethod
    def drawn(cls, rng: np.random.Generator, driver: Driver) -> Fate:
        """At random."""
        if rng.random() < EARLY:
            return cls(until=time.monotonic() + rng.exponential(SECONDS))
        return cls(size=driver.notes.stat().st_size + LINE * rng.exponential(ANSWERS))

    def due(self, driver: Driver) -> bool:
        """Whether it is killed now."""
        return time.monotonic() >= self.until or driver.notes.stat().st_size >= self.size


#: Bytes of a line of notes, about.
LINE = 8.0

#: Bytes that a disk writes whole, or not at all.
SECTOR = 512


@dataclass(frozen=True)
class Power:
    """What is left of a folder's files when the power is lost.

    Attributes:
        folder: of the campaigns; only this one loses what was not synced.
        synced: the content that files had when they were synced last.
    """

    folder: Path
    synced: Path

    @classmethod
    def ready(cls) -> Power | None:
        """Of this process; None: it was not started with the library."""
        names = ("SYNCED_OF", "SYNCED_TO")
        return cls(*(Path(os.environ[n]) for n in names)) if names[0] in os.environ else None

    def lose(self, rng: np.random.Generator) -> None:
        """Leave what was synced, and any of the sectors that were written since then."""
        for path in self.folder.iterdir():
            if path.name.endswith("-shm"):  # not on the disk
                path.unlink()
                continue
            kept = self.synced / path.name
            before = kept.read_bytes() if kept.exists() else b""
            now = path.read_bytes()
            size = int(rng.choice([len(before), len(now)]))
            content = bytearray(before[:size].ljust(size, b"\0"))
            for start in range(0, size, SECTOR):
                if rng.random() < 0.5 and start < len(now):
                    content[start : start + SECTOR] = now[start : min(start + SECTOR, size)]
            if size or kept.exists():
                path.write_bytes(content[:size])
            else:
                path.unlink()
        for kept in self.synced.iterdir():
            path = self.folder / kept.name
            if "." in kept.name:  # a copy that the kill has cut
                kept.unlink()
            elif not path.exists() and rng.random() < 0.5:
                shutil.copy(kept, path)  # deleted, and that is not on the disk yet
        for path in self.folder.iterdir():
            shutil.copy(path, self.synced / path.name)


def start_with_power(folder: str) -> int:
    """Run this command again, with the library that keeps what was synced."""
    library, campaigns, synced = (Path(folder, name) for name in ("keep.so", "disk", "synced"))
    source = Path(__file__).with_name("keep_synced.c")
    made = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(made, check=True)
    campaigns.mkdir()
    synced.mkdir()
    added = {"LD_PRELOAD": library, "SYNCED_OF": campaigns, "SYNCED_TO": synced}
    environment = os.environ | {name: str(value) for name, value in added.items()}
    return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def disturbed(
    drivers: list[Driver],
    rng: np.random.Generator,
    kills: int,
    server: Any,
    power: Power | None = None,
) -> tuple[int, int]:
    """Run drivers side by side and kill them at random moments.

    Returns:
        How often, and answers that were not in the journal after a kill.
    """
    done = lost = 0
    running: dict[int, tuple[Driver, Fate]] = {}
    waiting = list(drivers)
    while waiting or running:
        for driver in waiting:
            fate = Fate.drawn(rng, driver) if done < kills else Fate()
            running[forked(driver, server)] = (driver, fate)
        waiting = []
        time.sleep(0.002)
        for child, (driver, fate) in list(running.items()):
            finished, status = os.waitpid(child, os.WNOHANG)
            if finished:
                del running[child]
                code = os.waitstatus_to_exitcode(status)
                if code not in (0, 3):
                    raise SystemExit("a campaign failed: see above")
                waiting += [driver] if code else []
            elif done < kills and fate.due(driver):
                done += 1
                time.sleep(rng.exponential(0.005))  # so that it is hit in the middle of a call
                if server is not None and rng.random() < 0.5:
                    server.stop("immediate")
                    server.start()
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                del running[child]
                waiting.append(driver)
                if power is not None:  # all others stop, too
                    for other in list(running):
                        os.kill(other, signal.SIGKILL)
                        os.waitpid(other, 0)
                        waiting.append(running.pop(other)[0])
                    power.lose(rng)
                lost += driver.missing()
                if power is not None:
                    break
    return done, lost


def digest(campaign: Campaign) -> str:
    """Hash of all episodes and steps, but for the times."""
    found = hashlib.sha256()
    with campaign.backend.store.read() as connection:
        for table, order in (
            (EPISODES, (EPISODES.c.number,)),
            (STEPS, (STEPS.c.episode, STEPS.c.step)),
        ):
            kept = [c for c in table.c if c.name not in ("started", "ended", "decided", "observed")]
            for row in connection.execute(sa.select(*kept).order_by(*order)):
                found.update(repr(tuple(row)).encode())
        looks = sa.select(EVENTS.c.data).where(EVENTS.c.kind == "look")
        for (text,) in connection.execute(looks.order_by(EVENTS.c.number)):
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
            rows = connection.execute(sa.select(STEPS.c.episode, STEPS.c.step, STEPS.c.action))
            journal = {(e, t): action for e, t, action in rows}
        told: dict[tuple[int, int], set[str]] = {}
        for episode, t, text in driver.noted():
            if text != "observed":
                told.setdefault((episode, t), set()).add(text)
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
    parser.add_argument("--power", action="store_true", help="what was not synced is lost, too")
    parser.add_argument("--unsynced", action="store_true", help="do not wait for the disk")
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    power = Power.ready() if asked.power else None
    if asked.power and power is None:
        if shutil.which("cc") is None or asked.postgres:
            print("--power: expected a C compiler (cc), and not --postgres", file=sys.stderr)
            return 2
        with tempfile.TemporaryDirectory() as folder:
            return start_with_power(folder)
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
                        str(Path(power.folder if power else folder, name))
                        if server is None
                        else server.url(),
                        asked.seed + number,
                        asked.plants,
                        Path(folder, f"{name}.notes"),
                        not asked.lose,
                        asked.refit,
                        asked.processes,
                        asked.compare,
                        asked.bound,
                        unsynced=asked.unsynced,
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
                    notes = drivers[0].notes
                    parts = [
                        replace(drivers[0], only=plant, notes=Path(f"{notes}.{plant}"))
                        for plant in plants
                    ]
                    for part in parts:
                        part.notes.touch()
                kills, lost = disturbed(parts, rng, left, server, power)
                total["kills"] += kills
                total["lost at a kill"] = total.get("lost at a kill", 0) + lost
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
    wrong = ("lost at a kill", "lost decisions", "doubled decisions", "drawn again and different")
    wrong += ("not accounted for", "results that differ")
    return int(any(total.get(name, 0) for name in wrong))


if __name__ == "__main__":
    sys.exit(main())
