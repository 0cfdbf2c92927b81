"""The documentation: the command line reference is current, every page is listed, links and examples hold."""

import ast
import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import filet

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "_build" not in page.parts)
NOTEBOOKS = sorted(str(page.relative_to(DOCS)) for page in (DOCS / "tutorials").glob("*.ipynb"))
GENERATED = {"cli.md", "architecture.md", "benchmarks.md", "changelog.md"}
WIDEST = 92  # characters of code that fit the column
PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS, EXTRAS = PROJECT["urls"], PROJECT["optional-dependencies"]


def load(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_command_line_reference_is_what_help_prints():
    written = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert written == load("cli").reference(), "run: python docs/_scripts/cli.py"


def test_the_table_of_judged_runs_is_what_was_found():
    written = (DOCS / "validation.md").read_text(encoding="utf-8")
    assert written == load("judged").generated(), "run: python docs/_scripts/judged.py"
    assert "| ordinary | all |" in written


def test_the_table_of_the_planning_page_is_what_a_plan_prints():
    """Words, order and whole numbers exactly; figures within what a search leaves open, widest for overflow chances."""
    script = load("planning")
    texts = script.TABLE.search((DOCS / "planning.md").read_text(encoding="utf-8"))[2], script.table()
    written, now = ([line.split() for line in text.replace("no cap", "no-cap").splitlines()] for text in texts)
    assert len(now) > 18
    for line, current in zip(written, now, strict=True):
        overflow = 4 if "*" in current else 3
        for place, (cell, figure) in enumerate(zip(line, current, strict=True)):
            if re.fullmatch(r"\d+\.\d\S*", figure):
                close = pytest.approx(float(figure.rstrip("%")), rel=0.2 if place == overflow else 0.01)
                assert float(cell.rstrip("%")) == close, "run: python docs/_scripts/planning.py"
            else:
                assert cell == figure, "run: python docs/_scripts/planning.py"


def test_the_run_file_of_the_reference_is_valid():
    from filet.planning.run_file import parse_run

    text = re.search(r"```toml\n(.*?)```", (DOCS / "cli.md").read_text(encoding="utf-8"), re.S)[1]
    run = parse_run(tomllib.loads(text))
    assert len(run.accountant.phases) == 2
    assert run.curve.epsilon(run.delta) <= run.max_epsilon


def test_every_page_is_in_the_table_of_contents_and_every_entry_is_a_page():
    lists = ("index.md", "integrations.md", "reference.md")
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in lists)
    listed = [
        name
        for block in re.findall(r"```{toctree}(.*?)```", text, re.S)
        for name in re.findall(r"^([a-z_/]+)$", block, re.M)
    ]
    assert "\nintegrations/*\n" in text  # a new integration's page is listed without a line of its own
    found = {page.rpartition(".")[0] for page in PAGES + NOTEBOOKS if page != "index.md"}
    assert len(listed) == len(set(listed))
    assert set(listed) <= found
    assert {page for page in found - set(listed) if not page.startswith("integrations/")} == set()


def test_the_site_has_four_kinds_of_pages_apart():
    captions = re.findall(r"^:caption: (.*)$", (DOCS / "index.md").read_text(encoding="utf-8"), re.M)
    assert captions == ["Tutorials", "How-to guides", "Explanation", "Reference"]


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_are_doctests_and_links_lead_somewhere(page):
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"```(?:python|pycon|py)\n(.*?)```", text, re.S):
        assert ">>>" in block, f"{page} shows Python that no test runs"
    links_lead_somewhere(path, text)
    for figure in re.findall(r"_static/[\w.]+", text):
        assert (DOCS / figure).exists(), f"{page} shows {figure}"


def links_lead_somewhere(path, text):
    for target, anchor in re.findall(r"\]\(([\w./]+\.(?:md|ipynb))?(?:#([\w-]+))?\)", text):
        linked = path.parent / target if target else path
        assert linked.exists(), f"{path.name} links {target}"
        assert not anchor or anchor in headings(linked), f"{path.name} links {target}#{anchor}"


@pytest.mark.parametrize("page", NOTEBOOKS)
def test_notebooks_are_stored_without_output_and_open_in_colab(page):
    """The site's builder runs them; a stored output would be one that nobody made again."""
    stored = (DOCS / page).read_text(encoding="utf-8")
    notebook = json.loads(stored)
    assert stored == json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    words = "\n\n".join("".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown")
    source = URLS["Source"]
    colab = source.replace("https://github.com", "https://colab.research.google.com/github")
    assert f"[Open in Colab]({colab}/blob/main/docs/{page})" in words
    first = "".join(code[0]["source"])
    extras = re.search(rf'%pip install -q "filet\[([\w,-]+)\] @ git\+{source}"', first)[1]
    assert set(extras.split(",")) <= set(EXTRAS)
    links_lead_somewhere(DOCS / page, words)
    assert max(len(line.rstrip()) for cell in code for line in cell["source"]) <= 100


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


ANALYSES = {"union bound": "union", "the note": "note", "swap": "swap"}


@pytest.mark.parametrize(
    ("page", "head", "cells"),
    [("../README.md", "a cap of 300 rows", 15), ("index.md", "cap 300", 12), ("policies.md", "policy, analysis", 15)],
)
def test_the_figures_of_what_a_cap_costs_are_rounded_up(page, head, cells):
    import filet

    text = (DOCS / page).read_text(encoding="utf-8")
    table = re.search(rf"(\| {head}.*?)\n\n", text, re.S)[1].splitlines()
    columns = [cell.strip() for cell in table[0].strip("|").split("|")][1:]
    checked = 0
    for row in table[2:]:
        name, *figures = (cell.strip() for cell in row.strip("|").split("|"))
        scheme = scheme_of(name)
        # "swap" is part of the words for refined too, behind a colon.
        named = [ANALYSES[words] for words in ANALYSES if re.search(rf"(, |\(){words}", name)]
        analysis = named[0] if named else "refined"
        for adjacency, cell in zip(columns, figures, strict=True):
            curve = filet.account(scheme, noise_multiplier=1.0, steps=14_000, adjacency=adjacency, analysis=analysis)
            expected = filet.round_up(curve.epsilon(1e-5), 4)
            assert cell == ("infinite" if expected == "inf" else expected), (name, adjacency)
            checked += 1
    assert checked == cells


def scheme_of(row):
    """The scheme of a line of the tables: a policy at a cap of 300, or none."""
    import filet

    if "no cap" in row:
        return filet.CappedPoisson(60_000, 256 / 60_000, 60_000)
    return filet.CappedPoisson(60_000, 256 / 60_000, 300, overflow=row.split(",")[0])


def test_the_shapes_table_of_the_front_pages_is_what_was_measured():
    import filet

    pages = [(DOCS / page).read_text(encoding="utf-8") for page in ("../README.md", "index.md")]
    stored = json.loads((DOCS.parent / "benchmarks" / "results" / "shapes.json").read_text())["results"]
    runs = {(row["shape"], row["run"]): row for row in stored if row["model"] == "perceptron"}
    for shape in ("variable", "power of two", "capped"):
        torch, jax = runs[shape, "torch.compile"], runs[shape, "jax.jit"]
        rates = [run["steps_per_second"] for run in (torch, jax)]
        first, second = (f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}" for rate in rates)
        compiled = f"{torch['compilations']}{', then gives up' if torch['gave_up'] else ''}"
        row = [shape, compiled, first, str(jax["compilations"]), second, f"{jax['rows_wasted']:.1%}"]
        line = "| " + " | ".join([*row, filet.round_up(jax["epsilon"], 3)]) + " |"
        assert all(line in text for text in pages)


PLAIN = ("theory", "engine", "validation", "meaning", "lower_bounds", "auditing", "checking", "case_study", "index")


@pytest.mark.parametrize("page", ["../README.md", *(f"{name}.md" for name in PLAIN)])
def test_lines_of_prose_are_short(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    for block in (r"^ *```.*?^ *```", r"^<!-- (judged|trusted).*?^<!-- end -->", r"^\$\$.*?\$\$"):
        text = re.sub(block, "", text, flags=re.S | re.M)
    assert [line for line in text.splitlines() if len(line) > 100 and not line.startswith(("|", "!["))] == []


STUMBLED_OVER = (
    "too dear", "is no number", "the more the more", "larger, not worse", "fuller batches win",
    "in data sets.", "nothing fits", "witness of", "lend to the full", "keeps its hit", "at most the next one",
    "because they cost more",
)  # fmt: skip


@pytest.mark.parametrize("page", ["../README.md", *PAGES])
def test_no_page_has_the_sentences_that_readers_stumbled_over(page):
    text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
    assert [words for words in STUMBLED_OVER if words in text] == []


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


def test_the_glossary_defines_every_public_class_and_no_class_that_is_gone():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8").partition("Words that filet uses")[2]
    named = set(re.findall(r"`([A-Z][a-z]\w+)`", text.partition("## Words of papers")[0]))
    classes = set(re.findall(r"^\| `(\w+)` \| `", (DOCS / "symbols.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert {name for name in filet.__all__ if isinstance(getattr(filet, name), type)} <= named
    assert named <= classes


def test_every_name_that_stands_for_a_symbol_is_in_the_source():
    tables = (DOCS / "symbols.md").read_text(encoding="utf-8").partition("## Every class")[0]
    source = " ".join(path.read_text(encoding="utf-8") for path in (DOCS.parent / "src").rglob("*.py"))
    known = set(re.findall(r"\w+", source)) | {path.stem for path in (DOCS.parent / "src").rglob("*.py")}
    cells = [row.rsplit("|", 2)[1] for row in tables.splitlines() if row.startswith("| ")]
    named = {word for cell in cells for name in re.findall(r"`([^`]+)`", cell) for word in re.findall(r"\w+", name)}
    assert len(named) > 20
    assert named <= known


def test_the_threads_that_filet_answers_are_named():
    """Where users of other libraries asked for what filet has: a page says so, by the thread's number."""
    pages = [DOCS / "faq.md", DOCS / "fixed_shapes.md", *sorted((DOCS / "integrations").glob("*.md"))]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    text = text.replace("JAX Privacy", "jax_privacy").replace("; pull request", "; opacus pull request")
    for repository, numbers in THREADS.items():
        for number in numbers:
            assert re.search(rf"{repository}\b[^;]{{0,160}}?\b{number}\b", text), f"{repository} {number}"


def extension(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    return module


def test_cells_of_numbers_and_of_words_are_told_apart():
    nodes = pytest.importorskip("docutils.nodes")
    cells = {
        "3.1e-06": ["number"],
        "12,748": ["number"],
        "33.1 %": ["number"],
        "A": [],
        "1 to 7": [],
        "x" * 41: ["words"],
    }
    document = pytest.importorskip("docutils.utils").new_document("a page")
    for text in cells:
        document += nodes.entry("", nodes.paragraph(text, text))
    extension("cells").mark(None, document, "a page")
    assert {cell.astext(): cell["classes"] for cell in document.findall(nodes.entry)} == cells


def test_formulas_have_primes_bars_and_functions_as_print_has_them():
    """A prime as an exponent is raised twice, a bar as an operator stands apart, a name without a space runs on."""
    pytest.importorskip("latex2mathml")
    space = 'lspace="0em" rspace="0em"'
    for latex, expected in {
        "D'": f"<mi>D</mi><mo {space}>\u2032</mo>",
        "x_1'": f"<msub><mi>x</mi><mn>1</mn></msub><mo {space}>\u2032</mo>",
        "|S|": f'<mo stretchy="false" {space}>|</mo><mi>S</mi><mo stretchy="false" {space}>|</mo>',
        r"\log a": '<mi>log</mi><mspace width="0.167em" /><mi>a</mi>',
        r"2 \log a": '<mn>2</mn><mspace width="0.167em" /><mi>log</mi>',
        r"\log(a)": '<mi>log</mi><mo stretchy="false">(</mo>',
    }.items():
        shown = extension("mathml").mathml(latex, "inline")
        assert expected in shown
        assert f'title="{latex}"' in shown


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
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
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
    exempt = {"Discrete", "Cells", "ClosedForm", "Block", "Spectrum", "ContourParameters", "Reading", "Atom", "DeltaBound",
              "Integral", "Enclosure"}  # fmt: skip
    seen = set()
    for path in sorted((DOCS.parent / "src" / "filet" / "accounting" / "proving").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                seen.add(node.name)
                if node.name not in exempt:
                    assert "Proof: " in (ast.get_docstring(node) or ""), f"{path.stem}.{node.name} names no proof"
    assert exempt <= seen
