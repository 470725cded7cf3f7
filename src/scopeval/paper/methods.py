"""Which methods an experiment runs: registered designs, and baselines that are not designs."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scopeval.behavior.methods import METHODS
from scopeval.cli.sources import method_from
from scopeval.errors import InputError

__all__ = ["REFERENCE", "check_methods", "constrained", "digest_of", "names_of"]

#: The method that all others are compared with.
REFERENCE = "on-policy"


def names_of(specs: Sequence[str], baselines: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of methods, as they stand in the tables."""
    return tuple(spec if spec in baselines else method_from(spec).name for spec in specs)


def check_methods(specs: Sequence[str], baselines: Sequence[str] = ()) -> None:
    """Refuse methods that are unknown or given twice, and a list without the reference."""
    for spec in specs:
        if spec not in baselines and ":" not in spec and spec not in METHODS:
            known = ", ".join((*METHODS, *baselines))
            raise InputError(
                f"methods: got {spec!r}, expected some of {known}, a method that you have "
                "registered, or module:attribute"
            )
    names = names_of(specs, baselines)
    if len(set(names)) < len(names):
        raise InputError(f"methods: got {', '.join(names)}, expected each once")
    if REFERENCE not in names:
        raise InputError(
            f"methods: got {', '.join(names)}, expected {REFERENCE} as well: all others are "
            "compared with it"
        )


def digest_of(specs: Sequence[str], baselines: Sequence[str] = ()) -> str:
    """Digest of the methods and of the files that define their steps.

    Stored answers are found by it, so that none is reused after a method was changed.
    """
    whole = hashlib.sha256()
    for method in (method_from(spec) for spec in specs if spec not in baselines):
        whole.update(repr(replace(method, step=None)).encode())
        if method.step is not None:
            file = sys.modules[method.step.__module__].__file__
            whole.update(Path(file).read_bytes() if file else b"")
    return whole.hexdigest()


def constrained(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the methods that keep the expected cost within (1+epsilon) times the target's."""
    return tuple(name for name in names if name in METHODS and METHODS[name].constrained)
