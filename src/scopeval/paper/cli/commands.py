"""The paper's commands, as `scopeval.cli.app` adds them to its own."""

from __future__ import annotations

import typer

from scopeval.paper.cli import bench, reproduce, train

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add ``reproduce``, ``bench`` and ``train-policies``."""
    app.add_typer(reproduce.app, name="reproduce")
    app.add_typer(bench.app, name="bench")
    app.command("train-policies")(train.train_policies)
