"""What a stranger installs, cites and clones: one version, true addresses, a whole source distribution, README's commands in CI."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import filet
from tests.test_layout import WITHOUT_FRAMEWORKS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS = PROJECT["urls"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def readme_command(name: str) -> str:
    return re.search(rf"<!-- {name} -->\n```bash\n(.*?)\n```", text("README.md"), re.S)[1]


def test_the_version_stands_in_one_place_and_the_changelog_begins_with_it() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text("CHANGELOG.md"), re.M)
    assert heading, "the newest version of CHANGELOG.md needs a date"
    assert heading[1] == filet.__version__
    assert "version" not in text("CITATION.cff").replace("cff-version", "")


def test_breaking_changes_come_first_in_the_changelog() -> None:
    newest = text("CHANGELOG.md").split("\n## ")[1]
    assert re.findall(r"^### (.*)$", newest, re.M)[0] == "Breaking changes"


LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"|srcset=\"([^\"]+)\"")


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md"])
def test_links_are_absolute_and_lead_to_files_of_the_project(page: str) -> None:
    links = ["".join(groups) for groups in LINK.findall(text(page))]
    assert links
    source = URLS["Source"]
    raw = source.replace("github.com", "raw.githubusercontent.com") + "/main/"
    ours = 0
    for link in links:
        assert link.startswith("https://"), f"{page}: {link} does not work on PyPI"
        target, _, anchor = link.partition("#")
        for base in (f"{source}/blob/main/", f"{source}/tree/main/", raw):
            if target.startswith(base):
                assert (ROOT / target.removeprefix(base)).exists(), link
                ours += 1
        if target.startswith(URLS["Documentation"]) and target.endswith(".html"):
            name = target.removeprefix(f"{URLS['Documentation']}latest/").replace(".html", ".md")
            assert (ROOT / "docs" / name).exists(), link
            headings = re.findall(r"^#+ (.*)$", text(f"docs/{name}"), re.M)
            anchors = {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings}
            assert not anchor or anchor in anchors, link
            ours += 1
    assert ours >= 1


def test_the_commands_of_the_readme_are_those_of_ci_and_of_the_workflows() -> None:
    ci, workflow = text(".ci/run"), text(".github/workflows/ci.yml")
    for name in ("run", "test", "test-everything"):
        assert f'"$(readme_command {name})"' in ci
        assert readme_command(name).startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    core = readme_command("test").split(" && ")[-1]
    assert "'.[test]'" in readme_command("test")
    assert core.endswith(
        " -m 'not slow and not long' " + WITHOUT_FRAMEWORKS.replace("=*/integrations*", "='*/integrations*'")
    )
    assert f"run: {core}" in workflow
    for script in (ci, text(".ci/package")):
        assert core.split("pytest -q -n 2 ")[1] in script
    everything = readme_command("test-everything")
    assert "'.[dev]'" in everything
    assert "--ignore" not in everything
    for python in re.findall(r"Python :: (3\.\d+)", str(PROJECT["classifiers"])):
        assert f'"{python}"' in workflow, f"the workflow does not test Python {python}"


def test_the_small_suite_installs_no_framework() -> None:
    named = {Requirement(one).name for one in PROJECT["optional-dependencies"]["test"]}
    assert not named & {"torch", "opacus", "jax", "jax-privacy", "dp-accounting", "keras", "grain", "apache-beam", "transformers"}  # fmt: skip


def test_the_constraints_allow_what_the_package_asks_for() -> None:
    pinned = dict(line.split("==") for line in text("constraints.txt").splitlines() if "==" in line)
    pinned = {canonicalize_name(name): Version(version.split(" ")[0]) for name, version in pinned.items()}
    extras = PROJECT["optional-dependencies"]
    wanted = [Requirement(one) for one in PROJECT["dependencies"] + extras["dev"] + extras["test"] + extras["docs"]]
    for one in (one for one in wanted if one.name != "filet"):
        version = pinned.get(canonicalize_name(one.name))
        assert version is not None, f"constraints.txt lacks {one.name}; RELEASING.md says how it is made"
        assert one.specifier.contains(version), f"{one} is not met by constraints.txt"


@pytest.mark.slow
def test_the_source_distribution_holds_what_its_tests_and_readers_need(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "build"], check=True)
    subprocess.run([python, "-m", "build", "--sdist", "--outdir", str(tmp_path), str(ROOT)], check=True)
    with tarfile.open(tmp_path / f"filet-{filet.__version__}.tar.gz") as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"CONTRIBUTING.md", "docs/index.md", "examples/train_jax.py", "tests/test_packaging.py", ".ci/run"} <= names
    if (ROOT / ".git").exists():  # not where the tests run from a source distribution already
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert set(tracked.split()) - names == set()
