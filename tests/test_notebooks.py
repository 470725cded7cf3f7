"""The notebooks of the documentation run, and their stored outputs and pages are current."""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "tools"
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    try:
        spec = importlib.util.spec_from_file_location(
            "docs_run_notebooks", TOOLS / "run_notebooks.py"
        )
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(TOOLS))
    return module


def test_there_are_four():
    names = ["a-campaign", "is-it-better", "start-here", "the-frontier"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.heavy
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_shows_what_is_stored(path, tmp_path):
    for name in ("nbclient", "ipykernel"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    done = subprocess.run(
        [sys.executable, str(TOOLS / "run_notebooks.py"), str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_its_page_is_made_from_it(path, tool):
    page, pictures = tool.page(tool.read(path), path.stem)
    remedy = f"run: python tools/run_notebooks.py --write {path.relative_to(ROOT)}"
    assert path.with_suffix(".md").read_text(encoding="utf-8") == page, remedy
    assert pictures
    for name, content in pictures.items():
        assert (path.parent / name).read_bytes() == content, remedy


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_has_no_traces_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert not re.search(r"/home/|/root/|/tmp/|Traceback|\\u001b", text)


def test_a_campaign_can_be_created_again_in_the_same_folder(tool, tmp_path, monkeypatch):
    """As far as the creation of the campaign, which refuses to overwrite one."""
    pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")
    monkeypatch.chdir(tmp_path)
    cells = tool.read(NOTEBOOKS[0])["cells"]
    code = [tool.text_of(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    last = next(k for k, text in enumerate(code) if "Campaign.create(" in text)
    for _ in range(2):
        names: dict[str, object] = {}
        exec("\n".join(code[: last + 1]), names)
        names["campaign"].close()
        if "folder" in names:
            names["folder"].cleanup()
    assert list(tmp_path.iterdir()) == []


def test_names_of_temporary_folders_are_not_stored(tool):
    with tempfile.TemporaryDirectory() as folder:
        shown = f"Campaign('{Path(folder, 'stores.campaign')}', running)"
        assert tool.without_folder(shown) == "Campaign('stores.campaign', running)"
    assert tool.without_folder("no folder / here") == "no folder / here"


def test_other_words_and_missing_outputs_are_noticed(tool):
    stored = tool.read(NOTEBOOKS[0])
    changed = copy.deepcopy(stored)
    cards = [o for o in tool.outputs_of(changed) if "text/html" in o.get("data", {})]
    cards[0]["data"]["text/html"] = tool.text_of(cards[0]["data"]["text/html"]).replace("0", "7")
    assert tool.shown(changed) == tool.shown(stored)  # numbers may differ
    cards[0]["data"]["text/html"] = "another card"
    assert tool.shown(changed) != tool.shown(stored)
