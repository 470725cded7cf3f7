"""What logs that lie do to designs: what is said of them, what is predicted, and what is true.

    python tools/measure_lying_logs.py [--episodes 800] [--seed 0] [--only TEXT]

A ring of 12 states and an end, 4 actions, 12 steps; logs of 20 controllers that prefer one action
each. Each lie changes the logs, and three designs are made of them: by `scope`, by `scope-dr` with
one budget for whole episodes, and the point of the frontier at 0.8 of the target policy's cost.
Printed are the first words of what is said (of the logs, or of the design), and for each design the
true relative variance and cost, by dynamic programming. A dash: nothing was designed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from scopeval import Promise, TabularPolicy, Transitions, design, exact, frontier
from scopeval.envs.gridworld import logs_of
from scopeval.errors import ScopevalError
from scopeval.logs.diagnose import diagnose

STATES, ACTIONS, STEPS = 12, 4, 12
FIELDS = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
#: What is said of logs that are as they should be, or of every log of states: it names no lie.
USUAL = ("were not logged", "do not show", "nothing to gain", "episodes of the logs end")


def ring(rng: np.random.Generator) -> exact.TabularMDP:
    """Actions go one or two steps on or back; an end is met now and then."""
    S = STATES + 1
    transition = np.zeros((S, ACTIONS, S))
    for s in range(STATES):
        for a, step in enumerate((1, -1, 2, -2)):
            transition[s, a, (s + step) % STATES] += 0.75
            transition[s, a, s] += 0.2
            transition[s, a, STATES] += 0.05
    transition[STATES, :, STATES] = 1.0
    reward, cost = rng.normal(0.3, 1.0, (S, ACTIONS)), 0.2 + 1.6 * rng.random((S, ACTIONS))
    noise = 0.2 * np.ones((S, ACTIONS))
    for table in (reward, cost, noise):
        table[STATES] = 0.0
    initial = np.append(np.full(STATES, 1.0 / STATES), 0.0)
    return exact.TabularMDP(initial, transition, reward, cost, STEPS, reward_variance=noise)


def policies(rng: np.random.Generator, count: int, share: float) -> list[TabularPolicy]:
    """Random policies; `share` of their probability is that of one preferred action a state."""
    found = []
    for _ in range(count):
        rows = rng.gamma(1.0, size=(STATES + 1, ACTIONS)) + 0.05
        rows /= rows.sum(axis=1, keepdims=True)
        best = np.eye(ACTIONS)[rng.integers(ACTIONS, size=STATES + 1)]
        found.append(TabularPolicy((1.0 - share) * rows + share * best))
    return found


def changed(log: Transitions, **columns: object) -> Transitions:
    """The log with other columns."""
    return Transitions(**{name: columns.get(name, getattr(log, name)) for name in FIELDS})


def half(log: Transitions, column: str, factor: float) -> Transitions:
    """Other units from the middle on."""
    values = getattr(log, column).copy()
    values[len(values) // 2 :] *= factor
    return changed(log, **{column: values})


def stuck(log: Transitions, column: str) -> Transitions:
    """A sensor that stays at one value for a third of the rows."""
    values = getattr(log, column).copy()
    third = len(values) // 3
    values[third : 2 * third] = values[third]
    return changed(log, **{column: values})


def summed(log: Transitions) -> Transitions:
    """Costs as totals since the start of the episode."""
    cost = log.cost.copy()
    for row in np.flatnonzero(np.diff(log.t) == 1) + 1:
        cost[row] += cost[row - 1]
    return changed(log, cost=cost)


def copies(log: Transitions, times: int, more: int) -> Transitions:
    """A few episodes, stored several times, and some rows more."""
    few = log.select(slice(0, int(np.flatnonzero(log.t == 0)[9])))
    return Transitions.concat([few] * times + [log.select(slice(0, more))])


def logged(
    mdp: exact.TabularMDP, controllers: list[TabularPolicy], episodes: int, seed: int
) -> Transitions:
    """What they did, without the steps of the end."""
    log = logs_of(mdp, controllers, episodes, seed=seed)
    rest = log.obs < STATES  # the end is no step
    last = (log.next_obs == STATES)[rest]
    return changed(log.select(rest), terminated=last)


def reversed_codes(log: Transitions) -> Transitions:
    """Action 3 for 0, 2 for 1, and so on."""
    return changed(log, action=ACTIONS - 1 - log.action)


def lies(
    rng: np.random.Generator, own: Transitions, other: Transitions
) -> dict[str, Callable[[Transitions], Transitions]]:
    """Every lie by its name.

    Args:
        rng: for lies that are random.
        own: episodes of the target policy.
        other: episodes in another environment of the same kind.
    """
    tiny = lambda log: np.where(np.arange(len(log)) % 1000 == 0, 1e-9, 0.0)  # noqa: E731
    return {
        "none": lambda log: log,
        "costs all 0 but for 1e-9": lambda log: changed(log, cost=tiny(log)),
        "cost and reward swapped": lambda log: changed(
            log, cost=log.reward - log.reward.min(), reward=log.cost
        ),
        "costs one step late": lambda log: changed(log, cost=np.roll(log.cost, 1)),
        "costs cumulated": summed,
        "costs clipped at 0.8": lambda log: changed(log, cost=np.minimum(log.cost, 0.8)),
        "costs rounded": lambda log: changed(log, cost=np.round(log.cost)),
        "cost x 1000 half-way": lambda log: half(log, "cost", 1000.0),
        "reward x 100 half-way": lambda log: half(log, "reward", 100.0),
        "reward x 3 half-way": lambda log: half(log, "reward", 3.0),
        "rewards clipped to [-1, 1]": lambda log: changed(log, reward=np.clip(log.reward, -1, 1)),
        "reward sensor stuck for 1/3": lambda log: stuck(log, "reward"),
        "cost sensor stuck for 1/3": lambda log: stuck(log, "cost"),
        "actions coded in rotation": lambda log: changed(log, action=(log.action + 1) % ACTIONS),
        "states halved": lambda log: changed(
            log, obs=log.obs // 2 * 2, next_obs=np.minimum(log.next_obs // 2 * 2, STATES)
        ),
        "10 episodes x 6 and a row": lambda log: copies(log, 6, 1),
        "every reward 1e-7 apart, x 3": lambda log: Transitions.concat(
            [changed(log, reward=log.reward + 1e-7 * rng.normal(size=len(log))) for _ in range(3)]
        ),
        "cut at random, marked as ends": lambda log: changed(
            log, terminated=log.terminated | (rng.random(len(log)) < 0.05)
        ),
        "rewards and costs one row late": lambda log: changed(
            log, reward=np.roll(log.reward, 1), cost=np.roll(log.cost, 1)
        ),
        "two plants mixed": lambda log: Transitions.concat([log, other]),
        "only the target's episodes, codes reversed": lambda log: reversed_codes(own),
        "half of them the target's, codes reversed": lambda log: Transitions.concat(
            [reversed_codes(own), log]
        ),
    }


def said(log: Transitions) -> str:
    """The first thing that is said of a log, in a few words; empty: nothing."""
    found = diagnose(log)
    if found.errors:
        return f"refused: {found.errors[0]}"
    return first(found.warnings)


def first(texts: Sequence[str]) -> str:
    """The first text that names a lie; empty: there is none."""
    return next((text for text in texts if not any(words in text for words in USUAL)), "")


def worth(
    mdp: exact.TabularMDP, target: TabularPolicy, log: Transitions, name: str
) -> tuple[str, tuple[float, float] | None]:
    """What a design from the logs says, and its true relative variance and cost."""
    try:
        if name == "frontier":
            behavior = frontier(log, target, horizon=STEPS).at(cost=0.8)
            truth = exact.tabulate(mdp, target, behavior).predicted
            return "", (truth.relative_variance, truth.relative_cost)
        method, per = ("scope", "state") if name == "scope" else ("scope-dr", "episode")
        promise = Promise(per=per)
        behavior = design(log, target, horizon=STEPS, method=method, promise=promise)
    except ScopevalError as error:
        return f"refused: {error}", None
    own = exact.assess(mdp, target, target)
    truth = exact.assess(mdp, target, behavior)
    falls = "falls back" if behavior.falls_back else first(behavior.report.notes)
    return falls, (truth.variance / own.variance, truth.cost / own.cost)


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    mdp, target = ring(rng), policies(rng, 1, 0.0)[0]
    controllers = policies(rng, 20, 0.5)
    log = logged(mdp, controllers, given.episodes, given.seed)
    own = logged(mdp, [target], given.episodes, given.seed + 1)
    other = logged(ring(np.random.default_rng([given.seed, 1])), controllers, given.episodes, 2)
    print("| lie | what is said | scope: variance, cost | scope-dr | frontier at 0.8 |")
    print("|---|---|---|---|---|")
    for name, lie in lies(rng, own, other).items():
        if given.only not in name:
            continue
        wrong = lie(log)
        words = said(wrong)
        cells = []
        for kind in ("scope", "scope-dr", "frontier"):
            text, truth = worth(mdp, target, wrong, kind)
            words = words or ("" if text == "falls back" else text)
            number = "-" if truth is None else f"{truth[0]:.3f}, {truth[1]:.3f}"
            cells.append(f"{number} ({text})" if text == "falls back" else number)
        print(f"| {name} | {words[:110] or 'nothing'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
