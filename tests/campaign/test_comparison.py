"""Campaigns over several policies: a durable `compare`."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from machine import ACTIONS, HORIZON, STATES, Machine, run_episode, tables

from scopeval import Campaign, Inference, Limit, Promise, Ramp, Stop, Transitions
from scopeval.comparison.compare import comparison_of
from scopeval.comparison.mixture import MixtureEpisodes, running_weights
from scopeval.comparison.policy_set import PolicySet
from scopeval.comparison.totals import PairedSettings, PairedTotals, run_mixture
from scopeval.errors import CampaignError, DataError, InputError

OLD, NEW = tables()
BOTH = {"today": OLD, "new": NEW}


def created(where, policies=BOTH, **terms):
    """A campaign whose looks are asked for, so that they come at the same episode."""
    campaign = Campaign.create(where, policies, **{"horizon": HORIZON, "seed": 3} | terms)
    campaign.backend.on_look = None
    return campaign


class Through:
    """Runs the episodes of a comparison in memory by a campaign, with weights of its own."""

    def __init__(self, campaign, policies):
        self.campaign, self.policies = campaign, policies

    def run(self, first, count, shares):
        rows = [self.one(shares) for _ in range(count)]
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        log_probs = columns.pop("log_probs")
        with np.errstate(divide="ignore"):  # a policy may have no share any more
            weights = running_weights(log_probs, shares)
        return MixtureEpisodes(
            **columns,
            weights=weights,
            shares=np.tile(shares, (count, 1)),
            failed=np.zeros((count, len(shares)), bool),
        )

    def one(self, shares):
        episode, machine = self.campaign.start(), Machine()
        kept = self.campaign.backend.state  # the shares are those of the runner
        with self.campaign.backend.store.read() as connection:
            assert np.allclose(kept(connection).lines[episode.number].shares, shares, 1e-12)
        obs, T = machine.first(episode.number), HORIZON
        row = {name: np.zeros(T) for name in ("reward", "cost")}
        row |= {name: np.zeros(T, np.int64) for name in ("obs", "action")}
        row["log_probs"] = np.zeros((T, len(self.policies)))
        while not episode.over:
            t = episode.step
            action = episode.act(obs)
            reward, cost, following, ended = machine.step(episode.number, t, obs, action)
            row["obs"][t], row["action"][t] = obs, action
            row["reward"][t], row["cost"][t] = reward, cost
            with np.errstate(divide="ignore"):
                row["log_probs"][t] = [np.log(p[obs, action]) for p in self.policies.values()]
            episode.observe(reward, cost, following, terminated=ended)
            obs = following
        row |= {"length": np.int64(episode.step), "last_obs": np.int64(obs)}
        row |= {"terminated": episode.terminated, "index": np.int64(episode.number)}
        episode.end()
        return row


@pytest.mark.parametrize(
    "run",
    [
        {"stop": Stop(episodes=90)},
        {"stop": Stop(episodes=120, precision=0.9, every=30)},
        {"stop": Stop(episodes=400, decided=True, every=40), "worse": 1.5},
        {"stop": Stop(episodes=150, every=25), "ramp": Ramp((0.2, 1.0), episodes=50)},
        {"stop": Stop(episodes=200, decided=True, every=50), "three": True, "worse": 1.5},
    ],
    ids=["fixed", "precision", "decided", "ramp", "three"],
)
def test_the_result_is_that_of_compare_on_the_same_episodes(place, run):
    """The loop of `compare` draws its batches from a campaign.

    Ends, shares, values and intervals are the same, with weights that are computed here.
    """
    policies = dict(BOTH)
    if "worse" in run:  # it takes the dear and bad action much more often
        policies["new"] = 0.25 * OLD + 0.75 * np.eye(ACTIONS)[[2] * STATES]
    if "three" in run:
        policies["other"] = 0.9 * OLD + 0.1 / ACTIONS
    stop, ramp = run["stop"], run.get("ramp")
    with created(place / "c", policies, stop=stop, ramp=ramp) as campaign:
        several = PolicySet(policies)
        shares = np.full(len(policies), 1.0 / len(policies))
        inference = Inference(interval="sequence")
        settings = PairedSettings(several, inference, 1.0, stop.episodes or 1000, 3)
        costs = settings.costs(None, 1.0 / len(policies), HORIZON)

        class Looks(Through):
            def run(self, first, count, shares):
                part = super().run(first, count, shares)
                campaign.look()
                return part

        totals = PairedTotals(settings, stop, shares, ramp)
        outcome = run_mixture(Looks(campaign, policies).run, totals, stop, costs)
        wanted = comparison_of(outcome, settings, "", costs)
        found = campaign.result()
        assert found.episodes == wanted.episodes
        assert found.dropped == wanted.dropped
        if not outcome.stopped.startswith("all"):
            assert campaign.status().done == outcome.stopped
            with pytest.raises(CampaignError) as refused:
                campaign.start()
            assert refused.value.code == "plan_reached"
        for name in policies:
            for one, other in ((found.values[name], wanted.values[name]),) + (
                ((found.differences[name], wanted.differences[name]),) if name != "today" else ()
            ):
                assert one.estimate == pytest.approx(other.estimate, rel=1e-9)
                assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)
        assert found.cost.total == pytest.approx(wanted.cost.total)
        if run.get("worse") and "three" not in run:
            assert found.differences["new"].verdict == "worse"
            assert outcome.stopped == "stopped when it was decided"
        assert campaign.verify().good


def test_weights_survive_a_crash_bit_for_bit(place):
    with created(place / "c") as campaign:
        episode = campaign.start("a")
        obs = 1
        for _ in range(3):
            action = episode.act(obs)
            reward, cost, obs, _ = Machine().step(0, episode.step, obs, action)
            episode.observe(reward, cost, obs)
        episode.act(obs)
        told = episode.running.weights[0]
        with Campaign.open(place / "c", BOTH) as again:
            resumed = again.resume_episode("a")
            assert np.array_equal(resumed.running.log_weights, episode.running.log_weights)
            assert (resumed.returned, resumed.weight) == (episode.returned, episode.weight)
        assert told @ [0.5, 0.5] == pytest.approx(1.0)  # always


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ("UPDATE steps SET log_weights = '[0.3, -0.3]' WHERE episode = 2 AND step = 1", "weights"),
        ("UPDATE steps SET target_probabilities = '[0.5, 0.5]' WHERE episode = 2 AND step = 0", ""),
        ("UPDATE steps SET probability = 0.9 * probability WHERE episode = 2 AND step = 0", ""),
        ("UPDATE events SET data = replace(data, '[0.5, 0.5]', '[0.4, 0.6]')"
         " WHERE kind = 'started' AND episode = 2", "event"),
        ("UPDATE events SET data = replace(data, '\"best\": false', '\"best\": true')"
         " WHERE kind = 'look'", "event"),
    ],
)  # fmt: skip
def test_edits_are_found(place, edit, found):
    with created(place / "c", stop=Stop(episodes=8, every=4)) as campaign:
        for _ in range(8):
            run_episode(campaign)
            campaign.look()
        assert campaign.verify().good
    with sqlite3.connect(place / "c") as database:
        assert database.execute(edit).rowcount >= 1
    database.close()
    with Campaign.open(place / "c", BOTH, check=False) as campaign:
        checked = campaign.verify()
        assert not checked.good
        assert found in " ".join(checked.first)


class Failing:
    """Gives NaN from some number of answers on."""

    def __init__(self, table, after):
        self.table, self.left = table, after

    def probs(self, obs, t):
        self.left -= len(obs)
        return self.table[obs] * (np.nan if self.left < 0 else 1.0)


def test_a_policy_that_fails_has_no_value_and_the_others_go_on(place):
    policies = {"today": OLD, "new": NEW, "bad": Failing(OLD, 12)}
    with created(place / "c", policies, stop=Stop(episodes=40, every=20)) as campaign:
        for _ in range(40):
            run_episode(campaign)
            campaign.look()
        status, result = campaign.status(), campaign.result()
        assert [one.verdict for one in status.policies][::2] == ["baseline", "failed"]
        assert status.policies[2].share == 0.0
        assert "bad" in " ".join(status.problems)
        assert result.differences["bad"].verdict == "failed"
        assert np.isfinite(result.differences["new"].estimate)
        assert "NaN" in result.failures["bad"]
        (event,) = [e for e in campaign.events() if e.kind == "policy failed"]
        assert event.data["policy"] == 2
        shares = [e.data["shares"] for e in campaign.events() if e.kind == "started"]
        assert shares[0] == [1 / 3] * 3
        assert shares[-1] == [0.5, 0.5, 0.0]


def test_no_comparison_without_the_baseline(place):
    policies = {"today": Failing(OLD, 12), "new": NEW}
    with created(place / "c", policies) as campaign:
        for _ in range(40):
            if campaign.status().done is not None:
                break
            run_episode(campaign)
        assert "the baseline failed" in campaign.status().done
        with pytest.raises(CampaignError, match="the baseline failed"):
            campaign.start()


def test_nobody_answers(place):
    policies = {name: Failing(OLD, 1) for name in ("today", "new")}
    with created(place / "c", policies) as campaign:
        episode = campaign.start()
        episode.act(1)
        episode.observe(0.0, 1.0, 2)
        with pytest.raises(InputError, match="none has an answer"):
            episode.act(2)
        episode.lose("no policy answers")
        assert campaign.verify().different == 1  # such policies cannot be asked again


def test_a_policy_that_never_answers_is_told_at_the_first_step(place):
    with created(place / "c", {"today": OLD, "bad": Failing(OLD, 0)}) as campaign:
        episode = campaign.start()
        with pytest.raises(InputError, match=r"policies\['bad'\]"):
            episode.act(1)
        assert campaign.status().last_event == 2  # nothing was recorded


def test_after_a_limit_the_baseline_decides_and_the_weights_stay(place):
    guards = [Limit(step=2.0, action="fall back")]
    with created(place / "c", promise=guards, stop=Stop(episodes=60)) as campaign:
        for _ in range(60):
            run_episode(campaign)
        found = campaign.result(keep=True).recorded
        back = found.back < found.length
        assert back.any()
        for i in np.flatnonzero(back):
            t = found.back[i]
            assert found.cost[i, t - 1] > 2.0
            assert (found.weights[i, t:] == found.weights[i, t]).all()
        with campaign.backend.store.read() as connection:
            rows = connection.exec_driver_sql(
                "SELECT DISTINCT chooser FROM steps ORDER BY chooser"
            ).scalars()
            assert list(rows) == ["baseline", "mixture"]
        assert campaign.verify().good
        assert np.allclose(found.weights @ [0.5, 0.5], 1.0)


class Fixed:
    """Probabilities [T, A], whatever the state is."""

    def __init__(self, table):
        self.table = table

    def probs(self, obs, t):
        return np.tile(self.table[t], (len(obs), 1))


def test_a_fallback_leaves_the_estimates_unbiased():
    """Exact: the mean of the doubly robust value over all trajectories, with control taken back."""
    from scopeval.comparison.estimators import AskedControls, doubly_robust
    from scopeval.comparison.policy_set import PolicySet

    rng = np.random.default_rng(1)
    p = np.array([0.5, 0.5])
    pis = rng.dirichlet(np.ones(2), (2, 2))  # [K, t, A]
    reward = rng.normal(size=(2, 2))
    controls = rng.normal(size=(2, 2, 2))

    policies = PolicySet({name: Fixed(table) for name, table in zip("ab", pis, strict=True)})
    known = AskedControls(policies, lambda k, obs, t: np.tile(controls[k, t], (len(obs), 1)))
    mean, true = np.zeros(2), np.zeros(2)
    for first in range(2):
        mu = float(p @ pis[:, 0, first])
        u = pis[:, 0, first] / mu
        for second in range(2):  # action 1 passes a limit: the baseline decides the second step
            taken = first == 1
            nu = float(pis[0, 1, second]) if taken else float((p * u) @ pis[:, 1, second])
            after = u if taken else u * pis[:, 1, second] / nu
            episodes = MixtureEpisodes(
                obs=np.zeros((1, 2), np.int64),
                action=np.array([[first, second]]),
                reward=np.array([[reward[0, first], reward[1, second]]]),
                cost=np.zeros((1, 2)),
                weights=np.stack([np.ones(2), u, after])[None],
                shares=p[None],
                length=np.array([2]),
                last_obs=np.zeros(1, np.int64),
                terminated=np.ones(1, bool),
                index=np.zeros(1, np.int64),
                failed=np.zeros((1, 2), bool),
                back=np.array([1 if taken else 2]),
            )
            b, bbar = known.over(episodes)
            mean += mu * nu * doubly_robust(episodes, 1.0, b, bbar)[0]
            for k in range(2):
                then = pis[0, 1, second] if taken else pis[k, 1, second]
                true[k] += pis[k, 0, first] * then * (reward[0, first] + reward[1, second])
    assert mean == pytest.approx(true, abs=1e-12)


def test_a_refuted_promise_ends_the_comparison(place):
    dear = 0.02 * OLD + 0.98 * np.eye(ACTIONS)[[2] * STATES]
    cheap = np.eye(ACTIONS)[[0] * STATES]
    with created(place / "c", {"today": cheap, "new": dear}, promise=[Promise()]) as campaign:
        for _ in range(200):
            run_episode(campaign)
            if campaign.status().state != "running":
                break
        status = campaign.status()
        assert status.state == "handed over"
        assert "today's" in status.guards[0].rule
        before = campaign.result().episodes
        run_episode(campaign)
        episode = campaign.start()
        episode.act(1)
        assert episode.by == "baseline"
        assert campaign.result().episodes == before  # later ones are about today's alone
        assert "handed over to today" in campaign.result().stopped
        assert campaign.result().certificate.verdict != "certified"
        assert campaign.verify().good


def test_a_design_runs_where_the_policies_would_cost_more_than_promised(place):
    rng = np.random.default_rng(0)
    rows, machine = [], Machine(5)
    for episode in range(300):
        obs = machine.first(episode)
        for t in range(HORIZON):
            action = int(rng.integers(ACTIONS))
            reward, cost, following, ended = machine.step(episode, t, obs, action)
            rows.append((t, obs, action, reward, cost, following, ended))
            obs = following
            if ended:
                break
    names = ("t", "obs", "action", "reward", "cost", "next_obs", "terminated")
    logs = Transitions(
        **{n: np.array(x) for n, x in zip(names, zip(*rows, strict=True), strict=True)}
    )
    dear = 0.5 * OLD + 0.5 * np.eye(ACTIONS)[[2] * STATES]
    policies = {"today": OLD, "new": dear}
    with created(place / "c", policies, logs=logs, promise=Promise()) as campaign:
        assert len(campaign.terms.shares) == 3
        for _ in range(30):
            run_episode(campaign)
        wanted = campaign.result()
        assert set(wanted.values) == {"today", "new"}
        assert campaign.verify().good
    with Campaign.open(place / "c") as again:  # the tables, the design and the logs are in there
        assert again.result().differences == wanted.differences
        assert again.verify().good
        assert run_episode(again) == 30


def test_a_dropped_episode_is_looked_at_without(place):
    with created(place / "c", stop=Stop(episodes=12, every=6)) as campaign:
        for _ in range(12):
            run_episode(campaign)
            campaign.look()
        before = campaign.status()
        campaign.drop(3, "a broken sensor")
        assert campaign.look()
        assert not campaign.look()
        after = campaign.status()
        assert (before.looked, after.looked) == (12, 11)
        assert after.policies[1].difference != before.policies[1].difference
        assert campaign.result().lost == 1


def test_a_look_is_made_by_itself(place):
    with Campaign.create(
        place / "c", BOTH, horizon=HORIZON, stop=Stop(episodes=60, every=30)
    ) as campaign:
        for _ in range(60):
            run_episode(campaign)
        campaign.backend.look_thread.wait()
        status = campaign.status()
        assert status.looked == 60
        assert "whether new is better" in status.answer.lower()
        assert "new less today" in campaign._repr_html_()
        told = []
        campaign.track(told.append)
        assert told[0].more["difference/new"] == status.policies[1].difference


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: created(p, {"a": OLD}), "at least two"),
        (lambda p: created(p, BOTH, baseline="x"), "baseline"),
        (lambda p: created(p, BOTH, behavior=NEW), "behavior"),
        (lambda p: created(p, BOTH, run={"today": 1.0}), "shares"),
        (lambda p: created(p, BOTH, refit=True), "refit"),
        (lambda p: created(p, OLD, run={"today": 1.0}), "run"),
        (lambda p: created(p, OLD, stop=Stop(decided=True)), "decided"),
        (lambda p: created(p, BOTH, ramp=Ramp((0.0, 1.0))), "ramp"),
    ],
)
def test_wrong_arguments(place, call, message):
    with pytest.raises(InputError, match=message):
        call(place / "c")


def test_a_policy_that_was_taken_out_of_the_file_is_told(place):
    created(place / "c").close()
    with sqlite3.connect(place / "c") as database:
        database.execute("UPDATE designs SET fingerprint = NULL, content = NULL WHERE number = 2")
    database.close()
    with pytest.raises(DataError, match="design 2"):
        Campaign.open(place / "c", BOTH)


def test_other_policies_are_refused(place):
    created(place / "c").close()
    with Campaign.open(place / "c", BOTH) as campaign:
        run_episode(campaign)
    for policies, message in (
        (OLD, "compares today, new"),
        ({"today": OLD, "other": NEW}, "these names"),
        ({"today": NEW, "new": OLD}, "is not the policy of"),
    ):
        with pytest.raises(InputError, match=message):
            Campaign.open(place / "c", policies)
    Campaign.create(place / "d", OLD, horizon=HORIZON).close()
    with pytest.raises(InputError, match="one target policy"):
        Campaign.open(place / "d", BOTH)
    functions = {name: lambda obs, t, p=p: p[obs] for name, p in BOTH.items()}
    with created(place / "e", functions) as campaign:
        run_episode(campaign)
    with Campaign.open(place / "e") as looking:
        assert looking.status().finished == 1
        with pytest.raises(InputError, match="cannot hold them"):
            looking.result()


def test_continuous_policies_share_episodes_by_their_densities(place):
    from scopeval import GaussianPolicy

    def policy(shift):
        return GaussianPolicy(
            lambda obs, t: np.full((len(obs), 1), shift), [-0.7], low=[-1.0], high=[1.0]
        )

    with created(place / "c", {"today": policy(0.0), "new": policy(0.2)}) as campaign:
        for number in range(30):
            episode = campaign.start()
            rng = np.random.default_rng(number)
            obs = rng.normal(size=2)
            while not episode.over:
                action = episode.act(obs)
                assert -1.0 <= action[0] <= 1.0
                obs = rng.normal(size=2)
                episode.observe(float(action[0]), 1.0, obs)
            episode.end()
        result = campaign.result(keep=True)
        weights = result.recorded.weights
        assert np.allclose(weights @ [0.5, 0.5], 1.0)
        assert np.ptp(weights[:, -1]) > 0.1
        assert campaign.verify().good
        assert (
            abs(result.differences["new"].estimate - HORIZON * 0.2)
            < 5 * result.differences["new"].se + 0.2
        )
