"""A campaign in two computer rooms, with a power cut: what does the bold controller save?

The rooms are simulated by EnergyPlus (extra `energyplus`; the campaign needs `serve`). The behavior
policy is learned from last season's logs, and asked for half of the bold controller's overheating.
"""

import tempfile
from pathlib import Path

from experiments.data_center import DataCenterEnv, recorded_logs, target_controllers
from scopeval import Campaign, Limit, Promise, Stop, frontier

HOURS = 24


class Room:
    """A plant: it goes on, whatever happens to our program."""

    def __init__(self, name, seed):
        self.name, self.env, self.next_seed = name, DataCenterEnv(reward="saving"), seed

    def begin(self):
        """Midnight."""
        self.obs, _ = self.env.reset(seed=self.next_seed)
        self.next_seed += 1

    def run(self, level):
        """An hour."""
        self.obs, saved, _, _, info = self.env.step(level)
        return saved, info["cost"]


def run_day(campaign, room, hours=HOURS):
    """The control loop of a day, or of what is left of it."""
    episode = campaign.start(plant=room.name, resume=True)
    if episode.step == 0:
        room.begin()
    for _ in range(hours):
        saved, overheated = room.run(episode.act(room.obs))
        episode.observe(saved, overheated, room.obs)
        if episode.over:
            episode.end()
            break


def main(place, days=30, logs=None):
    """Half of the days, a power cut, the other half."""
    bold = target_controllers()["bold"].policy()
    curve = frontier(recorded_logs() if logs is None else logs, bold, horizon=HOURS)
    file = Path(place) / "cooling.campaign"
    campaign = Campaign.create(
        file,
        bold,
        horizon=HOURS,
        behavior=curve.at(cost=0.5),
        seed=1,
        stop=Stop(episodes=2 * days),
        promise=[Promise(), Limit(episode=60.0, action="hand over")],  # degree-hours
    )
    rooms = [Room("north", 10_000), Room("south", 20_000)]
    for _ in range(days // 2):
        for room in rooms:
            run_day(campaign, room)
    run_day(campaign, rooms[0], hours=9)  # and then darkness
    del campaign

    campaign = Campaign.open(file, bold)
    print(f"{campaign.resume_episode('north').step} hours of the day are recorded")
    for _ in range(days - days // 2):
        for room in rooms:
            run_day(campaign, room)
    for room in rooms:
        room.env.close()
    print(campaign.status())
    print(campaign.result())
    print(f"every decision can be drawn again: {campaign.verify().good}")
    return campaign.result()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
