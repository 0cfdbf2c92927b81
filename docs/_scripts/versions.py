"""Put a built site into its folder of the published ones: python docs/_scripts/versions.py SITE PUBLIC VERSION

VERSION is `dev` or a tag such as v1.2.3. PUBLIC then has one folder a version, `latest` (a copy of the newest release, or of `dev`
before the first), a page that lists them, and a front page that leads to the latest. Folders of other versions stay as they are.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

LIST = """<!doctype html><html lang="en"><meta charset="utf-8"><title>filet: versions of the documentation</title>
<h1>filet: versions of the documentation</h1><ul>
{lines}
</ul></html>
"""
FRONT = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=latest/index.html">\n'


def releases(public: Path) -> list[str]:
    """Published releases, newest first."""
    found = [path.name for path in public.iterdir() if re.fullmatch(r"\d+\.\d+\.\d+", path.name)]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def publish(site: Path, public: Path, version: str) -> None:
    name = version.removeprefix("v")
    if name != "dev" and not re.fullmatch(r"\d+\.\d+\.\d+", name):
        raise SystemExit(f"{version} is neither dev nor a tag such as v1.2.3")
    public.mkdir(exist_ok=True)
    replace(site, public / name)
    known = releases(public)
    latest = known[0] if known else "dev"
    replace(public / latest, public / "latest")
    names = ["latest", *(["dev"] if (public / "dev").exists() else []), *known]
    lines = "\n".join(f'<li><a href="{one}/index.html">{one}</a></li>' for one in names)
    (public / "versions.html").write_text(LIST.format(lines=lines), encoding="utf-8")
    (public / "index.html").write_text(FRONT, encoding="utf-8")
    (public / ".nojekyll").touch()  # folders that begin with an underscore are served too


def replace(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    publish(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
