"""What operators can command: one table for Python, the shell, HTTP and the page."""

from __future__ import annotations

from dataclasses import dataclass

from scopeval.errors import InputError

__all__ = ["COMMANDS", "Command", "command_of"]


@dataclass(frozen=True)
class Command:
    """What an operator can command.

    Attributes:
        name: as in ``scopeval campaign NAME`` and POST /v1/commands/NAME.
        event: kind of the event that it writes.
        text: what it does.
        question: asked before it is carried out.
        final: it cannot be undone.
        about: "campaign", or "episode": it needs the number of one.
    """

    name: str
    event: str
    text: str
    question: str
    final: bool = False
    about: str = "campaign"

    @property
    def label(self) -> str:
        """Of a button."""
        return self.name.replace("-", " ").capitalize()


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "pause",
            "pause",
            "No more episodes are started until it is resumed. Running ones go on.",
            "Pause the campaign?",
        ),
        Command("resume", "resume", "Episodes are started again.", "Resume the campaign?"),
        Command(
            "go-live",
            "live",
            "Episodes that start from now on are run by the campaign.",
            "Let the campaign run the plants?",
        ),
        Command(
            "hand-over",
            "hand over",
            "From the next step on the baseline decides on all plants; without a baseline the "
            "target policy does.",
            "Hand over?",
            final=True,
        ),
        Command(
            "stop",
            "stop",
            "Control goes back to all plants at once, and no more episodes are started. Episodes "
            "that this cuts count as lost.",
            "Stop the campaign?",
            final=True,
        ),
        Command("refit", "refit", "The design that is due is computed now.", "Compute the design?"),
        Command(
            "lose",
            "lost",
            "The running episode is given up, and counts as lost with what it has cost.",
            "Give this episode up?",
            final=True,
            about="episode",
        ),
        Command(
            "drop",
            "dropped",
            "The finished episode is taken out of the evidence. Dropping by results biases the "
            "estimate.",
            "Drop this episode?",
            final=True,
            about="episode",
        ),
    )
}


def command_of(name: str) -> Command:
    """A command by its name; spaces and underscores count as hyphens.

    Raises:
        InputError: there is none.
    """
    command = COMMANDS.get(name.replace(" ", "-").replace("_", "-"))
    if command is None:
        raise InputError(f"command: got {name!r:.40}, expected one of {', '.join(COMMANDS)}")
    return command
