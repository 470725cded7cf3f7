"""Comparisons by the episodes of an A/B test that was run already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from random_mdps import random_case
from scopeval import ABTest, Episodes, Transitions, assess, collect, compare, read_ab_test
from scopeval.errors import DataError, InputError

CASE = random_case(5, states=4, actions=3, horizon=5)
RNG = np.random.default_rng(5)
OLD = CASE.target
NEW = 0.7 * OLD + 0.3 * RNG.dirichlet(np.ones(3), (5, 4))
BOTH = {"today": OLD, "new": NEW}
TRUTH = assess(CASE.mdp, NEW, NEW).value - assess(CASE.mdp, OLD, OLD).value


def ab_test(count: int, seed: int = 0, labels: Any = None, group: Any = None) -> ABTest:
    """Each episode by the policy of its label, drawn at random unless they are given."""
    if labels is None:
        labels = np.random.default_rng(seed).choice(["today", "new"], count)
    labels = np.asarray(labels)
    parts = {
        name: collect(CASE.mdp, BOTH[name], episodes=count, horizon=5, seed=seed + 1000 * k)
        for k, name in enumerate(BOTH)
    }
    rows = [np.where(labels == name)[0] for name in parts]
    whole = Episodes.concat(
        [part.select(row) for part, row in zip(parts.values(), rows, strict=True)]
    )
    order = np.argsort(np.concatenate(rows), kind="stable")
    return ABTest.of(whole.select(order), labels.tolist(), group)


def test_it_is_the_answer_of_an_ab_test_with_less_variance():
    """2,000 episodes, five standard errors: fails by chance once in 2 million."""
    result = compare(ab_test(2000), BOTH)
    d = result.differences["new"]
    assert abs(d.estimate - TRUTH) < 5 * d.se
    assert d.ab_episodes > 1.3 * d.n
    assert result.episodes == 2000
    assert "a recorded A/B test" in result.ran
    assert not result.caveats


def test_logs_that_do_not_fit_are_refused():
    one = np.zeros(1)
    vectors = Transitions(
        t=[0], obs=[[0.5, 1.0]], action=[1], reward=one, cost=one, next_obs=[[0.5, 1.0]]
    )
    with pytest.raises(InputError, match="expected numbers of states"):
        compare(ab_test(200), BOTH, logs=vectors)


def test_episodes_by_name():
    """Numbers of the episodes order them; those of two collections do not tell the order."""
    parts = {
        name: collect(CASE.mdp, policy, episodes=300, horizon=5, seed=k)
        for k, (name, policy) in enumerate(BOTH.items())
    }
    with pytest.raises(DataError, match="as if one had run after the other"):
        compare(parts, BOTH)
    numbers = np.random.default_rng(2).permutation(600)
    mixed = {
        name: Episodes(**{f: getattr(e, f) for f in e.__dataclass_fields__} | {"index": some})
        for (name, e), some in zip(parts.items(), (numbers[:300], numbers[300:]), strict=True)
    }
    assert compare(mixed, BOTH).episodes == 600


def test_ordered_in_time_is_refused():
    with pytest.raises(DataError, match="change only 1 times"):
        compare(ab_test(400, labels=["today"] * 200 + ["new"] * 200), BOTH)
    with pytest.raises(DataError, match="change only 1 times"):
        compare(ab_test(20, labels=["today"] * 10 + ["new"] * 10), BOTH)
    compare(ab_test(6, labels=["today", "today", "new", "new", "new", "today"]), BOTH)


@pytest.mark.parametrize("seed", range(5))
def test_a_random_order_is_not_refused(seed: int):
    """Refused by chance once in 1,000."""
    compare(ab_test(60, seed), BOTH)


def test_assigned_by_week_the_interval_is_clustered():
    """Labels in blocks of 20 are refused as episodes, and clustered by their group."""
    labels = np.repeat(np.random.default_rng(1).choice(["today", "new"], 40), 20)
    weeks = np.repeat(np.arange(40), 20)
    with pytest.raises(DataError, match="name their column as group"):
        compare(ab_test(800, labels=labels), BOTH)
    result = compare(ab_test(800, labels=labels, group=weeks), BOTH)
    d = result.differences["new"]
    assert d.method == "clustered t"
    assert abs(d.estimate - TRUTH) < 6 * d.se
    two = np.repeat(["today", "new"], 400)
    with pytest.raises(DataError, match="fewer than two groups"):
        compare(ab_test(800, labels=two, group=two), BOTH)


def test_probabilities_that_do_not_fit_are_noticed_and_the_labels_decide():
    test = ab_test(3000)
    wrong = BOTH | {"new": np.full((5, 4, 3), 1 / 3)}
    result = compare(test, wrong)
    (caveat,) = result.caveats
    assert "do not fit the actions of its own episodes" in caveat
    assert "Caution" in result.sentence
    returns, new = test.reward.sum(axis=1), test.label == "new"
    means = returns[new].mean() - returns[~new].mean()
    d = result.differences["new"]
    assert d.estimate == pytest.approx(means, abs=0.1 * d.se)
    usual = returns[new].var() / new.sum() + returns[~new].var() / (~new).sum()
    assert d.se == pytest.approx(np.sqrt(usual), rel=0.05)
    never = np.zeros((5, 4, 3))
    never[..., 0] = 1.0
    (caveat,) = compare(test, BOTH | {"new": never}).caveats
    assert "gives probability 0" in caveat


def test_actions_that_are_unlike_those_of_the_policy_in_single_states_are_noticed():
    """Their sums over all states are as they should be, so that no sum shows it.

    In every state of an even number the first action is taken for the second, and otherwise the
    second for the first. Of tests by the true policies 0 of 40 are called wrong (1 in 1.7 million
    by chance).
    """
    half = np.full((5, 4, 3), 1 / 3)
    tilted = half.copy()
    tilted[:, ::2, 0], tilted[:, ::2, 1] = 0.6, 1 / 15
    tilted[:, 1::2, 0], tilted[:, 1::2, 1] = 1 / 15, 0.6
    rng = np.random.default_rng(0)
    state = rng.integers(4, size=(200, 5))
    action = np.array([rng.choice(3, p=tilted[0, s]) for s in state.ravel()]).reshape(200, 5)
    zeros = np.zeros((200, 5))
    label = rng.choice(["today", "new"], 200)
    test = ABTest(state, action, zeros, zeros, np.full(200, 5), label)
    (caveat,) = compare(test, {"today": half, "new": half}).caveats
    assert "by how often each was taken before" in caveat
    assert not any("do not fit" in compare(ab_test(100, seed=k), BOTH).sentence for k in range(40))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reward": np.full((6, 5), np.nan)}, "reward: got NaN or infinity in episode 0"),
        ({"length": np.zeros(6, int)}, "length: got shape (6,) and numbers from 0 to 0"),
        ({"length": np.full(6, 9)}, "expected for each of 6 episodes its number of steps, 1 to 5"),
        ({"action": np.zeros((5, 5), int)}, "action: got shape (5, 5), expected [6, 5]"),
        ({"reward": np.zeros(6)}, "reward: got shape (6,)"),
    ],
)
def test_columns_that_do_not_fit(change, said):
    test = ab_test(6)
    values = {name: getattr(test, name) for name in test.__dataclass_fields__}
    with pytest.raises(InputError) as error:
        ABTest(**values | change)
    assert said in str(error.value)


def test_logged_probabilities_that_differ_are_noticed():
    test = ab_test(500)
    values = {name: getattr(test, name) for name in test.__dataclass_fields__}
    other = ABTest(**values | {"probability": test.probability * 0.9})
    (caveat,) = compare(other, BOTH).caveats
    assert "differ from the logged ones" in caveat


def write_csv(test: ABTest, path: Path, drop: str = "") -> Path:
    names = [n for n in ("episode", "obs", "action", "reward", "policy", "week") if n != drop]
    lines = [",".join(names)]
    for i in range(len(test)):
        for t in range(int(test.length[i])):
            row = {
                "episode": i,
                "obs": test.obs[i, t],
                "action": test.action[i, t],
                "reward": repr(float(test.reward[i, t])),
                "policy": test.label[i],
                "week": f"w{i % 7}",
            }
            lines.append(",".join(str(row[name]) for name in names))
    path.write_text("\n".join(lines))
    return path


def test_a_file_gives_the_same(tmp_path: Path):
    """Without the last observation, so that the last steps teach nothing: the floor is the same."""
    test = ab_test(300)
    read = read_ab_test(write_csv(test, tmp_path / "ab.csv"), group="week")
    assert (read.obs == test.obs).all()
    assert (read.label == test.label).all()
    assert read.group is not None
    assert read.reward == pytest.approx(test.reward)
    assert read.last_obs is None
    result = compare(read, BOTH)
    ours = compare(test, BOTH)
    assert result.differences["new"].estimate == pytest.approx(
        ours.differences["new"].estimate, abs=3 * ours.differences["new"].se
    )


def test_files_that_cannot_be_read(tmp_path: Path):
    test = ab_test(40)
    with pytest.raises(DataError, match="no column 'policy'"):
        read_ab_test(write_csv(test, tmp_path / "a.csv", drop="policy"))
    with pytest.raises(DataError, match="no episode column"):
        read_ab_test(write_csv(test, tmp_path / "b.csv", drop="episode"))
    text = (tmp_path / "a.csv").read_text()
    assert text
    lines = write_csv(test, tmp_path / "c.csv").read_text().splitlines()
    lines[2] = lines[2].replace("today", "x").replace("new", "x")
    (tmp_path / "c.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="changes within an episode"):
        read_ab_test(tmp_path / "c.csv")


def test_names_and_arguments_that_do_not_fit():
    test = ab_test(40)
    with pytest.raises(InputError, match="expected names of policies that were given"):
        compare(test, {"today": OLD, "other": NEW})
    with pytest.raises(InputError, match="of which nothing is run"):
        compare(test, BOTH, episodes=10)
    with pytest.raises(InputError, match="the episodes have action"):
        compare(test, {"today": np.full((4, 2), 0.5), "new": np.full((4, 2), 0.5)})
    labels = test.label.copy()
    labels[::5] = "third"
    values = {name: getattr(test, name) for name in test.__dataclass_fields__}
    result = compare(ABTest(**values | {"label": labels}), BOTH)
    assert result.episodes == 32
    assert "left out" in result.warnings[0]
