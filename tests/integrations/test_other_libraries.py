"""Logs and policies of other libraries, by `scopeval.integrations`.

The formats are tested with objects made by hand; with the libraries themselves where they are
installed.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from types import SimpleNamespace

import gymnasium
import numpy as np
import pyarrow as pa
import pytest

from scopeval import GaussianPolicy, as_policy, compare, read_logs
from scopeval.errors import DataError, InputError
from scopeval.integrations import d3rlpy, rllib, tables
from scopeval.integrations import sb3 as of_sb3


def runs(lengths, seed=0):
    """Episodes with L + 1 observations; every second one terminates."""
    rng = np.random.default_rng(seed)
    return [
        SimpleNamespace(
            obs=rng.standard_normal((n + 1, 2)),
            action=rng.integers(3, size=n),
            reward=rng.standard_normal(n),
            cost=rng.random(n),
            terminated=k % 2 == 0,
        )
        for k, n in enumerate(lengths)
    ]


def expected(episodes, dropped=(), cut=()):
    """The same as a log, without the last steps of some episodes, or what followed them."""
    parts = []
    for k, e in enumerate(episodes):
        n = len(e.action) - (k in dropped)
        flags = np.zeros(n, bool)
        flags[-1:] = e.terminated and k not in dropped
        followed = np.arange(n) < n - (k in cut)
        parts.append((np.arange(n), e.obs[:n], e.action[:n], e.reward[:n], e.cost[:n],
                      e.obs[1 : n + 1], flags, followed))  # fmt: skip
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated", "has_next")
    return {
        name: np.concatenate(some)
        for name, some in zip(names, zip(*parts, strict=True), strict=True)
    }


def same(log, wanted):
    for name, values in wanted.items():
        if name == "next_obs":  # not used where an episode terminated
            alive = ~wanted["terminated"] & wanted["has_next"]
            np.testing.assert_array_equal(log.next_obs[alive], values[alive])
        else:
            np.testing.assert_array_equal(getattr(log, name), values, err_msg=name)


# -- d3rlpy ----------------------------------------------------------------------------------------


def for_d3rlpy(episodes):
    return [
        {
            "observations": e.obs[:-1].astype(np.float32),
            "actions": e.action[:, None],
            "rewards": e.reward[:, None].astype(np.float32),
            "terminated": e.terminated,
        }
        for e in episodes
    ]


def as_stored(episodes):
    """As d3rlpy stores them: single precision."""
    return [
        SimpleNamespace(
            **{**vars(e), "obs": e.obs.astype(np.float32), "reward": e.reward.astype(np.float32)}
        )
        for e in episodes
    ]


def costs(obs, action, reward, next_obs):
    return np.ones(len(obs))


def without_costs(wanted):
    """What is expected where `costs` computes them."""
    return wanted | {"cost": np.ones(len(wanted["t"]))}


def check_d3rlpy(stored, episodes):
    log = read_logs(d3rlpy.steps_of_episodes(stored), cost=costs)
    same(log, without_costs(expected(as_stored(episodes), dropped={1})))


def test_episodes_of_d3rlpy():
    episodes = runs([4, 5, 3])
    check_d3rlpy([SimpleNamespace(**e) for e in for_d3rlpy(episodes)], episodes)


@pytest.mark.filterwarnings("ignore")
def test_with_d3rlpy_itself():
    pytest.importorskip("d3rlpy", reason="d3rlpy is not installed: make bench")
    from d3rlpy.dataset import Episode, InfiniteBuffer, ReplayBuffer

    episodes = runs([4, 5, 3])
    made = [Episode(**e) for e in for_d3rlpy(episodes)]
    check_d3rlpy(ReplayBuffer(InfiniteBuffer(), episodes=made).episodes, episodes)


def test_values_of_d3rlpy_make_a_policy():
    @dataclass
    class Algorithm:
        def predict_value(self, obs, action):
            return obs[:, 0] * action

    values = d3rlpy.action_values(Algorithm(), 3)
    policy = as_policy(d3rlpy.greedy(values, 3, explore=0.3))
    found = policy.probs(np.array([[1.0], [-1.0]]), 0)
    np.testing.assert_allclose(found, [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])


# -- Stable-Baselines3 -----------------------------------------------------------------------------


def fill(buffer, envs):
    """Environments side by side: episodes terminate after three steps, or are cut after four."""
    t, episode, rows = np.zeros(envs, int), np.arange(envs), []
    for k in range(11):
        obs = np.column_stack([episode, t]).astype(np.float32)
        t = t + 1
        ends, cut = (t == 3) & (episode % 2 == 0), (t == 4) & (episode % 2 == 1)
        after = np.column_stack([episode, t]).astype(np.float32)
        infos = [{"TimeLimit.truncated": bool(c)} for c in cut]
        buffer.add(
            obs, after, np.full((envs, 1), k % 3), np.full(envs, float(k)), ends | cut, infos
        )
        rows.append((k, obs, after, ends, cut))
        over = ends | cut
        t, episode = np.where(over, 0, t), np.where(over, episode + envs + 1, episode)
    return rows


class Buffer:
    """The fields of SB3's ReplayBuffer."""

    def __init__(self, size, envs):
        self.buffer_size, self.n_envs, self.pos, self.full = size, envs, 0, False
        self.observations = np.zeros((size, envs, 2), np.float32)
        self.next_observations = np.zeros((size, envs, 2), np.float32)
        self.actions = np.zeros((size, envs, 1), np.int64)
        self.rewards, self.dones, self.timeouts = (
            np.zeros((size, envs), np.float32) for _ in range(3)
        )

    def add(self, obs, after, action, reward, done, infos):
        k = self.pos
        self.observations[k], self.next_observations[k], self.actions[k] = obs, after, action
        self.rewards[k], self.dones[k] = reward, done
        self.timeouts[k] = [info["TimeLimit.truncated"] for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.pos, self.full = 0, True


def sb3_buffer(size, envs):
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return ReplayBuffer(size * envs, box, spaces.Discrete(3), "cpu", envs)


@pytest.mark.parametrize("make", [Buffer, sb3_buffer])
@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize("size", [20, 9])
def test_replay_buffers_of_sb3(make, envs, size):
    buffer = make(size, envs)
    fill(buffer, envs)
    log = read_logs(of_sb3.steps_of_replay_buffer(buffer), cost=costs)
    assert buffer.full == (size == 9)
    # the second number of an observation is the time within its episode
    np.testing.assert_array_equal(log.t, log.obs[:, 1])
    np.testing.assert_array_equal(log.next_obs[:, 1], log.t + 1)
    np.testing.assert_array_equal(log.terminated, (log.obs[:, 0] % 2 == 0) & (log.t == 2))
    assert log.action.ndim == 1
    if size == 20:
        assert len(log) == 11 * envs
    else:  # 2 steps of each environment are overwritten, and the rest of those episodes dropped
        assert 0 < len(log) < 9 * envs


class Counting(gymnasium.Env):
    """Observations [episode, t]; even episodes terminate after three steps, others never."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)
    episode = -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return np.array([self.episode, 0], np.float32), {}

    def step(self, action):
        self.t += 1
        obs = np.array([self.episode, self.t], np.float32)
        reward = 100.0 * self.episode + self.t + int(action) / 8
        return obs, reward, self.episode % 2 == 0 and self.t == 3, False, {}


def check_rollout(buffer):
    log = read_logs(of_sb3.steps_of_rollout_buffer(buffer, time_limit=4), cost=costs)
    episode, t = log.obs.T
    np.testing.assert_array_equal(log.t, t)
    np.testing.assert_array_equal(log.reward, 100 * episode + t + 1 + log.action / 8)
    np.testing.assert_array_equal(log.terminated, (episode % 2 == 0) & (t == 2))
    alive = ~log.terminated
    np.testing.assert_array_equal(log.next_obs[alive], np.column_stack([episode, t + 1])[alive])
    assert log.action.ndim == 1
    return log


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("envs", [1, 2])
def test_rollout_buffers_of_sb3(envs, trained):
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    from stable_baselines3.common.vec_env import DummyVecEnv

    limited = [lambda: gymnasium.wrappers.TimeLimit(Counting(), 4)] * envs
    model = sb3.PPO(
        "MlpPolicy", DummyVecEnv(limited), n_steps=16, batch_size=16, device="cpu", seed=0
    )
    if not trained:
        model.train = lambda: None  # training flattens some arrays of the buffer
    model.learn(16 * envs)
    assert model.rollout_buffer.generator_ready == trained
    # 3 + 4 + 3 + 4 + 2 steps; the last ones of the two that were cut are left out, and where the
    # last one of the rollout led is not known
    steps = of_sb3.steps_of_rollout_buffer(model.rollout_buffer, time_limit=4)
    log = read_logs(steps | {"cost": np.ones(14 * envs)})
    assert log.has_next.sum() == 13 * envs
    assert len(check_rollout(model.rollout_buffer)) == 13 * envs
    # the second rollout begins in the middle of an episode, whose time is unknown
    model.learn(16 * envs, reset_num_timesteps=False)
    assert check_rollout(model.rollout_buffer).obs[:, 0].min() > 4


@pytest.mark.filterwarnings("ignore")
def test_a_rollout_buffer_is_no_replay_buffer():
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, device="cpu", seed=0)
    with pytest.raises(InputError, match=r"RolloutBuffer.*try steps_of_rollout_buffer"):
        of_sb3.steps_of_replay_buffer(model.rollout_buffer)


@pytest.fixture(scope="module")
def sb3():
    return pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")


OBS = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("which", ["PPO", "A2C"])
def test_actor_critics_of_sb3_are_policies_as_they_are(sb3, which):
    import torch

    model = getattr(sb3, which)("MlpPolicy", "CartPole-v1", n_steps=8, device="cpu", seed=0)
    with torch.no_grad():
        latent = model.policy.mlp_extractor.forward_actor(torch.from_numpy(OBS))
        wanted = torch.softmax(model.policy.action_net(latent).double(), dim=1).numpy()
    for source in (model, model.policy, of_sb3.policy(model)):
        np.testing.assert_allclose(as_policy(source).probs(OBS, 0), wanted, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_dqn_is_greedy_but_for_its_exploration(sb3):
    model = sb3.DQN("MlpPolicy", "CartPole-v1", device="cpu", seed=0, buffer_size=10)
    greedy = model.predict(OBS, deterministic=True)[0]
    np.testing.assert_array_equal(as_policy(model).probs(OBS, 0), np.eye(2)[greedy])
    explored = of_sb3.policy(model, explore=0.2).probs(OBS, 0)
    np.testing.assert_allclose(explored, 0.1 + 0.8 * np.eye(2)[greedy])
    with pytest.raises(InputError, match="explore: got 2"):
        of_sb3.policy(model, explore=2)


@pytest.mark.filterwarnings("ignore")
def test_ppo_over_a_box_is_gaussian_with_the_bounds_of_its_space(sb3):
    model = sb3.PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu", seed=0)
    policy = as_policy(model)
    assert isinstance(policy, GaussianPolicy)
    assert (policy.low.tolist(), policy.high.tolist()) == ([-2.0], [2.0])
    obs = OBS[:, :3]
    actions = np.linspace(-1, 1, 5)[:, None].astype(np.float32)
    import torch

    with torch.no_grad():
        wanted = model.policy.get_distribution(torch.from_numpy(obs)).log_prob(
            torch.from_numpy(actions)
        )
    np.testing.assert_allclose(policy.log_prob(obs, actions, 0), wanted, rtol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
def test_two_checkpoints_are_compared_in_a_few_lines(sb3, tmp_path):
    for seed in (1, 2):
        made = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, device="cpu", seed=seed)
        made.save(tmp_path / f"{seed}.zip")
    PPO = sb3.PPO
    old, new = (PPO.load(tmp_path / f"{seed}.zip", device="cpu") for seed in (1, 2))
    answer = compare("CartPole-v1", {"old": old, "new": new}, episodes=20, horizon=40)
    assert answer.differences["new"].verdict in ("better", "worse", "undecided")
    assert 9 < answer.values["old"].estimate < 40  # untrained, it falls after about 20 steps
    assert "new" in answer.sentence.lower()


def test_models_without_probabilities_are_refused(sb3):
    model = sb3.SAC("MlpPolicy", "Pendulum-v1", device="cpu", seed=0, buffer_size=10)
    with pytest.raises(InputError, match=r"got SAC.*expected PPO, A2C or DQN"):
        as_policy(model)
    ppo = sb3.PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, use_sde=True, device="cpu")
    with pytest.raises(InputError, match="plain normal distribution"):
        as_policy(ppo)
    other = sb3.A2C("MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(InputError, match="only DQN explores"):
        of_sb3.policy(other, explore=0.1)


# -- RLlib -----------------------------------------------------------------------------------------


def test_batches_of_rllib():
    episodes = runs([4, 5, 3])
    wanted = expected(episodes)
    ids = np.repeat([7, 8, 9], [4, 5, 3])
    ends = np.append(ids[1:] != ids[:-1], True)
    batch = {
        "obs": wanted["obs"],
        "actions": wanted["action"],
        "rewards": wanted["reward"],
        "new_obs": wanted["next_obs"],
        "terminateds": wanted["terminated"],
        "truncateds": ends & ~wanted["terminated"],
        "eps_id": ids,
        "cost": wanted["cost"],
    }
    same(read_logs(batch, columns=rllib.COLUMNS), wanted)


def test_observations_that_rllib_compressed():
    """With LZ4, and then as base64: the text begins with the magic number of LZ4."""
    packed = base64.b64encode(bytes([4, 0x22, 0x4D, 0x18, 100, 64, 167]) + bytes(40)).decode()
    names = {"actions": [0, 1], "rewards": [1.0, 2.0], "eps_id": ["a", "a"]}
    names |= {"terminateds": [False, True], "truncateds": [False, False]}
    frame = pa.table(names | {"obs": [packed] * 2, "new_obs": [packed] * 2})
    said = r"'obs' is text such as 'BCJNG.*compressed.*RLlib.*output_compress_columns=\[\]"
    with pytest.raises(DataError, match=said):
        read_logs(frame, columns=rllib.COLUMNS, cost=costs)


def test_other_text_is_not_called_compressed():
    frame = pa.table({"obs": ["[1, 2]"], "action": [0], "reward": [1.0], "cost": [1.0], "t": [0]})
    with pytest.raises(DataError, match=r"text such as '\[1, 2\]'.*expected numbers$"):
        read_logs(frame)


def for_rllib(episodes, info):
    return [
        SimpleNamespace(
            get_observations=lambda e=e: list(e.obs),
            get_actions=lambda e=e: list(e.action),
            get_rewards=lambda e=e: list(e.reward),
            get_infos=lambda e=e: [{}, *(info(c) for c in e.cost)],
            is_terminated=e.terminated,
        )
        for e in episodes
    ]


def test_episodes_of_rllib():
    episodes = runs([4, 5, 3])
    made = for_rllib(episodes, lambda cost: {"cost": cost})
    same(read_logs(rllib.episodes(made)), expected(episodes))


def test_episodes_of_rllib_without_costs():
    episodes = runs([4, 5, 3])
    found = rllib.episodes(for_rllib(episodes, lambda cost: {}))
    same(read_logs(found, cost=costs), without_costs(expected(episodes)))
    with pytest.raises(DataError, match=r"no column for cost.*or pass the function cost="):
        read_logs(found)


def test_with_rllib_itself():
    found = pytest.importorskip(
        "ray.rllib.env.single_agent_episode", reason="RLlib is not installed", exc_type=ImportError
    )
    episodes = runs([4, 5, 3])
    made = []
    for e in episodes:
        one = found.SingleAgentEpisode()
        one.add_env_reset(e.obs[0], infos={})
        for k in range(len(e.action)):
            last = k == len(e.action) - 1
            one.add_env_step(
                e.obs[k + 1], e.action[k], e.reward[k], infos={"cost": e.cost[k]},
                terminated=last and e.terminated, truncated=last and not e.terminated,
            )  # fmt: skip
        made.append(one)
    same(read_logs(rllib.episodes(made)), expected(episodes))


# -- a row for each episode ------------------------------------------------------------------------


def rows_of(episodes, more):
    return [
        {
            "observations": e.obs[: len(e.action) + more].tolist(),
            "actions": e.action.tolist(),
            "rewards": e.reward.tolist(),
            "costs": e.cost.tolist(),
            "terminated": e.terminated,
        }
        for e in episodes
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_tables_with_a_row_for_each_episode(more):
    episodes = runs([4, 5, 3])
    wanted = expected(episodes, cut=() if more else {1})
    table = pa.Table.from_pylist(rows_of(episodes, more))
    same(read_logs(tables.episodes(table.to_pylist())), wanted)
    frame = table.to_pandas()
    same(read_logs(tables.episodes(frame.to_dict("records"))), wanted)


@pytest.mark.parametrize("more", [0, 1])
def test_such_tables_without_costs(more):
    episodes = runs([4, 5, 3])
    rows = [{k: v for k, v in row.items() if k != "costs"} for row in rows_of(episodes, more)]
    wanted = without_costs(expected(episodes, dropped=() if more else {1}))
    same(read_logs(tables.episodes(rows), cost=costs), wanted)


def test_such_tables_with_an_episode_of_no_steps():
    (row,) = rows_of(runs([3]), 1)
    nothing = {key: [] for key in ("actions", "rewards", "costs")}
    rows = [row, nothing | {"observations": [[0.0, 0.0]], "terminated": False}]
    assert len(read_logs(tables.episodes(rows))) == 3


def test_such_tables_with_flags_of_steps():
    episodes = runs([4, 5, 3])
    rows = rows_of(episodes, 0)
    for row in rows:
        row["terminated"] = [False] * (len(row["actions"]) - 1) + [row["terminated"]]
    same(read_logs(tables.episodes(rows)), expected(episodes, cut={1}))


def with_dones(episodes, flags):
    """As for the Decision Transformer: no costs, as many observations as actions."""
    names = ("observations", "actions", "rewards")
    return [
        {name: row[name] for name in names} | {"dones": some}
        for row, some in zip(rows_of(episodes, 0), flags, strict=True)
    ]


def ends(lengths):
    return [[False] * (n - 1) + [True] for n in lengths]


def test_tables_with_dones():
    episodes = runs([4, 5, 3])
    rows = with_dones(episodes, [[False] * 3 + [True], [False] * 5, [False] * 2 + [True]])
    wanted = without_costs(expected(episodes, dropped={1}))
    same(read_logs(tables.episodes(rows), cost=costs), wanted)


def test_dones_at_a_time_limit_are_no_terminations():
    episodes = runs([4, 5, 3])  # the second one is cut
    rows = with_dones(episodes, ends([4, 5, 3]))
    cut = read_logs(tables.episodes(rows, time_limit=5), cost=costs)
    same(cut, without_costs(expected(episodes, dropped={1})))
    taken = read_logs(tables.episodes(rows), cost=costs)
    assert taken.terminated.sum() == 3
    assert len(taken) == 12


def test_dones_in_the_middle_of_a_row_are_refused():
    rows = with_dones(runs([4]), [[False, True, False, True]])
    with pytest.raises(DataError, match="terminated at step 1 of 4, before its end"):
        read_logs(tables.episodes(rows), cost=costs)


def test_a_row_must_say_whether_its_episode_terminated():
    (row,) = with_dones(runs([4]), [[True] * 4])
    del row["dones"]
    with pytest.raises(DataError, match="a row has actions, observations, rewards, expected"):
        tables.episodes([row])


def test_read_without_the_helper_the_message_names_it():
    rows = with_dones(runs([4, 5, 3]), ends([4, 5, 3]))
    with pytest.raises(DataError, match=r"has 4 observations for 4 actions.*tables\.episodes"):
        read_logs(rows, columns={"terminated": "dones"}, cost=costs)


def test_with_one_observation_more_they_are_read_as_they_are():
    episodes = runs([4, 5, 3])
    same(read_logs(rows_of(episodes, 1)), expected(episodes))


@pytest.mark.filterwarnings("ignore")
def test_with_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets", reason="datasets (Hugging Face) is not installed")
    episodes = runs([4, 5, 3])
    made = datasets.Dataset.from_list(rows_of(episodes, 1))
    same(read_logs(made.to_list()), expected(episodes))
