"""The command line, one file for each command.

Commands import what they compute with when they run, so that ``scopeval --help`` is quick.
"""


def main() -> None:
    """The console script."""
    from scopeval.cli.app import app

    app()
