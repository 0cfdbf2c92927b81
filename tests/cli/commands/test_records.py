"""The command `record`: writes what the library makes, and refuses what does not hold."""

import json

from tests.cli.invoke import RUN_FILE, ZERO_OUT, curve, one_line, run

import filet


def written(tmp_path, *options):
    (tmp_path / "run.toml").write_text(RUN_FILE)
    outcome = run("record", tmp_path / "run.toml", "-o", tmp_path / "record.json", *options)
    assert outcome.exit_code == 0, outcome.output
    return tmp_path / "record.json"


def test_a_run_file_and_its_options_give_the_librarys_record(tmp_path):
    made = json.loads(written(tmp_path, "--unit", "one row", "--title", "mine").read_text())
    assert made == filet.record(curve(), 1e-5, unit="one row", title="mine")
    from_options = run("record", *ZERO_OUT, "--delta", "1e-5", "--unit", "one row", "--title", "mine").stdout
    assert json.loads(from_options) == made


def test_a_record_is_verified_and_a_changed_one_refused_a_line_for_each_field(tmp_path):
    file = written(tmp_path)
    outcome = run("record", "--verify", file)
    assert (outcome.exit_code, outcome.stdout) == (0, "Every field holds: epsilon = 2.825 at delta = 1e-05.\n")
    file.write_text(file.read_text().replace('"epsilon": 2.8', '"epsilon": 1.8'))
    outcome = run("record", "--verify", file)
    assert outcome.exit_code == 1
    lines = outcome.stdout.splitlines()
    assert [line.split(" is ")[0] for line in lines[:-1]] == ["Refused: guarantee.epsilon"]
    assert lines[-1].startswith("Refused: checksum does not match")
    answer = json.loads(run("record", "--verify", file, "--json").stdout)
    assert answer["result"]["ok"] is False
    assert len(answer["result"]["problems"]) == 2


def test_formats_are_written(tmp_path):
    assert run("record", *ZERO_OUT, "--delta", "1e-5", "--format", "markdown").stdout.startswith("---\ntags:")
    assert "\\footnote{" in run("record", *ZERO_OUT, "--delta", "1e-5", "--format", "latex").stdout
    assert run("record", *ZERO_OUT, "--delta", "1e-5", "--format", "bibtex").stdout.startswith("@misc{")
    fields = json.loads(run("record", *ZERO_OUT, "--delta", "1e-5", "--format", "registry").stdout)
    assert fields["privacy_loss"]["delta"] == 1e-5


def test_a_finished_run_is_recorded_from_its_state(tmp_path):
    accountant = filet.Accountant("zero-out")
    accountant.compose(filet.CappedPoisson(60_000, 256 / 60_000, 300), 1.0, 14_000)
    accountant.save(tmp_path / "state.json")
    outcome = run("record", "--from", tmp_path / "state.json", "--delta", "1e-5")
    assert json.loads(outcome.stdout) == filet.record(curve(), 1e-5)


def test_options_that_do_not_belong_together_are_refused_in_a_line(tmp_path):
    file = written(tmp_path)
    for options, words in (
        (["--verify", file, "--delta", "1e-5"], "--delta has no place beside --verify"),
        (["--verify", file, "--format", "latex"], "--format has no place beside --verify"),
        ([tmp_path / "run.toml", "--json"], "--json is for --verify"),
        ([tmp_path / "run.toml", "--config", tmp_path / "run.toml"], "RUN and --config are both given"),
        ([tmp_path / "run.toml", "-o", file], "exists; pass --force"),
        (["--from", file, "--steps", "3", "--delta", "1e-5"], "--steps has no place beside --from"),
        (["--from", file], "delta is missing"),
        (ZERO_OUT, "delta is missing"),
    ):
        assert words in one_line(run("record", *options), 2)
    assert "no record" in one_line(run("record", "--verify", _json(tmp_path, {})), 1)


def _json(folder, value):
    (folder / "other.json").write_text(json.dumps(value))
    return folder / "other.json"
