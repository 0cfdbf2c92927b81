"""What a stranger installs, cites and clones: one version, true addresses, a whole source distribution, README's commands in CI."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
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
    assert PROJECT["dynamic"] == ["version", "readme"]
    heading = re.search(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", text("CHANGELOG.md"), re.M)
    assert heading, "the newest version of CHANGELOG.md needs a date"
    assert heading[1] == filet.__version__
    assert "version" not in text("CITATION.cff").replace("cff-version", "")


def test_breaking_changes_come_first_in_the_changelog() -> None:
    newest = text("CHANGELOG.md").split("\n## ")[1]
    assert re.findall(r"^### (.*)$", newest, re.M)[0] == "Breaking changes"


LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"|srcset=\"([^\"]+)\"")


def links(words: str) -> list[str]:
    return ["".join(groups) for groups in LINK.findall(words)]


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md", "CONTRIBUTING.md", "RELEASING.md"])
def test_links_are_relative_and_lead_to_files_of_a_clone(page: str) -> None:
    """An absolute link to the project's own files would need a site; a relative one works in a clone and on any host."""
    relative = [link for link in links(text(page)) if not link.startswith("https://")]
    assert relative
    for link in relative:
        target, _, anchor = link.partition("#")
        assert (ROOT / target).exists(), link
        titles = re.findall(r"^#+ (.*)$", text(target), re.M) if target.endswith(".md") else []
        anchors = {re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in titles}
        assert not anchor or anchor in anchors, link
    ours = (URLS["Documentation"], f"{URLS['Source']}/blob", f"{URLS['Source']}/tree")
    assert [link for link in links(text(page)) if link.startswith(ours)] == []


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The metadata of a wheel that is built from this source, as the index of packages shows it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return wheel.read(name).decode("utf-8")


def test_the_readme_of_the_built_package_has_absolute_links_to_the_same_places(metadata: str) -> None:
    source, site = URLS["Source"], f"{URLS['Documentation']}latest/"
    raw = source.replace("github.com", "raw.githubusercontent.com") + "/main/"
    built, written = links(metadata), links(text("README.md"))
    assert len(built) == len(written) > 15
    for link, original in zip(built, written, strict=True):
        page = re.fullmatch(r"docs/([\w/]+)\.(?:md|ipynb)(#[\w-]+)?", original)
        if original.startswith("https://"):
            assert link == original
        elif original.endswith((".svg", ".png")):
            assert link == raw + original
        elif page:
            assert link == f"{site}{page[1]}.html{page[2] or ''}"
        else:
            assert link == f"{source}/blob/main/{original}"


def test_only_one_place_says_how_filet_is_installed_before_it_is_published() -> None:
    """A release changes the words between two marks of the README; the page on installing includes them."""
    words = re.search(r"<!-- install -->\n(.*?)<!-- end of install -->", text("README.md"), re.S)[1]
    assert "pip install" in words
    assert ":start-after: <!-- install -->" in text("docs/install.md")
    assert "<!-- install -->" in text("RELEASING.md")
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        found = page.read_text(encoding="utf-8").replace(words, "")
        assert "PyPI yet" not in found, page
        assert not re.search(r"pip install filet\b", found), page


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
    assert not named & {"torch", "opacus", "jax", "jax-privacy", "dp-accounting", "keras", "grain", "apache-beam", "pyspark", "ray", "transformers"}  # fmt: skip


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
