"""The architecture holds: imports point one way, also inside packages; the core needs no optional package."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

import filet

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "filet"

# Every module of filet, in one order: a module may import only modules that stand before it.
ORDER = """
_public errors _checks _files _numbers _rounding _tables _progress _binomial _binomial_ranges scheme
sampling.keys sampling.streams sampling.draws sampling.exact_sizes sampling.size_law sampling.partition sampling.batch
sampling.ahead sampling.sampler sampling.passes sampling.noise sampling.mechanism sampling.p_values sampling.size_checks sampling.member_checks sampling.audits
checking.theorems checking.lattice
accounting.terms
accounting.proving.loss_law accounting.proving.tails accounting.proving.lending
accounting.proving.theorems accounting.proving.cells accounting.proving.hull
accounting.proving.transform accounting.proving.composition accounting.proving.line accounting.proving.view
accounting.proving.closed_form accounting.proving.verdict accounting.proving.combining
accounting.searching.budget accounting.searching.grids accounting.searching.guesses accounting.searching.jumps accounting.searching.tilts accounting.searching.newton
accounting.searching.sketches accounting.searching.lending_shares accounting.searching.lending_looks
accounting.searching.lending_crowds accounting.searching.straight
accounting.searching.refinement accounting.searching.crossings accounting.searching.exact accounting.searching.crowds accounting.searching.stretches accounting.searching.tables
accounting.run accounting.many accounting.rough accounting.state accounting.certificate accounting.curve accounting.accountant accounting.attacks accounting.lower_bounds
planning.roots planning.target planning.looks planning.solving planning.calibration planning.hardware planning.options planning.strategies
planning.planner planning.frontiers
showing.statement showing.columns showing.plots
cli.run_file cli.group cli.output cli.options cli.commands.search cli.commands.batches cli.commands.pictures
cli.commands.certificates cli.commands.beam cli.commands.comparison
exploring.tasks exploring.worker exploring.pool exploring.views exploring.desk exploring.protection exploring.app exploring.serving
cli.commands.explore cli.commands.answers cli.entry
__main__
integrations.dp_accounting_events integrations.dp_accounting_losses integrations.dp_accounting
integrations.jax integrations.jax_privacy_bands integrations.jax_privacy
integrations.jax_privacy_plans integrations.grain integrations.keras integrations.torch_padding integrations.torch
integrations.opacus_accountant integrations.opacus_turns integrations.opacus_ghost integrations.opacus_sharded
integrations.opacus_checkpoint integrations.opacus integrations.huggingface
integrations.beam_keys integrations.beam_records integrations.beam_formats integrations.beam_reading integrations.beam_index
integrations.beam_examples integrations.beam_join integrations.beam_files integrations.beam
""".split()  # noqa: SIM905, a list of words
# The lazy upward imports: a scheme makes its sampler, and one command is an integration's.
ALLOWED = {("scheme", "sampling.sampler"), ("cli.commands.beam", "integrations.beam")}
FEWEST_TESTS = 1_500
# What the small suite leaves out, by path: whatever needs a framework. README and the workflows have the same words.
WITHOUT_FRAMEWORKS = "--ignore-glob=*/integrations*"


def module_name(path: Path) -> str:
    """The dotted name below `filet`; a package's own file has the name of the package."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> list[Path]:
    """Every file of the package but its front door."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


NAMES = {module_name(path) for path in modules()}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> set[str]:
    """Modules of filet that a file imports, at the top or inside functions, but not for type checking only."""
    tree = parsed(path)
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    package = path.relative_to(SOURCE).parent.parts
    found = set()
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("filet.") for alias in node.names if alias.name.startswith("filet.")}
        if isinstance(node, ast.ImportFrom):
            base = (*package[: len(package) - node.level + 1], *(node.module or "").split(".")) if node.level else None
            if base is None and (node.module or "").split(".")[0] == "filet":
                base = tuple((node.module or "").split(".")[1:])
            if base is not None:
                found |= {_resolved([part for part in base if part], alias.name) for alias in node.names}
    return found - {""}


def _resolved(base: list[str], name: str) -> str:
    """The module that `from base import name` reads: base.name if that is a module, else base itself."""
    full = ".".join([*base, name])
    return full if full in NAMES else ".".join(base)


def test_every_module_has_its_place_in_the_order() -> None:
    assert sorted(set(ORDER)) == sorted(ORDER)
    packages = {module_name(path) for path in modules() if path.stem == "__init__"}
    assert NAMES - packages == set(ORDER) - packages


def test_dependencies_point_one_way() -> None:
    place = {name: number for number, name in enumerate(ORDER)}
    for path in modules():
        name = module_name(path)
        for other in imports(path):
            if (name, other) not in ALLOWED and other in place and name in place:
                assert place[other] < place[name], f"{name} imports {other}, which stands above it"


def test_the_import_reader_sees_every_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "room" / "inner"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path)
    file = folder / "one.py"
    text = "from . import x\nfrom .. import y\nfrom ... import errors\nfrom ...scheme import CappedPoisson\n"
    text += "from filet.errors import FiletError\nimport filet.scheme\ndef f():\n    from .late import g\n"
    file.write_text(text)
    assert imports(file) == {"room.inner", "room", "errors", "scheme", "room.inner.late"}


def test_sampling_and_accounting_do_not_know_each_other() -> None:
    for path in modules():
        room, *_ = module_name(path).split(".")
        seen = {name.split(".")[0] for name in imports(path)}
        assert room != "sampling" or "accounting" not in seen, path
        assert room != "accounting" or "sampling" not in seen, path


def test_proving_imports_nothing_that_searches() -> None:
    for path in modules():
        if module_name(path).startswith("accounting.proving"):
            assert not any(name.startswith("accounting.searching") for name in imports(path)), path


def test_nothing_imports_the_integrations() -> None:
    for path in modules():
        name = module_name(path)
        if not name.startswith("integrations"):
            reached = {other for other in imports(path) if other.startswith("integrations")}
            assert not {other for other in reached if (name, other) not in ALLOWED}, path


MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_PROOF = 400, 45, 1_400
LENDING, MOST_LINES_OF_LENDING = ("tails", "lending", "hull"), 450
MOST_CODE_OF_PROOF, MOST_CODE_OF_LENDING = 1_300, 300


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def length(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    doc = node.body[0] if ast.get_docstring(node) else None
    return (node.end_lineno or 0) - node.lineno + 1 - ((doc.end_lineno or 0) - doc.lineno + 1 if doc else 0)


def test_modules_fit_a_sitting_and_functions_a_screen() -> None:
    for path in modules():
        assert len(path.read_text().splitlines()) <= MOST_LINES, path
        for node in functions(parsed(path)):
            assert length(node) <= MOST_LINES_OF_A_FUNCTION, f"{module_name(path)}.{node.name} has {length(node)} lines"


def code_lines(path: Path) -> int:
    """Lines of a module that hold code: neither blank, nor a comment, nor part of a docstring."""
    docs: set[int] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            docs.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP):
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docs)


def test_the_trusted_core_stays_readable() -> None:
    """Lines that are not blank, and lines of code, with those of the binomial weights; the lending theorem, which only
    truncated batches need, is counted by itself.
    """
    proofs = list((SOURCE / "accounting" / "proving").glob("*.py"))
    lending = [path for path in proofs if path.stem in LENDING]
    core = [path for path in proofs if path not in lending]
    assert sum(_not_blank(path) for path in core) < MOST_LINES_OF_PROOF
    assert sum(_not_blank(path) for path in lending) < MOST_LINES_OF_LENDING
    assert sum(code_lines(path) for path in [*core, SOURCE / "_binomial.py"]) < MOST_CODE_OF_PROOF
    assert sum(code_lines(path) for path in lending) < MOST_CODE_OF_LENDING


def _not_blank(path: Path) -> int:
    return sum(bool(line.strip()) for line in path.read_text().splitlines())


def own_names(tree: ast.AST) -> set[str]:
    """What a module's classes and functions call their own."""
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    return own | {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def test_no_module_reads_anothers_private_names() -> None:
    trees = {path: parsed(path) for path in modules()}
    everybodys = set().union(*(own_names(tree) for tree in trees.values()))  # not those of other libraries
    for path, tree in trees.items():
        own = own_names(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_self(node.value):
                assert node.attr in own or node.attr not in everybodys, f"{module_name(path)} reads {node.attr}"
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith("filet")):
                wrong = {a.name for a in node.names if _is_private(a.name)} - {name.split(".")[-1] for name in NAMES}
                assert not wrong, f"{module_name(path)} imports {wrong}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_every_module_has_a_test_of_its_name() -> None:
    for name in ORDER:
        *rooms, module = name.split(".")
        if module == "__main__":  # tested with the entry point
            continue
        folder, module = ROOT.joinpath("tests", *rooms), module.lstrip("_")
        # the parts of a framework's adapter are tested with the framework
        names = [module, *(path.stem[5:] for path in folder.glob("test_*.py"))] if "integrations" in rooms else [module]
        found = [one for one in names if module == one or module.startswith(f"{one}_")]
        assert any((folder / f"test_{one}.py").exists() for one in found), f"{folder}/test_{module}.py"


def test_rooms_tests_and_pages_have_the_same_names() -> None:
    for room in (path for path in SOURCE.iterdir() if (path / "__init__.py").exists()):
        assert (ROOT / "tests" / room.name).is_dir(), room.name
        assert (ROOT / "docs" / f"{room.name}.md").exists(), room.name


@pytest.mark.long
def test_no_test_has_quietly_disappeared() -> None:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [WITHOUT_FRAMEWORKS]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert sum("::" in line for line in lines) >= FEWEST_TESTS


def test_importing_filet_loads_no_optional_package() -> None:
    optional = ["click", "matplotlib", "torch", "opacus", "jax", "jax_privacy", "dp_accounting", "cryptography",
                "scipy.stats", "pandas", "sklearn", "flint", "starlette", "uvicorn"]  # fmt: skip
    code = f"import sys, filet; print([name for name in {optional!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_public_names_are_pinned() -> None:
    assert filet.__all__ == sorted(filet.__all__)
    assert set(filet._HOME) == set(filet.__all__)
    for name, module in filet._HOME.items():
        assert getattr(filet, name) is getattr(importlib.import_module(f"filet.{module}"), name)
    assert set(filet.__all__) <= set(dir(filet))
    with pytest.raises(AttributeError, match="no attribute"):
        getattr(filet, "Poisson")  # noqa: B009  # type checkers refuse the plain form


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").exists()
