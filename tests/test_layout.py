"""The architecture holds: imports point one way, also inside packages; the core needs no optional package."""

from __future__ import annotations

import ast
import functools
import importlib
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import filet

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "filet"

# Every module of filet, in one order: a module may import only modules that stand before it.
ORDER = """
_public errors _checks _files _numbers _rounding _tables _progress _binomial _binomial_ranges scheme
sampling.keys sampling.streams sampling.draws sampling.exact_sizes sampling.size_law sampling.urn sampling.partition sampling.batch
sampling.batched_draws sampling.sampler sampling.passes sampling.noise sampling.mechanism sampling.p_values sampling.size_checks sampling.member_checks sampling.audits
checking.theorems checking.lattice
accounting.terms
accounting.proving.loss_law accounting.proving.tails accounting.proving.lending
accounting.proving.theorems accounting.proving.cells accounting.proving.hull accounting.proving.sizes
accounting.proving.transform accounting.proving.composition accounting.proving.contour accounting.proving.pmf
accounting.proving.closed_form accounting.proving.pair accounting.proving.inversion accounting.proving.combining
accounting.search.effort accounting.search.grid accounting.search.saddle_point accounting.search.contour
accounting.search.question accounting.search.lending accounting.search.closed_form accounting.search.solve
accounting.run accounting.state accounting.certificate accounting.curve accounting.accountant accounting.attacks accounting.lower_bounds
planning.roots planning.target planning.calibration planning.hardware planning.recipes planning.options planning.strategies
planning.run_file planning.comparison planning.unknowns
planning.planner planning.frontiers
showing.statement showing.answers showing.risk showing.record showing.citing showing.columns showing.plots
cli.sources cli.group cli.output cli.options cli.jobs cli.commands.search cli.commands.batches cli.commands.pictures
cli.commands.certificates cli.commands.beam cli.commands.spark cli.commands.comparison cli.commands.risk cli.commands.records
exploring.tasks exploring.pool exploring.views exploring.limiter exploring.protection exploring.app exploring.serving
cli.commands.explore cli.commands.answers cli.entry
__main__
integrations._frameworks integrations._batch_sizes integrations._checkpoint_files integrations._records integrations._users
integrations.dp_accounting.events integrations.dp_accounting.losses integrations.dp_accounting.accountant integrations.dp_accounting
integrations.jax.sampler integrations.jax
integrations.jax_privacy.bands integrations.jax_privacy.configs integrations.jax_privacy.selection integrations.jax_privacy.plans integrations.jax_privacy
integrations.grain.source integrations.grain
integrations.keras.training integrations.keras
integrations.torch.padding integrations.torch.reading integrations.torch.loaders integrations.torch
integrations.opacus.accountant integrations.opacus.ledger integrations.opacus.noise integrations.opacus.layers integrations.opacus.rows
integrations.opacus.gradients integrations.opacus.ghost integrations.opacus.sharded integrations.opacus.checkpoint
integrations.opacus.engine integrations.opacus
integrations._private_run
integrations.tracking.trackers integrations.tracking.budget integrations.tracking
integrations.huggingface.trainer integrations.huggingface.sft integrations.huggingface
integrations.lightning.strategy integrations.lightning.loss integrations.lightning.callback integrations.lightning
integrations.batch_files.storage integrations.batch_files.keys integrations.batch_files.records
integrations.batch_files.formats integrations.batch_files.examples integrations.batch_files.manifest
integrations.batch_files.reading integrations.batch_files.job integrations.batch_files.writing integrations.batch_files
integrations.beam.index integrations.beam.examples integrations.beam.join integrations.beam.files integrations.beam.job integrations.beam
integrations.flower.accountant integrations.flower.adaptive integrations.flower.clients integrations.flower.state
integrations.flower.cohorts integrations.flower
integrations.spark.stages integrations.spark.join integrations.spark.index integrations.spark.files integrations.spark.session
integrations.spark
integrations.ray.batches integrations.ray
""".split()  # noqa: SIM905, a list of words
# The lazy upward imports: a scheme makes its sampler, two commands are integrations', one reads its checkpoints.
ALLOWED = {
    ("scheme", "sampling.sampler"),
    ("cli.commands.beam", "integrations.beam"),
    ("cli.commands.spark", "integrations.spark"),
    ("cli.jobs", "integrations.batch_files"),
    ("cli.sources", "integrations.opacus"),
}
# Integrations whose modules others may import; the rest know each other by their public names only.
SHARED = {"batch_files"}
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
PACKAGES = {module_name(path) for path in modules() if path.stem == "__init__"}


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
    assert set(ORDER) - PACKAGES == NAMES - PACKAGES


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


def test_the_front_ends_do_not_know_each_other() -> None:
    """The command line and the page share logic in planning and showing; one command starts the page."""
    for path in modules():
        name = module_name(path)
        room, *_ = name.split(".")
        seen = {other.split(".")[0] for other in imports(path)}
        assert room != "exploring" or "cli" not in seen, path
        assert room != "cli" or "exploring" not in seen or name == "cli.commands.explore", path


def test_proving_imports_nothing_that_searches() -> None:
    for path in modules():
        if module_name(path).startswith("accounting.proving"):
            assert not any(name.startswith("accounting.search") for name in imports(path)), path


def test_nothing_imports_the_integrations() -> None:
    for path in modules():
        name = module_name(path)
        if not name.startswith("integrations"):
            reached = {other for other in imports(path) if other.startswith("integrations")}
            assert not {other for other in reached if (name, other) not in ALLOWED}, path


def test_integrations_know_each_other_by_their_public_names_only() -> None:
    for path in modules():
        room, *own = module_name(path).split(".")[:2]
        for other in imports(path) if room == "integrations" else ():
            reached = other.split(".")[1:]
            if other.startswith("integrations.") and len(reached) > 1 and reached[:1] != own:
                assert reached[0] in SHARED, f"{path} imports {other}"


def test_no_engine_imports_another() -> None:
    """What Beam, Spark and Ray share is in `batch_files`."""
    engines = {"beam", "spark", "ray"}
    for path in modules():
        room, own, *_ = (*module_name(path).split("."), "", "")
        others = engines - {own} if room == "integrations" and own in engines | SHARED else set()
        assert not {other for other in imports(path) if set(other.split(".")[1:2]) & others}, path


def test_an_integrations_front_door_holds_its_public_names_only() -> None:
    """Its imports are relative, and of the names that it lists; a name that is loaded late is listed too."""
    for folder in (
        path for path in (SOURCE / "integrations").iterdir() if path.is_dir() and path.name != "__pycache__"
    ):
        tree = parsed(folder / "__init__.py")
        relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        lists = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        assert {alias.name for node in relative for alias in node.names} == set(ast.literal_eval(lists[0])), folder


# --- simple code ------------------------------------------------------------------------------------------------------

MOST_LINES_OF_PROOF = 1_550
LENDING, MOST_LINES_OF_LENDING = ("tails", "lending", "hull"), 460
MOST_LINES_OF_SIZES = 230
MOST_CODE_OF_PROOF, MOST_CODE_OF_LENDING = 1_400, 310

MOST_DECISIONS = 10
# Functions that have more, and how many: a number may only fall, and an entry that is no longer needed is to go.
DECISIONS = {
    "accounting.attacks._batch_law": 14,
    "accounting.lower_bounds._best": 15,
    "accounting.lower_bounds.merged": 20,
    "accounting.proving.pmf.LossPMF.__init__": 18,
    "accounting.proving.theorems.loss_law": 12,
    "accounting.run.Run.__init__": 15,
    "accounting.search.closed_form._crossing": 14,
    "checking.Claim.__init__": 20,
    "checking.Claim.add": 19,
    "checking.read": 12,
    "exploring.views.epsilon_cap": 14,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


def functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    """Every function with its dotted name, those within classes and functions, too."""
    for node in ast.iter_child_nodes(tree):
        name = f"{prefix}.{node.name}" if isinstance(node, SCOPES) else prefix
        if isinstance(node, Function):
            yield name, node
        yield from functions(node, name)


def complexity(node: ast.AST) -> int:
    """McCabe's number: one more than the decisions of a function, without those of functions within."""
    count = int(isinstance(node, Function))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, SCOPES):
            continue
        if isinstance(child, BRANCHES):
            count += 1
        elif isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
        elif isinstance(child, ast.comprehension):
            count += 1 + len(child.ifs)
        count += complexity(child)
    return count


def test_no_function_makes_many_decisions() -> None:
    found = {name: complexity(node) for path in modules() for name, node in functions(parsed(path), module_name(path))}
    many = {name: count for name, count in found.items() if count > MOST_DECISIONS}
    assert {name: count for name, count in many.items() if count > DECISIONS.get(name, 0)} == {}
    assert set(DECISIONS) <= set(many), "take what is simple now off the list"


def test_decisions_are_counted_in_every_form() -> None:
    text = """
def simple(x):
    return x

def all_of_them(x, y):
    if x and y or not x:
        pass
    elif y:
        pass
    for one in [v for v in y if v]:
        while one:
            one = None if x else y
    try:
        pass
    except ValueError:
        pass

    def within(z):
        return z if z else x
"""
    found = {name: complexity(node) for name, node in functions(ast.parse(text), "m")}
    assert found == {"m.simple": 1, "m.all_of_them": 11, "m.all_of_them.within": 2}


# --- the search: few lines, few numbers -------------------------------------------------------------------------------

SEARCH = sorted((SOURCE / "accounting" / "search").glob("*.py"))
MOST_LINES_OF_SEARCH, MOST_NUMBERS_OF_SEARCH, MOST_LITERALS_OF_SEARCH = 1_300, 30, 102
PLAIN = {0, 1, 2, 0.5}  # numbers that nobody tuned
ZERO = 1e-200  # and those that stand for zero in a quotient or a logarithm


def number(node: ast.AST) -> float | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def has_number(node: ast.AST | None) -> bool:
    return node is not None and any(number(one) is not None for one in ast.walk(node))


def named_numbers(tree: ast.Module) -> list[str]:
    """Constants of a module, and fields of its dataclasses, that are made of numbers."""
    fields = [inner for node in tree.body if isinstance(node, ast.ClassDef) for inner in node.body]
    found = []
    for node in [*tree.body, *(one for one in fields if isinstance(one, ast.AnnAssign))]:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and has_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    return found


def literals(tree: ast.Module) -> list[float]:
    """Numbers inside functions that might have been tuned; not those of an index or an axis."""
    outside = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.keyword) and node.arg == "axis")
        for inner in ast.walk(node.slice if isinstance(node, ast.Subscript) else node)
    }
    inside = [one for node in tree.body if isinstance(node, SCOPES) for one in ast.walk(node)]
    found = [number(one) for one in inside if id(one) not in outside]
    return [value for value in found if value is not None and value not in PLAIN and abs(value) > ZERO]


def test_the_search_is_short() -> None:
    lines = [line for path in SEARCH for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES_OF_SEARCH


def test_the_search_has_few_numbers_with_a_name() -> None:
    found = {path.stem: named_numbers(parsed(path)) for path in SEARCH}
    print(found)
    assert sum(map(len, found.values())) <= MOST_NUMBERS_OF_SEARCH


def test_no_tuned_number_of_the_search_hides_in_a_formula() -> None:
    """Fields of dataclasses are counted above; the limit may only fall."""
    found = {path.stem: literals(parsed(path)) for path in SEARCH if path.stem != "effort"}
    print({stem: (len(numbers), sorted(numbers)) for stem, numbers in found.items()})
    assert sum(map(len, found.values())) <= MOST_LITERALS_OF_SEARCH


def test_numbers_are_counted_in_every_form() -> None:
    tree = ast.parse("""
A, B = 3, 4.5
C = np.arange(-5.0, 2.0)
D = "no number"
class E:
    f: int = 7
    g: str = "x"
    def h(self, x):
        return x[3] + 0.5 * x.sum(axis=5) + 17 - 1e-4 / (x + 1e-300)
""")
    assert named_numbers(tree) == ["A", "B", "C", "f"]
    assert sorted(literals(tree)) == [1e-4, 7, 17]


# --- the trusted core -------------------------------------------------------------------------------------------------


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
    truncated batches need, and sizes that are not public are counted by themselves.
    """
    proofs = list((SOURCE / "accounting" / "proving").glob("*.py"))
    lending = [path for path in proofs if path.stem in LENDING]
    sizes = SOURCE / "accounting" / "proving" / "sizes.py"
    core = [path for path in proofs if path not in lending and path != sizes]
    assert sum(_not_blank(path) for path in core) < MOST_LINES_OF_PROOF
    assert sum(_not_blank(path) for path in lending) < MOST_LINES_OF_LENDING
    assert _not_blank(sizes) < MOST_LINES_OF_SIZES
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
    for name in (name for name in ORDER if name not in PACKAGES):
        *rooms, module = name.split(".")
        if module != "__main__":  # tested with the entry point
            test = ROOT.joinpath("tests", *rooms, f"test_{module.lstrip('_')}.py")
            assert test.exists(), test


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
