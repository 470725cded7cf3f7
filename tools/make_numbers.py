"""Write docs/numbers.md: every number that changes a design, a promise or a verdict, and why.

    python tools/make_numbers.py

The numbers are read from the source: constants of modules and defaults of classes, in the folders
that steer. What each of them changes, and its ground, is in `steering_numbers.txt`. A number of the
source that is not there, or one there that is gone, is an error, and a test checks that the page is
what this script would write: so no number comes in unnoticed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "scopeval"
PLACE = ROOT / "docs" / "numbers.md"
CATALOG = Path(__file__).with_name("steering_numbers.txt")
#: Where numbers steer. Elsewhere they are formats, limits of requests, and looks.
STEER = (
    "arrays.py",
    "behavior",
    "comparison",
    "context",
    "estimation",
    "evaluation",
    "exact",
    "logs/changes.py",
    "logs/diagnose.py",
    "logs/statistics.py",
    "models",
    "question",
    "safety",
    "solver",
)
CHANGES = {"d": "design", "p": "promise", "v": "verdict", "-": None}
GROUNDS = ("derived", "measured", "chosen", "custom", "numerics", "effort")
#: Of these, what decides nothing but how exactly a result is computed.
PRECISION = ("numerics", "effort")
INTRO = """\
# Numbers that decide

Written by `tools/make_numbers.py` from the source and `tools/steering_numbers.txt`; do not edit it
here. Every number that changes what is run (*design*), what is said about its cost or variance
(*promise*), or what finished episodes and logs are said to show (*verdict*), with its ground:

- *derived*: from a formula or a probability;
- *measured*: on worlds, policies and logs that are not those of the reported results;
- *chosen*: by trial, with results of reported Gridworlds in view
  ([how to read them](reproduce-gridworld.md#how-to-read-it));
- *custom*: a usual level, or a default that users state themselves;
- *numerics*: accuracy and convergence;
- *effort*: how much is computed; more would change results within their noise.

The last two only say how exactly something is computed; all others decide.

Formats, limits of files and requests, speed and looks change none of these and are left out.
"""


@dataclass(frozen=True)
class Entry:
    """Some numbers of one file with the same ground; `changes` is None where they do not steer."""

    file: str
    names: tuple[str, ...]
    changes: str | None
    ground: str
    why: str


def numbers() -> dict[tuple[str, str], str]:
    """Every number in the folders that steer, by file and name: its expression."""
    found: dict[tuple[str, str], str] = {}
    for part in STEER:
        place = SOURCE / part
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            name = file.relative_to(SOURCE).as_posix()
            for what, value in _numbers_of(ast.parse(file.read_text(encoding="utf-8"))):
                found[name, what] = value
    return found


def _numbers_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    value = _default(field.value)
                    if value is not None:
                        yield f"{node.name}.{field.target.id}", ast.unparse(value)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _assigned(node.target, node.value)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Name) and _is_number(value):
        yield target.id, ast.unparse(value)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)


def _default(value: ast.expr | None) -> ast.expr | None:
    """The default of a field, if it is a number or a value object made of nothing but numbers."""
    if value is None or _is_number(value):
        return value
    if not (isinstance(value, ast.Call) and ast.unparse(value.func) == "field"):
        return None
    for made in (keyword.value for keyword in value.keywords):
        body = made.body if isinstance(made, ast.Lambda) else None
        if isinstance(body, ast.Call) and _made_of_numbers(body):
            return body
    return None


def _made_of_numbers(call: ast.Call) -> bool:
    """Whether it makes a value object, whose name begins with a capital, of numbers alone."""
    name = ast.unparse(call.func)
    return name[0].isupper() and bool(call.args) and all(map(_is_number, call.args))


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
    if isinstance(node, ast.UnaryOp):
        return _is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Tuple) and bool(node.elts) and all(map(_is_number, node.elts))


def catalog(text: str | None = None) -> list[tuple[str, list[Entry]]]:
    """What is known of the numbers, by section."""
    sections: list[tuple[str, list[Entry]]] = []
    for line in (CATALOG.read_text(encoding="utf-8") if text is None else text).splitlines():
        if line.startswith("# -- "):
            sections.append((line.removeprefix("# -- "), []))
        elif line.strip() and not line.startswith("#"):
            sections[-1][1].append(_entry(line))
    return sections


def _entry(line: str) -> Entry:
    parts = re.split(r"\s{2,}", line.strip())
    file, *names = parts[0].split(" ")
    steers = len(parts) == 4 and parts[1] in "dpv" and parts[2] in GROUNDS
    if not names or not (steers or (len(parts) == 3 and parts[1] == "-")):
        raise ValueError(f"{CATALOG.name}: cannot read {line!r}")
    if steers:
        return Entry(file, tuple(names), CHANGES[parts[1]], parts[2], parts[3])
    return Entry(file, tuple(names), None, "", parts[2])


def page() -> str:
    """The whole page.

    Raises:
        ValueError: the catalog does not hold just the numbers of the source.
    """
    values, sections = numbers(), catalog()
    listed = [(e.file, name) for _, entries in sections for e in entries for name in e.names]
    missing = [f"{file} {name}" for file, name in values if (file, name) not in set(listed)]
    gone = [f"{file} {name}" for file, name in listed if (file, name) not in values]
    twice = sorted({f"{f} {n}" for f, n in listed if listed.count((f, n)) > 1})
    if missing or gone or twice:
        raise ValueError(
            f"{CATALOG.name}: missing {missing}, not in the source any more {gone}, twice {twice}"
        )
    steering = [e for _, entries in sections for e in entries if e.changes is not None]
    lines = [INTRO, *_counts(steering)]
    for title, entries in sections:
        rows = [entry for entry in entries if entry.changes is not None]
        if not rows:
            continue
        lines += [
            f"\n## {title[0].upper()}{title[1:]}\n",
            "| number | value | changes | ground | why |",
            "|---|---|---|---|---|",
        ]
        for entry in rows:
            shown = ", ".join(f"`{name}`" for name in entry.names)
            told = "; ".join(values[entry.file, name] for name in entry.names)
            lines.append(
                f"| {shown} ({entry.file}) | {told} | {entry.changes} | {entry.ground} "
                f"| {entry.why} |"
            )
    return "\n".join(lines) + "\n"


def _counts(steering: list[Entry]) -> list[str]:
    """How many there are, by what they change and by their ground."""

    def count(**fixed: str) -> int:
        return sum(
            len(e.names) for e in steering if all(getattr(e, k) == v for k, v in fixed.items())
        )

    whats = [what for what in CHANGES.values() if what is not None]
    lines = [
        f"| | {' | '.join(GROUNDS)} | all | all that decide |",
        f"|---|{'---|' * (len(GROUNDS) + 2)}",
    ]

    def row(title: str, cells: list[int]) -> str:
        decide = sum(n for n, ground in zip(cells, GROUNDS, strict=True) if ground not in PRECISION)
        return f"| {title} | {' | '.join(map(str, cells))} | {sum(cells)} | {decide} |"

    for what in whats:
        cells = [count(changes=what, ground=ground) for ground in GROUNDS]
        lines.append(row(what, cells))
    return [*lines, row("all", [count(ground=ground) for ground in GROUNDS])]


if __name__ == "__main__":
    PLACE.write_text(page(), encoding="utf-8")
    print(f"written to {PLACE}")
