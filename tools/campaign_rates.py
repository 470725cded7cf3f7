"""How often a campaign's interval misses, and how often its guard alarms for nothing.

    python tools/campaign_rates.py [--campaigns 200] [--episodes 120] [--plants 4] [--refit]
        [--events [--fixed]]

Many campaigns with several plants side by side in a small world whose value is known exactly. The
cost of an episode does not depend on actions: the promise holds with equality, and every alarm is
false. Actions change how long episodes last, so that plants finish out of order, in an order that
depends on the weights. Every campaign is closed and opened again after every 25 episodes. With
``--refit`` the behavior policy is designed anew as episodes finish.

With ``--events`` nothing is run: the events of campaigns in stages are made up, and folded by the
same code that a campaign is opened with. Values, costs and the time that an episode takes depend on
each other; predictions of the designs, and so the weights, depend on the values before them, and
designs arrive late. A campaign misses if its interval misses after any of its episodes. With
``--fixed`` as well there are no stages, and only the interval at the end of the plan counts, which
is that of a number of episodes that was fixed before.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from scopeval import Campaign, Check, Promise, Stop, exact
from scopeval.behavior.summary import Prediction
from scopeval.campaign.episode import Episode
from scopeval.campaign.state import CampaignState, StagePlan
from scopeval.campaign.store import Event
from scopeval.campaign.terms import Terms
from scopeval.errors import CampaignError
from scopeval.evaluation.stage_design import Plan as DesignPlan
from scopeval.evaluation.stages import Stages

STATES, ACTIONS, HORIZON, END = 4, 3, 6, 3


def world(seed: int) -> exact.TabularMDP:
    """A random world; in state `END` an episode is over, and nothing is earned or paid there."""
    rng = np.random.default_rng(seed)
    step = rng.dirichlet(np.ones(STATES), (STATES, ACTIONS))
    step[END] = np.eye(STATES)[END]
    reward = rng.normal(size=(STATES, ACTIONS)) * 2.0
    cost = np.zeros((STATES, ACTIONS))
    reward[END] = 0.0
    first = np.array([0.4, 0.3, 0.3, 0.0])
    return exact.TabularMDP(first, step, reward, cost, HORIZON)


def policies(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A target policy and a behavior policy."""
    rng = np.random.default_rng((seed, 1))
    target = 0.7 * rng.dirichlet(np.ones(ACTIONS), STATES) + 0.1
    behavior = 0.6 * target + 0.4 * rng.dirichlet(np.ones(ACTIONS), STATES)
    return target, behavior


class Plant:
    """One plant that is run step by step."""

    def __init__(self, name: str, mdp: exact.TabularMDP, rng: np.random.Generator) -> None:
        self.name, self.mdp, self.rng = name, mdp, rng
        self.episode: Episode | None = None
        self.state, self.cost = 0, 0.0

    def turn(self, campaign: Campaign, table: np.ndarray) -> bool:
        """One step; False: the campaign starts no more episodes."""
        if self.episode is None:
            try:
                self.episode = campaign.start(self.name)
            except CampaignError:
                return False
            self.state = int(self.rng.choice(STATES, p=self.mdp.initial))
            # no action changes what an episode costs
            self.cost = float(self.rng.exponential())
        episode, state = self.episode, self.state
        action = episode.act(state)
        reward = float(self.mdp.at("reward", 0)[state, action] + self.rng.normal())
        self.state = int(self.rng.choice(STATES, p=table[state, action]))
        ended = self.state == END
        episode.observe(
            reward, self.cost if episode.step == 0 else 0.0, self.state, terminated=ended
        )
        if episode.over:
            episode.end()
            self.episode = None
        return True


def one(number: int, place: Path, episodes: int, plants: int, refit: bool) -> tuple[bool, bool]:
    """Whether the interval misses, and whether the guard alarms, in one campaign."""
    mdp = world(7)
    target, behavior = policies(7)
    truth = exact.assess(mdp, target, target).value
    campaign = Campaign.create(
        place,
        target,
        horizon=HORIZON,
        behavior=None if refit else behavior,
        seed=number,
        stop=Stop(episodes=episodes),
        promise=[Promise()],
        refit=Stages(first=30, method="odi", check=Check(least_gain=0.0)) if refit else False,
    )
    campaign.backend.on_refit = None  # in this process, at once
    rng = np.random.default_rng((number, 2))
    running = [Plant(f"plant-{i}", mdp, rng) for i in range(plants)]
    table = mdp.transition.toarray().reshape(STATES, ACTIONS, STATES)
    opened = 0
    while running:
        with campaign.group():
            for _ in range(20):
                running = [plant for plant in running if plant.turn(campaign, table)]
        if refit:
            campaign.refit()
        if campaign.status().finished >= opened + 25:
            opened += 25
            campaign.close()
            campaign = Campaign.open(place, target)
            campaign.backend.on_refit = None
            for plant in running:
                if plant.episode is not None:
                    plant.episode = campaign.resume_episode(plant.name)
    result, alarms = campaign.result(), campaign.status().state != "running"
    campaign.close()
    return not result.interval.low <= truth <= result.interval.high, alarms


def by_events(number: int, episodes: int, plants: int, fixed: bool = False) -> tuple[bool, bool]:
    """The same for a campaign of made-up events, at all times or at its end; the value is 0."""
    rng = np.random.default_rng((number, 3))
    stages = None if fixed else Stages(first=30)
    terms = Terms(
        HORIZON, stop=Stop(episodes=episodes), refit=stages, interval="t" if fixed else "sequence"
    )
    state, clock = CampaignState(terms), 0

    def fold(event: Event) -> None:
        nonlocal clock
        clock += 1
        state.fold(replace(event, number=clock))

    first = StagePlan(DesignPlan(None, None, 0.0, "the target policy itself"))
    fold(Event("created", "", data={"plan": first.to_json()}))
    running: list[tuple[float, int, float, float]] = []
    missed, now, late, spread = False, 0.0, -1, 1.0
    for _ in range(episodes + plants):
        if len(running) == plants or state.started == episodes:
            if not running:
                break
            running.sort()
            now, episode, value, cost = running.pop(0)
            weighted = cost * float(rng.gamma(4.0, 0.25))
            data = {"value": value, "spent": cost, "signals": {}, "by_target": False}
            data |= {"cost": cost, "weighted_cost": weighted, "weight": weighted / cost}
            fold(Event("ended", "", "a", episode, data=data))
            interval = state.interval
            missed = not interval.low <= 0.0 <= interval.high or (missed and not fixed)
            due = state.next_refit()
            if due is not None:
                fold(due)
                late = int(rng.integers(0, 6))
            elif state.refits_due > state.refits_done:
                late -= 1
            if state.refits_due > state.refits_done and late <= 0:
                # low values make the design confident, and its values wide
                v = 0.15 if interval.estimate < 0.0 else 0.9
                spread = math.sqrt(0.15 if rng.random() < 0.5 else 1.2)
                told = Prediction(v, 1.0, v, 1.0)
                plan = StagePlan(DesignPlan(None, told, 0.0, "made up", True))
                at = {"design": state.design + 1, "refit": state.refits_due}
                fold(Event("design", "", data=at | {"plan": plan.to_json()}))
        if state.started < episodes:
            episode = state.started
            begun = {"stage": 0, "design": state.design, "value_weight": state.next_weight()}
            fold(Event("started", "", "a", episode, data=begun))
            value = spread * float(rng.exponential() - 1.0)
            cost = float(rng.exponential())
            # large values take longer, so that they are missing more often
            running.append((now + 1.0 + abs(value) + rng.random(), episode, value, cost))
    return missed, bool(state.refuted())


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--campaigns", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=120)
    parser.add_argument("--plants", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--refit", action="store_true")
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--fixed", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = np.array(
            [
                by_events(1000 * asked.seed + number, asked.episodes, asked.plants, asked.fixed)
                if asked.events
                else one(
                    1000 * asked.seed + number,
                    Path(folder, str(number)),
                    asked.episodes,
                    asked.plants,
                    asked.refit,
                )
                for number in range(asked.campaigns)
            ]
        )
    n = len(found)
    for name, share in zip(("interval misses", "false alarms"), found.mean(axis=0), strict=True):
        error = math.sqrt(max(share * (1 - share), 1 / n) / n)
        print(f"{name:<18}{share:.3f} +- {error:.3f} of {n} campaigns (at most 0.05 is promised)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
