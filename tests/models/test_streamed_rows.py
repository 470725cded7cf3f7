"""Logs in pieces: the same bits whoever reads which piece, and the statistics of the whole log."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logged_worlds import gridworld_logs
from scopeval import Transitions, design, stream_logs, write_logs
from scopeval.envs.gridworld import Gridworld, target_policies
from scopeval.errors import DataError, InputError
from scopeval.logs.statistics import LogStatistics
from started_programs import run_ray_script

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A target, 60,000 rows in a folder of five files of different sizes, and the whole log."""
    mdp = Gridworld(10, seed=1).mdp()
    folder = tmp_path_factory.mktemp("logs")
    log = gridworld_logs(mdp, 6_000, seed=5)
    edges = [0, 20_000, 20_010, 33_000, 50_000, len(log)]
    for k in range(5):
        write_logs(log.select(slice(edges[k], edges[k + 1])), folder / f"{k}.parquet")
    return target_policies(2, 10)[1], folder, log


def told(policy) -> tuple[bytes, ...]:
    mu, _ = policy.table(100)
    words = repr((policy.recipe, policy.predicted, policy.report.warnings, policy.report.notes))
    critics = [value.tobytes() for critic in policy.critics for value in critic.arrays().values()]
    return mu.tobytes(), words.encode(), *critics


def test_workers_read_the_same_bits(world):
    target, folder, log = world
    how = {"batch_rows": 7_000, "horizon": 10}
    alone = design(stream_logs(folder, **how), target, horizon=10, method="scope")
    assert alone.report.rows == len(log)
    for workers in (1, 3):
        shared = design(
            stream_logs(folder, workers=workers, **how), target, horizon=10, method="scope"
        )
        assert told(shared) == told(alone)


def test_a_cost_function_goes_to_the_workers(world):
    target, folder, _ = world

    def cost(obs, action, reward, next_obs):
        return 1.0 + 0.1 * (action == 2)

    designs = [
        design(stream_logs(folder, cost=cost, workers=workers), target, horizon=10, method="scope")
        for workers in (None, 2)
    ]
    assert told(designs[0]) == told(designs[1])


def test_errors_come_from_workers(world, tmp_path):
    target, _, log = world
    write_logs(log.select(slice(0, 100)), tmp_path / "0.parquet")
    wrong = log.select(slice(100, 200))
    beyond = Transitions(
        t=wrong.t, obs=wrong.obs, action=wrong.action + 4, reward=wrong.reward, cost=wrong.cost,
        next_obs=wrong.next_obs, terminated=wrong.terminated,
    )  # fmt: skip
    write_logs(beyond, tmp_path / "1.parquet")
    with pytest.raises((InputError, DataError), match="action"):
        design(stream_logs(tmp_path, workers=2), target, horizon=10, method="scope")


def test_contradictions_between_files_are_found(world, tmp_path):
    """A file that is stored twice: each alone is in order."""
    target, _, log = world
    for k in range(2):
        write_logs(log.select(slice(0, 30_000)), tmp_path / f"{k}.parquet")
    with pytest.raises(DataError, match="every row occurs 2 times"):
        design(stream_logs(tmp_path), target, horizon=10, method="scope")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers: got 0"),
        ({"source": [1]}, "source: got list, expected the path"),
    ],
)
def test_what_is_refused(world, arguments, message):
    with pytest.raises(InputError, match=message):
        stream_logs(**{"source": world[1], **arguments})


# -- statistics in pieces --------------------------------------------------------------------------


def random_log(rng, rows, vectors):
    """Rows in which episodes end, jump, clash and repeat."""
    t = rng.integers(0, 4, rows)
    run = rng.random(rows) < 0.6
    for i in range(1, rows):
        t[i] = t[i - 1] + 1 if run[i] else t[i]
    shape = (rows, 2) if vectors else (rows,)
    draw = rng.standard_normal if vectors else (lambda shape: rng.integers(0, 5, shape))
    obs, next_obs = draw(shape), draw(shape)
    linked = rng.random(rows - 1) < 0.7
    next_obs[:-1][linked] = obs[1:][linked]
    return Transitions(
        t=t,
        obs=obs,
        action=rng.integers(0, 3, rows),
        reward=rng.integers(0, 2, rows) * 1.0,
        cost=rng.integers(0, 2, rows) * 1.0,
        next_obs=next_obs,
        terminated=rng.random(rows) < 0.2,
    )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 300),
    vectors=st.booleans(),
    pieces=st.integers(1, 6),
)
def test_statistics_of_pieces_are_those_of_the_whole_log(seed, rows, vectors, pieces):
    rng = np.random.default_rng(seed)
    log = random_log(rng, rows, vectors)
    with pytest.MonkeyPatch.context() as patch:  # so that all borders are met
        patch.setattr("scopeval.logs.statistics.CHUNK", 16)
        patch.setattr("scopeval.logs.statistics.CAPACITY", 30)
        whole = LogStatistics()
        whole.add(log)
        merged = LogStatistics()
        edges = np.sort(rng.integers(0, rows + 1, pieces - 1))
        for a, b in zip([0, *edges], [*edges, rows], strict=True):
            piece = LogStatistics(int(a))
            piece.add(log.select(slice(int(a), int(b))))
            merged.merge(piece)
        one, other = whole.facts(), merged.facts()
    for name, value in vars(one).items():
        found = getattr(other, name)
        if name == "times":
            for a, b in zip(vars(value).values(), vars(found).values(), strict=True):
                np.testing.assert_array_equal(a, b)
        elif name == "clash_size":
            assert found == pytest.approx(value, rel=1e-12)
        else:
            assert found == value, name


# -- ray -------------------------------------------------------------------------------------------

RAY = textwrap.dedent(
    """
    from pathlib import Path
    import ray
    import ray.data
    from scopeval import Workers, design, stream_logs
    from scopeval.envs.gridworld import target_policies
    from test_streamed_rows import told

    ray.init(
        address="local",  # whatever else runs here
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 * 2**20,
    )
    target = target_policies(2, 10)[1]
    alone = design(stream_logs({folder!r}, batch_rows=7_000), target, horizon=10)
    shared = stream_logs({folder!r}, batch_rows=7_000, workers=Workers(2, "ray"))
    assert told(design(shared, target, horizon=10)) == told(alone)
    dataset = ray.data.read_parquet({folder!r}, override_num_blocks=4)
    one = design(stream_logs(dataset, batch_rows=7_000), target, horizon=10)
    assert one.report.rows == alone.report.rows
    two = stream_logs(dataset, batch_rows=7_000, workers=Workers(2, "ray"))
    assert told(design(two, target, horizon=10)) == told(one)
    Path({done!r}).touch()
    """
)


@pytest.mark.heavy
def test_workers_of_a_cluster_and_datasets(world, tmp_path):
    """In a process of its own, so that nothing of the cluster outlives a failure."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'scopeval[ray]'")
    done = tmp_path / "done"
    (script := tmp_path / "script.py").write_text(RAY.format(folder=str(world[1]), done=str(done)))
    run_ray_script(script, Path(__file__).parent)
    assert done.exists()
