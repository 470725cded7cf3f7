"""Run the code of a page from top to bottom: ``python tools/run_pages.py docs/tutorial.md``.

In the current directory, so go to an empty one first. What counts in a page:

- a ``python`` block is run; all blocks of a page share their names. With ``title="x.py"`` it is
  written to that file instead;
- ``<!-- run -->`` before a ``sh`` block: its commands are run. Without it they are only parsed (by
  the tests);
- ``<!-- output -->`` before a ``text`` block: what the block before it printed. Words must agree,
  numbers may differ from machine to machine; ``--write`` writes the page anew;
- ``<!-- skip: reason -->`` before a block: it cannot run here.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from scopeval.cli.app import app

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]*?) -->\n)?^```(?P<kind>\w+)(?P<rest>[^\n]*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment before it, its title, and where it stands."""

    kind: str
    mark: str
    title: str | None
    code: str
    line: int
    span: tuple[int, int]


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = []
    for match in BLOCK.finditer(text):
        title = re.search(r'title="([^"]+)"', match["rest"])
        line = text.count("\n", 0, match.start("code")) + 1
        name = title[1] if title else None
        mark = match["mark"] or ""
        found.append(Block(match["kind"], mark, name, match["code"], line, match.span("code")))
    return found


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a shell block, as words; comments and prompts are dropped."""
    lines = block.code.replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [one for one in words if one]


def words_of(output: str) -> str:
    """What must agree between machines: everything but numbers and the breaks between lines."""
    return " ".join(re.sub(r"-?\d[\d.,]*(?:e[+-]?\d+)?", "#", output).split())


def run_page(page: Path, *, write: bool = False) -> None:
    """Run every block; raises where one fails or prints other words."""
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    changes: list[tuple[tuple[int, int], str]] = []
    for block in blocks_of(text):
        where = f"{page.name}:{block.line}"
        if block.mark.startswith("skip:"):
            continue
        if block.kind == "python" and block.title:
            Path(block.title).write_text(block.code, encoding="utf-8")
        elif block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
            printed = out.getvalue()
        elif block.kind == "sh" and block.mark == "run":
            printed = "".join(_command(words, where) for words in commands_of(block))
        elif block.mark == "output":
            if write:
                changes.append((block.span, _set(printed)))
            elif words_of(printed) != words_of(block.code):
                raise SystemExit(
                    f"{where}: the block before it printed\n\n{printed}\nnot what the page says; "
                    "if that is right: python tools/run_pages.py --write " + page.name
                )
    if write:
        for (start, end), new in reversed(changes):
            text = text[:start] + new + text[end:]
        page.write_text(text, encoding="utf-8")


def _set(output: str) -> str:
    """Long lines broken: they are running text."""
    lines = output.rstrip().splitlines()
    return "".join(f"{textwrap.fill(x, 80) if len(x) > 100 else x}\n" for x in lines)


def _command(words: list[str], where: str) -> str:
    """What a command of ours prints; in this process, which has loaded what it needs."""
    if words[0] != "scopeval":
        raise SystemExit(f"{where}: {shlex.join(words)}: only commands of scopeval are run")
    done = CliRunner().invoke(app, words[1:], env={"COLUMNS": "80"})
    if done.exit_code:
        raise SystemExit(f"{where}: {shlex.join(words)}: status {done.exit_code}: {done.output}")
    return done.stdout


if __name__ == "__main__":
    sys.path[:0] = ["", str(Path(__file__).parents[1])]  # modules that a page writes; experiments
    for argument in sys.argv[1:]:
        if argument != "--write":
            run_page(Path(argument), write="--write" in sys.argv)
