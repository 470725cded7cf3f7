"""Policies, environments, methods and tables that are named on the command line. No pickle."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scopeval._archive import open_archive, open_regular, read_npy, reading
from scopeval.behavior.methods import Method, method_named, register
from scopeval.errors import DataError, InputError, MissingExtraError
from scopeval.policies.adapters import TorchPolicy, as_policy
from scopeval.policies.protocols import ContinuousPolicy, LearnedBehavior, Policy
from scopeval.question.promise import Bound, Promise

if TYPE_CHECKING:
    from scopeval.campaign.terms import Ramp
    from scopeval.context.history import History
    from scopeval.estimation.estimators import Estimator
    from scopeval.logs.transitions import Transitions

__all__ = [
    "at_most_of",
    "attribute_from",
    "behavior_from",
    "columns_from",
    "cost_from",
    "environment_from",
    "estimator_from",
    "exogenous_from",
    "features_from",
    "history_from",
    "is_attribute",
    "learn_from",
    "method_from",
    "pairs_from",
    "policies_from",
    "policy_from",
    "promise_from",
    "ramp_from",
]

_ATTRIBUTE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
#: A name before an equals sign; the path of one policy has a dot or a slash before any.
_NAMED = re.compile(r"[^./\\:=]+=")
_TORCH = (".pt", ".ts", ".pth")
_TABLES = (".npy", ".npz", ".csv")


def policy_from(text: str) -> Policy | ContinuousPolicy:
    """A policy: a table in a file, a TorchScript file, or module:attribute."""
    path = Path(text)
    if path.suffix in _TABLES:
        return as_policy(_table(path, "policy"))
    if path.suffix in _TORCH:
        return TorchPolicy(_script(path))
    if _ATTRIBUTE.fullmatch(text):
        return as_policy(attribute_from(text, "policy"))
    raise InputError(
        f"policy: got {text!r}, expected a table (.npy, .npz, .csv), a TorchScript file (.pt, "
        ".ts) or module:attribute"
    )


def policies_from(words: list[str]) -> Any:
    """One policy; or several, ``name=policy`` words, by name."""
    if len(words) == 1 and not _NAMED.match(words[0]):
        return policy_from(words[0])
    return {name: policy_from(text) for name, text in pairs_from(words, "policy").items()}


def pairs_from(words: list[str], option: str) -> dict[str, str]:
    """``name=value`` words."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise InputError(f"{option}: got {word!r}, expected name=value, such as today=old.npy")
        if name in pairs:
            raise InputError(f"{option}: got the name {name!r} twice, expected different names")
        pairs[name] = value
    return pairs


def is_attribute(text: str) -> bool:
    """Whether a policy is named as module:attribute."""
    return Path(text).suffix not in (*_TABLES, *_TORCH) and bool(_ATTRIBUTE.fullmatch(text))


def behavior_from(text: str, target: Policy | ContinuousPolicy) -> object:
    """A behavior policy: a file by ``scopeval design``, or anything that --policy takes."""
    from scopeval.behavior.file import load

    return load(text, target) if text.endswith(".scope") else policy_from(text)


def environment_from(text: str) -> Any:
    """An environment: the name of a registered one, or module:attribute."""
    if _ATTRIBUTE.fullmatch(text):
        return attribute_from(text, "env")
    import scopeval.envs  # noqa: F401  (registers its environments)

    return text


def cost_from(text: str | None) -> Any:
    """The cost of a step: a name in info, "none", or module:attribute."""
    if text is not None and _ATTRIBUTE.fullmatch(text):
        return attribute_from(text, "cost")
    return text


def method_from(text: str) -> Method:
    """A registered method by its name; or module:attribute, a `Method`, which is registered.

    The second form works in other processes as well, which know nothing of this one's methods.
    """
    if not _ATTRIBUTE.fullmatch(text):
        return method_named(text)
    method = attribute_from(text, "method")
    if not isinstance(method, Method):
        raise InputError(f"method: {text!r} is {type(method).__name__}, expected a Method")
    return register(method)


def estimator_from(text: str) -> Estimator:
    """The name of an estimator; or module:attribute, a function of episodes."""
    if not _ATTRIBUTE.fullmatch(text):
        return text
    function: Estimator = attribute_from(text, "estimator")
    return function


def features_from(path: Path | None) -> NDArray[np.float64] | None:
    """Coordinates of the states, one row each."""
    return None if path is None else _table(path, "features")


def columns_from(pairs: list[str]) -> dict[str, Any] | None:
    """``field=column`` words as `columns` of `read_logs`; a field that is repeated is a vector."""
    several: dict[str, list[str]] = {}
    for pair in pairs:
        field, equals, column = pair.partition("=")
        if not (field and equals and column):
            raise InputError(f"columns: got {pair!r}, expected field=column, as in reward=r")
        several.setdefault(field, []).append(column)
    return {field: one[0] if len(one) == 1 else one for field, one in several.items()} or None


def _table(path: Path, what: str) -> NDArray[Any]:
    """An array from .npy, .npz (its only array) or .csv."""
    if path.suffix == ".npy":
        return read_npy(path)
    with open_regular(path) as file, reading(f"{path}", "a table of numbers"):
        if path.suffix == ".csv":
            return _csv(path)
        with open_archive(f"{path}", file, os.fstat(file.fileno()).st_size) as archive:
            names = list(archive.headers)
            if len(names) != 1:
                raise DataError(
                    f"{path}: holds the arrays {', '.join(names)}; expected one, the {what}"
                )
            return archive.read(names[0])


def _csv(path: Path) -> NDArray[Any]:
    """Rows of numbers; a first line that is not numbers is a heading."""
    with open(path, encoding="utf-8") as file:
        first = file.readline()
    try:
        [float(word) for word in first.split(",")]
        skip = 0
    except ValueError:
        skip = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an empty file: refused below
        table = np.loadtxt(path, delimiter=",", skiprows=skip, ndmin=2, encoding="utf-8")
    if not table.size:
        raise DataError(f"{path}: holds no rows")
    return table


def _script(path: Path) -> Any:
    """A TorchScript module. Pickled modules are refused: reading one runs code inside."""
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise MissingExtraError("torch", "torch", f"{path}: a policy of torch") from missing
    try:
        with zipfile.ZipFile(path) as archive:
            scripted = any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        scripted = False
    if scripted:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                return torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise DataError(f"{path}: TorchScript cannot read it ({reason})") from error
    raise DataError(
        f"{path}: not a TorchScript file, and pickled modules are not read because that would run "
        "code; try torch.jit.trace(module, example).save(path), or module:attribute"
    )


def attribute_from(text: str, what: str) -> Any:
    """``module:attribute``, from the current directory or what is installed."""
    name, _, path = text.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(name)
    except ImportError as error:
        raise InputError(f"{what}: cannot import {name!r} for {text!r} ({error})") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{what}: importing {name!r} failed ({reason})") from error
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise InputError(f"{what}: {name!r} has no {path!r}, asked for by {text!r}") from error
    return value


def learn_from(name: str, features: Path | None, time_varying: bool) -> Any:
    """What learns, by its name; None: as suits the logs."""
    from scopeval.models.networks import Networks
    from scopeval.models.table import Table

    kinds: dict[str, Any] = {"table": Table, "networks": Networks}
    settings: dict[str, Any] = {"time_varying": True} if time_varying else {}
    if features is not None:
        if name not in ("auto", "table"):
            raise InputError(f"features: got them with --learn {name}, expected table")
        return Table(features=features_from(features), **settings)
    if name == "auto" and time_varying:
        raise InputError("time-varying: needs to know what learns; try --learn table or networks")
    if name == "auto":
        return None
    if name not in kinds:
        raise InputError(f"learn: got {name!r}, expected auto, {', '.join(kinds)}")
    return kinds[name](**settings)


def promise_from(
    at_most: float | None,
    limit: float | None,
    bound: float | None = None,
    step_bound: float | None = None,
    *,
    guarded: bool = True,
    run: Any = None,
) -> Promise | None:
    """The promise of a command's options; None: nothing was said about it.

    What is not said about the cost is what the behavior policy `run` was designed for.
    """
    if at_most is None and limit is None and bound is None and step_bound is None and guarded:
        return None
    if at_most is None:
        at_most = at_most_of(run) if limit is None else 1.0
    return Promise(
        at_most=at_most,
        limit=limit,
        bound=Bound(bound, step_bound),
        action="hand over" if guarded else "tell",
    )


def at_most_of(run: Any) -> float:
    """What a behavior policy was designed for; of any other 1."""
    return 1.0 + run.recipe.epsilon if isinstance(run, LearnedBehavior) else 1.0


def ramp_from(text: str | None, episodes: int) -> Ramp | None:
    """Shares by stages, such as 0.1,0.3,1.0."""
    from scopeval.campaign.terms import Ramp

    if text is None:
        return None
    try:
        shares = tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise InputError(f"ramp: got {text!r}, expected shares such as 0.1,0.3,1.0") from error
    return Ramp(shares, episodes)


def exogenous_from(text: str | None) -> list[int] | list[str] | None:
    """Numbers or names of columns, with commas between them; None: as the log says."""
    if text is None:
        return None
    names = [part.strip() for part in text.split(",")]
    return [int(name) for name in names] if all(name.isdigit() for name in names) else names


def history_from(context: Path | None, exogenous: str | None) -> History | Transitions | None:
    """A history of paths, or a log that holds some; None: none was asked for."""
    from scopeval.context.history import History as Paths
    from scopeval.logs.read import read_logs

    columns = exogenous_from(exogenous)
    if context is not None and context.suffix != ".npy":
        return read_logs(context, exogenous=columns)
    if context is None and columns is None:
        return None
    if context is None or columns is None:
        raise InputError(
            "--context, --exogenous: got one of them, expected both: the file of the paths, and "
            "which columns or signals they are"
        )
    return Paths(read_npy(context), columns)
