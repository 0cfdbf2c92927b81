"""Write every message of filet's errors and warnings into docs/troubleshooting.md: python docs/_scripts/troubleshooting.py

Messages are read from the code, not from runs: each call of an error class, of `fail` and of `warnings.warn`. A message has the form `rule and value; remedy`.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "filet"
PAGE = ROOT / "docs" / "troubleshooting.md"
START = "<!-- messages: made by docs/_scripts/troubleshooting.py -->\n"
END = "<!-- end of messages -->"
GAP = "…"  # a value that differs from message to message
NO_REMEDY = "as the message says"
BY_ARGUMENT = "by argument, in the last table"

# Headings, and the folders and files of src/filet that belong there; the first that fits is taken.
ROOMS = {
    "PyTorch": ("integrations/torch",),
    "Opacus": ("integrations/opacus", "integrations/_checkpoint_files.py"),
    "Hugging Face": ("integrations/huggingface",),
    "JAX": ("integrations/jax/",),
    "JAX Privacy": ("integrations/jax_privacy",),
    "Keras": ("integrations/keras",),
    "grain": ("integrations/grain",),
    "dp_accounting": ("integrations/dp_accounting",),
    "Apache Beam and files of batches": ("integrations/beam", "integrations/batch_files"),
    "Other integrations": ("integrations",),
    "Command line and run files": ("cli", "planning/run_file.py"),
    "Schemes and samplers": ("scheme.py", "sampling"),
    "Accounting and certificates": ("accounting", "checking"),
    "Plans and calibration": ("planning",),
    "Records and pictures": ("showing",),
    "Arguments and files, anywhere": ("",),
}


@dataclass(frozen=True, order=True)
class Message:
    """One message as the code has it; `path` and `line` are the place that makes it."""

    text: str
    kind: str
    path: str
    line: int

    @property
    def cause(self) -> str:
        return self.text.rsplit("; ", 1)[0]

    @property
    def remedy(self) -> str:
        found = self.text.rsplit("; ", 1)[1] if "; " in self.text else ""
        if found.strip(GAP + " "):
            return found
        return BY_ARGUMENT if self.path == "_checks.py" else NO_REMEDY


def error_classes() -> set[str]:
    """The names of filet's own errors, and of click's for wrong usage."""
    tree = ast.parse((SOURCE / "errors.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef)} | {"UsageError"}


MAKERS = {name: name for name in error_classes()} | {"fail": "InvalidArgumentError", "warn": "warning"}


def calls(tree: ast.Module) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Every call with arguments, and the function around it (the module, if there is none)."""

    def walk(node: ast.AST, around: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else around
            if isinstance(child, ast.Call) and child.args:
                yield child, around
            yield from walk(child, inner)

    return walk(tree, tree)


def names(targets: list[ast.expr]) -> list[str]:
    return [getattr(target, "id", "") for target in targets]


def called(call: ast.Call) -> str:
    """The last name of what is called: `fail` of `_checks.fail(...)`."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@dataclass(frozen=True)
class Place:
    """The function that a message stands in, its module, and all functions of the source by name."""

    around: ast.AST
    module: ast.Module
    functions: dict[str, list[tuple[ast.FunctionDef, ast.Module]]]

    def assigned(self, name: str) -> list[ast.expr]:
        """The values of a name, in the function or else at the top of the module; not those made of itself."""
        for scope in (ast.walk(self.around), iter(self.module.body)):
            values = [
                node.value
                for node in scope
                if isinstance(node, ast.Assign) and names(node.targets) == [name]
                if name not in [getattr(inner, "id", "") for inner in ast.walk(node.value)]
            ]
            if values:
                return values
        return []

    def texts(self, node: ast.expr) -> list[str]:
        """The messages that an expression can be, with a gap for each value; none if it was made elsewhere."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.JoinedStr):
            return self.joined(node)
        if isinstance(node, ast.IfExp):
            return self.texts(node.body) + self.texts(node.orelse)
        if isinstance(node, ast.Name):
            return [one for value in self.assigned(node.id) for one in self.texts(value)]
        return self.returned(node) if isinstance(node, ast.Call) else []

    def joined(self, node: ast.JoinedStr) -> list[str]:
        """An f-string's forms: a name that is set to one text is filled in, everything else is a gap."""
        forms = [""]
        for part in node.values:
            filled = [str(part.value)] if isinstance(part, ast.Constant) else [GAP]
            if isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name):
                values = self.assigned(part.value.id)
                known = len(values) == 1 and isinstance(values[0], (ast.Constant, ast.JoinedStr))
                filled = (self.texts(values[0]) if known else []) or [GAP]
            forms = [form + one for form in forms for one in filled]
        return forms

    def returned(self, call: ast.Call) -> list[str]:
        """The texts that a function of filet returns, if its name is the only one of its kind."""
        known = self.functions.get(called(call), [])
        if len(known) != 1:
            return []
        function, module = known[0]
        inside = Place(function, module, self.functions)
        returns = (node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value)
        return [one for value in returns for one in inside.texts(value)]


@dataclass(frozen=True)
class Messages:
    """Everything read from the code; `passed_on` are the places that repeat a message made elsewhere."""

    found: list[Message]
    arguments: dict[str, set[str]]
    passed_on: list[str]


def read() -> Messages:
    modules = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    functions: dict[str, list[tuple[ast.FunctionDef, ast.Module]]] = {}
    for module in modules.values():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef):
                functions.setdefault(node.name, []).append((node, module))
    messages = Messages([], {}, [])
    for path, module in modules.items():
        for call, around in calls(module):
            collect(call, Place(around, module, functions), path, messages)
    return messages


def collect(call: ast.Call, place: Place, path: str, messages: Messages) -> None:
    """Add the messages of one call, or the remedy that it hands to a check of an argument."""
    for remedy in (word.value for word in call.keywords if word.arg == "remedy"):
        for name, text in itertools.product(place.texts(call.args[0]), place.texts(remedy)):
            messages.arguments.setdefault(name, set()).add(" ".join(text.split()))
    if called(call) not in MAKERS:
        return
    forms = [" ".join(form.split()) for form in place.texts(call.args[0])]
    worded = [form for form in forms if form.strip(GAP + ":; ")]
    for form in worded:
        messages.found.append(Message(form, MAKERS[called(call)], path, call.lineno))
    if not worded:
        messages.passed_on.append(f"{path}: {ast.unparse(call)}")


def room(message: Message) -> str:
    return next(name for name, starts in ROOMS.items() if message.path.startswith(starts))


def cell(text: str) -> str:
    """Text as code in a table; gaps are set in code too, so that the words can be searched for."""
    return "`" + text.replace("|", "\\|").replace("`", "'") + "`"


def content() -> str:
    messages = read()
    lines = []
    for name in ROOMS:
        rows = sorted({(m.cause, m.remedy, m.kind) for m in messages.found if room(m) == name}, key=by_first_word)
        if rows:
            lines += [f"### {name}", "", "| message | remedy | kind |", "| --- | --- | --- |"]
            lines += [f"| {cell(cause)} | {plain(remedy)} | {kind} |" for cause, remedy, kind in rows]
            lines.append("")
    lines += ["### Remedies by argument", "", "| argument | remedy |", "| --- | --- |"]
    for name, remedies in sorted(messages.arguments.items()):
        lines.append(f"| `{name}` | {'; or: '.join(plain(one) for one in sorted(remedies))} |")
    return "\n".join(lines) + "\n"


def by_first_word(row: tuple[str, str, str]) -> tuple[str, ...]:
    return (row[0].strip(GAP + "'=. ").lower(), *row)


def plain(text: str) -> str:
    """Prose in a table: nothing in it is markup."""
    return re.sub(r"([|*_<>\[\]`$\\])", r"\\\1", text)


def generated() -> str:
    """The page as it should be."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START)
    return f"{before}{START}{content()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(generated(), encoding="utf-8")
