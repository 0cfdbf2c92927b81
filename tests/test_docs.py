"""The documentation: the command line reference is current, every page is listed, links and examples hold."""

import ast
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


def test_the_table_of_judged_runs_is_what_was_found():
    written = (DOCS / "validation.md").read_text(encoding="utf-8")
    assert written == load("judged").generated(), "run: python docs/_scripts/judged.py"
    assert "| ordinary | all |" in written


def test_the_run_file_of_the_reference_is_valid():
    import tomllib

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


def test_generated_parts_are_current():
    for path, text in load("architecture").generated().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/_scripts/architecture.py"


def test_every_file_of_the_table_of_changes_exists():
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= 10
    for row in rows:
        for name in re.findall(r"`([\w./-]+)`", row):
            assert (DOCS.parent / name).exists(), name


def headings(page):
    """Anchors as the documentation's builder makes them."""
    found = re.findall(r"^#+ (.*)$", (DOCS / page).read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in found}


def test_every_proof_that_the_code_names_is_a_section_of_the_documentation():
    proving = DOCS.parent / "src" / "filet" / "accounting" / "proving"
    named = [
        (path.name, page, anchor)
        for path in sorted(proving.glob("*.py"))
        for page, anchor in re.findall(r"(\w+\.md)#([\w-]+)", path.read_text(encoding="utf-8"))
    ]
    assert len(named) > 40
    for file, page, anchor in named:
        assert anchor in headings(page), f"{file} names {page}#{anchor}"


def test_every_function_of_the_proving_room_names_its_proof():
    # Plain records, words for failure, and arithmetic that proves nothing by itself.
    exempt = {"Discrete", "Cut", "Cells", "ClosedForm", "Block", "Spectrum", "LinePlan", "Reading", "Atom", "Verdict",
              "Integral", "Weights", "Both",
              "contradiction", "up", "down", "expm1_or_infinite"}  # fmt: skip
    seen = set()
    for path in sorted((DOCS.parent / "src" / "filet" / "accounting" / "proving").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                seen.add(node.name)
                if node.name not in exempt:
                    assert "Proof: " in (ast.get_docstring(node) or ""), f"{path.stem}.{node.name} names no proof"
    assert exempt <= seen
