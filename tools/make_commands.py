"""Write docs/commands.md from the command line itself: ``python tools/make_commands.py``.

A test checks that the page is what this script would write.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from scopeval.cli.app import app

PLACE = Path(__file__).parents[1] / "docs" / "commands.md"
WIDTH = 80
INTRO = """\
# Commands

Written by `tools/make_commands.py` from the program's own help; do not edit it here. Every command
ends with status 0, with 2 and one line of explanation when it refuses its input, and with 130 after
Ctrl-C; `check` ends with 1 if the log cannot be used. `--debug` before the command shows the
traceback of an error.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRO]
    for title, text in _helps(get_command(app), "scopeval", None):
        level = "##" if title.count(" ") <= 1 else "###"
        parts.append(f"{level} {title}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _helps(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Title and help of a command, then of its commands."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
    yield context.command_path, text
    for child, below in getattr(command, "commands", {}).items():
        yield from _helps(below, child, context)


if __name__ == "__main__":
    PLACE.write_text(page(), encoding="utf-8")
    print(f"written to {PLACE}")
