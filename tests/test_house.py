"""The folder listing is the architecture: rooms are folders, and data flows one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import scopeval

ROOT = Path(scopeval.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """``envs.gridworld`` for src/scopeval/envs/gridworld.py; empty for the front door."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}
#: Modules that lie in no folder are rooms of their own; a kernel belongs to the module beside it.
BESIDE = {"_simulate_kernel": "simulate"}


def room_of(module: str) -> str:
    """The folder that a module lies in."""
    head = module.split(".")[0]
    return BESIDE.get(head, head)


def imports_of(tree: ast.AST, module: str) -> set[str]:
    """Modules of scopeval that a syntax tree imports, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"scopeval.{module}: a relative import; write its whole name"
            assert node.module is not None
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    inside = {x.removeprefix("scopeval.") for x in found if x.startswith("scopeval.")}
    # "from scopeval.exact import design" names exact; "from scopeval import exact" too
    return {x if x in NAMES else x.rpartition(".")[0] for x in inside}


TREES = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
GRAPH = {
    name: imports_of(tree, name) - {"", name}
    for name, tree in TREES.items()
    if name  # the front door names every room, and loads them when they are used
}


def rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        room = room_of(module)
        found.setdefault(room, set()).update({room_of(other) for other in others} - {room})
    return found


def layers() -> list[str]:
    """The rooms in the order of the tree in CONTRIBUTING.md."""
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text.partition("    src/scopeval/\n")[2].partition("    tests/")[0]
    starts = [line.lstrip().partition("  ")[0] for line in tree.splitlines()]
    return [re.sub(r"/$|\.py$", "", name) for start in starts for name in start.split()]


def out_of_order(graph: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Rooms that import one which stands below them in the tree, or not in it."""
    place = {name: i for i, name in enumerate(layers())}
    of = lambda room: place["_*" if room.startswith("_") else room]  # noqa: E731
    found = rooms(graph)
    return {(room, other) for room in found for other in found[room] if of(other) > of(room)}


def test_the_rooms_have_an_order():
    """A room imports only rooms above it in the tree of CONTRIBUTING.md, which names each once."""
    names = layers()
    assert len(names) == len(set(names))
    flat = {"_*" if room.startswith("_") else room for room in rooms(GRAPH)}
    assert flat == set(names)
    assert out_of_order(GRAPH) == set()
    list(TopologicalSorter(rooms(GRAPH)).static_order())


def test_the_package_needs_no_experiment():
    for path, tree in zip(MODULES, TREES.values(), strict=True):
        for node in ast.walk(tree):
            named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            named += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heads = {name.split(".")[0] for name in named}
            assert not heads & {"experiments", "benchmarks"}, path


def test_no_module_imports_itself_through_others():
    graph = {module: others for module, others in GRAPH.items() if module in NAMES}
    # two modules that import each other inside functions are a deliberate pair
    graph["behavior.policy"] = graph["behavior.policy"] - {"behavior.file"}
    # a known model makes its own designs, which are made of it
    designs = {"exact.assessment", "exact.curve", "exact.optimum"}
    graph["exact.model"] = graph["exact.model"] - designs
    list(TopologicalSorter(graph).static_order())


def test_the_judge_can_say_no():
    tree = ast.parse("from scopeval.evaluation.evaluator import evaluate\n")
    assert imports_of(tree, "solver") == {"evaluation.evaluator"}
    wrong = GRAPH | {"solver.program": {"evaluation.evaluator"}}
    assert out_of_order(wrong) == {("solver", "evaluation")}
    with pytest.raises(CycleError):
        list(TopologicalSorter(rooms(wrong)).static_order())


def test_few_modules_lie_flat():
    """The listing of the package is the architecture: a folder for every room but a few."""
    flat = {path.stem for path in ROOT.glob("*.py")}
    assert flat == {
        *("__init__", "errors", "arrays", "_archive", "_files", "_parallel"),
        *("_progress", "simulate", "_simulate_kernel"),
    }


def test_no_module_is_named_like_a_public_verb_beside_the_front_door():
    verbs = {"design", "evaluate", "compare", "collect", "estimate", "load", "read_logs", "solve"}
    children = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    assert not verbs & children


def test_the_tests_mirror_the_package():
    tests = Path(__file__).parent
    folders = {p.parent.relative_to(tests) for p in tests.rglob("test_*.py")}
    top = {"tools", "experiments", "benchmarks"}  # these mirror folders of the repository
    for folder in folders - {Path()}:
        root = ROOT if folder.parts[0] not in top else tests.parent
        assert (root / folder).is_dir(), f"tests/{folder} has no counterpart in {root}"


def deep_imports(text: str) -> list[str]:
    """Names that a test takes from inside the package although `scopeval` has them."""
    found = []
    for module, given in re.findall(r"(?m)^ *from (scopeval\.[\w.]+) import (\([^)]*\)|.*)", text):
        names = set(re.findall(r"\w+", given)) & set(scopeval.__all__)
        owner = import_module(module) if names else None
        same = sorted(x for x in names if getattr(owner, x, None) is getattr(scopeval, x))
        found += [f"from {module} import {name}" for name in same]
    return found


def test_the_tests_use_the_public_names():
    found = {
        f"{path.name}: {one}"
        for path in Path(__file__).parent.rglob("*.py")
        for one in deep_imports(path.read_text(encoding="utf-8"))
    }
    assert found == set(), "import these from scopeval"
    wrong = "from scopeval.collection.collector import collect, row_of\n"
    assert deep_imports(wrong) == ["from scopeval.collection.collector import collect"]


#: Rooms whose classes may: an environment has a length, and a campaign's journal holds numbers.
PERSISTED = {"envs", "campaign", "serve"}
#: Classes that hold an epsilon or a horizon, besides `Promise` and `Question`, and why. What is
#: asked travels as those two values; this list only becomes shorter.
HOLDERS = {
    # persisted: what a file or a database holds as numbers
    "behavior.step.Recipe": "a design's file",
    "behavior.promised_cost.PromisedCost": "a design's file",
    "collection.episodes.Provenance": "a file of episodes",
    # results: what was judged, for who reads them
    "safety.certificate.Certificate": "what was judged",
    "evaluation.stage_report.Stage": "what was judged",
    # a length of arrays, or of what is modeled, and not a setting
    "collection.episode_log.EpisodeLog": "the width of its arrays",
    "collection.rollout.Rollout": "the width of its arrays",
    "comparison.mixture.MixtureRollout": "the width of its arrays",
    "exact.model.TabularMDP": "a model has its horizon",
    "models.dynamics.Encoder": "an input of the networks",
    "models.model_critic.ReturnNetworks": "a network a time step",
    "logs.diagnose.Problem": "time steps of rows",
    # to go: the promise is still taken apart here
    "behavior.designer.AllowedCost": "relative to the target's cost, by the logs",
    "comparison.estimators.TableLearner": "of the control variates",
    "comparison.estimators.WorldLearner": "of the control variates",
    "evaluation.stage_design.Plan": "a stage's own promise",
}


def holders() -> set[str]:
    """Classes with a field epsilon or horizon: declared, or set on self."""
    found = set()
    for path in MODULES:
        if room_of(name_of(path)) in PERSISTED:
            continue
        for node in ast.walk(TREES[name_of(path)]):
            if isinstance(node, ast.ClassDef) and fields_of(node) & {"epsilon", "horizon"}:
                found.add(f"{name_of(path)}.{node.name}")
    return found


def fields_of(owner: ast.ClassDef) -> set[str]:
    """Names of a class's fields, without leading underscores."""
    declared = [x.target for x in owner.body if isinstance(x, ast.AnnAssign)]
    names = {x.id for x in declared if isinstance(x, ast.Name)}
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            names |= {node.attr.lstrip("_")} if of_self else set()
    return names


def test_what_is_asked_and_promised_travels_as_values():
    """Nothing new holds an epsilon or a horizon: it takes a `Promise`, or a `Question`."""
    values = {"question.question.Question"}
    assert holders() - values == set(HOLDERS), "a holder is new, or is gone: take it off the list"


HEAVY = ("torch", "numba", "matplotlib", "scipy", "pyarrow", "gymnasium", "pandas")


def loaded_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_front_door_is_light():
    assert loaded_after("import scopeval") == set()


def test_a_campaign_without_its_extra_says_what_to_install():
    code = "import sys; sys.modules['sqlalchemy'] = None; from scopeval import Campaign"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    said = done.stderr.splitlines()[-1]
    assert said.startswith("scopeval.errors.MissingExtraError: A campaign needs the package 'sqla")
    assert said.endswith(
        "; try: pip install 'scopeval[campaign]', in a clone of the repository "
        "pip install '.[campaign]'"
    )


def test_other_missing_modules_are_not_called_an_extra():
    code = "import sys; sys.modules['scopeval.campaign'] = None; from scopeval import Campaign"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: ")


def test_the_upper_rooms_load_what_they_need_when_they_need_it():
    upper = "errors, arrays, policies, solver, exact, simulate"
    assert loaded_after(f"from scopeval import {upper}") == set()


# -- one of each: the table in CONTRIBUTING.md, as far as syntax shows a second one ----------------

#: Loops backward in time. A recursion for values, variances or costs belongs to the sweep.
BACKWARD = {
    "behavior.sweep": "Algorithm 1, for every model",
    "comparison.counted_model": "values in many worlds at once, without line 6 or variances",
    "comparison.joint_design": "the mixture of policies, which carries K x K second moments",
    "comparison.estimators": "an estimate, backward in one recorded episode",
    "comparison.totals": "what recorded episodes have cost from each step on",
    "estimation.estimators": "an estimate, backward in one recorded episode",
    "estimation.fitted_q": "a baseline for comparison, which weighs nothing",
    "envs.gridworld": "the optimal policy, which the controllers of logs approach",
}


def test_one_backward_sweep():
    loops = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.For)
        and isinstance(node.target, ast.Name)
        and node.target.id == "t"
        and ast.unparse(node.iter).startswith("reversed(range(")
    }
    assert loops == set(BACKWARD)


def test_one_way_to_ask_a_behavior_policy():
    """`weigh(offered, obs, t, state)`, by one protocol."""
    protocols = set()
    for module, tree in TREES.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef):
                continue
            methods = {x.name: x for x in node.body if isinstance(x, ast.FunctionDef)}
            assert not {"weigh_at", "peek"} & set(methods), f"{module}.{node.name}"
            if (weigh := methods.get("weigh")) is None:
                continue
            if any("Protocol" in ast.unparse(base) for base in node.bases):
                protocols.add(f"{module}.{node.name}")
            names = [one.arg for one in weigh.args.args]
            if "offered" in names and module != "collection.choice":
                assert names == ["self", "offered", "obs", "t", "state"], f"{module}.{node.name}"
    assert protocols == {"policies.protocols.Behavior"}


def test_one_place_runs_a_behavior_policy():
    """A behavior policy that fails gives way to the target there, and counts its fallbacks."""
    callers = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "weigh"
    }
    # a known model is asked for whole tables, which nothing runs
    assert callers == {"collection.choice", "exact.tables"}


#: Compiled code: what takes most of a whole call without it. This list only becomes shorter.
COMPILED = {
    "_simulate_kernel": "simulated episodes of finite MDPs",
    "behavior._cost_error_kernel": "how wrong the cost of a frontier's point may be",
    "behavior._frontier_kernel": "line 6 at all prices of a frontier",
    "behavior._step_kernel": "line 6 of Algorithm 1, and what is carried to the step before",
    "exact._weighted_kernel": "tables that depend on the weight, in the simulator too",
    "models._layers_kernel": "small networks: the forward pass, a row with the same bits; Adam",
    "policies._random_kernel": "random numbers for the simulator and for training",
    "solver._kernel": "the program of one state",
}


def test_compiled_code_is_named():
    using = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import) and any(alias.name == "numba" for alias in node.names)
    }
    assert using == set(COMPILED)


def test_one_state_of_an_episode():
    holders = {
        f"{module}.{node.name}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(x, ast.AnnAssign) and ast.unparse(x.target) == "log_weights"
            for x in node.body
        )
    }
    assert holders == {"policies.episode_state.EpisodeState"}


def test_one_row_program():
    """weight / sqrt(eta + price cost), by the only place that writes it."""
    places = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node).startswith("np.sqrt(eta +")
    }
    assert places == {"solver._kernel"}


def test_one_recursion_of_designs_that_depend_on_the_weight():
    """The place of the next price, u mu^2 / pi^2, is computed in one place, for learned and known
    models."""

    def modules_with(found: Callable[[ast.AST], bool]) -> set[str]:
        return {name for name, tree in TREES.items() if any(map(found, ast.walk(tree)))}

    prices = modules_with(
        lambda x: isinstance(x, ast.Call) and ast.unparse(x).startswith("np.log(mu")
    )
    assert prices == {"behavior._frontier_kernel"}
    searches = modules_with(
        lambda x: isinstance(x, ast.FunctionDef) and x.name in ("find_price", "approach")
    )
    assert searches == {"behavior.price"}


def test_one_forward_pass_and_one_training_of_small_networks():
    """The soft step of the networks is computed beside each other: to predict, and to train."""
    swish = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Div)
        and ast.unparse(node.right).startswith(("ONE + abs(", "1.0 + abs(", "(1.0 + np.abs("))
    }
    assert swish == {"models._layers_kernel"}
    adam = {
        (module, node.name)
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and "adam" in node.name
    }
    assert {module for module, _ in adam} == {
        "models._layers_kernel",
        "models.layers",
    }


def test_one_evaluation_loop():
    """Stages and comparisons are the same loop: nothing derives from these, or asks the plan."""
    kinds = {"Totals", "PairedTotals", "Guard", "EvaluationLoop", "StoppingPlan"}
    children = {
        f"{module}.{node.name}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and kinds & {ast.unparse(base) for base in node.bases}
    }
    assert children == set()
    loops = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.While) and ast.unparse(node.test).startswith("(count := plan.next(")
    }
    assert loops == {"evaluation.loop"}


def classes_with(method: str) -> set[str]:
    """Classes that define a method of this name."""
    return {
        f"{module}.{node.name}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(isinstance(x, ast.FunctionDef) and x.name == method for x in node.body)
    }


def calls_of(name: str) -> set[str]:
    """Modules that call something of this name."""
    return {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == name
    }


def test_one_certificate_and_one_guard():
    """One ledger makes certificates, one guard trips, and only these two place bets on costs."""
    # a comparison's cost terms ask a ledger
    assert classes_with("certificate") == {
        "safety.certificate.Ledger",
        "comparison.totals.CostTerms",
    }
    assert classes_with("step_limit_exceeded") == {"safety.guard.Guard"}
    assert calls_of("Certificate") == {"safety.certificate"}
    assert calls_of("GuardState") == {"safety.guard"}
    assert calls_of("BoundedComparison") == {"safety.certificate", "safety.guard"}


def test_one_batch_of_numbers_and_one_choice_of_its_source():
    """Environments and the simulator make it; campaigns read theirs from the journal."""
    makers = calls_of("Batch") - {"logs.read"}  # of rows, there
    assert makers == {"evaluation.batches", "evaluation.sources", "campaign.result"}
    assert calls_of("CollectedSource") == calls_of("SimulatedSource") == {"evaluation.sources"}
    assert calls_of("Evaluation") == {"evaluation.totals"}
    assert calls_of("Outcomes") == {"collection.environments"}


def test_one_file_container():
    """What is saved with arrays goes through `_archive`."""
    calls = ("np.savez", "np.savez_compressed", "np.load", "pickle.load")
    places = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in calls
    }
    assert places == {"_archive"}


def test_one_drawing_of_an_action_and_one_stream_of_random_numbers():
    """For arrays, and the same for compiled code; SplitMix64 by its multiplier."""
    names = {"draw_action", "draw_actions", "drawn", "_drawn", "_draw_action", "_draw_actions"}
    places = {
        (module, node.name)
        for module, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name in names
    }
    assert places == {
        ("policies.drawing", "draw_action"),
        ("policies.drawing", "draw_actions"),
        ("policies._random_kernel", "drawn"),
    }
    multiplier = 0xBF58476D1CE4E5B9
    mixers = {
        module
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value == multiplier
    }
    assert mixers == {"policies._random_kernel"}
