"""Files of behavior policies: kept bit for bit, and no file from a stranger does harm."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edited_files
from behaviors import RECIPE, REPORT, vector_target
from edited_files import TARGETS, members_of, put_together, sealed, take_apart
from logged_worlds import rows_of
from random_mdps import random_case
from scopeval import (
    BehaviorPolicy,
    CallablePolicy,
    Networks,
    Table,
    TabularPolicy,
    Transitions,
    _archive,
    design,
    frontier,
    load,
)
from scopeval.behavior import file_header
from scopeval.behavior.methods import METHODS
from scopeval.behavior.promised_cost import PromisedCost
from scopeval.errors import DataError, InputError
from scopeval.models.model_critic import Study
from scopeval.models.training import Training

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def learned():
    """A table policy with a control variate, and its target."""
    case = random_case(3, states=6, actions=4, horizon=5, time_varying=False, noisy=True)
    target = TabularPolicy(case.target)
    return design(rows_of(case, 4000, seed=0), target, horizon=5, method="scope-dr"), target


def vector_log(continuous=False):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    action = rng.integers(3, size=300)
    if continuous:
        action = TARGETS["continuous"].sample(x, 0, rng)
    reward = x[:, 0] + rng.normal(size=300)
    cost, following = rng.random(300), x + 0.1 * rng.normal(size=(300, 2))
    return Transitions(rng.integers(3, size=300), x, action, reward, cost, following)


SMALL = Networks(
    training=Training(hidden=6, steps=60), study=Study(paths=60, hidden=4, steps=50), paths=60
)


@pytest.fixture(scope="module")
def network():
    """A network policy over vectors."""
    return design(vector_log(), vector_target, horizon=3, method="scope", learn=SMALL)


def table_log():
    rng = np.random.default_rng(1)
    s, a = rng.integers(4, size=500), rng.integers(3, size=500)
    reward = s + a * rng.normal(size=500)
    return Transitions(
        rng.integers(3, size=500), s, a, reward, 0.1 + s * a, rng.integers(4, size=500)
    )


def clear_log():
    """Enough rows, and little noise, for a frontier."""
    rng = np.random.default_rng(1)
    n = 4000
    s, a = rng.integers(4, size=n), rng.integers(3, size=n)
    reward = 2.0 * s * (a - 1) + 0.1 * rng.normal(size=n)
    return Transitions(rng.integers(3, size=n), s, a, reward, 0.1 + a, rng.integers(4, size=n))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """One tiny file for every kind of critic, and the name of its target."""
    place = tmp_path_factory.mktemp("saved")
    made = {
        "table": ("table", table_log(), Table()),
        "model": ("vectors", vector_log(), SMALL),
        "continuous": ("continuous", vector_log(continuous=True), SMALL),
    }
    promises = {
        "table": PromisedCost("limit", 0.1, 3.0),
        "model": PromisedCost("reference", 0.0, None, ((0.2, 0.3, 0.5), (0.1, 0.1, 0.8)), "ab"),
    }
    found = {}
    for kind, (target, log, regression) in made.items():
        mu = design(
            log,
            TARGETS[target],
            horizon=3,
            method="scope",
            learn=replace(regression, time_varying=kind == "continuous"),
        )
        # whatever so few rows bear out, the file is to use its critics
        recipe = replace(mu.recipe, method=METHODS["scope-dr"], floor=0.02, epsilon=0.1)
        report = replace(mu.report, promise=promises.get(kind))
        BehaviorPolicy(mu.target, mu.critics, recipe, report, mu.fingerprint).save(place / kind)
        found[kind] = place / kind, target
    weighted = frontier(clear_log(), TARGETS["table"], horizon=3, points=4).best()
    assert weighted.weighted
    weighted.save(place / "weighted")
    return found | {"weighted": (place / "weighted", "table")}


# -- keeping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["scope", "scope-dr", "odi", "dopt", "on-policy"])
def test_table_round_trip(method, tmp_path):
    case = random_case(4, states=5, actions=3, horizon=4, gamma=0.9, absorbing=True)
    log = rows_of(case, 2000, seed=0, absorbing=True)
    for target in (TabularPolicy(case.target), CallablePolicy(lambda s, t: case.target[t, s])):
        for varying in (False, True):
            policy = design(
                log, target, horizon=4, method=method, gamma=0.9, learn=Table(time_varying=varying)
            )
            path = tmp_path / "behavior.scope"
            policy.save(path)
            back = load(path, target)
            assert back.recipe == policy.recipe
            assert back.report == policy.report
            for mine, theirs in zip(policy.table(5), back.table(5), strict=True):
                assert (mine is None) == (theirs is None)
                if mine is not None:
                    assert mine.tobytes() == theirs.tobytes()
            assert [x.name for x in tmp_path.iterdir()] == [path.name]


def test_network_round_trip(network, tmp_path):
    path = tmp_path / "behavior.scope"
    network.save(path)
    back = load(path, vector_target)
    assert back.fingerprint.digest == network.fingerprint.digest
    obs = np.random.default_rng(0).normal(size=(50, 2))
    for t in range(3):
        assert back.probs(obs, t).tobytes() == network.probs(obs, t).tobytes()
    assert back.report == network.report


def test_saved_file_holds_no_pickle(learned, tmp_path):
    path = tmp_path / "behavior.scope"
    learned[0].save(path)
    with np.load(path, allow_pickle=False) as archive:  # still a NumPy archive for anyone
        assert {archive[name].dtype.kind for name in archive.files} <= set("bfiu")


def test_damaged_files_are_refused(learned, tmp_path):
    """300 seeded cases: bytes flipped, cut short, zeroed, doubled. A checksum misses none."""
    policy, target = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for case in range(300):
        raw = bytearray(whole)
        at = int(rng.integers(len(raw)))
        if case % 4 == 0:
            raw[at] ^= 1 << int(rng.integers(8))
        elif case % 4 == 1:
            raw = raw[:at]
        elif case % 4 == 2:
            for place in rng.integers(len(raw), size=20):
                raw[place] = (raw[place] + 1 + int(rng.integers(255))) % 256
        else:
            raw = raw[:at] + raw[max(0, at - 7) :]
        path.write_bytes(raw)
        with pytest.raises(DataError, match=r"behavior\.scope: "):
            load(path, target)
    path.write_bytes(whole)
    load(path, target)


def archive_of(**content):
    buffer = io.BytesIO()
    np.savez(buffer, **content)
    return buffer.getvalue()


def test_other_files_are_refused(learned, tmp_path, monkeypatch):
    policy, target = learned
    path = tmp_path / "behavior.scope"
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("hello.txt", "hello")
    header = np.frombuffer(b'{"format": 2, "kind": "table"}', np.uint8)
    for raw in (
        b"",
        b"x",
        pickle.dumps({"a": 1}),
        other.getvalue(),
        archive_of(a=np.zeros(3)),
        sealed(b"12"),
        sealed(pickle.dumps({"a": 1})),
        sealed(other.getvalue()),
        sealed(archive_of(a=np.zeros(3))),
        sealed(archive_of(header=np.zeros(3))),
        sealed(archive_of(header=np.array([{"a": 1}], dtype=object))),
        sealed(archive_of(header=header)),
        sealed(archive_of(header=np.frombuffer(b"[1, 2]", np.uint8))),
        sealed(archive_of(header=np.frombuffer(b"\xff\xfe", np.uint8))),
    ):
        path.write_bytes(raw)
        with pytest.raises(DataError, match="not a saved behavior policy"):
            load(path, target)
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "nothing.scope", target)
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path, target)
    monkeypatch.setattr(file_header, "FORMAT", 99)
    policy.save(path)
    monkeypatch.undo()
    with pytest.raises(DataError, match="written in format 99, this version reads 6"):
        load(path, target)


def test_loading_for_another_target_is_refused(learned, network, tmp_path):
    policy, target = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    probs = target.table(5)
    with pytest.raises(InputError, match=r"has 7 states.*designed for one with 6"):
        load(path, np.full((7, 4), 0.25))
    with pytest.raises(InputError, match=r"offers 3 actions.*designed for 4"):
        load(path, np.full((6, 3), 1 / 3))
    with pytest.raises(InputError, match=r"covers 3 time steps.*designed for 5"):
        load(path, np.array(probs[:3]))
    with pytest.raises(InputError, match="cannot be asked"):
        load(path, vector_target)
    network.save(path)
    with pytest.raises(InputError, match="cannot be asked"):
        load(path, np.full((6, 3), 1 / 3))
    with pytest.raises(InputError, match="expected an object with probs"):
        load(path, 3)


@pytest.mark.parametrize("moment", ["savez_compressed", "fsync", "replace"])
def test_never_half_written(learned, tmp_path, monkeypatch, moment):
    policy, _ = learned
    path = tmp_path / "behavior.scope"
    policy.save(path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(np if moment == "savez_compressed" else os, moment, fail)
    with pytest.raises((DataError, OSError), match="no space left"):
        policy.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [x.name for x in tmp_path.iterdir()] == [path.name]
    with pytest.raises(DataError, match="cannot be written"):
        policy.save(tmp_path / "no folder" / "behavior.scope")


def test_critics_of_ones_own_are_not_saved(learned, tmp_path):
    _, target = learned

    class Own:
        def arrays(self):
            return {"a": np.zeros(1)}

    own = BehaviorPolicy(target, [Own()], RECIPE, REPORT)
    with pytest.raises(InputError, match="Own cannot be brought back"):
        own.save(tmp_path / "x.scope")
    assert not list(tmp_path.iterdir())


# -- files from strangers ----------------------------------------------------------------------


def edit(path, change, to):
    """Write a file whose header and arrays were changed, with a checksum that is right."""
    header, arrays = take_apart(Path(path).read_bytes())
    change(header, arrays)
    to.write_bytes(sealed(put_together(members_of(header, arrays))))
    return to


def run_edits(base, target, first, cases, tmp_path):
    """Edit a file many times in a process of its own: a crash there is a failure here."""
    progress = tmp_path / "progress"
    words = [base, target, first, cases, progress]
    done = subprocess.run(
        [sys.executable, edited_files.__file__, *map(str, words)], capture_output=True, text=True
    )
    at = progress.read_text()
    assert done.returncode == 0, f"edit {at} of {base.name}: {done.returncode}\n{done.stderr}"
    return [int(word) for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("kind", "first", "cases"),
    [
        ("table", 0, 450),
        ("weighted", 450, 150),
        ("model", 600, 1100),
        ("continuous", 1700, 300),
    ],
)
def test_no_edit_of_a_file_does_harm(saved, kind, first, cases, tmp_path):
    """2,000 seeded edits: refused with a typed error, or a policy that acts validly."""
    base, target = saved[kind]
    refused, loaded = run_edits(base, target, first, cases, tmp_path)
    assert refused + loaded == cases
    assert loaded > 0.02 * cases  # some edits are harmless: not everything is refused
    assert refused > 0.5 * cases


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("table", ("cost_target", "cost_behavior", "carried", "noise", "known")),
        ("model", ("heads", "mean", "least", "low", "logged", "shared_net1_w3", "shared_fore_w1")),
    ],
)
def test_arrays_that_disagree_in_shape_are_refused(saved, kind, names, tmp_path):
    """Compiled code would read beyond their ends, and the process would be gone."""
    base, target = saved[kind]
    header, arrays = take_apart(base.read_bytes())
    path = tmp_path / "cut.scope"
    for name in names:
        for axis in np.flatnonzero(np.array(arrays[name].shape) > 1):
            cut = arrays | {name: np.take(arrays[name], [0], axis)}
            path.write_bytes(sealed(put_together(members_of(header, cut))))
            with pytest.raises(DataError, match=r"array '.*' has shape|do not fit|time steps"):
                load(path, TARGETS[target])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("floor", x) for x in (-0.5, float("nan"), "x", 1.5, None, True)),
        *(("margin", x) for x in (-10, 1.01, float("inf"))),
        *(("epsilon", x) for x in (1e9, -0.1, float("nan"), "0")),
        *(("horizon", x) for x in (-1, 0, 2, 4, 3.0, True, 10**30)),
        *(("gamma", x) for x in (0, -1, 1.1, None)),
        *(("share", x) for x in (-1, 2)),
        *(("price", x) for x in (-1, float("inf"), "x")),
        *(("limit", x) for x in (-1, float("nan"), "x")),
        *(("constraint", x) for x in ("x", None, 1)),
        *(("budget", x) for x in ("x", None, 1)),
        *(("method", x) for x in ("x", None, ["scope"])),
        ("odd", 1),
    ],
)
def test_fields_out_of_range_are_refused(saved, field, value, tmp_path):
    base, target = saved["table"]

    def change(header, arrays):
        header["recipe"][field] = value

    with pytest.raises(DataError, match=rf"bad\.scope: not a saved behavior.*({field}|horizon)"):
        load(edit(base, change, tmp_path / "bad.scope"), TARGETS[target])


@pytest.mark.parametrize(
    "prices", [[1.0, 2.0, 3], [1.0, 1.0, 4], [0.0, 2.0, 4], [1.0, 1e9, 4.0], None]
)
def test_prices_must_be_those_of_the_critics(saved, prices, tmp_path):
    base, target = saved["weighted"]

    def change(header, arrays):
        header["recipe"]["prices"] = prices

    with pytest.raises(DataError, match="prices"):
        load(edit(base, change, tmp_path / "bad.scope"), TARGETS[target])


def test_truth_values_are_true_or_false(saved, tmp_path):
    base, target = saved["table"]

    def change(header, arrays):
        arrays["known"] = np.full(arrays["known"].shape, 2, np.uint8).view(np.bool_)

    with pytest.raises(DataError, match="'known' holds bytes that are neither true nor false"):
        load(edit(base, change, tmp_path / "bad.scope"), TARGETS[target])


def test_a_policy_that_could_not_be_loaded_is_not_saved(learned, tmp_path):
    policy, target = learned
    for change in ({"floor": -0.5}, {"epsilon": 1e9}, {"horizon": 4}):
        recipe = replace(policy.recipe, **change)
        other = BehaviorPolicy(target, policy.critics, recipe, policy.report)
        with pytest.raises(InputError, match=f"save: .*({next(iter(change))})"):
            other.save(tmp_path / "x.scope")
    critic = replace(policy.critics[0], noise=np.zeros((6, 3)))
    other = BehaviorPolicy(target, [critic] * 5, policy.recipe, policy.report)
    with pytest.raises(InputError, match=r"save: critics that cannot.*'noise' has shape"):
        other.save(tmp_path / "x.scope")
    assert not list(tmp_path.iterdir())


def test_text_cannot_write_on_the_terminal(saved, tmp_path):
    base, target = saved["table"]

    def change(header, arrays):
        header["report"]["notes"] = ["harmless\x1b[2J\r\nword"]

    assert (
        "harmless?[2J??word" in load(edit(base, change, tmp_path / "x"), TARGETS[target]).summary()
    )


# -- files that would not fit ------------------------------------------------------------------


def lying(shape):
    """A .npy file without content whose header claims a shape."""
    buffer = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, about)
    return buffer.getvalue()


def memory_to_refuse(path, target, message):
    """Bytes that are allocated before a file is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            load(path, target)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_header_of_80_terabytes_is_refused(saved, tmp_path):
    base, target = saved["table"]
    members = dict(members_of(*take_apart(base.read_bytes())))
    path = tmp_path / "huge.scope"
    path.write_bytes(sealed(put_together([*(members | {"q.npy": lying((10**13,))}).items()])))
    said = "takes 80,000,000,000,000 bytes, the file holds 0"
    assert memory_to_refuse(path, TARGETS[target], said) < 10e6


@pytest.mark.parametrize("name", ["q.npy", "header.npy"])
def test_a_zip_bomb_is_refused(saved, name, tmp_path):
    """320 MB of zeros in 320 kB, in the place of an array, and in the place of the header."""
    base, target = saved["table"]
    members = dict(members_of(*take_apart(base.read_bytes())))
    bomb = lying((40_000_000,)) + bytes(320_000_000)
    raw = put_together([*(members | {name: bomb}).items()], zipfile.ZIP_DEFLATED)
    path = tmp_path / "bomb.scope"
    path.write_bytes(sealed(raw))
    assert memory_to_refuse(path, TARGETS[target], r"would unpack to 320,\d+,\d+") < 10e6


def test_a_zip_file_that_claims_more_than_it_holds(saved, tmp_path, monkeypatch):
    base, target = saved["table"]
    raw = base.read_bytes()
    arrays = take_apart(raw)[1]
    need = sum(array.nbytes for array in arrays.values())
    with pytest.raises(DataError, match=r"takes [\d,]+ bytes, expected at most .*max_bytes"):
        load(base, TARGETS[target], max_bytes=need)  # the header is not in it
    load(base, TARGETS[target], max_bytes=need + 10_000)
    with pytest.raises(DataError, match=r"takes [\d,]+ bytes, expected at most 100"):
        load(base, TARGETS[target], max_bytes=100)
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        info = archive.getinfo("q.npy")
    at = raw.index(b"PK\x01\x02")  # the zip file's own list: q claims to be 4 GB
    at = raw.index(info.file_size.to_bytes(4, "little"), at)
    content = raw[:at] + (2**32 - 2).to_bytes(4, "little") + raw[at + 4 : -32]
    path = tmp_path / "claims.scope"
    path.write_bytes(sealed(content))
    with pytest.raises(DataError, match="the file holds"):
        load(path, TARGETS[target])


def test_what_is_no_file_is_not_read(learned, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(DataError, match="not a regular file"):
            load(path, learned[1])


def test_arrays_that_compress_too_well_are_stored(tmp_path, monkeypatch):
    """What is saved can be loaded, whatever the limits."""
    monkeypatch.setattr(_archive, "FREE_BYTES", 1000)
    path = tmp_path / "zeros.npz"
    _archive.write_sealed(path, b"", {"zeros": np.zeros(100_000)})
    with path.open("rb") as file, _archive.open_archive("x", file, path.stat().st_size) as archive:
        assert archive.read("zeros").tobytes() == bytes(800_000)
    np.savez_compressed(path, zeros=np.zeros(100_000))
    with (
        pytest.raises(DataError, match="would unpack to 800,000"),
        path.open("rb") as file,
        _archive.open_archive("x", file, path.stat().st_size),
    ):
        pass


# -- another target ----------------------------------------------------------------------------


def test_another_table_is_refused(learned, tmp_path):
    policy, target = learned
    path = tmp_path / "mu.scope"
    policy.save(path)
    table = np.array(target.table(5))
    load(path, table)
    load(path, table + 1e-12)  # rounding is no other target
    table[4, 5] = np.roll(table[4, 5], 1)
    with pytest.raises(InputError, match=r"off by up to .* in probability"):
        load(path, table)
    back = load(path, table, check_target=False)
    assert "was not compared" in back.summary()
    assert back.fingerprint is None
    table = np.full((5, 40, 4), 0.25)
    mu = design(table_log(), table[:, :, :3] * 4 / 3, horizon=5, method="scope")
    mu.save(path)
    hidden = np.array(table[:, :, :3] * 4 / 3)
    hidden[1, 0] = [0.4, 0.3, 0.3]  # a time step that is not probed
    with pytest.raises(InputError, match=r"agrees at .* stored observations, but not in the whole"):
        load(path, hidden)
    load(path, np.full((40, 3), 1 / 3))  # the same, not repeated for every time step


def test_another_network_is_refused(network, tmp_path):
    path = tmp_path / "mu.scope"
    network.save(path)

    def nearly(by):
        def probs(obs, t):
            p = vector_target(obs, t) + by * np.array([1, -1, 0])
            return p

        return probs

    load(path, nearly(1e-7))
    with pytest.raises(InputError, match=r"off by up to 0\.001 in probability.*check_target=False"):
        load(path, nearly(1e-3))
    assert "was not compared" in load(path, nearly(1e-3), check_target=False).summary()


def test_another_gaussian_is_refused(saved):
    base, target = saved["continuous"]
    same = TARGETS[target]
    assert load(base, same).fingerprint.answers.shape == (48, 4, 1)
    limits = {"low": [-2.0], "high": [2.0]}
    other = type(same)(lambda obs, t: -0.31 * obs[:, :1], [-0.5], **limits, draws=4)
    with pytest.raises(InputError, match="of the largest action"):
        load(base, other)
    for kind in (TARGETS["vectors"], np.full((4, 3), 1 / 3)):
        with pytest.raises(InputError, match="offers action numbers"):
            load(base, kind)
    two = type(same)(lambda obs, t: obs, [-0.5, 0.5], low=[-2.0] * 2, high=[2.0] * 2, draws=4)
    with pytest.raises(InputError, match=r"offers 2 dimensions of actions.*designed for 1"):
        load(base, two, check_target=False)
    with pytest.raises(InputError, match="offers continuous actions"):
        load(saved["model"][0], same, check_target=False)


def test_a_target_that_is_not_repeatable_has_no_fingerprint(tmp_path):
    rng = np.random.default_rng(0)

    def restless(obs, t):
        p = 1.0 + 0.1 * rng.random((len(obs), 3))
        return p / p.sum(axis=1, keepdims=True)

    mu = design(table_log(), restless, horizon=3, method="scope")
    assert mu.fingerprint is None
    mu.save(tmp_path / "mu.scope")
    back = load(tmp_path / "mu.scope", restless)
    assert back.report.notes[-1].startswith("the target policy could not be checked")


# -- files of older versions -------------------------------------------------------------------


OLD = {
    "old_format2": "table",
    "old_format3": "table",
    "old_format3_model": "vectors",
}


@pytest.mark.parametrize(("name", "kind"), OLD.items())
def test_old_files_are_read(name, kind):
    """Files of earlier versions, and the probabilities that those had for `TARGETS`."""
    policy = load(HERE / f"{name}.scope", TARGETS[kind])
    assert "the target policy could not be checked" in policy.summary()
    said = np.load(HERE / f"{name}.npy")
    obs = np.random.default_rng(3).normal(size=(20, 2)) if kind == "vectors" else np.arange(4)
    mu = np.stack([policy.probs(obs, t) for t in range(3)])
    np.testing.assert_allclose(mu, said, rtol=1e-5 if kind == "vectors" else 1e-12, atol=0)
    assert np.abs(mu - policy.target.probs(obs, 0)).max() > 1e-3
