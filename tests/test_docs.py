"""The docs cannot rot: their code runs, their commands parse, their pages build.

`test_readme.py` runs the README's code, `test_examples.py` the examples that the pages include.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path

import pytest
import tyro
from typer.main import get_command

import scopeval
from scopeval.cli.app import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOOLS = ROOT / "tools"
PAGES = sorted(DOCS.glob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def script(name):
    """A script of the docs, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


run_pages = script("run_pages")


def blocks(page):
    return run_pages.blocks_of(page.read_text(encoding="utf-8"))


def runs(block):
    return block.kind == "python" or block.mark == "run"


# -- code ----------------------------------------------------------------------------------------


#: Pages with code whose time goes into learning that other tests do more of.
SLOW = {"data-center"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.heavy] * (page.stem in SLOW), id=page.stem)
        for page in PAGES
        if any(map(runs, blocks(page)))
    ],
)
def test_the_code_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    try:
        run_pages.run_page(page)
    finally:  # modules that pages write have the same names
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def test_there_is_something_to_run():
    assert sum(runs(block) for page in PAGES for block in blocks(page)) >= 10


def test_only_what_cannot_run_is_skipped_and_it_says_why():
    for page in PAGES:
        for block in blocks(page):
            assert re.fullmatch(r"|run|output|skip: \S.*", block.mark), f"{page.name}:{block.line}"
            assert block.kind in ("python", "sh", "text"), f"{page.name}:{block.line}"


def test_included_files_exist():
    for page in PAGES:
        for name in re.findall(r'^--8<-- "(.+)"$', page.read_text(encoding="utf-8"), re.MULTILINE):
            assert (ROOT / name).is_file(), f"{page.name} includes {name}"


def test_other_words_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    text = "```python\nprint('three 3')\n```\n\n<!-- output -->\n```text\nthree 4\n```\n"
    page.write_text(text)
    run_pages.run_page(page)  # numbers may differ
    page.write_text(text.replace("three 4", "four 4"))
    with pytest.raises(SystemExit, match=r"page.md:7: the block before it printed\n\nthree 3"):
        run_pages.run_page(page)
    run_pages.run_page(page, write=True)
    assert page.read_text() == text.replace("three 4", "three 3")


def test_code_that_fails_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n```python\nx.upper()\n```\n")
    with pytest.raises(AttributeError, match="upper"):
        run_pages.run_page(page)


# -- commands ------------------------------------------------------------------------------------


def commands_in(text):
    """Commands of shell blocks, and of lines indented as code."""
    found = []
    for block in run_pages.blocks_of(text):
        if block.kind in ("sh", "console", "bash"):
            found += run_pages.commands_of(block)
    prose = run_pages.BLOCK.sub("", text)
    for line in re.findall(r"^ {4}((?:scopeval|make|python -m) .*)$", prose, re.MULTILINE):
        found.append(line.split("#")[0].split())
    return found


EVERY = [(page.name, words) for page in TEXTS for words in commands_in(page.read_text("utf-8"))]
OURS = [
    (name, words)
    for name, words in EVERY
    if words[0] == "scopeval" or words[:2] == ["python", "-m"]
]


def parse(words):
    """Whether the program would take these words; it says no by an exception."""
    if words[:2] == ["python", "-m"]:
        module = importlib.import_module(words[2].replace("benchmarks", "benchmarks.__main__"))
        if hasattr(module, "Args"):
            tyro.cli(module.Args, args=words[3:])
        return
    command, rest = get_command(app), list(words[1:])
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"no such command: {rest[0]}"
        command = command.commands[rest.pop(0)]
    assert rest or not hasattr(command, "commands"), "expected a command"
    if not hasattr(command, "commands"):
        command.make_context("scopeval", rest)


@pytest.mark.parametrize(("page", "words"), OURS, ids=lambda x: x if isinstance(x, str) else None)
def test_commands_parse(page, words):
    parse(words)


def test_wrong_commands_do_not_parse():
    assert len(OURS) >= 8
    with pytest.raises(SystemExit):
        parse(["python", "-m", "experiments.gridworld", "--moons"])
    for wrong in (
        "scopeval moonbase",
        "scopeval demo --fast",
        "scopeval design --horizon ten",
        "scopeval evaluate",  # without what is required
    ):
        with pytest.raises(Exception, match=r"no such command|[Nn]o such option|valid|[Mm]iss"):
            parse(wrong.split())


def installs(words):
    """Whether a command installs this package, with extras that exist or without."""
    extras = re.fullmatch(r"pip install \.(?:\[([\w,]+)\])?", " ".join(words))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = set() if extras is None else set((extras[1] or "").split(",")) - {""}
    return extras is not None and wanted <= set(known["optional-dependencies"])


def test_other_programs_are_make_and_its_targets_exist():
    assert installs(["pip", "install", ".[serve,docs]"])
    assert not installs(["pip", "install", ".[moon]"])
    assert not installs(["pip", "install", "torch"])
    for page, words in EVERY:
        tool = words[0] == "python" and ((ROOT / words[1]).is_file() or words[1] == "-m")
        assert tool or words[0] in ("scopeval", "make") or installs(words), page
        if words[0] == "make":
            for target in words[1:]:
                assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), f"{page}: make {target}"


# -- the way through the code --------------------------------------------------------------------

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "scopeval"


def test_the_tree_lists_every_folder_and_every_module_beside_them():
    tree = CONTRIBUTING.split("    src/scopeval/\n")[1].split("    tests/")[0]
    listed = set(re.findall(r"^      ((?:[\w.]+\.py |\w+/)+)", tree, re.MULTILINE))
    listed = {name.rstrip("/") for line in listed for name in line.split()}
    folders = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.name for path in PACKAGE.glob("[!_]*.py")}
    assert listed == folders | modules


def names_defined(tree, prefix=""):
    """Functions and classes of a syntax tree, methods as Class.method."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_defined(node, f"{node.name}.")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/how-it-works.md"])
def test_files_and_names_that_a_reader_is_sent_to_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"`([\w/]+\.py)`(?: \((`\w[^)]*`)\))?", text)
    assert len(found) >= 6
    for file, names in found:
        path = next((place / file for place in (PACKAGE, ROOT) if (place / file).is_file()), None)
        assert path is not None, f"{page}: {file}"
        defined = set(names_defined(ast.parse(path.read_text(encoding="utf-8"))))
        assert set(re.findall(r"`([\w.]+)`", names)) <= defined, f"{page}: {file} ({names})"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files_and_headings(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)", text)
    assert links
    for file, anchor in links:
        assert (ROOT / file).exists(), f"{page}: {file}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", (ROOT / file).read_text("utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{page}: {file}#{anchor}"


# -- written by scripts --------------------------------------------------------------------------


def test_commands_page_is_up_to_date():
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert page == script("make_commands").page(), "run: python tools/make_commands.py"


REPRODUCED = [
    f"reproduce-{name}.md"
    for name in ("gridworld", "robots", "frontier", "environments", "stages", "verdicts", "compare")
]


@pytest.mark.parametrize(
    "name",
    [
        "reproduce.md",
        *REPRODUCED,
        "context-tables.md",
        "data-center.md",
    ],
)
def test_pages_say_what_the_stored_results_say(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == script("make_pages").page(name, text), "run: python tools/make_pages.py"


def test_figures_are_small_and_self_contained():
    figures = sorted((DOCS / "figures").glob("*.svg"))
    assert len(figures) >= 3
    assert sum(figure.stat().st_size for figure in figures) < 200_000
    for figure in figures:
        text = figure.read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]


def test_figures_are_those_of_the_script():
    drawn = script("make_figures")
    for draw in (drawn.tilt, drawn.frontier, drawn.flow):
        stored = (DOCS / "figures" / f"{draw.__name__}.svg").read_text(encoding="utf-8")
        assert words_in(drawn.document(draw())) == words_in(stored), (
            "run: python tools/make_figures.py"
        )


def test_the_headline_figure_is_that_of_the_stored_results():
    made = script("make_pages")
    stored = made.HEADLINE.read_text(encoding="utf-8")
    assert words_in(made.headline()) == words_in(stored), "run: python tools/make_pages.py"


@pytest.mark.parametrize("name", ["gridworld", "mujoco", "frontier"])
def test_figures_of_results_are_those_of_the_stored_numbers(name):
    for file, text in script("make_pages").figures(name):
        stored = file.read_text(encoding="utf-8")
        assert words_in(text) == words_in(stored), "run: python tools/make_pages.py"
        width = float(re.search(r'width="([\d.]+)pt"', stored)[1])
        assert width < 480, f"{file.name} cannot be read on a phone"


def words_in(svg):
    """Its text; coordinates may differ in the last digit."""
    return re.findall(r"<text[^>]*>(?:<[^>]*>)*([^<]+)", svg)


# -- the site ------------------------------------------------------------------------------------


class Requests(HTMLParser):
    """What a browser would fetch for a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        wanted = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
        for name, value in attrs:
            if value and name == wanted.get(tag):
                self.found.append(value)


def test_the_site_builds_strictly_and_requests_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: make docs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert {page.stem for page in PAGES} <= {page.stem for page in pages}
    for page in pages:
        reader = Requests()
        reader.feed(page.read_text(encoding="utf-8"))
        assert reader.found
        outside = [x for x in reader.found if re.match(r"(?:\w+:)?//", x)]
        assert outside == [], f"{page.name} fetches {outside}"
    for style in tmp_path.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        fetched = re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", text)
        assert fetched == [], f"{style.name} fetches {fetched}"
    api = (tmp_path / "api.html").read_text(encoding="utf-8")
    for name in (
        "scopeval.behavior.designer.design",
        "scopeval.evaluation.evaluator.evaluate",
        "scopeval.safety.guard.Guard",
    ):
        assert f'id="{name}"' in api


def test_the_api_page_lists_every_public_name_with_its_module():
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    listed = {
        name: module
        for cells, module in re.findall(r"^\| (\[`.+?) \| `([\w.]+)`", text, re.MULTILINE)
        for name in re.findall(r"\[`(\w+)`\]", cells)
    }
    assert listed == scopeval._PUBLIC
