"""Saved behavior policies, edited as a stranger might: valid zip files with a valid checksum.

Run as a program, in a process of its own, because code that reads out of bounds may end it:

    python edited_files.py BASE TARGET FIRST CASES PROGRESS

edits the file BASE in CASES ways, seeded from FIRST on, and loads each for TARGET, a name in
`TARGETS`. Every edited file must be refused with a `DataError` or an `InputError`, or give a policy
that acts validly. PROGRESS holds the number of the case at hand; the last line printed counts the
files that were refused, and those that were loaded.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np

from scopeval import GaussianPolicy, TabularPolicy, load
from scopeval.errors import DataError, InputError
from scopeval.policies.protocols import EpisodeState, offer

STATES, ACTIONS, HORIZON, WIDTH = 4, 3, 3, 2


def leaning(obs, t):
    """Probabilities of three actions at vectors."""
    p = np.exp(np.stack([obs[:, 0], obs[:, 1], 0.1 * t + 0 * obs[:, 0]], axis=1).clip(-3, 3))
    return p / p.sum(axis=1, keepdims=True)


def pulling(obs, t):
    """Mean of a continuous action."""
    return -0.3 * obs[:, :1]


rows = np.random.default_rng(5).gamma(1.0, size=(STATES, ACTIONS)) + 0.1
TARGETS = {
    "table": TabularPolicy(rows / rows.sum(axis=1, keepdims=True)),
    "vectors": leaning,
    "continuous": GaussianPolicy(pulling, [-0.5], low=[-2.0], high=[2.0], draws=4),
}

ODD = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 10**9, -(10**9), 2**31, 2**63, 2**64, 10**400),
    *(0.5, -0.5, 1.5, -10.0, 1e9, 1e308, -1e308, 5e-324, 1e-300, float("nan"), float("inf")),
    *(float("-inf"), "", "x", "scope", "odi", "episode", "target", "table", "model", "\x1b[2J\n"),
    *("9" * 70, [], {}, [1], ["x"], [None], {"x": 1}, [[[]]], {"a": {"b": {}}}),
]
NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 1e300, -1e300, 1e-300, 5e-324, 2.0**62, 7.0]
DTYPES = [
    "<f4",
    "<f8",
    ">f8",
    "<f2",
    "<i8",
    "<i4",
    ">i8",
    "<u8",
    "|u1",
    "|b1",
    "<c16",
    "<U3",
    "|S4",
]


# -- taking a file apart, and putting it together --------------------------------------------------


def take_apart(raw):
    """Header and arrays of a saved file."""
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def npy(array):
    """An array as the content of a .npy file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def put_together(members, compression=zipfile.ZIP_STORED):
    """A zip file of (name, content) without a checksum."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore")  # names that occur twice
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def sealed(raw):
    """A zip file whose comment is its checksum, as `save` writes it."""
    content = raw[:-2] + (32).to_bytes(2, "little")
    return content + hashlib.sha256(content).digest()


def members_of(header, arrays):
    """What a saved file holds, as (name, content)."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return [
        *((f"{name}.npy", npy(array)) for name, array in arrays.items()),
        ("header.npy", npy(np.frombuffer(text, np.uint8))),
    ]


# -- edits -----------------------------------------------------------------------------------------


def places(tree, path=()):
    """Paths of everything in a tree of JSON."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def edit_header(rng, header, arrays):
    every = list(places(header))
    *way, last = every[rng.integers(len(every))]
    node = header
    for key in way:
        node = node[key]
    kind = rng.integers(8)
    if kind == 0:
        del node[last]
    elif kind == 1 and isinstance(node, dict):
        node["odd" if rng.random() < 0.5 else str(last) + "_"] = ODD[rng.integers(len(ODD))]
    elif kind == 2 and isinstance(node[last], int | float):
        node[last] = -node[last]
    elif kind == 3 and isinstance(node[last], int | float):
        node[last] = node[last] + int(rng.integers(-2, 3))
    else:
        node[last] = ODD[rng.integers(len(ODD))]


def edit_values(rng, header, arrays):
    name = pick(rng, arrays)
    array = arrays[name].copy()
    if not array.size:
        return
    value = NUMBERS[rng.integers(len(NUMBERS))]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        value = np.array([value]).astype(array.dtype)[0]
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
        value = rng.integers(256)
    which = rng.integers(3)
    if which == 0:
        array[...] = value
    elif which == 1:
        array.reshape(-1)[rng.integers(array.size)] = value
    else:
        array.reshape(-1)[rng.random(array.size) < 0.3] = value
    arrays[name] = array.view(np.bool_) if arrays[name].dtype == np.bool_ else array


def edit_shape(rng, header, arrays):
    name = pick(rng, arrays)
    array = arrays[name]
    kind = rng.integers(8)
    axis = int(rng.integers(max(array.ndim, 1)))
    if kind == 0 or array.ndim == 0:
        array = array.reshape(-1)
    elif kind == 1:
        array = array[None] if rng.random() < 0.5 else array[..., None]
    elif kind == 2:
        array = np.delete(array, 0, axis) if array.shape[axis] else array
    elif kind == 3:
        array = np.concatenate([array, array], axis)
    elif kind == 4:
        array = np.take(array, [], axis)
    elif kind == 5:
        array = array.T
    elif kind == 6:
        array = np.asfortranarray(array)
    else:
        array = np.zeros(rng.integers(0, 6, rng.integers(1, 5)), array.dtype)
    arrays[name] = array


def edit_size(rng, header, arrays):
    """One size changes wherever it occurs: arrays that still agree with each other."""
    name = pick(rng, arrays)
    if not arrays[name].ndim:
        return
    size = arrays[name].shape[rng.integers(arrays[name].ndim)]
    new = int(rng.choice([0, 1, size - 1, size + 1, 2 * size]))
    first_only = rng.random() < 0.5
    for key, array in arrays.items():
        for axis in range(array.ndim):
            if array.shape[axis] == size > 0 and not (first_only and axis):
                array = np.take(array, np.arange(max(new, 0)) % size, axis)
        arrays[key] = array
    if rng.random() < 0.5:
        header["recipe"]["horizon"] = new
    if rng.random() < 0.3:
        header["report"]["shape"]["width"] = new
    if rng.random() < 0.3:
        header["report"]["shape"]["actions"] = new


def edit_type(rng, header, arrays):
    name = pick(rng, arrays)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays[name] = arrays[name].astype(DTYPES[rng.integers(len(DTYPES))])


def edit_names(rng, header, arrays):
    name, other = pick(rng, arrays), pick(rng, arrays)
    kind = rng.integers(5)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[["odd", "shared_odd", "probe_odd", "shared_net9_w1", "q"][rng.integers(5)]] = (
            np.ones(3)
        )
    elif kind == 2:
        arrays[other + "_"] = arrays.pop(name)
    elif kind == 3:
        arrays[name], arrays[other] = arrays[other], arrays[name]
    else:
        arrays[name] = np.array([{"a": 1}], dtype=object)


EDITS = [edit_header, edit_header, edit_values, edit_shape, edit_size, edit_type, edit_names]


def pick(rng, arrays):
    names = list(arrays)
    return names[rng.integers(len(names))]


def edit_file(rng, members):
    """Edit the zip file itself."""
    kind = rng.integers(9)
    i = int(rng.integers(len(members)))
    name, content = members[i]
    if kind == 0:
        members.append(members[i])
    elif kind == 1:
        members[i] = (name, content[: rng.integers(len(content))])
    elif kind == 2:
        members[i] = (name, put_together(members))
    elif kind == 3:
        members[i] = (
            name.removesuffix(".npy") + [".txt", "", "/.npy", ".npy/"][rng.integers(4)],
            content,
        )
    elif kind == 4:  # a header that lies about the shape
        at = content.index(b"'shape': (") + 10
        lie = [b"10000000000000,", b"-1,", b"9,9,9,9,9,9,", b"((((((((,", b"2**70,", b"1e9,"]
        lie = lie[rng.integers(len(lie))]
        members[i] = (name, content[:at] + lie + content[at + len(lie) :])
    elif kind == 5:
        members[i] = (name, content[:6] + bytes([rng.integers(256)]) + content[7:])
    elif kind == 6:
        members[i] = (name, content + b"\0" * int(rng.integers(1, 100)))
    elif kind == 7:
        raw = bytearray(content)
        for at in rng.integers(len(raw), size=3):
            raw[at] = rng.integers(256)
        members[i] = (name, bytes(raw))
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    raw = bytearray(put_together(members, methods[rng.integers(4)] if kind == 8 else methods[0]))
    if rng.random() < 0.2:
        for at in rng.integers(len(raw), size=2):
            raw[at] = rng.integers(256)
    if rng.random() < 0.05:
        raw = raw[: rng.integers(len(raw))]
    return bytes(raw)


def edited(header, arrays, seed):
    """One edited file, the same for the same seed."""
    rng = np.random.default_rng((77, seed))
    header, arrays = copy.deepcopy(header), dict(arrays)
    for _ in range(rng.integers(1, 4)):
        if arrays and isinstance(header.get("report"), dict):
            # an edit before this one may have removed what it needs
            with contextlib.suppress(KeyError, TypeError, IndexError):
                EDITS[rng.integers(len(EDITS))](rng, header, arrays)
    members = members_of(header, arrays)
    raw = edit_file(rng, members) if rng.random() < 0.2 else put_together(members)
    return sealed(raw) if rng.random() < 0.98 else raw


# -- what must hold --------------------------------------------------------------------------------


def check_acts(policy, seed):
    """Probabilities are valid at any observation and time, for a batch and for one."""
    rng = np.random.default_rng(seed)
    if policy.report.shape.width is None:
        obs = np.arange(STATES)
    else:
        obs = rng.normal(size=(5, WIDTH)) * 10.0 ** rng.integers(-3, 4)
    for t in (0, HORIZON - 1, HORIZON):
        offered = offer(policy.target, obs, t, rng)
        weight = rng.choice([0.0, 1e-300, 0.5, 1.0, 3.0, 1e300], len(obs))
        mu = policy.weigh(offered, obs, t, EpisodeState.of_weights(weight)).probs
        assert np.isfinite(mu).all()
        assert (mu >= 0).all()
        assert np.abs(mu.sum(axis=1) - 1).max() < 1e-9
        assert (mu >= policy.recipe.floor * offered.probs * (1 - 1e-12)).all()
        taken = policy.act(obs[0], t, rng, weight=weight[0])
        assert 0 < taken.probability <= 1 + 1e-9
        assert np.isfinite([taken.control, taken.baseline]).all()
    assert policy.summary().isprintable() or "\n" in policy.summary()
    assert "\x1b" not in policy.summary()


def main(base, target, first, cases, progress):
    header, arrays = take_apart(Path(base).read_bytes())
    place = Path(base).with_suffix(".edited")
    warnings.simplefilter("ignore", RuntimeWarning)  # infinite weights; the policy falls back
    loaded = refused = 0
    for case in range(int(first), int(first) + int(cases)):
        Path(progress).write_text(str(case))
        place.write_bytes(edited(header, arrays, case))
        try:
            policy = load(place, TARGETS[target], check_target=case % 2 == 0)
        except (DataError, InputError):
            refused += 1
            continue
        loaded += 1
        check_acts(policy, case)
    print(refused, loaded)


if __name__ == "__main__":
    main(*sys.argv[1:])
