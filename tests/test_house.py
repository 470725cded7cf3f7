"""The folder listing is the architecture: rooms are folders, and data flows one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
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


GRAPH = {
    name_of(path): imports_of(ast.parse(path.read_text()), name_of(path)) - {"", name_of(path)}
    for path in MODULES
    if name_of(path)  # the front door names every room, and loads them when they are used
}


def rooms(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for module, others in graph.items():
        room = room_of(module)
        found.setdefault(room, set()).update({room_of(other) for other in others} - {room})
    return found


def test_the_rooms_have_an_order():
    """A room imports only rooms before it; graphlib names the cycle where there is one."""
    order = list(TopologicalSorter(rooms(GRAPH)).static_order())
    assert order.index("data") < order.index("critics") < order.index("behavior")
    assert order.index("behavior") < order.index("exact") < order.index("evaluation")
    assert order[-1] == "paper"


def test_nothing_imports_the_paper():
    for room, others in rooms(GRAPH).items():
        assert "paper" not in others, f"scopeval.{room} imports scopeval.paper"


def test_no_module_imports_itself_through_others():
    graph = {module: others for module, others in GRAPH.items() if module in NAMES}
    # two modules that import each other inside functions are a deliberate pair
    graph["behavior.policy"] = graph["behavior.policy"] - {"behavior.file"}
    world = "critics.model.world"
    graph[world] = graph[world] - {"critics.model.world_file"}
    list(TopologicalSorter(graph).static_order())


def test_the_judge_can_say_no():
    tree = ast.parse("from scopeval.evaluation.evaluator import evaluate\n")
    assert imports_of(tree, "solver") == {"evaluation.evaluator"}
    wrong = GRAPH | {"solver.program": {"evaluation.evaluator"}}
    with pytest.raises(CycleError):
        list(TopologicalSorter(rooms(wrong)).static_order())


def test_few_modules_lie_flat():
    """The listing of the package is the architecture: a folder for every room but a few."""
    flat = {path.stem for path in ROOT.glob("*.py")}
    assert flat == {
        *("__init__", "errors", "arrays", "_archive", "_sealed_file", "_files", "_parallel"),
        *("_progress", "simulate", "_simulate_kernel"),
    }


def test_no_module_is_named_like_a_public_verb_beside_the_front_door():
    verbs = {"design", "evaluate", "collect", "estimate", "load", "read_logged", "solve"}
    children = {p.stem for p in ROOT.glob("*.py")} | {p.name for p in ROOT.iterdir() if p.is_dir()}
    assert not verbs & children


def test_the_tests_mirror_the_package():
    tests = Path(__file__).parent
    folders = {p.parent.relative_to(tests) for p in tests.rglob("test_*.py")}
    for folder in folders - {Path(), Path("tools")}:  # the latter mirrors tools/
        assert (ROOT / folder).is_dir(), f"tests/{folder} has no src/scopeval/{folder}"


#: A GPU kernel is one function inside another.
LONG = {"_kernel", "kernel"}


def test_files_and_functions_are_short():
    """At most 400 lines a file and 60 lines of code a function; compiled kernels aside."""
    for path in MODULES:
        if path.name.endswith("_kernel.py"):
            continue
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in LONG:
                first = node.body[min(ast.get_docstring(node) is not None, len(node.body) - 1)]
                assert node.end_lineno - first.lineno < 60, f"{path}: {node.name}"


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
        "; try: pip install 'scopeval[serve]', in a clone of the repository pip install '.[serve]'"
    )


def test_other_missing_modules_are_not_called_an_extra():
    code = "import sys; sys.modules['scopeval.campaign'] = None; from scopeval import Campaign"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith("ModuleNotFoundError: ")


def test_the_upper_rooms_load_what_they_need_when_they_need_it():
    upper = "errors, arrays, policies, solver, exact, simulate"
    assert loaded_after(f"from scopeval import {upper}") == set()
