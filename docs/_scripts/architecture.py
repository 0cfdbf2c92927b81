"""Write the generated parts of the architecture: python docs/_scripts/architecture.py

- docs/architecture.md: the picture of rooms, modules and imports, read off the code;
- docs/engine.md: the functions that have to be read to trust an epsilon, with the sections they rest on.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "filet"
# Rooms in the order in which they may import each other; the vocabulary is what lies at the root.
ROOMS = ("", "sampling", "accounting", "planning", "showing", "cli", "exploring", "integrations", "checking")


def summary(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.splitlines()[0].rstrip(".") if text else ""


def room_of(name: str) -> str:
    return name.split(".")[0] if "." in name else ""


def imports(path: Path) -> set[str]:
    """Rooms that a module imports, the vocabulary as an empty string; imports for type checking only do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    package = path.relative_to(SOURCE).parent.parts
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in guarded:
            continue
        if node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
        elif (node.module or "").split(".")[0] == "filet":
            base = (node.module or "").split(".")[1:]
        else:
            continue
        base = [part for part in base if part]
        for alias in node.names:
            first = base[0] if base else alias.name
            found.add(first if (SOURCE / first).is_dir() else "")
    return found


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.stem not in ("__init__", "__main__"))


def rooms() -> list[Path]:
    """The folders of the package, each followed by its own, in the order of `ROOMS`."""
    tops = [SOURCE / room for room in ROOMS if (SOURCE / room).is_dir()]
    return [folder for top in tops for folder in ([top] if top == SOURCE else [top, *_folders(top)])]


def _folders(top: Path) -> list[Path]:
    return sorted(path for path in top.iterdir() if (path / "__init__.py").exists())


def picture() -> str:
    """Every room with what it is for, what it imports, and its modules."""
    lines = ["```text"]
    for folder in rooms():
        name = "/".join(folder.relative_to(SOURCE).parts)
        depth = len(folder.relative_to(SOURCE).parts)
        seen = set().union(*(imports(path) for path in modules(folder))) - {name.split("/")[0]}
        below = ", ".join(room for room in ROOMS if room in seen and room) or "the vocabulary only"
        title = f"{name}/" if name else "filet/"
        about = summary(folder / "__init__.py") if name else "the vocabulary that everything else reads"
        indent = "  " * max(depth - 1, 0)
        lines.append(f"{indent}{title}  {about}" + (f"  [imports: {below}]" if name else ""))
        width = max((len(path.stem) for path in modules(folder)), default=0)
        lines += [f"{indent}  {path.stem.ljust(width)}  {summary(path)}" for path in modules(folder)]
    return "\n".join([*lines, "```"])


def trusted() -> str:
    """Public functions and classes of the proving room, in the order in which they build on each other."""
    order = re.findall(r"accounting\.proving\.(\w+)", (ROOT / "tests" / "test_layout.py").read_text(encoding="utf-8"))
    lines = ["| module | what | rests on |", "| --- | --- | --- |"]
    for module in dict.fromkeys(order):
        source = (SOURCE / "accounting" / "proving" / f"{module}.py").read_text(encoding="utf-8")
        tree = ast.parse(source)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                anchors = dict.fromkeys(
                    re.findall(r"(engine|theory)\.md#([\w-]+)", ast.get_source_segment(source, node) or "")
                )
                links = ", ".join(f"[{name.replace('-', ' ')}]({page}.md#{name})" if page != "engine" else
                                  f"[{name.replace('-', ' ')}](#{name})" for page, name in anchors)  # fmt: skip
                if links:
                    lines.append(f"| `{module}` | `{node.name}` | {links} |")
    return "\n".join(lines)


def filled(text: str, name: str, content: str) -> str:
    """The text with what stands between the named marker and the next `<!-- end -->` replaced."""
    pattern = rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}{content}\n{found[2]}", text, count=1, flags=re.S)


def generated() -> dict[Path, str]:
    """Every file with generated parts, as it should be."""
    page, engine = ROOT / "docs" / "architecture.md", ROOT / "docs" / "engine.md"
    return {
        page: filled(page.read_text(encoding="utf-8"), "rooms", picture()),
        engine: filled(engine.read_text(encoding="utf-8"), "trusted", trusted()),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
