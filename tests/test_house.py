"""Data flows one way: a module imports only its own room and the rooms above it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import scopeval

ROOT = Path(scopeval.__file__).parent

#: The rooms from top to bottom, and the modules of those that have more than one. A private
#: `_x_kernel` belongs to x; everything inside a package belongs to the package's room.
ROOMS: dict[str, tuple[str, ...]] = {
    "errors": (),
    "arrays": (),
    "data": ("columns", "fields", "tables", "rebuild", "logged_episodes", "parquet", "readers"),
    "episodes": (),
    "policies": ("gaussian",),
    "solver": ("solver_device",),
    "methods": (),
    "exact": (),
    "simulate": (),
    "critics": (
        "critic_table",
        "critic_mlp",
        "critic_mlp_torch",
        "critic_model",
        "dynamics",
        "foresight",
        "known",
        "critic_linear",
        "critic_kernel",
    ),
    "design": (
        "acting",
        "behavior",
        "gathering",
        "ground",
        "imagination",
        "outset",
    ),
    "collect": ("plant", "plants", "rollout"),
    "estimators": (),
    "confidence": ("moments",),
    "safety": (),
    "evaluate": ("evaluation", "batches", "tally", "plan"),
    "provenance": (),
    "backends": (),
    "envs": (),
    "baselines": (),
    "experiments": (),
    "benchmarks": (),
    "report": (),
    "cli": (),
}
ORDER = list(ROOMS)
ROOM_OF = {module: room for room, more in ROOMS.items() for module in (room, *more)}

MODULES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """``envs.gridworld`` for src/scopeval/envs/gridworld.py; empty for the front door."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def room_of(module: str) -> str:
    head = module.split(".")[0]
    if head.startswith("_") and head.endswith("_kernel"):
        head = head.removeprefix("_").removesuffix("_kernel")
    if head not in ROOM_OF:
        pytest.fail(
            f"scopeval.{module} is in no room: add {head!r} to ROOMS in tests/test_house.py, "
            "below everything that it imports"
        )
    return ROOM_OF[head]


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


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_only_its_own_room_and_those_above(path):
    module = name_of(path)
    if not module:
        return  # the front door names every room, and loads them when they are used
    own = ORDER.index(room_of(module))
    for other in imports_of(ast.parse(path.read_text()), module) - {""}:
        assert ORDER.index(room_of(other)) <= own, (
            f"scopeval.{module} (room {ORDER[own]}) imports scopeval.{other} "
            f"(room {room_of(other)}), which stands below it"
        )


def test_no_module_imports_itself_through_others():
    graph = {
        name_of(path): imports_of(
            ast.Module(ast.parse(path.read_text()).body, type_ignores=[]), name_of(path)
        )
        - {"", name_of(path)}
        for path in MODULES
        if path.name != "__init__.py"
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for other in graph.get(module, ()):
                visit(other, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_the_judge_can_say_no():
    tree = ast.parse("from scopeval.evaluate import evaluate\nfrom scopeval import exact\n")
    assert imports_of(tree, "solver") <= {"evaluate", "exact", ""}
    assert "exact" in imports_of(tree, "solver")
    assert ORDER.index(room_of("exact")) > ORDER.index(room_of("_solver_kernel"))
    with pytest.raises(pytest.fail.Exception, match="is in no room: add 'utils'"):
        room_of("utils")


HEAVY = ("torch", "numba", "matplotlib", "scipy", "pyarrow", "gymnasium", "pandas")


def loaded_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*[m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_front_door_is_light():
    assert loaded_after("import scopeval") == set()


def test_the_upper_rooms_load_what_they_need_when_they_need_it():
    upper = "errors, arrays, policies, solver, methods, exact, simulate"
    assert loaded_after(f"from scopeval import {upper}") == set()
