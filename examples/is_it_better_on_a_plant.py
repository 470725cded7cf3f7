"""Is the new controller better than today's, and safe? On a plant, from its historian's file.

A cold store with a control loop of its own; both controllers are deterministic. The campaign is on
disk: after a restart, `Campaign.open` goes on.

    python examples/is_it_better_on_a_plant.py [folder]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from scopeval import Campaign, Limit, Promise, Stop, deterministic, read_logs

HOURS = 16  # the nights are not recorded
COLUMNS = {"obs": "Temp [°C]", "action": "Level", "reward": "Value [EUR]", "cost": "Warm [K h]"}

today = deterministic(lambda obs: int(obs[0] > 6.0) + int(obs[0] > 9.0), actions=3)
new = deterministic(lambda obs: int(obs[0] > 5.0) + int(obs[0] > 7.0), actions=3)


class Store:
    """The plant: a compressor that is off, at half or full power; what is too warm spoils."""

    def __init__(self, seed):
        self.random, self.temp = np.random.default_rng(seed), 4.0

    def run(self, level):
        """One hour."""
        warmer = self.random.normal(1.0, 0.4)
        self.temp = float(np.clip(self.temp + warmer - (0.0, 1.2, 2.0)[level], 0.0, 12.0))
        warm = max(self.temp - 6.0, 0.0)
        return -2.0 * warm - 0.3 * (0.1, 1.0, 2.2)[level], warm  # EUR with energy; what is risked


def historian(path, days):
    """What the historian exports: times, semicolons, decimal commas."""
    store, lines = Store(0), ["Time;" + ";".join(COLUMNS.values())]
    for day in np.datetime64("2026-01-01") + np.arange(days):
        store.temp = 4.0  # in the morning
        for hour in range(HOURS):
            temp, level = store.temp, int(today.probs(np.array([[store.temp]]), hour).argmax())
            value, warm = store.run(level)
            numbers = f"{temp:.2f};{level};{value:.2f};{warm:.2f}".replace(".", ",")
            lines.append(f"{day} {hour + 6:02}:00;{numbers}")
    path.write_text("\n".join(lines), encoding="utf-8")


def main(folder):
    historian(Path(folder) / "export.csv", days=100)
    logs = read_logs(Path(folder) / "export.csv", columns=COLUMNS, time="Time", gap="61min")
    print(logs.summary())
    campaign = Campaign.create(
        Path(folder) / "store.campaign",
        {"today": today, "new": new},
        horizon=HOURS,
        logs=logs,
        promise=[Promise(), Limit(step=5.5, action="fall back")],  # no warmer than today
        stop=Stop(episodes=200),  # Stop(decided=True) ends it when it is known which is better
    )
    store = Store(1)
    while campaign.status().done is None:
        episode = campaign.start(plant="store")
        store.temp = 4.0
        while not episode.over:
            level = episode.act([store.temp])
            if level is None:  # an operator's stop: the store's own controller has control
                break
            value, warm = store.run(level)
            episode.observe(value, warm, [store.temp])
        episode.end()
    answer = campaign.result()
    print(answer.sentence, answer.certificate.sentence, sep="\n")
    campaign.close()
    return answer


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(sys.argv[1] if len(sys.argv) > 1 else temporary)
