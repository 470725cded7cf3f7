"""Files of episodes: where they come from is kept, and no file from a stranger does harm."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import asdict, fields, replace

import numpy as np
import pytest

import edited_files
from scopeval import (
    EpisodeLog,
    Episodes,
    Inference,
    Promise,
    Transitions,
    collect,
    design,
    evaluate,
)
from scopeval.collection.episodes import LostEpisode, Provenance
from scopeval.envs.tabular import TabularEnv
from scopeval.errors import DataError, InputError
from scopeval.exact import TabularMDP
from scopeval.policies.fingerprint import table_hash

FULL = Provenance("a" * 64, "b" * 64, 0.1, 0.9, "mixer 3", "2026-01-31T12:00:00+00:00")


def episodes(provenance=FULL):
    length = np.array([2, 1, 2])
    real = np.arange(2) < length[:, None]
    return Episodes(
        obs=np.where(real, 1, 0),
        action=np.where(real, 2, 0),
        reward=np.where(real, 0.5, 0.0),
        cost=np.where(real, 0.25, 0.0),
        behavior_prob=np.where(real, 0.5, 1.0),
        target_prob=np.where(real, 0.25, 1.0),
        length=length,
        last_obs=np.array([1, 2, 3]),
        terminated=np.array([False, True, False]),
        lost=(LostEpisode(3, 1, "the pump stopped", 0.5),),
        provenance=provenance,
    )


def same(a, b):
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Episodes))


# -- where episodes come from ------------------------------------------------------------------


def test_the_provenance_is_kept(tmp_path):
    path = tmp_path / "some.npz"
    for provenance in (FULL, Provenance(plant="mixer 3"), None):
        episodes(provenance).save(path)
        back = Episodes.load(path)
        assert same(back, episodes(provenance))
        if provenance is not None:
            assert asdict(back.provenance) == asdict(provenance)
            assert back.select([0]).provenance == provenance


def test_what_parts_have_in_common_is_kept():
    other = replace(FULL, plant="mixer 4", recorded="2026-01-30T12:00:00+00:00")
    both = Episodes.concat([episodes(), episodes(other)]).provenance
    assert asdict(both) == asdict(replace(other, plant=None))
    assert Episodes.concat([episodes(None), episodes(None)]).provenance is None
    part = Episodes.concat([episodes(None), episodes()]).provenance
    assert asdict(part) == asdict(Provenance(recorded=FULL.recorded))
    assert replace(FULL, recorded=None) == FULL  # the time makes no difference


@pytest.mark.parametrize("wrong", [{"target": 3}, {"gamma": "x"}, {"epsilon": float("nan")}])
def test_a_wrong_provenance_is_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Provenance(**wrong)


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    move = rng.dirichlet(np.ones(4), (4, 3))
    return TabularMDP(np.full(4, 0.25), move, rng.normal(size=(4, 3)), rng.random((4, 3)), 3)


@pytest.fixture(scope="module")
def learned():
    rng = np.random.default_rng(1)
    s, a = rng.integers(4, size=500), rng.integers(3, size=500)
    reward, cost = s + a * rng.normal(size=500), 0.1 + s * a
    log = Transitions(rng.integers(3, size=500), s, a, reward, cost, rng.integers(4, size=500))
    return design(
        log,
        edited_files.TARGETS["table"],
        horizon=3,
        gamma=0.9,
        method="scope",
        promise=Promise(at_most=1.1),
    )


def test_collect_says_where_episodes_come_from(world, learned):
    target = edited_files.TARGETS["table"]
    designed = Provenance(*learned.identify(), epsilon=0.1, gamma=0.9, plant="TabularEnv")
    own = Provenance(target=table_hash(target, 3), plant="TabularMDP")
    assert own.target == designed.target
    env = TabularEnv(world)
    assert collect(env, target, learned, horizon=3, episodes=4).provenance == designed
    assert collect(world, target, episodes=4).provenance == own
    kept = evaluate(
        env, target, learned, episodes=20, inference=Inference(keep=True)
    ).episodes.provenance
    assert kept == designed
    assert kept.recorded.startswith("20")
    assert (
        evaluate(world, target, episodes=20, inference=Inference(keep=True)).episodes.provenance
        == own
    )


def test_a_behavior_policy_is_recognized_after_loading(learned, tmp_path):
    from scopeval import load

    learned.save(tmp_path / "mu.scope")
    back = load(tmp_path / "mu.scope", learned.target)
    assert back.identify() == learned.identify()
    assert len(set(learned.identify())) == 2
    first = replace(back.critics[0], q=back.critics[0].q + 1e-9)
    other = type(back)(back.target, [first, *back.critics[1:]], back.recipe, back.report)
    assert other.identify().behavior != learned.identify().behavior


def test_a_log_of_ones_own_carries_it(learned):
    log = EpisodeLog(3, provenance=FULL)
    log.start()
    log.step(1, learned.act(1, 0, np.random.default_rng(0)), 1.0, 0.0)
    log.end()
    assert log.episodes().provenance is FULL
    assert EpisodeLog(3).episodes().provenance is None


# -- full disks --------------------------------------------------------------------------------

FULL_DISK = """
import resource, signal, sys
import numpy as np
from scopeval import Episodes
from scopeval.errors import DataError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing beyond the limit is an error then
many = np.random.default_rng(0).random((5000, 10))
ones = np.ones((5000, 10))
some = Episodes(many, many, many, many, ones, ones, np.full(5000, 10), many[:, 0], many[:, 0] > 2)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    some.save(sys.argv[1])
except DataError as error:
    print(error)
"""


def test_a_full_disk_is_a_data_error(tmp_path):
    """In a process that may write 100 kB, as on a disk that is full after them."""
    path = tmp_path / "some.npz"
    episodes().save(path)
    before = path.read_bytes()
    words = [sys.executable, "-c", FULL_DISK, str(path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert f"{path}: cannot be written (File too large)" in done.stdout, done.stderr
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["some.npz"]


# -- files from strangers ----------------------------------------------------------------------


def take_apart(raw):
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def put_together(about, arrays, compression=zipfile.ZIP_STORED):
    members = edited_files.members_of(about, arrays)
    return edited_files.sealed(edited_files.put_together(members, compression))


def test_600_edits_do_no_harm(tmp_path):
    """Seeded: a typed error, or episodes that pass every check."""
    path = tmp_path / "edited.npz"
    episodes().save(path)
    about, arrays = take_apart(path.read_bytes())
    kinds = [edited_files.edit_values, edited_files.edit_shape, edited_files.edit_type]
    kinds += [edited_files.edit_names, edited_files.edit_header, edited_files.edit_header]
    loaded = 0
    for case in range(600):
        rng = np.random.default_rng((78, case))
        header, edited = copy.deepcopy(about), dict(arrays)
        kinds[rng.integers(len(kinds))](rng, header, edited)
        raw = put_together(header, edited)
        if case % 10 == 0:
            members = [(f"{k}.npy", edited_files.npy(v)) for k, v in edited.items()]
            raw = edited_files.edit_file(rng, members)
        path.write_bytes(raw)
        try:
            back = Episodes.load(path)
        except DataError as error:
            assert str(path) in str(error)  # noqa: PT017
            continue
        loaded += 1
        assert np.isfinite(back.returns()).all()
        assert np.isfinite(back.ratios).all()
        assert repr(back)
        with contextlib.suppress(InputError):  # state numbers below 0, which any episodes may hold
            Transitions(**back.transitions())
    assert 30 < loaded < 500


def test_what_is_too_large_is_refused(tmp_path):
    path = tmp_path / "some.npz"
    episodes().save(path)
    with pytest.raises(DataError, match=r"takes [\d,]+ bytes, expected at most 100"):
        Episodes.load(path, max_bytes=100)
    about, arrays = take_apart(path.read_bytes())
    arrays["obs"] = np.zeros(40_000_000)
    path.write_bytes(put_together(about, arrays, zipfile.ZIP_DEFLATED))
    with pytest.raises(DataError, match="would unpack to"):
        Episodes.load(path)
    with pytest.raises(DataError, match="not a regular file"):
        Episodes.load(tmp_path)


def test_a_file_without_provenance_is_read(tmp_path):
    path = tmp_path / "some.npz"
    episodes(None).save(path)
    about, arrays = take_apart(path.read_bytes())
    assert set(about) == {"format", "lost", "interrupted"}
    path.write_bytes(put_together(about, arrays))
    assert same(Episodes.load(path), episodes(None))
