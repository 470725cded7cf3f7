"""The command line: parse, call, print; nothing else. One command a file.

`app` is the whole of it; commands import what they compute with when they run, so that
``scopeval --help`` is quick.
"""


def main() -> None:
    """The console script."""
    from scopeval.cli.app import app

    app()
