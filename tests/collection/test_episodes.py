"""The columns of finished episodes: selection, joining, logs, files, refusals."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from scopeval import Episodes, Transitions
from scopeval._archive import write_sealed
from scopeval.collection.episodes import LostEpisode
from scopeval.errors import DataError, InputError


def sample(*, vectors=False, control=False):
    length = np.array([3, 1, 2])
    real = np.arange(3) < length[:, None]
    obs = np.arange(9).reshape(3, 3) * real
    action = (obs % 2) * real
    last = np.array([20, 21, 22])
    if vectors:
        obs, last = np.stack([obs, -obs], axis=2) / 2, np.stack([last, last], axis=1) / 2
        action = np.stack([action], axis=2) + 0.5 * real[..., None]
    return Episodes(
        obs=obs,
        action=action,
        reward=np.where(real, 1.0 + np.arange(3), 0.0),
        cost=np.where(real, 0.5, 0.0),
        behavior_prob=np.where(real, 0.5, 1.0),
        target_prob=np.where(real, 0.25, 1.0),
        length=length,
        last_obs=last,
        terminated=np.array([False, True, True]),
        control=np.where(real, 7.0, 0.0) if control else None,
        baseline=np.where(real, 6.0, 0.0) if control else None,
        by_target=np.array([False, False, True]),
        index=np.array([4, 5, 7]),
        fallbacks=np.array([1, 0, 0]),
        guarded=np.array([0, 0, 2]),
        lost=(LostEpisode(6, 2, "the pump stopped"),),
        interrupted=True,
    )


def same(a, b):
    return all(
        (x is None and y is None) or np.array_equal(x, y)
        for x, y in ((getattr(a, f.name), getattr(b, f.name)) for f in fields(Episodes))
    )


def test_sums_and_ratios():
    episodes = sample()
    np.testing.assert_array_equal(episodes.returns(), [6, 1, 3])
    np.testing.assert_array_equal(episodes.returns(0.5), [1 + 1 + 0.75, 1, 2])
    np.testing.assert_array_equal(episodes.costs(), [1.5, 0.5, 1])
    np.testing.assert_array_equal(episodes.ratios[1], [0.5, 1, 1])
    assert repr(episodes) == "Episodes(3 of at most 3 steps, 1 lost)"
    assert len(episodes) == episodes.horizon == 3


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("control", [False, True])
def test_select_concat_and_files(tmp_path, vectors, control):
    episodes = sample(vectors=vectors, control=control)
    parts = [episodes.select([0]), episodes.select(np.array([False, True, True]))]
    assert same(replace(Episodes.concat(parts), lost=episodes.lost, interrupted=True), episodes)
    assert not parts[0].lost
    path = tmp_path / "some.npz"
    episodes.save(path)
    assert same(Episodes.load(path), episodes)
    assert [p.name for p in tmp_path.iterdir()] == ["some.npz"]
    both = Episodes.concat([episodes, episodes])
    assert both.interrupted
    assert len(both.lost) == 2
    empty = episodes.select(slice(0))
    assert same(Episodes.concat([empty, episodes]), episodes)


def test_concat_fills_a_missing_control_variate_with_zero():
    both = Episodes.concat([sample(), sample(control=True)])
    np.testing.assert_array_equal(both.control[:3], 0)
    np.testing.assert_array_equal(both.baseline[3], [6, 6, 6])


def test_concat_refuses():
    short = sample().select([1])
    cut = {f.name: getattr(short, f.name) for f in fields(Episodes)}
    for name in ("obs", "action", "reward", "cost", "behavior_prob", "target_prob"):
        cut[name] = cut[name][:, :1]
    with pytest.raises(InputError, match="horizon"):
        Episodes.concat([sample(), Episodes(**cut)])
    with pytest.raises(InputError, match="widths"):
        Episodes.concat([sample(), sample(vectors=True)])
    with pytest.raises(InputError, match="nothing"):
        Episodes.concat([])


@pytest.mark.parametrize("vectors", [False, True])
def test_transitions_are_a_log(vectors):
    columns = sample(vectors=vectors).transitions()
    log = Transitions(**columns)
    assert len(log) == 6
    np.testing.assert_array_equal(log.t, [0, 1, 2, 0, 0, 1])
    np.testing.assert_array_equal(log.terminated, [0, 0, 0, 1, 0, 1])
    following = log.next_obs if log.next_obs.ndim == 1 else 2 * log.next_obs[:, 0]
    np.testing.assert_array_equal(following, [1, 2, 20, 21, 7, 22])


def test_arrays_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        sample().reward[0, 0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": [[1.0, np.nan, 0]] * 3}, "reward is not finite at episode=0, t=1"),
        ({"cost": [[-1.0, 0, 0]] * 3}, "cost < 0 at episode=0, t=0"),
        ({"cost": [[1.0, 1, 0]] * 3}, "cost is 1 at episode=1, t=1, after the end"),
        ({"behavior_prob": [[0.0, 1, 1]] * 3}, "behavior_prob outside"),
        ({"target_prob": [[1.5, 1, 1]] * 3}, "target_prob outside"),
        ({"length": [0, 1, 2]}, "length 0 at episode=0"),
        ({"length": [4, 1, 2]}, "length 4"),
        ({"length": [4, 1]}, "length has shape"),
        ({"obs": [[1, 2]] * 3}, "obs has shape"),
        ({"last_obs": [[1, 2]] * 3}, "last_obs has shape"),
        ({"reward": [1.0, 2, 3]}, r"expected \[N, T\]"),
        ({"control": np.zeros((3, 3))}, "go together"),
    ],
)
def test_refusals(change, message):
    with pytest.raises(InputError, match=message):
        replace(sample(), **change)


def test_load_says_what_is_wrong(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        Episodes.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(DataError, match=r"text\.npz"):
        Episodes.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", x=np.ones(2))
    with pytest.raises(DataError, match="not a file of episodes"):
        Episodes.load(tmp_path / "other.npz")
    sample().save(tmp_path / "good.npz")
    whole = (tmp_path / "good.npz").read_bytes()
    for cut in (10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        with pytest.raises(DataError):
            Episodes.load(tmp_path / "cut.npz")
    write_sealed(tmp_path / "new.npz", b'{"format": 9}', {})
    with pytest.raises(DataError, match="format 9"):
        Episodes.load(tmp_path / "new.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "some.npz"
    sample().save(path)
    before = path.read_bytes()

    def fail(*args, **kw):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(DataError, match=r"some.npz: cannot be written .disk full"):
        sample(control=True).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["some.npz"]
