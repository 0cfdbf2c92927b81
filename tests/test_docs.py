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
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "_build" not in page.parts)
GENERATED = {"cli.md", "architecture.md", "benchmarks.md", "changelog.md"}
WIDEST = 92  # characters of code that fit the column


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
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "reference.md"))
    listed = [
        name
        for block in re.findall(r"```{toctree}(.*?)```", text, re.S)
        for name in re.findall(r"^([a-z_/]+)$", block, re.M)
    ]
    assert sorted(f"{name}.md" for name in listed) == [page for page in PAGES if page != "index.md"]


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_are_doctests_and_links_lead_somewhere(page):
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"```(?:python|pycon|py)\n(.*?)```", text, re.S):
        assert ">>>" in block, f"{page} shows Python that no test runs"
    for target, anchor in re.findall(r"\]\(([\w./]+\.md)?(?:#([\w-]+))?\)", text):
        linked = path.parent / target if target else path
        assert linked.exists(), f"{page} links {target}"
        assert not anchor or anchor in headings(linked), f"{page} links {target}#{anchor}"
    for figure in re.findall(r"_static/[\w.]+", text):
        assert (DOCS / figure).exists(), f"{page} shows {figure}"


@pytest.mark.parametrize("page", [page for page in PAGES if page not in GENERATED])
def test_code_fits_the_column(page):
    kind, wide = None, []
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            kind = line if kind is None else None
        elif kind is not None and "{image}" not in kind and len(line) > WIDEST:
            wide.append(line)
    assert wide == []


@pytest.mark.parametrize("page", ["../README.md", *PAGES])
def test_no_example_rounds_an_epsilon_to_the_unsafe_side(page):
    """`round` rounds to the nearest; `round_up` is what upper bounds need."""
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith((">>>", "...")):
            assert not re.search(r"(?<!_)\bround\((?:[^()]|\([^()]*\))*epsilon", line), line
            assert not re.search(r"epsilon[^#]*:\.\d+[fg]\}", line), line


def test_the_figures_of_the_readme_are_rounded_up():
    import filet

    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    table = re.search(r"## What a cap costs\n.*?\n\n(\|.*?)\n\n", text, re.S)[1].splitlines()
    columns = [cell.strip() for cell in table[0].strip("|").split("|")][1:]
    checked = 0
    for row in table[2:]:
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        overflow = name.split(",")[0]
        analysis = next((one for one in ("union", "note", "swap:", "refined") if one in name), "refined").strip(":")
        scheme = filet.CappedPoisson(60_000, 256 / 60_000, 300, overflow=overflow)
        for adjacency, cell in zip(columns, cells, strict=True):
            curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency=adjacency, analysis=analysis)
            expected = filet.round_up(curve.epsilon(1e-5), 4)
            assert cell == ("infinite" if expected == "inf" else expected), (name, adjacency)
            checked += 1
    assert checked == 15


def test_the_shapes_table_of_the_readme_is_what_was_measured():
    import json

    import filet

    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    stored = json.loads((DOCS.parent / "benchmarks" / "results" / "shapes.json").read_text())["results"]
    runs = {(row["shape"], row["run"]): row for row in stored}
    for shape in ("variable", "power of two", "capped"):
        torch, jax = runs[shape, "torch.compile"], runs[shape, "jax.jit"]
        rates = [run["steps_per_second"] for run in (torch, jax)]
        first, second = (f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" for rate in rates)
        compiled = f"{torch['compilations']}{', then gives up' if torch['gave_up'] else ''}"
        row = [shape, compiled, first, str(jax["compilations"]), second, f"{jax['rows_wasted']:.1%}"]
        assert "| " + " | ".join([*row, filet.round_up(jax["epsilon"], 3)]) + " |" in text


def test_words_that_people_search_for_are_explained():
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("faq.md", "glossary.md"))
    for word in (
        "MNIST",
        "RDP",
        "PLD",
        "PRV",
        "LoRA",
        "DDP",
        "accountant",
        "epoch",
        "gradient accumulation",
        "ghost",
        "shuffl",
        "Keras",
    ):
        assert word in text, word


THREADS = {
    "opacus": [117, 161, 320, 346, 349, 373, 420, 444, 504, 514, 516, 522, 575, 601, 604, 612, 631, 640, 732, 745, 794, 802, 813],
    "jax_privacy": [84, 85, 89, 103, 121, 196, 222, 287, 337],
    "tensorflow/privacy": [483],
    "prv_accountant": [17, 36, 42],
    "private-transformers": [7, 11],
    "dp-transformers": [41],
    "LlamaFactory": [5513],
    "Safe-Synthesizer": [351, 391],
    "dpsynth": [71],
    "csprng": [130],
}  # fmt: skip


def test_the_threads_that_filet_answers_are_named():
    """Where users of other libraries asked for what filet has: a page says so, by the thread's number."""
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("faq.md", "integrations.md"))
    text = text.replace("JAX Privacy", "jax_privacy").replace("; pull request", "; opacus pull request")
    for repository, numbers in THREADS.items():
        for number in numbers:
            assert re.search(rf"{repository}\b[^;]{{0,160}}?\b{number}\b", text), f"{repository} {number}"


def test_published_versions_stay_and_the_newest_is_the_latest(tmp_path):
    publish = load("versions").publish
    site = tmp_path / "site"
    for version in ("dev", "v0.9.0", "v0.10.0", "v0.9.1"):
        site.mkdir()
        (site / "index.html").write_text(version)
        publish(site, tmp_path / "public", version)
        shutil.rmtree(site)
    public = tmp_path / "public"
    found = {path.name: (path / "index.html").read_text() for path in public.iterdir() if path.is_dir()}
    assert found == {"dev": "dev", "0.9.0": "v0.9.0", "0.10.0": "v0.10.0", "0.9.1": "v0.9.1", "latest": "v0.10.0"}
    listed = re.findall(r'href="(.*?)/index', (public / "versions.html").read_text())
    assert listed == ["latest", "dev", "0.10.0", "0.9.1", "0.9.0"]
    with pytest.raises(SystemExit, match="neither dev nor a tag"):
        publish(public / "dev", public, "main")


def test_the_reference_lists_every_public_name():
    import filet

    text = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
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
        assert not re.search(r"<script[^>]*mathjax", page.read_text(), re.I), page.name
    for page in ("theory", "lower_bounds", "engine"):
        assert (tmp_path / "site" / f"{page}.html").read_text().count("<math ") > 20, page
    index = (tmp_path / "site" / "searchindex.js").read_text()
    for word in ("mnist", "rdp", "lora", "ddp", "account"):  # as the search's stemmer has them
        assert f'"{word}":' in index or f",{word}:" in index, word
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
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
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
    exempt = {"Discrete", "Cells", "ClosedForm", "Block", "Spectrum", "LinePlan", "Reading", "Atom", "Verdict",
              "Integral", "Both"}  # fmt: skip
    seen = set()
    for path in sorted((DOCS.parent / "src" / "filet" / "accounting" / "proving").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                seen.add(node.name)
                if node.name not in exempt:
                    assert "Proof: " in (ast.get_docstring(node) or ""), f"{path.stem}.{node.name} names no proof"
    assert exempt <= seen
