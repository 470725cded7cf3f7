"""How often a reader who follows a call through the package has to change the file.

    python tools/count_switches.py [-v]

Two calls are followed: `design` of a table by scope-dr, and `evaluate` of the design in a Gymnasium
environment. For each, the functions of the package are listed in the order in which they are first
called. That is the order in which a reader meets them who steps into every function once.

- *switches*: how often two neighbors in the list are in different modules. A module is a file.
- *back*: those of them that lead to a module that was in the list before.
- *modules*: how many different ones there are. Always switches = modules - 1 + back.

What counts as a function: whatever is written with ``def`` or ``lambda``, methods and properties
too. Comprehensions and generator expressions do not count: they are read where they stand, and
later versions of Python do not call them. Module and class bodies do not count either; both calls
are made once before they are followed, so that imports are done. A function compiled by Numba
counts where Python calls it; what compiled functions call among themselves is not seen. Only the
calling thread is followed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import scopeval
from scopeval import design, evaluate
from scopeval.envs.gridworld import Gridworld, gridworld_logs, make_gridworld_env, target_policies

ROOT = Path(scopeval.__file__).parent
#: Names of code that is no function of its own.
INLINE = frozenset({"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})

SIZE = 10


@dataclass(frozen=True)
class Count:
    """What was counted; `path` is the modules in the order in which they are entered."""

    path: tuple[str, ...]

    @property
    def switches(self) -> int:
        """How often the module changes."""
        return len(self.path) - 1

    @property
    def modules(self) -> int:
        """How many different modules there are."""
        return len(set(self.path))

    @property
    def back(self) -> int:
        """Switches to a module that was left before."""
        return len(self.path) - self.modules


def first_calls(action: Callable[[], object]) -> list[CodeType]:
    """The package's functions in the order in which `action` first calls them."""
    root = f"{ROOT}/"
    found: dict[CodeType, None] = {}

    def notice(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_name not in INLINE:
            found.setdefault(code)

    sys.setprofile(notice)
    try:
        action()
    finally:
        sys.setprofile(None)
    return list(found)


def module_of(code: CodeType) -> str:
    """``solver`` or ``envs.gridworld``: the file relative to the package."""
    return ".".join(Path(code.co_filename).relative_to(ROOT).with_suffix("").parts)


def counted(modules: Iterable[str]) -> Count:
    """Count the switches in a sequence of modules."""
    return Count(tuple(module for module, _ in itertools.groupby(modules)))


def followed() -> dict[str, Callable[[], object]]:
    """The calls to follow, by name."""
    mdp = Gridworld(size=SIZE, seed=0).mdp()
    target = target_policies(1, size=SIZE)[0]
    logs = gridworld_logs(mdp, episodes=1000)
    behavior = design(logs, target, horizon=SIZE, method="scope-dr")
    env = type(make_gridworld_env(size=SIZE))  # a finite model as a Gymnasium environment
    return {
        "design": lambda: design(logs, target, horizon=SIZE, method="scope-dr"),
        "evaluate": lambda: evaluate(lambda: env(mdp), target, behavior, episodes=100),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, and with -v every function, the switches marked."""
    parser = argparse.ArgumentParser(description="Count switches between modules.")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every function")
    verbose = parser.parse_args(arguments).verbose
    print(f"{'':<10}{'switches':>9}{'back':>6}{'modules':>9}{'functions':>11}")
    for name, action in followed().items():
        action()
        calls = first_calls(action)
        count = counted(map(module_of, calls))
        numbers = f"{count.switches:>9}{count.back:>6}{count.modules:>9}{len(calls):>11}"
        print(f"{name:<10}{numbers}")
        if verbose:
            show(calls)


def show(calls: Sequence[CodeType]) -> None:
    """One line per function; ``+`` enters a new module, ``<`` goes back to one."""
    seen: set[str] = set()
    before = ""
    for code in calls:
        module = module_of(code)
        mark = " " if module == before else "<" if module in seen else "+"
        print(f"  {mark} {module:<24} {code.co_qualname}")
        seen.add(module)
        before = module


if __name__ == "__main__":
    main()
