"""Golden cases of `design`: tables, networks, continuous actions, and where it falls back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.mlp.regression import MLPRegression
from golden_worlds import (
    ACTION,
    COUNTS,
    METHODS,
    SIZE,
    STEPS,
    Floats,
    Numbers,
    case,
    changing,
    documented,
    drifting,
    fields,
    grid,
    leaning,
    of_behavior,
    of_log,
    of_table,
    prefixed,
    push_design,
    small_mlp,
    small_model,
    thin_grid,
)
from scopeval import (
    BehaviorPolicy,
    CallablePolicy,
    Check,
    Method,
    Networks,
    Promise,
    Table,
    TabularPolicy,
    TorchPolicy,
    Transitions,
    as_policy,
    design,
    exact,
    load,
    read_logs,
    stream_logs,
    write_logs,
)
from scopeval.envs.gridworld import cells


def table_case(
    name: str,
    log: Callable[[], Any] | None = None,
    world: Callable[[], tuple[exact.TabularMDP, TabularPolicy, Transitions]] = grid,
    **settings: Any,
) -> None:
    """Register a design for state numbers."""

    def run() -> Numbers:
        mdp, target, logged = world()
        source = logged if log is None else log()
        behavior = design(source, target, horizon=mdp.horizon, **settings)
        return of_behavior(behavior) | of_table(*behavior.table(mdp.states), mdp, target)

    case(name if "." in name else f"table.{name}")(run)


for _method in METHODS:
    table_case(_method, method=_method)
table_case("scope-episode", method="scope", promise=Promise(per="episode"))
table_case("scope-dr-episode", method="scope-dr", promise=Promise(per="episode"))
table_case("scope-episode-epsilon", method="scope", promise=Promise(at_most=1.05, per="episode"))
table_case("scope-constraint-target", method=Method("scope", constrained=True, constraint="target"))
table_case(
    "scope-dr-constraint-target",
    method=Method("scope-dr", control_variate=True, constrained=True, constraint="target"),
    promise=Promise(at_most=1.1),
)
table_case("scope-limit", method="scope", promise=Promise(limit=2.0, per="state"))
table_case("scope-limit-infeasible", method="scope", promise=Promise(limit=0.4, per="state"))
table_case("scope-dr-limit", method="scope-dr", promise=Promise(limit=2.5, per="state"))
table_case("scope-epsilon", method="scope", promise=Promise(at_most=1.2))
table_case(
    "scope-dr-epsilon-floor",
    method="scope-dr",
    promise=Promise(at_most=1.05),
    check=Check(floor=0.1),
)
table_case("scope-seed", method="scope", seed=5, check=Check(floor=0.0))
table_case("scope-gamma", method="scope", gamma=0.8)
table_case(
    "scope-dr-changing",
    world=changing,
    method="scope-dr",
    gamma=0.9,
    learn=Table(time_varying=True),
)
table_case("odi-changing", world=changing, method="odi", gamma=0.9, learn=Table(time_varying=True))
table_case("scope-pooled", world=changing, method="scope", gamma=0.9)
table_case(
    "scope-dr-changing-episode",
    world=changing,
    method="scope-dr",
    gamma=0.9,
    promise=Promise(at_most=1.05, per="episode"),
    learn=Table(time_varying=True),
)
table_case("features", lambda: thin_grid(15), method="scope-dr", learn=Table(features=cells(SIZE)))
table_case(
    "features-scope", lambda: thin_grid(30), method="scope", learn=Table(features=cells(SIZE))
)
table_case(
    "batches",
    lambda: (grid()[2].select(slice(k, k + 400)) for k in range(0, len(grid()[2]), 400)),
    method="scope-dr",
)
table_case("thin-dr", lambda: thin_grid(6), method="scope-dr")
table_case("dr-in-doubt", lambda: thin_grid(15, seed=1), method="scope-dr")
table_case(
    "dr-in-doubt-episode",
    lambda: thin_grid(15, seed=1),
    method="scope-dr",
    promise=Promise(at_most=1.1, per="episode"),
)
table_case(
    "more-variance", lambda: thin_grid(15), method="scope", promise=Promise(limit=1.2, per="state")
)
table_case("thin-dr-more", lambda: thin_grid(20), method="scope-dr")
table_case("thin-dopt", lambda: thin_grid(20), method="dopt")
table_case("thin-scope", lambda: thin_grid(12), method="scope")
table_case("thin-episode", lambda: thin_grid(20), method="scope", promise=Promise(per="episode"))
table_case(
    "network.mlp-states",
    lambda: thin_grid(60),
    method="scope-dr",
    learn=small_mlp(states=SIZE * SIZE),
)


@case("table.streamed")
def _streamed() -> Numbers:
    mdp, target, log = grid()
    with tempfile.TemporaryDirectory() as folder:
        for k in range(2):
            write_logs(log.select(slice(k, None, 2)), Path(folder) / f"{k}.parquet")
        batches = stream_logs(folder, batch_rows=350, horizon=mdp.horizon, actions=4)
        behavior = design(batches, target, horizon=mdp.horizon, method="scope-dr")
        again = read_logs(Path(folder) / "1.parquet", horizon=mdp.horizon)
    return (
        of_behavior(behavior)
        | of_table(*behavior.table(mdp.states), mdp, target)
        | prefixed("read", of_log(again))
    )


@case("table.no-support")
def _no_support() -> Numbers:
    """The logs show one action only; and some states not at all."""
    mdp, target, log = grid()
    one = log.select(log.action == 0)
    behavior = design(one, target, horizon=mdp.horizon, method="scope-dr")
    return of_behavior(behavior) | of_table(*behavior.table(mdp.states), mdp, target)


@case("table.unseen")
def _unseen() -> Numbers:
    """States and times that the logs do not show."""
    mdp, target, log = grid()
    some = log.select((log.obs > 9) & (log.next_obs > 9))
    behavior = design(some, target, horizon=mdp.horizon, method="scope")
    asked = np.arange(0, mdp.states, 3)
    here = [behavior.probs(asked, t) for t in (0, 2)]
    late = behavior.probs(asked[:2], mdp.horizon + 1)
    return of_behavior(behavior) | {
        "asked": here,
        "late": late,
        "counts": fields(behavior.counts, COUNTS),
    }


def noisy_rows(rows: int, noise: float, seed: int) -> Transitions:
    """Four states, three actions, and noise that decides how much critics can be trusted."""
    rng = np.random.default_rng(seed)
    s, k = rng.integers(4, size=rows), rng.integers(3, size=rows)
    reward = (s - 1.5) * (k - 1) * 0.5 + noise * rng.standard_normal(rows)
    following = (s + k + rng.integers(2, size=rows)) % 4
    t = rng.permutation(rows) % 3  # rows of no episode, in no order
    return Transitions(t, s, k, reward, 0.5 + 0.2 * k, following)


@case("table.thresholds")
def _thresholds() -> Numbers:
    """Logs on either side of the thresholds that decide which design is used."""
    target = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.4, 0.4, 0.2]])
    logs = {
        "worth-below": ("scope-dr", noisy_rows(300, 1.3, 1)),
        "worth-above": ("scope-dr", noisy_rows(400, 0.9, 5)),
        "least-below": ("scope", noisy_rows(150, 0.6, 0)),
        "least-above": ("scope", noisy_rows(100, 0.6, 5)),
    }
    log = noisy_rows(600, 0.5, 0)
    for share, seed in ((0.25, 14), (0.26, 15), (0.45, 48), (0.5, 3)):  # support
        rng = np.random.default_rng(seed)
        shown = rng.random((4, 3)) < rng.uniform(0.2, 0.8)
        logs[f"support-{share}"] = ("scope-dr", log.select(shown[log.obs, log.action]))
    numbers: Numbers = {}
    for name, (method, some) in logs.items():
        behavior = design(some, target, horizon=3, method=method)
        numbers |= prefixed(name, of_behavior(behavior))
    return numbers


@case("table.many-states")
def _many_states() -> Numbers:
    """So many states that several threads share them."""
    states, rows = 5000, 4000
    rng = np.random.default_rng(8)
    s, k = rng.integers(states, size=rows), rng.integers(3, size=rows)
    reward, cost = s / states * (k - 1) + rng.random(rows), 0.2 + rng.random(rows)
    log = Transitions(
        np.random.default_rng(9).permutation(rows) % 3, s, k, reward, cost, (s + k) % states
    )
    target = TabularPolicy(rng.dirichlet(np.ones(3), states))
    place = np.arange(states)[:, None] / states
    behavior = design(
        log,
        target,
        horizon=3,
        method="scope",
        promise=Promise(at_most=1.1),
        learn=Table(features=place),
    )
    mu, _ = behavior.table(states)
    return of_behavior(behavior) | {"sums": [mu[:, k::7].sum(axis=(0, 1)) for k in range(7)]}


@case("table.targets")
def _targets() -> Numbers:
    """A target as an array, a function and a torch module."""
    import torch

    mdp, target, log = grid()
    table = np.asarray(target.table(1)[0])
    logits = np.random.default_rng(1).normal(size=(mdp.states, 4)).astype(np.float32)
    module = torch.nn.Embedding(mdp.states, 4)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(logits))
    states = np.arange(0, mdp.states, 4)
    numbers: Numbers = {"embedding": TorchPolicy(module).probs(states, 0)}
    forms = {
        "array": table,
        "function": CallablePolicy(lambda obs, t: table[obs]),
        "module": module,
    }
    for name, form in forms.items():
        behavior = design(log, form, horizon=mdp.horizon, method="scope-dr")
        numbers |= prefixed(name, of_behavior(behavior))
        numbers[f"{name}.probs"] = [behavior.probs(states, t) for t in (0, 4)]
        numbers[f"{name}.target"] = as_policy(form).probs(states, 0)  # type: ignore[union-attr]
    return numbers


@case("table.act-save-load")
def _act() -> Numbers:
    """Single actions; the same policy from a file."""
    mdp, target, log = grid()
    behavior = design(
        log, target, horizon=mdp.horizon, method="scope-dr", promise=Promise(at_most=1.05)
    )
    with tempfile.TemporaryDirectory() as folder:
        behavior.save(Path(folder) / "mu.scope")
        back = load(Path(folder) / "mu.scope", target)
    numbers = prefixed("loaded", of_behavior(back))
    numbers["loaded.same"] = [
        np.array_equal(x, y) for x, y in zip(_pair(behavior, mdp), _pair(back, mdp), strict=True)
    ]
    for name, policy in (("act", behavior), ("loaded.act", back)):
        rng = np.random.default_rng(11)
        drawn = [policy.act(s, t, rng) for t in range(mdp.horizon) for s in (0, 7, 12, 24)]
        numbers[name] = [fields(x, ACTION) for x in drawn]
        numbers[f"{name}.counts"] = fields(policy.counts, COUNTS)
    return numbers


def _pair(behavior: BehaviorPolicy, mdp: exact.TabularMDP) -> tuple[Floats, Floats]:
    mu, b = behavior.table(mdp.states)
    assert b is not None
    return mu, b


# -- cases: designs by networks ------------------------------------------------------------------

POINTS = np.array([[1.0, 0.0], [0.4, 0.3], [1.6, -0.2], [0.9, 0.6], [40.0, 0.0]])


def of_answers(behavior: BehaviorPolicy) -> Numbers:
    """Probabilities and single actions at a few points, one of them far away."""
    rng = np.random.default_rng(3)
    before = np.array(fields(behavior.counts, COUNTS))
    drawn = [behavior.act(x, t, rng) for t in range(STEPS) for x in POINTS]
    numbers: Numbers = {"act": [fields(x, ACTION) for x in drawn]}
    if hasattr(behavior.target, "candidates"):
        offers = [behavior.target.candidates(POINTS, t, rng) for t in range(STEPS)]
        weighed = [behavior.weigh(offer, POINTS, t) for t, offer in enumerate(offers)]
        numbers["candidates"] = [offer.actions[..., 0] for offer in offers]
        numbers["probs"] = [w.probs for w in weighed]
        for w in weighed:
            behavior.counts.add_rows(w.why)
        if weighed[0].control is not None:
            numbers["control"] = [np.asarray(w.control) for w in weighed]
    else:
        numbers["probs"] = [behavior.probs(POINTS, t) for t in range(STEPS)]
    many = POINTS[0] + 0.1 * np.random.default_rng(4).standard_normal((600, 2))
    if not hasattr(behavior.target, "candidates"):  # enough for several threads
        numbers["many"] = behavior.probs(many, 1).sum(axis=0)
    return numbers | {"counts": np.array(fields(behavior.counts, COUNTS)) - before}


def vector_case(name: str, regression: Callable[[], Any], **settings: Any) -> None:
    """Register a design for vectors and finite actions."""

    def run() -> Numbers:
        behavior = design(drifting(), leaning, horizon=STEPS, learn=regression(), **settings)
        return of_behavior(behavior) | of_answers(behavior)

    case(f"network.{name}")(run)


vector_case("mlp-scope-dr", small_mlp, method="scope-dr")
vector_case("mlp-odi-changing", lambda: small_mlp(time_varying=True), method="odi")
vector_case(
    "mlp-scope-episode", small_mlp, method="scope", gamma=0.9, promise=Promise(per="episode")
)
vector_case("model-scope-dr", small_model, method="scope-dr")
vector_case(
    "model-scope-changing", lambda: small_model(time_varying=True), method="scope", gamma=0.9
)


@case("network.model-noisy")
def _noisy() -> Numbers:
    """Rewards so noisy that the control variate takes over only a part of the differences."""
    rng = np.random.default_rng(2)
    rows = 150
    x, k = rng.standard_normal((rows, 3)), rng.integers(3, size=rows)
    reward = (x[:, 0] + 0.5) * (k - 1) + 1.1 * rng.standard_normal(rows)
    following = 0.7 * x + 0.5 * rng.standard_normal((rows, 3))
    following[:, 0] += 0.3 * (k - 1)
    log = Transitions(
        np.random.default_rng(9).permutation(rows) % STEPS, x, k, reward, 0.5 + 0.5 * k, following
    )
    behavior = design(log, leaning, horizon=STEPS, method="scope-dr", learn=small_model())
    return of_behavior(behavior) | {"probs": [behavior.probs(x[:5], t) for t in range(STEPS)]}


class Quadratic:
    """A regressor: least squares on the observation, its squares and the action."""

    def fit(self, X: Floats, y: Floats) -> Quadratic:
        """Solve the normal equations."""
        z = self._features(X)
        self.weights = np.linalg.solve(z.T @ z + 1e-3 * np.eye(z.shape[1]), z.T @ y)
        return self

    def predict(self, X: Floats) -> Floats:
        """One number a row."""
        return np.asarray(self._features(X) @ self.weights)

    def _features(self, X: Floats) -> Floats:
        x, action = X[:, :2], X[:, 2:]
        return np.hstack([action, x, x * x, *(action * x[:, k : k + 1] for k in range(2))])


vector_case("supervised", lambda: documented("SupervisedRegression")(Quadratic), method="scope-dr")


@case("network.gaussian-scope-dr")
def _gaussian() -> Numbers:
    behavior = push_design("scope-dr", "state")
    with tempfile.TemporaryDirectory() as folder:
        behavior.save(Path(folder) / "mu.scope")
        back = load(Path(folder) / "mu.scope", behavior.target)
    numbers = of_behavior(behavior) | of_answers(behavior)
    return numbers | prefixed("loaded", of_answers(back))


@case("network.gaussian-scope-episode")
def _gaussian_episode() -> Numbers:
    behavior = push_design("scope", "episode")
    return of_behavior(behavior) | of_answers(behavior)


@case("network.simulator")
def _simulator() -> Numbers:
    """Dynamics that are known and not learned."""

    def step(obs: Floats, actions: Any, t: int) -> tuple[Any, Any, Any, Any]:
        push = np.asarray(actions, np.float64) - 1.0
        x = obs[:, 0] + 0.4 * push
        ahead = np.stack([x, obs[:, 1] + 0.2 * obs[:, 0]], axis=1)
        return ahead, push + 0.5 * obs[:, 0], 0.3 + push * push, x > 2.2

    known = small_model(dynamics=documented("Simulator")(step))
    behavior = design(drifting(), leaning, horizon=STEPS, method="scope-dr", learn=known)
    return of_behavior(behavior) | of_answers(behavior)


@case("network.defaults")
def _defaults() -> Numbers:
    """Default settings of the regressions, which the small settings above leave out."""
    model, mlp = Networks(), MLPRegression()
    table, wide = Table(), model.training
    caution, study = model.caution, model.study
    return {
        "model": [model.paths, model.ridge, *caution.shares, caution.least, caution.margin],
        "training": [wide.hidden, wide.steps, wide.batch, wide.rate, wide.dropout],
        "study": [study.paths, study.hidden, study.steps, study.batch, study.rate],
        "mlp": [mlp.hidden, mlp.rate, mlp.batch, mlp.first_steps, mlp.steps, mlp.patience],
        "table": [table.neighbors, table.reach, table.shrinkage],
    }
