"""What experiments share: options, jobs that are resumed, statistics, tables, files.

An experiment is one module, run as ``python -m experiments.NAME``. It defines

    Args                 its options: a frozen dataclass, a child of `RunArgs`
    QUICK                what --quick sets, a mapping
    jobs(args)           the jobs: for each the keyword arguments of `job`
    job(args, ...)       the work of one: a pure function that other processes import; a dict
    summary(args, rows)  what the JSON file holds of all rows (a row: arguments and answer of a job)
    table(content)       tables and paragraphs, from the content of a JSON file
    figure(content)      figures by name, likewise (not every experiment has some)

and ends with ``if __name__ == "__main__": main("experiments.NAME")``. Answers of jobs are kept one
by one, so a run that was interrupted goes on where it stopped, by any backend and with any number
of workers to the same bits. ``--from-stored FILE`` prints and draws results again, ``--markdown``
as the pages in docs/ have them.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import tyro

import scopeval
from scopeval import __version__, exact
from scopeval._files import check_place, machine, now, replace_file, versions, write_json
from scopeval.behavior.methods import METHODS, Method
from scopeval.behavior.policy import BehaviorPolicy
from scopeval.cli.console import err, out, paragraph, print_line, print_table, progress_bar
from scopeval.cli.sources import attribute_from, method_from
from scopeval.collection.collector import collect
from scopeval.errors import InputError, ScopevalError
from scopeval.estimation.estimators import doubly_robust, pdis
from scopeval.report import page
from scopeval.workers.attempt import Job, Queue, attempt
from scopeval.workers.crew import open_crew

if TYPE_CHECKING:
    from scopeval.arrays import Floats
    from scopeval.collection.episodes import Episodes

__all__ = [
    "REFERENCE",
    "Judged",
    "Note",
    "RunArgs",
    "Table",
    "constrained",
    "judge_by_episodes",
    "judge_exactly",
    "main",
    "mean_of",
    "methods_of",
    "ratio_of",
    "run_experiment",
    "run_jobs",
    "text_of",
    "variance_error",
]

#: The method that all others are compared with.
REFERENCE = "on-policy"
#: Packages whose versions are recorded.
PACKAGES = ("numpy", "scipy", "numba", "torch", "pyarrow", "matplotlib")


@dataclass(frozen=True)
class RunArgs:
    """Options of every experiment that change no number."""

    out: Path | None = None
    """Folder for results; results/NAME if it is left out."""
    backend: Literal["serial", "processes", "ray"] = "processes"
    """Where jobs are done."""
    workers: int | None = None
    """How many jobs at a time; one for each core (of the cluster) if it is left out."""
    address: str | None = None
    """Of a running Ray cluster; one on this machine if it is left out."""
    quick: bool = False
    """Small settings, for a first look; other options replace them."""
    from_stored: tuple[Path, ...] = ()
    """Compute nothing: show what these JSON files hold."""
    markdown: bool = False
    """Print Markdown."""

    #: Options over which the jobs range: a job must not depend on them but by its arguments, so
    #: that answers are found again when there are more of them.
    RANGES: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Refuse what cannot be run, before the work."""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def folder(self) -> Path:
        """Where results are written."""
        return self.out or Path("results") / self.name

    @property
    def config(self) -> dict[str, Any]:
        """What decides the numbers."""
        return {k: v for k, v in asdict(self).items() if k not in _RUNNING}

    @property
    def command(self) -> str:
        """The command that gives the same numbers: what differs from the usual options."""
        words, usual = ["python", "-m", type(self).__module__], type(self)().config
        for name, value in self.config.items():
            option = f"--{name.replace('_', '-')}"
            if value == usual[name]:
                continue
            if isinstance(value, bool):
                words.append(option if value else option.replace("--", "--no-", 1))
            elif isinstance(value, tuple | list):
                words += [option, *map(str, value)]
            elif isinstance(value, dict):
                for part, inside in value.items():
                    if inside != usual[name][part]:
                        words += [f"{option}.{part}", str(inside)]
            elif value is not None:
                words += [option, str(value)]
        return shlex.join(words)


_RUNNING = tuple(field.name for field in fields(RunArgs))


# -- the command -----------------------------------------------------------------------------------


def main(name: str, words: Sequence[str] | None = None) -> None:
    """Run an experiment by the words of the command line."""
    module = import_module(name)
    words = sys.argv[1:] if words is None else words
    usual = module.Args(**module.QUICK) if "--quick" in words else module.Args()
    with errors_in_one_line():
        args = tyro.cli(module.Args, args=words, default=usual, description=module.__doc__)
        args.check()
        if args.from_stored:
            contents = [json.loads(p.read_text(encoding="utf-8")) for p in args.from_stored]
        else:
            contents = [run_experiment(module, args)]
        for content in contents:
            show(module, content, markdown=args.markdown)


def run_experiment(module: ModuleType, args: RunArgs) -> dict[str, Any]:
    """Do the jobs, write NAME.json, NAME.parquet (the rows) and figures; NAME.json's content."""
    place = check_place(args.folder / f"{args.name}.json")
    began = time.perf_counter()
    jobs = module.jobs(args)
    rows = run_jobs(module.job, args, jobs)
    content = {
        "command": args.command,
        "date": now(),
        "seconds": round(time.perf_counter() - began, 1),
        "machine": machine(),
        "versions": versions(*PACKAGES),
        "experiment": args.name,
        "config": args.config,
        **module.summary(args, rows),
    }
    replace_file(place.with_suffix(".parquet"), _parquet(rows, args.command))
    for title, drawn in _figures(module, content).items():
        from experiments.drawing import png, svg

        replace_file(place.with_name(f"{title}.svg"), svg(drawn).encode())
        replace_file(place.with_name(f"{title}.png"), png(drawn))
    write_json(place, content)
    print_line(err(), f"Results: {place} ({content['seconds']} s)")
    result: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return result


def _figures(module: ModuleType, content: Mapping[str, Any]) -> Mapping[str, Any]:
    drawn: Mapping[str, Any] = module.figure(content) if hasattr(module, "figure") else {}
    return drawn


def show(module: ModuleType, content: Mapping[str, Any], *, markdown: bool = False) -> None:
    """Print the tables of a JSON file's content, and the command that made it."""
    if markdown:
        print(markdown_of(module, content))
        return
    for part in module.table(content):
        if isinstance(part, str):
            paragraph(out(), part)
        else:
            print_table(out(), part)
        out().print()
    print_line(out(), content["command"])


def markdown_of(module: ModuleType, content: Mapping[str, Any], *, notes: bool = True) -> str:
    """The same as Markdown.

    Args:
        module: of the experiment.
        content: of a JSON file.
        notes: with the `Note`s; a page may explain its tables once.
    """
    parts = [f"```sh\n{content['command']}\n```"]
    for part in module.table(content):
        if not isinstance(part, str):
            parts.append(part.markdown())
        elif notes or not isinstance(part, Note):
            parts.append(str(part))
    machine_facts = content.get("machine", {})
    cores, processor = machine_facts.get("cores", "?"), machine_facts.get("cpu", "unknown")
    where = f"on a machine with {cores} core{'s' * (cores != 1)} ({processor})"
    whole = content.get("seconds", 0) >= 1 and not content.get("kept")
    took = f"Run time: {content['seconds']:.0f} s {where}." if whole else f"Computed {where}."
    version = content.get("versions", {}).get("scopeval")
    if version and version != __version__:
        took += f" By version {version} ({content['date'][:10]}), older than the code you have."
    return "\n\n".join([*parts, took])


@contextmanager
def errors_in_one_line() -> Any:
    """An error of the library becomes one line and exit status 2; Ctrl-C status 130."""
    try:
        yield
    except KeyboardInterrupt:
        print_line(err(), "interrupted; run the same command again to go on")
        raise SystemExit(130) from None
    except ScopevalError as error:
        print_line(err(), f"error: {' '.join(str(error).split())}")
        raise SystemExit(2) from None


def _parquet(rows: Sequence[Mapping[str, Any]], command: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Parquet has no structures without fields: what no job measured is left out
    made = pa.Table.from_pylist([{k: v for k, v in row.items() if v != {}} for row in rows])
    file = io.BytesIO()
    pq.write_table(made.replace_schema_metadata({"command": command}), file)
    return file.getvalue()


# -- jobs ------------------------------------------------------------------------------------------


def run_jobs(
    work: Callable[..., dict[str, Any]],
    args: RunArgs,
    jobs: Iterable[Mapping[str, Any]],
    *,
    depends: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Call ``work(args, **job)`` for every job; each job with its answer, in the order of the jobs.

    An answer is one JSON file in FOLDER/jobs, named by everything that it depends on: the function,
    the job, the options, and the source of the experiments and the package.

    Args:
        work: a function that other processes can import.
        args: the options.
        jobs: keyword arguments of `work`.
        depends: options that an answer depends on; None: all but those of `RunArgs` and `RANGES`.
    """
    if depends is None:
        depends = [name for name in args.config if name not in args.RANGES]
    held = {name: args.config[name] for name in depends}
    todo = {_key(work, held, job): dict(job) for job in jobs}
    folder = args.folder / "jobs"
    answers = {key: kept for key in todo if (kept := _read(folder / f"{key}.json")) is not None}
    labels = {k: ", ".join(f"{n} {v}" for n, v in job.items()) for k, job in todo.items()}
    if answers:
        print_line(err(), f"{len(answers)} of {len(todo)} answers are there from an earlier run")

    with progress_bar(work.__name__) as progress:

        def keep(key: str, text: str) -> None:
            write_json(folder / f"{key}.json", {"job": todo[key], "answer": json.loads(text)})
            answers[key] = json.loads(text)
            progress(len(answers), len(todo), labels[key])

        missing = {k: Job(job, labels[k]) for k, job in todo.items() if k not in answers}
        if missing:
            _do(_Work(work, args), Queue(missing, keep, lambda line: print_line(err(), line)), args)
    return [{**job, **answers[key]} for key, job in todo.items()]


class _Work:
    """A job's function with the options; its answer as JSON, so that it is the same everywhere."""

    def __init__(self, work: Callable[..., dict[str, Any]], args: RunArgs) -> None:
        self.work, self.args = work, args

    def __call__(self, job: Mapping[str, Any]) -> str:
        return _as_json(self.work(self.args, **job))


def _do(work: _Work, queue: Queue[str], args: RunArgs) -> None:
    if args.backend == "serial":
        while queue.waiting:
            key, job = queue.take()
            queue.settle(key, attempt(work, job))
        return
    workers = args.workers
    if args.backend == "processes":
        workers = min(workers or int(machine()["cores"]), len(queue.jobs))
    with open_crew(workers, args.backend, address=args.address, grace=0.0) as crew:
        crew.load(pickle.dumps(work))
        crew.run(queue)


def _key(work: Callable[..., Any], held: Mapping[str, Any], job: Mapping[str, Any]) -> str:
    own = digest_of([*held.get("methods", ()), *held.get("estimators", ())])
    name = f"{work.__module__}.{work.__qualname__}"
    whole = _as_json([name, job, held, own, source_digest()])
    return hashlib.sha256(whole.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, Any] | None:
    """A kept answer; None where there is none, or a damaged one."""
    try:
        answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["answer"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        print_line(err(), f"{path} is damaged ({error}); its job is done again")
        return None
    return answer


def _as_json(value: Any) -> str:
    """The same text for the same value."""
    return json.dumps(value, sort_keys=True, allow_nan=False, separators=(",", ":"), default=str)


@cache
def source_digest() -> str:
    """Digest of the source: answers of other code are not used again."""
    whole = hashlib.sha256()
    for root in (Path(__file__).parent, Path(scopeval.__file__).parent):
        for path in sorted(root.rglob("*.py")):
            whole.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


# -- methods ---------------------------------------------------------------------------------------


def methods_of(specs: Sequence[str], baselines: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of methods as tables have them, the reference first; ``module:attribute`` is imported.

    Args:
        specs: names of registered methods, ``module:attribute`` (a `Method`), or baselines.
        baselines: methods that are no designs.

    Raises:
        InputError: an unknown method, or one that is given twice.
    """
    for spec in specs:
        if spec not in baselines and ":" not in spec and spec not in METHODS:
            raise InputError(
                f"methods: got {spec!r}, expected some of {', '.join((*METHODS, *baselines))}, a "
                "method that you have registered, or module:attribute"
            )
    names = tuple(spec if spec in baselines else method_from(spec).name for spec in specs)
    if len(set(names)) < len(names):
        raise InputError(f"methods: got {', '.join(names)}, expected each once")
    return (REFERENCE, *(name for name in names if name != REFERENCE))


def constrained(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the methods that keep the promise on the expected cost."""
    return tuple(name for name in names if name in METHODS and METHODS[name].constrained)


def digest_of(specs: Sequence[str]) -> str:
    """Digest of methods and estimators of one's own, and of the files that define them."""
    whole = hashlib.sha256()
    for spec in specs:
        if ":" in spec:
            one = attribute_from(spec, "methods")
            if isinstance(one, Method):
                whole.update(repr(replace(one, step=None)).encode())
            file = sys.modules[spec.partition(":")[0]].__file__
            whole.update(Path(file).read_bytes() if file else b"")
    return whole.hexdigest()


# -- judging ---------------------------------------------------------------------------------------


def judge_exactly(
    mdp: exact.TabularMDP, target: Any, behavior: Any, own: exact.Assessment | None = None
) -> tuple[float, float]:
    """Variance and expected cost of one episode's estimate, relative to the target's; exact.

    Args:
        mdp: the true model.
        target: policy.
        behavior: a `BehaviorPolicy`, or a design with exact values.
        own: the target policy's own, if it is known already.
    """
    own = own or exact.assess(mdp, target, target)
    if isinstance(behavior, BehaviorPolicy) and behavior.weighted:
        point = exact.tabulate(mdp, target, behavior).predicted
        return point.variance / own.variance, point.cost / own.cost
    if isinstance(behavior, BehaviorPolicy):
        found = exact.assess(mdp, target, *behavior.table(mdp.states))
    else:
        found = exact.assess(mdp, target, behavior, behavior.control)
    return found.variance / own.variance, found.cost / own.cost


@dataclass(frozen=True)
class Judged:
    """Episodes of a policy: an estimate and a cost for each."""

    values: Floats
    costs: Floats
    episodes: Episodes

    @property
    def variance(self) -> float:
        """Of one episode's estimate."""
        return float(self.values.var(ddof=1))

    @property
    def cost(self) -> float:
        """Mean of an episode."""
        return float(self.costs.mean())


def judge_by_episodes(
    env: Any, target: Any, behavior: Any, *, horizon: int, episodes: int, seed: int
) -> Judged:
    """The same measured in episodes; behavior None: the target policy runs."""
    ran = collect(env, target, behavior, horizon=horizon, episodes=episodes, seed=seed)
    return Judged(pdis(ran) if ran.control is None else doubly_robust(ran), ran.costs(), ran)


# -- statistics and tables -------------------------------------------------------------------------


def mean_of(values: Any) -> dict[str, Any]:
    """Mean over targets, its standard error (None for one target), and the values; for JSON."""
    array = np.asarray(values, np.float64)
    n = len(array)
    error = float(array.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return {"mean": float(array.mean()), "standard_error": error, "values": array.tolist()}


def variance_error(values: Floats) -> float:
    """Standard error of the sample variance, by the fourth moment."""
    n = len(values)
    away = values - values.mean()
    variance = away @ away / (n - 1)
    fourth = float((away**4).mean())
    return math.sqrt(max(fourth - (n - 3) / (n - 1) * variance**2, 0.0) / n)


def ratio_of(value: float, error: float, own: float, own_error: float) -> tuple[float, float]:
    """Ratio of two independent numbers, with its standard error."""
    ratio = value / own
    return ratio, math.hypot(error, ratio * own_error) / own


def text_of(mean: Mapping[str, Any] | None, form: str = ".3f") -> str:
    """A `mean_of` as "0.547 ± 0.012"; nothing for None."""
    if mean is None:
        return ""
    error = mean["standard_error"]
    text = format(mean["mean"], form)
    return text if error is None else f"{text} ± {format(error, form)}"


class Note(str):
    """How to read tables; other paragraphs are findings."""

    __slots__ = ()


@dataclass(frozen=True)
class Table(page.Table):
    """A table; the first column names the rows. For a terminal: `cli.console.print_table`."""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        shown = "\n".join(f"| {' | '.join(cells)} |".replace("\xad", "") for cells in lines)
        return f"**{self.caption}**\n\n{shown}" if self.caption else shown


def saved_of(saved: float) -> str:
    """The share of the cost that is saved; what costs more than twice as much saves nothing."""
    return f"{saved:.0%}" if saved >= -1.0 else "worse than on-policy"
