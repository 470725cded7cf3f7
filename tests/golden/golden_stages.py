"""Golden cases of promises, stages, campaigns, shared work, and worlds that are kept."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from golden_designs import of_answers, table_case
from golden_worlds import (
    HOURS,
    INTERVAL,
    PREDICTED,
    SIZE,
    STEPS,
    Numbers,
    Store,
    case,
    changing,
    documented,
    drifting,
    fields,
    grid,
    leaning,
    of_behavior,
    of_episodes,
    of_evaluation,
    of_log,
    of_table,
    prefixed,
    small_model,
    store,
)
from scopeval import (
    Bound,
    Campaign,
    Evaluation,
    History,
    Inference,
    Limit,
    Plant,
    Promise,
    Question,
    Stages,
    Stop,
    Table,
    TabularPolicy,
    World,
    collect,
    design,
    estimate,
    evaluate,
    sample_logs,
    stream_logs,
    write_logs,
)

STAGE = "episodes by_target designed rows share estimate variance cost epsilon standard_error"
LEARNED = "refits precise_after"
BOUNDED = "largest_cost cost_bound expected_cost reasons compared"
CONTEXT = "paths share error relative_variance"
STATUS = "started finished lost open spent design stage share"


def of_promise(result: Evaluation) -> Numbers:
    """An evaluation, with all numbers of its certificate and of its context."""
    found = of_evaluation(result)
    if result.certificate is not None:
        found["bounded"] = fields(result.certificate, BOUNDED)
    if result.context is not None:
        found["context"] = fields(result.context, CONTEXT)
    return found


def of_stages(result: Evaluation) -> Numbers:
    """An evaluation in stages: what each was expected to show, counted and showed."""
    found = of_promise(result)
    found["stages"] = [fields(stage, STAGE) for stage in result.stages]
    designs = [stage.prediction for stage in result.stages if stage.prediction is not None]
    found["predictions"] = [fields(one, PREDICTED) for one in designs]
    kept = [stage.certificate for stage in result.stages if stage.certificate is not None]
    found["certificates"] = [
        [*fields(one, "verdict"), *fields(one.difference, INTERVAL)] for one in kept
    ]
    learning = result.learning
    assert learning is not None
    found["learning"] = fields(learning, LEARNED)
    found["agreements"] = [fields(one, "stage p_value rows agrees") for one in learning.agreements]
    if learning.payback is not None:
        found["payback"] = fields(learning.payback, "asked predicted after")
    return found


# -- cases: promises about the cost, and what is known before ------------------------------------

CALM = np.tile([0.6, 0.3, 0.1], (8, 1))
#: Stores that run side by side.
MANY = Plant(Store, side_by_side=4)

table_case(
    "reference", method="scope", promise=Promise(at_most=0.9, of=np.full((SIZE * SIZE, 4), 0.25))
)
table_case("cost-limit", method="scope", promise=Promise(limit=1.55))


@case("evaluate.bounds")
def _bounds() -> Numbers:
    """Bounds on costs and returns, which make certificate, guard and interval proofs."""
    mdp, target, log = grid()
    learned = design(log, target, horizon=mdp.horizon, method="scope", promise=Promise(at_most=1.1))
    plant, _, behavior = store()
    numbers: Numbers = {}
    models: dict[str, dict[str, Any]] = {
        "cost": {"promise": Promise(1.1, bound=Bound(episode=6.0))},
        "step": {"promise": Promise(at_most=1.2, bound=Bound(step=1.2))},
        "both": {
            "promise": Promise(1.1, bound=Bound(episode=5.5, step=1.2)),
            "inference": Inference(interval="sequence"),
        },
        "return": {"inference": Inference(return_bound=(-5.0, 5.0))},
        "precise": {
            "seed": 4,
            "stop": Stop(precision=0.1),
            "promise": Promise(1.1, bound=Bound(episode=6.0)),
        },
    }
    for name, settings in models.items():
        result = evaluate(mdp, target, learned, episodes=300, **settings)
        numbers |= prefixed(name, of_promise(result))
    plants: dict[str, dict[str, Any]] = {
        "store": {"promise": Promise(bound=Bound(step=2.5))},
        "discounted": {
            "policy": Question(plant, gamma=0.9),
            "seed": 3,
            "promise": Promise(bound=Bound(episode=15.0)),
            "inference": Inference(alpha=0.1),
        },
        "store-return": {
            "seed": 2,
            "promise": Promise(bound=Bound(episode=15.0)),
            "inference": Inference(return_bound=(-12.0, 6.0)),
        },
    }
    for name, settings in plants.items():
        result = evaluate(
            Plant(Store, side_by_side=4),
            run=behavior,
            horizon=HOURS,
            episodes=60,
            **{"policy": plant, **settings},
        )
        numbers |= prefixed(name, of_promise(result))
    return numbers


@case("evaluate.promises")
def _promises() -> Numbers:
    """A promise about another policy's cost, or about a limit; designed for it or not."""
    target, log, behavior = store()
    usual: dict[str, Any] = {"horizon": HOURS, "episodes": 80}
    asked: dict[str, Any] = {"horizon": HOURS, "method": "scope-dr"}
    for_reference = design(log, target, promise=Promise(at_most=1.3, of=CALM), **asked)
    for_limit = design(log, target, promise=Promise(limit=5.0), **asked)
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "reference": (behavior, {"promise": Promise(of=CALM)}),
        "designed": (for_reference, {"baseline": CALM}),
        "bounded": (for_reference, {"promise": Promise(1.3, of=CALM, bound=Bound(step=2.5))}),
        "limit": (behavior, {"promise": Promise(limit=5.5)}),
        "designed-limit": (for_limit, {}),
        "refuted": (
            behavior,
            {"episodes": 200, "stop": Stop(every=20), "promise": Promise(limit=2.0)},
        ),
    }
    numbers: Numbers = {}
    for name, (how, settings) in runs.items():
        result = evaluate(MANY, target, how, **(usual | settings))
        numbers |= prefixed(name, of_promise(result))
    for name, found in (("for-reference", for_reference), ("for-limit", for_limit)):
        numbers |= prefixed(name, of_behavior(found))
    return numbers


@case("evaluate.starts")
def _starts() -> Numbers:
    """The value of the start as a control variate: by resets, by observations, by the model."""
    mdp, target, log = changing()
    behavior = design(
        log, target, horizon=4, gamma=0.9, method="scope-dr", learn=Table(time_varying=True)
    )
    further = np.random.default_rng(3).choice(5, 300, p=mdp.initial)
    plant = documented("TabularEnv")
    runs: dict[str, tuple[Any, Any]] = {
        "model": (mdp, "model"),
        "given": (mdp, further),
        "resets": (lambda: plant(mdp), 200),
    }
    numbers: Numbers = {"values": behavior.start_values(np.arange(5))}
    for name, (env, starts) in runs.items():
        result = evaluate(
            env,
            target,
            behavior,
            episodes=150,
            seed=2,
            inference=Inference(keep=True),
            context=History.starts(starts),
        )
        numbers |= prefixed(name, of_promise(result))
    assert result.episodes is not None
    again = estimate(result.episodes, run=behavior, gamma=0.9, context=History.starts(further))
    return numbers | prefixed("estimate", of_promise(again))


@case("evaluate.switch")
def _switch() -> Numbers:
    """A guard hands over between episodes, and limits do within one; sequences afterwards."""
    target, _, behavior = store()
    wasteful = np.tile([0.1, 0.2, 0.7], (8, 1))
    usual: dict[str, Any] = {"horizon": HOURS, "episodes": 240, "stop": Stop(every=20)}
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "refuted": (wasteful, {"seed": 3}),
        "bounded": (wasteful, {"seed": 3, "promise": Promise(bound=Bound(step=2.5))}),
        "epsilon": (
            wasteful,
            {"promise": Promise(1.2), "inference": Inference(0.1, keep=True), "seed": 4},
        ),
        "limits": (behavior, {"promise": [Limit(episode=4.0, total=300.0)]}),
        "sequence": (
            behavior,
            {"inference": Inference(alpha=0.1, interval="sequence", keep=True)},
        ),
        "precise": (behavior, {"stop": Stop(precision=0.9, every=20)}),
    }
    numbers: Numbers = {}
    for name, (how, settings) in runs.items():
        known = {"inference": Inference(keep=True)} | usual | settings
        result = evaluate(MANY, target, how, **known)
        numbers |= prefixed(name, of_promise(result))
    return numbers


@case("evaluate.another-target")
def _another_target() -> Numbers:
    """Episodes that were collected for one target say something about others, too."""
    target, _, behavior = store()
    mixed = TabularPolicy(0.5 * np.asarray(target.table(1)[0]) + 0.5 * CALM)
    episodes = collect(
        Plant(Store, side_by_side=4), target, behavior, horizon=HOURS, episodes=150, seed=9
    )
    q = np.linspace(1.0, 0.0, HOURS * 8 * 3).reshape(HOURS, 8, 3)
    settings: dict[str, dict[str, Any]] = {
        "own": {"run": behavior, "promise": Promise(bound=Bound(step=2.5))},
        "mixed": {"policy": mixed, "promise": Promise(at_most=1.2)},
        "controlled": {"policy": mixed, "q": q, "anytime": True},
        "is": {"policy": mixed, "inference": Inference(estimator="is", interval="sequence")},
        "reference": {"run": behavior, "promise": Promise(of=CALM)},
        "limit": {"promise": Promise(limit=6.0), "inference": Inference(return_bound=(-12.0, 6.0))},
    }
    numbers = prefixed("episodes", of_episodes(episodes))
    for name, some in settings.items():
        found = of_promise(estimate(episodes, **some))
        numbers |= prefixed(name, {k: v for k, v in found.items() if k not in ("steps", "sums")})
    return numbers


# -- cases: stages -------------------------------------------------------------------------------


def stage_case(
    name: str, stages: Stages, world: Any = grid, logs: bool = False, **settings: Any
) -> None:
    """Register an evaluation in stages of a model."""

    def run() -> Numbers:
        mdp, target, log = world()
        how = replace(stages, logs=log if logs else None)
        return of_stages(evaluate(mdp, target, how, **settings))

    case(f"stages.{name}")(run)


VARYING = Table(time_varying=True)
BELOW = Promise(at_most=0.7)

stage_case("no-logs", Stages(), episodes=400)
stage_case("logs", Stages(learn=VARYING, per="episode"), changing, True, episodes=300, seed=1)
stage_case(
    "changing", Stages(first=40, growth=2.0, method="scope", learn=VARYING), changing, episodes=300
)
stage_case("below-cost", Stages(learn=VARYING), changing, True, episodes=300, promise=BELOW)
stage_case(
    "below-cost-total",
    Stages(first=60, promise_of="total", learn=VARYING, most_variance=2.0),
    changing,
    episodes=400,
    promise=BELOW,
)
stage_case(
    "cost-bound",
    Stages(method="scope"),
    logs=True,
    episodes=300,
    promise=Promise(bound=Bound(episode=6.0)),
    seed=2,
)
stage_case(
    "precision",
    Stages(method="odi", growth=3.0),
    changing,
    episodes=600,
    stop=Stop(precision=0.25),
    inference=Inference(interval="sequence"),
)


@case("stages.environment")
def _stages_environment() -> Numbers:
    """Stages in an environment: kept episodes, a first behavior policy, and logs."""
    target, log, behavior = store()
    stages, keep = Stages(first=40, growth=2.0), Inference(keep=True)
    first, logs = replace(stages, design=behavior), replace(stages, logs=log)
    kept = evaluate(MANY, target, first, horizon=HOURS, episodes=160, inference=keep)
    logged = evaluate(
        MANY, target, logs, horizon=HOURS, episodes=160, seed=2, stop=Stop(cost=500.0)
    )
    return prefixed("kept", of_stages(kept)) | prefixed("logged", of_stages(logged))


# -- cases: campaigns ----------------------------------------------------------------------------


def run_campaign(folder: str, target: Any, episodes: int, **settings: Any) -> Campaign:
    """Run a campaign on two plants; designs that are due are computed at once.

    Without bounds on costs, an episode is lost now and then.
    """
    losing = "promise" not in settings or isinstance(settings["promise"], tuple)
    table = np.asarray(target.table(1)[0])
    plants = {"a": Store(), "b": Store()}
    campaign = Campaign.create(
        Path(folder) / "store.campaign", lambda obs, t: table[obs], horizon=HOURS, **settings
    )
    with campaign.group():
        for number in range(episodes):
            if campaign.status().done or campaign.status().state == "stopped":
                break
            if campaign.status().refit_due:
                campaign.refit()
            name = "ab"[number % 2]
            level, _ = plants[name].reset(seed=900 + number)
            episode = campaign.start(name)
            while not episode.over:
                action = episode.act(level)
                level, reward, over, _, info = plants[name].step(action)
                episode.observe(reward, info["cost"], level, terminated=over)
                if losing and number % 17 == 9 and episode.step == 2:
                    episode.lose("a sensor failed")
                    break
            else:
                episode.end()
    return campaign


def campaign_case(name: str, episodes: int, **settings: Any) -> None:
    """Register a campaign of a store; settings that are functions are called first."""

    def run() -> Numbers:
        target, _, _ = store()
        given = {key: value() if callable(value) else value for key, value in settings.items()}
        with tempfile.TemporaryDirectory() as folder:
            campaign = run_campaign(folder, target, episodes, **given)
            result, status = campaign.result(keep=True), campaign.status()
            checked = campaign.verify()
            log = campaign.logs()
            campaign.close()
        found = of_stages(result) if result.stages else of_promise(result)
        guards = [fields(guard, "low estimate") for guard in status.guards]
        return found | {
            "status": [
                *fields(status, STATUS),
                status.refit_due,
                *fields(status.interval, INTERVAL),
            ],
            "guards": guards,
            "verified": fields(checked, "decisions different holes"),
            "logs": of_log(log)["sums"],
        }

    case(f"campaign.{name}")(run)


campaign_case("design", 60, behavior=lambda: store()[2], promise=Promise(bound=Bound(step=2.5)))
campaign_case(
    "logs-ramp",
    60,
    logs=lambda: store()[1],
    ramp=lambda: documented("Ramp", "shares")(shares=(0.3, 1.0), episodes=20),
    stop=lambda: Stop(cost=220.0),
    seed=4,
)
campaign_case(
    "guards",
    80,
    behavior=lambda: np.tile([0.3, 0.4, 0.3], (8, 1)),
    promise=(Promise(at_most=1.1), Limit(total=300.0)),
)
campaign_case(
    "stages",
    120,
    refit=lambda: Stages(first=40, growth=2.0),
    stop=lambda: Stop(episodes=120),
)
campaign_case(
    "stages-logs",
    120,
    logs=lambda: store()[1],
    refit=lambda: Stages(first=40, growth=2.0, method="scope"),
    stop=lambda: Stop(episodes=120),
    promise=Promise(bound=Bound(episode=15.0)),
    seed=7,
)


# -- cases: shared work --------------------------------------------------------------------------


@case("evaluate.workers")
def _workers() -> Numbers:
    """Two workers find what one finds, and what this process finds."""
    target, _, behavior = store()
    usual: dict[str, Any] = {"horizon": HOURS, "seed": 5}
    numbers: Numbers = {}
    for workers in (None, 1, 2):
        result = evaluate(
            Plant(Store, side_by_side=4, workers=workers),
            target,
            behavior,
            episodes=48,
            stop=Stop(every=24),
            inference=Inference(keep=True),
            **usual,
        )
        numbers |= prefixed(f"{workers}", of_promise(result))
    return numbers


@case("table.streamed-workers")
def _streamed_workers() -> Numbers:
    """A folder of files, read by this process, by one worker and by two; and a sample of it."""
    mdp, target, log = grid()
    numbers: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        for k in range(4):
            write_logs(log.select(slice(k, None, 4)), Path(folder) / f"{k}.parquet")
        for workers in (None, 2):
            stream = stream_logs(
                folder, batch_rows=150, horizon=mdp.horizon, actions=4, workers=workers
            )
            behavior = design(
                stream,
                target,
                horizon=mdp.horizon,
                method="scope-dr",
                promise=Promise(at_most=1.05),
            )
            found = of_behavior(behavior) | of_table(*behavior.table(mdp.states), mdp, target)
            numbers |= prefixed(f"{workers}", found)
        numbers["sample"] = of_log(sample_logs(stream, 200, 3))["sums"]
    return numbers


@case("network.world")
def _world() -> Numbers:
    """Dynamics that are learned once, refitted by more logs, and brought back from a file."""
    log = drifting()
    half = len(log) // 2
    training = documented("Training")(hidden=16, steps=40, batch=128)
    world = World.learn(log.select(slice(0, half)), training=training)
    more = world.refit(log.select(slice(half, None)))
    with tempfile.TemporaryDirectory() as folder:
        more.save(Path(folder) / "drift.world")
        back = World.load(Path(folder) / "drift.world")
    numbers: Numbers = {"errors": [world.error, more.error, back.error, back.refits]}
    for name, source in (("first", world), ("loaded", back)):
        behavior = design(source, leaning, horizon=STEPS, method="scope-dr", learn=small_model())
        numbers |= prefixed(name, of_behavior(behavior) | of_answers(behavior))
        del numbers[f"{name}.act"]  # far away, rounding of float32 networks grows to 6e-7
    return numbers
