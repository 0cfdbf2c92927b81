"""`certify` writes what the library certifies, `check` judges it: words and codes for people, JSON for programs."""

import json
import subprocess
import sys

import pytest
from tests.cli.invoke import ENVIRONMENT, one_line, run

import filet
from filet.checking import check

RUN = ["--dataset-size", 1_000, "--sampling-probability", 0.05, "--max-batch-size", 60, "--noise-multiplier", 2,
       "--steps", 100]  # fmt: skip
ASKED = [*RUN, "--adjacency", "zero-out", "--delta", "1e-5"]


def curve():
    scheme = filet.CappedPoisson(1_000, 0.05, 60)
    return filet.account(scheme, noise_multiplier=2.0, steps=100, adjacency="zero-out")


@pytest.fixture(scope="module")
def claim():
    return curve().certificate(1e-5)


@pytest.fixture
def written(claim, tmp_path):
    path = tmp_path / "run.certificate.json"
    path.write_text(json.dumps(claim))
    return path


def test_certify_writes_the_librarys_certificate_and_says_what_it_cost(claim, tmp_path):
    path = tmp_path / "run.certificate.json"
    outcome = run("certify", *ASKED, "-o", path)
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(path.read_text()) == claim
    lines = dict(line.split("  ", 1) for line in outcome.stdout.splitlines())
    lines = {name.strip(): value.strip() for name, value in lines.items()}
    assert (lines["epsilon"], lines["delta"], lines["file"]) == (claim["epsilon"], "1e-05", str(path))
    share = float(claim["epsilon"]) / curve().epsilon(1e-5) - 1
    assert lines["cost of the lattice"].startswith(f"{100 * share:.3f} % of epsilon ")
    assert 0 < share < 1e-3


def test_certify_in_json_carries_the_inputs_and_both_epsilons(claim, tmp_path):
    path = tmp_path / "a.json"
    answer = json.loads(run("certify", *ASKED, "-o", path, "--json").stdout)
    assert answer["schema"] == "filet.certify.v1"
    assert answer["inputs"]["phases"][0]["max_batch_size"] == 60
    result = answer["result"]
    assert result["epsilon"] == claim["epsilon"]
    assert result["uncertified_epsilon"] == curve().epsilon(1e-5)
    assert result["file"] == str(path)


@pytest.mark.long
def test_certify_reads_run_files(tmp_path):
    config = tmp_path / "run.toml"
    config.write_text(
        'adjacency = "add-remove"\ndelta = 1e-6\ndataset_size = 1_000\nmax_batch_size = 80\nsampling_probability = 0.05\n'
        "[[phases]]\nnoise_multiplier = 2.0\nsteps = 10\n"
        '[[phases]]\nnoise_multiplier = 3.0\nsteps = 20\noverflow = "reject"\n'
        "[[gaussian]]\nnoise_multiplier = 20.0\n"
    )
    path = tmp_path / "run.certificate.json"
    assert run("certify", "--config", config, "-o", path).exit_code == 0
    words = check(json.loads(path.read_text())).words
    for part in ("10 steps", "20 steps", "reject", "Gaussian releases", "1e-06", "added or removed"):
        assert part in words


def test_a_file_is_not_overwritten_unasked(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("mine")
    assert "--force" in one_line(run("certify", *ASKED, "-o", path), 2)
    assert path.read_text() == "mine"
    assert run("certify", *ASKED, "-o", path, "--force").exit_code == 0
    assert json.loads(path.read_text())["format"] == "filet-certificate"


def test_what_has_no_certificate_leaves_no_file(tmp_path):
    path = tmp_path / "a.json"
    options = [*RUN[:6], "--noise-multiplier", 0, "--steps", 1, "--adjacency", "zero-out", "--delta", "1e-5"]
    assert "no finite epsilon" in one_line(run("certify", *options, "-o", path), 1)
    assert "delta is missing" in one_line(run("certify", *RUN, "--adjacency", "zero-out", "-o", path), 2)
    assert "--output" in one_line(run("certify", *ASKED), 2)
    assert list(tmp_path.iterdir()) == []


def test_check_prints_what_was_proven(claim, written):
    outcome = run("check", written)
    assert (outcome.exit_code, outcome.stdout) == (0, check(claim).words + "\n")
    answer = json.loads(run("check", written, "--json").stdout)
    assert answer["schema"] == "filet.check.v1"
    assert answer["result"]["ok"] is True
    assert answer["result"]["epsilon"] == claim["epsilon"]
    assert answer["result"]["words"] == check(claim).words


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda t: t.replace('"steps": 100', '"steps": 99'), "checksum"),
        (lambda t: t[: len(t) // 2], "not plain JSON"),
        (lambda t: "", "not plain JSON"),
        (lambda t: "\ud800", "not plain JSON"),
        (lambda t: "[" * 100_000, "not plain JSON"),
        (lambda t: "[]", "format"),
        (lambda t: t.replace('"epsilon"', '"epsilon": "1.0", "epsilon"'), "the key 'epsilon' appears twice"),
        (lambda t: t.replace('"steps"', '"steps": 1, "steps"'), "the key 'steps' appears twice"),
        (lambda t: t.replace('"steps"', r'"s\u0074eps": 1, "steps"'), "the key 'steps' appears twice"),
        (
            lambda t: t.replace('"steps"', '"\\u001b[2J\u0665": 1, "\\u001b[2J\u0665": 2, "steps"'),
            r"the key '\x1b[2J\u0665'",
        ),
        (lambda t: t.replace('"steps": 100', '"steps": "100"'), "checksum"),
        (lambda t: t.replace('"version": 2', '"version": 1'), "the version of a certificate must be 2, not 1"),
        (lambda t: t.replace('"steps": 100', '"steps": NaN'), "checksum"),
        (lambda t: t.replace('"steps": 100', f'"steps": {"9" * 5000}'), "not plain JSON"),
    ],
    ids=[
        "changed",
        "half",
        "empty",
        "no text",
        "deep",
        "other",
        "twice",
        "twice inside",
        "twice, escaped",
        "twice, in other scripts",
        "text",
        "old",
        "nan",
        "long",
    ],
)
def test_a_refusal_has_its_reason_and_code_1(written, text, reason):
    written.write_bytes(text(written.read_text()).encode("utf-8", "surrogatepass"))
    outcome = run("check", written)
    assert outcome.exit_code == 1
    assert outcome.stdout.startswith("Refused: ")
    assert reason in outcome.stdout
    assert outcome.stdout.count("\n") == 1
    outcome = run("check", written, "--json")
    assert outcome.exit_code == 1
    result = json.loads(outcome.stdout)["result"]
    assert result["ok"] is False
    assert reason in result["reason"]


def test_a_budget_is_kept(written):
    for option, value, reason in (("--max-seconds", 0, "max_seconds allows"), ("--max-bytes", 1e7, "max_bytes allows"),
                                  ("--max-bytes", 1000, "31 characters"), ("--max-bytes", -1, "0 characters")):  # fmt: skip
        outcome = run("check", written, option, value)
        assert outcome.exit_code == 1
        assert reason in outcome.stdout
    assert run("check", written, "--max-seconds", "inf", "--max-bytes", "inf").exit_code == 0


@pytest.mark.parametrize("name", ["max_seconds", "max_bytes"])
def test_a_budget_is_a_number(written, name):
    option = f"--{name.replace('_', '-')}"
    assert f"{name}=nan is not a number; pass the" in one_line(run("check", written, option, "nan"), 2)


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path):
    assert "cannot read" in one_line(run("check", tmp_path / "none.json"), 2)


def without_flint(*arguments):
    code = "import sys; sys.modules['flint'] = None; from filet.cli.entry import main; main()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)


def test_help_needs_no_optional_package_and_the_rest_names_the_extra(written, tmp_path):
    assert "Usage: filet check" in without_flint("check", "--help").stdout
    for arguments in (["check", written], ["certify", *ASKED, "-o", tmp_path / "a.json"]):
        outcome = without_flint(*arguments)
        assert outcome.returncode == 1
        assert outcome.stderr.startswith("filet: ")
        assert outcome.stderr.endswith("pip install 'filet[check]'\n")
        assert outcome.stderr.count("\n") == 1


def test_certify_refuses_what_takes_too_long_before_it_starts(tmp_path):
    path = tmp_path / "a.json"
    assert "may take" in one_line(run("certify", *ASKED, "-o", path, "--max-seconds", "0.001"), 1)
    assert not path.exists()
