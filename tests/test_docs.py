"""The documentation: the command line reference is current, every page is listed, links and examples hold."""

import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))


def load(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / "_scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_line_reference_is_what_help_prints():
    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == load("cli").reference(), "run: python docs/_scripts/cli.py"


def test_the_run_file_of_the_reference_is_valid():
    tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    from filet.cli.run_file import parse_run

    text = re.search(r"```toml\n(.*?)```", (DOCS / "cli.md").read_text(encoding="utf-8"), re.S)[1]
    run = parse_run(tomllib.loads(text))
    assert len(run.accountant.phases) == 2
    assert run.curve.epsilon(run.delta) <= run.max_epsilon


def test_every_page_is_in_the_table_of_contents_and_every_entry_is_a_page():
    listed = re.findall(r"^([a-z_]+)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)
    assert sorted(f"{name}.md" for name in listed) == [page for page in PAGES if page != "index.md"]


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_are_doctests_and_links_lead_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in re.findall(r"```(?:python|pycon|py)\n(.*?)```", text, re.S):
        assert ">>>" in block, f"{page} shows Python that no test runs"
    for target in re.findall(r"\]\(([a-z_]+)\.md[#)]", text):
        assert (DOCS / f"{target}.md").exists(), f"{page} links {target}.md"
    for figure in re.findall(r"_static/[\w.]+", text):
        assert (DOCS / figure).exists(), f"{page} shows {figure}"


def test_the_reference_lists_every_public_name():
    import filet

    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    missing = [name for name in filet.__all__ if not re.search(rf"filet\.{name}$", text, re.M)]
    assert missing == []


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_the_network(tmp_path):
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(DOCS),
        str(tmp_path / "site"),
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert outcome.returncode == 0, outcome.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page.read_text())
        assert loaded == [], page.name
    shutil.rmtree(tmp_path / "site")
